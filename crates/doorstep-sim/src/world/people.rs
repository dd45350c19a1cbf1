//! People: their hands on gates, their decisions on deliveries.

use super::*;

impl World {
    pub(super) fn hand(&mut self, destination_id: DestinationId, hand: Hand) -> Verdict {
        if self.removed.contains(&destination_id) {
            return Ok(());
        }
        let owned = self.process.as_ref().is_some_and(|p| p.scheduler.gate(destination_id).is_some());
        if !owned {
            self.at(self.now + Millis::from_mins(2), Happening::Hand(destination_id, hand));
            return Ok(());
        }
        self.note(|| format!("{destination_id} {hand:?} by hand"));
        self.checker.handled(destination_id, hand, self.clock());
        self.tell(Input::Handled { destination_id, hand }, None)
    }

    /// Other settings, under load.
    pub(super) fn change(&mut self, destination_id: DestinationId) -> Verdict {
        let (host, limits, ordering) =
            (random_host(&mut self.dice), random_limits(&mut self.dice), random_ordering(&mut self.dice));
        // Whoever has moved may have to agree anew, or has agreed by now.
        let (awaits_consent, reorders) = (self.dice.one_in(2), self.dice.one_in(2));
        let found = self.scenario.destinations.iter_mut().find(|(plan, _)| plan.id == destination_id);
        let Some((plan, _)) = found else { return Ok(()) };
        (plan.host, plan.awaits_consent, plan.limits) = (host, awaits_consent, Arc::new(limits));
        if reorders {
            plan.ordering = ordering;
        }
        let plan = plan.clone();
        self.note(|| format!("{destination_id} changes: {plan:?}"));
        self.checker.changed(plan.clone());
        self.tell(Input::Changed { plan: Box::new(plan) }, None)
    }

    /// All at once: its payloads are erased, and its destinations are gone.
    pub(super) fn remove_tenant(&mut self, tenant_id: TenantId) -> Verdict {
        self.gather(Write::Erase(tenant_id));
        let plans = self.scenario.destinations.iter().map(|(plan, _)| plan);
        let its: Vec<DestinationId> = plans.filter(|plan| plan.tenant_id == tenant_id).map(|plan| plan.id).collect();
        for destination_id in its {
            self.gather(Write::Remove(destination_id));
        }
        self.start_commit();
        Ok(())
    }

    pub(super) fn heal(&mut self) -> Verdict {
        if self.process.is_none() || self.stopping {
            self.at(self.now + Millis::from_mins(2), Happening::Heals);
            return Ok(());
        }
        self.note(|| "all is well again".to_owned());
        for (_, receiver) in &mut self.scenario.destinations {
            receiver.heal();
        }
        for index in 0..self.scenario.destinations.len() {
            self.agree(index)?;
            self.hand(self.scenario.destinations[index].0.id, Hand::Resume)?;
        }
        self.revive_holders()
    }

    /// A receiver that had to agrees to be sent to.
    fn agree(&mut self, index: usize) -> Verdict {
        let plan = &mut self.scenario.destinations[index].0;
        if !std::mem::take(&mut plan.awaits_consent) {
            return Ok(());
        }
        let plan = plan.clone();
        self.checker.changed(plan.clone());
        self.tell(Input::Changed { plan: Box::new(plan) }, None)
    }

    /// A person sends those again that are dead and hold up others.
    pub(super) fn revive_holders(&mut self) -> Verdict {
        let holds = |row: &&doorstep_store::memory::Row| {
            matches!(row.end, Some(End::Dead(reason)) if reason != DeadReason::Abandoned)
                && row.delivery.ordering.is_some()
        };
        let dead: Vec<DeliveryId> = self.store.rows().filter(holds).map(|row| row.delivery.id).collect();
        for id in dead {
            self.gather(Write::Revive(id));
        }
        self.start_commit();
        Ok(())
    }

    pub(super) fn revive(&mut self, id: DeliveryId, now: Timestamp) -> Vec<Delivery> {
        // Longer than any policy: no life is taken for another.
        let give_up_at = now + Millis::from_hours(24 * 7);
        match self.store.write(store::Write::Revive { delivery_id: id, give_up_at }, now) {
            Written::Revived { available } => {
                if let Some(row) = self.store.row(id) {
                    self.checker.revived(&row.delivery, now);
                }
                available
            }
            // Somebody was faster.
            _ => Vec::new(),
        }
    }
}
