//! The options of the local caller.

use std::time::Duration;

use super::command::{are_two_cards, back_end, words};
use super::config::{AlsaDefault, AudioBackEnd, AudioDevice, LocalConfig, LocalEcho, LocalStart, WakeConfig};
use super::direction::AudioDirection;
use super::stop_words::StopWords;
use crate::assistant::services::endpoint::{ServiceAuthority, ServiceEndpoint};
use crate::features::Feature;
use crate::limits::RATES_HZ;
use crate::options::{Expected, Flag, FlagKind, UsageError, flag, need, number, put};

/// The heading of the options in the help.
const LOCAL: &str = "Sound card (`--local`)";
/// The rate without `--local-rate`, in Hz.
const RATE_DEFAULT_HZ: u32 = 16_000;
/// Most channels of a card: arrays of eight microphones.
const CHANNELS_MAX: u16 = 8;
/// Where a service for wake words listens.
const WAKE_DEFAULT: &str = "tcp://127.0.0.1:10400";
/// Wake words that `--local-wake-words` takes.
const WAKE_WORDS_MAX: usize = 8;
/// Bytes of a wake word.
const WAKE_WORD_BYTES_MAX: usize = 64;
/// Devices that `--local-keys` takes.
const KEY_FILES_MAX: usize = 4;
/// The loudest volume, in percent: the sound is as the bot sends it.
pub const VOLUME_MAX: u8 = 100;
/// Longest silence that `--local-end` takes, in seconds.
const END_S_MAX: u64 = 3_600;

/// The typed `--local-*` options.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LocalOptions {
    pub is_on: bool,
    /// Whether the caller types.
    pub types: bool,
    pub input: Option<String>,
    pub output: Option<String>,
    /// Of the microphone and of the loudspeaker.
    pub rates_hz: Option<(u32, u32)>,
    pub channels: Option<(u16, u16)>,
    pub start: Option<LocalStart>,
    pub wake: Option<ServiceAuthority>,
    pub wake_words: Vec<String>,
    pub end: Option<Duration>,
    pub stop_words: Option<StopWords>,
    pub echo: Option<LocalEcho>,
    pub tones: Option<bool>,
    pub keys: Vec<String>,
    pub volume_percent: Option<u8>,
    pub hook: Option<String>,
    pub bot: Option<String>,
}

const fn local<T>(long: &'static str, kind: FlagKind<T>, help: &'static str) -> Flag<T> {
    flag(long, kind, LOCAL, help).needs(&[Feature::Local])
}

