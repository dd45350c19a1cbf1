//! Every example of `docs/reference/lists.md` is asked of the real binary, which holds what the page says it holds.

use serde_json::{Value, json};

use crate::support::{Client, Home, Receiver, Server, text, until};

const PAGE: &str = include_str!("../../../../docs/reference/lists.md");

/// The rows of the table below this heading: two cells each, without their quotes.
fn rows(heading: &str) -> Vec<(String, String)> {
    let (_, part) = PAGE.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no part {heading}"));
    let table = part.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = table.skip(2).map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, query, finds, _] = cells[..] else { panic!("not two cells: {line}") };
        (query.trim_matches('`').to_owned(), finds.to_owned())
    });
    cells.collect()
}

/// What the page begins with: four events, and what came of each.
struct Stock {
    acme: String,
    bolt: String,
    ledger: String,
}

impl Stock {
    fn fill(client: &mut Client) -> Self {
        let (acme, bolt) = (client.tenant(), client.tenant());
        let well = Receiver::start().url("/");
        let refusing = Receiver::answering(|peer, _| {
            std::io::Write::write_all(peer, b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        });
        client.destination(&acme, &well, json!({"event_types": ["order.*"]}));
        client.destination(&acme, &refusing.url("/"), json!({"event_types": ["invoice.paid"]}));
        let ledger = text(&client.destination(&acme, &well, json!({"event_types": ["invoice.line.*"]})), "id");
        let paused = text(&client.destination(&bolt, &well, json!({})), "id");
        [&ledger, &paused].into_iter().for_each(|id| drop(client.tell(id, "pause")));
        for (of, id, kind, key) in [
            (&acme, "order-1", "order.created", Some("cart 7")),
            (&acme, "invoice-1", "invoice.paid", None),
            (&acme, "invoice-2", "invoice.line.added", None),
            (&bolt, "invoice-1", "invoice.paid", None),
        ] {
            client.event(of, json!({"id": id, "type": kind, "ordering_key": key}));
        }
        until("both that are sent to end", || {
            let page = client.read("/v1/deliveries?status=delivered,dead");
            (page["data"].as_array().unwrap().len() == 2).then_some(())
        });
        Self { acme, bolt, ledger }
    }

    fn with_ids(&self, query: &str) -> String {
        query.replace("ACME", &self.acme).replace("BOLT", &self.bolt).replace("LEDGER", &self.ledger)
    }

    /// The events that a list names, as the page names them.
    fn named(&self, page: &Value, field: &str) -> String {
        let name = |line: &Value| {
            let of_bolt = line["tenant_id"] == self.bolt;
            format!("{}{}", text(line, field), if of_bolt { " of Bolt" } else { "" })
        };
        let names: Vec<String> = page["data"].as_array().unwrap().iter().map(name).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    }
}

#[test]
fn every_list_on_the_page_holds_what_the_page_says() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let stock = Stock::fill(&mut client);
    for (heading, path, field, least) in
        [("### Deliveries", "/v1/deliveries", "event_id", 15), ("### Events", "/v1/events", "id", 5)]
    {
        let rows = rows(heading);
        assert!(rows.len() >= least, "only {} examples below {heading}", rows.len());
        for (query, finds) in rows {
            let page = client.read(&format!("{path}?{}", stock.with_ids(&query)));
            assert_eq!(stock.named(&page, field), finds, "{path}?{query}");
        }
    }
}

#[test]
fn every_refusal_on_the_page_is_in_its_words() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let rows = rows("## What is refused");
    assert!(rows.len() >= 5, "only {} examples", rows.len());
    for (query, told) in rows {
        let problem = client.get(&format!("/v1/deliveries?{query}")).expect(422);
        assert_eq!(text(&problem, "detail"), told, "{query}");
    }
}
