//! One call: the state machine between a plan and a transport.
//!
//! In: the bot's audio and messages, the end of the connection, and `now`. Out: one frame of the
//! caller's voice each 20 ms (silence between its steps), keys, texts, observations, and when to
//! hang up. The steps begin when the bot is ready, or 2 s after the connection; on transports
//! without messages at once. The caller hangs up when its steps are over, every expectation is met
//! and the bot was quiet for a while, when a step of a scenario fails, or when the time is over. A
//! caller with a sound card talks once the steps are over, until the user or the bot ends the call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::checked_step::{CheckedStep, StepOutcome, StepResult, StepWatch};
use super::observation::CallObservation;
use super::plan::{CallPlan, PlannedStep};
use super::playout::BotPlayout;
use super::recording::StereoRecording;
use super::rtvi_messages::{self, BotMessageReader, BotSaid};
use super::sound::has_sound;
use super::sound_card::CallerCard;
use super::turns::{SPEECH_MIN, SpeechTurns};
use super::words::{BOT_TEXTS, SaidTexts};
use super::{FRAME, FRAME_SAMPLES};

/// How long the steps wait for the bot to be ready.
const READY_WAIT: Duration = Duration::from_secs(2);
/// Frames between two keys: 200 ms.
const KEY_FRAMES: u64 = 10;
/// Frames that are sent at once after a delay; what is later is left out.
const LATE_FRAMES_MAX: u64 = 25;

/// An output of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum ConversationOutput {
    /// Nothing more to do until [`CallConversation::handle_timeout`] at this time.
    Timeout(Instant),
    /// The next 20 ms of the caller's voice.
    Audio(Vec<i16>),
    Key(char),
    Text(String),
    /// A message of RTVI, with its type.
    Message(String, Value),
    /// An observation, at the time since the caller dialled.
    Observed(Duration, CallObservation),
    /// The caller hangs up. Nothing follows.
    HangUp,
}

impl ConversationOutput {
    /// Returns the message of RTVI; `None` if it is none.
    pub fn message(&self) -> Option<String> {
        match self {
            ConversationOutput::Key(key) => Some(rtvi_messages::key(*key)),
            ConversationOutput::Text(text) => Some(rtvi_messages::text(text)),
            ConversationOutput::Message(kind, data) => Some(rtvi_messages::message(kind, data)),
            ConversationOutput::Audio(_)
            | ConversationOutput::Timeout(_)
            | ConversationOutput::Observed(..)
            | ConversationOutput::HangUp => None,
        }
    }
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallVerdict {
    /// What failed, in sentences; empty for a successful call.
    pub failures: Vec<String>,
    pub connected_after: Duration,
    /// From dialling to the bot's first sound.
    pub first_sound_after: Option<Duration>,
    pub latencies: Vec<Duration>,
    pub bot_spoke: Duration,
    /// The bot's audio that was dropped, because it came more than a minute early.
    pub dropped: Duration,
    pub lasted: Duration,
    /// The results of the steps of a scenario.
    pub steps: Vec<StepResult>,
}

/// A call in progress.
pub struct CallConversation {
    plan: CallPlan,
    dialled: Instant,
    connected: Instant,
    /// When the steps begin at the latest.
    steps_from: Instant,
    is_ready: bool,
    /// When frame 0 was due, and the number of the next frame.
    clock_start: Instant,
    frame: u64,
    step: usize,
    /// Samples, frames or keys of the current step that are done.
    progress: usize,
    steps_done_at: Option<Instant>,
    turns: SpeechTurns,
    playout: BotPlayout,
    reader: BotMessageReader,
    bot_texts: SaidTexts,
    /// The texts contain all that is expected. Compared once for each, and not for each frame.
    has_expected_texts: bool,
    last_bot_text: Option<Instant>,
    /// The step of a scenario that is under way, and the results of those before it.
    watch: StepWatch,
    results: Vec<StepResult>,
    recording: StereoRecording,
    /// Set if the caller talks.
    card: Option<Box<dyn CallerCard>>,
    outputs: VecDeque<ConversationOutput>,
    ended: Option<Instant>,
    lost: Option<String>,
}

impl CallConversation {
    /// Creates a call that is connected. `has_messages` says whether the transport carries messages
    /// of the bot.
    pub fn new(plan: CallPlan, dialled: Instant, now: Instant, has_messages: bool) -> CallConversation {
        let wait = if has_messages { READY_WAIT } else { Duration::ZERO };
        let recording = StereoRecording::new(plan.longest);
        let has_expected_texts = plan.expect.texts.is_empty();
        let turns = SpeechTurns::default();
        let watch = StepWatch::new(next_check(&plan, 0), &turns, now);
        let mut conversation = CallConversation {
            plan,
            dialled,
            connected: now,
            steps_from: now + wait,
            is_ready: !has_messages,
            clock_start: now,
            frame: 0,
            step: 0,
            progress: 0,
            steps_done_at: None,
            turns,
            playout: BotPlayout::default(),
            reader: BotMessageReader::default(),
            bot_texts: SaidTexts::default(),
            has_expected_texts,
            last_bot_text: None,
            watch,
            results: Vec::new(),
            recording,
            card: None,
            outputs: VecDeque::new(),
            ended: None,
            lost: None,
        };
        conversation.observe(CallObservation::Connected, now);
        conversation
    }

