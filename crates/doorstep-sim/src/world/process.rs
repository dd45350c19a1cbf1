//! The process: how it starts, dies, is told and obeys.

use super::*;

impl World {
    pub(super) fn start(&mut self) -> Verdict {
        self.lives += 1;
        self.note(|| "the process starts".to_owned());
        self.clocks.start(self.now, self.store.kept_clock().newest)?;
        self.process = Some(Process {
            scheduler: Scheduler::new(self.scenario.limits.clone()),
            dice: SeededDice::new(self.dice.roll().0),
            gathered: Vec::new(),
            committing: Vec::new(),
            n_gathered: 0,
            n_committed: 0,
            reads: Vec::new(),
            reads_under_way: 0,
            empty: Vec::new(),
            unreadable: Vec::new(),
            wake_at: None,
            all_saved: false,
        });
        for (tenant_id, weight) in self.scenario.tenants.clone() {
            self.tell(Input::Weighted { tenant_id, weight }, None)?;
        }
        for index in 0..self.scenario.destinations.len() {
            self.take_back(self.scenario.destinations[index].0.id)?;
        }
        self.soon(60_000, Happening::Sweeps { life: self.lives });
        Ok(())
    }

    pub(super) fn take_back(&mut self, destination_id: DestinationId) -> Verdict {
        let found = self.scenario.destinations.iter().find(|(plan, _)| plan.id == destination_id);
        let Some((plan, _)) = found.filter(|(plan, _)| !self.removed.contains(&plan.id)) else { return Ok(()) };
        let (plan, gate) = (Box::new(plan.clone()), Box::new(self.store.gate(destination_id)));
        self.tell(Input::Adopted { plan, gate, backlog: true }, None)
    }

    /// Whoever takes a destination over reads its gate after it was written.
    pub(super) fn take_over(&mut self, destination_id: DestinationId) -> Verdict {
        let Some(process) = &self.process else { return Ok(()) };
        let leaving = process.scheduler.gate(destination_id).is_some();
        let written = process.gathered.is_empty() && process.committing.is_empty();
        if leaving || written {
            return self.take_back(destination_id);
        }
        self.at(self.now + Millis(20), Happening::TakesBack { life: self.lives, destination_id });
        Ok(())
    }

    /// Given up now, and taken back once all that was in flight or to be written has come to its end.
    pub(super) fn hand_over(&mut self, destination_id: DestinationId) -> Verdict {
        self.note(|| format!("{destination_id} is given up"));
        self.tell(Input::Dropped { destination_id }, None)?;
        let wait = if self.dice.one_in(2) { Millis::from_mins(5) } else { Millis(self.dice.below(100)) };
        self.at(self.now + wait, Happening::TakesBack { life: self.lives, destination_id });
        Ok(())
    }

    /// It sends nothing more, and ends when all that was in flight has come to its end and is written.
    pub(super) fn stop(&mut self) -> Verdict {
        if self.process.is_none() || self.stopping {
            return Ok(());
        }
        self.note(|| "the process is told to stop".to_owned());
        self.stopping = true;
        self.tell(Input::Stop, None)
    }

    pub(super) fn wind_down(&mut self) -> Verdict {
        let Some(process) = &self.process else { return Ok(()) };
        if !process.all_saved && process.scheduler.in_flight() == 0 {
            let life = self.lives;
            loop {
                let gathered = self.process.as_ref().map_or(0, |process| process.n_gathered);
                self.tell(Input::Stop, None)?;
                let Some(process) = self.process.as_mut().filter(|_| life == self.lives) else { return Ok(()) };
                if process.n_gathered == gathered {
                    process.all_saved = true;
                    break;
                }
            }
        }
        let done = |p: &Process| p.all_saved && p.gathered.is_empty() && p.committing.is_empty();
        if self.process.as_ref().is_some_and(done) {
            self.note(|| "the process has stopped".to_owned());
            self.checker.stopped()?;
            self.clocks.stop();
            (self.process, self.stopping) = (None, false);
            self.lives += 1;
            self.soon(60_000, Happening::Starts);
        }
        Ok(())
    }

    pub(super) fn crash(&mut self) -> Verdict {
        self.note(|| "CRASH".to_owned());
        self.stopping = false;
        let Some(mut process) = self.process.take() else { return Ok(()) };
        // A commit that was under way may or may not have reached the disk.
        if self.dice.one_in(2) {
            let batch = std::mem::take(&mut process.committing);
            self.apply(batch)?;
        }
        self.checker.crashed();
        self.lives += 1;
        if let Some(jump) = self.scenario.faults.clock_jumps.pop() {
            self.clocks.set_by(jump);
            self.note(|| format!("the wall clock is set by {jump} ms"));
        }
        self.soon(60_000, Happening::Starts);
        Ok(())
    }

