//! `edge-runner call`: makes calls to a runner, and reports what happened.
//!
//! In: a [`CallConfig`]. Out: lines on stdout and in a file, a recording, and a [`CallsError`],
//! from which the exit code follows. `proto::caller` decides what is said and when, and what
//! counts as a failure; here are files, programs, sockets, and one task per call.

pub mod dial;
pub mod media;
mod report;
mod sound_card;
mod sounds;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use edge_runner_http::signal::Signals;
use edge_runner_http::tasks;

use self::report::CallReport;
use crate::config::{LocalConfig, Secret, Transport};
use crate::features::{Feature, MissingFeature};
use crate::io::running::ModuleFuture;
use crate::proto::caller::provider_webhook::WebhookCall;
use crate::proto::caller::target::{CallTarget, RoomAccess};
use crate::proto::caller::{
    CallConversation, CallExpectations, CallObservation, CallPlan, CallVerdict, Scenario, StepSource, figures, junit,
};
use crate::proto::sorting;

/// What a run that the user has stopped says of a call that was not answered.
const STOPPED: &str = "stopped before the call was answered";
/// Time that the sound card has to end after the call.
const CARD_ENDS: Duration = Duration::from_secs(3);
/// The longest call, if nothing else is said.
const LONGEST: Duration = Duration::from_secs(60);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct CallConfig {
    pub target: CallTarget,
    pub api_key: Option<Secret>,
    /// How a telephony provider calls: by its webhook.
    pub webhook: Option<WebhookCall>,
    /// How a room is joined that no runner names.
    pub room: Option<RoomAccess>,
    pub steps: Vec<StepSource>,
    /// The file with the steps, in place of these.
    pub scenario: Option<PathBuf>,
    /// The shell command that speaks texts.
    pub say_command: String,
    /// The sound card through which the caller talks.
    pub local: Option<LocalConfig>,
    pub expect: CallExpectations,
    /// The longest call; without it, that of the scenario or a minute.
    pub longest: Option<Duration>,
    pub hang_up_after: Duration,
    pub record: Option<PathBuf>,
    pub events: Option<PathBuf>,
    pub junit: Option<PathBuf>,
    /// JSON lines are printed in place of the transcript.
    pub prints_json: bool,
    pub calls: u64,
    /// The time over which the calls begin.
    pub ramp: Duration,
}

/// Why a run was not a success.
#[derive(Debug, PartialEq, Eq)]
pub enum CallsError {
    /// Nothing was called, or no call was answered.
    Unusable(String),
    /// An expectation was not met, or a call was lost.
    Failed(String),
}

/// How a transport makes a call and runs it to its end; the error is a sentence for the user. Its
/// `call::row` returns none in a build without its feature.
pub type RunCall = for<'a, 'r> fn(&'a mut CallRun<'r>, CallPlan) -> ModuleFuture<'a, Result<CallConversation, String>>;

/// How calls are made by a transport.
pub struct CallRow {
    /// What a call is, behind "a call".
    pub what: &'static str,
    /// The feature that makes it.
    pub feature: Feature,
    /// `None` in a build without the feature.
    pub run: Option<RunCall>,
}

/// One call of a run.
pub struct CallRun<'r> {
    number: u64,
    pub config: &'r CallConfig,
    report: &'r CallReport,
    stop: watch::Receiver<bool>,
    /// When the call was requested.
    dialled: Instant,
    /// The task of the sound card.
    card: Option<JoinHandle<()>>,
}

