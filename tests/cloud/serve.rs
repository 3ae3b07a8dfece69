//! Start and stop of the service.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::builds::{GATED, shell};
use crate::support::cloud::{DataDir, KEY, TestCloud, archive, form};
use crate::support::http;
use crate::support::runner::{PATIENCE, TestRunner, folder};

/// Runs `cloud serve` until it exits by itself.
fn refused(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut all = vec!["cloud", "serve", "--port", "0"];
    all.extend(args);
    let ended = TestRunner::run_with(&all, variables);
    assert!(!ended.stdout.contains("listening"), "{ended:?}");
    (ended.code, ended.stderr)
}

fn mode(path: impl AsRef<std::path::Path>) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o777
}

/// I-01, C-002, C-095: stdout has the address; health needs no key and is logged.
#[test]
fn banner_and_health() {
    let data = DataDir::new();
    let mut cloud = TestCloud::start(&data, &[]);
    let reply = http::get(cloud.runner.addr, "/healthz");
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(
        reply.json(),
        json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")})
    );
    let head = http::request(cloud.runner.addr, "HEAD", "/healthz", &[], b"").expect("an answer");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), reply.header("content-length"));
    assert!(cloud.runner.wait_for_log("GET /healthz 200").contains("INFO"));
    let port = cloud.runner.addr.port();
    cloud.runner.signal("TERM");
    assert_eq!(cloud.runner.wait().code(), Some(0));
    let (stdout, stderr) = cloud.runner.last_words();
    assert!(
        stdout
            .lines()
            .any(|line| line == format!("listening on http://localhost:{port}")),
        "{stdout}"
    );
    // Logs go to stderr only.
    assert!(!stdout.contains("INFO") && stderr.contains("INFO"), "{stdout}");
}

