//! Destinations that share a receiving host.

use super::*;

#[test]
fn the_cap_per_host_is_exact_and_its_room_is_never_left_unused() {
    let mut desk = Desk::new(SchedulerLimits { per_host_max: Some(2), ..SchedulerLimits::default() });
    for destination in 1..=4 {
        desk.adopt(plan(destination, destination));
    }
    desk.adopt(DestinationPlan { host: "elsewhere.example".into(), ..plan(5, 5) });
    let mut flying = Vec::new();
    for destination in 1..=5 {
        flying.extend(sent(&desk.offer(destination, 2)));
    }
    assert_eq!(tally(&flying.iter().map(|d| d.destination_id.0).collect::<Vec<_>>()), [(1, 1), (2, 1), (5, 1)].into());
    // The next in line is paused meanwhile: the room goes to the one behind it.
    desk.tell(Input::Handled { destination_id: DestinationId(1), hand: Hand::Pause });
    desk.tell(Input::Handled { destination_id: DestinationId(3), hand: Hand::Pause });
    let out = desk.answer(flying[0].id, OK);
    assert_eq!(sent(&out)[0].destination_id, DestinationId(4));
    let mut total = flying.len() + 1;
    flying.push(sent(&out)[0].clone());
    let mut waiting: VecDeque<Delivery> = flying.drain(1..).collect();
    while let Some(delivery) = waiting.pop_front() {
        let more = sent(&desk.answer(delivery.id, OK));
        total += more.len();
        waiting.extend(more);
        assert!(waiting.iter().filter(|d| d.destination_id.0 < 5).count() <= 2);
    }
    assert_eq!(total, 7, "all but the three of the paused destinations");
}

#[test]
fn no_tenant_takes_all_of_a_host_that_it_shares_with_others() {
    let mut desk = Desk::new(SchedulerLimits { per_host_max: Some(16), ..SchedulerLimits::default() });
    for destination in 1..=10 {
        desk.adopt(plan(destination, 1));
    }
    let mut hanging = Vec::new();
    for destination in 1..=10 {
        hanging.extend(sent(&desk.offer(destination, 10)));
    }
    assert_eq!(hanging.len(), 14, "two of 16 are kept for others");
    let waits = desk.delivery(3);
    assert_eq!(desk.scheduler.hold(&waits, desk.now), Some(Hold::for_event(Why::HostConcurrency)));
    for tenant in 2..=3 {
        desk.adopt(plan(10 + tenant, tenant));
        assert!(!sent(&desk.offer(10 + tenant, 1)).is_empty(), "tenant {tenant}");
    }
}

#[test]
fn a_destination_that_moves_to_another_host_gives_its_room_back_where_it_took_it() {
    let mut desk = Desk::new(SchedulerLimits { per_host_max: Some(1), ..SchedulerLimits::default() });
    desk.adopt(plan(1, 1));
    desk.adopt(plan(2, 1));
    let out = desk.offer(1, 1);
    assert_eq!(sent(&desk.offer(2, 1)), []);
    let moved = DestinationPlan { host: "elsewhere.example".into(), ..plan(1, 1) };
    desk.tell(Input::Changed { plan: Box::new(moved) });
    let out = desk.answer(sent(&out)[0].id, OK);
    assert_eq!(sent(&out).len(), 1, "the host has room again");
}

#[test]
fn a_destination_that_moves_away_does_not_keep_its_place_in_the_old_hosts_line() {
    let mut desk = Desk::new(SchedulerLimits { per_host_max: Some(1), ..SchedulerLimits::default() });
    for destination in 1..=3 {
        desk.adopt(plan(destination, 1));
    }
    let elsewhere = |destination| DestinationPlan { host: "elsewhere.example".into(), ..plan(destination, 1) };
    desk.adopt(elsewhere(4));
    desk.offer(4, 1);
    let out = desk.offer(1, 1);
    desk.offer(2, 1);
    desk.offer(3, 1);
    desk.tell(Input::Changed { plan: Box::new(elsewhere(2)) });
    let out = desk.answer(sent(&out)[0].id, OK);
    assert_eq!(sent(&out)[0].destination_id, DestinationId(3), "the second waits for another host now");
}

