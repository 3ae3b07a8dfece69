//! `edge-runner doctor`: checks the configuration and the machine, with advice for each fault.
//!
//! In: the configuration of the runner. Out: [`Findings`], one line per check. All checks run at
//! once, each with a time limit; `proto::doctor` judges the results. Only configured servers are
//! asked, only for what is free of charge, and nothing is left behind.

#[cfg_attr(not(feature = "assistants"), path = "doctor/assistant/absent.rs")]
mod assistant;
#[cfg_attr(not(feature = "tls"), path = "doctor/certificate/absent.rs")]
mod certificate;
#[cfg_attr(not(feature = "turn"), path = "doctor/ice_servers/absent.rs")]
mod ice_servers;
mod machine;
#[cfg_attr(not(feature = "moq"), path = "doctor/moq/absent.rs")]
mod moq;
mod port_owner;
mod ports;
mod remote;
#[cfg(test)]
mod tests;
#[cfg_attr(not(feature = "webrtc"), path = "doctor/udp_port/absent.rs")]
mod udp_port;
#[cfg_attr(not(feature = "mediaroom"), path = "doctor/worker/absent.rs")]
mod worker;

use std::future::Future;
use std::sync::Arc;

use tokio::time::timeout;

use crate::config::Config;
use crate::features::Feature;
use crate::limits::DOCTOR_CHECK;
use crate::proto::doctor::network;
pub use crate::proto::doctor::{Finding, FindingLevel, Findings};

/// Runs every check.
pub async fn examine(config: Arc<Config>) -> Findings {
    let on_machine = blocking(&config, machine::examine);
    let (
        ports,
        machine,
        https,
        quic,
        relay,
        resolver,
        ice_servers,
        providers,
        rooms,
        worker,
        messaging,
        service,
        tools,
        program,
        cluster,
    ) = tokio::join!(
        within("ports", ports::examine(&config)),
        within("machine", on_machine),
        within("https", blocking(&config, certificate::examine)),
        within("quic", blocking(&config, moq::examine)),
        within("relay", moq::relay(&config)),
        within("resolver", remote::resolver(&config)),
        within("ice servers", ice_servers::examine(&config)),
        within("telephony", remote::providers(&config)),
        within("rooms", remote::rooms(&config)),
        within("worker", worker::examine(&config)),
        within("messaging", remote::messaging(&config)),
        within("realtime", assistant::examine(&config)),
        within("tools", assistant::tools(&config)),
        within("bot", blocking(&config, machine::program)),
        within("cluster", blocking(&config, machine::cluster)),
    );
    let https = if_built(Feature::Tls, https);
    let ice_servers = if_built(Feature::WebRtc, ice_servers);
    let providers = if_built(Feature::Telephony, providers);
    let access = vec![network::access(&config, crate::features::sockets().as_deref())];
    Findings(
        [
            ports,
            access,
            machine,
            https,
            quic,
            relay,
            resolver,
            ice_servers,
            providers,
            rooms,
            worker,
            messaging,
            service,
            tools,
            program,
            cluster,
        ]
        .concat(),
    )
}

/// Drops the findings about a feature that this build lacks.
fn if_built(feature: Feature, findings: Vec<Finding>) -> Vec<Finding> {
    match feature.in_this_build() {
        true => findings,
        false => Vec::new(),
    }
}

/// Runs a check with a time limit.
async fn within(what: &'static str, check: impl Future<Output = Vec<Finding>>) -> Vec<Finding> {
    timeout(DOCTOR_CHECK, check).await.unwrap_or_else(|_| {
        let text = format!("no result within {} s", DOCTOR_CHECK.as_secs());
        vec![Finding::warning(what, text)]
    })
}

/// Runs a check that reads files in a thread: a network file system may not answer.
async fn blocking(config: &Arc<Config>, look: fn(&Config) -> Vec<Finding>) -> Vec<Finding> {
    let config = config.clone();
    let looked = tokio::task::spawn_blocking(move || look(&config)).await;
    looked.unwrap_or_else(|panic| vec![Finding::warning("doctor", format!("a check failed: {panic}"))])
}
