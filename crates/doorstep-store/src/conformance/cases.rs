//! The promises, one by one.

mod access;
mod catalog;
mod clock;
mod ends;
mod lists;
mod repeated;
mod quota;
mod unreadable;

use std::sync::Arc;

use doorstep_core::attempt::{Answer, Attempt};
use doorstep_core::audit::Mandate;
use doorstep_core::consent::Consent;
use doorstep_core::delivery::{BehindDead, Delivery, Ordering, Place, Settlement, Track};
use doorstep_core::destination::Destination;
use doorstep_core::event::{Event, NewEvent};
use doorstep_core::id::{DeliveryId, DestinationId, TenantId};
use doorstep_core::outcome::Fault;
use doorstep_core::reach::Reach;
use doorstep_core::retry::{DeadReason, Decision};
use doorstep_core::store::{
    ATTEMPTS_TOLD_MAX, Activity, ActivityQuery, Ages, Backlog, ByHand, CAPTURED_TOLD_MAX, Codes, DeliveryFilter,
    DeliveryHistory, DeliveryStatus, DuePage, DueQuery, EventFilter, EventSummary, Page, Purged, Refusal, Settled,
    Statuses, StoredDestination, StoredEvent, Tally, Write, Written,
};
use doorstep_core::time::{Millis, Timestamp};

use super::samples::{
    DEAD, DST, NOW, RETRY, TENANT, WINDOW, a_consent, a_gate, accept, attempt, audit_entry, destination, event,
    new_delivery, put, registered, settle, tenant,
};
use super::{Subject, ask, write};

pub use access::*;
pub use catalog::*;
pub use clock::*;
pub use ends::*;
pub use lists::*;
pub use quota::*;
pub use repeated::*;
pub use unreadable::*;

pub fn an_event_is_kept_as_it_came(subject: &mut dyn Subject) {
    one(subject, put(DST));
    let accepted = one(subject, accept(1, Some("k")));
    assert!(matches!(accepted, Written::Accepted { deliveries: 1, duplicate: false, .. }), "{accepted:?}");
    let before = event("event-1", Some("k"), NOW);
    for of in [Some(TENANT), None] {
        let found = ask(subject.store().event(Reach::All, of, before.id.clone()));
        assert_eq!(found, [(EventSummary::of(1, &before, 1), Arc::new(before.clone()))]);
    }
    assert_eq!(ask(subject.store().event(Reach::All, Some(TenantId(8)), before.id.clone())), []);
    assert_eq!(ask(subject.store().events(vec![9, 1])), [StoredEvent::Gone, StoredEvent::Readable(Arc::new(before))]);
}

pub fn two_tenants_may_have_an_event_of_the_same_name(subject: &mut dyn Subject) {
    let of = |tenant_id| Event { tenant_id, ..event("event-1", None, NOW) };
    for tenant_id in [TenantId(8), TENANT] {
        one(subject, Write::Accept(Box::new(NewEvent { event: of(tenant_id), key: None, deliveries: vec![] })));
    }
    let found = |of| {
        let found = ask(subject.store().event(Reach::All, of, event("event-1", None, NOW).id));
        found.into_iter().map(|(summary, _)| summary.tenant_id).collect::<Vec<_>>()
    };
    assert_eq!(found(Some(TENANT)), [TENANT]);
    assert_eq!(found(Some(TenantId(8))), [TenantId(8)]);
    assert_eq!(found(None), [TENANT, TenantId(8)]);
}

pub fn the_same_event_again_makes_nothing(subject: &mut dyn Subject) {
    set_up(subject, &[accept(1, None)]);
    let again = event("event-1", None, NOW + Millis(5));
    let deliveries = vec![new_delivery(2, DST), new_delivery(3, DST)];
    let written = one(subject, Write::Accept(Box::new(NewEvent { event: again, key: None, deliveries })));
    assert_eq!(written, Written::Accepted { deliveries: 1, duplicate: true, available: vec![] });
    assert_eq!(due(subject), [1]);
}

