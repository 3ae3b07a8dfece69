//! Properties of an order at an ACME directory.
//!
//! In: the answers of the directory, separated by lines `%%`: of each the first line is the status
//! and, after a space, `Retry-After`; the rest is the body. Whatever it answers: the order ends,
//! the text of a failure is one bounded line, the pause after it is within limits, only ordered
//! names are validated, and a certificate is served only with a chain for all of them.

use edge_runner_http::tls::acme::scripted::{DirectoryAnswer, order};
use edge_runner_proto::limits;
use edge_runner_proto::server::acme::{Failures, OrderClock};

const NAMES: [&str; 2] = ["bot.example.net", "b.example.net"];
/// A time of the present.
const NOW_S: u64 = 1_800_000_000;

/// Returns the parts between separators.
pub fn parts<'i>(bytes: &'i [u8], separator: &[u8]) -> Vec<&'i [u8]> {
    let (mut parts, mut rest) = (Vec::new(), bytes);
    loop {
        let found = rest.windows(separator.len()).position(|window| window == separator);
        let Some(at) = found else {
            parts.push(rest);
            return parts;
        };
        parts.push(&rest[..at]);
        rest = &rest[at + separator.len()..];
    }
}

fn answer(part: &[u8]) -> DirectoryAnswer {
    let end = part.iter().position(|byte| *byte == b'\n').unwrap_or(part.len());
    let line = String::from_utf8_lossy(&part[..end]);
    let (status, retry_after) = line.split_once(' ').unwrap_or((&line, ""));
    // The client accepts no longer body.
    let body = part.get(end + 1..).unwrap_or_default();
    DirectoryAnswer {
        status: status.parse().unwrap_or(200),
        retry_after: retry_after.to_owned(),
        body: body[..body.len().min(limits::REST_BODY_BYTES_MAX)].to_vec(),
    }
}

/// Orders a certificate once.
pub fn acme(bytes: &[u8]) {
    let answers: Vec<_> = parts(bytes, b"\n%%\n").into_iter().map(answer).collect();
    let count = answers.len();
    let ordered = order(&NAMES, answers);
    assert!(ordered.asked <= count);
    for name in &ordered.validated {
        assert!(NAMES.contains(&&*name.to_ascii_lowercase()), "{name:?} is validated");
    }
    match ordered.result {
        // The time is over, which no answer can make panic.
        None => assert!(!ordered.serves),
        Some(Ok(text)) => assert!(ordered.has_account && text.contains("PRIVATE KEY")),
        Some(Err(failure)) => {
            assert!(!ordered.serves, "a certificate of a failed order");
            assert!(!failure.text.is_empty() && !failure.text.contains(char::is_control));
            assert!(failure.text.chars().count() <= limits::ACME_FAILURE_CHARS_MAX);
            for jitter in [0, u16::MAX] {
                let mut clock = OrderClock::new(jitter, Failures::default());
                let pause = clock.handle_failure(&failure, NOW_S);
                assert!(pause >= limits::ACME_UNREACHABLE_PAUSE_FIRST && pause <= limits::ACME_RETRY_AFTER_MAX);
                let next_s = clock.poll_timeout(None, &[], NOW_S);
                assert_eq!(next_s, NOW_S + pause.as_secs());
            }
        }
    }
}
