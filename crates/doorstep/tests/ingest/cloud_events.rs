//! CloudEvents 1.0 as input.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Server};

const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";

async fn structured(server: &Server, path: &str, body: &str) -> Answer {
    server.send(Method::POST, path, &[("content-type", STRUCTURED)], body.to_owned()).await
}

async fn kept(server: &Server, answer: &Answer) -> Value {
    assert_eq!(answer.status, 202, "{answer:?}");
    server.get(&format!("/v1/events/{}", answer.body["id"].as_str().unwrap())).await.body
}

#[tokio::test]
async fn a_structured_event_is_taken_with_its_data_as_it_stands() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let body = format!(
        r#"{{"specversion": "1.0", "id": "A234-1", "source": "/mycontext", "type": "com.example.someevent", "subject": "x",
            "time": "2018-04-05T17:31:00Z", "tenantid": "{tenant}", "comexampleextension1": "value",
            "data": {{"b" :1.0,  "a":2}}}}"#
    );
    let event = kept(&server, &structured(&server, "/v1/events", &body).await).await;
    assert_eq!((&event["id"], &event["type"]), (&json!("A234-1"), &json!("com.example.someevent")));
    assert_eq!((&event["produced_at"], &event["payload_bytes"]), (&json!("2018-04-05T17:31:00.000Z"), &json!(18)));
    assert_eq!(event["content_type"], "application/json");

    let by_query = format!("/v1/events?tenant_id={tenant}");
    let text = r#"{"specversion":"1.0","id":"A-2","source":"/s","type":"a.b","datacontenttype":"text/xml","data":"<a b=\"c\"/>"}"#;
    let event = kept(&server, &structured(&server, &by_query, text).await).await;
    assert_eq!((&event["content_type"], &event["payload_base64"]), (&json!("text/xml"), &json!("PGEgYj0iYyIvPg==")));
    let bytes =
        r#"{"specversion":"1.0","id":"A-3","source":"/s","type":"a.b","datacontenttype":"x/y","data_base64":"AAE="}"#;
    let event = kept(&server, &structured(&server, &by_query, bytes).await).await;
    assert_eq!((&event["content_type"], &event["payload_base64"]), (&json!("x/y"), &json!("AAE=")));
}

#[tokio::test]
async fn a_binary_event_is_its_headers_and_its_body() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "B-1"),
        ("ce-source", "/s"),
        ("ce-type", "a.b"),
        ("ce-time", "2020-03-19T06:54:28Z"),
        ("ce-tenantid", &tenant),
        ("content-type", "text/plain"),
    ];
    let event = kept(&server, &server.send(Method::POST, "/v1/events", &headers, "h\u{e9}llo").await).await;
    assert_eq!((&event["id"], &event["content_type"]), (&json!("B-1"), &json!("text/plain")));
    assert_eq!(event["payload_base64"], "aMOpbGxv");
    let again = server.send(Method::POST, "/v1/events", &headers, "h\u{e9}llo").await;
    assert_eq!(again.body["duplicate"], true);
}

#[tokio::test]
async fn what_is_wrong_is_told_in_the_words_of_the_event() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let good =
        json!({ "specversion": "1.0", "id": "C-1", "source": "/s", "type": "a.b", "tenantid": tenant, "data": 1 });
    for (field, value, pointer, status) in [
        ("specversion", json!("0.3"), "/specversion", 422),
        ("id", json!(""), "/id", 422),
        ("id", json!("x".repeat(257)), "/id", 422),
        ("id", json!(7), "/id", 422),
        ("source", json!(""), "/source", 422),
        ("source", json!(7), "/source", 422),
        ("source", Value::Null, "/source", 422),
        ("source", json!("a\nb"), "/source", 422),
        ("subject", json!(""), "/subject", 422),
        ("type", json!("a..b"), "/type", 422),
        ("tenantid", json!("ten_00000000000000000000000000"), "/tenantid", 404),
        ("tenantid", Value::Null, "/tenantid", 422),
        ("data", Value::String("x".repeat(300_000)), "", 413),
        ("time", json!("yesterday"), "/time", 422),
    ] {
        let mut wrong = good.clone();
        wrong[field] = value;
        let answer = structured(&server, "/v1/events", &wrong.to_string()).await;
        assert!(answer.status == status, "{field}: {answer:?}");
        assert_eq!(answer.faults().first().map_or("", |fault| fault.0), pointer, "{answer:?}");
    }
    let mut without_source = good.clone();
    without_source.as_object_mut().unwrap().remove("source");
    let answer = structured(&server, "/v1/events", &without_source.to_string()).await;
    assert_eq!((answer.status.as_u16(), answer.faults()[0].0), (422, "/source"), "{answer:?}");

    let good = [("ce-specversion", "1.0"), ("ce-id", "C-1"), ("ce-source", "/s"), ("ce-type", "a.b")];
    let good = || good.into_iter().chain([("ce-tenantid", tenant.as_str())]);
    for name in ["ce-id", "ce-source", "ce-type"] {
        let without: Vec<_> = good().filter(|(one, _)| *one != name).collect();
        let twice: Vec<_> = good().chain([(name, "twice")]).collect();
        let empty: Vec<_> = good().map(|(one, value)| (one, if one == name { "" } else { value })).collect();
        for headers in [without, twice, empty] {
            let answer = server.send(Method::POST, "/v1/events", &headers, "{}").await;
            assert_eq!(
                (answer.status.as_u16(), answer.faults()[0].0),
                (422, format!("{name}:").as_str()),
                "{headers:?}"
            );
        }
    }
    for (name, value) in [("ce-subject", ""), ("ce-subject", "50%"), ("ce-source", "%ff"), ("ce-extension", "a")] {
        let headers: Vec<_> =
            good().filter(|(one, _)| *one != name).chain([(name, value), ("ce-extension", "b")]).collect();
        let answer = server.send(Method::POST, "/v1/events", &headers, "{}").await;
        assert_eq!((answer.status.as_u16(), answer.faults()[0].0), (422, format!("{name}:").as_str()), "{headers:?}");
    }
}

