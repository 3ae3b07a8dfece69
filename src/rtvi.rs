//! RTVI for bots: one line opens a conversation with a voice client, and one loop holds it.
//!
//! [`Rtvi::open`] takes the session's media handle. From then on it answers the handshake and every message that no bot can
//! use, tells the client when the bot's voice starts and stops, and hands the rest to the bot as [`RtviEvent`]s. What the
//! bot has to tell goes out by one method each; messages never wait, and after the end of the session they go nowhere.
//! A microcontroller cannot send much and cannot read much: it is ready as soon as it joined, it is spared what only a
//! screen full of numbers needs (see [`Rtvi::detailed`]), and no message to it is longer than one chunk.
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
use crate::bot::{MissingField, RunnerArguments, SessionId, Shutdown};
use crate::limits::{
    AUDIO_IN_FRAMES_MAX, DEVICE_MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX, RTVI_EVENTS_WAITING_MAX, RTVI_SEGMENTS_HELD_MAX,
};
pub use crate::proto::rtvi::{
    About, BotOutput, ClientFile, ClientMessage, FileSource, FunctionResult, Measure, Metrics, RawAudio, Request,
    TextOptions, ToClient, Tokens,
};
use crate::proto::rtvi::{Handshake, Segment, parse, pieces, timestamp};

/// Bytes of a message around the text in it.
const ENVELOPE_BYTES: usize = 200;

/// What happens in a conversation, in the order in which it happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum RtviEvent {
    /// The caller is connected; audio flows from here on.
    Joined,
    /// The client can be talked to, and was told that the bot can: the time to greet. It comes once. A microcontroller is
    /// ready when it joined; a caller without RTVI never is.
    Ready,
    /// What the caller said, usually 20 ms of it.
    Audio(AudioFrame),
    /// The user typed something.
    Text { content: String, options: TextOptions },
    /// A message of the application; [`Rtvi::respond`] or [`Rtvi::reject`] answers it.
    Message(ClientMessage),
    /// A key of the telephone: one of `0`-`9`, `*`, `#`, `A`-`D`.
    Dtmf(char),
    /// Something that few bots need: the result of a function, a file, an event of the page.
    Request(Request),
    /// The bot's voice is heard from here on; the client was told.
    SpeechStarted,
    /// The bot's voice ended, or was interrupted; the client was told.
    SpeechStopped,
    /// A mark of [`Output::mark`] came back: all speech before it was played, or was dropped by an interruption.
    Mark { name: String, played: bool },
    /// Somebody is in the room, or came into it.
    ParticipantJoined(Participant),
    /// Somebody left the room.
    ParticipantLeft(Participant),
    /// Somebody in the room began to speak, or stopped, as the server hears it.
    Speaking { identity: Arc<str>, speaking: bool },
    /// The room could not be entered: why.
    JoinFailed(String),
    /// Nothing was heard of the caller for some seconds; the session is kept for a while.
    Lost,
    /// A lost caller is heard again.
    Resumed,
    /// The conversation is over; nothing follows.
    Left(LeaveReason),
}

/// What a client said of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// Its protocol version, as it came.
    pub version: Option<String>,
    /// Its `about`, as it came; null when there was none.
    pub about: Value,
}

/// A sentence whose words are told as they are spoken; made by [`Rtvi::begin_sentence`].
#[derive(Debug)]
pub struct Sentence {
    segment: Segment,
    /// Bytes of it that the client was told are spoken.
    announced_bytes: usize,
}

/// A conversation with a voice client.
pub struct Rtvi {
    session_id: SessionId,
    events: Events,
    output: Output,
    shutdown: Shutdown,
    embedded: bool,
    /// Whether the caller takes no messages and says nothing of itself: a telephone, or a connection without a data channel.
    no_messages: bool,
    detailed: bool,
    /// Whether the client speaks protocol 1.
    legacy: bool,
    client: Option<Client>,
    ready: bool,
    ended: bool,
    speaking: bool,
    /// What happened while the bot was not listening, in its order.
    queue: VecDeque<RtviEvent>,
    /// How many of `queue` are audio.
    frames_queued: usize,
    /// Audio that gave way while the bot was sending.
    frames_dropped: u64,
    /// Sentences that the client hears of once the bot's voice is heard, each with the place it is at.
    pending_segments: VecDeque<(Segment, usize)>,
    segments: u32,
}

