//! What people look at: lists, and what can be asked for in them.

use doorstep_core::search::read_types;

use super::*;

pub fn events_are_listed_newest_first_as_far_as_they_fit(subject: &mut dyn Subject) {
    for n in 1..=5u32 {
        let tenant_id = if n % 2 == 0 { TenantId(8) } else { TENANT };
        let accepted_at = NOW + Millis(u64::from(n));
        let event_type = if n == 3 { "c.d" } else { "a.b" }.parse().expect("a name");
        let event =
            Event { tenant_id, event_type, ..event(&format!("event-{n}"), (n > 3).then_some("key"), accepted_at) };
        one(subject, Write::Accept(Box::new(NewEvent { event, key: None, deliveries: vec![] })));
    }
    let listed = |filter: EventFilter, before_seq, limit| {
        let found = ask(subject.store().event_list(Reach::All, filter, Page { before_seq, limit }));
        found.into_iter().map(|event| event.seq).collect::<Vec<_>>()
    };
    let any = EventFilter::default;
    assert_eq!(listed(any(), None, 3), [5, 4, 3]);
    assert_eq!(listed(any(), Some(3), 3), [2, 1]);
    assert_eq!(listed(EventFilter { tenant_id: Some(TenantId(8)), ..any() }, None, 9), [4, 2]);
    for (types, expected) in [("c.d", &[3][..]), ("c.*", &[3]), ("*.b", &[5, 4, 2, 1]), ("x,*.d", &[3]), ("c", &[])] {
        assert_eq!(listed(EventFilter { types: read_types(types).ok(), ..any() }, None, 9), expected, "{types}");
    }
    let paged = || EventFilter { types: read_types("a.*").ok(), ..any() };
    assert_eq!((listed(paged(), None, 2), listed(paged(), Some(4), 2)), (vec![5, 4], vec![2, 1]));
    assert_eq!(listed(EventFilter { ordering_key: Some("key".into()), ..any() }, None, 9), [5, 4]);
    assert!(listed(EventFilter { ordering_key: Some("ke".into()), ..any() }, None, 9).is_empty());
    let between =
        EventFilter { accepted_after: Some(NOW + Millis(2)), accepted_before: Some(NOW + Millis(4)), ..any() };
    assert_eq!(listed(between, None, 9), [3, 2]);
}

pub fn lists_are_newest_first_and_go_on_where_the_last_page_ended(subject: &mut dyn Subject) {
    let made = set_up(subject, &[1, 2, 3, 4, 5].map(|id| accept(id, None)));
    one(subject, settle(&made[1], Decision::Delivered, BehindDead::Skip, NOW));
    one(subject, settle(&made[3], DEAD, BehindDead::Skip, NOW));
    let page = |before_seq, limit| {
        ask(subject.store().deliveries(Reach::All, DeliveryFilter::default(), Page { before_seq, limit }))
    };
    let of =
        |found: &[doorstep_core::store::DeliverySummary]| found.iter().map(|l| l.delivery.id.0).collect::<Vec<_>>();
    let first = page(None, 3);
    assert_eq!(of(&first), [5, 4, 3]);
    assert_eq!(of(&page(Some(first[2].delivery.seq), 3)), [2, 1]);
    assert_eq!(of(&page(Some(u64::MAX), 1)), [5]);
    assert_eq!(of(&page(Some(0), 1)), []);
}

