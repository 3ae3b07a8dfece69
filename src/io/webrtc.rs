//! The WebRTC driver: connections by `pc_id`, and the path of an offer to its session.
//!
//! In: parsed offers and candidates. Out: answers or errors. An offer for a new connection starts a
//! session: a task that owns the connection (`session_io`) and one for the bot. A known connection
//! is reached through its request channel only. An answer is returned once the port routes the
//! session's ufrag, never earlier.

#[cfg(feature = "call")]
pub mod call;
pub mod doctor;
#[cfg_attr(not(feature = "turn"), path = "webrtc/gather/absent.rs")]
pub mod gather;
pub mod ice_tcp;
pub mod listener;
pub mod offer;
pub(super) mod progress;
pub mod routes;
pub(super) mod session_io;
pub(super) mod shared;
mod startup;
pub mod udp;
pub mod whip;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub use self::routes::MODULE;
use crate::proto::sorting;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use crate::bot::{self, WebRtcArguments, WebRtcConnection};
use crate::config::Transport;
use crate::io::admission::SessionPermit;
use crate::io::seeding::{seed_thread, seeding};
use crate::io::session::{self, SessionTask};
use crate::io::sessions::{SessionStart, Sessions};
use crate::io::tasks;
use crate::io::webrtc::ice_tcp::{IceTcpConnection, TcpSlots};
use crate::limits::{AUDIO_IN_FRAMES_MAX, SESSION_REQUESTS};
use crate::proto::metrics::MetricsSnapshot;
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::admission::{PendingKind, Requester};
pub use crate::proto::webrtc::connection::ConnectionContext;
use crate::proto::webrtc::connection::DeviceOffer;
use crate::proto::webrtc::offer::{AnswerBody, CandidatesBody, NamedConnection, OfferBody, OfferPurpose};
use crate::proto::webrtc::session::{OfferOrigin, WebRtcSession};
use crate::proto::webrtc::whip::resource::WhipResource;
use crate::proto::webrtc::whip::{ResourceRequest, ResourceResponse, WhipError, WhipOffer};

use session_io::WebRtcIo;
pub use shared::Sockets;
use shared::{SessionRequest, WebRtcShared, refusal};
use std::time::Duration;

/// Time that an offer waits for the result of probes: all their checks, and the scheduling delay
/// of a busy machine. Devices wait 10 s for an answer.
const PROBE_WITHIN: Duration = Duration::from_millis(2_500);

/// The WebRTC connections of one runner. Clones share them.
#[derive(Clone)]
pub struct WebRtc {
    pub(super) shared: Arc<WebRtcShared>,
    /// The slots of ICE-TCP connections.
    tcp_slots: TcpSlots,
}

impl WebRtc {
    pub fn new(sessions: Sessions, common: Arc<ConnectionContext>, sockets: Sockets) -> Self {
        WebRtc {
            shared: Arc::new(WebRtcShared::new(sessions, common, sockets)),
            tcp_slots: TcpSlots::default(),
        }
    }

    /// Returns the sessions of this runner, on any transport.
    pub fn sessions(&self) -> &Sessions {
        &self.shared.sessions
    }

    /// Returns the context that every connection shares.
    pub fn common(&self) -> &Arc<ConnectionContext> {
        &self.shared.common
    }

    /// Adds the values for the metrics that are counted here: dropped datagrams, and the state of
    /// the ICE servers.
    pub fn add_to(&self, snapshot: &mut MetricsSnapshot) {
        let dropped = self.shared.sockets.port.dropped();
        let status = self.shared.sockets.gatherer.status();
        snapshot.unmatched_datagrams = dropped.unrouted.load(Relaxed);
        snapshot.inbox_full = dropped.inbox_full.load(Relaxed);
        snapshot.ice_servers = status.into_iter().map(|server| server.state).collect();
    }

    /// Takes an ICE-TCP connection, once its first packet has arrived.
    ///
    /// # Errors
    /// Returns an I/O error, or an error for a packet of no session and for one connection too
    /// many.
    pub async fn serve_ice_tcp(&self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        let connected = IceTcpConnection::open(&self.shared.sockets.port, &self.tcp_slots, stream, peer).await?;
        tasks::spawn(connected.run());
        Ok(())
    }

