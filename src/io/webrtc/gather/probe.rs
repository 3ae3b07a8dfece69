//! Asks one server once, for `doctor`: what it gave, or why it gave nothing.
//!
//! In: a server. Out, within `GATHER_PROBE`: a description, without a credential. An allocation
//! is released at once.

use tokio::time::timeout;

use crate::bot::Shutdown;
use crate::config::Host;
use crate::io::tasks::{self, SlotPool};
use crate::io::webrtc::gather::error::GatherError;
use crate::io::webrtc::gather::turn_connection::TurnConnection;
use crate::io::webrtc::gather::{Gatherer, describe_addresses, resolve, status, stun};
use crate::io::webrtc::udp::UdpPort;
use crate::limits::RELAY_END;
use crate::proto::webrtc::gather::ServerState;
use crate::proto::webrtc::gather::server::{GatherServer, ServerUse};
use crate::proto::webrtc::relay::{AllocationEnd, RelayOutput, TurnAllocation};
use std::time::Duration;

/// Time that `doctor` waits for one server.
const GATHER_PROBE: Duration = Duration::from_secs(3);

/// Asks one server.
///
/// # Errors
/// Returns a [`GatherError`] that says what is wrong.
pub async fn probe(server: &GatherServer) -> Result<String, GatherError> {
    let asked = async {
        match &server.usage {
            ServerUse::Stun => ask_stun(server).await,
            ServerUse::Turn { .. } => ask_turn(server).await,
            ServerUse::Unusable(why) => Err(GatherError::Unusable(why)),
        }
    };
    match timeout(GATHER_PROBE, asked).await {
        Ok(outcome) => outcome,
        Err(_) => Err(GatherError::no_answer(server).at(server)),
    }
}

async fn ask_stun(server: &GatherServer) -> Result<String, GatherError> {
    let port = UdpPort::bind(Host::Localhost, 0).map_err(GatherError::Bind)?;
    let (stop, stopped) = Shutdown::channel();
    let gatherer = Gatherer::of(vec![status(server)], SlotPool::new(0), stop);
    let asking = stun::run(vec![(0, server.clone())], port.open(), gatherer.clone(), stopped);
    let watching = async {
        loop {
            gatherer.changed().await;
            let status = gatherer.status().remove(0);
            match &status.state {
                ServerState::Working => return Ok(format!("works{}", describe_addresses(&status))),
                ServerState::Failed(why) => return Err(GatherError::State(why.clone())),
                _ => {}
            }
        }
    };
    tokio::select! {
        outcome = watching => outcome,
        () = asking => Err(GatherError::NotAsked),
        () = port.clone().run() => Err(GatherError::PortClosed),
    }
}

async fn ask_turn(server: &GatherServer) -> Result<String, GatherError> {
    let mut failure = GatherError::NoAddress {
        host: server.host.clone(),
    };
    for address in resolve(server, |_| true).await? {
        let (mut connection, mut relay) = match TurnConnection::with_allocation(server, address, false).await {
            Ok(allocated) => allocated,
            Err(error) => {
                failure = error;
                continue;
            }
        };
        match allocate(&mut relay, &mut connection).await {
            Ok(words) => {
                relay.close(tasks::now());
                // The request has to reach the server; its response is ignored.
                let _ = timeout(RELAY_END, allocate(&mut relay, &mut connection)).await;
                return Ok(words);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Moves messages until the allocation succeeds or fails.
async fn allocate(relay: &mut TurnAllocation, connection: &mut TurnConnection) -> Result<String, GatherError> {
    loop {
        let due = match relay.poll_output() {
            RelayOutput::Transmit(message) => {
                connection.send(&message);
                continue;
            }
            RelayOutput::Up(addresses) => {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                return Ok(format!("works, relayed at {}", addresses.join(" and ")));
            }
            RelayOutput::Ended(AllocationEnd::NoAnswer) => return Err(GatherError::NoAnswer("no answer")),
            RelayOutput::Ended(end) => return Err(GatherError::Ended(end)),
            RelayOutput::Timeout(due) => due,
        };
        tokio::select! {
            message = connection.next() => {
                relay.handle_message(&message?, tasks::now(), |_, _| {});
            }
            () = tokio::time::sleep_until(due.into()) => relay.handle_timeout(tasks::now()),
        }
    }
}
