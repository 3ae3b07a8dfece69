//! What the sessions over WebRTC of one runner share: their sockets, and the registry of their
//! connections by the names that clients know them under.
//!
//! In: messages to a session, by the name of its connection or its number. Out: what a new
//! connection is made from, and who is registered.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use edge_runner_http::common::{lock, random};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::io::addresses::{device_address, local_addresses};
use crate::io::gather::Gatherer;
use crate::io::sessions::Sessions;
use crate::io::udp::UdpPort;
use crate::proto::event::LeaveReason;
use crate::proto::server::admission::Ticket;
use crate::proto::webrtc::candidate;
use crate::proto::webrtc::connection::{ConnectionContext, ConnectionSetup, IceSecret, NegotiationError};
use crate::proto::webrtc::offer::{AnswerBody, OfferError};
use crate::proto::webrtc::session::{CompetingSession, OfferOrigin};
use crate::proto::webrtc::whip::{ResourceRequest, ResourceResponse, WhipError};

/// A message to the task of a session.
pub enum SessionRequest {
    Renegotiate {
        offer: String,
        reply: AnswerSender,
    },
    /// The client made a new connection; it is to be known under `pc_id`, and asked for it under
    /// `former`.
    Restart {
        offer: String,
        pc_id: String,
        former: String,
        /// As in `Requester`.
        reached: Option<IpAddr>,
        reply: AnswerSender,
    },
    Candidates(Vec<String>),
    /// Something is asked of the session as a resource of HTTP.
    Resource(ResourceRequest, oneshot::Sender<Result<ResourceResponse, WhipError>>),
    /// Another session has come, perhaps of the same caller.
    Rival(CompetingSession),
    /// The call was picked up.
    Open,
    /// The call is over.
    End(LeaveReason),
    /// Is the caller there? Nothing is sent if it is.
    Inquire(oneshot::Sender<SilentSession>),
}

/// A session whose caller answers no question.
#[derive(Clone, Copy)]
pub struct SilentSession {
    /// When the caller was last heard.
    pub heard: Instant,
    /// The place of the session.
    pub ticket: Ticket,
}

/// How a session is reached.
#[derive(Clone)]
struct SessionHandle {
    requests: mpsc::Sender<SessionRequest>,
    /// Where the offer of its device came from.
    device: Option<OfferOrigin>,
}

/// Where the answer of a session goes.
pub type AnswerSender = oneshot::Sender<Result<AnswerBody, OfferError>>;

/// Where the packets of the sessions come from and go to.
pub struct Sockets {
    /// The UDP port of every session.
    pub port: Arc<UdpPort>,
    /// Its reader, which ends with the runner.
    pub reader: AbortHandle,
    /// What the STUN and TURN servers gave.
    pub gatherer: Gatherer,
    /// Where the HTTP server listens, for callers that come over TCP.
    pub http: Vec<SocketAddr>,
}

#[derive(Default)]
struct ConnectionRegistry {
    by_pc_id: HashMap<String, mpsc::Sender<SessionRequest>>,
    by_number: HashMap<u64, SessionHandle>,
}

/// What the sessions of one runner share.
pub struct WebRtcShared {
    pub sessions: Sessions,
    pub common: Arc<ConnectionContext>,
    pub sockets: Sockets,
    connections: Mutex<ConnectionRegistry>,
}

impl WebRtcShared {
    pub fn new(sessions: Sessions, common: Arc<ConnectionContext>, sockets: Sockets) -> Self {
        WebRtcShared {
            sessions,
            common,
            sockets,
            connections: Mutex::default(),
        }
    }

    /// Registers a session, whose requests go to `requests`, and whose inbox has this number.
    /// `device` is where the offer of a device came from.
    pub fn register(
        self: &Arc<Self>,
        pc_id: String,
        number: u64,
        requests: mpsc::Sender<SessionRequest>,
        device: Option<OfferOrigin>,
    ) -> Registration {
        let mut connections = self.connections();
        connections.by_pc_id.insert(pc_id.clone(), requests.clone());
        connections.by_number.insert(number, SessionHandle { requests, device });
        Registration {
            shared: Arc::downgrade(self),
            pc_id,
            former: None,
            number,
        }
    }

    /// Tells a session of another one.
    pub fn tell(&self, number: u64, rival: CompetingSession) {
        let session = self.connections().by_number.get(&number).cloned();
        if let Some(session) = session {
            // A session whose inbox is full is busy dying anyway.
            let _ = session.requests.try_send(SessionRequest::Rival(rival));
        }
    }

    /// Tells every session but this one of it.
    pub fn tell_others(&self, number: u64, rival: CompetingSession) {
        for (other, session) in &self.connections().by_number {
            if *other != number {
                let _ = session.requests.try_send(SessionRequest::Rival(rival));
            }
        }
    }

