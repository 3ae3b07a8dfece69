//! Holds an allocation at a TURN server for one peer connection of a room.
//!
//! In: the server, with its credentials, and packets of the session. Out: the relayed addresses,
//! packets of the LiveKit server, and why the allocation ended. Two peer connections need two
//! allocations, since the LiveKit server tells them apart by the address of this end. Source: RFC
//! 8656.

use bytes::Bytes;
use tokio::time::{sleep_until, timeout};

use crate::io::livekit::path_link::{PathLink, RunRelay};
use crate::io::tasks;
use crate::io::webrtc::gather::error::GatherError;
use crate::io::webrtc::gather::resolve;
use crate::io::webrtc::gather::turn_connection::TurnConnection;
use crate::limits::RELAY_END;
use crate::proto::livekit::session::PathEvent;
use crate::proto::webrtc::connection::IceProtocol;
use crate::proto::webrtc::gather::server::GatherServer;
use crate::proto::webrtc::relay::{AllocationEnd, RelayOutput, TurnAllocation};

/// Returns how a path through a relay is run.
pub(super) const fn row() -> Option<RunRelay> {
    Some(|server, link| tasks::boxed(run(server, link)))
}

/// Holds an allocation until the session closes the path.
async fn run(server: GatherServer, mut link: PathLink) {
    if let Err(error) = hold(&server, &mut link).await {
        link.report(PathEvent::Ended(error.to_string())).await;
    }
}

/// Tries the addresses of the server in turn. `Ok` means that the session has closed the path.
async fn hold(server: &GatherServer, link: &mut PathLink) -> Result<(), GatherError> {
    let found = tokio::select! {
        found = resolve(server, |_| true) => found?,
        _ = link.next() => return Ok(()),
    };
    let mut failure = GatherError::NoAddress {
        host: server.host.clone(),
    };
    for address in found {
        let allocated = tokio::select! {
            allocated = TurnConnection::with_allocation(server, address, true) => allocated,
            _ = link.next() => return Ok(()),
        };
        let (connection, relay) = match allocated {
            Ok(allocated) => allocated,
            Err(error) => {
                failure = error;
                continue;
            }
        };
        let mut allocation = RoomAllocation {
            connection,
            relay,
            is_up: false,
        };
        match allocation.run(link).await {
            Ok(()) => {
                allocation.release().await;
                return Ok(());
            }
            Err(AllocationEnd::NoAnswer) => failure = GatherError::no_answer(server),
            Err(end) => failure = GatherError::Ended(end),
        }
        if allocation.is_up {
            break;
        }
    }
    Err(failure)
}

/// One connection with its allocation.
struct RoomAllocation {
    connection: TurnConnection,
    relay: TurnAllocation,
    is_up: bool,
}

impl RoomAllocation {
    /// Moves packets until the allocation is lost, or the session closes the path.
    async fn run(&mut self, link: &mut PathLink) -> Result<(), AllocationEnd> {
        loop {
            let due = match self.relay.poll_output() {
                RelayOutput::Transmit(message) => {
                    self.connection.send(&message);
                    continue;
                }
                RelayOutput::Up(relayed) => {
                    self.is_up = true;
                    let local = self.connection.local;
                    link.report(PathEvent::Allocated { relayed, local }).await;
                    continue;
                }
                RelayOutput::Ended(end) => return Err(end),
                RelayOutput::Timeout(due) => due,
            };
            tokio::select! {
                message = self.connection.next() => match message {
                    Ok(message) => self.deliver(&message, link),
                    Err(error) => {
                        log::debug!("the connection to a TURN server: {error}");
                        return Err(AllocationEnd::NoAnswer);
                    }
                },
                packet = link.next() => match packet {
                    Some(packet) => {
                        if let Some(message) = self.relay.send(packet.peer, &packet.contents, tasks::now()) {
                            self.connection.send_data(message);
                        }
                    }
                    None => return Ok(()),
                },
                () = sleep_until(due.into()) => self.relay.handle_timeout(tasks::now()),
            }
        }
    }

    fn deliver(&mut self, message: &[u8], link: &PathLink) {
        let relayed = self.relay.relayed().to_vec();
        self.relay.handle_message(message, tasks::now(), |peer, contents| {
            // A peer reaches the relayed address of its own family.
            if let Some(relayed) = relayed.iter().find(|address| address.is_ipv4() == peer.is_ipv4()) {
                link.deliver(IceProtocol::Udp, peer, *relayed, Bytes::copy_from_slice(contents));
            }
        });
    }

    /// Gives the allocation back.
    async fn release(&mut self) {
        self.relay.close(tasks::now());
        let released = async {
            loop {
                match self.relay.poll_output() {
                    RelayOutput::Transmit(message) => self.connection.send(&message),
                    RelayOutput::Ended(_) => return,
                    RelayOutput::Up(_) => {}
                    RelayOutput::Timeout(due) => tokio::select! {
                        message = self.connection.next() => match message {
                            Ok(message) => self.relay.handle_message(&message, tasks::now(), |_, _| {}),
                            Err(_) => return,
                        },
                        () = sleep_until(due.into()) => self.relay.handle_timeout(tasks::now()),
                    },
                }
            }
        };
        let _ = timeout(RELAY_END, released).await;
    }
}
