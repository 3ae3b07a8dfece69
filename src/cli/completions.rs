//! Completions for bash, zsh and fish, generated from the table of options.
//!
//! In: the name of a shell, and that of the program. Out: a script for that shell, which completes
//! commands, options and option values (words of closed lists, files and folders). Source: the
//! manuals bash(1) "Programmable Completion", zshcompsys(1) `_arguments`, and complete(1) of fish.

use std::fmt::Write as _;

use super::flags::{self, RUNNER, RunnerFlag};
use super::{ProgramIdentity, command, settings};
use crate::aliases::{self, Area};
use crate::config::{BuiltInBot, Transport};
use crate::features::Feature;
use crate::proto::options::FlagKind;

/// The supported shells.
pub(super) const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Returns the text of `completions --help` of a program.
pub(super) fn help(program: &ProgramIdentity) -> String {
    let name = &program.name;
    let packaged = if program.has_own_bot {
        "Prints completions for a shell. To install them:"
    } else {
        "Prints completions for a shell. The Debian package installs them. Without it:"
    };
    format!(
        "\
Usage: {name} completions bash|zsh|fish

{packaged}

  bash: {name} completions bash > ~/.local/share/bash-completion/completions/{name}
  zsh:  {name} completions zsh > DIR/_{name}, where DIR is a folder of $fpath
  fish: {name} completions fish > ~/.config/fish/completions/{name}.fish
"
    )
}

/// Returns the commands of this build, each with its description.
fn built_commands() -> Vec<(&'static str, &'static str)> {
    let built = command::all().filter(|(.., feature)| feature.is_none_or(Feature::in_this_build));
    built.map(|(name, does, _)| (name, does)).collect()
}

/// The kinds of `edge-runner new`.
pub(super) const KINDS: [&str; 4] = ["python", "pipecat", "node", "rust"];

/// The options of `edge-runner update`.
pub(super) const UPDATE: [&str; 7] = [
    "--check",
    "--to",
    "--allow-downgrade",
    "--from",
    "--key",
    "--service",
    "--runner",
];

/// The commands of `edge-runner cloud`.
const CLOUD: &[&str] = match Feature::Scale.in_this_build() {
    true => &[
        "serve", "keys", "migrate", "import", "export", "build", "status", "logs", "regions",
    ],
    false => &["serve", "keys", "build", "status", "logs", "regions"],
};

