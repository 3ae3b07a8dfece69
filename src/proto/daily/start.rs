//! `/start` for Daily rooms: what a request asks for.

use super::RoomRequest;
use super::config::Videoroom;
use crate::server::body::ObjectReader;

/// The members of a `/start` request about a room.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoomFields {
    /// Whether it asks for a room, with or without a transport.
    pub create: bool,
    pub properties: RoomRequest,
}

/// The member that asks for a room.
pub const CREATE: &str = "createVideoroomRoom";

/// Takes whether the request asks for a room.
pub fn take_create(fields: &mut ObjectReader) -> bool {
    fields.flag(CREATE).unwrap_or(false)
}

/// Takes the properties of the room and of its token.
pub fn take_properties(fields: &mut ObjectReader) -> RoomRequest {
    RoomRequest {
        room: fields.object("videoroomRoomProperties").unwrap_or_default(),
        token: fields.object("videoroomMeetingTokenProperties").unwrap_or_default(),
    }
}

impl RoomFields {
    /// Returns the room that the request or the configuration asks for: it is created or selected.
    /// Without one, only the bot starts.
    pub fn room(&self, config: &Videoroom) -> Option<&RoomRequest> {
        (self.create || config.room_url.is_some()).then_some(&self.properties)
    }
}
