//! Refused credentials, counted by where they come from: whoever tries one after the other is slowed down.
//!
//! Keys, session tokens and codes made here have 200 bits of chance and more, and are good whoever else guesses from the same address. The admin key may have been
//! chosen by a person: from an address with too many refused credentials it is not even compared, unless it was used from there before.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use doorstep_core::ingest_rate::{Bucket, IngestRate};
use doorstep_core::time::{Millis, Timestamp};

use crate::connections::counted_as;

/// Refused credentials of one address, or of one /64 network of IPv6.
pub(crate) const REFUSED_PER_SOURCE: IngestRate = IngestRate { per_second: 1, burst: 100 };
/// Addresses that are remembered; beyond that some are forgotten.
const SOURCES_MAX: usize = 10_000;
/// Addresses from which the admin key was used; beyond that the oldest is forgotten.
const ADMIN_SOURCES_MAX: usize = 16;

/// `None`: it is not known where the request comes from.
type Source = Option<IpAddr>;

#[derive(Debug, Default)]
pub(crate) struct Guesses {
    of: Mutex<HashMap<Source, Bucket>>,
    admin_came_from: Mutex<Vec<Source>>,
}

impl Guesses {
    /// Counts a refused credential. `Err`: there were too many, and how long until the next one is judged.
    pub(crate) fn refused(&self, from: Source, now: Timestamp) -> Result<(), Millis> {
        let from = from.map(counted_as);
        let mut all = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= SOURCES_MAX
            && !all.contains_key(&from)
            && let Some(some) = all.keys().next().copied()
        {
            all.remove(&some);
        }
        all.entry(from).or_insert_with(|| Bucket::full(REFUSED_PER_SOURCE, now)).take(REFUSED_PER_SOURCE, now)
    }

    /// Whether the admin key, which was shown, is to be taken for good.
    pub(crate) fn admits_admin(&self, from: Source, now: Timestamp) -> bool {
        let from = from.map(counted_as);
        let mut known = self.admin_came_from.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&from) {
            return true;
        }
        let all = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let may_guess = all.get(&from).is_none_or(|bucket| {
            // A copy: looking takes nothing.
            let mut copy = *bucket;
            copy.take(REFUSED_PER_SOURCE, now).is_ok()
        });
        if may_guess {
            if known.len() >= ADMIN_SOURCES_MAX {
                known.remove(0);
            }
            known.push(from);
        }
        may_guess
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn from(address: &str) -> Source {
        Some(address.parse().unwrap())
    }

    fn flood(guesses: &Guesses, source: Source) {
        let n = (0..1_000).take_while(|_| guesses.refused(source, NOW).is_ok()).count();
        assert_eq!(n, REFUSED_PER_SOURCE.burst as usize);
    }

    #[test]
    fn an_address_has_so_many_guesses_and_then_one_a_second() {
        let guesses = Guesses::default();
        flood(&guesses, from("192.0.2.1"));
        assert_eq!(guesses.refused(from("192.0.2.1"), NOW), Err(Millis(1_000)));
        assert_eq!(guesses.refused(from("192.0.2.1"), NOW + Millis(1_000)), Ok(()));
        assert!(guesses.refused(from("192.0.2.1"), NOW + Millis(1_000)).is_err());
        assert_eq!(guesses.refused(from("192.0.2.2"), NOW), Ok(()), "the others have their own");
        flood(&guesses, from("2001:db8::1"));
        assert!(guesses.refused(from("2001:db8::2"), NOW).is_err(), "a network of IPv6 is one");
    }

    #[test]
    fn the_admin_key_cannot_be_guessed_on_but_whoever_has_used_it_keeps_it() {
        let guesses = Guesses::default();
        assert!(guesses.admits_admin(from("192.0.2.1"), NOW));
        flood(&guesses, from("192.0.2.1"));
        flood(&guesses, from("192.0.2.2"));
        assert!(guesses.admits_admin(from("192.0.2.1"), NOW), "it was used from there before");
        assert!(!guesses.admits_admin(from("192.0.2.2"), NOW), "this may be the guess that fits");
        assert!(guesses.admits_admin(from("192.0.2.2"), NOW + Millis(1_000)));
    }

    #[test]
    fn memory_for_addresses_is_bounded() {
        let guesses = Guesses::default();
        for n in 0..2 * SOURCES_MAX as u32 {
            guesses.refused(Some(IpAddr::V4(n.into())), NOW).unwrap();
            guesses.admits_admin(Some(IpAddr::V4(n.into())), NOW);
        }
        assert_eq!(guesses.of.lock().unwrap().len(), SOURCES_MAX);
        assert_eq!(guesses.admin_came_from.lock().unwrap().len(), ADMIN_SOURCES_MAX);
    }
}
