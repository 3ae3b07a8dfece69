//! Whole calls on a clock of the test.

use std::sync::Arc;

use serde_json::json;

use super::super::plan::CallExpectations;
use super::super::scenario::Scenario;
use super::super::sound::PlannedSound;
use super::super::words::WordPattern;
use super::*;
use crate::rtvi::LABEL;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn sound(loud_ms: usize, silent_ms: usize) -> PlannedStep {
    let mut pcm = vec![3_000; loud_ms * 16];
    pcm.extend(vec![0; silent_ms * 16]);
    PlannedStep::Sound {
        label: "a.wav".into(),
        sound: Arc::new(PlannedSound {
            pcm,
            loud_until: loud_ms * 16,
        }),
    }
}

fn plan(steps: Vec<PlannedStep>) -> CallPlan {
    CallPlan {
        steps,
        expect: CallExpectations::default(),
        longest: Duration::from_secs(30),
        hang_up_after: Duration::from_secs(1),
        records: true,
    }
}

/// A call whose clock moves from output to output.
struct Rig {
    call: CallConversation,
    start: Instant,
    now: Instant,
    audio: Vec<Vec<i16>>,
    keys: String,
    texts: Vec<String>,
    messages: Vec<(String, Value)>,
    seen: Vec<(u128, String)>,
    hung_up: bool,
}

impl Rig {
    fn new(plan: CallPlan, has_messages: bool) -> Rig {
        let start = Instant::now();
        Rig {
            call: CallConversation::new(plan, start, start + ms(100), has_messages),
            start,
            now: start + ms(100),
            audio: Vec::new(),
            keys: String::new(),
            texts: Vec::new(),
            messages: Vec::new(),
            seen: Vec::new(),
            hung_up: false,
        }
    }

    fn drain(&mut self) -> Instant {
        loop {
            match self.call.poll_output() {
                ConversationOutput::Timeout(at) => return at,
                ConversationOutput::Audio(frame) => self.audio.push(frame),
                ConversationOutput::Key(key) => self.keys.push(key),
                ConversationOutput::Text(text) => self.texts.push(text),
                ConversationOutput::Message(kind, data) => self.messages.push((kind, data)),
                ConversationOutput::Observed(at, seen) => self.seen.push((at.as_millis(), seen.to_string())),
                ConversationOutput::HangUp => self.hung_up = true,
            }
        }
    }

    /// Runs until a time since the start, or the end of the call.
    fn run_to(&mut self, end: Duration) {
        loop {
            let due = self.drain();
            if self.call.is_over() || due > self.start + end {
                self.now = self.start + end;
                return;
            }
            self.now = due.max(self.now);
            self.call.handle_timeout(self.now);
        }
    }

    fn message(&mut self, kind: &str, data: &serde_json::Value) {
        let text = json!({"label": LABEL, "type": kind, "id": "call", "data": data}).to_string();
        self.call.handle_message(&text, self.now);
    }

    fn seen(&self, text: &str) -> u128 {
        let found = self.seen.iter().find(|(_, seen)| seen.starts_with(text));
        found.unwrap_or_else(|| panic!("no `{text}` in {:?}", self.seen)).0
    }
}

/// A sound card that records the number of its frame, and is gone after some.
struct Card {
    frames: Arc<std::sync::Mutex<Vec<i16>>>,
    lasts: usize,
}

impl CallerCard for Card {
    fn exchange(&mut self, received: &[i16; FRAME_SAMPLES]) -> Option<[i16; FRAME_SAMPLES]> {
        let mut frames = self.frames.lock().expect("no panic");
        frames.push(received[0]);
        (frames.len() <= self.lasts).then(|| [frames.len() as i16; FRAME_SAMPLES])
    }
}

