//! Senders against one receiver under a virtual clock: for measuring, not for doubting.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::outcome::Outcome;
use doorstep_core::time::{Millis, Timestamp};

use crate::senders::Obedience;

/// Something that sends to one or more destinations, retries and learns.
pub trait Sender {
    /// So many new deliveries want to go to this destination.
    fn offer(&mut self, destination: usize, n: u64, now: Timestamp);
    /// The requests that start now. Each is answered once.
    fn start(&mut self, now: Timestamp) -> Vec<Request>;
    fn answered(&mut self, request: Request, outcome: &Outcome, now: Timestamp);
    fn wake_at(&self) -> Option<Timestamp>;
    /// What an obedient sender in its place has to keep to at this destination.
    fn obedience(&self, destination: usize) -> Obedience;
    /// A request has arrived. Returns whether the sender looks at arrivals at all: only an oracle can.
    fn arrived(&mut self, _: Request, _: Timestamp) -> bool {
        false
    }
}

/// A request of one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Which of the sender's destinations it goes to, from 0.
    pub destination: usize,
    /// The sender's own number for it.
    pub number: u64,
}

/// What a receiver does with a request that arrives now.
pub trait Receiver {
    /// `destination` counts over all senders, in the order in which they were added.
    fn receive(&mut self, destination: usize, now: Timestamp) -> Reply;
}

#[derive(Clone, Copy, Debug)]
pub struct Reply {
    pub outcome: Outcome,
    /// How long the receiver works on it. The way back comes on top.
    pub after: Millis,
}

/// A receiver that answers at once and does not care which destination it is.
impl<F: FnMut(Timestamp) -> Outcome> Receiver for F {
    fn receive(&mut self, _: usize, now: Timestamp) -> Reply {
        Reply { outcome: self(now), after: Millis::ZERO }
    }
}

/// How a destination's deliveries come: `batch` at once, then again after each `every`, until there were `left` of them.
#[derive(Clone, Copy, Debug)]
pub struct Feed {
    pub batch: u64,
    pub every: Option<Millis>,
    pub left: u64,
}

impl Feed {
    pub fn at_once(n: u64) -> Self {
        Self { batch: n, every: None, left: n }
    }
}

/// How long a request is on its way, there and back: anything between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    pub there: (Millis, Millis),
    pub back: (Millis, Millis),
}

impl Default for Ways {
    fn default() -> Self {
        let way = (Millis(2), Millis(8));
        Self { there: way, back: way }
    }
}

pub struct Arena<'a> {
    pub now: Timestamp,
    senders: Vec<Box<dyn Sender + 'a>>,
    /// The number of each sender's first destination.
    first_destinations: Vec<usize>,
    n_destinations: usize,
    receiver: Box<dyn Receiver + 'a>,
    ways: Ways,
    queue: BinaryHeap<Queued>,
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

#[derive(Clone, Copy, Debug)]
enum Event {
    Wake(usize),
    Offer(usize, usize, Feed),
    Arrive(usize, Request),
    Answer(usize, Request, Outcome),
}

/// An event in its place: the earliest first, and in the order of their making if they are at the same time.
#[derive(Debug)]
struct Queued {
    at: Timestamp,
    n: u64,
    event: Event,
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.n).cmp(&(self.at, self.n))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Queued {}

impl<'a> Arena<'a> {
    pub fn new(start: Timestamp, receiver: Box<dyn Receiver + 'a>, seed: u64) -> Self {
        Self {
            now: start,
            senders: Vec::new(),
            first_destinations: Vec::new(),
            n_destinations: 0,
            receiver,
            ways: Ways::default(),
            queue: BinaryHeap::new(),
            n_events: 0,
            wakes: Vec::new(),
            dice: SeededDice::new(seed),
        }
    }

    pub fn with_ways(self, ways: Ways) -> Self {
        Self { ways, ..self }
    }

    /// A sender with one destination and `backlog` deliveries at once, or one new delivery each `every` until there were so many.
    pub fn add(&mut self, sender: Box<dyn Sender + 'a>, backlog: u64, every: Option<Millis>) {
        let phase = every.map_or(Millis::ZERO, |every| self.dice.roll().up_to(every));
        let batch = if every.is_some() { 1 } else { backlog };
        self.add_fed(sender, &[(self.now + phase, Feed { batch, every, left: backlog })]);
    }

    /// A sender with a destination for each of these feeds, which begin at the given times.
    pub fn add_fed(&mut self, sender: Box<dyn Sender + 'a>, feeds: &[(Timestamp, Feed)]) {
        let index = self.senders.len();
        self.senders.push(sender);
        // It may have something to send before the first delivery comes.
        self.wakes.push(Some(self.now));
        self.push(self.now, Event::Wake(index));
        self.first_destinations.push(self.n_destinations);
        self.n_destinations += feeds.len();
        for (destination, (first_at, feed)) in feeds.iter().enumerate() {
            self.push(*first_at, Event::Offer(index, destination, *feed));
        }
    }

    /// What an obedient sender would have to keep to now, for each destination.
    pub fn obedience(&self) -> Vec<Obedience> {
        let ends = self.first_destinations.iter().skip(1).copied().chain([self.n_destinations]);
        let of_each = self.senders.iter().zip(self.first_destinations.iter().zip(ends));
        of_each.flat_map(|(sender, (first, end))| (0..end - first).map(|n| sender.obedience(n))).collect()
    }

    pub fn run_until(&mut self, end: Timestamp) {
        while let Some(next) = self.queue.peek()
            && next.at <= end
            && let Some(Queued { at, event, .. }) = self.queue.pop()
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
            Event::Offer(sender, destination, feed) => {
                let n = feed.batch.min(feed.left);
                self.senders[sender].offer(destination, n, self.now);
                let left = feed.left - n;
                if let Some(every) = feed.every
                    && left > 0
                {
                    self.push(self.now + every, Event::Offer(sender, destination, Feed { left, ..feed }));
                }
                sender
            }
            Event::Arrive(sender, request) => {
                let destination = self.first_destinations[sender] + request.destination;
                let Reply { outcome, after } = self.receiver.receive(destination, self.now);
                let back = self.way(self.ways.back);
                self.push(self.now + after + back, Event::Answer(sender, request, outcome));
                if !self.senders[sender].arrived(request, self.now) {
                    return;
                }
                sender
            }
            Event::Answer(sender, request, outcome) => {
                self.senders[sender].answered(request, &outcome, self.now);
                sender
            }
        };
        for request in self.senders[sender].start(self.now) {
            let there = self.way(self.ways.there);
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

    fn way(&mut self, (least, most): (Millis, Millis)) -> Millis {
        self.dice.roll().between(least, most)
    }

    fn push(&mut self, at: Timestamp, event: Event) {
        self.n_events += 1;
        self.queue.push(Queued { at, n: self.n_events, event });
    }
}
