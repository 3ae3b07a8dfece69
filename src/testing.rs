//! Callers for the tests of a bot, without a network.
//!
//! A [`Caller`] is made by its transport: [`Caller::browser`], [`Caller::device`],
//! [`Caller::client`], [`Caller::phone`], [`Caller::media_room`]. [`Caller::call`] starts the bot.
//! The [`Call`] then speaks, sends texts and keys, hears the bot, and leaves. Each frame that is
//! spoken or heard is 20 ms of the call, whatever the clock says, unless the caller is
//! [`Caller::paced`]: then it is 20 ms of tokio's clock, which a test can pause, so that a call of
//! an hour passes at once and the bot's own time limits are met. A call waits at most 5 s of
//! tokio's clock for the bot. [`SpeechScript`] makes speech that a detector of turns hears.
//! [`Caller::arguments`] creates arguments for a test that runs the bot itself.
//!
//! ```
//! use edge_runner::rtvi::{Rtvi, RtviEvent};
//! use edge_runner::testing::Caller;
//! use edge_runner::{Audio, BotError, RunnerArguments};
//!
//! async fn echo(mut args: RunnerArguments) -> Result<(), BotError> {
//!     let mut talk = Rtvi::open(&mut args, Audio::at(16_000))?;
//!     while let Some(event) = talk.recv().await {
//!         match event {
//!             RtviEvent::Ready => talk.show("Hello!"),
//!             RtviEvent::Audio(frame) => talk.send_audio(&frame).await?,
//!             _ => {}
//!         }
//!     }
//!     Ok(())
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let mut call = Caller::browser().call(echo);
//! call.join();
//! call.send_rtvi("client-ready", "1", serde_json::json!({"version": "2.1.0"}));
//! assert_eq!(call.next_rtvi().await.unwrap()["type"], "bot-ready");
//! assert_eq!(call.next_rtvi().await.unwrap()["data"]["text"], "Hello!");
//!
//! call.speak(&[1_000; 3_200], 16_000).await;
//! let (heard, rate_hz) = call.hear(std::time::Duration::from_millis(200)).await;
//! assert_eq!((heard, rate_hz), (vec![1_000; 3_200], 16_000));
//!
//! call.leave();
//! call.ended().await.expect("the bot ends in good order");
//! # });
//! ```

#![allow(clippy::disallowed_methods, reason = "the bot under test runs in a task")]

use std::collections::VecDeque;
use std::f32::consts::TAU;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::bot::media::{MediaSlot, TransportSide, pair};
use crate::bot::{
    BotError, Event, Kind, Law, LeaveReason, LineLaws, MediaroomArguments, RunnerArguments, Shutdown, ShutdownTrigger,
    VideoroomArguments, WebRtcArguments, WebRtcConnection, WebSocketArguments, WebSocketConnection,
};
use crate::config::{Config, Secret, Transport};
use crate::kit::{Wav, WavError};
use crate::limits::AUDIO_IN_FRAMES_MAX;
use crate::proto::audio::resample::Resampler;

/// How long a call waits for the bot.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The duration of one frame.
const FRAME: Duration = Duration::from_millis(20);
/// The rate of a telephone's line, in Hz.
const LINE_RATE_HZ: u32 = 8_000;
const LINE_LAWS: LineLaws = LineLaws {
    inbound: Law::Mu,
    outbound: Law::Mu,
};

/// A caller before its call, with the arguments that the bot will get.
#[derive(Debug)]
#[must_use = "a caller does nothing before it calls"]
pub struct Caller {
    kind: CallerKind,
    session_id: String,
    body: Value,
    call_data: Option<Value>,
    config: Config,
    is_paced: bool,
}

/// The transport of a caller.
#[derive(Clone, Debug)]
enum CallerKind {
    WebRtc { embedded: bool, messages: bool },
    Socket(Transport),
    VideoRoom(String),
    MediaRoom(String),
    Base,
}

impl Caller {
    fn new(kind: CallerKind) -> Self {
        Caller {
            kind,
            session_id: "test".to_owned(),
            body: json!({}),
            call_data: None,
            config: Config::default(),
            is_paced: false,
        }
    }

    /// Creates a browser over WebRTC, with a data channel.
    pub fn browser() -> Self {
        Caller::new(CallerKind::WebRtc {
            embedded: false,
            messages: true,
        })
    }

