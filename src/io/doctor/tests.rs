//! The checks against servers and files of the tests: taken ports, accepting and rejecting
//! providers, unwritable folders.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

use super::*;
use crate::config::{Host, IceServer, Secret, Settings, Tls, Transport};
use crate::io::webrtc::gather;
use crate::io::{daily, livekit, webrtc, websocket};
use crate::proto::doctor::FindingLevel;

const CANARY: &str = "canary-of-a-secret";

fn one<'f>(findings: &'f [Finding], what: &str) -> &'f Finding {
    let mut of = findings.iter().filter(|finding| finding.what == what);
    let found = of.next().unwrap_or_else(|| panic!("no {what} in {findings:?}"));
    assert_eq!(of.next(), None, "{what} is told once");
    found
}

/// A configuration that uses any free port.
fn config() -> Config {
    crate::proto::config! {
        port: 0,
        rtc_port: Some(0),
        ..Config::default()
    }
}

async fn ports_of(config: &Config) -> Vec<Finding> {
    [ports::examine(config).await, webrtc::doctor::udp_port(config).await].concat()
}

/// Answers one request with this status; returns the request's head.
async fn provider(status: &'static str) -> (String, JoinHandle<String>) {
    provider_saying(status, "{}").await
}

async fn provider_saying(status: &'static str, body: &'static str) -> (String, JoinHandle<String>) {
    provider_after(None, status, body).await
}

/// The same, which answers when all of `barrier` have been asked.
async fn provider_after(
    barrier: Option<Arc<Barrier>>,
    status: &'static str,
    body: &'static str,
) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let checks = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a request"));
        }
        if let Some(barrier) = barrier {
            barrier.wait().await;
        }
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).await.expect("it listens");
        String::from_utf8(head).expect("text")
    });
    (url, checks)
}

/// The port and the certificate of QUIC are examined with `-t moq` alone.
#[test]
fn quic_has_a_port_and_a_certificate() {
    use crate::config::MoqMode;
    assert_eq!(crate::io::moq::doctor::examine(&config()), []);
    let with = |bind: std::net::SocketAddr| {
        let mut config = crate::proto::config! {
            transport: Some(Transport::Moq),
            ..config()
        };
        if let MoqMode::Serve { bind: configured, .. } = &mut config.moq.mode {
            *configured = bind;
        }
        crate::io::moq::doctor::examine(&config)
    };
    let free = with("[::]:0".parse().expect("an address"));
    assert_eq!(one(&free, "quic port").level, FindingLevel::Ok);
    assert_eq!(one(&free, "quic tls").level, FindingLevel::Ok);
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let findings = with(taken.local_addr().expect("it is bound"));
    let finding = one(&findings, "quic port");
    assert_eq!(finding.level, FindingLevel::Error);
    assert!(finding.text.contains("--moq-bind"), "{finding:?}");
}

#[tokio::test]
async fn free_ports_are_reported_and_released() {
    let findings = ports_of(&config()).await;
    assert_eq!(one(&findings, "http port").level, FindingLevel::Ok);
    assert_eq!(one(&findings, "udp port").level, FindingLevel::Ok);
}

/// The holder of a taken port is named where the system permits it.
#[tokio::test]
async fn taken_ports_are_reported_with_their_owner() {
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let udp = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
    let number = |address: std::io::Result<std::net::SocketAddr>| address.expect("bound").port();
    let (tcp_port, udp_port) = (number(tcp.local_addr()), number(udp.local_addr()));
    let config = crate::proto::config! {
        host: Host::Address(Ipv4Addr::LOCALHOST.into()),
        port: tcp_port,
        rtc_port: Some(udp_port),
        ..config()
    };
    let findings = ports_of(&config).await;
    let this = format!("process {}", std::process::id());
    for (what, port) in [("http port", tcp_port), ("udp port", udp_port)] {
        let finding = one(&findings, what);
        assert_eq!(finding.level, FindingLevel::Error);
        assert!(finding.text.contains(&port.to_string()), "{}", finding.text);
        if cfg!(target_os = "linux") {
            assert!(finding.text.contains(&this), "{}", finding.text);
        }
    }
}

