//! Senders against one receiver under a virtual clock: for measuring, not for doubting.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::outcome::Outcome;
use doorstep_core::time::{Millis, Timestamp};

/// Something that sends, retries and learns.
pub trait Sender {
    /// So many new deliveries want to go.
    fn offer(&mut self, n: u64, now: Timestamp);
    /// The requests that start now. Each is answered once, by the number that it has here.
    fn start(&mut self, now: Timestamp) -> Vec<u64>;
    fn answered(&mut self, request: u64, outcome: &Outcome, now: Timestamp);
    fn wake_at(&self) -> Option<Timestamp>;
}

/// What a receiver answers to a request that arrives now.
pub type Receiver<'a> = dyn FnMut(Timestamp) -> Outcome + 'a;

pub struct Arena<'a> {
    pub now: Timestamp,
    senders: Vec<Box<dyn Sender + 'a>>,
    receiver: Box<Receiver<'a>>,
    queue: BinaryHeap<Reverse<(Timestamp, u64, Event)>>,
    n_events: u64,
    /// The earliest wake-up that is queued, per sender.
    wakes: Vec<Option<Timestamp>>,
    dice: SeededDice,
}

impl std::fmt::Debug for Arena<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("now", &self.now).field("senders", &self.senders.len()).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(usize),
    Offer { sender: usize, every: Option<Millis>, left: u64 },
    Arrive(usize, u64),
    Answer(usize, u64, Answer),
}

/// An outcome as a part of an ordered event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Accepted,
    Throttled(Option<Millis>),
    Failed,
}

/// The way there and the way back take this long each, give or take.
const WAY_MIN: Millis = Millis(2);
const WAY_MAX: Millis = Millis(8);

impl<'a> Arena<'a> {
    pub fn new(start: Timestamp, receiver: Box<Receiver<'a>>, seed: u64) -> Self {
        Self {
            now: start,
            senders: Vec::new(),
            receiver,
            queue: BinaryHeap::new(),
            n_events: 0,
            wakes: Vec::new(),
            dice: SeededDice::new(seed),
        }
    }

    /// A sender with `backlog` deliveries at once, or one new delivery each `every` until there were so many.
    pub fn add(&mut self, sender: Box<dyn Sender + 'a>, backlog: u64, every: Option<Millis>) {
        let index = self.senders.len();
        self.senders.push(sender);
        self.wakes.push(None);
        let phase = every.map_or(Millis::ZERO, |every| self.dice.roll().up_to(every));
        self.push(self.now + phase, Event::Offer { sender: index, every, left: backlog });
    }

    pub fn run_until(&mut self, end: Timestamp) {
        while let Some(Reverse((at, ..))) = self.queue.peek()
            && *at <= end
            && let Some(Reverse((at, _, event))) = self.queue.pop()
        {
            self.now = at;
            self.step(event);
        }
        self.now = end;
    }

    fn step(&mut self, event: Event) {
        let sender = match event {
            Event::Wake(sender) => {
                if self.wakes[sender] != Some(self.now) {
                    return;
                }
                self.wakes[sender] = None;
                sender
            }
            Event::Offer { sender, every: None, left } => {
                self.senders[sender].offer(left, self.now);
                sender
            }
            Event::Offer { sender, every: Some(every), left } => {
                self.senders[sender].offer(1, self.now);
                if left > 1 {
                    self.push(self.now + every, Event::Offer { sender, every: Some(every), left: left - 1 });
                }
                sender
            }
            Event::Arrive(sender, request) => {
                let answer = match (self.receiver)(self.now) {
                    Outcome::Accepted { .. } => Answer::Accepted,
                    Outcome::Throttled { wait } => Answer::Throttled(wait),
                    _ => Answer::Failed,
                };
                let back = self.way();
                self.push(self.now + back, Event::Answer(sender, request, answer));
                return;
            }
            Event::Answer(sender, request, answer) => {
                let outcome = match answer {
                    Answer::Accepted => Outcome::Accepted { quota_spent_for: None },
                    Answer::Throttled(wait) => Outcome::Throttled { wait },
                    Answer::Failed => Outcome::Failed { status: 503, wait: None },
                };
                self.senders[sender].answered(request, &outcome, self.now);
                sender
            }
        };
        for request in self.senders[sender].start(self.now) {
            let there = self.way();
            self.push(self.now + there, Event::Arrive(sender, request));
        }
        self.wake(sender);
    }

    fn wake(&mut self, sender: usize) {
        let wanted = self.senders[sender].wake_at().map(|at| at.max(self.now + Millis(1)));
        if let Some(at) = wanted
            && self.wakes[sender].is_none_or(|queued| at < queued)
        {
            self.wakes[sender] = Some(at);
            self.push(at, Event::Wake(sender));
        }
    }

    fn way(&mut self) -> Millis {
        self.dice.roll().between(WAY_MIN, WAY_MAX)
    }

    fn push(&mut self, at: Timestamp, event: Event) {
        self.n_events += 1;
        self.queue.push(Reverse((at, self.n_events, event)));
    }
}
