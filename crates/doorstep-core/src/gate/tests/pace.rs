use super::*;

#[test]
fn the_configured_rate_is_kept_with_its_burst() {
    let mut bench = Bench::new();
    (bench.limits.rate, bench.limits.burst, bench.limits.concurrency) = (Rate::per_second(10), 5, 1_000);
    let mut permits = bench.admit_all();
    assert_eq!(permits.len(), 5);
    assert_eq!(bench.held(), Hold::until(Why::Pace, bench.now + Millis(100)));
    let mut sent = 0;
    let end = bench.now + Millis::from_secs(60);
    while bench.now < end {
        bench.wait_out();
        // Each is answered before the next goes: it is the rate that holds, and not the number at once.
        for permit in permits.drain(..) {
            bench.settle(permit, OK);
        }
        permits = bench.admit_all();
        sent += permits.len();
    }
    assert!((599..=601).contains(&sent), "{sent}");
}

#[test]
fn a_place_that_is_handed_back_can_be_taken_again_unless_a_later_one_is_taken() {
    let mut bench = Bench::new();
    (bench.limits.rate, bench.limits.burst) = (Rate::per_second(1), 1);
    let unused = bench.admit();
    bench.gate.hand_back(unused);
    let unused = bench.admit();
    bench.wait_out();
    let sent = bench.admit();
    bench.gate.hand_back(unused);
    assert_eq!(bench.held(), Hold::until(Why::Pace, bench.now + Millis::from_secs(1)), "never two at once");
    bench.settle(sent, OK);
    assert_eq!(bench.gate.in_flight(), 0);
    // A request whose fate is unknown may have gone out.
    bench.wait_out();
    let unknown = bench.admit();
    bench.gate.release(unknown);
    assert_eq!(bench.held().why, Why::Pace);
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
