//! Tests of bots that are loaded before their calls, against the real binary: in Python without
//! Pipecat, and in a program that speaks the interface by itself.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::livekit::start_session;
use crate::support::client::Client;
use crate::support::http;
use crate::support::program::{descriptors, wait_for_descriptors, wait_for_end, wait_for_no_children, wait_until};
use crate::support::runner::TestRunner;

/// A bot that says who it is when a call begins, and stays until its call has ended.
const BOT: &str = "import asyncio, os, random, sys
print('loaded by', os.getpid())
async def bot(args):
    print('call', args['kind'], os.getpid(), os.getppid(), os.getpgid(0), os.environ['RUNNER_' 'ARGUMENTS'][:8], sys.argv[1:])
    await asyncio.sleep(600)
";

fn bot(source: &str, options: &[&str]) -> TestRunner {
    let words = [&["--python", "python3"], options, &["bot.py", "--name", "Ada"]].concat();
    TestRunner::start_among(&[("bot.py", source)], &words, &[])
}

/// Returns the numbers of a line behind these words.
fn numbers(line: &str) -> Vec<u32> {
    line.split(' ').filter_map(|word| word.parse().ok()).collect()
}

/// Returns the session in brackets that a line of the log names.
fn session(line: &str) -> &str {
    let (_, rest) = line.split_once('[').expect("a session");
    rest.split_once(']').expect("its end").0
}

fn kill(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
}

/// Has a call, and returns the numbers of its own process, its parent and its group.
fn call(runner: &TestRunner, nth: usize) -> (Client, [u32; 3]) {
    let client = Client::connect(runner.addr, "/ws-client");
    let line = runner.wait_for_logs("call websocket ", nth).pop().expect("a line");
    let numbers = numbers(line.split("call websocket ").nth(1).expect("the words"));
    (client, numbers[..3].try_into().expect("three numbers"))
}

fn hang_up(runner: &TestRunner, mut client: Client) {
    client.socket.close(1000);
    client.end();
    runner.wait_for_sessions(0);
}

#[test]
fn each_call_is_a_child_of_the_process_that_has_loaded_the_bot() {
    let runner = bot(BOT, &[]);
    let parent = numbers(&runner.wait_for_log("loaded by "))[0];
    let (one, first) = call(&runner, 1);
    let (other, second) = call(&runner, 2);
    for [own, of, group] in [first, second] {
        assert_eq!((of, group), (parent, own));
    }
    let line = runner.wait_for_log("call websocket ");
    assert!(line.contains("{\"") && line.contains("['--name', 'Ada']"), "{line}");
    hang_up_two(&runner, one, other);
    assert_eq!(runner.log().matches("loaded by").count(), 1);
    assert!(!runner.log().contains("the bot failed"), "{}", runner.log());
    assert!(
        !fs::exists(format!("/proc/{}", first[0])).expect("/proc"),
        "it was reaped"
    );
}

/// The lines of a child carry the session of its call, and its failure ends that call alone.
#[test]
fn a_child_fails_by_itself() {
    let source = "import asyncio, sys
async def bot(args):
    print('call', args['kind'], 0, 0, 0)
    print('NoModelError: no model', file=sys.stderr)
    sys.exit(7)
";
    let runner = bot(source, &[]);
    let _client = Client::connect(runner.addr, "/ws-client");
    let line = runner.wait_for_log("the bot failed");
    assert!(
        line.contains("exit status: 7") && line.contains("NoModelError: no model"),
        "{line}"
    );
    assert!(!line.contains("without `--`"), "it was started so: {line}");
    let said = runner.wait_for_log("NoModelError");
    assert_eq!(session(&said), session(&line));
    runner.wait_for_sessions(0);
}

/// A call outlives the process that forked it, and the next one is not lost.
#[test]
fn a_parent_that_is_killed_is_started_again() {
    let runner = bot(BOT, &[]);
    let (client, [child, parent, _]) = call(&runner, 1);
    kill("-KILL", parent);
    runner.wait_for_log("it is started again");
    let (other, [second, _, _]) = call(&runner, 2);
    assert_ne!(second, child);
    assert!(fs::exists(format!("/proc/{child}")).expect("/proc"), "the call goes on");
    hang_up_two(&runner, client, other);
    runner.wait_for_log("session ended: caller left");
    assert!(!runner.log().contains("the bot failed"), "{}", runner.log());
}

