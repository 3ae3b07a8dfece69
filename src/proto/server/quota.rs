//! The ledger of quotas: who holds what, and which entry is evicted for a newcomer.
//!
//! In: entries with their holders and sizes, and `now`. Out: a [`Ticket`] for each entry, and
//! where room is short the one entry to evict. Its owner tells which entries may be evicted, and
//! in which order ([`QuotaLedger::set_order`]); all others are protected. The rule is one for all
//! owners, and its numbers are a [`QuotaPolicy`]:
//! - The entries of one anonymous source hold at most a share. At its share it evicts its own.
//! - With no room for all, the holder with most loses its first entry in the order of eviction, at
//!   once if it holds more than the requester would. A flood therefore evicts its own entries.
//! - Authorised holders have no share. They evict anonymous entries at once, and no anonymous one
//!   evicts them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::server::source::SourceKey;

/// The id of an entry. Tickets grow, so the smallest is the oldest.
pub type Ticket = u64;

/// The order in which the entries of a holder are evicted, lowest first.
pub type EvictionOrder = (u8, u64);

/// Selects the entries of a narrower quota.
pub type Scope<'s, T> = &'s dyn Fn(&T) -> bool;

/// For whom an entry counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// An anonymous source, which has a share.
    Source(SourceKey),
    /// A proxy or tunnel with any number of clients, which has none.
    Proxy,
    /// All authorised requesters.
    Authorised,
}

/// What is held, or may be held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub entries: usize,
    pub bytes: usize,
}

impl Usage {
    /// A limit of entries, of any size.
    pub const fn entries(max: usize) -> Self {
        Usage {
            entries: max,
            bytes: usize::MAX,
        }
    }

    fn has_room_for(self, bytes: usize, max: Usage) -> bool {
        self.entries < max.entries && bytes <= max.bytes.saturating_sub(self.bytes)
    }
}

/// Which entry of a holder that would not hold more than the requester is evicted.
#[derive(Clone, Copy, Debug)]
pub enum EqualHolders {
    /// One of this age.
    AfterGrace(Duration),
    /// Any, if the holder has as much as the requester.
    UnlessLighter,
}

/// The numbers of a ledger.
#[derive(Clone, Copy, Debug)]
pub struct QuotaPolicy {
    pub max: Usage,
    /// What one source may hold.
    pub share: Usage,
    /// Evicted entries that have not ended; at this number no further one is evicted.
    pub evicted_max: usize,
    /// Age before which a source at its share does not evict its own entry.
    pub own_grace: Duration,
    pub equal_holders: EqualHolders,
    /// Whether what a proxy holds counts when the holder with most is sought.
    pub proxies_weigh: bool,
}

/// A newcomer.
#[derive(Clone, Copy, Debug)]
pub struct QuotaRequest {
    pub holder: Holder,
    pub bytes: usize,
}

