//! Lists come in pages: `?limit=&cursor=` → `{"data": […], "next_cursor": …}`.

use std::fmt::Display;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorstep_core::store::Page;

use crate::problem::Problem;

/// Lines of a page unless another number is asked for …
pub(crate) const LIMIT_DEFAULT: usize = 50;
/// … and at most.
pub(crate) const LIMIT_MAX: usize = 200;
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

    /// Cuts the page out of these, and says where the next one begins.
    pub(crate) fn cut<T>(&self, found: &mut Vec<T>, place: impl FnOnce(&T) -> P) -> Option<String> {
        if found.len() <= self.limit {
            return None;
        }
        found.truncate(self.limit);
        found.last().map(|last| cursor(self.kind, place(last)))
    }
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
    fn the_next_page_begins_behind_the_last_line_of_this_one() {
        let first = Stretch::<u64>::asked("dlv", Some(2), None).unwrap();
        assert_eq!((first.behind, first.page()), (None, Page { before_seq: None, limit: 3 }));
        let mut found = vec![9, 8, 7];
        let next = first.cut(&mut found, |last| *last);
        assert_eq!((&found[..], first.cut(&mut found.clone(), |last| *last)), (&[9, 8][..], None));
        let second = Stretch::<u64>::asked("dlv", Some(2), next.as_deref()).unwrap();
        assert_eq!(second.page(), Page { before_seq: Some(8), limit: 3 });
        assert!(Stretch::<u64>::asked("evt", Some(2), next.as_deref()).is_err(), "a cursor of another list");
        assert!(Stretch::<u64>::asked("dlv", Some(0), None).is_err());
    }
}
