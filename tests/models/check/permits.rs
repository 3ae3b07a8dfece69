//! Connection permits: acquired, evicted and released by several connections at once.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use shuttle::future::block_on;
use shuttle::thread;

use crate::permits::{ConnPermit, ConnPhase, Permits};
use crate::proto::server::source::SourceKey;

fn source(host: u8) -> Option<SourceKey> {
    Some(IpAddr::from(Ipv4Addr::new(192, 0, 2, host)).into())
}

/// Polls an acquisition once, and cancels it if it waits.
fn try_acquire(permits: &Permits, source: Option<SourceKey>) -> Poll<Option<ConnPermit>> {
    pin!(permits.acquire(source)).poll(&mut Context::from_waker(Waker::noop()))
}

/// Serves one request, unless the connection was evicted before.
fn serve(permit: &ConnPermit, answering: &AtomicUsize, max: usize) {
    if permit.state.set(ConnPhase::Answer) {
        assert!(
            answering.fetch_add(1, Ordering::SeqCst) < max,
            "more are answered than permits"
        );
        thread::yield_now();
        assert_eq!(permit.state.phase(), ConnPhase::Answer, "evicted while it is answered");
        answering.fetch_sub(1, Ordering::SeqCst);
        permit.state.set(ConnPhase::Idle);
    }
}

/// All permits are free: that many can be held at once, and not one more.
fn assert_all_free(permits: &Permits, max: usize) {
    let held: Vec<ConnPermit> = (0..max)
        .map(|_| match try_acquire(permits, None) {
            Poll::Ready(Some(permit)) => permit,
            _ => panic!("a permit is lost"),
        })
        .collect();
    for permit in &held {
        assert!(
            permit.state.set(ConnPhase::Answer),
            "a permit was evicted, though one was free"
        );
    }
    assert!(try_acquire(permits, None).is_pending(), "there is a permit too many");
}

/// Four connections share two permits. Each is served, evicted or both; a connection that waits is
/// woken by the first that is idle or gone.
pub fn none_is_lost_or_doubled() {
    const MAX: usize = 2;
    let permits = Permits::new(MAX);
    let answering = Arc::new(AtomicUsize::new(0));
    let connections: Vec<_> = (0..4)
        .map(|_| {
            let (permits, answering) = (permits.clone(), answering.clone());
            thread::spawn(move || {
                let permit = block_on(permits.acquire(None)).expect("no source, no share");
                serve(&permit, &answering, MAX);
            })
        })
        .collect();
    for connection in connections {
        connection.join().expect("no panic");
    }
    assert_all_free(&permits, MAX);
}

/// A source with more connections than its share, beside another source: counts per source return
/// to zero.
pub fn shares_are_counted() {
    const MAX: usize = 4;
    let permits = Permits::new(MAX);
    let answering = Arc::new(AtomicUsize::new(0));
    let connections: Vec<_> = [1, 1, 1, 1, 2]
        .map(|host| {
            let (permits, answering) = (permits.clone(), answering.clone());
            thread::spawn(move || {
                if let Some(permit) = block_on(permits.acquire(source(host))) {
                    serve(&permit, &answering, MAX);
                }
            })
        })
        .into();
    for connection in connections {
        connection.join().expect("no panic");
    }
    let share: Vec<ConnPermit> = (0..3)
        .map(|_| match try_acquire(&permits, source(1)) {
            Poll::Ready(Some(permit)) => permit,
            _ => panic!("a permit of the source is lost"),
        })
        .collect();
    assert!(share.iter().all(|permit| permit.state.set(ConnPhase::Answer)));
    assert!(matches!(try_acquire(&permits, source(1)), Poll::Ready(None)));
    drop(share);
    assert_all_free(&permits, MAX);
}

/// One waits and is cancelled, another waits on: the permit that becomes free wakes the other.
pub fn a_cancelled_wait_costs_no_wake_up() {
    const MAX: usize = 1;
    let permits = Permits::new(MAX);
    let first = block_on(permits.acquire(None)).expect("a free permit");
    assert!(first.state.set(ConnPhase::Answer));
    let cancelled = {
        let permits = permits.clone();
        thread::spawn(move || drop(try_acquire(&permits, None)))
    };
    let waiting = {
        let permits = permits.clone();
        thread::spawn(move || assert!(block_on(permits.acquire(None)).is_some()))
    };
    drop(first);
    cancelled.join().expect("no panic");
    waiting.join().expect("no panic");
    assert_all_free(&permits, MAX);
}
