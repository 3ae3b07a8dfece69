//! [`TestRunner`]: the real binary on free ports, for the time of one test.
//!
//! In: the options after `--port 0 --rtc-port 0`. Out: the address it listens on, from its standard
//! output, and its log. Drop kills it, so a failed test leaves no process behind. It starts in an
//! empty folder and without the variables of the runner, so the settings of a developer do not
//! affect it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{self, PollFd, PollFlags};
use rustix::io::Errno;

use super::{http, skip};

/// Time limit for events that must happen, for the slowest and busiest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Prefixes of the names of the runner's variables.
const VARIABLES: [&str; 26] = [
    "RUNNER_",
    "CLOUD_",
    "BUILD_",
    "PIPECAT_",
    "TELCO_",
    "TWILIO_",
    "TELNYX_",
    "PLIVO_",
    "VIDEOROOM_",
    "DAILY_",
    "PINLESS_",
    "MEDIAROOM_",
    "LIVEKIT_",
    "MESSAGING_",
    "WHATSAPP_",
    "REALTIME_",
    "OPENAI_",
    "RUST_LOG",
    "NOTIFY_SOCKET",
    "WATCHDOG_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
];

pub struct TestRunner {
    child: Child,
    pub addr: SocketAddr,
    log: Arc<LogReader>,
    said: Arc<Mutex<Vec<String>>>,
    /// Threads that read the output; they end with it.
    readers: Vec<thread::JoinHandle<()>>,
    folder: PathBuf,
}

/// Standard error of the binary, line by line.
struct LogReader {
    pipe: ChildStderr,
    lines: Mutex<Vec<String>>,
}

impl LogReader {
    fn new(pipe: ChildStderr) -> Self {
        Self {
            pipe,
            lines: Mutex::default(),
        }
    }

    /// Reads until the end. It takes out of the pipe and keeps under one lock, so that a line is
    /// always in one of the two.
    fn read_to_end(&self) {
        let (mut partial, mut chunk) = (Vec::new(), [0; 4096]);
        loop {
            let mut ready = [PollFd::new(&self.pipe, PollFlags::IN)];
            if event::poll(&mut ready, None) == Err(Errno::INTR) {
                continue;
            }
            let mut lines = self.lines.lock().expect("no holder panics");
            match rustix::io::read(&self.pipe, &mut chunk) {
                Ok(0) => {
                    if !partial.is_empty() {
                        lines.push(String::from_utf8_lossy(&partial).into_owned());
                    }
                    break;
                }
                Ok(count) => partial.extend_from_slice(&chunk[..count]),
                Err(Errno::INTR) => {}
                Err(error) => panic!("reading the log: {error}"),
            }
            while let Some(end) = partial.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = partial.drain(..=end).collect();
                lines.push(String::from_utf8_lossy(&line[..end]).into_owned());
            }
        }
    }

    /// Returns all lines that the binary has written until now.
    fn lines(&self) -> Vec<String> {
        loop {
            let lines = self.lines.lock().expect("no holder panics");
            if rustix::io::ioctl_fionread(&self.pipe).is_ok_and(|unread| unread == 0) {
                return lines.clone();
            }
            drop(lines);
            thread::yield_now();
        }
    }
}

