//! The places of open connections: how many there are, and which is closed when a newcomer finds
//! them taken.
//!
//! In: newcomers with their source addresses, and what each connection is doing ([`Doing`]). Out: a
//! [`Slot`], at once while any connection can be spared, of those of the source that holds most:
//! first the oldest of those that never sent a whole request, then the one that has been idle for
//! longest, then the oldest of those that hold a request's body back or leave an answer unread. A
//! source spares its own before those of one that holds less, and holds three quarters of all at
//! most, so what one address opens keeps no other out. Connections of a trusted proxy are those of
//! many, and count for no source. Only while each connection is being answered does a newcomer
//! wait. A connection that is chosen and one that begins a request decide it by one atomic step.
//! Refuses: a source that has its share, and none of its own to spare.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::proto::admission::share;
use crate::proto::source::SourceKey;

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The end of its first request's head, with all that comes before.
    First,
    /// The first byte of a further request.
    Idle,
    /// The rest of that one's head.
    Head,
    /// Its body, and what is done with it.
    Body,
    /// A long body of somebody who has not shown yet that it is wanted. Each part of it renews this.
    Receiving,
    /// A long body that is wanted. Each part of it renews this, and nobody takes the place.
    Upload,
    /// The work on a request without a body, and the answer's first byte.
    Answer,
    /// The client, to read the answer.
    Stall,
    /// Nothing: its place is another's.
    Evicted,
}

impl Phase {
    const ALL: [Phase; 9] = [
        Phase::First,
        Phase::Idle,
        Phase::Head,
        Phase::Body,
        Phase::Receiving,
        Phase::Upload,
        Phase::Answer,
        Phase::Stall,
        Phase::Evicted,
    ];
}

/// Bits of a phase.
const PHASE_BITS: u32 = 4;
const PHASE_MASK: u32 = (1 << PHASE_BITS) - 1;

/// The phase of a connection and a count of its changes, so that two changes in one turn do not look like none.
#[derive(Debug)]
pub struct Doing {
    /// The count, above [`PHASE_BITS`] of phase.
    word: AtomicU32,
    /// The turn at which it last became idle.
    idle_turn: AtomicU32,
    evicted: Notify,
    shared: Arc<Shared>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    /// Counts the times that a connection became idle, for their order.
    turn: AtomicU32,
    /// Newcomers that wait.
    waiting: AtomicUsize,
    /// A place is free, or may be made so.
    changed: Notify,
}

impl Doing {
    fn new(shared: Arc<Shared>) -> Self {
        Doing {
            word: AtomicU32::new(Phase::First as u32),
            idle_turn: AtomicU32::new(0),
            evicted: Notify::new(),
            shared,
        }
    }

    /// Of a connection that has a house to itself.
    #[cfg(test)]
    pub fn alone() -> Arc<Self> {
        Arc::new(Doing::new(Slots::new(1).shared))
    }

    /// Notes a phase; tells whether the connection still has its place.
    pub fn set(&self, phase: Phase) -> bool {
        if phase == Phase::Idle {
            self.idle_turn.store(self.shared.turn.fetch_add(1, SeqCst), SeqCst);
        }
        let changed = self.word.fetch_update(SeqCst, SeqCst, |word| {
            let next = (word >> PHASE_BITS).wrapping_add(1) << PHASE_BITS | phase as u32;
            (phase_of(word) != Phase::Evicted).then_some(next)
        });
        let can_be_spared = matches!(phase, Phase::Idle | Phase::Body | Phase::Receiving | Phase::Stall);
        if can_be_spared && self.shared.waiting.load(SeqCst) > 0 {
            self.shared.changed.notify_waiters();
        }
        changed.is_ok()
    }

    pub(super) fn phase(&self) -> Phase {
        self.get().1
    }

    /// Returns the phase with the count.
    pub(super) fn get(&self) -> (u32, Phase) {
        let word = self.word.load(SeqCst);
        (word, phase_of(word))
    }

