use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as AtomicOrdering};

use bytes::Bytes;
use doorstep_core::address::AddressRules;
use doorstep_core::audit::Mandate;
use doorstep_core::consent::Verification;
use doorstep_core::delivery::Ordering;
use doorstep_core::destination::{
    Destination, DestinationSecrets, DestinationSettings, SigningSecret, Tenant, TlsSettings,
};
use doorstep_core::dice::SeededDice;
use doorstep_core::engine::{Accepted, Engine as _, EngineFault, News};
use doorstep_core::event::Event;
use doorstep_core::gate::GateLimits;
use doorstep_core::id::{AttemptId, DestinationId, EventId, TenantId};
use doorstep_core::outcome::StatusOverrides;
use doorstep_core::output::{Format, PayloadMode};
use doorstep_core::quota::OwnQuota;
use doorstep_core::reach::Reach;
use doorstep_core::route::Subscription;
use doorstep_core::scheduler::{Hand, SchedulerLimits};
use doorstep_core::sender::{Parcel, SendFault, Sender as SenderSeam, Sent};
use doorstep_core::signature::VerifyingKey;
use doorstep_core::store::{Refusal, Store};
use doorstep_core::time::{Millis, Timestamp};
use doorstep_engine::catalog::Catalog;
use doorstep_engine::chance::{self, Ids};
use doorstep_engine::clock::Clock;
use doorstep_engine::consent::Consents;
use doorstep_engine::desk::Desk;
use doorstep_engine::events::Events;
use doorstep_engine::ingest::Ingest;
use doorstep_engine::run::{self, Handle, Parts};
use doorstep_engine::sender::{Sender, SenderSettings};
use doorstep_engine::writer::Writer;
use doorstep_store::conformance::samples::audit_entry;
use doorstep_store::seal::{Keyring, MasterKey};
use doorstep_store::sqlite::{SqliteLimits, SqliteStore};
use http_body_util::{BodyExt, Empty};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc};

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// More than any test makes.
const NEWS_KEPT: usize = 1_024;
pub(crate) const TENANT: TenantId = TenantId(1);

pub(crate) fn verifying_key() -> VerifyingKey {
    SECRET.parse().unwrap()
}

pub(crate) fn open_store(directory: &Path) -> SqliteStore {
    // Encrypted, so that what the engine does is tried with both: the store's own tests do without.
    let keys = Keyring::new(MasterKey::new(&[7; 32])).sealing_payloads(true);
    SqliteStore::open(directory, keys, &SqliteLimits::default()).unwrap()
}

/// The whole engine, but for the API.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) run: Handle,
    pub(crate) clock: Clock,
    pub(crate) desk: Desk,
    pub(crate) writer: Writer,
    /// What the engine tells whoever watches.
    pub(crate) news: broadcast::Sender<News>,
    run_task: tokio::task::JoinHandle<()>,
    writer_task: tokio::task::JoinHandle<()>,
}

impl Engine {
    pub(crate) async fn start(directory: &Path) -> Self {
        Self::start_with(directory, || false).await
    }

    /// `panics`: whether the next request does.
    pub(crate) async fn start_with(directory: &Path, panics: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let store = Arc::new(open_store(directory));
        Self::start_over(store, panics).await
    }

