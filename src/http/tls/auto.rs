//! The authority and the certificate of `--tls auto`, kept in the state folder.
//!
//! In: the configured names, the addresses of every interface, the clock. Out: a
//! [`CertificatePair`] to serve, and the authority certificate for devices. `proto::server::tls`
//! decides the contents of a certificate and when it is due. No failure stops the runner: damaged
//! files are renamed, and what cannot be stored is made for this run only, with a log line. A
//! loaded authority stays for the whole run.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use log::{Level, debug, info, log, warn};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::client::verify_server_cert_signed_by_trust_anchor;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::sign::CertifiedKey;

use super::pair::CertificatePair;
use crate::common;
use crate::store::{Store, StoreLock, StoredFile};
use edge_runner_proto::config::TlsSettings;
use edge_runner_proto::server::tls::parsed::Certificate;
use edge_runner_proto::server::tls::{self, CertificateName, NameConstraint, RenewalReason, Validity, issue};

/// The file of the authority.
pub const AUTHORITY: &str = "authority.pem";
/// The file of the server certificate that the authority has signed.
pub const SERVER: &str = "server.pem";

/// The error of an encoder, the system or a file.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An authority with its key.
pub struct Authority {
    pub certificate: Certificate,
    /// The certificate without the key, for devices.
    pub pem: Bytes,
    der: CertificateDer<'static>,
    key: KeyPair,
    roots: RootCertStore,
}

/// Makes and renews certificates.
pub struct AutoTls {
    provider: Arc<CryptoProvider>,
    host_names: Vec<String>,
    /// `None` when the folder cannot be used.
    store: Option<Store>,
    pub authority: Authority,
    serving: Mutex<Certificate>,
    /// Names already reported in the log.
    left_out: Mutex<Vec<CertificateName>>,
}

impl AutoTls {
    /// Loads stored certificates and makes missing ones. Blocks.
    ///
    /// # Errors
    /// Returns an error when no certificate can be made even for this run.
    pub fn open(
        settings: &TlsSettings,
        provider: Arc<CryptoProvider>,
        addresses: &[IpAddr],
        clock_s: u64,
    ) -> Result<(AutoTls, Arc<CertifiedKey>), BoxError> {
        let names = tls::certificate_names(&settings.host_names, addresses);
        let (store, lock) = match folder(settings) {
            Ok((store, lock)) => (Some(store), Some(lock)),
            Err(error) => {
                warn_not_stored(&error);
                (None, None)
            }
        };
        let found = store
            .as_ref()
            .map_or(Ok(None), |store| Authority::find(store, &provider, clock_s));
        let make = |store| Authority::make(&settings.host_names, &names, &provider, store, clock_s);
        let authority = match found {
            Ok(Some(authority)) => authority,
            Ok(None) => make(store.as_ref())?,
            // The file stays: devices trust it, and the failure may be temporary.
            Err(AuthorityReadError) => {
                warn!("another certificate authority serves until this runner ends");
                make(None)?
            }
        };
        let auto = AutoTls {
            provider,
            host_names: settings.host_names.clone(),
            store,
            serving: Mutex::new(authority.certificate.clone()),
            authority,
            left_out: Mutex::default(),
        };
        let pair = auto.find_or_make(addresses, clock_s, None, lock)?;
        Ok((auto, pair))
    }

    /// Returns why a new certificate is due, if it is.
    pub fn due(&self, addresses: &[IpAddr], clock_s: u64) -> Option<RenewalReason> {
        let serving = common::lock(&self.serving);
        tls::renewal_reason(&serving, &self.wanted(addresses), clock_s)
    }

    /// Finds or makes the next certificate. Blocks.
    ///
    /// # Errors
    /// Returns why there is none; the current one stays in use.
    pub fn renew(&self, addresses: &[IpAddr], clock_s: u64) -> Result<Arc<CertifiedKey>, BoxError> {
        let lock = self.store.as_ref().and_then(|store| {
            let locked = store.lock();
            locked
                .inspect_err(|error| debug!("waiting for another runner: {error}"))
                .ok()
        });
        let serving = common::lock(&self.serving).clone();
        self.find_or_make(addresses, clock_s, Some(&serving), lock)
    }

    /// Returns the names for the certificate.
    fn wanted(&self, addresses: &[IpAddr]) -> Vec<CertificateName> {
        let (mut names, left_out): (Vec<_>, Vec<_>) = tls::certificate_names(&self.host_names, addresses)
            .into_iter()
            .partition(|name| self.authority.permits(name));
        let mut reported = common::lock(&self.left_out);
        if *reported != left_out {
            // Addresses change by themselves; only a missing host name was asked for by the
            // operator.
            let asked_for = left_out.iter().any(|name| matches!(name, CertificateName::Dns(_)));
            let level = if asked_for { Level::Warn } else { Level::Debug };
            if !left_out.is_empty() {
                log!(
                    level,
                    "not in the certificate, since its authority was made before them: {}; move {AUTHORITY} away for a new \
                     authority, which every device has to trust again",
                    list(&left_out)
                );
            }
            *reported = left_out;
        }
        names.truncate(edge_runner_proto::limits::CERTIFICATE_NAMES_MAX);
        names
    }

