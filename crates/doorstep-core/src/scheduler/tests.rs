use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::delivery::{BehindDead, OrderingSlot, Place};
use crate::dice::SeededDice;
use crate::gate::GateLimits;
use crate::id::TenantId;
use crate::outcome::Outcome;
use crate::retry::{Progress, RetryPolicy};

const T0: Timestamp = Timestamp(1_700_000_000_000);
const OK: Outcome = Outcome::Accepted { quota_spent_for: None };

/// A scheduler, a clock that moves by hand, and what it said last.
struct Desk {
    scheduler: Scheduler,
    now: Timestamp,
    dice: SeededDice,
    next_seq: u64,
}

impl Desk {
    fn new(limits: SchedulerLimits) -> Self {
        Self { scheduler: Scheduler::new(limits), now: T0, dice: SeededDice::new(1), next_seq: 1 }
    }

    fn tell(&mut self, input: Input) -> Vec<Command> {
        let mut out = Vec::new();
        self.scheduler.handle(input, self.now, &mut self.dice, &mut out);
        out
    }

    fn adopt(&mut self, plan: DestinationPlan) -> Vec<Command> {
        self.tell(Input::Adopted { plan: Box::new(plan), gate: Box::default(), backlog: false })
    }

    fn delivery(&mut self, destination: u128) -> Delivery {
        self.next_seq += 1;
        Delivery {
            id: DeliveryId(u128::from(self.next_seq)),
            event_seq: 0,
            destination_id: DestinationId(destination),
            seq: self.next_seq,
            due_at: self.now,
            requests: 0,
            progress: Progress {
                attempts: 0,
                ambiguous: 0,
                last_delay: Millis::ZERO,
                give_up_at: self.now + Millis::from_hours(72),
            },
            ordering: None,
        }
    }

    fn retry(&mut self, destination: u128) -> Delivery {
        let mut delivery = self.delivery(destination);
        delivery.progress.attempts = 1;
        delivery
    }

    fn offer(&mut self, destination: u128, n: usize) -> Vec<Command> {
        let deliveries = (0..n).map(|_| self.delivery(destination)).collect();
        self.tell(Input::Available { deliveries })
    }

    fn answer(&mut self, delivery_id: DeliveryId, outcome: Outcome) -> Vec<Command> {
        self.tell(Input::Answered { delivery_id, outcome })
    }

    /// Answers each request as it is sent, until `n` have been, and says where they went.
    fn serve(&mut self, commands: Vec<Command>, n: usize) -> Vec<u128> {
        let mut waiting: VecDeque<Delivery> = sent(&commands).into();
        let mut served = Vec::new();
        while served.len() < n
            && let Some(delivery) = waiting.pop_front()
        {
            served.push(delivery.destination_id.0);
            waiting.extend(sent(&self.answer(delivery.id, OK)));
        }
        served
    }
}

fn plan(destination: u128, tenant: u128) -> DestinationPlan {
    DestinationPlan {
        id: DestinationId(destination),
        tenant_id: TenantId(tenant),
        host: "example.com".into(),
        limits: Arc::new(GateLimits { burst: 1_000_000, ..GateLimits::default() }),
        policy: Arc::new(RetryPolicy::standard()),
        ordering: Ordering::Unordered,
        awaits_consent: false,
    }
}

fn sent(commands: &[Command]) -> Vec<Delivery> {
    let send = |command: &Command| match command {
        Command::Send { delivery, .. } => Some(delivery.clone()),
        _ => None,
    };
    commands.iter().filter_map(send).collect()
}

fn settled(commands: &[Command]) -> Vec<&Settlement> {
    let settle = |command: &'_ Command| matches!(command, Command::Settle(_));
    commands.iter().filter(|c| settle(c)).map(|c| if let Command::Settle(s) = c { s } else { unreachable!() }).collect()
}

fn refills(commands: &[Command]) -> Vec<(Ticket, Track, Option<Place>, usize)> {
    let refill = |command: &Command| match command {
        Command::Refill { ticket, track, after, limit, .. } => Some((*ticket, *track, *after, *limit)),
        _ => None,
    };
    commands.iter().filter_map(refill).collect()
}

fn tally(served: &[u128]) -> BTreeMap<u128, usize> {
    let mut tally = BTreeMap::new();
    for destination in served {
        *tally.entry(*destination).or_default() += 1;
    }
    tally
}

