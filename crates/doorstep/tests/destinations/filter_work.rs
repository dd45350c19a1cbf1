//! What filters may cost (G12, S8).

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Receiver, Server, text};

/// A filter that searches one field for so many texts, none of which another destination searches for.
fn searching(n: usize, texts: usize) -> Value {
    let tests: Vec<Value> =
        (0..texts).map(|at| json!({ "data.text": { "contains": format!("needle {n} {at}") } })).collect();
    json!({ "filter": { "any": tests } })
}

/// 100 destinations that search 250 kB for 50 texts each held a runtime thread for two seconds.
#[tokio::test]
async fn a_filter_beyond_the_tenants_budget_is_refused_and_what_is_there_goes_on_working() {
    let server = Server::start(&[]).await;
    let mut receiver = Receiver::answering(&[200]).await;
    let mut made = Vec::new();
    let refused = loop {
        let new = server.new_destination(&receiver.url, searching(made.len(), 50));
        let answer = server.ask(Method::POST, "/v1/destinations").json(&new).send().await.unwrap();
        let (status, told) = (answer.status(), answer.json::<Value>().await.unwrap());
        if status != 201 {
            break told;
        }
        made.push(text(&told, "id"));
    };
    assert_eq!(made.len(), 20);
    assert_eq!(refused["errors"][0]["pointer"], "/filter", "{refused}");
    let detail = text(&refused["errors"][0], "detail");
    assert!(detail.contains("268435456 are allowed") && detail.contains("up to 1050 values"), "{detail}");

    let plain = server.destination(&receiver.url, json!({ "filter": { "data.text": { "prefix": "no" } } })).await;
    let plain = format!("/v1/destinations/{}", text(&plain, "id"));
    let (at, _) = server.refused(Method::PATCH, &plain, searching(20, 50)).await;
    assert_eq!(at, "/filter", "a change is counted like a new one");
    let last = format!("/v1/destinations/{}", made[19]);
    let renamed = server.ask(Method::PATCH, &last).json(&json!({ "name": "The last one" })).send().await.unwrap();
    assert_eq!(renamed.status(), 200, "what does not touch the filter may change");

    let payload = json!({ "data": { "text": "x".repeat(250_000) + "needle 7 31" } });
    let event = json!({ "tenant_id": server.tenant_id, "type": "a.b", "payload": payload });
    assert_eq!(server.post("/v1/events", event).await["deliveries"], 1);
    assert_eq!(receiver.next().await.json(), payload);
}

#[tokio::test]
async fn filters_from_before_the_limit_was_lowered_stay_and_no_event_is_lost_for_them() {
    let mut server = Server::start(&[]).await;
    let mut receiver = Receiver::answering(&[200]).await;
    for n in 0..10 {
        server.destination(&receiver.url, searching(n, 50)).await;
    }
    server.restart_with(&["--filter-work-max", "1048576"]);
    let event =
        json!({ "tenant_id": server.tenant_id, "type": "a.b", "payload": { "data": { "text": "a needle 3 14" } } });
    assert_eq!(server.post("/v1/events", event).await["deliveries"], 1);
    receiver.next().await;
    let (at, detail) =
        server.refused(Method::POST, "/v1/destinations", server.new_destination(&receiver.url, searching(11, 1))).await;
    assert!(at == "/filter" && detail.contains("1048576 are allowed"), "{at}: {detail}");
}
