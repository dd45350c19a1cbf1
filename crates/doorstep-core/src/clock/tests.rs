use proptest::prelude::*;

use super::*;

const DAY: i64 = 86_400_000;
const HOUR: i64 = 3_600_000;
/// 2026-11-15T12:00:00Z.
const NOON: i64 = 1_794_744_000_000;

fn reading(wall: i64, up: u64) -> Reading {
    Reading { wall: Timestamp(wall), up: Millis(up) }
}

fn boot(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn clock() -> Clock {
    Clock::new(&reading(NOON, 1_000), boot("a"), None)
}

#[test]
fn a_step_while_running_moves_what_is_shown_and_no_schedule() {
    for step in [3 * DAY, -3 * DAY, HOUR, -HOUR, 1_000, -NOON] {
        let mut clock = clock();
        let noted = clock.now();
        let change = clock.tell(&reading(NOON + 5_000 + step, 6_000));
        let (from, to) = (Timestamp(NOON + 5_000), Timestamp(NOON + 5_000 + step));
        assert_eq!(change, Some(ClockChange::Stepped { from, to }), "{step}");
        assert_eq!(clock.now(), noted + Millis(5_000), "{step}");
        assert_eq!(clock.timeline().shown(clock.now()), to);
        assert_eq!(clock.timeline().shown(noted), to - Millis(5_000), "five seconds ago is five seconds ago");
        assert_eq!(clock.tell(&reading(NOON + 6_000 + step, 7_000)), None, "it is told once");
    }
}

#[test]
fn a_small_difference_is_neither_shown_nor_told() {
    let mut clock = clock();
    let noted = clock.now();
    for (wall, shown) in [(NOON + 1_500, NOON), (NOON + 2_400, NOON), (NOON + 3_600, NOON + 600)] {
        let up = clock.up + Millis(1_000);
        let reading = Reading { wall: Timestamp(wall), up };
        let mut passed = clock.clone();
        let expected = passed.pass(&reading);
        let before = clock.clone();
        assert_eq!(clock.tell(&reading), None);
        assert_eq!(clock.timeline().shown(noted), Timestamp(shown));
        assert_eq!(expected, shown == NOON);
        assert_eq!(passed, if expected { clock.clone() } else { before }, "what is not expected is left to `tell`");
    }
}

/// What a restart makes of time: `(wall then → now, up then → now, same boot)` to how far schedule time moved, and what is told.
#[test]
fn across_a_restart_no_clock_expires_or_holds_anything() {
    let hour = PAUSE_MAX.0;
    let stepped =
        |by: i64, real: i64| Some(ClockChange::Stepped { from: Timestamp(NOON + real), to: Timestamp(NOON + by) });
    let paused = |seemed: i64| Some(ClockChange::Paused { seemed: Millis(seemed as u64), counted: PAUSE_MAX });
    let back = |by: i64| Some(ClockChange::WentBack { from: Timestamp(NOON), to: Timestamp(NOON + by) });
    let cases = [
        // The machine ran on: its own clock says how long it was, whatever the wall clock shows.
        (true, 5_000, 5_000, 5_000, None),
        (true, -HOUR, 5_000, 5_000, stepped(-HOUR, 5_000)),
        (true, 73 * HOUR, 5_000, 5_000, stepped(73 * HOUR, 5_000)),
        (true, 100 * DAY, 5_000, 5_000, stepped(100 * DAY, 5_000)),
        (true, 30 * 60_000, 5_000, 5_000, stepped(30 * 60_000, 5_000)),
        (true, 73 * HOUR, 73 * HOUR, hour, paused(73 * HOUR)),
        // It was started anew: only the wall clock can say.
        (false, 40_000, 9_000, 40_000, None),
        (false, HOUR, 9_000, hour, None),
        (false, 73 * HOUR, 9_000, hour, paused(73 * HOUR)),
        (false, 100 * DAY, 9_000, hour, paused(100 * DAY)),
        (false, -HOUR, 9_000, 0, back(-HOUR)),
        (false, -NOON, 9_000, 0, back(-NOON)),
        (false, -300, 9_000, 0, None),
    ];
    for (same_boot, wall_gap, up_gap, moved, told) in cases {
        let clock = clock();
        let record = clock.record(Timestamp(NOON));
        let up = if same_boot { 1_000 + up_gap as u64 } else { up_gap as u64 };
        let now = reading(NOON + wall_gap, up);
        let (resumed, change) = Clock::resume(record, &now, boot(if same_boot { "a" } else { "b" }), None);
        let case = format!("same boot {same_boot}, wall {wall_gap}, up {up_gap}");
        assert_eq!((resumed.now(), change), (Timestamp(NOON) + Millis(moved), told), "{case}");
        assert!(is_near(resumed.timeline().shown(resumed.now()), now.wall), "{case}");
        let before = resumed.timeline().shown(Timestamp(NOON) - Millis(1));
        let shift = if matches!(told, Some(ClockChange::Stepped { .. })) { wall_gap - up_gap } else { 0 };
        assert_eq!(before, Timestamp(NOON - 1 + shift), "{case}: what was noted before");
    }
}

#[test]
fn a_start_before_the_clock_was_set_is_mended_when_it_is() {
    let record = clock().record(Timestamp(NOON));
    let (mut clock, change) = Clock::resume(record, &reading(20_000, 20_000), boot("b"), None);
    assert!(matches!(change, Some(ClockChange::WentBack { .. })));
    let noted = clock.now();
    clock.tell(&reading(NOON + 180_000, 30_000));
    assert_eq!(clock.now(), noted + Millis(10_000));
    assert_eq!(clock.timeline().shown(noted), Timestamp(NOON + 170_000));
    assert_eq!(
        clock.timeline().shown(Timestamp(NOON - 5)),
        Timestamp(NOON - 5),
        "what was noted before stays as it was"
    );
}

#[test]
fn a_suspended_machine_counts_as_one_that_was_off() {
    let mut clock = clock();
    assert_eq!(clock.tell(&reading(NOON + 10 * 60_000, 1_000 + 10 * 60_000)), None);
    assert_eq!(clock.now(), Timestamp(NOON + 10 * 60_000));
    let change = clock.tell(&reading(NOON + 3 * DAY, 1_000 + 3 * DAY as u64));
    let seemed = Millis(3 * DAY as u64 - 600_000);
    assert_eq!(change, Some(ClockChange::Paused { seemed, counted: PAUSE_MAX }));
    assert_eq!(clock.now(), Timestamp(NOON + 10 * 60_000) + PAUSE_MAX);
    assert_eq!(clock.timeline().shown(Timestamp(NOON)), Timestamp(NOON), "what was noted before stays as it was");
    assert_eq!(clock.timeline().shown(clock.now()), Timestamp(NOON + 3 * DAY));
}

#[test]
fn schedule_time_never_falls_behind_what_the_store_knows() {
    let newest = Some(Timestamp(NOON + 9_000));
    assert_eq!(Clock::new(&reading(NOON, 0), None, newest).now(), Timestamp(NOON + 9_000));
    let (resumed, _) = Clock::resume(clock().record(Timestamp(NOON)), &reading(NOON - HOUR, 5), boot("b"), newest);
    assert_eq!(resumed.now(), Timestamp(NOON + 9_000));
    assert_eq!(resumed.timeline().shown(resumed.now()), Timestamp(NOON - HOUR));
}

#[derive(Clone, Debug)]
enum Happening {
    /// Time passes, and the wall clock with it.
    Passes(u64),
    /// The wall clock is set.
    Set(i64),
    /// The process is started again while the machine runs on.
    Restart(u64),
    /// The machine is started anew; what it needed for that.
    Reboot(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    let step = prop_oneof![-600i64..600, -4 * DAY..4 * DAY, -60 * 365 * DAY..60 * 365 * DAY];
    prop_oneof![
        4 => (0u64..100_000).prop_map(Happening::Passes),
        1 => (0u64..4 * DAY as u64).prop_map(Happening::Passes),
        2 => step.prop_map(Happening::Set),
        1 => (0u64..3 * HOUR as u64).prop_map(Happening::Restart),
        1 => (0u64..3 * HOUR as u64).prop_map(Happening::Reboot),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_the_clocks_do_schedules_pass_evenly_and_times_shown_are_the_wall_clocks(
        happenings in prop::collection::vec(happening(), 1..60),
    ) {
        let (mut wall, mut up, mut boots) = (NOON, 1_000u64, 0);
        let mut clock = Clock::new(&reading(wall, up), boot("0"), None);
        for happening in happenings {
            let (before, record) = (clock.now(), clock.record(Timestamp(wall)));
            // The least and the most that schedule time may move: how long it really was, where anything could know.
            let (least, most) = match happening {
                Happening::Set(by) => {
                    wall += by;
                    clock.tell(&reading(wall, up));
                    (0, 0)
                }
                Happening::Passes(ms) => {
                    (wall, up) = (wall + ms as i64, up + ms);
                    clock.tell(&reading(wall, up));
                    (ms, ms)
                }
                Happening::Restart(ms) => {
                    (wall, up) = (wall + ms as i64, up + ms);
                    clock = Clock::resume(record, &reading(wall, up), boot(&boots.to_string()), None).0;
                    (ms, ms)
                }
                Happening::Reboot(ms) => {
                    boots += 1;
                    (wall, up) = (wall + ms as i64, ms / 2);
                    clock = Clock::resume(record, &reading(wall, up), boot(&boots.to_string()), None).0;
                    (ms, ms)
                }
            };
            let moved = clock.now().since(before).0;
            prop_assert!(before <= clock.now());
            prop_assert_eq!((moved.min(PAUSE_MAX.0), moved), (least.min(PAUSE_MAX.0), most.min(PAUSE_MAX.0)));
            let shown = clock.timeline().shown(clock.now());
            prop_assert!(distance(shown, Timestamp(wall)) <= Millis::from_secs(1), "shown {shown:?} at {wall}");
            prop_assert!(distance(clock.timeline().kept(shown), clock.now()) == Millis::ZERO);
            // What lies ahead is as far ahead on the wall as it is on the schedule: a wait is not shortened.
            let due = clock.now() + Millis(90_000);
            prop_assert_eq!(clock.timeline().shown(due), shown + Millis(90_000));
        }
    }

    #[test]
    fn no_reading_panics_or_goes_back(readings in prop::collection::vec((any::<i64>(), any::<u64>()), 2..20)) {
        let mut clock = Clock::new(&reading(readings[0].0, readings[0].1), None, None);
        for (wall, up) in &readings[1..] {
            let before = clock.now();
            clock.tell(&reading(*wall, *up));
            prop_assert!(before <= clock.now());
            let record = clock.record(Timestamp(*wall));
            let (resumed, _) = Clock::resume(record, &reading(readings[0].0, *up), boot("b"), None);
            prop_assert!(before <= resumed.now());
        }
    }
}
