//! The receiver, and the books that it keeps.

use doorstep_core::outcome::Outcome;
use doorstep_core::time::{Millis, Timestamp};

use super::Story;

/// What one way of sending came to.
#[derive(Clone, Debug, Default)]
pub(in crate::policy) struct Curve {
    /// Requests in each second from the start.
    pub(in crate::policy) per_second: Vec<u32>,
    /// Requests during the outage.
    pub(in crate::policy) in_vain: u64,
    /// Requests over the receiver's capacity.
    pub(in crate::policy) refused: u64,
    pub(in crate::policy) delivered: u64,
    pub(in crate::policy) dead: u64,
    /// The most attempts that any one delivery was charged.
    pub(in crate::policy) attempts_max: u32,
    /// The fullest second after the outage.
    pub(in crate::policy) peak_after: u32,
    /// How long after the outage nothing was left of what had gathered; `None`: not within the story.
    pub(in crate::policy) drained_after: Option<Millis>,
}

/// The receiver of one run.
#[derive(Debug)]
pub(in crate::policy) struct Books<'a> {
    story: &'a Story,
    curve: Curve,
    /// Deliveries from before the end of the outage that have not ended.
    gathered: u64,
    /// The capacity's window, and what has been taken of it.
    window: u64,
    taken: u64,
}

impl<'a> Books<'a> {
    pub(super) fn new(story: &'a Story) -> Self {
        let seconds = usize::try_from(story.lasts().0 / 1_000 + 1).unwrap_or(0);
        let gathered = (0..).take_while(|seq| since_start(story.created_at(*seq)) < story.ends()).count();
        Self {
            story,
            curve: Curve { per_second: vec![0; seconds], ..Curve::default() },
            gathered: gathered as u64,
            window: 0,
            taken: 0,
        }
    }

    /// A request arrives and is answered.
    pub(super) fn answer(&mut self, now: Timestamp) -> Outcome {
        let at = since_start(now);
        if let Some(n) = usize::try_from(at.0 / 1_000).ok().and_then(|second| self.curve.per_second.get_mut(second)) {
            *n += 1;
        }
        let failed = Outcome::Failed { status: 503, wait: None };
        if (self.story.begins()..self.story.ends()).contains(&at) {
            self.curve.in_vain += 1;
            return failed;
        }
        let window = at.0 / self.story.capacity.per.0;
        if window != self.window {
            (self.window, self.taken) = (window, 0);
        }
        if self.taken == self.story.capacity.n {
            self.curve.refused += 1;
            return failed;
        }
        self.taken += 1;
        Outcome::Accepted { quota: None }
    }

    /// Delivery number `seq` ended, and was charged so many attempts.
    pub(super) fn ended(&mut self, seq: u64, delivered: bool, attempts: u32, now: Timestamp) {
        self.curve.attempts_max = self.curve.attempts_max.max(attempts);
        if delivered {
            self.curve.delivered += 1;
        } else {
            self.curve.dead += 1;
        }
        if since_start(self.story.created_at(seq)) < self.story.ends() {
            self.gathered -= 1;
            if self.gathered == 0 {
                self.curve.drained_after = Some(since_start(now) - self.story.ends());
            }
        }
    }

    pub(super) fn close(mut self) -> Curve {
        let back = usize::try_from(self.story.ends().0.div_ceil(1_000)).unwrap_or(usize::MAX);
        self.curve.peak_after = self.curve.per_second.iter().skip(back).copied().max().unwrap_or(0);
        self.curve
    }
}

fn since_start(at: Timestamp) -> Millis {
    at.since(Timestamp(0))
}
