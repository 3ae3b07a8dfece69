//! The session of the sound card with a bot.
//!
//! In: the microphone's PCM (`i16` mono at its rate), what the loudspeaker reports, what the
//! user wants, the bot's requests and speech. Out: the caller's audio at the bot's rate,
//! events, chunks of bytes for the loudspeaker, lines and levels for the terminal. In half duplex,
//! and while the canceller of the echo learns, the bot hears silence while its own voice is in the
//! room, and always from a microphone that is muted. It ends by the bot, by the terminal, by
//! silence of both sides, or when there is no microphone any more.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::json;

use super::capture::CaptureCounts;
use super::config::LocalEcho;
use super::console::ConsoleTranscript;
use super::controls::LocalControls;
use super::echo::{self, CANCELLED_RATE_HZ, EchoCanceller};
use super::meter::{LevelMeter, Speakers};
use super::playout::{LocalPlayoutOutput, Playout};
use super::speech::SpeechWindow;
use super::stop_words::StopWords;
use super::tones::LocalTone;
use crate::audio::rate_converter::RateConverter;
use crate::counts::{Count, Counts};
use crate::event::{LeaveReason, SessionEvent};
use crate::limits::{EARLY_AUDIO, FINISH_WITHIN};
use crate::rtvi;
use crate::session::{Deadline, Session, SessionOutput};
use crate::transport::Transport;

/// Time after the bot's last sound in which the microphone stays silent for it in half duplex: the
/// delay of a card, and the echo of a room.
const ECHO_TAIL: Duration = Duration::from_millis(400);
/// The factor of the bot's voice while the caller speaks over it: 12 dB less echo to remove, so
/// that the caller is noticed sooner.
const DUCKED_GAIN: f32 = 0.25;
/// How long after the last speech of the caller.
const DUCKED_FOR: Duration = Duration::from_millis(500);
/// Time without a microphone after which the session ends.
const MICROPHONE_LOST: Duration = Duration::from_secs(10);
/// Most lines for the terminal that wait.
const LINES_MAX: usize = 64;
/// Where no other deadline is, the session looks after itself this often.
const IDLE_CHECK: Duration = Duration::from_secs(10);

/// What a session of the sound card begins with.
#[derive(Clone, Debug)]
pub struct LocalSetup {
    /// Whether the caller types: what the bot understands is not shown again.
    pub types: bool,
    pub in_rate_hz: u32,
    pub out_rate_hz: u32,
    pub out_channels: u16,
    pub echo: LocalEcho,
    /// Whether tones tell its start and its end.
    pub has_tones: bool,
    /// What the user has set.
    pub controls: LocalControls,
    /// Silence of both sides that ends the session; zero never does.
    pub end: Duration,
    /// What the caller says to end it.
    pub stop_words: StopWords,
    /// Whether a terminal shows the levels.
    pub shows_levels: bool,
    /// What was said before, at the rate of the microphone.
    pub preroll: Vec<i16>,
}

