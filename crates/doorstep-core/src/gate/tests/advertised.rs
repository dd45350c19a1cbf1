use super::*;

/// Accepted, with so much left of a quota for so many seconds.
fn ok(left: u64, secs: u64) -> Outcome {
    Outcome::Accepted { quota: Some(Quota { left, resets_in: Millis::from_secs(secs) }) }
}

#[test]
fn no_more_are_in_flight_than_the_quota_has_left() {
    let mut bench = Bench::new();
    bench.send(ok(4, 60));
    let mut permits = bench.admit_all();
    assert_eq!(permits.len(), 4, "of ten at once");
    assert_eq!(bench.held(), Hold::until(Why::Pace, bench.now + Millis::from_secs(60)));
    // Their answers tell whether they had been counted: the first says that one more has been used than we know of.
    bench.pass(Millis(10));
    let first = permits.remove(0);
    bench.settle(first, ok(3, 60));
    assert_eq!(bench.held().why, Why::Pace, "three are in flight, and three are left");
    for (permit, left) in permits.into_iter().zip([2, 2, 1]) {
        bench.settle(permit, ok(left, 60));
    }
    assert_eq!(bench.admit_all().len(), 1);
}

#[test]
fn a_quota_is_used_up_without_a_refusal_and_again_after_each_reset() {
    let mut bench = Bench::new();
    let (capacity, window) = (7, Millis::from_secs(10));
    let (mut left, mut resets_at) = (capacity, bench.now + window);
    let mut accepted = 0;
    let end = bench.now + Millis::from_mins(5);
    let mut in_flight = std::collections::VecDeque::new();
    while bench.now < end {
        if bench.now >= resets_at {
            (left, resets_at) = (capacity, bench.now + window);
        }
        for permit in bench.admit_all() {
            // Counted as it arrives, before the answer is under way.
            assert!(left > 0 || bench.now == T0, "refused at {:?}", bench.now.since(T0));
            if left > 0 {
                left -= 1;
                accepted += 1;
            }
            let quota = Quota { left, resets_in: Millis::from_secs(resets_at.since(bench.now).0.div_ceil(1_000)) };
            in_flight.push_back((bench.now + Millis(30), permit, Outcome::Accepted { quota: Some(quota) }));
        }
        while in_flight.front().is_some_and(|(at, ..)| *at <= bench.now) {
            let (_, permit, outcome) = in_flight.pop_front().unwrap();
            bench.settle(permit, outcome);
        }
        bench.pass(Millis(10));
    }
    assert!(accepted >= 7 * 28, "{accepted}");
}

#[test]
fn a_learned_pace_does_not_hold_back_what_the_quota_has_room_for() {
    let mut bench = Bench::new();
    bench.send(OK);
    bench.send(refusal(1));
    bench.wait_for_all();
    bench.send(ok(100, 60));
    assert_eq!(bench.admit_all().len(), 10, "as many as are configured at once");
    // A pace that a person has pinned does.
    let mut bench = Bench::new();
    bench.limits.pinned = Some(Rate::per_second(1));
    bench.send(ok(100, 60));
    assert_eq!(bench.held().why, Why::Pace);
}

#[test]
fn the_configured_rate_holds_whatever_the_quota() {
    let mut bench = Bench::new();
    (bench.limits.rate, bench.limits.burst, bench.limits.concurrency) = (Rate::per_second(10), 5, 1_000);
    bench.send(ok(1_000_000, 3_600));
    assert_eq!(bench.admit_all().len(), 4, "one of the burst is gone");
    assert_eq!(bench.held(), Hold::until(Why::Pace, bench.now + Millis(100)));
}

#[test]
fn what_is_refused_although_there_was_room_ends_the_trust_for_a_while() {
    let mut bench = Bench::new();
    bench.send(ok(100, 3_600));
    assert!(bench.gate.advertised_quota(bench.now).is_some());
    bench.pass(Millis(10)).send(refusal(1));
    assert_eq!(bench.gate.advertised_quota(bench.now), None);
    bench.wait_for_all();
    bench.send(ok(100, 3_600));
    assert_eq!(bench.held().why, Why::Pace, "the learned one");
    bench.pass(Millis::from_mins(10)).send(ok(100, 3_600));
    assert!(bench.gate.advertised_quota(bench.now).is_some(), "and not longer");
}

