//! Translates str0m's outputs into those of a connection.
//!
//! In: outgoing datagrams, events and errors of str0m. Out: [`ConnectionOutput`] values; outgoing
//! packets are recorded on the way.

use str0m::rtp::RtpPacket;
use str0m::{Event, IceConnectionState, RtcError};

use super::PeerConnection;
use super::channels::ChannelClosed;
use super::output::ConnectionOutput;
use super::packet::Transmit;
use super::sources::AudioLayout;
use crate::audio::packet::AudioPacket;
use crate::webrtc::crypto;

impl PeerConnection {
    pub(super) fn transmit(&mut self, transmit: str0m::net::Transmit) -> Transmit {
        let mut transmit = Transmit::new(transmit, self.config.strips_extension);
        self.attempt
            .handle_outgoing(transmit.source, transmit.destination, transmit.kind());
        self.paths.handle_outgoing(&mut transmit, self.now);
        if !transmit.kind().is_stun() {
            if let Some(path) = self.paths.moved.path_instead_of(transmit.path()) {
                transmit.set_path(path);
            }
            self.paths.handle_used(transmit.path());
        }
        self.last_record.handle_outgoing(&mut transmit, self.now);
        if self.config.is_device && !self.attempt.is_secured() {
            self.last_flight.handle_outgoing(&mut transmit);
        }
        transmit
    }

    pub(super) fn handle_error(&mut self, error: RtcError) -> Option<ConnectionOutput> {
        match error {
            // The peer closed before SCTP was up, and str0m lost that event to its own shutdown
            // error.
            RtcError::Sctp(error) => {
                log::debug!("closing: {error}");
                self.rtc.disconnect();
                self.report_end(ConnectionOutput::PeerClosed)
            }
            error => {
                log::debug!("connection: {error}");
                if let RtcError::RemoteSdp(_) = error {
                    self.attempt
                        .handle_handshake_error(crypto::HandshakeError::FingerprintMismatch);
                }
                if self.rtc.is_alive() {
                    return None;
                }
                self.report_end(ConnectionOutput::Failed)
            }
        }
    }

    pub(super) fn event(&mut self, event: Event) -> Option<ConnectionOutput> {
        match event {
            Event::IceConnectionStateChange(IceConnectionState::Connected | IceConnectionState::Completed) => {
                self.attempt.handle_ice_connected();
                None
            }
            Event::Connected => {
                self.attempt.handle_secured();
                self.early_records.clear();
                self.is_connected = true;
                self.last_received_at = self.now;
                Some(ConnectionOutput::Connected)
            }
            Event::MediaAdded(added) => {
                self.handle_media(added.mid);
                None
            }
            Event::RtpPacket(packet) => self.audio(packet),
            Event::ChannelOpen(id, label) => {
                let is_open = self.data_channels.handle_open(&mut self.rtc, id, &label);
                is_open.then_some(ConnectionOutput::ChannelOpen)
            }
            Event::ChannelData(data) => self.data_channels.parse(data),
            Event::ChannelClose(id) => match self.data_channels.handle_close(id) {
                ChannelClosed::ClientGone => self.report_end(ConnectionOutput::PeerClosed),
                ChannelClosed::Moved => Some(ConnectionOutput::ChannelOpen),
                ChannelClosed::Unaffected => None,
            },
            Event::Closed => {
                if !self.config.replies_to_close {
                    self.rtc.disconnect();
                }
                self.report_end(ConnectionOutput::PeerClosed)
            }
            _ => None,
        }
    }

    /// Handles an authenticated RTP packet.
    fn audio(&mut self, packet: RtpPacket) -> Option<ConnectionOutput> {
        let (source, payload_type) = (packet.header.ssrc, packet.header.payload_type);
        self.sources.confirm(source);
        if let Some((_, keys)) = self.dtmf.as_mut().filter(|(keys, _)| *keys == payload_type) {
            let key = keys.handle_packet(packet.header.timestamp, &packet.payload);
            return key.map(ConnectionOutput::Dtmf);
        }
        if self.config.audio_layout == AudioLayout::SingleClient && !self.sender.has_payload_type(payload_type) {
            return None;
        }
        let (section, is_new_source) = self.sources.section_of(&mut self.rtc, source, self.now)?;
        let track = section.track.clone();
        self.unusable_audio.handle_used();
        Some(ConnectionOutput::Audio {
            track,
            packet: AudioPacket {
                is_new_source,
                sequence: *packet.seq_no,
                timestamp: packet.time.numer(),
                payload: packet.payload,
            },
        })
    }
}
