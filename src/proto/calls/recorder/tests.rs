//! Records of calls, by what passes between a session and its bot.

use serde_json::json;

use super::*;
use crate::answered_by::AnsweredBy;
use crate::event::LeaveReason;
use crate::telephony::named::TWILIO;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

struct Rig {
    call: CallRecorder,
    start: Instant,
    now: Instant,
}

fn rig_with(call_data: Option<&Value>, has_texts: bool) -> Rig {
    // Callers may have spoken before, also on a machine that has just started.
    let start = Instant::now() + Duration::from_secs(60);
    let beginning = CallBeginning {
        id: "c".into(),
        transport: Some(Transport::Telephony(TWILIO)),
        bot: None,
        call_data,
        source: None,
        trace: Traceparent::of_body(&json!({"traceparent": TRACEPARENT})),
        now: start,
        unix_ms: 1_795_904_000_000,
    };
    Rig {
        call: CallRecorder::new(beginning, has_texts),
        start,
        now: start,
    }
}

fn rig() -> Rig {
    rig_with(None, true)
}

impl Rig {
    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    fn event(&mut self, event: &SessionEvent) {
        self.call.handle_event(event, self.now);
    }

    /// The bot begins to speak, so long after the caller's last sound of speech.
    fn answer(&mut self, after_ms: u64) {
        let spoken_until = self.now.checked_sub(Duration::from_millis(after_ms));
        self.call.handle_bot_speech(spoken_until, self.now);
    }

    fn bot(&mut self, kind: &str, data: Value) {
        let message = json!({"label": "rtvi-ai", "type": kind, "data": data}).to_string();
        self.call.handle_bot_message(&message, self.now);
    }

    fn transcribe(&mut self, text: &str) {
        self.bot(
            "user-transcription",
            json!({"text": text, "final": true, "user_id": "", "timestamp": ""}),
        );
    }

    fn end(&mut self, reason: LeaveReason, bot_error: Option<&str>) {
        let mut counts = Counts::default();
        counts.add(Count::PacketsIn, 7);
        counts.add(Count::FramesConcealed, 2);
        let mut network = NetworkTimes::default();
        network.update(NetworkTimes {
            jitter: Some(Duration::from_millis(9)),
            round_trip: Some(Duration::from_millis(40)),
            playout_delay: None,
        });
        // A room that is left knows its server no more.
        network.update(NetworkTimes {
            jitter: Some(Duration::from_millis(3)),
            round_trip: None,
            playout_delay: None,
        });
        let end = CallEnding {
            outcome: reason.into(),
            bot_error,
            provider_error: None,
            counts,
            network,
            now: self.now,
        };
        self.call.handle_end(end);
    }

    fn describe(&self) -> Value {
        self.call.describe(self.now)
    }

    /// Who said what.
    fn texts(&self) -> Vec<(String, String)> {
        let call = self.describe();
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let texts = call["turns"].as_array().expect("a list").iter();
        texts.map(|each| (text(&each["by"]), text(&each["text"]))).collect()
    }
}

fn said(texts: &[(&str, &str)]) -> Vec<(String, String)> {
    texts
        .iter()
        .map(|(by, text)| ((*by).to_owned(), (*text).to_owned()))
        .collect()
}

