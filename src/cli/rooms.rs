//! Reads the configuration of rooms: Daily and LiveKit.
//!
//! In: the options and the variables. Out: [`Videoroom`], [`Mediaroom`], [`StartNames`], and
//! warnings. Rejects `--direct` and `--dialin` without a key, invalid URLs, a signing key that is
//! not base64, and a room name that is too long for LiveKit. No error contains a key. Source: R-027
//! to R-032, R-075 to R-078; `docs/spec/daily.md`, `docs/spec/livekit.md`.

use data_encoding::BASE64;

use super::flags::LowArgs;
use super::{UsageError, worker};
use crate::config::{Mediaroom, Secret, SecretBytes, StartNames, Transport, Videoroom};
use crate::limits::{MEDIAROOM_URLS_MAX, ROOM_NAME_BYTES_MAX};
use crate::proto::livekit::missing_variables;
use crate::proto::options::env::Variables;
use crate::proto::options::values::{all_names, base, credential, parse_url, url, wrong};

/// Reads the settings of Daily.
///
/// # Errors
/// [`UsageError`] that names the variable or the option.
pub(super) fn videoroom(
    args: &LowArgs,
    variables: &Variables,
    warnings: &mut Vec<String>,
) -> Result<Videoroom, UsageError> {
    let key = credential(variables, "VIDEOROOM_API_KEY")?.map(Secret::new);
    let given = [(args.direct, "--direct"), (args.dialin, "--dialin")];
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
        dialin: args.dialin,
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

/// Reads the settings of LiveKit.
///
/// # Errors
/// [`UsageError`] that names the variable.
pub(super) fn mediaroom(
    args: &LowArgs,
    transport: Option<Transport>,
    variables: &Variables,
    warnings: &mut Vec<String>,
) -> Result<Mediaroom, UsageError> {
    let mut urls = mediaroom_urls(variables, warnings)?.into_iter();
    let room_name = variables.get("MEDIAROOM_ROOM_NAME");
    if room_name.is_some_and(|name| name.len() > ROOM_NAME_BYTES_MAX) {
        let wants = format!("a name of at most {ROOM_NAME_BYTES_MAX} bytes");
        return Err(wrong(variables, "MEDIAROOM_ROOM_NAME", &wants));
    }
    let config = Mediaroom {
        url: urls.next(),
        other_urls: urls.collect(),
        key: credential(variables, "MEDIAROOM_API_KEY")?,
        secret: credential(variables, "MEDIAROOM_API_SECRET")?.map(Secret::new),
        room_name: room_name.map(str::to_owned),
        worker: None,
    };
    let missing = missing_variables(&config);
    if let Some(worker) = worker::worker(&args.worker, &args.given, transport, args.direct, warnings)? {
        if !missing.is_empty() {
            let names: Vec<String> = missing.into_iter().map(all_names).collect();
            return Err(UsageError::Combination(format!(
                "`--register` needs {} in the environment or in .env",
                names.join(", ")
            )));
        }
        return Ok(Mediaroom {
            worker: Some(worker),
            ..config
        });
    }
    if (1..3).contains(&missing.len()) {
        let names: Vec<String> = missing.into_iter().map(all_names).collect();
        warnings.push(format!(
            "{} missing: `/start` refuses LiveKit sessions until the URL, the key and the secret are set",
            match &names[..] {
                [one] => format!("{one} is"),
                many => format!("{} are", many.join(" and ")),
            }
        ));
    }
    Ok(config)
}

/// Reads the URLs of the LiveKit server, in their order.
fn mediaroom_urls(variables: &Variables, warnings: &mut Vec<String>) -> Result<Vec<String>, UsageError> {
    const NAME: &str = "MEDIAROOM_URL";
    let wants = "the URL of the LiveKit server: wss://HOST, ws://HOST, https://HOST or http://HOST, optionally with \
                 :PORT and /PATH; several are separated by commas";
    let Some((source, list)) = variables.named(NAME) else {
        return Ok(Vec::new());
    };
    let mut urls: Vec<String> = Vec::new();
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let url = parse_url(source, text, &["ws", "wss", "http", "https"])
            .ok_or_else(|| UsageError::value(source, text, wants))?;
        url.warn_if_unencrypted(warnings, "access tokens travel");
        if !urls.contains(&url.text) {
            urls.push(url.text);
        }
    }
    if !(1..=MEDIAROOM_URLS_MAX).contains(&urls.len()) {
        return Err(UsageError::Combination(format!(
            "`{source}` takes 1 to {MEDIAROOM_URLS_MAX} URLs, separated by commas"
        )));
    }
    Ok(urls)
}

