//! The text on stdout when the server listens.
//!
//! In: the configuration and the bound addresses. Out: a few lines. One of them is `listening on
//! http://HOST:PORT`, for programs to parse. The others tell people which URL to open, who may
//! call, and which settings differ from the defaults. The API key is the only secret in it, and
//! only on a terminal: it follows the `#` of the URL, which browsers do not send to servers. On a
//! terminal, a URL of the local network is also shown as a QR code, for phones.

use std::ffi::OsStr;
use std::net::SocketAddr;

use super::features::guarded;
use super::qr;
use crate::config::{BuiltInBot, Config, Host, ListenAddresses, ServiceAccess, Tls, Transport};
use crate::features::{Feature, serves_clients, sockets};
use crate::io::module::BannerRow;
use crate::io::modules;
use crate::limits::SESSIONS_MAX_DEFAULT;
use crate::proto::http::page_address::{lan_address, local_url, page_url, phone_url};
use crate::proto::modules::shared_udp_port;
use crate::proto::options::hosts::is_local_name;
use crate::proto::process::script;

/// Returns the banner, with a line break at its end.
pub fn text(config: &Config, listening: &ListenAddresses, on_terminal: bool) -> String {
    let key = config
        .api_key
        .as_ref()
        .filter(|_| on_terminal && EntryPoint::BUILT == EntryPoint::Page);
    let fragment = key.map_or_else(String::new, |key| format!("#key={}", form_encoded(key.expose())));
    let mut rows = address_rows(config, listening, &fragment);
    if config.sessions_max != SESSIONS_MAX_DEFAULT {
        rows.push(("Sessions", format!("at most {}", config.sessions_max)));
    }
    match config.bots.is_empty() {
        true => rows.extend(bot_rows(config, true)),
        false => rows.extend(config.bots.iter().flat_map(|bot| {
            let rows = bot_rows(&bot.config, false).into_iter();
            rows.map(|(label, text)| (label, format!("{}: {text}", bot.name)))
        })),
    }
    if let Some(transport) = config.transport {
        rows.push(("Transport", format!("/start accepts {} only", full_name(transport))));
    }
    rows.extend(modules::banner_rows(config, listening));
    rows.extend(access_rows(config));
    rows.push(("Stop", "Ctrl-C".into()));
    let mut lines = vec![
        format!("edge-runner {}", env!("CARGO_PKG_VERSION")),
        format!("listening on {}", config.host.url(listening.port)),
    ];
    lines.extend(https_url(config, listening.port).map(|url| format!("         and {url}")));
    lines.push(String::new());
    lines.extend(rows.into_iter().map(|(label, text)| format!("  {label:<11}{text}")));
    lines.push(String::new());
    if on_terminal && let Some(url) = phone_url(config, listening) {
        lines.extend(qr::code(&format!("{url}{fragment}")));
    }
    lines.join("\n")
}

/// The rows about one bot; the only one has a hint how to have another.
fn bot_rows(config: &Config, is_only: bool) -> Vec<BannerRow> {
    let mut rows = Vec::new();
    if let Some((program, arguments)) = config.command.as_ref().and_then(|command| command.split_first()) {
        // Other arguments than its script may contain secrets.
        let script = script(arguments).map_or_else(String::new, |script| format!(" {}", sanitized(script)));
        rows.push(("Bot", format!("{}{script}, once per session", sanitized(program))));
    }
    if let Some(name) = config.bot_name.as_deref().filter(|_| config.command.is_none()) {
        rows.push(("Bot", sanitized(name.as_ref())));
    }
    if config.runs_built_in_bot() && config.bot.feature().is_none() {
        let hint = match is_only {
            true => "; `--bot realtime` is an assistant, `-- COMMAND` your own",
            false => "",
        };
        rows.push(("Bot", format!("{}, built in{hint}", config.bot.name())));
    }
    if config.bot == BuiltInBot::Realtime && config.runs_built_in_bot() {
        let realtime = &config.assistant.realtime;
        let (host, model) = (realtime.url.host(), &realtime.model);
        rows.push((
            "Bot",
            format!("realtime: the speech of callers goes to {host}, model {model}"),
        ));
    }
    if let Some(services) = config
        .assistant
        .cascade
        .services
        .as_ref()
        .filter(|_| config.runs_built_in_bot())
    {
        let host = |access: &ServiceAccess| access.endpoint().host().to_owned();
        rows.push((
            "Bot",
            format!(
                "cascade: recogniser at {}, chat model at {}, voice at {}",
                host(&services.recognizer.access),
                host(&services.chat.access),
                host(&services.voice.access)
            ),
        ));
    }
    rows
}

