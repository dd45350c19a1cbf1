//! Destinations whose receivers have to agree first.

use super::*;

fn awaiting(destination: u128) -> DestinationPlan {
    DestinationPlan { awaits_consent: true, ..plan(destination, 1) }
}

#[test]
fn nothing_goes_before_the_receiver_has_agreed_whatever_people_do() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(awaiting(1));
    assert_eq!(sent(&desk.offer(1, 2)), []);
    for hand in [Hand::Pause, Hand::Resume, Hand::Probe, Hand::ClearThrottle { forget_learned: true }] {
        let out = desk.tell(Input::Handled { destination_id: DestinationId(1), hand });
        assert_eq!(sent(&out), [], "{hand:?}");
    }
    let out = desk.tell(Input::Changed { plan: Box::new(plan(1, 1)) });
    assert_eq!(sent(&out).len(), 1, "after the ramp of a pause that was resumed, one at a time");
    desk.tell(Input::Changed { plan: Box::new(awaiting(1)) });
    assert_eq!(sent(&desk.answer(sent(&out)[0].id, OK)), [], "what was on its way is settled, and no more goes");
}

#[test]
fn who_has_not_agreed_takes_no_room_at_a_host_and_none_of_the_slots() {
    let limits = SchedulerLimits { per_host_max: Some(1), in_flight_max: 1, ..SchedulerLimits::default() };
    let mut desk = Desk::new(limits);
    desk.adopt(awaiting(1));
    desk.adopt(plan(2, 1));
    desk.offer(1, 3);
    let out = desk.offer(2, 1);
    assert_eq!(sent(&out).len(), 1);
    desk.answer(sent(&out)[0].id, OK);
    assert_eq!(sent(&desk.offer(2, 1)).len(), 1, "the room is passed on");
}

#[test]
fn a_waiting_delivery_says_so_and_its_time_runs() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(awaiting(1));
    let waiting = desk.delivery(1);
    desk.tell(Input::Available { deliveries: vec![waiting.clone()] });
    assert_eq!(desk.scheduler.hold(&waiting, desk.now), Some(Hold::for_event(Why::Consent)));
    desk.now = waiting.progress.give_up_at;
    let out = desk.tell(Input::Overdue { deliveries: vec![waiting] });
    assert_eq!(settled(&out)[0].decision, Decision::Dead(DeadReason::Expired));
}
