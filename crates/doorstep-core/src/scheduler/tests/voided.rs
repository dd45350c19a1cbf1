//! Deliveries that turn out to have nothing to send.

use super::*;

impl Desk {
    fn void(&mut self, voided: &[Delivery]) -> Vec<Command> {
        self.tell(Input::Voided { delivery_ids: voided.iter().map(|delivery| delivery.id).collect() })
    }
}

#[test]
fn one_with_nothing_to_send_ends_at_once_and_the_next_one_goes() {
    let mut desk = Desk::new(one_slot());
    desk.adopt(plan(1, 1));
    let out = desk.offer(1, 3);
    let first = sent(&out).remove(0);
    let out = desk.void(std::slice::from_ref(&first));
    let [settlement] = settled(&out)[..] else { panic!("{out:?}") };
    assert_eq!(settlement.delivery, first, "it has cost nothing");
    assert_eq!((settlement.decision, settlement.outcome), (Decision::Dead(DeadReason::Abandoned), None));
    assert_eq!(settlement.note, Some("its payload was erased"));
    assert_eq!(sent(&out).len(), 1, "the lane does not rest");
    assert_eq!(desk.scheduler.wake_at(), None);
    assert_eq!(desk.void(&[first]), [], "it has left");
}

#[test]
fn its_end_lets_its_key_go_though_the_dead_hold_theirs() {
    for behind_dead in [BehindDead::Skip, BehindDead::Hold] {
        let mut desk = Desk::new(SchedulerLimits::default());
        desk.adopt(DestinationPlan { ordering: Ordering::ByKey { behind_dead }, ..plan(1, 1) });
        let mut delivery = desk.delivery(1);
        delivery.ordering = Some(OrderingSlot { key: "order-7".into(), sequence: 1 });
        desk.tell(Input::Available { deliveries: vec![delivery.clone()] });
        let out = desk.void(&[delivery]);
        assert!(settled(&out)[0].releases_key, "{behind_dead:?}");
    }
}

#[test]
fn what_a_person_has_ended_meanwhile_is_not_ended_again() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let before = sent(&desk.offer(1, 1)).remove(0);
    desk.tell(Input::Withdrawn { delivery: Box::new(before.clone()) });
    assert_eq!(desk.void(std::slice::from_ref(&before)), []);
    // And if the person has sent it again since, that life goes its own way.
    let before = sent(&desk.offer(1, 1)).remove(0);
    desk.tell(Input::Withdrawn { delivery: Box::new(before.clone()) });
    let mut again = before.clone();
    again.progress.give_up_at = again.progress.give_up_at + Millis(1);
    desk.tell(Input::Available { deliveries: vec![again.clone()] });
    let out = desk.void(&[before]);
    assert_eq!((settled(&out).len(), sent(&out)), (0, vec![again]));
}

#[test]
fn a_read_under_way_does_not_bring_it_back() {
    let mut desk = Desk::new(SchedulerLimits { in_flight_max: 4, window_max: 1, ..SchedulerLimits::default() });
    desk.adopt(plan(1, 1));
    let erased = sent(&desk.offer(1, 1)).remove(0);
    // Two that are due before it: the window reaches to the first of them only, and the store is read behind that.
    let earlier = |desk: &mut Desk| Delivery { due_at: desk.now - Millis::from_secs(1), ..desk.delivery(1) };
    let (first, second) = (earlier(&mut desk), earlier(&mut desk));
    let out = desk.tell(Input::Available { deliveries: vec![first.clone(), second.clone()] });
    let [(ticket, _, after, _)] = refills(&out)[..] else { panic!("{out:?}") };
    assert_eq!(after, Some(first.place()));
    desk.void(std::slice::from_ref(&erased));
    let mut out = desk.tell(Input::Refilled { ticket, deliveries: vec![second.clone(), erased], exhausted: true });
    out.extend(desk.answer(first.id, OK));
    assert_eq!(sent(&out), [second]);
}

#[test]
fn a_thousand_of_them_take_nothing_from_a_slow_pace() {
    let mut desk = Desk::new(SchedulerLimits { window_max: 2_000, ..SchedulerLimits::default() });
    let limits = GateLimits { rate: Rate::per_second(1), burst: 10, ..GateLimits::default() };
    desk.adopt(DestinationPlan { limits: Arc::new(limits), ..plan(1, 1) });
    let out = desk.offer(1, 1_000);
    let mut round = sent(&out);
    let mut n_ended = 0;
    desk.offer(1, 10);
    while n_ended < 1_000 {
        let (erased, live): (Vec<Delivery>, Vec<Delivery>) = round.into_iter().partition(|d| d.seq <= 1_001);
        assert!(!erased.is_empty(), "{n_ended} have ended, and {} live ones are on their way", live.len());
        let out = desk.void(&erased);
        n_ended += settled(&out).len();
        round = sent(&out);
    }
    assert_eq!(desk.scheduler.in_flight(), 10, "all that are left go at once, as if they had been alone");
}

#[test]
fn a_destination_that_was_dropped_goes_with_the_last_of_them() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let flying = sent(&desk.offer(1, 2));
    desk.tell(Input::Dropped { destination_id: DestinationId(1) });
    let out = desk.void(&flying);
    assert_eq!((settled(&out).len(), saved(&out).len()), (2, 1));
    assert!(desk.scheduler.gate(DestinationId(1)).is_none());
}