impl CallRun<'_> {
    /// Opens what a call needs, unless the user stops the run before.
    pub async fn open<T>(&mut self, opening: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        tokio::select! {
            opened = opening => opened,
            () = self.stopped() => Err(STOPPED.into()),
        }
    }

    /// Begins the conversation of a call that is connected.
    pub fn conversation(&mut self, plan: CallPlan, has_messages: bool) -> CallConversation {
        let mut conversation = CallConversation::new(plan, self.dialled, tasks::now(), has_messages);
        if let Some(local) = self.config.local.as_ref().filter(|_| Feature::Local.in_this_build()) {
            let (card, running) = sound_card::open(local);
            self.card = Some(tasks::spawn(running));
            conversation.set_card(card);
        }
        conversation
    }

    /// Reports what happened in the call, at this time from its request.
    pub fn observe(&self, at: Duration, observation: &CallObservation) {
        self.report.observe(self.number, at, observation);
    }

    /// Waits until the user stops the run.
    pub async fn stopped(&mut self) {
        if self.stop.wait_for(|stop| *stop).await.is_err() {
            // Without a sender no one can stop it.
            std::future::pending::<()>().await;
        }
    }
}

/// The end of a call: its result, or why there was none.
type OneCallEnd = Result<CallVerdict, String>;

/// Makes the calls, each by the row of its transport. A signal ends them in good order.
///
/// # Errors
/// [`CallsError`] says what failed, one sentence per line.
pub async fn run(config: CallConfig, row: fn(Transport) -> &'static CallRow) -> Result<(), CallsError> {
    let mut signals =
        Signals::listen().map_err(|error| CallsError::Unusable(format!("listening for signals: {error}")))?;
    let loading = async {
        Ok(match &config.scenario {
            Some(file) => {
                let (scenario, steps) = sounds::load_scenario(file, &config.say_command).await?;
                config.target.check_scenario(&scenario)?;
                (Some(scenario), steps)
            }
            None => (None, sounds::load(&config.steps, &config.say_command).await?),
        })
    };
    let (scenario, steps) = tokio::select! {
        loaded = loading => loaded.map_err(CallsError::Unusable)?,
        name = signals.next() => return Err(CallsError::Unusable(format!("stopped by {name}"))),
    };
    let report = Arc::new(CallReport::open(&config).map_err(CallsError::Unusable)?);
    let longest = config
        .longest
        .or(scenario.as_ref().and_then(|scenario| scenario.longest));
    let plan = CallPlan {
        steps,
        expect: config.expect.clone(),
        longest: longest.unwrap_or(LONGEST),
        hang_up_after: config.hang_up_after,
        records: config.record.is_some(),
    };
    let (stop, stopped) = watch::channel(false);
    let (ended, mut ends) = mpsc::channel(1);
    let config = Arc::new(config);
    for number in 1..=config.calls {
        let (config, report, ended) = (config.clone(), report.clone(), ended.clone());
        let (plan, stop) = (plan.clone(), stopped.clone());
        tasks::spawn(async move {
            let mut task = CallRun {
                number,
                config: &config,
                report: &report,
                stop,
                dialled: tasks::now(),
                card: None,
            };
            let end = one_call(&mut task, plan, row).await;
            // The receiver waits for every call.
            let _ = ended.send((number, end)).await;
        });
    }
    drop(ended);
    let mut results = Vec::new();
    loop {
        tokio::select! {
            end = ends.recv() => match end {
                Some(end) => results.push(end),
                None => break,
            },
            _ = signals.next() => drop(stop.send(true)),
        }
    }
    sorting::sort_by_key(&mut results, |(number, _)| *number);
    let written = report.write_junit(&junit_suites(&config, scenario.as_ref(), &results));
    let outcome = conclude(&config, &report, &results);
    match (written, outcome) {
        (Err(why), Ok(())) => Err(CallsError::Failed(why)),
        (Err(why), Err(CallsError::Failed(text))) => Err(CallsError::Failed(format!("{text}\n{why}"))),
        (Err(why), Err(CallsError::Unusable(text))) => Err(CallsError::Unusable(format!("{text}\n{why}"))),
        (Ok(()), outcome) => outcome,
    }
}

/// Returns the suites of the report, one for each call.
fn junit_suites(
    config: &CallConfig,
    scenario: Option<&Scenario>,
    results: &[(u64, OneCallEnd)],
) -> Vec<junit::TestSuite> {
    let file = config.scenario.as_deref().map(Path::to_string_lossy);
    let scenario = file.as_deref().zip(scenario);
    let suites = results.iter().map(|(number, end)| {
        let number = (config.calls > 1).then_some(*number);
        junit::TestSuite::new(scenario, number, end)
    });
    suites.collect()
}

