//! The room for a caller, as a runner names it.
//!
//! In: the response of `/start`. Out: the URL of the server and a token, or what is missing.

use crate::caller::target::started;
use crate::secret::Secret;

/// A room for a caller, with the token to join it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomInvite {
    /// The URL of the LiveKit server.
    pub url: String,
    pub token: Secret,
}

/// Returns the room from the response of `/start`.
///
/// # Errors
/// A sentence about what is missing.
pub fn started_room(response: &[u8]) -> Result<RoomInvite, String> {
    let value = started(response)?;
    let text = |names: [&str; 2]| {
        let mut texts = names.into_iter().filter_map(|name| value[name].as_str());
        texts.find(|text| !text.is_empty()).map(str::to_owned)
    };
    match (text(["url", "server_url"]), text(["token", "participant_token"])) {
        (Some(url), Some(token)) => Ok(RoomInvite {
            url,
            token: Secret::new(token),
        }),
        _ => Err("its answer to /start has no `url` and `token` of a room: does it serve `livekit`?".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_read_by_either_name() {
        let invite = |url: &str| {
            Ok(RoomInvite {
                url: url.into(),
                token: Secret::new("t"),
            })
        };
        assert_eq!(
            started_room(br#"{"url": "ws://a", "token": "t", "roomName": "r"}"#),
            invite("ws://a")
        );
        let front_end = br#"{"url": "", "server_url": "wss://b", "participant_token": "t"}"#;
        assert_eq!(started_room(front_end), invite("wss://b"));
        for answer in [&b"{}"[..], br#"{"url": "ws://a"}"#, br#"{"url": 1, "token": "t"}"#] {
            assert!(started_room(answer).is_err_and(|error| error.contains("does it serve `livekit`?")));
        }
        assert!(started_room(b"<html>").is_err_and(|error| error.contains("is not JSON")));
    }
}
