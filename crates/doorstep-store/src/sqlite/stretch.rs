//! Where an owner's deliveries are, roughly: which stretches of numbers to look at for those of a destination or a tenant.
//! The same for a tenant's events.

use std::ops::Range;

use doorstep_core::id_map::IdMap;
use rusqlite::params;

use super::batch::Batch;
use super::fault::Fault;

/// How many numbers a stretch has. A page of a list looks at no more rows than this for each line that it finds.
pub(super) const STRETCH: i64 = 1_024;

pub(super) const OF_OWNER: &str =
    "select stretch from stretches where owner = ?1 and stretch <= ?2 order by stretch desc";

/// The stretch that each owner was last seen in: most deliveries are in the same one as the owner's last.
#[derive(Debug, Default)]
pub(super) struct Stretches(IdMap<u128, i64>);

/// How many owners are remembered.
const OWNERS_MAX: usize = 100_000;

impl Stretches {
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Whether this has not been noted yet, as far as is known.
    fn is_news(&mut self, owner: u128, stretch: i64) -> bool {
        if self.0.len() >= OWNERS_MAX {
            self.forget();
        }
        self.0.insert(owner, stretch) != Some(stretch)
    }
}

pub(super) const OF_EVENT_OWNER: &str =
    "select stretch from event_stretches where owner = ?1 and stretch <= ?2 order by stretch desc";

impl Batch<'_> {
    /// Notes that the event with this number is this tenant's.
    pub(super) fn note_event(&mut self, owner: u128, seq: i64) -> Result<(), Fault> {
        let stretch = seq / STRETCH;
        if self.event_stretches.is_news(owner, stretch) {
            self.execute(
                "insert or ignore into event_stretches (owner, stretch) values (?1, ?2)",
                params![owner.to_be_bytes(), stretch],
            )?;
        }
        Ok(())
    }

    /// Notes that the delivery with this number is this owner's.
    pub(super) fn note_owner(&mut self, owner: u128, seq: i64) -> Result<(), Fault> {
        let stretch = seq / STRETCH;
        if self.stretches.is_news(owner, stretch) {
            self.execute(
                "insert or ignore into stretches (owner, stretch) values (?1, ?2)",
                params![owner.to_be_bytes(), stretch],
            )?;
        }
        Ok(())
    }
}

/// Looks through stretches of numbers, from the newest on, until a page is full.
pub(super) fn fill<T>(
    limit: usize,
    stretches: impl Iterator<Item = rusqlite::Result<Range<i64>>>,
    mut look: impl FnMut(&Range<i64>, usize) -> Result<Vec<T>, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut found = Vec::new();
    for stretch in stretches {
        found.extend(look(&stretch?, limit - found.len())?);
        if found.len() == limit {
            break;
        }
    }
    Ok(found)
}

/// The numbers in a stretch.
pub(super) fn numbers(stretch: i64) -> Range<i64> {
    stretch * STRETCH..(stretch + 1) * STRETCH
}
