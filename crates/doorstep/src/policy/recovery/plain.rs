//! The same policy without a gate: every delivery is retried on its own, however the others fare.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::retry::{Charge, Decision, Progress};
use doorstep_core::time::{Millis, Timestamp};

use super::{ANSWERS_AFTER, Books, Curve, REQUESTS_MAX, Story};

/// `None` if it takes more requests than can be simulated.
pub(super) fn run(story: &Story) -> Option<Curve> {
    let mut books = Books::new(story);
    let mut dice = SeededDice::new(story.seed);
    let mut retries: BinaryHeap<Reverse<(Timestamp, u64)>> = BinaryHeap::new();
    let mut waiting: HashMap<u64, Progress> = HashMap::new();
    let end = Timestamp(0) + story.lasts();
    let (mut next_new, mut requests) = (0, 0u64);
    loop {
        let new_at = story.created_at(next_new);
        let (now, seq) = match retries.peek() {
            Some(Reverse((at, _))) if *at < new_at => match retries.pop() {
                Some(Reverse(retry)) => retry,
                None => break,
            },
            _ => {
                next_new += 1;
                (new_at, next_new - 1)
            }
        };
        if now >= end {
            break;
        }
        requests += 1;
        if requests > REQUESTS_MAX {
            return None;
        }
        let mut progress = waiting.remove(&seq).unwrap_or(Progress {
            attempts: 0,
            ambiguous: 0,
            last_delay: Millis::ZERO,
            give_up_at: story.policy.give_up_at(now, None),
        });
        let outcome = books.answer(now);
        let heard_at = now + ANSWERS_AFTER;
        match story.policy.next(&outcome, &progress, Charge::Attempt, heard_at, dice.roll()) {
            Decision::Delivered => books.ended(seq, true, progress.attempts, heard_at),
            Decision::Dead(_) => books.ended(seq, false, progress.attempts, heard_at),
            Decision::RetryAt(at) => {
                (progress.attempts, progress.last_delay) = (progress.attempts + 1, at.since(heard_at));
                waiting.insert(seq, progress);
                retries.push(Reverse((at, seq)));
            }
            Decision::Requeue => retries.push(Reverse((heard_at, seq))),
        }
    }
    Some(books.close())
}
