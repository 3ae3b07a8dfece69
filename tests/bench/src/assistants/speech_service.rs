//! The service of the bot `realtime`: finds the turns by loudness, and answers each.
//!
//! It runs in a thread of its own. It tells at once that a caller speaks, which ends the answer in
//! progress; a turn ends after [`PAUSE_FRAMES`] of silence. An answer is sent ten times as fast as
//! it is heard, in deltas of [`DELTA`]. Connections are counted in the order of the calls.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use edge_runner_proto::audio::g711::Law;
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async};

use super::records::{Moment, Recorder};
use super::sound::{Answer, FrameLevel};
use crate::Result;

/// Frames of 20 ms without speech that end a turn: longer than a pause between words.
const PAUSE_FRAMES: u32 = 30;
/// Length of a delta of the answer, and the time from one to the next.
const DELTA: Duration = Duration::from_millis(100);
const DELTA_INTERVAL: Duration = Duration::from_millis(10);
const PCM_RATE_HZ: u32 = 24_000;
const LINE_RATE_HZ: u32 = 8_000;

/// The answer in both formats, as base64 of deltas.
struct Deltas {
    pcm: Vec<String>,
    line: Vec<String>,
}

/// Serves connections until its runtime ends.
pub async fn serve(listener: TcpListener, answer: Answer, records: Recorder) {
    let samples = |rate_hz: u32| (u128::from(rate_hz) * DELTA.as_millis() / 1_000) as usize;
    let pcm = answer.pcm(PCM_RATE_HZ);
    let line = answer.pcm(LINE_RATE_HZ);
    let deltas = Arc::new(Deltas {
        pcm: pcm
            .chunks(samples(PCM_RATE_HZ))
            .map(|chunk| {
                let bytes: Vec<u8> = chunk.iter().flat_map(|sample| sample.to_le_bytes()).collect();
                BASE64.encode(&bytes)
            })
            .collect(),
        line: line
            .chunks(samples(LINE_RATE_HZ))
            .map(|chunk| {
                let mut bytes = vec![0; chunk.len()];
                Law::Mu.encode(chunk, &mut bytes);
                BASE64.encode(&bytes)
            })
            .collect(),
    });
    let mut stream = 0;
    while let Ok((tcp, _)) = listener.accept().await {
        let session = Session {
            stream,
            records: records.clone(),
            deltas: deltas.clone(),
            is_line: false,
            level: FrameLevel::default(),
            rest: Vec::new(),
            silence: None,
            responses: 0,
            answer: None,
        };
        stream += 1;
        tokio::spawn(async move {
            // The runner ends connections without a farewell when its process is killed.
            let _ = session.run(tcp).await;
        });
    }
}

/// The part of an event of the runner that matters here.
#[derive(Deserialize)]
struct RunnerEvent<'e> {
    #[serde(rename = "type")]
    kind: &'e str,
    audio: Option<&'e str>,
    session: Option<Value>,
}

struct Session {
    stream: usize,
    records: Recorder,
    deltas: Arc<Deltas>,
    /// Whether audio is G.711.
    is_line: bool,
    level: FrameLevel,
    /// Samples of an incomplete frame.
    rest: Vec<i16>,
    /// Frames since the last speech, in a turn.
    silence: Option<u32>,
    responses: u32,
    answer: Option<Sending>,
}

/// An answer that is being sent.
struct Sending {
    at: usize,
    due: Instant,
}

impl Session {
    async fn run(mut self, tcp: TcpStream) -> Result<()> {
        tcp.set_nodelay(true)?;
        let mut socket = accept_async(tcp).await?;
        let session = json!({"type": "realtime", "id": format!("sess_{}", self.stream)});
        send(
            &mut socket,
            &json!({"type": "session.created", "event_id": "e", "session": session}),
        )
        .await?;
        loop {
            let due = self.answer.as_ref().map_or_else(Instant::now, |answer| answer.due);
            tokio::select! {
                biased;
                message = socket.next() => match message {
                    Some(Ok(Message::Text(text))) => self.handle(&text, &mut socket).await?,
                    Some(Ok(Message::Close(_))) | None => return Ok(()),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                },
                () = sleep_until(due), if self.answer.is_some() => self.continue_answer(&mut socket).await?,
            }
        }
    }

    async fn handle(&mut self, text: &str, socket: &mut WebSocketStream<TcpStream>) -> Result<()> {
        let event: RunnerEvent<'_> = serde_json::from_str(text)?;
        match (event.kind, event.audio, event.session) {
            ("input_audio_buffer.append", Some(audio), _) => self.hear(audio, socket).await,
            ("session.update", _, Some(session)) => {
                self.is_line = session["audio"]["output"]["format"]["type"] == "audio/pcmu";
                send(
                    socket,
                    &json!({"type": "session.updated", "event_id": "e", "session": session}),
                )
                .await
            }
            _ => Ok(()),
        }
    }

