//! HTTPS: the server certificate, and TLS on accepted connections.
//!
//! In: `--tls` and the state folder; later SIGHUP, address changes and the clock. Out:
//! [`ServerTls`], which turns an accepted connection into a [`MaybeTlsStream`] and serves the
//! authority certificate to devices. `auto` makes certificates, `pair` reads files, `store` keeps
//! them. A new certificate applies to new connections; calls keep theirs. Rejects, before anything
//! listens: files that are missing, not PEM, or do not match. A later failure keeps the old
//! certificate. Source: RFC 8446; ALPN (RFC 7301) offers `http/1.1` alone.

#[cfg_attr(not(feature = "acme"), path = "tls/acme/absent.rs")]
pub mod acme;
pub mod auto;
pub mod pair;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use log::{debug, error, info, warn};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, AlertDescription, ServerConfig};

use self::acme::{AcmeTls, CertificateByName, VALIDATION_ALPN};
use self::auto::{AutoTls, BoxError};
use self::pair::{CertificatePair, TlsFileError};
use crate::notify;
use crate::shutdown::Shutdown;
use crate::store;
use crate::stream::MaybeTlsStream;
use crate::tasks;
use edge_runner_proto::config::{self, TlsSettings};
use edge_runner_proto::limits::CERTIFICATE_LEFT_MIN;

/// Interval of checks for new addresses of the machine and for the end of the certificate.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Bytes per direction that TLS buffers for a peer that reads slowly: one record.
const TLS_BUFFER_BYTES_MAX: usize = 16 * 1024;

