//! The components: the work of each in one frame of 20 ms.
//!
//! In: a name and the voice. Out: the work of one frame; everything that a call creates once is set
//! up before. Unknown names are rejected.

use std::hint::black_box;
use std::time::{Duration, Instant};

use edge_runner_proto::audio::codec::Codec;
use edge_runner_proto::audio::g711;
use edge_runner_proto::audio::jitter::JitterBuffer;
use edge_runner_proto::audio::opus::{Decoder, Encoder, EncoderSettings};
use edge_runner_proto::audio::pacer::{self, Pacer};
use edge_runner_proto::audio::resample::Resampler;
use edge_runner_proto::audio::vad::Vad;
use edge_runner_proto::webrtc::crypto;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::voice::{FRAMES, Voice};
use crate::{Result, Work, call};

pub const PTIME: Duration = Duration::from_millis(20);
/// Opus at 32 kb/s.
const PAYLOAD: [u8; 80] = [0x55; 80];
const RTP_HEADER: [u8; 12] = [0x80, 111, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const TAG_BYTES: usize = 16;

/// Returns every component and its description.
pub fn list() -> Vec<(String, String)> {
    let mut list = Vec::new();
    let mut add = |name: String, what: String| list.push((name, what));
    for khz in [8, 16, 24] {
        for complexity in 0..=10 {
            add(
                format!("encode-{khz}-{complexity}"),
                format!("Opus encode, {khz} kHz, complexity {complexity}"),
            );
        }
    }
    for khz in [16, 24, 48] {
        add(
            format!("decode-{khz}"),
            format!("Opus decode, a browser's packet, to {khz} kHz"),
        );
    }
    add(
        "decode-device".into(),
        "Opus decode, a microcontroller's packet, to 16 kHz".into(),
    );
    for (from, to) in [(48, 16), (48, 24), (24, 8), (16, 8), (8, 16)] {
        add(format!("resample-{from}-{to}"), format!("resample, {from} to {to} kHz"));
    }
    for (name, what) in [
        ("srtp-gcm", "SRTP AES-128-GCM, one packet out and one in"),
        (
            "srtp-cm",
            "SRTP AES-128-CM with HMAC-SHA1-80, one packet out and one in",
        ),
        ("jitter", "jitter buffer, one packet"),
        ("pacer", "pacer, one frame"),
        ("vad", "the parrot's voice detection, 16 kHz"),
        ("g711", "G.711, decode one frame and encode one"),
        ("websocket", "WebSocket, one message of a telephone in and one out"),
        (
            "clients",
            "two WebRTC clients without a codec, one packet each way: twice RTP, SRTP, ICE",
        ),
        (
            "session-16",
            "a WebRTC session at 16 kHz with Opus both ways, and its client without a codec",
        ),
        (
            "session-24",
            "a WebRTC session at 24 kHz with Opus both ways, and its client without a codec",
        ),
        (
            "session-0",
            "a WebRTC session whose bot asks for no audio, and its client without a codec",
        ),
        (
            "pcmu-16",
            "a WebRTC session at 16 kHz with PCMU both ways, and its client without a codec",
        ),
        (
            "telephone",
            "a telephone call, JSON and G.711 both ways, the bot at 16 kHz",
        ),
        (
            "client",
            "a plain WebSocket client, protobuf both ways, the bot at 16 kHz",
        ),
    ] {
        add(name.into(), what.into());
    }
    list
}

/// Returns the work of a component.
pub fn work(name: &str, voice: Voice) -> Result<Work> {
    let words: Vec<&str> = name.split('-').collect();
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("no component `{name}`"));
    match words[..] {
        ["encode", khz, complexity] => encode(&voice, 1_000 * number(khz)?, number(complexity)? as u8),
        ["decode", "device"] => decode(voice.device, 16_000),
        ["decode", khz] => decode(voice.browser, 1_000 * number(khz)?),
        ["resample", from, to] => Ok(resample(&voice, 1_000 * number(from)?, 1_000 * number(to)?)),
        ["srtp", "gcm"] => Ok(srtp_gcm()),
        ["srtp", "cm"] => Ok(srtp_cm()),
        ["jitter"] => Ok(jitter(voice.browser)),
        ["pacer"] => Ok(pacer(&voice)),
        ["vad"] => Ok(vad(&voice)),
        ["g711"] => Ok(g711(&voice)),
        ["websocket"] => websocket(&voice),
        ["clients"] => call::clients(voice.browser),
        ["session", khz] => call::session(Codec::Opus, voice.browser, 1_000 * number(khz)?),
        ["pcmu", khz] => {
            let frames = frames(&voice.at(8_000), 8_000);
            let packets = frames
                .iter()
                .map(|pcm| pcm.iter().map(|sample| g711::ulaw_encode(*sample)).collect());
            call::session(Codec::G711(g711::Law::Mu), packets.collect(), 1_000 * number(khz)?)
        }
        ["telephone"] => call::telephone(&voice),
        ["client"] => call::client(&voice),
        _ => Err(format!("no component `{name}`: `speed list` names them").into()),
    }
}

