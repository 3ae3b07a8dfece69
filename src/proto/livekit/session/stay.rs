//! One stay in a room: the signalling connection and the two peer connections that it arranges.
//!
//! In: the messages of the server, datagrams, Opus packets, and `now`. Out: messages, datagrams, the participants' packets, what
//! the server tells of the room, and the one reason why the stay is over: whatever breaks breaks the whole.
//! Source: the rooms fact sheet, B4.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::Local;
use crate::audio::packet::AudioPacket;
use crate::audio::speaker;
use crate::limits::{CONNECT_WITHIN, ROOM_REASON_WITHIN};
use crate::livekit::roster::Change;
use crate::livekit::signal::{self, Signal, Then};
use crate::livekit::wire::Target;
use crate::secret::Secret;
use crate::webrtc::connection::{
    self, AudioLevel, ConnectionContext, NegotiationError, PeerConnection, ReceivedPacket, SfuSetup, Transmit,
};

/// The name of our track, which is also its id in the offer.
const TRACK: &str = "bot-audio";

/// What a stay answers to an input.
pub(super) enum Output {
    /// Nothing more; the stay wants [`Stay::handle_timeout`] at this time.
    Timeout(Option<Instant>),
    Send(Vec<u8>),
    Listen(Target, String),
    Transmit(Target, Transmit),
    Audio {
        track: Arc<str>,
        packet: AudioPacket,
    },
    TrackGone(Arc<str>),
    ChannelOpen,
    Data(Vec<u8>),
    /// Our track is published, and its connection is up.
    Up,
    Change(Change),
    Token(Secret),
    Over(Why),
}

/// Why there is no stay, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Nobody answered: in words.
    Unreachable(String),
    /// The server answered something else than a WebSocket.
    Refused {
        status: u16,
        /// What it said, for the log at DEBUG.
        text: String,
    },
    /// The socket was closed, or broke.
    SocketGone,
    /// The server said nothing for too long.
    Silent,
    /// The server sent what is no message.
    BadMessage(String),
    /// A description of the server cannot be used.
    BadDescription(String),
    /// A peer connection did not come up in time, or broke.
    NoMedia(Target),
    /// The track was not taken in time.
    NotPublished,
    /// The server does not let us publish.
    PublishRefused(String),
    /// The server ended the stay.
    Ended { reason: i32, then: Then },
}

impl fmt::Display for Why {
    /// In words that help who runs the bot, without a key or a name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Unreachable(words) => write!(f, "the media-room server cannot be reached: {words}; is MEDIAROOM_URL right?"),
            Why::Refused { status: 401, .. } => f.write_str(
                "the media-room server refused the token (401): MEDIAROOM_API_KEY and MEDIAROOM_API_SECRET have to be that \
                 server's, and the clock of this machine right",
            ),
            Why::Refused { status: 404, .. } => f.write_str(
                "there is no media-room server at MEDIAROOM_URL, or it makes no rooms by itself and has none of this name (404)",
            ),
            Why::Refused { status: 400, .. } => {
                f.write_str("the media-room server takes no such room or name (400): is MEDIAROOM_ROOM_NAME too long?")
            }
            Why::Refused { status: 101 | 200, .. } => {
                f.write_str("what answers at MEDIAROOM_URL is no media-room server: it opens no WebSocket")
            }
            Why::Refused { status: 429 | 500..=599, .. } => {
                write!(f, "the media-room server takes nobody at this moment ({})", self.status())
            }
            Why::Refused { status, .. } => write!(f, "the media-room server refused with {status}: is MEDIAROOM_URL right?"),
            Why::SocketGone => f.write_str("the media-room server closed the signalling connection"),
            Why::Silent => f.write_str("the media-room server fell silent"),
            Why::BadMessage(words) => write!(f, "the media-room server sent what is no message: {words}"),
            Why::BadDescription(words) => {
                write!(f, "the media-room server sent a session description that cannot be used: {words}")
            }
            Why::NoMedia(Target::Publisher) => f.write_str(
                "no media connection to the media-room server: is UDP open from this machine to the server's ports?",
            ),
            Why::NoMedia(Target::Subscriber) => f.write_str(
                "no media connection from the media-room server: is UDP open from this machine to the server's ports?",
            ),
            Why::NotPublished => f.write_str("the media-room server did not take the bot's track in time"),
            Why::PublishRefused(words) => write!(f, "the media-room server lets the bot publish nothing: {words}"),
            Why::Ended { reason, .. } => {
                write!(f, "the media-room server ended the stay: {}", reason_words(*reason))
            }
        }
    }
}

impl Why {
    fn status(&self) -> u16 {
        match self {
            Why::Refused { status, .. } => *status,
            _ => 0,
        }
    }
}

