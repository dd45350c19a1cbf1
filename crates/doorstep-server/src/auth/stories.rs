//! What happens to keys and portal sessions over time, and what is noted of it.

use std::sync::Arc;

use axum::body::Body;
use doorstep_core::api_key::{KeyHash, Scope};
use doorstep_core::id::SessionId;
use doorstep_core::portal::{PortalKey, PortalSession};
use doorstep_core::reach::Reach;
use doorstep_core::store::Write;
use doorstep_core::time::Millis;
use futures_util::FutureExt;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::Proxies;
use super::world::{With, World};
use crate::Place;

pub(super) async fn make_key(world: &World, body: Value) -> (String, String) {
    let (status, made) = world.ask("POST", "/v1/keys", body).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
}

pub(super) async fn audited(world: &World, query: &str) -> Vec<Value> {
    let (status, found) = world.ask("GET", &format!("/v1/audit{query}"), Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{found}");
    found["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_key_is_shown_once_and_works_until_it_is_revoked_also_after_a_restart() {
    let world = World::new().await;
    let (id, key) = make_key(&world, json!({ "name": "k", "scopes": ["read"] })).await;
    let (_, shown) = world.ask("GET", &format!("/v1/keys/{id}"), Value::Null).await;
    assert!(!shown.to_string().contains(&key[31..]) && shown.get("key").is_none(), "{shown}");
    let with = With::Bearer(key);
    let looks = async |world: &World| world.ask_with(&with, "GET", "/v1/tenants", Value::Null).await.0;
    assert_eq!(looks(&world).await, StatusCode::OK);
    let again = World::over(Arc::clone(&world.store)).await;
    assert_eq!(looks(&again).await, StatusCode::OK);
    for _ in 0..2 {
        let (status, _) = again.ask("DELETE", &format!("/v1/keys/{id}"), Value::Null).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "revoked once is revoked");
    }
    assert_eq!(looks(&again).await, StatusCode::UNAUTHORIZED);
    assert_eq!(looks(&World::over(Arc::clone(&world.store)).await).await, StatusCode::UNAUTHORIZED);
    let (_, shown) = again.ask("GET", &format!("/v1/keys/{id}"), Value::Null).await;
    assert!(shown["revoked_at"].is_string(), "{shown}");
}

#[tokio::test]
async fn the_use_of_a_key_is_noted_a_little_later() {
    let world = World::new().await;
    let (id, key) = make_key(&world, json!({ "name": "k", "scopes": ["read"] })).await;
    world.ask_with(&With::Bearer(key), "GET", "/v1/tenants", Value::Null).await;
    let used = async || world.ask("GET", &format!("/v1/keys/{id}"), Value::Null).await.1["last_used_at"].clone();
    assert_eq!(used().await, Value::Null);
    world.app.write_notes().await;
    assert!(used().await.is_string());
}

#[tokio::test]
async fn a_key_that_cannot_be_is_refused_with_the_place_of_each_fault() {
    let world = World::new().await;
    let body =
        json!({ "name": "", "scopes": [], "source_cidrs": ["10.0.0.0/8", "x"], "expires_at": "2020-01-01T00:00:00Z" });
    let (status, problem) = world.ask("POST", "/v1/keys", body).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let places: Vec<&str> =
        problem["errors"].as_array().unwrap().iter().map(|e| e["pointer"].as_str().unwrap()).collect();
    assert_eq!(places, ["/name", "/scopes", "/source_cidrs/1", "/expires_at"]);
}

#[tokio::test]
async fn a_tenants_administrator_makes_keys_for_that_tenant_alone() {
    let mut world = World::new().await;
    let own = world.own.tenant.clone();
    let with = With::Bearer(world.key(&[Scope::Admin], Some(&own), |_| {}).await);
    let body = json!({ "name": "k", "scopes": ["admin"] });
    let (status, made) = world.ask_with(&with, "POST", "/v1/keys", body).await;
    assert_eq!((status, made["tenant_id"].as_str()), (StatusCode::CREATED, Some(own.as_str())), "{made}");
}

#[tokio::test]
async fn a_limited_administrator_makes_no_key_that_is_less_limited() {
    let mut world = World::new().await;
    let (soon, later) = (world.later(3_600_000), world.later(7_200_000));
    let limited = world.key(&[Scope::Admin], None, |key| {
        key.source_cidrs = vec!["192.0.2.0/24".parse().unwrap()];
        key.expires_at = Some(soon);
    });
    let (limited, free) = (With::Bearer(limited.await), With::Bearer(world.key(&[Scope::Admin], None, |_| {}).await));
    let both = ["/source_cidrs", "/expires_at"];
    for (with, cidrs, end, faults) in [
        (&limited, vec!["192.0.2.128/25"], Some(soon), &[][..]),
        (&limited, vec![], Some(soon), &both[..1]),
        (&limited, vec!["192.0.2.0/24", "198.51.100.0/24"], Some(soon), &both[..1]),
        (&limited, vec!["192.0.2.0/24"], None, &both[1..]),
        (&limited, vec!["192.0.2.0/24"], Some(later), &both[1..]),
        (&limited, vec![], None, &both[..]),
        (&free, vec![], None, &[][..]),
    ] {
        let end = end.map(crate::when::When);
        let body = json!({ "name": "k", "scopes": ["admin"], "source_cidrs": cidrs, "expires_at": end });
        let (status, answer) = world.ask_with(with, "POST", "/v1/keys", body.clone()).await;
        assert_eq!(status.is_success(), faults.is_empty(), "{body}: {answer}");
        let told = answer["errors"].as_array().into_iter().flatten().map(|fault| fault["pointer"].as_str().unwrap());
        assert_eq!(told.collect::<Vec<_>>(), faults, "{body}: {answer}");
    }

    let (free_id, _) = make_key(&world, json!({ "name": "free", "scopes": ["admin"] })).await;
    let path = format!("/v1/keys/{free_id}");
    let (status, answer) = world.ask_with(&limited, "POST", &format!("{path}/rotate"), Value::Null).await;
    assert_eq!((status, &answer["code"]), (StatusCode::FORBIDDEN, &json!("less_limited")), "{answer}");
    let (status, _) = world.ask_with(&limited, "PATCH", &path, json!({ "name": "mine" })).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "nor is one changed");
    let within = json!({ "source_cidrs": ["192.0.2.0/25"], "expires_at": crate::when::When(soon) });
    let (status, answer) = world.ask_with(&limited, "PATCH", &path, within).await;
    assert_eq!(status, StatusCode::OK, "but for being limited: {answer}");
}

