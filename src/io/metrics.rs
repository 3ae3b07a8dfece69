//! What `/metrics` answers: the counts of `proto::metrics`, with what only this floor can see at the moment of the scrape.
//!
//! In: the engine. Out: the text. The files of `/proc` are read when somebody asks and never otherwise; where there are none,
//! their families are absent.

use std::fs;
use std::sync::atomic::Ordering::Relaxed;

use tokio::runtime::Handle;

use crate::io::webrtc::WebRtc;
use crate::proto::metrics::Seen;
use crate::proto::metrics::process::{Files, Process};

/// Returns the text that Prometheus reads. To be called in a task.
pub fn text(engine: &WebRtc) -> String {
    let dropped = engine.port().dropped();
    let stalls = engine.sessions().watch().stalls();
    engine.sessions().metrics().render(&Seen {
        process: process(),
        strangers: dropped.strangers.load(Relaxed),
        inbox_full: dropped.inbox_full.load(Relaxed),
        ice_servers: engine
            .gatherer()
            .status()
            .into_iter()
            .map(|server| server.standing)
            .collect(),
        tasks: Handle::current().metrics().num_alive_tasks() as u64,
        runtime_stalls: stalls.runtime,
        task_stalls: stalls.tasks,
    })
}

/// Reads the state of this process; `None` on a system that has no `/proc`.
pub fn process() -> Option<Process> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The listing itself holds one of them.
    let open_fds = fs::read_dir("/proc/self/fd").map(|listing| listing.count().saturating_sub(1) as u64);
    Some(Process::read(Files {
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

    /// The real files of this system are understood whole.
    #[test]
    fn this_process_is_seen() {
        let process = process().expect("Linux has /proc");
        assert!(process.cpu.is_some() && process.threads >= Some(1) && process.open_fds >= Some(3));
        assert!(process.resident_bytes > Some(100_000) && process.virtual_bytes >= process.resident_bytes);
        // 2001 and 2100: the start is in seconds since 1970, whatever the clock of the builder says within reason.
        assert!((Some(1_000_000_000)..Some(4_102_444_800)).contains(&process.start_s));
    }
}
