//! Properties of what the body of `/start` makes of the sessions of assistants.
//!
//! In: the body of a request. The operator's instructions are as long as they may be and full of
//! placeholders, and the body may change everything. Whatever it holds: instructions, functions and
//! the first message to each service stay within their limits, and the same request without
//! permissions changes none of them but the variables.

use std::sync::Arc;
use std::time::Instant;

use edge_runner_proto::assistant::body::BodyOptions;
use edge_runner_proto::assistant::cascade::{Cascade, CascadeOutput};
use edge_runner_proto::assistant::config::{AssistantConfig, BodyPermissions};
use edge_runner_proto::assistant::realtime::Realtime;
use edge_runner_proto::assistant::report::{CallProfile, Line, RealtimeOutput};
use edge_runner_proto::assistant::service_url::ServiceUrl;
use edge_runner_proto::assistant::services::chat::{ChatSettings, request_body};
use edge_runner_proto::config::Config;
use edge_runner_proto::http::start::plan;
use edge_runner_proto::limits;
use serde_json::Value;

/// What the operator writes again and again: names of the corpus, one after another, and braces
/// that name nothing.
const PLACEHOLDERS: &str = "{a}{name}{b} {{c}} {no such name} {";

const PROFILE: CallProfile = CallProfile {
    line: Line::Pcm24k,
    has_page: true,
    is_telephone: false,
    can_hang_up: true,
    greet_on_ready: false,
};

/// Returns the body of the bot, by the transport that the request asks for.
fn body_of(request: &[u8]) -> Option<Value> {
    match plan(&Config::default(), request) {
        Ok((plan, _)) => Some(plan.body),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// Returns the longest instructions.
fn instructions() -> String {
    let letters = PLACEHOLDERS.chars().cycle();
    letters.take(limits::ASSISTANT_INSTRUCTIONS_BYTES_MAX).collect()
}

/// Begins a session with each bot as the body wants it.
pub fn body(bytes: &[u8]) {
    let Some(body) = body_of(bytes) else {
        return;
    };
    let instructions = instructions();
    let mut config = AssistantConfig::default();
    config.realtime.url = ServiceUrl::parse("ws://127.0.0.1/v1").expect("a URL");
    let asked_without = BodyOptions::new(&body, &config, &instructions);
    assert!(asked_without.tools.is_empty() && asked_without.voice.is_none());
    assert!(asked_without.temperature.is_none() && asked_without.language.is_none());

    config.body_permissions = BodyPermissions {
        instructions: true,
        voice: true,
        tools: true,
        language: true,
        temperature: true,
    };
    let options = BodyOptions::new(&body, &config, &instructions);
    for options in [&asked_without, &options] {
        assert!(options.instructions.len() <= 2 * limits::ASSISTANT_INSTRUCTIONS_BYTES_MAX);
        assert!(options.minutes_max <= config.minutes_max);
    }
    assert!(options.tools.len() <= limits::TOOLS_FUNCTIONS_MAX);

    let config = Arc::new(config);
    realtime(&config, options.clone());
    cascade(config, options);
}

/// The first messages of a session fit into the queue of the service.
fn realtime(config: &Arc<AssistantConfig>, options: BodyOptions) {
    let now = Instant::now();
    let mut session = Realtime::new(Arc::clone(config), PROFILE, options, now);
    session.handle_joined(now);
    session.handle_connected(now);
    session.handle_message(r#"{"type": "session.created", "session": {}}"#, now);
    let mut bytes = 0;
    while let Some(output) = session.poll_output() {
        if let RealtimeOutput::Send(text) = output {
            bytes += text.len();
        }
    }
    assert!(
        bytes <= limits::ASSISTANT_SEND_BYTES_MAX,
        "{bytes} bytes for the service"
    );
}

/// So does the first request to a model.
fn cascade(config: Arc<AssistantConfig>, options: BodyOptions) {
    let now = Instant::now();
    let mut session = Cascade::new(config, PROFILE, options, now);
    session.handle_joined(now);
    while let Some(output) = session.poll_output() {
        if let CascadeOutput::StartChat { request, .. } = output {
            let bytes = request_body(&ChatSettings::default(), request).to_string().len();
            assert!(bytes <= limits::ASSISTANT_SEND_BYTES_MAX, "{bytes} bytes for the model");
        }
    }
}