    /// Waits until the place is another's.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Takes the place away, if the connection is still doing what it was seen doing.
    fn evict(&self, seen: u32) -> bool {
        let evicted = seen & !PHASE_MASK | Phase::Evicted as u32;
        let taken = self.word.compare_exchange(seen, evicted, SeqCst, SeqCst).is_ok();
        if taken {
            self.evicted.notify_one();
        }
        taken
    }
}

fn phase_of(word: u32) -> Phase {
    // The bits hold more values than there are phases; the others are never stored.
    *Phase::ALL.get((word & PHASE_MASK) as usize).unwrap_or(&Phase::Evicted)
}

/// The places.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    max: usize,
    shared: Arc<Shared>,
    taken: Arc<Mutex<Taken>>,
}

/// Who has a place, in the order in which they came.
#[derive(Debug, Default)]
struct Taken {
    next: u64,
    by_number: BTreeMap<u64, Connection>,
    /// Connections of each source.
    held: HashMap<SourceKey, usize>,
}

#[derive(Debug)]
struct Connection {
    doing: Arc<Doing>,
    /// Nothing for a trusted proxy's.
    source: Option<SourceKey>,
}

impl Taken {
    fn held(&self, source: Option<SourceKey>) -> usize {
        source.and_then(|source| self.held.get(&source).copied()).unwrap_or(0)
    }

    fn remove(&mut self, number: u64) {
        let Some(Connection {
            source: Some(source), ..
        }) = self.by_number.remove(&number)
        else {
            return;
        };
        if let Some(held) = self.held.get_mut(&source) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&source);
            }
        }
    }
}

/// Why there is no place at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    /// All are being answered.
    Wait,
    /// The source holds too many of them.
    Refused,
}

/// A place, free again when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    number: u64,
    slots: Slots,
    pub(super) doing: Arc<Doing>,
}

impl Slots {
    pub(super) fn new(max: usize) -> Self {
        Slots {
            max,
            shared: Arc::new(Shared {
                turn: AtomicU32::new(0),
                waiting: AtomicUsize::new(0),
                changed: Notify::new(),
            }),
            taken: Arc::default(),
        }
    }

    /// Takes a place; waits while every connection is being answered. Nothing comes of a source
    /// that holds too many.
    pub(super) async fn enter(&self, source: Option<SourceKey>) -> Option<Slot> {
        let taken = |entered| match entered {
            Ok(slot) => Some(Some(slot)),
            Err(Busy::Refused) => Some(None),
            Err(Busy::Wait) => None,
        };
        if let Some(done) = taken(self.try_enter(source)) {
            return done;
        }
        let _waiting = Waiting::new(&self.shared);
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            if let Some(done) = taken(self.try_enter(source)) {
                return done;
            }
            changed.await;
        }
    }

    /// Takes a place that is free, or that of a connection that can be spared.
    fn try_enter(&self, source: Option<SourceKey>) -> Result<Slot, Busy> {
        let mut taken = self.taken();
        let own = taken.held(source);
        if source.is_some() && own >= share(self.max) {
            let made = self.make_room(&mut taken, |connection, _| connection.source == source);
            made.then_some(()).ok_or(Busy::Refused)?;
        } else if taken.by_number.len() >= self.max && !self.make_room(&mut taken, |_, held| held >= own) {
            // A newcomer that waits keeps those behind it waiting: this one may, if others hold
            // more, and nothing can be spared.
            let is_heaviest = own > 0 && taken.held.values().all(|held| *held <= own);
            let refused = is_heaviest || self.spare(&taken, &|_, _| true).is_some();
            return Err(if refused { Busy::Refused } else { Busy::Wait });
        }
        let number = taken.next;
        taken.next += 1;
        let doing = Arc::new(Doing::new(self.shared.clone()));
        let connection = Connection {
            doing: doing.clone(),
            source,
        };
        taken.by_number.insert(number, connection);
        if let Some(source) = source {
            *taken.held.entry(source).or_default() += 1;
        }
        Ok(Slot {
            number,
            slots: self.clone(),
            doing,
        })
    }

    /// Closes a connection of those that `may` be; tells whether any could be spared.
    fn make_room(&self, taken: &mut Taken, may: impl Fn(&Connection, usize) -> bool) -> bool {
        while let Some((number, seen)) = self.spare(taken, &may) {
            // One that has just begun a request stays, and the next is looked for.
            let gone = taken
                .by_number
                .get(&number)
                .is_some_and(|connection| connection.doing.evict(seen));
            if gone {
                taken.remove(number);
                return true;
            }
        }
        false
    }

    /// Finds what can best be spared, and what it was doing. `may` is told how many its source
    /// holds.
    fn spare(&self, taken: &Taken, may: &impl Fn(&Connection, usize) -> bool) -> Option<(u64, u32)> {
        let turn = self.shared.turn.load(SeqCst);
        let candidates = taken.by_number.iter().filter_map(|(number, connection)| {
            let held = taken.held(connection.source);
            let (seen, phase) = connection.doing.get();
            // The numbers grow, so the first is the oldest.
            let oldest = u64::MAX - *number;
            let (class, age) = match phase {
                Phase::First => (0, oldest),
                // The count of turns may have wrapped since.
                Phase::Idle | Phase::Head => (1, turn.wrapping_sub(connection.doing.idle_turn.load(SeqCst)).into()),
                Phase::Body | Phase::Receiving | Phase::Stall => (2, oldest),
                Phase::Upload | Phase::Answer | Phase::Evicted => return None,
            };
            may(connection, held).then_some(((held, Reverse(class), age), *number, seen))
        });
        let best = candidates.max_by_key(|(rank, ..)| *rank);
        best.map(|(_, number, seen)| (number, seen))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken().remove(self.number);
        self.slots.shared.changed.notify_waiters();
    }
}

