//! Bots in Python by the name of their file: the interpreter, and the package that runs the file.
//!
//! In: the configuration. Out: the command, and the text for its standard input: the package
//! `edge_runner` of the folder `python`, which Python imports from memory. So the runner writes no
//! file, and the bot's own environment needs no package of ours. With `--bot-audio pcm` the
//! standard input is the audio, and the file runs as it is.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use edge_runner_http::script::is_executable;
use serde_json::json;

use super::sandbox::Sandbox;
use super::{CommandError, check};
use crate::config::{BotAudio, Config, Host, PythonBot, Secret, Transport};

/// The package, as `src/build/page.rs` packs it.
const PACKAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/edge_runner.py"));
/// The interpreter when no environment has one.
const INTERPRETER: &str = "python3";
/// The variable with options of the runner, as JSON.
const OPTIONS: &str = "EDGE_RUNNER_OPTIONS";
/// Reads the package from a socket, which has messages behind it.
const LOADER: &str = "import sys
stream = open(0, 'rb', 0, closefd=False)
length, program = int(stream.readline()), b''
while len(program) < length:
    program += stream.read(length - len(program)) or sys.exit(1)
exec(compile(program, '<edge_runner>', 'exec'))";
/// What a bot for Pipecat's own runner imports.
const PIPECATS_RUNNER: &str = "pipecat.runner.run";

/// Returns the package for the standard input of the program of this configuration.
pub fn package(config: &Config) -> Option<&'static str> {
    (config.python_bot.is_some() && config.bot_audio == BotAudio::Protobuf).then_some(PACKAGE)
}

/// Returns the command that runs the program of the configuration in this folder: the command after
/// `--`, or an interpreter with the file of a bot.
pub fn command(config: &Config, command: &[OsString], folder: Option<&Path>) -> Vec<OsString> {
    let Some(bot) = &config.python_bot else {
        return command.to_vec();
    };
    let file = folder
        .unwrap_or(Path::new(""))
        .join(command.first().map_or("".as_ref(), Path::new));
    let mut words = vec![interpreter(bot, &file)];
    // Reads the program from the standard input.
    words.extend(package(config).map(|_| "-".into()));
    words.extend_from_slice(command);
    words
}

/// Returns the variables of the bot: those of the configuration, and for a bot of Pipecat's own
/// runner options that it may read, under their names there, and the names of the providers of
/// telephone calls.
pub fn environment(config: &Config) -> Vec<(String, Secret)> {
    let mut variables = config.bot_environment.clone();
    if package(config).is_some() {
        let host = match config.host {
            Host::Localhost => "localhost".to_owned(),
            Host::Address(address) => address.to_string(),
        };
        let folder = config.downloads_dir.as_ref();
        let providers = Transport::ALL.into_iter().filter_map(Transport::provider);
        let providers: BTreeMap<_, _> = providers
            .map(|provider| (provider.wire_name(), provider.vendor()))
            .collect();
        let options = json!({
            "host": host,
            "port": config.port,
            "transport": config.transport.map(Transport::common_name),
            "downloads_folder": folder.map(|folder| std::path::absolute(folder).unwrap_or(folder.clone())),
            "providers": providers,
        });
        variables.push((OPTIONS.to_owned(), Secret::new(options.to_string())));
    }
    variables
}

/// Returns the command of a process that loads the bot before its calls.
pub fn warm_command(config: &Config, command: &[OsString], folder: Option<&Path>) -> Vec<OsString> {
    let mut words = self::command(config, command, folder);
    if package(config).is_some() {
        words[1] = "-c".into();
        words.insert(2, LOADER.into());
    }
    words
}

/// Chooses the interpreter: the given one, that of the active environment, of `.venv` beside the
/// file, or beside the runner, and else the first in PATH.
fn interpreter(bot: &PythonBot, file: &Path) -> OsString {
    if let Some(given) = &bot.interpreter {
        return given.into();
    }
    let active = std::env::var_os("VIRTUAL_ENV").filter(|folder| !folder.is_empty());
    let own = std::env::current_exe().ok();
    let folder = file.parent().unwrap_or(Path::new(""));
    let found = candidates(active.map(PathBuf::from), folder, own.as_deref())
        .into_iter()
        .find(|candidate| is_executable(candidate));
    found.map_or_else(
        || INTERPRETER.into(),
        |found| std::path::absolute(&found).unwrap_or(found).into(),
    )
}

fn candidates(active: Option<PathBuf>, folder: &Path, own: Option<&Path>) -> Vec<PathBuf> {
    let of_environment = |folder: PathBuf| folder.join("bin").join(INTERPRETER);
    let beside_runner = own.and_then(Path::parent).map(|folder| folder.join(INTERPRETER));
    active
        .into_iter()
        .chain([folder.join(".venv")])
        .map(of_environment)
        .chain(beside_runner)
        .collect()
}

/// Checks before the first session that the file of a bot is there and has an interpreter.
///
/// # Errors
/// [`CommandError`] if not.
pub fn check_file(file: &OsStr, command: &[OsString], folder: Option<&Path>) -> Result<(), CommandError> {
    check(&command[..1], folder)?;
    match folder.unwrap_or(Path::new("")).join(file).is_file() {
        true => Ok(()),
        false => Err(CommandError::NoScript {
            script: file.display().to_string(),
            folder: folder.map_or_else(
                || "the working directory".to_owned(),
                |folder| folder.display().to_string(),
            ),
        }),
    }
}

