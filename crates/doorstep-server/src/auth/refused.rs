//! What the description says that an operation can refuse, it does refuse, with that status and that code.
//!
//! The other way round, `openapi::seen` looks at every answer.

use axum::body::Body;
use doorstep_core::api_key::Scope;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::matrix::request;
use super::world::{ADMIN, REGISTERED, World};
use crate::openapi::seen::DOCUMENT;
use crate::problem::Code;

/// A tenant that is not there.
const NOBODY: &str = "ten_01j9zq3k5v8w2x4y6z7a8b9c0d";

/// What only trouble brings forth, or a full house; each has tests of its own.
const NOT_HERE: [Code; 12] = [
    Code::Internal,
    Code::Busy,
    Code::ShuttingDown,
    Code::NotSavedYet,
    Code::StoreUnavailable,
    Code::Unreadable,
    Code::TooBroad,
    Code::TooSlow,
    Code::Gone,
    Code::TooManyDestinations,
    Code::TooManyKeys,
    Code::TooManyPortalSessions,
];

/// One way to be refused.
struct Asked {
    path: String,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// It is the last of so many that is refused.
    times: usize,
}

/// Each operation with each code that is described for it.
fn described() -> Vec<(String, String, Code)> {
    let mut all = Vec::new();
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for answer in operation["responses"].as_object().unwrap().values() {
                let names = answer["x-problem-codes"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let codes = names.map(|name| *Code::ALL.iter().find(|code| code.name() == name).unwrap());
                all.extend(codes.map(|code| (method.to_uppercase(), path.clone(), code)));
            }
        }
    }
    all
}

#[tokio::test]
async fn what_is_described_is_refused() {
    let mut n = 0;
    for (method, path, code) in described().into_iter().filter(|(_, _, code)| !NOT_HERE.contains(code)) {
        let mut world = World::new().await;
        let Some(asked) = provoke(&mut world, &method, &path, code).await else { continue };
        let mut answers = Vec::new();
        for _ in 0..asked.times {
            let mut request = Request::builder().method(method.as_str()).uri(&asked.path);
            for (name, value) in &asked.headers {
                request = request.header(*name, value);
            }
            let answer = world.call(request.body(Body::from(asked.body.clone())).unwrap()).await;
            let status = answer.status();
            let bytes = answer.into_body().collect().await.unwrap().to_bytes();
            let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            answers.push((status, told["code"].as_str().unwrap_or_default().to_owned()));
        }
        let expected = (code.status(), code.name().to_owned());
        assert_eq!(answers.last(), Some(&expected), "{method} {}: {answers:?}", asked.path);
        n += 1;
    }
    assert!(n > 250, "only {n} were tried");
}

/// `None`: not in this test. That a session ends while it is looked for, and that two rotate a secret in the same moment.
async fn provoke(world: &mut World, method: &str, path: &str, code: Code) -> Option<Asked> {
    let (usual, body) = request(method, path, &world.own);
    let has_body = DOCUMENT["paths"][path][method.to_lowercase()].get("requestBody").is_some();
    let mut asked = Asked { path: usual, headers: vec![], body: String::new(), times: 1 };
    let (mut key, mut kind) = (ADMIN.to_owned(), "application/json");
    if !body.is_null() {
        asked.body = body.to_string();
    }
    let admin = &[Scope::Admin];
    match code {
        Code::Unauthorized if path == "/portal/session" && method == "POST" => {
            asked.body = json!({ "code": super::world::a_guess() }).to_string();
        }
        Code::Unauthorized => key = "nonsense".to_owned(),
        // One more comes back each second, and this machine may be slow.
        Code::TooManyRefused => {
            (key, asked.times) = ("nonsense".to_owned(), 150);
            if path == "/portal/session" && method == "POST" {
                asked.body = json!({ "code": super::world::a_guess() }).to_string();
            }
        }
        Code::WrongSource => {
            let far = vec!["198.51.100.0/24".parse().unwrap()];
            key = world.key(admin, None, |key| key.source_cidrs = far).await;
        }
        Code::CrossSite => {
            let token = world.portal(&world.own.tenant).await;
            let site = ("sec-fetch-site", "cross-site".to_owned());
            asked.headers.extend([("cookie", format!("doorstep_portal={token}")), site]);
            key.clear();
            if path == "/portal/session" {
                asked.body = json!({ "code": super::world::a_guess() }).to_string();
            }
        }
        Code::MissingScope => {
            let other = if path.starts_with("/v1/events") && method == "POST" { Scope::Read } else { Scope::Ingest };
            key = world.key(&[other], None, |_| {}).await;
        }
        Code::LimitedToATenant => key = world.key(admin, Some(&world.own.tenant.clone()), |_| {}).await,
        Code::NotAPortalSession => {}
        Code::NotFound if path == "/portal/session" => return None,
        Code::NotFound if path.contains('{') => {
            asked.path = path.replace("{id}", "no.thing").replace("{name}", "no.thing");
            asked.path.push_str(link(path));
        }
        Code::NotFound => {
            asked.path = asked.path.replace(&world.own.tenant, NOBODY);
            asked.body = asked.body.replace(&world.own.tenant, NOBODY);
        }
        // Without a body, it is refused where connections are taken in.
        Code::MalformedRequest if !has_body => return None,
        Code::MalformedRequest => asked.body = "{".to_owned(),
        Code::NotJson => (kind, asked.body) = ("text/plain", "text".to_owned()),
        Code::TooLarge => {
            let limit = if path.ends_with("/batch") { 8 * 1024 * 1024 } else { 512 * 1024 };
            asked.body = format!("\"{}\"", "x".repeat(limit));
        }
        Code::InvalidRequest if has_body => asked.body = "[]".to_owned(),
        Code::InvalidRequest => {
            asked.path = asked.path.split('?').next().unwrap_or_default().to_owned() + "?nonsense=1";
        }
        Code::ChangedMeanwhile if path.ends_with("/secrets/rotate") => return None,
        Code::ChangedMeanwhile => asked.headers.push(("if-match", "\"999\"".to_owned())),
        Code::BadLink => asked.path.push_str(link(path)),
        own => prepare(world, own, &mut asked, &mut key).await,
    }
    if !key.is_empty() {
        asked.headers.push(("authorization", format!("Bearer {key}")));
    }
    asked.headers.push(("content-type", kind.to_owned()));
    Some(asked)
}

