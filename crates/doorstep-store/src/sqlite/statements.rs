//! Statements that stay at hand for as long as a batch lasts.
//!
//! The connection keeps statements, too, by their text: for each use it hashes the text, takes the statement out, and puts
//! it back with its values cleared. A batch uses the same dozen hundreds of times, and has them at hand instead.

use std::cell::RefCell;

use rusqlite::{CachedStatement, Connection, Statement};

pub(super) struct Statements<'a> {
    connection: &'a Connection,
    /// By where their text lies. The same text elsewhere is another one, and does no harm.
    at_hand: RefCell<Vec<(&'static str, CachedStatement<'a>)>>,
}

impl<'a> Statements<'a> {
    pub(super) fn of(connection: &'a Connection) -> Self {
        Self { connection, at_hand: RefCell::default() }
    }

    /// The work is through with the statement when it ends: one that were still being read could not be used again.
    pub(super) fn with<A>(
        &self,
        text: &'static str,
        work: impl FnOnce(&mut Statement<'a>) -> rusqlite::Result<A>,
    ) -> rusqlite::Result<A> {
        let mut statement = self.take(text)?;
        let answer = work(&mut statement);
        self.at_hand.borrow_mut().push((text, statement));
        answer
    }

    fn take(&self, text: &'static str) -> rusqlite::Result<CachedStatement<'a>> {
        let mut at_hand = self.at_hand.borrow_mut();
        match at_hand.iter().position(|(kept, _)| std::ptr::eq(*kept, text)) {
            Some(at) => Ok(at_hand.swap_remove(at).1),
            None => self.connection.prepare_cached(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUT: &str = "insert into things (n) values (?1)";
    const COUNT: &str = "select count(*) from things where n >= ?1";

    #[test]
    fn a_statement_serves_again_behind_a_failure_and_within_itself() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("create table things (n integer primary key) strict").unwrap();
        let statements = Statements::of(&connection);
        let put = |n: i64| statements.with(PUT, |statement| statement.execute([n]));
        let count = |from: i64| statements.with(COUNT, |statement| statement.query_row([from], |row| row.get(0)));
        assert_eq!(put(1).unwrap(), 1);
        assert!(put(1).is_err(), "it is there already");
        assert_eq!(put(2).unwrap(), 1);
        let within: i64 = statements
            .with(COUNT, |outer| {
                let inner: i64 = count(2)?;
                outer.query_row([inner], |row| row.get(0))
            })
            .unwrap();
        assert_eq!(within, 2);
        assert_eq!(count(2).unwrap(), 1, "each time with its own values");
        assert_eq!(statements.at_hand.borrow().len(), 3, "one, and two of the one that was used within itself");
    }
}
