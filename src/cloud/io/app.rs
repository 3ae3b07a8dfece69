//! HTTP requests of the cloud service.
//!
//! In: hyper requests. Out: JSON answers, 204 for uploads, stored images, and one access log line
//! per request with method, path, status, time, organization and key, which is counted too. A
//! request is checked in this order: key, organization, path, body. Internal errors are logged
//! under a number, which the client receives instead of the reason. Source: decisions I-04, I-22,
//! I-24, I-30; `docs/spec/cloud-protocol.md` 1.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{Request, StatusCode};
use rustix::fs::OFlags;
use serde_json::{Value, json};

use super::backend::{Backend, ImageSource};
use super::build_service::CreateResult;
use super::keys;
use crate::config::CloudConfig;
use crate::limits::{CLOUD_ANSWER, DOWNLOAD_STALL, JSON_BYTES_MAX, UPLOAD_STALL, UPLOADS_GRACE};
use crate::proto::api_error::{ApiError, ErrorHeader, wants_xml};
use crate::proto::build::{Build, BuildFilter, BuildRequest, BuildStatus, Image, ImageLocation, Org, Slug};
use crate::proto::grant;
use crate::proto::keys::{KeyHolder, KeyKind};
use crate::proto::log_query::LogQuery;
use crate::proto::metrics::{CloudMetrics, RouteClass};
use crate::proto::regions;
use crate::proto::route::{self, CloudRoute};
use edge_runner_http::common::{
    self, BodyError, BodyLimits, ConnLimits, PeerInfo, Reply, ResponseBody, UpgradeSlot, json_reply,
};
use edge_runner_http::metrics;
use edge_runner_http::server::{ConnPhase, ConnState, HttpService};
use edge_runner_http::tasks::{self, SlotPool};
use edge_runner_http::tls::ServerTls;
use edge_runner_proto::metrics::{MetricsAccess, MetricsDenied};
use edge_runner_proto::server::range::{self, ByteRange};
use edge_runner_proto::server::request_framing;
use edge_runner_proto::uuid::Uuid;

/// Bytes of a rejected upload that are read and discarded.
const REFUSED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Time to read and discard a rejected upload, so that its sender can read the answer.
const REFUSED_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of a path in the log. Valid paths have at most 160.
const LOGGED_PATH_BYTES_MAX: usize = 300;

/// Length of a `Host` header, which becomes part of URLs.
const HOST_BYTES_MAX: usize = 255;

/// Added to [`UPLOAD_STALL`] for the connection's own timeout, so that the client gets an answer
/// first.
const UPLOAD_STALL_MARGIN: Duration = Duration::from_secs(5);

/// Shared state of all requests.
pub struct CloudApp {
    pub config: Arc<CloudConfig>,
    pub backend: Box<dyn Backend>,
    pub metrics: Arc<CloudMetrics>,
    /// A slot of each request, up to its answer, and one of all builds that run here.
    pub active: SlotPool,
    pub tls: Option<Arc<ServerTls>>,
}

/// Returns the limits of connections.
fn conn_limits() -> ConnLimits {
    ConnLimits {
        answer: CLOUD_ANSWER,
        stall_body: UPLOAD_STALL + UPLOAD_STALL_MARGIN,
        // The kernel wakes a writer when a third of its buffer is free, which may be megabytes.
        stall: DOWNLOAD_STALL,
        linger: REFUSED_WITHIN,
        linger_bytes: REFUSED_BYTES_MAX,
        grace: UPLOADS_GRACE,
        ..ConnLimits::default()
    }
}

impl HttpService for CloudApp {
    fn conn_limits(&self) -> ConnLimits {
        conn_limits()
    }

    fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_deref()
    }

    fn reject_framing(&self, refusal: request_framing::FramingError) -> Reply {
        let error = match refusal.status() {
            501 => ApiError::new(501, "NOT_IMPLEMENTED", refusal.to_string()),
            _ => ApiError::bad_request(refusal.to_string()),
        };
        refuse(error, false)
    }

    fn answer(
        &self,
        request: Request<Incoming>,
        peer: PeerInfo,
        conn_state: &Arc<ConnState>,
        _upgrade_slot: &UpgradeSlot,
    ) -> impl Future<Output = Reply> + Send {
        // Boxed, so that idle connections do not reserve space for the largest request.
        Box::pin(answer(self, request, peer, conn_state))
    }
}

