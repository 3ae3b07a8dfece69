//! Checks clock, memory and open-file limits against the configured number of sessions.
//!
//! In: seconds, bytes, counts, the text of `/proc/meminfo`. Out: findings. The estimates are
//! generous and come from measurements.

use serde::Deserialize;

use super::Finding;

use crate::limits::{
    HTTP_CONNECTIONS_MAX, MEMORY_BASE_BYTES, MEMORY_SESSION_BYTES, OPEN_FILES_BASE, OPEN_FILES_PROGRAM,
    OPEN_FILES_ROOM, OPEN_FILES_SESSION, RELEASED_S,
};
use crate::metrics::process::number_after;

/// Latest plausible time of the clock, in seconds since 1970: the year 2100.
const CLOCK_LATEST_S: u64 = 4_102_444_800;

const SYNC: &str = match cfg!(target_os = "macos") {
    true => "let the system set the time (System Settings, Date & Time)",
    false => "run `timedatectl set-ntp true`, or add a battery to the clock of the board",
};

/// Checks the clock; `synchronised` is the report of the system, if any.
pub fn clock(now_s: u64, synchronised: Option<bool>) -> Finding {
    const WHAT: &str = "clock";
    let year = 1970 + now_s / 31_556_952;
    if now_s < RELEASED_S {
        return Finding::error(
            WHAT,
            format!(
                "the clock is in {year}, before the release of this version: certificates and signatures are rejected; {SYNC}"
            ),
        );
    }
    if now_s > CLOCK_LATEST_S {
        return Finding::error(
            WHAT,
            format!("the clock is in {year}: certificates and signatures are rejected; {SYNC}"),
        );
    }
    match synchronised {
        Some(false) => Finding::warning(
            WHAT,
            format!(
                "the clock is not synchronised: if it is off by minutes, certificates and signatures are rejected; {SYNC}"
            ),
        ),
        Some(true) => Finding::ok(WHAT, "right and synchronised"),
        None => Finding::ok(WHAT, "plausible"),
    }
}

/// Checks the limit of open files; `None` means unlimited.
pub fn open_files(max: Option<u64>, sessions_max: usize, programs: bool, rooms: bool) -> Finding {
    const WHAT: &str = "open files";
    let programs = if programs { OPEN_FILES_PROGRAM } else { 0 };
    let each = OPEN_FILES_SESSION + programs + if rooms { OPEN_FILES_ROOM } else { 0 };
    let needed = OPEN_FILES_BASE + HTTP_CONNECTIONS_MAX as u64 + each * sessions_max as u64;
    match max {
        Some(max) if max < needed => Finding::warning(
            WHAT,
            format!(
                "the limit is {max}, but {sessions_max} sessions may need {needed}: set `LimitNOFILE={needed}` in the service \
                 file, run `ulimit -n {needed}` in the shell, or lower --max-sessions"
            ),
        ),
        Some(max) => Finding::ok(
            WHAT,
            format!("the limit is {max}; {sessions_max} sessions need up to {needed}"),
        ),
        None => Finding::ok(WHAT, "no limit"),
    }
}

/// The report of the package for bots in Python about one file.
#[derive(Deserialize)]
struct PythonReport {
    /// The version of the interpreter.
    python: String,
    pipecat: Option<String>,
    /// The modules that the file imports and the interpreter does not have.
    missing: Vec<String>,
    import_ms: Option<u64>,
    /// Why the imports failed.
    error: Option<String>,
}

/// Checks a bot that is a file in Python, by the report of its interpreter.
pub fn python_bot(file: &str, interpreter: &str, report: &str) -> Finding {
    const WHAT: &str = "bot";
    let Ok(report) = serde_json::from_str::<PythonReport>(report) else {
        return Finding::error(WHAT, format!("`{interpreter}` gives no report about {file}"));
    };
    let pipecat = match &report.pipecat {
        Some(version) => format!("Pipecat {version}"),
        None => "no Pipecat".to_owned(),
    };
    let about = format!("{file} in `{interpreter}` (Python {}, {pipecat})", report.python);
    match (&*report.missing, report.error, report.import_ms) {
        ([_, ..], ..) => Finding::error(
            WHAT,
            format!(
                "{about} lacks the modules {}: install them for this interpreter, or name another one with --python",
                report.missing.join(", ")
            ),
        ),
        ([], Some(error), _) => Finding::error(WHAT, format!("{about} cannot be imported: {error}")),
        ([], None, Some(ms)) => Finding::ok(
            WHAT,
            format!("{about}: its imports take {ms} ms, before the first call; with --warm 0, in each call"),
        ),
        ([], None, None) => Finding::ok(WHAT, about),
    }
}

