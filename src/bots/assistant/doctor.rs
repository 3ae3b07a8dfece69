//! Checks the services of `--bot realtime` and `--bot cascade`, the voice for prompts of other
//! bots, and the functions of `--tools`.
//!
//! In: the configuration. Out: findings, none with another bot. It connects to the service, waits
//! for its session, and closes: a session that says nothing costs nothing. The three services of
//! `cascade` are asked what they offer. Functions are declared, and not called.

use std::time::Duration;

use tokio::time::timeout;

use super::clients::examination;
use super::realtime::failure;
use super::service_socket::{ServiceEvent, ServiceSocket};
use super::tools::examine as examine_tools;
use crate::config::{BuiltInBot, CascadeServices, Config, RealtimeConfig, ServiceAccess};
use crate::limits::DOCTOR_RESOLVE;
use crate::proto::assistant::cascade::doctor as cascade;
use crate::proto::assistant::realtime::doctor::{ServiceAnswer, judge};
use crate::proto::assistant::realtime::{ServerEvent, connect_request, parse_event};
use crate::proto::doctor::Finding;

/// Asks the services of each bot.
pub async fn services(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for bot in config.of_bots() {
        findings.extend(examine(bot).await);
    }
    findings
}

/// Asks the services of the bot.
async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = match (config.bot, &config.assistant.cascade.services) {
        _ if !config.runs_built_in_bot() => examine_prompts(config).await,
        (BuiltInBot::Realtime, _) => examine_realtime(config).await,
        (BuiltInBot::Cascade, Some(services)) => examine_cascade(services).await,
        _ => Vec::new(),
    };
    // A file that cannot be played ends the doctor as it ends the start.
    if let Some(sound) = &config.assistant.failure_sound {
        let seconds = sound.length().as_secs_f32();
        findings.push(Finding::ok(
            "failure sound",
            format!("{seconds:.1} s, after the two notes"),
        ));
    }
    findings
}

async fn examine_cascade(services: &CascadeServices) -> Vec<Finding> {
    let [(recognizer, hears), (chat, answers), (voice, speaks)] = services.all();
    let (recognized, answered, spoken) = tokio::join!(
        examination::examine(hears),
        examination::examine(answers),
        examination::examine(speaks)
    );
    let address = |access: &ServiceAccess| access.endpoint().address().to_owned();
    let models = (services.recognizer.model.as_deref(), services.voice.model.as_deref());
    vec![
        cascade::judge(recognizer, "asr", &address(hears), models.0, &recognized),
        cascade::judge(chat, "handle", &address(answers), Some(&services.chat.model), &answered),
        cascade::judge(voice, "tts", &address(speaks), models.1, &spoken),
    ]
}

/// Asks the voice for the prompts of a bot of the operator's own.
async fn examine_prompts(config: &Config) -> Vec<Finding> {
    let Some(prompts) = &config.assistant.prompt_voice else {
        return Vec::new();
    };
    let access = &prompts.voice.access;
    let spoken = examination::examine(access).await;
    let address = access.endpoint().address();
    let model = prompts.voice.model.as_deref();
    vec![cascade::judge("voice", "tts", address, model, &spoken)]
}

/// Opens a session of the service.
async fn examine_realtime(config: &Config) -> Vec<Finding> {
    let realtime = &config.assistant.realtime;
    let answer = open_session(realtime, 2 * DOCTOR_RESOLVE).await;
    vec![judge(realtime, &answer)]
}

/// Opens a session of a service, and closes it.
pub async fn open_session(realtime: &RealtimeConfig, within: Duration) -> ServiceAnswer {
    let request = connect_request(realtime);
    let mut socket = ServiceSocket::default();
    socket.connect(request.url, request.headers);
    let answer = timeout(within, ask(&mut socket)).await;
    socket.finish().await;
    answer.unwrap_or(ServiceAnswer::Silent)
}

/// Asks the program or endpoint of `--tools` of each bot for its functions.
pub async fn tools(config: &Config) -> Vec<Finding> {
    const WHAT: &str = "tools";
    let mut findings = Vec::new();
    for config in config.of_bots().filter(|bot| bot.runs_built_in_bot()) {
        let Some(tools) = &config.assistant.tools else {
            continue;
        };
        let name = tools.name();
        findings.push(match examine_tools(config, tools).await {
            Ok(names) => Finding::ok(WHAT, format!("{name} declares {}", names.join(", "))),
            Err(why) => Finding::error(WHAT, format!("{name}: {why}")),
        });
    }
    findings
}

async fn ask(socket: &mut ServiceSocket) -> ServiceAnswer {
    loop {
        match socket.recv().await {
            ServiceEvent::Connected(Ok(())) => {}
            ServiceEvent::Connected(Err(error)) => return ServiceAnswer::NotConnected(failure(error)),
            ServiceEvent::Closed(code) => return ServiceAnswer::Closed(code),
            ServiceEvent::Text(text) => match parse_event(&text) {
                Some(ServerEvent::SessionCreated) => return ServiceAnswer::Session,
                Some(ServerEvent::Failed(names)) => return ServiceAnswer::Failed(names),
                _ => {}
            },
        }
    }
}
