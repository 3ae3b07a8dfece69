//! One connection to a room: the signalling client and the two peer connections that it negotiates.
//!
//! In: messages of the server, datagrams, Opus packets, and `now`. Out: messages, datagrams, the
//! participants' packets, changes in the room, and one cause for the end. A failure of any part
//! ends the whole. Source: `docs/spec/livekit.md` 4.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::LocalAddresses;
use crate::audio::packet::AudioPacket;
use crate::audio::sender;
use crate::limits::{CONNECT_WITHIN, ROOM_REASON_WITHIN};
use crate::livekit::roster::RosterChange;
use crate::livekit::signal::{JoinInfo, LeaveAction, SignalClient, SignalError, SignalOutput};
use crate::livekit::wire::SignalTarget;
use crate::secret::Secret;
use crate::webrtc::connection::{
    self, AudioLevel, ConnectionContext, NegotiationError, PeerConnection, ReceivedPacket, SfuSetup, Transmit,
};

/// The name of our track, which is also its id in the offer.
const TRACK: &str = "bot-audio";

/// An output of a connection.
pub(super) enum RoomOutput {
    /// Nothing more; [`RoomConnection::handle_timeout`] is due at this time.
    Timeout(Option<Instant>),
    Send(Vec<u8>),
    Listen(SignalTarget, String),
    Transmit(SignalTarget, Transmit),
    Audio {
        track: Arc<str>,
        packet: AudioPacket,
    },
    TrackGone(Arc<str>),
    ChannelOpen,
    Data(Vec<u8>),
    /// Our track is published, and its peer connection is up.
    Up,
    Change(RosterChange),
    Token(Secret),
    Ended(DisconnectCause),
}

/// Why a connection failed or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DisconnectCause {
    /// The server did not answer, with the reason.
    Unreachable(String),
    /// The server answered with something else than a WebSocket.
    Refused {
        status: u16,
        /// The body of the answer, logged at DEBUG only.
        text: String,
    },
    /// The socket was closed or broke.
    SocketClosed,
    /// The server was silent for too long.
    PingTimeout,
    /// The server sent an invalid message.
    BadMessage(String),
    /// A session description of the server cannot be used.
    BadDescription(String),
    /// A peer connection did not come up in time, or broke.
    NoMedia(SignalTarget),
    /// The track was not published in time.
    NotPublished,
    /// The server does not let us publish.
    PublishRefused(String),
    /// The server ended the connection.
    Ended { reason: i32, action: LeaveAction },
}

impl fmt::Display for DisconnectCause {
    /// Explains the cause to the operator, without keys and names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DisconnectCause::Unreachable(words) => write!(f, "the LiveKit server cannot be reached: {words}; is MEDIAROOM_URL right?"),
            DisconnectCause::Refused { status: 401, .. } => f.write_str(
                "the LiveKit server refused the token (401): MEDIAROOM_API_KEY and MEDIAROOM_API_SECRET must be \
                 those of the server, and the clock of this machine must be right",
            ),
            DisconnectCause::Refused { status: 404, .. } => f.write_str(
                "there is no LiveKit server at MEDIAROOM_URL, or it does not create rooms and has none of this name (404)",
            ),
            DisconnectCause::Refused { status: 400, .. } => {
                f.write_str("the LiveKit server rejects the room or the name (400): is MEDIAROOM_ROOM_NAME too long?")
            }
            DisconnectCause::Refused { status: 101 | 200, .. } => {
                f.write_str("the server at MEDIAROOM_URL is not a LiveKit server: it does not open a WebSocket")
            }
            DisconnectCause::Refused { status: 429 | 500..=599, .. } => {
                write!(f, "the LiveKit server accepts no participants at the moment ({})", self.status())
            }
            DisconnectCause::Refused { status, .. } => write!(f, "the LiveKit server refused with {status}: is MEDIAROOM_URL right?"),
            DisconnectCause::SocketClosed => f.write_str("the LiveKit server closed the signalling connection"),
            DisconnectCause::PingTimeout => f.write_str("the LiveKit server fell silent"),
            DisconnectCause::BadMessage(words) => write!(f, "the LiveKit server sent an invalid message: {words}"),
            DisconnectCause::BadDescription(words) => {
                write!(f, "the LiveKit server sent a session description that cannot be used: {words}")
            }
            DisconnectCause::NoMedia(SignalTarget::Publisher) => f.write_str(
                "no media connection to the LiveKit server: is UDP open from this machine to the server's ports?",
            ),
            DisconnectCause::NoMedia(SignalTarget::Subscriber) => f.write_str(
                "no media connection from the LiveKit server: is UDP open from this machine to the server's ports?",
            ),
            DisconnectCause::NotPublished => f.write_str("the LiveKit server did not publish the bot's track in time"),
            DisconnectCause::PublishRefused(words) => write!(f, "the LiveKit server does not let the bot publish: {words}"),
            DisconnectCause::Ended { reason, .. } => {
                write!(f, "the LiveKit server ended the connection: {}", reason_text(*reason))
            }
        }
    }
}

