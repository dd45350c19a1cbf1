//! Bodies arrive byte for byte as they came (D2, I7).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::support::{Client, Home, Listener, Receiver, Server, in_repository, sha256};

#[derive(Deserialize)]
struct Kind {
    name: String,
    examples: Vec<Box<RawValue>>,
}

/// The body of a request for this event, with the payload's text untouched.
fn event(tenant: &str, id: &str, event_type: &str, payload: &str) -> String {
    format!(r#"{{"tenant_id":"{tenant}","id":"{id}","type":"{event_type}","payload":{payload}}}"#)
}

fn accepted(client: &mut Client, body: &str) {
    let answer = client.post("/v1/events", body).expect(202);
    assert_eq!((&answer["deliveries"], &answer["duplicate"]), (&json!(1), &json!(false)), "{answer}");
}

#[test]
fn every_example_of_github_arrives_as_it_was_sent() {
    let examples = in_repository("e2e/node_modules/@octokit/webhooks-examples/api.github.com/index.json");
    let examples = std::fs::read_to_string(examples).expect("GitHub's examples: `make examples` fetches them");
    let kinds: Vec<Kind> = serde_json::from_str(&examples).unwrap();
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &listener.url("/github"), json!({}));

    let payloads = kinds.iter().flat_map(|kind| kind.examples.iter().map(move |payload| (&kind.name, payload.get())));
    let mut expected = BTreeMap::new();
    let mut batch = Vec::new();
    for (nth, (kind, payload)) in payloads.enumerate() {
        let id = format!("github-{nth}");
        let body = event(&tenant, &id, &format!("github.{kind}"), payload);
        // Both ways in: one by one, and in a batch.
        if nth % 2 == 0 {
            accepted(&mut client, &body)
        } else {
            batch.push(body)
        }
        expected.insert(id, (sha256(payload.as_bytes()), payload.len(), format!("github.{kind}")));
    }
    assert_eq!(expected.len(), 329, "of the pinned version");
    for some in batch.chunks(50) {
        let results = client.post("/v1/events/batch", format!("{{\"events\":[{}]}}", some.join(","))).expect(200);
        let results = results["results"].as_array().unwrap();
        assert!(results.len() == some.len() && results.iter().all(|result| result["deliveries"] == 1), "{results:?}");
    }
    for record in listener.records.wait_for(expected.len()) {
        let id = record["event_id"].as_str().unwrap();
        let (hash, length, event_type) = expected.remove(id).unwrap_or_else(|| panic!("{id} came twice"));
        assert_eq!((&record["body_sha256"], &record["bytes"]), (&json!(hash), &json!(length)), "{id}");
        assert_eq!(record["event_type"], event_type);
    }
    assert!(expected.is_empty());
}

#[test]
fn json_is_not_rewritten_however_odd_it_is() {
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let long = format!("\"{}\"", "x".repeat(250_000));
    let payloads = [
        "1.0",
        "1",
        "-0",
        "1e400",
        "0.1e-999999",
        "123456789012345678901234567890",
        "3.141592653589793238462643383279502884197",
        "null",
        "true",
        "\"\"",
        "{}",
        "[ ]",
        r#""\u0041\u00e9\ud83d\ude00 \/ \b""#,
        r#""\ud800 a lone surrogate""#,
        "\"Grüße, 世界 \u{1f600} \u{2028}\"",
        r#"{"a":1,"a":2,"A":3}"#,
        "{ \"b\" : 1 ,\n\t\"a\" : [ 1 , 2 ]\r\n}",
        r#"{"":{"a.b":null,"__proto__":[]}}"#,
        &deep,
        &long,
    ];
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), Receiver::start());
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &receiver.url("/"), json!({}));
    for (nth, payload) in payloads.iter().enumerate() {
        accepted(&mut client, &event(&tenant, &format!("odd-{nth}"), "odd", payload));
    }
    for request in receiver.requests.wait_for(payloads.len()) {
        let nth: usize = request.header("webhook-id").unwrap().strip_prefix("odd-").unwrap().parse().unwrap();
        assert!(request.body == payloads[nth].as_bytes(), "{} became {:?}", payloads[nth], request.body);
        let shown = client.get(&format!("/v1/events/odd-{nth}"));
        let expected = format!("\"payload\":{}", payloads[nth]);
        assert!(shown.status == 200 && shown.text().contains(&expected), "{}: {}", payloads[nth], shown.text());
    }
    // White space around the value is not part of it.
    accepted(&mut client, &event(&tenant, "spaced", "odd", "  \n [1]\t "));
    assert_eq!(receiver.requests.wait_for(payloads.len() + 1).pop().unwrap().body, b"[1]");
}

#[test]
fn anything_that_is_not_json_arrives_as_it_was_sent_too() {
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), Receiver::start());
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &receiver.url("/"), json!({}));
    let every_byte: Vec<u8> = (0..=255).cycle().take(256 * 1024).collect();
    let payloads: [(&[u8], &str); 4] = [
        (&every_byte, "application/octet-stream"),
        (b"<a>\xff\xfe</a>", "application/xml; charset=latin1"),
        (b"a=1&b=2", "application/x-www-form-urlencoded"),
        (b"", "text/plain"),
    ];
    for (bytes, content_type) in payloads {
        let body = json!({"tenant_id": tenant, "type": "raw", "payload_base64": STANDARD.encode(bytes), "content_type": content_type});
        client.post("/v1/events", body).expect(202);
        let request = receiver.requests.wait("it", |requests: &[crate::support::Request]| {
            requests.iter().find(|request| request.header("content-type") == Some(content_type)).cloned()
        });
        assert!(request.body == bytes, "{content_type}");
    }
    let record: Value = client.read("/v1/events?limit=1");
    assert_eq!(record["data"][0]["payload_bytes"], 0);
}
