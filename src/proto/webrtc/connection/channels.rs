//! The data channels of a connection, and which of them carries messages.
//!
//! In: channel events of str0m and messages. Out: received messages, and whether an outgoing one
//! fitted into the buffer. Clients exchange text on the channel labelled `chat` or, without one, on
//! the first that opens; when that is closed, on another one. SFUs exchange binary packets on the
//! channel that this end offered. Sources: RFC 8831, `docs/spec/signalling.md` 4.

use str0m::Rtc;
use str0m::channel::{ChannelData, ChannelId};

use super::output::ConnectionOutput;
use crate::limits::CHANNELS_MAX;
use crate::webrtc::whip::events;

/// The channel labels of a LiveKit room.
pub const RELIABLE: &str = "_reliable";
pub const LOSSY: &str = "_lossy";

/// The format of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFormat {
    /// UTF-8 text of a client, on any channel.
    Text,
    /// A LiveKit `DataPacket`.
    Binary,
}

/// Returns whether bytes are the text of a JSON object, as far as its ends tell.
fn is_object(message: &[u8]) -> bool {
    let text = message.trim_ascii();
    text.starts_with(b"{") && text.ends_with(b"}")
}

/// What a channel's label says about the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelLabel {
    /// `chat`.
    Chat,
    /// `rtvi-ai`.
    Rtvi,
    /// `oai-events`.
    Events,
    /// A LiveKit channel.
    Data,
    Unknown,
}

impl ChannelLabel {
    fn from_label(label: &str) -> Self {
        match label {
            "chat" => ChannelLabel::Chat,
            "rtvi-ai" => ChannelLabel::Rtvi,
            events::LABEL => ChannelLabel::Events,
            RELIABLE | LOSSY => ChannelLabel::Data,
            _ => ChannelLabel::Unknown,
        }
    }
}

/// What a closed channel means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelClosed {
    /// Messages are exchanged as before.
    Unaffected,
    /// Messages are sent on another channel from now on.
    Moved,
    /// It was the client's last.
    ClientGone,
}

/// The open channels.
pub struct DataChannels {
    format: MessageFormat,
    open: Vec<(ChannelId, ChannelLabel)>,
    /// The channel on which messages are sent.
    message_channel: Option<(ChannelId, ChannelLabel)>,
    /// The channel that this end offered.
    pub offered: Option<ChannelId>,
}

impl DataChannels {
    pub fn new(format: MessageFormat) -> Self {
        DataChannels {
            format,
            open: Vec::new(),
            message_channel: None,
            offered: None,
        }
    }

    /// Handles an opened channel. Returns whether messages can now be sent.
    pub fn handle_open(&mut self, rtc: &mut Rtc, id: ChannelId, label: &str) -> bool {
        if self.open.len() == CHANNELS_MAX {
            log::debug!("channel closed: {CHANNELS_MAX} are open");
            rtc.direct_api().close_data_channel(id);
            return false;
        }
        let kind = ChannelLabel::from_label(label);
        self.open.push((id, kind));
        let first = self.message_channel.is_none();
        let is_main = match self.format {
            MessageFormat::Text => {
                first || (kind == ChannelLabel::Chat && self.message_channel() != Some(ChannelLabel::Chat))
            }
            MessageFormat::Binary => self.offered == Some(id),
        };
        if is_main {
            self.message_channel = Some((id, kind));
        }
        is_main && first
    }

    /// Handles a closed channel. A client has left when it closed its last one.
    pub fn handle_close(&mut self, id: ChannelId) -> ChannelClosed {
        self.open.retain(|(open, _)| *open != id);
        let was_main = self.message_channel.take_if(|(main, _)| *main == id).is_some();
        if !was_main || self.format != MessageFormat::Text {
            return ChannelClosed::Unaffected;
        }
        let with_label = |wanted| self.open.iter().find(|(_, label)| *label == wanted);
        let next = with_label(ChannelLabel::Chat).or_else(|| with_label(ChannelLabel::Rtvi));
        self.message_channel = next.or(self.open.first()).copied();
        match self.message_channel {
            Some(_) => ChannelClosed::Moved,
            None => ChannelClosed::ClientGone,
        }
    }

    /// Parses a received message.
    pub fn parse(&self, data: ChannelData) -> Option<ConnectionOutput> {
        let is_data = || self.open.contains(&(data.id, ChannelLabel::Data));
        match self.format {
            MessageFormat::Binary if data.binary && is_data() => Some(ConnectionOutput::Data(data.data)),
            MessageFormat::Binary => {
                log::debug!("message ignored: it is no data packet");
                None
            }
            // Some libraries send all text as bytes.
            MessageFormat::Text if data.binary && !is_object(&data.data) => {
                log::debug!("message ignored: it is binary, messages are text or JSON objects");
                None
            }
            MessageFormat::Text => match String::from_utf8(data.data) {
                Ok(text) => Some(ConnectionOutput::Message(text)),
                Err(_) => {
                    log::debug!("message ignored: it is not UTF-8");
                    None
                }
            },
        }
    }

    /// Returns the label of the message channel.
    pub fn message_channel(&self) -> Option<ChannelLabel> {
        self.message_channel.map(|(_, kind)| kind)
    }

    /// Sends a message. Returns `false` if there is no channel or no room in its buffer.
    pub fn send(&self, rtc: &mut Rtc, message: &[u8]) -> bool {
        let Some(mut channel) = self.message_channel.and_then(|(id, _)| rtc.channel(id)) else {
            return false;
        };
        match channel.write(self.format == MessageFormat::Binary, message) {
            Ok(written) => written,
            Err(error) => {
                log::debug!("message dropped: {error}");
                true
            }
        }
    }

    /// Returns the message bytes that the peer has not acknowledged.
    pub fn bytes_in_flight(&self, rtc: &mut Rtc) -> usize {
        let channel = self.message_channel.and_then(|(id, _)| rtc.channel(id));
        channel.map_or(0, |mut channel| channel.buffered_amount())
    }
}
