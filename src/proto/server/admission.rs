//! Admission control: per-source quotas, and the eviction of pending entries.
//!
//! In: requesters, what they ask for, and `now`. Out: a ticket, and, where permits are short, the
//! one pending entry to evict. An entry is pending until its session has proof of a peer: a WebRTC
//! session until it connects, a plain client until its first frame, a media room until a
//! participant joins, a socket on `/ws` until its provider is recognised. Three rules keep one
//! address from shutting others out:
//! - The anonymous entries of one source hold at most a share of all permits.
//! - The oldest pending entry of the source with the most permits is evicted. It goes at once if
//!   that source holds more than the requester's would, else after a grace period. A flood
//!   therefore evicts its own entries.
//! - Anonymous entries are evicted before authorised ones, at once, and never the other way round.
//!   Authorised entries do not count towards a share.
//!
//! The permit of a session that is not pending is reassigned only when its caller is known to be
//! gone ([`PermitLedger::may_replace`]). Everything else is rejected with [`AdmissionError`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::server::source::SourceKey;

/// The origin of a request for a limited resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The source of the request; behind a trusted proxy, the one that the proxy reports.
    pub source: SourceKey,
    /// Whether the request has the API key, or a session id or token that an authorised request
    /// received.
    pub is_authorised: bool,
    /// The local address of the connection; `None` if a proxy forwarded the request or the address
    /// is unknown. Quotas ignore it.
    pub local_address: Option<IpAddr>,
}

/// The kind of entry that needs a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingKind {
    /// A caller that is connected; never pending.
    Caller,
    /// A WebRTC session until it connects.
    Offer,
    /// A session until its peer is heard.
    Silent,
}

/// A rejected admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionError {
    /// All permits are held, and no entry can be evicted.
    Full,
    /// The source holds its share, while other sources still have permits.
    SourceShare,
}

/// The limits of a [`PermitLedger`].
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    pub permits_max: usize,
    /// Permits that the anonymous entries of one source may hold.
    pub share_max: usize,
    /// Entries of [`PendingKind::Offer`] that may be pending.
    pub offers_max: usize,
    /// Evicted entries that have not ended; at this number no further one is evicted.
    pub evicted_max: usize,
    /// Age before which an entry is not evicted for a source of equal usage.
    pub grace: Duration,
}

/// The id of an entry.
pub type Ticket = u64;

/// Returns the share of one source: three quarters of all permits. Below four permits it is all, so
/// that one caller of an idle runner can have a second session.
pub const fn source_share(of: usize) -> usize {
    of - of / 4
}

/// The holders of permits.
#[derive(Debug)]
pub struct PermitLedger<T> {
    limits: AdmissionLimits,
    /// All entries in order of arrival, including evicted ones.
    entries: BTreeMap<Ticket, LedgerEntry<T>>,
    pending: BTreeSet<Ticket>,
    /// Permits of the anonymous entries of each source.
    held: HashMap<SourceKey, usize>,
    permits: usize,
    pending_offers: usize,
    next: Ticket,
}

#[derive(Debug)]
struct LedgerEntry<T> {
    requester: Requester,
    kind: PendingKind,
    admitted_at: Instant,
    is_evicted: bool,
    item: T,
}

impl<T> PermitLedger<T> {
    pub fn new(caps: AdmissionLimits) -> Self {
        PermitLedger {
            limits: caps,
            entries: BTreeMap::new(),
            pending: BTreeSet::new(),
            held: HashMap::new(),
            permits: 0,
            pending_offers: 0,
            next: 0,
        }
    }

    /// Returns which entry has to be evicted for a new one, if any.
    ///
    /// # Errors
    /// Returns an [`AdmissionError`] if no permit can be freed.
    pub fn plan(
        &self,
        requester: Requester,
        kind: PendingKind,
        now: Instant,
    ) -> Result<Option<Ticket>, AdmissionError> {
        let offers_alone = kind == PendingKind::Offer && self.pending_offers >= self.limits.offers_max;
        if !requester.is_authorised && self.held(requester.source) >= self.limits.share_max {
            let is_own =
                |entry: &LedgerEntry<T>| !entry.requester.is_authorised && entry.requester.source == requester.source;
            let own = self.candidates(offers_alone).find(|(_, entry)| is_own(entry));
            let eviction_candidate = own.filter(|(_, entry)| self.is_past_grace(entry, now) && self.may_evict_own());
            let refused = match self.permits < self.limits.permits_max {
                true => AdmissionError::SourceShare,
                false => AdmissionError::Full,
            };
            return eviction_candidate.map(|(ticket, _)| Some(ticket)).ok_or(refused);
        }
        if !offers_alone && self.permits < self.limits.permits_max {
            return Ok(None);
        }
        self.victim(requester, offers_alone, now)
            .map(Some)
            .ok_or(AdmissionError::Full)
    }

