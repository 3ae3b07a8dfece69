//! Tests of host names in requests.

use super::*;

fn hosts() -> AllowedHosts {
    AllowedHosts::new(&Config {
        proxy: Some("bots.example.net:8443".into()),
        host_names: vec!["board".into(), "board.lan".into(), "voice.example.org".into()],
        ..Config::default()
    })
}

/// Found by the fuzz target of configurations.
#[test]
fn a_configured_name_may_end_with_a_dot() {
    let hosts = AllowedHosts::new(&Config {
        proxy: Some("bots.example.net.:8443".into()),
        host_names: vec!["board.".into()],
        ..Config::default()
    });
    for own in ["bots.example.net", "bots.example.net.", "board:80", "board.:80"] {
        assert!(hosts.accepts(own.as_bytes()), "{own}");
    }
}

#[test]
fn accepts_own_names_and_addresses_in_every_spelling_of_clients() {
    let hosts = hosts();
    for own in [
        "localhost",
        "LocalHost:7860",
        "localhost.",
        "localhost.:7860",
        "a.b.localhost",
        "127.0.0.1",
        "127.0.0.1:65535",
        "192.168.1.7:0",
        "203.0.113.9",
        "0.0.0.0",
        "[::1]",
        "[::1]:7860",
        "[2001:DB8::1]",
        "[::ffff:192.0.2.1]:80",
        "[fe80::1%eth0]:80",
        "[fe80::1%25wlan0.1]",
        "board",
        "BOARD:80",
        "board.lan.",
        "voice.example.org:443",
        "raspberrypi.local",
        "RaspberryPi.LOCAL.:7860",
        "a_b.c-d.local",
        "bots.example.net",
        "bots.example.net:1",
    ] {
        assert!(hosts.accepts(own.as_bytes()), "{own}");
    }
}

/// DNS rebinding: similar names of other servers are rejected.
#[test]
fn rejects_foreign_host_names() {
    let hosts = hosts();
    for foreign in [
        "",
        ".",
        "..",
        ":",
        ":80",
        "evil.example",
        "evil.example:7860",
        "localhost.evil.example",
        "localhost..",
        ".localhost",
        ".local",
        "local",
        "a..local",
        "localhostx",
        "xlocalhost",
        "board.evil.example",
        "xboard",
        "sub.board.lan",
        "sub.bots.example.net",
        "bots.example.net.evil",
        "127.0.0.1.evil.example",
        "127.0.0.1.nip.io",
        "127.0.0.1.",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "127.0.0.01",
        "256.0.0.1",
        "localhost:",
        "localhost:x",
        "localhost:+80",
        "localhost:65536",
        "localhost:000080",
        "localhost:80:80",
        "user@localhost",
        "localhost@evil.example",
        "localhost,evil.example",
        "localhost evil",
        " localhost",
        "localhost/",
        "localhost#",
        "localhost\\",
        "local%68ost",
        "::1",
        "[::1",
        "[]",
        "[::1]x",
        "[::1]:",
        "[127.0.0.1]",
        "[fe80::1%]",
        "[fe80::1%a]b]",
        "[fe80::1%\"<]",
        "[evil.example]",
        "a\u{e9}.local",
        "a\"b.local",
        "<x>.local",
    ] {
        assert!(!hosts.accepts(foreign.as_bytes()), "{foreign}");
    }
    assert!(!hosts.accepts(b"\xff\xfe.local") && !hosts.accepts(b"a\0.local") && !hosts.accepts(b"a\r\n.local"));
    let long = |bytes: usize| format!("{}.local", "a".repeat(bytes - ".local".len()));
    assert!(hosts.accepts(long(NAME_BYTES_MAX).as_bytes()));
    assert!(!hosts.accepts(long(NAME_BYTES_MAX + 1).as_bytes()));
}

/// Without configured names, the runner accepts those that every machine has.
#[test]
fn accepts_standard_names_without_configuration() {
    let none = AllowedHosts::new(&Config::default());
    assert!(none.accepts(b"localhost") && none.accepts(b"192.0.2.1") && none.accepts(b"a.local"));
    assert!(!none.accepts(b"board") && !none.accepts(b"bots.example.net"));
    let v6 = AllowedHosts::new(&Config {
        proxy: Some("[2001:db8::1]:443".into()),
        ..Config::default()
    });
    assert!(v6.accepts(b"[2001:db8::1]"));
}

#[test]
fn local_names_exclude_public_hosts() {
    let hosts = hosts();
    for near in [
        "localhost:5173",
        "pi.local",
        "board",
        "bots.example.net",
        "10.1.2.3",
        "172.31.0.1:3000",
        "192.168.1.7",
        "169.254.1.1",
        "100.64.0.1",
        "127.9.9.9",
        "[::1]:5173",
        "[fd00::1]",
        "[fe80::1]",
        "[::ffff:10.0.0.1]",
    ] {
        assert!(hosts.is_local(near.as_bytes()), "{near}");
    }
    for far in [
        "evil.example",
        "203.0.113.9",
        "100.128.0.1",
        "172.32.0.1",
        "[2001:db8::1]",
        "[::ffff:8.8.8.8]",
        "",
        "null",
    ] {
        assert!(!hosts.is_local(far.as_bytes()), "{far}");
    }
}

#[test]
fn compares_hosts_without_ports() {
    for (one, other) in [
        ("A.example:1", "a.example.:2"),
        ("[::1]", "[0:0::1]:80"),
        ("192.0.2.1", "192.0.2.1:5"),
    ] {
        assert!(is_same_host(one.as_bytes(), other.as_bytes()), "{one} {other}");
    }
    for (one, other) in [
        ("a.example", "b.example"),
        ("127.0.0.1", "localhost"),
        ("", ""),
        ("a@b", "a@b"),
    ] {
        assert!(!is_same_host(one.as_bytes(), other.as_bytes()), "{one} {other}");
    }
}

/// Every text of up to five significant characters.
#[test]
fn no_authority_panics() {
    let hosts = hosts();
    let mut texts = vec![Vec::new()];
    for _ in 0..5 {
        let longer = texts
            .iter()
            .flat_map(|text: &Vec<u8>| b"a1[]:.%\xe9".iter().map(move |b| [text.as_slice(), &[*b]].concat()));
        texts = longer.collect();
        for text in &texts {
            assert!(!hosts.is_local(text) || hosts.accepts(text));
            assert!(!hosts.accepts(text) || is_same_host(text, text));
        }
    }
}

/// The public name of a proxy is not a loopback name.
#[test]
fn recognises_loopback_names() {
    for own in [
        "localhost",
        "LocalHost:7860",
        "localhost.",
        "127.0.0.1:7860",
        "127.9.9.9",
        "[::1]:7860",
        "[::ffff:127.0.0.1]",
    ] {
        assert!(is_loopback(own.as_bytes()), "{own}");
    }
    for other in [
        "",
        "board.local",
        "bots.example.net",
        "192.0.2.5",
        "[2001:db8::1]",
        "localhost.example",
        "127.1",
    ] {
        assert!(!is_loopback(other.as_bytes()), "{other}");
    }
}
