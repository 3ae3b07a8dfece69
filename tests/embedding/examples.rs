//! Tests of the bots in `examples/`, with the callers of `edge_runner::testing`.

#![allow(dead_code, reason = "the examples have a `main` of their own")]
#![allow(clippy::disallowed_types, reason = "the API of a provider has a socket")]

use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, process};

use edge_runner::bot::{Event, Participant};
use edge_runner::config::{Settings, Transport};
use edge_runner::kit::{CallControlError, PhoneCall, Wav, write_wav};
use edge_runner::testing::{Call, Caller};
use edge_runner::{Audio, Config};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

#[path = "../../examples/hello.rs"]
mod hello;
#[path = "../../examples/hum.rs"]
mod hum;
#[path = "../../examples/menu.rs"]
mod menu;
/// The bot that `edge-runner new rust` makes, whose test is in its file.
#[path = "../../src/cli/new/kinds/rust/src/main.rs"]
mod new_rust;
#[path = "../../examples/room.rs"]
mod room;
#[path = "../../examples/voicemail.rs"]
mod voicemail;

const SECOND: Duration = Duration::from_secs(1);

fn peak(pcm: &[i16]) -> u16 {
    pcm.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(0)
}

async fn ready(call: &mut Call) {
    call.join();
    call.send_rtvi("client-ready", "1", json!({"version": "2.1.0"}));
    assert_eq!(call.next_rtvi().await.expect("an answer")["type"], "bot-ready");
}

async fn shown(call: &mut Call) -> String {
    loop {
        let message = call.next_rtvi().await.expect("a text");
        if message["type"] == "bot-output" {
            return message["data"]["text"].as_str().expect("text").to_owned();
        }
    }
}

#[tokio::test]
async fn hello_greets_and_plays_back() {
    let mut call = Caller::browser().call(hello::bot);
    ready(&mut call).await;
    assert!(shown(&mut call).await.starts_with("Hello!"));
    call.send_rtvi("send-text", "2", json!({"content": "abc"}));
    assert_eq!(shown(&mut call).await, "You wrote: abc");
    call.speak(&[1_000; 3_200], 16_000).await;
    assert_eq!(call.hear(SECOND / 5).await, (vec![1_000; 3_200], 16_000));
    call.leave();
    call.ended().await.expect("it ends with the call");
}

#[tokio::test]
async fn hum_is_silent_while_the_caller_makes_a_sound() {
    let mut call = Caller::browser().body(json!({"tone_hz": 300})).call(hum::bot);
    call.join();
    assert!(call.next_message().await.expect("a greeting").contains("\"hello\""));
    assert!(peak(&call.hear(SECOND / 2).await.0) > 2_500);
    call.speak(&[5_000; 1_600], 16_000).await;
    // Speech that was sent before is played; after it there is none.
    while !call.hear(SECOND / 50).await.0.is_empty() {}
    call.leave();
    call.ended().await.expect("it ends with the call");
}

#[tokio::test]
async fn menu_follows_the_keys() {
    let twilio = Transport::from_name("telephony_a").expect("a provider");
    let mut call = Caller::phone(twilio).call(menu::bot);
    call.join();
    let (prompt, rate_hz) = call.hear(SECOND / 4).await;
    assert_eq!((prompt.len(), rate_hz), (2_000, 8_000));
    assert!(peak(&prompt) > 7_000);
    call.press("1");
    let (melody, _) = call.hear(SECOND).await;
    assert_eq!(melody.len(), 8_000, "four notes");
    call.press("2");
    // The key is handled before the speech that follows it.
    call.speak(&[1_234; 800], 8_000).await;
    assert_eq!(call.hear(SECOND / 10).await.0, [1_234; 800]);
    call.press("#");
    call.ended().await.expect("# hangs up");
}

/// Time passes by tokio's clock alone.
#[tokio::test(start_paused = true)]
async fn menu_asks_for_a_code() {
    let twilio = Transport::from_name("telephony_a").expect("a provider");
    let mut call = Caller::phone(twilio).call(menu::bot);
    call.join();
    call.hear(SECOND / 4).await;
    call.press("3");
    assert_eq!(call.hear(SECOND / 2).await.0.len(), 4_000, "two notes");
    call.press("47#");
    let (tones, _) = call.hear(SECOND / 5).await;
    assert_eq!(tones.len(), 1_600, "a tone for each digit");
    // Without a key the menu is offered again.
    call.press("3");
    call.hear(SECOND / 2).await;
    tokio::time::advance(SECOND * 5).await;
    let (prompt, _) = call.hear(SECOND / 4).await;
    assert_eq!(prompt.len(), 2_000);
    call.press("#");
    call.ended().await.expect("# hangs up");
}

