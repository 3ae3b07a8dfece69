//! The body of a PATCH: candidates, or new ICE credentials.
//!
//! In: an SDP fragment, or the tail of a description, which some clients send instead. Out: its
//! credentials and its unchecked candidates. All other lines are ignored, since all media share one
//! transport. Rejected: text that is not UTF-8, incomplete or invalid credentials, and text without
//! any of these attributes. Source: RFC 8840 section 9.

use std::ops::RangeInclusive;

use super::WhipError;
use crate::limits::{CANDIDATE_BYTES_MAX, CANDIDATES_MAX, ICE_PWD_BYTES_MAX, ICE_UFRAG_BYTES_MAX};

/// Least bytes of the ICE user name fragment of a restart, as of RFC 8839.
const ICE_UFRAG_BYTES_MIN: usize = 4;
/// Least bytes of the ICE password of a restart, as of RFC 8839.
const ICE_PWD_BYTES_MIN: usize = 22;

/// The peer's ICE credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteCredentials {
    pub ufrag: String,
    pub pwd: String,
}

/// A parsed fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SdpFragment {
    /// `None` if the sender omitted them.
    pub credentials: Option<RemoteCredentials>,
    /// The `candidate:...` values, without duplicates and unchecked.
    pub candidates: Vec<String>,
}

impl SdpFragment {
    /// Parses a body.
    ///
    /// # Errors
    /// [`WhipError`].
    pub fn parse(body: &[u8]) -> Result<SdpFragment, WhipError> {
        let text = super::sdp_text(body)?;
        let (mut ufrag, mut pwd) = (None, None);
        let mut candidates: Vec<String> = Vec::new();
        let mut says_anything = false;
        for line in text.lines().map(str::trim_end) {
            let Some(attribute) = line.strip_prefix("a=") else {
                continue;
            };
            let (name, value) = attribute.split_once(':').unwrap_or((attribute, ""));
            match name {
                "ice-ufrag" => ufrag = ufrag.or(Some(value)),
                "ice-pwd" => pwd = pwd.or(Some(value)),
                "candidate" => {
                    let is_new = !candidates.iter().any(|known| known == attribute);
                    let is_text = !attribute.contains(char::is_control);
                    if is_new && is_text && attribute.len() <= CANDIDATE_BYTES_MAX && candidates.len() < CANDIDATES_MAX
                    {
                        candidates.push(attribute.to_owned());
                    }
                }
                "end-of-candidates" => {}
                _ => continue,
            }
            says_anything = true;
        }
        // Clients send an empty body for the end of candidates.
        if !says_anything && !body.is_empty() {
            return Err(WhipError::BadFragment(
                "the fragment has neither `a=candidate`, `a=end-of-candidates` nor `a=ice-ufrag`",
            ));
        }
        let credentials = match (ufrag, pwd) {
            (None, None) => None,
            (Some(ufrag), Some(pwd))
                if is_valid_credential(ufrag, ICE_UFRAG_BYTES_MIN..=ICE_UFRAG_BYTES_MAX)
                    && is_valid_credential(pwd, ICE_PWD_BYTES_MIN..=ICE_PWD_BYTES_MAX) =>
            {
                Some(RemoteCredentials {
                    ufrag: ufrag.to_owned(),
                    pwd: pwd.to_owned(),
                })
            }
            (Some(_), Some(_)) => {
                return Err(WhipError::BadFragment(
                    "the fragment needs an `a=ice-ufrag` of 4 to 100 and an `a=ice-pwd` of 22 to 256 visible characters \
                     without `:`",
                ));
            }
            _ => {
                return Err(WhipError::BadFragment(
                    "the fragment has only one of `a=ice-ufrag` and `a=ice-pwd`; both are needed",
                ));
            }
        };
        Ok(SdpFragment {
            credentials,
            candidates,
        })
    }
}

/// Returns whether a credential can be used in a check (RFC 8839 section 5.4).
fn is_valid_credential(word: &str, bytes: RangeInclusive<usize>) -> bool {
    bytes.contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
}

/// Returns the first credentials of a description; all sections of a bundle share them.
pub fn credentials(sdp: &str) -> Option<RemoteCredentials> {
    Some(RemoteCredentials {
        ufrag: value(sdp, "a=ice-ufrag:")?.to_owned(),
        pwd: value(sdp, "a=ice-pwd:")?.to_owned(),
    })
}

