//! One life of a bot in a media room, from the moment when the bot takes its media to the one when
//! nothing is left.
//!
//! `Waiting -> Entering -> Live <-> Away -> Finishing -> Closing -> Gone`, with a deadline in every
//! phase but the first: a bot that never takes its media joins the room by itself. In: what became
//! of a dial, the messages of the server, datagrams of the two connections, the bot's speech, texts
//! and interruptions, and `now`. Out, by [`RoomSession::poll_output`]: a WebSocket to open,
//! messages and datagrams to send, PCM for the bot, events, and the next deadline. Whatever is lost
//! of a stay in the room, it is made anew as a whole; the bot, its speech, its texts and who is
//! known to be there outlive it. The way in and back is `joining`, one stay `stay`, who is there
//! `company`, what is written `texts`, the end `leaving`. Times and their reasons stand in
//! `limits`. Source: the rooms fact sheet, B2 to B5.

mod company;
mod joining;
mod leaving;
mod stay;
mod texts;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::audio::codec::Codec;
use crate::audio::speaker::{Speaker, Turn};
use crate::config::{Secret, Transport};
use crate::counts::{Count, Counts};
use crate::event::{Event, LeaveReason};
use crate::limits::{ROOM_EMPTY, ROOM_NOBODY, ROOM_REGATHER};
use crate::livekit::ears::Ears;
use crate::livekit::wire::Target;
use crate::session::{Deadline, Output, Session};
use crate::webrtc::connection::{ConnectionContext, ReceivedPacket, Transmit};
use crate::webrtc::outbox::Outbox;
use company::Company;
use stay::Stay;
use texts::EarlyWords;

/// A WebSocket to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// `http` or `https`, as the connection below is plain or TLS.
    pub url: String,
    /// Goes into `Authorization: Bearer`.
    pub token: Secret,
}

/// What a session asks of its transport.
pub enum Command {
    /// Exactly one of [`RoomSession::handle_open`], [`RoomSession::handle_refused`] and
    /// [`RoomSession::handle_unreachable`] follows, unless the socket is closed before.
    Dial(Dial),
    /// One binary message.
    Send(Vec<u8>),
    /// Closes the socket in good order, or gives up opening it.
    CloseSocket,
    /// Datagrams that carry this user name fragment are this connection's from here on.
    Listen(Target, String),
    Transmit(Target, Transmit),
}

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The bot has not taken its media.
    Waiting,
    /// It has not been in the room yet.
    Entering {
        tries: usize,
    },
    /// In the room, since then.
    Live {
        since: Instant,
    },
    /// On the way back into the room.
    Away(Away),
    /// The bot has ended, and its last words are still leaving.
    Finishing {
        until: Instant,
        reason: LeaveReason,
    },
    /// The goodbye is on its way.
    Closing {
        until: Instant,
    },
    Gone,
}

/// A way back into the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Away {
    since: Instant,
    tries: usize,
}

/// Where the connection to the server is.
enum Way {
    /// There is none.
    None,
    /// The next try is made then.
    Pause(Instant),
    Dialing,
    Open(Box<Stay>),
}

/// What a session is made from.
pub struct Setup {
    pub common: Arc<ConnectionContext>,
    /// The server's: `ws`, `wss`, `http` or `https`.
    pub url: String,
    pub token: Secret,
    /// `now`, as the time since 1970.
    pub unix: Duration,
}

/// One session.
pub struct RoomSession {
    common: Arc<ConnectionContext>,
    url: String,
    /// The newest that is known.
    token: Secret,
    /// One moment by both clocks.
    clock: (Instant, Duration),
    phase: Phase,
    way: Way,
    /// The last way back, for as long as it may turn out to have led nowhere.
    back: Option<Away>,
    /// How often a description of the server could not be used once the room was entered.
    misunderstood: u32,
    joined: bool,
    lost: bool,
    company: Company,
    /// Whether a caller has ever been there.
    met: bool,
    /// Since when there is no caller, or since when the room was entered.
    alone: Option<Instant>,
    ears: Ears,
    speaker: Speaker,
    outbox: Outbox,
    /// What callers wrote before the bot was told that it has joined.
    early: EarlyWords,
    /// Texts of the bot that are too long for the server.
    refused_texts: u64,
    events: VecDeque<Event>,
    commands: VecDeque<Command>,
    /// The bot has no more speech, as its last answer showed.
    source_dry: bool,
    /// The bot's turn is on, or was until a moment ago.
    speaking: bool,
}