#[tokio::test]
async fn every_change_is_noted_with_who_from_where_and_what() {
    let world = World::new().await;
    let (key_id, key) = make_key(&world, json!({ "name": "ops", "scopes": ["operate"] })).await;
    let with = With::Bearer(key);
    let path = format!("/v1/destinations/{}", world.own.destination);
    let body = json!({ "name": "renamed", "headers": { "authorization": "Bearer hush" } });
    let (status, answer) = world.ask_with(&with, "PATCH", &path, body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    world.ask_with(&with, "POST", &format!("{path}/resume"), Value::Null).await;
    let noted = audited(&world, &format!("?actor={key_id}")).await;
    let actions: Vec<&str> = noted.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["destination.resume", "destination.update"]);
    let update = &noted[1];
    assert_eq!(update["actor"], json!({ "kind": "key", "id": key_id, "name": "ops" }));
    assert_eq!(update["from"], "192.0.2.7");
    assert_eq!(update["tenant_id"], world.own.tenant.as_str());
    assert_eq!(update["resource"], json!({ "kind": "destination", "id": world.own.destination }));
    assert_eq!(update["changes"]["name"], json!({ "before": "own", "after": "renamed" }));
    assert_eq!(update["changes"]["headers"]["after"], json!({ "authorization": "***" }));
    assert!(update["changes"].get("url").is_none(), "what stays the same is not noted: {update}");
    assert!(!Value::from(noted.clone()).to_string().contains("hush"), "a secret is in the log: {noted:?}");
    let of_tenant = audited(&world, &format!("?tenant_id={}&action=destination.update", world.own.tenant)).await;
    assert_eq!(of_tenant.len(), 1);
    let (status, _) = world.ask("GET", "/v1/audit?action=nonsense", Value::Null).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn every_field_of_a_tenant_that_changes_is_noted() {
    let world = World::new().await;
    let path = format!("/v1/tenants/{}", world.own.tenant);
    let rate = json!({ "per_second": 5, "burst": 9 });
    let body = json!({ "name": "new", "contact_email": "a@b.example", "weight": 7, "ingest_rate": rate });
    let (status, changed) = world.ask("PATCH", &path, body.clone()).await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    let noted = &audited(&world, "?action=tenant.update").await[0]["changes"];
    let after: serde_json::Map<String, Value> =
        noted.as_object().unwrap().iter().map(|(field, change)| (field.clone(), change["after"].clone())).collect();
    assert_eq!(Value::from(after), body);
}

#[tokio::test]
async fn a_tenant_is_changed_as_it_was_seen_or_not_at_all() {
    let world = World::new().await;
    let path = format!("/v1/tenants/{}", world.own.tenant);
    let seen = async || {
        let answer = world.answer("GET", &path, &[], Value::Null).await;
        answer.headers()["etag"].to_str().unwrap().to_owned()
    };
    let change = async |tag: &str, name: &str| {
        let answer = world.answer("PATCH", &path, &[("if-match", tag)], json!({ "name": name })).await;
        (answer.status(), answer.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned()))
    };
    let first = seen().await;
    let (status, second) = change(&first, "one").await;
    assert_eq!((status, second), (StatusCode::OK, Some(seen().await)));
    assert_eq!(change(&first, "two").await.0, StatusCode::PRECONDITION_FAILED);
    assert_eq!(change("*", "three").await.0, StatusCode::OK);
    assert_eq!(world.ask("GET", &path, Value::Null).await.1["name"], "three");
}

