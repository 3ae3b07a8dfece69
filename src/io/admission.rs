//! Admission of sessions and handshakes: permits, caps and eviction.
//!
//! In: requesters, and the cap on live sessions. Out: a [`SessionPermit`], which holds a slot until
//! it is dropped. When slots are short, a new requester gets the slot of a pending entry at once,
//! and the evicted session ends in a slot beside the cap. `proto::server::admission` decides who is
//! evicted and when.

use std::time::{Duration, Instant};

use edge_runner_http::common::lock;
use edge_runner_http::sync::{Arc, AtomicBool, Mutex, MutexGuard, Notify, Ordering};

use crate::io::tasks::{self, Slot, SlotPool};
use crate::limits::{
    DISPATCHES_MAX, HANDSHAKES_MAX, PENDING_OFFERS_MAX, PENDING_OFFERS_YIELD_AFTER, WAITING_OFFERS_MAX,
};
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::admission::{
    AdmissionError, AdmissionLimits, PendingKind, PermitLedger, Requester, Ticket, source_share,
};

/// Evicted sessions whose bots have not returned; at this number the runner evicts no further
/// session.
const EVICTED_SESSIONS_MAX: usize = 32;
/// Age at which such a WebSocket may be evicted: a provider identifies itself within milliseconds,
/// so the oldest of 64 is none.
const HANDSHAKES_YIELD_AFTER: Duration = Duration::ZERO;
/// Evicted WebSockets that are still closing.
const HANDSHAKES_ENDING_MAX: usize = 64;

/// The admission control of one runner.
pub struct Admission {
    /// No one new is admitted.
    closed: AtomicBool,
    sessions: SharedLedger,
    live: SlotPool,
    /// Evicted sessions whose bots have not ended.
    leaving: SlotPool,
    /// Sockets in their handshake.
    handshakes: PendingPermits,
    /// Offers that wait for the result of inquiries.
    offers: PendingPermits,
    /// Requests that wait until a runner has taken their room.
    dispatches: PendingPermits,
}

/// Connections and requests that are no sessions yet. Each holds a permit of the pool until it is
/// one, or ends.
pub struct PendingPermits {
    ledger: SharedLedger,
    /// Those that hold a permit, and evicted ones that have not ended.
    slots: SlotPool,
    kind: PendingKind,
}

impl PendingPermits {
    /// Returns the permits of connections that have yet to identify themselves. The oldest gives
    /// way when permits are short; evicted ones end in slots beside those of the limit.
    pub fn of_connections(permits_max: usize, share_max: usize, evicted_max: usize, grace: Duration) -> Self {
        let limits = AdmissionLimits {
            permits_max,
            share_max,
            offers_max: 0,
            evicted_max,
            grace,
        };
        PendingPermits::new(limits, PendingKind::Silent)
    }

    /// Returns the permits of requests that wait for an answer from elsewhere, and of listeners.
    /// None is evicted.
    pub fn of_requests(permits_max: usize) -> Self {
        let limits = AdmissionLimits {
            permits_max,
            share_max: source_share(permits_max),
            offers_max: 0,
            evicted_max: 0,
            grace: PENDING_OFFERS_YIELD_AFTER,
        };
        PendingPermits::new(limits, PendingKind::Caller)
    }

    fn new(limits: AdmissionLimits, kind: PendingKind) -> Self {
        PendingPermits {
            slots: SlotPool::new(limits.permits_max + limits.evicted_max),
            ledger: Arc::new(Mutex::new(PermitLedger::new(limits))),
            kind,
        }
    }

    /// Admits an entry. The entry that it evicts ends in a slot of the same pool.
    ///
    /// # Errors
    /// Returns why there is no permit.
    pub fn admit(&self, requester: Requester) -> Result<SessionPermit, AdmissionError> {
        let now = tasks::now();
        let mut ledger = lock(&self.ledger);
        let victim = ledger.plan(requester, self.kind, now)?;
        let slot = self.slots.try_acquire().ok_or(AdmissionError::Full)?;
        if let Some(held) = victim.and_then(|victim| ledger.evict(victim)) {
            held.evicted.notify_one();
        }
        Ok(permit(&self.ledger, ledger, requester, self.kind, slot, now))
    }

    /// Returns the number of entries that have not ended.
    pub fn count(&self) -> usize {
        self.slots.count()
    }
}

type SharedLedger = Arc<Mutex<PermitLedger<LedgerSlot>>>;

/// The slot of a ledger entry.
struct LedgerSlot {
    /// Exchanged for one in `leaving` when the entry is evicted.
    slot: Slot,
    evicted: Arc<Notify>,
}