/// Of stores that encrypt payloads.
pub fn erased_payloads_are_gone_and_what_comes_later_is_not(subject: &mut dyn Subject) {
    let other = Event { tenant_id: TenantId(8), ..event("event-1", None, NOW) };
    let others = Write::Accept(Box::new(NewEvent { event: other.clone(), key: None, deliveries: vec![] }));
    set_up(subject, &[accept(1, None), others]);
    let erase = || Write::ErasePayloads { tenant_id: TENANT };
    let foreign = by_hand(Reach::Tenant(TenantId(8)), erase());
    assert_eq!(one(subject, foreign), Written::Refused(Refusal::NotFound), "they are not another tenant's to erase");
    assert!(ask(subject.store().events(vec![1]))[0].readable().is_some());
    assert_eq!(one(subject, by_hand(Reach::Tenant(TENANT), erase())), Written::Saved);
    assert_eq!(one(subject, erase()), Written::Refused(Refusal::NotFound), "there is nothing left to erase");
    one(subject, accept(2, None));
    for _ in 0..2 {
        let found = ask(subject.store().events(vec![1, 2, 3]));
        assert_eq!(found[0], StoredEvent::Gone);
        assert_eq!(found[1], StoredEvent::Readable(Arc::new(other.clone())), "another tenant's are its own");
        assert_eq!(found[2], StoredEvent::Readable(Arc::new(event("event-2", None, NOW))));
        let id = event("event-1", None, NOW).id;
        assert_eq!(ask(subject.store().event(Reach::All, Some(TENANT), id.clone())), []);
        assert_eq!(ask(subject.store().event(Reach::All, None, id)).len(), 1);
        let listed =
            ask(subject.store().event_list(Reach::All, EventFilter::default(), Page { before_seq: None, limit: 9 }));
        let sizes: Vec<u64> = listed.iter().map(|line| line.payload_bytes).collect();
        assert_eq!(sizes, [event("event-2", None, NOW).payload.len() as u64; 3], "it is listed still");
        subject.restart();
    }
    let mut again = event("event-1", None, NOW);
    again.payload = "other".into();
    let again = one(
        subject,
        Write::Accept(Box::new(NewEvent { event: again, key: None, deliveries: vec![new_delivery(9, DST)] })),
    );
    assert_eq!(again, Written::Accepted { deliveries: 1, duplicate: true, available: vec![] });
    assert_eq!(due(subject), [1, 2], "its deliveries are where they were");
}

/// Of stores that encrypt payloads.
pub fn what_was_captured_of_attempts_goes_with_the_payload(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, None), accept(2, None)]);
    let settled = |delivery: &Delivery, at| settle(delivery, RETRY, BehindDead::Skip, at);
    let said = |id: u128| {
        let history = ask(subject.store().delivery(Reach::All, DeliveryId(id))).expect("it is there");
        let said =
            |attempt: &Attempt| (attempt.number, attempt.request_headers.pairs().len(), attempt.response_body.len());
        history.attempts.iter().map(said).collect::<Vec<_>>()
    };
    one(subject, settled(&made[0], NOW));
    assert_eq!(said(1), [(1, 1, 3)]);
    one(subject, Write::ErasePayloads { tenant_id: TENANT });
    assert_eq!(said(1), [(1, 0, 0)]);
    one(subject, accept(3, None));
    let third = read(subject, 3);
    for delivery in [&made[1], &third] {
        one(subject, settled(delivery, NOW + Millis(1)));
    }
    assert_eq!(said(2), [(1, 0, 0)], "its answer was on its way when its payload was erased");
    assert_eq!(said(3), [(1, 1, 3)], "there is a new key");
}

pub fn another_body_under_the_same_name_is_refused(subject: &mut dyn Subject) {
    set_up(subject, &[accept(1, None)]);
    let mut differs = event("event-1", None, NOW);
    differs.payload = "other".into();
    let new = |event| Write::Accept(Box::new(NewEvent { event, key: None, deliveries: vec![new_delivery(2, DST)] }));
    assert_eq!(one(subject, new(differs.clone())), Written::Refused(Refusal::EventDiffers));
    differs.tenant_id = TenantId(8);
    let elsewhere = one(subject, new(differs));
    assert!(matches!(elsewhere, Written::Accepted { duplicate: false, .. }), "another tenant's names are its own");
}

pub fn deliveries_are_made_only_for_destinations_that_are_there(subject: &mut dyn Subject) {
    set_up(subject, &[]);
    let deliveries = vec![new_delivery(1, DestinationId(99)), new_delivery(2, DST)];
    let written = one(
        subject,
        Write::Accept(Box::new(NewEvent { event: event("a", None, NOW), key: None, deliveries: deliveries.clone() })),
    );
    let Written::Accepted { deliveries: 1, duplicate: false, available } = written else { panic!("{written:?}") };
    assert_eq!(ids(&available), [2]);
    assert_eq!(ask(subject.store().delivery(Reach::All, DeliveryId(1))), None);
    let again = one(subject, Write::Accept(Box::new(NewEvent { event: event("a", None, NOW), key: None, deliveries })));
    assert_eq!(again, Written::Accepted { deliveries: 1, duplicate: true, available: vec![] });
}

