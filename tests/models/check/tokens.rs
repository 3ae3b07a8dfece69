//! One-time tokens, presented by several sockets at once.
//!
//! A verified token borrows the locked record of uses, so the compiler already refuses a use
//! between two locks. What is left to show is that the lock and the record agree.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shuttle::sync::Mutex;
use shuttle::thread;

use crate::limits::TOKEN_LIFE;
use crate::lock::lock;
use crate::proto::http::token::{Issuer, SocketKind, SocketTokens};
use crate::proto::time::RequestTime;
use crate::tasks::{Slot, SlotPool};

/// Opens a socket as the routes do: checks, then the place, the token last.
fn open(tokens: &Mutex<SocketTokens>, places: &SlotPool, token: &str, at: RequestTime) -> Option<Slot> {
    let mut tokens = lock(tokens);
    let token = tokens.verify(token, SocketKind::Client, at).ok()?;
    let place = places.try_acquire()?;
    token.redeem();
    Some(place)
}

/// Two sockets in time and one late: the token opens one. A socket without a place leaves it valid.
pub fn one_opens_one_socket() {
    let now = Instant::now();
    let at = |after: Duration| RequestTime {
        now: now + after,
        unix_s: 0,
    };
    let tokens = SocketTokens::new([7; 32], now);
    let tokens = Arc::new(Mutex::new(tokens));
    let token = lock(&tokens).mint(SocketKind::Client, "a session", Issuer::Anyone, at(Duration::ZERO));
    let (places, none) = (SlotPool::new(3), SlotPool::new(0));
    let last = TOKEN_LIFE - Duration::from_secs(1);
    let sockets = [(&places, last), (&places, last), (&none, last), (&places, TOKEN_LIFE)];
    let sockets = sockets.map(|(places, after)| {
        let (tokens, places, token, at) = (tokens.clone(), places.clone(), token.clone(), at(after));
        thread::spawn(move || open(&tokens, &places, &token, at))
    });
    let opened = sockets.map(|socket| socket.join().expect("no panic").is_some());
    assert_ne!(opened[0], opened[1], "one of two opens");
    assert_eq!(opened[2..], [false, false], "without a place, or too late");
}
