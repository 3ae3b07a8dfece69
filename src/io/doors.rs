//! The ways into the house: places for sessions, and the lobbies of those who are not callers yet.
//!
//! In: offers, sockets, and the cap on live sessions. Out: a [`Place`], an [`Arrival`] (a WebRTC session until it connects,
//! which holds a place), a [`Knock`] (a telephone's socket until its provider is recognised, which holds none). When all
//! places are held, the oldest arrival that has had its time gives its place to the newcomer at once, and ends beside the
//! sessions. Who is to go, and when, says `proto::lobby`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::io::tasks::{self, Live, Place};
use crate::limits::{
    GAVE_WAY_MAX, HANDSHAKES_ENDING_MAX, HANDSHAKES_MAX, HANDSHAKES_YIELD_AFTER, PENDING_OFFERS_MAX,
    PENDING_OFFERS_YIELD_AFTER,
};
use crate::proto::admission::Requester;
use crate::proto::lobby::{Entered, Lobby};

/// The doors of one runner.
pub struct Doors {
    live: Live,
    arrivals: Shared<Seat>,
    knocks: Shared<()>,
    /// Sockets in their handshake, and those that gave way and close.
    sockets: Live,
    /// Arrivals that gave way, until their bots have ended.
    leaving: Live,
}

type Shared<T> = Arc<Mutex<Lobby<Guest<T>>>>;

/// A place that changes hands: whoever gives way is left with one beside the sessions.
type Seat = Arc<Mutex<Place>>;

struct Guest<T> {
    holds: T,
    leave: Arc<Notify>,
}

/// A guest's stay in a lobby; it ends when this is dropped.
struct Stay<T> {
    lobby: Shared<T>,
    ticket: u64,
    leave: Arc<Notify>,
}

impl<T> Drop for Stay<T> {
    fn drop(&mut self) {
        lock(&self.lobby).leave(self.ticket);
    }
}

/// A session that has a place and is not connected.
pub struct Arrival {
    /// Held, and exchanged by who takes it over.
    _seat: Seat,
    stay: Option<Stay<Seat>>,
}

impl Arrival {
    /// It has become a caller, or has ended: it gives way to nobody.
    pub fn settle(&mut self) {
        self.stay = None;
    }

    /// Waits until it has to give way.
    pub async fn asked_to_leave(&self) {
        match &self.stay {
            Some(stay) => stay.leave.notified().await,
            None => std::future::pending().await,
        }
    }
}

/// A socket that says nothing of itself yet.
pub struct Knock {
    stay: Stay<()>,
    requester: Requester,
    _socket: Place,
}

impl Knock {
    /// Returns who asked.
    pub fn requester(&self) -> Requester {
        self.requester
    }

    /// Waits until it has to give way.
    pub async fn asked_to_leave(&self) {
        self.stay.leave.notified().await;
    }
}

impl Doors {
    pub fn new(live: Live) -> Self {
        let arrivals = Lobby::new(PENDING_OFFERS_MAX, PENDING_OFFERS_YIELD_AFTER);
        let knocks = Lobby::new(HANDSHAKES_MAX, HANDSHAKES_YIELD_AFTER);
        Doors {
            live,
            arrivals: Arc::new(Mutex::new(arrivals)),
            knocks: Arc::new(Mutex::new(knocks)),
            sockets: Live::new(HANDSHAKES_MAX + HANDSHAKES_ENDING_MAX),
            leaving: Live::new(GAVE_WAY_MAX),
        }
    }

    /// Takes a place for a caller; `None` when all are held and nobody gives way.
    pub fn enter(&self, _requester: Requester) -> Option<Place> {
        self.live.enter().or_else(|| self.take_over(&mut lock(&self.arrivals)))
    }