    /// Returns the entry to evict for this requester.
    fn victim(&self, requester: Requester, offers_alone: bool, now: Instant) -> Option<Ticket> {
        let mut heaviest: Option<(usize, Ticket, &LedgerEntry<T>)> = None;
        for (ticket, entry) in self.candidates(offers_alone) {
            let weight = self.held(entry.requester.source);
            // The first entry of a source is its oldest.
            if !entry.requester.is_authorised && heaviest.is_none_or(|(most, ..)| weight > most) {
                heaviest = Some((weight, ticket, entry));
            }
        }
        match (heaviest, requester.is_authorised) {
            (Some((_, ticket, _)), true) => self.may_evict().then_some(ticket),
            (Some((weight, ticket, entry)), false) => {
                let at_once = weight > self.held(requester.source) + 1;
                let may_evict = match entry.requester.source == requester.source {
                    true => self.may_evict_own(),
                    false => self.may_evict(),
                };
                (may_evict && (at_once || self.is_past_grace(entry, now))).then_some(ticket)
            }
            (None, true) => {
                let oldest = self.candidates(offers_alone).next();
                let (ticket, _) = oldest.filter(|(_, entry)| self.is_past_grace(entry, now))?;
                self.may_evict().then_some(ticket)
            }
            (None, false) => None,
        }
    }

    /// Returns the pending entries, the oldest first.
    fn candidates(&self, offers_alone: bool) -> impl Iterator<Item = (Ticket, &LedgerEntry<T>)> {
        let pending = self.pending.iter();
        let entries = pending.filter_map(|ticket| Some((*ticket, self.entries.get(ticket)?)));
        entries.filter(move |(_, entry)| !offers_alone || entry.kind == PendingKind::Offer)
    }

    fn is_past_grace(&self, entry: &LedgerEntry<T>, now: Instant) -> bool {
        now >= entry.admitted_at + self.limits.grace
    }

    fn may_evict(&self) -> bool {
        self.entries.len() - self.permits < self.limits.evicted_max
    }

    /// Returns whether a source may evict its own entries: part of the evictions in progress is
    /// reserved for other sources.
    fn may_evict_own(&self) -> bool {
        self.entries.len() - self.permits < source_share(self.limits.evicted_max)
    }

    fn held(&self, source: SourceKey) -> usize {
        self.held.get(&source).copied().unwrap_or(0)
    }

    /// Returns whether the permit of an entry, pending or not, may go to this requester. Shares,
    /// the precedence of authorised entries and the limit of offers apply.
    pub fn may_replace(&self, ticket: Ticket, requester: Requester, kind: PendingKind) -> bool {
        let Some(entry) = self.entries.get(&ticket).filter(|entry| !entry.is_evicted) else {
            return false;
        };
        let offers_after = self.pending_offers - usize::from(self.is_pending_offer(ticket, entry))
            + usize::from(kind == PendingKind::Offer);
        let is_own =
            entry.requester.source == requester.source && entry.requester.is_authorised == requester.is_authorised;
        let has_share = requester.is_authorised || is_own || self.held(requester.source) < self.limits.share_max;
        let is_anonymous = !entry.requester.is_authorised;
        offers_after <= self.limits.offers_max
            && has_share
            && (is_anonymous || requester.is_authorised)
            && if is_own { self.may_evict_own() } else { self.may_evict() }
    }

    fn is_pending_offer(&self, ticket: Ticket, entry: &LedgerEntry<T>) -> bool {
        entry.kind == PendingKind::Offer && self.pending.contains(&ticket)
    }

