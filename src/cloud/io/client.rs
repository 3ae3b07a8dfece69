//! The client of the cloud service: regions, builds, status and logs.
//!
//! In: a [`ClientConfig`]. Out: results on stdout, progress on stderr. Works with this service and
//! with the one whose API it has, which spells some members otherwise. Reads, grants and uploads
//! are tried three times, also where the service limits their rate, after the pause that it asks
//! for. The creation of a build is not retried, since that could start two.
//! Waiting continues while the service restarts. Source: decisions I-26 to I-28;
//! `docs/spec/cloud-protocol.md` 2, 3 and 5.

mod pack;
mod show;
mod upload;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::config::{BuildTask, ClientConfig, ClientTask, WaitOptions};
use crate::limits::{ANSWER_BYTES_MAX, CLIENT_CREATE};
use crate::proto::build::BuildStatus;
use crate::proto::progress::size;
use edge_runner_http::client::{self as http_client, ResponseLimits, RestError, RestResponse};
use edge_runner_http::tasks;
use edge_runner_proto::aliases::{self, Area};
use edge_runner_proto::server::rest::{RestBody, RestMethod, RestRequest, bearer, encode_path_segment};
use pack::{LinkPolicy, PackedContext};
use show::{eprint_line, sanitize};

/// Delays before the second and the third try.
const CLIENT_PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// Longest pause that a service can ask for before the next try.
const CLIENT_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Minimum timeout of a poll, for the last one before the deadline.
const LAST_POLL: Duration = Duration::from_secs(1);

/// Timeout of a request other than an upload.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Lines of a log page with `--json`, the most that a service returns.
const LOG_PAGE_LINES_HIGHEST: u32 = 10_000;

/// Lines of a log page otherwise.
const LOG_PAGE_LINES: u32 = 1_000;

/// Why a client command failed, as a message for stderr.
#[derive(Debug)]
pub enum ClientError {
    Failed(String),
    /// The arguments are unusable.
    Usage(String),
    /// The wait has timed out and the build continues.
    StillRunning(String),
}

/// Runs a client command and prints its result.
///
/// # Errors
/// [`ClientError`].
pub async fn run(config: ClientConfig) -> Result<(), ClientError> {
    let client = CloudClient { config: &config };
    match &config.task {
        ClientTask::Regions => client.regions().await,
        ClientTask::Build(task) => client.build(task).await,
        ClientTask::Status(id) => client.status(id).await,
        ClientTask::Logs { id, limit } => client.logs(id, *limit).await,
    }
}

struct CloudClient<'c> {
    config: &'c ClientConfig,
}

