//! A str0m client and a [`WebRtcSession`] in virtual time, joined by a link with delay and loss.
//!
//! [`Pair::run`] does what `io::session` does: it passes datagrams, deadlines and the bot's audio
//! to the session, drains it after each, and records the outputs. Nothing sleeps, and no socket is
//! opened. Losses are seeded, so failures are reproducible.

use crate::allocations;
use crate::webrtc::candidate::DeviceAddress;
use crate::webrtc::connection::ConnectionSetup;
use crate::webrtc::connection::ReceivedPacket;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::super::*;
use super::link::Link;
pub use crate::audio::tone::{Tone, share};
use crate::session::CallerFrame;
use crate::testing::client::TestClient;
use crate::webrtc::connection::{ConnectionContext, IceSecret};

pub const RUNNER: &str = "192.0.2.1:7860";

/// The context that all sessions of these tests share.
pub static COMMON: LazyLock<ConnectionContext> = LazyLock::new(ConnectionContext::default);

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Reproducible random numbers (xorshift64*).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A datagram in transit.
struct Flight {
    to_session: bool,
    source: SocketAddr,
    destination: SocketAddr,
    contents: Vec<u8>,
}

/// The bot: its observations and its audio.
pub struct Bot {
    pub events: Vec<(Duration, SessionEvent)>,
    /// All received audio, at [`Bot::rate_hz`].
    pub pcm: Vec<i16>,
    pub frames: u64,
    /// When each frame arrived.
    pub received_at: Vec<Duration>,
    pub rate_hz: u32,
    /// The audio to send.
    pub speech: VecDeque<i16>,
    pub endless: Option<Tone>,
    /// The bot echoes what it hears.
    pub echoes: bool,
}

/// Replaces a datagram by others, or drops it.
pub type Rewrite = Box<dyn FnMut(Vec<u8>) -> Vec<Vec<u8>>>;

/// The allocations of one input.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// The datagram's first byte; `None` for a deadline.
    pub datagram: Option<u8>,
    pub allocations: u64,
    /// Sent packets.
    pub sent: u32,
    /// Frames that the bot received.
    pub frames: u32,
}

/// A call.
pub struct Pair {
    pub start: Instant,
    pub now: Instant,
    pub session: WebRtcSession,
    pub client: TestClient,
    pub bot: Bot,
    pub up: Link,
    pub down: Link,
    /// Returns whether the network carries a datagram; the first argument is true towards the
    /// session.
    pub pass: fn(bool, &[u8]) -> bool,
    /// The address that a NAT gives the client now; what is sent to another one is lost.
    pub public: Option<SocketAddr>,
    /// Changes datagrams of the client before the network.
    pub rewrite: Option<Rewrite>,
    pub gone: Option<Duration>,
    /// Every datagram that the session sent, including lost ones.
    pub sent: Vec<(Duration, Vec<u8>)>,
    pub keep_sent: bool,
    /// Every datagram that the client sent.
    pub launched: Vec<Vec<u8>>,
    pub keep_launched: bool,
    /// The allocations of each input, including its outputs.
    pub costs: Vec<Cost>,
    pub keep_costs: bool,
    /// Every destination, with the time and the first byte of the datagram.
    pub destinations: Vec<(Duration, SocketAddr, u8)>,
    /// How many connectivity checks the session answered.
    pub answers: usize,
    /// When the client's addresses were validated.
    pub proven: Vec<(Duration, SocketAddr)>,
    /// The progress of a call.
    pub progress: Vec<CallProgress>,
    wake: Instant,
    flights: BTreeMap<(Instant, u64), Flight>,
    flown: u64,
    pub rng: Rng,
    /// Consecutive turns at the same time; a session with expired deadlines would spin.
    idle_turns: u32,
}

pub fn setup(embedded: Option<std::net::Ipv4Addr>, local: &[SocketAddr]) -> ConnectionSetup<'_> {
    let first = local.iter().find_map(|local| match local.ip() {
        std::net::IpAddr::V4(address) => Some(address),
        std::net::IpAddr::V6(_) => None,
    });
    ConnectionSetup {
        context: &COMMON,
        local,
        tcp: &[],
        gathered: &crate::webrtc::gather::NOTHING,
        embedded,
        device: embedded.or(first).map(|address| DeviceAddress {
            address,
            is_guess: false,
        }),
        seed: 0x1234_5678_9abc_def0,
        secret: fresh_secret(),
    }
}