impl RoomSession {
    pub fn new(setup: Setup, now: Instant) -> Self {
        let speaker = Speaker::new(Codec::Opus, false, setup.common.voice);
        RoomSession {
            common: setup.common,
            url: setup.url,
            token: setup.token,
            clock: (now, setup.unix),
            phase: Phase::Waiting,
            way: Way::None,
            back: None,
            misunderstood: 0,
            joined: false,
            lost: false,
            company: Company::default(),
            met: false,
            alone: None,
            ears: Ears::new(),
            speaker,
            outbox: Outbox::new(false),
            early: EarlyWords::default(),
            refused_texts: 0,
            events: VecDeque::new(),
            commands: VecDeque::new(),
            source_dry: true,
            speaking: false,
        }
    }

    /// Takes one binary message of the server.
    pub fn handle_binary(&mut self, bytes: Bytes, now: Instant) {
        if let Way::Open(stay) = &mut self.way {
            stay.handle_binary(bytes, now);
        }
    }

    /// Takes a datagram that came to this connection's port.
    pub fn handle_packet(&mut self, target: Target, packet: &ReceivedPacket<'_>, now: Instant) {
        if let Way::Open(stay) = &mut self.way {
            stay.handle_packet(target, packet, now);
        }
    }

    /// Ends what nobody is left in, and stops waiting for those who do not come back.
    fn look_around(&mut self, now: Instant) {
        self.settle(now);
        if self.alone_until().is_some_and(|until| now >= until) {
            let reason = match self.met {
                true => LeaveReason::Left,
                false => LeaveReason::NeverConnected,
            };
            self.end(reason, now);
        }
    }

    /// Returns until when a room without callers is stayed in; `None` where there are any.
    fn alone_until(&self) -> Option<Instant> {
        let alone = self.alone?;
        if !self.met {
            return Some(alone + ROOM_NOBODY);
        }
        let regathered = self.regather_until().filter(|_| self.company.is_waiting_for_callers());
        regathered.into_iter().chain([alone + ROOM_EMPTY]).max()
    }

    /// Returns until when those who were there before the connection was lost may come back as
    /// well.
    fn regather_until(&self) -> Option<Instant> {
        match self.phase {
            Phase::Live { since } if self.company.is_waiting() => Some(since + ROOM_REGATHER),
            _ => None,
        }
    }

    /// Tells the bot of those who have not come back.
    fn settle(&mut self, now: Instant) {
        if self.regather_until().is_some_and(|until| now >= until) {
            self.company.give_up(&mut self.events);
        }
    }

    /// Lets the frames that are due leave.
    fn speak(&mut self, now: Instant) {
        if self.queue_frames(now) {
            let unix_ms = self.unix_ms(now);
            if let Way::Open(stay) = &mut self.way {
                stay.handle_timeout(now, unix_ms);
            }
        }
    }

    /// Hands the connection the frames that are due, and tells whether there were any.
    fn queue_frames(&mut self, now: Instant) -> bool {
        let mut any = false;
        if self.speaks()
            && let Way::Open(stay) = &mut self.way
        {
            while let Some(packet) = self.speaker.poll_packet(now) {
                stay.send_audio(&packet, now);
                any = true;
            }
        }
        any
    }

    fn speaks(&self) -> bool {
        matches!(self.phase, Phase::Live { .. } | Phase::Finishing { .. })
    }

