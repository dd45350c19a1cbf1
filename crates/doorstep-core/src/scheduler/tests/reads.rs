//! What a lane reads of the store, and when.

use super::*;

#[test]
fn a_lane_keeps_a_bounded_window_and_reads_on_where_it_left() {
    let limits = SchedulerLimits { in_flight_max: 1, window_max: 4, ..SchedulerLimits::default() };
    let mut desk = Desk::new(limits);
    desk.adopt(plan(1, 1));
    let backlog: Vec<Delivery> = (0..10).map(|_| desk.delivery(1)).collect();
    let out = desk.tell(Input::Available { deliveries: backlog.clone() });
    assert_eq!(refills(&out), []);
    let mut seen = vec![sent(&out)[0].seq];
    let mut out = desk.answer(backlog[0].id, OK);
    while seen.len() < 10 {
        for (ticket, track, after, limit) in refills(&out) {
            assert_eq!(track, Track::First);
            let rest: Vec<_> = backlog.iter().filter(|d| Some(d.place()) > after).take(limit).cloned().collect();
            let exhausted = rest.len() < limit;
            out.extend(desk.tell(Input::Refilled { ticket, deliveries: rest, exhausted }));
        }
        let delivery = sent(&out).remove(0);
        seen.push(delivery.seq);
        out = desk.answer(delivery.id, OK);
    }
    assert_eq!(seen, backlog.iter().map(|d| d.seq).collect::<Vec<_>>());
}

/// A lane of one slot and a window of two, whose store is being read behind its first two deliveries.
fn lane_being_read() -> (Desk, Ticket, Vec<Delivery>) {
    let mut desk = Desk::new(SchedulerLimits { in_flight_max: 1, window_max: 2, ..SchedulerLimits::default() });
    desk.adopt(plan(1, 1));
    let deliveries: Vec<Delivery> = (0..6).map(|_| desk.delivery(1)).collect();
    let out = desk.tell(Input::Available { deliveries: deliveries.clone() });
    let [(ticket, _, after, _)] = refills(&out)[..] else { panic!("{out:?}") };
    assert_eq!(after, Some(deliveries[1].place()));
    desk.answer(deliveries[0].id, OK);
    (desk, ticket, deliveries)
}

#[test]
fn what_arrives_during_a_read_is_not_lost_behind_it() {
    let (mut desk, ticket, deliveries) = lane_being_read();
    // The read was made before this one was committed, and finds one that is due long after it.
    let arrives = desk.delivery(1);
    let mut late = desk.delivery(1);
    late.due_at = desk.now + Millis::from_hours(1);
    desk.tell(Input::Available { deliveries: vec![arrives.clone()] });
    let mut out = desk.tell(Input::Refilled { ticket, deliveries: vec![deliveries[2].clone(), late], exhausted: true });
    let mut last = deliveries[1].id;
    for _ in 0..3 {
        out.extend(desk.answer(last, OK));
        match sent(&out).pop() {
            Some(delivery) => last = delivery.id,
            None => break,
        }
        if let Some((_, _, after, _)) = refills(&out).pop() {
            assert!(after < Some(arrives.place()), "read past a delivery that nobody has seen");
            return;
        }
    }
    panic!("never read again: {out:?}");
}

#[test]
fn a_read_does_not_bring_back_what_has_ended_meanwhile() {
    let (mut desk, ticket, mut deliveries) = lane_being_read();
    // The third one runs out of time while the read that found it is on its way.
    desk.now = desk.now + Millis(1);
    deliveries[2].progress.give_up_at = desk.now;
    let out = desk.tell(Input::Overdue { deliveries: vec![deliveries[2].clone()] });
    assert_eq!(settled(&out)[0].decision, Decision::Dead(DeadReason::Expired));
    desk.tell(Input::Refilled { ticket, deliveries: deliveries[2..4].to_vec(), exhausted: false });
    let out = desk.answer(deliveries[1].id, OK);
    assert_eq!(settled(&out).len(), 1, "the third one does not end again");
    assert_eq!(sent(&out)[0].id, deliveries[3].id);
}

