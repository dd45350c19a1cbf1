//! Bodies that are on their way in: whoever sends slowly holds memory meanwhile, and so much of it there is.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use doorstep_core::audit::Actor;

use crate::problem::Problem;

/// Bytes of all bodies of which more is to come.
pub(crate) const ARRIVING_BYTES_MAX: usize = 256 * 1024 * 1024;
/// One credential has this part of them, and all who need none have it together.
const CREDENTIALS_PART: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Bodies(Mutex<Arriving>);

#[derive(Debug, Default)]
struct Arriving {
    bytes: usize,
    /// By the actor's name. Whoever has none is forgotten.
    of: HashMap<Option<String>, usize>,
}

/// What one body takes, until it is there or has broken off.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    of: Option<String>,
    bytes: usize,
    bodies: &'a Bodies,
}

impl Bodies {
    pub(crate) fn begin(&self, actor: Option<&Actor>) -> Part<'_> {
        Part { of: actor.map(Actor::name), bytes: 0, bodies: self }
    }
}

impl Part<'_> {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        let mut all = self.bodies.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.of.get(&self.of).copied().unwrap_or(0);
        if all.bytes + bytes > ARRIVING_BYTES_MAX || own + bytes > ARRIVING_BYTES_MAX / CREDENTIALS_PART {
            return Err(Problem::busy(
                "too much is being sent in at the same time: try again when some of it is there",
            ));
        }
        all.bytes += bytes;
        all.of.insert(self.of.clone(), own + bytes);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut all = self.bodies.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.bytes -= self.bytes;
        let left = all.of.get(&self.of).copied().unwrap_or(0) - self.bytes;
        if left == 0 {
            all.of.remove(&self.of)
        } else {
            all.of.insert(self.of.take(), left)
        };
    }
}

#[cfg(test)]
mod tests {
    use doorstep_core::id::KeyId;

    use super::*;

    #[test]
    fn nobody_takes_more_than_their_part_and_all_of_it_comes_back() {
        let (bodies, part) = (Bodies::default(), ARRIVING_BYTES_MAX / CREDENTIALS_PART);
        let actors = [1, 2, 3, 4].map(|n| Actor::Key { id: KeyId(n), name: "k".to_owned() });
        let mut greedy = bodies.begin(Some(&actors[0]));
        greedy.take(part - 1).unwrap();
        let mut beside = bodies.begin(Some(&actors[0]));
        assert!(beside.take(2).is_err(), "of one credential, all bodies are counted together");
        beside.take(1).unwrap();
        let mut others: Vec<_> = actors[1..].iter().map(|actor| bodies.begin(Some(actor))).collect();
        others.iter_mut().for_each(|other| other.take(part).unwrap());
        let mut stranger = bodies.begin(None);
        assert!(stranger.take(1).is_err(), "and those of all");
        drop(greedy);
        stranger.take(part - 1).unwrap();
        drop((beside, others, stranger));
        let all = bodies.0.lock().unwrap();
        assert_eq!((all.bytes, all.of.len()), (0, 0));
    }
}
