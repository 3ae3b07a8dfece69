//! The black-box tests in one binary: each module is named for a behaviour and uses the runner as
//! its peers do, over HTTP, WebSockets and UDP.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the peers of these tests have sockets and clocks of their own"
)]

#[path = "support/allocations.rs"]
mod allocations;
mod assistants;
mod boards;
mod bots;
mod call;
mod call_proof;
mod calls;
mod canary;
mod cascade;
mod cloud;
mod cluster;
mod completions;
mod conventions;
mod corpus;
mod cost;
mod daily;
mod device;
mod dial;
mod doctor;
mod documents;
mod fairness;
mod faults;
mod folders;
mod hangup;
mod imports;
mod listening;
mod live_sessions;
mod livekit;
mod livekit_worker;
mod local;
mod losses;
mod metrics;
mod moq;
mod new;
mod offers;
mod packaged_unit;
mod pcm;
mod phone;
mod processes;
mod reference;
mod requests;
mod reverse_proxies;
mod secrets;
mod settings;
mod settings_page;
mod setup;
mod shutdown;
mod skips;
mod sockets;
mod sound_test;
mod source_rules;
mod support;
mod telephony;
mod tls;
mod turn;
mod unsafety;
mod untrusted;
mod update;
mod uploads;
mod warm;
mod whatsapp;
mod whip;