/// Reads which names the fields of a room have in the response to `/start`.
///
/// # Errors
/// [`UsageError`] that names the variable.
pub(super) fn start_names(variables: &Variables) -> Result<StartNames, UsageError> {
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
        videoroom(&LowArgs::default(), &variables(list), &mut warnings)
            .map(|videoroom| (videoroom, warnings))
            .map_err(|error| error.to_string())
    }

    fn media(list: &[(&str, &str)]) -> Result<(Mediaroom, Vec<String>), String> {
        let mut warnings = Vec::new();
        mediaroom(&LowArgs::default(), None, &variables(list), &mut warnings)
            .map(|mediaroom| (mediaroom, warnings))
            .map_err(|error| error.to_string())
    }

    /// R-027 to R-032: settings of rooms are optional.
    #[test]
    fn no_variables_mean_defaults_without_warnings() {
        assert_eq!(video(&[]), Ok((Videoroom::default(), vec![])));
        assert_eq!(media(&[]), Ok((Mediaroom::default(), vec![])));
        assert_eq!(start_names(&variables(&[])), Ok(StartNames::Both));
        let empty = [
            ("VIDEOROOM_API_KEY", " "),
            ("MEDIAROOM_URL", ""),
            ("RUNNER_START_NAMES", ""),
        ];
        assert_eq!(video(&empty), Ok((Videoroom::default(), vec![])));
        assert_eq!(media(&empty), Ok((Mediaroom::default(), vec![])));
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
        for [url, key, secret, room] in [
            [
                "MEDIAROOM_URL",
                "MEDIAROOM_API_KEY",
                "MEDIAROOM_API_SECRET",
                "MEDIAROOM_ROOM_NAME",
            ],
            [
                "LIVEKIT_URL",
                "LIVEKIT_API_KEY",
                "LIVEKIT_API_SECRET",
                "LIVEKIT_ROOM_NAME",
            ],
        ] {
            let read = media(&[
                (url, "WSS://Rooms.example/a//"),
                (key, "devkey"),
                (secret, "s3cret"),
                (room, " Küche 1 "),
            ]);
            let expected = Mediaroom {
                url: Some("wss://rooms.example/a".into()),
                key: Some("devkey".into()),
                secret: Some(Secret::new("s3cret")),
                room_name: Some("Küche 1".into()),
                ..Mediaroom::default()
            };
            assert_eq!(read, Ok((expected, vec![])));
        }
    }

    #[test]
    fn the_livekit_url_has_one_of_four_schemes() {
        let whole = |url: &'static str| {
            [
                ("MEDIAROOM_URL", url),
                ("MEDIAROOM_API_KEY", "k"),
                ("MEDIAROOM_API_SECRET", "s"),
            ]
        };
        for url in [
            "ws://localhost:7880",
            "http://127.0.0.1:7880",
            "ws://[::1]:7880",
            "wss://a.example",
            "https://a.example",
        ] {
            let (config, warnings) = media(&whole(url)).expect("a URL");
            assert_eq!((config.url.as_deref(), warnings), (Some(url), vec![]));
        }
        for url in ["ws://192.0.2.1:7880", "http://a.example"] {
            let (config, warnings) = media(&whole(url)).expect("a URL");
            assert_eq!(config.url.as_deref(), Some(url));
            assert!(warnings[0].contains("MEDIAROOM_URL") && warnings[0].contains("in the clear"));
        }
        for bad in [
            "a.example",
            "ftp://a",
            "wss://",
            "wss://a?x=1",
            "wss://a/#b",
            "wss://a b",
            "wss:///a",
        ] {
            let message = media(&whole(bad)).expect_err("a usage error");
            assert!(
                message.contains("MEDIAROOM_URL") && message.contains("wss://HOST"),
                "{message}"
            );
        }
    }

    #[test]
    fn warns_of_incomplete_livekit_settings() {
        for (list, parts) in [
            (
                &[("MEDIAROOM_URL", "wss://a")][..],
                &[
                    "MEDIAROOM_API_KEY (or LIVEKIT_API_KEY) and MEDIAROOM_API_SECRET",
                    "are missing",
                ][..],
            ),
            (
                &[("LIVEKIT_API_KEY", "hunter2"), ("LIVEKIT_API_SECRET", "hunter2")],
                &["MEDIAROOM_URL (or LIVEKIT_URL) is missing"],
            ),
        ] {
            let (_, warnings) = media(list).expect("no usage error");
            let [warning] = &warnings[..] else {
                panic!("{warnings:?}")
            };
            for part in parts {
                assert!(warning.contains(part), "{part} in {warning}");
            }
            assert!(!warning.contains("hunter2"));
        }
        // A room name by itself needs no other setting.
        assert_eq!(
            media(&[("MEDIAROOM_ROOM_NAME", "r")]).expect("no usage error").1,
            [""; 0]
        );
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
        for (name, value) in [
            ("MEDIAROOM_API_KEY", "hunter2\tx"),
            ("LIVEKIT_API_SECRET", "hunter2 x"),
            ("MEDIAROOM_URL", "wss://u:hunter2@a"),
        ] {
            let message = media(&[(name, value)]).expect_err("a usage error");
            assert!(message.contains(name) && !message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn rejects_a_room_name_above_the_cap() {
        let longest = "ü".repeat(128);
        let (config, _) = media(&[("MEDIAROOM_ROOM_NAME", &longest)]).expect("a name");
        assert_eq!(config.room_name.as_ref(), Some(&longest));
        let message = media(&[("LIVEKIT_ROOM_NAME", &(longest + "x"))]).expect_err("a usage error");
        assert!(
            message.contains("LIVEKIT_ROOM_NAME") && message.contains("256 bytes"),
            "{message}"
        );
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
