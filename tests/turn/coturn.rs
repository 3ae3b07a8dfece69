//! [`Coturn`]: a TURN server on loopback and free ports, for one test.
//!
//! It has long-term credentials, a TLS certificate, and a log that a test can wait for. It is
//! killed on drop.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::ports::free_port;
use crate::support::runner::PATIENCE;
use crate::support::skip;

pub const USER: &str = "caller";
pub const SECRET: &str = "canary-of-the-relay";

pub struct Coturn {
    child: Option<Child>,
    folder: PathBuf,
    port: u16,
    tls_port: u16,
    starts: u32,
}

impl Coturn {
    /// Starts a server, or skips the test where none is installed.
    pub fn start() -> Option<Self> {
        if !skip::has_program("turnserver", "relays and STUN servers", "coturn") {
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("coturn-{}-{count}", std::process::id()));
        fs::create_dir_all(&folder).expect("the build's folder is writable");
        let key = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
        fs::write(folder.join("cert.pem"), key.cert.pem()).expect("written");
        fs::write(folder.join("key.pem"), key.signing_key.serialize_pem()).expect("written");
        let mut coturn = Coturn {
            child: None,
            folder,
            port: free_port(),
            tls_port: free_port(),
            starts: 0,
        };
        coturn.spawn();
        Some(coturn)
    }

    /// Returns the URL of a service.
    pub fn url(&self, scheme: &str, transport: &str) -> String {
        let port = if scheme == "turns" { self.tls_port } else { self.port };
        let query = if transport.is_empty() {
            String::new()
        } else {
            format!("?transport={transport}")
        };
        format!("{scheme}:127.0.0.1:{port}{query}")
    }

    /// Returns the file with the certificate to trust.
    pub fn authority(&self) -> &str {
        // Leaked once per test, for use in variables.
        Box::leak(self.folder.join("cert.pem").display().to_string().into_boxed_str())
    }

    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills and restarts the server, which loses its allocations.
    pub fn restart(&mut self) {
        self.stop();
        self.spawn();
    }

    /// Waits for a log line that contains `words`.
    pub fn wait_for_log(&self, words: &str) {
        let start = Instant::now();
        while !self.log().contains(words) {
            assert!(start.elapsed() < PATIENCE, "`{words}` was not logged:\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join(format!("log{}", self.starts))).unwrap_or_default()
    }

    fn spawn(&mut self) {
        self.starts += 1;
        let file = |name: &str| self.folder.join(name).display().to_string();
        let log = file(&format!("log{}", self.starts));
        let config = format!(
            "listening-ip=127.0.0.1\nrelay-ip=127.0.0.1\nlistening-port={}\ntls-listening-port={}\nallow-loopback-peers\n\
             no-cli\nlt-cred-mech\nuser={USER}:{SECRET}\nrealm=example\ncert={}\npkey={}\nno-dtls\nno-rfc5780\nverbose\n\
             no-stdout-log\nsimple-log\nlog-file={log}\npidfile={}\nuserdb={}\nrelay-threads=1\n",
            self.port,
            self.tls_port,
            file("cert.pem"),
            file("key.pem"),
            file("pid"),
            file("db"),
        );
        fs::write(self.folder.join("turnserver.conf"), config).expect("written");
        let child = Command::new("turnserver")
            .args(["-c", &file("turnserver.conf")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("turnserver runs");
        self.child = Some(child);
        let start = Instant::now();
        for port in [self.port, self.tls_port] {
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
                assert!(ended.is_none(), "turnserver ended at start:\n{}", self.log());
                assert!(
                    start.elapsed() < PATIENCE,
                    "turnserver does not listen:\n{}",
                    self.log()
                );
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Coturn {
    fn drop(&mut self) {
        self.stop();
        if thread::panicking() {
            eprintln!("---- log of turnserver\n{}", self.log());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