    /// Answers an offer. `start` is called only if the offer starts a session.
    ///
    /// # Errors
    /// Returns an [`SessionRefusal`] that says what was wrong.
    pub async fn offer(
        &self,
        offer: OfferBody,
        requester: Requester,
        start: impl FnOnce() -> Result<SessionStart, SessionRefusal> + Send,
    ) -> Result<AnswerBody, SessionRefusal> {
        if self.shared.sessions.shutdown().is_set() {
            return Err(SessionRefusal::Stopping);
        }
        let known = offer
            .pc_id
            .as_ref()
            .and_then(|pc_id| Some((pc_id.clone(), self.shared.connection(pc_id)?)));
        let elsewhere = || self.shared.other_maker(offer.pc_id.as_deref()?);
        let named = match known.is_some() {
            true => NamedConnection::Live,
            false => elsewhere().map_or(NamedConnection::Unknown, NamedConnection::OfReplica),
        };
        let purpose = offer.purpose(named)?;
        if let NamedConnection::OfReplica(name) = named {
            log::info!("a client of replica `{name}`, which is gone, starts again here");
        }
        let Some((former, session)) = known else {
            let beginning = NewSession {
                offer: offer.sdp,
                data: offer.request_data,
                call_data: None,
                has_resource: false,
            };
            return self.begin(beginning, requester, start).await;
        };
        let (reply, answer) = oneshot::channel();
        let request = match purpose {
            OfferPurpose::Restart => SessionRequest::Restart {
                offer: offer.sdp,
                pc_id: self.shared.new_pc_id(),
                former,
                reached: requester.local_address,
                reply,
            },
            OfferPurpose::Begin | OfferPurpose::Renegotiate => SessionRequest::Renegotiate {
                offer: offer.sdp,
                reply,
            },
        };
        session
            .send(Box::new(request))
            .await
            .map_err(|_| SessionRefusal::UnknownConnection)?;
        answer.await.unwrap_or(Err(SessionRefusal::UnknownConnection))
    }

    /// Answers an offer whose session is an HTTP resource. `start` is called only if the offer
    /// starts a session.
    ///
    /// # Errors
    /// Returns an [`SessionRefusal`] that says what was wrong.
    pub async fn open(
        &self,
        opening: WhipOffer,
        requester: Requester,
        start: impl FnOnce() -> Result<SessionStart, SessionRefusal> + Send,
    ) -> Result<AnswerBody, SessionRefusal> {
        let beginning = NewSession {
            offer: opening.sdp,
            data: None,
            call_data: Some(opening.call_data),
            has_resource: true,
        };
        self.begin(beginning, requester, start).await
    }

    /// Performs a request on a session that is an HTTP resource.
    ///
    /// # Errors
    /// Returns a [`WhipError`]; an ended session, and one that is no resource, is unknown.
    pub async fn resource(&self, id: &str, resource_request: ResourceRequest) -> Result<ResourceResponse, WhipError> {
        let unknown = || WhipError::Offer(self.shared.unknown(id));
        let session = self.shared.connection(id).ok_or_else(unknown)?;
        let (reply, done) = oneshot::channel();
        let request = SessionRequest::Resource(resource_request, reply);
        session.send(Box::new(request)).await.map_err(|_| unknown())?;
        done.await.unwrap_or_else(|_| Err(unknown()))
    }

    /// Passes the client's candidates to its connection.
    ///
    /// # Errors
    /// Returns [`SessionRefusal::UnknownConnection`] for an unknown or ended connection, and
    /// [`SessionRefusal::OtherReplica`] for that of another replica.
    pub async fn candidates(&self, candidates: CandidatesBody) -> Result<(), SessionRefusal> {
        let session = self
            .shared
            .connection(&candidates.pc_id)
            .ok_or_else(|| self.shared.unknown(&candidates.pc_id))?;
        session
            .send(Box::new(SessionRequest::Candidates(candidates.candidates)))
            .await
            .map_err(|_| SessionRefusal::UnknownConnection)
    }

