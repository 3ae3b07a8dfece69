//! The text on stdout when the server listens.
//!
//! In: the configuration and the bound addresses. Out: a few lines, one of which is `listening on http://HOST:PORT`, for programs
//! to parse. The others say which address to open, who may call, and what differs from the defaults. The only secret is the API
//! key, and only on a terminal: it stands behind the `#` of the URL, which browsers do not send to servers. On a terminal, an
//! address of the local network is also shown as a QR code, for phones.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};

use super::features::{guarded, sockets};
use super::flags::common_name;
use super::qr;
use crate::config::{Config, Host, ListenAddresses, Tls, Transport};
use crate::features::Feature;
use crate::limits::SESSIONS_MAX_DEFAULT;
use crate::proto::address_scope::AddressScope;
use crate::proto::livekit::missing_variables;
use crate::proto::telephony::Provider;
use crate::proto::telephony::proof::is_protected;

/// A line of the text: its name, empty where it continues the line above, and what it says.
type BannerRow = (&'static str, String);

/// Makes the text, with a line break at its end.
pub fn text(config: &Config, listening: &ListenAddresses, on_terminal: bool) -> String {
    let key = config
        .api_key
        .as_ref()
        .filter(|_| on_terminal && EntryPoint::BUILT == EntryPoint::Page);
    let fragment = key.map_or_else(String::new, |key| format!("#key={}", form_encoded(key.expose())));
    let mut rows = addresses(config, listening, &fragment);
    if config.sessions_max != SESSIONS_MAX_DEFAULT {
        rows.push(("Sessions", format!("at most {}", config.sessions_max)));
    }
    if let Some(program) = config.command.as_ref().and_then(|command| command.first()) {
        // Its arguments may hold secrets.
        rows.push(("Bot", format!("{}, once per session", sanitized(program))));
    }
    if let Some(transport) = config.transport {
        rows.push(("Transport", format!("/start accepts {} only", full_name(transport))));
    }
    if let Some(provider) = config.transport.and_then(Transport::provider) {
        rows.extend(telephone(provider, config));
    }
    if config.telephony.unverified_calls {
        rows.push((
            "Unverified",
            "calls are accepted without proof from their provider".into(),
        ));
    }
    rows.extend(rooms(config, listening));
    rows.extend(access(config));
    rows.push(("Stop", "Ctrl-C".into()));
    let mut lines = vec![
        format!("edge-runner {}", env!("CARGO_PKG_VERSION")),
        format!("listening on {}", config.host.url(listening.port)),
        String::new(),
    ];
    lines.extend(rows.into_iter().map(|(name, what)| format!("  {name:<11}{what}")));
    lines.push(String::new());
    if on_terminal && is_for_phones(config, listening) {
        lines.extend(qr::code(&page_url(config, listening, &fragment)));
    }
    lines.join("\n")
}

/// Returns the name of a transport as people know it, with its wire name.
fn full_name(transport: Transport) -> String {
    match (common_name(transport), transport.name()) {
        (common, name) if common == name => name.to_owned(),
        (common, name) => format!("{common} ({name})"),
    }
}

/// Where callers and devices find the server.
fn addresses(config: &Config, listening: &ListenAddresses, fragment: &str) -> Vec<BannerRow> {
    let mut rows = Vec::new();
    let calls_only = config.transport.is_some_and(|transport| !transport.is_for_pages());
    let url = page_url(config, listening, fragment);
    match EntryPoint::BUILT {
        EntryPoint::Page if !calls_only => rows.push(("Talk", format!("open {url}"))),
        EntryPoint::Client if !calls_only => {
            rows.push(("Talk", format!("point a client at {url}; this build has no page")));
        }
        _ => {}
    }
    if !rows.is_empty() {
        rows.extend(browser_hint(config, listening).map(|hint| ("", hint)));
    }
    if let Some(address) = config.embedded {
        let url = Host::Address(address.into()).url(listening.port);
        rows.push(("Device", format!("{url}/api/offer")));
    }
    if Feature::WebRtc.in_this_build() && listening.rtc_port != listening.port {
        rows.push(("WebRTC", format!("UDP port {}", listening.rtc_port)));
    }
    rows
}

/// Returns the one URL to open: HTTPS if there is any, under the address by which other machines reach this one.
fn page_url(config: &Config, listening: &ListenAddresses, fragment: &str) -> String {
    let scheme = if config.tls == Tls::Off { "http" } else { "https" };
    let end = if EntryPoint::BUILT == EntryPoint::Page { "/" } else { "" };
    let authority = match lan_address(config, listening) {
        Some(address) => SocketAddr::new(address, listening.port).to_string(),
        None => {
            let url = local_url(config.host, listening.port);
            url.trim_start_matches("http://").to_owned()
        }
    };
    format!("{scheme}://{authority}{end}{fragment}")
}

/// Says what a browser needs to open its microphone on that page.
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
                _ => format!(", or {here} on this machine"),
            };
            Some(format!(
                "for the microphone, browsers need HTTPS: add --tls auto{or_here}"
            ))
        }
        Tls::Auto => Some(format!(
            "accept the browser's warning, or install http://{}/ca.crt once",
            SocketAddr::new(address, listening.port)
        )),
        Tls::Files { .. } => Some("use a name of the certificate in place of the address".into()),
    }
}

