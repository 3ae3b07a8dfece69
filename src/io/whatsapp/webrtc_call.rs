//! WebRTC sessions of WhatsApp calls: each is answered on its own port and starts when the answer
//! has been delivered.
//!
//! In: the offer of a call; later the arguments of its bot. Out: the answer, and [`CallEvent`]s. A
//! provider's server may send several calls from one address and port, and media packets name no
//! call, so each call has its own socket. No firewall rule is needed, because this end sends the
//! first check. Offers and candidates of clients cannot reach such a session.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use edge_runner_http::common::random;

use crate::bot::{self, WebRtcArguments, WebRtcConnection};
use crate::config::{Host, Transport};
use crate::io::addresses::local_address_towards;
use crate::io::admission::SessionPermit;
use crate::io::seeding::{seed_thread, seeding};
use crate::io::session::{self, SessionTask};
use crate::io::sessions::SessionStart;
use crate::io::tasks;
use crate::io::webrtc::WebRtc;
use crate::io::webrtc::progress::{CallEvent, ProgressSender};
use crate::io::webrtc::session_io::WebRtcIo;
use crate::io::webrtc::shared::{Registration, RequestSender, SessionRequest, secret};
use crate::io::webrtc::udp::{SessionInbox, UdpPort};
use crate::limits::{AUDIO_IN_FRAMES_MAX, SESSION_REQUESTS};
use crate::proto::event::LeaveReason;
use crate::proto::webrtc::candidate::{RemoteCandidatePolicy, parse_remote};
use crate::proto::webrtc::connection::{ConnectionSetup, NegotiationError};
use crate::proto::webrtc::gather::GatheredAddresses;
use crate::proto::webrtc::sdp;
use crate::proto::webrtc::session::WebRtcSession;

/// Unread events: each kind occurs once.
const PROGRESS_MAX: usize = 4;

/// An answered call whose session has not started.
pub struct AnsweredCall {
    pub sdp: String,
    session: WebRtcSession,
    inbox: SessionInbox,
    port: CallPort,
}

/// A running session.
pub struct RunningCall {
    pub progress: mpsc::Receiver<CallEvent>,
    requests: RequestSender,
}

impl RunningCall {
    /// Starts the audio: the call was accepted.
    pub fn open(&self) {
        let _ = self.requests.try_send(Box::new(SessionRequest::Open));
    }

    /// Ends the session: the call is over.
    pub fn end(&self, reason: LeaveReason) {
        let _ = self.requests.try_send(Box::new(SessionRequest::End(reason)));
    }
}

/// A UDP port with its reader, which stops when this is dropped.
pub struct CallPort(JoinHandle<()>);

impl Drop for CallPort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl WebRtc {
    /// Answers the offer of a call.
    ///
    /// # Errors
    /// Returns a [`NegotiationError`] that says what was wrong.
    pub fn answer_call(&self, offer: &str) -> Result<AnsweredCall, NegotiationError> {
        let config = self.sessions().config();
        let port = UdpPort::bind(config.host, 0)
            .map_err(|error| NegotiationError::NoCandidate(format!("no UDP port could be bound: {error}")))?;
        let local = local_addresses(offer, config.host, &port)?;
        let now = tasks::now();
        seed_thread();
        let (mut session, sdp) = WebRtcSession::accept_call(
            offer,
            &ConnectionSetup {
                context: self.common(),
                local: &local,
                tcp: &[],
                gathered: &GatheredAddresses::default(),
                embedded: None,
                device: None,
                seed: u64::from_be_bytes(random()),
                secret: secret(),
            },
            now,
        )?;
        let mut inbox = port.open();
        inbox.listen(session.local_ufrag());
        Ok(AnsweredCall {
            sdp,
            session,
            inbox,
            port: CallPort(tasks::spawn(port.run())),
        })
    }

    /// Starts the session of a call, with its bot.
    pub fn begin_call(&self, answered: AnsweredCall, start: SessionStart, permit: SessionPermit) -> RunningCall {
        let inner = &self.shared;
        let (requests, requests_rx) = mpsc::channel(SESSION_REQUESTS);
        let (progress, progress_rx) = mpsc::channel(PROGRESS_MAX);
        let pc_id = inner.new_pc_id();
        let connection = WebRtcConnection::new(pc_id.clone(), false, false);
        let id = start.session_id;
        let lease = Box::new((answered.port, start.lease));
        let mut task = SessionTask::new(inner.sessions.clone(), permit, Some(lease));
        let call_data = call_data(&start.body);
        task.start_bot(
            start.bot,
            id.clone(),
            start.body,
            Transport::WebRtc,
            AUDIO_IN_FRAMES_MAX,
            |slot| {
                let arguments = WebRtcArguments::new(connection, slot);
                bot::Kind::WebRtc(arguments.with_call_data(Some(call_data)))
            },
        );
        let io = WebRtcIo {
            inbox: answered.inbox,
            used: None,
            requests: requests_rx,
            inquirers: Vec::new(),
            shared: self.shared.clone(),
            registered: Registration::unreachable(pc_id),
            resource: None,
            call: Some(ProgressSender(progress)),
        };
        let task = seeding(session::run(Box::new(answered.session), io, task));
        session::spawn(&inner.sessions, id, start.log_client, task);
        RunningCall {
            progress: progress_rx,
            requests,
        }
    }
}

/// Returns what a webhook tells about the call.
pub fn call_data(body: &Value) -> Value {
    json!({"via": "messaging", "provider": "whatsapp", "from": body["from"], "to": body["to"]})
}

/// Returns the local addresses with a route to the offer's candidates: at most one per family.
fn local_addresses(offer: &str, host: Host, port: &UdpPort) -> Result<Vec<SocketAddr>, NegotiationError> {
    let prepared = sdp::prepare_call(offer).map_err(|error| NegotiationError::BadDescription(error.to_string()))?;
    // The offer is signed by the provider, so its candidates are trusted.
    let policy = RemoteCandidatePolicy {
        loopback_offered: true,
        named_by_operator: true,
    };
    let mut local: Vec<SocketAddr> = Vec::new();
    for line in &prepared.candidates {
        let Ok(usable) = parse_remote(line, &policy) else {
            continue;
        };
        let is_known = local.iter().any(|known| known.is_ipv4() == usable.addr.is_ipv4());
        if is_known || !port.serves(usable.addr.ip()) {
            continue;
        }
        if let Some(address) = bound(host, usable.addr).or_else(|| local_address_towards(usable.addr)) {
            local.push(SocketAddr::new(address, port.number()));
        }
    }
    match local.is_empty() {
        true => Err(NegotiationError::NoCandidate(
            "this machine has no route to any candidate of the offer".to_owned(),
        )),
        false => Ok(local),
    }
}

/// Returns the configured listening address, if it is of the same family.
fn bound(host: Host, towards: SocketAddr) -> Option<IpAddr> {
    match host {
        Host::Address(address) if !address.is_unspecified() && !address.is_loopback() => {
            Some(address).filter(|address| address.is_ipv4() == towards.is_ipv4())
        }
        _ => None,
    }
}
