//! Certificates for `localhost` as files: self-signed, or of an authority of the test's own.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A certificate and its key in PEM, as `openssl` or a private authority makes them.
pub struct CertificateFiles {
    pub certificate: String,
    pub key: String,
}

impl CertificateFiles {
    pub fn new() -> CertificateFiles {
        let key = KeyPair::generate().expect("a key");
        CertificateFiles {
            certificate: params().self_signed(&key).expect("a certificate").pem(),
            key: key.serialize_pem(),
        }
    }
}

fn params() -> CertificateParams {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    CertificateParams::new(names).expect("names")
}

/// An authority that a runner trusts when `SSL_CERT_FILE` names its certificate.
pub struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

impl TestAuthority {
    pub fn new() -> TestAuthority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "Authority of a test");
        let key = KeyPair::generate().expect("a key");
        TestAuthority(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// Its certificate in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate that ends in this year.
    pub fn issue(&self, until: i32) -> CertificateFiles {
        let key = KeyPair::generate().expect("a key");
        let mut params = params();
        params.distinguished_name.push(DnType::CommonName, "localhost");
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        CertificateFiles {
            certificate: params.signed_by(&key, &self.0).expect("a certificate").pem(),
            key: key.serialize_pem(),
        }
    }
}