/// Tells whether phones of the local network can open the page.
fn is_for_phones(config: &Config, listening: &ListenAddresses) -> bool {
    let is_local = |address| {
        matches!(
            AddressScope::of(address),
            AddressScope::Private | AddressScope::LinkLocal
        )
    };
    let serves_pages = config.transport.is_none_or(Transport::is_for_pages);
    EntryPoint::BUILT == EntryPoint::Page && serves_pages && lan_address(config, listening).is_some_and(is_local)
}

/// Who may call, and with what.
fn access(config: &Config) -> Vec<BannerRow> {
    let mut rows = Vec::new();
    rows.extend(config.open_access_warning().map(|words| ("Warning", words.into())));
    if config.api_key.is_some() {
        let also = match config.transport {
            None | Some(Transport::Videoroom)
                if Feature::Videoroom.in_this_build() && config.videoroom.key.is_some() =>
            {
                ", and /videoroom"
            }
            _ => "",
        };
        rows.push(("Key", format!("`Authorization: Bearer KEY` for {}{also}", guarded())));
        if let Some(sockets) = sockets().filter(|_| !config.ws_tokens) {
            rows.push(("", format!("{sockets} need no key; see --ws-auth token")));
        }
    }
    if config.ws_tokens {
        rows.push(("Tokens", "one per WebSocket, from /start or a webhook".into()));
    }
    if !config.allowed_origins.is_empty() {
        rows.push(("Origins", format!("only {}", config.allowed_origins.join(", "))));
        if config.transport.is_some_and(Transport::is_telephony) {
            rows.push(("", "telephony providers send none, so their calls are refused".into()));
        }
    }
    rows
}

/// How callers reach a runner of this build.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryPoint {
    /// By the built-in page, in a browser.
    Page,
    /// By a client or a device of their own.
    Client,
    /// By a provider only.
    Provider,
}

impl EntryPoint {
    const BUILT: EntryPoint = if Feature::Page.in_this_build() {
        EntryPoint::Page
    } else if Feature::WebRtc.in_this_build() || Feature::WebSocket.in_this_build() {
        EntryPoint::Client
    } else {
        EntryPoint::Provider
    };
}

