//! Payloads, and what goes with them, encrypted with their tenant's key; and how they are erased.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use doorstep_core::attempt::Attempt;
use doorstep_core::event::Event;
use doorstep_core::id::TenantId;
use doorstep_core::store::{Refusal, Written};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::batch::Batch;
use super::captured;
use super::fault::Fault;
use super::row;
use crate::seal::digest::DIGEST_LEN;
use crate::seal::payload::{Content, TenantKey};
use crate::seal::{KeyId, Keyring, SealError};

/// Tenants' keys that the writer keeps at hand.
pub(super) const KEYS_KEPT: usize = 4_096;

const TENANT_KEY: &str = "select id, sealed from tenant_keys where tenant_id = ?1";

pub(super) const KEY_OF_EVENT: &str = "select tenant_id, payload_key from events where seq = ?1";

const WHAT: &str = "a tenant's key";
const CAPTURED: &str = "what was captured of an attempt";

/// A payload and its headers in their row, and the key that they need, if any.
pub(super) struct Kept<'e> {
    pub(super) headers: Option<Vec<u8>>,
    pub(super) payload: Cow<'e, [u8]>,
    pub(super) key: Option<[u8; 8]>,
    /// Of one that is not encrypted: what is encrypted shows by itself that it was changed.
    pub(super) digest: Option<[u8; DIGEST_LEN]>,
}

/// How something that belongs to an event is kept.
pub(super) enum Cover {
    Clear,
    Sealed(Arc<TenantKey>),
    /// Not at all: its payload was erased while the request was on its way.
    Erased,
}

impl Batch<'_> {
    /// The payload and its headers as they are to be written.
    pub(super) fn payload_of<'e>(&mut self, event: &'e Event) -> Result<Kept<'e>, Fault> {
        let headers = row::event_headers(event)?;
        if !self.keys.seals_payloads() {
            let digest = self.keys.digests().map(|key| key.digest(event));
            return Ok(Kept { headers, payload: Cow::Borrowed(&event.payload), key: None, digest });
        }
        let key = self.tenant_key(event.tenant_id)?;
        let headers = headers.map(|headers| key.seal(Content::Headers(&event.id), &headers));
        let payload = Cow::Owned(key.seal(Content::Payload(&event.id), &event.payload));
        Ok(Kept { headers, payload, key: Some(key.id.bytes()), digest: None })
    }

    /// How what is captured of a delivery of this event is to be kept: like its payload.
    pub(super) fn cover(&mut self, event_seq: u64) -> Result<Cover, Fault> {
        if !self.may_seal {
            return Ok(Cover::Clear);
        }
        let read = |row: &Row<'_>| Ok((TenantId(row::id(row, 0)?), row.get::<_, Option<[u8; 8]>>(1)?));
        let (tenant_id, key_id) = self.row(KEY_OF_EVENT, [row::number(event_seq)], read)?;
        let Some(key_id) = key_id else { return Ok(Cover::Clear) };
        let key = match self.present_key(tenant_id) {
            Ok(key) => key,
            // What became of a delivery has to be written in any case, or nothing else would be from then on.
            Err(Fault::Unreadable { what, source }) => {
                tracing::error!(%tenant_id, error = %source, "{what} cannot be read: what its receivers answer is not kept");
                None
            }
            Err(fault @ (Fault::Sqlite(_) | Fault::Missing { .. })) => return Err(fault),
        };
        Ok(key.filter(|key| key.id.bytes() == key_id).map_or(Cover::Erased, Cover::Sealed))
    }

    /// Says once that a tenant's events are refused: it may send thousands a second.
    pub(super) fn report_key(&mut self, tenant_id: TenantId, fault: &Fault) {
        if self.reported_keys.len() >= KEYS_KEPT {
            self.reported_keys.clear();
        }
        if self.reported_keys.insert(tenant_id) {
            tracing::error!(%tenant_id, error = fault.in_full(), "the key of a tenant's payloads cannot be read: its events are refused");
        }
    }

    fn tenant_key(&mut self, tenant_id: TenantId) -> Result<Arc<TenantKey>, Fault> {
        if let Some(key) = self.present_key(tenant_id)? {
            return Ok(key);
        }
        let (key, sealed) = TenantKey::make(self.keys, tenant_id);
        let sql = "insert into tenant_keys (tenant_id, id, sealed) values (?1, ?2, ?3)";
        self.without_a_trace(sql, params![tenant_id.0.to_be_bytes(), key.id.bytes(), sealed])?;
        Ok(self.keep_key(tenant_id, key))
    }

    fn present_key(&mut self, tenant_id: TenantId) -> Result<Option<Arc<TenantKey>>, Fault> {
        if let Some(key) = self.tenant_keys.get(&tenant_id) {
            return Ok(Some(Arc::clone(key)));
        }
        Ok(read_key(self.sql, self.keys, tenant_id)?.map(|key| self.keep_key(tenant_id, key)))
    }

    fn keep_key(&mut self, tenant_id: TenantId, key: TenantKey) -> Arc<TenantKey> {
        if self.tenant_keys.len() >= KEYS_KEPT {
            self.tenant_keys.clear();
        }
        let key = Arc::new(key);
        self.tenant_keys.insert(tenant_id, Arc::clone(&key));
        key
    }

    /// For every change of the table of keys, also for new ones: rows that make room for others, and move to another page for it, would
    /// leave copies behind that nobody finds when they are erased.
    fn without_a_trace(&self, sql: &'static str, params: impl Params) -> rusqlite::Result<usize> {
        self.sql.pragma_update(None, "secure_delete", true)?;
        let changed = self.execute(sql, params);
        self.sql.pragma_update(None, "secure_delete", false)?;
        changed
    }

    /// Forgets the key, and leaves no trace of it in unused pages. What it encrypted goes with the purges to come.
    pub(super) fn erase_payloads(&mut self, tenant_id: TenantId) -> Result<Written, Fault> {
        self.tenant_keys.remove(&tenant_id);
        let sql = "delete from tenant_keys where tenant_id = ?1";
        let erased = self.without_a_trace(sql, [tenant_id.0.to_be_bytes()])?;
        self.erased |= erased > 0;
        Ok(if erased > 0 { Written::Saved } else { Written::Refused(Refusal::NotFound) })
    }
}

