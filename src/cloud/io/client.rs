//! The client of the cloud agent service: regions, builds, their status and logs, and the packing
//! and uploading of folders.
//!
//! In: a [`ClientConfig`]. Out: what was asked for, on stdout; what happens meanwhile, on stderr;
//! and how it ended. Works with this crate's service and with the one whose interface it has, which
//! spells some names otherwise. Questions, grants and uploads are with_retries three times; the creation
//! of a build is not, since the second could be a second build. A wait goes on while the service is
//! away: it may be starting anew, and the build with it. Source: `cloud-interface.md` §7,
//! `cloud.md` §2, §3, §7.

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
use edge_runner_proto::aliases::{self, Area};
use edge_runner_proto::server::rest::{Body, Method, Request, bearer, segment};
use pack::{LinkPolicy, PackedContext};
use show::{eprint_line, sanitize};

/// Between the tries of a request that may succeed a moment later.
const CLIENT_PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// What a question about a build gets at least, however little is left of the time to wait: the
/// last one is asked at its end.
const LAST_POLL: Duration = Duration::from_secs(1);

/// One request of the client but an upload: a service that reconciles, or whose disk is slow, needs
/// some seconds.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Lines of a log in one answer, where a client prints it as it is; the most that a service gives.
const LOG_PAGE_LINES_HIGHEST: u32 = 10_000;

/// Lines of a log in one answer, where a client reads all of them.
const LOG_PAGE_LINES: u32 = 1_000;

/// How asking ended, if not well; in words for stderr.
#[derive(Debug)]
pub enum ClientError {
    Failed(String),
    /// What was asked for makes no sense.
    Usage(String),
    /// The time to wait has passed, and the build goes on.
    StillRunning(String),
}

/// Asks the service, and prints what it says.
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

    /// Prints lines from the first on, page by page; as JSON one page, as it came.
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
                // A page without lines would be asked for without end.
                Some(next) if left > 0 && lines > 0 => token = format!("&nextToken={}", segment(next)),
                _ => return Ok(()),
            }
        }
    }

    async fn build(&self, task: &BuildTask) -> Result<(), ClientError> {
        let packed = pack_blocking(task).await?;
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
                eprint_line("the same was built before; nothing is uploaded");
                (build, true)
            }
            None => self.create(task, &packed, &region).await?,
        };
        let waited = match task.wait {
            Some(wait) => self.wait(&mut build, wait).await,
            None => Ok(()),
        };
        // However the wait ended: without the id nobody finds the build again.
        show::built(&build, &packed.hash, is_cached, self.config.json)?;
        waited
    }

    /// The region that the organization has set.
    async fn default_region(&self) -> Result<String, ClientError> {
        let answer = object(&self.get("/properties").await?)?;
        let properties = answer.get("properties").unwrap_or(&answer);
        let region = properties.get("defaultRegion").and_then(Value::as_str);
        region.map(str::to_owned).ok_or_else(|| {
            ClientError::Failed("the service names no region of the organization's own; `--region` names one".into())
        })
    }

    /// A successful build of the same archive with the same build file, which the list does not
    /// look at.
    async fn find_success(&self, hash: &str, region: &str, file: &str) -> Result<Option<Value>, ClientError> {
        let path = format!(
            "/builds?contextHash={}&region={}&status={}&limit=100",
            segment(hash),
            segment(region),
            BuildStatus::Success.name()
        );
        let mut answer = object(&self.get(&path).await?)?;
        let Some(Value::Array(builds)) = answer.get_mut("builds").map(Value::take) else {
            return Err(ClientError::Failed("the service's answer has no list `builds`".into()));
        };
        let same = |build: &Value| aliases::first(Area::JsonKey, FILE, |name| build.get(name)?.as_str()) == Some(file);
        builds.iter().find(|build| same(build)).map(build_of).transpose()
    }

    /// UploadService the archive and has it built.
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
        // The real service knows the second name alone.
        for name in [FILE].iter().chain(aliases::aliases(Area::JsonKey, FILE)) {
            body[*name] = task.file.clone().into();
        }
        let created = send_once(&self.request("/builds", Some(&body)), CLIENT_CREATE).await;
        let created = object(&check_status(created)?)?;
        let is_cached = created.get("cached").and_then(Value::as_bool).unwrap_or(false);
        Ok((build_of(&created)?, is_cached))
    }

    /// Asks again and again until the build has ended, or the time has passed. `build` is then as
    /// it was seen last.
    async fn wait(&self, build: &mut Value, wait: WaitOptions) -> Result<(), ClientError> {
        let began = Instant::now();
        let left = || wait.timeout.saturating_sub(began.elapsed());
        let request = self.request(&path_of(id_of(build)?), None);
        let (mut told, mut silence) = (None, None);
        loop {
            let status = status_of(build)?;
            if let Some(status) = status.filter(|status| status.is_final()) {
                return ended(build, status);
            }
            if told != Some(status) {
                eprint_line(&format!("build {} is {}", text(build, "id"), text(build, "status")));
                told = Some(status);
            }
            if left().is_zero() {
                return Err(wait_timeout(build, wait, silence));
            }
            tokio::time::sleep(wait.poll.min(left())).await;
            let asked = with_retries(async || send_once(&request, CLIENT_TIMEOUT).await);
            let why = match tokio::time::timeout(left().max(LAST_POLL), asked).await {
                Ok(outcome) => {
                    let is_passing = is_transient(&outcome);
                    match check_status(outcome) {
                        Err(ClientError::Failed(why)) if is_passing => why,
                        answer => {
                            *build = build_of(&object(&answer?)?)?;
                            silence = None;
                            continue;
                        }
                    }
                }
                Err(_) => {
                    silence.get_or_insert_with(|| "the last question has no answer".to_owned());
                    continue;
                }
            };
            if silence.is_none() {
                eprint_line(&format!("{why}; asking on"));
            }
            silence = Some(why);
        }
    }

    async fn get(&self, path: &str) -> Result<RestResponse, ClientError> {
        self.request_json(path, None).await
    }

    /// Asks up to three times; a body makes it a `POST`.
    async fn request_json(&self, path: &str, body: Option<&Value>) -> Result<RestResponse, ClientError> {
        let request = self.request(path, body);
        check_status(with_retries(async || send_once(&request, CLIENT_TIMEOUT).await).await)
    }

    fn request(&self, path: &str, body: Option<&Value>) -> Request {
        Request {
            method: if body.is_some() { Method::Post } else { Method::Get },
            url: format!("{}{path}", self.config.base),
            authorization: Some(bearer(&self.config.key)),
            body: body.map(Body::json),
        }
    }
}

