//! Reads the variables of the built-in bots that use services: `REALTIME_*`, `RUNNER_BOT_*`, and,
//! in `options::cascade`, `CASCADE_*`.
//!
//! In: the variables, files that they name, and `--bot`. Out: an [`AssistantConfig`] and warnings;
//! with a bot of the operator's own, only those of a voice for prompts are read. Rejects a service
//! without key or model, a key over an unencrypted connection, and invalid values. `OPENAI_API_KEY`
//! is used for its vendor's host only, or for the host in `OPENAI_BASE_URL`. No error contains a
//! key or what a file holds.

mod cascade;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::config::{
    AssistantConfig, BodyPermissions, CascadeConfig, Greeting, NoiseReduction, RealtimeConfig, ToolsConfig,
    ToolsEndpoint, TurnDetection,
};
use super::service_url::{Dialect, ServiceUrl, ServiceVendor};
use super::tools::{check_names, split_command};
use crate::built_in_bot::BuiltInBot;
use crate::features::Feature;
use crate::kit::Wav;
use crate::limits::{
    ASSISTANT_FAILURE_SOUND_MAX, ASSISTANT_IDLE_S, ASSISTANT_INSTRUCTIONS_BYTES_MAX, ASSISTANT_MINUTES,
    ASSISTANT_PATIENCE_S, SESSIONS_MAX_HIGHEST,
};
use crate::options::env::Variables;
use crate::options::values::{all_names, key_of, read_file, wrong};
use crate::options::variables::{ModuleVariables, secret, setting};
use crate::options::{BOTS, Env, Flag, FlagKind, UsageError, flag, number, put};
use crate::secret::Secret;

/// Languages that the body of `/start` may name.
const ASSISTANT_LANGUAGES_MAX: usize = 32;

/// The service without `REALTIME_URL`.
pub(crate) const URL_DEFAULT: &str = "https://api.openai.com/v1";
/// Models and voice of that service; no other has defaults.
pub(crate) const OPENAI_MODEL: &str = "gpt-realtime-2.1";
const OPENAI_VOICE: &str = "marin";
const OPENAI_TRANSCRIPTION_MODEL: &str = "gpt-4o-mini-transcribe";
/// The instructions without `REALTIME_INSTRUCTIONS`.
const INSTRUCTIONS_DEFAULT: &str = "You are a friendly assistant in a voice call. Answer in one or two short sentences, \
                                    in the language of the caller, without lists and markup.";

const URL: &str = "REALTIME_URL";
const KEY: &str = "REALTIME_API_KEY";
/// Variables that cap the calls of the assistants alone.
const CAPS: [&str; 4] = [
    "RUNNER_BOT_MINUTES",
    "RUNNER_BOT_SESSIONS",
    "RUNNER_BOT_IDLE",
    "RUNNER_BOT_PATIENCE",
];
const TOOLS: &str = "--tools";

/// The typed options.
#[derive(Debug, Default)]
pub struct AssistantOptions {
    pub tools: Option<String>,
}

impl<T: AsMut<AssistantOptions>> Flag<T> {
    /// The options of the bots that use services.
    pub const ASSISTANTS: &'static [Flag<T>] = &[flag("--tools", FlagKind::Value("COMMAND|URL", |args: &mut T, text| put(&mut args.as_mut().tools, text)), BOTS, "Functions for the model of `--bot realtime` and `--bot cascade`: a command that declares and runs them with JSON lines on stdin and \
         stdout, one process per session, or the URL of an HTTP endpoint. No shell reads the command; quotes keep words \
         together.").needs(&[Feature::Assistants])];
}

