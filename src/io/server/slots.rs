//! The places of open connections: how many there are, and who has to go when a newcomer finds them taken.
//!
//! In: newcomers, and what each connection is doing ([`Doing`]). Out: a [`Slot`], at once while any connection can be spared:
//! first the oldest of those that never sent a whole request, then the one that has been idle for longest, then the oldest of
//! those that hold a request's body back or leave an answer unread. Only while each of them is being answered does a newcomer
//! wait. So whoever opens connections and keeps silent pushes out himself, and
//! keeps nobody out. A connection that is chosen and one that begins a request decide it by one atomic step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

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
    by_number: BTreeMap<u64, Arc<Doing>>,
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

    /// Takes a place; waits while every connection is being answered.
    pub(super) async fn enter(&self) -> Slot {
        if let Some(slot) = self.try_enter() {
            return slot;
        }
        let _waiting = Waiting::new(&self.shared);
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            if let Some(slot) = self.try_enter() {
                return slot;
            }
            changed.await;
        }
    }

    /// Takes a place that is free, or somebody's who can be spared.
    fn try_enter(&self) -> Option<Slot> {
        let mut taken = self.taken();
        if taken.by_number.len() >= self.max && !self.make_room(&mut taken) {
            return None;
        }
        let number = taken.next;
        taken.next += 1;
        let doing = Arc::new(Doing::new(self.shared.clone()));
        taken.by_number.insert(number, doing.clone());
        Some(Slot {
            number,
            slots: self.clone(),
            doing,
        })
    }

    /// Sends somebody away; tells whether anybody could be spared.
    fn make_room(&self, taken: &mut Taken) -> bool {
        while let Some((number, seen)) = self.spare(taken) {
            // One that has just begun a request stays, and the next is looked for.
            let gone = taken.by_number.get(&number).is_some_and(|doing| doing.evict(seen));
            if gone {
                taken.by_number.remove(&number);
                return true;
            }
        }
        false
    }

    /// Finds who can best be spared, and what it was doing.
    fn spare(&self, taken: &Taken) -> Option<(u64, u32)> {
        let turn = self.shared.turn.load(SeqCst);
        let mut idle: Option<(u32, u64, u32)> = None;
        let mut slow: Option<(u64, u32)> = None;
        for (number, doing) in &taken.by_number {
            let (seen, phase) = doing.get();
            match phase {
                Phase::First => return Some((*number, seen)),
                Phase::Idle | Phase::Head => {
                    // The count of turns may have wrapped since.
                    let age = turn.wrapping_sub(doing.idle_turn.load(SeqCst));
                    if idle.is_none_or(|(oldest, ..)| age > oldest) {
                        idle = Some((age, *number, seen));
                    }
                }
                // The numbers grow, so the first is the oldest.
                Phase::Body | Phase::Receiving | Phase::Stall => slow = slow.or(Some((*number, seen))),
                Phase::Upload | Phase::Answer | Phase::Evicted => {}
            }
        }
        idle.map(|(_, number, seen)| (number, seen)).or(slow)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken().by_number.remove(&self.number);
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
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn enter(slots: &Slots) -> Slot {
        slots.try_enter().expect("there is a place")
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
        let mut entering = pin!(slots.enter());
        let mut poll = || entering.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending() && poll().is_pending());
        first.doing.set(Phase::Idle);
        let Poll::Ready(third) = poll() else {
            panic!("the idle one can be spared");
        };
        assert!(is_evicted(&first));
        third.doing.set(Phase::Answer);
        let mut entering = pin!(slots.enter());
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
        assert!(slots.try_enter().is_none());
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
        assert!(slots.try_enter().is_none(), "all the others are being answered");
        assert_eq!(busy.doing.phase(), Phase::Answer);
    }
}
