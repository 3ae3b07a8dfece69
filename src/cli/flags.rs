//! The table of options: one entry per option with its names, value placeholder, help text and
//! setter.
//!
//! In: the texts of values, each passed to the setter of its option. Out: [`LowArgs`], the typed
//! values, each validated by itself; `resolve` validates their combination. `--help` is generated
//! from the same table. Aliases of options are in `aliases`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{BotAudio, BuiltInBot, LogFormat, MetricsAccess, Tls, Transport, UpdateCheck};
use crate::features::Feature;
use crate::limits::{
    BOT_MEMORY_MIB, DRAIN_MAX, PROCESS_PCM_RATE_HZ, RATES_HZ, SESSIONS_MAX_DEFAULT, SESSIONS_MAX_HIGHEST,
    UPLOAD_BYTES_MAX, WARM_MAX, WORKERS_MAX,
};
use crate::proto::http::uploads::{UPLOADS_DEFAULT, UPLOADS_MAX};
use crate::proto::modules::ModuleOptions;
use crate::proto::options::env_options::with_prefix;
use crate::proto::options::values::parse_url;
use crate::proto::options::{
    ACCESS, BOTS, Expected, FlagKind, HOST_HELP, OptionStore, OptionTable, SERVER, ValueSource, flag, number, push,
    put, tls,
};
use crate::proto::server::forwarded::{Network, NetworkParseError};

/// The typed values, before their combination is validated.
#[derive(Debug, Default)]
pub(super) struct LowArgs {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub transport: Option<Transport>,
    pub allowed_origins: Vec<String>,
    pub allowed_hosts: Vec<String>,
    pub trusted_proxies: Vec<Network>,
    pub bot: Option<BuiltInBot>,
    pub bot_audio: Option<BotAudio>,
    pub bot_rate_hz: Option<u32>,
    pub pass_env: Vec<String>,
    pub sandbox: bool,
    /// Whether `command` begins with the file of a bot in Python.
    pub is_python_bot: bool,
    pub python: Option<PathBuf>,
    pub warm: Option<usize>,
    pub bot_memory_mib: Option<u64>,
    pub env_file: Option<String>,
    pub settings: SettingsArgs,
    pub update_check: Option<UpdateCheck>,
    pub sessions_max: Option<usize>,
    pub workers: Option<usize>,
    pub tls: Option<Tls>,
    pub state_dir: Option<String>,
    pub page: Option<String>,
    pub downloads_folder: Option<String>,
    pub uploads_folder: Option<String>,
    pub uploads_max: Option<usize>,
    /// Whether the transport is [`EVAL`].
    pub asks_for_eval: bool,
    pub api_key: Option<String>,
    pub api_key_file: Option<String>,
    pub cluster_key_file: Option<String>,
    pub replica_name: Option<String>,
    pub metrics: Option<MetricsAccess>,
    pub drain: Option<Duration>,
    pub modules: ModuleOptions,
    pub verbosity: u8,
    pub log: Option<LogFormat>,
    /// The positional argument, if the table takes one.
    pub argument: Option<OsString>,
    /// The arguments after `--`, or the file of a bot in Python with its own.
    pub command: Option<Vec<OsString>>,
    /// Whether the program has a bot of its own in place of the built-in ones.
    pub has_own_bot: bool,
    /// The long names of the options that were typed or that the file of settings sets.
    pub given: Vec<&'static str>,
    /// The features that the given options need.
    pub needed: Vec<NeededFeature>,
}

/// The file of settings, and what `config show` prints.
#[derive(Debug, Default)]
pub(super) struct SettingsArgs {
    /// The file of `--config`.
    pub file: Option<String>,
    /// Whether its page may change it.
    pub page: Option<bool>,
    /// Whether it contains a secret, and not only the name of a secret's file.
    pub contains_secret: bool,
    /// The files that it takes values from.
    pub files: Vec<String>,
    /// The key and place of the command that is the bot, if the file sets it.
    pub command: Option<String>,
    /// The long names of the options that are set, their values and where these are from.
    pub recorded: Vec<(&'static str, String, ValueSource)>,
}

/// A feature that an option needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct NeededFeature {
    pub option: &'static str,
    pub feature: Feature,
    /// Whether a build without the feature ignores the option, with a warning.
    pub is_optional: bool,
}