impl<T: AsMut<LocalOptions>> Flag<T> {
    /// The option that lists devices.
    pub const LOCAL_LIST: &'static str = "--local-list";
    /// The options of the local caller.
    pub const LOCAL: &'static [Flag<T>] = &[
        local(
            "--local",
            FlagKind::Optional("voice|text", |args: &mut T, text| {
                let args = args.as_mut();
                args.types = match &*text {
                    "voice" => false,
                    "text" => true,
                    _ => return Err(Expected::one_of(&text, &["voice", "text"], &[])),
                };
                args.is_on = true;
                Ok(())
            }),
            "The sound card of this machine is a caller, beside all others. On a terminal, `q` or Ctrl-D ends its \
             session, and what both sides say is shown. With `text` lines are typed in place of speech, and no sound \
             card is needed.",
        ),
        local(
            "--local-in",
            FlagKind::Value("COMMAND|DEVICE", |args: &mut T, text| {
                put(&mut args.as_mut().input, text)
            }),
            "Reads the microphone: a command that writes 16-bit signed little-endian PCM, such as `pw-record --raw \
             --rate 16000 --channels 1 --latency 20ms -`, a device for `arecord`, such as plughw:CARD=ID, or \
             kernel:CARD=ID,DEV=0, a card that needs no program. [default: default]",
        ),
        local(
            "--local-out",
            FlagKind::Value("COMMAND|DEVICE", |args: &mut T, text| {
                put(&mut args.as_mut().output, text)
            }),
            "Plays to the loudspeaker: a command that reads such PCM, a device for `aplay`, or kernel:CARD=ID,DEV=0. \
             [default: default]",
        ),
        local(
            Self::LOCAL_LIST,
            FlagKind::Report,
            "Print the microphones and loudspeakers with the words for --local-in and --local-out, and what is missing, \
             and exit: with 1 if something is.",
        ),
        local(
            "--local-rate",
            FlagKind::Value("HZ[:HZ]", |args: &mut T, text| {
                put(
                    &mut args.as_mut().rates_hz,
                    pair(&text, *RATES_HZ.start(), *RATES_HZ.end())?,
                )
            }),
            "Sample rate of the microphone's PCM, and that of the loudspeaker if it differs. [default: 16000]",
        ),
        local(
            "--local-channels",
            FlagKind::Value("N[:N]", |args: &mut T, text| {
                put(&mut args.as_mut().channels, pair(&text, 1, CHANNELS_MAX)?)
            }),
            "Channels of the microphone's PCM, of which the first is used, and of the loudspeaker's if they differ. \
             [default: 1]",
        ),
        local(
            "--local-start",
            FlagKind::Value("always|speech|key|wake", |args: &mut T, text| {
                let start =
                    LocalStart::from_name(&text).ok_or_else(|| Expected::one_of(&text, &LocalStart::NAMES, &[]))?;
                put(&mut args.as_mut().start, start)
            }),
            "When its session begins: at once and again after each end, when somebody speaks, with a line on the \
             terminal, or with a wake word. [default: always on a terminal, else speech]",
        ),
        local(
            "--local-wake",
            FlagKind::Value("URL", |args: &mut T, text| {
                put(&mut args.as_mut().wake, wake_server(&text)?)
            }),
            "The service that detects wake words, for --local-start wake: a Wyoming server. [default: \
             tcp://127.0.0.1:10400]",
        ),
        local(
            "--local-wake-words",
            FlagKind::Value("NAME[,NAME]", |args: &mut T, text| {
                args.as_mut().wake_words = wake_words(&text)?;
                Ok(())
            }),
            "The wake words, by their names at the service. [default: those that the service has loaded]",
        ),
        local(
            "--local-end",
            FlagKind::Value("SECONDS", |args: &mut T, text| {
                let seconds =
                    number(&text, 0, END_S_MAX).map_err(|_| format!("a number of seconds from 0 to {END_S_MAX}"))?;
                put(&mut args.as_mut().end, Duration::from_secs(seconds))
            }),
            "Silence of both sides that ends its session; 0 never does. [default: 8, or 0 with --local-start always]",
        ),
        local(
            "--local-stop-words",
            FlagKind::Value("WORD[,WORD]", |args: &mut T, text| {
                put(&mut args.as_mut().stop_words, StopWords::parse(&text)?)
            }),
            "What the caller says to end its session, such as `stop,good bye`: a whole sentence, as the bot has \
             understood it.",
        ),
        local(
            "--local-echo",
            FlagKind::Value("aec|half|off", |args: &mut T, text| {
                put(&mut args.as_mut().echo, echo(&text)?)
            }),
            "What keeps the bot from hearing itself: `aec` removes its sound from the microphone, and lets callers \
             interrupt; `half` silences the microphone while the loudspeaker plays; `off` does nothing, for headsets \
             and for speakerphones that cancel their echo. [default: aec, or half on processors of 32 bits]",
        ),
        local(
            "--local-tones",
            FlagKind::Value("on|off", |args: &mut T, text| {
                let tones = match &*text {
                    "on" => true,
                    "off" => false,
                    _ => return Err(Expected::one_of(&text, &["on", "off"], &[])),
                };
                put(&mut args.as_mut().tones, tones)
            }),
            "Short tones when its session begins, ends, or fails. [default: on with --local-start wake, else off]",
        ),
        local(
            "--local-keys",
            FlagKind::Value("FILE[,FILE]", |args: &mut T, text| {
                args.as_mut().keys = key_files(&text)?;
                Ok(())
            }),
            "Devices whose keys are read, such as /dev/input/by-id/NAME-event-kbd: mute, play and telephone (begin or end \
             a session), volume.",
        ),
        local(
            "--local-volume",
            FlagKind::Value("PERCENT", |args: &mut T, text| {
                put(&mut args.as_mut().volume_percent, number(&text, 0, VOLUME_MAX)?)
            }),
            "Volume of the loudspeaker, of what the bot sends; keys change it. [default: 100]",
        ),
        local(
            "--local-hook",
            FlagKind::Value("COMMAND", |args: &mut T, text| put(&mut args.as_mut().hook, text)),
            "Run for each new state of the sound card, with its name as a further argument: `listening`, `wake`, \
             `call`, `muted` or `error`.",
        ),
        local(
            "--local-bot",
            FlagKind::Value("NAME", |args: &mut T, text| put(&mut args.as_mut().bot, text)),
            "Which of several bots it calls. [default: the default bot]",
        ),
    ];
}