#[tokio::test]
async fn no_secret_of_ours_is_in_the_audit_log() {
    let world = World::new().await;
    let path = format!("/v1/destinations/{}/secrets/rotate", world.own.destination);
    let (_, rotated) = world.ask("POST", &path, Value::Null).await;
    let (_, key) = make_key(&world, json!({ "name": "k", "scopes": ["read"] })).await;
    let (_, session) = world.ask("POST", "/v1/portal-sessions", json!({ "tenant_id": world.own.tenant })).await;
    let log = Value::from(audited(&world, "?limit=200").await).to_string();
    for secret in [rotated["secret"].as_str().unwrap(), &key[31..71], &session["code"].as_str().unwrap()[31..]] {
        assert!(!log.contains(secret), "{secret}");
    }
    assert!(log.contains("destination.rotate_secret") && log.contains("(changed)"), "{log}");
}

#[tokio::test]
async fn a_refused_request_is_noted_and_a_flood_of_them_is_not() {
    let mut world = World::new().await;
    let with = With::Bearer(world.key(&[Scope::Read], None, |_| {}).await);
    for _ in 0..50 {
        let (status, _) = world.ask_with(&with, "POST", "/v1/tenants", json!({ "name": "x" })).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
    }
    world.app.write_notes().await;
    let noted = audited(&world, "?action=request.denied&limit=200").await;
    assert_eq!((noted.len(), &noted[0]["outcome"]), (20, &json!("denied")));
    assert_eq!(noted[0]["resource"]["id"], "POST /v1/tenants");
}

