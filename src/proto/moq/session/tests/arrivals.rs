//! Serve mode: callers that connect before their session is registered.

use std::time::Duration;

use super::super::*;
use super::world::{NAMESPACE, World};
use crate::moq::accepted::{ArrivalError, UNCLAIMED_WITHIN};
use crate::moq::link::LinkClosed;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A caller that has announced its broadcast while its session is not registered.
fn early() -> World {
    let mut world = World::new(MoqSessionMode::Serve);
    world.call_unregistered();
    world.run(secs(1));
    assert!(!world.session.has_joined);
    world
}

#[test]
fn an_early_caller_finds_its_session() {
    for wait in [Duration::ZERO, secs(3), UNCLAIMED_WITHIN - secs(2)] {
        let mut world = early();
        world.run(wait);
        let registered = world.now - world.start;
        world.register();
        world.run_until(|world| world.session.has_joined && world.caller.is_subscribed());
        let joined = world.times(&SessionEvent::Joined)[0];
        assert!(joined <= registered + Duration::from_millis(1), "{wait:?}: {joined:?}");
        assert_eq!(world.arrival_error, None);
        world.session.handle_message("{\"a\":1}".to_owned());
        world.run(secs(1));
        assert_eq!(world.caller.texts, ["{\"a\":1}"], "{wait:?}");
    }
}

#[test]
fn a_caller_without_a_session_is_closed() {
    let mut world = early();
    world.run(UNCLAIMED_WITHIN - secs(1));
    assert_eq!(world.caller.closed, None);
    world.run(secs(1));
    let Some(LinkClosed::ByPeer { reason, .. }) = &world.caller.closed else {
        panic!("{:?}", world.caller.closed);
    };
    assert!(reason.contains("no session waits"), "{reason}");
    let path = format!("{NAMESPACE}/request");
    assert_eq!(world.arrival_error, Some(ArrivalError::Unclaimed(path)));
    world.register();
    world.run(secs(1));
    assert!(!world.session.has_joined);
}

#[test]
fn a_retracted_announcement_finds_no_session() {
    let mut world = early();
    let (_, link) = world.caller.link.as_mut().unwrap();
    world.caller.peer.retract(link);
    world.run(secs(1));
    world.register();
    world.run(secs(1));
    assert!(!world.session.has_joined);
}
