//! The open-source media room, joined natively: access tokens, signalling, two peer connections, one life.
//!
//! [`token`] proves who may join; [`signal`] speaks with the server, in the messages of [`wire`], and knows who is there
//! ([`roster`]); [`peer`] is one peer connection of the two; [`ears`] makes one sound, or several, of the participants'
//! voices; [`session`] is the whole life of a bot in a room.
//! Source: the rooms fact sheet, part B.

pub mod ears;
pub mod peer;
pub mod roster;
pub mod session;
pub mod signal;
pub mod token;
pub mod wire;
