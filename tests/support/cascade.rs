//! [`ServiceServer`]: a recogniser, a chat model or a voice on a free loopback port, scripted by a
//! test.
//!
//! In: what a test sends on each connection. Out: the connections of the runner, in order, each
//! with its requests: Wyoming events, or one HTTP request. The server decides nothing by itself.
//! Standard library only, so that it shares no bug with the clients of the runner.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Map, Value, json};

use super::rest::{self, RecordedRequest};
use super::runner::PATIENCE;

pub struct ServiceServer {
    pub addr: SocketAddr,
    connections: Receiver<TcpStream>,
    over: Arc<AtomicBool>,
}

impl ServiceServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let over: Arc<AtomicBool> = Arc::default();
        let (accepted, connections) = channel();
        let is_over = over.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_over.load(Ordering::Relaxed) || accepted.send(stream).is_err() {
                    return;
                }
            }
        });
        Self {
            addr,
            connections,
            over,
        }
    }

    /// The URL of a Wyoming server.
    pub fn wyoming_url(&self) -> String {
        format!("tcp://{}", self.addr)
    }

    /// The base URL of an HTTP service.
    pub fn http_url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    /// Waits for the next connection.
    pub fn accept(&self) -> ServiceConnection {
        let accepted = self.connections.recv_timeout(PATIENCE);
        let stream = accepted.expect("the runner connects to the service");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        ServiceConnection {
            input: BufReader::new(stream),
        }
    }

    /// Returns a connection that is already there.
    pub fn waiting(&self) -> Option<ServiceConnection> {
        let stream = self.connections.try_recv().ok()?;
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Some(ServiceConnection {
            input: BufReader::new(stream),
        })
    }

    /// Reads the next HTTP request.
    pub fn accept_request(&self) -> (RecordedRequest, ServiceConnection) {
        let mut connection = self.accept();
        let request = rest::read(&mut connection.input).expect("an HTTP request");
        (request, connection)
    }

    /// Recognises the next utterance as this text, after its end. Returns its audio.
    pub fn recognize(&self, text: &str) -> Vec<u8> {
        let mut connection = self.accept();
        connection.expect("transcribe");
        let start = connection.expect("audio-start");
        let rate = &start.data["rate"];
        assert_eq!(
            (rate, &start.data["width"], &start.data["channels"]),
            (&json!(16_000), &json!(2), &json!(1))
        );
        let pcm = connection.hear_utterance();
        connection.send("transcript", &json!({"text": text}), &[]);
        pcm
    }

    /// Answers the next request to a model with these pieces of text. Returns its JSON.
    pub fn answer_chat(&self, pieces: &[&str]) -> Value {
        let (request, mut connection) = self.accept_request();
        connection.begin("200 OK", "text/event-stream");
        for piece in pieces {
            connection.send_delta(&json!({"content": piece}));
        }
        connection.end_chat("stop");
        serde_json::from_slice(&request.bytes).expect("JSON")
    }

    /// Speaks the next text with these samples. Returns the text.
    pub fn speak(&self, rate_hz: u32, pcm: &[i16]) -> String {
        let mut connection = self.accept();
        let asked = connection.expect("synthesize");
        connection.send_speech(rate_hz, pcm);
        asked.data["text"].as_str().expect("a text").to_owned()
    }
}

impl Drop for ServiceServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the listener, so that its thread ends.
        let _ = TcpStream::connect(self.addr);
    }
}

/// An event of the runner to a Wyoming server.
#[derive(Debug)]
pub struct ReceivedEvent {
    pub kind: String,
    pub data: Value,
    pub payload: Vec<u8>,
}

/// A connection of the runner. Dropping it closes it.
pub struct ServiceConnection {
    input: BufReader<TcpStream>,
}

impl ServiceConnection {
    /// Sends bytes. The runner may have closed the connection.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.input.get_mut().write_all(bytes);
    }

    /// Waits for the runner to close the connection. Fails if it sends anything before.
    pub fn expect_end(&mut self) {
        let mut rest = Vec::new();
        // A reset is an end, too.
        let _ = self.input.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{} bytes before the end", rest.len());
    }

    /// Reads whatever the runner sends until it closes the connection.
    pub fn read_to_end(&mut self) {
        // A reset is an end, too.
        let _ = self.input.read_to_end(&mut Vec::new());
    }

    /// Sends a Wyoming event.
    pub fn send(&mut self, kind: &str, data: &Value, payload: &[u8]) {
        let data = data.to_string();
        let head =
            json!({"type": kind, "version": "1.10.2", "data_length": data.len(), "payload_length": payload.len()});
        self.send_bytes(&[head.to_string().as_bytes(), b"\n", data.as_bytes(), payload].concat());
    }

    /// Waits for the next Wyoming event.
    pub fn next(&mut self) -> ReceivedEvent {
        let mut line = String::new();
        self.input.read_line(&mut line).expect("an event within the patience");
        let head: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no event: {line:?}"));
        let mut read = |name: &str| {
            let mut bytes = vec![0; head[name].as_u64().unwrap_or(0) as usize];
            self.input.read_exact(&mut bytes).expect("the rest of the event");
            bytes
        };
        let (data, payload) = (read("data_length"), read("payload_length"));
        ReceivedEvent {
            kind: head["type"].as_str().expect("a type").to_owned(),
            data: match data.is_empty() {
                true => Value::Object(Map::new()),
                false => serde_json::from_slice(&data).expect("JSON"),
            },
            payload,
        }
    }

    /// Waits for the next Wyoming event, which must have this type.
    pub fn expect(&mut self, kind: &str) -> ReceivedEvent {
        let event = self.next();
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }

    /// Reads audio up to the end of the utterance.
    pub fn hear_utterance(&mut self) -> Vec<u8> {
        let mut pcm = Vec::new();
        loop {
            let event = self.next();
            match &*event.kind {
                "audio-chunk" => pcm.extend(event.payload),
                "audio-stop" => return pcm,
                other => panic!("{other} in an utterance"),
            }
        }
    }

    /// Sends speech as Wyoming events.
    pub fn send_speech(&mut self, rate_hz: u32, pcm: &[i16]) {
        let format = json!({"rate": rate_hz, "width": 2, "channels": 1});
        self.send("audio-start", &format, &[]);
        for piece in pcm.chunks(1_024) {
            let bytes: Vec<u8> = piece.iter().flat_map(|sample| sample.to_le_bytes()).collect();
            self.send("audio-chunk", &format, &bytes);
        }
        self.send("audio-stop", &json!({}), &[]);
    }

    /// Sends the head of an HTTP response whose body ends with the connection.
    pub fn begin(&mut self, status: &str, content_type: &str) {
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n");
        self.send_bytes(head.as_bytes());
    }

    /// Sends a whole HTTP response, and ends the connection.
    pub fn respond(mut self, status: &str, content_type: &str, body: &[u8]) {
        self.begin(status, content_type);
        self.send_bytes(body);
    }

    /// Sends a server-sent event.
    pub fn send_chunk(&mut self, chunk: &Value) {
        self.send_bytes(format!("data: {chunk}\n\n").as_bytes());
    }

    /// Sends a piece of a chat completion.
    pub fn send_delta(&mut self, delta: &Value) {
        self.send_chunk(
            &json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}),
        );
    }

    /// Ends a chat completion, with its tokens.
    pub fn end_chat(&mut self, reason: &str) {
        self.send_chunk(
            &json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        );
        self.send_chunk(
            &json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}}),
        );
        self.send_bytes(b"data: [DONE]\n\n");
    }
}
