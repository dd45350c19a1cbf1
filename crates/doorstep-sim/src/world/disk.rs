//! The writer and the store: what is gathered, committed and read.

use super::*;

impl World {
    pub(super) fn gather(&mut self, write: Write) {
        let Some(process) = &mut self.process else { return };
        process.gathered.push(write);
        process.n_gathered += 1;
    }

    pub(super) fn start_commit(&mut self) {
        let Some(process) = &mut self.process else { return };
        if process.committing.is_empty() && !process.gathered.is_empty() {
            process.committing = std::mem::take(&mut process.gathered);
            self.soon(10, Happening::Commits { life: self.lives });
        }
    }

    pub(super) fn commits(&mut self) -> Verdict {
        if self.dice.percent(self.scenario.faults.failed_commits) {
            self.at(self.now + Millis::from_secs(1), Happening::Commits { life: self.lives });
            return Ok(());
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        let batch = std::mem::take(&mut process.committing);
        process.n_committed += batch.len() as u64;
        let told = self.apply(batch)?;
        self.start_commit();
        self.start_reads();
        self.tell_written(told)
    }

    /// What follows from the writes is told in their order.
    fn tell_written(&mut self, told: Vec<Told>) -> Verdict {
        let life = self.lives;
        for told in told {
            if life != self.lives {
                return Ok(());
            }
            match told {
                Told::Withdrawn(delivery) => {
                    self.note(|| format!("{} abandoned by hand", delivery.id));
                    self.checker.end_told(&delivery);
                    self.tell(Input::Withdrawn { delivery: Box::new(delivery) }, None)?;
                }
                Told::Removed(destination_id) => {
                    self.note(|| format!("{destination_id} is removed"));
                    self.checker.dropped(destination_id);
                    self.tell(Input::Dropped { destination_id }, None)?;
                }
                Told::Accepted(destination_id, deliveries) => {
                    let behind = if deliveries.is_empty() { vec![destination_id] } else { Vec::new() };
                    self.tell(Input::Accepted { deliveries, behind }, None)?;
                }
                Told::Available(deliveries) if deliveries.is_empty() => {}
                Told::Available(deliveries) => self.tell(Input::Available { deliveries }, None)?,
            }
        }
        Ok(())
    }

    /// One transaction. Returns what follows from it, in the order of the writes.
    pub(super) fn apply(&mut self, batch: Vec<Write>) -> Result<Vec<Told>, String> {
        let now = self.clock();
        let mut told = Vec::new();
        for write in batch {
            match write {
                Write::Accept(index) => told.push(self.accept(index, now)),
                Write::Revive(id) => told.push(Told::Available(self.revive(id, now))),
                Write::Abandon(id) => told.extend(self.abandon(id, now)),
                Write::Erase(tenant_id) => self.erase(tenant_id, now),
                Write::Remove(destination_id) => {
                    self.store.write(store::Write::RemoveDestination { destination_id }, now);
                    self.removed.insert(destination_id);
                    self.checker.removed(destination_id);
                    told.push(Told::Removed(destination_id));
                }
                Write::Settle(settlement, facts) => {
                    let available = self.store.settle(Settled { settlement: settlement.clone(), attempt: None });
                    let row = self.store.row(settlement.delivery.id).map(|row| &row.delivery);
                    self.checker.written(&settlement, &facts, row)?;
                    told.push(Told::Available(available.into_iter().collect()));
                }
                Write::SaveGate(destination_id, state, facts) => {
                    self.store.write(store::Write::SaveGate { destination_id, state }, now);
                    self.checker.gate_written(destination_id, *facts);
                }
            }
        }
        Ok(told)
    }

    pub(super) fn abandon(&mut self, id: DeliveryId, now: Timestamp) -> Vec<Told> {
        let Some(row) = self.store.row(id).filter(|row| row.end.is_none()) else { return Vec::new() };
        self.checker.abandoned(&row.delivery);
        match self.store.write(store::Write::Abandon { delivery_id: id, note: String::new() }, now) {
            Written::Abandoned { ended, available } => vec![Told::Withdrawn(*ended), Told::Available(available)],
            other => unreachable!("an unfinished delivery can be ended: {other:?}"),
        }
    }

    pub(super) fn erase(&mut self, tenant_id: TenantId, now: Timestamp) {
        self.store.write(store::Write::ErasePayloads { tenant_id }, now);
        self.note(|| format!("the payloads of {tenant_id} are erased"));
        for row in self.store.rows() {
            if self.store.events(&[row.delivery.event_seq]) == [StoredEvent::Gone] {
                self.checker.erased(row.delivery.id);
            }
        }
    }

    pub(super) fn accept(&mut self, index: usize, now: Timestamp) -> Told {
        let arrival = &self.scenario.arrivals[index];
        let plan = &self.scenario.destinations[arrival.destination].0;
        let (id, destination_id) = (DeliveryId(index as u128 + 1), plan.id);
        let delivery = NewDelivery {
            id,
            destination_id,
            ordered: arrival.key.is_some() && plan.ordering != Ordering::Unordered,
            give_up_at: plan.policy.give_up_at(now, arrival.ttl),
        };
        let event = event(index, plan, arrival.key.clone(), now);
        let new = Box::new(NewEvent { event, key: None, deliveries: vec![delivery] });
        let written = self.store.write(store::Write::Accept(new), now);
        if let Some(row) = self.store.row(id) {
            self.checker.accepted(&row.delivery);
        }
        match written {
            Written::Accepted { available, .. } => Told::Accepted(destination_id, available),
            other => unreachable!("every event is another one: {other:?}"),
        }
    }

    pub(super) fn wants_read(&mut self, read: Read) {
        let Some(process) = &mut self.process else { return };
        process.reads_under_way += 1;
        process.reads.push((process.n_gathered, read));
        self.start_reads();
    }

    pub(super) fn start_reads(&mut self) {
        let Some(process) = &mut self.process else { return };
        let committed = process.n_committed;
        let ready = process.reads.extract_if(.., |(barrier, _)| *barrier <= committed);
        for (_, read) in ready.collect::<Vec<_>>() {
            self.soon(5, Happening::Reads { life: self.lives, read });
        }
    }

    pub(super) fn reads(&mut self, read: Read) {
        let failed = self.dice.percent(self.scenario.faults.failed_reads);
        let Read { destination_id, track, after, limit, .. } = read;
        let found = self.store.due(&DueQuery { destination_id, track, after, limit });
        let found = (!failed).then_some(found);
        self.soon(20, Happening::ReadEnds { life: self.lives, ticket: read.ticket, found });
    }

    pub(super) fn read_ends(&mut self, ticket: Ticket, found: Option<DuePage>) -> Verdict {
        if let Some(process) = &mut self.process {
            process.reads_under_way -= 1;
        }
        match found {
            Some(DuePage { deliveries, exhausted }) => {
                self.tell(Input::Refilled { ticket, deliveries, exhausted }, None)
            }
            None => self.tell(Input::RefillFailed { ticket }, None),
        }
    }
}
