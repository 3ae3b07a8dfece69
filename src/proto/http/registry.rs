//! The registry of sessions that `/start` created, each with the body for its bot.
//!
//! In: bodies, ids, requesters, and `now`. Out: a [`SessionClaim`] for each new connection. The
//! first connection of an id gets the id as its session's name; later ones, while others live, get
//! a fresh name and the same body. An unused id expires after 300 s; a used id is removed when its
//! last session ends, so that a bot that hung up does not return. Bodies are kept as text, so that
//! their size is known.
//!
//! One source address holds at most a quarter; at that share its own oldest unused entry is
//! evicted. When the registry is full, the oldest unused entry of the largest source is evicted: at
//! once if that source holds more than the requester would, else after a grace period. Entries of
//! authorised requests count for no source, and anonymous requests do not evict them. Each step is
//! O(log n). Source.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use crate::limits;
use crate::server::admission::Requester;
use crate::server::source::SourceKey;
use crate::uuid::Uuid;

/// The registered sessions.
#[derive(Debug, Default)]
pub struct SessionRegistry {
    sessions: HashMap<Arc<str>, RegistryEntry>,
    bodies_bytes: usize,
    /// The unused ones, in the order in which they came and expire.
    unused: BTreeMap<EntryId, Arc<str>>,
    /// Those of them that an authorised request made.
    authorised: BTreeSet<EntryId>,
    /// What each source holds by anonymous requests.
    sources: HashMap<SourceKey, SourceUsage>,
    /// The sources that hold anything unused, by how much.
    by_entries: BTreeSet<Rank>,
    by_bytes: BTreeSet<Rank>,
    next: EntryId,
}

/// Counts registrations.
type EntryId = u64;

/// How much a source holds; of two that hold as much the one with the older unused entry stands
/// behind.
type Rank = (usize, Reverse<EntryId>, SourceKey);

#[derive(Debug, Default)]
struct SourceUsage {
    entries: usize,
    bytes: usize,
    unused: BTreeSet<EntryId>,
}

impl SourceUsage {
    /// Returns its places by entries and by bytes; none while nothing of it may give way.
    fn ranks(&self, source: SourceKey) -> Option<(Rank, Rank)> {
        let oldest = Reverse(*self.unused.first()?);
        Some(((self.entries, oldest, source), (self.bytes, oldest, source)))
    }
}

#[derive(Debug)]
struct RegistryEntry {
    entry_id: EntryId,
    requester: Requester,
    /// JSON text.
    body: Box<str>,
    expires: Instant,
    /// Claims that were not given back.
    claims: usize,
    /// Whether a connection has the id itself as its session's name.
    id_taken: bool,
    /// Whether any claim became a session.
    used: bool,
}

impl RegistryEntry {
    fn is_expired(&self, now: Instant) -> bool {
        self.claims == 0 && now >= self.expires
    }

    /// Tells whether it was left alone for long enough to give way to its equal.
    fn is_past_grace_period(&self, now: Instant) -> bool {
        now >= self.expires - limits::REGISTERED_UNUSED + limits::REGISTERED_YIELDS_AFTER
    }
}

/// What a new connection gets; it goes back with [`SessionRegistry::release`].
#[derive(Clone, Debug, PartialEq)]
pub struct SessionClaim {
    /// The id that was registered.
    pub registered: Arc<str>,
    /// The name of the session to be.
    pub session_id: Arc<str>,
    pub body: Value,
    /// Whether the request that registered it was authorised: then so is the holder of the id.
    pub is_authorised: bool,
}

/// There is no place for another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryFull {
    Capacity,
    /// The source address holds its share.
    SourceShare,
}

impl fmt::Display for RegistryFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RegistryFull::Capacity => "too many sessions were started and not used; try again later",
            RegistryFull::SourceShare => "this address has its share of the started sessions; try again later",
        })
    }
}

impl std::error::Error for RegistryFull {}

/// No session of this id is registered, or it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSession;

impl fmt::Display for UnknownSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Invalid or not-yet-ready session_id")
    }
}

