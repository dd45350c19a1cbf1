//! Bringing a database up to date: each step once, in a transaction of its own, counted in `user_version`.

use rusqlite::{Connection, TransactionBehavior};
use thiserror::Error;

/// Never changed once released; a change is a further step.
const STEPS: [&str; 2] = [include_str!("migrations/0001_start.sql"), include_str!("migrations/0002_quota.sql")];

#[derive(Debug, Error)]
pub(super) enum MigrateError {
    #[error("schema {found} is newer than {known}")]
    Newer { found: i64, known: i64 },
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

pub(super) fn migrate(connection: &mut Connection) -> Result<(), MigrateError> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(MigrateError::Newer { found, known });
    }
    for (step, number) in STEPS.iter().zip(1i64..).filter(|(_, number)| *number > found) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}
