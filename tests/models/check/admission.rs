//! Admission: sessions that begin, are evicted, replaced and end while the runner drains.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use shuttle::future::block_on;
use shuttle::thread;

use crate::io::admission::{Admission, SessionPermit};
use crate::proto::server::admission::{AdmissionError, PendingKind, Requester};
use crate::tasks::SlotPool;

/// A requester with an address of its own, with or without the API key.
fn from(host: u8, is_authorised: bool) -> Requester {
    Requester {
        source: IpAddr::from(Ipv4Addr::new(192, 0, 2, host)).into(),
        is_authorised,
        local_address: None,
    }
}

fn is_evicted(permit: &SessionPermit) -> bool {
    pin!(permit.evicted())
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

fn admission(sessions_max: usize) -> (SlotPool, Arc<Admission>) {
    let live = SlotPool::new(sessions_max);
    (live.clone(), Arc::new(Admission::new(live)))
}

/// Everybody is gone: all slots can be had again, and not one more.
fn assert_all_free(live: &SlotPool, admission: &Admission) {
    assert_eq!(live.count(), 0, "a slot is lost");
    block_on(admission.wait_empty());
    let admit = || admission.session(from(100, true), PendingKind::Caller);
    let held: Vec<SessionPermit> = (0..live.max()).map(|_| admit().expect("a place is lost")).collect();
    assert_eq!(admit().err(), Some(AdmissionError::Full));
    drop(held);
    assert_eq!(live.count(), 0);
}

/// Offers without a key and callers with one compete for two slots. A caller evicts an offer, whose
/// session may connect or end at the same time; each is told at most once, and each slot comes back
/// once.
pub fn each_place_is_released_once() {
    const MAX: usize = 2;
    let (live, admission) = admission(MAX);
    let (evictions, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let offers = [1, 2].map(|host| {
        let (live, admission, told) = (live.clone(), admission.clone(), told.clone());
        thread::spawn(move || {
            let Ok(mut permit) = admission.session(from(host, false), PendingKind::Offer) else {
                return;
            };
            assert!(live.count() <= MAX);
            let was_told;
            if host == 1 {
                permit.mark_connected();
                was_told = is_evicted(&permit);
                thread::yield_now();
                assert!(!is_evicted(&permit), "evicted after it connected, or told twice");
            } else {
                thread::yield_now();
                was_told = is_evicted(&permit);
                assert!(!was_told || !is_evicted(&permit), "told twice");
            }
            // The session ends, evicted or not.
            drop(permit);
            told.fetch_add(usize::from(was_told), Ordering::SeqCst);
        })
    });
    let callers = [3, 4].map(|host| {
        let (live, admission, evictions) = (live.clone(), admission.clone(), evictions.clone());
        thread::spawn(move || {
            let permit = admission.session(from(host, true), PendingKind::Caller);
            assert!(live.count() <= MAX);
            thread::yield_now();
            assert!(permit.as_ref().is_ok_and(|permit| !is_evicted(permit)) || permit.is_err());
            evictions.fetch_add(usize::from(permit.is_ok()), Ordering::SeqCst);
        })
    });
    for thread in offers.into_iter().chain(callers) {
        thread.join().expect("no panic");
    }
    assert!(told.load(Ordering::SeqCst) <= evictions.load(Ordering::SeqCst));
    assert_all_free(&live, &admission);
}

/// Two offers of a device claim the slot of its former session, which ends at the same time: one
/// at most gets it.
pub fn one_offer_replaces_a_session() {
    let (live, admission) = admission(1);
    let mut former = admission
        .session(from(1, false), PendingKind::Offer)
        .expect("a free slot");
    former.mark_connected();
    let ticket = former.ticket();
    let won = Arc::new(AtomicUsize::new(0));
    let offers = [(); 2].map(|()| {
        let (live, admission, won) = (live.clone(), admission.clone(), won.clone());
        thread::spawn(move || {
            let permit = admission.replace(ticket, from(1, false));
            won.fetch_add(usize::from(permit.is_ok()), Ordering::SeqCst);
            assert!(live.count() <= 1);
            // The winner stays until both have tried.
            permit.ok()
        })
    });
    let was_told = thread::spawn(move || is_evicted(&former));
    let was_told = was_told.join().expect("no panic");
    let held: Vec<_> = offers.map(|offer| offer.join().expect("no panic")).into();
    let won = won.load(Ordering::SeqCst);
    assert!(won <= 1, "the slot was given twice");
    assert!(!was_told || won == 1, "evicted for no one");
    assert_eq!(live.count(), won);
    drop(held);
    assert_all_free(&live, &admission);
}

/// A drain begins while a caller and a socket arrive. Who is admitted is waited for; a socket that
/// becomes a call during the drain is, too.
pub fn a_drain_misses_no_newcomer() {
    let (live, admission) = admission(2);
    let is_over = Arc::new(AtomicBool::new(false));
    let caller = {
        let (admission, is_over) = (admission.clone(), is_over.clone());
        thread::spawn(move || {
            let newcomer = admission.newcomer(|admission| admission.session(from(1, false), PendingKind::Caller));
            if let Ok(permit) = newcomer {
                thread::yield_now();
                assert!(!is_over.load(Ordering::SeqCst), "the drain missed a session");
                drop(permit);
            }
        })
    };
    let socket = {
        let (admission, is_over) = (admission.clone(), is_over.clone());
        thread::spawn(move || {
            let Ok(mut permit) = admission.newcomer(|admission| admission.handshake(from(2, false))) else {
                return;
            };
            permit = admission
                .session(permit.requester(), PendingKind::Caller)
                .expect("a free slot");
            thread::yield_now();
            assert!(!is_over.load(Ordering::SeqCst), "the drain missed a call");
            drop(permit);
        })
    };
    admission.close();
    block_on(admission.wait_empty());
    is_over.store(true, Ordering::SeqCst);
    caller.join().expect("no panic");
    socket.join().expect("no panic");
    assert_all_free(&live, &admission);
}

/// The last slot goes to a job or to a caller. The job never evicts the offer that waits.
pub fn a_job_evicts_no_one() {
    let (live, admission) = admission(2);
    let offer = admission
        .session(from(1, false), PendingKind::Offer)
        .expect("a free slot");
    let caller = {
        let admission = admission.clone();
        thread::spawn(move || admission.session(from(2, false), PendingKind::Caller).ok())
    };
    let job = {
        let (live, admission) = (live.clone(), admission.clone());
        thread::spawn(move || {
            if live.count() >= live.max() {
                return None;
            }
            let admit = |admission: &Admission| admission.session_in_free_slot(from(3, true), PendingKind::Caller);
            admission.newcomer(admit).ok()
        })
    };
    let held = [caller, job].map(|thread| thread.join().expect("no panic"));
    assert_eq!(held.iter().flatten().count(), 1, "the last slot has one owner");
    assert!(!is_evicted(&offer), "a job evicted a waiting caller");
    drop((offer, held));
    assert_all_free(&live, &admission);
}

/// The worker promises a place, whose job is assigned, expires or is lost with the connection,
/// while the runner drains and callers come: the place belongs to one session or comes back.
pub fn a_place_of_a_job_is_used_or_returned() {
    let (live, admission) = admission(1);
    let is_used = Arc::new(AtomicUsize::new(0));
    let worker = {
        let (admission, is_used) = (admission.clone(), is_used.clone());
        thread::spawn(move || {
            let admit = |admission: &Admission| admission.session_in_free_slot(from(1, true), PendingKind::Caller);
            let Ok(promise) = admission.newcomer(admit) else { return };
            // The session's task takes the place; dropped, it is the expiry or the lost connection.
            let session = thread::spawn(move || {
                assert_eq!(is_used.fetch_add(1, Ordering::SeqCst), 0, "two sessions in one place");
                thread::yield_now();
                is_used.fetch_sub(1, Ordering::SeqCst);
                drop(promise);
            });
            session.join().expect("no panic");
        })
    };
    let caller = {
        let (admission, is_used) = (admission.clone(), is_used.clone());
        thread::spawn(move || {
            if let Ok(permit) = admission.session(from(2, true), PendingKind::Caller) {
                assert_eq!(is_used.fetch_add(1, Ordering::SeqCst), 0, "two sessions in one place");
                thread::yield_now();
                is_used.fetch_sub(1, Ordering::SeqCst);
                drop(permit);
            }
        })
    };
    admission.close();
    worker.join().expect("no panic");
    caller.join().expect("no panic");
    assert_all_free(&live, &admission);
}

/// The worker looks at the places after it began to wait for the next end, so it hears of each.
pub fn the_next_end_is_not_missed() {
    let (live, admission) = admission(1);
    let permit = admission
        .session(from(1, false), PendingKind::Caller)
        .expect("a free slot");
    let session = thread::spawn(move || drop(permit));
    loop {
        let freed = live.released();
        if live.count() < live.max() {
            break;
        }
        block_on(freed);
    }
    session.join().expect("no panic");
    assert_all_free(&live, &admission);
}