impl QuotaRequest {
    /// A request for one entry, where sizes do not matter.
    pub fn entry(holder: Holder) -> Self {
        QuotaRequest { holder, bytes: 0 }
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaError {
    /// The source holds its share, and none of its own entries can be evicted.
    Share,
    /// All is held, and no entry can be evicted.
    Full,
}

/// Returns the share of one source: three quarters of all. Below four it is all, so that one
/// caller of an idle runner can have a second session.
pub const fn source_share(of: usize) -> usize {
    of - of / 4
}

/// The holders of a limited resource.
#[derive(Debug)]
pub struct QuotaLedger<T> {
    policy: QuotaPolicy,
    /// All entries in order of arrival, including evicted ones.
    entries: BTreeMap<Ticket, QuotaEntry<T>>,
    holdings: HashMap<Holder, Holding>,
    /// Usage by all entries that are not evicted.
    total: Usage,
    next: Ticket,
}

#[derive(Debug)]
struct QuotaEntry<T> {
    holder: Holder,
    bytes: usize,
    admitted_at: Instant,
    /// `None` while the entry is protected, and once it is evicted.
    order: Option<EvictionOrder>,
    is_evicted: bool,
    item: T,
}

#[derive(Debug, Default)]
struct Holding {
    usage: Usage,
    /// Entries that may be evicted.
    evictable: BTreeSet<(EvictionOrder, Ticket)>,
}

impl<T> QuotaLedger<T> {
    pub fn new(policy: QuotaPolicy) -> Self {
        QuotaLedger {
            policy,
            entries: BTreeMap::new(),
            holdings: HashMap::new(),
            total: Usage::default(),
            next: 0,
        }
    }

    /// Returns which entry has to be evicted for a new one, if any. Sizes may ask for several: it
    /// is called again after each. With a `scope`, a narrower quota is full: one of its entries has
    /// to be evicted.
    ///
    /// # Errors
    /// Returns a [`QuotaError`] if no room can be made.
    pub fn plan(
        &self,
        request: QuotaRequest,
        scope: Option<Scope<'_, T>>,
        now: Instant,
    ) -> Result<Option<Ticket>, QuotaError> {
        let held = self.usage(request.holder);
        if matches!(request.holder, Holder::Source(_)) && !held.has_room_for(request.bytes, self.policy.share) {
            let own = self.first(request.holder, scope);
            return match own.filter(|(_, ticket)| self.is_aged(*ticket, self.policy.own_grace, now)) {
                Some((_, ticket)) if self.may_evict(true) => Ok(Some(ticket)),
                _ => Err(QuotaError::Share),
            };
        }
        if scope.is_none() && self.total.has_room_for(request.bytes, self.policy.max) {
            return Ok(None);
        }
        self.victim(request, scope, now).map(Some).ok_or(QuotaError::Full)
    }

    /// Returns the entry to evict where there is no room for all.
    fn victim(&self, request: QuotaRequest, scope: Option<Scope<'_, T>>, now: Instant) -> Option<Ticket> {
        let by_entries = scope.is_some() || self.total.entries >= self.policy.max.entries;
        let weight = |holder| match (holder, by_entries) {
            (Holder::Proxy, _) if !self.policy.proxies_weigh => 0,
            (holder, true) => self.usage(holder).entries,
            (holder, false) => self.usage(holder).bytes,
        };
        let anonymous = self.holdings.keys().filter(|holder| **holder != Holder::Authorised);
        let candidates = anonymous.filter_map(|holder| Some((weight(*holder), self.first(*holder, scope)?, *holder)));
        // Of equal holders, that with the first entry in the order of eviction.
        let heaviest = candidates.max_by_key(|(weight, first, _)| (*weight, Reverse(*first)));
        let Some((most, (_, ticket), holder)) = heaviest else {
            let of_authorised = (request.holder == Holder::Authorised).then(|| self.first(request.holder, scope))?;
            let (_, ticket) = of_authorised?;
            return (self.may_evict(false) && self.yields_to_equal(ticket, true, now)).then_some(ticket);
        };
        let own = weight(request.holder);
        let added = if by_entries { 1 } else { request.bytes };
        let yields = request.holder == Holder::Authorised
            || most > own + added
            || self.yields_to_equal(ticket, most >= own, now);
        (yields && self.may_evict(holder == request.holder)).then_some(ticket)
    }

    fn yields_to_equal(&self, ticket: Ticket, is_as_heavy: bool, now: Instant) -> bool {
        match self.policy.equal_holders {
            EqualHolders::AfterGrace(grace) => self.is_aged(ticket, grace, now),
            EqualHolders::UnlessLighter => is_as_heavy,
        }
    }

    /// Returns the first entry of a holder in the order of eviction.
    fn first(&self, holder: Holder, scope: Option<Scope<'_, T>>) -> Option<(EvictionOrder, Ticket)> {
        let mut evictable = self.holdings.get(&holder)?.evictable.iter();
        let is_in = |ticket: &Ticket| match scope {
            Some(is_in) => self.entries.get(ticket).is_some_and(|entry| is_in(&entry.item)),
            None => true,
        };
        evictable.find(|(_, ticket)| is_in(ticket)).copied()
    }

    fn is_aged(&self, ticket: Ticket, grace: Duration, now: Instant) -> bool {
        let entry = self.entries.get(&ticket);
        entry.is_some_and(|entry| now >= entry.admitted_at + grace)
    }

    /// Returns whether one more entry may be evicted. A source that evicts its own leaves a part
    /// of the evictions in progress to others.
    pub fn may_evict(&self, is_own: bool) -> bool {
        let max = self.policy.evicted_max;
        let max = if is_own { source_share(max) } else { max };
        self.entries.len() - self.total.entries < max
    }

    /// Returns whether there is room for one more entry.
    pub fn has_room(&self) -> bool {
        self.total.has_room_for(0, self.policy.max)
    }

    /// Returns whether a holder has room for one more entry in its share.
    pub fn has_share(&self, holder: Holder) -> bool {
        !matches!(holder, Holder::Source(_)) || self.usage(holder).has_room_for(0, self.policy.share)
    }

    /// Returns whether a source holds entries, and no other source holds more.
    pub fn is_heaviest(&self, holder: Holder) -> bool {
        let own = match holder {
            Holder::Source(_) => self.usage(holder).entries,
            Holder::Proxy | Holder::Authorised => 0,
        };
        let is_lighter = |(holder, holding): (&Holder, &Holding)| match holder {
            Holder::Source(_) => holding.usage.entries <= own,
            _ => true,
        };
        own > 0 && self.holdings.iter().all(is_lighter)
    }

    /// Returns whether any entry may be evicted.
    pub fn has_evictable(&self) -> bool {
        self.holdings.values().any(|holding| !holding.evictable.is_empty())
    }

    /// Returns the number of entries for which `is_in` is true.
    pub fn count(&self, is_in: impl Fn(&T) -> bool) -> usize {
        self.entries.values().filter(|entry| is_in(&entry.item)).count()
    }

    /// Returns the oldest entry that may be evicted of those for which `is_in` is true.
    pub fn oldest_evictable(&self, is_in: impl Fn(&T) -> bool) -> Option<Ticket> {
        let mut entries = self.entries.iter();
        let oldest = entries.find(|(_, entry)| entry.order.is_some() && is_in(&entry.item));
        oldest.map(|(ticket, _)| *ticket)
    }

    /// Adds a protected entry that [`QuotaLedger::plan`] admitted.
    pub fn admit(&mut self, request: QuotaRequest, item: T, now: Instant) -> Ticket {
        let QuotaRequest { holder, bytes } = request;
        let ticket = self.next;
        self.next += 1;
        let entry = QuotaEntry {
            holder,
            bytes,
            admitted_at: now,
            order: None,
            is_evicted: false,
            item,
        };
        self.entries.insert(ticket, entry);
        self.total.entries += 1;
        self.total.bytes += bytes;
        let holding = self.holdings.entry(holder).or_default();
        holding.usage.entries += 1;
        holding.usage.bytes += bytes;
        ticket
    }

    /// Sets where an entry stands in the order of eviction; `None` protects it. Returns whether it
    /// was evictable before.
    pub fn set_order(&mut self, ticket: Ticket, order: Option<EvictionOrder>) -> bool {
        let Some(entry) = self.entries.get_mut(&ticket).filter(|entry| !entry.is_evicted) else {
            return false;
        };
        let before = std::mem::replace(&mut entry.order, order);
        if before != order
            && let Some(holding) = self.holdings.get_mut(&entry.holder)
        {
            if let Some(before) = before {
                holding.evictable.remove(&(before, ticket));
            }
            if let Some(order) = order {
                holding.evictable.insert((order, ticket));
            }
        }
        before.is_some()
    }

    /// Frees what an entry holds, and returns its item. The entry remains until
    /// [`QuotaLedger::remove`].
    pub fn evict(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.set_order(ticket, None);
        let entry = self.entries.get_mut(&ticket).filter(|entry| !entry.is_evicted)?;
        entry.is_evicted = true;
        let (holder, bytes) = (entry.holder, entry.bytes);
        self.release(holder, bytes);
        self.get_mut(ticket)
    }

    /// Removes an entry, and returns its item.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        self.set_order(ticket, None);
        let entry = self.entries.remove(&ticket)?;
        if !entry.is_evicted {
            self.release(entry.holder, entry.bytes);
        }
        Some(entry.item)
    }

    fn release(&mut self, holder: Holder, bytes: usize) {
        self.total.entries -= 1;
        self.total.bytes -= bytes;
        if let Some(holding) = self.holdings.get_mut(&holder) {
            holding.usage.entries -= 1;
            holding.usage.bytes -= bytes;
            if holding.usage.entries == 0 {
                self.holdings.remove(&holder);
            }
        }
    }

    /// Returns the item of an entry that is not evicted.
    pub fn held(&self, ticket: Ticket) -> Option<&T> {
        let entry = self.entries.get(&ticket).filter(|entry| !entry.is_evicted)?;
        Some(&entry.item)
    }

    pub fn get(&self, ticket: Ticket) -> Option<&T> {
        self.entries.get(&ticket).map(|entry| &entry.item)
    }

    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.entries.get_mut(&ticket).map(|entry| &mut entry.item)
    }

