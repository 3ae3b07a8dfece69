//! RTVI for bots: the protocol of Pipecat's clients and of the page.
//!
//! [`Rtvi::open`] takes the session's media handle. It answers the handshake and every message that
//! is not for the bot, reports when the bot's speech starts and stops, and passes the rest to the
//! bot as [`RtviEvent`]s. Methods send messages without waiting; after the session they do nothing.
//! A microcontroller is ready when it joins, gets no messages that only a screen needs (see
//! [`Rtvi::set_detailed`]), and no message longer than one chunk. The record of the call has what
//! its caller does not get, also where there are no messages at all, as on a telephone.
//!
//! ```no_run
//! # use edge_runner::{bot::{Audio, BotError, RunnerArguments}, rtvi::{Rtvi, RtviEvent}};
//! async fn bot(mut args: RunnerArguments) -> Result<(), BotError> {
//!     let mut rtvi = Rtvi::open(&mut args, Audio::at(16_000))?;
//!     while let Some(event) = rtvi.recv().await {
//!         match event {
//!             RtviEvent::Audio(frame) => rtvi.send_audio(&frame).await?,
//!             RtviEvent::Message(request) => rtvi.respond(&request, &serde_json::json!("yes")),
//!             _ => {}
//!         }
//!     }
//!     Ok(())
//! }
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use log::{debug, warn};
use serde_json::Value;

use crate::bot::media::{Audio, AudioFrame, Event, Events, LeaveReason, MediaError, Output, Participant};
use crate::bot::{AnsweredBy, MissingField, RunnerArguments, SessionId, Shutdown};
use crate::limits::{AUDIO_IN_FRAMES_MAX, DEVICE_MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX};
pub use crate::proto::rtvi::{
    About, AnswerStage, AnswerTime, BotOutput, ClientFile, ClientMessage, FileSource, FunctionResult, Measure, Metrics,
    RawAudio, Request, TextOptions, ToClient, Tokens,
};
use crate::proto::rtvi::{Handshake, Segment, parse, pieces, timestamp};
use crate::proto::silent_bot::BotReadiness;

/// Sentences queued until their audio plays: a long paragraph.
const RTVI_SEGMENTS_MAX: usize = 32;
/// Events queued while the bot waits to send: more than arrive in the half second in which its
/// queue drains.
const RTVI_EVENTS_WAITING_MAX: usize = 32;

/// Bytes of a message around the text in it.
const ENVELOPE_BYTES: usize = 200;

/// Something that happened in a session with RTVI, in order.
#[derive(Debug)]
#[non_exhaustive]
pub enum RtviEvent {
    /// The caller is connected: audio flows from here on.
    Joined,
    /// The handshake is done: the time to greet. It happens once, for a microcontroller or a
    /// telephone in a room when it joins, and never for another caller without RTVI.
    Ready,
    /// Audio of the caller, usually 20 ms.
    Audio(AudioFrame),
    /// A text that the user typed.
    Text {
        /// What the user typed.
        content: String,
        /// How the bot should respond.
        options: TextOptions,
    },
    /// A message of the application; [`Rtvi::respond`] or [`Rtvi::reject`] answers it.
    Message(ClientMessage),
    /// A key of the telephone: one of `0`-`9`, `*`, `#`, `A`-`D`.
    Dtmf(char),
    /// A request that few bots need: a function's result, a file, an event of the page.
    Request(Request),
    /// The bot's speech begins to leave the runner. The client was told.
    SpeechStarted,
    /// The bot's speech ended or was interrupted. The client was told.
    SpeechStopped,
    /// A mark of [`Output::mark`] came back.
    Mark {
        /// The name that the bot gave the mark.
        name: String,
        /// Whether all speech before the mark was played; `false` after an interruption.
        played: bool,
    },
    /// A participant is in the room, or has joined it.
    ParticipantJoined(Participant),
    /// A participant has left the room.
    ParticipantLeft(Participant),
    /// The name or the attributes of a participant have changed, such as the state of a telephone's
    /// call.
    ParticipantChanged(Participant),
    /// An administrator of the room has muted the bot (`true`), so that the caller hears nothing of
    /// it, or unmuted it.
    Muted(bool),
    /// The caller of a WebRTC call holds the call, and hears nothing of the bot.
    Held,
    /// The caller takes the call up again after [`RtviEvent::Held`].
    Resumed,
    /// Who answered a call that the runner dialled, once the provider has detected it.
    AnsweredBy(AnsweredBy),
    /// A participant of the room began or stopped to speak, according to the room's server.
    Speaking {
        /// The participant's identity.
        identity: Arc<str>,
        /// Whether the participant speaks now.
        speaking: bool,
    },
    /// The room could not be joined, with the reason.
    JoinFailed(String),
    /// Nothing has arrived from the caller for some seconds. The session stays open for a while.
    Lost,
    /// The caller is back after [`RtviEvent::Lost`].
    Restored,
    /// The session is over. No event follows.
    Left(LeaveReason),
}