/// Parses what keeps the bot from hearing itself.
///
/// # Errors
/// What is expected.
pub fn echo(text: &str) -> Result<LocalEcho, Expected> {
    Ok(match text {
        "aec" => LocalEcho::Cancel,
        "half" => LocalEcho::Half,
        "off" => LocalEcho::Off,
        _ => return Err(Expected::one_of(text, &["aec", "half", "off"], &[])),
    })
}

/// Parses one number, or two separated by a colon.
fn pair<N>(text: &str, least: N, most: N) -> Result<(N, N), Expected>
where
    N: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    let parsed = match text.split_once(':') {
        Some((first, second)) => number(first, least, most).and_then(|first| Ok((first, number(second, least, most)?))),
        None => number(text, least, most).map(|both| (both, both)),
    };
    parsed.map_err(|_| format!("a number from {least} to {most}, or two of them separated by a colon").into())
}

/// Parses paths, separated by commas.
fn key_files(text: &str) -> Result<Vec<String>, Expected> {
    let files: Vec<String> = text.split(',').map(|file| file.trim().to_owned()).collect();
    match files.len() <= KEY_FILES_MAX && files.iter().all(|file| file.starts_with('/')) {
        true => Ok(files),
        false => Err(format!("up to {KEY_FILES_MAX} files such as /dev/input/event0, separated by commas").into()),
    }
}

/// Returns the words of the command of `--local-hook`.
fn hook(text: &str) -> Result<Vec<String>, UsageError> {
    words(text).map_err(|error| UsageError::value("--local-hook", text, error.to_string()))
}

/// Parses the address of a service for wake words.
fn wake_server(text: &str) -> Result<ServiceAuthority, Expected> {
    match ServiceEndpoint::parse(text) {
        Ok(ServiceEndpoint::Wyoming(server)) => Ok(server),
        Ok(ServiceEndpoint::Http(_)) | Err(_) => {
            Err("the URL of a Wyoming server with a port, such as tcp://HOST:10400".into())
        }
    }
}

/// Parses names of wake words, separated by commas.
fn wake_words(text: &str) -> Result<Vec<String>, Expected> {
    let words: Vec<String> = text.split(',').map(|word| word.trim().to_owned()).collect();
    let is_word =
        |word: &String| !word.is_empty() && word.len() <= WAKE_WORD_BYTES_MAX && !word.contains(char::is_control);
    match words.len() <= WAKE_WORDS_MAX && words.iter().all(is_word) {
        true => Ok(words),
        false => Err(format!("up to {WAKE_WORDS_MAX} names of wake words, separated by commas").into()),
    }
}

