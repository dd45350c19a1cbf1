//! How things look in rows.

use std::sync::Arc;

use bytes::Bytes;
use doorstep_core::attempt::{Answer, Attempt, KeptHeaders, Timings};
use doorstep_core::delivery::{Delivery, OrderingSlot, Track};
use doorstep_core::event::{CloudAttributes, Event};
use doorstep_core::id::{AttemptId, DeliveryId, DestinationId, EventId, TenantId};
use doorstep_core::outcome::Fault as RequestFault;
use doorstep_core::retry::{DeadReason, Progress};
use doorstep_core::time::{Millis, Timestamp};
use rusqlite::Row;
use rusqlite::types::{Type, Value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fault::Fault;

/// What [`delivery`] reads, of the table called `d`.
macro_rules! delivery_columns {
    () => {
        "d.id, d.event_seq, d.destination_id, d.seq, d.due_at, d.requests, d.attempts, d.ambiguous, d.last_delay, \
         d.give_up_at, d.ordering_key, d.sequence, d.unreadable"
    };
}
pub(super) use delivery_columns;

/// That a delivery, `d`, is not queued for a destination that was removed.
macro_rules! of_a_destination {
    () => {
        "exists (select 1 from destinations t where t.id = d.destination_id)"
    };
}
pub(super) use of_a_destination;

/// How many they are.
pub(super) const DELIVERY_COLUMNS: usize = 13;

pub(super) fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let key: Option<Arc<str>> = row.get(10)?;
    let sequence: Option<i64> = row.get(11)?;
    Ok(Delivery {
        id: DeliveryId(id(row, 0)?),
        event_seq: unsigned(row, 1)?,
        destination_id: DestinationId(id(row, 2)?),
        seq: unsigned(row, 3)?,
        due_at: Timestamp(row.get(4)?),
        requests: row.get(5)?,
        progress: Progress {
            attempts: row.get(6)?,
            ambiguous: row.get(7)?,
            last_delay: millis(row.get(8)?),
            give_up_at: Timestamp(row.get(9)?),
        },
        ordering: key.zip(sequence).map(|(key, sequence)| OrderingSlot { key, sequence: sequence.cast_unsigned() }),
        unreadable: row.get(12)?,
    })
}

/// What [`event`] reads, of the table called `e`.
macro_rules! event_columns {
    () => {
        "e.tenant_id, e.id, e.event_type, e.accepted_at, e.content_type, e.ordering_key, e.produced_at, \
         e.schema_version, e.headers, e.ttl, e.traceparent, e.payload, e.wall_offset"
    };
}
pub(super) use event_columns;

/// Without its headers and what it says of itself as a CloudEvent, which are beside it as they are kept, like its payload.
pub(super) fn event(row: &Row<'_>) -> rusqlite::Result<(Event, Option<Vec<u8>>)> {
    let event = Event {
        tenant_id: TenantId(id(row, 0)?),
        id: event_id(row, 1)?,
        event_type: parsed(row, 2)?,
        accepted_at: Timestamp(row.get(3)?),
        content_type: row.get(4)?,
        ordering_key: row.get(5)?,
        produced_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
        schema_version: row.get(7)?,
        headers: Vec::new(),
        ttl: row.get::<_, Option<i64>>(9)?.map(millis),
        trace: row
            .get::<_, Option<String>>(10)?
            .map(|text| text.parse())
            .transpose()
            .map_err(|error| misread(10, error))?,
        payload: Bytes::from(row.get::<_, Vec<u8>>(11)?),
        wall_offset_ms: row.get(12)?,
        cloud: None,
    };
    Ok((event, row.get(8)?))
}

macro_rules! attempt_columns {
    () => {
        "id, number, started_at, status, fault, took_dns, took_connect, took_tls, took_first_byte, took_total, \
         request_headers, response_headers, response_truncated, response_body, sealed_with"
    };
    (without captured) => {
        "id, number, started_at, status, fault, took_dns, took_connect, took_tls, took_first_byte, took_total, \
         null, null, response_truncated, x'', null as sealed_with"
    };
}
pub(super) use attempt_columns;

pub(super) fn attempt(row: &Row<'_>) -> rusqlite::Result<Attempt> {
    let took = |at| row.get::<_, Option<i64>>(at).map(|took| took.map(millis));
    let answer = match (row.get(3)?, row.get::<_, Option<u16>>(4)?.map(usize::from)) {
        (Some(status), None) => Answer::Status(status),
        (None, Some(fault)) if fault < RequestFault::ALL.len() => Answer::Fault(RequestFault::ALL[fault]),
        (_, fault) => return Err(misread(4, format!("neither status nor fault: {fault:?}"))),
    };
    Ok(Attempt {
        id: AttemptId(id(row, 0)?),
        number: row.get(1)?,
        started_at: Timestamp(row.get(2)?),
        timings: Timings {
            dns: took(5)?,
            connect: took(6)?,
            tls: took(7)?,
            first_byte: took(8)?,
            total: millis(row.get(9)?),
        },
        answer,
        request_headers: KeptHeaders::from_json(blob(row, 10)?).map_err(|error| misread(10, error))?,
        response_headers: KeptHeaders::from_json(blob(row, 11)?).map_err(|error| misread(11, error))?,
        response_truncated: row.get(12)?,
        response_body: Bytes::from(row.get::<_, Vec<u8>>(13)?),
    })
}

pub(super) fn id(row: &Row<'_>, at: usize) -> rusqlite::Result<u128> {
    row.get::<_, [u8; 16]>(at).map(u128::from_be_bytes)
}

