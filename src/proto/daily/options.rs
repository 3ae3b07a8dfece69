//! The options and variables of Daily.
//!
//! In: the options and the variables. Out: [`Videoroom`], [`StartNames`], and warnings. Rejects
//! `--direct` and `--dialin` without a key, invalid URLs, and a signing key that is not base64. No
//! error contains a key. Source: R-027 to R-032; `docs/spec/daily.md`.

use data_encoding::BASE64;

use super::config::Videoroom;
use crate::aliases::StartNames;
use crate::config::Config;
use crate::features::Feature;
use crate::options::env::Variables;
use crate::options::values::{all_names, base, credential, url, wrong};
use crate::options::variables::{ModuleVariables, secret, setting};
use crate::options::{Flag, FlagKind, ROOMS_AND_CALLS, UsageError, flag};
use crate::secret::{Secret, SecretBytes};
use crate::transport::Transport;

/// The typed options.
#[derive(Debug, Default)]
pub struct DailyOptions {
    pub direct: bool,
    pub dialin: bool,
}

/// Why a bot has no audio as PCM in a room.
pub const NO_PCM: &str = "`--bot-audio pcm` cannot be used with Daily: the bot joins the room itself";

/// Why the built-in bots do not run in rooms, and what to do instead.
pub const NO_VIDEO_ROOMS: &str = "a video room is entered with its provider's own library, whose protocol is closed; give the \
                                  runner a bot that has it, a program after `--` or one of your own";

impl DailyOptions {
    /// Returns the transport: that of `-t`, or Daily with `--direct`.
    ///
    /// # Errors
    /// [`UsageError`] for `--direct` with another transport.
    pub fn transport(&self, given: Option<Transport>) -> Result<Option<Transport>, UsageError> {
        match (self.direct, given) {
            (true, None | Some(Transport::Videoroom)) => Ok(Some(Transport::Videoroom)),
            (true, Some(other)) => Err(UsageError::Combination(format!(
                "`--direct` needs `-t daily` and cannot be used with `-t {}`",
                other.common_name()
            ))),
            (false, given) => Ok(given),
        }
    }
}

const fn daily<T>(long: &'static str, kind: FlagKind<T>, help: &'static str) -> Flag<T> {
    flag(long, kind, ROOMS_AND_CALLS, help).needs(&[Feature::Videoroom])
}

impl<T: AsMut<DailyOptions>> Flag<T> {
    /// The options of Daily.
    pub const DAILY: &'static [Flag<T>] = &[
        daily(
            "--direct",
            FlagKind::Switch(|args: &mut T| args.as_mut().direct = true),
            "Run one bot in a Daily room, without a web server. Implies `-t daily` and needs VIDEOROOM_API_KEY.",
        )
        .short('d'),
        daily(
            "--dialin",
            FlagKind::Switch(|args: &mut T| args.as_mut().dialin = true),
            "Serve the dial-in webhook of Daily. Needs VIDEOROOM_API_KEY.",
        ),
        daily(
            "--no-dialin",
            FlagKind::Switch(|args: &mut T| args.as_mut().dialin = false),
            "Do not serve the dial-in webhook. This is the default.",
        )
        .unless(""),
    ];
}

/// The variables of Daily.
pub static VARIABLES: ModuleVariables = ModuleVariables {
    feature: Feature::Videoroom,
    prefixes: &["VIDEOROOM_", "RUNNER_START_NAMES"],
    variables: &[
        secret("VIDEOROOM_API_KEY", "API key of Daily, to create rooms and tokens.").sent_to("VIDEOROOM_API_URL"),
        setting(
            "VIDEOROOM_API_URL",
            "Base URL of the Daily API. [default: https://api.daily.co/v1]",
        ),
        setting(
            "VIDEOROOM_ROOM_URL",
            "An existing room for every session. Dial-in calls get new rooms.",
        ),
        setting(
            "VIDEOROOM_SAMPLE_ROOM_URL",
            "An existing room to use instead of new rooms.",
        ),
        secret(
            "VIDEOROOM_DIALIN_HMAC",
            "Secret of the dial-in webhook, in base64. If set, the webhook is verified.",
        ),
        setting(
            "RUNNER_START_NAMES",
            "Names of the fields in the reply of `/start` for a room: canonical, alias or both. [default: both]",
        ),
    ],
};

