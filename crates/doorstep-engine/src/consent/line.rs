//! Whose turn it is to be asked. Many are asked at once, but no tenant's take all the places: those of one that has its share
//! stand aside, and the others go past them.

use std::collections::{BTreeSet, HashMap};

use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::time::{Millis, Timestamp};

/// Receivers that are asked at the same time; the others wait for their turn …
pub const ASKED_AT_ONCE_MAX: usize = 16;
/// … and of one tenant.
pub const ASKED_PER_TENANT_MAX: usize = 4;

type Place = (Timestamp, DestinationId);

#[derive(Debug, Default)]
pub(super) struct Line {
    places: HashMap<DestinationId, (Timestamp, TenantId)>,
    due: BTreeSet<Place>,
    /// Of tenants that had their share when their turn came. One steps back into the line for each that leaves it.
    aside: HashMap<TenantId, BTreeSet<Place>>,
    out: HashMap<TenantId, usize>,
    n_out: usize,
}

impl Line {
    /// It is asked then, and not when it should have been before.
    pub(super) fn put(&mut self, id: DestinationId, tenant_id: TenantId, at: Timestamp) {
        self.remove(id);
        self.places.insert(id, (at, tenant_id));
        self.due.insert((at, id));
    }

    /// Before all that it could have to wait for. Returns when that is.
    pub(super) fn put_first(&mut self, id: DestinationId, tenant_id: TenantId, now: Timestamp) -> Timestamp {
        let aside = self.aside.get(&tenant_id).and_then(BTreeSet::first);
        let first = self.due.first().into_iter().chain(aside).map(|(at, _)| *at - Millis(1)).min();
        let at = first.map_or(now, |first| first.min(now));
        self.put(id, tenant_id, at);
        at
    }

    pub(super) fn remove(&mut self, id: DestinationId) {
        let Some((at, tenant_id)) = self.places.remove(&id) else { return };
        if self.due.remove(&(at, id)) {
            return self.call_up(tenant_id);
        }
        if let Some(aside) = self.aside.get_mut(&tenant_id) {
            aside.remove(&(at, id));
        }
    }

    /// The next that is to be asked now: until [`Line::ended`] it has one of the places.
    pub(super) fn next(&mut self, now: Timestamp) -> Option<(DestinationId, TenantId)> {
        while self.n_out < ASKED_AT_ONCE_MAX
            && let Some(place) = self.due.first().copied().filter(|(at, _)| *at <= now)
        {
            self.due.remove(&place);
            let (_, id) = place;
            let Some(&(_, tenant_id)) = self.places.get(&id) else { continue };
            let out = self.out.entry(tenant_id).or_default();
            if *out >= ASKED_PER_TENANT_MAX {
                self.aside.entry(tenant_id).or_default().insert(place);
                continue;
            }
            *out += 1;
            self.n_out += 1;
            self.places.remove(&id);
            return Some((id, tenant_id));
        }
        None
    }

    /// One of this tenant's has been asked.
    pub(super) fn ended(&mut self, tenant_id: TenantId) {
        self.n_out -= 1;
        if let Some(out) = self.out.get_mut(&tenant_id) {
            *out -= 1;
            if *out == 0 {
                self.out.remove(&tenant_id);
            }
        }
        self.call_up(tenant_id);
    }

    /// When to look again; not before one has ended without it.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.due.first().filter(|_| self.n_out < ASKED_AT_ONCE_MAX).map(|(at, _)| *at)
    }

    /// If it finds no place after all, it steps aside again.
    fn call_up(&mut self, tenant_id: TenantId) {
        let Some(aside) = self.aside.get_mut(&tenant_id) else { return };
        self.due.extend(aside.pop_first());
        if aside.is_empty() {
            self.aside.remove(&tenant_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000);
    const GREEDY: TenantId = TenantId(1);
    const MODEST: TenantId = TenantId(2);

    fn asked(line: &mut Line) -> Vec<u128> {
        std::iter::from_fn(|| line.next(NOW)).map(|(id, _)| id.0).collect()
    }

    #[test]
    fn a_tenant_that_has_its_share_keeps_nobody_waiting() {
        let mut line = Line::default();
        for id in 1..=9 {
            line.put(DestinationId(id), GREEDY, NOW - Millis(9));
        }
        line.put(DestinationId(10), MODEST, NOW);
        assert_eq!(asked(&mut line), [1, 2, 3, 4, 10]);
        assert_eq!(line.wake_at(), None, "nobody looks again before one has ended");
        line.ended(MODEST);
        assert_eq!(asked(&mut line), [], "that place is not theirs");
        line.ended(GREEDY);
        assert_eq!(asked(&mut line), [5]);
        assert_eq!(line.put_first(DestinationId(9), GREEDY, NOW), NOW - Millis(10));
        line.remove(DestinationId(6));
        line.put(DestinationId(7), GREEDY, NOW + Millis(1));
        assert_eq!(asked(&mut line), []);
        for _ in 0..ASKED_PER_TENANT_MAX {
            line.ended(GREEDY);
        }
        assert_eq!(asked(&mut line), [9, 8]);
        assert_eq!(line.wake_at(), Some(NOW + Millis(1)));
    }

    #[test]
    fn one_that_leaves_when_it_was_called_up_lets_the_next_one_go() {
        let mut line = Line::default();
        for id in 1..=6 {
            line.put(DestinationId(id), GREEDY, NOW);
        }
        assert_eq!(asked(&mut line), [1, 2, 3, 4]);
        line.ended(GREEDY);
        line.remove(DestinationId(5));
        assert_eq!(asked(&mut line), [6]);
    }

    #[test]
    fn there_are_so_many_places_for_all() {
        let mut line = Line::default();
        for id in 1..=20 {
            line.put(DestinationId(id), TenantId(id), NOW);
        }
        assert_eq!(asked(&mut line).len(), ASKED_AT_ONCE_MAX);
        assert_eq!(line.wake_at(), None);
        line.ended(TenantId(3));
        assert_eq!(asked(&mut line), [17]);
        assert!(line.aside.is_empty() && line.places.len() == 3);
    }
}
