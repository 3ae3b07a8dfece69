//! Checks access to Daily with requests that only read.
//!
//! In: the configuration; later the status of a response, and whether its body has the expected
//! form. Out: requests that create no room, and findings. No text of a response is repeated.
//! Source: `docs/spec/daily.md`.

use super::room_name;
use crate::config::Config;
use crate::doctor::Finding;
use crate::options::values::all_names;
use crate::server::rest::{RestMethod, RestRequest, bearer, encode_path_segment};
use crate::transport::Transport;

/// A request to Daily.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether Daily accepts the key.
    Key,
    /// Whether the configured room belongs to the account.
    Room,
}

impl Question {
    pub const ALL: [Question; 2] = [Question::Key, Question::Room];

    /// Returns the name of the check.
    pub fn what(self) -> &'static str {
        match self {
            Question::Key => Transport::Videoroom.common_name(),
            Question::Room => "video room",
        }
    }

    /// Returns the request of the question; `None` if the configuration does not need it.
    pub fn request(self, config: &Config) -> Option<RestRequest> {
        let video = &config.videoroom;
        let key = video.key.as_ref()?;
        let url = match self {
            Question::Key => format!("{}/rooms?limit=1", video.url),
            Question::Room => {
                let room = video.room_url.as_deref().or(video.sample_room_url.as_deref())?;
                format!("{}/rooms/{}", video.url, encode_path_segment(room_name(room)?))
            }
        };
        Some(RestRequest {
            method: RestMethod::Get,
            url,
            authorization: Some(bearer(key)),
            body: None,
        })
    }

    /// Evaluates a response; `None` if another question covers it.
    pub fn answer(self, status: u16, body: &[u8]) -> Option<Finding> {
        match self {
            Question::Key => Some(key(self.what(), status, has(body, "data"))),
            Question::Room => room(self.what(), status, has(body, "name")),
        }
    }
}

/// Returns whether a response is a JSON object with this member, since other web servers respond
/// too.
fn has(body: &[u8], member: &str) -> bool {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    json.is_some_and(|json| json.get(member).is_some())
}

fn key(what: &'static str, status: u16, reads: bool) -> Finding {
    match status {
        200..=299 if reads => Finding::ok(what, "Daily accepts the key"),
        200..=299 => not_the_provider(what, status),
        // A malformed key is 400 there, a wrong one 401.
        400 | 401 => Finding::error(
            what,
            format!("Daily rejects the key ({status}): VIDEOROOM_API_KEY is wrong; no rooms can be created"),
        ),
        403 => Finding::warning(
            what,
            "this key cannot list rooms (403): it has few permissions, or is wrong",
        ),
        404 => Finding::error(what, "no Daily API at this URL (404): VIDEOROOM_API_URL is wrong"),
        300..=399 => Finding::error(what, format!("status {status}, a redirect: VIDEOROOM_API_URL is wrong")),
        _ => Finding::unverified(what, status, "the key"),
    }
}

fn not_the_provider(what: &'static str, status: u16) -> Finding {
    Finding::warning(
        what,
        format!("status {status} without the response of Daily; check VIDEOROOM_API_URL"),
    )
}

fn room(what: &'static str, status: u16, reads: bool) -> Option<Finding> {
    match status {
        200..=299 if !reads => Some(not_the_provider(what, status)),
        200..=299 => Some(Finding::ok(what, "the configured room exists")),
        404 => Some(Finding::error(
            what,
            "the account has no such room (404): VIDEOROOM_ROOM_URL or VIDEOROOM_SAMPLE_ROOM_URL is wrong, or the room \
             has expired",
        )),
        _ => None,
    }
}

