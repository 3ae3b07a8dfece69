//! What the tests stand on: the real binary on free ports, a strict microcontroller, four telephony providers and their REST
//! API, clients of WebSockets and of HTTP, a bot that is a program, and sound.

pub mod client;
pub mod cloud;
pub mod device;
pub mod http;
#[allow(dead_code, reason = "it is a program of its own as well")]
pub mod livekit;
pub mod participant;
pub mod program;
pub mod provider;
pub mod rest;
pub mod runner;
pub mod signed;
pub mod socket;
pub mod sound;
pub mod sweep;
pub mod whatsapp;
pub mod whip;
