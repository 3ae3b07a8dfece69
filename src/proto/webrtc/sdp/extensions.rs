//! Header extensions of RTP: their URIs, and the ids that an SDP gives them. Source: RFC 8285.

/// The header extension that names the section of a packet, RFC 9143 section 15.
pub const MID_URI: &str = "urn:ietf:params:rtp-hdrext:sdes:mid";
/// The header extension with the level of a packet, RFC 6464.
pub const AUDIO_LEVEL_URI: &str = "urn:ietf:params:rtp-hdrext:ssrc-audio-level";
/// The largest id of a header extension that str0m supports.
const EXTENSION_ID_MAX: u8 = 16;

/// Returns the id of `ID[/DIRECTION] URI [ATTRIBUTES]` if it is of this extension.
pub fn extension_id(id: &str, rest: &str, uri: &str) -> Option<u8> {
    let id = id.split('/').next()?.parse().ok()?;
    let is_wanted = rest.split(' ').next() == Some(uri) && (1..=EXTENSION_ID_MAX).contains(&id);
    is_wanted.then_some(id)
}
