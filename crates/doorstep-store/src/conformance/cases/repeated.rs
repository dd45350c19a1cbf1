//! The keys of producers, by which an event is known when it comes again.

use doorstep_core::event::KeyDigest;

use super::*;

pub fn a_producers_key_belongs_to_one_event_of_a_tenant(subject: &mut dyn Subject) {
    let key = KeyDigest(u128::MAX - 7);
    let with = |event, key| Write::Accept(Box::new(NewEvent { event, key, deliveries: vec![] }));
    let of = |id: &str| event(id, None, NOW);
    let named = || Event { id: key.event_id(), ..of("x") };
    let is_new = |written| matches!(written, Written::Accepted { duplicate: false, .. });
    let is_known = |written| matches!(written, Written::Accepted { duplicate: true, .. });
    assert!(is_new(one(subject, with(of("a"), Some(key)))));
    for _ in 0..2 {
        assert!(is_known(one(subject, with(of("a"), Some(key)))));
        assert!(is_known(one(subject, with(of("a"), None))), "its ID alone is enough");
        assert!(is_known(one(subject, with(of("a"), Some(KeyDigest(1))))), "it is the same event");
        let other_body = Event { payload: "other".into(), ..of("a") };
        let refused = [
            (with(of("b"), Some(key)), Refusal::KeyReused),
            (with(named(), Some(key)), Refusal::KeyReused),
            (with(other_body.clone(), Some(key)), Refusal::KeyReused),
            (with(other_body.clone(), None), Refusal::EventDiffers),
            (with(other_body, Some(KeyDigest(1))), Refusal::EventDiffers),
        ];
        for (write, refusal) in refused {
            assert_eq!(one(subject, write.clone()), Written::Refused(refusal), "{write:?}");
        }
        subject.restart();
    }
    let theirs = Event { tenant_id: TenantId(8), ..named() };
    assert!(is_new(one(subject, with(theirs.clone(), Some(key)))), "another tenant's keys are its own");
    let other_body = Event { payload: "other".into(), ..theirs.clone() };
    let beside = Event { id: of("b").id, ..theirs };
    for write in [with(other_body, Some(key)), with(beside, Some(key))] {
        assert_eq!(one(subject, write), Written::Refused(Refusal::KeyReused), "it names an event already");
    }
    assert!(is_new(one(subject, with(of("b"), Some(KeyDigest(1))))), "what was refused or known left no key behind");
}

pub fn a_producers_key_is_free_again_once_its_event_is_forgotten(subject: &mut dyn Subject) {
    let with_key = |id: &str| {
        let new = NewEvent { event: event(id, None, NOW), key: Some(KeyDigest(1)), deliveries: vec![] };
        one(subject, Write::Accept(Box::new(new)))
    };
    with_key("a");
    assert_eq!(with_key("b"), Written::Refused(Refusal::KeyReused));
    ask(subject.store().purge(ages(NOW + Millis(1)), 10));
    assert!(matches!(with_key("b"), Written::Accepted { duplicate: false, .. }));
}
