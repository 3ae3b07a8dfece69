//! The strict device and a session in virtual time, joined by a network with loss.
//!
//! In: the device's options, and a network: its delay, and which datagrams it carries. Out: the
//! device's report, and the bot's observations. Nothing sleeps, and no socket is opened; losses are
//! seeded, so failures are reproducible. This file plays the part of `io`: datagrams, deadlines and
//! a listening bot.

use std::collections::{BTreeMap, VecDeque};
use std::f64::consts::TAU;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use edge_runner_proto::event::{LeaveReason, SessionEvent};
use edge_runner_proto::session::{Session as _, SessionOutput};
use edge_runner_proto::webrtc::candidate::DeviceAddress;
use edge_runner_proto::webrtc::connection::{ConnectionContext, ConnectionSetup, IceSecret, ReceivedPacket};
use edge_runner_proto::webrtc::gather::GatheredAddresses;
use edge_runner_proto::webrtc::session::{WebRtcCommand, WebRtcSession};

use super::answer;
use super::offer::{self, Sender};
use super::peer::Peer;
use super::{Direction, Options, Report};

const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DEVICE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 57);
const DELAY: Duration = Duration::from_millis(5);
/// The interval of the device's loop; the real one is longer.
const TURN: Duration = Duration::from_millis(5);
const RATE_HZ: u32 = 16_000;
/// Above a codec's silence.
const LOUD: u16 = 500;

/// Reproducible random numbers (xorshift64*).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn percent(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % 100
    }
}

/// Returns whether the network carries a datagram, at this time after the answer.
pub type Carries = Box<dyn FnMut(Direction, Duration) -> bool>;

/// A call of one device.
pub struct Call {
    pub report: Report,
    /// The bot's events.
    pub events: Vec<(Duration, SessionEvent)>,
    /// When the handshake finished.
    pub connected: Option<Duration>,
    /// When the bot received frames.
    pub received: Vec<Duration>,
    /// When the bot received frames of speech.
    pub loud: Vec<Duration>,
    pub gone: bool,
    /// The bot's remaining audio.
    speech: VecDeque<i16>,
    session: WebRtcSession,
    peer: Peer,
    carries: Carries,
    start: Instant,
    now: Instant,
    wake: Instant,
    look: Instant,
    flights: BTreeMap<(Instant, u64), (Direction, Vec<u8>)>,
    flown: u64,
}

impl Call {
    /// Exchanges offer and answer.
    pub fn new(options: Options, carries: Carries) -> Self {
        let start = Instant::now();
        let (ufrag, pwd) = &options.credentials;
        let sender = Sender {
            ufrag,
            pwd,
            fingerprint: &options.identity.fingerprint,
            addr: device(),
        };
        let common = ConnectionContext::default();
        let gathered = GatheredAddresses::default();
        let local = [runner()];
        let setup = ConnectionSetup {
            context: &common,
            local: &local,
            tcp: &[],
            gathered: &gathered,
            embedded: Some(HOST),
            device: Some(DeviceAddress {
                address: HOST,
                is_guess: false,
            }),
            seed: 1,
            secret: IceSecret([9; 32]),
        };
        let offer = offer::sdp(&options.shape, &sender);
        let (mut session, answer) =
            WebRtcSession::accept(&offer, &setup, start).expect("an offer that can be answered");
        session.set_audio(RATE_HZ, RATE_HZ, true, start);
        let mut violations = Vec::new();
        let answer = answer::read_sdp(&answer, HOST.into(), &mut violations).expect("an answer");
        assert_eq!(violations, [""; 0]);
        Self {
            report: Report::default(),
            events: Vec::new(),
            connected: None,
            received: Vec::new(),
            loud: Vec::new(),
            speech: VecDeque::new(),
            gone: false,
            session,
            peer: Peer::new(answer, options, start),
            carries,
            start,
            now: start,
            wake: start,
            look: start,
            flights: BTreeMap::new(),
            flown: 0,
        }
    }

    /// Returns the time since the answer.
    pub fn time(&self) -> Duration {
        self.now - self.start
    }

    /// Sends a text of the bot.
    pub fn send(&mut self, text: &str) {
        self.session.handle_message(text.to_owned());
        self.drain();
    }