/// What a client told about itself in the handshake.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Client {
    /// Its protocol version, unparsed.
    pub version: Option<String>,
    /// Its `about`, or null.
    pub about: Value,
}

/// A sentence whose words are sent while they are spoken. See [`Rtvi::begin_sentence`].
#[derive(Debug)]
pub struct Sentence {
    segment: Segment,
    /// Bytes of it that the client knows to be spoken.
    announced_bytes: usize,
}

/// A session with an RTVI client.
pub struct Rtvi {
    session_id: SessionId,
    events: Events,
    output: Output,
    shutdown: Shutdown,
    embedded: bool,
    /// Whether the caller has no messages: a telephone, or a connection without a data channel. The
    /// first message of a client that opens its channel later ends that.
    no_messages: bool,
    detailed: bool,
    /// Whether the bot has chosen the value of `detailed`.
    is_detail_chosen: bool,
    /// Whether the client speaks protocol 1.
    legacy: bool,
    client: Option<Client>,
    ready: bool,
    has_joined: bool,
    /// Whether a telephone is in the room, which sends no `client-ready`.
    has_telephone: bool,
    ended: bool,
    speaking: bool,
    /// Events that the bot has not received yet.
    queue: VecDeque<RtviEvent>,
    /// How many of `queue` are audio.
    frames_queued: usize,
    /// Frames that were dropped while the bot was sending.
    frames_dropped: u64,
    /// Sentences to announce when the bot's speech starts, each with the bytes spoken.
    pending_segments: VecDeque<(Segment, usize)>,
    segments: u32,
}