/// A command for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalCommand {
    /// Write these bytes to the loudspeaker.
    Play(Vec<u8>),
    /// Show this line on the terminal.
    Show(String),
    /// Replace the row of levels on the terminal.
    ShowLevels(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalPhase {
    Live,
    /// The bot has returned; its last speech is played.
    Finishing {
        until: Instant,
        reason: LeaveReason,
    },
    Closed,
}

/// A session of the sound card.
pub struct LocalSession {
    setup: LocalSetup,
    phase: LocalPhase,
    /// Set if the echo is cancelled.
    canceller: Option<Box<dyn EchoCanceller>>,
    /// The rate of what the bot hears, before the conversion to its own.
    source_rate_hz: u32,
    /// To the rate that the bot has requested; `None` before.
    to_bot: Option<(RateConverter, u32)>,
    /// Audio before that, at `source_rate_hz`.
    early: Vec<i16>,
    /// Audio at the bot's rate; the first `taken` samples were returned.
    pcm: Vec<i16>,
    taken: usize,
    playout: Playout,
    /// The tone of the end, which is not played yet.
    last_tone: Option<LocalTone>,
    /// Whether the bot last reported that it has no more speech.
    bot_queue_empty: bool,
    /// Whether speech has left since more was requested.
    has_room: bool,
    events: VecDeque<SessionEvent>,
    transcript: ConsoleTranscript,
    lines: VecDeque<String>,
    meter: Option<LevelMeter>,
    is_stopped: bool,
    /// Why it has ended.
    left: Option<LeaveReason>,
    detector: SpeechWindow,
    /// The last time at which somebody spoke, or the bot sent a text.
    active: Instant,
    /// Until when the bot is lowered.
    ducked_until: Option<Instant>,
    /// The last time at which the microphone worked.
    microphone: Instant,
    received_samples: u64,
    capture: CaptureCounts,
    /// Whether the canceller has failed, and whether the driver knows.
    has_echo: bool,
    is_echo_known: bool,
}

impl LocalSession {
    pub fn new(setup: LocalSetup, now: Instant) -> Self {
        // The client of the sound card takes texts, so that transcripts come.
        let ready = json!({
            "label": rtvi::LABEL,
            "type": "client-ready",
            "id": "local",
            "data": {"version": rtvi::VERSION, "about": {"library": "edge-runner-local"}},
        });
        let mut canceller = match setup.echo {
            LocalEcho::Cancel => echo::canceller(setup.in_rate_hz, setup.out_rate_hz),
            LocalEcho::Half | LocalEcho::Off => None,
        };
        let source_rate_hz = match canceller {
            Some(_) => CANCELLED_RATE_HZ,
            None => setup.in_rate_hz,
        };
        let early = match &mut canceller {
            Some(canceller) => canceller.cancel(&setup.preroll).to_vec(),
            None => setup.preroll.clone(),
        };
        let mut playout = Playout::new(setup.out_rate_hz);
        if setup.has_tones {
            playout.add_tone(LocalTone::Start.pcm(setup.out_rate_hz));
        }
        LocalSession {
            phase: LocalPhase::Live,
            canceller,
            source_rate_hz,
            to_bot: None,
            early,
            pcm: Vec::new(),
            taken: 0,
            playout,
            last_tone: None,
            bot_queue_empty: true,
            has_room: false,
            events: VecDeque::from([SessionEvent::Joined, SessionEvent::Message(ready.to_string())]),
            transcript: ConsoleTranscript::default(),
            lines: VecDeque::new(),
            meter: setup.shows_levels.then(LevelMeter::default),
            is_stopped: false,
            left: None,
            detector: SpeechWindow::new(source_rate_hz),
            active: now,
            ducked_until: None,
            microphone: now,
            received_samples: 0,
            capture: CaptureCounts::default(),
            has_echo: false,
            is_echo_known: false,
            setup,
        }
    }

    /// Sets the volume of the user, and lowers the bot while the caller speaks over it.
    fn set_gain(&mut self, now: Instant) {
        let is_ducked = self.ducked_until.is_some_and(|until| now < until);
        let factor = if is_ducked { DUCKED_GAIN } else { 1.0 };
        self.playout.set_gain(self.setup.controls.gain() * factor);
    }

    /// Handles what the user has set.
    pub fn handle_controls(&mut self, controls: LocalControls) {
        let before = std::mem::replace(&mut self.setup.controls, controls);
        if self.setup.has_tones && before.is_muted() != controls.is_muted() {
            let tone = match controls.is_muted() {
                true => LocalTone::Muted,
                false => LocalTone::Unmuted,
            };
            self.playout.add_tone(tone.pcm(self.setup.out_rate_hz));
        }
    }

    /// Handles a line that the caller has typed in place of saying it.
    pub fn handle_typed(&mut self, line: &str, now: Instant) {
        if self.phase == LocalPhase::Closed {
            return;
        }
        self.active = now;
        if self.setup.stop_words.contain(line) {
            return self.stop();
        }
        let options = json!({"run_immediately": true, "audio_response": true});
        let typed = json!({
            "label": rtvi::LABEL,
            "type": "send-text",
            "id": "local",
            "data": {"content": line, "options": options},
        });
        self.events.push_back(SessionEvent::Message(typed.to_string()));
    }

    /// Handles audio of the microphone at its rate, with its totals.
    pub fn handle_microphone(&mut self, pcm: &[i16], counts: CaptureCounts, now: Instant) {
        let has_gap = counts.gaps > self.capture.gaps;
        self.capture = counts;
        if has_gap {
            self.handle_loss();
        }
        if pcm.is_empty() || self.phase == LocalPhase::Closed {
            return;
        }
        self.microphone = now;
        self.received_samples += pcm.len() as u64;
        if let Some(meter) = &mut self.meter {
            meter.handle_microphone(pcm, self.setup.controls.is_muted());
            let bot = self.playout.sound_end().is_some_and(|end| now < end);
            meter.handle_speakers(Speakers { caller: false, bot });
        }
        let is_silenced = self.setup.controls.is_muted() || self.hears_itself(now);
        let pcm = match &mut self.canceller {
            Some(canceller) => {
                let cancelled = canceller.cancel(pcm).to_vec();
                if let Some(removed_db) = canceller.poll_failure().filter(|_| !self.has_echo) {
                    self.has_echo = true;
                    log::warn!("{}", echo_warning(removed_db));
                }
                Cow::Owned(cancelled)
            }
            None => Cow::Borrowed(pcm),
        };
        if is_silenced {
            self.detector.reset();
            return self.hear(&vec![0; pcm.len()]);
        }
        if self.detector.hears_speech(&pcm) {
            self.active = now;
            if let Some(meter) = &mut self.meter {
                meter.handle_speakers(Speakers {
                    caller: true,
                    bot: false,
                });
            }
            // Without a canceller it could be the bot itself.
            if self.canceller.is_some() && self.playout.sound_end().is_some_and(|end| now < end) {
                self.ducked_until = Some(now + DUCKED_FOR);
            }
        }
        self.hear(&pcm);
    }

    /// Returns, once, whether the bot's voice stays in the microphone.
    pub fn poll_echo(&mut self) -> bool {
        self.has_echo && !std::mem::replace(&mut self.is_echo_known, true)
    }

    /// Handles sound that the loudspeaker or the microphone has lost.
    pub fn handle_loss(&mut self) {
        if let Some(canceller) = &mut self.canceller {
            canceller.handle_loss();
        }
    }

    /// Passes audio to the bot, or keeps it until its rate is known.
    fn hear(&mut self, pcm: &[i16]) {
        match &mut self.to_bot {
            Some((converter, _)) => self.pcm.extend_from_slice(converter.convert(pcm)),
            None => {
                self.early.extend_from_slice(pcm);
                let kept_max = EARLY_AUDIO.as_secs() as usize * self.source_rate_hz as usize;
                let surplus = self.early.len().saturating_sub(kept_max);
                self.early.drain(..surplus);
            }
        }
    }

    /// Returns whether the bot would hear its own voice.
    fn hears_itself(&self, now: Instant) -> bool {
        let is_half = match (self.setup.echo, &self.canceller) {
            (LocalEcho::Cancel, Some(canceller)) => !canceller.has_learned(),
            (LocalEcho::Cancel, None) | (LocalEcho::Half, _) => true,
            (LocalEcho::Off, _) => false,
        };
        is_half && self.playout.sound_end().is_some_and(|end| now < end + ECHO_TAIL)
    }

    /// Handles a loudspeaker that takes nothing more for now.
    pub fn handle_blocked(&mut self) {
        self.playout.handle_blocked();
    }

    /// Handles a loudspeaker that takes chunks again, and holds `held` of sound.
    pub fn handle_writable(&mut self, held: Duration, now: Instant) {
        self.playout.handle_writable(held, now);
    }

    /// Handles a loudspeaker that has run dry, while the pipe to it held `piped`.
    pub fn handle_underrun(&mut self, piped: Duration, now: Instant) {
        self.playout.handle_underrun(piped, now);
        self.handle_loss();
    }

    /// Handles the sound in the pipe to the loudspeaker.
    pub fn handle_backlog(&mut self, piped: Duration, now: Instant) {
        self.playout.handle_backlog(piped, now);
    }

    /// Returns when silence, or a missing microphone, ends the session.
    fn gone_at(&self) -> (Instant, Option<Instant>) {
        let active = self.playout.sound_end().map_or(self.active, |end| end.max(self.active));
        let silence = (!self.setup.end.is_zero()).then(|| active + self.setup.end);
        (self.microphone + MICROPHONE_LOST, silence)
    }

    fn is_said(&self, now: Instant) -> bool {
        self.bot_queue_empty && self.playout.is_played(now)
    }

    /// Ends the session by a word of the caller.
    fn stop(&mut self) {
        log::info!("the caller has ended the session by a word of --local-stop-words");
        self.is_stopped = true;
        self.leave(LeaveReason::Left);
    }

    /// Returns whether a word of the caller has ended the session.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns why the session has ended.
    pub fn left(&self) -> Option<LeaveReason> {
        self.left
    }

    fn leave(&mut self, reason: LeaveReason) {
        if self.phase != LocalPhase::Closed {
            self.phase = LocalPhase::Closed;
            self.left = Some(reason);
            self.last_tone = self.setup.has_tones.then(|| LocalTone::of_end(reason));
            self.events.push_back(SessionEvent::Left(reason));
        }
    }

    /// Returns the next output of the bot's speech that is due.
    fn poll_speech(&mut self, now: Instant) -> Option<SessionOutput<'static, LocalCommand>> {
        self.set_gain(now);
        let pcm = match self.playout.poll_output(now)? {
            LocalPlayoutOutput::Chunk(pcm) => pcm,
            LocalPlayoutOutput::Mark(name) => {
                return Some(SessionOutput::Event(SessionEvent::Mark { name, played: true }));
            }
            LocalPlayoutOutput::SpeechStarted => return Some(SessionOutput::Event(SessionEvent::SpeechStarted)),
            LocalPlayoutOutput::SpeechStopped => return Some(SessionOutput::Event(SessionEvent::SpeechStopped)),
        };
        if let Some(canceller) = &mut self.canceller {
            canceller.handle_written(pcm);
        }
        if let Some(meter) = &mut self.meter {
            meter.handle_loudspeaker(pcm);
        }
        let bytes = card_bytes(pcm, self.setup.out_channels);
        self.has_room = true;
        Some(SessionOutput::Command(LocalCommand::Play(bytes)))
    }
}

