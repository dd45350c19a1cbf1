//! How much a tenant may take, and what is forgotten so that a store does not grow for ever.

use doorstep_core::destination::Tenant;
use doorstep_core::quota::{ATTEMPT_BYTES, DELIVERY_BYTES, OwnQuota, QuotaExceeded, Resource, Usage};

use super::*;

fn limited(queued_deliveries: Option<u64>, stored_bytes: Option<u64>) -> Write {
    let quota = OwnQuota { queued_deliveries, stored_bytes };
    Write::PutTenant(Box::new(Tenant { quota, ..tenant(TENANT, 1) }))
}

fn exceeded(what: Resource, limit: u64, used: u64) -> Written {
    Written::Refused(Refusal::QuotaExceeded(QuotaExceeded { what, limit, used }))
}

fn usage(subject: &dyn Subject) -> Usage {
    ask(subject.store().usage(Reach::All, TENANT))
}

fn is_new(written: &Written) -> bool {
    matches!(written, Written::Accepted { duplicate: false, .. })
}

pub fn a_tenant_has_no_more_queued_than_it_may(subject: &mut dyn Subject) {
    let made = set_up(subject, &[limited(Some(3), None), accept(1, None), accept(2, None)]);
    // Those of one batch count together, and each has its own answer.
    let written = write(subject, vec![accept(3, None), accept(4, None), accept(1, None)], NOW);
    assert!(is_new(&written[0]), "{written:?}");
    assert_eq!(written[1], exceeded(Resource::QueuedDeliveries, 3, 3));
    assert_eq!(written[2], Written::Accepted { deliveries: 1, duplicate: true, available: vec![] }, "as before");
    let lonely = Write::Accept(Box::new(NewEvent { event: event("lonely", None, NOW), key: None, deliveries: vec![] }));
    assert!(is_new(&one(subject, lonely)), "it queues nothing");
    let other = Event { tenant_id: TenantId(8), ..event("other", None, NOW) };
    assert!(is_new(&one(subject, Write::Accept(Box::new(NewEvent { event: other, key: None, deliveries: vec![] })))));
    subject.restart();
    assert_eq!(one(subject, accept(4, None)), exceeded(Resource::QueuedDeliveries, 3, 3));
    one(subject, settle(&made[0], RETRY, BehindDead::Skip, NOW));
    assert_eq!(one(subject, accept(4, None)), exceeded(Resource::QueuedDeliveries, 3, 3), "it is queued still");
    one(subject, settle(&read(subject, 1), DEAD, BehindDead::Skip, NOW));
    assert!(is_new(&one(subject, accept(4, None))));
    one(subject, revive(1));
    assert_eq!(usage(subject).queued_deliveries, 4, "what a person sends again is counted, and not refused");
    one(subject, abandon(1));
    one(subject, Write::RemoveDestination { destination_id: DST });
    assert_eq!(usage(subject).queued_deliveries, 0, "what was queued for it is not any more");
    let quota = OwnQuota { queued_deliveries: Some(0), stored_bytes: None };
    one(subject, Write::PutTenant(Box::new(Tenant { quota, ..tenant(TENANT, 2) })));
    one(subject, put(DestinationId(2)));
    let many = (0..9).map(|n| {
        let deliveries = vec![new_delivery(100 + n, DestinationId(2))];
        Write::Accept(Box::new(NewEvent { event: event(&format!("many-{n}"), None, NOW), key: None, deliveries }))
    });
    assert!(write(subject, many.collect(), NOW).iter().all(is_new), "0 is no limit");
}

