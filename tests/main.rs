//! The one test binary: each module is named for a behaviour and meets the runner as its peers do, over HTTP,
//! WebSockets and UDP.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the peers of these tests have sockets and clocks of their own"
)]

mod boards;
mod canary;
mod cloud;
mod corpus;
mod device;
mod doctor;
mod ends;
mod hangup;
mod house;
mod losses;
mod messaging;
mod metrics;
mod offers;
mod processes;
mod proof;
mod requests;
mod rooms;
mod secrets;
mod shares;
mod sockets;
mod strangers;
mod support;
mod telephony;
mod tls;
mod troubles;
mod turn;
mod unsafety;
mod videoroom;
mod whip;
