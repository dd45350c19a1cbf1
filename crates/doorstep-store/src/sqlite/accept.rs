//! Taking events in, and reading them.

use std::sync::Arc;

use doorstep_core::delivery::{Delivery, OrderingSlot};
use doorstep_core::event::{Event, KeyDigest, NewDelivery, NewEvent};
use doorstep_core::id::{DestinationId, EventId, TenantId};
use doorstep_core::quota::{DELIVERY_BYTES, Usage};
use doorstep_core::retry::Progress;
use doorstep_core::store::{EventSummary, NAMESAKES_MAX, Refusal, StoredEvent, Unreadable, Written};
use doorstep_core::time::{Millis, Timestamp};
use rusqlite::{Connection, params};

use super::batch::Batch;
use super::fault::Fault;
use super::key::Standing;
use super::payload::{Kept, Opener};
use super::row::{self, event_columns};
use crate::seal::Keyring;

pub(super) const INSERT_EVENT: &str = "
    insert into events (seq, tenant_id, id, event_type, accepted_at, n_deliveries, n_kept, first_seq, content_type, ordering_key,
        produced_at, schema_version, headers, ttl, traceparent, idempotency_key, payload_key, payload, stored_bytes, wall_offset, digest)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
    on conflict (id, tenant_id) do nothing";

pub(super) const EVENT_BY_SEQ: &str =
    concat!("select ", event_columns!(), ", e.seq, e.payload_key, e.digest from events e where e.seq = ?1");

pub(super) const EVENT_BY_ID: &str = concat!(
    "select ",
    event_columns!(),
    ", e.n_deliveries, e.seq, e.payload_key, e.digest from events e where e.id = ?1 and e.tenant_id = ?2"
);

pub(super) const EVENT_OF_KEY: &str = "select id from events where tenant_id = ?1 and idempotency_key = ?2";

pub(super) const IS_EVENT: &str = "select 1 from events where id = ?1 and tenant_id = ?2";

pub(super) const EVENTS_BY_ID: &str = concat!(
    "select ",
    event_columns!(),
    ", e.n_deliveries, e.seq, e.payload_key, e.digest from events e where e.id = ?1 order by e.tenant_id limit ?2"
);

pub(super) const INSERT_DELIVERY: &str = "
    insert into deliveries (seq, id, event_seq, destination_id, track, behind, due_at, requests, attempts, ambiguous,
        last_delay, give_up_at, ordering_key, sequence, key_place, last_status, unreadable)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";

pub(super) const IS_DESTINATION: &str = "select tenant_id from destinations where id = ?1";

/// Destinations that the writer knows without reading them.
const DESTINATIONS_KEPT: usize = 100_000;

