//! When the attempts of a delivery come, if every one of them fails at once.

use doorstep_core::dice::Jitter;
use doorstep_core::retry::RetryPolicy;
use doorstep_core::time::{Millis, Timestamp};

/// The draw in the middle: half of all draws are below.
pub(super) const MIDDLE: Jitter = Jitter(1 << 63);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// From 1.
    pub(super) attempt: u32,
    pub(super) wait: Spread,
    pub(super) since_first: Spread,
}

/// With the shortest, the middle and the longest waits that chance can draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spread {
    pub(super) least: Millis,
    pub(super) typical: Millis,
    pub(super) most: Millis,
}

impl Spread {
    fn plus(self, wait: Self) -> Self {
        let (least, typical, most) = (self.least + wait.least, self.typical + wait.typical, self.most + wait.most);
        Self { least, typical, most }
    }
}

/// How long a delivery is worth trying.
pub(super) fn window(policy: &RetryPolicy) -> Millis {
    let created_at = Timestamp(0);
    policy.give_up_at(created_at, None).since(created_at)
}

/// Every attempt that can come within the budget.
pub(super) fn rows(policy: &RetryPolicy) -> Vec<Row> {
    let mut row = Row { attempt: 1, wait: Spread::default(), since_first: Spread::default() };
    let mut rows = vec![row];
    for retry in 1..policy.max_attempts() {
        let wait = Spread {
            least: policy.delay(retry, row.wait.least, Jitter::LOWEST),
            typical: policy.delay(retry, row.wait.typical, MIDDLE),
            most: policy.delay(retry, row.wait.most, Jitter::HIGHEST),
        };
        row = Row { attempt: retry + 1, wait, since_first: row.since_first.plus(wait) };
        if row.since_first.least >= window(policy) {
            break;
        }
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::source;

    #[test]
    fn the_rows_are_the_policys_own_delays() {
        let policy = RetryPolicy::standard();
        let rows = rows(&policy);
        assert_eq!(rows.len(), 200);
        for pair in rows.windows(2) {
            let (before, row) = (pair[0], pair[1]);
            let retry = before.attempt;
            assert_eq!(row.wait.least, policy.delay(retry, before.wait.least, Jitter::LOWEST));
            assert_eq!(row.wait.most, policy.delay(retry, before.wait.most, Jitter::HIGHEST));
            assert_eq!(row.since_first.most, before.since_first.most + row.wait.most);
        }
        assert_eq!(rows[1].wait, Spread { least: Millis(1_000), typical: Millis(15_500), most: Millis(30_000) });
    }

    #[test]
    fn rows_end_where_even_the_shortest_waits_reach_the_end_of_the_window() {
        let policy = source::read(
            r#"{"strategy":"fixed","base_ms":1000,"jitter":"none","window_ms":3500}"#,
            &Default::default(),
        )
        .unwrap();
        let at: Vec<u64> = rows(&policy).iter().map(|row| row.since_first.typical.0).collect();
        assert_eq!(at, [0, 1_000, 2_000, 3_000]);
    }

    #[test]
    fn decorrelated_waits_grow_from_each_other() {
        let policy =
            source::read(r#"{"strategy":"exponential","jitter":"decorrelated"}"#, &Default::default()).unwrap();
        let most: Vec<u64> = rows(&policy).iter().skip(1).take(4).map(|row| row.wait.most.0 / 1_000).collect();
        assert_eq!(most, [90, 270, 810, 2_430]);
    }
}
