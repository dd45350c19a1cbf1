//! Changes that are made only if nobody else has made one since.

use crate::failure::{Exit, Failure};

/// Which version the one who changes something has seen.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Seen {
    /// Only if this is still its version, as `get` shows it; otherwise nothing is changed, and the exit code is 6
    #[arg(long, value_name = "VERSION")]
    if_match: Option<String>,
}

impl Seen {
    /// As a header has it. A version without its quotes is what people type.
    pub(super) fn header(&self) -> Option<String> {
        let given = self.if_match.as_deref()?.trim();
        let is_plain = given != "*" && !given.contains('"');
        Some(if is_plain { format!("\"{given}\"") } else { given.to_owned() })
    }

    /// The same where several things can be named: they have no version in common.
    pub(super) fn header_of(&self, ids: &[String]) -> Result<Option<String>, Failure> {
        match (self.header(), ids) {
            (Some(_), [_, _, ..]) => {
                Err(Failure::said(Exit::Usage, "--if-match is the version of one thing: give one at a time"))
            }
            (seen, _) => Ok(seen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_taken_with_its_quotes_and_without() {
        for (given, header) in
            [("3", "\"3\""), ("\"3\"", "\"3\""), (" 3 ", "\"3\""), ("*", "*"), ("\"1\", \"2\"", "\"1\", \"2\"")]
        {
            assert_eq!(Seen { if_match: Some(given.to_owned()) }.header().as_deref(), Some(header));
        }
        assert_eq!(Seen { if_match: None }.header(), None);
    }

    #[test]
    fn a_version_is_of_one_thing() {
        let (one, two) = (["a".to_owned()], ["a".to_owned(), "b".to_owned()]);
        let seen = Seen { if_match: Some("3".to_owned()) };
        assert_eq!(seen.header_of(&one).unwrap().as_deref(), Some("\"3\""));
        assert_eq!(seen.header_of(&two).unwrap_err().exit(), Exit::Usage);
        assert_eq!(Seen { if_match: None }.header_of(&two).unwrap(), None);
    }
}
