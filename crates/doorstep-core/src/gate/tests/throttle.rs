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
    let spent = Outcome::Accepted { quota: Some(Quota::spent(Millis::from_secs(30))) };
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

/// Seed 488031 of the simulator.
#[test]
fn whoever_clears_a_throttle_gets_no_further_burst() {
    let mut bench = Bench::new();
    bench.limits.rate = Rate::per_second(1);
    bench.limits.burst = 5;
    for _ in 0..5 {
        bench.send(OK);
    }
    let held = bench.held();
    assert_eq!(held.why, Why::Pace);
    bench.gate.clear_throttle(&bench.limits, bench.now);
    assert_eq!(bench.held(), held);
}

fn unavailable(secs: impl Into<Option<u64>>) -> Outcome {
    Outcome::Failed { status: 503, wait: secs.into().map(Millis::from_secs) }
}

#[test]
fn maintenance_holds_the_whole_destination_and_is_no_throttle() {
    let mut bench = Bench::new();
    let changes = bench.send(unavailable(600));
    let until = bench.now + Millis::from_secs(600);
    let reason = ThrottleReason::Maintenance;
    assert_eq!(changes, [GateChange::Throttled { until, reason, consecutive: 0 }]);
    assert_eq!(bench.held(), Hold::until(Why::Throttle, until));
    assert_eq!(bench.gate.status(bench.now), GateStatus::Throttled);
    assert_eq!(bench.gate.state().throttle.reason(), Some(reason));
    bench.gate = Gate::restore(serde_json::from_str(&serde_json::to_string(bench.gate.state()).unwrap()).unwrap());
    assert_eq!(bench.wait_out().until, Some(until), "it survives a restart");
    bench.send(refusal(None));
    assert_eq!(throttled_for(&bench), Millis::from_secs(60), "the first throttle, since the maintenance was none");
    assert_eq!(bench.gate.state().throttle.consecutive(), 1);
}

#[test]
fn only_a_503_that_says_for_how_long_is_maintenance() {
    for outcome in [
        unavailable(None),
        unavailable(0),
        Outcome::Failed { status: 500, wait: Some(Millis::from_secs(60)) },
        Outcome::Failed { status: 502, wait: Some(Millis::from_secs(60)) },
    ] {
        let mut bench = Bench::new();
        assert_eq!(bench.send(outcome), [], "{outcome:?}");
        assert_eq!(bench.gate.hold(&bench.limits, bench.now), None, "{outcome:?}");
    }
}

#[test]
fn maintenance_holds_probes_too_and_counts_for_the_breaker() {
    let mut bench = Bench::new();
    for _ in 0..10 {
        bench.send_when_allowed(unavailable(3_600));
    }
    assert!(bench.gate.state().breaker.is_tripped(), "ten failures in a row");
    let until = bench.now + Millis::from_hours(1);
    bench.gate.force_probe(bench.now);
    assert_eq!(bench.held(), Hold::until(Why::Throttle, until), "not even by force");
    bench.gate.clear_throttle(&bench.limits, bench.now);
    bench.pass(Millis::from_secs(1));
    assert!(bench.admit().is_probe(), "the hand that clears throttles clears it");
}

#[test]
fn what_was_on_its_way_when_maintenance_began_does_not_count_again_for_the_breaker() {
    let mut bench = Bench::new();
    let permits = bench.admit_all();
    assert_eq!(permits.len(), 10);
    for permit in permits {
        bench.settle(permit, unavailable(3_600));
    }
    assert!(!bench.gate.state().breaker.is_tripped());
    // A 503 that does not say for how long counts each time, and so does any other failure.
    let mut bench = Bench::new();
    for permit in bench.admit_all() {
        bench.settle(permit, unavailable(None));
    }
    assert!(bench.gate.state().breaker.is_tripped());
}

#[test]
fn maintenance_is_honoured_up_to_the_cap_and_a_shorter_one_never_cuts_a_longer_one() {
    let mut bench = Bench::new();
    let (first, second) = (bench.admit(), bench.admit());
    bench.settle(first, unavailable(10 * 24 * 3_600));
    assert_eq!(throttled_for(&bench), Millis::from_hours(24));
    assert_eq!(bench.settle(second, unavailable(5)), []);
    assert_eq!(throttled_for(&bench), Millis::from_hours(24));
}

#[test]
fn after_a_long_maintenance_comes_a_ramp_and_after_a_short_one_none() {
    let admitted_after = |secs| {
        let mut bench = Bench::new();
        bench.send(unavailable(secs));
        bench.wait_out();
        bench.admit_all().len()
    };
    assert_eq!(admitted_after(60), 1);
    assert_eq!(admitted_after(5), 9, "one fewer of ten, since a lone 503 narrows a little");
}

#[test]
fn the_operator_sets_how_long_a_silent_throttle_lasts() {
    let mut bench = Bench::new();
    bench.limits.throttle_waits = [2, 7].map(Millis::from_secs).to_vec();
    for secs in [2, 7, 7] {
        bench.send_when_allowed(refusal(None));
        assert_eq!(throttled_for(&bench), Millis::from_secs(secs));
    }
}
