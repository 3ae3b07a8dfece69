//! One life: from an answered offer to the moment when nothing is left of the session.
//!
//! `Connecting -> Live -> Finishing -> Goodbye -> Closing -> Gone`, with a deadline in every phase. In: datagrams, the
//! bot's speech, texts and interruptions, further offers, and `now`. Out, by [`WebRtcSession::poll_output`]: datagrams, PCM for the
//! bot at the rate it asked for, events, and the next deadline. A client that restarts its connection gets a new peer under
//! the same session: its bot, speech and waiting messages stay.
//! Times and their reasons stand in `limits`. Sources: the signalling and embedded fact sheets, RFC 7587.

mod liveness;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use serde::Deserialize;

pub use self::liveness::Found;
use self::liveness::Liveness;
use crate::audio::codec::Codec;
use crate::audio::listener::{self, Listener};
use crate::audio::pacer;
use crate::audio::speaker::{Speaker, Turn};
use crate::connection::{self, Channel, OfferError, Packet, PeerConnection, Proven, Sender, Setup, Transmit};
pub use crate::event::{Event, LeaveReason};
use crate::limits::{
    CHECK_AT_ONCE_AFTER, CLOSE_WITHIN, CONNECT_WITHIN, FINISH_WITHIN, GOODBYE_WITHIN, OUTAGE_AFTER, PEER_FREED_AFTER,
    PEER_LOST_AFTER,
};
use crate::outbox::Outbox;
use crate::source::SourceKey;
use crate::whip::events::Events;
use crate::why::Tried;

/// What a session answers to an input.
pub enum Output<'a> {
    /// Nothing more; the session wants [`WebRtcSession::handle_timeout`] at this time.
    Timeout(Instant),
    Transmit(Transmit),
    /// The caller has this address: it answered a check.
    Proven(Proven),
    /// What [`WebRtcSession::handle_inquiry`] wanted to know.
    Found(Found),
    /// Speech of the caller: `i16` mono at the rate in Hz.
    Audio(&'a [i16], u32),
    Event(Event),
    /// Nothing is left; no input has any effect.
    Gone,
}

/// A microcontroller, as far as it is known from outside of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Where it was last proven to be.
    pub address: SocketAddr,
    /// The address that its offer names: its own one, behind a NAT.
    pub host: Option<IpAddr>,
}

/// Where a device's offer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub source: SourceKey,
    /// As in [`Device`].
    pub host: Option<IpAddr>,
}

impl Origin {
    /// Tells whether the device of another offer may be this one, come back. Two that are there at
    /// the same time have different addresses of their own.
    pub fn may_be(self, other: Origin) -> bool {
        let differ = self.host.zip(other.host).is_some_and(|(one, other)| one != other);
        self.source == other.source && !differ
    }
}

/// Another session whose caller may be this one's, come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// Its checks are answered from an address and port from which this one's were.
    AtAddress,
    /// A device's, which is connected.
    Device(Device),
}

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Answered; ICE and DTLS are under way.
    Connecting {
        until: Instant,
    },
    Live,
    /// The bot has ended, and its last words are still leaving.
    Finishing {
        until: Instant,
        reason: LeaveReason,
    },
    /// `peerLeft` is on its way.
    Goodbye {
        until: Instant,
    },
    /// The closing handshakes are on their way.
    Closing {
        until: Instant,
    },
    Gone,
}

/// One session.
pub struct WebRtcSession {
    peer: PeerConnection,
    phase: Phase,
    /// Whether the caller has been connected, in this connection or an earlier one.
    joined: bool,
    lost: bool,
    /// The bot has to be told that this is over.
    resumed: bool,
    liveness: Liveness,
    /// Another session is perhaps the caller's, and nothing was heard of the caller since.
    doubted: bool,
    listener: Listener,
    speaker: Speaker,
    outbox: Outbox,
    /// What the client's channel expects of whoever is behind it.
    events: Option<Events>,
    event: Option<Event>,
    /// The bot has no more speech, as its last answer showed.
    source_dry: bool,
    /// The bot's turn is on, or was until a moment ago.
    speaking: bool,
    gate: Gate,
    /// How long the caller may be silent before the session is freed.
    freed_after: Duration,
}