/// The variables of the bots that use services.
pub static VARIABLES: ModuleVariables = ModuleVariables {
    feature: Feature::Assistants,
    prefixes: &["REALTIME_", "CASCADE_", "TOOLS_", "RUNNER_BOT_"],
    variables: &[
        setting(
            "REALTIME_URL",
            "URL of the service of `--bot realtime`: ws, wss, http or https. [default: https://api.openai.com/v1]",
        ),
        secret(
            "REALTIME_API_KEY",
            "Its key. OPENAI_API_KEY is used for its own host and that of OPENAI_BASE_URL only.",
        )
        .sent_to("REALTIME_URL"),
        setting("REALTIME_API_KEY_FILE", "File whose first line is the key."),
        setting(
            "REALTIME_MODEL",
            "Speech-to-speech model. Required with other services than the default. [default: gpt-realtime-2.1]",
        ),
        setting(
            "REALTIME_VOICE",
            "Voice of the model. [default: marin, or that of the service]",
        ),
        setting(
            "REALTIME_DIALECT",
            "Form of the protocol: ga, beta, azure or xai. [default: by the host]",
        ),
        setting(
            "REALTIME_INSTRUCTIONS",
            "What the bot is and does. `{name}` stands for a variable in the `body` of `/start`.",
        ),
        setting("REALTIME_INSTRUCTIONS_FILE", "File with these instructions."),
        setting(
            "REALTIME_TRANSCRIPTION_MODEL",
            "Model that writes down what callers say, or off. [default: gpt-4o-mini-transcribe with the default URL, \
             else off]",
        ),
        setting(
            "REALTIME_TURN_DETECTION",
            "How the end of a caller's turn is found: server_vad or semantic_vad. [default: server_vad]",
        ),
        setting(
            "REALTIME_NOISE_REDUCTION",
            "Noise reduction of the service: near_field, far_field or off. [default: off]",
        ),
        setting(
            "REALTIME_G711",
            "Whether telephone calls are sent as G.711: on or off. [default: on with OpenAI, Azure and xAI]",
        ),
        setting(
            "REALTIME_SESSION_FILE",
            "File with a JSON object that is merged into the `session` of the service.",
        ),
        secret(
            "TOOLS_API_KEY",
            "Key that is sent to the URL of `--tools`, as `Authorization: Bearer`.",
        )
        .sent_to("RUNNER_TOOLS"),
        setting("TOOLS_API_KEY_FILE", "File whose first line is that key."),
        setting(
            "CASCADE_STT_URL",
            "Recogniser of `--bot cascade`: tcp://HOST:PORT for Wyoming, or an http or https base such as \
             http://HOST:8000/v1.",
        ),
        setting("CASCADE_STT_MODEL", "Its model. Required with http and https."),
        secret(
            "CASCADE_STT_API_KEY",
            "Its key. OPENAI_API_KEY is used for its own host only.",
        )
        .sent_to("CASCADE_STT_URL"),
        setting("CASCADE_STT_API_KEY_FILE", "File whose first line is the key."),
        setting(
            "CASCADE_LLM_URL",
            "Chat model of `--bot cascade`: an http or https base such as http://HOST:11434/v1, or tcp://HOST:PORT for a \
         Wyoming server that handles texts.",
        ),
        setting("CASCADE_LLM_MODEL", "Its model. Required with http and https."),
        secret(
            "CASCADE_LLM_API_KEY",
            "Its key. OPENAI_API_KEY is used for its own host only.",
        )
        .sent_to("CASCADE_LLM_URL"),
        setting("CASCADE_LLM_API_KEY_FILE", "File whose first line is the key."),
        setting(
            "CASCADE_LLM_TOKENS",
            "Longest answer in tokens, 16 to 32768. [default: that of the service]",
        ),
        setting(
            "CASCADE_TTS_URL",
            "Voice of `--bot cascade`, and of the prompts of a bot of your own: tcp://HOST:PORT for Wyoming, or an http or \
             https base such as http://HOST:8880/v1.",
        ),
        setting("CASCADE_TTS_MODEL", "Its model. Required with http and https."),
        secret(
            "CASCADE_TTS_API_KEY",
            "Its key. OPENAI_API_KEY is used for its own host only.",
        )
        .sent_to("CASCADE_TTS_URL"),
        setting("CASCADE_TTS_API_KEY_FILE", "File whose first line is the key."),
        setting("CASCADE_TTS_VOICE", "Name of its voice. [default: that of the service]"),
        setting(
            "CASCADE_TTS_RATE",
            "Sample rate in Hz of raw PCM to ask an http or https service for. [default: WAV is asked for]",
        ),
        setting(
            "CASCADE_LANGUAGE",
            "Language of callers, such as en, for services that want to know it.",
        ),
        setting(
            "CASCADE_INSTRUCTIONS",
            "What the bot is and does. `{name}` stands for a variable in the `body` of `/start`.",
        ),
        setting("CASCADE_INSTRUCTIONS_FILE", "File with these instructions."),
        setting(
            "CASCADE_END_OF_TURN",
            "Silence in milliseconds after which a caller gets an answer, 300 to 2000. [default: 700]",
        ),
        setting(
            "CASCADE_VAD",
            "How speech is found: energy, or neural, near a television or much noise. [default: energy]",
        ),
        setting(
            "CASCADE_FUNCTIONS_FILE",
            "File with a JSON object such as {\"functions\": [{\"name\": \"weather\"}]}: functions that callers' \
             pages run.",
        ),
        setting(
            "RUNNER_BOT_GREETING",
            "What `--bot realtime` and `--bot cascade` say first; empty for nothing. [default: a greeting in the \
             model's words]",
        ),
        setting(
            "RUNNER_BOT_MINUTES",
            "Length of their sessions in minutes, 1 to 55. [default: 15]",
        ),
        setting(
            "RUNNER_BOT_SESSIONS",
            "Their sessions at once, unless `--max-sessions` is typed. RUNNER_MAX_SESSIONS can only lower it. \
             [default: 4]",
        ),
        setting(
            "RUNNER_BOT_IDLE",
            "Silence that ends one of their sessions, in seconds. [default: 300, telephone 30]",
        ),
        setting(
            "RUNNER_BOT_PATIENCE",
            "Seconds that a caller waits for a service that fails, before the session ends, 1 to 300. [default: 30]",
        ),
        setting(
            "RUNNER_BOT_INTERRUPT",
            "Whether callers can interrupt them: on or off. [default: on]",
        ),
        setting(
            "RUNNER_BOT_TRANSCRIPTS",
            "Whether clients get what both sides say as text: on or off. [default: on]",
        ),
        setting(
            "RUNNER_BOT_FAILURE_WAV",
            "WAV file that callers hear, after two notes, when a service fails and the call ends.",
        ),
        setting(
            "RUNNER_BOT_BODY_MAY",
            "What the `body` of `/start` may set: a list of instructions, voice, tools, language, temperature.",
        ),
        setting(
            "RUNNER_BOT_LANGUAGES",
            "Languages that the `body` of `/start` may name, such as en,de.",
        ),
    ],
};