/// Returns a new secret per connection.
fn fresh_secret() -> IceSecret {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let mut secret = [7; 32];
    secret[..8].copy_from_slice(&MADE.fetch_add(1, Relaxed).to_be_bytes());
    IceSecret(secret)
}

pub fn runner() -> SocketAddr {
    RUNNER.parse().expect("an address")
}

/// Adds to the newest cost.
fn add(costs: &mut [Cost], allocations: u64, sent: u32, frames: u32) {
    if let Some(cost) = costs.last_mut() {
        cost.allocations += allocations;
        cost.sent += sent;
        cost.frames += frames;
    }
}

impl Pair {
    /// Joins a client with audio and a `chat` channel to a session.
    pub fn new() -> Self {
        Pair::with(TestClient::new("192.0.2.9:5000"), |offer| offer)
    }

    pub fn with(client: TestClient, change: impl FnOnce(String) -> String) -> Self {
        Pair::embedded(client, None, change)
    }

    pub fn embedded(
        mut client: TestClient,
        embedded: Option<std::net::Ipv4Addr>,
        change: impl FnOnce(String) -> String,
    ) -> Self {
        let start = client.start;
        let offer = change(client.offer());
        let (session, answer) =
            WebRtcSession::accept(&offer, &setup(embedded, &[runner()]), start).expect("an offer that can be answered");
        client.accept(&answer);
        Pair::joined(client, session)
    }

    /// Connects a client that offers no data channel, with audio in both directions. The bot has
    /// sent `text`, which waits for a channel.
    pub fn without_channel(text: &str) -> Self {
        let mut pair = Pair::with(TestClient::new("192.0.2.9:5000").labels(&[]), |offer| {
            assert!(!offer.contains("m=application"));
            offer
        });
        assert!(pair.run_until(secs(5), |pair| pair.client.connected));
        pair.open_audio(16_000, 16_000);
        pair.client.speak(440.0, pair.now);
        pair.send(text);
        pair
    }

    /// Joins a client and a session that exchanged descriptions.
    pub fn joined(client: TestClient, session: WebRtcSession) -> Self {
        let start = client.start;
        let link = Link::new(ms(5));
        Pair {
            start,
            now: start,
            session,
            client,
            bot: Bot {
                events: Vec::new(),
                pcm: Vec::new(),
                frames: 0,
                received_at: Vec::new(),
                rate_hz: 0,
                speech: VecDeque::new(),
                endless: None,
                echoes: false,
            },
            up: link,
            down: link,
            pass: |_, _| true,
            public: None,
            rewrite: None,
            gone: None,
            sent: Vec::new(),
            keep_sent: false,
            launched: Vec::new(),
            keep_launched: false,
            costs: Vec::new(),
            keep_costs: false,
            destinations: Vec::new(),
            answers: 0,
            proven: Vec::new(),
            progress: Vec::new(),
            wake: start,
            flights: BTreeMap::new(),
            flown: 0,
            rng: Rng(7),
            idle_turns: 0,
        }
    }

    /// Runs until the bot has joined and the channel is open.
    pub fn connected() -> Self {
        let mut pair = Pair::new();
        pair.connect();
        pair
    }

    pub fn connect(&mut self) {
        let up = self.run_until(secs(10), |pair| {
            pair.client.connected && pair.client.open_channel().is_some()
        });
        assert!(up, "connected within 10 s: {:?}", self.bot.events);
        // The session learns it half a round trip later.
        self.run(ms(50));
    }

    /// Returns the time since the start of the call.
    pub fn time(&self) -> Duration {
        self.now - self.start
    }

