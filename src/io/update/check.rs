//! `--update-check`: once a day, whether a newer version is out, for `/status` and the page.
//!
//! In: the folder of a release. Out: its version, if it is newer than this program and one of the
//! built-in keys signed it. Nothing is installed, and no session waits: a task of its own asks, at
//! times that differ from runner to runner. A release that is not reached is one DEBUG line until
//! it is reached again.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_runner_http::common::{lock, random};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::download::ReleaseSource;
use super::{RELEASE_KEYS, VERSION};
use crate::config::UpdateCheck;
use crate::features::Feature;
use crate::io::RunError;
use crate::io::module::{Module, ModuleStartup};
use crate::io::running::{ModuleFuture, RunningModule};
use crate::io::tasks;
use crate::proto::update::release::folder;
use crate::proto::update::version::compare;

/// The longest time from the start to the first check: boards that start together after a power cut
/// do not ask together.
const FIRST_WITHIN: Duration = Duration::from_secs(10 * 60);
/// The shortest time between two checks.
const AGAIN_AFTER: Duration = Duration::from_secs(23 * 3600);
/// What is added to it by chance, at most.
const AGAIN_JITTER: Duration = Duration::from_secs(2 * 3600);

pub const MODULE: Option<&Module> = Some(&Module {
    run: Some(run),
    hosts: Some(|config| {
        ReleaseChecker::new(&config.update_check, RELEASE_KEYS)
            .and_then(|it| it.host())
            .into_iter()
            .collect()
    }),
    ..Module::new(Feature::Update)
});

/// Asks for the latest version.
#[derive(Debug)]
struct ReleaseChecker {
    /// The folder of the release.
    from: String,
    keys: String,
}

/// What is known of the latest version.
#[derive(Debug, Default)]
pub struct NewVersion {
    found: Mutex<Option<String>>,
    task: Mutex<Option<AbortHandle>>,
}

impl RunningModule for NewVersion {
    fn new_version(&self) -> Option<String> {
        lock(&self.found).clone()
    }

    fn end(&self) -> ModuleFuture<'_, ()> {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
        Box::pin(std::future::ready(()))
    }
}

fn run(startup: &ModuleStartup<'_>) -> Result<Option<Arc<dyn RunningModule>>, RunError> {
    let Some(checker) = ReleaseChecker::new(&startup.app.config.update_check, RELEASE_KEYS) else {
        return Ok(None);
    };
    let known = Arc::new(NewVersion::default());
    let task = tasks::spawn(watch(checker, known.clone()));
    *lock(&known.task) = Some(task.abort_handle());
    Ok(Some(known))
}

impl ReleaseChecker {
    /// Returns what asks, unless that is off.
    fn new(check: &UpdateCheck, keys: &str) -> Option<Self> {
        let from = match check {
            UpdateCheck::Off => return None,
            UpdateCheck::Releases => folder(None),
            UpdateCheck::Mirror(from) => from.clone(),
        };
        Some(ReleaseChecker {
            from,
            keys: keys.to_owned(),
        })
    }

    fn host(&self) -> Option<String> {
        let uri: hyper::Uri = self.from.parse().ok()?;
        Some(uri.host()?.to_owned())
    }

    /// Returns the version of the release, if it is newer than this one.
    async fn ask(&self) -> Result<Option<String>, String> {
        let release = ReleaseSource { folder: &self.from }.release(&self.keys, None).await?;
        let is_newer = compare(&release.version, VERSION) == Ordering::Greater;
        Ok(is_newer.then_some(release.version))
    }
}

impl NewVersion {
    /// Takes the result of a check; `has_failed` is whether the one before it failed.
    fn take(&self, result: Result<Option<String>, String>, has_failed: &mut bool) {
        match result {
            Ok(version) => {
                *has_failed = false;
                let mut found = lock(&self.found);
                if let Some(version) = version.as_ref().filter(|_| *found != version) {
                    log::info!("version {version} is out: `edge-runner update` installs it, or says what does");
                }
                *found = version;
            }
            // What was found before is still out.
            Err(why) if !std::mem::replace(has_failed, true) => log::debug!("--update-check: {why}"),
            Err(_) => {}
        }
    }
}

async fn watch(checker: ReleaseChecker, known: Arc<NewVersion>) {
    let mut has_failed = false;
    sleep(share(FIRST_WITHIN, u32::from_be_bytes(random()))).await;
    loop {
        known.take(checker.ask().await, &mut has_failed);
        sleep(AGAIN_AFTER + share(AGAIN_JITTER, u32::from_be_bytes(random()))).await;
    }
}

/// Returns a part of a time by chance; `random` is any number.
fn share(longest: Duration, random: u32) -> Duration {
    longest.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests;
