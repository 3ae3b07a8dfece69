//! Handles received packets.
//!
//! In: a packet and `now`. Out: how far it identifies its sender. The kind, address, signature and
//! SSRC are checked before str0m sees the packet. Its effects are in the outputs that follow.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use str0m::Input;
use str0m::media::Pt;
use str0m::net::Receive;

use super::PeerConnection;
use super::packet::{PacketTrust, ReceivedPacket, rtp_header};
use crate::webrtc::crypto;
use crate::webrtc::packet_kind::PacketKind;

impl PeerConnection {
    /// Handles a packet. Packets of other connections and unreadable ones are ignored.
    pub fn handle_packet(&mut self, packet: &ReceivedPacket<'_>, now: Instant) -> PacketTrust {
        let &ReceivedPacket {
            over,
            source,
            destination,
            contents,
        } = packet;
        let Ok(receive) = Receive::new(over.into(), source, destination, contents) else {
            self.attempt.handle_unreadable(contents);
            return PacketTrust::Rejected;
        };
        self.now = now;
        let kind = PacketKind::from_packet(contents);
        if self.paths.answers_consent_check(kind, packet) {
            if !self.paths.handle_consent_answer(packet, now) {
                return PacketTrust::Rejected;
            }
            self.handle_accepted(now);
            return PacketTrust::Authenticated;
        }
        let input = Input::Receive(now, receive);
        let accepted = self.rtc.accepts(&input);
        self.attempt.handle_incoming(source, destination, kind, accepted);
        if !accepted {
            if self.paths.has_checked_from(source) && !self.rtc.is_connected() {
                self.early_records.push(kind, packet);
            }
            return PacketTrust::Rejected;
        }
        let signed = kind.is_stun() && self.is_signed(packet);
        if signed {
            self.paths.handle_signed(kind, packet, now);
        }
        if !self.paths.admit_check(kind, packet) {
            return PacketTrust::Rejected;
        }
        self.last_record.handle_incoming(kind);
        if !self.attempt.is_secured() {
            self.last_flight.handle_incoming(kind, contents);
        }
        let header = rtp_header(kind, contents);
        if let Some((source, payload_type)) = header {
            let is_negotiated = self.is_negotiated(payload_type.into());
            if !self.sources.admit(&mut self.rtc, source, is_negotiated) {
                return PacketTrust::Rejected;
            }
        }
        self.handle_accepted(now);
        if !kind.is_stun() {
            self.paths.moved.handle_packet(over, source, now);
        }
        let handled = match crypto::BarePacket::new(contents) {
            Some(bare) => bare.handle(|contents| {
                let receive = Receive::new(over.into(), source, destination, contents)?;
                self.rtc.handle_input(Input::Receive(now, receive))
            }),
            None => self.rtc.handle_input(input),
        };
        if let Err(error) = handled {
            log::debug!("datagram refused: {error}");
        }
        if let Some((_, payload_type)) = header.filter(|_| self.rtc.is_connected()) {
            self.awaited_audio.handle_packet();
            self.unusable_audio
                .handle_packet(payload_type, crypto::is_cut_off(contents), now);
        }
        self.record_handshake_error();
        if signed {
            PacketTrust::Authenticated
        } else {
            PacketTrust::Unauthenticated
        }
    }

    fn handle_accepted(&mut self, now: Instant) {
        self.last_received_at = now;
        self.is_silent = false;
    }

    /// Returns whether the peer signed a STUN message. str0m accepts any message from its current
    /// destination, but verifies the signature of one from another address; so the question is
    /// asked with an unused source.
    fn is_signed(&self, packet: &ReceivedPacket<'_>) -> bool {
        let unused = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let receive = Receive::new(packet.over.into(), unused, packet.destination, packet.contents);
        receive.is_ok_and(|receive| self.rtc.accepts(&Input::Receive(self.now, receive)))
    }

    /// Returns whether a payload type is the negotiated audio or DTMF.
    fn is_negotiated(&self, payload_type: Pt) -> bool {
        let is_key = self.dtmf.as_ref().is_some_and(|(keys, _)| *keys == payload_type);
        is_key || self.sender.has_payload_type(payload_type)
    }

    /// Keeps the reason if DTLS rejected the last datagram.
    pub(super) fn record_handshake_error(&mut self) {
        if let Some(refusal) = crypto::take_handshake_error() {
            log::debug!("the handshake failed: {refusal}");
            self.attempt.handle_handshake_error(refusal);
        }
    }
}
