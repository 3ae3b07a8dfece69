//! The parrot: listens, and repeats what you said once you pause.
//!
//! It shows what a bot should do in a talk: it greets with two notes, so that a newcomer hears at once that sound works; tells
//! who is speaking and how loud; stops as soon as you speak into its voice; answers text and messages; and leaves when nobody
//! has spoken or written for the idle time. It transcribes nothing and claims nothing: it says how long you spoke.
//! The body of `/start` may hold `{"greeting": false}`. PCM is 16 kHz both ways.

mod listener;
mod sound;

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep_until;

use crate::bot::{Audio, BotError, RunnerArguments};
use crate::config::Transport;
use crate::limits::{PARROT_LEVEL_INTERVAL, PARROT_SPOKEN_MIN};
use crate::proto::audio::vad::Vad;
use crate::rtvi::{ClientMessage, Measure, Metrics, Rtvi, RtviEvent};
use listener::{Ear, Listener, Turn, Utterance};

/// What speech needs, and what costs least.
const RATE_HZ: u32 = 16_000;

/// Runs the parrot until the talk is over.
///
/// # Errors
/// [`crate::bot::MissingField`] in a session without media.
pub async fn parrot(mut args: RunnerArguments) -> Result<(), BotError> {
    let talk = Rtvi::open(&mut args, Audio::at(RATE_HZ))?;
    let mut parrot = Parrot::new(talk, &args, Vad::new(RATE_HZ), now());
    loop {
        let deadline = parrot.poll_timeout().into();
        let turn = tokio::select! {
            biased;
            event = parrot.talk.recv() => match event {
                Some(event) => parrot.handle_event(event, now()),
                None => ControlFlow::Break(()),
            },
            () = speak(&mut parrot.voice), if parrot.voice.is_some() => {
                parrot.voice = None;
                ControlFlow::Continue(())
            }
            () = sleep_until(deadline) => parrot.handle_timeout(now()),
        };
        if turn.is_break() {
            return Ok(());
        }
    }
}

impl Ear for Vad {
    fn hears_speech(&mut self, pcm: &[i16]) -> bool {
        Vad::hears_speech(self, pcm)
    }
}

/// A bot has a clock; it is tokio's, which tests can move.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Speech on its way into the outbound queue.
type Voice = Pin<Box<dyn Future<Output = ()> + Send>>;

async fn speak(voice: &mut Option<Voice>) {
    if let Some(voice) = voice {
        voice.await;
    }
}

/// What the parrot says, until the last of it was heard.
struct Playback {
    samples: Arc<Vec<i16>>,
    /// When the caller finished what this answers.
    answers: Option<Instant>,
    /// When it was first heard.
    began: Option<Instant>,
}

struct Parrot<E> {
    talk: Rtvi,
    listener: Listener<E>,
    voice: Option<Voice>,
    playback: Option<Playback>,
    embedded: bool,
    greeting: bool,
    /// Whether the greeting waits for the client to say that it is ready: on a plain socket some connect before they listen.
    greets_ready: bool,
    idle_timeout: Duration,
    /// When the caller last spoke or wrote, or the parrot finished or will finish.
    active: Instant,
    /// The loudest of the caller since the last level was told.
    loudest: f32,
    /// The levels that were told last: the caller's, and the parrot's.
    told: (f32, f32),
    levels_due: Instant,
}

impl<E: Ear> Parrot<E> {
    fn new(talk: Rtvi, args: &RunnerArguments, ear: E, now: Instant) -> Self {
        Parrot {
            talk,
            listener: Listener::new(ear, RATE_HZ),
            voice: None,
            playback: None,
            embedded: args.webrtc_connection().is_ok_and(|connection| connection.embedded),
            greeting: args.body.get("greeting").and_then(Value::as_bool).unwrap_or(true),
            greets_ready: args.transport_type() == Ok(Transport::WebSocket.name()),
            idle_timeout: args.idle_timeout,
            active: now,
            loudest: 0.0,
            told: (0.0, 0.0),
            levels_due: now,
        }
    }

    fn handle_event(&mut self, event: RtviEvent, now: Instant) -> ControlFlow<()> {
        match event {
            RtviEvent::Joined => {
                self.active = now;
                if !self.greets_ready {
                    self.greet(now);
                }
            }
            RtviEvent::Ready => {
                self.show("Say something, then pause: I repeat it.");
                if self.greets_ready {
                    self.greet(now);
                }
            }
            RtviEvent::Audio(frame) => self.hear(&frame, now),
            RtviEvent::Text { content, options } => {
                self.active = now;
                if options.run_immediately && self.playback.is_some() {
                    self.stop();
                }
                self.talk.show(&content);
            }
            RtviEvent::Message(asked) => {
                self.active = now;
                self.answer(&asked);
            }
            RtviEvent::Dtmf(key) => {
                self.active = now;
                self.show(&format!("You pressed {key}."));
            }
            RtviEvent::SpeechStarted => self.heard_at(now),
            RtviEvent::SpeechStopped => {
                self.active = now;
                // While more is on its way into the queue, the voice has only stumbled.
                if self.voice.is_none() {
                    self.playback = None;
                }
            }
            RtviEvent::Lost => {
                if self.listener.reset() {
                    self.talk.user_stopped_speaking();
                }
                if self.playback.is_some() {
                    self.stop();
                }
            }
            RtviEvent::Resumed => {
                self.active = now;
                self.show("There you are again.");
            }
            RtviEvent::Left(_) => return ControlFlow::Break(()),
            RtviEvent::Request(_) => self.active = now,
            RtviEvent::ParticipantJoined(_) => self.active = now,
            RtviEvent::Mark { .. }
            | RtviEvent::ParticipantLeft(_)
            | RtviEvent::Speaking { .. }
            | RtviEvent::JoinFailed(_) => {}
        }
        ControlFlow::Continue(())
    }

