//! State shared by the WebRTC sessions of one runner: sockets, and the registry of connections.
//!
//! In: messages to a session, by `pc_id` or by number. Out: the setup of a new connection, and the
//! channels of registered ones.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use edge_runner_http::common::{lock, random};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::io::addresses::{local_addresses, policy};
use crate::io::sessions::Sessions;
use crate::io::webrtc::gather::Gatherer;
use crate::io::webrtc::udp::UdpPort;
use crate::proto::event::LeaveReason;
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::admission::Ticket;
use crate::proto::webrtc::candidate;
use crate::proto::webrtc::connection::{ConnectionContext, ConnectionSetup, IceSecret, NegotiationError};
use crate::proto::webrtc::offer::{AnswerBody, RemoteCandidate};
use crate::proto::webrtc::session::{CompetingSession, OfferOrigin};
use crate::proto::webrtc::whip::{ResourceRequest, ResourceResponse, WhipError};

/// A message to the task of a session.
pub enum SessionRequest {
    Renegotiate {
        offer: String,
        reply: AnswerSender,
    },
    /// The client has made a new connection. It will be `pc_id`; the client asked for `former`.
    Restart {
        offer: String,
        pc_id: String,
        former: String,
        /// As in `Requester`.
        reached: Option<IpAddr>,
        reply: AnswerSender,
    },
    Candidates(Vec<RemoteCandidate>),
    /// A request on a WHIP resource.
    Resource(ResourceRequest, oneshot::Sender<Result<ResourceResponse, WhipError>>),
    /// Another session has started, perhaps for the same caller.
    Rival(CompetingSession),
    /// The call was accepted.
    Open,
    /// The call has ended.
    End(LeaveReason),
    /// Checks whether the caller is there; answers only if not.
    Inquire(oneshot::Sender<SilentSession>),
}

/// The channel to the task of a session. Requests are few and large, and a channel makes room for
/// 32 values at once.
pub type RequestSender = mpsc::Sender<Box<SessionRequest>>;

/// A session whose caller does not answer checks.
#[derive(Clone, Copy)]
pub struct SilentSession {
    /// When the last packet of the caller arrived.
    pub last_received: Instant,
    /// The ticket of the session's permit.
    pub ticket: Ticket,
}

/// The channel of a session.
#[derive(Clone)]
struct SessionHandle {
    requests: RequestSender,
    /// The origin of the offer, if it came from a device.
    device: Option<OfferOrigin>,
}

/// The channel for the answer to an offer.
pub type AnswerSender = oneshot::Sender<Result<AnswerBody, SessionRefusal>>;

/// The sockets of the sessions.
pub struct Sockets {
    /// The UDP port of every session.
    pub port: Arc<UdpPort>,
    /// The task that reads the port.
    pub reader: AbortHandle,
    /// The candidates from STUN and TURN servers.
    pub gatherer: Gatherer,
    /// The addresses of the HTTP server, for ICE-TCP candidates.
    pub http: Vec<SocketAddr>,
}

#[derive(Default)]
struct ConnectionRegistry {
    by_pc_id: HashMap<String, RequestSender>,
    by_number: HashMap<u64, SessionHandle>,
}

