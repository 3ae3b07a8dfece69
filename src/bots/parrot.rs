//! The parrot bot: repeats what the caller said after a pause.
//!
//! In and out: `i16` mono PCM at 16 kHz. The bot greets with two notes, reports who speaks and how
//! loud, stops when the caller interrupts it, answers texts and messages, and leaves after the idle
//! timeout. It does not transcribe; it reports how long the caller spoke.
//! The body of `/start` may contain `{"greeting": false}`.

mod sound;
mod utterance_detector;

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep_until;

use crate::bot::{Audio, BotError, RunnerArguments};
use crate::config::Transport;
use crate::kit::SpeechDetector;
use crate::proto::audio::vad::Vad;
use crate::rtvi::{AnswerTime, ClientMessage, Measure, Metrics, Rtvi, RtviEvent};
use utterance_detector::{Utterance, UtteranceDetector, UtteranceEvent};

/// Shortest speech that is repeated; a cough is shorter.
const PARROT_SPOKEN_MIN: Duration = Duration::from_millis(120);
/// Interval of audio levels.
const PARROT_LEVEL_INTERVAL: Duration = Duration::from_millis(200);

/// 16 kHz suffices for speech, and is the caller's rate in RTVI clients.
const RATE_HZ: u32 = 16_000;

/// Runs the parrot until the session is over.
///
/// # Errors
/// [`crate::bot::MissingField`] in a session without media.
pub async fn parrot(mut args: RunnerArguments) -> Result<(), BotError> {
    let rtvi = Rtvi::open(&mut args, Audio::at(RATE_HZ))?;
    let mut parrot = Parrot::new(rtvi, &args, Vad::new(RATE_HZ), now());
    loop {
        let deadline = parrot.poll_timeout().into();
        let turn = tokio::select! {
            biased;
            event = parrot.rtvi.recv() => match event {
                Some(event) => parrot.handle_event(event, now()),
                None => ControlFlow::Break(()),
            },
            () = speak(&mut parrot.speech), if parrot.speech.is_some() => {
                parrot.speech = None;
                ControlFlow::Continue(())
            }
            () = sleep_until(deadline) => parrot.handle_timeout(now()),
        };
        if turn.is_break() {
            return Ok(());
        }
    }
}

/// Returns the time of tokio's clock, which tests can advance.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A future that queues speech for the caller.
type SpeechFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

async fn speak(voice: &mut Option<SpeechFuture>) {
    if let Some(voice) = voice {
        voice.await;
    }
}

/// Speech of the parrot that has not been played to its end.
struct Playback {
    samples: Arc<Vec<i16>>,
    /// When the caller's last word arrived, if this speech repeats it.
    answers: Option<Instant>,
    /// When this speech began to play.
    began: Option<Instant>,
}

struct Parrot<E> {
    rtvi: Rtvi,
    detector: UtteranceDetector<E>,
    speech: Option<SpeechFuture>,
    playback: Option<Playback>,
    embedded: bool,
    greeting: bool,
    /// Whether the greeting waits for `client-ready`: some clients on a plain socket connect before
    /// they can play audio.
    greet_on_ready: bool,
    idle_timeout: Duration,
    /// When the caller last spoke or wrote, or when the parrot's speech ends.
    last_active: Instant,
    /// The highest level of the caller since levels were last sent.
    peak_level: f32,
    /// The levels that were sent last: the caller's and the parrot's.
    sent_levels: (f32, f32),
    next_levels_at: Instant,
}

impl<E: SpeechDetector> Parrot<E> {
    fn new(rtvi: Rtvi, args: &RunnerArguments, detector: E, now: Instant) -> Self {
        Parrot {
            rtvi,
            detector: UtteranceDetector::new(detector, RATE_HZ),
            speech: None,
            playback: None,
            embedded: args.is_embedded(),
            greeting: args.body.get("greeting").and_then(Value::as_bool).unwrap_or(true),
            greet_on_ready: args.transport_type() == Ok(Transport::WebSocket.name()),
            idle_timeout: args.idle_timeout,
            last_active: now,
            peak_level: 0.0,
            sent_levels: (0.0, 0.0),
            next_levels_at: now,
        }
    }

