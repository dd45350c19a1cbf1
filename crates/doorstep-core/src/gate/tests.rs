use proptest::prelude::*;

use super::*;
use crate::dice::{Dice, SeededDice};

const CLOCK_MAX: i64 = i64::MAX / 1_001;
const T0: Timestamp = Timestamp(1_700_000_000_000);
const OK: Outcome = Outcome::Accepted { quota_spent_for: None };
const DOWN: Outcome = Outcome::Failed { status: 500, wait: None };

/// A gate, its limits and a clock that moves by hand.
struct Bench {
    gate: Gate,
    limits: GateLimits,
    now: Timestamp,
    jitter: Jitter,
}

impl Bench {
    fn new() -> Self {
        Self {
            gate: Gate::restore(GateState::default()),
            limits: GateLimits::default(),
            now: T0,
            jitter: Jitter::LOWEST,
        }
    }

    fn pass(&mut self, span: Millis) -> &mut Self {
        self.now = self.now + span;
        self
    }

    fn admit(&mut self) -> Permit {
        match self.gate.admit(&self.limits, self.now) {
            Admission::Go(permit) => permit,
            Admission::Wait(hold) => panic!("held: {hold:?} at {:?}", self.now),
        }
    }

    fn held(&mut self) -> Hold {
        match self.gate.admit(&self.limits, self.now) {
            Admission::Wait(hold) => hold,
            Admission::Go(_) => panic!("admitted at {:?}", self.now),
        }
    }

    fn settle(&mut self, permit: Permit, outcome: Outcome) -> Vec<GateChange> {
        self.gate.settle(permit, &outcome, &self.limits, self.now, self.jitter)
    }

    fn send(&mut self, outcome: Outcome) -> Vec<GateChange> {
        let permit = self.admit();
        self.settle(permit, outcome)
    }

    /// As many as go at once.
    fn admit_all(&mut self) -> Vec<Permit> {
        let mut permits = Vec::new();
        while let Admission::Go(permit) = self.gate.admit(&self.limits, self.now) {
            permits.push(permit);
        }
        permits
    }

    fn wait_out(&mut self) -> Hold {
        let hold = self.held();
        self.now = hold.until.expect("a hold with a time");
        hold
    }

    /// Sends as soon as each hold ends.
    fn send_when_allowed(&mut self, outcome: Outcome) -> Vec<GateChange> {
        while let Some(hold) = self.gate.hold(&self.limits, self.now) {
            self.now = hold.until.expect("a hold with a time");
        }
        self.send(outcome)
    }

    fn trip(&mut self) {
        for _ in 0..self.limits.breaker.failures_in_row {
            self.send(DOWN);
        }
        assert!(self.gate.state().breaker.is_tripped());
    }
}

fn refusal(secs: impl Into<Option<u64>>) -> Outcome {
    Outcome::Throttled { wait: secs.into().map(Millis::from_secs) }
}

fn throttled_for(bench: &Bench) -> Millis {
    bench.gate.state().throttle.until().unwrap().since(bench.now)
}

// Throttle.

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

// Breaker.

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
    for outcome in [refusal(1), Outcome::Rejected { status: 400 }, Outcome::Ambiguous { status: 404 }, Outcome::Blocked]
    {
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
        bench.send(Outcome::Failed { status: 503, wait: Some(Millis::from_hours(1)) });
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

// Concurrency and the ramp.

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

// Pace.

#[test]
fn the_configured_rate_is_kept_with_its_burst() {
    let mut bench = Bench::new();
    (bench.limits.rate, bench.limits.burst, bench.limits.concurrency) = (Rate::per_second(10), 5, 1_000);
    assert_eq!(bench.admit_all().len(), 5);
    assert_eq!(bench.held(), Hold::until(Why::Pace, bench.now + Millis(100)));
    let mut sent = 0;
    let end = bench.now + Millis::from_secs(60);
    while bench.now < end {
        bench.wait_out();
        sent += bench.admit_all().len();
    }
    assert!((599..=601).contains(&sent), "{sent}");
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

// Suspension.

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
    bench.gate.pause();
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

// The gate as a whole.

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
        1 => wait.clone().prop_map(|quota_spent_for| Outcome::Accepted { quota_spent_for }),
        2 => wait.clone().prop_map(|wait| Outcome::Throttled { wait }),
        3 => (500..=599u16, wait).prop_map(|(status, wait)| Outcome::Failed { status, wait }),
        2 => Just(Outcome::TimedOut),
        1 => Just(Outcome::Unreachable),
        1 => Just(Outcome::Ambiguous { status: 404 }),
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
                Act::Pause => bench.gate.pause(),
                Act::Resume => bench.gate.resume(&bench.limits, bench.now),
                Act::Probe => bench.gate.force_probe(bench.now),
                Act::Clear => bench.gate.clear_throttle(&bench.limits, bench.now),
            }
            prop_assert!(bench.gate.in_flight() <= concurrency);
            prop_assert_eq!(usize::try_from(bench.gate.in_flight()).unwrap(), permits.len());
            let stored = serde_json::to_vec(bench.gate.state()).unwrap();
            let restored: GateState = serde_json::from_slice(&stored).unwrap();
            prop_assert_eq!(&restored, bench.gate.state());
        }
    }
}

// Throttle, pace and clock together.

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
    let spent = Outcome::Accepted { quota_spent_for: Some(Millis::ZERO) };
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
            bench.gate.pause();
            bench.gate.resume(&bench.limits, bench.now);
        }
        for _ in 0..200 {
            bench.send_when_allowed(OK);
        }
        bench.gate.state().pace.rate(&bench.limits)
    };
    assert_eq!(ramp_after(3), ramp_after(0));
}
