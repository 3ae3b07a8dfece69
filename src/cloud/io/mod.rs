//! Drivers of the cloud service, and its client.
//!
//! [`run`] locks the data directory, checks the configuration, recovers the builds of the previous
//! run, and serves until a signal. It then stops accepting connections, gives uploads
//! [`UPLOADS_GRACE`] and stops commands; interrupted builds stay recorded for the next start. A
//! second signal ends it at once. A data directory in use and damaged files are errors that name
//! the path.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "sockets, tasks and the clock live here"
)]

pub mod app;
pub mod archives;
pub mod backend;
pub mod build_log;
pub mod build_service;
pub mod builder;
pub mod client;
pub mod dir;
pub mod disk;
pub mod embedded;
pub mod extract;
pub mod guard;
pub mod keys;
pub mod records;
pub mod reloading_file;
#[cfg(feature = "scale")]
pub mod scale;
pub mod sweep;
#[cfg(test)]
pub mod test_dir;
pub mod upload;
pub mod upload_locks;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use log::{error, info, warn};
use tokio::sync::watch;
use tokio::time::sleep;

use self::app::CloudApp;
use self::archives::ArchiveDir;
use self::backend::{BackendParts, ScaleDriver};
use self::build_service::BuildService;
use self::embedded::EmbeddedBackend;
use self::keys::{KeyStore, KeysError};
use self::records::SqliteRecords;
use self::reloading_file::ReloadingFile;
use self::sweep::Sweeper;
use self::upload::UploadService;
use self::upload_locks::UploadLocks;
use crate::ServeError;
use crate::config::CloudConfig;
use crate::limits::UPLOADS_GRACE;
use crate::proto::metrics::CloudMetrics;
use crate::proto::regions::Regions;
use crate::proto::sign::{GrantSigner, SigningKey};
use edge_runner_http::memory;
use edge_runner_http::server;
use edge_runner_http::services::{LostService, Services};
use edge_runner_http::shutdown::Shutdown;
use edge_runner_http::signal::Signals;
use edge_runner_http::store::{Store, StoreLock};
use edge_runner_http::tasks::{SlotPool, boxed};
use edge_runner_http::tls::{CertificateWatcher, ServerTls};
use edge_runner_http::watch::Watchdog;
use edge_runner_proto::config::{AcmeConfig, TlsSettings};
use edge_runner_proto::limits::RUNTIME_END;

/// Time for recording results after uploads and commands have ended.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// File name of the generated CA certificate, which clients are to trust.
const AUTHORITY: &str = "ca.crt";

/// The row of the feature `scale`; a build without it has none, and its command line rejects what
/// needs one.
pub const SCALE: &[ScaleDriver] = &[
    #[cfg(feature = "scale")]
    scale::DRIVER,
];

/// Runs the service until a signal. Calls `announce` once with the banner, when requests are
/// answered.
///
/// # Errors
/// [`ServeError`] when the service cannot start or loses an essential task.
pub async fn run(config: CloudConfig, announce: impl FnOnce(&str)) -> Result<(), ServeError> {
    let config = Arc::new(config);
    let mut signals = Signals::listen().map_err(ServeError::Signals)?;
    let keeper = CertificateWatcher::listen().map_err(ServeError::Signals)?;
    let regions = regions(&config)?;
    if let Some(command) = &config.command {
        builder::check_command(command, &config.path)?;
    }
    let _lock = take(&config.data_dir)?;
    clear(&config.data_dir);
    let (stop, shutdown) = Shutdown::channel();
    let metrics = Arc::new(CloudMetrics::default());
    let ((backend, tasks), first) = open(&config, regions, shutdown.clone(), &metrics).await?;
    let (tls, authority) = tls(&config)?;
    let listeners = server::bind(config.host, config.port).await.map_err(ServeError::Bind)?;
    let port = listeners.port();
    backend.recover().await?;
    let (watch, services) = (Watchdog::default(), Services::default());
    watch.start(None, &services).map_err(ServeError::Watch)?;
    let active = SlotPool::new(usize::MAX);
    services.spawn("the tidying of memory", memory::trim_when_idle(active.clone()));
    services.spawn(
        "the count of builds",
        hold_while_building(active.clone(), backend.busy()),
    );
    let app = Arc::new(CloudApp {
        config: config.clone(),
        backend,
        metrics,
        active,
        tls: tls.clone(),
    });
    let mut server = services.spawn(
        "the HTTP server",
        server::serve(listeners, app.clone(), shutdown.clone()),
    );
    services.spawn("the keeper of the certificate", keeper.run(tls.clone(), None, shutdown));
    for (name, task) in tasks {
        services.spawn(name, task);
    }
    info!("listening on {}", config.host.url(port));
    announce(&banner(&config, port, first.as_deref(), authority.as_deref()));
    if let Some(tls) = &tls {
        tls.log_authority();
    }
    watch.ready();

    let lost = stop_reason(&mut signals, &services).await;
    let within = UPLOADS_GRACE.max(config.build_grace) + STOP_MARGIN;
    let supervisor_notified = watch.stopping(within + RUNTIME_END);
    stop.set();
    let ended = async {
        // An error here is a panic that the server has logged.
        let _ = (&mut server).await;
        app.backend.ended().await;
        supervisor_notified.await;
    };
    wait(ended, within, &mut signals).await?;
    lost.map_or(Ok(()), |lost| Err(ServeError::Service(lost)))
}

