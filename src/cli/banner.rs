//! The text that people see on stdout once the server listens.
//!
//! Configuration and bound addresses enter; a few lines leave, of which one is `listening on
//! http://HOST:PORT`, for programs. It says what to open, how other machines get here, and what
//! differs from the defaults. No secret is part of it, but for the key of callers where somebody
//! looks on: on a terminal it stands behind the `#` of the URL to open, which no server is sent.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};

use super::features::{guarded, sockets};
use crate::config::{Config, Host, ListenAddresses, Tls, Transport};
use crate::features::Feature;
use crate::proto::livekit::missing_variables;
use crate::proto::telephony::Provider;
use crate::proto::telephony::proof::is_protected;

/// A line of the text: its name, empty where it goes on with the one above, and what it says.
type BannerRow = (&'static str, String);

/// Makes the text, with a line break at its end.
pub fn text(config: &Config, listening: &ListenAddresses, on_terminal: bool) -> String {
    let key = config
        .api_key
        .as_ref()
        .filter(|_| on_terminal && EntryPoint::BUILT == EntryPoint::Page);
    let fragment = key.map_or_else(String::new, |key| format!("#key={}", form_encoded(key.expose())));
    let mut rows = addresses(config, listening, &fragment);
    rows.push((
        "Sessions",
        format!("{} at most, over every transport", config.sessions_max),
    ));
    if let Some(program) = config.command.as_ref().and_then(|command| command.first()) {
        // Its arguments may hold secrets.
        rows.push(("Bot", format!("{}, once per session", sanitized(program))));
    }
    if let Some(transport) = config.transport {
        rows.push(("Transport", format!("{} alone", transport.name())));
    }
    if let Some(provider) = config.transport.and_then(Transport::provider) {
        rows.extend(telephone(provider, config));
    }
    if config.telephony.unverified_calls {
        let what = "calls need no proof that their provider makes them";
        rows.push(("Unverified", what.into()));
    }
    rows.extend(rooms(config, listening));
    rows.extend(access(config));
    rows.push(("Stop", "Ctrl-C".into()));
    let url = config.host.url(listening.port);
    let mut lines = vec![
        format!("edge-runner {}", env!("CARGO_PKG_VERSION")),
        format!("listening on {url}"),
        String::new(),
    ];
    lines.extend(rows.into_iter().map(|(name, what)| format!("  {name:<11}{what}")));
    lines.push(String::new());
    lines.join("\n")
}

/// Where callers and devices find the server.
fn addresses(config: &Config, listening: &ListenAddresses, fragment: &str) -> Vec<BannerRow> {
    let mut rows = Vec::new();
    if EntryPoint::BUILT != EntryPoint::Provider {
        let note = if EntryPoint::BUILT == EntryPoint::Client {
            "; this build has no page"
        } else {
            ""
        };
        let url = local_url(config.host, listening.port);
        rows.push(("Talk", format!("{}{note}", EntryPoint::BUILT.to(&url, fragment))));
        rows.extend(remote_access(config, listening, fragment).map(|far| ("Elsewhere", far)));
    }
    rows.extend(certificate_hint(config, listening).map(|trust| ("Trust", trust)));
    if let Some(address) = config.embedded {
        let url = Host::Address(address.into()).url(listening.port);
        rows.push(("Device", format!("{url}/api/offer")));
    }
    if Feature::WebRtc.in_this_build() {
        rows.push(("WebRTC", format!("UDP port {}", listening.rtc_port)));
    }
    rows
}

/// Who may call, and with what.
fn access(config: &Config) -> Vec<BannerRow> {
    let mut rows = Vec::new();
    rows.extend(config.open_access_warning().map(|words| ("Open", words.into())));
    if config.api_key.is_some() {
        let also = match config.transport {
            None | Some(Transport::Videoroom) if Feature::Videoroom.in_this_build() => ", and for /videoroom",
            _ => "",
        };
        rows.push(("Key", format!("`Authorization: Bearer KEY` for {}{also}", guarded())));
        if !config.ws_tokens && sockets().is_some() {
            rows.push(("", "WebSockets ask for none; see --ws-auth token".into()));
        }
    }
    if config.ws_tokens {
        rows.push(("Tokens", "one for each WebSocket, of `/start` or a webhook".into()));
    }
    if !config.allowed_origins.is_empty() {
        rows.push(("Origins", format!("only {}", config.allowed_origins.join(", "))));
        if config.transport.is_some_and(Transport::is_telephony) {
            rows.push(("", "telephony providers send none, so their calls are refused".into()));
        }
    }
    rows
}

/// How the callers of a build get here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryPoint {
    /// By the page, in a browser.
    Page,
    /// By a client or a device that people bring.
    Client,
    /// By a provider, and from nowhere else.
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

    /// Says what to do with the URL of a server, and what the page is to find behind it.
    fn to(self, url: &str, fragment: &str) -> String {
        match self {
            EntryPoint::Page => format!("open {url}/{fragment}"),
            EntryPoint::Client | EntryPoint::Provider => format!("point a client at {url}"),
        }
    }
}

