//! What the options of `edge-runner cloud` mean once they are checked.
//!
//! Values only, as in [`edge_runner_proto::config`]: one that exists is valid. Sizes are bytes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::proto::build::{Org, Slug};
use crate::proto::keys::{EnvKey, KeyKind};
use edge_runner_proto::config::{Host, Secret, SecretBytes, Tls};

/// What `edge-runner cloud serve` is to do.
#[derive(Clone, Debug)]
pub struct CloudConfig {
    /// All that is kept.
    pub data_dir: PathBuf,
    pub host: Host,
    /// 0: any free one.
    pub port: u16,
    pub tls: Tls,
    /// This machine's own names, for the certificate of `--tls auto`.
    pub host_names: Vec<String>,
    /// Scheme and host that clients see, without a slash at its end; nothing: the request's.
    pub public_url: Option<String>,
    /// The file of regions; nothing: one region `local`.
    pub regions: Option<PathBuf>,
    /// The organization of keys that name none.
    pub org: Org,
    pub grant_ttl: Duration,
    /// Of the `file` part of an upload.
    pub context_max: u64,
    pub unpacked_max: u64,
    pub entries_max: u64,
    pub uploads_max: usize,
    /// Commands at once.
    pub builds_max: usize,
    /// Builds of one organization that wait.
    pub pending_max: usize,
    pub build_timeout: Duration,
    pub build_grace: Duration,
    /// Runs of one build.
    pub attempts_max: u32,
    /// Variables of the service that commands get, with their values.
    pub builder_env: Vec<(OsString, OsString)>,
    /// How long an archive is kept after its build ended; nothing: for ever.
    pub keep_archives: Option<Duration>,
    /// The same of a build's record, log and image.
    pub keep_builds: Option<Duration>,
    /// Free space below which no grant is issued.
    pub free_min: u64,
    /// The builder command; nothing: no region has builds.
    pub command: Option<Vec<OsString>>,
    /// Keys from variables.
    pub keys: Vec<EnvKey>,
    /// Signs grants; nothing: derived from the data directory's own secret.
    pub store_key: Option<StoreKey>,
    /// `PATH` and `LANG` of the service, for commands.
    pub path: OsString,
    pub lang: Option<OsString>,
    /// How much is logged beyond the default.
    pub verbosity: u8,
}

/// The pair that signs grants.
#[derive(Clone, Debug)]
pub struct StoreKey {
    pub id: String,
    pub secret: SecretBytes,
}

/// What is to be done with the keys of a data directory.
#[derive(Clone, Debug)]
pub struct KeysConfig {
    pub data_dir: PathBuf,
    pub task: KeysTask,
    pub verbosity: u8,
}

/// See [`KeysConfig`].
#[derive(Clone, Debug)]
pub enum KeysTask {
    /// Make one and print it.
    Create {
        kind: KeyKind,
        org: Org,
        name: Option<String>,
    },
    List {
        json: bool,
    },
    /// Take the one of this id out.
    Revoke(String),
}

/// What a service is to be asked for.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Base of its API, with the version, without a slash at its end.
    pub base: String,
    pub key: Secret,
    /// Print what it answers as JSON.
    pub json: bool,
    pub task: ClientTask,
    pub verbosity: u8,
}

/// See [`ClientConfig`].
#[derive(Clone, Debug)]
pub enum ClientTask {
    Regions,
    Build(Box<BuildTask>),
    /// Of the build of this id.
    Status(String),
    Logs {
        id: String,
        /// Lines at most; nothing: all.
        limit: Option<u32>,
    },
}

/// A folder that is to be built.
#[derive(Clone, Debug)]
pub struct BuildTask {
    pub dir: PathBuf,
    /// Nothing: the organization's own.
    pub region: Option<Slug>,
    /// The build file, relative to the folder.
    pub file: String,
    /// Patterns of what is left out, beside those that always are.
    pub exclude: Vec<String>,
    /// Whether links to files outside the folder are packed as those files, instead of refused.
    pub follow_links: bool,
    /// Nothing: not at all.
    pub wait: Option<WaitOptions>,
}

/// How to wait for a build.
#[derive(Clone, Copy, Debug)]
pub struct WaitOptions {
    /// From one question to the next.
    pub poll: Duration,
    /// In all.
    pub timeout: Duration,
}
