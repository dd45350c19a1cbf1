//! A store in trouble: producers hear of it, nothing acknowledged is lost, and it goes on without a restart.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use doorstep_core::api_key::ApiKey;
use doorstep_core::attempt::Attempt;
use doorstep_core::audit::AuditEntry;
use doorstep_core::clock::KeptClock;
use doorstep_core::consent::Verification;
use doorstep_core::delivery::Delivery;
use doorstep_core::destination::Tenant;
use doorstep_core::engine::{Engine as _, EngineFault};
use doorstep_core::event::{Event, NewEvent};
use doorstep_core::event_type::RegisteredType;
use doorstep_core::id::{DeliveryId, DestinationId, EventId, KeyId, SessionId, TenantId};
use doorstep_core::portal::PortalSession;
use doorstep_core::quota::Usage;
use doorstep_core::reach::Reach;
use doorstep_core::route::EventType;
use doorstep_core::store::{
    Activity, ActivityQuery, Ages, AuditFilter, Backlog, DeliveryFilter, DeliveryHistory, DeliveryStatus,
    DeliverySummary, DuePage, DueQuery, EventFilter, EventSummary, Page, Purged, Refusal, Reply, Store, StoreError,
    StoredDestination, StoredEvent, Write, Written,
};
use doorstep_core::time::Timestamp;
use doorstep_engine::clock::Clock;
use doorstep_engine::writer::{BATCH_ROWS_MAX, ROWS_PER_TENANT_MAX, WriteFault, Writer, WriterLimits};
use doorstep_store::sqlite::SqliteStore;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::{Notify, watch};

use crate::support::{Engine, Receiver, destination, event, open_store};

/// A store that does not take writes while it is told not to, or is late with its answers.
struct Troubled {
    store: SqliteStore,
    /// Reads wait before they look; new events wait once they are on disk.
    late_reads: watch::Sender<bool>,
    late_answers: watch::Sender<bool>,
    committed: Notify,
    reading: Notify,
    in_trouble: AtomicBool,
    refused: AtomicUsize,
    refuses: Notify,
    /// What belongs to this event cannot be settled: the page that it is on is damaged.
    damaged_event: AtomicU64,
    /// It was tried alone.
    tried_alone: Notify,
    /// Whose events were written in each batch, with the number of their rows.
    accepted: Mutex<Vec<Vec<(TenantId, usize)>>>,
}

impl Troubled {
    fn open(directory: &std::path::Path) -> Arc<Self> {
        let store = open_store(directory);
        Arc::new(Self {
            store,
            late_reads: watch::Sender::new(false),
            late_answers: watch::Sender::new(false),
            committed: Notify::new(),
            reading: Notify::new(),
            in_trouble: AtomicBool::new(false),
            refused: AtomicUsize::new(0),
            refuses: Notify::new(),
            damaged_event: AtomicU64::new(0),
            tried_alone: Notify::new(),
            accepted: Mutex::default(),
        })
    }

    fn trouble(&self, in_trouble: bool) {
        self.in_trouble.store(in_trouble, Ordering::SeqCst);
    }

    /// Waits until so many batches have been refused.
    async fn refused(&self, n: usize) {
        while self.refused.load(Ordering::SeqCst) < n {
            self.refuses.notified().await;
        }
    }
}

impl Store for Troubled {
    fn write(&self, batch: Vec<Write>, now: Timestamp) -> Reply<'_, Vec<Written>> {
        let damaged = self.damaged_event.load(Ordering::SeqCst);
        let hits = |write: &Write| matches!(write, Write::Settle(of) if of.settlement.delivery.event_seq == damaged);
        if batch.iter().any(hits) {
            if batch.len() == 1 {
                self.tried_alone.notify_one();
            }
            return Box::pin(async { Err(StoreError::Corrupt("a test says so".into())) });
        }
        if !self.in_trouble.load(Ordering::SeqCst) {
            let accepted = batch.iter().filter_map(|write| match write {
                Write::Accept(new) => Some((new.event.tenant_id, 1 + new.deliveries.len())),
                _ => None,
            });
            let accepted: Vec<_> = accepted.collect();
            let writing = self.store.write(batch, now);
            return Box::pin(async move {
                let written = writing.await;
                if !accepted.is_empty() {
                    self.accepted.lock().unwrap().push(accepted);
                    self.committed.notify_one();
                    self.late_answers.subscribe().wait_for(|late| !late).await.unwrap();
                }
                written
            });
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        self.refuses.notify_one();
        Box::pin(async { Err(StoreError::Unavailable("a test says so".into())) })
    }

