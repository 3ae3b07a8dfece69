//! Requests to the object store and links to its objects, signed.
//!
//! In: a request, credentials, the time in milliseconds since 1970. Out: headers, or the query of a
//! link that is valid for a while. Paths are encoded once, as this store's canonical form wants
//! them. Bodies are not part of the signature: those of links are unknown, and TLS protects the
//! others. Source: Amazon S3 API Reference, "Authenticating Requests (AWS Signature Version 4)".

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::proto::name::uri_encode;
use crate::proto::sign::S3;
use edge_runner_proto::config::{Secret, SecretBytes};
use edge_runner_proto::{sorting, time};

/// The value that stands for a body outside the signature.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// What signs requests and grants.
#[derive(Clone, Debug)]
pub struct StoreCredentials {
    /// The access key id; no secret.
    pub id: String,
    pub secret: SecretBytes,
    /// The token of temporary credentials.
    pub token: Option<Secret>,
}

/// A request to sign.
#[derive(Clone, Copy, Debug)]
pub struct StoreRequest<'a> {
    pub method: &'a str,
    pub host: &'a str,
    /// Encoded.
    pub path: &'a str,
    /// Names and values, not encoded.
    pub query: &'a [(&'a str, &'a str)],
}

impl StoreRequest<'_> {
    /// Returns the headers that authorize the request, without `Host`.
    pub fn headers(&self, by: &StoreCredentials, region: &str, now_ms: u64) -> Vec<(&'static str, String)> {
        let date = time::compact(now_ms);
        let mut headers = vec![
            ("x-amz-content-sha256", UNSIGNED.to_owned()),
            ("x-amz-date", date.clone()),
        ];
        headers.extend(
            by.token
                .iter()
                .map(|token| ("x-amz-security-token", token.expose().to_owned())),
        );
        let mut lines = format!("host:{}\n", self.host);
        let mut names = "host".to_owned();
        for (name, value) in &headers {
            lines.push_str(&format!("{name}:{value}\n"));
            names.push_str(&format!(";{name}"));
        }
        let signature = self.signature(by, region, &date, &self.encoded_query(), &lines, &names);
        let authorization = format!(
            "{} Credential={},SignedHeaders={names},Signature={signature}",
            S3.algorithm,
            credential(by, region, &date)
        );
        headers.push(("authorization", authorization));
        headers
    }

    /// Returns the query of a link that is valid for `expires_s` seconds. The request's own query
    /// is part of it.
    pub fn link(&self, by: &StoreCredentials, region: &str, expires_s: u64, now_ms: u64) -> String {
        let date = time::compact(now_ms);
        let (credential, expires) = (credential(by, region, &date), expires_s.to_string());
        let mut query = self.query.to_vec();
        query.extend([
            ("X-Amz-Algorithm", S3.algorithm),
            ("X-Amz-Credential", &credential),
            ("X-Amz-Date", &date),
            ("X-Amz-Expires", &expires),
            ("X-Amz-SignedHeaders", "host"),
        ]);
        query.extend(by.token.iter().map(|token| ("X-Amz-Security-Token", token.expose())));
        let link = StoreRequest { query: &query, ..*self };
        let query = link.encoded_query();
        let signature = link.signature(by, region, &date, &query, &format!("host:{}\n", self.host), "host");
        format!("{query}&X-Amz-Signature={signature}")
    }

    /// Returns the query in its canonical form: encoded and sorted.
    pub fn encoded_query(&self) -> String {
        let mut pairs: Vec<(String, String)> = self
            .query
            .iter()
            .map(|(name, value)| (uri_encode(name), uri_encode(value)))
            .collect();
        sorting::sort(&mut pairs);
        let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("&")
    }

    fn signature(
        &self,
        by: &StoreCredentials,
        region: &str,
        date: &str,
        query: &str,
        lines: &str,
        names: &str,
    ) -> String {
        let canonical = format!("{}\n{}\n{query}\n{lines}\n{names}\n{UNSIGNED}", self.method, self.path);
        let day = &date[..8];
        let text = format!(
            "{}\n{date}\n{day}/{region}/{}/{}\n{}",
            S3.algorithm,
            S3.service,
            S3.terminator,
            HEXLOWER.encode(&Sha256::digest(canonical))
        );
        S3.sign(by.secret.expose(), day, region, text.as_bytes())
    }
}

/// Returns the credential: the key's id and its scope.
pub fn credential(by: &StoreCredentials, region: &str, date: &str) -> String {
    format!("{}/{}/{region}/{}/{}", by.id, &date[..8], S3.service, S3.terminator)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of the examples in the documentation: 2013-05-24T00:00:00Z.
    const NOW_MS: u64 = 1_369_353_600_000;

    fn example() -> StoreCredentials {
        StoreCredentials {
            id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: SecretBytes::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            token: None,
        }
    }

    /// The example of the documentation, "Authenticating Requests: Using Query Parameters".
    #[test]
    fn a_link_has_the_documented_signature() {
        let request = StoreRequest {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/test.txt",
            query: &[],
        };
        assert_eq!(
            request.link(&example(), "us-east-1", 86_400, NOW_MS),
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
             &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
             &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
    }

    #[test]
    fn headers_cover_host_date_and_token() {
        let mut by = example();
        let request = StoreRequest {
            method: "GET",
            host: "h",
            path: "/b",
            query: &[("prefix", "a/b"), ("list-type", "2")],
        };
        assert_eq!(request.encoded_query(), "list-type=2&prefix=a%2Fb");
        let plain = request.headers(&by, "us-east-1", NOW_MS);
        let names: Vec<_> = plain.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["x-amz-content-sha256", "x-amz-date", "authorization"]);
        assert!(
            plain[2].1.starts_with(
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
                 SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature="
            ),
            "{}",
            plain[2].1
        );
        by.token = Some(Secret::new("t"));
        let temporary = request.headers(&by, "us-east-1", NOW_MS);
        assert_eq!(temporary[2], ("x-amz-security-token", "t".into()));
        assert!(temporary[3].1.contains(";x-amz-date;x-amz-security-token,"));
        assert_ne!(temporary[3].1, plain[2].1);
        assert!(
            request
                .link(&by, "us-east-1", 1, NOW_MS)
                .contains("&X-Amz-Security-Token=t&")
        );
        assert!(!format!("{by:?}").contains("wJalr"));
    }
}
