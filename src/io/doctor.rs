//! `edge-runner doctor`: checks the configuration and the machine, with advice for each fault.
//!
//! In: the configuration of the runner. Out: [`Findings`], one line per check. All checks run at
//! once, each with a time limit; `proto::doctor` judges the results. Only configured servers are
//! asked, only for what is free of charge, and nothing is left behind.

#[cfg_attr(not(feature = "tls"), path = "absent.rs")]
pub mod certificate;
mod machine;
mod ports;
mod resolver;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::config::Config;
use crate::io::module::blocking;
use crate::io::modules;
use crate::limits::DOCTOR_CHECK;
use crate::proto::doctor::network;
use crate::proto::doctor::{Finding, Findings};

/// Runs all checks at once: those of the machine, and those of each module in the order of the
/// table.
pub async fn examine(config: Arc<Config>) -> Findings {
    let checks = modules::built().flat_map(|module| module.checks);
    let of_modules = join_all(checks.map(|check| within(check.what, (check.examine)(&config))));
    let (ports, machine, of_modules, resolver, program, cluster) = tokio::join!(
        within("ports", ports::examine(&config)),
        within("machine", blocking(&config, machine::examine)),
        of_modules,
        within("resolver", resolver::examine(&config)),
        within("bot", blocking(&config, machine::programs)),
        within("cluster", blocking(&config, machine::cluster)),
    );
    let access = vec![network::access(&config, crate::features::sockets().as_deref())];
    let before = [ports, access, machine];
    let after = [resolver, program, cluster];
    Findings(before.into_iter().chain(of_modules).chain(after).flatten().collect())
}

/// Runs a check with a time limit.
async fn within(what: &'static str, check: impl Future<Output = Vec<Finding>>) -> Vec<Finding> {
    timeout(DOCTOR_CHECK, check).await.unwrap_or_else(|_| {
        let text = format!("no result within {} s", DOCTOR_CHECK.as_secs());
        vec![Finding::warning(what, text)]
    })
}
