//! A caller for tests: str0m's `Rtc` in RTP mode, with a microphone that plays a tone and a record
//! of received audio.
//!
//! Its DTLS is tapped: a test sees the session's SCTP packets in plain text and can replace those
//! of the client.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use str0m::change::{SdpAnswer, SdpApi, SdpPendingOffer};
use str0m::channel::ChannelId;
use str0m::crypto::dtls::DtlsCert;
use str0m::format::FormatParams;
use str0m::media::{Direction, Frequency, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};

use super::tap::{Tap, Wires};
use crate::audio::codec::Codec;
use crate::audio::decoder::AudioDecoder;
use crate::audio::g711::Law;
use crate::audio::opus::{Encoder, EncoderSettings};
use crate::audio::tone::Tone;
use crate::limits::{MESSAGE_BYTES_MAX, OPUS_PACKET_BYTES_MAX};
use crate::webrtc::crypto;

/// The rate of the microphone, in Hz.
const RATE_HZ: u32 = 16_000;

/// A received RTP packet.
pub struct RecordedPacket {
    pub at: Duration,
    pub sequence: u64,
    pub timestamp: u64,
    pub payload: Arc<[u8]>,
}

/// A data channel of the client.
pub struct ClientChannel {
    pub id: ChannelId,
    pub label: String,
    pub closed: bool,
}

/// The sound of a microphone.
enum VoiceSource {
    Tone(Tone, Box<Encoder>),
    G711(Tone, Law),
    /// Packets in a loop, so that a long call takes little CPU time.
    Loop(Vec<Vec<u8>>),
}

impl VoiceSource {
    fn packet(&mut self, nth: u64, ptime: Duration) -> Vec<u8> {
        match self {
            VoiceSource::G711(tone, law) => {
                let pcm = tone.take(8 * ptime.as_millis() as usize);
                let mut packet = vec![0; pcm.len()];
                law.encode(&pcm, &mut packet);
                packet
            }
            VoiceSource::Tone(tone, encoder) => encode(encoder, &tone.take(encoder.frame_samples())),
            VoiceSource::Loop(packets) => packets[nth as usize % packets.len()].clone(),
        }
    }
}

fn encode(encoder: &mut Encoder, pcm: &[i16]) -> Vec<u8> {
    let mut out = [0; OPUS_PACKET_BYTES_MAX];
    let bytes = encoder.encode(pcm, &mut out).expect("a packet");
    out[..bytes].to_vec()
}

struct Microphone {
    voice: VoiceSource,
    /// Duration of a packet, in time and in ticks.
    ptime: Duration,
    step: u32,
    muted: bool,
    /// Number of sent packets.
    spoken: u64,
    next: Instant,
    sequence: u64,
    ticks: u32,
}

impl Microphone {
    fn new(voice: VoiceSource, clock_hz: u32, ptime: Duration, now: Instant) -> Self {
        Microphone {
            voice,
            ptime,
            step: clock_hz / 1_000 * ptime.as_millis() as u32,
            muted: false,
            spoken: 0,
            next: now,
            sequence: 100,
            ticks: 0,
        }
    }
}

pub struct TestClient {
    pub rtc: Rtc,
    codec: Codec,
    /// The duration of a packet; Opus uses 20 ms.
    pub ptime: Duration,
    pub start: Instant,
    pub address: SocketAddr,
    pub connected: bool,
    pub closed: Option<Duration>,
    pub received: Vec<RecordedPacket>,
    pub read: Vec<(Duration, Vec<u8>)>,
    /// The channels on which messages arrived.
    pub read_on: Vec<ChannelId>,
    pub channels: Vec<ClientChannel>,
    /// The SCTP packets of both directions, in plain text.
    pub wires: Arc<Mutex<Wires>>,
    pub mid: Option<Mid>,
    labels: Vec<String>,
    videos: usize,
    microphone: Option<Microphone>,
    pending: Option<SdpPendingOffer>,
    wake: Instant,
}

/// 20 ms of silence in Opus, in CELT at the full bandwidth (RFC 6716).
const OPUS_SILENCE: [u8; 3] = [0xf8, 0xff, 0xfe];

/// Returns the settings of a browser that offers only the preferred codec.
pub fn config() -> RtcConfig {
    bare().enable_opus(true, false)
}