/// Answers a request and logs it.
async fn answer(app: &CloudApp, request: Request<Incoming>, peer: PeerInfo, conn_state: &Arc<ConnState>) -> Reply {
    let (head, body) = request.into_parts();
    let looked_up = app.backend.keys(&head).await;
    let (mut line, request) = {
        let (keys, readable) = looked_up;
        let mut line = AccessLogLine::new(&app.metrics, &keys, &head);
        let request = readable.and_then(|()| authorize(&app.config, &keys, &head, &mut line.requester));
        (line, request)
    };
    if let Ok((_, route)) = &request {
        line.class = RouteClass::of(route);
    }
    let is_upload = line.class == RouteClass::Upload;
    // Checks of health and scrapes come all the time.
    let is_check = matches!(line.class, RouteClass::Health | RouteClass::Metrics);
    let _active = (!is_check).then(|| app.active.try_acquire());
    let answered = match request {
        Ok((holder, route)) => {
            let head = &head;
            let request = AuthorizedRequest {
                app,
                head,
                peer,
                conn_state,
            };
            dispatch(request, holder, route, body, &mut line.requester).await
        }
        Err(error) => Err(error),
    };
    let mut reply = answered.unwrap_or_else(|error| refuse(error, is_upload && asks_for_xml(&head.headers)));
    if is_upload && !reply.status().is_success() {
        // The rest of the form is not read.
        let close = HeaderValue::from_static("close");
        reply.headers_mut().insert(header::CONNECTION, close);
    }
    line.status = Some(reply.status());
    reply
}

/// The requesting organization and key, for the log.
#[derive(Default)]
struct RequestOwner {
    org: Option<Org>,
    /// First digits of the key's digest.
    tag: Option<String>,
}

/// The access log line of a request. It is written on drop, so that aborted requests are logged and
/// counted too.
struct AccessLogLine<'a> {
    metrics: &'a CloudMetrics,
    class: RouteClass,
    method: &'a str,
    path: Cow<'a, str>,
    began: Instant,
    requester: RequestOwner,
    /// `None`: the client disconnected.
    status: Option<StatusCode>,
}

impl<'a> AccessLogLine<'a> {
    fn new(metrics: &'a CloudMetrics, keys: &keys::KeySnapshot<'_>, head: &'a Parts) -> Self {
        // If the key file is unusable, any segment may be a key.
        let is_key = |text: &str| !matches!(keys.find(text), Ok(None));
        AccessLogLine {
            metrics,
            class: RouteClass::default(),
            method: match head.method.as_str() {
                // Clients may send methods of any length.
                method @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => method,
                _ => "-",
            },
            path: route::redact_path(head.uri.path(), LOGGED_PATH_BYTES_MAX, is_key),
            began: Instant::now(),
            requester: RequestOwner::default(),
            status: None,
        }
    }
}

impl Drop for AccessLogLine<'_> {
    fn drop(&mut self) {
        let (method, path) = (self.method, &self.path);
        let status = self.status.as_ref().map_or("gone", StatusCode::as_str);
        let took = self.began.elapsed();
        let answer = self.status.map(|status| status.as_u16());
        self.metrics.answered(self.class, answer, took);
        let took_ms = took.as_millis();
        let org = self.requester.org.as_ref().map_or("-", Slug::as_str);
        let tag = self.requester.tag.as_deref().unwrap_or("-");
        log::info!("{method} {path} {status} {took_ms} ms {org} {tag}");
    }
}

/// Checks key and organization, and finds the operation.
fn authorize(
    config: &CloudConfig,
    keys: &keys::KeySnapshot<'_>,
    head: &Parts,
    requester: &mut RequestOwner,
) -> Result<(Option<KeyHolder>, CloudRoute), ApiError> {
    if !common::has_host(head) {
        return Err(ApiError::bad_request("HTTP/1.1 requires exactly one Host header"));
    }
    let path = route::RequestPath::new(head.uri.path());
    let Some(kind) = path.needed_key(config.metrics == MetricsAccess::Key) else {
        return Ok((None, path.route(head.method.as_str())?));
    };
    let holder = holder(keys, &head.headers)?.ok_or_else(|| ApiError::unauthorized(kind))?;
    (requester.org, requester.tag) = (Some(holder.org.clone()), Some(holder.tag()));
    if holder.kind != kind {
        return Err(ApiError::unauthorized(kind));
    }
    if path.org.as_deref().is_some_and(|org| org != holder.org.as_str()) {
        return Err(ApiError::forbidden());
    }
    // They are the operator's.
    if path.is_metrics() && holder.org != config.org {
        return Err(ApiError::forbidden());
    }
    Ok((Some(holder), path.route(head.method.as_str())?))
}