/// Opens what keeps records and archives. Returns also the file of the first keys, if they were
/// made.
async fn open(
    config: &Arc<CloudConfig>,
    regions: Option<ReloadingFile<Regions>>,
    stop: Shutdown,
    metrics: &Arc<CloudMetrics>,
) -> Result<(BackendParts, Option<PathBuf>), ServeError> {
    match (SCALE.first(), &config.shared) {
        (Some(driver), Some(shared)) => Ok(((driver.start)(config, shared, stop, metrics).await?, None)),
        _ => open_embedded(config, regions, stop, metrics),
    }
}

/// Opens the data directory of a service on one machine.
fn open_embedded(
    config: &Arc<CloudConfig>,
    regions: Option<ReloadingFile<Regions>>,
    stop: Shutdown,
    metrics: &Arc<CloudMetrics>,
) -> Result<(BackendParts, Option<PathBuf>), ServeError> {
    let keys = Arc::new(KeyStore::new(&config.data_dir, config.keys.clone()));
    let first = keys.create_first_keys(&config.data_dir, &config.org)?;
    let signing = signing(config)?;
    let records = SqliteRecords::open(&config.data_dir)?;
    let (records, upload_locks) = (Arc::new(records), Arc::new(UploadLocks::default()));
    let archives = Arc::new(ArchiveDir::open(&config.data_dir).map_err(data_dir_error(&config.data_dir))?);
    let builds = BuildService::new(
        config,
        records.clone(),
        archives.clone(),
        upload_locks.clone(),
        stop.clone(),
        metrics.clone(),
    );
    let sweep = Sweeper::new(
        config,
        records.clone(),
        archives.clone(),
        upload_locks.clone(),
        metrics.clone(),
    );
    let uploads = UploadService::new(config, signing, archives, records.clone(), upload_locks, keys.clone());
    let backend = EmbeddedBackend {
        keys,
        regions,
        uploads: Arc::new(uploads),
        builds,
        records,
        has_builds: config.command.is_some(),
    };
    let tasks = vec![("the sweep of the data directory", boxed(sweep.run(stop)))];
    Ok(((Box::new(backend), tasks), first))
}

/// Waits for a stop signal or the loss of an essential task, which is returned.
async fn stop_reason(signals: &mut Signals, services: &Services) -> Option<LostService> {
    tokio::select! {
        name = signals.next() => {
            info!("{name}: stopping");
            None
        }
        lost = services.lost() => {
            error!("{lost}: stopping");
            Some(lost)
        }
    }
}

/// Waits for a limited time until everything has ended. A further signal is an error.
async fn wait(ended: impl Future<Output = ()>, within: Duration, signals: &mut Signals) -> Result<(), ServeError> {
    tokio::select! {
        () = ended => {}
        () = sleep(within) => warn!("not everything ended within {} s", within.as_secs()),
        _ = signals.next() => return Err(ServeError::Forced),
    }
    Ok(())
}

/// Holds a slot while builds run, and for a moment for those that have ended meanwhile; never
/// returns.
async fn hold_while_building(active: SlotPool, mut busy: watch::Receiver<usize>) {
    let mut slot = None;
    while busy.changed().await.is_ok() {
        slot = slot.or_else(|| active.try_acquire());
        if *busy.borrow_and_update() == 0 {
            slot = None;
        }
    }
    // This replica has no worker, or its worker has ended.
    drop(slot);
    std::future::pending().await
}

fn data_dir_error(path: &Path) -> impl FnOnce(io::Error) -> ServeError {
    move |source| ServeError::DataDir {
        path: path.to_owned(),
        source,
    }
}

/// Locks the data directory for this process.
fn take(folder: &Path) -> Result<StoreLock, ServeError> {
    let store = Store::open(folder).map_err(data_dir_error(folder))?;
    // A directory that existed before may be open to others.
    fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(data_dir_error(folder))?;
    let lock = store.try_lock().map_err(data_dir_error(folder))?;
    lock.ok_or_else(|| ServeError::DataDirInUse(folder.to_owned()))
}

