//! Tests of a bot with `edge_runner::testing`: every kind of caller, what it receives, and every
//! way in which a call ends.

use std::time::Duration;

use edge_runner::bot::{Event, LeaveReason, Participant};
use edge_runner::config::Transport;
use edge_runner::testing::Caller;
use embedding::bot;
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a WAV file whose frames of 20 ms each repeat one of these samples.
fn wav(channels: u16, rate_hz: u32, samples: &[i16]) -> Vec<u8> {
    let frame_samples = rate_hz as usize / 50;
    let frames = samples
        .iter()
        .flat_map(|sample| vec![*sample; frame_samples * usize::from(channels)]);
    let data: Vec<u8> = frames.flat_map(i16::to_le_bytes).collect();
    let mut file = b"RIFF____WAVEfmt \x10\0\0\0\x01\0".to_vec();
    file.extend(channels.to_le_bytes());
    file.extend(rate_hz.to_le_bytes());
    file.extend((rate_hz * 2 * u32::from(channels)).to_le_bytes());
    file.extend((2 * channels).to_le_bytes());
    file.extend(16_u16.to_le_bytes());
    // An unknown chunk of odd length.
    file.extend(b"LIST\x01\0\0\0x\0data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

#[tokio::test]
async fn a_browser_is_greeted_by_its_name() {
    let mut call = Caller::browser().body(json!({"name": "Ada"})).call(bot);
    call.join();
    call.send_rtvi("client-ready", "1", json!({"version": "2.1.0"}));
    let ready = call.next_rtvi().await.expect("an answer");
    assert_eq!((&ready["type"], &ready["id"]), (&json!("bot-ready"), &json!("1")));
    assert_eq!(
        call.next_rtvi().await.expect("a greeting")["data"]["text"],
        "Hello, Ada!"
    );
    call.send_rtvi("send-text", "2", json!({"content": "hello"}));
    assert_eq!(
        call.next_rtvi().await.expect("an answer")["data"]["text"],
        "You wrote: hello"
    );
    call.leave();
    call.ended().await.expect("the bot ends without an error");
}

/// A device sends no `client-ready` and is greeted when it joins.
#[tokio::test]
async fn a_device_is_greeted_when_it_joins() {
    let mut call = Caller::device().call(bot);
    call.join();
    let greeting = call.next_rtvi().await.expect("a greeting");
    assert_eq!(greeting["data"]["text"], "Hello, there!");
}

/// Speech at the bot's rate comes back sample by sample; at another rate it has the same duration.
#[tokio::test]
async fn speech_comes_back() {
    let mut call = Caller::client().call(bot);
    call.join();
    let words: Vec<i16> = (0..16_000).collect();
    assert!(call.speak(&words, 16_000).await);
    assert_eq!(call.hear(SECOND).await, (words, 16_000));

    assert!(call.speak(&vec![1_000; 48_000], 48_000).await);
    let (received, rate_hz) = call.hear(SECOND - Duration::from_millis(40)).await;
    assert_eq!((received.len(), rate_hz), (15_360, 16_000));
    assert!((900..1_100).contains(&received[8_000]), "{}", received[8_000]);
}

#[tokio::test]
async fn a_wav_file_is_spoken() {
    for channels in [1, 2] {
        let mut call = Caller::browser().call(bot);
        let file = wav(channels, 16_000, &[1, 2, 3]);
        assert_eq!(call.speak_wav(&file).await, Ok(true));
        let (received, _) = call.hear(Duration::from_millis(60)).await;
        assert_eq!(
            received.chunks(320).map(|frame| frame[0]).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        for length in [0, 11, 20, 40, 45] {
            assert!(call.speak_wav(&file[..length]).await.is_err(), "{length} bytes");
        }
    }
}

fn telephony(name: &str) -> Transport {
    Transport::from_name(name).expect("a provider's transport")
}

/// A telephone has the rate of its line and keys, and the bot's error is returned.
#[tokio::test]
async fn a_telephone_has_keys() {
    let mut call = Caller::phone(telephony("telephony_a")).call(bot);
    call.join();
    call.press("4");
    assert_eq!(
        call.hear(Duration::from_millis(20)).await,
        (vec!['4' as i16; 160], 8_000)
    );
    call.press("#");
    let failure = call.ended().await.expect_err("the bot fails");
    assert_eq!(failure.to_string(), "# was pressed");
}

/// No way in which a call ends is an error of this bot.
#[tokio::test]
async fn every_end_of_a_call_ends_the_bot_without_an_error() {
    type End = fn(&mut edge_runner::testing::Call);
    let ends: [End; 5] = [
        |call| call.leave(),
        |call| call.vanish(),
        |call| call.fail(),
        |call| call.stop_runner(),
        |call| call.end(LeaveReason::Replaced),
    ];
    for end in ends {
        let mut call = Caller::browser().call(bot);
        call.join();
        assert!(call.stay_silent(SECOND / 10).await);
        end(&mut call);
        call.ended().await.expect("the bot ends without an error");
    }
}

/// A bot that panics, one that does not return, and one that sends nothing. The paused clock skips
/// the timeouts.
#[tokio::test(start_paused = true)]
async fn a_panic_a_hang_and_silence_are_reported() {
    let panics = Caller::browser().call(|_| async { panic!("a bug") });
    assert!(panics.ended().await.is_err());

    let mut stays = Caller::browser().call(|_| std::future::pending());
    assert_eq!(stays.next_message().await, None);
    assert_eq!(stays.hear(SECOND).await, (Vec::new(), 0));
    assert!(!stays.speak(&[0; 320], 16_000).await, "it has not opened its media");
    stays.leave();
    let reported = stays.ended().await.expect_err("it does not end");
    assert!(reported.to_string().contains("did not end"), "{reported}");
}

/// Marks come back when the speech before them was played; interrupted speech is not played.
#[tokio::test]
async fn marks_and_interruptions_follow_playback() {
    let (mut call, mut args) = Caller::client().arguments();
    let mut media = args.media(edge_runner::Audio::at(8_000)).expect("media");
    media.send_audio(&[1; 160]).await.expect("the call goes on");
    media.mark("first").expect("the call goes on");
    media.send_audio(&[2; 160]).await.expect("the call goes on");
    media.mark("second").expect("the call goes on");
    assert_eq!(call.hear(Duration::from_millis(20)).await.0, [1; 160]);
    media.interrupt();
    media.send_audio(&[3; 160]).await.expect("the call goes on");
    assert_eq!(call.hear(Duration::from_millis(20)).await.0, [3; 160]);
    let mut marks = Vec::new();
    call.leave();
    while let Some(event) = media.recv().await {
        if let Event::Mark { name, played } = event {
            marks.push((name, played));
        }
    }
    assert_eq!(marks, [("first".to_owned(), true), ("second".to_owned(), false)]);
}

/// Arguments of every kind can be created, and their `Debug` output contains no credentials.
#[test]
fn arguments_of_every_kind_can_be_created() {
    let secret = "only-for-the-bot";
    let kinds = [
        ("base", Caller::base()),
        ("webrtc", Caller::browser()),
        ("webrtc", Caller::device()),
        ("webrtc", Caller::without_messages()),
        ("websocket", Caller::client()),
        ("websocket", Caller::phone(telephony("telephony_d"))),
        (
            "videoroom",
            Caller::video_room(format!("https://rooms.example.net/{secret}")),
        ),
        ("mediaroom", Caller::media_room("meeting")),
    ];
    for (kind, caller) in kinds {
        let (_call, args) = caller
            .body(json!({"token": secret}))
            .call_data(json!({"from": secret}))
            .session_id("a name")
            .arguments();
        assert_eq!(args.kind.name(), kind);
        assert_eq!((&*args.session_id, &args.body["token"]), ("a name", &json!(secret)));
        let shown = format!("{args:?} {:?}", args.kind);
        assert!(shown.contains(kind) && !shown.contains(secret), "{shown}");
    }
}

/// The test adds and removes the participants of a room.
#[tokio::test]
async fn a_room_has_participants() {
    let (call, mut args) = Caller::media_room("meeting").arguments();
    assert_eq!(args.room_name(), Ok("meeting"));
    let mut media = args.media(edge_runner::Audio::default()).expect("media");
    call.push_event(Event::ParticipantJoined(Participant::default()));
    assert!(matches!(media.recv().await, Some(Event::ParticipantJoined(_))));
    drop(call);
    assert!(media.recv().await.is_none(), "a caller that is dropped has broken off");
}
