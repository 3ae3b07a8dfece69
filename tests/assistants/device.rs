//! Both assistants with a microcontroller: the strict device of `support`, which closes its
//! microphone while it plays, or sends no packets at all.

use std::f64::consts::TAU;

use serde_json::json;

use super::{KEY, bytes};
use crate::device::hears;
use crate::support::cascade::ServiceServer;
use crate::support::device::{Device, Options};
use crate::support::realtime::RealtimeServer;
use crate::support::runner::TestRunner;
use crate::support::sound::{Speech, power};

const EMBEDDED: [&str; 4] = ["--embedded", "--host", "127.0.0.1", "--bot"];
/// The answer of the services.
const ANSWER_HZ: f64 = 600.0;
/// Bytes of a second of the caller's audio, as a speech-to-speech service gets it.
const SECOND: usize = 48_000;

/// A tone at 24 kHz.
fn answer(ms: usize) -> Vec<i16> {
    let sample = |at: usize| (6_000.0 * (TAU * ANSWER_HZ * at as f64 / 24_000.0).sin()) as i16;
    (0..24 * ms).map(sample).collect()
}

fn device_speaking(runner: &TestRunner) -> Device {
    let speech = Speech::Voice {
        from_ms: 500,
        to_ms: 1_500,
    };
    Device::join(runner.addr, Options::new(speech))
}

fn runner_with(server: &RealtimeServer) -> TestRunner {
    let variables = [
        ("REALTIME_URL", server.url()),
        ("REALTIME_API_KEY", KEY.to_owned()),
        ("REALTIME_MODEL", "m".to_owned()),
        ("RUNNER_BOT_GREETING", String::new()),
    ];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    TestRunner::start_with(&[&EMBEDDED[..], &["realtime"]].concat(), &variables)
}

/// The service hears the device, the device plays the answer, and then hears the silence that opens
/// its microphone again.
#[test]
fn a_device_talks_to_a_service() {
    let server = RealtimeServer::start();
    let runner = runner_with(&server);
    let mut device = device_speaking(&runner);
    let mut service = server.accept();
    service.open();
    let is_loud = |audio: &[u8]| {
        let samples: Vec<i16> = audio
            .chunks_exact(2)
            .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
            .collect();
        power(&samples) > 100_000.0
    };
    while !service.audio.chunks_exact(SECOND / 10).any(is_loud) {
        service.hear(service.audio.len() + 1);
    }
    service.send(&json!({"type": "input_audio_buffer.speech_started", "item_id": "u", "audio_start_ms": 500}));
    service.send(&json!({"type": "input_audio_buffer.speech_stopped", "item_id": "u", "audio_end_ms": 1_500}));
    service.begin_response("r", "i");
    service.speak("r", "i", &bytes(&answer(2_000)));
    service.end_response("r", "i", "Hello.");
    hears(&device, ANSWER_HZ);
    device.wait("silence behind the answer", |report| report.silent_frames_at_end() > 10);
    device.vanish().assert_clean();
}

/// A push-to-talk device whose button is not pressed sends nothing; the service, which counts audio
/// and not time, hears silence as long.
#[test]
fn a_service_hears_silence_while_a_device_sends_nothing() {
    let server = RealtimeServer::start();
    let runner = runner_with(&server);
    let options = Options {
        mute: true,
        ..Options::new(Speech::Silence)
    };
    let mut device = Device::join(runner.addr, options);
    let mut service = server.accept();
    service.open();
    device.wait("a connection", |report| report.connected);
    service.hear(2 * SECOND);
    assert!(
        service.audio.iter().all(|byte| *byte == 0),
        "a device that sends nothing is not silent"
    );
    assert_eq!(device.report().sent_packets, 0);
    device.vanish().assert_clean();
}

/// The recogniser gets the words of the device, and the device plays the voice.
#[test]
fn a_device_talks_to_three_services() {
    let (recognizer, model, voice) = (ServiceServer::start(), ServiceServer::start(), ServiceServer::start());
    let urls = [recognizer.wyoming_url(), model.http_url(), voice.wyoming_url()];
    let variables = [
        ("CASCADE_STT_URL", urls[0].as_str()),
        ("CASCADE_LLM_URL", urls[1].as_str()),
        ("CASCADE_LLM_MODEL", "m"),
        ("CASCADE_TTS_URL", urls[2].as_str()),
        ("RUNNER_BOT_GREETING", ""),
    ];
    let runner = TestRunner::start_with(&[&EMBEDDED[..], &["cascade"]].concat(), &variables);
    let mut device = device_speaking(&runner);
    recognizer.recognize("What is it?");
    let request = model.answer_chat(&["It is ", "a tone."]);
    let messages = request["messages"].as_array().expect("messages");
    assert_eq!(
        messages.last().map(|message| &message["content"]),
        Some(&json!("What is it?"))
    );
    assert_eq!(voice.speak(24_000, &answer(2_000)), "It is a tone.");
    hears(&device, ANSWER_HZ);
    device.wait("silence behind the answer", |report| report.silent_frames_at_end() > 10);
    device.vanish().assert_clean();
}