fn one_slot() -> SchedulerLimits {
    SchedulerLimits { in_flight_max: 1, window_max: 10_000, ..SchedulerLimits::default() }
}

#[test]
fn a_new_delivery_is_sent_at_once_and_settled_when_answered() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let out = desk.offer(1, 1);
    let [delivery] = &sent(&out)[..] else { panic!("{out:?}") };
    let out = desk.answer(delivery.id, OK);
    let [settlement] = settled(&out)[..] else { panic!("{out:?}") };
    assert_eq!(settlement.decision, Decision::Delivered);
    assert_eq!(settlement.delivery.requests, 1);
    assert_eq!(desk.scheduler.wake_at(), None);
}

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
fn a_throttled_destination_costs_nothing_until_its_time_comes() {
    let mut desk = Desk::new(SchedulerLimits { window_max: 8, ..SchedulerLimits::default() });
    desk.adopt(plan(1, 1));
    let out = desk.offer(1, 1);
    let out = desk.answer(sent(&out)[0].id, Outcome::Throttled { wait: Some(Millis::from_secs(60)) });
    assert!(out.iter().any(|c| matches!(c, Command::SaveGate { .. })), "{out:?}");
    assert!(out.iter().any(|c| matches!(c, Command::Announce { .. })), "{out:?}");
    assert_eq!(settled(&out)[0].decision, Decision::Requeue);
    let until = desk.scheduler.gate(DestinationId(1)).unwrap().state().throttle.until().unwrap();
    assert_eq!(desk.scheduler.wake_at(), Some(until));
    let visits = desk.scheduler.lanes_visited();
    for _ in 0..1_000 {
        assert_eq!(desk.offer(1, 1), []);
    }
    assert!(desk.scheduler.lanes_visited() <= visits + 1_000);
    let delivery = desk.delivery(1);
    assert_eq!(desk.scheduler.hold(&delivery, desk.now), Some(Hold::until(Why::Throttle, until)));
    desk.now = until;
    assert_eq!(sent(&desk.tell(Input::Woken)).len(), 1);
}

#[test]
fn a_failed_delivery_comes_back_when_it_is_due_and_not_before() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let out = desk.offer(1, 1);
    let out = desk.answer(sent(&out)[0].id, Outcome::TimedOut);
    let Decision::RetryAt(at) = settled(&out)[0].decision else { panic!("{out:?}") };
    assert_eq!(desk.scheduler.wake_at(), Some(at));
    desk.now = at - Millis(1);
    assert_eq!(desk.tell(Input::Woken), []);
    desk.now = at;
    let out = desk.tell(Input::Woken);
    assert_eq!(sent(&out)[0].progress.attempts, 1);
}

#[test]
fn an_interrupted_delivery_runs_again_and_pays_nothing() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let out = desk.offer(1, 1);
    let before = sent(&out)[0].clone();
    assert_eq!(desk.tell(Input::Interrupted { delivery_id: before.id }), [], "not at once");
    desk.now = desk.scheduler.wake_at().unwrap();
    assert_eq!(desk.tell(Input::Woken), [Command::Send { delivery: before, probe: false }]);
}

#[test]
fn a_lane_keeps_a_bounded_window_and_reads_on_where_it_left() {
    let limits = SchedulerLimits { in_flight_max: 1, window_max: 4, ..SchedulerLimits::default() };
    let mut desk = Desk::new(limits);
    desk.adopt(plan(1, 1));
    let backlog: Vec<Delivery> = (0..10).map(|_| desk.delivery(1)).collect();
    let out = desk.tell(Input::Available { deliveries: backlog.clone() });
    assert_eq!(refills(&out), []);
    let mut seen = vec![sent(&out)[0].seq];
    let mut out = desk.answer(backlog[0].id, OK);
    while seen.len() < 10 {
        for (ticket, track, after, limit) in refills(&out) {
            assert_eq!(track, Track::First);
            let rest: Vec<_> = backlog.iter().filter(|d| Some(d.place()) > after).take(limit).cloned().collect();
            let exhausted = rest.len() < limit;
            out.extend(desk.tell(Input::Refilled { ticket, deliveries: rest, exhausted }));
        }
        let delivery = sent(&out).remove(0);
        seen.push(delivery.seq);
        out = desk.answer(delivery.id, OK);
    }
    assert_eq!(seen, backlog.iter().map(|d| d.seq).collect::<Vec<_>>());
}

