//! What a connection makes of the outputs of str0m.
//!
//! In: datagrams that leave, events and errors of str0m. Out: the connection's own outputs, and
//! notes of what left.

use str0m::media::{MediaKind, Mid};
use str0m::rtp::RtpPacket;
use str0m::{Event, IceConnectionState, RtcError};

use super::PeerConnection;
use super::output::ConnectionOutput;
use super::packet::Transmit;
use super::sources::AudioLayout;
use crate::audio::packet::AudioPacket;
use crate::webrtc::crypto;

impl PeerConnection {
    pub(super) fn transmit(&mut self, transmit: str0m::net::Transmit) -> Transmit {
        let mut transmit = Transmit::new(transmit, self.config.is_bare);
        self.tried
            .handle_outgoing(transmit.source, transmit.destination, transmit.kind());
        self.paths.handle_outgoing(&mut transmit);
        self.record.handle_outgoing(&mut transmit, self.now);
        if self.config.is_device && !self.tried.is_secured() {
            self.last_flight.handle_outgoing(&mut transmit);
        }
        transmit
    }

    pub(super) fn handle_error(&mut self, error: RtcError) -> Option<ConnectionOutput> {
        match error {
            // The peer said goodbye before SCTP was up, and str0m lost the event over its own
            // farewell.
            RtcError::Sctp(error) => {
                log::debug!("closing: {error}");
                self.rtc.disconnect();
                self.over(ConnectionOutput::Left)
            }
            error => {
                log::debug!("connection: {error}");
                if let RtcError::RemoteSdp(_) = error {
                    self.tried.handle_refusal(crypto::HandshakeError::Fingerprint);
                }
                if self.rtc.is_alive() {
                    return None;
                }
                self.over(ConnectionOutput::Failed)
            }
        }
    }

    pub(super) fn event(&mut self, event: Event) -> Option<ConnectionOutput> {
        match event {
            Event::IceConnectionStateChange(IceConnectionState::Connected | IceConnectionState::Completed) => {
                self.tried.handle_ice_up();
                None
            }
            Event::Connected => {
                self.tried.handle_secured();
                self.early.clear();
                self.is_connected = true;
                self.heard_at = self.now;
                Some(ConnectionOutput::Connected)
            }
            Event::MediaAdded(added) if added.kind == MediaKind::Audio => {
                self.handle_media(added.mid);
                None
            }
            Event::RtpPacket(packet) => self.audio(packet),
            Event::ChannelOpen(id, label) => {
                let is_open = self.channels.handle_open(&mut self.rtc, id, &label);
                is_open.then_some(ConnectionOutput::ChannelOpen)
            }
            Event::ChannelData(data) => self.channels.read(data),
            Event::ChannelClose(id) => match self.channels.handle_close(id) {
                true => self.over(ConnectionOutput::Left),
                false => None,
            },
            Event::Closed => {
                if !self.config.answers_goodbye {
                    self.rtc.disconnect();
                }
                self.over(ConnectionOutput::Left)
            }
            _ => None,
        }
    }

    /// A section of audio was negotiated.
    fn handle_media(&mut self, mid: Mid) {
        let media = self.rtc.media(mid);
        let payload_type = media.and_then(|media| media.remote_pts().first().copied());
        if payload_type.is_some() && self.sources.handle_media(&mut self.rtc, mid) {
            self.sender.bind(mid, payload_type);
        }
    }

    /// Takes a packet whose tag was good.
    fn audio(&mut self, packet: RtpPacket) -> Option<ConnectionOutput> {
        let (source, payload_type) = (packet.header.ssrc, packet.header.payload_type);
        self.sources.confirm(source);
        if let Some((_, keys)) = self.keys.as_mut().filter(|(keys, _)| *keys == payload_type) {
            let key = keys.handle_packet(packet.header.timestamp, &packet.payload);
            return key.map(ConnectionOutput::Key);
        }
        if self.config.talkers == AudioLayout::One && self.sender.payload_type() != Some(payload_type) {
            return None;
        }
        let section = self.sources.section(&mut self.rtc, source)?;
        let track = section.track.clone();
        self.unheard.handle_used();
        Some(ConnectionOutput::Audio {
            track,
            packet: AudioPacket {
                sequence: *packet.seq_no,
                timestamp: packet.time.numer(),
                payload: packet.payload,
            },
        })
    }
}