#[tokio::test]
async fn a_portal_session_is_entered_once_and_left_for_good() {
    let world = World::new().await;
    let ask = json!({ "tenant_id": world.own.tenant, "expires_in_ms": 120_000 });
    let (status, made) = world.ask("POST", "/v1/portal-sessions", ask).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let code = made["code"].as_str().unwrap();
    assert_eq!(made["url"], format!("/portal/#code={code}"));
    let elsewhere = [("origin", "https://evil.example"), ("host", "doorstep.example")];
    assert_eq!(world.enter(code, &elsewhere).await.0, StatusCode::FORBIDDEN);
    let guess = code.replace(&code[40..50], "0123456789");
    assert_eq!(world.enter(&guess, &[]).await.0, StatusCode::UNAUTHORIZED);
    let ours = [("origin", "https://doorstep.example"), ("host", "doorstep.example")];
    let (status, cookie) = world.enter(code, &ours).await;
    assert_eq!(status, StatusCode::OK);
    let (pair, attributes) = cookie.split_once(';').unwrap();
    assert!(pair.starts_with("__Host-doorstep_portal=pss_"), "{cookie}");
    // The seconds that are left depend on how fast this machine is.
    let others: Vec<&str> = attributes.split(';').map(str::trim).filter(|one| !one.starts_with("Max-Age=1")).collect();
    assert_eq!(others, ["Path=/", "HttpOnly", "SameSite=Strict", "Secure"]);
    assert_eq!(world.enter(code, &ours).await.0, StatusCode::UNAUTHORIZED, "a code is good once");
    let with = With::Cookie(pair.split_once('=').unwrap().1.to_owned());
    let shown = world.ask_with(&with, "GET", "/portal/session", Value::Null).await.1;
    assert_eq!(shown["tenant_id"], world.own.tenant.as_str());
    // It is there after a restart, and with the code it cannot be used.
    let again = World::over(Arc::clone(&world.store)).await;
    let looks = async |with: &With| again.ask_with(with, "GET", "/v1/destinations", Value::Null).await.0;
    assert_eq!(looks(&with).await, StatusCode::OK);
    assert_eq!(looks(&With::Cookie(code.to_owned())).await, StatusCode::UNAUTHORIZED);
    let (status, _) = again.ask_with(&with, "DELETE", "/portal/session", Value::Null).await;
    assert_eq!((status, looks(&with).await), (StatusCode::NO_CONTENT, StatusCode::UNAUTHORIZED));
}

