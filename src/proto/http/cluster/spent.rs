//! The ids and tokens of replicas that were used here, until they expire.
//!
//! In: a key of 16 bytes with the second at which it expires. Out: whether it was used. At most
//! `SPENT_IDS_MAX` are recorded. Past that, the ones that expire first are dropped, and from then
//! on everything that expires no later than them counts as used: an id is refused early rather than
//! accepted twice.

use std::collections::{BTreeSet, HashMap};

/// Ids and tokens of replicas whose use is recorded until they expire, in 8 MB: 200 connections a
/// second for the lifetime of an id. Past it, those that expire first are refused early.
const SPENT_IDS_MAX: usize = 64 * 1024;

/// A key of the record: the bytes of a UUID, or a process and a serial number.
pub type SpentKey = [u8; 16];

/// What was used here and has not expired.
#[derive(Debug, Default)]
pub struct SpentRecord {
    expiries: HashMap<SpentKey, u64>,
    by_expiry: BTreeSet<(u64, SpentKey)>,
    /// What expires until then counts as used.
    dropped_until: u64,
}

impl SpentRecord {
    /// Returns whether a key was used, or may have been.
    pub fn contains(&self, key: &SpentKey, expires: u64) -> bool {
        expires <= self.dropped_until || self.expiries.contains_key(key)
    }

    /// Records the use of a key until it expires.
    pub fn insert(&mut self, key: SpentKey, expires: u64, now_s: u64) {
        while let Some(&(expired, oldest)) = self.by_expiry.first() {
            let is_full = self.by_expiry.len() >= SPENT_IDS_MAX;
            if expired > now_s && !is_full {
                break;
            }
            if expired > now_s {
                self.dropped_until = self.dropped_until.max(expired);
            }
            self.by_expiry.pop_first();
            self.expiries.remove(&oldest);
        }
        if let Some(earlier) = self.expiries.insert(key, expires) {
            self.by_expiry.remove(&(earlier, key));
        }
        self.by_expiry.insert((expires, key));
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        assert_eq!(self.expiries.len(), self.by_expiry.len());
        self.expiries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> SpentKey {
        u128::from(n).to_be_bytes()
    }

    #[test]
    fn a_used_key_is_known_until_it_expires() {
        let mut spent = SpentRecord::default();
        spent.insert(key(1), 300, 0);
        spent.insert(key(2), 200, 0);
        spent.insert(key(2), 310, 0);
        assert!(spent.contains(&key(1), 300) && spent.contains(&key(2), 310));
        assert!(!spent.contains(&key(3), 300));
        spent.insert(key(4), 600, 300);
        assert_eq!(spent.len(), 2, "the first has expired");
        assert!(spent.contains(&key(2), 310) && spent.contains(&key(4), 600));
    }

    /// Past the limit, ids that expire as early as a dropped one are refused; later ones are not.
    #[test]
    fn past_the_limit_early_ids_are_refused() {
        let mut spent = SpentRecord::default();
        let count = u32::try_from(SPENT_IDS_MAX).expect("a small limit");
        for n in 0..count {
            spent.insert(key(n), 300 + u64::from(n / 1_000), 0);
        }
        assert!(!spent.contains(&key(count), 300));
        spent.insert(key(count), 900, 0);
        assert_eq!(spent.len(), SPENT_IDS_MAX);
        assert!(spent.contains(&key(0), 300), "dropped, and still refused");
        assert!(spent.contains(&key(count + 1), 300), "one that was never used, too");
        assert!(!spent.contains(&key(count + 1), 301));
    }
}