/// A lane of one slot and a window of two, whose store is being read behind its first two deliveries.
fn lane_being_read() -> (Desk, Ticket, Vec<Delivery>) {
    let mut desk = Desk::new(SchedulerLimits { in_flight_max: 1, window_max: 2, ..SchedulerLimits::default() });
    desk.adopt(plan(1, 1));
    let deliveries: Vec<Delivery> = (0..6).map(|_| desk.delivery(1)).collect();
    let out = desk.tell(Input::Available { deliveries: deliveries.clone() });
    let [(ticket, _, after, _)] = refills(&out)[..] else { panic!("{out:?}") };
    assert_eq!(after, Some(deliveries[1].place()));
    desk.answer(deliveries[0].id, OK);
    (desk, ticket, deliveries)
}

#[test]
fn what_arrives_during_a_read_is_not_lost_behind_it() {
    let (mut desk, ticket, deliveries) = lane_being_read();
    // The read was made before this one was committed, and finds one that is due long after it.
    let arrives = desk.delivery(1);
    let mut late = desk.delivery(1);
    late.due_at = desk.now + Millis::from_hours(1);
    desk.tell(Input::Available { deliveries: vec![arrives.clone()] });
    let mut out = desk.tell(Input::Refilled { ticket, deliveries: vec![deliveries[2].clone(), late], exhausted: true });
    let mut last = deliveries[1].id;
    for _ in 0..3 {
        out.extend(desk.answer(last, OK));
        match sent(&out).pop() {
            Some(delivery) => last = delivery.id,
            None => break,
        }
        if let Some((_, _, after, _)) = refills(&out).pop() {
            assert!(after < Some(arrives.place()), "read past a delivery that nobody has seen");
            return;
        }
    }
    panic!("never read again: {out:?}");
}

#[test]
fn a_read_does_not_bring_back_what_has_ended_meanwhile() {
    let (mut desk, ticket, deliveries) = lane_being_read();
    // Another node's view of time: the third one runs out of time while the read that found it is on its way.
    let mut overdue = deliveries[2].clone();
    overdue.progress.give_up_at = desk.now;
    let out = desk.tell(Input::Overdue { deliveries: vec![overdue] });
    assert_eq!(settled(&out)[0].decision, Decision::Dead(DeadReason::Expired));
    desk.tell(Input::Refilled { ticket, deliveries: deliveries[2..4].to_vec(), exhausted: false });
    let out = desk.answer(deliveries[1].id, OK);
    assert_eq!(sent(&out)[0].id, deliveries[3].id);
}

#[test]
fn a_store_that_cannot_be_read_is_asked_again_later() {
    let mut desk = Desk::new(SchedulerLimits::default());
    let out = desk.tell(Input::Adopted { plan: Box::new(plan(1, 1)), gate: Box::default(), backlog: true });
    let [(first, Track::First, None, 64), (second, Track::Retry, None, 64)] = refills(&out)[..] else {
        panic!("{out:?}")
    };
    assert_eq!(desk.tell(Input::RefillFailed { ticket: first }), []);
    let out = desk.tell(Input::Refilled { ticket: second, deliveries: vec![], exhausted: true });
    assert_eq!(out, [], "not at once");
    let mut desk_2 = Desk::new(SchedulerLimits::default());
    desk_2.tell(Input::Adopted { plan: Box::new(plan(1, 1)), gate: Box::default(), backlog: true });
    desk_2.tell(Input::RefillFailed { ticket: first });
    desk_2.tell(Input::RefillFailed { ticket: second });
    assert_eq!(desk_2.scheduler.wake_at(), Some(T0 + RESTS_FOR));
    desk_2.now = T0 + RESTS_FOR;
    assert_eq!(refills(&desk_2.tell(Input::Woken)).len(), 2);
}

