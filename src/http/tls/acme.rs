//! The certificate of `--tls acme`: ordered from an ACME directory, kept in the state folder.
//!
//! In: the configuration and the clock. Out: a [`CertifiedKey`] for each client that asks for a
//! public name, and answers to the validations of the directory, which arrive as TLS connections on
//! the port of HTTPS (RFC 8737). `proto::server::acme` decides when an order is due and how long to
//! wait after a failure; the module `order` performs it. A new certificate applies to new
//! connections; calls keep theirs. No failure stops the runner, and every failure is logged once.

mod http;
mod order;
#[cfg(any(test, feature = "testing"))]
pub mod scripted;
mod state;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use log::{debug, info, warn};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

pub use self::state::file_names;
use self::state::{AccountState, StateFiles};
use super::CurrentCertificate;
use super::auto::BoxError;
use super::pair::CertificatePair;
use crate::client;
use crate::common::{self, lock, unix_time_s};
use crate::store::{self, Store};
use crate::tasks;
use edge_runner_proto::config::{AcmeConfig, TlsSettings};
use edge_runner_proto::limits::ACME_ORDER_WITHIN;
use edge_runner_proto::server::acme::{OrderClock, OrderFailure, VALIDATION_PORT, covers, is_for};
use edge_runner_proto::server::tls::parsed::Certificate;

/// Longest sleep before the clock is read again, which may have been set meanwhile.
const ACME_LOOK_AGAIN: Duration = Duration::from_secs(600);

/// The protocol of a validation (RFC 8737 section 6.2).
pub const VALIDATION_ALPN: &[u8] = b"acme-tls/1";

/// The certificate for public names, and its orders.
pub struct AcmeTls {
    config: AcmeConfig,
    provider: Arc<CryptoProvider>,
    files: StateFiles,
    /// The connector for `--acme-root`; `None` trusts the system's authorities.
    trust: Option<TlsConnector>,
    current: RwLock<Option<Arc<CertificatePair>>>,
    /// Certificates that answer validations in progress, by name.
    validations: Mutex<HashMap<String, Arc<CertifiedKey>>>,
    clock: Mutex<OrderClock>,
    account: Mutex<AccountState>,
    /// SIGHUP.
    wake: Notify,
    /// The port of HTTPS, for advice; 0 until the runner listens.
    port: AtomicU16,
}

impl AcmeTls {
    /// Reads the stored state. Blocks.
    ///
    /// # Errors
    /// Returns an error when the folder or the file of `--acme-root` cannot be used: without a
    /// folder every start would order another certificate, which directories limit.
    pub fn open(settings: &TlsSettings, provider: Arc<CryptoProvider>) -> Result<AcmeTls, BoxError> {
        let config = settings.acme.clone();
        let folder = settings
            .state_dir
            .as_ref()
            .ok_or("no folder is known; see --state-dir")?;
        let at = |error| format!("{}: {error}; see --state-dir", folder.display());
        let files = StateFiles::new(Store::open(folder).map_err(at)?, &config.directory);
        let trust = config.root.as_ref().map(|path| {
            let text = store::read_bounded(path).map_err(|error| error.to_string());
            text.and_then(|text| authorities(&text))
                .map_err(|why| format!("--acme-root {}: {why}", path.display()))
        });
        let trust = trust.transpose()?.map(client::connector);
        let account = files.read_account(unix_time_s());
        // Shows now that the folder can be written, and not after an order.
        files.write_account(&account).map_err(at)?;
        let current = files.read_certificate(&provider);
        let acme = AcmeTls {
            clock: Mutex::new(OrderClock::new(u16::from_be_bytes(common::random()), account.failures)),
            config,
            provider,
            files,
            trust,
            current: RwLock::new(current.map(Arc::new)),
            validations: Mutex::default(),
            account: Mutex::new(account),
            wake: Notify::new(),
            port: AtomicU16::new(0),
        };
        acme.log_start();
        Ok(acme)
    }

    fn log_start(&self) {
        let (names, directory) = (self.config.names.join(", "), &self.config.directory);
        info!("HTTPS for {names} with a certificate of {directory}, whose terms of service `--tls acme` accepts");
        match self.current() {
            Some(pair) if covers(&pair.certificate, &self.config.names) => {
                info!(
                    "the stored certificate of {names} is {}",
                    self.validity(&pair.certificate)
                );
            }
            Some(_) => info!("the stored certificate lacks one of these names, so another is ordered"),
            None => info!(
                "there is no certificate for {names} yet: until there is, browsers get the runner's own certificate, and warn \
                 about it"
            ),
        }
    }

