//! The settings of HTTPS, in every build.

use std::path::PathBuf;

/// Source of the HTTPS certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// No HTTPS.
    #[default]
    Off,
    /// Issued by the runner and stored in [`TlsSettings::state_dir`].
    Auto,
    /// For public names, issued by the directory of [`AcmeConfig`] and stored in
    /// [`TlsSettings::state_dir`]. Other names and addresses get the certificate of [`Tls::Auto`].
    Acme,
    /// PEM files, read again on SIGHUP.
    Files {
        /// Path of the certificate and its chain.
        certificate: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
}

/// Settings of `--tls acme` (RFC 8555).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcmeConfig {
    /// Public host names of the certificate, in lower case.
    pub names: Vec<String>,
    /// Contact address of the account.
    pub email: Option<String>,
    /// URL of the directory.
    pub directory: String,
    /// PEM file of the authorities to trust for the directory in place of those of the system.
    pub root: Option<PathBuf>,
}

/// Settings of HTTPS.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// Source of the certificate.
    pub tls: Tls,
    /// Settings of [`Tls::Acme`].
    pub acme: AcmeConfig,
    /// Host names of the certificate, beside the addresses of the machine.
    pub host_names: Vec<String>,
    /// Folder of an issued certificate; `None` if no folder is known.
    pub state_dir: Option<PathBuf>,
    /// Where people find the certificate of the authority, as text.
    pub ca_url: String,
}
