use proptest::prelude::*;
use proptest::strategy::Strategy as Generator;

use super::Strategy;
use super::*;
use crate::dice::{Dice, SeededDice};
use crate::hints::Hints;
use crate::outcome::StatusOverrides;

const NOW: Timestamp = Timestamp(1_000_000);

fn fresh() -> Progress {
    Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at: Timestamp::MAX }
}

fn policy(json: &str) -> RetryPolicy {
    serde_json::from_str(json).unwrap()
}

fn fault(json: &str) -> String {
    serde_json::from_str::<RetryPolicy>(json).unwrap_err().to_string()
}

fn unavailable(wait_secs: Option<u64>) -> Outcome {
    Outcome::Failed { status: 503, wait: wait_secs.map(Millis::from_secs) }
}

#[test]
fn each_outcome_has_its_consequence() {
    let policy = RetryPolicy::standard();
    let check = |outcome, progress: Progress, expected| {
        assert_eq!(
            policy.next(&outcome, &progress, Charge::Attempt, NOW, Jitter::HIGHEST),
            expected,
            "{outcome:?} after {progress:?}"
        );
    };
    let tried = |attempts| Progress { attempts, ..fresh() };
    let until = |give_up_at| Progress { give_up_at: Timestamp(give_up_at), ..fresh() };
    let in_30s = Decision::RetryAt(Timestamp(1_030_000));
    check(Outcome::Accepted { quota: None }, tried(199), Decision::Delivered);
    check(Outcome::TimedOut, fresh(), in_30s);
    check(Outcome::Unreachable, fresh(), in_30s);
    check(unavailable(None), fresh(), in_30s);
    check(unavailable(None), tried(1), Decision::RetryAt(Timestamp(1_060_000)));
    check(unavailable(None), tried(198), Decision::RetryAt(Timestamp(4_600_000)));
    check(unavailable(None), tried(199), Decision::Dead(DeadReason::Exhausted));
    check(unavailable(None), tried(u32::MAX), Decision::Dead(DeadReason::Exhausted));
    check(unavailable(None), until(1_031_000), in_30s);
    check(Outcome::Rejected { status: 400 }, fresh(), Decision::Dead(DeadReason::Rejected));
    check(Outcome::Gone, fresh(), Decision::Dead(DeadReason::Rejected));
    for outcome in [Outcome::Ambiguous { status: 404, wait: None }, Outcome::Blocked] {
        check(outcome, Progress { attempts: 3, ambiguous: 3, ..fresh() }, Decision::RetryAt(Timestamp(1_240_000)));
        check(outcome, Progress { attempts: 4, ambiguous: 4, ..fresh() }, Decision::Dead(DeadReason::Rejected));
        check(outcome, Progress { attempts: 9, ambiguous: 0, ..fresh() }, Decision::RetryAt(Timestamp(4_600_000)));
    }
}

#[test]
fn a_throttled_attempt_costs_nothing() {
    let throttled = Outcome::Throttled { wait: Some(Millis::from_hours(1)) };
    let spent = Progress { attempts: 15, ..fresh() };
    let next = |progress| RetryPolicy::standard().next(&throttled, &progress, Charge::Attempt, NOW, Jitter::LOWEST);
    assert_eq!(next(spent), Decision::Requeue);
    assert_eq!(next(Progress { give_up_at: NOW, ..spent }), Decision::Dead(DeadReason::Expired));
}

#[test]
fn the_larger_of_header_and_backoff_counts_and_jitter_never_shortens_it() {
    let policy = RetryPolicy::standard();
    let check = |asked: u64, jitter, expected_ms| {
        let wait = Some(Millis::from_secs(asked));
        let doubtful = [404, 302].map(|status| Outcome::Ambiguous { status, wait });
        for outcome in doubtful.into_iter().chain([Outcome::Failed { status: 500, wait }]) {
            let decision = policy.next(&outcome, &fresh(), Charge::Attempt, NOW, jitter);
            assert_eq!(decision, Decision::RetryAt(NOW + Millis(expected_ms)), "{outcome:?} {jitter:?}");
        }
    };
    check(10, Jitter::LOWEST, 10_000);
    check(10, Jitter::HIGHEST, 30_000);
    check(600, Jitter::LOWEST, 600_000);
    check(600, Jitter::HIGHEST, 660_000);
    check(36_000, Jitter::HIGHEST, 36_060_000);
}

