//! Gathers candidates from the STUN and TURN servers of `--ice-servers` ahead of every offer.
//!
//! In: the configuration and the runner's UDP port. Out, at any moment and without a wait: the
//! [`GatheredAddresses`] for an answer, and a [`ServerStatus`] per URL. One task asks all STUN
//! servers; one task per TURN server holds its allocation. A failed server is retried after a
//! growing pause. Each change of a server's state is one log line. With `--embedded` no server is
//! asked, because devices take one host candidate.

pub mod doctor;
pub mod error;
pub mod probe;
mod relay;
mod stun;
pub(in crate::io) mod turn_connection;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use edge_runner_http::common::lock;
use tokio::net::lookup_host;
use tokio::sync::Notify;
use tokio::time::timeout;

use self::error::GatherError;
use crate::bot::{Shutdown, ShutdownTrigger};
use crate::config::Config;
use crate::io::services::Services;
use crate::io::tasks::SlotPool;
use crate::io::webrtc::udp::UdpPort;
use crate::limits::{RELAY_END, RELAYS_MAX};
use crate::proto::webrtc::gather::server::{GatherServer, ServerUse, parse_servers};
use crate::proto::webrtc::gather::{GatheredAddresses, ServerState, ServerStatus};
use std::time::Duration;

/// Server-reflexive addresses in one answer: several only behind several networks.
const REFLEXIVE_OFFERED_MAX: usize = 4;
/// Relayed addresses in one answer: one per family of each relay.
const RELAYED_OFFERED_MAX: usize = 2 * RELAYS_MAX;
/// Time to resolve the name of one server; a resolver tries each of its own servers for about 5 s.
const GATHER_RESOLVE: Duration = Duration::from_secs(5);
/// Addresses of one server that are tried before it counts as failed.
const GATHER_ADDRESSES_MAX: usize = 4;

/// The gathered candidates. Clones share them.
#[derive(Clone)]
pub struct Gatherer(Arc<GathererInner>);

struct GathererInner {
    list: Mutex<Vec<ServerStatus>>,
    changed: Notify,
    relays: SlotPool,
    stop: ShutdownTrigger,
}

impl Gatherer {
    /// Starts to gather, in tasks of its own.
    pub fn start(config: &Config, port: &Arc<UdpPort>, services: &Services) -> Gatherer {
        let (stop, stopped) = Shutdown::channel();
        let servers = parse_servers(&config.ice_servers);
        let gatherer = Gatherer::of(servers.iter().map(status).collect(), SlotPool::new(RELAYS_MAX), stop);
        if config.embedded.is_some() {
            gatherer.disable(servers.len());
            return gatherer;
        }
        gatherer.spawn(servers, port, &stopped, services);
        gatherer
    }

    fn of(list: Vec<ServerStatus>, relays: SlotPool, stop: ShutdownTrigger) -> Gatherer {
        Gatherer(Arc::new(GathererInner {
            list: Mutex::new(list),
            changed: Notify::new(),
            relays,
            stop,
        }))
    }

    /// Gathers nothing: devices take one host candidate, so no other could be offered.
    fn disable(&self, servers: usize) {
        if servers == 0 {
            return;
        }
        for status in self.list().iter_mut() {
            status.state = ServerState::Unused("with --embedded only clients get it");
        }
        log::info!("--embedded offers one host address: the ICE servers are for clients alone");
    }

    fn spawn(&self, servers: Vec<GatherServer>, port: &Arc<UdpPort>, stopped: &Shutdown, services: &Services) {
        let mut unqueried = Vec::new();
        for (index, server) in servers.into_iter().enumerate() {
            if server.answers_binding() {
                unqueried.push((index, server.clone()));
            }
            match server.usage {
                ServerUse::Stun => {}
                ServerUse::Turn { .. } => {
                    let slot = self
                        .0
                        .relays
                        .try_acquire()
                        .expect("the list has at most this many TURN servers");
                    let relay = relay::RelayTask {
                        index,
                        server,
                        port: port.clone(),
                        gatherer: self.clone(),
                        stopped: stopped.clone(),
                        _slot: slot,
                    };
                    services.spawn("the task of a TURN server", relay.run());
                }
                ServerUse::Unusable(why) => log::debug!("{}: not used: {why}", server.url),
            }
        }
        if !unqueried.is_empty() {
            let stun = stun::run(unqueried, port.open(), self.clone(), stopped.clone());
            services.spawn("the task of the STUN servers", stun);
        }
    }