    fn validity(&self, certificate: &Certificate) -> String {
        let now_s = unix_time_s();
        let renewal_s = lock(&self.clock).renewal_s(certificate.validity).saturating_sub(now_s);
        let left_s = certificate.validity.until_s.saturating_sub(now_s);
        format!(
            "valid for {}, and renewed in {}",
            span(Duration::from_secs(left_s)),
            span(Duration::from_secs(renewal_s))
        )
    }

    /// Sets the port that the log names.
    pub fn set_port(&self, port: u16) {
        self.port.store(port, Ordering::Relaxed);
    }

    /// Returns the certificate of the names.
    pub fn current(&self) -> Option<Arc<CertificatePair>> {
        self.current
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone()
    }

    fn set_current(&self, pair: CertificatePair) {
        *self.current.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(Arc::new(pair));
    }

    /// Reads the stored certificate again, and ends the pause after a failure.
    pub fn retry(&self) {
        self.wake.notify_one();
    }

    /// Orders certificates when they are due. Never returns.
    pub async fn run(self: Arc<Self>) {
        loop {
            let now_s = unix_time_s();
            let next_s = self.next_order_s(now_s);
            if next_s <= now_s {
                self.order().await;
                continue;
            }
            let sleep = Duration::from_secs(next_s - now_s).min(ACME_LOOK_AGAIN);
            tokio::select! {
                () = tokio::time::sleep(sleep) => {}
                () = self.wake.notified() => self.handle_wake().await,
            }
        }
    }

    fn next_order_s(&self, now_s: u64) -> u64 {
        let kept = self.current();
        let kept = kept.as_ref().map(|pair| &pair.certificate);
        lock(&self.clock).poll_timeout(kept, &self.config.names, now_s)
    }

    async fn handle_wake(self: &Arc<Self>) {
        self.blocking(|acme| acme.find()).await;
        if let Some(until_s) = lock(&self.clock).handle_retry(unix_time_s()) {
            let pause = span(Duration::from_secs(until_s.saturating_sub(unix_time_s())));
            info!("SIGHUP: the directory asked for no order in the next {pause}");
        }
    }

    /// Takes over a stored certificate that another runner, or the operator, has put there.
    fn find(&self) {
        let Some(found) = self.files.read_certificate(&self.provider) else {
            return;
        };
        let is_newer =
            |pair: Arc<CertificatePair>| found.certificate.validity.from_s > pair.certificate.validity.from_s;
        if self.current().is_none_or(is_newer) {
            info!("the certificate of {} was read again", self.config.names.join(", "));
            self.set_current(found);
        }
    }

    /// Orders a certificate once, and notes and logs the result.
    async fn order(self: &Arc<Self>) {
        let names = self.config.names.join(", ");
        let locked = self.blocking(|acme| {
            let locked = acme.files.lock();
            acme.find();
            locked
        });
        let locked = match locked.await {
            Some(Ok(locked)) => locked,
            failed => {
                debug!("another runner orders: {failed:?}");
                self.fail(&OrderFailure::unreachable(
                    "another runner on this state folder orders one, or the folder cannot be locked",
                ))
                .await;
                return;
            }
        };
        let now_s = unix_time_s();
        if self.next_order_s(now_s) > now_s {
            return;
        }
        info!("ordering a certificate for {names}");
        let ordered = self.bounded(|acme| async move { order::perform(&acme).await }).await;
        lock(&self.validations).clear();
        match ordered {
            Ok(text) => self.accept(text).await,
            Err(failure) => self.fail(&failure).await,
        }
        drop(locked);
    }