/// Returns findings on missing variables and names, and on webhooks without a secret. Empty if
/// Daily is not configured.
pub fn missing_settings(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let video = &config.videoroom;
    let asked = config.transport == Some(Transport::Videoroom)
        || video.room_url.is_some()
        || video.sample_room_url.is_some()
        || video.dialin_hmac.is_some();
    if asked && video.key.is_none() {
        let name = all_names("VIDEOROOM_API_KEY");
        let text = format!("{name} is not set: no rooms and tokens can be created");
        findings.push(Finding::missing(config, Transport::Videoroom, text));
    }
    if config.creates_rooms_for_pages() {
        findings.push(Finding::warning(
            "origins",
            "neither --allowed-origins nor --api-key is given: any web page in a browser that reaches the runner can create rooms, \
             which cost money, and read their tokens",
        ));
    }
    if video.dialin && !config.has_public_name() {
        findings.push(Finding::warning(
            "dial-in",
            "no public host name is set: webhook requests to one are refused; set it with --proxy or --allowed-hosts",
        ));
    }
    if video.dialin && video.dialin_hmac.is_none() {
        findings.push(Finding::warning(
            "dial-in",
            "VIDEOROOM_DIALIN_HMAC is not set: anyone who knows the URL of the webhook can start bots",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daily::config::Videoroom;
    use crate::doctor::FindingLevel;
    use crate::secret::{Secret, SecretBytes};

    fn config() -> Config {
        Config {
            allowed_origins: vec!["https://app.example".into()],
            videoroom: Videoroom {
                key: Some(Secret::new("v-key")),
                ..Videoroom::default()
            },
            ..Config::default()
        }
    }

    /// The requests have no effect: GET, without a body.
    #[test]
    fn only_reads() {
        let mut config = config();
        config.videoroom.sample_room_url = Some("https://example.daily.co/My room/".into());
        for (question, url) in [
            (Question::Key, "https://api.daily.co/v1/rooms?limit=1"),
            (Question::Room, "https://api.daily.co/v1/rooms/My%20room"),
        ] {
            let request = question.request(&config).expect("a request");
            assert_eq!((request.method, request.url.as_str()), (RestMethod::Get, url));
            assert!(request.body.is_none());
            let authorization = request.authorization.expect("a credential");
            assert_eq!(authorization.expose(), "Bearer v-key");
        }
        config.videoroom.room_url = Some("https://example.daily.co/own".into());
        let own = Question::Room.request(&config).expect("a request");
        assert!(
            own.url.ends_with("/rooms/own"),
            "the room of every session goes before the sample"
        );
    }

    #[test]
    fn sends_no_request_without_its_variables() {
        for question in Question::ALL {
            assert_eq!(question.request(&Config::default()), None);
        }
    }

    #[test]
    fn evaluates_responses() {
        for (question, status, verdict) in [
            (Question::Key, 200, Some(FindingLevel::Ok)),
            (Question::Key, 302, Some(FindingLevel::Error)),
            (Question::Key, 400, Some(FindingLevel::Error)),
            (Question::Key, 401, Some(FindingLevel::Error)),
            (Question::Key, 403, Some(FindingLevel::Warning)),
            (Question::Key, 404, Some(FindingLevel::Error)),
            (Question::Key, 418, Some(FindingLevel::Warning)),
            (Question::Key, 429, Some(FindingLevel::Warning)),
            (Question::Key, 503, Some(FindingLevel::Warning)),
            (Question::Room, 200, Some(FindingLevel::Ok)),
            (Question::Room, 404, Some(FindingLevel::Error)),
            (Question::Room, 401, None),
            (Question::Room, 503, None),
        ] {
            let body: &[u8] = match question {
                Question::Key => br#"{"total_count":0,"data":[]}"#,
                Question::Room => br#"{"name":"r"}"#,
            };
            let finding = question.answer(status, body);
            assert_eq!(finding.map(|finding| finding.level), verdict, "{question:?} {status}");
        }
        for question in Question::ALL {
            for body in [&b"<html>"[..], b"", b"[]", b"{}"] {
                let page = question.answer(200, body).expect("words");
                assert_eq!(page.level, FindingLevel::Warning);
            }
        }
    }

    /// A partial configuration is always reported, an absent one only for the selected transport.
    #[test]
    fn names_missing_configuration() {
        let findings = |config: &Config| -> Vec<(FindingLevel, &str, String)> {
            missing_settings(config)
                .into_iter()
                .map(|finding| (finding.level, finding.what, finding.text))
                .collect()
        };
        assert_eq!(findings(&Config::default()), []);
        assert_eq!(findings(&config()), []);
        let only = |transport| Config {
            transport: Some(transport),
            ..Config::default()
        };
        let video = findings(&only(Transport::Videoroom));
        assert!(
            matches!(&video[..], [(FindingLevel::Error, "daily", text)] if text.contains("VIDEOROOM_API_KEY (or DAILY_API_KEY)"))
        );
        assert_eq!(findings(&only(Transport::WebRtc)), []);

        let mut half = Config::default();
        half.videoroom.room_url = Some("https://example.daily.co/room".into());
        let half_findings = findings(&half);
        assert!(
            matches!(&half_findings[..], [(FindingLevel::Warning, "daily", _)]),
            "{half_findings:?}"
        );
        let open = Config {
            allowed_origins: Vec::new(),
            ..config()
        };
        assert!(
            matches!(&findings(&open)[..], [(FindingLevel::Warning, "origins", text)] if text.contains("--allowed-origins"))
        );
        for closed in [
            Config {
                api_key: Some(Secret::new("key")),
                ..open.clone()
            },
            Config {
                transport: Some(Transport::WebRtc),
                ..open.clone()
            },
            Config {
                bot_enters_rooms: false,
                ..open.clone()
            },
        ] {
            assert_eq!(findings(&closed), []);
        }
        let mut dialin = config();
        dialin.videoroom.dialin = true;
        for names in [vec![], vec!["board".into(), "board.local".into()]] {
            dialin.host_names = names;
            let found = findings(&dialin);
            assert!(
                matches!(&found[..], [(_, "dial-in", text), (_, "dial-in", _)] if text.contains("--proxy")),
                "{found:?}"
            );
        }
        dialin.host_names.push("bots.example.net".into());
        assert_eq!(findings(&dialin).len(), 1);
        dialin.host_names.clear();
        dialin.proxy = Some("bots.example.net".into());
        assert!(matches!(
            &findings(&dialin)[..],
            [(FindingLevel::Warning, "dial-in", _)]
        ));
        dialin.videoroom.dialin_hmac = Some(SecretBytes::new(*b"key"));
        assert_eq!(findings(&dialin), []);
    }
}
