//! Admits ICE-TCP connections within quotas.
//!
//! In: the session named by a connection's first check, and the source address. Out: whether the
//! connection is admitted, and which one is evicted for it. A name proves nothing: a connection is
//! validated once its session answered a check on it, which requires the password; then it is never
//! evicted. The quotas of [`quota`](crate::server::quota) apply, without a grace period, and each
//! session has one of its own. Loopback has no share, since it may be a tunnel or proxy. Dropping
//! `T` closes a connection. Sources: RFC 6544, RFC 8445 section 7.3.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::limits::{ICE_TCP_CONNECTIONS_MAX, ICE_TCP_PER_SESSION_MAX, ICE_TCP_PER_SOURCE_MAX};
use crate::server::quota::{EqualHolders, Holder, QuotaLedger, QuotaPolicy, QuotaRequest, Ticket, Usage};

const QUOTAS: QuotaPolicy = QuotaPolicy {
    max: Usage::entries(ICE_TCP_CONNECTIONS_MAX),
    share: Usage::entries(ICE_TCP_PER_SOURCE_MAX),
    evicted_max: usize::MAX,
    own_grace: Duration::ZERO,
    equal_holders: EqualHolders::AfterGrace(Duration::ZERO),
    proxies_weigh: true,
};

struct TcpConnection<T> {
    session: u64,
    handle: T,
}

/// The open connections.
pub struct TcpConnections<T> {
    quotas: QuotaLedger<TcpConnection<T>>,
}

/// An admitted connection.
#[derive(Debug, PartialEq, Eq)]
pub struct TcpAdmission<T> {
    pub id: Ticket,
    pub evicted: Option<T>,
}

impl<T> Default for TcpConnections<T> {
    fn default() -> Self {
        TcpConnections {
            quotas: QuotaLedger::new(QUOTAS),
        }
    }
}

impl<T> TcpConnections<T> {
    /// Admits a connection; `None` if none can be evicted for it.
    pub fn admit(&mut self, session: u64, address: IpAddr, handle: T, now: Instant) -> Option<TcpAdmission<T>> {
        let holder = match address.to_canonical().is_loopback() {
            true => Holder::Proxy,
            false => Holder::Source(address.into()),
        };
        let request = QuotaRequest::entry(holder);
        let of_session = |open: &TcpConnection<T>| open.session == session;
        let victim = if self.quotas.count(of_session) >= ICE_TCP_PER_SESSION_MAX {
            Some(self.quotas.oldest_evictable(of_session)?)
        } else {
            self.quotas.plan(request, None, now).ok()?
        };
        let evicted = victim.and_then(|victim| self.quotas.remove(victim));
        let id = self.quotas.admit(request, TcpConnection { session, handle }, now);
        self.quotas.set_order(id, Some((0, id)));
        Some(TcpAdmission {
            id,
            evicted: evicted.map(|open| open.handle),
        })
    }

    /// Marks a connection as validated.
    pub fn mark_validated(&mut self, id: Ticket) {
        self.quotas.set_order(id, None);
    }

    /// Removes a closed connection.
    pub fn remove(&mut self, id: Ticket) {
        self.quotas.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from([198, 51, (number >> 8) as u8, number as u8])
    }

    fn admit(connections: &mut TcpConnections<u64>, session: u64, address: IpAddr) -> Option<TcpAdmission<u64>> {
        // The handle is the id of the connection until the first is removed.
        let handle = connections.quotas.len() as u64;
        connections.admit(session, address, handle, Instant::now())
    }

    /// Admits a connection without an eviction.
    fn free(connections: &mut TcpConnections<u64>, session: u64, address: IpAddr) -> u64 {
        let admitted = admit(connections, session, address).expect("a place");
        assert_eq!(admitted.evicted, None);
        admitted.id
    }

    /// Beyond the quota a session's oldest unvalidated connection is evicted; with validated ones
    /// alone, the new one is rejected.
    #[test]
    fn a_session_has_a_quota() {
        let mut connections = TcpConnections::default();
        let ids: Vec<u64> = (0..ICE_TCP_PER_SESSION_MAX)
            .map(|number| free(&mut connections, 1, address(number)))
            .collect();
        connections.mark_validated(ids[0]);
        let newcomer = admit(&mut connections, 1, address(9)).expect("a place");
        assert_eq!(newcomer.evicted, Some(ids[1]), "the oldest without proof");
        free(&mut connections, 2, address(9));
        for open in 0..=newcomer.id {
            connections.mark_validated(open);
        }
        assert_eq!(admit(&mut connections, 1, address(9)), None);
        connections.remove(ids[0]);
        assert!(admit(&mut connections, 1, address(9)).is_some_and(|admitted| admitted.evicted.is_none()));
    }

    /// The same per source address, whatever sessions it names; an IPv6 network counts as one.
    #[test]
    fn a_source_address_has_a_quota() {
        let mut connections = TcpConnections::default();
        let hosts: Vec<IpAddr> = (0..=ICE_TCP_PER_SOURCE_MAX)
            .map(|host| format!("2001:db8::{host:x}").parse().expect("an address"))
            .collect();
        for (session, host) in hosts[1..].iter().enumerate() {
            free(&mut connections, session as u64, *host);
        }
        let newcomer = admit(&mut connections, 99, hosts[0]).expect("a place");
        assert_eq!(newcomer.evicted, Some(0));
        for id in 0..=newcomer.id {
            connections.mark_validated(id);
        }
        assert_eq!(admit(&mut connections, 98, hosts[0]), None);
        free(&mut connections, 97, address(1));
    }

    /// A tunnel's callers all come from loopback.
    #[test]
    fn loopback_has_no_quota() {
        let mut connections = TcpConnections::default();
        let loopback = "::ffff:127.0.0.1".parse().expect("an address");
        for session in 0..ICE_TCP_CONNECTIONS_MAX {
            free(&mut connections, session as u64, loopback);
        }
        assert!(admit(&mut connections, 999, loopback).is_some_and(|admitted| admitted.evicted == Some(0)));
    }

    /// With all places taken, the oldest unvalidated connection of the source with the most is
    /// evicted; a source with only validated ones is skipped.
    #[test]
    fn the_source_with_the_most_connections_is_evicted() {
        let mut connections = TcpConnections::default();
        for number in 0..ICE_TCP_PER_SOURCE_MAX {
            let id = free(&mut connections, 1_000 + number as u64, address(1));
            connections.mark_validated(id);
        }
        let single = free(&mut connections, 2_000, address(2));
        let first_of_heavy = single + 1;
        let mut number = 0;
        while connections.quotas.len() < ICE_TCP_CONNECTIONS_MAX {
            // Three sources fill the rest, the first with the most.
            let at = if number < ICE_TCP_PER_SOURCE_MAX { 3 } else { 4 + number };
            free(&mut connections, 3_000 + number as u64, address(at));
            number += 1;
        }
        let newcomer = admit(&mut connections, 5_000, address(500)).expect("a place");
        assert_eq!(newcomer.evicted, Some(first_of_heavy));
        assert_eq!(connections.quotas.len(), ICE_TCP_CONNECTIONS_MAX);
        for id in 0..=newcomer.id {
            connections.mark_validated(id);
        }
        assert_eq!(admit(&mut connections, 5_001, address(501)), None);
    }
}
