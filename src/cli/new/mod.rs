//! `edge-runner new KIND NAME`: a folder with a bot, its test and a README, which work at once.
//!
//! In: the arguments after `new`. Out: the folder, or why there is none. What exists stays as it
//! is. The files are those below `kinds`, where they run as they are; a name takes the place of
//! `my-bot`. `next` is no file of the folder, but what to type in it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use edge_runner_http::startup::StartupError;
use miniz_oxide::inflate::decompress_to_vec;

use super::command::{CommandRow, CommandStart, CommandTask, ParsedCommand, failure};
use super::{ProgramIdentity, UsageError, completions};
use crate::proto::options::Expected;

/// The row of `commands`.
pub(super) const COMMAND: Option<&CommandRow> = Some(&CommandRow {
    name: "new",
    parse: |program, arguments, _| Ok(command(program, &arguments)?.into()),
    help_of: None,
});

/// The files of every kind, as `src/page/build.rs` packs them.
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/new.deflate"));
/// The name in the files.
const PLACEHOLDER: &str = "my-bot";
/// Characters of a name: crates and npm packages may have as many.
const NAME_CHARS_MAX: usize = 64;
/// Names that a crate with a program cannot have: cargo's folders, and the crate that it needs.
const NOT_FOR_RUST: [&str; 6] = ["build", "deps", "edge-runner", "edge_runner", "examples", "incremental"];

/// A bot to make.
#[derive(Debug)]
struct NewBot {
    kind: &'static str,
    name: String,
}

/// Parses the arguments after `new`.
fn command(program: &ProgramIdentity, arguments: &[OsString]) -> Result<ParsedCommand<NewBot>, UsageError> {
    if arguments.iter().any(|word| word == "--help" || word == "-h") {
        return Ok(ParsedCommand::Text(help(program)));
    }
    let [kind, name] = arguments else {
        return Err(UsageError::Combination(format!(
            "`new` needs a kind and a name, such as `{} new python {PLACEHOLDER}`",
            program.name
        )));
    };
    let (given, name) = (kind.to_string_lossy(), name.to_string_lossy());
    let Some(kind) = completions::KINDS.into_iter().find(|kind| *kind == given) else {
        let expected = Expected::one_of(&given, &completions::KINDS, &[]);
        return Err(UsageError::value("new", &given, expected));
    };
    match objection(kind, &name) {
        Some(wants) => Err(UsageError::value("new", &name, wants)),
        None => Ok(ParsedCommand::Task(NewBot {
            kind,
            name: name.into_owned(),
        })),
    }
}

/// Returns what is expected in place of a name that cannot be one of a folder, a crate and a
/// package of npm.
fn objection(kind: &str, name: &str) -> Option<&'static str> {
    let is_usable = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    let begins_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if name.contains('/') {
        Some("a name and not a path: the folder is made in the working directory")
    } else if !begins_well || name.len() > NAME_CHARS_MAX || !name.bytes().all(is_usable) {
        Some("a name of at most 64 lower-case letters, digits, `-` and `_`, with a letter first")
    } else if kind == "rust" && NOT_FOR_RUST.contains(&name) {
        Some("another name, since cargo needs this one")
    } else {
        None
    }
}

impl CommandTask for NewBot {
    fn run(self: Box<Self>, _: &CommandStart<'_>) -> Result<(), StartupError> {
        let text = self.make(Path::new("")).map_err(failure)?;
        // It is made, whether anybody reads that or not.
        let _ = io::stdout().write_all(text.as_bytes());
        Ok(())
    }
}

impl NewBot {
    /// Makes the folder below `parent`, and returns what to do with it.
    ///
    /// # Errors
    /// A sentence.
    fn make(&self, parent: &Path) -> Result<String, String> {
        let folder = parent.join(&self.name);
        let mut next = format!("Made `{}`. What to type next:\n\n  cd {}\n", self.name, self.name);
        let made = fs::create_dir(&folder).and_then(|()| {
            each_file(self.kind, &mut |path, text| {
                let text = text.replace(PLACEHOLDER, &self.name);
                match path {
                    "next" => next.push_str(&text),
                    _ => write(&folder.join(path), &text)?,
                }
                Ok(())
            })
        });
        match made {
            Ok(()) => Ok(next),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(format!(
                "there is a file or folder `{}` already, which stays as it is: choose another name, or move it away",
                self.name
            )),
            Err(error) => Err(format!(
                "cannot make the folder `{}` and its files: {error}. Remove what there is of it before you try again",
                self.name
            )),
        }
    }
}

/// Calls `take` with the path and the text of each file of a kind.
fn each_file(kind: &str, take: &mut dyn FnMut(&str, &str) -> io::Result<()>) -> io::Result<()> {
    // The build packs it, and a test unpacks it.
    let bytes = decompress_to_vec(PACKED).unwrap_or_default();
    let text = str::from_utf8(&bytes).unwrap_or_default();
    for file in text.split_terminator('\0') {
        if let Some((path, text)) = file.split_once('\n')
            && let Some((of, path)) = path.split_once('/')
            && of == kind
        {
            take(path, text)?;
        }
    }
    Ok(())
}

