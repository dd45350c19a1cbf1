//! What people look at: single deliveries with their history, and lists.

use std::ops::Range;

use doorstep_core::attempt::Attempt;
use doorstep_core::id::{DeliveryId, EventId, TenantId};
use doorstep_core::store::{
    ATTEMPTS_TOLD_MAX, CAPTURED_TOLD_MAX, DeliveryFilter, DeliveryHistory, DeliveryStatus, DeliverySummary, Page,
    Statuses,
};
use doorstep_core::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::by_hand::SEQ_OF;
use super::catalog::is_destination;
use super::fault::Fault;
use super::payload::Opener;
use super::row::{self, DELIVERY_COLUMNS, attempt_columns, delivery_columns, of_a_destination};
use super::stretch::{self, STRETCH};
use super::type_match;
use crate::seal::Keyring;

/// Where deliveries are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Unfinished,
    Delivered,
    Dead,
}

impl Table {
    pub(super) const ALL: [Self; 3] = [Self::Unfinished, Self::Delivered, Self::Dead];

    /// The same columns of each. The event is looked up for each delivery, never the other way round.
    fn select(self) -> &'static str {
        macro_rules! select {
            ($table:literal, $own:literal) => {
                concat!(
                    "select ",
                    delivery_columns!(),
                    ", d.last_status, e.id, e.event_type, e.tenant_id, e.accepted_at, ",
                    $own,
                    " from ",
                    $table,
                    " d cross join events e on e.seq = d.event_seq"
                )
            };
        }
        match self {
            Self::Unfinished => select!("deliveries", "d.behind, null, null, null"),
            Self::Delivered => select!("delivered", "0, d.ended_at, null, null"),
            Self::Dead => select!("dead", "0, d.ended_at, d.reason, d.note"),
        }
    }

    fn summary(self, row: &Row<'_>) -> rusqlite::Result<DeliverySummary> {
        let delivery = row::delivery(row)?;
        let own = DELIVERY_COLUMNS;
        let status = match self {
            Self::Unfinished if delivery.progress.attempts == 0 => DeliveryStatus::Queued,
            Self::Unfinished => DeliveryStatus::RetryScheduled,
            Self::Delivered => DeliveryStatus::Delivered,
            Self::Dead => DeliveryStatus::Dead(row::read_reason(row, own + 7)?),
        };
        Ok(DeliverySummary {
            last_status: row.get(own)?,
            event_id: row::event_id(row, own + 1)?,
            event_type: row::parsed(row, own + 2)?,
            tenant_id: TenantId(row::id(row, own + 3)?),
            created_at: Timestamp(row.get(own + 4)?),
            behind: row.get(own + 5)?,
            ended_at: row.get::<_, Option<i64>>(own + 6)?.map(Timestamp),
            note: row.get(own + 8)?,
            status,
            delivery,
        })
    }

    /// Whether any of its deliveries can fit.
    fn is_asked_for(self, filter: &DeliveryFilter) -> bool {
        let holds = match self {
            Self::Unfinished => Statuses::QUEUED.or(Statuses::RETRY_SCHEDULED),
            Self::Delivered => Statuses::DELIVERED,
            Self::Dead => Statuses::DEAD,
        };
        filter.statuses.meets(holds) && (filter.reason.is_none() || self == Self::Dead)
    }
}

pub(super) fn delivery(sql: &Connection, keys: &Keyring, id: DeliveryId) -> Result<Option<DeliveryHistory>, Fault> {
    let Some((seq, summary)) = summary(sql, id)? else { return Ok(None) };
    let attempts = attempts(sql, keys, summary.tenant_id, seq)?;
    Ok(Some(DeliveryHistory { summary, attempts }))
}

/// A delivery's number, and what is known of it.
fn summary(sql: &Connection, id: DeliveryId) -> Result<Option<(i64, DeliverySummary)>, Fault> {
    let seq = sql.prepare_cached(SEQ_OF)?.query_row([id.0.to_be_bytes()], |row| row.get(0)).optional()?;
    let Some(seq) = seq else { return Ok(None) };
    for table in Table::ALL {
        let mut one = sql.prepare_cached(&format!("{} where d.seq = ?1", table.select()))?;
        if let Some(summary) = one.query_row([seq], |row| table.summary(row)).optional()? {
            if table == Table::Unfinished && !is_destination(sql, summary.delivery.destination_id)? {
                return Ok(None);
            }
            return Ok(Some((seq, summary)));
        }
    }
    Err(Fault::Missing { what: "a delivery that has a number" })
}

pub(super) const ATTEMPTS: &str =
    concat!("select ", attempt_columns!(), " from attempts where delivery_seq = ?1 order by n desc limit ?2");

/// Those before them, without what may be long.
pub(super) const EARLIER_ATTEMPTS: &str = concat!(
    "select ",
    attempt_columns!(without captured),
    " from attempts where delivery_seq = ?1 order by n desc limit ?2 offset ?3"
);

fn attempts(sql: &Connection, keys: &Keyring, tenant_id: TenantId, seq: i64) -> Result<Vec<Attempt>, Fault> {
    let mut opener = Opener::new(sql, keys);
    let mut last = sql.prepare_cached(ATTEMPTS)?;
    let mut rows = last.query(params![seq, row::number(CAPTURED_TOLD_MAX)])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        attempts.push(opener.attempt(tenant_id, row)?);
    }
    let mut earlier = sql.prepare_cached(EARLIER_ATTEMPTS)?;
    let n = row::number(ATTEMPTS_TOLD_MAX - CAPTURED_TOLD_MAX);
    let earlier = earlier.query_map(params![seq, n, row::number(CAPTURED_TOLD_MAX)], row::attempt)?;
    attempts.extend(earlier.collect::<Result<Vec<_>, _>>()?);
    attempts.reverse();
    Ok(attempts)
}

