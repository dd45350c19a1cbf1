//! The few deliveries of a track that are in memory, and how far the store has been read.
//!
//! Promise: every unfinished delivery of the track whose place is not behind `read_to` is in the window or in flight;
//! those behind it are in the store alone, and `more` says that there may be some. So memory is bounded, and nothing
//! is forgotten, however reads, new arrivals and retries interleave.

use std::collections::BTreeMap;

use super::Ticket;
use crate::delivery::{Delivery, Place};
use crate::id::DeliveryId;
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct Window {
    deliveries: BTreeMap<Place, Delivery>,
    read_to: Option<Place>,
    more: bool,
    refill: Refill,
    /// The nearest place that was left to the store since the read under way was asked for: it may have missed it.
    unseen_from: Option<Place>,
    /// Deliveries behind `read_to` that moved on since then, each with its `give_up_at`: the read may still show them as they were.
    stale: Vec<(DeliveryId, Timestamp)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refill {
    None,
    Asked,
    UnderWay(Ticket),
}

impl Window {
    pub(super) fn new(backlog: bool) -> Self {
        Self {
            deliveries: BTreeMap::new(),
            read_to: None,
            more: backlog,
            refill: Refill::None,
            unseen_from: None,
            stale: Vec::new(),
        }
    }

    pub(super) fn first_due(&self) -> Option<Timestamp> {
        self.deliveries.first_key_value().map(|(place, _)| place.due_at)
    }

    pub(super) fn first(&self) -> Option<&Delivery> {
        self.deliveries.first_key_value().map(|(_, delivery)| delivery)
    }

    pub(super) fn len(&self) -> usize {
        self.deliveries.len()
    }

    pub(super) fn take_first(&mut self) -> Option<Delivery> {
        let first = self.deliveries.pop_first().map(|(_, delivery)| delivery);
        self.free_if_empty();
        first
    }

    pub(super) fn take_first_if(&mut self, wanted: impl Fn(&Delivery) -> bool) -> Option<Delivery> {
        let first = self.deliveries.first_entry()?;
        let taken = wanted(first.get()).then(|| first.remove());
        self.free_if_empty();
        taken
    }

    /// An empty map keeps its last node, which is larger than the rest of an idle lane.
    fn free_if_empty(&mut self) {
        if self.deliveries.is_empty() {
            self.deliveries = BTreeMap::new();
        }
    }

    /// Takes a delivery out that has ended, and out of what a read under way will bring. If a person has sent it again since, its
    /// new life stays: that has another `give_up_at`.
    pub(super) fn remove(&mut self, ended: &Delivery) {
        self.deliveries.retain(|_, delivery| life(delivery) != life(ended));
        self.free_if_empty();
        if self.is_being_read() {
            self.stale.push(life(ended));
        }
    }

    /// Takes a delivery in that is in the store already, or leaves it there if the window does not reach that far.
    pub(super) fn put(&mut self, delivery: Delivery, max: usize) {
        let place = delivery.place();
        if self.is_beyond(place) {
            self.leave_to_store(place);
            return;
        }
        self.deliveries.insert(place, delivery);
        if self.deliveries.len() > max
            && let Some((last, _)) = self.deliveries.pop_last()
        {
            self.more = true;
            self.read_to = self.deliveries.last_key_value().map(|(place, _)| *place);
            self.leave_to_store(last);
        }
    }

    fn is_beyond(&self, place: Place) -> bool {
        self.more && self.read_to.is_none_or(|read_to| place > read_to)
    }

    fn leave_to_store(&mut self, place: Place) {
        if self.is_being_read() {
            self.unseen_from = Some(self.unseen_from.map_or(place, |unseen| unseen.min(place)));
        }
    }

    /// This delivery is no longer as a read under way may have found it.
    pub(super) fn forget_read(&mut self, delivery: &Delivery) {
        if self.is_being_read() && self.is_beyond(delivery.place()) {
            self.stale.push(life(delivery));
        }
    }

    pub(super) fn wants_refill(&self, max: usize) -> bool {
        self.more && self.refill == Refill::None && self.deliveries.len() <= max / 2
    }

    pub(super) fn refill_asked(&mut self) {
        self.refill = Refill::Asked;
    }

    /// Behind which place to read, and how many.
    pub(super) fn start_refill(&mut self, ticket: Ticket, max: usize) -> Option<(Option<Place>, usize)> {
        if self.refill != Refill::Asked {
            return None;
        }
        self.refill = Refill::UnderWay(ticket);
        Some((self.read_to, max.saturating_sub(self.deliveries.len()).max(1)))
    }

    pub(super) fn refilled(&mut self, ticket: Ticket, deliveries: Vec<Delivery>, exhausted: bool) {
        // A read for a lane that was dropped and adopted anew meanwhile started from another place.
        if self.refill != Refill::UnderWay(ticket) {
            return;
        }
        self.refill = Refill::None;
        let unseen_from = self.unseen_from.take();
        let stale = std::mem::take(&mut self.stale);
        for delivery in deliveries {
            let place = delivery.place();
            if unseen_from.is_some_and(|unseen| place >= unseen) {
                break;
            }
            self.read_to = Some(place);
            if !stale.contains(&life(&delivery)) {
                self.deliveries.insert(place, delivery);
            }
        }
        self.more = !exhausted || unseen_from.is_some();
    }

    pub(super) fn refill_failed(&mut self, ticket: Ticket) {
        if self.refill == Refill::UnderWay(ticket) {
            self.refill = Refill::None;
            self.unseen_from = None;
            self.stale.clear();
        }
    }

    fn is_being_read(&self) -> bool {
        matches!(self.refill, Refill::UnderWay(_))
    }
}

/// Tells a delivery from what it was before a person sent it again.
fn life(delivery: &Delivery) -> (DeliveryId, Timestamp) {
    (delivery.id, delivery.progress.give_up_at)
}
