//! Properties of any configuration: the text of `.env`, arguments, ICE servers, origins, and the
//! content of a key file.
//!
//! In: three parts, separated by lines `%%`: the text of `.env`, arguments (one per line), and the
//! content of every file that an argument names. An accepted configuration is within its limits,
//! and no error or warning repeats a key.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use edge_runner::config::Config;
use edge_runner::inside::{CliCommand, Env, parse};
use edge_runner_proto::http::host;
use edge_runner_proto::limits;
use edge_runner_proto::options::env::{self, Variables};
use edge_runner_proto::webrtc::ice;

/// A shorter key may occur in a message by chance.
const TELLING_BYTES: usize = 16;

/// A configuration is within every limit, or is rejected with a message that repeats no key.
pub fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.splitn(3, "\n%%\n");
    let mut part = || parts.next().unwrap_or_default();
    let (file, arguments, key) = (part(), part(), part());
    let file = variables(file);
    let around = Env {
        variables: Variables::new([], file),
        addresses: vec![IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10))],
        make_key: &|_| Ok(key.into()),
        names: vec!["board".to_owned()],
        read: &|_| match key.is_empty() {
            true => Err(io::Error::from(io::ErrorKind::NotFound)),
            false => Ok(key.into()),
        },
        lookup_host: &|_| Vec::new(),
    };
    // The system passes no argument with a NUL in it.
    let typed: Vec<OsString> = arguments
        .lines()
        .filter(|line| !line.contains('\0'))
        .map(OsString::from)
        .collect();
    let is_secret = |text: &str| {
        let key = key.lines().next().unwrap_or_default().trim();
        // A key may stand where an option name belongs, and is repeated then. No option contains a
        // digit.
        let is_telling = key.len() >= TELLING_BYTES && key.contains(|c: char| c.is_ascii_digit());
        is_telling && !arguments.contains(key) && text.contains(key)
    };
    match parse(typed, &around) {
        Err(misuse) => {
            let text = misuse.to_string();
            assert!(!text.is_empty() && !is_secret(&text), "{text}");
        }
        Ok(CliCommand::Serve { config, warnings } | CliCommand::Doctor { config, warnings }) => {
            assert!(!warnings.iter().any(|warning| is_secret(warning)));
            assert!(!is_secret(&format!("{config:?}")));
            within_limits(&config);
        }
        Ok(CliCommand::Task(task)) => assert!(!is_secret(&format!("{task:?}"))),
        Ok(CliCommand::Help(text) | CliCommand::Version(text)) => assert!(!text.is_empty()),
        Ok(CliCommand::LocalList) => {}
    }
    for line in arguments.lines() {
        servers(line);
    }
}

/// The variables of a `.env` file encode back to the same variables, and a warning repeats no
/// value.
fn variables(text: &str) -> Vec<(String, String)> {
    let file = env::parse(text);
    assert!(file.warnings.len() <= text.lines().count());
    let mut again = String::new();
    let variables = |file: env::EnvFile| file.variables.into_iter().map(|line| (line.name, line.value));
    let warnings = file.warnings.clone();
    let found: Vec<(String, String)> = variables(file).collect();
    for (name, value) in &found {
        assert!(!name.is_empty() && !name.contains(['=', '\0', '\n']) && !value.contains('\0'));
        let value = value.replace('\\', "\\\\").replace('\'', "\\'");
        again.push_str(&format!("{name}='{value}'\n"));
    }
    let again = env::parse(&again);
    assert_eq!(again.warnings, Vec::<String>::new());
    assert_eq!(variables(again).collect::<Vec<_>>(), found);
    for (warning, line) in warnings.iter().zip(text.lines()) {
        assert!(line.len() < TELLING_BYTES || !warning.contains(line));
    }
    found
}

fn within_limits(config: &Config) {
    if let Some(key) = &config.api_key {
        assert!(limits::API_KEY_BYTES.contains(&key.expose().len()));
    }
    assert!(config.ice_servers.len() <= limits::ICE_SERVERS_MAX);
    assert!(config.ice_addresses.len() <= limits::ICE_ADDRESSES_MAX);
    assert!((1..=limits::SESSIONS_MAX_HIGHEST).contains(&config.sessions_max));
    assert!(
        config
            .workers
            .is_none_or(|workers| (1..=limits::WORKERS_MAX).contains(&workers))
    );
    assert!(config.drain <= limits::DRAIN_MAX && config.opus_complexity <= limits::OPUS_COMPLEXITY_MAX);
    for origin in &config.allowed_origins {
        let (scheme, host) = origin.split_once("://").expect("a whole origin");
        assert!(!scheme.is_empty() && !host.is_empty() && !host.contains(['/', ' ', ',']));
        assert_eq!(*origin, origin.to_ascii_lowercase());
    }
    let hosts = host::AllowedHosts::new(config);
    for name in &config.host_names {
        assert!(hosts.accepts(name.as_bytes()), "{name}");
    }
    assert!(
        config
            .proxy
            .as_ref()
            .is_none_or(|proxy| hosts.accepts(proxy.as_bytes()))
    );
}

/// Accepted ICE servers stay the same when a client gets them.
fn servers(text: &str) {
    let Ok(servers) = ice::parse([text]) else {
        return;
    };
    assert!(servers.len() <= limits::ICE_SERVERS_MAX);
    for server in &servers {
        assert!((1..=limits::ICE_URLS_MAX).contains(&server.urls.len()));
    }
    let json = ice::to_json(&servers).to_string();
    if !servers.is_empty() {
        assert_eq!(ice::parse([&*json]), Ok(servers));
    }
}
