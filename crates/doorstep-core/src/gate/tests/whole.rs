use proptest::prelude::*;

use super::*;

#[test]
#[should_panic(expected = "settled a request that was never admitted")]
fn a_permit_cannot_be_settled_at_another_gate() {
    let (mut one, mut other) = (Bench::new(), Bench::new());
    let permit = one.admit();
    other.settle(permit, OK);
}

#[test]
fn a_clock_that_was_set_back_holds_no_longer_than_the_longest_wait() {
    let year = Millis::from_hours(24 * 365);
    for prepare in [|b: &mut Bench| drop(b.send(refusal(60))), Bench::trip] {
        let mut bench = Bench::new();
        prepare(&mut bench);
        bench.now = bench.now - year;
        let began = bench.now;
        bench.held();
        bench.send_when_allowed(OK);
        assert!(bench.now.since(began) <= bench.limits.wait_max, "{}", bench.now.since(began));
    }
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    let wait = proptest::option::of(prop_oneof![0..200_000u64, any::<u64>()].prop_map(Millis));
    prop_oneof![
        4 => Just(OK),
        1 => (0..3u64, wait.clone()).prop_map(|(left, resets_in)| Outcome::Accepted {
            quota: resets_in.map(|resets_in| Quota { left, resets_in })
        }),
        2 => wait.clone().prop_map(|wait| Outcome::Throttled { wait }),
        3 => (500..=599u16, wait).prop_map(|(status, wait)| Outcome::Failed { status, wait }),
        2 => Just(Outcome::TimedOut),
        1 => Just(Outcome::Unreachable),
        1 => Just(Outcome::Ambiguous { status: 404, wait: None }),
        1 => Just(Outcome::Blocked),
        1 => Just(Outcome::Rejected { status: 400 }),
        1 => Just(Outcome::Gone),
    ]
}

#[derive(Clone, Debug)]
enum Act {
    Admit,
    Settle(usize, Outcome),
    Release(usize),
    Pass(i64),
    Pause,
    Resume,
    Probe,
    Clear,
    Forget,
    Pin(Option<u64>),
    Arrive(u64),
    See(usize, i64, i64),
}