impl<T> AsMut<T> for LowArgs
where
    ModuleOptions: AsMut<T>,
{
    fn as_mut(&mut self) -> &mut T {
        self.modules.as_mut()
    }
}

/// Pairs of conflicting options: typing one overrides the variable of the other.
const CONFLICTS: &[[&str; 2]] = &[
    ["--api-key", "--api-key-file"],
    ["--dialin", "--no-dialin"],
    ["--direct", "--transport"],
];

impl OptionStore for LowArgs {
    fn given(&mut self) -> &mut Vec<&'static str> {
        &mut self.given
    }

    fn argument(&mut self) -> &mut Option<OsString> {
        &mut self.argument
    }

    fn record(&mut self, flag: &'static RunnerFlag, value: &str, source: ValueSource) {
        self.settings.recorded.push((flag.long, value.to_owned(), source));
        self.needed.retain(|needed| needed.option != flag.long);
        if let Some(feature) = flag.feature().filter(|_| flag.off != Some(value)) {
            self.needed.push(NeededFeature {
                option: flag.long,
                feature,
                is_optional: flag.is_optional_in_variables && source == ValueSource::Variable,
            });
        }
    }

    fn begins_command(&self, argument: &OsStr) -> bool {
        names_python_bot(argument)
    }

    fn set_command(&mut self, mut command: Vec<OsString>) {
        if let Some(rest) = self.command.take() {
            command.push("--".into());
            command.extend(rest);
        }
        self.command = Some(command);
        self.is_python_bot = true;
    }

    fn overrides(&self, option: &str) -> bool {
        let typed = |long: &str| self.given.contains(&long);
        let conflicts = |[one, other]: &[&str; 2]| match option {
            long if long == *one => typed(other),
            long if long == *other => typed(one),
            _ => false,
        };
        // `-t videoroom` does not conflict with `--direct`, which implies it.
        let is_overridden = CONFLICTS.iter().any(conflicts)
            && (option != "--direct" || self.transport.is_none_or(Transport::has_media));
        is_overridden || (option == "--bot" && (self.command.is_some() || self.has_own_bot))
    }
}

const GENERAL: &str = "General";

/// The options of the runner.
pub(super) static RUNNER: OptionTable<LowArgs> = OptionTable {
    modules: &RunnerFlag::in_order([ADDRESSES, SERVING, BOT, PROGRAMS, ACCESSES, GENERALS]),
    prefix: "RUNNER_",
    argument: None,
    own_variable_first: true,
};

/// Returns the headings of the help, in order.
pub(super) fn groups() -> Vec<&'static str> {
    let mut groups: Vec<&str> = Vec::new();
    for flag in RUNNER.flags() {
        if !groups.contains(&flag.group) {
            groups.push(flag.group);
        }
    }
    groups
}

/// Returns whether an argument that is no option names the file of a bot.
pub(super) fn names_python_bot(argument: &OsStr) -> bool {
    Path::new(argument)
        .extension()
        .is_some_and(|extension| extension == "py")
}

/// Returns the name of an option's variable.
pub(super) fn variable(long: &str) -> String {
    with_prefix(RUNNER.prefix, long)
}

/// One option of the runner.
pub(super) type RunnerFlag = crate::proto::options::Flag<LowArgs>;

/// The options of the server that come first in the help.
const ADDRESSES: &[RunnerFlag] = &[
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
        "HTTP port. 0 picks a free port, shown at start-up. [default: 7860]",
    ),
    flag(
        "--tls",
        FlagKind::Value("off|auto|acme|CERT:KEY", |args: &mut LowArgs, text| {
            put(&mut args.tls, tls(&text)?)
        }),
        SERVER,
        "HTTPS and WSS on the same port as HTTP. `auto` makes a certificate once and keeps it; `acme` gets one \
         that browsers trust for the public names of --acme-name; CERT:KEY are PEM files, read again on SIGHUP. \
         [default: off]",
    )
    .needs(&[Feature::Tls])
    .unless("off"),
    flag(
        "--state-dir",
        FlagKind::Value("DIR", |args: &mut LowArgs, text| put(&mut args.state_dir, text)),
        SERVER,
        "Folder for the certificates of `--tls auto` and `--tls acme`. [default: STATE_DIRECTORY of systemd, else \
         edge-runner in XDG_STATE_HOME or ~/.local/state]",
    )
    .needs(&[Feature::Tls]),
];