#[test]
fn a_receiver_that_takes_more_than_it_says_is_not_held_to_what_it_says() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        bench.pass(Millis(10)).send(ok(1, 3_600));
    }
    assert_eq!(bench.admit_all().len(), 10, "always one left is no quota");
    // One that has more left than before has been filled up meanwhile.
    let mut bench = Bench::new();
    for left in [1, 2, 1, 2, 1, 2] {
        bench.pass(Millis(10)).send(ok(left, 3_600));
    }
    assert_eq!(bench.admit_all().len(), 2);
}

#[test]
fn a_receiver_that_always_says_that_nothing_is_left_is_not_waited_for() {
    let mut bench = Bench::new();
    let permits = bench.admit_all();
    for (n, permit) in permits.into_iter().enumerate() {
        bench.settle(permit, ok(0, 86_400));
        assert_eq!(bench.gate.state().throttle.until().is_some(), n < 4, "after {n} others");
    }
    assert_eq!(bench.admit_all().len(), 10);
    // A throttle for another reason stays.
    let mut bench = Bench::new();
    let mut permits = bench.admit_all();
    let refused = permits.pop().unwrap();
    bench.settle(refused, refusal(3_600));
    for permit in permits {
        bench.settle(permit, ok(0, 60));
    }
    assert_eq!(throttled_for(&bench), Millis::from_secs(3_600));
    // One per minute is a quota, and every answer is the last one.
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.send(ok(0, 60));
        assert_eq!(bench.wait_out().why, Why::Throttle);
    }
}

#[test]
fn an_answer_that_is_late_does_not_bring_back_what_was_left_before() {
    let mut bench = Bench::new();
    let [early, late] = [bench.admit(), bench.admit()];
    bench.settle(late, ok(2, 60));
    bench.settle(early, ok(3, 60));
    assert_eq!(bench.admit_all().len(), 2);
    // Much more than the requests that were under way together: it has been filled up meanwhile.
    let mut bench = Bench::new();
    let [early, late] = [bench.admit(), bench.admit()];
    bench.settle(late, ok(0, 1));
    bench.settle(early, ok(9, 1));
    bench.wait_out();
    assert_eq!(bench.admit_all().len(), 10);
}

#[test]
fn after_a_reset_as_much_is_expected_as_there_was_before_and_one_request_may_always_ask() {
    let mut bench = Bench::new();
    for left in [2, 1] {
        bench.pass(Millis(10)).send(ok(left, 10));
    }
    let last = bench.admit();
    bench.pass(Millis::from_secs(10));
    assert_eq!(bench.admit_all().len(), 3);
    bench.settle(last, DOWN);
    // Nothing more was ever said. The first answer that says nothing ends it.
    let mut bench = Bench::new();
    bench.send(ok(1, 3_600));
    bench.pass(Millis(10)).send(OK);
    assert_eq!(bench.admit_all().len(), 10);
}

#[test]
fn a_clock_that_was_set_back_does_not_make_a_quota_last() {
    let mut bench = Bench::new();
    bench.send(ok(1, 60));
    let one = bench.admit();
    bench.now = bench.now - Millis::from_hours(1_000);
    let hold = bench.held();
    assert!(hold.until.unwrap().since(bench.now) <= Millis::from_secs(60), "{hold:?}");
    bench.settle(one, OK);
}

#[test]
fn clearing_the_throttle_forgets_the_quota() {
    let mut bench = Bench::new();
    bench.send(ok(0, 3_600));
    assert_eq!(bench.held().why, Why::Throttle);
    bench.gate.clear_throttle(&bench.limits, bench.now);
    assert_eq!(bench.admit_all().len(), 10);
}
