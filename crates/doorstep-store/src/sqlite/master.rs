//! Which master keys a database was sealed with, so that the wrong one is told at the start and not at the first delivery.

use std::path::Path;

use rusqlite::{Connection, params};

use super::fault::Fault;
use super::open::OpenError;
use crate::seal::{KeyId, Keyring, Place};

const CHECK: &[u8] = b"this is the right key";

/// Makes sure that everything in here can be opened, and notes the key that seals from now on.
pub(super) fn check(sql: &Connection, database: &Path, keys: &Keyring) -> Result<(), OpenError> {
    let broken = |fault: Fault| OpenError::Database { database: database.to_owned(), source: Box::new(fault) };
    if !knows_master_keys(sql).map_err(broken)? {
        return Err(OpenError::Unsealed { database: database.to_owned() });
    }
    let in_use = in_use(sql).map_err(broken)?;
    if let Some(needed) = in_use.iter().find(|id| !keys.has(**id)) {
        let (database, needed, given) = (database.to_owned(), *needed, keys.current());
        return Err(if in_use.len() > 1 {
            OpenError::KeyChangeUnfinished { database, needed }
        } else {
            OpenError::OtherKey { database, needed, given }
        });
    }
    verify(sql, keys).map_err(broken)?;
    if !in_use.contains(&keys.current()) {
        note(sql, keys).map_err(broken)?;
    }
    Ok(())
}

/// The keys that something here may be sealed with: one, or two while they are changed.
pub(super) fn in_use(sql: &Connection) -> Result<Vec<KeyId>, Fault> {
    let mut ids = sql.prepare("select id from master_keys order by id")?;
    Ok(ids.query_map([], |row| row.get(0).map(KeyId::from_bytes))?.collect::<Result<_, _>>()?)
}

/// False of a database that is empty, and of one that is older than the sealing of secrets.
pub(super) fn knows_master_keys(sql: &Connection) -> Result<bool, Fault> {
    let table = "select 1 from sqlite_schema where type = 'table' and name = 'master_keys'";
    Ok(sql.prepare(table)?.exists([])?)
}

fn verify(sql: &Connection, keys: &Keyring) -> Result<(), Fault> {
    let mut checks = sql.prepare("select sealed from master_keys")?;
    let mut rows = checks.query([])?;
    while let Some(row) = rows.next()? {
        let sealed = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        keys.open(Place::Check, sealed)
            .map_err(|error| Fault::unreadable("the check of a master key")(error.into()))?;
    }
    Ok(())
}

fn note(sql: &Connection, keys: &Keyring) -> Result<(), Fault> {
    let sealed = keys.seal(Place::Check, CHECK);
    sql.execute("insert into master_keys (id, sealed) values (?1, ?2)", params![keys.current().bytes(), sealed])?;
    Ok(())
}
