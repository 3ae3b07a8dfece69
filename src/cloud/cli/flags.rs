//! The options of `edge-runner cloud`, one table per subcommand.
//!
//! In: option values as text. Out: [`CloudArgs`]. Sizes are bytes, with an optional suffix `k`, `m`
//! or `g` in units of 1024. Times are seconds and may have a fraction. Source: decisions I-01,
//! I-26.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::Role;
use crate::proto::build::{Org, Slug};
use crate::proto::keys::KeyKind;
use edge_runner_proto::aliases::{self, Area};
use edge_runner_proto::config::{MetricsAccess, Tls};
use edge_runner_proto::options::{
    Expected, FlagKind, HOST_HELP, OptionStore, UsageError, flag, number, push, put, tls, values,
};

/// Most log lines that the client prints.
const LOG_LINES_HIGHEST: u32 = 10_000_000;

/// Shortest poll interval; ten requests a second suffice.
const POLL_LEAST: Duration = Duration::from_millis(100);

/// Longest wait for a build: a week.
const WAIT_HIGHEST: Duration = Duration::from_secs(7 * 86_400);

/// Longest retention: a century. 0 means forever.
const KEEP_HIGHEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Longest time from SIGTERM to SIGKILL: an hour.
const BUILD_GRACE_HIGHEST: Duration = Duration::from_secs(3_600);

const ORG: &str = "default";

/// Shortest and longest lease: below, a busy machine loses its builds; above, those of a dead one
/// wait.
const LEASE_LEAST: Duration = Duration::from_secs(1);
const LEASE_HIGHEST: Duration = Duration::from_secs(600);

/// Longest build: a week.
const BUILD_TIMEOUT_HIGHEST: Duration = Duration::from_secs(7 * 86_400);

/// Most entries of a context; each takes memory while it is unpacked.
const ENTRIES_HIGHEST: u64 = 10_000_000;

/// Most runs of one build.
const ATTEMPTS_HIGHEST: u32 = 100;

/// Most waiting builds of one organization; each is a row that is read at start.
const PENDING_HIGHEST: usize = 100_000;

/// Most commands at once.
const BUILDS_HIGHEST: usize = 64;

/// Most uploads at once: half of the connections, so that polling clients still get one.
const UPLOADS_HIGHEST: usize = 128;

/// Longest life of a grant: a day. Today's and yesterday's signing keys verify.
const GRANT_TTL_HIGHEST: Duration = Duration::from_secs(86_400);

/// Largest size option in bytes. It exceeds any disk, so that `--min-free` can disable grants, and
/// sums of sizes do not overflow.
const SIZE_HIGHEST: u64 = 1 << 50;

/// One option.
pub type CloudFlag = edge_runner_proto::options::Flag<CloudArgs>;

/// The options of one subcommand.
pub type CloudOptions = edge_runner_proto::options::OptionTable<CloudArgs>;

/// Command-line arguments of any subcommand.
#[derive(Debug, Default)]
pub struct CloudArgs {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub tls: Option<Tls>,
    pub api_key: Option<String>,
    pub verbosity: u8,
    /// The positional argument, where the subcommand takes one.
    pub argument: Option<OsString>,
    /// The arguments after `--`.
    pub command: Option<Vec<OsString>>,
    /// Long names of the options given on the command line.
    pub given: Vec<&'static str>,
    pub data_dir: Option<String>,
    pub public_url: Option<String>,
    pub metrics: Option<MetricsAccess>,
    pub regions: Option<String>,
    pub org: Option<Slug>,
    pub grant_ttl: Option<Duration>,
    pub max_context: Option<u64>,
    pub max_unpacked: Option<u64>,
    pub max_entries: Option<u64>,
    pub max_uploads: Option<usize>,
    pub max_builds: Option<usize>,
    pub max_pending: Option<usize>,
    pub build_timeout: Option<Duration>,
    pub build_grace: Option<Duration>,
    pub max_attempts: Option<u32>,
    pub builder_env: Vec<String>,
    pub keep_archives: Option<Duration>,
    pub keep_builds: Option<Duration>,
    pub min_free: Option<u64>,
    pub store: Option<String>,
    pub database: Option<String>,
    pub role: Option<Role>,
    pub lease: Option<Duration>,
    pub api_url: Option<String>,
    pub json: bool,
    pub region: Option<Slug>,
    pub buildfile: Option<String>,
    pub exclude: Vec<String>,
    pub follow_links: bool,
    pub wait: bool,
    pub poll: Option<Duration>,
    pub timeout: Option<Duration>,
    pub limit: Option<u32>,
    pub kind: Option<KeyKind>,
    pub name: Option<String>,
}

