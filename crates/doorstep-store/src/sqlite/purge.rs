//! Forgetting, a little at a time (R4).

use doorstep_core::delivery::Delivery;
use doorstep_core::store::{Ages, Purged};
use doorstep_core::time::Timestamp;
use rusqlite::params;

use super::batch::Batch;
use super::fault::Fault;
use super::row::{self, DELIVERY_COLUMNS, delivery_columns};
use super::stretch::STRETCH;

pub(super) const OLD_DELIVERED: &str = concat!(
    "select ",
    delivery_columns!(),
    " from delivered d where d.ended_at < ?1 order by d.ended_at, d.seq limit ?2"
);

pub(super) const OLD_DEAD: &str = concat!(
    "select ",
    delivery_columns!(),
    ", d.holds_key, d.key_place from dead d where d.ended_at < ?1 order by d.ended_at, d.seq limit ?2"
);

/// From the front of the table as far as they are old: no index is needed.
pub(super) const OLD_ATTEMPTS: &str = "select n, started_at from attempts order by n limit ?1";

pub(super) const PURGE_EVENTS: &str = "
    delete from events where seq in (
        select seq from events where n_kept = 0 and accepted_at < ?1 order by accepted_at, seq limit ?2)";

pub(super) const PURGE_ACTIVITY: &str = "
    delete from activity where (minute, destination_id) in (
        select minute, destination_id from activity where minute < ?1 order by minute, destination_id limit ?2)";

pub(super) const FIRST_SEQ: &str = "
    select min(first) from (select min(seq) as first from deliveries
        union all select min(seq) from delivered union all select min(seq) from dead)";

pub(super) const PURGE_STRETCHES: &str = "
    delete from stretches where (owner, stretch) in (
        select owner, stretch from stretches where stretch < ?1 order by stretch limit ?2)";

pub(super) const PURGE_EVENT_STRETCHES: &str = "
    delete from event_stretches where (owner, stretch) in (
        select owner, stretch from event_stretches where stretch < ?1 order by stretch limit ?2)";

impl Batch<'_> {
    pub(super) fn purge(&mut self, ages: Ages, limit: usize) -> Result<Purged, Fault> {
        let removed = self.sweep(limit)?;
        let delivered = self.purge_delivered(ages.delivered, limit)?;
        let (dead, available) = self.purge_dead(ages.dead, limit)?;
        let attempts = self.purge_attempts(ages.attempts, limit)?;
        let events = self.execute(PURGE_EVENTS, params![ages.events.0, row::number(limit)])?;
        self.purge_stretches(limit)?;
        let activity = self.execute(PURGE_ACTIVITY, params![ages.activity.0, row::number(limit)])?;
        let (audit, access) = (self.purge_audit(ages.audit, limit)?, self.purge_access(ages, limit)?);
        Ok(Purged { delivered, dead, attempts, events, activity, audit, access, removed, available })
    }

    fn purge_delivered(&self, before: Timestamp, limit: usize) -> Result<usize, Fault> {
        let mut old = self.statement(OLD_DELIVERED)?;
        let old: Vec<Delivery> =
            old.query_map(params![before.0, row::number(limit)], row::delivery)?.collect::<Result<_, _>>()?;
        for delivery in &old {
            self.execute("delete from delivered where seq = ?1", [delivery.seq.cast_signed()])?;
            self.forget(delivery)?;
        }
        Ok(old.len())
    }

    fn purge_dead(&mut self, before: Timestamp, limit: usize) -> Result<(usize, Vec<Delivery>), Fault> {
        let read = |row: &rusqlite::Row<'_>| {
            let holds_key: bool = row.get(DELIVERY_COLUMNS)?;
            let key_place: Option<i64> = row.get(DELIVERY_COLUMNS + 1)?;
            Ok((row::delivery(row)?, key_place.filter(|_| holds_key)))
        };
        let old: Vec<(Delivery, Option<i64>)> = self
            .statement(OLD_DEAD)?
            .query_map(params![before.0, row::number(limit)], read)?
            .collect::<Result<_, _>>()?;
        let mut available = Vec::new();
        for (delivery, held) in &old {
            self.execute("delete from dead where seq = ?1", [delivery.seq.cast_signed()])?;
            self.forget(delivery)?;
            available.extend(self.release(delivery, *held)?);
        }
        Ok((old.len(), available))
    }

    fn forget(&self, delivery: &Delivery) -> Result<(), Fault> {
        self.forget_delivery(delivery.id.0.to_be_bytes(), delivery.event_seq.cast_signed())
    }

    /// Below the first number that is still there, nobody has anything.
    fn purge_stretches(&mut self, limit: usize) -> Result<(), Fault> {
        let first: Option<i64> = self.row(FIRST_SEQ, [], |row| row.get(0))?;
        let first = first.unwrap_or(self.counters.seq) / STRETCH;
        self.execute(PURGE_STRETCHES, params![first, row::number(limit)])?;
        let first: Option<i64> = self.row("select min(seq) from events", [], |row| row.get(0))?;
        let first = first.unwrap_or(self.counters.event_seq) / STRETCH;
        self.execute(PURGE_EVENT_STRETCHES, params![first, row::number(limit)])?;
        Ok(())
    }

    fn purge_attempts(&self, before: Timestamp, limit: usize) -> Result<usize, Fault> {
        let mut first = self.statement(OLD_ATTEMPTS)?;
        let mut rows = first.query([row::number(limit)])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let (n, started_at): (i64, i64) = (row.get(0)?, row.get(1)?);
            if started_at >= before.0 {
                break;
            }
            last = Some(n);
        }
        drop(rows);
        match last {
            None => Ok(0),
            Some(last) => Ok(self.execute("delete from attempts where n <= ?1", [last])?),
        }
    }
}
