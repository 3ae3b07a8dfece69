//! The settings of assistants, validated. `cli` makes them from variables.
//!
//! They are values of the runner; the `body` of `/start` can change what [`BodyPermissions`] allow.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value};

use super::prompts::PromptCache;
use super::reasoning_marks::SharedMarks;
use super::service_url::{Dialect, ServiceUrl};
use super::services::endpoint::ServiceAccess;
use crate::kit::Wav;
use crate::secret::Secret;

/// The settings of the built-in bots that use services.
#[derive(Clone, Debug)]
pub struct AssistantConfig {
    /// How the bot greets a caller.
    pub greeting: Greeting,
    /// Length of a session.
    pub minutes_max: Duration,
    /// Sessions at once, unless `--max-sessions` is given.
    pub sessions_max: usize,
    /// Silence of both sides that ends a session; `None` means the default of the transport.
    pub idle: Option<Duration>,
    /// Time that a caller waits for a service that fails, before the session ends.
    pub patience: Duration,
    /// Whether a caller can interrupt the bot.
    pub interrupt: bool,
    /// Whether clients are told what the caller and the bot say.
    pub transcripts: bool,
    /// What a caller hears behind the two notes of a failure.
    pub failure_sound: Option<Arc<Wav>>,
    /// What the body of `/start` may set.
    pub body_permissions: BodyPermissions,
    /// Languages that the `body` may name.
    pub languages: Vec<String>,
    /// What runs functions of the operator, beside the pages of callers.
    pub tools: Option<ToolsConfig>,
    /// The bot `realtime`.
    pub realtime: RealtimeConfig,
    /// The bot `cascade`.
    pub cascade: CascadeConfig,
    /// The voice for prompts of other bots.
    pub prompt_voice: Option<PromptVoiceConfig>,
}

impl Default for AssistantConfig {
    fn default() -> Self {
        AssistantConfig {
            greeting: Greeting::Default,
            minutes_max: Duration::from_secs(15 * 60),
            sessions_max: 4,
            idle: None,
            patience: Duration::from_secs(30),
            interrupt: true,
            transcripts: true,
            failure_sound: None,
            body_permissions: BodyPermissions::default(),
            languages: Vec::new(),
            tools: None,
            realtime: RealtimeConfig::default(),
            cascade: CascadeConfig::default(),
            prompt_voice: None,
        }
    }
}

impl AssistantConfig {
    /// Returns the declared functions that the pages of callers run.
    pub fn of_pages(&self) -> &[Value] {
        let of_session = self.realtime.session.get("tools").and_then(Value::as_array);
        match of_session {
            Some(tools) => tools,
            None => &self.cascade.functions,
        }
    }
}

/// What runs the functions of the operator.
#[derive(Clone, PartialEq, Eq)]
pub enum ToolsConfig {
    /// A program and its arguments; one process runs for each session.
    Program(Vec<String>),
    /// A server that is asked over HTTP.
    Endpoint(ToolsEndpoint),
}

/// An HTTP endpoint that runs functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolsEndpoint {
    /// Its URL.
    pub url: ServiceUrl,
    /// The bearer token of its requests.
    pub key: Option<Secret>,
}

impl fmt::Debug for ToolsConfig {
    /// Omits the arguments, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolsConfig::Program(_) => f.write_str("Program"),
            ToolsConfig::Endpoint(endpoint) => endpoint.fmt(f),
        }
    }
}

/// What the bot says first.
#[derive(Clone, PartialEq, Eq)]
pub enum Greeting {
    /// A greeting of the model's own words.
    Default,
    /// None.
    Off,
    /// This text, in the words of the model.
    Text(String),
}

impl fmt::Debug for Greeting {
    /// Omits the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Greeting::Default => "Default",
            Greeting::Off => "Off",
            Greeting::Text(_) => "Text",
        })
    }
}

/// Fields of the `body` of `/start` that may change a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyPermissions {
    /// The instructions of the model.
    pub instructions: bool,
    /// The voice.
    pub voice: bool,
    /// The functions of the model.
    pub tools: bool,
    /// The language.
    pub language: bool,
    /// The temperature of the model.
    pub temperature: bool,
}

/// The settings of the speech-to-speech service.
#[derive(Clone, Default)]
pub struct RealtimeConfig {
    /// With the model in its query.
    pub url: ServiceUrl,
    /// The key of the service.
    pub key: Option<Secret>,
    /// The variant of the protocol that it speaks.
    pub dialect: Dialect,
    /// The model.
    pub model: String,
    /// The voice; `None` is the model's own.
    pub voice: Option<String>,
    /// May contain `{name}` for the variables of the `body`.
    pub instructions: String,
    /// The model that writes down what the caller says; `None` without.
    pub transcription_model: Option<String>,
    /// How the service finds the ends of turns.
    pub turn_detection: TurnDetection,
    /// The noise reduction of the service; `None` is none.
    pub noise_reduction: Option<NoiseReduction>,
    /// Whether telephone audio is sent as G.711.
    pub line_codec: bool,
    /// Fields of `session`, merged last.
    pub session: Map<String, Value>,
}

