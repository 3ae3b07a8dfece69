//! The arguments of `edge-runner call`.
//!
//! In: the arguments after `call`. Out: a [`CallConfig`], or the text of its help. What the caller
//! does follows the order of the options. It reads no variables, which are the runner's, but the
//! credentials with which `--proxy` signs.

use std::ffi::OsString;
use std::time::Duration;

use edge_runner_http::startup::{EXIT_USAGE, StartupError};

use super::command::{CommandRow, CommandStart, CommandTask, ParsedCommand, begin, complete, failure};
use super::flags::EVAL;
use super::{Env, ProgramIdentity, UsageError, version_text};
use crate::config::{AlsaDefault, Secret, Transport};
use crate::features::Feature;
use crate::io::call::{CallConfig, CallsError};
use crate::proto::caller::plan::{StepSource, keys, seconds, text, words};
use crate::proto::caller::target::CallTarget;
use crate::proto::caller::{CALL_SECONDS_MAX, CALLS_MAX, CallExpectations, SOUND_SECONDS_MAX, STEPS_MAX};
use crate::proto::local::options::{LocalOptions, echo};
use crate::proto::modules::{
    PHONE_TRANSPORT, PhoneCallOptions, ROOM_EXAMPLE, ROOM_URL, RoomCallOptions, phone_example, room_access,
    webhook_call,
};
use crate::proto::options::help::{entries, entry, paragraph};
use crate::proto::options::{
    CALLS, Expected, Flag, FlagKind, OptionStore, OptionTable, SpecialMode, flag, need, number, parse, push, put,
};

/// The row of `commands`.
pub(super) const COMMAND: Option<&CommandRow> = Some(&CommandRow {
    name: "call",
    parse: |program, arguments, env| Ok(command(program, arguments, env)?.into()),
    help_of: None,
});

/// How long the bot has to be quiet before the caller hangs up, without and with expectations.
const LISTENS: Duration = Duration::from_secs(5);
const LISTENS_EXPECTING: Duration = Duration::from_secs(1);
/// The program that speaks texts.
const SAY_COMMAND: &str = "espeak-ng --stdin --stdout";
const SPEAKS: &str = "What the caller does, in this order";
const KEEPS: &str = "What it keeps";
const EXPECTS: &str = "What it expects";

#[derive(Debug, Default)]
struct CallArgs {
    transport: Option<Transport>,
    is_eval: bool,
    api_key: Option<Secret>,
    phone: PhoneCallOptions,
    room: RoomCallOptions,
    steps: Vec<StepSource>,
    scenario: Option<String>,
    say_command: Option<String>,
    local: LocalOptions,
    record: Option<String>,
    events: Option<String>,
    junit: Option<String>,
    json: bool,
    expect: CallExpectations,
    hang_up_after: Option<Duration>,
    timeout: Option<Duration>,
    calls: Option<u64>,
    ramp: Option<Duration>,
    verbosity: u8,
    given: Vec<&'static str>,
    argument: Option<OsString>,
}

impl AsMut<PhoneCallOptions> for CallArgs {
    fn as_mut(&mut self) -> &mut PhoneCallOptions {
        &mut self.phone
    }
}

impl AsMut<RoomCallOptions> for CallArgs {
    fn as_mut(&mut self) -> &mut RoomCallOptions {
        &mut self.room
    }
}

impl OptionStore for CallArgs {
    fn given(&mut self) -> &mut Vec<&'static str> {
        &mut self.given
    }

    fn argument(&mut self) -> &mut Option<OsString> {
        &mut self.argument
    }
}

fn transport(text: &str) -> Result<Transport, Expected> {
    Transport::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Transport::ALL
            .into_iter()
            .map(Transport::common_name)
            .chain([EVAL])
            .collect();
        Expected::one_of(text, &names, &[])
    })
}

