//! DTLS for microcontrollers: passes their SCTP packets through [`AssociationSetup`].
//!
//! In and out: as in `dtls`, which does everything else. str0m connects SCTP to DTLS internally, so
//! this is the only place where the packets of both ends are visible.

use std::time::Instant;

use str0m::crypto::CryptoError;
use str0m::crypto::dtls::{DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion};

use super::dtls::DimplProvider;
use super::forward::{forward_state, opaque_debug};
use crate::webrtc::sctp::{AssociationSetup, SctpAction};

#[derive(Debug)]
pub(super) struct DeviceDtlsProvider;

impl DtlsProvider for DeviceDtlsProvider {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        DimplProvider.generate_certificate()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        Ok(Box::new(DeviceDtlsEndpoint {
            dtls: DimplProvider.new_dtls(cert, now, version, mtu)?,
            setup: AssociationSetup::default(),
            now,
        }))
    }
}

struct DeviceDtlsEndpoint {
    dtls: Box<dyn DtlsInstance>,
    setup: AssociationSetup,
    /// The time of the last timeout; packets arrive without one.
    now: Instant,
}

impl DeviceDtlsEndpoint {
    /// Sends the packets for the device. Those that DTLS rejects are lost; the setup repeats them.
    fn flush_to_device(&mut self) -> Result<(), DtlsImplError> {
        while let Some(packet) = self.setup.poll_device() {
            self.dtls.send_application_data(&packet)?;
        }
        Ok(())
    }
}

impl DtlsInstance for DeviceDtlsEndpoint {
    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        let made = self.setup.poll_str0m();
        // The packet is no longer than a received datagram, for which the buffer is made.
        if let Some(packet) = made.filter(|packet| packet.len() <= buf.len()) {
            let room = &mut buf[..packet.len()];
            room.copy_from_slice(&packet);
            return DtlsOutput::ApplicationData(room);
        }
        match self.dtls.poll_output(buf) {
            DtlsOutput::ApplicationData(packet) => match self.setup.handle_device(packet) {
                SctpAction::Forward => DtlsOutput::ApplicationData(packet),
                // A timeout in the past makes str0m poll again.
                SctpAction::Consume => DtlsOutput::Timeout(self.now),
            },
            DtlsOutput::Connected => {
                self.setup.handle_connected();
                DtlsOutput::Connected
            }
            DtlsOutput::Timeout(at) => {
                DtlsOutput::Timeout(self.setup.poll_timeout(self.now).map_or(at, |due| at.min(due)))
            }
            other => other,
        }
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.now = now;
        self.setup.handle_timeout(now);
        self.flush_to_device()?;
        self.dtls.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        let sent = match self.setup.handle_str0m(data) {
            SctpAction::Forward => self.dtls.send_application_data(data)?,
            SctpAction::Consume => data.len(),
        };
        self.flush_to_device()?;
        Ok(sent)
    }

    fn set_active(&mut self, active: bool) {
        self.dtls.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.dtls.handle_packet(packet)
    }

    forward_state!();
}

opaque_debug!(DeviceDtlsEndpoint);