    /// Returns what a holder holds.
    pub fn usage(&self, holder: Holder) -> Usage {
        self.holdings
            .get(&holder)
            .map_or(Usage::default(), |holding| holding.usage)
    }

    /// Returns what all hold.
    pub fn total(&self) -> Usage {
        self.total
    }

    /// Returns the number of entries, including evicted ones.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether nothing is left, not even in an index.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.holdings.is_empty() && self.total == Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const GRACE: Duration = Duration::from_secs(5);
    const TICK: Duration = Duration::from_millis(1);
    const POLICY: QuotaPolicy = QuotaPolicy {
        max: Usage { entries: 4, bytes: 100 },
        share: Usage { entries: 3, bytes: 60 },
        evicted_max: usize::MAX,
        own_grace: Duration::ZERO,
        equal_holders: EqualHolders::AfterGrace(GRACE),
        proxies_weigh: true,
    };
    const A: Holder = source(1);
    const B: Holder = source(2);

    const fn source(host: u8) -> Holder {
        Holder::Source(SourceKey::V4(Ipv4Addr::new(192, 0, 2, host)))
    }

    /// A ledger of the names of its entries.
    struct Rig(QuotaLedger<&'static str>, Instant);

    impl Rig {
        fn new(policy: QuotaPolicy) -> Self {
            Rig(QuotaLedger::new(policy), Instant::now())
        }

        /// Admits an evictable entry without an eviction.
        fn fill(&mut self, holder: Holder, bytes: usize, name: &'static str) -> Ticket {
            let request = QuotaRequest { holder, bytes };
            assert_eq!(self.0.plan(request, None, self.1), Ok(None));
            let ticket = self.0.admit(request, name, self.1);
            assert!(!self.0.set_order(ticket, Some((0, ticket))));
            ticket
        }

        /// Returns the entry that would be evicted.
        fn victim(&self, holder: Holder, bytes: usize, after: Duration) -> Result<&'static str, QuotaError> {
            let plan = self.0.plan(QuotaRequest { holder, bytes }, None, self.1 + after)?;
            let victim = plan.and_then(|ticket| self.0.get(ticket));
            Ok(victim.copied().unwrap_or("none"))
        }
    }