/// One that is stopped answers no ping. It is killed, its call goes on, and the next has another.
#[test]
fn a_parent_that_hangs_is_replaced() {
    let runner = bot(BOT, &[]);
    let (client, [child, parent, _]) = call(&runner, 1);
    kill("-STOP", parent);
    runner.wait_for_log("does not answer: it is killed");
    runner.wait_for_logs("loaded by ", 2);
    let (other, [second, next, _]) = call(&runner, 2);
    assert!(next != parent && second != child);
    assert!(fs::exists(format!("/proc/{child}")).expect("/proc"), "the call goes on");
    assert!(!fs::exists(format!("/proc/{parent}")).expect("/proc"), "it was reaped");
    hang_up_two(&runner, client, other);
    assert!(!runner.log().contains("the bot failed"), "{}", runner.log());
}

fn hang_up_two(runner: &TestRunner, mut one: Client, other: Client) {
    one.socket.close(1000);
    one.end();
    hang_up(runner, other);
}

#[test]
fn a_child_that_is_killed_ends_its_call() {
    let runner = bot(BOT, &[]);
    let (_client, [child, ..]) = call(&runner, 1);
    kill("-KILL", child);
    let line = runner.wait_for_log("the bot failed");
    assert!(line.contains("signal: 9"), "{line}");
    runner.wait_for_sessions(0);
}

/// One that does not run, as when it blocks its loop, holds up no call beside it and no new one.
#[test]
fn a_child_that_hangs_disturbs_no_other_call() {
    let runner = bot(BOT, &[]);
    let (hanging, [child, ..]) = call(&runner, 1);
    let (other, _) = call(&runner, 2);
    kill("-STOP", child);
    let (third, _) = call(&runner, 3);
    for (mut client, left) in [(other, 2), (third, 1)] {
        client.socket.close(1000);
        client.end();
        runner.wait_for_sessions(left);
    }
    kill("-CONT", child);
    hang_up(&runner, hanging);
    assert!(!runner.log().contains("the bot failed"), "{}", runner.log());
}

/// What a bot starts is of its own group, and is ended with the call.
#[test]
fn the_children_of_a_bot_end_with_its_call() {
    let source = BOT.replace("    await", "    os.system('sleep 600 & echo left $!')\n    await");
    let runner = bot(&source, &[]);
    let (client, _) = call(&runner, 1);
    let line = runner.wait_for_log("left ");
    let left = *numbers(&line).last().expect("a number");
    hang_up(&runner, client);
    wait_for_end(left);
}

#[test]
fn a_changed_file_is_loaded_again_and_a_broken_one_keeps_the_old() {
    let runner = bot(BOT, &[]);
    let file = runner.path("bot.py");
    let (client, [_, first, _]) = call(&runner, 1);
    assert_eq!(bot_process(&runner), json!({"state": "ready"}));
    fs::write(&file, format!("{BOT}\nraise ValueError('a broken file')\n")).expect("a file");
    let (other, [_, second, _]) = call(&runner, 2);
    assert_eq!(first, second);
    let line = runner.wait_for_log("the bot cannot be loaded");
    assert!(line.contains("ValueError: a broken file (bot.py, line 7)"), "{line}");
    assert!(line.contains("the one that was loaded before"), "{line}");
    let why = "ValueError: a broken file (bot.py, line 7)";
    assert_eq!(bot_process(&runner), json!({"state": "ready", "error": why}));
    fs::write(&file, format!("{BOT}\nFIXED = True\n")).expect("a file");
    let (third, [_, last, _]) = call(&runner, 3);
    assert_ne!(last, first);
    assert_eq!(bot_process(&runner), json!({"state": "ready"}));
    for client in [client, other, third] {
        let mut client = client;
        client.socket.close(1000);
        client.end();
    }
    runner.wait_for_sessions(0);
    assert!(!runner.log().contains("the bot failed"), "{}", runner.log());
}

/// What was missing at the import may be there later, and nothing but a try can tell.
#[test]
fn a_bot_that_failed_is_loaded_once_its_module_is_there() {
    let runner = bot(BOT, &[]);
    let (client, [_, first, _]) = call(&runner, 1);
    fs::write(runner.path("bot.py"), format!("import beside\n{BOT}")).expect("a file");
    let (other, [_, second, _]) = call(&runner, 2);
    assert_eq!(first, second);
    let line = runner.wait_for_log("the bot cannot be loaded");
    assert!(line.contains("No module named 'beside'"), "{line}");
    fs::write(runner.path("beside.py"), "").expect("a file");
    runner.wait_for_log("the bot is loaded before its calls: Fork");
    let (third, [_, last, _]) = call(&runner, 3);
    assert_ne!(last, first);
    assert_eq!(bot_process(&runner), json!({"state": "ready"}));
    let [mut client, mut other] = [client, other];
    for client in [&mut client, &mut other] {
        client.socket.close(1000);
        client.end();
    }
    hang_up(&runner, third);
}