/// Reads the settings of Daily.
///
/// # Errors
/// [`UsageError`] that names the variable or the option.
pub fn videoroom(
    options: &DailyOptions,
    variables: &Variables,
    warnings: &mut Vec<String>,
) -> Result<Videoroom, UsageError> {
    let key = credential(variables, "VIDEOROOM_API_KEY")?.map(Secret::new);
    let given = [(options.direct, "--direct"), (options.dialin, "--dialin")];
    if let (Some((_, option)), None) = (given.into_iter().find(|(given, _)| *given), &key) {
        return Err(UsageError::Combination(format!(
            "`{option}` needs {} in the environment or in .env",
            all_names("VIDEOROOM_API_KEY")
        )));
    }
    Ok(Videoroom {
        key,
        url: base(variables, "VIDEOROOM_API_URL", warnings)?.unwrap_or(Videoroom::default().url),
        room_url: room_url(variables, "VIDEOROOM_ROOM_URL")?,
        sample_room_url: room_url(variables, "VIDEOROOM_SAMPLE_ROOM_URL")?,
        dialin: options.dialin,
        dialin_hmac: dialin_hmac(variables, "VIDEOROOM_DIALIN_HMAC")?,
    })
}

/// Reads the URL of a room. Its path is the name of the room, so it is required.
fn room_url(variables: &Variables, name: &'static str) -> Result<Option<String>, UsageError> {
    let wants = "the URL of a room: https://HOST/ROOM";
    match url(variables, name, &["http", "https"], wants)? {
        Some(url) if url.path.is_empty() => Err(UsageError::value(name, &url.text, wants)),
        url => Ok(url.map(|url| url.text)),
    }
}

/// Returns warnings about dial-in calls that cannot succeed, and about rooms that any page can
/// create.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.videoroom.dialin && !config.bot_enters_rooms {
        warnings.push(format!(
            "`--dialin` with a built-in bot accepts no calls: {NO_VIDEO_ROOMS}"
        ));
    }
    if config.creates_rooms_for_pages() {
        warnings.push(
            "VIDEOROOM_API_KEY is set without `--allowed-origins` and `--api-key`: any web page in a browser that reaches \
             this runner can create video rooms, which cost money, and read their tokens"
                .into(),
        );
    }
    if config.videoroom.dialin && !config.has_public_name() {
        warnings.push(
            "`--dialin` without `--proxy HOST`: webhook requests to a public host name are refused with 421; set the name \
             with `--proxy` or `--allowed-hosts`"
                .into(),
        );
    }
    warnings
}

fn dialin_hmac(variables: &Variables, name: &'static str) -> Result<Option<SecretBytes>, UsageError> {
    let Some(text) = variables.get(name) else {
        return Ok(None);
    };
    match BASE64.decode(text.as_bytes()) {
        Ok(key) if !key.is_empty() => Ok(Some(SecretBytes::new(key))),
        _ => Err(wrong(
            variables,
            name,
            "the secret of the dial-in webhook in base64, as Daily shows it",
        )),
    }
}

