//! Keys that are changed and rotated while they are in use.

use std::sync::Arc;

use axum::body::Body;
use doorstep_core::api_key::Scope;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::caller::Caller;
use super::stories::{audited, make_key};
use super::world::{ADMIN, With, World};

async fn looks(world: &World, key: &str) -> StatusCode {
    world.ask_with(&With::Bearer(key.to_owned()), "GET", "/v1/tenants", Value::Null).await.0
}

async fn rotate(world: &World, id: &str, overlap_ms: u64) -> String {
    let path = format!("/v1/keys/{id}/rotate");
    let (status, rotated) = world.ask("POST", &path, json!({ "overlap_ms": overlap_ms })).await;
    assert_eq!((status, rotated["id"].as_str()), (StatusCode::OK, Some(id)), "{rotated}");
    rotated["key"].as_str().unwrap().to_owned()
}

/// As whoever uses the key from where requests come from.
fn caller(world: &World, key: &str) -> Caller {
    super::by_key(&world.app, key, "192.0.2.7".parse().ok()).unwrap()
}

#[tokio::test]
async fn a_keys_name_end_and_ranges_change_at_once_and_for_good() {
    let world = World::new().await;
    let (id, key) = make_key(&world, json!({ "name": "old", "scopes": ["read"] })).await;
    let (path, watching) = (format!("/v1/keys/{id}"), caller(&world, &key));
    assert_eq!(looks(&world, &key).await, StatusCode::OK);
    let body = json!({ "name": "new", "expires_at": "2100-01-01T00:00:00Z", "source_cidrs": ["10.0.0.0/8"] });
    let (status, changed) = world.ask("PATCH", &path, body).await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    assert_eq!((&changed["name"], &changed["version"]), (&json!("new"), &json!(2)));
    assert_eq!((&changed["scopes"], &changed["source_cidrs"]), (&json!(["read"]), &json!(["10.0.0.0/8"])));
    let again = World::over(Arc::clone(&world.store)).await;
    for world in [&world, &again] {
        assert_eq!(looks(world, &key).await, StatusCode::FORBIDDEN, "it comes from elsewhere now");
        assert_eq!(world.ask("GET", &path, Value::Null).await.1, changed);
    }
    assert!(!watching.is_still_good(&world.app), "nor does a stream go on");
    let noted = audited(&world, "?action=key.update").await.remove(0);
    assert_eq!(noted["resource"], json!({ "kind": "key", "id": id }));
    assert_eq!(noted["changes"]["name"], json!({ "before": "old", "after": "new" }));
    let (_, changed) = world.ask("PATCH", &path, json!({ "expires_at": null, "source_cidrs": null })).await;
    assert_eq!(
        (&changed["expires_at"], &changed["source_cidrs"], &changed["name"]),
        (&Value::Null, &json!([]), &json!("new"))
    );
    assert_eq!(looks(&world, &key).await, StatusCode::OK);
}

#[tokio::test]
async fn what_a_key_is_good_for_and_whose_it_is_never_change() {
    let world = World::new().await;
    let (id, _) = make_key(&world, json!({ "name": "k", "scopes": ["read"] })).await;
    let path = format!("/v1/keys/{id}");
    let body = json!({
        "scopes": ["admin"], "tenant_id": null, "name": "", "source_cidrs": ["x"], "expires_at": "2020-01-01T00:00:00Z",
    });
    let (status, problem) = world.ask("PATCH", &path, body).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let errors = problem["errors"].as_array().unwrap();
    let places: Vec<&str> = errors.iter().map(|e| e["pointer"].as_str().unwrap()).collect();
    assert_eq!(places, ["/scopes", "/tenant_id", "/name", "/source_cidrs/0", "/expires_at"]);
    assert!(errors[0]["detail"].as_str().unwrap().contains("make another key"), "{problem}");
    let (_, shown) = world.ask("GET", &path, Value::Null).await;
    assert_eq!((&shown["scopes"], &shown["version"]), (&json!(["read"]), &json!(1)));
}

