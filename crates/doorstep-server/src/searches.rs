//! What people ask for: one tenant's searches, however many and slow, do not keep the others waiting.

use std::future::Future;

use axum::extract::{MatchedPath, Request};
use doorstep_core::id::TenantId;
use doorstep_core::reach::Reach;
use doorstep_core::store::StoreError;
use tokio::sync::Mutex;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::auth::rules;
use crate::problem::Problem;
use crate::shares::{Share, Shares};

/// Requests under way of all whose credentials are limited to one tenant. Events that are sent in have bounds of their own.
const REQUESTS_PER_TENANT_MAX: usize = 32;

/// A store has few threads for people, and a search may take seconds. So of each tenant it is asked for one after the other, and all
/// tenants' turns come round. Who reaches everything is the operator, and waits for nobody here.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    requests: Shares<TenantId>,
    turns: Shares<TenantId, Mutex<()>>,
}

impl Searches {
    /// Takes a request in. It is refused before it does anything, not halfway.
    fn begin(&self, reach: Reach) -> Result<Option<Share<TenantId>>, Problem> {
        let Some(tenant_id) = reach.tenant_id() else { return Ok(None) };
        let share = self.requests.take(tenant_id, REQUESTS_PER_TENANT_MAX);
        let busy = || {
            let n = REQUESTS_PER_TENANT_MAX;
            Problem::busy(format!(
                "{n} requests of this tenant are under way already: try again when some are answered"
            ))
        };
        share.map(Some).ok_or_else(busy)
    }

    /// Begins `search` when it is its turn. It belongs to a request that was taken in, so no more wait here than that.
    pub(crate) async fn in_turn<T>(
        &self,
        reach: Reach,
        search: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let share = reach.tenant_id().and_then(|id| self.turns.take(id, usize::MAX));
        let Some(share) = share else { return search.await };
        let _turn = share.common.lock().await;
        search.await
    }
}