    /// Holds `lock` to the end, so that another runner finds the new certificate.
    fn find_or_make(
        &self,
        addresses: &[IpAddr],
        clock_s: u64,
        last: Option<&Certificate>,
        lock: Option<StoreLock>,
    ) -> Result<Arc<CertifiedKey>, BoxError> {
        let wanted = self.wanted(addresses);
        let kept = self.store.as_ref().and_then(|store| self.find(store));
        let why = kept
            .as_ref()
            .map(|pair| tls::renewal_reason(&pair.certificate, &wanted, clock_s));
        let pair = match (kept, why) {
            (Some(pair), Some(None)) => pair,
            (kept, why) => {
                let last = kept.as_ref().map(|pair| &pair.certificate).or(last);
                let pair = self.make(&wanted, last, clock_s)?;
                let why = why.flatten().map(|due| format!(": {due}")).unwrap_or_default();
                info!(
                    "made a certificate for HTTPS, valid for {} days, for {}{why}",
                    pair.certificate
                        .validity
                        .days_left(tls::plausible_now(clock_s, Some(&pair.certificate))),
                    list(&pair.certificate.names)
                );
                pair
            }
        };
        drop(lock);
        *common::lock(&self.serving) = pair.certificate;
        Ok(pair.key)
    }

    /// Reads the stored certificate, if it is complete and signed by this authority.
    fn find(&self, store: &Store) -> Option<CertificatePair> {
        let damage = match store.read(SERVER) {
            Ok(None) => return None,
            Ok(Some(found)) => match self.authority.accept(&found, &self.provider) {
                Ok(pair) => return Some(pair),
                Err(why) => why,
            },
            Err(error) => error.into(),
        };
        warn!(
            "{} is not used, and another one is made: {damage}",
            store.path(SERVER).display()
        );
        None
    }

    fn make(
        &self,
        wanted: &[CertificateName],
        last: Option<&Certificate>,
        clock_s: u64,
    ) -> Result<CertificatePair, BoxError> {
        let key = KeyPair::generate()?;
        let names = tls::next_names(wanted, last, self.authority.permitted());
        let validity = Validity::of_certificate(tls::plausible_now(clock_s, last));
        let der = self.authority.sign(&names, validity, &key)?;
        let text = format!("{}{}", pem("CERTIFICATE", &der), key.serialize_pem());
        if let Some(store) = &self.store
            && let Err(error) = store.write(SERVER, text.as_bytes())
        {
            warn!("the certificate of this server cannot be kept, so the next start makes another one: {error}");
        }
        Ok(CertificatePair::read(text.as_bytes(), text.as_bytes(), &self.provider)?)
    }
}

/// The stored authority is unreadable, and its file is still in place.
struct AuthorityReadError;

