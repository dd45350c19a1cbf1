//! Events that are there and cannot be read.

use super::*;

pub fn one_event_that_cannot_be_read_keeps_no_other_back(subject: &mut dyn Subject) {
    set_up(subject, &[accept(1, None), accept(2, None), accept(3, None)]);
    subject.damage(2);
    for _ in 0..2 {
        let found = ask(subject.store().events(vec![1, 2, 9, 3]));
        let expected = |n: u128| StoredEvent::Readable(Arc::new(event(&format!("event-{n}"), None, NOW)));
        assert_eq!((&found[0], &found[2], &found[3]), (&expected(1), &StoredEvent::Gone, &expected(3)));
        let StoredEvent::Unreadable(what) = &found[1] else { panic!("{found:?}") };
        assert_eq!(what.event_id, Some(event("event-2", None, NOW).id), "it names itself");
        assert_eq!(what.tenant_id, Some(TENANT));
        assert!(!what.why.is_empty());
        subject.restart();
    }
    let written = write(subject, vec![accept(2, None), accept(4, None)], NOW);
    assert_eq!(written[0], Written::Refused(Refusal::EventUnreadable), "there is nothing to compare it with");
    assert!(matches!(written[1], Written::Accepted { duplicate: false, .. }), "{written:?}");
}

pub fn one_that_was_set_aside_is_due_later_and_says_so(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, None), accept(2, None)]);
    let settlement = Settlement::set_aside(made[0].clone(), Ordering::Unordered, NOW);
    let aside = settlement.delivery.clone();
    assert!(aside.due_at > NOW && aside.unreadable == 1);
    let settled = Settled { settlement, attempt: None };
    assert_eq!(Tally::of(&settled), Tally::default(), "nothing was sent");
    assert_eq!(one(subject, Write::Settle(Arc::new(settled))), Written::Settled { available: vec![] });
    for _ in 0..2 {
        let history = ask(subject.store().delivery(Reach::All, aside.id)).expect("it is there");
        assert_eq!((history.summary.delivery, history.summary.status), (aside.clone(), DeliveryStatus::Queued));
        assert_eq!(history.attempts, []);
        assert_eq!(due(subject), [2, 1], "the other one comes first");
        subject.restart();
    }
    one(subject, settle(&aside, RETRY, BehindDead::Skip, NOW + Millis(1)));
    assert_eq!(read(subject, 1).unreadable, 0, "it could be read");
}
