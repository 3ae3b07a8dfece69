//! The table of options: one entry per option with its names, value placeholder, help text and
//! setter.
//!
//! In: the texts of values, each passed to the setter of its option. Out: [`LowArgs`], the typed
//! values, each validated by itself; `resolve` validates their combination. `--help` is generated
//! from the same table. Aliases of options are in `aliases`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use super::acme::AcmeOptions;
use super::moq::MoqOptions;
use super::worker::{WorkerOptions, job_type, target_load};
use crate::aliases::{self, Area};
use crate::config::{BotAudio, BuiltInBot, LogFormat, MetricsAccess, Tls, Transport};
use crate::limits::{
    DRAIN_MAX, OPUS_COMPLEXITY_DEFAULT, OPUS_COMPLEXITY_MAX, PROCESS_PCM_RATE_HZ, RATES_HZ, SESSIONS_MAX_DEFAULT,
    SESSIONS_MAX_HIGHEST, WORKERS_MAX,
};
use crate::proto::options::env_options::with_prefix;
use crate::proto::options::{Expected, FlagKind, HOST_HELP, OptionStore, OptionTable, flag, number, push, put, tls};
use crate::proto::server::forwarded::{Network, NetworkParseError};

/// The typed values, before their combination is validated.
#[derive(Debug, Default)]
pub(super) struct LowArgs {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub rtc_port: Option<u16>,
    pub transport: Option<Transport>,
    pub proxy: Option<String>,
    pub direct: bool,
    pub dialin: bool,
    pub messaging: bool,
    pub allowed_origins: Vec<String>,
    pub allowed_hosts: Vec<String>,
    pub trusted_proxies: Vec<Network>,
    pub ice_servers: Vec<String>,
    pub ice_addresses: Vec<IpAddr>,
    pub embedded: bool,
    pub no_verify_webhooks: bool,
    pub unverified_calls: bool,
    pub ws_auth: Option<WsAuth>,
    pub bot: Option<BuiltInBot>,
    pub bot_audio: Option<BotAudio>,
    pub bot_rate_hz: Option<u32>,
    pub tools: Option<String>,
    pub pass_env: Vec<String>,
    pub sandbox: bool,
    pub env_file: Option<String>,
    pub sessions_max: Option<usize>,
    pub workers: Option<usize>,
    pub opus_complexity: Option<u8>,
    pub tls: Option<Tls>,
    pub acme: AcmeOptions,
    pub state_dir: Option<String>,
    pub page: Option<String>,
    pub downloads_folder: Option<String>,
    pub api_key: Option<String>,
    pub api_key_file: Option<String>,
    pub cluster_key_file: Option<String>,
    pub replica_name: Option<String>,
    pub metrics: Option<MetricsAccess>,
    pub drain: Option<Duration>,
    pub moq: MoqOptions,
    pub worker: WorkerOptions,
    pub verbosity: u8,
    pub log: Option<LogFormat>,
    /// The positional argument, if the table takes one.
    pub argument: Option<OsString>,
    /// The arguments after `--`.
    pub command: Option<Vec<OsString>>,
    /// Whether the program has a bot of its own in place of the built-in ones.
    pub has_own_bot: bool,
    /// The long names of the typed options.
    pub given: Vec<&'static str>,
}

/// Whether WebSockets require a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WsAuth {
    None,
    Token,
}