pub(super) const ATTEMPT: &str = concat!(
    "select ",
    attempt_columns!(),
    " from attempts where delivery_seq = ?1 and number = ?2 order by n desc limit 1"
);

/// One attempt, and whose it is.
pub(super) fn attempt(
    sql: &Connection,
    keys: &Keyring,
    id: DeliveryId,
    number: u32,
) -> Result<Option<(TenantId, Attempt)>, Fault> {
    let Some((seq, DeliverySummary { tenant_id, .. })) = summary(sql, id)? else { return Ok(None) };
    let mut one = sql.prepare_cached(ATTEMPT)?;
    let mut rows = one.query(params![seq, number])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some((tenant_id, Opener::new(sql, keys).attempt(tenant_id, row)?)))
}

pub(super) fn deliveries(sql: &Connection, filter: &DeliveryFilter, page: Page) -> Result<Vec<DeliverySummary>, Fault> {
    let before = page.before_seq.map_or(i64::MAX, row::number);
    let owner = filter.destination_id.map(|id| id.0).or(filter.tenant_id.map(|id| id.0));
    let look = |seqs: &Range<i64>, limit| look(sql, filter, &(seqs.start..seqs.end.min(before)), limit);
    if let Some(id) = &filter.event_id {
        return stretch::fill(page.limit, of_event(sql, id, filter.tenant_id)?.into_iter().map(Ok), look);
    }
    let Some(owner) = owner else { return look(&(0..before), page.limit) };
    let mut stretches = sql.prepare_cached(stretch::OF_OWNER)?;
    let stretches =
        stretches.query_map(params![owner.to_be_bytes(), before / STRETCH], |row| row.get(0).map(stretch::numbers))?;
    stretch::fill(page.limit, stretches, look)
}

pub(super) const OF_EVENT: &str =
    "select e.first_seq, e.n_deliveries from events e where e.id = ?1 and e.tenant_id = ?2";

pub(super) const OF_NAMESAKES: &str = "select e.first_seq, e.n_deliveries from events e where e.id = ?1";

/// The numbers of an event's deliveries. Without a tenant, those of every tenant that has one so called, newest first.
fn of_event(sql: &Connection, id: &EventId, tenant_id: Option<TenantId>) -> Result<Vec<Range<i64>>, Fault> {
    let mut named = sql.prepare_cached(if tenant_id.is_some() { OF_EVENT } else { OF_NAMESAKES })?;
    let read = |row: &Row<'_>| {
        let (first, n): (i64, i64) = (row.get(0)?, row.get(1)?);
        Ok(first..first + n)
    };
    let of_all = match tenant_id {
        Some(tenant_id) => named.query_map(params![id.as_str(), tenant_id.0.to_be_bytes()], read)?,
        None => named.query_map([id.as_str()], read)?,
    };
    let mut of_all = of_all.collect::<Result<Vec<_>, _>>()?;
    of_all.sort_by_key(|seqs| std::cmp::Reverse(seqs.start));
    Ok(of_all)
}

/// The newest that fit, of those with these numbers.
fn look(
    sql: &Connection,
    filter: &DeliveryFilter,
    seqs: &Range<i64>,
    limit: usize,
) -> Result<Vec<DeliverySummary>, Fault> {
    let mut found = Vec::new();
    for table in Table::ALL.into_iter().filter(|table| table.is_asked_for(filter)) {
        let (text, values) = search(table, filter, seqs, limit);
        let mut lines = sql.prepare_cached(&text)?;
        let lines = lines.query_map(params_from_iter(values), |row| table.summary(row))?;
        found.extend(lines.collect::<Result<Vec<_>, _>>()?);
    }
    found.sort_by_key(|line| std::cmp::Reverse(line.delivery.seq));
    found.truncate(limit);
    Ok(found)
}

/// A search as SQL, by the numbers. What else is asked for is compared row by row.
pub(super) fn search(table: Table, filter: &DeliveryFilter, seqs: &Range<i64>, limit: usize) -> (String, Vec<Value>) {
    let DeliveryFilter {
        statuses,
        types,
        event_id: _, // The numbers are those of its deliveries.
        destination_id,
        tenant_id,
        reason,
        codes,
        created_after,
        created_before,
    } = filter;
    let unfinished = [Statuses::QUEUED, Statuses::RETRY_SCHEDULED].map(|one| statuses.meets(one));
    let track = match unfinished {
        [true, false] if table == Table::Unfinished => Some(0),
        [false, true] if table == Table::Unfinished => Some(1),
        [_, _] => None,
    };
    let (fits_type, asked_type) = type_match::term(types.as_ref());
    let id = |id: u128| Value::Blob(id.to_be_bytes().to_vec());
    let asked = [
        ("d.seq >= ", Some(Value::Integer(seqs.start))),
        ("d.seq < ", Some(Value::Integer(seqs.end))),
        ("+d.destination_id = ", destination_id.map(|dst| id(dst.0))),
        ("+d.track = ", track.map(Value::Integer)),
        ("d.reason = ", reason.map(|reason| Value::Integer(row::reason(reason)))),
        ("d.last_status >= ", codes.map(|codes| Value::Integer(codes.from.into()))),
        ("d.last_status <= ", codes.map(|codes| Value::Integer(codes.to.into()))),
        ("e.tenant_id = ", tenant_id.map(|tenant| id(tenant.0))),
        (fits_type, asked_type),
        ("e.accepted_at >= ", created_after.map(|at| Value::Integer(at.0))),
        ("e.accepted_at < ", created_before.map(|at| Value::Integer(at.0))),
    ];
    let only = (table == Table::Unfinished).then_some(of_a_destination!());
    row::select(table.select(), asked, only, "d.seq", limit)
}