/// A newcomer that waits; connections look for one when they become idle.
struct Waiting<'s>(&'s Shared);

impl<'s> Waiting<'s> {
    fn new(shared: &'s Shared) -> Self {
        shared.waiting.fetch_add(1, SeqCst);
        Waiting(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::net::IpAddr;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn enter(slots: &Slots) -> Slot {
        slots.try_enter(None).expect("there is a place")
    }

    /// Tells whether a connection was told to go.
    fn is_evicted(slot: &Slot) -> bool {
        let told = pin!(slot.doing.evicted());
        told.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// At the cap everybody has a place; past it the oldest goes that has never sent a request.
    #[test]
    fn the_oldest_silent_connection_gives_way() {
        let slots = Slots::new(3);
        let (served, first, second) = (enter(&slots), enter(&slots), enter(&slots));
        assert!(served.doing.set(Phase::Answer) && served.doing.set(Phase::Idle));
        let third = enter(&slots);
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&served));
        let fourth = enter(&slots);
        assert!(is_evicted(&second) && !is_evicted(&third) && !is_evicted(&served));
        // Those who went leave no place behind a second time.
        drop((first, second));
        assert_eq!(slots.taken().by_number.len(), 3);
        drop((third, fourth, served));
        assert_eq!(slots.taken().by_number.len(), 0);
    }

    /// Of those that were served the one goes that has been idle for longest, whatever half of a head it has sent since.
    #[test]
    fn the_longest_idle_connection_gives_way() {
        let slots = Slots::new(3);
        let all = [enter(&slots), enter(&slots), enter(&slots)];
        for slot in &all {
            slot.doing.set(Phase::Answer);
        }
        for place in [1, 2, 0] {
            all[place].doing.set(Phase::Idle);
        }
        all[1].doing.set(Phase::Head);
        let evicted = || [0, 1, 2].map(|place| all[place].doing.phase() == Phase::Evicted);
        let newcomer = enter(&slots);
        newcomer.doing.set(Phase::Answer);
        assert_eq!(evicted(), [false, true, false]);
        let newcomer = (newcomer, enter(&slots));
        newcomer.1.doing.set(Phase::Answer);
        assert_eq!(evicted(), [false, true, true]);
    }

    /// The order holds when the count of turns wraps.
    #[test]
    fn the_order_survives_the_end_of_its_count() {
        let slots = Slots::new(2);
        slots.shared.turn.store(u32::MAX, SeqCst);
        let (first, second) = (enter(&slots), enter(&slots));
        first.doing.set(Phase::Idle);
        second.doing.set(Phase::Idle);
        let _third = enter(&slots);
        assert!(is_evicted(&first) && !is_evicted(&second));
    }

    /// Who is being answered stays; the newcomer waits for the first of them to be idle, or gone.
    #[test]
    fn a_newcomer_waits_while_all_are_answered() {
        let slots = Slots::new(2);
        let (first, second) = (enter(&slots), enter(&slots));
        first.doing.set(Phase::Answer);
        second.doing.set(Phase::Answer);
        let mut entering = pin!(slots.enter(None));
        let mut poll = || entering.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending() && poll().is_pending());
        first.doing.set(Phase::Idle);
        let Poll::Ready(Some(third)) = poll() else {
            panic!("the idle one can be spared");
        };
        assert!(is_evicted(&first));
        third.doing.set(Phase::Answer);
        let mut entering = pin!(slots.enter(None));
        let mut poll = || entering.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());
        drop(second);
        assert!(poll().is_ready());
    }

    /// A connection that begins a request in the moment in which it is chosen keeps its place; one that was sent away
    /// begins none.
    #[test]
    fn a_request_and_an_eviction_exclude_each_other() {
        let slots = Slots::new(1);
        let slot = enter(&slots);
        let (seen, _) = slot.doing.get();
        assert!(slot.doing.set(Phase::Answer));
        assert!(!slot.doing.evict(seen));
        slot.doing.set(Phase::Idle);
        let (seen, _) = slot.doing.get();
        assert!(slot.doing.evict(seen));
        assert!(!slot.doing.set(Phase::Answer));
        assert_eq!(slot.doing.phase(), Phase::Evicted);
    }

    /// I-09: an upload that nobody has let in yet makes room for others, and one that was let in keeps its place.
    #[test]
    fn an_upload_that_was_let_in_stays() {
        let slots = Slots::new(2);
        let (stranger, known) = (enter(&slots), enter(&slots));
        assert!(stranger.doing.set(Phase::Receiving) && known.doing.set(Phase::Upload));
        let newcomer = enter(&slots);
        assert_eq!(stranger.doing.phase(), Phase::Evicted);
        assert!(!stranger.doing.set(Phase::Upload), "the place is another's");
        newcomer.doing.set(Phase::Answer);
        assert!(slots.try_enter(None).is_err());
        assert_eq!(known.doing.phase(), Phase::Upload);
    }

    /// Every phase is read back as it was noted, whatever the count of changes.
    #[test]
    fn a_phase_is_read_as_it_was_set() {
        let slots = Slots::new(1);
        let slot = enter(&slots);
        slot.doing.word.store(!PHASE_MASK, SeqCst);
        for phase in Phase::ALL {
            assert!(slot.doing.set(phase));
            assert_eq!(slot.doing.phase(), phase);
        }
    }

    /// Whoever holds a body back, or leaves an answer unread, goes last, and before anybody waits.
    #[test]
    fn slow_bodies_keep_nobody_out() {
        let slots = Slots::new(3);
        let (slow, busy, stalled) = (enter(&slots), enter(&slots), enter(&slots));
        assert!(slow.doing.set(Phase::Body) && busy.doing.set(Phase::Answer) && stalled.doing.set(Phase::Stall));
        let first = enter(&slots);
        assert_eq!(slow.doing.phase(), Phase::Evicted);
        first.doing.set(Phase::Answer);
        let second = enter(&slots);
        assert_eq!(stalled.doing.phase(), Phase::Evicted);
        second.doing.set(Phase::Answer);
        assert!(slots.try_enter(None).is_err(), "all the others are being answered");
        assert_eq!(busy.doing.phase(), Phase::Answer);
    }

    fn of(source: &str) -> Option<SourceKey> {
        let address: IpAddr = source.parse().expect("an address");
        Some(address.into())
    }

    fn phases(slots: &[Slot]) -> Vec<Phase> {
        slots.iter().map(|slot| slot.doing.phase()).collect()
    }

    /// Places are spared by the source that holds most of them, whatever its connections do, and
    /// then by what they do.
    #[test]
    fn the_heaviest_source_is_spared_from_first() {
        let slots = Slots::new(4);
        let lone = slots.try_enter(of("192.0.2.1")).expect("a place");
        let heavy: Vec<Slot> = ["2001:db8::1", "2001:db8::2", "2001:db8::3"]
            .map(|address| slots.try_enter(of(address)).expect("a place"))
            .into();
        assert!(heavy[0].doing.set(Phase::Idle) && heavy[1].doing.set(Phase::Body) && heavy[2].doing.set(Phase::Idle));
        let mut newcomers = Vec::new();
        for gone in [0, 2] {
            newcomers.push(slots.try_enter(of("192.0.2.2")).expect("the network gives way"));
            assert_eq!(phases(&heavy)[gone], Phase::Evicted);
        }
        assert_eq!(
            (lone.doing.phase(), heavy[1].doing.phase()),
            (Phase::First, Phase::Body)
        );
    }

    /// At its share a source spares its own, and past it, while all of its own are being answered,
    /// it is refused at once. So its newcomers keep no other source waiting, and others find
    /// places.
    #[test]
    fn a_source_has_a_share() {
        let slots = Slots::new(8);
        let flood = of("192.0.2.1");
        let busy: Vec<Slot> = (0..6).map(|_| slots.try_enter(flood).expect("a place")).collect();
        assert!(busy.iter().all(|slot| slot.doing.set(Phase::Answer)));
        assert_eq!(slots.try_enter(flood).err(), Some(Busy::Refused));
        let other = slots.try_enter(of("192.0.2.2")).expect("a place");
        assert!(busy[3].doing.set(Phase::Idle));
        let more = slots.try_enter(flood).expect("its own idle one is spared");
        assert_eq!(
            (busy[3].doing.phase(), other.doing.phase()),
            (Phase::Evicted, Phase::First)
        );
        drop(more);
        assert!(slots.try_enter(flood).is_ok());
    }

    /// The heaviest source is refused rather than given a place of one that holds less, and a light
    /// one waits.
    #[test]
    fn what_holds_less_is_not_spared_for_what_holds_more() {
        let slots = Slots::new(4);
        let (heavy, light) = (of("192.0.2.1"), of("192.0.2.2"));
        let busy = [heavy, heavy].map(|source| slots.try_enter(source).expect("a place"));
        let idle = [light, of("192.0.2.3")].map(|source| slots.try_enter(source).expect("a place"));
        assert!(busy.iter().all(|slot| slot.doing.set(Phase::Answer)));
        assert_eq!(slots.try_enter(heavy).err(), Some(Busy::Refused));
        assert!(idle.iter().all(|slot| slot.doing.phase() == Phase::First));
        assert!(idle.iter().all(|slot| slot.doing.set(Phase::Answer)));
        assert_eq!(slots.try_enter(light).err(), Some(Busy::Wait));
        assert_eq!(slots.try_enter(of("192.0.2.4")).err(), Some(Busy::Wait));
        assert_eq!(slots.try_enter(heavy).err(), Some(Busy::Refused));
    }

    /// What is left leaves no count.
    #[test]
    fn counts_go_with_their_connections() {
        let slots = Slots::new(2);
        let held = ["192.0.2.1", "192.0.2.2"].map(|source| slots.try_enter(of(source)).expect("a place"));
        let newcomer = slots.try_enter(of("192.0.2.3")).expect("the oldest is spared");
        drop((held, newcomer));
        let taken = slots.taken();
        assert!(taken.by_number.is_empty() && taken.held.is_empty());
    }
}
