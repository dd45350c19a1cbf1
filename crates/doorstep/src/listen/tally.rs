//! What has been answered so far.

use std::collections::BTreeMap;
use std::fmt;

use super::record::Answered;

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) bad_signatures: u64,
    pub(super) duplicates: u64,
    answered: BTreeMap<Answered, u64>,
}

impl Tally {
    pub(super) fn count(&mut self, answered: Answered, bad_signature: bool, duplicate: bool) {
        self.requests += 1;
        self.bad_signatures += u64::from(bad_signature);
        self.duplicates += u64::from(duplicate);
        *self.answered.entry(answered).or_default() += 1;
    }
}

/// For people: `12 requests: 10 × 200, 2 × 503; 0 bad signatures, 1 duplicate`.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: u64| if n == 1 { "" } else { "s" };
        let answered: Vec<String> = self.answered.iter().map(|(answered, n)| format!("{n} × {answered}")).collect();
        write!(f, "{} request{}: {}", self.requests, plural(self.requests), answered.join(", "))?;
        write!(f, "; {} bad signature{}", self.bad_signatures, plural(self.bad_signatures))?;
        write!(f, ", {} duplicate{}", self.duplicates, plural(self.duplicates))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_every_kind_of_answer() {
        let mut tally = Tally::default();
        tally.count(Answered::Status(200), false, false);
        tally.count(Answered::Hang, false, true);
        tally.count(Answered::Status(401), true, false);
        tally.count(Answered::Status(200), false, false);
        assert_eq!(tally.to_string(), "4 requests: 2 × 200, 1 × 401, 1 × hang; 1 bad signature, 1 duplicate");
    }
}