    /// Tells the scheduler and carries out what it says. `during`: the answer that it is told of.
    pub(super) fn tell(&mut self, input: Input, during: Option<&Outcome>) -> Verdict {
        let now = self.clock();
        let Some(process) = &mut self.process else { return Ok(()) };
        let mut commands = Vec::new();
        process.scheduler.handle(input, now, &mut process.dice, &mut commands);
        let gathered_before = process.n_gathered;
        for command in commands {
            self.n_commands += 1;
            if self.scenario.faults.crashes_at.contains(&self.n_commands) {
                return self.crash();
            }
            self.carry_out(command, during, gathered_before)?;
        }
        self.start_commit();
        self.look_up_empty();
        self.set_alarm();
        Ok(())
    }

    pub(super) fn carry_out(&mut self, command: Command, during: Option<&Outcome>, gathered_before: u64) -> Verdict {
        let now = self.clock();
        match command {
            Command::Send { delivery, probe } => {
                self.note(|| {
                    format!("{} → {}{}", delivery.id, delivery.destination_id, if probe { " (probe)" } else { "" })
                });
                self.checker.started(&delivery, now)?;
                let (delivery_id, destination_id) = (delivery.id, delivery.destination_id);
                let unreadable = self.is_unreadable(delivery_id);
                let gone = self.store.events(&[delivery.event_seq]) == [StoredEvent::Gone];
                if let Some(process) = self.process.as_mut().filter(|_| unreadable || gone) {
                    let found = if gone { &mut process.empty } else { &mut process.unreadable };
                    found.push(delivery_id);
                    return Ok(());
                }
                let lost = self.dice.percent(self.scenario.faults.lost_results);
                self.soon(20, Happening::Reaches { life: self.lives, delivery_id, destination_id, lost });
                Ok(())
            }
            Command::Settle(settlement) => {
                self.note(|| format!("{} {:?}", settlement.delivery.id, settlement.decision));
                self.checker.said(&settlement, now)?;
                let facts = Box::new(self.checker.facts(settlement.delivery.destination_id));
                self.gather(Write::Settle(settlement, facts));
                Ok(())
            }
            Command::SaveGate { destination_id, state } => {
                // Written as a whole with what follows: the facts are taken once all has been announced.
                let facts = Box::new(self.checker.facts(destination_id));
                self.gather(Write::SaveGate(destination_id, state, facts));
                Ok(())
            }
            Command::Announce { destination_id, change } => {
                self.note(|| format!("{destination_id} {change:?}"));
                self.checker.announced(destination_id, &change, during, now)?;
                let said = self.process.as_ref().map_or(0, |process| process.n_gathered - gathered_before);
                self.refresh_gathered_facts(destination_id, said);
                Ok(())
            }
            Command::Refill { ticket, destination_id, track, after, limit } => {
                self.wants_read(Read { ticket, destination_id, track, after, limit });
                Ok(())
            }
        }
    }

    /// What is written of an input's consequences is written with all that was announced of them.
    pub(super) fn refresh_gathered_facts(&mut self, destination_id: DestinationId, said: u64) {
        let fresh = self.checker.facts(destination_id);
        let Some(process) = &mut self.process else { return };
        let from = process.gathered.len() - usize::try_from(said).unwrap_or(0).min(process.gathered.len());
        for write in &mut process.gathered[from..] {
            match write {
                Write::SaveGate(id, _, facts) if *id == destination_id => **facts = fresh.clone(),
                Write::Settle(settlement, facts) if settlement.delivery.destination_id == destination_id => {
                    **facts = fresh.clone();
                }
                _ => {}
            }
        }
    }

    pub(super) fn set_alarm(&mut self) {
        let now = self.clock();
        let Some(process) = &mut self.process else { return };
        let Some(at) = process.scheduler.wake_at() else { return };
        if process.wake_at.is_some_and(|alarm| alarm <= at && alarm > now) {
            return;
        }
        process.wake_at = Some(at);
        let at = self.now + at.since(now);
        self.at(at, Happening::Wakes { life: self.lives });
    }

    pub(super) fn wakes(&mut self) -> Verdict {
        let now = self.clock();
        // An alarm that was set for an earlier time since has rung already.
        let Some(process) = self.process.as_mut().filter(|p| p.wake_at.is_some_and(|at| at <= now)) else {
            return Ok(());
        };
        process.wake_at = None;
        self.tell(Input::Woken, None)
    }

    pub(super) fn sweeps(&mut self) -> Verdict {
        let deliveries = self.store.overdue(self.clock(), 5);
        self.tell(Input::Overdue { deliveries }, None)?;
        let next = self.now + Millis::from_mins(1);
        // Nothing gives up for hours: no need to look each minute.
        let due = self.store.next_give_up_at().map_or(next, |at| self.now + at.since(self.clock()));
        self.at(next.max(due), Happening::Sweeps { life: self.lives });
        Ok(())
    }
}
