//! Routing of requests.
//!
//! In: the percent-encoded path without query, then the method. Out: a [`RequestPath`], which tells
//! the required key and the organization, and after authorization a [`CloudRoute`]; unauthorized
//! clients learn nothing about paths. HEAD is routed like GET, and one trailing slash is ignored.
//! Errors: 404, 405, 501, and 400 for a malformed build id. Source: decisions I-04, I-24;
//! `docs/spec/cloud-protocol.md` 1.

use std::borrow::Cow;

use crate::limits::KEY_BYTES;
use crate::proto::api_error::ApiError;
use crate::proto::keys::{self, KeyKind};
use edge_runner_proto::http::route::percent_decode;
use edge_runner_proto::uuid::Uuid;

/// Health checks, without a key: the release, whether the process serves, whether builds can begin.
const HEALTH: &str = "healthz";
const LIVE: &str = "livez";
const READY: &str = "readyz";
/// The metrics, without a key unless `--metrics key` asks for one.
const METRICS: &str = "metrics";
/// Path of uploads, also the bucket's name.
pub const UPLOADS: &str = "build-contexts";

/// Longest path of the service in segments.
const SEGMENTS_MAX: usize = 7;

const READ: &str = "GET, HEAD";
const WRITE: &str = "POST";
const BOTH: &str = "GET, HEAD, POST";

/// A path parsed as far as authorization needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPath<'p> {
    /// Required kind of key. `None`: no key.
    pub kind: Option<KeyKind>,
    /// The organization that the path names.
    pub org: Option<Cow<'p, str>>,
    /// Decoded segments after the prefix. `None` for one with invalid encoding.
    rest: Vec<Option<Cow<'p, str>>>,
    /// The path has more than [`SEGMENTS_MAX`] segments.
    is_longer: bool,
}

/// An operation with its path parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudRoute {
    Health,
    Live,
    Ready,
    Metrics,
    /// `POST /build-contexts`.
    Upload,
    Regions,
    Properties,
    Organizations,
    /// `POST /builds/upload-url`.
    Grant,
    /// `POST /builds`.
    Create,
    /// `GET /builds`.
    List,
    Build(Uuid),
    Logs(Uuid),
    /// A stored image, by build and file name.
    Image(Uuid, String),
}

impl<'p> RequestPath<'p> {
    /// Parses a path.
    pub fn new(path: &'p str) -> Self {
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut segments: Vec<_> = path.split('/').take(SEGMENTS_MAX + 1).map(percent_decode).collect();
        let is_longer = segments.len() > SEGMENTS_MAX;
        let at = |segments: &[Option<Cow<'_, str>>], at: usize, word: &str| {
            segments.get(at).is_some_and(|segment| segment.as_deref() == Some(word))
        };
        let mut org = None;
        let kind = if !at(&segments, 0, "v1") {
            None
        } else if at(&segments, 1, "public") {
            Some(KeyKind::Public)
        } else {
            segments.remove(0);
            if at(&segments, 0, "organizations") && segments.len() > 1 {
                // Invalid encoding matches no organization.
                org = Some(segments.remove(1).unwrap_or(Cow::Borrowed("")));
                segments.remove(0);
            }
            Some(KeyKind::Private)
        };
        RequestPath {
            kind,
            org,
            rest: segments,
            is_longer,
        }
    }

    /// Tells whether this is the path of the metrics.
    pub fn is_metrics(&self) -> bool {
        self.kind.is_none() && matches!(&*self.rest, [Some(word)] if word == METRICS)
    }

    /// Returns the kind of key that a request needs. `None`: no key.
    pub fn needed_key(&self, metrics_need_key: bool) -> Option<KeyKind> {
        let of_metrics = (metrics_need_key && self.is_metrics()).then_some(KeyKind::Private);
        self.kind.or(of_metrics)
    }