    fn due(&self, queries: Vec<DueQuery>) -> Reply<'_, Vec<DuePage>> {
        Box::pin(async {
            self.reading.notify_one();
            self.late_reads.subscribe().wait_for(|late| !late).await.unwrap();
            self.store.due(queries).await
        })
    }

    fn overdue(&self, now: Timestamp, limit: usize) -> Reply<'_, Vec<Delivery>> {
        self.store.overdue(now, limit)
    }

    fn next_give_up_at(&self) -> Reply<'_, Option<Timestamp>> {
        self.store.next_give_up_at()
    }

    fn events(&self, seqs: Vec<u64>) -> Reply<'_, Vec<StoredEvent>> {
        self.store.events(seqs)
    }

    fn tenants(&self, after: Option<TenantId>, limit: usize) -> Reply<'_, Vec<Tenant>> {
        self.store.tenants(after, limit)
    }

    fn event_types(&self, after: Option<EventType>, limit: usize) -> Reply<'_, Vec<RegisteredType>> {
        self.store.event_types(after, limit)
    }

    fn destinations(&self, after: Option<DestinationId>, limit: usize) -> Reply<'_, Vec<StoredDestination>> {
        self.store.destinations(after, limit)
    }

    fn event(
        &self,
        reach: Reach,
        tenant_id: Option<TenantId>,
        id: EventId,
    ) -> Reply<'_, Vec<(EventSummary, Arc<Event>)>> {
        self.store.event(reach, tenant_id, id)
    }

    fn event_list(&self, reach: Reach, filter: EventFilter, page: Page) -> Reply<'_, Vec<EventSummary>> {
        self.store.event_list(reach, filter, page)
    }

    fn delivery(&self, reach: Reach, id: DeliveryId) -> Reply<'_, Option<DeliveryHistory>> {
        self.store.delivery(reach, id)
    }

    fn attempt(&self, reach: Reach, id: DeliveryId, number: u32) -> Reply<'_, Option<Attempt>> {
        self.store.attempt(reach, id, number)
    }

    fn deliveries(&self, reach: Reach, filter: DeliveryFilter, page: Page) -> Reply<'_, Vec<DeliverySummary>> {
        self.store.deliveries(reach, filter, page)
    }

    fn usage(&self, reach: Reach, tenant_id: TenantId) -> Reply<'_, Usage> {
        self.store.usage(reach, tenant_id)
    }

    fn backlogs(&self, reach: Reach, ids: Vec<DestinationId>) -> Reply<'_, Vec<Backlog>> {
        self.store.backlogs(reach, ids)
    }

    fn activity(&self, reach: Reach, query: ActivityQuery) -> Reply<'_, Vec<Activity>> {
        self.store.activity(reach, query)
    }

    fn api_keys(&self, reach: Reach, after: Option<KeyId>, limit: usize) -> Reply<'_, Vec<ApiKey>> {
        self.store.api_keys(reach, after, limit)
    }

    fn portal_sessions(&self, reach: Reach, after: Option<SessionId>, limit: usize) -> Reply<'_, Vec<PortalSession>> {
        self.store.portal_sessions(reach, after, limit)
    }

    fn audit(&self, reach: Reach, filter: AuditFilter, page: Page) -> Reply<'_, Vec<(u64, AuditEntry)>> {
        self.store.audit(reach, filter, page)
    }

    fn clock(&self) -> Reply<'_, KeptClock> {
        self.store.clock()
    }

    fn purge(&self, ages: Ages, limit: usize) -> Reply<'_, Purged> {
        self.store.purge(ages, limit)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_hears_of_the_trouble_and_may_come_again() {
    let mut receiver = Receiver::start(|_| 200).await;
    let directory = tempfile::tempdir().unwrap();
    let store = Troubled::open(directory.path());
    let engine = Engine::start_over(Arc::clone(&store) as Arc<dyn Store>, || false).await;
    engine.add(destination(1, &receiver.url("/"), &["*"])).await;
    store.trouble(true);
    let refused = engine.try_accept(event(1, "a.b")).await;
    assert!(matches!(refused, Err(EngineFault::Store(_))), "{refused:?}");
    store.trouble(false);
    assert!(!engine.accept(event(1, "a.b")).await.unwrap().duplicate, "nothing of it was kept");
    receiver.next().await;
    engine.run.drain().await;
    assert!(receiver.is_quiet());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_happened_is_kept_until_it_is_written() {
    let mut receiver = Receiver::start(|_| 200).await;
    let directory = tempfile::tempdir().unwrap();
    let store = Troubled::open(directory.path());
    let in_trouble = Arc::clone(&store);
    // The store gets into trouble between the request and its settlement.
    let engine = Engine::start_over(Arc::clone(&store) as Arc<dyn Store>, move || {
        in_trouble.trouble(true);
        false
    })
    .await;
    engine.add(destination(1, &receiver.url("/"), &["*"])).await;
    engine.accept(event(1, "a.b")).await.unwrap();
    receiver.next().await;
    store.refused(2).await;
    store.trouble(false);
    engine.run.drain().await;
    let listed = engine
        .store
        .deliveries(Reach::All, DeliveryFilter::default(), Page { before_seq: None, limit: 10 })
        .await
        .unwrap();
    assert_eq!(listed[0].status, DeliveryStatus::Delivered);
    assert!(receiver.is_quiet(), "it was not sent again");
}

/// One settlement that can never be written must not keep all others from the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_the_damaged_database_cannot_take_is_given_up_alone() {
    let mut receiver = Receiver::start(|_| 200).await;
    let directory = tempfile::tempdir().unwrap();
    let store = Troubled::open(directory.path());
    store.damaged_event.store(3, Ordering::SeqCst);
    let engine = Engine::start_over(Arc::clone(&store) as Arc<dyn Store>, || false).await;
    engine.add(destination(1, &receiver.url("/"), &["*"])).await;
    engine.desk.accept(Reach::All, (1..=5).map(|n| event(n, "a.b").into()).collect()).await.unwrap();
    for _ in 1..=5 {
        receiver.next().await;
    }
    // Until then, a producer whose event is in the same batch is told to come again.
    store.tried_alone.notified().await;
    engine.accept(event(6, "a.b")).await.expect("producers are not refused because of it");
    receiver.next().await;
    engine.run.drain().await;
    let listed = engine.store.deliveries(Reach::All, DeliveryFilter::default(), Page { before_seq: None, limit: 10 });
    let listed = listed.await.unwrap();
    let unsettled: Vec<u64> = listed
        .iter()
        .filter(|line| line.status != DeliveryStatus::Delivered)
        .map(|line| line.delivery.event_seq)
        .collect();
    assert_eq!(unsettled, [3], "it is sent again after the next start");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_are_told_to_come_back_when_too_many_bytes_wait() {
    let directory = tempfile::tempdir().unwrap();
    let store = Troubled::open(directory.path());
    let limits = WriterLimits { bytes_max: 10_000, ..WriterLimits::default() };
    let (writer, task) = Writer::start_with(Arc::clone(&store) as Arc<dyn Store>, Clock::start(), limits);
    let accept = |n: usize, bytes: usize| {
        let event = Event { payload: vec![0; bytes].into(), ..event(n, "a.b") };
        vec![Write::Accept(Box::new(NewEvent { event, key: None, deliveries: Vec::new() }))]
    };
    writer.write(accept(1, 20_000)).await.expect("whoever is alone may be as large as it likes");
    store.trouble(true);
    let waits = writer.write_for_certain(accept(2, 8_000)).await;
    let refused = writer.write(accept(3, 2_000)).await;
    assert!(matches!(refused, Err(WriteFault::Busy)), "{refused:?}");
    let headers = vec![("x".to_owned(), "y".repeat(2_000))];
    let wordy = NewEvent { event: Event { headers, ..event(5, "a.b") }, key: None, deliveries: Vec::new() };
    let refused = writer.write(vec![Write::Accept(Box::new(wordy))]).await;
    assert!(matches!(refused, Err(WriteFault::Busy)), "headers count as well: {refused:?}");
    let small = writer.write(accept(4, 100)).await;
    assert!(matches!(small, Err(WriteFault::Store(_))), "there is room, but the store is in trouble: {small:?}");
    store.trouble(false);
    waits.written().await.unwrap();
    writer.write(accept(3, 2_000)).await.expect("there is room again");
    assert_eq!(writer.commits().writes.load(Ordering::Relaxed), 3);
    drop(writer);
    task.await.unwrap();
}

/// A read sees what has just been committed before anybody has told of it. That must not make two deliveries of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_overtakes_the_news_of_a_write_sends_nothing_twice() {
    let mut receiver = Receiver::start(|_| 200).await;
    let directory = tempfile::tempdir().unwrap();
    let store = Troubled::open(directory.path());
    let engine = Arc::new(Engine::start_over(Arc::clone(&store) as Arc<dyn Store>, || false).await);
    store.late_reads.send_replace(true);
    engine.add(destination(1, &receiver.url("/"), &["*"])).await;
    store.reading.notified().await;
    store.late_answers.send_replace(true);
    store.committed.notified().now_or_never();
    let accepting = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.accept(event(1, "a.b")).await }
    });
    store.committed.notified().await;
    store.late_reads.send_replace(false);
    // Whoever tells of the read too early has sent it by the end of this; otherwise it goes once the write is told of.
    let early = tokio::time::timeout(Duration::from_millis(500), receiver.next()).await;
    while early.is_ok() && engine.run.in_flight().await.unwrap() > 0 {
        tokio::task::yield_now().await;
    }
    store.late_answers.send_replace(false);
    accepting.await.unwrap().unwrap();
    if early.is_err() {
        receiver.next().await;
    }
    engine.accept(event(2, "a.b")).await.unwrap();
    let next = receiver.next().await;
    assert_eq!(next.headers["webhook-id"], event(2, "a.b").id.as_str(), "the first one came twice");
    engine.run.drain().await;
    assert!(receiver.is_quiet());
}