impl WsAuth {
    pub fn from_name(name: &str) -> Option<WsAuth> {
        match name {
            "none" => Some(WsAuth::None),
            "token" => Some(WsAuth::Token),
            _ => None,
        }
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

    fn overrides(&self, option: &str) -> bool {
        let typed = |long: &str| self.given.contains(&long);
        let conflicts = |[one, other]: &[&str; 2]| match option {
            long if long == *one => typed(other),
            long if long == *other => typed(one),
            _ => false,
        };
        // `-t videoroom` does not conflict with `--direct`, which implies it.
        let is_overridden =
            CONFLICTS.iter().any(conflicts) && (option != "--direct" || self.transport != Some(Transport::Videoroom));
        is_overridden || (option == "--bot" && (self.command.is_some() || self.has_own_bot))
    }
}

/// The headings of the help, in order.
pub(super) const GROUPS: [&str; 7] = [SERVER, WEBRTC, MOQ, BOTS, ACCESS, PROVIDERS, GENERAL];

const SERVER: &str = "Server";
pub(super) const WEBRTC: &str = "WebRTC";
pub(super) const MOQ: &str = "Media over QUIC (`-t moq`)";
const BOTS: &str = "Bots";
const ACCESS: &str = "Access";
const PROVIDERS: &str = "Rooms and telephony";
const GENERAL: &str = "General";

/// The options of the runner.
pub(super) static RUNNER: OptionTable<LowArgs> = OptionTable {
    flags: FLAGS,
    prefix: "RUNNER_",
    argument: None,
    own_variable_first: true,
};

/// Returns the name of an option's variable.
pub(super) fn variable(long: &str) -> String {
    with_prefix(RUNNER.prefix, long)
}

/// One option of the runner.
pub(super) type RunnerFlag = crate::proto::options::Flag<LowArgs>;

/// Every option, in the order of the help.
pub(super) const FLAGS: &[RunnerFlag] = &[
    flag(
        None,
        "--host",
        FlagKind::Value("ADDR", |args, text| put(&mut args.host, text)),
        SERVER,
        HOST_HELP,
    ),
    flag(
        None,
        "--port",
        FlagKind::Value("N", |args, text| put(&mut args.port, number(&text, 0, u16::MAX)?)),
        SERVER,
        "HTTP port. 0 picks a free port, shown at start-up. [default: 7860]",
    ),
    flag(
        None,
        "--tls",
        FlagKind::Value("off|auto|acme|CERT:KEY", |args, text| put(&mut args.tls, tls(&text)?)),
        SERVER,
        "HTTPS and WSS on the same port as HTTP. `auto` makes a certificate once and keeps it; `acme` gets one that browsers trust for the public names of --acme-name; CERT:KEY are PEM files, read again on SIGHUP. [default: off]",
    ),
    flag(
        None,
        "--state-dir",
        FlagKind::Value("DIR", |args, text| put(&mut args.state_dir, text)),
        SERVER,
        "Folder for the certificates of `--tls auto` and `--tls acme`. [default: STATE_DIRECTORY of systemd, else edge-runner in XDG_STATE_HOME or ~/.local/state]",
    ),
    flag(
        None,
        "--acme-name",
        FlagKind::List("NAME", |args, text| push(&mut args.acme.names, text)),
        SERVER,
        "Public host names for the certificate of `--tls acme`. They must resolve to this machine, and port 443 of them must reach the HTTP port, for example by a port forwarded in the router. `--tls acme` accepts the terms of service of the directory.",
    ),
    flag(
        None,
        "--acme-email",
        FlagKind::Value("ADDR", |args, text| put(&mut args.acme.email, text)),
        SERVER,
        "Contact address for the ACME account.",
    ),
    flag(
        None,
        "--acme-staging",
        FlagKind::Switch(|args| args.acme.staging = true),
        SERVER,
        "Use the staging directory of Let's Encrypt, to try things out: its limits are high, and browsers do not trust its certificates.",
    ),
    flag(
        None,
        "--acme-directory",
        FlagKind::Value("URL", |args, text| put(&mut args.acme.directory, text)),
        SERVER,
        "Directory of another ACME authority. [default: Let's Encrypt]",
    ),
    flag(
        None,
        "--acme-root",
        FlagKind::Value("FILE", |args, text| put(&mut args.acme.root, text)),
        SERVER,
        "PEM file of the authorities to trust for the HTTPS of that directory, for one in your own network. [default: those of the system]",
    ),
    flag(
        None,
        "--page",
        FlagKind::Value("DIR", |args, text| put(&mut args.page, text)),
        SERVER,
        "Serve the files of this folder at /client/ in place of the built-in page, such as Pipecat's playground.",
    ),
    flag(
        Some('f'),
        "--downloads-folder",
        FlagKind::Value("DIR", |args, text| put(&mut args.downloads_folder, text)),
        SERVER,
        "Folder whose files clients may download from /files/, for example those that a bot writes. Needs the API key, if there is one.",
    ),
    flag(
        None,
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
        "How long live sessions may continue after SIGTERM or Ctrl-C, while new ones are refused. A second signal ends them at once. [default: 0]",
    ),
    flag(
        None,
        "--cluster-key-file",
        FlagKind::Value("FILE", |args, text| put(&mut args.cluster_key_file, text)),
        SERVER,
        "Makes this runner a replica behind a balancer: session ids, WebSocket tokens and webhook tokens of one replica are good at all that have the same key, on the first line of a file (`openssl rand -hex 32`). See docs/scale.md.",
    ),
    flag(
        None,
        "--replica-name",
        FlagKind::Value("NAME", |args, text| put(&mut args.replica_name, text)),
        SERVER,
        "Name by which the balancer finds this replica again: every `pc_id` begins with it, and /status has it. Without it, a random name.",
    ),
    flag(
        None,
        "--metrics",
        FlagKind::Value("off|local|any", |args, text| put(&mut args.metrics, metrics(&text)?)),
        SERVER,
        "Who may read /metrics, and list and end live sessions: `off` no one, `local` this machine, `any` everyone, sessions with the key only. [default: local]",
    ),
    flag(
        None,
        "--max-sessions",
        FlagKind::Value("N", |args, text| {
            put(&mut args.sessions_max, number(&text, 1, SESSIONS_MAX_HIGHEST)?)
        }),
        SERVER,
        "Maximum number of live sessions, over every transport. Further callers get 503 with Retry-After. [default: 32]",
    ),
    flag(
        None,
        "--workers",
        FlagKind::Value("N", |args, text| put(&mut args.workers, number(&text, 1, WORKERS_MAX)?)),
        SERVER,
        "Threads that run sessions. 1 runs everything on the main thread. [default: one per core]",
    ),
    flag(
        Some('t'),
        "--transport",
        FlagKind::Value("T", |args, text| put(&mut args.transport, transport(&text)?)),
        SERVER,
        "The only transport that `POST /start` accepts, and its default. It does not restrict \
         /api/offer, /ws and /ws-client.",
    ),
    flag(
        None,
        "--rtc-port",
        FlagKind::Value("N", |args, text| put(&mut args.rtc_port, number(&text, 0, u16::MAX)?)),
        WEBRTC,
        "UDP port that all WebRTC sessions share. 0 picks a free port. [default: the number of the HTTP port]",
    ),
    flag(
        None,
        "--ice-servers",
        FlagKind::List("SERVER", |args, text| push(&mut args.ice_servers, text)),
        WEBRTC,
        "STUN and TURN servers for the runner and its clients: URLs, or JSON objects with `urls`, `username` and `credential`.",
    ),
    flag(
        None,
        "--ice-address",
        FlagKind::Repeatable("ADDR", |args, text| push(&mut args.ice_addresses, ice_address(&text)?)),
        WEBRTC,
        "Additional address to offer to clients, such as the public address of a NAT. Repeatable.",
    ),
    flag(
        None,
        "--embedded",
        FlagKind::Switch(|args| args.embedded = true),
        WEBRTC,
        "Offer every client only the IPv4 address of `--host`, for microcontrollers that read a single address. Without it, a device is offered the address at which it reached the runner, and a browser all addresses.",
    ),
    flag(
        None,
        "--opus-complexity",
        FlagKind::Value("N", |args, text| {
            put(&mut args.opus_complexity, number(&text, 0, OPUS_COMPLEXITY_MAX)?)
        }),
        WEBRTC,
        "Complexity of the Opus encoder, 0 to 10. Lower values need less CPU. [default: 3]",
    ),
    flag(
        None,
        "--bot",
        FlagKind::Value("NAME", |args, text| put(&mut args.bot, bot(&text)?)),
        BOTS,
        "Built-in bot: `parrot` repeats what you say after you pause, `echo` plays every frame straight back, `realtime` \
         talks by a speech-to-speech service (REALTIME_ variables below), `cascade` by a recogniser, a chat model and a \
         voice (CASCADE_ variables). A command after `--` replaces it. [default: parrot]",
    ),
    flag(
        None,
        "--bot-audio",
        FlagKind::Value("protobuf|pcm", |args, text| put(&mut args.bot_audio, bot_audio(&text)?)),
        BOTS,
        "How the command after `--` gets audio: `protobuf` frames over a WebSocket, with texts, keys and marks, or \
         plain `pcm` (16-bit, mono, little-endian) on stdin and stdout. [default: protobuf]",
    ),
    flag(
        None,
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
    flag(
        None,
        "--tools",
        FlagKind::Value("COMMAND|URL", |args, text| put(&mut args.tools, text)),
        BOTS,
        "Functions for the model of `--bot realtime` and `--bot cascade`: a command that declares and runs them with JSON lines on stdin and \
         stdout, one process per session, or the URL of an HTTP endpoint. No shell reads the command; quotes keep words \
         together.",
    ),
    flag(
        None,
        "--pass-env",
        FlagKind::List("NAME", |args, text| push(&mut args.pass_env, text)),
        BOTS,
        "Secrets of the runner to pass to the command after `--`, such as VIDEOROOM_API_KEY. The command gets all other variables anyway.",
    ),
    flag(
        None,
        "--sandbox",
        FlagKind::Switch(|args| args.sandbox = true),
        BOTS,
        "Run the command after `--`, or the program of functions, in bubblewrap: it writes to its working folder and a temporary one alone, \
         and sees neither other processes, the state folder, nor the files with the runner's keys. Needs the program bwrap.",
    ),
    flag(
        None,
        "--allowed-origins",
        FlagKind::List("ORIGIN", |args, text| push(&mut args.allowed_origins, text)),
        ACCESS,
        "Web pages that may connect, such as https://app.example.net. Separate several by commas or spaces. [default: all]",
    ),
    flag(
        None,
        "--allowed-hosts",
        FlagKind::List("HOST", |args, text| push(&mut args.allowed_hosts, text)),
        ACCESS,
        "Additional host names of this server. Requests for other names get 421. [default: localhost, addresses, this machine's names, *.local, the host of --proxy]",
    ),
    flag(
        None,
        "--trusted-proxies",
        FlagKind::List("ADDR[/BITS]", |args, text| networks(&mut args.trusted_proxies, &text)),
        ACCESS,
        "Reverse proxies whose `X-Forwarded-For` or `Forwarded` header gives the address of the caller. [default: this machine with --proxy, else none]",
    ),
    flag(
        None,
        "--api-key",
        FlagKind::Value("KEY", |args, text| put(&mut args.api_key, text)),
        ACCESS,
        "Require `Authorization: Bearer KEY` on /start, /api/offer, /whip, /whep and /v1/realtime. RUNNER_API_KEY does the same and does not show in the list of processes.",
    ),
    flag(
        None,
        "--api-key-file",
        FlagKind::Value("FILE", |args, text| put(&mut args.api_key_file, text)),
        ACCESS,
        "Like `--api-key`, with the key on the first line of a file. `auto` makes a key at the first start and keeps it as `api-key` in the folder of --state-dir.",
    ),
    flag(
        None,
        "--ws-auth",
        FlagKind::Value("none|token", |args, text| {
            put(
                &mut args.ws_auth,
                WsAuth::from_name(&text).ok_or_else(|| Expected::one_of(&text, &["none", "token"], &[]))?,
            )
        }),
        ACCESS,
        "`token` requires a one-time token on /ws and /ws-client, which `/start` and the telephony webhook issue. [default: none]",
    ),
    flag(
        Some('x'),
        "--proxy",
        FlagKind::Value("HOST", |args, text| put(&mut args.proxy, text)),
        PROVIDERS,
        "Public host name of this server, which telephony providers connect to. [default with -t PROVIDER: the first --acme-name, if there is one]",
    ),
    flag(
        None,
        "--no-verify-webhooks",
        FlagKind::Switch(|args| args.no_verify_webhooks = true),
        PROVIDERS,
        "Do not verify the signatures of telephony webhooks. By default they are verified if a credential for that is set.",
    ),
    flag(
        None,
        "--unverified-calls",
        FlagKind::Switch(|args| args.unverified_calls = true),
        PROVIDERS,
        "Accept calls on /ws without proof that they come from their provider. Without this option, when webhooks are verified, a call needs the token from its webhook or the provider's signature.",
    ),
    flag(
        Some('d'),
        "--direct",
        FlagKind::Switch(|args| args.direct = true),
        PROVIDERS,
        "Run one bot in a Daily room, without a web server. Implies `-t daily` and needs VIDEOROOM_API_KEY.",
    ),
    flag(
        None,
        "--dialin",
        FlagKind::Switch(|args| args.dialin = true),
        PROVIDERS,
        "Serve the dial-in webhook of Daily. Needs VIDEOROOM_API_KEY.",
    ),
    flag(
        None,
        "--no-dialin",
        FlagKind::Switch(|args| args.dialin = false),
        PROVIDERS,
        "Do not serve the dial-in webhook. This is the default.",
    ),
    flag(
        None,
        "--messaging",
        FlagKind::Switch(|args| args.messaging = true),
        PROVIDERS,
        "Answer WhatsApp calls: serve the webhook at /messaging. Needs MESSAGING_TOKEN, MESSAGING_PHONE_NUMBER_ID, MESSAGING_APP_SECRET and MESSAGING_WEBHOOK_VERIFICATION_TOKEN.",
    ),
    flag(
        None,
        "--register",
        FlagKind::Optional("room|participant|publisher", |args, text| {
            put(&mut args.worker.job_type, job_type(&text)?)
        }),
        PROVIDERS,
        "Register at the LiveKit server, which then sends the runner into rooms: one bot per room, per participant, or per participant that publishes. Needs MEDIAROOM_URL, MEDIAROOM_API_KEY and MEDIAROOM_API_SECRET.",
    ),
    flag(
        None,
        "--agent-name",
        FlagKind::Value("NAME", |args, text| put(&mut args.worker.agent_name, text)),
        PROVIDERS,
        "Name by which rooms ask for the bot of `--register`. An empty name gets a job for every room. [default: bot]",
    ),
    flag(
        None,
        "--deployment",
        FlagKind::Value("NAME", |args, text| put(&mut args.worker.deployment, text)),
        PROVIDERS,
        "Deployment that rooms have to name, too, for the bot of `--register`.",
    ),
    flag(
        None,
        "--target-load",
        FlagKind::Value("LOAD", |args, text| {
            put(&mut args.worker.target_load_percent, target_load(&text)?)
        }),
        PROVIDERS,
        "`agents.target_load` of the LiveKit server: the load that a full runner approaches, 0.01 to 1. [default: 0.7]",
    ),
    flag(
        None,
        "--moq-serve",
        FlagKind::Switch(|args| args.moq.serve = true),
        MOQ,
        "Listen for callers, even with `--moq-connect`. This is the default.",
    ),
    flag(
        None,
        "--moq-connect",
        FlagKind::Value("URL", |args, text| put(&mut args.moq.connect, text)),
        MOQ,
        "Connect to this relay instead of listening: SCHEME://HOST[:PORT][/PATH]. With http, anyone on the way can take its place. [default port: 443 for https, 80 for http; default path: /moq]",
    ),
    flag(
        None,
        "--moq-bind",
        FlagKind::Value("ADDR:PORT", |args, text| put(&mut args.moq.bind, text)),
        MOQ,
        "UDP address to listen on, or to connect to the relay from. Port 0 picks a free port. [default: [::]:4080, or any port with --moq-connect]",
    ),
    flag(
        None,
        "--moq-namespace",
        FlagKind::Value("NAME", |args, text| put(&mut args.moq.namespace, text)),
        MOQ,
        "Namespace of the broadcasts of every session. [default: that of the `/start` request, else a random one per session]",
    ),
    flag(
        None,
        "--moq-bot-id",
        FlagKind::Value("ID", |args, text| put(&mut args.moq.bot_id, text)),
        MOQ,
        "Name of the bot's broadcast in the namespace. [default: response]",
    ),
    flag(
        None,
        "--moq-client-id",
        FlagKind::Value("ID", |args, text| put(&mut args.moq.client_id, text)),
        MOQ,
        "Name of the caller's broadcast in the namespace. [default: request]",
    ),
    flag(
        None,
        "--moq-tls-cert",
        FlagKind::Value("FILE", |args, text| put(&mut args.moq.tls_cert, text)),
        MOQ,
        "Certificate of the UDP port, a PEM file, read again on SIGHUP. With --moq-connect: the relay's self-signed certificate, which `/start` names to browsers. [default: that of --tls if this system trusts it, else a self-signed one]",
    ),
    flag(
        None,
        "--moq-tls-key",
        FlagKind::Value("FILE", |args, text| put(&mut args.moq.tls_key, text)),
        MOQ,
        "Private key of that certificate, a PEM file.",
    ),
    flag(
        None,
        "--moq-tls-generate",
        FlagKind::Value("HOST", |args, text| put(&mut args.moq.tls_generate, text)),
        MOQ,
        "Name in the self-signed certificate, and host in the URL that callers receive. [default: the host at which the caller reached the server]",
    ),
    flag(
        None,
        "--moq-tls-insecure",
        FlagKind::Switch(|args| args.moq.tls_insecure = true),
        MOQ,
        "Do not verify the relay's certificate.",
    ),
    flag(
        None,
        "--env-file",
        // The start reads it before the options, whose variables it sets.
        FlagKind::Value("FILE", |args, text| put(&mut args.env_file, text)),
        GENERAL,
        "Read variables from this file, all of them, in place of those that are taken from .env in the working directory.",
    ),
    flag(
        Some('v'),
        "--verbose",
        FlagKind::Count(|args| args.verbosity = args.verbosity.saturating_add(1)),
        GENERAL,
        "Log more: -v decisions, -vv packets, -vvv libraries. RUST_LOG, when set, replaces this.",
    ),
    flag(
        None,
        "--log",
        FlagKind::Value("text|json", |args, text| put(&mut args.log, log_format(&text)?)),
        GENERAL,
        "Format of the log on stderr: `text`, or `json` with one object per line. [default: text]",
    ),
    flag(
        Some('h'),
        "--help",
        FlagKind::Help,
        GENERAL,
        "Print this help; -h prints a summary.",
    ),
    flag(Some('V'), "--version", FlagKind::Version, GENERAL, "Print the version."),
];

// The help contains these defaults.
const _: () = assert!(SESSIONS_MAX_DEFAULT == 32 && OPUS_COMPLEXITY_DEFAULT == 3);

fn transport(text: &str) -> Result<Transport, Expected> {
    Transport::from_name(text).ok_or_else(|| {
        let names = transports().map(common_name);
        let wire_names: Vec<&str> = transports().map(Transport::name).collect();
        Expected::one_of(text, &names.collect::<Vec<_>>(), &wire_names)
    })
}

/// Returns all transports, in the order of the help.
pub(super) fn transports() -> impl Iterator<Item = Transport> {
    Transport::ALL.into_iter()
}

/// Returns the common name of a transport: its first alias, or its wire name without one.
pub(super) fn common_name(transport: Transport) -> &'static str {
    let name = transport.name();
    aliases::aliases(Area::Transport, name).first().copied().unwrap_or(name)
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

fn ice_address(text: &str) -> Result<IpAddr, Expected> {
    let usable = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast(),
    };
    let address = text.parse().ok().filter(usable);
    address.ok_or_else(|| "the IP address of one machine".into())
}

fn metrics(text: &str) -> Result<MetricsAccess, Expected> {
    match text {
        "off" => Ok(MetricsAccess::Off),
        "local" => Ok(MetricsAccess::Local),
        "any" => Ok(MetricsAccess::Any),
        _ => Err(Expected::one_of(text, &["off", "local", "any"], &[])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_long_names_have_dashes() {
        for (i, flag) in FLAGS.iter().enumerate() {
            assert!(flag.long.starts_with("--"), "{}", flag.long);
            for other in &FLAGS[i + 1..] {
                assert_ne!(flag.long, other.long);
                assert!(flag.short.is_none() || flag.short != other.short, "{}", other.long);
            }
        }
    }

    #[test]
    fn every_option_has_a_heading_and_a_help_text() {
        for flag in FLAGS {
            assert!(GROUPS.contains(&flag.group));
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
    fn ice_addresses_are_unicast() {
        for good in ["203.0.113.7", "2001:db8::1", "127.0.0.1"] {
            assert!(ice_address(good).is_ok(), "{good}");
        }
        for bad in [
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
            "host",
            "1.2.3",
            "1.2.3.4:5",
        ] {
            assert!(ice_address(bad).is_err(), "{bad}");
        }
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
