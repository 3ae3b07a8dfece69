//! Builds across kills and stops.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::builds::shell;
use crate::support::cloud::{DataDir, TestCloud, archive};
use crate::support::runner::PATIENCE;
use crate::support::skip;

/// Prints its attempt, and hangs until the attempt whose number is in `$0/until`.
const STUBBORN: &str = r#"echo "attempt $BUILD_ATTEMPT"; sleep 1000 & echo $$ $! > "$0/$BUILD_ID.$BUILD_ATTEMPT.new"
    mv "$0/$BUILD_ID.$BUILD_ATTEMPT.new" "$0/$BUILD_ID.$BUILD_ATTEMPT"
    if [ "$BUILD_ATTEMPT" -lt "$(cat "$0/until")" ]; then wait; fi
    echo image > "$BUILD_OUT/i""#;

fn context(text: &str) -> Vec<u8> {
    archive(&[("Dockerfile", "FROM scratch\n"), ("bot.py", text)])
}

fn until(gate: &DataDir, attempt: u32) {
    fs::write(gate.path().join("until"), attempt.to_string()).expect("the folder is writable");
}

/// Waits until an attempt has begun and returns its processes.
fn processes(cloud: &TestCloud, gate: &DataDir, id: &str, attempt: u32) -> Vec<String> {
    let path = gate.path().join(format!("{id}.{attempt}"));
    let began = Instant::now();
    loop {
        // Asked first, because an attempt may end at once.
        let build = cloud.status(id);
        if let Ok(pids) = fs::read_to_string(&path) {
            return pids.split_whitespace().map(str::to_owned).collect();
        }
        // The build must not end before.
        let goes_on = build.get("completedAt").is_none();
        assert!(
            goes_on && began.elapsed() < PATIENCE,
            "attempt {attempt} was to begin: {build:#}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Tells whether a process runs and is not a zombie.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}

fn time<'v>(build: &'v Value, name: &str) -> &'v str {
    build[name].as_str().unwrap_or_else(|| panic!("no {name} in {build}"))
}

/// I-19: after a kill the running build runs again with the same start time, the pending one waits,
/// and the earlier command's processes are gone.
#[test]
fn builds_survive_a_kill() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    until(&gate, 2);
    let args = shell(&["--max-builds", "1"], STUBBORN, gate.path());
    let cloud = TestCloud::start(&data, &args);
    let first = cloud.build(&context("1"));
    let before = processes(&cloud, &gate, &first, 1);
    let second = cloud.build(&context("2"));
    let building = cloud.status(&first);
    assert_eq!(building["status"], "building");
    let pending = cloud.status(&second);
    assert_eq!(pending["status"], "pending");
    drop(cloud);

    let cloud = TestCloud::start(&data, &args);
    let after = processes(&cloud, &gate, &first, 2);
    for pid in &before {
        assert!(!runs(pid), "process {pid} of the first attempt runs");
    }
    let done = cloud.wait_for(&first, "success");
    assert_eq!(done["startedAt"], building["startedAt"]);
    assert_eq!(done["createdAt"], building["createdAt"]);
    assert!(time(&done, "updatedAt") >= time(&building, "updatedAt"));
    let log = cloud.log(&first);
    let place = |words: &str| log.iter().position(|line| line == words);
    let lines = [
        place("attempt 1"),
        place("[service] interrupted, attempt 2 of 3"),
        place("attempt 2"),
    ];
    assert!(lines.iter().all(Option::is_some) && lines.is_sorted(), "{log:?}");
    // The pending build hangs in its first attempt; the next kill interrupts it.
    let waits = processes(&cloud, &gate, &second, 1);
    assert_eq!(cloud.status(&second)["status"], "building");
    drop(cloud);
    let cloud = TestCloud::start(&data, &args);
    cloud.wait_for(&second, "success");
    assert_eq!(cloud.status(&first), done, "what has ended never changes");
    for pid in after.iter().chain(&waits) {
        assert!(!runs(pid), "process {pid} runs");
    }
    data.wait_for_empty_scratch();
}

/// I-19: interrupted attempts count; after the last one the build fails without another run.
#[test]
fn attempts_are_limited() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    until(&gate, 100);
    let options = [&["--max-attempts", "2"], data.short_lease()].concat();
    let args = shell(&options, STUBBORN, gate.path());
    let cloud = TestCloud::start(&data, &args);
    let id = cloud.build(&context("1"));
    processes(&cloud, &gate, &id, 1);
    drop(cloud);
    let cloud = TestCloud::start(&data, &args);
    processes(&cloud, &gate, &id, 2);
    assert_eq!(cloud.status(&id)["status"], "building");
    drop(cloud);
    let cloud = TestCloud::start(&data, &args);
    let failed = cloud.wait_for(&id, "failed");
    let error = time(&failed, "errorMessage");
    assert!(error.starts_with("build: interrupted 2 times"), "{error}");
    assert!(!gate.path().join(format!("{id}.3")).exists());
    assert!(
        cloud
            .log(&id)
            .iter()
            .any(|line| line.starts_with("[service] interrupted, no attempts"))
    );
}

