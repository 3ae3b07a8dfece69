//! Tests of both sides of a session's media: order, caps, waits and ends.
//!
//! Futures are polled by hand, so nothing depends on time.

use std::pin::pin;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::transport_side::MediaDrops;
use super::*;
use crate::allocations;
use crate::limits::{
    AUDIO_IN_FRAMES_MAX, EVENTS_IN_MAX, MESSAGE_BYTES_MAX, MESSAGES_IN_BYTES_MAX, MESSAGES_OUT_BYTES_MAX,
    MESSAGES_OUT_MAX, ROOM_PARTICIPANTS_MAX,
};

fn open() -> (TransportSide, Media) {
    let (transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
    let media = slot.open(Audio::at(16_000));
    assert_eq!(transport_side.audio().map(|audio| audio.in_rate_hz), Some(16_000));
    (transport_side, media)
}

/// Polls a future once and returns its value if it is ready.
fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Takes the next event.
fn next(media: &mut Media) -> Event {
    ready(media.recv())
        .expect("an event is there")
        .expect("the session goes on")
}

/// Takes all queued events, each as a short text.
fn words(media: &mut Media) -> Vec<String> {
    let mut words = Vec::new();
    while let Some(Some(event)) = ready(media.recv()) {
        words.push(match event {
            Event::Audio(frame) => format!("audio {}", frame[0]),
            Event::Message(text) => format!("message {text}"),
            other => format!("{other:?}"),
        });
    }
    words
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn events_arrive_in_order_and_wake_the_bot() {
    let (transport_side, mut media) = open();
    let wakes = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    {
        let mut waiting = pin!(media.recv());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        transport_side.push(Event::Joined);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(matches!(
            waiting.as_mut().poll(&mut context),
            Poll::Ready(Some(Event::Joined))
        ));
    }
    transport_side.push_audio(&[7, 8], 48_000);
    transport_side.push(Event::Message("a".to_owned()));
    transport_side.push(Event::Dtmf('#'));
    transport_side.push_audio(&[9], 48_000);
    match next(&mut media) {
        Event::Audio(frame) => assert_eq!((&frame[..], frame.rate_hz()), (&[7, 8][..], 48_000)),
        other => panic!("{other:?}"),
    }
    assert_eq!(words(&mut media), ["message a", "Dtmf('#')", "audio 9"]);
}

#[test]
fn a_dropped_recv_future_loses_no_event() {
    let (transport_side, mut media) = open();
    {
        let mut waiting = pin!(media.recv());
        assert!(
            waiting
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        transport_side.push(Event::Lost);
    }
    assert!(matches!(next(&mut media), Event::Lost));
}

#[test]
fn a_full_inbound_queue_drops_the_oldest_audio_and_nothing_else() {
    let (transport_side, mut media) = open();
    transport_side.push(Event::Joined);
    let frames = AUDIO_IN_FRAMES_MAX as i16;
    for count in 0..frames {
        transport_side.push_audio(&[count], 16_000);
    }
    assert_eq!(
        transport_side.dropped(),
        MediaDrops::default(),
        "the queue holds that much"
    );
    transport_side.push(Event::Message("x".to_owned()));
    for count in frames..frames + 3 {
        transport_side.push_audio(&[count], 16_000);
    }
    assert_eq!(transport_side.dropped().frames_in, 3);

    let words = words(&mut media);
    assert_eq!(words.len(), 2 + AUDIO_IN_FRAMES_MAX);
    assert_eq!((words[0].as_str(), words[1].as_str()), ("Joined", "audio 3"));
    let after_message = words.iter().skip_while(|word| *word != "message x").nth(1);
    assert_eq!(after_message, Some(&format!("audio {frames}")));
}

#[test]
fn audio_pushed_as_an_event_counts_as_audio() {
    let (transport_side, mut media) = open();
    for count in 0..AUDIO_IN_FRAMES_MAX as i16 + 1 {
        transport_side.push(Event::Audio(AudioFrame::new(vec![count], 16_000)));
    }
    assert_eq!(
        (transport_side.dropped().frames_in, transport_side.dropped().events_in),
        (1, 0)
    );
    assert_eq!(words(&mut media).len(), AUDIO_IN_FRAMES_MAX);
}

/// A caller that floods the bot loses its own messages and no other event.
#[test]
fn a_flood_of_messages_drops_only_messages() {
    let (transport_side, mut media) = open();
    transport_side.push(Event::Joined);
    for count in 0..EVENTS_IN_MAX - 1 {
        transport_side.push(Event::Message(count.to_string()));
    }
    assert_eq!(transport_side.dropped().events_in, 0, "the queue holds that many");
    for count in 0..10 {
        transport_side.push(Event::Message(format!("late {count}")));
    }
    transport_side.push(Event::SpeechStopped);
    transport_side.push(Event::Left(LeaveReason::Left));
    assert_eq!(transport_side.dropped().events_in, 12);
    let words = words(&mut media);
    assert_eq!(words.len(), EVENTS_IN_MAX);
    assert_eq!((words[0].as_str(), words[1].as_str()), ("Joined", "message 12"));
    assert_eq!(
        words[EVENTS_IN_MAX - 3..],
        ["message late 9", "SpeechStopped", "Left(Left)"]
    );
}

/// `Speaking` events are dropped before any other event, and the participants of a full room fit.
#[test]
fn speaking_events_are_dropped_before_messages() {
    let (transport_side, mut media) = open();
    for count in 0..ROOM_PARTICIPANTS_MAX {
        let mut participant = Participant::default();
        participant.identity = count.to_string().into();
        transport_side.push(Event::ParticipantJoined(participant));
    }
    transport_side.push(Event::Joined);
    transport_side.push(Event::Message("hello".to_owned()));
    assert_eq!(transport_side.dropped().events_in, 0);
    for count in 0..2 * EVENTS_IN_MAX {
        transport_side.push(Event::Speaking {
            identity: "ann".into(),
            speaking: count % 2 == 0,
        });
    }
    let words = words(&mut media);
    assert_eq!(words.len(), EVENTS_IN_MAX);
    assert!(words.iter().any(|word| word == "message hello"));
    assert!(words.iter().any(|word| word == "Joined"));
}

#[test]
fn events_without_messages_are_bounded_too() {
    let (transport_side, mut media) = open();
    for key in 0..=EVENTS_IN_MAX {
        transport_side.push(Event::Dtmf(if key == 0 { '0' } else { '1' }));
    }
    assert_eq!(transport_side.dropped().events_in, 1);
    assert!(matches!(next(&mut media), Event::Dtmf('1')));
}

#[test]
fn queued_messages_are_bounded_in_bytes_both_ways() {
    let (transport_side, mut media) = open();
    let long = "x".repeat(MESSAGE_BYTES_MAX);
    let fit = MESSAGES_IN_BYTES_MAX / MESSAGE_BYTES_MAX;
    for _ in 0..fit {
        transport_side.push(Event::Message(long.clone()));
    }
    assert_eq!(transport_side.dropped().events_in, 0);
    transport_side.push(Event::Message("y".to_owned()));
    assert_eq!(transport_side.dropped().events_in, 1);
    assert_eq!(words(&mut media).len(), fit);
    assert_eq!(lock(&transport_side.0.inbound).message_bytes, 0);
    transport_side.push(Event::Message("x".repeat(MESSAGES_IN_BYTES_MAX + 1)));
    assert_eq!(words(&mut media).len(), 0, "the text is above the cap");
    assert_eq!(lock(&transport_side.0.inbound).message_bytes, 0);

    let fit = MESSAGES_OUT_BYTES_MAX / MESSAGE_BYTES_MAX;
    for _ in 0..fit {
        media.send_message(long.clone()).expect("the session goes on");
    }
    assert_eq!(transport_side.dropped().messages_out, 0);
    media.send_message("y").expect("the session goes on");
    assert_eq!(transport_side.dropped().messages_out, 1);
    assert_eq!(std::iter::from_fn(|| transport_side.take_message()).count(), fit);
    assert_eq!(lock(&transport_side.0.outbound).text_bytes, 0);
}

#[test]
fn queued_messages_to_the_caller_are_bounded_in_number() {
    let (transport_side, media) = open();
    for count in 0..=MESSAGES_OUT_MAX {
        media.send_message(count.to_string()).expect("the session goes on");
    }
    assert_eq!(transport_side.dropped().messages_out, 1);
    let texts: Vec<String> = std::iter::from_fn(|| transport_side.take_message()).collect();
    assert_eq!((texts.len(), texts[0].as_str()), (MESSAGES_OUT_MAX, "1"));
    assert_eq!(texts.last(), Some(&MESSAGES_OUT_MAX.to_string()));
}

/// A full queue takes no report, and a message displaces reports without counting them.
#[test]
fn reports_displace_no_messages() {
    let (transport_side, media) = open();
    media.output().report("r".to_owned());
    for count in 1..MESSAGES_OUT_MAX {
        media.send_message(count.to_string()).expect("the session goes on");
    }
    media.output().report("late".to_owned());
    media.output().report("x".repeat(MESSAGES_OUT_BYTES_MAX));
    media.send_message("last").expect("the session goes on");
    assert_eq!(transport_side.dropped().messages_out, 0);
    let texts: Vec<OutboundText> = std::iter::from_fn(|| transport_side.take_text()).collect();
    assert_eq!(texts.len(), MESSAGES_OUT_MAX);
    assert!(texts.iter().all(|text| matches!(text, OutboundText::Message(_))));
    assert_eq!(lock(&transport_side.0.outbound).text_bytes, 0);
}

/// 500 ms at 16 kHz are 8000 samples; the sample after them waits until the transport has taken
/// some.
#[test]
fn a_full_outbound_queue_makes_the_bot_wait() {
    let (transport_side, media) = open();
    let pcm: Vec<i16> = (0..8_400).map(|count| count as i16).collect();
    assert_eq!(ready(media.send_audio(&pcm[..8_000])), Some(Ok(())));
    assert_eq!(ready(media.send_audio(&[])), Some(Ok(())), "nothing always fits");

    let wakes = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    let mut sending = pin!(media.send_audio(&pcm[8_000..]));
    assert!(sending.as_mut().poll(&mut context).is_pending());
    let mut taken = Vec::new();
    assert_eq!(transport_side.take_audio(&mut taken, 320), 320);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert!(
        sending.as_mut().poll(&mut context).is_pending(),
        "80 samples have no room yet"
    );
    assert_eq!(transport_side.take_audio(&mut taken, 320), 320);
    assert_eq!(sending.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    while transport_side.take_audio(&mut taken, 999) > 0 {}
    assert_eq!(taken, pcm, "in order, nothing twice, nothing lost");
    assert!(!transport_side.has_audio());
    assert_eq!(transport_side.take_audio(&mut taken, 320), 0);
}

#[test]
fn an_interruption_releases_a_waiting_send_audio() {
    let (transport_side, media) = open();
    let voice = media.output().clone();
    let mut context = Context::from_waker(Waker::noop());
    let pcm = [1; 20_000];
    {
        let mut sending = pin!(media.send_audio(&pcm));
        assert!(sending.as_mut().poll(&mut context).is_pending());
        voice.interrupt();
        assert!(!transport_side.has_audio());
        assert_eq!(sending.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    }
    assert!(!transport_side.has_audio(), "what waited is gone with what was queued");
    assert!(transport_side.take_interruption());
    assert!(!transport_side.take_interruption(), "it is told once");

    assert_eq!(ready(media.send_audio(&[5; 10])), Some(Ok(())));
    let mut taken = Vec::new();
    transport_side.take_audio(&mut taken, 100);
    assert_eq!(taken, [5; 10], "speech after the interruption is heard");
}

/// A transport may ask for speech before it takes an interruption or new rates. It must not drop
/// the new speech with the interrupted speech, nor play it at the old rate.
#[test]
fn speech_waits_until_earlier_changes_are_taken() {
    let (transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
    let media = slot.open(Audio::at(16_000));
    let mut taken = Vec::new();
    let mut take = || {
        taken.clear();
        transport_side.take_audio(&mut taken, 100)
    };
    assert_eq!(ready(media.send_audio(&[1; 10])), Some(Ok(())));
    assert_eq!(take(), 0, "the rates are not known");
    assert!(transport_side.audio().is_some());
    assert_eq!(take(), 10);

    media.interrupt();
    assert_eq!(ready(media.send_audio(&[2; 20])), Some(Ok(())));
    media.output().mark("m").expect("the session goes on");
    assert_eq!((take(), transport_side.take_mark()), (0, None));
    assert!(transport_side.take_interruption());
    assert_eq!((take(), transport_side.take_mark().as_deref()), (20, Some("m")));

    assert_eq!(ready(media.output().set_rate(8_000)), Some(Ok(())));
    assert_eq!(ready(media.send_audio(&[3; 30])), Some(Ok(())));
    assert_eq!(take(), 0);
    assert_eq!(transport_side.audio().map(|audio| audio.out_rate_hz), Some(8_000));
    assert_eq!(take(), 30);
}

#[test]
fn messages_overtake_queued_speech() {
    let (transport_side, media) = open();
    assert_eq!(ready(media.send_audio(&[1; 8_000])), Some(Ok(())));
    media.send_message("now").expect("the session goes on");
    assert_eq!(transport_side.take_message().as_deref(), Some("now"));
    assert_eq!(transport_side.take_message(), None);
}

#[test]
fn every_action_of_the_bot_wakes_the_transport() {
    let (transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
    assert_eq!(transport_side.audio(), None);
    assert!(ready(transport_side.notified()).is_none());
    let media = slot.open(Audio {
        in_rate_hz: 1,
        out_rate_hz: 1_000_000,
        ..Audio::default()
    });
    assert!(ready(transport_side.notified()).is_some());
    let rates = transport_side.audio().expect("the bot has opened its media");
    assert_eq!(
        (rates.in_rate_hz, rates.out_rate_hz),
        (8_000, 48_000),
        "rates are brought into range"
    );
    assert_eq!(Audio::at(44_100).in_rate_hz, 44_100);

    type Deed = fn(&Media);
    let deeds: [Deed; 3] = [
        |media| assert_eq!(ready(media.send_audio(&[0])), Some(Ok(()))),
        |media| assert_eq!(media.send_message("x"), Ok(())),
        |media| media.interrupt(),
    ];
    for deed in deeds {
        assert!(ready(transport_side.notified()).is_none());
        deed(&media);
        assert!(ready(transport_side.notified()).is_some());
    }
}

#[test]
fn no_event_follows_the_end() {
    let (transport_side, mut media) = open();
    transport_side.push(Event::Left(LeaveReason::Vanished));
    transport_side.push(Event::Joined);
    transport_side.push_audio(&[1], 16_000);
    assert!(matches!(next(&mut media), Event::Left(LeaveReason::Vanished)));
    assert!(matches!(ready(media.recv()), Some(None)));
    assert!(matches!(ready(media.recv()), Some(None)));
    assert_eq!(ready(media.send_audio(&[1])), Some(Ok(())), "last words still leave");
}

#[test]
fn dropping_the_transport_side_ends_every_wait() {
    let (transport_side, mut media) = open();
    let voice = media.output().clone();
    transport_side.push(Event::Joined);
    let pcm = [0; 9_000];
    let wakes = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    let mut sending = pin!(voice.send_audio(&pcm));
    assert!(sending.as_mut().poll(&mut context).is_pending());
    assert!(matches!(next(&mut media), Event::Joined));
    let mut waiting = pin!(media.recv());
    assert!(waiting.as_mut().poll(&mut context).is_pending());

    drop(transport_side);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
    assert_eq!(sending.as_mut().poll(&mut context), Poll::Ready(Err(MediaError)));
    assert!(matches!(waiting.as_mut().poll(&mut context), Poll::Ready(None)));
    assert_eq!(ready(voice.send_audio(&[1])), Some(Err(MediaError)));
    assert_eq!(voice.send_message("x"), Err(MediaError));
}

/// Events that were queued before the transport side was dropped can still be read.
#[test]
fn queued_events_are_read_after_the_transport_side_is_dropped() {
    let (transport_side, mut media) = open();
    transport_side.push_audio(&[1], 16_000);
    transport_side.push(Event::Left(LeaveReason::Failed));
    drop(transport_side);
    assert_eq!(words(&mut media), ["audio 1", "Left(Failed)"]);
}

#[test]
fn the_buffer_of_a_frame_is_reused() {
    let (transport_side, mut media) = open();
    let free_buffers = || lock(&transport_side.0.inbound).free_buffers.len();
    transport_side.push_audio(&[1; 320], 16_000);
    let held = next(&mut media);
    assert_eq!(free_buffers(), 0, "the bot holds it");
    let address = match &held {
        Event::Audio(frame) => frame.as_ptr(),
        other => panic!("{other:?}"),
    };
    drop(held);
    assert_eq!(free_buffers(), 1);
    transport_side.push_audio(&[2; 320], 16_000);
    assert_eq!(free_buffers(), 0);
    match next(&mut media) {
        Event::Audio(frame) => assert_eq!((frame.as_ptr(), &frame[..]), (address, &[2; 320][..])),
        other => panic!("{other:?}"),
    }

    // A bot that holds many frames and drops them together leaves at most one queue of buffers.
    let mut gathered = Vec::new();
    for _ in 0..2 * AUDIO_IN_FRAMES_MAX {
        transport_side.push_audio(&[3; 320], 16_000);
        gathered.push(next(&mut media));
    }
    drop(gathered);
    assert_eq!(free_buffers(), AUDIO_IN_FRAMES_MAX);
}

/// Frames keep nothing alive once both sides and the last frame are dropped.
#[test]
fn queues_are_freed_with_the_last_frame() {
    let (transport_side, mut media) = open();
    let shared: Weak<MediaQueues> = Arc::downgrade(&transport_side.0);
    for _ in 0..5 {
        transport_side.push_audio(&[1; 320], 16_000);
    }
    drop(next(&mut media));
    let held = next(&mut media);
    let voice = media.output().clone();
    assert_eq!(ready(voice.send_audio(&[1; 100])), Some(Ok(())));
    drop((transport_side, media, voice));
    assert_eq!(shared.strong_count(), 1, "the frame that the bot still holds");
    drop(held);
    assert!(shared.upgrade().is_none());
}

#[test]
fn queues_work_after_a_bot_panics_with_the_locks_held() {
    let (transport_side, mut media) = open();
    let shared = transport_side.0.clone();
    let panicked = std::thread::spawn(move || {
        let _inbound = shared.inbound.lock();
        let _outbound = shared.outbound.lock();
        panic!("a panic that the test needs");
    })
    .join();
    assert!(panicked.is_err());
    transport_side.push(Event::Joined);
    assert!(matches!(next(&mut media), Event::Joined));
    media.send_message("x").expect("the session goes on");
    assert_eq!(transport_side.take_message().as_deref(), Some("x"));
}

#[test]
fn speech_never_reaches_a_log() {
    let event = Event::Audio(AudioFrame::new(vec![1234, -1234], 16_000));
    assert_eq!(format!("{event:?}"), "Audio(AudioFrame(2 samples at 16000 Hz))");
}

/// A dropped frame's buffer serves a later frame, so a running session allocates nothing for audio.
#[test]
fn audio_of_a_running_session_allocates_nothing() {
    let (transport_side, mut media) = open();
    let (frame, mut taken) = ([1; 320], Vec::new());
    for round in 0..200 {
        let ((), allocations) = allocations::of(|| {
            transport_side.push_audio(&frame, 16_000);
            drop(next(&mut media));
            assert_eq!(ready(media.send_audio(&frame)), Some(Ok(())));
            taken.clear();
            transport_side.take_audio(&mut taken, 320);
        });
        // The first rounds grow the buffers.
        assert!(round < 10 || allocations == 0, "round {round}: {allocations}");
    }
}