/// The member of a build that names its build file.
const FILE: &str = "buildfilePath";

/// How a wait ends with its build.
fn ended(build: &Value, status: BuildStatus) -> Result<(), ClientError> {
    if status == BuildStatus::Success {
        return Ok(());
    }
    let (id, why) = (text(build, "id"), text(build, "errorMessage"));
    let told = format!("build {id}: {}: {why}", status.name());
    Err(ClientError::Failed(told.trim_end_matches(": ").to_owned()))
}

/// How a wait ends with its time; `silence` is why the last question has no answer.
fn wait_timeout(build: &Value, wait: WaitOptions, silence: Option<String>) -> ClientError {
    let (id, status) = (text(build, "id"), text(build, "status"));
    let seconds = wait.timeout.as_secs_f64();
    ClientError::StillRunning(match silence {
        None => format!("build {id} is {status} after {seconds} s, and goes on"),
        Some(why) => format!("build {id} was {status} when it was seen last, and {seconds} s have passed: {why}"),
    })
}

/// Packs on a thread of its own: it reads files.
async fn pack_blocking(task: &BuildTask) -> Result<PackedContext, ClientError> {
    let (dir, file, exclude) = (task.dir.clone(), task.file.clone(), task.exclude.clone());
    let links = match task.follow_links {
        true => LinkPolicy::Follow,
        false => LinkPolicy::Inside,
    };
    let packed = tokio::task::spawn_blocking(move || pack::pack(Path::new(&dir), &file, &exclude, links)).await;
    packed.unwrap_or_else(|panic| Err(ClientError::Failed(format!("packing: {panic}"))))
}

/// Does something up to three times, as long as it may succeed a moment later.
async fn with_retries(
    mut act: impl AsyncFnMut() -> Result<RestResponse, RestError>,
) -> Result<RestResponse, RestError> {
    let mut pauses = CLIENT_PAUSES.iter();
    loop {
        let outcome = act().await;
        match pauses.next().filter(|_| is_transient(&outcome)) {
            None => return outcome,
            Some(pause) => {
                match &outcome {
                    Ok(answer) => log::debug!("the service answers {}; once more in {pause:?}", answer.status),
                    Err(error) => log::debug!("{error}; once more in {pause:?}"),
                }
                tokio::time::sleep(*pause).await;
            }
        }
    }
}

/// Tells whether the same may succeed a moment later.
fn is_transient(outcome: &Result<RestResponse, RestError>) -> bool {
    match outcome {
        Ok(answer) => answer.status >= 500,
        Err(error) => error.is_transient(),
    }
}

async fn send_once(request: &Request, timeout: Duration) -> Result<RestResponse, RestError> {
    let within = ResponseLimits {
        timeout,
        body_bytes_max: ANSWER_BYTES_MAX,
    };
    http_client::send_within(request, within).await
}

/// Makes a refusal of the service words.
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
        .ok_or_else(|| ClientError::Failed("the service's answer is no JSON object; is its URL right?".into()))
}

/// Takes the build out of an answer; one that is not wrapped is taken as well.
fn build_of(answer: &Value) -> Result<Value, ClientError> {
    let build = answer.get("build").unwrap_or(answer);
    id_of(build)?;
    status_of(build)?;
    Ok(build.clone())
}

fn id_of(build: &Value) -> Result<&str, ClientError> {
    let id = build.get("id").and_then(Value::as_str);
    // In a path these would lead elsewhere.
    id.filter(|id| !matches!(*id, "" | "." | ".."))
        .ok_or_else(|| ClientError::Failed("the service's answer has no build with an `id`".into()))
}

/// The status of a build; nothing for a word that is not known here, which is no end.
fn status_of(build: &Value) -> Result<Option<BuildStatus>, ClientError> {
    let status = build.get("status").and_then(Value::as_str);
    let status =
        status.ok_or_else(|| ClientError::Failed("the service's answer has no build with a `status`".into()))?;
    Ok(BuildStatus::from_name(status))
}

fn path_of(id: &str) -> String {
    format!("/builds/{}", segment(id))
}

/// A member of a build, fit for a terminal; nothing if it has none.
fn text(build: &Value, name: &str) -> String {
    sanitize(build.get(name).and_then(Value::as_str).unwrap_or_default())
}
