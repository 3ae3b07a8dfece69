//! Downloads the files of a release.
//!
//! In: the folder of a release, and names. Out: contents, verified. A redirect is followed a few
//! times, and never out of HTTPS. Files are kept in memory: the longest has 6 MB.

use std::time::Duration;

use bytes::Bytes;

use crate::io::rest::{ResponseLimits, RestError, RestResponse, send_with};
use crate::proto::server::rest::{RestMethod, RestRequest};
use crate::proto::update::release::{BUILD_INFO, LIST, Release, SIGNATURE, SignedList, UNCHANGED, redirect_target};

/// The limits of the list, its signature and the version: a few kilobytes.
const SMALL: ResponseLimits = ResponseLimits {
    timeout: Duration::from_secs(30),
    body_bytes_max: 256 * 1024,
};
/// The limits of an archive or a package: ten times of what one has, and 10 kB/s.
const LARGE: ResponseLimits = ResponseLimits {
    timeout: Duration::from_secs(600),
    body_bytes_max: 64 * 1024 * 1024,
};
/// Redirects of one download; a release on GitHub has two.
const REDIRECTS_MAX: usize = 5;

/// Where a release is.
pub struct ReleaseSource<'a> {
    /// Its URL, without a slash at its end.
    pub folder: &'a str,
}

impl ReleaseSource<'_> {
    /// Downloads what a release says of itself, and verifies it by these keys. `version` is what it
    /// has to be.
    pub async fn release(&self, keys: &str, version: Option<&str>) -> Result<Release, String> {
        let list = self.fetch(LIST, SMALL).await?;
        let signature = self.fetch(SIGNATURE, SMALL).await?;
        let signed = SignedList::verify(&list, &signature, keys);
        let signed = signed.map_err(|error| format!("{error}. {UNCHANGED}"))?;
        let build_info = self.fetch(BUILD_INFO, SMALL).await?;
        signed.release(&build_info, version)
    }

    /// Downloads a file of a release, and verifies its checksum.
    pub async fn verified(&self, release: &Release, name: &str) -> Result<Bytes, String> {
        let content = self.fetch(name, LARGE).await?;
        release.check(name, &content)?;
        Ok(content)
    }

    async fn fetch(&self, name: &str, within: ResponseLimits) -> Result<Bytes, String> {
        let mut url = format!("{}/{name}", self.folder);
        for _ in 0..=REDIRECTS_MAX {
            let request = RestRequest {
                method: RestMethod::Get,
                url: url.clone(),
                authorization: None,
                body: None,
            };
            let answer = send_with(&request, &[("accept", "*/*".to_owned())], within).await;
            let RestResponse {
                status, body, location, ..
            } = answer.map_err(|error| self.unreachable(name, &error))?;
            match (status, location) {
                (200, _) => return Ok(body),
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    url = redirect_target(&url, &location).ok_or_else(|| {
                        format!(
                            "{}/{name} leads to an address that is not allowed. {UNCHANGED}",
                            self.folder
                        )
                    })?;
                }
                (status, _) => {
                    return Err(format!(
                        "{} has no {name} (status {status}): is it the folder of a release? {UNCHANGED}",
                        self.folder
                    ));
                }
            }
        }
        Err(format!(
            "{}/{name} leads from address to address. {UNCHANGED}",
            self.folder
        ))
    }

    fn unreachable(&self, name: &str, error: &RestError) -> String {
        let advice = match error {
            RestError::Resolve { .. } | RestError::Connect { .. } | RestError::Timeout { .. } => {
                "Is this machine online? "
            }
            _ => "",
        };
        format!(
            "{}/{name} cannot be downloaded: {error}. {advice}{UNCHANGED}",
            self.folder
        )
    }
}
