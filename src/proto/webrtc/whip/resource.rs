//! What a session remembers, so that a PATCH can begin its ICE anew.
//!
//! In: the offer, each answer, and what is patched. Out: [`ResourcePatch`], which says what is to be done, and the fragment that tells of
//! a restart. Which of the two a PATCH is, its credentials say and not its headers: those of this session bring candidates,
//! others ask for a restart. A restart is the offer that was, with other credentials and candidates in it.
//! Refuses: an entity tag of another ICE session. A missing one is taken, as the clients of browsers and devices leave it out.
//! Source: RFC 9725 section 4.3, RFC 9110 section 13.1.1.

use std::net::SocketAddr;

use super::fragment::{self, RemoteCredentials, SdpFragment};
use super::{ResourceResponse, WhipError, answer};

/// What a session was opened with, and where it is reached.
#[derive(Clone, Debug)]
pub struct WhipResource {
    offer: String,
    /// The caller's.
    credentials: Option<RemoteCredentials>,
    /// Those before: what was sent before a restart and comes after it.
    previous: Option<RemoteCredentials>,
    /// This end's name, which is the entity tag.
    local_ufrag: String,
}

/// What a PATCH asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourcePatch {
    /// These candidates are the caller's, too.
    Trickle(Vec<String>),
    Restart(IceRestart),
}

/// ICE is to begin anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IceRestart {
    /// To be answered like any further offer.
    pub offer: String,
    credentials: RemoteCredentials,
}

impl WhipResource {
    /// Begins with an offer and its answer.
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

    /// Reads a PATCH.
    ///
    /// # Errors
    /// [`WhipError::Stale`], and those of [`SdpFragment::parse`].
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

    /// The restart was answered. `used` are the addresses of this end and the caller between which media goes.
    pub fn handle_restart(
        &mut self,
        restart: IceRestart,
        answer: &str,
        used: Option<(SocketAddr, SocketAddr)>,
    ) -> ResourceResponse {
        self.previous = self.credentials.replace(restart.credentials);
        self.local_ufrag = answer::ufrag(answer).to_owned();
        ResourceResponse::Restarted {
            fragment: answer::fragment(answer, used),
            etag: self.etag(),
        }
    }

    /// Tells whether a list of entity tags names this ICE session. The star is quoted in the RFC's own example.
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

    const OFFER: &str = "v=0\no=- 1 2 IN IP4 0.0.0.0\ns=-\nt=0 0\nm=audio 9 UDP/TLS/RTP/SAVPF 111\na=ice-ufrag:old\n\
                         a=ice-pwd:oldoldoldoldoldoldoldold\na=candidate:1 1 udp 1 192.0.2.2 2000 typ host\n\
                         a=end-of-candidates\na=mid:0\n";
    const NEW: &[u8] =
        b"a=ice-ufrag:new\r\na=ice-pwd:newnewnewnewnewnewnewnew\r\na=candidate:2 1 udp 1 192.0.2.3 2001 typ host\r\n";
    const OLD: &[u8] =
        b"a=ice-ufrag:old\r\na=ice-pwd:oldoldoldoldoldoldoldold\r\na=candidate:2 1 udp 1 192.0.2.3 2001 typ host\r\n";

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

    /// The same credentials bring candidates, whatever the header says; others ask for a restart.
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

    /// R-069 in another shape: the tag of one ICE session is good for no other.
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
        resource.handle_restart(restart, &answer("second"), None);
        assert_eq!(resource.etag(), "\"second\"");
        assert_eq!(resource.patch(Some(b"\"first\""), NEW), Err(WhipError::StaleEtag));
        assert_eq!(trickled(resource.patch(Some(b"\"second\""), NEW)), 1);
        // What was under way meanwhile leads back to nothing.
        assert_eq!(trickled(resource.patch(None, OLD)), 0);
    }

    /// The offer of a restart has the new credentials and candidates alone, and all else as it was.
    #[test]
    fn a_restart_is_the_offer_with_other_credentials() {
        let Ok(ResourcePatch::Restart(restart)) = resource().patch(None, NEW) else {
            panic!("a restart");
        };
        assert_eq!(
            restart.offer,
            "v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=ice-ufrag:new\r\n\
             a=ice-pwd:newnewnewnewnewnewnewnew\r\na=mid:0\r\na=candidate:2 1 udp 1 192.0.2.3 2001 typ host\r\n"
        );
        // A restart that was refused leaves all as it was.
        assert_eq!(resource().patch(None, NEW), Ok(ResourcePatch::Restart(restart)));
    }

    /// A client that joins several with commas gets one, and that one is where it was reached.
    #[test]
    fn the_answer_to_a_restart_has_one_candidate() {
        let mut resource = resource();
        let used = [([192, 0, 2, 11], 7860), ([192, 0, 2, 2], 2000)].map(SocketAddr::from);
        let Ok(ResourcePatch::Restart(restart)) = resource.patch(None, NEW) else {
            panic!("a restart");
        };
        let done = resource.handle_restart(restart, &answer("second"), Some((used[0], used[1])));
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