/// The microphone speaks when the steps are over, the loudspeaker plays from the start, and the
/// call lasts until the user ends it, which is no failure.
#[test]
fn a_caller_talks_until_the_user_hangs_up() {
    let mut rig = Rig::new(plan(vec![sound(100, 0)]), false);
    let frames = Arc::default();
    rig.call.set_card(Box::new(Card {
        frames: Arc::clone(&frames),
        lasts: 1_000,
    }));
    rig.call.handle_audio(&[700; 16_000], 16_000, rig.now);
    rig.run_to(ms(12_100));
    assert!(!rig.call.is_over());
    let said: Vec<i16> = rig.audio.iter().map(|frame| frame[0]).collect();
    assert_eq!((said.len(), &said[4..8]), (601, &[3_000, 6, 7, 8][..]));
    let received = frames.lock().expect("no panic").clone();
    assert_eq!(
        (received[2], received[3], received[53], received.len()),
        (0, 700, 0, 601)
    );
    rig.call.handle_stop(rig.now);
    assert_eq!(rig.call.verdict().failures, Vec::<String>::new());
    // The card of another call is unplugged for too long.
    let mut rig = Rig::new(plan(Vec::new()), false);
    rig.call.set_card(Box::new(Card {
        frames: Arc::default(),
        lasts: 3,
    }));
    rig.run_to(ms(12_000));
    assert!(rig.hung_up);
    assert_eq!(rig.call.verdict().failures, ["the sound card is gone"]);
}

/// The steps follow each other, one frame each 20 ms, and silence is sent between them.
#[test]
fn the_steps_follow_each_other_in_real_time() {
    let steps = vec![
        PlannedStep::Silence(ms(100)),
        sound(200, 100),
        PlannedStep::Keys("1#".into()),
        PlannedStep::Text("hello".into()),
    ];
    let mut rig = Rig::new(plan(steps), false);
    rig.run_to(ms(700));
    assert_eq!(rig.seen("connected"), 100);
    assert_eq!(
        (rig.seen("caller plays a.wav"), rig.seen("caller is silent")),
        (200, 400)
    );
    assert_eq!((rig.seen("caller presses 1"), rig.seen("caller presses #")), (500, 700));
    let loud: Vec<bool> = rig.audio.iter().map(|frame| has_sound(frame)).collect();
    assert_eq!(loud.iter().position(|loud| *loud), Some(5));
    assert_eq!(loud.iter().filter(|loud| **loud).count(), 10);
    rig.run_to(Duration::from_secs(10));
    assert_eq!(
        (rig.keys.as_str(), rig.texts.as_slice()),
        ("1#", &["hello".to_owned()][..])
    );
    assert_eq!(rig.seen("caller: hello"), 900);
    // One more frame finds that no step is left, and a second later the caller hangs up.
    assert_eq!(rig.seen("ended: the caller hung up"), 1_920);
    assert!(rig.hung_up && rig.call.verdict().failures.is_empty());
}

#[test]
fn the_steps_wait_until_the_bot_is_ready() {
    let mut rig = Rig::new(plan(vec![sound(100, 0)]), true);
    rig.run_to(ms(1_000));
    rig.message("bot-ready", &json!({}));
    rig.run_to(ms(1_500));
    assert_eq!((rig.seen("the bot is ready"), rig.seen("caller plays")), (1_000, 1_020));
    let mut rig = Rig::new(plan(vec![sound(100, 0)]), true);
    rig.run_to(ms(3_000));
    assert_eq!(rig.seen("caller plays"), 2_100);
}

#[test]
fn latency_counts_from_the_last_sound_to_the_arrival_of_the_answer() {
    let mut expecting = plan(vec![sound(200, 200)]);
    expecting.expect.latency = Some(ms(500));
    let mut rig = Rig::new(expecting.clone(), false);
    rig.run_to(ms(700));
    // The sound ended at 300 ms, the file at 500 ms.
    rig.call.handle_audio(&[3_000; 3_200], 16_000, rig.now);
    rig.run_to(Duration::from_secs(10));
    let verdict = rig.call.verdict();
    assert_eq!(
        (verdict.failures.as_slice(), verdict.latencies.as_slice()),
        (&[][..], &[ms(400)][..])
    );
    assert_eq!(verdict.first_sound_after, Some(ms(700)));
    assert_eq!((verdict.connected_after, verdict.bot_spoke), (ms(100), ms(200)));
    assert_eq!(rig.seen("bot answers after 0.40 s"), 700);

    let mut rig = Rig::new(expecting.clone(), false);
    rig.run_to(ms(900));
    rig.call.handle_audio(&[3_000; 3_200], 16_000, rig.now);
    rig.run_to(Duration::from_secs(10));
    let late = rig.call.verdict().failures;
    assert_eq!(
        late,
        ["an answer began 0.60 s after the caller's sound, which is more than 0.5 s"]
    );

    let mut rig = Rig::new(expecting, false);
    rig.run_to(Duration::from_secs(60));
    assert_eq!(rig.seen("ended: the time is over"), 30_000);
    let none = rig.call.verdict().failures;
    assert_eq!(none, ["no answer within 0.5 s: the caller's last sound has none"]);
}

