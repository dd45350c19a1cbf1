//! A whole server in memory, for tests: two tenants with something of everything, and whatever credential is asked for.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use doorstep_core::address::AddressRules;
use doorstep_core::api_key::{ApiKey, KeyText, SECRET_LEN, Scope};
use doorstep_core::attempt::{Answer, Attempt, Timings};
use doorstep_core::delivery::{Delivery, Ordering, Settlement};
use doorstep_core::dice::SeededDice;
use doorstep_core::id::{AttemptId, DeliveryId, KeyId, SessionId, TenantId};
use doorstep_core::outcome::Outcome;
use doorstep_core::portal::secret_text;
use doorstep_core::reach::Reach;
use doorstep_core::retry::{Charge, Decision};
use doorstep_core::scheduler::SchedulerLimits;
use doorstep_core::sender::{Parcel, SendFault, Sender, Sent};
use doorstep_core::store::{DeliveryFilter, Page, Settled, Store, Write};
use doorstep_core::time::{Millis, Timestamp};
use doorstep_engine::catalog::Catalog;
use doorstep_engine::chance::{self, Ids};
use doorstep_engine::clock::Clock;
use doorstep_engine::consent::Consents;
use doorstep_engine::desk::Desk;
use doorstep_engine::events::Events;
use doorstep_engine::ingest::Ingest;
use doorstep_engine::run::{self, Parts};
use doorstep_engine::writer::Writer;
use doorstep_store::memory::MemoryStore;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

use super::{KeyHash, Peer};
use crate::openapi::seen;
use crate::router::router;
use crate::{App, Limits, Place};

pub(crate) const ADMIN: &str = "the-first-administrators-key";
/// Where requests come from.
const PEER: &str = "192.0.2.7";

pub(crate) struct World {
    pub(crate) app: Arc<App>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) router: Router,
    pub(crate) own: Things,
    pub(crate) foreign: Things,
    last_id: u128,
}

/// One tenant's things, by their IDs.
#[derive(Debug, Default)]
pub(crate) struct Things {
    pub(crate) tenant: String,
    pub(crate) destination: String,
    pub(crate) event: String,
    pub(crate) delivery: String,
    pub(crate) key: String,
}

impl Things {
    pub(crate) fn all(&self) -> [&str; 5] {
        [&self.tenant, &self.destination, &self.event, &self.delivery, &self.key]
    }
}

/// What a request brings along.
#[derive(Clone, Debug)]
pub(crate) enum With {
    Nothing,
    Bearer(String),
    /// A portal session's cookie, from our own pages.
    Cookie(String),
    /// The same from another site's pages.
    CookieFromElsewhere(String),
}

/// Nobody ever answers.
struct Silent;

impl Sender for Silent {
    fn send(&self, _: Parcel) -> Pin<Box<dyn Future<Output = Result<Sent, SendFault>> + Send + '_>> {
        Box::pin(async { Err(SendFault("nothing is sent in this test".into())) })
    }
}

/// An event type that is registered, and archived.
pub(crate) const REGISTERED: &str = "registered.type";

impl World {
    pub(crate) async fn new() -> Self {
        let mut world = Self::over(Arc::new(MemoryStore::default())).await;
        world.own = world.furnish("own").await;
        world.foreign = world.furnish("foreign").await;
        let registered = json!({ "name": REGISTERED, "archived": true });
        let (status, answer) = world.ask("POST", "/v1/event-types", registered).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        world
    }

    /// A server over a store that may hold something already.
    pub(crate) async fn over(store: Arc<dyn Store>) -> Self {
        Self::placed(store, Place::default()).await
    }

