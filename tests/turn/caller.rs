//! [`Caller`]: a WebRTC client with Opus that connects directly or through relays alone.
//!
//! In: the runner's HTTP address and the path. Out: the answer, and packet counts per path. It is
//! str0m on one UDP socket on loopback, driven by the test's thread, and waits for conditions.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use edge_runner_proto::webrtc::crypto;
use serde_json::json;
use str0m::change::SdpAnswer;
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{ExtensionMap, RtpWrite};
use str0m::{Candidate, Event, Input, Output, Rtc};

use crate::support::http;
use crate::support::runner::PATIENCE;

/// How a caller may reach the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IceTransportPolicy {
    All,
    /// Every datagram except to and from the answer's relays is lost.
    Relay,
}

pub struct Caller {
    rtc: Rtc,
    socket: UdpSocket,
    mid: Mid,
    answer: String,
    policy: IceTransportPolicy,
    relays: Vec<SocketAddr>,
    connected: bool,
    closed: bool,
    received: usize,
    relayed: usize,
    sent: u32,
}

impl Caller {
    /// Sends an offer, and accepts the answer.
    pub fn offer(runner: SocketAddr, policy: IceTransportPolicy) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let local = socket.local_addr().expect("a bound socket has an address");
        let mut rtc = Rtc::builder()
            .set_crypto_provider(Arc::new(crypto::provider()))
            .set_dtls_cert(crypto::certificate().expect("a certificate").clone())
            .set_rtp_mode(true)
            .clear_codecs()
            .enable_opus(true, false)
            .set_extension_map(ExtensionMap::empty())
            .build(Instant::now());
        rtc.add_local_candidate(Candidate::host(local, Protocol::Udp).expect("a candidate"));
        let mut change = rtc.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        change.add_channel("chat".to_owned());
        let (offer, pending) = change.apply().expect("something to offer");
        let body = json!({"sdp": offer.to_sdp_string(), "type": "offer"}).to_string();
        let headers = ["Content-Type: application/json"];
        let reply = http::request(runner, "POST", "/api/offer", &headers, body.as_bytes()).expect("an answer");
        let answer = reply.json()["sdp"]
            .as_str()
            .unwrap_or_else(|| panic!("{}", reply.text()))
            .to_owned();
        let relays = answer
            .lines()
            .filter(|line| line.contains(" typ relay"))
            .map(address)
            .collect();
        let usable = |line: &&str| {
            policy == IceTransportPolicy::All || !line.starts_with("a=candidate:") || line.contains(" typ relay")
        };
        let usable: String = answer.lines().filter(usable).flat_map(|line| [line, "\r\n"]).collect();
        let usable = SdpAnswer::from_sdp_string(&usable).expect("an answer that can be read");
        rtc.sdp_api()
            .accept_answer(pending, usable)
            .expect("an answer that fits");
        Caller {
            rtc,
            socket,
            mid,
            answer,
            policy,
            relays,
            connected: false,
            closed: false,
            received: 0,
            relayed: 0,
            sent: 0,
        }
    }

    pub fn answer(&self) -> &str {
        &self.answer
    }

    /// Returns how many audio packets came through a relay.
    pub fn relayed(&self) -> usize {
        self.relayed
    }

    /// Runs until this many more audio packets arrived.
    pub fn talk(&mut self, packets: usize) {
        let (began, wanted) = (Instant::now(), self.received + packets);
        let mut next = began;
        while self.received < wanted {
            let (received, connected, relays) = (self.received, self.connected, &self.relays);
            assert!(
                began.elapsed() < PATIENCE,
                "{received} packets came back, connected {connected}, relays {relays:?}, way {:?}",
                self.policy
            );
            let now = Instant::now();
            if self.connected && now >= next {
                self.say(now);
                next = now + Duration::from_millis(20);
            }
            self.turn(next);
        }
    }

    /// Waits until the runner closes.
    pub fn wait_for_end(&mut self) {
        let began = Instant::now();
        while self.rtc.is_alive() && !self.closed {
            assert!(began.elapsed() < PATIENCE, "the call did not end");
            self.turn(Instant::now() + Duration::from_millis(20));
        }
    }

    /// Closes the connection.
    pub fn leave(mut self) {
        self.rtc.close().expect("a connection that can close");
        self.drain();
        let began = Instant::now();
        while self.rtc.is_alive() && began.elapsed() < Duration::from_secs(1) {
            self.turn(Instant::now() + Duration::from_millis(20));
        }
    }

    /// Sends 20 ms of Opus silence, which the bot echoes.
    fn say(&mut self, now: Instant) {
        let pt = self
            .rtc
            .media(self.mid)
            .and_then(|media| media.remote_pts().first().copied());
        let pt = pt.expect("Opus was negotiated");
        self.sent += 1;
        let write = RtpWrite::new(
            pt,
            u64::from(self.sent).into(),
            self.sent * 960,
            now,
            &[0xf8, 0xff, 0xfe][..],
        );
        let mut api = self.rtc.direct_api();
        api.stream_tx_by_mid(self.mid, None)
            .expect("audio was negotiated")
            .write_rtp(write);
        self.rtc.handle_input(Input::Timeout(now)).expect("time goes on");
    }

    /// Waits for a datagram, the connection's deadline, or `until`.
    fn turn(&mut self, until: Instant) {
        let wake = self.drain().min(until);
        let wait = wake
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        self.socket.set_read_timeout(Some(wait)).expect("a time");
        let mut datagram = [0; 2048];
        let now = match self.socket.recv_from(&mut datagram) {
            Ok((length, source)) if self.policy == IceTransportPolicy::All || self.relays.contains(&source) => {
                let local = self.socket.local_addr().expect("a bound socket has an address");
                let now = Instant::now();
                // RFC 7983 and RFC 5761: RTP, not RTCP.
                if (128..192).contains(&datagram[0])
                    && !(192..224).contains(&datagram[1])
                    && self.relays.contains(&source)
                {
                    self.relayed += 1;
                }
                if let Ok(receive) = Receive::new(Protocol::Udp, source, local, &datagram[..length]) {
                    let _ = self.rtc.handle_input(Input::Receive(now, receive));
                }
                now
            }
            _ => Instant::now(),
        };
        let _ = self.rtc.handle_input(Input::Timeout(now));
        self.drain();
    }

    fn drain(&mut self) -> Instant {
        loop {
            match self.rtc.poll_output().expect("the connection lives") {
                Output::Timeout(at) => return at,
                Output::Transmit(transmit) => {
                    if self.policy == IceTransportPolicy::All || self.relays.contains(&transmit.destination) {
                        let _ = self.socket.send_to(&transmit.contents, transmit.destination);
                    }
                }
                Output::Event(Event::Connected) => self.connected = true,
                Output::Event(Event::RtpPacket(_)) => self.received += 1,
                Output::Event(Event::ChannelClose(_) | Event::Closed) => self.closed = true,
                Output::Event(_) => {}
            }
        }
    }
}

/// Returns the address of a candidate line, RFC 8839 section 5.1.
fn address(line: &str) -> SocketAddr {
    let mut words = line.split_whitespace().skip(4);
    let ip = words.next().and_then(|word| word.parse().ok()).expect("an address");
    let port = words.next().and_then(|word| word.parse().ok()).expect("a port");
    SocketAddr::new(ip, port)
}
