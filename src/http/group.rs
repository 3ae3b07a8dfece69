//! A group of processes: one that was started, and all that it starts in turn.
//!
//! In: signals. Out: whether any of the group is left. However it is let go of, no process of the group stays behind; one that left
//! it (`setsid`) is not found here. Source: `kill(2)`, `setpgid(2)`, `waitpid(2)`, `proc_pid_stat(5)`.

use std::fs;

/// A process group, by the number of its leader.
pub struct Group {
    id: libc::pid_t,
    /// The leader was not reaped yet, so that its number is nobody else's.
    is_led: bool,
    is_gone: bool,
}

impl Group {
    /// Takes charge of a group by its leader, a child of this process that nobody has waited for.
    pub fn led_by(child: u32) -> Group {
        Group {
            id: child as libc::pid_t,
            is_led: true,
            is_gone: false,
        }
    }

    /// Returns the number of its leader, which is its own.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Takes note that somebody has waited for the leader.
    pub fn leader_ended(&mut self) {
        self.is_led = false;
    }

    /// Sends a signal to all of the group.
    pub fn signal(&mut self, signal: libc::c_int) {
        // Without a leader the number lives as long as any member does, and not longer.
        if self.is_led || !self.is_gone() {
            // SAFETY: two numbers, no memory.
            unsafe { libc::kill(-self.id, signal) };
        }
    }

    /// Tells whether the group has no member any more; it is asked until it says so, and never after.
    pub fn is_gone(&mut self) -> bool {
        if self.is_led || self.is_gone {
            return self.is_gone;
        }
        // Where the runner is the first process of a container, orphans become its children: nobody else reaps them.
        // SAFETY: a null pointer says that the status is not wanted.
        while unsafe { libc::waitpid(-self.id, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
        // SAFETY: two numbers, no memory. Signal 0 only asks.
        self.is_gone = unsafe { libc::kill(-self.id, 0) } != 0 || !runs(self.id);
        self.is_gone
    }
}

/// Tells whether a member of a group runs. A zombie does not, and whoever has to reap it may take its time, or never do it: the
/// first process of a container often does not.
fn runs(group: libc::pid_t) -> bool {
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
        .any(|of: libc::pid_t| of == group)
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
    }
}