pub fn the_writes_of_a_batch_take_effect_in_their_order(subject: &mut dyn Subject) {
    let gone = Write::RemoveDestination { destination_id: DST };
    let batch = vec![accept(1, None), put(DST), accept(2, None), gone, accept(3, None), put(DestinationId(2))];
    let made: Vec<usize> = write(subject, batch, NOW).iter().map(|written| available(written).len()).collect();
    assert_eq!(made, [0, 0, 1, 0, 0, 0]);
    assert_eq!(due(subject), []);
}

pub fn due_deliveries_come_in_the_order_of_their_places(subject: &mut dyn Subject) {
    set_up(subject, &[]);
    write(subject, (1..=4).map(|id| accept(id, None)).collect(), NOW);
    write(subject, vec![accept(5, None)], NOW - Millis(1));
    let page = |after, limit| due_page(subject, DST, Track::First, after, limit);
    let first = page(None, 3);
    assert_eq!((ids(&first.deliveries), first.exhausted), (vec![5, 1, 2], false));
    let rest = page(Some(first.deliveries[2].place()), 2);
    assert_eq!((ids(&rest.deliveries), rest.exhausted), (vec![3, 4], true));
    assert_eq!(page(Some(rest.deliveries[1].place()), 2), DuePage { deliveries: vec![], exhausted: true });
    assert_eq!(page(Some(Place { due_at: Timestamp::MAX, seq: u64::MAX }), 2).deliveries, []);
    assert_eq!(page(None, 0), DuePage { deliveries: vec![], exhausted: false });
}

pub fn retries_are_due_on_their_own_track(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, None), accept(2, None)]);
    one(subject, settle(&made[0], RETRY, BehindDead::Skip, NOW));
    one(subject, settle(&made[1], Decision::Requeue, BehindDead::Skip, NOW));
    let retries = due_page(subject, DST, Track::Retry, None, 9).deliveries;
    assert_eq!(ids(&retries), [1]);
    assert_eq!(
        (retries[0].due_at, retries[0].requests, retries[0].progress.attempts),
        (Timestamp(NOW.0 + 60_000), 1, 1)
    );
    assert_eq!(due(subject), [2], "a throttled first attempt is still a first attempt");
}

pub fn a_delivery_keeps_its_history(subject: &mut dyn Subject) {
    set_up(subject, &[accept(1, Some("k"))]);
    let history = || ask(subject.store().delivery(Reach::All, DeliveryId(1))).expect("it is kept");
    let fresh = history();
    assert_eq!((fresh.summary.status, fresh.summary.last_status), (DeliveryStatus::Queued, None));
    assert_eq!((fresh.summary.created_at, fresh.summary.ended_at, fresh.attempts.len()), (NOW, None, 0));
    assert_eq!((fresh.summary.tenant_id, fresh.summary.event_id.as_str()), (TENANT, "event-1"));
    one(subject, settle(&read(subject, 1), RETRY, BehindDead::Skip, NOW));
    assert_eq!((history().summary.status, history().summary.last_status), (DeliveryStatus::RetryScheduled, Some(503)));
    let Write::Settle(mut failed) = settle(&read(subject, 1), RETRY, BehindDead::Skip, NOW) else { panic!() };
    Arc::make_mut(&mut failed).attempt = Some(attempt(2, Answer::Fault(Fault::AnswerTimedOut), NOW));
    one(subject, Write::Settle(failed));
    assert_eq!(history().summary.last_status, None, "the last request had no answer");
    let Write::Settle(mut expired) = settle(&read(subject, 1), DEAD, BehindDead::Skip, NOW + Millis(9)) else {
        panic!()
    };
    Arc::make_mut(&mut expired).attempt = None;
    one(subject, Write::Settle(expired));
    let ended = history();
    assert_eq!(ended.summary.status, DeliveryStatus::Dead(DeadReason::Rejected));
    assert_eq!(ended.summary.ended_at, Some(NOW + Millis(9)));
    let expected = [attempt(1, Answer::Status(503), NOW), attempt(2, Answer::Fault(Fault::AnswerTimedOut), NOW)];
    assert_eq!(ended.attempts, expected);
}

