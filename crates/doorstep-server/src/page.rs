//! Lists come in pages: `?limit=&cursor=` → `{"data": […], "next_cursor": …}`.

use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::problem::Problem;

/// Lines of a page unless another number is asked for …
pub(crate) const LIMIT_DEFAULT: usize = 50;
/// … and at most.
pub(crate) const LIMIT_MAX: usize = 200;
/// A cursor of ours is shorter.
pub(crate) const CURSOR_BYTES_MAX: usize = 128;

pub(crate) fn limit(asked: Option<usize>) -> Result<usize, Problem> {
    let limit = asked.unwrap_or(LIMIT_DEFAULT);
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::invalid_at("?limit", format!("must be between 1 and {LIMIT_MAX}, but is {limit}")))
}

/// Where the next page begins, as text that nobody is tempted to take apart. `kind` keeps one list's cursor out of another.
pub(crate) fn cursor(kind: &str, place: impl std::fmt::Display) -> String {
    URL_SAFE_NO_PAD.encode(format!("{kind}:{place}"))
}

pub(crate) fn read_cursor<P: FromStr>(kind: &str, cursor: Option<&str>) -> Result<Option<P>, Problem> {
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

/// Cuts a page out of one line more than it has, and says where the next one begins.
pub(crate) fn cut<T>(found: &mut Vec<T>, limit: usize, cursor: impl FnOnce(&T) -> String) -> Option<String> {
    if found.len() <= limit {
        return None;
    }
    found.truncate(limit);
    found.last().map(cursor)
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
        let mut found = vec![1, 2, 3];
        assert_eq!(cut(&mut found, 2, ToString::to_string), Some("2".to_owned()));
        assert_eq!(found, [1, 2]);
        assert_eq!(cut(&mut found, 2, ToString::to_string), None);
    }
}
