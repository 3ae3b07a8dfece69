//! The inbound audio of an RTP session: from packets to PCM at the bot's rate.
//!
//! In: audio packets with their RTP numbers, the rate that the bot requests, and `now`. Out: frames
//! of `i16` mono PCM, one per packet that arrived, was recovered or was concealed. A packet that
//! cannot be decoded is concealed and counted. Nothing is decoded before the bot requests audio.
//!
//! The frames are as long as the time that passed: digital silence fills the pauses of an encoder
//! that sends a packet now and then while there is no speech (RFC 7587 section 3.1.3). No silence
//! is passed on before a loud packet, and packets that are lost beyond the limit of concealment are
//! not replaced, since a burst would delay the speech that follows.
//! A caller from whom nothing arrives causes no frames.

use std::fmt;
use std::time::{Duration, Instant};

use crate::audio::codec::Codec;
use crate::audio::decoder::AudioDecoder;
use crate::audio::elapsed::ElapsedAudio;
use crate::audio::jitter::{self, JitterBuffer};
use crate::audio::packet::AudioPacket;
use crate::counts::{Count, Counts};
use crate::limits::CONCEALED_FRAMES_MAX;

/// Most silence that fills one pause between two packets: an Opus encoder that detects silence
/// sends a packet each 400 ms, and one may be lost. It fits into the queue of a bot.
const AUDIO_PAUSE_FILLED_MAX: Duration = Duration::from_millis(800);

/// The length of a frame of silence.
const SILENCE: Duration = Duration::from_millis(20);
/// The peak of the samples of a packet that continues a pause: -30 dBFS.
const QUIET: u16 = 1_036;

/// How long packets that cannot be decoded arrive before the warning, and the least number of them:
/// half of what a caller sends in that time.
const UNDECODABLE_FOR: Duration = Duration::from_secs(3);
const UNDECODABLE_PACKETS_MIN: u32 = 75;

/// The packets since the last one that could be decoded.
#[derive(Debug, Default)]
struct UndecodableAudio {
    since: Option<Instant>,
    packets: u32,
    is_reported: bool,
}

impl UndecodableAudio {
    /// Handles a packet that cannot be decoded. Returns the number of all since the last one that
    /// could be, when the warning is due, which is once.
    fn handle_failure(&mut self, now: Option<Instant>) -> Option<u32> {
        let since = *self.since.get_or_insert(now?);
        self.packets = self.packets.saturating_add(1);
        let is_due = now? >= since + UNDECODABLE_FOR && self.packets >= UNDECODABLE_PACKETS_MIN;
        (is_due && !std::mem::replace(&mut self.is_reported, true)).then_some(self.packets)
    }

    fn handle_success(&mut self) {
        self.since = None;
        self.packets = 0;
    }
}

/// The receiving half of a session's audio.
pub struct AudioReceiver {
    codec: Codec,
    jitter: JitterBuffer,
    decoder: Option<AudioDecoder>,
    pcm: Vec<i16>,
    ready: bool,
    unreadable: u64,
    undecodable: UndecodableAudio,
    now: Option<Instant>,
    elapsed: ElapsedAudio,
    /// Silence of a pause that has not been passed on.
    pending_silence: Duration,
    /// The length of the last packet, and the number of packets that were lost before it.
    packet_length: Duration,
    lost_before: u64,
    /// Whether `pcm` is a packet that has not been passed on.
    is_held: bool,
    /// Whether the next frame is silence of a pause, and the samples of such a frame.
    is_silence: bool,
    silence: Vec<i16>,
}

impl AudioReceiver {
    pub fn new(codec: Codec) -> Self {
        AudioReceiver {
            codec,
            jitter: JitterBuffer::new(codec),
            decoder: None,
            pcm: Vec::new(),
            ready: false,
            unreadable: 0,
            undecodable: UndecodableAudio::default(),
            now: None,
            elapsed: ElapsedAudio::default(),
            pending_silence: Duration::ZERO,
            packet_length: SILENCE,
            lost_before: 0,
            is_held: false,
            is_silence: false,
            silence: Vec::new(),
        }
    }