impl CloudClient<'_> {
    async fn regions(&self) -> Result<(), ClientError> {
        let answer = self.get("/regions").await?;
        if self.config.json {
            return show::raw(&answer.body);
        }
        show::regions(&object(&answer)?)
    }

    async fn status(&self, id: &str) -> Result<(), ClientError> {
        let answer = self.get(&path_of(id)).await?;
        if self.config.json {
            return show::raw(&answer.body);
        }
        show::status(&build_of(&object(&answer)?)?)
    }

    /// Prints a log page by page, or one page as JSON.
    async fn logs(&self, id: &str, limit: Option<u32>) -> Result<(), ClientError> {
        if self.config.json {
            let limit = limit.unwrap_or(LOG_PAGE_LINES_HIGHEST).min(LOG_PAGE_LINES_HIGHEST);
            let answer = self.get(&format!("{}/logs?limit={limit}", path_of(id))).await?;
            return show::raw(&answer.body);
        }
        let mut left = limit.unwrap_or(u32::MAX);
        let mut token = String::new();
        loop {
            let page = left.min(LOG_PAGE_LINES);
            let answer = self.get(&format!("{}/logs?limit={page}{token}", path_of(id))).await?;
            let answer = object(&answer)?;
            let lines = show::lines(&answer)?;
            left = left.saturating_sub(lines);
            match answer.get("nextToken").and_then(Value::as_str) {
                // An empty page with a token would loop forever.
                Some(next) if left > 0 && lines > 0 => token = format!("&nextToken={}", encode_path_segment(next)),
                _ => return Ok(()),
            }
        }
    }

    async fn build(&self, task: &BuildTask) -> Result<(), ClientError> {
        let packed = pack_blocking(task).await?;
        packed.notes.iter().for_each(|note| eprint_line(note));
        let plural = if packed.files == 1 { "" } else { "s" };
        eprint_line(&format!(
            "packed {} file{plural} of {} into {}, hash {}",
            packed.files,
            size(packed.plain),
            size(packed.size),
            packed.hash
        ));
        let region = match &task.region {
            Some(region) => region.as_str().to_owned(),
            None => self.default_region().await?,
        };
        let (mut build, is_cached) = match self.find_success(&packed.hash, &region, &task.file).await? {
            Some(build) => {
                eprint_line("found an earlier success; nothing is uploaded");
                (build, true)
            }
            None => self.create(task, &packed, &region).await?,
        };
        let waited = match task.wait {
            Some(wait) => self.wait(&mut build, wait).await,
            None => Ok(()),
        };
        // The id is printed even if waiting failed.
        show::built(&build, &packed.hash, is_cached, self.config.json)?;
        waited
    }

    /// Returns the organization's default region.
    async fn default_region(&self) -> Result<String, ClientError> {
        let answer = object(&self.get("/properties").await?)?;
        let properties = answer.get("properties").unwrap_or(&answer);
        let region = properties.get("defaultRegion").and_then(Value::as_str);
        region.map(str::to_owned).ok_or_else(|| {
            ClientError::Failed("the service names no region of the organization's own; `--region` names one".into())
        })
    }

    /// Finds a successful build of the same archive. The API does not filter by build file.
    async fn find_success(&self, hash: &str, region: &str, file: &str) -> Result<Option<Value>, ClientError> {
        let path = format!(
            "/builds?contextHash={}&region={}&status={}&limit=100",
            encode_path_segment(hash),
            encode_path_segment(region),
            BuildStatus::Success.name()
        );
        let mut answer = object(&self.get(&path).await?)?;
        let Some(Value::Array(builds)) = answer.get_mut("builds").map(Value::take) else {
            return Err(ClientError::Failed("the service's answer has no list `builds`".into()));
        };
        let same = |build: &Value| aliases::first(Area::JsonKey, FILE, |name| build.get(name)?.as_str()) == Some(file);
        builds.iter().find(|build| same(build)).map(build_of).transpose()
    }

    /// Uploads the archive and creates a build.
    async fn create(
        &self,
        task: &BuildTask,
        packed: &PackedContext,
        region: &str,
    ) -> Result<(Value, bool), ClientError> {
        let body = serde_json::json!({ "region": region });
        let grant = self.request_json("/builds/upload-url", Some(&body)).await?;
        let grant = upload::ReceivedGrant::read(&grant.body)?;
        upload::upload(&grant, packed).await?;
        let mut body = serde_json::json!({ "uploadId": grant.id, "region": region });
        // The real service knows only the alias.
        for name in [FILE].iter().chain(aliases::aliases(Area::JsonKey, FILE)) {
            body[*name] = task.file.clone().into();
        }
        let created = send_once(&self.request("/builds", Some(&body)), CLIENT_CREATE).await;
        let created = object(&check_status(created)?)?;
        let is_cached = created.get("cached").and_then(Value::as_bool).unwrap_or(false);
        Ok((build_of(&created)?, is_cached))
    }

    /// Polls until the build has ended or the time is over. `build` is updated.
    async fn wait(&self, build: &mut Value, wait: WaitOptions) -> Result<(), ClientError> {
        let began = Instant::now();
        let left = || wait.timeout.saturating_sub(began.elapsed());
        let request = self.request(&path_of(id_of(build)?), None);
        let (mut message, mut silence) = (None, None);
        loop {
            let status = status_of(build)?;
            if let Some(status) = status.filter(|status| status.is_final()) {
                return ended(build, status);
            }
            if message != Some(status) {
                eprint_line(&format!("build {} is {}", text(build, "id"), text(build, "status")));
                message = Some(status);
            }
            if left().is_zero() {
                return Err(wait_timeout(build, wait, silence));
            }
            tokio::time::sleep(wait.poll.min(left())).await;
            let asked = with_retries(async || send_once(&request, CLIENT_TIMEOUT).await);
            let reason = match tokio::time::timeout(left().max(LAST_POLL), asked).await {
                Ok(outcome) => {
                    let is_passing = is_transient(&outcome);
                    match check_status(outcome) {
                        Err(ClientError::Failed(reason)) if is_passing => reason,
                        answer => {
                            *build = build_of(&object(&answer?)?)?;
                            silence = None;
                            continue;
                        }
                    }
                }
                Err(_) => {
                    silence.get_or_insert_with(|| "the last request has no answer".to_owned());
                    continue;
                }
            };
            if silence.is_none() {
                eprint_line(&format!("{reason}; retrying"));
            }
            silence = Some(reason);
        }
    }

    async fn get(&self, path: &str) -> Result<RestResponse, ClientError> {
        self.request_json(path, None).await
    }

    /// Sends a request with retries. A body makes it a `POST`.
    async fn request_json(&self, path: &str, body: Option<&Value>) -> Result<RestResponse, ClientError> {
        let request = self.request(path, body);
        check_status(with_retries(async || send_once(&request, CLIENT_TIMEOUT).await).await)
    }

    fn request(&self, path: &str, body: Option<&Value>) -> RestRequest {
        RestRequest {
            method: if body.is_some() {
                RestMethod::Post
            } else {
                RestMethod::Get
            },
            url: format!("{}{path}", self.config.base),
            authorization: Some(bearer(&self.config.key)),
            body: body.map(RestBody::json),
        }
    }
}

/// JSON member of the build file.
const FILE: &str = "buildfilePath";