    /// Creates a microcontroller over WebRTC.
    pub fn device() -> Self {
        Caller::new(CallerKind::WebRtc {
            embedded: true,
            messages: true,
        })
    }

    /// Creates a caller over WebRTC without a data channel, as with WHIP.
    pub fn without_messages() -> Self {
        Caller::new(CallerKind::WebRtc {
            embedded: false,
            messages: false,
        })
    }

    /// Creates a plain client on a WebSocket.
    pub fn client() -> Self {
        Caller::new(CallerKind::Socket(Transport::WebSocket))
    }

    /// Creates a telephone call of this provider, from `+15550001111` to `+15550002222` unless
    /// [`Caller::call_data`] says otherwise.
    pub fn phone(provider: Transport) -> Self {
        Caller {
            call_data: Some(json!({
                "stream_id": "stream",
                "call_id": "call",
                "from": "+15550001111",
                "to": "+15550002222",
                "body": {},
            })),
            ..Caller::new(CallerKind::Socket(provider))
        }
    }

    /// Creates a participant of a LiveKit room.
    #[doc(alias = "LiveKit")]
    pub fn media_room(room_name: impl Into<String>) -> Self {
        Caller::new(CallerKind::MediaRoom(room_name.into()))
    }

    /// Creates a session in a Daily room, with arguments and without media.
    #[doc(alias = "Daily")]
    pub fn video_room(room_url: impl Into<String>) -> Self {
        Caller::new(CallerKind::VideoRoom(room_url.into()))
    }

    /// Creates a session without a transport, with arguments and without media.
    pub fn base() -> Self {
        Caller::new(CallerKind::Base)
    }

    /// Sets what the bot gets as its `body`; without it, `{}`.
    pub fn body(self, body: Value) -> Self {
        Caller { body, ..self }
    }

    /// Sets what the bot gets as its call data. See [`RunnerArguments::call_data`].
    pub fn call_data(self, call_data: Value) -> Self {
        Caller {
            call_data: Some(call_data),
            ..self
        }
    }

    /// Sets the name of the session; without it, `test`.
    pub fn session_id(self, session_id: impl Into<String>) -> Self {
        Caller {
            session_id: session_id.into(),
            ..self
        }
    }

    /// Sets the configuration that the bot finds in its arguments.
    pub fn config(self, config: Config) -> Self {
        Caller { config, ..self }
    }

    /// Makes each frame that is spoken or heard take 20 ms of tokio's clock.
    ///
    /// With a paused clock this is virtual time: it moves only when bot and caller both wait, so
    /// that the result does not depend on the machine.
    ///
    /// ```
    /// use std::time::Duration;
    /// use edge_runner::kit::{TurnBoundary, TurnDetector, TurnRules};
    /// use edge_runner::testing::{Caller, SpeechScript};
    /// use edge_runner::{Audio, BotError, Event, RunnerArguments};
    ///
    /// /// Hangs up 10 s after the caller's second sentence.
    /// async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
    ///     let mut media = args.media(Audio::at(16_000))?;
    ///     let mut turns = TurnDetector::new(TurnRules::default(), 16_000);
    ///     let (mut turn, mut sentences, mut since) = (Vec::new(), 0, None);
    ///     while let Some(event) = media.recv().await {
    ///         let Event::Audio(frame) = event else { continue };
    ///         let now = tokio::time::Instant::now().into_std();
    ///         let boundary = turns.handle_audio(&frame, false, now, &mut turn);
    ///         if let Some(TurnBoundary::Ended(_)) = boundary {
    ///             (sentences, since) = (sentences + 1, Some(now));
    ///         }
    ///         let waited = since.map_or(Duration::ZERO, |since| now - since);
    ///         if sentences == 2 && waited >= Duration::from_secs(10) {
    ///             media.hang_up("two sentences");
    ///         }
    ///     }
    ///     Ok(())
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
    /// // In a test: #[tokio::test(start_paused = true)]
    /// let begin = tokio::time::Instant::now();
    /// let mut call = Caller::browser().paced().call(bot);
    /// call.join();
    /// // Its second turn ends after 4.7 s.
    /// call.say(&SpeechScript::new().sentences(2)).await;
    /// call.stay_silent(Duration::from_secs(10)).await;
    /// assert_eq!(call.hung_up().await.as_deref(), Some("two sentences"));
    /// assert_eq!(begin.elapsed().as_millis() / 100, 150, "15 s have passed");
    /// # });
    /// ```
    pub fn paced(self) -> Self {
        Caller { is_paced: true, ..self }
    }