/// Writes a file that does not exist yet, and the folder that it is in.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::File::create_new(path)?.write_all(text.as_bytes())
}

/// Returns the text of `new --help`.
fn help(program: &ProgramIdentity) -> String {
    format!(
        "\
Usage: {} new KIND NAME

Makes the folder NAME in the working directory, with a bot that answers calls at once, a test that
calls it, and a README. The folder must not exist. Nothing is downloaded.

Kinds:
  python    a Python file, by the standard library alone
  pipecat   a Python file for Pipecat, which has to be installed
  node      a JavaScript file for Node 18 or later, without packages
  rust      a crate: the bot and the runner in one program
",
        program.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<ParsedCommand<NewBot>, UsageError> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        command(&ProgramIdentity::stock(), &arguments)
    }

    fn new_bot(kind: &str, name: &str) -> NewBot {
        match parsed(&[kind, name]) {
            Ok(ParsedCommand::Task(bot)) => bot,
            other => panic!("{other:?}"),
        }
    }

    fn error(arguments: &[&str]) -> String {
        parsed(arguments).expect_err("wrong arguments").to_string()
    }

    fn packed(kind: &str) -> Vec<(String, String)> {
        let mut files = Vec::new();
        each_file(kind, &mut |path, text| {
            files.push((path.to_owned(), text.to_owned()));
            Ok(())
        })
        .expect("the closure does not fail");
        files
    }

    #[test]
    fn each_kind_has_its_files() {
        for (kind, expected) in [
            ("python", &["README.md", "bot.py", "call.py", "next", "test_bot.py"][..]),
            (
                "pipecat",
                &[
                    "README.md",
                    "bot.py",
                    "call.py",
                    "next",
                    "requirements.txt",
                    "test_bot.py",
                ],
            ),
            (
                "node",
                &["README.md", "bot.js", "bot.test.js", "call.js", "next", "package.json"],
            ),
            (
                "rust",
                &[".gitignore", "Cargo.toml", "README.md", "next", "src/main.rs"],
            ),
        ] {
            let mut names: Vec<String> = packed(kind).into_iter().map(|(name, _)| name).collect();
            names.sort_unstable();
            assert_eq!(names, expected);
        }
        assert_eq!(packed("python")[2].1, packed("pipecat")[2].1);
        assert!(PACKED.len() < 10_000, "{} bytes", PACKED.len());
    }

    #[test]
    fn the_name_is_one_for_folders_crates_and_packages() {
        for name in ["a", "my_bot", "kitchen-2"] {
            new_bot("rust", name);
        }
        for name in [
            "",
            "2nd",
            "_a",
            "Kitchen",
            "my bot",
            "k\u{fc}che",
            "a.b",
            "..",
            &"a".repeat(65),
        ] {
            assert!(error(&["python", name]).contains("letters, digits"), "{name}");
        }
        assert!(error(&["python", "../a"]).contains("not a path"));
        assert!(error(&["rust", "edge-runner"]).contains("another name"));
        assert!(error(&["rust", "deps"]).contains("another name"));
        new_bot("python", "edge-runner");
    }

    #[test]
    fn says_what_is_missing_or_too_much() {
        assert!(error(&[]).contains("`edge-runner new python my-bot`"));
        assert!(error(&["python"]).contains("needs a kind and a name"));
        assert!(error(&["pyton", "a"]).contains("python"), "{}", error(&["pyton", "a"]));
        for arguments in [&["python", "a", "b"], &["python", "--force", "a"]] {
            assert!(error(arguments).contains("needs a kind and a name"));
        }
        for arguments in [&["--help"][..], &["rust", "-h"]] {
            let Ok(ParsedCommand::Text(help)) = parsed(arguments) else {
                panic!("a help");
            };
            assert!(
                completions::KINDS
                    .iter()
                    .all(|kind| help.contains(&format!("  {kind} "))),
                "{help}"
            );
        }
    }

    #[test]
    fn nothing_that_exists_is_written_over() {
        let parent = std::env::temp_dir().join(format!("edge-runner-new-{}", std::process::id()));
        fs::create_dir_all(&parent).expect("a folder");
        let made = new_bot("node", "a").make(&parent).expect("a new folder");
        assert!(made.contains("cd a\n") && made.contains("npm test"), "{made}");
        fs::write(parent.join("a/bot.js"), "mine").expect("a file");
        fs::write(parent.join("b"), "mine").expect("a file");
        for name in ["a", "b"] {
            let error = new_bot("node", name).make(&parent).expect_err("it exists");
            assert!(error.contains("stays as it is"), "{error}");
        }
        assert_eq!(fs::read_to_string(parent.join("a/bot.js")).expect("a file"), "mine");
        assert_eq!(fs::read_to_string(parent.join("b")).expect("a file"), "mine");
        let readme = fs::read_to_string(parent.join("a/README.md")).expect("a file");
        assert!(readme.starts_with("# a\n") && !readme.contains(PLACEHOLDER), "{readme}");
        assert!(write(&parent.join("b"), "").is_err());
        let error = new_bot("node", "a")
            .make(&parent.join("absent"))
            .expect_err("no parent");
        assert!(error.contains("cannot make"), "{error}");
        fs::remove_dir_all(&parent).expect("the folder is there");
    }
}
