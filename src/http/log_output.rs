//! Where log lines go: a descriptor that is written to only while it takes bytes at once.
//!
//! The reader of the log may stop for a while: a container's log driver, a supervisor, a stopped
//! terminal. [`LogOutput::write`] therefore never waits for the reader. Usually the calling thread
//! writes the line itself, so a line that was logged has been written. Once the descriptor takes no
//! more, lines wait in a bounded queue, and a thread writes them; it starts with the first such
//! line. Lines beyond the bound are dropped and counted, and a report stands where they are
//! missing. A terminal may have a status below the lines, which each line erases.
//! [`LogOutput::flush`] waits for the queue at the end of the process, for a limited time.

use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use edge_runner_proto::limits::LOG_WAITING_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::lock::lock;
use crate::sync::{Arc, Condvar, Mutex, PoisonError, thread};

/// Puts the cursor of a terminal at the begin of its row, and erases the row.
const ERASE_ROW: &str = "\r\x1b[K";

/// Bytes that a pipe which is ready takes without waiting: `PIPE_BUF` of Linux.
const WRITE_BYTES_MAX: usize = 4_096;

/// What takes the bytes of log lines.
pub trait LogTarget {
    /// Writes as much as the target takes without waiting.
    ///
    /// # Errors
    /// `AGAIN` if it takes nothing now, `INTR` after a signal, others if it never will.
    fn write_at_once(&self, bytes: &[u8]) -> rustix::io::Result<usize>;

    /// Writes all bytes and waits for the reader as long as it takes. A closed target swallows
    /// them.
    fn write_whole(&self, bytes: &[u8]);
}

/// An output for log lines on the target `W`.
pub struct LogOutput<W> {
    shared: Arc<Shared<W>>,
}

struct Shared<W> {
    target: W,
    /// Reports a number of dropped lines by a line of the log, which comes back to this output.
    report_dropped: fn(u64),
    state: Mutex<State>,
    /// There is something to do for the thread.
    work: Condvar,
    /// The thread has done it.
    done: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Lines dropped since the queue was full. Further lines are dropped until the queue is empty,
    /// so that the report stands in their place.
    dropped: u64,
    has_thread: bool,
    /// The thread writes a line that it took from the queue.
    is_writing: bool,
    /// The thread reports dropped lines.
    is_reporting: bool,
    /// The last row of the terminal is a status.
    has_status: bool,
    /// Writers to another stream of the terminal, during which no status is shown.
    other_writers: usize,
}

impl State {
    /// Whether lines that came earlier are still unwritten.
    fn is_behind(&self) -> bool {
        !self.waiting.is_empty() || self.is_writing || self.dropped > 0
    }
}

impl<W: LogTarget + Send + Sync + 'static> LogOutput<W> {
    /// Makes an output. `report_dropped` logs one line about a number of dropped lines.
    pub fn new(target: W, report_dropped: fn(u64)) -> Self {
        let shared = Shared {
            target,
            report_dropped,
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
        };
        LogOutput {
            shared: Arc::new(shared),
        }
    }

    /// Writes a line, or queues what the descriptor does not take at once. A closed descriptor
    /// swallows it.
    pub fn write(&self, line: &[u8]) {
        let mut state = lock(&self.shared.state);
        self.erase_status(&mut state);
        let mut rest = line;
        while !state.is_behind() && !rest.is_empty() {
            match self.shared.target.write_at_once(rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return,
            }
        }
        if rest.is_empty() {
            return;
        }
        // A line that is longer than the bound passes alone: its first part may be written already.
        let is_full = !state.waiting.is_empty() && state.waiting_bytes + rest.len() > LOG_WAITING_BYTES_MAX;
        if state.dropped > 0 || is_full {
            state.dropped += 1;
            return;
        }
        state.waiting_bytes += rest.len();
        state.waiting.push_back(rest.to_vec());
        if !state.has_thread {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name("log".into());
            // Without a thread the line waits for the next one, which tries again.
            state.has_thread = thread.spawn(move || shared.write_waiting()).is_ok();
        }
        self.shared.work.notify_one();
    }

    /// Shows a text in the last row of a terminal, in place of an earlier one, until the next line.
    /// A terminal that does not take it at once loses it.
    pub fn show_status(&self, text: &str) {
        let mut state = lock(&self.shared.state);
        if state.is_behind() || state.other_writers > 0 {
            return;
        }
        let row = format!("{ERASE_ROW}{text}");
        state.has_status |= self.shared.target.write_at_once(row.as_bytes()).is_ok();
    }

    /// Erases that text.
    pub fn clear_status(&self) {
        self.erase_status(&mut lock(&self.shared.state));
    }

    /// Calls `write`, which writes to another stream of the terminal, while no status is shown.
    /// Lines are written as always.
    pub fn without_status<T>(&self, write: impl FnOnce() -> T) -> T {
        let mut state = lock(&self.shared.state);
        self.erase_status(&mut state);
        state.other_writers += 1;
        drop(state);
        let result = write();
        lock(&self.shared.state).other_writers -= 1;
        result
    }

    fn erase_status(&self, state: &mut State) {
        if std::mem::take(&mut state.has_status) {
            // Where it stays, it is a begin of the next line.
            let _ = self.shared.target.write_at_once(ERASE_ROW.as_bytes());
        }
    }

    /// Waits until each line is written, for the time `within` at most.
    pub fn flush(&self, within: Duration) {
        let state = lock(&self.shared.state);
        let is_unfinished = |state: &mut State| state.is_behind() || state.is_reporting;
        drop(self.shared.done.wait_timeout_while(state, within, is_unfinished));
    }
}

