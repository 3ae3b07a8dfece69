//! Tests of sessions that `/start` created.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::limits::SEALED_BODY_BYTES_MAX;
use crate::secret::Secret;
use crate::server::source::SourceKey;

const CALLER: Requester = Requester {
    source: SourceKey::V4(Ipv4Addr::new(192, 0, 2, 1)),
    is_authorised: false,
    local_address: None,
};

fn replica(key: &str) -> StartedSessions {
    StartedSessions::new(Some(&ClusterKey::new(Secret::new(key))))
}

fn start() -> RequestTime {
    RequestTime {
        now: std::time::Instant::now(),
        unix_s: 1_795_252_753,
    }
}

fn later(at: RequestTime, seconds: u64) -> RequestTime {
    at + Duration::from_secs(seconds)
}

fn made(table: &mut StartedSessions, nth: u8, at: RequestTime) -> Arc<str> {
    table
        .create([nth; 16], (None, &json!({"nth": nth})), CALLER, at)
        .expect("it fits")
}

fn claim(table: &mut StartedSessions, id: &str, at: RequestTime) -> Result<SessionClaim, UnknownSession> {
    table.claim(id, "fresh".into(), IdUse::Connect, CALLER, at)
}

/// D-23: an id made by one replica is good at another, with its body, and at its maker.
#[test]
fn an_id_is_good_at_every_replica() {
    let at = start();
    let (mut a, mut b) = (replica("key"), replica("key"));
    let id = made(&mut a, 1, at);
    assert!(a.is_empty(), "the id is all there is");
    for table in [&mut b, &mut a] {
        assert!(table.contains(&id, at) && table.is_unused(&id, at));
        let claimed = claim(table, &id, at).expect("good");
        assert_eq!(
            (&*claimed.session_id, &claimed.body),
            ("01010101-0101-4101-8101-010101010101", &json!({"nth": 1}))
        );
        assert!(table.contains(&id, at) && !table.is_unused(&id, at));
    }
    let mut other = replica("another key");
    assert!(!other.contains(&id, at) && !other.is_unused(&id, at));
    assert_eq!(claim(&mut other, &id, at), Err(UnknownSession));
}

/// D-24: once its session has ended here, an id opens no other one here, and still one at
/// another replica.
#[test]
fn an_id_is_used_once_per_replica() {
    let at = start();
    let (mut a, mut b) = (replica("key"), replica("key"));
    let id = made(&mut a, 1, at);
    let first = claim(&mut a, &id, at).expect("good");
    let second = claim(&mut a, &id, at).expect("a second connection, while the first lives");
    assert_eq!(&*second.session_id, "fresh");
    a.release(&first, true, at);
    assert!(a.contains(&id, at));
    a.release(&second, true, at);
    assert!(a.is_empty() && !a.contains(&id, at));
    for seconds in [0, 100, 299, 300, 400] {
        assert_eq!(claim(&mut a, &id, later(at, seconds)), Err(UnknownSession), "{seconds}");
    }
    assert!(claim(&mut b, &id, later(at, 299)).is_ok());
}

/// A connection that failed leaves nothing here, and its client may try again.
#[test]
fn a_failed_connection_does_not_use_the_id() {
    let at = start();
    let mut a = replica("key");
    let id = made(&mut a, 1, at);
    let failed = claim(&mut a, &id, at).expect("good");
    a.release(&failed, false, at);
    assert!(a.is_empty() && a.is_unused(&id, at));
    let (used, failed) = (
        claim(&mut a, &id, at).expect("good"),
        claim(&mut a, &id, at).expect("good"),
    );
    a.release(&used, true, at);
    a.release(&failed, false, at);
    assert_eq!(claim(&mut a, &id, at), Err(UnknownSession), "one of the two was used");
}

/// An id expires by the clock of the replica that it reaches. A session that lives outlasts it.
#[test]
fn an_unused_id_expires() {
    let at = start();
    let (mut a, mut b) = (replica("key"), replica("key"));
    let (one, two) = (made(&mut a, 1, at), made(&mut a, 2, at));
    let lives = claim(&mut b, &two, at).expect("good");
    assert!(b.contains(&one, later(at, 299)));
    assert!(!b.contains(&one, later(at, 300)));
    assert_eq!(claim(&mut b, &one, later(at, 300)), Err(UnknownSession));
    assert!(b.contains(&two, later(at, 3_000)));
    assert!(claim(&mut b, &two, later(at, 3_000)).is_ok());
    b.release(&lives, true, later(at, 3_000));
    // The clock of this replica is an hour behind, or that of the maker is ahead.
    let behind = RequestTime {
        unix_s: at.unix_s - 3_600,
        ..at
    };
    assert_eq!(claim(&mut replica("key"), &one, behind), Err(UnknownSession));
    let a_little = RequestTime {
        unix_s: at.unix_s - CLUSTER_CLOCK_SKEW.as_secs(),
        ..at
    };
    assert!(claim(&mut replica("key"), &one, a_little).is_ok());
}