    /// Lets the caller talk through a sound card.
    pub fn set_card(&mut self, card: Box<dyn CallerCard>) {
        self.card = Some(card);
    }

    /// Handles audio of the bot.
    pub fn handle_audio(&mut self, pcm: &[i16], rate_hz: u32, now: Instant) {
        if self.ended.is_some() {
            return;
        }
        let is_loud = has_sound(self.playout.handle_audio(pcm, rate_hz, now));
        if let Some(begin) = self.turns.handle_arrival(is_loud, now) {
            self.observe(CallObservation::BotStarted, now);
            if let Some(latency) = begin.latency {
                self.observe(CallObservation::Answered(latency), now);
            }
        }
    }

    /// Handles a message of the bot.
    pub fn handle_message(&mut self, text: &str, now: Instant) {
        if self.ended.is_none() {
            self.watch.handle_message(text);
            for said in self.reader.read(text) {
                self.handle_said(said, now);
            }
        }
    }

    fn handle_said(&mut self, said: BotSaid, now: Instant) {
        match said {
            BotSaid::Ready => {
                if !std::mem::replace(&mut self.is_ready, true) {
                    self.observe(CallObservation::Ready, now);
                }
            }
            BotSaid::Text(text) => {
                self.last_bot_text = Some(now);
                self.bot_texts.push(&text);
                self.watch.handle_text(&text);
                let is_one_missing = self.missing_texts().next().is_some();
                self.has_expected_texts = !is_one_missing;
                self.observe(CallObservation::BotText(text), now);
            }
            BotSaid::CallerText(text) => {
                self.watch.handle_caller_text(&text);
                self.observe(CallObservation::CallerText(text), now);
            }
            BotSaid::Interrupted => self.observe(CallObservation::Interrupted, now),
            BotSaid::Other(message) => self.observe(CallObservation::Message(message), now),
        }
    }

    /// Handles the request to drop the bot's audio that was not played.
    pub fn handle_interruption(&mut self) {
        self.playout.handle_interruption();
    }

    /// Handles the end of the connection by the other side: its reason, or why it was lost.
    pub fn handle_end(&mut self, end: Result<String, String>, now: Instant) {
        if self.ended.is_some() {
            return;
        }
        self.read_rest(now);
        let reason = match end {
            Ok(reason) => {
                let checked = self.watch.check_end(&reason, &self.turns, now);
                self.finish_check(checked, now);
                format!("the bot hung up{}{reason}", if reason.is_empty() { "" } else { ": " })
            }
            Err(why) => {
                let why = format!("the connection was lost: {why}");
                self.lost = Some(why.clone());
                self.finish_check(Err(why.clone()), now);
                why
            }
        };
        self.end(reason, now);
    }