#[test]
fn a_call_says_who_called_how_long_and_why_it_ended() {
    let data = json!({"from": "+4366012345", "to": "+431", "call_id": "x"});
    let mut rig = rig_with(Some(&data), true);
    rig.pass(120);
    rig.event(&SessionEvent::Joined);
    rig.pass(60_000);
    assert_eq!(rig.describe()["state"], "live");
    rig.event(&SessionEvent::Dtmf('1'));
    rig.end(LeaveReason::BotFailed, Some("no model"));
    let call = rig.describe();
    assert_eq!(
        (&call["caller"], &call["callee"], &call["transport"]),
        (&json!("+4366012345"), &json!("+431"), &json!("telephony_a"))
    );
    assert_eq!(call["startedAt"], "2026-11-28T22:13:20.000Z");
    assert_eq!(
        (&call["connectedAt"], &call["endedAt"], &call["duration_ms"]),
        (
            &json!("2026-11-28T22:13:20.120Z"),
            &json!("2026-11-28T22:14:20.120Z"),
            &json!(60_120)
        )
    );
    assert_eq!(
        (&call["state"], &call["outcome"], &call["reason"], &call["endedBy"]),
        (
            &json!("ended"),
            &json!("bot_failed"),
            &json!("bot failed"),
            &json!("bot")
        )
    );
    assert_eq!((&call["bot_error"], &call["keys"]), (&json!("no model"), &json!(1)));
    let counts = &call["counts"];
    assert_eq!(
        (&counts["packets_in"], &counts["frames_concealed"]),
        (&json!(7), &json!(2))
    );
    assert_eq!(
        call["network"],
        json!({"jitter_ms": 3, "round_trip_ms": 40, "series": null})
    );
    assert!(!call.to_string().contains(r#""1""#), "a key may be a part of a PIN");
}

/// The time that a bot takes to end belongs to no call, also while the bot still runs.
#[test]
fn a_call_lasts_until_the_caller_leaves() {
    let mut rig = rig();
    rig.pass(5_000);
    rig.event(&SessionEvent::Left(LeaveReason::Left));
    rig.pass(8_000);
    assert_eq!(rig.describe()["duration_ms"], 5_000);
    rig.end(LeaveReason::Left, None);
    assert_eq!(rig.describe()["duration_ms"], 5_000);
}

#[test]
fn a_dialled_call_says_who_answered_and_where_it_went() {
    let mut rig = rig();
    let call = rig.describe();
    assert_eq!(
        (&call["direction"], &call["answered_by"], &call["trace"]),
        (
            &json!("inbound"),
            &Value::Null,
            &json!("4bf92f3577b34da6a3ce929d0e0e4736")
        )
    );
    assert_eq!(
        (&call["transferred_to"], &call["hang_up_reason"]),
        (&Value::Null, &Value::Null)
    );
    let data = json!({"from": "+431", "to": "+4366012345", "direction": "outbound"});
    rig = rig_with(Some(&data), true);
    rig.event(&SessionEvent::AnsweredBy(AnsweredBy::Machine));
    rig.call.handle_transfer("+4369911111");
    rig.call.handle_transfer("+4369922222");
    rig.call.handle_hang_up("the caller pressed #");
    rig.end(LeaveReason::BotEnded, None);
    let call = rig.describe();
    assert_eq!(
        (&call["direction"], &call["answered_by"]),
        (&json!("outbound"), &json!("machine"))
    );
    assert_eq!(
        (&call["transferred_to"], &call["hang_up_reason"], &call["endedBy"]),
        (&json!("+4369911111"), &json!("the caller pressed #"), &json!("bot"))
    );
    let named = rig_with(Some(&json!({"via": "whip", "name": "kitchen"})), true);
    assert_eq!(named.describe()["caller"], "kitchen");
}

/// Each prompt is a text of its own, with the time of the answer that it is.
#[test]
fn prompts_are_texts_of_the_bot() {
    let mut rig = rig();
    rig.call.handle_bot_words("Press 1.", rig.now);
    rig.pass(4_000);
    rig.call.handle_bot_words("Press 2.", rig.now);
    rig.answer(700);
    rig.bot("bot-transcription", json!({"text": "Press 2."}));
    let call = rig.describe();
    assert_eq!(rig.texts(), said(&[("bot", "Press 1."), ("bot", "Press 2.")]));
    assert_eq!(
        (&call["turns"][1]["at_ms"], &call["turns"][1]["latency_ms"]),
        (&json!(4000), &json!(700))
    );
}

/// The time from the end of the caller's speech, before the pause by which the bot knows of it, to
/// the first sound, and what the bot reports of it.
#[test]
fn answers_have_their_latency_and_its_stages() {
    let mut rig = rig();
    rig.bot("user-started-speaking", Value::Null);
    rig.pass(1000);
    rig.bot("user-stopped-speaking", Value::Null);
    rig.pass(200);
    rig.transcribe("What time is it?");
    rig.bot(
        "metrics",
        json!({"ttfb": [{"processor": "LLM#0", "value": 0.3}, {"processor": "TTS#0", "value": 0.0}]}),
    );
    rig.pass(500);
    rig.answer(1_300);
    rig.bot("bot-tts-text", json!({"text": "Noon."}));
    rig.bot("metrics", json!({"ttfb": [{"processor": "TTS#0", "value": 0.1254}]}));
    // A second sound of the same answer.
    rig.pass(900);
    rig.answer(2_200);
    let call = rig.describe();
    assert_eq!(rig.texts(), said(&[("caller", "What time is it?"), ("bot", "Noon.")]));
    assert_eq!(
        call["turns"][1],
        json!({
            "at_ms": 1700, "by": "bot", "text": "Noon.", "latency_ms": 1300,
            "stages": [{"name": "LLM#0", "ms": 300}, {"name": "TTS#0", "ms": 125}],
        })
    );
    assert_eq!(
        (&call["answers"], &call["latency_ms"], &call["latency_max_ms"]),
        (&json!(1), &json!(1300), &json!(1300))
    );
}

/// Pipecat's recognisers report their time before what they recognised, and services that hear and
/// speak report the words of the caller behind the first sound of the answer.
#[test]
fn times_that_come_before_what_was_heard_are_of_its_answer() {
    let mut rig = rig();
    let of = |name: &str, value: f64| json!({"ttfb": [{"processor": name, "value": value}]});
    rig.bot("user-started-speaking", Value::Null);
    rig.bot("metrics", of("STT#0", 0.4));
    rig.transcribe("What time is it?");
    rig.bot("user-stopped-speaking", Value::Null);
    rig.bot("metrics", of("LLM#0", 0.2));
    rig.answer(800);
    rig.bot("bot-tts-text", json!({"text": "Noon."}));
    rig.bot("user-started-speaking", Value::Null);
    rig.bot("user-stopped-speaking", Value::Null);
    rig.pass(900);
    rig.answer(700);
    rig.transcribe("Really?");
    rig.bot("bot-tts-text", json!({"text": "Yes."}));
    // An answer without words, and one whose caller typed, have no part in those that follow.
    rig.bot("user-started-speaking", Value::Null);
    rig.bot("user-stopped-speaking", Value::Null);
    rig.bot("metrics", of("LLM#0", 0.3));
    rig.bot("user-started-speaking", Value::Null);
    rig.bot("user-stopped-speaking", Value::Null);
    rig.transcribe("And now?");
    rig.bot("metrics", of("LLM#0", 0.1));
    let typed = json!({"label": "rtvi-ai", "type": "send-text", "id": "1", "data": {"content": "Hello"}});
    rig.event(&SessionEvent::Message(typed.to_string()));
    rig.bot("bot-tts-text", json!({"text": "Hello."}));
    let texts = rig.describe()["turns"].clone();
    assert_eq!(
        (&texts[1]["latency_ms"], &texts[1]["stages"]),
        (
            &json!(800),
            &json!([{"name": "STT#0", "ms": 400}, {"name": "LLM#0", "ms": 200}])
        )
    );
    assert_eq!(
        (&texts[3]["text"], &texts[3]["latency_ms"]),
        (&json!("Yes."), &json!(700))
    );
    assert_eq!((&texts[5]["text"], texts[5].get("stages")), (&json!("Hello."), None));
}

/// An answer counts as the bot measured it, also where its first sound gave another time before.
#[test]
fn an_answer_counts_as_the_bot_measured_it() {
    let mut rig = rig();
    let report = |rig: &mut Rig, seconds: f64| {
        let stages = json!([{"name": "first_sound", "value": seconds}]);
        rig.bot(
            "metrics",
            json!({
                "ttfb": [{"processor": "cascade", "value": seconds}],
                "answer": {"latency": seconds, "stages": stages},
            }),
        );
    };
    rig.pass(5_000);
    rig.bot("user-stopped-speaking", Value::Null);
    // A sound by which the caller knows that the bot thinks.
    rig.answer(900);
    rig.pass(600);
    rig.bot("bot-transcription", json!({"text": "Noon."}));
    report(&mut rig, 1.5);
    let call = rig.describe();
    assert_eq!(
        (&call["answers"], &call["latency_ms"], &call["latency_max_ms"]),
        (&json!(1), &json!(1500), &json!(1500))
    );
    assert_eq!(call["turns"][0]["latency_ms"], 1500);
    assert_eq!(call["turns"][0]["stages"], json!([{"name": "first_sound", "ms": 1500}]));
    rig.bot("user-started-speaking", Value::Null);
    rig.transcribe("And then?");
    rig.bot("user-stopped-speaking", Value::Null);
    rig.answer(700);
    assert_eq!(rig.describe()["answers"], 1, "the bot will say");
    report(&mut rig, 0.5);
    let call = rig.describe();
    assert_eq!(
        (&call["answers"], &call["latency_ms"], &call["latency_max_ms"]),
        (&json!(2), &json!(1000), &json!(1500))
    );
}

/// A bot that reports nothing has its answers by the caller's voice alone.
#[test]
fn answers_without_reports_count_by_the_voice_of_the_caller() {
    let mut rig = rig();
    rig.pass(60_000);
    rig.call.handle_bot_speech(None, rig.now);
    rig.answer(50);
    rig.answer(31_000);
    assert_eq!(
        rig.describe()["answers"],
        0,
        "a greeting, a caller who still speaks, a reminder"
    );
    rig.answer(800);
    rig.pass(700);
    rig.answer(1_500);
    let call = rig.describe();
    assert_eq!((&call["answers"], &call["latency_ms"]), (&json!(1), &json!(800)));
    // From its first report on, a sound answers a turn that was reported.
    rig.bot("user-started-speaking", Value::Null);
    rig.pass(5_000);
    rig.answer(600);
    assert_eq!(rig.describe()["answers"], 1);
    rig.bot("user-stopped-speaking", Value::Null);
    rig.answer(400);
    assert_eq!(rig.describe()["answers"], 2);
}

/// A text is news when it begins, when it grows, and when its answer's time comes; once each.
#[test]
fn news_are_the_last_text_whenever_it_changes() {
    let mut rig = rig();
    assert_eq!(rig.call.take_news(), None);
    rig.bot("user-stopped-speaking", Value::Null);
    rig.transcribe("Hello.");
    let news = rig.call.take_news().expect("a text");
    assert_eq!(
        news,
        json!({"id": "c", "nth": 0, "at_ms": 0, "by": "caller", "text": "Hello."})
    );
    assert_eq!(rig.call.take_news(), None);
    rig.pass(400);
    rig.bot("bot-tts-text", json!({"text": "Good"}));
    assert_eq!(rig.call.take_news().expect("a text")["nth"], 1);
    rig.bot("bot-tts-text", json!({"text": "day."}));
    rig.answer(400);
    let news = rig.call.take_news().expect("a text");
    assert_eq!((&news["text"], &news["latency_ms"]), (&json!("Good day."), &json!(400)));
    rig.bot("user-started-speaking", Value::Null);
    assert_eq!(rig.call.take_news(), None);
}

/// The greeting answers no one, and the caller's own sound is no answer.
#[test]
fn a_greeting_has_no_latency() {
    let mut rig = rig();
    rig.call.handle_bot_speech(None, rig.now);
    rig.bot("bot-tts-text", json!({"text": "Hello."}));
    rig.bot("user-stopped-speaking", Value::Null);
    rig.bot("user-started-speaking", Value::Null);
    rig.answer(300);
    let call = rig.describe();
    assert_eq!((&call["answers"], &call["latency_ms"]), (&json!(0), &Value::Null));
    assert_eq!(call["turns"][0], json!({"at_ms": 0, "by": "bot", "text": "Hello."}));
}

/// Bots report the same words up to three times; spoken progress is what the caller heard.
#[test]
fn the_words_of_the_bot_are_kept_once() {
    let mut rig = rig();
    rig.bot("bot-tts-text", json!({"text": "Hello"}));
    rig.bot("bot-tts-text", json!({"text": "there."}));
    assert_eq!(rig.texts(), said(&[("bot", "Hello there.")]));
    rig.bot("bot-transcription", json!({"text": "Hello there."}));
    rig.bot("bot-tts-text", json!({"text": "ignored"}));
    assert_eq!(rig.texts(), said(&[("bot", "Hello there.")]));
    let segment = |status: &str, done: &str| {
        json!({
            "text": "Hello there. How are you?", "segment_id": 1, "will_be_spoken": true, "spoken_status": status,
            "spoken_progress": {"accumulated_text": done},
        })
    };
    rig.bot("bot-output", segment("new", ""));
    rig.bot("bot-output", segment("in-progress", "Hello"));
    rig.bot("bot-output", segment("in-progress", "Hello there."));
    assert_eq!(rig.texts(), said(&[("bot", "Hello there.")]));
    rig.call.handle_interruption();
    rig.bot("user-started-speaking", Value::Null);
    rig.transcribe("Stop.");
    rig.bot("bot-transcription", json!({"text": "Sorry."}));
    assert_eq!(
        rig.texts(),
        said(&[("bot", "Hello there."), ("caller", "Stop."), ("bot", "Sorry.")])
    );
    assert_eq!(rig.describe()["interruptions"], 1);
}

#[test]
fn texts_of_the_caller_follow_each_other() {
    let mut rig = rig();
    rig.transcribe("One");
    rig.transcribe("two.");
    let typed = json!({"label": "rtvi-ai", "type": "send-text", "id": "1", "data": {"content": "Three"}});
    rig.event(&SessionEvent::Message(typed.to_string()));
    rig.event(&SessionEvent::Message("send-text".to_owned()));
    assert_eq!(rig.texts(), said(&[("caller", "One two. Three")]));
    rig.bot("bot-tts-text", json!({"text": "Four"}));
    // A transcript that comes late parts the answer.
    rig.transcribe("five");
    rig.bot("bot-tts-text", json!({"text": "six"}));
    assert_eq!(
        rig.texts()[1..],
        said(&[("bot", "Four"), ("caller", "five"), ("bot", "six")])
    );
}

#[test]
fn functions_are_named() {
    let mut rig = rig();
    for _ in 0..NAMES_MAX + 3 {
        rig.bot(
            "llm-function-call-in-progress",
            json!({"function_name": "light_on", "tool_call_id": "1"}),
        );
    }
    assert_eq!(rig.describe()["functions"], json!(vec!["light_on"; NAMES_MAX]));
}

#[test]
fn errors_of_the_bot_are_kept() {
    let mut rig = rig();
    rig.bot("error", json!({"error": "no model", "fatal": false}));
    for _ in 0..NAMES_MAX + 3 {
        rig.bot(
            "error",
            json!({"error": "x".repeat(2 * NAME_BYTES_MAX), "fatal": false}),
        );
    }
    let errors = rig.describe()["errors"].clone();
    assert_eq!(
        (errors.as_array().map(Vec::len), &errors[0]),
        (Some(NAMES_MAX), &json!("no model"))
    );
    assert_eq!(errors[1], "x".repeat(NAME_BYTES_MAX));
}

/// Neither a talkative bot nor one long text exceeds the limits.
#[test]
fn texts_are_bounded() {
    let mut rig = rig();
    let long = "ä".repeat(TEXT_BYTES_MAX);
    for _ in 0..40 {
        rig.transcribe(&long);
        rig.bot("bot-tts-text", json!({"text": long}));
        rig.bot("bot-tts-text", json!({"text": long}));
    }
    let call = rig.describe();
    let texts = rig.texts();
    let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
    assert!(bytes <= TEXTS_BYTES_MAX && texts.iter().all(|(_, text)| text.len() <= TEXT_BYTES_MAX));
    assert_eq!(call["turns_cut"], 80 - texts.len());
    assert!(rig.call.bytes() < 2 * TEXTS_BYTES_MAX, "{}", rig.call.bytes());
}

#[test]
fn without_texts_only_figures_are_kept() {
    let mut rig = rig_with(None, false);
    rig.transcribe("My secret");
    rig.bot("bot-tts-text", json!({"text": "is safe"}));
    rig.bot("bot-transcription", json!({"text": "is safe"}));
    rig.bot("bot-output", json!({"text": "is safe"}));
    rig.bot("error", json!({"error": "is safe"}));
    rig.bot("user-stopped-speaking", Value::Null);
    rig.pass(300);
    rig.answer(300);
    let call = rig.describe();
    assert_eq!((&call["turns"], &call["latency_ms"]), (&json!([]), &json!(300)));
    assert_eq!(call["errors"], json!([]));
    // Each answer that the bot measures counts.
    for latency in [0.5, 0.7] {
        rig.bot("user-started-speaking", Value::Null);
        rig.bot("user-stopped-speaking", Value::Null);
        rig.bot("metrics", json!({"answer": {"latency": latency, "stages": []}}));
        rig.bot("bot-output", json!({"text": "is safe"}));
    }
    let call = rig.describe();
    assert_eq!(
        (&call["answers"], &call["latency_ms"], &call["latency_max_ms"]),
        (&json!(3), &json!(500), &json!(700))
    );
}

#[test]
fn what_is_no_rtvi_changes_nothing() {
    let mut rig = rig();
    let before = rig.describe();
    for text in [
        "",
        "{",
        "null",
        r#"{"label":"rtvi-ai"}"#,
        r#"{"label":"rtvi-ai","type":"metrics","data":{"ttfb":7}}"#,
    ] {
        rig.call.handle_bot_message(text, rig.now);
    }
    rig.bot("bot-output", json!({"text": "  "}));
    rig.bot(
        "metrics",
        json!({"ttfb": [{"processor": 1, "value": 2}, {"value": "x"}, 3]}),
    );
    assert_eq!(rig.describe(), before);
    assert_eq!(rig.start, rig.now);
}

/// The last stage of an answer is half a round trip, as it is known then; an answer before the
/// network is known has none, and that at the end of the call has what was last known.
#[test]
fn an_answer_arrives_half_a_round_trip_later() {
    let mut rig = rig();
    let network = |ms| NetworkTimes {
        jitter: None,
        round_trip: Some(Duration::from_millis(ms)),
        playout_delay: None,
    };
    let counts = Counts::default();
    assert_eq!(rig.call.answers(), None);
    for round_trip_ms in [None, Some(50), Some(30)] {
        rig.transcribe("a question");
        rig.pass(1_000);
        rig.answer(700);
        rig.bot("bot-transcription", json!({"text": "an answer"}));
        rig.pass(1_000);
        let times = round_trip_ms.map(network).unwrap_or_default();
        rig.call.handle_network(&counts, times);
        // Later values are of later answers.
        rig.call.handle_network(&counts, network(400));
        if round_trip_ms.is_some() {
            continue;
        }
        let texts = rig.describe()["turns"].clone();
        assert_eq!(texts[1]["stages"], json!([{"name": "arrival", "ms": 200}]), "{texts}");
    }
    rig.transcribe("a question");
    rig.pass(1_000);
    rig.answer(900);
    rig.bot("bot-transcription", json!({"text": "the last"}));
    rig.end(LeaveReason::Left, None);
    let call = rig.describe();
    let arrival = |nth: usize| call["turns"][2 * nth + 1]["stages"][0]["ms"].clone();
    assert_eq!(
        [arrival(1), arrival(2), arrival(3)],
        [25, 15, 20].map(Value::from),
        "{call}"
    );
    assert_eq!(call["latency_ms"], 750);
    assert_eq!(
        rig.call.answers().as_deref(),
        Some("4 answers after 0.75 s, at most 0.90 s")
    );
    let series = json!([null, 400, 50, 400, 30, 400]);
    assert_eq!(call["network"]["series"]["round_trip_ms"], series, "{call}");
}

/// What a provider reports of the playout replaces half a round trip, and is not replaced.
#[test]
fn an_answer_arrives_when_its_provider_says_so() {
    let mut rig = rig();
    let network = |delay_ms: Option<u64>| NetworkTimes {
        jitter: None,
        round_trip: Some(Duration::from_millis(50)),
        playout_delay: delay_ms.map(Duration::from_millis),
    };
    rig.transcribe("a question");
    rig.pass(1_000);
    rig.answer(700);
    rig.bot("bot-transcription", json!({"text": "an answer"}));
    for (delay_ms, arrival_ms) in [(None, 25), (Some(180), 180), (Some(400), 180), (None, 180)] {
        rig.call.handle_network(&Counts::default(), network(delay_ms));
        let call = rig.describe();
        assert_eq!(call["turns"][1]["stages"][0]["ms"], arrival_ms, "{call}");
    }
    let mut last = network(Some(180));
    last.update(network(None));
    assert_eq!(last.playout_delay, None, "it is that of one answer");
}

/// The address is that of a caller who connects to the runner: not that of a provider, which names
/// a number, nor that of a service that asks for a room. Without texts there is none.
#[test]
fn the_address_of_a_caller_is_recorded_where_the_runner_learns_it() {
    let v6: std::net::IpAddr = "2001:db8::7".parse().expect("an address");
    let of = |transport, data: Value, source: SourceKey, has_texts| {
        let beginning = CallBeginning {
            id: "c".into(),
            transport: Some(transport),
            bot: None,
            call_data: Some(&data),
            source: Some(source),
            trace: None,
            now: Instant::now(),
            unix_ms: 1_795_904_000_000,
        };
        let call = CallRecorder::new(beginning, has_texts).describe(Instant::now());
        (call["address"].clone(), call["provider"].clone())
    };
    let (own, named) = (json!({"name": "kitchen"}), json!({"from": "+431"}));
    let v4 = std::net::IpAddr::from([192, 0, 2, 1]).into();
    let none = (Value::Null, Value::Null);
    for transport in [Transport::WebRtc, Transport::WebSocket, Transport::Moq] {
        assert_eq!(of(transport, own.clone(), v4, true).0, "192.0.2.1");
        assert_eq!(of(transport, own.clone(), v6.into(), true).0, "2001:db8::/64");
        assert_eq!(of(transport, own.clone(), SourceKey::Remote(7), true), none);
        assert_eq!(of(transport, named.clone(), v4, true), none, "an app's servers");
        assert_eq!(of(transport, own.clone(), v4, false), none);
    }
    for transport in [Transport::Videoroom, Transport::Mediaroom, Transport::Local] {
        assert_eq!(of(transport, own.clone(), v4, true), none);
    }
    let telephone = of(Transport::Telephony(TWILIO), own, v4, true);
    assert_eq!(telephone, (Value::Null, json!("twilio")));
}
