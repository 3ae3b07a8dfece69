//! The runner under test: started on free loopback ports in an empty folder, measured through
//! `/proc`, killed on drop.
//!
//! In: the path of its binary. Out: its address, its memory in KiB, its CPU time, its log. Linux
//! only.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::http::Connection;

/// Ticks per second of the times in `/proc`, fixed by the kernel interface.
const TICKS_PER_S: f64 = 100.0;
/// Time limit for the end of a session; that of a vanished client ends after 35 s.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Runner {
    child: Child,
    pub addr: SocketAddr,
    /// The time just before the process was created.
    pub spawned: Instant,
    folder: PathBuf,
    /// Kept open; a runner with a closed standard output is another case.
    _stdout: BufReader<ChildStdout>,
}

impl Runner {
    /// Starts `binary` with the echo bot, and returns once it listens.
    pub fn start(binary: &Path) -> Result<Runner> {
        Self::start_with(binary, &[])
    }

    /// Starts it with environment variables.
    pub fn start_with(binary: &Path, environment: &[(&str, &str)]) -> Result<Runner> {
        let args = "--host 127.0.0.1 --port 0 --rtc-port 0 --bot echo --max-sessions 160";
        Self::launch(binary, args, environment)
    }

    /// Starts it for microcontrollers, with the echo bot.
    pub fn start_embedded(binary: &Path) -> Result<Runner> {
        let args = "--host 127.0.0.1 --port 0 --rtc-port 0 --bot echo --max-sessions 160 --embedded";
        Self::launch(binary, args, &[])
    }

    /// Starts it with a built-in bot that uses services.
    pub fn start_assistant(binary: &Path, bot: &str, environment: &[(&str, &str)]) -> Result<Runner> {
        let args = format!("--host 127.0.0.1 --port 0 --rtc-port 0 --bot {bot} --max-sessions 160");
        Self::launch(binary, &args, environment)
    }

    /// Starts it for callers over QUIC, with the echo bot.
    pub fn start_moq(binary: &Path) -> Result<Runner> {
        let args = "--host 127.0.0.1 --port 0 --bot echo --max-sessions 160 -t moq --moq-bind 127.0.0.1:0";
        Self::launch(binary, args, &[])
    }

    /// Starts it with default options and these arguments, separated by spaces.
    pub fn start_stock(binary: &Path, more: &str) -> Result<Runner> {
        let args = format!("--host 127.0.0.1 --port 0 --rtc-port 0 --bot echo{more}");
        Self::launch(binary, &args, &[])
    }

    /// Starts the cloud service with this private key, a builder that builds nothing, and further
    /// variables.
    pub fn start_cloud(binary: &Path, key: &str, more: &[(&str, &str)]) -> Result<Runner> {
        Self::start_cloud_with(binary, key, "--data-dir data --max-builds 4 -- touch {out}/image", more)
    }

    /// Starts the cloud service with these arguments, separated by spaces, and further variables.
    pub fn start_cloud_with(binary: &Path, key: &str, args: &str, more: &[(&str, &str)]) -> Result<Runner> {
        let args = format!("cloud serve --host 127.0.0.1 --port 0 --min-free 0 --max-pending 100000 {args}");
        let environment = [&[("CLOUD_PRIVATE_KEYS", key), ("RUST_LOG", "warn")], more].concat();
        Self::launch(binary, &args, &environment)
    }