/// The first call after an edit does not wait, and an error shows at once.
#[test]
fn a_changed_file_is_loaded_without_a_call() {
    let runner = bot(BOT, &[]);
    wait_until(
        || bot_process(&runner) == json!({"state": "ready"}),
        || "the bot is not ready".to_owned(),
    );
    fs::write(runner.path("bot.py"), format!("{BOT}\nCHANGED = True\n")).expect("a file");
    runner.wait_for_logs("loaded by ", 2);
    fs::write(
        runner.path("bot.py"),
        format!("raise ValueError('a broken file')\n{BOT}"),
    )
    .expect("a file");
    runner.wait_for_log("ValueError: a broken file (bot.py, line 1)");
}

#[test]
fn a_file_that_changes_while_it_is_loaded_is_loaded_again() {
    let runner = bot_that_loads_for_ever(&[]);
    runner.wait_for_log("imports");
    fs::write(runner.path("bot.py"), BOT).expect("a file");
    fs::write(runner.path("gate"), "").expect("a file");
    runner.wait_for_logs("loaded by ", 2);
}

/// Nothing is known of the files of a bot that each call starts, but its own.
#[test]
fn a_file_that_no_longer_runs_itself_is_loaded_before_its_calls() {
    let runner = bot("print('runs itself')\n", &["-v"]);
    runner.wait_for_log("loaded before its calls: None");
    fs::write(runner.path("bot.py"), BOT).expect("a file");
    let (client, [_, parent, _]) = call(&runner, 1);
    assert_eq!(parent, numbers(&runner.wait_for_log("loaded by "))[0]);
    hang_up(&runner, client);
}

#[test]
fn a_file_that_no_longer_runs_itself_and_is_broken_is_in_the_status() {
    let runner = bot("print('runs itself')\n", &["-v"]);
    runner.wait_for_log("loaded before its calls: None");
    assert_eq!(bot_process(&runner), Value::Null);
    fs::write(runner.path("bot.py"), format!("raise ValueError('broken')\n{BOT}")).expect("a file");
    runner.wait_for_log("the bot cannot be loaded");
    let why = "ValueError: broken (bot.py, line 1)";
    assert_eq!(bot_process(&runner), json!({"state": "failed", "error": why}));
}

/// Its import waits for a file, or for the end of the runner.
fn bot_that_loads_for_ever(variables: &[(&str, &str)]) -> TestRunner {
    let gate = "import os, time\nrunner = os.getppid()\nprint('imports')
while os.getppid() == runner and not os.path.exists('gate'):\n    time.sleep(0.01)\n";
    let source = format!("{gate}{BOT}");
    TestRunner::start_among(&[("bot.py", &source)], &["--python", "python3", "bot.py"], variables)
}

/// A call that waits for its bot ends with its caller, and frees its place.
#[test]
fn a_caller_can_leave_while_the_bot_is_loaded() {
    let runner = bot_that_loads_for_ever(&[]);
    runner.wait_for_log("imports");
    let client = Client::connect(runner.addr, "/ws-client");
    runner.wait_for_log("the call waits until it is loaded");
    hang_up(&runner, client);
    let line = runner.wait_for_log("session ended");
    assert!(line.contains("caller left") && !line.contains("aborted"), "{line}");
    assert_eq!(runner.log().matches("imports").count(), 1, "{}", runner.log());
}

/// The runner is in no room that its bot has not joined, and still ends the session there.
#[test]
fn the_session_of_a_room_can_end_while_the_bot_is_loaded() {
    let runner = bot_that_loads_for_ever(&[
        ("MEDIAROOM_URL", "ws://127.0.0.1:9"),
        ("MEDIAROOM_API_KEY", "devkey"),
        ("MEDIAROOM_API_SECRET", "a-secret-of-the-tests-0123456789abcdef"),
    ]);
    runner.wait_for_log("imports");
    let answer = start_session(&runner, &json!({}));
    runner.wait_for_log("the call waits until it is loaded");
    let target = format!("/sessions/{}", answer["sessionId"].as_str().expect("an id"));
    let reply = http::request(runner.addr, "DELETE", &target, &[], b"").expect("an answer");
    assert_eq!(reply.status, 202, "{}", reply.text());
    let line = runner.wait_for_log("session ended");
    assert!(
        line.contains("ended by the operator") && !line.contains("aborted"),
        "{line}"
    );
    runner.wait_for_sessions(0);
    assert_eq!(runner.log().matches("imports").count(), 1, "{}", runner.log());
}

