//! A microcontroller on the wire: the smallest WebRTC client in the field, implemented strictly.
//!
//! In: the address of a runner with `--embedded`, and [`Options`]. Out: a [`Report`] of everything
//! received and of every violated rule: what the real device would misread, lose, decode wrongly or
//! crash at. It has one UDP socket, is controlling in ICE with one candidate, the DTLS server, and
//! reads Opus from byte 12. Its DTLS, SRTP, SCTP and STUN are independent of the runner's. It runs
//! in a thread; tests wait for conditions. Source: `docs/spec/devices.md`.

pub mod answer;
pub mod certificate;
mod dtls;
pub mod offer;
mod peer;
mod sctp;
mod srtp;
mod stun;
pub mod timeless;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::answer::Answer;
use self::certificate::{CertificateForm, Identity};
use self::offer::{Sender, Shape};
use super::http::{self, Reply};
use super::runner::PATIENCE;
use super::sound::Speech;

/// The properties of a device.
#[derive(Clone)]
pub struct Options {
    pub shape: Shape,
    pub identity: Identity,
    /// ICE credentials; not unique in the field, since they depend on the boot time.
    pub credentials: (String, String),
    pub speech: Speech,
    /// The firmware mutes its microphone while it plays a sample outside -1..1.
    pub mutes_itself: bool,
    /// Closes this long after the last check; the device sends none.
    pub keep_alive: Option<Duration>,
    /// Messages sent once the association is up, [`SAYS_EVERY`] apart.
    pub says: Vec<String>,
    /// Packets of the channel's setup that the network loses, each once.
    pub loses: Vec<Lost>,
    /// The network loses the last packets of the handshake, which are repeated only on request.
    pub loses_finished: bool,
    /// The header extension of its RTP packets, from the profile on; empty: none.
    pub extension: Vec<u8>,
    /// Push-to-talk without a pressed button: no audio is sent.
    pub mute: bool,
    /// How long after its first answered check it ignores its socket, whose queue is short.
    pub busy: Duration,
    /// The runner may still send to its previous session; unauthenticated packets are dropped
    /// without a violation.
    pub rebooted: bool,
}

/// The interval between messages.
pub const SAYS_EVERY: Duration = Duration::from_millis(250);

/// The direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToRunner,
    ToDevice,
}

/// A packet of the channel's setup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Init,
    InitAck,
    CookieEcho,
    /// Also the garbage that replaces it.
    CookieAck,
    Open,
    OpenAck,
    /// An acknowledgement of data.
    Sack,
}

/// Loses the next such packet in this direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    pub direction: Direction,
    pub step: Step,
}

impl Options {
    pub fn new(speech: Speech) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let ufrag = format!("D{:03}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self {
            shape: Shape::FIRMWARE,
            identity: Identity::generate(CertificateForm::Valid),
            // The password begins with the fragment, as on the device.
            credentials: (ufrag.clone(), format!("{ufrag}Q0pT7LmZk2VdR8sYc1Hf")),
            speech,
            mutes_itself: true,
            keep_alive: None,
            says: Vec::new(),
            loses: Vec::new(),
            loses_finished: false,
            extension: Vec::new(),
            mute: false,
            busy: Duration::ZERO,
            rebooted: false,
        }
    }
}

/// A received audio packet.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// Since the end of the handshake.
    pub at: Duration,
    pub sequence: u16,
    pub timestamp: u32,
}

/// What the device received, and the violations.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Violated rules with their counts.
    pub violations: BTreeMap<String, u32>,
    /// The handshake is finished, and audio flows.
    pub connected: bool,
    pub channel_open: bool,
    /// The runner said goodbye, which the device ignores.
    pub goodbye: bool,
    /// Why the device gave up or closed.
    pub closed: Option<String>,
    pub audio: Vec<Packet>,
    /// The loudspeaker's signal at 16 kHz.
    pub pcm: Vec<i16>,
    pub decode_errors: usize,
    pub messages: Vec<(Duration, String)>,
    pub binding_requests: Vec<Duration>,
    pub rtcp: Vec<Duration>,
    /// Everything received since the handshake, audio included.
    pub datagrams: Vec<Duration>,
    pub sent_packets: usize,
}

impl Report {
    fn violate(&mut self, rule: impl Into<String>) {
        *self.violations.entry(rule.into()).or_default() += 1;
    }

    /// Fails the test if any rule was violated.
    pub fn assert_clean(&self) {
        assert!(
            self.violations.is_empty(),
            "violated rules of the device: {:#?}",
            self.violations
        );
        assert_eq!(
            self.decode_errors,
            0,
            "frames that do not decode, of {}",
            self.audio.len()
        );
        assert_eq!(self.closed, None);
    }

    /// Returns how many frames at the end are exactly silent.
    pub fn silent_frames_at_end(&self) -> usize {
        let frames = self.pcm.chunks_exact(super::sound::FRAME).rev();
        frames.take_while(|frame| is_silent(frame)).count()
    }

    pub fn has_message(&self, kind: &str) -> bool {
        let wanted =
            |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok_and(|json| json["type"] == kind);
        self.messages.iter().any(|(_, text)| wanted(text))
    }
}

pub fn is_silent(pcm: &[i16]) -> bool {
    pcm.iter().all(|sample| (-1..=1).contains(sample))
}

/// The state shared by the device's thread and the test.
struct Shared {
    report: Mutex<Report>,
    changed: Condvar,
    stop: AtomicBool,
}

pub struct Device {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Stays open after the thread ended, since a dead device sends no port-unreachable.
    socket: Arc<UdpSocket>,
}

