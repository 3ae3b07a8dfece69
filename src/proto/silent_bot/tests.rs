//! Tests of the watch over a bot of which a caller hears nothing.

use super::*;
use crate::audio::tone::Tone;

const RATE_HZ: u32 = 16_000;

struct Rig {
    watch: SilentBotWatch,
    now: Instant,
    voice: Tone,
    warnings: Vec<String>,
}

impl Rig {
    /// A caller is connected.
    fn new(readiness: Option<BotReadiness>) -> Self {
        let now = Instant::now();
        let mut watch = SilentBotWatch::default();
        assert_eq!(watch.poll_timeout(), None, "there is no caller");
        watch.handle_caller(now);
        if let Some(readiness) = readiness {
            watch.handle_readiness(readiness, now);
        }
        Rig {
            watch,
            now,
            voice: Tone::new(800.0, RATE_HZ),
            warnings: Vec::new(),
        }
    }

    /// Passes time, in which the caller speaks or is silent.
    fn pass(&mut self, ms: u64, is_speaking: bool) {
        for _ in 0..ms / 20 {
            self.now += Duration::from_millis(20);
            // The line is never digital silence, so that the detector knows it.
            let pcm: Vec<i16> = match is_speaking {
                true => self.voice.take(320),
                false => (0..320).map(|at| if at % 2 == 0 { 20 } else { -20 }).collect(),
            };
            self.watch.handle_caller_sound(&pcm, RATE_HZ, self.now);
            self.warnings.extend(self.watch.poll_warning(self.now));
        }
    }

    fn message(&mut self, kind: &str) {
        let text = format!(r#"{{"label":"rtvi-ai","type":"{kind}","data":{{}}}}"#);
        self.watch.handle_message(&text, self.now);
    }

    /// Asserts that the only warning so far has these words.
    fn has_warned(&self, words: &str) {
        let [warning] = &self.warnings[..] else {
            panic!("{words}: {:?}", self.warnings);
        };
        assert!(warning.contains(words), "{warning}");
    }
}

#[test]
fn a_bot_that_is_ready_and_sends_nothing_is_reported_once_within_5_s() {
    let mut rig = Rig::new(Some(BotReadiness::Ready));
    rig.pass(4_980, false);
    assert_eq!(rig.warnings, [""; 0]);
    rig.pass(20, false);
    rig.has_warned("the bot is ready and has sent neither");
    rig.pass(60_000, true);
    rig.pass(60_000, false);
    assert_eq!(rig.warnings.len(), 1);
}

#[test]
fn a_bot_that_starts_has_more_time() {
    let mut rig = Rig::new(Some(BotReadiness::Starting));
    rig.pass(19_980, false);
    assert_eq!(rig.warnings, [""; 0]);
    rig.pass(20, false);
    rig.has_warned("not ready after 20 s");
    // Its time begins when it is ready.
    let mut rig = Rig::new(None);
    rig.pass(15_000, false);
    rig.watch.handle_readiness(BotReadiness::Ready, rig.now);
    rig.pass(4_980, false);
    assert_eq!(rig.warnings, [""; 0]);
    rig.pass(20, false);
    rig.has_warned("the bot is ready");
    // A start that the log knows is not reported again, what follows it is.
    let mut rig = Rig::new(Some(BotReadiness::StartReported));
    rig.pass(60_000, false);
    assert_eq!(rig.warnings, [""; 0]);
    rig.watch.handle_readiness(BotReadiness::Ready, rig.now);
    rig.pass(5_000, false);
    rig.has_warned("the bot is ready");
}

/// Neither `bot-ready` nor silence nor a report of the caller is an answer.
#[test]
fn a_bot_that_listens_has_to_answer_what_the_caller_says() {
    for sign in ["bot-ready", "silence", "library"] {
        let mut rig = Rig::new(Some(BotReadiness::Ready));
        match sign {
            "silence" => rig.watch.handle_sound(&[0, 1, -1, 60]),
            "library" => rig.watch.handle_readiness(BotReadiness::Listening, rig.now),
            message => rig.message(message),
        }
        rig.pass(60_000, false);
        assert_eq!(rig.warnings, [""; 0], "{sign}: it was asked for nothing");
        rig.pass(100, true);
        rig.pass(10_000, false);
        assert_eq!(rig.warnings, [""; 0], "{sign}: a noise is no question");
        rig.pass(2_000, true);
        rig.pass(4_000, false);
        assert_eq!(rig.warnings, [""; 0], "{sign}");
        rig.message("user-transcription");
        rig.pass(4_000, false);
        assert_eq!(rig.warnings, [""; 0], "{sign}: it works");
        rig.pass(1_500, false);
        rig.has_warned("has answered what the caller said neither");
    }
}

#[test]
fn a_bot_that_answers_is_not_reported() {
    for answer in ["sound", "bot-output", "server-message", "plain"] {
        for is_early in [true, false] {
            let mut rig = Rig::new(Some(BotReadiness::Ready));
            if !is_early {
                rig.message("bot-ready");
                rig.pass(2_000, true);
                rig.pass(1_000, false);
            }
            match answer {
                "sound" => rig.watch.handle_sound(&[0, -2_000]),
                "plain" => rig.watch.handle_message("hello", rig.now),
                kind => rig.message(kind),
            }
            assert!(rig.watch.is_done());
            rig.pass(2_000, true);
            rig.pass(60_000, false);
            assert_eq!(rig.warnings, [""; 0], "{answer}");
        }
    }
}

#[test]
fn a_bot_that_is_started_again_has_its_time_again() {
    let mut rig = Rig::new(Some(BotReadiness::Ready));
    rig.pass(4_000, false);
    rig.watch.handle_restart();
    rig.pass(4_000, false);
    rig.watch.handle_readiness(BotReadiness::Ready, rig.now);
    rig.pass(4_980, false);
    assert_eq!(rig.warnings, [""; 0]);
    rig.pass(20, false);
    rig.has_warned("the bot is ready");
}
