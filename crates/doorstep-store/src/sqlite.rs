//! The store that needs nothing else installed: one directory, one process, SQLite inside.
//!
//! One thread owns the connection that writes; each batch is one transaction, on disk when it is answered. A few threads
//! read, those for the engine apart from those for people, so that nobody's search delays a delivery. The callers are
//! async and never wait in a system call.

mod open;
mod migrate;
mod master;
mod rotate;
mod fault;
mod thread;
mod batch;
mod statements;
mod log;
mod accept;
mod settle;
mod captured;
mod key;
mod by_hand;
mod mandate;
mod access;
mod audit;
mod clock;
mod catalog;
mod event_types;
mod due;
mod list;
mod event_list;
mod stretch;
mod type_match;
mod activity;
mod purge;
mod sweep;
mod usage;
mod row;
mod seal;
mod payload;
mod digest;
mod count_file;
mod quick_check;
mod inspect;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

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

pub use count_file::Loss;
pub use inspect::{CheckResult, Finding, NAMED_MAX, Progress};
pub use open::{DataDir, LOGS_KEPT_MAX, OpenError, SqliteLimits};
pub use quick_check::QuickCheck;
pub use rotate::{ROTATE_AT_ONCE, Rotated};

use batch::Writer;
use thread::Workers;

use crate::seal::Keyring;

/// An open directory. Dropping it waits for what was asked for, and gives the directory up.
#[derive(Debug)]
pub struct SqliteStore {
    // In this order they are dropped: the directory is given up last.
    writer: Workers<Writer>,
    for_engine: Workers<rusqlite::Connection>,
    for_people: Workers<rusqlite::Connection>,
    keys: Arc<Keyring>,
    search_max: Duration,
    state: State,
    _directory: DataDir,
}

/// What was found when a directory was opened.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// What is known to be missing, now or since an earlier start.
    pub loss: Option<Loss>,
    /// The look that was taken, if the last process did not close it in good order.
    pub check: Option<QuickCheck>,
}

impl SqliteStore {
    /// Opens a data directory; makes it, or brings it up to date, where needed.
    pub fn open(directory: &Path, keys: Keyring, limits: &SqliteLimits) -> Result<Self, OpenError> {
        DataDir::take(directory)?.open(keys, limits)
    }

    /// What was found when it was opened.
    pub fn state(&self) -> &State {
        &self.state
    }
}

