//! Bots in raw mode against the real binary: ordinary programs on stdin and stdout, called by
//! telephone, by a plain client and over WebRTC.

use crate::support::client::Client;
use crate::support::device::{Device, Options};
use crate::support::provider::assert_echo_of_each_provider;
use crate::support::runner::TestRunner;
use crate::support::skip;
use crate::support::sound::{Speech, tone_share};

/// A program of this machine plays every caller back, and ends with the call.
#[test]
fn a_telephone_hears_itself_through_cat() {
    let runner = &TestRunner::start(&["--bot-audio", "pcm", "--bot-rate", "8000", "--", "cat"]);
    assert_echo_of_each_provider(runner.addr);
    runner.wait_for_logs("session ended: caller left", 4);
    runner.wait_for_sessions(0);
    assert!(!runner.log().contains("the bot failed"), "{}", runner.log());
}

fn halves_a_tone(command: &[&str]) {
    let mut args = vec!["--embedded", "--host", "127.0.0.1", "--bot-audio", "pcm", "--"];
    args.extend(command);
    let runner = TestRunner::start(&args);

    // Over WebRTC.
    let options = Options {
        mutes_itself: false,
        ..Options::new(Speech::Tone { hz: 440.0 })
    };
    let mut device = Device::join(runner.addr, options);
    let second = 16_000;
    let report = device.wait("two seconds of sound", |report| {
        let received = report.pcm.iter().skip_while(|sample| sample.unsigned_abs() < 500);
        received.count() >= 2 * second
    });
    let end = report.pcm.len();
    assert!(tone_share(&report.pcm[end - second..], 440.0) > 0.9);
    device.vanish();

    // Over a WebSocket: the level is half.
    let mut client = Client::connect(runner.addr, "/ws-client");
    let said: Vec<i16> = (0..second)
        .map(|at| ((at as f32 * 440.0 * std::f32::consts::TAU / 16_000.0).sin() * 8_000.0) as i16)
        .collect();
    for frame in said.chunks(320) {
        client.say(frame, 16_000);
    }
    client.hear_until("half a second", |client| {
        client
            .received
            .iter()
            .filter(|sample| sample.unsigned_abs() > 1_000)
            .count()
            > 8_000
    });
    let peak = client.received.iter().map(|sample| sample.unsigned_abs()).max();
    assert!(peak.is_some_and(|peak| (3_800..4_300).contains(&peak)), "{peak:?}");
    client.socket.close(1000);
    client.end();
    runner.wait_for_logs("session ended", 2);
    runner.wait_for_sessions(0);
    assert!(!runner.log().contains("the bot failed"), "{}", runner.log());
}

#[test]
fn a_script_on_the_standard_library_is_a_bot() {
    halves_a_tone(&[
        "python3",
        concat!(env!("CARGO_MANIFEST_DIR"), "/examples/bots/quieter.py"),
    ]);
}

/// The command of the documentation.
#[test]
fn sox_is_a_bot() {
    if !skip::has_program("sox", "sox as a bot", "sox") {
        return;
    }
    let words = "sox --buffer 640 -t raw -r 16000 -e signed -b 16 -c 1 - -t raw - vol 0.5";
    halves_a_tone(&words.split(' ').collect::<Vec<_>>());
}
