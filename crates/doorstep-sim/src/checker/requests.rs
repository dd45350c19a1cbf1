//! Which requests may start, and when.

use std::sync::Arc;

use doorstep_core::delivery::Delivery;
use doorstep_core::id::{DeliveryId, DestinationId};
use doorstep_core::retry::Decision;
use doorstep_core::time::{Millis, Timestamp};

use super::{Account, Checker, Request, Verdict, Watched, ensure};

impl Checker {
    pub fn started(&mut self, delivery: &Delivery, now: Timestamp) -> Verdict {
        self.n_requests += 1;
        let number = self.n_requests;
        let id = delivery.id;
        ensure(!self.open.contains_key(&id), || format!("{id} was sent twice at once"))?;
        let waited = self.is_its_time(delivery, now)?;
        let open = self.open_at(delivery.destination_id, 0);
        let watched = self.destinations.get_mut(&delivery.destination_id).ok_or("sent to nowhere")?;
        ensure(!watched.dropped, || format!("{id} was sent to a destination that is removed"))?;
        watched.may_start(open, now)?;
        watched.was_prompt(id, waited)?;
        let tripped = watched.facts.tripped;
        self.within_ramp(delivery, waited, now)?;
        let probe = tripped.is_some();
        if let Some(tripped) = tripped {
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

    /// Returns how long it could have been sent before.
    fn is_its_time(&self, delivery: &Delivery, now: Timestamp) -> Result<Millis, String> {
        let (id, life) = (delivery.id, delivery.progress.give_up_at);
        let present = self.deliveries.get(&id).ok_or(format!("{id} was sent and never accepted"))?;
        let account = match self.untold_ends.get(&(id, life)) {
            Some(untold) => {
                self.in_order(delivery, untold.before.iter())?;
                &untold.account
            }
            None => {
                self.in_order(delivery, self.before(delivery))?;
                present
            }
        };
        let Account { end, due_at, give_up_at, .. } = account;
        ensure(life == *give_up_at, || format!("{id} was sent in a life that is over"))?;
        ensure(end.is_none(), || format!("{id} was sent after its end: {end:?}"))?;
        ensure(now >= *due_at, || format!("{id} was sent before its time, {due_at:?}"))?;
        ensure(now < *give_up_at, || format!("{id} was sent after its window, {give_up_at:?}"))?;
        Ok(now.since(*due_at))
    }

    pub(super) fn open_at(&self, destination_id: DestinationId, since_request: u64) -> usize {
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

    /// Those that come before it in its key.
    pub(super) fn before(&self, delivery: &Delivery) -> impl Iterator<Item = &DeliveryId> {
        let key = delivery.ordering.as_ref().map(|slot| (delivery.destination_id, Arc::clone(&slot.key)));
        let order = key.and_then(|key| self.order.get(&key)).into_iter().flatten();
        order.take_while(|id| **id != delivery.id)
    }

    /// All of them have ended, and none of them holds the key.
    fn in_order<'a>(&self, delivery: &Delivery, before: impl Iterator<Item = &'a DeliveryId>) -> Verdict {
        for before in before {
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
        let most = Millis::from_secs(2) + Millis(self.n_accepted * 100 / u64::from(self.room));
        ensure(!self.undisturbed || waited <= most, || format!("{id} waited {waited} for a receiver that is well"))
    }

    /// In no second more than the rate and its burst; at a pinned pace there is no burst, but what comes late is made up for.
    fn within_rate(&mut self, now: Timestamp) -> Verdict {
        let second = Millis::from_secs(1);
        while self.starts.front().is_some_and(|first| *first + second <= now) {
            self.starts.pop_front();
        }
        self.starts.push_back(now);
        let limits = &self.plan.limits;
        let most = match limits.pinned {
            Some(pinned) => pinned.min(limits.rate).as_per_second() + 2.0,
            None => limits.rate.as_per_second() + f64::from(limits.burst) + 1.0,
        };
        let started = self.starts.len() as f64;
        ensure(started <= most, || format!("{started} requests in one second, over the rate"))
    }
}
