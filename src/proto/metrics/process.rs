//! Metrics of this process: CPU time, memory, file descriptors, threads.
//!
//! In: the text of `/proc/self/stat`, `/proc/self/status`, `/proc/self/limits` and `/proc/stat`,
//! and the number of open descriptors. Out: values under the usual names of Prometheus clients, so
//! that stock dashboards work. Unreadable values are omitted. Source: proc(5).

use std::time::Duration;

use super::text::{MetricKind, MetricsText};

/// Ticks per second of the times in `/proc`: USER_HZ, which is 100 on every supported Linux.
const TICKS_PER_S: u64 = 100;

/// The state of this process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessStats {
    /// CPU time in user and system mode.
    pub cpu: Option<Duration>,
    /// Start time in seconds since 1970.
    pub start_s: Option<u64>,
    pub threads: Option<u64>,
    pub resident_bytes: Option<u64>,
    pub virtual_bytes: Option<u64>,
    pub open_fds: Option<u64>,
    pub max_fds: Option<u64>,
}

/// The contents of the readable files of `/proc`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcFiles<'a> {
    pub stat: &'a str,
    pub status: &'a str,
    pub limits: &'a str,
    pub system_stat: &'a str,
    pub open_fds: Option<u64>,
}

impl ProcessStats {
    pub fn read(files: ProcFiles<'_>) -> Self {
        // The program name is in parentheses and may contain any characters, including parentheses.
        let fields: Vec<&str> = files
            .stat
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().collect())
            .unwrap_or_default();
        // Fields are numbered from 1 as in proc(5); the third one follows the name.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let cpu = field(14).zip(field(15)).map(|(user, system)| ticks(user + system));
        let booted_s = number_after(files.system_stat, "btime");
        let kib = |name: &str| number_after(files.status, name).map(|kib| kib * 1024);
        ProcessStats {
            cpu,
            start_s: field(22)
                .zip(booted_s)
                .map(|(after, booted_s)| booted_s + ticks(after).as_secs()),
            threads: field(20),
            resident_bytes: kib("VmRSS:"),
            virtual_bytes: kib("VmSize:"),
            open_fds: files.open_fds,
            max_fds: max_fds(files.limits),
        }
    }

    /// Writes the families of the values that are known.
    pub fn render(&self, text: &mut MetricsText) {
        let cpu = self.cpu.map(|cpu| cpu.as_secs_f64().to_string());
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let families = [
            (
                "process_cpu_seconds_total",
                MetricKind::Counter,
                "Time on processors, user and system.",
                cpu,
            ),
            (
                "process_start_time_seconds",
                MetricKind::Gauge,
                "When the process began, in seconds since 1970.",
                number(self.start_s),
            ),
            (
                "process_resident_memory_bytes",
                MetricKind::Gauge,
                "Memory that is held in RAM.",
                number(self.resident_bytes),
            ),
            (
                "process_virtual_memory_bytes",
                MetricKind::Gauge,
                "Memory that is mapped.",
                number(self.virtual_bytes),
            ),
            (
                "process_open_fds",
                MetricKind::Gauge,
                "Open file descriptors.",
                number(self.open_fds),
            ),
            (
                "process_max_fds",
                MetricKind::Gauge,
                "Most file descriptors that may be open.",
                number(self.max_fds),
            ),
            (
                "process_threads",
                MetricKind::Gauge,
                "Threads of the operating system.",
                number(self.threads),
            ),
        ];
        for (name, kind, help, value) in families {
            if let Some(value) = value {
                text.family(name, kind, help);
                text.sample(&[], value);
            }
        }
    }
}

/// Returns the limit of open descriptors from the text of `/proc/self/limits`; `None` if unlimited.
pub fn max_fds(limits: &str) -> Option<u64> {
    number_after(limits, "Max open files")
}

/// Returns the first number after `name` in the line that starts with it.
pub fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4711 (a) (b c)) S 1 4711 4711 0 -1 4194304 1000 0 0 0 150 75 0 0 20 0 5 0 30000 1000000 2000 0";
    const STATUS: &str = "Name:\tx\nVmSize:\t   12000 kB\nVmRSS:\t    6500 kB\nThreads:\t5\n";
    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
                          Max open files            1024                 524288               files\n";

    /// A name with parentheses and spaces does not shift fields.
    #[test]
    fn parses_the_files_of_proc() {
        let process = ProcessStats::read(ProcFiles {
            stat: STAT,
            status: STATUS,
            limits: LIMITS,
            system_stat: "cpu 1 2 3\nbtime 1700000000\n",
            open_fds: Some(12),
        });
        let expected = ProcessStats {
            cpu: Some(Duration::from_millis(2_250)),
            start_s: Some(1_700_000_300),
            threads: Some(5),
            resident_bytes: Some(6_500 * 1024),
            virtual_bytes: Some(12_000 * 1024),
            open_fds: Some(12),
            max_fds: Some(1_024),
        };
        assert_eq!(process, expected);
    }

    /// Unreadable values yield no line.
    #[test]
    fn omits_missing_values() {
        for stat in ["", "1 (x", "1 (x) S", "1 (x) S a b c"] {
            let process = ProcessStats::read(ProcFiles {
                stat,
                limits: "Max open files            unlimited            unlimited            files\n",
                ..ProcFiles::default()
            });
            assert_eq!(process, ProcessStats::default(), "{stat}");
            let mut text = MetricsText::default();
            process.render(&mut text);
            assert_eq!(text.into_string(), "");
        }
    }
}
