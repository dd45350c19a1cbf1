//! What must never happen, in its own words.
//!
//! The checker sees what a bystander could see: which requests started and how they ended, what was said to be written
//! and what was written. It keeps its own books and never asks the code under test what it thinks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use doorstep_core::delivery::{BehindDead, Delivery, Ordering, Settlement};
use doorstep_core::gate::{GateChange, Hold, ThrottleReason, Why};
use doorstep_core::id::{DeliveryId, DestinationId};
use doorstep_core::outcome::{Class, Outcome};
use doorstep_core::retry::{DeadReason, Decision};
use doorstep_core::scheduler::{DestinationPlan, Hand};
use doorstep_core::time::{Millis, Timestamp};

/// A promise that was not kept, in words.
pub type Verdict = Result<(), String>;

#[derive(Debug)]
pub struct Checker {
    destinations: BTreeMap<DestinationId, Watched>,
    deliveries: BTreeMap<DeliveryId, Account>,
    order: BTreeMap<(DestinationId, Arc<str>), Vec<DeliveryId>>,
    open: BTreeMap<DeliveryId, Request>,
    n_requests: u64,
    n_voided: usize,
    /// The number of the request whose answer came last.
    last_answered: u64,
    in_flight_max: usize,
    /// Ended by a person, which the process has not been told yet.
    untold_ends: BTreeSet<DeliveryId>,
    per_host_max: Option<usize>,
}

#[derive(Debug)]
struct Watched {
    plan: DestinationPlan,
    facts: Facts,
    /// The facts as they were when the gate was last written.
    written: Facts,
    starts: VecDeque<Timestamp>,
    /// It never does anything wrong, and neither does anything but other receivers.
    undisturbed: bool,
    n_accepted: u64,
    /// A person removed it, and that is written; and the scheduler knows.
    removed: bool,
    dropped: bool,
}

/// What is known of a destination from its answers.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Nothing may be sent before: it was asked not to.
    quiet_until: Timestamp,
    throttles_in_row: usize,
    /// The number of the first request that a later throttle may count.
    throttle_counts_from: u64,
    tripped: Option<Tripped>,
    failures_in_row: u32,
    /// Answers to earlier requests say nothing about the present.
    row_counts_from: u64,
    /// Answers since it last came back or tripped, and whether they were failures.
    recent: VecDeque<(Timestamp, bool)>,
    paused: bool,
    suspended: bool,
    permanent_in_row: u32,
    gone_in_row: u32,
    /// It has come back from a standstill, and has answered so often since.
    ramp: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Tripped {
    until: Timestamp,
    since_request: u64,
}

#[derive(Clone, Debug, Default)]
struct Account {
    destination_id: Option<DestinationId>,
    /// Answers that cost an attempt, as said and as written.
    spent: u32,
    spent_written: u32,
    ambiguous: u32,
    ambiguous_written: u32,
    due_at: Timestamp,
    due_at_written: Timestamp,
    give_up_at: Timestamp,
    end: Option<Decision>,
    end_written: Option<Decision>,
    received: bool,
    /// Its payload is gone, and that is written.
    erased: bool,
    /// It is dead, and its destination held the keys of the dead when that was said.
    holds_key: bool,
}

#[derive(Clone, Debug)]
struct Request {
    destination_id: DestinationId,
    number: u64,
    started_at: Timestamp,
    host: Arc<str>,
    /// Tells the delivery's life from one that a person gave it later.
    give_up_at: Timestamp,
    /// It went out while its destination was tripped.
    probe: bool,
}

/// How long a destination is left alone that refuses without saying for how long.
const UNSAID: [u64; 5] = [60, 300, 900, 3_600, 21_600];
const DAY: Millis = Millis::from_hours(24);
const MINUTE: Millis = Millis::from_mins(1);
/// With so many slots, no few tenants can leave none to another.
const ENOUGH_SLOTS: usize = 16;

impl Checker {
    /// `plans`: each destination, and whether it and everything around it but the other receivers is well.
    pub fn new(plans: Vec<(DestinationPlan, bool)>, in_flight_max: usize, per_host_max: Option<usize>) -> Self {
        let watched = |plan: DestinationPlan, well: bool| Watched {
            undisturbed: well && plan.ordering == Ordering::Unordered && plan.limits.burst > 5,
            n_accepted: 0,
            removed: false,
            dropped: false,
            plan,
            facts: Facts::default(),
            written: Facts::default(),
            starts: VecDeque::new(),
        };
        Self {
            destinations: plans.into_iter().map(|(plan, well)| (plan.id, watched(plan, well))).collect(),
            deliveries: BTreeMap::new(),
            order: BTreeMap::new(),
            open: BTreeMap::new(),
            n_requests: 0,
            n_voided: 0,
            last_answered: 0,
            in_flight_max,
            untold_ends: BTreeSet::new(),
            per_host_max,
        }
    }