/// Whether audio may leave for the caller, once it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Not before [`WebRtcSession::open`].
    Held {
        is_secured: bool,
    },
}

impl WebRtcSession {
    /// Answers an offer: the session, and the answer's SDP.
    ///
    /// # Errors
    /// As [`PeerConnection::accept`].
    pub fn accept(offer: &str, setup: &Setup<'_>, now: Instant) -> Result<(WebRtcSession, String), OfferError> {
        let (peer, answer) = PeerConnection::accept(offer, setup, now)?;
        Ok((WebRtcSession::of(peer, setup, now), answer))
    }

    fn of(peer: PeerConnection, setup: &Setup<'_>, now: Instant) -> WebRtcSession {
        let (device, codec) = (peer.is_device(), peer.codec());
        WebRtcSession {
            peer,
            phase: Phase::Connecting {
                until: now + CONNECT_WITHIN,
            },
            joined: false,
            lost: false,
            resumed: false,
            liveness: Liveness::new(now),
            doubted: false,
            listener: Listener::new(codec),
            speaker: Speaker::new(codec, device, setup.common.voice),
            outbox: Outbox::new(device),
            events: None,
            event: None,
            source_dry: true,
            speaking: false,
            gate: Gate::Open,
            freed_after: PEER_FREED_AFTER,
        }
    }

    /// Answers the offer of a call. The session connects, and stays silent and not joined until [`WebRtcSession::open`].
    ///
    /// # Errors
    /// As [`PeerConnection::accept_call`].
    pub fn accept_call(offer: &str, setup: &Setup<'_>, now: Instant) -> Result<(WebRtcSession, String), OfferError> {
        let (peer, answer) = PeerConnection::accept_call(offer, setup, now)?;
        let session = WebRtcSession {
            phase: Phase::Connecting {
                until: now + CALL_HELD_WITHIN,
            },
            gate: Gate::Held { is_secured: false },
            freed_after: CALL_FREED_AFTER,
            ..WebRtcSession::of(peer, setup, now)
        };
        Ok((session, answer))
    }

    /// The call was picked up: audio may leave. What is not connected yet has its time from here on.
    pub fn open(&mut self, now: Instant) {
        let Gate::Held { is_secured } = std::mem::replace(&mut self.gate, Gate::Open) else {
            return;
        };
        if is_secured {
            self.connected(now);
        } else if let Phase::Connecting { until } = &mut self.phase {
            *until = now + CONNECT_WITHIN;
        }
    }

    /// Tells whether ICE and DTLS have come to be.
    pub fn is_secured(&self) -> bool {
        self.joined || self.gate == Gate::Held { is_secured: true }
    }

    /// Answers a further offer on the same connection.
    ///
    /// # Errors
    /// As [`PeerConnection::renegotiate`], and [`OfferError::Ended`].
    pub fn renegotiate(&mut self, offer: &str) -> Result<String, OfferError> {
        if self.is_ending() {
            return Err(OfferError::Ended);
        }
        self.peer.renegotiate(offer)
    }

    /// Answers an offer of a client that threw its connection away: a new connection under the same bot.
    ///
    /// # Errors
    /// As [`PeerConnection::accept`], and [`OfferError::Ended`]; the old connection is kept then.
    pub fn restart(&mut self, offer: &str, setup: &Setup<'_>, now: Instant) -> Result<String, OfferError> {
        if self.is_ending() {
            return Err(OfferError::Ended);
        }
        let (peer, answer) = PeerConnection::accept(offer, setup, now)?;
        // The client has forgotten the old connection, so there is nobody to say goodbye to.
        let former = std::mem::replace(&mut self.peer, peer);
        self.peer.follow(former);
        self.listener.handle_restart();
        self.listener.set_codec(self.peer.codec());
        self.speaker.set_codec(self.peer.codec(), now);
        self.outbox.handle_close();
        if let Phase::Connecting { .. } | Phase::Live = self.phase {
            self.phase = Phase::Connecting {
                until: now + CONNECT_WITHIN,
            };
        }
        self.liveness = Liveness::new(now);
        self.doubted = false;
        Ok(answer)
    }