/// What a request takes of its tenant's share. It is to be kept until the request is done, also if nobody waits for it any more.
pub(crate) fn share(app: &App, caller: &Caller, request: &Request) -> Result<Option<Share<TenantId>>, Problem> {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    if rules::is_for_producers(request.method(), path) {
        return Ok(None);
    }
    app.searches.begin(caller.reach)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::sync::Arc;

    use doorstep_core::api_key::Scope;
    use futures_util::FutureExt;
    use http::StatusCode;
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::auth::world::{With, World};

    const ONE: Reach = Reach::Tenant(TenantId(1));
    const OTHER: Reach = Reach::Tenant(TenantId(2));

    #[tokio::test]
    async fn a_tenants_searches_come_one_after_the_other_and_nobody_elses_wait_for_them() {
        let (searches, begun) = (Searches::default(), RefCell::new(Vec::new()));
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let quick = async |name: &'static str| {
            begun.borrow_mut().push(name);
            Ok(())
        };
        let slow = async {
            begun.borrow_mut().push("slow");
            let _ = ended.await;
            Ok(())
        };
        let mut slow = pin!(searches.in_turn(ONE, slow));
        let mut behind = pin!(searches.in_turn(ONE, quick("behind")));
        assert!(slow.as_mut().now_or_never().is_none() && behind.as_mut().now_or_never().is_none());
        assert!(searches.in_turn(OTHER, quick("other")).now_or_never().unwrap().is_ok());
        assert!(searches.in_turn(Reach::All, quick("operator")).now_or_never().unwrap().is_ok());
        assert_eq!(*begun.borrow(), ["slow", "other", "operator"]);
        end.send(()).unwrap();
        assert!(slow.await.is_ok() && behind.await.is_ok());
        assert_eq!(*begun.borrow(), ["slow", "other", "operator", "behind"]);
    }

    #[tokio::test]
    async fn whoever_asks_for_too_much_at_once_is_refused_before_anything_is_done() {
        let mut world = World::new().await;
        let app = Arc::clone(&world.app);
        let reach = Reach::Tenant(world.own.tenant.parse().unwrap());
        let under_way: Vec<_> = (0..REQUESTS_PER_TENANT_MAX).map(|_| app.searches.begin(reach).unwrap()).collect();
        let (own, foreign) = (world.own.tenant.clone(), world.foreign.tenant.clone());
        let bound = With::Bearer(world.key(&[Scope::Admin, Scope::Ingest], Some(&own), |_| {}).await);
        let other = With::Bearer(world.key(&[Scope::Admin], Some(&foreign), |_| {}).await);
        let resume = format!("/v1/destinations/{}/resume", world.own.destination);
        for (method, path) in [("GET", "/v1/deliveries"), ("GET", "/v1/audit"), ("POST", &resume)] {
            let (status, problem) = world.ask_with(&bound, method, path, Value::Null).await;
            assert_eq!((status, &problem["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("busy")), "{path}");
        }
        let (_, shown) = world.ask("GET", &format!("/v1/destinations/{}", world.own.destination), Value::Null).await;
        assert_eq!(shown["status"], "paused", "nothing was done: {shown}");
        let (status, _) = world.ask_with(&other, "GET", "/v1/deliveries", Value::Null).await;
        assert_eq!(status, StatusCode::OK, "the others have their own");
        let event = json!({ "tenant_id": own, "type": "a.b", "payload": 1 });
        let (status, _) = world.ask_with(&bound, "POST", "/v1/events", event).await;
        assert_eq!(status, StatusCode::ACCEPTED, "events come in");
        drop(under_way);
        let (status, _) = world.ask_with(&bound, "GET", "/v1/deliveries", Value::Null).await;
        assert_eq!(status, StatusCode::OK);
    }

    /// Whoever asks and does not read keeps what its requests took.
    #[tokio::test]
    async fn a_tenants_share_is_held_until_its_answers_are_sent() {
        let mut world = World::new().await;
        let own = world.own.tenant.clone();
        let bound = format!("Bearer {}", world.key(&[Scope::Read], Some(&own), |_| {}).await);
        let headers = [("authorization", bound.as_str())];
        let ask = || world.answer("GET", "/v1/deliveries", &headers, Value::Null);
        let mut unread = Vec::new();
        for _ in 0..REQUESTS_PER_TENANT_MAX {
            let answer = ask().await;
            assert_eq!(answer.status(), StatusCode::OK);
            unread.push(answer);
        }
        assert_eq!(ask().await.status(), StatusCode::SERVICE_UNAVAILABLE, "none of them has been read");
        let bytes = unread.pop().unwrap().into_body().collect().await.unwrap().to_bytes();
        assert_eq!(ask().await.status(), StatusCode::SERVICE_UNAVAILABLE, "its bytes are still to be sent");
        drop(bytes);
        unread.push(ask().await);
        assert_eq!(unread[REQUESTS_PER_TENANT_MAX - 1].status(), StatusCode::OK);
        assert_eq!(ask().await.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(unread);
        assert_eq!(ask().await.status(), StatusCode::OK, "clients that have gone keep nothing");
    }

    /// A search of the tenant's that does not end: whatever else is looked for on its behalf waits, and for nobody else.
    #[tokio::test]
    async fn all_that_is_looked_up_for_a_tenant_takes_its_turn() {
        let mut world = World::new().await;
        let app = Arc::clone(&world.app);
        let reach = Reach::Tenant(world.own.tenant.parse().unwrap());
        let (own, foreign) = (world.own.tenant.clone(), world.foreign.tenant.clone());
        let bound = With::Bearer(world.key(&[Scope::Admin], Some(&own), |_| {}).await);
        let other = With::Bearer(world.key(&[Scope::Admin], Some(&foreign), |_| {}).await);
        for (path, of_own, of_foreign) in [
            ("/v1/deliveries", "", ""),
            ("/v1/deliveries/", &*world.own.delivery, &*world.foreign.delivery),
            ("/v1/events", "", ""),
            ("/v1/events/", &world.own.event, &world.foreign.event),
            ("/v1/destinations", "", ""),
            ("/v1/destinations/", &world.own.destination, &world.foreign.destination),
            ("/v1/keys", "", ""),
            ("/v1/keys/", &world.own.key, &world.foreign.key),
            ("/v1/audit", "", ""),
        ] {
            let (path, others) = (format!("{path}{of_own}"), format!("{path}{of_foreign}"));
            let endless = std::future::pending::<Result<(), StoreError>>();
            let mut endless = Box::pin(app.searches.in_turn(reach, endless));
            assert!(endless.as_mut().now_or_never().is_none());
            let mut waits = Box::pin(world.ask_with(&bound, "GET", &path, Value::Null));
            let (another, operator) = tokio::select! {
                biased;
                (status, answer) = &mut waits => panic!("{path} did not wait: {status} {answer}"),
                answered = async {
                    let another = world.ask_with(&other, "GET", &others, Value::Null).await.0;
                    (another, world.ask("GET", &path, Value::Null).await.0)
                } => answered,
            };
            assert_eq!((another, operator), (StatusCode::OK, StatusCode::OK), "{path}");
            assert!(waits.as_mut().now_or_never().is_none(), "{path} did not wait");
            drop(endless);
            assert_eq!(waits.await.0, StatusCode::OK, "{path}");
        }
    }
}