fn any_act() -> impl Strategy<Value = Act> {
    // Microseconds carry a clock for 290 000 years either way.
    let pass = prop_oneof![0..5_000i64, 0..2_000_000i64, -100_000..0i64, any::<i64>().prop_map(|span| span / 10_000)];
    prop_oneof![
        8 => Just(Act::Admit),
        6 => (any::<usize>(), any_outcome()).prop_map(|(n, outcome)| Act::Settle(n, outcome)),
        1 => any::<usize>().prop_map(Act::Release),
        4 => pass.prop_map(Act::Pass),
        1 => Just(Act::Pause),
        2 => Just(Act::Resume),
        1 => Just(Act::Probe),
        1 => Just(Act::Clear),
        1 => Just(Act::Forget),
        1 => proptest::option::of(1..100u64).prop_map(Act::Pin),
        2 => (0..1_000u64).prop_map(Act::Arrive),
        2 => (1..100usize, any::<i64>(), -100_000..2_000_000i64).prop_map(|(n, due, left)| Act::See(n, due / 10_000, left)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Any answers in any order at any time, the clock jumping about: caps hold, nothing panics, and the state can be
    /// stored and restored at every step without a difference in what follows.
    #[test]
    fn whatever_happens_the_caps_hold_and_the_state_survives_storage(
        acts in proptest::collection::vec(any_act(), 1..200), seed in any::<u64>(), concurrency in 1..20u32,
    ) {
        let mut dice = SeededDice::new(seed);
        let mut bench = Bench::new();
        bench.limits.concurrency = concurrency;
        let mut permits: Vec<Permit> = Vec::new();
        for act in acts {
            match act {
                Act::Admit => {
                    let tripped = bench.gate.state().breaker.is_tripped();
                    match bench.gate.admit(&bench.limits, bench.now) {
                        Admission::Go(permit) => {
                            prop_assert_eq!(permit.is_probe(), tripped);
                            permits.push(permit);
                            if tripped {
                                prop_assert!(permits.iter().filter(|p| p.is_probe()).count() == 1, "two probes");
                            }
                        }
                        Admission::Wait(hold) => {
                            if let Some(until) = hold.until {
                                prop_assert!(until > bench.now, "held until the past: {:?}", hold);
                                prop_assert!(until.since(bench.now) <= bench.limits.wait_max, "{:?}", hold);
                            }
                        }
                    }
                }
                Act::Settle(n, outcome) if !permits.is_empty() => {
                    let permit = permits.swap_remove(n % permits.len());
                    bench.jitter = dice.roll();
                    bench.settle(permit, outcome);
                }
                Act::Release(n) if !permits.is_empty() => {
                    let permit = permits.swap_remove(n % permits.len());
                    bench.gate.release(permit);
                }
                Act::Settle(..) | Act::Release(_) => {}
                Act::Pass(span) => bench.now = Timestamp((bench.now.0 + span).clamp(-CLOCK_MAX, CLOCK_MAX)),
                Act::Pause => bench.gate.pause(bench.now),
                Act::Resume => bench.gate.resume(&bench.limits, bench.now),
                Act::Probe => bench.gate.force_probe(bench.now),
                Act::Clear => bench.gate.clear_throttle(&bench.limits, bench.now),
                Act::Forget => bench.gate.forget_learned(),
                Act::Pin(pinned) => bench.limits.pinned = pinned.map(Rate::per_second),
                Act::Arrive(n) => bench.gate.arrived(n, bench.now),
                Act::See(n, due, left) => {
                    let (due_at, give_up_at) = (Timestamp(due), Timestamp(bench.now.0 + left));
                    bench.gate.sees(Queue { n, due_at, give_up_at }, &bench.limits, bench.now);
                }
            }
            prop_assert!(bench.gate.in_flight() <= concurrency);
            prop_assert_eq!(usize::try_from(bench.gate.in_flight()).unwrap(), permits.len());
            let stored = serde_json::to_vec(bench.gate.state()).unwrap();
            let restored: GateState = serde_json::from_slice(&stored).unwrap();
            prop_assert_eq!(&restored, bench.gate.state());
        }
    }
}

#[test]
fn a_longer_wait_from_a_request_already_on_its_way_is_told_so_that_it_is_stored() {
    let mut bench = Bench::new();
    let (first, second, third) = (bench.admit(), bench.admit(), bench.admit());
    bench.settle(first, refusal(60));
    let until = bench.now + Millis::from_secs(3_600);
    let reason = ThrottleReason::Asked;
    assert_eq!(bench.settle(second, refusal(3_600)), [GateChange::Throttled { until, reason, consecutive: 1 }]);
    assert_eq!(bench.settle(third, refusal(60)), [], "nothing changed");
}

#[test]
fn a_quota_that_resets_at_once_is_no_throttle() {
    let mut bench = Bench::new();
    let spent = Outcome::Accepted { quota: Some(Quota::spent(Millis::ZERO)) };
    assert_eq!(bench.send(spent), []);
}

#[test]
fn asking_during_a_throttle_does_not_change_what_is_learned_after_it() {
    let learned_after = |asks: bool| {
        let mut bench = Bench::new();
        for _ in 0..5 {
            bench.send_when_allowed(refusal(None));
            if asks {
                bench.held();
            }
        }
        bench.gate.state().pace.learned().unwrap()
    };
    assert_eq!(learned_after(true), learned_after(false));
}

#[test]
fn a_clock_that_was_set_back_does_not_keep_a_ramp_for_longer_than_it_takes() {
    let year = Millis::from_hours(24 * 365);
    let mut bench = Bench::new();
    bench.trip();
    bench.wait_out();
    bench.send(OK);
    bench.now = bench.now - year;
    bench.held();
    let began = bench.now;
    while bench.gate.state().pace.rate(&bench.limits) < bench.limits.rate {
        bench.send_when_allowed(OK);
        assert!(bench.now.since(began) < Millis::from_mins(30), "still at {:?}", bench.gate.state().pace);
    }
}

#[test]
fn a_receiver_that_is_well_after_a_night_of_refusals_is_not_slow_for_hours() {
    let mut bench = Bench::new();
    for _ in 0..6 {
        bench.send_when_allowed(refusal(None));
    }
    bench.send_when_allowed(OK);
    let healed = bench.now;
    while bench.gate.state().pace.rate(&bench.limits) < Rate::per_second(1) {
        bench.send_when_allowed(OK);
    }
    assert!(bench.now.since(healed) < Millis::from_hours(1), "{}", bench.now.since(healed));
}

#[test]
fn a_pause_during_the_ramp_is_not_held_against_the_receiver() {
    let ramp_after = |pauses: usize| {
        let mut bench = Bench::new();
        bench.trip();
        bench.wait_out();
        bench.send(OK);
        for _ in 0..pauses {
            bench.gate.pause(bench.now);
            bench.gate.resume(&bench.limits, bench.now);
        }
        for _ in 0..200 {
            bench.send_when_allowed(OK);
        }
        bench.gate.state().pace.rate(&bench.limits)
    };
    assert_eq!(ramp_after(3), ramp_after(0));
}

/// What was added since is not in a gate that an older version stored.
fn without(state: &mut serde_json::Value, names: &[&str]) {
    match state {
        serde_json::Value::Object(fields) => {
            fields.retain(|name, _| !names.contains(&name.as_str()));
            fields.values_mut().for_each(|field| without(field, names));
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(|item| without(item, names)),
        _ => {}
    }
}

#[test]
fn a_gate_that_an_older_version_stored_goes_on() {
    const ADDED: [&str; 9] = [
        "approach",
        "changes",
        "in_company",
        "slower",
        "before_narrowing",
        "configured_next_at",
        "burst_left",
        "burst_sent",
        "maintenances",
    ];
    let mut bench = Bench::new();
    for _ in 0..5 {
        for _ in 0..20 {
            bench.send_when_allowed(OK);
        }
        bench.send_when_allowed(refusal(1));
    }
    let mut stored = serde_json::to_value(bench.gate.state()).unwrap();
    let before = stored.to_string();
    without(&mut stored, &ADDED);
    assert!(ADDED.iter().all(|name| before.contains(name)), "{before}");
    bench.gate = Gate::restore(serde_json::from_value(stored).unwrap());
    let learned = bench.gate.state().pace.learned();
    assert!(learned.is_some());
    for _ in 0..20 {
        bench.send_when_allowed(OK);
    }
    assert!(bench.gate.state().pace.learned() >= learned, "it goes on to grow");
    bench.send_when_allowed(refusal(1));
}
