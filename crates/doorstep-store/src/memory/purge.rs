//! Forgetting (R4).

use doorstep_core::id::DeliveryId;
use doorstep_core::store::{Ages, Purged};
use doorstep_core::time::Timestamp;

use super::{End, Leftover, Memory, Row};

impl Memory {
    pub(super) fn purge(&mut self, ages: Ages, limit: usize) -> Purged {
        let mut purged = Purged { removed: self.sweep(limit), ..Purged::default() };
        let delivered = self.ended(limit, |row, at| row.end == Some(End::Delivered) && at < ages.delivered);
        for id in &delivered {
            self.rows.remove(id);
        }
        purged.delivered = delivered.len();
        let dead = self.ended(limit, |row, at| matches!(row.end, Some(End::Dead(_))) && at < ages.dead);
        for id in &dead {
            if let Some(row) = self.rows.remove(id) {
                purged.available.extend(self.release(&row.delivery));
            }
        }
        purged.dead = dead.len();
        while purged.attempts < limit && self.attempts.front().is_some_and(|(_, a)| a.started_at < ages.attempts) {
            self.attempts.pop_front();
            purged.attempts += 1;
        }
        purged.events = self.purge_events(ages.events, limit);
        let minutes: Vec<_> = self.minutes.keys().filter(|(at, _)| *at < ages.activity).take(limit).copied().collect();
        purged.activity = minutes.len();
        self.minutes.retain(|key, _| !minutes.contains(key));
        purged.audit = self.access.purge_audit(ages.audit, limit);
        purged.access = self.access.purge_access(ages, limit);
        purged
    }

    fn sweep(&mut self, limit: usize) -> usize {
        let mut swept = 0;
        for left in self.removed.values_mut() {
            while swept < limit && left.pop_front().is_some() {
                swept += 1;
            }
        }
        swept
    }

    /// The first that have ended and are old enough.
    fn ended(&self, limit: usize, old: impl Fn(&Row, Timestamp) -> bool) -> Vec<DeliveryId> {
        let old = |row: &&Row| row.ended_at.is_some_and(|at| old(row, at));
        let mut found: Vec<&Row> = self.rows().filter(old).collect();
        found.sort_by_key(|row| (row.ended_at, row.delivery.seq));
        found.into_iter().take(limit).map(|row| row.delivery.id).collect()
    }

    fn purge_events(&mut self, before: Timestamp, limit: usize) -> usize {
        let leftovers: Vec<&Leftover> = self.removed.values().flatten().collect();
        let is_left = |event_seq: u64| {
            self.rows().any(|row| row.delivery.event_seq == event_seq)
                || leftovers.contains(&&Leftover::Delivery { event_seq })
        };
        let old = self.events.iter().filter(|(seq, old)| old.event.accepted_at < before && !is_left(**seq));
        let mut found: Vec<(Timestamp, u64)> = old.map(|(seq, old)| (old.event.accepted_at, *seq)).collect();
        found.sort_unstable();
        found.truncate(limit);
        for (_, seq) in &found {
            self.events.remove(seq);
        }
        self.event_seqs.retain(|_, seq| self.events.contains_key(seq));
        self.event_keys.retain(|_, seq| self.events.contains_key(seq));
        found.len()
    }
}