/// What has to be entered at a provider, and what becomes of its calls.
fn telephone(provider: &Provider, config: &Config) -> Vec<BannerRow> {
    let telephony = &config.telephony;
    // A provider that takes no markup does without `--proxy`.
    let host = config.proxy.as_deref().unwrap_or("PUBLIC-HOST");
    let are_signed = provider.verifies(&telephony.settings) && telephony.verify_webhooks;
    let calls = match (is_protected(provider, telephony), config.ws_tokens) {
        (true, _) if provider.signs_upgrades => "with the token of a webhook, or a signature of their own",
        (true, _) => "with the token of a webhook",
        (false, true) if are_signed => "with a token",
        (false, true) => "with a token, which anybody gets who asks the webhook",
        (false, false) => "open to anybody who finds the address",
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
        rows.push(("Hang-up", "none: there are no credentials for it".into()));
    }
    rows
}

/// Where a talk in a room begins, and what rooms lack.
fn rooms(config: &Config, listening: &ListenAddresses) -> Vec<BannerRow> {
    let serves =
        |transport: Transport| transport.in_this_build() && config.transport.is_none_or(|only| only == transport);
    let alone = |transport| config.transport == Some(transport);
    let video = &config.videoroom;
    let mut rows = Vec::new();
    let lacks = |transport: Transport, names: &[&str]| format!("{} needs {}", transport.name(), names.join(", "));
    if serves(Transport::Videoroom) && video.key.is_none() {
        rows.push(lacks(Transport::Videoroom, &["VIDEOROOM_API_KEY"]));
    } else if alone(Transport::Videoroom) {
        rows.push(match (config.bot_enters_rooms, &config.api_key) {
            (false, _) => "none: the built-in bots cannot enter; give a bot that can, after `--`".into(),
            // A browser that opens an address sends no key.
            (true, Some(_)) => "ask `/start` with the key, which tells the room and a token".into(),
            (true, None) => format!(
                "open {}/videoroom, or ask `/start`, which tells the room and a token",
                local_url(config.host, listening.port)
            ),
        });
    }
    let missing = missing_variables(&config.mediaroom);
    if serves(Transport::Mediaroom) && !missing.is_empty() {
        rows.push(lacks(Transport::Mediaroom, &missing));
    } else if alone(Transport::Mediaroom) {
        let url = config.mediaroom.url.as_deref().unwrap_or_default();
        rows.push(format!("ask `/start`, which tells a room at {url} and a token"));
    }
    let mut rows: Vec<_> = rows
        .into_iter()
        .enumerate()
        .map(|(i, what)| (if i == 0 { "Rooms" } else { "" }, what))
        .collect();
    if video.dialin {
        let host = config.proxy.as_deref().unwrap_or("PUBLIC-HOST");
        let signatures = match video.dialin_hmac {
            Some(_) => ", signed by the provider",
            None => ", signatures are not verified",
        };
        rows.push((
            "Dial-in",
            format!("https://{host}/videoroom-dialin-webhook{signatures}"),
        ));
    }
    if config.messaging.is_some() {
        let host = config.proxy.as_deref().unwrap_or("PUBLIC-HOST");
        rows.push(("Messaging", format!("https://{host}/messaging")));
    }
    rows
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

/// How a browser on another machine gets here. It opens a microphone only for `localhost` or HTTPS, and a tunnel makes this
/// server `localhost` there too; audio does not go through the tunnel but straight to the UDP port.
fn remote_access(config: &Config, listening: &ListenAddresses, fragment: &str) -> Option<String> {
    let port = listening.port;
    let direct = lan_address(config, listening).map(|address| SocketAddr::new(address, port));
    // What is no browser opens its microphone without HTTPS too.
    if let Some(direct) = direct
        && (config.tls != Tls::Off || EntryPoint::BUILT == EntryPoint::Client)
    {
        let scheme = if config.tls == Tls::Off { "http" } else { "https" };
        return Some(format!(
            "{} there",
            EntryPoint::BUILT.to(&format!("{scheme}://{direct}"), fragment)
        ));
    }
    let (target, address) = match config.host {
        // A microcontroller's only candidate would be this machine itself.
        Host::Address(address) if address.is_loopback() && config.embedded.is_some() => return None,
        Host::Address(address) if address.is_loopback() => (bracketed(address), preferred(&listening.addresses)?),
        Host::Address(address) if !address.is_unspecified() => (bracketed(address), address),
        _ => ("localhost".into(), preferred(&listening.addresses)?),
    };
    Some(format!(
        "ssh -L {port}:{target}:{port} {address}, then {} there",
        EntryPoint::BUILT.to(&Host::Localhost.url(port), fragment)
    ))
}

/// What makes browsers on other machines take the certificate.
fn certificate_hint(config: &Config, listening: &ListenAddresses) -> Option<String> {
    let address = lan_address(config, listening)?;
    match &config.tls {
        Tls::Off => None,
        Tls::Auto => Some(format!(
            "install http://{}/ca.crt there once, or go past the browser's warning each time",
            SocketAddr::new(address, listening.port)
        )),
        Tls::Files { .. } => Some("by a name of the certificate in place of the address".into()),
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

fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
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

    /// one line for programs, and what to open for people.
    #[test]
    fn programs_and_people_find_the_server() {
        let text = banner(&[], &["127.0.0.1", "2001:db8::5", "192.0.2.5"]);
        assert_eq!(
            text.lines()
                .filter(|line| *line == "listening on http://localhost:7860")
                .count(),
            1
        );
        assert!(text.contains("open http://localhost:7860/"));
        assert!(text.contains("ssh -L 7860:localhost:7860 192.0.2.5,"));
        assert!(text.contains("UDP port 7861\n") && text.contains("  32 at most"));
        for absent in [
            "Device",
            "Origins",
            "Transport",
            "Webhook",
            "Media",
            "Bot",
            "Tokens",
            "Hang-up",
        ] {
            assert!(!text.contains(absent), "{absent}");
        }
        assert!(text.lines().count() <= 10 && text.ends_with('\n'));
    }

    #[test]
    fn the_bound_address_stands_as_it_was_given() {
        let all = banner(&["--host", "0.0.0.0"], &["192.0.2.5"]);
        assert!(all.contains("listening on http://0.0.0.0:7860\n"));
        assert!(all.contains("open http://localhost:7860/"));
        let six = banner(&["--host", "2001:db8::5"], &["2001:db8::5"]);
        assert!(six.contains("listening on http://[2001:db8::5]:7860\n"));
        assert!(six.contains("ssh -L 7860:[2001:db8::5]:7860 2001:db8::5,"));
        let own = banner(&["--host", "127.0.0.1"], &["192.0.2.5"]);
        assert!(own.contains("ssh -L 7860:127.0.0.1:7860 192.0.2.5,"));
        assert!(!banner(&["--host", "127.0.0.1", "--embedded"], &["192.0.2.5"]).contains("ssh"));
        assert!(!banner(&[], &["127.0.0.1"]).contains("ssh"));
    }

    #[test]
    fn what_was_asked_for_is_shown() {
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
            "webrtc alone",
            "  4 at most",
            "only https://a, https://b",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    /// With HTTPS other machines need no tunnel: they open the address, and are told how to trust it.
    #[test]
    fn other_machines_find_https() {
        let with = |host: &str, tls: &str| {
            let arguments = ["--host", host, "--state-dir", "/s", "--tls", tls];
            banner(&arguments, &["127.0.0.1", "2001:db8::5", "192.0.2.5"])
        };
        let auto = with("0.0.0.0", "auto");
        assert!(auto.contains("listening on http://0.0.0.0:7860\n"), "{auto}");
        assert!(
            auto.contains("  Elsewhere  open https://192.0.2.5:7860/ there\n"),
            "{auto}"
        );
        assert!(
            auto.contains("  Trust      install http://192.0.2.5:7860/ca.crt there once"),
            "{auto}"
        );
        let six = with("2001:db8::5", "auto");
        assert!(six.contains("open https://[2001:db8::5]:7860/ there"), "{six}");
        let files = with("192.0.2.5", "c.pem:k.pem");
        assert!(
            files.contains("open https://192.0.2.5:7860/ there") && !files.contains("ca.crt"),
            "{files}"
        );
        for (host, tls) in [("localhost", "auto"), ("127.0.0.1", "auto"), ("0.0.0.0", "off")] {
            let text = with(host, tls);
            assert!(
                text.contains("ssh -L") && !text.contains("https://") && !text.contains("Trust"),
                "{text}"
            );
        }
    }

    /// Finding 7: on a terminal the key stands in the URL, and nowhere else is it seen; without
    /// one, it is said who may call.
    #[test]
    fn the_key_is_shown_on_a_terminal_alone() {
        let config = |key: &str| Config {
            host: Host::Address([0, 0, 0, 0].into()),
            tls: Tls::Auto,
            api_key: Some(crate::config::Secret::new(key)),
            ..Config::default()
        };
        let listening = ListenAddresses {
            port: 7860,
            rtc_port: 7861,
            addresses: vec![IpAddr::from([192, 0, 2, 5])],
        };
        let seen = super::text(&config("hunter2/+&%x"), &listening, true);
        for url in ["http://localhost:7860/", "https://192.0.2.5:7860/"] {
            assert!(seen.contains(&format!("{url}#key=hunter2%2F%2B%26%25x")), "{seen}");
        }
        assert!(
            seen.contains("listening on http://0.0.0.0:7860\n") && !seen.contains("Open"),
            "{seen}"
        );
        let piped = super::text(&config("hunter2"), &listening, false);
        assert!(!piped.contains("hunter2") && !piped.contains("#key"), "{piped}");
        let open = banner(&["--host", "0.0.0.0"], &["192.0.2.5"]);
        assert!(open.contains("  Open       no key is asked for"), "{open}");
        assert!(!banner(&[], &["192.0.2.5"]).contains("  Open"));
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
            assert!(whole.contains("  Calls      with the token of a webhook"), "{whole}");
            let switched = of(&credentials, &["-t", name, "--unverified-calls"]);
            for open in [&bare, &off, &switched] {
                assert!(
                    open.contains("  Calls      open to anybody who finds the address\n"),
                    "{open}"
                );
            }
            assert!(switched.contains("  Unverified calls need no proof"), "{switched}");
            let tokens = of(&[], &["-t", name, "--ws-auth", "token"]);
            assert!(tokens.contains("which anybody gets who asks the webhook\n"), "{tokens}");
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
            "  Transport  quintel alone\n",
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

    /// what rooms lack is said, each variable by its name, as long as rooms are served at all.
    #[test]
    fn rooms_are_told_with_what_they_lack() {
        let bare = banner(&[], &[]);
        assert!(
            bare.contains(
                "  Rooms      videoroom needs VIDEOROOM_API_KEY\n             mediaroom needs MEDIAROOM_URL, \
                 MEDIAROOM_API_KEY, MEDIAROOM_API_SECRET\n"
            ),
            "{bare}"
        );
        let all = [
            ("VIDEOROOM_API_KEY", "hunter2"),
            ("MEDIAROOM_URL", "wss://rooms.example"),
            ("MEDIAROOM_API_KEY", "hunter2"),
            ("MEDIAROOM_API_SECRET", "hunter2"),
        ];
        assert!(banner_with(&all[..3], &[], &[]).contains("  Rooms      mediaroom needs MEDIAROOM_API_SECRET\n"));
        let whole = banner_with(&all, &[], &[]);
        assert!(!whole.contains("Rooms") && !whole.contains("hunter2"), "{whole}");
        for other in ["webrtc", "telephony_d", "websocket"] {
            assert!(!banner(&["-t", other], &[]).contains("Rooms"), "{other}");
        }
        let video = banner(&["-t", "daily"], &[]);
        assert!(video.contains("  Rooms      videoroom needs VIDEOROOM_API_KEY\n") && !video.contains("MEDIAROOM"));
        let video = banner_with(&all, &["-t", "videoroom"], &[]);
        assert!(
            video.contains("  Rooms      open http://localhost:7860/videoroom, or"),
            "{video}"
        );
        let keyed = banner_with(&all, &["-t", "videoroom", "--api-key", "0123456789abcdef"], &[]);
        assert!(
            keyed.contains("ask `/start` with the key") && !keyed.contains("open http://localhost:7860/videoroom"),
            "{keyed}"
        );
        assert!(keyed.contains("/api/offer, and for /videoroom\n"), "{keyed}");
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
            stock.contains("  Rooms      none: the built-in bots cannot enter"),
            "{stock}"
        );
        let media = banner_with(&all, &["-t", "mediaroom"], &[]);
        assert!(media.contains("  Rooms      ask `/start`") && media.contains("wss://rooms.example"));
        assert!(!media.contains("hunter2"));
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
        assert!(text.contains("  Tokens     one for each WebSocket"));
    }
}
