//! Computations that would hold a runtime thread for too long: large payloads, many filters, large schemas.
//!
//! They run on threads of their own, a few at once. A tenant has one turn at a time, so its events wait for each other and not for those of
//! other tenants.

use std::panic;
use std::sync::Arc;
use std::thread;

use doorstep_core::id::TenantId;
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::tenant_queues::TenantQueues;

/// Units of work ([`doorstep_core::filter::work`]) that a runtime thread does at once, between two yields: less than a millisecond.
pub const INLINE_UNITS_MAX: u64 = 256 * 1024;
/// At least so many computations run at once; on larger machines, half as many as it has cores.
const AT_ONCE_MIN: usize = 2;

/// The process is shutting down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it is shutting down")]
pub struct Stopped;

#[derive(Debug)]
pub struct ComputePool {
    at_once: Arc<Semaphore>,
    tenants: TenantQueues,
}

impl Default for ComputePool {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self { at_once: Arc::new(Semaphore::new(AT_ONCE_MIN.max(cores / 2))), tenants: TenantQueues::new(1) }
    }
}

impl ComputePool {
    /// Does the work for a tenant, or for the operator, when it is its turn. Work that has begun is finished even if nobody waits for it any more, and
    /// keeps its turn until then.
    pub async fn run<T: Send + 'static>(
        &self,
        of: Option<TenantId>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let turn = self.tenants.take(of, 1).await;
        let slot = Arc::clone(&self.at_once).acquire_owned().await.map_err(|_| Stopped)?;
        let done = tokio::task::spawn_blocking(move || {
            let _held = (turn, slot);
            work()
        });
        match done.await {
            Ok(done) => Ok(done),
            Err(fault) => match fault.try_into_panic() {
                Ok(panic) => panic::resume_unwind(panic),
                Err(_cancelled) => Err(Stopped),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;

    /// Work that says when it has begun, and ends when it is told to.
    fn held() -> (impl FnOnce() + Send + 'static, oneshot::Receiver<()>, mpsc::Sender<()>) {
        let ((began, has_begun), (end, ended)) = (oneshot::channel(), mpsc::channel());
        let work = move || {
            let _ = began.send(());
            let _ = ended.recv();
        };
        (work, has_begun, end)
    }

    #[tokio::test]
    async fn a_tenant_has_one_turn_at_a_time_and_another_tenant_does_not_wait_for_it() {
        let pool = Arc::new(ComputePool::default());
        let run = |of: u128, work: Box<dyn FnOnce() + Send>| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.run(Some(TenantId(of)), work).await })
        };
        let (work, begun, end) = held();
        let first = run(1, Box::new(work));
        begun.await.unwrap();
        let (work, mut second_begun, second_end) = held();
        let second = run(1, Box::new(work));
        assert_eq!(pool.run(Some(TenantId(2)), || 7).await, Ok(7), "there is a second slot");
        assert!(second_begun.try_recv().is_err(), "the first one of its tenant is not done");
        end.send(()).unwrap();
        first.await.unwrap().unwrap();
        second_begun.await.unwrap();
        second_end.send(()).unwrap();
        second.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_keeps_its_turn_until_it_is_done() {
        let pool = Arc::new(ComputePool::default());
        let (work, begun, end) = held();
        let asked = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move { pool.run(None, work).await }
        });
        begun.await.unwrap();
        asked.abort();
        assert!(asked.await.unwrap_err().is_cancelled());
        let free = pool.at_once.available_permits();
        end.send(()).unwrap();
        pool.run(None, || ()).await.unwrap();
        assert!(free < AT_ONCE_MIN.max(thread::available_parallelism().map_or(1, usize::from) / 2));
    }
}