/// A prompt longer than the queue is spoken while keys are read, and a key ends it.
#[tokio::test]
async fn menu_speaks_its_prompt() {
    let wav = write_wav(&[700; 16_000], 8_000);
    let prompt = Arc::new(Wav::read(&wav).expect("a WAV file"));
    let twilio = Transport::from_name("telephony_a").expect("a provider");
    let mut call = Caller::phone(twilio).call(move |args| menu::serve(args, None, Some(prompt.clone())));
    call.join();
    assert_eq!(call.hear(SECOND).await.0, [700; 8_000]);
    call.press("1");
    let mut received = Vec::new();
    while received.len() < 4_000 {
        received.extend(
            call.hear(SECOND / 50)
                .await
                .0
                .into_iter()
                .filter(|sample| *sample != 700),
        );
    }
    call.press("#");
    call.ended().await.expect("# hangs up");
}

/// A listener in place of Telnyx's API, the transport, and settings that name both.
async fn telnyx() -> (TcpListener, Transport, Config) {
    let api = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", api.local_addr().expect("it is bound"));
    let mut config = Config::default();
    config.telephony.settings = Settings::from([("TELCO_B_API_KEY", "b-key"), ("TELCO_B_API_URL", &url)]);
    (api, Transport::from_name("telephony_b").expect("a provider"), config)
}