async fn one_call(task: &mut CallRun<'_>, plan: CallPlan, row: fn(Transport) -> &'static CallRow) -> OneCallEnd {
    let config = task.config;
    // The first call begins at once, and the last one at the end of the ramp.
    let share = config.ramp.as_secs_f64() / (config.calls.max(2) - 1) as f64;
    let begins_after = Duration::from_secs_f64(share * (task.number - 1) as f64);
    tokio::select! {
        () = sleep(begins_after) => {}
        () = task.stopped() => return Err("stopped before the call".into()),
    }
    task.dialled = tasks::now();
    let row = row(config.target.transport());
    let run = row
        .run
        .ok_or_else(|| format!("a call {} {}", row.what, MissingFeature(row.feature)))?;
    let conversation = run(task, plan).await?;
    let mut verdict = conversation.verdict();
    if let Some(file) = &config.record {
        let written = std::fs::write(file, conversation.recording().to_wav());
        let failure = written.err().map(|error| report::unwritable("--record", file, &error));
        verdict.failures.extend(failure);
    }
    // Without its conversation the card ends, and plays the rest.
    drop(conversation);
    if let Some(card) = task.card.take() {
        let _ = timeout(CARD_ENDS, card).await;
    }
    for failure in &verdict.failures {
        task.observe(verdict.lasted, &CallObservation::Failed(failure.clone()));
    }
    Ok(verdict)
}

/// Reports the figures of the run, and returns its outcome.
fn conclude(config: &CallConfig, report: &CallReport, results: &[(u64, OneCallEnd)]) -> Result<(), CallsError> {
    let verdicts: Vec<&CallVerdict> = results.iter().filter_map(|(_, end)| end.as_ref().ok()).collect();
    let connected: Vec<Duration> = verdicts.iter().map(|verdict| verdict.connected_after).collect();
    let sounds: Vec<Duration> = verdicts
        .iter()
        .filter_map(|verdict| verdict.first_sound_after)
        .collect();
    let latencies: Vec<Duration> = verdicts.iter().flat_map(|verdict| verdict.latencies.clone()).collect();
    let failed = results
        .iter()
        .filter(|(_, end)| !matches!(end, Ok(verdict) if verdict.failures.is_empty()));
    let failed = failed.count();
    if config.calls > 1 {
        let lines = [
            format!(
                "calls: {}, answered: {}, failed: {failed}",
                results.len(),
                verdicts.len()
            ),
            figures::line("connected", &connected),
            figures::line("first sound", &sounds),
            figures::line("latency", &latencies),
        ];
        let object = json!({
            "event": "summary",
            "calls": results.len(),
            "answered": verdicts.len(),
            "failed": failed,
            "connected": figures::object(&connected),
            "first_sound": figures::object(&sounds),
            "latency": figures::object(&latencies),
        });
        report.summarize(&lines, &object);
    }
    for verdict in &verdicts {
        if !verdict.dropped.is_zero() {
            let seconds = verdict.dropped.as_secs_f64();
            log::warn!("{seconds:.1} s of the bot's audio were dropped: it came more than a minute early");
        }
    }
    if failed == 0 {
        return Ok(());
    }
    let name = |number: u64| match config.calls {
        1 => String::new(),
        _ => format!("call {number}: "),
    };
    let lines: Vec<String> = results
        .iter()
        .flat_map(|(number, end)| {
            let failures = match end {
                Ok(verdict) => verdict.failures.clone(),
                Err(refused) => vec![refused.clone()],
            };
            failures
                .into_iter()
                .map(|failure| format!("{}{failure}", name(*number)))
        })
        .collect();
    let text = lines.join("\n");
    match verdicts.is_empty() {
        true => Err(CallsError::Unusable(text)),
        false => Err(CallsError::Failed(text)),
    }
}
