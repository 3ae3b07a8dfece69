//! Logs of builds, during and after a run.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::cloud::{DataDir, OTHER, TestCloud, archive};
use crate::support::runner::PATIENCE;

fn context() -> Vec<u8> {
    archive(&[("Dockerfile", "FROM scratch\n")])
}

fn without_own(mut lines: Vec<String>) -> Vec<String> {
    lines.retain(|line| !line.starts_with("[service] "));
    lines
}

/// I-14: lines are readable while the build runs; the last page has no token.
#[test]
fn a_log_is_read_while_the_build_runs() {
    let data = DataDir::new();
    let go = data.path().join("go");
    let script = format!(
        "echo one; echo two >&2; while [ ! -e {} ]; do sleep 0.02; done; printf 'three\\n\\nlast'; exit 1",
        go.display()
    );
    let cloud = TestCloud::start(&data, &["--", "sh", "-c", &script]);
    let id = cloud.build(&context());
    let began = Instant::now();
    let first = loop {
        let mut lines = without_own(cloud.log(&id));
        lines.sort();
        if lines.len() == 2 {
            break lines;
        }
        assert!(began.elapsed() < PATIENCE, "{lines:?}");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(first, ["one", "two"]);
    assert_eq!(cloud.status(&id)["status"], "building");
    fs::write(&go, "").expect("a writable folder");
    assert_eq!(cloud.ended(&id)["status"], "failed");
    let all = cloud.log(&id);
    assert_eq!(without_own(all.clone())[2..], ["three", "", "last"]);
    let own = all.iter().filter(|line| line.starts_with("[service] ")).count();
    assert!(own >= 2 && all[0].starts_with("[service] "), "{all:?}");
    for limit in [1, 2, 3, all.len()] {
        let (mut read, mut token) = (Vec::new(), String::new());
        loop {
            let reply = cloud.get(&format!("/v1/builds/{id}/logs?limit={limit}{token}"));
            assert_eq!(reply.status, 200);
            let page = reply.json();
            let lines = page["logs"].as_array().expect("lines");
            read.extend(lines.iter().map(|line| line.as_str().expect("text").to_owned()));
            let Some(next) = page.get("nextToken") else {
                break;
            };
            assert_eq!(lines.len(), limit);
            token = format!("&nextToken={}", next.as_str().expect("text"));
        }
        assert_eq!(read, all, "{limit}");
    }
    for bad in ["x", "-1", "1", "99999999", ""] {
        let reply = cloud.get(&format!("/v1/builds/{id}/logs?nextToken={bad}"));
        assert_eq!(reply.status, 400, "{bad}: {}", reply.text());
        assert_eq!(reply.json()["code"], "GENERIC_BAD_REQUEST");
    }
    let target = format!("/v1/builds/{id}/logs");
    assert_eq!(cloud.request("GET", &target, OTHER, b"").status, 404);
}

/// I-14: long lines are cut, invalid UTF-8 is replaced, and 10 MiB are kept.
#[test]
fn a_log_is_bounded() {
    let data = DataDir::new();
    let script = "head -c 10000 /dev/zero | tr '\\0' x; echo; printf '\\377\\376a\\n'; \
                  head -c 12000000 /dev/zero | tr '\\0' '\\n'; yes 'a line of a flood' | head -c 2000000; exit 1";
    let cloud = TestCloud::start(&data, &["--", "sh", "-c", script]);
    let id = cloud.build(&context());
    assert_eq!(cloud.ended(&id)["errorMessage"], "build: exit status 1; passed: unpack");
    let lines = without_own(cloud.log(&id));
    assert_eq!(lines[0], "x".repeat(8192));
    assert_eq!(lines[1], "\u{fffd}\u{fffd}a");
    let log = data.stored_log(&id);
    assert!(log.len() <= 10 << 20 && log.len() > 9 << 20, "{}", log.len());
    let end: Vec<&str> = log.lines().rev().take(2).collect();
    assert_eq!(end[0], "[service] build: exit status 1; passed: unpack");
    assert!(
        end[1].starts_with("[service] the log ends here: it has 10485760 bytes at most"),
        "{end:?}"
    );
}