    /// A source at its share evicts its own entries, by number and by size, at once or after a
    /// time; protected ones stay.
    #[test]
    fn a_source_at_its_share_evicts_its_own() {
        let mut rig = Rig::new(POLICY);
        let first = rig.fill(A, 20, "first");
        rig.fill(A, 20, "second");
        assert_eq!(rig.victim(A, 20, Duration::ZERO), Ok("none"));
        assert_eq!(rig.victim(A, 21, Duration::ZERO), Ok("first"));
        assert_eq!(rig.victim(B, 60, Duration::ZERO), Ok("none"));
        rig.fill(A, 0, "third");
        assert!(rig.0.set_order(first, None));
        assert_eq!(rig.victim(A, 0, Duration::ZERO), Ok("second"));
        assert!(!rig.0.has_share(A) && rig.0.has_share(B) && rig.0.has_share(Holder::Proxy));
        let mut late = Rig::new(QuotaPolicy {
            own_grace: GRACE,
            ..POLICY
        });
        late.fill(A, 60, "only");
        assert_eq!(late.victim(A, 1, GRACE - TICK), Err(QuotaError::Share));
        assert_eq!(late.victim(A, 1, GRACE), Ok("only"));
    }

    /// The holder with most bytes loses an entry where bytes are short, and that with most entries
    /// where entries are.
    #[test]
    fn what_is_short_decides_who_is_heaviest() {
        let mut rig = Rig::new(POLICY);
        rig.fill(A, 50, "large");
        rig.fill(B, 1, "small");
        rig.fill(B, 1, "smaller");
        assert_eq!(rig.victim(source(3), 48, Duration::ZERO), Ok("none"));
        assert_eq!(rig.victim(source(3), 49, Duration::ZERO), Ok("large"));
        assert_eq!(
            rig.victim(source(3), 50, Duration::ZERO),
            Err(QuotaError::Full),
            "equal"
        );
        assert_eq!(rig.victim(source(3), 50, GRACE), Ok("large"));
        rig.fill(B, 1, "smallest");
        assert_eq!(rig.victim(source(3), 49, Duration::ZERO), Ok("small"));
        assert_eq!(rig.victim(A, 1, Duration::ZERO), Ok("small"));
    }