impl fmt::Debug for Rtvi {
    /// Neither speech nor texts are part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rtvi")
            .field("session_id", &self.session_id)
            .field("ready", &self.ready)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Rtvi {
    /// Opens the conversation of a session, with PCM at the rates that `audio` asks for.
    ///
    /// # Errors
    /// [`MissingField`] on a kind without media, and when the media was taken before.
    pub fn open(args: &mut RunnerArguments, audio: Audio) -> Result<Self, MissingField> {
        let embedded = args.webrtc_connection().is_ok_and(|connection| connection.embedded);
        let no_messages = match args.webrtc_connection() {
            Ok(connection) => !connection.messages,
            Err(_) => args.call_data().is_some(),
        };
        let (events, output) = args.media(audio)?.split();
        Ok(Rtvi {
            session_id: args.session_id.clone(),
            events,
            output,
            shutdown: args.shutdown.clone(),
            embedded,
            no_messages,
            detailed: !embedded && !no_messages,
            legacy: false,
            client: None,
            ready: false,
            ended: false,
            speaking: false,
            queue: VecDeque::new(),
            frames_queued: 0,
            frames_dropped: 0,
            pending_segments: VecDeque::new(),
            segments: 0,
        })
    }

    /// Whether metrics, interim transcripts, audio levels, text of the model and words as they are spoken are sent: by
    /// default to all but microcontrollers.
    pub fn detailed(&mut self, detailed: bool) {
        self.detailed = detailed;
    }

    /// Returns what the client said of itself, once it said so.
    pub fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// Returns the voice alone; clones of it speak into the same session, from any task.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Waits for the next event; `None` once the conversation is over: the caller left, asked the bot to leave, or the runner stops.
    ///
    /// It can be dropped and called again at any time without losing an event.
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

    /// Queues speech as [`Output::send_audio`] does, and keeps answering the client while it waits.
    ///
    /// What the caller says meanwhile is kept for [`Rtvi::recv`], a second of it at most. A bot that lets itself be
    /// interrupted while it says something long sends through a clone of [`Rtvi::output`] next to `recv` instead.
    ///
    /// # Errors
    /// [`MediaError`] once the session is over.
    pub async fn send_audio(&mut self, pcm: &[i16]) -> Result<(), MediaError> {
        let output = self.output.clone();
        let mut sending = pin!(output.send_audio(pcm));
        loop {
            // When much waits for the bot, the rest waits where it came in, which has caps of its own.
            let listening = !self.ended && self.queue.len() - self.frames_queued < RTVI_EVENTS_WAITING_MAX;
            tokio::select! {
                biased;
                sent = &mut sending => return sent,
                event = self.events.recv(), if listening => self.handle_event(event),
            }
        }
    }

    /// Drops, at once, all speech that has not left yet and the sentences that belong to it, and tells the client.
    pub fn interrupt(&mut self) {
        self.output.interrupt();
        self.pending_segments.clear();
        self.send(&ToClient::BotInterrupted);
    }

    /// Tells what the bot says aloud: before its audio, or while that is heard.
    ///
    /// The client hears of it when the voice starts. Text without a voice is [`Rtvi::show`]'s.
    pub fn say(&mut self, text: &str) {
        for piece in pieces(text, self.text_bytes_max()) {
            let segment = self.segment(piece);
            self.announce_with_voice(segment, piece.len());
        }
    }

    /// Tells what the bot says aloud, as [`Rtvi::say`] does, when its words will be told as they are spoken.
    pub fn begin_sentence(&mut self, text: &str) -> Sentence {
        let segment = self.segment(text);
        self.announce_with_voice(segment.clone(), 0);
        Sentence {
            segment,
            announced_bytes: 0,
        }
    }

    /// Tells that the voice is at `bytes` of a sentence; at its length the sentence is complete.
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
        if is_pending || words.is_empty() || !self.detailed {
            return;
        }
        self.send(&ToClient::BotTtsText { text: words });
        if let Some(output) = sentence.segment.spoken_to(bytes, self.legacy) {
            self.send(&ToClient::BotOutput(output));
        }
        sentence.announced_bytes += words.len();
    }

    /// Shows text of the bot that is not spoken.
    pub fn show(&mut self, text: &str) {
        for piece in pieces(text, self.text_bytes_max()) {
            let segment = self.segment(piece);
            self.send(&ToClient::BotOutput(segment.shown(self.legacy)));
        }
    }

    /// Tells that the bot hears the user speak.
    pub fn user_started_speaking(&self) {
        self.send(&ToClient::UserStartedSpeaking);
    }

    /// Tells that the user has finished.
    pub fn user_stopped_speaking(&self) {
        self.send(&ToClient::UserStoppedSpeaking);
    }