pub fn a_tenant_stores_no_more_bytes_than_it_may(subject: &mut dyn Subject) {
    let bytes = |id: u128| event(&format!("event-{id}"), None, NOW).stored_bytes() + DELIVERY_BYTES;
    let room = bytes(1) + bytes(2) + 400;
    let made = set_up(subject, &[limited(None, Some(room)), accept(1, None), accept(2, None)]);
    let used = bytes(1) + bytes(2);
    assert_eq!(usage(subject), Usage { queued_deliveries: 2, stored_bytes: used });
    assert_eq!(one(subject, accept(3, None)), exceeded(Resource::StoredBytes, room, used));
    let kept = |id: u128| {
        let history = ask(subject.store().delivery(Reach::All, DeliveryId(id))).expect("it is there");
        history.attempts.iter().map(|attempt| (attempt.number, attempt.response_body.len())).collect::<Vec<_>>()
    };
    // There is room for what one answer said, and of the next one only that it came is kept.
    one(subject, settle(&made[0], RETRY, BehindDead::Skip, NOW));
    one(subject, settle(&made[1], Decision::Delivered, BehindDead::Skip, NOW));
    assert_eq!((kept(1), kept(2)), (vec![(1, 3)], vec![(1, 0)]));
    let said = attempt(1, Answer::Status(503), NOW).stored_bytes();
    assert_eq!(usage(subject).stored_bytes, used + said + ATTEMPT_BYTES);
    subject.restart();
    assert_eq!(one(subject, accept(3, None)), exceeded(Resource::StoredBytes, room, used + said + ATTEMPT_BYTES));
    assert!(matches!(one(subject, accept(2, None)), Written::Accepted { duplicate: true, .. }), "as before");
}

pub fn what_a_tenant_takes_is_counted_until_it_is_gone(subject: &mut dyn Subject) {
    let ids = [1, 2, 3, 4, 5, 6];
    let made = set_up(subject, &ids.map(|id| accept(id, Some(["a", "b"][id as usize % 2]))));
    assert_eq!((made.len(), usage(subject).queued_deliveries), (2, 6));
    one(subject, settle(&read(subject, 1), Decision::Delivered, BehindDead::Skip, NOW));
    one(subject, settle(&read(subject, 2), DEAD, BehindDead::Hold, NOW));
    one(subject, settle(&read(subject, 3), RETRY, BehindDead::Hold, NOW));
    one(subject, settle(&read(subject, 5), DEAD, BehindDead::Skip, NOW));
    assert_eq!(usage(subject).queued_deliveries, 3);
    one(subject, Write::RemoveDestination { destination_id: DST });
    let mut last = usage(subject);
    assert_eq!(last.queued_deliveries, 0);
    assert!(last.stored_bytes > 6 * DELIVERY_BYTES);
    for step in 0..20 {
        let all = ages(Timestamp::MAX);
        ask(subject.store().purge(all, 2));
        if step % 5 == 0 {
            subject.restart();
        }
        let left = usage(subject);
        assert!(left.stored_bytes <= last.stored_bytes);
        last = left;
    }
    assert_eq!(last, Usage::default());
    assert_eq!(ask(subject.store().usage(Reach::Tenant(TenantId(8)), TENANT)), Usage::default(), "out of reach");
}

const DAY: Millis = Millis::from_hours(24);

const fn days(n: u64) -> Millis {
    Millis::from_hours(24 * n)
}

pub fn an_idle_key_is_forgotten_and_begins_anew(subject: &mut dyn Subject) {
    let sequence = |written: &Written| available(written)[0].ordering.as_ref().map(|slot| slot.sequence);
    set_up(subject, &[accept(1, Some("idle")), accept(2, Some("queued")), accept(3, Some("held"))]);
    one(subject, settle(&read(subject, 1), Decision::Delivered, BehindDead::Hold, NOW));
    one(subject, settle(&read(subject, 3), DEAD, BehindDead::Hold, NOW));
    // Nothing else is old enough to go.
    let purge = |idle, limit| ask(subject.store().purge(Ages { idle, ..ages(Timestamp(0)) }, limit)).keys;
    assert_eq!(purge(NOW, 9), 0, "they were used on this day");
    assert_eq!(
        [purge(NOW + DAY, 2), purge(NOW + DAY, 2), purge(NOW + DAY, 2)],
        [2, 1, 0],
        "each is looked at once a day"
    );
    let at = |id, key| {
        let later = write(subject, vec![accept(id, Some(key))], NOW + DAY);
        sequence(&later[0])
    };
    assert_eq!(at(4, "idle"), Some(1), "it begins anew");
    one(subject, settle(&read(subject, 2), Decision::Delivered, BehindDead::Hold, NOW + DAY));
    assert_eq!(at(5, "queued"), Some(2), "something was queued for it");
    assert_eq!(ids(available(&one(subject, abandon(3)))), []);
    assert_eq!(at(6, "held"), Some(2), "a dead letter held it");
    for id in [4, 5, 6] {
        one(subject, settle(&read(subject, id), Decision::Delivered, BehindDead::Hold, NOW + DAY));
    }
    assert_eq!((purge(NOW + DAY, 9), purge(NOW + DAY + DAY, 9), purge(NOW + DAY + DAY, 9)), (0, 3, 0));
}