/// The other options of the server.
const SERVING: &[RunnerFlag] = &[
    flag(
        "--page",
        FlagKind::Value("DIR", |args: &mut LowArgs, text| put(&mut args.page, text)),
        SERVER,
        "Serve the files of this folder at /client/ in place of the built-in page, such as Pipecat's playground.",
    )
    .needs(&[Feature::Page]),
    flag(
        "--downloads-folder",
        FlagKind::Value("DIR", |args: &mut LowArgs, text| put(&mut args.downloads_folder, text)),
        SERVER,
        "Folder whose files clients may download from /files/, for example those that a bot writes. Needs the API \
         key, if there is one.",
    )
    .short('f')
    .needs(&[Feature::Page]),
    flag(
        "--uploads-folder",
        FlagKind::Value("DIR", |args: &mut LowArgs, text| put(&mut args.uploads_folder, text)),
        SERVER,
        "Folder for files of up to 50 MiB that clients send to /files and /sessions/ID/files for the bot. Those of a \
         session are deleted at its end, all others at the next start. /files needs the API key, if there is one.",
    )
    .short('u')
    .needs(&[Feature::Page]),
    flag(
        "--uploads-folder-max-files",
        FlagKind::Value("N", |args: &mut LowArgs, text| {
            put(&mut args.uploads_max, number(&text, 0, UPLOADS_MAX)?)
        }),
        SERVER,
        "Files in that folder, of which the oldest are deleted for a new one. 0 deletes none, and refuses what does \
         not fit into 1 GiB. [default: 10]",
    )
    .needs(&[Feature::Page]),
    flag(
        "--drain",
        FlagKind::Value("SECONDS", |args, text| {
            put(
                &mut args.drain,
                Duration::from_secs(
                    number(&text, 0, DRAIN_MAX.as_secs())
                        .map_err(|_| format!("a number of seconds from 0 to {}", DRAIN_MAX.as_secs()))?,
                ),
            )
        }),
        SERVER,
        "How long live sessions may continue after SIGTERM or Ctrl-C, while new ones are refused. A second signal \
         ends them at once. [default: 0]",
    ),
    flag(
        "--cluster-key-file",
        FlagKind::Value("FILE", |args, text| put(&mut args.cluster_key_file, text)),
        SERVER,
        "Makes this runner a replica behind a balancer: session ids, WebSocket tokens and webhook tokens of one \
         replica are good at all that have the same key, on the first line of a file (`openssl rand -hex 32`). \
         See docs/scale.md.",
    ),
    flag(
        "--replica-name",
        FlagKind::Value("NAME", |args, text| put(&mut args.replica_name, text)),
        SERVER,
        "Name by which the balancer finds this replica again: every `pc_id` begins with it, and /status has it. \
         Without it, a random name.",
    ),
    flag(
        "--metrics",
        FlagKind::Value("off|local|key|any", |args, text| {
            put(&mut args.metrics, metrics(&text)?)
        }),
        SERVER,
        "Who may read /metrics, and list and end live sessions: `off` no one, `local` this machine, `key` \
         those with the API key, `any` everyone, sessions with the key only. [default: local]",
    ),
    flag(
        "--max-sessions",
        FlagKind::Value("N", |args, text| {
            put(&mut args.sessions_max, number(&text, 1, SESSIONS_MAX_HIGHEST)?)
        }),
        SERVER,
        "Maximum number of live sessions, over every transport. Further callers get 503 with Retry-After. \
         [default: 32]",
    ),
    flag(
        "--workers",
        FlagKind::Value("N", |args, text| put(&mut args.workers, number(&text, 1, WORKERS_MAX)?)),
        SERVER,
        "Threads that run sessions. 1 runs everything on the main thread. [default: one per core]",
    ),
    flag(
        "--transport",
        FlagKind::Value("T", |args: &mut LowArgs, text| {
            args.asks_for_eval = text == EVAL;
            match args.asks_for_eval {
                true => Ok(()),
                false => put(&mut args.transport, transport(&text)?),
            }
        }),
        SERVER,
        "The only transport that `POST /start` accepts, and its default. It does not restrict \
         /api/offer, /ws and /ws-client.",
    )
    .short('t'),
];

