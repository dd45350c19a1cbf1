//! The learned pace is seen, forgotten and overruled.

use super::*;

/// A gate that has learned a pace of about two a second, and then a ceiling.
fn taught() -> Bench {
    let mut bench = Bench::new();
    for _ in 0..120 {
        bench.send(OK);
        bench.pass(Millis(1));
    }
    bench.send(refusal(60));
    for _ in 0..400 {
        bench.send_when_allowed(OK);
    }
    bench.send_when_allowed(refusal(60));
    bench
}

fn learned(bench: &Bench) -> LearnedPace {
    bench.gate.state().pace.learned_pace(&bench.limits).expect("a learned pace")
}

fn admit_when_allowed(bench: &mut Bench) -> Permit {
    while let Some(hold) = bench.gate.hold(&bench.limits, bench.now) {
        bench.now = hold.until.expect("a hold with a time");
    }
    bench.admit()
}

/// When requests go that are sent as soon as they may, until `span` has passed.
fn sent_within(bench: &mut Bench, span: Millis) -> Vec<Timestamp> {
    let end = bench.now + span;
    let mut sent = Vec::new();
    loop {
        let permit = admit_when_allowed(bench);
        if bench.now >= end {
            bench.gate.hand_back(permit);
            return sent;
        }
        sent.push(bench.now);
        bench.settle(permit, OK);
    }
}

#[test]
fn a_learned_pace_says_why_since_when_and_when_it_is_probed_next() {
    let mut bench = Bench::new();
    assert_eq!(bench.gate.state().pace.learned_pace(&bench.limits), None);
    bench.send(OK);
    bench.pass(Millis::from_secs(1)).send(refusal(60));
    let first = learned(&bench);
    assert_eq!((first.estimate, first.next_probe_at), (None, None), "it grows until it is refused again");
    assert_eq!((first.reason, first.since), (LearnedReason::Refused, Some(bench.now)));
    assert_eq!(Some(first.pace), bench.gate.state().pace.learned());

    for _ in 0..100 {
        bench.send_when_allowed(OK);
    }
    bench.send_when_allowed(refusal(60));
    let second = learned(&bench);
    assert!(second.estimate.unwrap() > second.pace, "{second:?}");
    assert!(second.next_probe_at.unwrap() > bench.now, "{second:?}");
    assert_eq!(second.since, first.since, "it is the same lesson, refined");

    bench.limits.rate = Rate::SLOWEST;
    assert_eq!(learned(&bench).pace, bench.limits.rate, "never faster than configured");
}

#[test]
fn a_gate_that_was_stored_without_since_when_is_read_and_invents_none() {
    let mut stored = serde_json::to_value(taught().gate.state()).unwrap();
    assert!(stored["pace"].as_object_mut().unwrap().remove("learned_since").is_some());
    let mut bench = Bench { gate: Gate::restore(serde_json::from_value(stored).unwrap()), ..taught() };
    bench.send_when_allowed(OK);
    assert_eq!(learned(&bench).since, None);
}

#[test]
fn clearing_a_throttle_keeps_the_learned_pace_unless_it_is_forgotten_too() {
    let mut bench = taught();
    let before = learned(&bench);
    bench.gate.clear_throttle(&bench.limits, bench.now);
    assert_eq!(learned(&bench), before);

    bench.gate.forget_learned();
    bench.gate.clear_throttle(&bench.limits, bench.now);
    assert_eq!(bench.gate.state().pace.learned_pace(&bench.limits), None);
    assert_eq!(bench.gate.state().pace.rate(&bench.limits), bench.limits.rate);
    let sent = sent_within(&mut bench, Millis::from_secs(1)).len();
    assert!(sent >= 1_000, "{sent} requests in the first second");

    // It is learned anew, from what is admitted from now on.
    bench.send_when_allowed(refusal(60));
    let anew = learned(&bench);
    assert_eq!((anew.estimate, anew.since), (None, Some(bench.now)));
}

