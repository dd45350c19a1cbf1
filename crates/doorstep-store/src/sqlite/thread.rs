//! Threads that own connections, and the queue in front of them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use doorstep_core::store::{Reply, StoreError};
use rusqlite::{Connection, Transaction};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use super::fault::{Fault, told};

/// A search looks at the clock after so many of SQLite's steps: about a tenth of a millisecond.
const STEPS_BETWEEN_LOOKS: i32 = 2_000;

type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Threads with one `T` each that take their work from one queue.
pub(super) struct Workers<T> {
    queue: Option<mpsc::Sender<Job<T>>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Error)]
#[error("the store is closed, or failed on the way")]
struct Unanswered;

impl<T: Send + 'static> Workers<T> {
    pub(super) fn start(name: &str, queue_max: usize, owned: Vec<T>) -> std::io::Result<Self> {
        let (queue, jobs) = mpsc::channel::<Job<T>>(queue_max);
        let jobs = Arc::new(Mutex::new(jobs));
        let mut threads = Vec::new();
        for mut owned in owned {
            let jobs = Arc::clone(&jobs);
            let next = move || jobs.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
            let work = move || {
                while let Some(job) = next() {
                    // A mistake of ours must not take the thread along. Its transaction is rolled back on the way out, and
                    // nobody answers.
                    let _ = catch_unwind(AssertUnwindSafe(|| job(&mut owned)));
                }
            };
            threads.push(Builder::new().name(name.to_owned()).spawn(work)?);
        }
        Ok(Self { queue: Some(queue), threads })
    }

    /// Queues the work at once, or as soon as there is room: whoever waits for room is served in order.
    pub(super) fn ask<A, F>(&self, work: F) -> Reply<'_, A>
    where
        A: Send + 'static,
        F: FnOnce(&mut T) -> Result<A, StoreError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job<T> = Box::new(move |owned| {
            // Whoever asked may have gone.
            let _ = answer.send(work(owned));
        });
        let queue = self.queue.clone();
        let unsent = match queue.as_ref().map(|queue| queue.try_send(job)) {
            None | Some(Ok(()) | Err(mpsc::error::TrySendError::Closed(_))) => None,
            Some(Err(mpsc::error::TrySendError::Full(job))) => queue.map(|queue| (queue, job)),
        };
        Box::pin(async move {
            if let Some((queue, job)) = unsent {
                // A queue that is closed drops the job, and with it the way to answer.
                let _ = queue.send(job).await;
            }
            answered.await.unwrap_or_else(|_| Err(StoreError::Unavailable(Box::new(Unanswered))))
        })
    }
}

impl Workers<Connection> {
    /// The same for somebody who searches: it is cut off if it takes longer than this.
    pub(super) fn search<A, F>(&self, takes_max: Duration, work: F) -> Reply<'_, A>
    where
        A: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<A, Fault> + Send + 'static,
    {
        self.ask(move |connection| {
            let until = Instant::now() + takes_max;
            let limited = connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || Instant::now() >= until));
            let found = limited.map_err(Fault::from).and_then(|()| read(connection, work));
            let unlimited = connection.progress_handler(0, None::<fn() -> bool>);
            found.and_then(|found| unlimited.map(|()| found).map_err(Fault::from)).map_err(told)
        })
    }

    /// All that `work` reads is of one moment.
    pub(super) fn read<A, F>(&self, work: F) -> Reply<'_, A>
    where
        A: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<A, Fault> + Send + 'static,
    {
        self.ask(move |connection| read(connection, work).map_err(told))
    }
}

fn read<A>(connection: &mut Connection, work: impl FnOnce(&Transaction<'_>) -> Result<A, Fault>) -> Result<A, Fault> {
    let snapshot = connection.transaction()?;
    let found = work(&snapshot)?;
    snapshot.commit()?;
    Ok(found)
}

impl<T> Drop for Workers<T> {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // Whatever panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl<T> fmt::Debug for Workers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}
