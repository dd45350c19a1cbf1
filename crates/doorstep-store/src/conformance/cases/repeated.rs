//! The keys of producers, by which an event is known when it comes again.

use doorstep_core::event::{CloudAttributes, KeyDigest};

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

pub fn an_id_of_another_source_is_told_apart_from_another_event(subject: &mut dyn Subject) {
    let from = |source: &str, subject: Option<&str>| {
        let (id, source) = ("1".into(), source.into());
        let cloud = Some(Arc::new(CloudAttributes { id, source, subject: subject.map(Arc::from) }));
        Event { cloud, ..event("1", None, NOW) }
    };
    let with = |event, key| Write::Accept(Box::new(NewEvent { event, key, deliveries: vec![] }));
    let kept = from("/ä\"b", Some("s"));
    let key = KeyDigest(5);
    assert!(matches!(one(subject, with(kept.clone(), Some(key))), Written::Accepted { duplicate: false, .. }));
    for _ in 0..2 {
        let found = ask(subject.store().event(Reach::All, Some(TENANT), kept.id.clone()));
        assert_eq!(found.iter().map(|(_, event)| &**event).collect::<Vec<_>>(), [&kept]);
        assert!(matches!(one(subject, with(kept.clone(), None)), Written::Accepted { duplicate: true, .. }));
        for (event, key, refusal) in [
            (from("/other", Some("s")), None, Refusal::SourceDiffers),
            (event("1", None, NOW), None, Refusal::SourceDiffers),
            (from("/other", Some("s")), Some(key), Refusal::KeyReused),
            (from("/ä\"b", None), None, Refusal::EventDiffers),
        ] {
            assert_eq!(one(subject, with(event.clone(), key)), Written::Refused(refusal), "{event:?}");
        }
        subject.restart();
    }
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