/// The values that an option takes.
enum Values {
    /// The option takes no value.
    Switch,
    Words(Vec<&'static str>),
    File,
    Folder,
    /// Any other text, such as a number.
    Free,
}

/// One option in a script.
struct Entry {
    /// Names with their dashes, the short one first.
    names: Vec<String>,
    values: Values,
    /// The placeholder of the value.
    word: &'static str,
    /// The first sentence of its help.
    help: &'static str,
}

fn entries() -> Vec<Entry> {
    RUNNER.flags().map(entry).collect()
}

fn entry(flag: &RunnerFlag) -> Entry {
    let aliases = aliases::aliases(Area::Option, flag.long).iter().copied();
    let short = flag.short.map(|short| format!("-{short}"));
    let long = std::iter::once(flag.long).chain(aliases).map(str::to_owned);
    let (values, word) = match flag.kind {
        FlagKind::Switch(_) | FlagKind::Count(_) | FlagKind::Help | FlagKind::Version | FlagKind::Report => {
            (Values::Switch, "")
        }
        FlagKind::Value(word, _)
        | FlagKind::Optional(word, _)
        | FlagKind::Repeatable(word, _)
        | FlagKind::List(word, _) => (values(flag.long, word), word),
    };
    let help = flag.help.split_once(". ").map_or(flag.help, |(first, _)| first);
    Entry {
        names: short.into_iter().chain(long).collect(),
        values,
        word,
        help: help.split(" [default").next().unwrap_or(help).trim_end_matches('.'),
    }
}

fn values(long: &str, word: &'static str) -> Values {
    match (long, word) {
        ("--transport", _) => {
            let built = || flags::transports().filter(|transport| transport.in_this_build());
            let names: Vec<&str> = built().map(Transport::common_name).collect();
            let wire_names = built().map(Transport::name).filter(|name| !names.contains(name));
            Values::Words([names.clone(), wire_names.collect()].concat())
        }
        ("--bot", _) => Values::Words(BuiltInBot::ALL.map(BuiltInBot::name).to_vec()),
        (_, "FILE") => Values::File,
        (_, "DIR") => Values::Folder,
        (_, word) if word.contains('|') => {
            let words = word
                .split('|')
                .filter(|word| word.chars().all(|c| c.is_ascii_lowercase()));
            Values::Words(words.collect())
        }
        _ => Values::Free,
    }
}

/// Returns whether a script can have the name of a program: without what a shell reads otherwise.
pub(super) fn can_complete(name: &str) -> bool {
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(usable)
}

/// Returns the script for a shell and a program of this name; `None` for an unknown shell.
pub(super) fn script(shell: &str, name: &str) -> Option<String> {
    match shell {
        "bash" => Some(bash(name)),
        "zsh" => Some(zsh(name)),
        "fish" => Some(fish(name)),
        _ => None,
    }
}

fn names_of(list: &[(&'static str, &'static str)]) -> String {
    let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
    names.join(" ")
}

fn bash(name: &str) -> String {
    // Functions of two programs must not be one.
    let function = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let entries = entries();
    let mut cases = String::new();
    let mut free = Vec::new();
    for entry in &entries {
        let names = entry.names.join("|");
        let action = match &entry.values {
            Values::Switch => continue,
            Values::Free => {
                free.push(names);
                continue;
            }
            Values::Words(words) => format!("_{function}_reply -W '{}'", words.join(" ")),
            Values::File => format!("compopt -o filenames 2>/dev/null; _{function}_reply -f"),
            Values::Folder => format!("compopt -o filenames 2>/dev/null; _{function}_reply -d"),
        };
        let _ = writeln!(cases, "    {names}) {action}; return ;;");
    }
    let _ = writeln!(cases, "    {}) return ;;", free.join("|"));
    let options: Vec<&str> = entries
        .iter()
        .flat_map(|entry| &entry.names)
        .map(String::as_str)
        .collect();
    format!(
        r#"# Completions of bash for {name}, printed by `{name} completions bash`.
_{function}_reply() {{
    mapfile -t COMPREPLY < <(compgen "$@" -- "$cur")
}}
_{function}() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} word
    COMPREPLY=()
    # bash splits `--option=value` into three words.
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD - 1}}"; do
        if [[ $word == -- ]]; then
            compopt -o filenames 2>/dev/null
            _{function}_reply -c -f
            return
        fi
    done
    if ((COMP_CWORD > 1)); then
        case ${{COMP_WORDS[1]}} in
        completions) _{function}_reply -W '{shells}'; return ;;
        cloud) _{function}_reply -W '{cloud}'; return ;;
        new) _{function}_reply -W '{kinds}'; return ;;
        update) _{function}_reply -W '{update}'; return ;;
        config) ((COMP_CWORD == 2)) && {{ _{function}_reply -W '{config}'; return; }} ;;
        help) _{function}_reply -W '{commands}'; return ;;
        esac
    fi
    case $prev in
{cases}    esac
    if ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then
        _{function}_reply -W '{commands}'
    else
        _{function}_reply -W '{options} --'
    fi
}}
complete -F _{function} {name}
"#,
        shells = SHELLS.join(" "),
        cloud = CLOUD.join(" "),
        kinds = KINDS.join(" "),
        update = UPDATE.join(" "),
        config = settings::COMMANDS.join(" "),
        commands = names_of(&built_commands()),
        options = options.join(" "),
    )
}

/// Escapes text for single quotes of zsh, inside an `_arguments` specification.
fn zsh_text(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\'' => escaped.push_str("'\\''"),
            '[' | ']' | ':' | '\\' => escaped.extend(['\\', c]),
            '`' => escaped.push('"'),
            c => escaped.push(c),
        }
    }
    escaped
}

fn zsh(name: &str) -> String {
    let mut arguments = String::new();
    for entry in entries() {
        let help = zsh_text(entry.help);
        let word = zsh_text(entry.word);
        let value = match &entry.values {
            Values::Switch => String::new(),
            Values::Words(words) => format!(":{word}:({})", words.join(" ")),
            Values::File => format!(":{word}:_files"),
            Values::Folder => format!(":{word}:_files -/"),
            Values::Free => format!(":{word}: "),
        };
        for name in &entry.names {
            let attached = match (&entry.values, name.starts_with("--")) {
                (Values::Switch, _) => "",
                (_, true) => "=",
                (_, false) => "+",
            };
            let _ = writeln!(arguments, "        '*{name}{attached}[{help}]{value}' \\");
        }
    }
    let commands: Vec<String> = built_commands()
        .iter()
        .map(|(name, help)| format!("{name}\\:\"{}\"", zsh_text(help)))
        .collect();
    format!(
        r#"#compdef {name}
# Completions of zsh for {name}, printed by `{name} completions zsh`.
_{name}() {{
    case ${{words[2]}} in
    completions) (( CURRENT > 2 )) && {{ compadd -- {shells}; return }} ;;
    cloud) (( CURRENT > 2 )) && {{ compadd -- {cloud}; return }} ;;
    new) (( CURRENT > 2 )) && {{ compadd -- {kinds}; return }} ;;
    update) (( CURRENT > 2 )) && {{ compadd -- {update}; return }} ;;
    config) (( CURRENT == 3 )) && {{ compadd -- {config}; return }} ;;
    esac
    if (( ${{words[(i)--]}} < CURRENT )); then
        (( CURRENT -= ${{words[(i)--]}} ))
        shift ${{words[(i)--]}} words
        _normal
        return
    fi
    _arguments \
{arguments}        '1:command:(({commands}))'
}}
if [[ ${{funcstack[1]}} == _{name} ]]; then
    _{name} "$@"
