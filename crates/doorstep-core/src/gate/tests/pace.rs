use super::*;

#[test]
fn the_configured_rate_is_kept_with_its_burst() {
    let mut bench = Bench::new();
    (bench.limits.rate, bench.limits.burst, bench.limits.concurrency) = (Rate::per_second(10), 5, 1_000);
    let mut permits = bench.admit_all();
    assert_eq!(permits.len(), 5);
    assert_eq!(bench.held(), Hold::until(Why::Pace, bench.now + Millis(100)));
    let mut sent = 0;
    let end = bench.now + Millis::from_secs(60);
    while bench.now < end {
        bench.wait_out();
        // Each is answered before the next goes: it is the rate that holds, and not the number at once.
        for permit in permits.drain(..) {
            bench.settle(permit, OK);
        }
        permits = bench.admit_all();
        sent += permits.len();
    }
    assert!((599..=601).contains(&sent), "{sent}");
}

#[test]
fn a_place_that_is_handed_back_can_be_taken_again_unless_a_later_one_is_taken() {
    let mut bench = Bench::new();
    (bench.limits.rate, bench.limits.burst) = (Rate::per_second(1), 1);
    let unused = bench.admit();
    bench.gate.hand_back(unused);
    let unused = bench.admit();
    bench.wait_out();
    let sent = bench.admit();
    bench.gate.hand_back(unused);
    assert_eq!(bench.held(), Hold::until(Why::Pace, bench.now + Millis::from_secs(1)), "never two at once");
    bench.settle(sent, OK);
    assert_eq!(bench.gate.in_flight(), 0);
    // A request whose fate is unknown may have gone out.
    bench.wait_out();
    let unknown = bench.admit();
    bench.gate.release(unknown);
    assert_eq!(bench.held().why, Why::Pace);
}

#[test]
fn the_first_refusal_teaches_what_was_admitted_over_the_cycle() {
    let mut bench = Bench::new();
    for _ in 0..120 {
        bench.send(OK);
        bench.pass(Millis(1));
    }
    bench.send(refusal(60));
    let learned = bench.gate.state().pace.learned().unwrap();
    assert!((1.9..2.0).contains(&learned.as_per_second()), "{learned:?}");
}

#[test]
fn a_pace_that_nobody_presses_against_does_not_grow() {
    let mut bench = Bench::new();
    bench.send(OK);
    bench.send(refusal(10));
    let learned = bench.gate.state().pace.learned();
    for _ in 0..100 {
        bench.pass(Millis::from_hours(1));
        bench.send(OK);
    }
    assert_eq!(bench.gate.state().pace.learned(), learned);
}

fn overload(secs: impl Into<Option<u64>>) -> Outcome {
    Outcome::Failed { status: 503, wait: secs.into().map(Millis::from_secs) }
}

#[test]
fn an_overload_teaches_a_pace_and_is_no_throttle() {
    for says in [None, Some(1)] {
        let mut bench = Bench::new();
        for _ in 0..50 {
            bench.pass(Millis(100)).send(OK);
        }
        let other = bench.admit();
        bench.send(overload(says));
        bench.settle(other, OK);
        let learned = bench.gate.learned(&bench.limits).0.expect("a pace");
        assert!((8.0..10.5).contains(&learned.pace.as_per_second()), "{learned:?}");
        assert_eq!(learned.reason, LearnedReason::Overloaded);
        assert_eq!(bench.gate.state().throttle.consecutive(), 0);
    }
}

#[test]
fn a_single_503_with_nothing_else_under_way_teaches_no_pace() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.pass(Millis::from_mins(1)).send(OK);
    }
    bench.pass(Millis::from_mins(1)).send(overload(None));
    assert_eq!(bench.gate.state().pace.learned(), None);
    // With others under way it teaches one, but no slower than one a second.
    let others = [bench.admit(), bench.admit()];
    bench.send(overload(None));
    assert_eq!(bench.gate.state().pace.learned(), Some(Rate::per_second(1)));
    for permit in others {
        bench.settle(permit, OK);
    }
}

