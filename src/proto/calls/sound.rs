//! The sound of a call, as both sides heard it: the caller on the left, the bot on the right.
//!
//! In: the frames of both directions where they pass the session, each with its time since the call
//! began, interruptions and keys. Out: stereo PCM, and the head of its WAV file. All times are of
//! one clock, so both channels are aligned. A caller's frame is placed where it ends at its time,
//! frames that follow each other without a gap between them; silence that is passed on late, as in
//! a pause without packets, moves nothing. The session takes the bot's speech a little ahead of its
//! time, so speech begins at its time or behind that before it, and an interruption removes what
//! was not played yet. Around a key, the caller is silent, since the sound of keys says which they
//! were.
//! Source: RIFF WAVE.

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
        let is_silent = pcm.iter().all(|sample| *sample == 0);
        let mut buffer = std::mem::take(&mut self.resampled);
        let caller = &mut self.callers[nth];
        let pcm = caller.rate.convert(pcm, from_hz, self.rate_hz, &mut buffer);
        let begin = now.saturating_sub(pcm.len() as u64);
        // A gap of the caller is silence; frames that come at once follow each other.
        let begin = caller.end.filter(|end| begin <= end + slack).unwrap_or(begin);
        let end = begin + pcm.len() as u64;
        // The silence of a pause comes at once, when the pause is known. It stands for time that
        // has passed, so speech after it does not wait for its end.
        if end > now && is_silent {
            self.resampled = buffer;
            return;
        }
        caller.end = Some(end);
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
mod tests;