/// Checks the memory by the text of `/proc/meminfo`. The memory of programs is unknown.
pub fn memory(meminfo: &str, sessions_max: usize) -> Finding {
    const WHAT: &str = "memory";
    const MIB: u64 = 1024 * 1024;
    let needed = MEMORY_BASE_BYTES + MEMORY_SESSION_BYTES * sessions_max as u64;
    let Some(available) = number_after(meminfo, "MemAvailable:").map(|kib| kib * 1024) else {
        return Finding::ok(WHAT, "the amount of free memory is unknown");
    };
    let text = format!(
        "{} MiB are free; {} MiB are enough for {sessions_max} sessions",
        available / MIB,
        needed / MIB
    );
    if available < needed {
        Finding::warning(WHAT, format!("{text}; lower --max-sessions"))
    } else {
        Finding::ok(WHAT, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bot_in_python_is_checked_by_its_own_interpreter() {
        let judged = |report: &str| python_bot("bot.py", "/py", report);
        let report = |missing: &str, ms: &str, error: &str| {
            let rest = format!(r#""missing":{missing},"import_ms":{ms},"error":{error}"#);
            judged(&format!(r#"{{"python":"3.11.7","pipecat":"1.14.0",{rest}}}"#))
        };
        let good = report("[]", "1800", "null");
        assert!(
            good.text.contains("Pipecat 1.14.0")
                && good
                    .text
                    .ends_with("1800 ms, before the first call; with --warm 0, in each call"),
            "{}",
            good.text
        );
        assert!(
            report(r#"["daily","numpy"]"#, "null", "null")
                .text
                .contains("lacks the modules daily, numpy")
        );
        assert!(
            report("[]", "null", r#""ValueError: x""#)
                .text
                .contains("ValueError: x")
        );
        assert!(judged("Traceback").text.contains("no report"));
    }
    use crate::doctor::FindingLevel;

    /// Boards without a battery start in 1970; the limits are plausible, times beyond them are not.
    #[test]
    fn reports_an_implausible_clock() {
        for (now_s, synchronised, verdict) in [
            (0, Some(true), FindingLevel::Error),
            (RELEASED_S - 1, Some(true), FindingLevel::Error),
            (RELEASED_S, Some(true), FindingLevel::Ok),
            (RELEASED_S, Some(false), FindingLevel::Warning),
            (RELEASED_S, None, FindingLevel::Ok),
            (CLOCK_LATEST_S, None, FindingLevel::Ok),
            (CLOCK_LATEST_S + 1, None, FindingLevel::Error),
        ] {
            assert_eq!(clock(now_s, synchronised).level, verdict, "{now_s} {synchronised:?}");
        }
        assert!(clock(0, None).text.contains("1970"));
    }

    #[test]
    fn checks_limits_against_the_number_of_sessions() {
        let needed = OPEN_FILES_BASE + HTTP_CONNECTIONS_MAX as u64 + OPEN_FILES_SESSION * 32;
        assert_eq!(open_files(Some(needed), 32, false, false).level, FindingLevel::Ok);
        assert_eq!(
            open_files(Some(needed - 1), 32, false, false).level,
            FindingLevel::Warning
        );
        assert_eq!(open_files(Some(needed), 32, true, false).level, FindingLevel::Warning);
        assert_eq!(open_files(Some(needed), 32, false, true).level, FindingLevel::Warning);
        assert_eq!(open_files(None, 4_096, true, true).level, FindingLevel::Ok);
        let kib = (MEMORY_BASE_BYTES + MEMORY_SESSION_BYTES * 8) / 1024;
        let meminfo = |kib: u64| format!("MemTotal: 99 kB\nMemAvailable:   {kib} kB\n");
        assert_eq!(memory(&meminfo(kib), 8).level, FindingLevel::Ok);
        assert_eq!(memory(&meminfo(kib - 1), 8).level, FindingLevel::Warning);
        assert_eq!(memory("", 8).level, FindingLevel::Ok);
    }
}
