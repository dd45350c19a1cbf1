//! CloudEvents as the library of their own project reads them, in both content modes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::signatures::Judges;
use crate::support::{Client, Home, Judge, Receiver, Request, Server, text};

const PRODUCED_AT: &str = "2026-11-15T13:37:00.123+01:00";
/// The same moment, as the judge tells times.
const TIME: &str = "2026-11-15T12:37:00.123+00:00";

fn setting(format: &str) -> Value {
    json!({"format": format, "event_types": ["order.*"]})
}

/// The request for an event, and the event's ID.
fn delivered(client: &mut Client, receiver: &Receiver, n: usize, tenant: &str, event: Value) -> (String, Request) {
    let mut body = json!({"tenant_id": tenant, "type": "order.line_item-2.changed", "produced_at": PRODUCED_AT});
    body.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
    let id = text(&client.post("/v1/events", body).expect(202), "id");
    (id, receiver.requests.wait_for(n).swap_remove(n - 1))
}

#[test]
fn the_projects_own_library_reads_every_attribute_and_the_data_in_both_modes() {
    let cases = [
        ("application/json", json!({"payload": {"text": "Grüße, 世界 \u{1F600}", "n": [1, 2.5, -3, true, null]}})),
        ("application/json", json!({"payload": "100 % \"text\""})),
        ("application/json", json!({"payload": null})),
        (
            "application/vnd.acme.order+json",
            json!({"payload": {"of": "Ö"}, "content_type": "application/vnd.acme.order+json"}),
        ),
        (
            "text/plain; charset=utf-8",
            json!({"payload_base64": STANDARD.encode("Grüße\n"), "content_type": "text/plain; charset=utf-8"}),
        ),
        (
            "application/octet-stream",
            json!({"payload_base64": STANDARD.encode([0, 255, 128, 10]), "content_type": "application/octet-stream"}),
        ),
    ];
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let (mut library, mut signatures) = (Judge::start("cloud_events.py"), Judges::start());
    for format in ["cloudevents_binary", "cloudevents_structured"] {
        let receiver = Receiver::start();
        let tenant = client.tenant();
        let destination = client.destination(&tenant, &receiver.url("/"), setting(format));
        for (nth, (content_type, event)) in cases.iter().enumerate() {
            let (id, request) = delivered(&mut client, &receiver, nth + 1, &tenant, event.clone());
            let read = library.judge(&request, json!({}));
            let expected = json!({
                "specversion": "1.0", "id": id, "source": format!("/tenants/{tenant}"), "type": "order.line_item-2.changed",
                "time": TIME, "datacontenttype": content_type,
            });
            assert_eq!(read.get("attributes"), Some(&expected), "{format}: {read:?}: {request:?}");
            let data = event.get("payload").map_or(("data_base64", &event["payload_base64"]), |data| ("data", data));
            assert_eq!(read.get(data.0), Some(data.1), "{format}: {read:?}: {request:?}");
            // Those libraries read bodies as text, whatever is in them.
            if std::str::from_utf8(&request.body).is_ok() {
                signatures.expect_accepted(&request, &text(&destination, "secret"));
            }
        }
    }
}

#[test]
fn each_mode_keeps_to_itself_and_the_library_refuses_what_lacks_an_attribute() {
    let home = Home::new();
    let (server, mut library) = (Server::start(&home), Judge::start("cloud_events.py"));
    let mut client = server.client();
    let payload = json!({"payload": {"amount": 1}});
    for (format, sent_as) in
        [("cloudevents_binary", "application/json"), ("cloudevents_structured", "application/cloudevents+json")]
    {
        let receiver = Receiver::start();
        let tenant = client.tenant();
        client.destination(&tenant, &receiver.url("/"), setting(format));
        let (_, request) = delivered(&mut client, &receiver, 1, &tenant, payload.clone());
        assert_eq!(request.header("content-type"), Some(sent_as));
        let mut names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.retain(|name| name.starts_with("ce-"));
        names.sort_unstable();
        let mut without_type = request.clone();
        if format == "cloudevents_binary" {
            assert_eq!(names, ["ce-id", "ce-source", "ce-specversion", "ce-time", "ce-type"]);
            without_type.headers.retain(|(name, _)| name != "ce-type");
        } else {
            assert_eq!(names, [""; 0]);
            let mut body: Value = serde_json::from_slice(&request.body).unwrap();
            body.as_object_mut().unwrap().remove("type");
            without_type.body = body.to_string().into();
        }
        assert!(library.judge(&request, json!({})).contains_key("attributes"));
        let fault = library.judge(&without_type, json!({})).remove("fault");
        assert!(fault.is_some_and(|fault| fault.to_string().contains("type")), "the judge can say no");
    }
}

#[test]
fn a_reference_is_the_data_of_a_cloud_event_too() {
    let home = Home::new();
    let (server, mut library) = (Server::start(&home), Judge::start("cloud_events.py"));
    let mut client = server.client();
    for format in ["cloudevents_binary", "cloudevents_structured"] {
        let receiver = Receiver::start();
        let tenant = client.tenant();
        let mut thin = setting(format);
        thin["payload_mode"] = json!("thin");
        client.destination(&tenant, &receiver.url("/"), thin);
        let plain = json!({"payload_base64": STANDARD.encode("Grüße"), "content_type": "text/plain"});
        let (id, request) = delivered(&mut client, &receiver, 1, &tenant, plain);
        let read = library.judge(&request, json!({}));
        assert_eq!(read["attributes"]["datacontenttype"], "application/json", "{read:?}");
        assert_eq!((&read["data"]["event_id"], &read["data"]["content_type"]), (&json!(id), &json!("text/plain")));
    }
}

#[test]
fn what_came_as_a_cloud_event_goes_out_as_the_same_one_to_the_projects_own_library() {
    let home = Home::new();
    let (server, mut library) = (Server::start(&home), Judge::start("cloud_events.py"));
    let mut client = server.client();
    for format in ["cloudevents_binary", "cloudevents_structured"] {
        let receiver = Receiver::start();
        let tenant = client.tenant();
        client.destination(&tenant, &receiver.url("/"), json!({"format": format}));
        let mut ids = Vec::new();
        for (nth, source) in ["/shops/Köln", "/shops/Bonn"].into_iter().enumerate() {
            let event = json!({
                "specversion": "1.0", "id": "1", "source": source, "subject": "100 % \"quoted\"", "type": "order.paid",
                "time": PRODUCED_AT, "tenantid": tenant, "data": {"n": nth},
            });
            let headers = [("content-type", "application/cloudevents+json")];
            let accepted =
                client.ask("POST", "/v1/events", &headers, event.to_string().as_bytes()).unwrap().expect(202);
            assert_eq!(accepted["duplicate"], false, "the same ID of another source is another event");
            let request = receiver.requests.wait_for(nth + 1).swap_remove(nth);
            let read = library.judge(&request, json!({}));
            let expected = json!({
                "specversion": "1.0", "id": "1", "source": source, "subject": "100 % \"quoted\"", "type": "order.paid",
                "time": TIME, "datacontenttype": "application/json",
            });
            assert_eq!(read.get("attributes"), Some(&expected), "{format}: {read:?}: {request:?}");
            assert_eq!(read.get("data"), Some(&json!({"n": nth})));
            assert_eq!(request.header("webhook-id"), accepted["id"].as_str());
            ids.push(text(&accepted, "id"));
        }
        assert!(ids[0] == "1" && ids[1].starts_with("evt_"), "{ids:?}");
    }
}
