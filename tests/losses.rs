//! A microcontroller on a bad network in virtual time: lost packets of the data channel's setup,
//! and outages.
//!
//! The strict device of `support` sends every packet of its channel once.

use std::time::Duration;

use edge_runner_proto::event::SessionEvent;

use crate::support::device::timeless::{Call, Rng};
use crate::support::device::{Direction, Lost, Options, Step};
use crate::support::sound::Speech;

const TEXT: &str = r#"{"label":"rtvi-ai","type":"bot-ready","id":"0"}"#;
/// The time from the handshake to texts in both directions, whichever packet is lost.
const WORKS_WITHIN: Duration = Duration::from_secs(4);

fn ping(number: usize) -> String {
    format!(r#"{{"label":"rtvi-ai","type":"test","id":"{number}"}}"#)
}

/// A device that sends two texts per second for half a minute, and no audio.
fn talkative() -> Options {
    Options {
        says: (0..120).map(ping).collect(),
        mute: true,
        ..Options::new(Speech::Silence)
    }
}

/// Returns when texts had passed both ways after the handshake; `None` after half a minute.
fn works_after(call: &mut Call) -> Option<Duration> {
    call.send(TEXT);
    let works = |call: &Call| call.report.has_message("bot-ready") && call.texts().next().is_some();
    let done = call.run_until(Duration::from_secs(30), works);
    done.then(|| call.time() - call.connected.expect("it has sent a text"))
}

fn lost(direction: Direction, step: Step) -> Lost {
    Lost { direction, step }
}

/// Every packet of the setup with its direction, when the device starts and when the runner does.
const DEVICE_BEGINS: [(Direction, Step); 7] = [
    (Direction::ToRunner, Step::Init),
    (Direction::ToDevice, Step::InitAck),
    (Direction::ToRunner, Step::CookieEcho),
    (Direction::ToDevice, Step::CookieAck),
    (Direction::ToRunner, Step::Open),
    (Direction::ToDevice, Step::OpenAck),
    (Direction::ToRunner, Step::Sack),
];
const RUNNER_BEGINS: [(Direction, Step); 6] = [
    (Direction::ToDevice, Step::Init),
    (Direction::ToRunner, Step::InitAck),
    (Direction::ToDevice, Step::CookieEcho),
    (Direction::ToRunner, Step::CookieAck),
    (Direction::ToRunner, Step::Open),
    (Direction::ToDevice, Step::OpenAck),
];

/// On a good network the channel works at once.
#[test]
fn the_channel_works_at_once() {
    let mut call = Call::new(talkative(), Box::new(|_, _| true));
    let after = works_after(&mut call).expect("a channel");
    assert!(after < Duration::from_millis(300), "{after:?}");
    call.report.assert_clean();
}

/// With any single packet of the setup lost, texts pass both ways within 4 s of the handshake.
#[test]
fn the_channel_works_whichever_packet_is_lost() {
    for (direction, step) in DEVICE_BEGINS {
        let options = Options {
            loses: vec![lost(direction, step)],
            ..talkative()
        };
        let mut call = Call::new(options, Box::new(|_, _| true));
        let after = works_after(&mut call);
        println!("{step:?} {direction:?}: {after:?}");
        assert!(
            after.is_some_and(|after| after < WORKS_WITHIN),
            "{step:?} {direction:?}: {after:?}"
        );
        call.report.assert_clean();
    }
}

/// The same with the device's INIT lost too, so that the runner starts.
#[test]
fn the_channel_works_whichever_packet_is_lost_when_the_runner_begins() {
    for (direction, step) in RUNNER_BEGINS {
        let options = Options {
            loses: vec![lost(Direction::ToRunner, Step::Init), lost(direction, step)],
            ..talkative()
        };
        let mut call = Call::new(options, Box::new(|_, _| true));
        let after = works_after(&mut call);
        println!("{step:?} {direction:?}: {after:?}");
        assert!(
            after.is_some_and(|after| after < WORKS_WITHIN),
            "{step:?} {direction:?}: {after:?}"
        );
        call.report.assert_clean();
    }
}

/// The channel request of a silent device is lost; the bot's text still arrives.
#[test]
fn a_silent_device_whose_request_is_lost_gets_texts() {
    let options = Options {
        says: Vec::new(),
        loses: vec![lost(Direction::ToRunner, Step::Open)],
        ..talkative()
    };
    let mut call = Call::new(options, Box::new(|_, _| true));
    call.send(TEXT);
    assert!(call.run_until(Duration::from_secs(4), |call| call.report.has_message("bot-ready")));
    call.report.assert_clean();
}

/// One datagram in twenty is lost in each direction from the first check on: 200 of 200 calls have
/// a channel.
#[test]
fn every_call_has_a_channel_at_5_percent_loss() {
    let mut slowest = Duration::ZERO;
    let mut late = 0;
    for seed in 1..=200 {
        let mut rng = Rng::new(seed);
        let mut call = Call::new(talkative(), Box::new(move |_, _| rng.percent() >= 5));
        let after = works_after(&mut call);
        let after = after.unwrap_or_else(|| panic!("seed {seed}: connected {:?}", call.connected));
        slowest = slowest.max(after);
        late += u32::from(after >= WORKS_WITHIN);
    }
    println!("200 of 200 channels; the slowest after {slowest:?}, {late} after more than {WORKS_WITHIN:?}");
}

/// After an outage, audio resumes at once, and texts within SCTP's retransmission time.
#[test]
fn audio_and_texts_survive_an_outage() {
    for (outage_ms, texts_within_s) in [
        (500, 2),
        (1_000, 2),
        (2_000, 4),
        (5_000, 8),
        (8_000, 8),
        (20_000, 16),
        (28_000, 16),
    ] {
        let (from, outage) = (Duration::from_secs(3), Duration::from_millis(outage_ms));
        let options = Options {
            says: (0..400).map(ping).collect(),
            ..Options::new(Speech::Silence)
        };
        let cut = from..from + outage;
        let mut call = Call::new(options, Box::new(move |_, at| !cut.contains(&at)));
        call.run(from);
        call.send(TEXT);
        call.run(outage);
        let (frames, packets, end) = (call.received.len(), call.report.audio.len(), call.time());
        call.run(Duration::from_secs(1));
        let (received, played) = (call.received.len() - frames, call.report.audio.len() - packets);
        assert!(
            received >= 45 && played >= 45,
            "{outage:?}: {received} frames in and {played} back in a second"
        );
        assert!(call.texts().any(|(at, _)| at > end), "{outage:?}: texts of the device");
        let back = call.run_until(Duration::from_secs(texts_within_s), |call| {
            call.report.has_message("bot-ready")
        });
        println!("{outage:?}: a text after {:?}", call.time() - end);
        assert!(back, "{outage:?}");
        assert_eq!(call.left(), None);
        let lost = call.events.iter().any(|(_, event)| *event == SessionEvent::Lost);
        assert_eq!(lost, outage > Duration::from_secs(6), "{outage:?}");
        assert_eq!(call.report.closed, None);
    }
}

/// A device that generates keys or starts its codec before it reads the handshake connects, as long
/// as the session waits.
#[test]
fn a_device_that_is_busy_before_its_handshake_connects() {
    for busy_ms in [500, 2_000, 5_000, 9_000, 13_000] {
        let busy = Duration::from_millis(busy_ms);
        let options = Options { busy, ..talkative() };
        let mut call = Call::new(options, Box::new(|_, _| true));
        let after = works_after(&mut call);
        println!("busy {busy:?}: connected {:?}, channel {after:?}", call.connected);
        assert!(after.is_some_and(|after| after < WORKS_WITHIN), "{busy:?}: {after:?}");
        assert!(
            call.connected < Some(busy + Duration::from_millis(500)),
            "{:?}",
            call.connected
        );
        call.report.assert_clean();
    }
}

/// In half duplex the bot's silence reopens the microphone after every turn.
#[test]
fn the_microphone_opens_again_after_each_turn_of_the_bot() {
    let options = Options::new(Speech::Tone { hz: 440.0 });
    let mut call = Call::new(options, Box::new(|_, _| true));
    assert!(call.run_until(Duration::from_secs(5), |call| call.loud.len() > 25));
    for turn in 1..=3 {
        call.say(440.0, Duration::from_secs(1));
        call.run(Duration::from_millis(500));
        let before = call.loud.len();
        call.run(Duration::from_millis(300));
        assert_eq!(
            call.loud.len(),
            before,
            "turn {turn}: the bot hears the device while it speaks"
        );
        call.run(Duration::from_secs(1));
        let after = call.loud.len() - before;
        assert!(after >= 20, "turn {turn}: {after} frames of the device afterwards");
    }
    call.report.assert_clean();
}