/// Cuts samples into frames of 20 ms.
pub fn frames(pcm: &[i16], rate_hz: u32) -> Vec<Vec<i16>> {
    pcm.chunks_exact(rate_hz as usize / 50).map(<[i16]>::to_vec).collect()
}

fn encode(voice: &Voice, rate_hz: u32, complexity: u8) -> Result<Work> {
    let settings = EncoderSettings {
        complexity,
        ..EncoderSettings::default()
    };
    let mut encoder = Encoder::new(rate_hz, settings)?;
    let frames = frames(&voice.at(rate_hz), rate_hz);
    let mut packet = [0; 400];
    Ok(Box::new(move |frame| {
        let bytes = encoder.encode(&frames[frame % FRAMES], &mut packet);
        black_box(bytes.expect("20 ms are encoded"));
    }))
}

fn decode(packets: Vec<Vec<u8>>, rate_hz: u32) -> Result<Work> {
    let mut decoder = Decoder::new(rate_hz)?;
    Ok(Box::new(move |frame| {
        black_box(decoder.decode(&packets[frame % FRAMES]).expect("it is an Opus packet"));
    }))
}

fn resample(voice: &Voice, from_hz: u32, to_hz: u32) -> Work {
    let mut resampler = Resampler::new(from_hz, to_hz);
    let frames = frames(&voice.at(from_hz), from_hz);
    let mut resampled = Vec::new();
    Box::new(move |frame| {
        resampled.clear();
        resampler.process(&frames[frame % FRAMES], &mut resampled);
        black_box(&resampled);
    })
}

fn srtp_gcm() -> Work {
    let make = || {
        let provider = crypto::provider().srtp_provider;
        provider.aead_aes_128_gcm().create_cipher([7; 16], true)
    };
    let (mut out, mut back) = (make(), make());
    let mut sealed = [0; PAYLOAD.len() + TAG_BYTES];
    let mut opened = PAYLOAD;
    Box::new(move |frame| {
        let mut iv = [1; 12];
        iv[4..].copy_from_slice(&(frame as u64).to_be_bytes());
        out.encrypt(&iv, &RTP_HEADER, &PAYLOAD, &mut sealed)
            .expect("it is sealed");
        let bytes = back.decrypt(&iv, &[&RTP_HEADER], &sealed, &mut opened);
        assert_eq!(black_box(bytes.expect("it is opened")), PAYLOAD.len());
    })
}

