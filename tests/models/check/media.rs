//! The queues between a transport and its bot.

use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;

use crate::bot::media::{Audio, Event, LeaveReason, MediaError, TransportSide, pair};
use crate::limits::{AUDIO_OUT_QUEUE, MARKS_MAX};

const RATE_HZ: u32 = 8_000;

/// Samples that the queue to the transport holds.
fn samples_max() -> usize {
    RATE_HZ as usize * AUDIO_OUT_QUEUE.as_millis() as usize / 1_000
}

/// Takes speech until it has `count` samples.
fn take(transport: &TransportSide, count: usize) -> Vec<i16> {
    let mut taken = Vec::new();
    while taken.len() < count {
        // New rates and interruptions come before speech.
        transport.audio();
        transport.take_interruption();
        assert!(
            transport.waiting().speech <= AUDIO_OUT_QUEUE + Duration::from_millis(1),
            "too long a queue"
        );
        if transport.take_audio(&mut taken, samples_max() / 2) == 0 {
            block_on(transport.notified());
        }
    }
    taken
}

/// Frames above the cap are dropped, the oldest first, and each is counted once. What is left
/// arrives in order, and the end arrives last.
pub fn events_arrive_or_are_counted() {
    const FRAMES_MAX: usize = 2;
    const FRAMES: i16 = 5;
    let (transport, slot) = pair(FRAMES_MAX);
    let (mut events, _output) = slot.open(Audio::at(RATE_HZ)).split();
    let pushing = thread::spawn(move || {
        for frame in 0..FRAMES {
            transport.push_audio(&[frame], RATE_HZ);
            assert!(transport.waiting().frames <= FRAMES_MAX, "the bound is passed");
        }
        transport.push(Event::Message("a message".to_owned()));
        transport.push(Event::Left(LeaveReason::Left));
        transport.dropped().frames_in
    });
    let (mut frames, mut messages, mut has_left) = (Vec::new(), 0, false);
    while let Some(event) = block_on(events.recv()) {
        assert!(!has_left, "an event after the last one");
        match event {
            Event::Audio(frame) => frames.push(frame[0]),
            Event::Message(_) => messages += 1,
            Event::Left(_) => has_left = true,
            _ => unreachable!("not pushed"),
        }
    }
    let dropped = pushing.join().expect("no panic");
    assert!(frames.is_sorted() && has_left && messages == 1);
    assert_eq!(
        frames.len() as u64 + dropped,
        FRAMES as u64,
        "a frame is lost or counted twice"
    );
}

/// A frame alone wakes the bot, and the bot's answer alone wakes the transport.
pub fn a_frame_and_its_answer_arrive() {
    let (transport, slot) = pair(2);
    let (mut events, output) = slot.open(Audio::at(RATE_HZ)).split();
    let bot = thread::spawn(move || {
        assert!(matches!(block_on(events.recv()), Some(Event::Audio(_))));
        output.send_message("an answer").expect("the session lives");
    });
    transport.push_audio(&[0], RATE_HZ);
    while transport.take_message().is_none() {
        block_on(transport.notified());
    }
    bot.join().expect("no panic");
}

/// The transport ends while the bot waits, for events and for room in the queue.
pub fn the_end_wakes_the_bot() {
    let (transport, slot) = pair(2);
    let (mut events, output) = slot.open(Audio::at(RATE_HZ)).split();
    let hearing = thread::spawn(move || assert!(block_on(events.recv()).is_none()));
    let speech = vec![0; samples_max() + 1];
    let speaking = thread::spawn(move || assert_eq!(block_on(output.send_audio(&speech)), Err(MediaError)));
    drop(transport);
    hearing.join().expect("no panic");
    speaking.join().expect("no panic");
}

/// More speech than the queue holds arrives whole and in order, whatever the transport does
/// meanwhile; the new rate comes behind it.
pub fn speech_arrives_whole() {
    let (transport, slot) = pair(2);
    let (_events, output) = slot.open(Audio::at(RATE_HZ)).split();
    let count = 2 * samples_max() + 1;
    let speaking = thread::spawn(move || {
        let speech: Vec<i16> = (0..count).map(|sample| sample as i16).collect();
        block_on(output.send_audio(&speech)).expect("the session lives");
        block_on(output.set_rate(2 * RATE_HZ)).expect("the session lives");
        output
    });
    let taken = take(&transport, count);
    assert!(
        taken.iter().enumerate().all(|(at, sample)| *sample == at as i16),
        "not in order"
    );
    let output = speaking.join().expect("no panic");
    assert_eq!(transport.audio().map(|audio| audio.out_rate_hz), Some(2 * RATE_HZ));
    drop(output);
}

/// An interruption drops the speech of a bot that waits, which goes on; its next speech arrives.
pub fn an_interruption_wakes_the_bot() {
    let (transport, slot) = pair(2);
    let (_events, output) = slot.open(Audio::at(RATE_HZ)).split();
    let other = output.clone();
    let waiting = thread::spawn(move || {
        let speech = vec![1; samples_max() + 1];
        block_on(other.send_audio(&speech)).expect("the session lives");
    });
    let interrupting = {
        let output = output.clone();
        thread::spawn(move || output.interrupt())
    };
    let transport = thread::spawn(move || {
        let mut last = Vec::new();
        while last.last() != Some(&2) {
            last = take(&transport, 1);
        }
    });
    waiting.join().expect("no panic");
    interrupting.join().expect("no panic");
    block_on(output.send_audio(&[2])).expect("the session lives");
    transport.join().expect("no panic");
}

/// A bot that sets marks and interrupts them without a pause fills no memory.
pub fn marks_are_bounded() {
    let (transport, slot) = pair(2);
    let (_events, output) = slot.open(Audio::at(RATE_HZ)).split();
    let bot = thread::spawn(move || {
        for _ in 0..4 {
            for _ in 0..MARKS_MAX {
                output.mark("a mark").expect("the session lives");
            }
            output.interrupt();
        }
    });
    assert!(transport.take_unplayed_marks().len() < 2 * MARKS_MAX);
    bot.join().expect("no panic");
    assert!(transport.take_unplayed_marks().len() < 2 * MARKS_MAX);
}
