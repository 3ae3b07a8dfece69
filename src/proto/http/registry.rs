//! The registry of sessions that `/start` created, each with the body for its bot.
//!
//! In: bodies, ids, requesters, and `now`. Out: a [`SessionClaim`] for each new connection. The
//! first connection of an id gets the id as its session's name; later ones, while others live, get
//! a fresh name and the same body. An unused id expires after 300 s; a used id is removed when its
//! last session ends, so that a bot that hung up does not return. Bodies are kept as text, so that
//! their size is known.
//!
//! Entries and bytes have the quotas of [`quota`](crate::server::quota). Only unused entries are
//! evicted, the oldest first. One source address holds at most a quarter; at that share its own
//! are evicted at once. Source.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::limits;
use crate::limits::REGISTERED_BYTES_MAX;
use crate::server::admission::Requester;
use crate::server::quota::{EqualHolders, QuotaError, QuotaLedger, QuotaPolicy, QuotaRequest, Ticket, Usage};
use crate::uuid::Uuid;

/// Bytes of stored bodies of one source address: a quarter as well.
const REGISTERED_SHARE_BYTES_MAX: usize = REGISTERED_BYTES_MAX / 4;
/// Age at which an unused registered session may be evicted for a source that holds no more:
/// clients connect within a second, or within several if the browser first asks for the microphone.
const REGISTERED_YIELDS_AFTER: Duration = Duration::from_secs(30);

const QUOTAS: QuotaPolicy = QuotaPolicy {
    max: Usage {
        entries: limits::REGISTERED_MAX,
        bytes: REGISTERED_BYTES_MAX,
    },
    share: Usage {
        entries: limits::REGISTERED_SHARE_MAX,
        bytes: REGISTERED_SHARE_BYTES_MAX,
    },
    evicted_max: usize::MAX,
    own_grace: Duration::ZERO,
    equal_holders: EqualHolders::AfterGrace(REGISTERED_YIELDS_AFTER),
    proxies_weigh: true,
};

/// The registered sessions.
#[derive(Debug)]
pub struct SessionRegistry {
    sessions: HashMap<Arc<str>, RegistryEntry>,
    quotas: QuotaLedger<()>,
    /// Unused entries, in order of registration and expiry.
    unused: BTreeMap<Ticket, Arc<str>>,
}

#[derive(Debug)]
struct RegistryEntry {
    ticket: Ticket,
    is_authorised: bool,
    /// The text of [`registered_text`].
    body: Box<str>,
    expires: Instant,
    /// Claims that were not released.
    claims: usize,
    /// Whether a session has the id itself as its name.
    id_taken: bool,
    /// Whether a claim became a session.
    used: bool,
}

impl RegistryEntry {
    fn is_expired(&self, now: Instant) -> bool {
        self.claims == 0 && now >= self.expires
    }
}

/// Returns the JSON text of a body for the bot of this name, or for the default. A text that begins
/// with a line break has both: that of a body alone never does.
pub fn registered_text(bot: Option<&str>, body: &Value) -> Box<str> {
    let text = match bot {
        Some(bot) => format!("\n[{},{body}]", Value::from(bot)),
        None => body.to_string(),
    };
    text.into_boxed_str()
}

/// Returns the name of the bot and the body of such a text.
fn bot_and_body(text: &str) -> (Option<String>, Value) {
    let parsed = match text.starts_with('\n') {
        true => serde_json::from_str(text).map(|(bot, body)| (Some(bot), body)),
        false => serde_json::from_str(text).map(|body| (None, body)),
    };
    // An id of a replica may hold what another version wrote.
    parsed.unwrap_or_default()
}

/// The result for a new connection; [`SessionRegistry::release`] returns it.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionClaim {
    /// The id that was registered.
    pub registered: Arc<str>,
    /// The id of the new session.
    pub session_id: Arc<str>,
    /// The name of the bot that was asked for.
    pub bot: Option<String>,
    pub body: Value,
    /// Whether an authorised request registered it; then the holder of the id is authorised too.
    pub is_authorised: bool,
}

/// No further session can be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryFull {
    Capacity,
    /// The source address has reached its share.
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

/// No session with this id is registered, or it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSession;

impl fmt::Display for UnknownSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Invalid or not-yet-ready session_id")
    }
}

