//! Who may see and change what, and what is noted of it.

use doorstep_core::api_key::{ApiKey, KeyHash, Scope};
use doorstep_core::audit::Action;
use doorstep_core::delivery::BehindDead;
use doorstep_core::destination::Destination;
use doorstep_core::event::{Event, NewEvent};
use doorstep_core::id::{DeliveryId, DestinationId, KeyId, SessionId, TenantId};
use doorstep_core::portal::PortalKey;
use doorstep_core::reach::Reach;
use doorstep_core::store::{ActivityQuery, AuditFilter, DeliveryFilter, EventFilter, Page, Refusal, Write, Written};
use doorstep_core::time::{Millis, Timestamp};

use super::super::samples::{api_key, portal_session, registered};
use super::*;

pub fn what_is_out_of_reach_is_not_there(subject: &mut dyn Subject) {
    // Destination 1 is the tenant's, destination 2 another's; each has one delivery and one minute of activity.
    let foreign = TenantId(8);
    let theirs = Destination { tenant_id: foreign, ..destination(DestinationId(2), 1) };
    let of_theirs = Event { tenant_id: foreign, ..event("theirs", None, NOW) };
    let of_theirs = NewEvent { event: of_theirs, key: None, deliveries: vec![new_delivery(2, DestinationId(2))] };
    let put = Write::PutDestination(Box::new(theirs));
    let made = set_up(subject, &[put, accept(1, None), Write::Accept(Box::new(of_theirs))]);
    write(subject, made.iter().map(|one| settle(one, RETRY, BehindDead::Skip, NOW)).collect(), NOW);
    let store = subject.store();
    let page = Page { before_seq: None, limit: 9 };
    for (reach, own) in [(Reach::Tenant(TENANT), 1), (Reach::Tenant(foreign), 2)] {
        let other = 3 - own;
        let seen = |id| ask(store.delivery(reach, DeliveryId(id))).is_some();
        assert_eq!((seen(own), seen(other)), (true, false));
        let listed = |filter| ask(store.deliveries(reach, filter, page)).iter().map(|l| l.delivery.id.0).collect();
        let listed: Vec<Vec<u128>> = [
            DeliveryFilter::default(),
            DeliveryFilter { destination_id: Some(DestinationId(other)), ..DeliveryFilter::default() },
            DeliveryFilter { tenant_id: Some(TENANT), ..DeliveryFilter::default() },
        ]
        .map(listed)
        .into();
        assert_eq!(listed, [vec![own], vec![], if own == 1 { vec![1] } else { vec![] }]);
        let names = |filter| ask(store.event_list(reach, filter, page)).iter().map(|e| e.tenant_id).collect::<Vec<_>>();
        assert_eq!(names(EventFilter::default()), [reach.tenant_id().expect("a tenant's")]);
        let of_theirs = EventFilter { tenant_id: Some(foreign), ..EventFilter::default() };
        assert_eq!(names(of_theirs).len(), usize::from(own == 2));
        for of in [None, Some(foreign)] {
            let found = ask(store.event(reach, of, event("theirs", None, NOW).id));
            assert_eq!(found.len(), usize::from(own == 2), "{reach:?} {of:?}");
        }
        let backlogs = ask(store.backlogs(reach, vec![DestinationId(own), DestinationId(other)]));
        assert_eq!(backlogs.iter().map(|backlog| backlog.queued).collect::<Vec<_>>(), [1, 0]);
        let activity = |destination_id| {
            let query = ActivityQuery { destination_id, from: NOW, until: Timestamp::MAX, limit: 9 };
            ask(store.activity(reach, query)).iter().map(|one| one.destination_id.0).collect::<Vec<_>>()
        };
        assert_eq!((activity(None), activity(Some(DestinationId(own)))), (vec![own], vec![own]));
        assert_eq!(activity(Some(DestinationId(other))), []);
    }
}

