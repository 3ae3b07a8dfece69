//! A tap on the client's DTLS, which carries one SCTP packet per record.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use str0m::crypto::dtls::{
    DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion, ProtocolVersion,
};
use str0m::crypto::{CryptoError, CryptoProvider};

use crate::webrtc::crypto;

/// Recorded packets, and changes to the next ones.
#[derive(Default)]
pub struct Wires {
    /// SCTP packets of the session.
    pub from_session: Vec<Vec<u8>>,
    /// The first SCTP packets of the client, enough to include every kind.
    pub from_client: Vec<Vec<u8>>,
    /// Replaces the next packet of the client; the checksum is corrected.
    pub instead: Option<Vec<u8>>,
    /// Replaces the next packet of the client by an ABORT.
    pub abort: bool,
    /// Replaces the next message of the client by an empty one, as browsers write it.
    pub empty: bool,
    /// Drops everything but DTLS records.
    pub no_data: bool,
    /// Drops packets that start with a chunk of this type.
    pub hold: Option<u8>,
    /// Closes DTLS, independent of SCTP.
    pub close: bool,
}

#[derive(Debug)]
pub struct Tap<T> {
    inner: T,
    wires: Arc<Mutex<Wires>>,
}

impl std::fmt::Debug for Wires {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wires")
    }
}

impl Tap<&'static dyn DtlsProvider> {
    /// Creates the provider of one client. It lives as long as the test process, as str0m requires.
    pub fn provider() -> (CryptoProvider, Arc<Mutex<Wires>>) {
        let provider = crypto::provider();
        let wires = Arc::<Mutex<Wires>>::default();
        let tap = Tap {
            inner: provider.dtls_provider,
            wires: wires.clone(),
        };
        (
            CryptoProvider {
                dtls_provider: Box::leak(Box::new(tap)),
                ..provider
            },
            wires,
        )
    }
}

impl DtlsProvider for Tap<&'static dyn DtlsProvider> {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        self.inner.generate_certificate()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        let inner = self.inner.new_dtls(cert, now, version, mtu)?;
        let wires = self.wires.clone();
        Ok(Box::new(Tap { inner, wires }))
    }
}

impl DtlsInstance for Tap<Box<dyn DtlsInstance>> {
    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        if std::mem::take(&mut self.wires.lock().expect("whole").close) {
            self.inner.close().expect("closing");
        }
        let output = self.inner.poll_output(buf);
        if let DtlsOutput::ApplicationData(data) = &output {
            self.wires.lock().expect("whole").from_session.push(data.to_vec());
        }
        output
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        let mut wires = self.wires.lock().expect("whole");
        if wires.no_data || wires.hold.is_some_and(|kind| chunks(data).first() == Some(&kind)) {
            return Ok(data.len());
        }
        if wires.from_client.len() < 200 {
            wires.from_client.push(data.to_vec());
        }
        if let Some(packet) = wires.instead.take() {
            let packet = if packet.len() < 12 { packet } else { sum(packet) };
            return self.inner.send_application_data(&packet).map(|_| data.len());
        }
        if std::mem::take(&mut wires.abort) {
            wires.no_data = true;
            return self.inner.send_application_data(&abort(data)).map(|_| data.len());
        }
        const DATA: u8 = 0;
        if wires.empty && chunks(data).first() == Some(&DATA) {
            wires.empty = false;
            let mut empty = data.to_vec();
            // RFC 8831 section 6.6: an empty string is one byte with its own protocol identifier.
            empty[24..28].copy_from_slice(&56u32.to_be_bytes());
            return self.inner.send_application_data(&sum(empty)).map(|_| data.len());
        }
        self.inner.send_application_data(data)
    }

    fn set_active(&mut self, active: bool) {
        self.inner.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        self.inner.handle_packet(packet)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.inner.handle_timeout(now)
    }

    fn is_active(&self) -> bool {
        self.inner.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.inner.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.inner.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.inner.close()
    }
}

/// Returns an ABORT with the ports and the verification tag of `packet` (RFC 9260 section 3.3.7).
fn abort(packet: &[u8]) -> Vec<u8> {
    let mut abort = packet[..12].to_vec();
    abort.extend([6, 0, 0, 4]);
    sum(abort)
}

/// Sets the checksum of an SCTP packet.
fn sum(mut packet: Vec<u8>) -> Vec<u8> {
    packet[8..12].fill(0);
    let sum = crc32c(&packet);
    // RFC 9260 appendix A: the checksum is the only little-endian number of SCTP.
    packet[8..12].copy_from_slice(&sum.to_le_bytes());
    packet
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1));
        }
    }
    !crc
}

/// Returns the chunk types of an SCTP packet, in order.
pub fn chunks(packet: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    let mut rest = packet.get(12..).unwrap_or_default();
    while let [kind, _, high, low, ..] = *rest {
        types.push(kind);
        let length = usize::from(u16::from_be_bytes([high, low])).next_multiple_of(4);
        rest = rest.get(length.max(4)..).unwrap_or_default();
    }
    types
}
