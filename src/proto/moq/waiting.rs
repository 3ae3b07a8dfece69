//! Sessions that wait for the announcement of their caller.
//!
//! In: the path that a session waits for, and what reaches the session. Out: the oldest session of
//! a path, once. A path names at most one caller's broadcast, so the rest of a connection is
//! unknown until then. The number of entries is bounded by the permits of their sessions. Source:
//!

use std::collections::{BTreeMap, HashMap};

/// The waiting sessions, each with what reaches it.
#[derive(Debug)]
pub struct WaitingSessions<T> {
    /// In order of arrival.
    entries: BTreeMap<u64, (String, T)>,
    by_path: HashMap<String, Vec<u64>>,
    next: u64,
}

impl<T> Default for WaitingSessions<T> {
    fn default() -> Self {
        WaitingSessions {
            entries: BTreeMap::new(),
            by_path: HashMap::new(),
            next: 0,
        }
    }
}

impl<T> WaitingSessions<T> {
    /// Adds a session that waits for a broadcast of this path. Returns its number.
    pub fn insert(&mut self, path: &str, item: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.insert(number, (path.to_owned(), item));
        self.by_path.entry(path.to_owned()).or_default().push(number);
        number
    }

    /// Removes a session that no longer waits.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let (path, item) = self.entries.remove(&number)?;
        if let Some(numbers) = self.by_path.get_mut(&path) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_path.remove(&path);
            }
        }
        Some(item)
    }

    /// Removes the session that has waited longest for this path, of those that `fits` accepts.
    pub fn take(&mut self, path: &str, fits: impl Fn(&T) -> bool) -> Option<T> {
        let entries = &self.entries;
        let does_fit = |number: &&u64| entries.get(number).is_some_and(|(_, item)| fits(item));
        let oldest = *self.by_path.get(path)?.iter().find(does_fit)?;
        self.remove(oldest)
    }

    /// Returns the number of waiting sessions.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no session waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_session_of_a_path_is_taken_once() {
        let mut waiting = WaitingSessions::default();
        waiting.insert("a/request", 1);
        waiting.insert("b/request", 2);
        waiting.insert("a/request", 3);
        assert_eq!(waiting.take("c/request", |_| true), None);
        assert_eq!(waiting.take("b/request", |number| *number == 3), None);
        assert_eq!(waiting.take("a/request", |_| true), Some(1));
        assert_eq!(waiting.take("a/request", |_| true), Some(3));
        assert_eq!(waiting.take("a/request", |_| true), None);
        assert_eq!(waiting.len(), 1);
    }

    #[test]
    fn a_session_that_ends_no_longer_waits() {
        let mut waiting = WaitingSessions::default();
        let first = waiting.insert("a/request", 1);
        waiting.insert("a/request", 2);
        assert_eq!((waiting.remove(first), waiting.remove(first)), (Some(1), None));
        assert_eq!(waiting.take("a/request", |_| true), Some(2));
        assert!(waiting.is_empty() && waiting.by_path.is_empty());
    }
}