impl Batch<'_> {
    pub(super) fn accept(&mut self, new: &NewEvent, now: Timestamp) -> Result<Written, Fault> {
        let used_for = match new.key {
            Some(key) => self.used_for(new.event.tenant_id, key)?,
            None => None,
        };
        if used_for.as_ref().is_some_and(|id| *id != new.event.id) {
            return Ok(Written::Refused(Refusal::KeyReused));
        }
        let mut wanted = Vec::with_capacity(new.deliveries.len());
        for delivery in &new.deliveries {
            if self.is_destination(delivery.destination_id)? {
                wanted.push(delivery);
            }
        }
        let tenant_id = new.event.tenant_id;
        let added = Usage {
            queued_deliveries: wanted.len() as u64,
            stored_bytes: new.event.stored_bytes() + DELIVERY_BYTES * wanted.len() as u64,
        };
        if let Some(exceeded) = self.exceeded(tenant_id, added)?
            && !self.exists(IS_EVENT, params![new.event.id.as_str(), tenant_id.0.to_be_bytes()])?
        {
            return Ok(Written::Refused(Refusal::QuotaExceeded(exceeded)));
        }
        // Whatever is wrong with one tenant's key is no reason to fail the others in this batch.
        let kept = match self.payload_of(&new.event) {
            Ok(kept) => kept,
            Err(fault @ Fault::Unreadable { .. }) => {
                self.report_key(tenant_id, &fault);
                return Ok(Written::Refused(Refusal::TenantKeyUnreadable));
            }
            Err(fault) => return Err(fault),
        };
        if !self.insert_event(&new.event, kept, new.key, wanted.len())? {
            return self.repeated(&new.event, used_for.is_some());
        }
        self.add_bytes(tenant_id, added.stored_bytes.cast_signed())?;
        self.note_event(tenant_id.0, self.counters.event_seq)?;
        let key = new.event.ordering_key.as_ref();
        let mut available = Vec::new();
        for delivery in &wanted {
            available.extend(self.make(delivery, key.filter(|_| delivery.ordered), now)?);
            self.note_owner(delivery.destination_id.0, self.counters.seq)?;
            self.note_owner(tenant_id.0, self.counters.seq)?;
        }
        Ok(Written::Accepted { deliveries: wanted.len(), duplicate: false, available })
    }

    /// The event that was accepted with this key, or is named by it.
    fn used_for(&self, tenant_id: TenantId, key: KeyDigest) -> Result<Option<EventId>, Fault> {
        let tenant_id = tenant_id.0.to_be_bytes();
        let of = params![tenant_id, key.0.to_be_bytes()];
        if let Some(id) = self.find(EVENT_OF_KEY, of, |row| row::event_id(row, 0))? {
            return Ok(Some(id));
        }
        let named = key.event_id();
        let is_there = self.exists(IS_EVENT, params![named.as_str(), tenant_id])?;
        Ok(is_there.then_some(named))
    }

    /// Whether it is a new one.
    fn insert_event(
        &mut self,
        event: &Event,
        kept: Kept<'_>,
        key: Option<KeyDigest>,
        n_deliveries: usize,
    ) -> Result<bool, Fault> {
        let seq = self.counters.event_seq + 1;
        let key = key.filter(|key| key.event_id() != event.id);
        let inserted = self.execute(
            INSERT_EVENT,
            params![
                seq,
                event.tenant_id.0.to_be_bytes(),
                event.id.as_str(),
                event.event_type.as_str(),
                event.accepted_at.0,
                row::number(n_deliveries),
                self.counters.seq + 1,
                event.content_type,
                event.ordering_key,
                event.produced_at.map(|at| at.0),
                event.schema_version,
                kept.headers,
                event.ttl.map(|ttl| ttl.0.cast_signed()),
                event.trace.map(|trace| trace.to_string()),
                key.map(|key| key.0.to_be_bytes()),
                kept.key,
                kept.payload,
                event.stored_bytes().cast_signed(),
                event.wall_offset_ms,
                kept.digest,
            ],
        )?;
        if inserted > 0 {
            self.counters.event_seq = seq;
        }
        Ok(inserted > 0)
    }

    fn repeated(&self, event: &Event, has_its_key: bool) -> Result<Written, Fault> {
        let mut opener = Opener::new(self.sql, self.keys);
        let mut before = self.statement(EVENT_BY_ID)?;
        let mut rows = before.query(params![event.id.as_str(), event.tenant_id.0.to_be_bytes()])?;
        let Some(row) = rows.next()? else { return Err(Fault::Missing { what: "an event that is there" }) };
        let deliveries: u32 = row.get(13)?;
        // With an erased payload there is nothing to compare: it was accepted once, and that is enough.
        let before = match opener.event(row) {
            Ok(before) => before,
            Err(fault) if fault.is_damage() => {
                let (event_id, tenant_id) = (&event.id, event.tenant_id);
                tracing::error!(%event_id, %tenant_id, error = fault.in_full(), "an event was sent again, but its stored copy cannot be read");
                return Ok(Written::Refused(Refusal::EventUnreadable));
            }
            Err(fault) => return Err(fault),
        };
        Ok(match before.and_then(|before| before.differs_from(event, has_its_key)) {
            None => Written::Accepted { deliveries: deliveries as usize, duplicate: true, available: Vec::new() },
            Some(refusal) => Written::Refused(refusal),
        })
    }

    /// Makes one delivery, and returns it if it may go.
    fn make(&mut self, new: &NewDelivery, key: Option<&Arc<str>>, now: Timestamp) -> Result<Option<Delivery>, Fault> {
        self.counters.seq += 1;
        let (ordering, standing) = match key {
            None => (None, Standing::default()),
            Some(key) => {
                let (sequence, standing) = self.join_key(new.destination_id, key, now)?;
                (Some(OrderingSlot { key: Arc::clone(key), sequence }), standing)
            }
        };
        let give_up_at = new.give_up_at;
        let delivery = Delivery {
            id: new.id,
            event_seq: self.counters.event_seq.cast_unsigned(),
            destination_id: new.destination_id,
            seq: self.counters.seq.cast_unsigned(),
            due_at: now,
            requests: 0,
            progress: Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at },
            ordering,
            unreadable: 0,
        };
        self.execute(
            "insert into delivery_seqs (id, seq) values (?1, ?2)",
            params![new.id.0.to_be_bytes(), self.counters.seq],
        )?;
        self.insert_delivery(&delivery, standing, None)?;
        Ok((!standing.behind).then_some(delivery))
    }

    /// Puts an unfinished delivery into the hot table.
    pub(super) fn insert_delivery(
        &mut self,
        delivery: &Delivery,
        standing: Standing,
        last_status: Option<u16>,
    ) -> Result<(), Fault> {
        let Delivery { id, event_seq, destination_id, seq, due_at, requests, progress, ordering, unreadable } =
            delivery;
        self.execute(
            INSERT_DELIVERY,
            params![
                seq.cast_signed(),
                id.0.to_be_bytes(),
                event_seq.cast_signed(),
                destination_id.0.to_be_bytes(),
                row::track(delivery.track()),
                standing.behind,
                due_at.0,
                requests,
                progress.attempts,
                progress.ambiguous,
                progress.last_delay.0.cast_signed(),
                progress.give_up_at.0,
                ordering.as_ref().map(|slot| &slot.key),
                ordering.as_ref().map(|slot| slot.sequence.cast_signed()),
                standing.key_place,
                last_status,
                unreadable,
            ],
        )?;
        self.grow(*destination_id, 1)
    }

    pub(super) fn is_destination(&mut self, id: DestinationId) -> Result<bool, Fault> {
        Ok(self.tenant_of(id)?.is_some())
    }

    /// Whose destination it is, if it is there.
    pub(super) fn tenant_of(&mut self, id: DestinationId) -> Result<Option<TenantId>, Fault> {
        if let Some(known) = self.destinations.get(&id) {
            return Ok(*known);
        }
        if self.destinations.len() >= DESTINATIONS_KEPT {
            self.destinations.clear();
        }
        let found = self.find(IS_DESTINATION, [id.0.to_be_bytes()], |row| Ok(TenantId(row::id(row, 0)?)))?;
        self.destinations.insert(id, found);
        Ok(found)
    }
}