    /// Sets the rate of the PCM for the bot, in Hz.
    pub fn set_rate(&mut self, rate_hz: u32) {
        if self
            .decoder
            .as_ref()
            .is_some_and(|decoder| decoder.rate_hz() == rate_hz)
        {
            return;
        }
        match AudioDecoder::new(self.codec, rate_hz) {
            Ok(decoder) => self.decoder = Some(decoder),
            Err(error) => log::warn!("no audio at {rate_hz} Hz: {error}"),
        }
    }

    /// Handles a reconnection of the caller: expect a new SSRC, sequence number and timestamp.
    pub fn handle_restart(&mut self) {
        self.jitter.handle_restart();
    }

    /// Sets the codec of further packets.
    pub fn set_codec(&mut self, codec: Codec) {
        if self.codec == codec {
            return;
        }
        self.codec = codec;
        self.jitter.set_codec(codec);
        if let Some(decoder) = self.decoder.take() {
            self.set_rate(decoder.rate_hz());
        }
    }

    pub fn handle_packet(&mut self, packet: &AudioPacket, now: Instant) {
        if packet.is_new_source {
            self.handle_restart();
        }
        self.handle_payload(packet.sequence, packet.timestamp, &packet.payload, now);
    }

    /// Handles the payload of a packet with its extended sequence number and timestamp.
    pub fn handle_payload(&mut self, sequence: u64, timestamp: u64, payload: &[u8], now: Instant) {
        self.now = Some(now);
        if self.decoder.is_some() {
            self.jitter.handle_packet(sequence, timestamp, payload, now);
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = Some(now);
        self.jitter.handle_timeout(now);
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.jitter.poll_timeout()
    }

    /// Owes the silence of a pause before the next packet, as far as that time has passed.
    fn handle_gap(&mut self, length: Duration) {
        let lost = self.jitter.counters().lost - self.lost_before;
        let unconcealed = u32::try_from(lost)
            .unwrap_or(u32::MAX)
            .saturating_sub(CONCEALED_FRAMES_MAX);
        let length = length.saturating_sub(self.packet_length.saturating_mul(unconcealed));
        let passed = self.now.map_or(Duration::ZERO, |now| self.elapsed.missing(now));
        let passed = passed.saturating_sub(self.packet_length);
        self.pending_silence = length.min(passed).min(AUDIO_PAUSE_FILLED_MAX);
    }

    /// Decodes the next frame, if there is one; [`AudioReceiver::take_frame`] returns it.
    pub fn poll_frame(&mut self) -> bool {
        while !self.ready {
            if self.is_held {
                self.release_next();
                break;
            }
            let Some(decoder) = &mut self.decoder else {
                return false;
            };
            let output = self.jitter.poll_output();
            let is_packet = matches!(output, Some(jitter::JitterOutput::Decode(_)));
            let decoded = match output {
                None => return false,
                Some(jitter::JitterOutput::Decode(packet)) => decoder.decode(packet),
                Some(jitter::JitterOutput::DecodeFec(next)) => decoder.decode_fec(next),
                Some(jitter::JitterOutput::Conceal) => decoder.conceal(),
                Some(jitter::JitterOutput::Gap { ticks }) => {
                    let length = Duration::from_secs(ticks.into()) / self.codec.clock_hz();
                    self.handle_gap(length);
                    continue;
                }
            };
            let pcm = match decoded {
                Ok(pcm) => pcm,
                Err(error) => {
                    log::debug!("audio packet: {error}");
                    self.unreadable += 1;
                    if is_packet && let Some(packets) = self.undecodable.handle_failure(self.now) {
                        log::warn!(
                            "the bot is deaf: {packets} packets of sound came in {} s and none could be decoded as {}: {error}",
                            UNDECODABLE_FOR.as_secs(),
                            self.codec
                        );
                    }
                    continue;
                }
            };
            self.pcm.clear();
            self.pcm.extend_from_slice(pcm);
            let length = Duration::from_secs(self.pcm.len() as u64) / decoder.rate_hz();
            if is_packet {
                self.undecodable.handle_success();
                if self.pcm.iter().any(|sample| sample.unsigned_abs() > QUIET) {
                    self.pending_silence = Duration::ZERO;
                }
                self.packet_length = length;
                self.lost_before = self.jitter.counters().lost;
                self.is_held = true;
            } else {
                self.elapsed.handle_replacement(length);
                self.is_silence = false;
                self.ready = true;
            }
        }
        true
    }

    /// Passes on the next frame of silence that is due before the decoded packet, or the packet.
    fn release_next(&mut self) {
        self.ready = true;
        self.is_silence = self.pending_silence >= SILENCE;
        if self.is_silence {
            self.pending_silence -= SILENCE;
            self.elapsed.handle_replacement(SILENCE);
            let rate_hz = self.decoder.as_ref().map_or(0, AudioDecoder::rate_hz);
            self.silence.resize(rate_hz as usize / 50, 0);
            return;
        }
        self.is_held = false;
        if let Some(now) = self.now {
            self.elapsed.handle_audio(self.packet_length, now);
        }
    }

    /// Returns whether the frame of [`AudioReceiver::poll_frame`] is silence of a pause.
    pub fn is_silence(&self) -> bool {
        self.is_silence
    }

    /// Returns the frame of [`AudioReceiver::poll_frame`], and its rate in Hz.
    pub fn take_frame(&mut self) -> (&[i16], u32) {
        self.ready = false;
        let rate_hz = self.decoder.as_ref().map_or(0, AudioDecoder::rate_hz);
        let pcm = if self.is_silence { &self.silence } else { &self.pcm };
        (pcm, rate_hz)
    }

    /// Returns the statistics of the caller's packets.
    pub fn stats(&self) -> InboundStats {
        InboundStats {
            counters: *self.jitter.counters(),
            unreadable: self.unreadable,
        }
    }
}

/// Statistics of a caller's packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct InboundStats {
    pub counters: jitter::JitterStats,
    /// Packets that could not be decoded.
    pub unreadable: u64,
}

