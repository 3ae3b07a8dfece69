//! Checks this machine: addresses, clock, limits, memory, and the program that acts as the bot.
//!
//! In: the configuration. Out: findings, judged by `proto::doctor`. Reads `/proc` and blocks;
//! without `/proc` the findings say what is unknown.

use std::env::consts::OS;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use edge_runner_http::common::unix_time_s;
use rustix::process::{Resource, getrlimit};

use super::Finding;
use crate::config::Config;
use crate::io::addresses::local_addresses;
use crate::io::process::{self, python};
use crate::proto::address_scope::InterfaceAddress;
use crate::proto::doctor::{machine, network};
use crate::proto::http::cluster::key_file_warning;

/// What is true for systems other than Linux.
const UNTESTED: &str = "the runner is tested on Linux only; here it tells no processor time and no memory of its own";

/// Checks everything that needs no network.
pub fn examine(config: &Config) -> Vec<Finding> {
    let interfaces: Vec<InterfaceAddress> = if_addrs::get_if_addrs()
        .unwrap_or_default()
        .into_iter()
        .map(|interface| InterfaceAddress {
            addr: interface.ip(),
            name: interface.name,
        })
        .collect();
    let mut findings = vec![
        network::addresses(&interfaces, &local_addresses(config), config.embedded),
        network::ipv6(&interfaces, fs::read_to_string("/proc/net/ipv6_route").ok().as_deref()),
        machine::clock(unix_time_s(), synchronised()),
        machine::open_files(
            getrlimit(Resource::Nofile).current,
            config.sessions_max,
            config.command.is_some(),
            config.joins_rooms(),
        ),
        machine::memory(
            &fs::read_to_string("/proc/meminfo").unwrap_or_default(),
            config.sessions_max,
        ),
    ];
    if OS != "linux" {
        findings.push(Finding::warning("system", format!("{OS}: {UNTESTED}")));
    }
    findings
}

/// Checks the file of the cluster key, for a replica.
pub fn cluster(config: &Config) -> Vec<Finding> {
    const WHAT: &str = "cluster";
    let Some(cluster) = &config.cluster else {
        return Vec::new();
    };
    let mode = fs::metadata(&cluster.key_file).map(|file| file.permissions().mode());
    let warning = mode.ok().and_then(|mode| key_file_warning(&cluster.key_file, mode));
    let named = match &cluster.replica_name {
        Some(name) => Finding::ok(WHAT, format!("replica `{name}`; the key file is in order")),
        None => Finding::warning(
            WHAT,
            "this replica has no name, so no balancer can route offers and candidates to it; give --replica-name",
        ),
    };
    vec![warning.map_or(named, |words| Finding::warning(WHAT, words))]
}

/// Checks the program of each bot.
pub fn programs(config: &Config) -> Vec<Finding> {
    let of_bots = config.bots.iter().map(|bot| {
        let finding = program(&bot.config);
        let text = format!("`{}`: {}", bot.name, finding.text);
        Finding { text, ..finding }
    });
    let only = config.bots.is_empty().then(|| program(config));
    of_bots.chain(only).collect()
}

/// Checks the program that acts as the bot.
fn program(config: &Config) -> Finding {
    const WHAT: &str = "bot";
    match &config.command {
        None if !config.bot_enters_rooms && config.transport.is_some_and(|transport| !transport.has_media()) => {
            Finding::error(
                WHAT,
                format!(
                    "the built-in `{}` cannot enter a video room, whose media is for its provider's own library; give a bot that can, \
                 after `--`",
                    config.bot.name()
                ),
            )
        }
        None => match &config.bot_name {
            Some(name) => Finding::ok(WHAT, format!("that of this program, `{name}`")),
            None => Finding::ok(WHAT, format!("the built-in `{}`", config.bot.name())),
        },
        Some(command) if config.python_bot.is_some() => python_bot(config, command),
        Some(command) => match process::check_bot(command, config.bot_folder.as_deref()) {
            Ok(()) => {
                // Other arguments than its script may contain secrets.
                let script = command.get(1..).and_then(crate::proto::process::script);
                let words = command.first().map(|name| &**name).into_iter().chain(script);
                let names: Vec<_> = words.map(|name| name.display().to_string()).collect();
                Finding::ok(WHAT, format!("`{}` can be run", names.join(" ")))
            }
            Err(why) => Finding::error(WHAT, why.to_string()),
        },
    }
}

/// Checks a bot that is a file in Python: runs its imports in the interpreter of its sessions.
fn python_bot(config: &Config, command: &[OsString]) -> Finding {
    const WHAT: &str = "bot";
    let folder = config.bot_folder.as_deref();
    let words = python::command(config, command, folder);
    if let Err(why) = python::check_file(&command[0], &words, folder) {
        return Finding::error(WHAT, why.to_string());
    }
    let file = command[0].display();
    match python::examine(config, &words[0], &command[0]) {
        Ok(said) => machine::python_bot(&file.to_string(), &words[0].display().to_string(), &said),
        Err(why) => Finding::error(WHAT, format!("`{}` cannot check {file}: {why}", words[0].display())),
    }
}

cfg_if::cfg_if! {
    if #[cfg(all(target_os = "linux", feature = "doctor"))] {
        /// Returns whether the clock is synchronised; `None` where the system does not say.
        fn synchronised() -> Option<bool> {
            // SAFETY: every field is an integer, for which zero is valid; mode 0 reads and changes
            // nothing.
            let mut state: libc::timex = unsafe { std::mem::zeroed() };
            // SAFETY: the structure outlives the call.
            let answered = unsafe { libc::adjtimex(&mut state) } >= 0;
            answered.then_some(state.status & libc::STA_UNSYNC == 0)
        }
    } else {
        fn synchronised() -> Option<bool> {
            None
        }
    }
}