    /// Tells what the user said; an interim text stands until the next one.
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

    /// Tells how loud the user is, from 0 to 1.
    pub fn user_level(&self, level: f32) {
        self.send(&ToClient::UserAudioLevel { value: rounded(level) });
    }

    /// Tells how loud the bot is, from 0 to 1.
    pub fn bot_level(&self, level: f32) {
        self.send(&ToClient::BotAudioLevel { value: rounded(level) });
    }

    /// Tells what the bot measured of itself.
    pub fn metrics(&self, metrics: &Metrics<'_>) {
        self.send(&ToClient::Metrics(metrics));
    }

    /// Tells that something failed. After a fatal error the client disconnects.
    pub fn error(&self, error: &str, fatal: bool) {
        let error = pieces(error, self.text_bytes_max()).next().unwrap_or_default();
        self.send(&ToClient::Error { error, fatal });
    }

    /// Sends the application anything.
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

    /// Refuses a message of the application, and says why.
    pub fn reject(&self, request: &ClientMessage, error: &str) {
        self.send_text(ToClient::ErrorResponse { error }.answer(&request.id));
    }

    /// Sends any message of the protocol that answers nothing.
    pub fn send(&self, message: &ToClient<'_>) {
        if self.detailed || !message.is_detail() {
            self.send_text(message.text());
        }
    }

    /// Takes one event of the session: does what the protocol asks, and keeps what is the bot's.
    fn handle_event(&mut self, event: Option<Event>) {
        match event {
            _ if self.ended => {}
            None => self.ended = true,
            Some(Event::Audio(frame)) => self.enqueue_frame(frame),
            Some(Event::Message(text)) => self.handle_message(&text),
            Some(Event::Joined) => {
                self.enqueue(RtviEvent::Joined);
                if self.embedded || self.no_messages {
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
            Some(Event::ParticipantJoined(who)) => self.enqueue(RtviEvent::ParticipantJoined(who)),
            Some(Event::ParticipantLeft(who)) => self.enqueue(RtviEvent::ParticipantLeft(who)),
            Some(Event::Speaking { identity, speaking }) => self.enqueue(RtviEvent::Speaking { identity, speaking }),
            Some(Event::JoinFailed(why)) => self.enqueue(RtviEvent::JoinFailed(why)),
            Some(Event::Lost) => self.enqueue(RtviEvent::Lost),
            Some(Event::Resumed) => self.enqueue(RtviEvent::Resumed),
            Some(Event::Left(reason)) => self.leave(reason),
        }
    }

    fn handle_message(&mut self, text: &str) {
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

    /// Keeps an event for the bot.
    fn enqueue(&mut self, event: RtviEvent) {
        self.queue.push_back(event);
    }

    /// Keeps a frame for the bot; old speech gives way to new.
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

    /// Tells of a sentence now or, if the bot is not heard yet, when it is.
    fn announce_with_voice(&mut self, segment: Segment, bytes: usize) {
        if self.speaking {
            return self.announce(&segment, bytes);
        }
        if self.pending_segments.len() == RTVI_SEGMENTS_HELD_MAX {
            self.pending_segments.pop_front();
        }
        self.pending_segments.push_back((segment, bytes));
    }

    /// Tells of a sentence for the first time. To whom words are not told one by one, all of them are told here.
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

    /// Returns how many bytes one message to this client may have.
    fn bytes_max(&self) -> usize {
        if self.embedded {
            DEVICE_MESSAGE_BYTES_MAX
        } else {
            MESSAGE_BYTES_MAX
        }
    }

    /// Returns how many bytes of text one message to this client may carry.
    fn text_bytes_max(&self) -> usize {
        // Progress repeats the text of its segment.
        let copies = if self.detailed { 2 } else { 1 };
        (self.bytes_max() - ENVELOPE_BYTES) / copies
    }

    /// Sends a text, and tells whether this client can read one so long. After the end of the session it goes nowhere.
    fn send_text(&self, text: String) -> bool {
        if self.no_messages {
            return true;
        }
        if text.len() > self.bytes_max() {
            debug!(
                "{}: message of {} bytes is too long for the client",
                self.session_id,
                text.len()
            );
            return false;
        }
        let _ = self.output.send_message(text);
        true
    }
}

/// Brings a level into range, with as many digits as a meter shows.
fn rounded(level: f32) -> f32 {
    if level.is_nan() {
        0.0
    } else {
        (level.clamp(0.0, 1.0) * 1000.0).round() / 1000.0
    }
}

#[cfg(test)]
pub(crate) mod tests;