#[test]
fn one_overload_teaches_once_however_many_requests_it_catches() {
    let mut bench = Bench::new();
    bench.pass(Millis(100)).send(OK);
    bench.pass(Millis(100)).send(OK);
    let mut caught = bench.admit_all();
    let first = caught.pop().unwrap();
    bench.settle(first, overload(None));
    let learned = bench.gate.state().pace.learned();
    for permit in caught.into_iter().take(3) {
        bench.settle(permit, overload(None));
    }
    assert_eq!(bench.gate.state().pace.learned(), learned);
}

#[test]
fn an_outage_that_begins_with_503_teaches_no_pace() {
    let mut bench = Bench::new();
    for _ in 0..50 {
        bench.pass(Millis(100)).send(OK);
    }
    let permits: Vec<_> = (0..bench.limits.breaker.failures_in_row).map(|_| bench.admit()).collect();
    for permit in permits {
        bench.settle(permit, overload(None));
    }
    assert!(bench.gate.state().breaker.is_tripped());
    assert_eq!(bench.gate.state().pace.learned(), None);
    assert_eq!(bench.gate.state().pace.learned_pace(&bench.limits), None);
}

#[test]
fn of_the_first_burst_what_is_admitted_counts_in_whatever_order_it_is_answered() {
    let learned = |refusal_first: bool| {
        let mut bench = Bench::new();
        let mut permits = bench.admit_all();
        let refused = permits.pop().unwrap();
        bench.pass(Millis(20));
        let mut refused = Some(refused);
        if refusal_first {
            bench.settle(refused.take().unwrap(), refusal(60));
        }
        for permit in permits {
            bench.settle(permit, OK);
        }
        if let Some(refused) = refused {
            bench.settle(refused, refusal(60));
        }
        bench.gate.state().pace.learned().unwrap().as_per_second()
    };
    let (refusal_first, refusal_last) = (learned(true), learned(false));
    assert!((0.145..0.151).contains(&refusal_last), "nine in a minute: {refusal_last}");
    assert!((refusal_first - refusal_last).abs() < 0.001, "{refusal_first}");
}

#[test]
fn answers_that_take_longer_than_a_throttle_do_not_raise_the_pace_for_ever() {
    // Three may be waiting at first. Then one is taken each 5 s, and answered when the next one may come: the refusal of the next one always comes first.
    let mut bench = Bench::new();
    let first = [bench.admit(), bench.admit(), bench.admit()];
    bench.send(refusal(5));
    bench.pass(Millis::from_secs(5));
    for permit in first {
        bench.settle(permit, OK);
    }
    let mut refused = 0;
    for _ in 0..100 {
        bench.wait_for_all();
        let slow = bench.admit();
        let answered_at = bench.now + Millis::from_secs(5);
        // At most one at once: then the next one waits for the answer.
        let waits_for_answer = loop {
            match bench.gate.hold(&bench.limits, bench.now) {
                Some(Hold { until: Some(until), .. }) => bench.now = until,
                Some(_) => break true,
                None => break false,
            }
        };
        if !waits_for_answer && bench.now < answered_at {
            refused += 1;
            let left = answered_at.since(bench.now);
            bench.send(Outcome::Throttled { wait: Some(left) });
        }
        bench.now = bench.now.max(answered_at);
        bench.settle(slow, OK);
    }
    assert!(refused < 20, "{refused} of 100 were followed by one that was refused");
}

#[test]
fn a_receiver_that_falls_over_again_under_load_is_overloaded_and_not_down() {
    let mut bench = Bench::new();
    let mut learned = Vec::new();
    for _ in 0..3 {
        for _ in 0..20 {
            bench.send_when_allowed(OK);
        }
        while !bench.gate.state().breaker.is_tripped() {
            bench.wait_for_all();
            for permit in bench.admit_all() {
                bench.settle(permit, overload(None));
            }
        }
        learned.push(bench.gate.state().pace.learned());
    }
    assert_eq!(learned[0], None, "the first time it may have been down");
    assert!(learned[1].is_some() && learned[2].is_some(), "{learned:?}");
}

