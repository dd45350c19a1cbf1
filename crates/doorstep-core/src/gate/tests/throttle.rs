use super::*;

#[test]
fn a_throttle_without_a_header_grows_with_each_one_in_a_row_and_a_success_resets_it() {
    let mut bench = Bench::new();
    for (count, secs) in [(1, 60), (2, 300), (3, 900), (4, 3_600), (5, 21_600), (6, 21_600)] {
        let changes = bench.send_when_allowed(refusal(None));
        let until = bench.now + Millis::from_secs(secs);
        let reason = ThrottleReason::Unsaid;
        assert_eq!(changes, [GateChange::Throttled { until, reason, consecutive: count }]);
        assert_eq!(bench.held(), Hold::until(Why::Throttle, until));
    }
    bench.send_when_allowed(OK);
    assert_eq!(bench.gate.state().throttle.consecutive(), 0);
    bench.send_when_allowed(refusal(None));
    assert_eq!(throttled_for(&bench), Millis::from_secs(60));
}

#[test]
fn answers_to_requests_already_on_their_way_do_not_count_again() {
    let mut bench = Bench::new();
    let permits = bench.admit_all();
    assert_eq!(permits.len(), 10);
    for permit in permits {
        bench.settle(permit, refusal(None));
    }
    assert_eq!(bench.gate.state().throttle.consecutive(), 1);
    assert_eq!(throttled_for(&bench), Millis::from_secs(60));
}

#[test]
fn a_success_that_left_before_the_throttle_does_not_reset_it() {
    let mut bench = Bench::new();
    bench.send(refusal(None));
    bench.pass(Millis::from_secs(60));
    let (early, late) = (bench.admit(), {
        bench.pass(Millis::from_hours(1));
        bench.admit()
    });
    bench.settle(late, refusal(None));
    bench.settle(early, OK);
    assert_eq!(bench.gate.state().throttle.consecutive(), 2);
    assert!(bench.gate.hold(&bench.limits, bench.now).is_some());
}

#[test]
fn a_short_wait_never_cuts_a_longer_one() {
    let mut bench = Bench::new();
    let (first, second, third) = (bench.admit(), bench.admit(), bench.admit());
    bench.settle(first, refusal(600));
    bench.settle(second, refusal(5));
    assert_eq!(throttled_for(&bench), Millis::from_secs(600));
    bench.settle(third, refusal(900));
    assert_eq!(throttled_for(&bench), Millis::from_secs(900));
    assert_eq!(bench.gate.state().throttle.consecutive(), 1);
}

#[test]
fn retry_after_is_waited_for_in_full_and_jitter_only_adds_to_it() {
    for (jitter, least, most) in [(Jitter::LOWEST, 100_000, 100_000), (Jitter::HIGHEST, 100_001, 110_000)] {
        let mut bench = Bench::new();
        bench.jitter = jitter;
        bench.send(refusal(100));
        let wait = throttled_for(&bench).0;
        assert!((least..=most).contains(&wait), "{wait}");
        bench.pass(Millis(wait - 1));
        assert_eq!(bench.held().why, Why::Throttle);
        bench.pass(Millis(1)).send(OK);
    }
}

#[test]
fn a_wait_is_capped_and_a_zero_is_not_a_busy_loop() {
    for (asked, waits) in [(0, 1_000), (90_000, 86_400_000), (u64::MAX / 1_000, 86_400_000)] {
        let mut bench = Bench::new();
        bench.jitter = Jitter::HIGHEST;
        bench.send(refusal(asked));
        let wait = throttled_for(&bench);
        assert!(
            wait >= Millis(waits) && wait <= Millis(waits + waits / 10).min(bench.limits.wait_max),
            "{asked}: {wait}"
        );
    }
}

#[test]
fn a_spent_quota_pauses_without_counting_as_a_throttle() {
    let mut bench = Bench::new();
    let spent = Outcome::Accepted { quota_spent_for: Some(Millis::from_secs(30)) };
    let changes = bench.send(spent);
    let until = bench.now + Millis::from_secs(30);
    assert_eq!(changes, [GateChange::Throttled { until, reason: ThrottleReason::QuotaSpent, consecutive: 0 }]);
    assert_eq!(bench.held(), Hold::until(Why::Throttle, until));
    assert_eq!(bench.gate.status(bench.now), GateStatus::Throttled);
    assert_eq!(bench.gate.state().pace.learned(), None);
}

#[test]
fn a_person_can_clear_a_throttle() {
    let mut bench = Bench::new();
    bench.send(refusal(3_600));
    bench.gate.clear_throttle(&bench.limits, bench.now);
    bench.pass(Millis(1)).send(OK);
}
