//! The sessions that `/start` registered, by id, with the body that waits for their bot.
//!
//! In: bodies, ids and `now`. Out: a [`Claim`] for each new connection. The first connection of an id has the id as its
//! session's name; further ones, while others live, get a fresh name that the caller passes in, and the same body. An id
//! that nobody uses is gone after 300 s; one that was used is gone when its last session has ended, because a bot that hung
//! up must not come back. Bodies are kept as text, so that what they cost is known.
//! Refuses: more ids or more bytes of bodies than the caps, and ids it does not know. Source: checklist.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use crate::limits;
use crate::proto::uuid::Uuid;

/// The registered sessions.
#[derive(Debug, Default)]
pub struct Table {
    sessions: HashMap<Arc<str>, Registered>,
    bodies_bytes: usize,
    /// No unused session expires before this; `None` when there is none.
    next_expiry: Option<Instant>,
}

#[derive(Debug)]
struct Registered {
    /// JSON text.
    body: Box<str>,
    expires: Instant,
    /// Claims that were not given back.
    held: usize,
    /// Whether a connection has the id itself as its session's name.
    named: bool,
    /// Whether any claim became a session.
    used: bool,
}

impl Registered {
    fn is_expired(&self, now: Instant) -> bool {
        self.held == 0 && now >= self.expires
    }
}

/// What a new connection gets; it goes back with [`Table::release`].
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The id that was registered.
    pub registered: Arc<str>,
    /// The name of the session to be.
    pub session_id: Arc<str>,
    pub body: Value,
}

/// The table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many sessions were started and not used; try again later")
    }
}

impl std::error::Error for Full {}

/// No session of this id is registered, or it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Invalid or not-yet-ready session_id")
    }
}

impl std::error::Error for Unknown {}

impl Table {
    /// Keeps a body for the connection to come.
    ///
    /// # Errors
    /// [`Full`] when another session, or its body, is beyond the caps.
    pub fn register(&mut self, id: Arc<str>, body: &Value, now: Instant) -> Result<(), Full> {
        self.expire(now);
        let body = body.to_string().into_boxed_str();
        while self.sessions.len() >= limits::REGISTERED_MAX
            || self.bodies_bytes + body.len() > limits::REGISTERED_BYTES_MAX
        {
            let oldest = self.oldest_unused(now).ok_or(Full)?;
            self.remove(&oldest);
        }
        let expires = now + limits::REGISTERED_UNUSED;
        self.next_expiry.get_or_insert(expires);
        self.bodies_bytes += body.len();
        self.sessions.insert(
            id,
            Registered {
                body,
                expires,
                held: 0,
                named: false,
                used: false,
            },
        );
        Ok(())
    }

    /// Tells whether a session is registered and has not ended.
    pub fn contains(&self, id: &str, now: Instant) -> bool {
        self.sessions.get(id).is_some_and(|session| !session.is_expired(now))
    }

    /// Lends the body to a new connection. `fresh` becomes the session's name when the id is taken as one.
    ///
    /// # Errors
    /// [`Unknown`] when the id was never registered, has expired, or has ended.
    pub fn claim(&mut self, id: &str, fresh: Arc<str>, now: Instant) -> Result<Claim, Unknown> {
        let (registered, session) = match self.sessions.get_key_value(id) {
            Some((registered, session)) if !session.is_expired(now) => (registered.clone(), session),
            _ => return Err(Unknown),
        };
        let body = serde_json::from_str(&session.body).expect("a body that was written as JSON is JSON");
        let session = self.sessions.get_mut(id).expect("it was there a line ago");
        session.held += 1;
        let session_id = if std::mem::replace(&mut session.named, true) {
            fresh
        } else {
            registered.clone()
        };
        Ok(Claim {
            registered,
            session_id,
            body,
        })
    }

    /// Takes a claim back: `used` when a session came of it and has ended, not `used` when its connection never came to
    /// be, so that the client may try again.
    pub fn release(&mut self, claim: &Claim, used: bool) {
        let Some(session) = self.sessions.get_mut(&claim.registered) else {
            return;
        };
        session.held = session.held.saturating_sub(1);
        session.used |= used;
        if !used && claim.session_id == claim.registered {
            session.named = false;
        }
        if session.held == 0 && session.used {
            self.remove(&claim.registered.clone());
        } else if session.held == 0 {
            // It can expire again, and its time may have come while it was held.
            let expires = session.expires;
            self.next_expiry = Some(self.next_expiry.map_or(expires, |next| next.min(expires)));
        }
    }