impl DisconnectCause {
    fn status(&self) -> u16 {
        match self {
            DisconnectCause::Refused { status, .. } => *status,
            _ => 0,
        }
    }
}

/// Describes a disconnect reason, `docs/spec/livekit.md` 3.2.
fn reason_text(reason: i32) -> String {
    let words = match reason {
        1 => "as the client asked",
        2 => "another participant joined with the same identity",
        3 => "it is shutting down",
        4 => "the participant was removed",
        5 => "the room was deleted",
        6 => "its state and ours do not match",
        7 => "the join failed",
        9 => "its signalling was closed",
        10 => "the room was closed",
        14 => "the connection timed out",
        15 => "the media failed",
        16 => "the agent failed",
        other => return format!("reason {other}"),
    };
    words.to_owned()
}

/// One of the two peer connections, with its connect deadline until it is up.
struct PeerTransport {
    peer: PeerConnection,
    until: Option<Instant>,
}

/// One connection to a room.
pub(super) struct RoomConnection {
    signal: SignalClient,
    publisher: Option<PeerTransport>,
    subscriber: Option<PeerTransport>,
    local: LocalAddresses,
    seed: u64,
    /// The publisher's offer, held until the server has published the track.
    pending_offer: Option<String>,
    published: bool,
    is_up: bool,
    /// When the track has to be published and connected.
    publish_deadline: Instant,
    /// The tracks that sent audio, so that the receiver can end them with the connection.
    tracks: BTreeMap<Arc<str>, ()>,
    queue: VecDeque<RoomOutput>,
    /// A peer connection has work that its deadline does not cover.
    needs_timeout: bool,
    is_closing: bool,
    close_requested: bool,
    is_socket_closed: bool,
    is_over: bool,
}

impl RoomConnection {
    /// Creates a connection for an open WebSocket.
    pub fn new(local: LocalAddresses, seed: u64, now: Instant) -> Self {
        RoomConnection {
            signal: SignalClient::new(now),
            publisher: None,
            subscriber: None,
            local,
            seed,
            pending_offer: None,
            published: false,
            is_up: false,
            publish_deadline: now + CONNECT_WITHIN,
            tracks: BTreeMap::new(),
            queue: VecDeque::new(),
            needs_timeout: false,
            is_closing: false,
            close_requested: false,
            is_socket_closed: false,
            is_over: false,
        }
    }

    pub fn handle_binary(&mut self, bytes: Bytes, now: Instant) {
        if self.is_closing || self.is_over {
            return;
        }
        match self.signal.handle_message(bytes, now) {
            Err(SignalError(words)) if self.publisher.is_none() => self.end(DisconnectCause::BadMessage(words)),
            // A later version of the server may send messages that this client does not know.
            Err(SignalError(words)) => log::debug!("message ignored: {words}"),
            Ok(()) => {}
        }
    }

    pub fn handle_socket_closed(&mut self) {
        self.is_socket_closed = true;
        self.end(DisconnectCause::SocketClosed);
    }

    pub fn handle_packet(&mut self, target: SignalTarget, packet: &ReceivedPacket<'_>, now: Instant) {
        if let Some(transport) = self.transport(target) {
            transport.peer.handle_packet(packet, now);
        }
    }

    pub fn handle_timeout(&mut self, now: Instant, unix_ms: u64) {
        if !self.is_closing {
            self.signal.handle_timeout(now, unix_ms);
            self.check_deadlines(now);
        }
        self.needs_timeout = false;
        for target in [SignalTarget::Publisher, SignalTarget::Subscriber] {
            if let Some(transport) = self.transport(target) {
                transport.peer.handle_timeout(now);
            }
        }
    }

