//! Reads the variables of the bot `cascade`: its three services.
//!
//! In: the variables and the files that they name. Out: a [`CascadeConfig`] and warnings. Rejects a
//! service without a URL, or without a model where its protocol needs one, a key over an
//! unencrypted connection, and invalid values.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{choice, instructions, numeric};
use crate::assistant::config::{
    CascadeConfig, CascadeServices, ChatModelConfig, DetectorKind, PromptVoiceConfig, RecognizerConfig, VoiceConfig,
};
use crate::assistant::reasoning_marks::SharedMarks;
use crate::assistant::service_url::ServiceVendor;
use crate::assistant::services::endpoint::{ServiceAccess, ServiceEndpoint};
use crate::assistant::tools::declaration;
use crate::features::Feature;
use crate::limits::{CASCADE_END_OF_TURN_MS, CHAT_TOKENS, RATES_HZ};
use crate::options::env::Variables;
use crate::options::values::{key_of, read_file};
use crate::options::{Env, UsageError};
use crate::secret::Secret;

/// The key of a vendor, which is used for its own host only.
const VENDOR_KEY: &str = "OPENAI_API_KEY";

const LANGUAGE: &str = "CASCADE_LANGUAGE";

/// The variables of one service.
struct ServiceVariables {
    url: &'static str,
    model: &'static str,
    key: &'static str,
    key_file: &'static str,
    /// For messages: what it is, and where it may listen.
    what: &'static str,
    example: &'static str,
}

const RECOGNIZER: ServiceVariables = ServiceVariables {
    url: "CASCADE_STT_URL",
    model: "CASCADE_STT_MODEL",
    key: "CASCADE_STT_API_KEY",
    key_file: "CASCADE_STT_API_KEY_FILE",
    what: "a recogniser",
    example: "tcp://HOST:10300 or http://HOST:8000/v1",
};
const CHAT: ServiceVariables = ServiceVariables {
    url: "CASCADE_LLM_URL",
    model: "CASCADE_LLM_MODEL",
    key: "CASCADE_LLM_API_KEY",
    key_file: "CASCADE_LLM_API_KEY_FILE",
    what: "a chat model",
    example: "http://HOST:11434/v1",
};
const VOICE: ServiceVariables = ServiceVariables {
    url: "CASCADE_TTS_URL",
    model: "CASCADE_TTS_MODEL",
    key: "CASCADE_TTS_API_KEY",
    key_file: "CASCADE_TTS_API_KEY_FILE",
    what: "a voice",
    example: "tcp://HOST:10200 or http://HOST:8880/v1",
};

/// Reads the settings of the bot.
///
/// # Errors
/// [`UsageError`] that names the variable.
pub(super) fn cascade(env: &Env<'_>, warnings: &mut Vec<String>) -> Result<CascadeConfig, UsageError> {
    let variables = &env.variables;
    let recognizer = service(&RECOGNIZER, env, warnings)?;
    let chat = service(&CHAT, env, warnings)?;
    let voice = voice(env, warnings)?;
    let chat = ChatModelConfig {
        model: model(&CHAT, &chat, variables)?.unwrap_or_default(),
        tokens_max: numeric(
            variables,
            "CASCADE_LLM_TOKENS",
            *CHAT_TOKENS.start(),
            *CHAT_TOKENS.end(),
        )?,
        access: chat,
        marks: SharedMarks::default(),
    };
    let end_ms = numeric(
        variables,
        "CASCADE_END_OF_TURN",
        *CASCADE_END_OF_TURN_MS.start(),
        *CASCADE_END_OF_TURN_MS.end(),
    )?;
    Ok(CascadeConfig {
        services: Some(CascadeServices {
            recognizer: RecognizerConfig {
                model: model(&RECOGNIZER, &recognizer, variables)?,
                access: recognizer,
            },
            chat,
            voice,
        }),
        language: text(variables, LANGUAGE),
        instructions: instructions(env, "CASCADE_INSTRUCTIONS", "CASCADE_INSTRUCTIONS_FILE")?,
        detector: detector(variables)?,
        functions: functions(env)?,
        end_of_turn: end_ms.map_or(CascadeConfig::default().end_of_turn, Duration::from_millis),
    })
}

/// Reads the voice for the prompts of another bot, if it is set.
///
/// # Errors
/// [`UsageError`] that names the variable.
pub(super) fn prompt_voice(env: &Env<'_>, warnings: &mut Vec<String>) -> Result<Option<PromptVoiceConfig>, UsageError> {
    if env.variables.get(VOICE.url).is_none() {
        return Ok(None);
    }
    Ok(Some(PromptVoiceConfig {
        voice: voice(env, warnings)?,
        language: text(&env.variables, LANGUAGE),
        spoken: Arc::default(),
    }))
}

