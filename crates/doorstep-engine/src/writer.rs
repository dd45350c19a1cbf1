//! The group-commit writer: whatever gathers while one commit runs goes into the next.
//!
//! Load raises the size of a batch, not the wait of a caller. A caller is answered once its writes are on disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use doorstep_core::store::{Store, StoreError, Write, Written};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;

/// Jobs that may wait for the writer. Beyond that, producers are told to come back later.
pub const JOBS_MAX: usize = 8_192;
/// Writes in one transaction.
pub const BATCH_MAX: usize = 1_024;
/// A store in trouble is tried again after this long, then twice that each time, up to the maximum.
const RETRY_AFTER: Duration = Duration::from_millis(50);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

/// Hands jobs to the writer.
#[derive(Clone, Debug)]
pub struct Writer {
    jobs: mpsc::Sender<Job>,
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
    /// Whether the store's trouble is the caller's: otherwise the job is kept until it is written.
    may_fail: bool,
    done: oneshot::Sender<Result<Vec<Written>, WriteFault>>,
}

impl Writer {
    /// Starts the writer's task. It ends when every `Writer` is gone and all jobs are written.
    pub fn start(store: Arc<dyn Store>, clock: Clock) -> (Self, tokio::task::JoinHandle<()>) {
        let (jobs, queue) = mpsc::channel(JOBS_MAX);
        let task = tokio::spawn(Loop { store, clock, queue, kept: VecDeque::new() }.run());
        (Self { jobs }, task)
    }

    /// Writes, or says why not: nothing was written then. For what a caller can ask again.
    pub async fn write(&self, writes: Vec<Write>) -> Result<Vec<Written>, WriteFault> {
        let (done, answer) = oneshot::channel();
        match self.jobs.try_send(Job { writes, may_fail: true, done }) {
            Ok(()) => answer.await.unwrap_or(Err(WriteFault::Stopped)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(WriteFault::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(WriteFault::Stopped),
        }
    }

    /// Writes for certain: through the store's trouble, however long it takes. For what has already happened.
    /// The job takes its place in line when this is called, not when the answer is awaited.
    pub async fn write_for_certain(&self, writes: Vec<Write>) -> Pending {
        let (done, answer) = oneshot::channel();
        let sent = self.jobs.send(Job { writes, may_fail: false, done }).await;
        Pending { answer: sent.is_ok().then_some(answer) }
    }
}

/// A job that has its place in line.
#[derive(Debug)]
pub struct Pending {
    answer: Option<oneshot::Receiver<Result<Vec<Written>, WriteFault>>>,
}

impl Pending {
    /// Waits until it is on disk.
    pub async fn written(self) -> Result<Vec<Written>, WriteFault> {
        match self.answer {
            Some(answer) => answer.await.unwrap_or(Err(WriteFault::Stopped)),
            None => Err(WriteFault::Stopped),
        }
    }
}

struct Loop {
    store: Arc<dyn Store>,
    clock: Clock,
    queue: mpsc::Receiver<Job>,
    /// What must be written, from a commit that failed.
    kept: VecDeque<Job>,
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
        let mut n_writes: usize = batch.iter().map(|job| job.writes.len()).sum();
        while n_writes < BATCH_MAX
            && let Ok(job) = self.queue.try_recv()
        {
            n_writes += job.writes.len();
            batch.push(job);
        }
        Some(batch)
    }

    /// Whether the store took it.
    async fn commit(&mut self, batch: Vec<Job>) -> bool {
        let writes: Vec<Write> = batch.iter().flat_map(|job| job.writes.iter().cloned()).collect();
        match self.store.write(writes, self.clock.now()).await {
            Ok(written) => {
                answer(batch, written);
                true
            }
            Err(fault) => {
                self.keep_or_fail(batch, Arc::new(fault));
                false
            }
        }
    }

    fn keep_or_fail(&mut self, batch: Vec<Job>, fault: Arc<StoreError>) {
        tracing::error!(error = %fault, jobs = batch.len(), "the store did not take a batch; what must be written is kept");
        for job in batch {
            if job.may_fail {
                // A caller that has gone away does not need the answer.
                let _ = job.done.send(Err(WriteFault::Store(Arc::clone(&fault))));
            } else {
                self.kept.push_back(job);
            }
        }
    }
}

fn answer(batch: Vec<Job>, written: Vec<Written>) {
    let mut written = written.into_iter();
    for job in batch {
        let part = written.by_ref().take(job.writes.len()).collect();
        // A caller that has gone away does not need the answer.
        let _ = job.done.send(Ok(part));
    }
}