impl<W: LogTarget> Shared<W> {
    /// Writes the lines that wait, for the rest of the process's life.
    fn write_waiting(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(line) = state.waiting.pop_front() {
                state.is_writing = true;
                drop(state);
                self.target.write_whole(&line);
                state = lock(&self.state);
                state.is_writing = false;
                state.waiting_bytes -= line.len();
            } else if state.dropped > 0 {
                let dropped = std::mem::take(&mut state.dropped);
                state.is_reporting = true;
                drop(state);
                (self.report_dropped)(dropped);
                state = lock(&self.state);
                state.is_reporting = false;
            } else {
                self.done.notify_all();
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// A descriptor.
pub struct LogDescriptor<W> {
    descriptor: W,
    terminal: LogTerminal,
}

/// What the descriptor of a terminal needs. One that is ready may have room for a part of a line
/// alone, and a write then waits for the terminal to read.
enum LogTerminal {
    /// It is none.
    None,
    /// It is written to by a description of this process, which does not wait. That of the
    /// descriptor belongs to other programs too.
    Opened(OwnedFd),
    /// It cannot be opened. Each line goes to the thread.
    Closed,
}

impl<W: AsFd> LogDescriptor<W> {
    pub fn new(descriptor: W) -> Self {
        let fd = descriptor.as_fd();
        let terminal = match fd.is_terminal() {
            true => opened_again(fd).map_or(LogTerminal::Closed, LogTerminal::Opened),
            false => LogTerminal::None,
        };
        LogDescriptor { descriptor, terminal }
    }
}

/// Opens the terminal of a descriptor once more, so that writes do not wait.
fn opened_again(terminal: BorrowedFd<'_>) -> Option<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    #[cfg(target_os = "linux")]
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&terminal));
    // Elsewhere a path below `/dev/fd` shares the description.
    #[cfg(not(target_os = "linux"))]
    let path = rustix::termios::ttyname(terminal, Vec::new()).ok()?;
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).ok()
}

impl<W: AsFd> LogTarget for LogDescriptor<W> {
    fn write_at_once(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match &self.terminal {
            LogTerminal::Opened(terminal) => return rustix::io::write(terminal, bytes),
            LogTerminal::Closed => return Err(Errno::AGAIN),
            LogTerminal::None => {}
        }
        let descriptor = &self.descriptor;
        #[cfg(target_os = "linux")]
        {
            use rustix::io::{ReadWriteFlags, pwritev2};
            // The maximum is the current position. Named pipes, old kernels and filters of system
            // calls refuse it, each with an error of its own.
            let buffers = [std::io::IoSlice::new(bytes)];
            let result = pwritev2(descriptor, &buffers, u64::MAX, ReadWriteFlags::NOWAIT);
            if matches!(result, Ok(_) | Err(Errno::AGAIN | Errno::INTR)) {
                return result;
            }
        }
        let mut ready = [PollFd::new(descriptor, PollFlags::OUT)];
        match poll(&mut ready, Some(&Timespec::default()))? {
            0 => Err(Errno::AGAIN),
            _ => rustix::io::write(descriptor, bytes.get(..WRITE_BYTES_MAX).unwrap_or(bytes)),
        }
    }

