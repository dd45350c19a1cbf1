//! The group-commit writer: whatever gathers while one commit runs goes into the next.
//!
//! Load raises the size of a batch, not the wait of a caller. A caller is answered once its writes are on disk.
//!
//! A batch is not left open for those that come a little later: what gathers during a commit is enough. (Tried in the
//! setting of `benches/throughput.rs`, 2 ms after a batch of 16 jobs against none, the best of three runs in turn: 4.0
//! against 8.0 thousand events a second with 16 producers, 11.0 against 15.3 with 64, 24.4 against 23.9 with 256, 27.3
//! against 29.5 with 1024. Producers who do not wait for their answers were not tried.)

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use doorstep_core::attempt::Attempt;
use doorstep_core::event::NewDelivery;
use doorstep_core::id::TenantId;
use doorstep_core::store::{Refusal, Store, StoreError, Write, Written};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::telling::Tellings;
use crate::tenant_queues::TenantQueues;

pub use crate::telling::Telling;

/// Writes in one transaction.
pub const BATCH_MAX: usize = 1_024;
/// Events and deliveries in one transaction; one more job is taken as long as there are fewer.
pub const BATCH_ROWS_MAX: usize = 4_096;
/// Events and deliveries of one tenant that wait to be written. What waits is written in the order in which it came, so this is what another tenant's event waits for.
pub const ROWS_PER_TENANT_MAX: u32 = 8_192;
/// Requests with no more rows are not counted among these: the number of connections bounds them, and nearly all events are of this kind.
pub const UNCOUNTED_ROWS_MAX: usize = 16;
/// What a write takes in memory beside its payload, about.
const WRITE_BYTES: usize = 512;
/// A store in trouble is tried again after this long, then twice that each time, up to the maximum.
const RETRY_AFTER: Duration = Duration::from_millis(50);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

/// Bounds of what waits for the writer.
#[derive(Clone, Copy, Debug)]
pub struct WriterLimits {
    /// Beyond so many jobs, producers are told to come back later.
    pub jobs_max: usize,
    /// So are they beyond so many bytes. A job that finds nobody waiting may be larger.
    pub bytes_max: usize,
}

impl Default for WriterLimits {
    fn default() -> Self {
        Self { jobs_max: 8_192, bytes_max: 64 * 1024 * 1024 }
    }
}

/// Hands jobs to the writer.
#[derive(Clone, Debug)]
pub struct Writer {
    jobs: mpsc::Sender<Job>,
    limits: WriterLimits,
    waiting: Arc<Waiting>,
    commits: Arc<Commits>,
    tellings: Tellings,
    /// Rows that each tenant has waiting.
    rows: Arc<TenantQueues>,
}

/// What was written, in the order of the writes. Keep it until the scheduler has been told what follows: until then, no read of
/// the store is told that may have seen it.
#[derive(Debug)]
pub struct Receipt {
    pub written: Vec<Written>,
    pub untold: Option<Telling>,
}

#[derive(Debug, Error)]
pub enum WriteFault {
    /// Too much is waiting already.
    #[error("too much is waiting to be written: try again in a moment")]
    Busy,
    #[error(transparent)]
    Store(Arc<StoreError>),
    #[error("the writer has stopped")]
    Stopped,
}

#[derive(Debug)]
struct Job {
    writes: Vec<Write>,
    n_writes: usize,
    n_rows: usize,
    /// Whether the store's trouble is the caller's: otherwise the job is kept until it is written.
    may_fail: bool,
    done: oneshot::Sender<Result<Vec<Written>, WriteFault>>,
    load: Load,
}

impl Job {
    /// What is kept until it is written has to be there for another try.
    fn hand_over(&mut self) -> Vec<Write> {
        if self.may_fail { std::mem::take(&mut self.writes) } else { self.writes.clone() }
    }