/// The tag as str0m computes it, over header, payload and roll-over counter (RFC 3711 section 4.2).
fn srtp_cm() -> Work {
    let provider = crypto::provider();
    let make = || provider.srtp_provider.aes_128_cm_sha1_80().create_cipher([7; 16], true);
    let (mut out, mut back) = (make(), make());
    let hashes = provider.sha1_hmac_provider;
    let (mut sealed, mut opened) = (PAYLOAD, PAYLOAD);
    Box::new(move |frame| {
        let mut iv = [1; 16];
        iv[6..14].copy_from_slice(&(frame as u64).to_be_bytes());
        let tag = |payload: &[u8]| hashes.sha1_hmac(&[9; 20], &[&RTP_HEADER, payload, &[0; 4]]);
        out.encrypt(&iv, &PAYLOAD, &mut sealed).expect("it is sealed");
        let sent = tag(&sealed);
        assert_eq!(tag(black_box(&sealed)), sent);
        back.decrypt(&iv, &sealed, &mut opened).expect("it is opened");
        black_box(&opened);
    })
}

fn jitter(packets: Vec<Vec<u8>>) -> Work {
    let mut jitter = JitterBuffer::new(Codec::Opus);
    let start = Instant::now();
    Box::new(move |frame| {
        let now = start + PTIME * frame as u32;
        jitter.handle_timeout(now);
        jitter.handle_packet(frame as u64, 960 * frame as u64, &packets[frame % FRAMES], now);
        while let Some(output) = jitter.poll_output() {
            black_box(output);
        }
        black_box(jitter.poll_timeout());
    })
}

fn pacer(voice: &Voice) -> Work {
    let mut pacer = Pacer::new(16_000);
    let frames = frames(&voice.at(16_000), 16_000);
    let start = Instant::now();
    pacer.start(start);
    Box::new(move |frame| {
        let now = start + PTIME * frame as u32;
        pacer.handle_audio(&frames[frame % FRAMES], now);
        pacer.handle_timeout(now);
        while let Some(output) = pacer.poll_output() {
            if let pacer::PacerOutput::Frame(frame) = output {
                black_box(frame.pcm);
            }
        }
        black_box(pacer.poll_timeout());
    })
}

fn vad(voice: &Voice) -> Work {
    let mut vad = Vad::new(16_000);
    let frames = frames(&voice.at(16_000), 16_000);
    Box::new(move |frame| {
        black_box(vad.hears_speech(&frames[frame % FRAMES]));
    })
}

fn g711(voice: &Voice) -> Work {
    let frames = frames(&voice.at(8_000), 8_000);
    let received: Vec<u8> = frames[0].iter().map(|sample| g711::ulaw_encode(*sample)).collect();
    let mut pcm = Vec::new();
    let mut said: Vec<u8> = Vec::new();
    Box::new(move |frame| {
        pcm.clear();
        g711::Law::Mu.decode(black_box(&received), &mut pcm);
        said.clear();
        said.extend(frames[frame % FRAMES].iter().map(|sample| g711::ulaw_encode(*sample)));
        black_box((&pcm, &said));
    })
}

/// A stream that returns the same masked message repeatedly and accepts all writes.
struct Wire {
    message: Vec<u8>,
    at: usize,
}

impl std::io::Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.message[self.at..];
        let bytes = rest.len().min(into.len());
        into[..bytes].copy_from_slice(&rest[..bytes]);
        self.at = (self.at + bytes) % self.message.len();
        Ok(bytes)
    }
}

impl std::io::Write for Wire {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        black_box(from);
        Ok(from.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn websocket(voice: &Voice) -> Result<Work> {
    let text = call::media_message(&frames(&voice.at(8_000), 8_000)[0], 7);
    let mut client = WebSocket::from_raw_socket(std::io::Cursor::new(Vec::new()), Role::Client, None);
    client.send(Message::text(text.clone()))?;
    let message = client.get_ref().get_ref().clone();
    let mut socket = WebSocket::from_raw_socket(
        Wire { message, at: 0 },
        Role::Server,
        Some(edge_runner::inside::socket_config()),
    );
    let text = Utf8Bytes::from(text);
    Ok(Box::new(move |_| {
        black_box(socket.read().expect("it is a message"));
        socket.send(Message::Text(text.clone())).expect("all is taken");
    }))
}
