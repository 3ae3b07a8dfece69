//! The outbound audio of an RTP session: from the bot's PCM to paced packets.
//!
//! In: `i16` mono PCM at the bot's rate, interruptions, and `now`. Out: one packet per 20 ms with
//! its RTP timestamp, silence included, and the start and end of speech. Combines
//! `rate_converter`, `pacer` and `encoder`. Nothing leaves before [`AudioSender::start`].

use std::collections::VecDeque;
use std::time::Instant;

use crate::audio::codec::Codec;
use crate::audio::encoder::SpeechEncoder;
use crate::audio::opus::{EncoderSettings, RTP_CLOCK_HZ};
use crate::audio::pacer::{self, Pacer};
use crate::audio::rate_converter::RateConverter;
use crate::event::SessionEvent;

/// The rate of the silence that is sent until the bot requests audio.
const DEFAULT_RATE_HZ: u32 = 16_000;

/// The start or end of the bot's speech, as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeechEvent {
    Started,
    Stopped,
}

impl From<SpeechEvent> for SessionEvent {
    fn from(event: SpeechEvent) -> Self {
        match event {
            SpeechEvent::Started => SessionEvent::SpeechStarted,
            SpeechEvent::Stopped => SessionEvent::SpeechStopped,
        }
    }
}

/// One packet to send.
pub struct EncodedPacket<'a> {
    pub payload: &'a [u8],
    /// RTP timestamp in ticks of the codec's clock, from zero at the start of the session.
    pub ticks: u64,
    /// The PCM of the payload, for the audio-level header extension.
    pub pcm: &'a [i16],
}

/// The sending half of a session's audio.
pub struct AudioSender {
    codec: Codec,
    /// Whether the peer plays at 16 kHz, so audio above 8 kHz is not encoded.
    device: bool,
    voice: EncoderSettings,
    /// From the bot's rate to that of the codec.
    converter: RateConverter,
    pacer: Pacer,
    encoder: Option<SpeechEncoder>,
    started: bool,
    /// Ticks of 48 kHz before the rate was set.
    tick_base: u64,
    ticks: u64,
    speech_events: VecDeque<SpeechEvent>,
    /// The start of speech was returned by [`AudioSender::poll_speech_event`], and not its end.
    is_speech_reported: bool,
    /// Counters from before the rate was set.
    stats_base: pacer::PacerStats,
}

impl AudioSender {
    pub fn new(codec: Codec, device: bool, voice: EncoderSettings) -> Self {
        let codec_hz = codec.encoder_rate_hz(DEFAULT_RATE_HZ);
        AudioSender {
            codec,
            device,
            voice,
            converter: RateConverter::new(DEFAULT_RATE_HZ, codec_hz),
            pacer: Pacer::new(codec_hz),
            encoder: None,
            started: false,
            tick_base: 0,
            ticks: 0,
            speech_events: VecDeque::new(),
            is_speech_reported: false,
            stats_base: pacer::PacerStats::default(),
        }
    }

    /// Sets the rate of the bot's PCM, in Hz. The stream continues with the next packet.
    pub fn set_rate(&mut self, rate_hz: u32, now: Instant) {
        if self.converter.from_hz() != rate_hz {
            self.rebuild(rate_hz, now);
        }
    }

    /// Sets the codec of a new connection. Speech queued for the old one is dropped.
    pub fn set_codec(&mut self, codec: Codec, now: Instant) {
        if self.codec != codec {
            self.codec = codec;
            self.handle_pause();
            self.rebuild(self.converter.from_hz(), now);
        }
    }

    /// Recreates converter, pacer and encoder for this rate of the bot's PCM; timestamps and
    /// counters continue.
    fn rebuild(&mut self, rate_hz: u32, now: Instant) {
        let codec_hz = self.codec.encoder_rate_hz(rate_hz);
        self.converter = RateConverter::new(rate_hz, codec_hz);
        self.stats_base = self.counters();
        self.pacer = Pacer::new(codec_hz);
        self.encoder = None;
        self.tick_base = self.ticks;
        if self.started {
            self.pacer.start(now);
        }
    }