impl LocalOptions {
    /// Validates the options, and adds ignored ones to `warnings`. `None` without `--local`.
    ///
    /// # Errors
    /// [`UsageError`] for a command without a program.
    pub fn resolve(self, is_direct: bool, warnings: &mut Vec<String>) -> Result<Option<LocalConfig>, UsageError> {
        let (in_rate_hz, out_rate_hz) = self.rates_hz.unwrap_or((RATE_DEFAULT_HZ, RATE_DEFAULT_HZ));
        let (in_channels, out_channels) = self.channels.unwrap_or((1, 1));
        let of = |text: &Option<String>, direction: AudioDirection, rate_hz, channels| {
            let back_end = back_end(text.as_deref(), direction, rate_hz, channels).map_err(|error| {
                UsageError::value(
                    direction.option(),
                    text.as_deref().unwrap_or_default(),
                    error.to_string(),
                )
            })?;
            Ok(AudioDevice {
                channels: match back_end {
                    AudioBackEnd::Command(_) => channels,
                    AudioBackEnd::Kernel(_) => 1,
                },
                back_end,
                default: text.is_none().then(AlsaDefault::default),
                rate_hz,
            })
        };
        let wake = match self.start {
            Some(LocalStart::Wake) => {
                need("`--local-start wake`", Feature::Assistants)?;
                let default = || wake_server(WAKE_DEFAULT).expect("the default is a URL");
                Some(WakeConfig {
                    server: self.wake.clone().unwrap_or_else(default),
                    words: self.wake_words.clone(),
                })
            }
            _ => {
                if self.is_on && (self.wake.is_some() || !self.wake_words.is_empty()) {
                    warnings.push("`--local-wake` and `--local-wake-words` need `--local-start wake`".into());
                }
                None
            }
        };
        if self.echo == Some(LocalEcho::Cancel) {
            need("`--local-echo aec`", Feature::Aec)?;
        }
        if self.types && matches!(self.start, Some(LocalStart::Speech | LocalStart::Wake)) {
            return Err(UsageError::Combination(
                "`--local text` begins with `--local-start always` or `key`: nothing is recorded".into(),
            ));
        }
        let input = of(&self.input, AudioDirection::In, in_rate_hz, in_channels)?;
        let output = of(&self.output, AudioDirection::Out, out_rate_hz, out_channels)?;
        let kernel = [&input, &output].map(|device| matches!(device.back_end, AudioBackEnd::Kernel(_)));
        if self.is_on && kernel == [true, true] && self.channels.is_some() {
            warnings.push("`--local-channels` has no effect on cards of `kernel:`: all their channels are used".into());
        }
        let mut echo = self.echo.unwrap_or_default();
        if self.is_on && echo == LocalEcho::Cancel && are_two_cards(&input.back_end, &output.back_end) {
            let then = match self.echo {
                Some(_) => "the bot may interrupt itself: take `--local-echo half`",
                None => "it is `--local-echo half`: callers cannot interrupt the bot by voice",
            };
            warnings.push(format!(
                "`--local-in` and `--local-out` are two cards, whose clocks drift apart, and `--local-echo aec` needs \
                 one card with both; {then}"
            ));
            echo = self.echo.unwrap_or(LocalEcho::Half);
        }
        let config = LocalConfig {
            types: self.types,
            input,
            output,
            start: self.start,
            wake,
            end: self.end,
            stop_words: self.stop_words.clone().unwrap_or_default(),
            echo,
            tones: self.tones,
            keys: self.keys.clone(),
            volume_percent: self.volume_percent.unwrap_or(VOLUME_MAX),
            hook: self.hook.as_deref().map(hook).transpose()?,
            bot: self.bot.clone(),
        };
        if !self.is_on {
            if self != LocalOptions::default() {
                warnings.push("the options `--local-*` have no effect without `--local`".into());
            }
            return Ok(None);
        }
        if is_direct {
            warnings.push("`--local` has no effect with `--direct`, which runs one bot in one room".into());
            return Ok(None);
        }
        Ok(Some(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(options: LocalOptions) -> (Option<LocalConfig>, Vec<String>) {
        let mut warnings = Vec::new();
        let config = options.resolve(false, &mut warnings).expect("valid");
        (config, warnings)
    }

    #[test]
    fn the_defaults_are_the_default_device_and_a_canceller() {
        let on = LocalOptions {
            is_on: true,
            ..LocalOptions::default()
        };
        let (config, warnings) = resolve(on);
        let config = config.expect("on");
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!((config.input.rate_hz, config.output.channels), (16_000, 1));
        assert_eq!((config.start, config.end, config.echo), (None, None, LocalEcho::Cancel));
        assert_eq!(
            (&*config.input.back_end.name(), &*config.output.back_end.name()),
            ("arecord", "aplay")
        );
    }

    /// The canceller follows one clock.
    #[test]
    fn two_cards_are_half_duplex_unless_the_canceller_is_asked_for() {
        let with = |input: &str, echo| LocalOptions {
            is_on: true,
            input: Some(input.into()),
            output: Some("plughw:CARD=Headphones".into()),
            echo,
            ..LocalOptions::default()
        };
        for (input, echo, expected, words) in [
            ("hw:CARD=Webcam", None, LocalEcho::Half, "it is `--local-echo half`"),
            (
                "hw:CARD=Webcam",
                Some(LocalEcho::Cancel),
                LocalEcho::Cancel,
                "may interrupt itself",
            ),
            ("hw:CARD=Webcam", Some(LocalEcho::Off), LocalEcho::Off, ""),
            ("hw:CARD=Headphones", None, LocalEcho::Cancel, ""),
        ] {
            let (config, warnings) = resolve(with(input, echo));
            assert_eq!(config.map(|config| config.echo), Some(expected), "{input} {echo:?}");
            assert_eq!(warnings.len(), usize::from(!words.is_empty()), "{warnings:?}");
            assert!(warnings.iter().all(|warning| warning.contains(words)), "{warnings:?}");
        }
    }

    #[test]
    fn nothing_is_on_without_the_switch() {
        assert_eq!(resolve(LocalOptions::default()), (None, Vec::new()));
        let idle = LocalOptions {
            end: Some(Duration::from_secs(3)),
            ..LocalOptions::default()
        };
        let (config, warnings) = resolve(idle);
        assert_eq!(config, None);
        assert!(warnings[0].contains("`--local-*` have no effect"), "{warnings:?}");
        let on = LocalOptions {
            is_on: true,
            ..LocalOptions::default()
        };
        let mut warnings = Vec::new();
        assert_eq!(on.resolve(true, &mut warnings), Ok(None));
        assert!(warnings[0].contains("--direct"), "{warnings:?}");
    }

    #[test]
    fn who_types_begins_without_a_sound() {
        let with = |start| LocalOptions {
            is_on: true,
            types: true,
            start,
            ..LocalOptions::default()
        };
        let (config, _) = resolve(with(Some(LocalStart::Key)));
        assert!(config.is_some_and(|config| config.types));
        for start in [LocalStart::Speech, LocalStart::Wake] {
            let error = with(Some(start)).resolve(false, &mut Vec::new()).expect_err("no sound");
            assert!(error.to_string().contains("nothing is recorded"), "{error}");
        }
    }

    #[test]
    fn a_wake_word_has_a_service() {
        let with = |start, url: Option<&str>| LocalOptions {
            is_on: true,
            start,
            wake: url.map(|url| wake_server(url).expect("a server")),
            ..LocalOptions::default()
        };
        let server = |config: Option<LocalConfig>| {
            let wake = config.and_then(|config| config.wake);
            wake.map(|wake| (wake.server.text().to_owned(), wake.words.len()))
        };
        let (config, warnings) = resolve(with(Some(LocalStart::Wake), None));
        assert_eq!(
            (server(config), warnings.len()),
            (Some(("127.0.0.1:10400".into(), 0)), 0)
        );
        let (config, _) = resolve(with(Some(LocalStart::Wake), Some("tcp://nas:10401")));
        assert_eq!(server(config), Some(("nas:10401".into(), 0)));
        let (config, warnings) = resolve(with(None, Some("tcp://nas:10401")));
        assert_eq!(server(config), None);
        assert!(warnings[0].contains("need `--local-start wake`"), "{warnings:?}");
        assert!(wake_server("http://nas:10400").is_err() && wake_server("tcp://nas").is_err());
        assert_eq!(wake_words("ok_nabu, alexa").map(|words| words.len()).ok(), Some(2));
        for wrong in ["", "a,", "a,\n", "1,2,3,4,5,6,7,8,9", &"a".repeat(65)] {
            assert!(wake_words(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_command_is_rejected_by_its_option() {
        let wrong = LocalOptions {
            output: Some("aplay 'x".into()),
            ..LocalOptions::default()
        };
        let error = wrong.resolve(false, &mut Vec::new()).expect_err("an open quote");
        assert!(error.to_string().contains("--local-out"), "{error}");
        let wrong = LocalOptions {
            hook: Some(String::new()),
            ..LocalOptions::default()
        };
        let error = wrong.resolve(false, &mut Vec::new()).expect_err("no program");
        assert!(error.to_string().contains("--local-hook"), "{error}");
    }

    #[test]
    fn keys_are_files() {
        assert_eq!(
            key_files("/dev/input/event0, /tmp/b").map(|files| files.len()).ok(),
            Some(2)
        );
        for wrong in ["", "event0", "/a,", "/a,/b,/c,/d,/e"] {
            assert!(key_files(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_and_channels_are_one_number_or_two() {
        assert_eq!(pair("48000", 8_000, 48_000), Ok((48_000, 48_000)));
        assert_eq!(pair("16000:22050", 8_000, 48_000), Ok((16_000, 22_050)));
        for wrong in ["", ":", "7999", "16000:", "16000:96000", "1:2:3"] {
            assert!(pair(wrong, 8_000, 48_000).is_err(), "{wrong}");
        }
    }
}
