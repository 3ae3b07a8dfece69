//! Reads the processor time of this process and its bots from `/proc` and the control group.

use std::fs;
use std::time::Duration;

use crate::proto::livekit::worker::cpu::{ProcessTimes, family_time, group_time, service_group};
use crate::proto::sorting;

/// Returns the processor time in all, or zero where the system does not tell. Without programs,
/// there are no bots beside this process.
pub fn used(has_programs: bool) -> Duration {
    let of_group = || {
        let cgroup = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = service_group(&cgroup)?;
        group_time(&fs::read_to_string(format!("/sys/fs/cgroup{path}/cpu.stat")).ok()?)
    };
    of_group()
        .or_else(|| if has_programs { of_family() } else { of_process() })
        .unwrap_or_default()
}

fn of_process() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    ProcessTimes::read(&stat).map(|times| times.used)
}

fn of_family() -> Option<Duration> {
    let pid = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u32>().ok();
    let times = |pid: u32| {
        Some((
            pid,
            ProcessTimes::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?,
        ))
    };
    let all = sorting::map(fs::read_dir("/proc").ok()?.filter_map(pid).filter_map(times));
    Some(family_time(std::process::id(), &all))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// This process has used some time, and its family no less.
    #[test]
    fn reads_the_time_of_this_process() {
        let own = of_process().expect("Linux has /proc");
        assert!(of_family().expect("Linux has /proc") >= own);
    }
}
