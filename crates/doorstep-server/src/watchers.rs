//! Clients that watch the stream: however long they stay, there is room for others.

use std::sync::Arc;

use doorstep_core::id::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::caller::Caller;
use crate::problem::Problem;
use crate::shares::{Share, Shares};

/// Of all places, all credentials that are limited to one tenant have this part together …
pub const TENANTS_PART: usize = 4;
/// … and each of them has this one.
pub const BOUND_CREDENTIALS_PART: usize = 16;
/// A credential that reaches everything has this.
pub const CREDENTIALS_PART: usize = 4;

#[derive(Debug)]
pub(crate) struct Watchers {
    max: usize,
    places: Arc<Semaphore>,
    of_tenants: Shares<TenantId>,
    /// By the actor's name.
    of_credentials: Shares<String>,
}

/// Held while somebody watches.
#[derive(Debug)]
pub(crate) struct Watching {
    _place: OwnedSemaphorePermit,
    _of_tenant: Option<Share<TenantId>>,
    _of_credential: Share<String>,
}

impl Watchers {
    pub(crate) fn new(max: usize) -> Self {
        let places = Arc::new(Semaphore::new(max));
        Self { max, places, of_tenants: Shares::default(), of_credentials: Shares::default() }
    }

    pub(crate) fn begin(&self, caller: &Caller) -> Result<Watching, Problem> {
        let tenant_id = caller.reach.tenant_id();
        let part = if tenant_id.is_some() { BOUND_CREDENTIALS_PART } else { CREDENTIALS_PART };
        let (of_credential, of_tenant) = (self.max.div_ceil(part), self.max.div_ceil(TENANTS_PART));
        let credential = self.of_credentials.take(caller.actor.name(), of_credential);
        let credential = credential.ok_or_else(|| over("this credential", of_credential))?;
        let tenant =
            tenant_id.map(|id| self.of_tenants.take(id, of_tenant).ok_or_else(|| over("this tenant", of_tenant)));
        let tenant = tenant.transpose()?;
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Problem::busy("too many clients watch already: try again when one has gone"))?;
        Ok(Watching { _place: place, _of_tenant: tenant, _of_credential: credential })
    }
}

fn over(whose: &str, max: usize) -> Problem {
    Problem::busy(format!("{whose} has {max} streams open, as many as it may: close one that is not needed any more"))
}

#[cfg(test)]
mod tests {
    use doorstep_core::api_key::Scope;
    use http::StatusCode;
    use serde_json::Value;

    use super::*;
    use crate::Limits;
    use crate::auth::world::{ADMIN, World};

    async fn watch(world: &World, key: &str) -> axum::response::Response {
        world.answer("GET", "/v1/stream", &[("authorization", key)], Value::Null).await
    }

    async fn key(world: &mut World, of: Option<&str>) -> String {
        format!("Bearer {}", world.key(&[Scope::Read], of, |_| {}).await)
    }

    #[tokio::test]
    async fn whoever_has_their_share_of_the_stream_leaves_room_for_others() {
        let mut world = World::new().await;
        let max = Limits::default().watchers_max;
        let (own, foreign) = (world.own.tenant.clone(), world.foreign.tenant.clone());
        let mut kept = Vec::new();
        // Of the places of a tenant, each credential has some.
        for _ in 0..BOUND_CREDENTIALS_PART / TENANTS_PART {
            let greedy = key(&mut world, Some(&own)).await;
            for _ in 0..max / BOUND_CREDENTIALS_PART {
                let stream = watch(&world, &greedy).await;
                assert_eq!(stream.status(), StatusCode::OK);
                kept.push(stream);
            }
            let refused = watch(&world, &greedy).await;
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert!(refused.headers().contains_key("retry-after"));
        }
        let one_more = key(&mut world, Some(&own)).await;
        assert_eq!(watch(&world, &one_more).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        let admin = format!("Bearer {ADMIN}");
        let other = key(&mut world, Some(&foreign)).await;
        for with in [&other, &admin] {
            assert_eq!(watch(&world, with).await.status(), StatusCode::OK);
        }
        kept.pop();
        assert_eq!(watch(&world, &one_more).await.status(), StatusCode::OK, "one has gone");

        for _ in 0..max / CREDENTIALS_PART {
            kept.push(watch(&world, &admin).await);
        }
        assert_eq!(watch(&world, &admin).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        let everywhere = key(&mut world, None).await;
        assert_eq!(watch(&world, &everywhere).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn one_portal_user_has_as_few_as_a_key_of_a_tenant() {
        let world = World::new().await;
        let cookie = async || format!("doorstep_portal={}", world.portal(&world.own.tenant).await);
        let (greedy, modest) = (cookie().await, cookie().await);
        let watch = async |cookie: &str| {
            let request =
                http::Request::get("/v1/stream").header("cookie", cookie).header("sec-fetch-site", "same-origin");
            world.call(request.body(axum::body::Body::empty()).unwrap()).await
        };
        let mut kept = Vec::new();
        for _ in 0..Limits::default().watchers_max / BOUND_CREDENTIALS_PART {
            kept.push(watch(&greedy).await);
        }
        assert!(kept.iter().all(|stream| stream.status() == StatusCode::OK));
        assert_eq!(watch(&greedy).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(watch(&modest).await.status(), StatusCode::OK);
    }
}
