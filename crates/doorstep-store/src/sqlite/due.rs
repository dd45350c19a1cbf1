//! What the engine reads to go on: what is due, and what has run out of time.

use doorstep_core::delivery::Delivery;
use doorstep_core::store::{DuePage, DueQuery};
use doorstep_core::time::Timestamp;
use rusqlite::{Connection, Transaction, params};

use super::fault::Fault;
use super::row::{self, delivery_columns};

pub(super) const DUE: &str = concat!(
    "select ",
    delivery_columns!(),
    " from deliveries d
     where d.destination_id = ?1 and d.track = ?2 and d.behind = 0 and (d.due_at, d.seq) > (?3, ?4)
     order by d.due_at, d.seq limit ?5"
);

pub(super) const OVERDUE: &str = concat!(
    "select ",
    delivery_columns!(),
    " from deliveries d where d.give_up_at <= ?1 order by d.give_up_at, d.seq limit ?2"
);

pub(super) const NEXT_GIVE_UP: &str = "select min(give_up_at) from deliveries";

pub(super) fn due(sql: &Connection, query: &DueQuery) -> Result<DuePage, Fault> {
    let mut due = sql.prepare_cached(DUE)?;
    let (due_at, seq) = query.after.map_or((i64::MIN, i64::MIN), |at| (at.due_at.0, row::number(at.seq)));
    // One more than wanted says whether there are any beyond.
    let limit = row::number(query.limit).saturating_add(1);
    let of = params![query.destination_id.0.to_be_bytes(), row::track(query.track), due_at, seq, limit];
    let mut deliveries = due.query_map(of, row::delivery)?.collect::<Result<Vec<Delivery>, _>>()?;
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
    Ok(next.query_row([], |row| row.get::<_, Option<i64>>(0))?.map(Timestamp))
}