impl std::error::Error for UnknownSession {}

impl SessionRegistry {
    /// Keeps a body for the connection to come.
    ///
    /// # Errors
    /// [`RegistryFull`] when another session, or its body, is beyond the caps.
    pub fn register(
        &mut self,
        id: Arc<str>,
        body: &Value,
        requester: Requester,
        now: Instant,
    ) -> Result<(), RegistryFull> {
        self.expire(now);
        let body = body.to_string().into_boxed_str();
        if !requester.is_authorised {
            self.evict_for(requester.source, body.len())?;
        }
        loop {
            let too_many = self.sessions.len() >= limits::REGISTERED_MAX;
            if !too_many && self.bodies_bytes + body.len() <= limits::REGISTERED_BYTES_MAX {
                break;
            }
            let eviction_candidate = self
                .victim(requester, too_many, body.len(), now)
                .ok_or(RegistryFull::Capacity)?;
            self.remove_entry(eviction_candidate);
        }
        let ticket = self.next;
        self.next += 1;
        self.bodies_bytes += body.len();
        self.update_usage(requester, |held| {
            held.entries += 1;
            held.bytes += body.len();
        });
        let session = RegistryEntry {
            entry_id: ticket,
            requester,
            body,
            expires: now + limits::REGISTERED_UNUSED,
            claims: 0,
            id_taken: false,
            used: false,
        };
        self.sessions.insert(id.clone(), session);
        self.mark_unused(ticket, id, requester);
        Ok(())
    }

    /// Makes a source's own oldest give way while it has its share.
    fn evict_for(&mut self, source: SourceKey, bytes: usize) -> Result<(), RegistryFull> {
        while let Some(holding) = self.sources.get(&source) {
            let has_share = holding.entries >= limits::REGISTERED_SHARE_MAX
                || holding.bytes + bytes > limits::REGISTERED_SHARE_BYTES_MAX;
            if !has_share {
                break;
            }
            let oldest = *holding.unused.first().ok_or(RegistryFull::SourceShare)?;
            self.remove_entry(oldest);
        }
        Ok(())
    }

    /// Finds what gives way to a body of so many bytes.
    fn victim(&self, requester: Requester, by_entries: bool, bytes: usize, now: Instant) -> Option<EntryId> {
        let ranks = if by_entries { &self.by_entries } else { &self.by_bytes };
        let had_its_time = |ticket: &EntryId| {
            let id = self.unused.get(ticket)?;
            let session = self.sessions.get(id)?;
            session.is_past_grace_period(now).then_some(*ticket)
        };
        match (ranks.last(), requester.is_authorised) {
            (Some((_, Reverse(oldest), _)), true) => Some(*oldest),
            (Some((most, Reverse(oldest), _)), false) => {
                let own = self.sources.get(&requester.source);
                let own = match by_entries {
                    true => own.map_or(0, |holding| holding.entries) + 1,
                    false => own.map_or(0, |holding| holding.bytes) + bytes,
                };
                if *most > own {
                    return Some(*oldest);
                }
                had_its_time(oldest)
            }
            (None, true) => self.authorised.first().and_then(had_its_time),
            (None, false) => None,
        }
    }

    /// Tells whether a session is registered and has not ended.
    pub fn contains(&self, id: &str, now: Instant) -> bool {
        self.sessions.get(id).is_some_and(|session| !session.is_expired(now))
    }

    /// Lends the body to a new connection. `fresh` becomes the session's name when the id is taken
    /// as one.
    ///
    /// # Errors
    /// [`UnknownSession`] when the id was never registered, has expired, or has ended.
    pub fn claim(&mut self, id: &str, fresh: Arc<str>, now: Instant) -> Result<SessionClaim, UnknownSession> {
        let (registered, session) = match self.sessions.get_key_value(id) {
            Some((registered, session)) if !session.is_expired(now) => (registered.clone(), session),
            _ => return Err(UnknownSession),
        };
        let body = serde_json::from_str(&session.body).expect("a body that was written as JSON is JSON");
        let session = self.sessions.get_mut(id).expect("it was there a line ago");
        session.claims += 1;
        let session_id = if std::mem::replace(&mut session.id_taken, true) {
            fresh
        } else {
            registered.clone()
        };
        let (ticket, requester) = (session.entry_id, session.requester);
        self.mark_used(ticket, requester);
        Ok(SessionClaim {
            registered,
            session_id,
            body,
            is_authorised: requester.is_authorised,
        })
    }