    async fn hear(&mut self, audio: &str, socket: &mut WebSocketStream<TcpStream>) -> Result<()> {
        let bytes = BASE64.decode(audio.as_bytes())?;
        if self.is_line {
            Law::Mu.decode(&bytes, &mut self.rest);
        } else {
            let (samples, _) = bytes.as_chunks::<2>();
            self.rest
                .extend(samples.iter().map(|sample| i16::from_le_bytes(*sample)));
        }
        let frame = if self.is_line { LINE_RATE_HZ } else { PCM_RATE_HZ } as usize / 50;
        while self.rest.len() >= frame {
            let received = self.level.push(&self.rest[..frame]);
            self.rest.drain(..frame);
            if received.begins_mark {
                self.records.add(self.stream, Moment::Mark);
            }
            match (received.is_speech, self.silence) {
                (true, None) => self.begin_turn(socket).await?,
                (true, Some(_)) => self.silence = Some(0),
                (false, Some(PAUSE_FRAMES)) => self.begin_answer(socket).await?,
                (false, Some(frames)) => self.silence = Some(frames + 1),
                (false, None) => {}
            }
        }
        Ok(())
    }

    async fn begin_turn(&mut self, socket: &mut WebSocketStream<TcpStream>) -> Result<()> {
        self.silence = Some(0);
        self.records.add(self.stream, Moment::SpeechStarted);
        send(
            socket,
            &json!({"type": "input_audio_buffer.speech_started", "event_id": "e", "item_id": "u", "audio_start_ms": 0}),
        )
        .await?;
        match self.answer.take() {
            Some(_) => self.end_response("cancelled", socket).await,
            None => Ok(()),
        }
    }

    async fn begin_answer(&mut self, socket: &mut WebSocketStream<TcpStream>) -> Result<()> {
        self.silence = None;
        self.responses += 1;
        let (response_id, item_id) = self.ids();
        for event in [
            json!({"type": "input_audio_buffer.speech_stopped", "event_id": "e", "item_id": "u", "audio_end_ms": 0}),
            json!({"type": "conversation.item.input_audio_transcription.completed", "event_id": "e", "item_id": "u",
                "content_index": 0, "transcript": "What is the answer to this question?"}),
            json!({"type": "response.created", "event_id": "e", "response":
                {"id": response_id, "object": "realtime.response", "status": "in_progress", "output": []}}),
            json!({"type": "response.output_item.added", "event_id": "e", "response_id": response_id, "output_index": 0,
                "item": {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}}),
        ] {
            send(socket, &event).await?;
        }
        // Answers begin in every phase of the 20 ms.
        let phase = Duration::from_millis((7 * self.stream as u64 + 3 * u64::from(self.responses)) % 20);
        self.answer = Some(Sending {
            at: 0,
            due: Instant::now() + phase,
        });
        Ok(())
    }

    async fn continue_answer(&mut self, socket: &mut WebSocketStream<TcpStream>) -> Result<()> {
        let (response_id, item_id) = self.ids();
        let deltas = if self.is_line {
            &self.deltas.line
        } else {
            &self.deltas.pcm
        };
        let Some(sending) = &mut self.answer else { return Ok(()) };
        let Some(delta) = deltas.get(sending.at) else {
            self.answer = None;
            return self.end_response("completed", socket).await;
        };
        let event = format!(
            r#"{{"type":"response.output_audio.delta","event_id":"e","response_id":"{response_id}","item_id":"{item_id}","output_index":0,"content_index":0,"delta":"{delta}"}}"#
        );
        if sending.at == 0 {
            self.records.add(self.stream, Moment::FirstAudio);
        }
        sending.at += 1;
        sending.due += DELTA_INTERVAL;
        socket.send(Message::Text(event.into())).await?;
        // Two words in a second, like a voice.
        if sending.at % 5 == 1 {
            let delta = if sending.at % 20 == 16 { "words. " } else { "more " };
            let event = json!({"type": "response.output_audio_transcript.delta", "event_id": "e",
                "response_id": response_id, "item_id": item_id, "output_index": 0, "content_index": 0, "delta": delta});
            send(socket, &event).await?;
        }
        Ok(())
    }

    async fn end_response(&mut self, status: &str, socket: &mut WebSocketStream<TcpStream>) -> Result<()> {
        let (response_id, item_id) = self.ids();
        if status == "completed" {
            let done = json!({"type": "response.output_audio.done", "event_id": "e", "response_id": response_id,
                "item_id": item_id, "output_index": 0, "content_index": 0});
            send(socket, &done).await?;
        }
        let done = json!({"type": "response.done", "event_id": "e", "response":
            {"id": response_id, "object": "realtime.response", "status": status, "output": [],
             "usage": {"total_tokens": 30, "input_tokens": 20, "output_tokens": 10}}});
        send(socket, &done).await
    }

    fn ids(&self) -> (String, String) {
        (format!("resp_{}", self.responses), format!("item_{}", self.responses))
    }
}

async fn send(socket: &mut WebSocketStream<TcpStream>, event: &Value) -> Result<()> {
    Ok(socket.send(Message::Text(event.to_string().into())).await?)
}
