//! Why a DTLS handshake failed, for the log.
//!
//! In: errors of dimpl and of the certificate verifier. str0m reduces errors to text, so they are
//! passed around it. Out: a [`HandshakeError`] that names what was offered and what is supported.
//! It contains key types, versions and numbers, but nothing that identifies the peer.

use std::cell::RefCell;
use std::fmt;

use dimpl::{CertificateError, CryptoError, Error, SecurityError};

use super::rsa;

/// Why a handshake failed, at this end or at the peer's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The certificate has an unsupported key of this type.
    UnsupportedKey(String),
    /// The certificate cannot be parsed.
    MalformedCertificate,
    /// The Certificate message exceeds the limit.
    CertificateTooLong { bytes: usize, bytes_max: usize },
    /// The client sent no certificate.
    NoCertificate,
    /// The signature was not made by the certificate's key.
    BadSignature,
    /// The certificate's fingerprint differs from the one in the SDP.
    FingerprintMismatch,
    /// The client offers no supported cipher suite.
    NoCommonSuite,
    /// The client offers no supported key exchange group.
    NoCommonGroup,
    /// The peer's DTLS version is unsupported.
    UnsupportedVersion(String),
    /// The peer does not support the extended master secret.
    NoExtendedMasterSecret,
    /// The peer sent this alert; `active` means that the peer is the server.
    Alert { number: u8, active: bool },
    /// Any other error, in dimpl's words.
    Other(String),
}

thread_local! {
    /// The error of the last DTLS datagram.
    static LAST: RefCell<Option<HandshakeError>> = const { RefCell::new(None) };
}

/// Takes the error of the last DTLS datagram that this thread handled.
pub fn take_handshake_error() -> Option<HandshakeError> {
    LAST.take()
}

/// Records an error for [`take_handshake_error`]. The first error of a datagram is the cause of
/// later ones.
pub(super) fn record_handshake_error(error: impl FnOnce() -> HandshakeError) {
    LAST.with_borrow_mut(|last| {
        last.get_or_insert_with(error);
    });
}

impl HandshakeError {
    pub(super) fn new(error: &Error, active: bool) -> Self {
        match error {
            Error::CertificateError(CertificateError::NoClientCertificateReceived) => HandshakeError::NoCertificate,
            Error::CryptoError(CryptoError::CertificateParseFailed) => HandshakeError::MalformedCertificate,
            Error::CryptoError(
                CryptoError::SignatureVerificationFailed { .. } | CryptoError::InvalidSignatureFormat,
            ) => HandshakeError::BadSignature,
            Error::SecurityError(error) => match error {
                SecurityError::NoMutuallyAcceptableCipherSuite => HandshakeError::NoCommonSuite,
                SecurityError::NoCommonKeyExchangeGroup => HandshakeError::NoCommonGroup,
                SecurityError::UnsupportedClientVersion(version) | SecurityError::UnsupportedServerVersion(version) => {
                    HandshakeError::UnsupportedVersion(format!("{version:?}").replace('_', "."))
                }
                SecurityError::ExtendedMasterSecretNotNegotiated => HandshakeError::NoExtendedMasterSecret,
                SecurityError::FatalAlert { description } => HandshakeError::Alert {
                    number: *description,
                    active,
                },
                other => HandshakeError::Other(other.to_string()),
            },
            other => HandshakeError::Other(other.to_string()),
        }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::UnsupportedKey(kind) => write!(
                f,
                "the client's certificate has {kind}; P-256, P-384 and, of a DTLS client, RSA of {} to {} bits are taken",
                rsa::KEY_BITS.start(),
                rsa::KEY_BITS.end()
            ),
            HandshakeError::MalformedCertificate => f.write_str("the client's certificate cannot be read"),
            HandshakeError::CertificateTooLong { bytes, bytes_max } => write!(
                f,
                "the client's certificates have {bytes} bytes, and {bytes_max} are read; one that signs itself is enough"
            ),
            HandshakeError::NoCertificate => {
                f.write_str("the client sent no certificate, so it has none with a P-256, P-384 or RSA key")
            }
            HandshakeError::BadSignature => f.write_str("the client's signature is not that of its certificate's key"),
            HandshakeError::FingerprintMismatch => {
                f.write_str("the client's certificate is not the one whose fingerprint its SDP names")
            }
            HandshakeError::NoCommonSuite => f.write_str(
                "the client offers no cipher suite of ECDHE-ECDSA with AES-GCM or ChaCha20, which RFC 8827 demands",
            ),
            HandshakeError::NoCommonGroup => f.write_str(
                "the client offers none of X25519, P-256 and P-384 for the key exchange; RFC 8827 demands P-256",
            ),
            HandshakeError::UnsupportedVersion(version) => {
                write!(f, "the client speaks {version}, and DTLS 1.2 is taken")
            }
            HandshakeError::NoExtendedMasterSecret => f.write_str("the client has no extended master secret, RFC 7627"),
            HandshakeError::Alert { number, active } => {
                write!(f, "the client ended it with alert {number}")?;
                if let Some(name) = alert_name(*number) {
                    write!(f, " ({name})")?;
                }
                match (number, active) {
                    (40, true) => {
                        f.write_str("; as a DTLS server it may have an RSA key, which only a DTLS client may have")
                    }
                    _ => Ok(()),
                }
            }
            HandshakeError::Other(words) => f.write_str(words),
        }
    }
}

/// Returns the name of a fatal alert, RFC 5246 section 7.2.
fn alert_name(number: u8) -> Option<&'static str> {
    Some(match number {
        10 => "unexpected_message",
        20 => "bad_record_mac",
        40 => "handshake_failure",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_returned_once() {
        record_handshake_error(|| HandshakeError::NoCommonSuite);
        record_handshake_error(|| HandshakeError::NoCommonGroup);
        assert_eq!(take_handshake_error(), Some(HandshakeError::NoCommonSuite));
        assert_eq!(take_handshake_error(), None);
    }

    #[test]
    fn alerts_have_their_names() {
        let words = |number, active| HandshakeError::Alert { number, active }.to_string();
        assert_eq!(
            words(43, false),
            "the client ended it with alert 43 (unsupported_certificate)"
        );
        assert_eq!(words(200, true), "the client ended it with alert 200");
        assert!(words(40, true).contains("RSA"));
        assert!(!words(40, false).contains("RSA"));
    }
}