    /// Advances the time.
    pub fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Runs until `done`, for at most `time`. Returns whether it is done.
    pub fn run_until(&mut self, time: Duration, done: impl Fn(&Pair) -> bool) -> bool {
        let end = self.now + time;
        self.flush();
        loop {
            if done(self) {
                return true;
            }
            let flight = self.flights.keys().next().map(|(at, _)| *at);
            let session = self.gone.is_none().then_some(self.wake);
            let next = [flight, session, Some(self.client.wake())]
                .into_iter()
                .flatten()
                .min()
                .expect("the client always has a time");
            if next > end {
                self.now = end;
                return false;
            }
            self.idle_turns = if next > self.now { 0 } else { self.idle_turns + 1 };
            assert!(self.idle_turns < 10_000, "the session spins: {:?}", self.session.phase);
            self.now = self.now.max(next);
            self.turn();
        }
    }

    /// Handles what is due: one datagram, or the deadlines of both ends.
    fn turn(&mut self) {
        if let Some(entry) = self.flights.first_entry()
            && entry.key().0 <= self.now
        {
            let flight = entry.remove();
            if flight.to_session {
                let packet = ReceivedPacket::from_datagram(flight.source, flight.destination, &flight.contents);
                self.begin_cost(flight.contents.first().copied());
                let ((), allocations) = allocations::of(|| self.session.handle_packet(&packet, self.now));
                self.add_cost(allocations, 0, 0);
            } else if self.public.is_none_or(|public| public == flight.destination) {
                let destination = match self.public {
                    Some(_) => self.client.address,
                    None => flight.destination,
                };
                self.client
                    .handle_datagram(flight.source, destination, &flight.contents, self.now);
            }
        } else {
            if self.client.wake() <= self.now {
                self.client.handle_timeout(self.now);
            }
            if self.gone.is_none() && self.wake <= self.now {
                self.begin_cost(None);
                let ((), allocations) = allocations::of(|| self.session.handle_timeout(self.now));
                self.add_cost(allocations, 0, 0);
                self.drain();
                self.pull_speech();
            }
        }
        self.flush();
        if self.bot.echoes && !self.bot.speech.is_empty() {
            self.pull_speech();
            self.flush();
        }
    }

    /// Sets the bot's rates, as opening its media does.
    pub fn open_audio(&mut self, in_rate_hz: u32, out_rate_hz: u32) {
        self.session.set_audio(in_rate_hz, out_rate_hz, true, self.now);
        self.flush();
    }

    pub fn say(&mut self, pcm: &[i16]) {
        self.bot.speech.extend(pcm);
        self.pull_speech();
        self.flush();
    }

    pub fn send(&mut self, text: &str) {
        self.session.handle_message(text.to_owned());
        self.flush();
    }

    pub fn interrupt(&mut self) {
        self.bot.speech.clear();
        self.bot.endless = None;
        self.session.handle_interruption(self.now);
        self.flush();
    }

    pub fn bot_ends(&mut self) {
        self.session.handle_bot_end(LeaveReason::BotEnded, self.now);
        self.flush();
    }

    /// Replaces the client by one with this offer.
    pub fn restart(&mut self, client: TestClient, offer: &str) -> TestClient {
        let now = self.now;
        let answer = self.act(|session, _| session.restart(offer, &setup(None, &[runner()]), now));
        let old = std::mem::replace(&mut self.client, client);
        self.client.accept(&answer.expect("an offer that can be answered"));
        self.flush();
        old
    }

    /// Acts on the session, then drains it.
    pub fn act<T>(&mut self, act: impl FnOnce(&mut WebRtcSession, Instant) -> T) -> T {
        let done = act(&mut self.session, self.now);
        self.flush();
        done
    }

    fn pull_speech(&mut self) {
        let (session, now) = (&mut self.session, self.now);
        let Bot { speech, endless, .. } = &mut self.bot;
        let room = session.bot_audio_capacity().unwrap_or_default();
        if let Some(tone) = endless {
            speech.extend(tone.take(room.saturating_sub(speech.len())));
        }
        let take = speech.len().min(room);
        let pcm: Vec<i16> = speech.drain(..take).collect();
        let ((), allocations) = allocations::of(|| session.handle_bot_audio(&pcm, now));
        add(&mut self.costs, allocations, 0, 0);
    }

    /// Drains both ends.
    pub fn flush(&mut self) {
        self.drain();
        for (destination, contents) in self.client.drain(self.now) {
            let source = self.public.unwrap_or(self.client.address);
            if self.keep_launched {
                self.launched.push(contents.clone());
            }
            let datagrams = match &mut self.rewrite {
                Some(rewrite) => rewrite(contents),
                None => vec![contents],
            };
            for contents in datagrams {
                self.launch(true, source, destination, contents);
            }
        }
    }