    /// Admits an offer. If the runner is full, a device may take the slot of its own former
    /// session: it was reset, and the runner has not noticed yet.
    ///
    /// Every session that may be the device's own checks its caller, and the one silent for longest
    /// is replaced if it gets no answer. The check takes 2 s at most, so that a reset device is
    /// back soon; a longer network outage can therefore cost a session its slot. While there are
    /// free slots, no session is checked.
    async fn permit_for_offer(&self, offer: &str, requester: Requester) -> Result<SessionPermit, SessionRefusal> {
        let sessions = &self.shared.sessions;
        let refused = match sessions.admission().session(requester, PendingKind::Offer) {
            Ok(permit) => return Ok(permit),
            Err(refused) => refused,
        };
        let device = DeviceOffer::parse(offer).ok_or(refused)?;
        let _waits = sessions.admission().wait(requester)?;
        let inquiries = self.shared.inquire(OfferOrigin {
            source: requester.source,
            host: device.host,
        });
        let mut silent = Vec::new();
        // All sessions check at the same time.
        let finding = async {
            for inquiry in inquiries {
                silent.extend(inquiry.await.ok());
            }
        };
        let _ = tokio::time::timeout(PROBE_WITHIN, finding).await;
        sorting::sort_by_key(&mut silent, |silent| silent.last_received);
        let places = silent.iter();
        let mut places = places.map(|silent| sessions.admission().replace(silent.ticket, requester));
        match places.find_map(Result::ok) {
            Some(permit) => {
                log::info!("the runner is full; this device replaces one that does not answer");
                Ok(permit)
            }
            None => Ok(sessions.admission().session(requester, PendingKind::Offer)?),
        }
    }

    async fn begin(
        &self,
        beginning: NewSession,
        requester: Requester,
        start: impl FnOnce() -> Result<SessionStart, SessionRefusal> + Send,
    ) -> Result<AnswerBody, SessionRefusal> {
        let NewSession {
            offer,
            data,
            call_data,
            has_resource,
        } = beginning;
        let inner = &self.shared;
        if inner.sessions.is_closed() {
            return Err(SessionRefusal::Stopping);
        }
        // An offer for which there is no slot costs no negotiation.
        if let Err(refused) = inner.sessions.admission().check(requester, PendingKind::Offer)
            && DeviceOffer::parse(&offer).is_none()
        {
            return Err(refused.into());
        }
        let now = tasks::now();
        seed_thread();
        let accepted = inner.with_setup(requester.local_address, |setup| {
            WebRtcSession::accept(&offer, setup, now)
        });
        // An offer that cannot be answered evicts no session.
        let (mut session, sdp) = accepted.map_err(|error| match inner.sessions.is_full() {
            true => SessionRefusal::Full,
            false => refusal(error),
        })?;
        let permit = self.permit_for_offer(&offer, requester).await?;
        if inner.sessions.is_closed() {
            return Err(SessionRefusal::Stopping);
        }
        let start = start()?;
        let pc_id = inner.new_pc_id();
        let mut inbox = inner.sockets.port.open();
        inbox.listen(session.local_ufrag());
        let (requests, requests_rx) = mpsc::channel(SESSION_REQUESTS);
        let number = inbox.number();
        let device = session.is_device().then(|| OfferOrigin {
            source: requester.source,
            host: session.host_address(),
        });
        let registered = inner.register(pc_id.clone(), number, requests, device);
        let connection = WebRtcConnection::new(pc_id.clone(), session.is_device(), session.offers_channel());
        let (id, body) = (start.session_id, data.unwrap_or(start.body));
        let mut task = SessionTask::new(inner.sessions.clone(), permit, start.lease);
        task.start_bot(
            start.bot,
            id.clone(),
            body,
            Transport::WebRtc,
            AUDIO_IN_FRAMES_MAX,
            |slot| bot::Kind::WebRtc(WebRtcArguments::new(connection, slot).with_call_data(call_data)),
        );
        let io = WebRtcIo {
            resource: has_resource.then(|| WhipResource::new(offer, &sdp)),
            inbox,
            used: None,
            requests: requests_rx,
            inquirers: Vec::new(),
            shared: inner.clone(),
            registered,
            call: None,
        };
        let task = seeding(session::run(Box::new(session), io, task));
        session::spawn(&inner.sessions, id, start.log_client, task);
        Ok(AnswerBody { sdp, pc_id })
    }
}

/// The offer of a new session.
struct NewSession {
    offer: String,
    /// Data for the bot, in place of that of `/start`.
    data: Option<Value>,
    call_data: Option<Value>,
    has_resource: bool,
}

#[cfg(test)]
mod tests;
