//! Lists come in pages: `?limit=&cursor=` → `{"data": […], "next_cursor": …}`.

use std::fmt::Display;
use std::io;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorstep_core::store::Page;
use serde::Serialize;

use crate::problem::Problem;

/// Lines of a page unless another number is asked for …
pub(crate) const LIMIT_DEFAULT: usize = 50;
/// … and at most.
pub(crate) const LIMIT_MAX: usize = 200;
/// A page ends early where its lines would take more bytes than this, about. One line is always there.
pub(crate) const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// A cursor of ours is shorter.
pub(crate) const CURSOR_BYTES_MAX: usize = 128;

/// What is asked for of a list: so many lines, behind the last one of the page before.
#[derive(Debug)]
pub(crate) struct Stretch<P> {
    /// Keeps one list's cursor out of another.
    kind: &'static str,
    pub(crate) behind: Option<P>,
    limit: usize,
}

impl<P: FromStr + Display> Stretch<P> {
    pub(crate) fn asked(kind: &'static str, asked: Option<usize>, cursor: Option<&str>) -> Result<Self, Problem> {
        let limit = limit(asked)?;
        Ok(Self { kind, behind: read_cursor(kind, cursor)?, limit })
    }

    /// One line more than it has: that tells whether there is another page.
    pub(crate) fn and_one(&self) -> usize {
        self.limit + 1
    }

    /// Cuts so many out of these as were asked for, and remembers where the next page may begin.
    pub(crate) fn cut<T>(&self, found: &mut Vec<T>, place: impl Fn(&T) -> P) -> Places<P> {
        let more = found.len() > self.limit;
        found.truncate(self.limit);
        Places { kind: self.kind, of: found.iter().map(place).collect(), more }
    }
}

/// Where each line of a page is in its list.
#[derive(Debug)]
pub(crate) struct Places<P> {
    kind: &'static str,
    of: Vec<P>,
    /// There are lines behind them.
    more: bool,
}

impl<P: Display> Places<P> {
    /// The lines that fit on a page, and where the next one begins.
    pub(crate) fn fit<V: Serialize>(self, mut lines: Vec<V>) -> (Vec<V>, Option<String>) {
        let mut room = PAGE_BYTES_MAX;
        let fits = |line: &V| {
            room = room.saturating_sub(bytes_of(line));
            room > 0
        };
        let n = lines.iter().map(fits).take_while(|fits| *fits).count().max(1);
        let more = self.more || n < lines.len();
        lines.truncate(n);
        let last = self.of.get(lines.len().wrapping_sub(1)).filter(|_| more);
        (lines, last.map(|place| cursor(self.kind, place)))
    }
}

/// Bytes of a line as it is sent.
fn bytes_of(line: &impl Serialize) -> usize {
    struct Counted(usize);

    impl io::Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut counted = Counted(0);
    // What cannot be written here cannot be answered with either, and is told there.
    let _ = serde_json::to_writer(&mut counted, line);
    counted.0
}

/// Of a list in ingest order.
impl Stretch<u64> {
    pub(crate) fn page(&self) -> Page {
        Page { before_seq: self.behind, limit: self.and_one() }
    }
}

fn limit(asked: Option<usize>) -> Result<usize, Problem> {
    let limit = asked.unwrap_or(LIMIT_DEFAULT);
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::invalid_at("?limit", format!("must be between 1 and {LIMIT_MAX}, but is {limit}")))
}

/// Where the next page begins, as text that nobody is tempted to take apart.
fn cursor(kind: &str, place: impl Display) -> String {
    URL_SAFE_NO_PAD.encode(format!("{kind}:{place}"))
}

fn read_cursor<P: FromStr>(kind: &str, cursor: Option<&str>) -> Result<Option<P>, Problem> {
    let Some(cursor) = cursor.filter(|cursor| !cursor.is_empty()) else { return Ok(None) };
    let place = || {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        text.strip_prefix(kind)?.strip_prefix(':')?.parse().ok()
    };
    if cursor.len() > CURSOR_BYTES_MAX {
        return Err(not_ours());
    }
    place().map(Some).ok_or_else(not_ours)
}

fn not_ours() -> Problem {
    Problem::invalid_at("?cursor", "is not one of this list: take `next_cursor` from the page before, as it is")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_by_its_own_list_alone() {
        let text = cursor("dlv", 42u64);
        assert_eq!(read_cursor::<u64>("dlv", Some(&text)).unwrap(), Some(42));
        assert_eq!(read_cursor::<u64>("dlv", None).unwrap(), None);
        for wrong in [cursor("evt", 42), cursor("dlv", "x"), "%%%".to_owned(), "a".repeat(CURSOR_BYTES_MAX + 1)] {
            assert!(read_cursor::<u64>("dlv", Some(&wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_page_has_between_one_and_the_most_lines() {
        assert_eq!(limit(None).unwrap(), LIMIT_DEFAULT);
        assert!(limit(Some(0)).is_err() && limit(Some(LIMIT_MAX + 1)).is_err());
    }

    #[test]
    fn a_page_ends_early_where_its_lines_are_long_and_nothing_is_left_out() {
        let long = |n: u64| (n, "x".repeat(PAGE_BYTES_MAX / 3));
        let all: Vec<_> = (1..=7).rev().map(long).chain([(0, "x".repeat(2 * PAGE_BYTES_MAX))]).collect();
        let (mut seen, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let stretch = Stretch::<u64>::asked("dlv", Some(200), cursor.as_deref()).unwrap();
            let mut found: Vec<_> =
                all.iter().filter(|(n, _)| stretch.behind.is_none_or(|at| *n < at)).cloned().collect();
            let places = stretch.cut(&mut found, |(n, _)| *n);
            let (lines, next) = places.fit(found);
            assert!((1..=2).contains(&lines.len()), "two fit, and one is always there");
            seen.extend(lines.iter().map(|(n, _)| *n));
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1, 0]);
        let stretch = Stretch::<u64>::asked("dlv", None, None).unwrap();
        assert_eq!(stretch.cut(&mut Vec::<u64>::new(), |n| *n).fit(Vec::<u64>::new()), (vec![], None));
    }

    #[test]
    fn the_next_page_begins_behind_the_last_line_of_this_one() {
        let first = Stretch::<u64>::asked("dlv", Some(2), None).unwrap();
        assert_eq!((first.behind, first.page()), (None, Page { before_seq: None, limit: 3 }));
        let mut found = vec![9, 8, 7];
        let (lines, next) = first.cut(&mut found, |last| *last).fit(found.clone());
        assert_eq!(lines, [9, 8]);
        assert_eq!(first.cut(&mut found, |last| *last).fit(lines), (vec![9, 8], None), "there is nothing behind them");
        let second = Stretch::<u64>::asked("dlv", Some(2), next.as_deref()).unwrap();
        assert_eq!(second.page(), Page { before_seq: Some(8), limit: 3 });
        assert!(Stretch::<u64>::asked("evt", Some(2), next.as_deref()).is_err(), "a cursor of another list");
        assert!(Stretch::<u64>::asked("dlv", Some(0), None).is_err());
    }
}