#[test]
fn room_that_was_offered_to_a_destination_that_is_dropped_goes_to_the_next_in_line() {
    let limits = SchedulerLimits { per_host_max: Some(1), in_flight_max: 2, ..SchedulerLimits::default() };
    let mut desk = Desk::new(SchedulerLimits { reserved_percent: 0, ..limits });
    for destination in 1..=3 {
        desk.adopt(plan(destination, 6 + destination));
    }
    for destination in 4..=6 {
        let host = format!("{destination}.example").into();
        desk.adopt(DestinationPlan { host, ..plan(destination, destination) });
    }
    let first = sent(&desk.offer(1, 1)).remove(0);
    desk.offer(2, 1);
    desk.offer(3, 1);
    let mut others: VecDeque<Delivery> = (4..=6).flat_map(|d| sent(&desk.offer(d, 1))).collect();
    // Its room is offered to the second, but all slots go to others before its turn.
    others.extend(sent(&desk.answer(first.id, OK)));
    desk.tell(Input::Dropped { destination_id: DestinationId(2) });
    let mut served = Vec::new();
    while let Some(delivery) = others.pop_front() {
        served.push(delivery.destination_id.0);
        others.extend(sent(&desk.answer(delivery.id, OK)));
    }
    assert!(served.contains(&3), "{served:?}");
}

#[test]
fn room_that_was_offered_to_a_destination_that_rests_goes_to_the_next_in_line() {
    let mut desk = Desk::new(SchedulerLimits { per_host_max: Some(1), ..SchedulerLimits::default() });
    desk.adopt(plan(1, 1));
    desk.adopt(plan(2, 2));
    let first = sent(&desk.offer(1, 2)).remove(0);
    desk.offer(2, 1);
    // The first is the next in line as well; but its own request was cut short, so that it rests.
    let out = desk.tell(Input::Interrupted { delivery_id: first.id });
    assert_eq!(sent(&out).len(), 1, "the host has room");
    assert_eq!(sent(&out)[0].destination_id, DestinationId(2));
}

#[test]
fn a_destination_that_waits_for_a_slot_does_not_keep_others_from_its_host() {
    let limits = SchedulerLimits { in_flight_max: 32, per_host_max: Some(8), ..SchedulerLimits::default() };
    let mut desk = Desk::new(SchedulerLimits { reserved_percent: 50, ..limits });
    // Retries of many tenants take all slots that retries may have.
    for tenant in 101..=116 {
        desk.adopt(DestinationPlan { host: format!("{tenant}.example").into(), ..plan(tenant, tenant) });
        let deliveries = vec![desk.retry(tenant)];
        assert_eq!(sent(&desk.tell(Input::Available { deliveries })).len(), 1);
    }
    let mut offered = Vec::new();
    for tenant in 1..=10 {
        desk.adopt(plan(tenant, tenant));
        offered.push(desk.delivery(tenant));
        let deliveries = offered.last().cloned().into_iter().collect();
        let n_sent = usize::from(tenant <= 8);
        assert_eq!(sent(&desk.tell(Input::Available { deliveries })).len(), n_sent, "two wait for the host");
    }
    // The first of them has only a retry left, which finds no slot.
    desk.tell(Input::Withdrawn { delivery: Box::new(offered[8].clone()) });
    let deliveries = vec![desk.retry(9)];
    desk.tell(Input::Available { deliveries });
    let out = desk.answer(offered[0].id, OK);
    assert_eq!(sent(&out), [offered[9].clone()], "a first attempt to the same host goes");
}

/// Seed 93357 of the simulator: the room at a host is another's, who has no slot to use it with.
#[test]
fn whoever_waits_for_a_host_without_a_request_out_waits_for_a_slot() {
    let limits = SchedulerLimits { in_flight_max: 2, per_host_max: Some(1), reserved_percent: 0, ..Default::default() };
    let mut desk = Desk::new(limits);
    let elsewhere = |n: u128| DestinationPlan { host: format!("host-{n}.example").into(), ..plan(n, n) };
    for destination in [1, 2, 3] {
        desk.adopt(plan(destination, 10 + destination));
    }
    desk.adopt(elsewhere(4));
    desk.adopt(elsewhere(5));
    let first = sent(&desk.offer(1, 1));
    for waits in [2, 3] {
        assert_eq!(sent(&desk.offer(waits, 1)), [], "its host is busy");
    }
    let hold = |desk: &mut Desk| {
        let waits = desk.delivery(3);
        desk.scheduler.hold(&waits, desk.now)
    };
    assert_eq!(hold(&mut desk), Some(Hold::for_event(Why::HostConcurrency)));
    let other = sent(&desk.offer(4, 1));
    assert_eq!((other.len(), sent(&desk.offer(5, 1))), (1, vec![]), "no slot is left");
    // Its room is offered to destination 2, but the slot goes to destination 5, whose turn it is.
    let fifth = sent(&desk.answer(first[0].id, OK));
    assert_eq!(fifth[0].destination_id, DestinationId(5));
    assert_eq!(hold(&mut desk), Some(Hold::for_event(Why::Capacity)));
    let second = sent(&desk.answer(fifth[0].id, OK));
    assert_eq!(second[0].destination_id, DestinationId(2));
    assert_eq!(hold(&mut desk), Some(Hold::for_event(Why::HostConcurrency)));
    assert_eq!(sent(&desk.answer(second[0].id, OK))[0].destination_id, DestinationId(3));
}