pub fn nobody_changes_what_is_out_of_their_reach(subject: &mut dyn Subject) {
    let made = set_up(subject, &[accept(1, None), accept(2, None)]);
    one(subject, settle(&made[0], DEAD, BehindDead::Skip, NOW));
    let key = Write::PutApiKey(Box::new(api_key(KeyId(1), Some(TENANT))));
    let session = Write::PutPortalSession(Box::new(portal_session(SessionId(1), TENANT, NOW)));
    let known = registered("a.type", 1);
    let types = Write::PutEventType(Box::new(known.clone()));
    write(subject, vec![key.clone(), session.clone(), Write::PutTenant(Box::new(tenant(TENANT, 1))), types], NOW);
    let open = |session_id| {
        let (code, token) = (KeyHash::of("code"), KeyHash::of("token"));
        Write::OpenPortalSession { session_id, code, token }
    };
    let moved = Destination { tenant_id: TenantId(8), ..destination(DST, 2) };
    let of_all = Write::PutApiKey(Box::new(api_key(KeyId(9), None)));
    let foreign = Reach::Tenant(TenantId(8));
    let changes = [
        revive(1),
        abandon(2),
        Write::PutTenant(Box::new(tenant(TENANT, 2))),
        Write::PutDestination(Box::new(destination(DST, 2))),
        Write::PutDestination(Box::new(moved)),
        Write::PutDestination(Box::new(destination(DestinationId(5), 1))),
        Write::RemoveDestination { destination_id: DST },
        key,
        of_all.clone(),
        Write::ChangeApiKey(Box::new(ApiKey { version: 2, ..api_key(KeyId(1), Some(TENANT)) })),
        // It says that it is theirs.
        Write::ChangeApiKey(Box::new(ApiKey { version: 2, ..api_key(KeyId(1), Some(TenantId(8))) })),
        Write::RevokeApiKey { key_id: KeyId(1) },
        session,
        open(SessionId(1)),
        Write::EndPortalSession { session_id: SessionId(1) },
        Write::EndPortalSessions { tenant_id: TENANT },
        Write::UsedApiKeys(vec![(KeyId(1), NOW)]),
        accept(3, None),
        Write::PutEventType(Box::new(registered("a.new", 1))),
        Write::RemoveEventType { name: known.name.clone() },
        Write::Audit(Box::new(audit_entry(1, Some(TENANT), NOW))),
    ];
    for change in changes {
        let told = format!("{change:?}");
        assert_eq!(one(subject, by_hand(foreign, change)), Written::Refused(Refusal::NotFound), "{told}");
    }
    let store = subject.store();
    assert_eq!(ask(store.audit(Reach::All, AuditFilter::default(), Page { before_seq: None, limit: 9 })), []);
    assert_eq!(ask(store.api_keys(Reach::All, None, 9)), [api_key(KeyId(1), Some(TENANT))]);
    assert_eq!(ask(store.portal_sessions(Reach::All, None, 9)), [portal_session(SessionId(1), TENANT, NOW)]);
    assert_eq!(ask(store.destinations(None, 9))[0].destination, destination(DST, 1));
    assert_eq!(ask(store.event_types(None, 9)), std::slice::from_ref(&known));
    let page = Page { before_seq: None, limit: 9 };
    assert_eq!(ask(store.event_list(Reach::All, EventFilter::default(), page)).len(), 2, "none was taken by hand");
    let own = Reach::Tenant(TENANT);
    for change in [
        revive(1),
        abandon(2),
        Write::PutDestination(Box::new(destination(DST, 2))),
        Write::ChangeApiKey(Box::new(ApiKey { version: 2, ..api_key(KeyId(1), Some(TENANT)) })),
        Write::RevokeApiKey { key_id: KeyId(1) },
        open(SessionId(1)),
        Write::RemoveDestination { destination_id: DST },
    ] {
        let told = format!("{change:?}");
        let written = one(subject, by_hand(own, change));
        assert!(!matches!(written, Written::Refused(_)), "{told}: {written:?}");
    }
    // A key beyond one's own reach, and what is everybody's.
    let types = Write::PutEventType(Box::new(registered("a.type", 2)));
    for beyond in [of_all, types, Write::RemoveEventType { name: known.name }] {
        let told = format!("{beyond:?}");
        assert_eq!(one(subject, by_hand(own, beyond)), Written::Refused(Refusal::NotFound), "{told}");
    }
}

pub fn a_change_by_hand_is_noted_if_it_took_effect(subject: &mut dyn Subject) {
    let noted = |subject: &dyn Subject| {
        let page = Page { before_seq: None, limit: 9 };
        let found = ask(subject.store().audit(Reach::All, AuditFilter::default(), page));
        found.into_iter().map(|(n, entry)| (n, entry.resource)).collect::<Vec<_>>()
    };
    let made = one(subject, by_hand(Reach::All, put(DST)));
    assert_eq!((made, noted(subject)), (Written::Saved, vec![(1, "thing 1".to_owned())]));
    assert_eq!(one(subject, by_hand(Reach::All, put(DST))), Written::Refused(Refusal::VersionDiffers));
    assert_eq!(noted(subject).len(), 1, "nothing happened");
    one(subject, Write::Audit(Box::new(audit_entry(2, None, NOW))));
    subject.restart();
    assert_eq!(noted(subject), [(2, "thing 2".to_owned()), (1, "thing 1".to_owned())]);
}