#[test]
fn a_pinned_pace_is_kept_to_evenly_and_never_exceeds_the_configured_rate() {
    for (pinned, rate, spacing) in [(5, 1_000, 200), (50, 10, 100), (1, 1, 1_000)] {
        for mut bench in [Bench::new(), taught()] {
            bench.gate.clear_throttle(&bench.limits, bench.now);
            bench.limits.rate = Rate::per_second(rate);
            bench.limits.pinned = Some(Rate::per_second(pinned));
            // Whatever was left of another pace is over by then.
            bench.pass(Millis::from_secs(5));
            let sent = sent_within(&mut bench, Millis::from_secs(60));
            let spaces: Vec<u64> = sent.windows(2).map(|pair| pair[1].since(pair[0]).0).collect();
            assert_eq!(spaces, vec![spacing; 60_000 / usize::try_from(spacing).unwrap() - 1], "{pinned} of {rate}");
        }
    }
}

#[test]
fn a_pinned_pace_is_in_force_at_once_and_so_is_its_end() {
    let mut bench = taught();
    bench.gate.clear_throttle(&bench.limits, bench.now);
    bench.limits.pinned = Some(Rate::over(1, Millis::from_secs(100)));
    bench.pass(Millis::from_secs(5)).send(OK);
    assert_eq!(bench.held(), Hold::until(Why::Pace, bench.now + Millis::from_secs(100)));
    bench.limits.pinned = Some(Rate::per_second(1));
    assert_eq!(bench.held(), Hold::until(Why::Pace, bench.now + Millis::from_secs(1)));
    bench.limits.pinned = None;
    let (began, interval) = (bench.now, Millis((1e3 / learned(&bench).pace.as_per_second()) as u64));
    bench.wait_out();
    assert!(bench.now.since(began) <= interval + Millis(1), "it waits for its learned pace at most");
}

#[test]
fn a_pinned_pace_takes_nothing_from_throttle_breaker_and_ramp() {
    let mut bench = Bench::new();
    bench.limits.pinned = Some(Rate::per_second(100));
    bench.send(refusal(60));
    assert_eq!(bench.held(), Hold::until(Why::Throttle, bench.now + Millis::from_secs(60)));
    for _ in 0..bench.limits.breaker.failures_in_row {
        bench.send_when_allowed(DOWN);
    }
    assert_eq!(bench.held().why, Why::Breaker);
    bench.send_when_allowed(OK);
    let rate = bench.gate.state().pace.rate(&bench.limits);
    assert!(rate < Rate::per_second(2), "a receiver that comes back meets a ramp: {rate:?}");
}

#[test]
fn nothing_is_learned_while_a_pace_is_pinned_and_what_was_learned_comes_back_after_it() {
    let mut bench = taught();
    bench.gate.clear_throttle(&bench.limits, bench.now);
    for _ in 0..10 {
        bench.send_when_allowed(OK);
    }
    let overtaken = [admit_when_allowed(&mut bench), admit_when_allowed(&mut bench)];
    let before = learned(&bench);
    bench.limits.pinned = Some(Rate::per_second(20));
    for (permit, outcome) in overtaken.into_iter().zip([OK, refusal(1)]) {
        bench.settle(permit, outcome);
    }
    for _ in 0..20 {
        for _ in 0..50 {
            bench.send_when_allowed(OK);
        }
        bench.send_when_allowed(refusal(1));
    }
    assert_eq!(learned(&bench), before, "it is kept");
    let left_pinned = [admit_when_allowed(&mut bench), admit_when_allowed(&mut bench)];
    bench.limits.pinned = None;
    assert_eq!(bench.gate.state().pace.rate(&bench.limits), before.pace, "and in force again");
    for (permit, outcome) in left_pinned.into_iter().zip([OK, refusal(1)]) {
        bench.settle(permit, outcome);
    }
    assert_eq!(learned(&bench), before, "a request that left at the pinned pace teaches nothing about this one");
}

#[test]
fn what_was_admitted_at_a_pinned_pace_is_not_counted_afterwards() {
    let mut bench = Bench::new();
    bench.send(OK);
    bench.limits.pinned = Some(Rate::over(1, Millis::from_mins(1)));
    for _ in 0..60 {
        bench.send_when_allowed(OK);
    }
    bench.limits.pinned = None;
    bench.wait_out();
    for _ in 0..100 {
        bench.send_when_allowed(OK);
    }
    bench.send_when_allowed(refusal(1));
    let learned = learned(&bench).pace;
    assert!(learned > Rate::per_second(40), "an hour at one a minute says nothing about it: {learned:?}");
}
