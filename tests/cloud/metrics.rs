//! `/metrics` of the cloud service: who may read them, and that they count what happened.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::builds::{GATED, shell};
use crate::metrics::value;
use crate::support::cloud::{self, DataDir, KEY, OTHER, TestCloud, archive};
use crate::support::http::{self, Reply};
use crate::support::runner::PATIENCE;

fn context(text: &str) -> Vec<u8> {
    archive(&[("Dockerfile", "FROM scratch\n"), ("bot.py", text)])
}

fn ask(cloud: &TestCloud, headers: &[&str]) -> Reply {
    http::request(cloud.runner.addr, "GET", "/metrics", headers, b"").expect("an answer")
}

pub fn read(cloud: &TestCloud) -> String {
    let reply = ask(cloud, &[]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.text()
}

/// Asserts that series have these values.
pub fn assert_values(text: &str, expected: &[(&str, f64)]) {
    for (series, expected) in expected {
        let series = format!("edge_runner_cloud_{series}");
        assert_eq!(value(text, &series), Some(*expected), "{series} of\n{text}");
    }
}

/// Waits until a series has a value for which the condition holds, and returns the text.
pub fn wait_for(cloud: &TestCloud, series: &str, holds: impl Fn(f64) -> bool) -> String {
    let (began, series) = (Instant::now(), format!("edge_runner_cloud_{series}"));
    loop {
        let text = read(cloud);
        if value(&text, &series).is_some_and(&holds) {
            return text;
        }
        assert!(began.elapsed() < PATIENCE, "{series} was to change:\n{text}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// By default this machine may read, but not through a proxy on it; with `--metrics key` those with
/// a private key of the operator's organization.
#[test]
fn readers_are_those_of_the_option() {
    let data = [DataDir::new(), DataDir::new(), DataDir::new()];
    let local = TestCloud::start(&data[0], &[]);
    let reply = ask(&local, &[]);
    assert_eq!(
        (
            reply.status,
            reply.header("content-type"),
            reply.header("cache-control")
        ),
        (200, Some("text/plain; version=0.0.4; charset=utf-8"), Some("no-store"))
    );
    for header in [
        "X-Forwarded-For: 203.0.113.7",
        "Forwarded: for=192.0.2.60",
        "Via: 1.1 proxy",
    ] {
        let refused = ask(&local, &[header]);
        assert!(
            refused.status == 403 && refused.text().contains("--metrics key"),
            "{header}: {}",
            refused.text()
        );
    }
    let posted = http::request(local.runner.addr, "POST", "/metrics", &[], b"").expect("an answer");
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET, HEAD")));

    let off = TestCloud::start(&data[1], &["--metrics", "off"]);
    let refused = ask(&off, &[]);
    assert!(
        refused.status == 404 && refused.text().contains("--metrics off"),
        "{}",
        refused.text()
    );

    let key = TestCloud::start(&data[2], &["--metrics", "key"]);
    let bearer = |key: &str| format!("Authorization: Bearer {key}");
    let without = ask(&key, &[]);
    assert_eq!(
        (without.status, without.header("www-authenticate")),
        (401, Some("Bearer"))
    );
    assert_eq!(ask(&key, &[&bearer(cloud::PUBLIC)]).status, 401);
    assert_eq!(
        ask(&key, &[&bearer(OTHER)]).status,
        403,
        "they are not that organization's"
    );
    let forwarded = ["X-Forwarded-For: 203.0.113.7", &bearer(KEY)];
    assert_eq!(ask(&key, &forwarded).status, 200);
    assert_eq!(http::get(key.runner.addr, "/healthz").status, 200, "others need no key");
}

/// Grants, archives, builds and the queue of a service on one machine.
#[test]
fn a_service_counts_what_it_does() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let options = ["--max-builds", "1", "--max-pending", "1"];
    let cloud = TestCloud::start(&data, &shell(&options, GATED, gate.path()));
    let before = read(&cloud);
    assert_values(
        &before,
        &[
            ("builds{status=\"pending\"}", 0.0),
            ("oldest_pending_seconds", 0.0),
            ("running_builds", 0.0),
        ],
    );
    let first = cloud.build(&context("1"));
    cloud.wait_for(&first, "building");
    let second = cloud.build(&context("2"));
    assert_eq!(cloud.create(&cloud.upload(&context("3"))).status, 429);
    let grant = cloud.grant();
    assert_eq!(cloud.send(&grant, b"not gzip").status, 400);
    assert_eq!(cloud.get("/v1/nothing").status, 404);
    let text = wait_for(&cloud, "oldest_pending_seconds", |age| age > 0.0);
    assert_values(
        &text,
        &[
            ("grants_total", 4.0),
            ("archives_total{outcome=\"accepted\"}", 3.0),
            ("archives_total{outcome=\"refused\"}", 1.0),
            ("creations_total{outcome=\"created\"}", 2.0),
            ("creations_total{outcome=\"full\"}", 1.0),
            ("builds{status=\"pending\"}", 1.0),
            ("builds{status=\"building\"}", 1.0),
            ("running_builds", 1.0),
            ("claims_total{attempt=\"first\"}", 1.0),
            ("requests_total{route=\"create\",class=\"2xx\"}", 2.0),
            ("requests_total{route=\"create\",class=\"4xx\"}", 1.0),
            ("requests_total{route=\"grant\",class=\"2xx\"}", 4.0),
            ("requests_total{route=\"upload\",class=\"4xx\"}", 1.0),
            ("requests_total{route=\"other\",class=\"4xx\"}", 1.0),
            ("database_errors_total{reason=\"broken\"}", 0.0),
        ],
    );
    let took = |text: &str| value(text, "edge_runner_cloud_database_seconds_count").expect("a number");
    assert!(took(&text) > took(&before));
    assert!(value(&text, "process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6));
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    cloud.wait_for(&first, "success");
    cloud.wait_for(&second, "success");
    assert_eq!(cloud.create(&cloud.upload(&context("1"))).status, 200);
    let text = wait_for(&cloud, "running_builds", |count| count == 0.0);
    assert_values(
        &text,
        &[
            ("builds_ended_total{status=\"success\"}", 2.0),
            ("creations_total{outcome=\"cached\"}", 1.0),
            ("builds{status=\"pending\"}", 0.0),
            ("builds{status=\"building\"}", 0.0),
            ("oldest_pending_seconds", 0.0),
        ],
    );
    for hidden in [KEY, "default", &*first] {
        assert!(!text.contains(hidden), "{hidden} in\n{text}");
    }
}