    /// Returns the addresses that an answer may offer now, each once.
    pub fn gathered(&self) -> GatheredAddresses {
        let mut gathered = GatheredAddresses::default();
        for status in self.list().iter() {
            for pair in &status.reflexive {
                if !gathered.reflexive.contains(pair) && gathered.reflexive.len() < REFLEXIVE_OFFERED_MAX {
                    gathered.reflexive.push(*pair);
                }
            }
            gathered.relayed.extend_from_slice(&status.relayed);
        }
        gathered.relayed.truncate(RELAYED_OFFERED_MAX);
        gathered
    }

    /// Returns the status of each server, in the order of the list.
    pub fn status(&self) -> Vec<ServerStatus> {
        self.list().clone()
    }

    /// Releases the allocations, waiting for the servers for at most [`RELAY_END`].
    pub async fn end(&self) {
        self.0.stop.set();
        let _ = timeout(RELAY_END, self.0.relays.wait_empty()).await;
    }

    fn set_state(&self, index: usize, server_state: ServerState) {
        let mut list = self.list();
        let status = &mut list[index];
        if status.state == server_state {
            return;
        }
        status.state = server_state;
        let current = status.clone();
        // Without the lock: a slow log must not delay an answer.
        drop(list);
        match &current.state {
            ServerState::Failed(why) => log::warn!("{}: {why}", current.url),
            ServerState::Working => log::info!("{}: works{}", current.url, describe_addresses(&current)),
            ServerState::Trying | ServerState::Unused(_) => {}
        }
        self.0.changed.notify_one();
    }

    /// Waits until the state of a server changes. Supports one waiter.
    async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn set_reflexive(&self, index: usize, reflexive: Vec<(SocketAddr, SocketAddr)>) {
        let mut list = self.list();
        let status = &mut list[index];
        if status.reflexive == reflexive {
            return;
        }
        status.reflexive = reflexive;
        let current = status.clone();
        drop(list);
        // A changed mapping. The first one is logged with the state.
        if current.state == ServerState::Working && !current.reflexive.is_empty() {
            log::info!("{}: works{}", current.url, describe_addresses(&current));
        }
    }

    fn set_relayed(&self, index: usize, relayed: Vec<(SocketAddr, SocketAddr)>) {
        self.list()[index].relayed = relayed;
    }

    fn list(&self) -> MutexGuard<'_, Vec<ServerStatus>> {
        // Every entry is consistent after every statement, so a panic cannot leave half of one.
        lock(&self.0.list)
    }
}

fn status(server: &GatherServer) -> ServerStatus {
    ServerStatus {
        url: server.url.clone(),
        state: match server.usage {
            ServerUse::Unusable(why) => ServerState::Unused(why),
            _ => ServerState::Trying,
        },
        reflexive: Vec::new(),
        relayed: Vec::new(),
    }
}

/// Describes the addresses that a server gave, which are the runner's own.
fn describe_addresses(status: &ServerStatus) -> String {
    let mut words = String::new();
    for (what, pairs) in [("relayed at", &status.relayed), ("seen as", &status.reflexive)] {
        for (address, _) in pairs {
            words.push_str(&format!(", {what} {address}"));
        }
    }
    words
}

/// Looks up the addresses of a server, IPv4 first: most relays relay it, and IPv6 paths fail more
/// often.
pub(in crate::io) async fn resolve(
    server: &GatherServer,
    serves: impl Fn(IpAddr) -> bool,
) -> Result<Vec<SocketAddr>, GatherError> {
    let host = server.host.clone();
    let looked_up = timeout(GATHER_RESOLVE, lookup_host((server.host.as_str(), server.port))).await;
    let found = match looked_up {
        Ok(Ok(found)) => found,
        Ok(Err(source)) => return Err(GatherError::Resolve { host, source }),
        Err(_) => return Err(GatherError::ResolverTimeout { host }),
    };
    let served = found.filter(|address| serves(address.ip()));
    let (mut found, ipv6): (Vec<SocketAddr>, Vec<_>) = served.partition(SocketAddr::is_ipv4);
    found.extend(ipv6);
    found.dedup();
    found.truncate(GATHER_ADDRESSES_MAX);
    Ok(found)
}

#[cfg(test)]
mod tests;
