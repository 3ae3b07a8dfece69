//! str0m's cryptography, implemented with the RustCrypto crates and dimpl.
//!
//! In: keys, packets and handshake records from str0m. Out: the same, encrypted or decrypted. There
//! is no C, no assembler, and no algorithm of this project; each file adapts a crate to a trait.
//! RTP packets cause no allocation, and the AES key schedule is computed once per key. [`provider`]
//! serves ordinary sessions, [`bare_provider`] clients that need 12-byte RTP headers, and
//! [`embedded_provider`] microcontrollers, whose data channels need help too. Sources: RFC 3711,
//! RFC 5764, RFC 7714, RFC 8122.

mod certificate;
mod device_dtls;
mod digest;
mod dtls;
mod foreign_extension;
mod forward;
mod header_extension;
mod srtp;
#[cfg(test)]
mod tests;

pub use certificate::{CertificateError, certificate};
pub use dtls::{HandshakeError, take_handshake_error};
pub use foreign_extension::{BarePacket, is_cut_off};
pub use header_extension::{bare_provider, embedded_provider, strip_empty_extension};

use str0m::crypto::CryptoProvider;

/// Returns the provider for ordinary sessions. It holds only references.
pub fn provider() -> CryptoProvider {
    CryptoProvider {
        srtp_provider: &srtp::SrtpCiphers,
        sha1_hmac_provider: &digest::Digests,
        sha1_provider: &digest::Digests,
        sha256_provider: &digest::Digests,
        dtls_provider: &dtls::DimplProvider,
    }
}
