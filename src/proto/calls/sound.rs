//! The sound of a call, as both sides heard it: the caller on the left, the bot on the right.
//!
//! In: the frames of both directions where they pass the session, each with its time since the call
//! began, interruptions and keys. Out: stereo PCM, and the head of its WAV file. All times are of
//! one clock, so both channels are aligned. A caller's frame is placed where it ends at its time,
//! frames that follow each other without a gap between them. The session takes the bot's speech a
//! little ahead of its time, so speech begins at its time or behind that before it, and an
//! interruption removes what was not heard yet. Around a key, the caller is silent: the sound of
//! keys tells which they were. Source: RIFF WAVE.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::audio::resample::Resampler;
use crate::limits::RATES_HZ;

/// How far frames of a caller may be from where they belong before a gap is left: twice a bad
/// jitter.
const SLACK: Duration = Duration::from_millis(120);
/// Sound that may still change: a key takes back sound that came before it was known. A listener
/// gets the sound so much later.
pub const OPEN: Duration = Duration::from_millis(1000);
/// Speech of the bot ahead of its time; more than a session takes.
const AHEAD_MAX: Duration = Duration::from_secs(10);
/// What is silent before a key is known, and afterwards.
const KEY_BEFORE: Duration = Duration::from_millis(800);
const KEY_AFTER: Duration = Duration::from_millis(300);
/// Callers whose frames are placed apart; those of others are not recorded.
const CALLERS_MAX: usize = 16;
/// Bytes of one moment: two channels of 16 bits.
const FRAME_BYTES: u64 = 4;
/// Bytes of the head of a file.
pub const HEAD_BYTES: u64 = 44;

/// What passes the tap of a call.
#[derive(Clone, Debug)]
pub enum TappedSound {
    /// A frame of a caller, who has an identity where several are received apart.
    Caller {
        pcm: Arc<[i16]>,
        rate_hz: u32,
        identity: Option<Arc<str>>,
    },
    /// Speech of the bot, where the session takes it.
    Bot { pcm: Arc<[i16]>, rate_hz: u32 },
    /// The bot takes back the speech that was not played yet.
    Interruption,
    /// A caller presses a key.
    Key,
}

/// Mixes the sound of one call.
pub struct CallSound {
    rate_hz: u32,
    callers: Vec<RecordedCaller>,
    bot: RecordedBot,
    /// Moments that were taken.
    taken: u64,
    /// Those that follow them.
    open: VecDeque<[i16; 2]>,
    /// Until this moment, callers are silent.
    keys_until: u64,
    resampled: Vec<i16>,
}

struct RecordedCaller {
    identity: Option<Arc<str>>,
    rate: RateTrack,
    /// The moment after the last frame; `None` before the first one.
    end: Option<u64>,
}

#[derive(Default)]
struct RecordedBot {
    rate: RateTrack,
    end: u64,
}

/// The rate of a direction, which may change.
#[derive(Default)]
struct RateTrack {
    from_hz: u32,
    resampler: Option<Resampler>,
}

impl RateTrack {
    /// Returns the samples at another rate.
    fn convert<'a>(&mut self, pcm: &'a [i16], from_hz: u32, to_hz: u32, buffer: &'a mut Vec<i16>) -> &'a [i16] {
        if from_hz != self.from_hz {
            self.from_hz = from_hz;
            self.resampler = (from_hz != to_hz).then(|| Resampler::new(from_hz, to_hz));
        }
        match &mut self.resampler {
            Some(resampler) => {
                buffer.clear();
                resampler.process(pcm, buffer);
                buffer
            }
            None => pcm,
        }
    }
}

impl CallSound {
    /// Begins the sound of a call at its first moment. `rate_hz` is that of the result.
    pub fn new(rate_hz: u32) -> Self {
        CallSound {
            rate_hz,
            callers: Vec::new(),
            bot: RecordedBot::default(),
            taken: 0,
            open: VecDeque::new(),
            keys_until: 0,
            resampled: Vec::new(),
        }
    }