#[test]
fn a_store_that_cannot_be_read_is_asked_again_later() {
    let mut desk = Desk::new(SchedulerLimits::default());
    let out = desk.tell(Input::Adopted { plan: Box::new(plan(1, 1)), gate: Box::default(), backlog: true });
    let [(first, Track::First, None, 64), (second, Track::Retry, None, 64)] = refills(&out)[..] else {
        panic!("{out:?}")
    };
    assert_eq!(desk.tell(Input::RefillFailed { ticket: first }), []);
    let out = desk.tell(Input::Refilled { ticket: second, deliveries: vec![], exhausted: true });
    assert_eq!(out, [], "not at once");
    let mut desk_2 = Desk::new(SchedulerLimits::default());
    desk_2.tell(Input::Adopted { plan: Box::new(plan(1, 1)), gate: Box::default(), backlog: true });
    desk_2.tell(Input::RefillFailed { ticket: first });
    desk_2.tell(Input::RefillFailed { ticket: second });
    assert_eq!(desk_2.scheduler.wake_at(), Some(T0 + RESTS_FOR));
    desk_2.now = T0 + RESTS_FOR;
    assert_eq!(refills(&desk_2.tell(Input::Woken)).len(), 2);
}

#[test]
fn reads_at_once_are_bounded() {
    let mut desk = Desk::new(SchedulerLimits { refills_max: 3, ..SchedulerLimits::default() });
    let mut asked = Vec::new();
    for destination in 0..100 {
        let plan = Box::new(plan(destination, 1));
        asked.extend(refills(&desk.tell(Input::Adopted { plan, gate: Box::default(), backlog: true })));
    }
    assert_eq!(asked.len(), 3);
    let mut answered = 0;
    while let Some((ticket, ..)) = asked.pop() {
        answered += 1;
        asked.extend(refills(&desk.tell(Input::Refilled { ticket, deliveries: vec![], exhausted: true })));
        assert!(asked.len() <= 3);
    }
    assert_eq!(answered, 200);
}

#[test]
fn a_read_that_fails_for_a_destination_on_its_way_out_leaves_no_timer_behind() {
    let mut desk = Desk::new(SchedulerLimits { in_flight_max: 1, window_max: 2, ..SchedulerLimits::default() });
    desk.adopt(plan(1, 1));
    let out = desk.offer(1, 6);
    let [(ticket, ..)] = refills(&out)[..] else { panic!("{out:?}") };
    desk.tell(Input::Dropped { destination_id: DestinationId(1) });
    desk.tell(Input::RefillFailed { ticket });
    desk.answer(sent(&out)[0].id, OK);
    assert_eq!(desk.scheduler.wake_at(), None, "nobody is left to wake");
}

/// Seed 841554 of the simulator.
#[test]
fn a_destination_that_rested_when_it_was_given_up_waits_for_no_time() {
    let mut desk = Desk::new(SchedulerLimits::default());
    let out = desk.tell(Input::Adopted { plan: Box::new(plan(1, 1)), gate: Box::default(), backlog: true });
    let (ticket, ..) = refills(&out)[0];
    let (first, waits) = (desk.delivery(1), desk.delivery(1));
    let out = desk.tell(Input::Refilled { ticket, deliveries: vec![first], exhausted: false });
    assert_eq!(sent(&out).len(), 1, "it stays until that is back");
    let (ticket, ..) = refills(&out)[0];
    desk.tell(Input::RefillFailed { ticket });
    assert_eq!(desk.scheduler.hold(&waits, desk.now), Some(Hold::until(Why::Capacity, T0 + RESTS_FOR)));
    desk.tell(Input::Dropped { destination_id: DestinationId(1) });
    assert_eq!(desk.scheduler.hold(&waits, desk.now), Some(Hold::for_event(Why::Capacity)));
}
