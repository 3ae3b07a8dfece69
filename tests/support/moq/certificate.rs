//! TLS of a client that accepts one certificate, by its SHA-256 hash, as browsers do with
//! `serverCertificateHashes`.

use std::sync::Arc;

use quinn_proto::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use quinn_proto::rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use quinn_proto::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use quinn_proto::rustls::version::TLS13;
use quinn_proto::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, SignatureScheme,
};
use sha2::{Digest as _, Sha256};

/// Returns the TLS configuration of a client that accepts the certificate with this hash.
pub fn tls_of_hash(hash: &[u8]) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let verifier = HashVerifier {
        hash: hash.to_vec(),
        provider: provider.clone(),
    };
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .expect("ring has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth()
}

#[derive(Debug)]
struct HashVerifier {
    hash: Vec<u8>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for HashVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match Sha256::digest(certificate)[..] == self.hash {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    /// QUIC has no TLS 1.2.
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