    /// Finds the operation. Call it after authorization.
    ///
    /// # Errors
    /// 404, 405, 501, and 400 for an invalid id.
    pub fn route(&self, method: &str) -> Result<CloudRoute, ApiError> {
        let unknown = || ApiError::not_found("there is nothing at this path");
        let is_read = matches!(method, "GET" | "HEAD");
        let read = |route: CloudRoute| {
            if is_read {
                Ok(route)
            } else {
                Err(ApiError::method(READ))
            }
        };
        let write = |route: CloudRoute| {
            if method == "POST" {
                Ok(route)
            } else {
                Err(ApiError::method(WRITE))
            }
        };
        let words: Option<Vec<&str>> = self.rest.iter().map(Option::as_deref).collect();
        let words = words.ok_or_else(unknown)?;
        match (self.kind, &*words) {
            (Some(KeyKind::Public), _) => Err(ApiError::not_implemented(KeyKind::Public)),
            (None, [HEALTH]) => read(CloudRoute::Health),
            (None, [LIVE]) => read(CloudRoute::Live),
            (None, [READY]) => read(CloudRoute::Ready),
            (None, [METRICS]) => read(CloudRoute::Metrics),
            (None, [UPLOADS]) => write(CloudRoute::Upload),
            (None, _) => Err(unknown()),
            (Some(KeyKind::Private), ["agents" | "services" | "secrets" | "apiKeys" | "sessions" | "users", ..]) => {
                Err(ApiError::not_implemented(KeyKind::Private))
            }
            (Some(KeyKind::Private), _) if self.is_longer => Err(unknown()),
            (Some(KeyKind::Private), ["properties"]) if method == "PATCH" => {
                Err(ApiError::not_implemented(KeyKind::Private))
            }
            (Some(KeyKind::Private), ["properties", "schema"]) => Err(ApiError::not_implemented(KeyKind::Private)),
            (Some(KeyKind::Private), ["properties"]) => read(CloudRoute::Properties),
            (Some(KeyKind::Private), ["organizations"]) if self.org.is_none() => read(CloudRoute::Organizations),
            (Some(KeyKind::Private), ["regions"]) => read(CloudRoute::Regions),
            (Some(KeyKind::Private), ["builds", "upload-url"]) => write(CloudRoute::Grant),
            (Some(KeyKind::Private), ["builds"]) => match method {
                "POST" => Ok(CloudRoute::Create),
                _ if is_read => Ok(CloudRoute::List),
                _ => Err(ApiError::method(BOTH)),
            },
            (Some(KeyKind::Private), ["builds", _]) if !is_read => Err(ApiError::method(READ)),
            (Some(KeyKind::Private), ["builds", id]) => Ok(CloudRoute::Build(build(id)?)),
            (Some(KeyKind::Private), ["builds", _, "logs"]) if !is_read => Err(ApiError::method(READ)),
            (Some(KeyKind::Private), ["builds", id, "logs"]) => Ok(CloudRoute::Logs(build(id)?)),
            (Some(KeyKind::Private), ["images", _, _]) if !is_read => Err(ApiError::method(READ)),
            (Some(KeyKind::Private), ["images", id, name]) => Ok(CloudRoute::Image(build(id)?, (*name).to_owned())),
            (Some(KeyKind::Private), _) => Err(unknown()),
        }
    }
}

fn build(id: &str) -> Result<Uuid, ApiError> {
    Uuid::parse(id)
        .ok_or_else(|| ApiError::bad_request("the id of a build is a version-4 UUID, such as its creation returned"))
}

/// Returns a path for the log: at most `bytes_max` bytes, with `...` for segments that contain a
/// key or cannot be decoded. The cost is bounded by `bytes_max` and the longest key.
pub fn redact_path(path: &str, bytes_max: usize, is_key: impl Fn(&str) -> bool) -> Cow<'_, str> {
    let is_secret = |part: &str| keys::contains_key(part) || is_key(part);
    let hides = |part: &str| {
        is_secret(part) || part.contains('%') && percent_decode(part).is_none_or(|plain| is_secret(&plain))
    };
    // A truncated key would not be recognized, and each byte may be percent-encoded in three.
    let seen = &path[..whole(path, bytes_max.saturating_add(3 * KEY_BYTES.end()))];
    let shown_end = whole(path, bytes_max);
    let mut shown = String::new();
    let mut hidden = false;
    let mut at = 0;
    for part in seen.split('/') {
        if at > shown_end {
            break;
        }
        if at > 0 {
            shown.push('/');
        }
        if hides(part) {
            hidden = true;
            shown.push_str("...");
        } else {
            shown.push_str(&seen[at..shown_end.min(at + part.len())]);
        }
        at += part.len() + 1;
    }
    if shown_end < path.len() {
        shown.push_str("...");
    } else if !hidden {
        return Cow::Borrowed(path);
    }
    Cow::Owned(shown)
}