pub fn of_a_long_history_the_last_part_is_told(subject: &mut dyn Subject) {
    set_up(subject, &[accept(1, None)]);
    let n = u32::try_from(ATTEMPTS_TOLD_MAX).expect("few") + 3;
    for _ in 0..n {
        one(subject, settle(&read(subject, 1), Decision::Requeue, BehindDead::Skip, NOW));
    }
    let history = ask(subject.store().delivery(Reach::All, DeliveryId(1))).expect("it is kept");
    assert_eq!(history.summary.delivery.requests, n);
    assert_eq!(history.attempts.iter().map(|attempt| attempt.number).collect::<Vec<_>>(), (4..=n).collect::<Vec<_>>());
    let (earlier, last) = history.attempts.split_at(ATTEMPTS_TOLD_MAX - CAPTURED_TOLD_MAX);
    let one = |reach, number| ask(subject.store().attempt(reach, DeliveryId(1), number));
    for told in last {
        assert!(told.content_bytes() > 0, "what was captured of the last ones is told");
        assert_eq!(one(Reach::All, told.number).as_ref(), Some(told));
    }
    for told in earlier {
        assert_eq!(told.content_bytes(), 0, "and of no others");
        let whole = one(Reach::All, told.number).expect("each can be asked for");
        assert!(whole.content_bytes() > 0);
        assert_eq!(&whole.without_captured(), told);
    }
    assert!(one(Reach::All, 1).is_some(), "also those that are not told any more");
    for nothing in [0, n + 1, u32::MAX] {
        assert_eq!(one(Reach::All, nothing), None);
    }
    assert_eq!(one(Reach::Tenant(TenantId(u128::MAX)), n), None, "it is somebody else's");
    assert_eq!(ask(subject.store().attempt(Reach::All, DeliveryId(2), 1)), None);
}