/// The result of a run that ended by itself.
#[derive(Debug)]
pub struct RunOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl TestRunner {
    /// Starts the binary and waits until it listens.
    pub fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[])
    }

    /// Starts it with environment variables.
    pub fn start_with(args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_among(&[], args, variables)
    }

    /// Starts it in a folder with these files, each a name and a text.
    pub fn start_among(files: &[(&str, &str)], args: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = folder();
        put(&folder, files);
        let mut command = command(&folder);
        command.args(["--port", "0", "--rtc-port", "0"]).args(args);
        Self::watch(command, folder, variables)
    }

    /// Starts the binary with only these arguments, and waits until it listens.
    pub fn start_bare(args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_bare_through(&[], args, variables)
    }

    /// Limits files to this many blocks of 512 bytes; a write beyond that fails like one on a full
    /// disk.
    pub fn start_small(args: &[&str], variables: &[(&str, &str)], blocks: u32) -> Self {
        let folder = folder();
        let inner = command(&folder);
        let mut command = clean("sh", &folder);
        // Without the trap, the signal of the limit would kill it.
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        command
            .args(["-c", &script])
            .arg(inner.get_program())
            .args(inner.get_args())
            .args(args);
        Self::watch(command, folder, variables)
    }

    /// Starts the binary by way of a wrapper command that executes it.
    pub fn start_through(wrapper: &[&str], args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_bare_through(
            wrapper,
            &[&["--port", "0", "--rtc-port", "0"], args].concat(),
            variables,
        )
    }

    /// The same with only these arguments.
    pub fn start_bare_through(wrapper: &[&str], args: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = folder();
        let inner = command(&folder);
        let words = wrapper.iter().map(|word| OsStr::new(*word));
        let mut words = words.chain([inner.get_program()]).chain(inner.get_args());
        let mut command = clean(words.next().expect("the binary at least"), &folder);
        command.args(words).args(args);
        Self::watch(command, folder, variables)
    }

    /// Starts it in a mount namespace that `script` sets up. Returns `None` without the permission.
    pub fn start_among_mounts(script: &str, args: &[&str], variables: &[(&str, &str)]) -> Option<Self> {
        let probe = Command::new("unshare").args(["-m", "true"]).status();
        if !probe.is_ok_and(|status| status.success()) {
            skip::lacks_root("the runner on a machine with faults", "mounts need root");
            return None;
        }
        let folder = folder();
        let inner = command(&folder);
        let mut command = clean("unshare", &folder);
        // The binary may be below a new mount.
        let script = format!("set -e; exec 9<\"$0\"; mount --make-rprivate /; {script}; exec /proc/self/fd/9 \"$@\"");
        command
            .args(["-m", "sh", "-c", &script])
            .arg(inner.get_program())
            .args(inner.get_args())
            .args(["--port", "0", "--rtc-port", "0"])
            .args(args);
        Some(Self::watch(command, folder, variables))
    }

    /// Starts a runner with a custom bot: an ignored test of this binary, which calls the library.
    pub fn start_own(test: &str, variables: &[(&str, &str)]) -> Self {
        let folder = folder();
        let own = std::env::current_exe().expect("this is a program");
        let mut command = clean(own, &folder);
        command.args(["--exact", test, "--ignored", "--nocapture"]);
        Self::watch(command, folder, variables)
    }

    /// Starts a runner that does not listen.
    pub fn start_silent(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = folder();
        let mut command = command(&folder);
        command.args(args);
        Self::launch(command, folder, variables).0
    }

    fn watch(command: Command, folder: PathBuf, variables: &[(&str, &str)]) -> Self {
        let (mut runner, received) = Self::launch(command, folder, variables);
        match received.recv_timeout(PATIENCE) {
            Ok(url) => runner.addr = ipv4(&url),
            Err(RecvTimeoutError::Timeout) => panic!("the runner never said where it listens: {}", runner.log()),
            Err(RecvTimeoutError::Disconnected) => panic!("the runner ended at start: {}", runner.log()),
        }
        runner
    }

    /// Starts it. The channel receives the address on which it listens.
    fn launch(mut command: Command, folder: PathBuf, variables: &[(&str, &str)]) -> (Self, mpsc::Receiver<String>) {
        let mut child = command
            .envs(variables.iter().copied())
            .spawn()
            .expect("the binary was built for this test");
        let log = Arc::new(LogReader::new(child.stderr.take().expect("piped")));
        let kept = log.clone();
        let logger = thread::spawn(move || kept.read_to_end());
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (found, received) = mpsc::channel();
        let said = Arc::new(Mutex::new(Vec::new()));
        let kept = said.clone();
        let speaker = thread::spawn(move || {
            // Read to the end, because a full pipe would block the runner.
            for line in stdout.lines().map_while(Result::ok) {
                if let Some((_, url)) = line.split_once("listening on http://") {
                    let _ = found.send(url.trim().to_owned());
                }
                kept.lock().expect("no holder panics").push(line);
            }
        });
        let runner = Self {
            child,
            addr: ([127, 0, 0, 1], 0).into(),
            log,
            said,
            readers: vec![logger, speaker],
            folder,
        };
        (runner, received)
    }

    /// Runs the binary with `args` alone until it ends by itself.
    pub fn run(args: &[&str]) -> RunOutput {
        Self::run_with(args, &[])
    }

    /// Runs it with environment variables.
    pub fn run_with(args: &[&str], variables: &[(&str, &str)]) -> RunOutput {
        Self::run_among(&[], args, variables)
    }

    /// Runs it in a folder with these files, each a name and a text.
    pub fn run_among(files: &[(&str, &str)], args: &[&str], variables: &[(&str, &str)]) -> RunOutput {
        let folder = folder();
        put(&folder, files);
        let mut child = command(&folder)
            .envs(variables.iter().copied())
            .args(args)
            .spawn()
            .expect("the binary was built for this test");
        let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let stdout = thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).map(|_| text)
        });
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).map(|_| text)
        });
        let status = wait(&mut child);
        if status.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&folder);
        let text = |reader: thread::JoinHandle<std::io::Result<String>>| {
            reader
                .join()
                .expect("a reader does not panic")
                .expect("output is UTF-8")
        };
        let ended = RunOutput {
            code: status.and_then(|s| s.code()),
            stdout: text(stdout),
            stderr: text(stderr),
        };
        assert!(
            status.is_some(),
            "the runner was to end by itself with {args:?}: {ended:?}"
        );
        ended
    }

    /// The number of live sessions in `/status`.
    pub fn sessions(&self) -> u64 {
        let status = http::get(self.addr, "/status").json();
        status["sessions"]
            .as_u64()
            .unwrap_or_else(|| panic!("no sessions in {status}"))
    }

    /// Waits until this many sessions are live, or fails the test.
    pub fn wait_for_sessions(&self, wanted: u64) {
        let start = Instant::now();
        loop {
            let live = self.sessions();
            if live == wanted {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{live} sessions live, {wanted} wanted; log:\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the path of a file in its working directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Everything it wrote to standard error.
    pub fn log(&self) -> String {
        self.log.lines().join("\n")
    }

    /// Everything that it wrote to standard output and to standard error, once it has ended.
    pub fn last_words(mut self) -> (String, String) {
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader does not panic");
        }
        (self.said.lock().expect("no holder panics").join("\n"), self.log())
    }

    /// Waits for a log line that contains `words`, and returns it.
    pub fn wait_for_log(&self, words: &str) -> String {
        self.wait_for_logs(words, 1).remove(0)
    }

    /// Waits for `count` log lines that contain `words`, and returns all of them.
    pub fn wait_for_logs(&self, words: &str, count: usize) -> Vec<String> {
        let start = Instant::now();
        loop {
            let found: Vec<String> = self
                .log
                .lines()
                .into_iter()
                .filter(|line| line.contains(words))
                .collect();
            if found.len() >= count {
                return found;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "`{words}` was logged {} times, not {count}; log:\n{}",
                found.len(),
                self.log()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its peak memory in KiB.
    pub fn peak_kib(&self) -> u64 {
        self.status_kib("VmHWM:")
    }

    /// The pages of files in its memory, in KiB.
    pub fn file_kib(&self) -> u64 {
        self.status_kib("RssFile:")
    }

    fn status_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it lives");
        let line = status.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number
            .and_then(|kib| kib.parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {status}"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        // By the shell's built-in `kill`: the standard library cannot send signals, and some images
        // lack the program.
        let command = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh")
            .args(["-c", &command])
            .status()
            .expect("there is a shell");
        assert!(status.success(), "signal {name} was not delivered");
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child).unwrap_or_else(|| panic!("the runner did not end; log:\n{}", self.log()))
    }
}

impl Drop for TestRunner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("---- log of the runner\n{}", self.log());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The binary of this build, or the one in `EDGE_RUNNER_BINARY`, optionally with an emulator, as in
/// `/repo/cross/qemu /repo/target/aarch64-unknown-linux-gnu/release/edge-runner`. Spaces separate
/// the words.
fn command(folder: &PathBuf) -> Command {
    let named = std::env::var("EDGE_RUNNER_BINARY").unwrap_or_default();
    let mut words = named.split_whitespace();
    let mut command = clean(words.next().unwrap_or(env!("CARGO_BIN_EXE_edge-runner")), folder);
    command.args(words);
    command
}

/// A command in this folder, without the settings of a developer.
fn clean(program: impl AsRef<OsStr>, folder: &PathBuf) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if VARIABLES.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn put(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("the folder is writable");
        std::fs::write(path, text).expect("the folder is writable");
    }
}

/// Waits until the file exists, and returns its text.
pub fn wait_for_file(path: &Path) -> String {
    let start = Instant::now();
    loop {
        if let Ok(text) = fs::read_to_string(path) {
            return text;
        }
        assert!(start.elapsed() < PATIENCE, "no {}", path.display());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Creates an empty folder.
pub fn folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "runner-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).expect("the build's folder is writable");
    path
}

fn ipv4(url: &str) -> SocketAddr {
    let authority = url.trim_end_matches('/');
    let mut found = authority
        .to_socket_addrs()
        .unwrap_or_else(|e| panic!("{e}: {authority}"));
    found
        .find(SocketAddr::is_ipv4)
        .unwrap_or_else(|| panic!("no IPv4 address in {authority}"))
}

fn wait(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("the child is ours") {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(20));
    }
    None
}