/// Why there is no HTTPS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("--tls: reading {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The contents of a file are unusable.
    #[error("--tls: {}: {source}", .path.display())]
    File { path: PathBuf, source: TlsFileError },
    #[error("--tls: making a certificate: {0}")]
    Make(#[source] BoxError),
    /// What `--tls acme` needs on this machine is missing.
    #[error("--tls acme: {0}")]
    Acme(#[source] BoxError),
}

/// TLS for the server's connections.
pub struct ServerTls {
    config: Arc<ServerConfig>,
    current: Arc<CurrentCertificate>,
    source: CertificateSource,
    authority_at: String,
    has_logged_distrust: AtomicBool,
}

/// The source of certificates.
enum CertificateSource {
    Auto(Box<AutoTls>),
    /// A directory's for public names, and the runner's own for other names and addresses.
    Acme {
        acme: Arc<AcmeTls>,
        own: Box<AutoTls>,
    },
    Files {
        certificate: PathBuf,
        key: PathBuf,
        provider: Arc<CryptoProvider>,
    },
}

impl ServerTls {
    /// Loads or makes the certificate of `--tls`; returns `None` when TLS is off. Blocks.
    ///
    /// # Errors
    /// Returns a [`TlsError`] that names the file and the fault.
    pub fn open(settings: &TlsSettings) -> Result<Option<Arc<ServerTls>>, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let (source, first) = match &settings.tls {
            config::Tls::Off => return Ok(None),
            config::Tls::Auto => {
                let (auto, first) = open_own(settings, &provider)?;
                (CertificateSource::Auto(auto), first)
            }
            config::Tls::Acme => {
                let acme = AcmeTls::open(settings, provider.clone()).map_err(TlsError::Acme)?;
                let public = &settings.acme.names;
                let local = settings.host_names.iter().filter(|name| !public.contains(name));
                let local = TlsSettings {
                    host_names: local.cloned().collect(),
                    ..settings.clone()
                };
                let (own, first) = open_own(&local, &provider)?;
                let acme = Arc::new(acme);
                (CertificateSource::Acme { acme, own }, first)
            }
            config::Tls::Files { certificate, key } => {
                let pair = read_files(certificate, key, &provider)?;
                warn_of_expiry(&pair, certificate);
                let source = CertificateSource::Files {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    provider: provider.clone(),
                };
                (source, pair.key)
            }
        };
        let current = Arc::new(CurrentCertificate::new(first));
        Ok(Some(Arc::new(ServerTls {
            config: Arc::new(server_config(provider, current.clone(), &source)?),
            current,
            source,
            authority_at: settings.ca_url.clone(),
            has_logged_distrust: AtomicBool::new(false),
        })))
    }

    /// Does the handshake on a new connection.
    ///
    /// # Errors
    /// Returns the error of a failed handshake.
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<MaybeTlsStream> {
        let acceptor = TlsAcceptor::from(self.config.clone());
        let mut stream = acceptor
            .accept_with(tcp, |connection| {
                connection.set_buffer_limit(Some(TLS_BUFFER_BYTES_MAX))
            })
            .await
            .inspect_err(|error| self.log_distrust(error))?;
        if stream.get_ref().1.alpn_protocol() == Some(VALIDATION_ALPN) {
            // The certificate was the answer.
            let _ = stream.shutdown().await;
            return Err(io::Error::other("it was a validation by the ACME directory"));
        }
        Ok(MaybeTlsStream::Tls(Box::new(stream)))
    }

    /// Logs, once per run, how clients come to trust the certificate.
    fn log_distrust(&self, error: &io::Error) {
        let source = error.get_ref().and_then(|source| source.downcast_ref());
        let Some(rustls::Error::AlertReceived(alert)) = source else {
            return;
        };
        let distrust = matches!(
            alert,
            AlertDescription::UnknownCA | AlertDescription::BadCertificate | AlertDescription::CertificateUnknown
        );
        if distrust && self.authority().is_some() && !self.has_logged_distrust.swap(true, Ordering::Relaxed) {
            let at = &self.authority_at;
            info!("a client does not trust the certificate; it does once it has installed {at}");
        }
    }

    /// Returns the PEM certificate of the runner's authority; `None` when the certificate comes
    /// from files.
    pub fn authority(&self) -> Option<Bytes> {
        self.source.own().map(|own| own.authority.pem.clone())
    }

    /// Logs how devices come to trust the certificates of the runner's own authority. It is for
    /// readers who know the address already, so it follows that.
    pub fn log_authority(&self) {
        if let Some(own) = self.source.own() {
            info!(
                "HTTPS with certificates of the authority `{}`; devices trust them once they have installed {}, SHA-256 {}",
                own.authority.certificate.subject,
                self.authority_at,
                own.authority.fingerprint()
            );
        }
    }

    /// Tells the orders of `--tls acme` the port of HTTPS, which the log names.
    pub fn set_port(&self, port: u16) {
        if let CertificateSource::Acme { acme, .. } = &self.source {
            acme.set_port(port);
        }
    }

    /// Orders certificates of `--tls acme` when they are due. Never returns.
    async fn order_certificates(tls: Option<Arc<Self>>) {
        match tls.as_ref().map(|tls| &tls.source) {
            Some(CertificateSource::Acme { acme, .. }) => acme.clone().run().await,
            _ => std::future::pending().await,
        }
    }

    /// Renews the certificate if it is due.
    async fn renew_if_due(self: &Arc<Self>) {
        let Some(own) = self.source.own() else {
            return;
        };
        let (addresses, clock_s) = (addresses(), unix_time_s());
        let Some(due) = own.due(&addresses, clock_s) else {
            return;
        };
        debug!("another certificate is due: {due}");
        let tls = self.clone();
        let renewed = tasks::blocking(move || match tls.source.own() {
            Some(own) => own.renew(&addresses, clock_s).map(|next| tls.current.set(next)),
            None => Ok(()),
        });
        match renewed.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => error!("the certificate could not be renewed: {why}"),
            Err(panic) => error!("renewing the certificate: {panic}"),
        }
    }

    /// Reads the files again.
    async fn reload(self: &Arc<Self>) {
        let tls = self.clone();
        let read = tasks::blocking(move || match &tls.source {
            CertificateSource::Auto(_) => Ok(false),
            CertificateSource::Acme { acme, .. } => {
                acme.retry();
                Ok(false)
            }
            CertificateSource::Files {
                certificate,
                key,
                provider,
            } => read_files(certificate, key, provider).map(|pair| {
                warn_of_expiry(&pair, certificate);
                tls.current.set(pair.key);
                true
            }),
        });
        match read.await {
            Ok(Ok(true)) => info!("SIGHUP: the certificate was read again"),
            // The runner made the certificate, so it checks whether a renewal is due.
            Ok(Ok(false)) => self.renew_if_due().await,
            Ok(Err(error)) => error!("SIGHUP: the certificate stays as it was: {error}"),
            Err(panic) => error!("reading the certificate: {panic}"),
        }
    }
}

/// Reloads and renews the certificate. It always listens for SIGHUP, whose default action would end
/// the process.
pub struct CertificateWatcher {
    /// SIGHUP, if this server handles it.
    hangups: Option<Signal>,
}

impl CertificateWatcher {
    /// Starts to listen for SIGHUP.
    ///
    /// # Errors
    /// Returns the operating system's error.
    pub fn listen() -> io::Result<CertificateWatcher> {
        let hangups = Some(signal(SignalKind::hangup())?);
        Ok(CertificateWatcher { hangups })
    }

    /// Creates a watcher that ignores SIGHUP; files are not read again.
    pub fn without_signals() -> CertificateWatcher {
        CertificateWatcher { hangups: None }
    }

