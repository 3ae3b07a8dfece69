//! Admission control: permits by the quotas of [`quota`](super::quota), and a limit of pending
//! offers.
//!
//! In: requesters, what they ask for, and `now`. Out: a ticket, and, where permits are short, the
//! one pending entry to evict. An entry is pending until its session has proof of a peer: a WebRTC
//! session until it connects, a plain client until its first frame, a media room until a
//! participant joins, a socket on `/ws` until its provider is recognised. Only pending entries are
//! evicted, the oldest first, and at a source's share or for a source of equal usage only after a
//! grace period.
//!
//! The permit of a session that is not pending is reassigned only when its caller is known to be
//! gone ([`PermitLedger::may_replace`]). Everything else is rejected with [`AdmissionError`].

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::server::quota::{EqualHolders, Holder, QuotaError, QuotaLedger, QuotaPolicy, QuotaRequest, Scope, Usage};
pub use crate::server::quota::{Ticket, source_share};
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

impl Requester {
    /// Returns for whom the entries of the requester count.
    pub fn holder(&self) -> Holder {
        match self.is_authorised {
            true => Holder::Authorised,
            false => Holder::Source(self.source),
        }
    }
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

/// The holders of permits.
#[derive(Debug)]
pub struct PermitLedger<T> {
    quotas: QuotaLedger<LedgerEntry<T>>,
    offers_max: usize,
    pending_offers: usize,
}

#[derive(Debug)]
struct LedgerEntry<T> {
    requester: Requester,
    is_pending_offer: bool,
    item: T,
}

impl<T> PermitLedger<T> {
    pub fn new(limits: AdmissionLimits) -> Self {
        PermitLedger {
            quotas: QuotaLedger::new(QuotaPolicy {
                max: Usage::entries(limits.permits_max),
                share: Usage::entries(limits.share_max),
                evicted_max: limits.evicted_max,
                own_grace: limits.grace,
                equal_holders: EqualHolders::AfterGrace(limits.grace),
                proxies_weigh: true,
            }),
            offers_max: limits.offers_max,
            pending_offers: 0,
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
        let is_pending_offer = |entry: &LedgerEntry<T>| entry.is_pending_offer;
        let offers_alone = kind == PendingKind::Offer && self.pending_offers >= self.offers_max;
        let scope: Option<Scope<'_, LedgerEntry<T>>> = if offers_alone { Some(&is_pending_offer) } else { None };
        let plan = self.quotas.plan(QuotaRequest::entry(requester.holder()), scope, now);
        plan.map_err(|error| match error {
            QuotaError::Share if self.quotas.has_room() => AdmissionError::SourceShare,
            QuotaError::Share | QuotaError::Full => AdmissionError::Full,
        })
    }

    /// Returns whether the permit of an entry, pending or not, may go to this requester. Shares,
    /// the precedence of authorised entries and the limit of offers apply.
    pub fn may_replace(&self, ticket: Ticket, requester: Requester, kind: PendingKind) -> bool {
        let Some(entry) = self.quotas.held(ticket) else {
            return false;
        };
        let offers_after =
            self.pending_offers - usize::from(entry.is_pending_offer) + usize::from(kind == PendingKind::Offer);
        let LedgerEntry { requester: holder, .. } = entry;
        let is_own = holder.source == requester.source && holder.is_authorised == requester.is_authorised;
        offers_after <= self.offers_max
            && (is_own || self.quotas.has_share(requester.holder()))
            && (!holder.is_authorised || requester.is_authorised)
            && self.quotas.may_evict(is_own)
    }

    /// Frees the permit of an entry that [`PermitLedger::plan`] returned or
    /// [`PermitLedger::may_replace`] allows, and returns its item. The entry remains until
    /// [`PermitLedger::remove`].
    pub fn evict(&mut self, ticket: Ticket) -> Option<&mut T> {
        self.mark_connected(ticket);
        self.quotas.evict(ticket).map(|entry| &mut entry.item)
    }

    /// Adds an entry that [`PermitLedger::plan`] admitted.
    pub fn admit(&mut self, requester: Requester, kind: PendingKind, item: T, now: Instant) -> Ticket {
        let is_pending_offer = kind == PendingKind::Offer;
        let entry = LedgerEntry {
            requester,
            is_pending_offer,
            item,
        };
        let ticket = self.quotas.admit(QuotaRequest::entry(requester.holder()), entry, now);
        if kind != PendingKind::Caller {
            self.quotas.set_order(ticket, Some((0, ticket)));
        }
        self.pending_offers += usize::from(is_pending_offer);
        ticket
    }

    /// Marks an entry as connected or ending, so that it is not evicted. Returns whether it was
    /// pending.
    pub fn mark_connected(&mut self, ticket: Ticket) -> bool {
        if let Some(entry) = self.quotas.get_mut(ticket)
            && std::mem::take(&mut entry.is_pending_offer)
        {
            self.pending_offers -= 1;
        }
        self.quotas.set_order(ticket, None)
    }

    /// Removes an entry, and returns its item.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        self.mark_connected(ticket);
        self.quotas.remove(ticket).map(|entry| entry.item)
    }
}

#[cfg(test)]
mod tests;