impl CloudArgs {
    /// Returns the data directory of a command that requires it.
    ///
    /// # Errors
    /// [`UsageError::Combination`].
    pub fn data_dir(&self, command: &str) -> Result<PathBuf, UsageError> {
        match &self.data_dir {
            Some(folder) if !folder.is_empty() => Ok(folder.into()),
            _ => Err(UsageError::Combination(format!(
                "`{command}` needs `--data-dir DIR`, or CLOUD_DATA_DIR: the folder in which everything is kept"
            ))),
        }
    }

    /// Returns the organization of keys that name none.
    pub fn org(&self) -> Org {
        let standard = || Slug::parse(ORG).expect("the standard name is one");
        self.org.clone().unwrap_or_else(standard)
    }
}

impl OptionStore for CloudArgs {
    fn given(&mut self) -> &mut Vec<&'static str> {
        &mut self.given
    }

    fn argument(&mut self) -> &mut Option<OsString> {
        &mut self.argument
    }
}

/// Group headings, in the order of the help text.
pub const GROUPS: [&str; 10] = [
    SERVER, UPLOADS, BUILDS, KEEPING, SCALE, CONTEXT, WAITING, KEY, CLOUD, GENERAL,
];

const SERVER: &str = "Server";
const UPLOADS: &str = "Uploads";
const BUILDS: &str = "Builds";
const KEEPING: &str = "What is kept";
/// Options of the cargo feature `scale`.
pub const SCALE: &str = "Several machines";
const CONTEXT: &str = "The build";
const WAITING: &str = "Waiting";
const KEY: &str = "Keys";
const CLOUD: &str = "The service";
const GENERAL: &str = "General";

/// Prefix of the environment variables.
const PREFIX: &str = "CLOUD_";

const DATA_DIR: CloudFlag = flag(
    "--data-dir",
    FlagKind::Value("DIR", |args, text| put(&mut args.data_dir, text)),
    SERVER,
    "Where archives, records, logs, images and keys are kept; made with mode 0700 if it is not there. Required.",
);

const DATABASE: CloudFlag = flag(
    "--database",
    FlagKind::Value("URL", |args, text| put(&mut args.database, text)),
    SCALE,
    "Where records and keys are that several replicas share: postgres://USER@HOST/NAME. CLOUD_DATABASE may have a \
     password too.",
);

const STORE: CloudFlag = flag(
    "--store",
    FlagKind::Value("URL", |args, text| put(&mut args.store, text)),
    SCALE,
    "Where archives and images are: s3://BUCKET?region=NAME&endpoint=URL&public=URL. Needs --database, \
     AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
);

const VERBOSE: CloudFlag = flag(
    "--verbose",
    FlagKind::Count(|args: &mut CloudArgs| args.verbosity = args.verbosity.saturating_add(1)),
    GENERAL,
    "Log more: -v decisions, -vv steps too, -vvv libraries too. RUST_LOG, when set, decides alone.",
)
.short('v');

const HELP: CloudFlag = flag("--help", FlagKind::Help, GENERAL, "Print this help.").short('h');

const VERSION: CloudFlag = flag("--version", FlagKind::Version, GENERAL, "Print the version.").short('V');

const API_URL: CloudFlag = flag(
    "--api-url",
    FlagKind::Value("URL", |args, text| put(&mut args.api_url, api_url(&text)?)),
    CLOUD,
    "Where the service is, such as http://board:7870; /v1 is added if it is not there. Required.",
);

const API_KEY: CloudFlag = flag(
    "--api-key",
    FlagKind::Value("KEY", |args, text| put(&mut args.api_key, text)),
    CLOUD,
    "A private key of the service; CLOUD_API_KEY does the same and shows in no list of processes. Required.",
);

const JSON: CloudFlag = flag(
    "--json",
    FlagKind::Switch(|args| args.json = true),
    GENERAL,
    "Print one JSON object: what the service answered.",
);

