//! Writes certificates: the authority of this machine, and the server certificates it signs.
//!
//! In: names, validity and a fresh P-256 key pair. Out: DER, which [`super::parsed`] reads. The
//! authority signs only server certificates, one level down, within its name constraints. Source:
//! RFC 5280 section 4.2.1.

use std::net::IpAddr;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType, date_time_ymd,
};

use super::{CertificateName, NameConstraint, Validity};

/// Returns the name of the authority of a machine. It contains `mark`, since two boards may have
/// the same host name.
pub fn authority_name(host: &str, mark: u16) -> String {
    format!("edge-runner on {host} ({mark:04x})")
}

/// Issues an authority certificate.
///
/// # Errors
/// Returns an error of the library; valid names cause none.
pub fn authority(
    name: &str,
    permitted: &[NameConstraint],
    validity: Validity,
    key: &KeyPair,
) -> Result<Vec<u8>, Error> {
    let mut params = valid(validity);
    params.distinguished_name = distinguished(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: permitted.iter().map(subtree).collect(),
        excluded_subtrees: Vec::new(),
    });
    Ok(params.self_signed(key)?.der().to_vec())
}

/// Issues a server certificate, signed by the authority with this name and key.
///
/// # Errors
/// Returns an error of the library for a name that is not ASCII.
pub fn certificate(
    names: &[CertificateName],
    validity: Validity,
    key: &KeyPair,
    authority: &str,
    authority_key: &KeyPair,
) -> Result<Vec<u8>, Error> {
    let mut params = valid(validity);
    // Some old clients take a host name here as a name, which would break the constraints.
    params.distinguished_name = distinguished("edge-runner");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.subject_alt_names = subject_alt_names(names)?;
    let mut issuer = CertificateParams::default();
    issuer.distinguished_name = distinguished(authority);
    Ok(params
        .signed_by(key, &Issuer::from_params(&issuer, authority_key))?
        .der()
        .to_vec())
}

/// Issues a server certificate that its own key signs, for clients that compare its hash.
///
/// # Errors
/// Returns an error of the library for a name that is not ASCII.
pub fn self_signed(names: &[CertificateName], validity: Validity, key: &KeyPair) -> Result<Vec<u8>, Error> {
    let mut params = valid(validity);
    params.distinguished_name = distinguished("edge-runner");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.subject_alt_names = subject_alt_names(names)?;
    Ok(params.self_signed(key)?.der().to_vec())
}

fn subject_alt_names(names: &[CertificateName]) -> Result<Vec<SanType>, Error> {
    let names = names.iter().map(|name| match name {
        CertificateName::Dns(name) => name.as_str().try_into().map(SanType::DnsName),
        CertificateName::Address(address) => Ok(SanType::IpAddress(*address)),
    });
    names.collect()
}

fn valid(validity: Validity) -> CertificateParams {
    let at = |time_s| date_time_ymd(1970, 1, 1) + Duration::from_secs(time_s);
    let mut params = CertificateParams::default();
    params.not_before = at(validity.from_s);
    params.not_after = at(validity.until_s);
    params
}

fn distinguished(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn subtree(subtree: &NameConstraint) -> GeneralSubtree {
    match subtree {
        NameConstraint::Dns(name) => GeneralSubtree::DnsName(name.clone()),
        NameConstraint::Network(IpAddr::V4(network), bits) => {
            GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix(network.octets(), *bits))
        }
        NameConstraint::Network(IpAddr::V6(network), bits) => {
            GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(network.octets(), *bits))
        }
    }
}