fn voice(env: &Env<'_>, warnings: &mut Vec<String>) -> Result<VoiceConfig, UsageError> {
    let variables = &env.variables;
    let access = service(&VOICE, env, warnings)?;
    let voice = VoiceConfig {
        model: model(&VOICE, &access, variables)?,
        voice: text(variables, "CASCADE_TTS_VOICE"),
        rate_hz: numeric(variables, "CASCADE_TTS_RATE", *RATES_HZ.start(), *RATES_HZ.end())?,
        access,
    };
    if voice.voice.is_none() && voice.access.endpoint().vendor() == ServiceVendor::OpenAi {
        return Err(UsageError::Combination(
            "CASCADE_TTS_URL needs CASCADE_TTS_VOICE: the name of a voice of that service".to_owned(),
        ));
    }
    Ok(voice)
}

/// Reads how speech is found.
fn detector(variables: &Variables) -> Result<DetectorKind, UsageError> {
    const NAME: &str = "CASCADE_VAD";
    let values = [("energy", DetectorKind::Energy), ("neural", DetectorKind::Neural)];
    let detector = choice(variables, NAME, &values)?.unwrap_or_default();
    match Feature::Vad.missing() {
        Some(feature) if detector == DetectorKind::Neural => Err(UsageError::MissingFeature {
            what: format!("{NAME}=neural"),
            feature,
        }),
        _ => Ok(detector),
    }
}

/// Reads the functions that pages run.
fn functions(env: &Env<'_>) -> Result<Vec<Value>, UsageError> {
    const FILE: &str = "CASCADE_FUNCTIONS_FILE";
    let Some(path) = env.variables.get(FILE) else {
        return Ok(Vec::new());
    };
    declaration(read_file(env, FILE, path)?.as_bytes())
        .map_err(|error| UsageError::Combination(format!("{FILE}: the file that it names: {error}")))
}

fn service(names: &ServiceVariables, env: &Env<'_>, warnings: &mut Vec<String>) -> Result<ServiceAccess, UsageError> {
    let Some(url) = env.variables.get(names.url) else {
        return Err(UsageError::Combination(format!(
            "`--bot cascade` needs {}: the URL of {}, such as {}",
            names.url, names.what, names.example
        )));
    };
    let wrong = |error: &dyn std::fmt::Display| UsageError::redacted(names.url, error.to_string());
    let endpoint = ServiceEndpoint::parse(url).map_err(|error| wrong(&error))?;
    let key = key(names, &endpoint, env)?;
    if matches!(endpoint.vendor(), ServiceVendor::OpenAi | ServiceVendor::Azure) && key.is_none() {
        return Err(UsageError::Combination(format!(
            "{} needs {} in the environment or in .env",
            names.url, names.key
        )));
    }
    if !endpoint.is_secure() && !endpoint.is_near() {
        warnings.push(format!(
            "{} is not encrypted: what callers say travels in the clear",
            names.url
        ));
    }
    ServiceAccess::new(endpoint, key).map_err(|error| wrong(&error))
}

fn key(names: &ServiceVariables, endpoint: &ServiceEndpoint, env: &Env<'_>) -> Result<Option<Secret>, UsageError> {
    let own = key_of(env, names.key, names.key_file, |_| true)?;
    match own {
        None if endpoint.vendor() == ServiceVendor::OpenAi => Ok(env.variables.literal(VENDOR_KEY).map(Secret::new)),
        own => Ok(own),
    }
}

/// Reads the model of a service. Wyoming servers have a default.
fn model(
    names: &ServiceVariables,
    access: &ServiceAccess,
    variables: &Variables,
) -> Result<Option<String>, UsageError> {
    let model = text(variables, names.model);
    match access.endpoint() {
        ServiceEndpoint::Http(_) if model.is_none() => Err(UsageError::Combination(format!(
            "{} with http:// or https:// needs {}: the name of a model of that server",
            names.url, names.model
        ))),
        _ => Ok(model),
    }
}