    /// Handles what passed the tap at this time.
    pub fn handle(&mut self, tapped: &TappedSound, at: Duration) {
        match tapped {
            TappedSound::Caller { pcm, rate_hz, identity } => self.add_caller(pcm, *rate_hz, identity.as_ref(), at),
            TappedSound::Bot { pcm, rate_hz } => self.add_bot(pcm, *rate_hz, at),
            TappedSound::Interruption => self.interrupt(at),
            TappedSound::Key => self.press_key(at),
        }
    }

    /// Adds a frame of a caller, who has an identity where several are received apart.
    fn add_caller(&mut self, pcm: &[i16], from_hz: u32, identity: Option<&Arc<str>>, at: Duration) {
        if from_hz == 0 {
            return;
        }
        let (now, slack) = (self.moment(at), self.moment(SLACK));
        let known = self
            .callers
            .iter()
            .position(|caller| caller.identity.as_ref() == identity);
        let nth = match known {
            Some(nth) => nth,
            None if self.callers.len() < CALLERS_MAX => {
                self.callers.push(RecordedCaller {
                    identity: identity.cloned(),
                    rate: RateTrack::default(),
                    end: None,
                });
                self.callers.len() - 1
            }
            None => return,
        };
        let mut buffer = std::mem::take(&mut self.resampled);
        let caller = &mut self.callers[nth];
        let pcm = caller.rate.convert(pcm, from_hz, self.rate_hz, &mut buffer);
        let begin = now.saturating_sub(pcm.len() as u64);
        // A gap of the caller is silence; frames that come at once follow each other.
        let begin = caller.end.filter(|end| begin <= end + slack).unwrap_or(begin);
        caller.end = Some(begin + pcm.len() as u64);
        if begin <= now + self.moment(OPEN) {
            self.mix(begin, pcm, 0);
        }
        self.resampled = buffer;
    }

    /// Adds speech of the bot, where the session takes it.
    fn add_bot(&mut self, pcm: &[i16], from_hz: u32, at: Duration) {
        let now = self.moment(at);
        if from_hz == 0 || self.bot.end > now + self.moment(AHEAD_MAX) {
            return;
        }
        let mut buffer = std::mem::take(&mut self.resampled);
        let pcm = self.bot.rate.convert(pcm, from_hz, self.rate_hz, &mut buffer);
        let begin = self.bot.end.max(now);
        self.bot.end = begin + pcm.len() as u64;
        self.mix(begin, pcm, 1);
        self.resampled = buffer;
    }

    /// Removes the speech of the bot that was not heard yet.
    fn interrupt(&mut self, at: Duration) {
        let now = self.moment(at);
        self.bot.end = self.bot.end.min(now);
        self.silence(now, u64::MAX, 1);
    }

    /// Makes the callers silent around a key.
    fn press_key(&mut self, at: Duration) {
        let begin = self.moment(at.saturating_sub(KEY_BEFORE));
        self.keys_until = self.moment(at + KEY_AFTER);
        self.silence(begin, self.keys_until, 0);
    }

    /// Appends what no longer changes at this time, as little-endian samples of both channels.
    pub fn take(&mut self, at: Duration, into: &mut Vec<u8>) {
        self.take_until(self.moment(at.saturating_sub(OPEN)), into);
    }

    /// Appends the rest of a call that ends at this time. What the bot would have said afterwards
    /// was not heard.
    pub fn finish(&mut self, at: Duration, into: &mut Vec<u8>) {
        self.take_until(self.moment(at), into);
        self.open.clear();
    }

    /// Returns how long the sound is that was taken.
    pub fn length(&self) -> Duration {
        Duration::from_millis(self.taken * 1000 / u64::from(self.rate_hz))
    }

    fn moment(&self, at: Duration) -> u64 {
        (at.as_micros() * u128::from(self.rate_hz) / 1_000_000) as u64
    }

