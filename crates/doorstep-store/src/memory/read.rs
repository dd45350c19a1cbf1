//! What can be asked.

use std::sync::Arc;

use doorstep_core::attempt::Attempt;
use doorstep_core::clock::KeptClock;
use doorstep_core::delivery::{Delivery, Place};
use doorstep_core::destination::Tenant;
use doorstep_core::event::Event;
use doorstep_core::event_type::RegisteredType;
use doorstep_core::gate::GateState;
use doorstep_core::id::{DeliveryId, DestinationId, EventId, TenantId};
use doorstep_core::quota::{DELIVERY_BYTES, Usage};
use doorstep_core::reach::Reach;
use doorstep_core::route::EventType;
use doorstep_core::store::{
    ATTEMPTS_TOLD_MAX, Activity, ActivityQuery, Backlog, CAPTURED_TOLD_MAX, DeliveryFilter, DeliveryHistory,
    DeliveryStatus, DeliverySummary, DuePage, DueQuery, EventFilter, EventSummary, NAMESAKES_MAX, Page, Statuses,
    StoredDestination, StoredEvent, Unreadable,
};
use doorstep_core::time::Timestamp;

use super::{Accepted, End, Leftover, Memory, Row};
use crate::minute::minute_of;

impl Memory {
    pub fn due(&self, query: &DueQuery) -> DuePage {
        let DueQuery { destination_id, track, after, limit } = *query;
        let from = after.unwrap_or(Place { due_at: Timestamp(i64::MIN), seq: 0 });
        let to = Place { due_at: Timestamp::MAX, seq: u64::MAX };
        let mut found = self
            .due
            .range((destination_id, track, from)..=(destination_id, track, to))
            .filter(|((_, _, place), _)| Some(*place) > after)
            .map(|(_, id)| self.rows[id].delivery.clone());
        let deliveries = found.by_ref().take(limit).collect();
        DuePage { deliveries, exhausted: found.next().is_none() }
    }

    pub fn kept_clock(&self) -> KeptClock {
        let event = self.events.last_key_value().map(|(_, accepted)| accepted.event.accepted_at);
        let attempt = self.attempts.back().map(|kept| kept.attempt.started_at);
        KeptClock { record: self.clock.clone(), newest: event.max(attempt).max(self.access.newest_entry()) }
    }

    /// Unfinished deliveries whose time is up.
    pub fn overdue(&self, now: Timestamp, limit: usize) -> Vec<Delivery> {
        let up = self.give_ups.iter().take_while(|(at, _, _)| *at <= now);
        up.take(limit).map(|(_, _, id)| self.rows[id].delivery.clone()).collect()
    }

    pub fn next_give_up_at(&self) -> Option<Timestamp> {
        self.give_ups.first().map(|(at, _, _)| *at)
    }

    pub fn events(&self, seqs: &[u64]) -> Vec<StoredEvent> {
        let read = |seq| match self.events.get(seq).filter(|accepted| !accepted.erased) {
            None => StoredEvent::Gone,
            Some(Accepted { event, unreadable: true, .. }) => StoredEvent::Unreadable(Unreadable {
                event_id: Some(event.id.clone()),
                tenant_id: Some(event.tenant_id),
                why: "it was damaged".to_owned(),
            }),
            Some(Accepted { event, .. }) => StoredEvent::Readable(Arc::clone(event)),
        };
        seqs.iter().map(read).collect()
    }

    pub(super) fn event(
        &self,
        reach: Reach,
        tenant_id: Option<TenantId>,
        id: &EventId,
    ) -> Vec<(EventSummary, Arc<Event>)> {
        let wanted = |of: TenantId, name: &EventId| {
            name == id && reach.covers(of) && tenant_id.is_none_or(|tenant_id| tenant_id == of)
        };
        let named = self.event_seqs.iter().filter(|((of, name), _)| wanted(*of, name)).take(NAMESAKES_MAX);
        let read = |seq: &u64| {
            let accepted = &self.events[seq];
            (!accepted.erased).then(|| (accepted.summary(*seq), Arc::clone(&accepted.event)))
        };
        named.filter_map(|(_, seq)| read(seq)).collect()
    }