pub fn the_audit_log_is_searched_newest_first_and_forgotten_from_its_front(subject: &mut dyn Subject) {
    for n in 1..=4u8 {
        let tenant_id = (n > 2).then_some(TenantId(n.into()));
        one(subject, Write::Audit(Box::new(audit_entry(n, tenant_id, NOW + Millis(n.into())))));
    }
    let search = |subject: &dyn Subject, reach, filter, before_seq| {
        let found = ask(subject.store().audit(reach, filter, Page { before_seq, limit: 3 }));
        found.into_iter().map(|(n, _)| n).collect::<Vec<_>>()
    };
    let any = AuditFilter::default;
    for (reach, filter, before, expected) in [
        (Reach::All, any(), None, vec![4, 3, 2]),
        (Reach::All, any(), Some(2), vec![1]),
        (Reach::Tenant(TenantId(3)), any(), None, vec![3]),
        (Reach::Tenant(TenantId(3)), AuditFilter { tenant_id: Some(TenantId(4)), ..any() }, None, vec![]),
        (Reach::All, AuditFilter { tenant_id: Some(TenantId(4)), ..any() }, None, vec![4]),
        (Reach::All, AuditFilter { actor: Some("bootstrap".to_owned()), ..any() }, None, vec![4, 2]),
        (Reach::All, AuditFilter { actor: Some(KeyId(3).to_string()), ..any() }, None, vec![3]),
        (Reach::All, AuditFilter { action: Some(Action::KeyRevoke), ..any() }, None, vec![]),
        (Reach::All, AuditFilter { action: Some(Action::KeyCreate), ..any() }, None, vec![4, 3, 2]),
        (Reach::All, AuditFilter { resource: Some("thing 1".to_owned()), ..any() }, None, vec![1]),
        (Reach::All, AuditFilter { after: Some(NOW + Millis(2)), ..any() }, None, vec![4, 3, 2]),
        (Reach::All, AuditFilter { before: Some(NOW + Millis(2)), ..any() }, None, vec![1]),
    ] {
        assert_eq!(search(subject, reach, filter.clone(), before), expected, "{reach:?} {filter:?}");
    }
    let purge = |audit, limit| ask(subject.store().purge(Ages { audit, ..ages(NOW) }, limit)).audit;
    assert_eq!((purge(NOW + Millis(4), 2), purge(NOW + Millis(4), 2), purge(NOW + Millis(4), 2)), (2, 1, 0));
    assert_eq!(search(subject, Reach::All, any(), None), [4]);
    assert_eq!(purge(Timestamp::MAX, 9), 1);
    subject.restart();
    one(subject, Write::Audit(Box::new(audit_entry(1, None, NOW))));
    assert_eq!(search(subject, Reach::All, any(), None), [5], "no number is given out twice");
}

pub fn a_key_changes_but_not_what_it_was_made_for(subject: &mut dyn Subject) {
    let made = api_key(KeyId(1), Some(TENANT));
    let used = Write::UsedApiKeys(vec![(KeyId(1), NOW + Millis(5))]);
    write(subject, vec![Write::PutApiKey(Box::new(made.clone())), used], NOW);
    let changed = ApiKey {
        name: "Another name".to_owned(),
        source_cidrs: vec![],
        expires_at: Some(NOW + Millis(50)),
        version: 2,
        ..made.rotated(KeyHash::of("another"), NOW + Millis(9))
    };
    let wider = ApiKey { scopes: [Scope::Admin].into(), tenant_id: None, created_at: Timestamp(0), ..changed.clone() };
    let change = |key: &ApiKey, at| write(subject, vec![Write::ChangeApiKey(Box::new(key.clone()))], at).remove(0);
    assert_eq!(change(&made, NOW), Written::Refused(Refusal::VersionDiffers), "it is not the next version");
    assert_eq!(change(&wider, NOW), Written::Saved);
    assert_eq!(change(&wider, NOW), Written::Refused(Refusal::VersionDiffers), "twice");
    let nobody = ApiKey { id: KeyId(2), ..changed.clone() };
    assert_eq!(change(&nobody, NOW), Written::Refused(Refusal::NotFound));
    subject.restart();
    let expected = ApiKey { last_used_at: Some(NOW + Millis(5)), ..changed };
    assert_eq!(ask(subject.store().api_keys(Reach::All, None, 9)), [expected]);
    let purge = |keys| ask(subject.store().purge(Ages { keys, ..ages(NOW) }, 9)).access;
    assert_eq!((purge(NOW + Millis(50)), purge(NOW + Millis(51))), (0, 1), "its new end counts");
}