#[tokio::test]
async fn providers_are_asked_about_the_credentials() {
    for (status, verdict) in [
        ("200 OK", FindingLevel::Ok),
        ("401 Unauthorized", FindingLevel::Error),
        ("503 Service Unavailable", FindingLevel::Warning),
    ] {
        let (url, checks) = provider(status).await;
        let mut config = config();
        config.telephony.settings = Settings::from([
            ("TELCO_C_AUTH_ID", "MA01"),
            ("TELCO_C_AUTH_TOKEN", CANARY),
            ("TELCO_C_API_URL", &url),
        ]);
        let findings = websocket::doctor::examine(&config).await;
        assert_eq!(one(&findings, "plivo").level, verdict, "{findings:?}");
        assert!(!format!("{findings:?}").contains(CANARY));
        let head = checks.await.expect("one request");
        assert!(head.starts_with("GET /v1/Account/MA01/ HTTP/1.1\r\n"), "{head}");
    }
}

#[tokio::test]
async fn room_providers_are_asked_about_the_credentials() {
    for (status, body, verdict) in [
        ("200 OK", r#"{"total_count":0,"data":[]}"#, FindingLevel::Ok),
        ("200 OK", "<html>", FindingLevel::Warning),
        ("400 Bad Request", "{}", FindingLevel::Error),
        ("429 Too Many Requests", "{}", FindingLevel::Warning),
    ] {
        let (url, checks) = provider_saying(status, body).await;
        let mut config = config();
        config.videoroom.key = Some(Secret::new(CANARY));
        config.videoroom.url = url;
        let findings = daily::doctor::examine(&config).await;
        assert_eq!(one(&findings, "daily").level, verdict, "{findings:?}");
        assert!(!format!("{findings:?}").contains(CANARY));
        let head = checks.await.expect("one request");
        assert!(head.starts_with("GET /rooms?limit=1 HTTP/1.1\r\n"), "{head}");
    }
    for (status, verdict) in [
        ("200 OK", FindingLevel::Warning),
        ("401 Unauthorized", FindingLevel::Error),
    ] {
        let (url, checks) = provider(status).await;
        let mut config = config();
        config.mediaroom.url = Some(url.replace("http:", "ws:"));
        config.mediaroom.key = Some("devkey".into());
        config.mediaroom.secret = Some(Secret::new(CANARY));
        let findings = livekit::doctor::server(&config).await;
        // This server answers `{}`, which is no response of a media-room server.
        assert_eq!(one(&findings, "livekit").level, verdict, "{findings:?}");
        let head = checks.await.expect("one request");
        assert!(head.starts_with("GET /rtc/validate?protocol=15 HTTP/1.1\r\n"), "{head}");
        assert!(head.to_ascii_lowercase().contains("\r\nauthorization: bearer eyj") && !head.contains(CANARY));
    }
    assert_eq!(daily::doctor::examine(&config()).await, []);
    assert_eq!(livekit::doctor::server(&config()).await, []);
}

#[tokio::test]
async fn an_unreachable_provider_is_reported() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let mut config = config();
    config.telephony.settings = Settings::from([("TELCO_B_API_KEY", CANARY), ("TELCO_B_API_URL", &url)]);
    let findings = websocket::doctor::examine(&config).await;
    let finding = one(&findings, "telnyx");
    assert_eq!(finding.level, FindingLevel::Error);
    assert!(finding.text.contains("127.0.0.1") && !finding.text.contains(CANARY));

    config.videoroom.key = Some(Secret::new(CANARY));
    config.videoroom.url = url;
    config.allowed_origins.push("https://app.example".into());
    config.videoroom.room_url = Some("https://example.net/room".into());
    let findings = daily::doctor::examine(&config).await;
    let finding = one(&findings, "daily");
    assert_eq!((findings.len(), finding.level), (1, FindingLevel::Error));
    assert!(finding.text.contains("127.0.0.1") && !finding.text.contains(CANARY));
}