    /// Takes what the stay has, if there is one.
    fn poll_stay(&mut self, now: Instant) -> Polled {
        let Way::Open(stay) = &mut self.way else {
            return Polled::Done(None);
        };
        match stay.poll_output(&self.common, now) {
            stay::Output::Timeout(at) => return Polled::Done(at),
            stay::Output::Transmit(target, transmit) => return Polled::Transmit(target, transmit),
            stay::Output::Send(bytes) => self.commands.push_back(Command::Send(bytes)),
            stay::Output::Listen(target, ufrag) => self.commands.push_back(Command::Listen(target, ufrag)),
            stay::Output::Audio { track, packet } => {
                if let Some(identity) = stay.owner(&track).filter(|_| self.joined) {
                    self.ears.handle_packet(&track, identity, &packet, now);
                }
            }
            stay::Output::TrackGone(track) => self.ears.handle_gone(&track),
            stay::Output::ChannelOpen => self.outbox.handle_open(now),
            stay::Output::Data(bytes) => self.take_data(&bytes),
            stay::Output::Up => self.up(now),
            stay::Output::Change(change) => {
                self.company.handle_change(change, &mut self.events);
                self.count_callers(now);
            }
            stay::Output::Token(token) => self.token = token,
            stay::Output::Over(why) => self.stay_over(&why, now),
        }
        Polled::More
    }

    /// Notes whether anybody is there to talk to, and tells the bot when that has changed.
    fn count_callers(&mut self, now: Instant) {
        if self.is_ending() {
            return;
        }
        let (callers, is_up) = match &self.way {
            Way::Open(stay) => (stay.callers(), stay.is_up()),
            _ => (0, false),
        };
        self.met |= callers > 0;
        if callers > 0 {
            self.alone = None;
        } else if is_up {
            self.alone.get_or_insert(now);
        }
        let here = callers > 0 && is_up;
        if here && !std::mem::replace(&mut self.joined, true) {
            let after = now.saturating_duration_since(self.clock.0).as_secs_f64();
            log::info!("connected after {after:.1} s");
            self.events.push_back(Event::Joined);
            self.events.extend(self.early.take());
        } else if here && std::mem::replace(&mut self.lost, false) {
            log::info!("a caller is heard again");
            self.events.push_back(Event::Resumed);
        } else if !here && self.joined && !std::mem::replace(&mut self.lost, true) {
            log::info!("no caller is heard");
            self.events.push_back(Event::Lost);
        }
    }

    /// Does what a stay that has nothing more to give lets the session do, and tells whether more
    /// output follows.
    fn go_on(&mut self, now: Instant) -> bool {
        if self.send_texts(now) {
            return true;
        }
        let (Way::Open(stay), Phase::Closing { .. }) = (&mut self.way, self.phase) else {
            return false;
        };
        if stay.wants_close() {
            self.commands.push_back(Command::CloseSocket);
        } else if stay.is_gone() {
            self.phase = Phase::Gone;
        } else {
            return false;
        }
        true
    }

    /// Tells whether what the bot says is taken from it. What is said while no caller is there
    /// waits with the bot; only the last words of one that has ended cannot.
    fn takes_speech(&self) -> bool {
        match self.phase {
            Phase::Live { .. } => self.joined && !self.lost,
            Phase::Finishing { .. } => true,
            _ => false,
        }
    }

    fn next_timeout(&self, stay: Option<Instant>, now: Instant) -> Deadline {
        let phase = match self.phase {
            Phase::Finishing { until, .. } | Phase::Closing { until } => Some(until),
            _ => self.regather_until(),
        };
        let alone = matches!(self.phase, Phase::Live { .. })
            .then(|| self.alone_until())
            .flatten();
        let pause = match self.way {
            Way::Pause(until) => Some(until),
            _ => None,
        };
        let speaker = self.speaks().then(|| self.speaker.poll_timeout()).flatten();
        // Nothing is due before the bot or the transport does something.
        Deadline::new(now + ROOM_NOBODY, "nothing")
            .or(stay, "connection")
            .or(phase, "phase")
            .or(alone, "no caller")
            .or(pause, "next try")
            .or(speaker, "speech out")
            .or(self.ears.poll_timeout(), "speech in")
    }

    fn unix_ms(&self, now: Instant) -> u64 {
        let (then, unix) = self.clock;
        (unix + now.saturating_duration_since(then)).as_millis() as u64
    }

    #[cfg(test)]
    fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live { .. })
    }
}

