//! The start of a session from a registration of `/start`, or without one.
//!
//! In: the id of a registered session. Out: a [`RegistrationLease`], and the [`SessionStart`] of
//! the session that uses it. An unused lease returns to the registry when it is dropped.

use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::app::new_session_id;
use crate::io::bots::SessionBot;
use crate::io::sessions::SessionStart;
use crate::io::tasks::request_time;
use crate::logging;
use crate::proto::http::registry::{self, SessionClaim};
use crate::proto::http::started::{IdUse, StartedSessions};
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::admission::Requester;
use edge_runner_http::common::{PeerInfo, lock};

/// Returns a function that makes the session's start, with a place of its bot; `body` gets the
/// registered body.
pub fn session_start(
    lease: Option<RegistrationLease>,
    mut bot: SessionBot,
    log_client: logging::LogClient,
    body: impl FnOnce(Option<Value>) -> Value + Send,
) -> impl FnOnce() -> Result<SessionStart, SessionRefusal> + Send {
    move || {
        bot.take_place()?;
        Ok(match lease {
            Some(mut lease) => {
                lease.used = true;
                let log_client = log_client.or_authorised(lease.claim.is_authorised);
                let session_id = lease.claim.session_id.clone();
                let body = body(Some(lease.claim.body.take()));
                SessionStart {
                    session_id,
                    body,
                    bot,
                    log_client,
                    lease: Some(Box::new(lease)),
                }
            }
            None => SessionStart {
                session_id: new_session_id(),
                body: body(None),
                bot,
                log_client,
                lease: None,
            },
        })
    }
}

/// A claim on a registered session. Dropping it returns it to the registry.
pub struct RegistrationLease {
    registry: Arc<Mutex<StartedSessions>>,
    claim: SessionClaim,
    /// Whether a session was started from it.
    used: bool,
}

impl RegistrationLease {
    /// Returns the name of the bot that `/start` registered.
    pub fn bot(&self) -> Option<&str> {
        self.claim.bot.as_deref()
    }

    /// Returns the body that `/start` registered.
    pub fn body(&self) -> &Value {
        &self.claim.body
    }

    /// Claims an id that is valid for one session.
    pub fn claim_once(
        sessions: &Arc<Mutex<StartedSessions>>,
        id: &str,
        peer: PeerInfo,
    ) -> Result<RegistrationLease, registry::UnknownSession> {
        let claim = lock(sessions).claim_once(id, peer.requester(), request_time())?;
        Ok(RegistrationLease {
            registry: sessions.clone(),
            claim,
            used: false,
        })
    }

    pub fn claim(
        sessions: &Arc<Mutex<StartedSessions>>,
        id: &str,
        id_use: IdUse,
        peer: PeerInfo,
    ) -> Result<RegistrationLease, registry::UnknownSession> {
        let claim = lock(sessions).claim(id, new_session_id(), id_use, peer.requester(), request_time())?;
        Ok(RegistrationLease {
            registry: sessions.clone(),
            claim,
            used: false,
        })
    }
}

/// Returns the requester of a session. The id of a session that an authorised request registered
/// authorises too.
pub fn requester(peer: PeerInfo, lease: Option<&RegistrationLease>) -> Requester {
    let requester = peer.requester();
    Requester {
        is_authorised: requester.is_authorised || lease.is_some_and(|lease| lease.claim.is_authorised),
        ..requester
    }
}

impl Drop for RegistrationLease {
    fn drop(&mut self) {
        lock(&self.registry).release(&self.claim, self.used, request_time());
    }
}
