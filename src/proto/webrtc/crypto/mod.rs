//! str0m's cryptography over the RustCrypto crates and dimpl: SRTP ciphers, hashes, DTLS and the certificate of this
//! process. No C, no assembler of our own, no algorithm of our own: each file only joins a trait to a crate.
//!
//! In: keys, packets and handshake records as str0m hands them over. Out: the same, sealed or opened. Packets are
//! bounded by the datagram they came in; a sealed or opened RTP packet allocates nothing here, and the AES key schedule
//! is made once per key.
//! Three providers are made here: [`provider`] for ordinary sessions, [`bare_provider`] for clients whose RTP packets must have
//! a header of 12 bytes, and [`embedded_provider`] for those of them whose data channels need help to open.
//! Sources: RFC 3711, RFC 5764, RFC 7714, RFC 8122.

mod certificate;
mod device_dtls;
mod digest;
mod dtls;
mod forward;
mod header_extension;
mod srtp;
#[cfg(test)]
mod tests;

pub use certificate::{CertificateError, certificate};
pub use dtls::{HandshakeError, take_handshake_error};
pub use header_extension::{bare_provider, embedded_provider, strip_empty_extension};

use str0m::crypto::CryptoProvider;

/// Makes the provider of an ordinary session; it holds references only, so it costs nothing to make again.
pub fn provider() -> CryptoProvider {
    CryptoProvider {
        srtp_provider: &srtp::SrtpCiphers,
        sha1_hmac_provider: &digest::Digests,
        sha1_provider: &digest::Digests,
        sha256_provider: &digest::Digests,
        dtls_provider: &dtls::DimplProvider,
    }
}
