//! DTLS 1.2 through dimpl, as str0m's `DtlsProvider`.
//!
//! In: datagrams of records, and the time. Out: records, SRTP keys, and application data. As client
//! it offers ECDHE-ECDSA suites on P-256 only: every WebRTC endpoint must support them, and the
//! ClientHello stays small enough for Mbed TLS servers, which need it in one datagram. As server it
//! accepts the same suites, with X25519 and P-384 as further groups. Keys of peers are on P-256 or
//! P-384; DTLS clients may also use RSA, see `certificate_request`. RSA keys of servers would need
//! ECDHE-RSA suites and are rejected. Validity dates and issuers are not checked; str0m compares
//! the fingerprint. [`take_handshake_error`] returns the reason of a failure. Sources: RFC 6347,
//! RFC 8827 section 6.5.

mod certificate_request;
mod client_hello;
mod client_offer;
mod handshake_error;
mod provider;
mod records;
mod rsa;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use dimpl::crypto::Dtls12CipherSuite;
use dimpl::{CertificateError, Config, Dtls, NamedGroup};
use str0m::crypto::CryptoError;
use str0m::crypto::dtls::{DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion};

use self::client_hello::ClientHelloAssembler;
use self::handshake_error::record_handshake_error;
pub use self::handshake_error::{HandshakeError, take_handshake_error};
use self::records::{RECORD_HEADER_BYTES, is_handshake_in_clear, messages, records};
use super::certificate::certificate;
use super::forward::{forward_state, opaque_debug};
use crate::limits::DTLS_RETRANSMIT;

const SUITES: [Dtls12CipherSuite; 3] = [
    Dtls12CipherSuite::ECDHE_ECDSA_AES128_GCM_SHA256,
    Dtls12CipherSuite::ECDHE_ECDSA_CHACHA20_POLY1305_SHA256,
    Dtls12CipherSuite::ECDHE_ECDSA_AES256_GCM_SHA384,
];

/// In order of preference, the cheapest first.
const SERVER_GROUPS: [NamedGroup; 3] = [NamedGroup::X25519, NamedGroup::Secp256r1, NamedGroup::Secp384r1];
const CLIENT_GROUPS: [NamedGroup; 1] = [NamedGroup::Secp256r1];

/// The size of str0m's output buffer. dimpl panics if a certificate does not fit.
const POLL_BYTES: usize = 2_000;
/// The longest accepted Certificate message. One with a 4096-bit RSA key has 1,300 bytes.
const CERTIFICATES_BYTES_MAX: usize = POLL_BYTES - certificate_request::ADDED_BYTES;
const CERTIFICATE: u8 = 11;
/// dimpl drops datagrams with more records. OpenSSL without a socket (aiortc) sends fragments of
/// 256 bytes in one datagram, a dozen with an RSA key.
const RECORDS_PER_PACKET_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct DimplProvider;

impl DtlsProvider for DimplProvider {
    fn generate_certificate(&self) -> Option<DtlsCert> {
        certificate().ok().cloned()
    }

    fn new_dtls(
        &self,
        cert: &DtlsCert,
        now: Instant,
        version: DtlsVersion,
        mtu: Option<usize>,
    ) -> Result<Box<dyn DtlsInstance>, CryptoError> {
        if version != DtlsVersion::Dtls12 {
            return Err(CryptoError::Other(format!("{version} is not supported")));
        }
        let client = config(&CLIENT, mtu)?;
        let dtls = Dtls::new_12(config(&SERVER, mtu)?, cert.clone(), now);
        let as_client = (client, cert.clone(), now);
        Ok(Box::new(DtlsEndpoint::new(dtls, Some(as_client))))
    }
}

/// The differences between the two roles.
struct DtlsRoleConfig {
    provider: fn() -> dimpl::crypto::CryptoProvider,
    groups: &'static [NamedGroup],
    cached: OnceLock<Arc<Config>>,
}

static SERVER: DtlsRoleConfig = DtlsRoleConfig {
    provider: provider::server_provider,
    groups: &SERVER_GROUPS,
    cached: OnceLock::new(),
};
static CLIENT: DtlsRoleConfig = DtlsRoleConfig {
    provider: provider::client_provider,
    groups: &CLIENT_GROUPS,
    cached: OnceLock::new(),
};

/// Returns the dimpl settings for an MTU. Building them runs dimpl's self-tests, which is too slow
/// for each session, so the first settings are cached; sessions have equal MTUs.
fn config(role: &DtlsRoleConfig, mtu: Option<usize>) -> Result<Arc<Config>, CryptoError> {
    if let Some(kept) = role.cached.get()
        && mtu.is_none_or(|mtu| mtu == kept.mtu())
    {
        return Ok(kept.clone());
    }
    let mut builder = Config::builder()
        .with_crypto_provider((role.provider)())
        .dtls12_cipher_suites(&SUITES)
        .kx_groups(role.groups)
        .flight_start_rto(DTLS_RETRANSMIT)
        // ICE has already validated the peer's address.
        .use_server_cookie(false);
    if let Some(mtu) = mtu {
        if mtu < certificate_request::SERVER_FLIGHT_BYTES_MAX {
            return Err(CryptoError::Other(format!("an MTU of {mtu} bytes cuts handshakes")));
        }
        builder = builder.mtu(mtu);
    }
    let config = Arc::new(builder.build().map_err(CryptoError::DtlsImpl)?);
    // Another MTU, or a concurrent first session, is served without caching.
    let _ = role.cached.set(config.clone());
    Ok(config)
}