    fn write_whole(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match rustix::io::write(&self.descriptor, bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                // Another process that shares it has made it non-blocking.
                Err(Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(&self.descriptor, PollFlags::OUT)], None);
                }
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read as _, pipe};
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Longer than any test takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Makes an output on a pipe, and fills the pipe if it `is_full`. Returns its bytes as well.
    fn output(is_full: bool, report_dropped: fn(u64)) -> (LogOutput<LogDescriptor<PipeWriter>>, PipeReader, usize) {
        let (reader, writer) = pipe().expect("a pipe");
        let writer = LogDescriptor::new(writer);
        let mut filled = 0;
        while is_full && let Ok(count) = writer.write_at_once(b"x") {
            filled += count;
        }
        (LogOutput::new(writer, report_dropped), reader, filled)
    }

    fn read(mut reader: &PipeReader, count: usize) -> String {
        let mut bytes = vec![0; count];
        reader.read_exact(&mut bytes).expect("the bytes come");
        String::from_utf8(bytes).expect("text")
    }

    /// While the reader reads, the caller writes: no thread is started.
    #[test]
    fn a_line_is_written_at_once() {
        let (output, reader, _) = output(false, |_| ());
        output.write(b"one\n");
        output.write(b"two\n");
        assert_eq!(read(&reader, 8), "one\ntwo\n");
        assert!(!lock(&output.shared.state).has_thread);
    }

    /// Lines for a full pipe wait without blocking their callers, and come in order.
    #[test]
    fn lines_wait_for_a_reader_that_stopped() {
        let (output, reader, filled) = output(true, |_| ());
        for line in ["one\n", "two\n", "three\n"] {
            output.write(line.as_bytes());
        }
        assert_eq!(read(&reader, filled).len(), filled);
        assert_eq!(read(&reader, 14), "one\ntwo\nthree\n");
        output.flush(PATIENCE);
        output.write(b"four\n");
        assert_eq!(read(&reader, 5), "four\n");
    }

    /// A terminal that no one reads has room for a part of the last line. The lines wait behind it,
    /// and their callers do not.
    #[cfg(target_os = "linux")]
    #[test]
    fn lines_wait_for_a_terminal_that_stopped() {
        use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master)
            .and_then(|()| unlockpt(&master))
            .expect("it may be opened");
        let terminal = ioctl_tiocgptpeer(&master, flags).expect("its other end");
        let output = LogOutput::new(LogDescriptor::new(terminal), |_| ());
        let lines: String = (0..2_000).map(|number| format!("line {number}\n")).collect();
        lines
            .split_inclusive('\n')
            .for_each(|line| output.write(line.as_bytes()));
        assert!(
            lock(&output.shared.state).is_behind(),
            "there was room for {} bytes",
            lines.len()
        );
        // It writes a carriage return before each line feed.
        let mut screen = std::fs::File::from(master);
        let mut shown = vec![0; lines.len() + 2_000];
        screen.read_exact(&mut shown).expect("the lines come");
        assert_eq!(String::from_utf8(shown).expect("text").replace('\r', ""), lines);
    }

    /// The queue is bounded: what does not fit is counted, and reported once the rest is written.
    #[test]
    fn lines_beyond_the_bound_are_dropped_and_reported() {
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let (output, reader, filled) = output(true, |dropped| {
            DROPPED.fetch_add(dropped, Ordering::SeqCst);
        });
        let line = [b'l'; 1_024];
        // The thread holds one line or has yet to take it.
        let written = LOG_WAITING_BYTES_MAX / line.len() + 10;
        (0..written).for_each(|_| output.write(&line));
        let (waiting, dropped) = {
            let state = lock(&output.shared.state);
            assert!(state.waiting_bytes <= LOG_WAITING_BYTES_MAX);
            (state.waiting_bytes / line.len(), state.dropped)
        };
        assert_eq!((waiting, dropped), (written - 10, 10));
        output.write(b"small\n");
        assert_eq!(DROPPED.load(Ordering::SeqCst), 0);
        read(&reader, filled + waiting * line.len());
        output.flush(PATIENCE);
        assert_eq!(DROPPED.load(Ordering::SeqCst), 11);
        output.write(b"again\n");
        assert_eq!(read(&reader, 6), "again\n");
    }

    /// Each line erases the status, which is no line; a target that takes nothing now loses it.
    #[test]
    fn a_status_is_erased_before_the_next_line() {
        let (output, reader, _) = output(false, |_| ());
        output.show_status("level 1");
        output.show_status("level 2");
        output.write(b"line\n");
        output.write(b"line\n");
        output.show_status("level 3");
        output.clear_status();
        output.clear_status();
        let expected = "\r\x1b[Klevel 1\r\x1b[Klevel 2\r\x1b[Kline\nline\n\r\x1b[Klevel 3\r\x1b[K";
        assert_eq!(read(&reader, expected.len()), expected);
        let (output, reader, filled) = self::output(true, |_| ());
        output.show_status("level");
        output.write(b"line\n");
        output.show_status("level");
        assert_eq!(read(&reader, filled + 5).trim_start_matches('x'), "line\n");
    }

    /// What another stream of the terminal shows has no status before it in its row.
    #[test]
    fn no_status_is_shown_while_another_stream_is_written() {
        let (output, reader, _) = output(false, |_| ());
        output.show_status("level 1");
        let result = output.without_status(|| {
            output.show_status("level 2");
            output.write(b"line\n");
            "written"
        });
        assert_eq!(result, "written");
        output.show_status("level 3");
        let expected = "\r\x1b[Klevel 1\r\x1b[Kline\n\r\x1b[Klevel 3";
        assert_eq!(read(&reader, expected.len()), expected);
    }

    /// A flush ends although the pipe is not read.
    #[test]
    fn a_flush_is_bounded() {
        let (output, _reader, _) = output(true, |_| ());
        output.write(b"unread\n");
        output.flush(Duration::ZERO);
        assert!(lock(&output.shared.state).is_behind());
    }

    /// A closed pipe swallows lines, also those that wait.
    #[test]
    fn a_closed_pipe_swallows_lines() {
        let (output, reader, _) = output(true, |_| ());
        output.write(b"unread\n");
        drop(reader);
        output.flush(PATIENCE);
        output.write(b"unread\n");
        assert!(!lock(&output.shared.state).is_behind());
    }
}
