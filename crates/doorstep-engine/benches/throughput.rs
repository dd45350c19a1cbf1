//! What the engine does in a second but for the network: `cargo bench -p doorstep-engine --bench throughput [-- DIRECTORY]`.
//!
//! So many producers at once, each with one event of 1 KiB at a time, to 100 destinations in turn; requests cost a fixed amount of work.
//! Every commit is synced. An event is counted once it is delivered and settled.

#![expect(clippy::print_stdout, reason = "it is a report")]
#![expect(clippy::unwrap_used, reason = "it stops where something is missing")]

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use doorstep_core::attempt::Answer;
use doorstep_core::gate::Rate;
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::outcome::Outcome;
use doorstep_core::reach::Reach;
use doorstep_core::scheduler::SchedulerLimits;
use doorstep_core::sender::{Parcel, SendFault, Sender, Sent};
use doorstep_core::store::{Store, Write};
use doorstep_engine::catalog::Catalog;
use doorstep_engine::chance::{self, Ids};
use doorstep_engine::clock::Clock;
use doorstep_engine::events::Events;
use doorstep_engine::ingest::Ingest;
use doorstep_engine::run::{self, Parts};
use doorstep_engine::writer::Writer;
use doorstep_store::conformance::samples::{NOW, attempt, destination, event};
use doorstep_store::seal::{Keyring, MasterKey};
use doorstep_store::sqlite::{SqliteLimits, SqliteStore};

const DESTINATIONS: u128 = 100;
const FOR_EACH: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let given = std::env::args().nth(1).filter(|arg| !arg.starts_with("--"));
    let directory = given.map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap();
    println!("{:>9} {:>8} {:>17} {:>19}", "producers", "events/s", "writes per commit", "median to accept ms");
    for producers in [1, 16, 64, 256, 1_024] {
        let Figures { events, batch, median } = measure(&directory.path().join(producers.to_string()), producers).await;
        println!("{producers:>9} {events:>8.0} {batch:>17.1} {:>19.2}", median.as_secs_f64() * 1e3);
    }
}

struct Figures {
    events: f64,
    batch: f64,
    median: Duration,
}

async fn measure(directory: &Path, producers: usize) -> Figures {
    let keys = Keyring::new(MasterKey::new(&[7; 32]));
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(directory, keys, &SqliteLimits::default()).unwrap());
    let clock = Clock::start();
    let (writer, task) = Writer::start(Arc::clone(&store), clock.clone());
    let (catalog, events) = (Arc::new(Catalog::default()), Arc::new(Events::new(Arc::clone(&store))));
    let (run, _run_task) = run::start(Parts {
        store: Arc::clone(&store),
        sender: Arc::new(Instantly),
        writer: writer.clone(),
        catalog: Arc::clone(&catalog),
        events: Arc::clone(&events),
        clock: clock.clone(),
        dice: Box::new(chance::dice().unwrap()),
        limits: SchedulerLimits::default(),
        news: tokio::sync::broadcast::channel(16).0,
    });
    let puts = (0..DESTINATIONS).map(|n| {
        let mut it = destination(DestinationId(n), 1);
        it.tenant_id = TenantId(n);
        it.settings.subscription = serde_json::from_str(r#"{"event_types":["*"]}"#).unwrap();
        it.settings.limits.concurrency = 1_000;
        it.settings.limits.rate = Rate::FASTEST;
        Write::PutDestination(Box::new(it))
    });
    writer.write(puts.collect()).await.unwrap();
    run::adopt_all(store.as_ref(), &catalog, &run).await.unwrap();
    let ingest = Ingest {
        catalog,
        writer: writer.clone(),
        events,
        run: run.clone(),
        clock,
        ids: Arc::new(Ids::new().unwrap()),
        pool: Arc::default(),
    };
    let (began, n) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let calls = (0..producers).map(|_| {
        let (ingest, n) = (ingest.clone(), Arc::clone(&n));
        tokio::spawn(async move {
            let mut took = Vec::new();
            while began.elapsed() < FOR_EACH {
                let called = Instant::now();
                let n = n.fetch_add(1, Ordering::Relaxed);
                let mut event = event(&format!("evt_{n:026}"), None, NOW);
                event.tenant_id = TenantId(u128::from(n) % DESTINATIONS);
                event.ttl = None;
                event.payload = Bytes::from(vec![b'x'; 1_024]);
                ingest.accept(vec![event.into()]).await.unwrap();
                took.push(called.elapsed());
            }
            took
        })
    });
    let mut took = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        took.extend(call.await.unwrap());
    }
    let ids: Vec<DestinationId> = (0..DESTINATIONS).map(DestinationId).collect();
    while store.backlogs(Reach::All, ids.clone()).await.unwrap().iter().any(|backlog| backlog.queued > 0) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let spent = began.elapsed();
    took.sort_unstable();
    let commits = writer.commits();
    let (batches, writes) = (commits.batches.load(Ordering::Relaxed), commits.writes.load(Ordering::Relaxed));
    run.drain().await;
    drop((ingest, run, writer));
    task.await.unwrap();
    Figures {
        events: took.len() as f64 / spent.as_secs_f64(),
        batch: writes as f64 / batches as f64,
        median: took[took.len() / 2],
    }
}

/// A request takes about as much work as this.
const REQUEST: Duration = Duration::from_micros(20);

/// Works as hard as a sender, and has its answer at once.
struct Instantly;

impl Sender for Instantly {
    fn send(&self, _: Parcel) -> Pin<Box<dyn Future<Output = Result<Sent, SendFault>> + Send + '_>> {
        let began = Instant::now();
        while began.elapsed() < REQUEST {}
        let attempt = attempt(1, Answer::Status(200), NOW);
        Box::pin(async { Ok(Sent { outcome: Outcome::Accepted { quota: None }, attempt }) })
    }
}
