//! The settings of Daily rooms.

use crate::secret::{Secret, SecretBytes};

/// Configuration of Daily rooms.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "Daily")]
pub struct Videoroom {
    /// API key; `None` creates neither rooms nor tokens.
    pub key: Option<Secret>,
    /// Base URL of the REST API, without a trailing slash.
    pub url: String,
    /// An existing room, which sessions use whenever it is set.
    pub room_url: Option<String>,
    /// An existing room, used instead of a new one when a request asks for a room.
    pub sample_room_url: Option<String>,
    /// Whether the dial-in webhook is served.
    pub dialin: bool,
    /// The base64-decoded HMAC key of that webhook.
    pub dialin_hmac: Option<SecretBytes>,
}

impl Default for Videoroom {
    fn default() -> Self {
        Videoroom {
            key: None,
            url: "https://api.daily.co/v1".into(),
            room_url: None,
            sample_room_url: None,
            dialin: false,
            dialin_hmac: None,
        }
    }
}
