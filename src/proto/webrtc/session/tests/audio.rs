//! Audio in both directions: that it flows, at which rate, and when it stops.

use std::time::Duration;

use super::super::*;
use super::pair::{Pair, Tone, ms, secs, share};
use crate::audio::opus::Decoder;

const A4: f64 = 440.0;

/// Packets are sent with the connection, before the bot asks for audio, 50 per second: the client
/// announces the bot's track with the first one.
#[test]
fn silence_is_sent_as_soon_as_the_connection_is_up() {
    let mut pair = Pair::connected();
    let joined = pair.times(&SessionEvent::Joined);
    assert_eq!(joined.len(), 1);
    let first = pair.client.received.first().expect("a packet").at;
    assert!(
        first <= joined[0] + ms(30),
        "joined at {joined:?}, first packet at {first:?}"
    );
    pair.run(secs(5));
    for second in 1..5 {
        let packets = pair.client.received_between(secs(second), secs(second + 1));
        assert!((49..=51).contains(&packets), "{packets} packets in second {second}");
    }
    let steps = pair.client.received.windows(2);
    assert!(
        steps
            .into_iter()
            .all(|two| { two[1].sequence == two[0].sequence + 1 && two[1].timestamp == two[0].timestamp + 960 })
    );
    assert!(
        pair.client
            .pcm_since(Duration::ZERO)
            .iter()
            .all(|sample| sample.abs() <= 1)
    );
    assert_eq!(pair.bot.frames, 0, "a bot that asked for nothing gets nothing");
}

/// A tone of the caller reaches the bot as PCM at its rate, one frame per packet.
#[test]
fn the_bot_hears_the_caller_at_the_rate_it_asked_for() {
    for rate_hz in [8_000, 16_000, 24_000, 48_000] {
        let mut pair = Pair::connected();
        pair.open_audio(rate_hz, 16_000);
        pair.client.speak(A4, pair.now);
        pair.run(secs(2));
        assert_eq!(pair.bot.rate_hz, rate_hz);
        assert!((98..=100).contains(&pair.bot.frames), "{} frames", pair.bot.frames);
        assert_eq!(pair.bot.pcm.len() as u64, pair.bot.frames * u64::from(rate_hz / 50));
        let tail = &pair.bot.pcm[pair.bot.pcm.len() / 2..];
        assert!(share(tail, A4, rate_hz) > 0.9, "{}", share(tail, A4, rate_hz));
        let stats = pair.session.audio_receiver.stats();
        assert_eq!((stats.counters.lost, stats.unreadable), (0, 0));
    }
}

/// The bot's PCM reaches the caller in real time, between the two events of a turn.
#[test]
fn the_caller_hears_the_bot_at_any_rate() {
    for rate_hz in [8_000, 16_000, 24_000] {
        let mut pair = Pair::connected();
        pair.open_audio(16_000, rate_hz);
        let began = pair.time();
        pair.say(&Tone::new(A4, rate_hz).take(rate_hz as usize));
        pair.run(secs(2));
        let pcm = pair.client.pcm_since(began);
        let middle = &pcm[48_000 / 4..48_000 * 3 / 4];
        assert!(share(middle, A4, 48_000) > 0.9, "{}", share(middle, A4, 48_000));
        let (started, stopped) = (
            pair.times(&SessionEvent::SpeechStarted),
            pair.times(&SessionEvent::SpeechStopped),
        );
        assert_eq!((started.len(), stopped.len()), (1, 1), "{:?}", pair.bot.events);
        assert!(started[0] - began <= ms(20));
        let spoke = stopped[0] - started[0];
        assert!((secs(1)..ms(1_500)).contains(&spoke), "{spoke:?}");
    }
}

/// An interruption clears the queue: at most two more packets of speech are sent, the turn ends at
/// once, and silence follows without a gap.
#[test]
fn an_interruption_takes_effect_at_once() {
    let mut pair = Pair::connected();
    pair.open_audio(16_000, 16_000);
    pair.bot.endless = Some(Tone::new(A4, 16_000));
    pair.run(secs(1));
    let interrupted = pair.time();
    pair.interrupt();
    pair.run(secs(1));
    let mut decoder = Decoder::new(48_000).expect("a decoder");
    let loud = pair.client.received.iter().filter(|packet| {
        let pcm = decoder.decode(&packet.payload).expect("an Opus packet");
        packet.at > interrupted + ms(5) && pcm.iter().any(|sample| sample.unsigned_abs() > 1_000)
    });
    assert!(loud.count() <= 2);
    let stopped = pair.times(&SessionEvent::SpeechStopped);
    assert!(
        stopped.len() == 1 && stopped[0] <= interrupted + ms(20),
        "{stopped:?} after {interrupted:?}"
    );
    let after = pair.client.received_between(interrupted, interrupted + ms(900));
    assert!((44..=46).contains(&after), "{after} packets in 900 ms");
}

