//! A receiver's own rate limit: so many requests in a window, which begins with the first of them.

use doorstep_core::time::{Millis, Timestamp};

use crate::rate::Rate;

#[derive(Debug)]
pub(super) struct Quota {
    rate: Rate,
    ends_at: Option<Timestamp>,
    spent: u64,
}

impl Quota {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, ends_at: None, spent: 0 }
    }

    /// Spends one request, or says how long until there is quota again.
    pub(super) fn spend(&mut self, now: Timestamp) -> Result<(), Millis> {
        let ends_at = match self.ends_at {
            Some(ends_at) if now < ends_at => ends_at,
            Some(_) | None => {
                self.spent = 0;
                now + self.rate.per
            }
        };
        self.ends_at = Some(ends_at);
        if self.spent == self.rate.n {
            return Err(ends_at.since(now));
        }
        self.spent += 1;
        Ok(())
    }
}
