//! Maps by IDs and numbers that Doorstep gives out itself.
//!
//! Nobody outside can choose them, so nobody can make them collide, and a hash that guards against that would cost more
//! than the rest of a look-up. What others choose (host names, event IDs, ordering keys) belongs into the standard maps.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Multiplies, and folds the two halves of the product: every bit of an ID reaches the ones that choose its place.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

/// Odd, with its bits spread evenly: the golden ratio.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n ^ FACTOR) * u128::from(FACTOR);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn write_u128(&mut self, n: u128) {
        self.write_u64(n as u64);
        self.write_u64((n >> 64) as u64);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    use super::*;
    use crate::id::DeliveryId;

    /// A table of 4,096 buckets with as many entries: at random, 63 % of the buckets are used, and none by more than 12 or so.
    fn spreads(keys: impl Iterator<Item = u128>) {
        let build = BuildHasherDefault::<IdHasher>::default();
        let hashes: Vec<u64> = keys.map(|n| build.hash_one(DeliveryId(n))).collect();
        assert_eq!(hashes.iter().collect::<BTreeSet<_>>().len(), 4_096, "no two have the same hash");
        // The standard map chooses a bucket by the lowest bits, and an entry there by the highest seven.
        let buckets: BTreeSet<u64> = hashes.iter().map(|hash| hash & 4_095).collect();
        assert!(buckets.len() > 2_400, "{} buckets are used", buckets.len());
        let tags: BTreeSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        assert_eq!(tags.len(), 128);
    }

    #[test]
    fn ids_that_differ_in_any_few_bits_are_spread() {
        spreads(0..4_096);
        spreads((0..4_096).map(|n| n << 64));
        spreads((0..4_096).map(|n| n << 116));
        spreads((0..4_096).map(|n| n << 40 | 0x0193_3a5b << 96));
    }

    #[test]
    fn bytes_and_numbers_are_hashed_alike() {
        let (mut one, mut other) = (IdHasher::default(), IdHasher::default());
        one.write(&7u64.to_le_bytes());
        other.write_u64(7);
        assert_eq!(one.finish(), other.finish());
        other.write(b"longer than a word");
        assert_ne!(one.finish(), other.finish());
    }
}
