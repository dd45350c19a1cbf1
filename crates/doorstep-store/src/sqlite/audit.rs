//! The audit log: lines are added at its end, and forgotten from its front.

use doorstep_core::audit::AuditEntry;
use doorstep_core::reach::Reach;
use doorstep_core::store::{AuditFilter, Page, Written};
use doorstep_core::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use super::batch::Batch;
use super::fault::Fault;
use super::row;

/// From the front of the table as far as they are old: no index is needed.
pub(super) const OLD_ENTRIES: &str = "select n, at from audit order by n limit ?1";

impl Batch<'_> {
    pub(super) fn note(&self, entry: &AuditEntry) -> Result<Written, Fault> {
        note(self.sql, entry)?;
        Ok(Written::Saved)
    }

    pub(super) fn purge_audit(&self, before: Timestamp, limit: usize) -> Result<usize, Fault> {
        let mut front = self.statement(OLD_ENTRIES)?;
        let mut rows = front.query([row::number(limit)])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let (n, at): (i64, i64) = (row.get(0)?, row.get(1)?);
            if at >= before.0 {
                break;
            }
            last = Some(n);
        }
        drop(rows);
        match last {
            None => Ok(0),
            Some(last) => Ok(self.execute("delete from audit where n <= ?1", [last])?),
        }
    }
}

pub(super) fn note(sql: &Connection, entry: &AuditEntry) -> Result<(), Fault> {
    let insert = "insert into audit (at, tenant_id, actor, action, resource, entry) values (?1, ?2, ?3, ?4, ?5, ?6)";
    sql.prepare_cached(insert)?.execute(params![
        entry.at.0,
        entry.tenant_id.map(|id| id.0.to_be_bytes()),
        entry.actor.name(),
        entry.action.name(),
        entry.resource,
        row::json("an audit entry", entry)?,
    ])?;
    Ok(())
}

pub(super) fn audit(
    sql: &Connection,
    reach: Reach,
    filter: AuditFilter,
    page: Page,
) -> Result<Vec<(u64, AuditEntry)>, Fault> {
    let Some(filter) = filter.within(reach) else { return Ok(Vec::new()) };
    let (text, values) = search(filter, page);
    let mut lines = sql.prepare_cached(&text)?;
    let mut rows = lines.query(params_from_iter(values))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let entry = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        found.push((row.get::<_, i64>(0)?.cast_unsigned(), row::read_json("an audit entry", entry)?));
    }
    Ok(found)
}

pub(super) fn search(filter: AuditFilter, page: Page) -> (String, Vec<Value>) {
    let AuditFilter { tenant_id, actor, action, resource, after, before } = filter;
    let asked = [
        ("n < ", Some(Value::Integer(page.before_seq.map_or(i64::MAX, row::number)))),
        ("tenant_id = ", tenant_id.map(|id| Value::Blob(id.0.to_be_bytes().to_vec()))),
        ("actor = ", actor.map(Value::Text)),
        ("action = ", action.map(|action| Value::Text(action.name().to_owned()))),
        ("resource = ", resource.map(Value::Text)),
        ("at >= ", after.map(|at| Value::Integer(at.0))),
        ("at < ", before.map(|at| Value::Integer(at.0))),
    ];
    row::select("select n, entry from audit", asked, None, "n", page.limit)
}
