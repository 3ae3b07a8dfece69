//! The URL of the object store, and the URLs of its objects.
//!
//! In: `s3://BUCKET?endpoint=URL&region=NAME&public=URL&style=path|host`. Out: a [`StoreUrl`].
//! Without an endpoint the store is Amazon S3, whose buckets have hosts of their own; others get
//! the bucket as the first segment of the path. `public` is the endpoint as clients see it. Source:
//! Amazon S3 User Guide, "Methods for accessing a bucket".

use crate::proto::name::uri_encode;
use edge_runner_proto::options::hosts::is_local_name;

/// Region of stores that have none.
const REGION: &str = "us-east-1";

/// Where objects are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl {
    pub bucket: String,
    pub region: String,
    /// As the service reaches it.
    pub endpoint: Endpoint,
    /// As clients reach it.
    pub public: Endpoint,
}

/// Scheme and host of a store, and whether the bucket is part of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    scheme: &'static str,
    /// With the bucket, unless that is in the path.
    pub host: String,
    /// The bucket with its slash, or nothing.
    prefix: String,
    /// Whether requests leave this machine without TLS.
    pub is_plain: bool,
}

/// What a valid URL looks like.
pub const WANTS: &str = "s3://BUCKET, with endpoint=URL for a store other than Amazon's, region=NAME, public=URL if clients reach \
                         it elsewhere, and style=path or style=host";

impl StoreUrl {
    /// Parses a URL. Returns `None` if a part is invalid or unknown.
    pub fn parse(text: &str) -> Option<StoreUrl> {
        let rest = text.strip_prefix("s3://")?;
        let (bucket, query) = rest.split_once('?').unwrap_or((rest, ""));
        let bucket = bucket.trim_end_matches('/');
        let is_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_label) || bucket.starts_with(['.', '-']) {
            return None;
        }
        let (mut endpoint, mut region, mut public, mut in_path) = (None, REGION, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=')? {
                ("endpoint", url) => endpoint = Some(url),
                ("public", url) => public = Some(url),
                ("region", name) => region = name,
                ("style", "path") => in_path = Some(true),
                ("style", "host") => in_path = Some(false),
                _ => return None,
            }
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if region.is_empty() || !region.bytes().all(is_name) {
            return None;
        }
        let amazon = format!("https://s3.{region}.amazonaws.com");
        let in_path = in_path.unwrap_or(endpoint.is_some());
        let endpoint = endpoint.unwrap_or(&amazon);
        Some(StoreUrl {
            region: region.to_owned(),
            endpoint: Endpoint::parse(endpoint, bucket, in_path)?,
            public: Endpoint::parse(public.unwrap_or(endpoint), bucket, in_path)?,
            bucket: bucket.to_owned(),
        })
    }
}

impl Endpoint {
    fn parse(url: &str, bucket: &str, in_path: bool) -> Option<Endpoint> {
        let (scheme, host) = match url.split_once("://")? {
            ("https", host) => ("https", host),
            ("http", host) => ("http", host),
            _ => return None,
        };
        let host = host.trim_end_matches('/').to_ascii_lowercase();
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) {
            return None;
        }
        Some(Endpoint {
            scheme,
            is_plain: scheme == "http" && !is_local_name(&host),
            prefix: if in_path { format!("/{bucket}") } else { String::new() },
            host: if in_path { host } else { format!("{bucket}.{host}") },
        })
    }

    /// Returns the path of an object, or of the bucket for an empty key.
    pub fn path(&self, key: &str) -> String {
        let segments: Vec<String> = key.split('/').map(uri_encode).collect();
        match (key, self.prefix.as_str()) {
            ("", "") => "/".into(),
            ("", prefix) => prefix.into(),
            (_, prefix) => format!("{prefix}/{}", segments.join("/")),
        }
    }

    /// Returns the URL of a path with a query, which may be empty.
    pub fn url(&self, path: &str, query: &str) -> String {
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}://{}{path}{mark}{query}", self.scheme, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> StoreUrl {
        StoreUrl::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    fn url(of: &Endpoint, key: &str) -> String {
        of.url(&of.path(key), "")
    }

    #[test]
    fn the_bucket_is_in_the_host_or_in_the_path() {
        let amazon = parse("s3://contexts?region=eu-central-1");
        assert_eq!(
            url(&amazon.endpoint, "o/a b:ü.tar"),
            "https://contexts.s3.eu-central-1.amazonaws.com/o/a%20b%3A%C3%BC.tar"
        );
        assert_eq!(
            url(&amazon.public, ""),
            "https://contexts.s3.eu-central-1.amazonaws.com/"
        );
        let own = parse("s3://contexts?endpoint=http://127.0.0.1:8333&public=https://Store.example.net/");
        assert_eq!(url(&own.endpoint, "a/b"), "http://127.0.0.1:8333/contexts/a/b");
        assert_eq!(url(&own.public, "a/b"), "https://store.example.net/contexts/a/b");
        assert_eq!(url(&own.endpoint, ""), "http://127.0.0.1:8333/contexts");
        assert_eq!((own.endpoint.is_plain, own.public.is_plain), (false, false));
        assert!(parse("s3://contexts?endpoint=http://store").endpoint.is_plain);
        let hosts = parse("s3://contexts?endpoint=https://store.example.net&style=host");
        assert_eq!(hosts.endpoint.host, "contexts.store.example.net");
        assert_eq!(hosts.region, "us-east-1");
    }

    #[test]
    fn invalid_urls_are_rejected() {
        for text in [
            "",
            "s3://",
            "s3://ab",
            "s3://UPPER",
            "s3://a/b",
            "s3://-abc",
            "http://contexts",
            "s3://contexts?endpoint=ftp://h",
            "s3://contexts?endpoint=https://",
            "s3://contexts?endpoint=https://h/path",
            "s3://contexts?endpoint=https://u:p@h",
            "s3://contexts?region=",
            "s3://contexts?region=a/b",
            "s3://contexts?style=both",
            "s3://contexts?secret=1",
            "s3://contexts?region",
        ] {
            assert_eq!(StoreUrl::parse(text), None, "{text}");
        }
    }
}