#[test]
fn the_caller_waits_for_what_it_expects() {
    let mut expecting = plan(Vec::new());
    expecting.expect.texts = ["good morning", "bye"]
        .map(|words| WordPattern::parse(words).expect("words"))
        .into();
    expecting.expect.speech = true;
    let mut rig = Rig::new(expecting, true);
    rig.run_to(Duration::from_secs(8));
    assert!(!rig.call.is_over());
    rig.message("bot-transcription", &json!({"text": "Good"}));
    rig.message("bot-transcription", &json!({"text": "morning!"}));
    rig.message("user-transcription", &json!({"text": "bye", "final": true}));
    rig.call.handle_audio(&[3_000; 4_800], 16_000, rig.now);
    rig.run_to(Duration::from_secs(12));
    assert!(!rig.call.is_over());
    rig.message("bot-transcription", &json!({"text": "Bye"}));
    rig.run_to(Duration::from_secs(20));
    assert_eq!(rig.seen("bot understands: bye"), 8_000);
    assert!(
        (13_000..13_040).contains(&rig.seen("ended: the caller hung up")),
        "{:?}",
        rig.seen
    );
    assert!(rig.call.verdict().failures.is_empty());
}

#[test]
fn a_failure_says_what_there_was_instead() {
    let mut expecting = plan(Vec::new());
    expecting.expect.texts = vec![WordPattern::parse("bye").expect("words")];
    expecting.expect.speech = true;
    let mut rig = Rig::new(expecting.clone(), true);
    rig.message("bot-transcription", &json!({"text": "Good morning"}));
    rig.call.handle_audio(&[3_000; 1_600], 16_000, rig.now);
    rig.run_to(Duration::from_secs(60));
    assert_eq!(
        rig.call.verdict().failures,
        [
            "no text matches `bye`: the bot's texts are \"Good morning\"",
            "no speech of the bot: 0.10 s of sound in a call of 30.0 s, of at least 0.3 s",
        ]
    );
    let mut rig = Rig::new(expecting, true);
    rig.message("bot-transcription", &json!({"text": "a ".repeat(400)}));
    rig.run_to(Duration::from_secs(60));
    let failure = &rig.call.verdict().failures[0];
    assert!(failure.contains("begin with") && failure.len() < 600, "{failure}");
}

#[test]
fn the_end_of_the_other_side_is_a_failure_if_something_is_missing() {
    let mut rig = Rig::new(plan(vec![sound(1_000, 0), PlannedStep::Text("a".into())]), false);
    rig.run_to(ms(500));
    rig.call.handle_end(Ok(String::new()), rig.now);
    rig.drain();
    assert_eq!(rig.call.verdict().failures, ["the call ended after 0 of 2 steps"]);
    assert!(!rig.hung_up && rig.seen("ended: the bot hung up") == 500);

    let mut rig = Rig::new(plan(vec![sound(100, 0)]), false);
    rig.run_to(ms(900));
    rig.call.handle_end(Ok("bye".into()), rig.now);
    assert!(rig.call.verdict().failures.is_empty());

    let mut rig = Rig::new(plan(vec![sound(1_000, 0)]), false);
    rig.run_to(ms(500));
    rig.call.handle_end(Err("reset".into()), rig.now);
    assert_eq!(rig.call.verdict().failures, ["the connection was lost: reset"]);
    // What arrives later changes nothing.
    rig.call.handle_end(Ok(String::new()), rig.now);
    rig.call.handle_audio(&[3_000; 320], 16_000, rig.now);
    rig.call.handle_stop(rig.now);
    rig.call.handle_timeout(rig.now + ms(60));
    rig.drain();
    assert_eq!(rig.call.verdict().failures.len(), 1);
    assert!(rig.call.verdict().first_sound_after.is_none() && !rig.hung_up);
}