/// Returns the file of a bot for Pipecat's own runner that a command after `--` would run by
/// itself.
pub fn pipecat_file(command: &[OsString], folder: Option<&Path>) -> Option<PathBuf> {
    let (program, arguments) = command.split_first()?;
    let is_python = Path::new(program).file_name()?.to_str()?.starts_with("python");
    let file = Path::new(crate::proto::process::script(arguments)?);
    let text = fs::read_to_string(folder.unwrap_or(Path::new("")).join(file)).ok()?;
    (is_python && text.contains(PIPECATS_RUNNER)).then(|| file.to_owned())
}

/// Runs the imports of a bot with this interpreter, in the sandbox if its sessions are, and returns
/// the report of the package, one line of JSON. Blocks.
///
/// # Errors
/// The system's error, that of the sandbox, or one with the last line of the interpreter.
pub fn examine(config: &Config, interpreter: &OsStr, file: &OsStr) -> io::Result<String> {
    let sandbox = Sandbox::new(config);
    if let Some(sandbox) = &sandbox {
        sandbox
            .check(config.settings_page.as_deref())
            .map_err(io::Error::other)?;
    }
    let mut words = sandbox.as_ref().map(Sandbox::launcher).unwrap_or_default();
    words.extend([interpreter, OsStr::new("-"), file].map(OsStr::to_owned));
    let mut process = Command::new(&words[0]);
    process.args(&words[1..]);
    let folder = sandbox.as_ref().map(Sandbox::working_dir);
    if let Some(folder) = folder.or(config.bot_folder.as_deref()) {
        process.current_dir(folder);
    }
    for name in &config.withheld {
        process.env_remove(name);
    }
    process.envs(
        config
            .bot_environment
            .iter()
            .map(|(name, value)| (name, value.expose())),
    );
    let mut process = process
        .env("EDGE_RUNNER_CHECK", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = process.stdin.take() {
        stdin.write_all(PACKAGE.as_bytes())?;
    }
    let output = process.wait_with_output()?;
    let last = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .trim_end()
            .lines()
            .last()
            .map(str::to_owned)
    };
    match last(&output.stdout) {
        Some(report) if output.status.success() => Ok(report),
        _ => Err(io::Error::other(
            last(&output.stderr).unwrap_or(output.status.to_string()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_environment_has_the_interpreter() {
        let own = Path::new("/opt/venv/bin/edge-runner");
        let found = candidates(Some("/active".into()), Path::new("bots"), Some(own));
        let expected = ["/active/bin/python3", "bots/.venv/bin/python3", "/opt/venv/bin/python3"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn the_command_of_a_file_names_the_interpreter_and_reads_the_package() {
        let bot = |interpreter: Option<&str>| {
            crate::proto::config! {
                python_bot: Some(PythonBot {
                    interpreter: interpreter.map(PathBuf::from),
                }),
                ..Config::default()
            }
        };
        let given = ["bot.py", "--name", "Ada"].map(OsString::from);
        let config = bot(Some("/py"));
        assert_eq!(command(&config, &given, None), ["/py", "-", "bot.py", "--name", "Ada"]);
        let warm = warm_command(&config, &given, None);
        assert_eq!(warm[..2], ["/py", "-c"]);
        assert_eq!(warm[3..], given);
        assert!(package(&config).is_some_and(|package| package.len() < 64 * 1024));
        let pcm = crate::proto::config! {
            bot_audio: BotAudio::Pcm { rate_hz: 8_000 },
            ..bot(Some("/py"))
        };
        assert_eq!(command(&pcm, &given, None), ["/py", "bot.py", "--name", "Ada"]);
        assert_eq!(package(&pcm), None);
        assert_eq!(command(&Config::default(), &given, None), given);
    }

    #[test]
    fn a_bot_learns_of_options_of_the_runner() {
        let config = crate::proto::config! {
            python_bot: Some(PythonBot::default()),
            host: Host::Address("192.0.2.7".parse().expect("an address")),
            port: 80,
            transport: Transport::from_name("mediaroom"),
            downloads_dir: Some("/srv/out".into()),
            ..Config::default()
        };
        let variables = environment(&config);
        let [(name, options)] = &*variables else {
            panic!("one variable");
        };
        let mut options: serde_json::Value = serde_json::from_str(options.expose()).expect("JSON");
        let providers = options["providers"].take();
        assert_eq!(
            (&providers["telephony_a"], &providers["telephony_d"]),
            (&json!("twilio"), &json!("exotel"))
        );
        options.as_object_mut().expect("an object").remove("providers");
        let expected = json!({"host": "192.0.2.7", "port": 80, "transport": "livekit", "downloads_folder": "/srv/out"});
        assert_eq!((&**name, options), (OPTIONS, expected));
        assert!(environment(&Config::default()).is_empty(), "no file in Python");
    }

    #[test]
    fn finds_bots_for_pipecats_own_runner() {
        let folder = std::env::temp_dir().join(format!("edge-runner-python-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let file = "pipecat_file_for_its_own_runner.py";
        fs::write(folder.join(file), "from pipecat.runner.run import main\nmain()\n").expect("a file");
        let found = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            pipecat_file(&words, Some(&folder))
        };
        assert_eq!(found(&["/usr/bin/python3.11", file, "-t", "webrtc"]), Some(file.into()));
        assert_eq!(found(&["node", file]), None);
        assert_eq!(found(&["python3", "missing.py"]), None);
        fs::remove_dir_all(&folder).expect("the folder is there");
    }
}