/// Opens payloads, and keeps the keys that it needed.
pub(super) struct Opener<'a> {
    sql: &'a Connection,
    keys: &'a Keyring,
    tenant_keys: HashMap<TenantId, Option<TenantKey>>,
}

impl<'a> Opener<'a> {
    pub(super) fn new(sql: &'a Connection, keys: &'a Keyring) -> Self {
        Self { sql, keys, tenant_keys: HashMap::new() }
    }

    /// The event as it was accepted, with its payload and headers in the clear; `None` if they were erased. The row has the columns
    /// `seq`, `payload_key` and `digest`.
    pub(super) fn event(&mut self, row: &Row<'_>) -> Result<Option<Event>, Fault> {
        let (mut event, mut headers) = row::event(row)?;
        let sealed_with = row.get::<_, Option<[u8; 8]>>("payload_key")?;
        if let Some(key_id) = sealed_with {
            let Some(key) = self.key(event.tenant_id, key_id)? else { return Ok(None) };
            let unreadable = |error: SealError| Fault::unreadable("a payload")(error.into());
            event.payload = key.unseal(Content::Payload(&event.id), event.payload.into()).map_err(unreadable)?;
            if let Some(sealed) = headers {
                headers = Some(key.unseal(Content::Headers(&event.id), sealed).map_err(unreadable)?.into());
            }
        }
        row::read_event_headers(&mut event, headers.as_deref())
            .map_err(|error| Fault::unreadable("headers")(error.into()))?;
        if sealed_with.is_none() {
            self.compare(&event, row)?;
        }
        Ok(Some(event))
    }

    /// Whether it is as its digest says. Events from before digests were kept are taken as they are.
    fn compare(&self, event: &Event, row: &Row<'_>) -> Result<(), Fault> {
        let Some(key) = self.keys.digests() else { return Ok(()) };
        let differs = |why: &str| Err(Fault::unreadable("a payload")(why.into()));
        match row.get::<_, Option<[u8; DIGEST_LEN]>>("digest")? {
            Some(digest) if digest == key.digest(event) => Ok(()),
            Some(_) => differs("the event is not as it was accepted: it was damaged or changed on disk"),
            None if key.covers(row.get("seq")?) => differs("its digest is missing"),
            None => Ok(()),
        }
    }

    /// An attempt with what was captured of it in the clear; without that if it was erased. The row has a column `sealed_with`.
    pub(super) fn attempt(&mut self, tenant_id: TenantId, row: &Row<'_>) -> Result<Attempt, Fault> {
        let attempt = row::attempt(row)?;
        let Some(key_id) = row.get::<_, Option<[u8; 8]>>("sealed_with")? else { return Ok(attempt) };
        let Some(key) = self.key(tenant_id, key_id)? else { return Ok(attempt.without_captured()) };
        let id = attempt.id;
        let open = key.unseal(Content::Captured(id), attempt.response_body.clone().into());
        let open = open.map_err(|error| Fault::unreadable(CAPTURED)(error.into()))?;
        captured::unpack(attempt, open).ok_or_else(|| Fault::unreadable(CAPTURED)(format!("{id}").into()))
    }

    /// The key with this ID, if the tenant still has it.
    fn key(&mut self, tenant_id: TenantId, key_id: [u8; 8]) -> Result<Option<&TenantKey>, Fault> {
        let key = match self.tenant_keys.entry(tenant_id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(read_key(self.sql, self.keys, tenant_id)?),
        };
        Ok(key.as_ref().filter(|key| key.id.bytes() == key_id))
    }
}

pub(super) fn read_key(sql: &Connection, keys: &Keyring, tenant_id: TenantId) -> Result<Option<TenantKey>, Fault> {
    let found: Option<([u8; 8], Vec<u8>)> = sql
        .prepare_cached(TENANT_KEY)?
        .query_row([tenant_id.0.to_be_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((id, sealed)) = found else { return Ok(None) };
    let key = TenantKey::open(keys, tenant_id, KeyId::from_bytes(id), &sealed);
    key.map(Some).map_err(|error| Fault::unreadable(WHAT)(error.into()))
}