#[test]
fn a_caller_who_waits_for_the_bot_to_be_loaded_learns_so() {
    let runner = bot_that_loads_for_ever(&[]);
    let mut client = Client::connect(runner.addr, "/ws-client");
    client.hear_message("that the bot is starting", |message| {
        message["type"] == "error" && message["data"]["error"].to_string().contains("The bot is starting")
    });
    let log = runner.log();
    assert_eq!(log.matches("imports").count(), 1, "the call has its own process: {log}");
    hang_up(&runner, client);
}

/// The end of the media is what a bot in Python ends by, so that it can end what it has started.
#[test]
fn what_a_bot_has_started_gets_no_signal_before_the_bot() {
    let source = "import json, os, signal, subprocess
from edge_runner.media import Media
RECORDER = \"trap 'echo cut' TERM; trap end=1 INT; echo recording; while [ -z $end ]; do sleep 0.01; done; echo saved\"
async def bot(args):
    media = await Media.connect(args['media_url'], 8000)
    recorder = subprocess.Popen(['/bin/sh', '-c', RECORDER])
    async for _ in media.receive():
        pass
    recorder.send_signal(signal.SIGINT)
    recorder.wait()
";
    let runner = bot(source, &[]);
    let client = Client::connect(runner.addr, "/ws-client");
    runner.wait_for_log("recording");
    hang_up(&runner, client);
    let log = runner.log();
    assert!(log.contains("saved") && !log.contains("cut"), "{log}");
}

fn bot_process(runner: &TestRunner) -> Value {
    http::get(runner.addr, "/status").json()["bot_process"].take()
}

/// The error of a bot that cannot be loaded is for this machine, and not for callers of a proxy.
#[test]
fn the_status_says_why_the_bot_cannot_be_loaded() {
    let runner = bot(&format!("import no_such_module\n{BOT}"), &[]);
    runner.wait_for_log("the bot cannot be loaded");
    let why = "ModuleNotFoundError: No module named 'no_such_module' (bot.py, line 1), in /";
    let found = bot_process(&runner);
    assert_eq!(found["state"], "failed");
    let said = found["error"].as_str().expect("an error");
    assert!(said.starts_with(why) && said.contains("python"), "{said}");
    let forwarded = http::request(runner.addr, "GET", "/status", &["X-Forwarded-For: 192.0.2.1"], b"");
    let forwarded = forwarded.expect("a reply").json();
    assert_eq!(forwarded["bot_process"], json!({"state": "failed"}));
    let spawned = bot(BOT, &["--warm", "0"]);
    assert_eq!(bot_process(&spawned), Value::Null);
}

/// The traceback of a file that has not changed is in the log once, however often it is tried.
#[test]
fn a_file_that_fails_again_is_one_line_in_the_log() {
    let runner = bot(&format!("raise ValueError('no model')\n{BOT}"), &[]);
    let lines = runner.wait_for_logs("the bot cannot be loaded", 3);
    assert!(
        lines[2].contains("ValueError: no model (bot.py, line 1)"),
        "{}",
        lines[2]
    );
    assert_eq!(runner.log().matches("Traceback").count(), 1, "{}", runner.log());
    fs::write(runner.path("bot.py"), format!("raise ValueError('another')\n{BOT}")).expect("a file");
    let _client = Client::connect(runner.addr, "/ws-client");
    runner.wait_for_log("ValueError: another (bot.py, line 1)");
    assert!(runner.log().matches("Traceback").count() > 1, "{}", runner.log());
}

/// A bot with a thread cannot be forked: a process waits for one call, and the next one starts.
#[test]
fn a_bot_with_threads_has_a_process_that_waits() {
    let source =
        format!("import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n{BOT}");
    let runner = bot(&source, &[]);
    let loaded = numbers(&runner.wait_for_log("loaded by "))[0];
    let (one, [first, parent, group]) = call(&runner, 1);
    assert_eq!((first, parent, group), (loaded, runner.pid(), loaded));
    let line = runner.wait_for_log("call websocket ");
    assert_eq!(session(&line).len(), 8);
    let second = numbers(&runner.wait_for_logs("loaded by ", 2)[1])[0];
    hang_up(&runner, one);
    let (other, [third, ..]) = call(&runner, 2);
    assert_eq!(third, second);
    hang_up(&runner, other);
}