/// Returns the URL of HTTPS on the same port; `None` without TLS.
pub fn https_url(config: &Config, port: u16) -> Option<String> {
    (config.tls != Tls::Off).then(|| config.host.url(port).replacen("http", "https", 1))
}

/// Returns the common name of a transport, followed by its wire name if that differs.
fn full_name(transport: Transport) -> String {
    match (transport.common_name(), transport.name()) {
        (common, name) if common == name => name.to_owned(),
        (common, name) => format!("{common} ({name})"),
    }
}

/// The rows with the addresses for callers and devices.
fn address_rows(config: &Config, listening: &ListenAddresses, fragment: &str) -> Vec<BannerRow> {
    let mut rows = Vec::new();
    let calls_only = config.transport.is_some_and(|transport| !transport.is_for_pages());
    let url = page_url(config, listening) + fragment;
    match EntryPoint::BUILT {
        EntryPoint::Page if !calls_only => rows.push(("Talk", format!("open {url}"))),
        EntryPoint::Page => rows.push(("Test", format!("open {url}, where the page simulates a call"))),
        EntryPoint::Client if !calls_only => {
            rows.push(("Talk", format!("connect a client to {url}; this build has no page")));
        }
        EntryPoint::Client | EntryPoint::Provider => {}
    }
    // On this machine alone, a proxy is for tests.
    if let Some(proxy) = config.proxy.as_deref().filter(|proxy| !is_local_name(proxy))
        && EntryPoint::BUILT == EntryPoint::Page
        && !calls_only
    {
        rows.push(("Public", format!("https://{proxy}/{fragment}")));
    }
    if !calls_only && !rows.is_empty() {
        rows.extend(browser_hint(config, listening).map(|hint| ("", hint)));
    }
    if let Some(address) = config.embedded {
        let url = Host::Address(address.into()).url(listening.port);
        rows.push(("Device", format!("{url}/api/offer")));
    }
    if let Some((protocol, port)) = shared_udp_port(listening).filter(|(_, port)| *port != listening.port) {
        rows.push((protocol, format!("UDP port {port}")));
    }
    rows
}

/// Returns what a browser needs to open the microphone on that page.
fn browser_hint(config: &Config, listening: &ListenAddresses) -> Option<String> {
    let address = lan_address(config, listening)?;
    if EntryPoint::BUILT != EntryPoint::Page {
        return None;
    }
    match &config.tls {
        Tls::Off => {
            let here = local_url(config.host, listening.port);
            let or_here = match config.host {
                Host::Address(address) if !address.is_unspecified() => String::new(),
                _ => format!(", or open {here} on this machine"),
            };
            Some(format!(
                "browsers need HTTPS for the microphone: add --tls auto{or_here}"
            ))
        }
        Tls::Auto => Some(format!(
            "accept the warning of the browser, or install http://{}/ca.crt once",
            SocketAddr::new(address, listening.port)
        )),
        Tls::Acme => Some(format!(
            "https://{}/ works as well, after a warning of the browser",
            SocketAddr::new(address, listening.port)
        )),
        Tls::Files { .. } => Some("use a host name of the certificate instead of the address".into()),
    }
}

/// The rows about access: keys, tokens and origins.
fn access_rows(config: &Config) -> Vec<BannerRow> {
    let mut rows = Vec::new();
    if config.api_key.is_some() {
        rows.push(("Key", format!("`Authorization: Bearer KEY` for {}", guarded())));
        if let Some(sockets) = sockets().filter(|_| !config.ws_tokens) {
            rows.push(("", format!("{sockets} need no key; see --ws-auth token")));
        }
    }
    if config.ws_tokens {
        rows.push(("Tokens", "one per WebSocket, from /start or a webhook".into()));
    }
    if !config.allowed_origins.is_empty() {
        rows.push(("Origins", format!("only {}", config.allowed_origins.join(", "))));
        let blocked = config.transport.and_then(Transport::blocked_by_origins);
        rows.extend(blocked.map(|blocked| ("", blocked.to_owned())));
    }
    rows
}

