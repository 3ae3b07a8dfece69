//! What this machine has: addresses, clock, limits, memory, folders, the program that is to be the bot.
//!
//! In: the configuration. Out: findings, by the judgement of `proto::doctor`. Reads files of `/proc` and blocks; where there is
//! none of them, less is told. The state folder is tried by writing a file and removing it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use super::Finding;
use crate::config::{Config, Tls};
use crate::io::{metrics, process, webrtc};
use crate::proto::candidate::Interface;
use crate::proto::doctor::{machine, network};

/// Looks at everything that needs no network.
pub fn examine(config: &Config) -> Vec<Finding> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let interfaces: Vec<Interface> = if_addrs::get_if_addrs()
        .unwrap_or_default()
        .into_iter()
        .map(|interface| Interface {
            addr: interface.ip(),
            name: interface.name,
        })
        .collect();
    let mut findings = vec![
        network::addresses(&interfaces, &webrtc::local_addresses(config), config.embedded),
        network::ipv6(&interfaces, &read("/proc/net/ipv6_route")),
        machine::clock(unix_time_s(), synchronised()),
        machine::open_files(
            metrics::process().and_then(|process| process.max_fds),
            config.sessions_max,
            config.command.is_some(),
        ),
        machine::memory(&read("/proc/meminfo"), config.sessions_max),
    ];
    findings.extend(state(config));
    findings
}

/// Looks for the program that is to be the bot.
pub fn program(config: &Config) -> Vec<Finding> {
    const WHAT: &str = "bot";
    vec![match &config.command {
        None => Finding::good(WHAT, format!("the built-in `{}`", config.bot.name())),
        Some(command) => match process::check(command) {
            Ok(()) => {
                let name = command.first().map(|name| name.display().to_string());
                Finding::good(WHAT, format!("`{}` can be run", name.unwrap_or_default()))
            }
            Err(why) => Finding::broken(WHAT, why),
        },
    }]
}

/// Looks at the folder where the certificate of `--tls auto` is kept; without that nothing is.
fn state(config: &Config) -> Option<Finding> {
    const WHAT: &str = "state";
    if config.tls != Tls::Auto {
        return None;
    }
    let Some(folder) = &config.state_dir else {
        return Some(Finding::doubtful(
            WHAT,
            "no place to keep the certificate: each start makes another one, which devices do not trust; --state-dir names \
             one",
        ));
    };
    let shown = folder.display();
    if !folder.exists() {
        // The folder is made when it is needed, in the nearest one that exists.
        let parent = folder.ancestors().find(|parent| parent.exists())?;
        return Some(match write(parent) {
            Ok(()) => Finding::good(WHAT, format!("{shown} will be made")),
            Err(error) => Finding::broken(
                WHAT,
                format!("{shown} cannot be made: {error}; --state-dir names another one"),
            ),
        });
    }
    if let Err(error) = write(folder) {
        let words = format!("nothing can be written to {shown}: {error}; --state-dir names another one");
        return Some(Finding::broken(WHAT, words));
    }
    let mode = fs::metadata(folder).map_or(0, |found| found.permissions().mode());
    Some(if mode & 0o022 != 0 {
        let words = format!("others may write to {shown}, which has keys: `chmod 700 {shown}`");
        Finding::doubtful(WHAT, words)
    } else {
        Finding::good(WHAT, format!("{shown} takes what is kept"))
    })
}

/// Writes a file and removes it, which tells more than any mode: disks may be full, or read only.
fn write(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".edge-runner-doctor-{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, b"x"));
    if fs::remove_file(&path).is_ok() || written.is_err() {
        return written;
    }
    Err(io::Error::other("a file that was written cannot be removed"))
}

pub(super) fn unix_time_s() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Asks the system whether something keeps its clock right; nothing where it does not say.
fn synchronised() -> Option<bool> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: every field of the structure is a number, for which zero is valid; mode 0 asks and changes nothing.
        let mut state: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the structure outlives the call.
        let answered = unsafe { libc::adjtimex(&mut state) } >= 0;
        answered.then_some(state.status & libc::STA_UNSYNC == 0)
    }
    #[cfg(not(target_os = "linux"))]
    None
}
