//! Whole lives in a room in virtual time: the server's messages are played, its connections are str0m, and nothing sleeps.

mod conversation;
mod join;
mod reconnect;
mod simulation;

use crate::limits::{
    CONNECT_WITHIN, FINISH_WITHIN, ROOM_BACK_WITHIN, ROOM_CLOSE_WITHIN, ROOM_JOIN_PAUSES, ROOM_MISUNDERSTOOD_MAX,
    ROOM_PING_TIMEOUT, ROOM_SETTLED, ROOM_TEXT_BYTES_MAX,
};
