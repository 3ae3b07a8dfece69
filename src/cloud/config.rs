//! Checked configuration of `edge-runner cloud`.
//!
//! Plain values, as in [`edge_runner_proto::config`]: a value that exists is valid. Sizes are in
//! bytes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::proto::build::{Org, Slug};
use crate::proto::keys::{EnvKey, KeyKind};
use crate::proto::scale::{database_url::DatabaseUrl, sigv4::StoreCredentials, store_url::StoreUrl};
use edge_runner_proto::config::{Host, MetricsAccess, Secret, SecretBytes, Tls};

/// Configuration of `edge-runner cloud serve`.
#[derive(Clone, Debug)]
pub struct CloudConfig {
    /// Holds archives, records, logs, images and keys.
    pub data_dir: PathBuf,
    pub host: Host,
    /// 0 picks a free port.
    pub port: u16,
    pub tls: Tls,
    /// Names of this machine, for the certificate of `--tls auto`.
    pub host_names: Vec<String>,
    /// Scheme and host that clients see, without a trailing slash. `None`: taken from the request.
    pub public_url: Option<String>,
    /// Clients that may read `/metrics`; never [`MetricsAccess::Any`].
    pub metrics: MetricsAccess,
    /// The file of regions. `None`: the single region `local`.
    pub regions: Option<PathBuf>,
    /// Organization of keys that name none.
    pub org: Org,
    pub grant_ttl: Duration,
    /// Largest `file` part of an upload.
    pub context_max: u64,
    pub unpacked_max: u64,
    pub entries_max: u64,
    pub uploads_max: usize,
    /// Builder commands that run at once.
    pub builds_max: usize,
    /// Builds of one organization that may wait.
    pub pending_max: usize,
    pub build_timeout: Duration,
    pub build_grace: Duration,
    /// Runs of one build.
    pub attempts_max: u32,
    /// Variables of the service that are passed to commands, with their values.
    pub builder_env: Vec<(OsString, OsString)>,
    /// Time an archive is kept after its build ended. `None`: forever.
    pub keep_archives: Option<Duration>,
    /// Time a build's record, log and image are kept. `None`: forever.
    pub keep_builds: Option<Duration>,
    /// Free space below which no grant is issued.
    pub free_min: u64,
    /// The builder command. `None`: no region has builds.
    pub command: Option<Vec<OsString>>,
    /// Keys from environment variables.
    pub keys: Vec<EnvKey>,
    /// The key pair that signs grants. `None`: derived from `store.secret` in the data directory.
    pub store_key: Option<StoreKey>,
    /// Several machines: what they share. `None`: everything is in `data_dir`.
    pub shared: Option<Box<SharedConfig>>,
    /// `PATH` and `LANG` of the service, passed to commands.
    pub path: OsString,
    pub lang: Option<OsString>,
    /// Number of `-v` options.
    pub verbosity: u8,
}

/// What the replicas of a service share, and the part of this one.
#[derive(Clone, Debug)]
pub struct SharedConfig {
    pub database: DatabaseUrl,
    pub store: StoreUrl,
    pub credentials: StoreKeys,
    pub role: Role,
    /// How long a build belongs to a worker that does not renew it.
    pub lease: Duration,
}

/// The credentials of the store.
#[derive(Clone, Debug)]
pub struct StoreKeys {
    pub at_start: StoreCredentials,
    /// The file that they are from, which may change.
    pub file: Option<PathBuf>,
}

/// What a replica does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It answers the API.
    Api,
    /// It runs builds.
    Worker,
    All,
}

impl Role {
    /// Returns its name, as `--role` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Api => "api",
            Role::Worker => "worker",
            Role::All => "all",
        }
    }
}

/// A command on what replicas share.
#[derive(Clone, Debug)]
pub enum SharedTask {
    Migrate(MigrateConfig),
    Import(Box<TransferConfig>),
    Export(Box<TransferConfig>),
    /// `edge-runner cloud keys` for the keys of a database.
    Keys(DatabaseUrl, KeysTask),
}

/// Configuration of `edge-runner cloud migrate`.
#[derive(Clone, Debug)]
pub struct MigrateConfig {
    pub database: DatabaseUrl,
    /// The file of regions to set.
    pub regions: Option<PathBuf>,
}

/// Configuration of `edge-runner cloud import` and `edge-runner cloud export`.
#[derive(Clone, Debug)]
pub struct TransferConfig {
    pub data_dir: PathBuf,
    pub database: DatabaseUrl,
    pub store: StoreUrl,
    pub credentials: StoreKeys,
}

/// An id and a secret that sign grants.
#[derive(Clone, Debug)]
pub struct StoreKey {
    pub id: String,
    pub secret: SecretBytes,
}

/// Configuration of `edge-runner cloud keys` for the keys of a data directory.
#[derive(Clone, Debug)]
pub struct KeysConfig {
    pub data_dir: PathBuf,
    pub task: KeysTask,
    pub verbosity: u8,
}

/// A subcommand of `cloud keys`.
#[derive(Clone, Debug)]
pub enum KeysTask {
    /// Create a key and print it.
    Create {
        kind: KeyKind,
        org: Org,
        name: Option<String>,
    },
    List {
        json: bool,
    },
    /// Revoke the key with this id.
    Revoke(String),
}

/// Configuration of the client's subcommands.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Base URL of the API, including the version, without a trailing slash.
    pub base: String,
    pub key: Secret,
    /// Print the service's answer as JSON.
    pub json: bool,
    pub task: ClientTask,
    pub verbosity: u8,
}

/// A subcommand of the client.
#[derive(Clone, Debug)]
pub enum ClientTask {
    Regions,
    Build(Box<BuildTask>),
    /// Show the build with this id.
    Status(String),
    Logs {
        id: String,
        /// Largest number of lines. `None`: all.
        limit: Option<u32>,
    },
}

/// A folder to pack and build.
#[derive(Clone, Debug)]
pub struct BuildTask {
    pub dir: PathBuf,
    /// `None`: the organization's default region.
    pub region: Option<Slug>,
    /// The build file, relative to `dir`.
    pub file: String,
    /// Exclusion patterns in addition to the built-in ones.
    pub exclude: Vec<String>,
    /// Whether links to files outside `dir` are packed as those files. They are refused otherwise.
    pub follow_links: bool,
    /// `None`: return at once.
    pub wait: Option<WaitOptions>,
}

/// How to wait for a build.
#[derive(Clone, Copy, Debug)]
pub struct WaitOptions {
    /// Interval between polls.
    pub poll: Duration,
    /// Total time to wait.
    pub timeout: Duration,
}