    /// Starts the stream once the caller is connected: a packet leaves every 20 ms.
    pub fn start(&mut self, now: Instant) {
        self.started = true;
        self.pacer.start(now);
    }

    /// Drops the queued speech.
    pub fn handle_interruption(&mut self, now: Instant) {
        self.pacer.handle_interruption(now);
        self.converter.reset();
    }

    /// Pauses sending. Current speech is reported as stopped; queued audio begins new speech at the
    /// next [`AudioSender::start`].
    pub fn handle_pause(&mut self) {
        if self.pacer.handle_pause() {
            self.speech_events.push_back(SpeechEvent::Stopped);
        }
    }

    /// Returns the free capacity of the queue, in samples at the bot's rate.
    pub fn free_capacity(&self) -> usize {
        self.converter.input_samples(self.pacer.free_capacity())
    }

    /// Queues speech at the bot's rate, at most [`AudioSender::free_capacity`] samples.
    pub fn handle_audio(&mut self, pcm: &[i16], now: Instant) {
        self.pacer.handle_audio(self.converter.convert(pcm), now);
    }

    /// Returns whether no speech is queued.
    pub fn is_silent(&self) -> bool {
        self.pacer.queued().is_zero()
    }

    /// Returns whether all queued speech was sent and its end was reported.
    pub fn is_finished(&self) -> bool {
        self.is_silent() && !self.is_speech_reported
    }