/// How callers can reach a runner of this build.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryPoint {
    /// With the built-in page, in a browser.
    Page,
    /// With their own client or device.
    Client,
    /// Only through a provider.
    Provider,
}

impl EntryPoint {
    const BUILT: EntryPoint = if Feature::Page.in_this_build() {
        EntryPoint::Page
    } else if serves_clients() {
        EntryPoint::Client
    } else {
        EntryPoint::Provider
    };
}

/// Encodes the key as the value of a form field; the page decodes the fragment that way.
fn form_encoded(key: &str) -> String {
    let mut text = String::new();
    for byte in key.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Returns the program of a bot with control characters replaced, so that it cannot control the
/// terminal.
fn sanitized(program: &OsStr) -> String {
    program
        .to_string_lossy()
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::cli::{CliCommand, Env, parse};
    use crate::config::MoqUdpPort;
    use crate::proto::telephony::invented::INVENTED;

    fn banner(arguments: &[&str], addresses: &[&str]) -> String {
        banner_with(&[], arguments, addresses)
    }

    fn banner_with(variables: &[(&str, &str)], arguments: &[&str], addresses: &[&str]) -> String {
        let addresses: Vec<IpAddr> = addresses.iter().map(|a| a.parse().expect("an address")).collect();
        let env = Env {
            addresses: addresses.clone(),
            names: vec!["Board".into()],
            ..Env::of_variables(variables)
        };
        let command = parse(arguments.iter().map(Into::into), &env).expect("valid arguments");
        let CliCommand::Serve { config, .. } = command else {
            panic!("serves");
        };
        let listening = ListenAddresses {
            port: 7860,
            rtc_port: 7861,
            moq_port: MoqUdpPort {
                number: 4080,
                has_ipv6: true,
            },
            addresses,
        };
        text(&config, &listening, false)
    }

    /// HTTPS shares the port. The line for programs stays as it is.
    #[test]
    fn the_url_of_https_follows_the_line_for_programs() {
        let text = banner(
            &["--host", "0.0.0.0", "--tls", "auto", "--state-dir", "state"],
            &["192.168.1.2"],
        );
        assert!(
            text.contains("\nlistening on http://0.0.0.0:7860\n         and https://0.0.0.0:7860\n\n"),
            "{text}"
        );
        assert!(!banner(&["--host", "0.0.0.0"], &["192.168.1.2"]).contains(" and https"));
    }

    /// without options there is one line for programs and one URL for people.
    #[test]
    fn shows_the_address_and_the_stop_key_without_options() {
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "edge-runner {version}\nlistening on http://localhost:7860\n\n  Talk       open http://localhost:7860/\n  \
             WebRTC     UDP port 7861\n  Bot        parrot, built in; `--bot realtime` is an assistant, `-- COMMAND` your own\n  Stop       Ctrl-C\n"
        );
        assert_eq!(banner(&[], &["127.0.0.1", "2001:db8::5", "192.0.2.5"]), expected);
        let config = Config::default();
        let same_port = ListenAddresses {
            port: 7860,
            rtc_port: 7860,
            moq_port: MoqUdpPort::default(),
            addresses: Vec::new(),
        };
        assert!(!text(&config, &same_port, false).contains("UDP"));
    }

    #[test]
    fn shows_the_bound_address_and_a_url_that_others_can_reach() {
        for (host, listening, open) in [
            ("0.0.0.0", "http://0.0.0.0:7860", "http://192.0.2.5:7860/"),
            ("192.0.2.5", "http://192.0.2.5:7860", "http://192.0.2.5:7860/"),
            ("2001:db8::5", "http://[2001:db8::5]:7860", "http://[2001:db8::5]:7860/"),
            ("127.0.0.1", "http://127.0.0.1:7860", "http://127.0.0.1:7860/"),
        ] {
            let text = banner(&["--host", host], &["192.0.2.5"]);
            assert!(text.contains(&format!("listening on {listening}\n")), "{text}");
            assert!(text.contains(&format!("  Talk       open {open}\n")), "{text}");
            let for_others = host != "127.0.0.1";
            assert_eq!(text.contains("add --tls auto"), for_others, "{text}");
            // The log has the warning, on the same terminal.
            assert!(!text.contains("anyone who reaches this machine"), "{text}");
        }
        let unknown = banner(&["--host", "0.0.0.0"], &[]);
        assert!(unknown.contains("open http://localhost:7860/\n"), "{unknown}");
    }

    /// The public name leads to the runner from everywhere and has no warning, unlike the address.
    #[test]
    fn shows_the_public_name_of_an_acme_certificate() {
        let arguments = [
            "--host=0.0.0.0",
            "--tls=acme",
            "--acme-name=bot.example.net",
            "--state-dir=s",
        ];
        let text = banner(&arguments, &["192.168.1.2"]);
        for part in [
            "open https://bot.example.net/\n",
            "https://192.168.1.2:7860/ works as well, after a warning",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn shows_the_given_options() {
        let arguments = [
            "--embedded",
            "--host=192.0.2.5",
            "-twebrtc",
            "--max-sessions=4",
            "--allowed-origins",
            "https://a",
            "https://b",
        ];
        let text = banner(&arguments, &["192.0.2.5"]);
        for part in [
            "http://192.0.2.5:7860/api/offer",
            "/start accepts webrtc only",
            "at most 4",
            "only https://a, https://b",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    /// The page cannot make telephone calls, but simulate them.
    #[test]
    fn shows_the_page_for_simulated_calls_with_a_telephony_transport() {
        let text = banner(
            &["-t", "telephony_a", "-x", "bots.example.net", "--host", "192.168.1.2"],
            &["192.168.1.2"],
        );
        assert!(
            text.contains("  Transport  /start accepts twilio (telephony_a) only\n"),
            "{text}"
        );
        assert!(!text.contains("Talk") && !text.contains("--tls auto"), "{text}");
        assert!(
            text.contains("  Test       open http://192.168.1.2:7860/, where the page simulates a call\n"),
            "{text}"
        );
    }

    /// With TLS only the HTTPS URL is shown, and how to trust its certificate.
    #[test]
    fn shows_the_https_url_with_tls() {
        let with = |host: &str, tls: &str| {
            let arguments = ["--host", host, "--state-dir", "/s", "--tls", tls];
            banner(&arguments, &["127.0.0.1", "2001:db8::5", "192.0.2.5"])
        };
        let auto = with("0.0.0.0", "auto");
        assert!(auto.contains("listening on http://0.0.0.0:7860\n"), "{auto}");
        assert!(auto.contains("  Talk       open https://192.0.2.5:7860/\n"), "{auto}");
        assert!(auto.contains("or install http://192.0.2.5:7860/ca.crt once"), "{auto}");
        let six = with("2001:db8::5", "auto");
        assert!(six.contains("open https://[2001:db8::5]:7860/\n"), "{six}");
        let files = with("192.0.2.5", "c.pem:k.pem");
        assert!(
            files.contains("open https://192.0.2.5:7860/\n") && !files.contains("ca.crt"),
            "{files}"
        );
        let local = with("localhost", "auto");
        assert!(
            local.contains("open https://localhost:7860/\n") && !local.contains("ca.crt"),
            "{local}"
        );
    }

    fn banner_at(host: [u8; 4], key: Option<&str>, on_terminal: bool) -> String {
        let config = crate::proto::config! {
            host: Host::Address(host.into()),
            tls: Tls::Auto,
            api_key: key.map(crate::config::Secret::new),
            ..Config::default()
        };
        let listening = ListenAddresses {
            port: 7860,
            rtc_port: 7861,
            moq_port: MoqUdpPort {
                number: 4080,
                has_ipv6: true,
            },
            addresses: vec![IpAddr::from([192, 168, 1, 2])],
        };
        text(&config, &listening, on_terminal)
    }

    #[test]
    fn shows_a_qr_code_on_terminals_for_local_network_addresses() {
        for (host, on_terminal, shown) in [
            ([0, 0, 0, 0], true, true),
            ([192, 168, 1, 2], true, true),
            ([192, 168, 1, 2], false, false),
            ([127, 0, 0, 1], true, false),
            ([8, 8, 8, 8], true, false),
        ] {
            let text = banner_at(host, None, on_terminal);
            assert_eq!(text.contains('█'), shown, "{host:?} {on_terminal}");
            assert!(text.ends_with('\n'));
        }
        let expected = qr::code("https://192.168.1.2:7860/#key=hunter2").expect("a short text");
        assert!(banner_at([0, 0, 0, 0], Some("hunter2"), true).ends_with(&expected));
    }

    /// The key is shown in the URL on a terminal only. A runner without a key gets a warning.
    #[test]
    fn shows_the_key_only_on_a_terminal() {
        let seen = banner_at([0, 0, 0, 0], Some("hunter2/+&%x"), true);
        assert!(
            seen.contains("open https://192.168.1.2:7860/#key=hunter2%2F%2B%26%25x\n"),
            "{seen}"
        );
        let piped = banner_at([0, 0, 0, 0], Some("hunter2"), false);
        assert!(!piped.contains("hunter2") && !piped.contains("#key"), "{piped}");
    }

    const KEY: &str = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";

    /// the URLs to enter at the provider are complete, and missing settings
    /// are named.
    #[test]
    fn shows_the_urls_for_telephony_providers() {
        let of = |variables: &[(&str, &str)], arguments: &[&str]| {
            let mut all = vec!["-x", "bots.example.net"];
            all.extend(arguments);
            banner_with(variables, &all, &[])
        };
        let a = [("TELCO_A_ACCOUNT_SID", "AC1"), ("TELCO_A_AUTH_TOKEN", "hunter2")];
        let b = [("TELCO_B_API_KEY", "hunter2"), ("TELCO_B_PUBLIC_KEY", KEY)];
        let c = [("TELCO_C_AUTH_ID", "MA1"), ("TELCO_C_AUTH_TOKEN", "hunter2")];
        for (name, credentials) in [("telephony_a", a), ("telephony_b", b), ("telephony_c", c)] {
            let bare = of(&[], &["-t", name]);
            assert!(bare.contains("  Webhook    https://bots.example.net/, signatures are not verified\n"));
            assert!(bare.contains("  Media      wss://bots.example.net/ws\n"));
            assert!(bare.contains("  Hang-up    none"), "{bare}");
            let whole = of(&credentials, &["-t", name]);
            assert!(whole.contains("  Webhook    https://bots.example.net/, signed by the provider\n"));
            assert!(!whole.contains("Hang-up") && !whole.contains("hunter2"), "{whole}");
            let off = of(&credentials, &["-t", name, "--no-verify-webhooks"]);
            assert!(off.contains("signatures are not verified\n"), "{off}");
            assert!(whole.contains("  Calls      need a token from the webhook"), "{whole}");
            let switched = of(&credentials, &["-t", name, "--unverified-calls"]);
            for open in [&bare, &off, &switched] {
                assert!(
                    open.contains("  Calls      open to anyone who knows the address\n"),
                    "{open}"
                );
            }
            assert!(
                switched.contains("  Unverified calls are accepted without proof"),
                "{switched}"
            );
            let tokens = of(&[], &["-t", name, "--ws-auth", "token"]);
            assert!(tokens.contains("which the webhook issues to anyone\n"), "{tokens}");
        }
        let fifth = super::text(
            &crate::proto::config! {
                transport: Some(Transport::Telephony(&INVENTED)),
                proxy: Some("bots.example.net".into()),
                ..Config::default()
            },
            &ListenAddresses {
                port: 7860,
                rtc_port: 7861,
                moq_port: MoqUdpPort::default(),
                addresses: Vec::new(),
            },
            false,
        );
        for row in [
            "  Transport  /start accepts quintel only\n",
            "  Webhook    https://bots.example.net/, signatures are not verified\n",
            "  Hang-up    none",
        ] {
            assert!(fifth.contains(row), "{fifth}");
        }
        let d = of(&[], &["-t", "exotel"]);
        assert!(d.contains("  Webhook    https://bots.example.net/\n  Media      wss://bots.example.net/ws\n"));
        assert!(!d.contains("Hang-up"), "{d}");
        assert!(banner(&["-t", "telephony_d"], &[]).contains("  Media      wss://PUBLIC-HOST/ws\n"));
        assert!(!of(&a, &[]).contains("Webhook"), "without `-t` there is none");
    }

    /// with `-t daily` and `-t livekit`, missing variables are named.
    #[test]
    fn shows_rooms_only_with_their_transport() {
        let all = [
            ("VIDEOROOM_API_KEY", "hunter2"),
            ("MEDIAROOM_URL", "wss://rooms.example"),
            ("MEDIAROOM_API_KEY", "hunter2"),
            ("MEDIAROOM_API_SECRET", "hunter2"),
        ];
        for (variables, arguments) in [
            (&[][..], &[][..]),
            (&all[..], &[]),
            (&all[..], &["-t", "webrtc"]),
            (&all[..], &["-t", "websocket"]),
        ] {
            let text = banner_with(variables, arguments, &[]);
            assert!(!text.contains("Rooms") && !text.contains("hunter2"), "{text}");
        }
        let rooms = |variables: &[(&str, &str)], arguments: &[&str]| {
            let text = banner_with(variables, arguments, &[]);
            assert!(!text.contains("hunter2"), "{text}");
            text.lines()
                .find(|line| line.starts_with("  Rooms"))
                .expect("a row")
                .to_owned()
        };
        assert_eq!(
            rooms(&[], &["-t", "daily"]),
            "  Rooms      Daily needs VIDEOROOM_API_KEY (or DAILY_API_KEY)"
        );
        assert_eq!(
            rooms(&all[..3], &["-t", "livekit"]),
            "  Rooms      LiveKit needs MEDIAROOM_API_SECRET (or LIVEKIT_API_SECRET)"
        );
        assert!(rooms(&all, &["-t", "daily"]).starts_with("  Rooms      open http://localhost:7860/videoroom, or"));
        assert!(rooms(&all, &["-t", "livekit"]).contains("wss://rooms.example"));
        let key = ["-t", "videoroom", "--api-key", "0123456789abcdef"];
        assert!(rooms(&all, &key).contains("call /start with the key"));
        assert!(banner_with(&all, &key, &[]).contains("  Key        `Authorization: Bearer KEY` for /videoroom\n"));
        let config = crate::proto::config! {
            transport: Some(Transport::Videoroom),
            videoroom: crate::config::Videoroom {
                key: Some(crate::config::Secret::new("k")),
                ..Default::default()
            },
            bot_enters_rooms: false,
            ..Config::default()
        };
        let listening = ListenAddresses {
            port: 7860,
            rtc_port: 7861,
            moq_port: MoqUdpPort {
                number: 4080,
                has_ipv6: true,
            },
            addresses: Vec::new(),
        };
        let stock = super::text(&config, &listening, false);
        assert!(
            stock.contains("  Rooms      none: the built-in bots cannot join rooms"),
            "{stock}"
        );
    }

    /// `-t moq` shows the UDP port and the URL of `/start`, or the relay without its token.
    #[test]
    fn shows_the_port_and_the_url_of_media_over_quic() {
        for (arguments, row) in [
            (&[][..], "  QUIC       UDP port 4080, https://localhost:4080/moq\n"),
            (
                &["--host", "0.0.0.0"],
                "  QUIC       UDP port 4080, https://192.0.2.5:4080/moq\n",
            ),
            (
                &["--moq-tls-generate", "robot.lan"],
                "  QUIC       UDP port 4080, https://robot.lan:4080/moq\n",
            ),
            (
                &["--moq-connect", "https://r?jwt=hunter2"],
                "  Relay      https://r:443/moq\n",
            ),
            (
                &["--ws-auth", "token"],
                "  Tokens     one per QUIC connection, from /start\n",
            ),
        ] {
            let text = banner(&[&["-t", "moq"], arguments].concat(), &["192.0.2.5"]);
            assert!(text.contains(row) && !text.contains("hunter2"), "{text}");
            assert!(text.contains("  Talk       open "), "{text}");
        }
        assert!(!banner(&[], &[]).contains("QUIC"));
    }

    /// the URL to enter at the provider does not depend on `-t`.
    #[test]
    fn shows_the_dial_in_webhook() {
        let key = ("VIDEOROOM_API_KEY", "hunter2");
        let row = "  Dial-in    https://PUBLIC-HOST/videoroom-dialin-webhook, signatures are not verified\n";
        assert!(banner_with(&[key], &["--dialin"], &[]).contains(row));
        let signed = banner_with(
            &[key, ("PINLESS_HMAC_SECRET", "c2VjcmV0")],
            &["--dialin", "-t", "webrtc", "-x", "bots.example.net"],
            &[],
        );
        let row = "  Dial-in    https://bots.example.net/videoroom-dialin-webhook, signed by the provider\n";
        assert!(signed.contains(row), "{signed}");
        assert!(!banner_with(&[key], &[], &[]).contains("Dial-in"));
    }

    /// providers send no Origin header, so a list of origins blocks them.
    #[test]
    fn shows_that_a_list_of_origins_blocks_providers() {
        let note = "providers send no Origin";
        let arguments = ["-x", "b.net", "--allowed-origins=https://a.net", "-t"];
        let with = |transport| banner(&[&arguments[..], &[transport]].concat(), &[]);
        assert!(with("telephony_a").contains(note) && with("telephony_d").contains(note));
        assert!(!with("webrtc").contains(note) && !banner(&["-x", "b.net", "-t", "twilio"], &[]).contains(note));
    }

    /// The arguments of a bot may contain secrets, and its path may contain any character.
    #[test]
    fn shows_the_program_of_a_bot_without_arguments() {
        let text = banner(
            &["--ws-auth", "token", "--", "/opt/bot\u{1b}[2J", "--key", "hunter2"],
            &[],
        );
        assert!(text.contains("  Bot        /opt/bot?[2J, once per session\n"), "{text}");
        assert!(!text.contains("hunter2") && !text.contains("--key"));
        assert!(text.contains("  Tokens     one per WebSocket"));
    }

    /// The URL for callers behind a proxy has the key, as the local one has.
    #[test]
    fn shows_the_public_url_of_a_proxy() {
        let key = ["--api-key", "0123456789abcdef"];
        let text = banner(&[&["-x", "bots.example.net"], &key[..]].concat(), &[]);
        assert!(text.contains("  Public     https://bots.example.net/\n"), "{text}");
        for local in ["localhost", "127.0.0.1"] {
            assert!(!banner(&["-x", local], &[]).contains("Public"), "{local}");
        }
        assert!(!banner(&["-x", "bots.example.net", "-t", "twilio"], &[]).contains("Public"));
    }

    /// Without a row, nothing says that there are other bots.
    #[test]
    fn shows_which_bot_talks() {
        assert!(banner(&[], &[]).contains("  Bot        parrot, built in; `--bot realtime`"));
        assert!(banner(&["--bot", "echo"], &[]).contains("  Bot        echo, built in;"));
        let script = banner(&["--", "python3", "bots/kitchen.py", "--key", "hunter2"], &[]);
        assert!(
            script.contains("  Bot        python3 bots/kitchen.py, once per session\n"),
            "{script}"
        );
    }

    /// The hint how to have another bot is for those who have not chosen any.
    #[test]
    fn several_bots_have_a_row_each() {
        let bot = |name: &str| crate::config::NamedBot::new(name, Config::default().into());
        let config = crate::proto::config! {
            bots: crate::config::BotTable::new(vec![bot("desk"), bot("sales")]),
            ..Config::default()
        };
        let listening = ListenAddresses {
            port: 7860,
            rtc_port: 7860,
            moq_port: MoqUdpPort::default(),
            addresses: Vec::new(),
        };
        let rows = "  Bot        desk: parrot, built in\n  Bot        sales: parrot, built in\n";
        assert!(super::text(&config, &listening, false).contains(rows));
    }

    /// A program's own bot is named, as a command after `--` is.
    #[test]
    fn shows_the_name_of_a_bot_of_ones_own() {
        let listening = ListenAddresses {
            port: 7860,
            rtc_port: 7860,
            moq_port: MoqUdpPort::default(),
            addresses: Vec::new(),
        };
        let config = crate::proto::config! {
            bot_name: Some("kitchen-bot".into()),
            ..Config::default()
        };
        assert!(super::text(&config, &listening, false).contains("  Bot        kitchen-bot\n"));
    }
}
