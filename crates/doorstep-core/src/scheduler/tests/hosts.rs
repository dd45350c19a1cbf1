//! Destinations that share a receiving host.

use super::*;

#[test]
fn the_cap_per_host_is_exact_and_its_room_is_never_left_unused() {
    let limits = SchedulerLimits { per_host_max: Some(2), ..SchedulerLimits::default() };
    let mut desk = Desk::new(limits);
    for destination in 1..=4 {
        desk.adopt(plan(destination, 1));
    }
    desk.adopt(DestinationPlan { host: "elsewhere.example".into(), ..plan(5, 1) });
    let mut flying = Vec::new();
    for destination in 1..=5 {
        flying.extend(sent(&desk.offer(destination, 2)));
    }
    assert_eq!(tally(&flying.iter().map(|d| d.destination_id.0).collect::<Vec<_>>()), [(1, 2), (5, 2)].into());
    // The next in line is paused meanwhile: the room goes to the one behind it.
    desk.tell(Input::Handled { destination_id: DestinationId(2), hand: Hand::Pause });
    let out = desk.answer(flying[0].id, OK);
    assert_eq!(sent(&out)[0].destination_id, DestinationId(3));
    let mut total = flying.len() + 1;
    flying.push(sent(&out)[0].clone());
    let mut waiting: VecDeque<Delivery> = flying.drain(1..).collect();
    while let Some(delivery) = waiting.pop_front() {
        let more = sent(&desk.answer(delivery.id, OK));
        total += more.len();
        waiting.extend(more);
        assert!(waiting.iter().filter(|d| d.destination_id.0 < 5).count() <= 2);
    }
    assert_eq!(total, 8, "all but the two of the paused destination");
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
        desk.adopt(plan(destination, 9));
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
    for cut_short in ["by its own request", "by a read that failed"] {
        let limits = SchedulerLimits { per_host_max: Some(1), window_max: 1, ..SchedulerLimits::default() };
        let mut desk = Desk::new(limits);
        for destination in 1..=3 {
            desk.adopt(plan(destination, destination));
        }
        let out = desk.offer(1, 1);
        let first = sent(&out).remove(0);
        // The window of the first overflows, so that it reads; it waits for its host before the second does.
        let [(ticket, ..)] = refills(&desk.offer(1, 2))[..] else { panic!("no read") };
        desk.offer(2, 1);
        let out = if cut_short == "by its own request" {
            desk.tell(Input::Interrupted { delivery_id: first.id })
        } else {
            let mut out = desk.tell(Input::RefillFailed { ticket });
            out.extend(desk.answer(first.id, OK));
            out
        };
        assert_eq!(sent(&out).len(), 1, "{cut_short}: the host has room");
        if cut_short == "by its own request" {
            assert_eq!(sent(&out)[0].destination_id, DestinationId(2), "the first rests");
        }
    }
}