/// Names a disconnect reason, B3.
fn reason_words(reason: i32) -> String {
    let words = match reason {
        1 => "as the client asked",
        2 => "another participant came with the same identity",
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

/// One of the two peer connections, and until when it has to be up; nothing once it was.
struct Leg {
    peer: PeerConnection,
    until: Option<Instant>,
}

/// One stay.
pub(super) struct Stay {
    signal: Signal,
    publisher: Option<Leg>,
    subscriber: Option<Leg>,
    local: Local,
    seed: u64,
    /// The publisher's offer, until the server has taken the track.
    held: Option<String>,
    published: bool,
    up: bool,
    /// Until when it has to be up.
    until: Instant,
    /// Tracks that are heard, for the end of the stay.
    tracks: BTreeMap<Arc<str>, ()>,
    queue: VecDeque<Output>,
    /// A connection has something to do now, of which it does not tell by its deadline.
    urged: bool,
    closing: bool,
    asked_to_close: bool,
    socket_gone: bool,
    over: bool,
}

impl Stay {
    /// Begins when the WebSocket is open.
    pub fn new(local: Local, seed: u64, now: Instant) -> Self {
        Stay {
            signal: Signal::new(now),
            publisher: None,
            subscriber: None,
            local,
            seed,
            held: None,
            published: false,
            up: false,
            until: now + CONNECT_WITHIN,
            tracks: BTreeMap::new(),
            queue: VecDeque::new(),
            urged: false,
            closing: false,
            asked_to_close: false,
            socket_gone: false,
            over: false,
        }
    }

    pub fn handle_binary(&mut self, bytes: Bytes, now: Instant) {
        if self.closing || self.over {
            return;
        }
        match self.signal.handle_message(bytes, now) {
            Err(signal::BadMessage(words)) if self.publisher.is_none() => self.end(Why::BadMessage(words)),
            // What a later version of the server says beside the rest is no reason to leave.
            Err(signal::BadMessage(words)) => log::debug!("message ignored: {words}"),
            Ok(()) => {}
        }
    }

    pub fn handle_socket_gone(&mut self) {
        self.socket_gone = true;
        self.end(Why::SocketGone);
    }

    pub fn handle_packet(&mut self, target: Target, packet: &ReceivedPacket<'_>, now: Instant) {
        if let Some(leg) = self.leg(target) {
            leg.peer.handle_packet(packet, now);
        }
    }

    pub fn handle_timeout(&mut self, now: Instant, unix_ms: u64) {
        if !self.closing {
            self.signal.handle_timeout(now, unix_ms);
            self.check_deadlines(now);
        }
        self.urged = false;
        for target in [Target::Publisher, Target::Subscriber] {
            if let Some(leg) = self.leg(target) {
                leg.peer.handle_timeout(now);
            }
        }
    }

    fn check_deadlines(&mut self, now: Instant) {
        let is_late = |leg: &Option<Leg>| leg.as_ref().and_then(|leg| leg.until).is_some_and(|until| now >= until);
        let why = match (is_late(&self.publisher), is_late(&self.subscriber)) {
            (true, _) => Why::NoMedia(Target::Publisher),
            (false, true) => Why::NoMedia(Target::Subscriber),
            (false, false) if self.up || now < self.until => return,
            (false, false) if self.publisher.is_none() => Why::Silent,
            (false, false) => Why::NotPublished,
        };
        self.end(why);
    }

    /// Hands the publisher connection a packet; it leaves with the next [`Stay::handle_timeout`].
    pub fn send_audio(&mut self, packet: &speaker::Packet<'_>, now: Instant) {
        if let Some(leg) = &mut self.publisher {
            leg.peer
                .send_audio(packet.payload, packet.ticks, Some(loudness(packet.pcm)), now);
        }
    }

    /// Sends the bytes of one `DataPacket`; `false` when there is no room for them now.
    pub fn send_data(&mut self, bytes: &[u8]) -> bool {
        self.publisher.as_mut().is_some_and(|leg| leg.peer.send_message(bytes))
    }

    /// Returns how many bytes of data the server has not acknowledged.
    pub fn data_in_flight(&mut self) -> usize {
        self.publisher.as_mut().map_or(0, |leg| leg.peer.messages_in_flight())
    }

    /// Returns whose track it is, if it is to be heard.
    pub fn owner(&self, track: &str) -> Option<&Arc<str>> {
        self.signal.owner(track)
    }

    /// Returns how many participants are within reach that are no agents.
    pub fn callers(&self) -> usize {
        self.signal.callers()
    }

    /// Tells whether our track is published, and its connection up.
    pub fn is_up(&self) -> bool {
        self.up && !self.over
    }

    /// Returns the tracks that were heard.
    pub fn into_tracks(self) -> impl Iterator<Item = Arc<str>> {
        self.tracks.into_keys()
    }

    /// Tells whether the server can still be told that we leave.
    pub fn can_leave(&self) -> bool {
        !self.socket_gone
    }

    /// Says goodbye on both sides; what it takes is in the outputs that follow.
    pub fn leave(&mut self) {
        self.closing = true;
        self.queue.clear();
        self.signal.leave();
        for target in [Target::Publisher, Target::Subscriber] {
            if let Some(leg) = self.leg(target) {
                leg.peer.close();
            }
        }
    }

    /// Tells, once, that the goodbye has been given out, so that the socket can be closed.
    pub fn wants_close(&mut self) -> bool {
        !std::mem::replace(&mut self.asked_to_close, true)
    }

    /// Tells whether nothing is left of a stay that was left.
    pub fn is_gone(&self) -> bool {
        let is_dead = |leg: &Option<Leg>| leg.as_ref().is_none_or(|leg| !leg.peer.is_alive());
        self.socket_gone && is_dead(&self.publisher) && is_dead(&self.subscriber)
    }

    /// Returns the next thing to do.
    pub fn poll_output(&mut self, common: &ConnectionContext, now: Instant) -> Output {
        loop {
            if let Some(output) = self.queue.pop_front() {
                return output;
            }
            if self.over && !self.closing {
                return Output::Timeout(None);
            }
            if let Some(output) = self.signal.poll_output() {
                self.handle_signal(output, common, now);
                continue;
            }
            let mut next = (!self.closing).then(|| self.signal.poll_timeout()).flatten();
            for target in [Target::Publisher, Target::Subscriber] {
                match self.poll_leg(target, now) {
                    Polled::Transmit(transmit) => return Output::Transmit(target, transmit),
                    Polled::Timeout(at) => next = next.into_iter().chain(at).min(),
                }
            }
            if !self.queue.is_empty() {
                continue;
            }
            if self.urged {
                next = Some(now);
            }
            if !self.closing {
                let until = (!self.up).then_some(self.until);
                let legs = [&self.publisher, &self.subscriber].map(|leg| leg.as_ref().and_then(|leg| leg.until));
                next = [next, until, legs[0], legs[1]].into_iter().flatten().min();
            }
            return Output::Timeout(next);
        }
    }

    /// Takes what a connection has, up to a datagram or its end.
    fn poll_leg(&mut self, target: Target, now: Instant) -> Polled {
        loop {
            let closing = self.closing;
            let Some(leg) = self.leg(target) else {
                return Polled::Timeout(None);
            };
            let output = match leg.peer.poll_output() {
                connection::ConnectionOutput::Timeout(at) => return Polled::Timeout(Some(at)),
                connection::ConnectionOutput::Transmit(transmit) => return Polled::Transmit(transmit),
                _ if closing => continue,
                connection::ConnectionOutput::Connected => {
                    leg.until = None;
                    log::debug!("{target:?} connection is up");
                    self.look_whether_up();
                    continue;
                }
                connection::ConnectionOutput::Audio {
                    track: Some(track),
                    packet,
                } => {
                    if !self.tracks.contains_key(&track) {
                        self.tracks.insert(track.clone(), ());
                    }
                    Output::Audio { track, packet }
                }
                connection::ConnectionOutput::TrackGone(track) => {
                    self.tracks.remove(&track);
                    Output::TrackGone(track)
                }
                connection::ConnectionOutput::ChannelOpen => Output::ChannelOpen,
                connection::ConnectionOutput::Data(bytes) => Output::Data(bytes),
                // A room has one known address, and neither keys nor texts.
                connection::ConnectionOutput::Proven(_)
                | connection::ConnectionOutput::Audio { track: None, .. }
                | connection::ConnectionOutput::Key(_)
                | connection::ConnectionOutput::Message(_) => continue,
                connection::ConnectionOutput::Left | connection::ConnectionOutput::Failed => {
                    // A server that ends a stay closes its connections as well, and a datagram may overtake the reason.
                    leg.until = Some(now + ROOM_REASON_WITHIN);
                    continue;
                }
            };
            self.queue.push_back(output);
        }
    }

    fn handle_signal(&mut self, output: signal::Output, common: &ConnectionContext, now: Instant) {
        if self.closing {
            if let signal::Output::Send(bytes) = output {
                self.queue.push_back(Output::Send(bytes));
            }
            return;
        }
        let told = match output {
            signal::Output::Send(bytes) => Output::Send(bytes),
            signal::Output::Joined(joined) => return self.publish(&joined, common, now),
            signal::Output::Offer { sdp, id, mid_to_track } => {
                return self.answer(&sdp, id, &mid_to_track, common, now);
            }
            signal::Output::Answer { sdp } => {
                let Some(leg) = &mut self.publisher else { return };
                self.urged = true;
                if let Err(error) = leg.peer.handle_answer(&sdp, now) {
                    self.end(Why::BadDescription(words(&error)));
                }
                return;
            }
            signal::Output::Candidate { target, candidate } => {
                if let Some(leg) = self.leg(target) {
                    leg.peer.add_remote_candidate(&candidate);
                    self.urged = true;
                }
                return;
            }
            signal::Output::Published { sid } => {
                log::debug!("the track is published as {sid}");
                self.published = true;
                if let Some(offer) = self.held.take() {
                    self.signal.offer(offer);
                }
                return self.look_whether_up();
            }
            signal::Output::PublishRefused(why) => return self.end(Why::PublishRefused(why)),
            signal::Output::Change(change) => Output::Change(change),
            signal::Output::Token(token) => Output::Token(token),
            signal::Output::Leave { reason, then } => return self.end(Why::Ended { reason, then }),
            signal::Output::Silent => return self.end(Why::Silent),
        };
        self.queue.push_back(told);
    }

    /// Offers our track.
    fn publish(&mut self, joined: &signal::Joined, common: &ConnectionContext, now: Instant) {
        log::debug!("let in by a server of version {}", joined.server_version);
        let setup = SfuSetup {
            common,
            local: &self.local.publisher,
            seed: self.seed,
        };
        match PeerConnection::publisher(&setup, TRACK, now) {
            Ok((peer, offer)) => {
                let leg = self.listen(Target::Publisher, peer, now);
                self.publisher = Some(leg);
                self.signal.add_track(TRACK, TRACK);
                if joined.fast_publish {
                    self.signal.offer(offer);
                } else {
                    self.held = Some(offer);
                }
            }
            Err(error) => self.end(Why::BadDescription(words(&error))),
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
            Some(leg) => leg.peer.answer_room(offer, mids).inspect(|_| {
                // The server may have restarted ICE, and then we have, too.
                let ufrag = leg.peer.local_ufrag();
                self.queue.push_back(Output::Listen(Target::Subscriber, ufrag));
            }),
            None => {
                let setup = SfuSetup {
                    common,
                    local: &self.local.subscriber,
                    seed: self.seed.rotate_left(32),
                };
                PeerConnection::subscriber(&setup, offer, mids, now).map(|(peer, answer)| {
                    let leg = self.listen(Target::Subscriber, peer, now);
                    self.subscriber = Some(leg);
                    answer
                })
            }
        };
        match answered {
            Ok(answer) => {
                self.urged = true;
                self.signal.answer(answer, id);
            }
            // A server that waits for an answer in vain ends the stay itself, later and again and again.
            Err(error) => self.end(Why::BadDescription(words(&error))),
        }
    }

    /// Lets datagrams in, before the server is told where to send them.
    fn listen(&mut self, target: Target, mut peer: PeerConnection, now: Instant) -> Leg {
        self.queue.push_back(Output::Listen(target, peer.local_ufrag()));
        Leg {
            peer,
            until: Some(now + CONNECT_WITHIN),
        }
    }

    fn look_whether_up(&mut self) {
        let connected = self.publisher.as_ref().is_some_and(|leg| leg.until.is_none());
        if connected && self.published && !std::mem::replace(&mut self.up, true) {
            self.queue.push_back(Output::Up);
        }
    }

    /// The stay is over, for the first reason of several.
    fn end(&mut self, why: Why) {
        if !self.closing && !std::mem::replace(&mut self.over, true) {
            self.queue.push_back(Output::Over(why));
        }
    }

    fn leg(&mut self, target: Target) -> Option<&mut Leg> {
        match target {
            Target::Publisher => self.publisher.as_mut(),
            Target::Subscriber => self.subscriber.as_mut(),
        }
    }
}

/// What became of asking a connection.
enum Polled {
    Transmit(Transmit),
    Timeout(Option<Instant>),
}

fn words(error: &NegotiationError) -> String {
    match error {
        NegotiationError::Bad(why) => why.clone(),
        NegotiationError::NoCandidate(why) => why.clone(),
        NegotiationError::TooLong(why) | NegotiationError::Answer(why) => why.clone(),
        NegotiationError::Ended => "the connection has ended".into(),
    }
}

/// Returns how loud a frame is, in -dBov (RFC 6464: 0 is the loudest, 127 digital silence), and whether it is speech. The
/// servers find out who speaks by this.
fn loudness(pcm: &[i16]) -> AudioLevel {
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

    /// RFC 6464: the level of a sine of full scale is -3 dBov, each halving is 6 dB, and silence is 127.
    #[test]
    fn loudness_is_told_in_decibels_below_overload() {
        let sine = |amplitude: f64| -> Vec<i16> {
            (0..960)
                .map(|n| (amplitude * (std::f64::consts::TAU * f64::from(n) / 96.0).sin()) as i16)
                .collect()
        };
        let level = |pcm: &[i16]| {
            let level = loudness(pcm);
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
