//! The store as the plainest code that keeps its promises: everything in maps, every verb at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use doorstep_core::delivery::{Delivery, OrderingSlot, Place, Settlement, Track};
use doorstep_core::gate::GateState;
use doorstep_core::id::{DeliveryId, DestinationId};
use doorstep_core::retry::{DeadReason, Decision, Progress};
use doorstep_core::time::{Millis, Timestamp};

#[derive(Debug, Default)]
pub struct Memory {
    rows: BTreeMap<DeliveryId, Row>,
    /// Unfinished deliveries that their ordering key lets go, in the order in which they are due.
    due: BTreeMap<(DestinationId, Track, Place), DeliveryId>,
    /// Unfinished deliveries by the time at which they give up.
    give_ups: BTreeSet<(Timestamp, DeliveryId)>,
    /// Per key, those that are unfinished or hold the key though they are dead; the first may go.
    keys: BTreeMap<(DestinationId, Arc<str>), Key>,
    gates: BTreeMap<DestinationId, GateState>,
    last_seq: u64,
}

#[derive(Debug, Default)]
struct Key {
    queue: VecDeque<DeliveryId>,
    last_sequence: u64,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub delivery: Delivery,
    /// Whether others with the same ordering key come first.
    pub behind: bool,
    pub end: Option<End>,
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

/// A delivery to be made.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    pub id: DeliveryId,
    pub event_seq: u64,
    pub destination_id: DestinationId,
    pub ordering_key: Option<Arc<str>>,
    pub give_up_at: Timestamp,
}