/// Finds the owner of the request's key.
fn holder(keys: &keys::KeySnapshot<'_>, headers: &HeaderMap) -> Result<Option<KeyHolder>, ApiError> {
    match keys::key_in(headers) {
        Some(key) => keys.find(key).map_err(|reason| ApiError::internal(reason.to_string())),
        None => Ok(None),
    }
}

fn asks_for_xml(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    accepted.filter_map(|value| value.to_str().ok()).any(wants_xml)
}

/// Builds an error answer, and logs what it does not tell.
fn refuse(mut error: ApiError, in_xml: bool) -> Reply {
    if error.is_internal() {
        let number = u32::from_be_bytes(common::random());
        log::error!("request {number:08x}: {}", error.text);
        error = error.redacted(number);
    }
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut reply = json_reply(status, if in_xml { error.xml() } else { error.json() });
    let headers = reply.headers_mut();
    if in_xml {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    }
    let extra = match error.header {
        ErrorHeader::None => None,
        ErrorHeader::Allow(methods) => Some((header::ALLOW, HeaderValue::from_static(methods))),
        ErrorHeader::RetryAfterS(seconds) => Some((header::RETRY_AFTER, seconds.into())),
        ErrorHeader::Challenge => Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        ErrorHeader::WholeBytes(bytes) => {
            let value = format!("bytes */{bytes}");
            HeaderValue::try_from(value)
                .ok()
                .map(|value| (header::CONTENT_RANGE, value))
        }
    };
    if let Some((name, value)) = extra {
        headers.insert(name, value);
    }
    reply
}

fn ok(json: &Value) -> Reply {
    json_reply(StatusCode::OK, json.to_string())
}

/// A request after authorization.
struct AuthorizedRequest<'a> {
    app: &'a CloudApp,
    head: &'a Parts,
    peer: PeerInfo,
    conn_state: &'a Arc<ConnState>,
}

/// Performs an operation.
async fn dispatch(
    request: AuthorizedRequest<'_>,
    holder: Option<KeyHolder>,
    route: CloudRoute,
    body: Incoming,
    requester: &mut RequestOwner,
) -> Result<Reply, ApiError> {
    let app = request.app;
    let unkeyed = || ApiError::unauthorized(KeyKind::Private);
    let query = request.head.uri.query().unwrap_or_default();
    let holder = holder.ok_or_else(unkeyed);
    let org = holder
        .as_ref()
        .map(|holder| holder.org.clone())
        .map_err(ApiError::clone);
    match route {
        CloudRoute::Health => Ok(health()),
        CloudRoute::Live => Ok(ok(&json!({"live": true}))),
        CloudRoute::Ready => Ok(readiness(app).await),
        CloudRoute::Metrics => metrics_reply(request).await,
        _ if !app.backend.has_api() => Err(ApiError::not_found("this replica runs builds and has no API")),
        CloudRoute::Upload => upload(request, body, requester).await,
        CloudRoute::Regions => {
            org?;
            Ok(ok(&app.backend.regions().await?.json()))
        }
        CloudRoute::Properties => {
            org?;
            let regions = app.backend.regions().await?;
            let code = regions.default_region().code.as_str();
            Ok(ok(&json!({"properties": {"defaultRegion": code}})))
        }
        CloudRoute::Organizations => {
            let org = org?;
            let org = json!({"name": org.as_str(), "verboseName": org.as_str()});
            Ok(ok(&json!({"organizations": [org]})))
        }
        CloudRoute::Grant => grant(request, &holder?, body).await,
        CloudRoute::Create => create(request, org?, body).await,
        CloudRoute::List => list(app, org?, BuildFilter::parse(query, holder?.hash)?).await,
        CloudRoute::Build(id) => {
            let build = app.backend.build(&org?, id).await?;
            Ok(ok(&json!({"build": app.shown(&build)})))
        }
        CloudRoute::Logs(id) => {
            let lines = LogQuery::parse(query)?;
            app.backend.build(&org?, id).await?;
            logs(app, id, lines).await
        }
        CloudRoute::Image(id, name) => {
            let build = app.backend.build(&org?, id).await?;
            image(request, &build, &name).await
        }
    }
}

