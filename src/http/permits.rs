//! Connection permits: the cap on open connections, and the choice of the connection to evict.
//!
//! In: new connections with their source addresses, and the [`ConnPhase`] of each connection. Out:
//! a `ConnPermit`, at once while some connection can be evicted. The rule is that of the
//! [quotas](edge_runner_proto::server::quota). Of a source's connections the order is: the oldest
//! that never sent a whole request; the one idle for longest; the oldest that delays a request
//! body, leaves a response unread or reads one without an end. A source holds at most three
//! quarters of all permits. Connections of a trusted proxy carry many clients and count for no
//! source. A new connection waits only while every connection is being answered. One mutex guards
//! the table, so a connection cannot begin a request and be evicted at the same time. Rejects: a
//! source at its share while all of its own connections are being answered.

use std::time::Duration;

use edge_runner_proto::server::quota::{
    EqualHolders, EvictionOrder, Holder, QuotaError, QuotaLedger, QuotaPolicy, QuotaRequest, Ticket, Usage,
    source_share,
};
use edge_runner_proto::server::source::SourceKey;
use tokio::time::Instant;

use crate::lock::lock;
use crate::sync::{Arc, Mutex, MutexGuard, Notify};

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnPhase {
    /// The end of the first request head, including the TLS handshake.
    First,
    /// The first byte of a further request.
    Idle,
    /// The rest of that request head.
    Head,
    /// A request body, and the work on it.
    Body,
    /// A long body of a client that is not authorised yet. Each part of it sets this again.
    Receiving,
    /// A long body of an authorised client, which is never evicted. Each part of it sets this
    /// again.
    Upload,
    /// The work on a request without a body, and the first byte of the response.
    Answer,
    /// The next piece of a response without an end. Each piece sets this again.
    Streaming,
    /// The client, to read the response.
    Stall,
    /// Nothing: the connection has lost its permit.
    Evicted,
}

/// The state of one connection, shared by the parts that serve it.
#[derive(Debug)]
pub struct ConnState {
    id: Ticket,
    evicted: Arc<Notify>,
    shared: Arc<PermitPool>,
}

impl ConnState {
    /// Makes the state of a connection without a permit.
    #[cfg(test)]
    pub fn detached() -> Arc<Self> {
        Arc::new(ConnState {
            id: 0,
            evicted: Arc::new(Notify::new()),
            shared: Permits::new(1).shared,
        })
    }

    /// Sets the phase; returns whether the connection still holds its permit.
    pub fn set(&self, phase: ConnPhase) -> bool {
        if !self.shared.table().set(self.id, phase) {
            return false;
        }
        if rank(phase).is_some() {
            self.shared.changed.notify_waiters();
        }
        true
    }

    pub(super) fn phase(&self) -> ConnPhase {
        self.get().1
    }

    /// Begins or ends a response without an end. While there is one, the connection is not idle
    /// between its pieces.
    pub(super) fn set_stream(&self, streams: bool) {
        if let Some(entry) = self.shared.table().quotas.get_mut(self.id) {
            entry.streams = streams;
        }
    }

    /// Returns how often the phase has been set, and the phase.
    pub(super) fn get(&self) -> (u64, ConnPhase) {
        let table = self.shared.table();
        let entry = table.quotas.get(self.id);
        entry.map_or((u64::MAX, ConnPhase::Evicted), |entry| (entry.changes, entry.phase))
    }

    /// Waits until the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// All permits of a server.
#[derive(Clone, Debug)]
pub(super) struct Permits {
    shared: Arc<PermitPool>,
}

#[derive(Debug)]
struct PermitPool {
    table: Mutex<PermitTable>,
    /// Notified when a permit becomes free or a connection becomes evictable.
    changed: Notify,
}

impl PermitPool {
    fn table(&self) -> MutexGuard<'_, PermitTable> {
        lock(&self.table)
    }
}

