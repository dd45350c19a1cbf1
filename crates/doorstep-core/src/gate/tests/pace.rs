use super::*;

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