/// What has to be entered at a provider, and what becomes of its calls.
fn telephone(provider: &Provider, config: &Config) -> Vec<BannerRow> {
    let telephony = &config.telephony;
    // A provider that takes no markup does without `--proxy`.
    let host = config.proxy.as_deref().unwrap_or("PUBLIC-HOST");
    let are_signed = provider.verifies(&telephony.settings) && telephony.verify_webhooks;
    let calls = match (is_protected(provider, telephony), config.ws_tokens) {
        (true, _) if provider.signs_upgrades => "need the token of a webhook, or a signature of their own",
        (true, _) => "need the token of a webhook",
        (false, true) if are_signed => "need a token",
        (false, true) => "need a token, which anyone gets from the webhook",
        (false, false) => "open to anyone who finds the address",
    };
    let signatures = match (provider.signs(), are_signed) {
        (false, _) => "",
        (_, true) => ", signed by the provider",
        (_, false) => ", signatures are not verified",
    };
    let mut rows = vec![
        ("Webhook", format!("https://{host}/{signatures}")),
        ("Media", format!("wss://{host}/ws")),
        ("Calls", calls.into()),
    ];
    if !provider.hangs_up(&telephony.settings) {
        rows.push(("Hang-up", "none: its credentials are not set".into()));
    }
    rows
}

/// Where a session in a room begins, and what the rooms that were asked for lack.
fn rooms(config: &Config, listening: &ListenAddresses) -> Vec<BannerRow> {
    let mut rows = Vec::new();
    match config.transport {
        Some(Transport::Videoroom) => rows.push(("Rooms", daily_rooms(config, listening))),
        Some(Transport::Mediaroom) => rows.push(("Rooms", livekit_rooms(config))),
        _ => {}
    }
    let host = config.proxy.as_deref().unwrap_or("PUBLIC-HOST");
    if config.videoroom.dialin {
        let signatures = match config.videoroom.dialin_hmac {
            Some(_) => ", signed by the provider",
            None => ", signatures are not verified",
        };
        rows.push((
            "Dial-in",
            format!("https://{host}/videoroom-dialin-webhook{signatures}"),
        ));
    }
    if config.messaging.is_some() {
        rows.push(("WhatsApp", format!("https://{host}/messaging")));
    }
    rows
}

fn daily_rooms(config: &Config, listening: &ListenAddresses) -> String {
    match (&config.videoroom.key, config.bot_enters_rooms, &config.api_key) {
        (None, ..) => "daily needs VIDEOROOM_API_KEY".into(),
        (_, false, _) => "none: the built-in bots cannot join; add a bot that can, after `--`".into(),
        // A browser that opens an address sends no key.
        (_, true, Some(_)) => "ask /start with the key; it returns a room and a token".into(),
        (_, true, None) => format!(
            "open {}/videoroom, or ask /start; it returns a room and a token",
            local_url(config.host, listening.port)
        ),
    }
}

fn livekit_rooms(config: &Config) -> String {
    let missing = missing_variables(&config.mediaroom);
    match missing.is_empty() {
        false => format!("livekit needs {}", missing.join(", ")),
        true => {
            let url = config.mediaroom.url.as_deref().unwrap_or_default();
            format!("ask /start; it returns a room at {url} and a token")
        }
    }
}

/// The key as the value of a form field, which is how the page reads what stands behind the `#`.
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