/// An engine with a tenant whose events go to a hundred destinations, none of which has agreed to be sent to yet.
async fn wide(directory: &std::path::Path, receiver: &Receiver) -> (Arc<Troubled>, Engine) {
    let store = Troubled::open(directory);
    let engine = Engine::start_over(Arc::clone(&store) as Arc<dyn Store>, || false).await;
    for id in 1..=100 {
        let mut destination = destination(id, &receiver.url("/"), &["*"]);
        destination.settings.verification = Verification::CloudeventsOptions;
        engine.add(destination).await;
    }
    store.accepted.lock().unwrap().clear();
    (store, engine)
}

/// Has the next events wait for their answer, and returns once they are on disk.
async fn answers_late(store: &Troubled, writing: impl Future + Unpin) {
    store.late_answers.send_replace(true);
    store.committed.notified().now_or_never();
    tokio::select! {
        _ = writing => panic!("it was not late"),
        () = store.committed.notified() => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_many_deliveries_to_write_leaves_room_for_the_others() {
    const OTHER: TenantId = TenantId(2);
    let (receiver, directory) = (Receiver::start(|_| 403).await, tempfile::tempdir().unwrap());
    let (store, engine) = wide(directory.path(), &receiver).await;
    let of_other = |n: usize| Event { tenant_id: OTHER, ..event(n, "a.b") };

    // One request with 200 events, and then 200 requests with one.
    let batch = engine.desk.accept(Reach::All, (1..=200).map(|n| event(n, "a.b").into()).collect());
    let singles = join_all((201..=400).map(|n| engine.accept(event(n, "a.b"))));
    let mut wide: [Pin<Box<dyn Future<Output = usize> + Send + '_>>; 2] = [
        Box::pin(batch.map(|accepted| accepted.unwrap().iter().flatten().count())),
        Box::pin(singles.map(|accepted| accepted.iter().flatten().count())),
    ];
    for (wide, n) in wide.iter_mut().zip([1_000, 1_001]) {
        answers_late(&store, wide.as_mut()).await;
        // In line behind all that the other one has there.
        let mut other = Box::pin(engine.accept(of_other(n)));
        assert!(other.as_mut().now_or_never().is_none());
        store.late_answers.send_replace(false);
        let (accepted, other) = tokio::join!(wide, other);
        assert!(accepted == 200 && other.is_ok());

        let batches = std::mem::take(&mut *store.accepted.lock().unwrap());
        let rows = |batch: &Vec<(TenantId, usize)>| batch.iter().map(|(_, rows)| rows).sum::<usize>();
        let most = batches.iter().map(rows).max().unwrap();
        assert!(most <= 2 * BATCH_ROWS_MAX, "a transaction of {most} rows holds up everybody");
        let before: usize = batches.iter().take_while(|batch| batch.iter().all(|(of, _)| *of != OTHER)).map(rows).sum();
        assert!(before <= ROWS_PER_TENANT_MAX as usize, "{before} of {} rows came first", 200 * 101);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_of_a_batch_is_acknowledged_although_the_rest_was_not() {
    let (receiver, directory) = (Receiver::start(|_| 403).await, tempfile::tempdir().unwrap());
    let (store, engine) = wide(directory.path(), &receiver).await;
    let offers = |n: usize| (1..=n).map(|n| event(n, "a.b").into()).collect();
    let mut batch = engine.desk.accept(Reach::All, offers(200));
    answers_late(&store, batch.as_mut()).await;
    store.trouble(true);
    store.late_answers.send_replace(false);
    let answers = batch.await.unwrap();
    let n = answers.iter().take_while(|answer| answer.is_ok()).count();
    assert!(
        (1..200).contains(&n) && answers[n..].iter().all(|answer| *answer == Err(Refusal::NotWritten)),
        "{answers:?}"
    );
    store.trouble(false);
    let again = engine.desk.accept(Reach::All, offers(200)).await.unwrap();
    let known: Vec<bool> = again.into_iter().map(|answer| answer.unwrap().duplicate).collect();
    assert_eq!(known, (0..200).map(|at| at < n).collect::<Vec<_>>());
}
