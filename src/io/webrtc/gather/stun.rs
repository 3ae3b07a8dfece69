//! The task that asks STUN servers from the runner's own UDP port: socket, clock and resolver
//! around `proto::webrtc::gather`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::bot::Shutdown;
use crate::io::tasks;
use crate::io::webrtc::gather::{Gatherer, resolve};
use crate::io::webrtc::udp::SessionInbox;
use crate::proto::webrtc::connection::IceProtocol;
use crate::proto::webrtc::gather::reflexive::{ReflexiveGatherer, ReflexiveOutput};
use crate::proto::webrtc::gather::server::{GatherServer, ServerUse};

/// Asks until shutdown. Each server comes with its index in the list.
pub(super) async fn run(
    servers: Vec<(usize, GatherServer)>,
    mut inbox: SessionInbox,
    gatherer: Gatherer,
    mut stopped: Shutdown,
) {
    let mut reflexive = ReflexiveGatherer::new(servers.iter().map(|(_, server)| server.authority()), tasks::now());
    let mut resolving = JoinSet::new();
    loop {
        let due = match reflexive.poll_output(tasks::now()) {
            ReflexiveOutput::Resolve(which) => {
                let server = servers[which].1.clone();
                let families = [true, false].map(|v4| inbox.port().serves(any(v4)));
                resolving.spawn(async move {
                    let serves = |address: IpAddr| families[usize::from(address.is_ipv6())];
                    (which, resolve(&server, serves).await.map_err(|error| error.to_string()))
                });
                continue;
            }
            ReflexiveOutput::Send(server, message) => {
                inbox.reserve(server);
                let port = inbox.port();
                port.send(
                    IceProtocol::Udp,
                    SocketAddr::new(any(server.is_ipv4()), port.number()),
                    server,
                    &message,
                );
                continue;
            }
            ReflexiveOutput::Forget(server) => {
                inbox.release(server);
                continue;
            }
            ReflexiveOutput::Changed(which) => {
                let (index, server) = &servers[which];
                gatherer.set_reflexive(*index, reflexive.mappings(which).collect());
                // A TURN server need not answer Binding requests, so its state does not depend on
                // them.
                if server.usage == ServerUse::Stun {
                    gatherer.set_state(*index, reflexive.state(which).clone());
                }
                continue;
            }
            ReflexiveOutput::Timeout(due) => due,
        };
        tokio::select! {
            datagram = inbox.recv() => {
                reflexive.handle_datagram(datagram.source, datagram.destination, &datagram.contents, datagram.arrived);
            }
            Some(Ok((which, found))) = resolving.join_next() => {
                reflexive.handle_resolved(which, found, tasks::now());
            }
            () = sleep_until(due.into()) => {}
            () = stopped.wait() => return,
        }
    }
}

/// Returns the unspecified address of a family, which lets the kernel choose.
fn any(v4: bool) -> IpAddr {
    if v4 {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    }
}
