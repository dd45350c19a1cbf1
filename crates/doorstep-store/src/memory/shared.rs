//! The same behind the trait that all stores share.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use doorstep_core::api_key::ApiKey;
use doorstep_core::attempt::Attempt;
use doorstep_core::audit::AuditEntry;
use doorstep_core::clock::KeptClock;
use doorstep_core::delivery::Delivery;
use doorstep_core::destination::Tenant;
use doorstep_core::event::Event;
use doorstep_core::event_type::RegisteredType;
use doorstep_core::id::{DeliveryId, DestinationId, EventId, KeyId, SessionId, TenantId};
use doorstep_core::portal::PortalSession;
use doorstep_core::quota::Usage;
use doorstep_core::reach::Reach;
use doorstep_core::route::EventType;
use doorstep_core::store::{
    Activity, ActivityQuery, Ages, AuditFilter, Backlog, DeliveryFilter, DeliveryHistory, DeliverySummary, DuePage,
    DueQuery, EventFilter, EventSummary, Page, Purged, Reply, Store, StoredDestination, StoredEvent, Write, Written,
};
use doorstep_core::time::Timestamp;

use super::Memory;

/// Every answer is there at once, and nothing fails.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<Memory>);

impl MemoryStore {
    /// Makes an event's payload unreadable, as a damaged disk would.
    pub fn damage(&self, event_seq: u64) {
        self.lock().damage(event_seq);
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer<'a, T: Send + 'a>(value: T) -> Reply<'a, T> {
    Box::pin(ready(Ok(value)))
}

impl Store for MemoryStore {
    fn write(&self, batch: Vec<Write>, now: Timestamp) -> Reply<'_, Vec<Written>> {
        let mut memory = self.lock();
        answer(batch.into_iter().map(|write| memory.write(write, now)).collect())
    }

    fn due(&self, queries: Vec<DueQuery>) -> Reply<'_, Vec<DuePage>> {
        let memory = self.lock();
        answer(queries.iter().map(|query| memory.due(query)).collect())
    }

    fn overdue(&self, now: Timestamp, limit: usize) -> Reply<'_, Vec<Delivery>> {
        answer(self.lock().overdue(now, limit))
    }

    fn next_give_up_at(&self) -> Reply<'_, Option<Timestamp>> {
        answer(self.lock().next_give_up_at())
    }

    fn events(&self, seqs: Vec<u64>) -> Reply<'_, Vec<StoredEvent>> {
        answer(self.lock().events(&seqs))
    }

    fn tenants(&self, after: Option<TenantId>, limit: usize) -> Reply<'_, Vec<Tenant>> {
        answer(self.lock().tenants(after, limit))
    }

    fn destinations(&self, after: Option<DestinationId>, limit: usize) -> Reply<'_, Vec<StoredDestination>> {
        answer(self.lock().destinations(after, limit))
    }

    fn event_types(&self, after: Option<EventType>, limit: usize) -> Reply<'_, Vec<RegisteredType>> {
        answer(self.lock().event_types(after.as_ref(), limit))
    }

    fn event(
        &self,
        reach: Reach,
        tenant_id: Option<TenantId>,
        id: EventId,
    ) -> Reply<'_, Vec<(EventSummary, Arc<Event>)>> {
        answer(self.lock().event(reach, tenant_id, &id))
    }

    fn event_list(&self, reach: Reach, filter: EventFilter, page: Page) -> Reply<'_, Vec<EventSummary>> {
        answer(self.lock().event_list(reach, filter, page))
    }

    fn delivery(&self, reach: Reach, id: DeliveryId) -> Reply<'_, Option<DeliveryHistory>> {
        answer(self.lock().delivery(reach, id))
    }

    fn attempt(&self, reach: Reach, id: DeliveryId, number: u32) -> Reply<'_, Option<Attempt>> {
        answer(self.lock().attempt(reach, id, number))
    }

    fn deliveries(&self, reach: Reach, filter: DeliveryFilter, page: Page) -> Reply<'_, Vec<DeliverySummary>> {
        answer(self.lock().deliveries(reach, filter, page))
    }

    fn usage(&self, reach: Reach, tenant_id: TenantId) -> Reply<'_, Usage> {
        answer(self.lock().usage(reach, tenant_id))
    }

    fn backlogs(&self, reach: Reach, ids: Vec<DestinationId>) -> Reply<'_, Vec<Backlog>> {
        let memory = self.lock();
        answer(ids.into_iter().map(|id| memory.seen_backlog(reach, id)).collect())
    }

    fn activity(&self, reach: Reach, query: ActivityQuery) -> Reply<'_, Vec<Activity>> {
        answer(self.lock().activity(reach, &query))
    }

    fn api_keys(&self, reach: Reach, after: Option<KeyId>, limit: usize) -> Reply<'_, Vec<ApiKey>> {
        answer(self.lock().access.keys(reach, after, limit))
    }

    fn portal_sessions(&self, reach: Reach, after: Option<SessionId>, limit: usize) -> Reply<'_, Vec<PortalSession>> {
        answer(self.lock().access.sessions(reach, after, limit))
    }

    fn audit(&self, reach: Reach, filter: AuditFilter, page: Page) -> Reply<'_, Vec<(u64, AuditEntry)>> {
        answer(self.lock().access.audit(reach, filter, page))
    }

    fn clock(&self) -> Reply<'_, KeptClock> {
        answer(self.lock().kept_clock())
    }

    fn purge(&self, ages: Ages, limit: usize) -> Reply<'_, Purged> {
        answer(self.lock().purge(ages, limit))
    }
}
