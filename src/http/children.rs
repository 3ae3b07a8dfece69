//! Children of this process: their start, and the reaping of processes that it inherits.
//!
//! The first process of a container inherits every process whose parent has ended, as does a
//! subreaper. Such a process stays a zombie, which takes a place in the table of processes, until
//! it is reaped. In: the starts of children, whose owners reap them and need their exit status.
//! Out: the reaping of all others. Source: `wait(2)`, `prctl(2)`, `proc_pid_stat(5)`.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Pid, WaitOptions, getpid, waitpid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::common::lock;

/// Time that a zombie is left to code that starts children by itself: it waits for them, and reaps
/// them at once.
const UNCLAIMED_FOR: Duration = Duration::from_secs(1);

/// The process ids of children whose owners reap them.
static OWNED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Reserves a child for its owner. Dropped after the child.
#[derive(Debug)]
pub struct ChildOwner(u32);

impl Drop for ChildOwner {
    fn drop(&mut self) {
        lock(&OWNED).remove(&self.0);
    }
}

/// Starts a child, and reserves it for its owner.
///
/// # Errors
/// The system's error.
pub fn spawn(command: &mut Command) -> io::Result<(Child, ChildOwner)> {
    // Under the lock, nothing reaps the child before it is reserved, nor one whose program cannot
    // be executed, which the standard library reaps.
    let mut owned = lock(&OWNED);
    let child = command.spawn()?;
    let id = child.id().expect("a child that was never waited for has a process id");
    owned.insert(id);
    Ok((child, ChildOwner(id)))
}

/// Reaps the processes that this process inherits, if it inherits any; otherwise it returns at
/// once.
pub async fn reap_orphans() {
    if !inherits_orphans() {
        return;
    }
    // It also hears of processes that were inherited as zombies.
    let Ok(mut ended) = signal(SignalKind::child()) else {
        return log::warn!("processes that bots leave behind stay zombies: listening for SIGCHLD failed");
    };
    log::debug!("this process inherits orphans, and reaps them");
    let mut unclaimed = BTreeSet::new();
    loop {
        unclaimed = reap(&unclaimed);
        if unclaimed.is_empty() {
            ended.recv().await;
        }
        // Also bounds how often the processes are listed.
        sleep(UNCLAIMED_FOR).await;
    }
}

/// Returns whether orphans become children of this process.
fn inherits_orphans() -> bool {
    #[cfg(target_os = "linux")]
    let is_subreaper = rustix::process::child_subreaper().is_ok_and(|subreaper| subreaper.is_some());
    #[cfg(not(target_os = "linux"))]
    let is_subreaper = false;
    getpid().is_init() || is_subreaper
}

/// Reaps the zombies that are unclaimed since the last call, which returned `unclaimed`.
/// Returns the unclaimed zombies that remain.
fn reap(unclaimed: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut zombies = zombies();
    let owned = lock(&OWNED);
    zombies.retain(|id| {
        let is_old = unclaimed.contains(id);
        if is_old && !owned.contains(id) {
            let pid = i32::try_from(*id).ok().and_then(Pid::from_raw);
            let _ = waitpid(pid, WaitOptions::NOHANG);
        }
        !is_old && !owned.contains(id)
    });
    zombies
}

/// Returns the children of this process that have ended and were not reaped.
fn zombies() -> BTreeSet<u32> {
    let own = std::process::id();
    let Ok(processes) = fs::read_dir("/proc") else {
        return BTreeSet::new();
    };
    processes
        .flatten()
        .filter_map(|process| {
            let id = process.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(process.path().join("stat")).ok()?;
            is_zombie_of(own, &stat).then_some(id)
        })
        .collect()
}

/// Returns whether the line of `/proc/PID/stat` is that of a zombie with this parent.
fn is_zombie_of(parent: u32, stat: &str) -> bool {
    // The fields are: pid, (name), state, ppid. The name may contain any character.
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return false;
    };
    let mut fields = rest.split_ascii_whitespace();
    fields.next() == Some("Z") && fields.next().and_then(|id| id.parse().ok()) == Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_is_recognised_by_its_state_and_its_parent() {
        for (stat, expected) in [
            ("12 (sh) Z 7 12 12 0 -1", true),
            ("12 (a) Z 8 (b) S) Z 7 12 12 0", true),
            ("12 (sh) S 7 12 12 0 -1", false),
            ("12 (sh) Z 77 7 7 0 -1", false),
            ("12 (sh) Z", false),
            ("", false),
        ] {
            assert_eq!(is_zombie_of(7, stat), expected, "{stat}");
        }
    }

    /// A child that was started here keeps its exit status for its owner, however long the owner
    /// takes; one without an owner is reaped at the second look.
    #[tokio::test]
    async fn reaps_what_has_no_owner() {
        let (mut child, owner) = spawn(Command::new("/bin/sh").args(["-c", "exit 3"])).expect("a shell");
        let id = child.id().expect("it was not waited for");
        let stranger = std::process::Command::new("/bin/sh").args(["-c", "exit 4"]).spawn();
        let mut stranger = stranger.expect("a shell");
        while !zombies().is_superset(&[id, stranger.id()].into()) {
            sleep(Duration::from_millis(1)).await;
        }
        let unclaimed = reap(&BTreeSet::new());
        assert!(unclaimed.contains(&stranger.id()) && !unclaimed.contains(&id));
        // Other tests may have children that are not reserved.
        reap(&[stranger.id()].into());
        assert!(stranger.wait().is_err(), "it was reaped");
        assert_eq!(child.wait().await.expect("its status").code(), Some(3));
        assert!(lock(&OWNED).contains(&id));
        drop(owner);
        assert!(!lock(&OWNED).contains(&id));
    }

    #[tokio::test]
    async fn a_start_that_fails_reserves_nothing() {
        let failed = spawn(&mut Command::new("/nonexistent/bot")).expect_err("there is no such program");
        assert_eq!(failed.kind(), io::ErrorKind::NotFound);
    }
}
