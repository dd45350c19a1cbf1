//! The network: what producers send, and what receivers answer.

use super::*;

impl World {
    pub(super) fn arrives(&mut self, index: usize) -> Verdict {
        // A producer whose event is not acknowledged sends it again.
        if self.process.is_none() || self.stopping {
            self.at(self.now + Millis::from_secs(10), Happening::Arrives(index));
        } else {
            self.gather(Write::Accept(index));
            self.start_commit();
        }
        Ok(())
    }

    pub(super) fn reaches(&mut self, life: u32, delivery_id: DeliveryId, destination_id: DestinationId, lost: bool) {
        let now = self.now;
        let found = self.scenario.destinations.iter_mut().find(|(plan, _)| plan.id == destination_id);
        let Some((_, receiver)) = found else { return };
        let reply = receiver.receive(now);
        let overrides = StatusOverrides::default();
        let (after, outcome) = match reply {
            Reply::Answer { after, status, hints } if after < TIMEOUT => {
                if (200..300).contains(&status) {
                    self.checker.received(delivery_id);
                }
                (after, Outcome::from_status(status, hints, &overrides))
            }
            Reply::Answer { .. } => {
                self.checker.received(delivery_id);
                (TIMEOUT, Outcome::TimedOut)
            }
            Reply::Silence => (TIMEOUT, Outcome::TimedOut),
            Reply::Reset { after } => (after, Outcome::Unreachable),
        };
        let happening = if lost {
            Happening::Interrupts { life, delivery_id }
        } else {
            Happening::Answers { life, delivery_id, outcome }
        };
        self.at(self.now + after, happening);
    }

    /// What was said together is looked up together.
    pub(super) fn look_up_empty(&mut self) {
        let Some(process) = &mut self.process else { return };
        let (empty, unreadable) = (std::mem::take(&mut process.empty), std::mem::take(&mut process.unreadable));
        let life = self.lives;
        if !empty.is_empty() {
            self.soon(5, Happening::Voids { life, delivery_ids: empty });
        }
        if !unreadable.is_empty() {
            self.soon(5, Happening::SetsAside { life, delivery_ids: unreadable });
        }
    }

    pub(super) fn is_unreadable(&self, id: DeliveryId) -> bool {
        let arrival = usize::try_from(id.0 - 1).ok().and_then(|index| self.scenario.arrivals.get(index));
        arrival.and_then(|arrival| arrival.unreadable_until).is_some_and(|until| self.now < until)
    }

    /// What was to be sent cannot be read.
    pub(super) fn sets_aside(&mut self, delivery_ids: Vec<DeliveryId>) -> Verdict {
        self.note(|| format!("the payloads of {delivery_ids:?} cannot be read"));
        for id in &delivery_ids {
            self.checker.set_aside(*id);
        }
        self.goes_on_without(Input::Unreadable { delivery_ids: delivery_ids.clone() }, delivery_ids)
    }

    /// Nothing is found that could be sent.
    pub(super) fn voids(&mut self, delivery_ids: Vec<DeliveryId>) -> Verdict {
        self.note(|| format!("nothing to send for {delivery_ids:?}"));
        for id in &delivery_ids {
            self.checker.voided(*id)?;
        }
        self.goes_on_without(Input::Voided { delivery_ids: delivery_ids.clone() }, delivery_ids)
    }

    fn goes_on_without(&mut self, input: Input, delivery_ids: Vec<DeliveryId>) -> Verdict {
        let life = self.lives;
        self.tell(input, None)?;
        let now = self.clock();
        let Some(process) = self.process.as_ref().filter(|_| life == self.lives) else { return Ok(()) };
        for id in delivery_ids {
            let hold = self.store.row(id).and_then(|row| process.scheduler.hold(&row.delivery, now));
            self.checker.goes_on_after(id, hold)?;
        }
        Ok(())
    }

    pub(super) fn answers(&mut self, delivery_id: DeliveryId, outcome: Outcome) -> Verdict {
        self.note(|| format!("{delivery_id} ← {outcome:?}"));
        let now = self.clock();
        let destination_id = self.store.row(delivery_id).map(|row| row.delivery.destination_id);
        self.checker.answered(delivery_id, &outcome, now);
        let life = self.lives;
        self.tell(Input::Answered { delivery_id, outcome }, Some(&outcome))?;
        match destination_id {
            Some(id) if life == self.lives => self.checker.settled_down(id, &outcome, now),
            _ => Ok(()),
        }
    }
}