pub(super) fn event_id(row: &Row<'_>, at: usize) -> rusqlite::Result<EventId> {
    EventId::new(row.get_ref(at)?.as_str()?).map_err(|error| misread(at, error))
}

pub(super) fn parsed<T>(row: &Row<'_>, at: usize) -> rusqlite::Result<T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    row.get_ref(at)?.as_str()?.parse().map_err(|error| misread(at, error))
}

fn unsigned(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(at).map(i64::cast_unsigned)
}

fn misread(at: usize, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(at, Type::Blob, error.into())
}

/// Numbers in SQLite have a sign: the bits are kept as they are.
pub(super) fn millis(stored: i64) -> Millis {
    Millis(stored.cast_unsigned())
}

/// A number of ours that is bounded by what there is, or a limit.
pub(super) fn number(n: impl TryInto<i64>) -> i64 {
    n.try_into().unwrap_or(i64::MAX)
}

pub(super) fn track(track: Track) -> i64 {
    match track {
        Track::First => 0,
        Track::Retry => 1,
    }
}

const REASONS: [DeadReason; 4] =
    [DeadReason::Exhausted, DeadReason::Expired, DeadReason::Rejected, DeadReason::Abandoned];

pub(super) fn reason(reason: DeadReason) -> i64 {
    match reason {
        DeadReason::Exhausted => 0,
        DeadReason::Expired => 1,
        DeadReason::Rejected => 2,
        DeadReason::Abandoned => 3,
    }
}

pub(super) fn read_reason(row: &Row<'_>, at: usize) -> rusqlite::Result<DeadReason> {
    let stored = usize::from(row.get::<_, u16>(at)?);
    REASONS.get(stored).copied().ok_or_else(|| misread(at, format!("no reason has the number {stored}")))
}

/// The place of a fault in [`RequestFault::ALL`], which only ever grows at its end.
pub(super) fn fault(fault: RequestFault) -> i64 {
    number(RequestFault::ALL.iter().position(|known| *known == fault).unwrap_or(usize::MAX))
}

/// Most have none, and then nothing is kept.
pub(super) fn headers(headers: &[(String, String)]) -> Result<Option<Vec<u8>>, Fault> {
    if headers.is_empty() {
        return Ok(None);
    }
    // Every attempt has some: made as long as it will be, it does not have to grow.
    let len = headers.iter().map(|(name, value)| name.len() + value.len() + r#"["",""],"#.len()).sum::<usize>();
    let mut stored = Vec::with_capacity(len + 2);
    serde_json::to_writer(&mut stored, headers).map_err(|error| Fault::unreadable("headers")(Box::new(error)))?;
    Ok(Some(stored))
}

pub(super) fn read_headers(stored: Option<&[u8]>) -> Result<Vec<(String, String)>, serde_json::Error> {
    stored.map_or(Ok(Vec::new()), serde_json::from_slice)
}

/// An event's headers and what it says of itself as a CloudEvent, which is as private as they are and is sealed with them.
pub(super) fn event_headers(event: &Event) -> Result<Option<Vec<u8>>, Fault> {
    let Some(cloud) = &event.cloud else { return headers(&event.headers) };
    let attributes = serde_json::to_string(&**cloud).map_err(|error| Fault::unreadable("headers")(Box::new(error)))?;
    let beside = (CLOUD_ATTRIBUTES.to_owned(), attributes);
    headers(&event.headers.iter().cloned().chain([beside]).collect::<Vec<_>>())
}

/// No header has such a name.
const CLOUD_ATTRIBUTES: &str = ":cloudevent";

/// Reads what [`event_headers`] wrote.
pub(super) fn read_event_headers(event: &mut Event, stored: Option<&[u8]>) -> Result<(), serde_json::Error> {
    event.headers = read_headers(stored)?;
    if let Some((_, attributes)) = event.headers.pop_if(|(name, _)| name == CLOUD_ATTRIBUTES) {
        event.cloud = Some(Arc::new(serde_json::from_str::<CloudAttributes>(&attributes)?));
    }
    Ok(())
}

fn blob<'r>(row: &'r Row<'_>, at: usize) -> rusqlite::Result<Option<&'r [u8]>> {
    Ok(row.get_ref(at)?.as_blob_or_null()?)
}

pub(super) fn json<T: Serialize + ?Sized>(what: &'static str, value: &T) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|error| Fault::unreadable(what)(Box::new(error)))
}

pub(super) fn read_json<T: DeserializeOwned>(what: &'static str, stored: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(stored).map_err(|error| Fault::unreadable(what)(Box::new(error)))
}

/// A search over the `terms` that were asked for, and `only` where that holds too, the greatest `by` first.
pub(super) fn select<const N: usize>(
    select: &str,
    terms: [(&str, Option<Value>); N],
    only: Option<&str>,
    by: &str,
    limit: usize,
) -> (String, Vec<Value>) {
    let mut text = select.to_owned();
    let mut values = Vec::new();
    for (term, value) in terms.into_iter().filter_map(|(term, value)| value.map(|value| (term, value))) {
        values.push(value);
        let word = if values.len() == 1 { "where" } else { "and" };
        text.push_str(&format!(" {word} {term}?{}", values.len()));
    }
    if let Some(only) = only {
        let word = if values.is_empty() { "where" } else { "and" };
        text.push_str(&format!(" {word} {only}"));
    }
    values.push(Value::Integer(number(limit)));
    text.push_str(&format!(" order by {by} desc limit ?{}", values.len()));
    (text, values)
}
