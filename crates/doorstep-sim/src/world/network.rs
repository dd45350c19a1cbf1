//! The network: what producers send, and what receivers answer.

use super::*;

impl World {
    pub(super) fn arrives(&mut self, index: usize) -> Verdict {
        // A producer whose event is not acknowledged sends it again.
        if self.process.is_none() {
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

    pub(super) fn answers(&mut self, delivery_id: DeliveryId, outcome: Outcome) -> Verdict {
        self.note(|| format!("{delivery_id} ← {outcome:?}"));
        let now = self.clock();
        let destination_id = self.store.row(delivery_id).map(|row| row.delivery.destination_id);
        self.checker.answered(delivery_id, &outcome, now);
        let life = self.lives;
        self.tell(Input::Answered { delivery_id, outcome }, Some(&outcome))?;
        match destination_id {
            Some(id) if life == self.lives => self.checker.settled_down(id),
            _ => Ok(()),
        }
    }
}
