//! What removed destinations leave behind goes a little at a time. Until then nobody sees it.

use doorstep_core::id::DestinationId;
use doorstep_core::time::Timestamp;
use rusqlite::{Params, params};

use super::batch::Batch;
use super::fault::Fault;
use super::row;
use super::settle::REMOVE;

pub(super) const TO_SWEEP: &str = "select id from removed_destinations where swept = 0 order by id limit 1";

pub(super) const LEFT_DUE: &str = "
    select seq, id, event_seq from deliveries where destination_id = ?1 and behind = 0
    order by track, due_at, seq limit ?2";

/// Once none is left that may go, all are behind others of their keys.
pub(super) const LEFT_BEHIND: &str = "
    select seq, id, event_seq from deliveries where destination_id = ?1 and ordering_key is not null
    order by ordering_key, key_place limit ?2";

pub(super) const SWEEP_KEYS: &str = "
    delete from ordering_keys where (destination_id, ordering_key) in (
        select destination_id, ordering_key from ordering_keys where destination_id = ?1 order by ordering_key limit ?2)";

pub(super) const FORGET_REMOVED: &str = "
    delete from removed_destinations where id in (
        select id from removed_destinations where swept = 1 and removed_at < ?1 order by removed_at, id limit ?2)";

impl Batch<'_> {
    /// Returns how much was taken away: as much as the limit, or all.
    pub(super) fn sweep(&mut self, limit: usize) -> Result<usize, Fault> {
        let mut swept = 0;
        while swept < limit
            && let Some(id) = self.find(TO_SWEEP, [], |row| row.get(0))?
        {
            swept += self.sweep_one(id, limit - swept)?;
            if swept < limit {
                self.execute("update removed_destinations set swept = 1 where id = ?1", [id])?;
            }
        }
        Ok(swept)
    }

    /// That destinations were there is forgotten once nothing is left of them.
    pub(super) fn forget_removed(&self, before: Timestamp, limit: usize) -> Result<usize, Fault> {
        Ok(self.execute(FORGET_REMOVED, params![before.0, row::number(limit)])?)
    }

    fn sweep_one(&mut self, id: [u8; 16], limit: usize) -> Result<usize, Fault> {
        let mut swept = self.sweep_deliveries(LEFT_DUE, params![id, row::number(limit)])?;
        swept += self.sweep_deliveries(LEFT_BEHIND, params![id, row::number(limit - swept)])?;
        Ok(swept + self.execute(SWEEP_KEYS, params![id, row::number(limit - swept)])?)
    }

    fn sweep_deliveries(&mut self, left: &str, params: impl Params) -> Result<usize, Fault> {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let left: Vec<(i64, [u8; 16], i64)> =
            self.statement(left)?.query_map(params, read)?.collect::<Result<_, _>>()?;
        for (seq, id, event_seq) in &left {
            self.execute(REMOVE, [seq])?;
            self.forget_delivery(*id, *event_seq)?;
        }
        Ok(left.len())
    }

    pub(super) fn was_removed(&self, id: DestinationId) -> Result<bool, Fault> {
        Ok(self.exists("select 1 from removed_destinations where id = ?1", [id.0.to_be_bytes()])?)
    }
}
