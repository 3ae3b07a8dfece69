//! What a bot is given of a session of Media over QUIC.

use std::fmt;

use super::media::MediaSlot;

/// What a session of Media over QUIC has.
#[non_exhaustive]
pub struct MoqArguments {
    /// The URL of the runner, or of the relay: `https` with an explicit port, without a token.
    pub relay_url: String,
    /// The first part of the paths of both broadcasts.
    pub namespace: String,
    /// The last part of the path of the bot's broadcast.
    pub bot_id: String,
    /// The last part of the path of the caller's broadcast.
    pub client_id: String,
    /// Whether the caller connects to the runner, rather than both to a relay.
    pub serve: bool,
    pub(super) media: Option<MediaSlot>,
}

impl fmt::Debug for MoqArguments {
    /// Omits the namespace, with which anyone may join through a relay.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MoqArguments").finish_non_exhaustive()
    }
}

/// The addresses of a session of Media over QUIC.
pub(crate) struct MoqAddress {
    pub relay_url: String,
    pub namespace: String,
    pub bot_id: String,
    pub client_id: String,
    pub serve: bool,
}

impl MoqArguments {
    pub(crate) fn new(address: MoqAddress, slot: MediaSlot) -> Self {
        let MoqAddress {
            relay_url,
            namespace,
            bot_id,
            client_id,
            serve,
        } = address;
        MoqArguments {
            relay_url,
            namespace,
            bot_id,
            client_id,
            serve,
            media: Some(slot),
        }
    }
}