pub fn event_types_are_registered_changed_and_removed_by_name(subject: &mut dyn Subject) {
    let put = |name, version| one(subject, Write::PutEventType(Box::new(registered(name, version))));
    let remove = |name: &str| one(subject, Write::RemoveEventType { name: name.parse().expect("a valid type") });
    for name in ["b.c", "a-b", "b", "B"] {
        assert_eq!(put(name, 1), Written::Saved);
    }
    let listed =
        |after: Option<&str>, limit| ask(subject.store().event_types(after.and_then(|a| a.parse().ok()), limit));
    let names = |found: Vec<doorstep_core::event_type::RegisteredType>| {
        found.into_iter().map(|one| one.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(listed(None, 9)), ["B", "a-b", "b", "b.c"]);
    assert_eq!(names(listed(Some("a-b"), 1)), ["b"]);
    assert_eq!(put("b", 1), Written::Refused(Refusal::VersionDiffers));
    assert_eq!(put("b", 3), Written::Refused(Refusal::VersionDiffers));
    assert_eq!(put("b", 2), Written::Saved);
    assert_eq!(listed(Some("a-b"), 1), [registered("b", 2)]);
    assert_eq!(remove("b"), Written::Saved);
    assert_eq!(remove("b"), Written::Refused(Refusal::NotFound));
    assert_eq!(put("b", 3), Written::Refused(Refusal::NotFound), "it was taken away meanwhile");
    assert_eq!(put("b", 1), Written::Saved, "a name may be used again");
}

pub fn a_change_is_refused_if_it_was_made_to_another_version(subject: &mut dyn Subject) {
    let changed = |version| one(subject, Write::PutDestination(Box::new(destination(DST, version))));
    assert_eq!(changed(2), Written::Refused(Refusal::NotFound), "it was taken away meanwhile");
    assert_eq!(changed(1), Written::Saved);
    assert_eq!(changed(1), Written::Refused(Refusal::VersionDiffers));
    assert_eq!(changed(3), Written::Refused(Refusal::VersionDiffers));
    one(subject, Write::SaveGate { destination_id: DST, state: Box::new(a_gate()) });
    assert_eq!(changed(2), Written::Saved);
    let found = ask(subject.store().destinations(None, 9));
    assert_eq!(found[0].destination, destination(DST, 2));
    assert_eq!(found[0].gate, a_gate(), "a change of settings leaves the gate alone");
}

pub fn a_gate_is_kept_as_it_was(subject: &mut dyn Subject) {
    set_up(subject, &[]);
    let found = ask(subject.store().destinations(None, 9));
    assert_eq!((found[0].gate.clone(), found[0].has_backlog), (Default::default(), false));
    let save = |id: DestinationId| Write::SaveGate { destination_id: id, state: Box::new(a_gate()) };
    assert_eq!(one(subject, save(DST)), Written::Saved);
    assert_eq!(one(subject, save(DestinationId(9))), Written::Refused(Refusal::NotFound));
    assert_eq!(ask(subject.store().destinations(None, 9))[0].gate, a_gate());
}

pub fn consent_is_kept_apart_from_what_people_change(subject: &mut dyn Subject) {
    let unasked = Destination { consent: Some(a_consent(7)), ..destination(DST, 1) };
    one(subject, Write::PutDestination(Box::new(unasked)));
    let consent = |subject: &dyn Subject| ask(subject.store().destinations(None, 9))[0].destination.consent.clone();
    assert_eq!(consent(subject), None, "nobody agrees by being written down");
    let agree = |id, n| Write::Consented { destination_id: id, consent: Box::new(a_consent(n)) };
    assert_eq!(one(subject, agree(DST, 1)), Written::Saved);
    assert_eq!(one(subject, agree(DestinationId(9), 1)), Written::Refused(Refusal::NotFound));
    assert_eq!(consent(subject), Some(a_consent(1)));
    one(subject, Write::PutDestination(Box::new(destination(DST, 2))));
    assert_eq!(consent(subject), Some(a_consent(1)), "a change of settings leaves it alone");
    assert_eq!(one(subject, agree(DST, 2)), Written::Saved);
    subject.restart();
    assert_eq!(consent(subject), Some(a_consent(2)));
}

pub fn a_late_yes_of_another_url_changes_nothing(subject: &mut dyn Subject) {
    let agree = |n, url: &str| {
        let consent = Box::new(Consent { url: url.to_owned(), ..a_consent(n) });
        one(subject, Write::Consented { destination_id: DST, consent })
    };
    let consent = || ask(subject.store().destinations(None, 9))[0].destination.consent.clone();
    let at = |version, url: &str| {
        let mut moved = destination(DST, version);
        moved.settings.url = url.to_owned();
        one(subject, Write::PutDestination(Box::new(moved)))
    };
    let (old, new) = ("https://old.example.com/hook", "https://new.example.com/hook");
    assert_eq!((at(1, old), agree(1, new)), (Written::Saved, Written::Refused(Refusal::NotFound)));
    assert_eq!(consent(), None);
    assert_eq!((at(2, new), agree(2, new)), (Written::Saved, Written::Saved));
    assert_eq!(agree(3, old), Written::Refused(Refusal::NotFound));
    assert_eq!(consent(), Some(Consent { url: new.to_owned(), ..a_consent(2) }));
}

pub fn a_destination_goes_with_all_that_is_queued_for_it(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, Some("a")), accept(2, Some("a")), accept(3, None), accept(4, None)]);
    one(subject, settle(&made[0], DEAD, BehindDead::Hold, NOW));
    one(subject, settle(&made[1], Decision::Delivered, BehindDead::Hold, NOW));
    one(subject, Write::SaveGate { destination_id: DST, state: Box::new(a_gate()) });
    let gone = || one(subject, Write::RemoveDestination { destination_id: DST });
    assert_eq!((gone(), gone()), (Written::Saved, Written::Refused(Refusal::NotFound)));
    assert_eq!(ask(subject.store().destinations(None, 9)), []);
    assert_eq!(ask(subject.store().next_give_up_at()), None);
    assert_eq!(ask(subject.store().backlogs(Reach::All, vec![DST])), [Backlog::default()]);
    assert_eq!(list(subject, DeliveryFilter::default()), [3, 1], "what has ended stays");
    assert_eq!(ask(subject.store().delivery(Reach::All, DeliveryId(2))), None);
    assert_eq!(one(subject, put(DST)), Written::Refused(Refusal::VersionDiffers), "an ID is used once");
    assert_eq!(one(subject, put(DestinationId(2))), Written::Saved);
}

