//! The queue of log lines, on a target that takes a line at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

use crate::limits::LOG_WAITING_BYTES_MAX;
use crate::lock::lock;
use crate::log_output::{LogOutput, LogTarget};

/// A pipe that holds lines.
#[derive(Clone, Default)]
struct LinePipe(Arc<(Mutex<LinePipeState>, Condvar)>);

#[derive(Default)]
struct LinePipeState {
    /// Lines that it still takes.
    room: usize,
    /// The writer and the number of each line that it took.
    lines: Vec<(u8, u8)>,
}

impl LinePipe {
    fn make_room(&self, lines: usize) {
        lock(&self.0.0).room += lines;
        self.0.1.notify_all();
    }
}

impl LogTarget for LinePipe {
    fn write_at_once(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        let mut state = lock(&self.0.0);
        state.room = state.room.checked_sub(1).ok_or(Errno::AGAIN)?;
        state.lines.push((bytes[0], bytes[1]));
        Ok(bytes.len())
    }

    fn write_whole(&self, bytes: &[u8]) {
        let mut state = lock(&self.0.0);
        while state.room == 0 {
            state = self.0.1.wait(state).expect("no holder panics");
        }
        state.room -= 1;
        state.lines.push((bytes[0], bytes[1]));
    }
}

/// Lines reported as dropped, in the schedule that runs.
static REPORTED: AtomicU64 = AtomicU64::new(0);

/// Two threads log while the reader stops and reads. Each line is written once, in the order of
/// its thread, or counted in one report; at the end the queue is empty, and who waits for that is
/// woken.
pub fn each_line_is_written_or_reported() {
    const LINES: u8 = 3;
    REPORTED.store(0, Ordering::SeqCst);
    let pipe = LinePipe::default();
    let output = Arc::new(LogOutput::new(pipe.clone(), |dropped| {
        REPORTED.fetch_add(dropped, Ordering::SeqCst);
    }));
    let writers = [1, 2].map(|writer| {
        let output = output.clone();
        thread::spawn(move || {
            for number in 0..LINES {
                // Two of them do not wait together.
                let mut line = vec![writer; LOG_WAITING_BYTES_MAX / 2 + 1];
                line[1] = number;
                output.write(&line);
            }
        })
    });
    let reader = {
        let pipe = pipe.clone();
        thread::spawn(move || (0..2 * LINES).for_each(|_| pipe.make_room(1)))
    };
    for thread in writers.into_iter().chain([reader]) {
        thread.join().expect("no panic");
    }
    output.flush(Duration::from_secs(60));
    let lines = lock(&pipe.0.0).lines.clone();
    for writer in [1, 2] {
        let own: Vec<u8> = lines
            .iter()
            .filter(|line| line.0 == writer)
            .map(|line| line.1)
            .collect();
        assert!(
            own.is_sorted_by(|before, after| before < after),
            "out of order, or twice"
        );
    }
    let reported = REPORTED.load(Ordering::SeqCst);
    assert_eq!(
        lines.len() as u64 + reported,
        2 * u64::from(LINES),
        "a line is lost or counted twice"
    );
}