/// Options of `cloud serve`.
pub static SERVE: CloudOptions = CloudOptions {
    prefix: PREFIX,
    argument: None,
    own_variable_first: false,
    modules: &[&[
        DATA_DIR,
        flag(
            "--host",
            FlagKind::Value("ADDR", |args, text| put(&mut args.host, text)),
            SERVER,
            HOST_HELP,
        ),
        flag(
            "--port",
            FlagKind::Value("N", |args, text| put(&mut args.port, number(&text, 0, u16::MAX)?)),
            SERVER,
            "HTTP port; 0 picks a free one, and the start-up line prints it. [default: 7870]",
        ),
        flag(
            "--tls",
            FlagKind::Value("off|auto|CERT:KEY", |args, text| put(&mut args.tls, tls(&text)?)),
            SERVER,
            "HTTPS on the same port as HTTP: `auto` makes a certificate once and keeps it in the data directory, \
             CERT:KEY are PEM files, read again on SIGHUP. [default: off]",
        ),
        flag(
            "--public-url",
            FlagKind::Value("URL", |args, text| put(&mut args.public_url, public_url(&text)?)),
            SERVER,
            "Scheme and host that clients see, without /v1; for the URLs of uploads, logs and images. [default: the \
             request's Host]",
        ),
        flag(
            "--metrics",
            FlagKind::Value("off|local|key", |args, text| put(&mut args.metrics, metrics(&text)?)),
            SERVER,
            "Who may read /metrics: `off` no one, `local` this machine, `key` those with a private key of the \
             organization of --org. [default: local]",
        ),
        flag(
            "--org",
            FlagKind::Value("NAME", |args, text| put(&mut args.org, name(&text)?)),
            SERVER,
            "Organization of keys that name none, which is that of the operator. [default: default]",
        ),
        flag(
            "--regions",
            FlagKind::Value("FILE", |args, text| put(&mut args.regions, text)),
            BUILDS,
            "JSON: {\"default\":\"eu\", \"regions\":[ {\"code\":\"eu\", \"display_name\":\"Europe\", \"builds\":true} ]}; without \
             `default` the first one is it, without `builds` it has them. Read again when it changes. [default: one \
             region `local`]",
        ),
        flag(
            "--max-builds",
            FlagKind::Value("N", |args, text| {
                put(&mut args.max_builds, number(&text, 1, BUILDS_HIGHEST)?)
            }),
            BUILDS,
            "Commands at once; further builds wait, oldest first. [default: 2]",
        ),
        flag(
            "--max-pending",
            FlagKind::Value("N", |args, text| {
                put(&mut args.max_pending, number(&text, 1, PENDING_HIGHEST)?)
            }),
            BUILDS,
            "Builds of one organization that wait; more get 429. [default: 100]",
        ),
        flag(
            "--build-timeout",
            FlagKind::Value("SECONDS", |args, text| {
                put(
                    &mut args.build_timeout,
                    seconds(&text, Duration::from_millis(1), BUILD_TIMEOUT_HIGHEST)?,
                )
            }),
            BUILDS,
            "How long a command may run; then its process group gets SIGTERM. [default: 1200]",
        ),
        flag(
            "--build-grace",
            FlagKind::Value("SECONDS", |args, text| {
                put(
                    &mut args.build_grace,
                    seconds(&text, Duration::ZERO, BUILD_GRACE_HIGHEST)?,
                )
            }),
            BUILDS,
            "How long it has from there to SIGKILL. [default: 10]",
        ),
        flag(
            "--max-attempts",
            FlagKind::Value("N", |args, text| {
                put(&mut args.max_attempts, number(&text, 1, ATTEMPTS_HIGHEST)?)
            }),
            BUILDS,
            "Runs of one build, with those that a stop of the service cut off. [default: 3]",
        ),
        flag(
            "--max-unpacked",
            FlagKind::Value("BYTES", |args, text| put(&mut args.max_unpacked, size(&text, 1)?)),
            BUILDS,
            "Bytes of a context once it is unpacked. [default: 2g]",
        ),
        flag(
            "--max-entries",
            FlagKind::Value("N", |args, text| {
                put(&mut args.max_entries, number(&text, 1, ENTRIES_HIGHEST)?)
            }),
            BUILDS,
            "Files, directories and links of a context. [default: 100000]",
        ),
        flag(
            "--builder-env",
            FlagKind::Repeatable("NAME", |args, text| push(&mut args.builder_env, variable(text)?)),
            BUILDS,
            "Hand this variable of the service to the command; repeatable.",
        ),
        flag(
            "--grant-ttl",
            FlagKind::Value("SECONDS", |args, text| {
                put(
                    &mut args.grant_ttl,
                    seconds(&text, Duration::from_millis(1), GRANT_TTL_HIGHEST)?,
                )
            }),
            UPLOADS,
            "How long an upload may be begun and ended after its grant. [default: 900]",
        ),
        flag(
            "--max-context",
            FlagKind::Value("BYTES", |args, text| put(&mut args.max_context, size(&text, 1)?)),
            UPLOADS,
            "Bytes of an archive. [default: 524288000]",
        ),
        flag(
            "--max-uploads",
            FlagKind::Value("N", |args, text| {
                put(&mut args.max_uploads, number(&text, 1, UPLOADS_HIGHEST)?)
            }),
            UPLOADS,
            "Uploads at once; more get 503 with Retry-After. [default: 32]",
        ),
        flag(
            "--min-free",
            FlagKind::Value("BYTES", |args, text| put(&mut args.min_free, size(&text, 0)?)),
            UPLOADS,
            "Free space in the data directory below which no upload is granted. [default: 1g]",
        ),
        flag(
            "--keep-archives",
            FlagKind::Value("SECONDS", |args, text| {
                put(&mut args.keep_archives, seconds(&text, Duration::ZERO, KEEP_HIGHEST)?)
            }),
            KEEPING,
            "How long an archive is kept after its build ended, or after its grant if none was made of it; 0: for \
             ever. [default: 86400]",
        ),
        flag(
            "--keep-builds",
            FlagKind::Value("SECONDS", |args, text| {
                put(&mut args.keep_builds, seconds(&text, Duration::ZERO, KEEP_HIGHEST)?)
            }),
            KEEPING,
            "The same of a build's record, log and image. [default: 2592000]",
        ),
        DATABASE,
        STORE,
        flag(
            "--role",
            FlagKind::Value("api|worker|all", |args, text| put(&mut args.role, role(&text)?)),
            SCALE,
            "What this replica does: answer requests, run builds, or both. [default: all]",
        ),
        flag(
            "--lease",
            FlagKind::Value("SECONDS", |args, text| {
                put(&mut args.lease, seconds(&text, LEASE_LEAST, LEASE_HIGHEST)?)
            }),
            SCALE,
            "How long a build belongs to a worker that does not answer; then another one takes it. [default: 30]",
        ),
        VERBOSE,
        HELP,
        VERSION,
    ]],
};