/// Says what to do about an echo that stays.
fn echo_warning(removed_db: f64) -> String {
    format!(
        "the canceller removes {:.0} dB of the bot's voice from the microphone, and the bot may interrupt itself: take \
         `--local-echo half`, lower `--local-volume`, or put more distance between loudspeaker and microphone",
        removed_db.max(0.0)
    )
}

/// Returns the bytes of mono PCM for a card.
fn card_bytes(pcm: &[i16], channels: u16) -> Vec<u8> {
    let channels = usize::from(channels);
    let mut bytes = Vec::with_capacity(2 * channels * pcm.len());
    for sample in pcm {
        for _ in 0..channels {
            bytes.extend_from_slice(&sample.to_le_bytes());
        }
    }
    bytes
}

impl Session for LocalSession {
    type Command = LocalCommand;

    fn name(&self) -> String {
        Transport::Local.name().to_owned()
    }

    fn set_audio(&mut self, in_rate_hz: u32, out_rate_hz: u32, _mixed: bool, _now: Instant) {
        if self.to_bot.as_ref().is_none_or(|(_, rate_hz)| *rate_hz != in_rate_hz) {
            let converter = RateConverter::new(self.source_rate_hz, in_rate_hz);
            self.to_bot = Some((converter, in_rate_hz));
            let early = std::mem::take(&mut self.early);
            self.hear(&early);
        }
        self.playout.set_rate(out_rate_hz);
    }