/// Waits for the guard of the previous run, kills leftover commands and removes their folders. A
/// run never reuses an existing folder, so that leftovers cannot block it.
fn clear(data_dir: &Path) {
    let guard = Store::open(data_dir).and_then(|store| store.lock_named(guard::LOCK));
    if let Err(error) = guard {
        // Without locks, or if the guard does not end, the cleanup goes on.
        warn!("{}: {error}", data_dir.join(guard::LOCK).display());
    }
    let left = guard::kill_leftovers(data_dir);
    if left > 0 {
        warn!("{left} processes of builder commands were left by an earlier run, and are killed");
    }
    let scratch = guard::scratch_dir(data_dir);
    if let Err(error) = dir::clear(&scratch) {
        warn!(
            "{}: not everything can be removed: {error}; it stays, and takes space until it is removed by hand",
            scratch.display()
        );
    }
}

/// Opens and checks the file of regions.
fn regions(config: &CloudConfig) -> Result<Option<ReloadingFile<Regions>>, ServeError> {
    let Some(path) = &config.regions else {
        return Ok(None);
    };
    let regions = ReloadingFile::new(path.clone(), |text| match text {
        Some(text) => Ok(Regions::parse(text)?),
        None => Err("there is no such file".into()),
    });
    match regions.load() {
        Ok(_) => Ok(Some(regions)),
        Err(error) => Err(ServeError::Regions(error)),
    }
}

fn signing(config: &CloudConfig) -> Result<GrantSigner, KeysError> {
    match &config.store_key {
        Some(key) => Ok(GrantSigner::Fixed(SigningKey {
            id: key.id.clone(),
            secret: key.secret.expose().to_vec(),
        })),
        None => keys::store_secret(&config.data_dir).map(GrantSigner::ByDay),
    }
}

/// Sets up HTTPS and writes the CA certificate to a known path.
fn tls(config: &CloudConfig) -> Result<(Option<Arc<ServerTls>>, Option<PathBuf>), ServeError> {
    let folder = config.data_dir.join("tls");
    let authority = folder.join(AUTHORITY);
    let tls = ServerTls::open(&TlsSettings {
        tls: config.tls.clone(),
        acme: AcmeConfig::default(),
        host_names: config.host_names.clone(),
        state_dir: Some(folder.clone()),
        ca_url: authority.display().to_string(),
    });
    let tls = tls.map_err(ServeError::Tls)?;
    let Some(pem) = tls.as_ref().and_then(|tls| tls.authority()) else {
        return Ok((tls, None));
    };
    // The service can run without this copy, for example on a full disk.
    let is_there = fs::read(&authority).is_ok_and(|known| known == pem);
    let written = Store::open(&folder).and_then(|store| if is_there { Ok(()) } else { store.write(AUTHORITY, &pem) });
    if let Err(error) = written {
        warn!(
            "{}: {error}; clients find no certificate to trust there",
            authority.display()
        );
    }
    Ok((tls, Some(authority)))
}

/// Formats the banner for stdout. It contains no key.
fn banner(config: &CloudConfig, port: u16, first: Option<&Path>, authority: Option<&Path>) -> String {
    let mut text = format!(
        "edge-runner cloud {}\nlistening on {}\n\n",
        env!("CARGO_PKG_VERSION"),
        config.host.url(port)
    );
    let mut row = |name: &str, what: String| text.push_str(&format!("  {name:<11}{what}\n"));
    row("Data", config.data_dir.display().to_string());
    if let Some(first) = first {
        row(
            "Keys",
            format!("the first two were made, and are in {}", first.display()),
        );
    }
    if let Some(url) = &config.public_url {
        row("Clients", format!("see {url}"));
    }
    if let Some(authority) = authority {
        row(
            "Trust",
            format!("HTTPS with the certificate authority in {}", authority.display()),
        );
    }
    match config.command.as_ref().and_then(|command| command.first()) {
        // The arguments may contain secrets.
        Some(program) => row("Builder", program.to_string_lossy().into_owned()),
        None => row("Builder", "none, so no region has builds; name one behind `--`".into()),
    }
    text
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    /// Builds hold one slot, and each end of the last releases it, also of one that was too short
    /// to be seen.
    #[tokio::test]
    async fn builds_hold_a_slot() {
        let (active, busy) = (SlotPool::new(usize::MAX), watch::Sender::new(0));
        let steps = async {
            for (running, held) in [(1, 1), (2, 1), (1, 1), (0, 0)] {
                busy.send_replace(running);
                yield_now().await;
                yield_now().await;
                assert_eq!(active.count(), held, "{running} builds");
            }
            let released = active.released();
            busy.send_replace(1);
            busy.send_replace(0);
            released.await;
        };
        tokio::select! {
            () = hold_while_building(active.clone(), busy.subscribe()) => {}
            () = steps => {}
        }
    }
}