/// Both sides of the recording are in the time of the caller.
#[test]
fn the_recording_is_aligned() {
    let mut rig = Rig::new(plan(vec![sound(100, 0)]), false);
    rig.run_to(ms(300));
    rig.call.handle_audio(&[2_000; 1_600], 16_000, rig.now);
    rig.run_to(ms(900));
    let file = rig.call.recording().to_wav();
    let samples: Vec<[i16; 2]> = file[44..]
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| [0, 2].map(|at| i16::from_le_bytes([bytes[at], bytes[at + 1]])))
        .collect();
    let first = |side: usize| samples.iter().position(|sample| sample[side] != 0);
    // The caller at once; the bot 200 ms after the connection, and the buffer of 60 ms.
    assert_eq!((first(0), first(1)), (Some(0), Some(260 * 16)));
    assert_eq!(samples.iter().filter(|sample| sample[1] == 2_000).count(), 1_600);
}

#[test]
fn an_interruption_drops_the_rest_of_the_speech() {
    let mut rig = Rig::new(plan(Vec::new()), false);
    rig.call.handle_audio(&[3_000; 16_000], 16_000, rig.now);
    rig.run_to(ms(500));
    rig.call.handle_interruption();
    rig.run_to(Duration::from_secs(3));
    let spoke = rig.call.verdict().bot_spoke;
    assert!(spoke > ms(300) && spoke < ms(400), "{spoke:?}");
    assert!(rig.call.is_over());
}

/// After a pause of the process, half a second is made up, and the clock goes on from there.
#[test]
fn a_late_clock_does_not_send_a_burst() {
    let mut rig = Rig::new(plan(vec![PlannedStep::Silence(Duration::from_secs(20))]), false);
    rig.run_to(ms(200));
    let before = rig.audio.len();
    rig.call.handle_timeout(rig.start + Duration::from_secs(10));
    let next = rig.drain();
    assert_eq!(rig.audio.len() - before, 25);
    assert_eq!(next, rig.start + Duration::from_secs(10));
}

/// A transport that sends silence without an end does not keep the caller.
#[test]
fn silence_of_the_bot_ends_its_turn() {
    let mut rig = Rig::new(plan(Vec::new()), false);
    rig.call.handle_audio(&[3_000; 3_200], 16_000, rig.now);
    for at in (100..5_000).step_by(20) {
        rig.run_to(ms(at));
        rig.call.handle_audio(&[0; 320], 16_000, rig.now);
    }
    assert!((800..900).contains(&rig.seen("bot is silent")), "{:?}", rig.seen);
    assert!(rig.call.is_over());
}

#[test]
fn the_user_can_hang_up() {
    let mut rig = Rig::new(plan(vec![PlannedStep::Silence(Duration::from_secs(20))]), false);
    rig.run_to(ms(200));
    rig.call.handle_stop(rig.now);
    rig.drain();
    assert!(rig.hung_up && rig.call.is_over());
    assert_eq!(rig.seen("ended: stopped by the user"), 200);
}

#[test]
fn the_texts_of_the_bot_are_bounded() {
    let mut rig = Rig::new(plan(Vec::new()), true);
    for _ in 0..20 {
        rig.message("bot-transcription", &json!({"text": "\u{e4}".repeat(4_000)}));
    }
    assert!(rig.call.bot_texts.quoted(BOT_TEXTS).len() < 600);
    rig.message("bot-transcription", &json!({"text": "bye"}));
    assert!(WordPattern::parse("bye").is_some_and(|words| rig.call.bot_texts.contain(&words)));
}

fn check(text: &str) -> PlannedStep {
    let scenario = Scenario::parse("s.toml", &format!("[[step]]\n{text}")).expect("a scenario");
    PlannedStep::Check(Arc::new(scenario.steps[0].check.clone()))
}

fn outcomes(rig: &Rig) -> Vec<StepOutcome> {
    let steps = rig.call.verdict().steps;
    steps.into_iter().map(|step| step.outcome).collect()
}

