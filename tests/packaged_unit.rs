//! The systemd unit of the package, as systemd runs it: with its limits on system calls, namespaces
//! and files.
//!
//! A manager for users that root starts applies what the system's manager would. It runs in
//! namespaces of mounts and processes, and ends with them.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::client::Client;
use crate::support::runner::{folder, wait_for_file};
use crate::support::skip;

const MANAGER_PROGRAM: &str = "/lib/systemd/systemd";

/// Begins the manager `$3` with a `/run` of its own. `$1` is the folder of the test, which is seen
/// as `/run/test`, and `$2` that of the program, seen as `/run/program`.
const MANAGER: &str = r#"
set -e
mount -t tmpfs run /run
mkdir -p /run/systemd/system /run/user/systemd /run/test /run/program
mount --bind "$1" /run/test
mount --bind "$2" /run/program
ln -s /run/test/units /run/user/systemd/user
export XDG_RUNTIME_DIR=/run/user XDG_CONFIG_HOME=/run/test/state
"$3" --user &
until [ -e /run/user/systemd/private ]; do sleep 0.05; done
cp -a /run/user/systemd/inaccessible /run/systemd/
systemctl --user start edge-runner >/dev/null 2>&1 || true
wait"#;

/// What the test changes: the user, which only the package makes, the program's path, and the log.
const CHANGES: &str = "[Service]
User=daemon
Group=
ExecStart=
ExecStart=/run/program/edge-runner $RUNNER_ARGS
StandardOutput=append:/run/test/log
StandardError=append:/run/test/log
Environment=\"RUNNER_ARGS=--host 127.0.0.1 --port 0 --rtc-port 0 --sandbox -- /bin/sh /run/test/bot\"
";

/// Tells in its working folder what it can do.
const BOT: &str = "
{
    ls -d /proc/[0-9]* | wc -l
    ls \"$STATE_DIRECTORY\" ..
    unshare --user true && echo made a namespace
    touch /run/test/written && echo written elsewhere
    python3 -c '
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
# No structure: EINVAL, unless the filter answers first.
libc.syscall(437, -100, b\"/\", None, 0)
print(\"openat2\", errno.errorcode[ctypes.get_errno()])'
    grep NoNewPrivs /proc/self/status
} > seen.new 2> /dev/null
mv seen.new seen
while :; do sleep 0.1; done
";

struct Unit {
    manager: Child,
    folder: PathBuf,
}

impl Unit {
    /// Starts the unit with these drop-ins of `boards/common`.
    fn start(drop_ins: &[&str]) -> io::Result<Unit> {
        let common = Path::new(env!("CARGO_MANIFEST_DIR")).join("boards/common");
        let folder = folder();
        let changes = folder.join("units/edge-runner.service.d");
        fs::create_dir_all(&changes)?;
        fs::create_dir(folder.join("state"))?;
        for path in [&folder, &folder.join("state")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        }
        fs::copy(
            common.join("edge-runner.service"),
            folder.join("units/edge-runner.service"),
        )?;
        for name in drop_ins {
            fs::copy(common.join(name), changes.join(name))?;
        }
        fs::write(changes.join("test.conf"), CHANGES)?;
        fs::write(folder.join("bot"), BOT)?;
        let program = Path::new(env!("CARGO_BIN_EXE_edge-runner"));
        let manager = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"])
            .args(["sh", "-c", MANAGER, "sh"])
            .args([&folder, program.parent().expect("a folder"), Path::new(MANAGER_PROGRAM)])
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Unit { manager, folder })
    }

    /// Waits for a line of the log with these words, and returns it.
    fn wait_for_log(&self, words: &str) -> String {
        let began = Instant::now();
        loop {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            if let Some(line) = log.lines().find(|line| line.contains(words)) {
                return line.to_owned();
            }
            assert!(began.elapsed() < Duration::from_secs(60), "no {words} in {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // The first process of the namespace ends with it, and with that one all others.
        self.manager
            .kill()
            .and_then(|()| self.manager.wait())
            .expect("it was started");
        fs::remove_dir_all(&self.folder).expect("the folder is the test's");
    }
}

/// Returns whether this machine can run the unit, and skips the test if not.
fn can_run() -> bool {
    let what = "the unit of the package";
    if !rustix::process::geteuid().is_root() {
        skip::lacks_root(what, "only root can run it");
        return false;
    }
    // A container, in which the gate may run, has none.
    if !Path::new(MANAGER_PROGRAM).exists() {
        skip::lacks_ability(what, "this machine has no systemd");
        return false;
    }
    skip::has_program("bwrap", what, "bubblewrap")
}

#[test]
fn a_program_in_a_sandbox_needs_the_drop_in() {
    if !can_run() {
        return;
    }
    let unit = Unit::start(&[]).expect("it starts");
    let refused = unit.wait_for_log("`--sandbox`: `bwrap` fails here");
    assert!(refused.contains("sandbox.conf"), "{refused}");
}

#[test]
fn a_program_in_a_sandbox_answers_a_call_with_the_drop_in() {
    if !can_run() {
        return;
    }
    let unit = Unit::start(&["sandbox.conf"]).expect("it starts");
    let line = unit.wait_for_log("http://127.0.0.1:");
    let (_, port) = line.split_once("http://127.0.0.1:").expect("it was found");
    let port = port
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .and_then(|port| port.parse().ok());
    let _client = Client::connect(SocketAddr::from(([127, 0, 0, 1], port.expect("a port"))), "/ws-client");
    let seen = wait_for_file(&unit.folder.join("state/edge-runner/programs/seen"));
    let lines: Vec<&str> = seen.lines().collect();
    let [processes, rest @ ..] = &lines[..] else {
        panic!("it saw nothing")
    };
    assert!(processes.parse::<usize>().is_ok_and(|count| count < 8), "{seen}");
    assert!(
        !seen.contains("made a namespace") && !seen.contains("written elsewhere"),
        "{seen}"
    );
    // bubblewrap 0.12 (Debian 13) opens what it mounts by it.
    assert!(rest.contains(&"openat2 EINVAL"), "{seen}");
    assert_eq!(rest.last(), Some(&"NoNewPrivs:\t1"), "{seen}");
}
