//! What a bot is given of a Daily room.

use std::fmt;

use crate::config::Secret;

/// What a session in a Daily room has.
#[non_exhaustive]
#[doc(alias = "Daily")]
pub struct VideoroomArguments {
    /// The room's URL.
    pub room_url: String,
    /// An owner's meeting token, where the room needs one.
    pub token: Option<Secret>,
    /// The room's SIP URI, in a room that was created for a dial-in call. See `dialin`.
    pub sip_uri: Option<String>,
}

impl fmt::Debug for VideoroomArguments {
    /// Omits the room's URL, with which anyone may join.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VideoroomArguments").finish_non_exhaustive()
    }
}
