//! Who is in a room, and which of their tracks are to be heard.

use std::sync::Arc;

/// Somebody in a room.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// The name in the access token, unique in the room; it stays when the participant comes back.
    pub identity: Arc<str>,
    /// For people; may be empty.
    pub name: String,
    /// Another bot. It is not heard, and does not keep a session alive, or two bots would talk to each other for ever.
    pub is_agent: bool,
}
