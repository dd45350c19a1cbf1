//! Places that each tenant has so many of. Who finds them taken waits for others of its own tenant, in the order in which they came, and for nobody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use doorstep_core::id::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Once so many tenants have a queue, those that are empty are removed.
const QUEUES_SWEPT_FROM: usize = 256;

#[derive(Debug)]
pub(crate) struct TenantQueues {
    /// Of each tenant.
    places: u32,
    queues: Mutex<HashMap<Option<TenantId>, Weak<Semaphore>>>,
}

/// Places that are taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Places {
    _permit: Option<OwnedSemaphorePermit>,
    /// The queue stays in the map for as long as somebody has or waits for a place.
    _queue: Arc<Semaphore>,
}

impl TenantQueues {
    pub(crate) fn new(places: u32) -> Self {
        Self { places, queues: Mutex::default() }
    }

    /// Takes so many places of a tenant, or of the operator; all that there are if it wants more.
    pub(crate) async fn take(&self, of: Option<TenantId>, n: usize) -> Places {
        let queue = self.queue(of);
        let n = u32::try_from(n).unwrap_or(u32::MAX).min(self.places);
        // It is never closed, so there is always a permit in the end.
        Places { _permit: Arc::clone(&queue).acquire_many_owned(n).await.ok(), _queue: queue }
    }

    fn queue(&self, of: Option<TenantId>) -> Arc<Semaphore> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.len() >= QUEUES_SWEPT_FROM {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = queues.entry(of).or_default();
        queue.upgrade().unwrap_or_else(|| {
            let fresh = Arc::new(Semaphore::new(self.places as usize));
            *queue = Arc::downgrade(&fresh);
            fresh
        })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    const ONE: Option<TenantId> = Some(TenantId(1));

    #[tokio::test]
    async fn who_wants_more_than_there_is_waits_for_its_own_tenant_alone() {
        let queues = TenantQueues::new(10);
        let first = queues.take(ONE, 7).await;
        let mut large = pin!(queues.take(ONE, 1_000));
        assert!(large.as_mut().now_or_never().is_none(), "it has all ten");
        let mut small = pin!(queues.take(ONE, 1));
        assert!(small.as_mut().now_or_never().is_none(), "in the order in which they came");
        assert!(queues.take(Some(TenantId(2)), 10).now_or_never().is_some());
        drop(first);
        let large = large.await;
        assert!(small.as_mut().now_or_never().is_none());
        drop(large);
        small.await;
    }

    #[tokio::test]
    async fn queues_of_tenants_that_have_none_waiting_are_removed() {
        let queues = TenantQueues::new(1);
        let kept = queues.take(Some(TenantId(0)), 1).await;
        for n in 1..10_000 {
            drop(queues.take(Some(TenantId(n)), 1).await);
        }
        let mut left = queues.queues.lock().unwrap();
        assert!(left.len() <= QUEUES_SWEPT_FROM, "{}", left.len());
        assert!(left.remove(&Some(TenantId(0))).unwrap().upgrade().is_some());
        drop(kept);
    }
}