impl InboundStats {
    /// Copies these values into `counts`.
    pub fn write_to(&self, counts: &mut Counts) {
        let counters = &self.counters;
        counts.set(Count::PacketsLost, counters.lost);
        counts.set(Count::PacketsLate, counters.late);
        counts.set(Count::PacketsUndecodable, self.unreadable + counters.refused);
        counts.set(Count::FramesRecovered, counters.recovered);
        counts.set(Count::FramesConcealed, counters.concealed);
    }

    /// Returns the jitter, once packets have come.
    pub fn jitter(&self) -> Option<Duration> {
        (self.counters.received > 0).then_some(self.counters.jitter)
    }

    /// Returns the packet counts for the last log line of a session.
    pub fn summary(&self, counts: &Counts) -> String {
        let (came, left) = (counts.get(Count::PacketsIn), counts.get(Count::PacketsOut));
        format!("{came} packets in, {left} out, {self}")
    }

    /// Returns the sum of both; the jitter is the greater one.
    pub fn with(&self, other: &InboundStats) -> InboundStats {
        let (one, two) = (&self.counters, &other.counters);
        InboundStats {
            counters: jitter::JitterStats {
                received: one.received + two.received,
                lost: one.lost + two.lost,
                concealed: one.concealed + two.concealed,
                recovered: one.recovered + two.recovered,
                late: one.late + two.late,
                duplicate: one.duplicate + two.duplicate,
                refused: one.refused + two.refused,
                jitter: one.jitter.max(two.jitter),
            },
            unreadable: self.unreadable + other.unreadable,
        }
    }
}

impl fmt::Display for InboundStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = &self.counters;
        write!(
            f,
            "audio: {} received, {} lost ({} recovered, {} concealed), {} late, jitter {} ms",
            counters.received,
            counters.lost,
            counters.recovered,
            counters.concealed,
            counters.late,
            counters.jitter.as_millis(),
        )?;
        if self.unreadable + counters.refused > 0 {
            write!(f, ", {} unreadable", self.unreadable + counters.refused)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
