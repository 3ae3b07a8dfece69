//! Which calls are known, so that duplicates, disorder and replays of webhooks start no second bot.
//!
//! In: ids of calls, what webhooks say of them, `now`. Out: whether a call is new, and the handle of one that is live. A call
//! whose end came first is known too, and its beginning starts nothing. Calls are remembered for [`KEPT`] after their end; of
//! more than [`CALLS_MAX`] the oldest go first, and of those the ended before the live.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Calls that are remembered: those of ten minutes at seven a second, in about a megabyte.
pub const CALLS_MAX: usize = 4_096;
/// How long a call is remembered after its end. A replay that comes later is told by its timestamp.
pub const KEPT: Duration = Duration::from_secs(600);

/// The calls of a runner; `T` reaches a live one.
#[derive(Debug)]
pub struct Calls<T> {
    by_id: HashMap<String, Entry<T>>,
    /// Ids in the order in which they came.
    order: BTreeMap<u64, String>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    place: u64,
    state: State<T>,
}

#[derive(Debug)]
enum State<T> {
    Live(T),
    /// Over since then, or before it began.
    Over(Instant),
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Calls {
            by_id: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T> Calls<T> {
    /// Takes the beginning of a call; tells whether the call is new, and live from here on.
    pub fn handle_connect(&mut self, id: &str, handle: T, now: Instant) -> bool {
        self.forget(now);
        if self.by_id.contains_key(id) {
            return false;
        }
        self.insert(id, State::Live(handle));
        true
    }

    /// Takes the end of a call that a webhook tells, and returns the handle of the call if it is live.
    pub fn handle_terminate(&mut self, id: &str, now: Instant) -> Option<T> {
        self.forget(now);
        match self.by_id.get_mut(id) {
            Some(entry) => match std::mem::replace(&mut entry.state, State::Over(now)) {
                State::Live(handle) => Some(handle),
                State::Over(since) => {
                    entry.state = State::Over(since);
                    None
                }
            },
            None => {
                self.insert(id, State::Over(now));
                None
            }
        }
    }

    /// Takes the end of a call on this side.
    pub fn handle_end(&mut self, id: &str, now: Instant) {
        if let Some(entry) = self.by_id.get_mut(id)
            && let State::Live(_) = entry.state
        {
            entry.state = State::Over(now);
        }
    }

    /// Counts the calls that are known.
    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    fn insert(&mut self, id: &str, state: State<T>) {
        if self.by_id.len() >= CALLS_MAX {
            self.make_room();
        }
        let place = self.next;
        self.next += 1;
        self.order.insert(place, id.to_owned());
        self.by_id.insert(id.to_owned(), Entry { place, state });
    }

    fn make_room(&mut self) {
        let is_over = |id: &&String| {
            matches!(
                self.by_id.get(*id),
                Some(Entry {
                    state: State::Over(_),
                    ..
                })
            )
        };
        let oldest = self.order.values().find(is_over).or_else(|| self.order.values().next());
        if let Some(id) = oldest.cloned() {
            self.remove(&id);
        }
    }

    /// Forgets calls whose time is over. The oldest come first, so a long call holds back only what came after it.
    fn forget(&mut self, now: Instant) {
        while let Some(id) = self.order.values().next()
            && let Some(Entry {
                state: State::Over(since),
                ..
            }) = self.by_id.get(id)
            && now.saturating_duration_since(*since) >= KEPT
        {
            let id = id.clone();
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(entry) = self.by_id.remove(id) {
            self.order.remove(&entry.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_starts_nothing_and_an_end_is_told_once() {
        let now = Instant::now();
        let mut calls = Calls::default();
        assert!(calls.handle_connect("a", 1, now));
        assert!(!calls.handle_connect("a", 2, now));
        assert_eq!(calls.handle_terminate("a", now), Some(1));
        assert_eq!(calls.handle_terminate("a", now), None);
        assert!(!calls.handle_connect("a", 3, now), "a replay after the end");
    }

    #[test]
    fn an_end_that_comes_first_makes_the_beginning_nothing() {
        let now = Instant::now();
        let mut calls = Calls::default();
        assert_eq!(calls.handle_terminate("a", now), None::<u8>);
        assert!(!calls.handle_connect("a", 1, now));
        assert!(calls.handle_connect("b", 2, now), "another call is another call");
    }

    #[test]
    fn calls_are_kept_for_ten_minutes_after_their_end() {
        let start = Instant::now();
        let mut calls = Calls::default();
        assert!(calls.handle_connect("a", 1, start));
        let ended = start + Duration::from_secs(3_600);
        assert!(
            !calls.handle_connect("a", 1, ended),
            "a long call is known as long as it lasts"
        );
        calls.handle_end("a", ended);
        calls.handle_end("a", ended + KEPT / 2);
        assert!(!calls.handle_connect("a", 2, ended + KEPT - Duration::from_millis(1)));
        assert!(calls.handle_connect("a", 2, ended + KEPT));
    }

    /// At the cap everything is known; one past it, the oldest that is over is not, and no live one goes for it.
    #[test]
    fn the_oldest_that_is_over_goes_first() {
        let now = Instant::now();
        let mut calls = Calls::default();
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
    fn when_all_are_live_the_oldest_goes() {
        let now = Instant::now();
        let mut calls = Calls::default();
        for n in 0..=CALLS_MAX {
            assert!(calls.handle_connect(&n.to_string(), n, now));
        }
        assert_eq!(calls.count(), CALLS_MAX);
        assert_eq!(calls.handle_terminate("0", now), None);
    }
}
