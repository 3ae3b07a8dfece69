//! Behaviour without disk space.
//!
//! The data directory is a tmpfs of a few megabytes. Without the right to mount, only the
//! database's own tests cover this.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::builds::shell;
use crate::support::cloud::{DataDir, TestCloud, archive};
use crate::support::skip;

/// A small file system mounted on a folder, unmounted on drop.
struct Small<'d>(&'d DataDir);

impl Small<'_> {
    /// Returns `None` without the right to mount.
    fn new(data: &DataDir) -> Option<Small<'_>> {
        let options = "size=12m,mode=0700";
        let made = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(data.path())
            .output();
        match made {
            Ok(made) if made.status.success() => Some(Small(data)),
            other => {
                let what = "the cloud service on a full disk";
                if rustix::process::geteuid().is_root() {
                    skip::lacks_ability(what, &format!("no file system in memory: {other:?}"));
                } else {
                    skip::lacks_root(what, "a file system in memory needs it");
                }
                None
            }
        }
    }

    /// Uses up the remaining space.
    fn fill(&self) {
        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.filler())
            .expect("an empty file takes none");
        for size in [64 * 1024, 4096, 512, 1] {
            while file.write_all(&vec![7; size]).is_ok() {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.filler()).expect("it is there");
    }

    fn filler(&self) -> std::path::PathBuf {
        self.0.path().join("filler")
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder").flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// A context that does not compress.
fn noise(n: u64, bytes: usize) -> Vec<u8> {
    let mut state = n * 2 + 1;
    let text: String = (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b' ' + (state >> 57) as u8 % 95)
        })
        .collect();
    archive(&[("Dockerfile", "FROM scratch\n"), ("noise", &text)])
}

/// I-21: without space uploads, records and builds fail without leaving anything; reads work; and
/// everything works again once there is space.
#[test]
fn a_full_disk_fails_requests_and_recovers() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let Some(small) = Small::new(&data) else {
        return;
    };
    // The first build's command waits; all others queue behind it.
    let script = r#"while [ ! -e "$0/go" ]; do sleep 0.02; done; head -c 300000 noise > "$BUILD_OUT/i""#;
    let options = ["--max-builds", "1", "--max-pending", "100000"];
    let cloud = TestCloud::start(&data, &shell(&options, script, gate.path()));
    let first = cloud.build(&noise(1, 400_000));
    cloud.wait_for(&first, "building");
    let second = cloud.upload(&noise(2, 400_000));
    let unused = cloud.grant();
    let before = cloud.status(&first);
    small.fill();

    // An upload fails and leaves nothing.
    let reply = cloud.send(&unused, &noise(3, 400_000));
    assert_eq!(reply.status, 507, "{}", reply.text());
    assert_eq!(reply.json()["code"], "InsufficientStorage");
    assert_eq!(names(&data.path().join("tmp")), Vec::<String>::new());
    assert_eq!(names(&data.path().join("archives/default")).len(), 2);

    // The journal has some space in reserve; after that a build is rejected.
    let mut made = Vec::new();
    let refused = loop {
        let wanted = json!({"uploadId": second, "region": "local", "buildfilePath": format!("{:0200}", made.len())});
        let reply = cloud.post("/v1/builds", &wanted);
        match reply.status {
            201 => made.push(reply.json()["build"].clone()),
            _ => break reply,
        }
        assert!(made.len() < 20_000, "there is no end to the space");
    };
    assert_eq!(refused.status, 500, "{}", refused.text());
    assert_eq!(refused.json()["code"], "INTERNAL_SERVER_ERROR");
    let said = refused.json()["error"].as_str().expect("a text").to_owned();
    assert!(said.starts_with("Internal server error (request "), "{said}");

    // Exactly the builds answered with 201 exist.
    let total = cloud.get("/v1/builds?limit=1").json()["total"]
        .as_u64()
        .expect("a number");
    assert_eq!(total, 1 + made.len() as u64);
    for build in made.iter().rev().take(3) {
        assert_eq!(cloud.status(build["id"].as_str().expect("an identifier")), *build);
    }
    assert_eq!(cloud.status(&first), before);
    cloud.log(&first);
    assert_eq!(cloud.get("/v1/regions").status, 200);

    // The command fails for lack of space, and the next builds cannot be unpacked.
    fs::write(gate.path().join("go"), "").expect("another file system");
    let failed = cloud.ended(&first);
    assert_eq!(failed["status"], "failed", "{failed:#}");

    small.empty();
    if let Some(last) = made.last() {
        // This build file does not exist in any archive.
        let last = cloud.ended(last["id"].as_str().expect("an identifier"));
        assert_eq!(last["status"], "failed", "{last:#}");
    }
    let reply = cloud.send(&unused, &noise(3, 400_000));
    assert_eq!(reply.status, 204, "the same grant: {}", reply.text());
    let again = cloud.create(unused["uploadId"].as_str().expect("an identifier"));
    assert_eq!(again.status, 201, "{}", again.text());
    let id = again.json()["build"]["id"].as_str().expect("an identifier").to_owned();
    let done = cloud.wait_for(&id, "success");
    assert_eq!(done["imageSizeBytes"], 300_000);
    let total = cloud.get("/v1/builds?limit=1").json()["total"]
        .as_u64()
        .expect("a number");
    assert_eq!(total, 2 + made.len() as u64);
    assert!(cloud.runner.log().contains("no space"), "the log says why");
}

