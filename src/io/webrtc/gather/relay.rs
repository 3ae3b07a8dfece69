//! The task that holds the allocation at one TURN server: the connection, clock and queues around
//! `proto::webrtc::relay`.
//!
//! It tries the server's addresses, offers the relayed ones, moves datagrams both ways, and retries
//! after a pause when the allocation is lost. At shutdown it releases the allocation.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::time::{sleep, sleep_until};

use crate::bot::Shutdown;
use crate::io::tasks::{self, Slot};
use crate::io::webrtc::gather::error::GatherError;
use crate::io::webrtc::gather::turn_connection::TurnConnection;
use crate::io::webrtc::gather::{Gatherer, resolve};
use crate::io::webrtc::udp::{OutgoingPacket, OutgoingQueue, UdpPort};
use crate::proto::webrtc::gather::server::GatherServer;
use crate::proto::webrtc::gather::{RetryDelays, ServerState};
use crate::proto::webrtc::relay::{AllocationEnd, RelayOutput, TurnAllocation};

/// Time that a server must have worked for its next failure to start again at the first pause.
const GATHER_SETTLED: Duration = Duration::from_secs(60);

/// One TURN server, its index in the list, and what its task needs.
pub(super) struct RelayTask {
    pub index: usize,
    pub server: GatherServer,
    pub port: Arc<UdpPort>,
    pub gatherer: Gatherer,
    pub stopped: Shutdown,
    /// Held until the allocation is released.
    pub _slot: Slot,
}

/// Why there is no allocation, and since when there was one.
struct RelayFailure {
    error: GatherError,
    up_since: Option<Instant>,
    /// Whether every address of the server would fail in the same way.
    is_final: bool,
}

impl From<GatherError> for RelayFailure {
    fn from(error: GatherError) -> Self {
        RelayFailure {
            error,
            up_since: None,
            is_final: false,
        }
    }
}

impl RelayTask {
    /// Holds an allocation until shutdown.
    pub(super) async fn run(mut self) {
        let mut pauses = RetryDelays::new();
        loop {
            let Err(failure) = self.hold().await else { return };
            let settled = |since: Instant| tasks::now() - since >= GATHER_SETTLED;
            if failure.up_since.is_some_and(settled) {
                pauses.reset();
            }
            self.gatherer
                .set_state(self.index, ServerState::Failed(failure.error.to_string()));
            tokio::select! {
                () = sleep(pauses.next_delay()) => {}
                () = self.stopped.wait() => return,
            }
        }
    }

    /// Tries the addresses of the server in turn. `Ok` means shutdown.
    async fn hold(&mut self) -> Result<(), RelayFailure> {
        let mut stopped = self.stopped.clone();
        let found = tokio::select! {
            found = resolve(&self.server, |_| true) => found?,
            () = stopped.wait() => return Ok(()),
        };
        let mut failure = RelayFailure::from(GatherError::NoAddress {
            host: self.server.host.clone(),
        });
        for address in found {
            let allocated = tokio::select! {
                allocated = TurnConnection::with_allocation(&self.server, address, false) => allocated,
                () = stopped.wait() => return Ok(()),
            };
            let (connection, relay) = match allocated {
                Ok(allocated) => allocated,
                Err(error) => {
                    failure = error.into();
                    continue;
                }
            };
            match (Allocation {
                task: self,
                connection,
                relay,
                attached: Vec::new(),
                up_since: None,
                arena: BytesMut::new(),
            })
            .run()
            .await
            {
                Ok(()) => return Ok(()),
                Err(found) if found.is_final => return Err(found),
                Err(found) => failure = found,
            }
        }
        Err(failure)
    }
}

/// One connection with its allocation.
struct Allocation<'t> {
    task: &'t mut RelayTask,
    connection: TurnConnection,
    relay: TurnAllocation,
    /// One address per family.
    attached: Vec<OutgoingQueue>,
    up_since: Option<Instant>,
    arena: BytesMut,
}

