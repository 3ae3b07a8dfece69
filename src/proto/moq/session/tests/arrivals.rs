//! Serve mode: callers that connect before their session is registered.

use std::time::Duration;

use super::super::*;
use super::rig::{NAMESPACE, Rig};
use crate::moq::accepted::{ArrivalError, UNCLAIMED_WITHIN};
use crate::moq::link::LinkClosed;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A caller that has announced its broadcast while its session is not registered.
fn early() -> Rig {
    let mut rig = Rig::new(MoqSessionMode::Serve);
    rig.call_unregistered();
    rig.run(secs(1));
    assert!(!rig.session.has_joined);
    rig
}

#[test]
fn an_early_caller_finds_its_session() {
    for wait in [Duration::ZERO, secs(3), UNCLAIMED_WITHIN - secs(2)] {
        let mut rig = early();
        rig.run(wait);
        let registered = rig.now - rig.start;
        rig.register();
        rig.run_until(|rig| rig.session.has_joined && rig.caller.is_subscribed());
        let joined = rig.times(&SessionEvent::Joined)[0];
        assert!(joined <= registered + Duration::from_millis(1), "{wait:?}: {joined:?}");
        assert_eq!(rig.arrival_error, None);
        rig.session.handle_message("{\"a\":1}".to_owned());
        rig.run(secs(1));
        assert_eq!(rig.caller.texts, ["{\"a\":1}"], "{wait:?}");
    }
}

#[test]
fn a_caller_without_a_session_is_closed() {
    let mut rig = early();
    rig.run(UNCLAIMED_WITHIN - secs(1));
    assert_eq!(rig.caller.closed, None);
    rig.run(secs(1));
    let Some(LinkClosed::ByPeer { reason, .. }) = &rig.caller.closed else {
        panic!("{:?}", rig.caller.closed);
    };
    assert!(reason.contains("no session waits"), "{reason}");
    let path = format!("{NAMESPACE}/request");
    assert_eq!(rig.arrival_error, Some(ArrivalError::Unclaimed(path)));
    rig.register();
    rig.run(secs(1));
    assert!(!rig.session.has_joined);
}

#[test]
fn a_retracted_announcement_finds_no_session() {
    let mut rig = early();
    let (_, link) = rig.caller.link.as_mut().unwrap();
    rig.caller.peer.retract(link);
    rig.run(secs(1));
    rig.register();
    rig.run(secs(1));
    assert!(!rig.session.has_joined);
}
