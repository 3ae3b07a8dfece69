//! Properties of the PATCH requests of a WHIP session.
//!
//! In: a line with the entity tags of `If-Match`, empty for a missing header, then the body. A
//! foreign tag changes nothing. A restart yields an offer that the engine can parse, with the
//! credentials of the fragment and no further candidates. A repeated restart is not a restart.
//! Source: RFC 9725 section 4.3.

use edge_runner_proto::limits::{CANDIDATE_BYTES_MAX, CANDIDATES_MAX, OFFER_SDP_BYTES_MAX};
use edge_runner_proto::webrtc::sdp::prepare_offer;
use edge_runner_proto::webrtc::whip::fragment::{SdpFragment, credentials};
use edge_runner_proto::webrtc::whip::resource::{ResourcePatch, WhipResource};
use edge_runner_proto::webrtc::whip::{ResourceResponse, WhipError};

const OFFER: &str = include_str!("../../data/sdp/chrome.offer.sdp");

fn answer(ufrag: &str) -> String {
    format!(
        "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=ice-ufrag:{ufrag}\r\na=ice-pwd:0123456789abcdefghijkl\r\n\
         a=candidate:1 1 udp 2130706175 192.0.2.10 7860 typ host\r\n"
    )
}

/// A body is applied once, by its credentials, or is rejected and changes nothing.
pub fn fragment(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (tags, body) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let tags = (!tags.is_empty()).then_some(tags);
    let mut resource = WhipResource::new(OFFER.to_owned(), &answer("first"));
    let patched = resource.patch(tags, body);
    if let Some(tags) = tags
        && !tags.windows(5).any(|five| five == b"first")
        && !tags.contains(&b'*')
    {
        assert_eq!(patched, Err(WhipError::StaleEtag));
        return;
    }
    let Ok(patch) = patched else {
        return;
    };
    assert!(body.len() <= OFFER_SDP_BYTES_MAX);
    let read = SdpFragment::parse(body).expect("it was read a moment ago");
    assert!(read.candidates.len() <= CANDIDATES_MAX);
    for line in &read.candidates {
        assert!(line.len() <= CANDIDATE_BYTES_MAX);
        super::candidate(line.as_bytes());
    }
    let restart = match patch {
        ResourcePatch::Trickle(lines) => {
            assert!(lines.iter().all(|line| read.candidates.contains(line)));
            return;
        }
        ResourcePatch::Restart(restart) => restart,
    };
    assert_ne!(read.credentials, credentials(OFFER));
    assert_eq!(credentials(&restart.offer), read.credentials);
    let prepared = prepare_offer(&restart.offer).expect("the offer and its credentials are valid");
    assert!(prepared.candidates.iter().all(|line| read.candidates.contains(line)));
    let ResourceResponse::Restarted { fragment, etag } = resource.handle_restart(restart, &answer("second"), None)
    else {
        panic!("a restart says how to go on");
    };
    assert_eq!(
        (fragment.matches("a=candidate:").count(), etag.as_str()),
        (1, "\"second\"")
    );
    assert!(matches!(
        resource.patch(Some(b"*"), body),
        Ok(ResourcePatch::Trickle(_))
    ));
    assert_eq!(resource.patch(Some(b"\"first\""), body), Err(WhipError::StaleEtag));
}
