//! The files of a release: which it has, their checksums, its version and its date.
//!
//! In: the contents of `SHA256SUMS`, `SHA256SUMS.sig` and `BUILDINFO`, and of the file that is to
//! be installed. Out: a [`Release`], after the signature and the checksums were verified, and the
//! decision about its version. The signature covers the list of checksums, and that covers the
//! version, so that a mirror cannot pass an old release off as another.

use std::cmp::Ordering;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

use super::signature::{ReleaseSignatureError, signer};
use super::version::{compare, is_version};

/// Names of files of a release.
pub const LIST: &str = "SHA256SUMS";
pub const SIGNATURE: &str = "SHA256SUMS.sig";
pub const BUILD_INFO: &str = "BUILDINFO";
/// Where releases are, unless `--from` names another folder.
const RELEASES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/releases");
/// What an error ends with that left everything as it was.
pub const UNCHANGED: &str = "Nothing was installed";

/// Returns the folder of a release; without a version, of the latest.
pub fn folder(version: Option<&str>) -> String {
    match version {
        Some(version) => format!("{RELEASES}/download/v{version}"),
        None => format!("{RELEASES}/latest/download"),
    }
}

/// Returns where a redirect leads: to a URL, or to a path of the same server. It never leaves
/// HTTPS.
pub fn redirect_target(url: &str, location: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let target = match location.strip_prefix('/') {
        Some(path) if !path.starts_with('/') => format!("{scheme}://{}{location}", rest.split('/').next()?),
        _ => location.to_owned(),
    };
    let is_allowed = target.starts_with("https://") || (scheme == "http" && target.starts_with("http://"));
    is_allowed.then_some(target)
}

/// Returns the names of the archives with a program for this target, without their end: its own,
/// and the static one, which runs where the C library is too old for the first.
pub fn archives(version: &str, target: &str) -> Vec<String> {
    let fixed = target.replace("-linux-gnu", "-linux-musl");
    let mut targets = vec![target.to_owned()];
    if fixed != target {
        targets.push(fixed);
    }
    let names = targets.into_iter();
    names.map(|target| format!("edge-runner-{version}-{target}")).collect()
}

/// Returns the name of the Debian package for this target; `None` if there is none.
pub fn package(version: &str, target: &str) -> Option<String> {
    let architecture = match target.split('-').next()? {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "armv7" => "armhf",
        _ => return None,
    };
    Some(format!("edge-runner_{version}_{architecture}.deb"))
}

/// A release whose signature was verified.
#[derive(Debug)]
pub struct Release {
    list: String,
    pub version: String,
    /// `YYYY-MM-DD`.
    pub date: String,
    /// The fingerprint of the key that signed it.
    pub signer: String,
}

/// The checksums of a release whose signature was verified.
#[derive(Debug)]
pub struct SignedList {
    list: String,
    signer: String,
}

impl SignedList {
    /// Verifies the signature of the list by one of these keys.
    ///
    /// # Errors
    /// A [`ReleaseSignatureError`].
    pub fn verify(list: &[u8], signature: &[u8], keys: &str) -> Result<SignedList, ReleaseSignatureError> {
        Ok(SignedList {
            signer: signer(keys, signature, list)?,
            list: String::from_utf8_lossy(list).into_owned(),
        })
    }

    /// Returns the release, by its `BUILDINFO`. `asked` is the version that it has to be.
    ///
    /// # Errors
    /// A sentence.
    pub fn release(self, build_info: &[u8], asked: Option<&str>) -> Result<Release, String> {
        check(&self.list, BUILD_INFO, build_info)?;
        let text = String::from_utf8_lossy(build_info);
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let version = value("edge-runner").filter(|version| is_version(version));
        let date = value("date").filter(|date| date.len() == "2026-01-01".len());
        let (Some(version), Some(date)) = (version, date) else {
            return Err(format!(
                "{BUILD_INFO} says no version and date: this is no release of edge-runner. {UNCHANGED}"
            ));
        };
        if let Some(asked) = asked.filter(|asked| *asked != version) {
            return Err(format!(
                "the release is version {version}, and {asked} was asked for. {UNCHANGED}"
            ));
        }
        Ok(Release {
            version: version.to_owned(),
            date: date.to_owned(),
            list: self.list,
            signer: self.signer,
        })
    }
}

