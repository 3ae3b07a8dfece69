//! What is asked, within which limits, and what the page shows of the answers.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::assistant::realtime::ErrorNames;
use crate::assistant::services::failure::ServiceStep;
use crate::setup::asked::{ANSWER_WITHIN, ASKED_AT_ONCE_MAX, ASKED_PER_WINDOW_MAX, ASKED_WINDOW, AskedServices};
use crate::setup::tests::{FORM, NEIGHBOUR, OWNER, random};

const KEY: &str = "sk-of-the-service";

/// Returns how the only service of a form is asked, or what is wrong with its fields.
fn planned(service: &str, variables: &Value) -> Result<ServiceCheck, (&'static str, String)> {
    let form = json!({"services": [service], "variables": variables}).to_string();
    let mut planned = plan(form.as_bytes(), &[]).expect("a form");
    assert_eq!(planned.len(), 1);
    planned.remove(0).map_err(|report| {
        assert_eq!(report.state, ReportState::Wrong);
        assert!(!report.text.contains(KEY), "{report:?}");
        (report.variable, report.text)
    })
}

fn chat(variables: &Value) -> OfferCheck {
    match planned("chat", variables) {
        Ok(ServiceCheck::Offer(check)) => check,
        other => panic!("{other:?}"),
    }
}

