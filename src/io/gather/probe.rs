//! Asks one server once, for `doctor`: what it gave, or why it gave nothing.
//!
//! In: a server. Out, within [`GATHER_PROBE`]: a description, without a credential. An allocation
//! is released at once.

use tokio::time::timeout;

use crate::bot::Shutdown;
use crate::config::Host;
use crate::io::gather::relay::no_answer_hint;
use crate::io::gather::turn_connection::TurnConnection;
use crate::io::gather::{Gatherer, describe_addresses, resolve, status, stun};
use crate::io::tasks::{self, SlotPool};
use crate::io::udp::UdpPort;
use crate::limits::{GATHER_PROBE, RELAY_END};
use crate::proto::webrtc::gather::ServerState;
use crate::proto::webrtc::gather::server::{GatherServer, ServerUse, TurnTransport};
use crate::proto::webrtc::relay::{AllocationEnd, AllocationSetup, RelayOutput, TurnAllocation};

/// Asks one server.
///
/// # Errors
/// Returns what is wrong, with advice where there is some.
pub async fn probe(server: &GatherServer) -> Result<String, String> {
    let asked = async {
        match &server.usage {
            ServerUse::Stun => ask_stun(server).await,
            ServerUse::Turn {
                transport,
                username,
                credential,
            } => ask_turn(server, *transport, username, credential.expose()).await,
            ServerUse::Unusable(why) => Err((*why).to_owned()),
        }
    };
    match timeout(GATHER_PROBE, asked).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("{} ({})", no_answer_hint(server), server.authority())),
    }
}

async fn ask_stun(server: &GatherServer) -> Result<String, String> {
    let port = UdpPort::bind(Host::Localhost, 0).map_err(|error| format!("binding a UDP port: {error}"))?;
    let (stop, stopped) = Shutdown::channel();
    let gatherer = Gatherer::of(vec![status(server)], SlotPool::new(0), stop);
    let asking = stun::run(vec![(0, server.clone())], port.open(), gatherer.clone(), stopped);
    let watching = async {
        loop {
            gatherer.changed().await;
            let status = gatherer.status().remove(0);
            match &status.state {
                ServerState::Working => return Ok(format!("works{}", describe_addresses(&status))),
                ServerState::Failed(why) => return Err(why.clone()),
                _ => {}
            }
        }
    };
    tokio::select! {
        outcome = watching => outcome,
        () = asking => Err("it was not asked".to_owned()),
        () = port.clone().run() => Err("the UDP port cannot be read".to_owned()),
    }
}

async fn ask_turn(
    server: &GatherServer,
    transport: TurnTransport,
    username: &str,
    credential: &str,
) -> Result<String, String> {
    let mut why = format!("{} has no address", server.host);
    for address in resolve(server, |_| true).await? {
        let mut link = match TurnConnection::connect(server, transport, address).await {
            Ok(link) => link,
            Err(words) => {
                why = words;
                continue;
            }
        };
        let setup = AllocationSetup {
            local: link.local,
            server: link.server,
            over_stream: link.is_stream(),
            username,
            credential,
        };
        let mut relay = TurnAllocation::new(&setup, tasks::now());
        match allocate(&mut relay, &mut link).await {
            Ok(words) => {
                relay.close(tasks::now());
                // The request has to reach the server; its response is ignored.
                let _ = timeout(RELAY_END, allocate(&mut relay, &mut link)).await;
                return Ok(words);
            }
            Err(words) => why = words,
        }
    }
    Err(why)
}

/// Moves messages until the allocation succeeds or fails.
async fn allocate(relay: &mut TurnAllocation, link: &mut TurnConnection) -> Result<String, String> {
    loop {
        let due = match relay.poll_output() {
            RelayOutput::Transmit(message) => {
                link.send(&message);
                continue;
            }
            RelayOutput::Up(addresses) => {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                return Ok(format!("works, relayed at {}", addresses.join(" and ")));
            }
            RelayOutput::Ended(AllocationEnd::NoAnswer) => return Err("no answer".to_owned()),
            RelayOutput::Ended(loss) => return Err(loss.to_string()),
            RelayOutput::Timeout(due) => due,
        };
        tokio::select! {
            message = link.next() => {
                let message = message.map_err(|error| error.to_string())?;
                relay.handle_message(&message, tasks::now(), |_, _| {});
            }
            () = tokio::time::sleep_until(due.into()) => relay.handle_timeout(tasks::now()),
        }
    }
}