/// A transfer waits for the bot's speech before it: the provider replaces the sound at once.
#[tokio::test]
async fn a_transfer_waits_for_the_speech_before_it() {
    let (api, telnyx, config) = telnyx().await;
    let mut call = Caller::phone(telnyx).config(config).call(async |mut args| {
        let media = args.media(Audio::at(8_000))?;
        let phone = PhoneCall::new(&args, media.output())?;
        media.send_audio(&[900; 2_000]).await?;
        phone.transfer("+15550001111").await?;
        Ok(())
    });
    call.join();
    assert_eq!(call.hear(SECOND / 8).await.0, [900; 1_000]);
    let mut asked = std::pin::pin!(api.accept());
    for _ in 0..500 {
        tokio::select! {
            biased;
            _ = &mut asked => panic!("the second half has not been heard"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(call.hear(SECOND / 4).await.0, [900; 1_000]);
    let (mut asked, _) = asked.await.expect("a request");
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        assert!(asked.read_buf(&mut request).await.expect("it is sent") > 0);
    }
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    asked.write_all(answer).await.expect("it reads");
    call.ended().await.expect("the call is its provider's");
    // A caller who leaves in the meantime is not waited for.
    let mut call = Caller::phone(telnyx).call(async |mut args| {
        let media = args.media(Audio::at(8_000))?;
        let phone = PhoneCall::new(&args, media.output())?;
        media.send_audio(&[900; 2_000]).await?;
        let refused = phone.transfer("+15550001111").await.expect_err("there is no key");
        assert!(matches!(refused, CallControlError::Credentials(_)));
        Ok(())
    });
    call.join();
    call.leave();
    call.ended().await.expect("it ends");
}

/// A transfer at once drops what the caller has not been played.
#[tokio::test]
async fn a_transfer_can_cut_the_speech_before_it() {
    let (api, telnyx, config) = telnyx().await;
    let mut call = Caller::phone(telnyx).config(config).call(async |mut args| {
        let media = args.media(Audio::at(8_000))?;
        let phone = PhoneCall::new(&args, media.output())?;
        media.send_audio(&[900; 2_000]).await?;
        let refused = phone.transfer_now("the desk").await.expect_err("no number");
        assert_eq!(refused, CallControlError::Target);
        phone.transfer_now("+15550001111").await?;
        Ok(())
    });
    call.join();
    let (mut asked, _) = api.accept().await.expect("a request before the speech was played");
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        assert!(asked.read_buf(&mut request).await.expect("it is sent") > 0);
    }
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    asked.write_all(answer).await.expect("it reads");
    assert!(call.hear(SECOND / 4).await.0.is_empty(), "the speech was dropped");
    call.ended().await.expect("the call is its provider's");
}

/// A person is reached by the provider's API; without one, the menu goes on.
#[tokio::test]
async fn menu_transfers_a_call() {
    let (api, telnyx, config) = telnyx().await;
    let caller = || Caller::phone(telnyx).config(config.clone());
    let mut call = caller().call(|args| menu::serve(args, Some("+15550001111".to_owned()), None));
    call.join();
    call.hear(SECOND / 4).await;
    call.press("0");
    let (mut asked, _) = api.accept().await.expect("a request");
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        assert!(asked.read_buf(&mut request).await.expect("it is sent") > 0);
    }
    let request = String::from_utf8(request).expect("a text");
    assert!(request.contains("/actions/transfer ") && request.ends_with(r#"{"to":"+15550001111"}"#));
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    asked.write_all(answer).await.expect("it reads");
    while !call.is_transferred() {
        tokio::time::sleep(SECOND / 100).await;
    }
    call.ended().await.expect("the call is its provider's");
    let mut call = caller().call(|args| menu::serve(args, None, None));
    call.join();
    call.hear(SECOND / 4).await;
    call.press("0");
    assert_eq!(call.hear(SECOND / 4).await.0.len(), 2_000, "the prompt of the menu");
    call.press("#");
    call.ended().await.expect("# hangs up");
}

#[tokio::test]
async fn menu_is_shown_on_a_page() {
    let mut call = Caller::browser().call(menu::bot);
    ready(&mut call).await;
    assert!(shown(&mut call).await.contains("Press 1"));
    call.press("0");
    assert!(shown(&mut call).await.contains("not a telephone call"));
    assert!(shown(&mut call).await.contains("Press 1"));
    call.press("9");
    assert!(
        shown(&mut call).await.contains("Press 1"),
        "an unknown key repeats the menu"
    );
    call.leave();
    call.ended().await.expect("it ends with the call");
}

#[tokio::test]
async fn voicemail_writes_what_was_said_after_the_beep() {
    let folder = env::temp_dir().join(format!("edge-runner-voicemail-{}", process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let place = folder.clone();
    let record = async move |args| voicemail::record(args, &place).await;
    let mut call = Caller::browser().session_id("../a-b").call(record);
    call.join();
    call.hear(SECOND * 3 / 10).await;
    // The mark after the beep comes back with the next frame.
    call.stay_silent(SECOND / 50).await;
    tokio::task::yield_now().await;
    call.speak(&[3_000; 16_000], 16_000).await;
    call.leave();
    call.ended().await.expect("it ends with the call");
    let file = fs::read(folder.join("voicemail-ab.wav")).expect("a file of this folder");
    let said: Vec<u8> = [3_000_i16; 16_000].map(i16::to_le_bytes).concat();
    assert!(file.ends_with(&said), "{} bytes", file.len());
    assert_eq!(&file[..4], b"RIFF");
    // Another program reads the file: here, a caller that plays it.
    let mut again = Caller::browser().call(hello::bot);
    assert!(again.speak_wav(&file).await.expect("a WAV file"));
    fs::remove_dir_all(folder).expect("it is the test's");
}

#[tokio::test]
async fn voicemail_writes_no_file_without_speech() {
    let folder = env::temp_dir().join(format!("edge-runner-no-voicemail-{}", process::id()));
    let mut call = Caller::browser().call(async move |args| voicemail::record(args, &folder).await);
    call.join();
    call.leave();
    call.ended().await.expect("nothing is written, so no folder is needed");
}

#[tokio::test]
async fn room_reports_who_left() {
    let mut call = Caller::media_room("meeting").call(room::bot);
    call.join();
    let mut ann = Participant::default();
    ann.identity = "ann".into();
    call.push_event(Event::ParticipantLeft(ann));
    assert_eq!(call.next_message().await.as_deref(), Some("ann spoke for 0 s"));
    call.push_event(Event::JoinFailed("401".into()));
    call.leave();
    assert_eq!(
        call.ended().await.expect_err("the room was not joined").to_string(),
        "401"
    );
}
