//! The text that people see on stdout once the server listens.
//!
//! Configuration and bound addresses enter; a few lines leave, of which one is `listening on http://HOST:PORT`, for programs.
//! It says what to open, how other machines get here, and what differs from the defaults. No secret is part of it.

use std::net::IpAddr;

use crate::config::{Config, Host, Listening};

/// Makes the text, with a line break at its end.
pub fn text(config: &Config, listening: &Listening) -> String {
    let url = config.host.url(listening.port);
    let mut lines = vec![
        format!("edge-runner {}", env!("CARGO_PKG_VERSION")),
        format!("listening on {url}"),
        String::new(),
    ];
    let mut row = |name: &str, what: String| lines.push(format!("  {name:<11}{what}"));
    row("Talk", format!("open {}/", near(config.host, listening.port)));
    if let Some(far) = far(config, listening) {
        row("Elsewhere", far);
    }
    if let Some(address) = config.embedded {
        row(
            "Device",
            format!("{}/api/offer", Host::Address(address.into()).url(listening.port)),
        );
    }
    row(
        "WebRTC",
        format!(
            "UDP port {}, {} sessions at most",
            listening.rtc_port, config.sessions_max
        ),
    );
    if let Some(transport) = config.transport {
        row("Transport", format!("{} alone", transport.name()));
    }
    if !config.allowed_origins.is_empty() {
        row("Origins", format!("only {}", config.allowed_origins.join(", ")));
    }
    row("Stop", "Ctrl-C".into());
    lines.push(String::new());
    lines.join("\n")
}

/// The URL for a browser on this machine: browsers do not open an unspecified address.
fn near(host: Host, port: u16) -> String {
    match host {
        Host::Address(address) if address.is_unspecified() => Host::Localhost.url(port),
        other => other.url(port),
    }
}

/// How a browser on another machine gets here. It opens a microphone only for `localhost` or HTTPS, and a tunnel makes this
/// server `localhost` there too; audio does not go through the tunnel but straight to the UDP port.
fn far(config: &Config, listening: &Listening) -> Option<String> {
    let port = listening.port;
    let (target, address) = match config.host {
        // A microcontroller's only candidate would be this machine itself.
        Host::Address(address) if address.is_loopback() && config.embedded.is_some() => return None,
        Host::Address(address) if address.is_loopback() => (bracketed(address), preferred(&listening.addresses)?),
        Host::Address(address) if !address.is_unspecified() => (bracketed(address), address),
        _ => ("localhost".into(), preferred(&listening.addresses)?),
    };
    Some(format!(
        "ssh -L {port}:{target}:{port} {address}, then open {}/ there",
        Host::Localhost.url(port)
    ))
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
    use crate::cli::{Command, Surroundings, env::Variables, parse};

    fn banner(arguments: &[&str], addresses: &[&str]) -> String {
        let addresses: Vec<IpAddr> = addresses.iter().map(|a| a.parse().expect("an address")).collect();
        let around = Surroundings {
            variables: Variables::default(),
            addresses: addresses.clone(),
            resolve: &|_| Vec::new(),
        };
        let command = parse(arguments.iter().map(Into::into), &around).expect("valid arguments");
        let Command::Serve { config, .. } = command else {
            panic!("serves");
        };
        let listening = Listening {
            port: 7860,
            rtc_port: 7861,
            addresses,
        };
        text(&config, &listening)
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
        assert!(text.contains("UDP port 7861, 32 sessions"));
        assert!(!text.contains("Device") && !text.contains("Origins") && !text.contains("Transport"));
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
            ", 4 sessions at most",
            "only https://a, https://b",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