/// A permit to keep a connection open. Dropping it frees it.
#[derive(Debug)]
pub(super) struct ConnPermit {
    pub(super) state: Arc<ConnState>,
}

impl Drop for ConnPermit {
    fn drop(&mut self) {
        let ConnState { id, shared, .. } = &*self.state;
        shared.table().quotas.remove(*id);
        shared.changed.notify_waiters();
    }
}

/// Why no permit is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    /// All connections are being answered.
    Wait,
    /// The source holds too many of them.
    Refused,
}

impl Permits {
    pub(super) fn new(max: usize) -> Self {
        Permits {
            shared: Arc::new(PermitPool {
                table: Mutex::new(PermitTable::new(max)),
                changed: Notify::new(),
            }),
        }
    }

    /// Takes a permit; waits while every connection is being answered. Returns `None` for a source
    /// at its share.
    pub(super) async fn acquire(&self, source: Option<SourceKey>) -> Option<ConnPermit> {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            match self.try_acquire(source) {
                Ok(permit) => return Some(permit),
                Err(Busy::Refused) => return None,
                Err(Busy::Wait) => changed.await,
            }
        }
    }

    /// Takes a free permit, or that of a connection that can be evicted.
    fn try_acquire(&self, source: Option<SourceKey>) -> Result<ConnPermit, Busy> {
        let mut table = self.shared.table();
        let holder = source.map_or(Holder::Proxy, Holder::Source);
        table.make_room(holder)?;
        let evicted = Arc::new(Notify::new());
        let state = Arc::new(ConnState {
            id: table.insert(holder, evicted.clone()),
            evicted,
            shared: self.shared.clone(),
        });
        Ok(ConnPermit { state })
    }
}

/// The holders of permits.
#[derive(Debug)]
struct PermitTable {
    quotas: QuotaLedger<PermitEntry>,
    /// How often a connection has become idle.
    idle_turn: u64,
}

#[derive(Debug)]
struct PermitEntry {
    evicted: Arc<Notify>,
    phase: ConnPhase,
    /// Whether a response without an end is being sent.
    streams: bool,
    /// How often the phase has been set.
    changes: u64,
    /// The value of the table's `idle_turn` when the connection last became idle.
    idle_turn: u64,
}

impl PermitTable {
    fn new(max: usize) -> Self {
        PermitTable {
            quotas: QuotaLedger::new(QuotaPolicy {
                max: Usage::entries(max),
                share: Usage::entries(source_share(max)),
                evicted_max: usize::MAX,
                own_grace: Duration::ZERO,
                equal_holders: EqualHolders::UnlessLighter,
                proxies_weigh: false,
            }),
            idle_turn: 0,
        }
    }

    fn insert(&mut self, holder: Holder, evicted: Arc<Notify>) -> Ticket {
        let entry = PermitEntry {
            evicted,
            phase: ConnPhase::First,
            streams: false,
            changes: 0,
            idle_turn: 0,
        };
        let id = self
            .quotas
            .admit(QuotaRequest::entry(holder), entry, Instant::now().into_std());
        self.quotas.set_order(id, order(ConnPhase::First, id, 0));
        id
    }

    /// Sets the phase of a connection; returns whether it is in the table.
    fn set(&mut self, id: Ticket, phase: ConnPhase) -> bool {
        let Some(entry) = self.quotas.get_mut(id) else {
            return false;
        };
        let phase = match phase {
            ConnPhase::Idle if entry.streams => ConnPhase::Streaming,
            phase => phase,
        };
        entry.phase = phase;
        entry.changes += 1;
        if phase == ConnPhase::Idle {
            self.idle_turn += 1;
            entry.idle_turn = self.idle_turn;
        }
        let order = order(phase, id, entry.idle_turn);
        self.quotas.set_order(id, order);
        true
    }