    /// Starts the bot in a task of its own.
    ///
    /// # Panics
    /// Outside of a tokio runtime with timers.
    pub fn call<F, Fut>(self, bot: F) -> Call
    where
        F: FnOnce(RunnerArguments) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), BotError>> + Send + 'static,
    {
        let (mut call, args) = self.arguments();
        // A bot may panic before its first await, so it is called inside the task.
        call.bot = Some(tokio::spawn(async move { bot(args).await }));
        call
    }

    /// Creates the call and the arguments for a bot that the test runs itself.
    pub fn arguments(self) -> (Call, RunnerArguments) {
        let (transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
        let kind = self.kind.arguments(self.call_data, slot);
        let mut args = RunnerArguments::new(self.session_id.into(), self.body, Arc::new(self.config), kind);
        let (stop, shutdown) = Shutdown::channel();
        args.shutdown = shutdown;
        let call = Call {
            transport_side,
            stop,
            bot: None,
            is_paced: self.is_paced,
            is_over: false,
            is_speaking: false,
            resampler: None,
            unsent: VecDeque::new(),
            received: Vec::new(),
        };
        (call, args)
    }
}

impl CallerKind {
    fn arguments(self, call_data: Option<Value>, slot: MediaSlot) -> Kind {
        match self {
            CallerKind::WebRtc { embedded, messages } => {
                let connection = WebRtcConnection::new("test".to_owned(), embedded, messages);
                Kind::WebRtc(WebRtcArguments::new(connection, slot).with_call_data(call_data))
            }
            CallerKind::Socket(transport) => {
                let is_call = transport != Transport::WebSocket;
                let socket = WebSocketConnection::new(if is_call { "/ws" } else { "/ws-client" });
                let arguments = WebSocketArguments::new(socket, transport, call_data, slot);
                Kind::WebSocket(match is_call {
                    true => arguments.on_line(Some(LINE_RATE_HZ), Some(LINE_LAWS)),
                    false => arguments,
                })
            }
            CallerKind::VideoRoom(room_url) => Kind::Videoroom(VideoroomArguments {
                room_url,
                token: Some(Secret::new("token")),
                sip_uri: None,
            }),
            CallerKind::MediaRoom(room_name) => {
                let url = "wss://media.example.net".to_owned();
                Kind::Mediaroom(MediaroomArguments::new(
                    room_name,
                    url,
                    Secret::new("token"),
                    None,
                    slot,
                ))
            }
            CallerKind::Base => Kind::Base,
        }
    }
}

/// Speech of a caller, made of quiet and of a voice, at [`SpeechScript::RATE_HZ`].
///
/// The voice is synthetic: harmonics of 140 Hz in four syllables a second, which the detectors of
/// the kit hear. The quiet is that of a room; digital silence would be a muted microphone.
///
/// ```
/// use std::time::Duration;
/// # use edge_runner::testing::SpeechScript;
/// let script = SpeechScript::new()
///     .quiet(Duration::from_millis(600))
///     .voice(Duration::from_millis(400))
///     .quiet(Duration::from_secs(1));
/// assert_eq!(script.length(), Duration::from_secs(2));
/// assert_eq!(SpeechScript::new().sentences(2).length(), Duration::from_secs(5));
/// ```
#[derive(Clone, Default)]
pub struct SpeechScript {
    pcm: Vec<i16>,
}

impl fmt::Debug for SpeechScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpeechScript({} ms)", self.length().as_millis())
    }
}

impl SpeechScript {
    /// The rate of the speech, in Hz.
    pub const RATE_HZ: u32 = 16_000;

    /// Creates a script without a sound.
    pub fn new() -> Self {
        SpeechScript::default()
    }

    /// Adds the quiet of a room.
    #[must_use]
    pub fn quiet(mut self, length: Duration) -> Self {
        let samples = samples_of(length, Self::RATE_HZ);
        self.pcm
            .extend((0..samples).map(|at| if at % 2 == 0 { 30 } else { -30 }));
        self
    }

    /// Adds a voice.
    #[must_use]
    pub fn voice(mut self, length: Duration) -> Self {
        let samples = samples_of(length, Self::RATE_HZ);
        self.pcm.extend((0..samples).map(voice_sample));
        self
    }