impl std::error::Error for UnknownSession {}

impl Default for SessionRegistry {
    fn default() -> Self {
        SessionRegistry {
            sessions: HashMap::new(),
            quotas: QuotaLedger::new(QUOTAS),
            unused: BTreeMap::new(),
        }
    }
}

impl SessionRegistry {
    /// Registers the text of [`registered_text`] for a later connection.
    ///
    /// # Errors
    /// Returns [`RegistryFull`] if a limit is reached and no entry can be evicted.
    pub fn register(
        &mut self,
        id: Arc<str>,
        body: Box<str>,
        requester: Requester,
        now: Instant,
    ) -> Result<(), RegistryFull> {
        self.expire(now);
        let request = QuotaRequest {
            holder: requester.holder(),
            bytes: body.len(),
        };
        while let Some(victim) = self.quotas.plan(request, None, now).map_err(|error| match error {
            QuotaError::Share => RegistryFull::SourceShare,
            QuotaError::Full => RegistryFull::Capacity,
        })? {
            self.remove_entry(victim);
        }
        self.insert(id, body, requester, now);
        Ok(())
    }

    /// Adds an unused entry with this text, beyond any limit: for an id that brings its own
    /// body and is claimed at once.
    pub fn insert(&mut self, id: Arc<str>, body: Box<str>, requester: Requester, now: Instant) {
        let request = QuotaRequest {
            holder: requester.holder(),
            bytes: body.len(),
        };
        let ticket = self.quotas.admit(request, (), now);
        let session = RegistryEntry {
            ticket,
            is_authorised: requester.is_authorised,
            body,
            expires: now + limits::REGISTERED_UNUSED,
            claims: 0,
            id_taken: false,
            used: false,
        };
        self.sessions.insert(id.clone(), session);
        self.mark_unused(ticket, id);
    }

    /// Returns whether a session is registered and has not ended.
    pub fn contains(&self, id: &str, now: Instant) -> bool {
        self.sessions.get(id).is_some_and(|session| !session.is_expired(now))
    }

    /// Claims the session for a new connection. `fresh` becomes the id of the new session when the
    /// registered id is in use.
    ///
    /// # Errors
    /// Returns [`UnknownSession`] if the id was never registered, has expired, or has ended.
    pub fn claim(&mut self, id: &str, fresh: Arc<str>, now: Instant) -> Result<SessionClaim, UnknownSession> {
        let (registered, session) = match self.sessions.get_key_value(id) {
            Some((registered, session)) if !session.is_expired(now) => (registered.clone(), session),
            _ => return Err(UnknownSession),
        };
        let (bot, body) = bot_and_body(&session.body);
        let session = self.sessions.get_mut(id).expect("it was there a line ago");
        session.claims += 1;
        let session_id = if std::mem::replace(&mut session.id_taken, true) {
            fresh
        } else {
            registered.clone()
        };
        let (ticket, is_authorised) = (session.ticket, session.is_authorised);
        self.mark_used(ticket);
        Ok(SessionClaim {
            registered,
            session_id,
            bot,
            body,
            is_authorised,
        })
    }

    /// Claims an id that is valid for one session: it must be neither claimed nor used.
    ///
    /// # Errors
    /// Returns [`UnknownSession`], also for a used id.
    pub fn claim_once(&mut self, id: &str, now: Instant) -> Result<SessionClaim, UnknownSession> {
        if !self.is_unused(id, now) {
            return Err(UnknownSession);
        }
        self.claim(id, id.into(), now)
    }

    /// Returns whether a session is registered and unused.
    pub fn is_unused(&self, id: &str, now: Instant) -> bool {
        self.sessions
            .get(id)
            .is_some_and(|session| session.claims == 0 && !session.used && !session.is_expired(now))
    }

    /// Removes an entry if it has no claims. Returns whether it was removed; `None` if there was
    /// none.
    pub fn remove_unclaimed(&mut self, id: &str) -> Option<bool> {
        let has_claims = self.sessions.get(id)?.claims > 0;
        if !has_claims {
            self.remove(id);
        }
        Some(!has_claims)
    }