/// The bot that was chosen.
#[derive(Debug, Default)]
pub struct ChosenBot<'a> {
    pub built_in: Option<BuiltInBot>,
    /// Whether a command or the program's own bot replaces the built-in one.
    pub is_replaced: bool,
    pub has_own_bot: bool,
    /// The long names of all options that were typed.
    pub typed: &'a [&'a str],
}

/// Reads the settings of the bot.
///
/// # Errors
/// [`UsageError`] that names the variable.
pub fn assistants(
    options: &AssistantOptions,
    chosen: &ChosenBot<'_>,
    env: &Env<'_>,
    warnings: &mut Vec<String>,
) -> Result<AssistantConfig, UsageError> {
    let is_assistant = matches!(chosen.built_in, Some(BuiltInBot::Realtime | BuiltInBot::Cascade));
    if !is_assistant || chosen.is_replaced {
        if chosen.typed.contains(&TOOLS) {
            warnings.push(format!(
                "`{TOOLS}` has no effect without `--bot realtime` or `--bot cascade`"
            ));
        }
        let unused: Vec<&str> = CAPS
            .into_iter()
            .filter(|name| env.variables.get(name).is_some())
            .collect();
        if !unused.is_empty() {
            let why = match chosen.has_own_bot {
                true => ": this program has its own bot, which ends its calls itself",
                false => " without `--bot realtime` or `--bot cascade`; other bots end their calls themselves",
            };
            warnings.push(format!("{}: no effect{why}", unused.join(", ")));
        }
        // Only bots of the operator's own have prompts.
        let prompt_voice = match chosen.is_replaced && Feature::Assistants.in_this_build() {
            true => cascade::prompt_voice(env, warnings)?,
            false => None,
        };
        return Ok(AssistantConfig {
            prompt_voice,
            ..AssistantConfig::default()
        });
    }
    let variables = &env.variables;
    let defaults = AssistantConfig::default();
    let minutes = numeric(
        variables,
        "RUNNER_BOT_MINUTES",
        *ASSISTANT_MINUTES.start(),
        *ASSISTANT_MINUTES.end(),
    )?;
    let idle_s = numeric(
        variables,
        "RUNNER_BOT_IDLE",
        *ASSISTANT_IDLE_S.start(),
        *ASSISTANT_IDLE_S.end(),
    )?;
    let patience_s = numeric(
        variables,
        "RUNNER_BOT_PATIENCE",
        *ASSISTANT_PATIENCE_S.start(),
        *ASSISTANT_PATIENCE_S.end(),
    )?;
    let sessions = numeric(variables, "RUNNER_BOT_SESSIONS", 1, SESSIONS_MAX_HIGHEST)?;
    Ok(AssistantConfig {
        greeting: match variables.raw("RUNNER_BOT_GREETING").map(str::trim) {
            None => Greeting::Default,
            Some("") => Greeting::Off,
            Some(text) => Greeting::Text(text.to_owned()),
        },
        minutes_max: minutes.map_or(defaults.minutes_max, |minutes| Duration::from_secs(60 * minutes)),
        sessions_max: sessions.unwrap_or(defaults.sessions_max),
        idle: idle_s.map(Duration::from_secs),
        patience: patience_s.map_or(defaults.patience, Duration::from_secs),
        interrupt: switch(variables, "RUNNER_BOT_INTERRUPT")?.unwrap_or(true),
        transcripts: switch(variables, "RUNNER_BOT_TRANSCRIPTS")?.unwrap_or(true),
        failure_sound: failure_sound(env)?,
        body_permissions: body_permissions(variables)?,
        languages: languages(variables)?,
        tools: options.tools.as_deref().map(|text| tools(text, env)).transpose()?,
        realtime: match chosen.built_in {
            Some(BuiltInBot::Realtime) => realtime(env, warnings)?,
            _ => RealtimeConfig::default(),
        },
        cascade: match chosen.built_in {
            Some(BuiltInBot::Cascade) => cascade::cascade(env, warnings)?,
            _ => CascadeConfig::default(),
        },
        prompt_voice: None,
    })
}