    /// Of equal holders the one with the first entry in order loses it; a lighter one is spared or
    /// loses it after a time.
    #[test]
    fn a_lighter_holder_is_spared() {
        let spares = QuotaPolicy {
            max: Usage::entries(3),
            share: Usage::entries(3),
            equal_holders: EqualHolders::UnlessLighter,
            ..POLICY
        };
        for (policy, after, expected) in [
            (spares, 2 * GRACE, Err(QuotaError::Full)),
            (
                QuotaPolicy {
                    equal_holders: EqualHolders::AfterGrace(GRACE),
                    ..spares
                },
                GRACE,
                Ok("light"),
            ),
        ] {
            let mut rig = Rig::new(policy);
            let heavy = [rig.fill(A, 0, "heavy"), rig.fill(A, 0, "heavier")];
            let light = rig.fill(B, 0, "light");
            assert_eq!(rig.victim(source(3), 0, Duration::ZERO), Ok("heavy"));
            rig.0.set_order(heavy[0], None);
            rig.0.set_order(heavy[1], None);
            assert_eq!(rig.victim(A, 0, after), expected);
            assert!(rig.0.is_heaviest(A) && !rig.0.is_heaviest(B) && !rig.0.is_heaviest(source(3)));
            assert!(rig.0.has_evictable() && rig.0.set_order(light, None) && !rig.0.has_evictable());
        }
    }

    /// What comes through a proxy has no share. It counts among the heaviest only if the policy
    /// says so.
    #[test]
    fn a_proxy_has_no_share() {
        for (proxies_weigh, expected) in [(true, "client"), (false, "direct")] {
            let mut rig = Rig::new(QuotaPolicy {
                proxies_weigh,
                ..POLICY
            });
            rig.fill(B, 0, "direct");
            for _ in 0..3 {
                rig.fill(Holder::Proxy, 30, "client");
            }
            assert_eq!(rig.victim(source(3), 0, GRACE), Ok(expected));
            assert!(!rig.0.is_heaviest(Holder::Proxy));
        }
    }

    /// An evicted entry holds nothing, and counts as one in progress until it is removed.
    #[test]
    fn an_evicted_entry_holds_nothing() {
        let mut rig = Rig::new(QuotaPolicy {
            evicted_max: 4,
            ..POLICY
        });
        let tickets = [
            rig.fill(A, 10, "a"),
            rig.fill(A, 10, "b"),
            rig.fill(Holder::Authorised, 10, "c"),
        ];
        assert_eq!(rig.0.evict(tickets[0]).copied(), Some("a"));
        assert_eq!(rig.0.evict(tickets[0]), None);
        assert!(!rig.0.set_order(tickets[0], Some((0, 0))));
        assert_eq!((rig.0.held(tickets[0]), rig.0.held(tickets[1])), (None, Some(&"b")));
        assert_eq!(rig.0.usage(A), Usage { entries: 1, bytes: 10 });
        assert_eq!((rig.0.total(), rig.0.len()), (Usage { entries: 2, bytes: 20 }, 3));
        rig.0.evict(tickets[1]);
        rig.0.evict(tickets[2]);
        assert!(!rig.0.may_evict(true) && rig.0.may_evict(false));
        for ticket in tickets {
            assert!(!rig.0.is_empty() && rig.0.remove(ticket).is_some() && rig.0.remove(ticket).is_none());
        }
        assert!(rig.0.is_empty());
    }
}