pub fn a_removed_destination_is_forgotten_in_the_end(subject: &mut dyn Subject) {
    set_up(subject, &[accept(1, Some("a")), accept(2, Some("a"))]);
    one(subject, Write::RemoveDestination { destination_id: DST });
    let purge = |idle, limit| ask(subject.store().purge(Ages { idle, ..ages(Timestamp(0)) }, limit)).removed;
    assert_eq!(purge(Timestamp::MAX, 2), 2, "first what was queued");
    assert_eq!(one(subject, put(DST)), Written::Refused(Refusal::VersionDiffers));
    assert_eq!((purge(NOW, 9), purge(NOW, 9)), (1, 0), "then its key");
    assert_eq!(one(subject, put(DST)), Written::Refused(Refusal::VersionDiffers));
    assert_eq!((purge(NOW + Millis(1), 9), purge(NOW + Millis(1), 9)), (1, 0));
    assert_eq!(one(subject, put(DST)), Written::Saved);
}

/// Each day a destination comes and goes, with events under keys that are never used again. Only what is as young as the retention stays.
pub fn a_year_of_traffic_leaves_no_more_than_a_season(subject: &mut dyn Subject) {
    const PER_DAY: u128 = 4;
    let kept = days(30);
    let mut most = Usage::default();
    for day in 0..365u64 {
        let now = NOW + days(day);
        let id = DestinationId(1_000 + u128::from(day));
        write(subject, vec![put(id)], now);
        let first = u128::from(day) * PER_DAY;
        let accept = |n: u128| {
            let mut event = event(&format!("event-{n:06}"), Some(&format!("key-{n}")), now);
            event.payload = "{}".into();
            Write::Accept(Box::new(NewEvent { event, key: None, deliveries: vec![new_delivery(n, id)] }))
        };
        let made = write(subject, (first..first + PER_DAY).map(accept).collect(), now);
        let made = made.iter().flat_map(available).cloned().collect::<Vec<_>>();
        assert_eq!(made.len() as u128, PER_DAY);
        let decisions = [Decision::Delivered, DEAD, RETRY, Decision::Delivered];
        let settled =
            made.iter().zip(decisions).map(|(delivery, decision)| settle(delivery, decision, BehindDead::Hold, now));
        write(subject, settled.collect(), now);
        write(subject, vec![Write::RemoveDestination { destination_id: id }], now);
        let old = now - kept;
        let all = Ages {
            delivered: old,
            dead: old,
            attempts: old,
            events: old,
            activity: old,
            audit: old,
            keys: old,
            sessions: old,
            idle: old,
        };
        while ask(subject.store().purge(all, 50)).is_full(50) {}
        let used = usage(subject);
        assert_eq!(used.queued_deliveries, 0);
        if day == 60 {
            most = used;
        }
        if day > 60 {
            assert_eq!(used, most, "day {day} has as much as any other");
        }
    }
    let never = NOW + days(10_000);
    let all = Ages {
        delivered: never,
        dead: never,
        attempts: never,
        events: never,
        activity: never,
        audit: never,
        keys: never,
        sessions: never,
        idle: never,
    };
    while ask(subject.store().purge(all, 50)).is_full(50) {}
    assert_eq!(usage(subject), Usage::default());
}
