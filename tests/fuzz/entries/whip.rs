//! Properties of the PATCH requests of a WHIP session, and of the requests and events of clients of
//! OpenAI's realtime calls.
//!
//! In: a line with a header, then the body. The header of a PATCH has the entity tags of
//! `If-Match`, and is empty for a missing one: a foreign tag changes nothing, a restart yields an
//! offer that the engine can parse, with the credentials of the fragment and no further candidates,
//! and a repeated restart is not a restart. That of a call is its type, or its key: an accepted
//! offer is no longer than one may be, a key is known again, and events are answered by one
//! message. Source: RFC 9725 section 4.3.

use edge_runner_proto::limits::{CANDIDATE_BYTES_MAX, CANDIDATES_MAX, MESSAGE_BYTES_MAX, OFFER_SDP_BYTES_MAX};
use edge_runner_proto::webrtc::sdp::{prepare_call, prepare_offer};
use edge_runner_proto::webrtc::whip::call::{CallsRequest, PresentedKey, client_secret, client_secret_reply};
use edge_runner_proto::webrtc::whip::events::RealtimeEvents;
use edge_runner_proto::webrtc::whip::fragment::{SdpFragment, credentials};
use edge_runner_proto::webrtc::whip::offer::{check, check_listener};
use edge_runner_proto::webrtc::whip::path::WhipEndpoint;
use edge_runner_proto::webrtc::whip::resource::{ResourcePatch, WhipResource};
use edge_runner_proto::webrtc::whip::{ResourceResponse, WhipError};
use serde_json::Value;

/// Events of an input.
const EVENTS_MAX: usize = 64;

const OFFER: &str = include_str!("../../data/sdp/chrome.offer.sdp");

fn answer(ufrag: &str) -> String {
    format!(
        "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=ice-ufrag:{ufrag}\r\na=ice-pwd:0123456789abcdefghijkl\r\n\
         a=candidate:1 1 udp 2130706175 192.0.2.10 7860 typ host\r\n"
    )
}

/// Splits an input into its header and its body.
fn parts(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

/// A body is applied once, by its credentials, or is rejected and changes nothing.
pub fn fragment(bytes: &[u8]) {
    let (tags, body) = parts(bytes);
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
    let ResourceResponse::Restarted { fragment, etag } =
        resource.handle_restart(restart, &answer("second"), None, None)
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

/// The body is an offer or a form, the request for a key, or events of a client, one per line.
pub fn realtime_calls(bytes: &[u8]) {
    let (header, body) = parts(bytes);
    let requests = [
        CallsRequest::from_sdp(header, body),
        CallsRequest::from_sdp_or_form(header, body),
    ];
    for CallsRequest { sdp, session } in requests.into_iter().flatten() {
        assert!(sdp.len() <= OFFER_SDP_BYTES_MAX);
        assert!(session.is_none_or(|session| session.is_object()));
        for endpoint in [WhipEndpoint::Whip, WhipEndpoint::Whep, WhipEndpoint::Calls] {
            let _ = check(endpoint, &sdp);
        }
        let _ = check_listener(&sdp);
        let is_usable = prepare_offer(&sdp).is_ok();
        assert!(prepare_call(&sdp).is_err() || is_usable, "a call has an offer");
    }
    keys(header, body);
    events(body);
}

fn keys(header: &[u8], body: &[u8]) {
    if let Some(key) = PresentedKey::from_request([header].into_iter(), true, None) {
        assert!(key.as_bytes().len() <= header.len());
        let _ = (key.is_client_secret(), key.session_id());
    }
    for has_bots in [false, true] {
        let Ok((settings, bot)) = client_secret(body, has_bots) else {
            continue;
        };
        assert!(has_bots || bot.is_none());
        let id = "056305c4-5f0e-4f3c-9d7e-6c1f0a2b3c4d";
        let reply: Value = serde_json::from_slice(&client_secret_reply(id, &settings, 0)).expect("JSON");
        let value = reply["value"].as_str().expect("a key");
        let bearer = format!("Bearer {value}");
        let key = PresentedKey::from_request([bearer.as_bytes()].into_iter(), false, None).expect("a key");
        assert!(key.is_client_secret());
        assert_eq!(key.session_id(), Some(id));
        if let Some(session) = settings.get("session") {
            assert_eq!(&reply["session"], session);
        }
    }
}

fn events(body: &[u8]) {
    let mut events = RealtimeEvents::default();
    let mut last = events.handle_open();
    for line in body.split(|byte| *byte == b'\n').take(EVENTS_MAX) {
        let Some(line) = std::str::from_utf8(line)
            .ok()
            .filter(|line| line.len() <= MESSAGE_BYTES_MAX)
        else {
            continue;
        };
        let Some(answer) = events.handle_message(line) else {
            continue;
        };
        assert!(answer.len() <= MESSAGE_BYTES_MAX);
        let (answered, event): (Value, Value) = (
            serde_json::from_str(&answer).expect("JSON"),
            serde_json::from_str(line).expect("it was read"),
        );
        assert_eq!(
            (&answered["type"], &event["type"]),
            (&"session.updated".into(), &"session.update".into())
        );
        assert_ne!(last, answer, "each has its own id");
        last = answer;
    }
}