#[tokio::test]
async fn a_change_to_another_version_than_was_seen_is_refused() {
    let world = World::new().await;
    let (id, _) = make_key(&world, json!({ "name": "k", "scopes": ["read"] })).await;
    for (method, path, seen, expected) in [
        ("PATCH", format!("/v1/keys/{id}"), "\"1\"", StatusCode::OK),
        ("PATCH", format!("/v1/keys/{id}"), "\"1\"", StatusCode::PRECONDITION_FAILED),
        ("POST", format!("/v1/keys/{id}/rotate"), "\"1\"", StatusCode::PRECONDITION_FAILED),
        ("POST", format!("/v1/keys/{id}/rotate"), "\"2\"", StatusCode::OK),
    ] {
        let request = Request::builder().method(method).uri(&path).header("if-match", seen);
        let request = request.header("authorization", format!("Bearer {ADMIN}"));
        let answer = world.call(request.body(Body::from("{}")).unwrap()).await;
        assert_eq!(answer.status(), expected, "{method} {path} {seen}");
        let tag = answer.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
        assert_eq!(tag, expected.is_success().then(|| if method == "PATCH" { "\"2\"" } else { "\"3\"" }.to_owned()));
    }
}

#[tokio::test]
async fn a_rotated_key_has_a_new_secret_and_the_old_one_works_for_as_long_as_was_asked() {
    let world = World::new().await;
    let (id, first) = make_key(&world, json!({ "name": "k", "scopes": ["read"] })).await;
    let watching = caller(&world, &first);
    let second = rotate(&world, &id, 60_000).await;
    assert!(watching.is_still_good(&world.app));
    assert_eq!((looks(&world, &first).await, looks(&world, &second).await), (StatusCode::OK, StatusCode::OK));
    let third = rotate(&world, &id, 0).await;
    let again = World::over(Arc::clone(&world.store)).await;
    for world in [&world, &again] {
        let all = [looks(world, &first).await, looks(world, &second).await, looks(world, &third).await];
        assert_eq!(all, [StatusCode::UNAUTHORIZED, StatusCode::UNAUTHORIZED, StatusCode::OK]);
    }
    assert!(!watching.is_still_good(&world.app), "a stream ends with the secret that opened it");
    let log = audited(&world, "?action=key.rotate").await;
    assert_eq!(log[0]["changes"]["secret"], json!({ "before": "***", "after": "*** (changed)" }));
    for key in [&first, &second, &third] {
        assert!(!Value::from(log.clone()).to_string().contains(&key[31..71]), "a secret is in the log");
    }
    let week = 7 * 24 * 3_600_000_u64;
    let path = format!("/v1/keys/{id}/rotate");
    for (overlap_ms, expected) in [(week, StatusCode::OK), (week + 1, StatusCode::UNPROCESSABLE_ENTITY)] {
        assert_eq!(world.ask("POST", &path, json!({ "overlap_ms": overlap_ms })).await.0, expected);
    }
}

#[tokio::test]
async fn a_key_that_has_ended_stays_as_it_is() {
    let mut world = World::new().await;
    let (id, _) = make_key(&world, json!({ "name": "k", "scopes": ["read"] })).await;
    world.ask("DELETE", &format!("/v1/keys/{id}"), Value::Null).await;
    let (now, mut over) = (world.wall(), String::new());
    world.key(&[Scope::Read], None, |key| (key.expires_at, over) = (Some(now), key.id.to_string())).await;
    for id in [id, over] {
        for (method, path) in [("PATCH", format!("/v1/keys/{id}")), ("POST", format!("/v1/keys/{id}/rotate"))] {
            let (status, problem) = world.ask(method, &path, json!({})).await;
            assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("key_ended")), "{problem}");
        }
    }
}

#[tokio::test]
async fn an_earlier_change_does_not_undo_a_later_one_in_memory() {
    let world = World::new().await;
    let (id, key) = make_key(&world, json!({ "name": "k", "scopes": ["read"] })).await;
    let first = world.app.keys.get(id.parse().unwrap()).unwrap().key.clone();
    let renamed =
        |name: &str, version| doorstep_core::api_key::ApiKey { name: name.to_owned(), version, ..first.clone() };
    world.app.keys.replace(renamed("third", 3));
    world.app.keys.replace(renamed("second", 2));
    assert_eq!(world.app.keys.get(first.id).unwrap().key.name, "third");
    looks(&world, &key).await;
    world.app.keys.replace(renamed("fourth", 4));
    assert_eq!(world.app.keys.to_note().len(), 1, "that it was used is not forgotten");
    world.app.keys.remove(first.id);
    world.app.keys.replace(renamed("fifth", 5));
    assert!(world.app.keys.get(first.id).is_none(), "one that was revoked does not come back");
}
