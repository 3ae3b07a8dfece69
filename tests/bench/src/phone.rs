//! One telephone call: the media WebSocket of a provider, with Twilio's messages.
//!
//! In: the HTTP address of the runner. Out: the times at which each audio message was sent and came
//! back. Framing is by tokio-tungstenite, everything else by hand, so that the callers cost little
//! beside the runner.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::Result;

pub const PTIME: Duration = Duration::from_millis(20);
/// 20 ms of mu-law, a steady tone of 400 Hz, in base64; all messages of a call carry it.
const PAYLOAD_BYTES: usize = 160;
/// Time limit of the last echo.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Phone {
    socket: WebSocketStream<TcpStream>,
    number: usize,
    media: String,
}

impl Phone {
    /// Opens the socket and sends the start.
    pub async fn begin(addr: SocketAddr, number: usize) -> Result<Phone> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let (mut socket, _) = client_async(format!("ws://{addr}/ws"), stream).await?;
        let start = format!(
            r#"{{"event":"start","sequenceNumber":"1","streamSid":"MZ{number}","start":{{"streamSid":"MZ{number}","callSid":"CA{number}","mediaFormat":{{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1}}}}}}"#
        );
        socket
            .send(Message::text(
                r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#,
            ))
            .await?;
        socket.send(Message::text(start)).await?;
        // One period of 400 Hz at 8 kHz in mu-law.
        const PERIOD: [u8; 20] = [
            0xff, 0xa6, 0x98, 0x90, 0x8e, 0x8d, 0x8e, 0x90, 0x98, 0xa6, 0xff, 0x26, 0x18, 0x10, 0x0e, 0x0d, 0x0e, 0x10,
            0x18, 0x26,
        ];
        let payload: Vec<u8> = PERIOD.into_iter().cycle().take(PAYLOAD_BYTES).collect();
        let media = media(number, &payload);
        Ok(Phone { socket, number, media })
    }

    /// Says this mu-law from `first` until `end`, one message every 20 ms, again and again. Marks
    /// are returned at once. Returns the number of audio messages that came back.
    pub async fn converse(&mut self, line: &[u8], first: Instant, end: Instant) -> Result<u32> {
        let messages: Vec<String> = line
            .chunks(PAYLOAD_BYTES)
            .map(|chunk| media(self.number, chunk))
            .collect();
        let (mut next, mut received) = (first, 0);
        for message in messages.iter().cycle() {
            if next >= end {
                break;
            }
            let due = sleep_until(next.into());
            tokio::pin!(due);
            loop {
                tokio::select! {
                    biased;
                    message = self.socket.next() => received += self.answer(message).await?,
                    () = &mut due => break,
                }
            }
            self.socket.send(Message::text(message.clone())).await?;
            next += PTIME;
        }
        Ok(received)
    }

    /// Returns a mark, or counts an audio message.
    async fn answer(&mut self, message: Option<Received>) -> Result<u32> {
        let Message::Text(text) = message.ok_or("the runner hung up")?? else {
            return Ok(0);
        };
        if text.contains(r#""event":"mark""#) {
            self.socket.send(Message::Text(text)).await?;
            return Ok(0);
        }
        Ok(u32::from(text.contains(r#""event":"media""#)))
    }

    /// Sends `count` messages, one every 20 ms from `first`, and returns the times at which each
    /// was sent and came back.
    pub async fn talk(&mut self, count: u32, first: Instant) -> Result<(Vec<Instant>, Vec<Instant>)> {
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        for nth in 0..count {
            let due = sleep_until((first + PTIME * nth).into());
            tokio::pin!(due);
            loop {
                tokio::select! {
                    biased;
                    message = self.socket.next() => take(message, &mut received)?,
                    () = &mut due => break,
                }
            }
            sent.push(Instant::now());
            self.socket.send(Message::text(self.media.clone())).await?;
        }
        self.rest(count, &mut received).await?;
        Ok((sent, received))
    }

    /// Sends `count` messages at once, and returns the times at which they came back.
    pub async fn burst(&mut self, count: u32) -> Result<Vec<Instant>> {
        let mut received = Vec::new();
        for _ in 0..count {
            self.socket.feed(Message::text(self.media.clone())).await?;
        }
        self.socket.flush().await?;
        self.rest(count, &mut received).await?;
        Ok(received)
    }

    /// Receives until as many messages came back as were sent, or none arrives for a long time.
    async fn rest(&mut self, count: u32, received: &mut Vec<Instant>) -> Result<()> {
        while received.len() < count as usize {
            match timeout(PATIENCE, self.socket.next()).await {
                Ok(message) => take(message, received)?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Ends the call like its provider.
    pub async fn leave(mut self) -> Result<()> {
        self.socket.send(Message::text(r#"{"event":"stop"}"#)).await?;
        // The time of the runner's close does not matter here.
        let _ = timeout(PATIENCE, self.socket.next()).await;
        Ok(())
    }
}

type Received = std::result::Result<Message, tokio_tungstenite::tungstenite::Error>;

/// Returns a message with 20 ms of mu-law.
fn media(number: usize, payload: &[u8]) -> String {
    let payload = data_encoding::BASE64.encode(payload);
    format!(
        r#"{{"event":"media","sequenceNumber":"2","streamSid":"MZ{number}","media":{{"track":"inbound","chunk":"1","timestamp":"20","payload":"{payload}"}}}}"#
    )
}

fn take(message: Option<Received>, received: &mut Vec<Instant>) -> Result<()> {
    match message.ok_or("the runner hung up")?? {
        Message::Text(text) if text.contains(r#""event":"media""#) => received.push(Instant::now()),
        Message::Close(_) => return Err("the runner closed the call".into()),
        _ => {}
    }
    Ok(())
}
