//! Whether rooms can be had: the provider of video rooms and the media-room server are each asked for something to read.
//!
//! In: the configuration, the time; later the status of an answer, and whether it reads as theirs. Out: requests that make no
//! room, and findings. No word of an answer is repeated. Sources: the rooms fact sheet, A1 and B1 to B2.

use super::Finding;
use crate::config::{Config, Transport};
use crate::daily::room_name;
use crate::limits::ROOM_CLOCK_LEEWAY;
use crate::livekit::token::{TokenParams, agent_identity, mint};
use crate::livekit::{http_base, missing_variables};
use crate::server::rest::{Method, Request, bearer, segment};

/// Something that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the provider of video rooms takes the key.
    Key,
    /// Whether the room that is configured is one of the account.
    Room,
    /// Whether the media-room server lets the bot in.
    Server,
}

impl Question {
    pub const ALL: [Question; 3] = [Question::Key, Question::Room, Question::Server];

    /// Returns the name of the check.
    pub fn what(self) -> &'static str {
        match self {
            Question::Key => Transport::Videoroom.name(),
            Question::Room => "video room",
            Question::Server => Transport::Mediaroom.name(),
        }
    }

    /// Returns the request by which it is asked; nothing where the configuration has nothing to ask for.
    pub fn request(self, config: &Config, now_s: u64) -> Option<Request> {
        let video = &config.videoroom;
        let (url, authorization) = match self {
            Question::Key => (format!("{}/rooms?limit=1", video.url), bearer(video.key.as_ref()?)),
            Question::Room => {
                let key = video.key.as_ref()?;
                let room = video.room_url.as_deref().or(video.sample_room_url.as_deref())?;
                (
                    format!("{}/rooms/{}", video.url, segment(room_name(room)?)),
                    bearer(key),
                )
            }
            Question::Server => {
                let media = &config.mediaroom;
                let token = mint(
                    &TokenParams {
                        key: media.key.as_deref()?,
                        secret: media.secret.as_ref()?,
                        identity: &agent_identity("doctor"),
                        room: media.room_name.as_deref().unwrap_or("room-doctor"),
                        agent: true,
                    },
                    now_s,
                );
                (
                    format!("{}/rtc/validate?protocol=15", http_base(media.url.as_deref()?)),
                    bearer(&token),
                )
            }
        };
        Some(Request {
            method: Method::Get,
            url,
            authorization: Some(authorization),
            body: None,
        })
    }

    /// Judges an answer; nothing where another question's answer says it.
    pub fn answer(self, status: u16, body: &[u8]) -> Option<Finding> {
        match self {
            Question::Key => Some(key(self.what(), status, has(body, "data"))),
            Question::Room => room(self.what(), status, has(body, "name")),
            Question::Server => Some(server(self.what(), status, body)),
        }
    }
}

/// Tells whether an answer is a JSON object with this member: any web server answers something.
fn has(body: &[u8], member: &str) -> bool {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    json.is_some_and(|json| json.get(member).is_some())
}

fn key(what: &'static str, status: u16, reads: bool) -> Finding {
    match status {
        200..=299 if reads => Finding::good(what, "the provider takes the key"),
        200..=299 => not_the_provider(what, status),
        // A malformed key is 400 there, a wrong one 401.
        400 | 401 => Finding::broken(
            what,
            format!("the provider refuses the key ({status}): VIDEOROOM_API_KEY is wrong; no room is made"),
        ),
        403 => Finding::doubtful(
            what,
            "the provider does not let this key list rooms (403): a key with few rights, or a wrong one",
        ),
        404 => Finding::broken(
            what,
            "no API of rooms is there (404): the base in VIDEOROOM_API_URL is wrong",
        ),
        300..=399 => Finding::broken(
            what,
            format!("status {status}, a redirect: the base in VIDEOROOM_API_URL is wrong"),
        ),
        _ => stumbles(what, status, "the key"),
    }
}

fn not_the_provider(what: &'static str, status: u16) -> Finding {
    Finding::doubtful(
        what,
        format!("status {status}, and not as the provider answers; is the base in VIDEOROOM_API_URL right?"),
    )
}

fn room(what: &'static str, status: u16, reads: bool) -> Option<Finding> {
    match status {
        200..=299 if !reads => Some(not_the_provider(what, status)),
        200..=299 => Some(Finding::good(what, "the configured room is there")),
        404 => Some(Finding::broken(
            what,
            "the account has no such room (404): VIDEOROOM_ROOM_URL or VIDEOROOM_SAMPLE_ROOM_URL is wrong, or the room is \
             past its end",
        )),
        _ => None,
    }
}

