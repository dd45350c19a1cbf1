//! How far the clock had come when it was last kept.

use doorstep_core::clock::{ClockRecord, KeptClock};
use doorstep_core::store::Written;
use doorstep_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::batch::Batch;
use super::fault::Fault;
use super::row;

impl Batch<'_> {
    pub(super) fn keep_clock(&self, record: &ClockRecord) -> Result<Written, Fault> {
        self.execute(
            "insert into clock (one, record) values (1, ?1) on conflict do update set record = excluded.record",
            params![row::json("the clock", record)?],
        )?;
        Ok(Written::Saved)
    }
}

/// The last row of each table that grows with time.
const NEWEST: &str = "
    select max(at) from (
        select at from (select accepted_at as at from events order by seq desc limit 1)
        union all select at from (select started_at as at from attempts order by n desc limit 1)
        union all select at from (select at from audit order by n desc limit 1))";

pub(super) fn kept(sql: &Connection) -> Result<KeptClock, Fault> {
    let stored: Option<Vec<u8>> = sql.query_row("select record from clock", [], |row| row.get(0)).optional()?;
    let record = stored.map(|stored| row::read_json("the clock", &stored)).transpose()?;
    let newest: Option<i64> = sql.query_row(NEWEST, [], |row| row.get(0))?;
    Ok(KeptClock { record, newest: newest.map(Timestamp) })
}