    /// Plays a tone of the bot.
    pub fn say(&mut self, hz: f64, time: Duration) {
        let samples = time.as_millis() as u32 * RATE_HZ / 1_000;
        let tone = |nth: u32| 8_000.0 * (TAU * hz * f64::from(nth) / f64::from(RATE_HZ)).sin();
        self.speech.extend((0..samples).map(|nth| tone(nth) as i16));
        self.pull_speech();
        self.drain();
    }

    fn pull_speech(&mut self) {
        let samples = self
            .session
            .bot_audio_capacity()
            .unwrap_or_default()
            .min(self.speech.len());
        let pcm: Vec<i16> = self.speech.drain(..samples).collect();
        self.session.handle_bot_audio(&pcm, self.now);
    }

    /// Returns the texts that the bot received, with times.
    pub fn texts(&self) -> impl Iterator<Item = (Duration, &str)> {
        self.events.iter().filter_map(|(at, event)| match event {
            SessionEvent::Message(text) => Some((*at, text.as_str())),
            _ => None,
        })
    }

    pub fn left(&self) -> Option<(Duration, LeaveReason)> {
        self.events.iter().find_map(|(at, event)| match event {
            SessionEvent::Left(reason) => Some((*at, *reason)),
            _ => None,
        })
    }

    /// Advances the time.
    pub fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Runs until `done`, for at most `time`. Returns whether it is done.
    pub fn run_until(&mut self, time: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + time;
        self.drain();
        loop {
            if done(self) {
                return true;
            }
            let flight = self.flights.keys().next().map(|(at, _)| *at);
            let session = (!self.gone).then_some(self.wake);
            let next = [flight, session, Some(self.look)].into_iter().flatten().min();
            let next = next.expect("the device always looks again");
            if next > end {
                self.now = end;
                return false;
            }
            self.now = self.now.max(next);
            self.turn();
        }
    }

    fn turn(&mut self) {
        if let Some(entry) = self.flights.first_entry()
            && entry.key().0 <= self.now
        {
            match entry.remove() {
                (Direction::ToRunner, contents) => {
                    let packet = ReceivedPacket::from_datagram(device(), runner(), &contents);
                    self.session.handle_packet(&packet, self.now);
                }
                (Direction::ToDevice, contents) => {
                    self.peer
                        .handle_datagram(&contents, runner(), self.now, &mut self.report);
                }
            }
        }
        if self.look <= self.now {
            self.look = self.now + TURN;
            self.peer.handle_timeout(self.now, &mut self.report);
        }
        if self.report.connected {
            let at = self.time();
            self.connected.get_or_insert(at);
        }
        if !self.gone && self.wake <= self.now {
            self.session.handle_timeout(self.now);
            self.drain();
            self.pull_speech();
        }
        self.drain();
        for (_, contents) in std::mem::take(&mut self.peer.outgoing) {
            self.launch(Direction::ToRunner, contents);
        }
    }

    fn drain(&mut self) {
        let at = self.time();
        while !self.gone {
            match self.session.poll_output(self.now) {
                SessionOutput::Timeout(deadline) => {
                    self.wake = deadline.at;
                    return;
                }
                SessionOutput::Closed => self.gone = true,
                SessionOutput::Command(WebRtcCommand::Transmit(mut transmit)) => {
                    let contents = transmit.contents().to_vec();
                    self.launch(Direction::ToDevice, contents);
                }
                SessionOutput::Audio(frame) => {
                    self.received.push(at);
                    if frame.pcm.iter().any(|sample| sample.unsigned_abs() > LOUD) {
                        self.loud.push(at);
                    }
                }
                SessionOutput::Event(event) => self.events.push((at, event)),
                SessionOutput::Command(_) | SessionOutput::BotAudioWanted => {}
            }
        }
    }

    fn launch(&mut self, direction: Direction, contents: Vec<u8>) {
        let at = self.time();
        if (self.carries)(direction, at) {
            self.flown += 1;
            self.flights
                .insert((self.now + DELAY, self.flown), (direction, contents));
        }
    }
}

fn runner() -> SocketAddr {
    (HOST, 7860).into()
}

fn device() -> SocketAddr {
    (DEVICE, 49_152).into()
}
