//! Who goes next when there is less room than work.

use super::*;

#[test]
fn a_backlog_of_one_tenant_does_not_delay_anothers_first_event() {
    let mut desk = Desk::new(one_slot());
    desk.adopt(plan(1, 1));
    desk.adopt(plan(2, 2));
    let out = desk.offer(1, 5_000);
    let served = desk.serve(out, 100);
    assert_eq!(served.len(), 100);
    let in_flight = desk.offer(2, 1);
    assert_eq!(in_flight, [], "the only slot is taken");
    let first = desk.scheduler.flights.keys().copied().next().unwrap();
    let out = desk.answer(first, OK);
    assert_eq!(sent(&out)[0].destination_id, DestinationId(2));
}

#[test]
fn tenants_share_by_weight_whatever_the_number_of_their_destinations() {
    let mut desk = Desk::new(one_slot());
    desk.tell(Input::Weighted { tenant_id: TenantId(2), weight: 3 });
    for destination in 1..=9 {
        desk.adopt(plan(destination, 1));
    }
    desk.adopt(plan(10, 2));
    let mut out = Vec::new();
    for destination in 1..=10 {
        out.extend(desk.offer(destination, 1_000));
    }
    let tally = tally(&desk.serve(out, 1_000));
    assert!((745..=755).contains(&tally[&10]), "{tally:?}");
    assert!((1..=9).all(|destination| (26..=30).contains(&tally[&destination])), "{tally:?}");
}

#[test]
fn first_attempts_go_before_retries_and_each_keeps_a_share() {
    let mut desk = Desk::new(one_slot());
    desk.adopt(plan(1, 1));
    desk.adopt(plan(2, 1));
    let retries = (0..1_000).map(|_| desk.retry(2)).collect();
    let mut out = desk.tell(Input::Available { deliveries: retries });
    out.extend(desk.offer(1, 1_000));
    let tally = tally(&desk.serve(out, 1_000));
    assert!((195..=205).contains(&tally[&2]), "{tally:?}");
}

#[test]
fn neither_first_attempts_nor_retries_can_take_all_slots() {
    let limits = SchedulerLimits { in_flight_max: 100, window_max: 1_000, ..SchedulerLimits::default() };
    for (many, other) in [(Track::First, Track::Retry), (Track::Retry, Track::First)] {
        let mut desk = Desk::new(limits.clone());
        for destination in 1..=60 {
            desk.adopt(plan(destination, 1));
        }
        let offer = |desk: &mut Desk, track, from: u128| {
            let of = |desk: &mut Desk, d| if track == Track::First { desk.delivery(d) } else { desk.retry(d) };
            let deliveries = (0..300).map(|i| of(desk, from + i % 30)).collect();
            sent(&desk.tell(Input::Available { deliveries })).len()
        };
        // Of the 80 that one may have, 10 are for destinations that have no request out.
        assert_eq!(offer(&mut desk, many, 1), 70);
        assert_eq!(offer(&mut desk, other, 31), 30);
    }
}

#[test]
fn destinations_that_hang_cannot_take_all_slots() {
    let limits =
        SchedulerLimits { in_flight_max: 100, window_max: 1_000, reserved_percent: 0, ..SchedulerLimits::default() };
    let mut desk = Desk::new(limits);
    for destination in 1..=20 {
        desk.adopt(plan(destination, 1));
    }
    for destination in 1..=10 {
        desk.offer(destination, 100);
    }
    // 88 are shared; the tenth destination has its first from those kept for newcomers.
    assert_eq!(desk.scheduler.in_flight(), 89);
    for destination in 11..=20 {
        assert!(!sent(&desk.offer(destination, 1)).is_empty(), "destination {destination}");
    }
}

/// How many lanes are looked at to serve 10 ready destinations among many blocked ones.
fn visits_among(blocked: u128) -> u64 {
    let limits = SchedulerLimits { in_flight_max: 10, reserved_percent: 0, ..SchedulerLimits::default() };
    let mut desk = Desk::new(limits);
    let shared = plan(0, 0);
    let mut paused = GateState::default();
    let mut gate = Gate::restore(paused);
    gate.pause();
    paused = gate.state().clone();
    for destination in 11..11 + blocked {
        let plan = DestinationPlan {
            id: DestinationId(destination),
            tenant_id: TenantId(destination % 100),
            ..shared.clone()
        };
        desk.tell(Input::Adopted { plan: Box::new(plan), gate: Box::new(paused.clone()), backlog: false });
        desk.offer(destination, 1);
    }
    let mut out = Vec::new();
    for destination in 1..=10 {
        desk.adopt(DestinationPlan {
            id: DestinationId(destination),
            tenant_id: TenantId(destination),
            ..shared.clone()
        });
        out.extend(desk.offer(destination, 60));
    }
    let before = desk.scheduler.lanes_visited();
    assert_eq!(desk.serve(out, 500).len(), 500);
    desk.scheduler.lanes_visited() - before
}

#[test]
fn a_decision_costs_the_same_among_a_million_blocked_destinations() {
    let (few, many) = (visits_among(1_000), visits_among(1_000_000));
    assert_eq!(few, many);
    assert!(many <= 500 * 4, "{many} lanes looked at for 500 deliveries");
}

#[test]
fn a_tenant_that_only_retried_has_saved_no_turns_for_first_attempts() {
    let mut desk = Desk::new(one_slot());
    for (destination, tenant) in [(1, 1), (2, 2), (3, 2), (4, 2)] {
        desk.adopt(plan(destination, tenant));
    }
    let retries = (0..1_000).map(|n| desk.retry(3 + n % 2)).collect();
    let mut out = desk.tell(Input::Available { deliveries: retries });
    out.extend(desk.offer(1, 2_000));
    desk.serve(out, 1_000);
    desk.offer(2, 1_000);
    let flying = desk.scheduler.flights.values().map(|flight| flight.delivery.clone()).collect::<Vec<_>>();
    let out = desk.answer(flying[0].id, OK);
    let tally = tally(&desk.serve(out, 100));
    assert!(tally.get(&1).is_some_and(|n| *n >= 35), "{tally:?}");
}

#[test]
fn newcomers_find_room_though_retries_keep_their_share() {
    let limits = SchedulerLimits { in_flight_max: 100, window_max: 1_000, ..SchedulerLimits::default() };
    let mut desk = Desk::new(limits);
    for destination in 1..=15 {
        desk.adopt(plan(destination, 1));
    }
    for destination in 1..=10 {
        desk.offer(destination, 100);
    }
    for destination in 11..=15 {
        assert!(!sent(&desk.offer(destination, 1)).is_empty(), "destination {destination}");
    }
}

#[test]
fn a_lane_held_for_lack_of_slots_goes_on_when_there_are_slots_again() {
    let limits = SchedulerLimits { in_flight_max: 16, window_max: 1_000, ..SchedulerLimits::default() };
    let mut desk = Desk::new(SchedulerLimits { reserved_percent: 0, ..limits });
    for destination in 1..=20 {
        desk.adopt(plan(destination, 1));
    }
    let slow = sent(&desk.offer(1, 1)).remove(0);
    let others: Vec<Delivery> = (2..=14).flat_map(|d| sent(&desk.offer(d, 1))).collect();
    assert_eq!(sent(&desk.offer(1, 5)), [], "all shared slots are taken");
    let mut out = Vec::new();
    for delivery in others {
        out.extend(desk.answer(delivery.id, OK));
    }
    assert!(!sent(&out).is_empty(), "15 of 16 slots are free, and {} still hangs", slow.id);
}
