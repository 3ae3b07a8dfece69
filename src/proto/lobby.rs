//! Those who were let in and have yet to show that they are callers: WebRTC sessions that were answered and have not
//! connected, sockets whose provider is not recognised.
//!
//! In: guests of any kind, and `now`. Out: a ticket, and the guest who has to give way for a newcomer, the oldest first. So
//! whoever only knocks, and knocks often, drives out the like of himself and no caller, who is through in a second.
//! Refuses: a newcomer when nobody has been there for long enough.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The guests, in the order in which they came.
#[derive(Debug)]
pub struct Lobby<T> {
    guests: VecDeque<Guest<T>>,
    guests_max: usize,
    /// How long a guest is left alone.
    patience: Duration,
    next: u64,
}

#[derive(Debug)]
struct Guest<T> {
    ticket: u64,
    came: Instant,
    is: T,
}

/// A guest who is in, and the one who gave way.
#[derive(Debug, PartialEq, Eq)]
pub struct Entered<T> {
    /// For [`Lobby::leave`].
    pub ticket: u64,
    pub gave_way: Option<T>,
}

impl<T> Lobby<T> {
    /// Makes an empty one for so many; nobody gives way before `patience` has passed.
    pub fn new(guests_max: usize, patience: Duration) -> Self {
        Lobby {
            guests: VecDeque::new(),
            guests_max,
            patience,
            next: 0,
        }
    }

    /// Lets a guest in. `None` when the lobby is full of such who came a moment ago.
    pub fn enter(&mut self, guest: T, now: Instant) -> Option<Entered<T>> {
        let gave_way = match self.is_full() {
            true => Some(self.give_way(now)?),
            false => None,
        };
        let ticket = self.next;
        self.next += 1;
        self.guests.push_back(Guest {
            ticket,
            came: now,
            is: guest,
        });
        Some(Entered { ticket, gave_way })
    }

    /// Takes the oldest guest out, if anybody may be asked to go.
    pub fn give_way(&mut self, now: Instant) -> Option<T> {
        if !self.may_give_way(now) {
            return None;
        }
        self.guests.pop_front().map(|guest| guest.is)
    }

    /// Tells whether [`Lobby::give_way`] would find somebody.
    pub fn may_give_way(&self, now: Instant) -> bool {
        self.guests
            .front()
            .is_some_and(|oldest| now >= oldest.came + self.patience)
    }

    /// Forgets a guest, who has become a caller or has gone. One who gave way is gone already.
    pub fn leave(&mut self, ticket: u64) {
        // Tickets stand in order.
        if let Ok(at) = self.guests.binary_search_by_key(&ticket, |guest| guest.ticket) {
            self.guests.remove(at);
        }
    }

    /// Tells whether the next guest needs somebody to give way.
    pub fn is_full(&self) -> bool {
        self.guests.len() >= self.guests_max
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "one instant as the origin of a test's time")]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);
    const TICK: Duration = Duration::from_millis(1);

    fn entered<T>(ticket: u64, gave_way: Option<T>) -> Option<Entered<T>> {
        Some(Entered { ticket, gave_way })
    }

    /// At the cap everybody is in; past it the oldest goes, and not before his time.
    #[test]
    fn the_oldest_gives_way_when_its_time_is_over() {
        let (mut lobby, start) = (Lobby::new(2, PATIENCE), Instant::now());
        assert_eq!(lobby.enter("a", start), entered(0, None));
        assert_eq!(lobby.enter("b", start + TICK), entered(1, None));
        assert_eq!(lobby.enter("c", start + PATIENCE - TICK), None);
        assert_eq!(lobby.enter("c", start + PATIENCE), entered(2, Some("a")));
        assert_eq!(lobby.enter("d", start + PATIENCE), None);
        assert_eq!(lobby.enter("d", start + PATIENCE + TICK), entered(3, Some("b")));
        assert_eq!(lobby.give_way(start + PATIENCE + TICK), None);
        assert_eq!(lobby.give_way(start + 2 * PATIENCE), Some("c"));
    }

    /// Who became a caller gives way to nobody, and makes room.
    #[test]
    fn who_has_left_is_asked_nothing() {
        let (mut lobby, start) = (Lobby::new(3, Duration::ZERO), Instant::now());
        for guest in ["a", "b", "c"] {
            lobby.enter(guest, start).expect("room");
        }
        lobby.leave(1);
        assert!(!lobby.is_full());
        assert_eq!(lobby.enter("d", start), entered(3, None));
        for gone in [1, 7] {
            lobby.leave(gone);
        }
        assert_eq!(lobby.enter("e", start), entered(4, Some("a")));
        lobby.leave(0);
        assert_eq!([lobby.give_way(start), lobby.give_way(start)], [Some("c"), Some("d")]);
        lobby.leave(4);
        assert!(!lobby.may_give_way(start) && lobby.give_way(start).is_none());
    }
}