    /// Asks the sessions whose device may have made another offer; each answers if its caller does
    /// not.
    pub fn inquire(&self, origin: OfferOrigin) -> Vec<oneshot::Receiver<SilentSession>> {
        let connections = self.connections();
        let may_be = |reach: &&SessionHandle| reach.device.is_some_and(|device| device.may_be_same_device(origin));
        let sessions = connections.by_number.values().filter(may_be);
        let inquiries = sessions.map(|reach| {
            let (inquirer, inquiry) = oneshot::channel();
            let _ = reach.requests.try_send(SessionRequest::Inquire(inquirer));
            inquiry
        });
        inquiries.collect()
    }

    /// Calls `with` with what a new connection is made from, the interfaces and the servers' gifts
    /// as they are at this moment. `reached` is the address at which the offer came.
    pub fn with_setup<T>(
        &self,
        reached: Option<IpAddr>,
        with: impl FnOnce(&ConnectionSetup<'_>) -> Result<T, NegotiationError>,
    ) -> Result<T, NegotiationError> {
        let addresses = local_addresses(self.sessions.config());
        let local: Vec<SocketAddr> = addresses
            .iter()
            .filter(|address| self.sockets.port.serves(**address))
            .map(|address| SocketAddr::new(*address, self.sockets.port.number()))
            .collect();
        with(&ConnectionSetup {
            context: &self.common,
            local: &local,
            tcp: &candidate::tcp_addresses(&self.sockets.http, &addresses),
            gathered: &self.sockets.gatherer.gathered(),
            embedded: self.sessions.config().embedded,
            device: device_address(
                self.sessions.config(),
                reached.filter(|address| self.sockets.port.serves(*address)),
                &local,
            ),
            seed: u64::from_be_bytes(random()),
            secret: secret(),
        })
    }

    /// Returns where the requests of a connection go, by its name.
    pub fn connection(&self, pc_id: &str) -> Option<mpsc::Sender<SessionRequest>> {
        self.connections().by_pc_id.get(pc_id).cloned()
    }

    /// Returns how many names and how many sessions are registered.
    #[cfg(test)]
    pub fn registered(&self) -> (usize, usize) {
        let connections = self.connections();
        (connections.by_pc_id.len(), connections.by_number.len())
    }

    fn connections(&self) -> MutexGuard<'_, ConnectionRegistry> {
        lock(&self.connections)
    }
}

/// The names under which a session can be spoken to; they go when it is dropped.
pub struct Registration {
    shared: Weak<WebRtcShared>,
    pc_id: String,
    /// The name before the last restart.
    former: Option<String>,
    number: u64,
}

impl Registration {
    /// Makes that of a session which no offer and no candidate can reach.
    pub fn unreachable(pc_id: String) -> Self {
        Registration {
            shared: Weak::new(),
            pc_id,
            former: None,
            number: 0,
        }
    }

    pub fn pc_id(&self) -> &str {
        &self.pc_id
    }

    /// Makes the session known under a new name, which goes out in the answer to a request under
    /// `former`. That one stays good until the next restart: if the answer is lost, the client
    /// comes again under the name it has.
    pub fn rename(&mut self, pc_id: String, former: String) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut connections = shared.connections();
        if let Some(SessionHandle { requests, .. }) = connections.by_number.get(&self.number).cloned() {
            for name in self.former.iter().chain([&self.pc_id]) {
                connections.by_pc_id.remove(name);
            }
            connections.by_pc_id.insert(former.clone(), requests.clone());
            connections.by_pc_id.insert(pc_id.clone(), requests);
        }
        self.pc_id = pc_id;
        self.former = Some(former);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let mut connections = shared.connections();
            for name in self.former.iter().chain([&self.pc_id]) {
                connections.by_pc_id.remove(name);
            }
            connections.by_number.remove(&self.number);
        }
    }
}

/// Turns what is wrong with an offer into the refusal that HTTP knows.
pub fn refusal(error: NegotiationError) -> OfferError {
    match error {
        NegotiationError::BadDescription(why) => OfferError::BadSdp(why),
        NegotiationError::NoCandidate(why) => OfferError::NoCandidate(why),
        NegotiationError::TooLong(why) => OfferError::AnswerTooLong(why),
        NegotiationError::Internal(why) => OfferError::Internal(why),
        // The client takes this refusal as final, and does not bring a bot back that hung up.
        NegotiationError::Ended => OfferError::UnknownConnection,
    }
}

/// Makes the name of a new connection: 128 random bits, so that no name can be guessed.
pub fn new_pc_id() -> String {
    format!("{:032x}", u128::from_be_bytes(random()))
}

/// Makes what no other secret can be guessed from.
pub fn secret() -> IceSecret {
    IceSecret(random())
}
