//! What a new session starts from: a registration of `/start`, or nothing.
//!
//! In: the name of a registered session. Out: a [`Lease`] on it, and the [`Start`] of the session
//! that uses it. A lease that no session came of goes back to the table when it is dropped.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

use super::fresh_id;
use crate::io::sessions::Start;
use crate::logging;
use crate::proto::http::table::{self, Claim, Table};
use crate::proto::server::admission::Requester;
use edge_runner_http::common::{PeerInfo, lock};

/// Makes what a session starts from, once there is one; `body` gets what was registered for it.
pub(super) fn starting(
    lease: Option<Lease>,
    caller: logging::LogClient,
    body: impl FnOnce(Option<Value>) -> Value + Send,
) -> impl FnOnce() -> Start + Send {
    move || match lease {
        Some(mut lease) => {
            lease.used = true;
            let session_id = lease.claim.session_id.clone();
            let body = body(Some(lease.claim.body.take()));
            Start {
                session_id,
                body,
                caller,
                lease: Some(Box::new(lease)),
            }
        }
        None => Start {
            session_id: fresh_id(),
            body: body(None),
            caller,
            lease: None,
        },
    }
}

/// A claim on a registered session; dropped, it goes back to the table.
pub(super) struct Lease {
    table: Arc<Mutex<Table>>,
    claim: Claim,
    /// Whether a session came of it.
    used: bool,
}

impl Lease {
    /// Takes a name that is good for one session.
    pub(super) fn claim_once(table: &Arc<Mutex<Table>>, id: &str) -> Result<Lease, table::Unknown> {
        let claim = lock(table).claim_once(id, Instant::now())?;
        Ok(Lease {
            table: table.clone(),
            claim,
            used: false,
        })
    }

    pub(super) fn claim(table: &Arc<Mutex<Table>>, id: &str) -> Result<Lease, table::Unknown> {
        let claim = lock(table).claim(id, fresh_id(), Instant::now())?;
        Ok(Lease {
            table: table.clone(),
            claim,
            used: false,
        })
    }
}

/// Tells who asks for a session: who has the name of one that an authorised request registered is
/// authorised as well.
pub(super) fn requester(peer: PeerInfo, lease: Option<&Lease>) -> Requester {
    let requester = peer.requester();
    Requester {
        is_authorised: requester.is_authorised || lease.is_some_and(|lease| lease.claim.is_authorised),
        ..requester
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&self.table).release(&self.claim, self.used);
    }
}