    /// Takes the rates that the bot asks for, in Hz.
    pub fn set_rates(&mut self, in_rate_hz: u32, out_rate_hz: u32, now: Instant) {
        self.listener.set_rate(in_rate_hz);
        self.speaker.set_rate(out_rate_hz, now);
    }

    /// Tells whether the client's offer has a data channel.
    pub fn offers_channel(&self) -> bool {
        self.peer.offers_channel()
    }

    /// Tells whether the log says that nothing of the caller's sound could be used.
    #[cfg(test)]
    pub fn told_deaf(&self) -> bool {
        self.peer.told_deaf()
    }

    pub fn is_device(&self) -> bool {
        self.peer.is_device()
    }

    /// Returns the codec that is spoken both ways.
    pub fn codec(&self) -> Codec {
        self.peer.codec()
    }

    /// Tells whether the caller has been connected.
    pub fn has_joined(&self) -> bool {
        self.joined
    }

    /// Returns the address that the caller has in its own network, if its offer names one.
    pub fn host(&self) -> Option<IpAddr> {
        self.peer.host()
    }

    /// Returns when the caller was last heard.
    pub fn last_heard(&self) -> Instant {
        self.liveness.heard()
    }

    /// Returns what others have to know of a microcontroller.
    pub fn device(&self) -> Option<Device> {
        let address = self.peer.address().filter(|_| self.peer.is_device())?;
        let host = self.peer.host();
        Some(Device { address, host })
    }

    /// Returns the ufrag by which datagrams find this session.
    pub fn local_ufrag(&mut self) -> String {
        self.peer.local_ufrag()
    }

    pub fn add_remote_candidate(&mut self, text: &str) {
        self.peer.add_remote_candidate(text);
    }

    /// Returns what became of the caller's packets, for the log.
    pub fn heard(&self) -> listener::Tally {
        self.listener.tally()
    }

    /// Returns what left for the caller: frames of audio, and slots without one.
    pub fn spoken(&self) -> pacer::Counters {
        self.speaker.counters()
    }

    /// Returns how many texts of the bot the caller did not take.
    pub fn messages_dropped(&self) -> u64 {
        self.outbox.dropped()
    }

    /// Returns what was tried to connect with the client, if its last connection never came to be.
    pub fn unconnected(&self) -> Option<&Tried> {
        Some(self.peer.tried()).filter(|tried| !tried.is_secured())
    }

