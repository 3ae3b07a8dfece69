//! The queue in front of a session.

use std::future::poll_fn;

use shuttle::future::block_on;
use shuttle::thread;

use crate::io::inbox_queue::InboxQueue;

const VALUES_MAX: usize = 2;
const READERS: usize = 2;
const VALUES: usize = 3;

/// A value of a reader, or its end.
enum Pushed {
    Value(usize, usize),
    End(usize),
}

/// Two readers of ports push while the task of a session waits. Each value arrives once, in the
/// order of its reader, or is refused, and the task hears of the last one.
pub fn each_value_arrives_or_is_refused() {
    let queue = InboxQueue::new(VALUES_MAX);
    let readers: Vec<_> = (0..READERS)
        .map(|reader| {
            let queue = queue.clone();
            thread::spawn(move || {
                let accepted = (0..VALUES).filter(|value| queue.push(|| Pushed::Value(reader, *value)));
                let accepted = accepted.count();
                while !queue.push(|| Pushed::End(accepted)) {
                    thread::yield_now();
                }
            })
        })
        .collect();
    let (mut arrived, mut accepted, mut ends) = ([const { Vec::new() }; READERS], 0, 0);
    while ends < READERS {
        match block_on(poll_fn(|cx| queue.poll_next(cx))) {
            Pushed::Value(reader, value) => arrived[reader].push(value),
            Pushed::End(count) => {
                accepted += count;
                ends += 1;
            }
        }
    }
    for reader in readers {
        reader.join().expect("no panic");
    }
    assert_eq!(
        arrived.iter().map(Vec::len).sum::<usize>(),
        accepted,
        "a value is lost or doubled"
    );
    for values in arrived {
        assert!(values.is_sorted_by(|one, next| one < next), "{values:?}");
    }
}
