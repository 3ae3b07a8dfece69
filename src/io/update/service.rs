//! The service that runs the program: systemd restarts it, and its answer shows that it is up.
//!
//! In: the name of the service, and the URL where it answers. Out: whether it does. Root asks the
//! system's manager, other users ask their own.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::files::ProgramFile;
use crate::io::rest::{ResponseLimits, send_within};
use crate::proto::server::rest::{RestMethod, RestRequest};
use crate::proto::update::release::UNCHANGED;
use crate::proto::update::service::{SERVICE, SHOW, ServiceStatus};

/// Between two attempts to reach the service.
const ANSWER_PAUSE: Duration = Duration::from_millis(250);
/// The limits of one attempt.
const ANSWER: ResponseLimits = ResponseLimits {
    timeout: Duration::from_secs(5),
    body_bytes_max: 64 * 1024,
};

/// A service that runs the program.
#[derive(Debug)]
pub struct RunningService {
    pub name: String,
    main_process: u32,
}

impl RunningService {
    /// Finds the service of this name, or that of the package if it runs the program.
    pub fn find(asked: Option<&str>, program: &ProgramFile) -> Result<Option<RunningService>, String> {
        let name = asked.unwrap_or(SERVICE);
        let status = match (status(name), asked) {
            (Ok(status), _) => status,
            (Err(_), None) => return Ok(None),
            (Err(error), Some(_)) => return Err(format!("systemctl cannot be started: {error}. {UNCHANGED}")),
        };
        if !status.is_running {
            return match asked {
                None => Ok(None),
                Some(name) => Err(format!("`--service {name}`: no such service is running. {UNCHANGED}")),
            };
        }
        let runs = |path: &String| fs::canonicalize(path).is_ok_and(|path| path == program.path);
        let is_meant = asked.is_some() || status.programs().iter().any(runs);
        Ok(is_meant.then(|| RunningService {
            name: name.to_owned(),
            main_process: status.main_process,
        }))
    }

    /// Restarts the service. It may have failed to start since, which its answer shows.
    pub fn restart(&self) -> Result<(), String> {
        let why = match systemctl(&["restart", &self.name]) {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        let is_another = status(&self.name).is_ok_and(|status| status.main_process != self.main_process);
        match is_another {
            true => Ok(()),
            false => Err(format!("it was not restarted: {why}")),
        }
    }
}

fn status(name: &str) -> io::Result<ServiceStatus> {
    let output = systemctl(&[SHOW[0], SHOW[1], name])?;
    Ok(ServiceStatus::read(&String::from_utf8_lossy(&output.stdout)))
}

fn systemctl(arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("systemctl");
    if !rustix::process::geteuid().is_root() {
        command.arg("--user");
    }
    command
        .args(arguments)
        .current_dir(Path::new("/"))
        .stdin(Stdio::null())
        .output()
}

/// Returns whether a runner answers at this URL.
pub async fn answer(runner: &str) -> Result<(), String> {
    let request = RestRequest {
        method: RestMethod::Get,
        url: format!("{runner}/livez"),
        authorization: None,
        body: None,
    };
    match send_within(&request, ANSWER).await {
        Ok(response) if response.status == 200 => Ok(()),
        Ok(response) => Err(format!("status {}", response.status)),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits until a runner answers at this URL.
pub async fn answer_within(runner: &str, within: Duration) -> Result<(), String> {
    let deadline = Instant::now() + within;
    loop {
        match answer(runner).await {
            Ok(()) => return Ok(()),
            Err(why) if Instant::now() >= deadline => return Err(why),
            Err(_) => sleep(ANSWER_PAUSE).await,
        }
    }
}
