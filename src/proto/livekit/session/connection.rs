//! One connection to a room: the signalling client and the two peer connections that it negotiates.
//!
//! In: messages of the server, datagrams, Opus packets, and `now`. Out: messages, datagrams, the
//! participants' packets, changes in the room, and one cause for the end. A failure of any part
//! ends the whole, unless the session resumes it on a new WebSocket (`media`). Source:
//! `docs/spec/livekit.md` 4.

mod media;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use self::media::{PeerTransport, RestartProgress};
use super::LocalAddresses;
use super::disconnect::DisconnectCause;
use super::server_paths::{PathId, PathRequest, ServerPaths};
use crate::audio::packet::AudioPacket;
use crate::audio::sender;
use crate::limits::{CONNECT_WITHIN, ROOM_SUBSCRIBED_WITHIN};
use crate::livekit::roster::{RoomRole, RosterChange};
use crate::livekit::signal::{JoinInfo, NoAudioCause, ServerOffers, SignalClient, SignalError, SignalOutput};
use crate::livekit::wire::SignalTarget;
use crate::secret::Secret;
use crate::webrtc::connection::{
    self, AudioLevel, ConnectionContext, NegotiationError, PeerConnection, SfuSetup, Transmit,
};

/// Time after the end of a connection for the reason of the server to arrive: without it, a bot
/// that was replaced would rejoin and replace its successor.
const ROOM_REASON_WITHIN: Duration = Duration::from_secs(1);

/// An output of a connection.
pub(super) enum RoomOutput {
    /// Nothing more; [`RoomConnection::handle_timeout`] is due at this time.
    Timeout(Option<Instant>),
    Send(Vec<u8>),
    /// Routes datagrams with this user name fragment, and those from the address in use.
    Listen(SignalTarget, String, Option<SocketAddr>),
    OpenPath(SignalTarget, PathId, PathRequest),
    ClosePath(PathId),
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
    /// Nothing arrives any more, or again.
    MediaLost,
    MediaBack,
    /// The connection was resumed, and its media is up.
    Restored,
    /// A participant has subscribed to our track.
    Subscribed,
    Change(RosterChange),
    /// An administrator has muted our track, or lifted that.
    Muted(bool),
    /// A track is not heard.
    NoAudio(NoAudioCause),
    Token(Secret),
    Ended(DisconnectCause),
}

