//! dimpl's cryptography, extended with RSA keys of clients and with reasons for rejected keys.
//!
//! There is one provider per role. The server's hashes and verifies the transcript as the client
//! has it, in which the CertificateRequest asks for RSA too (see `certificate_request`). The
//! client's only adds reasons. In: certificates, transcripts, signatures. Out: digests, and whether
//! a signature is valid. A peer's bytes cannot cause a panic.

use dimpl::CryptoError;
use dimpl::crypto::{
    Buf, CryptoProvider, HashAlgorithm, HashContext, HashProvider, SignatureAlgorithm, SignatureVerifier, rust_crypto,
};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::oid::ObjectIdentifier;

use super::certificate_request::add_rsa_to_transcript;
use super::handshake_error::{HandshakeError, record_handshake_error};
use super::rsa;

const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const RSA_ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
/// Names of other key types seen in clients' certificates.
const NAMES: [(ObjectIdentifier, &str); 6] = [
    (ObjectIdentifier::new_unwrap("1.3.132.0.33"), "secp224r1"),
    (ObjectIdentifier::new_unwrap("1.3.132.0.35"), "secp521r1"),
    (ObjectIdentifier::new_unwrap("1.3.132.0.10"), "secp256k1"),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10"), "RSASSA-PSS"),
    (ObjectIdentifier::new_unwrap("1.3.101.112"), "Ed25519"),
    (ObjectIdentifier::new_unwrap("1.3.101.113"), "Ed448"),
];

/// Returns the server's provider. All its datagrams must pass `certificate_request::add_rsa`.
pub fn server_provider() -> CryptoProvider {
    CryptoProvider {
        signature_verification: &ServerVerifier,
        hash_provider: &ServerHashes,
        ..rust_crypto::default_provider()
    }
}

/// Returns the client's provider.
pub fn client_provider() -> CryptoProvider {
    CryptoProvider {
        signature_verification: &ClientVerifier,
        ..rust_crypto::default_provider()
    }
}

#[derive(Debug)]
struct ServerHashes;

impl HashProvider for ServerHashes {
    fn create_hash(&self, algorithm: HashAlgorithm) -> Box<dyn HashContext> {
        Box::new(ServerHash(
            rust_crypto::default_provider().hash_provider.create_hash(algorithm),
        ))
    }
}

/// The digest of a transcript. dimpl creates one per use and updates it once.
#[derive(Debug)]
struct ServerHash(Box<dyn HashContext>);

impl HashContext for ServerHash {
    fn update(&mut self, data: &[u8]) {
        self.0.update(&add_rsa_to_transcript(data));
    }

    fn clone_and_finalize(&self, out: &mut Buf) {
        self.0.clone_and_finalize(out);
    }
}

/// Verifies a client's signature over the transcript.
#[derive(Debug)]
struct ServerVerifier;

impl SignatureVerifier for ServerVerifier {
    fn verify_signature(
        &self,
        certificate: &[u8],
        data: &[u8],
        signature: &[u8],
        hash: HashAlgorithm,
        algorithm: SignatureAlgorithm,
    ) -> Result<(), CryptoError> {
        let data = add_rsa_to_transcript(data);
        let key = match PeerKey::from_certificate(certificate) {
            PeerKey::Rsa(key) => key,
            key => return verify(&key, certificate, &data, signature, hash, algorithm),
        };
        if !key.is_supported() {
            record_handshake_error(|| HandshakeError::UnsupportedKey(PeerKey::Rsa(key).describe()));
            return Err(CryptoError::UnsupportedPublicKeyAlgorithm);
        }
        // The only RSA signature that the request names.
        if (hash, algorithm) != (HashAlgorithm::SHA256, SignatureAlgorithm::RSA) || !key.verify(&data, signature) {
            return Err(CryptoError::InvalidSignatureFormat);
        }
        Ok(())
    }
}

/// Verifies a server's signature over the key exchange.
#[derive(Debug)]
struct ClientVerifier;

impl SignatureVerifier for ClientVerifier {
    fn verify_signature(
        &self,
        certificate: &[u8],
        data: &[u8],
        signature: &[u8],
        hash: HashAlgorithm,
        algorithm: SignatureAlgorithm,
    ) -> Result<(), CryptoError> {
        verify(
            &PeerKey::from_certificate(certificate),
            certificate,
            data,
            signature,
            hash,
            algorithm,
        )
    }
}

/// Verifies through dimpl, and records the reason if the key is unsupported.
fn verify(
    key: &PeerKey,
    certificate: &[u8],
    data: &[u8],
    signature: &[u8],
    hash: HashAlgorithm,
    algorithm: SignatureAlgorithm,
) -> Result<(), CryptoError> {
    if !matches!(key, PeerKey::Ecdsa | PeerKey::Unreadable) {
        record_handshake_error(|| HandshakeError::UnsupportedKey(key.describe()));
        return Err(CryptoError::UnsupportedPublicKeyAlgorithm);
    }
    let dimpl = rust_crypto::default_provider().signature_verification;
    dimpl.verify_signature(certificate, data, signature, hash, algorithm)
}

/// The public key of a peer's certificate.
#[derive(Debug, PartialEq, Eq)]
enum PeerKey {
    /// On a curve that dimpl supports.
    Ecdsa,
    Rsa(rsa::RsaPublicKey),
    /// On another curve.
    Curve(ObjectIdentifier),
    /// For another algorithm.
    Other(ObjectIdentifier),
    Unreadable,
}

impl PeerKey {
    fn from_certificate(certificate: &[u8]) -> Self {
        let Ok(certificate) = Certificate::from_der(certificate) else {
            return PeerKey::Unreadable;
        };
        let info = certificate.tbs_certificate().subject_public_key_info();
        match info.algorithm.oid {
            RSA_ENCRYPTION => {
                let der = info.subject_public_key.as_bytes();
                der.and_then(rsa::RsaPublicKey::from_der)
                    .map_or(PeerKey::Unreadable, PeerKey::Rsa)
            }
            EC_PUBLIC_KEY => match info.algorithm.parameters.as_ref().map(|curve| curve.decode_as()) {
                Some(Ok(P256 | P384)) => PeerKey::Ecdsa,
                Some(Ok(curve)) => PeerKey::Curve(curve),
                _ => PeerKey::Unreadable,
            },
            other => PeerKey::Other(other),
        }
    }

    fn describe(&self) -> String {
        let named = |oid: &ObjectIdentifier| {
            let known = NAMES.iter().find(|(known, _)| known == oid);
            known.map_or_else(|| oid.to_string(), |(_, name)| (*name).to_owned())
        };
        match self {
            PeerKey::Ecdsa => "a key on P-256 or P-384".to_owned(),
            PeerKey::Rsa(key) => format!("an RSA key of {} bits", key.bits()),
            PeerKey::Curve(curve) => format!("a key on the curve {}", named(curve)),
            PeerKey::Other(algorithm) => format!("a key for {}", named(algorithm)),
            PeerKey::Unreadable => "an unreadable key".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
