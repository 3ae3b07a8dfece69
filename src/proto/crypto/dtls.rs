//! DTLS through dimpl, as str0m's `DtlsProvider`: who may be handshaken with, and how patiently.
//!
//! In: records of one datagram each, and the time. Out: records, the SRTP keys, and data channel bytes. Both roles;
//! 1.2 unless the session asks for more. Offered and accepted: ECDHE-ECDSA suites on P-256 only, which every WebRTC
//! endpoint must speak and which keep a ClientHello at a seventh of a datagram, as Mbed TLS servers need it whole.
//! Not looked at: validity dates and issuer of the peer's certificate; str0m compares the fingerprint of its bytes.
//! Sources: RFC 6347, RFC 8827 section 6.5.

mod hello;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use dimpl::crypto::{Dtls12CipherSuite, rust_crypto};
use dimpl::{Config, Dtls, NamedGroup};
use str0m::crypto::CryptoError;
use str0m::crypto::dtls::{
    DtlsCert, DtlsImplError, DtlsInstance, DtlsOutput, DtlsProvider, DtlsVersion, ProtocolVersion,
};

use self::hello::Hello;
use super::certificate::certificate;
use crate::limits::DTLS_RETRANSMIT;

const SUITES: [Dtls12CipherSuite; 3] = [
    Dtls12CipherSuite::ECDHE_ECDSA_AES128_GCM_SHA256,
    Dtls12CipherSuite::ECDHE_ECDSA_CHACHA20_POLY1305_SHA256,
    Dtls12CipherSuite::ECDHE_ECDSA_AES256_GCM_SHA384,
];

#[derive(Debug)]
pub(super) struct Backend;

impl DtlsProvider for Backend {
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
        let start = match version {
            DtlsVersion::Dtls12 => Dtls::new_12,
            DtlsVersion::Dtls13 => Dtls::new_13,
            DtlsVersion::Auto => Dtls::new_auto,
            other => return Err(CryptoError::Other(format!("{other} is not supported"))),
        };
        Ok(Box::new(Endpoint::new(start(config(mtu)?, cert.clone(), now))))
    }
}

/// The settings for datagrams of `mtu` bytes. Building them runs dimpl's self-tests, signatures among them, which is
/// too much to do for each session, so the first ones are kept: sessions do not differ in their MTU.
fn config(mtu: Option<usize>) -> Result<Arc<Config>, CryptoError> {
    static KEPT: OnceLock<Arc<Config>> = OnceLock::new();
    if let Some(kept) = KEPT.get()
        && mtu.is_none_or(|mtu| mtu == kept.mtu())
    {
        return Ok(kept.clone());
    }
    let mut builder = Config::builder()
        .with_crypto_provider(rust_crypto::default_provider())
        .dtls12_cipher_suites(&SUITES)
        .kx_groups(&[NamedGroup::Secp256r1])
        .flight_start_rto(DTLS_RETRANSMIT)
        // ICE has already shown that the peer is where it says it is.
        .use_server_cookie(false);
    if let Some(mtu) = mtu {
        builder = builder.mtu(mtu);
    }
    let config = Arc::new(builder.build().map_err(CryptoError::DtlsImpl)?);
    // A second MTU, or a second thread at the first session, is served and not kept.
    let _ = KEPT.set(config.clone());
    Ok(config)
}

/// One DTLS association.
struct Endpoint {
    dtls: Dtls,
    hello: Hello,
}

impl Endpoint {
    fn new(dtls: Dtls) -> Self {
        Endpoint {
            dtls,
            hello: Hello::default(),
        }
    }
}

impl DtlsInstance for Endpoint {
    fn set_active(&mut self, active: bool) {
        self.dtls.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        if self.dtls.is_active() {
            return self.dtls.handle_packet(packet);
        }
        match &*self.hello.handle_datagram(packet) {
            [] => Ok(()),
            packet => self.dtls.handle_packet(packet),
        }
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        self.dtls.poll_output(buf)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.dtls.handle_timeout(now)
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        self.dtls.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.dtls.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.dtls.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.dtls.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.dtls.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.dtls.close()
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Endpoint")
    }
}

#[cfg(test)]
mod tests;
