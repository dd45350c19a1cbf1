//! Deliveries with the same key go one at a time, in the order in which they came (O1, O2).

use serde_json::json;

use crate::answers::every;
use crate::support::{Home, Listener, Server, text};

#[test]
fn the_same_key_keeps_its_order_through_failures_and_numbers_it() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&["--fail", "30%", "--seed", "3"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"ordering": "by_key", "policy": every(50, 100)});
    client.destination(&tenant, &listener.url("/"), settings);
    let mut events = [vec![], vec![], vec![]];
    for nth in 0..30 {
        let key = nth % events.len();
        events[key].push(client.event(&tenant, json!({"ordering_key": format!("k{key}")})));
    }
    for event in events.iter().flatten() {
        listener.wait_for(event, 200);
    }
    let taken: Vec<_> = listener.records.all().into_iter().filter(|record| record["answered"] == 200).collect();
    for of_key in &events {
        let arrived = taken.iter().filter(|record| of_key.iter().any(|event| record["event_id"] == *event));
        let arrived: Vec<_> = arrived.map(|record| (text(record, "event_id"), record["sequence"].as_u64())).collect();
        let first = arrived[0].1.unwrap();
        let expected: Vec<_> = of_key.iter().cloned().zip((first..).map(Some)).collect();
        assert_eq!(arrived, expected, "in the order in which they came, without a gap");
    }
}

#[test]
fn one_key_in_trouble_holds_its_own_and_no_other() {
    let home = Home::new();
    let (server, hanging) = (Server::start(&home), Listener::start(&["--hang"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &hanging.url("/"), json!({"ordering": "by_key"})), "id");
    let first = client.event(&tenant, json!({"ordering_key": "a"}));
    hanging.wait_for(&first, "hang");
    let behind = client.event(&tenant, json!({"ordering_key": "a"}));
    let other = client.event(&tenant, json!({"ordering_key": "b"}));
    let keyless = client.event(&tenant, json!({}));
    hanging.wait_for(&other, "hang");
    let unordered = hanging.wait_for(&keyless, "hang");
    assert!(unordered["sequence"].is_null(), "{unordered}");
    let waiting = client.delivery_waiting(&destination, &behind, "ordering");
    assert_eq!((&waiting["status"], &waiting["ordering_key"]), (&json!("queued"), &json!("a")));
    assert!(hanging.of(&behind).is_empty());
}

#[test]
fn behind_a_dead_letter_the_next_one_goes_or_is_held_as_was_chosen() {
    for (behind_dead, goes) in [("skip", true), ("hold", false)] {
        let home = Home::new();
        let (server, refusing) = (Server::start(&home), Listener::start(&["--status", "400"]));
        let mut client = server.client();
        let tenant = client.tenant();
        let settings = json!({"ordering": "by_key", "behind_dead": behind_dead});
        let destination = text(&client.destination(&tenant, &refusing.url("/"), settings), "id");
        let first = client.event(&tenant, json!({"ordering_key": "a"}));
        client.delivery_in(&destination, &first, "dead");
        let second = client.event(&tenant, json!({"ordering_key": "a"}));
        if goes {
            refusing.wait_for(&second, 400);
            continue;
        }
        client.delivery_waiting(&destination, &second, "ordering");
        assert_eq!(refusing.records.len(), 1);
        // Abandoning the dead letter lets the next one go.
        let dead = text(&client.delivery_of(&destination, &first), "id");
        client.post(&format!("/v1/deliveries/{dead}/abandon"), "").expect(200);
        refusing.wait_for(&second, 400);
    }
}
