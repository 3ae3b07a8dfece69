//! SDP of WhatsApp calls. The provider's server is an ICE-lite peer that follows its documentation
//! to the letter.
//!
//! [`prepare_call`] prepares an offer like [`prepare_offer`] and sets the DTLS role: the server
//! offers `actpass` and expects this end to start the handshake, although an answerer may wait.
//! [`write_call_answer`] keeps only documented lines of an answer. Rejected: offers without
//! audio, and those without a SHA-256 fingerprint, which exchange keys in the SDP. Sources: the
//! provider's SDP samples, `docs/spec/whatsapp.md` 3, RFC 5763.

use super::client_stack::{ClientStack, DtlsRole};
use super::{PreparedOffer, SdpError, payload_type, prepare_offer, push_line, split_attribute, split_line};

/// Why the offer of a call cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    Sdp(SdpError),
    /// The number is configured to exchange keys in the SDP.
    NoFingerprint,
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CallError::Sdp(error) => error.fmt(f),
            CallError::NoFingerprint => f.write_str(
                "the offer has no SHA-256 fingerprint: media is secured with DTLS here, so set the number's \
                 `srtp_key_exchange_protocol` to DTLS",
            ),
        }
    }
}

/// Prepares the offer of a call.
///
/// # Errors
/// [`CallError`] names what was rejected and what is allowed.
pub fn prepare_call(sdp: &str) -> Result<PreparedOffer, CallError> {
    let mut prepared = prepare_offer(sdp).map_err(CallError::Sdp)?;
    let has_fingerprint = |line: &str| {
        let value = line.strip_prefix("a=fingerprint:");
        value
            .and_then(|value| value.get(.."sha-256 ".len()))
            .is_some_and(|algorithm| algorithm.eq_ignore_ascii_case("sha-256 "))
    };
    if !prepared.sdp.lines().any(has_fingerprint) {
        return Err(CallError::NoFingerprint);
    }
    let written = "\r\na=setup:actpass\r\n";
    if prepared.sdp.contains(written) {
        prepared.sdp = prepared.sdp.replace(written, "\r\na=setup:passive\r\n");
        prepared.dtls_role = DtlsRole::Client;
    }
    // The peer is the provider's server, whatever its profile.
    prepared.client_stack = ClientStack::Full;
    Ok(prepared)
}

/// An answer for the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAnswer {
    pub sdp: String,
    /// The DTMF payload type, if it was offered.
    pub dtmf_payload_type: Option<u8>,
}

/// Keeps the documented lines of an answer.
pub fn write_call_answer(answer: &str) -> CallAnswer {
    let opus = codec(answer, "opus/48000/2");
    let keys = codec(answer, "telephone-event/8000");
    let is_kept = |pt: Option<u8>| pt.is_some() && (pt == opus || pt == keys);
    let mut text = String::with_capacity(answer.len());
    for line in answer.lines() {
        let Some((kind, value)) = split_line(line) else {
            continue;
        };
        if kind == 'm' {
            let mut words = value.split(' ');
            let head: Vec<&str> = words.by_ref().take(3).collect();
            let mut formats = String::new();
            for format in words.filter(|format| is_kept(payload_type(format))) {
                formats.push(' ');
                formats.push_str(format);
            }
            push_line(&mut text, &["m=", &head.join(" "), &formats]);
        } else if kind != 'a' || is_kept_attribute(value, &is_kept) {
            push_line(&mut text, &[line]);
        }
    }
    CallAnswer {
        sdp: text,
        dtmf_payload_type: keys,
    }
}

fn is_kept_attribute(attribute: &str, is_kept: &dyn Fn(Option<u8>) -> bool) -> bool {
    let (name, value) = split_attribute(attribute);
    match name {
        "group" | "ice-ufrag" | "ice-pwd" | "fingerprint" | "setup" | "mid" | "sendrecv" | "rtcp-mux" | "candidate" => {
            true
        }
        "rtpmap" | "fmtp" => is_kept(payload_type(value)),
        "ssrc" => value.contains(" cname:"),
        _ => false,
    }
}

