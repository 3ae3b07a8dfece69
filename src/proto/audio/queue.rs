//! Samples that wait in a queue and are taken in frames.

use std::collections::VecDeque;

/// Moves the oldest `count` samples to the end of `into`. `Vec::extend` would check for room at
/// each sample.
///
/// # Panics
/// If fewer samples wait.
pub fn take_samples(queue: &mut VecDeque<i16>, count: usize, into: &mut Vec<i16>) {
    let (front, back) = queue.as_slices();
    let of_front = count.min(front.len());
    into.extend_from_slice(&front[..of_front]);
    into.extend_from_slice(&back[..count - of_front]);
    queue.drain(..count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_leave_in_order_around_the_end_of_the_ring() {
        let mut queue = VecDeque::with_capacity(8);
        let mut taken = Vec::new();
        let mut next = 0;
        for count in [0, 3, 1, 6, 4, 0, 5] {
            while queue.len() < 6 {
                queue.push_back(next);
                next += 1;
            }
            take_samples(&mut queue, count, &mut taken);
        }
        assert!(queue.capacity() < taken.len(), "the ring has turned");
        assert_eq!(taken, (0..19).collect::<Vec<i16>>());
        assert_eq!(queue.front(), Some(&19));
    }
}