impl Memory {
    /// Takes deliveries in, and returns those that may go.
    pub fn accept(&mut self, new: Vec<NewDelivery>, now: Timestamp) -> Vec<Delivery> {
        let mut available = Vec::new();
        for new in new {
            self.last_seq += 1;
            let ordering = new.ordering_key.map(|key| self.next_slot(new.destination_id, key));
            let give_up_at = new.give_up_at;
            let delivery = Delivery {
                id: new.id,
                event_seq: new.event_seq,
                destination_id: new.destination_id,
                seq: self.last_seq,
                due_at: now,
                requests: 0,
                progress: Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at },
                ordering,
            };
            available.extend(self.line_up(delivery));
        }
        available
    }

    fn next_slot(&mut self, destination_id: DestinationId, key: Arc<str>) -> OrderingSlot {
        let entry = self.keys.entry((destination_id, Arc::clone(&key))).or_default();
        entry.last_sequence += 1;
        OrderingSlot { key, sequence: entry.last_sequence }
    }

    /// Puts an unfinished delivery behind the others of its key, and returns it if there are none.
    fn line_up(&mut self, delivery: Delivery) -> Option<Delivery> {
        let behind = match &delivery.ordering {
            None => false,
            Some(slot) => {
                let key = self.keys.entry((delivery.destination_id, Arc::clone(&slot.key))).or_default();
                key.queue.push_back(delivery.id);
                key.queue.len() > 1
            }
        };
        self.give_ups.insert((delivery.progress.give_up_at, delivery.id));
        if !behind {
            self.due.insert(due_key(&delivery), delivery.id);
        }
        self.rows.insert(delivery.id, Row { delivery: delivery.clone(), behind, end: None });
        (!behind).then_some(delivery)
    }

    /// Up to `limit` deliveries of a track behind `after`, and whether there are none beyond.
    pub fn due(
        &self,
        destination_id: DestinationId,
        track: Track,
        after: Option<Place>,
        limit: usize,
    ) -> (Vec<Delivery>, bool) {
        let from = after.unwrap_or(Place { due_at: Timestamp(i64::MIN), seq: 0 });
        let to = Place { due_at: Timestamp::MAX, seq: u64::MAX };
        let mut found = self
            .due
            .range((destination_id, track, from)..=(destination_id, track, to))
            .filter(|((_, _, place), _)| Some(*place) > after)
            .map(|(_, id)| self.rows[id].delivery.clone());
        let deliveries = found.by_ref().take(limit).collect();
        let exhausted = found.next().is_none();
        (deliveries, exhausted)
    }

    /// Writes what came of deliveries, and returns those that their keys let go now. A delivery that is finished
    /// already, or that was sent again by a person since, stays as it is.
    pub fn settle(&mut self, settlements: &[Settlement]) -> Vec<Delivery> {
        let mut released = Vec::new();
        for settlement in settlements {
            let Some(row) = self.rows.get_mut(&settlement.delivery.id).filter(|row| row.is_meant_by(settlement)) else {
                continue;
            };
            if !row.behind {
                self.due.remove(&due_key(&row.delivery));
            }
            row.delivery = settlement.delivery.clone();
            row.end = match settlement.decision {
                Decision::RetryAt(_) | Decision::Requeue => None,
                Decision::Delivered => Some(End::Delivered),
                Decision::Dead(reason) => Some(End::Dead(reason)),
            };
            match row.end {
                None => drop(self.due.insert(due_key(&row.delivery), row.delivery.id)),
                Some(_) => drop(self.give_ups.remove(&(row.delivery.progress.give_up_at, row.delivery.id))),
            }
            if settlement.releases_key {
                released.extend(self.release(&settlement.delivery));
            }
        }
        released
    }

    /// Takes a delivery out of its key's queue; if it was the first there, the next one may go.
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

    /// Unfinished deliveries whose time is up.
    pub fn overdue(&self, now: Timestamp, limit: usize) -> Vec<Delivery> {
        let up = self.give_ups.iter().take_while(|(at, _)| *at <= now);
        up.take(limit).map(|(_, id)| self.rows[id].delivery.clone()).collect()
    }

    pub fn next_give_up_at(&self) -> Option<Timestamp> {
        self.give_ups.first().map(|(at, _)| *at)
    }

    /// A person sends a dead letter again: with a fresh budget, behind what its key has queued meanwhile.
    pub fn revive(&mut self, id: DeliveryId, give_up_at: Timestamp, now: Timestamp) -> Option<Delivery> {
        let row = self.rows.get(&id).filter(|row| matches!(row.end, Some(End::Dead(_))))?;
        let mut delivery = row.delivery.clone();
        delivery.due_at = now;
        delivery.progress = Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at };
        if let Some(slot) = &delivery.ordering
            && let Some(key) = self.keys.get_mut(&(delivery.destination_id, Arc::clone(&slot.key)))
            && key.queue.front() == Some(&id)
        {
            // It held its key all the time, and still comes first.
            key.queue.pop_front();
            let rest = std::mem::take(&mut key.queue);
            let available = self.line_up(delivery);
            if let Some(key) = available.as_ref().and_then(|d| self.key_of(d)) {
                key.queue.extend(rest);
            }
            return available;
        }
        self.line_up(delivery)
    }

    fn key_of(&mut self, delivery: &Delivery) -> Option<&mut Key> {
        let slot = delivery.ordering.as_ref()?;
        self.keys.get_mut(&(delivery.destination_id, Arc::clone(&slot.key)))
    }

    pub fn save_gate(&mut self, destination_id: DestinationId, state: GateState) {
        self.gates.insert(destination_id, state);
    }

    pub fn gate(&self, destination_id: DestinationId) -> GateState {
        self.gates.get(&destination_id).cloned().unwrap_or_default()
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

fn due_key(delivery: &Delivery) -> (DestinationId, Track, Place) {
    (delivery.destination_id, delivery.track(), delivery.place())
}

#[cfg(test)]
mod tests {
    use doorstep_core::delivery::{BehindDead, Ordering};

    use super::*;

    const DST: DestinationId = DestinationId(1);
    const NOW: Timestamp = Timestamp(1_000);

    fn new(id: u128, key: Option<&str>) -> NewDelivery {
        NewDelivery {
            id: DeliveryId(id),
            event_seq: 1,
            destination_id: DST,
            ordering_key: key.map(Arc::from),
            give_up_at: Timestamp(10_000),
        }
    }

    fn ids(deliveries: &[Delivery]) -> Vec<u128> {
        deliveries.iter().map(|d| d.id.0).collect()
    }

    fn settle(store: &mut Memory, id: u128, decision: Decision, behind_dead: BehindDead) -> Vec<u128> {
        let delivery = store.row(DeliveryId(id)).unwrap().delivery.clone();
        let ordering = Ordering::ByKey { behind_dead };
        ids(&store.settle(&[Settlement::new(delivery, None, decision, ordering, NOW)]))
    }

    #[test]
    fn only_the_first_of_a_key_may_go_and_its_end_lets_the_next_one_go() {
        let mut store = Memory::default();
        let available = store.accept(vec![new(1, Some("a")), new(2, Some("a")), new(3, Some("b")), new(4, None)], NOW);
        assert_eq!(ids(&available), [1, 3, 4]);
        let retry = Decision::RetryAt(Timestamp(2_000));
        assert_eq!(settle(&mut store, 1, retry, BehindDead::Skip), []);
        assert_eq!(settle(&mut store, 1, Decision::Delivered, BehindDead::Skip), [2]);
        assert_eq!(settle(&mut store, 1, Decision::Delivered, BehindDead::Skip), [], "settled once already");
        assert_eq!(store.row(DeliveryId(2)).unwrap().delivery.ordering.as_ref().unwrap().sequence, 2);
    }

    #[test]
    fn a_dead_delivery_that_holds_its_key_lets_go_when_it_is_sent_again() {
        let mut store = Memory::default();
        store.accept(vec![new(1, Some("a")), new(2, Some("a"))], NOW);
        let dead = Decision::Dead(DeadReason::Rejected);
        assert_eq!(settle(&mut store, 1, dead, BehindDead::Hold), []);
        let again = store.revive(DeliveryId(1), Timestamp(20_000), NOW).unwrap();
        assert_eq!(again.id, DeliveryId(1));
        assert_eq!(settle(&mut store, 1, Decision::Delivered, BehindDead::Hold), [2]);
    }

    #[test]
    fn one_that_was_skipped_goes_behind_the_others_when_it_is_sent_again() {
        let mut store = Memory::default();
        store.accept(vec![new(1, Some("a")), new(2, Some("a"))], NOW);
        let dead = Decision::Dead(DeadReason::Rejected);
        assert_eq!(settle(&mut store, 1, dead, BehindDead::Skip), [2]);
        assert_eq!(store.revive(DeliveryId(1), Timestamp(20_000), NOW), None);
        assert_eq!(settle(&mut store, 2, Decision::Delivered, BehindDead::Skip), [1]);
    }

    #[test]
    fn what_is_said_of_an_earlier_life_does_not_end_the_present_one() {
        let mut store = Memory::default();
        store.accept(vec![new(1, None)], NOW);
        let before = store.row(DeliveryId(1)).unwrap().delivery.clone();
        let dead =
            |delivery| Settlement::new(delivery, None, Decision::Dead(DeadReason::Expired), Ordering::Unordered, NOW);
        store.settle(&[dead(before.clone())]);
        store.revive(DeliveryId(1), Timestamp(20_000), NOW).unwrap();
        store.settle(&[dead(before)]);
        assert_eq!(store.row(DeliveryId(1)).unwrap().end, None);
    }

    #[test]
    fn deliveries_are_read_in_the_order_of_their_places_from_where_the_last_read_ended() {
        let mut store = Memory::default();
        store.accept((1..=5).map(|id| new(id, None)).collect(), NOW);
        let (first, exhausted) = store.due(DST, Track::First, None, 3);
        assert_eq!((ids(&first), exhausted), (vec![1, 2, 3], false));
        let (rest, exhausted) = store.due(DST, Track::First, Some(first[2].place()), 3);
        assert_eq!((ids(&rest), exhausted), (vec![4, 5], true));
        assert_eq!(store.due(DST, Track::Retry, None, 3).0, []);
    }

    #[test]
    fn what_has_run_out_of_time_is_found() {
        let mut store = Memory::default();
        store.accept(vec![new(1, None)], NOW);
        assert_eq!(store.next_give_up_at(), Some(Timestamp(10_000)));
        assert_eq!(store.overdue(Timestamp(9_999), 10), []);
        assert_eq!(ids(&store.overdue(Timestamp(10_000), 10)), [1]);
    }
}
