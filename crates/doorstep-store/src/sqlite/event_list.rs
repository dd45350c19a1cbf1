//! Lists of events, without their payloads.

use std::ops::Range;

use doorstep_core::id::TenantId;
use doorstep_core::store::{EventFilter, EventSummary, Page};
use doorstep_core::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

use super::fault::Fault;
use super::row;
use super::stretch::{self, STRETCH};
use super::type_match;
use crate::seal::payload::PAYLOAD_GROWS_BY;

/// The payload's length stands at the beginning of its row: no payload is read for it.
const SELECT: &str = "select e.seq, e.id, e.tenant_id, e.event_type, e.content_type, length(e.payload), e.ordering_key, \
                      e.produced_at, e.schema_version, e.accepted_at, e.n_deliveries, e.payload_key is not null from events e";

pub(super) fn event_list(sql: &Connection, filter: &EventFilter, page: Page) -> Result<Vec<EventSummary>, Fault> {
    let before = page.before_seq.map_or(i64::MAX, row::number);
    let Some(tenant_id) = filter.tenant_id else { return look(sql, filter, &(0..before), page.limit) };
    let mut stretches = sql.prepare_cached(stretch::OF_EVENT_OWNER)?;
    let stretches = stretches.query_map(params![tenant_id.0.to_be_bytes(), before / STRETCH], |row| {
        let Range { start, end } = stretch::numbers(row.get(0)?);
        Ok(start..end.min(before))
    })?;
    stretch::fill(page.limit, stretches, |seqs, limit| look(sql, filter, seqs, limit))
}

/// The newest that fit, of those with these numbers.
fn look(sql: &Connection, filter: &EventFilter, seqs: &Range<i64>, limit: usize) -> Result<Vec<EventSummary>, Fault> {
    let (text, values) = search(filter, seqs, limit);
    let mut lines = sql.prepare_cached(&text)?;
    Ok(lines.query_map(params_from_iter(values), summary)?.collect::<Result<_, _>>()?)
}

/// A search as SQL, by the numbers. What else is asked for is compared row by row.
pub(super) fn search(filter: &EventFilter, seqs: &Range<i64>, limit: usize) -> (String, Vec<Value>) {
    let EventFilter { types, tenant_id, ordering_key, accepted_after, accepted_before } = filter;
    let (fits_type, asked_type) = type_match::term(types.as_ref());
    let asked = [
        ("e.seq >= ", Some(Value::Integer(seqs.start))),
        ("e.seq < ", Some(Value::Integer(seqs.end))),
        ("+e.tenant_id = ", tenant_id.map(|id| Value::Blob(id.0.to_be_bytes().to_vec()))),
        (fits_type, asked_type),
        ("e.ordering_key = ", ordering_key.as_ref().map(|key| Value::Text(key.to_string()))),
        ("+e.accepted_at >= ", accepted_after.map(|at| Value::Integer(at.0))),
        ("+e.accepted_at < ", accepted_before.map(|at| Value::Integer(at.0))),
    ];
    row::select(SELECT, asked, None, "e.seq", limit)
}

fn summary(row: &Row<'_>) -> rusqlite::Result<EventSummary> {
    Ok(EventSummary {
        seq: row.get::<_, i64>(0)?.cast_unsigned(),
        id: row::event_id(row, 1)?,
        tenant_id: TenantId(row::id(row, 2)?),
        event_type: row::parsed(row, 3)?,
        content_type: row.get(4)?,
        payload_bytes: row.get::<_, i64>(5)?.cast_unsigned() - if row.get(11)? { PAYLOAD_GROWS_BY as u64 } else { 0 },
        ordering_key: row.get(6)?,
        produced_at: row.get::<_, Option<i64>>(7)?.map(Timestamp),
        schema_version: row.get(8)?,
        accepted_at: Timestamp(row.get(9)?),
        deliveries: row.get::<_, i64>(10)?.cast_unsigned(),
    })
}
