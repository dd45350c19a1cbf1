//! How deliveries end, what their keys let go then, and how they are sent again.

use doorstep_core::delivery::{Ordering, Settlement};
use doorstep_core::store::Settled;

use super::*;

pub fn only_the_first_of_a_key_may_go_and_its_end_lets_the_next_one_go(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, Some("a")), accept(2, Some("a")), accept(3, Some("b")), accept(4, None)]);
    assert_eq!(ids(&made), [1, 3, 4]);
    assert_eq!(due(subject), [1, 3, 4]);
    let settled = |decision| {
        let first = read(subject, 1);
        ids(available(&one(subject, settle(&first, decision, BehindDead::Skip, NOW))))
    };
    assert_eq!(settled(RETRY), []);
    assert_eq!(settled(Decision::Delivered), [2]);
    assert_eq!(settled(Decision::Delivered), [], "settled once already");
    let second = read(subject, 2);
    assert_eq!(second.ordering.as_ref().map(|slot| slot.sequence), Some(2));
    assert_eq!(due(subject), [2, 3, 4]);
}

pub fn a_dead_delivery_that_holds_its_key_goes_first_when_it_is_sent_again(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, Some("a")), accept(2, Some("a"))]);
    assert_eq!(ids(available(&one(subject, settle(&made[0], DEAD, BehindDead::Hold, NOW)))), []);
    assert_eq!(due(subject), [], "the one behind it waits");
    let again = one(subject, accept(3, Some("a")));
    assert_eq!(available(&again), [], "so do later ones");
    assert_eq!(ids(available(&one(subject, revive(1)))), [1]);
    assert_eq!(due(subject), [1]);
    let delivered = settle(&read(subject, 1), Decision::Delivered, BehindDead::Hold, NOW);
    assert_eq!(ids(available(&one(subject, delivered))), [2]);
}

pub fn a_dead_delivery_that_holds_its_key_lets_go_when_it_is_abandoned(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, Some("a")), accept(2, Some("a"))]);
    one(subject, settle(&made[0], DEAD, BehindDead::Hold, NOW));
    let ended = one(subject, abandon(1));
    assert_eq!(ids(available(&ended)), [2]);
    assert_eq!(one(subject, abandon(1)), Written::Refused(Refusal::AlreadyEnded));
    let Some(DeliveryHistory { summary, .. }) = ask(subject.store().delivery(Reach::All, DeliveryId(1))) else {
        panic!()
    };
    assert_eq!(summary.status, DeliveryStatus::Dead(DeadReason::Abandoned));
    assert_eq!(summary.note.as_deref(), Some("enough of 1"));
}

pub fn one_that_was_skipped_goes_behind_the_others_when_it_is_sent_again(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, Some("a")), accept(2, Some("a")), accept(3, Some("a"))]);
    assert_eq!(ids(available(&one(subject, settle(&made[0], DEAD, BehindDead::Skip, NOW)))), [2]);
    assert_eq!(available(&one(subject, revive(1))), []);
    let delivered = |id| settle(&read(subject, id), Decision::Delivered, BehindDead::Skip, NOW);
    assert_eq!(ids(available(&one(subject, delivered(2)))), [3]);
    assert_eq!(ids(available(&one(subject, delivered(3)))), [1]);
    assert_eq!(read(subject, 1).ordering.map(|slot| slot.sequence), Some(1), "its number stays");
}

pub fn one_that_dies_in_the_middle_of_its_queue_holds_its_place_there(subject: &mut dyn Subject) {
    set_up(subject, &[accept(1, Some("a")), accept(2, Some("a")), accept(3, Some("a"))]);
    let delivered = |id| settle(&read(subject, id), Decision::Delivered, BehindDead::Hold, NOW);
    one(subject, settle(&read(subject, 2), DEAD, BehindDead::Hold, NOW));
    assert_eq!(available(&one(subject, delivered(1))), [], "it is the dead one's turn");
    assert_eq!(ids(available(&one(subject, revive(2)))), [2]);
    assert_eq!(ids(available(&one(subject, delivered(2)))), [3]);
}

pub fn what_is_said_of_an_earlier_life_does_not_change_the_present_one(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, None)]);
    let late = settle(&made[0], Decision::Delivered, BehindDead::Skip, NOW);
    one(subject, settle(&made[0], DEAD, BehindDead::Skip, NOW));
    one(subject, revive(1));
    let before = ask(subject.store().delivery(Reach::All, DeliveryId(1)));
    one(subject, late);
    assert_eq!(ask(subject.store().delivery(Reach::All, DeliveryId(1))), before);
    assert_eq!(due(subject), [1]);
}

/// The sweep of overdue deliveries may read one before its last answer is written.
pub fn one_that_runs_out_of_time_keeps_what_it_has_spent(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, None)]);
    one(subject, settle(&made[0], RETRY, BehindDead::Skip, NOW));
    let spent = read(subject, 1);
    assert_ne!(spent.progress, made[0].progress, "the copy is older than the row");
    let settlement = Settlement::expired(made[0].clone(), Ordering::Unordered, NOW);
    one(subject, Write::Settle(Settled { settlement, attempt: None }.into()));
    let Some(DeliveryHistory { summary, .. }) = ask(subject.store().delivery(Reach::All, DeliveryId(1))) else {
        panic!()
    };
    assert_eq!(summary.status, DeliveryStatus::Dead(DeadReason::Expired));
    assert_eq!(summary.delivery, spent);
}