    /// Claims an id that is good for one session: it must be neither claimed nor used.
    ///
    /// # Errors
    /// [`UnknownSession`], also for a used id.
    pub fn claim_once(&mut self, id: &str, now: Instant) -> Result<SessionClaim, UnknownSession> {
        if !self.is_unused(id, now) {
            return Err(UnknownSession);
        }
        self.claim(id, id.into(), now)
    }

    /// Tells whether a session is registered that no connection was made for.
    pub fn is_unused(&self, id: &str, now: Instant) -> bool {
        self.sessions
            .get(id)
            .is_some_and(|session| session.claims == 0 && !session.used && !session.is_expired(now))
    }

    /// Takes a claim back: `used` when a session came of it and has ended, not `used` when its
    /// connection never came to be, so that the client may try again.
    pub fn release(&mut self, claim: &SessionClaim, used: bool) {
        let Some(session) = self.sessions.get_mut(&claim.registered) else {
            return;
        };
        session.claims = session.claims.saturating_sub(1);
        session.used |= used;
        if !used && claim.session_id == claim.registered {
            session.id_taken = false;
        }
        if session.claims > 0 {
            return;
        }
        let (ticket, requester) = (session.entry_id, session.requester);
        match session.used {
            true => self.remove(&claim.registered),
            // It can expire again, and its time may have come while it was held.
            false => self.mark_unused(ticket, claim.registered.clone(), requester),
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

    fn mark_unused(&mut self, ticket: EntryId, id: Arc<str>, requester: Requester) {
        self.unused.insert(ticket, id);
        if requester.is_authorised {
            self.authorised.insert(ticket);
        }
        self.update_usage(requester, |held| {
            held.unused.insert(ticket);
        });
    }

    fn mark_used(&mut self, ticket: EntryId, requester: Requester) {
        self.unused.remove(&ticket);
        self.authorised.remove(&ticket);
        self.update_usage(requester, |held| {
            held.unused.remove(&ticket);
        });
    }

    /// Changes what a source holds, and its rank with it.
    fn update_usage(&mut self, requester: Requester, change: impl FnOnce(&mut SourceUsage)) {
        if requester.is_authorised {
            return;
        }
        let source = requester.source;
        let holding = self.sources.entry(source).or_default();
        if let Some((by_entries, by_bytes)) = holding.ranks(source) {
            self.by_entries.remove(&by_entries);
            self.by_bytes.remove(&by_bytes);
        }
        change(holding);
        if let Some((by_entries, by_bytes)) = holding.ranks(source) {
            self.by_entries.insert(by_entries);
            self.by_bytes.insert(by_bytes);
        }
        if holding.entries == 0 {
            self.sources.remove(&source);
        }
    }

    fn remove_entry(&mut self, ticket: EntryId) {
        if let Some(id) = self.unused.get(&ticket).cloned() {
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(session) = self.sessions.remove(id) {
            self.mark_used(session.entry_id, session.requester);
            self.bodies_bytes -= session.body.len();
            self.update_usage(session.requester, |held| {
                held.entries -= 1;
                held.bytes -= session.body.len();
            });
        }
    }

    /// Drops what was not used in time.
    fn expire(&mut self, now: Instant) {
        while let Some((ticket, id)) = self.unused.first_key_value() {
            if self.sessions.get(id).is_some_and(|session| now < session.expires) {
                break;
            }
            self.remove_entry(*ticket);
        }
    }
}

/// Makes a session's name of 16 random bytes: a UUID of version 4, in lower case.
pub fn session_id(random: [u8; 16]) -> Arc<str> {
    Uuid::v4(random).to_string().into()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    const A: Requester = from(1);
    const B: Requester = from(2);

    const fn from(host: u8) -> Requester {
        Requester {
            source: SourceKey::V4(Ipv4Addr::new(192, 0, 2, host)),
            is_authorised: false,
            local_address: None,
        }
    }

    const fn authorised(requester: Requester) -> Requester {
        Requester {
            is_authorised: true,
            ..requester
        }
    }

    fn id(name: &str) -> Arc<str> {
        name.into()
    }

    /// Fills the table from so many sources that none is beyond its share; `nth` is registered by
    /// source `nth % 8`.
    fn fill(table: &mut SessionRegistry, ids: std::ops::Range<usize>, now: Instant) {
        for nth in ids {
            let requester = from(100 + (nth % 8) as u8);
            table
                .register(id(&nth.to_string()), &json!({}), requester, now)
                .expect("room");
        }
    }

    fn table() -> (SessionRegistry, Instant) {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        table.register(id("S"), &json!({"a": 1}), A, now).expect("room");
        (table, now)
    }

    /// the first connection is the session that `/start` named, and gets its body.
    #[test]
    fn the_first_connection_takes_the_registered_name_and_body() {
        let (mut table, now) = table();
        let claim = table.claim("S", id("F"), now).expect("known");
        assert_eq!(
            claim,
            SessionClaim {
                registered: id("S"),
                session_id: id("S"),
                body: json!({"a": 1}),
                is_authorised: false,
            }
        );
        assert_eq!(table.claim("T", id("F"), now), Err(UnknownSession));
    }

    /// A name that is a key makes one session: not a second while that lives, nor after it, nor
    /// once it expired; but another try where none came of it.
    #[test]
    fn a_name_can_be_good_for_one_session_alone() {
        let (mut table, now) = table();
        let claim = table.claim_once("S", now).expect("known");
        assert_eq!((&*claim.session_id, &claim.body), ("S", &json!({"a": 1})));
        assert_eq!(table.claim_once("S", now), Err(UnknownSession));
        table.release(&claim, false);
        let claim = table.claim_once("S", now).expect("no session came of it");
        table.release(&claim, true);
        assert_eq!(table.claim_once("S", now), Err(UnknownSession));
        table.register(id("T"), &json!({}), A, now).expect("room");
        assert!(table.is_unused("T", now + limits::REGISTERED_UNUSED - TICK));
        assert_eq!(
            table.claim_once("T", now + limits::REGISTERED_UNUSED),
            Err(UnknownSession)
        );
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
            Err(UnknownSession),
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
        table.register(id("used"), &json!({}), A, now).expect("room");
        let claim = table.claim("used", id("F"), now).expect("known");
        let end = now + limits::REGISTERED_UNUSED;
        assert!(table.contains("S", end - TICK));
        assert!(!table.contains("S", end));
        assert_eq!(table.claim("S", id("F"), end), Err(UnknownSession));
        assert!(table.contains("used", end));
        table.register(id("T"), &json!({}), A, end).expect("room");
        assert_eq!(table.len(), 2, "what expired was dropped");
        // Given back unused after its time, it is gone at once.
        table.release(&claim, false);
        assert!(!table.contains("used", end));
        table.register(id("U"), &json!({}), A, end).expect("room");
        assert_eq!(table.len(), 2);
    }

    /// At the cap everybody is in; past it the oldest that was not used gives way to its equals,
    /// and not before its time.
    #[test]
    fn the_number_of_ids_is_capped_and_time_makes_room() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        fill(&mut table, 0..limits::REGISTERED_MAX, now);
        let claim = table.claim("0", id("F"), now).expect("known");
        // Each source holds as much as any other.
        let newcomer = from(100);
        let asks = |table: &mut SessionRegistry, name: &str, at| table.register(id(name), &json!({}), newcomer, at);
        assert_eq!(asks(&mut table, "one more", now + TICK), Err(RegistryFull::Capacity));
        let yields = now + limits::REGISTERED_YIELDS_AFTER;
        assert_eq!(asks(&mut table, "one more", yields - TICK), Err(RegistryFull::Capacity));
        assert_eq!(asks(&mut table, "one more", yields), Ok(()));
        assert!(!table.contains("1", yields) && table.contains("0", yields) && table.contains("2", yields));
        assert_eq!(table.len(), limits::REGISTERED_MAX);
        let end = now + limits::REGISTERED_UNUSED + TICK;
        assert_eq!(asks(&mut table, "another", end), Ok(()));
        assert_eq!(table.len(), 3, "those that were never used are gone");
        table.release(&claim, true);
        assert_eq!(table.len(), 2);
    }

    /// At its share a source loses its own oldest at once, and no other source anything: 20,000
    /// registrations of one address within a moment leave every other's alone.
    #[test]
    fn a_flood_drives_out_its_own() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        table.register(id("honest"), &json!({}), B, now).expect("room");
        for nth in 0..20_000 {
            assert_eq!(table.register(id(&nth.to_string()), &json!({}), A, now), Ok(()));
            assert!(table.len() <= limits::REGISTERED_SHARE_MAX + 1);
            if nth % 1_000 == 0 {
                let name = format!("honest {nth}");
                assert_eq!(table.register(id(&name), &json!({}), B, now), Ok(()));
                let claim = table.claim(&name, id("F"), now).expect("known");
                table.release(&claim, true);
            }
        }
        assert!(table.contains("honest", now) && table.contains("19999", now) && !table.contains("0", now));
        assert_eq!(table.sources[&A.source].entries, limits::REGISTERED_SHARE_MAX);
        let oldest_left = 20_000 - limits::REGISTERED_SHARE_MAX;
        assert!(table.contains(&oldest_left.to_string(), now) && !table.contains(&(oldest_left - 1).to_string(), now));
    }

    /// Four sources with their shares fill the table; a source that holds less gets in at once, at
    /// the cost of one of them.
    #[test]
    fn a_full_table_has_room_for_who_holds_less() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        for nth in 0..limits::REGISTERED_MAX {
            let requester = from(10 + (nth % 4) as u8);
            table
                .register(id(&nth.to_string()), &json!({}), requester, now)
                .expect("room");
        }
        assert_eq!(table.len(), limits::REGISTERED_MAX);
        assert_eq!(table.register(id("honest"), &json!({}), B, now), Ok(()));
        assert!(!table.contains("0", now), "the oldest of the heaviest");
        assert_eq!(table.register(id("honest too"), &json!({}), B, now), Ok(()));
        assert!(!table.contains("1", now) && table.contains("2", now) && table.contains("honest", now));
    }