    /// Frees the permit of an entry that [`PermitLedger::plan`] returned or
    /// [`PermitLedger::may_replace`] allows, and returns its item. The entry remains until
    /// [`PermitLedger::remove`].
    pub fn evict(&mut self, ticket: Ticket) -> Option<&mut T> {
        if self.entries.get(&ticket)?.is_evicted {
            return None;
        }
        self.mark_connected(ticket);
        let entry = self.entries.get_mut(&ticket)?;
        entry.is_evicted = true;
        let requester = entry.requester;
        self.permits -= 1;
        self.release(requester);
        self.entries.get_mut(&ticket).map(|entry| &mut entry.item)
    }

    /// Adds an entry that [`PermitLedger::plan`] admitted.
    pub fn admit(&mut self, requester: Requester, kind: PendingKind, item: T, now: Instant) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        let entry = LedgerEntry {
            requester,
            kind,
            admitted_at: now,
            is_evicted: false,
            item,
        };
        self.entries.insert(ticket, entry);
        self.permits += 1;
        if !requester.is_authorised {
            *self.held.entry(requester.source).or_default() += 1;
        }
        if kind != PendingKind::Caller {
            self.pending.insert(ticket);
        }
        self.pending_offers += usize::from(kind == PendingKind::Offer);
        ticket
    }

    /// Marks an entry as connected or ending, so that it is not evicted. Returns whether it was
    /// pending.
    pub fn mark_connected(&mut self, ticket: Ticket) -> bool {
        let was_pending = self.pending.remove(&ticket);
        let is_offer = |entry: &LedgerEntry<T>| entry.kind == PendingKind::Offer;
        if was_pending && self.entries.get(&ticket).is_some_and(is_offer) {
            self.pending_offers -= 1;
        }
        was_pending
    }

    /// Removes an entry, and returns its item.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        self.mark_connected(ticket);
        let entry = self.entries.remove(&ticket)?;
        if !entry.is_evicted {
            self.permits -= 1;
            self.release(entry.requester);
        }
        Some(entry.item)
    }

    fn release(&mut self, requester: Requester) {
        if requester.is_authorised {
            return;
        }
        if let Some(held) = self.held.get_mut(&requester.source) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&requester.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);
    const TICK: Duration = Duration::from_millis(1);
    const CAPS: AdmissionLimits = AdmissionLimits {
        permits_max: 8,
        share_max: source_share(8),
        offers_max: 8,
        evicted_max: 8,
        grace: PATIENCE,
    };

    fn from(address: &str) -> Requester {
        Requester {
            source: address.parse::<IpAddr>().expect("an address").into(),
            is_authorised: false,
            local_address: None,
        }
    }

    fn authorised(address: &str) -> Requester {
        Requester {
            is_authorised: true,
            ..from(address)
        }
    }

    /// A ledger with the steps of its users.
    struct Rig(PermitLedger<()>, Instant);

    impl Rig {
        fn new(caps: AdmissionLimits) -> Self {
            Rig(PermitLedger::new(caps), Instant::now())
        }

        /// Requests a permit at the start.
        fn ask(&mut self, requester: Requester, kind: PendingKind) -> Result<(Ticket, Option<Ticket>), AdmissionError> {
            self.ask_after(Duration::ZERO, requester, kind)
        }

        fn ask_after(
            &mut self,
            after: Duration,
            requester: Requester,
            kind: PendingKind,
        ) -> Result<(Ticket, Option<Ticket>), AdmissionError> {
            let now = self.1 + after;
            let victim = self.0.plan(requester, kind, now)?;
            if let Some(victim) = victim {
                self.0.evict(victim).expect("the plan names a pending entry");
            }
            Ok((self.0.admit(requester, kind, (), now), victim))
        }

        /// Requests `count` permits, which must be granted.
        fn fill(&mut self, requester: Requester, kind: PendingKind, count: usize) -> Vec<Ticket> {
            (0..count)
                .map(|_| self.ask(requester, kind).expect("there is a place").0)
                .collect()
        }
    }

    const A: &str = "192.0.2.1";
    const B: &str = "192.0.2.2";

    /// A source is rejected at its share, and all sources at the limit; a freed permit can be used
    /// again.
    #[test]
    fn one_source_is_limited_to_a_share_and_all_to_the_limit() {
        let mut rig = Rig::new(CAPS);
        let held = rig.fill(from(A), PendingKind::Caller, 6);
        assert_eq!(rig.ask(from(A), PendingKind::Caller), Err(AdmissionError::SourceShare));
        let others = rig.fill(from(B), PendingKind::Caller, 2);
        assert_eq!(rig.ask(from(B), PendingKind::Caller), Err(AdmissionError::Full));
        rig.0.remove(others[0]);
        assert_eq!(rig.ask(from(A), PendingKind::Caller), Err(AdmissionError::SourceShare));
        assert!(rig.ask(from("192.0.2.3"), PendingKind::Caller).is_ok());
        rig.0.remove(held[0]);
        assert!(rig.ask(from(A), PendingKind::Caller).is_ok());
        assert_eq!((rig.0.permits, rig.0.entries.len()), (8, 8));
    }

    /// Up to three permits may belong to one caller; of four, one is reserved for others.
    #[test]
    fn a_share_is_three_quarters() {
        assert_eq!([1, 2, 3, 4, 8, 32].map(source_share), [1, 2, 3, 3, 6, 24]);
    }

    /// An IPv6 network of 64 bits is one source.
    #[test]
    fn a_network_has_one_share() {
        let mut rig = Rig::new(CAPS);
        for host in 1..=6 {
            rig.fill(from(&format!("2001:db8::{host}")), PendingKind::Caller, 1);
        }
        assert_eq!(
            rig.ask(from("2001:db8::7"), PendingKind::Caller),
            Err(AdmissionError::SourceShare)
        );
        assert!(rig.ask(from("2001:db8:0:1::1"), PendingKind::Caller).is_ok());
    }

    /// The source with most permits loses its oldest pending entry, at once, to a source that would
    /// hold fewer.
    #[test]
    fn a_flood_is_evicted_for_others_at_once() {
        let mut rig = Rig::new(AdmissionLimits { share_max: 8, ..CAPS });
        let lone = rig.fill(from(B), PendingKind::Silent, 1);
        let flood = rig.fill(from(A), PendingKind::Silent, 7);
        let (_, evicted) = rig
            .ask(from("192.0.2.3"), PendingKind::Caller)
            .expect("the flood gives way");
        assert_eq!(evicted, Some(flood[0]));
        let (_, evicted) = rig.ask(from(B), PendingKind::Offer).expect("the flood gives way");
        assert_eq!(evicted, Some(flood[1]));
        assert_eq!(
            rig.ask(from(A), PendingKind::Offer),
            Err(AdmissionError::Full),
            "its own come a moment ago"
        );
        let (_, evicted) = rig
            .ask_after(PATIENCE, from(A), PendingKind::Offer)
            .expect("its own have had their time");
        assert_eq!(evicted, Some(flood[2]), "not the older one of a source that holds less");
        assert!(rig.0.mark_connected(lone[0]));
    }

    /// Sources of equal usage lose an entry after the grace period, and not before.
    #[test]
    fn equal_sources_evict_after_the_grace_period() {
        let mut rig = Rig::new(AdmissionLimits {
            permits_max: 1,
            share_max: 1,
            ..CAPS
        });
        let first = rig.fill(from(A), PendingKind::Silent, 1);
        assert_eq!(
            rig.ask_after(PATIENCE - TICK, from(B), PendingKind::Silent),
            Err(AdmissionError::Full)
        );
        let (second, evicted) = rig
            .ask_after(PATIENCE, from(B), PendingKind::Silent)
            .expect("its time is over");
        assert_eq!(evicted, Some(first[0]));
        assert!(rig.0.mark_connected(second));
        assert_eq!(
            rig.ask_after(3 * PATIENCE, from(A), PendingKind::Caller),
            Err(AdmissionError::Full),
            "a caller stays"
        );
    }

    /// A source at its share may evict its own entries after the grace period.
    #[test]
    fn a_source_at_its_share_evicts_its_own_entries() {
        let mut rig = Rig::new(CAPS);
        rig.fill(from(B), PendingKind::Silent, 1);
        let own = rig.fill(from(A), PendingKind::Silent, 6);
        assert_eq!(
            rig.ask_after(PATIENCE - TICK, from(A), PendingKind::Offer),
            Err(AdmissionError::SourceShare)
        );
        let (_, evicted) = rig
            .ask_after(PATIENCE, from(A), PendingKind::Offer)
            .expect("its own give way");
        assert_eq!(evicted, Some(own[0]));
    }

    /// Authorised requesters have no share, evict anonymous entries at once, and are not evicted
    /// for them.
    #[test]
    fn anonymous_entries_never_evict_authorised_ones() {
        let mut rig = Rig::new(CAPS);
        let own = rig.fill(authorised(A), PendingKind::Offer, 7);
        let anonymous = rig.fill(from(B), PendingKind::Silent, 1);
        let (_, evicted) = rig
            .ask(authorised(A), PendingKind::Caller)
            .expect("the anonymous one gives way");
        assert_eq!(evicted, Some(anonymous[0]));
        for after in [Duration::ZERO, 10 * PATIENCE] {
            assert_eq!(
                rig.ask_after(after, from(B), PendingKind::Caller),
                Err(AdmissionError::Full)
            );
        }
        assert_eq!(
            rig.ask_after(PATIENCE - TICK, authorised(B), PendingKind::Caller),
            Err(AdmissionError::Full)
        );
        let (_, evicted) = rig
            .ask_after(PATIENCE, authorised(B), PendingKind::Caller)
            .expect("its time is over");
        assert_eq!(evicted, Some(own[0]));
    }

    /// Pending offers have a separate limit with the same rules; other entries are unaffected.
    #[test]
    fn pending_offers_are_limited() {
        let mut rig = Rig::new(AdmissionLimits { offers_max: 2, ..CAPS });
        let silent = rig.fill(from(A), PendingKind::Silent, 1);
        let offers = rig.fill(from(A), PendingKind::Offer, 2);
        assert_eq!(rig.ask(from(A), PendingKind::Offer), Err(AdmissionError::Full));
        assert_eq!(
            rig.ask(from(A), PendingKind::Silent).map(|(_, evicted)| evicted),
            Ok(None)
        );
        let (other, evicted) = rig.ask(from(B), PendingKind::Offer).expect("the flood gives way");
        assert_eq!(evicted, Some(offers[0]), "an offer, not the older silent session");
        assert!(rig.0.mark_connected(other) && !rig.0.mark_connected(other));
        assert_eq!(
            rig.ask(from(B), PendingKind::Offer).map(|(_, evicted)| evicted),
            Ok(None)
        );
        assert!(rig.0.mark_connected(silent[0]));
    }

    /// One address sends 100 offers a second that never complete, for ten seconds. It holds its
    /// share of pending offers and is rejected beyond it; an honest offer in each second is
    /// answered, connects, and is never evicted.
    #[test]
    fn abandoned_offers_do_not_block_others() {
        let mut rig = Rig::new(AdmissionLimits {
            permits_max: 32,
            share_max: source_share(32),
            offers_max: 16,
            evicted_max: 32,
            ..CAPS
        });
        let (mut gone, mut refused) = (Vec::new(), 0);
        for nth in 0..1_000 {
            let at = Duration::from_millis(10 * nth);
            match rig.ask_after(at, from(A), PendingKind::Offer) {
                Ok((_, evicted)) => gone.extend(evicted),
                Err(_) => refused += 1,
            }
            if nth % 100 == 99 {
                let (honest, evicted) = rig
                    .ask_after(at, from(B), PendingKind::Offer)
                    .expect("an honest caller is let in");
                gone.extend(evicted);
                assert!(rig.0.mark_connected(honest), "it was not evicted");
            }
            // An evicted bot takes a second to end.
            if nth % 100 == 0 {
                for ticket in gone.drain(..) {
                    rig.0.remove(ticket);
                }
            }
            assert!(rig.0.pending_offers <= 16 && rig.0.permits <= 32);
        }
        assert!(refused > 900, "{refused}");
    }

    /// Evicted entries that do not end are limited; a source that evicts its own entries leaves a
    /// quarter of the limit to others.
    #[test]
    fn evicted_entries_are_limited() {
        let mut rig = Rig::new(AdmissionLimits {
            permits_max: 2,
            share_max: 2,
            grace: Duration::ZERO,
            ..CAPS
        });
        rig.fill(from(A), PendingKind::Silent, 2);
        for _ in 0..source_share(8) {
            assert!(rig.ask(from(A), PendingKind::Silent).is_ok());
        }
        assert_eq!(rig.ask(from(A), PendingKind::Silent), Err(AdmissionError::Full));
        let (first, evicted) = rig.ask(from(B), PendingKind::Silent).expect("some is left to others");
        assert!(evicted.is_some());
        rig.0.remove(first);
        rig.fill(from(A), PendingKind::Silent, 1);
        assert!(rig.ask(from(B), PendingKind::Silent).is_ok());
        assert_eq!(
            rig.ask(from("192.0.2.3"), PendingKind::Silent),
            Err(AdmissionError::Full),
            "eight are ending"
        );
        assert!(rig.0.remove(0).is_some() && rig.0.remove(0).is_none());
        assert!(rig.ask(from("192.0.2.3"), PendingKind::Silent).is_ok());
    }

    /// The permit of a connected session whose caller is gone goes only to a requester of its
    /// source that is entitled to one: shares, the precedence of authorised entries and the limits
    /// apply.
    #[test]
    fn the_permit_of_a_lost_caller_stays_with_its_source() {
        let mut rig = Rig::new(AdmissionLimits {
            offers_max: 2,
            evicted_max: 4,
            ..CAPS
        });
        let held = rig.fill(from(A), PendingKind::Offer, 2);
        for ticket in &held {
            rig.0.mark_connected(*ticket);
        }
        let callers = rig.fill(from(A), PendingKind::Caller, 4);
        let key = rig.fill(authorised(A), PendingKind::Caller, 2);
        assert_eq!(rig.ask(from(A), PendingKind::Offer), Err(AdmissionError::Full));
        let replace = |rig: &mut Rig, ticket, requester| {
            let may = rig.0.may_replace(ticket, requester, PendingKind::Offer);
            may.then(|| {
                rig.0.evict(ticket).expect("it has a place");
                rig.0.admit(requester, PendingKind::Offer, (), rig.1)
            })
        };
        assert_eq!(replace(&mut rig, key[0], from(A)), None, "it is authorised");
        assert_eq!(replace(&mut rig, 99, from(A)), None);
        let first = replace(&mut rig, held[0], from(A)).expect("a place");
        assert_eq!(replace(&mut rig, held[0], from(A)), None, "it has none any more");
        assert_eq!(
            (rig.0.permits, rig.0.held(from(A).source), rig.0.pending_offers),
            (8, 6, 1)
        );
        replace(&mut rig, key[0], authorised(A)).expect("a place");
        assert_eq!(replace(&mut rig, callers[0], from(A)), None, "two offers are pending");
        assert!(replace(&mut rig, first, from(A)).is_some(), "one of them is this one");
        assert_eq!(
            replace(&mut rig, callers[0], authorised(A)),
            None,
            "two offers are pending"
        );
        rig.0.mark_connected(first);
        for ticket in [first, held[0], key[0]] {
            rig.0.remove(ticket);
        }
        assert_eq!((rig.0.permits, rig.0.pending_offers), (8, 2));
    }

    /// A requester of another source gets a permit only within its share, anonymous or not.
    #[test]
    fn a_replaced_permit_counts_towards_the_share() {
        let mut rig = Rig::new(CAPS);
        let lost = rig.fill(from(A), PendingKind::Caller, 1)[0];
        let may_replace = |rig: &Rig, requester| rig.0.may_replace(lost, requester, PendingKind::Caller);
        let held = rig.fill(from(B), PendingKind::Caller, CAPS.share_max);
        assert!(!may_replace(&rig, from(B)), "it has its share");
        assert!(may_replace(&rig, authorised(B)), "it has none");
        assert!(may_replace(&rig, from("192.0.2.3")));
        rig.0.remove(held[0]);
        assert!(may_replace(&rig, from(B)));
    }

    /// All indexes are empty after every entry is removed.
    #[test]
    fn an_empty_ledger_has_empty_indexes() {
        let mut rig = Rig::new(CAPS);
        let mut tickets = rig.fill(from(A), PendingKind::Offer, 3);
        tickets.extend(rig.fill(authorised(A), PendingKind::Silent, 3));
        tickets.extend(rig.fill(from(B), PendingKind::Caller, 2));
        let (late, evicted) = rig
            .ask(from(B), PendingKind::Offer)
            .map_or((None, None), |(late, out)| (Some(late), out));
        assert!(evicted.is_none() && late.is_none(), "equal sources wait");
        for ticket in tickets {
            rig.0.remove(ticket);
        }
        let PermitLedger {
            entries,
            pending,
            held,
            permits: places,
            pending_offers: offers,
            ..
        } = rig.0;
        assert!(entries.is_empty() && pending.is_empty() && held.is_empty());
        assert_eq!((places, offers), (0, 0));
    }
}