impl fmt::Debug for Rtvi {
    /// Omits speech and texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rtvi")
            .field("session_id", &self.session_id)
            .field("ready", &self.ready)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Rtvi {
    /// Takes the media of a session, with PCM at the rates of `audio`.
    ///
    /// # Errors
    /// [`MissingField`] on a kind without media, and when the media was taken before.
    pub fn open(args: &mut RunnerArguments, audio: Audio) -> Result<Self, MissingField> {
        let embedded = args.is_embedded();
        let no_messages = match args.message_channel() {
            Some(has_channel) => !has_channel,
            None => args.call_data().is_some() && args.room_name().is_err(),
        };
        let (events, output) = args.media(audio)?.split();
        // A telephone gets no `bot-ready`, which says so elsewhere.
        output.set_readiness(BotReadiness::Listening);
        Ok(Rtvi {
            session_id: args.session_id.clone(),
            events,
            output,
            shutdown: args.shutdown.clone(),
            embedded,
            no_messages,
            detailed: !embedded && !no_messages,
            is_detail_chosen: false,
            legacy: false,
            client: None,
            ready: false,
            has_joined: false,
            has_telephone: false,
            ended: false,
            speaking: false,
            queue: VecDeque::new(),
            frames_queued: 0,
            frames_dropped: 0,
            pending_segments: VecDeque::new(),
            segments: 0,
        })
    }

    /// Sets whether metrics, interim transcripts, audio levels, model text and spoken words are
    /// sent. They are by default, except to microcontrollers.
    pub fn set_detailed(&mut self, detailed: bool) {
        self.detailed = detailed;
        self.is_detail_chosen = true;
    }

    /// Returns what the client told about itself, after the handshake.
    pub fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// Returns whether the caller gets messages, and not only the record of the call.
    pub(crate) fn has_messages(&self) -> bool {
        !self.no_messages
    }

    /// Returns the sending half of the media. Clones of it send from any task.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Waits for the next event. Returns `None` once the session is over: the caller left or asked
    /// the bot to leave, or the runner stops.
    ///
    /// This method is cancel safe: dropping its future loses no event.
    pub async fn recv(&mut self) -> Option<RtviEvent> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                if let RtviEvent::Audio(_) = event {
                    self.frames_queued -= 1;
                }
                return Some(event);
            }
            if self.ended {
                return None;
            }
            let event = tokio::select! {
                biased;
                event = self.events.recv() => event,
                () = self.shutdown.wait() => Some(Event::Left(LeaveReason::Shutdown)),
            };
            self.handle_event(event);
        }
    }

    /// Queues speech as [`Output::send_audio`] does, and answers the client while it waits.
    ///
    /// At most one second of the caller's audio is kept for [`Rtvi::recv`] meanwhile. A bot that
    /// can be interrupted in a long speech sends through a clone of [`Rtvi::output`], beside
    /// `recv`.
    ///
    /// # Errors
    /// [`MediaError`] once the session is over.
    pub async fn send_audio(&mut self, pcm: &[i16]) -> Result<(), MediaError> {
        let output = self.output.clone();
        let mut sending = pin!(output.send_audio(pcm));
        loop {
            // When much waits for the bot, the rest waits where it came in, which has caps of its
            // own.
            let listening = !self.ended && self.queue.len() - self.frames_queued < RTVI_EVENTS_WAITING_MAX;
            tokio::select! {
                biased;
                sent = &mut sending => return sent,
                event = self.events.recv(), if listening => self.handle_event(event),
            }
        }
    }

    /// Drops all speech that has not left the runner, with its sentences, and tells the client.
    pub fn interrupt(&mut self) {
        self.output.interrupt();
        self.pending_segments.clear();
        self.send(&ToClient::BotInterrupted);
    }

    /// Announces what the bot says, before or during its audio.
    ///
    /// The client gets it when the speech starts. For text without speech, use [`Rtvi::show`].
    pub fn say(&mut self, text: &str) {
        for piece in pieces(text, self.text_bytes_max()) {
            let segment = self.segment(piece);
            self.announce_with_voice(segment, piece.len());
        }
    }

    /// Announces a sentence as [`Rtvi::say`] does, for [`Rtvi::progress`] to follow word by word.
    pub fn begin_sentence(&mut self, text: &str) -> Sentence {
        let segment = self.segment(text);
        self.announce_with_voice(segment.clone(), 0);
        Sentence {
            segment,
            announced_bytes: 0,
        }
    }

    /// Reports that `bytes` of a sentence are spoken; all of them complete it.
    pub fn progress(&mut self, sentence: &mut Sentence, bytes: usize) {
        let is_pending = self
            .pending_segments
            .iter()
            .any(|(segment, _)| *segment == sentence.segment);
        let words = sentence
            .segment
            .upto(bytes)
            .get(sentence.announced_bytes..)
            .unwrap_or_default();
        if is_pending || words.is_empty() {
            return;
        }
        // Other clients have got all words of the sentence at once.
        if self.detailed {
            self.send(&ToClient::BotTtsText { text: words });
        }
        if let Some(output) = sentence.segment.spoken_to(bytes, self.legacy) {
            self.send(&ToClient::BotOutput(output));
        }
        sentence.announced_bytes += words.len();
    }

    /// Sends text of the bot that is not spoken.
    pub fn show(&mut self, text: &str) {
        for piece in pieces(text, self.text_bytes_max()) {
            let segment = self.segment(piece);
            self.send(&ToClient::BotOutput(segment.shown(self.legacy)));
        }
    }

    /// Reports that the user started to speak.
    pub fn user_started_speaking(&self) {
        self.send(&ToClient::UserStartedSpeaking);
    }

    /// Reports that the user stopped speaking.
    pub fn user_stopped_speaking(&self) {
        self.send(&ToClient::UserStoppedSpeaking);
    }

    /// Reports what the user said. An interim transcript is valid until the next one.
    pub fn transcript(&self, text: &str, is_final: bool) {
        #[allow(
            clippy::disallowed_methods,
            reason = "a transcript carries the time of day, and a bot has a clock"
        )]
        let at = SystemTime::now();
        self.send(&ToClient::UserTranscription {
            text,
            user_id: "",
            timestamp: &timestamp(at),
            r#final: is_final,
        });
    }

    /// Reports the user's level, 0 to 1.
    pub fn user_level(&self, level: f32) {
        self.send(&ToClient::UserAudioLevel { value: rounded(level) });
    }

    /// Reports the bot's level, 0 to 1.
    pub fn bot_level(&self, level: f32) {
        self.send(&ToClient::BotAudioLevel { value: rounded(level) });
    }

    /// Sends the bot's metrics.
    pub fn metrics(&self, metrics: &Metrics<'_>) {
        self.send(&ToClient::Metrics(metrics));
    }

    /// Reports an error. After a fatal one the client disconnects.
    pub fn error(&self, error: &str, fatal: bool) {
        let error = pieces(error, self.text_bytes_max()).next().unwrap_or_default();
        self.send(&ToClient::Error { error, fatal });
    }

    /// Sends a message to the application.
    pub fn message(&self, value: &Value) {
        self.send(&ToClient::ServerMessage(value));
    }

    /// Answers a message of the application.
    pub fn respond(&self, request: &ClientMessage, d: &Value) {
        let answer = ToClient::ServerResponse { t: &request.t, d }.answer(&request.id);
        if !self.send_text(answer) {
            self.reject(request, "the answer is too long for this client");
        }
    }

    /// Rejects a message of the application with a reason.
    pub fn reject(&self, request: &ClientMessage, error: &str) {
        self.send_text(ToClient::ErrorResponse { error }.answer(&request.id));
    }

    /// Sends any message of the protocol that is not a response.
    pub fn send(&self, message: &ToClient<'_>) {
        if self.detailed || !message.is_detail() {
            self.send_text(message.text());
        } else if message.is_recorded() {
            self.output.report(message.text());
        }
    }

    /// Handles one event of the session, and queues what is for the bot.
    fn handle_event(&mut self, event: Option<Event>) {
        match event {
            _ if self.ended => {}
            None => self.ended = true,
            Some(Event::Audio(frame)) => self.enqueue_frame(frame),
            Some(Event::Message(text)) => self.handle_message(&text),
            Some(Event::Joined) => {
                self.has_joined = true;
                self.enqueue(RtviEvent::Joined);
                if self.embedded || self.no_messages || self.has_telephone {
                    self.enqueue_ready();
                }
            }
            Some(Event::Dtmf(key)) => self.enqueue(RtviEvent::Dtmf(key)),
            Some(Event::SpeechStarted) => {
                self.speaking = true;
                self.send(&ToClient::BotStartedSpeaking);
                while let Some((segment, bytes)) = self.pending_segments.pop_front() {
                    self.announce(&segment, bytes);
                }
                self.enqueue(RtviEvent::SpeechStarted);
            }
            Some(Event::SpeechStopped) => {
                self.speaking = false;
                self.send(&ToClient::BotStoppedSpeaking);
                self.enqueue(RtviEvent::SpeechStopped);
            }
            Some(Event::Mark { name, played }) => self.enqueue(RtviEvent::Mark { name, played }),
            Some(Event::ParticipantJoined(who)) => {
                self.has_telephone |= who.is_telephone;
                let is_late = who.is_telephone && self.has_joined;
                self.enqueue(RtviEvent::ParticipantJoined(who));
                if is_late {
                    self.enqueue_ready();
                }
            }
            Some(Event::ParticipantLeft(who)) => self.enqueue(RtviEvent::ParticipantLeft(who)),
            Some(Event::ParticipantChanged(who)) => self.enqueue(RtviEvent::ParticipantChanged(who)),
            Some(Event::Muted(muted)) => self.enqueue(RtviEvent::Muted(muted)),
            Some(Event::Held) => self.enqueue(RtviEvent::Held),
            Some(Event::Resumed) => self.enqueue(RtviEvent::Resumed),
            Some(Event::Speaking { identity, speaking }) => self.enqueue(RtviEvent::Speaking { identity, speaking }),
            Some(Event::AnsweredBy(by)) => self.enqueue(RtviEvent::AnsweredBy(by)),
            Some(Event::JoinFailed(why)) => self.enqueue(RtviEvent::JoinFailed(why)),
            Some(Event::Lost) => self.enqueue(RtviEvent::Lost),
            Some(Event::Restored) => self.enqueue(RtviEvent::Restored),
            Some(Event::Left(reason)) => self.leave(reason),
        }
    }

    fn handle_message(&mut self, text: &str) {
        if std::mem::replace(&mut self.no_messages, false) && !self.is_detail_chosen {
            self.detailed = !self.embedded;
        }
        let message = match parse(text) {
            Ok(message) => message,
            Err(refusal) => {
                debug!("{}: message refused: {:?}", self.session_id, refusal.to_string());
                if let Some(reply) = refusal.reply() {
                    self.send_text(reply);
                }
                return;
            }
        };
        match message.request {
            Request::ClientReady { version, about } => self.handle_client_ready(&message.id, version, about),
            Request::DisconnectBot => self.leave(LeaveReason::Left),
            Request::ClientMessage(request) => self.enqueue(RtviEvent::Message(request)),
            Request::SendText { content, options } => self.enqueue(RtviEvent::Text { content, options }),
            Request::Dtmf(keys) => keys.into_iter().for_each(|key| self.enqueue(RtviEvent::Dtmf(key))),
            other => self.enqueue(RtviEvent::Request(other)),
        }
    }

    fn handle_client_ready(&mut self, id: &str, version: Option<String>, about: Value) {
        let handshake = Handshake::new(version.as_deref());
        if let Some(error) = &handshake.complaint {
            self.send_text(ToClient::ErrorResponse { error }.answer(id));
        }
        let ready = ToClient::BotReady {
            version: &handshake.version,
            about: About::SELF,
        };
        self.send_text(ready.answer(id));
        self.legacy = handshake.legacy;
        self.client = Some(Client { version, about });
        self.enqueue_ready();
    }

    fn enqueue_ready(&mut self) {
        if !std::mem::replace(&mut self.ready, true) {
            self.enqueue(RtviEvent::Ready);
        }
    }

    fn leave(&mut self, reason: LeaveReason) {
        if self.frames_dropped > 0 {
            warn!(
                "{} frames of the caller were dropped while the bot waited for its own speech to leave",
                self.frames_dropped
            );
        }
        self.ended = true;
        self.enqueue(RtviEvent::Left(reason));
    }

    /// Queues an event for the bot.
    fn enqueue(&mut self, event: RtviEvent) {
        self.queue.push_back(event);
    }

    /// Queues a frame for the bot. A full queue drops its oldest frame.
    fn enqueue_frame(&mut self, frame: AudioFrame) {
        if self.frames_queued == AUDIO_IN_FRAMES_MAX {
            let oldest = self.queue.iter().position(|event| matches!(event, RtviEvent::Audio(_)));
            oldest.and_then(|oldest| self.queue.remove(oldest));
            self.frames_dropped += 1;
        } else {
            self.frames_queued += 1;
        }
        self.queue.push_back(RtviEvent::Audio(frame));
    }

    fn segment(&mut self, text: &str) -> Segment {
        self.segments = self.segments.wrapping_add(1);
        Segment::new(self.segments, text)
    }

    /// Announces a sentence now, or when the bot's speech starts.
    fn announce_with_voice(&mut self, segment: Segment, bytes: usize) {
        if self.speaking {
            return self.announce(&segment, bytes);
        }
        if self.pending_segments.len() == RTVI_SEGMENTS_MAX {
            self.pending_segments.pop_front();
        }
        self.pending_segments.push_back((segment, bytes));
    }

    /// Announces a sentence. A client without word progress gets all of its words here.
    fn announce(&self, segment: &Segment, bytes: usize) {
        if bytes > 0 || !self.detailed {
            for text in pieces(segment.text(), self.text_bytes_max()) {
                self.send(&ToClient::BotTtsText { text });
            }
        }
        if let Some(output) = segment.spoken_to(bytes, self.legacy) {
            self.send(&ToClient::BotOutput(output));
        }
    }

    /// Returns the cap on the bytes of one message to this client.
    fn bytes_max(&self) -> usize {
        if self.embedded {
            DEVICE_MESSAGE_BYTES_MAX
        } else {
            MESSAGE_BYTES_MAX
        }
    }

    /// Returns the cap on the text in one message to this client.
    fn text_bytes_max(&self) -> usize {
        // Progress repeats the text of its segment.
        let copies = if self.detailed { 2 } else { 1 };
        (self.bytes_max() - ENVELOPE_BYTES) / copies
    }

    /// Sends a text and returns whether its length is within the client's cap. What the client does
    /// not get is reported. Does nothing after the end of the session.
    fn send_text(&self, text: String) -> bool {
        if self.no_messages {
            self.output.report(text);
            return true;
        }
        if text.len() > self.bytes_max() {
            debug!(
                "{}: message of {} bytes is too long for the client",
                self.session_id,
                text.len()
            );
            self.output.report(text);
            return false;
        }
        let _ = self.output.send_message(text);
        true
    }
}

/// Clamps a level to 0 to 1 and rounds it to three digits.
fn rounded(level: f32) -> f32 {
    if level.is_nan() {
        0.0
    } else {
        (level.clamp(0.0, 1.0) * 1000.0).round() / 1000.0
    }
}

#[cfg(test)]
pub(crate) mod tests;