    /// Handles the wish of the user to hang up.
    pub fn handle_stop(&mut self, now: Instant) {
        if self.ended.is_none() {
            self.abandon("stopped by the user", now);
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if self.ended.is_some() {
            return;
        }
        if now >= self.dialled + self.plan.longest {
            return self.abandon("the time is over", now);
        }
        let mut burst = 0;
        while self.ended.is_none() && self.frame_due() <= now {
            if burst == LATE_FRAMES_MAX {
                // The process was stopped for a while; the call goes on from here.
                self.clock_start += now.saturating_duration_since(self.frame_due());
                break;
            }
            burst += 1;
            self.handle_frame(self.frame_due());
        }
    }

    fn frame_due(&self) -> Instant {
        // Frames of an hour fit into 32 bits.
        self.clock_start + FRAME * u32::try_from(self.frame).unwrap_or(u32::MAX)
    }

    /// Sends, plays and records one frame.
    fn handle_frame(&mut self, now: Instant) {
        self.frame += 1;
        let mut voice = match self.is_ready || now >= self.steps_from {
            true => self.next_voice(now),
            false => [0; FRAME_SAMPLES],
        };
        let bot = self.playout.next_frame(now);
        if let Some(card) = &mut self.card {
            match card.exchange(&bot) {
                Some(recorded) if self.steps_done_at.is_some() => voice = recorded,
                Some(_) => {}
                None => {
                    let why = "the sound card is gone";
                    self.lost = Some(why.to_owned());
                    return self.hang_up(why, now);
                }
            }
        }
        if self
            .turns
            .handle_played(has_sound(&bot), self.playout.has_sound_waiting(), now)
        {
            self.observe(CallObservation::BotStopped, now);
        }
        if self.plan.records {
            self.recording.push(&voice, &bot);
        }
        self.outputs.push_back(ConversationOutput::Audio(voice.to_vec()));
        if self.has_failed() {
            self.hang_up("a step has failed", now);
        } else if self.is_done(now) {
            self.hang_up("the caller hung up", now);
        }
    }

    /// Returns 20 ms of the current step.
    fn next_voice(&mut self, now: Instant) -> [i16; FRAME_SAMPLES] {
        let mut voice = [0; FRAME_SAMPLES];
        let Some(step) = self.plan.steps.get(self.step).cloned() else {
            self.steps_done_at.get_or_insert(now);
            return voice;
        };
        match step {
            PlannedStep::Sound { label, sound } => {
                let at = self.progress;
                if at == 0 {
                    self.turns.handle_caller_start();
                    self.observe(CallObservation::CallerStarted(label), now);
                }
                let frame = &sound.pcm[at..sound.pcm.len().min(at + FRAME_SAMPLES)];
                voice[..frame.len()].copy_from_slice(frame);
                self.progress += FRAME_SAMPLES;
                if at < sound.loud_until.max(1) && self.progress >= sound.loud_until {
                    let ends = now + FRAME;
                    self.turns.handle_caller_stop(ends);
                    self.observe(CallObservation::CallerStopped, ends);
                }
                self.finish_step(self.progress >= sound.pcm.len());
            }
            PlannedStep::Silence(length) => {
                self.progress += 1;
                let frames = length.as_millis() / FRAME.as_millis();
                self.finish_step(self.progress as u128 >= frames);
            }
            PlannedStep::Keys(keys) => {
                let (nth, rest) = (self.progress as u64 / KEY_FRAMES, self.progress as u64 % KEY_FRAMES);
                let key = keys.chars().nth(nth as usize).filter(|_| rest == 0);
                if let Some(key) = key {
                    self.outputs.push_back(ConversationOutput::Key(key));
                    self.observe(CallObservation::KeyPressed(key), now);
                }
                self.progress += 1;
                self.finish_step(self.progress as u64 >= keys.chars().count() as u64 * KEY_FRAMES);
            }
            PlannedStep::Text(text) => {
                self.outputs.push_back(ConversationOutput::Text(text.clone()));
                self.observe(CallObservation::TextSent(text), now);
                self.finish_step(true);
            }
            PlannedStep::Message { kind, data } => {
                self.observe(CallObservation::MessageSent(kind.clone()), now);
                self.outputs.push_back(ConversationOutput::Message(kind, data));
                self.finish_step(true);
            }
            PlannedStep::Check(_) => {
                let quiet_since = self.turns.last_sound().max(self.last_bot_text);
                if let Some(checked) = self.watch.check(&self.turns, quiet_since, now) {
                    self.finish_step(true);
                    self.finish_check(checked, now);
                }
            }
        }
        voice
    }

    /// Keeps the result of the step of a scenario that is under way, and begins the next one.
    fn finish_check(&mut self, checked: Result<(), String>, now: Instant) {
        let Some(step) = self.watch.step().cloned() else {
            return;
        };
        let outcome = match checked {
            Ok(()) => {
                self.observe(CallObservation::StepPassed(step.name.clone()), now);
                StepOutcome::Passed
            }
            Err(why) => StepOutcome::Failed(why),
        };
        let has_failed = outcome != StepOutcome::Passed;
        let lasted = now.saturating_duration_since(self.watch.began());
        self.results.push(StepResult { outcome, lasted });
        let next = (!has_failed).then(|| next_check(&self.plan, self.step)).flatten();
        self.watch = StepWatch::new(next, &self.turns, now);
    }

    /// Returns whether a step of a scenario has failed.
    fn has_failed(&self) -> bool {
        let last = self.results.last();
        last.is_some_and(|result| result.outcome != StepOutcome::Passed)
    }

    fn finish_step(&mut self, is_finished: bool) {
        if is_finished {
            self.step += 1;
            self.progress = 0;
        }
    }

    /// Returns whether the caller can hang up.
    fn is_done(&self, now: Instant) -> bool {
        let Some(steps_done) = self.steps_done_at else {
            return false;
        };
        if self.card.is_some() {
            return false;
        }
        let quiet_since = self.last_bot_text.map_or(steps_done, |at| at.max(steps_done));
        let latency_known = self.plan.expect.latency.is_none() || self.turns.is_answered();
        latency_known
            && !self.turns.is_bot_speaking()
            && now >= quiet_since + self.plan.hang_up_after
            && self.has_spoken_as_expected()
            && self.has_expected_texts
    }

    fn has_spoken_as_expected(&self) -> bool {
        !self.plan.expect.speech || self.turns.bot_spoke() >= SPEECH_MIN
    }

    fn missing_texts(&self) -> impl Iterator<Item = &super::WordPattern> {
        let texts = self.plan.expect.texts.iter();
        texts.filter(|pattern| !self.bot_texts.contain(pattern))
    }

    /// Hangs up in the middle of a step.
    fn abandon(&mut self, reason: &str, now: Instant) {
        self.read_rest(now);
        let unmet = self.watch.unmet(&self.turns);
        self.finish_check(
            Err(std::iter::once(reason.to_owned())
                .chain(unmet)
                .collect::<Vec<_>>()
                .join("; ")),
            now,
        );
        self.hang_up(reason, now);
    }

    fn hang_up(&mut self, reason: &str, now: Instant) {
        self.read_rest(now);
        self.end(reason.to_owned(), now);
        self.outputs.push_back(ConversationOutput::HangUp);
    }

    /// Reads what the bot has said of a segment that it did not end.
    fn read_rest(&mut self, now: Instant) {
        let mut rest = Vec::new();
        self.reader.finish(&mut rest);
        for said in rest {
            self.handle_said(said, now);
        }
    }

    fn end(&mut self, reason: String, now: Instant) {
        self.observe(CallObservation::Ended(reason), now);
        self.ended = Some(now);
    }

    fn observe(&mut self, observation: CallObservation, now: Instant) {
        let at = now.saturating_duration_since(self.dialled);
        self.outputs.push_back(ConversationOutput::Observed(at, observation));
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> ConversationOutput {
        let deadline = self.dialled + self.plan.longest;
        let timeout = ConversationOutput::Timeout(self.frame_due().min(deadline));
        self.outputs.pop_front().unwrap_or(timeout)
    }

    /// Returns whether the call is over.
    pub fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns the recording of both sides.
    pub fn recording(&self) -> &StereoRecording {
        &self.recording
    }

    /// Returns the result of a call that is over.
    pub fn verdict(&self) -> CallVerdict {
        let since = |at: Instant| at.saturating_duration_since(self.dialled);
        let lasted = self.ended.map(since).unwrap_or_default();
        CallVerdict {
            failures: self.failures(lasted),
            connected_after: since(self.connected),
            first_sound_after: self.turns.first_sound().map(since),
            latencies: self.turns.latencies().to_vec(),
            bot_spoke: self.turns.bot_spoke(),
            dropped: self.playout.dropped(),
            lasted,
            steps: self.steps(),
        }
    }

    /// Returns the results of the steps of a scenario. Those behind a failed one are skipped.
    fn steps(&self) -> Vec<StepResult> {
        let mut results = self.results.clone();
        results.resize(
            self.checks().count(),
            StepResult {
                outcome: StepOutcome::Skipped,
                lasted: Duration::ZERO,
            },
        );
        results
    }

    fn checks(&self) -> impl Iterator<Item = &Arc<CheckedStep>> {
        self.plan.steps.iter().filter_map(|step| match step {
            PlannedStep::Check(step) => Some(step),
            _ => None,
        })
    }

    fn failures(&self, lasted: Duration) -> Vec<String> {
        let failed = self.checks().zip(&self.results);
        let mut failures: Vec<String> = failed
            .filter_map(|(step, result)| match &result.outcome {
                StepOutcome::Failed(why) => Some(format!("{}: `{}`: {why}", step.place, step.name)),
                StepOutcome::Passed | StepOutcome::Skipped => None,
            })
            .collect();
        let has_failed_step = !failures.is_empty();
        failures.extend(self.lost.iter().filter(|_| !has_failed_step).cloned());
        failures.extend(
            self.missing_texts()
                .map(|pattern| format!("no text matches `{pattern}`: {}", self.bot_texts.quoted(BOT_TEXTS))),
        );
        if !self.has_spoken_as_expected() {
            let spoke = self.turns.bot_spoke().as_secs_f64();
            let lasted = lasted.as_secs_f64();
            failures.push(format!(
                "no speech of the bot: {spoke:.2} s of sound in a call of {lasted:.1} s, of at least {:.1} s",
                SPEECH_MIN.as_secs_f64()
            ));
        }
        if let Some(longest) = self.plan.expect.latency {
            let longest_s = longest.as_secs_f64();
            let late = self.turns.latencies().iter().filter(|latency| **latency > longest);
            failures.extend(late.map(|latency| {
                let latency = latency.as_secs_f64();
                format!("an answer began {latency:.2} s after the caller's sound, which is more than {longest_s} s")
            }));
            if !self.turns.is_answered() {
                failures.push(format!(
                    "no answer within {longest_s} s: the caller's last sound has none"
                ));
            }
        }
        if self.lost.is_none()
            && self.checks().next().is_none()
            && self.steps_done_at.is_none()
            && self.step < self.plan.steps.len()
        {
            let (done, all) = (self.step, self.plan.steps.len());
            failures.push(format!("the call ended after {done} of {all} steps"));
        }
        failures
    }
}

/// Returns the first step of a scenario at or behind a step of the plan.
fn next_check(plan: &CallPlan, step: usize) -> Option<Arc<CheckedStep>> {
    plan.steps.iter().skip(step).find_map(|step| match step {
        PlannedStep::Check(step) => Some(step.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