fn tools(text: &str, env: &Env<'_>) -> Result<ToolsConfig, UsageError> {
    if !ServiceUrl::is_http(text) {
        let wants = "a command such as `python3 tools.py`, or the URL of an HTTP endpoint";
        let command = split_command(text).ok_or_else(|| UsageError::redacted(TOOLS, wants))?;
        return Ok(ToolsConfig::Program(command));
    }
    let url = ServiceUrl::exact(text).map_err(|_| {
        let wants = "a URL such as https://HOST/tools, without user, password and `#`";
        UsageError::redacted(TOOLS, wants)
    })?;
    let key = key_of(env, "TOOLS_API_KEY", "TOOLS_API_KEY_FILE", |_| true)?;
    if key.is_some() && !url.may_carry_key() {
        return Err(not_encrypted(TOOLS));
    }
    Ok(ToolsConfig::Endpoint(ToolsEndpoint { url, key }))
}

fn not_encrypted(source: &str) -> UsageError {
    UsageError::Combination(format!(
        "{source} is not encrypted: a key is sent over wss:// or https://, or to `localhost` and to private IP \
         addresses; use one of these, or remove the key"
    ))
}

fn realtime(env: &Env<'_>, warnings: &mut Vec<String>) -> Result<RealtimeConfig, UsageError> {
    let variables = &env.variables;
    let (source, url) = match variables.named(URL) {
        None => (URL, ServiceUrl::parse(URL_DEFAULT).expect("the default is a URL")),
        Some((source, text)) => {
            let url = ServiceUrl::parse(text);
            (
                source,
                url.map_err(|error| UsageError::value(source, text, error.to_string()))?,
            )
        }
    };
    let vendor = url.vendor();
    let key = key(env, source, &url)?;
    if key.is_some() && !url.may_carry_key() {
        return Err(not_encrypted(source));
    }
    if key.is_none() && vendor != ServiceVendor::Other {
        return Err(UsageError::Combination(format!(
            "`--bot realtime` needs {} in the environment or in .env, or the URL of a service of your own in {}",
            all_names(KEY),
            all_names(URL)
        )));
    }
    if !url.is_secure() && !url.may_carry_key() {
        warnings.push(format!(
            "{source} is not encrypted: the speech of callers travels in the clear"
        ));
    }
    let is_openai = vendor == ServiceVendor::OpenAi;
    let vendor_default = |value: &str| is_openai.then(|| value.to_owned());
    let model = variables
        .get("REALTIME_MODEL")
        .or_else(|| url.model())
        .map(str::to_owned);
    let Some(model) = model.or_else(|| vendor_default(OPENAI_MODEL)) else {
        return Err(UsageError::Combination(format!(
            "`--bot realtime` with {source} needs REALTIME_MODEL: the name of a speech-to-speech model of that server"
        )));
    };
    let transcription_model = match variables.get("REALTIME_TRANSCRIPTION_MODEL") {
        Some("off") => None,
        Some(name) => Some(name.to_owned()),
        None => vendor_default(OPENAI_TRANSCRIPTION_MODEL),
    };
    Ok(RealtimeConfig {
        dialect: choice(
            variables,
            "REALTIME_DIALECT",
            &Dialect::ALL.map(|dialect| (dialect.name(), dialect)),
        )?
        .unwrap_or(vendor.dialect()),
        voice: variables
            .get("REALTIME_VOICE")
            .map(str::to_owned)
            .or_else(|| vendor_default(OPENAI_VOICE)),
        instructions: instructions(env, "REALTIME_INSTRUCTIONS", "REALTIME_INSTRUCTIONS_FILE")?,
        transcription_model,
        turn_detection: choice(
            variables,
            "REALTIME_TURN_DETECTION",
            &[
                ("server_vad", TurnDetection::ServerVad),
                ("semantic_vad", TurnDetection::SemanticVad),
            ],
        )?
        .unwrap_or_default(),
        noise_reduction: choice(
            variables,
            "REALTIME_NOISE_REDUCTION",
            &[
                ("off", None),
                ("near_field", Some(NoiseReduction::NearField)),
                ("far_field", Some(NoiseReduction::FarField)),
            ],
        )?
        .flatten(),
        line_codec: switch(variables, "REALTIME_G711")?.unwrap_or(vendor != ServiceVendor::Other),
        session: session(env)?,
        url: url.with_model(&model),
        key,
        model,
    })
}