    fn check_deadlines(&mut self, now: Instant) {
        let is_late = |transport: &Option<PeerTransport>| {
            transport
                .as_ref()
                .and_then(|transport| transport.until)
                .is_some_and(|until| now >= until)
        };
        let cause = match (is_late(&self.publisher), is_late(&self.subscriber)) {
            (true, _) => DisconnectCause::NoMedia(SignalTarget::Publisher),
            (false, true) => DisconnectCause::NoMedia(SignalTarget::Subscriber),
            (false, false) if self.is_up || now < self.publish_deadline => return,
            (false, false) if self.publisher.is_none() => DisconnectCause::PingTimeout,
            (false, false) => DisconnectCause::NotPublished,
        };
        self.end(cause);
    }

    /// Queues a packet on the publisher connection. The next [`RoomConnection::handle_timeout`]
    /// sends it.
    pub fn send_audio(&mut self, packet: &sender::EncodedPacket<'_>, now: Instant) {
        if let Some(transport) = &mut self.publisher {
            transport
                .peer
                .send_audio(packet.payload, packet.ticks, Some(audio_level(packet.pcm)), now);
        }
    }

    /// Sends the bytes of one `DataPacket`. Returns `false` if the channel is full.
    pub fn send_data(&mut self, bytes: &[u8]) -> bool {
        self.publisher
            .as_mut()
            .is_some_and(|transport| transport.peer.send_message(bytes))
    }

    /// Returns how many bytes of data the server has not acknowledged.
    pub fn data_in_flight(&mut self) -> usize {
        self.publisher
            .as_mut()
            .map_or(0, |transport| transport.peer.messages_in_flight())
    }

    /// Returns the owner of a track that is subscribed to.
    pub fn track_owner(&self, track: &str) -> Option<&Arc<str>> {
        self.signal.track_owner(track)
    }

    /// Returns the number of active participants that are not agents.
    pub fn callers(&self) -> usize {
        self.signal.callers()
    }

    /// Tells whether our track is published and its peer connection up.
    pub fn is_up(&self) -> bool {
        self.is_up && !self.is_over
    }

    /// Returns the tracks that sent audio.
    pub fn into_tracks(self) -> impl Iterator<Item = Arc<str>> {
        self.tracks.into_keys()
    }

    /// Tells whether a leave can still reach the server.
    pub fn can_leave(&self) -> bool {
        !self.is_socket_closed
    }

    /// Sends a leave and closes both peer connections.
    pub fn leave(&mut self) {
        self.is_closing = true;
        self.queue.clear();
        self.signal.leave();
        for target in [SignalTarget::Publisher, SignalTarget::Subscriber] {
            if let Some(transport) = self.transport(target) {
                transport.peer.close();
            }
        }
    }

    /// Returns `true` once, when the leave has been output and the socket can be closed.
    pub fn wants_close(&mut self) -> bool {
        !std::mem::replace(&mut self.close_requested, true)
    }

    /// Tells whether a connection that was left is completely closed.
    pub fn is_closed(&self) -> bool {
        let is_dead =
            |transport: &Option<PeerTransport>| transport.as_ref().is_none_or(|transport| !transport.peer.is_alive());
        self.is_socket_closed && is_dead(&self.publisher) && is_dead(&self.subscriber)
    }

    /// Returns the next output.
    pub fn poll_output(&mut self, common: &ConnectionContext, now: Instant) -> RoomOutput {
        loop {
            if let Some(output) = self.queue.pop_front() {
                return output;
            }
            if self.is_over && !self.is_closing {
                return RoomOutput::Timeout(None);
            }
            if let Some(output) = self.signal.poll_output() {
                self.handle_signal(output, common, now);
                continue;
            }
            let mut next = (!self.is_closing).then(|| self.signal.poll_timeout()).flatten();
            for target in [SignalTarget::Publisher, SignalTarget::Subscriber] {
                match self.poll_transport(target, now) {
                    TransportPoll::Transmit(transmit) => return RoomOutput::Transmit(target, transmit),
                    TransportPoll::Timeout(at) => next = next.into_iter().chain(at).min(),
                }
            }
            if !self.queue.is_empty() {
                continue;
            }
            if self.needs_timeout {
                next = Some(now);
            }
            if !self.is_closing {
                let until = (!self.is_up).then_some(self.publish_deadline);
                let deadlines = [&self.publisher, &self.subscriber]
                    .map(|transport| transport.as_ref().and_then(|transport| transport.until));
                next = [next, until, deadlines[0], deadlines[1]].into_iter().flatten().min();
            }
            return RoomOutput::Timeout(next);
        }
    }