#[test]
fn what_fails_after_the_breaker_has_tripped_teaches_no_pace() {
    let mut bench = Bench::new();
    for _ in 0..50 {
        bench.pass(Millis(100)).send(OK);
    }
    let mut early = bench.admit_all();
    bench.settle(early.pop().unwrap(), overload(None));
    // It is narrowed to half, so that one leaves when others have come back.
    for permit in early.drain(..5) {
        bench.settle(permit, overload(None));
    }
    bench.wait_for_all();
    let late = bench.admit();
    for permit in early {
        bench.settle(permit, overload(None));
    }
    while !bench.gate.state().breaker.is_tripped() {
        bench.wait_for_all();
        bench.send(overload(None));
    }
    bench.settle(late, overload(None));
    assert_eq!(bench.gate.state().pace.learned(), None);
}

#[test]
fn a_quiet_destination_that_refuses_a_burst_is_not_sent_to_once_an_hour() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.pass(Millis::from_hours(7 * 24)).send(OK);
    }
    bench.pass(Millis::from_hours(7 * 24));
    let mut permits = bench.admit_all();
    let refused = permits.pop().unwrap();
    bench.settle(refused, refusal(1));
    for permit in permits {
        bench.settle(permit, OK);
    }
    let learned = bench.gate.state().pace.learned().unwrap();
    assert!(learned >= Rate::over(8, Millis::from_mins(1)), "{learned:?}");
}

#[test]
fn a_receiver_of_which_one_part_in_three_is_broken_is_not_sent_to_ever_more_slowly() {
    let mut bench = Bench::new();
    let mut dice = SeededDice::new(7);
    for _ in 0..2_000 {
        bench.wait_for_all();
        let other = bench.admit();
        let fails = dice.roll().up_to(Millis(99)) < Millis(30);
        bench.pass(Millis(5)).settle(other, if fails { overload(None) } else { OK });
    }
    let lasted = bench.now.since(T0);
    assert!(lasted < Millis::from_mins(10), "2,000 requests took {lasted}");
}

/// A bench at which refusals by chance were found: after each of these counts of successes, one is refused.
fn by_chance(outcome: impl Fn() -> Outcome) -> Bench {
    let mut bench = Bench::new();
    for admitted in [40, 3, 25, 9, 1, 30, 14, 22, 5, 35] {
        for _ in 0..admitted {
            bench.send_when_allowed(OK);
        }
        bench.wait_for_all();
        // A lone 503 with no pace shows no overload.
        let other = bench.gate.state().pace.learned().is_none().then(|| bench.admit());
        bench.send_when_allowed(outcome());
        if let Some(other) = other {
            bench.settle(other, OK);
        }
    }
    bench
}

#[test]
fn where_refusals_come_by_chance_a_burst_follows_each_wait_and_takes_the_places_of_later_requests() {
    let mut bench = by_chance(|| refusal(5));
    bench.wait_for_all();
    let began = bench.now;
    let burst = bench.admit_all();
    assert!(burst.len() >= 4, "{}", burst.len());
    let pace = bench.gate.state().pace.learned().unwrap();
    let hold = bench.held();
    assert_eq!(hold.why, Why::Pace);
    let pause = hold.until.unwrap().since(began).0 as f64 / 1e3;
    let places = pause * pace.as_per_second();
    assert!((places - burst.len() as f64).abs() < 1.1, "{places} places for {}", burst.len());
    // At a pinned pace there is none.
    let mut bench = by_chance(|| refusal(5));
    bench.limits.pinned = Some(Rate::per_second(1));
    bench.wait_for_all();
    assert_eq!(bench.admit_all().len(), 1);
    // Nor after it has been forgotten, but for the configured one.
    let mut bench = by_chance(|| refusal(5));
    bench.gate.forget_learned();
    (bench.limits.rate, bench.limits.burst) = (Rate::per_second(10), 1);
    bench.wait_for_all();
    assert_eq!(bench.admit_all().len(), 1);
}

#[test]
fn bursts_after_waits_keep_to_the_configured_rate() {
    let mut bench = by_chance(|| refusal(1));
    (bench.limits.rate, bench.limits.burst, bench.limits.concurrency) = (Rate::per_second(2), 50, 1_000);
    let (began, mut sent) = (bench.now, 0);
    while bench.now < began + Millis::from_mins(5) {
        bench.wait_for_all();
        let permits = bench.admit_all();
        sent += permits.len();
        // The last one of each burst is refused by chance, and a wait of a second follows.
        let n = permits.len();
        for (place, permit) in (1..).zip(permits) {
            bench.settle(permit, if place == n { refusal(1) } else { OK });
        }
    }
    let lasted = bench.now.since(began).0 as f64 / 1e3;
    assert!(sent as f64 <= lasted * 2.0 + 51.0, "{sent} in {lasted} s");
}

