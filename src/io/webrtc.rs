//! What carries WebRTC: connections by the name that clients know them under, and the way of an offer to its session.
//!
//! In: parsed offers and candidates. Out: answers, or the refusal that says why. A new connection becomes a session: a task
//! that owns the connection (`io::media`) and one that runs the bot. A known one is spoken to through its inbox; nobody else
//! touches it. The answer is written when the socket listens for the session's ufrag, never later.

mod call;
mod opened;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use edge_runner_http::common::{lock, random};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::bot::{self, WebRtcArguments, WebRtcConnection};
use crate::config::Transport;
use crate::io::addresses::{device_address, local_addresses};
use crate::io::admission::Permit;
use crate::io::gather::Gatherer;
use crate::io::ice_tcp::{Connected, Places};
use crate::io::media::WebRtcCarrier;
use crate::io::session::{self, SessionTask};
use crate::io::sessions::{Sessions, Start};
use crate::io::tasks;
use crate::io::udp::Port;
use crate::limits::{AUDIO_IN_FRAMES_MAX, INQUIRY_WITHIN, SESSION_REQUESTS};
use crate::proto::event::LeaveReason;
use crate::proto::metrics::Seen;
use crate::proto::server::admission::{Kind, Requester, Ticket};
use crate::proto::webrtc::candidate;
pub use crate::proto::webrtc::connection::Common;
use crate::proto::webrtc::connection::{DeviceOffer, IceSecret, OfferError, Setup};
use crate::proto::webrtc::offer::{Answer, Candidates, Offer, OfferRefusal};
use crate::proto::webrtc::session::{Origin, Rival, WebRtcSession};
use crate::proto::webrtc::whip::resource::Resource;
use crate::proto::webrtc::whip::{Asked, Done, Opening, Refusal};

pub use call::{Answered, Hook, Progress, Running};
pub use opened::{seed_thread, seeding};

/// A message to the task of a session.
pub enum Request {
    Renegotiate {
        offer: String,
        reply: Reply,
    },
    /// The client made a new connection; it is to be known under `pc_id`, and asked for it under `former`.
    Restart {
        offer: String,
        pc_id: String,
        former: String,
        /// As in [`Requester`].
        reached: Option<IpAddr>,
        reply: Reply,
    },
    Candidates(Vec<String>),
    /// Something is asked of the session as a resource of HTTP.
    Resource(Asked, oneshot::Sender<Result<Done, Refusal>>),
    /// Another session has come, perhaps of the same caller.
    Rival(Rival),
    /// The call was picked up.
    Open,
    /// The call is over.
    End(LeaveReason),
    /// Is the caller there? Nothing is sent if it is.
    Inquire(oneshot::Sender<Silent>),
}

/// A session whose caller answers no question.
#[derive(Clone, Copy)]
pub struct Silent {
    /// When the caller was last heard.
    pub heard: Instant,
    /// The place of the session.
    pub ticket: Ticket,
}

/// How a session is reached.
#[derive(Clone)]
struct Reach {
    requests: mpsc::Sender<Request>,
    /// Where the offer of its device came from.
    device: Option<Origin>,
}

/// Where the answer of a session goes.
pub type Reply = oneshot::Sender<Result<Answer, OfferRefusal>>;

/// What carries WebRTC: the connections of one runner. Clones share it.
#[derive(Clone)]
pub struct WebRtc(Arc<Inner>);

struct Inner {
    sessions: Sessions,
    common: Arc<Common>,
    sockets: Sockets,
    /// The places of callers' connections over TCP.
    framed: Places,
    connections: Mutex<Connections>,
}

/// Where the packets of the sessions come from and go to.
pub struct Sockets {
    /// The UDP port of every session.
    pub port: Arc<Port>,
    /// Its reader, which ends with the runner.
    pub reader: AbortHandle,
    /// What the STUN and TURN servers gave.
    pub gatherer: Gatherer,
    /// Where the HTTP server listens, for callers that come over TCP.
    pub http: Vec<SocketAddr>,
}

#[derive(Default)]
struct Connections {
    by_pc_id: HashMap<String, mpsc::Sender<Request>>,
    by_number: HashMap<u64, Reach>,
}

impl WebRtc {
    pub fn new(sessions: Sessions, common: Arc<Common>, sockets: Sockets) -> Self {
        WebRtc(Arc::new(Inner {
            sessions,
            common,
            sockets,
            framed: Places::default(),
            connections: Mutex::default(),
        }))
    }

