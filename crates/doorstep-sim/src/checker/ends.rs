//! What is said and written of deliveries, and what is left of it after a crash, a stop and in the end.

use std::collections::BTreeSet;

use doorstep_core::delivery::{BehindDead, Delivery, Ordering, Settlement};
use doorstep_core::id::{DeliveryId, DestinationId};
use doorstep_core::outcome::{Class, Outcome};
use doorstep_core::retry::{DeadReason, Decision};
use doorstep_core::time::{Millis, Timestamp};

use super::{Account, Checker, Facts, Verdict, Watched, ensure};

impl Checker {
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
        // Who ends it untried may have read it before its last answer was written; what is written in the end is looked
        // at then.
        if !settlement.ends_untried() {
            let (shown, spent) = (settlement.delivery.progress.attempts, account.spent);
            ensure(shown == spent, || format!("{id} is charged {shown} attempts, and has spent {spent}"))?;
            let (shown, had) = (settlement.delivery.progress.ambiguous, account.ambiguous);
            ensure(shown == had, || format!("{id} is said to have had {shown} ambiguous answers, and had {had}"))?;
        }
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
    /// or a suspension survives a restart if the answer that caused it does. `row`: the delivery as the store has it now.
    pub fn written(&mut self, settlement: &Settlement, facts: &Facts, row: Option<&Delivery>) -> Verdict {
        if let Some(watched) = self.destinations.get_mut(&settlement.delivery.destination_id) {
            watched.written.quiet_until = facts.quiet_until;
            watched.written.throttles_in_row = facts.throttles_in_row;
            watched.written.tripped = facts.tripped;
            watched.written.suspended = facts.suspended;
        }
        let give_up_at = settlement.delivery.progress.give_up_at;
        let account = self.deliveries.get_mut(&settlement.delivery.id).filter(|a| a.give_up_at == give_up_at);
        let Some(account) = account.filter(|account| account.end_written.is_none()) else { return Ok(()) };
        if !settlement.ends_untried() {
            // Not the present ones: since this was said there may have been further answers.
            account.spent_written = settlement.delivery.progress.attempts;
            account.ambiguous_written = settlement.delivery.progress.ambiguous;
        }
        match settlement.decision {
            Decision::RetryAt(at) => account.due_at_written = at,
            Decision::Requeue => {}
            Decision::Delivered | Decision::Dead(_) => {
                account.end_written = Some(settlement.decision);
                account.end = account.end_written;
            }
        }
        let Some(row) = row else { return Ok(()) };
        let (spent, written) = (account.spent_written, row.progress.attempts);
        ensure(spent == written, || format!("{} has spent {spent} attempts, and {written} are written", row.id))?;
        let (had, written) = (account.ambiguous_written, row.progress.ambiguous);
        ensure(had == written, || format!("{} had {had} ambiguous answers, and {written} are written", row.id))
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
}
