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
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::limits::SEALED_BODY_BYTES_MAX;
    use crate::secret::Secret;
    use crate::server::source::SourceKey;

    const CALLER: Requester = Requester {
        source: SourceKey::V4(Ipv4Addr::new(192, 0, 2, 1)),
        is_authorised: false,
        local_address: None,
    };

    fn replica(key: &str) -> StartedSessions {
        StartedSessions::new(Some(&ClusterKey::new(Secret::new(key))))
    }

    fn start() -> RequestTime {
        RequestTime {
            now: std::time::Instant::now(),
            unix_s: 1_795_252_753,
        }
    }

    fn later(at: RequestTime, seconds: u64) -> RequestTime {
        at + Duration::from_secs(seconds)
    }

    fn made(table: &mut StartedSessions, nth: u8, at: RequestTime) -> Arc<str> {
        table
            .create([nth; 16], (None, &json!({"nth": nth})), CALLER, at)
            .expect("it fits")
    }

    fn claim(table: &mut StartedSessions, id: &str, at: RequestTime) -> Result<SessionClaim, UnknownSession> {
        table.claim(id, "fresh".into(), IdUse::Connect, CALLER, at)
    }

    /// D-23: an id made by one replica is good at another, with its body, and at its maker.
    #[test]
    fn an_id_is_good_at_every_replica() {
        let at = start();
        let (mut a, mut b) = (replica("key"), replica("key"));
        let id = made(&mut a, 1, at);
        assert!(a.is_empty(), "the id is all there is");
        for table in [&mut b, &mut a] {
            assert!(table.contains(&id, at) && table.is_unused(&id, at));
            let claimed = claim(table, &id, at).expect("good");
            assert_eq!(
                (&*claimed.session_id, &claimed.body),
                ("01010101-0101-4101-8101-010101010101", &json!({"nth": 1}))
            );
            assert!(table.contains(&id, at) && !table.is_unused(&id, at));
        }
        let mut other = replica("another key");
        assert!(!other.contains(&id, at) && !other.is_unused(&id, at));
        assert_eq!(claim(&mut other, &id, at), Err(UnknownSession));
    }

    /// D-24: once its session has ended here, an id opens no other one here, and still one at
    /// another replica.
    #[test]
    fn an_id_is_used_once_per_replica() {
        let at = start();
        let (mut a, mut b) = (replica("key"), replica("key"));
        let id = made(&mut a, 1, at);
        let first = claim(&mut a, &id, at).expect("good");
        let second = claim(&mut a, &id, at).expect("a second connection, while the first lives");
        assert_eq!(&*second.session_id, "fresh");
        a.release(&first, true, at);
        assert!(a.contains(&id, at));
        a.release(&second, true, at);
        assert!(a.is_empty() && !a.contains(&id, at));
        for seconds in [0, 100, 299, 300, 400] {
            assert_eq!(claim(&mut a, &id, later(at, seconds)), Err(UnknownSession), "{seconds}");
        }
        assert!(claim(&mut b, &id, later(at, 299)).is_ok());
    }

    /// A connection that failed leaves nothing here, and its client may try again.
    #[test]
    fn a_failed_connection_does_not_use_the_id() {
        let at = start();
        let mut a = replica("key");
        let id = made(&mut a, 1, at);
        let failed = claim(&mut a, &id, at).expect("good");
        a.release(&failed, false, at);
        assert!(a.is_empty() && a.is_unused(&id, at));
        let (used, failed) = (
            claim(&mut a, &id, at).expect("good"),
            claim(&mut a, &id, at).expect("good"),
        );
        a.release(&used, true, at);
        a.release(&failed, false, at);
        assert_eq!(claim(&mut a, &id, at), Err(UnknownSession), "one of the two was used");
    }

    /// An id expires by the clock of the replica that it reaches. A session that lives outlasts it.
    #[test]
    fn an_unused_id_expires() {
        let at = start();
        let (mut a, mut b) = (replica("key"), replica("key"));
        let (one, two) = (made(&mut a, 1, at), made(&mut a, 2, at));
        let lives = claim(&mut b, &two, at).expect("good");
        assert!(b.contains(&one, later(at, 299)));
        assert!(!b.contains(&one, later(at, 300)));
        assert_eq!(claim(&mut b, &one, later(at, 300)), Err(UnknownSession));
        assert!(b.contains(&two, later(at, 3_000)));
        assert!(claim(&mut b, &two, later(at, 3_000)).is_ok());
        b.release(&lives, true, later(at, 3_000));
        // The clock of this replica is an hour behind, or that of the maker is ahead.
        let behind = RequestTime {
            unix_s: at.unix_s - 3_600,
            ..at
        };
        assert_eq!(claim(&mut replica("key"), &one, behind), Err(UnknownSession));
        let a_little = RequestTime {
            unix_s: at.unix_s - CLUSTER_CLOCK_SKEW.as_secs(),
            ..at
        };
        assert!(claim(&mut replica("key"), &one, a_little).is_ok());
    }

    /// D-25: for an hour more, an id is good for the restart of a connection to another replica.
    #[test]
    fn a_restart_outlasts_the_id() {
        let at = start();
        let (mut a, mut b) = (replica("key"), replica("key"));
        let id = made(&mut a, 1, at);
        let restart = |table: &mut StartedSessions, seconds| {
            table.claim(&id, "fresh".into(), IdUse::Restart, CALLER, later(at, seconds))
        };
        assert!(b.may_restart(&id, later(at, 3_899)) && !b.contains(&id, later(at, 3_899)));
        assert!(claim(&mut b, &id, later(at, 3_899)).is_err());
        let claimed = restart(&mut b, 3_899).expect("within the hour");
        assert_eq!(claimed.body, json!({"nth": 1}));
        b.release(&claimed, true, later(at, 3_900));
        assert!(restart(&mut a, 3_900).is_err() && !a.may_restart(&id, later(at, 3_900)));
        // A session that ended here does not return.
        let mut c = replica("key");
        let claimed = restart(&mut c, 1_000).expect("within the hour");
        c.release(&claimed, true, later(at, 1_000));
        assert!(restart(&mut c, 1_001).is_err() && restart(&mut c, 3_899).is_err());
    }

    /// The holder of an id is as authorised as the request that made it.
    #[test]
    fn an_id_carries_its_authorisation() {
        let at = start();
        let (mut a, mut b) = (replica("key"), replica("key"));
        for (nth, is_authorised) in [(1, false), (2, true)] {
            let requester = Requester {
                is_authorised,
                ..CALLER
            };
            let id = a.create([nth; 16], (None, &json!({})), requester, at).expect("it fits");
            assert_eq!(claim(&mut b, &id, at).expect("good").is_authorised, is_authorised);
        }
    }

    /// A key for one session opens one, here.
    #[test]
    fn an_id_for_one_session_is_claimed_once() {
        let at = start();
        let (mut a, mut b) = (replica("key"), replica("key"));
        let id = made(&mut a, 1, at);
        let claimed = b.claim_once(&id, CALLER, at).expect("good");
        assert_eq!(&*claimed.session_id, "01010101-0101-4101-8101-010101010101");
        assert_eq!(b.claim_once(&id, CALLER, at), Err(UnknownSession));
        b.release(&claimed, false, at);
        let claimed = b.claim_once(&id, CALLER, at).expect("the connection had failed");
        b.release(&claimed, true, at);
        assert_eq!(b.claim_once(&id, CALLER, at), Err(UnknownSession));
    }

    /// The number of sessions here is that of their ids without a key, and of their claims with
    /// one.
    #[test]
    fn counts_the_sessions_that_are_registered_here() {
        let at = start();
        for (mut table, is_shared) in [(StartedSessions::new(None), false), (replica("key"), true)] {
            assert_eq!((table.len(), table.is_empty()), (0, true));
            let ids = [made(&mut table, 1, at), made(&mut table, 2, at)];
            let unclaimed = if is_shared { 0 } else { 2 };
            assert_eq!((table.len(), table.is_empty()), (unclaimed, is_shared));
            let claims = ids.map(|id| claim(&mut table, &id, at).expect("good"));
            assert_eq!((table.len(), table.is_empty()), (2, false));
            table.release(&claims[0], true, at);
            assert_eq!((table.len(), table.is_empty()), (1, false));
        }
    }

    /// The text says what was too much.
    #[test]
    fn a_rejected_creation_says_why() {
        let full = CreateError::Full(RegistryFull::Capacity).to_string();
        assert!(full.contains("too many sessions"), "{full}");
        let too_long = CreateError::TooLong(BodyTooLong).to_string();
        assert!(too_long.contains("`body`"), "{too_long}");
    }

    /// A body that no id can carry is rejected where the session is created; a UUID alone, and an
    /// id of a runner without a key, is nothing.
    #[test]
    fn other_ids_are_unknown() {
        let at = start();
        let mut a = replica("key");
        let long = json!("x".repeat(SEALED_BODY_BYTES_MAX));
        assert_eq!(
            a.create([1; 16], (None, &long), CALLER, at),
            Err(CreateError::TooLong(BodyTooLong))
        );
        let id = made(&mut a, 1, at);
        let _lives = claim(&mut a, &id, at).expect("good");
        let mut alone = StartedSessions::new(None);
        let local = made(&mut alone, 2, at);
        assert_eq!(&*local, "02020202-0202-4202-8202-020202020202");
        assert!(alone.contains(&local, at) && alone.len() == 1);
        for other in ["01010101-0101-4101-8101-010101010101", &local, ""] {
            assert!(!a.contains(other, at));
            assert_eq!(claim(&mut a, other, at), Err(UnknownSession));
        }
        assert!(!alone.contains(&id, at));
    }
}
