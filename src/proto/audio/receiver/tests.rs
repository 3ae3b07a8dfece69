//! Tests that the frames are as long as the time that passed, in virtual time.

use super::*;
use crate::audio::g711::Law;

const RATE_HZ: u32 = 16_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

struct Line {
    receiver: AudioReceiver,
    start: Instant,
    sequence: u64,
    /// Time of the frames that were passed on, and how much of it is silence of a pause.
    received: Duration,
    silence: Duration,
}

impl Line {
    fn new() -> Self {
        let mut receiver = AudioReceiver::new(Codec::G711(Law::Mu));
        receiver.set_rate(RATE_HZ);
        Line {
            receiver,
            start: Instant::now(),
            sequence: 0,
            received: Duration::ZERO,
            silence: Duration::ZERO,
        }
    }

    fn drain(&mut self) {
        while self.receiver.poll_frame() {
            let is_silence = self.receiver.is_silence();
            let (pcm, rate_hz) = self.receiver.take_frame();
            assert!(!is_silence || pcm.iter().all(|sample| *sample == 0));
            let length = Duration::from_secs(pcm.len() as u64) / rate_hz;
            self.received += length;
            self.silence += if is_silence { length } else { Duration::ZERO };
        }
    }

    /// Handles the timeouts up to a moment.
    fn run(&mut self, until_ms: u64) {
        let until = self.start + ms(until_ms);
        while let Some(at) = self.receiver.poll_timeout().filter(|at| *at <= until) {
            self.receiver.handle_timeout(at);
            self.drain();
            assert!(self.receiver.poll_timeout().is_none_or(|next| next > at), "it spins");
        }
    }

    /// Passes the next packet of 20 ms, which was sent and arrives at these times.
    fn packet(&mut self, sent_ms: u64, arrives_ms: u64) {
        self.packet_of(0x55, sent_ms, arrives_ms);
    }

    fn packet_of(&mut self, byte: u8, sent_ms: u64, arrives_ms: u64) {
        self.run(arrives_ms);
        self.sequence += 1;
        let now = self.start + ms(arrives_ms);
        self.receiver
            .handle_payload(self.sequence, 8 * sent_ms, &[byte; 160], now);
        self.drain();
    }

    /// Passes packets that arrive at once, from one time up to another.
    fn speak(&mut self, from_ms: u64, until_ms: u64) {
        for at in (from_ms..until_ms).step_by(20) {
            self.packet(at, at);
        }
    }
}

#[test]
fn the_pauses_of_discontinuous_transmission_are_as_long_as_they_were() {
    let mut line = Line::new();
    line.speak(0, 400);
    for at in (780..=5_180).step_by(400) {
        line.packet(at, at);
        assert_eq!(line.received, ms(at + 20), "after the packet at {at} ms");
    }
    // The network varies.
    for (nth, late) in [30, 0, 40, 10, 20].into_iter().enumerate() {
        let sent = 5_580 + 400 * nth as u64;
        line.packet(sent, sent + late);
        let off = line.received.abs_diff(ms(sent + 20));
        assert!(off <= ms(100), "{off:?} off, {late} ms late");
    }
    line.speak(7_580, 8_580);
    assert!(line.received.abs_diff(ms(8_580)) <= ms(100), "{:?}", line.received);
}

/// A long pause without packets is filled in part, since a bot's queue has an end.
#[test]
fn the_silence_of_one_pause_is_bounded() {
    let mut line = Line::new();
    line.speak(0, 400);
    line.speak(60_000, 60_400);
    assert_eq!((line.silence, line.received), (AUDIO_PAUSE_FILLED_MAX, ms(1_600)));
}

/// A lost packet of a pause does not shorten it; losses within speech are concealed and no more.
#[test]
fn losses_in_a_pause_take_their_time() {
    let mut line = Line::new();
    line.speak(0, 400);
    line.sequence += 1;
    line.packet(1_180, 1_180);
    line.run(1_260);
    assert!(line.received.abs_diff(ms(1_200)) <= ms(80), "{:?}", line.received);
    let silence = line.silence;
    line.speak(1_200, 1_400);
    line.sequence += 10;
    line.speak(1_600, 2_000);
    assert_eq!(line.silence, silence);
}

/// The last part of a pause does not delay the speech after it.
#[test]
fn no_silence_is_passed_on_before_speech() {
    let mut line = Line::new();
    line.speak(0, 400);
    line.packet(780, 780);
    let silence = line.silence;
    assert_eq!(silence, ms(380));
    line.packet_of(0, 1_100, 1_100);
    line.packet_of(0, 1_120, 1_120);
    assert_eq!(line.silence, silence);
    line.packet(1_140, 1_140);
    line.packet(1_540, 1_540);
    assert_eq!(line.silence, silence + ms(380), "what was left out is not made up for");
}

/// A clock that jumps, and packets that are late together, are no pause.
#[test]
fn only_time_that_passed_is_filled() {
    let mut line = Line::new();
    line.speak(0, 400);
    for at in (400..800).step_by(20) {
        line.packet(at + 3_600_000, at);
    }
    for sent in (800..1_200).step_by(20) {
        line.packet(sent + 3_600_000, 1_200);
    }
    assert_eq!((line.received, line.silence), (ms(1_200), Duration::ZERO));
}

#[test]
fn nothing_is_filled_before_the_first_packet() {
    let mut line = Line::new();
    line.run(10_000);
    line.packet(10_000, 10_000);
    assert_eq!(line.received, ms(20));
}

/// Packets that cannot be decoded are reported once, after 3 s of them in a row; a few are none,
/// and neither are packets with some between them that can be decoded.
#[test]
fn audio_that_cannot_be_decoded_is_reported_once() {
    for (packets, decodable, reports) in [(149, 0, 0), (151, 0, 1), (1_000, 0, 1), (1_000, 100, 0)] {
        let (mut undecodable, start) = (UndecodableAudio::default(), Instant::now());
        let mut reported = Vec::new();
        for nth in 0..packets {
            if decodable > 0 && nth % decodable == 0 {
                undecodable.handle_success();
            } else {
                reported.extend(undecodable.handle_failure(Some(start + nth * ms(20))));
            }
        }
        assert_eq!(reported.len(), reports, "{packets} packets, {decodable}");
    }
    // One packet each 400 ms, as in a pause of discontinuous transmission, proves nothing yet.
    let (mut undecodable, start) = (UndecodableAudio::default(), Instant::now());
    assert!(
        (0..UNDECODABLE_PACKETS_MIN - 1).all(|nth| undecodable.handle_failure(Some(start + nth * ms(400))).is_none())
    );
}

/// The receiver counts what the decoder refuses, and starts again with what it decodes.
#[test]
fn refused_packets_are_counted_in_a_row() {
    let mut receiver = AudioReceiver::new(Codec::Opus);
    receiver.set_rate(RATE_HZ);
    let start = Instant::now();
    let drain = |receiver: &mut AudioReceiver| {
        while receiver.poll_frame() {
            receiver.take_frame();
        }
    };
    for nth in 0..200_u64 {
        let now = start + ms(20 * nth);
        receiver.handle_timeout(now);
        // A packet of several frames without their number (RFC 6716 section 3.2.5).
        receiver.handle_payload(nth, 960 * nth, &[0x03], now);
        drain(&mut receiver);
    }
    let refused = receiver.stats().unreadable + receiver.stats().counters.refused;
    assert!(refused >= 190, "{refused}");
    assert!(receiver.undecodable.is_reported);
}
