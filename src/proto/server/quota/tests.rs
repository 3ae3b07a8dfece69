//! Shares of a quota, and who is evicted for a newcomer.

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
