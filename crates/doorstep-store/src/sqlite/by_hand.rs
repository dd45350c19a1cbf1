//! What people do to single deliveries (R2).

use doorstep_core::delivery::Delivery;
use doorstep_core::id::DeliveryId;
use doorstep_core::retry::{DeadReason, Progress};
use doorstep_core::store::{Refusal, Tally, Written};
use doorstep_core::time::{Millis, Timestamp};
use rusqlite::params;

use super::batch::Batch;
use super::fault::Fault;
use super::key::Standing;
use super::row::{self, DELIVERY_COLUMNS, delivery_columns};
use super::settle::Death;

pub(super) const SEQ_OF: &str = "select seq from delivery_seqs where id = ?1";

pub(super) const DEAD: &str = concat!(
    "select ",
    delivery_columns!(),
    ", d.last_status, d.reason, d.holds_key, d.key_place from dead d where d.seq = ?1"
);

pub(super) const UNFINISHED: &str = concat!(
    "select ",
    delivery_columns!(),
    ", d.last_status, d.behind, d.key_place from deliveries d where d.seq = ?1"
);

/// A dead letter. `held`: the place in its key's queue that it keeps.
struct Dead {
    delivery: Delivery,
    last_status: Option<u16>,
    reason: DeadReason,
    held: Option<i64>,
}

impl Batch<'_> {
    pub(super) fn revive(&mut self, id: DeliveryId, give_up_at: Timestamp, now: Timestamp) -> Result<Written, Fault> {
        let Some(seq) = self.seq_of(id)? else { return Ok(Written::Refused(Refusal::NotFound)) };
        let Some(dead) = self.dead(seq)? else { return Ok(Written::Refused(Refusal::NotDead)) };
        let mut delivery = dead.delivery;
        if !self.is_destination(delivery.destination_id)? {
            return Ok(Written::Refused(Refusal::NotFound));
        }
        delivery.due_at = now;
        delivery.progress = Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at };
        self.execute("delete from dead where seq = ?1", [seq])?;
        let standing = self.rejoin_key(&delivery, dead.held, now)?;
        self.insert_delivery(&delivery, standing, dead.last_status)?;
        Ok(Written::Revived { available: if standing.behind { Vec::new() } else { vec![delivery] } })
    }

    pub(super) fn abandon(&mut self, id: DeliveryId, note: &str, now: Timestamp) -> Result<Written, Fault> {
        let Some(seq) = self.seq_of(id)? else { return Ok(Written::Refused(Refusal::NotFound)) };
        if let Some((delivery, standing, last_status)) = self.unfinished(seq)? {
            self.remove(&delivery)?;
            let death = Death { reason: DeadReason::Abandoned, note: Some(note), holds_key: false };
            self.insert_dead(&delivery, standing, last_status, &death, now)?;
            self.count(delivery.destination_id, now, &Tally { dead: 1, ..Tally::default() });
            let available = self.release(&delivery, standing.key_place)?.into_iter().collect();
            return Ok(Written::Abandoned { ended: Box::new(delivery), available });
        }
        let Some(dead) = self.dead(seq)?.filter(|dead| dead.reason != DeadReason::Abandoned) else {
            return Ok(Written::Refused(Refusal::AlreadyEnded));
        };
        self.execute(
            "update dead set reason = ?2, note = ?3, holds_key = 0 where seq = ?1",
            params![seq, row::reason(DeadReason::Abandoned), note],
        )?;
        let available = self.release(&dead.delivery, dead.held)?.into_iter().collect();
        Ok(Written::Abandoned { ended: Box::new(dead.delivery), available })
    }

    /// None for one that is queued for a destination that was removed.
    fn seq_of(&mut self, id: DeliveryId) -> Result<Option<i64>, Fault> {
        let seq = self.find(SEQ_OF, [id.0.to_be_bytes()], |row| row.get(0))?;
        let Some(seq) = seq else { return Ok(None) };
        match self.unfinished(seq)? {
            Some((delivery, ..)) if !self.is_destination(delivery.destination_id)? => Ok(None),
            Some(_) | None => Ok(Some(seq)),
        }
    }

    fn dead(&self, seq: i64) -> Result<Option<Dead>, Fault> {
        let read = |row: &rusqlite::Row<'_>| {
            let holds_key: bool = row.get(DELIVERY_COLUMNS + 2)?;
            let key_place: Option<i64> = row.get(DELIVERY_COLUMNS + 3)?;
            Ok(Dead {
                delivery: row::delivery(row)?,
                last_status: row.get(DELIVERY_COLUMNS)?,
                reason: row::read_reason(row, DELIVERY_COLUMNS + 1)?,
                held: key_place.filter(|_| holds_key),
            })
        };
        Ok(self.find(DEAD, [seq], read)?)
    }

    pub(super) fn unfinished(&self, seq: i64) -> Result<Option<(Delivery, Standing, Option<u16>)>, Fault> {
        let read = |row: &rusqlite::Row<'_>| {
            let standing =
                Standing { behind: row.get(DELIVERY_COLUMNS + 1)?, key_place: row.get(DELIVERY_COLUMNS + 2)? };
            Ok((row::delivery(row)?, standing, row.get(DELIVERY_COLUMNS)?))
        };
        Ok(self.find(UNFINISHED, [seq], read)?)
    }
}
