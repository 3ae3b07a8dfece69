//! Tests of the processes that have loaded a bot: a child and the call that it was forked for.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::*;

/// A call may end when its child has started, and before it has taken the child.
#[test]
fn a_child_that_its_call_does_not_take_is_killed() {
    let children = Children::default();
    let (started, has_started) = oneshot::channel();
    let (ended, _) = oneshot::channel();
    let child = Child {
        started: Some(started),
        ended,
    };
    lock(&children.calls).insert(7, child);
    let mut command = Command::new("sleep");
    let mut process = command.arg("60").process_group(0).spawn().expect("it is there");
    children.take(WarmMessage::Started {
        call: 7,
        pid: process.id(),
    });
    drop(has_started);
    let status = process.wait().expect("a child");
    assert_eq!(status.signal(), Some(9), "{status}");
}