    /// Returns the sessions of this runner, on any transport.
    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// Returns what every connection shares.
    pub fn common(&self) -> &Arc<Common> {
        &self.0.common
    }

    /// Returns what of this floor is counted elsewhere: packets for nobody, and how the servers stand.
    pub fn seen(&self) -> Seen {
        let dropped = self.0.sockets.port.dropped();
        let status = self.0.sockets.gatherer.status();
        Seen {
            strangers: dropped.strangers.load(Relaxed),
            inbox_full: dropped.inbox_full.load(Relaxed),
            ice_servers: status.into_iter().map(|server| server.standing).collect(),
            ..Seen::default()
        }
    }

    /// Takes a connection that brings packets of a session, once its first packet has come.
    ///
    /// # Errors
    /// The connection's, that of a packet for no session, and that of one connection too many.
    pub async fn framed(&self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        let connected = Connected::open(&self.0.sockets.port, &self.0.framed, stream, peer).await?;
        tasks::spawn(connected.carry());
        Ok(())
    }

    /// Answers an offer. `start` is called only when the offer makes a new session.
    ///
    /// # Errors
    /// [`OfferRefusal`] says what was wrong.
    pub async fn offer(
        &self,
        offer: Offer,
        requester: Requester,
        start: impl FnOnce() -> Start + Send,
    ) -> Result<Answer, OfferRefusal> {
        if self.0.sessions.shutdown().is_set() {
            return Err(OfferRefusal::Stopping);
        }
        let known = offer
            .pc_id
            .as_ref()
            .and_then(|pc_id| Some((pc_id.clone(), self.connection(pc_id)?)));
        let (reply, answer) = oneshot::channel();
        match (known, offer.restart_pc) {
            (Some((former, session)), restart) => {
                let request = if restart {
                    Request::Restart {
                        offer: offer.sdp,
                        pc_id: new_pc_id(),
                        former,
                        reached: requester.reached,
                        reply,
                    }
                } else {
                    Request::Renegotiate {
                        offer: offer.sdp,
                        reply,
                    }
                };
                session
                    .send(request)
                    .await
                    .map_err(|_| OfferRefusal::UnknownConnection)?;
                answer.await.unwrap_or(Err(OfferRefusal::UnknownConnection))
            }
            // A bot that hung up must not come back.
            (None, true) if offer.pc_id.is_some() => Err(OfferRefusal::UnknownConnection),
            (None, _) => {
                let beginning = Beginning {
                    offer: offer.sdp,
                    data: offer.request_data,
                    call_data: None,
                    has_resource: false,
                };
                self.begin(beginning, requester, start).await
            }
        }
    }

    /// Answers an offer whose session is a resource of HTTP. `start` is called only when the offer makes a session.
    ///
    /// # Errors
    /// [`OfferRefusal`] says what was wrong.
    pub async fn open(
        &self,
        opening: Opening,
        requester: Requester,
        start: impl FnOnce() -> Start + Send,
    ) -> Result<Answer, OfferRefusal> {
        let beginning = Beginning {
            offer: opening.sdp,
            data: None,
            call_data: Some(opening.call_data),
            has_resource: true,
        };
        self.begin(beginning, requester, start).await
    }

    /// Does what is asked of a session that is a resource.
    ///
    /// # Errors
    /// [`Refusal`]; a session that ended, and one that is no resource, is unknown.
    pub async fn resource(&self, id: &str, asked: Asked) -> Result<Done, Refusal> {
        let unknown = || Refusal::Offer(OfferRefusal::UnknownConnection);
        let session = self.connection(id).ok_or_else(unknown)?;
        let (reply, done) = oneshot::channel();
        let request = Request::Resource(asked, reply);
        session.send(request).await.map_err(|_| unknown())?;
        done.await.unwrap_or_else(|_| Err(unknown()))
    }

    /// Hands the client's candidates to its connection.
    ///
    /// # Errors
    /// [`OfferRefusal::UnknownConnection`].
    pub async fn candidates(&self, candidates: Candidates) -> Result<(), OfferRefusal> {
        let session = self
            .connection(&candidates.pc_id)
            .ok_or(OfferRefusal::UnknownConnection)?;
        let lines = candidates.candidates.into_iter().map(|each| each.candidate).collect();
        session
            .send(Request::Candidates(lines))
            .await
            .map_err(|_| OfferRefusal::UnknownConnection)
    }

