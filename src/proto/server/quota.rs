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
mod tests;
