//! Which offers an endpoint accepts.
//!
//! In: an offer. Out: `Ok`, or [`WhipError::UnsupportedOffer`], which becomes 422. Unreadable
//! offers pass, because the SDP parser has better errors. Video is accepted and declined in the
//! answer, since broadcasters always offer it. Source: RFC 9725 sections 4.2 and 4.4.

use super::WhipError;
use super::path::WhipEndpoint;

/// The direction of a section that names none.
const BOTH_WAYS: &str = "sendrecv";

/// The properties of a section.
#[derive(Default)]
struct OfferSection<'a> {
    is_audio: bool,
    has_port_0: bool,
    /// Port 0 marks a section without its own address, RFC 9143 section 6.
    is_bundle_only: bool,
    direction: Option<&'a str>,
    muxes: bool,
}

/// Checks an offer.
///
/// # Errors
/// [`WhipError::UnsupportedOffer`].
pub fn check(via: WhipEndpoint, sdp: &str) -> Result<(), WhipError> {
    match (via, audio_direction(sdp)?) {
        (_, "inactive") => Err(WhipError::UnsupportedOffer(
            "the audio section is `inactive`; offer `sendrecv`, or one direction of it",
        )),
        (WhipEndpoint::Whip, "recvonly") => Err(WhipError::UnsupportedOffer(
            "the audio section is `recvonly`; who only listens posts to /whep",
        )),
        _ => Ok(()),
    }
}

/// Checks the offer of a listener to a call.
///
/// # Errors
/// [`WhipError::UnsupportedOffer`].
pub fn check_listener(sdp: &str) -> Result<(), WhipError> {
    match audio_direction(sdp)? {
        "recvonly" | "sendrecv" => Ok(()),
        _ => Err(WhipError::UnsupportedOffer(
            "the audio section takes no sound, and a listener does; offer `recvonly`",
        )),
    }
}

/// Returns the direction of the one audio section; that of an unreadable offer is `sendrecv`.
fn audio_direction(sdp: &str) -> Result<&str, WhipError> {
    let mut session = None;
    let mut sections: Vec<OfferSection<'_>> = Vec::new();
    for line in sdp.lines().map(str::trim_end) {
        if let Some(media) = line.strip_prefix("m=") {
            let mut words = media.split_ascii_whitespace();
            sections.push(OfferSection {
                is_audio: words.next() == Some("audio"),
                has_port_0: words.next() == Some("0"),
                ..OfferSection::default()
            });
        }
        let Some(attribute) = line.strip_prefix("a=") else {
            continue;
        };
        let direction = matches!(attribute, "sendrecv" | "sendonly" | "recvonly" | "inactive").then_some(attribute);
        match sections.last_mut() {
            None => session = session.or(direction),
            Some(section) => {
                section.direction = section.direction.or(direction);
                section.is_bundle_only |= attribute == "bundle-only";
                section.muxes |= matches!(attribute, "rtcp-mux" | "rtcp-mux-only");
            }
        }
    }
    if sections.is_empty() {
        return Ok(BOTH_WAYS);
    }
    let mut audio = sections
        .iter()
        .filter(|section| section.is_audio && (!section.has_port_0 || section.is_bundle_only));
    let Some(only) = audio.next() else {
        return Err(WhipError::UnsupportedOffer(
            "the offer has no audio section, and a talk needs one",
        ));
    };
    if audio.next().is_some() {
        return Err(WhipError::UnsupportedOffer(
            "the offer has two audio sections; a talk has one",
        ));
    }
    if !only.muxes {
        return Err(WhipError::UnsupportedOffer(
            "the audio section has no `a=rtcp-mux`; RTCP has no port of its own here",
        ));
    }
    Ok(only.direction.or(session).unwrap_or(BOTH_WAYS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audio(lines: &str) -> String {
        format!("v=0\r\ns=-\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n{lines}")
    }

    fn words(via: WhipEndpoint, sdp: &str) -> Option<String> {
        check(via, sdp).err().map(|refusal| refusal.to_string())
    }

    #[test]
    fn each_endpoint_has_its_directions() {
        for via in [WhipEndpoint::Whip, WhipEndpoint::Whep, WhipEndpoint::Calls] {
            for direction in ["sendrecv", "sendonly", "recvonly", "inactive"] {
                let taken = check(via, &audio(&format!("a=rtcp-mux\r\na={direction}\r\n"))).is_ok();
                let wanted = direction != "inactive" && !(via == WhipEndpoint::Whip && direction == "recvonly");
                assert_eq!(taken, wanted, "{via:?} {direction}");
            }
        }
        // A section without a direction has that of the session, or `sendrecv`.
        let inherited = audio("a=rtcp-mux\n").replace("s=-\r\n", "s=-\na=recvonly\n");
        assert!(words(WhipEndpoint::Whip, &inherited).is_some_and(|why| why.contains("/whep")));
        assert_eq!(check(WhipEndpoint::Whip, &audio("a=rtcp-mux\n")), Ok(()));
    }

    /// A listener takes sound, and what it would send goes nowhere.
    #[test]
    fn a_listener_takes_sound() {
        for (direction, is_taken) in [
            ("sendrecv", true),
            ("recvonly", true),
            ("sendonly", false),
            ("inactive", false),
        ] {
            let offer = audio(&format!("a=rtcp-mux\r\na={direction}\r\n"));
            assert_eq!(check_listener(&offer).is_ok(), is_taken, "{direction}");
        }
        assert!(check_listener(&audio("a=recvonly\r\n")).is_err_and(|why| why.to_string().contains("rtcp-mux")));
    }

    #[test]
    fn one_audio_section_with_rtcp_mux_is_required() {
        let mux = audio("a=rtcp-mux\r\n");
        let video = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=sendonly\r\n";
        assert_eq!(check(WhipEndpoint::Whip, &format!("{mux}{video}")), Ok(()));
        assert!(words(WhipEndpoint::Whip, &audio("")).is_some_and(|why| why.contains("rtcp-mux")));
        let second = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=rtcp-mux\r\n";
        assert!(words(WhipEndpoint::Whip, &format!("{mux}{second}")).is_some_and(|why| why.contains("two")));
        assert_eq!(
            check(WhipEndpoint::Whip, &format!("{mux}{}", second.replace(" 9 ", " 0 "))),
            Ok(())
        );
        assert!(words(WhipEndpoint::Whip, &format!("v=0\n{video}")).is_some_and(|why| why.contains("no audio")));
        assert!(words(WhipEndpoint::Whip, &mux.replace(" 9 ", " 0 ")).is_some_and(|why| why.contains("no audio")));
    }

    /// GStreamer's `whepclientsrc` offers audio behind video, in the bundle alone.
    #[test]
    fn audio_may_have_no_port_of_its_own() {
        let audio = audio("a=bundle-only\r\na=rtcp-mux\r\na=recvonly\r\n").replace(" 9 ", " 0 ");
        assert_eq!(check(WhipEndpoint::Whep, &audio), Ok(()));
    }

    /// The SDP parser reports unreadable offers.
    #[test]
    fn unreadable_offers_pass() {
        for text in ["", "v=0", "{}", "a=inactive"] {
            assert_eq!(check(WhipEndpoint::Whip, text), Ok(()));
        }
    }
}