fn realtime(variables: &Value) -> SessionCheck {
    match planned("realtime", variables) {
        Ok(ServiceCheck::Session(check)) => *check,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_service_is_asked_with_its_own_fields() {
    let form = json!({"services": ["voice", "recognizer", "chat"], "variables": {
        "CASCADE_STT_URL": " tcp://nas:10300 ", "CASCADE_TTS_URL": "http://nas:8880", "CASCADE_TTS_MODEL": "kokoro",
        "CASCADE_LLM_URL": "https://far.example.net/v1", "CASCADE_LLM_MODEL": "m", "CASCADE_LLM_API_KEY": KEY,
        "CASCADE_LANGUAGE": "", "OPENAI_API_KEY": "of-another"}});
    let planned = plan(form.to_string().as_bytes(), &[]).expect("a form");
    let asked: Vec<_> = planned
        .into_iter()
        .map(|check| match check {
            Ok(ServiceCheck::Offer(OfferCheck {
                service, access, model, ..
            })) => {
                let key = access.header().map(|(_, key)| key.expose().to_owned());
                (service, access.endpoint().address().to_owned(), model, key)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let own = |text: &str| Some(text.to_owned());
    assert_eq!(
        asked,
        [
            (SetupService::Recognizer, "nas:10300".to_owned(), None, None),
            (
                SetupService::Chat,
                "far.example.net".to_owned(),
                own("m"),
                own(&format!("Bearer {KEY}"))
            ),
            (SetupService::Voice, "nas:8880".to_owned(), own("kokoro"), None),
        ]
    );
}

/// The session is opened as the runner does: the key of OpenAI stays with its host.
#[test]
fn a_session_is_asked_for_as_the_bot_does() {
    let openai = realtime(&json!({"OPENAI_API_KEY": KEY})).config;
    assert_eq!(
        (openai.url.host(), openai.model.as_str()),
        ("api.openai.com", OPENAI_MODEL)
    );
    assert_eq!(openai.key.expect("a key").expose(), KEY);
    let own = realtime(&json!({"OPENAI_API_KEY": KEY, "REALTIME_URL": "http://nas:8080/v1", "REALTIME_MODEL": "m"}));
    assert_eq!(own.config.key, None);
    assert_eq!(own.config.url.text(), "ws://nas:8080/v1/realtime?model=m");
}

/// What the runner would reject is shown at the field, in words that name no variable.
#[test]
fn wrong_fields_are_shown_before_a_service_is_asked() {
    for (service, variables, field, words) in [
        ("recognizer", json!({}), "CASCADE_STT_URL", "address of the recogniser"),
        (
            "chat",
            json!({"CASCADE_LLM_URL": " "}),
            "CASCADE_LLM_URL",
            "address of the chat model",
        ),
        (
            "voice",
            json!({"CASCADE_TTS_URL": "nas:10200"}),
            "CASCADE_TTS_URL",
            "no address",
        ),
        (
            "voice",
            json!({"CASCADE_TTS_URL": "file:///etc/passwd"}),
            "CASCADE_TTS_URL",
            "no address",
        ),
        (
            "voice",
            json!({"CASCADE_TTS_URL": "tcp://nas"}),
            "CASCADE_TTS_URL",
            "port",
        ),
        (
            "chat",
            json!({"CASCADE_LLM_URL": "http://nas:11434"}),
            "CASCADE_LLM_MODEL",
            "name of its model",
        ),
        (
            "chat",
            json!({"CASCADE_LLM_URL": "https://api.openai.com/v1", "CASCADE_LLM_MODEL": "m"}),
            "CASCADE_LLM_API_KEY",
            "needs a key",
        ),
        (
            "voice",
            json!({"CASCADE_TTS_URL": "https://api.openai.com/v1", "CASCADE_TTS_MODEL": "m", "CASCADE_TTS_API_KEY": KEY}),
            "CASCADE_TTS_VOICE",
            "name of a voice",
        ),
        (
            "chat",
            json!({"CASCADE_LLM_URL": "http://8.8.8.8/v1", "CASCADE_LLM_MODEL": "m", "CASCADE_LLM_API_KEY": KEY}),
            "CASCADE_LLM_URL",
            "https://",
        ),
        (
            "recognizer",
            json!({"CASCADE_STT_URL": "tcp://nas:10300", "CASCADE_STT_API_KEY": KEY}),
            "CASCADE_STT_API_KEY",
            "empty",
        ),
        ("realtime", json!({}), "OPENAI_API_KEY", "your key"),
        (
            "realtime",
            json!({"REALTIME_URL": "tcp://nas:1"}),
            "REALTIME_URL",
            "no address",
        ),
        (
            "realtime",
            json!({"REALTIME_URL": "wss://api.x.ai/v1"}),
            "REALTIME_API_KEY",
            "your key",
        ),
        (
            "realtime",
            json!({"REALTIME_URL": "ws://nas:8080"}),
            "REALTIME_MODEL",
            "model",
        ),
        (
            "realtime",
            json!({"REALTIME_URL": "ws://8.8.8.8", "REALTIME_API_KEY": KEY, "REALTIME_MODEL": "m"}),
            "REALTIME_URL",
            "https://",
        ),
    ] {
        let (variable, text) = planned(service, &variables).expect_err("a wrong field");
        assert_eq!(variable, field, "{variables}: {text}");
        assert!(text.contains(words), "{text}");
        assert!(!text.contains("CASCADE_") && !text.contains("REALTIME_"), "{text}");
    }
}

#[test]
fn only_the_fields_of_services_are_read() {
    for (form, error) in [
        (json!([]), SetupError::Json),
        (json!({"services": ["wifi"], "variables": {}}), SetupError::Json),
        (json!({"services": [], "variables": {}, "more": 1}), SetupError::Json),
        (
            json!({"services": ["chat"], "variables": {"RUNNER_ARGS": "-- sh"}}),
            SetupError::Form(super::super::form::FormError::Variable),
        ),
        (
            json!({"services": ["chat"], "variables": {"CASCADE_LLM_URL": "http://nas\u{1}"}}),
            SetupError::Form(super::super::form::FormError::Value("CASCADE_LLM_URL")),
        ),
    ] {
        assert_eq!(plan(form.to_string().as_bytes(), &[]).err(), Some(error), "{form}");
    }
    // A service that is named twice is asked once.
    let twice = json!({"services": ["chat", "chat"], "variables": {}}).to_string();
    assert_eq!(plan(twice.as_bytes(), &[]).expect("a form").len(), 1);
}

#[test]
fn an_answer_is_shown_at_the_field_to_change() {
    let http = |key: &str| {
        let variables = json!({"CASCADE_LLM_URL": "http://10.0.0.7:11434/v1", "CASCADE_LLM_MODEL": "llama3.2", "CASCADE_LLM_API_KEY": key});
        chat(&variables)
    };
    let models = |ids: &[&str]| {
        let data: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
        Ok(ServiceOffer::Models(json!({"data": data}).to_string().into_bytes()))
    };
    let refused = "connecting to 10.0.0.7: Connection refused".to_owned();
    for (answer, state, field, words) in [
        (
            models(&["llama3.2:latest"]),
            ReportState::Ok,
            "URL",
            "has the model llama3.2",
        ),
        (Ok(ServiceOffer::Unknown), ReportState::Ok, "URL", "first call"),
        (
            models(&["other"]),
            ReportState::Failed,
            "MODEL",
            "does not have llama3.2",
        ),
        (
            Ok(ServiceOffer::Models(b"<html>what was said".to_vec())),
            ReportState::Failed,
            "URL",
            "not as a chat model",
        ),
        (
            Err(ServiceFailure::NoRoute(refused)),
            ReportState::Failed,
            "URL",
            "Connection refused",
        ),
        (
            Err(ServiceFailure::TimedOut(ServiceStep::Begin)),
            ReportState::Failed,
            "URL",
            "does not answer",
        ),
        (
            Err(ServiceFailure::RefusedKey),
            ReportState::Failed,
            "API_KEY",
            "Copy it again",
        ),
        (
            Err(ServiceFailure::Forbidden),
            ReportState::Failed,
            "API_KEY",
            "may be used for",
        ),
        (Err(ServiceFailure::NoQuota), ReportState::Failed, "API_KEY", "credit"),
        (Err(ServiceFailure::Fault), ReportState::Failed, "URL", "in a minute"),
        (
            Err(ServiceFailure::CutShort),
            ReportState::Failed,
            "URL",
            "Check the port",
        ),
        (
            Err(ServiceFailure::Certificate("SSL_CERT_FILE".into())),
            ReportState::Failed,
            "URL",
            "not trusted",
        ),
        (Err(ServiceFailure::Rejected(301)), ReportState::Failed, "URL", "/v1"),
    ] {
        let report = http(KEY).report(&answer);
        assert_eq!(
            (report.service, report.state),
            (SetupService::Chat, state),
            "{report:?}"
        );
        assert_eq!(report.variable, format!("CASCADE_LLM_{field}"), "{report:?}");
        assert!(
            report.text.starts_with("10.0.0.7:11434") || answer.is_err(),
            "{report:?}"
        );
        assert!(report.text.contains(words), "{report:?}");
        for hidden in [KEY, "what was said", "_API_KEY", "SSL_CERT_FILE"] {
            assert!(!report.text.contains(hidden), "{report:?}");
        }
    }
    let without = http("").report(&Err(ServiceFailure::RefusedKey));
    assert!(without.text.contains("asks for a key"), "{without:?}");
}

#[test]
fn a_wyoming_server_of_another_kind_is_shown_at_the_address() {
    let Ok(ServiceCheck::Offer(voice)) = planned("voice", &json!({"CASCADE_TTS_URL": "tcp://nas:10300"})) else {
        panic!("a service to ask");
    };
    let info = json!({"asr": [{"name": "faster-whisper"}], "tts": []});
    let offers = |info: &Value| {
        voice.report(&Ok(ServiceOffer::Programs(
            info.as_object().expect("an object").clone(),
        )))
    };
    let report = offers(&info);
    assert_eq!(
        (report.state, report.variable),
        (ReportState::Failed, "CASCADE_TTS_URL")
    );
    assert!(report.text.contains("is no voice"), "{report:?}");
    assert_eq!(offers(&json!({"tts": [{"name": "piper"}]})).state, ReportState::Ok);
}

#[test]
fn what_a_session_answers_is_shown_at_the_field_to_change() {
    let openai = realtime(&json!({"OPENAI_API_KEY": KEY}));
    let own = realtime(&json!({"REALTIME_URL": "ws://nas:8080", "REALTIME_MODEL": "m"}));
    let refused = |status| ServiceAnswer::NotConnected(ConnectFailure::Refused { status, code: None });
    let unreachable = ConnectFailure::Unreachable("looking up nas: not known".to_owned());
    for (check, answer, field, words) in [
        (&openai, refused(401), OPENAI_KEY, "Copy it again"),
        (&own, refused(401), REALTIME_KEY, "asks for a key"),
        (&openai, refused(402), OPENAI_KEY, "credit"),
        (&own, refused(404), REALTIME_MODEL, "Check address, model and voice"),
        (&own, refused(503), REALTIME_URL, "in a minute"),
        (
            &own,
            ServiceAnswer::NotConnected(unreachable),
            REALTIME_URL,
            "looking up nas",
        ),
        (
            &openai,
            ServiceAnswer::NotConnected(ConnectFailure::TimedOut),
            OPENAI_KEY,
            "does not answer",
        ),
        (
            &own,
            ServiceAnswer::Failed(ErrorNames::default()),
            REALTIME_MODEL,
            "model",
        ),
        (
            &own,
            ServiceAnswer::Closed(Some(4000)),
            REALTIME_URL,
            "speech-to-speech",
        ),
        (&own, ServiceAnswer::Silent, REALTIME_URL, "speech-to-speech"),
    ] {
        let report = check.report(&answer);
        assert_eq!(
            (report.state, report.variable),
            (ReportState::Failed, field),
            "{report:?}"
        );
        assert!(report.text.contains(words) && !report.text.contains(KEY), "{report:?}");
    }
    assert_eq!(own.report(&ServiceAnswer::Session).state, ReportState::Ok);
}

/// The limits, at each and one past it; both end with time.
#[test]
fn services_are_asked_within_limits() {
    let began = Instant::now();
    let mut asked = AskedServices::default();
    assert_eq!(asked.begin(ASKED_AT_ONCE_MAX, began), Ok(()));
    assert_eq!(asked.begin(1, began), Err(ANSWER_WITHIN));
    asked.end(ASKED_AT_ONCE_MAX);
    for _ in ASKED_AT_ONCE_MAX..ASKED_PER_WINDOW_MAX {
        assert_eq!(asked.begin(1, began + Duration::from_secs(10)), Ok(()));
        asked.end(1);
    }
    let now = began + Duration::from_secs(20);
    assert_eq!(asked.begin(1, now), Err(Duration::from_secs(40)));
    // Forms with nothing to ask are answered all the same.
    assert_eq!(asked.begin(0, now), Ok(()));
    // The first ones leave the window, and the others ten seconds later.
    assert_eq!(asked.begin(ASKED_AT_ONCE_MAX, began + ASKED_WINDOW), Ok(()));
    asked.end(ASKED_AT_ONCE_MAX);
    assert_eq!(asked.begin(1, began + ASKED_WINDOW), Err(Duration::from_secs(10)));
    assert_eq!(asked.begin(1, began + ASKED_WINDOW + Duration::from_secs(10)), Ok(()));
}

/// No services are asked past another device's draft, or after the end.
#[test]
fn services_are_checked_for_whom_the_board_is_open() {
    const CHECK: &[u8] = br#"{"services":["chat"],"variables":{"CASCADE_LLM_URL":"tcp://nas:1"}}"#;
    let now = Instant::now();
    let mut state = SetupState::default();
    let check = |state: &mut SetupState, source, after_s| {
        let checked = state.handle_check(CHECK, (source, now + Duration::from_secs(after_s)));
        checked.map(|planned| planned.iter().filter(|check| check.is_ok()).count())
    };
    assert_eq!(check(&mut state, NEIGHBOUR, 0), Ok(1));
    assert!(state.handle_form(FORM, (OWNER, now), random(1), |_| Ok(())).is_ok());
    assert_eq!(check(&mut state, OWNER, 1), Ok(1));
    assert_eq!(
        check(&mut state, NEIGHBOUR, 1),
        Err(SetupError::Held(Duration::from_secs(59)))
    );
    assert_eq!(check(&mut state, NEIGHBOUR, 60), Ok(1));
    for _ in 0..3 {
        assert_eq!(check(&mut state, OWNER, 61), Ok(1));
    }
    assert!(matches!(check(&mut state, OWNER, 62), Err(SetupError::Busy(_))));
    state.handle_checked(6);
    assert_eq!(check(&mut state, OWNER, 62), Ok(1));
    state.close();
    assert_eq!(check(&mut state, OWNER, 63), Err(SetupError::Closed));
}