    /// `args` are separated by spaces.
    fn launch(binary: &Path, args: &str, environment: &[(&str, &str)]) -> Result<Runner> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "edge-runner-bench-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        let mut command = Command::new(binary);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if [
                "RUNNER_",
                "PIPECAT_",
                "CLOUD_",
                "OPENAI_",
                "REALTIME_",
                "CASCADE_",
                "TOOLS_",
            ]
            .iter()
            .any(|prefix| text.starts_with(prefix))
            {
                command.env_remove(&name);
            }
        }
        let log = File::create(folder.join("log"))?;
        let spawned = Instant::now();
        let mut child = command
            .args(args.split(' '))
            .envs(environment.iter().copied())
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut said = String::new();
        let addr = loop {
            let from = said.len();
            if stdout.read_line(&mut said)? == 0 {
                let log = fs::read_to_string(folder.join("log"))?;
                return Err(format!("the runner ended at start: {log}").into());
            }
            if let Some((_, addr)) = said[from..].split_once("listening on http://") {
                break addr.trim().parse()?;
            }
        };
        Ok(Runner {
            child,
            addr,
            spawned,
            folder,
            _stdout: stdout,
        })
    }

    /// Returns the user and system time that the process has taken so far, in seconds.
    pub fn cpu_s(&self) -> Result<f64> {
        cpu_s(&self.child.id().to_string())
    }

    /// Returns how often the threads of the process have begun to wait so far.
    pub fn waits(&self) -> Result<u64> {
        let mut waits = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let status = fs::read_to_string(thread?.path().join("status"))?;
            waits += field(&status, "voluntary_ctxt_switches").ok_or("no switches in /proc/PID/task/TID/status")?;
        }
        Ok(waits)
    }

    /// Returns a field of `/proc/PID/status` in KiB: `VmRSS`, `RssAnon`.
    pub fn status_kib(&self, name: &str) -> Result<u64> {
        self.kib("status", name)
    }

    /// Returns the proportional set size, in which shared pages are divided among their users.
    pub fn pss_kib(&self) -> Result<u64> {
        self.kib("smaps_rollup", "Pss")
    }

    fn kib(&self, file: &str, name: &str) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))?;
        Ok(field(&text, name).ok_or_else(|| format!("no {name} in /proc/PID/{file}"))?)
    }

    /// Returns the number of open descriptors and of threads.
    pub fn held(&self) -> Result<(u64, u64)> {
        let count = |folder: &str| -> Result<u64> {
            Ok(fs::read_dir(format!("/proc/{}/{folder}", self.child.id()))?.count() as u64)
        };
        Ok((count("fd")?, count("task")?))
    }

    /// Returns the number of live sessions.
    pub fn sessions(&self) -> Result<u64> {
        let (_, body) = Connection::open(self.addr)?.request("GET", "/status", b"")?;
        let status: serde_json::Value = serde_json::from_slice(&body)?;
        Ok(status["sessions"].as_u64().ok_or("no `sessions` in /status")?)
    }

    /// Returns a figure of `/metrics`, summed over all labels.
    pub fn figure(&self, name: &str) -> Result<u64> {
        let (_, body) = Connection::open(self.addr)?.request("GET", "/metrics", b"")?;
        let text = String::from_utf8(body)?;
        let samples = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            rest.starts_with(['{', ' ']).then(|| rest.rsplit(' ').next())?
        });
        let figures: Vec<f64> = samples.map(str::parse).collect::<std::result::Result<_, _>>()?;
        if figures.is_empty() {
            return Err(format!("no {name} in /metrics").into());
        }
        Ok(figures.iter().sum::<f64>() as u64)
    }

    /// Waits until no session is live.
    pub fn wait_until_idle(&self) -> Result<()> {
        let began = Instant::now();
        while self.sessions()? > 0 {
            if began.elapsed() > PATIENCE {
                return Err("sessions that were left do not end".into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        // The last session frees its resources meanwhile.
        thread::sleep(Duration::from_millis(300));
        Ok(())
    }

    /// Waits until no session is live and memory was freed, which is a moment later.
    pub fn wait_until_settled(&self) -> Result<()> {
        self.wait_until_idle()?;
        thread::sleep(Duration::from_secs(3));
        Ok(())
    }

    /// Its working directory, which is deleted with it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns its log.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.join("log"))?)
    }
}

/// Returns the user and system time that a process has taken so far, in seconds; `process` is its
/// number, or `self`.
pub fn cpu_s(process: &str) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The second field is the program name in brackets, which may contain anything.
    let (_, fields) = stat.rsplit_once(')').ok_or("no name in /proc/PID/stat")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || -> Result<f64> { Ok(fields.next().ok_or("too few fields in /proc/PID/stat")?.parse()?) };
    Ok((ticks()? + ticks()?) / TICKS_PER_S)
}

/// Returns the number of a field in a file of `/proc` with one field a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