    /// Reloads files on SIGHUP and renews a due certificate at intervals, until shutdown. `other`
    /// is a second certificate.
    pub async fn run(
        mut self,
        tls: Option<Arc<ServerTls>>,
        other: Option<Arc<dyn WatchedCertificate>>,
        mut shutdown: Shutdown,
    ) {
        let mut orders = pin!(ServerTls::order_certificates(tls.clone()));
        let mut look = tokio::time::interval(CERTIFICATE_CHECK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                () = &mut orders => return,
                received = async {
                    match &mut self.hangups {
                        Some(hangups) => hangups.recv().await,
                        None => std::future::pending().await,
                    }
                } => {
                    if received.is_none() {
                        return;
                    }
                    if let Some(tls) = &tls {
                        tls.reload().await;
                    }
                    blocking(other.clone(), |other| other.reload()).await;
                    if tls.is_none() && other.is_none() {
                        debug!("SIGHUP: there is no certificate to read again");
                    }
                    notify::reloaded();
                }
                _ = look.tick(), if tls.is_some() || other.is_some() => {
                    if let Some(tls) = &tls {
                        tls.renew_if_due().await;
                    }
                    blocking(other.clone(), |other| other.renew_if_due()).await;
                }
            }
        }
    }
}

/// A certificate beside that of HTTPS, for the watcher. Its methods block.
pub trait WatchedCertificate: Send + Sync + 'static {
    /// Reads files again, and logs the result.
    fn reload(&self);

    /// Renews the certificate if it is due, and logs a failure.
    fn renew_if_due(&self);
}

async fn blocking(other: Option<Arc<dyn WatchedCertificate>>, work: fn(&dyn WatchedCertificate)) {
    if let Some(other) = other
        && let Err(panic) = tasks::blocking(move || work(&*other)).await
    {
        error!("the certificate: {panic}");
    }
}

/// The certificate for new connections.
pub struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl CurrentCertificate {
    pub fn new(first: Arc<CertifiedKey>) -> Self {
        CurrentCertificate(RwLock::new(first))
    }

    /// Returns the certificate.
    pub fn get(&self) -> Arc<CertifiedKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the certificate; connections keep theirs.
    pub fn set(&self, next: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

impl fmt::Debug for CurrentCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentCertificate")
    }
}

impl ResolvesServerCert for CurrentCertificate {
    /// Returns one certificate for every name; the client checks whether it fits.
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }
}

impl CertificateSource {
    /// Returns the authority of the runner and its certificates.
    fn own(&self) -> Option<&AutoTls> {
        match self {
            CertificateSource::Auto(own) | CertificateSource::Acme { own, .. } => Some(own),
            CertificateSource::Files { .. } => None,
        }
    }
}

/// Opens the runner's own authority.
fn open_own(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<(Box<AutoTls>, Arc<CertifiedKey>), TlsError> {
    let (own, first) =
        AutoTls::open(settings, provider.clone(), &addresses(), unix_time_s()).map_err(TlsError::Make)?;
    Ok((Box::new(own), first))
}

fn server_config(
    provider: Arc<CryptoProvider>,
    current: Arc<CurrentCertificate>,
    source: &CertificateSource,
) -> Result<ServerConfig, TlsError> {
    let make = |error: rustls::Error| TlsError::Make(error.into());
    let mut protocols = vec![b"http/1.1".to_vec()];
    let resolver: Arc<dyn ResolvesServerCert> = match source {
        CertificateSource::Acme { acme, .. } => {
            protocols.push(VALIDATION_ALPN.to_vec());
            let acme = acme.clone();
            Arc::new(CertificateByName { own: current, acme })
        }
        _ => current,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(make)?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = protocols;
    // Session state is kept by clients, in encrypted tickets.
    config.ticketer = ring::Ticketer::new().map_err(make)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    Ok(config)
}

fn read_files(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertificatePair, TlsError> {
    let read = |path: &Path| {
        store::read_bounded(path).map_err(|source| TlsError::Read {
            path: path.to_owned(),
            source,
        })
    };
    let pair = CertificatePair::read(&read(certificate)?, &read(key)?, provider).map_err(|source| TlsError::File {
        path: if source.is_of_key() { key } else { certificate }.to_owned(),
        source,
    })?;
    Ok(pair)
}

/// Warns about a certificate that expires soon.
fn warn_of_expiry(pair: &CertificatePair, certificate: &Path) {
    let (validity, now_s) = (pair.certificate.validity, unix_time_s());
    if validity.until_s < now_s + CERTIFICATE_LEFT_MIN.as_secs() {
        warn!(
            "--tls: the certificate in {} has {} days left by the clock of this machine",
            certificate.display(),
            validity.days_left(now_s)
        );
    }
}

/// Returns the addresses of every interface.
pub fn addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_else(|error| {
        debug!("the network interfaces cannot be listed: {error}");
        Vec::new()
    });
    interfaces.into_iter().map(|interface| interface.ip()).collect()
}

fn unix_time_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs()
}