/// The choice of a bot.
const BOT: &[RunnerFlag] = &[
    flag(
        "--bot",
        FlagKind::Value("NAME", |args, text| put(&mut args.bot, bot(&text)?)),
        BOTS,
        "Built-in bot: `parrot` repeats what you say after you pause, `echo` plays every frame straight back, `realtime` \
         talks by a speech-to-speech service (REALTIME_ variables below), `cascade` by a recogniser, a chat model and a \
         voice (CASCADE_ variables). A command after `--` replaces it. [default: parrot]",
    ),
    flag(
        "--bot-audio",
        FlagKind::Value("protobuf|pcm", |args, text| put(&mut args.bot_audio, bot_audio(&text)?)),
        BOTS,
        "How the command after `--` gets audio: `protobuf` frames over a WebSocket, with texts, keys and marks, or \
         plain `pcm` (16-bit, mono, little-endian) on stdin and stdout. [default: protobuf]",
    ),
    flag(
        "--bot-rate",
        FlagKind::Value("HZ", |args, text| {
            put(
                &mut args.bot_rate_hz,
                number(&text, *RATES_HZ.start(), *RATES_HZ.end())?,
            )
        }),
        BOTS,
        "Sample rate of `--bot-audio pcm`, in both directions, 8000 to 48000. [default: 16000]",
    ),
];

/// How programs run.
const PROGRAMS: &[RunnerFlag] = &[
    flag(
        "--python",
        FlagKind::Value("PROGRAM", |args, text| put(&mut args.python, text.into())),
        BOTS,
        "The interpreter of a bot that is given by its file, `bot.py`. [default: that of VIRTUAL_ENV, of .venv beside \
         the file, or beside this program, else python3]",
    ),
    flag(
        "--warm",
        FlagKind::Value("N", |args, text| put(&mut args.warm, number(&text, 0, WARM_MAX)?)),
        BOTS,
        "Processes that have loaded the bot before a call. One that can fork serves all calls by its children; otherwise N \
         wait for one call each. 0 starts a process for each call. [default: 1 for bot.py, 0 for a command after `--`]",
    ),
    flag(
        "--bot-memory",
        FlagKind::Value("MB", |args, text| {
            put(
                &mut args.bot_memory_mib,
                number(&text, *BOT_MEMORY_MIB.start(), *BOT_MEMORY_MIB.end())?,
            )
        }),
        BOTS,
        "Private memory that each process of a bot may have, in MiB. What it asks for beyond fails, and ends no other call. \
         [default: no limit]",
    ),
    flag(
        "--pass-env",
        FlagKind::List("NAME", |args, text| push(&mut args.pass_env, text)),
        BOTS,
        "Secrets of the runner to pass to the command after `--`, such as RUNNER_API_KEY. The command gets all \
         other variables anyway.",
    ),
    flag(
        "--sandbox",
        FlagKind::Switch(|args| args.sandbox = true),
        BOTS,
        "Run the command after `--`, or the program of functions, in bubblewrap: it writes to its working folder, \
         a temporary one and that of uploads alone, and sees neither other processes, the state folder, nor the files with the runner's keys. Needs the program bwrap.",
    ),
];

