//! Lists, as they are asked for over HTTP.

use http::StatusCode;
use serde_json::{Value, json};

use crate::auth::world::World;

/// A world with two events more: `order.made` and `order.line.added` of the own tenant.
async fn world() -> World {
    let world = World::new().await;
    for (id, kind) in [("e1", "order.made"), ("e2", "order.line.added")] {
        let event = json!({ "tenant_id": world.own.tenant, "type": kind, "payload": 1, "id": id, "ordering_key": id });
        let (status, answer) = world.ask("POST", "/v1/events", event).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    }
    world
}

async fn found(world: &World, path: &str, field: &str) -> Vec<String> {
    let (status, page) = world.ask("GET", path, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{path}: {page}");
    page["data"].as_array().unwrap().iter().map(|line| line[field].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn deliveries_and_events_are_asked_for_in_the_same_words() {
    let world = world().await;
    let (own, foreign) = (&*world.own.event, &*world.foreign.event);
    for (query, expected) in [
        ("type=order.*", &["e2", "e1"][..]),
        ("type=order.*&limit=1", &["e2"]),
        ("type=*.made,a.b", &["e1", foreign, own]),
        ("type=order.*.added", &["e2"]),
        ("type=order", &[]),
        (&format!("type=*&tenant_id={}", world.foreign.tenant), &[foreign]),
        ("created_before=2020-01-01T00:00:00Z", &[]),
    ] {
        assert_eq!(found(&world, &format!("/v1/deliveries?{query}"), "event_id").await, expected, "{query}");
        assert_eq!(found(&world, &format!("/v1/events?{query}"), "id").await, expected, "{query}");
    }
    assert_eq!(found(&world, "/v1/events?ordering_key=e1", "id").await, ["e1"]);
    assert_eq!(found(&world, "/v1/deliveries?event_id=e1", "event_id").await, ["e1"]);
    assert_eq!(found(&world, "/v1/deliveries?event_id=nobody", "event_id").await, [""; 0]);
}

#[tokio::test]
async fn unknown_parameters_are_refused_everywhere() {
    let world = world().await;
    for (path, near) in [
        ("/v1/deliveries?statsu=dead", "did you mean `status`?"),
        ("/v1/events?tenantid=x", "did you mean `tenant_id`?"),
        ("/v1/tenants?limt=1", "did you mean `limit`?"),
        ("/v1/destinations?tenant=x", "there are "),
        ("/v1/event-types?curser=x", "did you mean `cursor`?"),
        ("/v1/keys?limti=1", "did you mean `limit`?"),
        ("/v1/audit?actoin=key.create", "did you mean `action`?"),
        ("/v1/audit?action=key.creat", "did you mean `key.create`?"),
        ("/v1/stream?tpye=a.b", "did you mean `type`?"),
        ("/v1/stream?type=inv*", "`inv*`: `*` stands for whole segments only"),
    ] {
        let (status, problem) = world.ask("GET", path, Value::Null).await;
        let name = path.split(['?', '=']).nth(1).unwrap();
        assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_request")), "{path}");
        assert_eq!(problem["errors"][0]["pointer"], format!("?{name}"), "{path}");
        assert!(problem["detail"].as_str().unwrap().contains(near), "{path}: {problem}");
    }
}
