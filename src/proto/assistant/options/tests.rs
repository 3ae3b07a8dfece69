//! Tests of the options of assistants.

use super::*;
use crate::kit::write_wav;

fn read_with(list: &[(&str, &str)]) -> Result<(AssistantConfig, Vec<String>), String> {
    let env = Env {
        read: &|path| match path {
            "key" => Ok("hunter2\nmore\n".into()),
            "empty" => Ok("\n".into()),
            "session" => Ok(r#"{"tracing": null}"#.into()),
            "type" => Ok(r#"{"type": "transcription"}"#.into()),
            "text" => Ok("Be brief.\n".into()),
            "sorry.wav" => Ok(write_wav(&[1_000; 8_000], 8_000)),
            "empty.wav" => Ok(write_wav(&[], 8_000)),
            "long.wav" => Ok(write_wav(&vec![0; 20 * 8_000 + 1], 8_000)),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        },
        ..Env::of_variables(list)
    };
    let chosen = ChosenBot {
        built_in: Some(BuiltInBot::Realtime),
        ..ChosenBot::default()
    };
    let mut warnings = Vec::new();
    assistants(&AssistantOptions::default(), &chosen, &env, &mut warnings)
        .map(|config| (config, warnings))
        .map_err(|error| error.to_string())
}

fn config(list: &[(&str, &str)]) -> AssistantConfig {
    let (config, warnings) = read_with(list).expect("valid variables");
    assert_eq!(warnings, [""; 0]);
    config
}

fn exposed(config: &AssistantConfig) -> Option<&str> {
    config.realtime.key.as_ref().map(Secret::expose)
}

const LOCAL: [(&str, &str); 2] = [("REALTIME_URL", "ws://127.0.0.1:8765/v1"), ("REALTIME_MODEL", "m")];

#[test]
fn a_key_alone_selects_the_vendor_with_its_defaults() {
    for name in ["REALTIME_API_KEY", "OPENAI_API_KEY"] {
        let config = config(&[(name, "sk-1")]);
        assert_eq!(
            config.realtime.url.text(),
            "wss://api.openai.com/v1/realtime?model=gpt-realtime-2.1"
        );
        assert_eq!(exposed(&config), Some("sk-1"));
        assert_eq!(config.realtime.voice.as_deref(), Some("marin"));
        assert!(config.realtime.line_codec && config.realtime.transcription_model.is_some());
        assert!(!format!("{config:?}").contains("sk-1"));
    }
}

#[test]
fn a_server_of_one_s_own_needs_a_model_and_no_key() {
    let local = config(&LOCAL);
    assert_eq!(local.realtime.url.text(), "ws://127.0.0.1:8765/v1/realtime?model=m");
    assert_eq!((exposed(&local), local.realtime.line_codec), (None, false));
    assert_eq!(local.realtime.voice, None);
    let in_query = config(&[("REALTIME_URL", "ws://[::1]:8765/v1/realtime?model=q")]);
    assert_eq!(in_query.realtime.model, "q");
    let error = read_with(&LOCAL[..1]).expect_err("a usage error");
    assert!(error.contains("REALTIME_MODEL"), "{error}");
}

#[test]
fn the_key_of_the_vendor_stays_with_its_host() {
    let elsewhere = [&LOCAL[..], &[("OPENAI_API_KEY", "sk-1")]].concat();
    assert_eq!(exposed(&config(&elsewhere)), None);
    let by_base = [
        ("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"),
        ("OPENAI_API_KEY", "sk-1"),
        ("REALTIME_MODEL", "m"),
    ];
    assert_eq!(exposed(&config(&by_base)), Some("sk-1"));
    let own = [&elsewhere[..], &[("REALTIME_API_KEY", "own")]].concat();
    assert_eq!(exposed(&config(&own)), Some("own"));
}

#[test]
fn a_key_is_read_from_the_first_line_of_a_file() {
    assert_eq!(exposed(&config(&[("REALTIME_API_KEY_FILE", "key")])), Some("hunter2"));
    let pasted = read_with(&[("REALTIME_API_KEY_FILE", "sk-pasted")]).expect_err("no file of that name");
    assert!(
        pasted.starts_with("REALTIME_API_KEY_FILE: reading the file that it names: ") && !pasted.contains("pasted"),
        "{pasted}"
    );
    for list in [
        &[("REALTIME_API_KEY_FILE", "empty")][..],
        &[("REALTIME_API_KEY_FILE", "absent")],
        &[("REALTIME_API_KEY_FILE", "https://vault.example/key")],
        &[("REALTIME_API_KEY_FILE", "key"), ("REALTIME_API_KEY", "sk-1")],
    ] {
        let error = read_with(list).expect_err("a usage error");
        assert!(error.contains("REALTIME_API_KEY_FILE"), "{error}");
        assert!(!error.contains("sk-1") && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_key_needs_an_encrypted_or_private_connection() {
    let far = [("REALTIME_URL", "ws://far.example.net/v1"), ("REALTIME_MODEL", "m")];
    let (_, warnings) = read_with(&far).expect("it needs no key");
    assert!(warnings[0].contains("in the clear"), "{warnings:?}");
    let with_key = [&far[..], &[("REALTIME_API_KEY", "sk-1")]].concat();
    let error = read_with(&with_key).expect_err("a usage error");
    assert!(error.contains("not encrypted") && !error.contains("sk-1"), "{error}");
}

#[test]
fn what_is_missing_is_named() {
    let error = read_with(&[]).expect_err("a usage error");
    assert!(
        error.contains("REALTIME_API_KEY (or OPENAI_API_KEY)") && error.contains("REALTIME_URL"),
        "{error}"
    );
    let azure = [
        ("REALTIME_URL", "https://a.openai.azure.com/openai/v1"),
        ("REALTIME_API_KEY", "k"),
    ];
    let error = read_with(&azure).expect_err("a usage error");
    assert!(error.contains("REALTIME_MODEL"), "{error}");
}

#[test]
fn texts_files_and_limits_are_read() {
    let list = [
        &LOCAL[..],
        &[
            ("RUNNER_BOT_GREETING", ""),
            ("RUNNER_BOT_MINUTES", "5"),
            ("RUNNER_BOT_SESSIONS", "2"),
            ("RUNNER_BOT_IDLE", "60"),
            ("RUNNER_BOT_PATIENCE", "90"),
            ("RUNNER_BOT_INTERRUPT", "off"),
            ("RUNNER_BOT_TRANSCRIPTS", "off"),
            ("RUNNER_BOT_BODY_MAY", "voice, tools"),
            ("RUNNER_BOT_LANGUAGES", "en,de-AT"),
            ("REALTIME_INSTRUCTIONS_FILE", "text"),
            ("REALTIME_SESSION_FILE", "session"),
            ("REALTIME_TURN_DETECTION", "semantic_vad"),
            ("REALTIME_NOISE_REDUCTION", "far_field"),
            ("REALTIME_G711", "on"),
            ("REALTIME_DIALECT", "beta"),
            ("REALTIME_TRANSCRIPTION_MODEL", "off"),
        ],
    ]
    .concat();
    let config = config(&list);
    assert_eq!(config.greeting, Greeting::Off);
    assert_eq!((config.minutes_max.as_secs(), config.sessions_max), (300, 2));
    assert_eq!(config.idle, Some(Duration::from_secs(60)));
    assert_eq!(config.patience, Duration::from_secs(90));
    assert!(!config.interrupt && !config.transcripts);
    assert!(config.body_permissions.voice && config.body_permissions.tools && !config.body_permissions.instructions);
    assert_eq!(config.languages, ["en", "de-AT"]);
    assert_eq!(config.realtime.instructions, "Be brief.");
    assert!(config.realtime.session.contains_key("tracing"));
    assert_eq!(config.realtime.turn_detection, TurnDetection::SemanticVad);
    assert_eq!(config.realtime.noise_reduction, Some(NoiseReduction::FarField));
    assert_eq!(
        (config.realtime.line_codec, config.realtime.dialect),
        (true, Dialect::Beta)
    );
    assert_eq!(config.realtime.transcription_model, None);
}

#[test]
fn the_sound_of_a_failure_is_read_at_the_start() {
    let with = |file| read_with(&[&LOCAL[..], &[("RUNNER_BOT_FAILURE_WAV", file)]].concat());
    let (config, _) = with("sorry.wav").expect("a sound");
    let length = config.failure_sound.map(|sound| sound.length());
    assert_eq!(length, Some(Duration::from_secs(1)));
    for (file, words) in [
        ("absent.wav", "reading absent.wav"),
        ("text", "no WAV file"),
        ("empty.wav", "no sound"),
        ("long.wav", "longer than 20 s"),
    ] {
        let error = with(file).expect_err("a usage error");
        assert!(
            error.contains("RUNNER_BOT_FAILURE_WAV") && error.contains(words),
            "{error}"
        );
    }
}

#[test]
fn invalid_values_are_named() {
    for (name, value) in [
        ("RUNNER_BOT_MINUTES", "56"),
        ("RUNNER_BOT_MINUTES", "0"),
        ("RUNNER_BOT_SESSIONS", "0"),
        ("RUNNER_BOT_IDLE", "1"),
        ("RUNNER_BOT_PATIENCE", "0"),
        ("RUNNER_BOT_INTERRUPT", "maybe"),
        ("RUNNER_BOT_BODY_MAY", "url"),
        ("RUNNER_BOT_LANGUAGES", "en_US"),
        ("REALTIME_DIALECT", "ours"),
        ("REALTIME_TURN_DETECTION", "off"),
        ("REALTIME_SESSION_FILE", "type"),
        ("REALTIME_SESSION_FILE", "text"),
        ("REALTIME_INSTRUCTIONS_FILE", "empty"),
    ] {
        let error = read_with(&[&LOCAL[..], &[(name, value)]].concat()).expect_err("a usage error");
        assert!(error.contains(name), "{name}={value}: {error}");
    }
}
