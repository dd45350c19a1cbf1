//! Forgetting (R4).

use std::collections::VecDeque;

use doorstep_core::id::{DeliveryId, DestinationId};
use doorstep_core::store::{Ages, Purged};
use doorstep_core::time::Timestamp;

use super::{Accepted, End, Leftover, Memory, Row};

impl Memory {
    pub(super) fn purge(&mut self, ages: Ages, limit: usize) -> Purged {
        let swept = self.sweep(limit);
        let removed = swept + self.forget_removed(ages.idle, limit - swept);
        let mut purged = Purged { removed, ..Purged::default() };
        let delivered = self.ended(limit, |row, at| row.end == Some(End::Delivered) && at < ages.delivered);
        for id in &delivered {
            if let Some(row) = self.rows.remove(id) {
                self.free_delivery(row.delivery.event_seq);
            }
        }
        purged.delivered = delivered.len();
        let dead = self.ended(limit, |row, at| matches!(row.end, Some(End::Dead(_))) && at < ages.dead);
        for id in &dead {
            if let Some(row) = self.rows.remove(id) {
                self.free_delivery(row.delivery.event_seq);
                purged.available.extend(self.release(&row.delivery));
            }
        }
        purged.dead = dead.len();
        while purged.attempts < limit
            && let Some(kept) = self.attempts.pop_front_if(|kept| kept.attempt.started_at < ages.attempts)
        {
            if let Some(tenant_id) = kept.tenant_id {
                self.free_bytes(tenant_id, kept.stored_bytes);
            }
            purged.attempts += 1;
        }
        purged.events = self.purge_events(ages.events, limit);
        purged.keys = self.purge_idle_keys(ages.idle, limit);
        let minutes: Vec<_> = self.minutes.keys().filter(|(at, _)| *at < ages.activity).take(limit).copied().collect();
        purged.activity = minutes.len();
        self.minutes.retain(|key, _| !minutes.contains(key));
        purged.audit = self.access.purge_audit(ages.audit, limit);
        purged.access = self.access.purge_access(ages, limit);
        purged
    }

    fn sweep(&mut self, limit: usize) -> usize {
        let mut swept = Vec::new();
        for (_, left) in self.removed.values_mut() {
            swept.extend(left.drain(..left.len().min(limit - swept.len())));
        }
        for left in &swept {
            if let Leftover::Delivery { event_seq } = left {
                self.free_delivery(*event_seq);
            }
        }
        swept.len()
    }

    /// That destinations were there is forgotten once nothing is left of them.
    fn forget_removed(&mut self, before: Timestamp, limit: usize) -> usize {
        let is_old = |(at, left): &(Timestamp, VecDeque<Leftover>)| *at < before && left.is_empty();
        let old = self.removed.iter().filter(|(_, removed)| is_old(removed));
        let mut old: Vec<(Timestamp, DestinationId)> = old.map(|(id, (at, _))| (*at, *id)).collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, id) in &old {
            self.removed.remove(id);
        }
        old.len()
    }

    /// Removes keys that were last used before that day, and that nothing waits for; the others are looked at again on another day.
    fn purge_idle_keys(&mut self, before: Timestamp, limit: usize) -> usize {
        let old = self.keys.iter().filter(|(_, key)| key.used_day < before.day());
        let mut old: Vec<_> = old.map(|(name, key)| (key.used_day, name.clone())).collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, name) in &old {
            match self.keys.get_mut(name) {
                Some(key) if !key.queue.is_empty() => key.used_day = before.day(),
                Some(_) | None => drop(self.keys.remove(name)),
            }
        }
        old.len()
    }

    /// The first that have ended and are old enough.
    fn ended(&self, limit: usize, old: impl Fn(&Row, Timestamp) -> bool) -> Vec<DeliveryId> {
        let old = |row: &&Row| row.ended_at.is_some_and(|at| old(row, at));
        let mut found: Vec<&Row> = self.rows().filter(old).collect();
        found.sort_by_key(|row| (row.ended_at, row.delivery.seq));
        found.into_iter().take(limit).map(|row| row.delivery.id).collect()
    }

    fn purge_events(&mut self, before: Timestamp, limit: usize) -> usize {
        let leftovers: Vec<&Leftover> = self.removed.values().flat_map(|(_, left)| left).collect();
        let is_left = |event_seq: u64| {
            self.rows().any(|row| row.delivery.event_seq == event_seq)
                || leftovers.contains(&&Leftover::Delivery { event_seq })
        };
        let old = self.events.iter().filter(|(seq, old)| old.event.accepted_at < before && !is_left(**seq));
        let mut found: Vec<(Timestamp, u64)> = old.map(|(seq, old)| (old.event.accepted_at, *seq)).collect();
        found.sort_unstable();
        found.truncate(limit);
        for (_, seq) in &found {
            if let Some(Accepted { event, .. }) = self.events.remove(seq) {
                self.free_bytes(event.tenant_id, event.stored_bytes());
            }
        }
        self.event_seqs.retain(|_, seq| self.events.contains_key(seq));
        self.event_keys.retain(|_, seq| self.events.contains_key(seq));
        found.len()
    }
}
