//! Bringing a database up to date: each step once, in a transaction of its own, counted in `user_version`.

use rusqlite::{Connection, TransactionBehavior};
use thiserror::Error;

/// Never changed once released; a change is a further step.
const STEPS: [&str; 3] = [
    include_str!("migrations/0001_start.sql"),
    include_str!("migrations/0002_quota.sql"),
    include_str!("migrations/0003_clock.sql"),
];

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