pub fn what_a_removed_destination_leaves_goes_gradually_and_is_seen_by_nobody(subject: &mut dyn Subject) {
    let mut writes = vec![accept(1, Some("a")), accept(2, Some("a")), accept(3, Some("a")), accept(4, None)];
    writes.extend([accept(5, None), accept(6, None), accept(7, Some("b"))]);
    let made = set_up(subject, &writes);
    one(subject, settle(&made[0], DEAD, BehindDead::Hold, NOW));
    one(subject, settle(&read(subject, 5), RETRY, BehindDead::Skip, NOW));
    let late = settle(&read(subject, 4), Decision::Delivered, BehindDead::Skip, NOW);
    one(subject, Write::RemoveDestination { destination_id: DST });
    let unseen = |subject: &dyn Subject| {
        let again = |id| (one(subject, revive(id)), one(subject, abandon(id)));
        for id in 2..=7 {
            let not_found = Written::Refused(Refusal::NotFound);
            assert_eq!(again(id), (not_found.clone(), not_found), "{id}");
            assert_eq!(ask(subject.store().delivery(Reach::All, DeliveryId(id))), None);
        }
        assert_eq!(available(&one(subject, late.clone())), []);
        assert_eq!(list(subject, DeliveryFilter::default()), [1], "what has ended stays");
        assert_eq!(list(subject, DeliveryFilter { destination_id: Some(DST), ..DeliveryFilter::default() }), [1]);
        for track in Track::ALL {
            let nothing = DuePage { deliveries: vec![], exhausted: true };
            assert_eq!(due_page(subject, DST, track, None, 9), nothing);
        }
        assert_eq!(ask(subject.store().overdue(Timestamp::MAX, 9)), []);
        assert_eq!(ask(subject.store().next_give_up_at()), None);
        assert_eq!(ask(subject.store().backlogs(Reach::All, vec![DST])), [Backlog::default()]);
    };
    unseen(subject);
    assert_eq!(available(&one(subject, abandon(1))), [], "those behind it are gone");
    let events = |at| Ages { events: at, ..ages(NOW) };
    let purge = |subject: &dyn Subject, ages| ask(subject.store().purge(ages, 3));
    // Four that may go, two behind the dead one, and their two keys: three at a time.
    assert_eq!(purge(subject, events(NOW)).removed, 3);
    unseen(subject);
    subject.restart();
    unseen(subject);
    assert_eq!(purge(subject, events(NOW)).removed, 3);
    unseen(subject);
    assert_eq!(purge(subject, events(NOW)).removed, 2);
    assert_eq!(purge(subject, events(NOW)).removed, 0);
    unseen(subject);
    assert_eq!(purge(subject, Ages { dead: NOW + Millis(1), ..ages(NOW) }).available, []);
    let all = events(NOW + Millis(1));
    assert_eq!([purge(subject, all).events, purge(subject, all).events, purge(subject, all).events], [3, 3, 1]);
}

pub fn a_backlog_is_counted(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, Some("a")), accept(2, Some("a")), accept(3, None)]);
    let backlog = || ask(subject.store().backlogs(Reach::All, vec![DestinationId(9), DST]));
    let queued = |queued| [Backlog::default(), Backlog { queued, oldest_created_at: (queued > 0).then_some(NOW) }];
    let has = || ask(subject.store().destinations(None, 1))[0].has_backlog;
    assert_eq!((backlog(), has()), (queued(3).to_vec(), true));
    one(subject, settle(&made[0], RETRY, BehindDead::Skip, NOW));
    assert_eq!(backlog(), queued(3));
    one(subject, settle(&read(subject, 1), DEAD, BehindDead::Skip, NOW));
    one(subject, settle(&made[1], Decision::Delivered, BehindDead::Skip, NOW));
    assert_eq!(backlog(), queued(1));
    one(subject, revive(1));
    assert_eq!(backlog(), queued(2));
    write(subject, vec![abandon(1), abandon(2)], NOW);
    assert_eq!((backlog(), has()), (queued(0).to_vec(), false));
}

pub fn activity_is_counted_by_the_minute(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, None), accept(2, None), accept(3, None)]);
    let minute = Timestamp(NOW.0 - NOW.0 % 60_000);
    let throttled = settle(&made[0], Decision::Requeue, BehindDead::Skip, NOW);
    let failed = settle(&made[1], RETRY, BehindDead::Skip, minute);
    write(subject, vec![throttled, failed], NOW);
    let delivered = settle(&read(subject, 2), Decision::Delivered, BehindDead::Skip, minute + Millis(59_999));
    write(subject, vec![delivered], NOW);
    let next = minute + Millis::from_mins(1);
    write(subject, vec![settle(&made[2], DEAD, BehindDead::Skip, next), abandon(1)], next);
    let first = Tally {
        succeeded: 1,
        transient: 1,
        throttled: 1,
        first: 2,
        delivered: 1,
        took_sum: Millis(304),
        took_max: Millis(102),
        ..Tally::default()
    };
    let second =
        Tally { permanent: 1, first: 1, dead: 2, took_sum: Millis(101), took_max: Millis(101), ..Tally::default() };
    let both = [
        Activity { minute, destination_id: DST, tally: first },
        Activity { minute: next, destination_id: DST, tally: second },
    ];
    let query = ActivityQuery { destination_id: None, from: NOW, until: Timestamp::MAX, limit: 9 };
    let activity = |query| ask(subject.store().activity(Reach::All, query));
    assert_eq!(activity(query), both);
    assert_eq!(activity(ActivityQuery { until: next, ..query }), both[..1]);
    assert_eq!(activity(ActivityQuery { from: next, destination_id: Some(DST), ..query }), both[1..]);
    assert_eq!(activity(ActivityQuery { limit: 1, ..query }), both[..1]);
    assert_eq!(activity(ActivityQuery { destination_id: Some(DestinationId(9)), ..query }), []);
}