impl CloudApp {
    /// Returns a region that has builds. `None` selects the default region.
    async fn region_for_builds(&self, code: Option<&str>) -> Result<Slug, ApiError> {
        let regions = self.backend.regions().await?;
        let region = match code {
            None => regions.default_region(),
            Some(code) => regions
                .find(code)
                .ok_or_else(|| ApiError::bad_request("there is no such `region`; GET /regions lists them"))?,
        };
        match region.builds && self.backend.has_builds() {
            true => Ok(region.code.clone()),
            false => Err(ApiError::bad_request(format!(
                "the region `{}` has no builds",
                region.code
            ))),
        }
    }

    fn shown(&self, build: &Build) -> Value {
        build.json(self.config.public_url.as_deref())
    }
}

impl AuthorizedRequest<'_> {
    /// Returns scheme and host as the client sees them, without a trailing slash.
    ///
    /// # Errors
    /// 400 for an invalid `Host`.
    fn base(&self) -> Result<String, ApiError> {
        if let Some(url) = &self.app.config.public_url {
            return Ok(url.clone());
        }
        let request = common::request_base(&self.head.headers, self.peer, false);
        let scheme = if request.secure { "https" } else { "http" };
        let host = Some(request.host).filter(|host| host.len() <= HOST_BYTES_MAX && !host.contains('@'));
        match host.and_then(|host| host.parse::<Authority>().ok()) {
            Some(host) => Ok(format!("{scheme}://{host}")),
            None => Err(ApiError::bad_request("the Host header is not a valid host")),
        }
    }

    /// Reads a JSON body.
    async fn json(&self, body: Incoming) -> Result<Bytes, ApiError> {
        let caps = BodyLimits {
            bytes_max: JSON_BYTES_MAX,
            within: conn_limits().body,
        };
        let read = common::collect(caps, &self.head.headers, body).await;
        // The body is complete; the time from here on is the service's.
        self.conn_state.set(ConnPhase::Answer);
        read.map_err(|error| match error {
            BodyError::TooLarge { .. } => ApiError::too_large(),
            BodyError::TooSlow { .. } => ApiError::too_slow(error.to_string()),
            BodyError::Compressed | BodyError::Broken => ApiError::bad_request(error.to_string()),
        })
    }
}

fn health() -> Reply {
    ok(&json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")}))
}

/// 200 while a grant would be issued, else 503 with the reason.
async fn readiness(app: &CloudApp) -> Reply {
    match app.backend.obstacle().await {
        None => ok(&json!({"ready": true})),
        Some(reason) => {
            let body = json!({"ready": false, "reason": reason}).to_string();
            json_reply(StatusCode::SERVICE_UNAVAILABLE, body)
        }
    }
}

/// Answers with the metrics, if the client may read them.
async fn metrics_reply(request: AuthorizedRequest<'_>) -> Result<Reply, ApiError> {
    let app = request.app;
    let access = metrics::check_access(app.config.metrics, &request.head.headers, request.peer);
    access.map_err(|denied| match denied {
        MetricsDenied::Off => ApiError::not_found("there are no metrics: the service was started with --metrics off"),
        _ => ApiError::new(
            403,
            "FORBIDDEN",
            "only this machine may read the metrics, and not through a proxy; --metrics key opens them to those with a \
             private key of the operator's organization",
        ),
    })?;
    Ok(metrics::reply(app.metrics.render(&app.backend.snapshot().await)))
}

async fn upload(
    request: AuthorizedRequest<'_>,
    body: Incoming,
    requester: &mut RequestOwner,
) -> Result<Reply, ApiError> {
    let base = request.base()?;
    let app = request.app;
    let received = app.backend.receive(request.head, body, request.conn_state).await;
    app.metrics.archive(received.is_ok());
    let stored = received?;
    requester.org = stored.key.split('/').next().and_then(Slug::parse);
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::NO_CONTENT;
    let location = format!("{base}/{}/{}", grant::BUCKET, stored.key);
    for (name, value) in [(header::ETAG, stored.etag()), (header::LOCATION, location)] {
        // Hosts, names and hex digits are valid header values.
        if let Ok(value) = HeaderValue::try_from(value) {
            reply.headers_mut().insert(name, value);
        }
    }
    Ok(reply)
}

async fn grant(request: AuthorizedRequest<'_>, to: &KeyHolder, body: Incoming) -> Result<Reply, ApiError> {
    let app = request.app;
    let body = request.json(body).await?;
    let wanted = regions::parse_grant_request(&body)?;
    let region = app.region_for_builds(wanted.as_deref()).await?;
    let json = app.backend.grant(to, &region, &request.base()?).await?;
    app.metrics.granted();
    Ok(json_reply(StatusCode::OK, json))
}

async fn create(request: AuthorizedRequest<'_>, org: Org, body: Incoming) -> Result<Reply, ApiError> {
    let app = request.app;
    let body = request.json(body).await?;
    let wanted = BuildRequest::parse(&body)?;
    app.region_for_builds(Some(&wanted.region)).await?;
    let CreateResult { build, cached } = app.backend.create(org, wanted, request.base()?).await?;
    let status = if cached { StatusCode::OK } else { StatusCode::CREATED };
    let json = json!({"build": app.shown(&build), "contextHash": build.hash, "cached": cached});
    Ok(json_reply(status, json.to_string()))
}

async fn list(app: &CloudApp, org: Org, filter: BuildFilter) -> Result<Reply, ApiError> {
    let (limit, offset) = (filter.limit, filter.offset);
    let (builds, total) = app.backend.list(org, filter).await?;
    let builds: Vec<Value> = builds.iter().map(|build| app.shown(build)).collect();
    Ok(ok(
        &json!({"builds": builds, "total": total, "limit": limit, "offset": offset}),
    ))
}

async fn logs(app: &CloudApp, id: Uuid, lines: LogQuery) -> Result<Reply, ApiError> {
    let page = app.backend.log_page(id, lines).await?;
    let page = page.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            ApiError::bad_request("`nextToken` is not from this log; omit it to start at the beginning")
        }
        _ => ApiError::internal(format!("reading the log of build {id}: {error}")),
    })?;
    let mut json = json!({"logs": page.lines});
    if let Some(next) = page.next {
        json["nextToken"] = next.into();
    }
    Ok(ok(&json))
}

