//! A process group: a started process and its descendants.
//!
//! In: signals. Out: whether any member is left. Dropping the group kills it. A process that has
//! left the group (`setsid`) is not tracked. Source: `kill(2)`, `setpgid(2)`, `waitpid(2)`,
//! `proc_pid_stat(5)`.

use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid};

/// A process group, identified by the process id of its leader.
pub struct ProcessGroup {
    id: Pid,
    /// The leader has not been reaped, so its id cannot be reused.
    is_led: bool,
    is_gone: bool,
}

impl ProcessGroup {
    /// Creates the group of `child`, a group leader that has not been reaped.
    pub fn from_leader(child: u32) -> ProcessGroup {
        let id = i32::try_from(child).ok().and_then(Pid::from_raw);
        ProcessGroup {
            id: id.expect("the system numbers processes from 1 to 2^22"),
            is_led: true,
            is_gone: false,
        }
    }

    /// Returns the id of the group, which is that of its leader.
    pub fn id(&self) -> i32 {
        self.id.as_raw_pid()
    }

    /// Records that the leader has been reaped.
    pub fn leader_was_reaped(&mut self) {
        self.is_led = false;
    }

    /// Sends a signal to every member of the group.
    pub fn signal(&mut self, signal: Signal) {
        // Without its leader, the id stays reserved only while the group has a member.
        if self.is_led || !self.is_gone() {
            let _ = kill_process_group(self.id, signal);
        }
    }

    /// Tells whether the group has no members left. Once it has returned true it asks no more.
    pub fn is_gone(&mut self) -> bool {
        if self.is_led || self.is_gone {
            return self.is_gone;
        }
        // As the first process of a container the runner inherits orphans and has to reap them.
        while let Ok(Some(_)) = waitpgid(self.id, WaitOptions::NOHANG) {}
        self.is_gone = test_kill_process_group(self.id).is_err() || !has_live_member(self.id.as_raw_pid());
        self.is_gone
    }
}

/// Tells whether the group has a member that is not a zombie. A zombie may stay for long, for
/// instance in a container whose first process does not reap.
fn has_live_member(group: i32) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return true;
    };
    processes
        .flatten()
        // Entries that are no processes have no such file.
        .filter_map(|process| fs::read_to_string(process.path().join("stat")).ok())
        // The fields are: pid, (name), state, ppid, pgrp. The name may contain any character.
        .filter_map(|stat| {
            let (_, rest) = stat.rsplit_once(')')?;
            let mut fields = rest.split_ascii_whitespace();
            let (state, group) = (fields.next()?, fields.nth(1)?);
            (!matches!(state, "Z" | "X")).then(|| group.parse().ok())?
        })
        .any(|of: i32| of == group)
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