    fn answer(self, answer: Result<Vec<Written>, WriteFault>) {
        // Whoever hears the answer finds the room that this job took.
        drop(self.load);
        // A caller that has gone away does not need it.
        let _ = self.done.send(answer);
    }
}

/// The bytes of all jobs that are not answered yet.
#[derive(Debug, Default)]
struct Waiting(AtomicUsize);

/// A job's part of that.
#[derive(Debug)]
struct Load {
    bytes: usize,
    waiting: Arc<Waiting>,
}

impl Load {
    fn put(writes: &[Write], waiting: &Arc<Waiting>) -> Self {
        let bytes = writes.iter().map(bytes).sum();
        waiting.0.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, waiting: Arc::clone(waiting) }
    }

    fn is_too_much(&self, bytes_max: usize) -> bool {
        let all = self.waiting.0.load(Ordering::Relaxed);
        all > bytes_max && all > self.bytes
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.waiting.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn bytes(write: &Write) -> usize {
    let payload = match write {
        Write::Accept(new) => new.event.content_bytes() + new.deliveries.len() * size_of::<NewDelivery>(),
        Write::Settle(settled) => settled.attempt.as_ref().map_or(0, Attempt::content_bytes),
        Write::ByHand(by_hand) => return bytes(&by_hand.change),
        Write::SaveGate { .. }
        | Write::Consented { .. }
        | Write::Revive { .. }
        | Write::Abandon { .. }
        | Write::ErasePayloads { .. }
        | Write::PutTenant(_)
        | Write::PutDestination(_)
        | Write::AddDestination { .. }
        | Write::RemoveDestination { .. }
        | Write::PutApiKey(_)
        | Write::ChangeApiKey(_)
        | Write::RevokeApiKey { .. }
        | Write::UsedApiKeys(_)
        | Write::PutPortalSession(_)
        | Write::OpenPortalSession { .. }
        | Write::EndPortalSession { .. }
        | Write::EndPortalSessions { .. }
        | Write::Audit(_)
        | Write::KeepClock(_)
        | Write::RemoveEventType { .. } => 0,
        Write::PutEventType(registered) => registered.schema_bytes(),
    };
    WRITE_BYTES + payload
}

/// What a write adds to the tables that grow: one event may have a thousand deliveries.
fn rows(write: &Write) -> usize {
    if let Write::Accept(new) = write { 1 + new.deliveries.len() } else { 1 }
}

/// What was committed since the start (M2).
#[derive(Debug, Default)]
pub struct Commits {
    pub batches: AtomicU64,
    pub writes: AtomicU64,
    /// In microseconds, together.
    pub took: AtomicU64,
    /// Batches that met damage.
    pub damaged: AtomicU64,
}

impl Commits {
    fn count(&self, n_writes: u64, took: Duration) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(n_writes, Ordering::Relaxed);
        self.took.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Writer {
    /// Starts the writer's task. It ends when every `Writer` is gone and all jobs are written.
    pub fn start(store: Arc<dyn Store>, clock: Clock) -> (Self, tokio::task::JoinHandle<()>) {
        Self::start_with(store, clock, WriterLimits::default())
    }

    pub fn start_with(
        store: Arc<dyn Store>,
        clock: Clock,
        limits: WriterLimits,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (jobs, queue) = mpsc::channel(limits.jobs_max);
        let commits = Arc::new(Commits::default());
        let task = Loop { store, clock, queue, kept: VecDeque::new(), commits: Arc::clone(&commits) };
        let rows = Arc::new(TenantQueues::new(ROWS_PER_TENANT_MAX));
        let writer = Self { jobs, limits, waiting: Arc::default(), commits, tellings: Tellings::default(), rows };
        (writer, tokio::spawn(task.run()))
    }

    pub fn commits(&self) -> &Commits {
        &self.commits
    }

    /// Writes, or says why not: nothing was written then. For what a caller can ask again.
    pub async fn write(&self, writes: Vec<Write>) -> Result<Receipt, WriteFault> {
        let (done, answer) = oneshot::channel();
        let job = self.job(writes, true, done);
        if job.load.is_too_much(self.limits.bytes_max) {
            return Err(WriteFault::Busy);
        }
        let (untold, sent) = self.in_line(job, |job| self.jobs.try_send(job));
        match sent {
            Ok(()) => {
                let written = answer.await.unwrap_or(Err(WriteFault::Stopped))?;
                Ok(Receipt { written, untold })
            }
            Err(mpsc::error::TrySendError::Full(_)) => Err(WriteFault::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(WriteFault::Stopped),
        }
    }

    /// The same for events of one tenant, or of several (`None`), once no more of its rows wait than may.
    pub async fn write_in_turn(&self, of: Option<TenantId>, writes: Vec<Write>) -> Result<Receipt, WriteFault> {
        let n = writes.iter().map(rows).sum();
        let _places = if n > UNCOUNTED_ROWS_MAX { Some(self.rows.take(of, n).await) } else { None };
        self.write(writes).await
    }

    /// Writes for certain: through the store's trouble, however long it takes. For what has already happened.
    /// The job takes its place in line when this is called, not when the answer is awaited.
    pub async fn write_for_certain(&self, writes: Vec<Write>) -> Pending {
        let (done, answer) = oneshot::channel();
        let job = self.job(writes, false, done);
        let Ok(room) = self.jobs.reserve().await else { return Pending { answer: None, untold: None } };
        let (untold, ()) = self.in_line(job, |job| room.send(job));
        Pending { answer: Some(answer), untold }
    }

    /// For whoever writes past this writer.
    pub fn begin_telling(&self) -> Telling {
        self.tellings.begin()
    }

    /// Returns once all that follows from what was written by now has been told.
    pub async fn all_told(&self) {
        self.tellings.all_told().await;
    }

    /// Puts a job in line, and its telling in the same place among the others. A job without writes has nothing to tell.
    fn in_line<T>(&self, job: Job, send: impl FnOnce(Job) -> T) -> (Option<Telling>, T) {
        if job.writes.is_empty() {
            return (None, send(job));
        }
        let (telling, sent) = self.tellings.begin_with(|| send(job));
        (Some(telling), sent)
    }

    fn job(&self, writes: Vec<Write>, may_fail: bool, done: oneshot::Sender<Result<Vec<Written>, WriteFault>>) -> Job {
        let load = Load::put(&writes, &self.waiting);
        Job { n_writes: writes.len(), n_rows: writes.iter().map(rows).sum(), writes, may_fail, done, load }
    }
}

/// A job that has its place in line.
#[derive(Debug)]
pub struct Pending {
    answer: Option<oneshot::Receiver<Result<Vec<Written>, WriteFault>>>,
    untold: Option<Telling>,
}

impl Pending {
    /// Waits until it is on disk.
    pub async fn written(self) -> Result<Receipt, WriteFault> {
        let answer = self.answer.ok_or(WriteFault::Stopped)?;
        let written = answer.await.unwrap_or(Err(WriteFault::Stopped))?;
        Ok(Receipt { written, untold: self.untold })
    }
}

struct Loop {
    store: Arc<dyn Store>,
    clock: Clock,
    queue: mpsc::Receiver<Job>,
    /// What must be written, from a commit that failed.
    kept: VecDeque<Job>,
    commits: Arc<Commits>,
}

impl Loop {
    async fn run(mut self) {
        let mut pause = RETRY_AFTER;
        while let Some(batch) = self.gather().await {
            if self.commit(batch).await {
                pause = RETRY_AFTER;
            } else {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_AFTER_MAX);
            }
        }
    }

    /// Everything that waits, up to the limit; if nothing does, the next that comes.
    async fn gather(&mut self) -> Option<Vec<Job>> {
        let mut batch: Vec<Job> = self.kept.drain(..).collect();
        if batch.is_empty() {
            batch.push(self.queue.recv().await?);
        }
        let mut n_writes: usize = batch.iter().map(|job| job.n_writes).sum();
        let mut n_rows: usize = batch.iter().map(|job| job.n_rows).sum();
        while n_writes < BATCH_MAX
            && n_rows < BATCH_ROWS_MAX
            && let Ok(job) = self.queue.try_recv()
        {
            n_writes += job.n_writes;
            n_rows += job.n_rows;
            batch.push(job);
        }
        Some(batch)
    }

    /// Whether the store took it.
    async fn commit(&mut self, mut batch: Vec<Job>) -> bool {
        let began = Instant::now();
        let writes: Vec<Write> = batch.iter_mut().flat_map(Job::hand_over).collect();
        let n_writes = writes.len() as u64;
        match self.store.write(writes, self.clock.now()).await {
            Ok(written) => {
                self.commits.count(n_writes, began.elapsed());
                answer(batch, written);
                true
            }
            Err(fault) => {
                let is_damaged = matches!(fault, StoreError::Corrupt(_));
                self.keep_or_fail(batch, Arc::new(fault));
                if is_damaged {
                    self.commits.damaged.fetch_add(1, Ordering::Relaxed);
                    self.write_around_damage().await;
                }
                is_damaged
            }
        }
    }

    /// What is stored is damaged where one of these belongs, and that does not pass: all the others are written without it.
    async fn write_around_damage(&mut self) {
        for mut job in std::mem::take(&mut self.kept) {
            let (mut parts, mut written) = (VecDeque::from([job.hand_over()]), Vec::with_capacity(job.n_writes));
            while let Some(mut part) = parts.pop_front() {
                match self.write_one(part.clone()).await {
                    Ok(answers) => written.extend(answers),
                    Err(fault) if part.len() <= 1 => {
                        let source = fault.source().map(ToString::to_string);
                        let what = part.first().map(name);
                        tracing::error!(what, source, "the database is damaged where this belongs: it is not written");
                        written.push(Written::Refused(Refusal::Damaged));
                    }
                    Err(_) => {
                        let rest = part.split_off(part.len() / 2);
                        parts.push_front(rest);
                        parts.push_front(part);
                    }
                }
            }
            job.answer(Ok(written));
        }
    }

    /// Waits for as long as the store is not available. What it fails with is damage.
    async fn write_one(&self, writes: Vec<Write>) -> Result<Vec<Written>, StoreError> {
        let (began, n_writes, mut pause) = (Instant::now(), writes.len() as u64, RETRY_AFTER);
        loop {
            match self.store.write(writes.clone(), self.clock.now()).await {
                Ok(written) => {
                    self.commits.count(n_writes, began.elapsed());
                    return Ok(written);
                }
                Err(fault @ StoreError::Corrupt(_)) => return Err(fault),
                Err(StoreError::Unavailable(_) | StoreError::TookTooLong) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_AFTER_MAX);
                }
            }
        }
    }

    fn keep_or_fail(&mut self, batch: Vec<Job>, fault: Arc<StoreError>) {
        tracing::error!(error = %fault, jobs = batch.len(), "the store did not take a batch; what must be written is kept");
        for job in batch {
            if job.may_fail {
                job.answer(Err(WriteFault::Store(Arc::clone(&fault))));
            } else {
                self.kept.push_back(job);
            }
        }
    }
}

/// For the log, which says nothing of what is in it.
fn name(write: &Write) -> String {
    if let Write::Settle(settled) = write {
        format!("what became of {}", settled.settlement.delivery.id)
    } else if let Write::SaveGate { destination_id, .. } = write {
        format!("the gate of {destination_id}")
    } else {
        "a change".to_owned()
    }
}

fn answer(batch: Vec<Job>, written: Vec<Written>) {
    let mut written = written.into_iter();
    for job in batch {
        let part = written.by_ref().take(job.n_writes).collect();
        job.answer(Ok(part));
    }
}