/// The permit of a session, or of a socket in its handshake.
pub struct SessionPermit {
    ledger: SharedLedger,
    ticket: Ticket,
    requester: Requester,
    evicted: Arc<Notify>,
    is_connected: bool,
}

impl SessionPermit {
    /// Returns the ticket to pass to [`Admission::replace`].
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns the requester of the permit.
    pub fn requester(&self) -> Requester {
        self.requester
    }

    /// Marks the session as connected or ending. After that only [`Admission::replace`] evicts it.
    pub fn mark_connected(&mut self) {
        if !self.is_connected {
            self.is_connected = true;
            lock(&self.ledger).mark_connected(self.ticket);
        }
    }

    /// Waits until the permit is evicted.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        lock(&self.ledger).remove(self.ticket);
    }
}

impl Admission {
    pub fn new(live: SlotPool) -> Self {
        let sessions = PermitLedger::new(AdmissionLimits {
            permits_max: live.max(),
            share_max: source_share(live.max()),
            offers_max: PENDING_OFFERS_MAX,
            evicted_max: EVICTED_SESSIONS_MAX,
            grace: PENDING_OFFERS_YIELD_AFTER,
        });
        let handshakes = PendingPermits::of_connections(
            HANDSHAKES_MAX,
            // All of them are pending, so they need no share.
            HANDSHAKES_MAX,
            HANDSHAKES_ENDING_MAX,
            HANDSHAKES_YIELD_AFTER,
        );
        Admission {
            closed: AtomicBool::new(false),
            sessions: Arc::new(Mutex::new(sessions)),
            live,
            leaving: SlotPool::new(EVICTED_SESSIONS_MAX),
            handshakes,
            offers: PendingPermits::of_requests(WAITING_OFFERS_MAX),
            dispatches: PendingPermits::of_requests(DISPATCHES_MAX),
        }
    }

    /// Admits no one new from here on. The holder of a permit may exchange it for another one.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Tells whether no one new is admitted.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Admits a newcomer by `admit`, unless the admission is closed. If it closes meanwhile, either
    /// [`Admission::wait_empty`] waits for the permit, or there is none.
    ///
    /// # Errors
    /// Returns why there is no permit.
    pub fn newcomer(
        &self,
        admit: impl FnOnce(&Self) -> Result<SessionPermit, AdmissionError>,
    ) -> Result<SessionPermit, SessionRefusal> {
        // A refused newcomer must evict no one.
        self.check_open()?;
        let permit = admit(self)?;
        // It may have closed and been found empty in between.
        self.check_open()?;
        Ok(permit)
    }

    fn check_open(&self) -> Result<(), SessionRefusal> {
        match self.is_closed() {
            true => Err(SessionRefusal::Stopping),
            false => Ok(()),
        }
    }

    /// Admits a session.
    ///
    /// # Errors
    /// Returns why there is no permit.
    pub fn session(&self, requester: Requester, kind: PendingKind) -> Result<SessionPermit, AdmissionError> {
        let now = tasks::now();
        let mut ledger = lock(&self.sessions);
        let slot = match ledger.plan(requester, kind, now)? {
            None => self.live.try_acquire().ok_or(AdmissionError::Full)?,
            Some(victim) => self.evict(&mut ledger, victim)?,
        };
        Ok(permit(&self.sessions, ledger, requester, kind, slot, now))
    }

    /// Checks whether a session would get a permit now. It takes no slot and evicts none.
    ///
    /// # Errors
    /// Returns why there would be no permit.
    pub fn check(&self, requester: Requester, kind: PendingKind) -> Result<(), AdmissionError> {
        lock(&self.sessions).plan(requester, kind, tasks::now()).map(drop)
    }

    /// Admits a session that evicts no other.
    ///
    /// # Errors
    /// Returns why there is no permit.
    pub fn session_in_free_slot(
        &self,
        requester: Requester,
        kind: PendingKind,
    ) -> Result<SessionPermit, AdmissionError> {
        let now = tasks::now();
        let ledger = lock(&self.sessions);
        if ledger.plan(requester, kind, now)?.is_some() {
            return Err(AdmissionError::Full);
        }
        let slot = self.live.try_acquire().ok_or(AdmissionError::Full)?;
        Ok(permit(&self.sessions, ledger, requester, kind, slot, now))
    }

