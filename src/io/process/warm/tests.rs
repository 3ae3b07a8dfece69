//! Tests of the processes that have loaded a bot: a child and the call that it was forked for, and
//! looks at the files of the bot.

use std::fs;
use std::future::{Future, poll_fn};
use std::os::unix::process::CommandExt as _;
use std::pin::pin;
use std::process::Command;
use std::sync::mpsc;
use std::task::Poll;

use edge_runner_http::testing::TempDir;
use tokio::runtime::Builder;
use tokio::time;

use super::*;
use crate::config::BotAudio;

/// Returns the processes of a bot with this file, none of which runs.
fn warm_bot(file: &Path) -> WarmBot {
    let shared = WarmShared {
        spec: Arc::new(ProgramSpec {
            command: Vec::new(),
            withheld: Vec::new(),
            audio: BotAudio::Protobuf,
            input: None,
            working_dir: None,
            sandbox: None,
            memory_kib: None,
            environment: Vec::new(),
        }),
        warm: WarmSpec {
            command: Vec::new(),
            package: None,
            waiting_max: 1,
            file: None,
        },
        state: Mutex::new(WarmState {
            mode: Some(WarmMode::None),
            files: stamped([file.to_owned()]).into(),
            ..WarmState::default()
        }),
        changes: watch::Sender::default(),
        looks: Arc::default(),
        calls: AtomicU64::default(),
    };
    WarmBot {
        shared: Arc::new(shared),
        _keeper: JoinSet::new(),
    }
}

/// A file of a network may take its time, or never answer: nothing else waits for it, and a call
/// not for long.
#[test]
fn another_thread_looks_at_the_files() {
    let folder = TempDir::new();
    let file = folder.path("bot.py");
    fs::write(&file, "1").expect("the folder is the test's");
    let bot = warm_bot(&file);
    fs::write(&file, "22").expect("the folder is the test's");
    let is_outdated = || lock(&bot.shared.state).is_outdated;
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).max_blocking_threads(1).build();
    runtime.expect("a runtime").block_on(async {
        let (file_answers, waits) = mpsc::channel::<()>();
        let slow = tokio::task::spawn_blocking(move || waits.recv());
        let id = SessionId::from("test");
        let mut call = pin!(bot.take("{}", &id));
        let is_waiting = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
        assert!(is_waiting && !is_outdated());
        time::advance(PROCESS_WARM_LOOK).await;
        assert!(call.await.is_none(), "it starts its own");
        assert!(!is_outdated());
        drop(file_answers);
        let _ = slow.await;
        bot.shared.notice_changes().await;
        assert!(is_outdated());
    });
}

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