static CALL: OptionTable<CallArgs> = OptionTable {
    prefix: "",
    argument: Some("URL"),
    own_variable_first: false,
    modules: &[TARGET, Flag::PHONE_CALL, Flag::ROOM_CALL, CALLER],
};

/// Whom the caller calls, and how.
const TARGET: &[Flag<CallArgs>] = &[
    flag(
        "--transport",
        FlagKind::Value("T", |args: &mut CallArgs, text| {
            args.is_eval = text == EVAL;
            args.transport = match args.is_eval {
                true => None,
                false => Some(transport(&text)?),
            };
            Ok(())
        }),
        CALLS,
        "How to call, where the URL does not say it: {transports}, eval for the handshake of `pipecat eval`, or \
         {phones}. [default: webrtc]",
    )
    .short('t'),
    flag(
        "--api-key",
        FlagKind::Value("KEY", |args, text| put(&mut args.api_key, Secret::new(text))),
        CALLS,
        "The key of a runner with --api-key.",
    ),
];

/// What the caller does.
const CALLER: &[Flag<CallArgs>] = &[
    flag(
        "--wav",
        FlagKind::Repeatable("FILE", |args, text| push(&mut args.steps, StepSource::Wav(text))),
        SPEAKS,
        "Play a WAV file of 16-bit PCM, at any rate and with 1 to 8 channels, of at most 10 minutes.",
    ),
    flag(
        "--say",
        FlagKind::Repeatable("TEXT", |args, given| {
            push(&mut args.steps, StepSource::Say(text(given)?))
        }),
        SPEAKS,
        "Speak a text, with the command of --say-command.",
    ),
    flag(
        "--silence",
        FlagKind::Repeatable("SECONDS", |args, text| {
            push(&mut args.steps, StepSource::Silence(seconds(&text, SOUND_SECONDS_MAX)?))
        }),
        SPEAKS,
        "Be silent, at most 600 s.",
    ),
    flag(
        "--keys",
        FlagKind::Repeatable("KEYS", |args, text| {
            push(&mut args.steps, StepSource::Keys(keys(&text)?))
        }),
        SPEAKS,
        "Press keys of a telephone, such as 12#, one each 0.2 s.",
    ),
    flag(
        "--text",
        FlagKind::Repeatable("TEXT", |args, given| {
            push(&mut args.steps, StepSource::Text(text(given)?))
        }),
        SPEAKS,
        "Send a text, as typed by a user.",
    ),
    flag(
        "--scenario",
        FlagKind::Value("FILE", |args, text| put(&mut args.scenario, text)),
        SPEAKS,
        "Play a file of steps with their expectations, in TOML, in place of these options and of those of what is expected.",
    ),
    flag(
        "--say-command",
        FlagKind::Value("COMMAND", |args, text| put(&mut args.say_command, text)),
        SPEAKS,
        "The shell command that speaks: it reads the text from its standard input and writes a WAV file to its standard \
             output. [default: espeak-ng --stdin --stdout]",
    ),
    flag(
        "--local",
        FlagKind::Switch(|args: &mut CallArgs| args.local.is_on = true),
        SPEAKS,
        "Talk: when the other steps are over, the microphone of this machine speaks until Ctrl-C or the bot ends the \
         call, which takes at most an hour; its loudspeaker plays the bot.",
    ),
    flag(
        "--local-in",
        FlagKind::Value("COMMAND|DEVICE", |args, text| put(&mut args.local.input, text)),
        SPEAKS,
        "The microphone, as for the runner: a device of --local-list, or a command that writes 16-bit PCM, mono at \
         16 kHz. [default: default]",
    ),
    flag(
        "--local-out",
        FlagKind::Value("COMMAND|DEVICE", |args, text| put(&mut args.local.output, text)),
        SPEAKS,
        "The loudspeaker, as for the runner. [default: default]",
    ),
    flag(
        "--local-echo",
        FlagKind::Value("aec|half|off", |args, text| put(&mut args.local.echo, echo(&text)?)),
        SPEAKS,
        "What keeps the bot from hearing itself, as for the runner: `off` for headsets. [default: aec, or half on \
         processors of 32 bits]",
    ),
    flag(
        "--record",
        FlagKind::Value("FILE", |args, text| put(&mut args.record, text)),
        KEEPS,
        "Write a stereo WAV file at 16 kHz, at most an hour: the caller is left, the bot is right.",
    ),
    flag(
        "--events",
        FlagKind::Value("FILE", |args, text| put(&mut args.events, text)),
        KEEPS,
        "Write a JSON line for everything that happens: `call`, `time` in seconds since the caller dialled, `event`.",
    ),
    flag(
        "--junit",
        FlagKind::Value("FILE", |args, text| put(&mut args.junit, text)),
        KEEPS,
        "Write a report in the XML of JUnit: a test case for each step of a scenario, or for each call.",
    ),
    flag(
        "--json",
        FlagKind::Switch(|args: &mut CallArgs| args.json = true),
        KEEPS,
        "Print these lines in place of the transcript.",
    ),
    flag(
        "--expect-text",
        FlagKind::Repeatable("WORDS", |args, text| push(&mut args.expect.texts, words(&text)?)),
        EXPECTS,
        "The bot says or shows these words, in any case; `*` is any text, `|` separates alternatives.",
    ),
    flag(
        "--expect-speech",
        FlagKind::Switch(|args: &mut CallArgs| args.expect.speech = true),
        EXPECTS,
        "At least 0.3 s of sound of the bot.",
    ),
    flag(
        "--expect-latency",
        FlagKind::Value("SECONDS", |args, text| {
            put(&mut args.expect.latency, seconds(&text, CALL_SECONDS_MAX)?)
        }),
        EXPECTS,
        "Each answer begins at most this long after the end of the caller's sound, and the last sound has an answer.",
    ),
    flag(
        "--timeout",
        FlagKind::Value("SECONDS", |args, text| {
            put(&mut args.timeout, seconds(&text, CALL_SECONDS_MAX)?)
        }),
        CALLS,
        "The longest call, at most an hour. [default: that of the scenario, or 60]",
    ),
    flag(
        "--hang-up-after",
        FlagKind::Value("SECONDS", |args, text| {
            put(&mut args.hang_up_after, seconds(&text, CALL_SECONDS_MAX)?)
        }),
        CALLS,
        "Hang up when all is done, every expectation is met, and the bot was quiet for this long. [default: 1 with an \
             expectation or a scenario, else 5]",
    ),
    flag(
        "--calls",
        FlagKind::Value("N", |args, text| put(&mut args.calls, number(&text, 1, CALLS_MAX)?)),
        CALLS,
        "Make several calls at a time, at most 500, and print percentiles. [default: 1]",
    ),
    flag(
        "--ramp",
        FlagKind::Value("SECONDS", |args, text| {
            put(&mut args.ramp, seconds(&text, CALL_SECONDS_MAX)?)
        }),
        CALLS,
        "Spread the begin of the calls over this time. [default: 0]",
    ),
    flag(
        "--verbose",
        FlagKind::Count(|args: &mut CallArgs| args.verbosity = args.verbosity.saturating_add(1)),
        CALLS,
        "Log more on stderr.",
    )
    .short('v'),
    flag("--help", FlagKind::Help, CALLS, "Print this help.").short('h'),
    flag("--version", FlagKind::Version, CALLS, "Print the version.").short('V'),
];

