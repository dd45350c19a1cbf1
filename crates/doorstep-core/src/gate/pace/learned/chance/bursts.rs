//! How many requests may leave at once after a wait, where refusals come by chance.
//!
//! Counted is what was admitted and refused by place in the burst. A burst grows while its last places are refused no more often than
//! chance explains, and shrinks to where they are.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Bursts {
    /// By place, from the first request on; larger places hold several requests.
    places: Vec<Place>,
}

/// Millionths of a request, since what is long ago counts for less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    admitted: u64,
    refused: u64,
}

const ONE: u64 = 1_000_000;
/// No burst is larger than this many places hold: 81,919 requests.
const PLACES_MAX: usize = 60;
/// Each wait lets the counts of a place shrink by one part in so many …
const MEMORY: u64 = 20;
/// … and what was refused there is remembered so many times as long for each refusal, up to so many: it is tried again ever more seldom.
const LONGER_PER_REFUSAL: u64 = 4;
const REFUSALS_MAX: u64 = 4;
/// A place that is refused this much more often than requests are on the whole is too far.
const SHARE_TIMES: f64 = 2.5;
const SHARE_MORE: f64 = 0.03;
/// So many refusals prove something, of one request or of several.
const REFUSED_MIN: u64 = 700_000;
const REFUSED_MIN_OF_SEVERAL: u64 = 1_200_000;
/// The first places hold one request each, so many of them; then four to each doubling.
const SINGLE: usize = 7;
/// A place with less than this has not been seen.
const SEEN_MIN: u64 = 500_000;
const FIRST_SIZE: u32 = 4;

impl Bursts {
    pub(super) fn answered(&mut self, position: u32, admitted: bool) {
        let number = place_of(position).min(PLACES_MAX - 1);
        if self.places.len() <= number {
            self.places.resize(number + 1, Place::default());
        }
        let place = &mut self.places[number];
        let count = if admitted { &mut place.admitted } else { &mut place.refused };
        *count = count.saturating_add(ONE);
    }

    /// A wait begins. Returns how many may leave at once after it. `by_chance`: the share that is refused on the whole.
    pub(super) fn next_size(&mut self, by_chance: f64) -> u32 {
        self.forget();
        let share_max = by_chance * SHARE_TIMES + SHARE_MORE;
        let mut size = 1;
        for number in 1..PLACES_MAX {
            let place = self.place(number);
            let total = place.admitted.saturating_add(place.refused);
            if self.is_refused(number) && place.refused as f64 > share_max * total as f64 {
                break;
            }
            if total < SEEN_MIN {
                let next = (size * 2).max(FIRST_SIZE);
                return next.min(self.last_before_refusals(number)).max(1);
            }
            size = first_of(number + 1) - 1;
        }
        size
    }

    fn forget(&mut self) {
        self.places.truncate(PLACES_MAX);
        for place in &mut self.places {
            let refusals = u32::try_from((place.refused / ONE).min(REFUSALS_MAX)).unwrap_or(0);
            let longer = LONGER_PER_REFUSAL.pow(refusals);
            place.admitted -= place.admitted / (MEMORY * longer);
            place.refused -= place.refused / (MEMORY * longer);
        }
    }

    fn place(&self, number: usize) -> Place {
        self.places.get(number).copied().unwrap_or_default()
    }

    fn is_refused(&self, number: usize) -> bool {
        self.place(number).refused >= if number < SINGLE { REFUSED_MIN } else { REFUSED_MIN_OF_SEVERAL }
    }

    /// The last request before the next place, from this one on, where refusals prove something.
    fn last_before_refusals(&self, from: usize) -> u32 {
        (from..self.places.len())
            .find(|number| self.is_refused(*number))
            .map_or(u32::MAX, |number| first_of(number) - 1)
    }
}

/// 1, 2, 3, then four places to each doubling.
fn place_of(position: u32) -> usize {
    let position = position.max(1);
    if position < 4 {
        return position as usize - 1;
    }
    let doublings = position.ilog2();
    let quarter = (position >> (doublings - 2)) & 3;
    (doublings * 4 - 5 + quarter) as usize
}

/// The first request of a place.
fn first_of(place: usize) -> u32 {
    let Ok(place) = u32::try_from(place) else { return u32::MAX };
    if place < 3 {
        return place + 1;
    }
    (4 + (place + 5) % 4) << ((place + 5) / 4 - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_each_other_without_a_gap() {
        for place in 0..PLACES_MAX {
            assert_eq!(place_of(first_of(place)), place);
            assert_eq!(place_of(first_of(place + 1) - 1), place);
        }
        assert_eq!(first_of(SINGLE), 8, "the places before hold one request each");
    }

    /// Sends bursts to a receiver that admits so many at once, `n` times.
    fn sizes(bursts: &mut Bursts, fits: u32, n: usize) -> Vec<u32> {
        let burst = |bursts: &mut Bursts| {
            let size = bursts.next_size(0.05);
            for position in 1..=size {
                bursts.answered(position, position <= fits);
            }
            size
        };
        (0..n).map(|_| burst(bursts)).collect()
    }

    #[test]
    fn a_burst_grows_to_what_fits_and_tries_more_ever_more_seldom() {
        let mut bursts = Bursts::default();
        assert_eq!(sizes(&mut bursts, 20, 4), [4, 8, 18, 38]);
        let later = sizes(&mut bursts, 20, 100);
        assert!(later.iter().all(|size| (16..40).contains(size)), "{later:?}");
        let too_many = later.iter().filter(|size| **size > 20).count();
        assert!(too_many <= 20, "{too_many} of a hundred: {later:?}");
    }

    #[test]
    fn a_burst_that_no_longer_fits_shrinks() {
        let mut bursts = Bursts::default();
        sizes(&mut bursts, 100, 30);
        let later = sizes(&mut bursts, 5, 60);
        assert!(later[40..].iter().all(|size| *size <= 8), "{later:?}");
    }

    #[test]
    fn whatever_was_stored_a_burst_is_bounded() {
        let place = Place { admitted: u64::MAX, refused: 0 };
        let mut bursts = Bursts { places: vec![place; 1_000] };
        bursts.answered(u32::MAX, true);
        assert_eq!(bursts.next_size(f64::NAN), 81_919);
        assert_eq!(bursts.places.len(), PLACES_MAX);
    }
}