    /// Tells a session of another one.
    pub fn tell(&self, number: u64, rival: Rival) {
        let session = self.connections().by_number.get(&number).cloned();
        if let Some(session) = session {
            // A session whose inbox is full is busy dying anyway.
            let _ = session.requests.try_send(Request::Rival(rival));
        }
    }

    /// Tells every session but this one of it.
    pub fn tell_others(&self, number: u64, rival: Rival) {
        for (other, session) in &self.connections().by_number {
            if *other != number {
                let _ = session.requests.try_send(Request::Rival(rival));
            }
        }
    }

    /// Takes a place for an offer. Where there is none, a device may have one of its own that nobody
    /// holds any more: it was reset, and its session is not given up yet.
    ///
    /// Every session that may be its own is asked whether its caller is there, and the one that was
    /// silent for longest gives its place, if it answers no question. That is decided within 2 s,
    /// since a device that was reset is to be back by then: the only case in which a network that
    /// is away for longer costs a place. As long as there are places, nobody is asked.
    async fn place(&self, offer: &str, requester: Requester) -> Result<Permit, OfferRefusal> {
        let sessions = &self.0.sessions;
        let refused = match sessions.admission().session(requester, Kind::Offer) {
            Ok(permit) => return Ok(permit),
            Err(refused) => refused,
        };
        let device = DeviceOffer::read(offer).ok_or(refused)?;
        let _waits = sessions.admission().wait(requester)?;
        let inquiries = self.inquire(Origin {
            source: requester.source,
            host: device.host,
        });
        let mut silent = Vec::new();
        // All are asked at the same time, so the slowest sets the pace.
        let finding = async {
            for inquiry in inquiries {
                silent.extend(inquiry.await.ok());
            }
        };
        let _ = tokio::time::timeout(INQUIRY_WITHIN, finding).await;
        silent.sort_by_key(|silent| silent.heard);
        let places = silent.iter();
        let mut places = places.map(|silent| sessions.admission().replace(silent.ticket, requester));
        match places.find_map(Result::ok) {
            Some(permit) => {
                log::info!("the runner is full; the place of a device that does not answer is free for this one");
                Ok(permit)
            }
            None => Ok(sessions.admission().session(requester, Kind::Offer)?),
        }
    }

    /// Asks the sessions whose device may have made another offer; each answers if its caller does
    /// not.
    fn inquire(&self, origin: Origin) -> Vec<oneshot::Receiver<Silent>> {
        let connections = self.connections();
        let may_be = |reach: &&Reach| reach.device.is_some_and(|device| device.may_be(origin));
        let sessions = connections.by_number.values().filter(may_be);
        let inquiries = sessions.map(|reach| {
            let (inquirer, inquiry) = oneshot::channel();
            let _ = reach.requests.try_send(Request::Inquire(inquirer));
            inquiry
        });
        inquiries.collect()
    }

    async fn begin(
        &self,
        beginning: Beginning,
        requester: Requester,
        start: impl FnOnce() -> Start + Send,
    ) -> Result<Answer, OfferRefusal> {
        let Beginning {
            offer,
            data,
            call_data,
            has_resource,
        } = beginning;
        let inner = &self.0;
        if inner.sessions.is_closed() {
            return Err(OfferRefusal::Stopping);
        }
        let permit = self.place(&offer, requester).await?;
        if inner.sessions.is_closed() {
            return Err(OfferRefusal::Stopping);
        }
        let now = tasks::now();
        seed_thread();
        let (mut session, sdp) = self
            .with_setup(requester.reached, |setup| WebRtcSession::accept(&offer, setup, now))
            .map_err(refusal)?;
        let start = start();
        let pc_id = new_pc_id();
        let mut inbox = inner.sockets.port.open();
        inbox.listen(session.local_ufrag());
        let (requests, requests_rx) = mpsc::channel(SESSION_REQUESTS);
        let number = inbox.number();
        {
            let mut connections = self.connections();
            connections.by_pc_id.insert(pc_id.clone(), requests.clone());
            let device = session.is_device().then(|| Origin {
                source: requester.source,
                host: session.host(),
            });
            connections.by_number.insert(number, Reach { requests, device });
        }
        let connection = WebRtcConnection::new(pc_id.clone(), session.is_device(), session.offers_channel());
        let (id, body) = (start.session_id, data.unwrap_or(start.body));
        let mut task = SessionTask::new(inner.sessions.clone(), permit, start.lease);
        task.start_bot(id.clone(), body, Transport::WebRtc, AUDIO_IN_FRAMES_MAX, |seat| {
            bot::Kind::WebRtc(WebRtcArguments::new(connection, seat).with_call_data(call_data))
        });
        let carrier = WebRtcCarrier {
            resource: has_resource.then(|| Resource::new(offer, &sdp)),
            inbox,
            used: None,
            requests: requests_rx,
            inquirers: Vec::new(),
            engine: self.clone(),
            registered: Registered {
                engine: Arc::downgrade(inner),
                pc_id: pc_id.clone(),
                former: None,
                number,
            },
            call: None,
        };
        let task = seeding(session::run(Box::new(session), carrier, task));
        session::spawn(&inner.sessions, id, start.caller, task);
        Ok(Answer { sdp, pc_id })
    }

