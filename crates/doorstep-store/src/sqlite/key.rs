//! Ordering keys: who comes first (O1).
//!
//! In a key's queue are its unfinished deliveries and those that are dead and hold it. An unfinished one is `behind` as long as
//! any other has a lower place.

use std::sync::Arc;

use doorstep_core::delivery::Delivery;
use doorstep_core::id::DestinationId;
use doorstep_core::time::Timestamp;
use rusqlite::params;

use super::batch::Batch;
use super::fault::Fault;
use super::row::{self, delivery_columns};

/// Where an unfinished delivery stands in the queue of its key, if it has one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    pub(super) behind: bool,
    pub(super) key_place: Option<i64>,
}

pub(super) const FIRST_OF_KEY: &str = "
    select (select min(key_place) from deliveries where destination_id = ?1 and ordering_key = ?2),
        (select min(key_place) from dead where destination_id = ?1 and ordering_key = ?2 and holds_key = 1)";

pub(super) const AT_KEY_PLACE: &str = concat!(
    "select ",
    delivery_columns!(),
    " from deliveries d where d.destination_id = ?1 and d.ordering_key = ?2 and d.key_place = ?3"
);

const JOIN_KEY: &str = "
    insert into ordering_keys (destination_id, ordering_key, last_sequence, last_place, used_day)
    values (?1, ?2, 1, 1, ?3)
    on conflict do update set last_sequence = last_sequence + 1, last_place = last_place + 1, used_day = excluded.used_day
    returning last_sequence, last_place";

const REJOIN_KEY: &str = "
    insert into ordering_keys (destination_id, ordering_key, last_sequence, last_place, used_day)
    values (?1, ?2, 0, 1, ?3)
    on conflict do update set last_place = last_place + 1, used_day = excluded.used_day returning last_place";

/// Those of removed destinations are swept up with the rest of them.
pub(super) const OLD_KEYS: &str = "
    select k.destination_id, k.ordering_key from ordering_keys k
    where k.used_day < ?1 and exists (select 1 from destinations d where d.id = k.destination_id)
    order by k.used_day, k.destination_id, k.ordering_key limit ?2";

impl Batch<'_> {
    /// The next sequence number of a key, and a place at the end of its queue.
    pub(super) fn join_key(
        &self,
        destination_id: DestinationId,
        key: &Arc<str>,
        now: Timestamp,
    ) -> Result<(u64, Standing), Fault> {
        let behind = self.first_places(destination_id, key)? != (None, None);
        let of = params![destination_id.0.to_be_bytes(), key, now.day()];
        let (sequence, place): (i64, i64) = self.row(JOIN_KEY, of, |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok((sequence.cast_unsigned(), Standing { behind, key_place: Some(place) }))
    }

    /// The place of one that comes back: the one that it holds, or else at the end.
    pub(super) fn rejoin_key(&self, delivery: &Delivery, held: Option<i64>, now: Timestamp) -> Result<Standing, Fault> {
        let Some(slot) = &delivery.ordering else { return Ok(Standing::default()) };
        let destination_id = delivery.destination_id;
        let first = self.first_places(destination_id, &slot.key)?;
        if let Some(place) = held {
            return Ok(Standing { behind: before(first, place), key_place: held });
        }
        let of = params![destination_id.0.to_be_bytes(), slot.key, now.day()];
        let place = self.row(REJOIN_KEY, of, |row| row.get(0))?;
        Ok(Standing { behind: first != (None, None), key_place: Some(place) })
    }

    /// One has left its key's queue. If it came first there, the next one may go, unless that is dead and holds the key.
    pub(super) fn release(&mut self, left: &Delivery, place: Option<i64>) -> Result<Option<Delivery>, Fault> {
        let (Some(slot), Some(place)) = (&left.ordering, place) else { return Ok(None) };
        if !self.is_destination(left.destination_id)? {
            return Ok(None);
        }
        let first = self.first_places(left.destination_id, &slot.key)?;
        let next = match first {
            _ if before(first, place) => return Ok(None),
            (Some(unfinished), dead) if dead.is_none_or(|dead| unfinished < dead) => unfinished,
            (Some(_) | None, _) => return Ok(None),
        };
        let of = params![left.destination_id.0.to_be_bytes(), slot.key, next];
        let next = self.row(AT_KEY_PLACE, of, row::delivery)?;
        self.execute("update deliveries set behind = 0 where seq = ?1", [next.seq.cast_signed()])?;
        Ok(Some(next))
    }

    /// Removes keys that were last used before that day and that nothing waits for. Returns how many were looked at; those that are in use
    /// are looked at again on another day.
    pub(super) fn purge_idle_keys(&self, before: Timestamp, limit: usize) -> Result<usize, Fault> {
        let read = |row: &rusqlite::Row<'_>| Ok((DestinationId(row::id(row, 0)?), row.get(1)?));
        let of = params![before.day(), row::number(limit)];
        let old: Vec<(DestinationId, String)> =
            self.statement(OLD_KEYS)?.query_map(of, read)?.collect::<Result<_, _>>()?;
        for (destination_id, key) in &old {
            let of = params![destination_id.0.to_be_bytes(), key];
            if self.first_places(*destination_id, key)? == (None, None) {
                self.execute("delete from ordering_keys where destination_id = ?1 and ordering_key = ?2", of)?;
            } else {
                let sql = "update ordering_keys set used_day = ?3 where destination_id = ?1 and ordering_key = ?2";
                self.execute(sql, params![destination_id.0.to_be_bytes(), key, before.day()])?;
            }
        }
        Ok(old.len())
    }

    /// The lowest places in a key's queue: of the unfinished, and of the dead that hold it.
    fn first_places(&self, destination_id: DestinationId, key: &str) -> Result<(Option<i64>, Option<i64>), Fault> {
        let of = params![destination_id.0.to_be_bytes(), key];
        Ok(self.row(FIRST_OF_KEY, of, |row| Ok((row.get(0)?, row.get(1)?)))?)
    }
}

fn before((unfinished, dead): (Option<i64>, Option<i64>), place: i64) -> bool {
    unfinished.is_some_and(|first| first < place) || dead.is_some_and(|first| first < place)
}