/// Reads the key. `url_source` is the variable that the URL is from.
fn key(env: &Env<'_>, url_source: &str, url: &ServiceUrl) -> Result<Option<Secret>, UsageError> {
    // The key of another vendor stays with that vendor.
    key_of(env, KEY, "REALTIME_API_KEY_FILE", |name| {
        name == KEY || url.vendor() == ServiceVendor::OpenAi || url_source == "OPENAI_BASE_URL"
    })
}

fn instructions(env: &Env<'_>, name: &'static str, file: &'static str) -> Result<String, UsageError> {
    let (source, text) = match (env.variables.get(name), env.variables.get(file)) {
        (Some(_), Some(_)) => {
            return Err(UsageError::Combination(format!(
                "{name} and {file} are both set; set one of them"
            )));
        }
        (Some(text), None) => (name, text.to_owned()),
        (None, Some(path)) => (file, read_file(env, file, path)?.trim().to_owned()),
        (None, None) => return Ok(INSTRUCTIONS_DEFAULT.to_owned()),
    };
    if text.is_empty() || text.len() > ASSISTANT_INSTRUCTIONS_BYTES_MAX {
        let wants = format!("a text of 1 to {ASSISTANT_INSTRUCTIONS_BYTES_MAX} bytes");
        return Err(UsageError::redacted(source, wants));
    }
    Ok(text)
}