    pub(crate) async fn start_over(store: Arc<dyn Store>, panics: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let clock = Clock::start();
        let reading = clock.clone();
        let ids = Arc::new(Ids::new().unwrap());
        let attempt_ids = Arc::clone(&ids);
        let rules = AddressRules::default().allowing("127.0.0.0/8").unwrap();
        let settings = SenderSettings::default();
        let sender =
            Sender::new(settings, rules.clone(), move || reading.look(), move |now| AttemptId(attempt_ids.next(now)))
                .unwrap();
        let sender: Arc<dyn SenderSeam> = Arc::new(Panicking { sender, panics: Box::new(panics) });
        let (writer, writer_task) = Writer::start(Arc::clone(&store), clock.clone());
        let catalog = Arc::new(Catalog::default());
        let events = Arc::new(Events::new(Arc::clone(&store)));
        let news = broadcast::Sender::new(NEWS_KEPT);
        let (run, run_task) = run::start(Parts {
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
        let ingest = Ingest {
            catalog,
            writer: writer.clone(),
            events,
            run: run.clone(),
            clock: clock.clone(),
            ids,
            pool: Arc::default(),
        };
        let consents = Consents::start(&ingest, Arc::clone(&sender), Box::new(SeededDice::new(1)));
        let desk = Desk::new(ingest, sender, consents, rules);
        Self { store, run, clock, desk, writer, news, run_task, writer_task }
    }

    pub(crate) async fn add(&self, destination: Destination) -> DestinationId {
        let tenant = Tenant {
            id: TENANT,
            name: "acme".to_owned(),
            contact_email: None,
            weight: 1,
            ingest_rate: None,
            quota: OwnQuota::default(),
            defaults: doorstep_core::defaults::TenantDefaults::default(),
            created_at: Timestamp(0),
            version: 1,
        };
        if self.desk.tenant(Reach::All, TENANT).is_none() {
            self.desk.put_tenant(mandate(), tenant).await.unwrap().unwrap();
        }
        let id = destination.id;
        self.desk.put_destination(mandate(), destination).await.unwrap().unwrap();
        id
    }

    /// Written and accepted, or refused.
    pub(crate) async fn accept(&self, event: Event) -> Result<Accepted, Refusal> {
        self.try_accept(event).await.unwrap()
    }

    pub(crate) async fn try_accept(&self, event: Event) -> Result<Result<Accepted, Refusal>, EngineFault> {
        Ok(self.desk.accept(Reach::All, vec![event.into()]).await?.remove(0))
    }

    pub(crate) async fn hand(&self, destination_id: DestinationId, hand: Hand) {
        self.desk.handle(mandate(), destination_id, hand).await.unwrap().expect("it is there");
    }

    /// Drains, and lets go of the store.
    pub(crate) async fn stop(self) {
        self.run.drain().await;
        self.run_task.await.unwrap();
        drop((self.desk, self.writer));
        drop(self.run);
        self.writer_task.await.unwrap();
    }
}

/// Leave to do anything.
pub(crate) fn mandate() -> Mandate {
    Mandate { reach: Reach::All, entry: audit_entry(1, None, Timestamp(0)) }
}

struct Panicking {
    sender: Sender,
    panics: Box<dyn Fn() -> bool + Send + Sync>,
}

impl SenderSeam for Panicking {
    fn send(&self, parcel: Parcel) -> Pin<Box<dyn Future<Output = Result<Sent, SendFault>> + Send + '_>> {
        assert!(!(self.panics)(), "a test wants this panic");
        SenderSeam::send(&self.sender, parcel)
    }
}

pub(crate) fn destination(id: u128, url: &str, event_types: &[&str]) -> Destination {
    let subscription: Subscription = Subscription {
        event_types: event_types.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>().try_into().unwrap(),
        filter: None,
    };
    Destination {
        id: DestinationId(id),
        tenant_id: TENANT,
        settings: DestinationSettings {
            name: None,
            url: url.to_owned(),
            subscription,
            policy: policy(),
            status_overrides: StatusOverrides::default(),
            limits: GateLimits::default(),
            ordering: Ordering::Unordered,
            timeout: Millis::from_secs(15),
            extra_signatures: BTreeSet::new(),
            tls: TlsSettings::default(),
            payload_mode: PayloadMode::Full,
            format: Format::Plain,
            send_traceparent: true,
            verification: Verification::default(),
            chosen: None,
            preset: None,
        },
        secrets: DestinationSecrets {
            signing: vec![SigningSecret { text: SECRET.to_owned().into(), retires_at: None }],
            ..DestinationSecrets::default()
        },
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        version: 1,
        consent: None,
    }
}

/// Retries at once, as far as a policy may.
fn policy() -> doorstep_core::retry::RetryPolicy {
    let spec = doorstep_core::retry::CustomPolicy {
        strategy: doorstep_core::retry::StrategyName::Fixed,
        base_ms: Some(Millis(10)),
        floor_ms: Some(Millis(10)),
        ..doorstep_core::retry::CustomPolicy::default()
    };
    doorstep_core::retry::PolicySpec::Custom(spec).try_into().unwrap()
}

pub(crate) fn event(n: usize, event_type: &str) -> Event {
    Event {
        id: EventId::new(&format!("evt_{n}")).unwrap(),
        tenant_id: TENANT,
        event_type: event_type.parse().unwrap(),
        content_type: "application/json".into(),
        payload: format!("{{\"n\":{n}}}").into(),
        ordering_key: None,
        produced_at: None,
        schema_version: None,
        headers: Vec::new(),
        ttl: None,
        accepted_at: Timestamp(0),
        wall_offset_ms: 0,
        trace: None,
        cloud: None,
    }
}

/// Answers each request with a status by its number, and tells of it.
pub(crate) struct Receiver {
    address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Request>,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Receiver {
    pub(crate) async fn start(status: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, requests) = mpsc::unbounded_channel();
        let (status, count) = (Arc::new(status), Arc::new(AtomicUsize::new(0)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, status, count) = (seen.clone(), Arc::clone(&status), Arc::clone(&count));
                let answer = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    let (seen, status, count) = (seen.clone(), Arc::clone(&status), Arc::clone(&count));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                        let code = status(count.fetch_add(1, AtomicOrdering::SeqCst));
                        let _ = seen.send(Request { path: head.uri.path().to_owned(), headers: head.headers, body });
                        let mut response = hyper::Response::new(Empty::<Bytes>::new());
                        *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
                        Ok::<_, Infallible>(response)
                    }
                });
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn next(&mut self) -> Request {
        self.requests.recv().await.expect("the receiver lives as long as its test")
    }

    pub(crate) fn is_quiet(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }
}
