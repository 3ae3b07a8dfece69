//! Files with each kind of step, and with each kind of mistake.

use serde_json::json;

use super::*;
use crate::caller::WordPattern;

fn parsed(text: &str) -> Scenario {
    Scenario::parse("tests/booking.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

fn words(text: &str) -> WordPattern {
    WordPattern::parse(text).expect("words")
}

#[test]
fn a_step_is_what_the_caller_does_and_what_the_bot_has_to_do_then() {
    let scenario = parsed(
        r#"
timeout = 20

[[step]]
name = "greeting"
expect-text = "good morning|hello"
expect-silence = 0.5

[[step]]
say = "A table for four"
expect-latency = 2
expect-speech = true
expect-caller-text = ["table", "four"]
expect-no-text = "sorry"
within = 5.5

[[step]]
message = { type = "client-message", data = { t = "seats", d = { n = 4 } } }
expect-event = ["bot-started-speaking", { type = "server-response", data = { t = "seats" } }]

[[step]]
keys = "1#"
[[step]]
wav = "bye.wav"
expect-end = "thank*"
"#,
    );
    assert_eq!(
        (scenario.name.as_str(), scenario.longest),
        ("booking", Some(Duration::from_secs(20)))
    );
    let lines: Vec<usize> = scenario.steps.iter().map(|step| step.line).collect();
    assert_eq!(lines, [4, 9, 17, 21, 23]);
    let names: Vec<&str> = scenario.steps.iter().map(|step| step.check.name.as_str()).collect();
    assert_eq!(names, ["greeting", "step 2", "step 3", "step 4", "step 5"]);
    let actions: Vec<Option<StepSource>> = scenario.steps.iter().map(|step| step.action.clone()).collect();
    assert_eq!(
        actions,
        [
            None,
            Some(StepSource::Say("A table for four".into())),
            Some(StepSource::Message {
                kind: "client-message".into(),
                data: json!({"t": "seats", "d": {"n": 4}}),
            }),
            Some(StepSource::Keys("1#".into())),
            Some(StepSource::Wav("tests/bye.wav".into())),
        ]
    );
    let [greeting, say, message, _, bye] = &scenario.steps[..] else {
        panic!("five steps");
    };
    let check = &greeting.check;
    assert_eq!((check.place.as_str(), check.within), ("tests/booking.toml:4", WITHIN));
    assert_eq!(check.texts, [words("good morning|hello")]);
    assert_eq!(check.silence, Some(Duration::from_millis(500)));
    let check = &say.check;
    assert_eq!(
        (check.latency, check.speech),
        (Some(Duration::from_secs(2)), Some(true))
    );
    assert_eq!(check.caller_texts, [words("table"), words("four")]);
    assert_eq!(check.absent_texts, [words("sorry")]);
    assert_eq!(check.within, Duration::from_millis(5_500));
    assert_eq!(
        message.check.events,
        [
            json!({"type": "bot-started-speaking"}),
            json!({"type": "server-response", "data": {"t": "seats"}})
        ]
    );
    assert_eq!(
        bye.check.end,
        Some(ExpectedEnd {
            reason: Some(words("thank*"))
        })
    );
    let messages: Vec<bool> = scenario.steps.iter().map(ScenarioStep::needs_messages).collect();
    assert_eq!(messages, [true, true, true, false, false]);
    let sounds: Vec<bool> = scenario.steps.iter().map(ScenarioStep::needs_sound).collect();
    assert_eq!(sounds, [false, true, false, false, true]);
}

#[test]
fn mistakes_have_their_line_and_what_is_expected() {
    for (text, line, sentence) in [
        ("", 1, "at least one step"),
        ("[[step]]\ntext =", 2, "no valid TOML"),
        ("step = 1", 1, "[[step]]"),
        ("step = [1]", 1, "[[step]]"),
        ("nam = \"a\"", 1, "did you mean `name`?"),
        ("[[step]]\nexpect-txt = \"a\"", 2, "did you mean `expect-text`?"),
        ("[[step]]\nzzz = 1", 2, "it has name, wav,"),
        ("[[step]]\ntext = 1", 2, "`text` takes a text, not a number"),
        ("[[step]]\ntext = \" \"", 2, "at most 4096 bytes"),
        ("[[step]]\ntext = \"a\"\nkeys = \"1\"", 3, "one of `text` and `keys`"),
        ("[[step]]\nkeys = \"x\"", 2, "keys of a telephone"),
        ("[[step]]\nsilence = 601", 2, "from 0 to 600"),
        ("[[step]]\nwithin = true", 2, "a number of seconds"),
        ("[[step]]\nexpect-text = \"*\"", 2, "alternatives"),
        ("[[step]]\nexpect-text = []", 2, "1 to 32 values"),
        ("[[step]]\nexpect-text = [\n\"a\",\n1]", 4, "a text, not a number"),
        ("[[step]]\nexpect-speech = 1", 2, "`true` or `false`"),
        ("[[step]]\nexpect-end = false", 2, "words of the reason"),
        ("[[step]]\n\nexpect-latency = 1\ntext = \"a\"", 3, "needs a sound"),
        ("[[step]]\nexpect-event = 1", 2, "a table with `type`"),
        ("[[step]]\nexpect-event = { data = 1 }", 2, "a table with `type`"),
        ("[[step]]\nmessage = { type = \"a\", d = 1 }", 2, "no `d`"),
        ("[[step]]\nmessage = { type = \"a\", data = 1979-05-27 }", 2, "no dates"),
        ("[[step]]\nexpect-end = true\n[[step]]", 3, "no step follows `step 1`"),
    ] {
        let error = Scenario::parse("a.toml", text).expect_err(text);
        assert!(error.starts_with(&format!("a.toml:{line}: ")), "{text}: {error}");
        assert!(error.contains(sentence), "{text}: {error}");
    }
    let many = "[[step]]\n".repeat(STEPS_MAX + 1);
    let error = Scenario::parse("a.toml", &many).expect_err("too many");
    assert!(
        error.contains("a.toml:101: a scenario has at most 100 steps"),
        "{error}"
    );
}
