mod consent;
mod fairness;
mod hosts;
mod reads;
mod saves;
mod unreadable;
mod voided;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::saves::SAVED_AT_ONCE;
use super::*;
use crate::delivery::{BehindDead, OrderingSlot, Place};
use crate::dice::SeededDice;
use crate::gate::{GateLimits, Rate};
use crate::id::TenantId;
use crate::outcome::Outcome;
use crate::retry::{DeadReason, Progress, RetryPolicy};

const T0: Timestamp = Timestamp(1_700_000_000_000);
const OK: Outcome = Outcome::Accepted { quota: None };

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
            unreadable: 0,
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
    let n = SAVED_AT_ONCE as u128 + 10;
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
    for expected in [SAVED_AT_ONCE, 10, 0] {
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

#[test]
fn a_request_whose_fate_is_unknown_counts_in_the_pace_after_a_restart_too() {
    let mut desk = Desk::new(SchedulerLimits::default());
    let limits = GateLimits { rate: Rate::per_second(1), burst: 1, ..GateLimits::default() };
    let slow = DestinationPlan { limits: Arc::new(limits), ..plan(1, 1) };
    desk.adopt(slow.clone());
    let first = sent(&desk.offer(1, 2)).remove(0);
    desk.tell(Input::Interrupted { delivery_id: first.id });
    let [(_, state)] = &saved(&desk.tell(Input::Stop))[..] else { panic!("its gate is not saved") };
    let mut next = Desk::new(SchedulerLimits::default());
    next.tell(Input::Adopted { plan: Box::new(slow), gate: Box::new(state.clone()), backlog: false });
    assert_eq!(sent(&next.offer(1, 1)), [], "it waits for its pace");
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
fn the_end_of_an_earlier_life_leaves_the_present_one_alone() {
    let again = |before: &Delivery| {
        let mut again = before.clone();
        again.progress.give_up_at = again.progress.give_up_at + Millis::from_hours(1);
        again
    };
    // While it waits: the news of its end comes late, by hand or because it was found overdue.
    for news in ["withdrawn", "overdue"] {
        let mut desk = Desk::new(SchedulerLimits::default());
        desk.adopt(plan(1, 1));
        desk.tell(Input::Handled { destination_id: DestinationId(1), hand: Hand::Pause });
        let before = desk.delivery(1);
        desk.tell(Input::Available { deliveries: vec![again(&before)] });
        let late = match news {
            "withdrawn" => Input::Withdrawn { delivery: Box::new(before.clone()) },
            _ => {
                desk.now = before.progress.give_up_at;
                Input::Overdue { deliveries: vec![before.clone()] }
            }
        };
        desk.tell(late);
        let out = desk.tell(Input::Handled { destination_id: DestinationId(1), hand: Hand::Resume });
        assert_eq!(sent(&out), [again(&before)], "{news}");
    }
    // While its earlier life is in flight.
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let before = sent(&desk.offer(1, 1)).remove(0);
    desk.tell(Input::Available { deliveries: vec![again(&before)] });
    desk.tell(Input::Withdrawn { delivery: Box::new(before.clone()) });
    let out = desk.answer(before.id, Outcome::TimedOut);
    assert_eq!((settled(&out).len(), sent(&out)), (0, vec![again(&before)]));
    // What was to be tried again of the earlier life goes, though the present one is in flight already.
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let before = sent(&desk.offer(1, 1)).remove(0);
    let out = desk.answer(before.id, Outcome::TimedOut);
    let retried = settled(&out)[0].delivery.clone();
    assert_eq!(sent(&desk.tell(Input::Available { deliveries: vec![again(&before)] })).len(), 1);
    desk.tell(Input::Withdrawn { delivery: Box::new(retried.clone()) });
    desk.answer(before.id, OK);
    desk.now = retried.due_at;
    assert_eq!(sent(&desk.tell(Input::Woken)), [], "its earlier life has ended");
    // And the end of the new life is not mistaken for that of the old one.
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let before = sent(&desk.offer(1, 1)).remove(0);
    desk.tell(Input::Withdrawn { delivery: Box::new(before.clone()) });
    desk.tell(Input::Available { deliveries: vec![again(&before)] });
    desk.answer(before.id, OK);
    let newer = again(&before);
    desk.tell(Input::Withdrawn { delivery: Box::new(newer.clone()) });
    assert_eq!((settled(&desk.answer(newer.id, OK)).len(), desk.scheduler.in_flight()), (0, 0));
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