pub fn what_is_old_is_forgotten_a_little_at_a_time(subject: &mut dyn Subject) {
    let made = set_up(subject, &[1, 2, 3, 4].map(|id| accept(id, None)));
    for (delivery, ms) in made.iter().zip([30, 10, 20]) {
        one(subject, settle(delivery, Decision::Delivered, BehindDead::Skip, NOW + Millis(ms)));
    }
    one(subject, settle(&made[3], DEAD, BehindDead::Skip, NOW + Millis(40)));
    let nothing = ages(NOW);
    let purge = |ages, limit| ask(subject.store().purge(ages, limit));
    assert_eq!(purge(nothing, 9), Purged::default());
    let delivered = Ages { delivered: NOW + Millis(30), ..nothing };
    assert_eq!(purge(delivered, 1).delivered, 1);
    assert_eq!(list(subject, DeliveryFilter::default()), [4, 3, 1], "the one that ended first");
    assert_eq!(purge(delivered, 9).delivered, 1);
    assert_eq!(list(subject, DeliveryFilter::default()), [4, 1]);
    assert_eq!(ask(subject.store().delivery(Reach::All, DeliveryId(2))), None);
    assert_eq!(purge(Ages { dead: NOW + Millis(41), ..nothing }, 9).dead, 1);
    assert_eq!(list(subject, DeliveryFilter::default()), [1]);
    let attempts = || ask(subject.store().delivery(Reach::All, DeliveryId(1))).expect("it is kept").attempts.len();
    assert_eq!(purge(Ages { attempts: NOW + Millis(30), ..nothing }, 9).attempts, 0, "the first to go is not old yet");
    assert_eq!((attempts(), purge(Ages { attempts: NOW + Millis(31), ..nothing }, 2).attempts), (1, 2));
    assert_eq!(attempts(), 0);
    assert_eq!(purge(Ages { activity: NOW + Millis(1), ..nothing }, 9).activity, 1);
}

pub fn forgetting_a_dead_delivery_lets_its_key_go(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, Some("a")), accept(2, Some("a")), accept(3, Some("a"))]);
    one(subject, settle(&made[0], DEAD, BehindDead::Hold, NOW));
    one(subject, settle(&read(subject, 2), DEAD, BehindDead::Hold, NOW + Millis(1)));
    let purge = |dead| ask(subject.store().purge(Ages { dead, ..ages(NOW) }, 9));
    assert_eq!(purge(NOW + Millis(1)).available, [], "the next one is dead too");
    assert_eq!(ids(&purge(NOW + Millis(2)).available), [3]);
    assert_eq!(due(subject), [3]);
}

pub fn an_event_stays_as_long_as_a_delivery_of_it(subject: &mut dyn Subject) {
    let lonely = Write::Accept(Box::new(NewEvent { event: event("lonely", None, NOW), key: None, deliveries: vec![] }));
    let made = set_up(subject, &[accept(1, None), lonely, accept(2, None)]);
    let there = || {
        ask(subject.store().events(vec![1, 2, 3])).iter().map(|event| event.readable().is_some()).collect::<Vec<_>>()
    };
    let all = Timestamp::MAX;
    let purge = || ask(subject.store().purge(Ages { delivered: all, dead: all, events: all, ..ages(NOW) }, 9)).events;
    assert_eq!((purge(), there()), (1, vec![true, false, true]));
    one(subject, settle(&made[0], Decision::Delivered, BehindDead::Skip, NOW));
    assert_eq!((purge(), there()), (1, vec![false, false, true]));
    one(subject, Write::RemoveDestination { destination_id: DST });
    assert_eq!((purge(), there()), (1, vec![false; 3]));
    let again = one(subject, accept(1, None));
    assert!(matches!(again, Written::Accepted { duplicate: false, .. }), "its name is forgotten too");
}

