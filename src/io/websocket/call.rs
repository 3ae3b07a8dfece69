//! Drives a call over a WebSocket.
//!
//! In: the target. Out: the conversation at its end, with the socket closed.
//! The connection counts as lost if it ends without a close, or with the code of a failure, or if
//! it accepts nothing for some seconds.

mod connect;

use std::time::Duration;

use data_encoding::HEXLOWER;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use edge_runner_http::common::random;

use crate::config::Transport;
use crate::io::call::{CallRun, RunCall};
use crate::proto::caller::socket_protocol::{CallerSocketMessage, SocketProtocol};
use crate::proto::caller::target::CallTarget;
use crate::proto::caller::telephone::TelephoneStream;
use crate::proto::caller::{CallConversation, CallPlan, ConversationOutput};

/// How long a message may wait to be sent.
const SENT_WITHIN: Duration = Duration::from_secs(5);
/// How long the closing handshake may take.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// Returns how a call is made.
pub const fn row() -> Option<RunCall> {
    Some(|task, plan| Box::pin(run(task, plan)))
}

async fn run(task: &mut CallRun<'_>, plan: CallPlan) -> Result<CallConversation, String> {
    let config = task.config;
    let mut protocol = protocol(&config.target);
    let socket = task.open(connect::open(config, &mut protocol)).await?;
    let mut conversation = task.conversation(plan, protocol.has_messages());
    talk(*socket, protocol, &mut conversation, task).await;
    Ok(conversation)
}

/// Returns the protocol of a WebSocket.
fn protocol(target: &CallTarget) -> SocketProtocol {
    match target {
        CallTarget::Telephone { provider, .. }
        | CallTarget::Started {
            transport: Transport::Telephony(provider),
            ..
        } => {
            let id = HEXLOWER.encode(&random::<16>());
            SocketProtocol::Telephone(Box::new(TelephoneStream::new(provider, &id)))
        }
        CallTarget::Eval { .. } => SocketProtocol::Eval,
        _ => SocketProtocol::Client,
    }
}

/// Runs a conversation to its end.
async fn talk<S>(
    mut socket: S,
    mut protocol: SocketProtocol,
    conversation: &mut CallConversation,
    task: &mut CallRun<'_>,
) where
    S: Sink<Message, Error = Error> + Stream<Item = Result<Message, Error>> + Unpin,
{
    let opening = protocol.opening();
    let mut sent = send(&mut socket, opening).await;
    loop {
        if let Err(why) = std::mem::replace(&mut sent, Ok(())) {
            conversation.handle_end(Err(why), now());
        }
        let deadline = loop {
            let output = conversation.poll_output();
            match output {
                ConversationOutput::Timeout(at) => break at,
                ConversationOutput::Observed(at, observation) => task.observe(at, &observation),
                ConversationOutput::HangUp => {
                    let closing = protocol.closing();
                    let _ = timeout(CLOSED_WITHIN, close(&mut socket, closing)).await;
                }
                _ => {
                    let messages = protocol.encode(&output);
                    if sent.is_ok() {
                        sent = send(&mut socket, messages).await;
                    }
                }
            }
        };
        if conversation.is_over() {
            return;
        }
        while sent.is_ok()
            && let Some(reply) = protocol.poll_reply(now())
        {
            sent = send(&mut socket, vec![reply]).await;
        }
        if sent.is_err() {
            continue;
        }
        tokio::select! {
            biased;
            () = task.stopped() => conversation.handle_stop(now()),
            () = sleep_until(Instant::from_std(deadline)) => conversation.handle_timeout(now()),
            message = socket.next() => handle_message(conversation, &mut protocol, message),
        }
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

async fn send<S: Sink<Message, Error = Error> + Unpin>(
    socket: &mut S,
    messages: Vec<CallerSocketMessage>,
) -> Result<(), String> {
    for message in messages {
        match timeout(SENT_WITHIN, socket.send(on_wire(message))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("it accepted nothing for {} s", SENT_WITHIN.as_secs())),
        }
    }
    Ok(())
}

fn on_wire(message: CallerSocketMessage) -> Message {
    match message {
        CallerSocketMessage::Text(text) => Message::Text(text.into()),
        CallerSocketMessage::Binary(bytes) => Message::Binary(bytes),
    }
}

/// Closes the socket and waits for the other side to do the same.
async fn close<S>(socket: &mut S, last: Vec<CallerSocketMessage>)
where
    S: Sink<Message, Error = Error> + Stream<Item = Result<Message, Error>> + Unpin,
{
    let frame = CloseFrame {
        code: CloseCode::Normal,
        reason: "the caller hung up".into(),
    };
    let is_open = send(socket, last).await.is_ok();
    if is_open && socket.send(Message::Close(Some(frame))).await.is_ok() {
        while let Some(Ok(_)) = socket.next().await {}
    }
}

fn handle_message(
    conversation: &mut CallConversation,
    protocol: &mut SocketProtocol,
    message: Option<Result<Message, Error>>,
) {
    let now = now();
    let message = match message {
        Some(Ok(Message::Binary(bytes))) => Ok(CallerSocketMessage::Binary(bytes)),
        Some(Ok(Message::Text(text))) => Ok(CallerSocketMessage::Text(text.as_str().to_owned())),
        other => Err(other),
    };
    match message {
        Ok(message) => {
            if let Err(why) = protocol.handle_message(conversation, message, now) {
                conversation.handle_end(Err(format!("a message cannot be read: {why}")), now);
            }
        }
        Err(Some(Ok(Message::Close(frame)))) => conversation.handle_end(end_of(frame.as_ref()), now),
        // Pings are answered by the library.
        Err(Some(Ok(_))) => {}
        Err(Some(Err(error))) => conversation.handle_end(Err(error.to_string()), now),
        Err(None) => conversation.handle_end(Err("it ended without a close".into()), now),
    }
}

/// Returns the reason of a close, or of a loss if its code is one of a failure.
fn end_of(frame: Option<&CloseFrame>) -> Result<String, String> {
    let Some(frame) = frame else {
        return Ok(String::new());
    };
    match frame.code {
        CloseCode::Normal | CloseCode::Away => Ok(frame.reason.to_string()),
        code => Err(format!("closed with code {}: {}", u16::from(code), frame.reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_close_says_whether_the_call_failed() {
        let close = |code: u16| {
            end_of(Some(&CloseFrame {
                code: code.into(),
                reason: "why".into(),
            }))
        };
        assert_eq!(end_of(None), Ok(String::new()));
        assert_eq!((close(1000), close(1001)), (Ok("why".into()), Ok("why".into())));
        assert_eq!(close(1011), Err("closed with code 1011: why".into()));
        assert_eq!(close(4000), Err("closed with code 4000: why".into()));
    }
}