/// A link that nobody signed, where one is asked for.
fn link(path: &str) -> &'static str {
    match path.rsplit('/').next() {
        Some("payload") => "?destination_id=dst_01j9zq3k5v8w2x4y6z7a8b9c0d&expires=1&signature=x",
        Some("consent") => "?expires=1&signature=x",
        _ => "",
    }
}

/// What is an operation's own to refuse.
async fn prepare(world: &mut World, code: Code, asked: &mut Asked, key: &mut String) {
    let own = &world.own;
    let destination = format!("/v1/destinations/{}", own.destination);
    match code {
        // Both are so in this world, where nothing is sent.
        Code::Unsendable | Code::NeedsNoConsent | Code::NotDead => {}
        // All payloads are encrypted here, until they are erased.
        Code::NothingEncrypted => asked.times = 2,
        Code::TooOften => {
            asked.times = 30;
            if asked.path.ends_with("/verify") {
                done(world, "PATCH", &destination, json!({ "verification": "cloudevents_options" })).await;
            }
        }
        Code::TooManySecrets => asked.times = 20,
        Code::NoLinks => asked.body = json!({ "links": true }).to_string(),
        Code::NoConsent => {
            done(world, "PATCH", &destination, json!({ "verification": "cloudevents_options" })).await;
        }
        Code::QuotaExceeded => {
            let rate = json!({ "ingest_rate": { "per_second": 1, "burst": 1 } });
            done(world, "PATCH", &format!("/v1/tenants/{}", own.tenant), rate).await;
            // One more comes back each second, and this machine may be slow.
            asked.times = 10;
        }
        Code::EventDiffers => {
            let other = json!({ "tenant_id": own.tenant, "type": "a.b", "payload": "other", "id": own.event });
            asked.body = other.to_string();
        }
        Code::IdempotencyKeyReused => {
            let headers = [("idempotency-key", "once")];
            let first = json!({ "tenant_id": own.tenant, "type": "a.b", "payload": "first" });
            assert_eq!(world.answer("POST", "/v1/events", &headers, first).await.status(), 202);
            asked.headers.push(("idempotency-key", "once".to_owned()));
        }
        Code::DestinationGone => {
            world.end(&own.delivery).await;
            done(world, "DELETE", &destination, Value::Null).await;
        }
        Code::AlreadyEnded => asked.times = 2,
        Code::AlreadyExists => asked.body = json!({ "name": REGISTERED }).to_string(),
        Code::NotArchived => {
            let path = format!("/v1/event-types/{REGISTERED}");
            done(world, "PATCH", &path, json!({ "archived": false })).await;
        }
        Code::KeyEnded => done(world, "DELETE", &format!("/v1/keys/{}", own.key), Value::Null).await,
        Code::LessLimited => {
            let nearer = vec!["192.0.2.7/32".parse().unwrap()];
            *key = world.key(&[Scope::Admin], None, |key| key.source_cidrs = nearer).await;
        }
        other => panic!("nobody has said how {other:?} comes about"),
    }
}

async fn done(world: &World, method: &str, path: &str, body: Value) {
    let (status, answer) = world.ask(method, path, body).await;
    assert!(status.is_success(), "{method} {path}: {status} {answer}");
}
