//! A self-signed certificate for `localhost`, as files.

use rcgen::{CertificateParams, KeyPair};

/// A certificate and its key in PEM, as `openssl` or a private authority makes them.
pub struct CertificateFiles {
    pub certificate: String,
    pub key: String,
}

impl CertificateFiles {
    pub fn new() -> CertificateFiles {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).expect("names");
        CertificateFiles {
            certificate: params.self_signed(&key).expect("a certificate").pem(),
            key: key.serialize_pem(),
        }
    }
}
