//! What gates announce, and what waiting deliveries are said to wait for.

use doorstep_core::delivery::Delivery;
use doorstep_core::gate::{GateChange, Hold, ThrottleReason, Why};
use doorstep_core::id::DestinationId;
use doorstep_core::outcome::{Class, Outcome, Quota};
use doorstep_core::scheduler::Hand;
use doorstep_core::time::{Millis, Timestamp};

use super::facts::Tripped;
use super::{Checker, Request, Verdict, Watched, ensure};

/// With so many slots, no few tenants can leave none to another.
const ENOUGH_SLOTS: usize = 16;

impl Checker {
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
                let by_quota = matches!(during, Some(Outcome::Accepted { quota: Some(Quota { left: 0, .. }) }));
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
                facts.falls += u32::from(facts.back.is_some());
                facts.stands_still(now);
                (facts.failures_in_row, facts.row_counts_from) = (0, since_request);
                facts.recent.clear();
            }
            GateChange::Recovered => {
                ensure(facts.tripped.is_some(), || format!("{id} recovered from nothing"))?;
                facts.tripped = None;
                facts.comes_back(now);
                (facts.failures_in_row, facts.row_counts_from) = (0, since_request);
                facts.recent.clear();
            }
            GateChange::Suspended(_) => {
                ensure(facts.is_unwanted() && !facts.suspended, || {
                    let (permanent, gone) = (facts.permanent_in_row, facts.gone_in_row);
                    format!("{id} was suspended after {permanent} times no in a row, {gone} times 410")
                })?;
                facts.suspended = true;
                facts.stands_still(now);
            }
        }
        Ok(())
    }

    pub fn handled(&mut self, id: DestinationId, hand: Hand, now: Timestamp) {
        let Some(Watched { facts, .. }) = self.destinations.get_mut(&id) else { return };
        match hand {
            Hand::Pause => {
                facts.paused = true;
                facts.stands_still(now);
            }
            Hand::Resume if facts.paused || facts.suspended => {
                (facts.paused, facts.suspended) = (false, false);
                // One that is tripped comes back with its probe.
                if facts.tripped.is_none() {
                    facts.comes_back(now);
                }
                (facts.permanent_in_row, facts.gone_in_row) = (0, 0);
            }
            Hand::Resume => {}
            Hand::Probe => {
                if let Some(tripped) = &mut facts.tripped {
                    tripped.until = tripped.until.min(now);
                }
            }
            Hand::ClearThrottle { .. } => (facts.quiet_until, facts.throttles_in_row) = (Timestamp::default(), 0),
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
            (
                Why::DueTime | Why::UnreadablePayload | Why::Throttle | Why::Breaker | Why::Pace | Why::Capacity,
                Some(until),
            ) => until > now && (busy || wakes_at.is_some_and(|at| at <= until + read_again)),
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
}
