//! Registered event types.

use doorstep_core::event_type::RegisteredType;
use doorstep_core::route::EventType;
use doorstep_core::store::{Refusal, Written};
use rusqlite::{Connection, params};

use super::batch::Batch;
use super::fault::Fault;
use super::row;

pub(super) const EVENT_TYPES: &str = "select settings from event_types where name > ?1 order by name limit ?2";

impl Batch<'_> {
    pub(super) fn put_event_type(&mut self, registered: &RegisteredType) -> Result<Written, Fault> {
        let (name, version) = (registered.name.as_str(), registered.version);
        let sql = "select version from event_types where name = ?1";
        let before: Option<i64> = self.find(sql, [name], |row| row.get(0))?;
        match before.map(i64::cast_unsigned) {
            Some(before) if before.checked_add(1) != Some(version) => {
                return Ok(Written::Refused(Refusal::VersionDiffers));
            }
            None if version > 1 => return Ok(Written::Refused(Refusal::NotFound)),
            Some(_) | None => {}
        }
        self.execute(
            "insert or replace into event_types (name, version, settings) values (?1, ?2, ?3)",
            params![name, version.cast_signed(), row::json("an event type", registered)?],
        )?;
        Ok(Written::Saved)
    }

    pub(super) fn remove_event_type(&mut self, name: &EventType) -> Result<Written, Fault> {
        let removed = self.execute("delete from event_types where name = ?1", [name.as_str()])?;
        Ok(if removed > 0 { Written::Saved } else { Written::Refused(Refusal::NotFound) })
    }
}

pub(super) fn event_types(
    sql: &Connection,
    after: Option<&EventType>,
    limit: usize,
) -> Result<Vec<RegisteredType>, Fault> {
    let mut behind = sql.prepare_cached(EVENT_TYPES)?;
    // No name is empty.
    let mut rows = behind.query(params![after.map_or("", EventType::as_str), row::number(limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(row::read_json("an event type", row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?)?);
    }
    Ok(found)
}
