//! One life of a bot in a media room.