impl Session for RoomSession {
    type Command = Command;

    fn name(&self) -> String {
        Transport::Mediaroom.name().to_owned()
    }

    /// The first call is what enters the room.
    fn set_audio(&mut self, in_rate_hz: u32, out_rate_hz: u32, mixed: bool, now: Instant) {
        self.ears.set(in_rate_hz, mixed, now);
        self.speaker.set_rate(out_rate_hz, now);
        if self.phase == Phase::Waiting {
            self.enter(now);
        }
    }

    fn speech_room(&self) -> Option<usize> {
        self.takes_speech().then(|| self.speaker.room())
    }

    fn handle_speech(&mut self, pcm: &[i16], now: Instant) {
        if self.takes_speech() {
            self.source_dry = pcm.is_empty();
            self.speaker.handle_audio(pcm, now);
            self.speak(now);
        }
    }

    fn handle_interruption(&mut self, now: Instant) {
        self.speaker.handle_interruption(now);
        self.speak(now);
    }

    fn handle_message(&mut self, text: String) {
        self.push_text(text);
    }

    fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant) {
        self.finish(reason, now);
    }

    fn handle_end(&mut self, reason: LeaveReason, now: Instant) {
        if !self.is_ending() {
            self.end(reason, now);
        }
    }

    fn handle_eviction(&mut self, now: Instant) {
        log::debug!("evicted: a newcomer has the place");
        self.handle_end(LeaveReason::NeverConnected, now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        match self.phase {
            Phase::Finishing { until, reason } => {
                let said = self.source_dry && self.speaker.is_silent() && !self.speaking;
                if now >= until || said {
                    self.end(reason, now);
                }
            }
            Phase::Closing { until } if now >= until => self.phase = Phase::Gone,
            Phase::Live { .. } => self.look_around(now),
            _ => {}
        }
        if let Way::Pause(until) = self.way
            && now >= until
        {
            self.dial();
        }
        self.ears.handle_timeout(now);
        self.queue_frames(now);
        let unix_ms = self.unix_ms(now);
        if let Way::Open(stay) = &mut self.way {
            stay.handle_timeout(now, unix_ms);
        }
    }

    fn poll_output(&mut self, now: Instant) -> Output<'_, Command> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Output::Event(event);
            }
            if let Some(command) = self.commands.pop_front() {
                return Output::Command(command);
            }
            if self.phase == Phase::Gone {
                return Output::Gone;
            }
            // A frame is borrowed, so handing it out is the last thing that this function does.
            if self.ears.poll_frame() {
                return Output::Audio(self.ears.take_frame());
            }
            let at = match self.poll_stay(now) {
                Polled::More => continue,
                Polled::Transmit(target, transmit) => return Output::Command(Command::Transmit(target, transmit)),
                Polled::Done(at) => at,
            };
            if let Some(turn) = self.speaker.poll_turn() {
                self.speaking = turn == Turn::Started;
                if !self.is_ending() {
                    self.events.push_back(match turn {
                        Turn::Started => Event::SpeechStarted,
                        Turn::Stopped => Event::SpeechStopped,
                    });
                }
                continue;
            }
            if !self.go_on(now) {
                return Output::Timeout(self.next_timeout(at, now));
            }
        }
    }

    fn has_caller(&self) -> bool {
        self.company.had_any()
    }

    fn count(&self, counts: &mut Counts) {
        self.ears.tally().count(counts);
        self.speaker.counters().count(counts);
        counts.set(Count::MessagesDropped, self.outbox.dropped() + self.refused_texts);
    }

    fn summary(&self, counts: &Counts) -> String {
        self.ears.tally().summary(counts)
    }
}

/// What became of asking the stay.
enum Polled {
    More,
    Transmit(Target, Transmit),
    Done(Option<Instant>),
}

/// The host candidates of the two connections, each with the port of the connection's own socket.
#[derive(Clone, Debug, Default)]
pub struct Local {
    pub publisher: Vec<SocketAddr>,
    pub subscriber: Vec<SocketAddr>,
}

#[cfg(test)]
mod tests;