    pub(crate) async fn placed(store: Arc<dyn Store>, place: Place) -> Self {
        let clock = Clock::start();
        let (writer, _) = Writer::start(Arc::clone(&store), clock.clone());
        let (catalog, events) = (Arc::new(Catalog::default()), Arc::new(Events::new(Arc::clone(&store))));
        let (sender, news): (Arc<dyn Sender>, _) = (Arc::new(Silent), tokio::sync::broadcast::Sender::new(16));
        let (run, _) = run::start(Parts {
            store: Arc::clone(&store),
            sender: Arc::clone(&sender),
            writer: writer.clone(),
            catalog: Arc::clone(&catalog),
            events: Arc::clone(&events),
            clock: clock.clone(),
            dice: Box::new(chance::dice().unwrap()),
            limits: SchedulerLimits::default(),
            news: news.clone(),
        });
        run::adopt_all(store.as_ref(), &catalog, &run).await.unwrap();
        let ingest =
            Ingest { catalog, writer, events, run, clock, ids: Arc::new(Ids::new().unwrap()), pool: Arc::default() };
        let consents = Consents::start(&ingest, Arc::clone(&sender), Box::new(SeededDice::new(1)));
        let desk = Arc::new(Desk::new(ingest, sender, consents, AddressRules::default()));
        let app = App::new(desk, Arc::clone(&store), news, KeyHash::of(ADMIN), Limits::default()).placed(place);
        let app = Arc::new(app);
        app.recall().await.unwrap();
        let router = router(Arc::clone(&app));
        Self { app, store, router, own: Things::default(), foreign: Things::default(), last_id: 0 }
    }

    async fn furnish(&mut self, name: &str) -> Things {
        let tenant = self.made("/v1/tenants", json!({ "name": name })).await;
        let new = json!({ "tenant_id": tenant, "url": "https://example.com/", "name": name });
        let destination = self.made("/v1/destinations", new).await;
        let (status, _) = self.ask("POST", &format!("/v1/destinations/{destination}/pause"), Value::Null).await;
        assert_eq!(status, StatusCode::OK);
        let event = format!("event-of-{name}");
        self.made("/v1/events", json!({ "tenant_id": tenant, "type": "a.b", "payload": 1, "id": event })).await;
        self.attempted(tenant.parse().unwrap()).await;
        let delivery = self.delivery_of(tenant.parse().unwrap()).await.id.to_string();
        // As limited as whoever comes, who may then change it.
        let near = ["192.0.2.0/24"];
        let new = json!({ "name": name, "scopes": ["read"], "tenant_id": tenant, "source_cidrs": near });
        let key = self.made("/v1/keys", new).await;
        Things { tenant, destination, event, delivery, key }
    }

    async fn made(&self, path: &str, body: Value) -> String {
        let (status, answer) = self.ask("POST", path, body).await;
        assert!(status.is_success(), "{path}: {status} {answer}");
        answer["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn delivery_of(&self, tenant_id: TenantId) -> Delivery {
        let filter = DeliveryFilter { tenant_id: Some(tenant_id), ..DeliveryFilter::default() };
        let found = self.store.deliveries(Reach::All, filter, Page { before_seq: None, limit: 1 }).await.unwrap();
        found[0].delivery.clone()
    }

    /// As if the tenant's last delivery had been tried once more, and throttled.
    pub(crate) async fn attempted(&self, tenant_id: TenantId) {
        let (delivery, now) = (self.delivery_of(tenant_id).await, self.app.engine.now());
        let (outcome, decision) = (Outcome::Throttled { wait: None }, Decision::Requeue);
        let after = delivery.after(&outcome, decision, Charge::Attempt, now);
        let attempt = Attempt {
            id: AttemptId(after.requests.into()),
            number: after.requests,
            started_at: now,
            timings: Timings::default(),
            answer: Answer::Status(429),
            request_headers: [("x-asked", "1")].into_iter().collect(),
            response_headers: [("x-answered", "2")].into_iter().collect(),
            response_body: "too fast".into(),
            response_truncated: false,
        };
        let settlement = Settlement::new(after, Some(outcome), decision, Ordering::Unordered, now);
        let settled = Settled { settlement, attempt: Some(attempt) };
        self.store.write(vec![Write::Settle(Arc::new(settled))], now).await.unwrap();
    }

    /// Makes the delivery a dead letter.
    pub(crate) async fn end(&self, delivery: &str) {
        let delivery_id: DeliveryId = delivery.parse().unwrap();
        let end = Write::Abandon { delivery_id, note: String::new() };
        self.store.write(vec![end], self.app.engine.now()).await.unwrap();
    }

    /// A key with these scopes, made without the API.
    pub(crate) async fn key(&mut self, scopes: &[Scope], of: Option<&str>, change: impl FnOnce(&mut ApiKey)) -> String {
        self.last_id += 1;
        let text = KeyText::new(KeyId(self.last_id), &[7; SECRET_LEN]);
        let mut key = ApiKey {
            id: text.id,
            name: "a key".to_owned(),
            scopes: scopes.iter().copied().collect(),
            tenant_id: of.map(|id| id.parse().unwrap()),
            source_cidrs: vec![],
            created_at: Timestamp(0),
            expires_at: None,
            last_used_at: None,
            revoked_at: None,
            hash: text.hash(),
            old: None,
            version: 1,
        };
        change(&mut key);
        self.store.write(vec![Write::PutApiKey(Box::new(key.clone()))], Timestamp(0)).await.unwrap();
        self.app.recall().await.unwrap();
        text.reveal().to_owned()
    }

    /// The token of an open portal session.
    pub(crate) async fn portal(&self, tenant: &str) -> String {
        let (status, made) = self.ask("POST", "/v1/portal-sessions", json!({ "tenant_id": tenant })).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        let (status, cookie) = self.enter(made["code"].as_str().unwrap(), &[]).await;
        assert_eq!(status, StatusCode::OK);
        cookie.split(['=', ';']).nth(1).unwrap().to_owned()
    }

    /// Exchanges a code, and returns the cookie.
    pub(crate) async fn enter(&self, code: &str, headers: &[(&str, &str)]) -> (StatusCode, String) {
        let mut request = Request::post("/portal/session").header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Body::from(json!({ "code": code }).to_string());
        let answer = self.call(request.body(body).unwrap()).await;
        let cookie = answer.headers().get("set-cookie").map_or("", |cookie| cookie.to_str().unwrap());
        (answer.status(), cookie.to_owned())
    }

    /// As the first administrator.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        self.ask_with(&With::Bearer(ADMIN.to_owned()), method, path, body).await
    }