/// Parses the arguments after `call`.
fn command(
    program: &ProgramIdentity,
    arguments: Vec<OsString>,
    env: &Env<'_>,
) -> Result<ParsedCommand<CallerRun>, UsageError> {
    let mut args = CallArgs::default();
    match parse(&mut args, &CALL, arguments)? {
        Some(SpecialMode::Help | SpecialMode::ShortHelp) => return Ok(ParsedCommand::Text(help(program))),
        Some(SpecialMode::Version) => return Ok(ParsedCommand::Text(version_text(program))),
        None => {}
    }
    let combination = |text: String| UsageError::Combination(text);
    let url = args.argument.as_ref().map(|url| url.to_string_lossy().into_owned());
    let url = url.ok_or_else(|| combination("`call` needs a URL, such as http://localhost:7860".into()))?;
    let target = match args.is_eval {
        true => CallTarget::eval(&url),
        false => CallTarget::parse(&url, args.transport),
    };
    let target = target.map_err(combination)?;
    if args.scenario.is_some() && !(args.steps.is_empty() && args.expect.is_empty()) {
        return Err(combination(
            "`--scenario` has the steps and what is expected in its file: leave out the other options of both".into(),
        ));
    }
    if args.steps.len() > STEPS_MAX {
        return Err(combination(format!("`call` takes at most {STEPS_MAX} steps")));
    }
    if args.expect.latency.is_some() && !args.steps.iter().any(StepSource::is_sound) {
        return Err(combination(
            "`--expect-latency` needs a sound of the caller to count from: `--wav FILE` or `--say TEXT`".into(),
        ));
    }
    target.check(&args.steps, &args.expect).map_err(combination)?;
    let webhook = webhook_call(&args.phone, &target, &env.variables)?;
    let calls = args.calls.unwrap_or(1);
    let room = room_access(&args.room, &target, calls, &env.variables)?;
    if calls > 1 && args.record.is_some() {
        return Err(combination("`--record` takes one call: leave out `--calls`".into()));
    }
    let is_local = args.local.is_on;
    if is_local {
        need("`--local`", Feature::Local)?;
        if calls > 1 {
            return Err(combination("`--local` takes one call: leave out `--calls`".into()));
        }
        if args.is_eval {
            return Err(combination("an evaluation carries texts, and `--local` speaks".into()));
        }
    } else if args.local != LocalOptions::default() {
        return Err(combination(
            "`--local-in`, `--local-out` and `--local-echo` need `--local`".into(),
        ));
    }
    let mut warnings = Vec::new();
    let local = args.local.resolve(false, &mut warnings)?;
    let longest = is_local.then_some(Duration::from_secs(CALL_SECONDS_MAX));
    let listens = match args.expect.is_empty() && args.scenario.is_none() {
        true => LISTENS,
        false => LISTENS_EXPECTING,
    };
    let config = CallConfig {
        target,
        api_key: args.api_key,
        webhook,
        room,
        steps: args.steps,
        scenario: args.scenario.map(Into::into),
        say_command: args.say_command.unwrap_or_else(|| SAY_COMMAND.into()),
        local: local.map(|local| local.with_default(&AlsaDefault::of(&env.variables))),
        expect: args.expect,
        longest: args.timeout.or(longest),
        hang_up_after: args.hang_up_after.unwrap_or(listens),
        record: args.record.map(Into::into),
        events: args.events.map(Into::into),
        junit: args.junit.map(Into::into),
        prints_json: args.json,
        calls,
        ramp: args.ramp.unwrap_or_default(),
    };
    Ok(ParsedCommand::Task(CallerRun {
        config,
        warnings,
        verbosity: args.verbosity,
    }))
}

