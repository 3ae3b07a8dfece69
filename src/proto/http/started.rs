//! The sessions that `/start` created: in the [`SessionRegistry`] of this runner, or, with a
//! cluster key, inside their ids, so that every replica can take them.
//!
//! In: bodies, requesters, ids of clients, random bytes, the time. Out: ids for clients, and a
//! [`SessionClaim`] for each new connection, as of the registry. A replica registers a sealed id
//! when a connection claims it, and removes it with its last session. Then it records the id, which
//! no longer opens anything here; another replica does not know that. A bare UUID, as in the log,
//! is no id of a client. Source: `docs/spec/decisions.md` D-23, D-24.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::http::cluster::ClusterKey;
use crate::http::cluster::sealed_id::{BodyTooLong, SealedIds, SealedSession};
use crate::http::cluster::spent::SpentRecord;
use crate::http::registry::{self, RegistryFull, SessionClaim, SessionRegistry, UnknownSession};
use crate::limits::{CLUSTER_CLOCK_SKEW, CLUSTER_RESTART_WITHIN, REGISTERED_UNUSED};
use crate::server::admission::Requester;
use crate::time::RequestTime;
use crate::uuid::Uuid;

/// The sessions that `/start` created.
#[derive(Debug, Default)]
pub struct StartedSessions {
    registry: SessionRegistry,
    /// `None` without a cluster key.
    shared: Option<SharedIds>,
}

#[derive(Debug)]
struct SharedIds {
    ids: SealedIds,
    /// The seconds at which the ids of claimed entries expire.
    claimed: HashMap<Arc<str>, u64>,
    spent: SpentRecord,
}

/// What an id is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdUse {
    /// A connection.
    Connect,
    /// A connection in place of one to another replica, which is gone.
    Restart,
}

/// No session can be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateError {
    Full(RegistryFull),
    TooLong(BodyTooLong),
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Full(full) => full.fmt(f),
            CreateError::TooLong(too_long) => too_long.fmt(f),
        }
    }
}

impl std::error::Error for CreateError {}

impl StartedSessions {
    /// Creates the sessions of a runner, or of a replica with this key.
    pub fn new(key: Option<&ClusterKey>) -> Self {
        StartedSessions {
            registry: SessionRegistry::default(),
            shared: key.map(|key| SharedIds {
                ids: SealedIds::new(key),
                claimed: HashMap::new(),
                spent: SpentRecord::default(),
            }),
        }
    }

    /// Creates a session of the bot of this name or of the default, and returns the id for its
    /// client.
    ///
    /// # Errors
    /// [`CreateError`] if the registry is full, or if an id cannot carry the body.
    pub fn create(
        &mut self,
        random: [u8; 16],
        (bot, body): (Option<&str>, &Value),
        requester: Requester,
        at: RequestTime,
    ) -> Result<Arc<str>, CreateError> {
        let text = registry::registered_text(bot, body);
        let Some(shared) = &self.shared else {
            let id = registry::session_id(random);
            let registered = self.registry.register(id.clone(), text, requester, at.now);
            return registered.map(|()| id).map_err(CreateError::Full);
        };
        let session = SealedSession {
            uuid: Uuid::v4(random),
            body: text,
            is_authorised: requester.is_authorised,
            expires_s: at.unix_s + REGISTERED_UNUSED.as_secs(),
        };
        shared.ids.seal(&session).map_err(CreateError::TooLong)
    }

    /// Returns whether a client's id names a session that has not ended.
    pub fn contains(&self, id: &str, at: RequestTime) -> bool {
        self.is_good_for(IdUse::Connect, id, at)
    }

    /// Returns whether a client's id may still be good for some offer: also for a restart.
    pub fn may_restart(&self, id: &str, at: RequestTime) -> bool {
        self.is_good_for(IdUse::Restart, id, at)
    }

    fn is_good_for(&self, id_use: IdUse, id: &str, at: RequestTime) -> bool {
        match &self.shared {
            None => self.registry.contains(id, at.now),
            Some(shared) => shared.ids.open(id).is_some_and(|session| {
                let is_live = self.registry.contains(&session.uuid.to_string(), at.now);
                is_live || shared.is_usable(&session, id_use, at)
            }),
        }
    }

