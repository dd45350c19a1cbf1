//! Emptying the write-ahead log, where something was erased that must not stay in it.

use std::time::Duration;

use rusqlite::Connection;

use super::open::BUSY_FOR;

/// A reader that still needs the log is waited for this long: everybody who writes waits along.
const EMPTIED_WITHIN: Duration = Duration::from_millis(50);

/// Whether the log has to be emptied. What was written stands either way: if it cannot be done now, it is tried again after each
/// write and purge that follows.
#[derive(Debug)]
pub(super) struct Log {
    due: bool,
    /// That it could not be emptied is said once.
    said: bool,
}

impl Log {
    pub(super) fn to_empty() -> Self {
        Self { due: true, said: false }
    }

    pub(super) fn empty_if_due(&mut self, sql: &Connection) {
        if !self.due {
            return;
        }
        match empty(sql) {
            Ok(true) => {
                self.due = false;
                if self.said {
                    tracing::info!("the log of the database is empty now: nothing that was erased is left in it");
                }
            }
            Ok(false) => self.say("a reader needs it"),
            Err(error) => self.say(&error.to_string()),
        }
    }

    fn say(&mut self, error: &str) {
        if !self.said {
            tracing::warn!(
                error,
                "the log of the database cannot be emptied now, and may hold what was erased: it is tried again"
            );
        }
        self.said = true;
    }
}

/// Whether all of it is in the database, and its file has been cut. "Busy" is an answer here, not an error.
fn empty(sql: &Connection) -> rusqlite::Result<bool> {
    sql.busy_timeout(EMPTIED_WITHIN)?;
    let busy: rusqlite::Result<i64> = sql.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get(0));
    sql.busy_timeout(BUSY_FOR)?;
    Ok(busy? == 0)
}