    fn mix(&mut self, begin: u64, pcm: &[i16], channel: usize) {
        for (moment, sample) in (begin..).zip(pcm) {
            if channel == 0 && moment < self.keys_until {
                continue;
            }
            // What was taken cannot change.
            let Some(at) = moment.checked_sub(self.taken) else {
                continue;
            };
            let at = at as usize;
            if at >= self.open.len() {
                self.open.resize(at + 1, [0; 2]);
            }
            let mixed = &mut self.open[at][channel];
            *mixed = mixed.saturating_add(*sample);
        }
    }

    fn silence(&mut self, begin: u64, end: u64, channel: usize) {
        let index = |moment: u64| usize::try_from(moment.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        let (begin, end) = (index(begin), index(end).min(self.open.len()));
        for moment in self.open.range_mut(begin.min(end)..end) {
            moment[channel] = 0;
        }
    }

    fn take_until(&mut self, end: u64, into: &mut Vec<u8>) {
        let count = end.saturating_sub(self.taken);
        let known = (count as usize).min(self.open.len());
        for [caller, bot] in self.open.drain(..known) {
            into.extend_from_slice(&caller.to_le_bytes());
            into.extend_from_slice(&bot.to_le_bytes());
        }
        let silent = count - known as u64;
        into.resize(into.len() + (silent * FRAME_BYTES) as usize, 0);
        self.taken += count;
    }
}

/// Returns the head of a WAV file with so many bytes of sound.
pub fn head(rate_hz: u32, sound_bytes: u64) -> [u8; HEAD_BYTES as usize] {
    let sound_bytes = u32::try_from(sound_bytes).unwrap_or(u32::MAX);
    let sound_bytes = sound_bytes.min(u32::MAX - HEAD_BYTES as u32);
    let mut head = [0; HEAD_BYTES as usize];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        head[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(b"RIFF");
    put(&(sound_bytes + HEAD_BYTES as u32 - 8).to_le_bytes());
    put(b"WAVEfmt ");
    put(&16_u32.to_le_bytes());
    // PCM, two channels.
    put(&1_u16.to_le_bytes());
    put(&2_u16.to_le_bytes());
    put(&rate_hz.to_le_bytes());
    put(&(rate_hz * FRAME_BYTES as u32).to_le_bytes());
    put(&(FRAME_BYTES as u16).to_le_bytes());
    put(&16_u16.to_le_bytes());
    put(b"data");
    put(&sound_bytes.to_le_bytes());
    head
}

/// Returns the head of a file of this length that was not written to its end, and the length to cut
/// it to. `None` if it has no sound.
pub fn repaired(begin: &[u8], file_bytes: u64) -> Option<([u8; HEAD_BYTES as usize], u64)> {
    let begin: &[u8; HEAD_BYTES as usize] = begin.first_chunk()?;
    let rate_hz = u32::from_le_bytes(*begin[24..].first_chunk()?);
    let sound = file_bytes.checked_sub(HEAD_BYTES)? / FRAME_BYTES * FRAME_BYTES;
    // All but the lengths, which are written last. A power cut may leave anything.
    let is_ours =
        RATES_HZ.contains(&rate_hz) && begin[..4] == head(rate_hz, 0)[..4] && begin[8..40] == head(rate_hz, 0)[8..40];
    (is_ours && sound > 0).then(|| (head(rate_hz, sound), HEAD_BYTES + sound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::Wav;

    const RATE: u32 = 8_000;
    const MS: Duration = Duration::from_millis(1);
    /// Samples of a millisecond.
    const PER_MS: usize = 8;

    /// Returns the samples of each channel.
    fn channels(bytes: &[u8]) -> [Vec<i16>; 2] {
        let of = |channel: usize| {
            let frames = bytes.chunks_exact(4);
            let samples = frames.map(|frame| i16::from_le_bytes([frame[2 * channel], frame[2 * channel + 1]]));
            samples.collect()
        };
        [of(0), of(1)]
    }

    fn finished(mut sound: CallSound, at: Duration) -> [Vec<i16>; 2] {
        let mut bytes = Vec::new();
        sound.finish(at, &mut bytes);
        channels(&bytes)
    }

    /// Returns the milliseconds in which a channel is not silent.
    fn loud(samples: &[i16]) -> Vec<usize> {
        let ms = samples.chunks(PER_MS).enumerate();
        ms.filter(|(_, part)| part.iter().any(|sample| *sample != 0))
            .map(|(ms, _)| ms)
            .collect()
    }

    fn frame(sample: i16, ms: usize) -> Vec<i16> {
        vec![sample; ms * PER_MS]
    }

    /// A caller's frame ends when it comes, and the bot's speech begins then: they are apart by
    /// what they were apart.
    #[test]
    fn both_sides_are_placed_by_one_clock() {
        let mut sound = CallSound::new(RATE);
        sound.add_caller(&frame(7, 20), RATE, None, 500 * MS);
        sound.add_bot(&frame(9, 20), RATE, 500 * MS);
        let [caller, bot] = finished(sound, 1000 * MS);
        assert_eq!((caller.len(), bot.len()), (1000 * PER_MS, 1000 * PER_MS));
        assert_eq!(loud(&caller), (480..500).collect::<Vec<_>>());
        assert_eq!(loud(&bot), (500..520).collect::<Vec<_>>());
    }

    /// Jitter leaves no gap, and a pause does.
    #[test]
    fn frames_of_a_caller_follow_each_other() {
        let mut sound = CallSound::new(RATE);
        for (nth, late) in [0, 60, 45, 30, 70].into_iter().enumerate() {
            sound.add_caller(&frame(7, 20), RATE, None, (100 + 20 * nth as u32 + late) * MS);
        }
        sound.add_caller(&frame(7, 20), RATE, None, 700 * MS);
        let [caller, _] = finished(sound, 1000 * MS);
        assert_eq!(loud(&caller), (80..180).chain(680..700).collect::<Vec<_>>());
    }

    /// The session takes speech ahead of its time; an interruption removes what was not heard, and
    /// what follows begins at once.
    #[test]
    fn an_interruption_removes_what_was_not_heard() {
        let mut sound = CallSound::new(RATE);
        for _ in 0..5 {
            sound.add_bot(&frame(9, 20), RATE, 100 * MS);
        }
        sound.interrupt(150 * MS);
        sound.add_bot(&frame(5, 10), RATE, 160 * MS);
        let [_, bot] = finished(sound, 300 * MS);
        assert_eq!(loud(&bot), (100..150).chain(160..170).collect::<Vec<_>>());
        assert_eq!(bot[165 * PER_MS], 5);
    }

    /// What the bot would have said after the end was not heard.
    #[test]
    fn the_sound_ends_with_the_call() {
        let mut sound = CallSound::new(RATE);
        sound.add_bot(&frame(9, 500), RATE, 100 * MS);
        let mut bytes = Vec::new();
        sound.take(1200 * MS, &mut bytes);
        assert_eq!(sound.length(), 200 * MS);
        sound.finish(300 * MS, &mut bytes);
        assert_eq!((sound.length(), bytes.len()), (300 * MS, 300 * PER_MS * 4));
        let [_, bot] = channels(&bytes);
        assert_eq!(loud(&bot), (100..300).collect::<Vec<_>>());
    }

    /// Keys are not to be told by their sound, and the bot goes on.
    #[test]
    fn a_caller_is_silent_around_a_key() {
        let mut sound = CallSound::new(RATE);
        for nth in 1..=100 {
            sound.add_caller(&frame(7, 20), RATE, None, 20 * nth * MS);
            sound.add_bot(&frame(9, 20), RATE, 20 * nth * MS);
            if nth == 50 {
                sound.press_key(1000 * MS);
            }
        }
        let [caller, bot] = finished(sound, 2000 * MS);
        assert_eq!(loud(&caller), (0..200).chain(1300..2000).collect::<Vec<_>>());
        assert_eq!(loud(&bot), (20..2000).collect::<Vec<_>>());
    }

    /// Callers that are received apart are mixed, up to a number of them.
    #[test]
    fn several_callers_are_mixed() {
        let mut sound = CallSound::new(RATE);
        for nth in 0..=CALLERS_MAX {
            let identity = Arc::from(nth.to_string());
            sound.add_caller(&frame(3, 20), RATE, Some(&identity), 20 * MS);
        }
        sound.add_caller(&frame(i16::MAX, 20), RATE, Some(&Arc::from("0")), 40 * MS);
        sound.add_caller(&frame(i16::MAX, 20), RATE, Some(&Arc::from("1")), 40 * MS);
        let [caller, _] = finished(sound, 40 * MS);
        assert_eq!((caller[0], caller[30 * PER_MS]), (3 * CALLERS_MAX as i16, i16::MAX));
    }

    #[test]
    fn other_rates_are_converted() {
        let mut sound = CallSound::new(RATE);
        for nth in 1..=50 {
            sound.add_caller(&[1000; 480], 24_000, None, 20 * nth * MS);
            sound.add_bot(&[1000; 320], 16_000, 20 * nth * MS);
        }
        sound.add_bot(&[1000; 320], 0, 1000 * MS);
        let [caller, bot] = finished(sound, 1000 * MS);
        for (channel, at) in [(&caller, 500), (&caller, 900), (&bot, 500), (&bot, 900)] {
            assert!((900..1100).contains(&channel[at * PER_MS]), "{}", channel[at * PER_MS]);
        }
    }

    /// Whatever comes, memory and the file are bounded by the time.
    #[test]
    fn speech_far_ahead_is_left_out() {
        let mut sound = CallSound::new(RATE);
        for _ in 0..1000 {
            sound.add_bot(&frame(9, 100), RATE, Duration::ZERO);
            sound.add_caller(&frame(9, 100), RATE, None, Duration::ZERO);
        }
        assert!(sound.open.len() <= 11_000 * PER_MS, "{}", sound.open.len());
    }

    /// A file that a power cut left at any byte becomes one that can be read, without half a
    /// moment.
    #[test]
    fn a_file_that_was_cut_is_repaired() {
        let whole = [&head(RATE, 40)[..], &[1; 40]].concat();
        let wav = Wav::read(&whole).expect("a WAV file");
        assert_eq!((wav.rate_hz, wav.pcm.len()), (RATE, 10));
        for bytes in 0..=whole.len() {
            // The head has no length until the call is over.
            let cut = &[&head(RATE, 0)[..], &[1; 40]].concat()[..bytes];
            match repaired(cut, bytes as u64) {
                Some((head, length)) => {
                    let file = [&head[..], &cut[44..length as usize]].concat();
                    let wav = Wav::read(&file).expect("a WAV file");
                    assert_eq!(wav.pcm.len(), (bytes - 44) / 4);
                }
                None => assert!(bytes < 48, "{bytes}"),
            }
        }
        assert_eq!(repaired(&[0; 100], 100), None);
        // What a power cut may leave of a head.
        let whole = head(RATE, 0);
        for (at, bytes) in [(24, u32::MAX), (24, 0), (24, 1 << 30), (8, 0), (20, 7)] {
            let mut begin = whole;
            begin[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
            assert_eq!(repaired(&begin, 1_000), None, "{bytes} at {at}");
        }
        let longest = u64::from(u32::MAX);
        for bytes in [longest - 44, longest - 1, longest, longest + 1] {
            assert_eq!(head(RATE, bytes)[40..], (u32::MAX - 44).to_le_bytes(), "{bytes}");
        }
    }
}