    fn bot_audio_capacity(&self) -> Option<usize> {
        Some(match self.phase {
            LocalPhase::Closed => 0,
            LocalPhase::Live | LocalPhase::Finishing { .. } => self.playout.free_capacity(),
        })
    }

    fn handle_bot_audio(&mut self, pcm: &[i16], _now: Instant) {
        self.bot_queue_empty = pcm.is_empty();
        self.playout.handle_audio(pcm);
    }

    /// The loudspeaker is here, so that a mark tells what was played.
    fn handle_mark(&mut self, name: String) -> Option<SessionEvent> {
        self.playout.handle_mark(name);
        None
    }

    fn handle_interruption(&mut self, _now: Instant) {
        for name in self.playout.handle_interruption() {
            self.events.push_back(SessionEvent::Mark { name, played: false });
        }
    }

    fn handle_message(&mut self, text: String) {
        if self.phase != LocalPhase::Closed
            && let Some(sentence) = self.transcript.handle_bot_message(&text)
        {
            if !(sentence.by_caller && self.setup.types) && self.lines.len() < LINES_MAX {
                self.lines.push_back(sentence.line());
            }
            if sentence.by_caller && self.setup.stop_words.contain(&sentence.text) {
                self.stop();
            }
        }
    }

    fn handle_bot_end(&mut self, reason: LeaveReason, now: Instant) {
        if self.phase == LocalPhase::Live {
            // Asks for the rest of the speech, so that the session ends as soon as there is none.
            self.bot_queue_empty = false;
            self.has_room = true;
            self.phase = LocalPhase::Finishing {
                until: now + FINISH_WITHIN,
                reason,
            };
        }
    }

