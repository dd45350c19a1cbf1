//! Memory for bodies: those that are on their way in, and large answers that are on their way out. Whoever sends or reads slowly holds
//! memory meanwhile, so each holder has a share of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use doorstep_core::audit::Actor;

use crate::problem::Problem;

/// Bytes of all bodies together.
pub(crate) const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;
/// One holder has this part of them; all requests without a credential are one holder.
const HOLDERS_PART: usize = 4;

/// Bytes of events that wait to be written, of all requests that are not small. The engine takes as many before it refuses everybody's.
pub(crate) const WRITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// One credential has this part of them.
const WRITERS_PART: usize = 2;

#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    bytes_max: usize,
    /// Of one holder.
    own_max: usize,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// Who holds nothing is not in it.
    of: HashMap<Holder, usize>,
}

/// Who memory is counted for. `None`: nobody who is known.
type Holder = Option<String>;

/// What one body takes, until this is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    of: Holder,
    bytes: usize,
    bodies: Bodies,
}

impl Default for Bodies {
    fn default() -> Self {
        Self::new(HELD_BYTES_MAX, HOLDERS_PART)
    }
}

impl Bodies {
    fn new(bytes_max: usize, part: usize) -> Self {
        Self { bytes_max, own_max: bytes_max / part, held: Arc::default() }
    }

    /// For events that wait to be written.
    pub(crate) fn writing() -> Self {
        Self::new(WRITING_BYTES_MAX, WRITERS_PART)
    }

    pub(crate) fn begin(&self, actor: Option<&Actor>) -> Part {
        self.begin_for(actor.map(Actor::name))
    }

    pub(crate) fn begin_for(&self, of: Holder) -> Part {
        Part { of, bytes: 0, bodies: self.clone() }
    }
}

impl Part {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        let mut held = self.bodies.held.lock().unwrap_or_else(PoisonError::into_inner);
        let own = held.of.get(&self.of).copied().unwrap_or(0);
        if held.bytes + bytes > self.bodies.bytes_max || own + bytes > self.bodies.own_max {
            return Err(Problem::busy(
                "too many bytes are being sent or read with this credential at the same time: try again when some of it is done",
            ));
        }
        held.bytes += bytes;
        held.of.insert(self.of.clone(), own + bytes);
        self.bytes += bytes;
        Ok(())
    }

    /// Everything back.
    pub(crate) fn clear(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut held = self.bodies.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.bytes -= self.bytes;
        let left = held.of.get(&self.of).copied().unwrap_or(0) - self.bytes;
        if left == 0 {
            held.of.remove(&self.of)
        } else {
            held.of.insert(self.of.clone(), left)
        };
        self.bytes = 0;
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
impl Bodies {
    /// Bytes in all, and how many hold some.
    pub(crate) fn held(&self) -> (usize, usize) {
        let held = self.held.lock().unwrap();
        (held.bytes, held.of.len())
    }
}

#[cfg(test)]
mod tests {
    use doorstep_core::id::KeyId;

    use super::*;

    #[test]
    fn nobody_takes_more_than_their_part_and_all_of_it_comes_back() {
        let (bodies, part) = (Bodies::default(), HELD_BYTES_MAX / HOLDERS_PART);
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
        greedy.clear();
        stranger.take(part - 1).unwrap();
        drop((greedy, beside, others, stranger));
        assert_eq!(bodies.held(), (0, 0));
    }
}
