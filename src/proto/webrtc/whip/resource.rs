//! The state of a session's resource, which a PATCH may use to restart ICE.
//!
//! In: the offer, each answer, and PATCH bodies. Out: a [`ResourcePatch`], and the fragment that
//! answers a restart. The credentials in the body decide: the session's own bring candidates, new
//! ones request a restart. A restart repeats the first offer with other credentials and candidates.
//! Rejected: the entity tag of another ICE session. A missing tag is accepted, since browsers and
//! devices omit it. Sources: RFC 9725 section 4.3, RFC 9110 section 13.1.1.

use std::net::{IpAddr, SocketAddr};

use super::fragment::{self, RemoteCredentials, SdpFragment};
use super::{ResourceResponse, WhipError, answer};

/// The offer and the credentials of a session.
#[derive(Clone, Debug)]
pub struct WhipResource {
    offer: String,
    /// The caller's credentials.
    credentials: Option<RemoteCredentials>,
    /// The credentials before the last restart, which delayed requests may still carry.
    previous: Option<RemoteCredentials>,
    /// The fragment of this end, which is the entity tag.
    local_ufrag: String,
}

/// What a PATCH requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourcePatch {
    /// Additional candidates of the caller.
    Trickle(Vec<String>),
    Restart(IceRestart),
}

/// An ICE restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IceRestart {
    /// The offer to answer.
    pub offer: String,
    credentials: RemoteCredentials,
}

impl WhipResource {
    /// Creates the state from an offer and its answer.
    pub fn new(offer: String, answer: &str) -> Self {
        WhipResource {
            credentials: fragment::credentials(&offer),
            previous: None,
            local_ufrag: answer::ufrag(answer).to_owned(),
            offer,
        }
    }

    /// Returns the entity tag of the ICE session.
    pub fn etag(&self) -> String {
        answer::etag(&self.local_ufrag)
    }

    /// Parses a PATCH.
    ///
    /// # Errors
    /// [`WhipError::StaleEtag`], and those of [`SdpFragment::parse`].
    pub fn patch(&self, if_match: Option<&[u8]>, body: &[u8]) -> Result<ResourcePatch, WhipError> {
        if if_match.is_some_and(|tags| !self.matches(tags)) {
            return Err(WhipError::StaleEtag);
        }
        let fragment = SdpFragment::parse(body)?;
        match fragment.credentials {
            Some(new) if self.previous.as_ref() == Some(&new) => Ok(ResourcePatch::Trickle(Vec::new())),
            Some(new) if self.credentials.as_ref() != Some(&new) => Ok(ResourcePatch::Restart(IceRestart {
                offer: self.offer_with(&new, &fragment.candidates),
                credentials: new,
            })),
            _ => Ok(ResourcePatch::Trickle(fragment.candidates)),
        }
    }

    /// Handles an answered restart. `used` holds the local and remote address in use, and `source`
    /// the address from which the restart was requested.
    pub fn handle_restart(
        &mut self,
        restart: IceRestart,
        answer: &str,
        used: Option<(SocketAddr, SocketAddr)>,
        source: Option<IpAddr>,
    ) -> ResourceResponse {
        self.previous = self.credentials.replace(restart.credentials);
        self.local_ufrag = answer::ufrag(answer).to_owned();
        ResourceResponse::Restarted {
            fragment: answer::fragment(answer, used, source),
            etag: self.etag(),
        }
    }

    /// Returns whether a list of entity tags names this ICE session. The RFC's example quotes the
    /// star.
    fn matches(&self, tags: &[u8]) -> bool {
        let etag = self.etag();
        tags.split(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii)
            .any(|tag| matches!(tag, b"*" | b"\"*\"") || tag == etag.as_bytes() || tag == self.local_ufrag.as_bytes())
    }

