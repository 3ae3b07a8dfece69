//! The data channels of a connection, and which of them messages go to.
//!
//! In: what str0m tells of channels, and messages. Out: messages that came, and whether one that
//! leaves found room. To a client, messages are text, on the first channel that it opens or the one
//! called `chat`. In a media room they are binary, on the channel that this end has offered.
//! Source: RFC 8831.

use str0m::Rtc;
use str0m::channel::{ChannelData, ChannelId};

use super::output::ConnectionOutput;
use crate::limits::CHANNELS_MAX;
use crate::webrtc::whip::events;

/// The labels of a media room's channels.
pub const RELIABLE: &str = "_reliable";
pub const LOSSY: &str = "_lossy";

/// What messages are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFormat {
    /// The UTF-8 text of a client, on any channel.
    Text,
    /// A `DataPacket` of a media room.
    Binary,
}

/// What the name of a channel says of who opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelLabel {
    /// `chat`.
    Chat,
    /// `rtvi-ai`.
    Rtvi,
    /// That of a realtime service's clients.
    Events,
    /// One of a media room.
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

/// The channels that are open.
pub struct DataChannels {
    format: MessageFormat,
    open: Vec<(ChannelId, ChannelLabel)>,
    /// Where messages go to.
    message_channel: Option<(ChannelId, ChannelLabel)>,
    /// The channel that this end has offered for its messages.
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

    /// A channel is open; tells whether messages can leave from now on.
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

    /// A channel is closed; tells whether it was the client's for messages.
    pub fn handle_close(&mut self, id: ChannelId) -> bool {
        self.open.retain(|(open, _)| *open != id);
        let was_main = self.message_channel.take_if(|(main, _)| *main == id).is_some();
        was_main && self.format == MessageFormat::Text
    }

    /// Reads a message that came.
    pub fn parse(&self, data: ChannelData) -> Option<ConnectionOutput> {
        let is_data = || self.open.contains(&(data.id, ChannelLabel::Data));
        match self.format {
            MessageFormat::Binary if data.binary && is_data() => Some(ConnectionOutput::Data(data.data)),
            MessageFormat::Binary => {
                log::debug!("message ignored: it is no data packet");
                None
            }
            MessageFormat::Text if data.binary => {
                log::debug!("message ignored: it is binary, messages are text");
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

    /// Returns the kind of the channel that messages go to.
    pub fn message_channel(&self) -> Option<ChannelLabel> {
        self.message_channel.map(|(_, kind)| kind)
    }

    /// Sends a message; `false` when there is no channel, or no room in it now.
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

    /// Returns how many bytes of messages the other end has not acknowledged.
    pub fn bytes_in_flight(&self, rtc: &mut Rtc) -> usize {
        let channel = self.message_channel.and_then(|(id, _)| rtc.channel(id));
        channel.map_or(0, |mut channel| channel.buffered_amount())
    }
}