    /// Releases a claim: `used` states that it became a session, which has ended. Otherwise its
    /// connection failed, and the client may retry.
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
        let ticket = session.ticket;
        match session.used {
            true => self.remove(&claim.registered),
            // It can expire again, and may already be due.
            false => self.mark_unused(ticket, claim.registered.clone()),
        }
    }

    /// Returns the number of registered sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns whether no session is registered.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn mark_unused(&mut self, ticket: Ticket, id: Arc<str>) {
        self.unused.insert(ticket, id);
        self.quotas.set_order(ticket, Some((0, ticket)));
    }

    fn mark_used(&mut self, ticket: Ticket) {
        self.unused.remove(&ticket);
        self.quotas.set_order(ticket, None);
    }

    fn remove_entry(&mut self, ticket: Ticket) {
        if let Some(id) = self.unused.get(&ticket).cloned() {
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(session) = self.sessions.remove(id) {
            self.mark_used(session.ticket);
            self.quotas.remove(session.ticket);
        }
    }

    /// Removes expired entries.
    fn expire(&mut self, now: Instant) {
        while let Some((ticket, id)) = self.unused.first_key_value() {
            if self.sessions.get(id).is_some_and(|session| now < session.expires) {
                break;
            }
            self.remove_entry(*ticket);
        }
    }
}