/// One connection to a room.
pub(super) struct RoomConnection {
    role: RoomRole,
    signal: SignalClient,
    publisher: Option<PeerTransport>,
    subscriber: Option<PeerTransport>,
    local: LocalAddresses,
    seed: u64,
    began: Instant,
    /// Our own sid.
    sid: String,
    offers: ServerOffers,
    /// Since when there is no signalling.
    suspended_at: Option<Instant>,
    next_probe: Instant,
    /// The server has resumed the connection, and its media is not up again.
    is_restoring: bool,
    /// The publisher's offer, held until the server has published the track.
    pending_offer: Option<String>,
    published: bool,
    is_up: bool,
    /// Whether a participant has subscribed to our track, or had its time to do so.
    is_subscribed: bool,
    /// Until when a subscription is awaited, from when a caller is present.
    subscribe_deadline: Option<Instant>,
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
    pub fn new(role: RoomRole, local: LocalAddresses, seed: u64, now: Instant) -> Self {
        RoomConnection {
            role,
            signal: SignalClient::new(role, now),
            publisher: None,
            subscriber: None,
            local,
            seed,
            began: now,
            sid: String::new(),
            offers: ServerOffers::default(),
            suspended_at: None,
            next_probe: now,
            is_restoring: false,
            pending_offer: None,
            published: false,
            is_up: false,
            is_subscribed: false,
            subscribe_deadline: None,
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

    pub fn handle_timeout(&mut self, now: Instant, unix_ms: u64) {
        if !self.is_closing {
            self.signal.handle_timeout(now, unix_ms);
            self.check_deadlines(now);
            self.probe_media(now);
        }
        self.needs_timeout = false;
        for target in [SignalTarget::Publisher, SignalTarget::Subscriber] {
            if let Some(transport) = self.transport(target) {
                transport.peer.handle_timeout(now);
            }
        }
    }

    fn check_deadlines(&mut self, now: Instant) {
        let is_publish_due = !self.is_up && now >= self.publish_deadline;
        for target in [SignalTarget::Publisher, SignalTarget::Subscriber] {
            let Some(transport) = self.transport(target) else {
                continue;
            };
            // A track needs its connection, whose own deadline is later by the time that the server
            // took to let us in.
            if transport.until.is_none_or(|until| now < until && !is_publish_due) {
                continue;
            }
            if transport.restart == RestartProgress::Awaited && transport.is_receiving(now) {
                // The server does not restart ICE, and there is no need to.
                (transport.until, transport.restart) = (None, RestartProgress::None);
                self.check_restored();
                continue;
            }
            let cause = match transport.is_closed {
                true => DisconnectCause::MediaClosed(target),
                false => DisconnectCause::NoMedia {
                    target,
                    tried: transport.explain(),
                },
            };
            return self.end(cause);
        }
        if is_publish_due {
            self.end(match self.publisher {
                None => DisconnectCause::PingTimeout,
                Some(_) => DisconnectCause::NotPublished,
            });
        }
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

    /// Sends the bytes of one `DataPacket`. Returns `false` if the channel is full, or if there is
    /// no signalling, since the server may be gone.
    pub fn send_data(&mut self, bytes: &[u8]) -> bool {
        if self.suspended_at.is_some() {
            return false;
        }
        self.publisher
            .as_mut()
            .is_some_and(|transport| transport.peer.send_message(bytes))
    }

    /// Returns the owner of a track that is subscribed to.
    pub fn track_owner(&self, track: &str) -> Option<&Arc<str>> {
        self.signal.track_owner(track)
    }

    /// Changes attributes of the local participant.
    pub fn update_attributes(&mut self, attributes: BTreeMap<String, String>) {
        self.signal.update_attributes(attributes);
    }

    /// Returns the sid of the local participant, and that of our track.
    pub fn own_sids(&self) -> (&str, Option<&str>) {
        self.signal.own_sids()
    }

    /// Returns whether an administrator has muted our track.
    pub fn is_muted(&self) -> bool {
        self.signal.is_muted()
    }

    /// Returns the sid of a participant's track that is subscribed to.
    pub fn track_of(&self, identity: &str) -> Option<&Arc<str>> {
        self.signal.track_of(identity)
    }

    /// Returns the number of active participants to whom the local one talks.
    pub fn callers(&self) -> usize {
        self.signal.callers()
    }

    /// Tells whether one of them publishes audio that is subscribed to and not muted.
    pub fn is_any_publishing(&self) -> bool {
        self.signal.is_any_publishing()
    }

    /// Tells whether an agent with this attribute joined before the local participant.
    pub fn has_earlier_agent(&self, key: &str, value: &str) -> bool {
        self.signal.has_earlier_agent(key, value)
    }

    /// Returns the last round trip to the server.
    pub fn round_trip(&self) -> Option<Duration> {
        self.signal.round_trip()
    }

    /// Tells whether our track is published, its peer connection up, and media arrives.
    pub fn is_up(&self) -> bool {
        self.is_up && !self.is_over && !self.is_silent()
    }

    /// Tells whether callers are present and hear the bot. Speech from before they have subscribed
    /// to our track would be lost, as would be speech to a telephone that is not answered yet.
    pub fn is_audible(&mut self, now: Instant) -> bool {
        if self.callers() == 0 || !self.is_up() {
            self.subscribe_deadline = None;
            return false;
        }
        if self.signal.answered_callers() == 0 {
            return false;
        }
        if !self.is_subscribed {
            let until = *self.subscribe_deadline.get_or_insert(now + ROOM_SUBSCRIBED_WITHIN);
            self.is_subscribed = now >= until;
        }
        self.is_subscribed
    }

    /// Returns when [`RoomConnection::is_audible`] changes without another event.
    pub fn subscribe_deadline(&self) -> Option<Instant> {
        self.subscribe_deadline.filter(|_| !self.is_subscribed)
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
                if !self.is_closing {
                    next = next.into_iter().chain(self.poll_paths(target, now)).min();
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
                next = [next, until, deadlines[0], deadlines[1], self.probe_deadline()]
                    .into_iter()
                    .flatten()
                    .min();
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
                connection::ConnectionOutput::Transmit(transmit) => {
                    if !transmit.kind().is_stun() {
                        transport.paths.handle_media_sent(transmit.path(), now);
                    }
                    return TransportPoll::Transmit(transmit);
                }
                _ if closing => continue,
                connection::ConnectionOutput::Connected => {
                    transport.handle_connected(now);
                    log::debug!("{target:?} connection is up over {}", transport.paths.media_path_name());
                    self.check_up();
                    continue;
                }
                connection::ConnectionOutput::PathValidated(_) => {
                    if transport.handle_validated(now) {
                        log::debug!("{target:?} connection: ICE has restarted");
                        self.check_restored();
                    }
                    continue;
                }
                connection::ConnectionOutput::TcpCandidate(address) => {
                    transport.paths.handle_tcp_candidate(address);
                    continue;
                }
                connection::ConnectionOutput::Silent => {
                    self.handle_silent(target, now);
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
                // The connections of a room have no stream keys or text messages.
                connection::ConnectionOutput::Audio { track: None, .. }
                | connection::ConnectionOutput::Dtmf(_)
                | connection::ConnectionOutput::Message(_) => continue,
                connection::ConnectionOutput::PeerClosed | connection::ConnectionOutput::Failed => {
                    // A server that ends a connection closes its peer connections too, and their
                    // datagrams may overtake the reason.
                    transport.until = Some(now + ROOM_REASON_WITHIN);
                    transport.is_closed = true;
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
                return self.handle_answer(&sdp, now);
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
            SignalOutput::Subscribed => {
                self.is_subscribed = true;
                RoomOutput::Subscribed
            }
            SignalOutput::Resumed(offers) => return self.handle_resumed(&offers, now),
            SignalOutput::NotResumed => return self.end(DisconnectCause::NotResumed),
            SignalOutput::PublishRefused(why) => return self.end(DisconnectCause::PublishRefused(why)),
            SignalOutput::Change(change) => RoomOutput::Change(change),
            SignalOutput::Muted(muted) => RoomOutput::Muted(muted),
            SignalOutput::NoAudio(cause) => RoomOutput::NoAudio(cause),
            SignalOutput::Token(token) => RoomOutput::Token(token),
            SignalOutput::Leave { reason, action } => return self.end(DisconnectCause::Ended { reason, action }),
            SignalOutput::PingTimeout => return self.end(DisconnectCause::PingTimeout),
        };
        self.queue.push_back(output);
    }

    /// Offers our track.
    fn publish(&mut self, joined: &JoinInfo, common: &ConnectionContext, now: Instant) {
        log::debug!("let in by a server of version {}", joined.server_version);
        self.sid = joined.sid.clone();
        self.offers = joined.offers.clone();
        let paths = self.paths(SignalTarget::Publisher);
        let setup = SfuSetup {
            common,
            local: &self.local.publisher,
            relay_only: paths.is_relay_forced(),
            seed: self.seed,
        };
        let track = self.role.track_name();
        match PeerConnection::publisher(&setup, track, now) {
            Ok((peer, offer)) => {
                let transport = self.listen(SignalTarget::Publisher, peer, paths, now);
                self.publisher = Some(transport);
                self.signal.add_track(track, track);
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
            Some(transport) => {
                let (ufrag, used) = (transport.peer.local_ufrag(), transport.peer.validated_address());
                transport.peer.answer_server_offer(offer, mids).inspect(|_| {
                    let new_ufrag = transport.peer.local_ufrag();
                    if new_ufrag != ufrag {
                        transport.handle_restarted(now);
                        self.queue
                            .push_back(RoomOutput::Listen(SignalTarget::Subscriber, new_ufrag, used));
                    }
                })
            }
            None => {
                let paths = self.paths(SignalTarget::Subscriber);
                let setup = SfuSetup {
                    common,
                    local: &self.local.subscriber,
                    relay_only: paths.is_relay_forced(),
                    seed: self.seed.rotate_left(32),
                };
                PeerConnection::subscriber(&setup, offer, mids, now).map(|(peer, answer)| {
                    let mut transport = self.listen(SignalTarget::Subscriber, peer, paths, now);
                    transport.paths.begin(now);
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

    /// Handles the answer to the last offer of the publisher connection.
    fn handle_answer(&mut self, sdp: &str, now: Instant) {
        let Some(transport) = &mut self.publisher else { return };
        self.needs_timeout = true;
        let ufrag = transport.peer.local_ufrag();
        match transport.peer.handle_answer(sdp, now) {
            Ok(()) if transport.peer.local_ufrag() != ufrag => transport.handle_restarted(now),
            Ok(()) => transport.paths.begin(now),
            Err(error) => self.end(DisconnectCause::BadDescription(error_text(&error))),
        }
    }

    /// Returns the paths of a new peer connection. The lowest bit of the number of a path tells the
    /// connection.
    fn paths(&self, target: SignalTarget) -> ServerPaths {
        ServerPaths::new(self.seed, target as u32, &self.offers)
    }

    fn host_addresses(&self, target: SignalTarget) -> Vec<SocketAddr> {
        match target {
            SignalTarget::Publisher => self.local.publisher.clone(),
            SignalTarget::Subscriber => self.local.subscriber.clone(),
        }
    }

    /// Routes datagrams to a peer connection before the server learns where to send them.
    fn listen(
        &mut self,
        target: SignalTarget,
        mut peer: PeerConnection,
        paths: ServerPaths,
        now: Instant,
    ) -> PeerTransport {
        self.queue
            .push_back(RoomOutput::Listen(target, peer.local_ufrag(), None));
        PeerTransport::new(peer, paths, now)
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
