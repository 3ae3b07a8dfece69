//! Checks that the host names of the configuration can be resolved.
//!
//! In: the configuration. Out: findings.

use std::net::IpAddr;

use futures_util::future::join_all;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::Finding;
use crate::config::Config;
use crate::io::modules;
use crate::limits::DOCTOR_RESOLVE;

/// Looks up every name in the configuration.
pub async fn examine(config: &Config) -> Vec<Finding> {
    const WHAT: &str = "resolver";
    let names = names(config);
    let looked_up = join_all(names.iter().map(|name| look_up(name))).await;
    let unknown: Vec<Finding> = names
        .iter()
        .zip(looked_up)
        .filter_map(|(name, outcome)| {
            let why = outcome.err()?;
            Some(Finding::error(
                WHAT,
                format!("{name} cannot be resolved: {why}; check its spelling and the servers in /etc/resolv.conf"),
            ))
        })
        .collect();
    match (names.is_empty(), unknown.is_empty()) {
        (true, _) => vec![Finding::ok(WHAT, "the configuration has no host names to resolve")],
        (false, true) => vec![Finding::ok(WHAT, format!("resolved {}", names.join(", ")))],
        (false, false) => unknown,
    }
}

/// Returns the names that the runner or its callers will look up, each once.
fn names(config: &Config) -> Vec<String> {
    let proxy = config.proxy.iter().map(|proxy| match proxy.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host.to_owned(),
        _ => proxy.clone(),
    });
    let of_modules = modules::built().filter_map(|module| module.hosts);
    let of_modules = of_modules.flat_map(|hosts| hosts(config));
    let mut names: Vec<String> = Vec::new();
    for name in of_modules.chain(proxy) {
        let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        if !is_address && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

async fn look_up(name: &str) -> Result<(), String> {
    match timeout(DOCTOR_RESOLVE, lookup_host((name, 443))).await {
        Ok(Ok(mut addresses)) => addresses
            .next()
            .map(|_| ())
            .ok_or_else(|| "it has no address".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", DOCTOR_RESOLVE.as_secs())),
    }
}
