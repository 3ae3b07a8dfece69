//! Functions of the operator in one session: `--tools`.
//!
//! In: calls of the model. Out: [`ToolsEvent`]s: the declared functions once, then one output per
//! call. Functions run in a process of the session ([`program`]) or at an HTTP endpoint
//! ([`endpoint`]); dropping a [`SessionTools`] ends what still runs. The engine gives up calls that
//! take too long. Of peers, the log has names of functions and status codes only.

mod endpoint;
mod program;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::bot::{RunnerArguments, SessionId};
use crate::config::{Config, ToolsConfig};
use crate::io::process::sandbox::Sandbox;
use crate::io::process::{CommandError, ProgramSpec, arguments_without_media, check};
use crate::limits::TOOLS_DECLARE_WITHIN;
use crate::proto::assistant::report::FunctionCall;
use crate::proto::assistant::tools::{DeclarationError, check_names};
use crate::proto::process::{ArgumentsTooLong, CommonArguments, KindArguments, arguments};
use endpoint::EndpointTools;
use program::ProgramTools;

/// The id of the session in which functions are declared without a caller.
const CHECK: &str = "check";

/// Something that happened with the functions of a session.
#[derive(Debug)]
pub enum ToolsEvent {
    /// The declared functions; none if they cannot be used.
    Declared(Vec<Value>),
    /// The output of a call, also of a failed one.
    Output { call_id: String, output: Value },
}

/// Why functions cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Arguments(#[from] ArgumentsTooLong),
    #[error("starting it: {0}")]
    Start(#[source] std::io::Error),
    #[error("it ended: {0}")]
    Ended(String),
    #[error("it declares no functions within {} s", TOOLS_DECLARE_WITHIN.as_secs())]
    Late,
    #[error("{0}")]
    Declaration(DeclarationError),
    /// The endpoint answered with this status.
    #[error("it answers with status {0}{hint}", hint = hint(.0))]
    Status(u16),
    /// The endpoint was not reached.
    #[error("{0}")]
    NotReached(String),
}

fn hint(status: &u16) -> &'static str {
    match status {
        401 | 403 => "; check TOOLS_API_KEY",
        404 => "; check the path of its URL",
        _ => "",
    }
}

impl ToolsError {
    /// Tells whether the operator has to change something, rather than wait.
    pub fn is_permanent(&self) -> bool {
        !matches!(self, ToolsError::Status(_) | ToolsError::NotReached(_))
    }
}

/// The functions of the operator in one session.
pub struct SessionTools {
    /// The name of the program or endpoint in the log.
    name: String,
    source: Source,
    /// When the declaration is overdue; `None` once it has come.
    declares_until: Option<Instant>,
}

enum Source {
    /// Without `--tools`.
    None,
    /// It was not started.
    Failed(Option<ToolsError>),
    Program(ProgramTools),
    Endpoint(EndpointTools),
}

impl SessionTools {
    /// Starts the program of a session, or asks the endpoint for its declaration.
    pub fn start(config: &Config, args: &RunnerArguments) -> Self {
        let Some(tools) = &config.assistant.tools else {
            return SessionTools {
                name: String::new(),
                source: Source::None,
                declares_until: None,
            };
        };
        let arguments = arguments_without_media(args).map_err(ToolsError::from);
        Self::with(config, tools, args.session_id.clone(), arguments)
    }

    fn with(
        config: &Config,
        tools: &ToolsConfig,
        session_id: SessionId,
        arguments: Result<String, ToolsError>,
    ) -> Self {
        let source = match tools {
            ToolsConfig::Endpoint(endpoint) => Source::Endpoint(EndpointTools::new(endpoint.clone(), session_id)),
            ToolsConfig::Program(command) => {
                let started = arguments.and_then(|arguments| {
                    let spec = spec(config, command);
                    ProgramTools::start(&spec, &arguments, session_id).map_err(ToolsError::Start)
                });
                started.map_or_else(|error| Source::Failed(Some(error)), Source::Program)
            }
        };
        SessionTools {
            name: tools.name().to_owned(),
            source,
            declares_until: Some(Instant::now() + TOOLS_DECLARE_WITHIN),
        }
    }

    /// Runs a function. Its output is an event.
    pub fn call(&mut self, call: &FunctionCall) {
        match &mut self.source {
            Source::Program(program) => program.call(call),
            Source::Endpoint(endpoint) => endpoint.call(call),
            // The engine has no such functions.
            Source::None | Source::Failed(_) => {}
        }
    }

    /// Waits for the next event; for ever without `--tools`. Logs why functions cannot be used.
    ///
    /// This method is cancel safe: dropping its future loses no event.
    pub async fn recv(&mut self) -> ToolsEvent {
        self.try_recv().await.unwrap_or_else(|error| {
            log::warn!("functions of {}: {error}", self.name);
            ToolsEvent::Declared(Vec::new())
        })
    }

    async fn try_recv(&mut self) -> Result<ToolsEvent, ToolsError> {
        let deadline = self.declares_until;
        let event = tokio::select! {
            biased;
            event = self.source.recv() => event,
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                self.source = Source::Failed(None);
                Err(ToolsError::Late)
            }
        };
        if let Ok(ToolsEvent::Declared(_)) | Err(_) = event {
            self.declares_until = None;
        }
        event
    }
}

impl Source {
    async fn recv(&mut self) -> Result<ToolsEvent, ToolsError> {
        match self {
            Source::Program(program) => program.recv().await,
            Source::Endpoint(endpoint) => endpoint.recv().await,
            Source::Failed(error) => match error.take() {
                Some(error) => Err(error),
                None => std::future::pending().await,
            },
            Source::None => std::future::pending().await,
        }
    }
}

fn spec(config: &Config, command: &[String]) -> ProgramSpec {
    ProgramSpec {
        command: command.iter().map(Into::into).collect(),
        withheld: config.withheld.clone(),
        audio: config.bot_audio,
        input: None,
        working_dir: config.bot_folder.clone(),
        sandbox: Sandbox::new(config),
        memory_kib: None,
        environment: config.bot_environment.clone(),
    }
}

/// Asks the program or endpoint for its functions, and returns their names.
///
/// # Errors
/// [`ToolsError`], also for names that the configured session has as well.
pub async fn examine(config: &Config, tools: &ToolsConfig) -> Result<Vec<String>, ToolsError> {
    if let ToolsConfig::Program(command) = tools {
        let spec = spec(config, command);
        let folder = spec.sandbox.as_ref().map(Sandbox::working_dir);
        check(&spec.command, folder.or(spec.working_dir.as_deref()))?;
    }
    let common = CommonArguments {
        session_id: CHECK,
        body: &json!({}),
        handle_sigint: false,
        handle_sigterm: true,
        idle_timeout_s: 0,
        is_recorded: false,
        allows_listening: false,
        media_url: None,
        uploads: None,
    };
    let arguments = arguments(&common, KindArguments::BASE)?;
    let mut session = SessionTools::with(config, tools, CHECK.into(), Ok(arguments));
    loop {
        match session.try_recv().await? {
            ToolsEvent::Declared(functions) => {
                check_names(&functions, config.assistant.of_pages()).map_err(ToolsError::Declaration)?;
                let names = functions.iter().filter_map(|function| function["name"].as_str());
                return Ok(names.map(str::to_owned).collect());
            }
            ToolsEvent::Output { .. } => {}
        }
    }
}