    /// Gives an offer the slot of a session whose caller is gone, pending or not.
    ///
    /// # Errors
    /// Returns [`AdmissionError::Full`] if the session has no slot, or this requester may not take
    /// it.
    pub fn replace(&self, ticket: Ticket, requester: Requester) -> Result<SessionPermit, AdmissionError> {
        let now = tasks::now();
        let mut ledger = lock(&self.sessions);
        if !ledger.may_replace(ticket, requester, PendingKind::Offer) {
            return Err(AdmissionError::Full);
        }
        let slot = self.evict(&mut ledger, ticket)?;
        Ok(permit(&self.sessions, ledger, requester, PendingKind::Offer, slot, now))
    }

    /// Takes the slot of an entry, whose session ends in a slot of `leaving`.
    fn evict(&self, ledger: &mut PermitLedger<LedgerSlot>, victim: Ticket) -> Result<Slot, AdmissionError> {
        let aside = self.leaving.try_acquire().ok_or(AdmissionError::Full)?;
        let held = ledger.evict(victim).ok_or(AdmissionError::Full)?;
        held.evicted.notify_one();
        Ok(std::mem::replace(&mut held.slot, aside))
    }

    /// Admits an offer that waits for the result of inquiries, until the permit is dropped.
    ///
    /// # Errors
    /// Returns an error when too many offers wait, of its source or in all.
    pub fn wait(&self, requester: Requester) -> Result<SessionPermit, AdmissionError> {
        self.offers.admit(requester)
    }

    /// Admits a request that waits until a runner has taken its room, until the permit is dropped.
    ///
    /// # Errors
    /// Returns an error when too many requests wait, of its source or in all.
    pub fn dispatch(&self, requester: Requester) -> Result<SessionPermit, AdmissionError> {
        self.dispatches.admit(requester)
    }

    /// Admits a socket that has yet to name its call, if the call could get a slot.
    ///
    /// # Errors
    /// Returns why there is no permit.
    pub fn handshake(&self, requester: Requester) -> Result<SessionPermit, AdmissionError> {
        self.check(requester, PendingKind::Caller)?;
        self.handshakes.admit(requester)
    }

    /// Waits until no slot is held, by requests that may become sessions and by evicted sessions
    /// either.
    pub async fn wait_empty(&self) {
        let [offers, dispatches, handshakes] =
            [&self.offers, &self.dispatches, &self.handshakes].map(|pool| &pool.slots);
        // In the order in which a session moves from one pool to the next.
        for pool in [offers, dispatches, handshakes, &self.live, &self.leaving] {
            pool.wait_empty().await;
        }
    }
}