/// A fifth of all datagrams is lost and others are reordered: the call continues, losses are
/// counted and mostly concealed, messages arrive, and no queue grows.
#[test]
fn a_call_survives_a_bad_network() {
    let mut pair = Pair::connected();
    pair.open_audio(16_000, 16_000);
    pair.client.speak(A4, pair.now);
    for direction in [&mut pair.up, &mut pair.down] {
        direction.loss_percent = 20;
        direction.spread = ms(25);
    }
    let (frames, began) = (pair.bot.frames, pair.time());
    for number in 0..20 {
        pair.send(&format!("down {number}"));
        pair.client.send(&format!("up {number}"));
        pair.run(ms(500));
    }
    assert!(!pair.saw(&SessionEvent::Lost), "{:?}", pair.bot.events);
    assert_eq!(pair.left(), None);
    let received = pair.client.received_between(began, began + secs(10));
    assert!(
        (330..=470).contains(&received),
        "{received} of 500 packets reached the client"
    );
    let frames = pair.bot.frames - frames;
    assert!((450..=500).contains(&frames), "{frames} of 500 frames reached the bot");
    let counters = pair.session.audio_receiver.stats().counters;
    assert!((50..=150).contains(&counters.lost), "{counters:?}");
    assert!(counters.concealed + counters.recovered > 0, "{counters:?}");
    assert!(share(&pair.bot.pcm, A4, 16_000) > 0.5);
    // On a good network, the rest arrives within seconds.
    for direction in [&mut pair.up, &mut pair.down] {
        direction.loss_percent = 0;
    }
    pair.run(secs(10));
    let expected = |direction: &str| -> Vec<String> { (0..20).map(|number| format!("{direction} {number}")).collect() };
    assert_eq!(pair.client.texts(), expected("down"));
    assert_eq!(pair.texts(), expected("up"));
    assert!(pair.session.outbox.is_empty());
    assert_eq!(pair.session.connection.messages_in_flight(), 0);
}

/// A muted caller stops sending, but stays connected.
#[test]
fn a_muted_caller_stays_connected() {
    let mut pair = Pair::connected();
    pair.open_audio(16_000, 16_000);
    pair.client.speak(A4, pair.now);
    pair.run(secs(1));
    pair.client.mute();
    pair.run(secs(60));
    assert!(!pair.saw(&SessionEvent::Lost), "{:?}", pair.bot.events);
    assert_eq!(pair.left(), None);
    let frames = pair.bot.frames;
    pair.client.speak(A4, pair.now);
    pair.run(secs(1));
    assert!(pair.bot.frames - frames >= 45, "{} frames", pair.bot.frames - frames);
}

/// A caller with discontinuous transmission sends a packet per 400 ms while it is silent. What it
/// says then is as much later for the bot as it was for the caller, but for the part of the silence
/// that no packet ends, which would delay the speech.
#[test]
fn time_goes_on_in_a_silence_that_speech_ends() {
    let part = ms(400);
    for parts in [1, 8, 50] {
        let mut pair = Pair::connected();
        pair.open_audio(16_000, 16_000);
        pair.client.speak(A4, pair.now);
        pair.run(secs(1));
        let (from, began) = (pair.bot.pcm.len(), pair.time());
        pair.client.mute();
        // An encoder sends some frames of silence before it stops.
        for length in std::iter::repeat_n(ms(20), 10).chain(std::iter::repeat_n(part, parts)) {
            pair.run(length);
            let now = pair.now;
            pair.client.send_silence(now);
        }
        pair.run(part / 2);
        pair.client.speak(A4, pair.now);
        pair.run(secs(1));
        let took = (pair.time() - began).as_secs_f64();
        let received = (pair.bot.pcm.len() - from) as f64 / 16_000.0;
        assert!(
            (took - 0.4..=took + 0.1).contains(&received),
            "{received} s of sound in {took} s"
        );
        // The speech is at its end and whole, and there is silence before it.
        let pcm = &pair.bot.pcm[from..];
        let (before, speech) = pcm.split_at(pcm.len() - 15_000);
        assert!(share(speech, A4, 16_000) > 0.9, "the speech after {parts} parts");
        let is_silent = |sample: &i16| sample.unsigned_abs() < 500;
        assert!(
            before[3_200..before.len() - 2_000].iter().all(is_silent),
            "{parts} parts"
        );
    }
}