/// A prober needs no key: 200 while a grant would be issued, else 503 with the reason.
#[test]
fn readiness_names_what_is_missing() {
    let data = DataDir::new();
    let regions = data.path().with_extension("regions");
    fs::write(&regions, r#"{"default":"lab","regions":[{"code":"lab"}]}"#).expect("a folder of ours");
    let named = ["--regions", regions.to_str().expect("UTF-8")];
    let cloud = TestCloud::start(&data, &named);
    let ask = |cloud: &TestCloud, path: &str| {
        let reply = http::get(cloud.runner.addr, path);
        (reply.status, reply.json())
    };
    assert_eq!(ask(&cloud, "/livez"), (200, json!({"live": true})));
    assert_eq!(ask(&cloud, "/readyz"), (200, json!({"ready": true})));
    fs::write(&regions, "{").expect("a folder of ours");
    assert_eq!(
        ask(&cloud, "/readyz"),
        (503, json!({"ready": false, "reason": "regions"}))
    );
    assert_eq!(ask(&cloud, "/livez").0, 200);
    drop(cloud);
    fs::remove_file(&regions).expect("it is there");

    let cloud = TestCloud::start(&data, &["--min-free", "1125899906842624"]);
    assert_eq!(
        ask(&cloud, "/readyz"),
        (503, json!({"ready": false, "reason": "storage"}))
    );
}

/// The data directory has mode 0700 and is locked.
#[test]
fn a_data_directory_is_locked_by_one_service() {
    let data = DataDir::new();
    fs::set_permissions(data.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let cloud = TestCloud::start(&data, &[]);
    assert_eq!(mode(data.path()), 0o700);
    for name in ["lock", "builds.db", "store.secret"] {
        assert_eq!(mode(data.path().join(name)), 0o600, "{name}");
    }
    let path = data.path().to_str().expect("UTF-8");
    let (code, stderr) = refused(&["--data-dir", path], &[("CLOUD_PRIVATE_KEYS", KEY)]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("another service has it") && stderr.contains(path),
        "{stderr}"
    );
    assert_eq!(http::get(cloud.runner.addr, "/healthz").status, 200);
    drop(cloud);
    TestCloud::start(&data, &[]);
}

/// A service that is refused the directory does not disturb the one that has it; I-19: nor does its
/// guard.
#[test]
fn a_second_service_does_not_disturb_builds_of_the_first() {
    let data = DataDir::new();
    let command =
        "echo it runs; until [ -e \"$BUILD_CONTEXT/../../../go\" ]; do sleep 0.02; done; echo x > \"$BUILD_OUT/image\"";
    let cloud = TestCloud::start(&data, &["--", "/bin/sh", "-c", command]);
    let id = cloud.build(&archive(&[("Dockerfile", "FROM scratch\n")]));
    let began = Instant::now();
    while !cloud.log(&id).contains(&"it runs".to_owned()) {
        assert!(began.elapsed() < PATIENCE, "it was to run");
    }
    let path = data.path().to_str().expect("UTF-8");
    let (code, stderr) = refused(&["--data-dir", path, "--", "/bin/sh", "-c", command], &[]);
    assert!(code == Some(1) && stderr.contains("another service has it"), "{stderr}");
    fs::write(data.path().join("go"), "").expect("ours");
    cloud.wait_for(&id, "success");
    let attempts = cloud.log(&id).iter().filter(|line| *line == "it runs").count();
    assert_eq!(attempts, 1);
}

/// A missing command is an error before the service listens.
#[test]
fn an_unusable_command_is_a_start_error() {
    let data = DataDir::new();
    let path = data.path().to_str().expect("UTF-8");
    for command in ["/no/such/builder", "no-such-builder", "/etc/passwd", "/etc"] {
        let (code, stderr) = refused(&["--data-dir", path, "--", command], &[]);
        assert!(code == Some(1) && stderr.contains(command), "{stderr}");
    }
}

/// I-02: usage errors exit with 2 before the service listens, and repeat no key.
#[test]
fn usage_errors_precede_listening() {
    let data = DataDir::new();
    let path = data.path().to_str().expect("UTF-8");
    let (code, stderr) = refused(&[], &[]);
    assert!(code == Some(2) && stderr.contains("--data-dir"), "{stderr}");
    for (variable, keys) in [
        ("CLOUD_PRIVATE_KEYS", "tooshort"),
        ("CLOUD_PUBLIC_KEYS", "acme=0123456789 abcdef"),
        ("CLOUD_PRIVATE_KEYS", "a/b=0123456789abcdef"),
    ] {
        let (code, stderr) = refused(&["--data-dir", path], &[(variable, keys)]);
        assert!(code == Some(2) && stderr.contains(variable), "{stderr}");
        assert!(
            !stderr.contains("tooshort") && !stderr.contains("0123456789"),
            "{stderr}"
        );
    }
    for option in ["--store", "--database"] {
        let (code, stderr) = refused(&["--data-dir", path, option, "s3://bucket"], &[]);
        assert!(code == Some(2) && stderr.contains(option), "{stderr}");
    }
    assert_eq!(
        fs::read_dir(data.path()).expect("there").count(),
        0,
        "misuse makes nothing"
    );
}

/// An unusable data directory is an error that names it.
#[test]
fn an_unusable_data_directory_is_reported() {
    let data = DataDir::new();
    let file = data.path().join("file");
    fs::write(&file, "in the way").expect("written");
    let path = file.to_str().expect("UTF-8");
    let (code, stderr) = refused(&["--data-dir", path], &[]);
    assert!(code == Some(1) && stderr.contains(path), "{stderr}");
    for name in ["keys.json", "store.secret", "builds.db"] {
        let data = DataDir::new();
        fs::write(data.path().join(name), "this is none of it").expect("written");
        let path = data.path().to_str().expect("UTF-8");
        let (code, stderr) = refused(&["--data-dir", path], &[]);
        assert!(code == Some(1) && stderr.contains(name), "{name}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        let left = fs::read_to_string(data.path().join(name)).expect("there");
        assert_eq!(left, "this is none of it", "what is damaged stays as it is");
    }
}

/// Leftovers of builder commands in `tmp/` prevent neither start nor uploads.
#[test]
fn leftovers_in_the_data_directory_do_not_prevent_a_start() {
    let data = DataDir::new();
    fs::create_dir_all(data.path().join("tmp/folder/below")).expect("the folder is the test's");
    fs::set_permissions(data.path().join("tmp/folder"), fs::Permissions::from_mode(0o000)).expect("ours");
    let cloud = TestCloud::start(&data, &["--", "/bin/true"]);
    assert_eq!(cloud.send(&cloud.grant(), b"\x1f\x8b").status, 204);
    drop(cloud);
    // Not even a file in place of the folder.
    fs::remove_dir(data.path().join("tmp")).expect("an empty folder");
    fs::write(data.path().join("tmp"), "").expect("the folder is the test's");
    let cloud = TestCloud::start(&data, &["--", "/bin/true"]);
    assert_eq!(cloud.send(&cloud.grant(), b"\x1f\x8b").status, 204);
}

/// I-29: after a signal no connections are accepted, a running upload may end, and the exit code is
/// 0.
#[test]
fn a_stop_waits_for_a_running_upload() {
    let data = DataDir::new();
    let mut cloud = TestCloud::start(&data, &["--", "/bin/true"]);
    let (kind, form) = form(&cloud.grant(), b"\x1f\x8b and more of it");
    let (most, end) = form.split_at(form.len() - 4);
    let head = format!(
        "POST /build-contexts HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n{kind}\r\nContent-Length: {}\r\nConnection: \
         close\r\n\r\n",
        form.len()
    );
    let mut stream = TcpStream::connect(cloud.runner.addr).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(head.as_bytes()).expect("it reads");
    // The interim answer shows that the upload is being read.
    let mut leave = [0; 25];
    stream.read_exact(&mut leave).expect("an answer");
    assert_eq!(&leave, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(most).expect("it reads");
    cloud.runner.signal("TERM");
    cloud.runner.wait_for_log("SIGTERM: stopping");
    stream.write_all(end).expect("it still reads");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("an answer");
    let reply = http::parse(&reply).expect("a reply");
    assert_eq!(reply.status, 204, "{}", reply.text());
    assert_eq!(cloud.runner.wait().code(), Some(0));
    assert!(TcpStream::connect(cloud.runner.addr).is_err(), "nothing listens");
}

/// I-29: a second signal ends the service at once.
#[test]
fn a_second_signal_ends_it_at_once() {
    let data = DataDir::new();
    let mut cloud = TestCloud::start(&data, &[]);
    let mut stream = TcpStream::connect(cloud.runner.addr).expect("it listens");
    let request = match data.place() {
        None => "POST /build-contexts HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b".to_owned(),
        Some(_) => format!("POST /v1/builds HTTP/1.1\r\nAuthorization: Bearer {KEY}"),
    };
    let head = format!("{request}\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    stream.read_exact(&mut [0; 25]).expect("its leave to send");
    cloud.runner.signal("INT");
    cloud.runner.wait_for_log("SIGINT: stopping");
    cloud.runner.signal("INT");
    assert_eq!(cloud.runner.wait().code(), Some(1));
    assert!(
        cloud.runner.log().contains("stopped by a second signal"),
        "{}",
        cloud.runner.log()
    );
}

/// A supervisor is notified of readiness, liveness and stop.
#[test]
fn a_supervisor_is_notified() {
    // A socket path is limited to about a hundred bytes.
    let path = std::env::temp_dir().join(format!("edge-runner-cloud-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    let socket = UnixDatagram::bind(&path).expect("the folder for such things is writable");
    socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let name = path.to_str().expect("UTF-8");
    let data = DataDir::new();
    let mut cloud = TestCloud::start_with(&data, &[], &[("NOTIFY_SOCKET", name), ("WATCHDOG_USEC", "1000000")]);
    let until = |word: &str| {
        let mut seen = String::new();
        while !seen.contains(word) {
            let mut buffer = [0; 4096];
            let bytes = socket.recv(&mut buffer).expect("the service tells something");
            seen.push_str(&String::from_utf8_lossy(&buffer[..bytes]));
        }
        seen
    };
    let ready = until("READY=1");
    let alive = until("WATCHDOG=1");
    cloud.runner.signal("TERM");
    let stopping = until("STOPPING=1");
    assert!(stopping.contains("EXTEND_TIMEOUT_USEC="), "{stopping}");
    assert!(!format!("{ready}{alive}{stopping}").contains("STATUS="));
    assert_eq!(cloud.runner.wait().code(), Some(0));
    fs::remove_file(&path).expect("it is this test's");
}

/// `--tls auto`: HTTPS beside HTTP, and the CA certificate at the path in the banner.
#[test]
fn https_generates_a_ca_in_the_data_directory() {
    let data = DataDir::new();
    let mut cloud = TestCloud::start(&data, &["--tls", "auto"]);
    let authority = data.path().join("tls/ca.crt");
    let pem = fs::read_to_string(&authority).expect("it is there");
    assert!(
        pem.starts_with("-----BEGIN CERTIFICATE-----") && !pem.contains("KEY"),
        "{pem}"
    );
    assert_eq!(http::get(cloud.runner.addr, "/healthz").status, 200);
    cloud.runner.wait_for_log(authority.to_str().expect("UTF-8"));
    cloud.runner.signal("TERM");
    cloud.runner.wait();
    let (stdout, _) = cloud.runner.last_words();
    assert!(stdout.contains(authority.to_str().expect("UTF-8")), "{stdout}");
}

/// An idle service unmaps code that it does not run, after its start and after builds. Checks of
/// its health do not put that off.
#[test]
fn an_idle_service_unmaps_its_code() {
    let data = DataDir::new();
    let gate = folder();
    let cloud = TestCloud::start(&data, &shell(&[], GATED, &gate));
    let is_over = AtomicBool::new(false);
    let check_health = || {
        let began = Instant::now();
        while !is_over.load(Ordering::Relaxed) && began.elapsed() < PATIENCE {
            assert_eq!(http::get(cloud.runner.addr, "/livez").status, 200);
            thread::sleep(Duration::from_millis(100));
        }
    };
    let idle = thread::scope(|scope| {
        scope.spawn(check_health);
        let idle = cloud.wait_for_unmapping(cloud.runner.peak_kib() / 2);
        is_over.store(true, Ordering::Relaxed);
        idle
    });
    let id = cloud.build(&archive(&[("Dockerfile", "")]));
    cloud.wait_for(&id, "building");
    let busy = cloud.runner.file_kib();
    assert!(busy > idle, "{busy} KiB while it builds, {idle} before");
    fs::write(gate.join("go"), "").expect("the folder is writable");
    cloud.wait_for(&id, "success");
    cloud.wait_for_unmapping((idle + busy) / 2);
}