    /// Adds whole sentences: 600 ms of quiet, and for each 1.2 s of voice and a pause of 1 s, which
    /// ends a turn.
    #[must_use]
    pub fn sentences(self, count: usize) -> Self {
        let begun = self.quiet(Duration::from_millis(600));
        (0..count).fold(begun, |script, _| {
            script.voice(Duration::from_millis(1_200)).quiet(Duration::from_secs(1))
        })
    }

    /// Returns its samples.
    pub fn pcm(&self) -> &[i16] {
        &self.pcm
    }

    /// Returns how long it is.
    pub fn length(&self) -> Duration {
        Duration::from_micros(self.pcm.len() as u64 * 1_000_000 / u64::from(Self::RATE_HZ))
    }
}

/// Returns a sample of the voice: its harmonics are strongest at 700 Hz.
fn voice_sample(at: usize) -> i16 {
    let t = at as f32 / SpeechScript::RATE_HZ as f32;
    let harmonics = (1..=12).map(|number| {
        let hz = 140.0 * number as f32;
        (TAU * hz * t).sin() / (1.0 + ((hz - 700.0) / 150.0).powi(2))
    });
    let syllable = 0.5 - 0.5 * (TAU * 4.0 * t).cos();
    (7_000.0 * syllable * harmonics.sum::<f32>()) as i16
}

/// A call to a bot, from the caller's side. Dropping it ends the session and aborts a bot of
/// [`Caller::call`].
pub struct Call {
    pub(crate) transport_side: TransportSide,
    pub(crate) stop: ShutdownTrigger,
    bot: Option<JoinHandle<Result<(), BotError>>>,
    /// See [`Caller::paced`].
    is_paced: bool,
    /// Whether the bot was told that the session is over.
    is_over: bool,
    /// Whether the bot was told that its speech is leaving.
    is_speaking: bool,
    /// Resamples the caller's speech to the bot's input rate; with both rates in Hz.
    resampler: Option<(u32, u32, Resampler)>,
    /// The caller's speech short of a frame, at the bot's input rate.
    unsent: VecDeque<i16>,
    /// The bot's speech that the test has not asked for yet.
    received: Vec<i16>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("is_over", &self.is_over)
            .field("has_bot", &self.bot.is_some())
            .finish_non_exhaustive()
    }
}

impl Call {
    /// Connects the caller: [`Event::Joined`].
    pub fn join(&self) {
        self.push_event(Event::Joined);
    }

    /// Sends any event to the bot. Use [`Call::speak`] for audio.
    pub fn push_event(&self, event: Event) {
        self.transport_side.push(event);
    }

    /// Sends a text message.
    pub fn send_message(&self, text: impl Into<String>) {
        self.push_event(Event::Message(text.into()));
    }

    /// Sends a message of RTVI.
    pub fn send_rtvi(&self, kind: &str, id: &str, data: Value) {
        let message = json!({"label": "rtvi-ai", "type": kind, "id": id, "data": data});
        self.send_message(message.to_string());
    }

    /// Presses keys of the telephone, one after the other: `0`-`9`, `*`, `#`, `A`-`D`.
    pub fn press(&self, keys: &str) {
        for key in keys.chars() {
            self.push_event(Event::Dtmf(key));
        }
    }

    /// Sends `i16` mono PCM at 8000 to 48000 Hz, in frames of 20 ms. The bot's speech meanwhile is
    /// kept for [`Call::hear`].
    ///
    /// Returns `false` if the bot does not open its media or does not read its events.
    pub async fn speak(&mut self, pcm: &[i16], rate_hz: u32) -> bool {
        let Some(bot_hz) = self.wait_for_media().await.map(|audio| audio.in_rate_hz) else {
            return false;
        };
        if self
            .resampler
            .as_ref()
            .is_none_or(|(from, to, _)| (*from, *to) != (rate_hz, bot_hz))
        {
            self.resampler = Some((rate_hz, bot_hz, Resampler::new(rate_hz, bot_hz)));
        }
        match &mut self.resampler {
            Some((from, to, resampler)) if from != to => {
                let mut resampled = Vec::new();
                resampler.process(pcm, &mut resampled);
                self.unsent.extend(resampled);
            }
            _ => self.unsent.extend(pcm),
        }
        let samples = samples_of(FRAME, bot_hz);
        while self.unsent.len() >= samples {
            let frame: Vec<i16> = self.unsent.drain(..samples).collect();
            self.transport_side.push_audio(&frame, bot_hz);
            if timeout(WAIT_MAX, self.wait_until_read()).await.is_err() {
                return false;
            }
            let speech = self.take_speech(FRAME);
            self.received.extend(speech);
            self.pace().await;
        }
        true
    }