pub(super) const NAME_OF_EVENT: &str = "select id, tenant_id from events where seq = ?1";

pub(super) fn events(sql: &Connection, keys: &Keyring, seqs: &[u64]) -> Result<Vec<StoredEvent>, Fault> {
    let mut opener = Opener::new(sql, keys);
    let mut by_seq = sql.prepare_cached(EVENT_BY_SEQ)?;
    let mut found = Vec::with_capacity(seqs.len());
    for seq in seqs {
        let read = by_seq.query([row::number(*seq)]).map_err(Fault::from).and_then(|mut rows| {
            let row = rows.next()?;
            row.map_or(Ok(None), |row| opener.event(row))
        });
        found.push(match read {
            Ok(Some(event)) => StoredEvent::Readable(Arc::new(event)),
            Ok(None) => StoredEvent::Gone,
            Err(fault) if fault.is_damage() => {
                let (event_id, tenant_id) = name(sql, *seq).unzip();
                StoredEvent::Unreadable(Unreadable { event_id, tenant_id, why: fault.in_full() })
            }
            Err(fault) => return Err(fault),
        });
    }
    Ok(found)
}

/// What an event that cannot be read is called, if that can be read.
fn name(sql: &Connection, seq: u64) -> Option<(EventId, TenantId)> {
    let mut name = sql.prepare_cached(NAME_OF_EVENT).ok()?;
    name.query_row([row::number(seq)], |row| Ok((row::event_id(row, 0)?, TenantId(row::id(row, 1)?)))).ok()
}

pub(super) fn event(
    sql: &Connection,
    keys: &Keyring,
    tenant_id: Option<TenantId>,
    id: &EventId,
) -> Result<Vec<(EventSummary, Arc<Event>)>, Fault> {
    let mut opener = Opener::new(sql, keys);
    let mut named = sql.prepare_cached(if tenant_id.is_some() { EVENT_BY_ID } else { EVENTS_BY_ID })?;
    let mut rows = match tenant_id {
        Some(tenant_id) => named.query(params![id.as_str(), tenant_id.0.to_be_bytes()])?,
        None => named.query(params![id.as_str(), row::number(NAMESAKES_MAX)])?,
    };
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(event) = opener.event(row)? else { continue };
        let (deliveries, seq) = (row.get::<_, i64>(13)?.cast_unsigned(), row.get::<_, i64>(14)?.cast_unsigned());
        found.push((EventSummary::of(seq, &event, deliveries), Arc::new(event)));
    }
    Ok(found)
}