pub fn numbers_are_not_given_out_twice(subject: &mut dyn Subject) {
    let before = set_up(subject, &[accept(1, None)]);
    one(subject, Write::RemoveDestination { destination_id: DST });
    ask(subject.store().purge(ages(Timestamp::MAX), 9));
    subject.restart();
    one(subject, put(DestinationId(2)));
    let deliveries = vec![new_delivery(2, DestinationId(2))];
    let again = one(subject, Write::Accept(Box::new(NewEvent { event: event("b", None, NOW), key: None, deliveries })));
    let after = available(&again);
    assert!(before[0].seq < after[0].seq, "{} {}", before[0].seq, after[0].seq);
    assert!(before[0].event_seq < after[0].event_seq, "{} {}", before[0].event_seq, after[0].event_seq);
}

pub fn all_is_there_after_a_restart(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, Some("a")), accept(2, Some("a")), accept(3, None), accept(4, None)]);
    one(subject, settle(&made[0], DEAD, BehindDead::Hold, NOW));
    one(subject, settle(&made[1], Decision::Delivered, BehindDead::Hold, NOW));
    one(subject, Write::SaveGate { destination_id: DST, state: Box::new(a_gate()) });
    subject.restart();
    let Some(StoredDestination { destination: found, gate, has_backlog: true }) =
        ask(subject.store().destinations(None, 9)).pop()
    else {
        panic!("the destination is gone");
    };
    assert_eq!((found, gate), (destination(DST, 1), a_gate()));
    assert_eq!(list(subject, DeliveryFilter::default()), [4, 3, 2, 1]);
    assert_eq!(due(subject), [4]);
    assert_eq!(ask(subject.store().backlogs(Reach::All, vec![DST]))[0].queued, 2);
    assert_eq!(ids(available(&one(subject, revive(1)))), [1], "it still held its key");
    let again = one(subject, accept(3, None));
    assert!(matches!(again, Written::Accepted { duplicate: true, .. }), "{again:?}");
}

/// Makes [`DST`] and writes the rest in one batch. Returns what may go.
fn set_up(subject: &dyn Subject, writes: &[Write]) -> Vec<Delivery> {
    one(subject, put(DST));
    write(subject, writes.to_vec(), NOW).iter().flat_map(|written| available(written).to_vec()).collect()
}

fn one(subject: &dyn Subject, change: Write) -> Written {
    write(subject, vec![change], NOW).pop().expect("an answer for each write")
}

fn available(written: &Written) -> &[Delivery] {
    match written {
        Written::Accepted { available, .. }
        | Written::Settled { available }
        | Written::Revived { available }
        | Written::Abandoned { available, .. } => available,
        Written::Saved | Written::Refused(_) => &[],
    }
}

fn by_hand(reach: Reach, change: Write) -> Write {
    let mandate = Mandate { reach, entry: audit_entry(1, reach.tenant_id(), NOW) };
    Write::ByHand(Box::new(ByHand { mandate, change }))
}

fn revive(id: u128) -> Write {
    Write::Revive { delivery_id: DeliveryId(id), give_up_at: NOW + WINDOW + WINDOW }
}

fn abandon(id: u128) -> Write {
    Write::Abandon { delivery_id: DeliveryId(id), note: format!("enough of {id}") }
}

fn ages(at: Timestamp) -> Ages {
    let activity = Timestamp(0).max(Timestamp(at.0 - 60_000));
    Ages { delivered: at, dead: at, attempts: at, events: at, activity, audit: at, keys: at, sessions: at, idle: at }
}

fn ids(deliveries: &[Delivery]) -> Vec<u128> {
    deliveries.iter().map(|delivery| delivery.id.0).collect()
}

fn read(subject: &dyn Subject, id: u128) -> Delivery {
    ask(subject.store().delivery(Reach::All, DeliveryId(id))).expect("it is kept").summary.delivery
}

fn due_page(
    subject: &dyn Subject,
    destination_id: DestinationId,
    track: Track,
    after: Option<Place>,
    limit: usize,
) -> DuePage {
    let pages = ask(subject.store().due(vec![DueQuery { destination_id, track, after, limit }]));
    assert_eq!(pages.len(), 1, "an answer for each query");
    pages.into_iter().next().expect("just counted")
}

/// First attempts that are due at [`DST`].
fn due(subject: &dyn Subject) -> Vec<u128> {
    ids(&due_page(subject, DST, Track::First, None, 99).deliveries)
}

fn list(subject: &dyn Subject, filter: DeliveryFilter) -> Vec<u128> {
    let found = ask(subject.store().deliveries(Reach::All, filter, Page { before_seq: None, limit: 99 }));
    found.iter().map(|line| line.delivery.id.0).collect()
}