    /// Runs an order as a task: a library that panics at an answer of the directory must not end
    /// the runner. Ends it when its time is over.
    async fn bounded<F>(self: &Arc<Self>, order: impl FnOnce(Arc<Self>) -> F) -> Result<String, OrderFailure>
    where
        F: Future<Output = Result<String, OrderFailure>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        tasks.spawn(order(self.clone()));
        match tokio::time::timeout(ACME_ORDER_WITHIN, tasks.join_next()).await {
            Ok(Some(Ok(ordered))) => ordered,
            Ok(_) => Err(OrderFailure::unreachable(
                "an answer of the directory stopped the order; choose another directory with --acme-directory",
            )),
            Err(_) => Err(OrderFailure::unreachable(format!(
                "the directory did not finish the order within {} s",
                ACME_ORDER_WITHIN.as_secs()
            ))),
        }
    }

    /// Stores and serves a new certificate.
    async fn accept(self: &Arc<Self>, text: String) {
        let accepted = self.blocking(move |acme| {
            let pair = CertificatePair::read(text.as_bytes(), text.as_bytes(), &acme.provider);
            let pair = pair.map_err(|why| OrderFailure::refused(format!("the directory sent no usable certificate: {why}")))?;
            if !covers(&pair.certificate, &acme.config.names) || pair.certificate.validity.until_s <= unix_time_s() {
                let text = "the directory sent a certificate for other names or for another time; is the clock of this machine \
                            right?";
                return Err(OrderFailure::refused(text.into()));
            }
            if let Err(error) = acme.files.write_certificate(text.as_bytes()) {
                warn!("the certificate cannot be kept, so the next start orders another: {error}; see --state-dir");
            }
            if let Some(pause) = lock(&acme.clock).handle_success(pair.certificate.validity, unix_time_s()) {
                warn!(
                    "the new certificate is due for renewal already: is the clock of this machine right? Next order in {}, or \
                     at once after SIGHUP",
                    span(pause)
                );
            }
            let mut account = lock(&acme.account);
            account.failures = lock(&acme.clock).failures();
            acme.files.keep_account(&account);
            Ok(pair)
        });
        match accepted.await {
            Some(Ok(pair)) => {
                let names = self.config.names.join(", ");
                info!(
                    "the certificate of {names} is there, {}",
                    self.validity(&pair.certificate)
                );
                self.set_current(pair);
            }
            Some(Err(failure)) => self.fail(&failure).await,
            None => {
                self.fail(&OrderFailure::unreachable("the certificate could not be read"))
                    .await
            }
        }
    }

    /// Logs a failed order, and stores the pause after it.
    async fn fail(self: &Arc<Self>, failure: &OrderFailure) {
        let (pause, failures) = {
            let mut clock = lock(&self.clock);
            (clock.handle_failure(failure, unix_time_s()), clock.failures())
        };
        let names = self.config.names.join(", ");
        let now_s = unix_time_s();
        let served = match self.current() {
            Some(pair) if pair.certificate.validity.until_s <= now_s => "the last one has expired".to_owned(),
            Some(pair) => format!(
                "the last one is valid for {} more days",
                pair.certificate.validity.days_left(now_s)
            ),
            None => "there is none yet, so browsers warn".to_owned(),
        };
        let sooner = if failures.asked_by_directory {
            ", as the directory asks"
        } else {
            ", or at once after SIGHUP"
        };
        warn!(
            "no new certificate for {names}: {failure}. Next order in {}{sooner}; {served}",
            span(pause)
        );
        self.blocking(move |acme| {
            let mut account = lock(&acme.account);
            account.failures = failures;
            acme.files.keep_account(&account);
        })
        .await;
    }

    /// Runs work that reads or writes files; `None` if it panicked.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&AcmeTls) -> T + Send + 'static,
    ) -> Option<T> {
        let acme = self.clone();
        let done = tasks::blocking(move || work(&acme)).await;
        done.inspect_err(|panic| warn!("the certificate: {panic}")).ok()
    }

    fn port_or_default(&self) -> u16 {
        match self.port.load(Ordering::Relaxed) {
            0 => VALIDATION_PORT,
            port => port,
        }
    }
}

/// Chooses the certificate of a connection.
pub struct CertificateByName {
    /// The runner's own, for other names and for addresses.
    pub own: Arc<CurrentCertificate>,
    pub acme: Arc<AcmeTls>,
}

impl ResolvesServerCert for CertificateByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().unwrap_or_default();
        let mut protocols = hello.alpn().into_iter().flatten();
        if protocols.any(|protocol| protocol == VALIDATION_ALPN) {
            // Nothing but a validation in progress gets an answer.
            return lock(&self.acme.validations).get(name).cloned();
        }
        match self.acme.current() {
            Some(pair) if is_for(&pair.certificate, name) => Some(pair.key.clone()),
            _ => Some(self.own.get()),
        }
    }
}

impl fmt::Debug for CertificateByName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateByName")
    }
}

/// Reads the authorities of `--acme-root`.
fn authorities(text: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(text) {
        let der = der.map_err(|_| "it is not PEM")?;
        roots.add(der).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() {
        return Err("there is no certificate in it, in PEM form (-----BEGIN CERTIFICATE-----)".into());
    }
    Ok(roots)
}

/// Returns a duration as people say it.
fn span(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
