//! What a caller sends on a WebSocket: the frames of a plain client, the texts of an evaluation, or
//! the messages of a telephony provider.
//!
//! In: outputs of a [`CallConversation`], and messages of the runner. Out: messages to send, and
//! inputs of the conversation.

use std::time::Instant;

use bytes::Bytes;

use super::conversation::{CallConversation, ConversationOutput};
use super::telephone::TelephoneStream;
use super::{rtvi_messages, socket_frames};

/// A message on the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerSocketMessage {
    Text(String),
    Binary(Bytes),
}

/// The protocol of one call.
pub enum SocketProtocol {
    /// Protobuf frames, with messages of RTVI.
    Client,
    Telephone(Box<TelephoneStream>),
    /// Messages of RTVI as text, without audio.
    Eval,
}

impl SocketProtocol {
    /// Returns the stream of a telephony provider.
    pub fn telephone(&mut self) -> Option<&mut TelephoneStream> {
        match self {
            SocketProtocol::Telephone(stream) => Some(stream),
            SocketProtocol::Client | SocketProtocol::Eval => None,
        }
    }

    /// Returns whether it carries messages of the bot.
    pub fn has_messages(&self) -> bool {
        !matches!(self, SocketProtocol::Telephone(_))
    }

    /// Returns the first messages.
    pub fn opening(&mut self) -> Vec<CallerSocketMessage> {
        match self {
            SocketProtocol::Client => vec![CallerSocketMessage::Binary(socket_frames::hello().into())],
            SocketProtocol::Telephone(stream) => texts(stream.opening()),
            SocketProtocol::Eval => texts(vec![rtvi_messages::eval_connect(), rtvi_messages::client_ready()]),
        }
    }

    /// Returns the messages for an output.
    pub fn encode(&mut self, output: &ConversationOutput) -> Vec<CallerSocketMessage> {
        match self {
            SocketProtocol::Client => {
                let frame = socket_frames::encode(output).map(|frame| CallerSocketMessage::Binary(frame.into()));
                frame.into_iter().collect()
            }
            SocketProtocol::Telephone(stream) => texts(stream.encode(output)),
            SocketProtocol::Eval => texts(output.message().into_iter().collect()),
        }
    }

    /// Returns the last messages, before the close.
    pub fn closing(&mut self) -> Vec<CallerSocketMessage> {
        match self {
            SocketProtocol::Client | SocketProtocol::Eval => Vec::new(),
            SocketProtocol::Telephone(stream) => vec![CallerSocketMessage::Text(stream.stop())],
        }
    }

    /// Returns the next message that answers the runner, if one is due.
    pub fn poll_reply(&mut self, now: Instant) -> Option<CallerSocketMessage> {
        match self {
            SocketProtocol::Client | SocketProtocol::Eval => None,
            SocketProtocol::Telephone(stream) => stream.poll_reply(now).map(CallerSocketMessage::Text),
        }
    }

    /// Handles a message of the runner. A message of the other kind belongs to no protocol, and is
    /// ignored.
    ///
    /// # Errors
    /// A sentence about a message that cannot be read.
    pub fn handle_message(
        &mut self,
        conversation: &mut CallConversation,
        message: CallerSocketMessage,
        now: Instant,
    ) -> Result<(), String> {
        match (self, message) {
            (SocketProtocol::Client, CallerSocketMessage::Binary(bytes)) => {
                socket_frames::handle_message(conversation, bytes, now)
            }
            (SocketProtocol::Telephone(stream), CallerSocketMessage::Text(text)) => {
                stream.handle_message(conversation, &text, now)
            }
            (SocketProtocol::Eval, CallerSocketMessage::Text(text)) => {
                conversation.handle_message(&text, now);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn texts(texts: Vec<String>) -> Vec<CallerSocketMessage> {
    texts.into_iter().map(CallerSocketMessage::Text).collect()
}