    pub(super) fn event_list(&self, reach: Reach, filter: EventFilter, page: Page) -> Vec<EventSummary> {
        let Some(filter) = filter.within(reach) else { return Vec::new() };
        let EventFilter { types, tenant_id, ordering_key, accepted_after, accepted_before } = filter;
        let fits = |event: &EventSummary| {
            tenant_id.is_none_or(|tenant_id| tenant_id == event.tenant_id)
                && types.as_ref().is_none_or(|types| types.matches(&event.event_type))
                && ordering_key.as_ref().is_none_or(|key| event.ordering_key.as_ref() == Some(key))
                && accepted_after.is_none_or(|after| after <= event.accepted_at)
                && accepted_before.is_none_or(|before| event.accepted_at < before)
        };
        let before = page.before_seq.unwrap_or(u64::MAX);
        let newest_first = self.events.range(..before).rev();
        newest_first.map(|(seq, accepted)| accepted.summary(*seq)).filter(fits).take(page.limit).collect()
    }

    pub(super) fn tenants(&self, after: Option<TenantId>, limit: usize) -> Vec<Tenant> {
        self.tenants.values().filter(|tenant| Some(tenant.id) > after).take(limit).cloned().collect()
    }

    pub(super) fn event_types(&self, after: Option<&EventType>, limit: usize) -> Vec<RegisteredType> {
        self.event_types.values().filter(|one| Some(&one.name) > after).take(limit).cloned().collect()
    }

    pub(super) fn destinations(&self, after: Option<DestinationId>, limit: usize) -> Vec<StoredDestination> {
        let found = self.destinations.values().filter(|(destination, _)| Some(destination.id) > after).take(limit);
        let stored = |(destination, gate): &(_, GateState)| StoredDestination {
            destination: Clone::clone(destination),
            gate: gate.clone(),
            has_backlog: self.backlog(destination.id).queued > 0,
        };
        found.map(stored).collect()
    }

    pub(super) fn backlog(&self, id: DestinationId) -> Backlog {
        let queued = || self.rows().filter(|row| row.end.is_none() && row.delivery.destination_id == id);
        let oldest = queued().min_by_key(|row| row.delivery.seq);
        Backlog { queued: queued().count() as u64, oldest_created_at: oldest.map(|row| self.created_at(row)) }
    }

    pub(super) fn usage(&self, reach: Reach, tenant_id: TenantId) -> Usage {
        debug_assert_eq!(self.usage_of(tenant_id), self.counted(tenant_id), "what is counted is what is there");
        if reach.covers(tenant_id) { self.usage_of(tenant_id) } else { Usage::default() }
    }

    /// The same, counted from all that is there.
    fn counted(&self, tenant_id: TenantId) -> Usage {
        let of_event = |seq: u64| self.events.get(&seq).is_some_and(|accepted| accepted.event.tenant_id == tenant_id);
        let is_queued =
            |row: &&Row| row.end.is_none() && self.tenant_of(row.delivery.destination_id) == Some(tenant_id);
        let leftovers = self.removed.values().flat_map(|(_, left)| left).filter(|left| match left {
            Leftover::Delivery { event_seq } => of_event(*event_seq),
            Leftover::Key => false,
        });
        let deliveries = self.rows().filter(|row| of_event(row.delivery.event_seq)).count() + leftovers.count();
        let events = self.events.values().filter(|accepted| accepted.event.tenant_id == tenant_id);
        let attempts = self.attempts.iter().filter(|kept| kept.tenant_id == Some(tenant_id));
        Usage {
            queued_deliveries: self.rows().filter(is_queued).count() as u64,
            stored_bytes: DELIVERY_BYTES * deliveries as u64
                + events.map(|accepted| accepted.event.stored_bytes()).sum::<u64>()
                + attempts.map(|kept| kept.stored_bytes).sum::<u64>(),
        }
    }

    pub(super) fn seen_backlog(&self, reach: Reach, id: DestinationId) -> Backlog {
        if reach != Reach::All && !reach.covers_owner(self.tenant_of(id)) {
            return Backlog::default();
        }
        self.backlog(id)
    }

    pub(super) fn delivery(&self, reach: Reach, id: DeliveryId) -> Option<DeliveryHistory> {
        let summary = Some(self.summary(self.rows.get(&id)?)).filter(|line| reach.covers(line.tenant_id))?;
        let last = self.attempts.iter().rev().filter(|kept| kept.of == id).take(ATTEMPTS_TOLD_MAX);
        let told = |(nth, attempt): (usize, Attempt)| {
            if nth < CAPTURED_TOLD_MAX { attempt } else { attempt.without_captured() }
        };
        let mut attempts: Vec<Attempt> = last.map(|kept| kept.attempt.clone()).enumerate().map(told).collect();
        attempts.reverse();
        Some(DeliveryHistory { summary, attempts })
    }

