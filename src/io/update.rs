//! `edge-runner update`: replaces the installed program by that of a release.
//!
//! In: an [`UpdateConfig`]. Out: lines for the operator, and an [`UpdateOutcome`]. `proto::update`
//! verifies the release and decides what may replace what. A rename replaces the file, so at each
//! moment there is a whole program of this name. Its service is restarted; if it does not answer,
//! or a signal ends the wait, the previous program comes back. Files and commands block: nothing
//! else runs in this process.

pub mod check;
mod download;
mod files;
mod service;

use std::time::Duration;

pub use self::check::MODULE;
use crate::proto::update::archive::{deflated, file};
use crate::proto::update::installation::InstallKind;
use crate::proto::update::release::{Release, UNCHANGED, archives, package};
use download::ReleaseSource;
use edge_runner_http::signal::Signals;
use files::ProgramFile;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use service::{RunningService, answer, answer_within};

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The target that this program was compiled for.
const TARGET: &str = env!("EDGE_RUNNER_TARGET");
/// The public keys that sign releases, as lines of OpenSSH.
pub const RELEASE_KEYS: &str = include_str!("update/release-keys");
/// Bytes of an unpacked archive, of which the program is the most: one has 15 MB.
const UNPACKED_BYTES_MAX: usize = 128 * 1024 * 1024;
/// How soon a service has to answer after its restart.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// What is to be done, and where.
#[derive(Debug)]
pub struct UpdateConfig {
    /// Whether nothing is changed.
    pub is_check: bool,
    /// The version that the release has to be.
    pub version: Option<String>,
    pub allows_older: bool,
    /// The folder of the release, without a slash at its end.
    pub from: String,
    /// Public keys, one of which has to have signed the release.
    pub keys: String,
    /// The service to restart; `None` for that of the package, if it runs this program.
    pub service: Option<String>,
    /// The URL where the service answers, without a slash at its end.
    pub runner: String,
    /// Whether the program has a bot of its own.
    pub has_own_bot: bool,
}

/// What an update came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    UpToDate,
    Installed,
    /// A check found another version.
    Available,
}

/// Updates the program, and says each step.
///
/// # Errors
/// A sentence.
pub async fn run(config: &UpdateConfig, say: &mut dyn FnMut(&str)) -> Result<UpdateOutcome, String> {
    let program = ProgramFile::own()?;
    let kind = program.kind(config.has_own_bot);
    // A check changes nothing, so it needs no right and no turn.
    let _turn = match (config.is_check, kind) {
        (true, _) => None,
        (false, InstallKind::Foreign(tool)) => return Err(format!("{tool}. {UNCHANGED}")),
        (false, _) => Some(program.lock()?),
    };
    let source = ReleaseSource { folder: &config.from };
    let release = source.release(&config.keys, config.version.as_deref()).await?;
    say(&format!(
        "The release is version {} of {}, signed by the key {}.",
        release.version, release.date, release.signer
    ));
    if !release.replaces(VERSION, config.allows_older)? {
        say(&format!("Version {VERSION} is installed: there is nothing to do."));
        return Ok(UpdateOutcome::UpToDate);
    }
    let names = names(&release, kind)?;
    if config.is_check {
        say(&check(&release, kind, &program));
        return Ok(UpdateOutcome::Available);
    }
    let service = RunningService::find(config.service.as_deref(), &program)?;
    if let Some(service) = &service {
        answer(&config.runner).await.map_err(|why| {
            format!(
                "the service {} runs this program, and does not answer at {} ({why}), so that no one could say whether the \
                 new version does: --runner URL says where it answers; or stop the service first. {UNCHANGED}",
                service.name, config.runner
            )
        })?;
    }
    let mut signals = match kind {
        InstallKind::BoardImage => install_package(&source, &release, &names[0], &program).await?,
        _ => install_program(&source, &release, &names, &program, say).await?,
    };
    say(&format!(
        "Installed version {} as {}; the previous one is {}.",
        release.version,
        program.path.display(),
        program.previous().display()
    ));
    let Some(service) = service else {
        say("No service of systemd runs this program: start it again where it runs.");
        return Ok(UpdateOutcome::Installed);
    };
    say(&format!(
        "Waiting up to {} s for the answer of the service {} at {}.",
        ANSWER_WITHIN.as_secs(),
        service.name,
        config.runner
    ));
    // A package restarts the service itself.
    let restarted = match kind {
        InstallKind::BoardImage => Ok(()),
        _ => service.restart(),
    };
    let unanswered = |why: &str| {
        format!(
            "version {} does not answer at {} within {} s after the restart of {}: {why}",
            release.version,
            config.runner,
            ANSWER_WITHIN.as_secs(),
            service.name
        )
    };
    let failed = match restarted {
        Ok(()) => tokio::select! {
            answered = answer_within(&config.runner, ANSWER_WITHIN) => answered.err().map(|why| unanswered(&why)),
            signal = signals.next() => Some(format!(
                "{signal} has ended the wait before version {} answered at {}",
                release.version, config.runner
            )),
        },
        Err(why) => Some(unanswered(&why)),
    };
    if let Some(failed) = failed {
        return Err(restore(config, &program, &service, &failed).await);
    }
    say(&format!(
        "The service {} was restarted, and answers at {}.",
        service.name, config.runner
    ));
    Ok(UpdateOutcome::Installed)
}