impl Authority {
    /// Reads the stored authority. A damaged one is renamed.
    ///
    /// # Errors
    /// Returns [`AuthorityReadError`] when the file stays in place.
    fn find(store: &Store, provider: &CryptoProvider, clock_s: u64) -> Result<Option<Authority>, AuthorityReadError> {
        let path = store.path(AUTHORITY);
        let found = match store.read(AUTHORITY) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(None),
            Err(error) => {
                warn!("{} cannot be read: {error}", path.display());
                return Err(AuthorityReadError);
            }
        };
        match Authority::read(&found.text, provider) {
            Ok(authority) => {
                if let Some(mode) = found.exposed_mode {
                    let closed = store.restrict_to_owner(AUTHORITY);
                    warn!(
                        "{} had mode {mode:o}, so others may know the key that devices trust; if that may be, move it away \
                         for a new authority, which every device has to trust again{}",
                        path.display(),
                        closed.map_or_else(|error| format!(" (and the mode stays: {error})"), |()| String::new())
                    );
                }
                Ok(Some(authority))
            }
            Err(why) => {
                let moved = match store.quarantine(AUTHORITY, clock_s) {
                    Ok(aside) => format!("moved to {}", aside.display()),
                    Err(error) => {
                        warn!(
                            "{} is damaged ({why}) and cannot be moved away: {error}",
                            path.display()
                        );
                        return Err(AuthorityReadError);
                    }
                };
                warn!(
                    "the certificate authority in {} is damaged ({why}) and was {moved}; there will be a new one, which every \
                     device has to trust again",
                    path.display()
                );
                Ok(None)
            }
        }
    }

    /// Parses an authority and its key, and checks that a certificate signed with it verifies.
    fn read(text: &[u8], provider: &CryptoProvider) -> Result<Authority, BoxError> {
        let pair = CertificatePair::read(text, text, provider)?;
        let der = pair.key.cert.first().ok_or("there is no certificate in it")?.clone();
        let key = PrivatePkcs8KeyDer::from_pem_slice(text)?;
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ECDSA_P256_SHA256)?;
        let mut roots = RootCertStore::empty();
        roots.add(der.clone())?;
        let authority = Authority {
            pem: pem("CERTIFICATE", &der).into(),
            certificate: pair.certificate,
            der,
            key,
            roots,
        };
        let names = [CertificateName::Dns("localhost".into())];
        let validity = authority.certificate.validity;
        let trial = CertificateDer::from(authority.sign(&names, validity, &authority.key)?);
        let said = Certificate::read(&trial)?;
        if !authority.certificate.is_authority || !authority.verifies(&trial, &said, provider) {
            return Err("it is no authority of this program's making".into());
        }
        Ok(authority)
    }

    /// Makes the authority of this machine and stores it.
    fn make(
        host_names: &[String],
        names: &[CertificateName],
        provider: &CryptoProvider,
        store: Option<&Store>,
        clock_s: u64,
    ) -> Result<Authority, BoxError> {
        let host = host_names
            .iter()
            .find(|name| !name.contains(['.', ':']) && *name != "localhost");
        let mark = u16::from_be_bytes(common::random());
        let name = issue::authority_name(host.map_or("this machine", String::as_str), mark);
        let validity = Validity::of_authority(tls::plausible_now(clock_s, None));
        let key = KeyPair::generate()?;
        let der = issue::authority(&name, &tls::name_constraints(names), validity, &key)?;
        let text = format!("{}{}", pem("CERTIFICATE", &der), key.serialize_pem());
        let authority = Authority::read(text.as_bytes(), provider)?;
        info!("made a certificate authority for this machine: {name}");
        if let Some(store) = store
            && let Err(error) = store.write(AUTHORITY, text.as_bytes())
        {
            warn_not_stored(&error);
        }
        Ok(authority)
    }

    /// Returns the SHA-256 fingerprint in the form that operating systems show.
    pub fn fingerprint(&self) -> String {
        let bytes: Vec<String> = Sha256::digest(&self.der)
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect();
        bytes.join(":")
    }

    /// Reads a stored certificate that is complete, private, and signed by this authority.
    fn accept(&self, found: &StoredFile, provider: &CryptoProvider) -> Result<CertificatePair, BoxError> {
        if let Some(mode) = found.exposed_mode {
            return Err(format!("its mode is {mode:o}, so others may know its key").into());
        }
        let pair = CertificatePair::read(&found.text, &found.text, provider)?;
        let first = pair.key.cert.first();
        let vouched = first.is_some_and(|first| self.verifies(first, &pair.certificate, provider));
        vouched.then_some(pair).ok_or("it is not of this authority".into())
    }

    fn permitted(&self) -> &[NameConstraint] {
        self.certificate.permitted.as_deref().unwrap_or_default()
    }

    fn permits(&self, name: &CertificateName) -> bool {
        tls::permits(self.permitted(), name)
    }

    fn sign(&self, names: &[CertificateName], validity: Validity, key: &KeyPair) -> Result<Vec<u8>, BoxError> {
        let der = issue::certificate(names, validity, key, &self.certificate.subject, &self.key)?;
        Ok(der)
    }

    /// Tells whether a client that trusts this authority accepts a certificate at the start of its
    /// validity.
    fn verifies(&self, der: &CertificateDer<'_>, said: &Certificate, provider: &CryptoProvider) -> bool {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(said.validity.from_s));
        let algorithms = provider.signature_verification_algorithms.all;
        ParsedCertificate::try_from(der).is_ok_and(|parsed| {
            verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, &[], at, algorithms).is_ok()
        })
    }
}

/// Opens and locks the state folder.
fn folder(settings: &TlsSettings) -> io::Result<(Store, StoreLock)> {
    let folder: Option<&PathBuf> = settings.state_dir.as_ref();
    let folder =
        folder.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no folder is known; see --state-dir"))?;
    let with_path = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    let store = Store::open(folder).map_err(with_path)?;
    let lock = store.lock().map_err(with_path)?;
    Ok((store, lock))
}

fn warn_not_stored(error: &io::Error) {
    warn!(
        "certificates cannot be kept, so every device has to trust a new one after each start: {error}; --state-dir takes \
         another folder"
    );
}

fn pem(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    // 48 bytes make a line of 64 characters.
    for line in der.chunks(48) {
        BASE64.encode_append(line, &mut text);
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

fn list(names: &[CertificateName]) -> String {
    let names: Vec<String> = names.iter().map(CertificateName::to_string).collect();
    names.join(", ")
}
