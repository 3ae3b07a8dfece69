//! Reads the processor time of this process and its bots from `/proc` and the control group.

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use edge_runner_http::common::lock;

use crate::proto::livekit::worker::cpu::{ProcessTimes, family_time, group_time, service_group};
use crate::proto::sorting;

/// Time for which a reading serves all workers of the runner.
const READING_KEPT: Duration = Duration::from_secs(1);

/// The processor time that the runner and its bots have used in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuReading {
    pub at: Instant,
    pub total: Duration,
}

/// The readings of a runner, which its workers share.
pub struct CpuReadings {
    /// Whether bots are processes, whose processor time counts too.
    has_programs: bool,
    last: Mutex<Option<CpuReading>>,
}

impl CpuReadings {
    pub fn new(has_programs: bool) -> Self {
        CpuReadings {
            has_programs,
            last: Mutex::new(None),
        }
    }

    /// Returns a reading, which may be that of another worker shortly before. Blocks.
    pub fn read(&self, now: Instant) -> CpuReading {
        let mut last = lock(&self.last);
        let recent = last.filter(|reading| now < reading.at + READING_KEPT);
        *last.insert(recent.unwrap_or_else(|| CpuReading {
            at: now,
            total: used(self.has_programs),
        }))
    }
}

/// Returns the processor time in all, or zero where the system does not tell. Without programs,
/// there are no bots beside this process.
fn used(has_programs: bool) -> Duration {
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

    #[test]
    fn a_reading_serves_all_workers_for_a_while() {
        let readings = CpuReadings::new(false);
        let start = crate::io::tasks::now();
        let first = readings.read(start);
        assert_eq!(first.at, start);
        assert_eq!(readings.read(start + READING_KEPT - Duration::from_millis(1)), first);
        assert_eq!(readings.read(start + READING_KEPT).at, start + READING_KEPT);
    }

    /// This process has used some time, and its family no less.
    #[test]
    fn reads_the_time_of_this_process() {
        let own = of_process().expect("Linux has /proc");
        assert!(of_family().expect("Linux has /proc") >= own);
    }
}
