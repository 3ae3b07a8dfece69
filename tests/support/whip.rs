//! [`Poster`]: a client that opens its session with one POST, as WHIP, WHEP and realtime calls do.
//!
//! In: the direction of its audio, what it says, and further offers. Out: the answer with its
//! headers, packets and sound, texts of its data channel. It uses str0m on its own socket and sends
//! a packet every 20 ms, of silence if it says nothing.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use edge_runner_proto::audio::opus::{Decoder, Encoder, EncoderSettings};
use edge_runner_proto::limits::OPUS_PACKET_BYTES_MAX;
use edge_runner_proto::webrtc::crypto;
use str0m::change::{SdpAnswer, SdpOffer, SdpPendingOffer};
use str0m::channel::ChannelId;
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, Input, Output, Rtc};

use super::http::{Reply, request};
use super::runner::{PATIENCE, TestRunner};
use super::sound::{FRAME as SAMPLES, RATE_HZ, Speech};

/// 20 ms of silence in Opus, RFC 6716 section 3.1.
const SILENCE: [u8; 3] = [0xf8, 0xff, 0xfe];
const FRAME: Duration = Duration::from_millis(20);
const SDP: &str = "Content-Type: application/sdp";
const FRAGMENT: &str = "Content-Type: application/trickle-ice-sdpfrag";

/// What it offers.
#[derive(Clone, Copy)]
pub struct Offers {
    pub direction: Direction,
    pub video: bool,
    pub channel: Option<&'static str>,
}

impl Offers {
    pub const fn audio(direction: Direction) -> Self {
        Offers {
            direction,
            video: false,
            channel: None,
        }
    }
}

pub struct Poster {
    rtc: Rtc,
    socket: UdpSocket,
    here: SocketAddr,
    mid: Mid,
    sends: bool,
    sequence: u64,
    due: Instant,
    /// The offer that awaits its answer.
    offered: Option<SdpPendingOffer>,
    pub offer: String,
    pub answer: String,
    /// The path of its session.
    pub location: String,
    pub etag: String,
    pub connected: bool,
    pub gone: bool,
    pub sent: usize,
    pub received: usize,
    /// What it says; silence if it has no encoder.
    speech: Speech,
    encoder: Option<Encoder>,
    decoder: Decoder,
    /// The sound of all packets that it received, at [`RATE_HZ`].
    pub pcm: Vec<i16>,
    pub channel: Option<ChannelId>,
    pub texts: Vec<String>,
}