    /// Returns how many sessions are registered.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Tells whether no session is registered.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Finds the session that gives way to a new one.
    fn oldest_unused(&self, now: Instant) -> Option<Arc<str>> {
        let unused = self.sessions.iter().filter(|(_, session)| session.held == 0);
        let (id, oldest) = unused.min_by_key(|(_, session)| session.expires)?;
        let registered = oldest.expires - limits::REGISTERED_UNUSED;
        (now >= registered + limits::REGISTERED_YIELDS_AFTER).then(|| id.clone())
    }

    fn remove(&mut self, id: &str) {
        if let Some(session) = self.sessions.remove(id) {
            self.bodies_bytes -= session.body.len();
        }
    }

    /// Drops what nobody used in time. It looks through the table only when something is due.
    fn expire(&mut self, now: Instant) {
        if self.next_expiry.is_none_or(|next| now < next) {
            return;
        }
        let bodies_bytes = &mut self.bodies_bytes;
        self.sessions.retain(|_, session| {
            let stays = !session.is_expired(now);
            if !stays {
                *bodies_bytes -= session.body.len();
            }
            stays
        });
        let waiting = self.sessions.values().filter(|session| session.held == 0);
        self.next_expiry = waiting.map(|session| session.expires).min();
    }
}

/// Makes a session's name of 16 random bytes: a UUID of version 4, in lower case.
pub fn session_id(random: [u8; 16]) -> Arc<str> {
    Uuid::v4(random).to_string().into()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "one instant as the origin of a test's time")]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    fn id(name: &str) -> Arc<str> {
        name.into()
    }

    fn table() -> (Table, Instant) {
        let (mut table, now) = (Table::default(), Instant::now());
        table.register(id("S"), &json!({"a": 1}), now).expect("room");
        (table, now)
    }

    /// the first connection is the session that `/start` named, and gets its body.
    #[test]
    fn the_first_connection_takes_the_registered_name_and_body() {
        let (mut table, now) = table();
        let claim = table.claim("S", id("F"), now).expect("known");
        assert_eq!(
            claim,
            Claim {
                registered: id("S"),
                session_id: id("S"),
                body: json!({"a": 1})
            }
        );
        assert_eq!(table.claim("T", id("F"), now), Err(Unknown));
    }

    /// An id is good for more than one connection while one of them lives; then it is gone.
    #[test]
    fn further_connections_get_fresh_names_until_all_have_ended() {
        let (mut table, now) = table();
        let first = table.claim("S", id("F1"), now).expect("known");
        let second = table.claim("S", id("F2"), now).expect("known");
        assert_eq!((&*second.session_id, &second.body), ("F2", &json!({"a": 1})));
        table.release(&first, true);
        let third = table.claim("S", id("F3"), now).expect("the second still lives");
        assert_eq!(&*third.session_id, "F3", "a name is used for one session only");
        table.release(&second, true);
        assert!(table.contains("S", now));
        table.release(&third, true);
        assert!(!table.contains("S", now));
        assert_eq!(
            table.claim("S", id("F4"), now),
            Err(Unknown),
            "a bot that hung up does not come back"
        );
        assert_eq!((table.len(), table.bodies_bytes), (0, 0));
    }

    /// An offer that failed leaves the session as it was: the client tries again.
    #[test]
    fn a_connection_that_never_came_to_be_leaves_the_id_usable() {
        let (mut table, now) = table();
        let failed = table.claim("S", id("F1"), now).expect("known");
        table.release(&failed, false);
        let again = table.claim("S", id("F2"), now).expect("still known");
        assert_eq!(&*again.session_id, "S");
        // A renegotiation claims too, and gives back unused while the session lives.
        let renegotiation = table.claim("S", id("F3"), now).expect("known");
        table.release(&renegotiation, false);
        assert!(table.contains("S", now));
        table.release(&again, true);
        assert!(!table.contains("S", now));
    }

    #[test]
    fn an_unused_id_is_gone_after_its_time_and_a_used_one_is_not() {
        let (mut table, now) = table();
        table.register(id("used"), &json!({}), now).expect("room");
        let claim = table.claim("used", id("F"), now).expect("known");
        let end = now + limits::REGISTERED_UNUSED;
        assert!(table.contains("S", end - TICK));
        assert!(!table.contains("S", end));
        assert_eq!(table.claim("S", id("F"), end), Err(Unknown));
        assert!(table.contains("used", end));
        table.register(id("T"), &json!({}), end).expect("room");
        assert_eq!(table.len(), 2, "what expired was dropped");
        // Given back unused after its time, it is gone at once.
        table.release(&claim, false);
        assert!(!table.contains("used", end));
        table.register(id("U"), &json!({}), end).expect("room");
        assert_eq!(table.len(), 2);
    }

    /// At the cap everybody is in; past it the oldest that was not used gives way, and not before its time.
    #[test]
    fn the_number_of_ids_is_capped_and_time_makes_room() {
        let (mut table, now) = (Table::default(), Instant::now());
        table.register(id("used"), &json!({}), now).expect("room");
        let claim = table.claim("used", id("F"), now).expect("known");
        table.register(id("first"), &json!({}), now).expect("room");
        for nth in 2..limits::REGISTERED_MAX {
            table
                .register(id(&nth.to_string()), &json!({}), now + TICK)
                .expect("room");
        }
        assert_eq!(table.register(id("one more"), &json!({}), now + TICK), Err(Full));
        let yields = now + limits::REGISTERED_YIELDS_AFTER;
        assert_eq!(table.register(id("one more"), &json!({}), yields - TICK), Err(Full));
        assert_eq!(table.register(id("one more"), &json!({}), yields), Ok(()));
        assert!(!table.contains("first", yields) && table.contains("used", yields) && table.contains("2", yields));
        assert_eq!(table.register(id("another"), &json!({}), yields), Err(Full));
        assert_eq!(table.len(), limits::REGISTERED_MAX);
        let end = now + limits::REGISTERED_UNUSED + TICK;
        assert_eq!(table.register(id("another"), &json!({}), end), Ok(()));
        assert_eq!(table.len(), 3, "those that were never used are gone");
        table.release(&claim, true);
        assert_eq!(table.len(), 2);
    }

    /// A long body drives out as many as it takes, and none that are used.
    #[test]
    fn the_oldest_bodies_give_way() {
        let (mut table, now) = (Table::default(), Instant::now());
        let body = |bytes: usize| json!("x".repeat(bytes - 2));
        let half = limits::REGISTERED_BYTES_MAX / 2;
        table.register(id("used"), &body(half), now).expect("room");
        table.claim("used", id("F"), now).expect("known");
        for name in ["a", "b"] {
            table.register(id(name), &body(half / 2), now).expect("room");
        }
        let yields = now + limits::REGISTERED_YIELDS_AFTER;
        assert_eq!(table.register(id("long"), &body(half), yields), Ok(()));
        assert!(!table.contains("a", yields) && !table.contains("b", yields) && table.contains("used", yields));
        assert_eq!(table.register(id("longer"), &json!(0), yields), Err(Full));
        let later = yields + limits::REGISTERED_YIELDS_AFTER;
        assert_eq!(table.register(id("longer"), &body(half + 1), later), Err(Full));
        assert_eq!(table.register(id("as long"), &body(half), later), Ok(()));
    }

    #[test]
    fn the_bytes_of_bodies_are_capped() {
        let (mut table, now) = (Table::default(), Instant::now());
        // Two bytes of quotes.
        let body = json!("x".repeat(limits::REGISTERED_BYTES_MAX - 2));
        assert_eq!(table.register(id("big"), &body, now), Ok(()));
        assert_eq!(table.register(id("small"), &json!(0), now), Err(Full));
        let claim = table.claim("big", id("F"), now).expect("known");
        assert_eq!(claim.body, body);
        table.release(&claim, true);
        assert_eq!(table.register(id("small"), &json!(0), now), Ok(()));
    }

    /// names are UUIDs of version 4.
    #[test]
    fn session_ids_are_uuids() {
        assert_eq!(&*session_id([0; 16]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(&*session_id([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        let counted = std::array::from_fn(|nth| nth as u8);
        assert_eq!(&*session_id(counted), "00010203-0405-4607-8809-0a0b0c0d0e0f");
    }
}
