//! The store as the plainest code that keeps its promises: everything in maps, every verb at once.

mod read;
mod purge;
mod access;
mod shared;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use doorstep_core::attempt::{Answer, Attempt};
use doorstep_core::clock::ClockRecord;
use doorstep_core::consent::Consent;
use doorstep_core::delivery::{Delivery, OrderingSlot, Place, Settlement, Track};
use doorstep_core::destination::{Destination, Tenant};
use doorstep_core::event::{Event, KeyDigest, NewEvent};
use doorstep_core::event_type::RegisteredType;
use doorstep_core::gate::GateState;
use doorstep_core::id::{DeliveryId, DestinationId, EventId, TenantId};
use doorstep_core::quota::{ATTEMPT_BYTES, DELIVERY_BYTES, Quota, Usage};
use doorstep_core::retry::{DeadReason, Decision, Progress};
use doorstep_core::route::EventType;
use doorstep_core::store::{EventSummary, Refusal, Settled, Tally, Write, Written};
use doorstep_core::time::{Millis, Timestamp};

pub use shared::MemoryStore;

use crate::minute::minute_of;
use access::Access;

/// The plain structure, for whoever is alone with it: the simulator. [`MemoryStore`] shares it.
#[derive(Debug, Default)]
pub struct Memory {
    tenants: BTreeMap<TenantId, Tenant>,
    event_types: BTreeMap<EventType, RegisteredType>,
    destinations: BTreeMap<DestinationId, (Destination, GateState)>,
    /// Those that were taken away, when, and what has not been swept up after them.
    removed: BTreeMap<DestinationId, (Timestamp, VecDeque<Leftover>)>,
    events: BTreeMap<u64, Accepted>,
    event_seqs: BTreeMap<(TenantId, EventId), u64>,
    /// The keys that events were accepted with.
    event_keys: BTreeMap<(TenantId, KeyDigest), u64>,
    /// Tenants that have payloads to erase.
    has_payloads: BTreeSet<TenantId>,
    rows: BTreeMap<DeliveryId, Row>,
    /// Unfinished deliveries that their ordering key lets go, in the order in which they are due.
    due: BTreeMap<(DestinationId, Track, Place), DeliveryId>,
    /// Unfinished deliveries by the time at which they give up, then by ingest order.
    give_ups: BTreeSet<(Timestamp, u64, DeliveryId)>,
    /// Per key, those that are unfinished or hold the key though they are dead; the first may go.
    keys: BTreeMap<(DestinationId, Arc<str>), Key>,
    /// In the order in which they were written.
    attempts: VecDeque<KeptAttempt>,
    usages: BTreeMap<TenantId, Usage>,
    minutes: BTreeMap<(Timestamp, DestinationId), Tally>,
    last_event_seq: u64,
    last_seq: u64,
    access: Access,
    clock: Option<ClockRecord>,
}

#[derive(Debug)]
struct Accepted {
    event: Arc<Event>,
    n_deliveries: usize,
    /// Its payload is gone: it cannot be sent any more.
    erased: bool,
    /// A test has damaged it.
    unreadable: bool,
}

