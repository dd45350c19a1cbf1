//! What the engine reads to go on: what is due, and what has run out of time.

use doorstep_core::delivery::{Delivery, Place};
use doorstep_core::store::{DuePage, DueQuery};
use doorstep_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::catalog::is_destination;
use super::fault::Fault;
use super::row::{self, delivery_columns, of_a_destination};

macro_rules! due {
    ($behind:literal) => {
        concat!(
            "select ",
            delivery_columns!(),
            " from deliveries d where d.destination_id = ?1 and d.track = ?2 and d.behind = 0 and ",
            $behind,
            " order by d.due_at, d.seq limit ?3"
        )
    };
}

pub(super) const DUE: &str = due!("d.due_at >= ?4");
pub(super) const DUE_LATER: &str = due!("d.due_at > ?4");
/// Apart from those due later: of `(due_at, seq) > (?, ?)` SQLite would look up the first half only, and walk through all
/// that are due at the same time once for each page.
pub(super) const DUE_AT_ONCE: &str = due!("d.due_at = ?4 and d.seq > ?5");

pub(super) const OVERDUE: &str = concat!(
    "select ",
    delivery_columns!(),
    " from deliveries d where d.give_up_at <= ?1 and ",
    of_a_destination!(),
    " order by d.give_up_at, d.seq limit ?2"
);

pub(super) const NEXT_GIVE_UP: &str = concat!(
    "select d.give_up_at from deliveries d where d.give_up_at >= ?1 and ",
    of_a_destination!(),
    " order by d.give_up_at limit 1"
);

pub(super) fn due(sql: &Connection, query: &DueQuery) -> Result<DuePage, Fault> {
    if !is_destination(sql, query.destination_id)? {
        return Ok(DuePage { deliveries: Vec::new(), exhausted: true });
    }
    let (id, track) = (query.destination_id.0.to_be_bytes(), row::track(query.track));
    // One more than wanted says whether there are any beyond.
    let limit = query.limit.saturating_add(1);
    let mut deliveries: Vec<Delivery> = Vec::new();
    let mut from = (DUE, i64::MIN);
    if let Some(Place { due_at, seq }) = query.after {
        let mut at_once = sql.prepare_cached(DUE_AT_ONCE)?;
        let found =
            at_once.query_map(params![id, track, row::number(limit), due_at.0, row::number(seq)], row::delivery)?;
        deliveries = found.collect::<Result<_, _>>()?;
        from = (DUE_LATER, due_at.0);
    }
    if deliveries.len() < limit {
        let mut later = sql.prepare_cached(from.0)?;
        let left = row::number(limit - deliveries.len());
        for delivery in later.query_map(params![id, track, left, from.1], row::delivery)? {
            deliveries.push(delivery?);
        }
    }
    let exhausted = deliveries.len() <= query.limit;
    deliveries.truncate(query.limit);
    Ok(DuePage { deliveries, exhausted })
}

pub(super) fn overdue(sql: &Connection, now: Timestamp, limit: usize) -> Result<Vec<Delivery>, Fault> {
    let mut overdue = sql.prepare_cached(OVERDUE)?;
    let found = overdue.query_map(params![now.0, row::number(limit)], row::delivery)?;
    Ok(found.collect::<Result<_, _>>()?)
}

pub(super) fn next_give_up_at(sql: &Transaction<'_>) -> Result<Option<Timestamp>, Fault> {
    let mut next = sql.prepare_cached(NEXT_GIVE_UP)?;
    Ok(next.query_row([i64::MIN], |row| row.get(0)).optional()?.map(Timestamp))
}
