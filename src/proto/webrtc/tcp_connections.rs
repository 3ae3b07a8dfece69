//! Admits ICE-TCP connections within quotas.
//!
//! In: the session named by a connection's first check, and the source address. Out: whether the
//! connection is admitted, and which one is evicted for it. A name proves nothing: a connection is
//! validated once its session answered a check on it, which requires the password. Quotas apply per
//! session and per source address; at a quota the oldest unvalidated connection under it is
//! evicted, and at the total cap the oldest unvalidated one of the source with the most
//! connections. Validated connections are never evicted. Loopback has no quota, since it may be a
//! tunnel or proxy. Dropping `T` closes a connection. Sources: RFC 6544, RFC 8445 section 7.3.

use std::net::IpAddr;

use crate::limits::{ICE_TCP_CONNECTIONS_MAX, ICE_TCP_PER_SESSION_MAX, ICE_TCP_PER_SOURCE_MAX};
use crate::server::source::SourceKey;

struct TcpConnection<T> {
    id: u64,
    session: u64,
    /// `None` for loopback.
    source: Option<SourceKey>,
    is_validated: bool,
    handle: T,
}

/// The open connections, oldest first.
pub struct TcpConnections<T> {
    connections: Vec<TcpConnection<T>>,
    last_id: u64,
}

/// An admitted connection.
#[derive(Debug, PartialEq, Eq)]
pub struct TcpAdmission<T> {
    pub id: u64,
    pub evicted: Option<T>,
}

impl<T> Default for TcpConnections<T> {
    fn default() -> Self {
        TcpConnections {
            connections: Vec::new(),
            last_id: 0,
        }
    }
}

impl<T> TcpConnections<T> {
    /// Admits a connection; `None` if none can be evicted for it.
    pub fn admit(&mut self, session: u64, address: IpAddr, handle: T) -> Option<TcpAdmission<T>> {
        let address = address.to_canonical();
        let source = (!address.is_loopback()).then(|| SourceKey::from(address));
        let of_session = |open: &TcpConnection<T>| open.session == session;
        let of_source = |open: &TcpConnection<T>| source.is_some() && open.source == source;
        let evicted = if self.count(of_session) >= ICE_TCP_PER_SESSION_MAX {
            Some(self.oldest_unvalidated(of_session)?)
        } else if self.count(of_source) >= ICE_TCP_PER_SOURCE_MAX {
            Some(self.oldest_unvalidated(of_source)?)
        } else if self.connections.len() >= ICE_TCP_CONNECTIONS_MAX {
            let unproven = self.connections.iter().filter(|open| !open.is_validated);
            let heaviest = unproven.map(|open| open.source).max_by_key(|source| {
                let same = |open: &TcpConnection<T>| open.source == *source;
                self.count(same)
            })?;
            Some(self.oldest_unvalidated(|open| open.source == heaviest)?)
        } else {
            None
        };
        let evicted = evicted.map(|at| self.connections.remove(at).handle);
        self.last_id += 1;
        self.connections.push(TcpConnection {
            id: self.last_id,
            session,
            source,
            is_validated: false,
            handle,
        });
        Some(TcpAdmission {
            id: self.last_id,
            evicted,
        })
    }

    /// Marks a connection as validated.
    pub fn mark_validated(&mut self, id: u64) {
        if let Some(open) = self.connections.iter_mut().find(|open| open.id == id) {
            open.is_validated = true;
        }
    }

    /// Removes a closed connection.
    pub fn remove(&mut self, id: u64) {
        self.connections.retain(|open| open.id != id);
    }

    fn count(&self, which: impl Fn(&TcpConnection<T>) -> bool) -> usize {
        self.connections.iter().filter(|open| which(open)).count()
    }

    fn oldest_unvalidated(&self, which: impl Fn(&TcpConnection<T>) -> bool) -> Option<usize> {
        self.connections
            .iter()
            .position(|open| !open.is_validated && which(open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from([198, 51, (number >> 8) as u8, number as u8])
    }

    /// Admits a connection without an eviction.
    fn free(connections: &mut TcpConnections<u64>, session: u64, address: IpAddr) -> u64 {
        let handle = connections.last_id + 1;
        let admitted = connections.admit(session, address, handle).expect("a place");
        assert_eq!(
            admitted,
            TcpAdmission {
                id: handle,
                evicted: None
            }
        );
        handle
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
        let newcomer = connections.admit(1, address(9), 100).expect("a place");
        assert_eq!(newcomer.evicted, Some(ids[1]), "the oldest without proof");
        free(&mut connections, 2, address(9));
        for open in 1..=newcomer.id {
            connections.mark_validated(open);
        }
        assert_eq!(connections.admit(1, address(9), 101), None);
        connections.remove(ids[0]);
        assert!(
            connections
                .admit(1, address(9), 102)
                .is_some_and(|admitted| admitted.evicted.is_none())
        );
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
        let newcomer = connections.admit(99, hosts[0], 100).expect("a place");
        assert_eq!(newcomer.evicted, Some(1));
        for id in 1..=newcomer.id {
            connections.mark_validated(id);
        }
        assert_eq!(connections.admit(98, hosts[0], 101), None);
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
        assert!(
            connections
                .admit(999, loopback, 999)
                .is_some_and(|admitted| admitted.evicted == Some(1))
        );
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
        while connections.connections.len() < ICE_TCP_CONNECTIONS_MAX {
            // Three sources fill the rest, the first with the most.
            let at = if number < ICE_TCP_PER_SOURCE_MAX { 3 } else { 4 + number };
            free(&mut connections, 3_000 + number as u64, address(at));
            number += 1;
        }
        let newcomer = connections.admit(5_000, address(500), 9_999).expect("a place");
        assert_eq!(newcomer.evicted, Some(first_of_heavy));
        assert_eq!(connections.connections.len(), ICE_TCP_CONNECTIONS_MAX);
        for id in 0..=newcomer.id {
            connections.mark_validated(id);
        }
        assert_eq!(connections.admit(5_001, address(501), 0), None);
    }
}
