//! Notifies systemd, or a supervisor with the same protocol: ready, reloading, stopping, alive, and
//! the number of live sessions.
//!
//! In: the state of the runner. Out: datagrams to the socket in `NOTIFY_SOCKET`; nothing without
//! that variable. A send blocks for up to `NOTIFY_SEND`, so the watchdog thread does it. An
//! unreachable supervisor is one WARN line. The crate `sd_notify` formats the states; its own send
//! has no timeout. Source: sd_notify(3), sd_watchdog_enabled(3), systemd.service(5).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use edge_runner_proto::counts::SessionCount;
use edge_runner_proto::limits::WATCH_INTERVAL;

/// Interval of the status messages to the supervisor, which contain the number of live sessions.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);
/// Time that one message to a supervisor that does not read may block; the watchdog does not check
/// meanwhile.
const NOTIFY_SEND: Duration = Duration::from_millis(100);

/// The supervisor, if there is one.
pub struct Supervisor {
    socket: Option<OsString>,
    /// The last send failed, and the log says so.
    is_unreachable: bool,
    /// The interval between keep-alive messages, if the supervisor expects them.
    keep_alive_interval: Option<Duration>,
    status: StatusLine,
}

impl Supervisor {
    /// Finds the supervisor in the environment of the process.
    pub fn find() -> Self {
        let socket = socket();
        Supervisor {
            keep_alive_interval: sd_notify::watchdog_enabled().filter(|_| socket.is_some()),
            socket,
            is_unreachable: false,
            status: StatusLine::default(),
        }
    }

    /// Returns how often to poll: at least twice per watchdog timeout.
    pub fn interval(&self) -> Duration {
        self.keep_alive_interval.map_or(WATCH_INTERVAL, interval)
    }

    pub fn ready(&mut self) {
        self.notify(&[NotifyState::Ready]);
    }

    /// Announces the end and how long it may take: a drain may exceed the supervisor's own timeout.
    pub fn stopping(&mut self, within: Duration) {
        let within = u32::try_from(within.as_micros()).unwrap_or(u32::MAX);
        self.notify(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(within)]);
    }

    pub fn alive(&mut self) {
        if self.keep_alive_interval.is_some() {
            self.notify(&[NotifyState::Watchdog]);
        }
    }

    /// Sends the number of live sessions if it has changed.
    pub fn sessions(&mut self, live: usize, stopping: bool, now: Instant) {
        if self.socket.is_some()
            && let Some(text) = self.status.update(live, stopping, now)
        {
            self.notify(&[NotifyState::Status(&text)]);
        }
    }

    fn notify(&mut self, states: &[NotifyState<'_>]) {
        let Some(socket) = &self.socket else { return };
        match send(socket, states) {
            Ok(()) => self.is_unreachable = false,
            Err(error) if !self.is_unreachable => {
                log::warn!("the supervisor at NOTIFY_SOCKET cannot be notified: {error}");
                self.is_unreachable = true;
            }
            Err(_) => {}
        }
    }
}

fn socket() -> Option<OsString> {
    std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty())
}

/// Sends one message. A supervisor that does not read delays it by `NOTIFY_SEND` at most.
fn send(socket: &OsStr, states: &[NotifyState<'_>]) -> io::Result<()> {
    let address = match socket.as_bytes() {
        // An abstract socket name, as supervisors of containers use.
        [b'@', name @ ..] => abstract_address(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let datagram = UnixDatagram::unbound()?;
    datagram.set_write_timeout(Some(NOTIFY_SEND))?;
    datagram.connect_addr(&address)?;
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    datagram.send(message.as_bytes()).map(drop)
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
    let text = "its name is that of an abstract socket, which only Linux has";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// Announces that files were read again after SIGHUP. Call it from a task; it does not block.
pub fn reloaded() {
    let Some(socket) = socket() else { return };
    tokio::task::spawn_blocking(move || {
        let notified = NotifyState::monotonic_usec_now()
            .and_then(|now| send(&socket, &[NotifyState::Reloading, now]))
            .and_then(|()| send(&socket, &[NotifyState::Ready]));
        if let Err(error) = notified {
            log::warn!("the supervisor at NOTIFY_SOCKET was not notified of the reload: {error}");
        }
    });
}

/// Returns half of the watchdog timeout, at least 10 ms.
fn interval(watchdog: Duration) -> Duration {
    (watchdog / 2).clamp(Duration::from_millis(10), WATCH_INTERVAL)
}

/// The status line: sent on change, at most once per `STATUS_INTERVAL`.
#[derive(Default)]
struct StatusLine {
    sent: Option<(usize, bool, Instant)>,
}

impl StatusLine {
    fn update(&mut self, live: usize, stopping: bool, now: Instant) -> Option<String> {
        if let Some((sent, was_stopping, at)) = self.sent
            && ((sent, was_stopping) == (live, stopping) || now.saturating_duration_since(at) < STATUS_INTERVAL)
        {
            return None;
        }
        self.sent = Some((live, stopping, now));
        let sessions = SessionCount(live);
        Some(match (stopping, live) {
            (true, 0) => "stopping".to_owned(),
            (true, _) => format!("stopping, {sessions} left"),
            (false, _) => format!("{sessions} live"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One message is one datagram, to a path or to an abstract name. A send to a full socket
    /// fails.
    #[cfg(target_os = "linux")]
    #[test]
    fn messages_reach_path_and_abstract_sockets() {
        let name = format!("edge-runner-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let abstract_name = abstract_address(name.as_bytes()).expect("a name");
        let sockets = [
            (
                UnixDatagram::bind(&path).expect("a file"),
                path.clone().into_os_string(),
            ),
            (
                UnixDatagram::bind_addr(&abstract_name).expect("a name"),
                format!("@{name}").into(),
            ),
        ];
        for (supervisor, socket) in &sockets {
            send(socket, &[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(7)]).expect("it listens");
            let mut buffer = [0; 100];
            let bytes = supervisor.recv(&mut buffer).expect("a message");
            assert_eq!(&buffer[..bytes], b"STOPPING=1\nEXTEND_TIMEOUT_USEC=7\n");
        }
        let full = (0..100_000).find_map(|_| send(&sockets[0].1, &[NotifyState::Watchdog]).err());
        assert_eq!(full.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        drop(sockets);
        std::fs::remove_file(path).expect("it is this test's");
    }

    #[test]
    fn the_interval_is_half_the_watchdog_timeout() {
        for (watchdog_ms, interval_ms) in [(60_000, 500), (1_000, 500), (999, 499), (20, 10), (0, 10)] {
            let every = interval(Duration::from_millis(watchdog_ms)).as_millis();
            assert_eq!(every, interval_ms, "{watchdog_ms} ms");
        }
    }

    /// The status is sent first, then on change, and not more often than the interval allows.
    #[test]
    fn the_session_count_is_sent_on_change() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut status = StatusLine::default();
        let mut update = |live, stopping, at| status.update(live, stopping, start + at);
        assert_eq!(update(0, false, ms(0)).as_deref(), Some("0 sessions live"));
        assert_eq!(update(0, false, ms(600_000)), None);
        assert_eq!(update(1, false, ms(600_500)).as_deref(), Some("1 session live"));
        let next = ms(600_500) + STATUS_INTERVAL;
        assert_eq!(update(2, false, next - ms(1)), None);
        assert_eq!(update(2, false, next).as_deref(), Some("2 sessions live"));
        assert_eq!(update(2, true, next * 2).as_deref(), Some("stopping, 2 sessions left"));
        assert_eq!(update(0, true, next * 3).as_deref(), Some("stopping"));
    }
}
