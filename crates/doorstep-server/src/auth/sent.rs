//! Headers that the description names for an operation are really sent by it.
//!
//! The other way round, `openapi::seen` looks at every answer.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use serde_json::{Value, json};

use super::matrix::request;
use super::world::{ADMIN, World};
use crate::openapi::seen::DOCUMENT;

/// An operation, a status and a header in lower case.
type Sent = BTreeSet<(String, u16, String)>;

/// A tenant's producers may send this many events at once.
const BURST: usize = 2;
/// So many refused credentials are too many. One more is allowed each second, and this machine may be slow.
const TOO_MANY: usize = 150;

fn described() -> Sent {
    let mut all = Sent::new();
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for (status, answer) in operation["responses"].as_object().unwrap() {
                let names = answer["headers"].as_object().into_iter().flatten().map(|(name, _)| name.to_lowercase());
                let what = format!("{} {path}", method.to_uppercase());
                all.extend(names.map(|name| (what.clone(), status.parse().unwrap(), name)));
            }
        }
    }
    all
}

fn note(sent: &mut Sent, what: &str, answer: &Response) {
    let names = answer.headers().keys().map(|name| name.as_str().to_owned());
    sent.extend(names.map(|name| (what.to_owned(), answer.status().as_u16(), name)));
}

#[tokio::test]
async fn every_header_that_is_described_is_sent() {
    let described = described();
    assert!(described.len() > 50, "{described:?}");
    let mut sent = Sent::new();
    let operations: BTreeSet<&String> = described.iter().map(|(what, _, _)| what).collect();
    for what in operations {
        let (method, path) = what.split_once(' ').unwrap();
        let world = World::new().await;
        for (asked, headers, body) in examples(&world, method, path).await {
            let mut request = Request::builder().method(method).uri(asked).header("content-type", "application/json");
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
            note(&mut sent, what, &world.call(request.body(body).unwrap()).await);
        }
    }
    // Nothing is ever too much here. What says so is made in one place, and tested there.
    let missing: Vec<_> = described.difference(&sent).filter(|(_, status, _)| *status != 503).collect();
    assert!(missing.is_empty(), "described and not sent: {missing:#?}");
}

type Example = (String, Vec<(&'static str, String)>, Value);

/// Requests that bring forth what an operation has to say.
async fn examples(world: &World, method: &str, path: &str) -> Vec<Example> {
    let (asked, body) = request(method, path, &world.own);
    let key = |key: &str| ("authorization", format!("Bearer {key}"));
    let with = |headers: Vec<(&'static str, String)>, body: &Value| (asked.clone(), headers, body.clone());
    let (usual, stranger) = (with(vec![key(ADMIN)], &body), with(vec![key("nonsense")], &body));
    match (method, path) {
        ("POST", "/v1/events" | "/v1/events/batch") => {
            limit_rate(world).await;
            let same = with(vec![key(ADMIN), ("idempotency-key", "once".to_owned())], &body);
            // One more comes back each second, and this machine may be slow.
            [vec![same; BURST], vec![usual; 10], vec![stranger; TOO_MANY]].concat()
        }
        // Until it is too often.
        ("POST", "/v1/destinations/{id}/test") => [vec![usual; 30], vec![stranger; TOO_MANY]].concat(),
        ("POST", "/v1/destinations/{id}/verify") => {
            ask_for_consent(world).await;
            [vec![usual; 30], vec![stranger; TOO_MANY]].concat()
        }
        ("POST", "/portal/session") => {
            let (_, made) = world.ask("POST", "/v1/portal-sessions", json!({ "tenant_id": world.own.tenant })).await;
            // It is good once.
            vec![with(vec![], &json!({ "code": made["code"] })); TOO_MANY]
        }
        (_, "/portal/session") => {
            let cookie = format!("doorstep_portal={}", world.portal(&world.own.tenant).await);
            let usual = with(vec![("cookie", cookie), ("sec-fetch-site", "same-origin".to_owned())], &body);
            [vec![stranger; TOO_MANY], vec![usual]].concat()
        }
        _ => [vec![usual], vec![stranger; TOO_MANY]].concat(),
    }
}

async fn limit_rate(world: &World) {
    let path = format!("/v1/tenants/{}", world.own.tenant);
    let rate = json!({ "ingest_rate": { "per_second": 1, "burst": BURST } });
    let answer = world.answer("PATCH", &path, &[], rate).await;
    assert!(answer.status().is_success());
}

async fn ask_for_consent(world: &World) {
    let path = format!("/v1/destinations/{}", world.own.destination);
    let answer = world.answer("PATCH", &path, &[], json!({ "verification": "cloudevents_options" })).await;
    assert!(answer.status().is_success());
}