/// Returns the result of a wait for an ended build.
fn ended(build: &Value, status: BuildStatus) -> Result<(), ClientError> {
    if status == BuildStatus::Success {
        return Ok(());
    }
    let (id, reason) = (text(build, "id"), text(build, "errorMessage"));
    let message = format!("build {id}: {}: {reason}", status.name());
    Err(ClientError::Failed(message.trim_end_matches(": ").to_owned()))
}

/// Returns the result of a wait that timed out. `silence` is the error of the last poll.
fn wait_timeout(build: &Value, wait: WaitOptions, silence: Option<String>) -> ClientError {
    let (id, status) = (text(build, "id"), text(build, "status"));
    let seconds = wait.timeout.as_secs_f64();
    ClientError::StillRunning(match silence {
        None => format!("build {id} is {status} after {seconds} s, and continues"),
        Some(reason) => format!("build {id} was {status} when it was seen last, and {seconds} s have passed: {reason}"),
    })
}

/// Packs on a blocking thread.
async fn pack_blocking(task: &BuildTask) -> Result<PackedContext, ClientError> {
    let (dir, file, exclude) = (task.dir.clone(), task.file.clone(), task.exclude.clone());
    let links = match task.follow_links {
        true => LinkPolicy::Follow,
        false => LinkPolicy::Inside,
    };
    let packed = tasks::blocking(move || pack::pack(Path::new(&dir), &file, &exclude, links)).await;
    packed.unwrap_or_else(|panic| Err(ClientError::Failed(format!("packing: {panic}"))))
}

/// Tries an operation up to three times while its failure may be transient.
async fn with_retries(
    mut act: impl AsyncFnMut() -> Result<RestResponse, RestError>,
) -> Result<RestResponse, RestError> {
    let mut pauses = CLIENT_PAUSES.iter();
    loop {
        let outcome = act().await;
        match pauses.next().filter(|_| is_transient(&outcome)) {
            None => return outcome,
            Some(pause) => {
                let asked = outcome.as_ref().ok().and_then(|answer| answer.retry_after);
                let pause = (*pause).max(asked.unwrap_or_default().min(CLIENT_PAUSE_MAX));
                match &outcome {
                    Ok(answer) => log::debug!("the service answers {}; retrying in {pause:?}", answer.status),
                    Err(error) => log::debug!("{error}; retrying in {pause:?}"),
                }
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Tells whether a retry may succeed.
fn is_transient(outcome: &Result<RestResponse, RestError>) -> bool {
    match outcome {
        Ok(answer) => matches!(answer.status, 408 | 425 | 429 | 500..),
        Err(error) => error.is_transient(),
    }
}

async fn send_once(request: &RestRequest, timeout: Duration) -> Result<RestResponse, RestError> {
    let within = ResponseLimits {
        timeout,
        body_bytes_max: ANSWER_BYTES_MAX,
    };
    http_client::send_within(request, within).await
}

/// Turns an error status into a [`ClientError`].
fn check_status(outcome: Result<RestResponse, RestError>) -> Result<RestResponse, ClientError> {
    match outcome {
        Ok(answer) if (200..300).contains(&answer.status) => Ok(answer),
        Ok(answer) => Err(ClientError::Failed(show::refusal(answer.status, &answer.body))),
        Err(error) => Err(ClientError::Failed(error.to_string())),
    }
}

fn object(answer: &RestResponse) -> Result<Value, ClientError> {
    object_of(&answer.body)
}

fn object_of(body: &[u8]) -> Result<Value, ClientError> {
    serde_json::from_slice(body)
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| ClientError::Failed("the service's answer is not a JSON object; is its URL right?".into()))
}

/// Returns the build of an answer, with or without the wrapping object.
fn build_of(answer: &Value) -> Result<Value, ClientError> {
    let build = answer.get("build").unwrap_or(answer);
    id_of(build)?;
    status_of(build)?;
    Ok(build.clone())
}

fn id_of(build: &Value) -> Result<&str, ClientError> {
    let id = build.get("id").and_then(Value::as_str);
    // In a URL these would name another path.
    id.filter(|id| !matches!(*id, "" | "." | ".."))
        .ok_or_else(|| ClientError::Failed("the service's answer has no build with an `id`".into()))
}

/// Returns the status of a build. `None` for an unknown word, which is not final.
fn status_of(build: &Value) -> Result<Option<BuildStatus>, ClientError> {
    let status = build.get("status").and_then(Value::as_str);
    let status =
        status.ok_or_else(|| ClientError::Failed("the service's answer has no build with a `status`".into()))?;
    Ok(BuildStatus::from_name(status))
}

fn path_of(id: &str) -> String {
    format!("/builds/{}", encode_path_segment(id))
}

/// Returns a member of a build, sanitized for terminals, or an empty text.
fn text(build: &Value, name: &str) -> String {
    sanitize(build.get(name).and_then(Value::as_str).unwrap_or_default())
}
