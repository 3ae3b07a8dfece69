//! Support of the black-box tests: the real binary on free ports, a strict microcontroller, four
//! telephony providers and their REST API, services of assistants, WebSocket, QUIC and HTTP
//! clients, a bot in a process, and audio.

pub mod agents;
pub mod cascade;
pub mod certificate;
pub mod client;
pub mod cloud;
pub mod device;
pub mod follower;
pub mod http;
pub mod link;
#[allow(dead_code, reason = "it is also a program")]
pub mod livekit;
pub mod moq;
pub mod participant;
pub mod ports;
pub mod program;
pub mod provider;
pub mod realtime;
pub mod rest;
pub mod runner;
pub mod scale;
pub mod signed;
#[allow(dead_code, reason = "tests of the crates use it as well")]
pub mod skip;
pub mod socket;
pub mod sound;
pub mod sweep;
pub mod whatsapp;
pub mod whip;
