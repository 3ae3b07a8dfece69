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
mod tests;