fn value<'t>(sdp: &'t str, prefix: &str) -> Option<&'t str> {
    sdp.lines()
        .find_map(|line| line.strip_prefix(prefix))
        .map(str::trim_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "candidate:1 1 udp 2122194687 192.0.2.2 36127 typ host";

    fn parse(text: &str) -> Result<SdpFragment, WhipError> {
        SdpFragment::parse(text.as_bytes())
    }

    fn credentials() -> Option<RemoteCredentials> {
        Some(RemoteCredentials {
            ufrag: "EsAw".into(),
            pwd: "P2uYro0UCOQ4zxjKXaWCBui1".into(),
        })
    }

    /// `whip-whep` 1.2.0: credentials above the sections, one section for the first mid.
    #[test]
    fn a_fragment_of_a_browser_library_is_read() {
        let text = format!(
            "a=ice-ufrag:EsAw\r\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:0\r\n\
             a={HOST}\r\na=end-of-candidates\r\n"
        );
        let read = parse(&text);
        assert_eq!(
            read,
            Ok(SdpFragment {
                credentials: credentials(),
                candidates: vec![HOST.into()]
            })
        );
        assert_eq!(parse(&text.replace("\r\n", "\n")), read);
    }

    /// `@eyevinn/whip-web-client` 1.1.7: a section per mid, component 0, the plain RTP profile.
    #[test]
    fn a_fragment_with_a_section_per_mid_is_parsed() {
        let text = "a=ice-ufrag:EsAw\r\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\nm=audio 9 RTP/AVP 0\r\na=mid:0\r\n\
                    a=candidate:1 0 udp 2122194687 192.0.2.2 36127 typ host\r\nm=audio 9 RTP/AVP 0\r\na=mid:1\r\n\
                    a=candidate:1 0 udp 2122194687 192.0.2.2 36127 typ host\r\n";
        let read = parse(text).expect("read");
        assert_eq!((read.credentials, read.candidates.len()), (credentials(), 1));
    }

    /// Espressif's client: the tail of a description from its group line on, with credentials in a
    /// section.
    #[test]
    fn the_tail_of_a_description_is_read() {
        let text = format!(
            "a=group:BUNDLE 0\r\na=msid-semantic: esp-webrtc\r\nm=audio 9 UDP/TLS/RTP/SAVP 111\r\nc=IN IP4 0.0.0.0\r\n\
             a=ice-ufrag:EsAw\r\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\na=setup:actpass\r\na={HOST}\r\n"
        );
        let read = parse(&text).expect("read");
        assert_eq!((read.credentials, read.candidates), (credentials(), vec![HOST.into()]));
    }

    #[test]
    fn fragments_without_content_are_rejected() {
        assert_eq!(
            parse("").map(|read| (read.credentials, read.candidates.len())),
            Ok((None, 0))
        );
        for text in ["v=0", "m=audio 9 RTP/AVP 0\r\na=mid:0\r\n", "{}", "candidate:1"] {
            assert!(matches!(parse(text), Err(WhipError::BadFragment(_))), "{text}");
        }
        assert_eq!(parse("a=end-of-candidates").map(|read| read.candidates.len()), Ok(0));
        assert_eq!(parse(&format!("a={HOST}")).map(|read| read.credentials), Ok(None));
        for half in [
            "a=ice-ufrag:x",
            "a=ice-pwd:x",
            "a=ice-ufrag:\na=ice-pwd:x",
            "a=ice-ufrag:a:b\na=ice-pwd:x",
        ] {
            assert!(matches!(parse(half), Err(WhipError::BadFragment(_))), "{half}");
        }
        assert_eq!(SdpFragment::parse(b"a=ice-ufrag:\xff"), Err(WhipError::NotUtf8));
    }

    #[test]
    fn fragments_are_capped() {
        let many = |count: usize| -> String {
            let line = |at| format!("a=candidate:{at} 1 udp 1 192.0.2.2 {} typ host\n", 1024 + at);
            (0..count).map(line).collect()
        };
        let kept = |count| parse(&many(count)).expect("read").candidates.len();
        assert_eq!(
            (kept(CANDIDATES_MAX), kept(CANDIDATES_MAX + 1)),
            (CANDIDATES_MAX, CANDIDATES_MAX)
        );
        let long = |bytes: usize| {
            let text = format!("a=candidate:{}", "x".repeat(bytes - "candidate:".len()));
            parse(&text).expect("read").candidates.len()
        };
        assert_eq!((long(CANDIDATE_BYTES_MAX), long(CANDIDATE_BYTES_MAX + 1)), (1, 0));
        let fits = |ufrag: usize, pwd: usize| {
            parse(&format!(
                "a=ice-ufrag:{}\na=ice-pwd:{}",
                "u".repeat(ufrag),
                "p".repeat(pwd)
            ))
            .is_ok()
        };
        for (ufrag, is_fit) in [
            (3, false),
            (4, true),
            (ICE_UFRAG_BYTES_MAX, true),
            (ICE_UFRAG_BYTES_MAX + 1, false),
        ] {
            assert_eq!(fits(ufrag, 22), is_fit, "{ufrag}");
        }
        for (pwd, is_fit) in [
            (21, false),
            (22, true),
            (ICE_PWD_BYTES_MAX, true),
            (ICE_PWD_BYTES_MAX + 1, false),
        ] {
            assert_eq!(fits(4, pwd), is_fit, "{pwd}");
        }
    }
}
