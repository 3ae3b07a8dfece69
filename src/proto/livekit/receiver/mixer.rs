//! Mixes several tracks into one signal.
//!
//! In: decoded PCM of each track, as it arrives. Out: frames of 20 ms. A single track passes
//! through unchanged and without delay, in bursts if it arrives so; its last frame sets the clock.
//! While two or more tracks are active, the clock runs on its own: one frame every 20 ms, of
//! whatever is available. Without input there is no output, as with a single silent caller. If all
//! tracks were delayed together, the missed frames follow at once. A late track misses its frame
//! and plays it with the next one, so it lags by its network's jitter. The backlog from that, or
//! from a clock that is faster than ours, is at most [`MIX_BACKLOG_MAX`]; the part that was not
//! needed for `MIX_WINDOW` is dropped during silence. A slower clock misses one frame each time
//! it is a frame behind. The silence of a track's pause is passed on as far as no other track
//! covers that time. Sums are clipped at full scale.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::MixStats;
use crate::audio::codec::Codec;
use crate::audio::elapsed::ElapsedAudio;
use crate::audio::packet::AudioPacket;
use crate::audio::receiver::AudioReceiver;
use crate::limits::MIX_BACKLOG_MAX;

/// Window over which the backlog of a track is observed before its unused part is dropped: longer
/// than usual changes of the network delay.
const MIX_WINDOW: Duration = Duration::from_secs(2);

const FRAME: Duration = Duration::from_millis(20);
/// How late a track may be, when a second one joins, before it misses a frame.
const SLACK: Duration = Duration::from_millis(10);
/// The peak of samples that count as silence: -40 dBFS.
const QUIET: u16 = 327;

/// One track of a mix.
pub struct Track {
    pub sid: Arc<str>,
    pub identity: Arc<str>,
    pub listener: AudioReceiver,
    pub is_ended: bool,
    pub mix_stats: MixStats,
    /// Decoded audio that has not been mixed.
    pcm: VecDeque<i16>,
    rate_hz: u32,
    /// When audio was last decoded, and how long the track counts as active after that.
    last: Option<Instant>,
    activity_timeout: Duration,
    /// Whether it was already active when that packet arrived.
    is_steady: bool,
    /// The smallest backlog in frames after mixing, over the watched frames.
    backlog_min: usize,
    watched_frames: u32,
    /// Frames of the backlog that were never needed.
    excess_frames: usize,
}

impl Track {
    pub fn new(sid: Arc<str>, identity: Arc<str>) -> Self {
        Track {
            sid,
            identity,
            listener: AudioReceiver::new(Codec::Opus),
            is_ended: false,
            mix_stats: MixStats::default(),
            pcm: VecDeque::new(),
            rate_hz: 0,
            last: None,
            activity_timeout: FRAME,
            is_steady: false,
            backlog_min: usize::MAX,
            watched_frames: 0,
            excess_frames: 0,
        }
    }

    /// Sets the rate. Audio decoded at the old rate is dropped.
    pub fn set_rate(&mut self, rate_hz: u32) {
        while self.listener.poll_frame() {
            self.listener.take_frame();
        }
        self.listener.set_rate(rate_hz);
        self.rate_hz = rate_hz;
        self.pcm.clear();
    }

    pub fn handle_packet(&mut self, packet: &AudioPacket, now: Instant) {
        if self.is_ended {
            // A track that returns has new sequence numbers.
            self.is_ended = false;
            self.listener.handle_restart();
        }
        self.listener.handle_packet(packet, now);
    }

    /// Tells whether the track has ended and is completely played.
    pub fn is_over(&self) -> bool {
        self.is_ended && self.pcm.is_empty() && self.listener.poll_timeout().is_none()
    }