/// A STUN server that answers, one that is silent, and one that is for clients only. The response
/// is RFC 8489's example of a mapped address, for the requested transaction.
#[tokio::test]
async fn ice_servers_are_asked() {
    let server = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a free port");
    let port = server.local_addr().expect("bound").port();
    let answering = tokio::spawn(async move {
        let mut request = [0; 1500];
        loop {
            let (_, from) = server.recv_from(&mut request).await.expect("it is open");
            let mut answer = vec![0x01, 0x01, 0x00, 0x0c];
            answer.extend_from_slice(&request[4..20]);
            // XOR-MAPPED-ADDRESS: 192.0.2.1:32853.
            answer.extend_from_slice(&[0x00, 0x20, 0x00, 0x08, 0x00, 0x01, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43]);
            server.send_to(&answer, from).await.expect("it is open");
        }
    });
    let server = |url: String| IceServer {
        urls: vec![url],
        username: None,
        credential: None,
    };
    let config = crate::proto::config! {
        ice_servers: vec![
            server(format!("stun:127.0.0.1:{port}")),
            server("stuns:127.0.0.1".into()),
        ],
        ..config()
    };
    let findings = gather::doctor::examine(&config).await;
    let [works, clients] = &findings[..] else {
        panic!("{findings:?}")
    };
    assert_eq!(works.level, FindingLevel::Ok, "{findings:?}");
    assert_eq!(clients.level, FindingLevel::Ok, "{findings:?}");
    assert!(clients.text.contains("clients only"));
    answering.abort();
    let none = gather::doctor::examine(&Config::default()).await;
    assert!(one(&none, "ice servers").text.starts_with("none"));
}

/// Without credentials no provider is asked, and the consequence is reported.
#[tokio::test]
async fn only_configured_servers_are_asked() {
    let findings = websocket::doctor::examine(&config()).await;
    assert_eq!(one(&findings, "telephony").level, FindingLevel::Ok);
    let served = crate::proto::config! {
        transport: Some(Transport::Telephony(crate::proto::telephony::PROVIDERS[0])),
        ..config()
    };
    let findings = websocket::doctor::examine(&served).await;
    assert_eq!(one(&findings, "twilio").level, FindingLevel::Warning);
    let names = resolver::examine(&config()).await;
    assert!(one(&names, "resolver").text.contains("no host names"));
}

/// An invalid name, which fails without a resolver.
#[tokio::test]
async fn an_unknown_name_is_reported() {
    let name = format!("{}.example", "x".repeat(64));
    let config = crate::proto::config! {
        proxy: Some(name.clone()),
        ..config()
    };
    let findings = resolver::examine(&config).await;
    let finding = one(&findings, "resolver");
    assert_eq!(finding.level, FindingLevel::Error);
    assert!(finding.text.contains(&name));
    let address = crate::proto::config! {
        proxy: Some("192.0.2.1:8443".into()),
        ..config
    };
    assert!(
        one(&resolver::examine(&address).await, "resolver")
            .text
            .contains("no host names")
    );
}

#[test]
fn a_missing_bot_is_reported() {
    let with = |command: Option<Vec<&str>>| {
        crate::proto::config! {
            command: command.map(|text| text.into_iter().map(Into::into).collect()),
            ..config()
        }
    };
    let verdict = |config: &Config| one(&machine::programs(config), "bot").level;
    assert_eq!(verdict(&with(None)), FindingLevel::Ok);
    assert_eq!(verdict(&with(Some(vec!["sh"]))), FindingLevel::Ok);
    assert_eq!(verdict(&with(Some(vec!["./no-such-bot"]))), FindingLevel::Error);
    // A built-in bot cannot enter video rooms.
    let stock = |transport| {
        crate::proto::config! {
            transport: transport,
            bot_enters_rooms: false,
            ..config()
        }
    };
    assert_eq!(verdict(&stock(Some(Transport::Videoroom))), FindingLevel::Error);
    assert_eq!(verdict(&stock(None)), FindingLevel::Ok);
}

/// A temporary folder, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("doctor-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("temporary folders can be made");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_state_folder_is_tested() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("state");
    let state = |path: Option<PathBuf>| {
        let config = crate::proto::config! {
            tls: Tls::Auto,
            state_dir: path,
            ..config()
        };
        let findings = certificate::examine(&config);
        one(&findings, "state").clone()
    };
    let mode = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&folder.0, permissions).expect("it is ours");
    };
    mode(0o700);
    assert_eq!(state(Some(folder.0.clone())).level, FindingLevel::Ok);
    assert_eq!(state(Some(folder.0.join("not/yet"))).level, FindingLevel::Ok);
    mode(0o777);
    assert_eq!(state(Some(folder.0.clone())).level, FindingLevel::Warning);
    assert_eq!(state(None).level, FindingLevel::Warning);
    let file = folder.0.join("file");
    std::fs::write(&file, "x").expect("it is ours");
    assert_eq!(state(Some(file.join("below"))).level, FindingLevel::Error);
    let left: Vec<_> = std::fs::read_dir(&folder.0).expect("it is ours").flatten().collect();
    assert_eq!(left.len(), 1, "nothing stays behind but the test's own file");
    let off = machine::examine(&config());
    assert!(
        off.iter().all(|finding| finding.what != "state"),
        "where nothing is kept"
    );
}

