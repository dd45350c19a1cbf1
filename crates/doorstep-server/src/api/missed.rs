//! Whoever reads the stream too slowly is told so; how much happens at other tenants is not told.

use doorstep_core::api_key::Scope;
use doorstep_core::engine::News;
use doorstep_core::gate::GateChange;
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::time::Timestamp;
use http_body_util::BodyExt;
use serde_json::Value;

use crate::auth::world::{ADMIN, World};

/// So much happens before the reader looks: more than is kept for it, all of it at another tenant.
const HAPPENS: usize = 21;
/// So many are kept in that world.
const KEPT: usize = 16;

async fn first_line(world: &World, key: &str) -> String {
    let bearer = format!("Bearer {key}");
    let answer = world.answer("GET", "/v1/stream", &[("authorization", &bearer)], Value::Null).await;
    assert_eq!(answer.status(), 200);
    for _ in 0..HAPPENS {
        let (tenant_id, destination_id) = (TenantId(77), DestinationId(1));
        let change = GateChange::Recovered;
        world.app.news.send(News::GateChanged { at: Timestamp(0), tenant_id, destination_id, change }).unwrap();
    }
    let frame = answer.into_body().frame().await.unwrap().unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn how_much_was_missed_is_told_to_whoever_may_hear_of_all_of_it() {
    let mut world = World::new().await;
    let own = world.own.tenant.clone();
    let bound = world.key(&[Scope::Read], Some(&own), |_| {}).await;
    let everywhere = world.key(&[Scope::Read], None, |_| {}).await;
    let n = HAPPENS - KEPT;
    for (key, told) in [(ADMIN, n.to_string()), (&everywhere, n.to_string()), (&bound, "null".to_owned())] {
        assert_eq!(first_line(&world, key).await, format!("event: missed\ndata: {told}\n\n"));
    }
}
