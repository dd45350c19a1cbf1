//! Payloads that are encrypted with their tenant's key, and how they are erased.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use doorstep_core::event::Event;
use doorstep_core::id::TenantId;
use doorstep_core::store::{Refusal, Written};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::batch::Batch;
use super::fault::Fault;
use super::row;
use crate::seal::payload::TenantKey;
use crate::seal::{KeyId, Keyring};

/// Tenants' keys that the writer keeps at hand.
pub(super) const KEYS_KEPT: usize = 4_096;

const TENANT_KEY: &str = "select id, sealed from tenant_keys where tenant_id = ?1";

const WHAT: &str = "a tenant's key";

/// A payload in its row, and the key that it needs, if any.
pub(super) struct Kept<'e> {
    pub(super) payload: Cow<'e, [u8]>,
    pub(super) key: Option<[u8; 8]>,
}

impl Batch<'_> {
    /// The payload as it is to be written.
    pub(super) fn payload_of<'e>(&mut self, event: &'e Event) -> Result<Kept<'e>, Fault> {
        if !self.keys.seals_payloads() {
            return Ok(Kept { payload: Cow::Borrowed(&event.payload), key: None });
        }
        let key = self.tenant_key(event.tenant_id)?;
        let payload = Cow::Owned(key.seal_payload(&event.id, &event.payload));
        Ok(Kept { payload, key: Some(key.id.bytes()) })
    }

    fn tenant_key(&mut self, tenant_id: TenantId) -> Result<Arc<TenantKey>, Fault> {
        if let Some(key) = self.tenant_keys.get(&tenant_id) {
            return Ok(Arc::clone(key));
        }
        let key = match read_key(self.sql, self.keys, tenant_id)? {
            Some(key) => key,
            None => {
                let (key, sealed) = TenantKey::make(self.keys, tenant_id);
                let sql = "insert into tenant_keys (tenant_id, id, sealed) values (?1, ?2, ?3)";
                self.without_a_trace(sql, params![tenant_id.0.to_be_bytes(), key.id.bytes(), sealed])?;
                key
            }
        };
        if self.tenant_keys.len() >= KEYS_KEPT {
            self.tenant_keys.clear();
        }
        let key = Arc::new(key);
        self.tenant_keys.insert(tenant_id, Arc::clone(&key));
        Ok(key)
    }

    /// For every change of the table of keys, also for new ones: rows that make room for others, and move to another page for it, would
    /// leave copies behind that nobody finds when they are erased.
    fn without_a_trace(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
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

    /// The event with its payload in the clear; `None` if that was erased. The row has a column `payload_key`.
    pub(super) fn event(&mut self, row: &Row<'_>) -> Result<Option<Event>, Fault> {
        let mut event = row::event(row)?;
        let Some(key_id) = row.get::<_, Option<[u8; 8]>>("payload_key")? else { return Ok(Some(event)) };
        let key = match self.tenant_keys.entry(event.tenant_id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(read_key(self.sql, self.keys, event.tenant_id)?),
        };
        let Some(key) = key.as_ref().filter(|key| key.id.bytes() == key_id) else { return Ok(None) };
        event.payload = key
            .open_payload(&event.id, event.payload.into())
            .map_err(|error| Fault::unreadable("a payload")(error.into()))?;
        Ok(Some(event))
    }
}

fn read_key(sql: &Connection, keys: &Keyring, tenant_id: TenantId) -> Result<Option<TenantKey>, Fault> {
    let found: Option<([u8; 8], Vec<u8>)> = sql
        .prepare_cached(TENANT_KEY)?
        .query_row([tenant_id.0.to_be_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((id, sealed)) = found else { return Ok(None) };
    let key = TenantKey::open(keys, tenant_id, KeyId::from_bytes(id), &sealed);
    key.map(Some).map_err(|error| Fault::unreadable(WHAT)(error.into()))
}
