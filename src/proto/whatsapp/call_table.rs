//! The table of known calls, so that duplicate, reordered and replayed webhooks start no second
//! bot.
//!
//! In: call ids, webhook events, `now`. Out: whether a call is new, and the handle of a live one. A
//! call whose end arrived first is known too, so its beginning starts nothing. Calls are remembered
//! for [`RETENTION`] after their end. Above [`CALLS_MAX`] the oldest ended call is evicted first,
//! then the oldest live one. Source: `docs/spec/whatsapp.md` 6.2.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// The number of remembered calls: ten minutes at seven a second, about a megabyte.
pub const CALLS_MAX: usize = 4_096;
/// How long a call is remembered after its end. The timestamp reveals later replays.
pub const RETENTION: Duration = Duration::from_secs(600);

/// The calls of a runner. `T` is the handle of a live call.
#[derive(Debug)]
pub struct CallTable<T> {
    by_id: HashMap<String, CallEntry<T>>,
    /// Ids in order of arrival.
    order: BTreeMap<u64, String>,
    next: u64,
}

#[derive(Debug)]
struct CallEntry<T> {
    sequence: u64,
    state: CallStatus<T>,
}

#[derive(Debug)]
enum CallStatus<T> {
    Live(T),
    /// Ended at this time, or before it began.
    Ended(Instant),
}

impl<T> Default for CallTable<T> {
    fn default() -> Self {
        CallTable {
            by_id: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T> CallTable<T> {
    /// Handles the beginning of a call. Returns whether it is new and now live.
    pub fn handle_connect(&mut self, id: &str, handle: T, now: Instant) -> bool {
        self.expire(now);
        if self.by_id.contains_key(id) {
            return false;
        }
        self.insert(id, CallStatus::Live(handle));
        true
    }

    /// Handles the end of a call by webhook. Returns the handle if the call was live.
    pub fn handle_terminate(&mut self, id: &str, now: Instant) -> Option<T> {
        self.expire(now);
        match self.by_id.get_mut(id) {
            Some(entry) => match std::mem::replace(&mut entry.state, CallStatus::Ended(now)) {
                CallStatus::Live(handle) => Some(handle),
                CallStatus::Ended(since) => {
                    entry.state = CallStatus::Ended(since);
                    None
                }
            },
            None => {
                self.insert(id, CallStatus::Ended(now));
                None
            }
        }
    }

    /// Handles the end of a call on this side.
    pub fn handle_end(&mut self, id: &str, now: Instant) {
        if let Some(entry) = self.by_id.get_mut(id)
            && let CallStatus::Live(_) = entry.state
        {
            entry.state = CallStatus::Ended(now);
        }
    }

    /// Returns the number of known calls.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    fn insert(&mut self, id: &str, state: CallStatus<T>) {
        if self.by_id.len() >= CALLS_MAX {
            self.evict_oldest();
        }
        let sequence = self.next;
        self.next += 1;
        self.order.insert(sequence, id.to_owned());
        self.by_id.insert(id.to_owned(), CallEntry { sequence, state });
    }

    fn evict_oldest(&mut self) {
        let is_over = |id: &&String| {
            matches!(
                self.by_id.get(*id),
                Some(CallEntry {
                    state: CallStatus::Ended(_),
                    ..
                })
            )
        };
        let oldest = self.order.values().find(is_over).or_else(|| self.order.values().next());
        if let Some(id) = oldest.cloned() {
            self.remove(&id);
        }
    }

    /// Removes expired calls. The oldest come first, so a long call only delays those after it.
    fn expire(&mut self, now: Instant) {
        while let Some(id) = self.order.values().next()
            && let Some(CallEntry {
                state: CallStatus::Ended(since),
                ..
            }) = self.by_id.get(id)
            && now.saturating_duration_since(*since) >= RETENTION
        {
            let id = id.clone();
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(entry) = self.by_id.remove(id) {
            self.order.remove(&entry.sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_duplicates_and_reports_an_end_once() {
        let now = Instant::now();
        let mut calls = CallTable::default();
        assert!(calls.handle_connect("a", 1, now));
        assert!(!calls.handle_connect("a", 2, now));
        assert_eq!(calls.handle_terminate("a", now), Some(1));
        assert_eq!(calls.handle_terminate("a", now), None);
        assert!(!calls.handle_connect("a", 3, now), "a replay after the end");
    }

    #[test]
    fn an_early_end_cancels_the_call() {
        let now = Instant::now();
        let mut calls = CallTable::default();
        assert_eq!(calls.handle_terminate("a", now), None::<u8>);
        assert!(!calls.handle_connect("a", 1, now));
        assert!(calls.handle_connect("b", 2, now), "another call is another call");
    }

    #[test]
    fn remembers_calls_for_the_retention_time() {
        let start = Instant::now();
        let mut calls = CallTable::default();
        assert!(calls.handle_connect("a", 1, start));
        let ended = start + Duration::from_secs(3_600);
        assert!(
            !calls.handle_connect("a", 1, ended),
            "a long call is known as long as it lasts"
        );
        calls.handle_end("a", ended);
        calls.handle_end("a", ended + RETENTION / 2);
        assert!(!calls.handle_connect("a", 2, ended + RETENTION - Duration::from_millis(1)));
        assert!(calls.handle_connect("a", 2, ended + RETENTION));
    }

    /// Above the cap the oldest ended call is forgotten, and no live one.
    #[test]
    fn evicts_the_oldest_ended_call_first() {
        let now = Instant::now();
        let mut calls = CallTable::default();
        assert!(calls.handle_connect("live", 0, now));
        for n in 1..CALLS_MAX {
            assert_eq!(calls.handle_terminate(&n.to_string(), now), None);
        }
        assert_eq!(calls.count(), CALLS_MAX);
        assert!(!calls.handle_connect("1", 1, now));
        assert!(calls.handle_connect("new", 1, now));
        assert_eq!(calls.count(), CALLS_MAX);
        assert!(calls.handle_connect("1", 1, now), "it was the oldest");
        assert_eq!(calls.handle_terminate("live", now), Some(0));
    }

    #[test]
    fn evicts_the_oldest_live_call_last() {
        let now = Instant::now();
        let mut calls = CallTable::default();
        for n in 0..=CALLS_MAX {
            assert!(calls.handle_connect(&n.to_string(), n, now));
        }
        assert_eq!(calls.count(), CALLS_MAX);
        assert_eq!(calls.handle_terminate("0", now), None);
    }
}
