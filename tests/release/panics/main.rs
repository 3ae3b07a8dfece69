//! Proves that a program with this unwinder catches panics, as the runner does for bots: four
//! threads each panic 200 frames deep, again and again, and every destructor on the way runs.
//!
//! Out: `caught N, dropped M`, or an abort.

use std::hint::black_box;
use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const THREADS: usize = 4;
const PANICS: usize = 50;
const FRAMES: usize = 200;

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

#[inline(never)]
fn descend(frames: usize) -> usize {
    let _counted = Counted;
    assert!(black_box(frames) > 1, "at the bottom");
    black_box(descend(frames - 1)) + 1
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            thread::spawn(|| {
                let attempts = (0..PANICS).map(|_| panic::catch_unwind(|| descend(FRAMES)));
                attempts.filter(Result::is_err).count()
            })
        })
        .collect();
    let caught: usize = threads
        .into_iter()
        .map(|thread| thread.join().expect("it catches"))
        .sum();
    println!("caught {caught}, dropped {}", DROPPED.load(Ordering::Relaxed));
    assert_eq!(caught, THREADS * PANICS);
    assert_eq!(DROPPED.load(Ordering::Relaxed), THREADS * PANICS * FRAMES);
}