/// Sends a stored image or a range of it.
async fn image(request: AuthorizedRequest<'_>, build: &Build, name: &str) -> Result<Reply, ApiError> {
    let unknown = || ApiError::not_found("the service keeps no such image");
    let is_kept = |image: &Image| matches!(&image.location, ImageLocation::Stored(kept) if kept == name);
    // Only the recorded name is accepted, so it cannot lead elsewhere.
    if build.status != BuildStatus::Success || !build.image.as_ref().is_some_and(is_kept) {
        return Err(unknown());
    }
    let path = match request.app.backend.image(build, name, request.head.method.as_str()) {
        ImageSource::File(path) => path,
        ImageSource::Link(url) => return redirect(&url),
    };
    let (file, bytes) = match blocking(move || open(&path)).await? {
        Ok(Some(opened)) => opened,
        Ok(None) => return Err(unknown()),
        Err(error) => {
            return Err(ApiError::internal(format!(
                "opening the image of build {}: {error}",
                build.id
            )));
        }
    };
    let headers = &request.head.headers;
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // A build has one image, which never changes.
    let etag = format!("\"{}\"", build.id);
    let same = text(header::IF_RANGE).is_none_or(|known| known == etag);
    let (status, part) = match range::parse(text(header::RANGE).filter(|_| same), bytes) {
        ByteRange::Unsatisfiable => return Err(ApiError::range(bytes)),
        ByteRange::Full => (StatusCode::OK, 0..bytes),
        ByteRange::Partial(part) => (StatusCode::PARTIAL_CONTENT, part),
    };
    let content_range = format!("bytes {}-{}/{bytes}", part.start, part.end.saturating_sub(1));
    let mut reply = Reply::new(ResponseBody::part(file, part, request.conn_state.clone()));
    *reply.status_mut() = status;
    let put = reply.headers_mut();
    put.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    put.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let of_part = (status == StatusCode::PARTIAL_CONTENT).then_some((header::CONTENT_RANGE, content_range));
    for (name, value) in of_part.into_iter().chain([(header::ETAG, etag)]) {
        put.insert(
            name,
            HeaderValue::try_from(value).expect("digits and hyphens are fit for a header"),
        );
    }
    Ok(reply)
}

/// Redirects the client. The link is good for a while and only for this client, so nothing
/// keeps the answer.
fn redirect(url: &str) -> Result<Reply, ApiError> {
    let url = HeaderValue::try_from(url).map_err(|error| ApiError::internal(error.to_string()))?;
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::FOUND;
    reply.headers_mut().insert(header::LOCATION, url);
    reply
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

/// Opens a regular file without following links. Returns its length, or `None` if it does not
/// exist.
fn open(path: &Path) -> io::Result<Option<(File, u64)>> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let about = file.metadata()?;
    Ok(about.is_file().then_some((file, about.len())))
}

/// Runs blocking work on a thread for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let done = tasks::blocking(work).await;
    done.map_err(|panic| ApiError::internal(panic.to_string()))
}
