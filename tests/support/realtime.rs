//! [`RealtimeServer`]: a speech-to-speech service on a free loopback port, scripted by a test.
//!
//! In: the events that a test sends. Out: the upgrade requests and the events of the runner, in
//! order; the audio of `input_audio_buffer.append` is collected instead. Each event of the runner
//! must have a known type, and all but `append` an `event_id` of their own. Names of the generally
//! available protocol. The server decides nothing by itself.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};

use data_encoding::BASE64;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

use super::runner::PATIENCE;
use super::socket::runtime;

/// Types of events that a client may send.
const CLIENT_EVENTS: [&str; 8] = [
    "session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.clear",
    "conversation.item.create",
    "conversation.item.truncate",
    "conversation.item.delete",
    "response.create",
    "response.cancel",
];

/// The response to an upgrade.
#[derive(Clone)]
enum Upgrade {
    Accepted,
    Refused(u16, String),
}

pub struct RealtimeServer {
    pub addr: SocketAddr,
    connections: Receiver<RealtimeSession>,
    listener: AbortHandle,
}

/// The request that opened a connection.
#[derive(Clone, Debug, Default)]
pub struct UpgradeRequest {
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
}

impl UpgradeRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl RealtimeServer {
    /// Starts a server that accepts connections.
    pub fn start() -> Self {
        Self::serving(Upgrade::Accepted)
    }

    /// Starts a server that answers every upgrade with this status and body.
    pub fn refusing(status: u16, body: &Value) -> Self {
        Self::serving(Upgrade::Refused(status, body.to_string()))
    }

    fn serving(upgrade: Upgrade) -> Self {
        let listener = runtime()
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let (accepted, connections) = channel();
        let task = runtime().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                runtime().spawn(accept(stream, upgrade.clone(), accepted.clone()));
            }
        });
        Self {
            addr,
            connections,
            listener: task.abort_handle(),
        }
    }

    /// The URL for the runner, without the path.
    pub fn url(&self) -> String {
        format!("ws://{}/v1", self.addr)
    }

    /// Waits for the next connection.
    pub fn accept(&self) -> RealtimeSession {
        let accepted = self.connections.recv_timeout(PATIENCE);
        accepted.expect("the runner connects to the service")
    }
}

impl Drop for RealtimeServer {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// A connection of the runner. Dropping it closes the TCP connection without a close frame.
pub struct RealtimeSession {
    pub request: UpgradeRequest,
    outbox: UnboundedSender<Message>,
    inbox: Receiver<Result<Value, String>>,
    /// Audio of the caller, as the runner encoded it.
    pub audio: Vec<u8>,
    task: AbortHandle,
}

async fn accept(stream: TcpStream, upgrade: Upgrade, accepted: Sender<RealtimeSession>) {
    let mut seen = UpgradeRequest::default();
    #[allow(clippy::result_large_err, reason = "the type is the library's")]
    let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        seen.target = request.uri().to_string();
        let headers = request.headers().iter();
        seen.headers = headers
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect();
        match upgrade {
            Upgrade::Accepted => Ok(response),
            Upgrade::Refused(status, body) => {
                let mut refusal = ErrorResponse::new(Some(body));
                *refusal.status_mut() = StatusCode::from_u16(status).expect("a status");
                Err(refusal)
            }
        }
    };
    let Ok(socket) = accept_hdr_async(stream, check).await else {
        return;
    };
    let (outbox, mut letters) = unbounded_channel::<Message>();
    let (received, inbox) = channel();
    let task = runtime().spawn(async move {
        let mut socket: WebSocketStream<TcpStream> = socket;
        loop {
            tokio::select! {
                letter = letters.recv() => match letter {
                    Some(message) => drop(socket.send(message).await),
                    None => return,
                },
                message = socket.next() => {
                    let event = match message {
                        Some(Ok(Message::Text(text))) => Ok(serde_json::from_str(&text).expect("JSON")),
                        Some(Ok(Message::Close(close))) => {
                            Err(close.map_or(1005, |close| u16::from(close.code)).to_string())
                        }
                        Some(Ok(_)) => continue,
                        Some(Err(Error::ConnectionClosed)) | None => Err("at its end".to_owned()),
                        Some(Err(error)) => Err(error.to_string()),
                    };
                    let is_over = event.is_err();
                    if received.send(event).is_err() || is_over {
                        return;
                    }
                }
            }
        }
    });
    let _ = accepted.send(RealtimeSession {
        request: seen,
        outbox,
        inbox,
        audio: Vec::new(),
        task: task.abort_handle(),
    });
}

impl RealtimeSession {
    /// Sends an event.
    pub fn send(&self, event: &Value) {
        let _ = self.outbox.send(Message::Text(event.to_string().into()));
    }