impl Store for SqliteStore {
    fn write(&self, batch: Vec<Write>, now: Timestamp) -> Reply<'_, Vec<Written>> {
        self.writer.ask(move |writer| writer.write(batch, now))
    }

    fn due(&self, queries: Vec<DueQuery>) -> Reply<'_, Vec<DuePage>> {
        self.for_engine.read(move |snapshot| queries.iter().map(|query| due::due(snapshot, query)).collect())
    }

    fn overdue(&self, now: Timestamp, limit: usize) -> Reply<'_, Vec<Delivery>> {
        self.for_engine.read(move |snapshot| due::overdue(snapshot, now, limit))
    }

    fn next_give_up_at(&self) -> Reply<'_, Option<Timestamp>> {
        self.for_engine.read(due::next_give_up_at)
    }

    fn events(&self, seqs: Vec<u64>) -> Reply<'_, Vec<StoredEvent>> {
        let keys = Arc::clone(&self.keys);
        self.for_engine.read(move |snapshot| accept::events(snapshot, &keys, &seqs))
    }

    fn tenants(&self, after: Option<TenantId>, limit: usize) -> Reply<'_, Vec<Tenant>> {
        self.for_people.search(self.search_max, move |snapshot| catalog::tenants(snapshot, after, limit))
    }

    fn destinations(&self, after: Option<DestinationId>, limit: usize) -> Reply<'_, Vec<StoredDestination>> {
        let keys = Arc::clone(&self.keys);
        self.for_people.search(self.search_max, move |snapshot| catalog::destinations(snapshot, &keys, after, limit))
    }

    fn event_types(&self, after: Option<EventType>, limit: usize) -> Reply<'_, Vec<RegisteredType>> {
        self.for_people
            .search(self.search_max, move |snapshot| event_types::event_types(snapshot, after.as_ref(), limit))
    }

    fn event(
        &self,
        reach: Reach,
        tenant_id: Option<TenantId>,
        id: EventId,
    ) -> Reply<'_, Vec<(EventSummary, Arc<Event>)>> {
        let keys = Arc::clone(&self.keys);
        self.for_people.search(self.search_max, move |snapshot| {
            let Some(within) = reach.narrowed_to(tenant_id) else { return Ok(Vec::new()) };
            accept::event(snapshot, &keys, within.tenant_id(), &id)
        })
    }

    fn event_list(&self, reach: Reach, filter: EventFilter, page: Page) -> Reply<'_, Vec<EventSummary>> {
        self.for_people.search(self.search_max, move |snapshot| {
            let Some(filter) = filter.within(reach) else { return Ok(Vec::new()) };
            event_list::event_list(snapshot, &filter, page)
        })
    }

    fn delivery(&self, reach: Reach, id: DeliveryId) -> Reply<'_, Option<DeliveryHistory>> {
        let keys = Arc::clone(&self.keys);
        self.for_people.search(self.search_max, move |snapshot| {
            Ok(list::delivery(snapshot, &keys, id)?.filter(|history| reach.covers(history.summary.tenant_id)))
        })
    }

    fn attempt(&self, reach: Reach, id: DeliveryId, number: u32) -> Reply<'_, Option<Attempt>> {
        let keys = Arc::clone(&self.keys);
        self.for_people.search(self.search_max, move |snapshot| {
            let found = list::attempt(snapshot, &keys, id, number)?;
            Ok(found.filter(|(tenant_id, _)| reach.covers(*tenant_id)).map(|(_, attempt)| attempt))
        })
    }

    fn deliveries(&self, reach: Reach, filter: DeliveryFilter, page: Page) -> Reply<'_, Vec<DeliverySummary>> {
        self.for_people.search(self.search_max, move |snapshot| {
            let Some(filter) = filter.within(reach) else { return Ok(Vec::new()) };
            list::deliveries(snapshot, &filter, page)
        })
    }

    fn usage(&self, reach: Reach, tenant_id: TenantId) -> Reply<'_, Usage> {
        self.for_people.search(self.search_max, move |snapshot| match reach.covers(tenant_id) {
            true => usage::usage_of(snapshot, tenant_id),
            false => Ok(Usage::default()),
        })
    }

    fn backlogs(&self, reach: Reach, ids: Vec<DestinationId>) -> Reply<'_, Vec<Backlog>> {
        self.for_people.search(self.search_max, move |snapshot| catalog::backlogs(snapshot, reach, &ids))
    }

    fn activity(&self, reach: Reach, query: ActivityQuery) -> Reply<'_, Vec<Activity>> {
        self.for_people.search(self.search_max, move |snapshot| activity::activity(snapshot, reach, &query))
    }

    fn api_keys(&self, reach: Reach, after: Option<KeyId>, limit: usize) -> Reply<'_, Vec<ApiKey>> {
        self.for_people.search(self.search_max, move |snapshot| access::api_keys(snapshot, reach, after, limit))
    }

    fn portal_sessions(&self, reach: Reach, after: Option<SessionId>, limit: usize) -> Reply<'_, Vec<PortalSession>> {
        self.for_people.search(self.search_max, move |snapshot| access::portal_sessions(snapshot, reach, after, limit))
    }

    fn audit(&self, reach: Reach, filter: AuditFilter, page: Page) -> Reply<'_, Vec<(u64, AuditEntry)>> {
        self.for_people.search(self.search_max, move |snapshot| audit::audit(snapshot, reach, filter, page))
    }

    fn clock(&self) -> Reply<'_, KeptClock> {
        self.for_engine.read(|snapshot| clock::kept(snapshot))
    }

    fn purge(&self, ages: Ages, limit: usize) -> Reply<'_, Purged> {
        self.writer.ask(move |writer| writer.purge(ages, limit))
    }
}