/// Options of `cloud keys create`.
pub static KEYS_CREATE: CloudOptions = CloudOptions {
    prefix: PREFIX,
    argument: None,
    own_variable_first: false,
    modules: &[&[
        flag(
            "--type",
            FlagKind::Value("private|public", |args, text| put(&mut args.kind, kind(&text)?)),
            KEY,
            "What the key opens: builds and regions, or the public surface. Required.",
        ),
        flag(
            "--org",
            FlagKind::Value("NAME", |args, text| put(&mut args.org, name(&text)?)),
            KEY,
            "Whose it is. [default: default]",
        ),
        flag(
            "--name",
            FlagKind::Value("NAME", |args, text| put(&mut args.name, label(text)?)),
            KEY,
            "What people call it.",
        ),
        DATA_DIR,
        DATABASE,
        VERBOSE,
        HELP,
        VERSION,
    ]],
};

/// Options of `cloud keys list`.
pub static KEYS_LIST: CloudOptions = CloudOptions {
    prefix: PREFIX,
    argument: None,
    own_variable_first: false,
    modules: &[&[
        DATA_DIR,
        DATABASE,
        CloudFlag {
            help: "Print one JSON object.",
            ..JSON
        },
        VERBOSE,
        HELP,
        VERSION,
    ]],
};

/// Options of `cloud keys revoke`.
pub static KEYS_REVOKE: CloudOptions = CloudOptions {
    prefix: PREFIX,
    argument: Some("ID"),
    own_variable_first: false,
    modules: &[&[DATA_DIR, DATABASE, VERBOSE, HELP, VERSION]],
};

