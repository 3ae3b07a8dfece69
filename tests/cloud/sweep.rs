//! Deletion of expired data.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::builds::{GATED, shell};
use crate::support::cloud::{DataDir, TestCloud, archive};
use crate::support::runner::PATIENCE;

fn context(text: &str) -> Vec<u8> {
    archive(&[("Dockerfile", "FROM scratch\n"), ("bot.py", text)])
}

fn archive_of(data: &DataDir, upload: &str) -> PathBuf {
    data.path().join(format!("archives/default/{upload}.tar.gz"))
}

/// Tells whether the archive of an upload is stored.
fn is_stored(data: &DataDir, upload: &str) -> bool {
    data.stored_archive(&format!("default/{upload}.tar.gz")).is_some()
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a path does not exist.
fn wait_until_gone(path: &Path) {
    until(&format!("{} was to be deleted", path.display()), || !path.exists());
}

/// I-23: archives are deleted after their build or unused grant; those of unfinished builds are
/// kept, and builds stay.
#[test]
fn archives_are_deleted_when_no_build_needs_them() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let options = ["--max-builds", "1", "--keep-archives", "0.2", "--grant-ttl", "2"];
    let cloud = TestCloud::start(&data, &shell(&options, GATED, gate.path()));
    let (running, waiting, unused) = (
        cloud.upload(&context("1")),
        cloud.upload(&context("2")),
        cloud.upload(&context("3")),
    );
    let ids = [&running, &waiting].map(|upload| {
        let reply = cloud.create(upload);
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()["build"]["id"].as_str().expect("an identifier").to_owned()
    });
    cloud.wait_for(&ids[0], "building");
    // Once this one is deleted, the sweep has passed the others of the same age.
    until("the unused archive was to be deleted", || !is_stored(&data, &unused));
    for upload in [&running, &waiting] {
        assert!(is_stored(&data, upload));
    }
    assert_eq!(cloud.status(&ids[1])["status"], "pending");
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    for (id, upload) in ids.iter().zip([&running, &waiting]) {
        let done = cloud.wait_for(id, "success");
        until("the archive was to be deleted", || !is_stored(&data, upload));
        assert_eq!(cloud.status(id), done);
        let reply = cloud.post(
            "/v1/builds",
            &serde_json::json!({"uploadId": upload, "region": "local", "buildfilePath": "other"}),
        );
        assert_eq!(reply.status, 400, "its archive is gone: {}", reply.text());
    }
    // A success is a cache hit after its archive is deleted.
    let again = cloud.create(&cloud.upload(&context("1")));
    assert_eq!(again.status, 200);
    assert_eq!(again.json()["build"]["id"], ids[0].as_str());
}

/// I-16, I-23: a build is deleted with its log and image, and is not a cache hit any more.
#[test]
fn builds_are_deleted_with_their_logs_and_images() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    let id = {
        let cloud = TestCloud::start(&data, &shell(&[], GATED, gate.path()));
        let id = cloud.build(&context("1"));
        cloud.wait_for(&id, "success");
        id
    };
    assert_eq!(data.has_stored(&id), (true, true));
    let cloud = TestCloud::start(&data, &shell(&["--keep-builds", "0.1"], GATED, gate.path()));
    until("log and image were to be deleted", || {
        data.has_stored(&id) == (false, false)
    });
    let is_gone = || cloud.get(&format!("/v1/builds/{id}")).status == 404;
    until("the build was to be deleted", is_gone);
    for path in ["", "/logs"] {
        let reply = cloud.get(&format!("/v1/builds/{id}{path}"));
        assert_eq!(reply.status, 404, "{}", reply.text());
    }
    assert_eq!(cloud.get("/v1/builds").json()["total"], 0);
    let again = cloud.create(&cloud.upload(&context("1")));
    assert_eq!(again.status, 201);
}

/// I-23: old files without a record are deleted at the next start, and nothing else.
#[test]
fn files_without_a_record_are_deleted_at_start() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    let id = {
        let cloud = TestCloud::start(&data, &shell(&[], GATED, gate.path()));
        let id = cloud.build(&context("1"));
        cloud.wait_for(&id, "success");
        id
    };
    let old = SystemTime::now() - Duration::from_secs(7200);
    let age = |path: &Path| {
        let file = File::open(path).expect("it is there");
        file.set_modified(old).expect("a time");
    };
    let stray = |n: u32, is_old: bool| {
        let id = format!("00000000-0000-4000-8000-{n:012}");
        let paths = [
            data.path().join(format!("logs/{id}.log")),
            data.path().join(format!("images/{id}")),
            archive_of(&data, &id),
        ];
        fs::write(&paths[0], "log").expect("the folder is writable");
        fs::create_dir(&paths[1]).expect("the folder is writable");
        fs::write(paths[1].join("i"), "image").expect("the folder is writable");
        fs::write(&paths[2], "archive").expect("the folder is writable");
        if is_old {
            paths.iter().for_each(|path| age(path));
        }
        paths
    };
    let (old_one, new_one) = (stray(1, true), stray(2, false));
    let foreign = data.path().join("logs/notes.txt");
    fs::write(&foreign, "of the operator").expect("the folder is writable");
    age(&foreign);
    let kept = [
        data.path().join(format!("logs/{id}.log")),
        data.path().join(format!("images/{id}")),
    ];
    kept.iter().for_each(|path| age(path));

    let options = ["--keep-builds", "3600", "--keep-archives", "3600"];
    let cloud = TestCloud::start(&data, &shell(&options, GATED, gate.path()));
    old_one.iter().for_each(|path| wait_until_gone(path));
    let others = new_one.iter().chain(&kept).chain([&foreign]);
    for path in others {
        assert!(path.exists(), "{}", path.display());
    }
    assert_eq!(cloud.status(&id)["status"], "success");
}