    /// Accepted, written and acknowledged.
    pub fn accepted(&mut self, delivery: &Delivery) {
        let account = Account {
            destination_id: Some(delivery.destination_id),
            due_at: delivery.due_at,
            due_at_written: delivery.due_at,
            give_up_at: delivery.progress.give_up_at,
            ..Account::default()
        };
        self.deliveries.insert(delivery.id, account);
        if let Some(watched) = self.destinations.get_mut(&delivery.destination_id) {
            watched.n_accepted += 1;
        }
        if let Some(slot) = &delivery.ordering {
            self.order.entry((delivery.destination_id, Arc::clone(&slot.key))).or_default().push(delivery.id);
        }
    }

    /// A person sends a dead letter again, with a fresh budget.
    pub fn revived(&mut self, delivery: &Delivery, now: Timestamp) {
        let account = self.deliveries.entry(delivery.id).or_default();
        let (received, erased, holds_key) = (account.received, account.erased, account.holds_key);
        *account = Account {
            destination_id: Some(delivery.destination_id),
            due_at: now,
            due_at_written: now,
            give_up_at: delivery.progress.give_up_at,
            received,
            erased,
            ..Account::default()
        };
        if let Some(slot) = &delivery.ordering
            && !holds_key
            && let Some(order) = self.order.get_mut(&(delivery.destination_id, Arc::clone(&slot.key)))
        {
            order.retain(|id| *id != delivery.id);
            order.push(delivery.id);
        }
    }

    pub fn started(&mut self, delivery: &Delivery, now: Timestamp) -> Verdict {
        self.n_requests += 1;
        let number = self.n_requests;
        let id = delivery.id;
        let account = self.deliveries.get(&id).ok_or(format!("{id} was sent and never accepted"))?;
        let (due_at, give_up_at) = (account.due_at, account.give_up_at);
        ensure(!self.open.contains_key(&id), || format!("{id} was sent twice at once"))?;
        // The books are ahead of a process that has not been told of an end: they may show the next life already.
        if !self.untold_ends.contains(&id) {
            ensure(account.end.is_none(), || format!("{id} was sent after its end: {:?}", account.end))?;
            ensure(now >= due_at, || format!("{id} was sent before its time, {due_at:?}"))?;
            ensure(now < give_up_at, || format!("{id} was sent after its window, {give_up_at:?}"))?;
            self.in_order(delivery)?;
        }

        let waited = now.since(due_at);
        let open = self.open_at(delivery.destination_id, 0);
        let watched = self.destinations.get_mut(&delivery.destination_id).ok_or("sent to nowhere")?;
        ensure(!watched.dropped, || format!("{id} was sent to a destination that is removed"))?;
        watched.may_start(open, now)?;
        watched.was_prompt(id, waited)?;
        let probe = watched.facts.tripped.is_some();
        if let Some(tripped) = watched.facts.tripped {
            ensure(now >= tripped.until, || format!("sent while tripped, until {:?}", tripped.until))?;
            let probes = self.open_at(delivery.destination_id, tripped.since_request);
            ensure(probes == 0, || "two probes at once".to_owned())?;
        }
        ensure(self.open.len() < self.in_flight_max, || "over the cap of all requests at once".to_owned())?;
        self.within_host_cap(delivery.destination_id)?;
        self.leaves_something(delivery.destination_id)?;
        let give_up_at = delivery.progress.give_up_at;
        let host = Arc::clone(&self.destinations[&delivery.destination_id].plan.host);
        let destination_id = delivery.destination_id;
        self.open.insert(id, Request { destination_id, number, started_at: now, host, give_up_at, probe });
        Ok(())
    }

    fn open_at(&self, destination_id: DestinationId, since_request: u64) -> usize {
        let here = |request: &&Request| request.destination_id == destination_id && request.number >= since_request;
        self.open.values().filter(here).count()
    }

    fn within_host_cap(&self, destination_id: DestinationId) -> Verdict {
        let Some(max) = self.per_host_max else { return Ok(()) };
        let host = &self.destinations[&destination_id].plan.host;
        let open = self.open.values().filter(|request| request.host == *host).count();
        ensure(open < max, || format!("over the cap of {max} requests at once to {host}"))
    }