const ACCESSES: &[RunnerFlag] = &[
    flag(
        "--allowed-origins",
        FlagKind::List("ORIGIN", |args, text| push(&mut args.allowed_origins, text)),
        ACCESS,
        "Web pages that may connect, such as https://app.example.net. Separate several by commas or spaces. \
         [default: all]",
    ),
    flag(
        "--allowed-hosts",
        FlagKind::List("HOST", |args, text| push(&mut args.allowed_hosts, text)),
        ACCESS,
        "Additional host names of this server. Requests for other names get 421. [default: localhost, addresses, \
         this machine's names, *.local, the host of --proxy]",
    ),
    flag(
        "--trusted-proxies",
        FlagKind::List("ADDR[/BITS]", |args, text| networks(&mut args.trusted_proxies, &text)),
        ACCESS,
        "Reverse proxies whose `X-Forwarded-For` or `Forwarded` header gives the address of the caller. [default: \
         this machine with --proxy, else none]",
    ),
    flag(
        "--api-key",
        FlagKind::Value("KEY", |args, text| put(&mut args.api_key, text)),
        ACCESS,
        "Require `Authorization: Bearer KEY` on /start, /api/offer, /whip, /whep and /v1/realtime. RUNNER_API_KEY \
         does the same and does not show in the list of processes.",
    ),
    flag(
        "--api-key-file",
        FlagKind::Value("FILE", |args, text| put(&mut args.api_key_file, text)),
        ACCESS,
        "Like `--api-key`, with the key on the first line of a file. `auto` makes a key at the first start and \
         keeps it as `api-key` in the folder of --state-dir.",
    ),
];

const GENERALS: &[RunnerFlag] = &[
    flag(
        "--config",
        FlagKind::Value("FILE", |args: &mut LowArgs, text| put(&mut args.settings.file, text)),
        GENERAL,
        "Read settings from this file, in TOML: every option without its dashes, such as `port = 80`, and every other \
         variable by its name. Options and variables take precedence.",
    )
    .needs(&[Feature::Config]),
    flag(
        "--settings",
        FlagKind::Value("off|page", |args: &mut LowArgs, text| {
            let is_page = match &*text {
                "off" => false,
                "page" => true,
                _ => return Err(Expected::one_of(&text, &["off", "page"], &[])),
            };
            put(&mut args.settings.page, is_page)
        }),
        GENERAL,
        "`page` lets those with the API key change bot, services, voice, language, sound card and key in the file of \
         --config, at /client/#settings. What only a start reads restarts the runner; a change with which it does not start is taken \
         back. [default: off]",
    )
    .needs(&[Feature::Setup])
    .unless("off"),
    flag(
        "--update-check",
        FlagKind::Value("off|on|URL", |args: &mut LowArgs, text| {
            let check = match &*text {
                "off" => UpdateCheck::Off,
                "on" => UpdateCheck::Releases,
                _ => {
                    let url = parse_url("--update-check", &text, &["http", "https"]);
                    let mirror = url.ok_or("`off`, `on`, or the folder of a release on a mirror: https://HOST/PATH")?;
                    UpdateCheck::Mirror(mirror.text)
                }
            };
            put(&mut args.update_check, check)
        }),
        GENERAL,
        "`on` asks once a day whether a newer release is out; a URL asks the folder of the latest one on a mirror. The page \
         and /status tell those that may list live sessions, and nothing is installed. [default: off]",
    )
    .needs(&[Feature::Update])
    .unless("off"),
    flag(
        "--env-file", // The start reads it before the options, whose variables it sets.
        FlagKind::Value("FILE", |args, text| put(&mut args.env_file, text)),
        GENERAL,
        "Read variables from this file, all of them, in place of those that are taken from .env in the working \
         directory.",
    ),
    flag(
        "--verbose",
        FlagKind::Count(|args: &mut LowArgs| args.verbosity = args.verbosity.saturating_add(1)),
        GENERAL,
        "Log more: -v decisions, -vv packets, -vvv libraries. RUST_LOG, when set, replaces this.",
    )
    .short('v'),
    flag(
        "--log",
        FlagKind::Value("text|json", |args, text| put(&mut args.log, log_format(&text)?)),
        GENERAL,
        "Format of the log on stderr: `text`, or `json` with one object per line. [default: text]",
    ),
    flag(
        "--help",
        FlagKind::Help,
        GENERAL,
        "Print this help; -h prints a summary.",
    )
    .short('h'),
    flag("--version", FlagKind::Version, GENERAL, "Print the version.").short('V'),
];

// The help contains these.
const _: () = assert!(SESSIONS_MAX_DEFAULT == 32 && UPLOADS_DEFAULT == 10 && UPLOAD_BYTES_MAX == 50 * 1024 * 1024);

