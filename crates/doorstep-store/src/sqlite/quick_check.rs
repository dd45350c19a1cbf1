//! A look at a database that was not closed in good order, bounded in time.

use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::fault::said;

/// SQLite's steps between two looks at the clock.
const STEPS_BETWEEN_LOOKS: i32 = 2_000;
/// So many faults are kept; the whole check is `doorstep check --deep`.
const FAULTS_MAX: usize = 20;

/// These grow with the traffic: they come last, in this order.
const LARGE: [&str; 7] = ["deliveries", "events", "dead", "delivery_seqs", "delivered", "attempts", "activity"];

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuickCheck {
    /// Tables whose pages and rows were all looked at.
    pub checked: Vec<String>,
    /// Tables for which there was no time left.
    pub unchecked: Vec<String>,
    pub faults: Vec<String>,
}

impl QuickCheck {
    /// Says what was looked at, and what was found.
    pub(super) fn report(&self) {
        let (checked, unchecked) = (self.checked.join(" "), self.unchecked.join(" "));
        if self.faults.is_empty() {
            tracing::info!(
                checked,
                unchecked,
                "the last process did not close the database: checked its structure, and found no fault"
            );
            return;
        }
        for fault in &self.faults {
            tracing::error!(fault, "the database file is damaged");
        }
        tracing::error!(
            checked,
            unchecked,
            n = self.faults.len(),
            "the database file is damaged: what can be read is used, and what cannot fails. Keep a copy of the data directory, run `doorstep \
             check --deep`, and restore a backup"
        );
    }
}

/// Checks the structure of one table after the other, the small ones first, for at most `budget`.
pub(super) fn quick_check(sql: &mut Connection, budget: Duration) -> rusqlite::Result<QuickCheck> {
    let mut tables: Vec<String> = sql
        .prepare("select name from sqlite_schema where type = 'table' and name not like 'sqlite_%' order by name")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    tables.sort_by_key(|name| LARGE.iter().position(|large| large == name).map_or(0, |at| at + 1));
    let until = Instant::now() + budget;
    sql.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || Instant::now() >= until))?;
    let mut found = QuickCheck::default();
    for table in tables {
        if Instant::now() >= until {
            found.unchecked.push(table);
            continue;
        }
        match check_table(sql, &table, &mut found.faults) {
            Ok(()) => found.checked.push(table),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                found.unchecked.push(table);
            }
            Err(error) => {
                found.faults.push(format!("{table}: {}", said(&error)));
                found.checked.push(table);
            }
        }
    }
    found.faults.truncate(FAULTS_MAX);
    sql.progress_handler(0, None::<fn() -> bool>)?;
    Ok(found)
}

fn check_table(sql: &Connection, table: &str, faults: &mut Vec<String>) -> rusqlite::Result<()> {
    // The names are those of our own schema.
    let mut lines = sql.prepare(&format!("pragma quick_check({table})"))?;
    let mut rows = lines.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        if line != "ok" {
            faults.push(format!("{table}: {line}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large() -> Connection {
        let sql = Connection::open_in_memory().unwrap();
        sql.execute_batch(
            "create table events (seq integer primary key, payload blob not null);
             create table tenants (id integer primary key);
             insert into tenants values (1);
             insert into events with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
             select i, randomblob(100) from n;",
        )
        .unwrap();
        sql
    }

    #[test]
    fn a_look_ends_when_its_time_is_up_and_says_what_it_has_not_seen() {
        let mut sql = large();
        let all = quick_check(&mut sql, Duration::from_mins(10)).unwrap();
        assert_eq!(all, QuickCheck { checked: vec!["tenants".into(), "events".into()], ..QuickCheck::default() });
        let none = quick_check(&mut sql, Duration::ZERO).unwrap();
        assert_eq!(none, QuickCheck { unchecked: vec!["tenants".into(), "events".into()], ..QuickCheck::default() });
        // Nothing is left behind that would interrupt what follows.
        let n: i64 = sql.query_row("select count(*) from events", [], |row| row.get(0)).unwrap();
        assert_eq!(n, 100_000);
    }
}
