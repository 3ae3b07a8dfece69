//! Tests of places and of the limits of callers.

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

fn permits(rig: &Rig) -> usize {
    rig.0.quotas.total().entries
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
    assert_eq!((permits(&rig), rig.0.quotas.len()), (8, 8));
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
        assert!(rig.0.pending_offers <= 16 && permits(&rig) <= 32);
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
        (
            permits(&rig),
            rig.0.quotas.usage(from(A).holder()).entries,
            rig.0.pending_offers
        ),
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
    assert_eq!((permits(&rig), rig.0.pending_offers), (8, 2));
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
    assert!(rig.0.quotas.is_empty() && rig.0.pending_offers == 0);
}
