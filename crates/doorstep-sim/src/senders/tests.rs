use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::arena::{Arena, Feed};

/// A sender that can be looked at while the arena has it.
struct Watched(Rc<RefCell<Doorstep>>);

impl Sender for Watched {
    fn offer(&mut self, destination: usize, n: u64, now: Timestamp) {
        self.0.borrow_mut().offer(destination, n, now);
    }

    fn start(&mut self, now: Timestamp) -> Vec<Request> {
        self.0.borrow_mut().start(now)
    }

    fn answered(&mut self, request: Request, outcome: &Outcome, now: Timestamp) {
        self.0.borrow_mut().answered(request, outcome, now);
    }

    fn wake_at(&self) -> Option<Timestamp> {
        self.0.borrow().wake_at()
    }

    fn obedience(&self, destination: usize) -> Obedience {
        self.0.borrow().obedience(destination)
    }
}

#[test]
fn a_gate_waits_for_as_long_as_our_books_say_or_a_little_longer() {
    let start = Timestamp(1_700_000_000_000);
    let says = [None, Some(Millis::from_secs(20)), Some(Millis::from_mins(90))];
    let (mut held, mut in_row) = (0, 0);
    for (n, wait) in says.into_iter().enumerate() {
        let limits = GateLimits { concurrency: 10, ..GateLimits::default() };
        let sender = Rc::new(RefCell::new(Doorstep::new(limits, true, n as u64, start)));
        let mut dice = SeededDice::new(n as u64);
        // Seven of ten are refused at random: often in a row.
        let receiver = |_: Timestamp| match dice.roll().up_to(Millis(9)).0 {
            0..7 => Outcome::Throttled { wait },
            _ => Outcome::Accepted { quota: None },
        };
        let mut arena = Arena::new(start, Box::new(receiver), 1);
        arena.add_fed(Box::new(Watched(Rc::clone(&sender))), &[(start, Feed::at_once(100))]);
        for ms in (0..7_200_000).step_by(777) {
            let now = start + Millis(ms);
            arena.run_until(now);
            let books = arena.obedience().remove(0);
            let sender = sender.borrow();
            let throttle = &sender.scheduler.gate(destination_id(0)).unwrap().state().throttle;
            let until = throttle.until().unwrap_or(start);
            let latest = books.held_until.max(start) + Millis::from_mins(1);
            assert!((books.held_until..=latest).contains(&until), "{wait:?}, {ms} ms: {books:?}, {throttle:?}");
            assert_eq!(throttle.consecutive() as usize, books.consecutive, "{wait:?}, {ms} ms");
            held += u64::from(books.held_until > now);
            in_row = in_row.max(books.consecutive);
        }
    }
    assert!(held > 1_000 && in_row > 2, "held {held} times, {in_row} in a row");
}
