//! Bringing a database up to date: each step once, in a transaction of its own, counted in `user_version`.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};
use thiserror::Error;

use super::open::OpenError;

/// Never changed once released; a change is a further step.
const STEPS: [&str; 6] = [
    include_str!("migrations/0001_start.sql"),
    include_str!("migrations/0002_quota.sql"),
    include_str!("migrations/0003_clock.sql"),
    include_str!("migrations/0004_unreadable.sql"),
    include_str!("migrations/0005_damage.sql"),
    include_str!("migrations/0006_digest.sql"),
];

/// Of somebody else's tables, so many are named.
const NAMED_MAX: usize = 5;

#[derive(Debug, Error)]
pub(super) enum MigrateError {
    #[error("schema {found} is newer than {known}")]
    Newer { found: i64, known: i64 },
    #[error("it has tables ({tables}) and no version")]
    Unversioned { tables: String },
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

impl MigrateError {
    /// The same, said of this file.
    pub(super) fn of(self, database: &Path) -> OpenError {
        match self {
            Self::Newer { found, known } => OpenError::Newer { database: database.to_owned(), found, known },
            Self::Unversioned { tables } => OpenError::Unversioned { database: database.to_owned(), tables },
            Self::Sqlite(error) => OpenError::database(database, error.into()),
        }
    }
}

/// The version that this program makes.
pub(super) fn known() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// The version of a database that this program can bring up to date; 0 of one that is empty. Nothing is changed.
pub(super) fn check(connection: &Connection) -> Result<i64, MigrateError> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = known();
    if found > known {
        return Err(MigrateError::Newer { found, known });
    }
    // Each step is one transaction with its number: no start of ours leaves tables without one.
    if found <= 0 {
        let names =
            "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%' order by name limit ?1";
        let tables: Vec<String> = connection
            .prepare(names)?
            .query_map([i64::try_from(NAMED_MAX + 1).unwrap_or(i64::MAX)], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        if !tables.is_empty() {
            let more = if tables.len() > NAMED_MAX { ", …" } else { "" };
            let tables = tables[..tables.len().min(NAMED_MAX)].join(", ") + more;
            return Err(MigrateError::Unversioned { tables });
        }
    }
    Ok(found.max(0))
}

pub(super) fn migrate(connection: &mut Connection) -> Result<(), MigrateError> {
    let found = check(connection)?;
    for (step, number) in STEPS.iter().zip(1i64..).filter(|(_, number)| *number > found) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use doorstep_core::clock::KeptClock;
    use doorstep_core::time::Timestamp;

    use super::super::clock;
    use super::*;

    #[test]
    fn a_database_from_before_the_clock_was_kept_knows_its_latest_time() {
        let mut sql = Connection::open_in_memory().unwrap();
        sql.execute_batch(STEPS[0]).unwrap();
        sql.pragma_update(None, "user_version", 1).unwrap();
        let event = "insert into events (seq, tenant_id, id, event_type, accepted_at, n_deliveries, n_kept, first_seq, \
                     content_type, payload) values (1, x'00', 'e', 'a.b', 5, 0, 0, 1, 'text/plain', x'00')";
        sql.execute_batch(event).unwrap();
        migrate(&mut sql).unwrap();
        let offset: i64 = sql.query_row("select wall_offset from events", [], |row| row.get(0)).unwrap();
        assert_eq!((offset, clock::kept(&sql).unwrap()), (0, KeptClock { record: None, newest: Some(Timestamp(5)) }));
    }
}