    /// Returns whether a client's id names a session that no connection has claimed.
    pub fn is_unused(&self, id: &str, at: RequestTime) -> bool {
        match &self.shared {
            None => self.registry.is_unused(id, at.now),
            Some(shared) => shared.ids.open(id).is_some_and(|session| {
                let is_live = self.registry.contains(&session.uuid.to_string(), at.now);
                !is_live && shared.is_usable(&session, IdUse::Connect, at)
            }),
        }
    }

    /// Claims the session for a new connection, as [`SessionRegistry::claim`].
    ///
    /// # Errors
    /// [`UnknownSession`] if the id is invalid or has expired, or if its session has ended here.
    pub fn claim(
        &mut self,
        id: &str,
        fresh: Arc<str>,
        id_use: IdUse,
        requester: Requester,
        at: RequestTime,
    ) -> Result<SessionClaim, UnknownSession> {
        let Some(shared) = &mut self.shared else {
            return self.registry.claim(id, fresh, at.now);
        };
        let session = shared.ids.open(id).ok_or(UnknownSession)?;
        let name: Arc<str> = session.uuid.to_string().into();
        if !self.registry.contains(&name, at.now) {
            if !shared.is_usable(&session, id_use, at) {
                return Err(UnknownSession);
            }
            let requester = Requester {
                is_authorised: session.is_authorised,
                ..requester
            };
            self.registry.insert(name.clone(), session.body, requester, at.now);
            shared.claimed.insert(name.clone(), session.expires_s);
        }
        self.registry.claim(&name, fresh, at.now)
    }

    /// Claims an id that is valid for one session, as [`SessionRegistry::claim_once`].
    ///
    /// # Errors
    /// [`UnknownSession`], also for an id in use.
    pub fn claim_once(
        &mut self,
        id: &str,
        requester: Requester,
        at: RequestTime,
    ) -> Result<SessionClaim, UnknownSession> {
        match &self.shared {
            None => self.registry.claim_once(id, at.now),
            Some(_) if !self.is_unused(id, at) => Err(UnknownSession),
            // A new entry takes its own name, so the other one is not used.
            Some(_) => self.claim(id, id.into(), IdUse::Connect, requester, at),
        }
    }

    /// Releases a claim, as [`SessionRegistry::release`].
    pub fn release(&mut self, claim: &SessionClaim, used: bool, at: RequestTime) {
        self.registry.release(claim, used);
        let Some(shared) = &mut self.shared else {
            return;
        };
        let removed = self.registry.remove_unclaimed(&claim.registered);
        if removed == Some(false) {
            return;
        }
        let expires = shared.claimed.remove(&claim.registered);
        // If the connection failed and the client tries again, the id brings the entry back.
        if removed == Some(true) {
            return;
        }
        if let (Some(uuid), Some(expires)) = (Uuid::parse(&claim.registered), expires) {
            shared.spent.insert(uuid.as_bytes(), recorded_until(expires), at.unix_s);
        }
    }

    /// Returns the number of sessions that are registered here.
    pub fn len(&self) -> usize {
        self.registry.len()
    }

    /// Returns whether no session is registered here.
    pub fn is_empty(&self) -> bool {
        self.registry.is_empty()
    }
}

impl SharedIds {
    /// Returns whether a session may still begin here.
    fn is_usable(&self, session: &SealedSession, id_use: IdUse, at: RequestTime) -> bool {
        let ends_s = match id_use {
            IdUse::Connect => session.expires_s,
            IdUse::Restart => recorded_until(session.expires_s),
        };
        // The longest time until a valid id expires, by the clock of another replica.
        let longest_s = (REGISTERED_UNUSED + CLUSTER_CLOCK_SKEW).as_secs();
        let lives = at.unix_s < ends_s && session.expires_s <= at.unix_s + longest_s;
        lives
            && !self
                .spent
                .contains(&session.uuid.as_bytes(), recorded_until(session.expires_s))
    }
}

/// Returns the second until which the use of an id is recorded: until it is good for nothing.
fn recorded_until(expires_s: u64) -> u64 {
    expires_s.saturating_add(CLUSTER_RESTART_WITHIN.as_secs())
}

#[cfg(test)]
mod tests;