#[test]
fn reads_at_once_are_bounded() {
    let mut desk = Desk::new(SchedulerLimits { refills_max: 3, ..SchedulerLimits::default() });
    let mut asked = Vec::new();
    for destination in 0..100 {
        let plan = Box::new(plan(destination, 1));
        asked.extend(refills(&desk.tell(Input::Adopted { plan, gate: Box::default(), backlog: true })));
    }
    assert_eq!(asked.len(), 3);
    let mut answered = 0;
    while let Some((ticket, ..)) = asked.pop() {
        answered += 1;
        asked.extend(refills(&desk.tell(Input::Refilled { ticket, deliveries: vec![], exhausted: true })));
        assert!(asked.len() <= 3);
    }
    assert_eq!(answered, 200);
}

#[test]
fn a_delivery_that_ran_out_of_time_is_not_sent() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let mut delivery = desk.delivery(1);
    delivery.progress.give_up_at = desk.now;
    let out = desk.tell(Input::Available { deliveries: vec![delivery] });
    assert_eq!(settled(&out)[0].decision, Decision::Dead(DeadReason::Expired));
    assert_eq!(settled(&out)[0].outcome, None);
    assert_eq!(sent(&out), []);
}

#[test]
fn a_withdrawn_delivery_is_neither_sent_nor_settled() {
    let mut desk = Desk::new(one_slot());
    desk.adopt(plan(1, 1));
    let deliveries: Vec<Delivery> = (0..3).map(|_| desk.delivery(1)).collect();
    desk.tell(Input::Available { deliveries: deliveries.clone() });
    for delivery in &deliveries[..2] {
        assert_eq!(desk.tell(Input::Withdrawn { delivery: Box::new(delivery.clone()) }), []);
    }
    let out = desk.answer(deliveries[0].id, Outcome::TimedOut);
    assert_eq!(settled(&out).len(), 0);
    assert_eq!(sent(&out)[0].id, deliveries[2].id);
}

#[test]
fn an_ordered_delivery_holds_its_key_until_it_ends() {
    let mut desk = Desk::new(SchedulerLimits::default());
    let ordering = Ordering::ByKey { behind_dead: BehindDead::Skip };
    desk.adopt(DestinationPlan { ordering, ..plan(1, 1) });
    let mut delivery = desk.delivery(1);
    delivery.ordering = Some(OrderingSlot { key: "order-7".into(), sequence: 1 });
    desk.tell(Input::Available { deliveries: vec![delivery.clone()] });
    let out = desk.answer(delivery.id, Outcome::TimedOut);
    assert!(!settled(&out)[0].releases_key);
    desk.now = desk.scheduler.wake_at().unwrap();
    desk.tell(Input::Woken);
    let out = desk.answer(delivery.id, OK);
    assert!(settled(&out)[0].releases_key);
}

#[test]
fn a_pause_holds_and_a_resume_lets_go() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let destination_id = DestinationId(1);
    let out = desk.tell(Input::Handled { destination_id, hand: Hand::Pause });
    assert!(matches!(out[..], [Command::SaveGate { .. }]));
    assert_eq!(desk.offer(1, 3), []);
    assert_eq!(desk.scheduler.wake_at(), None);
    let out = desk.tell(Input::Handled { destination_id, hand: Hand::Resume });
    assert_eq!(sent(&out).len(), 1, "with the ramp");
}

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

#[test]
fn a_dropped_destination_is_left_alone_and_can_come_back() {
    let mut desk = Desk::new(one_slot());
    desk.adopt(plan(1, 1));
    let out = desk.offer(1, 3);
    let flying = sent(&out)[0].id;
    desk.tell(Input::Dropped { destination_id: DestinationId(1) });
    let out = desk.answer(flying, OK);
    assert_eq!((sent(&out).len(), settled(&out).len()), (0, 1));
    assert!(desk.scheduler.gate(DestinationId(1)).is_none());
    desk.adopt(plan(1, 1));
    assert_eq!(sent(&desk.offer(1, 1)).len(), 1);
}

#[test]
fn a_destination_that_comes_back_while_it_leaves_keeps_its_count_of_requests() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    assert_eq!(sent(&desk.offer(1, 10)).len(), 10);
    desk.tell(Input::Dropped { destination_id: DestinationId(1) });
    desk.adopt(plan(1, 1));
    assert_eq!(sent(&desk.offer(1, 1)).len(), 0);
}

#[test]
fn after_stop_nothing_is_sent_and_answers_are_still_settled() {
    let mut desk = Desk::new(one_slot());
    desk.adopt(plan(1, 1));
    let out = desk.offer(1, 3);
    assert_eq!(desk.tell(Input::Stop), []);
    let out = desk.answer(sent(&out)[0].id, OK);
    assert_eq!((sent(&out).len(), settled(&out).len()), (0, 1));
}

