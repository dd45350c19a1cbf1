//! A destination that is not known yet is opened slowly, and one whose answers take the longer the more are in flight is not
//! overloaded (G7, G9).

use super::*;

/// Sends as much as may go, to a receiver that takes `takes(n)` for a request with `n` of them at once.
struct Busy<F> {
    bench: Bench,
    takes: F,
    answers: u64,
    on_their_way: Vec<(Permit, Timestamp)>,
}

impl<F: Fn(u64) -> u64> Busy<F> {
    fn new(concurrency: u32, takes: F) -> Self {
        let mut bench = Bench::new();
        bench.limits.concurrency = concurrency;
        Self { bench, takes, answers: 0, on_their_way: Vec::new() }
    }

    fn run(&mut self, lasts: Millis) {
        let end = self.bench.now + lasts;
        while self.bench.now < end {
            self.bench.pass(Millis(1));
            let now = self.bench.now;
            let (due, rest) = std::mem::take(&mut self.on_their_way).into_iter().partition(|(_, at)| *at <= now);
            self.on_their_way = rest;
            for (permit, _) in due {
                self.bench.settle(permit, OK);
                self.answers += 1;
            }
            for permit in self.bench.admit_all() {
                let n = self.on_their_way.len() as u64 + 1;
                self.on_their_way.push((permit, now + Millis((self.takes)(n))));
            }
        }
    }

    fn set_back(&mut self, span: Millis) {
        self.bench.now = self.bench.now - span;
        for (_, at) in &mut self.on_their_way {
            *at = self.bench.now;
        }
    }

    fn limit(&self) -> u32 {
        self.bench.gate.state().concurrency.limit(&self.bench.limits)
    }
}

#[test]
fn a_destination_that_is_not_known_yet_meets_ten_at_once_and_one_more_for_each_success() {
    let mut bench = Bench::new();
    bench.limits.concurrency = 30;
    let permits = bench.admit_all();
    assert_eq!(permits.len(), 10);
    assert_eq!(bench.held(), Hold::for_event(Why::Concurrency));
    for (n, permit) in (1..).zip(permits) {
        bench.pass(Millis(20)).settle(permit, OK);
        assert_eq!(bench.gate.state().concurrency.limit(&bench.limits), 10 + n);
    }
    for _ in 0..50 {
        bench.pass(Millis(20)).send(OK);
    }
    assert_eq!(bench.gate.state().concurrency.limit(&bench.limits), 30, "the cap");
    bench.gate = Gate::restore(bench.gate.state().clone());
    assert_eq!(bench.admit_all().len(), 30, "it is known after a restart too");
}

#[test]
fn nothing_but_a_success_opens_more() {
    for outcome in [DOWN, refusal(1), Outcome::TimedOut, Outcome::Rejected { status: 400 }] {
        let mut bench = Bench::new();
        bench.limits.concurrency = 30;
        for permit in bench.admit_all().into_iter().take(5) {
            bench.settle(permit, outcome);
        }
        assert!(bench.gate.state().concurrency.limit(&bench.limits) <= 10, "{outcome:?}");
    }
}

#[test]
fn a_cap_below_ten_holds_from_the_start() {
    let mut bench = Bench::new();
    bench.limits.concurrency = 3;
    assert_eq!(bench.admit_all().len(), 3);
}

/// Answers take 50 to 150 ms, however many are in flight.
fn uneven() -> impl Fn(u64) -> u64 {
    let n = std::cell::Cell::new(0);
    move |_| {
        n.set(n.get() + 1);
        50 + n.get() * 37 % 101
    }
}

/// Every tenth takes a millisecond, as for an event that the receiver ignores.
#[test]
fn answers_of_two_kinds_are_no_sign_of_load() {
    let (n, takes) = (std::cell::Cell::new(0), uneven());
    let mut mixed = Busy::new(10, |at_once| if n.replace(n.get() + 1) % 10 == 0 { 1 } else { takes(at_once) });
    mixed.run(Millis::from_mins(5));
    mixed.answers = 0;
    mixed.run(Millis::from_mins(10));
    let (per_second, best) = (mixed.answers as f64 / 600.0, 10_000.0 / 90.1);
    assert!(per_second > best * 0.95, "{per_second} of {best}, {} at once", mixed.limit());
}

/// With ten at once it does 25 in a second, with fifty 9.6.
#[test]
fn where_more_at_once_gets_less_done_fewer_are_sent() {
    let mut busy = Busy::new(50, |n| 20 + 2 * n * n);
    busy.run(Millis::from_mins(5));
    busy.answers = 0;
    busy.run(Millis::from_mins(10));
    let per_second = busy.answers as f64 / 600.0;
    let best = (1..=50).map(|n| 1_000.0 * f64::from(n) / f64::from(20 + 2 * n * n)).fold(0.0, f64::max);
    assert!(per_second > best * 0.7, "{per_second} of {best}, {} at once", busy.limit());
    assert!((1..=10).contains(&busy.limit()), "{}", busy.limit());
}

#[test]
fn a_breaker_that_trips_on_slow_failures_halves_the_number_once() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        let permit = bench.admit();
        bench.pass(Millis(50)).settle(permit, OK);
    }
    let permits = bench.admit_all();
    assert_eq!(permits.len(), 10);
    bench.pass(Millis::from_secs(15));
    for permit in permits {
        bench.settle(permit, DOWN);
    }
    assert!(bench.gate.state().breaker.is_tripped());
    assert_eq!(bench.gate.state().concurrency.limit(&bench.limits), 5);
    bench.wait_out();
    let probe = bench.admit();
    bench.pass(Millis::from_secs(15)).settle(probe, DOWN);
    assert_eq!(bench.gate.state().concurrency.limit(&bench.limits), 5, "a probe goes alone");
}

#[test]
fn a_breaker_that_trips_on_quick_failures_leaves_the_number_alone() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        let permit = bench.admit();
        bench.pass(Millis(50)).settle(permit, OK);
    }
    for permit in bench.admit_all() {
        bench.pass(Millis(5)).settle(permit, DOWN);
    }
    assert!(bench.gate.state().breaker.is_tripped());
    assert_eq!(bench.gate.state().concurrency.limit(&bench.limits), 10);
}

#[test]
fn a_clock_that_was_set_back_does_not_stop_the_climb() {
    let mut busy = Busy::new(50, |n| 20 + 2 * n * n);
    busy.run(Millis(500));
    busy.set_back(Millis::from_hours(24 * 365));
    busy.run(Millis::from_mins(5));
    assert!(busy.limit() <= 10, "{}", busy.limit());

    let mut steady = Busy::new(10, uneven());
    steady.run(Millis::from_mins(1));
    steady.set_back(Millis::from_secs(1));
    for _ in 0..300 {
        steady.run(Millis::from_secs(1));
        assert_eq!(steady.limit(), 10, "an answer from before its request was sent is not the shortest");
    }
}