    /// Takes a place for a session that has to connect first.
    pub fn arrive(&self, _requester: Requester) -> Option<Arrival> {
        let mut arrivals = lock(&self.arrivals);
        let place = match arrivals.is_full() {
            true => self.take_over(&mut arrivals),
            false => self.live.enter().or_else(|| self.take_over(&mut arrivals)),
        };
        let (seat, leave) = (Arc::new(Mutex::new(place?)), Arc::new(Notify::new()));
        let guest = Guest {
            holds: seat.clone(),
            leave: leave.clone(),
        };
        let Entered { ticket, .. } = arrivals.enter(guest, tasks::now())?;
        let stay = Stay {
            lobby: self.arrivals.clone(),
            ticket,
            leave,
        };
        Some(Arrival {
            _seat: seat,
            stay: Some(stay),
        })
    }

    /// Lets a socket in that may become a caller; `None` when there would be no place for one.
    pub fn knock(&self, requester: Requester) -> Option<Knock> {
        if !self.has_room() {
            return None;
        }
        let socket = self.sockets.enter()?;
        let leave = Arc::new(Notify::new());
        let guest = Guest {
            holds: (),
            leave: leave.clone(),
        };
        let Entered { ticket, gave_way } = lock(&self.knocks).enter(guest, tasks::now())?;
        if let Some(oldest) = gave_way {
            oldest.leave.notify_one();
        }
        let stay = Stay {
            lobby: self.knocks.clone(),
            ticket,
            leave,
        };
        Some(Knock {
            stay,
            requester,
            _socket: socket,
        })
    }

    /// Waits until nobody is left, on either side of the doors.
    pub async fn empty(&self) {
        // In the order in which one goes from one to the next.
        for room in [&self.sockets, &self.live, &self.leaving] {
            room.empty().await;
        }
    }

    fn has_room(&self) -> bool {
        self.live.has_room() || self.leaving.has_room() && lock(&self.arrivals).may_give_way(tasks::now())
    }

    /// Takes the place of the oldest arrival, which ends beside the sessions.
    fn take_over(&self, arrivals: &mut Lobby<Guest<Seat>>) -> Option<Place> {
        let aside = self.leaving.enter()?;
        let oldest = arrivals.give_way(tasks::now())?;
        oldest.leave.notify_one();
        Some(std::mem::replace(&mut *lock(&oldest.holds), aside))
    }
}

impl Arrival {
    /// Tells whether the place is that of a live session; tests ask.
    #[cfg(test)]
    fn has(&self, live: &Live) -> bool {
        lock(&self._seat).is_of(live)
    }
}