fn failed(outcome: &StepOutcome) -> &str {
    match outcome {
        StepOutcome::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

/// Each step counts what the bot does since it began, and the next begins when it holds.
#[test]
fn the_steps_of_a_scenario_wait_for_each_other() {
    let steps = vec![
        check("name = \"greeting\"\nexpect-text = \"good morning\""),
        PlannedStep::Text("bye".into()),
        check("expect-text = \"good\""),
        PlannedStep::Message {
            kind: "client-message".into(),
            data: json!({"t": 1}),
        },
        check("expect-event = { type = \"server-response\", data = { t = 1 } }\nexpect-caller-text = \"yes\""),
    ];
    let mut rig = Rig::new(plan(steps), true);
    // A greeting before the bot is ready counts.
    rig.message("bot-transcription", &json!({"text": "Good morning"}));
    rig.message("bot-ready", &json!({}));
    rig.run_to(ms(1_000));
    assert_eq!((rig.seen("passed: greeting"), rig.seen("caller: bye")), (100, 120));
    rig.run_to(ms(5_000));
    assert!(
        outcomes(&rig)[1..]
            .iter()
            .all(|outcome| *outcome == StepOutcome::Skipped)
    );
    rig.message("bot-transcription", &json!({"text": "Good bye"}));
    rig.run_to(ms(5_100));
    assert_eq!(rig.seen("caller sends client-message"), 5_040);
    assert_eq!(rig.messages, [("client-message".to_owned(), json!({"t": 1}))]);
    rig.message("server-response", &json!({"t": 1, "d": {}}));
    rig.message("user-transcription", &json!({"text": "Yes.", "final": true}));
    rig.run_to(ms(9_000));
    assert_eq!(outcomes(&rig), vec![StepOutcome::Passed; 3]);
    assert_eq!(rig.call.verdict().failures, Vec::<String>::new());
    assert!((6_000..6_200).contains(&rig.seen("ended: the caller hung up")));
    let lasted = rig.call.verdict().steps[1].lasted;
    assert!((ms(4_850)..ms(4_950)).contains(&lasted), "{lasted:?}");
}

#[test]
fn a_failed_step_ends_the_call_and_skips_the_rest() {
    let steps = vec![
        check("name = \"greeting\"\nexpect-text = \"hello\"\nexpect-speech = true\nwithin = 2"),
        PlannedStep::Text("never".into()),
        check(""),
    ];
    let mut rig = Rig::new(plan(steps), true);
    rig.message("bot-ready", &json!({}));
    rig.message("bot-transcription", &json!({"text": "Good morning"}));
    rig.run_to(ms(9_000));
    let why = "within 2 s: no text matches `hello`: the bot's texts are \"Good morning\"; \
               no speech of the bot: 0.00 s of sound, of at least 0.3 s";
    assert_eq!(outcomes(&rig), [StepOutcome::Failed(why.into()), StepOutcome::Skipped]);
    assert_eq!(rig.call.verdict().failures, [format!("s.toml:1: `greeting`: {why}")]);
    assert_eq!(rig.seen("ended: a step has failed"), 2_100);
    assert!(rig.hung_up && rig.texts.is_empty());
}

#[test]
fn what_must_not_happen_fails_at_once() {
    for (step, why) in [
        (
            "expect-no-text = \"sorry\"\nexpect-text = \"x\"",
            "a text matches `sorry`",
        ),
        ("expect-speech = false\nexpect-text = \"x\"", "the bot spoke"),
    ] {
        let mut rig = Rig::new(plan(vec![check(step)]), true);
        rig.message("bot-ready", &json!({}));
        rig.run_to(ms(500));
        assert!(!rig.call.is_over());
        rig.message("bot-transcription", &json!({"text": "I am sorry"}));
        rig.call.handle_audio(&[3_000; 3_200], 16_000, rig.now);
        rig.run_to(ms(1_000));
        assert!(failed(&outcomes(&rig)[0]).contains(why), "{:?}", outcomes(&rig));
    }
    let mut rig = Rig::new(
        plan(vec![check("expect-no-text = \"sorry\"\nexpect-speech = false")]),
        true,
    );
    rig.run_to(ms(5_000));
    assert_eq!(outcomes(&rig), [StepOutcome::Passed]);
}

#[test]
fn the_latency_of_a_step_is_that_of_its_own_sound() {
    let check = || match check("say = \"a\"\nexpect-latency = 0.5") {
        PlannedStep::Check(step) => PlannedStep::Check(step),
        other => panic!("{other:?}"),
    };
    let steps = || {
        vec![
            sound(200, 0),
            check(),
            PlannedStep::Silence(ms(1_000)),
            sound(200, 0),
            check(),
        ]
    };
    let mut rig = Rig::new(plan(steps()), false);
    rig.run_to(ms(500));
    rig.call.handle_audio(&[3_000; 320], 16_000, rig.now);
    rig.run_to(ms(1_900));
    rig.call.handle_audio(&[3_000; 320], 16_000, rig.now);
    rig.run_to(ms(5_000));
    assert_eq!(outcomes(&rig), [StepOutcome::Passed, StepOutcome::Passed]);

    let mut rig = Rig::new(plan(steps()), false);
    rig.run_to(ms(500));
    rig.call.handle_audio(&[3_000; 320], 16_000, rig.now);
    rig.run_to(ms(9_000));
    assert_eq!(
        failed(&outcomes(&rig)[1]),
        "no answer within 0.5 s after the caller's sound"
    );
    assert!(rig.seen("ended: a step has failed") < 2_400);
}

/// The silence of a step counts from the end of the bot's sound and of its text.
#[test]
fn a_step_waits_until_the_bot_is_quiet() {
    let steps = vec![check("expect-silence = 1"), PlannedStep::Text("bye".into())];
    let mut rig = Rig::new(plan(steps.clone()), false);
    rig.call.handle_audio(&[3_000; 8_000], 16_000, rig.now);
    rig.run_to(ms(5_000));
    // 500 ms of sound behind the buffer of 60 ms, and a second.
    assert!((1_620..1_700).contains(&rig.seen("caller: bye")), "{:?}", rig.seen);
    let mut rig = Rig::new(plan(steps), true);
    rig.message("bot-ready", &json!({}));
    rig.run_to(ms(800));
    rig.message("bot-transcription", &json!({"text": "Hello"}));
    rig.run_to(ms(5_000));
    assert_eq!(rig.seen("caller: bye"), 1_820);
}

#[test]
fn the_end_by_the_bot_is_expected_or_a_failure() {
    let ended = |text: &str, end: Result<String, String>| {
        let mut rig = Rig::new(plan(vec![check(text)]), true);
        rig.message("bot-ready", &json!({}));
        rig.run_to(ms(500));
        rig.call.handle_end(end, rig.now);
        rig.drain();
        let failures = rig.call.verdict().failures;
        (outcomes(&rig).remove(0), failures.len())
    };
    assert_eq!(ended("expect-end = true", Ok(String::new())), (StepOutcome::Passed, 0));
    assert_eq!(
        ended("expect-end = \"good bye\"", Ok("Good bye!".into())),
        (StepOutcome::Passed, 0)
    );
    for (text, end, why) in [
        (
            "expect-end = \"bye\"",
            Ok("error".to_owned()),
            "no reason of the end matches `bye`: the bot hung up: error",
        ),
        (
            "expect-end = true\nexpect-text = \"bye\"",
            Ok(String::new()),
            "no text matches `bye`",
        ),
        (
            "expect-text = \"bye\"",
            Ok("error".to_owned()),
            "the bot hung up: error; no text matches `bye`",
        ),
        (
            "expect-end = true",
            Err("reset".to_owned()),
            "the connection was lost: reset",
        ),
    ] {
        let (outcome, failures) = ended(text, end);
        assert!(failed(&outcome).contains(why), "{text}: {outcome:?}");
        assert_eq!(failures, 1, "{text}");
    }
    let mut rig = Rig::new(plan(vec![check("expect-end = true\nwithin = 1")]), false);
    rig.run_to(ms(5_000));
    assert_eq!(failed(&outcomes(&rig)[0]), "within 1 s: the bot did not hang up");
}

#[test]
fn a_scenario_that_is_cut_off_says_what_it_waited_for() {
    let steps = vec![
        PlannedStep::Silence(ms(100)),
        check("expect-text = \"a\"\nwithin = 60"),
        check(""),
    ];
    let mut rig = Rig::new(plan(steps.clone()), true);
    rig.run_to(Duration::from_secs(60));
    assert_eq!(
        failed(&outcomes(&rig)[0]),
        "the time is over; no text matches `a`: the bot's texts are empty"
    );
    let mut rig = Rig::new(plan(steps), true);
    rig.run_to(ms(500));
    rig.call.handle_stop(rig.now);
    rig.drain();
    assert!(failed(&outcomes(&rig)[0]).starts_with("stopped by the user; no text"));
    assert_eq!(outcomes(&rig)[1], StepOutcome::Skipped);
    assert!(rig.hung_up && rig.call.verdict().failures.len() == 1);
}
