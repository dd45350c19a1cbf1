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
        for destination in 1..=120 {
            desk.adopt(plan(destination, destination));
        }
        let offer = |desk: &mut Desk, track, from: u128| {
            let of = |desk: &mut Desk, d| if track == Track::First { desk.delivery(d) } else { desk.retry(d) };
            let deliveries = (0..600).map(|i| of(desk, from + i % 60)).collect();
            sent(&desk.tell(Input::Available { deliveries })).len()
        };
        // Of the 80 that one may have, 10 are for tenants that have no request out.
        assert_eq!(offer(&mut desk, many, 1), 69);
        assert_eq!(offer(&mut desk, other, 61), 31);
    }
}

/// Tells `hogs` tenants of 20 destinations each, with more than enough queued, and counts what each has out when nothing is answered.
fn hang(desk: &mut Desk, hogs: std::ops::RangeInclusive<u128>) -> Vec<usize> {
    let before = |desk: &Desk| desk.scheduler.in_flight();
    let mut held = Vec::new();
    for tenant in hogs {
        let had = before(desk);
        for destination in tenant * 100..tenant * 100 + 20 {
            desk.adopt(plan(destination, tenant));
            desk.offer(destination, 20);
            let retries = (0..20).map(|_| desk.retry(destination)).collect();
            desk.tell(Input::Available { deliveries: retries });
        }
        held.push(before(desk) - had);
    }
    held
}

#[test]
fn no_tenant_holds_all_slots_even_while_others_are_idle() {
    for in_flight_max in [1, 2, 3, 4, 8, 16, 64, 4_096] {
        for reserved_percent in [0, 20, 50] {
            let limits = SchedulerLimits { in_flight_max, reserved_percent, ..SchedulerLimits::default() };
            let mut desk = Desk::new(limits);
            let held = hang(&mut desk, 1..=1);
            let case = format!("{held:?} of {in_flight_max}, {reserved_percent} % reserved");
            assert!(held[0] > 0 && (in_flight_max == 1 || held[0] < in_flight_max), "{case}");
            // A tenant alone is not starved either.
            assert!(held[0] >= in_flight_max.min(400) / 3, "{case}");
        }
    }
}

#[test]
fn a_newcomers_first_event_finds_a_slot_whatever_others_hold() {
    for (in_flight_max, hogs) in [(2, 1), (4, 1), (16, 3), (64, 8), (4_096, 200)] {
        for track in Track::ALL {
            let mut desk = Desk::new(SchedulerLimits { in_flight_max, ..SchedulerLimits::default() });
            let held = hang(&mut desk, 1..=hogs);
            desk.adopt(plan(1, 100_000));
            let delivery = if track == Track::First { desk.delivery(1) } else { desk.retry(1) };
            let out = desk.tell(Input::Available { deliveries: vec![delivery] });
            assert_eq!(sent(&out).len(), 1, "{track:?} of {in_flight_max}: {held:?}");
        }
    }
}

#[test]
fn tenants_that_hang_together_end_up_with_even_parts_and_some_slots_stay_free() {
    let mut desk = Desk::new(SchedulerLimits { in_flight_max: 256, reserved_percent: 0, ..SchedulerLimits::default() });
    hang(&mut desk, 1..=10);
    // Requests come to their end, the longest first.
    let mut flying: VecDeque<DeliveryId> = desk.scheduler.flights.keys().copied().collect();
    flying.make_contiguous().sort();
    for _ in 0..1_000 {
        let oldest = flying.pop_front().unwrap();
        flying.extend(sent(&desk.answer(oldest, OK)).into_iter().map(|delivery| delivery.id));
    }
    let mut held: BTreeMap<u128, usize> = BTreeMap::new();
    for flight in desk.scheduler.flights.values() {
        *held.entry(flight.delivery.destination_id.0 / 100).or_default() += 1;
    }
    let (least, most) = (held.values().min().unwrap(), held.values().max().unwrap());
    assert!(held.len() == 10 && most - least <= 8, "{held:?}");
    assert!(256 - desk.scheduler.in_flight() >= 32, "the newcomers' share is free: {held:?}");
}

#[test]
fn slots_that_are_short_go_by_weight() {
    let mut desk = Desk::new(SchedulerLimits { in_flight_max: 64, reserved_percent: 0, ..SchedulerLimits::default() });
    desk.tell(Input::Weighted { tenant_id: TenantId(2), weight: 3 });
    for (destination, tenant) in (1..=10).map(|d| (d, 1)).chain((11..=20).map(|d| (d, 2))) {
        desk.adopt(plan(destination, tenant));
    }
    let mut out = Vec::new();
    for destination in 1..=20 {
        out.extend(desk.offer(destination, 60));
    }
    let mut flying: VecDeque<Delivery> = sent(&out).into();
    let mut served = [0, 0];
    for turn in 0..600 {
        let delivery = flying.pop_front().unwrap();
        let tenant = usize::from(delivery.destination_id.0 > 10);
        served[tenant] += usize::from(turn >= 100);
        flying.extend(sent(&desk.answer(delivery.id, OK)));
    }
    assert!((2.0..=4.0).contains(&(served[1] as f64 / served[0] as f64)), "{served:?}");
}

#[test]
fn destinations_that_hang_leave_first_requests_to_others_of_their_tenant() {
    let limits =
        SchedulerLimits { in_flight_max: 100, window_max: 1_000, reserved_percent: 0, ..SchedulerLimits::default() };
    let mut desk = Desk::new(limits);
    for destination in 1..=20 {
        desk.adopt(plan(destination, 1));
    }
    for destination in 1..=5 {
        desk.offer(destination, 100);
    }
    // As many as stay free beyond the twelve for tenants that have none.
    assert_eq!(desk.scheduler.in_flight(), 44);
    for destination in 6..=16 {
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
    gate.pause(Timestamp(0));
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
    for destination in 11..=14 {
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

#[test]
fn a_lane_that_waits_for_a_slot_says_so_and_costs_nothing_until_there_is_one() {
    let mut desk = Desk::new(SchedulerLimits { in_flight_max: 64, ..SchedulerLimits::default() });
    hang(&mut desk, 1..=1);
    let waits = desk.delivery(115);
    assert_eq!(desk.scheduler.hold(&waits, desk.now), Some(Hold::for_event(Why::Capacity)));
    let visits = desk.scheduler.lanes_visited();
    desk.adopt(plan(1, 2));
    for _ in 0..100 {
        let out = desk.offer(1, 1);
        desk.answer(sent(&out)[0].id, OK);
    }
    // The other tenant's requests come and go: what is free falls and rises by one, and nobody is called for nothing.
    assert!(desk.scheduler.lanes_visited() - visits <= 100 * 6, "{}", desk.scheduler.lanes_visited() - visits);
}