impl Allocation<'_> {
    /// Moves datagrams until the allocation is lost, or released at shutdown.
    async fn run(mut self) -> Result<(), RelayFailure> {
        let mut stopped = self.task.stopped.clone();
        let mut stopping = false;
        let outcome = loop {
            let due = match self.drain() {
                Ok(due) => due,
                Err(_) if stopping => break Ok(()),
                Err(failure) => break Err(failure),
            };
            tokio::select! {
                message = self.connection.next() => match message {
                    Ok(message) => self.receive(&message),
                    Err(error) => break if stopping { Ok(()) } else { Err(self.failure(error.into())) },
                },
                outgoing = next(&mut self.attached) => self.send(&outgoing),
                () = sleep_until(due.into()) => self.relay.handle_timeout(tasks::now()),
                () = stopped.wait(), if !stopping => {
                    stopping = true;
                    self.flush_sessions();
                    self.relay.close(tasks::now());
                }
            }
        };
        self.task.gatherer.set_relayed(self.task.index, Vec::new());
        outcome
    }

    /// Performs what the allocation asks for, up to its next deadline.
    fn drain(&mut self) -> Result<Instant, RelayFailure> {
        loop {
            match self.relay.poll_output() {
                RelayOutput::Transmit(message) => self.connection.send(&message),
                RelayOutput::Up(addresses) => self.offer(addresses)?,
                RelayOutput::Ended(end) => return Err(self.lost(end)),
                RelayOutput::Timeout(due) => return Ok(due),
            }
        }
    }

    fn offer(&mut self, addresses: Vec<SocketAddr>) -> Result<(), RelayFailure> {
        let attached = addresses.into_iter().map(|address| self.task.port.attach(address));
        self.attached = attached.collect::<Option<_>>().ok_or_else(|| {
            // One in sixteen thousand; the next attempt gets another port.
            RelayFailure::from(GatherError::OwnPort)
        })?;
        let (index, local) = (self.task.index, self.connection.local);
        let relayed = self
            .attached
            .iter()
            .map(|attached| (attached.address(), local))
            .collect();
        self.task.gatherer.set_relayed(index, relayed);
        self.task.gatherer.set_state(index, ServerState::Working);
        self.up_since = Some(tasks::now());
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) {
        // A peer reaches the relayed address of its own family.
        let (attached, port, arena) = (&self.attached, &self.task.port, &mut self.arena);
        self.relay.handle_message(message, tasks::now(), |peer, contents| {
            let relayed = attached.iter().map(OutgoingQueue::address);
            for relayed in relayed.filter(|relayed| relayed.is_ipv4() == peer.is_ipv4()) {
                port.deliver_relayed(peer, relayed, contents, arena);
            }
        });
    }

    fn send(&mut self, outgoing: &OutgoingPacket) {
        if let Some(message) = self.relay.send(outgoing.peer, &outgoing.contents, tasks::now()) {
            self.connection.send_data(message);
        }
    }

    /// Sends the last packets of ended sessions.
    fn flush_sessions(&mut self) {
        let mut attached = std::mem::take(&mut self.attached);
        for outgoing in attached
            .iter_mut()
            .flat_map(|one| std::iter::from_fn(|| one.try_next()))
        {
            self.send(&outgoing);
        }
        self.attached = attached;
    }

    fn lost(&self, end: AllocationEnd) -> RelayFailure {
        let is_final = self.up_since.is_some() || matches!(end, AllocationEnd::Refused { .. });
        let error = match end {
            AllocationEnd::NoAnswer => GatherError::no_answer(&self.task.server),
            end => GatherError::Ended(end),
        };
        RelayFailure {
            is_final,
            ..self.failure(error)
        }
    }

    fn failure(&self, error: GatherError) -> RelayFailure {
        RelayFailure {
            error: error.at(&self.task.server),
            up_since: self.up_since,
            is_final: self.up_since.is_some(),
        }
    }
}

/// Waits for the next packet to send, from either address.
async fn next(attached: &mut [OutgoingQueue]) -> OutgoingPacket {
    match attached {
        [] => std::future::pending().await,
        [one] => one.next().await,
        [one, other, ..] => tokio::select! {
            outgoing = one.next() => outgoing,
            outgoing = other.next() => outgoing,
        },
    }
}
