//! Whatever a handler forgets: the engine's verbs themselves end at the caller's reach.

use doorstep_core::audit::{Action, Actor, AuditEntry, AuditOutcome, Mandate};
use doorstep_core::engine::EngineFault;
use doorstep_core::event::Event;
use doorstep_core::id::{DestinationId, EventId, TenantId};
use doorstep_core::reach::Reach;
use serde_json::json;

use super::world::World;

fn event(tenant_id: TenantId, world: &World) -> Event {
    Event {
        id: EventId::generated(1),
        tenant_id,
        event_type: "a.b".parse().unwrap(),
        content_type: "application/json".into(),
        payload: bytes::Bytes::from_static(b"1"),
        ordering_key: None,
        produced_at: None,
        schema_version: None,
        headers: Vec::new(),
        ttl: None,
        accepted_at: world.later(0),
        wall_offset_ms: 0,
        trace: None,
        cloud: None,
    }
}

fn mandate(reach: Reach, world: &World) -> Mandate {
    let entry = AuditEntry {
        at: world.later(0),
        actor: Actor::Bootstrap,
        from: None,
        tenant_id: None,
        action: Action::DestinationTest,
        resource: String::new(),
        outcome: AuditOutcome::Done,
        changes: serde_json::Map::new(),
    };
    Mandate { reach, entry }
}

/// One of this tenant's that waits for its receiver's consent.
async fn asked(world: &World, tenant: &str) -> DestinationId {
    let new = json!({ "tenant_id": tenant, "url": "https://example.com/", "verification": "cloudevents_options" });
    let (status, made) = world.ask("POST", "/v1/destinations", new).await;
    assert!(status.is_success(), "{made}");
    made["id"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_verbs_of_the_engine_know_nothing_of_what_is_out_of_reach() {
    let world = World::new().await;
    let engine = &world.app.engine;
    let [own, foreign] = [&world.own, &world.foreign].map(|things| things.tenant.parse::<TenantId>().unwrap());
    let ids = [&world.own, &world.foreign].map(|things| things.destination.parse::<DestinationId>().unwrap());
    let waiting = vec![world.delivery_of(own).await, world.delivery_of(foreign).await];
    let asking = [asked(&world, &world.own.tenant).await, asked(&world, &world.foreign.tenant).await];
    for (reach, seen) in [
        (Reach::All, [true, true]),
        (Reach::Tenant(own), [true, false]),
        (Reach::Tenant(foreign), [false, true]),
        (Reach::Tenant(TenantId(77)), [false, false]),
    ] {
        let gates = engine.gates(reach, ids.to_vec()).await.unwrap();
        assert_eq!(gates.iter().map(Option::is_some).collect::<Vec<_>>(), seen, "gates of {reach:?}");
        let holds = engine.holds(reach, waiting.clone()).await.unwrap();
        assert_eq!(holds.iter().map(Option::is_some).collect::<Vec<_>>(), seen, "holds of {reach:?}");
        let told = engine.asking(reach, &asking);
        assert_eq!(told.iter().map(Option::is_some).collect::<Vec<_>>(), seen, "questions of {reach:?}");
        for (id, is_seen) in ids.into_iter().zip(seen) {
            let tried = engine.try_out(mandate(reach, &world), id, event(own, &world)).await;
            // The sender of this world sends nothing, and says so.
            let is_tried = matches!(tried, Err(EngineFault::Unsendable(_)));
            assert!(is_tried == is_seen && (is_seen || matches!(tried, Ok(None))), "{reach:?} {id}: {tried:?}");
        }
    }
}