/// Returns the payload type of a codec.
fn codec(answer: &str, name: &str) -> Option<u8> {
    let maps = answer.lines().filter_map(|line| line.strip_prefix("a=rtpmap:"));
    maps.filter_map(|value| value.split_once(' '))
        .find(|(_, codec)| codec.eq_ignore_ascii_case(name))
        .and_then(|(pt, _)| payload_type(pt))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGING_OFFER: &str = include_str!("../../../../tests/data/sdp/whatsapp.offer.sdp");

    #[test]
    fn the_offers_dtls_role_is_set() {
        let prepared = prepare_call(MESSAGING_OFFER).expect("an offer of the documented shape");
        assert!(prepared.sdp.contains("\r\na=setup:passive\r\n") && !prepared.sdp.contains("actpass"));
        assert!(prepared.sdp.contains("\r\na=ice-lite\r\n") && prepared.sdp.contains("\r\na=mid:audio\r\n"));
        assert_eq!(prepared.candidates.len(), 2);
        assert_eq!(prepared.dtls_role, DtlsRole::Client);
        let active = MESSAGING_OFFER.replace("actpass", "active");
        assert_eq!(prepare_call(&active).expect("fit").dtls_role, DtlsRole::Server);
    }

    /// A number may be configured to exchange keys in the SDP, which is not supported.
    #[test]
    fn an_offer_without_a_fingerprint_is_refused_with_the_setting_to_change() {
        let lines = MESSAGING_OFFER
            .lines()
            .filter(|line| !line.starts_with("a=fingerprint"));
        let keys = lines.collect::<Vec<_>>().join("\r\n") + "\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:AAAA\r\n";
        let refused = prepare_call(&keys).expect_err("refused");
        assert!(refused.to_string().contains("srtp_key_exchange_protocol"), "{refused}");
        let sha1 = MESSAGING_OFFER.replace("sha-256", "sha-1");
        assert_eq!(prepare_call(&sha1), Err(CallError::NoFingerprint));
        let upper = MESSAGING_OFFER.replace("sha-256", "SHA-256");
        assert!(prepare_call(&upper).is_ok());
        assert_eq!(prepare_call("v=1"), Err(CallError::Sdp(SdpError::NotSdp)));
    }

    #[test]
    fn undocumented_lines_are_removed() {
        let answer = "v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE audio\r\na=msid-semantic: WMS x\r\n\
            m=audio 9 UDP/TLS/RTP/SAVPF 111 63 126\r\nc=IN IP4 0.0.0.0\r\na=rtcp:9 IN IP4 0.0.0.0\r\na=ice-ufrag:u\r\n\
            a=ice-pwd:p\r\na=ice-options:trickle\r\na=fingerprint:sha-256 AA\r\na=setup:active\r\na=mid:audio\r\n\
            a=extmap:4 urn:x\r\na=sendrecv\r\na=msid:a b\r\na=rtcp-mux\r\na=rtcp-rsize\r\na=rtpmap:111 opus/48000/2\r\n\
            a=rtcp-fb:111 transport-cc\r\na=fmtp:111 minptime=10\r\na=rtpmap:63 red/48000/2\r\na=fmtp:63 111/111\r\n\
            a=rtpmap:126 telephone-event/8000\r\na=ssrc:1 cname:c\r\na=ssrc:1 msid:a b\r\na=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n\
            a=end-of-candidates\r\n";
        let written = write_call_answer(answer);
        assert_eq!(written.dtmf_payload_type, Some(126));
        let expected = "v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE audio\r\n\
            m=audio 9 UDP/TLS/RTP/SAVPF 111 126\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:u\r\na=ice-pwd:p\r\n\
            a=fingerprint:sha-256 AA\r\na=setup:active\r\na=mid:audio\r\na=sendrecv\r\na=rtcp-mux\r\n\
            a=rtpmap:111 opus/48000/2\r\na=fmtp:111 minptime=10\r\na=rtpmap:126 telephone-event/8000\r\na=ssrc:1 cname:c\r\n\
            a=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n";
        assert_eq!(written.sdp, expected);
        assert_eq!(
            write_call_answer(&expected.replace("telephone-event", "x")).dtmf_payload_type,
            None
        );
    }
}
