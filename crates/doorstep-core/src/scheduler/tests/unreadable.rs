//! Deliveries whose payload cannot be read.

use super::*;

impl Desk {
    fn unreadable(&mut self, deliveries: &[Delivery]) -> Vec<Command> {
        self.tell(Input::Unreadable { delivery_ids: deliveries.iter().map(|delivery| delivery.id).collect() })
    }

    /// Wakes the scheduler whenever it asks to be woken, up to a time, and returns what it said.
    fn run_until(&mut self, until: Timestamp) -> Vec<Command> {
        let mut out = Vec::new();
        while let Some(at) = self.scheduler.wake_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            out.extend(self.tell(Input::Woken));
        }
        self.now = until;
        out
    }
}

#[test]
fn it_steps_aside_pays_nothing_and_comes_back_later_each_time() {
    let mut desk = Desk::new(one_slot());
    desk.adopt(plan(1, 1));
    let mut poison = sent(&desk.offer(1, 2)).remove(0);
    let out = desk.unreadable(std::slice::from_ref(&poison));
    let other = sent(&out).remove(0);
    assert_ne!(other.id, poison.id, "the next one goes at once");
    desk.answer(other.id, OK);
    for rest in [60, 120] {
        let out = desk.unreadable_again(&mut poison);
        let [settlement] = settled(&out)[..] else { panic!("{out:?}") };
        let due_at = desk.now + Millis::from_secs(rest);
        assert_eq!((settlement.decision, settlement.outcome), (Decision::RetryAt(due_at), None));
        assert_eq!(settlement.delivery.progress, poison.progress, "it has cost nothing");
        assert_eq!(settlement.delivery.requests, 0);
        let hold = desk.scheduler.hold(&settlement.delivery, desk.now);
        assert_eq!(hold, Some(Hold::until(Why::UnreadablePayload, due_at)), "it says what it waits for");
    }
}

impl Desk {
    /// Waits until it is tried again, and says that it still cannot be read.
    fn unreadable_again(&mut self, poison: &mut Delivery) -> Vec<Command> {
        self.now = self.scheduler.wake_at().expect("it is tried again");
        let out = self.tell(Input::Woken);
        let [again] = &sent(&out)[..] else { panic!("{out:?}") };
        assert_eq!(again.id, poison.id);
        *poison = again.clone();
        self.unreadable(std::slice::from_ref(poison))
    }
}

/// One poisoned delivery, due before the others, at a destination that takes one request a second.
#[test]
fn it_takes_no_place_in_a_slow_pace() {
    let mut desk = Desk::new(SchedulerLimits { window_max: 2_000, ..SchedulerLimits::default() });
    let limits = GateLimits { rate: Rate::per_second(1), burst: 1, ..GateLimits::default() };
    desk.adopt(DestinationPlan { limits: Arc::new(limits), ..plan(1, 1) });
    let began = desk.now;
    let mut on_the_way = sent(&desk.offer(1, 240));
    let poison = on_the_way[0].id;
    let (mut n_others, mut n_read) = (0, 0);
    while desk.now < began + Millis::from_mins(4) {
        let out = match on_the_way.pop() {
            Some(delivery) if delivery.id == poison => {
                n_read += 1;
                desk.unreadable(&[delivery])
            }
            Some(delivery) => {
                n_others += 1;
                desk.answer(delivery.id, OK)
            }
            None => {
                let next = desk.now + Millis(100);
                desk.run_until(next)
            }
        };
        on_the_way.extend(sent(&out));
    }
    assert_eq!(n_others, 239, "as many as if it had not been there");
    assert_eq!(n_read, 2, "at once, and again when those that were due before it have gone");
}

#[test]
fn those_behind_it_with_the_same_key_wait_and_other_keys_go() {
    let mut desk = Desk::new(SchedulerLimits::default());
    let ordering = Ordering::ByKey { behind_dead: BehindDead::Skip };
    desk.adopt(DestinationPlan { ordering, ..plan(1, 1) });
    let mut keyed = |key: &str| {
        let ordering = Some(OrderingSlot { key: key.into(), sequence: 1 });
        Delivery { ordering, ..desk.delivery(1) }
    };
    let (poison, other) = (keyed("order-7"), keyed("order-8"));
    desk.tell(Input::Available { deliveries: vec![poison.clone(), other.clone()] });
    let out = desk.unreadable(&[poison]);
    assert!(!settled(&out)[0].releases_key, "its turn has not ended");
    let out = desk.answer(other.id, OK);
    assert!(settled(&out)[0].releases_key);
}

#[test]
fn what_a_person_has_ended_meanwhile_does_not_come_back() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let before = sent(&desk.offer(1, 1)).remove(0);
    desk.tell(Input::Withdrawn { delivery: Box::new(before.clone()) });
    assert_eq!(desk.unreadable(std::slice::from_ref(&before)), []);
    assert_eq!(desk.scheduler.wake_at(), None);
}

#[test]
fn a_probe_that_cannot_be_read_leaves_the_probe_to_the_next() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let flying = sent(&desk.offer(1, 10));
    for delivery in &flying {
        desk.answer(delivery.id, Outcome::TimedOut);
    }
    let trips = desk.scheduler.gate(DestinationId(1)).unwrap().state().breaker.is_tripped();
    assert!(trips, "ten failures in a row");
    assert_eq!(desk.offer(1, 2), []);
    let until = desk.now + Millis::from_mins(1);
    let out = desk.run_until(until);
    let probe = sent(&out).remove(0);
    let out = desk.unreadable(std::slice::from_ref(&probe));
    let [Command::Send { delivery, probe: true }] =
        &out.iter().filter(|command| matches!(command, Command::Send { .. })).collect::<Vec<_>>()[..]
    else {
        panic!("{out:?}")
    };
    assert_ne!(delivery.id, probe.id);
}

#[test]
fn one_that_runs_out_of_time_meanwhile_says_why() {
    let mut desk = Desk::new(SchedulerLimits::default());
    desk.adopt(plan(1, 1));
    let poison = sent(&desk.offer(1, 1)).remove(0);
    let out = desk.unreadable(&[poison]);
    let aside = settled(&out)[0].delivery.clone();
    desk.now = aside.progress.give_up_at;
    let out = desk.tell(Input::Overdue { deliveries: vec![aside] });
    assert_eq!(settled(&out)[0].decision, Decision::Dead(DeadReason::Expired));
    assert_eq!(settled(&out)[0].note, Some("its payload could not be read"));
}