/// Calls to a runner.
#[derive(Debug)]
struct CallerRun {
    config: CallConfig,
    warnings: Vec<String>,
    verbosity: u8,
}

impl CommandTask for CallerRun {
    fn run(self: Box<Self>, start: &CommandStart<'_>) -> Result<(), StartupError> {
        begin(self.verbosity, start);
        for warning in &self.warnings {
            log::warn!("{warning}");
        }
        let called = complete(None, crate::io::call::run(self.config, crate::io::modules::call_row))?;
        called.map_err(|error| match error {
            CallsError::Unusable(message) => StartupError {
                code: EXIT_USAGE,
                message,
            },
            CallsError::Failed(message) => failure(message),
        })
    }
}

/// Returns the text of `call --help`.
fn help(program: &ProgramIdentity) -> String {
    let name = &program.name;
    let mut text = format!("Usage: {name} call URL [OPTIONS]\n\n");
    paragraph(
        &mut text,
        &format!(
            "Calls a bot: speaks, presses keys and sends texts, and prints what the bot says. URL is the address of a \
             runner, such as http://localhost:7860, which is called over WebRTC; a path selects another endpoint: \
             /api/offer and /whip of WebRTC, or ws://localhost:7860/ws-client for plain clients; {ROOM_URL}. Pipecat's \
             runner can be called as well."
        ),
    );
    let transports = transports();
    for group in [SPEAKS, KEEPS, EXPECTS, CALLS] {
        text.push_str(&format!("\n{group}:\n"));
        entries(&mut text, CALL.flags().filter(|flag| flag.group == group), |flag| {
            let help = flag.help.replace("{transports}", &transports);
            help.replace("{phones}", PHONE_TRANSPORT)
        });
    }
    text.push_str("\nExit codes:\n");
    for (code, help) in [
        ("  0", "Everything expected has happened."),
        (
            "  1",
            "An expectation was not met, or a connection was lost: stderr says which.",
        ),
        (
            "  2",
            "Usage error, a file that cannot be used, or no call was answered.",
        ),
    ] {
        entry(&mut text, code, help);
    }
    text.push_str(&format!(
        "\nExamples:\n  {name} call ws://localhost:7860/ws-client --text hello --expect-text hello\n"
    ));
    text.push_str(&format!(
        "  {name} call http://localhost:7860 --say 'Good morning' --expect-latency 2\n"
    ));
    text.push_str(&format!("  {name} call http://localhost:7860 {ROOM_EXAMPLE}\n"));
    text.push_str(&format!(
        "  {name} call http://localhost:7860 --scenario booking.toml --junit report.xml\n"
    ));
    text.push_str(&format!("  {name} call http://localhost:7860 {}\n", phone_example()));
    text
}

