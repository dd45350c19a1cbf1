use super::*;

#[test]
fn ten_failures_in_a_row_trip_the_breaker_and_nine_do_not() {
    let mut bench = Bench::new();
    for _ in 0..9 {
        assert_eq!(bench.send(Outcome::TimedOut), []);
    }
    let until = bench.now + Millis::from_secs(30);
    assert_eq!(bench.send(Outcome::TimedOut), [GateChange::Tripped { until, trips: 1 }]);
    assert_eq!(bench.held(), Hold::until(Why::Breaker, until));
    assert_eq!(bench.gate.status(bench.now), GateStatus::Failing);
}

#[test]
fn half_of_at_least_ten_requests_in_a_minute_trip_the_breaker() {
    let mut bench = Bench::new();
    for n in 0..9 {
        let changes = bench.send(if n % 2 == 0 { DOWN } else { OK });
        assert_eq!(changes, [], "request {n}");
    }
    assert!(matches!(bench.send(DOWN)[..], [GateChange::Tripped { .. }]));

    let mut slow = Bench::new();
    for _ in 0..60 {
        assert_eq!(slow.send(DOWN), []);
        assert_eq!(slow.send(OK), []);
        slow.pass(Millis::from_secs(20));
    }
}

#[test]
fn only_transient_failures_count_for_the_breaker() {
    for outcome in [
        refusal(1),
        Outcome::Rejected { status: 400 },
        Outcome::Ambiguous { status: 404, wait: None },
        Outcome::Blocked,
    ] {
        let mut bench = Bench::new();
        for _ in 0..50 {
            bench.send_when_allowed(outcome);
        }
        assert!(!bench.gate.state().breaker.is_tripped(), "{outcome:?}");
    }
}

#[test]
fn failures_never_touch_the_throttle() {
    let mut bench = Bench::new();
    for _ in 0..9 {
        bench.send(Outcome::Failed { status: 503, wait: None });
    }
    assert_eq!(bench.gate.state().throttle, Throttle::default());
    bench.send(OK);
}

#[test]
fn exactly_one_probe_goes_while_half_open() {
    let mut bench = Bench::new();
    bench.trip();
    bench.wait_out();
    let probe = bench.admit();
    assert!(probe.is_probe());
    assert_eq!(bench.held(), Hold::for_event(Why::Breaker));
    assert_eq!(bench.gate.status(bench.now), GateStatus::Probing);
    assert!(matches!(bench.settle(probe, DOWN)[..], [GateChange::Tripped { trips: 2, .. }]));
    assert_eq!(bench.held().why, Why::Breaker);
}

#[test]
fn a_released_probe_makes_room_for_another() {
    let mut bench = Bench::new();
    bench.trip();
    bench.wait_out();
    let probe = bench.admit();
    bench.gate.release(probe);
    assert!(bench.admit().is_probe());
}

#[test]
fn a_throttled_probe_neither_opens_nor_closes_the_breaker() {
    let mut bench = Bench::new();
    bench.trip();
    bench.wait_out();
    let probe = bench.admit();
    assert!(matches!(bench.settle(probe, refusal(5))[..], [GateChange::Throttled { .. }]));
    assert_eq!(bench.gate.state().breaker.trips(), 1);
    assert_eq!(bench.wait_out().why, Why::Throttle);
    assert!(bench.admit().is_probe());
}

#[test]
fn the_cool_down_doubles_up_to_ten_minutes_and_is_stretched_but_never_shortened() {
    for (jitter, stretch) in [(Jitter::LOWEST, 100), (Jitter::HIGHEST, 120)] {
        let mut bench = Bench::new();
        bench.jitter = jitter;
        bench.trip();
        for secs in [30, 60, 120, 240, 480, 600, 600] {
            let until = bench.held().until.unwrap();
            assert_eq!(until.since(bench.now), Millis(secs * 10 * stretch));
            bench.now = until;
            bench.send(DOWN);
        }
    }
}

#[test]
fn late_answers_from_before_the_trip_change_nothing() {
    let mut bench = Bench::new();
    let (early_success, early_failure) = (bench.admit(), bench.admit());
    bench.limits.breaker.failures_in_row = 5;
    bench.trip();
    let before = bench.gate.state().breaker.clone();
    assert_eq!(bench.settle(early_success, OK), []);
    assert_eq!(bench.settle(early_failure, DOWN), []);
    assert_eq!(bench.gate.state().breaker, before);
}

#[test]
fn a_flapping_destination_keeps_its_long_cool_downs_and_a_steady_one_is_forgiven() {
    let mut bench = Bench::new();
    bench.trip();
    bench.wait_out();
    assert_eq!(bench.send(OK), [GateChange::Recovered]);
    for _ in 0..10 {
        bench.send_when_allowed(DOWN);
    }
    assert_eq!(bench.gate.state().breaker.trips(), 2);
    bench.wait_out();
    bench.send(OK);
    bench.pass(Millis::from_mins(11));
    bench.send(OK);
    assert_eq!(bench.gate.state().breaker.trips(), 0);
}

#[test]
fn a_person_can_force_a_probe() {
    let mut bench = Bench::new();
    bench.trip();
    bench.gate.force_probe(bench.now);
    assert!(bench.admit().is_probe());
}