impl Release {
    /// Returns whether the release has a file of this name.
    pub fn has(&self, name: &str) -> bool {
        checksum(&self.list, name).is_some()
    }

    /// Verifies the checksum of a file.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self, name: &str, content: &[u8]) -> Result<(), String> {
        check(&self.list, name, content)
    }

    /// Returns whether the release is another version than the installed one.
    ///
    /// # Errors
    /// A sentence if it is an older one, unless that is allowed.
    pub fn replaces(&self, installed: &str, allows_older: bool) -> Result<bool, String> {
        match compare(&self.version, installed) {
            Ordering::Equal => Ok(false),
            Ordering::Less if !allows_older => Err(format!(
                "version {installed} is installed, and the release is version {}, which may have faults that are known. \
                 --allow-downgrade installs it all the same. {UNCHANGED}",
                self.version
            )),
            Ordering::Less | Ordering::Greater => Ok(true),
        }
    }
}

fn checksum<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    list.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (sum, of) = (words.next()?, words.next()?);
        (of.strip_prefix('*').unwrap_or(of) == name).then_some(sum)
    })
}

fn check(list: &str, name: &str, content: &[u8]) -> Result<(), String> {
    let Some(listed) = checksum(list, name) else {
        return Err(format!(
            "the release has no {name}: {LIST} does not list it. {UNCHANGED}"
        ));
    };
    let found = HEXLOWER.encode(digest(&SHA256, content).as_ref());
    match found == listed {
        true => Ok(()),
        false => Err(format!(
            "the checksum of {name} is {found}, and {LIST} has {listed}: the download is damaged or was changed. {UNCHANGED}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(list: &str) -> SignedList {
        SignedList {
            list: list.to_owned(),
            signer: "SHA256:x".to_owned(),
        }
    }

    fn listed(name: &str, content: &[u8]) -> String {
        format!("{}  {name}\n", HEXLOWER.encode(digest(&SHA256, content).as_ref()))
    }

    const BUILD: &[u8] = b"edge-runner 1.2.3\ndate 2026-11-28\ncommit 0123\n";

    fn release() -> Release {
        let list = listed(BUILD_INFO, BUILD) + &listed("a", b"content");
        signed(&list).release(BUILD, None).expect("a release")
    }

    #[test]
    fn a_release_has_a_version_a_date_and_checked_files() {
        let release = release();
        assert_eq!((&*release.version, &*release.date), ("1.2.3", "2026-11-28"));
        assert!(release.has("a") && release.has(BUILD_INFO) && !release.has("b") && !release.has(""));
        assert_eq!(release.check("a", b"content"), Ok(()));
        assert!(
            release
                .check("a", b"other")
                .expect_err("changed")
                .contains("the checksum of a is")
        );
        assert!(
            release
                .check("b", b"content")
                .expect_err("not listed")
                .contains("has no b")
        );
        // As `sha256sum --binary` writes it.
        let starred = listed("*a", b"content") + &listed(BUILD_INFO, BUILD);
        let release = signed(&starred).release(BUILD, Some("1.2.3")).expect("a release");
        assert_eq!(release.check("a", b"content"), Ok(()));
    }

    #[test]
    fn a_release_of_another_or_no_version_is_refused() {
        let wrong = |build: &[u8], asked| {
            signed(&listed(BUILD_INFO, build))
                .release(build, asked)
                .expect_err("wrong")
        };
        assert!(wrong(BUILD, Some("1.2.4")).contains("is version 1.2.3, and 1.2.4 was asked for"));
        for build in [
            &b""[..],
            b"edge-runner 1.2.3\n",
            b"date 2026-11-28\n",
            b"edge-runner\ndate 2026-11-28\n",
            b"edge-runner ../1\ndate 2026-11-28\n",
            b"edge-runner 1.2.3\ndate soon\n",
        ] {
            assert!(wrong(build, None).contains("says no version and date"), "{build:?}");
        }
        let changed = signed(&listed(BUILD_INFO, BUILD)).release(b"edge-runner 9.0.0\ndate 2026-11-28\n", None);
        assert!(changed.expect_err("changed").contains("the checksum of BUILDINFO"));
        assert!(
            signed("")
                .release(BUILD, None)
                .expect_err("none")
                .contains("has no BUILDINFO")
        );
    }

    #[test]
    fn an_older_release_needs_permission() {
        let release = release();
        assert_eq!(release.replaces("1.2.3", false), Ok(false));
        assert_eq!(release.replaces("1.2.3", true), Ok(false));
        for older in ["1.2.2", "1.2.3-rc.1", "0.10.0"] {
            assert_eq!(release.replaces(older, false), Ok(true), "{older}");
        }
        for newer in ["1.2.4", "1.10.0", "1.2.4-rc.1"] {
            let refused = release.replaces(newer, false).expect_err("older");
            assert!(
                refused.contains("--allow-downgrade") && refused.contains(newer),
                "{refused}"
            );
            assert_eq!(release.replaces(newer, true), Ok(true), "{newer}");
        }
    }

    #[test]
    fn files_are_named_as_boards_release_names_them() {
        assert_eq!(
            archives("1.2.3", "armv7-unknown-linux-gnueabihf"),
            [
                "edge-runner-1.2.3-armv7-unknown-linux-gnueabihf",
                "edge-runner-1.2.3-armv7-unknown-linux-musleabihf"
            ]
        );
        assert_eq!(archives("1.2.3", "x86_64-unknown-linux-musl").len(), 1);
        assert_eq!(
            archives("1.2.3", "aarch64-apple-darwin"),
            ["edge-runner-1.2.3-aarch64-apple-darwin"]
        );
        for (target, name) in [
            ("aarch64-unknown-linux-gnu", Some("edge-runner_1.2.3_arm64.deb")),
            ("armv7-unknown-linux-gnueabihf", Some("edge-runner_1.2.3_armhf.deb")),
            ("x86_64-unknown-linux-gnu", Some("edge-runner_1.2.3_amd64.deb")),
            ("arm-unknown-linux-musleabihf", None),
        ] {
            assert_eq!(package("1.2.3", target).as_deref(), name);
        }
        assert!(folder(None).ends_with("/edge-runner/releases/latest/download"));
        assert!(folder(Some("1.2.3")).ends_with("/edge-runner/releases/download/v1.2.3"));
    }

    #[test]
    fn a_redirect_stays_with_https() {
        let to = |url, location| redirect_target(url, location);
        let secure = "https://a.example/releases/latest/download/x";
        assert_eq!(
            to(secure, "https://b.example/x?y").as_deref(),
            Some("https://b.example/x?y")
        );
        assert_eq!(to(secure, "/v1/x").as_deref(), Some("https://a.example/v1/x"));
        assert_eq!(
            to("http://a.example:80/x", "/y").as_deref(),
            Some("http://a.example:80/y")
        );
        assert_eq!(
            to("http://a.example/x", "https://b.example/").as_deref(),
            Some("https://b.example/")
        );
        for location in [
            "http://a.example/x",
            "//b.example/x",
            "x",
            "",
            "file:///etc",
            "ftp://b.example/x",
        ] {
            assert_eq!(to(secure, location), None, "{location}");
        }
        assert_eq!(to("http://a.example/x", "file:///etc"), None);
    }
}