    /// Returns the offer with other credentials and candidates.
    fn offer_with(&self, credentials: &RemoteCredentials, candidates: &[String]) -> String {
        let mut text = String::with_capacity(self.offer.len() + 64);
        let mut push = |parts: &[&str]| {
            parts.iter().for_each(|part| text.push_str(part));
            text.push_str("\r\n");
        };
        for line in self.offer.lines().map(str::trim_end) {
            if line.starts_with("a=ice-ufrag:") {
                push(&["a=ice-ufrag:", &credentials.ufrag]);
            } else if line.starts_with("a=ice-pwd:") {
                push(&["a=ice-pwd:", &credentials.pwd]);
            } else if !line.starts_with("a=candidate:") && line != "a=end-of-candidates" {
                push(&[line]);
            }
        }
        for candidate in candidates {
            push(&["a=", candidate]);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: &str = "v=0\no=- 1 2 IN IP4 0.0.0.0\ns=-\nt=0 0\nm=audio 9 UDP/TLS/RTP/SAVPF 111\na=ice-ufrag:oldu\n\
                         a=ice-pwd:oldoldoldoldoldoldoldold\na=candidate:1 1 udp 1 192.0.2.2 2000 typ host\n\
                         a=end-of-candidates\na=mid:0\n";
    const NEW: &[u8] =
        b"a=ice-ufrag:newu\r\na=ice-pwd:newnewnewnewnewnewnewnew\r\na=candidate:2 1 udp 1 192.0.2.3 2001 typ host\r\n";
    const OLD: &[u8] =
        b"a=ice-ufrag:oldu\r\na=ice-pwd:oldoldoldoldoldoldoldold\r\na=candidate:2 1 udp 1 192.0.2.3 2001 typ host\r\n";

    fn answer(ufrag: &str) -> String {
        format!(
            "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=ice-ufrag:{ufrag}\r\na=ice-pwd:pwd\r\n\
             a=candidate:1 1 udp 100 192.0.2.10 7860 typ host\r\na=candidate:2 1 udp 90 192.0.2.11 7860 typ host\r\n"
        )
    }

    fn resource() -> WhipResource {
        WhipResource::new(OFFER.to_owned(), &answer("first"))
    }

    fn trickled(patch: Result<ResourcePatch, WhipError>) -> usize {
        match patch {
            Ok(ResourcePatch::Trickle(lines)) => lines.len(),
            other => panic!("{other:?}"),
        }
    }

    /// Known credentials bring candidates, whatever `If-Match` says; others request a restart.
    #[test]
    fn credentials_tell_a_restart_from_candidates() {
        let resource = resource();
        for if_match in [None, Some(&b"*"[..]), Some(b"\"*\""), Some(b"\"first\"")] {
            assert_eq!(trickled(resource.patch(if_match, OLD)), 1);
            assert!(matches!(resource.patch(if_match, NEW), Ok(ResourcePatch::Restart(_))));
        }
        assert_eq!(
            trickled(resource.patch(None, b"a=candidate:1 1 udp 1 192.0.2.3 2001 typ host")),
            1
        );
    }

    /// The tag of one ICE session is rejected for another.
    #[test]
    fn a_stale_tag_is_refused() {
        let mut resource = resource();
        assert_eq!(resource.etag(), "\"first\"");
        assert_eq!(resource.patch(Some(b"\"other\""), OLD), Err(WhipError::StaleEtag));
        assert_eq!(resource.patch(Some(b""), OLD), Err(WhipError::StaleEtag));
        assert_eq!(trickled(resource.patch(Some(b"\"other\", \"first\""), OLD)), 1);
        let Ok(ResourcePatch::Restart(restart)) = resource.patch(Some(b"*"), NEW) else {
            panic!("a restart");
        };
        resource.handle_restart(restart, &answer("second"), None, None);
        assert_eq!(resource.etag(), "\"second\"");
        assert_eq!(resource.patch(Some(b"\"first\""), NEW), Err(WhipError::StaleEtag));
        assert_eq!(trickled(resource.patch(Some(b"\"second\""), NEW)), 1);
        // Requests from before the restart have no effect.
        assert_eq!(trickled(resource.patch(None, OLD)), 0);
    }

    /// The offer of a restart has the new credentials and candidates, and is otherwise unchanged.
    #[test]
    fn a_restart_is_the_offer_with_other_credentials() {
        let Ok(ResourcePatch::Restart(restart)) = resource().patch(None, NEW) else {
            panic!("a restart");
        };
        assert_eq!(
            restart.offer,
            "v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=ice-ufrag:newu\r\n\
             a=ice-pwd:newnewnewnewnewnewnewnew\r\na=mid:0\r\na=candidate:2 1 udp 1 192.0.2.3 2001 typ host\r\n"
        );
        // A rejected restart leaves everything unchanged.
        assert_eq!(resource().patch(None, NEW), Ok(ResourcePatch::Restart(restart)));
    }

    /// Clients that join candidates with commas get one, where they were reached.
    #[test]
    fn the_answer_to_a_restart_has_one_candidate() {
        let mut resource = resource();
        let used = [([192, 0, 2, 11], 7860), ([192, 0, 2, 2], 2000)].map(SocketAddr::from);
        let Ok(ResourcePatch::Restart(restart)) = resource.patch(None, NEW) else {
            panic!("a restart");
        };
        let done = resource.handle_restart(restart, &answer("second"), Some((used[0], used[1])), None);
        assert_eq!(
            done,
            ResourceResponse::Restarted {
                fragment: "a=ice-ufrag:second\r\na=ice-pwd:pwd\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
                           a=candidate:2 1 udp 90 192.0.2.11 7860 typ host\r\n"
                    .replace("a=mid:0\r\n", ""),
                etag: "\"second\"".into()
            }
        );
    }
}
