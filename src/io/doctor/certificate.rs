//! Checks the certificate of `--tls`: its files, or the state folder of `--tls auto`.
//!
//! In: the configuration. Out: findings, judged by `proto::doctor`. No certificate is made. The
//! state folder is tested by writing a file and removing it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tokio_rustls::rustls::crypto::ring;

use edge_runner_http::common::unix_time_s;

use crate::config::{Config, Tls};
use crate::features::Feature;
use crate::io::module::{DoctorCheck, Module, blocking};
use crate::io::store::read_bounded;
use crate::io::tls::auto::SERVER;
use crate::io::tls::pair::CertificatePair;
use crate::proto::doctor::Finding;
use crate::proto::doctor::certificate::{WHAT, none, of_files, of_runner};
use crate::proto::server::tls::certificate_names;

cfg_if::cfg_if! {
    if #[cfg(feature = "acme")] {
        use crate::io::tls::acme::file_names;
        use crate::proto::server::acme::doctor::of_directory;

        /// Checks the stored certificate of `--tls acme`. The runner orders a missing one.
        const OF_DIRECTORY: Option<fn(&Config) -> Finding> = Some(|config| {
            let (_, certificate) = file_names(&config.acme.directory);
            let folder = config.state_dir.as_deref();
            let text = folder.and_then(|folder| read_bounded(&folder.join(certificate)).ok());
            let kept = text.and_then(|text| CertificatePair::read(&text, &text, &ring::default_provider()).ok());
            of_directory(kept.as_ref().map(|pair| &pair.certificate), &config.acme, unix_time_s())
        });
    } else {
        /// A build without ACME has no such certificate.
        const OF_DIRECTORY: Option<fn(&Config) -> Finding> = None;
    }
}

/// HTTPS.
pub const MODULE: Option<&Module> = Some(&Module::new(Feature::Tls).with_checks(&[DoctorCheck {
    what: "https",
    examine: |config| Box::pin(blocking(config, examine)),
}]));

/// Checks everything that HTTPS needs.
pub fn examine(config: &Config) -> Vec<Finding> {
    match &config.tls {
        Tls::Off => vec![none(config)],
        Tls::Files { certificate, key } => vec![files(certificate, key, config)],
        Tls::Auto => {
            let state = state(config.state_dir.as_deref());
            [state, Some(own(config))].into_iter().flatten().collect()
        }
        Tls::Acme => {
            let state = state(config.state_dir.as_deref());
            let found = [state, Some(own(config))].into_iter().flatten();
            found.chain(OF_DIRECTORY.map(|examine| examine(config))).collect()
        }
    }
}

fn files(certificate: &Path, key: &Path, config: &Config) -> Finding {
    let read = |path: &Path| {
        read_bounded(path).map_err(|error| Finding::error(WHAT, format!("reading {}: {error}", path.display())))
    };
    let texts = read(certificate).and_then(|certificate| Ok((certificate, read(key)?)));
    let (of_certificate, of_key) = match texts {
        Ok(texts) => texts,
        Err(finding) => return finding,
    };
    match CertificatePair::read(&of_certificate, &of_key, &ring::default_provider()) {
        Ok(pair) => of_files(&pair.certificate, config, unix_time_s()),
        Err(wrong) => {
            let path = if wrong.is_of_key() { key } else { certificate };
            Finding::error(WHAT, format!("{}: {wrong}", path.display()))
        }
    }
}

/// Checks the stored certificate. The runner replaces one that it cannot read.
fn own(config: &Config) -> Finding {
    let text = config
        .state_dir
        .as_deref()
        .and_then(|folder| read_bounded(&folder.join(SERVER)).ok());
    let kept = text.and_then(|text| CertificatePair::read(&text, &text, &ring::default_provider()).ok());
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let addresses: Vec<_> = interfaces.into_iter().map(|interface| interface.ip()).collect();
    let names = certificate_names(&config.host_names, &addresses);
    of_runner(kept.as_ref().map(|pair| &pair.certificate), &names, unix_time_s())
}

/// Checks the state folder of `--tls auto`.
fn state(folder: Option<&Path>) -> Option<Finding> {
    const WHAT: &str = "state";
    let Some(folder) = folder else {
        return Some(Finding::warning(
            WHAT,
            "no folder for the certificate: every start creates a new one, which devices do not trust; set --state-dir",
        ));
    };
    let shown = folder.display();
    if !folder.exists() {
        // The runner creates the folder, so its nearest existing parent has to be writable.
        let parent = folder.ancestors().find(|parent| parent.exists())?;
        return Some(match write(parent) {
            Ok(()) => Finding::ok(WHAT, format!("{shown} will be created")),
            Err(error) => Finding::error(
                WHAT,
                format!("{shown} cannot be created: {error}; set another with --state-dir"),
            ),
        });
    }
    if let Err(error) = write(folder) {
        let text = format!("{shown} is not writable: {error}; set another with --state-dir");
        return Some(Finding::error(WHAT, text));
    }
    let mode = fs::metadata(folder).map_or(0, |found| found.permissions().mode());
    Some(if mode & 0o022 != 0 {
        let text = format!("other users can write to {shown}, which contains keys: run `chmod 700 {shown}`");
        Finding::warning(WHAT, text)
    } else {
        Finding::ok(WHAT, format!("{shown} is writable"))
    })
}

/// Writes a file and removes it, which also detects full and read-only disks.
fn write(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".edge-runner-doctor-{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, b"x"));
    if fs::remove_file(&path).is_ok() || written.is_err() {
        return written;
    }
    Err(io::Error::other("a written file cannot be removed"))
}