else
    compdef _{name} {name}
fi
"#,
        shells = SHELLS.join(" "),
        cloud = CLOUD.join(" "),
        kinds = KINDS.join(" "),
        update = UPDATE.join(" "),
        config = settings::COMMANDS.join(" "),
        commands = commands.join(" "),
    )
}

/// Escapes text for single quotes of fish.
fn fish_text(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

fn fish(name: &str) -> String {
    let mut text = format!(
        "# Completions of fish for {name}, printed by `{name} completions fish`.\n\
         complete -c {name} -f\n",
    );
    for (command, help) in built_commands() {
        let help = fish_text(help);
        let _ = writeln!(
            text,
            "complete -c {name} -n __fish_use_subcommand -a {command} -d '{help}'"
        );
    }
    for (command, words) in [
        ("completions", SHELLS.join(" ")),
        ("cloud", CLOUD.join(" ")),
        ("new", KINDS.join(" ")),
        ("update", UPDATE.join(" ")),
        ("config", settings::COMMANDS.join(" ")),
    ] {
        let seen = format!("'__fish_seen_subcommand_from {command}'");
        let _ = writeln!(text, "complete -c {name} -n {seen} -a '{words}'");
    }
    for entry in entries() {
        let mut line = format!("complete -c {name}");
        for name in &entry.names {
            let _ = match name.strip_prefix("--") {
                Some(long) => write!(line, " -l {long}"),
                None => write!(line, " -s {}", name.trim_start_matches('-')),
            };
        }
        match &entry.values {
            Values::Switch => {}
            Values::Words(words) => {
                let _ = write!(line, " -x -a '{}'", words.join(" "));
            }
            Values::File => line.push_str(" -r -F"),
            Values::Folder => line.push_str(" -x -a '(__fish_complete_directories)'"),
            Values::Free => line.push_str(" -x"),
        }
        let _ = writeln!(text, "{line} -d '{}'", fish_text(entry.help));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_has_every_option() {
        for shell in SHELLS {
            let script = script(shell, "edge-runner").expect("a known shell");
            for flag in RUNNER.flags() {
                let name = match shell {
                    "fish" => format!("-l {} ", flag.long.trim_start_matches('-')),
                    _ => flag.long.to_owned(),
                };
                assert!(script.contains(&name), "{shell} {name}");
            }
            for word in ["twilio", "telephony_a", "parrot", "esp32", "moq"] {
                assert!(script.contains(word), "{shell} {word}");
            }
        }
        assert_eq!(script("tcsh", "edge-runner"), None);
    }

    /// A bot of somebody's own is completed under its own name.
    #[test]
    fn scripts_are_for_the_program_that_prints_them() {
        for shell in SHELLS {
            let script = script(shell, "my-bot.2").expect("a known shell");
            let head: Vec<&str> = script.lines().filter(|line| !line.contains("--")).collect();
            assert!(script.contains("my-bot.2 completions"), "{shell}");
            assert!(!head.join("\n").contains("edge"), "{shell}: {head:?}");
        }
        let own = ProgramIdentity {
            name: "my-bot.2".into(),
            has_own_bot: true,
        };
        assert!(!help(&own).contains("edge-runner") && help(&own).contains("/my-bot.2.fish"));
        assert!(can_complete("my-bot.2") && can_complete("edge-runner"));
        for name in ["", "-x", "my bot", "a;b", "a$b", "a/b", "\u{e9}"] {
            assert!(!can_complete(name), "{name}");
        }
    }

    #[test]
    fn escapes_text_for_each_shell() {
        assert_eq!(zsh_text("it's [a:b]"), "it'\\''s \\[a\\:b\\]");
        assert_eq!(fish_text("it's \\"), "it\\'s \\\\");
    }
}
