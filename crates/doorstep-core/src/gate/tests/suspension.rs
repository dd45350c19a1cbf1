use super::*;

#[test]
fn three_gone_in_a_row_suspend_and_two_do_not() {
    let mut bench = Bench::new();
    for outcome in [Outcome::Gone, Outcome::Gone, Outcome::Rejected { status: 400 }, Outcome::Gone, Outcome::Gone] {
        assert_eq!(bench.send(outcome), []);
    }
    assert_eq!(bench.send(Outcome::Gone), [GateChange::Suspended(SuspensionReason::Gone)]);
    assert_eq!(bench.held(), Hold::for_event(Why::Suspension));
    assert_eq!(bench.gate.status(bench.now), GateStatus::Suspended);
}

#[test]
fn a_hundred_permanent_answers_in_a_row_suspend() {
    let mut bench = Bench::new();
    for _ in 0..99 {
        assert_eq!(bench.send_when_allowed(Outcome::Rejected { status: 401 }), []);
    }
    bench.send_when_allowed(OK);
    for _ in 0..99 {
        assert_eq!(bench.send_when_allowed(Outcome::Rejected { status: 401 }), []);
    }
    // Silence is no answer: the row goes on behind it.
    bench.send_when_allowed(Outcome::TimedOut);
    let changes = bench.send_when_allowed(Outcome::Rejected { status: 401 });
    assert_eq!(changes, [GateChange::Suspended(SuspensionReason::OnlyRejections)]);
}

#[test]
fn resuming_is_one_action_and_drains_with_the_ramp() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        bench.send(Outcome::Gone);
    }
    bench.gate.resume(&bench.limits, bench.now);
    bench.pass(Millis::from_secs(1));
    assert_eq!(bench.admit_all().len(), 1);
}

#[test]
fn a_pause_holds_until_a_person_resumes() {
    let mut bench = Bench::new();
    bench.gate.pause(bench.now);
    bench.pass(Millis::from_hours(1_000));
    assert_eq!(bench.held(), Hold::for_event(Why::Pause));
    assert_eq!(bench.gate.status(bench.now), GateStatus::Paused);
    bench.gate.resume(&bench.limits, bench.now);
    bench.send(OK);
}

#[test]
fn resuming_what_flows_changes_nothing() {
    let mut bench = Bench::new();
    bench.gate.resume(&bench.limits, bench.now);
    assert_eq!(*bench.gate.state(), GateState::default());
}