    /// Sends `session.created`, and answers the update that follows. Returns its session.
    pub fn open(&mut self) -> Value {
        self.send(
            &json!({"type": "session.created", "event_id": "s1", "session": {"type": "realtime", "id": "sess_1"}}),
        );
        let update = self.expect("session.update");
        self.send(&json!({"type": "session.updated", "event_id": "s2", "session": update["session"]}));
        update["session"].clone()
    }

    /// Waits for the next event of this type. Other events than audio fail the test.
    pub fn expect(&mut self, kind: &str) -> Value {
        let event = self.next(kind);
        assert_eq!(event["type"], kind, "{event}");
        event
    }

    /// Waits for the next event that is not audio.
    pub fn next(&mut self, wanted: &str) -> Value {
        loop {
            let event = match self.inbox.recv_timeout(PATIENCE) {
                Ok(Ok(event)) => event,
                Ok(Err(end)) => panic!("the connection ended ({end}) before {wanted}"),
                Err(_) => panic!("waited in vain for {wanted}"),
            };
            if let Some(event) = self.file(event) {
                return event;
            }
        }
    }

    /// Waits until this many bytes of the caller's audio arrived. Other events fail the test.
    pub fn hear(&mut self, bytes: usize) {
        while self.audio.len() < bytes {
            let event = self.inbox.recv_timeout(PATIENCE).expect("more audio");
            let other = self.file(event.expect("the connection goes on"));
            assert_eq!(other, None, "while audio was expected");
        }
    }

    /// Waits for the end of the connection and returns its close code or error.
    pub fn end(&mut self) -> String {
        loop {
            match self.inbox.recv_timeout(PATIENCE).expect("an end") {
                Ok(event) => drop(self.file(event)),
                Err(end) => return end,
            }
        }
    }

    fn file(&mut self, event: Value) -> Option<Value> {
        let kind = event["type"].as_str().expect("a type");
        assert!(CLIENT_EVENTS.contains(&kind), "no event of a client: {event}");
        if kind == "input_audio_buffer.append" {
            let audio = event["audio"].as_str().expect("base64");
            self.audio.extend(BASE64.decode(audio.as_bytes()).expect("base64"));
            return None;
        }
        assert!(event["event_id"].is_string(), "no event_id: {event}");
        Some(event)
    }

    /// Begins a response with one item of audio.
    pub fn begin_response(&self, response_id: &str, item_id: &str) {
        self.send(&json!({"type": "response.created", "event_id": "e", "response":
            {"id": response_id, "object": "realtime.response", "status": "in_progress", "output": []}}));
        self.send(
            &json!({"type": "response.output_item.added", "event_id": "e", "response_id": response_id, "output_index": 0,
            "item": {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}}),
        );
    }

    /// Sends speech of an item, in one delta.
    pub fn speak(&self, response_id: &str, item_id: &str, audio: &[u8]) {
        self.send(
            &json!({"type": "response.output_audio.delta", "event_id": "e", "response_id": response_id,
            "item_id": item_id, "output_index": 0, "content_index": 0, "delta": BASE64.encode(audio)}),
        );
    }

    /// Sends a piece of the transcript of an item.
    pub fn write(&self, response_id: &str, item_id: &str, text: &str) {
        self.send(
            &json!({"type": "response.output_audio_transcript.delta", "event_id": "e", "response_id": response_id,
            "item_id": item_id, "output_index": 0, "content_index": 0, "delta": text}),
        );
    }

    /// Ends a response whose only item is speech.
    pub fn end_response(&self, response_id: &str, item_id: &str, text: &str) {
        self.send(
            &json!({"type": "response.output_audio.done", "event_id": "e", "response_id": response_id,
            "item_id": item_id, "output_index": 0, "content_index": 0}),
        );
        let item = json!({"id": item_id, "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_audio", "transcript": text}]});
        self.send(
            &json!({"type": "response.output_item.done", "event_id": "e", "response_id": response_id, "output_index": 0,
            "item": item}),
        );
        self.send(&json!({"type": "response.done", "event_id": "e", "response":
            {"id": response_id, "object": "realtime.response", "status": "completed", "output": [item],
             "usage": {"total_tokens": 30, "input_tokens": 20, "output_tokens": 10,
                "input_token_details": {"cached_tokens": 0, "audio_tokens": 12, "text_tokens": 8},
                "output_token_details": {"audio_tokens": 7, "text_tokens": 3}}}}));
    }

    /// Closes the connection with this code.
    pub fn close(&self, code: u16) {
        let _ = self.outbox.send(Message::Close(Some(CloseFrame {
            code: code.into(),
            reason: "".into(),
        })));
    }
}

impl Drop for RealtimeSession {
    fn drop(&mut self) {
        self.task.abort();
    }
}