/// State shared by the WebRTC sessions of one runner.
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

    /// Registers a session by its `pc_id` and the number of its inbox. `device` is the origin of a
    /// device's offer.
    pub fn register(
        self: &Arc<Self>,
        pc_id: String,
        number: u64,
        requests: RequestSender,
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

    /// Tells a session about a competing one.
    pub fn notify(&self, number: u64, rival: CompetingSession) {
        let session = self.connections().by_number.get(&number).cloned();
        if let Some(session) = session {
            // A session with a full channel is stalled and will end.
            let _ = session.requests.try_send(Box::new(SessionRequest::Rival(rival)));
        }
    }

    /// Tells every other session about a competing one.
    pub fn notify_others(&self, number: u64, rival: CompetingSession) {
        for (other, session) in &self.connections().by_number {
            if *other != number {
                let _ = session.requests.try_send(Box::new(SessionRequest::Rival(rival)));
            }
        }
    }

    /// Asks the sessions of a device that may have made another offer; each answers only if its
    /// caller does not.
    pub fn inquire(&self, origin: OfferOrigin) -> Vec<oneshot::Receiver<SilentSession>> {
        let connections = self.connections();
        let may_be = |reach: &&SessionHandle| reach.device.is_some_and(|device| device.may_be_same_device(origin));
        let sessions = connections.by_number.values().filter(may_be);
        let inquiries = sessions.map(|reach| {
            let (inquirer, inquiry) = oneshot::channel();
            let _ = reach.requests.try_send(Box::new(SessionRequest::Inquire(inquirer)));
            inquiry
        });
        inquiries.collect()
    }

    /// Calls `with` with the setup of a new connection: the current interfaces and gathered
    /// candidates. `reached` is the local address at which the offer arrived.
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
        let offered: Vec<IpAddr> = local.iter().map(SocketAddr::ip).collect();
        with(&ConnectionSetup {
            context: &self.common,
            local: &local,
            tcp: &candidate::tcp_addresses(&self.sockets.http, &addresses),
            gathered: &self.sockets.gatherer.gathered(),
            embedded: self.sessions.config().embedded,
            device: candidate::device_address(
                policy(self.sessions.config()),
                reached.filter(|address| self.sockets.port.serves(*address)),
                &offered,
            ),
            seed: u64::from_be_bytes(random()),
            secret: secret(),
        })
    }

    /// Makes the id of a new connection: 128 random bits, and for a replica its name.
    pub fn new_pc_id(&self) -> String {
        match self.sessions.replica() {
            Some(replica) => replica.connection_id(random()),
            None => format!("{:032x}", u128::from_be_bytes(random())),
        }
    }

    /// Returns the error for a connection that is not here.
    pub fn unknown(&self, pc_id: &str) -> SessionRefusal {
        match self.other_maker(pc_id) {
            Some(name) => SessionRefusal::OtherReplica(name.to_owned()),
            None => SessionRefusal::UnknownConnection,
        }
    }

    /// Returns the name of the replica that made a connection, if this process did not.
    pub fn other_maker<'i>(&self, pc_id: &'i str) -> Option<&'i str> {
        self.sessions.replica()?.other_maker(pc_id)
    }

    /// Returns the channel of a connection.
    pub fn connection(&self, pc_id: &str) -> Option<RequestSender> {
        self.connections().by_pc_id.get(pc_id).cloned()
    }

    /// Returns the number of registered names and sessions.
    #[cfg(test)]
    pub fn registered(&self) -> (usize, usize) {
        let connections = self.connections();
        (connections.by_pc_id.len(), connections.by_number.len())
    }

    fn connections(&self) -> MutexGuard<'_, ConnectionRegistry> {
        lock(&self.connections)
    }
}

/// The registered names of a session. Dropping it removes them.
pub struct Registration {
    shared: Weak<WebRtcShared>,
    pc_id: String,
    /// The name before the last restart.
    former: Option<String>,
    number: u64,
}

impl Registration {
    /// Creates a registration that no offer and no candidate can reach.
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

    /// Renames the session. `former`, the name in the request, stays valid until the next restart:
    /// if the answer is lost, the client repeats it.
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

/// Maps a negotiation error to the offer's error.
pub fn refusal(error: NegotiationError) -> SessionRefusal {
    match error {
        NegotiationError::BadDescription(why) => SessionRefusal::BadSdp(why),
        NegotiationError::NoCandidate(why) => SessionRefusal::NoCandidate(why),
        NegotiationError::TooLong(why) => SessionRefusal::AnswerTooLong(why),
        NegotiationError::Internal(why) => SessionRefusal::Internal(why),
        // The client treats this as final, and does not restart a session that has ended.
        NegotiationError::Ended => SessionRefusal::UnknownConnection,
    }
}

/// Draws the random secret of a new connection.
pub fn secret() -> IceSecret {
    IceSecret(random())
}