/// Returns the same without a codec.
pub fn bare() -> RtcConfig {
    Rtc::builder()
        .clear_codecs()
        .set_sctp_max_message_size(MESSAGE_BYTES_MAX as u32)
        .set_sctp_max_buffered_amount(2 * MESSAGE_BYTES_MAX)
}

/// Adds G.711 with this payload type.
pub fn g711(mut config: RtcConfig, law: Law, payload_type: u8) -> RtcConfig {
    let codec = match law {
        Law::Mu => str0m::format::Codec::PCMU,
        Law::A => str0m::format::Codec::PCMA,
    };
    let (clock, format) = (Frequency::EIGHT_KHZ, FormatParams::default());
    let codecs = config.codec_config();
    codecs.add_config(payload_type.into(), None, codec, clock, None, format);
    config
}

impl TestClient {
    pub fn new(address: &str) -> Self {
        TestClient::at(address, Instant::now())
    }

    pub fn at(address: &str, start: Instant) -> Self {
        TestClient::with(config(), address, start)
    }

    /// Creates a client that offers only G.711 with this payload type.
    pub fn g711(law: Law, payload_type: u8, address: &str, start: Instant) -> Self {
        TestClient::with(g711(bare(), law, payload_type), address, start).speaking(law)
    }

    /// Sends and receives only this codec.
    pub fn speaking(mut self, law: Law) -> Self {
        self.codec = Codec::G711(law);
        self
    }

    pub fn with(config: RtcConfig, address: &str, start: Instant) -> Self {
        TestClient::with_certificate(
            config,
            crypto::certificate().expect("a certificate").clone(),
            address,
            start,
        )
    }

    pub fn with_certificate(config: RtcConfig, cert: DtlsCert, address: &str, start: Instant) -> Self {
        let (provider, wires) = Tap::provider();
        let mut rtc = config
            .set_crypto_provider(Arc::new(provider))
            .set_dtls_cert(cert)
            .set_rtp_mode(true)
            .build(start);
        let address = address.parse().expect("an address");
        rtc.add_local_candidate(Candidate::host(address, Protocol::Udp).expect("a candidate"));
        TestClient {
            rtc,
            codec: Codec::Opus,
            ptime: Duration::from_millis(20),
            start,
            address,
            connected: false,
            closed: None,
            received: Vec::new(),
            read: Vec::new(),
            read_on: Vec::new(),
            channels: Vec::new(),
            wires,
            mid: None,
            labels: vec!["chat".to_owned()],
            videos: 0,
            microphone: None,
            pending: None,
            wake: start,
        }
    }

    /// Opens channels with these labels in its first offer, in place of `chat`.
    pub fn labels(mut self, labels: &[&str]) -> Self {
        self.labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self
    }

    /// Offers this number of video sections after the audio.
    pub fn videos(mut self, videos: usize) -> Self {
        self.videos = videos;
        self
    }