    fn begin_cost(&mut self, datagram: Option<u8>) {
        if self.keep_costs {
            self.costs.push(Cost {
                datagram,
                allocations: 0,
                sent: 0,
                frames: 0,
            });
        }
    }

    fn add_cost(&mut self, allocations: u64, sent: u32, frames: u32) {
        add(&mut self.costs, allocations, sent, frames);
    }

    fn drain(&mut self) {
        let at = self.time();
        for _ in 0..10_000 {
            let (session, now) = (&mut self.session, self.now);
            let (output, allocations) = allocations::of(move || session.poll_output(now));
            let sent = u32::from(matches!(output, SessionOutput::Command(WebRtcCommand::Transmit(_))));
            let frames = u32::from(matches!(output, SessionOutput::Audio(..)));
            add(&mut self.costs, allocations, sent, frames);
            match output {
                SessionOutput::Timeout(deadline) => {
                    self.wake = deadline.at;
                    return;
                }
                SessionOutput::Closed => {
                    self.gone.get_or_insert(at);
                    return;
                }
                SessionOutput::Command(WebRtcCommand::Transmit(mut transmit)) => {
                    let (source, destination) = (transmit.source, transmit.destination);
                    self.answers += usize::from(transmit.is_answer());
                    let contents = transmit.contents().to_vec();
                    self.destinations.push((at, destination, contents[0]));
                    if self.keep_sent {
                        self.sent.push((at, contents.clone()));
                    }
                    self.launch(false, source, destination, contents);
                }
                SessionOutput::Command(WebRtcCommand::PathValidated(proven)) => self.proven.push((at, proven.peer)),
                SessionOutput::Command(WebRtcCommand::ProbeOutcome(_) | WebRtcCommand::Announce(_))
                | SessionOutput::BotAudioWanted => {}
                SessionOutput::Command(WebRtcCommand::Progress(progress)) => self.progress.push(progress),
                SessionOutput::Audio(CallerFrame { pcm, rate_hz, .. }) => {
                    self.bot.frames += 1;
                    self.bot.rate_hz = rate_hz;
                    self.bot.received_at.push(at);
                    self.bot.pcm.extend_from_slice(pcm);
                    if self.bot.echoes {
                        self.bot.speech.extend(pcm);
                    }
                }
                SessionOutput::Event(event) => self.bot.events.push((at, event)),
            }
        }
        panic!("the session's output has no end");
    }

    fn launch(&mut self, to_session: bool, source: SocketAddr, destination: SocketAddr, contents: Vec<u8>) {
        if !(self.pass)(to_session, &contents) {
            return;
        }
        let link = if to_session { &mut self.up } else { &mut self.down };
        for delay in link.launch(&contents, &mut self.rng).into_iter().flatten() {
            self.flown += 1;
            self.flights.insert(
                (self.now + delay, self.flown),
                Flight {
                    to_session,
                    source,
                    destination,
                    contents: contents.clone(),
                },
            );
        }
    }

    /// Returns when the bot received the event.
    pub fn times(&self, wanted: &SessionEvent) -> Vec<Duration> {
        let seen = self.bot.events.iter().filter(|(_, event)| event == wanted);
        seen.map(|(at, _)| *at).collect()
    }

    pub fn saw(&self, wanted: &SessionEvent) -> bool {
        !self.times(wanted).is_empty()
    }

    /// Returns the reason that the bot was given, and when.
    pub fn left(&self) -> Option<(LeaveReason, Duration)> {
        let mut reasons = self.bot.events.iter().filter_map(|(at, event)| match event {
            SessionEvent::Left(reason) => Some((*reason, *at)),
            _ => None,
        });
        let reason = reasons.next();
        assert_eq!(reasons.next(), None, "a session ends once");
        reason
    }

    /// Returns the texts that the bot received.
    pub fn texts(&self) -> Vec<&str> {
        let texts = self.bot.events.iter().filter_map(|(_, event)| match event {
            SessionEvent::Message(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}