fn text(variables: &Variables, name: &'static str) -> Option<String> {
    variables.get(name).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(list: &[(&str, &str)]) -> Result<(CascadeConfig, Vec<String>), String> {
        let env = Env {
            read: &|path| match path {
                "key" => Ok("hunter2\n".into()),
                "functions" => Ok(r#"{"functions": [{"name": "weather"}]}"#.into()),
                "list" => Ok(r#"[{"name": "weather"}]"#.into()),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            },
            ..Env::of_variables(list)
        };
        let mut warnings = Vec::new();
        cascade(&env, &mut warnings)
            .map(|config| (config, warnings))
            .map_err(|error| error.to_string())
    }

    const LOCAL: [(&str, &str); 4] = [
        ("CASCADE_STT_URL", "tcp://127.0.0.1:10300"),
        ("CASCADE_LLM_URL", "http://192.168.1.7:11434/v1"),
        ("CASCADE_LLM_MODEL", "m"),
        ("CASCADE_TTS_URL", "tcp://127.0.0.1:10200"),
    ];

    fn with(others: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        let is_kept = |(name, _): &&(&str, &str)| others.iter().all(|(other, _)| other != name);
        let kept = LOCAL.iter().filter(is_kept);
        kept.chain(others)
            .filter(|(_, value)| !value.is_empty())
            .copied()
            .collect()
    }

    fn error(others: &[(&'static str, &'static str)]) -> String {
        read_with(&with(others)).expect_err("a usage error")
    }

    #[test]
    fn three_local_services_need_one_model() {
        let (config, warnings) = read_with(&LOCAL).expect("valid variables");
        assert_eq!(warnings, [""; 0]);
        let services = config.services.expect("services");
        assert_eq!((services.chat.model.as_str(), services.chat.tokens_max), ("m", None));
        assert!(services.chat.access.header().is_none());
        assert_eq!(config.end_of_turn, Duration::from_millis(700));
        assert!(!config.instructions.is_empty());
    }

    #[test]
    fn what_is_missing_is_named() {
        for (others, name) in [
            (("CASCADE_STT_URL", ""), "CASCADE_STT_URL: the URL of a recogniser"),
            (("CASCADE_LLM_URL", ""), "CASCADE_LLM_URL: the URL of a chat model"),
            (("CASCADE_TTS_URL", ""), "CASCADE_TTS_URL: the URL of a voice"),
            (("CASCADE_LLM_MODEL", ""), "CASCADE_LLM_MODEL"),
            (("CASCADE_STT_URL", "http://127.0.0.1:8000/v1"), "CASCADE_STT_MODEL"),
            (("CASCADE_TTS_URL", "http://127.0.0.1:8880"), "CASCADE_TTS_MODEL"),
            (("CASCADE_LLM_URL", "https://api.openai.com/v1"), "CASCADE_LLM_API_KEY"),
            (("CASCADE_STT_URL", "tcp://127.0.0.1"), "a URL with a port"),
            (("CASCADE_END_OF_TURN", "100"), "CASCADE_END_OF_TURN"),
            (("CASCADE_TTS_RATE", "96000"), "CASCADE_TTS_RATE"),
            (("CASCADE_VAD", "silero"), "`energy` or `neural`"),
            (
                ("CASCADE_FUNCTIONS_FILE", "absent"),
                "CASCADE_FUNCTIONS_FILE: reading the file that it names: ",
            ),
            (("CASCADE_FUNCTIONS_FILE", "list"), "the declaration is no JSON such as"),
        ] {
            let text = error(&[others]);
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn functions_of_pages_and_the_detector_are_read() {
        let variables = with(&[("CASCADE_FUNCTIONS_FILE", "functions"), ("CASCADE_VAD", "energy")]);
        let (config, _) = read_with(&variables).expect("valid variables");
        assert_eq!(config.functions[0]["name"], "weather");
        assert_eq!(config.detector, DetectorKind::Energy);
        let neural = read_with(&with(&[("CASCADE_VAD", "neural")]));
        match Feature::Vad.in_this_build() {
            true => assert_eq!(neural.expect("valid").0.detector, DetectorKind::Neural),
            false => assert!(neural.expect_err("a usage error").contains("feature `vad`")),
        }
    }

    #[test]
    fn the_key_of_a_vendor_stays_with_its_host() {
        let variables = with(&[
            ("CASCADE_TTS_URL", "https://api.openai.com/v1"),
            ("CASCADE_TTS_MODEL", "v"),
            ("CASCADE_TTS_VOICE", "alloy"),
            ("OPENAI_API_KEY", "sk-1"),
        ]);
        let (config, _) = read_with(&variables).expect("valid variables");
        assert!(!format!("{config:?}").contains("sk-1"));
        let services = config.services.expect("services");
        assert!(services.chat.access.header().is_none());
        let (_, key) = services.voice.access.header().expect("a key");
        assert_eq!(key.expose(), "Bearer sk-1");
    }

    #[test]
    fn keys_are_read_from_files_and_not_sent_in_the_clear() {
        let (config, _) = read_with(&with(&[("CASCADE_LLM_API_KEY_FILE", "key")])).expect("valid variables");
        let (_, key) = config.services.expect("services").chat.access.header().expect("a key");
        assert_eq!(key.expose(), "Bearer hunter2");
        let far = ("CASCADE_LLM_URL", "http://far.example.net/v1");
        let text = error(&[far, ("CASCADE_LLM_API_KEY", "hunter2")]);
        assert!(text.contains("https://") && !text.contains("hunter2"), "{text}");
        let (_, warnings) = read_with(&with(&[far])).expect("valid variables");
        assert!(warnings[0].contains("in the clear"), "{warnings:?}");
    }
}
