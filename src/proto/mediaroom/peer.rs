//! One of the two peer connections of a stay: the publisher's, which we offer, and the subscriber's, which we answer.
//!
//! str0m narrowed to what a room needs: one Opus track with its audio level and two data channels out; every participant's
//! Opus, by its track, and data in. As in `proto::rtc`, every input is followed by a drain up to [`Output::Timeout`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use crate::proto::rtc::{AudioPacket, Common, OfferError, Packet, Transmit};

/// What a connection is made from.
pub struct Setup<'a> {
    pub common: &'a Common,
    /// Host candidates, each with the port of this connection's own UDP socket.
    pub local: &'a [SocketAddr],
    /// Random bits: where sequence numbers and timestamps start.
    pub seed: u64,
}

/// What a connection answers to an input.
pub enum Output {
    Timeout(Instant),
    Transmit(Transmit),
    /// ICE and DTLS are up.
    Connected,
    /// One Opus payload of a track, `TR_...`.
    Audio {
        track: std::sync::Arc<str>,
        packet: AudioPacket,
    },
    /// A track of the subscriber connection is gone.
    TrackGone(std::sync::Arc<str>),
    /// The reliable channel takes messages.
    ChannelOpen,
    /// The bytes of one `DataPacket`.
    Data(Vec<u8>),
    /// The connection broke, or the server closed it.
    Failed,
}

/// One peer connection.
pub struct Peer {}

impl Peer {
    /// Makes the publisher's connection, and its first offer. `cid` names the track.
    pub fn publisher(_setup: &Setup<'_>, _cid: &str, _now: Instant) -> Result<(Peer, String), OfferError> {
        todo!("P")
    }

    /// Makes the subscriber's connection from the server's first offer, and the answer.
    pub fn subscriber(
        _setup: &Setup<'_>,
        _offer: &str,
        _mid_to_track: &BTreeMap<String, String>,
        _now: Instant,
    ) -> Result<(Peer, String), OfferError> {
        todo!("P")
    }

    /// Takes the answer to the publisher's offer.
    pub fn handle_answer(&mut self, _answer: &str, _now: Instant) -> Result<(), OfferError> {
        todo!("P")
    }

    /// Answers a further offer of the server.
    pub fn renegotiate(
        &mut self,
        _offer: &str,
        _mid_to_track: &BTreeMap<String, String>,
    ) -> Result<String, OfferError> {
        todo!("P")
    }

    /// Returns this end's ICE user name fragment, by which datagrams find the connection.
    pub fn local_ufrag(&mut self) -> String {
        todo!("P")
    }

    /// Adds a candidate of the server, which may come before the answer.
    pub fn add_remote_candidate(&mut self, _text: &str) {
        todo!("P")
    }

    /// Takes a packet of this connection's socket; `false` when it is not the server's.
    pub fn handle_packet(&mut self, _packet: &Packet<'_>, _now: Instant) -> bool {
        todo!("P")
    }

    pub fn handle_timeout(&mut self, _now: Instant) {
        todo!("P")
    }

    pub fn poll_output(&mut self) -> Output {
        todo!("P")
    }

    /// Queues one Opus payload of 20 ms, so many ticks of 48 kHz after the start, with its level in -dBov (0 loudest, 127
    /// silence) and whether it is speech; it leaves with the next [`Peer::handle_timeout`].
    pub fn send_audio(&mut self, _payload: &[u8], _ticks: u64, _level: u8, _speech: bool, _now: Instant) {
        todo!("P")
    }

    /// Sends the bytes of one `DataPacket` on the reliable channel; `false` when there is no room, or it is not open.
    pub fn send_data(&mut self, _bytes: &[u8]) -> bool {
        todo!("P")
    }

    /// Returns how many bytes of data the server has not acknowledged.
    pub fn data_in_flight(&mut self) -> usize {
        todo!("P")
    }

    pub fn close(&mut self) {
        todo!("P")
    }

    pub fn is_alive(&self) -> bool {
        todo!("P")
    }
}