/// A matching pair is good; a mismatched key, an invalid file and a missing file are reported.
#[test]
fn certificate_and_key_are_compared() {
    let folder = Folder::new("files");
    let write = |name: &str, text: &str| {
        let path = folder.0.join(name);
        std::fs::write(&path, text).expect("it is ours");
        path
    };
    let made = |name: &str| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = rcgen::CertificateParams::new(vec![name.to_owned()])
            .expect("a name")
            .self_signed(&key)
            .expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    };
    let ((certificate, key), (_, foreign)) = (made("localhost"), made("localhost"));
    let good = write("cert.pem", &certificate);
    let judge = |certificate: &PathBuf, key: &PathBuf| {
        let config = crate::proto::config! {
            tls: Tls::Files {
                certificate: certificate.clone(),
                key: key.clone(),
            },
            ..config()
        };
        one(&certificate::examine(&config), "https").clone()
    };
    let key = write("key.pem", &key);
    let fits = judge(&good, &key);
    assert_eq!(fits.level, FindingLevel::Ok, "{}", fits.text);
    let foreign = judge(&good, &write("foreign.pem", &foreign));
    assert_eq!(foreign.level, FindingLevel::Error);
    assert!(foreign.text.contains("foreign.pem") && foreign.text.contains("another certificate"));
    assert_eq!(judge(&write("none.pem", CANARY), &key).level, FindingLevel::Error);
    let missing = judge(&folder.0.join("missing.pem"), &key);
    assert_eq!(missing.level, FindingLevel::Error);
    assert!(missing.text.contains("missing.pem"));
}

/// What the configuration decides is told in its words, and what the machine decides by name.
#[tokio::test]
async fn every_check_has_a_finding() {
    let Findings(findings) = examine(Arc::new(config())).await;
    let decided = [
        ("http port", "any free port"),
        (
            "udp port",
            "any free port; for callers on other machines, the firewall must allow UDP",
        ),
        (
            "access",
            "HTTP and WebSockets are open to programs on this machine only, without a key",
        ),
        (
            "https",
            "plain HTTP: browsers on other machines block the microphone; --tls auto serves HTTPS on the same port",
        ),
        ("resolver", "the configuration has no host names to resolve"),
        (
            "ice servers",
            "none: callers on other networks need a forwarded UDP port, or a TURN server in --ice-servers",
        ),
        (
            "telephony",
            "no credentials: the runner does not hang up calls, and webhooks are not verified",
        ),
        ("bot", "the built-in `parrot`"),
    ];
    for (what, text) in decided {
        assert_eq!(*one(&findings, what), Finding::ok(what, text));
    }
    let again = machine::examine(&config());
    for what in ["addresses", "ipv6", "clock", "open files"] {
        assert_eq!(one(&findings, what), one(&again, what));
    }
    // Its amount changes from look to look.
    let memory = one(&findings, "memory");
    assert!(memory.text.contains("free"), "{memory:?}");
    assert_eq!(findings.len(), decided.len() + again.len(), "{findings:?}");
}

/// No check waits for another: of two servers, each answers once both are asked.
#[tokio::test]
async fn checks_run_concurrently() {
    let both = Arc::new(Barrier::new(2));
    let (telephony, first) = provider_after(Some(both.clone()), "200 OK", "{}").await;
    let (rooms, second) = provider_after(Some(both), "200 OK", r#"{"total_count":0,"data":[]}"#).await;
    let mut config = config();
    config.telephony.settings = Settings::from([
        ("TELCO_C_AUTH_ID", "MA01"),
        ("TELCO_C_AUTH_TOKEN", CANARY),
        ("TELCO_C_API_URL", &telephony),
    ]);
    config.videoroom.key = Some(Secret::new(CANARY));
    config.videoroom.url = rooms;
    let Findings(findings) = examine(Arc::new(config)).await;
    for what in ["plivo", "daily"] {
        assert_eq!(one(&findings, what).level, FindingLevel::Ok, "{findings:?}");
    }
    for asked in [first, second] {
        asked.await.expect("one request");
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_never_ends_times_out() {
    let findings = within("slow", std::future::pending()).await;
    let finding = one(&findings, "slow");
    assert_eq!(finding.level, FindingLevel::Warning);
    assert!(finding.text.contains(&DOCTOR_CHECK.as_secs().to_string()));
}
