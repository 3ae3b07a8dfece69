//! Media over QUIC: sessions of peers that connect to the runner, or that a relay connects.
//!
//! From the wire up: `link` turns one QUIC connection into the streams of one MoQ session, by
//! WebTransport over HTTP/3 or directly; `peer` speaks `moq-lite-04` on them; `session` is the
//! call. `catalog`, `media_frame` and `record_log` are the formats of the tracks;
//! `config` and `relay_url` the options. Source; `docs/spec/moq.md`.

pub mod config;
pub mod limits;
pub mod options;
pub mod relay_url;
pub mod start;

#[cfg(feature = "call")]
pub mod invite;

cfg_if::cfg_if! {
    if #[cfg(feature = "moq")] {
        pub mod accepted;
        pub mod catalog;
        pub mod certificate;
        mod deflate;
        pub mod doctor;
        pub mod link;
        pub mod media_frame;
        pub mod message;
        pub mod metrics;
        pub mod peer;
        pub mod record_log;
        pub mod session;
        pub mod varint;
        pub mod waiting;
        mod webtransport;

        #[cfg(feature = "testing")]
        pub use webtransport::parsers::check_parsers;
    }
}