    pub(crate) async fn ask_with(&self, with: &With, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        let mut request = Request::builder().method(Method::try_from(method).unwrap()).uri(path);
        request = match with {
            With::Nothing => request,
            With::Bearer(key) => request.header("authorization", format!("Bearer {key}")),
            With::Cookie(token) => {
                request.header("cookie", format!("doorstep_portal={token}")).header("sec-fetch-site", "same-origin")
            }
            With::CookieFromElsewhere(token) => {
                request.header("cookie", format!("doorstep_portal={token}")).header("sec-fetch-site", "cross-site")
            }
        };
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let answer = self.call(request.header("content-type", "application/json").body(body).unwrap()).await;
        let status = answer.status();
        // A stream has no end.
        if path.starts_with("/v1/stream") && status.is_success() {
            return (status, Value::Null);
        }
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// As the first administrator unless the headers say otherwise; the whole answer.
    pub(crate) async fn answer(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> axum::response::Response {
        let mut request = Request::builder().method(Method::try_from(method).unwrap()).uri(path);
        let admin = format!("Bearer {ADMIN}");
        let usual = [("authorization", admin.as_str()), ("content-type", "application/json")];
        let is_given = |name: &str| headers.iter().any(|(given, _)| *given == name);
        for (name, value) in usual.iter().filter(|(name, _)| !is_given(name)).chain(headers) {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.call(request.body(body).unwrap()).await
    }

    /// Whatever is answered, the API's description has to have it.
    pub(crate) async fn call(&self, mut request: Request<Body>) -> axum::response::Response {
        request.extensions_mut().insert(Peer(PEER.parse::<IpAddr>().unwrap()));
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = TowerToHyperService::new(self.router.clone()).call(request).await.unwrap();
        seen::judge(&method, &path, answer).await
    }

    /// What the ends of keys are compared with.
    pub(crate) fn wall(&self) -> Timestamp {
        self.app.engine.look().wall
    }

    pub(crate) fn later(&self, millis: u64) -> Timestamp {
        self.app.engine.now() + Millis(millis)
    }
}

/// A token that was never given out.
pub(crate) fn a_guess() -> String {
    secret_text(SessionId(99), &[1; doorstep_core::portal::SECRET_LEN])
}