impl fmt::Debug for RealtimeConfig {
    /// Omits instructions, which may hold what a business keeps to itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealtimeConfig")
            .field("url", &self.url)
            .field("key", &self.key)
            .field("dialect", &self.dialect)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// The settings of the bot with three services.
#[derive(Clone)]
pub struct CascadeConfig {
    /// `None` with another bot.
    pub services: Option<CascadeServices>,
    /// The language of callers, for services that want to know it.
    pub language: Option<String>,
    /// May contain `{name}` for the variables of the `body`.
    pub instructions: String,
    /// The pause that ends the caller's turn.
    pub end_of_turn: Duration,
    /// How speech is told from noise.
    pub detector: DetectorKind,
    /// Functions that the pages of callers run.
    pub functions: Vec<Value>,
}

/// How the bot with three services finds speech.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DetectorKind {
    /// By its loudness.
    #[default]
    Energy,
    /// By a small network, which needs the feature `vad`.
    Neural,
}

/// Its services.
#[derive(Clone, Debug)]
pub struct CascadeServices {
    /// The recogniser of speech.
    pub recognizer: RecognizerConfig,
    /// The chat model.
    pub chat: ChatModelConfig,
    /// The synthesis of speech.
    pub voice: VoiceConfig,
}

/// The service that recognises speech.
#[derive(Clone, Debug)]
pub struct RecognizerConfig {
    /// The service and its key.
    pub access: ServiceAccess,
    /// The model; `None` is the service's own.
    pub model: Option<String>,
}

/// The service that answers.
#[derive(Clone, Debug)]
pub struct ChatModelConfig {
    /// The service and its key.
    pub access: ServiceAccess,
    /// Empty for a Wyoming server, which has one.
    pub model: String,
    /// Tokens of one answer; `None` for the default of the service.
    pub tokens_max: Option<u32>,
    /// What is known of the marks around its reasoning, for all sessions.
    pub marks: SharedMarks,
}

/// The service that speaks.
#[derive(Clone, Debug)]
pub struct VoiceConfig {
    /// The service and its key.
    pub access: ServiceAccess,
    /// The model; `None` is the service's own.
    pub model: Option<String>,
    /// The voice; `None` is the service's own.
    pub voice: Option<String>,
    /// The rate of PCM without a header. Without it, WAV is asked for.
    pub rate_hz: Option<u32>,
}

/// A voice that says prompts of bots that are not assistants.
#[derive(Clone, Debug)]
pub struct PromptVoiceConfig {
    /// The service.
    pub voice: VoiceConfig,
    /// The language of the prompts, for a service that wants to know it.
    pub language: Option<String>,
    /// Prompts that were spoken, for all sessions.
    pub spoken: Arc<Mutex<PromptCache>>,
}

impl CascadeServices {
    /// Returns the services with their names.
    pub fn all(&self) -> [(&'static str, &ServiceAccess); 3] {
        [
            ("recogniser", &self.recognizer.access),
            ("chat model", &self.chat.access),
            ("voice", &self.voice.access),
        ]
    }
}

impl CascadeConfig {
    /// Returns whether a service has a key, and so may cost money.
    pub fn has_key(&self) -> bool {
        let services = self.services.iter().flat_map(CascadeServices::all);
        services.into_iter().any(|(_, access)| access.header().is_some())
    }
}

impl CascadeConfig {
    /// Returns the hosts of services outside this network, each once.
    pub fn third_parties(&self) -> Vec<&str> {
        let mut hosts = Vec::new();
        for (_, access) in self.services.iter().flat_map(CascadeServices::all) {
            let host = access.endpoint().host();
            if !access.endpoint().is_near() && !host.ends_with(".local") && !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        hosts
    }
}

impl Default for CascadeConfig {
    fn default() -> Self {
        CascadeConfig {
            services: None,
            language: None,
            instructions: String::new(),
            end_of_turn: Duration::from_millis(700),
            detector: DetectorKind::Energy,
            functions: Vec::new(),
        }
    }
}

impl fmt::Debug for CascadeConfig {
    /// Omits instructions, which may hold what a business keeps to itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CascadeConfig")
            .field("services", &self.services)
            .field("language", &self.language)
            .field("end_of_turn", &self.end_of_turn)
            .field("detector", &self.detector)
            .finish_non_exhaustive()
    }
}

/// How the service finds the end of the caller's turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnDetection {
    /// By silence.
    #[default]
    ServerVad,
    /// By the meaning of what was said.
    SemanticVad,
}

/// The noise that the service reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseReduction {
    /// Of a microphone near the mouth.
    NearField,
    /// Of a microphone in the room.
    FarField,
}