    /// Sends scripted speech. The result is that of [`Call::speak`].
    pub async fn say(&mut self, script: &SpeechScript) -> bool {
        self.speak(&script.pcm, SpeechScript::RATE_HZ).await
    }

    /// Lets the time of a frame pass.
    async fn pace(&self) {
        if self.is_paced {
            tokio::time::sleep(FRAME).await;
        }
    }

    /// Sends a WAV file. The result is that of [`Call::speak`].
    ///
    /// # Errors
    /// [`WavError`] if it is not 16-bit PCM.
    pub async fn speak_wav(&mut self, file: &[u8]) -> Result<bool, WavError> {
        let wav = Wav::read(file)?;
        Ok(self.speak(&wav.pcm, wav.rate_hz).await)
    }

    /// Sends frames of silence for a while, as most callers do.
    pub async fn stay_silent(&mut self, duration: Duration) -> bool {
        let rate_hz = self
            .wait_for_media()
            .await
            .map_or(LINE_RATE_HZ, |audio| audio.in_rate_hz);
        self.speak(&vec![0; samples_of(duration, rate_hz)], rate_hz).await
    }

    /// Returns this much of the bot's speech and its rate in Hz, or less if the bot ends or is
    /// silent for 5 s.
    pub async fn hear(&mut self, duration: Duration) -> (Vec<i16>, u32) {
        let Some(rate_hz) = self.wait_for_media().await.map(|audio| audio.out_rate_hz) else {
            return (Vec::new(), 0);
        };
        let wanted = samples_of(duration, rate_hz);
        // Since the last speech, in frames of a paced caller.
        let mut silent = Duration::ZERO;
        let is_paced = self.is_paced;
        let hearing = async {
            while self.received.len() < wanted && silent < WAIT_MAX {
                let speech = self.take_speech(FRAME);
                if speech.is_empty() && self.has_ended() {
                    return;
                }
                silent = if speech.is_empty() {
                    silent + FRAME
                } else {
                    Duration::ZERO
                };
                match speech.is_empty() && !is_paced {
                    true => self.wait().await,
                    false => self.pace().await,
                }
                self.received.extend(speech);
            }
        };
        let within = if is_paced { duration + WAIT_MAX * 2 } else { WAIT_MAX };
        let _ = timeout(within, hearing).await;
        let rest = self.received.split_off(wanted.min(self.received.len()));
        (std::mem::replace(&mut self.received, rest), rate_hz)
    }

    /// Waits for the next text of the bot. Returns `None` if the bot ends or sends none for 5 s.
    pub async fn next_message(&mut self) -> Option<String> {
        let waiting = async {
            loop {
                if let Some(text) = self.transport_side.take_message() {
                    return Some(text);
                }
                if self.has_ended() {
                    return self.transport_side.take_message();
                }
                self.wait().await;
            }
        };
        timeout(WAIT_MAX, waiting).await.unwrap_or(None)
    }

    /// Waits for the next RTVI message as [`Call::next_message`] does, and skips other texts.
    pub async fn next_rtvi(&mut self) -> Option<Value> {
        loop {
            let text = self.next_message().await?;
            let message: Option<Value> = serde_json::from_str(&text).ok();
            if let Some(message) = message.filter(|message| message["label"] == "rtvi-ai") {
                return Some(message);
            }
        }
    }

    /// Waits until the bot hangs up with [`Output::hang_up`](crate::bot::Output::hang_up), tells it
    /// that the session is over, and returns its reason. Returns `None` if the bot ends or does
    /// neither for 5 s.
    pub async fn hung_up(&mut self) -> Option<String> {
        let waiting = async {
            loop {
                if let Some(reason) = self.transport_side.take_hang_up() {
                    return Some(reason);
                }
                if self.has_ended() {
                    return self.transport_side.take_hang_up();
                }
                let speech = self.take_speech(FRAME);
                if speech.is_empty() {
                    self.wait().await;
                }
                self.received.extend(speech);
            }
        };
        let reason = timeout(WAIT_MAX, waiting).await.unwrap_or(None)?;
        self.end(LeaveReason::BotEnded);
        Some(reason)
    }

