//! A participant of a media room, as bots and programs see it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A participant of a room.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// The name in the access token, unique in the room; it stays when the participant comes back.
    pub identity: Arc<str>,
    /// For people; may be empty.
    pub name: String,
    /// Another bot, or a recorder. It is not heard, and does not keep a session alive, or two bots
    /// would talk to each other for ever.
    pub is_agent: bool,
    /// A caller on the telephone.
    pub is_telephone: bool,
    /// What the server or the participant itself says of it, as a telephone's number; the first of
    /// them by name, up to 4 KiB.
    pub attributes: BTreeMap<String, String>,
}

impl fmt::Debug for Participant {
    /// Attributes hold telephone numbers, which never reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Participant")
            .field("identity", &self.identity)
            .field("name", &self.name)
            .field("is_agent", &self.is_agent)
            .field("is_telephone", &self.is_telephone)
            .field("attributes", &self.attributes.len())
            .finish()
    }
}