#[test]
fn a_503_that_comes_by_chance_does_not_narrow() {
    let bench = by_chance(|| overload(1));
    assert_eq!(bench.gate.state().concurrency.limit(&bench.limits), bench.limits.concurrency);
    let mut first = Bench::new();
    first.send_when_allowed(OK);
    let other = first.admit();
    first.send(overload(1));
    first.settle(other, OK);
    assert!(first.gate.state().concurrency.limit(&first.limits) < first.limits.concurrency);
}

#[test]
fn so_many_503_in_a_row_that_the_breaker_trips_are_no_chance() {
    let mut bench = by_chance(|| overload(1));
    let pace = bench.gate.state().pace.learned().unwrap();
    assert!(bench.gate.state().pace.refuses_by_chance());
    // The first trip within half an hour is taken for an outage, the second for overload.
    for _ in 0..2 {
        bench.send_when_allowed(OK);
        while !bench.gate.state().breaker.is_tripped() {
            bench.wait_for_all();
            for permit in bench.admit_all() {
                bench.settle(permit, overload(None));
            }
        }
    }
    assert!(!bench.gate.state().pace.refuses_by_chance());
    let after = bench.gate.state().pace.learned().unwrap();
    assert!(after.as_per_second() < pace.as_per_second() * 0.8, "{after:?} after {pace:?}");
}

/// Five deliveries a second to a receiver that answers 503 to three in ten, whatever it gets; each failure comes back after one to
/// eight seconds. Returns how many are due and wait after so long, and whether the breaker has tripped.
fn waiting_at_broken_receiver(seed: u64, lasts: Millis) -> (usize, bool) {
    let mut bench = Bench::new();
    let mut dice = SeededDice::new(seed);
    let (end, mut next_arrival) = (bench.now + lasts, bench.now);
    let (mut due, mut answers) = (vec![], std::collections::VecDeque::new());
    let mut has_tripped = false;
    while bench.now < end {
        if bench.now >= next_arrival {
            due.push(bench.now);
            next_arrival = next_arrival + Millis(200);
            bench.gate.arrived(1, bench.now);
        }
        while answers.front().is_some_and(|(at, _)| *at <= bench.now) {
            let (_, permit) = answers.pop_front().unwrap();
            if dice.roll().up_to(Millis(99)) < Millis(30) {
                bench.settle(permit, overload(None));
                due.push(bench.now + dice.roll().between(Millis::from_secs(1), Millis::from_secs(8)));
            } else {
                bench.settle(permit, OK);
            }
            has_tripped |= bench.gate.state().breaker.is_tripped();
        }
        while let Some(next) = due.iter().position(|at| *at <= bench.now)
            && let Admission::Go(permit) = bench.gate.admit(&bench.limits, bench.now)
        {
            due.swap_remove(next);
            answers.push_back((bench.now + Millis(3), permit));
        }
        bench.pass(Millis(1));
    }
    (due.iter().filter(|at| **at <= bench.now).count(), has_tripped)
}

#[test]
fn a_receiver_of_which_three_parts_in_ten_are_broken_gathers_no_backlog() {
    let mut n_flowing = 0;
    for seed in 0..20 {
        let (waiting, has_tripped) = waiting_at_broken_receiver(seed, Millis::from_mins(2));
        n_flowing += usize::from(!has_tripped);
        assert!(has_tripped || waiting <= 2, "seed {seed}: {waiting} wait");
        // Five of the first ten requests failed, and the breaker tripped: what gathered meanwhile follows.
        let (waiting, _) = waiting_at_broken_receiver(seed, Millis::from_mins(10));
        assert!(waiting <= 2, "seed {seed}: {waiting} wait after ten minutes");
    }
    assert!(n_flowing >= 10, "{n_flowing}");
}