    /// Returns when to call [`Parrot::handle_timeout`].
    fn poll_timeout(&self) -> Instant {
        // Without audio of the caller, the meters still have to follow the voice, and to come down at last.
        let moving = self.playback.is_some() || self.told != (0.0, 0.0);
        let levels = (moving && !self.embedded).then_some(self.levels_due);
        let quiet = self.active + self.idle_timeout;
        [self.listener.poll_timeout(), levels]
            .into_iter()
            .flatten()
            .fold(quiet, Instant::min)
    }

    fn handle_timeout(&mut self, now: Instant) -> ControlFlow<()> {
        if let Some(turn) = self.listener.handle_timeout(now) {
            self.take(turn, now);
        }
        self.tell_levels(now);
        if now < self.active + self.idle_timeout {
            return ControlFlow::Continue(());
        }
        let seconds = self.idle_timeout.as_secs();
        self.show(&format!("Nobody spoke for {seconds} s. Goodbye."));
        ControlFlow::Break(())
    }

    fn greet(&mut self, now: Instant) {
        if self.greeting {
            self.play(sound::chime(RATE_HZ), None, now);
        }
    }

    fn hear(&mut self, pcm: &[i16], now: Instant) {
        self.loudest = self.loudest.max(sound::level(pcm));
        if let Some(turn) = self.listener.handle_audio(pcm, self.playback.is_some(), now) {
            self.take(turn, now);
        }
        if self.listener.is_in_turn() {
            self.active = now;
        }
        self.tell_levels(now);
    }

    fn take(&mut self, turn: Turn, now: Instant) {
        self.active = now;
        match turn {
            Turn::Started => {
                self.talk.user_started_speaking();
                if self.playback.is_some() {
                    self.stop();
                }
            }
            Turn::Ended(utterance) => {
                self.talk.user_stopped_speaking();
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
        self.active = now + Duration::from_secs_f64(samples.len() as f64 / f64::from(RATE_HZ));
        let samples = Arc::new(samples);
        let (output, speech) = (self.talk.output().clone(), samples.clone());
        self.voice = Some(Box::pin(async move {
            // When the session is over, the next event says so.
            let _ = output.send_audio(&speech).await;
        }));
        self.playback = Some(Playback {
            samples,
            answers,
            began: None,
        });
    }

    /// Falls silent at once.
    fn stop(&mut self) {
        self.voice = None;
        self.playback = None;
        self.talk.interrupt();
    }

    /// The parrot's voice is heard from here on.
    fn heard_at(&mut self, now: Instant) {
        let Some(playback) = self.playback.as_mut().filter(|playback| playback.began.is_none()) else {
            return;
        };
        playback.began = Some(now);
        if let Some(answers) = playback.answers {
            let waited = Measure {
                processor: "parrot",
                model: None,
                value: now.saturating_duration_since(answers).as_secs_f64(),
            };
            self.talk.metrics(&Metrics {
                ttfb: &[waited],
                ..Metrics::default()
            });
        }
    }

    fn answer(&self, asked: &ClientMessage) {
        match asked.t.as_str() {
            "echo" => self.talk.respond(asked, &asked.d),
            _ => self.talk.reject(asked, "the parrot knows the message `echo` alone"),
        }
    }

    /// Shows a line to those who have a screen for it.
    fn show(&mut self, text: &str) {
        if !self.embedded {
            self.talk.show(text);
        }
    }

    /// Tells how loud both are, a few times a second, and only when that changed.
    fn tell_levels(&mut self, now: Instant) {
        if self.embedded || now < self.levels_due {
            return;
        }
        self.levels_due = now + PARROT_LEVEL_INTERVAL;
        let user = std::mem::take(&mut self.loudest);
        let bot = self.playback.as_ref().map_or(0.0, |playback| playback.level(now));
        if user != self.told.0 {
            self.talk.user_level(user);
        }
        if bot != self.told.1 {
            self.talk.bot_level(bot);
        }
        self.told = (user, bot);
    }
}

impl Playback {
    /// Returns how loud it was during the last interval.
    fn level(&self, now: Instant) -> f32 {
        let Some(began) = self.began else { return 0.0 };
        let samples = |time: Duration| (time.as_secs_f64() * f64::from(RATE_HZ)) as usize;
        let heard = now.saturating_duration_since(began);
        let end = samples(heard).min(self.samples.len());
        let start = samples(heard.saturating_sub(PARROT_LEVEL_INTERVAL)).min(end);
        sound::level(&self.samples[start..end])
    }
}

#[cfg(test)]
mod tests;