    fn handle_event(&mut self, event: RtviEvent, now: Instant) -> ControlFlow<()> {
        match event {
            RtviEvent::Joined => {
                self.last_active = now;
                if !self.greet_on_ready {
                    self.greet(now);
                }
            }
            RtviEvent::Ready => {
                self.show("Say something, then pause: I repeat it.");
                if self.greet_on_ready {
                    self.greet(now);
                }
            }
            RtviEvent::Audio(frame) => self.handle_audio(&frame, now),
            RtviEvent::Text { content, options } => {
                self.last_active = now;
                if options.run_immediately && self.playback.is_some() {
                    self.stop();
                }
                self.rtvi.show(&content);
            }
            RtviEvent::Message(request) => {
                self.last_active = now;
                self.handle_request(&request);
            }
            RtviEvent::Dtmf(key) => {
                self.last_active = now;
                // On a telephone only the record of the call would have it, and keys may be a PIN.
                if self.rtvi.has_messages() {
                    self.show(&format!("You pressed {key}."));
                }
            }
            RtviEvent::SpeechStarted => self.handle_speech_started(now),
            RtviEvent::SpeechStopped => {
                self.last_active = now;
                // If more samples wait for the queue, playback has only run dry for a moment.
                if self.speech.is_none() {
                    self.playback = None;
                }
            }
            RtviEvent::Lost => {
                if self.detector.reset() {
                    self.rtvi.user_stopped_speaking();
                }
                if self.playback.is_some() {
                    self.stop();
                }
            }
            RtviEvent::Restored => {
                self.last_active = now;
                self.show("There you are again.");
            }
            RtviEvent::Left(_) => return ControlFlow::Break(()),
            RtviEvent::Request(_) => self.last_active = now,
            RtviEvent::ParticipantJoined(_) => self.last_active = now,
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Returns when to call [`Parrot::handle_timeout`].
    fn poll_timeout(&self) -> Instant {
        // Without audio of the caller, the meters must still follow the parrot's speech and return
        // to zero.
        let moving = self.playback.is_some() || self.sent_levels != (0.0, 0.0);
        let levels = (moving && !self.embedded).then_some(self.next_levels_at);
        let quiet = self.last_active + self.idle_timeout;
        [self.detector.poll_timeout(), levels]
            .into_iter()
            .flatten()
            .fold(quiet, Instant::min)
    }

    fn handle_timeout(&mut self, now: Instant) -> ControlFlow<()> {
        if let Some(turn) = self.detector.handle_timeout(now) {
            self.handle_turn(turn, now);
        }
        self.send_levels(now);
        if now < self.last_active + self.idle_timeout {
            return ControlFlow::Continue(());
        }
        let seconds = self.idle_timeout.as_secs();
        self.show(&format!("No one spoke for {seconds} s. Goodbye."));
        ControlFlow::Break(())
    }

    fn greet(&mut self, now: Instant) {
        if self.greeting {
            self.play(sound::chime(RATE_HZ), None, now);
        }
    }

    fn handle_audio(&mut self, pcm: &[i16], now: Instant) {
        self.peak_level = self.peak_level.max(sound::level(pcm));
        if let Some(turn) = self.detector.handle_audio(pcm, self.playback.is_some(), now) {
            self.handle_turn(turn, now);
        }
        if self.detector.is_in_turn() {
            self.last_active = now;
        }
        self.send_levels(now);
    }

    fn handle_turn(&mut self, turn: UtteranceEvent, now: Instant) {
        self.last_active = now;
        match turn {
            UtteranceEvent::Started => {
                self.rtvi.user_started_speaking();
                if self.playback.is_some() {
                    self.stop();
                }
            }
            UtteranceEvent::Ended(utterance) => {
                self.rtvi.user_stopped_speaking();
                if utterance.spoken >= PARROT_SPOKEN_MIN {
                    self.repeat(utterance, now);
                }
            }
        }
    }

    fn repeat(&mut self, utterance: Utterance, now: Instant) {
        let seconds = utterance.spoken.as_secs_f32();
        let more = if utterance.cut {
            " and more, which I cannot keep"
        } else {
            ""
        };
        self.show(&format!("You spoke for {seconds:.1} s{more}."));
        self.play(utterance.samples, Some(utterance.spoken_until), now);
    }

    fn play(&mut self, samples: Vec<i16>, answers: Option<Instant>, now: Instant) {
        self.last_active = now + Duration::from_secs_f64(samples.len() as f64 / f64::from(RATE_HZ));
        let samples = Arc::new(samples);
        let (output, speech) = (self.rtvi.output().clone(), samples.clone());
        self.speech = Some(Box::pin(async move {
            // After the end of the session, `recv` returns `Left`.
            let _ = output.send_audio(&speech).await;
        }));
        self.playback = Some(Playback {
            samples,
            answers,
            began: None,
        });
    }

    /// Drops all speech of the parrot.
    fn stop(&mut self) {
        self.speech = None;
        self.playback = None;
        self.rtvi.interrupt();
    }

    /// Records that the parrot's speech starts to play, and reports the response time.
    fn handle_speech_started(&mut self, now: Instant) {
        let Some(playback) = self.playback.as_mut().filter(|playback| playback.began.is_none()) else {
            return;
        };
        playback.began = Some(now);
        if let Some(answers) = playback.answers {
            let latency = now.saturating_duration_since(answers).as_secs_f64();
            let waited = Measure {
                processor: "parrot",
                model: None,
                value: latency,
            };
            self.rtvi.metrics(&Metrics {
                ttfb: &[waited],
                answer: Some(AnswerTime { latency, stages: &[] }),
                ..Metrics::default()
            });
        }
    }

    fn handle_request(&self, request: &ClientMessage) {
        match request.t.as_str() {
            "echo" => self.rtvi.respond(request, &request.d),
            _ => self
                .rtvi
                .reject(request, "the parrot only understands the message `echo`"),
        }
    }

    /// Shows a line, except to microcontrollers.
    fn show(&mut self, text: &str) {
        if !self.embedded {
            self.rtvi.show(text);
        }
    }

    /// Sends the levels that changed, at most once per interval.
    fn send_levels(&mut self, now: Instant) {
        if self.embedded || now < self.next_levels_at {
            return;
        }
        self.next_levels_at = now + PARROT_LEVEL_INTERVAL;
        let user = std::mem::take(&mut self.peak_level);
        let bot = self.playback.as_ref().map_or(0.0, |playback| playback.level(now));
        if user != self.sent_levels.0 {
            self.rtvi.user_level(user);
        }
        if bot != self.sent_levels.1 {
            self.rtvi.bot_level(bot);
        }
        self.sent_levels = (user, bot);
    }
}

impl Playback {
    /// Returns the level of the speech that played during the last interval.
    fn level(&self, now: Instant) -> f32 {
        let Some(began) = self.began else { return 0.0 };
        let samples = |time: Duration| (time.as_secs_f64() * f64::from(RATE_HZ)) as usize;
        let elapsed = now.saturating_duration_since(began);
        let end = samples(elapsed).min(self.samples.len());
        let start = samples(elapsed.saturating_sub(PARROT_LEVEL_INTERVAL)).min(end);
        sound::level(&self.samples[start..end])
    }
}

#[cfg(test)]
mod tests;