fn session(env: &Env<'_>) -> Result<Map<String, Value>, UsageError> {
    const FILE: &str = "REALTIME_SESSION_FILE";
    let Some(path) = env.variables.get(FILE) else {
        return Ok(Map::new());
    };
    let wants = "a file with a JSON object: fields of `session`, without `type` and `model`";
    match serde_json::from_str(&read_file(env, FILE, path)?) {
        Ok(Value::Object(session)) if !session.contains_key("type") && !session.contains_key("model") => {
            let tools = session.get("tools").and_then(Value::as_array);
            check_names(tools.map_or(&[], Vec::as_slice), &[])
                .map_err(|error| UsageError::Combination(format!("{FILE}: {error}")))?;
            Ok(session)
        }
        _ => Err(UsageError::redacted(FILE, wants)),
    }
}

/// Reads the sound of a failure.
fn failure_sound(env: &Env<'_>) -> Result<Option<Arc<Wav>>, UsageError> {
    const FILE: &str = "RUNNER_BOT_FAILURE_WAV";
    let Some(path) = env.variables.get(FILE) else {
        return Ok(None);
    };
    let wrong = |why: &dyn std::fmt::Display| UsageError::Combination(format!("{FILE}: reading {path}: {why}"));
    let file = (env.read)(path).map_err(|error| wrong(&error))?;
    let wav = Wav::read(&file).map_err(|error| wrong(&error))?;
    if wav.length() > ASSISTANT_FAILURE_SOUND_MAX {
        return Err(wrong(&format!(
            "it is longer than {} s",
            ASSISTANT_FAILURE_SOUND_MAX.as_secs()
        )));
    }
    if wav.pcm.is_empty() {
        return Err(wrong(&"it has no sound"));
    }
    Ok(Some(Arc::new(wav)))
}

/// Reads what the `body` of `/start` may set.
fn body_permissions(variables: &Variables) -> Result<BodyPermissions, UsageError> {
    let mut may = BodyPermissions::default();
    for word in list(variables, "RUNNER_BOT_BODY_MAY") {
        match word {
            "instructions" => may.instructions = true,
            "voice" => may.voice = true,
            "tools" => may.tools = true,
            "language" => may.language = true,
            "temperature" => may.temperature = true,
            _ => {
                let wants = "a list of `instructions`, `voice`, `tools`, `language` and `temperature`";
                return Err(UsageError::value("RUNNER_BOT_BODY_MAY", word, wants));
            }
        }
    }
    Ok(may)
}

fn languages(variables: &Variables) -> Result<Vec<String>, UsageError> {
    const NAME: &str = "RUNNER_BOT_LANGUAGES";
    let is_tag = |tag: &str| tag.len() <= 35 && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let tags: Vec<&str> = list(variables, NAME).collect();
    if tags.len() > ASSISTANT_LANGUAGES_MAX || !tags.iter().all(|tag| is_tag(tag)) {
        let wants = format!("at most {ASSISTANT_LANGUAGES_MAX} languages such as `en,de`");
        return Err(wrong(variables, NAME, &wants));
    }
    Ok(tags.into_iter().map(str::to_owned).collect())
}

fn list<'v>(variables: &'v Variables, name: &'static str) -> impl Iterator<Item = &'v str> {
    let entries = variables.get(name).unwrap_or_default().split(',').map(str::trim);
    entries.filter(|entry| !entry.is_empty())
}

fn numeric<T>(variables: &Variables, name: &'static str, least: T, most: T) -> Result<Option<T>, UsageError>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let Some(text) = variables.get(name) else {
        return Ok(None);
    };
    number(text, least, most)
        .map(Some)
        .map_err(|expected| UsageError::value(name, text, expected))
}

fn switch(variables: &Variables, name: &'static str) -> Result<Option<bool>, UsageError> {
    choice(variables, name, &[("on", true), ("off", false)])
}

fn choice<T: Copy>(variables: &Variables, name: &'static str, values: &[(&str, T)]) -> Result<Option<T>, UsageError> {
    let Some(text) = variables.get(name) else {
        return Ok(None);
    };
    if let Some((_, value)) = values.iter().find(|(known, _)| *known == text) {
        return Ok(Some(*value));
    }
    let words: Vec<String> = values.iter().map(|(known, _)| format!("`{known}`")).collect();
    Err(UsageError::value(name, text, words.join(" or ")))
}

#[cfg(test)]
mod tests;
