//! The real scheduler with one destination, a store in memory and a virtual clock.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use doorstep_core::delivery::{Delivery, Ordering, Place, Settlement, Track};
use doorstep_core::dice::SeededDice;
use doorstep_core::gate::GateLimits;
use doorstep_core::id::{DeliveryId, DestinationId, TenantId};
use doorstep_core::outcome::Outcome;
use doorstep_core::retry::{Decision, Progress};
use doorstep_core::scheduler::{Command, DestinationPlan, Input, Scheduler, SchedulerLimits};
use doorstep_core::time::{Millis, Timestamp};

use super::{ANSWERS_AFTER, Books, Curve, Story};

const DESTINATION: DestinationId = DestinationId(1);

pub(super) fn run(story: &Story) -> Curve {
    let mut sender = Sender {
        scheduler: Scheduler::new(SchedulerLimits::default()),
        dice: SeededDice::new(story.seed),
        store: Store::default(),
        flights: VecDeque::new(),
        books: Books::new(story),
    };
    let plan = DestinationPlan {
        id: DESTINATION,
        tenant_id: TenantId(1),
        host: "receiver.example".into(),
        limits: Arc::new(GateLimits::default().for_window(story.policy.window())),
        policy: Arc::new(story.policy.clone()),
        ordering: Ordering::Unordered,
        awaits_consent: false,
    };
    sender.tell(Input::Adopted { plan: Box::new(plan), gate: Box::default(), backlog: false }, Timestamp(0));

    let end = Timestamp(0) + story.lasts();
    let (mut now, mut next_new) = (Timestamp(0), 0);
    loop {
        let new_at = story.created_at(next_new);
        // A wake-up that the last step did not satisfy must not hold the clock.
        let woken_at = sender.scheduler.wake_at().map(|at| at.max(now + Millis(1)));
        let heard_at = sender.flights.front().map(|(at, ..)| *at);
        let overdue_at = sender.store.next_give_up_at();
        now = [Some(new_at), woken_at, heard_at, overdue_at].into_iter().flatten().min().unwrap_or(end).max(now);
        if now >= end {
            return sender.books.close();
        }
        if heard_at.is_some_and(|at| at <= now)
            && let Some((_, delivery_id, outcome)) = sender.flights.pop_front()
        {
            sender.tell(Input::Answered { delivery_id, outcome }, now);
        } else if new_at <= now {
            let delivery = new_delivery(story, next_new, now);
            next_new += 1;
            sender.store.put(delivery.clone());
            sender.tell(Input::Accepted { deliveries: vec![delivery], behind: Vec::new() }, now);
        } else if overdue_at.is_some_and(|at| at <= now) {
            let deliveries = sender.store.take_overdue(now);
            sender.tell(Input::Overdue { deliveries }, now);
        } else {
            sender.tell(Input::Woken, now);
        }
    }
}

fn new_delivery(story: &Story, seq: u64, now: Timestamp) -> Delivery {
    let give_up_at = story.policy.give_up_at(now, None);
    Delivery {
        id: DeliveryId(seq.into()),
        event_seq: seq,
        destination_id: DESTINATION,
        seq,
        due_at: now,
        requests: 0,
        progress: Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at },
        ordering: None,
        unreadable: 0,
    }
}

struct Sender<'a> {
    scheduler: Scheduler,
    dice: SeededDice,
    store: Store,
    /// Requests by the time at which their answers are heard: all take equally long, so they are in order.
    flights: VecDeque<(Timestamp, DeliveryId, Outcome)>,
    books: Books<'a>,
}

impl Sender<'_> {
    /// Tells the scheduler what happened and does what follows, until nothing does.
    fn tell(&mut self, input: Input, now: Timestamp) {
        let mut inputs = VecDeque::from([input]);
        let mut commands = Vec::new();
        while let Some(input) = inputs.pop_front() {
            self.scheduler.handle(input, now, &mut self.dice, &mut commands);
            for command in commands.drain(..) {
                match command {
                    Command::Send { delivery, .. } => {
                        let outcome = self.books.answer(now);
                        self.flights.push_back((now + ANSWERS_AFTER, delivery.id, outcome));
                    }
                    Command::Settle(settlement) => self.settle(settlement, now),
                    Command::Refill { ticket, track, after, limit, .. } => {
                        let deliveries = self.store.read(track, after, limit);
                        let exhausted = deliveries.len() < limit;
                        inputs.push_back(Input::Refilled { ticket, deliveries, exhausted });
                    }
                    Command::SaveGate { .. } | Command::Announce { .. } => {}
                }
            }
        }
    }

    fn settle(&mut self, settlement: Settlement, now: Timestamp) {
        let (seq, attempts) = (settlement.delivery.seq, settlement.delivery.progress.attempts);
        match settlement.decision {
            Decision::Delivered => {
                self.store.take(seq);
                self.books.ended(seq, true, attempts, now);
            }
            Decision::Dead(_) => {
                self.store.take(seq);
                self.books.ended(seq, false, attempts, now);
            }
            Decision::RetryAt(_) | Decision::Requeue => {
                self.store.take(seq);
                self.store.put(settlement.delivery);
            }
        }
    }
}

/// What is not finished, by place as the scheduler reads it, and by the time at which it gives up.
#[derive(Default)]
struct Store {
    by_place: [BTreeMap<Place, Delivery>; 2],
    places: HashMap<u64, (Track, Place)>,
    give_ups: BTreeSet<(Timestamp, u64)>,
}

impl Store {
    fn put(&mut self, delivery: Delivery) {
        let (seq, track, place) = (delivery.seq, delivery.track(), delivery.place());
        self.places.insert(seq, (track, place));
        self.give_ups.insert((delivery.progress.give_up_at, seq));
        self.by_place[slot(track)].insert(place, delivery);
    }

    fn take(&mut self, seq: u64) {
        if let Some((track, place)) = self.places.remove(&seq)
            && let Some(delivery) = self.by_place[slot(track)].remove(&place)
        {
            self.give_ups.remove(&(delivery.progress.give_up_at, seq));
        }
    }

    fn read(&self, track: Track, after: Option<Place>, limit: usize) -> Vec<Delivery> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.by_place[slot(track)].range((from, Bound::Unbounded)).take(limit);
        found.map(|(_, delivery)| delivery.clone()).collect()
    }

    fn next_give_up_at(&self) -> Option<Timestamp> {
        self.give_ups.first().map(|(at, _)| *at)
    }

    /// What has run out of time. It is told once: what is on its way just then is judged by its answer.
    fn take_overdue(&mut self, now: Timestamp) -> Vec<Delivery> {
        let mut overdue = Vec::new();
        while self.next_give_up_at().is_some_and(|at| at <= now)
            && let Some((_, seq)) = self.give_ups.pop_first()
        {
            let delivery = self.places.get(&seq).and_then(|(track, place)| self.by_place[slot(*track)].get(place));
            overdue.extend(delivery.cloned());
        }
        overdue
    }
}

fn slot(track: Track) -> usize {
    match track {
        Track::First => 0,
        Track::Retry => 1,
    }
}