fn server(what: &'static str, status: u16, body: &[u8]) -> Finding {
    match status {
        200 if body.trim_ascii() == b"success" => Finding::good(what, "the server lets the bot in"),
        // Any web server answers something.
        200..=299 => Finding::doubtful(
            what,
            format!("status {status}, and not as a media-room server answers; is MEDIAROOM_URL its URL?"),
        ),
        401 => Finding::broken(
            what,
            format!(
                "the server refuses the access token (401): MEDIAROOM_API_KEY or MEDIAROOM_API_SECRET is wrong, or this \
                 machine's clock is off by more than {} s",
                ROOM_CLOCK_LEEWAY.as_secs()
            ),
        ),
        404 => Finding::broken(
            what,
            "no media-room server is there (404): MEDIAROOM_URL is wrong; or the server makes no room by itself, and \
             MEDIAROOM_ROOM_NAME has to name one of its rooms",
        ),
        300..=399 => Finding::broken(what, format!("status {status}, a redirect: MEDIAROOM_URL is wrong")),
        _ => stumbles(what, status, "the key"),
    }
}

fn stumbles(what: &'static str, status: u16, of: &str) -> Finding {
    match status {
        429 | 500..=599 => Finding::doubtful(
            what,
            format!("it stumbles (status {status}) and does not say whether it takes {of}; ask again in a while"),
        ),
        _ => Finding::doubtful(what, format!("status {status}, which says nothing of {of}")),
    }
}

