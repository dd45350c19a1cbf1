//! Writing what came of deliveries.

use std::borrow::Cow;

use doorstep_core::attempt::{Answer, Attempt};
use doorstep_core::delivery::{Delivery, Settlement};
use doorstep_core::quota::{ATTEMPT_BYTES, Usage};
use doorstep_core::retry::{DeadReason, Decision};
use doorstep_core::store::{Settled, Tally};
use doorstep_core::time::Timestamp;
use rusqlite::params;

use super::batch::Batch;
use super::captured;
use super::fault::Fault;
use super::key::Standing;
use super::payload::Cover;
use super::row;
use crate::seal::payload::Content;

/// A settlement is meant for this row only if nobody has sent the delivery again since.
pub(super) const STANDING: &str =
    "select behind, key_place, last_status from deliveries where seq = ?1 and id = ?2 and give_up_at = ?3";

pub(super) const RETRY: &str = "
    update deliveries set track = ?2, due_at = ?3, requests = ?4, attempts = ?5, ambiguous = ?6, last_delay = ?7,
        last_status = ?8, unreadable = ?9
    where seq = ?1";

pub(super) const REMOVE: &str = "delete from deliveries where seq = ?1";

pub(super) const INSERT_DELIVERED: &str = "
    insert into delivered (seq, id, event_seq, destination_id, due_at, requests, attempts, ambiguous, last_delay,
        give_up_at, ordering_key, sequence, last_status, ended_at)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

pub(super) const INSERT_DEAD: &str = "
    insert into dead (seq, id, event_seq, destination_id, due_at, requests, attempts, ambiguous, last_delay,
        give_up_at, ordering_key, sequence, last_status, ended_at, reason, note, holds_key, key_place)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

pub(super) const INSERT_ATTEMPT: &str = "
    insert into attempts (n, delivery_seq, id, number, started_at, status, fault, took_dns, took_connect, took_tls,
        took_first_byte, took_total, request_headers, response_headers, response_truncated, sealed_with, response_body,
        tenant_id, stored_bytes)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";

/// How a delivery ends without success.
pub(super) struct Death<'a> {
    pub(super) reason: DeadReason,
    pub(super) note: Option<&'a str>,
    pub(super) holds_key: bool,
}

/// What was captured of an attempt, in its row.
#[derive(Default)]
struct Captured<'a> {
    request_headers: Option<&'a [u8]>,
    response_headers: Option<&'a [u8]>,
    key: Option<[u8; 8]>,
    /// All of it, where a key is needed.
    body: Cow<'a, [u8]>,
}

