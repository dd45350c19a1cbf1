//! The key that digests of events are made with: one for each database, sealed with the master key.

use rusqlite::{Connection, OptionalExtension, params};

use super::fault::Fault;
use crate::seal::digest::DigestKey;
use crate::seal::{KeyId, Keyring};

const WHAT: &str = "the key of the payloads' digests";

/// Has the ring keep the key of this database, if it has one.
pub(super) fn load(sql: &Connection, keys: &mut Keyring) -> Result<(), Fault> {
    let found: Option<([u8; 8], Vec<u8>)> =
        sql.query_row("select id, sealed from digest_keys", [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    if let Some((id, sealed)) = found {
        let key = DigestKey::open(keys, KeyId::from_bytes(id), &sealed);
        keys.keep_digests(key.map_err(|error| Fault::unreadable(WHAT)(error.into()))?);
    }
    Ok(())
}

/// The same, and makes a key for the events to come where there is none.
pub(super) fn load_or_make(sql: &Connection, keys: &mut Keyring) -> Result<(), Fault> {
    load(sql, keys)?;
    if keys.digests().is_none() {
        let last: i64 = sql.query_row("select last_event_seq from counters", [], |row| row.get(0))?;
        let (key, id, sealed) = DigestKey::make(keys, last + 1);
        sql.execute("insert into digest_keys (id, sealed) values (?1, ?2)", params![id.bytes(), sealed])?;
        keys.keep_digests(key);
    }
    Ok(())
}