/// Takes a lock. Whoever panicked while holding it left the value whole: no change to it is made in two steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;
    use crate::proto::source::SourceKey;

    const SOMEBODY: Requester = Requester {
        source: SourceKey::V4(Ipv4Addr::LOCALHOST),
        is_authorised: false,
    };

    async fn pass(time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn is_asked(leaving: impl Future<Output = ()>) -> bool {
        tokio::time::timeout(Duration::ZERO, leaving).await.is_ok()
    }

    /// A full house takes a newcomer on any transport at the cost of the oldest offer that was not followed up, once that
    /// has had its time; the count of live sessions stays within its cap.
    #[tokio::test(start_paused = true)]
    async fn a_full_house_has_room_when_an_offer_was_not_followed_up() {
        let live = Live::new(2);
        let doors = Doors::new(live.clone());
        let (mut first, second) = (
            doors.arrive(SOMEBODY).expect("room"),
            doors.arrive(SOMEBODY).expect("room"),
        );
        pass(PENDING_OFFERS_YIELD_AFTER - Duration::from_millis(1)).await;
        assert!(doors.enter(SOMEBODY).is_none() && doors.arrive(SOMEBODY).is_none() && doors.knock(SOMEBODY).is_none());
        pass(Duration::from_millis(1)).await;
        first.settle();
        assert!(doors.knock(SOMEBODY).is_some(), "a place could be had");
        let caller = doors.enter(SOMEBODY).expect("the second gives way");
        assert!(is_asked(second.asked_to_leave()).await && !is_asked(first.asked_to_leave()).await);
        assert!(first.has(&live) && !second.has(&live));
        assert_eq!(live.count(), 2);
        assert!(
            doors.enter(SOMEBODY).is_none() && doors.knock(SOMEBODY).is_none(),
            "a caller gives way to nobody"
        );
        drop((first, caller));
        assert_eq!(live.count(), 0);
        assert!(!is_asked(doors.empty()).await, "the second has not ended");
        drop(second);
        doors.empty().await;
    }

    /// Offers that nobody follows up leave room in a large house, for others than offers; one past their cap drives the
    /// oldest out.
    #[tokio::test(start_paused = true)]
    async fn offers_that_are_not_followed_up_are_capped() {
        let live = Live::new(PENDING_OFFERS_MAX + 2);
        let doors = Doors::new(live.clone());
        let mut arrivals: Vec<Arrival> = (0..PENDING_OFFERS_MAX)
            .map(|_| doors.arrive(SOMEBODY).expect("room"))
            .collect();
        assert!(doors.arrive(SOMEBODY).is_none(), "one past the cap, too soon");
        let caller = doors.enter(SOMEBODY).expect("there is room for callers");
        pass(PENDING_OFFERS_YIELD_AFTER).await;
        arrivals.push(doors.arrive(SOMEBODY).expect("the oldest gives way"));
        assert!(is_asked(arrivals[0].asked_to_leave()).await && !is_asked(arrivals[1].asked_to_leave()).await);
        assert_eq!(live.count(), PENDING_OFFERS_MAX + 1);
        arrivals[1].settle();
        arrivals.push(doors.arrive(SOMEBODY).expect("one fewer is pending"));
        assert_eq!(live.count(), PENDING_OFFERS_MAX + 2);
        drop((arrivals, caller));
        doors.empty().await;
    }

    /// Those who gave way and whose bots do not end are capped too: beyond it nobody gives way.
    #[tokio::test(start_paused = true)]
    async fn those_who_gave_way_are_capped() {
        let doors = Doors::new(Live::new(1));
        let mut gone = Vec::new();
        for _ in 0..=GAVE_WAY_MAX {
            gone.push(doors.arrive(SOMEBODY).expect("room"));
            pass(PENDING_OFFERS_YIELD_AFTER).await;
        }
        assert!(doors.arrive(SOMEBODY).is_none() && doors.enter(SOMEBODY).is_none() && doors.knock(SOMEBODY).is_none());
        gone.remove(0);
        assert!(doors.arrive(SOMEBODY).is_some());
    }

    /// Silent sockets hold no place of a session; one past their cap drives the oldest out, as long as not too many of those
    /// still close.
    #[tokio::test(start_paused = true)]
    async fn silent_sockets_keep_no_caller_out() {
        let live = Live::new(1);
        let doors = Doors::new(live.clone());
        let mut knocks: Vec<Knock> = (0..HANDSHAKES_MAX)
            .map(|_| doors.knock(SOMEBODY).expect("room"))
            .collect();
        assert_eq!(live.count(), 0);
        assert!(!is_asked(knocks[0].asked_to_leave()).await);
        for nth in 0..HANDSHAKES_ENDING_MAX {
            knocks.push(doors.knock(SOMEBODY).expect("the oldest gives way"));
            assert!(is_asked(knocks[nth].asked_to_leave()).await);
        }
        assert!(
            doors.knock(SOMEBODY).is_none(),
            "none of those that were asked has gone"
        );
        drop(knocks.remove(0));
        knocks.push(doors.knock(SOMEBODY).expect("one has gone"));
        let caller = doors.enter(SOMEBODY).expect("a place");
        assert!(doors.knock(SOMEBODY).is_none(), "it could become no caller");
        drop((knocks, caller));
        doors.empty().await;
    }
}