pub fn what_has_ended_is_settled_no_more(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, None), accept(2, None)]);
    one(subject, settle(&made[0], DEAD, BehindDead::Skip, NOW));
    one(subject, settle(&made[1], Decision::Delivered, BehindDead::Skip, NOW));
    let all =
        || ask(subject.store().deliveries(Reach::All, DeliveryFilter::default(), Page { before_seq: None, limit: 9 }));
    let before = all();
    for decision in [RETRY, Decision::Requeue, Decision::Delivered, DEAD] {
        for delivery in &made {
            one(subject, settle(delivery, decision, BehindDead::Skip, NOW));
        }
    }
    assert_eq!(all(), before);
    assert_eq!(ask(subject.store().next_give_up_at()), None);
}

pub fn what_has_run_out_of_time_is_found(subject: &mut dyn Subject) {
    set_up(subject, &[]);
    assert_eq!(ask(subject.store().next_give_up_at()), None);
    let give_up = |id: u128, at: i64| {
        let mut delivery = new_delivery(id, DST);
        delivery.give_up_at = Timestamp(at);
        let event = event(&format!("e{id}"), Some("a"), NOW);
        Write::Accept(Box::new(NewEvent { event, key: None, deliveries: vec![delivery] }))
    };
    write(subject, vec![give_up(1, 50), give_up(2, 40), give_up(3, 50), give_up(4, 60)], NOW);
    let overdue = |at, limit| ids(&ask(subject.store().overdue(Timestamp(at), limit)));
    assert_eq!(ask(subject.store().next_give_up_at()), Some(Timestamp(40)));
    assert_eq!(overdue(39, 9), []);
    assert_eq!(overdue(50, 9), [2, 1, 3], "also those that wait behind others");
    assert_eq!(overdue(60, 2), [2, 1]);
}

pub fn only_the_dead_can_be_sent_again(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, None), accept(2, None), accept(3, None)]);
    assert_eq!(one(subject, revive(9)), Written::Refused(Refusal::NotFound));
    assert_eq!(one(subject, revive(1)), Written::Refused(Refusal::NotDead));
    one(subject, settle(&made[0], Decision::Delivered, BehindDead::Skip, NOW));
    assert_eq!(one(subject, revive(1)), Written::Refused(Refusal::NotDead));
    one(subject, settle(&made[1], DEAD, BehindDead::Skip, NOW));
    let later = NOW + Millis::from_hours(1);
    let revived = write(subject, vec![revive(2)], later);
    let again = &available(&revived[0])[0];
    assert_eq!((again.due_at, again.progress.attempts, again.requests), (later, 0, 1));
    assert_eq!(again.progress.give_up_at, NOW + WINDOW + WINDOW);
    one(subject, settle(&made[2], DEAD, BehindDead::Skip, NOW));
    one(subject, Write::RemoveDestination { destination_id: DST });
    assert_eq!(one(subject, revive(3)), Written::Refused(Refusal::NotFound), "there is nobody to send it to");
}

pub fn a_person_ends_what_has_not_ended(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, Some("a")), accept(2, Some("a")), accept(3, Some("a"))]);
    assert_eq!(one(subject, abandon(9)), Written::Refused(Refusal::NotFound));
    assert_eq!(available(&one(subject, abandon(2))), [], "it was not its turn");
    let ended = one(subject, abandon(1));
    let Written::Abandoned { ended, available } = ended else { panic!("{ended:?}") };
    assert_eq!((*ended, ids(&available)), (made[0].clone(), vec![3]));
    assert_eq!(one(subject, abandon(1)), Written::Refused(Refusal::AlreadyEnded));
    one(subject, settle(&read(subject, 3), Decision::Delivered, BehindDead::Skip, NOW));
    assert_eq!(one(subject, abandon(3)), Written::Refused(Refusal::AlreadyEnded));
}

pub fn one_with_nothing_to_send_ends_with_a_note_and_lets_its_key_go(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, Some("a")), accept(2, Some("a"))]);
    let ordering = Ordering::ByKey { behind_dead: BehindDead::Hold };
    let void = || {
        let settlement = Settlement::void(made[0].clone(), ordering, NOW);
        Write::Settle(Arc::new(Settled { settlement, attempt: None }))
    };
    assert_eq!(ids(available(&one(subject, void()))), [2]);
    let read = || ask(subject.store().delivery(Reach::All, DeliveryId(1))).expect("it is kept");
    let ended = read();
    assert_eq!(ended.summary.status, DeliveryStatus::Dead(DeadReason::Abandoned));
    assert_eq!(ended.summary.note.as_deref(), Some("its payload was erased"));
    assert_eq!((ended.summary.delivery.clone(), ended.attempts.len()), (made[0].clone(), 0), "it has cost nothing");
    assert_eq!(available(&one(subject, void())), [], "once");
    assert_eq!(read(), ended);
    assert_eq!(due(subject), [2]);
    one(subject, abandon(2));
    one(subject, revive(1));
    one(subject, void());
    assert_eq!(due(subject), [1], "a person has sent it again since");
}