    /// Polls a peer connection until it has a datagram or a deadline.
    fn poll_transport(&mut self, target: SignalTarget, now: Instant) -> TransportPoll {
        loop {
            let closing = self.is_closing;
            let Some(transport) = self.transport(target) else {
                return TransportPoll::Timeout(None);
            };
            let output = match transport.peer.poll_output() {
                connection::ConnectionOutput::Timeout(at) => return TransportPoll::Timeout(Some(at)),
                connection::ConnectionOutput::Transmit(transmit) => return TransportPoll::Transmit(transmit),
                _ if closing => continue,
                connection::ConnectionOutput::Connected => {
                    transport.until = None;
                    log::debug!("{target:?} connection is up");
                    self.check_up();
                    continue;
                }
                connection::ConnectionOutput::Audio {
                    track: Some(track),
                    packet,
                } => {
                    if !self.tracks.contains_key(&track) {
                        self.tracks.insert(track.clone(), ());
                    }
                    RoomOutput::Audio { track, packet }
                }
                connection::ConnectionOutput::TrackRemoved(track) => {
                    self.tracks.remove(&track);
                    RoomOutput::TrackGone(track)
                }
                connection::ConnectionOutput::ChannelOpen => RoomOutput::ChannelOpen,
                connection::ConnectionOutput::Data(bytes) => RoomOutput::Data(bytes),
                // The connections of a room have one known remote address, and no stream keys or
                // text messages.
                connection::ConnectionOutput::PathValidated(_)
                | connection::ConnectionOutput::Audio { track: None, .. }
                | connection::ConnectionOutput::Dtmf(_)
                | connection::ConnectionOutput::Message(_) => continue,
                connection::ConnectionOutput::PeerClosed | connection::ConnectionOutput::Failed => {
                    // A server that ends a connection closes its peer connections too, and their
                    // datagrams may overtake the reason.
                    transport.until = Some(now + ROOM_REASON_WITHIN);
                    continue;
                }
            };
            self.queue.push_back(output);
        }
    }

    fn handle_signal(&mut self, output: SignalOutput, common: &ConnectionContext, now: Instant) {
        if self.is_closing {
            if let SignalOutput::Send(bytes) = output {
                self.queue.push_back(RoomOutput::Send(bytes));
            }
            return;
        }
        let output = match output {
            SignalOutput::Send(bytes) => RoomOutput::Send(bytes),
            SignalOutput::Joined(joined) => return self.publish(&joined, common, now),
            SignalOutput::Offer { sdp, id, mid_to_track } => {
                return self.answer(&sdp, id, &mid_to_track, common, now);
            }
            SignalOutput::Answer { sdp } => {
                let Some(transport) = &mut self.publisher else { return };
                self.needs_timeout = true;
                if let Err(error) = transport.peer.handle_answer(&sdp, now) {
                    self.end(DisconnectCause::BadDescription(error_text(&error)));
                }
                return;
            }
            SignalOutput::Candidate { target, candidate } => {
                if let Some(transport) = self.transport(target) {
                    transport.peer.add_remote_candidate(&candidate);
                    self.needs_timeout = true;
                }
                return;
            }
            SignalOutput::Published { sid } => {
                log::debug!("the track is published as {sid}");
                self.published = true;
                if let Some(offer) = self.pending_offer.take() {
                    self.signal.offer(offer);
                }
                return self.check_up();
            }
            SignalOutput::PublishRefused(why) => return self.end(DisconnectCause::PublishRefused(why)),
            SignalOutput::Change(change) => RoomOutput::Change(change),
            SignalOutput::Token(token) => RoomOutput::Token(token),
            SignalOutput::Leave { reason, action } => return self.end(DisconnectCause::Ended { reason, action }),
            SignalOutput::PingTimeout => return self.end(DisconnectCause::PingTimeout),
        };
        self.queue.push_back(output);
    }

    /// Offers our track.
    fn publish(&mut self, joined: &JoinInfo, common: &ConnectionContext, now: Instant) {
        log::debug!("let in by a server of version {}", joined.server_version);
        let setup = SfuSetup {
            common,
            local: &self.local.publisher,
            seed: self.seed,
        };
        match PeerConnection::publisher(&setup, TRACK, now) {
            Ok((peer, offer)) => {
                let transport = self.listen(SignalTarget::Publisher, peer, now);
                self.publisher = Some(transport);
                self.signal.add_track(TRACK, TRACK);
                if joined.fast_publish {
                    self.signal.offer(offer);
                } else {
                    self.pending_offer = Some(offer);
                }
            }
            Err(error) => self.end(DisconnectCause::BadDescription(error_text(&error))),
        }
    }

