//! The runner behind nginx and Caddy, with the files of the documents: the page, calls, signatures
//! of a provider, live events, and who counts as the caller.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::Client;
use crate::support::http;
use crate::support::ports::free_port;
use crate::support::provider::{Caller, Provider};
use crate::support::runner::{PATIENCE, TestRunner, folder};
use crate::support::signed::{self, HOST, TOKEN};
use crate::support::skip;
use crate::support::socket::{ConnectOptions, Socket};

const KEY: &str = "key-of-the-tests-0123456789";
/// Where the files of the documents expect the runner.
const RUNNER: &str = "127.0.0.1:7860";

/// A reverse proxy, killed on drop.
struct Proxy {
    child: Child,
    addr: SocketAddr,
    folder: PathBuf,
}

impl Proxy {
    /// Starts a program with this file, made by `config` for the address of the proxy and its
    /// folder; the words before the file's path are `arguments`. `None`: it is not installed.
    fn start(program: &str, arguments: &[&str], config: impl Fn(SocketAddr, &Path) -> String) -> Option<Proxy> {
        // Where Debian has servers, which is not in everybody's `PATH`.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .chain([PathBuf::from("/usr/sbin")])
            .map(|folder| folder.join(program))
            .find(|file| file.is_file());
        let Some(found) = found else {
            skip::lacks_package("a reverse proxy", &format!("apt-get install {program}"));
            return None;
        };
        let (folder, addr) = (folder(), SocketAddr::from(([127, 0, 0, 1], free_port())));
        let file = folder.join("config");
        fs::write(&file, config(addr, &folder)).expect("the folder is writable");
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(found)
            .args(arguments)
            .arg(file)
            .env("HOME", &folder)
            .env("XDG_DATA_HOME", &folder)
            .env("XDG_CONFIG_HOME", &folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        let mut proxy = Proxy { child, addr, folder };
        let began = Instant::now();
        while TcpStream::connect(addr).is_err() {
            let ended = proxy.child.try_wait().expect("it was started");
            assert!(ended.is_none() && began.elapsed() < PATIENCE, "{program}: {ended:?}");
            thread::sleep(Duration::from_millis(20));
        }
        Some(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx ends its workers by this signal.
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
        self.child.wait().expect("it ends");
        fs::remove_dir_all(&self.folder).expect("the folder is the test's");
    }
}

/// Replaces a text that is there once.
fn replaced(config: &str, old: &str, new: &str) -> String {
    assert_eq!(config.matches(old).count(), 1, "{old} in {config}");
    config.replace(old, new)
}

fn nginx(runner: SocketAddr) -> Option<Proxy> {
    Proxy::start("nginx", &["-g", "daemon off;", "-c"], |addr, folder| {
        let site = include_str!("../docs/nginx.conf");
        // TLS is that of nginx, and no certificate is there.
        let site: String = site
            .lines()
            .filter(|line| !line.contains("ssl_certificate") && !line.contains("listen [::]"))
            .map(|line| format!("{line}\n"))
            .collect();
        let site = replaced(&site, "listen 443 ssl", &format!("listen {addr}"));
        let site = replaced(&site, RUNNER, &runner.to_string());
        let folder = folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {folder}/{kind};\n"))
            .concat();
        format!(
            "worker_processes 1;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{site}}}\n"
        )
    })
}

fn caddy(runner: SocketAddr) -> Option<Proxy> {
    Proxy::start("caddy", &["run", "--adapter", "caddyfile", "--config"], |addr, _| {
        let site = include_str!("../docs/Caddyfile");
        let site = replaced(
            site,
            &format!("{HOST} {{"),
            &format!("http://:{} {{\n\tbind 127.0.0.1", addr.port()),
        );
        let site = replaced(&site, RUNNER, &runner.to_string());
        format!("{{\n\tadmin off\n}}\n{site}")
    })
}

/// A runner as the documents start it behind a proxy, which may be asked for its calls by a key.
fn start() -> TestRunner {
    let options = [
        "--bot",
        "echo",
        "-t",
        "twilio",
        "--proxy",
        HOST,
        "--api-key",
        KEY,
        "--metrics",
        "key",
    ];
    let variables = [
        ("TELCO_A_ACCOUNT_SID", "AC0000000000000000000000000000cafe"),
        ("TELCO_A_AUTH_TOKEN", TOKEN),
        // Nothing is asked of it.
        ("TELCO_A_API_URL", "http://127.0.0.1:9"),
    ];
    TestRunner::start_with(&options, &variables)
}

/// Follows the calls through the proxy, and returns the reader of the events.
fn follow(addr: SocketAddr) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(addr).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(
        stream,
        "GET /calls/events HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    )
    .expect("writable");
    BufReader::new(stream)
}

fn wait_for_line(reader: &mut BufReader<TcpStream>, beginning: &str) {
    let mut line = String::new();
    while !line.starts_with(beginning) {
        line.clear();
        assert_ne!(
            reader.read_line(&mut line).expect("a line in time"),
            0,
            "no {beginning}"
        );
    }
}

/// What works without a proxy works behind this one.
fn assert_serves(runner: &TestRunner, proxy: &Proxy) {
    let page = http::get(proxy.addr, "/client/");
    assert_eq!(page.status, 200);
    assert!(page.text().contains("<html"), "{}", page.text());

    // The head and the first event come while the response goes on.
    let mut events = follow(proxy.addr);
    wait_for_line(&mut events, "HTTP/1.1 200");
    wait_for_line(&mut events, "retry: ");
    let mut client = Client::connect(proxy.addr, "/ws-client");
    wait_for_line(&mut events, "event: started");
    client.say(&[1_000; 16_000], 16_000);
    client.hear_until("the echo", |client| client.received.iter().any(|sample| *sample > 500));
    drop(client);
    runner.wait_for_sessions(0);
    wait_for_line(&mut events, "event: ended");

    // Signed for the public name, over HTTPS.
    let target = signed::target(&signed::webhook(Provider::Twilio, "CA01", "1").send_to(proxy.addr));
    let signature = signed::upgrade(&target);
    let (_, signature) = signature.split_once(": ").expect("a header");
    let options = ConnectOptions {
        headers: &[("X-Twilio-Signature", signature)],
        ..ConnectOptions::default()
    };
    let socket = Socket::try_connect(proxy.addr, &target, options).expect("it is signed");
    let mut caller = Caller::connect_by(socket, Provider::Twilio, Provider::Twilio.lines()[0]);
    caller.call_id = "CA01".to_owned();
    caller.greet();
    caller.start();
    caller.say(&vec![0; caller.line.rate_hz as usize / 2]);
    caller.hear_ms(100);
    // The same signature is for no other address.
    let options = ConnectOptions {
        headers: &[("X-Twilio-Signature", signature)],
        ..ConnectOptions::default()
    };
    let refused = Socket::try_connect(proxy.addr, "/ws/another", options);
    assert_eq!(refused.err().map(|refused| refused.status), Some(403));
}

#[test]
fn a_runner_serves_its_callers_behind_nginx() {
    let runner = start();
    if let Some(proxy) = nginx(runner.addr) {
        assert_serves(&runner, &proxy);
    }
}

#[test]
fn a_runner_serves_its_callers_behind_caddy() {
    let runner = start();
    if let Some(proxy) = caddy(runner.addr) {
        assert_serves(&runner, &proxy);
    }
}

/// Who comes through the proxy does not count as this machine, and a header of the client does not
/// make it count so.
#[test]
fn callers_behind_a_proxy_are_not_this_machine() {
    let runner = TestRunner::start(&["--proxy", HOST]);
    assert_eq!(http::get(runner.addr, "/metrics").status, 200);
    for proxy in [nginx(runner.addr), caddy(runner.addr)].into_iter().flatten() {
        for headers in [&[][..], &["X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1"]] {
            let reply = http::request(proxy.addr, "GET", "/metrics", headers, b"").expect("an answer");
            assert_eq!(reply.status, 403, "{headers:?}: {}", reply.text());
        }
    }
}

/// The proxies pass on from which page a request comes.
#[test]
fn only_listed_origins_call_behind_a_proxy() {
    let origin = format!("https://{HOST}");
    let runner = TestRunner::start(&["--proxy", HOST, "--allowed-origins", &origin]);
    for proxy in [nginx(runner.addr), caddy(runner.addr)].into_iter().flatten() {
        for (origin, status) in [(&*origin, 200), ("https://bots.example.org", 403)] {
            let headers = ["Content-Type: application/json", &format!("Origin: {origin}")];
            let body = br#"{"transport":"websocket"}"#;
            let reply = http::request(proxy.addr, "POST", "/start", &headers, body).expect("an answer");
            assert_eq!(reply.status, status, "{origin}: {}", reply.text());
        }
    }
}