/// Says what does not work for want of a variable or of a name, and what stands open. Nothing where nobody asked for rooms.
pub fn wanting(config: &Config) -> Vec<Finding> {
    let finding = |transport: Transport, words: String| match config.transport == Some(transport) {
        true => Finding::broken(transport.name(), words),
        false => Finding::doubtful(transport.name(), words),
    };
    let mut findings = Vec::new();
    let video = &config.videoroom;
    let asked = config.transport == Some(Transport::Videoroom)
        || video.room_url.is_some()
        || video.sample_room_url.is_some()
        || video.dialin_hmac.is_some();
    if asked && video.key.is_none() {
        let words = "VIDEOROOM_API_KEY is not set: no room and no token can be made";
        findings.push(finding(Transport::Videoroom, words.into()));
    }
    if config.gives_rooms_to_pages() {
        findings.push(Finding::doubtful(
            "origins",
            "neither --allowed-origins nor --api-key is given: any page in a browser that reaches the runner can make rooms, which \
             cost money, and reads their tokens",
        ));
    }
    if video.dialin && !config.has_public_name() {
        findings.push(Finding::doubtful(
            "dial-in",
            "no public name is known: a webhook that comes under one is refused; give it in --proxy or --allowed-hosts",
        ));
    }
    if video.dialin && video.dialin_hmac.is_none() {
        findings.push(Finding::doubtful(
            "dial-in",
            "VIDEOROOM_DIALIN_HMAC is not set: whoever finds the webhook can start bots",
        ));
    }
    let missing = missing_variables(&config.mediaroom);
    let asked = config.transport == Some(Transport::Mediaroom) || missing.len() < 3;
    if asked && !missing.is_empty() {
        let words = format!("not set, and needed to join rooms: {}", missing.join(", "));
        findings.push(finding(Transport::Mediaroom, words));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mediaroom, Secret, SecretBytes, Videoroom};
    use crate::doctor::Verdict;

    const NOW_S: u64 = 1_795_252_753;

    fn config() -> Config {
        Config {
            allowed_origins: vec!["https://app.example".into()],
            videoroom: Videoroom {
                key: Some(Secret::new("v-key")),
                ..Videoroom::default()
            },
            mediaroom: Mediaroom {
                url: Some("wss://rooms.example/a".into()),
                key: Some("m-key".into()),
                secret: Some(Secret::new("m-secret")),
                room_name: None,
            },
            ..Config::default()
        }
    }

    /// Reading costs nothing: GET, and no body.
    #[test]
    fn both_are_asked_for_something_to_read() {
        let mut config = config();
        config.videoroom.sample_room_url = Some("https://example.daily.co/My room/".into());
        for (question, url) in [
            (Question::Key, "https://api.daily.co/v1/rooms?limit=1"),
            (Question::Room, "https://api.daily.co/v1/rooms/My%20room"),
            (Question::Server, "https://rooms.example/a/rtc/validate?protocol=15"),
        ] {
            let request = question.request(&config, NOW_S).expect("a request");
            assert_eq!((request.method, request.url.as_str()), (Method::Get, url));
            assert!(request.body.is_none());
            let authorization = request.authorization.expect("a credential");
            match question {
                Question::Server => assert!(authorization.expose().starts_with("Bearer eyJ")),
                _ => assert_eq!(authorization.expose(), "Bearer v-key"),
            }
        }
        config.videoroom.room_url = Some("https://example.daily.co/own".into());
        let own = Question::Room.request(&config, NOW_S).expect("a request");
        assert!(
            own.url.ends_with("/rooms/own"),
            "the room of every session goes before the sample"
        );
    }

    #[test]
    fn nobody_is_asked_without_the_variables_for_it() {
        for question in Question::ALL {
            assert_eq!(question.request(&Config::default(), NOW_S), None);
        }
        let half = Config {
            mediaroom: Mediaroom {
                secret: None,
                ..config().mediaroom
            },
            ..Config::default()
        };
        assert_eq!(Question::Server.request(&half, NOW_S), None);
    }

    #[test]
    fn answers_are_judged() {
        for (question, status, verdict) in [
            (Question::Key, 200, Some(Verdict::Good)),
            (Question::Key, 302, Some(Verdict::Broken)),
            (Question::Key, 400, Some(Verdict::Broken)),
            (Question::Key, 401, Some(Verdict::Broken)),
            (Question::Key, 403, Some(Verdict::Doubtful)),
            (Question::Key, 404, Some(Verdict::Broken)),
            (Question::Key, 418, Some(Verdict::Doubtful)),
            (Question::Key, 429, Some(Verdict::Doubtful)),
            (Question::Key, 503, Some(Verdict::Doubtful)),
            (Question::Room, 200, Some(Verdict::Good)),
            (Question::Room, 404, Some(Verdict::Broken)),
            (Question::Room, 401, None),
            (Question::Room, 503, None),
            (Question::Server, 200, Some(Verdict::Good)),
            (Question::Server, 204, Some(Verdict::Doubtful)),
            (Question::Server, 301, Some(Verdict::Broken)),
            (Question::Server, 400, Some(Verdict::Doubtful)),
            (Question::Server, 401, Some(Verdict::Broken)),
            (Question::Server, 404, Some(Verdict::Broken)),
            (Question::Server, 503, Some(Verdict::Doubtful)),
        ] {
            let body: &[u8] = match question {
                Question::Key => br#"{"total_count":0,"data":[]}"#,
                Question::Room => br#"{"name":"r"}"#,
                Question::Server => b"success\n",
            };
            let finding = question.answer(status, body);
            assert_eq!(finding.map(|finding| finding.verdict), verdict, "{question:?} {status}");
        }
        for question in Question::ALL {
            for body in [&b"<html>"[..], b"", b"[]", b"{}"] {
                let page = question.answer(200, body).expect("words");
                assert_eq!(page.verdict, Verdict::Doubtful);
            }
        }
        let refused = Question::Server.answer(401, b"canary").expect("words").words;
        assert!(refused.contains("clock") && !refused.contains("canary"), "{refused}");
    }

    /// Half of it is told to everybody, nothing of it only to whom it is asked of.
    #[test]
    fn what_is_not_configured_is_named() {
        let told = |config: &Config| -> Vec<(Verdict, &str, String)> {
            wanting(config)
                .into_iter()
                .map(|finding| (finding.verdict, finding.what, finding.words))
                .collect()
        };
        assert_eq!(told(&Config::default()), []);
        assert_eq!(told(&config()), []);
        let only = |transport| Config {
            transport: Some(transport),
            ..Config::default()
        };
        let video = told(&only(Transport::Videoroom));
        assert!(matches!(&video[..], [(Verdict::Broken, "videoroom", words)] if words.contains("VIDEOROOM_API_KEY")));
        let media = told(&only(Transport::Mediaroom));
        assert!(
            matches!(&media[..], [(Verdict::Broken, "mediaroom", words)]
                if words.ends_with("MEDIAROOM_URL, MEDIAROOM_API_KEY, MEDIAROOM_API_SECRET")),
            "{media:?}"
        );
        assert_eq!(told(&only(Transport::WebRtc)), []);

        let mut half = Config::default();
        half.videoroom.room_url = Some("https://example.daily.co/room".into());
        half.mediaroom.key = Some("m-key".into());
        let told_half = told(&half);
        assert!(
            matches!(&told_half[..], [(Verdict::Doubtful, "videoroom", _), (Verdict::Doubtful, "mediaroom", words)]
                if words.ends_with("MEDIAROOM_URL, MEDIAROOM_API_SECRET")),
            "{told_half:?}"
        );
        let open = Config {
            allowed_origins: Vec::new(),
            ..config()
        };
        assert!(
            matches!(&told(&open)[..], [(Verdict::Doubtful, "origins", words)] if words.contains("--allowed-origins"))
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
            assert_eq!(told(&closed), []);
        }
        let mut dialin = config();
        dialin.videoroom.dialin = true;
        for names in [vec![], vec!["board".into(), "board.local".into()]] {
            dialin.host_names = names;
            let found = told(&dialin);
            assert!(
                matches!(&found[..], [(_, "dial-in", words), (_, "dial-in", _)] if words.contains("--proxy")),
                "{found:?}"
            );
        }
        dialin.host_names.push("bots.example.net".into());
        assert_eq!(told(&dialin).len(), 1);
        dialin.host_names.clear();
        dialin.proxy = Some("bots.example.net".into());
        assert!(matches!(&told(&dialin)[..], [(Verdict::Doubtful, "dial-in", _)]));
        dialin.videoroom.dialin_hmac = Some(SecretBytes::new(*b"key"));
        assert_eq!(told(&dialin), []);
    }
}