    /// Returns the next packet that is due.
    pub fn poll_packet(&mut self, now: Instant) -> Option<EncodedPacket<'_>> {
        self.pacer.handle_timeout(now);
        let frame = loop {
            match self.pacer.poll_output()? {
                pacer::PacerOutput::SpeechStarted => self.speech_events.push_back(SpeechEvent::Started),
                pacer::PacerOutput::SpeechStopped => self.speech_events.push_back(SpeechEvent::Stopped),
                pacer::PacerOutput::Frame(frame) => break frame,
            }
        };
        let ticks = self.tick_base + frame.rtp_ticks;
        self.ticks = ticks + pacer::PTIME_TICKS;
        if self.encoder.is_none() {
            let rate_hz = self.codec.encoder_rate_hz(self.converter.from_hz());
            self.encoder = SpeechEncoder::new(self.codec, rate_hz, self.voice, self.device)
                .inspect_err(|error| log::warn!("no audio at {rate_hz} Hz: {error}"))
                .ok();
        }
        match self.encoder.as_mut()?.encode(frame.pcm, frame.is_silent) {
            Ok(payload) => Some(EncodedPacket {
                payload,
                ticks: ticks / u64::from(RTP_CLOCK_HZ / self.codec.clock_hz()),
                pcm: self.pacer.last_frame(),
            }),
            Err(error) => {
                log::debug!("encoding: {error}");
                None
            }
        }
    }

    /// Returns the next start or end of speech.
    pub fn poll_speech_event(&mut self) -> Option<SpeechEvent> {
        let event = self.speech_events.pop_front()?;
        self.is_speech_reported = event == SpeechEvent::Started;
        Some(event)
    }

    /// Returns the counters since the session began.
    pub fn counters(&self) -> pacer::PacerStats {
        let (before, now) = (self.stats_base, self.pacer.counters());
        pacer::PacerStats {
            frames: before.frames + now.frames,
            silent: before.silent + now.silent,
            skipped: before.skipped + now.skipped,
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pacer.poll_timeout().map(|(at, _why)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::decoder::AudioDecoder;
    use crate::audio::g711::Law;
    use std::time::Duration;

    /// Runs a sender until just before `until`; returns its packets with their timestamps.
    fn run(speaker: &mut AudioSender, pcm: &mut &[i16], from: Instant, until: Instant) -> Vec<(Vec<u8>, u64)> {
        let mut packets = Vec::new();
        let mut now = from;
        while now < until {
            let (head, tail) = pcm.split_at(speaker.free_capacity().min(pcm.len()));
            speaker.handle_audio(head, now);
            *pcm = tail;
            while let Some(packet) = speaker.poll_packet(now) {
                packets.push((packet.payload.to_vec(), packet.ticks));
            }
            now = speaker.poll_timeout().unwrap();
        }
        packets
    }

    #[test]
    fn encodes_any_bot_rate() {
        let rates = [8_000, 9_999, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];
        for (codec, rate_hz) in Codec::ALL
            .iter()
            .flat_map(|codec| rates.map(|rate_hz| (*codec, rate_hz)))
        {
            let start = Instant::now();
            let mut speaker = AudioSender::new(codec, false, EncoderSettings::default());
            speaker.set_rate(rate_hz, start);
            speaker.start(start);
            let tone = |n: u32| (std::f64::consts::TAU * 440.0 * f64::from(n) / f64::from(rate_hz)).sin() * 8_000.0;
            let pcm: Vec<i16> = (0..rate_hz).map(|n| tone(n) as i16).collect();
            let packets = run(&mut speaker, &mut &pcm[..], start, start + Duration::from_millis(1_500));
            let mut decoder = AudioDecoder::new(codec, 16_000).unwrap();
            let mut heard = Vec::new();
            for (packet, _) in &packets {
                heard.extend_from_slice(decoder.decode(packet).unwrap());
            }
            let loud: Vec<usize> = (0..heard.len()).filter(|n| heard[*n].unsigned_abs() > 3_000).collect();
            let spoken = loud[loud.len() - 1] - loud[0];
            assert!(
                spoken.abs_diff(16_000) < 200,
                "{codec} {rate_hz} Hz: a second lasted {spoken} samples of 16,000"
            );
            let middle = &heard[loud[0] + 4_000..loud[0] + 12_000];
            let rises = middle.windows(2).filter(|pair| pair[0] < 0 && pair[1] >= 0).count();
            assert!(
                (219..=221).contains(&rises),
                "{codec} {rate_hz} Hz: {rises} periods in half a second of 440 Hz"
            );
            let turns = [
                speaker.poll_speech_event(),
                speaker.poll_speech_event(),
                speaker.poll_speech_event(),
            ];
            assert_eq!(turns, [Some(SpeechEvent::Started), Some(SpeechEvent::Stopped), None]);
            assert!(speaker.is_finished());
        }
    }

    #[test]
    fn a_new_rate_keeps_the_clock() {
        let start = Instant::now();
        let mut speaker = AudioSender::new(Codec::Opus, false, EncoderSettings::default());
        assert!(speaker.poll_packet(start).is_none(), "nothing before the start");
        speaker.start(start);
        let until = start + Duration::from_millis(95);
        let mut packets = run(&mut speaker, &mut &[][..], start, until);
        speaker.set_rate(24_000, until);
        packets.extend(run(
            &mut speaker,
            &mut &[][..],
            until,
            start + Duration::from_millis(200),
        ));
        assert!(
            packets
                .windows(2)
                .all(|pair| pair[1].1 == pair[0].1 + pacer::PTIME_TICKS)
        );
        assert!(packets.len() >= 10);
    }

    /// A client that reconnects with another codec receives that codec, at the elapsed time.
    #[test]
    fn a_new_codec_keeps_the_clock_and_ends_the_speech() {
        let start = Instant::now();
        let mut speaker = AudioSender::new(Codec::Opus, false, EncoderSettings::default());
        speaker.set_rate(24_000, start);
        speaker.start(start);
        let pcm = vec![5_000; 24_000];
        let until = start + Duration::from_millis(95);
        let opus = run(&mut speaker, &mut &pcm[..], start, until);
        let (_, ticks) = *opus.last().unwrap();
        speaker.set_codec(Codec::G711(Law::A), until);
        let pcma = run(&mut speaker, &mut &[][..], until, until + Duration::from_millis(95));
        assert_eq!(pcma[0].1, (ticks + pacer::PTIME_TICKS) / 6);
        assert!(pcma.windows(2).all(|pair| pair[1].1 == pair[0].1 + 160));
        assert!(pcma.iter().all(|(packet, _)| *packet == [0xd5; 160]));
        let turns = [
            speaker.poll_speech_event(),
            speaker.poll_speech_event(),
            speaker.poll_speech_event(),
        ];
        assert_eq!(turns, [Some(SpeechEvent::Started), Some(SpeechEvent::Stopped), None]);
        assert_eq!(speaker.counters().frames, (opus.len() + pcma.len()) as u64);
    }

    #[test]
    fn an_interruption_drops_all_queued_speech() {
        for rate_hz in [16_000, 44_100] {
            let start = Instant::now();
            let mut speaker = AudioSender::new(Codec::Opus, false, EncoderSettings::default());
            speaker.set_rate(rate_hz, start);
            speaker.start(start);
            let pcm: Vec<i16> = (0..rate_hz).map(|n| if n % 40 < 20 { 9_000 } else { -9_000 }).collect();
            let until = start + Duration::from_millis(300);
            run(&mut speaker, &mut &pcm[..], start, until);
            speaker.handle_interruption(until);
            assert!(speaker.is_silent());
            let reported = [speaker.poll_speech_event(), speaker.poll_speech_event()];
            assert_eq!(reported, [Some(SpeechEvent::Started), None]);
            assert!(!speaker.is_finished(), "the end of the speech is not reported");
            let rest = speaker.converter.convert(&[0; 500]);
            assert!(rest.iter().all(|sample| *sample == 0), "nothing in the filter either");
            speaker.poll_packet(until);
            assert_eq!(speaker.poll_speech_event(), Some(SpeechEvent::Stopped));
            assert!(speaker.is_finished());
        }
    }

    #[test]
    fn a_device_receives_nothing_above_its_band() {
        let start = Instant::now();
        let pcm: Vec<i16> = (0..24_000_i32)
            .map(|n| ((n * 7_919) % 20_000 - 10_000) as i16)
            .collect();
        // To afford copies of packets, libopus begins in a narrower band, and leaves it in a pause.
        let settings = EncoderSettings {
            expected_loss_percent: 0,
            ..Default::default()
        };
        for device in [false, true] {
            let mut speaker = AudioSender::new(Codec::Opus, device, settings);
            speaker.set_rate(24_000, start);
            speaker.start(start);
            let packets = run(&mut speaker, &mut &pcm[..], start, start + Duration::from_millis(900));
            // Configurations 12 and up are hybrid and CELT (RFC 6716 table 2).
            let beyond = packets.iter().filter(|(packet, _)| packet[0] >> 3 >= 12).count();
            assert_eq!(beyond > 0, !device);
        }
    }

    /// The configured settings apply from the first packet on, and at a new rate as well.
    #[test]
    fn the_encoder_uses_the_configured_complexity() {
        let start = Instant::now();
        let said = |complexity, rate_hz: u32| {
            let voice = EncoderSettings {
                complexity,
                ..EncoderSettings::default()
            };
            let mut speaker = AudioSender::new(Codec::Opus, false, voice);
            speaker.set_rate(rate_hz, start);
            speaker.start(start);
            let pcm: Vec<i16> = (0..rate_hz as i32)
                .map(|n| ((n * n % 20_011) - 10_000) as i16)
                .collect();
            run(&mut speaker, &mut &pcm[..], start, start + Duration::from_millis(900))
        };
        for rate_hz in [16_000, 24_000] {
            assert_ne!(said(0, rate_hz), said(10, rate_hz), "{rate_hz} Hz");
            assert_eq!(said(10, rate_hz), said(10, rate_hz), "{rate_hz} Hz");
        }
    }
}