    /// Evicts a connection if a new one of `holder` needs its permit.
    fn make_room(&mut self, holder: Holder) -> Result<(), Busy> {
        match self
            .quotas
            .plan(QuotaRequest::entry(holder), None, Instant::now().into_std())
        {
            Ok(None) => Ok(()),
            Ok(Some(victim)) => {
                if let Some(evicted) = self.quotas.remove(victim) {
                    evicted.evicted.notify_one();
                }
                Ok(())
            }
            Err(QuotaError::Share) => Err(Busy::Refused),
            // Waiting blocks the connections behind it in the accept queue. A source may wait only
            // if others hold more permits and none of them can be evicted.
            Err(QuotaError::Full) if self.quotas.is_heaviest(holder) || self.quotas.has_evictable() => {
                Err(Busy::Refused)
            }
            Err(QuotaError::Full) => Err(Busy::Wait),
        }
    }
}

/// Returns where a connection stands in the order of eviction; `None` if its phase protects it.
fn order(phase: ConnPhase, id: Ticket, idle_turn: u64) -> Option<EvictionOrder> {
    match rank(phase)? {
        IDLE => Some((IDLE, idle_turn)),
        rank => Some((rank, id)),
    }
}

const IDLE: u8 = 1;

/// Returns the eviction rank of a phase, lowest first; `None` if it protects from eviction.
fn rank(phase: ConnPhase) -> Option<u8> {
    match phase {
        ConnPhase::First => Some(0),
        ConnPhase::Idle | ConnPhase::Head => Some(IDLE),
        ConnPhase::Body | ConnPhase::Receiving | ConnPhase::Streaming | ConnPhase::Stall => Some(2),
        ConnPhase::Upload | ConnPhase::Answer | ConnPhase::Evicted => None,
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::net::IpAddr;
    use std::pin::pin;
    use std::sync::Barrier;
    use std::task::{Context, Poll, Waker};
    use std::thread;

    use super::*;

    fn acquire(permits: &Permits) -> ConnPermit {
        permits.try_acquire(None).expect("a permit")
    }

    /// Tells whether a connection was told that it is evicted.
    fn is_evicted(permit: &ConnPermit) -> bool {
        let evicted = pin!(permit.state.evicted());
        evicted.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Below the cap every connection gets a permit; above it the oldest without a request is
    /// evicted.
    #[test]
    fn the_oldest_silent_connection_is_evicted() {
        let permits = Permits::new(3);
        let (served, first, second) = (acquire(&permits), acquire(&permits), acquire(&permits));
        assert!(served.state.set(ConnPhase::Answer) && served.state.set(ConnPhase::Idle));
        let third = acquire(&permits);
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&served));
        let fourth = acquire(&permits);
        assert!(is_evicted(&second) && !is_evicted(&third) && !is_evicted(&served));
        // Dropping an evicted connection does not free a second permit.
        drop((first, second));
        assert_eq!(permits.shared.table().quotas.len(), 3);
        drop((third, fourth, served));
        assert!(permits.shared.table().quotas.is_empty());
    }

    /// Between the pieces of a response without an end its connection is not idle; afterwards it
    /// is.
    #[test]
    fn a_connection_that_streams_is_not_idle() {
        let permits = Permits::new(2);
        let (stream, other) = (acquire(&permits), acquire(&permits));
        stream.state.set_stream(true);
        for phase in [ConnPhase::Idle, ConnPhase::Stall, ConnPhase::Idle] {
            assert!(stream.state.set(phase));
        }
        assert_eq!(stream.state.phase(), ConnPhase::Streaming);
        assert!(other.state.set(ConnPhase::Idle));
        let third = acquire(&permits);
        assert!(is_evicted(&other) && !is_evicted(&stream));
        assert!(third.state.set(ConnPhase::Answer));
        stream.state.set_stream(false);
        assert!(stream.state.set(ConnPhase::Idle));
        assert_eq!(stream.state.phase(), ConnPhase::Idle);
    }

    /// Among connections that were served the one idle for longest is evicted, even if it has sent
    /// half a head since.
    #[test]
    fn the_longest_idle_connection_is_evicted() {
        let permits = Permits::new(3);
        let all = [acquire(&permits), acquire(&permits), acquire(&permits)];
        for permit in &all {
            permit.state.set(ConnPhase::Answer);
        }
        for index in [1, 2, 0] {
            all[index].state.set(ConnPhase::Idle);
        }
        all[1].state.set(ConnPhase::Head);
        let evicted = || [0, 1, 2].map(|index| all[index].state.phase() == ConnPhase::Evicted);
        let newcomer = acquire(&permits);
        newcomer.state.set(ConnPhase::Answer);
        assert_eq!(evicted(), [false, true, false]);
        let newcomer = (newcomer, acquire(&permits));
        newcomer.1.state.set(ConnPhase::Answer);
        assert_eq!(evicted(), [false, true, true]);
    }

    /// A connection that is being answered keeps its permit; a new one waits for the first that
    /// becomes idle or closes.
    #[test]
    fn a_new_connection_waits_while_all_are_answered() {
        let permits = Permits::new(2);
        let (first, second) = (acquire(&permits), acquire(&permits));
        first.state.set(ConnPhase::Answer);
        second.state.set(ConnPhase::Answer);
        let mut entering = pin!(permits.acquire(None));
        let mut poll = || entering.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending() && poll().is_pending());
        first.state.set(ConnPhase::Idle);
        let Poll::Ready(Some(third)) = poll() else {
            panic!("the idle one can be spared");
        };
        assert!(is_evicted(&first));
        third.state.set(ConnPhase::Answer);
        let mut entering = pin!(permits.acquire(None));
        let mut poll = || entering.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());
        drop(second);
        assert!(poll().is_ready());
    }

    /// When a request and an eviction race, exactly one succeeds.
    #[test]
    fn a_request_and_an_eviction_exclude_each_other() {
        for _ in 0..100 {
            let permits = Permits::new(1);
            let permit = acquire(&permits);
            assert!(permit.state.set(ConnPhase::Idle));
            let barrier = Barrier::new(2);
            let (begun, acquired) = thread::scope(|scope| {
                let begun = scope.spawn(|| {
                    barrier.wait();
                    permit.state.set(ConnPhase::Answer)
                });
                barrier.wait();
                let acquired = permits.try_acquire(None);
                (begun.join().expect("no panic"), acquired)
            });
            assert_eq!(begun, acquired.is_err());
            assert_eq!(is_evicted(&permit), acquired.is_ok());
            assert_eq!(permit.state.phase() == ConnPhase::Evicted, acquired.is_ok());
        }
    }

    /// I-09: an unauthorised upload can be evicted, an authorised one cannot.
    #[test]
    fn an_authorised_upload_is_not_evicted() {
        let permits = Permits::new(2);
        let (anonymous, known) = (acquire(&permits), acquire(&permits));
        assert!(anonymous.state.set(ConnPhase::Receiving) && known.state.set(ConnPhase::Upload));
        let newcomer = acquire(&permits);
        assert_eq!(anonymous.state.phase(), ConnPhase::Evicted);
        assert!(!anonymous.state.set(ConnPhase::Upload), "the permit was evicted");
        newcomer.state.set(ConnPhase::Answer);
        assert!(permits.try_acquire(None).is_err());
        assert_eq!(known.state.phase(), ConnPhase::Upload);
    }

    /// Connections with delayed bodies or unread responses are evicted last, before a new one
    /// waits.
    #[test]
    fn slow_bodies_are_evicted_before_a_new_connection_waits() {
        let permits = Permits::new(3);
        let (slow, busy, stalled) = (acquire(&permits), acquire(&permits), acquire(&permits));
        assert!(
            slow.state.set(ConnPhase::Body) && busy.state.set(ConnPhase::Answer) && stalled.state.set(ConnPhase::Stall)
        );
        let first = acquire(&permits);
        assert_eq!(slow.state.phase(), ConnPhase::Evicted);
        first.state.set(ConnPhase::Answer);
        let second = acquire(&permits);
        assert_eq!(stalled.state.phase(), ConnPhase::Evicted);
        second.state.set(ConnPhase::Answer);
        assert!(permits.try_acquire(None).is_err(), "all the others are being answered");
        assert_eq!(busy.state.phase(), ConnPhase::Answer);
    }

    fn of(source: &str) -> Option<SourceKey> {
        let address: IpAddr = source.parse().expect("an address");
        Some(address.into())
    }

    fn phases(permits: &[ConnPermit]) -> Vec<ConnPhase> {
        permits.iter().map(|permit| permit.state.phase()).collect()
    }

    /// The source with the most permits loses one first; phases decide among its connections.
    #[test]
    fn the_heaviest_source_loses_a_permit_first() {
        let permits = Permits::new(4);
        let lone = permits.try_acquire(of("192.0.2.1")).expect("a permit");
        let heavy: Vec<ConnPermit> = ["2001:db8::1", "2001:db8::2", "2001:db8::3"]
            .map(|address| permits.try_acquire(of(address)).expect("a permit"))
            .into();
        assert!(
            heavy[0].state.set(ConnPhase::Idle)
                && heavy[1].state.set(ConnPhase::Body)
                && heavy[2].state.set(ConnPhase::Idle)
        );
        let mut newcomers = Vec::new();
        for gone in [0, 2] {
            newcomers.push(permits.try_acquire(of("192.0.2.2")).expect("the network gives way"));
            assert_eq!(phases(&heavy)[gone], ConnPhase::Evicted);
        }
        assert_eq!(
            (lone.state.phase(), heavy[1].state.phase()),
            (ConnPhase::First, ConnPhase::Body)
        );
    }

    /// At its share a source evicts its own connections. While all of them are being answered it is
    /// rejected at once, so it delays no other source.
    #[test]
    fn a_source_has_a_share() {
        let permits = Permits::new(8);
        let flood = of("192.0.2.1");
        let busy: Vec<ConnPermit> = (0..6).map(|_| permits.try_acquire(flood).expect("a permit")).collect();
        assert!(busy.iter().all(|permit| permit.state.set(ConnPhase::Answer)));
        assert_eq!(permits.try_acquire(flood).err(), Some(Busy::Refused));
        let other = permits.try_acquire(of("192.0.2.2")).expect("a permit");
        assert!(busy[3].state.set(ConnPhase::Idle));
        let more = permits.try_acquire(flood).expect("its own idle one is spared");
        assert_eq!(
            (busy[3].state.phase(), other.state.phase()),
            (ConnPhase::Evicted, ConnPhase::First)
        );
        drop(more);
        assert!(permits.try_acquire(flood).is_ok());
    }

    /// The heaviest source is rejected rather than given a permit of a lighter one; a light one
    /// waits.
    #[test]
    fn a_lighter_source_is_not_evicted_for_a_heavier_one() {
        let permits = Permits::new(4);
        let (heavy, light) = (of("192.0.2.1"), of("192.0.2.2"));
        let busy = [heavy, heavy].map(|source| permits.try_acquire(source).expect("a permit"));
        let idle = [light, of("192.0.2.3")].map(|source| permits.try_acquire(source).expect("a permit"));
        assert!(busy.iter().all(|permit| permit.state.set(ConnPhase::Answer)));
        assert_eq!(permits.try_acquire(heavy).err(), Some(Busy::Refused));
        assert!(idle.iter().all(|permit| permit.state.phase() == ConnPhase::First));
        assert!(idle.iter().all(|permit| permit.state.set(ConnPhase::Answer)));
        assert_eq!(permits.try_acquire(light).err(), Some(Busy::Wait));
        assert_eq!(permits.try_acquire(of("192.0.2.4")).err(), Some(Busy::Wait));
        assert_eq!(permits.try_acquire(heavy).err(), Some(Busy::Refused));
    }
}