/// D-25: for an hour more, an id is good for the restart of a connection to another replica.
#[test]
fn a_restart_outlasts_the_id() {
    let at = start();
    let (mut a, mut b) = (replica("key"), replica("key"));
    let id = made(&mut a, 1, at);
    let restart = |table: &mut StartedSessions, seconds| {
        table.claim(&id, "fresh".into(), IdUse::Restart, CALLER, later(at, seconds))
    };
    assert!(b.may_restart(&id, later(at, 3_899)) && !b.contains(&id, later(at, 3_899)));
    assert!(claim(&mut b, &id, later(at, 3_899)).is_err());
    let claimed = restart(&mut b, 3_899).expect("within the hour");
    assert_eq!(claimed.body, json!({"nth": 1}));
    b.release(&claimed, true, later(at, 3_900));
    assert!(restart(&mut a, 3_900).is_err() && !a.may_restart(&id, later(at, 3_900)));
    // A session that ended here does not return.
    let mut c = replica("key");
    let claimed = restart(&mut c, 1_000).expect("within the hour");
    c.release(&claimed, true, later(at, 1_000));
    assert!(restart(&mut c, 1_001).is_err() && restart(&mut c, 3_899).is_err());
}

/// The holder of an id is as authorised as the request that made it.
#[test]
fn an_id_carries_its_authorisation() {
    let at = start();
    let (mut a, mut b) = (replica("key"), replica("key"));
    for (nth, is_authorised) in [(1, false), (2, true)] {
        let requester = Requester {
            is_authorised,
            ..CALLER
        };
        let id = a.create([nth; 16], (None, &json!({})), requester, at).expect("it fits");
        assert_eq!(claim(&mut b, &id, at).expect("good").is_authorised, is_authorised);
    }
}

/// A key for one session opens one, here.
#[test]
fn an_id_for_one_session_is_claimed_once() {
    let at = start();
    let (mut a, mut b) = (replica("key"), replica("key"));
    let id = made(&mut a, 1, at);
    let claimed = b.claim_once(&id, CALLER, at).expect("good");
    assert_eq!(&*claimed.session_id, "01010101-0101-4101-8101-010101010101");
    assert_eq!(b.claim_once(&id, CALLER, at), Err(UnknownSession));
    b.release(&claimed, false, at);
    let claimed = b.claim_once(&id, CALLER, at).expect("the connection had failed");
    b.release(&claimed, true, at);
    assert_eq!(b.claim_once(&id, CALLER, at), Err(UnknownSession));
}

/// The number of sessions here is that of their ids without a key, and of their claims with
/// one.
#[test]
fn counts_the_sessions_that_are_registered_here() {
    let at = start();
    for (mut table, is_shared) in [(StartedSessions::new(None), false), (replica("key"), true)] {
        assert_eq!((table.len(), table.is_empty()), (0, true));
        let ids = [made(&mut table, 1, at), made(&mut table, 2, at)];
        let unclaimed = if is_shared { 0 } else { 2 };
        assert_eq!((table.len(), table.is_empty()), (unclaimed, is_shared));
        let claims = ids.map(|id| claim(&mut table, &id, at).expect("good"));
        assert_eq!((table.len(), table.is_empty()), (2, false));
        table.release(&claims[0], true, at);
        assert_eq!((table.len(), table.is_empty()), (1, false));
    }
}

/// The text says what was too much.
#[test]
fn a_rejected_creation_says_why() {
    let full = CreateError::Full(RegistryFull::Capacity).to_string();
    assert!(full.contains("too many sessions"), "{full}");
    let too_long = CreateError::TooLong(BodyTooLong).to_string();
    assert!(too_long.contains("`body`"), "{too_long}");
}

/// A body that no id can carry is rejected where the session is created; a UUID alone, and an
/// id of a runner without a key, is nothing.
#[test]
fn other_ids_are_unknown() {
    let at = start();
    let mut a = replica("key");
    let long = json!("x".repeat(SEALED_BODY_BYTES_MAX));
    assert_eq!(
        a.create([1; 16], (None, &long), CALLER, at),
        Err(CreateError::TooLong(BodyTooLong))
    );
    let id = made(&mut a, 1, at);
    let _lives = claim(&mut a, &id, at).expect("good");
    let mut alone = StartedSessions::new(None);
    let local = made(&mut alone, 2, at);
    assert_eq!(&*local, "02020202-0202-4202-8202-020202020202");
    assert!(alone.contains(&local, at) && alone.len() == 1);
    for other in ["01010101-0101-4101-8101-010101010101", &local, ""] {
        assert!(!a.contains(other, at));
        assert_eq!(claim(&mut a, other, at), Err(UnknownSession));
    }
    assert!(!alone.contains(&id, at));
}