pub fn a_key_is_revoked_for_ever(subject: &mut dyn Subject) {
    let (first, second) = (api_key(KeyId(1), None), api_key(KeyId(2), Some(TENANT)));
    let put = |key: &ApiKey| one(subject, Write::PutApiKey(Box::new(key.clone())));
    assert_eq!((put(&first), put(&second)), (Written::Saved, Written::Saved));
    assert_eq!(put(&first), Written::Refused(Refusal::VersionDiffers), "an ID is used once");
    let used = Write::UsedApiKeys(vec![(KeyId(2), NOW + Millis(5)), (KeyId(2), NOW), (KeyId(9), NOW)]);
    assert_eq!(one(subject, used), Written::Saved);
    let revoke = |id| one(subject, Write::RevokeApiKey { key_id: KeyId(id) });
    assert_eq!((revoke(1), revoke(1)), (Written::Saved, Written::Refused(Refusal::NotFound)));
    assert_eq!(revoke(9), Written::Refused(Refusal::NotFound));
    let again = put(&first);
    assert_eq!(again, Written::Refused(Refusal::VersionDiffers), "it does not come back");
    let change = Write::ChangeApiKey(Box::new(ApiKey { version: 2, ..first.clone() }));
    assert_eq!(one(subject, change), Written::Refused(Refusal::NotFound), "nor does it change");
    subject.restart();
    let keys = |reach, after, limit| ask(subject.store().api_keys(reach, after, limit));
    let revoked = ApiKey { revoked_at: Some(NOW), ..first };
    let used = ApiKey { last_used_at: Some(NOW + Millis(5)), ..second };
    assert_eq!(keys(Reach::All, None, 9), [revoked.clone(), used.clone()]);
    assert_eq!(keys(Reach::All, None, 1), [revoked]);
    assert_eq!(keys(Reach::All, Some(KeyId(1)), 9), keys(Reach::Tenant(TENANT), None, 9));
    assert_eq!(keys(Reach::Tenant(TENANT), None, 9), [used]);
    assert_eq!(keys(Reach::Tenant(TenantId(8)), None, 9), []);
    let purge = |keys| ask(subject.store().purge(Ages { keys, ..ages(NOW) }, 9)).access;
    assert_eq!((purge(NOW), purge(NOW + Millis(1)), purge(Timestamp::MAX)), (0, 1, 0), "a key in use stays");
}

pub fn a_portal_session_is_opened_once_and_ends(subject: &mut dyn Subject) {
    let sessions = [(1, TENANT), (2, TENANT), (3, TenantId(8))];
    for (id, tenant_id) in sessions {
        let session = portal_session(SessionId(id), tenant_id, NOW);
        assert_eq!(one(subject, Write::PutPortalSession(Box::new(session))), Written::Saved);
    }
    let open = |id, code: &str, at| {
        let (session_id, code, token) = (SessionId(id), KeyHash::of(code), KeyHash::of("token"));
        write(subject, vec![Write::OpenPortalSession { session_id, code, token }], at).remove(0)
    };
    let not_found = Written::Refused(Refusal::NotFound);
    assert_eq!(open(1, "guess", NOW), not_found);
    assert_eq!(open(2, "code", NOW + Millis(60)), not_found, "too late");
    assert_eq!((open(1, "code", NOW), open(1, "code", NOW)), (Written::Saved, not_found.clone()));
    subject.restart();
    let there = |reach| ask(subject.store().portal_sessions(reach, None, 9)).iter().map(|s| s.id.0).collect::<Vec<_>>();
    let first = ask(subject.store().portal_sessions(Reach::All, None, 1)).remove(0);
    assert_eq!(first.key, PortalKey::Token { hash: KeyHash::of("token") });
    assert_eq!((there(Reach::All), there(Reach::Tenant(TENANT))), (vec![1, 2, 3], vec![1, 2]));
    let end = |id| one(subject, Write::EndPortalSession { session_id: SessionId(id) });
    assert_eq!((end(1), end(1), there(Reach::All)), (Written::Saved, not_found, vec![2, 3]));
    assert_eq!(one(subject, Write::EndPortalSessions { tenant_id: TENANT }), Written::Saved);
    assert_eq!(there(Reach::All), [3]);
    let purge = |ages| ask(subject.store().purge(ages, 9)).access;
    let over = NOW + Millis::from_hours(1);
    assert_eq!(
        purge(Ages { audit: Timestamp::MAX, keys: Timestamp::MAX, sessions: over, ..ages(NOW) }),
        0,
        "it is open, however old the log"
    );
    let later = Ages { sessions: over + Millis(1), ..ages(NOW) };
    assert_eq!((purge(later), there(Reach::All)), (1, vec![]), "one that is over goes before the lines about it");
}

// How the cases speak.