/// Returns the names of the transports, and what those are for that do not say it.
fn transports() -> String {
    let named = Transport::CALLABLE.map(|transport| match transport.call_purpose() {
        Some(purpose) => format!("{} {purpose}", transport.common_name()),
        None => transport.common_name().to_owned(),
    });
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LocalEcho;
    use crate::proto::caller::target::RoomAccess;
    use crate::proto::options::env::Variables;

    const URL: &str = "ws://localhost:7860/ws-client";

    fn parsed(arguments: &[&str]) -> Result<ParsedCommand<CallerRun>, UsageError> {
        let env = Env {
            variables: Variables::new(
                [
                    ("TWILIO_ACCOUNT_SID", "AC1"),
                    ("TWILIO_AUTH_TOKEN", "t"),
                    ("LIVEKIT_API_KEY", "devkey"),
                    ("LIVEKIT_API_SECRET", "hush"),
                ]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
                [],
            ),
            addresses: Vec::new(),
            names: Vec::new(),
            read: &|_| Err(std::io::ErrorKind::NotFound.into()),
            make_key: &|_| Err(std::io::ErrorKind::NotFound.into()),
            lookup_host: &|_| Vec::new(),
        };
        let arguments = arguments.iter().map(OsString::from).collect();
        command(&ProgramIdentity::stock(), arguments, &env)
    }

    fn config(arguments: &[&str]) -> CallConfig {
        match parsed(&[&[URL], arguments].concat()) {
            Ok(ParsedCommand::Task(task)) => task.config,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn steps_keep_their_order() {
        let steps = config(&[
            "--text",
            "a",
            "--silence=0.5",
            "--wav",
            "b.wav",
            "--keys",
            "1a#",
            "--say",
            "c",
        ])
        .steps;
        let expected = [
            StepSource::Text("a".into()),
            StepSource::Silence(Duration::from_millis(500)),
            StepSource::Wav("b.wav".into()),
            StepSource::Keys("1A#".into()),
            StepSource::Say("c".into()),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn the_caller_listens_longer_without_an_expectation() {
        let plain = config(&[]);
        assert_eq!((plain.longest, plain.hang_up_after, plain.calls), (None, LISTENS, 1));
        assert_eq!(config(&["--expect-speech"]).hang_up_after, LISTENS_EXPECTING);
        let scenario = config(&["--scenario", "a.toml", "--junit", "a.xml"]);
        assert_eq!(scenario.hang_up_after, LISTENS_EXPECTING);
        assert_eq!(
            (scenario.scenario, scenario.junit),
            (Some("a.toml".into()), Some("a.xml".into()))
        );
        assert_eq!(config(&["--hang-up-after", "3s"]).hang_up_after, Duration::from_secs(3));
        let many = config(&["--calls", "500", "--ramp", "2", "--timeout", "3600"]);
        assert_eq!((many.calls, many.ramp), (500, Duration::from_secs(2)));
    }

    /// Who talks hangs up when they like.
    #[test]
    fn a_caller_who_talks_has_an_hour() {
        let talks = config(&["--local", "--local-in", "hw:1", "--local-echo", "off", "--text", "hi"]);
        assert_eq!(talks.longest, Some(Duration::from_secs(3_600)));
        let card = talks.local.expect("a sound card");
        assert_eq!((card.input.rate_hz, card.echo), (16_000, LocalEcho::Off));
        let short = config(&["--local", "--timeout", "20"]);
        assert_eq!(short.longest, Some(Duration::from_secs(20)));
        assert_eq!(config(&[]).local, None);
    }

    #[test]
    fn says_what_is_wrong() {
        for (arguments, words) in [
            (&[][..], "needs a URL"),
            (&["localhost"], "is not a URL"),
            (&[URL, "--silence", "-1"], "seconds from 0 to 600"),
            (&[URL, "--silence", "601"], "seconds from 0 to 600"),
            (&[URL, "--timeout", "nan"], "seconds from 0 to 3600"),
            (&[URL, "--keys", "12x"], "keys of a telephone"),
            (&[URL, "--keys", ""], "keys of a telephone"),
            (&[URL, "--text", " "], "a text of at most"),
            (&[URL, "--expect-text", "*"], "alternatives"),
            (&[URL, "--expect-latency", "1"], "needs a sound"),
            (&[URL, "--calls", "501"], "500"),
            (&[URL, "--calls", "2", "--record", "a.wav"], "`--record` takes one call"),
            (&[URL, "--scenario", "a", "--text", "b"], "leave out the other options"),
            (
                &[URL, "--scenario", "a", "--expect-speech"],
                "leave out the other options",
            ),
            (&[URL, "--proxy", "a.example"], "`-t twilio`"),
            (&["ws://a/ws", "-t", "twilio", "--proxy", "a.example"], "`-t twilio`"),
            (&["http://a", "-t", "twilio", "--to", "+15550001111"], "`--proxy HOST`"),
            (&["http://a", "-t", "twilio", "--proxy", "a b"], "HOST or HOST:PORT"),
            (&["http://a", "-t", "twilio", "--to", "ann"], "a number such as"),
            (&["http://a", "-t", "eval", "--say", "a"], "an evaluation carries texts"),
            (
                &["http://a", "-t", "eval", "--expect-speech"],
                "an evaluation carries texts",
            ),
            (&[URL, "-t", "pigeon"], "websocket"),
            (&["ws://a/ws", "-t", "twilio", "--text", "a"], "sound and keys alone"),
            (
                &["http://a", "-t", "exotel", "--expect-text", "a"],
                "sound and keys alone",
            ),
            (&[URL, "-t", "webrtc"], "does not say how to call"),
            (&["http://a", "-t", "daily"], "cannot call by `daily`"),
            (&["http://a", "--room", "kitchen"], "`wss://HOST` and `-t livekit`"),
            (
                &["http://a", "-t", "livekit", "--token", "t"],
                "`wss://HOST` and `-t livekit`",
            ),
            (&["wss://a", "-t", "livekit"], "either `--room NAME`"),
            (
                &["wss://a", "-t", "livekit", "--room", "a", "--token", "t"],
                "either `--room NAME`",
            ),
            (&["wss://a", "-t", "livekit", "--room", ""], "a name of 1 to"),
            (&["wss://a", "-t", "livekit", "--token", "a b"], "without white space"),
            (
                &["wss://a", "-t", "livekit", "--token", "t", "--calls", "2"],
                "use `--room NAME`",
            ),
            (&["https://a/moq", "-t", "moq"], "takes the address of a runner"),
            (&[URL, "--local", "--calls", "2"], "`--local` takes one call"),
            (&[URL, "--local-in", "hw:1"], "need `--local`"),
            (&["http://a", "-t", "eval", "--local"], "an evaluation carries texts"),
            (&[URL, "--local", "--local-out", "aplay 'x"], "quotes are closed"),
        ] {
            let error = parsed(arguments).expect_err("wrong arguments").to_string();
            assert!(error.contains(words), "{arguments:?}: {error}");
        }
        let many = [URL.to_owned()]
            .into_iter()
            .chain((0..=STEPS_MAX).map(|_| "--silence=0".into()));
        let many: Vec<String> = many.collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(parsed(&many).is_err_and(|error| error.to_string().contains("at most 100 steps")));
    }

    #[test]
    fn a_webhook_has_the_credentials_of_its_provider() {
        let arguments = [
            "http://a",
            "-t",
            "twilio",
            "--proxy",
            "https://Bots.example.net/",
            "--to",
            "+15550001111",
        ];
        let Ok(ParsedCommand::Task(CallerRun { config, .. })) = parsed(&arguments) else {
            panic!("a call");
        };
        let webhook = config.webhook.expect("a webhook");
        assert_eq!(webhook.host, "bots.example.net");
        assert_eq!(webhook.numbers, [String::new(), "+15550001111".to_owned()]);
        assert!(webhook.settings.has(&["TELCO_A_ACCOUNT_SID", "TELCO_A_AUTH_TOKEN"]));
        assert!(!format!("{webhook:?}").contains("\"t\""), "{webhook:?}");
    }

    #[test]
    fn a_room_has_the_key_of_its_server_or_a_token() {
        let room = |options: &[&str]| match parsed(&[&["wss://a", "-t", "livekit"], options].concat()) {
            Ok(ParsedCommand::Task(CallerRun { config, .. })) => config.room,
            other => panic!("{other:?}"),
        };
        let by_key = room(&["--room", "kitchen", "--calls", "2"]);
        assert!(!format!("{by_key:?}").contains("hush"), "{by_key:?}");
        let Some(RoomAccess::Key {
            key,
            secret,
            room: name,
        }) = by_key
        else {
            panic!("{by_key:?}");
        };
        assert_eq!((&*key, secret.expose(), &*name), ("devkey", "hush", "kitchen"));
        let by_token = room(&["--token", "a.b.c"]);
        assert!(matches!(&by_token, Some(RoomAccess::Token(token)) if token.expose() == "a.b.c"));
    }

    #[test]
    fn the_help_has_every_option() {
        let Ok(ParsedCommand::Text(help)) = parsed(&["--help"]) else {
            panic!("a help");
        };
        for flag in CALL.flags() {
            assert!(help.contains(flag.long), "{}", flag.long);
        }
        assert!(help.starts_with("Usage: edge-runner call URL") && help.contains("Exit codes"));
    }
}
