//! A participant of a media room, as bots and programs see it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A participant of a room.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// The identity in the access token, unique in the room and stable across reconnections.
    pub identity: Arc<str>,
    /// The displayed name; may be empty.
    pub name: String,
    /// Whether it is another bot or a recorder. Agents are not heard and do not keep a session
    /// alive; otherwise, two bots would talk to each other indefinitely.
    pub is_agent: bool,
    /// Whether it is a caller on the telephone.
    pub is_telephone: bool,
    /// Attributes set by the server or the participant, such as a telephone number; the first ones
    /// by name, up to 4 KiB.
    pub attributes: BTreeMap<String, String>,
}

impl fmt::Debug for Participant {
    /// Omits attributes, which contain telephone numbers.
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
