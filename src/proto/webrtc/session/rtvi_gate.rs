//! On which channels a client gets RTVI messages.
//!
//! In: the texts of both directions, and the channel on which texts are sent. Out: whether a text
//! may be sent. Clients of RTVI open `chat` or `rtvi-ai`; on a channel with another label nothing
//! is sent that the client did not ask for, until it sends an RTVI message there. All other texts
//! of a bot pass. Microcontrollers choose any label. Source: `docs/spec/whip.md` 6.

use std::borrow::Cow;

use serde::Deserialize;

use crate::webrtc::connection::{ChannelLabel, PeerConnection};

const LABEL: &str = "rtvi-ai";

/// Whether a client speaks RTVI.
#[derive(Debug, Default)]
pub struct RtviGate {
    has_client: bool,
    is_reported: bool,
}

impl RtviGate {
    /// Handles a text of the client.
    pub fn handle_message(&mut self, text: &str) {
        self.has_client = self.has_client || is_rtvi(text);
    }

    /// Returns whether a text may be sent to the client of this connection.
    pub fn admits(&mut self, text: &str, connection: &PeerConnection) -> bool {
        self.has_client || connection.is_device() || self.admits_on(connection.message_channel(), text)
    }

    fn admits_on(&mut self, channel: Option<ChannelLabel>, text: &str) -> bool {
        let is_unasked = match channel {
            Some(ChannelLabel::Events | ChannelLabel::Unknown) => is_rtvi(text),
            Some(ChannelLabel::Chat | ChannelLabel::Rtvi | ChannelLabel::Data) | None => false,
        };
        if is_unasked && channel == Some(ChannelLabel::Unknown) && !std::mem::replace(&mut self.is_reported, true) {
            log::warn!(
                "RTVI messages are not sent on the client's data channel: it is neither `chat` nor `rtvi-ai`, and the client \
                 has sent no RTVI message; label it so, or send `client-ready`"
            );
        }
        !is_unasked
    }
}

/// Returns whether a text is an RTVI message.
fn is_rtvi(text: &str) -> bool {
    #[derive(Deserialize)]
    struct LabelField<'a> {
        #[serde(borrow)]
        label: Cow<'a, str>,
    }
    // Only texts that may be RTVI are parsed.
    text.contains(LABEL) && serde_json::from_str::<LabelField<'_>>(text).is_ok_and(|message| message.label == LABEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTVI: &str = r#"{"label": "rtvi-ai", "type": "bot-started-speaking"}"#;

    #[test]
    fn only_rtvi_is_kept_from_other_channels() {
        let mut gate = RtviGate::default();
        for (channel, admits) in [
            (ChannelLabel::Chat, true),
            (ChannelLabel::Rtvi, true),
            (ChannelLabel::Events, false),
            (ChannelLabel::Unknown, false),
        ] {
            assert_eq!(gate.admits_on(Some(channel), RTVI), admits, "{channel:?}");
            for other in ["rtvi-ai", r#"{"type":"rtvi-ai"}"#, r#"{"label":"x","t":"rtvi-ai"}"#, ""] {
                assert!(gate.admits_on(Some(channel), other), "{channel:?}: {other}");
            }
        }
        assert!(gate.is_reported);
        assert!(gate.admits_on(None, RTVI), "it waits for a channel");
    }

    #[test]
    fn a_client_that_speaks_rtvi_is_answered() {
        let mut gate = RtviGate::default();
        gate.handle_message("rtvi-ai");
        assert!(!gate.has_client);
        gate.handle_message(RTVI);
        gate.handle_message("{}");
        assert!(gate.has_client);
    }
}
