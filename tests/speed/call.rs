//! Whole sessions without a network: datagrams pass from one end to the other at once, with a
//! simulated clock.
//!
//! A WebRTC client is str0m alone, one packet out and one in per 20 ms, without a codec. So half of
//! the cost of two clients is the cost of str0m in a session, and the rest of a session is the
//! runner's.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edge_runner_proto::audio::codec::Codec;
use edge_runner_proto::audio::g711;
use edge_runner_proto::session::{Session, SessionOutput};
use edge_runner_proto::sockets::socket;
use edge_runner_proto::sockets::{frames, socket::SocketMessage};
use edge_runner_proto::telephony::proof::Proof;
use edge_runner_proto::webrtc::connection::{ConnectionContext, ConnectionSetup, IceSecret, ReceivedPacket};
use edge_runner_proto::webrtc::crypto;
use edge_runner_proto::webrtc::gather::GatheredAddresses;
use edge_runner_proto::webrtc::session::{WebRtcCommand, WebRtcSession};
use str0m::change::{SdpAnswer, SdpOffer, SdpPendingOffer};
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{ExtensionMap, RtpWrite};
use str0m::{Candidate, Event, Input, Output, Rtc};

use crate::parts::{self, PTIME};
use crate::voice::{FRAMES, Voice};
use crate::{Result, Work};

const NEAR: &str = "192.0.2.1:7860";
const FAR: &str = "192.0.2.2:5000";
/// Time limit of a handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest queue of the bot, which echoes the audio.
const ECHO_SAMPLES_MAX: usize = 4_800;

/// One end of a connection.
trait End {
    fn handle_datagram(&mut self, datagram: &[u8], now: Instant);
    fn handle_timeout(&mut self, now: Instant);
    /// Appends outgoing datagrams, and returns the next deadline.
    fn drain(&mut self, sent: &mut VecDeque<Vec<u8>>, now: Instant) -> Instant;
    fn is_connected(&self) -> bool;
}

struct Client {
    rtc: Rtc,
    mid: Option<Mid>,
    /// Ticks of one packet.
    ticks: u32,
    local: SocketAddr,
    remote: SocketAddr,
    connected: bool,
    received: u64,
    said: u64,
}

impl Client {
    fn new(codec: Codec, local: &str, remote: &str, now: Instant) -> Result<Client> {
        let local = local.parse()?;
        let mut rtc = Rtc::builder()
            .set_crypto_provider(Arc::new(crypto::provider()))
            .set_dtls_cert(crypto::certificate()?.clone())
            .set_rtp_mode(true)
            .clear_codecs()
            .enable_opus(codec == Codec::Opus, false)
            .enable_pcmu(codec != Codec::Opus, false)
            .set_extension_map(ExtensionMap::empty())
            .build(now);
        rtc.add_local_candidate(Candidate::host(local, Protocol::Udp)?);
        Ok(Client {
            rtc,
            mid: None,
            ticks: codec.clock_hz() / 50,
            local,
            remote: remote.parse()?,
            connected: false,
            received: 0,
            said: 0,
        })
    }

    fn offer(&mut self) -> Result<(String, SdpPendingOffer)> {
        let mut change = self.rtc.sdp_api();
        self.mid = Some(change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None));
        change.add_channel("chat".to_owned());
        let (offer, pending) = change.apply().ok_or("nothing to offer")?;
        Ok((offer.to_sdp_string(), pending))
    }

    fn say(&mut self, payload: &[u8], now: Instant) -> Option<()> {
        let mid = self.mid?;
        let pt = *self.rtc.media(mid)?.remote_pts().first()?;
        let mut api = self.rtc.direct_api();
        let stream = api.stream_tx_by_mid(mid, None)?;
        self.said += 1;
        let ticks = self.ticks.wrapping_mul(self.said as u32);
        stream.write_rtp(RtpWrite::new(pt, self.said.into(), ticks, now, payload));
        self.handle_timeout(now);
        Some(())
    }
}

impl End for Client {
    fn handle_datagram(&mut self, datagram: &[u8], now: Instant) {
        let receive = Receive::new(Protocol::Udp, self.remote, self.local, datagram);
        let input = Input::Receive(now, receive.expect("it came from str0m"));
        self.rtc.handle_input(input).expect("it lives");
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.rtc.handle_input(Input::Timeout(now)).expect("it lives");
    }

    fn drain(&mut self, sent: &mut VecDeque<Vec<u8>>, _: Instant) -> Instant {
        loop {
            match self.rtc.poll_output().expect("it lives") {
                Output::Timeout(at) => return at,
                Output::Transmit(transmit) => sent.push_back(transmit.contents.into()),
                Output::Event(Event::Connected) => self.connected = true,
                Output::Event(Event::MediaAdded(media)) => self.mid = Some(media.mid),
                Output::Event(Event::RtpPacket(_)) => self.received += 1,
                Output::Event(_) => {}
            }
        }
    }

    fn is_connected(&self) -> bool {
        self.connected
    }
}