/// Returns a session id of 16 random bytes: a UUID of version 4, in lower case.
pub fn session_id(random: [u8; 16]) -> Arc<str> {
    Uuid::v4(random).to_string().into()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde_json::json;

    use super::*;
    use crate::server::source::SourceKey;

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

    /// Fills the registry from enough sources that none exceeds its share; source `nth % 8`
    /// registers `nth`.
    fn fill(table: &mut SessionRegistry, ids: std::ops::Range<usize>, now: Instant) {
        for nth in ids {
            let requester = from(100 + (nth % 8) as u8);
            table
                .register(id(&nth.to_string()), text(&json!({})), requester, now)
                .expect("room");
        }
    }

    fn text(body: &Value) -> Box<str> {
        registered_text(None, body)
    }

    fn table() -> (SessionRegistry, Instant) {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        table.register(id("S"), text(&json!({"a": 1})), A, now).expect("room");
        (table, now)
    }

    /// the first connection gets the id and the body that `/start` registered, and
    /// the rights of that request.
    #[test]
    fn the_first_connection_gets_the_registered_id_and_body() {
        let (mut table, now) = table();
        let claim = table.claim("S", id("F"), now).expect("known");
        assert_eq!(
            claim,
            SessionClaim {
                registered: id("S"),
                session_id: id("S"),
                bot: None,
                body: json!({"a": 1}),
                is_authorised: false,
            }
        );
        assert_eq!(table.claim("T", id("F"), now), Err(UnknownSession));
        let key = authorised(B);
        table.register(id("T"), text(&json!({})), key, now).expect("room");
        assert!(table.claim("T", id("F"), now).expect("known").is_authorised);
    }

    /// The name of a bot stays beside its body, whatever that is.
    #[test]
    fn a_registration_may_name_a_bot() {
        let (mut table, now) = table();
        for (name, body) in [("a", json!({"a": 1})), ("b", json!(["sales", {}])), ("c", json!("\n"))] {
            let text = registered_text(Some("sales"), &body);
            table.register(id(name), text, A, now).expect("room");
            let claim = table.claim(name, id("F"), now).expect("known");
            assert_eq!((claim.bot.as_deref(), claim.body), (Some("sales"), body.clone()));
            // A body alone is never taken for one with a bot.
            let alone = format!("{name} alone");
            let text = registered_text(None, &body);
            table.register(id(&alone), text, A, now).expect("room");
            let claim = table.claim(&alone, id("F"), now).expect("known");
            assert_eq!((claim.bot, claim.body), (None, body));
        }
    }

    /// `claim_once` allows one session: no second one during or after it, nor after expiry, but a
    /// retry after a failed connection.
    #[test]
    fn an_id_can_be_limited_to_one_session() {
        let (mut table, now) = table();
        let claim = table.claim_once("S", now).expect("known");
        assert_eq!((&*claim.session_id, &claim.body), ("S", &json!({"a": 1})));
        assert_eq!(table.claim_once("S", now), Err(UnknownSession));
        table.release(&claim, false);
        let claim = table.claim_once("S", now).expect("no session came of it");
        table.release(&claim, true);
        assert_eq!(table.claim_once("S", now), Err(UnknownSession));
        table.register(id("T"), text(&json!({})), A, now).expect("room");
        assert!(table.is_unused("T", now + limits::REGISTERED_UNUSED - TICK));
        assert_eq!(
            table.claim_once("T", now + limits::REGISTERED_UNUSED),
            Err(UnknownSession)
        );
    }

    /// An id is valid for further connections while one of them lives; then it is removed.
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
        assert_eq!((table.len(), table.quotas.total().bytes), (0, 0));
    }

    /// A failed offer leaves the session unused: the client retries.
    #[test]
    fn a_failed_connection_leaves_the_id_usable() {
        let (mut table, now) = table();
        let failed = table.claim("S", id("F1"), now).expect("known");
        table.release(&failed, false);
        let again = table.claim("S", id("F2"), now).expect("still known");
        assert_eq!(&*again.session_id, "S");
        // A renegotiation also claims, and releases unused while the session lives.
        let renegotiation = table.claim("S", id("F3"), now).expect("known");
        table.release(&renegotiation, false);
        assert!(table.contains("S", now));
        table.release(&again, true);
        assert!(!table.contains("S", now));
    }

    #[test]
    fn an_unused_id_expires_and_a_used_one_does_not() {
        let (mut table, now) = table();
        table.register(id("used"), text(&json!({})), A, now).expect("room");
        let claim = table.claim("used", id("F"), now).expect("known");
        let end = now + limits::REGISTERED_UNUSED;
        assert!(table.contains("S", end - TICK));
        assert!(!table.contains("S", end));
        assert_eq!(table.claim("S", id("F"), end), Err(UnknownSession));
        assert!(table.contains("used", end));
        table.register(id("T"), text(&json!({})), A, end).expect("room");
        assert_eq!(table.len(), 2, "what expired was dropped");
        // Released unused after its expiry, it is removed at once.
        table.release(&claim, false);
        assert!(!table.contains("used", end));
        table.register(id("U"), text(&json!({})), A, end).expect("room");
        assert_eq!(table.len(), 2);
    }

    /// At the limit, the oldest unused entry is evicted for an equal source, after the grace
    /// period.
    #[test]
    fn the_number_of_ids_is_limited_and_old_ones_are_evicted() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        fill(&mut table, 0..limits::REGISTERED_MAX, now);
        let claim = table.claim("0", id("F"), now).expect("known");
        // All sources have the same usage.
        let newcomer = from(100);
        let asks =
            |table: &mut SessionRegistry, name: &str, at| table.register(id(name), text(&json!({})), newcomer, at);
        assert_eq!(asks(&mut table, "one more", now + TICK), Err(RegistryFull::Capacity));
        let yields = now + REGISTERED_YIELDS_AFTER;
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

    /// A source at its share evicts its own oldest entries: 20,000 registrations of one address
    /// evict no entry of another.
    #[test]
    fn a_flood_evicts_its_own_entries() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        table.register(id("honest"), text(&json!({})), B, now).expect("room");
        for nth in 0..20_000 {
            assert_eq!(table.register(id(&nth.to_string()), text(&json!({})), A, now), Ok(()));
            assert!(table.len() <= limits::REGISTERED_SHARE_MAX + 1);
            if nth % 1_000 == 0 {
                let name = format!("honest {nth}");
                assert_eq!(table.register(id(&name), text(&json!({})), B, now), Ok(()));
                let claim = table.claim(&name, id("F"), now).expect("known");
                table.release(&claim, true);
            }
        }
        assert!(table.contains("honest", now) && table.contains("19999", now) && !table.contains("0", now));
        assert_eq!(table.quotas.usage(A.holder()).entries, limits::REGISTERED_SHARE_MAX);
        let oldest_left = 20_000 - limits::REGISTERED_SHARE_MAX;
        assert!(table.contains(&oldest_left.to_string(), now) && !table.contains(&(oldest_left - 1).to_string(), now));
    }

    /// Four sources with their full share fill the registry; a source with less usage evicts one of
    /// their entries at once.
    #[test]
    fn a_full_registry_accepts_a_source_with_less_usage() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        for nth in 0..limits::REGISTERED_MAX {
            let requester = from(10 + (nth % 4) as u8);
            table
                .register(id(&nth.to_string()), text(&json!({})), requester, now)
                .expect("room");
        }
        assert_eq!(table.len(), limits::REGISTERED_MAX);
        assert_eq!(table.register(id("honest"), text(&json!({})), B, now), Ok(()));
        assert!(!table.contains("0", now), "the oldest of the heaviest");
        assert_eq!(table.register(id("honest too"), text(&json!({})), B, now), Ok(()));
        assert!(!table.contains("1", now) && table.contains("2", now) && table.contains("honest", now));
    }

    fn body(bytes: usize) -> Value {
        // Two bytes are quotes.
        json!("x".repeat(bytes - 2))
    }

    /// The bytes of a source are limited: its oldest unused bodies are evicted until the new one
    /// fits.
    #[test]
    fn the_bytes_of_a_source_are_limited() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        let half = REGISTERED_SHARE_BYTES_MAX / 2;
        table.register(id("used"), text(&body(half)), A, now).expect("room");
        let claim = table.claim("used", id("F"), now).expect("known");
        for name in ["a", "b"] {
            table.register(id(name), text(&body(half / 2)), A, now).expect("room");
        }
        assert_eq!(table.register(id("long"), text(&body(half)), A, now), Ok(()));
        assert!(!table.contains("a", now) && !table.contains("b", now) && table.contains("used", now));
        assert_eq!(
            table.register(id("longer"), text(&body(half + 1)), A, now),
            Err(RegistryFull::SourceShare)
        );
        assert!(!table.contains("long", now), "it made room in vain");
        table.release(&claim, true);
        assert_eq!(table.register(id("longer"), text(&body(half + 1)), A, now), Ok(()));
        assert_eq!(table.quotas.total().bytes, half + 1);
    }

    /// The total of bytes is limited: bodies of the source with the most bytes are evicted.
    #[test]
    fn the_total_of_bytes_is_limited() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        let share = REGISTERED_SHARE_BYTES_MAX;
        let all = REGISTERED_BYTES_MAX / share;
        for nth in 0..all {
            let requester = from(10 + nth as u8);
            assert_eq!(
                table.register(id(&nth.to_string()), text(&body(share)), requester, now),
                Ok(())
            );
        }
        assert_eq!(table.quotas.total().bytes, REGISTERED_BYTES_MAX);
        assert_eq!(
            table.register(id("equal"), text(&body(share)), B, now),
            Err(RegistryFull::Capacity)
        );
        assert_eq!(table.register(id("small"), text(&body(3)), B, now), Ok(()));
        assert!(!table.contains("0", now) && table.contains("1", now) && table.contains("small", now));
        let claims: Vec<SessionClaim> = (1..all)
            .map(|nth| table.claim(&nth.to_string(), id("F"), now).expect("known"))
            .collect();
        assert_eq!(
            table.register(id("large"), text(&body(share)), from(9), now),
            Err(RegistryFull::Capacity)
        );
        assert_eq!(claims.len(), all - 1);
    }

    /// All indexes are empty after every kind of removal.
    #[test]
    fn an_empty_registry_has_empty_indexes() {
        let (mut table, now) = (SessionRegistry::default(), Instant::now());
        fill(&mut table, 0..64, now);
        table
            .register(id("authorised"), text(&json!({})), authorised(A), now)
            .expect("room");
        let claims = ["0", "1", "authorised"].map(|name| table.claim(name, id("F"), now).expect("known"));
        for (nth, claim) in claims.iter().enumerate() {
            table.release(claim, nth != 1);
        }
        let end = now + limits::REGISTERED_UNUSED;
        table.expire(end - TICK);
        assert_eq!(table.len(), 63);
        table.expire(end);
        assert!(table.is_empty() && table.quotas.is_empty() && table.unused.is_empty());
    }

    /// ids are UUIDs of version 4.
    #[test]
    fn session_ids_are_uuids() {
        assert_eq!(&*session_id([0; 16]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(&*session_id([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        let counted = std::array::from_fn(|nth| nth as u8);
        assert_eq!(&*session_id(counted), "00010203-0405-4607-8809-0a0b0c0d0e0f");
    }
}