/// The program of a bot, without what a terminal would obey.
fn sanitized(program: &OsStr) -> String {
    program
        .to_string_lossy()
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// The URL for a browser on this machine: browsers do not open an unspecified address.
fn local_url(host: Host, port: u16) -> String {
    match host {
        Host::Address(address) if address.is_unspecified() => Host::Localhost.url(port),
        other => other.url(port),
    }
}

/// The address under which other machines reach this one.
fn lan_address(config: &Config, listening: &ListenAddresses) -> Option<IpAddr> {
    match config.host {
        Host::Localhost => None,
        Host::Address(address) if address.is_loopback() => None,
        Host::Address(address) if !address.is_unspecified() => Some(address),
        Host::Address(_) => preferred(&listening.addresses),
    }
}

fn preferred(addresses: &[IpAddr]) -> Option<IpAddr> {
    let outside = |address: &&IpAddr| !address.is_loopback() && !address.is_unspecified();
    let mut usable = addresses.iter().filter(outside);
    usable
        .clone()
        .find(|address| address.is_ipv4())
        .or_else(|| usable.next())
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{CliCommand, Env, parse};
    use crate::proto::options::env::Variables;
    use crate::proto::telephony::invented::INVENTED;

    fn banner(arguments: &[&str], addresses: &[&str]) -> String {
        banner_with(&[], arguments, addresses)
    }

    fn banner_with(variables: &[(&str, &str)], arguments: &[&str], addresses: &[&str]) -> String {
        let own = variables
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let addresses: Vec<IpAddr> = addresses.iter().map(|a| a.parse().expect("an address")).collect();
        let env = Env {
            variables: Variables::new(own, []),
            addresses: addresses.clone(),
            names: vec!["Board".into()],
            read: &|_| Err(std::io::Error::other("no file")),
            lookup_host: &|_| Vec::new(),
        };
        let command = parse(arguments.iter().map(Into::into), &env).expect("valid arguments");
        let CliCommand::Serve { config, .. } = command else {
            panic!("serves");
        };
        let listening = ListenAddresses {
            port: 7860,
            rtc_port: 7861,
            addresses,
        };
        text(&config, &listening, false)
    }

    /// one line for programs, and the address to open for people; nothing else without options.
    #[test]
    fn without_options_the_banner_has_an_address_and_how_to_stop() {
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "edge-runner {version}\nlistening on http://localhost:7860\n\n  Talk       open http://localhost:7860/\n  \
             WebRTC     UDP port 7861\n  Stop       Ctrl-C\n"
        );
        assert_eq!(banner(&[], &["127.0.0.1", "2001:db8::5", "192.0.2.5"]), expected);
        let config = Config::default();
        let same_port = ListenAddresses {
            port: 7860,
            rtc_port: 7860,
            addresses: Vec::new(),
        };
        assert!(!text(&config, &same_port, false).contains("UDP"));
    }

    #[test]
    fn the_bound_address_is_shown_as_it_was_given_and_the_address_to_open_is_reachable() {
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
            assert_eq!(
                text.contains("  Warning    anyone who reaches this machine can talk"),
                for_others,
                "{text}"
            );
        }
        let unknown = banner(&["--host", "0.0.0.0"], &[]);
        assert!(unknown.contains("open http://localhost:7860/\n"), "{unknown}");
    }

    #[test]
    fn options_that_were_given_are_shown() {
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

    /// The page cannot place telephone calls, so it is not offered.
    #[test]
    fn a_runner_of_telephone_calls_offers_no_page() {
        let text = banner(
            &["-t", "telephony_a", "-x", "bots.example.net", "--host", "192.168.1.2"],
            &["192.168.1.2"],
        );
        assert!(
            text.contains("  Transport  /start accepts twilio (telephony_a) only\n"),
            "{text}"
        );
        assert!(!text.contains("Talk") && !text.contains("--tls auto"), "{text}");
    }

    /// With HTTPS there is one address, that of HTTPS, and how to trust it.
    #[test]
    fn with_https_its_address_is_the_one_to_open() {
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

    fn shown_on(host: [u8; 4], key: Option<&str>, on_terminal: bool) -> String {
        let config = Config {
            host: Host::Address(host.into()),
            tls: Tls::Auto,
            api_key: key.map(crate::config::Secret::new),
            ..Config::default()
        };
        let listening = ListenAddresses {
            port: 7860,
            rtc_port: 7861,
            addresses: vec![IpAddr::from([192, 168, 1, 2])],
        };
        text(&config, &listening, on_terminal)
    }

    #[test]
    fn a_qr_code_is_shown_on_terminals_for_addresses_of_the_local_network() {
        for (host, on_terminal, shown) in [
            ([0, 0, 0, 0], true, true),
            ([192, 168, 1, 2], true, true),
            ([192, 168, 1, 2], false, false),
            ([127, 0, 0, 1], true, false),
            ([8, 8, 8, 8], true, false),
        ] {
            let text = shown_on(host, None, on_terminal);
            assert_eq!(text.contains('█'), shown, "{host:?} {on_terminal}");
            assert!(text.ends_with('\n'));
        }
        let expected = qr::code("https://192.168.1.2:7860/#key=hunter2").expect("a short text");
        assert!(shown_on([0, 0, 0, 0], Some("hunter2"), true).ends_with(&expected));
    }

    /// On a terminal the key stands in the URL, and nowhere else is it seen; without one, the banner warns.
    #[test]
    fn the_key_is_shown_on_a_terminal_only() {
        let seen = shown_on([0, 0, 0, 0], Some("hunter2/+&%x"), true);
        assert!(
            seen.contains("open https://192.168.1.2:7860/#key=hunter2%2F%2B%26%25x\n"),
            "{seen}"
        );
        assert!(!seen.contains("Warning"), "{seen}");
        let piped = shown_on([0, 0, 0, 0], Some("hunter2"), false);
        assert!(!piped.contains("hunter2") && !piped.contains("#key"), "{piped}");
    }

    const KEY: &str = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";

    /// what has to be entered at the provider stands there whole, and what is missing is said.
    #[test]
    fn providers_find_the_server() {
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
            // Who may call is told as well.
            assert!(whole.contains("  Calls      need the token of a webhook"), "{whole}");
            let switched = of(&credentials, &["-t", name, "--unverified-calls"]);
            for open in [&bare, &off, &switched] {
                assert!(
                    open.contains("  Calls      open to anyone who finds the address\n"),
                    "{open}"
                );
            }
            assert!(
                switched.contains("  Unverified calls are accepted without proof"),
                "{switched}"
            );
            let tokens = of(&[], &["-t", name, "--ws-auth", "token"]);
            assert!(tokens.contains("which anyone gets from the webhook\n"), "{tokens}");
        }
        let fifth = super::text(
            &Config {
                transport: Some(Transport::Telephony(&INVENTED)),
                proxy: Some("bots.example.net".into()),
                ..Config::default()
            },
            &ListenAddresses {
                port: 7860,
                rtc_port: 7861,
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

    /// what rooms lack is shown where they were asked for, each variable by its name.
    #[test]
    fn rooms_are_shown_where_they_were_asked_for() {
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
            "  Rooms      daily needs VIDEOROOM_API_KEY"
        );
        assert_eq!(
            rooms(&all[..3], &["-t", "livekit"]),
            "  Rooms      livekit needs MEDIAROOM_API_SECRET"
        );
        assert!(rooms(&all, &["-t", "daily"]).starts_with("  Rooms      open http://localhost:7860/videoroom, or"));
        assert!(rooms(&all, &["-t", "livekit"]).contains("wss://rooms.example"));
        let key = ["-t", "videoroom", "--api-key", "0123456789abcdef"];
        assert!(rooms(&all, &key).contains("ask /start with the key"));
        assert!(banner_with(&all, &key, &[]).contains("/api/offer, and /videoroom\n"));
        let config = Config {
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
            addresses: Vec::new(),
        };
        let stock = super::text(&config, &listening, false);
        assert!(
            stock.contains("  Rooms      none: the built-in bots cannot join"),
            "{stock}"
        );
    }

    /// what has to be entered at the provider, whatever `-t` says.
    #[test]
    fn the_dial_in_webhook_is_told() {
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

    /// a list of origins keeps providers out, who send none.
    #[test]
    fn a_list_of_origins_is_told_to_lock_providers_out() {
        let note = "providers send none";
        let arguments = ["-x", "b.net", "--allowed-origins=https://a.net", "-t"];
        let with = |transport| banner(&[&arguments[..], &[transport]].concat(), &[]);
        assert!(with("telephony_a").contains(note) && with("telephony_d").contains(note));
        assert!(!with("webrtc").contains(note) && !banner(&["-x", "b.net", "-t", "twilio"], &[]).contains(note));
    }

    /// The arguments of a bot may hold secrets, and its name may hold anything.
    #[test]
    fn a_bot_is_shown_by_its_program_alone() {
        let text = banner(
            &["--ws-auth", "token", "--", "/opt/bot\u{1b}[2J", "--key", "hunter2"],
            &[],
        );
        assert!(text.contains("  Bot        /opt/bot?[2J, once per session\n"), "{text}");
        assert!(!text.contains("hunter2") && !text.contains("--key"));
        assert!(text.contains("  Tokens     one per WebSocket"));
    }
}
