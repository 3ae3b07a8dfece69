//! Tests of a program's media: the transport side of a session on one side, a program's WebSocket
//! on the other, over real loopback.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::*;
use crate::bot::media::{LeaveReason, TransportSide, pair};
use crate::limits::{AUDIO_IN_FRAMES_MAX, PROCESS_IN_SAMPLES_MAX, PROCESS_OUT_SAMPLES_MAX};
use crate::testing::Caller;

/// A limit for tests that would hang; loopback is far faster.
const PATIENCE: Duration = Duration::from_secs(60);

struct Rig {
    transport_side: TransportSide,
    program: WebSocketStream<TcpStream>,
    talk: JoinHandle<MediaEnd>,
    exited: Arc<ProgramSignals>,
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it happens in time")
}

fn begin() -> (TransportSide, JoinHandle<MediaEnd>, Arc<ProgramSignals>, String) {
    begin_with(ProgramSignals::default())
}

fn begin_with(signals: ProgramSignals) -> (TransportSide, JoinHandle<MediaEnd>, Arc<ProgramSignals>, String) {
    let (transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
    let media = PendingMedia::new(UnclaimedMedia::Open(slot.open(Audio::default())));
    let listener = MediaListener::bind().expect("a free port");
    let url = listener.url();
    let exited = Arc::new(signals);
    let shared = exited.clone();
    let talk = tokio::spawn(async move { run(media, listener, no_services(), &shared).await });
    (transport_side, talk, exited, url)
}

fn of_room(slot: MediaSlot) -> PendingMedia {
    PendingMedia::new(UnclaimedMedia::Slot(slot, Shutdown::default()))
}

/// The call of a browser, at a runner without a voice.
fn no_services() -> (CallControl, Prompts) {
    let args = Caller::browser().arguments().1;
    (CallControl::of(&args), Prompts::of(&args))
}

async fn connect(url: &str) -> WebSocketStream<TcpStream> {
    let address = url.trim_start_matches("ws://").split('/').next().expect("an address");
    let stream = TcpStream::connect(address).await.expect("the listener is open");
    client_async(url, stream).await.expect("the right path").0
}

impl Rig {
    async fn new() -> Rig {
        let (transport_side, talk, exited, url) = begin();
        let program = connect(&url).await;
        Rig {
            transport_side,
            program,
            talk,
            exited,
        }
    }

    async fn say(&mut self, frame: Vec<u8>) {
        within(self.program.send(Message::Binary(frame.into())))
            .await
            .expect("the socket is open");
    }

    /// Returns the next frame that the program receives.
    async fn hear(&mut self) -> ProtobufFrame {
        match within(self.program.next()).await {
            Some(Ok(Message::Binary(bytes))) => frames::decode(bytes).expect("a frame"),
            other => panic!("{other:?} is no frame"),
        }
    }

    async fn hear_json(&mut self) -> serde_json::Value {
        match self.hear().await {
            ProtobufFrame::Message(text) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("{other:?} is no message"),
        }
    }

    /// Waits until `look` finds something on the transport side.
    async fn until<T>(&self, mut look: impl FnMut(&TransportSide) -> Option<T>) -> T {
        within(async {
            loop {
                if let Some(found) = look(&self.transport_side) {
                    return found;
                }
                self.transport_side.notified().await;
            }
        })
        .await
    }

    /// Takes this many samples of the program's speech.
    async fn spoken(&self, samples: usize) -> Vec<i16> {
        let mut spoken = Vec::new();
        self.until(|transport_side| {
            transport_side.audio();
            transport_side.take_audio(&mut spoken, samples);
            (spoken.len() >= samples).then_some(())
        })
        .await;
        spoken
    }

    async fn end(self) -> MediaEnd {
        within(self.talk).await.expect("no panic")
    }
}

/// Returns samples that all differ, so that a lost one shows.
fn ramp(from: usize, samples: usize) -> Vec<i16> {
    (from..from + samples).map(|at| at as i16).collect()
}

/// D-32: audio at 16 kHz, messages unchanged and keys as messages go to the program; audio and
/// messages come back.
#[tokio::test]
async fn carries_audio_messages_and_marks_both_ways() {
    let mut rig = Rig::new().await;
    rig.transport_side.push(Event::Joined);
    rig.transport_side.push_audio(&ramp(0, 320), 16_000);
    rig.transport_side
        .push(Event::Message("{\"label\":\"rtvi-ai\", \"x\":1}".into()));
    rig.transport_side.push(Event::Dtmf('#'));
    match rig.hear().await {
        ProtobufFrame::Audio { pcm, rate_hz, channels } => {
            let mut samples = Vec::new();
            frames::samples(&pcm, channels, &mut samples).expect("whole samples");
            assert_eq!((samples, rate_hz, channels), (ramp(0, 320), 16_000, 1));
        }
        other => panic!("{other:?} is no speech"),
    }
    assert_eq!(
        rig.hear().await,
        ProtobufFrame::Message("{\"label\":\"rtvi-ai\", \"x\":1}".into())
    );
    assert_eq!(rig.hear_json().await, serde_json::json!({"type": "dtmf", "digit": "#"}));

    rig.say(frames::audio(&ramp(7, 100), 24_000)).await;
    rig.say(frames::message("not even JSON")).await;
    rig.say(frames::message(r#"{"type":"mark","name":"m1"}"#)).await;
    rig.say(Vec::new()).await;
    assert_eq!(rig.until(TransportSide::take_message).await, "not even JSON");
    assert_eq!(rig.spoken(100).await, ramp(7, 100));
    assert_eq!(rig.until(TransportSide::take_mark).await, "m1");
    assert_eq!(
        rig.transport_side.audio().expect("open").out_rate_hz,
        24_000,
        "no change of rate was needed"
    );
    rig.transport_side.push(Event::Mark {
        name: "m1".into(),
        played: true,
    });
    assert_eq!(
        rig.hear_json().await,
        serde_json::json!({"type": "mark", "name": "m1", "played": true})
    );
}

/// Speech plays at the rate in its frames, also after a change, and no sample is lost.
#[tokio::test]
async fn speech_plays_at_the_rate_in_its_frames() {
    let mut rig = Rig::new().await;
    for rate_hz in [16_000, 16_000, 48_000, 8_000, 24_000] {
        rig.say(frames::audio(&ramp(rate_hz as usize, 300), rate_hz)).await;
        rig.say(frames::audio(&ramp(rate_hz as usize + 300, 300), rate_hz))
            .await;
        assert_eq!(rig.spoken(600).await, ramp(rate_hz as usize, 600));
        assert_eq!(rig.transport_side.audio().expect("open").out_rate_hz, rate_hz);
    }
    // A change of rate waits until the speech before it has left.
    rig.say(frames::audio(&ramp(0, 240), 24_000)).await;
    rig.say(frames::audio(&ramp(9, 160), 16_000)).await;
    rig.say(frames::message("both are read")).await;
    rig.until(TransportSide::take_message).await;
    assert_eq!(rig.transport_side.audio().expect("open").out_rate_hz, 24_000);
    assert_eq!(rig.spoken(240).await, ramp(0, 240));
    assert_eq!(rig.spoken(160).await, ramp(9, 160));
    assert_eq!(rig.transport_side.audio().expect("open").out_rate_hz, 16_000);
}

/// With 10 s of speech queued, an interruption takes effect at once and drops all of it.
#[tokio::test]
async fn an_interruption_overtakes_queued_speech() {
    let mut rig = Rig::new().await;
    for _ in 0..500 {
        rig.say(frames::audio(&[1; 480], 24_000)).await;
    }
    rig.say(frames::message(r#"{"type":"mark","name":"late"}"#)).await;
    rig.say(frames::interruption()).await;
    rig.say(frames::audio(&[2; 480], 24_000)).await;
    rig.until(|transport_side| transport_side.take_interruption().then_some(()))
        .await;
    assert_eq!(rig.spoken(480).await, [2; 480]);
    assert!(!rig.transport_side.has_audio());
    assert_eq!(
        rig.hear_json().await,
        serde_json::json!({"type": "mark", "name": "late", "played": false})
    );
}

/// The same during a change of rate, when speech waits for the old speech to leave.
#[tokio::test]
async fn an_interruption_overtakes_a_change_of_rate() {
    let mut rig = Rig::new().await;
    rig.say(frames::audio(&[1; 4_800], 24_000)).await;
    rig.say(frames::audio(&[1; 4_800], 16_000)).await;
    rig.say(frames::interruption()).await;
    rig.say(frames::audio(&[2; 480], 48_000)).await;
    rig.until(|transport_side| transport_side.take_interruption().then_some(()))
        .await;
    assert_eq!(rig.spoken(480).await, [2; 480]);
    assert_eq!(rig.transport_side.audio().expect("open").out_rate_hz, 48_000);
}

/// A program that sends eight times the cap blocks; once the session takes the speech, all of it
/// arrives.
#[tokio::test]
async fn speech_beyond_the_cap_makes_the_program_wait() {
    let Rig {
        transport_side,
        program,
        talk: _talk,
        ..
    } = Rig::new().await;
    let (mut writer, _reader) = program.split();
    // The system's socket buffers are far smaller than the excess.
    let total = 8 * PROCESS_OUT_SAMPLES_MAX;
    let mut speaking = tokio::spawn(async move {
        for from in (0..total).step_by(4_096) {
            let frame = frames::audio(&ramp(from, 4_096), 24_000);
            writer
                .send(Message::Binary(frame.into()))
                .await
                .expect("the socket is open");
        }
        writer
    });
    let early = timeout(Duration::from_millis(300), &mut speaking).await;
    assert!(early.is_err(), "all of the speech was accepted");
    let mut received = 0;
    within(async {
        while received < total {
            let mut spoken = Vec::new();
            transport_side.audio();
            transport_side.take_audio(&mut spoken, usize::MAX);
            assert_eq!(spoken, ramp(received, spoken.len()));
            received += spoken.len();
            if received < total && !transport_side.has_audio() {
                transport_side.notified().await;
            }
        }
    })
    .await;
    let _writer = within(speaking).await.expect("no panic");
}

/// A program that never reads loses the oldest speech, at a bounded cost, and can still speak.
#[tokio::test]
async fn a_program_that_does_not_read_loses_the_oldest_speech() {
    let mut rig = Rig::new().await;
    let frames_pushed = 6_000;
    for at in 0..frames_pushed {
        rig.transport_side.push_audio(&[at; 320], 16_000);
        if at % 10 == 0 {
            tokio::task::yield_now().await;
        }
        if at % 1_000 == 0 {
            rig.say(frames::audio(&[3; 240], 24_000)).await;
            assert_eq!(rig.spoken(240).await, [3; 240]);
        }
    }
    rig.transport_side.push(Event::Dtmf('9'));
    let mut got = Vec::new();
    loop {
        match rig.hear().await {
            ProtobufFrame::Audio { pcm, .. } => got.push(i16::from_le_bytes([pcm[0], pcm[1]])),
            ProtobufFrame::Message(_) => break,
            other => panic!("{other:?} is unexpected"),
        }
    }
    assert!(got.is_sorted(), "in order");
    assert_eq!(*got.last().expect("the newest is there"), frames_pushed - 1);
    assert!(got.len() < 2_000, "{} frames of 20 ms waited", got.len());
}

/// A prompt that is not spoken is answered, and what follows it is handled.
#[tokio::test]
async fn a_prompt_without_a_voice_is_answered() {
    let mut rig = Rig::new().await;
    rig.say(frames::message(r#"{"type":"speak","text":"Press 1."}"#)).await;
    rig.say(frames::audio(&[3; 240], 24_000)).await;
    let answer = rig.hear_json().await;
    assert_eq!((&answer["type"], &answer["done"]), (&"speak".into(), &false.into()));
    assert_eq!(rig.spoken(240).await, [3; 240]);
}

/// Events from before the connection are queued: every message, and the newest speech.
#[tokio::test]
async fn events_before_the_connection_are_queued_for_the_program() {
    let (transport_side, talk, exited, url) = begin();
    transport_side.push(Event::Message("ready?".into()));
    let kept = (PROCESS_IN_SAMPLES_MAX / 320) as i16;
    for at in 0..kept + 50 {
        transport_side.push_audio(&[at; 320], 16_000);
        tokio::task::yield_now().await;
    }
    let program = connect(&url).await;
    let mut rig = Rig {
        transport_side,
        program,
        talk,
        exited,
    };
    rig.transport_side.push(Event::Dtmf('1'));
    assert_eq!(rig.hear().await, ProtobufFrame::Message("ready?".into()));
    let mut early = Vec::new();
    while let ProtobufFrame::Audio { pcm, .. } = rig.hear().await {
        early.push(i16::from_le_bytes([pcm[0], pcm[1]]));
    }
    assert_eq!(early, (50..kept + 50).collect::<Vec<_>>());
}

/// The end of the session ends the media, with or without a program, and closes the socket with
/// 1000.
#[tokio::test]
async fn the_end_of_the_session_closes_the_media() {
    let (transport_side, talk, _, _) = begin();
    drop(transport_side);
    assert!(matches!(
        within(talk).await.expect("no panic"),
        MediaEnd::SessionOver(_)
    ));

    for how in ["left", "dropped", "left while it speaks and does not read"] {
        let mut rig = Rig::new().await;
        if how.contains("speaks") {
            for _ in 0..100 {
                rig.say(frames::audio(&[1; 480], 24_000)).await;
            }
            for _ in 0..2_000 {
                rig.transport_side.push_audio(&[0; 320], 16_000);
                tokio::task::yield_now().await;
            }
        }
        let Rig {
            transport_side,
            mut program,
            talk,
            ..
        } = rig;
        if how != "dropped" {
            transport_side.push(Event::Left(LeaveReason::Left));
        }
        drop(transport_side);
        let MediaEnd::SessionOver(closing) = within(talk).await.expect("no panic") else {
            panic!("{how}: it ended otherwise");
        };
        let closing = tokio::spawn(closing.close());
        let close = within(async {
            loop {
                match program.next().await {
                    Some(Ok(Message::Close(Some(close)))) => break close,
                    Some(Ok(_)) => {}
                    other => panic!("{how}: {other:?} instead of a close"),
                }
            }
        })
        .await;
        assert_eq!(
            (close.code, close.reason.as_str()),
            (CloseCode::Normal, "the session is over")
        );
        within(closing).await.expect("no panic");
    }
}

/// A violation of the protocol is reported in the close frame and in the session's error.
#[tokio::test]
async fn a_protocol_error_closes_the_media_with_its_reason() {
    let torn = [frames::audio(&[1], 24_000)[..4].to_vec(), vec![1]].concat();
    let odd = vec![2 << 3 | 2, 5, 3 << 3 | 2, 3, 1, 2, 3];
    let cases = [
        (Message::text("{}"), CloseCode::Unsupported, "a text message"),
        (Message::binary(torn), CloseCode::Invalid, "a bad frame"),
        (Message::binary(odd), CloseCode::Invalid, "a bad frame: 3 bytes"),
        (
            Message::binary(frames::audio(&[1; 10], 96_000)),
            CloseCode::Policy,
            "audio at 96000 Hz; 8000 to 48000 Hz",
        ),
        (
            Message::binary(vec![0; PROCESS_MESSAGE_BYTES_MAX + 1]),
            CloseCode::Size,
            "a message of more than 1048576 bytes",
        ),
    ];
    for (message, code, words) in cases {
        let mut rig = Rig::new().await;
        within(rig.program.send(message)).await.expect("the socket is open");
        let Rig {
            mut program,
            talk,
            transport_side: _transport_side,
            ..
        } = rig;
        let MediaEnd::ProtocolError(fault, closing) = within(talk).await.expect("no panic") else {
            panic!("{words}: no fault");
        };
        assert!(fault.to_string().contains(words), "{fault}");
        let closing = tokio::spawn(closing.close());
        match within(program.next()).await {
            Some(Ok(Message::Close(Some(close)))) => {
                assert_eq!(close.code, code);
                assert!(close.reason.contains(words), "{}", close.reason);
            }
            other => panic!("{words}: {other:?} instead of a close"),
        }
        within(closing).await.expect("no panic");
    }
}

#[tokio::test]
async fn a_message_at_the_cap_is_read() {
    let mut rig = Rig::new().await;
    let head = frames::message(&"x".repeat(1_000_000)).len() - 1_000_000;
    let text = "x".repeat(PROCESS_MESSAGE_BYTES_MAX - head);
    assert_eq!(frames::message(&text).len(), PROCESS_MESSAGE_BYTES_MAX);
    rig.say(frames::message(&text)).await;
    assert_eq!(rig.until(TransportSide::take_message).await.len(), text.len());
}

/// All speech plays before the session ends, with or without a close frame.
#[tokio::test]
async fn speech_before_a_hang_up_is_played() {
    for properly in [true, false] {
        let mut rig = Rig::new().await;
        let total = 48_000;
        for from in (0..total).step_by(480) {
            rig.say(frames::audio(&ramp(from, 480), 24_000)).await;
        }
        let Rig {
            transport_side,
            mut program,
            talk,
            exited,
        } = rig;
        if properly {
            within(program.close(None)).await.expect("the socket is open");
            while let Some(Ok(_)) = within(program.next()).await {}
        }
        drop(program);
        transport_side.push_audio(&[1; 320], 16_000);
        let rig = Rig {
            transport_side,
            program: Rig::new().await.program,
            talk,
            exited,
        };
        assert!(!rig.talk.is_finished(), "most of the speech is still queued");
        assert_eq!(rig.spoken(total).await, ramp(0, total));
        assert!(matches!(rig.end().await, MediaEnd::HungUp), "properly: {properly}");
    }
}

/// A process that left the group of the program holds the connection open: all that was sent plays,
/// and then the session ends.
#[tokio::test]
async fn a_connection_that_outlives_the_program_is_closed() {
    let mut rig = Rig::new().await;
    let total = 24_000;
    for from in (0..total).step_by(480) {
        rig.say(frames::audio(&ramp(from, 480), 24_000)).await;
    }
    rig.exited.group_ended.notify_one();
    assert_eq!(rig.spoken(total).await, ramp(0, total));
    let Rig { program, talk, .. } = rig;
    assert!(matches!(within(talk).await.expect("no panic"), MediaEnd::HungUp));
    drop(program);
}

/// A program that reads from the moment it connects gets no speech from before, hears at its own
/// rate, and waits for nothing.
#[tokio::test]
async fn a_live_program_hears_from_now_on_at_its_rate() {
    let (transport_side, talk, exited, url) = begin();
    transport_side.push_audio(&[7; 320], 16_000);
    transport_side.push(Event::Message("before".into()));
    // The media's task takes both before the program is there.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let program = connect(&format!("{url}?live=1&rate=8000")).await;
    let mut rig = Rig {
        transport_side,
        program,
        talk,
        exited,
    };
    assert!(matches!(rig.hear().await, ProtobufFrame::Message(text) if text == "before"));
    for _ in 0..4 {
        rig.transport_side.push_audio(&[1000; 320], 16_000);
    }
    let mut received = Vec::new();
    for _ in 0..4 {
        let ProtobufFrame::Audio { pcm, rate_hz, channels } = rig.hear().await else {
            panic!("no speech");
        };
        assert_eq!((rate_hz, channels), (8_000, 1));
        frames::samples(&pcm, 1, &mut received).expect("whole samples");
    }
    assert!((600..=640).contains(&received.len()), "{} samples", received.len());
    assert!(
        received[320..].iter().all(|sample| (950..1050).contains(sample)),
        "{received:?}"
    );
    rig.program.close(None).await.expect("it is open");
    assert!(matches!(within(rig.talk).await.expect("no panic"), MediaEnd::HungUp));
}

/// The first poll sends what waits for a live program. Another program settles first.
#[tokio::test]
async fn what_waits_for_a_live_program_waits_for_no_timer() {
    for (query, is_sent) in [("?live=1", true), ("", false)] {
        let listener = MediaListener::bind().expect("a free port");
        let url = listener.url() + query;
        let (_program, (socket, asked)) = tokio::join!(connect(&url), listener.accept());
        let mut connection = MediaConnection::new(socket, asked.is_live);
        let mut backlog = InboundQueue::default();
        queue_message(&mut backlog, "{}");
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(connection.poll_exchange(&mut backlog, false, &mut cx).is_pending());
        assert_eq!(backlog.is_empty(), is_sent, "{query}");
    }
}

#[tokio::test]
async fn a_program_that_exits_without_connecting_hangs_up() {
    let (_transport_side, talk, exited, _) = begin();
    exited.exited.notify_one();
    assert!(matches!(within(talk).await.expect("no panic"), MediaEnd::HungUp));
}

/// A program that does not connect is reported to the client, once, and may still connect.
#[tokio::test(start_paused = true)]
async fn a_program_that_does_not_connect_in_time_is_reported_once() {
    let (transport_side, talk, _exited, url) = begin();
    sleep(PROCESS_MEDIA_EXPECTED - Duration::from_millis(1)).await;
    assert_eq!(transport_side.take_message(), None);
    sleep(4 * PROCESS_MEDIA_EXPECTED).await;
    let message = transport_side.take_message().expect("a message");
    let message: serde_json::Value = serde_json::from_str(&message).expect("JSON");
    assert_eq!(
        (&message["label"], &message["type"], &message["data"]["fatal"]),
        (&"rtvi-ai".into(), &"error".into(), &false.into())
    );
    assert_eq!(transport_side.take_message(), None);
    tokio::time::resume();
    let _program = connect(&url).await;
    transport_side.push(Event::Message("hello".into()));
    assert!(!talk.is_finished());
}

/// The file of a bot in Python connects after its imports, so the client is told that it starts.
#[tokio::test(start_paused = true)]
async fn a_bot_in_python_that_is_late_is_said_to_be_starting() {
    let signals = ProgramSignals {
        is_python_bot: true,
        ..ProgramSignals::default()
    };
    let (transport_side, _talk, _exited, _url) = begin_with(signals);
    sleep(2 * PROCESS_MEDIA_EXPECTED).await;
    let message = transport_side.take_message().expect("a message");
    assert!(
        message.contains("The bot is starting") && message.contains("\"fatal\":false"),
        "{message}"
    );
    assert_eq!(transport_side.take_message(), None);
}

/// A room is joined when the program connects, so a program that joins by itself does not cause a
/// second join.
#[tokio::test]
async fn a_media_slot_is_opened_when_the_program_connects() {
    let (transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
    let listener = MediaListener::bind().expect("a free port");
    let url = listener.url();
    let exited = Arc::<ProgramSignals>::default();
    let shared = exited.clone();
    let talk = tokio::spawn(async move { run(of_room(slot), listener, no_services(), &shared).await });
    tokio::task::yield_now().await;
    assert_eq!(transport_side.audio(), None);
    let program = connect(&url).await;
    within(transport_side.notified()).await;
    assert_eq!(transport_side.audio(), Some(Audio::default()));
    let mut rig = Rig {
        transport_side,
        program,
        talk,
        exited,
    };
    rig.transport_side.push(Event::Message("hello".into()));
    assert_eq!(rig.hear().await, ProtobufFrame::Message("hello".into()));
}

/// A program that joins its LiveKit room by itself opens no media, so its exit ends the session, at
/// once.
#[tokio::test(start_paused = true)]
async fn a_program_that_joined_by_itself_ends_its_session_as_it_exits() {
    let (_transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
    let listener = MediaListener::bind().expect("a free port");
    let signals = Arc::<ProgramSignals>::default();
    let shared = signals.clone();
    let talk = tokio::spawn(async move { run(of_room(slot), listener, no_services(), &shared).await });
    sleep(Duration::from_secs(3600)).await;
    assert!(!talk.is_finished(), "its call has no limit");
    let exited_at = Instant::now();
    signals.exited.notify_one();
    assert!(matches!(talk.await.expect("no panic"), MediaEnd::HungUp));
    assert!(exited_at.elapsed() <= PROCESS_REST + Duration::from_millis(1));
}

#[tokio::test]
async fn the_end_of_a_room_s_session_ends_the_media_that_were_never_opened() {
    let (_transport_side, slot) = pair(AUDIO_IN_FRAMES_MAX);
    let (over, session_over) = Shutdown::channel();
    let media = PendingMedia::new(UnclaimedMedia::Slot(slot, session_over));
    let listener = MediaListener::bind().expect("a free port");
    let talk = tokio::spawn(async move { run(media, listener, no_services(), &ProgramSignals::default()).await });
    tokio::task::yield_now().await;
    assert!(!talk.is_finished());
    over.set();
    assert!(matches!(talk.await.expect("no panic"), MediaEnd::SessionOver(_)));
}

/// Room events reach the program in order, also the reason for a failed join, which ends the
/// session.
#[tokio::test]
async fn the_reason_for_a_failed_join_is_sent_before_the_close() {
    let mut rig = Rig::new().await;
    rig.transport_side.push(Event::Speaking {
        identity: "User-1".into(),
        speaking: true,
    });
    assert_eq!(rig.hear_json().await["type"], "speaking");
    rig.transport_side
        .push(Event::JoinFailed("the server refused the token".into()));
    rig.transport_side.push(Event::Left(LeaveReason::NeverConnected));
    let MediaEnd::SessionOver(closing) = within(&mut rig.talk).await.expect("no panic") else {
        panic!("the session is over");
    };
    let said = tokio::spawn(closing.close());
    assert_eq!(rig.hear_json().await["error"], "the server refused the token");
    assert!(matches!(
        within(rig.program.next()).await,
        Some(Ok(Message::Close(Some(_))))
    ));
    while let Some(Ok(_)) = within(rig.program.next()).await {}
    within(said).await.expect("no panic");
}