impl Poster {
    pub fn new(offers: Offers) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let here = socket.local_addr().expect("it is bound");
        let mut rtc = Rtc::builder()
            .set_crypto_provider(Arc::new(crypto::provider()))
            .set_dtls_cert(crypto::certificate().expect("a certificate").clone())
            .set_rtp_mode(true)
            .build(Instant::now());
        rtc.add_local_candidate(Candidate::host(here, Protocol::Udp).expect("an address"));
        let mut api = rtc.sdp_api();
        let mid = api.add_media(MediaKind::Audio, offers.direction, None, None, None);
        if offers.video {
            api.add_media(MediaKind::Video, Direction::SendOnly, None, None, None);
        }
        if let Some(label) = offers.channel {
            api.add_channel(label.to_owned());
        }
        let (offer, offered) = api.apply().expect("something is offered");
        Poster {
            rtc,
            socket,
            here,
            mid,
            sends: matches!(offers.direction, Direction::SendOnly | Direction::SendRecv),
            sequence: 0,
            due: Instant::now(),
            offered: Some(offered),
            offer: offer.to_sdp_string(),
            answer: String::new(),
            location: String::new(),
            etag: String::new(),
            connected: false,
            gone: false,
            sent: 0,
            received: 0,
            speech: Speech::Silence,
            encoder: None,
            decoder: Decoder::new(RATE_HZ).expect("a rate of Opus"),
            pcm: Vec::new(),
            channel: None,
            texts: Vec::new(),
        }
    }

    /// Sends an offer without candidates, and accepts the answer.
    pub fn connect(runner: &TestRunner, target: &str, offers: Offers) -> Self {
        let mut poster = Poster::new(offers);
        let reply = poster.post(runner, target, &[]);
        poster.take(&reply);
        poster.until("the connection", |poster| poster.connected);
        poster
    }

    /// Says this from now on.
    pub fn say(&mut self, speech: Speech) {
        self.speech = speech;
        self.encoder = Some(Encoder::new(RATE_HZ, EncoderSettings::default()).expect("a rate of Opus"));
    }

    /// Returns its next packet.
    fn packet(&mut self) -> Vec<u8> {
        let Some(encoder) = &mut self.encoder else {
            return SILENCE.to_vec();
        };
        let pcm = self.speech.frame(self.sent * SAMPLES);
        let mut packet = vec![0; OPUS_PACKET_BYTES_MAX];
        let bytes = encoder.encode(&pcm, &mut packet).expect("20 ms");
        packet.truncate(bytes);
        packet
    }

    /// Returns the offer without candidates, so that only its checks reveal its address.
    pub fn bare_offer(&self) -> String {
        let lines = self.offer.lines().filter(|line| !line.starts_with("a=candidate:"));
        lines.flat_map(|line| [line, "\r\n"]).collect()
    }

    pub fn post(&self, runner: &TestRunner, target: &str, headers: &[&str]) -> Reply {
        let headers = [&[SDP], headers].concat();
        request(runner.addr, "POST", target, &headers, self.bare_offer().as_bytes()).expect("the runner answers")
    }

    /// Handles the reply to its POST.
    pub fn take(&mut self, reply: &Reply) {
        assert_eq!(reply.status, 201, "{}", reply.text());
        self.answer = reply.text();
        self.location = reply.header("location").expect("a location").to_owned();
        // That of a listener to a call changes by nothing.
        self.etag = reply.header("etag").unwrap_or_default().to_owned();
        let offered = self.offered.take().expect("an offer waits");
        let answer = SdpAnswer::from_sdp_string(&self.answer).expect("an answer");
        self.rtc
            .sdp_api()
            .accept_answer(offered, answer)
            .expect("it answers the offer");
    }

    /// Returns a fragment with its credentials and its candidate.
    pub fn fragment(&self) -> String {
        let of = |name: &str| {
            self.offer
                .lines()
                .find(|line| line.starts_with(name))
                .expect("credentials")
        };
        format!(
            "{}\r\n{}\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:{}\r\na=candidate:1 1 udp 2122260223 {} {} typ host\r\n",
            of("a=ice-ufrag:"),
            of("a=ice-pwd:"),
            self.mid,
            self.here.ip(),
            self.here.port()
        )
    }

    pub fn patch(&self, runner: &TestRunner, if_match: Option<&str>, body: &str) -> Reply {
        let if_match = if_match.map(|tag| format!("If-Match: {tag}"));
        let headers: Vec<&str> = [FRAGMENT].into_iter().chain(if_match.as_deref()).collect();
        request(runner.addr, "PATCH", &self.location, &headers, body.as_bytes()).expect("the runner answers")
    }

    pub fn delete(&self, runner: &TestRunner) -> Reply {
        request(runner.addr, "DELETE", &self.location, &[], b"").expect("the runner answers")
    }

    /// Restarts ICE as `whip-whep` does: the stored answer with the fragment's values.
    pub fn restart(&mut self, runner: &TestRunner) -> Reply {
        let mut api = self.rtc.sdp_api();
        api.ice_restart(true);
        let (offer, offered): (SdpOffer, SdpPendingOffer) = api.apply().expect("a restart is offered");
        self.offer = offer.to_sdp_string();
        let reply = self.patch(runner, Some("*"), &self.fragment());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let fragment = reply.text();
        let value = |name: &str| {
            fragment
                .lines()
                .find(|line| line.starts_with(name))
                .expect("in the fragment")
        };
        let candidates: Vec<&str> = fragment
            .lines()
            .filter(|line| line.starts_with("a=candidate:"))
            .collect();
        assert_eq!(candidates.len(), 1, "{fragment}");
        let mut answer = String::new();
        for line in self.answer.lines() {
            let line = match line.split_once(':') {
                Some(("a=ice-ufrag", _)) => value("a=ice-ufrag:"),
                Some(("a=ice-pwd", _)) => value("a=ice-pwd:"),
                Some(("a=candidate", _)) => continue,
                _ => line,
            };
            answer.push_str(&format!("{line}\r\n"));
            if line.starts_with("a=mid:") {
                answer.push_str(&format!("{}\r\n", candidates[0]));
            }
        }
        self.answer = answer;
        self.etag = reply.header("etag").expect("an entity tag").to_owned();
        let answer = SdpAnswer::from_sdp_string(&self.answer).expect("an answer");
        self.rtc
            .sdp_api()
            .accept_answer(offered, answer)
            .expect("it answers the restart");
        reply
    }

    pub fn tell(&mut self, text: &str) {
        let id = self.channel.expect("the channel is open");
        let mut channel = self.rtc.channel(id).expect("it is there");
        assert!(channel.write(false, text.as_bytes()).expect("it takes texts"));
    }

    /// Runs until `done`, or fails the test.
    pub fn until(&mut self, wanted: &str, done: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(
                began.elapsed() < PATIENCE,
                "{wanted} never came: {} heard, {} sent",
                self.received,
                self.sent
            );
            let until = self.turn();
            self.wait(until);
        }
    }

    /// Runs until this many more packets of the bot arrived.
    pub fn hear(&mut self, packets: usize) {
        let wanted = self.received + packets;
        self.until("sound of the bot", |poster| poster.received >= wanted);
    }

    /// Runs until it has sent this many more packets.
    pub fn speak(&mut self, packets: usize) {
        let wanted = self.sent + packets;
        self.until("its own voice", |poster| poster.sent >= wanted);
    }

    /// Sends what is due and drives str0m. Returns the next deadline.
    fn turn(&mut self) -> Instant {
        let now = Instant::now();
        if self.connected && self.sends && now >= self.due {
            self.due = now.max(self.due + FRAME);
            let pt = self.rtc.media(self.mid).expect("its audio").remote_pts()[0];
            let packet = self.packet();
            let mut api = self.rtc.direct_api();
            if let Some(stream) = api.stream_tx_by_mid(self.mid, None) {
                let time = (self.sequence * 960) as u32;
                stream.write_rtp(RtpWrite::new(pt, self.sequence.into(), time, now, packet));
                self.sequence += 1;
                self.sent += 1;
            }
        }
        let _ = self.rtc.handle_input(Input::Timeout(now));
        loop {
            match self.rtc.poll_output() {
                Ok(Output::Timeout(at)) => return at.min(self.due.max(now)).max(now),
                Ok(Output::Transmit(transmit)) => {
                    let _ = self.socket.send_to(&transmit.contents, transmit.destination);
                }
                Ok(Output::Event(event)) => self.take_event(event),
                Err(_) => {
                    self.gone = true;
                    return now + FRAME;
                }
            }
        }
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Connected => self.connected = true,
            Event::RtpPacket(packet) => {
                self.received += 1;
                // A test may have negotiated another codec.
                if let Ok(pcm) = self.decoder.decode(&packet.payload) {
                    self.pcm.extend_from_slice(pcm);
                }
            }
            Event::ChannelOpen(id, _) => self.channel = Some(id),
            Event::ChannelData(data) => self.texts.push(String::from_utf8(data.data).expect("text")),
            Event::Closed => self.gone = true,
            _ => {}
        }
    }

    fn wait(&mut self, until: Instant) {
        let wait = until.saturating_duration_since(Instant::now());
        let wait = wait.clamp(Duration::from_millis(1), FRAME);
        self.socket.set_read_timeout(Some(wait)).expect("a socket");
        let mut buffer = [0; 2_000];
        let Ok((length, source)) = self.socket.recv_from(&mut buffer) else {
            return;
        };
        if let Ok(receive) = Receive::new(Protocol::Udp, source, self.here, &buffer[..length]) {
            let _ = self.rtc.handle_input(Input::Receive(Instant::now(), receive));
        }
    }
}