#[test]
fn a_maintenance_window_is_the_destinations_and_the_delivery_keeps_its_own_backoff() {
    let next =
        |asked| RetryPolicy::standard().next(&unavailable(asked), &fresh(), Charge::Attempt, NOW, Jitter::HIGHEST);
    assert_eq!(next(Some(36_000)), Decision::RetryAt(NOW + Millis::from_secs(30)));
    assert_eq!(next(Some(36_000)), next(None));
}

#[test]
fn a_delay_that_passes_the_windows_end_is_cut_to_a_last_attempt_just_before_it() {
    let hourly = policy(r#"{"strategy":"fixed","base_ms":3600000,"jitter":"none"}"#);
    let often = policy(r#"{"strategy":"fixed","base_ms":50,"jitter":"none"}"#);
    let slow = policy(r#"{"strategy":"fixed","base_ms":3600000,"jitter":"none","floor_ms":1200000}"#);
    let retry_in = |ms| Decision::RetryAt(NOW + Millis(ms));
    let expired = Decision::Dead(DeadReason::Expired);
    for (policy, left_ms, asked_secs, expected) in [
        (&hourly, 3_601_001, 0, retry_in(3_600_000)),
        (&hourly, 3_600_000, 0, retry_in(3_599_000)),
        (&hourly, 1_800_000, 0, retry_in(1_799_000)),
        // Never sooner than the floor, so the attempt that was cut is the last one.
        (&hourly, 2_000, 0, retry_in(1_000)),
        (&hourly, 1_999, 0, expired),
        (&hourly, 1_000, 0, expired),
        (&often, 51, 0, retry_in(50)),
        (&often, 50, 0, expired),
        (&slow, 1_800_000, 0, retry_in(1_799_000)),
        (&slow, 1_200_999, 0, expired),
        // Nor sooner than the receiver asked.
        (&hourly, 1_800_000, 1_799, retry_in(1_799_000)),
        (&hourly, 1_800_000, 1_800, expired),
    ] {
        let progress = Progress { give_up_at: NOW + Millis(left_ms), ..fresh() };
        let outcome = Outcome::Failed { status: 500, wait: Some(Millis::from_secs(asked_secs)) };
        let decision = policy.next(&outcome, &progress, Charge::Attempt, NOW, Jitter::HIGHEST);
        assert_eq!(decision, expected, "{left_ms} left, {asked_secs} s asked for, {policy:?}");
    }
}

#[test]
fn a_probe_costs_no_attempt_and_still_waits_its_turn() {
    let next = |outcome, attempts, charge| {
        let progress = Progress { attempts, ambiguous: 0, ..fresh() };
        RetryPolicy::standard().next(&outcome, &progress, charge, NOW, Jitter::HIGHEST)
    };
    let last = next(Outcome::TimedOut, 199, Charge::Attempt);
    assert_eq!(last, Decision::Dead(DeadReason::Exhausted));
    let probed = next(Outcome::TimedOut, 199, Charge::Probe);
    assert_eq!(probed, Decision::RetryAt(NOW + Millis::from_hours(1)), "no cap of attempts ends it, and it backs off");
    let doubtful = Progress { ambiguous: 4, ..fresh() };
    let answer = Outcome::Ambiguous { status: 404, wait: None };
    let decision = RetryPolicy::standard().next(&answer, &doubtful, Charge::Probe, NOW, Jitter::LOWEST);
    assert_eq!(decision, Decision::Dead(DeadReason::Rejected), "a fifth doubtful answer is one, probe or not");
}

#[test]
fn the_operator_sets_how_many_ambiguous_answers_are_too_many() {
    let policy = RetryPolicy::standard().with_ambiguous_max(2);
    let next = |ambiguous| {
        let progress = Progress { ambiguous, ..fresh() };
        policy.next(&Outcome::Blocked, &progress, Charge::Attempt, NOW, Jitter::LOWEST)
    };
    assert_eq!(next(0), Decision::RetryAt(NOW + Millis::from_secs(1)));
    assert_eq!(next(1), Decision::Dead(DeadReason::Rejected));
}

/// Tries until the delivery ends, as if each attempt failed at once.
fn live(policy: &RetryPolicy, mut draw: impl FnMut() -> Jitter) -> (Vec<Timestamp>, DeadReason) {
    let mut progress = Progress { give_up_at: policy.give_up_at(NOW, None), ..fresh() };
    let (mut now, mut attempts) = (NOW, Vec::new());
    loop {
        attempts.push(now);
        match policy.next(&Outcome::TimedOut, &progress, Charge::Attempt, now, draw()) {
            Decision::RetryAt(at) => {
                progress = Progress { attempts: progress.attempts + 1, last_delay: at.since(now), ..progress };
                now = at;
            }
            Decision::Dead(reason) => return (attempts, reason),
            decision @ (Decision::Delivered | Decision::Requeue) => panic!("a timeout is not {decision:?}"),
        }
    }
}

/// Decision 17 shows that fewer than one life in a hundred million reaches the cap of attempts before the window ends.
#[test]
fn the_window_ends_a_standard_delivery_and_not_the_cap_of_attempts() {
    let (policy, mut dice) = (RetryPolicy::standard(), SeededDice::new(17));
    let (mut most, mut sum) = (0, 0);
    const LIVES: usize = 2_000;
    for _ in 0..LIVES {
        let (attempts, reason) = live(&policy, || dice.roll());
        assert_eq!(reason, DeadReason::Expired);
        let last = attempts.last().unwrap().since(NOW);
        assert!(last >= Millis::from_hours(72) - Millis::from_secs(2), "the last attempt came after {last}");
        (most, sum) = (most.max(attempts.len()), sum + attempts.len());
    }
    // The mean is 1 + 7 early ones + (72 h − 32 min) / 30 min, and the one that is cut.
    assert!((148..=155).contains(&(sum / LIVES)), "{} attempts on average", sum / LIVES);
    assert!(most < 190, "{most} attempts");
}

#[test]
fn every_preset_uses_its_whole_window() {
    for (policy, window) in [
        (RetryPolicy::standard(), Millis::from_hours(72)),
        (RetryPolicy::patient(), Millis::from_hours(5 * 24)),
        (RetryPolicy::brief(), Millis::from_secs(60)),
    ] {
        let mut dice = SeededDice::new(1);
        for draw in [Jitter::HIGHEST, dice.roll(), dice.roll(), dice.roll()] {
            let (attempts, reason) = live(&policy, || draw);
            let last = attempts.last().unwrap().since(NOW);
            assert!(last + Millis::from_secs(2) >= window, "the last attempt came after {last} of {window}");
            assert_eq!(reason, DeadReason::Expired);
        }
    }
}

#[test]
fn the_formulas_of_the_specification_hold_at_both_ends() {
    let check = |json: &str, n, previous, least: u64, most: u64| {
        let policy = policy(json);
        assert_eq!(policy.delay(n, Millis(previous), Jitter::LOWEST), Millis(least), "{json} n={n}");
        assert_eq!(policy.delay(n, Millis(previous), Jitter::HIGHEST), Millis(most), "{json} n={n}");
    };
    let full = r#"{"strategy":"exponential","base_ms":1000,"cap_ms":60000,"jitter":"full","floor_ms":100}"#;
    check(full, 1, 0, 100, 1_000);
    check(full, 4, 0, 100, 8_000);
    check(full, 40, 0, 100, 60_000);
    let equal = &full.replace("\"full\"", "\"equal\"");
    check(equal, 1, 0, 500, 1_000);
    check(equal, 7, 0, 30_000, 60_000);
    let decorrelated = &full.replace("\"full\"", "\"decorrelated\"");
    check(decorrelated, 1, 0, 1_000, 3_000);
    check(decorrelated, 2, 1_000, 1_000, 3_000);
    check(decorrelated, 9, 50_000, 1_000, 60_000);
    let none = &full.replace("\"full\"", "\"none\"");
    check(none, 3, 0, 4_000, 4_000);
    let fixed = r#"{"strategy":"fixed","base_ms":5000,"jitter":"none"}"#;
    check(fixed, 1, 0, 5_000, 5_000);
    check(fixed, u32::MAX, 0, 5_000, 5_000);
    let schedule = r#"{"strategy":"schedule","delays_ms":[1000,20000],"jitter":"equal"}"#;
    check(schedule, 1, 0, 1_000, 1_000);
    check(schedule, 2, 0, 10_000, 20_000);
    check(schedule, 99, 0, 10_000, 20_000);
}

#[test]
fn short_delays_are_meant_and_a_floor_is_only_for_long_ones() {
    for (json, floor) in [
        (r#"{"strategy":"fixed","base_ms":300}"#, 300),
        (r#"{"strategy":"exponential","base_ms":20,"cap_ms":100}"#, 20),
        (r#"{"strategy":"schedule","delays_ms":[5000, 50]}"#, 50),
        (r#"{"strategy":"fixed","base_ms":60000}"#, 1_000),
        (r#"{"strategy":"fixed","base_ms":300,"floor_ms":700}"#, 700),
    ] {
        assert_eq!(policy(json).floor, Millis(floor), "{json}");
    }
}

#[test]
fn a_floor_over_the_delay_is_the_delay() {
    let policy = policy(r#"{"strategy":"exponential","base_ms":100,"cap_ms":200,"floor_ms":5000}"#);
    assert_eq!(policy.delay(1, Millis::ZERO, Jitter::LOWEST), Millis(5_000));
    assert_eq!(policy.delay(9, Millis::ZERO, Jitter::HIGHEST), Millis(5_000));
}

#[test]
fn presets_are_what_the_specification_says() {
    let spec = |preset: &str| serde_json::to_value(policy(preset)).unwrap();
    assert_eq!(
        spec("\"standard\""),
        serde_json::json!({"strategy": "exponential", "base_ms": 30_000, "cap_ms": 3_600_000, "jitter": "full",
            "floor_ms": 1_000, "max_attempts": 200, "window_ms": 259_200_000})
    );
    assert_eq!(spec("\"brief\"")["window_ms"], 60_000);
    assert_eq!(spec("\"brief\"")["cap_ms"], 10_000);
    let patient = spec("\"patient\"");
    assert_eq!(patient["jitter"], "equal");
    assert_eq!(patient["window_ms"], 432_000_000);
    let minutes = [1, 2, 4, 8, 15, 30, 60, 120, 240, 480, 960, 1_440];
    assert_eq!(patient["delays_ms"], serde_json::json!(minutes.map(|m| m * 60_000)));
}

#[test]
fn the_patient_window_ends_before_its_attempts_do() {
    let policy = RetryPolicy::patient();
    let mut total = Millis::ZERO;
    for n in 1..policy.max_attempts() {
        total = total + policy.delay(n, Millis::ZERO, Jitter::LOWEST);
    }
    assert!(total > Millis::from_hours(5 * 24), "{total}");
}

#[test]
fn a_wrong_policy_is_refused_with_the_field_and_the_way_out() {
    for (json, says) in [
        (r#""eager""#, "there is no preset \"eager\""),
        (r#"{"strategy":"fixed","cap_ms":1000}"#, "cap_ms has no meaning with strategy \"fixed\""),
        (r#"{"strategy":"schedule"}"#, "needs delays_ms"),
        (r#"{"strategy":"schedule","delays_ms":[]}"#, "needs delays_ms"),
        (r#"{"strategy":"schedule","delays_ms":[0]}"#, "delays_ms must be between 10 and 2592000000, but is 0"),
        (r#"{"strategy":"exponential","base_ms":9000,"cap_ms":8000}"#, "cap_ms (8000) is smaller than base_ms (9000)"),
        (r#"{"strategy":"exponential","max_attempts":0}"#, "max_attempts must be between 1 and 1000, but is 0"),
        (r#"{"strategy":"exponential","window_ms":0}"#, "window_ms must be between"),
        (r#"{"strategy":"exponential","floor_ms":0}"#, "floor_ms must be between"),
        (r#"{"strategy":"fixed","jitter":"decorrelated"}"#, "needs strategy \"exponential\""),
        (r#"{"strategy":"fixed","bass_ms":1}"#, "unknown field `bass_ms`, expected one of"),
        (r#"{"base_ms":1000}"#, "missing field `strategy`"),
        ("7", "expected a preset's name or an object"),
    ] {
        assert!(fault(json).contains(says), "{json}: {}", fault(json));
    }
}

#[test]
fn a_time_to_live_replaces_the_window() {
    let policy = RetryPolicy::standard();
    assert_eq!(policy.give_up_at(NOW, None), NOW + Millis::from_hours(72));
    assert_eq!(policy.give_up_at(NOW, Some(Millis::from_secs(60))), NOW + Millis::from_secs(60));
    assert_eq!(policy.give_up_at(Timestamp::MAX, None), Timestamp::MAX);
}

/// Draws many delays and checks that each tenth of the range gets its tenth of the draws.
fn assert_uniform(kind: &str, least: u64, most: u64) {
    let policy = policy(&format!(
        r#"{{"strategy":"exponential","base_ms":10000,"cap_ms":10000,"floor_ms":10,"jitter":"{kind}"}}"#
    ));
    let mut dice = SeededDice::new(42);
    let mut tenths = [0u32; 10];
    for _ in 0..100_000 {
        let delay = policy.delay(1, Millis(4_000), dice.roll()).0;
        assert!((least..=most).contains(&delay), "{kind}: {delay}");
        tenths[usize::try_from((delay - least) * 10 / (most - least + 1)).unwrap()] += 1;
    }
    assert!(tenths.iter().all(|n| (9_500..10_500).contains(n)), "{kind}: {tenths:?}");
}

#[test]
fn full_and_equal_jitter_are_uniform_over_their_range() {
    assert_uniform("full", 10, 10_000);
    assert_uniform("equal", 5_000, 10_000);
}

#[test]
fn decorrelated_jitter_grows_and_stays_spread() {
    let policy =
        policy(r#"{"strategy":"exponential","base_ms":1000,"cap_ms":1000000,"jitter":"decorrelated","floor_ms":10}"#);
    let mut dice = SeededDice::new(1);
    let mut means = Vec::new();
    for n in 1..=6u32 {
        let mut sum = 0;
        for _ in 0..2_000 {
            let mut previous = Millis::ZERO;
            for retry in 1..=n {
                previous = policy.delay(retry, previous, dice.roll());
            }
            sum += previous.0;
        }
        means.push(sum / 2_000);
    }
    // Each mean is (base + 3 · previous mean) / 2; the first delay grows from the base.
    let mut expected = 2_000.0;
    for (n, mean) in means.iter().enumerate() {
        let ratio = *mean as f64 / expected;
        assert!((0.9..1.1).contains(&ratio), "retry {}: mean {mean}, expected {expected}", n + 1);
        expected = f64::midpoint(1_000.0, 3.0 * expected);
    }
}

fn any_spec() -> impl Generator<Value = PolicySpec> {
    let span = prop_oneof![Just(0), Just(1), 1..100_000u64, Just(u64::MAX), any::<u64>()].prop_map(Millis);
    let strategy = prop_oneof![
        Just(spec::StrategyName::Exponential),
        Just(spec::StrategyName::Fixed),
        Just(spec::StrategyName::Schedule)
    ];
    let jitter = prop_oneof![
        Just(JitterKind::Full),
        Just(JitterKind::Equal),
        Just(JitterKind::Decorrelated),
        Just(JitterKind::None)
    ];
    (
        strategy,
        proptest::option::of(span.clone()),
        proptest::option::of(span.clone()),
        proptest::option::of(proptest::collection::vec(span.clone(), 0..5)),
        proptest::option::of(jitter),
        proptest::option::of(span.clone()),
        proptest::option::of(any::<u32>()),
        proptest::option::of(span),
    )
        .prop_map(|(strategy, base_ms, cap_ms, delays_ms, jitter, floor_ms, max_attempts, window_ms)| {
            PolicySpec::Custom(spec::CustomPolicy {
                strategy,
                base_ms,
                cap_ms,
                delays_ms,
                jitter,
                floor_ms,
                max_attempts,
                window_ms,
            })
        })
}

/// A policy that the constructor would refuse as well: the arithmetic must hold even there.
fn any_policy() -> impl Generator<Value = RetryPolicy> {
    let span = prop_oneof![0..100_000u64, Just(u64::MAX), any::<u64>()].prop_map(Millis);
    let strategy = prop_oneof![
        (span.clone(), span.clone()).prop_map(|(base, cap)| Strategy::Exponential { base, cap }),
        span.clone().prop_map(|delay| Strategy::Fixed { delay }),
        proptest::collection::vec(span.clone(), 1..5).prop_map(|delays| Strategy::Schedule { delays }),
    ];
    let jitter = prop_oneof![
        Just(JitterKind::Full),
        Just(JitterKind::Equal),
        Just(JitterKind::Decorrelated),
        Just(JitterKind::None)
    ];
    (strategy, jitter, span.clone(), any::<u32>(), span).prop_map(|(strategy, jitter, floor, max_attempts, window)| {
        RetryPolicy { strategy, jitter, floor, max_attempts, window, ambiguous_max: AMBIGUOUS_MAX }
    })
}

fn any_attempt() -> impl Generator<Value = u32> {
    prop_oneof![0..40u32, Just(u32::MAX), any::<u32>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_policy_attempt_clock_or_draw_overflows_or_goes_back_in_time(
        policy in any_policy(), attempts in any_attempt(), ambiguous in any_attempt(), last in any::<u64>(),
        give_up_at in any::<i64>(), now in any::<i64>(), draw in any::<u64>(), status in 0..=999u16, wait in any::<Option<u64>>(),
        probe in any::<bool>(),
    ) {
        let hints = Hints { retry_after: wait.map(Millis), ..Hints::default() };
        let outcome = Outcome::from_status(status, hints, &StatusOverrides::default());
        let progress =
            Progress { attempts, ambiguous, last_delay: Millis(last), give_up_at: Timestamp(give_up_at) };
        let charge = if probe { Charge::Probe } else { Charge::Attempt };
        let now = Timestamp(now);
        if let Decision::RetryAt(at) = policy.next(&outcome, &progress, charge, now, Jitter(draw)) {
            prop_assert!(at >= now, "a retry in the past");
            prop_assert!(at == Timestamp::MAX || at >= now + policy.floor, "a retry sooner than the floor");
            prop_assert!(at < progress.give_up_at, "a retry after the window");
            prop_assert!(probe || attempts.saturating_add(1) < policy.max_attempts, "a retry over the budget");
            if let (Outcome::Failed { status, .. }, Some(wait)) = (outcome, wait)
                && status != 503
            {
                prop_assert!(at >= now + Millis(wait), "shorter than the receiver asked");
            }
        }
    }

    #[test]
    fn an_accepted_policy_never_spins_and_never_waits_longer_than_it_says(
        spec in any_spec(), n in any_attempt(), previous in any::<u64>(), draw in any::<u64>(),
    ) {
        let Ok(policy) = RetryPolicy::try_from(spec) else { return Ok(()) };
        let delay = policy.delay(n, Millis(previous), Jitter(draw));
        prop_assert!(delay >= spec::DELAY_MIN);
        prop_assert!(delay >= policy.floor);
        prop_assert!(delay <= policy.longest_delay().max(policy.floor));
        let written = serde_json::to_string(&policy).unwrap();
        prop_assert_eq!(serde_json::from_str::<RetryPolicy>(&written).unwrap(), policy);
    }

    #[test]
    fn every_delivery_ends_within_its_attempts(draws in proptest::collection::vec(any::<u64>(), 20)) {
        let policy = RetryPolicy { max_attempts: 16, ..RetryPolicy::standard() };
        let mut progress = Progress { give_up_at: NOW + Millis::from_hours(72), ..fresh() };
        let mut now = NOW;
        for draw in draws {
            match policy.next(&Outcome::TimedOut, &progress, Charge::Attempt, now, Jitter(draw)) {
                Decision::RetryAt(at) => {
                    progress.attempts += 1;
                    progress.last_delay = at.since(now);
                    now = at;
                }
                Decision::Dead(_) => return Ok(()),
                Decision::Delivered | Decision::Requeue => prop_assert!(false, "a timeout is neither"),
            }
        }
        prop_assert!(false, "still trying after {} attempts", progress.attempts);
    }
}
