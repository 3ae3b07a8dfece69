//! Checks access to the LiveKit server with a request that only reads.
//!
//! In: the configuration, the time; later the status and the body of a response. Out: a request
//! that creates no room, and findings. No text of a response is repeated. Source:
//! `docs/spec/livekit.md`.

use super::token::{TokenParams, agent_identity, mint};
use super::{agent_name, http_base, missing_variables};
use crate::config::Config;
use crate::doctor::Finding;
use crate::limits::ROOM_CLOCK_LEEWAY;
use crate::options::values::all_names;
use crate::server::rest::{RestMethod, RestRequest, bearer};
use crate::transport::Transport;

/// Returns the name of the check.
pub fn what() -> &'static str {
    Transport::Mediaroom.common_name()
}

/// Returns the request that asks whether the server admits the bot; `None` without its settings.
pub fn request(config: &Config, now_s: u64) -> Option<RestRequest> {
    let media = &config.mediaroom;
    let token = mint(
        &TokenParams {
            key: media.key.as_deref()?,
            secret: media.secret.as_ref()?,
            identity: &agent_identity("doctor"),
            room: media.room_name.as_deref().unwrap_or("room-doctor"),
            agent: Some(agent_name(media)),
        },
        now_s,
    );
    Some(RestRequest {
        method: RestMethod::Get,
        url: format!("{}/rtc/validate?protocol=15", http_base(media.url.as_deref()?)),
        authorization: Some(bearer(&token)),
        body: None,
    })
}

/// Evaluates the response.
pub fn answer(status: u16, body: &[u8]) -> Finding {
    let what = what();
    match status {
        200 if body.trim_ascii() == b"success" => Finding::ok(what, "the server accepts the access token"),
        // Any web server answers something.
        200..=299 => Finding::warning(
            what,
            format!("status {status} without the response of LiveKit; check MEDIAROOM_URL"),
        ),
        401 => Finding::error(
            what,
            format!(
                "the server rejects the access token (401): MEDIAROOM_API_KEY or MEDIAROOM_API_SECRET is wrong, or this \
                 machine's clock is off by more than {} s",
                ROOM_CLOCK_LEEWAY.as_secs()
            ),
        ),
        404 => Finding::error(
            what,
            "no LiveKit server at this URL (404): MEDIAROOM_URL is wrong; or the server creates no rooms by itself, and \
             MEDIAROOM_ROOM_NAME must name an existing room",
        ),
        300..=399 => Finding::error(what, format!("status {status}, a redirect: MEDIAROOM_URL is wrong")),
        _ => Finding::unverified(what, status, "the key"),
    }
}

/// Returns the finding on missing variables; `None` if the server is not configured.
pub fn missing_settings(config: &Config) -> Option<Finding> {
    let missing = missing_variables(&config.mediaroom);
    let asked = config.transport == Some(Transport::Mediaroom) || missing.len() < 3;
    (asked && !missing.is_empty()).then(|| {
        let names: Vec<String> = missing.into_iter().map(all_names).collect();
        let text = format!("needed to join rooms, but not set: {}", names.join(", "));
        Finding::missing(config, Transport::Mediaroom, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingLevel;
    use crate::livekit::config::Mediaroom;
    use crate::secret::Secret;

    const NOW_S: u64 = 1_795_252_753;

    fn config() -> Config {
        Config {
            mediaroom: Mediaroom {
                url: Some("wss://rooms.example/a".into()),
                key: Some("m-key".into()),
                secret: Some(Secret::new("m-secret")),
                ..Mediaroom::default()
            },
            ..Config::default()
        }
    }

    /// The request has no effect: GET, without a body.
    #[test]
    fn only_reads_from_the_server() {
        let request = request(&config(), NOW_S).expect("a request");
        let url = "https://rooms.example/a/rtc/validate?protocol=15";
        assert_eq!((request.method, request.url.as_str()), (RestMethod::Get, url));
        assert!(request.body.is_none());
        let authorization = request.authorization.expect("a credential");
        assert!(authorization.expose().starts_with("Bearer eyJ"));
    }

    #[test]
    fn sends_no_request_without_its_variables() {
        assert_eq!(request(&Config::default(), NOW_S), None);
        let mut half = config();
        half.mediaroom.secret = None;
        assert_eq!(request(&half, NOW_S), None);
    }

    #[test]
    fn evaluates_responses() {
        for (status, level) in [
            (200, FindingLevel::Ok),
            (204, FindingLevel::Warning),
            (301, FindingLevel::Error),
            (400, FindingLevel::Warning),
            (401, FindingLevel::Error),
            (404, FindingLevel::Error),
            (503, FindingLevel::Warning),
        ] {
            assert_eq!(answer(status, b"success\n").level, level, "{status}");
        }
        for body in [&b"<html>"[..], b"", b"[]", b"{}"] {
            assert_eq!(answer(200, body).level, FindingLevel::Warning);
        }
        let refused = answer(401, b"canary").text;
        assert!(refused.contains("clock") && !refused.contains("canary"), "{refused}");
    }

    /// A partial configuration is always reported, an absent one only for the selected transport.
    #[test]
    fn names_missing_configuration() {
        assert_eq!(missing_settings(&Config::default()), None);
        assert_eq!(missing_settings(&config()), None);
        let only = |transport| Config {
            transport: Some(transport),
            ..Config::default()
        };
        let media = missing_settings(&only(Transport::Mediaroom)).expect("a finding");
        assert_eq!((media.level, media.what), (FindingLevel::Error, "livekit"));
        assert!(
            media
                .text
                .ends_with("MEDIAROOM_API_KEY (or LIVEKIT_API_KEY), MEDIAROOM_API_SECRET (or LIVEKIT_API_SECRET)"),
            "{}",
            media.text
        );
        assert_eq!(missing_settings(&only(Transport::WebRtc)), None);
        let mut half = Config::default();
        half.mediaroom.key = Some("m-key".into());
        let half = missing_settings(&half).expect("a finding");
        assert_eq!((half.level, half.what), (FindingLevel::Warning, "livekit"));
        assert!(
            half.text
                .ends_with("MEDIAROOM_URL (or LIVEKIT_URL), MEDIAROOM_API_SECRET (or LIVEKIT_API_SECRET)"),
            "{}",
            half.text
        );
    }
}