    pub(super) fn attempt(&self, reach: Reach, id: DeliveryId, number: u32) -> Option<Attempt> {
        Some(self.summary(self.rows.get(&id)?)).filter(|line| reach.covers(line.tenant_id))?;
        let mut of_delivery = self.attempts.iter().rev().filter(|kept| kept.of == id).map(|kept| &kept.attempt);
        of_delivery.find(|attempt| attempt.number == number).cloned()
    }

    pub(super) fn deliveries(&self, reach: Reach, filter: DeliveryFilter, page: Page) -> Vec<DeliverySummary> {
        let Some(filter) = filter.within(reach) else { return Vec::new() };
        let mut found: Vec<DeliverySummary> = self
            .rows()
            .map(|row| self.summary(row))
            .filter(|line| page.before_seq.is_none_or(|before| line.delivery.seq < before))
            .filter(|line| fits(line, &filter))
            .collect();
        found.sort_by_key(|line| std::cmp::Reverse(line.delivery.seq));
        found.truncate(page.limit);
        found
    }

    fn summary(&self, row: &Row) -> DeliverySummary {
        let event = &self.events[&row.delivery.event_seq].event;
        DeliverySummary {
            delivery: row.delivery.clone(),
            event_id: event.id.clone(),
            event_type: event.event_type.clone(),
            tenant_id: event.tenant_id,
            status: match row.end {
                None if row.delivery.progress.attempts == 0 => DeliveryStatus::Queued,
                None => DeliveryStatus::RetryScheduled,
                Some(End::Delivered) => DeliveryStatus::Delivered,
                Some(End::Dead(reason)) => DeliveryStatus::Dead(reason),
            },
            behind: row.behind,
            created_at: self.created_at(row),
            ended_at: row.ended_at,
            last_status: row.last_status,
            note: row.note.clone(),
        }
    }

    fn created_at(&self, row: &Row) -> Timestamp {
        self.events[&row.delivery.event_seq].event.accepted_at
    }

    pub(super) fn activity(&self, reach: Reach, query: &ActivityQuery) -> Vec<Activity> {
        let wanted = |minute: Timestamp| minute_of(query.from) <= minute && minute < query.until;
        self.minutes
            .iter()
            .map(|((minute, destination_id), tally)| Activity {
                minute: *minute,
                destination_id: *destination_id,
                tally: *tally,
            })
            .filter(|activity| wanted(activity.minute))
            .filter(|activity| query.destination_id.is_none_or(|id| activity.destination_id == id))
            .filter(|activity| reach == Reach::All || reach.covers_owner(self.tenant_of(activity.destination_id)))
            .take(query.limit)
            .collect()
    }

    pub fn gate(&self, destination_id: DestinationId) -> GateState {
        self.destinations.get(&destination_id).map(|(_, gate)| gate.clone()).unwrap_or_default()
    }

    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    pub fn row(&self, id: DeliveryId) -> Option<&Row> {
        self.rows.get(&id)
    }

    pub fn n_unfinished(&self) -> usize {
        self.give_ups.len()
    }
}

fn fits(line: &DeliverySummary, filter: &DeliveryFilter) -> bool {
    let DeliveryFilter {
        statuses,
        types,
        event_id,
        destination_id,
        tenant_id,
        reason,
        codes,
        created_after,
        created_before,
    } = filter;
    statuses.meets(Statuses::of(line.status))
        && destination_id.is_none_or(|id| line.delivery.destination_id == id)
        && tenant_id.is_none_or(|id| line.tenant_id == id)
        && types.as_ref().is_none_or(|types| types.matches(&line.event_type))
        && event_id.as_ref().is_none_or(|id| line.event_id == *id)
        && reason.is_none_or(|reason| line.status == DeliveryStatus::Dead(reason))
        && codes.is_none_or(|codes| line.last_status.is_some_and(|code| codes.contain(code)))
        && created_after.is_none_or(|after| after <= line.created_at)
        && created_before.is_none_or(|before| line.created_at < before)
}
