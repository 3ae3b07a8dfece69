//! Completions: the script that the binary prints, in the shell that it is for. bash must be
//! installed; without zsh or fish their tests are skipped.
//!
//! In: words as a user has typed them. Out: what the shell offers for the last one.

use std::process::Command;

use crate::support::skip;

const BINARY: &str = env!("CARGO_BIN_EXE_edge-runner");

fn script(shell: &str) -> String {
    let output = Command::new(BINARY)
        .args(["completions", shell])
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("a script is text")
}

/// Runs a program of a shell with the script as its first argument, and returns the lines that it
/// prints.
fn run(shell: &[&str], program: &str, script: &str, words: &[&str]) -> Vec<String> {
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .arg("-c")
        .arg(program)
        .arg(script)
        .args(words)
        .output()
        .expect("the shell is installed");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{words:?} {output:?}"
    );
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

/// Returns what bash offers for the last word.
fn bash(script: &str, words: &[&str]) -> Vec<String> {
    const PROGRAM: &str = r#"
eval "$0"
COMP_WORDS=(edge-runner "$@")
COMP_CWORD=$#
complete -p edge-runner >/dev/null
_edge_runner
printf '%s\n' "${COMPREPLY[@]}"
"#;
    run(&["bash", "--norc"], PROGRAM, script, words)
}

#[test]
fn bash_completes_commands_options_and_values() {
    let script = script("bash");
    for (words, offered) in [
        (&["do"][..], &["doctor"][..]),
        (&["update", "--ch"], &["--check"]),
        (&["--tran"], &["--transport"]),
        (&["--esp"], &["--esp32"]),
        (&["-t", "tw"], &["twilio"]),
        (
            &["--transport", "=", "tel"],
            &["telnyx", "telephony_a", "telephony_b", "telephony_c", "telephony_d"],
        ),
        (&["doctor", "--bot", ""], &["parrot", "echo", "realtime", "cascade"]),
        (&["--tls", ""], &["off", "auto", "acme"]),
        (&["--log", "=", ""], &["text", "json"]),
        (&["completions", "z"], &["zsh"]),
        (&["cloud", "b"], &["build"]),
        (&["new", "p"], &["python", "pipecat"]),
        (&["--api-key-file", "Cargo.to"], &["Cargo.toml"]),
        (&["--state-dir", "test"], &["tests"]),
        (&["--bot", "echo", "--", "Cargo.to"], &["Cargo.toml"]),
        (
            &["--moq-tls-"],
            &[
                "--moq-tls-cert",
                "--moq-tls-key",
                "--moq-tls-generate",
                "--moq-tls-insecure",
            ],
        ),
        (&["--moq-tls-cert", "Cargo.to"], &["Cargo.toml"]),
    ] {
        assert_eq!(bash(&script, words), offered, "{words:?}");
    }
    assert_eq!(bash(&script, &["--port", ""]), [""], "a number is free");
    assert!(bash(&script, &[""]).contains(&"completions".to_owned()));
}

#[test]
fn fish_completes_commands_options_and_values() {
    const PROGRAM: &str = "echo $argv[1] | source; complete -C $argv[2] | string replace -r '\\t.*' ''; true";
    if !skip::has_program("fish", "completions of fish", "fish") {
        return;
    }
    let script = script("fish");
    for (line, offered) in [
        ("edge-runner do", "doctor"),
        ("edge-runner --tran", "--transport"),
        ("edge-runner -t tw", "twilio"),
        ("edge-runner --tls=au", "--tls=auto"),
        ("edge-runner completions z", "zsh"),
        ("edge-runner new r", "rust"),
        ("edge-runner --esp", "--esp32"),
    ] {
        assert_eq!(
            run(&["fish", "--no-config"], PROGRAM, &script, &[line]),
            [offered],
            "{line}"
        );
    }
}

/// A shell with the script runs in a terminal of its own, where Tab completes the line. The script
/// is a variable: the terminal echoes what is written to it, and holds a few kilobytes.
#[test]
fn zsh_completes_commands_options_and_values() {
    const PROGRAM: &str = r#"
zmodload zsh/zpty
export COMPLETIONS=$0
zpty shell zsh -f -i
zpty -w shell 'PS1=; autoload -Uz compinit && compinit -u -D; unsetopt beep; eval $COMPLETIONS; print rea""dy'
zpty -r -m shell seen '*ready*'
zpty -w -n shell "$1"$'\t\x01'"print -r -- '>"$'\x05'"<'"$'\n'
zpty -r -m shell seen $'*\n>*<*'
print -r -- "${${seen##*$'\n'>}%%<*}"
zpty -d shell
"#;
    if !skip::has_program("zsh", "completions of zsh", "zsh") {
        return;
    }
    let script = script("zsh");
    for (line, completed) in [
        ("edge-runner --tran", "edge-runner --transport"),
        ("edge-runner doc", "edge-runner doctor"),
        ("edge-runner -t twi", "edge-runner -t twilio"),
        ("edge-runner completions z", "edge-runner completions zsh"),
        ("edge-runner new r", "edge-runner new rust"),
        ("edge-runner --tls=au", "edge-runner --tls=auto"),
        ("edge-runner --esp", "edge-runner --esp32"),
    ] {
        assert_eq!(run(&["zsh", "-f"], PROGRAM, &script, &[line]), [completed]);
    }
}
