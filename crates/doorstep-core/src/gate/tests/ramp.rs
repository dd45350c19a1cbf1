//! What a receiver meets when it comes back (G8).

use super::*;

const HOURS: Millis = Millis::from_hours(72);

/// Requests in each second since the receiver came back, with `per_second` new deliveries all the time, for as long as something waits.
struct Drain {
    seconds: Vec<u32>,
    /// When nothing waited any more.
    drained_after: Millis,
}

impl Bench {
    /// Nothing is sent for so long, but for probes, while deliveries keep arriving. Then a probe comes through.
    fn outage(&mut self, lasts: Millis, per_second: u64) {
        self.trip();
        let began = self.now;
        while self.now.since(began) < lasts {
            self.gate.arrived(per_second, self.now);
            self.pass(Millis::from_secs(1));
        }
        self.gate.force_probe(self.now);
        assert_eq!(self.send(OK), [GateChange::Recovered]);
        self.show_queue(64, HOURS);
    }

    fn drain(&mut self, waiting: u64, per_second: u64) -> Drain {
        let began = self.now;
        let (mut sent, mut arrived, mut seconds) = (0, waiting, Vec::new());
        loop {
            let elapsed = self.now.since(began);
            let due = waiting + per_second * elapsed.0 / 1_000;
            self.gate.arrived(due - arrived, self.now);
            arrived = due;
            if sent >= arrived {
                return Drain { seconds, drained_after: elapsed };
            }
            self.show_queue(64, HOURS);
            match self.gate.hold(&self.limits, self.now) {
                Some(hold) => self.now = hold.until.expect("a hold with a time"),
                None => {
                    self.send(OK);
                    let second = usize::try_from(elapsed.0 / 1_000).unwrap();
                    seconds.resize(second + 1, 0);
                    seconds[second] += 1;
                    sent += 1;
                }
            }
            assert!(elapsed < Millis::from_hours(12), "{} of {arrived} after {elapsed}", sent);
        }
    }

    fn target(&self) -> f64 {
        self.gate.state().pace.recovering(self.now).expect("on the ramp").target.as_per_second()
    }
}

#[test]
fn a_backlog_drains_in_about_the_time_in_which_it_gathered_and_within_twice_the_arrival_rate() {
    for (per_second, minutes) in [(1, 5), (10, 2), (20, 1), (20, 30), (100, 10), (400, 60)] {
        let mut bench = Bench::new();
        let lasts = Millis::from_mins(minutes);
        bench.outage(lasts, per_second);
        let drain = bench.drain(per_second * minutes * 60, per_second);
        let peak = drain.seconds.iter().copied().max().unwrap();
        let what = format!("{per_second}/s, {lasts}: peak {peak}, {}", drain.drained_after);
        assert!(u64::from(peak) <= (2 * per_second).max(20), "{what}");
        assert!(drain.drained_after <= Millis(lasts.0 * 5 / 4) + Millis::from_mins(1), "{what}");
        // The climb takes less than a minute; the last second is not a whole one.
        let (_, whole) = drain.seconds.split_last().unwrap();
        let slow = whole.iter().skip(55).any(|n| u64::from(*n) * 2 < 3 * per_second);
        assert!(!slow, "{what}: {:?}", drain.seconds);
    }
}

#[test]
fn the_ramp_starts_at_one_request_a_second_and_climbs_faster_after_a_short_outage() {
    let seconds = |lasts: Millis| {
        let mut bench = Bench::new();
        bench.outage(lasts, 20);
        bench.drain(20 * lasts.0 / 1_000, 20).seconds
    };
    let (short, long) = (seconds(Millis::from_secs(40)), seconds(Millis::from_mins(10)));
    assert!(short[0] <= 2 && long[0] <= 2, "{short:?} {long:?}");
    let reach = |seconds: &[u32]| seconds.iter().position(|n| *n >= 30).unwrap();
    assert!(reach(&short) <= 12, "{short:?}");
    assert!((20..=35).contains(&reach(&long)), "{long:?}");
}

#[test]
fn what_gives_up_soon_is_tried_at_once_but_not_above_the_peak() {
    let sent_in = |n: usize, left: Millis| {
        let mut bench = Bench::new();
        bench.outage(Millis::from_secs(40), 0);
        let (gives_up_at, mut sent) = (bench.now + left, 0);
        while bench.now < gives_up_at && sent < n {
            bench.show_queue(n - sent, gives_up_at.since(bench.now));
            match bench.gate.hold(&bench.limits, bench.now) {
                Some(hold) => bench.now = hold.until.unwrap(),
                None => {
                    bench.send(OK);
                    sent += 1;
                }
            }
        }
        sent
    };
    assert!((100..=121).contains(&sent_in(1_000, Millis::from_secs(6))), "{}", sent_in(1_000, Millis::from_secs(6)));
    assert_eq!(sent_in(90, Millis::from_secs(6)), 90);
    assert_eq!(sent_in(10, Millis::from_secs(6)), 10);
}

#[test]
fn the_target_follows_what_arrives_and_does_not_fall_with_it() {
    let mut bench = Bench::new();
    bench.outage(Millis::from_mins(2), 10);
    assert!((18.0..=20.0).contains(&bench.target()), "{}", bench.target());
    let began = bench.now;
    let mut n = 0;
    while bench.now.since(began) < Millis::from_mins(6) {
        bench.send_when_allowed(OK);
        let due = 40 * bench.now.since(began).0 / 1_000;
        bench.gate.arrived(due - n, bench.now);
        n = due;
    }
    let target = bench.target();
    assert!((60.0..=80.0).contains(&target), "{target}");
    for _ in 0..5_000 {
        bench.send_when_allowed(OK);
    }
    assert!(bench.target() >= target, "what has gathered still has to go");
}

