//! Sorting and maps with little code.
//!
//! std instantiates its sorts for every type of element, at three to five kilobytes each, and once
//! more for every map that is collected. What is sorted here is short and seldom sorted: addresses,
//! names, tracks. So one sort, of indices, serves every type.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Sorts. Equal items keep their order.
pub fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// Sorts by a key. Items with equal keys keep their order.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(items, |one, other| key(one).cmp(&key(other)));
}

/// Sorts by a comparison. Equal items keep their order.
pub fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    // The item that belongs at each place.
    let mut wanted: Vec<usize> = (0..items.len()).collect();
    sort_indices(&mut wanted, &|one, other| compare(&items[one], &items[other]));
    for start in 0..wanted.len() {
        let mut place = start;
        // Follows the cycle of places from this one, which is done once it is back.
        while wanted[place] != start {
            let from = wanted[place];
            items.swap(place, from);
            wanted[place] = place;
            place = from;
        }
        wanted[place] = place;
    }
}

#[inline(never)]
fn sort_indices(indices: &mut [usize], compare: &dyn Fn(usize, usize) -> Ordering) {
    indices.sort_by(|one, other| compare(*one, *other));
}

/// Collects a map. Of entries with one key the last stays.
pub fn map<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(entries);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every order of up to six items, among them equal ones, is sorted as std sorts it.
    #[test]
    fn sorts_as_std_does() {
        for length in 0..=6_u32 {
            for number in 0..3_u32.pow(length) {
                let keys = (0..length).map(|digit| number / 3_u32.pow(digit) % 3);
                let mut items: Vec<(u32, u32)> = keys.zip(0..).collect();
                let mut expected = items.clone();
                expected.sort_by_key(|(key, _)| *key);
                sort_by_key(&mut items, |(key, _)| *key);
                assert_eq!(items, expected);
                let mut whole: Vec<(u32, u32)> = items.iter().rev().copied().collect();
                expected.sort_unstable();
                sort(&mut whole);
                assert_eq!(whole, expected);
            }
        }
    }

    #[test]
    fn maps_keep_the_last_of_a_key() {
        assert_eq!(
            map([(2, 'a'), (1, 'b'), (2, 'c')]),
            BTreeMap::from([(1, 'b'), (2, 'c')])
        );
    }
}