/// Returns the names of the files that can be installed, the best first.
fn names(release: &Release, kind: InstallKind) -> Result<Vec<String>, String> {
    let all = match kind {
        InstallKind::Foreign(_) => return Ok(Vec::new()),
        InstallKind::Download => archives(&release.version, TARGET),
        InstallKind::BoardImage => package(&release.version, TARGET).into_iter().collect(),
    };
    let listed = |name: &String| match kind {
        InstallKind::Download => release.has(&archive_file(name)),
        _ => release.has(name),
    };
    let found: Vec<String> = all.iter().filter(|name| listed(name)).cloned().collect();
    match found.is_empty() {
        true => Err(format!(
            "the release has no build for {TARGET}, which this program was built for. {UNCHANGED}"
        )),
        false => Ok(found),
    }
}

/// Returns the file name of an archive.
fn archive_file(name: &str) -> String {
    format!("{name}.tar.gz")
}

/// Returns what an update would do.
fn check(release: &Release, kind: InstallKind, program: &ProgramFile) -> String {
    let what = format!("Version {VERSION} is installed, and version {} can be", release.version);
    match kind {
        InstallKind::Foreign(tool) => format!("{what}. {tool}."),
        _ => match program.is_replaceable() {
            Ok(()) => format!(
                "{what}: `edge-runner update` installs it as {}.",
                program.path.display()
            ),
            Err(why) => format!("{what}; but {why}."),
        },
    }
}

/// Puts the program of an archive in place: the first that runs on this machine.
async fn install_program(
    source: &ReleaseSource<'_>,
    release: &Release,
    archives: &[String],
    program: &ProgramFile,
    say: &mut dyn FnMut(&str),
) -> Result<Signals, String> {
    let mut refusal = String::new();
    for archive in archives {
        let name = archive_file(archive);
        let packed = source.verified(release, &name).await?;
        let unpacked = deflated(&packed).and_then(|part| decompress_to_vec_with_limit(part, UNPACKED_BYTES_MAX).ok());
        let content = unpacked
            .as_deref()
            .and_then(|tar| file(tar, &format!("{archive}/edge-runner")));
        let content = content.ok_or_else(|| format!("{name} has no program that can be unpacked. {UNCHANGED}"))?;
        let new = program.write_new(content)?;
        match new.try_to_run(&release.version) {
            Ok(()) => {
                let signals = held_signals()?;
                new.replace()?;
                return Ok(signals);
            }
            Err(why) => {
                refusal = format!("the program of {name} does not run on this machine: {why}");
                say(&refusal);
            }
        }
    }
    Err(format!("{refusal}. {UNCHANGED}"))
}

/// Gives the package of a release to dpkg, which restarts the service.
async fn install_package(
    source: &ReleaseSource<'_>,
    release: &Release,
    name: &str,
    program: &ProgramFile,
) -> Result<Signals, String> {
    let package = source.verified(release, name).await?;
    let new = program.write_new(&package)?;
    let signals = held_signals()?;
    program.keep_previous()?;
    if let Err(error) = new.give_to_dpkg() {
        // dpkg may have replaced the program before it failed.
        let _ = program.restore();
        return Err(error);
    }
    Ok(signals)
}

/// Takes the signals that would end this process, so that none leaves a program in place that is
/// not known to work.
fn held_signals() -> Result<Signals, String> {
    Signals::listen_with_hangup().map_err(|error| format!("no signal can be handled: {error}. {UNCHANGED}"))
}

/// Brings the previous program back, and returns what happened.
async fn restore(config: &UpdateConfig, program: &ProgramFile, service: &RunningService, failed: &str) -> String {
    if let Err(error) = program.restore() {
        return format!(
            "{failed}. Version {VERSION} could not be brought back: {error}. It is in {}",
            program.previous().display()
        );
    }
    // The answer shows whether it came up.
    let _ = service.restart();
    match answer_within(&config.runner, ANSWER_WITHIN).await {
        Ok(()) => format!("{failed}. Version {VERSION} is back, and answers"),
        Err(why) => format!("{failed}. Version {VERSION} is back, and does not answer either: {why}"),
    }
}