/// Reads which names the fields of a room have in the response to `/start`.
///
/// # Errors
/// [`UsageError`] that names the variable.
pub fn start_names(variables: &Variables) -> Result<StartNames, UsageError> {
    match variables.named("RUNNER_START_NAMES") {
        None => Ok(StartNames::default()),
        Some((_, "canonical")) => Ok(StartNames::Canonical),
        Some((_, "alias")) => Ok(StartNames::Alias),
        Some((_, "both")) => Ok(StartNames::Both),
        Some((name, text)) => Err(UsageError::value(name, text, "`canonical`, `alias` or `both`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(list: &[(&str, &str)]) -> Variables {
        let own = list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        Variables::new(own, [])
    }

    fn video(list: &[(&str, &str)]) -> Result<(Videoroom, Vec<String>), String> {
        let mut warnings = Vec::new();
        videoroom(&DailyOptions::default(), &variables(list), &mut warnings)
            .map(|videoroom| (videoroom, warnings))
            .map_err(|error| error.to_string())
    }

    /// R-027 to R-032: settings of rooms are optional.
    #[test]
    fn no_variables_mean_defaults_without_warnings() {
        assert_eq!(video(&[]), Ok((Videoroom::default(), vec![])));
        assert_eq!(start_names(&variables(&[])), Ok(StartNames::Both));
        let empty = [("VIDEOROOM_API_KEY", " "), ("RUNNER_START_NAMES", "")];
        assert_eq!(video(&empty), Ok((Videoroom::default(), vec![])));
        assert_eq!(start_names(&variables(&empty)), Ok(StartNames::Both));
    }

    #[test]
    fn reads_every_variable_by_either_name() {
        for [key, api, room, sample, hmac] in [
            [
                "VIDEOROOM_API_KEY",
                "VIDEOROOM_API_URL",
                "VIDEOROOM_ROOM_URL",
                "VIDEOROOM_SAMPLE_ROOM_URL",
                "VIDEOROOM_DIALIN_HMAC",
            ],
            [
                "DAILY_API_KEY",
                "DAILY_API_URL",
                "DAILY_ROOM_URL",
                "DAILY_SAMPLE_ROOM_URL",
                "PINLESS_HMAC_SECRET",
            ],
        ] {
            let read = video(&[
                (key, "k1"),
                (api, "http://127.0.0.1:9/v1/"),
                (room, "https://Example.daily.co/My-Room/"),
                (sample, "http://localhost/sample"),
                (hmac, "c2VjcmV0"),
            ]);
            let expected = Videoroom {
                key: Some(Secret::new("k1")),
                url: "http://127.0.0.1:9/v1".into(),
                room_url: Some("https://example.daily.co/My-Room".into()),
                sample_room_url: Some("http://localhost/sample".into()),
                dialin: false,
                dialin_hmac: Some(SecretBytes::new(*b"secret")),
            };
            let shown = format!("{expected:?}");
            assert!(!shown.contains("k1") && !shown.contains("115, 101"), "{shown}");
            assert_eq!(read, Ok((expected, vec![])));
        }
    }

    #[test]
    fn a_room_url_needs_a_path() {
        for name in ["VIDEOROOM_ROOM_URL", "VIDEOROOM_SAMPLE_ROOM_URL"] {
            for bad in [
                "room",
                "https://example.daily.co",
                "https://example.daily.co//",
                "wss://a/room",
                "https://a/room?t=1",
                "https:///room",
            ] {
                let message = video(&[(name, bad)]).expect_err("a usage error");
                assert!(
                    message.contains(name) && message.contains("https://HOST/ROOM"),
                    "{message}"
                );
            }
        }
        let message = video(&[("VIDEOROOM_API_URL", "api.daily.co")]).expect_err("a usage error");
        assert!(message.contains("VIDEOROOM_API_URL"), "{message}");
        let (_, warnings) = video(&[("DAILY_API_URL", "http://192.0.2.1/v1")]).expect("no usage error");
        assert!(warnings[0].contains("DAILY_API_URL") && warnings[0].contains("in the clear"));
    }

    /// An error names the variable without its value, which may be a secret.
    #[test]
    fn errors_do_not_contain_keys() {
        for (name, value) in [
            ("VIDEOROOM_API_KEY", "hunter2 x"),
            ("DAILY_API_KEY", "hunter2\u{e9}"),
            ("VIDEOROOM_DIALIN_HMAC", "hunter2"),
            ("PINLESS_HMAC_SECRET", "hunter2===="),
            ("VIDEOROOM_API_URL", "https://u:hunter2@a"),
            ("VIDEOROOM_ROOM_URL", "https://u:hunter2@a/r"),
            ("VIDEOROOM_ROOM_URL", "https://a/room?t=hunter2"),
            ("DAILY_SAMPLE_ROOM_URL", "https://a/room?t=hunter2"),
        ] {
            let message = video(&[(name, value)]).expect_err("a usage error");
            assert!(message.contains(name) && !message.contains("hunter2"), "{message}");
        }
    }

    /// Each setting that mends a warning removes that one alone.
    #[test]
    fn warns_of_calls_that_fail_and_of_rooms_for_any_page() {
        let mut config = Config::default();
        assert_eq!(warnings(&config), Vec::<String>::new());
        config.videoroom.dialin = true;
        config.videoroom.key = Some(Secret::new("k1"));
        let about = |config: &Config| {
            let warned = warnings(config);
            ["built-in bot", "VIDEOROOM_API_KEY", "`--proxy HOST`"].map(|words| {
                let mut found = warned.iter().filter(|warning| warning.contains(words));
                found.next().is_some()
            })
        };
        assert_eq!(about(&config), [false, true, true]);
        config.bot_enters_rooms = false;
        assert_eq!(about(&config), [true, false, true]);
        config.proxy = Some("bots.example.net".into());
        assert_eq!(about(&config), [true, false, false]);
        config.bot_enters_rooms = true;
        assert_eq!(about(&config), [false, true, false]);
        config.api_key = Some(Secret::new("k2"));
        assert_eq!(about(&config), [false; 3]);
    }

    #[test]
    fn start_names_takes_three_values() {
        for (text, names) in [
            ("canonical", StartNames::Canonical),
            ("alias", StartNames::Alias),
            ("both", StartNames::Both),
        ] {
            assert_eq!(start_names(&variables(&[("RUNNER_START_NAMES", text)])), Ok(names));
        }
        let error = start_names(&variables(&[("RUNNER_START_NAMES", "Both")])).expect_err("a usage error");
        assert!(error.to_string().contains("`canonical`, `alias` or `both`"));
    }
}