impl Device {
    /// Sends the offer, parses the answer, and starts connecting. A violation fails the test.
    pub fn join(runner: SocketAddr, options: Options) -> Self {
        Self::try_join(runner, options).expect("a place for the device")
    }

    /// The same.
    ///
    /// # Errors
    /// The body of the reply if the runner is full; the firmware restarts then.
    pub fn try_join(runner: SocketAddr, options: Options) -> Result<Self, String> {
        let socket = UdpSocket::bind((own_address(runner), 0)).expect("a free port");
        Self::boot(runner, options, Arc::new(socket))
    }

    /// Boots again at the same port, after its thread ended.
    ///
    /// # Errors
    /// As [`Device::try_join`].
    pub fn boot_again(&self, runner: SocketAddr, options: Options) -> Result<Self, String> {
        let rebooted = Options {
            rebooted: true,
            ..options
        };
        Self::boot(runner, rebooted, self.socket.clone())
    }

    fn boot(runner: SocketAddr, options: Options, socket: Arc<UdpSocket>) -> Result<Self, String> {
        let reply = post_offer(
            runner,
            &options,
            socket.local_addr().expect("a bound socket has an address"),
        );
        if reply.status == 503 {
            return Err(reply.text());
        }
        let (answer, violations) = read_answer(&reply, runner.ip(), &options.shape);
        assert!(
            violations.is_empty(),
            "violated rules of the device: {violations:#?}\n{}",
            reply.text()
        );
        let answer = answer.expect("no violation, so an answer");
        let shared = Arc::new(Shared {
            report: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let peer = peer::Peer::new(answer, options, Instant::now());
        let (ours, theirs) = (socket.clone(), shared.clone());
        let thread = thread::spawn(move || peer::run(peer, &ours, &theirs));
        Ok(Self {
            shared,
            thread: Some(thread),
            socket,
        })
    }

    /// Waits until `done`; fails the test on a timeout or a violation.
    pub fn wait(&self, what: &str, done: impl Fn(&Report) -> bool) -> Report {
        let report = self.shared.report.lock().expect("the device's thread does not panic");
        let goes_on = |report: &mut Report| !done(report) && report.closed.is_none() && report.violations.is_empty();
        let waited = self.shared.changed.wait_timeout_while(report, PATIENCE, goes_on);
        let report = waited.expect("the device's thread does not panic").0.clone();
        if !done(&report) {
            let Report {
                violations,
                connected,
                channel_open,
                closed,
                messages,
                ..
            } = &report;
            panic!(
                "waited in vain for {what}: {} packets, connected {connected}, channel {channel_open}, closed {closed:?}, \
                 messages {messages:?}, violations {violations:#?}",
                report.audio.len()
            );
        }
        report
    }

    /// Returns the report so far.
    pub fn report(&self) -> Report {
        let report = self.shared.report.lock();
        report.expect("the device's thread does not panic").clone()
    }

    /// Stops as if power was lost, and returns the report.
    pub fn vanish(&mut self) -> Report {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the device's thread does not panic");
        }
        self.report()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the address of this machine that the runner sees.
fn own_address(runner: SocketAddr) -> IpAddr {
    let asked = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        // Sends nothing; the system selects the interface.
        socket.connect(runner)?;
        socket.local_addr()
    });
    asked.expect("a way to the runner").ip()
}

/// Posts the offer as the firmware does.
pub fn post_offer(runner: SocketAddr, options: &Options, local: SocketAddr) -> Reply {
    post_offer_with(runner, options, local, &[])
}

/// The same with additional headers.
pub fn post_offer_with(runner: SocketAddr, options: &Options, local: SocketAddr, headers: &[&str]) -> Reply {
    let (ufrag, pwd) = &options.credentials;
    let sender = Sender {
        ufrag,
        pwd,
        fingerprint: &options.identity.fingerprint,
        addr: local,
    };
    let body = offer::body(&offer::sdp(&options.shape, &sender));
    let own = ["User-Agent: ESP32 HTTP Client/1.0", "Content-Type: application/json"];
    let headers = [&own[..], headers].concat();
    http::request(runner, "POST", "/api/offer", &headers, body.as_bytes()).expect("the runner answers an offer")
}

/// Sends an offer of this `shape` and parses the answer, without connecting.
pub fn offer_only(runner: SocketAddr, shape: Shape, host: IpAddr) -> (Option<Answer>, Vec<String>) {
    let options = Options {
        shape,
        ..Options::new(Speech::Silence)
    };
    let reply = post_offer(runner, &options, (Ipv4Addr::LOCALHOST, 49_152).into());
    read_answer(&reply, host, &options.shape)
}

/// Parses the answer. A device that is always the DTLS server must not be told to start the
/// handshake.
fn read_answer(reply: &Reply, host: IpAddr, shape: &Shape) -> (Option<Answer>, Vec<String>) {
    let (answer, mut violations) = answer::read(reply, host);
    let waits = !shape.is_esp_peer() && shape.setup != "active";
    if waits && answer.as_ref().is_some_and(|answer| !answer.is_active) {
        violations.push("answer: a=setup:passive".into());
    }
    (answer, violations)
}

/// A reflected 32-bit CRC, inverted before and after, bit by bit.
fn crc(bytes: &[u8], polynomial: u32) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_checksums_give_the_check_values_of_their_catalogue() {
        assert_eq!(super::crc(b"123456789", 0xedb8_8320), 0xcbf4_3926);
        assert_eq!(super::crc(b"123456789", 0x82f6_3b78), 0xe306_9283);
    }
}