/// Enters a requester into the ledger.
fn permit(
    entries: &SharedLedger,
    mut ledger: MutexGuard<'_, PermitLedger<LedgerSlot>>,
    requester: Requester,
    kind: PendingKind,
    slot: Slot,
    now: Instant,
) -> SessionPermit {
    let evicted = Arc::new(Notify::new());
    let held = LedgerSlot {
        slot,
        evicted: evicted.clone(),
    };
    let ticket = ledger.admit(requester, kind, held, now);
    SessionPermit {
        ledger: entries.clone(),
        ticket,
        requester,
        evicted,
        is_connected: false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;
    use crate::proto::server::source::SourceKey;

    const A: Requester = from(1);
    const B: Requester = from(2);

    const fn from(host: u8) -> Requester {
        Requester {
            source: SourceKey::V4(Ipv4Addr::new(192, 0, 2, host)),
            is_authorised: false,
            local_address: None,
        }
    }

    async fn pass(time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn is_evicted(permit: &SessionPermit) -> bool {
        tokio::time::timeout(Duration::ZERO, permit.evicted()).await.is_ok()
    }

    /// A full runner evicts the oldest pending offer after its grace period for a new session of
    /// any transport. The count of live sessions stays within its cap.
    #[tokio::test(start_paused = true)]
    async fn a_new_session_evicts_a_pending_offer() {
        let live = SlotPool::new(2);
        let admission = Admission::new(live.clone());
        let offer = || admission.session(A, PendingKind::Offer);
        let (mut first, second) = (offer().expect("a free slot"), offer().expect("a place"));
        pass(PENDING_OFFERS_YIELD_AFTER - Duration::from_millis(1)).await;
        assert!(
            admission.session(A, PendingKind::Caller).is_err() && offer().is_err() && admission.handshake(A).is_err()
        );
        pass(Duration::from_millis(1)).await;
        first.mark_connected();
        assert!(admission.handshake(A).is_ok(), "a slot could be had");
        let caller = admission.session(A, PendingKind::Caller).expect("the second gives way");
        assert!(is_evicted(&second).await && !is_evicted(&first).await);
        assert_eq!(live.count(), 2);
        assert!(
            admission.session(A, PendingKind::Caller).is_err() && admission.handshake(A).is_err(),
            "a caller is not evicted"
        );
        drop((first, caller));
        assert_eq!(live.count(), 0);
        let empty = tokio::time::timeout(Duration::from_secs(1), admission.wait_empty());
        assert!(empty.await.is_err(), "the second has not ended");
        drop(second);
        admission.wait_empty().await;
    }

    /// A closed admission takes no newcomer, for whom no one is evicted. Who is in may go on.
    #[tokio::test(start_paused = true)]
    async fn a_closed_admission_takes_no_newcomer() {
        let admission = Admission::new(SlotPool::new(1));
        let offer = admission.session(A, PendingKind::Offer).expect("a free slot");
        pass(PENDING_OFFERS_YIELD_AFTER).await;
        let caller = |admission: &Admission| admission.session(B, PendingKind::Caller);
        admission.close();
        assert_eq!(admission.newcomer(caller).err(), Some(SessionRefusal::Stopping));
        assert!(!is_evicted(&offer).await);
        assert!(caller(&admission).is_ok());
    }

    /// A job takes a free slot and no other, though an offer would give way to a caller.
    #[tokio::test(start_paused = true)]
    async fn a_job_takes_a_free_slot_alone() {
        let admission = Admission::new(SlotPool::new(1));
        let operator = Requester {
            is_authorised: true,
            ..B
        };
        let offer = admission.session(A, PendingKind::Offer).expect("a free slot");
        pass(PENDING_OFFERS_YIELD_AFTER).await;
        let job = || admission.session_in_free_slot(operator, PendingKind::Caller);
        assert_eq!(job().err(), Some(AdmissionError::Full));
        assert!(!is_evicted(&offer).await);
        drop(offer);
        let job = job().expect("a free slot");
        assert!(admission.session(operator, PendingKind::Caller).is_err());
        drop(job);
    }

    /// Pending offers are capped below the session cap; above it another source evicts the oldest.
    #[tokio::test(start_paused = true)]
    async fn pending_offers_are_capped() {
        let live = SlotPool::new(2 * PENDING_OFFERS_MAX);
        let admission = Admission::new(live.clone());
        let offers: Vec<SessionPermit> = (0..PENDING_OFFERS_MAX)
            .map(|_| admission.session(A, PendingKind::Offer).expect("a free slot"))
            .collect();
        assert_eq!(
            admission.session(A, PendingKind::Offer).err(),
            Some(AdmissionError::Full)
        );
        let caller = admission
            .session(A, PendingKind::Caller)
            .expect("there are places for callers");
        let other = admission.session(B, PendingKind::Offer).expect("the flood gives way");
        assert!(is_evicted(&offers[0]).await && !is_evicted(&offers[1]).await && !is_evicted(&other).await);
        assert_eq!(live.count(), PENDING_OFFERS_MAX + 1);
        drop((offers, caller, other));
        admission.wait_empty().await;
    }

    /// No source can block another one, whatever it holds.
    #[tokio::test(start_paused = true)]
    async fn no_source_blocks_another() {
        for kind in [PendingKind::Caller, PendingKind::Offer, PendingKind::Silent] {
            let admission = Admission::new(SlotPool::new(32));
            let mut held = Vec::new();
            while let Ok(permit) = admission.session(A, kind) {
                held.push(permit);
            }
            assert_eq!(
                held.len(),
                if kind == PendingKind::Offer {
                    PENDING_OFFERS_MAX
                } else {
                    source_share(32)
                }
            );
            for honest in [PendingKind::Caller, PendingKind::Offer, PendingKind::Silent] {
                assert!(admission.session(B, honest).is_ok(), "{honest:?} beside {kind:?}");
            }
            assert!(admission.handshake(B).is_ok());
        }
    }

    /// Evicted sessions whose bots do not end are capped; at the cap nothing is evicted.
    #[tokio::test(start_paused = true)]
    async fn evicted_sessions_are_capped() {
        let admission = Admission::new(SlotPool::new(1));
        let mut gone = Vec::new();
        for nth in 0..=EVICTED_SESSIONS_MAX {
            let requester = from(nth as u8);
            gone.push(admission.session(requester, PendingKind::Offer).expect("a free slot"));
            pass(PENDING_OFFERS_YIELD_AFTER).await;
        }
        assert!(admission.session(A, PendingKind::Offer).is_err() && admission.handshake(A).is_err());
        gone.remove(0);
        assert!(admission.session(A, PendingKind::Offer).is_ok());
    }

    /// An offer replaces a session that is gone, whose bot has its time to end. The same slot
    /// cannot be taken twice.
    #[tokio::test(start_paused = true)]
    async fn an_offer_replaces_a_session_that_is_gone() {
        let live = SlotPool::new(1);
        let admission = Admission::new(live.clone());
        let mut gone = admission.session(A, PendingKind::Offer).expect("a free slot");
        gone.mark_connected();
        assert_eq!(
            admission.session(A, PendingKind::Offer).err(),
            Some(AdmissionError::Full)
        );
        let back = admission.replace(gone.ticket(), A).expect("its slot");
        assert!(is_evicted(&gone).await && !is_evicted(&back).await);
        assert_eq!(admission.replace(gone.ticket(), A).err(), Some(AdmissionError::Full));
        assert_eq!(live.count(), 1);
        drop(gone);
        assert_eq!(live.count(), 1);
        drop(back);
        assert_eq!(live.count(), 0);
        admission.wait_empty().await;
    }

    /// Waiting requests are capped, with a share per source. The runner is not empty before they
    /// have their answers.
    #[tokio::test(start_paused = true)]
    async fn waiting_requests_are_capped_and_waited_for() {
        let admission = Admission::new(SlotPool::new(1));
        for (waiting, max) in [
            (&admission.offers, WAITING_OFFERS_MAX),
            (&admission.dispatches, DISPATCHES_MAX),
        ] {
            let mut held: Vec<SessionPermit> = (0..source_share(max))
                .map(|_| waiting.admit(A).expect("room"))
                .collect();
            assert_eq!(waiting.admit(A).err(), Some(AdmissionError::SourceShare));
            for _ in held.len()..max {
                held.push(waiting.admit(B).expect("room"));
            }
            assert_eq!(waiting.admit(B).err(), Some(AdmissionError::Full));
            drop(held.remove(0));
            assert!(waiting.admit(A).is_ok());
            held.truncate(1);
            let empty = tokio::time::timeout(Duration::from_secs(1), admission.wait_empty());
            assert!(empty.await.is_err(), "one still waits");
            drop(held);
            admission.wait_empty().await;
        }
    }

    /// Silent sockets hold no session slot. Above their cap the oldest is evicted while few enough
    /// are closing, and one source cannot use up the closing slots.
    #[tokio::test(start_paused = true)]
    async fn silent_sockets_do_not_block_callers() {
        let live = SlotPool::new(1);
        let admission = Admission::new(live.clone());
        let handshake = |requester| admission.handshake(requester).expect("a free slot");
        let mut held: Vec<SessionPermit> = (0..HANDSHAKES_MAX).map(|_| handshake(A)).collect();
        assert_eq!(live.count(), 0);
        assert!(!is_evicted(&held[0]).await);
        for nth in 0..source_share(HANDSHAKES_ENDING_MAX) {
            held.push(handshake(A));
            assert!(is_evicted(&held[nth]).await);
        }
        assert!(
            admission.handshake(A).is_err(),
            "none of those that were evicted has gone"
        );
        let other = handshake(B);
        drop(held.remove(0));
        drop(held.remove(0));
        held.push(handshake(A));
        assert!(!is_evicted(&other).await);
        let caller = admission.session(B, PendingKind::Caller).expect("a free slot");
        assert!(admission.handshake(B).is_err(), "it could become no caller");
        drop((held, other, caller));
        admission.wait_empty().await;
    }

    /// Connections that named no session: a source has its share and then evicts its own, but not
    /// before the grace period. At the cap of all, a source with fewer evicts at once.
    #[tokio::test(start_paused = true)]
    async fn connections_without_a_session_are_capped() {
        const SHARE: usize = 3;
        const GRACE: Duration = Duration::from_secs(3);
        let pool = PendingPermits::of_connections(4 * SHARE, SHARE, 2, GRACE);
        let connect = |requester| pool.admit(requester);
        let mut held: Vec<SessionPermit> = (0..SHARE).map(|_| connect(A).expect("within the share")).collect();
        assert_eq!(connect(A).err(), Some(AdmissionError::SourceShare));
        pass(GRACE).await;
        held.push(connect(A).expect("the oldest gives way"));
        assert!(is_evicted(&held[0]).await && !is_evicted(&held[1]).await);
        drop(held.remove(0));
        for host in 2..=4 {
            held.extend((0..SHARE).map(|_| connect(from(host)).expect("within the share")));
        }
        assert_eq!((held.len(), pool.count()), (4 * SHARE, 4 * SHARE));
        let honest = connect(from(5)).expect("the oldest of a source with more gives way");
        assert!(is_evicted(&held[0]).await && !is_evicted(&honest).await);
        assert_eq!(pool.count(), 4 * SHARE + 1, "the evicted one is closing");
        drop((held, honest));
        assert_eq!(pool.count(), 0);
    }
}