    /// Calls `with` with what a new connection is made from, the interfaces and the servers' gifts as they are at this
    /// moment. `reached` is the address at which the offer came.
    pub(crate) fn with_setup<T>(
        &self,
        reached: Option<IpAddr>,
        with: impl FnOnce(&Setup<'_>) -> Result<T, OfferError>,
    ) -> Result<T, OfferError> {
        let inner = &self.0;
        let addresses = local_addresses(inner.sessions.config());
        let local: Vec<SocketAddr> = addresses
            .iter()
            .filter(|address| inner.sockets.port.serves(**address))
            .map(|address| SocketAddr::new(*address, inner.sockets.port.number()))
            .collect();
        with(&Setup {
            common: &inner.common,
            local: &local,
            tcp: &candidate::tcp_addresses(&inner.sockets.http, &addresses),
            gathered: &inner.sockets.gatherer.gathered(),
            embedded: inner.sessions.config().embedded,
            device: device_address(
                inner.sessions.config(),
                reached.filter(|address| inner.sockets.port.serves(*address)),
                &local,
            ),
            seed: u64::from_be_bytes(random()),
            secret: secret(),
        })
    }

    fn connection(&self, pc_id: &str) -> Option<mpsc::Sender<Request>> {
        self.connections().by_pc_id.get(pc_id).cloned()
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.0.connections()
    }
}

impl Inner {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        lock(&self.connections)
    }
}

/// What a new session comes of.
struct Beginning {
    offer: String,
    /// For the bot, in place of what `/start` was given.
    data: Option<Value>,
    call_data: Option<Value>,
    has_resource: bool,
}

/// The names under which a session can be spoken to; they go when it is dropped.
pub struct Registered {
    engine: Weak<Inner>,
    pc_id: String,
    /// The name before the last restart.
    former: Option<String>,
    number: u64,
}

impl Registered {
    pub fn pc_id(&self) -> &str {
        &self.pc_id
    }

    /// Makes the session known under a new name, which goes out in the answer to a request under `former`. That one stays
    /// good until the next restart: if the answer is lost, the client comes again under the name it has.
    pub fn rename(&mut self, pc_id: String, former: String) {
        let Some(engine) = self.engine.upgrade() else {
            return;
        };
        let mut connections = engine.connections();
        if let Some(Reach { requests, .. }) = connections.by_number.get(&self.number).cloned() {
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

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            let mut connections = engine.connections();
            for name in self.former.iter().chain([&self.pc_id]) {
                connections.by_pc_id.remove(name);
            }
            connections.by_number.remove(&self.number);
        }
    }
}

/// Turns what is wrong with an offer into the refusal that HTTP knows.
pub(crate) fn refusal(error: OfferError) -> OfferRefusal {
    match error {
        OfferError::Bad(why) => OfferRefusal::BadSdp(why),
        OfferError::NoCandidate(why) => OfferRefusal::NoCandidate(why),
        OfferError::TooLong(why) => OfferRefusal::AnswerTooLong(why),
        OfferError::Answer(why) => OfferRefusal::NoAnswer(why),
        // The client takes this refusal as final, and does not bring a bot back that hung up.
        OfferError::Ended => OfferRefusal::UnknownConnection,
    }
}

/// Makes the name of a new connection: 128 random bits, so that nobody guesses another's.
fn new_pc_id() -> String {
    format!("{:032x}", u128::from_be_bytes(random()))
}

/// Makes what no other secret can be guessed from.
pub(crate) fn secret() -> IceSecret {
    IceSecret(random())
}

#[cfg(test)]
mod tests;