/// One DTLS association.
struct DtlsEndpoint {
    dtls: Dtls,
    /// What is needed to become the client; `dtls` starts as the server.
    client_parts: Option<(Arc<Config>, DtlsCert, Instant)>,
    hello_assembler: ClientHelloAssembler,
    is_connected: bool,
}

impl DtlsEndpoint {
    fn new(dtls: Dtls, as_client: Option<(Arc<Config>, DtlsCert, Instant)>) -> Self {
        DtlsEndpoint {
            dtls,
            client_parts: as_client,
            hello_assembler: ClientHelloAssembler::default(),
            is_connected: false,
        }
    }

    fn handle_unencrypted_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        check_certificates(packet)?;
        if self.dtls.is_active() {
            return self.handle_records(packet);
        }
        match &*self.hello_assembler.handle_datagram(packet) {
            [] => Ok(()),
            packet => match client_offer::missing_capability(packet) {
                Some(error) => Err(DtlsImplError::SecurityError(error)),
                None => self.handle_records(packet),
            },
        }
    }

    /// Passes the records on in groups that dimpl accepts.
    fn handle_records(&mut self, mut packet: &[u8]) -> Result<(), DtlsImplError> {
        while records(packet).nth(RECORDS_PER_PACKET_MAX).is_some() {
            let length = records(packet).take(RECORDS_PER_PACKET_MAX).map(<[u8]>::len).sum();
            let (first, rest) = packet.split_at(length);
            self.dtls.handle_packet(first)?;
            packet = rest;
        }
        self.dtls.handle_packet(packet)
    }
}

/// Rejects certificates that do not fit into str0m's buffer.
fn check_certificates(packet: &[u8]) -> Result<(), DtlsImplError> {
    let longest = records(packet)
        .filter(|record| is_handshake_in_clear(record))
        .flat_map(|record| messages(&record[RECORD_HEADER_BYTES..]))
        .filter(|message| message.kind == CERTIFICATE)
        .map(|message| message.length)
        .max();
    match longest {
        Some(bytes) if bytes > CERTIFICATES_BYTES_MAX => {
            record_handshake_error(|| HandshakeError::CertificateTooLong {
                bytes,
                bytes_max: CERTIFICATES_BYTES_MAX,
            });
            Err(DtlsImplError::CertificateError(CertificateError::ParseFailed))
        }
        _ => Ok(()),
    }
}

impl DtlsInstance for DtlsEndpoint {
    fn set_active(&mut self, active: bool) {
        if active && let Some((config, certificate, now)) = self.client_parts.take() {
            self.dtls = Dtls::new_12(config, certificate, now);
        }
        self.dtls.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        take_handshake_error();
        let handled = self.handle_unencrypted_packet(packet);
        if let Err(error) = &handled {
            record_handshake_error(|| HandshakeError::new(error, self.dtls.is_active()));
        }
        handled
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        if self.is_connected || self.dtls.is_active() {
            return self.dtls.poll_output(buf);
        }
        let mut plain = [0; POLL_BYTES];
        // Leaves room for the bytes that `add_rsa` inserts.
        let room = buf
            .len()
            .min(POLL_BYTES)
            .saturating_sub(certificate_request::ADDED_BYTES);
        loop {
            return match self.dtls.poll_output(&mut plain[..room]) {
                DtlsOutput::Packet(packet) => {
                    let changed = certificate_request::add_rsa(packet);
                    DtlsOutput::Packet(copy_into(changed.as_deref().unwrap_or(packet), buf))
                }
                DtlsOutput::Connected => {
                    self.is_connected = true;
                    DtlsOutput::Connected
                }
                DtlsOutput::PeerCert(der) => DtlsOutput::PeerCert(copy_into(der, buf)),
                DtlsOutput::ApplicationData(data) => DtlsOutput::ApplicationData(copy_into(data, buf)),
                DtlsOutput::KeyingMaterial(keys, profile) => DtlsOutput::KeyingMaterial(keys, profile),
                DtlsOutput::Timeout(at) => DtlsOutput::Timeout(at),
                DtlsOutput::CloseNotify => DtlsOutput::CloseNotify,
                DtlsOutput::BufferTooSmall { needed } => DtlsOutput::BufferTooSmall {
                    needed: needed + certificate_request::ADDED_BYTES,
                },
                // Other outputs do not occur during a handshake.
                _ => continue,
            };
        }
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.dtls.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        self.dtls.send_application_data(data)
    }

    forward_state!();
}

opaque_debug!(DtlsEndpoint);

/// Copies into the front of `buf`, which is long enough.
fn copy_into<'a>(bytes: &[u8], buf: &'a mut [u8]) -> &'a [u8] {
    let buf = &mut buf[..bytes.len()];
    buf.copy_from_slice(bytes);
    buf
}

#[cfg(test)]
mod tests;