/// A former transport of Pipecat's runner for evaluations, which use the endpoint /ws.
pub(super) const EVAL: &str = "eval";

fn transport(text: &str) -> Result<Transport, Expected> {
    Transport::from_name(text).ok_or_else(|| {
        let names = transports().map(Transport::common_name);
        let wire_names: Vec<&str> = transports().map(Transport::name).collect();
        Expected::one_of(text, &names.collect::<Vec<_>>(), &wire_names)
    })
}

/// Returns all transports, in the order of the help.
pub(super) fn transports() -> impl Iterator<Item = Transport> {
    Transport::ALL.into_iter()
}

fn bot_audio(text: &str) -> Result<BotAudio, Expected> {
    match text {
        "protobuf" => Ok(BotAudio::Protobuf),
        "pcm" => Ok(BotAudio::Pcm {
            rate_hz: PROCESS_PCM_RATE_HZ,
        }),
        _ => Err(Expected::one_of(text, &["protobuf", "pcm"], &[])),
    }
}

fn bot(text: &str) -> Result<BuiltInBot, Expected> {
    let found = BuiltInBot::ALL.into_iter().find(|bot| bot.name() == text);
    found.ok_or_else(|| Expected::one_of(text, &BuiltInBot::ALL.map(BuiltInBot::name), &[]))
}

fn log_format(text: &str) -> Result<LogFormat, Expected> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(Expected::one_of(text, &["text", "json"], &[])),
    }
}

fn networks(list: &mut Vec<Network>, text: &str) -> Result<(), Expected> {
    for network in text.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        list.push(network.parse().map_err(|error: NetworkParseError| error.to_string())?);
    }
    Ok(())
}

fn metrics(text: &str) -> Result<MetricsAccess, Expected> {
    match text {
        "off" => Ok(MetricsAccess::Off),
        "local" => Ok(MetricsAccess::Local),
        "key" => Ok(MetricsAccess::Key),
        "any" => Ok(MetricsAccess::Any),
        _ => Err(Expected::one_of(text, &["off", "local", "key", "any"], &[])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_long_names_have_dashes() {
        for (i, flag) in RUNNER.flags().enumerate() {
            assert!(flag.long.starts_with("--"), "{}", flag.long);
            for other in RUNNER.flags().skip(i + 1) {
                assert_ne!(flag.long, other.long);
                assert!(flag.short.is_none() || flag.short != other.short, "{}", other.long);
            }
        }
    }

    #[test]
    fn every_option_has_a_heading_and_a_help_text() {
        for flag in RUNNER.flags() {
            assert!(flag.help.ends_with(['.', ']']), "{}", flag.long);
        }
    }

    #[test]
    fn numbers_are_checked_against_their_bounds() {
        assert_eq!(number("0", 0, u16::MAX), Ok(0));
        assert_eq!(number("65535", 0, u16::MAX), Ok(65535));
        for bad in ["65536", "-1", "", "7860a", " 1", "1.0"] {
            assert!(number(bad, 0, u16::MAX).is_err(), "{bad:?}");
        }
        assert_eq!(number("1", 1, SESSIONS_MAX_HIGHEST), Ok(1));
        assert!(number("0", 1, SESSIONS_MAX_HIGHEST).is_err());
        assert_eq!(number("4096", 1, SESSIONS_MAX_HIGHEST), Ok(4096));
        assert!(number("4097", 1, SESSIONS_MAX_HIGHEST).is_err());
        assert_eq!(number("64", 1, WORKERS_MAX), Ok(64));
        assert!(number("65", 1, WORKERS_MAX).is_err());
    }

    #[test]
    fn tls_takes_two_files() {
        assert_eq!(tls("off"), Ok(Tls::Off));
        assert_eq!(tls("auto"), Ok(Tls::Auto));
        assert!(matches!(tls("a.pem:b.pem"), Ok(Tls::Files { .. })));
        for bad in ["", "on", "a.pem", ":b.pem", "a.pem:"] {
            assert!(tls(bad).is_err(), "{bad:?}");
        }
    }
}