pub fn lists_contain_what_fits_the_filter(subject: &mut dyn Subject) {
    one(subject, put(DestinationId(2)));
    let mut other = event("other", None, NOW + Millis(10));
    (other.tenant_id, other.event_type) = (TenantId(8), "user.left".parse().expect("a valid type"));
    let deliveries = vec![new_delivery(5, DestinationId(2))];
    let other = Write::Accept(Box::new(NewEvent { event: other, key: None, deliveries }));
    let made = set_up(subject, &[accept(1, None), accept(2, None), accept(3, None), accept(4, None), other]);
    one(subject, settle(&made[1], RETRY, BehindDead::Skip, NOW));
    one(subject, settle(&made[2], Decision::Delivered, BehindDead::Skip, NOW));
    one(subject, settle(&made[3], DEAD, BehindDead::Skip, NOW));
    let any = DeliveryFilter::default;
    let status = |status| DeliveryFilter { statuses: status, ..any() };
    let types = |types| DeliveryFilter { types: read_types(types).ok(), ..any() };
    for (filter, expected) in [
        (any(), vec![5, 4, 3, 2, 1]),
        (status(Statuses::QUEUED), vec![5, 1]),
        (status(Statuses::RETRY_SCHEDULED), vec![2]),
        (status(Statuses::DELIVERED), vec![3]),
        (status(Statuses::DEAD), vec![4]),
        (status(Statuses::QUEUED.or(Statuses::DEAD)), vec![5, 4, 1]),
        (status(Statuses::RETRY_SCHEDULED.or(Statuses::DELIVERED)), vec![3, 2]),
        (DeliveryFilter { codes: Some(Codes { from: 200, to: 499 }), ..any() }, vec![4, 3]),
        (DeliveryFilter { destination_id: Some(DST), ..any() }, vec![4, 3, 2, 1]),
        (DeliveryFilter { destination_id: Some(DST), ..status(Statuses::QUEUED) }, vec![1]),
        (DeliveryFilter { tenant_id: Some(TenantId(8)), ..any() }, vec![5]),
        (types("user.left"), vec![5]),
        (types("user.*"), vec![5]),
        (types("*.paid"), vec![4, 3, 2, 1]),
        (types("x.y,invoice.paid,*.left"), vec![5, 4, 3, 2, 1]),
        (types("*"), vec![5, 4, 3, 2, 1]),
        (types("*.*.*"), vec![]),
        (DeliveryFilter { types: read_types("*.paid").ok(), ..status(Statuses::DEAD) }, vec![4]),
        (DeliveryFilter { reason: Some(DeadReason::Rejected), ..any() }, vec![4]),
        (DeliveryFilter { reason: Some(DeadReason::Expired), ..any() }, vec![]),
        (DeliveryFilter { reason: Some(DeadReason::Rejected), ..status(Statuses::DELIVERED) }, vec![]),
        (DeliveryFilter { codes: Some(Codes::one(503)), ..any() }, vec![2]),
        (DeliveryFilter { created_after: Some(NOW + Millis(10)), ..any() }, vec![5]),
        (DeliveryFilter { created_before: Some(NOW + Millis(10)), ..any() }, vec![4, 3, 2, 1]),
    ] {
        assert_eq!(list(subject, filter.clone()), expected, "{filter:?}");
    }
}

pub fn the_deliveries_of_an_event_are_found_by_its_name(subject: &mut dyn Subject) {
    one(subject, put(DestinationId(2)));
    let of = |tenant_id, name: &str, ids: &[u128]| {
        let both = [DST, DestinationId(2)].into_iter().cycle();
        let deliveries = ids.iter().zip(both).map(|(id, to)| new_delivery(*id, to)).collect();
        let event = Event { tenant_id, ..event(name, None, NOW) };
        Write::Accept(Box::new(NewEvent { event, key: None, deliveries }))
    };
    let writes = [
        of(TENANT, "order", &[1, 2]),
        of(TENANT, "other", &[3]),
        of(TenantId(8), "order", &[4, 5]),
        of(TENANT, "alone", &[]),
        of(TENANT, "last", &[6]),
    ];
    let made = set_up(subject, &writes);
    one(subject, settle(&made[0], Decision::Delivered, BehindDead::Skip, NOW));
    one(subject, settle(&made[3], DEAD, BehindDead::Skip, NOW));
    let named = |name: &str| DeliveryFilter { event_id: name.parse().ok(), ..DeliveryFilter::default() };
    for (filter, expected) in [
        (named("order"), vec![5, 4, 2, 1]),
        (DeliveryFilter { tenant_id: Some(TENANT), ..named("order") }, vec![2, 1]),
        (DeliveryFilter { tenant_id: Some(TenantId(8)), ..named("order") }, vec![5, 4]),
        (DeliveryFilter { tenant_id: Some(TenantId(9)), ..named("order") }, vec![]),
        (DeliveryFilter { destination_id: Some(DST), ..named("order") }, vec![4, 1]),
        (DeliveryFilter { statuses: Statuses::DEAD, ..named("order") }, vec![4]),
        (named("other"), vec![3]),
        (named("alone"), vec![]),
        (named("nobody"), vec![]),
        (named("last"), vec![6]),
    ] {
        assert_eq!(list(subject, filter.clone()), expected, "{filter:?}");
    }
    let page = |reach, before_seq, limit| {
        let found = ask(subject.store().deliveries(reach, named("order"), Page { before_seq, limit }));
        found.iter().map(|line| line.delivery.seq).collect::<Vec<_>>()
    };
    assert_eq!(page(Reach::All, None, 3), [5, 4, 2]);
    assert_eq!(page(Reach::All, Some(2), 3), [1]);
    assert_eq!(page(Reach::Tenant(TENANT), None, 3), [2, 1], "another's is out of reach");
}