#[test]
fn the_ramp_is_over_when_nothing_has_waited_for_a_while() {
    let mut bench = Bench::new();
    bench.outage(Millis::from_mins(1), 1);
    assert_eq!(bench.gate.status(bench.now), GateStatus::Recovering);
    for _ in 0..60 {
        bench.send_when_allowed(OK);
    }
    assert_eq!(bench.gate.status(bench.now), GateStatus::Recovering);
    let drained = bench.now;
    while bench.now.since(drained) < Millis::from_secs(29) {
        bench.pass(Millis::from_secs(1));
        bench.send(OK);
        assert!(bench.gate.wants_to_see(), "{}", bench.now.since(drained));
        let waits = bench.now.since(drained) < Millis::from_secs(5);
        assert_eq!(bench.gate.status(bench.now) == GateStatus::Recovering, waits, "{}", bench.now.since(drained));
    }
    bench.pass(Millis::from_secs(1));
    bench.send(OK);
    assert_eq!(bench.gate.state().pace.rate(&bench.limits), bench.limits.rate);
}

#[test]
fn the_peak_holds_for_as_long_as_a_long_backlog_takes() {
    let mut bench = Bench::new();
    bench.outage(Millis::from_hours(2), 20);
    let drain = bench.drain(20 * 7_200, 20);
    assert!(drain.drained_after > Millis::from_hours(2), "{}", drain.drained_after);
    assert!(drain.seconds.iter().all(|n| *n <= 40), "{:?}", drain.seconds.iter().max());
}

#[test]
fn a_probe_that_fails_does_not_lower_the_next_ramp_and_a_fall_does_so_once() {
    let mut bench = Bench::new();
    bench.outage(Millis::from_mins(1), 20);
    let before = bench.target();
    for _ in 0..10 {
        bench.send_when_allowed(DOWN);
    }
    assert_eq!(bench.gate.status(bench.now), GateStatus::Failing);
    for _ in 0..5 {
        bench.wait_out();
        bench.send(DOWN);
    }
    bench.wait_out();
    assert_eq!(bench.send(OK), [GateChange::Recovered]);
    bench.show_queue(64, HOURS);
    assert!((bench.target() - before / 2.0).abs() < 0.01, "{} after {before}", bench.target());
    // It stays well, and is trusted again.
    let began = bench.now;
    while bench.target() < before {
        bench.gate.arrived(20, bench.now);
        bench.send_when_allowed(OK);
        assert!(bench.now.since(began) < Millis::from_mins(4), "still {}", bench.target());
    }
    assert!(bench.now.since(began) >= Millis::from_mins(3), "{}", bench.now.since(began));
}

#[test]
fn a_pause_and_a_maintenance_count_what_arrives_too() {
    let mut paused = Bench::new();
    paused.gate.pause(paused.now);
    paused.gate.arrived(3_000, paused.now);
    paused.pass(Millis::from_secs(100));
    paused.gate.resume(&paused.limits, paused.now);
    assert_eq!(paused.gate.status(paused.now), GateStatus::Active, "nothing waits, as far as it has seen");
    paused.show_queue(64, HOURS);
    assert!((56.0..=60.0).contains(&paused.target()), "{}", paused.target());

    let mut maintained = Bench::new();
    maintained.send(Outcome::Failed { status: 503, wait: Some(Millis::from_secs(100)) });
    maintained.gate.arrived(3_000, maintained.now);
    assert_eq!(maintained.gate.status(maintained.now), GateStatus::Throttled);
    maintained.wait_out();
    maintained.show_queue(64, HOURS);
    assert_eq!(maintained.gate.status(maintained.now), GateStatus::Recovering);
    assert!((56.0..=60.0).contains(&maintained.target()), "{}", maintained.target());
}

#[test]
fn what_arrived_during_an_outage_survives_a_restart() {
    let mut bench = Bench::new();
    bench.trip();
    bench.gate.arrived(3_000, bench.now);
    bench.pass(Millis::from_secs(100));
    let stored = serde_json::to_vec(bench.gate.state()).unwrap();
    bench.gate = Gate::restore(serde_json::from_slice(&stored).unwrap());
    assert_eq!(bench.send(OK), [GateChange::Recovered]);
    bench.show_queue(64, HOURS);
    assert!((56.0..=60.0).contains(&bench.target()), "{}", bench.target());
}

#[test]
fn a_ramp_that_an_earlier_version_stored_goes_on() {
    let mut state = serde_json::to_value(GateState::default()).unwrap();
    state["pace"]["recovery"] = serde_json::json!({
        "ramp": {"rate": 2_000_000, "target": 5_000_000, "target_until": T0.0 + 600_000},
        "usual": null, "slice_began_at": null, "slice_successes": 0,
    });
    let mut bench = Bench::new();
    bench.gate = Gate::restore(serde_json::from_value(state).unwrap());
    for _ in 0..200 {
        bench.send_when_allowed(OK);
    }
    assert!((17.0..=20.0).contains(&bench.target()), "{}", bench.target());
    let since = bench.gate.state().pace.recovering(bench.now).unwrap().since;
    assert_eq!(since, None, "nobody has written it down");
}