impl Accepted {
    fn summary(&self, seq: u64) -> EventSummary {
        EventSummary::of(seq, &self.event, self.n_deliveries as u64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftover {
    Delivery { event_seq: u64 },
    Key,
}

#[derive(Debug)]
struct KeptAttempt {
    of: DeliveryId,
    attempt: Attempt,
    tenant_id: Option<TenantId>,
    /// What it counts towards its tenant's quota.
    stored_bytes: u64,
}

#[derive(Debug, Default)]
struct Key {
    queue: VecDeque<DeliveryId>,
    last_sequence: u64,
    /// The day on which it was last used.
    used_day: i64,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub delivery: Delivery,
    /// Whether others with the same ordering key come first.
    pub behind: bool,
    pub end: Option<End>,
    pub ended_at: Option<Timestamp>,
    pub last_status: Option<u16>,
    pub note: Option<String>,
}

impl Row {
    fn is_meant_by(&self, settlement: &Settlement) -> bool {
        self.end.is_none() && self.delivery.progress.give_up_at == settlement.delivery.progress.give_up_at
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Delivered,
    Dead(DeadReason),
}

impl Memory {
    pub fn write(&mut self, write: Write, now: Timestamp) -> Written {
        match write {
            Write::Accept(new) => self.accept(*new, now),
            Write::Settle(settled) => {
                Written::Settled { available: self.settle(Arc::unwrap_or_clone(settled)).into_iter().collect() }
            }
            Write::SaveGate { destination_id, state } => self.save_gate(destination_id, *state),
            Write::Revive { delivery_id, give_up_at } => self.revive(delivery_id, give_up_at, now),
            Write::Abandon { delivery_id, note } => self.abandon(delivery_id, note, now),
            Write::ErasePayloads { tenant_id } => self.erase_payloads(tenant_id),
            Write::PutTenant(tenant) => self.put_tenant(*tenant),
            Write::PutDestination(destination) => self.put_destination(*destination),
            Write::Consented { destination_id, consent } => self.consented(destination_id, *consent),
            Write::AddDestination { destination, of_tenant_max } => self.add_destination(*destination, of_tenant_max),
            Write::RemoveDestination { destination_id } => self.remove_destination(destination_id, now),
            Write::ByHand(by_hand) => self.by_hand(*by_hand, now),
            Write::PutApiKey(key) => self.access.put_key(*key),
            Write::ChangeApiKey(key) => self.access.change_key(*key),
            Write::RevokeApiKey { key_id } => self.access.revoke_key(key_id, now),
            Write::UsedApiKeys(used) => self.access.used_keys(used),
            Write::PutPortalSession(session) => self.access.put_session(*session),
            Write::OpenPortalSession { session_id, code, token } => {
                self.access.open_session(session_id, &code, token, now)
            }
            Write::EndPortalSession { session_id } => self.access.end_session(session_id),
            Write::EndPortalSessions { tenant_id } => self.access.end_sessions(tenant_id),
            Write::Audit(entry) => self.access.note(*entry),
            Write::KeepClock(record) => {
                self.clock = Some(*record);
                Written::Saved
            }
            Write::PutEventType(registered) => self.put_event_type(*registered),
            Write::RemoveEventType { name } => match self.event_types.remove(&name) {
                Some(_) => Written::Saved,
                None => Written::Refused(Refusal::NotFound),
            },
        }
    }

    fn erase_payloads(&mut self, tenant_id: TenantId) -> Written {
        if !self.has_payloads.remove(&tenant_id) {
            return Written::Refused(Refusal::NotFound);
        }
        for accepted in self.events.values_mut().filter(|accepted| accepted.event.tenant_id == tenant_id) {
            accepted.erased = true;
        }
        for KeptAttempt { of, attempt, .. } in &mut self.attempts {
            let event = self.rows.get(of).and_then(|row| self.events.get(&row.delivery.event_seq));
            if event.is_some_and(|accepted| accepted.event.tenant_id == tenant_id) {
                *attempt = attempt.clone().without_captured();
            }
        }
        Written::Saved
    }

    /// Makes an event's payload unreadable, as a damaged disk would.
    pub fn damage(&mut self, event_seq: u64) {
        if let Some(accepted) = self.events.get_mut(&event_seq) {
            accepted.unreadable = true;
        }
    }

    fn accept(&mut self, new: NewEvent, now: Timestamp) -> Written {
        let NewEvent { event, key, mut deliveries } = new;
        let name = (event.tenant_id, event.id.clone());
        self.has_payloads.insert(event.tenant_id);
        let known = self.event_seqs.get(&name).copied();
        let used_for = key.and_then(|key| self.used_for(event.tenant_id, key));
        if used_for.is_some() && used_for != known {
            return Written::Refused(Refusal::KeyReused);
        }
        if let Some(before) = known.and_then(|seq| self.events.get(&seq)) {
            if before.unreadable {
                return Written::Refused(Refusal::EventUnreadable);
            }
            let differs = before.event.differs_from(&event, used_for.is_some());
            if let Some(refusal) = differs.filter(|_| !before.erased) {
                return Written::Refused(refusal);
            }
            return Written::Accepted { deliveries: before.n_deliveries, duplicate: true, available: Vec::new() };
        }
        deliveries.retain(|new| self.destinations.contains_key(&new.destination_id));
        let n_deliveries = deliveries.len();
        let added = Usage {
            queued_deliveries: n_deliveries as u64,
            stored_bytes: event.stored_bytes() + DELIVERY_BYTES * n_deliveries as u64,
        };
        if let Some(exceeded) = self.quota_of(event.tenant_id).exceeded_by(self.usage_of(event.tenant_id), added) {
            return Written::Refused(Refusal::QuotaExceeded(exceeded));
        }
        self.usages.entry(event.tenant_id).or_default().stored_bytes += added.stored_bytes;
        self.last_event_seq += 1;
        self.event_seqs.insert(name, self.last_event_seq);
        self.event_keys.extend(key.map(|key| ((event.tenant_id, key), self.last_event_seq)));
        let mut available = Vec::new();
        for new in deliveries {
            self.last_seq += 1;
            let key = event.ordering_key.clone().filter(|_| new.ordered);
            let give_up_at = new.give_up_at;
            let delivery = Delivery {
                id: new.id,
                event_seq: self.last_event_seq,
                destination_id: new.destination_id,
                seq: self.last_seq,
                due_at: now,
                requests: 0,
                progress: Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at },
                ordering: key.map(|key| self.next_slot(new.destination_id, key)),
                unreadable: 0,
            };
            let row = Row { delivery, behind: false, end: None, ended_at: None, last_status: None, note: None };
            self.add_queued(row.delivery.destination_id, 1);
            available.extend(self.line_up(row, now));
        }
        self.events.insert(
            self.last_event_seq,
            Accepted { event: Arc::new(event), n_deliveries, erased: false, unreadable: false },
        );
        Written::Accepted { deliveries: n_deliveries, duplicate: false, available }
    }

    /// The event that was accepted with this key, or is named by it.
    fn used_for(&self, tenant_id: TenantId, key: KeyDigest) -> Option<u64> {
        let beside = self.event_keys.get(&(tenant_id, key));
        beside.or_else(|| self.event_seqs.get(&(tenant_id, key.event_id()))).copied()
    }

    fn next_slot(&mut self, destination_id: DestinationId, key: Arc<str>) -> OrderingSlot {
        let entry = self.keys.entry((destination_id, Arc::clone(&key))).or_default();
        entry.last_sequence += 1;
        OrderingSlot { key, sequence: entry.last_sequence }
    }

    /// Queues an unfinished delivery: in the place that it holds among those of its key, or else behind them. Returns it
    /// if it may go.
    fn line_up(&mut self, mut row: Row, now: Timestamp) -> Option<Delivery> {
        let delivery = row.delivery.clone();
        row.behind = self.key_of(&delivery).is_some_and(|key| {
            if !key.queue.contains(&delivery.id) {
                key.queue.push_back(delivery.id);
                key.used_day = now.day();
            }
            key.queue.front() != Some(&delivery.id)
        });
        self.give_ups.insert(give_up_key(&delivery));
        if !row.behind {
            self.due.insert(due_key(&delivery), delivery.id);
        }
        let behind = row.behind;
        self.rows.insert(delivery.id, row);
        (!behind).then_some(delivery)
    }

    fn key_of(&mut self, delivery: &Delivery) -> Option<&mut Key> {
        let slot = delivery.ordering.as_ref()?;
        Some(self.keys.entry((delivery.destination_id, Arc::clone(&slot.key))).or_default())
    }

    fn quota_of(&self, tenant_id: TenantId) -> Quota {
        Quota::UNLIMITED.with(self.tenants.get(&tenant_id).map(|tenant| tenant.quota).unwrap_or_default())
    }

    fn usage_of(&self, tenant_id: TenantId) -> Usage {
        self.usages.get(&tenant_id).copied().unwrap_or_default()
    }

    fn add_queued(&mut self, id: DestinationId, n: i64) {
        if let Some(tenant_id) = self.tenant_of(id) {
            let queued = &mut self.usages.entry(tenant_id).or_default().queued_deliveries;
            *queued = queued.checked_add_signed(n).expect("what is queued was counted");
        }
    }

    fn free_bytes(&mut self, tenant_id: TenantId, n: u64) {
        let stored = &mut self.usages.entry(tenant_id).or_default().stored_bytes;
        *stored = stored.checked_sub(n).expect("what is stored was counted");
    }

    /// One delivery of this event is not kept any more.
    fn free_delivery(&mut self, event_seq: u64) {
        if let Some(tenant_id) = self.events.get(&event_seq).map(|accepted| accepted.event.tenant_id) {
            self.free_bytes(tenant_id, DELIVERY_BYTES);
        }
    }

    /// Keeps an attempt, without what was said if there is no room for it, or if the payload was erased.
    fn keep_attempt(&mut self, delivery: &Delivery, attempt: Attempt) {
        let tenant_id = self.tenant_of(delivery.destination_id);
        let erased = self.events.get(&delivery.event_seq).is_some_and(|accepted| accepted.erased);
        let added = Usage { stored_bytes: attempt.stored_bytes(), ..Usage::default() };
        let is_full = tenant_id.is_some_and(|id| self.quota_of(id).exceeded_by(self.usage_of(id), added).is_some());
        let (attempt, stored_bytes) =
            if erased || is_full { (attempt.without_captured(), ATTEMPT_BYTES) } else { (attempt, added.stored_bytes) };
        if let Some(tenant_id) = tenant_id {
            self.usages.entry(tenant_id).or_default().stored_bytes += stored_bytes;
        }
        self.attempts.push_back(KeptAttempt { of: delivery.id, attempt, tenant_id, stored_bytes });
    }

    /// Writes what came of a delivery, and returns the one that its key lets go now. A delivery that is finished already,
    /// or that was sent again by a person since, stays as it is.
    pub fn settle(&mut self, settled: Settled) -> Option<Delivery> {
        let tally = Tally::of(&settled);
        let Settled { settlement, attempt } = settled;
        let row = self.rows.get(&settlement.delivery.id).filter(|row| row.is_meant_by(&settlement))?;
        let mut row = row.clone();
        self.unqueue(&row);
        if !settlement.ends_untried() {
            row.delivery = settlement.delivery.clone();
        }
        self.count(row.delivery.destination_id, settlement.settled_at, &tally);
        if let Some(attempt) = attempt {
            row.last_status = status_of(&attempt);
            self.keep_attempt(&row.delivery, attempt);
        }
        match settlement.decision {
            Decision::RetryAt(_) | Decision::Requeue => {
                self.line_up(row, settlement.settled_at);
                None
            }
            Decision::Delivered => self.end(row, End::Delivered, settlement.settled_at, settlement.releases_key),
            Decision::Dead(reason) => {
                row.note = settlement.note.map(str::to_owned);
                self.end(row, End::Dead(reason), settlement.settled_at, settlement.releases_key)
            }
        }
    }

    /// Takes an unfinished delivery out of everything but its key.
    fn unqueue(&mut self, row: &Row) {
        self.due.remove(&due_key(&row.delivery));
        self.give_ups.remove(&give_up_key(&row.delivery));
    }

    fn end(&mut self, mut row: Row, end: End, now: Timestamp, releases_key: bool) -> Option<Delivery> {
        if row.end.is_none() {
            self.add_queued(row.delivery.destination_id, -1);
        }
        (row.behind, row.end, row.ended_at) = (false, Some(end), Some(now));
        row.delivery.unreadable = 0;
        let delivery = row.delivery.clone();
        self.rows.insert(delivery.id, row);
        if releases_key { self.release(&delivery) } else { None }
    }

    /// Takes a delivery out of its key's queue. If it came first there, the next one may go, unless that is dead and holds
    /// the key itself.
    fn release(&mut self, delivery: &Delivery) -> Option<Delivery> {
        let slot = delivery.ordering.as_ref()?;
        let queue = &mut self.keys.get_mut(&(delivery.destination_id, Arc::clone(&slot.key)))?.queue;
        let first = queue.front() == Some(&delivery.id);
        queue.retain(|id| *id != delivery.id);
        let next = queue.front().copied().filter(|_| first)?;
        let row = self.rows.get_mut(&next).filter(|row| row.end.is_none())?;
        row.behind = false;
        self.due.insert(due_key(&row.delivery), next);
        Some(row.delivery.clone())
    }

    fn count(&mut self, destination_id: DestinationId, at: Timestamp, tally: &Tally) {
        self.minutes.entry((minute_of(at), destination_id)).or_default().add(tally);
    }

    /// A person sends a dead letter again.
    fn revive(&mut self, id: DeliveryId, give_up_at: Timestamp, now: Timestamp) -> Written {
        let Some(row) = self.rows.get(&id) else { return Written::Refused(Refusal::NotFound) };
        if !matches!(row.end, Some(End::Dead(_))) {
            return Written::Refused(Refusal::NotDead);
        }
        if !self.destinations.contains_key(&row.delivery.destination_id) {
            return Written::Refused(Refusal::NotFound);
        }
        let mut row = Row { end: None, ended_at: None, note: None, ..row.clone() };
        row.delivery.due_at = now;
        row.delivery.progress = Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at };
        self.add_queued(row.delivery.destination_id, 1);
        Written::Revived { available: self.line_up(row, now).into_iter().collect() }
    }

    fn abandon(&mut self, id: DeliveryId, note: String, now: Timestamp) -> Written {
        let Some(row) = self.rows.get(&id) else { return Written::Refused(Refusal::NotFound) };
        let row = Row { note: Some(note), ..row.clone() };
        let ended = Box::new(row.delivery.clone());
        let ended_at = match row.end {
            None => {
                self.unqueue(&row);
                self.count(ended.destination_id, now, &Tally { dead: 1, ..Tally::default() });
                now
            }
            Some(End::Dead(DeadReason::Exhausted | DeadReason::Expired | DeadReason::Rejected)) => {
                row.ended_at.unwrap_or(now)
            }
            Some(End::Dead(DeadReason::Abandoned) | End::Delivered) => {
                return Written::Refused(Refusal::AlreadyEnded);
            }
        };
        let available = self.end(row, End::Dead(DeadReason::Abandoned), ended_at, true);
        Written::Abandoned { ended, available: available.into_iter().collect() }
    }

    fn save_gate(&mut self, destination_id: DestinationId, state: GateState) -> Written {
        let Some((_, gate)) = self.destinations.get_mut(&destination_id) else {
            return Written::Refused(Refusal::NotFound);
        };
        *gate = state;
        Written::Saved
    }

    fn put_tenant(&mut self, tenant: Tenant) -> Written {
        match self.tenants.get(&tenant.id).map(|before| before.version) {
            Some(before) if before.checked_add(1) != Some(tenant.version) => {
                return Written::Refused(Refusal::VersionDiffers);
            }
            None if tenant.version > 1 => return Written::Refused(Refusal::NotFound),
            Some(_) | None => drop(self.tenants.insert(tenant.id, tenant)),
        }
        Written::Saved
    }

    fn consented(&mut self, destination_id: DestinationId, consent: Consent) -> Written {
        let Some((destination, _)) = self.destinations.get_mut(&destination_id) else {
            return Written::Refused(Refusal::NotFound);
        };
        if destination.settings.url != consent.url {
            return Written::Refused(Refusal::NotFound);
        }
        destination.consent = Some(consent);
        Written::Saved
    }

    fn put_destination(&mut self, mut destination: Destination) -> Written {
        let there = self.destinations.get_mut(&destination.id);
        destination.consent = there.as_ref().and_then(|(before, _)| before.consent.clone());
        match there {
            Some((before, _)) if before.version.checked_add(1) == Some(destination.version) => *before = destination,
            Some(_) => return Written::Refused(Refusal::VersionDiffers),
            None if destination.version > 1 => return Written::Refused(Refusal::NotFound),
            None if self.removed.contains_key(&destination.id) => return Written::Refused(Refusal::VersionDiffers),
            None => drop(self.destinations.insert(destination.id, (destination, GateState::default()))),
        }
        Written::Saved
    }

    fn add_destination(&mut self, destination: Destination, of_tenant_max: usize) -> Written {
        let of_tenant = self.destinations.values().filter(|(there, _)| there.tenant_id == destination.tenant_id);
        if of_tenant.count() >= of_tenant_max && !self.destinations.contains_key(&destination.id) {
            return Written::Refused(Refusal::TooManyDestinations { max: of_tenant_max });
        }
        self.put_destination(destination)
    }

    fn put_event_type(&mut self, registered: RegisteredType) -> Written {
        match self.event_types.get(&registered.name).map(|before| before.version) {
            Some(before) if before.checked_add(1) != Some(registered.version) => {
                return Written::Refused(Refusal::VersionDiffers);
            }
            None if registered.version > 1 => return Written::Refused(Refusal::NotFound),
            Some(_) | None => drop(self.event_types.insert(registered.name.clone(), registered)),
        }
        Written::Saved
    }

    fn remove_destination(&mut self, destination_id: DestinationId, now: Timestamp) -> Written {
        if !self.destinations.contains_key(&destination_id) {
            return Written::Refused(Refusal::NotFound);
        }
        self.add_queued(destination_id, -self.backlog(destination_id).queued.cast_signed());
        self.destinations.remove(&destination_id);
        // In the order in which they are swept up: those that may go, as they are due, then those behind them.
        let due: Vec<_> = self.due.extract_if(.., |(id, _, _), _| *id == destination_id).collect();
        let keys: Vec<_> = self.keys.extract_if(.., |(id, _), _| *id == destination_id).collect();
        let behind = keys.iter().flat_map(|(_, key)| &key.queue).copied();
        let mut left = VecDeque::new();
        for id in due.into_iter().map(|(_, id)| id).chain(behind) {
            if self.rows.get(&id).is_some_and(|row| row.end.is_none())
                && let Some(row) = self.rows.remove(&id)
            {
                self.give_ups.remove(&give_up_key(&row.delivery));
                left.push_back(Leftover::Delivery { event_seq: row.delivery.event_seq });
            }
        }
        left.extend(keys.iter().map(|_| Leftover::Key));
        self.removed.insert(destination_id, (now, left));
        Written::Saved
    }
}

fn due_key(delivery: &Delivery) -> (DestinationId, Track, Place) {
    (delivery.destination_id, delivery.track(), delivery.place())
}

fn give_up_key(delivery: &Delivery) -> (Timestamp, u64, DeliveryId) {
    (delivery.progress.give_up_at, delivery.seq, delivery.id)
}

fn status_of(attempt: &Attempt) -> Option<u16> {
    match attempt.answer {
        Answer::Status(status) => Some(status),
        Answer::Fault(_) => None,
    }
}
