//! One client of `/ws-client`, with the frames of its protobuf schema.
//!
//! In: the HTTP address of the runner. Out: the number of audio frames that came back. The frames
//! are encoded and decoded by the library of the runner; only the continuity of the session is
//! measured.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use edge_runner_proto::sockets::frames::{self, ProtobufFrame};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::Result;
use crate::phone::PTIME;

const RATE_HZ: u32 = 16_000;
/// Time limit for the runner to close its side.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Plain {
    socket: WebSocketStream<TcpStream>,
    frame: Vec<u8>,
}

impl Plain {
    pub async fn begin(addr: SocketAddr) -> Result<Plain> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let (socket, _) = client_async(format!("ws://{addr}/ws-client"), stream).await?;
        // A sawtooth of 400 Hz, so that no frame is silent.
        let pcm: Vec<i16> = (0..RATE_HZ / 50).map(|at| (at % 40 * 400) as i16 - 8_000).collect();
        let frame = frames::audio(&pcm, RATE_HZ);
        Ok(Plain { socket, frame })
    }

    /// Sends a frame every 20 ms from `first` until `end`, and returns the number of audio frames
    /// that came back.
    pub async fn talk(&mut self, first: Instant, end: Instant) -> Result<u32> {
        let (mut next, mut received) = (first, 0);
        while next < end {
            tokio::select! {
                biased;
                message = self.socket.next() => match message.ok_or("the runner hung up")?? {
                    Message::Binary(bytes) => {
                        received += u32::from(matches!(frames::decode(bytes)?, ProtobufFrame::Audio { .. }));
                    }
                    Message::Close(_) => return Err("the runner closed the socket".into()),
                    _ => {}
                },
                () = sleep_until(next.into()) => {
                    self.socket.send(Message::binary(self.frame.clone())).await?;
                    next += PTIME;
                }
            }
        }
        Ok(received)
    }

    /// Types a text.
    pub async fn send_text(&mut self, text: &str) -> Result<()> {
        let message = json!({"label": "rtvi-ai", "type": "send-text", "id": "1", "data": {"content": text}});
        Ok(self
            .socket
            .send(Message::binary(frames::message(&message.to_string())))
            .await?)
    }

    /// Sends one frame of 20 ms.
    pub async fn say_once(&mut self) -> Result<()> {
        Ok(self.socket.send(Message::binary(self.frame.clone())).await?)
    }

    /// Sends data that is no frame.
    pub async fn babble(&mut self) -> Result<()> {
        Ok(self.socket.send(Message::binary(vec![0xff; 64])).await?)
    }

    /// Ends the session with a close, and discards the rest.
    pub async fn leave(mut self) -> Result<()> {
        self.socket.close(None).await?;
        let _ = timeout(PATIENCE, async { while let Some(Ok(_)) = self.socket.next().await {} }).await;
        Ok(())
    }
}
