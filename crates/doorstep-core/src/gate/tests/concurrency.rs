use super::*;

#[test]
fn the_concurrency_cap_is_exact() {
    let mut bench = Bench::new();
    let mut permits = bench.admit_all();
    assert_eq!(permits.len(), 10);
    assert_eq!(bench.held(), Hold::for_event(Why::Concurrency));
    let permit = permits.pop().unwrap();
    bench.settle(permit, OK);
    assert_eq!(bench.admit_all().len(), 1);
}

#[test]
fn one_overload_narrows_once_and_answers_widen_again() {
    let mut bench = Bench::new();
    bench.limits.breaker.failures_in_row = 1_000;
    bench.limits.breaker.requests_min = 1_000;
    for permit in bench.admit_all() {
        bench.settle(permit, Outcome::TimedOut);
    }
    assert_eq!(bench.gate.state().concurrency.limit(&bench.limits), 5);
    for _ in 0..5 {
        for permit in bench.admit_all() {
            bench.settle(permit, Outcome::TimedOut);
        }
    }
    assert_eq!(bench.gate.state().concurrency.limit(&bench.limits), 1);
    let mut rounds = Vec::new();
    for _ in 0..9 {
        let permits = bench.admit_all();
        rounds.push(permits.len());
        for permit in permits {
            bench.settle(permit, OK);
        }
        bench.pass(Millis::from_secs(1));
    }
    assert_eq!(rounds, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_plain_server_error_does_not_narrow() {
    let mut bench = Bench::new();
    bench.send(Outcome::Failed { status: 500, wait: None });
    assert_eq!(bench.gate.state().concurrency.limit(&bench.limits), 10);
    bench.send(Outcome::Failed { status: 504, wait: None });
    assert_eq!(bench.gate.state().concurrency.limit(&bench.limits), 5);
}

#[test]
fn a_recovered_receiver_meets_a_ramp() {
    let mut bench = Bench::new();
    bench.trip();
    bench.wait_out();
    assert_eq!(bench.send(OK), [GateChange::Recovered]);
    let mut limits = Vec::new();
    for _ in 0..5 {
        let limit = bench.gate.state().concurrency.limit(&bench.limits);
        limits.push(limit);
        let mut permits = Vec::new();
        for _ in 0..limit {
            while let Some(hold) = bench.gate.hold(&bench.limits, bench.now) {
                bench.now = hold.until.unwrap();
            }
            permits.push(bench.admit());
        }
        for permit in permits {
            bench.settle(permit, OK);
        }
    }
    assert_eq!(limits, [1, 2, 4, 8, 10]);
}

#[test]
fn after_recovery_the_pace_stays_below_twice_what_was_usual() {
    let mut bench = Bench::new();
    bench.limits.concurrency = 1_000;
    for _ in 0..3_000 {
        bench.send(OK);
        bench.pass(Millis(50));
    }
    bench.trip();
    bench.wait_out();
    bench.send(OK);
    let recovered_at = bench.now;
    let mut seconds = vec![0u32; 300];
    loop {
        bench.send_when_allowed(OK);
        let second = usize::try_from(bench.now.since(recovered_at).0 / 1_000).unwrap();
        let Some(count) = seconds.get_mut(second) else { break };
        *count += 1;
    }
    assert!(seconds[0] <= 2, "{seconds:?}");
    assert!(seconds[120..].iter().all(|n| (30..=40).contains(n)), "{seconds:?}");
}

#[test]
fn a_receiver_that_falls_over_again_is_brought_back_more_gently() {
    let mut bench = Bench::new();
    for _ in 0..3_000 {
        bench.send(OK);
        bench.pass(Millis(50));
    }
    let mut targets = Vec::new();
    for _ in 0..3 {
        bench.trip_through_holds();
        bench.wait_out();
        bench.send(OK);
        for _ in 0..2_000 {
            bench.send_when_allowed(OK);
        }
        targets.push(bench.gate.state().pace.rate(&bench.limits));
    }
    assert!(targets[0] > targets[1] && targets[1] > targets[2], "{targets:?}");
}

impl Bench {
    fn trip_through_holds(&mut self) {
        while !self.gate.state().breaker.is_tripped() {
            self.send_when_allowed(DOWN);
        }
    }
}