/// A session of the runner with an echo bot.
struct Runner {
    session: WebRtcSession,
    echo: VecDeque<i16>,
    speech: Vec<i16>,
    frames: u64,
    joined: bool,
}

impl End for Runner {
    fn handle_datagram(&mut self, datagram: &[u8], now: Instant) {
        let (far, near) = (FAR.parse().expect("an address"), NEAR.parse().expect("an address"));
        self.session
            .handle_packet(&ReceivedPacket::from_datagram(far, near, datagram), now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
        hand(&mut self.echo, &mut self.speech, &mut self.session, now);
    }

    fn drain(&mut self, sent: &mut VecDeque<Vec<u8>>, now: Instant) -> Instant {
        loop {
            let received = self.echo.len();
            match self.session.poll_output(now) {
                SessionOutput::Timeout(deadline) => return deadline.at,
                SessionOutput::Closed => panic!("the session ended"),
                SessionOutput::Command(WebRtcCommand::Transmit(mut transmit)) => {
                    sent.push_back(transmit.contents().to_vec())
                }
                SessionOutput::Audio(frame) => {
                    self.frames += 1;
                    if received < ECHO_SAMPLES_MAX {
                        self.echo.extend(frame.pcm);
                    }
                    hand(&mut self.echo, &mut self.speech, &mut self.session, now);
                }
                SessionOutput::Command(_) | SessionOutput::BotAudioWanted => {}
                SessionOutput::Event(_) => self.joined = true,
            }
        }
    }

    fn is_connected(&self) -> bool {
        self.joined
    }
}

/// Passes pending speech to a session, with a reused buffer.
fn hand(echo: &mut VecDeque<i16>, speech: &mut Vec<i16>, session: &mut impl Session, now: Instant) {
    let Some(room) = session.bot_audio_capacity() else {
        return;
    };
    speech.clear();
    speech.extend(echo.drain(..room.min(echo.len())));
    session.handle_bot_audio(speech, now);
}

/// Two ends with a common clock.
struct Line<A, B> {
    one: A,
    other: B,
    now: Instant,
    due: (Instant, Instant),
    sent: VecDeque<Vec<u8>>,
}

impl<A: End, B: End> Line<A, B> {
    fn new(one: A, other: B, now: Instant) -> Self {
        Line {
            one,
            other,
            now,
            due: (now, now),
            sent: VecDeque::new(),
        }
    }

    /// Delivers datagrams until neither end has any.
    fn settle(&mut self) {
        loop {
            self.due.0 = self.one.drain(&mut self.sent, self.now);
            let mut quiet = self.sent.is_empty();
            while let Some(datagram) = self.sent.pop_front() {
                self.other.handle_datagram(&datagram, self.now);
                // A drain follows every input; its datagrams wait for their turn.
                let mut answers = VecDeque::new();
                self.other.drain(&mut answers, self.now);
                for answer in answers {
                    self.one.handle_datagram(&answer, self.now);
                    self.one.drain(&mut self.sent, self.now);
                }
            }
            let mut answers = VecDeque::new();
            self.due.1 = self.other.drain(&mut answers, self.now);
            for answer in answers {
                quiet = false;
                self.one.handle_datagram(&answer, self.now);
                self.one.drain(&mut self.sent, self.now);
            }
            if quiet {
                return;
            }
        }
    }

    /// Advances the clock to `until`.
    fn run(&mut self, until: Instant) {
        self.settle();
        loop {
            let due = self.due.0.min(self.due.1);
            if due > until {
                break;
            }
            self.now = self.now.max(due);
            if self.due.0 <= self.now {
                self.one.handle_timeout(self.now);
            }
            if self.due.1 <= self.now {
                self.other.handle_timeout(self.now);
            }
            self.settle();
        }
        self.now = until;
    }