/// Returns the largest character boundary within `bytes_max`.
fn whole(text: &str, bytes_max: usize) -> usize {
    let ends = (0..=bytes_max.min(text.len())).rev();
    ends.into_iter().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::api_error::ErrorHeader;

    const ID: &str = "7a2c9e10-1111-4222-8333-444455556666";

    fn private(method: &str, path: &str) -> Result<CloudRoute, ApiError> {
        let path = RequestPath::new(path);
        assert_eq!(path.kind, Some(KeyKind::Private));
        path.route(method)
    }

    /// C-005, I-24: every operation below both prefixes, with its methods.
    #[test]
    fn operations_are_routed_below_both_prefixes() {
        let id = Uuid::parse(ID).expect("a UUID");
        for (method, path, route) in [
            ("GET", "/regions", CloudRoute::Regions),
            ("HEAD", "/regions", CloudRoute::Regions),
            ("GET", "/properties", CloudRoute::Properties),
            ("POST", "/builds/upload-url", CloudRoute::Grant),
            ("POST", "/builds", CloudRoute::Create),
            ("GET", "/builds", CloudRoute::List),
            ("GET", "/builds/", CloudRoute::List),
            ("GET", &format!("/builds/{ID}"), CloudRoute::Build(id)),
            ("GET", &format!("/builds/{}", ID.to_uppercase()), CloudRoute::Build(id)),
            ("GET", &format!("/builds/{ID}/logs"), CloudRoute::Logs(id)),
            (
                "GET",
                &format!("/images/{ID}/my%20image.tar"),
                CloudRoute::Image(id, "my image.tar".into()),
            ),
        ] {
            assert_eq!(private(method, &format!("/v1{path}")), Ok(route.clone()), "{path}");
            let long = format!("/v1/organizations/acme{path}");
            assert_eq!(private(method, &long), Ok(route), "{long}");
            assert_eq!(RequestPath::new(&long).org.as_deref(), Some("acme"));
        }
        assert_eq!(private("GET", "/v1/organizations"), Ok(CloudRoute::Organizations));
        assert_eq!(RequestPath::new("/v1/organizations").org, None);
    }

    #[test]
    fn public_paths_need_no_key() {
        for (method, path, route) in [
            ("GET", "/healthz", CloudRoute::Health),
            ("HEAD", "/healthz", CloudRoute::Health),
            ("GET", "/livez", CloudRoute::Live),
            ("GET", "/readyz", CloudRoute::Ready),
            ("GET", "/metrics", CloudRoute::Metrics),
            ("POST", "/build-contexts", CloudRoute::Upload),
        ] {
            let path = RequestPath::new(path);
            assert_eq!(path.kind, None);
            assert_eq!(path.route(method), Ok(route));
        }
    }

    /// The metrics need a private key where the option says so, and no other path does.
    #[test]
    fn the_metrics_may_need_a_key() {
        for path in ["/metrics", "/metrics/", "/%6detrics"] {
            let path = RequestPath::new(path);
            assert!(path.is_metrics());
            assert_eq!(path.needed_key(true), Some(KeyKind::Private));
            assert_eq!(path.needed_key(false), None);
        }
        for path in ["/v1/metrics", "/metrics/x", "/healthz", "/build-contexts"] {
            let path = RequestPath::new(path);
            assert!(!path.is_metrics());
            assert_eq!(path.needed_key(true), path.kind);
        }
    }

    /// I-24: 405 lists the methods, 501 is for operations of later releases, everything else is
    /// 404.
    #[test]
    fn other_requests_are_rejected() {
        let allowed = |error: &ApiError| match error.header {
            ErrorHeader::Allow(methods) => methods,
            _ => "",
        };
        for (method, path, status, methods) in [
            ("POST", "/v1/regions", 405, READ),
            ("DELETE", "/v1/builds", 405, BOTH),
            ("GET", "/v1/builds/upload-url", 405, WRITE),
            ("DELETE", "/v1/builds/x", 405, READ),
            ("POST", "/v1/builds/x/logs", 405, READ),
            ("OPTIONS", "/v1/properties", 405, READ),
            ("GET", "/v1/builds/x", 400, ""),
            ("GET", "/v1/builds/7a2c9e10-1111-1222-8333-444455556666", 400, ""),
            ("GET", "/v1/builds/x/logs", 400, ""),
            ("GET", "/v1/images/x/y", 400, ""),
            ("PATCH", "/v1/properties", 501, ""),
            ("GET", "/v1/properties/schema", 501, ""),
            ("GET", "/v1/agents", 501, ""),
            ("POST", "/v1/organizations/acme/services", 501, ""),
            ("GET", "/v1/services/a/b/c/d/e/f/g/h", 501, ""),
            ("PUT", "/v1/secrets/set", 501, ""),
            ("POST", "/v1/organizations/acme/apiKeys", 501, ""),
            ("GET", "/v1/users", 501, ""),
            ("GET", "/v1", 404, ""),
            ("GET", "/v1/", 404, ""),
            ("GET", "/v1/nothing", 404, ""),
            ("GET", "/v1/organizations/acme", 404, ""),
            ("GET", "/v1/organizations/acme/organizations", 404, ""),
            ("GET", "/v1/builds/x/y/z", 404, ""),
            ("GET", "/v1/regions%2f", 404, ""),
            ("GET", "/v1/builds/%ff", 404, ""),
            ("GET", "/v1/builds/../regions", 404, ""),
            ("GET", "/v1//builds", 404, ""),
        ] {
            let error = private(method, path).expect_err(path);
            assert_eq!((error.status, allowed(&error)), (status, methods), "{method} {path}");
        }
        for path in [
            "/",
            "",
            "*",
            "/v1x",
            "/v2/builds",
            "/healthz/x",
            "/build-contexts/x",
            "/%",
        ] {
            let path = RequestPath::new(path);
            assert_eq!(path.kind, None, "{path:?}");
            assert_eq!(path.route("GET").expect_err("nothing is there").status, 404);
        }
        let upload = RequestPath::new("/build-contexts")
            .route("GET")
            .expect_err("it takes POST");
        assert_eq!((upload.status, allowed(&upload)), (405, WRITE));
    }

    /// C-084, I-04: every path below `/v1/public` needs a public key, in any encoding.
    #[test]
    fn the_public_surface_needs_a_public_key() {
        for path in [
            "/v1/public",
            "/v1/public/",
            "/v1/public/agent/start",
            "/v1/%70ublic/x",
            "/%761/public/a/b/c/d/e/f",
        ] {
            let path = RequestPath::new(path);
            assert_eq!((path.kind, path.org.as_deref()), (Some(KeyKind::Public), None));
            assert_eq!(path.route("POST").expect_err("not there yet").code, "501");
        }
        assert_eq!(RequestPath::new("/v1/publics").kind, Some(KeyKind::Private));
    }

    /// I-22: keys in paths are redacted and long paths are cut.
    #[test]
    fn keys_are_redacted_in_paths() {
        let is_key = |part: &str| part == "secret key";
        assert_eq!(redact_path("/v1/builds", 100, is_key), "/v1/builds");
        assert_eq!(redact_path("/v1/secret key/x", 100, is_key), "/v1/.../x");
        assert_eq!(redact_path("/v1/secret%20ke%79", 100, is_key), "/v1/...");
        assert_eq!(redact_path("/\u{e9}\u{e9}\u{e9}", 4, is_key), "/\u{e9}...");
        assert_eq!(
            redact_path("/v1/secret key", 6, is_key),
            "/v1/......",
            "half a key is hidden too"
        );
        assert_eq!(redact_path("/v1/%ff%73", 100, is_key), "/v1/...");
    }

    /// I-22: anything that looks like a key is redacted, in any position and encoding. A shorter
    /// text is not.
    #[test]
    fn key_like_text_is_redacted_in_paths() {
        let no_key = |_: &str| false;
        for kind in KeyKind::ALL {
            let key = kind.generate([7; 32]);
            let key = key.expose();
            let spelled: String = key.bytes().map(|byte| format!("%{byte:02x}")).collect();
            for part in [
                key.to_owned(),
                format!("sk_{key}x"),
                format!("a={key},"),
                format!("%2e{key}"),
                spelled,
            ] {
                assert_eq!(redact_path(&format!("/v1/{part}/x"), 300, no_key), "/v1/.../x");
                // For every position relative to the cut.
                for before in 0..302 {
                    let path = format!("/{part}/{}{part}", "-".repeat(before));
                    let shown = redact_path(&path, 300, no_key);
                    assert!(
                        !shown.contains(&key[4..8]) && !shown.contains(&spelled_tail(key)),
                        "{shown}"
                    );
                    assert!(shown.len() < 300 + 10);
                }
            }
            let short = format!("/v1/{}", &key[..key.len() - 1]);
            assert_eq!(redact_path(&short, 300, no_key), short);
        }
    }

    fn spelled_tail(key: &str) -> String {
        key.bytes().skip(4).take(4).map(|byte| format!("%{byte:02x}")).collect()
    }

    /// I-22: a long path costs a bounded number of key lookups.
    #[test]
    fn redaction_of_long_paths_is_bounded() {
        let asked = std::cell::Cell::new(0);
        let is_key = |_: &str| {
            asked.set(asked.get() + 1);
            false
        };
        let path = "/abc".repeat(16_000);
        assert_eq!(redact_path(&path, 300, is_key), format!("{}...", &path[..300]));
        assert!(asked.get() <= 76, "{} times", asked.get());
    }
}
