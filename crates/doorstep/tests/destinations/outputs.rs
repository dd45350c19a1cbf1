//! What receivers get: payloads or references to them (I5), CloudEvents, traces.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Receiver, Server, text};

impl Server {
    async fn event(&self, event: Value) {
        let mut body = json!({"tenant_id": self.tenant_id, "type": "invoice.paid"});
        body.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
        self.post("/v1/events", body).await;
    }
}

#[tokio::test]
async fn a_thin_delivery_leads_to_the_payload_and_to_nothing_else() {
    let (server, mut receiver) = (Server::start(&[]).await, Receiver::answering(&[200]).await);
    let made = server.destination(&receiver.url, json!({"payload_mode": "thin"})).await;
    assert_eq!(made["payload_mode"], "thin");
    server.event(json!({"id": "evt-1", "payload_base64": "PGI+/w==", "content_type": "text/html"})).await;
    server.event(json!({"id": "evt-2", "payload": {"n": 1.10}})).await;
    let (mut html, mut json) = (receiver.next().await.json(), receiver.next().await.json());
    if text(&html, "event_id") != "evt-1" {
        std::mem::swap(&mut html, &mut json);
    }
    let url = text(&html, "payload_url");
    assert!(url.starts_with(&format!("{}/v1/events/evt-1/payload?", server.base())), "{url}");

    let fetched = server.fetch(&url).await;
    assert_eq!(fetched.status(), StatusCode::OK);
    for (name, value) in [
        ("content-type", "text/html"),
        ("content-disposition", "attachment"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(fetched.headers()[name], value);
    }
    assert_eq!(&fetched.bytes().await.unwrap()[..], b"<b>\xff");
    let fetched = server.fetch(&text(&json, "payload_url")).await;
    assert_eq!(fetched.headers()["content-type"], "application/json");
    assert_eq!(&fetched.bytes().await.unwrap()[..], br#"{"n":1.1}"#);

    let expires = url.split_once("&expires=").unwrap().1.split_once('&').unwrap().0.to_owned();
    let later = (expires.parse::<i64>().unwrap() + 1).to_string();
    let other = server.destination(&receiver.url, json!({"payload_mode": "thin", "event_types": ["x.y"]})).await;
    for changed in [
        url.replace("evt-1", "evt-2"),
        url.replace(&expires, &later),
        url.replace(&text(&made, "id"), &text(&other, "id")),
        format!("{}A", url),
        url.replace("&signature=", "&signature=A"),
    ] {
        let answer = server.fetch(&changed).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{changed}");
        assert_eq!(text(&answer.json().await.unwrap(), "code"), "bad_link");
    }
    let unsigned = url.split_once("&signature").unwrap().0;
    assert_eq!(server.fetch(unsigned).await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(server.fetch(&format!("{}/v1/events/evt-1", server.base())).await.status(), StatusCode::UNAUTHORIZED);

    let path = format!("/v1/destinations/{}", text(&made, "id"));
    server.post(&format!("{path}/secrets/rotate"), json!({})).await;
    assert_eq!(server.fetch(&url).await.status(), StatusCode::OK, "a new signing secret leaves links alone");
    server.ask(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(server.fetch(&url).await.status(), StatusCode::FORBIDDEN, "a destination takes its links with it");
}

#[tokio::test]
async fn links_end_when_their_key_is_rotated_and_the_signing_secret_stays() {
    let (server, mut receiver) = (Server::start(&[]).await, Receiver::answering(&[200]).await);
    let made = server.destination(&receiver.url, json!({"payload_mode": "thin"})).await;
    server.event(json!({"payload": 1})).await;
    let before = text(&receiver.next().await.json(), "payload_url");
    assert_eq!(server.fetch(&before).await.status(), StatusCode::OK);
    let rotate = format!("/v1/destinations/{}/secrets/rotate", text(&made, "id"));
    for (field, value) in [("secret", json!("whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0")), ("overlap_ms", json!(0))] {
        let both = json!({"links": true, field: value});
        assert_eq!(server.refused(Method::POST, &rotate, both).await.0, format!("/{field}"));
    }
    assert_eq!(server.fetch(&before).await.status(), StatusCode::OK);
    let answer = server.ask(Method::POST, &rotate).json(&json!({"links": true})).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    assert_eq!(server.fetch(&before).await.status(), StatusCode::FORBIDDEN);
    server.event(json!({"payload": 2})).await;
    let got = receiver.next().await;
    assert_eq!(server.fetch(&text(&got.json(), "payload_url")).await.status(), StatusCode::OK);
    assert_eq!(got.header("webhook-signature").split(' ').count(), 1, "signed with the one secret that there was");
    let noted = server.get("/v1/audit?action=destination.rotate_secret").await;
    assert_eq!(noted["data"].as_array().unwrap().len(), 1, "{noted}");

    let full = server.destination(&receiver.url, json!({})).await;
    let rotate = format!("/v1/destinations/{}/secrets/rotate", text(&full, "id"));
    let answer = server.ask(Method::POST, &rotate).json(&json!({"links": true})).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    assert_eq!(text(&answer.json().await.unwrap(), "code"), "no_links");
}

#[tokio::test]
async fn thin_payloads_are_refused_where_their_links_would_lead_nowhere() {
    let server = Server::start(&["--listen", "0.0.0.0:0"]).await;
    let thin = json!({"payload_mode": "thin"});
    let new = server.new_destination("http://127.0.0.1:9/", thin.clone());
    let (pointer, detail) = server.refused(Method::POST, "/v1/destinations", new).await;
    assert_eq!((pointer.as_str(), detail.contains("DOORSTEP_PUBLIC_URL")), ("/payload_mode", true), "{detail}");
    let full = server.destination("http://127.0.0.1:9/", json!({})).await;
    let path = format!("/v1/destinations/{}", text(&full, "id"));
    assert_eq!(server.refused(Method::PATCH, &path, thin.clone()).await.0, "/payload_mode");
    let server = Server::start(&["--listen", "0.0.0.0:0", "--public-url", "https://hooks.example.com"]).await;
    server.destination("http://127.0.0.1:9/", thin).await;
}

#[tokio::test]
async fn the_link_to_what_is_not_kept_is_gone() {
    let (server, mut receiver) =
        (Server::start(&["--public-url", "http://[::1]:1/x/"]).await, Receiver::answering(&[200]).await);
    let made = server.destination(&receiver.url, json!({"payload_mode": "thin"})).await;
    server.post(&format!("/v1/destinations/{}/test", text(&made, "id")), json!({})).await;
    let url = text(&receiver.next().await.json(), "payload_url");
    let path = url.strip_prefix("http://[::1]:1/x/").unwrap_or_else(|| panic!("{url}"));
    let answer = server.fetch(&format!("{}/{path}", server.base())).await;
    assert_eq!(answer.status(), StatusCode::GONE, "of a test no record is kept");
}

#[tokio::test]
async fn cloud_events_come_in_both_modes_and_a_change_is_in_force_at_once() {
    let (server, mut receiver) = (Server::start(&[]).await, Receiver::answering(&[200]).await);
    let made = server.destination(&receiver.url, json!({"format": "cloudevents_binary"})).await;
    server.event(json!({"id": "evt-1", "payload": [1], "produced_at": "2026-11-15T13:00:00+01:00"})).await;
    let got = receiver.next().await;
    assert_eq!((got.header("content-type"), &got.body[..]), ("application/json", &b"[1]"[..]));
    assert_eq!((got.header("ce-id"), got.header("ce-type")), ("evt-1", "invoice.paid"));
    assert_eq!(got.header("ce-time"), "2026-11-15T12:00:00.000Z");
    assert_eq!(got.header("ce-source"), format!("/tenants/{}", server.tenant_id));

    let path = format!("/v1/destinations/{}", text(&made, "id"));
    let change = json!({"format": "cloudevents_structured"});
    let changed: Value = server.ask(Method::PATCH, &path).json(&change).send().await.unwrap().json().await.unwrap();
    assert_eq!(changed["format"], "cloudevents_structured");
    server.event(json!({"payload_base64": "/w==", "content_type": "image/png"})).await;
    let got = receiver.next().await;
    assert_eq!(got.header("content-type"), "application/cloudevents+json");
    let body = got.json();
    assert_eq!((&body["data_base64"], &body["datacontenttype"]), (&json!("/w=="), &json!("image/png")));
}

#[tokio::test]
async fn a_trace_goes_on_at_the_receiver_unless_the_destination_says_no() {
    let (server, mut receiver) = (Server::start(&[]).await, Receiver::answering(&[503, 200]).await);
    let policy = json!({"strategy": "fixed", "base_ms": 1000, "floor_ms": 1000, "jitter": "none"});
    let made = server.destination(&receiver.url, json!({"policy": policy})).await;
    assert_eq!(made["send_traceparent"], true);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let send = async |traceparent: &str| {
        let event = json!({"tenant_id": server.tenant_id, "type": "a.b", "payload": 1});
        let asked = server.ask(Method::POST, "/v1/events").header("traceparent", traceparent);
        let answer = asked.header("tracestate", "a=b").json(&event).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
    };
    send(trace).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let got = receiver.next().await;
        assert!(got.header("traceparent").starts_with(&trace[..36]) && got.header("traceparent").ends_with("-01"));
        assert!(!got.headers.contains_key("tracestate"));
        seen.push(got.header("traceparent").to_owned());
    }
    assert!(seen[0] != seen[1] && !seen.contains(&trace.to_owned()), "{seen:?}");

    send("not a traceparent").await;
    assert!(!receiver.next().await.headers.contains_key("traceparent"));
    let path = format!("/v1/destinations/{}", text(&made, "id"));
    server.ask(Method::PATCH, &path).json(&json!({"send_traceparent": false})).send().await.unwrap();
    send(trace).await;
    assert!(!receiver.next().await.headers.contains_key("traceparent"));
}