#[tokio::test]
async fn a_trusted_proxys_word_on_the_source_counts_for_keys_and_in_the_log() {
    let world = World::new().await;
    let body = json!({ "name": "k", "scopes": ["admin"], "source_cidrs": ["203.0.113.0/24"] });
    let (_, key) = make_key(&world, body).await;
    for (trusted, told, expected) in [
        ("192.0.2.0/24", "198.51.100.66, 203.0.113.9", StatusCode::CREATED),
        ("192.0.2.0/24", "203.0.113.9, 198.51.100.66", StatusCode::FORBIDDEN),
        ("192.0.3.0/24", "203.0.113.9", StatusCode::FORBIDDEN),
    ] {
        let place = Place { trusted_proxies: Proxies::parse(trusted).unwrap(), ..Place::default() };
        let proxied = World::placed(Arc::clone(&world.store), place).await;
        let request = Request::post("/v1/tenants").header("authorization", format!("Bearer {key}"));
        let request = request.header("x-forwarded-for", told).header("content-type", "application/json");
        let answer = proxied.call(request.body(Body::from(r#"{"name": "new"}"#)).unwrap()).await;
        assert_eq!(answer.status(), expected, "{trusted} {told}");
        proxied.app.write_notes().await;
    }
    let noted = audited(&world, "?created_after=2020-01-01T00:00:00Z&limit=4").await;
    let from: Vec<&Value> = noted[..3].iter().map(|entry| &entry["from"]).collect();
    assert_eq!(from, ["192.0.2.7", "198.51.100.66", "203.0.113.9"]);
}

#[tokio::test]
async fn the_address_of_a_portal_session_is_whole_where_the_server_knows_its_own() {
    let world = World::new().await;
    let public_url = Some("https://hooks.example.com/doorstep".to_owned());
    let place = Place { public_url, ..Place::default() };
    let placed = World::placed(Arc::clone(&world.store), place).await;
    let (_, made) = placed.ask("POST", "/v1/portal-sessions", json!({ "tenant_id": world.own.tenant })).await;
    let code = made["code"].as_str().unwrap();
    assert_eq!(made["url"], format!("https://hooks.example.com/doorstep/portal/#code={code}"));
}

#[tokio::test]
async fn sessions_that_are_over_are_not_brought_back() {
    let world = World::new().await;
    let tenant_id = world.own.tenant.parse().unwrap();
    let (key, now) = (PortalKey::Token { hash: KeyHash::of("token") }, world.later(0));
    // Each world has its own clock, and they need not agree to the millisecond.
    for (id, expires_at) in [(1, now - Millis::from_mins(1)), (2, now + Millis::from_hours(1))] {
        let session = PortalSession { id: SessionId(id), tenant_id, key: key.clone(), created_at: now, expires_at };
        world.store.write(vec![Write::PutPortalSession(Box::new(session))], now).await.unwrap();
    }
    let again = World::over(Arc::clone(&world.store)).await;
    let there = [1, 2].map(|id| again.app.sessions.get(SessionId(id)).is_some());
    assert_eq!(there, [false, true]);
}

#[tokio::test]
async fn all_portal_sessions_of_a_tenant_end_at_once() {
    let world = World::new().await;
    let (own, foreign) = (world.portal(&world.own.tenant).await, world.portal(&world.foreign.tenant).await);
    let path = format!("/v1/portal-sessions?tenant_id={}", world.own.tenant);
    assert_eq!(world.ask("DELETE", &path, Value::Null).await.0, StatusCode::NO_CONTENT);
    let looks = async |token| world.ask_with(&With::Cookie(token), "GET", "/v1/events", Value::Null).await.0;
    assert_eq!((looks(own).await, looks(foreign).await), (StatusCode::UNAUTHORIZED, StatusCode::OK));
    assert_eq!(world.store.portal_sessions(Reach::All, None, 9).await.unwrap().len(), 1);
}

/// Whoever holds back the body of a request that was let in gets nothing done with it after the credential has ended.
#[tokio::test]
async fn a_credential_that_ends_while_a_body_is_on_its_way_does_nothing_any_more() {
    let world = World::new().await;
    let (id, key) = make_key(&world, json!({ "name": "k", "scopes": ["admin", "ingest"] })).await;
    let event = json!({ "tenant_id": world.own.tenant, "type": "a.b", "payload": 1 });
    let change = json!({ "name": "changed" });
    let tenant = format!("/v1/tenants/{}", world.own.tenant);
    let requests = [
        ("POST", "/v1/keys", json!({ "name": "heir", "scopes": ["admin"] })),
        ("POST", "/v1/events", event.clone()),
        ("POST", "/v1/events/batch", json!({ "events": [event] })),
        ("PATCH", &*tenant, change),
    ];
    let mut held_back = Vec::new();
    for (method, path, body) in requests {
        let (rest, coming) = tokio::sync::oneshot::channel();
        let coming = futures_util::stream::once(async { coming.await.map_err(std::io::Error::other) });
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {key}")).body(Body::from_stream(coming)).unwrap();
        let mut answer = Box::pin(world.call(request));
        assert!((&mut answer).now_or_never().is_none(), "{path}: its body is not there yet");
        held_back.push((path, answer, rest, body));
    }
    let (status, _) = world.ask("DELETE", &format!("/v1/keys/{id}"), Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    for (path, answer, rest, body) in held_back {
        rest.send(body.to_string()).unwrap();
        assert_eq!(answer.await.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    let (_, keys) = world.ask("GET", "/v1/keys", Value::Null).await;
    assert!(!keys.to_string().contains("heir"), "{keys}");
}

#[tokio::test]
async fn a_test_or_question_that_is_refused_is_not_noted_as_done() {
    let world = World::new().await;
    for (things, verb) in [(&world.own, "test"), (&world.foreign, "verify")] {
        let path = format!("/v1/destinations/{}", things.destination);
        let asks = json!({ "verification": "cloudevents_options" });
        if verb == "verify" {
            let (status, told) = world.ask("PATCH", &path, asks.clone()).await;
            assert!(status.is_success(), "{told}");
        }
        let (mut let_through, mut too_often) = (0, 0);
        for _ in 0..30 {
            let (status, told) = world.ask("POST", &format!("{path}/{verb}"), Value::Null).await;
            match told["code"].as_str() {
                Some("too_often") => too_often += 1,
                Some("unsendable") | None => let_through += 1,
                Some(other) => panic!("{status} {other}"),
            }
        }
        assert!(too_often > 0, "{verb}");
        let noted = async || audited(&world, &format!("?action=destination.{verb}&limit=200")).await.len();
        assert_eq!(noted().await, let_through, "{verb}");
        if verb == "test" {
            world.ask("PATCH", &path, asks).await;
            let (_, told) = world.ask("POST", &format!("{path}/{verb}"), Value::Null).await;
            assert_eq!(told["code"], "no_consent");
            assert_eq!(noted().await, let_through);
        }
    }
}
