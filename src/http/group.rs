//! A group of processes: one that was started, and all that it starts in turn.
//!
//! In: signals. Out: whether any of the group is left. However it is let go of, no process of the group stays behind; one that left
//! it (`setsid`) is not found here. Source: `kill(2)`, `setpgid(2)`, `waitpid(2)`, `proc_pid_stat(5)`.

use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid};

/// A process group, by the number of its leader.
pub struct ProcessGroup {
    id: Pid,
    /// The leader was not reaped yet, so that its number is nobody else's.
    is_led: bool,
    is_gone: bool,
}

impl ProcessGroup {
    /// Takes charge of a group by its leader, a child of this process that nobody has waited for.
    pub fn from_leader(child: u32) -> ProcessGroup {
        let id = i32::try_from(child).ok().and_then(Pid::from_raw);
        ProcessGroup {
            id: id.expect("the system numbers processes from 1 to 2^22"),
            is_led: true,
            is_gone: false,
        }
    }

    /// Returns the number of its leader, which is its own.
    pub fn id(&self) -> i32 {
        self.id.as_raw_pid()
    }

    /// Takes note that somebody has waited for the leader.
    pub fn leader_was_reaped(&mut self) {
        self.is_led = false;
    }

    /// Sends a signal to all of the group.
    pub fn signal(&mut self, signal: Signal) {
        // Without a leader the number lives as long as any member does, and not longer.
        if self.is_led || !self.is_gone() {
            let _ = kill_process_group(self.id, signal);
        }
    }

    /// Tells whether the group has no member any more; it is asked until it says so, and never after.
    pub fn is_gone(&mut self) -> bool {
        if self.is_led || self.is_gone {
            return self.is_gone;
        }
        // Where the runner is the first process of a container, orphans become its children: nobody else reaps them.
        while let Ok(Some(_)) = waitpgid(self.id, WaitOptions::NOHANG) {}
        self.is_gone = test_kill_process_group(self.id).is_err() || !runs(self.id.as_raw_pid());
        self.is_gone
    }
}

/// Tells whether a member of a group runs. A zombie does not, and whoever has to reap it may take its time, or never do it: the
/// first process of a container often does not.
fn runs(group: i32) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return true;
    };
    processes
        .flatten()
        // What is no process has no such file.
        .filter_map(|process| fs::read_to_string(process.path().join("stat")).ok())
        // Its number, its name in parentheses, which may hold anything, its state, its parent's number, its group's.
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