/// I-21: below `--min-free` there are no grants, and earlier ones still work.
#[test]
fn low_space_stops_grants_only() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let Some(small) = Small::new(&data) else {
        return;
    };
    let script = r#"echo image > "$BUILD_OUT/i""#;
    let cloud = TestCloud::start(&data, &shell(&["--min-free", "6m"], script, gate.path()));
    let grant = cloud.grant();
    fs::write(small.filler(), vec![7; 8 << 20]).expect("there is space");
    let reply = cloud.post("/v1/builds/upload-url", &json!({}));
    assert_eq!(
        (reply.status, reply.json()["code"].clone()),
        (503, json!("STORAGE_FULL"))
    );
    let seconds: u32 = reply.header("retry-after").expect("a time").parse().expect("seconds");
    assert!(seconds > 0);
    assert_eq!(cloud.send(&grant, &noise(1, 1000)).status, 204);
    let created = cloud.create(grant["uploadId"].as_str().expect("an identifier"));
    let id = created.json()["build"]["id"]
        .as_str()
        .expect("an identifier")
        .to_owned();
    cloud.wait_for(&id, "success");
    small.empty();
    cloud.grant();
}

/// I-21: reads work after a start on a full disk, after a kill or a stop; pending builds run once
/// there is space.
#[test]
fn a_full_disk_does_not_prevent_a_start() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let Some(small) = Small::new(&data) else {
        return;
    };
    let script = r#"while [ ! -e "$0/go" ]; do sleep 0.02; done; echo image > "$BUILD_OUT/i""#;
    let args = shell(&["--build-grace", "0.1"], script, gate.path());
    let mut cloud = TestCloud::start(&data, &args);
    let id = cloud.build(&noise(1, 1000));
    cloud.wait_for(&id, "building");
    cloud.runner.signal("TERM");
    assert_eq!(cloud.runner.wait().code(), Some(0));
    drop(cloud);
    small.fill();
    for _ in 0..2 {
        let cloud = TestCloud::start(&data, &args);
        assert_eq!(cloud.get("/v1/builds").json()["total"], 1);
        assert_eq!(cloud.status(&id)["status"], "building");
    }
    let cloud = TestCloud::start(&data, &args);
    fs::write(gate.path().join("go"), "").expect("another file system");
    small.empty();
    cloud.wait_for(&id, "success");
}