    /// Addresses of one IPv6 network of 64 bits have one share.
    #[test]
    fn a_network_has_one_share() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        for nth in 0..=limits::REGISTERED_SHARE_MAX {
            let address: std::net::IpAddr = format!("2001:db8::{nth:x}").parse().expect("an address");
            let requester = Requester {
                source: address.into(),
                is_authorised: false,
                local_address: None,
            };
            assert_eq!(table.register(id(&nth.to_string()), &json!({}), requester, now), Ok(()));
        }
        assert!(table.len() == limits::REGISTERED_SHARE_MAX && !table.contains("0", now));
    }

    /// What was authorised has no share, makes anonymous entries give way at once, and gives way to
    /// none of them.
    #[test]
    fn authorised_entries_never_give_way_to_anonymous_ones() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        table.register(id("anonymous"), &json!({}), B, now).expect("room");
        for nth in 0..limits::REGISTERED_MAX {
            assert_eq!(
                table.register(id(&nth.to_string()), &json!({}), authorised(A), now),
                Ok(())
            );
        }
        assert!(!table.contains("anonymous", now) && table.contains("0", now));
        let late = now + limits::REGISTERED_UNUSED - TICK;
        for at in [now, late] {
            assert_eq!(
                table.register(id("anonymous"), &json!({}), B, at),
                Err(RegistryFull::Capacity)
            );
        }
        let yields = now + limits::REGISTERED_YIELDS_AFTER;
        let name = id("authorised");
        assert_eq!(
            table.register(name.clone(), &json!({}), authorised(B), yields - TICK),
            Err(RegistryFull::Capacity)
        );
        assert_eq!(table.register(name.clone(), &json!({}), authorised(B), yields), Ok(()));
        assert!(!table.contains("0", yields) && table.contains("1", yields));
        assert!(table.claim("authorised", id("F"), yields).expect("known").is_authorised);
    }

    fn body(bytes: usize) -> Value {
        // Two bytes of quotes.
        json!("x".repeat(bytes - 2))
    }

    /// The bytes of one source have a share: at it, its oldest bodies give way, as many as it
    /// takes, and none that are used.
    #[test]
    fn a_source_s_bytes_are_capped() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        let half = limits::REGISTERED_SHARE_BYTES_MAX / 2;
        table.register(id("used"), &body(half), A, now).expect("room");
        let claim = table.claim("used", id("F"), now).expect("known");
        for name in ["a", "b"] {
            table.register(id(name), &body(half / 2), A, now).expect("room");
        }
        assert_eq!(table.register(id("long"), &body(half), A, now), Ok(()));
        assert!(!table.contains("a", now) && !table.contains("b", now) && table.contains("used", now));
        assert_eq!(
            table.register(id("longer"), &body(half + 1), A, now),
            Err(RegistryFull::SourceShare)
        );
        assert!(!table.contains("long", now), "it made room in vain");
        table.release(&claim, true);
        assert_eq!(table.register(id("longer"), &body(half + 1), A, now), Ok(()));
        assert_eq!(table.bodies_bytes, half + 1);
    }

    /// The bytes of all have a cap: at it, the bodies of the source that holds most of them give
    /// way.
    #[test]
    fn the_bytes_of_bodies_are_capped() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        let share = limits::REGISTERED_SHARE_BYTES_MAX;
        let all = limits::REGISTERED_BYTES_MAX / share;
        for nth in 0..all {
            let requester = from(10 + nth as u8);
            assert_eq!(
                table.register(id(&nth.to_string()), &body(share), requester, now),
                Ok(())
            );
        }
        assert_eq!(table.bodies_bytes, limits::REGISTERED_BYTES_MAX);
        assert_eq!(
            table.register(id("equal"), &body(share), B, now),
            Err(RegistryFull::Capacity)
        );
        assert_eq!(table.register(id("small"), &body(3), B, now), Ok(()));
        assert!(!table.contains("0", now) && table.contains("1", now) && table.contains("small", now));
        let claims: Vec<SessionClaim> = (1..all)
            .map(|nth| table.claim(&nth.to_string(), id("F"), now).expect("known"))
            .collect();
        assert_eq!(
            table.register(id("large"), &body(share), from(9), now),
            Err(RegistryFull::Capacity)
        );
        assert_eq!(claims.len(), all - 1);
    }

    /// Nothing is kept of what is gone, whichever way it went.
    #[test]
    fn an_empty_table_holds_nothing() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        fill(&mut table, 0..64, now);
        table
            .register(id("authorised"), &json!({}), authorised(A), now)
            .expect("room");
        let claims = ["0", "1", "authorised"].map(|name| table.claim(name, id("F"), now).expect("known"));
        for (nth, claim) in claims.iter().enumerate() {
            table.release(claim, nth != 1);
        }
        let end = now + limits::REGISTERED_UNUSED;
        table.expire(end - TICK);
        assert_eq!(table.len(), 63);
        table.expire(end);
        let SessionRegistry {
            sessions,
            bodies_bytes,
            unused,
            authorised,
            sources,
            by_entries,
            by_bytes,
            ..
        } = table;
        assert!(sessions.is_empty() && bodies_bytes == 0 && unused.is_empty() && authorised.is_empty());
        assert!(sources.is_empty() && by_entries.is_empty() && by_bytes.is_empty());
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