/// Options of `cloud migrate`.
pub static MIGRATE: CloudOptions = CloudOptions {
    prefix: PREFIX,
    argument: None,
    own_variable_first: false,
    modules: &[&[
        DATABASE,
        flag(
            "--regions",
            FlagKind::Value("FILE", |args, text| put(&mut args.regions, text)),
            SCALE,
            "Set the regions of all replicas to those of this file. [default: they stay as they are; at first one \
             region `local`]",
        ),
        VERBOSE,
        HELP,
        VERSION,
    ]],
};

/// Options of `cloud import`.
pub static IMPORT: CloudOptions = CloudOptions {
    prefix: PREFIX,
    argument: None,
    own_variable_first: false,
    modules: &[&[DATA_DIR, DATABASE, STORE, VERBOSE, HELP, VERSION]],
};

/// Options of `cloud export`.
pub static EXPORT: CloudOptions = CloudOptions {
    prefix: PREFIX,
    argument: None,
    own_variable_first: false,
    modules: &[&[DATA_DIR, DATABASE, STORE, VERBOSE, HELP, VERSION]],
};

/// Options of `cloud regions`.
pub static REGIONS: CloudOptions = CloudOptions {
    prefix: PREFIX,
    argument: None,
    own_variable_first: false,
    modules: &[&[API_URL, API_KEY, JSON, VERBOSE, HELP, VERSION]],
};

/// Options of `cloud build`.
pub static BUILD: CloudOptions = CloudOptions {
    prefix: PREFIX,
    argument: Some("DIR"),
    own_variable_first: false,
    modules: &[&[
        flag(
            "--region",
            FlagKind::Value("REGION", |args, text| put(&mut args.region, name(&text)?)),
            CONTEXT,
            "Where to build. [default: the organization's own region]",
        ),
        flag(
            "--buildfile",
            FlagKind::Value("FILE", |args, text| put(&mut args.buildfile, text)),
            CONTEXT,
            "The build file, relative to DIR. [default: Dockerfile]",
        ),
        flag(
            "--exclude",
            FlagKind::Repeatable("PATTERN", |args, text| push(&mut args.exclude, text)),
            CONTEXT,
            "Leave out what this matches, beside what .dockerignore or the built-in list leaves out; repeatable.",
        ),
        flag(
            "--follow-links",
            FlagKind::Switch(|args| args.follow_links = true),
            CONTEXT,
            "Pack what links to files outside DIR lead to. Without it such links are refused, since a foreign \
             folder could put any file of yours into an image.",
        ),
        flag(
            "--wait",
            FlagKind::Switch(|args| args.wait = true),
            WAITING,
            "Wait until the build has ended.",
        ),
        flag(
            "--poll",
            FlagKind::Value("SECONDS", |args, text| {
                put(&mut args.poll, seconds(&text, POLL_LEAST, WAIT_HIGHEST)?)
            }),
            WAITING,
            "How often to ask meanwhile. [default: 10]",
        ),
        flag(
            "--timeout",
            FlagKind::Value("SECONDS", |args, text| {
                put(&mut args.timeout, seconds(&text, Duration::ZERO, WAIT_HIGHEST)?)
            }),
            WAITING,
            "How long to wait; the build goes on after that. [default: 1800]",
        ),
        API_URL,
        API_KEY,
        JSON,
        VERBOSE,
        HELP,
        VERSION,
    ]],
};

/// Options of `cloud status`.
pub static STATUS: CloudOptions = CloudOptions {
    prefix: PREFIX,
    argument: Some("ID"),
    own_variable_first: false,
    modules: &[&[API_URL, API_KEY, JSON, VERBOSE, HELP, VERSION]],
};

/// Options of `cloud logs`.
pub static LOGS: CloudOptions = CloudOptions {
    prefix: PREFIX,
    argument: Some("ID"),
    own_variable_first: false,
    modules: &[&[
        flag(
            "--limit",
            FlagKind::Value("N", |args, text| {
                put(&mut args.limit, number(&text, 1, LOG_LINES_HIGHEST)?)
            }),
            CONTEXT,
            "Lines at most, from the first. [default: all of them]",
        ),
        API_URL,
        API_KEY,
        JSON,
        VERBOSE,
        HELP,
        VERSION,
    ]],
};