impl Batch<'_> {
    /// Returns the delivery that its key lets go now.
    pub(super) fn settle(&mut self, settled: &Settled) -> Result<Option<Delivery>, Fault> {
        let Settled { settlement, attempt } = settled;
        let delivery = &settlement.delivery;
        if !self.is_destination(delivery.destination_id)? {
            return Ok(None);
        }
        let Some((standing, mut last_status)) = self.standing(delivery)? else { return Ok(None) };
        self.count(delivery.destination_id, settlement.settled_at, &Tally::of(settled));
        if let Some(attempt) = attempt {
            last_status = self.insert_attempt(delivery, attempt)?;
        }
        match settlement.decision {
            Decision::RetryAt(_) | Decision::Requeue => {
                self.put_back(delivery, last_status)?;
                return Ok(None);
            }
            Decision::Delivered => {
                self.remove(delivery)?;
                self.insert_delivered(delivery, last_status, settlement.settled_at)?;
            }
            Decision::Dead(reason) => {
                let known = self.latest(settlement)?;
                self.remove(delivery)?;
                let holds_key = delivery.ordering.is_some() && !settlement.releases_key;
                let death = Death { reason, note: settlement.note, holds_key };
                self.insert_dead(&known, standing, last_status, &death, settlement.settled_at)?;
            }
        }
        if settlement.releases_key { self.release(delivery, standing.key_place) } else { Ok(None) }
    }

    fn standing(&self, delivery: &Delivery) -> Result<Option<(Standing, Option<u16>)>, Fault> {
        let of = params![delivery.seq.cast_signed(), delivery.id.0.to_be_bytes(), delivery.progress.give_up_at.0];
        let read =
            |row: &rusqlite::Row<'_>| Ok((Standing { behind: row.get(0)?, key_place: row.get(1)? }, row.get(2)?));
        Ok(self.find(STANDING, of, read)?)
    }

    /// The delivery as it ends: as it was said, or as it is written.
    fn latest<'a>(&self, settlement: &'a Settlement) -> Result<Cow<'a, Delivery>, Fault> {
        let said = Cow::Borrowed(&settlement.delivery);
        if !settlement.ends_untried() {
            return Ok(said);
        }
        let row = self.unfinished(settlement.delivery.seq.cast_signed())?;
        Ok(row.map_or(said, |(delivery, ..)| Cow::Owned(delivery)))
    }

    fn put_back(&self, delivery: &Delivery, last_status: Option<u16>) -> Result<(), Fault> {
        let progress = &delivery.progress;
        self.execute(
            RETRY,
            params![
                delivery.seq.cast_signed(),
                row::track(delivery.track()),
                delivery.due_at.0,
                delivery.requests,
                progress.attempts,
                progress.ambiguous,
                progress.last_delay.0.cast_signed(),
                last_status,
                delivery.unreadable,
            ],
        )?;
        Ok(())
    }

    /// Takes an unfinished delivery out of the hot table.
    pub(super) fn remove(&mut self, delivery: &Delivery) -> Result<(), Fault> {
        self.execute(REMOVE, [delivery.seq.cast_signed()])?;
        self.grow(delivery.destination_id, -1)
    }

    fn insert_delivered(&self, delivery: &Delivery, last_status: Option<u16>, at: Timestamp) -> Result<(), Fault> {
        let Delivery { id, event_seq, destination_id, seq, due_at, requests, progress, ordering, unreadable: _ } =
            delivery;
        self.execute(
            INSERT_DELIVERED,
            params![
                seq.cast_signed(),
                id.0.to_be_bytes(),
                event_seq.cast_signed(),
                destination_id.0.to_be_bytes(),
                due_at.0,
                requests,
                progress.attempts,
                progress.ambiguous,
                progress.last_delay.0.cast_signed(),
                progress.give_up_at.0,
                ordering.as_ref().map(|slot| &slot.key),
                ordering.as_ref().map(|slot| slot.sequence.cast_signed()),
                last_status,
                at.0,
            ],
        )?;
        Ok(())
    }

    pub(super) fn insert_dead(
        &self,
        delivery: &Delivery,
        standing: Standing,
        last_status: Option<u16>,
        death: &Death<'_>,
        at: Timestamp,
    ) -> Result<(), Fault> {
        let Delivery { id, event_seq, destination_id, seq, due_at, requests, progress, ordering, unreadable: _ } =
            delivery;
        self.execute(
            INSERT_DEAD,
            params![
                seq.cast_signed(),
                id.0.to_be_bytes(),
                event_seq.cast_signed(),
                destination_id.0.to_be_bytes(),
                due_at.0,
                requests,
                progress.attempts,
                progress.ambiguous,
                progress.last_delay.0.cast_signed(),
                progress.give_up_at.0,
                ordering.as_ref().map(|slot| &slot.key),
                ordering.as_ref().map(|slot| slot.sequence.cast_signed()),
                last_status,
                at.0,
                row::reason(death.reason),
                death.note,
                death.holds_key,
                standing.key_place,
            ],
        )?;
        Ok(())
    }

    /// Returns its status, if it had one.
    fn insert_attempt(&mut self, delivery: &Delivery, attempt: &Attempt) -> Result<Option<u16>, Fault> {
        self.counters.attempt += 1;
        let (status, fault) = match attempt.answer {
            Answer::Status(status) => (Some(status), None),
            Answer::Fault(fault) => (None, Some(row::fault(fault))),
        };
        let timings = &attempt.timings;
        let [dns, connect, tls, first_byte] = [timings.dns, timings.connect, timings.tls, timings.first_byte]
            .map(|took| took.map(|took| took.0.cast_signed()));
        let tenant_id = self.tenant_of(delivery.destination_id)?;
        let mut stored_bytes = attempt.stored_bytes();
        let added = Usage { stored_bytes, ..Usage::default() };
        let has_room = match tenant_id {
            Some(tenant_id) => self.exceeded(tenant_id, added)?.is_none(),
            None => true,
        };
        let captured = if has_room { self.captured(delivery, attempt)? } else { None };
        let captured = captured.unwrap_or_else(|| {
            stored_bytes = ATTEMPT_BYTES;
            Captured::default()
        });
        if let Some(tenant_id) = tenant_id {
            self.add_bytes(tenant_id, stored_bytes.cast_signed())?;
        }
        self.execute(
            INSERT_ATTEMPT,
            params![
                self.counters.attempt,
                delivery.seq.cast_signed(),
                attempt.id.0.to_be_bytes(),
                attempt.number,
                attempt.started_at.0,
                status,
                fault,
                dns,
                connect,
                tls,
                first_byte,
                timings.total.0.cast_signed(),
                captured.request_headers,
                captured.response_headers,
                attempt.response_truncated,
                captured.key,
                captured.body,
                tenant_id.map(|id| id.0.to_be_bytes()),
                stored_bytes.cast_signed(),
            ],
        )?;
        Ok(status)
    }

    /// What was captured may repeat the payload, so it is kept in the same way, and not at all once that was erased.
    fn captured<'a>(&mut self, delivery: &Delivery, attempt: &'a Attempt) -> Result<Option<Captured<'a>>, Fault> {
        Ok(Some(match self.cover(delivery.event_seq)? {
            Cover::Clear => Captured {
                request_headers: attempt.request_headers.as_json(),
                response_headers: attempt.response_headers.as_json(),
                key: None,
                body: Cow::Borrowed(&attempt.response_body),
            },
            Cover::Sealed(key) => {
                let sealed = key.seal(Content::Captured(attempt.id), &captured::pack(attempt)?);
                Captured { key: Some(key.id.bytes()), body: Cow::Owned(sealed), ..Captured::default() }
            }
            Cover::Erased => return Ok(None),
        }))
    }
}
