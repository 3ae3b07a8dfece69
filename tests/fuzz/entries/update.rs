//! Properties of what `edge-runner update` reads: the files of a mirror before they are verified,
//! archives, and the output of `systemctl`.
//!
//! In: parts that lines `%%` separate: the list of checksums, its signature, `BUILDINFO`, the
//! location of a redirect, and the rest an archive, packed or not. Without the key of the corpus
//! nothing is a release. Of an archive only whole files within it are taken. Inflating is left
//! out: it has a limit, and comes after the verification.

use std::cmp::Ordering;

use edge_runner_proto::update::archive::{deflated, file};
use edge_runner_proto::update::release::{BUILD_INFO, SignedList, archives, package, redirect_target};
use edge_runner_proto::update::service::ServiceStatus;
use edge_runner_proto::update::version::{compare, is_version};

use super::acme::parts;

/// The key that signed releases of the corpus.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPNcNVbtuWGRShoTAJGWjxKAflBJhuRWm8OEZAUv+F6k";
const INSTALLED: &str = "1.2.3";
/// Characters of a sentence, without the names that it quotes.
const SENTENCE_CHARS_MAX: usize = 600;

pub fn update(bytes: &[u8]) {
    let mut parts = parts(bytes, b"\n%%\n").into_iter();
    let mut next = || parts.next().unwrap_or_default();
    let (list, signature, build_info, location, archive) = (next(), next(), next(), next(), next());
    release(list, signature, build_info);
    redirect(&String::from_utf8_lossy(location));
    unpack(archive);
    unpack(bytes);
    let status = ServiceStatus::read(&String::from_utf8_lossy(bytes));
    assert!(status.programs().iter().map(String::len).sum::<usize>() <= 3 * bytes.len());
    let text = String::from_utf8_lossy(build_info);
    if is_version(&text) {
        assert!(!text.contains(['/', '\0', '\n']), "{text:?} becomes a part of a URL");
        assert_eq!(compare(&text, &text), Ordering::Equal);
        assert_eq!(compare(&text, INSTALLED), compare(INSTALLED, &text).reverse());
    }
}

fn release(list: &[u8], signature: &[u8], build_info: &[u8]) {
    let signed = match SignedList::verify(list, signature, KEY) {
        Ok(signed) => signed,
        Err(error) => return shown(&error.to_string(), 0),
    };
    let release = match signed.release(build_info, None) {
        Ok(release) => release,
        Err(why) => return shown(&why, list.len()),
    };
    assert!(is_version(&release.version) && release.date.len() == 10);
    assert_eq!(release.check(BUILD_INFO, build_info), Ok(()));
    assert!(release.check(BUILD_INFO, &[build_info, b"x"].concat()).is_err());
    let is_older = compare(&release.version, INSTALLED) == Ordering::Less;
    assert_eq!(release.replaces(INSTALLED, false).is_err(), is_older);
    for target in ["x86_64-unknown-linux-gnu", "riscv64gc-unknown-linux-gnu"] {
        for name in archives(&release.version, target)
            .into_iter()
            .chain(package(&release.version, target))
        {
            assert!(!name.contains('/') && !release.has(&format!("{name}\n")));
        }
    }
}

/// No redirect leaves HTTPS, and one to a path stays at its server.
fn redirect(location: &str) {
    let Some(target) = redirect_target("https://example.net/a/SHA256SUMS", location) else {
        return;
    };
    assert!(target.starts_with("https://"), "{target:?}");
    if location.starts_with('/') {
        assert!(target.starts_with("https://example.net/"), "{target:?}");
    }
}

fn unpack(archive: &[u8]) {
    if let Some(part) = deflated(archive) {
        assert!(part.len() + 18 <= archive.len());
    }
    if let Some(content) = file(archive, "edge-runner-9.9.9/edge-runner") {
        assert!(archive.as_ptr_range().contains(&content.as_ptr()) || content.is_empty());
        assert!(content.len() + 512 <= archive.len());
    }
}

fn shown(sentence: &str, quoted: usize) {
    assert!(sentence.chars().count() <= SENTENCE_CHARS_MAX + quoted, "{sentence}");
}
