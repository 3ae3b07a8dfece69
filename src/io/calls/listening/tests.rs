//! Tests of the queues of listeners: a slow one, the limits, and the end of the call.

use super::*;

fn call() -> Arc<CallListeners> {
    Listening::default().begin(&SessionId::from("a call"), None, 8_000, Weak::new())
}

fn send(call: &CallListeners, pieces: usize) {
    for _ in 0..pieces {
        call.send(&TappedSound::Interruption, tasks::now());
    }
}

fn read(sound: &mut Receiver<(Instant, TappedSound)>) -> usize {
    std::iter::from_fn(|| sound.try_recv().ok()).count()
}

/// A listener that does not read is dropped, and what was queued stays readable. The call does not
/// wait for it, nor do the others.
#[test]
fn a_slow_listener_is_dropped_alone() {
    let call = call();
    let (_slow_place, mut slow) = call.add().expect("a place");
    let (_place, mut other) = call.add().expect("a place");
    send(&call, LISTENER_QUEUE);
    assert_eq!(read(&mut other), LISTENER_QUEUE);
    send(&call, 1);
    assert_eq!((read(&mut slow), read(&mut other)), (LISTENER_QUEUE, 1));
    assert!(slow.is_closed() && !other.is_closed());
    assert_eq!(lock(&call.state).queues.len(), 1);
}

/// Places are limited, and a listener that left makes room.
#[test]
fn a_call_has_a_limit_of_listeners() {
    let call = call();
    let mut held: Vec<_> = std::iter::from_fn(|| call.add().ok()).collect();
    assert_eq!(held.len(), LISTENERS_OF_CALL_MAX);
    assert_eq!(call.add().err(), Some(NoPlace::Full));
    held.pop();
    assert_eq!(lock(&call.state).queues.len(), LISTENERS_OF_CALL_MAX - 1);
    assert!(call.add().is_ok());
    drop(held);
    assert!(call.is_empty());
}

/// A call that is over tells its listeners, and takes no more.
#[test]
fn the_end_of_a_call_is_the_end_of_its_listeners() {
    let listening = Listening::default();
    let id = SessionId::from("a call");
    let call = listening.begin(&id, None, 8_000, Weak::new());
    let (place, mut sound) = call.add().expect("a place");
    send(&call, 2);
    call.close();
    send(&call, 2);
    assert_eq!((read(&mut sound), sound.is_closed()), (2, true));
    assert_eq!(call.add().err(), Some(NoPlace::Ended));
    drop(place);
    assert!(listening.find(&id).is_some());
    listening.end(&id);
    assert!(listening.find(&id).is_none());
}

/// A listener that was never connected has no link, and an unknown one none either.
#[test]
fn who_does_not_listen_is_not_ended() {
    let call = call();
    let (place, _sound) = call.add().expect("a place");
    assert!(!call.end(&place.id) && !call.end("another"));
}
