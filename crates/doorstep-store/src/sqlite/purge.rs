//! Forgetting, a little at a time (R4).

use doorstep_core::delivery::Delivery;
use doorstep_core::id::TenantId;
use doorstep_core::store::{Ages, Purged};
use doorstep_core::time::Timestamp;
use rusqlite::{Params, params};

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
        select seq from events where n_kept = 0 and accepted_at < ?1 order by accepted_at, seq limit ?2)
    returning tenant_id, coalesce(stored_bytes, 512 + length(payload) + coalesce(length(headers), 0))";

pub(super) const BYTES_OF_ATTEMPTS: &str =
    "select tenant_id, stored_bytes from attempts where n <= ?1 and stored_bytes is not null";

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
        let swept = self.sweep(limit)?;
        let removed = swept + self.forget_removed(ages.idle, limit - swept)?;
        let delivered = self.purge_delivered(ages.delivered, limit)?;
        let (dead, available) = self.purge_dead(ages.dead, limit)?;
        let attempts = self.purge_attempts(ages.attempts, limit)?;
        let events = self.purge_events(ages.events, limit)?;
        let keys = self.purge_idle_keys(ages.idle, limit)?;
        self.purge_stretches(limit)?;
        let activity = self.execute(PURGE_ACTIVITY, params![ages.activity.0, row::number(limit)])?;
        let (audit, access) = (self.purge_audit(ages.audit, limit)?, self.purge_access(ages, limit)?);
        Ok(Purged { delivered, dead, attempts, events, activity, audit, access, removed, keys, available })
    }

    fn purge_events(&mut self, before: Timestamp, limit: usize) -> Result<usize, Fault> {
        let old = self.bytes_of(PURGE_EVENTS, params![before.0, row::number(limit)])?;
        for (tenant_id, bytes) in &old {
            self.add_bytes(*tenant_id, -bytes)?;
        }
        Ok(old.len())
    }

    /// Whose rows they are, and how much each counts.
    fn bytes_of(&self, sql: &str, params: impl Params) -> Result<Vec<(TenantId, i64)>, Fault> {
        let read = |row: &rusqlite::Row<'_>| Ok((TenantId(row::id(row, 0)?), row.get(1)?));
        Ok(self.statement(sql)?.query_map(params, read)?.collect::<Result<_, _>>()?)
    }

    fn purge_delivered(&mut self, before: Timestamp, limit: usize) -> Result<usize, Fault> {
        let old: Vec<Delivery> = self
            .statement(OLD_DELIVERED)?
            .query_map(params![before.0, row::number(limit)], row::delivery)?
            .collect::<Result<_, _>>()?;
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

    fn forget(&mut self, delivery: &Delivery) -> Result<(), Fault> {
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

    fn purge_attempts(&mut self, before: Timestamp, limit: usize) -> Result<usize, Fault> {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let first: Vec<(i64, i64)> =
            self.statement(OLD_ATTEMPTS)?.query_map([row::number(limit)], read)?.collect::<Result<_, _>>()?;
        let old = first.iter().take_while(|(_, started_at)| *started_at < before.0);
        let Some((last, _)) = old.last() else { return Ok(0) };
        for (tenant_id, bytes) in self.bytes_of(BYTES_OF_ATTEMPTS, [last])? {
            self.add_bytes(tenant_id, -bytes)?;
        }
        Ok(self.execute("delete from attempts where n <= ?1", [last])?)
    }
}