    fn connect(&mut self) -> Result<()> {
        let end = self.now + PATIENCE;
        while !(self.one.is_connected() && self.other.is_connected()) {
            if self.now > end {
                return Err("the two ends did not connect".into());
            }
            self.run(self.now + PTIME);
        }
        Ok(())
    }
}

/// Two clients that send each other the same packets.
pub fn clients(packets: Vec<Vec<u8>>) -> Result<Work> {
    let now = Instant::now();
    let mut one = Client::new(Codec::Opus, FAR, NEAR, now)?;
    let mut other = Client::new(Codec::Opus, NEAR, FAR, now)?;
    let (offer, pending) = one.offer()?;
    let answer = other.rtc.sdp_api().accept_offer(SdpOffer::from_sdp_string(&offer)?)?;
    one.rtc.sdp_api().accept_answer(pending, answer)?;
    let mut line = Line::new(one, other, now);
    line.connect()?;
    Ok(Box::new(move |frame| {
        let packet = &packets[frame % FRAMES];
        line.one.say(packet, line.now).expect("audio was negotiated");
        line.other.say(packet, line.now).expect("audio was negotiated");
        line.run(line.now + PTIME);
        let lost = frame as u64 + 1 - line.one.received.min(line.other.received);
        assert!(lost < 3, "{lost} of {frame} packets are lost");
    }))
}

/// A client and a session of the runner with an echo bot, at this rate; at 0 Hz the bot uses no
/// audio.
pub fn session(codec: Codec, packets: Vec<Vec<u8>>, rate_hz: u32) -> Result<Work> {
    let now = Instant::now();
    let mut client = Client::new(codec, FAR, NEAR, now)?;
    let (offer, pending) = client.offer()?;
    let common = ConnectionContext::default();
    let local = [NEAR.parse()?];
    let setup = ConnectionSetup {
        context: &common,
        local: &local,
        tcp: &[],
        gathered: &GatheredAddresses::default(),
        embedded: None,
        device: None,
        seed: 1,
        secret: IceSecret([1; 32]),
    };
    let (mut session, answer) = WebRtcSession::accept(&offer, &setup, now).map_err(|error| error.to_string())?;
    let answer = SdpAnswer::from_sdp_string(&answer)?;
    client.rtc.sdp_api().accept_answer(pending, answer)?;
    if rate_hz > 0 {
        session.set_audio(rate_hz, rate_hz, true, now);
    }
    let runner = Runner {
        session,
        echo: VecDeque::new(),
        speech: Vec::new(),
        frames: 0,
        joined: false,
    };
    let mut line = Line::new(client, runner, now);
    line.connect()?;
    Ok(Box::new(move |frame| {
        line.one
            .say(&packets[frame % FRAMES], line.now)
            .expect("audio was negotiated");
        line.run(line.now + PTIME);
        let frames = frame as u64 + 1;
        assert!(
            rate_hz == 0 || frames - line.other.frames < 3,
            "{} of {frames} were heard",
            line.other.frames
        );
        assert!(
            line.one.received + 3 > frames,
            "{} of {frames} came back",
            line.one.received
        );
    }))
}

/// A Twilio media frame, as in `docs/spec/telephony.md` 3.
pub fn media_message(pcm: &[i16], number: usize) -> String {
    let bytes: Vec<u8> = pcm.iter().map(|sample| g711::ulaw_encode(*sample)).collect();
    let payload = data_encoding::BASE64.encode(&bytes);
    format!(
        r#"{{"event":"media","sequenceNumber":"{number}","media":{{"track":"inbound","chunk":"{number}","timestamp":"{}","payload":"{payload}"}},"streamSid":"MZ5f0c1d2e3b4a59687786958493a2b1c0"}}"#,
        number * 20
    )
}

/// A Twilio call with an echo bot at 16 kHz; WebSocket framing is a separate component.
pub fn telephone(voice: &Voice) -> Result<Work> {
    let frames = parts::frames(&voice.at(8_000), 8_000);
    let messages: Vec<String> = (frames.iter().enumerate())
        .map(|(number, pcm)| media_message(pcm, number))
        .collect();
    let now = Instant::now();
    let mut session = socket::SocketSession::call(Proof::Missing, Arc::default(), now);
    let start = include_str!("../data/telephony/twilio.jsonl").lines().nth(1);
    session.handle_text(start.ok_or("the script has a start")?, now);
    Ok(talk(session, now, move |session, frame, now| {
        session.handle_text(&messages[frame % FRAMES], now);
    }))
}

/// A client of `/ws-client` with an echo bot at 16 kHz.
pub fn client(voice: &Voice) -> Result<Work> {
    let spoken = parts::frames(&voice.at(16_000), 16_000);
    let messages: Vec<bytes::Bytes> = spoken.iter().map(|pcm| frames::audio(pcm, 16_000).into()).collect();
    let now = Instant::now();
    Ok(talk(
        socket::SocketSession::client(now),
        now,
        move |session, frame, now| {
            session.handle_binary(messages[frame % FRAMES].clone(), now);
        },
    ))
}

fn talk(
    mut session: socket::SocketSession,
    start: Instant,
    mut say: impl FnMut(&mut socket::SocketSession, usize, Instant) + 'static,
) -> Work {
    session.set_audio(16_000, 16_000, true, start);
    let (mut echo, mut speech) = (VecDeque::new(), Vec::new());
    let (mut received, mut sent) = (0, 0);
    Box::new(move |frame| {
        let now = start + PTIME * frame as u32;
        session.handle_timeout(now);
        say(&mut session, frame, now);
        loop {
            match session.poll_output(now) {
                SessionOutput::Timeout(_) => break,
                SessionOutput::Closed => panic!("the session ended"),
                SessionOutput::Audio(frame) => {
                    received += 1;
                    echo.extend(frame.pcm);
                    hand(&mut echo, &mut speech, &mut session, now);
                }
                SessionOutput::Command(socket::SocketCommand::Send(message)) => {
                    sent += usize::from(matches!(message, SocketMessage::Text(_) | SocketMessage::Binary(_)));
                    std::hint::black_box(message);
                }
                _ => {}
            }
        }
        hand(&mut echo, &mut speech, &mut session, now);
        assert!(
            received + 3 > frame && sent + 20 > frame,
            "{received} in and {sent} out of {frame}"
        );
    })
}