/// I-29: an orderly stop interrupts commands and exits with 0; the next start continues.
#[test]
fn builds_survive_a_stop() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    until(&gate, 3);
    let args = shell(&[], STUBBORN, gate.path());
    let id = {
        let mut cloud = TestCloud::start(&data, &args);
        let id = cloud.build(&context("1"));
        let pids = processes(&cloud, &gate, &id, 1);
        cloud.runner.signal("TERM");
        assert_eq!(cloud.runner.wait().code(), Some(0));
        assert!(pids.iter().all(|pid| !runs(pid)), "its command is gone");
        id
    };
    {
        let mut cloud = TestCloud::start(&data, &args);
        assert_eq!(cloud.status(&id)["status"], "building");
        processes(&cloud, &gate, &id, 2);
        cloud.runner.signal("INT");
        assert_eq!(cloud.runner.wait().code(), Some(0));
    }
    let cloud = TestCloud::start(&data, &args);
    cloud.wait_for(&id, "success");
    let log = cloud.log(&id);
    // Replicas give an attempt back that such a stop interrupts.
    let attempts = if data.place().is_none() { 3 } else { 5 };
    let line = format!("[service] interrupted, attempt 3 of {attempts}");
    assert!(log.contains(&line), "{log:?}");
}

/// I-19: pending builds run in order after a kill.
#[test]
fn the_queue_survives_a_kill() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let script =
        r#"while [ ! -e "$0/go" ]; do sleep 0.02; done; cat bot.py >> "$0/order"; echo image > "$BUILD_OUT/i""#;
    let options = [&["--max-builds", "1"], data.short_lease()].concat();
    let args = shell(&options, script, gate.path());
    let cloud = TestCloud::start(&data, &args);
    let ids: Vec<String> = (0..5).map(|n| cloud.build(&context(&n.to_string()))).collect();
    cloud.wait_for(&ids[0], "building");
    drop(cloud);
    // A command may outlive its service for a moment.
    let cloud = TestCloud::start(&data, &args);
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    for id in &ids {
        cloud.wait_for(id, "success");
    }
    // The lease of a killed replica lasts, so that its build is the next one when that has passed.
    let order = fs::read_to_string(gate.path().join("order")).expect("they ran");
    match data.place() {
        None => assert_eq!(order, "01234"),
        Some(_) => assert_eq!(order.replacen('0', "", 1), "1234", "{order}"),
    }
}

/// I-19: a leftover that cannot be removed, here a mount, is logged and blocks nothing.
#[test]
fn leftovers_that_cannot_be_removed_block_nothing() {
    // A mount namespace for this thread and its children.
    let own = std::thread::spawn(|| {
        let (data, gate) = (DataDir::new(), DataDir::new());
        let (left, gone) = (
            data.path().join("scratch/a-1/held"),
            data.path().join("scratch/b-1/gone"),
        );
        for folder in [&left, &gone] {
            fs::create_dir_all(folder).expect("the folder is writable");
        }
        fs::write(gate.path().join("kept"), "").expect("the folder is writable");
        if !bind(gate.path(), &left) {
            skip::lacks_root("leftovers that cannot be removed", "mounts need root");
            return;
        }
        let cloud = TestCloud::start(&data, &shell(&[], r#"echo image > "$BUILD_OUT/i""#, gate.path()));
        assert!(cloud.runner.log().contains("not everything can be removed"));
        assert!(left.join("kept").exists() && !gone.exists());
        let id = cloud.build(&context("1"));
        cloud.wait_for(&id, "success");
        drop(cloud);
        rustix::mount::unmount(&left, rustix::mount::UnmountFlags::empty()).expect("it is mounted");
    });
    own.join().expect("what is asserted holds");
}

/// Bind-mounts a folder in a new mount namespace; returns whether that is permitted.
fn bind(what: &Path, at: &Path) -> bool {
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    // SAFETY: only the mount namespace is unshared, not the table of descriptors.
    let own = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) };
    let apart = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    own.and_then(|()| mount_change("/", apart))
        .and_then(|()| mount_bind(what, at))
        .is_ok()
}

/// A damaged database is an error that names it, and stays unchanged.
#[test]
fn damaged_records_are_a_start_error() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let args = shell(&[], "exit 0", gate.path());
    drop(TestCloud::start(&data, &args));
    let path = data.path().join("builds.db");
    for name in ["builds.db-wal", "builds.db-shm"] {
        let _ = fs::remove_file(data.path().join(name));
    }
    fs::write(&path, "this is not a database in spite of its name. ".repeat(100)).expect("the folder is writable");
    let before = fs::read(&path).expect("the file");
    let folder = data.path().to_str().expect("folders of tests are UTF-8");
    let ended = crate::support::runner::TestRunner::run(&["cloud", "serve", "--port", "0", "--data-dir", folder]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("builds.db") && ended.stderr.contains("damaged"),
        "{}",
        ended.stderr
    );
    assert_eq!(fs::read(&path).expect("the file"), before);
}