    /// Whoever has a slot never takes the last one: a tenant that has none finds one.
    fn leaves_something(&self, destination_id: DestinationId) -> Verdict {
        let Watched { plan, .. } = &self.destinations[&destination_id];
        let tenant_of = |request: &Request| self.destinations[&request.destination_id].plan.tenant_id;
        let mine = self.open.values().filter(|request| tenant_of(request) == plan.tenant_id);
        let (n_mine, n_mine_here) =
            mine.fold((0, 0), |(all, here), request| (all + 1, here + usize::from(request.host == plan.host)));
        let left = self.in_flight_max - self.open.len();
        ensure(n_mine == 0 || left > 1, || format!("the last slot went to {}, which has {n_mine}", plan.tenant_id))?;
        let Some(max) = self.per_host_max else { return Ok(()) };
        let left = max - self.open.values().filter(|request| request.host == plan.host).count();
        ensure(n_mine_here == 0 || left > 1, || {
            format!("the last slot at {} went to {}, which has {n_mine_here}", plan.host, plan.tenant_id)
        })
    }

    /// All before it in its key have ended, and none of those holds the key.
    fn in_order(&self, delivery: &Delivery) -> Verdict {
        let Some(slot) = &delivery.ordering else { return Ok(()) };
        let order = &self.order[&(delivery.destination_id, Arc::clone(&slot.key))];
        for before in order.iter().take_while(|id| **id != delivery.id) {
            let account = &self.deliveries[before];
            match account.end_written {
                None => return Err(format!("{} overtook {before} with the same key", delivery.id)),
                Some(Decision::Dead(_)) if account.holds_key => {
                    return Err(format!("{} passed {before}, which is dead and holds their key", delivery.id));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// A person changed its settings.
    pub fn changed(&mut self, plan: DestinationPlan) {
        if let Some(watched) = self.destinations.get_mut(&plan.id) {
            watched.plan = plan;
            // What was sent at another rate says nothing about the new one.
            watched.starts.clear();
        }
    }

    /// A person removed it, with all that was queued for it, and that is written.
    pub fn removed(&mut self, id: DestinationId) {
        if let Some(watched) = self.destinations.get_mut(&id) {
            watched.removed = true;
        }
    }

    /// The scheduler hears that it is removed.
    pub fn dropped(&mut self, id: DestinationId) {
        if let Some(watched) = self.destinations.get_mut(&id) {
            watched.dropped = true;
        }
    }

    /// A person ended it, and that is written.
    /// A person ended it, and that is written. Until the process is told so, it may still send it: the person has no answer yet.
    pub fn abandoned(&mut self, id: DeliveryId) {
        self.untold_ends.insert(id);
        if let Some(account) = self.deliveries.get_mut(&id) {
            account.end = Some(Decision::Dead(DeadReason::Abandoned));
            (account.end_written, account.holds_key) = (account.end, false);
        }
    }

    /// The process knows that a person ended it.
    pub fn end_told(&mut self, id: DeliveryId) {
        self.untold_ends.remove(&id);
    }

    /// A receiver said 2xx.
    pub fn received(&mut self, id: DeliveryId) {
        if let Some(account) = self.deliveries.get_mut(&id) {
            account.received = true;
        }
    }

    /// An answer reaches the scheduler.
    pub fn answered(&mut self, id: DeliveryId, outcome: &Outcome, now: Timestamp) {
        let Some(request) = self.open.remove(&id) else { return };
        self.last_answered = request.number;
        let account = self.deliveries.entry(id).or_default();
        match outcome.class() {
            _ if account.give_up_at != request.give_up_at => {}
            Class::Throttled => {}
            Class::Ambiguous => {
                account.spent += u32::from(!request.probe);
                account.ambiguous += 1;
            }
            // A probe is the destination's matter: its failure costs the delivery nothing.
            Class::Transient => account.spent += u32::from(!request.probe),
            Class::Success | Class::Permanent => account.spent += 1,
        }
        let n_requests = self.n_requests;
        if let Some(watched) = self.destinations.get_mut(&request.destination_id) {
            watched.facts.learn(request.number, outcome, n_requests, now);
            watched.facts.climb(watched.plan.limits.concurrency);
        }
    }

    pub fn interrupted(&mut self, id: DeliveryId) {
        self.open.remove(&id);
    }

    /// A person erased its payload, and that is written.
    pub fn erased(&mut self, id: DeliveryId) {
        if let Some(account) = self.deliveries.get_mut(&id) {
            account.erased = true;
        }
    }

    /// There was nothing to send: no request was made, so none counts.
    pub fn voided(&mut self, id: DeliveryId) -> Verdict {
        let Some(request) = self.open.remove(&id) else { return Ok(()) };
        self.n_voided += 1;
        let removed = self.destinations.get(&request.destination_id).is_some_and(|watched| watched.removed);
        ensure(self.deliveries[&id].erased || removed, || format!("{id} has a payload and was not sent"))?;
        if let Some(watched) = self.destinations.get_mut(&request.destination_id)
            && let Some(at) = watched.starts.iter().position(|start| *start == request.started_at)
        {
            watched.starts.remove(at);
        }
        Ok(())
    }

    /// Whoever had nothing to send holds up nobody. `hold`: what another one there would wait for.
    pub fn goes_on_after(&self, id: DeliveryId, hold: Option<Hold>) -> Verdict {
        let rests = hold.is_some_and(|hold| hold.why == Why::Capacity && hold.until.is_some());
        ensure(!rests, || format!("the destination of {id} rests though nothing went wrong: {hold:?}"))
    }

    /// After everything that followed from an answer has been said.
    pub fn settled_down(&self, id: DestinationId, outcome: &Outcome, now: Timestamp) -> Verdict {
        let facts = &self.destinations[&id].facts;
        let tired = facts.failures_in_row >= 10 && facts.tripped.is_none();
        ensure(!tired, || format!("{id} failed {} times in a row and is not tripped", facts.failures_in_row))?;
        let failed = matches!(outcome.class(), Class::Transient);
        let mostly_fails = failed && facts.tripped.is_none() && facts.mostly_fails(now) == Some(true);
        ensure(!mostly_fails, || format!("{id} mostly fails and is not tripped: {:?}", facts.recent))?;
        let unwanted = facts.is_unwanted() && !facts.suspended;
        ensure(!unwanted, || {
            let (permanent, gone) = (facts.permanent_in_row, facts.gone_in_row);
            format!("{id} said no {permanent} times in a row, {gone} times 410, and is not suspended")
        })
    }

    pub fn announced(
        &mut self,
        id: DestinationId,
        change: &GateChange,
        during: Option<&Outcome>,
        now: Timestamp,
    ) -> Verdict {
        let (since_request, answered) = (self.n_requests + 1, self.last_answered);
        let Some(watched) = self.destinations.get_mut(&id) else { return Ok(()) };
        let facts = &mut watched.facts;
        match *change {
            GateChange::Throttled { until, reason, consecutive } => {
                let by_429 = matches!(during, Some(Outcome::Throttled { .. }));
                let by_quota = matches!(during, Some(Outcome::Accepted { quota_spent_for: Some(_) }));
                let by_maintenance = matches!(during, Some(Outcome::Failed { status: 503, wait: Some(_) }));
                ensure(by_429 || by_quota || by_maintenance, || format!("{id} was throttled by {during:?}"))?;
                if by_maintenance {
                    let counted = usize::try_from(consecutive).unwrap_or(usize::MAX);
                    let right = counted == facts.throttles_in_row && reason == ThrottleReason::Maintenance;
                    ensure(right, || format!("{id} counts maintenance as throttle {consecutive} ({reason:?})"))?;
                    let quiet = facts.quiet_until;
                    ensure(until >= quiet, || format!("{id} is left alone until {until:?}, not {quiet:?}"))?;
                }
                if by_429 {
                    facts.throttle_is_right(id, until, reason, consecutive, during, now)?;
                }
            }
            GateChange::Unthrottled => {
                ensure(facts.throttles_in_row == 0, || format!("{id} forgot its throttles without a success"))?;
            }
            GateChange::Tripped { until, .. } => {
                let by_failure = matches!(during.map(Outcome::class), Some(Class::Transient));
                let probe = facts.tripped.is_some();
                ensure(by_failure || probe, || format!("{id} was tripped by {during:?}"))?;
                let enough = probe || facts.failures_in_row >= 10 || facts.mostly_fails(now) != Some(false);
                ensure(enough, || format!("{id} was tripped by too little: {:?}", facts.recent))?;
                let late = facts.tripped.is_some_and(|tripped| answered < tripped.since_request);
                ensure(!late, || format!("{id} was tripped again by an answer from before the trip"))?;
                let cool_down = until.since(now);
                let right = (Millis::from_secs(30)..=Millis::from_mins(12)).contains(&cool_down);
                ensure(right, || format!("{id} cools down for {cool_down}"))?;
                facts.tripped = Some(Tripped { until, since_request });
                (facts.failures_in_row, facts.row_counts_from) = (0, since_request);
                facts.recent.clear();
            }
            GateChange::Recovered => {
                ensure(facts.tripped.is_some(), || format!("{id} recovered from nothing"))?;
                (facts.tripped, facts.ramp) = (None, Some(0));
                (facts.failures_in_row, facts.row_counts_from) = (0, since_request);
                facts.recent.clear();
            }
            GateChange::Suspended(_) => {
                ensure(facts.is_unwanted() && !facts.suspended, || {
                    let (permanent, gone) = (facts.permanent_in_row, facts.gone_in_row);
                    format!("{id} was suspended after {permanent} times no in a row, {gone} times 410")
                })?;
                facts.suspended = true;
            }
        }
        Ok(())
    }

    /// What the scheduler says is to be written.
    pub fn said(&mut self, settlement: &Settlement, now: Timestamp) -> Verdict {
        let id = settlement.delivery.id;
        let Watched { plan, removed, .. } = &self.destinations[&settlement.delivery.destination_id];
        if *removed {
            return Ok(()); // Nobody is left to write it for.
        }
        let Some(account) = self.deliveries.get_mut(&id) else {
            return Err(format!("{id} was settled and never accepted"));
        };
        if settlement.delivery.progress.give_up_at != account.give_up_at {
            return Ok(()); // Said of its life before a person sent it again: nobody will act on it.
        }
        let voids = settlement.decision == Decision::Dead(DeadReason::Abandoned);
        if account.end.is_some() && !voids {
            return Ok(()); // It was found overdue once more before its end was written.
        }
        let (shown, spent) = (settlement.delivery.progress.attempts, account.spent);
        ensure(shown == spent, || format!("{id} is charged {shown} attempts, and has spent {spent}"))?;
        let (shown, had) = (settlement.delivery.progress.ambiguous, account.ambiguous);
        ensure(shown == had, || format!("{id} is said to have had {shown} ambiguous answers, and had {had}"))?;
        let max = plan.policy.max_attempts();
        match settlement.decision {
            Decision::RetryAt(at) => {
                ensure(account.spent < max, || format!("{id} is retried after {} of {max} attempts", account.spent))?;
                let asked = match settlement.outcome {
                    // Of a 503 the whole destination waits, until a person ends it.
                    Some(Outcome::Failed { status, wait }) if status != 503 => wait.unwrap_or(Millis::ZERO),
                    Some(Outcome::Ambiguous { wait, .. }) => wait.unwrap_or(Millis::ZERO),
                    _ => Millis::ZERO,
                };
                ensure(at >= now + asked, || format!("{id} is retried sooner than the {asked} that were asked for"))?;
                ensure(at >= now + Millis(500), || format!("{id} is retried at once"))?;
                account.due_at = at;
            }
            Decision::Requeue => {
                let throttled = matches!(settlement.outcome, Some(Outcome::Throttled { .. }));
                ensure(throttled, || format!("{id} was put back after {:?}", settlement.outcome))?;
            }
            Decision::Delivered => {
                ensure(account.received, || format!("{id} is said to be delivered and never arrived"))?;
            }
            Decision::Dead(DeadReason::Exhausted) => {
                ensure(account.spent == max, || {
                    format!("{id} is exhausted after {} of {max} attempts", account.spent)
                })?;
            }
            Decision::Dead(DeadReason::Expired) => {
                // Either its window has closed, or there is no room for another attempt: a second, or what was asked for.
                let asked = match settlement.outcome {
                    Some(Outcome::Failed { status, wait }) if status != 503 => wait.unwrap_or(Millis::ZERO),
                    _ => Millis::ZERO,
                };
                let closes_soon = now + asked + Millis::from_secs(3) >= account.give_up_at;
                ensure(closes_soon, || format!("{id} expired long before {:?}", account.give_up_at))?;
            }
            Decision::Dead(DeadReason::Rejected) => {
                let final_no = matches!(settlement.outcome.map(|o| o.class()), Some(Class::Permanent));
                ensure(final_no || account.ambiguous >= 5, || {
                    format!("{id} was rejected by {:?}", settlement.outcome)
                })?;
            }
            Decision::Dead(DeadReason::Abandoned) => {
                ensure(account.erased, || format!("{id} was abandoned by nobody"))?;
                ensure(account.end.is_none(), || format!("{id} ended twice: {:?} before", account.end))?;
                ensure(settlement.outcome.is_none(), || format!("{id} has no payload, and an answer"))?;
                ensure(settlement.note.is_some(), || format!("{id} ended without a word"))?;
            }
        }
        if matches!(settlement.decision, Decision::Delivered | Decision::Dead(_)) && account.end.is_none() {
            account.end = Some(settlement.decision);
            let by_itself = !matches!(settlement.decision, Decision::Delivered | Decision::Dead(DeadReason::Abandoned));
            account.holds_key = by_itself && plan.ordering == (Ordering::ByKey { behind_dead: BehindDead::Hold });
        }
        Ok(())
    }

    /// It is on disk. So is what it meant for its destination (`facts`, as they were when it was said): a throttle, a trip
    /// or a suspension survives a restart if the answer that caused it does.
    pub fn written(&mut self, settlement: &Settlement, facts: &Facts) {
        if let Some(watched) = self.destinations.get_mut(&settlement.delivery.destination_id) {
            watched.written.quiet_until = facts.quiet_until;
            watched.written.throttles_in_row = facts.throttles_in_row;
            watched.written.tripped = facts.tripped;
            watched.written.suspended = facts.suspended;
        }
        let give_up_at = settlement.delivery.progress.give_up_at;
        let account = self.deliveries.get_mut(&settlement.delivery.id).filter(|a| a.give_up_at == give_up_at);
        let Some(account) = account else { return };
        // Not the present ones: since this was said there may have been further answers.
        account.spent_written = settlement.delivery.progress.attempts;
        account.ambiguous_written = settlement.delivery.progress.ambiguous;
        match settlement.decision {
            Decision::RetryAt(at) => account.due_at_written = at,
            Decision::Requeue => {}
            Decision::Delivered | Decision::Dead(_) if account.end_written.is_none() => {
                account.end_written = Some(settlement.decision);
                account.end = account.end_written;
            }
            Decision::Delivered | Decision::Dead(_) => {}
        }
    }

    pub fn facts(&self, id: DestinationId) -> Facts {
        self.destinations[&id].facts.clone()
    }

    pub fn gate_written(&mut self, id: DestinationId, facts: Facts) {
        if let Some(watched) = self.destinations.get_mut(&id) {
            watched.written = facts;
        }
    }

    /// The process died: what was not written has not happened.
    pub fn crashed(&mut self) {
        self.untold_ends.clear();
        self.open.clear();
        for account in self.deliveries.values_mut() {
            account.spent = account.spent_written;
            account.ambiguous = account.ambiguous_written;
            account.due_at = account.due_at_written;
            account.end = account.end_written;
        }
        let from = self.n_requests + 1;
        for watched in self.destinations.values_mut() {
            watched.facts = watched.written.clone();
            // What was sent in the last second is not written: a burst may follow a restart.
            watched.starts.clear();
            watched.facts.throttle_counts_from = from;
            watched.facts.row_counts_from = from;
            if let Some(tripped) = &mut watched.facts.tripped {
                tripped.since_request = from;
            }
        }
    }

    /// The process stopped in order: all that it said is written, and nothing is forgotten.
    pub fn stopped(&mut self) -> Verdict {
        ensure(self.open.is_empty(), || format!("it stopped with {} requests in flight", self.open.len()))?;
        let is_there = |account: &Account| {
            account.destination_id.is_some_and(|id| self.destinations.get(&id).is_some_and(|watched| !watched.removed))
        };
        for (id, account) in self.deliveries.iter().filter(|(_, account)| is_there(account)) {
            let kept = account.spent == account.spent_written
                && account.ambiguous == account.ambiguous_written
                && account.due_at == account.due_at_written
                && account.end == account.end_written;
            ensure(kept || account.end_written.is_some(), || format!("it stopped and forgot what came of {id}"))?;
        }
        Ok(())
    }

    pub fn handled(&mut self, id: DestinationId, hand: Hand, now: Timestamp) {
        let Some(Watched { facts, .. }) = self.destinations.get_mut(&id) else { return };
        match hand {
            Hand::Pause => facts.paused = true,
            Hand::Resume if facts.paused || facts.suspended => {
                (facts.paused, facts.suspended, facts.ramp) = (false, false, Some(0));
                (facts.permanent_in_row, facts.gone_in_row) = (0, 0);
            }
            Hand::Resume => {}
            Hand::Probe => {
                if let Some(tripped) = &mut facts.tripped {
                    tripped.until = tripped.until.min(now);
                }
            }
            Hand::ClearThrottle => (facts.quiet_until, facts.throttles_in_row) = (Timestamp::default(), 0),
        }
    }

    /// A waiting delivery names what it waits for, and that comes. `busy`: something is under way whose end will be
    /// heard of. `reading`: the store is being read. `wakes_at`: the time that the scheduler wants to be woken.
    pub fn hold_is_right(
        &self,
        delivery: &Delivery,
        hold: Option<Hold>,
        busy: bool,
        reading: bool,
        wakes_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Verdict {
        let id = delivery.id;
        if self.open.contains_key(&id) {
            return Ok(());
        }
        let Some(hold) = hold else { return Err(format!("{id} waits and does not say for what")) };
        let here = self.open_at(delivery.destination_id, 0) > 0;
        let Watched { facts, plan, .. } = &self.destinations[&delivery.destination_id];
        // A read that failed is tried again within a second; until then nobody can know more.
        let read_again = Millis::from_secs(1);
        let right = match (hold.why, hold.until) {
            (Why::DueTime | Why::Throttle | Why::Breaker | Why::Pace | Why::Capacity, Some(until)) => {
                until > now && (busy || wakes_at.is_some_and(|at| at <= until + read_again))
            }
            (Why::Pause, None) => facts.paused,
            (Why::Suspension, None) => facts.suspended,
            (Why::Consent, None) => plan.awaits_consent,
            (Why::Concurrency | Why::Breaker, None) => here,
            (Why::HostConcurrency, None) => self.open.values().any(|request| request.host == plan.host),
            (Why::Capacity, None) => {
                let tenant_of = |request: &Request| self.destinations[&request.destination_id].plan.tenant_id;
                let has_some = self.open.values().any(|request| tenant_of(request) == plan.tenant_id);
                let many_want_few = busy && self.in_flight_max < ENOUGH_SLOTS;
                // A tenant with nothing out finds a slot at once, unless there are hardly more slots than tenants.
                has_some || many_want_few || reading || wakes_at.is_some_and(|at| at <= now + read_again)
            }
            _ => false,
        };
        ensure(right, || format!("{id} waits for {hold:?}, which is wrong or never comes (wakes {wakes_at:?})"))
    }

    /// Everything that was accepted has come to an end.
    pub fn all_ended(&self, healthy: &BTreeSet<DestinationId>, of: impl Fn(DeliveryId) -> DestinationId) -> Verdict {
        let there = |id: &DeliveryId| self.destinations.get(&of(*id)).is_some_and(|watched| !watched.removed);
        for (id, account) in self.deliveries.iter().filter(|(id, _)| there(id)) {
            let end = account.end_written.ok_or(format!("{id} was accepted and never ended"))?;
            ensure(end != Decision::Delivered || account.received, || format!("{id} is delivered and never arrived"))?;
            let fair =
                [Decision::Delivered, Decision::Dead(DeadReason::Expired), Decision::Dead(DeadReason::Abandoned)];
            let expected = fair.contains(&end);
            let failed = healthy.contains(&of(*id)) && !expected;
            ensure(!failed, || format!("{id} ended as {end:?} though its receiver was always well"))?;
        }
        Ok(())
    }

    /// How many had nothing to send.
    pub fn n_voided(&self) -> usize {
        self.n_voided
    }

    pub fn n_deliveries(&self) -> usize {
        self.deliveries.len()
    }
}

impl Watched {
    fn may_start(&mut self, open: usize, now: Timestamp) -> Verdict {
        let facts = &self.facts;
        ensure(now >= facts.quiet_until, || format!("sent inside a throttle, until {:?}", facts.quiet_until))?;
        ensure(!facts.paused, || "sent while paused".to_owned())?;
        ensure(!facts.suspended, || "sent while suspended".to_owned())?;
        ensure(!self.plan.awaits_consent, || "sent without consent".to_owned())?;
        let cap = usize::try_from(self.plan.limits.concurrency).unwrap_or(usize::MAX);
        ensure(open < cap, || format!("over the cap of {cap} requests at once"))?;
        let climbed = facts.ramp.map_or(usize::MAX, |answers| 1 + answers as usize);
        ensure(open < climbed, || format!("{} requests at once, {climbed} after it came back", open + 1))?;
        self.within_rate(now)
    }

    /// Others' trouble is not its own: it gets its deliveries as fast as it takes them.
    fn was_prompt(&self, id: DeliveryId, waited: Millis) -> Verdict {
        let most = Millis::from_secs(2) + Millis(self.n_accepted * 100 / u64::from(self.plan.limits.concurrency));
        ensure(!self.undisturbed || waited <= most, || format!("{id} waited {waited} for a receiver that is well"))
    }

    /// In no second more than the rate and its burst.
    fn within_rate(&mut self, now: Timestamp) -> Verdict {
        let second = Millis::from_secs(1);
        while self.starts.front().is_some_and(|first| *first + second <= now) {
            self.starts.pop_front();
        }
        self.starts.push_back(now);
        let most = self.plan.limits.rate.as_per_second() + f64::from(self.plan.limits.burst) + 1.0;
        let started = self.starts.len() as f64;
        ensure(started <= most, || format!("{started} requests in one second, over the rate"))
    }
}

impl Facts {
    /// Whether most of the last minute's requests failed, at least ten of them. A minute is counted in steps of ten seconds: between 50 and
    /// 60 s it may be so or so, and `None` says that.
    fn mostly_fails(&self, now: Timestamp) -> Option<bool> {
        let over = |span: Millis| {
            let recent: Vec<bool> = self.recent.iter().filter(|(at, _)| *at + span > now).map(|(_, f)| *f).collect();
            let failures = recent.iter().filter(|failed| **failed).count();
            recent.len() >= 10 && failures * 2 >= recent.len()
        };
        let starts = self.recent.iter().map(|(at, _)| now.since(*at) + Millis(1));
        let spans = starts.filter(|span| (Millis(50_000)..=MINUTE).contains(span));
        let mut verdicts = [Millis(50_000), Millis(50_001), MINUTE].into_iter().chain(spans).map(over);
        let first = verdicts.next()?;
        verdicts.all(|other| other == first).then_some(first)
    }

    /// It says no for good, again and again.
    fn is_unwanted(&self) -> bool {
        self.gone_in_row >= 3 || self.permanent_in_row >= 100
    }

    /// After each answer one more at once, until it is as many as it may have.
    fn climb(&mut self, concurrency: u32) {
        let answers = self.ramp.map(|answers| answers + 1);
        self.ramp = answers.filter(|answers| 1 + answers < concurrency);
    }

    fn counts(&mut self, request: u64, failed: bool, now: Timestamp) {
        if self.tripped.is_none() && request >= self.row_counts_from {
            self.recent.retain(|(at, _)| *at + MINUTE > now);
            self.recent.push_back((now, failed));
        }
    }

    fn learn(&mut self, request: u64, outcome: &Outcome, n_requests: u64, now: Timestamp) {
        match outcome {
            Outcome::Throttled { wait } => {
                if request >= self.throttle_counts_from {
                    self.throttle_counts_from = n_requests + 1;
                    self.throttles_in_row += 1;
                    let unsaid = Millis::from_secs(UNSAID[(self.throttles_in_row - 1).min(UNSAID.len() - 1)]);
                    self.quiet_for(wait.unwrap_or(unsaid), now);
                } else if let Some(wait) = wait {
                    self.quiet_for(*wait, now);
                }
            }
            Outcome::Accepted { quota_spent_for } => {
                if request >= self.throttle_counts_from {
                    self.throttles_in_row = 0;
                }
                self.quiet_for(quota_spent_for.unwrap_or(Millis::ZERO), now);
                self.row_ends(request);
                self.counts(request, false, now);
            }
            Outcome::Failed { .. } | Outcome::TimedOut | Outcome::Unreachable => {
                if let Outcome::Failed { status: 503, wait: Some(wait) } = outcome {
                    self.quiet_for(*wait, now);
                }
                self.counts(request, true, now);
                if self.tripped.is_none() && request >= self.row_counts_from {
                    self.failures_in_row += 1;
                }
            }
            Outcome::Ambiguous { .. } | Outcome::Rejected { .. } | Outcome::Gone => {
                self.row_ends(request);
                self.counts(request, false, now);
            }
            Outcome::Blocked => {}
        }
        match outcome {
            Outcome::Gone => {
                (self.permanent_in_row, self.gone_in_row) = (self.permanent_in_row + 1, self.gone_in_row + 1)
            }
            Outcome::Rejected { .. } => (self.permanent_in_row, self.gone_in_row) = (self.permanent_in_row + 1, 0),
            // Silence is no answer.
            Outcome::TimedOut | Outcome::Unreachable | Outcome::Blocked => {}
            Outcome::Accepted { .. }
            | Outcome::Throttled { .. }
            | Outcome::Failed { .. }
            | Outcome::Ambiguous { .. } => (self.permanent_in_row, self.gone_in_row) = (0, 0),
        }
    }

    fn row_ends(&mut self, request: u64) {
        if request >= self.row_counts_from {
            self.failures_in_row = 0;
        }
    }

    fn quiet_for(&mut self, wait: Millis, now: Timestamp) {
        if wait > Millis::ZERO {
            self.quiet_until = self.quiet_until.max(now + wait.min(DAY));
        }
    }

    fn throttle_is_right(
        &self,
        id: DestinationId,
        until: Timestamp,
        reason: ThrottleReason,
        consecutive: u32,
        during: Option<&Outcome>,
        now: Timestamp,
    ) -> Verdict {
        let counted = self.throttles_in_row;
        let right = usize::try_from(consecutive).is_ok_and(|n| n == counted);
        ensure(right, || format!("{id} counts throttle {consecutive}, which is number {counted}"))?;
        let quiet = self.quiet_until.since(now);
        let wait = until.since(now);
        let asked = matches!(during, Some(Outcome::Throttled { wait: Some(_) }));
        let longest = match (asked, reason) {
            (false, ThrottleReason::Unsaid) => quiet,
            _ => (quiet.max(Millis::from_secs(1)) + Millis(quiet.0 / 10) + Millis(100)).min(DAY),
        };
        ensure(wait >= quiet, || format!("{id} is left alone for {wait}, less than {quiet}"))?;
        ensure(wait <= longest, || format!("{id} is left alone for {wait}, more than {longest}"))
    }
}

fn ensure(kept: bool, broken: impl FnOnce() -> String) -> Verdict {
    if kept { Ok(()) } else { Err(broken()) }
}