    /// Returns the number of samples in the backlog.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.pcm.len()
    }

    /// Takes the audio that is decoded by now, and at most `missing` of silence.
    fn fill(&mut self, now: Instant, mut missing: Duration) {
        let mut came = None;
        while self.listener.poll_frame() {
            let is_silence = self.listener.is_silence();
            let (pcm, rate_hz) = self.listener.take_frame();
            if is_silence {
                if let Some(rest) = missing.checked_sub(FRAME).filter(|_| !self.is_ended) {
                    missing = rest;
                    self.pcm.extend(pcm);
                }
                continue;
            }
            came = Some(Duration::from_secs(pcm.len() as u64) / rate_hz.max(1));
            self.pcm.extend(pcm);
        }
        if let Some(length) = came {
            self.is_steady = self.is_active_at(now);
            self.activity_timeout = 2 * length + FRAME;
            self.last = Some(now);
        }
    }

    fn is_active_at(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now < last + self.activity_timeout)
    }

    /// Tells whether a missing frame is a gap within speech.
    fn is_speaking(&self, now: Instant) -> bool {
        self.is_steady && !self.is_ended && self.is_active_at(now)
    }

    /// Returns when a partial frame is played, padded with silence.
    fn flush_at(&self) -> Option<Instant> {
        let is_partial = (1..self.rate_hz as usize / 50).contains(&self.pcm.len());
        let last = self.last.filter(|_| is_partial)?;
        Some(if self.is_ended {
            last
        } else {
            last + self.activity_timeout
        })
    }

    fn drop_frames(&mut self, frames: usize, samples: usize) {
        self.pcm.drain(..frames * samples);
        self.mix_stats.dropped += frames as u64;
    }

    /// Watches the backlog after mixing, and drops what is never needed.
    fn drop_excess(&mut self, samples: usize) {
        self.backlog_min = self.backlog_min.min(self.pcm.len() / samples);
        self.watched_frames += 1;
        if FRAME * self.watched_frames >= MIX_WINDOW {
            self.excess_frames = self.backlog_min;
            self.backlog_min = usize::MAX;
            self.watched_frames = 0;
        }
        if self.excess_frames > 0 && self.pcm.len() >= samples {
            let mut front = self.pcm.iter().take(samples);
            if front.all(|sample| sample.unsigned_abs() <= QUIET) {
                self.drop_frames(1, samples);
                self.excess_frames -= 1;
                self.backlog_min = usize::MAX;
                self.watched_frames = 0;
            }
        }
    }
}

/// The tracks that are mixed into one signal.
#[derive(Default)]
pub struct Mixer {
    pub tracks: Vec<Track>,
    /// When the next frame is due while several tracks are active.
    tick: Option<Instant>,
    /// A frame waits for `tick`.
    is_waiting: bool,
    elapsed: ElapsedAudio,
    sum: Vec<i32>,
}

impl Mixer {
    /// Writes the next frame of `samples` samples, if it is due.
    pub fn poll(&mut self, samples: usize, now: Instant, frame: &mut Vec<i16>) -> bool {
        if samples == 0 {
            return false;
        }
        self.is_waiting = false;
        let missing = self.elapsed.missing(now);
        for track in &mut self.tracks {
            track.fill(now, missing);
            if track.flush_at().is_some_and(|at| now >= at) {
                track.pcm.resize(samples, 0);
            }
        }
        let has_frame = |track: &Track| track.pcm.len() >= samples;
        if !self.tracks.iter().any(has_frame) {
            return false;
        }
        let takes_part = |track: &&Track| has_frame(track) || (track.is_active_at(now) && !track.is_ended);
        let is_alone = self.tracks.iter().filter(takes_part).count() == 1;
        // A clock that is too far behind has stopped.
        let tick = self.tick.filter(|tick| now < *tick + MIX_BACKLOG_MAX && !is_alone);
        if let Some(tick) = tick.filter(|tick| now < *tick) {
            self.tick = Some(tick);
            self.is_waiting = true;
            self.trim_backlog(samples);
            return false;
        }
        self.tick = Some(tick.map_or(now + SLACK, |tick| tick) + FRAME);
        self.mix(samples, now, frame);
        if !is_alone {
            self.tracks.iter_mut().for_each(|track| track.drop_excess(samples));
        }
        true
    }

    /// Drops the oldest audio of tracks that are too far ahead.
    fn trim_backlog(&mut self, samples: usize) {
        let held_max = (MIX_BACKLOG_MAX.as_millis() / FRAME.as_millis()) as usize;
        for track in &mut self.tracks {
            let held = track.pcm.len() / samples;
            if held > held_max {
                track.drop_frames(held - held_max, samples);
            }
        }
    }

    fn mix(&mut self, samples: usize, now: Instant, frame: &mut Vec<i16>) {
        self.elapsed.handle_audio(FRAME, now);
        self.sum.clear();
        self.sum.resize(samples, 0);
        for track in &mut self.tracks {
            if track.pcm.len() < samples {
                track.mix_stats.inserted += u64::from(track.is_speaking(now));
                continue;
            }
            for (sum, sample) in self.sum.iter_mut().zip(track.pcm.drain(..samples)) {
                *sum += i32::from(sample);
            }
        }
        frame.clear();
        let cut = |sum: &i32| (*sum).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
        frame.extend(self.sum.iter().map(cut));
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        let tracks = self.tracks.iter();
        let tracks = tracks.flat_map(|track| [track.listener.poll_timeout(), track.flush_at()]);
        let tick = self.tick.filter(|_| self.is_waiting);
        tracks.chain([tick]).flatten().min()
    }
}