/// How many lanes are looked at to serve 10 ready destinations among many blocked ones.
fn saved(commands: &[Command]) -> Vec<(DestinationId, GateState)> {
    let save = |command: &Command| match command {
        Command::SaveGate { destination_id, state } => Some((*destination_id, GateState::clone(state))),
        _ => None,
    };
    commands.iter().filter_map(save).collect()
}

#[test]
fn what_gates_have_learned_is_saved_at_the_end_a_page_at_a_time() {
    let mut desk = Desk::new(SchedulerLimits::default());
    let n = SAVED_PER_STOP as u128 + 10;
    for destination in 0..n + 5 {
        desk.adopt(plan(destination, 1));
    }
    let waiting: Vec<Delivery> = (0..n).flat_map(|destination| sent(&desk.offer(destination, 1))).collect();
    let (last, rest) = waiting.split_last().unwrap();
    for delivery in rest {
        let failed = desk.answer(delivery.id, Outcome::Failed { status: 503, wait: None });
        assert_eq!(saved(&failed), [], "not worth a write of its own");
    }
    assert_eq!(saved(&desk.tell(Input::Stop)), [], "one is in flight");
    desk.answer(last.id, OK);
    let mut all: Vec<(DestinationId, GateState)> = Vec::new();
    for expected in [SAVED_PER_STOP, 10, 0] {
        let page = saved(&desk.tell(Input::Stop));
        assert_eq!(page.len(), expected);
        all.extend(page);
    }
    for (id, state) in &all {
        assert_eq!(Some(state), desk.scheduler.gate(*id).map(Gate::state));
        assert_ne!(*state, GateState::default());
    }
    all.dedup_by_key(|(id, _)| *id);
    assert_eq!(all.len() as u128, n, "each once, and none that sent nothing");
}

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
fn a_read_that_fails_for_a_destination_on_its_way_out_leaves_no_timer_behind() {
    let mut desk = Desk::new(SchedulerLimits { in_flight_max: 1, window_max: 2, ..SchedulerLimits::default() });
    desk.adopt(plan(1, 1));
    let out = desk.offer(1, 6);
    let [(ticket, ..)] = refills(&out)[..] else { panic!("{out:?}") };
    desk.tell(Input::Dropped { destination_id: DestinationId(1) });
    desk.tell(Input::RefillFailed { ticket });
    desk.answer(sent(&out)[0].id, OK);
    assert_eq!(desk.scheduler.wake_at(), None, "nobody is left to wake");
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
fn one_that_is_sent_again_while_its_earlier_life_is_in_flight_is_not_forgotten() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    for ends in ["answered", "interrupted"] {
        let before = sent(&desk.offer(1, 1)).remove(0);
        desk.tell(Input::Withdrawn { delivery: Box::new(before.clone()) });
        let mut again = before.clone();
        again.progress.give_up_at = again.progress.give_up_at + Millis(1);
        assert_eq!(desk.tell(Input::Available { deliveries: vec![again.clone()] }), [], "one at a time");
        let out = match ends {
            "answered" => desk.answer(before.id, Outcome::TimedOut),
            _ => {
                desk.tell(Input::Interrupted { delivery_id: before.id });
                desk.now = desk.scheduler.wake_at().unwrap();
                desk.tell(Input::Woken)
            }
        };
        assert_eq!(settled(&out).len(), 0, "its earlier life is over");
        assert_eq!(sent(&out), [again.clone()], "{ends}");
        desk.answer(again.id, OK);
    }
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

#[test]
fn a_delivery_due_much_later_does_not_say_that_it_waits_for_a_slot() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    desk.offer(1, 20);
    let mut later = desk.delivery(1);
    later.due_at = desk.now + Millis::from_hours(1);
    assert_eq!(desk.scheduler.hold(&later, desk.now), Some(Hold::until(Why::DueTime, later.due_at)));
}

/// Every destination has a lane, and most are idle.
#[test]
fn an_idle_lane_takes_less_than_a_kilobyte() {
    assert!(size_of::<Option<Lane>>() <= 864, "{}", size_of::<Option<Lane>>());
}
