//! What a gate has learned survives the loss of the process to within a minute, without a write for each answer.

use super::*;
use crate::scheduler::saves::{LEARNED_SAVED_AFTER, SAVED_AT_ONCE};

const FAILED: Outcome = Outcome::Failed { status: 503, wait: None };

fn refused(secs: u64) -> Outcome {
    Outcome::Throttled { wait: Some(Millis::from_secs(secs)) }
}

/// Sends and answers for so long, a request at a time, and says when the gate was saved, and as what.
fn run(desk: &mut Desk, outcome: Outcome, lasts: Millis) -> Vec<(Timestamp, GateState)> {
    let end = desk.now + lasts;
    let (mut saves, mut out) = (Vec::new(), desk.offer(1, 1));
    while desk.now < end {
        saves.extend(saved(&out).into_iter().map(|(_, state)| (desk.now, state)));
        out = match sent(&out).pop() {
            Some(delivery) => {
                let mut out = desk.answer(delivery.id, outcome);
                out.extend(desk.offer(1, 1));
                out
            }
            None => {
                desk.now = desk.scheduler.wake_at().expect("something is waited for").max(desk.now + Millis(1));
                desk.tell(Input::Woken)
            }
        };
    }
    saves
}

fn taught() -> Desk {
    let mut desk = Desk::new(one_slot());
    desk.adopt(plan(1, 1));
    let out = desk.offer(1, 1);
    let out = desk.answer(sent(&out)[0].id, refused(60));
    assert_eq!(saved(&out).len(), 1, "a throttle is saved at once");
    desk
}

fn learned(state: &GateState) -> Rate {
    state.pace.learned().expect("a learned pace")
}

#[test]
fn a_learned_pace_that_climbs_is_saved_every_half_minute_and_not_more_often() {
    let mut desk = taught();
    let began = desk.now;
    let saves = run(&mut desk, OK, Millis::from_mins(4));
    assert!((5..=7).contains(&saves.len()), "{} writes in four minutes", saves.len());
    assert!(saves[0].0.since(began) < Millis::from_mins(2), "half a minute after the throttle's end");
    for pair in saves.windows(2).skip(1) {
        let apart = pair[1].0.since(pair[0].0);
        assert!((LEARNED_SAVED_AFTER..Millis::from_mins(1)).contains(&apart), "{apart}");
        assert!(learned(&pair[1].1) > learned(&pair[0].1), "it climbs");
    }
}

#[test]
fn what_was_learned_last_is_saved_although_nothing_is_sent_any_more() {
    let mut desk = taught();
    let mut out = desk.offer(1, 10);
    let (mut last_save, mut answered_at) = (None, desk.now);
    loop {
        last_save = saved(&out).pop().map(|(_, state)| (desk.now, state)).or(last_save);
        out = match sent(&out).pop() {
            Some(delivery) => {
                answered_at = desk.now;
                desk.answer(delivery.id, OK)
            }
            None => {
                let Some(at) = desk.scheduler.wake_at() else { break };
                desk.now = at;
                desk.tell(Input::Woken)
            }
        };
    }
    let (saved_at, state) = last_save.unwrap();
    assert!(saved_at > answered_at && saved_at.since(answered_at) <= LEARNED_SAVED_AFTER);
    assert_eq!(&state, desk.scheduler.gate(DestinationId(1)).unwrap().state());
}

#[test]
fn requests_at_once_that_a_failing_receiver_takes_are_saved_too() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let out = desk.offer(1, 1);
    assert_eq!(saved(&desk.answer(sent(&out)[0].id, FAILED)), []);
    desk.now = desk.now + LEARNED_SAVED_AFTER;
    let [(_, state)] = &saved(&desk.tell(Input::Woken))[..] else { panic!("its gate is not saved") };
    assert_eq!(state.concurrency.limit(&GateLimits::default()), 9, "one fewer");
}

#[test]
fn a_gate_that_learns_nothing_wakes_nobody_and_is_not_saved() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    for _ in 0..100 {
        let out = desk.offer(1, 1);
        assert_eq!(saved(&desk.answer(sent(&out)[0].id, OK)), []);
    }
    assert_eq!(desk.scheduler.wake_at(), None);
}

#[test]
fn many_gates_that_learn_together_are_saved_a_page_at_a_time() {
    let mut desk = Desk::new(SchedulerLimits::default());
    let n = SAVED_AT_ONCE as u128 + 10;
    for destination in 0..n {
        desk.adopt(plan(destination, 1));
        let out = desk.offer(destination, 1);
        desk.answer(sent(&out)[0].id, FAILED);
    }
    // One leaves, and is saved by that: its place in the first page stays empty.
    let dropped = desk.tell(Input::Dropped { destination_id: DestinationId(0) });
    assert_eq!(saved(&dropped).len(), 1);
    desk.now = desk.now + LEARNED_SAVED_AFTER;
    for expected in [SAVED_AT_ONCE - 1, 10, 0] {
        let is_due = desk.scheduler.wake_at().is_some_and(|at| at <= desk.now);
        assert_eq!(is_due, expected > 0);
        assert_eq!(saved(&desk.tell(Input::Woken)).len(), expected);
    }
}
