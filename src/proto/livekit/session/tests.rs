//! Whole sessions in virtual time, against simulated messages of the server and str0m connections.

mod caller;
mod conversation;
mod job;
mod join;
mod messages;
mod paths;
mod reconnect;
mod resume;
mod simulation;
mod telephones;
mod unjoined;

use crate::limits::{
    CONNECT_WITHIN, FINISH_WITHIN, ROOM_BAD_DESCRIPTIONS_MAX, ROOM_CLOSE_WITHIN, ROOM_JOIN_PAUSES, ROOM_LEAVE_AFTER,
    ROOM_PING_TIMEOUT, ROOM_PROBE_WITHIN, ROOM_REJOIN_WITHIN, ROOM_SETTLED, ROOM_TEXT_BYTES_MAX,
};
