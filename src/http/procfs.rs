//! The state of this process from `/proc`: a [`ProcessStats`], or nothing on other systems.

use std::fs;

use edge_runner_proto::metrics::process::{ProcFiles, ProcessStats};

/// Reads the state of this process; returns `None` without `/proc`.
pub fn process() -> Option<ProcessStats> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The listing itself is one of them.
    let open_fds = fs::read_dir("/proc/self/fd").map(|listing| listing.count().saturating_sub(1) as u64);
    Some(ProcessStats::read(ProcFiles {
        stat: &stat,
        status: &read("/proc/self/status"),
        limits: &read("/proc/self/limits"),
        system_stat: &read("/proc/stat"),
        open_fds: open_fds.ok(),
    }))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The files of this system are parsed completely.
    #[test]
    fn this_process_is_read() {
        let process = process().expect("Linux has /proc");
        assert!(process.cpu.is_some() && process.threads >= Some(1) && process.open_fds >= Some(3));
        assert!(process.resident_bytes > Some(100_000) && process.virtual_bytes >= process.resident_bytes);
        // The years 2001 and 2100: the start time is a plausible Unix time.
        assert!((Some(1_000_000_000)..Some(4_102_444_800)).contains(&process.start_s));
    }
}
