//! The services of the bot `cascade`: a recogniser and a voice that speak Wyoming, and a chat
//! model.
//!
//! They run in a thread of their own. The recogniser counts utterances and says their number, which
//! the model repeats and the voice is told, so that the moments of an utterance belong together.
//! The model writes a piece every [`PIECE_INTERVAL`], the voice is ten times as fast as it is
//! heard.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use edge_runner_proto::assistant::services::wyoming::{WyomingEvent, WyomingReader, write_event};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::records::{Moment, Recorder};
use super::sound::{Answer, FrameLevel};
use crate::Result;

/// Rates of the recogniser and of the voice: those of the common servers.
const RECOGNIZER_RATE_HZ: usize = 16_000;
const VOICE_RATE_HZ: u32 = 22_050;
/// Samples of a piece of the voice, and the time from one to the next.
const VOICE_SAMPLES: usize = 1_024;
const VOICE_INTERVAL: Duration = Duration::from_micros(4_600);
/// Time from one piece of the model's text to the next.
const PIECE_INTERVAL: Duration = Duration::from_millis(20);

/// Serves each connection of a listener.
pub async fn serve<F, S>(listener: TcpListener, session: S)
where
    F: Future<Output = Result<()>> + Send + 'static,
    S: Fn(TcpStream) -> F,
{
    while let Ok((tcp, _)) = listener.accept().await {
        let _ = tcp.set_nodelay(true);
        let running = session(tcp);
        tokio::spawn(async move {
            // The runner closes connections whose answer it does not need.
            let _ = running.await;
        });
    }
}

/// Serves a recogniser.
pub async fn recognize(listener: TcpListener, records: Recorder) {
    let count = Arc::new(AtomicUsize::new(0));
    serve(listener, move |tcp| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        hear(tcp, number, records.clone())
    })
    .await;
}

async fn hear(tcp: TcpStream, number: usize, records: Recorder) -> Result<()> {
    records.add(number, Moment::Utterance);
    let mut stream = EventStream::new(tcp);
    let (mut level, mut rest) = (FrameLevel::default(), Vec::new());
    loop {
        let event = stream.next().await?;
        match &*event.kind {
            "audio-chunk" => {
                let (samples, _) = event.payload.as_chunks::<2>();
                rest.extend(samples.iter().map(|sample| i16::from_le_bytes(*sample)));
                while rest.len() >= RECOGNIZER_RATE_HZ / 50 {
                    if level.push(&rest[..RECOGNIZER_RATE_HZ / 50]).begins_mark {
                        records.add(number, Moment::Mark);
                    }
                    rest.drain(..RECOGNIZER_RATE_HZ / 50);
                }
            }
            "audio-stop" => break,
            _ => {}
        }
    }
    records.add(number, Moment::Transcript);
    stream
        .send("transcript", &json!({"text": format!("Question {number}")}), &[])
        .await
}

/// Serves a voice.
pub async fn synthesize(listener: TcpListener, answer: Answer, records: Recorder) {
    let pcm: Arc<Vec<i16>> = Arc::new(answer.pcm(VOICE_RATE_HZ));
    serve(listener, move |tcp| speak(tcp, pcm.clone(), records.clone())).await;
}

async fn speak(tcp: TcpStream, pcm: Arc<Vec<i16>>, records: Recorder) -> Result<()> {
    let mut stream = EventStream::new(tcp);
    let asked = stream.next().await?;
    // Further sentences have no number.
    let number = number_in(asked.text("text"));
    if let Some(number) = number {
        records.add(number, Moment::VoiceAsked);
    }
    let format = json!({"rate": VOICE_RATE_HZ, "width": 2, "channels": 1});
    stream.send("audio-start", &format, &[]).await?;
    if let Some(number) = number {
        records.add(number, Moment::FirstAudio);
    }
    for piece in pcm.chunks(VOICE_SAMPLES) {
        let bytes: Vec<u8> = piece.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        stream.send("audio-chunk", &format, &bytes).await?;
        sleep(VOICE_INTERVAL).await;
    }
    stream.send("audio-stop", &Value::Null, &[]).await
}

/// Serves a chat model that answers with so many sentences.
pub async fn chat(listener: TcpListener, sentences: usize, records: Recorder) {
    serve(listener, move |tcp| write(tcp, sentences, records.clone())).await;
}

async fn write(mut tcp: TcpStream, sentences: usize, records: Recorder) -> Result<()> {
    let request: Value = serde_json::from_slice(&read_body(&mut tcp).await?)?;
    let messages = request["messages"].as_array().ok_or("no messages")?;
    let question = messages.iter().rfind(|message| message["role"] == "user");
    let question = question
        .and_then(|message| message["content"].as_str())
        .unwrap_or_default();
    let number = number_in(question).ok_or("a question without a number")?;
    records.add(number, Moment::ChatAsked);
    tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        .await?;
    let text =
        format!("This is what answers question {number}. ") + &"And this is the rest of it. ".repeat(sentences - 1);
    for (nth, piece) in text.split_inclusive(' ').enumerate() {
        if nth > 0 {
            sleep(PIECE_INTERVAL).await;
        }
        let is_first_end = piece.starts_with(|first: char| first.is_ascii_digit());
        send_delta(&mut tcp, &json!({"content": piece}), Value::Null).await?;
        if is_first_end {
            records.add(number, Moment::Sentence);
        }
    }
    send_delta(&mut tcp, &json!({}), json!("stop")).await?;
    tcp.write_all(b"data: [DONE]\n\n").await?;
    Ok(())
}

async fn send_delta(tcp: &mut TcpStream, delta: &Value, reason: Value) -> Result<()> {
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    Ok(tcp.write_all(format!("data: {chunk}\n\n").as_bytes()).await?)
}

/// Reads a request, and returns its body.
async fn read_body(tcp: &mut TcpStream) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.ok_or("a request without a length")?.trim().parse()?;
            if let Some(body) = bytes.get(end + 4..end + 4 + length) {
                return Ok(body.to_vec());
            }
        }
        if tcp.read_buf(&mut bytes).await? == 0 {
            return Err("a request without its end".into());
        }
    }
}

/// Returns the last number in a text.
fn number_in(text: &str) -> Option<usize> {
    let mut numbers = text.split(|other: char| !other.is_ascii_digit());
    numbers.rfind(|number| !number.is_empty())?.parse().ok()
}

/// A connection that carries Wyoming events.
struct EventStream {
    tcp: TcpStream,
    reader: WyomingReader,
    bytes: Vec<u8>,
}

impl EventStream {
    fn new(tcp: TcpStream) -> Self {
        EventStream {
            tcp,
            reader: WyomingReader::default(),
            bytes: Vec::new(),
        }
    }

    async fn next(&mut self) -> Result<WyomingEvent> {
        loop {
            match self.reader.next_event() {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(error) => return Err(format!("{error:?}").into()),
            }
            self.bytes.clear();
            if self.tcp.read_buf(&mut self.bytes).await? == 0 {
                return Err("the runner closed the connection".into());
            }
            self.reader.push(&self.bytes);
        }
    }

    async fn send(&mut self, kind: &str, data: &Value, payload: &[u8]) -> Result<()> {
        let mut bytes = Vec::new();
        write_event(&mut bytes, kind, data, payload);
        Ok(self.tcp.write_all(&bytes).await?)
    }
}