    /// Creates the first offer: audio, video, then channels.
    pub fn offer(&mut self) -> String {
        let (labels, videos) = (std::mem::take(&mut self.labels), self.videos);
        let mut mid = None;
        let offer = self.change(|api| {
            mid = Some(api.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None));
            for _ in 0..videos {
                api.add_media(MediaKind::Video, Direction::SendRecv, None, None, None);
            }
            for label in labels {
                api.add_channel(label);
            }
        });
        self.mid = mid;
        offer
    }

    /// Creates an offer with these changes.
    pub fn change(&mut self, change: impl FnOnce(&mut SdpApi<'_>)) -> String {
        let mut api = self.rtc.sdp_api();
        change(&mut api);
        let (offer, pending) = api.apply().expect("something to offer");
        self.pending = Some(pending);
        offer.to_sdp_string()
    }

    /// Opens another channel, which needs no offer.
    pub fn open(&mut self, label: String) {
        let mut api = self.rtc.sdp_api();
        api.add_channel(label);
        assert!(api.apply().is_none(), "nothing to offer");
    }

    pub fn accept(&mut self, answer: &str) {
        let answer = SdpAnswer::from_sdp_string(answer).expect("an answer");
        let pending = self.pending.take().expect("an offer");
        self.rtc
            .sdp_api()
            .accept_answer(pending, answer)
            .expect("an answer that fits");
    }

    /// Starts to send a packet every 20 ms.
    pub fn speak(&mut self, hz: f64, now: Instant) {
        if let Some(microphone) = &mut self.microphone {
            microphone.muted = false;
            return;
        }
        let voice = match self.codec {
            Codec::Opus => {
                let encoder = Encoder::new(RATE_HZ, EncoderSettings::default()).expect("an encoder");
                VoiceSource::Tone(Tone::new(hz, RATE_HZ), Box::new(encoder))
            }
            Codec::G711(law) => VoiceSource::G711(Tone::new(hz, 8_000), law),
        };
        self.microphone = Some(Microphone::new(voice, self.codec.clock_hz(), self.ptime, now));
    }

    /// As [`TestClient::speak`], but with a beep of 100 ms at the start of every `period` packets,
    /// and silence between.
    pub fn beep(&mut self, hz: f64, period: usize, now: Instant) {
        let mut encoder = Encoder::new(RATE_HZ, EncoderSettings::default()).expect("an encoder");
        let mut round = Vec::new();
        // The second round starts in the state of all later ones.
        for _ in 0..2 {
            let mut pcm = Tone::new(hz, RATE_HZ).take(RATE_HZ as usize / 10);
            pcm.resize(period * encoder.frame_samples(), 0);
            round = pcm
                .chunks(encoder.frame_samples())
                .map(|frame| encode(&mut encoder, frame))
                .collect();
        }
        self.microphone = Some(Microphone::new(
            VoiceSource::Loop(round),
            48_000,
            Duration::from_millis(20),
            now,
        ));
    }

    /// Stops sending packets; timestamps continue.
    pub fn mute(&mut self) {
        if let Some(microphone) = &mut self.microphone {
            microphone.muted = true;
        }
    }

    /// Sends a packet of silence while it is muted, as discontinuous transmission does each 400 ms.
    pub fn send_silence(&mut self, now: Instant) {
        let microphone = self.microphone.as_mut().expect("a microphone");
        let (sequence, ticks) = (microphone.sequence, microphone.ticks);
        microphone.sequence += 1;
        self.write_audio(sequence, ticks, &OPUS_SILENCE, now);
    }

    /// Sets the numbers of the next packet.
    pub fn set_numbers(&mut self, sequence: u64, ticks: u32) {
        let microphone = self.microphone.as_mut().expect("a microphone");
        (microphone.sequence, microphone.ticks) = (sequence, ticks);
    }

    /// Skips packets, as if they were lost.
    pub fn leap(&mut self, packets: u64) {
        let microphone = self.microphone.as_mut().expect("a microphone");
        microphone.sequence += packets;
        microphone.ticks = microphone.ticks.wrapping_add(packets as u32 * microphone.step);
    }

    /// Sends from another source with other numbers.
    pub fn change_source(&mut self) {
        let (mid, microphone) = (
            self.mid.expect("audio"),
            self.microphone.as_mut().expect("a microphone"),
        );
        let mut api = self.rtc.direct_api();
        let ssrc = api.new_ssrc();
        assert!(api.reset_stream_tx(mid, None, ssrc, None).is_some());
        microphone.sequence = (microphone.sequence + 20_000) % 30_000;
        microphone.ticks = microphone.ticks.wrapping_mul(31);
    }

    pub fn open_channel(&self) -> Option<ChannelId> {
        self.channels
            .iter()
            .find(|channel| !channel.closed)
            .map(|channel| channel.id)
    }

    pub fn channel(&self, label: &str) -> ChannelId {
        let mut channels = self.channels.iter();
        channels
            .find(|channel| channel.label == label)
            .expect("an open channel")
            .id
    }

    pub fn send(&mut self, text: &str) {
        let id = self.open_channel().expect("an open channel");
        self.write(id, false, text.as_bytes());
    }

    pub fn write(&mut self, id: ChannelId, binary: bool, bytes: &[u8]) {
        let mut channel = self.rtc.channel(id).expect("an open channel");
        assert!(
            channel.write(binary, bytes).expect("a message that may be sent"),
            "room for a message"
        );
    }

    /// Returns the texts read so far.
    pub fn texts(&self) -> Vec<String> {
        let texts = self
            .read
            .iter()
            .map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned());
        texts.collect()
    }

    /// Decodes the audio received since `from`, at 48 kHz.
    pub fn pcm_since(&self, from: Duration) -> Vec<i16> {
        let mut decoder = AudioDecoder::new(self.codec, 48_000).expect("a decoder");
        let mut pcm = Vec::new();
        for packet in self.received.iter().filter(|packet| packet.at >= from) {
            pcm.extend_from_slice(decoder.decode(&packet.payload).expect("a packet"));
        }
        pcm
    }

    /// Returns the number of packets received in a time span.
    pub fn received_between(&self, from: Duration, to: Duration) -> usize {
        self.received
            .iter()
            .filter(|packet| (from..to).contains(&packet.at))
            .count()
    }

    /// Sends one audio packet with these numbers.
    pub fn write_audio(&mut self, sequence: u64, ticks: u32, payload: &[u8], now: Instant) {
        let mid = self.mid.expect("audio");
        let pt = self.rtc.media(mid).expect("negotiated").remote_pts()[0];
        let mut api = self.rtc.direct_api();
        let stream = api.stream_tx_by_mid(mid, None).expect("audio is sent");
        stream.write_rtp(RtpWrite::new(pt, sequence.into(), ticks, now, payload));
    }

    pub fn wake(&self) -> Instant {
        self.microphone
            .as_ref()
            .map_or(self.wake, |microphone| microphone.next.min(self.wake))
    }

    pub fn handle_datagram(&mut self, source: SocketAddr, destination: SocketAddr, contents: &[u8], now: Instant) {
        let Ok(receive) = Receive::new(Protocol::Udp, source, destination, contents) else {
            return;
        };
        let input = Input::Receive(now, receive);
        if self.rtc.accepts(&input) {
            let _ = self.rtc.handle_input(input);
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if let (Some(microphone), Some(mid)) = (&mut self.microphone, self.mid)
            && now >= microphone.next
        {
            microphone.next += microphone.ptime;
            microphone.ticks = microphone.ticks.wrapping_add(microphone.step);
            if self.connected && !microphone.muted {
                let payload = microphone.voice.packet(microphone.spoken, microphone.ptime);
                microphone.spoken += 1;
                let pt = self.rtc.media(mid).expect("negotiated").remote_pts()[0];
                let (sequence, ticks) = (microphone.sequence, microphone.ticks);
                microphone.sequence += 1;
                let mut api = self.rtc.direct_api();
                let stream = api.stream_tx_by_mid(mid, None).expect("audio is sent");
                stream.write_rtp(RtpWrite::new(pt, sequence.into(), ticks, now, payload));
            }
        }
        let _ = self.rtc.handle_input(Input::Timeout(now));
    }

    /// Returns outgoing datagrams with their destinations.
    pub fn drain(&mut self, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
        let at = now - self.start;
        let mut leaving = Vec::new();
        loop {
            match self.rtc.poll_output() {
                Ok(Output::Timeout(wake)) => {
                    self.wake = wake;
                    return leaving;
                }
                Ok(Output::Transmit(transmit)) => leaving.push((transmit.destination, transmit.contents.into())),
                Ok(Output::Event(event)) => self.event(event, at),
                Err(error) => log::debug!("client: {error}"),
            }
        }
    }

    fn event(&mut self, event: Event, at: Duration) {
        match event {
            Event::Connected => self.connected = true,
            Event::RtpPacket(packet) => self.received.push(RecordedPacket {
                at,
                sequence: *packet.seq_no,
                timestamp: packet.time.numer(),
                payload: packet.payload,
            }),
            Event::ChannelOpen(id, label) => self.channels.push(ClientChannel {
                id,
                label,
                closed: false,
            }),
            Event::ChannelClose(id) => {
                for channel in self.channels.iter_mut().filter(|channel| channel.id == id) {
                    channel.closed = true;
                }
            }
            Event::ChannelData(data) => {
                self.read_on.push(data.id);
                self.read.push((at, data.data));
            }
            Event::Closed => {
                self.closed.get_or_insert(at);
            }
            _ => {}
        }
    }
}
