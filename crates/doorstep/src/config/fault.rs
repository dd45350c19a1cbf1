//! What is wrong with a configuration: everything, not only the first thing.

use std::fmt;

use super::Origin;

/// Each fault is a sentence that says what, where, and what would be right.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigFaults(Vec<String>);

/// Of so many faults the rest is only counted: the first ones tell enough.
const SHOWN_MAX: usize = 50;

/// A wrong value is quoted up to this many characters.
const QUOTED_MAX: usize = 80;

impl ConfigFaults {
    pub(super) fn add(&mut self, sentence: String) {
        self.0.push(sentence);
    }

    /// `given` is left out for secrets.
    pub(super) fn bad_value(&mut self, key: &str, given: Option<&str>, origin: &Origin, instead: &str) {
        self.add(match given {
            Some(given) => {
                let quoted: String = given.chars().take(QUOTED_MAX).collect();
                format!("{key} is `{quoted}` ({origin}): {instead}")
            }
            None => format!("{key} ({origin}): {instead}"),
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is not valid")?;
        for fault in self.0.iter().take(SHOWN_MAX) {
            write!(f, "\n  - {fault}")?;
        }
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, "\n  - and {more} more"),
        }
    }
}

impl std::error::Error for ConfigFaults {}
