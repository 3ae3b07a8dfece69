//! Completions for bash, zsh and fish, generated from the table of options.
//!
//! In: the name of a shell. Out: a script for that shell, which completes commands, options and
//! option values (words of closed lists, files and folders). Source: the manuals bash(1)
//! "Programmable Completion", zshcompsys(1) `_arguments`, and complete(1) of fish.

use std::fmt::Write as _;

use super::flags::{self, FLAGS, RunnerFlag};
use crate::aliases::{self, Area};
use crate::config::{BuiltInBot, Transport};
use crate::features::Feature;
use crate::proto::options::FlagKind;

/// The supported shells.
pub(super) const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// The text of `completions --help`.
pub(super) const HELP: &str = "\
Usage: edge-runner completions bash|zsh|fish

Prints completions for a shell. The Debian package installs them. Without it:

  bash: edge-runner completions bash > ~/.local/share/bash-completion/completions/edge-runner
  zsh:  edge-runner completions zsh > DIR/_edge-runner, where DIR is a folder of $fpath
  fish: edge-runner completions fish > ~/.config/fish/completions/edge-runner.fish
";

/// Returns the commands of this build, each with its description.
fn commands() -> Vec<(&'static str, &'static str)> {
    let all = [
        ("doctor", "check what prevents calls", Some(Feature::Doctor)),
        ("setup", "serve the setup page of a board", Some(Feature::Setup)),
        ("cloud", "the cloud agent service and its client", Some(Feature::Cloud)),
        ("completions", "print completions for a shell", None),
        ("help", "print help", None),
    ];
    let built = all
        .into_iter()
        .filter(|(.., feature)| feature.is_none_or(Feature::in_this_build));
    built.map(|(name, help, _)| (name, help)).collect()
}

/// The commands of `edge-runner cloud`.
const CLOUD: [&str; 6] = ["serve", "keys", "build", "status", "logs", "regions"];

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
    FLAGS.iter().map(entry).collect()
}

fn entry(flag: &RunnerFlag) -> Entry {
    let aliases = aliases::aliases(Area::Option, flag.long).iter().copied();
    let short = flag.short.map(|short| format!("-{short}"));
    let long = std::iter::once(flag.long).chain(aliases).map(str::to_owned);
    let (values, word) = match flag.kind {
        FlagKind::Switch(_) | FlagKind::Count(_) | FlagKind::Help | FlagKind::Version => (Values::Switch, ""),
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
            let names: Vec<&str> = built().map(flags::common_name).collect();
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

/// Returns the script for a shell; `None` for an unknown one.
pub(super) fn script(shell: &str) -> Option<String> {
    match shell {
        "bash" => Some(bash()),
        "zsh" => Some(zsh()),
        "fish" => Some(fish()),
        _ => None,
    }
}

fn names_of(list: &[(&'static str, &'static str)]) -> String {
    let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
    names.join(" ")
}

fn bash() -> String {
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
            Values::Words(words) => format!("_edge_runner_reply -W '{}'", words.join(" ")),
            Values::File => "compopt -o filenames 2>/dev/null; _edge_runner_reply -f".to_owned(),
            Values::Folder => "compopt -o filenames 2>/dev/null; _edge_runner_reply -d".to_owned(),
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
        r#"# Completions of bash for edge-runner, printed by `edge-runner completions bash`.
_edge_runner_reply() {{
    mapfile -t COMPREPLY < <(compgen "$@" -- "$cur")
}}
_edge_runner() {{
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
            _edge_runner_reply -c -f
            return
        fi
    done
    if ((COMP_CWORD > 1)); then
        case ${{COMP_WORDS[1]}} in
        completions) _edge_runner_reply -W '{shells}'; return ;;
        cloud) _edge_runner_reply -W '{cloud}'; return ;;
        help) _edge_runner_reply -W '{commands}'; return ;;
        esac
    fi
    case $prev in
{cases}    esac
    if ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then
        _edge_runner_reply -W '{commands}'
    else
        _edge_runner_reply -W '{options} --'
    fi
}}
complete -F _edge_runner edge-runner
"#,
        shells = SHELLS.join(" "),
        cloud = CLOUD.join(" "),
        commands = names_of(&commands()),
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

fn zsh() -> String {
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
    let commands: Vec<String> = commands()
        .iter()
        .map(|(name, help)| format!("{name}\\:\"{}\"", zsh_text(help)))
        .collect();
    format!(
        r#"#compdef edge-runner
# Completions of zsh for edge-runner, printed by `edge-runner completions zsh`.
_edge-runner() {{
    case ${{words[2]}} in
    completions) (( CURRENT > 2 )) && {{ compadd -- {shells}; return }} ;;
    cloud) (( CURRENT > 2 )) && {{ compadd -- {cloud}; return }} ;;
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
if [[ ${{funcstack[1]}} == _edge-runner ]]; then
    _edge-runner "$@"
else
    compdef _edge-runner edge-runner
fi
"#,
        shells = SHELLS.join(" "),
        cloud = CLOUD.join(" "),
        commands = commands.join(" "),
    )
}

/// Escapes text for single quotes of fish.
fn fish_text(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}

fn fish() -> String {
    let mut text = String::from(
        "# Completions of fish for edge-runner, printed by `edge-runner completions fish`.\n\
         complete -c edge-runner -f\n",
    );
    for (name, help) in commands() {
        let help = fish_text(help);
        let _ = writeln!(
            text,
            "complete -c edge-runner -n __fish_use_subcommand -a {name} -d '{help}'"
        );
    }
    for (command, words) in [("completions", SHELLS.join(" ")), ("cloud", CLOUD.join(" "))] {
        let seen = format!("'__fish_seen_subcommand_from {command}'");
        let _ = writeln!(text, "complete -c edge-runner -n {seen} -a '{words}'");
    }
    for entry in entries() {
        let mut line = String::from("complete -c edge-runner");
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
            let script = script(shell).expect("a known shell");
            for flag in FLAGS {
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
        assert_eq!(script("tcsh"), None);
    }

    #[test]
    fn escapes_text_for_each_shell() {
        assert_eq!(zsh_text("it's [a:b]"), "it'\\''s \\[a\\:b\\]");
        assert_eq!(fish_text("it's \\"), "it\\'s \\\\");
    }
}
