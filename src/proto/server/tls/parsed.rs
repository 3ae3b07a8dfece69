//! Reads the names, issuer, validity and constraints of a certificate.
//!
//! In: DER of this runner or of a user's file. Out: a [`Certificate`], or
//! [`CertificateParseError`]. Signatures are not verified; the party that presents or trusts the
//! certificate does that. Source: RFC 5280 section 4.

use std::fmt;
use std::net::IpAddr;

use x509_cert::der::Decode as _;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, NameConstraints, SubjectAltName};
use x509_cert::name::Name as Distinguished;

use super::{CertificateName, NameConstraint, Validity};

/// The curve P-256 (RFC 5480 section 2.1.1.1).
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");

/// The content of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The common name, or the whole subject if there is none.
    pub subject: String,
    pub issuer: String,
    pub names: Vec<CertificateName>,
    pub validity: Validity,
    pub is_authority: bool,
    /// The name constraints; `None` if the authority may certify all names.
    pub permitted: Option<Vec<NameConstraint>>,
    /// Whether the key is on P-256.
    pub is_p256: bool,
}

/// Bytes that are not a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateParseError;

impl fmt::Display for CertificateParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is no certificate")
    }
}

impl std::error::Error for CertificateParseError {}

impl Certificate {
    /// A certificate for host names, for tests.
    #[cfg(test)]
    pub fn example(names: &[&str], validity: Validity) -> Certificate {
        Certificate {
            subject: "board".into(),
            issuer: "somebody".into(),
            names: names
                .iter()
                .map(|name| CertificateName::Dns((*name).to_owned()))
                .collect(),
            validity,
            is_authority: false,
            permitted: None,
            is_p256: true,
        }
    }

    /// Parses a certificate.
    ///
    /// # Errors
    /// Returns a [`CertificateParseError`] if the bytes are not a certificate, or its validity is
    /// invalid.
    pub fn read(der: &[u8]) -> Result<Certificate, CertificateParseError> {
        let whole = x509_cert::Certificate::from_der(der).map_err(|_| CertificateParseError)?;
        let tbs = whole.tbs_certificate();
        let names =
            extension::<SubjectAltName>(tbs)?.map_or(Vec::new(), |names| names.0.iter().filter_map(name).collect());
        let is_authority = extension::<BasicConstraints>(tbs)?.is_some_and(|constraints| constraints.ca);
        let permitted = extension::<NameConstraints>(tbs)?
            .and_then(|constraints| constraints.permitted_subtrees)
            .map(|subtrees| subtrees.iter().filter_map(|each| subtree(&each.base)).collect());
        let validity = Validity {
            from_s: tbs.validity().not_before.to_unix_duration().as_secs(),
            until_s: tbs.validity().not_after.to_unix_duration().as_secs(),
        };
        if validity.from_s > validity.until_s {
            return Err(CertificateParseError);
        }
        Ok(Certificate {
            subject: common_name(tbs.subject()),
            issuer: common_name(tbs.issuer()),
            names,
            validity,
            is_authority,
            permitted,
            is_p256: is_p256(tbs),
        })
    }

    /// Returns whether subject and issuer are the same, as in a self-signed certificate.
    pub fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }
}

fn is_p256(tbs: &x509_cert::TbsCertificate) -> bool {
    let parameters = &tbs.subject_public_key_info().algorithm.parameters;
    let curve = parameters
        .as_ref()
        .and_then(|any| any.decode_as::<ObjectIdentifier>().ok());
    curve == Some(P256)
}

fn extension<'a, T>(tbs: &'a x509_cert::TbsCertificate) -> Result<Option<T>, CertificateParseError>
where
    T: x509_cert::der::Decode<'a> + x509_cert::der::oid::AssociatedOid,
{
    let found = tbs.get_extension::<T>().map_err(|_| CertificateParseError)?;
    Ok(found.map(|(_critical, value)| value))
}

fn common_name(name: &Distinguished) -> String {
    match name.common_name() {
        Ok(Some(name)) => name.value().into_owned(),
        _ => name.to_string(),
    }
}

fn name(name: &GeneralName) -> Option<CertificateName> {
    match name {
        GeneralName::DnsName(name) => Some(CertificateName::Dns(name.as_str().to_ascii_lowercase())),
        GeneralName::IpAddress(bytes) => address(bytes.as_bytes()).map(CertificateName::Address),
        _ => None,
    }
}

fn subtree(base: &GeneralName) -> Option<NameConstraint> {
    match base {
        GeneralName::DnsName(name) => Some(NameConstraint::Dns(name.as_str().to_ascii_lowercase())),
        GeneralName::IpAddress(bytes) => {
            let (network, mask) = bytes.as_bytes().split_at_checked(bytes.as_bytes().len() / 2)?;
            let bits: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
            Some(NameConstraint::Network(address(network)?, u8::try_from(bits).ok()?))
        }
        _ => None,
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}