#[tokio::test]
async fn events_of_two_sources_with_one_id_are_two_events() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let from = |source: &str, data: u32| {
        let event = json!({ "specversion": "1.0", "id": "1", "source": source, "type": "a.b", "tenantid": tenant, "data": data });
        event.to_string()
    };
    let mut ids = Vec::new();
    for repeated in [false, true] {
        for source in ["/first", "/second", "/third"] {
            let answer = structured(&server, "/v1/events", &from(source, 1)).await;
            assert_eq!(
                (answer.status.as_u16(), &answer.body["duplicate"]),
                (202, &json!(repeated)),
                "{source}: {answer:?}"
            );
            let event = kept(&server, &answer).await;
            assert_eq!(event["cloud_event"], json!({ "id": "1", "source": source, "subject": null }));
            ids.push(answer.body["id"].as_str().unwrap().to_owned());
        }
        let other = structured(&server, "/v1/events", &from("/second", 2)).await;
        assert_eq!((other.status.as_u16(), &other.body["code"]), (422, &json!("event_differs")), "{other:?}");
    }
    assert_eq!(ids[0], "1", "the first has its own");
    assert_eq!(ids[..3], ids[3..], "each time the same");
    assert!(ids[1].starts_with("evt_") && ids[2].starts_with("evt_") && ids[1] != ids[2], "{ids:?}");
    let own = json!({ "tenant_id": tenant, "type": "a.b", "id": "1", "payload": 1 });
    let own = server.post("/v1/events", &own).await;
    assert_eq!((own.status.as_u16(), &own.body["code"]), (422, &json!("event_differs")), "{own:?}");

    // All at once, and with a key: the same.
    let events: Vec<Value> = ["/x", "/y"].map(|source| serde_json::from_str(&from(source, 1)).unwrap()).into();
    let headers = [("content-type", "application/cloudevents-batch+json"), ("idempotency-key", "k")];
    let mut seen = Vec::new();
    for repeated in [false, true] {
        let answer = server.send(Method::POST, "/v1/events/batch", &headers, json!(events).to_string()).await;
        for result in answer.body["results"].as_array().unwrap() {
            assert_eq!(result["duplicate"], repeated, "{answer:?}");
            seen.push(result["id"].clone());
        }
    }
    assert!(seen[..2] == seen[2..] && seen[0] != seen[1], "{seen:?}");
}

#[tokio::test]
async fn any_id_and_encoded_attributes_are_accepted() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let headers = |id: &'static str| {
        [
            ("ce-specversion", "1.0"),
            ("ce-id", id),
            ("ce-source", "/caf%C3%A9"),
            ("ce-type", "a%2Eb"),
            ("ce-subject", "\"two words\""),
            ("ce-tenantid", &tenant),
        ]
        .map(|(name, value)| (name, value.to_owned()))
    };
    let urn = "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
    for (sent, own, is_kept) in [(urn, urn, true), ("1.2%2F3 ?", "1.2/3 ?", false), ("batch", "batch", false)] {
        let headers = headers(sent);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = server.send(Method::POST, "/v1/events", &headers, "1").await;
        let event = kept(&server, &answer).await;
        assert_eq!((event["id"] == own, &event["type"]), (is_kept, &json!("a.b")), "{event}");
        assert_eq!(event["cloud_event"], json!({ "id": own, "source": "/café", "subject": "two words" }));
        let again = server.send(Method::POST, "/v1/events", &headers, "1").await;
        assert_eq!((&again.body["id"], &again.body["duplicate"]), (&answer.body["id"], &json!(true)));
    }
    // An ID with colons is found as it is and percent-encoded.
    for path in [urn.to_owned(), urn.replace(':', "%3A")] {
        assert_eq!(server.get(&format!("/v1/events/{path}")).await.body["id"], urn);
    }
}

#[tokio::test]
async fn a_batch_is_a_list_of_structured_events() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let event =
        |id: &str, kind: &str| json!({ "specversion": "1.0", "id": id, "source": "/s", "type": kind, "data": [] });
    let batch = json!([event("D-1", "a.b"), event("D-2", "a b")]).to_string();
    let headers = [("content-type", "application/cloudevents-batch+json")];
    let path = format!("/v1/events/batch?tenant_id={tenant}");
    let answer = server.send(Method::POST, &path, &headers, batch).await;
    assert_eq!(answer.body["results"][0]["id"], "D-1", "{answer:?}");
    assert_eq!(answer.body["results"][1]["error"]["errors"][0]["pointer"], "/1/type");
}