/// All tables. A variable of one subcommand is not reported as a typo by another.
pub static TABLES: [&CloudOptions; 11] = [
    &SERVE,
    &KEYS_CREATE,
    &KEYS_LIST,
    &KEYS_REVOKE,
    &MIGRATE,
    &IMPORT,
    &EXPORT,
    &REGIONS,
    &BUILD,
    &STATUS,
    &LOGS,
];

/// Parses a number of bytes of at least `least`.
pub fn size(text: &str, least: u64) -> Result<u64, Expected> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let number = digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| digits.parse::<u64>());
    let bytes = number.and_then(Result::ok).and_then(|number| number.checked_mul(unit));
    match bytes {
        Some(bytes) if bytes >= least && bytes <= SIZE_HIGHEST => Ok(bytes),
        _ => Err(format!(
            "a number of bytes, such as 512m or 2g, from {least} to {}g",
            SIZE_HIGHEST >> 30
        )
        .into()),
    }
}

/// Parses a time in seconds.
pub fn seconds(text: &str, least: Duration, most: Duration) -> Result<Duration, Expected> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.') && text.bytes().any(|b| b.is_ascii_digit());
    let seconds = plain.then(|| text.parse().ok()).flatten();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match time {
        Some(time) if time >= least && time <= most => Ok(time),
        _ => Err(format!(
            "seconds, optionally with a fraction, from {} to {}",
            least.as_secs_f64(),
            most.as_secs()
        )
        .into()),
    }
}

fn name(text: &str) -> Result<Slug, Expected> {
    Slug::parse(text)
        .ok_or_else(|| "1 to 63 letters, digits, dots, hyphens and underscores, the first a letter or a digit".into())
}

fn kind(text: &str) -> Result<KeyKind, Expected> {
    match text {
        "private" => Ok(KeyKind::Private),
        "public" => Ok(KeyKind::Public),
        _ => Err("`private` or `public`".into()),
    }
}

fn metrics(text: &str) -> Result<MetricsAccess, Expected> {
    match text {
        "off" => Ok(MetricsAccess::Off),
        "local" => Ok(MetricsAccess::Local),
        "key" => Ok(MetricsAccess::Key),
        _ => Err("`off`, `local` or `key`".into()),
    }
}

fn role(text: &str) -> Result<Role, Expected> {
    match text {
        "api" => Ok(Role::Api),
        "worker" => Ok(Role::Worker),
        "all" => Ok(Role::All),
        _ => Err("`api`, `worker` or `all`".into()),
    }
}

/// Parses the name of a key, which is printed in a table.
fn label(text: String) -> Result<String, Expected> {
    match text.chars().count() {
        1..=63 if !text.chars().any(char::is_control) => Ok(text),
        _ => Err("1 to 63 characters on one line".into()),
    }
}

/// Parses a URL that has a scheme and a host only.
fn public_url(text: &str) -> Result<String, Expected> {
    let url = values::parse_url("", text, &["http", "https"]).filter(|url| url.path.is_empty());
    url.map(|url| url.text)
        .ok_or_else(|| "scheme and host, such as https://builds.example.net, without a path".into())
}

/// Parses the base URL of the API and adds the version.
fn api_url(text: &str) -> Result<String, Expected> {
    let url = values::parse_url("", text, &["http", "https"])
        .ok_or("the address of a service, such as https://builds.example.net")?;
    let versioned = url.path.split('/').any(|part| part == "v1");
    Ok(if versioned { url.text } else { url.text + "/v1" })
}

/// Parses the name of a variable for `--builder-env`. Rejects the service's own variables and those
/// that every command gets.
fn variable(text: String) -> Result<String, Expected> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let ours = aliases::canonical(Area::Variable, &text).starts_with(PREFIX) || text.starts_with("BUILD_");
    let set = ["PATH", "LANG", "HOME", "TMPDIR"].contains(&&*text);
    if text.contains('=') {
        return Err("the name of a variable, a name alone, without its value".into());
    }
    match !text.is_empty() && text.bytes().all(fits) && !ours && !set {
        true => Ok(text),
        false => {
            Err("the name of a variable that neither begins with CLOUD_ or BUILD_ nor is set for every command".into())
        }
    }
}