/// One that waits for its only call and hangs is killed before it gets one.
#[test]
fn a_process_that_waits_and_hangs_is_replaced() {
    let source =
        format!("import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n{BOT}");
    let runner = bot(&source, &[]);
    let waiting = numbers(&runner.wait_for_log("loaded by "))[0];
    wait_until(
        || bot_process(&runner) == json!({"state": "ready"}),
        || "the bot is not ready".to_owned(),
    );
    kill("-STOP", waiting);
    runner.wait_for_log("does not answer: it is killed");
    let next = numbers(&runner.wait_for_logs("loaded by ", 2)[1])[0];
    let (client, [own, ..]) = call(&runner, 1);
    assert_eq!(own, next);
    assert!(!fs::exists(format!("/proc/{waiting}")).expect("/proc"), "it was reaped");
    hang_up(&runner, client);
    assert!(!runner.log().contains("the bot failed"), "{}", runner.log());
}

/// A file that runs its bot by itself is a process for each call, as is any with `--warm 0`.
#[test]
fn a_file_that_runs_itself_is_started_for_each_call() {
    let own =
        "import json, os, time\nprint('kind', json.loads(os.environ['RUNNER_ARGUMENTS'])['kind'])\ntime.sleep(600)\n";
    for (source, options, words) in [
        (own, &[][..], "kind websocket"),
        (BOT, &["--warm", "0"][..], "call websocket"),
    ] {
        let runner = bot(source, options);
        for nth in 1..=2 {
            let client = Client::connect(runner.addr, "/ws-client");
            runner.wait_for_logs(words, nth);
            hang_up(&runner, client);
        }
        assert!(!runner.log().contains("the bot failed"), "{}", runner.log());
    }
}

/// 10 MB at the import are read and dropped, and the calls go on.
#[test]
fn a_module_that_floods_its_output_is_loaded() {
    let runner = bot(&format!("print(('x' * 1000 + '\\n') * 10_000)\n{BOT}"), &[]);
    let (client, _) = call(&runner, 1);
    hang_up(&runner, client);
}

/// Neither the runner nor the process that has loaded the bot needs room on a disk.
#[test]
fn a_bot_is_loaded_and_called_on_a_full_disk() {
    let full = format!(
        "mkdir full; mount -t tmpfs -o size=64k tmpfs full; cat >full/bot.py <<'END'\n{BOT}END\n\
         head -c 1000000 /dev/zero >full/filler 2>/dev/null || true; \
         if head -c 1000 /dev/zero >full/more 2>/dev/null; then exit 1; fi; mount --bind full /tmp"
    );
    let words = ["--python", "python3", "full/bot.py", "--name", "Ada"];
    let Some(runner) = TestRunner::start_among_mounts(&full, &words, &[]) else {
        return;
    };
    let parent = numbers(&runner.wait_for_log("loaded by "))[0];
    for nth in 1..=2 {
        let (client, [_, of, _]) = call(&runner, nth);
        assert_eq!(of, parent);
        hang_up(&runner, client);
    }
}

#[test]
fn calls_leave_neither_processes_nor_descriptors() {
    let runner = bot(BOT, &[]);
    let (client, [_, parent, _]) = call(&runner, 1);
    hang_up(&runner, client);
    let (before, of_parent) = (descriptors(runner.pid()), descriptors(parent));
    for nth in 2..=30 {
        let (client, _) = call(&runner, nth);
        hang_up(&runner, client);
    }
    wait_for_descriptors(runner.pid(), before);
    wait_for_descriptors(parent, of_parent);
    wait_for_no_children(parent);
}

#[test]
fn a_bot_cannot_have_more_memory_than_its_limit() {
    let source = BOT.replace("    await", "    memory = bytes(400 << 20)\n    await");
    for warm in ["0", "1"] {
        let runner = bot(&source, &["--bot-memory", "200", "--warm", warm]);
        let _client = Client::connect(runner.addr, "/ws-client");
        let line = runner.wait_for_log("the bot failed");
        assert!(line.contains("MemoryError"), "{line}");
    }
}

/// The interface in any language: here a shell script, which takes one call.
#[test]
fn a_program_of_any_language_waits_for_its_call() {
    let script = "echo waiting in $EDGE_RUNNER_WARM; echo '{\"hello\":1,\"mode\":\"once\"}' >&0; read -r call; echo \"got $call\"; sleep 600";
    let runner = TestRunner::start(&["--warm", "2", "--", "/bin/sh", "-c", script]);
    runner.wait_for_logs("waiting in fork", 2);
    let client = Client::connect(runner.addr, "/ws-client");
    let line = runner.wait_for_log("got {");
    let call: serde_json::Value = serde_json::from_str(line.split("got ").nth(1).expect("a line")).expect("JSON");
    assert_eq!(
        (&call["call"], &call["arguments"]["kind"]),
        (&json!(0), &json!("websocket"))
    );
    runner.wait_for_logs("waiting in fork", 3);
    hang_up(&runner, client);
}
