//! A microcontroller on the wire: the smallest WebRTC client in the field, played strictly.
//!
//! In: the address of a runner started with `--embedded`, [`Options`]. Out: a [`Report`] of all it received, and of every
//! violated rule: whatever the real device would misread, lose, decode wrongly or crash at. It has one UDP socket, is the
//! controlling ICE side that checks one candidate and asks nothing afterwards, the DTLS server, and reads Opus from byte
//! 12. Its DTLS, SRTP, SCTP and STUN are its own. It runs in a thread; tests wait for conditions, never for a time.

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

/// What one device is and does.
#[derive(Clone)]
pub struct Options {
    pub shape: Shape,
    pub identity: Identity,
    /// User fragment and password; not unique in the field, since they come from the time of boot.
    pub credentials: (String, String),
    pub speech: Speech,
    /// The voice firmware shuts its microphone while it plays a sample outside -1..1.
    pub mutes_itself: bool,
    /// Builds that close when no binding request came for this long; they never send one themselves.
    pub keep_alive: Option<Duration>,
    /// Messages sent once the association is up, [`SAYS_EVERY`] apart.
    pub says: Vec<String>,
    /// Packets of the channel's set-up that the network loses, each once.
    pub loses: Vec<Lost>,
    /// The network loses the last packets of its handshake, which it sends again only when asked.
    pub loses_finished: bool,
    /// Push to talk, and nobody pushes: no audio leaves.
    pub mute: bool,
    /// For so long after its first check was answered it does not look at its socket, whose mailbox keeps a few
    /// datagrams.
    pub busy: Duration,
    /// It had a life before, to which the runner may still speak: what does not authenticate is dropped, as always, and
    /// is no fault.
    pub rebooted: bool,
}

/// Between two messages of a device.
pub const SAYS_EVERY: Duration = Duration::from_millis(250);

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToRunner,
    ToDevice,
}

/// A packet of the channel's set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Init,
    InitAck,
    CookieEcho,
    /// The garbage that takes its place, too.
    CookieAck,
    Open,
    OpenAck,
    /// An acknowledgement of data.
    Sack,
}

/// The next such packet on that way is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    pub way: Way,
    pub step: Step,
}

impl Options {
    pub fn new(speech: Speech) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let ufrag = format!("D{:03}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self {
            shape: Shape::FIRMWARE,
            identity: Identity::generate(CertificateForm::Valid),
            // The password begins with the user fragment, as on the device.
            credentials: (ufrag.clone(), format!("{ufrag}Q0pT7LmZk2VdR8sYc1Hf")),
            speech,
            mutes_itself: true,
            keep_alive: None,
            says: Vec::new(),
            loses: Vec::new(),
            loses_finished: false,
            mute: false,
            busy: Duration::ZERO,
            rebooted: false,
        }
    }
}

/// One received audio packet.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// Since the handshake was done.
    pub at: Duration,
    pub sequence: u16,
    pub timestamp: u32,
}

/// What came, and what was wrong with it.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Violated rules, and how often.
    pub violations: BTreeMap<String, u32>,
    /// The handshake is done: audio flows from here on.
    pub connected: bool,
    pub channel_open: bool,
    /// The runner took its leave, which means nothing to the device.
    pub goodbye: bool,
    /// It gave up or was closed.
    pub closed: Option<String>,
    pub audio: Vec<Packet>,
    /// What the loudspeaker plays, at 16 kHz.
    pub pcm: Vec<i16>,
    pub decode_errors: usize,
    pub messages: Vec<(Duration, String)>,
    pub binding_requests: Vec<Duration>,
    pub rtcp: Vec<Duration>,
    /// Everything that came since the handshake was done, audio included.
    pub datagrams: Vec<Duration>,
    pub sent_packets: usize,
}

impl Report {
    fn violate(&mut self, rule: impl Into<String>) {
        *self.violations.entry(rule.into()).or_default() += 1;
    }

    /// Fails the test when any rule was violated.
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

    /// Frames at the end of what was played that are exactly silent to the device.
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

/// What the device's thread and the test share.
struct Shared {
    report: Mutex<Report>,
    changed: Condvar,
    stop: AtomicBool,
}

pub struct Device {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Stays open after the thread ended: from a device without power not even a port-unreachable comes back.
    socket: Arc<UdpSocket>,
}

impl Device {
    /// Sends the offer, reads the answer, and starts to connect. Any violation so far fails the test.
    pub fn join(runner: SocketAddr, options: Options) -> Self {
        Self::try_join(runner, options).expect("a place for the device")
    }

    /// The same.
    ///
    /// # Errors
    /// The body of the answer, when the runner has no place; the firmware starts anew then.
    pub fn try_join(runner: SocketAddr, options: Options) -> Result<Self, String> {
        let socket = UdpSocket::bind((own_address(runner), 0)).expect("a free port");
        Self::boot(runner, options, Arc::new(socket))
    }

    /// Boots again, after its thread ended, at the port that it had.
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

    /// Waits until `done` holds; fails the test when it never does, and at once when a rule is violated.
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

    /// Tells what it saw up to now.
    pub fn report(&self) -> Report {
        let report = self.shared.report.lock();
        report.expect("the device's thread does not panic").clone()
    }

    /// Goes silent as if it had lost its power, and tells what it saw until then.
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
        // Sends nothing; the system picks the interface.
        socket.connect(runner)?;
        socket.local_addr()
    });
    asked.expect("a way to the runner").ip()
}

/// Posts the offer as the firmware does.
pub fn post_offer(runner: SocketAddr, options: &Options, local: SocketAddr) -> Reply {
    post_offer_with(runner, options, local, &[])
}

/// The same with further headers.
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

/// Offers with `shape` and reads the answer by the device's rules, without connecting.
pub fn offer_only(runner: SocketAddr, shape: Shape, host: IpAddr) -> (Option<Answer>, Vec<String>) {
    let options = Options {
        shape,
        ..Options::new(Speech::Silence)
    };
    let reply = post_offer(runner, &options, (Ipv4Addr::LOCALHOST, 49_152).into());
    read_answer(&reply, host, &options.shape)
}

/// Reads the answer. A device that is the server of the handshake, whatever it is told, must not be told to begin it.
fn read_answer(reply: &Reply, host: IpAddr, shape: &Shape) -> (Option<Answer>, Vec<String>) {
    let (answer, mut violations) = answer::read(reply, host);
    let waits = !shape.is_esp_peer() && shape.setup != "active";
    if waits && answer.as_ref().is_some_and(|answer| !answer.is_active) {
        violations.push("answer: a=setup:passive".into());
    }
    (answer, violations)
}

/// A reflected CRC of 32 bits with all ones before and after, bit by bit.
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