    fn handle_end(&mut self, reason: LeaveReason, _now: Instant) {
        self.leave(reason);
    }

    /// The sound card is never evicted: it is connected from the start.
    fn handle_eviction(&mut self, _now: Instant) {
        self.leave(LeaveReason::Replaced);
    }

    fn handle_timeout(&mut self, now: Instant) {
        let (lost, silence) = self.gone_at();
        match self.phase {
            LocalPhase::Finishing { until, reason } if now >= until || self.is_said(now) => self.leave(reason),
            LocalPhase::Live if now >= lost => self.leave(LeaveReason::Vanished),
            LocalPhase::Live if silence.is_some_and(|at| now >= at) => {
                log::info!("neither side has spoken for {} s", self.setup.end.as_secs());
                self.leave(LeaveReason::Left);
            }
            _ => {}
        }
    }

    fn poll_output(&mut self, now: Instant) -> SessionOutput<'_, LocalCommand> {
        if self.taken == self.pcm.len() {
            self.pcm.clear();
            self.taken = 0;
        }
        if self.taken < self.pcm.len()
            && let Some((_, rate_hz)) = self.to_bot
        {
            let start = self.taken;
            self.taken = self.pcm.len().min(start + rate_hz as usize / 50);
            return SessionOutput::Audio((&self.pcm[start..self.taken], rate_hz).into());
        }
        if let Some(event) = self.events.pop_front() {
            return SessionOutput::Event(event);
        }
        if let Some(line) = self.lines.pop_front() {
            // An answer that takes its time is no silence.
            self.active = now;
            return SessionOutput::Command(LocalCommand::Show(line));
        }
        if let Some(tone) = self.last_tone.take() {
            let gain = self.setup.controls.gain();
            let mut pcm = tone.pcm(self.setup.out_rate_hz);
            for sample in &mut pcm {
                *sample = (f32::from(*sample) * gain) as i16;
            }
            let bytes = card_bytes(&pcm, self.setup.out_channels);
            return SessionOutput::Command(LocalCommand::Play(bytes));
        }
        if self.phase == LocalPhase::Closed {
            return SessionOutput::Closed;
        }
        // The microphone sends all the time, and so wakes the session for each row.
        if let Some(row) = self.meter.as_mut().and_then(|meter| meter.poll_row(now)) {
            return SessionOutput::Command(LocalCommand::ShowLevels(row));
        }
        // Sent speech frees capacity, and the request for more may be due as well.
        if std::mem::take(&mut self.has_room) {
            return SessionOutput::BotAudioWanted;
        }
        if let Some(output) = self.poll_speech(now) {
            return output;
        }
        let (lost, silence) = self.gone_at();
        let phase = match self.phase {
            LocalPhase::Finishing { until, .. } => {
                let said = self
                    .playout
                    .sound_end()
                    .filter(|end| self.bot_queue_empty && *end > now);
                let is_said = self.is_said(now).then_some(now);
                Deadline::new(until, "end").earlier_of(is_said.or(said), "playout")
            }
            _ => Deadline::new(now + IDLE_CHECK, "check")
                .earlier_of(Some(lost), "microphone")
                .earlier_of(silence, "silence"),
        };
        SessionOutput::Timeout(phase.earlier_of(self.playout.poll_timeout(now), "loudspeaker"))
    }

    fn has_caller(&self) -> bool {
        true
    }

    fn update_counts(&self, counts: &mut Counts) {
        counts.set(Count::FramesOut, self.playout.counts().0);
    }

    fn summary(&self, _counts: &Counts) -> String {
        let seconds = |samples: u64, rate_hz: u32| samples as f64 / f64::from(rate_hz);
        let (in_hz, out_hz) = (self.setup.in_rate_hz, self.setup.out_rate_hz);
        let (chunks, underruns) = self.playout.counts();
        let played = chunks * u64::from(out_hz / 50);
        let echo = self.canceller.as_ref().map(|canceller| canceller.figures());
        let echo = echo.map_or_else(String::new, |echo| {
            format!("; echo lowered by {:.0} dB", echo.removed_db)
        });
        format!(
            "microphone {:.1} s, {} gaps filled with {:.1} s; loudspeaker {:.1} s, {underruns} underruns{echo}",
            seconds(self.received_samples, in_hz),
            self.capture.gaps,
            seconds(self.capture.filled, in_hz),
            seconds(played, out_hz),
        )
    }
}

#[cfg(test)]
mod tests;
