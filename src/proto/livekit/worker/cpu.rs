//! The processor time of the runner and its bots.
//!
//! In: the texts of `/proc/self/cgroup`, `cpu.stat` of a control group, and `/proc/PID/stat`. Out:
//! time on processors. The group of a systemd service contains the runner and its bots alone; that
//! of a terminal or a container contains others too, and then the processes are added up. Source:
//! proc(5), cgroups(7).

use std::collections::BTreeMap;
use std::time::Duration;

/// Milliseconds of a tick in `/proc`: USER_HZ is 100 on every supported Linux.
const TICK_MS: u64 = 10;

/// Returns the path of a group that is a service; `None` for other groups.
pub fn service_group(cgroup: &str) -> Option<&str> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    let is_plain = path.starts_with('/') && !path.split('/').any(|part| part == "..");
    (is_plain && path.ends_with(".service")).then_some(path)
}

/// Reads the time of a group.
pub fn group_time(cpu_stat: &str) -> Option<Duration> {
    let us = cpu_stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    us.trim().parse().ok().map(Duration::from_micros)
}

/// The times of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessTimes {
    pub parent: u32,
    /// Its own time, and that of children that have ended.
    pub used: Duration,
}

impl ProcessTimes {
    /// Reads `/proc/PID/stat`.
    pub fn read(stat: &str) -> Option<Self> {
        // The name is in parentheses and may contain any characters. The third field follows it.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = (14..=17).map(field).sum::<Option<u64>>()?;
        Some(ProcessTimes {
            parent: u32::try_from(field(4)?).ok()?,
            used: Duration::from_millis(ticks.saturating_mul(TICK_MS)),
        })
    }
}

/// Returns the time of a process and all of its descendants.
pub fn family_time(of: u32, all: &BTreeMap<u32, ProcessTimes>) -> Duration {
    let mut family = vec![of];
    let mut at = 0;
    let mut used = Duration::ZERO;
    while let Some(pid) = family.get(at).copied() {
        at += 1;
        used += all.get(&pid).map_or(Duration::ZERO, |times| times.used);
        let children = all
            .iter()
            .filter(|(_, times)| times.parent == pid)
            .map(|(child, _)| *child);
        let new: Vec<u32> = children.filter(|child| !family.contains(child)).collect();
        family.extend(new);
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_has_a_group_of_its_own() {
        assert_eq!(
            service_group("0::/system.slice/edge-runner.service\n"),
            Some("/system.slice/edge-runner.service")
        );
        for other in [
            "",
            "0::/\n",
            "0::/user.slice/user-1000.slice/session-1.scope\n",
            "12:cpu:/x.service\n",
            "0::/../x.service\n",
        ] {
            assert_eq!(service_group(other), None, "{other}");
        }
        let stat = "usage_usec 1500000\nuser_usec 1\n";
        assert_eq!(group_time(stat), Some(Duration::from_millis(1_500)));
        assert_eq!(group_time("user_usec 1\n"), None);
    }

    #[test]
    fn adds_up_a_process_and_its_descendants() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194560 1 2 3 4 100 50 25 5 20 0 4 0 100 1 1";
        let read = ProcessTimes::read(stat).expect("a stat");
        assert_eq!((read.parent, read.used), (3, Duration::from_millis(1_800)));
        for bad in ["", "7 (a", "7 (a) S", "7 (a) S x 7 7 0 -1 0 1 2 3 4 1 1 1 1"] {
            assert_eq!(ProcessTimes::read(bad), None, "{bad}");
        }
        let times = |parent, ms| ProcessTimes {
            parent,
            used: Duration::from_millis(ms),
        };
        // A process that is its own ancestor, as after the reuse of an id, ends no loop.
        let all = BTreeMap::from([
            (1, times(3, 1)),
            (2, times(1, 10)),
            (3, times(2, 100)),
            (9, times(8, 1_000)),
        ]);
        assert_eq!(family_time(1, &all), Duration::from_millis(111));
        assert_eq!(family_time(5, &all), Duration::ZERO);
    }
}