    /// Answers an offer of the subscriber connection.
    fn answer(
        &mut self,
        offer: &str,
        id: u32,
        mids: &BTreeMap<String, String>,
        common: &ConnectionContext,
        now: Instant,
    ) {
        let answered = match &mut self.subscriber {
            Some(transport) => transport.peer.answer_server_offer(offer, mids).inspect(|_| {
                // If the server restarted ICE, the user name fragment has changed.
                let ufrag = transport.peer.local_ufrag();
                self.queue
                    .push_back(RoomOutput::Listen(SignalTarget::Subscriber, ufrag));
            }),
            None => {
                let setup = SfuSetup {
                    common,
                    local: &self.local.subscriber,
                    seed: self.seed.rotate_left(32),
                };
                PeerConnection::subscriber(&setup, offer, mids, now).map(|(peer, answer)| {
                    let transport = self.listen(SignalTarget::Subscriber, peer, now);
                    self.subscriber = Some(transport);
                    answer
                })
            }
        };
        match answered {
            Ok(answer) => {
                self.needs_timeout = true;
                self.signal.answer(answer, id);
            }
            // A server without an answer would end the connection later, again and again.
            Err(error) => self.end(DisconnectCause::BadDescription(error_text(&error))),
        }
    }

    /// Routes datagrams to a peer connection before the server learns where to send them.
    fn listen(&mut self, target: SignalTarget, mut peer: PeerConnection, now: Instant) -> PeerTransport {
        self.queue.push_back(RoomOutput::Listen(target, peer.local_ufrag()));
        PeerTransport {
            peer,
            until: Some(now + CONNECT_WITHIN),
        }
    }

    fn check_up(&mut self) {
        let connected = self
            .publisher
            .as_ref()
            .is_some_and(|transport| transport.until.is_none());
        if connected && self.published && !std::mem::replace(&mut self.is_up, true) {
            self.queue.push_back(RoomOutput::Up);
        }
    }

    /// Ends the connection. The first cause counts.
    fn end(&mut self, cause: DisconnectCause) {
        if !self.is_closing && !std::mem::replace(&mut self.is_over, true) {
            self.queue.push_back(RoomOutput::Ended(cause));
        }
    }

    fn transport(&mut self, target: SignalTarget) -> Option<&mut PeerTransport> {
        match target {
            SignalTarget::Publisher => self.publisher.as_mut(),
            SignalTarget::Subscriber => self.subscriber.as_mut(),
        }
    }
}

/// The result of polling a peer connection.
enum TransportPoll {
    Transmit(Transmit),
    Timeout(Option<Instant>),
}

fn error_text(error: &NegotiationError) -> String {
    match error {
        NegotiationError::BadDescription(why) => why.clone(),
        NegotiationError::NoCandidate(why) => why.clone(),
        NegotiationError::TooLong(why) | NegotiationError::Internal(why) => why.clone(),
        NegotiationError::Ended => "the connection has ended".into(),
    }
}

/// Returns the level of a frame in -dBov (RFC 6464: 0 is the loudest, 127 is digital silence) and
/// whether it contains speech. Servers detect active speakers by it.
fn audio_level(pcm: &[i16]) -> AudioLevel {
    let energy: f64 = pcm.iter().map(|sample| f64::from(*sample) * f64::from(*sample)).sum();
    if energy == 0.0 {
        return AudioLevel {
            dbov_below: 127,
            is_speech: false,
        };
    }
    let power = energy / pcm.len() as f64 / (32_768.0 * 32_768.0);
    let level = (-10.0 * power.log10()).round().clamp(0.0, 127.0);
    AudioLevel {
        dbov_below: level as u8,
        is_speech: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6464: a full-scale sine is -3 dBov, each halving is 6 dB, and silence is 127.
    #[test]
    fn audio_level_is_in_dbov() {
        let sine = |amplitude: f64| -> Vec<i16> {
            (0..960)
                .map(|n| (amplitude * (std::f64::consts::TAU * f64::from(n) / 96.0).sin()) as i16)
                .collect()
        };
        let level = |pcm: &[i16]| {
            let level = audio_level(pcm);
            (level.dbov_below, level.is_speech)
        };
        assert_eq!(level(&sine(32_767.0)), (3, true));
        assert_eq!(level(&sine(16_384.0)), (9, true));
        assert_eq!(level(&sine(327.67)), (43, true));
        assert_eq!(level(&[i16::MIN; 960]), (0, true));
        assert_eq!(level(&[0; 960]), (127, false));
        assert_eq!(level(&[]), (127, false));
    }
}