    /// Returns whether the bot has transferred the call.
    pub fn is_transferred(&self) -> bool {
        self.transport_side.transferred_to().is_some()
    }

    /// Hangs up.
    pub fn leave(&mut self) {
        self.end(LeaveReason::Left);
    }

    /// Disappears, as a caller without a network does.
    pub fn vanish(&mut self) {
        self.end(LeaveReason::Vanished);
    }

    /// Breaks the transport.
    pub fn fail(&mut self) {
        self.end(LeaveReason::Failed);
    }

    /// Ends the session for a reason.
    pub fn end(&mut self, reason: LeaveReason) {
        self.is_over = true;
        self.push_event(Event::Left(reason));
    }

    /// Stops the runner: sets the bot's `shutdown` and ends the session.
    pub fn stop_runner(&mut self) {
        self.stop.set();
        self.end(LeaveReason::Shutdown);
    }

    /// Waits until a bot of [`Caller::call`] has ended and returns its result. Its remaining speech
    /// is dropped.
    ///
    /// # Errors
    /// The bot's own error, or an error about a panic or about 5 s without an end.
    pub async fn ended(mut self) -> Result<(), BotError> {
        let Some(mut bot) = self.bot.take() else {
            return Err("the test runs the bot itself".into());
        };
        let listening = async {
            loop {
                if self.take_speech(FRAME).is_empty() {
                    self.transport_side.notified().await;
                }
            }
        };
        let ended = async {
            tokio::select! {
                ended = &mut bot => ended,
                () = listening => unreachable!("it listens for ever"),
            }
        };
        match timeout(WAIT_MAX, ended).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) => Err(Box::new(error)),
            Err(_) => {
                bot.abort();
                Err("the bot did not end within 5 s".into())
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.bot.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Waits until the bot has opened its media, and returns the rates.
    async fn wait_for_media(&mut self) -> Option<crate::bot::Audio> {
        let opening = async {
            loop {
                if let Some(audio) = self.transport_side.audio() {
                    return Some(audio);
                }
                if self.has_ended() {
                    return None;
                }
                self.wait().await;
            }
        };
        timeout(WAIT_MAX, opening).await.unwrap_or(None)
    }

    /// Waits until the bot has done something, or has ended.
    async fn wait(&mut self) {
        match &mut self.bot {
            Some(bot) if !bot.is_finished() => tokio::select! {
                () = self.transport_side.notified() => {}
                () = finished(bot) => {}
            },
            _ => self.transport_side.notified().await,
        }
    }

    /// Waits until the bot has read most of its audio.
    async fn wait_until_read(&self) {
        while self.transport_side.waiting().frames > AUDIO_IN_FRAMES_MAX / 2 && !self.has_ended() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The bot may share its thread with the test.
        tokio::task::yield_now().await;
    }

    /// Takes the bot's speech of this duration and its marks, as a transport does.
    fn take_speech(&mut self, duration: Duration) -> Vec<i16> {
        let rate_hz = self.transport_side.audio().unwrap_or_default().out_rate_hz;
        if self.transport_side.take_interruption() {
            self.push_speaking(false);
        }
        for name in self.transport_side.take_unplayed_marks() {
            self.push_event(Event::Mark { name, played: false });
        }
        let (mut speech, samples) = (Vec::new(), samples_of(duration, rate_hz));
        while speech.len() < samples {
            let missing = samples - speech.len();
            let taken = self.transport_side.take_audio(&mut speech, missing);
            if taken > 0 {
                self.push_speaking(true);
            }
            let mark = self.transport_side.take_mark();
            if taken == 0 && mark.is_none() {
                break;
            }
            if let Some(name) = mark {
                self.push_event(Event::Mark { name, played: true });
            }
        }
        if speech.is_empty() {
            self.push_speaking(false);
        }
        speech
    }

    fn push_speaking(&mut self, is_speaking: bool) {
        if std::mem::replace(&mut self.is_speaking, is_speaking) != is_speaking {
            self.push_event(match is_speaking {
                true => Event::SpeechStarted,
                false => Event::SpeechStopped,
            });
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(bot) = &self.bot {
            bot.abort();
        }
    }
}

/// Waits until a task has finished, without taking its result.
async fn finished<T>(task: &JoinHandle<T>) {
    while !task.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn samples_of(duration: Duration, rate_hz: u32) -> usize {
    (duration.as_millis() * u128::from(rate_hz) / 1_000) as usize
}