    /// Tells whether goodbye is being said; a client that comes back then must not be given hope.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Goodbye { .. } | Phase::Closing { .. } | Phase::Gone)
    }

    pub fn handle_packet(&mut self, packet: &Packet<'_>, now: Instant) {
        // What only says to come from the caller does not keep a session alive.
        if self.peer.handle_packet(packet, now) == Sender::Peer {
            self.handle_sign_of_life(now);
        }
    }

    fn handle_sign_of_life(&mut self, now: Instant) {
        let silence = self.liveness.silent_for(now);
        if silence >= OUTAGE_AFTER {
            self.peer.repeat_record(now);
        }
        if silence >= CHECK_AT_ONCE_AFTER {
            self.peer.ask();
        }
        self.liveness.handle_heard(now);
        self.doubted = false;
        if !self.is_ending() && std::mem::take(&mut self.lost) {
            self.resumed = true;
        }
    }

    /// Takes the news of another session.
    ///
    /// Silence is no proof that a caller has gone: a device that pushes to talk says nothing, and a
    /// network may be away for a while. Nor is a common address, since a NAT has one for all behind
    /// it. So none of this ends a session whose caller is there:
    /// - A device that has shaken hands at the very address and port of this one is this one, and
    ///   has new keys: it ends at once.
    /// - Where no more is known than that the rival is answered there, or that it names the same
    ///   address of its own behind a common one, the caller is asked. It goes when nothing was heard
    ///   for as long as makes it lost. A checked address alone must not end a session: devices
    ///   answer whoever knows their password, and some have all the same.
    /// - Anybody else at a common address is a neighbour, who takes nothing away. If it was this
    ///   device after all, there is a session too many until this one is given up.
    pub fn handle_rival(&mut self, rival: Rival, now: Instant) {
        match (rival, self.device()) {
            (Rival::AtAddress, _) => self.doubted = true,
            (Rival::Device(rival), Some(own)) if rival.address == own.address => {
                return self.handle_end(LeaveReason::Replaced, now);
            }
            (Rival::Device(rival), Some(own)) if rival.address.ip() == own.address.ip() => {
                if rival.host.is_none() || rival.host != own.host {
                    return;
                }
                self.doubted = true;
            }
            (Rival::Device(_), _) => return,
        }
        self.handle_inquiry(now);
    }

    /// Somebody wants to know whether the caller is there: it is asked at once. What was found is
    /// in the outputs.
    pub fn handle_inquiry(&mut self, now: Instant) {
        let can_ask = self.speaks() && self.peer.address().is_some();
        self.liveness.inquire(can_ask, now);
        self.ask(now);
    }

    /// Asks the caller if that is due.
    fn ask(&mut self, now: Instant) {
        if self.speaks() && self.liveness.take_due(now) {
            self.peer.ask();
        }
    }

    /// The place of this session is another's: of a pending one, since it did not connect in time;
    /// of any other, since its device answered no question.
    pub fn handle_eviction(&mut self, now: Instant) {
        let reason = match self.joined {
            true => LeaveReason::Replaced,
            false => LeaveReason::NeverConnected,
        };
        self.handle_end(reason, now);
    }

    /// Takes a text for the caller.
    pub fn handle_message(&mut self, text: String) {
        self.outbox.push(text);
    }

    /// Drops all speech that has not left.
    pub fn handle_interruption(&mut self, now: Instant) {
        self.speaker.handle_interruption(now);
        self.speak(now);
    }

    /// Takes speech from the bot as far as there is room. `take` appends at most so many samples, at the bot's rate.
    pub fn pull_speech(&mut self, take: impl FnOnce(&mut Vec<i16>, usize) -> usize, now: Instant) {
        if self.speaks() {
            self.source_dry = !self.speaker.pull(take, now);
            self.speak(now);
        }
    }

    /// The bot has ended: what it said last still leaves, then the session ends.
    pub fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant) {
        match self.phase {
            Phase::Live => {
                self.source_dry = false;
                self.phase = Phase::Finishing {
                    until: now + FINISH_WITHIN,
                    reason,
                };
            }
            Phase::Connecting { .. } => self.end(reason, now),
            _ => {}
        }
    }

    /// The runner stops, or the session is replaced: it ends now, with a goodbye where somebody listens.
    pub fn handle_end(&mut self, reason: LeaveReason, now: Instant) {
        match self.phase {
            Phase::Connecting { .. } | Phase::Live | Phase::Finishing { .. } => self.end(reason, now),
            Phase::Goodbye { .. } | Phase::Closing { .. } | Phase::Gone => {}
        }
    }

    /// The caller said by another way that it leaves.
    pub fn handle_leave(&mut self, now: Instant) {
        self.peer_gone(LeaveReason::Left, now);
    }

    /// Counts so many packets as sent.
    #[cfg(test)]
    pub fn leap(&mut self, packets: u64) {
        self.peer.leap(packets);
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        match self.phase {
            Phase::Connecting { until } if now >= until => {
                let reason = if self.joined {
                    LeaveReason::Vanished
                } else {
                    LeaveReason::NeverConnected
                };
                self.end(reason, now);
            }
            Phase::Live | Phase::Finishing { .. } => {
                let silent = self.liveness.silent_for(now);
                if silent >= self.freed_after {
                    self.end(LeaveReason::Vanished, now);
                } else if silent >= PEER_LOST_AFTER && self.doubted {
                    self.end(LeaveReason::Replaced, now);
                } else if silent >= PEER_LOST_AFTER && !self.lost {
                    self.lost = true;
                    self.event = Some(Event::Lost);
                }
                // A client that is told goodbye stops playing what it still holds, so the turn must be over at its end, too.
                let said = self.source_dry && self.speaker.is_silent() && !self.speaking;
                if let Phase::Finishing { until, reason } = self.phase
                    && (now >= until || said)
                {
                    self.end(reason, now);
                }
            }
            Phase::Goodbye { until } if now >= until => self.close(now),
            Phase::Closing { until } if now >= until => self.phase = Phase::Gone,
            _ => {}
        }
        self.ask(now);
        self.listener.handle_timeout(now);
        self.queue_frames(now);
        self.peer.handle_timeout(now);
    }

    /// Lets the frames that are due leave.
    fn speak(&mut self, now: Instant) {
        if self.queue_frames(now) {
            self.peer.handle_timeout(now);
        }
    }

    /// Hands the connection the frames that are due, and tells whether there were any.
    fn queue_frames(&mut self, now: Instant) -> bool {
        let mut any = false;
        if self.speaks() {
            while let Some(packet) = self.speaker.poll_packet(now) {
                self.peer.send_audio(packet.payload, packet.ticks, None, now);
                any = true;
            }
        }
        any
    }

    fn speaks(&self) -> bool {
        matches!(self.phase, Phase::Live | Phase::Finishing { .. })
    }

    /// Hands the channel what it takes now, and tells whether that was anything.
    fn send_messages(&mut self, now: Instant) -> bool {
        let mut sent = false;
        while let Some(text) = self.outbox.next(self.peer.messages_in_flight(), now) {
            if !self.peer.send_message(text) {
                break;
            }
            self.outbox.handle_sent(now);
            sent = true;
        }
        sent
    }

    /// Returns the next thing to do.
    pub fn poll_output(&mut self, now: Instant) -> Output<'_> {
        loop {
            if std::mem::take(&mut self.resumed) {
                return Output::Event(Event::Resumed);
            }
            if let Some(event) = self.event.take() {
                return Output::Event(event);
            }
            if let Some(found) = self.liveness.take_found() {
                return Output::Found(found);
            }
            if self.phase == Phase::Gone {
                return Output::Gone;
            }
            // A decoded frame is borrowed, so handing it out is the last thing that this function does.
            if self.listener.poll_frame() {
                let (pcm, rate_hz) = self.listener.take_frame();
                return Output::Audio(pcm, rate_hz);
            }
            match self.peer.poll_output() {
                connection::Output::Timeout(at) => {
                    if let Some(turn) = self.speaker.poll_turn() {
                        self.speaking = turn == Turn::Started;
                        return Output::Event(match turn {
                            Turn::Started => Event::SpeechStarted,
                            Turn::Stopped => Event::SpeechStopped,
                        });
                    }
                    if !self.go_on(now) {
                        return Output::Timeout(self.next_timeout(at, now));
                    }
                }
                connection::Output::Transmit(transmit) => {
                    if transmit.is_check() {
                        self.liveness.handle_check(now);
                    }
                    return Output::Transmit(transmit);
                }
                connection::Output::Proven(proven) => return Output::Proven(proven),
                connection::Output::Connected => self.connected(now),
                connection::Output::Audio { packet, .. } => {
                    self.handle_sign_of_life(now);
                    self.listener.handle_packet(&packet, now);
                }
                connection::Output::Key(key) => {
                    self.handle_sign_of_life(now);
                    self.event = Some(Event::Dtmf(key));
                }
                connection::Output::ChannelOpen => self.handle_channel(now),
                connection::Output::Message(text) => {
                    self.handle_sign_of_life(now);
                    let answer = self.events.as_mut().and_then(|events| events.handle_message(&text));
                    if let Some(answer) = answer {
                        self.outbox.push(answer);
                    }
                    self.event = incoming(text);
                }
                // Clients have no tracks, and their messages are text.
                connection::Output::TrackGone(_) | connection::Output::Data(_) => {}
                connection::Output::Left => self.peer_gone(LeaveReason::Left, now),
                connection::Output::Failed => self.peer_gone(LeaveReason::Failed, now),
            }
        }
    }

    /// Does what a connection that has nothing more to give lets the session do, and tells whether more output follows.
    ///
    /// Acknowledgements come with datagrams, so this is where waiting messages find room, and a goodbye its end.
    fn go_on(&mut self, now: Instant) -> bool {
        if self.send_messages(now) {
            return true;
        }
        let delivered = self.outbox.is_empty() && self.peer.messages_in_flight() == 0;
        match self.phase {
            Phase::Goodbye { .. } if delivered => self.close(now),
            Phase::Closing { .. } if !self.peer.is_alive() => self.phase = Phase::Gone,
            Phase::Connecting { .. } | Phase::Live | Phase::Finishing { .. } if !self.peer.is_alive() => {
                self.peer_gone(LeaveReason::Failed, now);
            }
            _ => return false,
        }
        true
    }

    fn handle_channel(&mut self, now: Instant) {
        self.outbox.handle_open(now);
        // One that is made anew after a restart knows what it was told.
        if self.peer.channel() == Some(Channel::Events) && self.events.is_none() {
            let events = self.events.insert(Events::default());
            self.outbox.push(events.handle_open());
        }
    }

    fn connected(&mut self, now: Instant) {
        if let Gate::Held { is_secured } = &mut self.gate {
            *is_secured = true;
            return;
        }
        if let Phase::Connecting { .. } = self.phase {
            self.phase = Phase::Live;
        }
        self.speaker.start(now);
        self.speak(now);
        if !std::mem::replace(&mut self.joined, true) {
            self.event = Some(Event::Joined);
        }
    }

    /// The peer is not there any more: no goodbye, only what its end of the connection still expects.
    fn peer_gone(&mut self, reason: LeaveReason, now: Instant) {
        if matches!(self.phase, Phase::Closing { .. } | Phase::Gone) {
            return;
        }
        if !matches!(self.phase, Phase::Goodbye { .. }) {
            self.event = Some(Event::Left(reason));
        }
        self.close(now);
    }

    fn end(&mut self, reason: LeaveReason, now: Instant) {
        self.event = Some(Event::Left(reason));
        let listens = self.peer.has_channel() && !self.lost && !self.peer.is_device();
        if !listens {
            return self.close(now);
        }
        // Only the clients of some channels know what that means; to others what waits is still sent.
        if matches!(self.peer.channel(), Some(Channel::Chat | Channel::Rtvi)) {
            self.outbox.push(PEER_LEFT.to_owned());
        }
        self.phase = Phase::Goodbye {
            until: now + GOODBYE_WITHIN,
        };
    }

    fn close(&mut self, now: Instant) {
        self.peer.close();
        self.phase = Phase::Closing {
            until: now + CLOSE_WITHIN,
        };
    }

    fn next_timeout(&self, peer: Instant, now: Instant) -> Instant {
        let phase = match self.phase {
            Phase::Connecting { until } | Phase::Goodbye { until } | Phase::Closing { until } => Some(until),
            Phase::Finishing { until, .. } => Some(until),
            Phase::Live if self.lost => Some(self.liveness.heard() + self.freed_after),
            Phase::Live => Some(self.liveness.heard() + PEER_LOST_AFTER),
            Phase::Gone => None,
        };
        let speaker = self.speaks().then(|| self.speaker.poll_timeout()).flatten();
        let question = self.speaks().then(|| self.liveness.next());
        // A message that is due and did not leave waits for the peer, not for the clock.
        let message = self.outbox.poll_timeout().filter(|at| *at > now);
        [phase, speaker, question, self.listener.poll_timeout(), message]
            .into_iter()
            .flatten()
            .fold(peer, Instant::min)
    }
}

/// How long a call may take to be picked up, with all requests that it takes: the phone gives up after 60 s.
const CALL_HELD_WITHIN: Duration = Duration::from_secs(60);
/// Silence of a call's server, which answers checks every few seconds, after which the session is freed: nobody takes such a
/// call up again.
const CALL_FREED_AFTER: Duration = Duration::from_secs(15);

/// Tells the client that the bot has left; without it, it would take the closed connection for a network failure.
const PEER_LEFT: &str = r#"{"type":"signalling","message":{"type":"peerLeft"}}"#;

/// Sorts a text of the client: keep-alives and signalling are not the bot's.
fn incoming(text: String) -> Option<Event> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        r#type: std::borrow::Cow<'a, str>,
    }
    if text.starts_with("ping") {
        return None;
    }
    // Only a text that can be signalling is read twice.
    let is_signalling = text.contains("signalling")
        && serde_json::from_str::<Envelope<'_>>(&text).is_ok_and(|envelope| envelope.r#type == "signalling");
    if is_signalling {
        // `trackStatus` is all there is; a muted caller is not an error, and needs no answer.
        log::debug!("signalling message read");
        return None;
    }
    Some(Event::Message(text))
}

#[cfg(test)]
mod tests;
