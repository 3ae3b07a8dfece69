//! The built-in bots that talk by the services of others.
//!
//! [`realtime`] and [`cascade`] drive the engines of `proto::assistant`; `service_socket` and
//! `cascade_requests` are their connections, the latter by the clients in [`clients`]. `call` and
//! `session_reports` are what both share, and [`tools`] are functions of the operator. [`prompts`]
//! speaks texts of other bots.

mod call;
pub mod cascade;
mod cascade_requests;
pub mod clients;
pub mod doctor;
pub mod prompts;
pub mod realtime;
pub mod service_socket;
mod session_reports;
pub mod tools;

use crate::config::Config;
use crate::features::Feature;
use crate::io::RunError;
use crate::io::module::{DoctorCheck, Module};

pub const MODULE: Option<&Module> = Some(
    &Module {
        check: Some(|config| Box::pin(check_tools(config))),
        ..Module::new(Feature::Assistants)
    }
    .with_checks(&[
        DoctorCheck {
            what: "realtime",
            examine: |config| Box::pin(doctor::services(config)),
        },
        DoctorCheck {
            what: "tools",
            examine: |config| Box::pin(doctor::tools(config)),
        },
    ]),
);

/// Checks the functions of the operator before the first session. An endpoint that does not answer
/// may do so later.
async fn check_tools(config: &Config) -> Result<(), RunError> {
    let Some(tools) = config.assistant.tools.as_ref().filter(|_| config.runs_built_in_bot()) else {
        return Ok(());
    };
    match tools::examine(config, tools).await {
        Ok(names) => log::info!("functions of {}: {}", tools.name(), names.join(", ")),
        Err(why) if why.is_permanent() => {
            return Err(RunError::Tools {
                name: tools.name().to_owned(),
                why: why.to_string(),
            });
        }
        Err(why) => log::warn!("functions of {}: {why}", tools.name()),
    }
    Ok(())
}
