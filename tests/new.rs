//! `edge-runner new`: each kind of folder is made by the binary, and its own test has a call with
//! it. That of `rust` is compiled in `tests/embedding/examples.rs`, that of `pipecat` called by
//! `tests/peers/pipecat`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, process};

use serde_json::Value;

use crate::support::skip;

const BINARY: &str = env!("CARGO_BIN_EXE_edge-runner");
const NAME: &str = "kitchen-2";

/// An empty folder of one test, removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let folder = env::temp_dir().join(format!("edge-runner-new-{test}-{}", process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn new_bot(&self, kind: &str) -> Output {
        run(&self.0, BINARY, &["new", kind, NAME])
    }

    fn made(&self, kind: &str) -> PathBuf {
        let output = self.new_bot(kind);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && shown.contains(&format!("cd {NAME}")),
            "{output:?}"
        );
        self.0.join(NAME)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a program without the variables of the person who runs the tests.
fn run(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    let kept = ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME"].map(|name| (name, env::var_os(name)));
    Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .envs(kept.into_iter().filter_map(|(name, value)| Some((name, value?))))
        .env("EDGE_RUNNER", BINARY)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn passes(output: &Output) {
    let said = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy);
    assert!(output.status.success(), "{}", said.join("\n"));
}

#[test]
fn a_python_bot_is_called_by_its_test() {
    if !skip::has_program("python3", "the Python bot of `edge-runner new`", "python3") {
        return;
    }
    let scratch = Scratch::new("python");
    passes(&run(&scratch.made("python"), "python3", &["test_bot.py"]));
}

#[test]
fn a_node_bot_is_called_by_its_test() {
    if !skip::has_program("node", "the Node bot of `edge-runner new`", "nodejs") {
        return;
    }
    let scratch = Scratch::new("node");
    passes(&run(&scratch.made("node"), "node", &["--test"]));
}

#[test]
fn a_pipecat_bot_is_python() {
    if !skip::has_program("python3", "the Pipecat bot of `edge-runner new`", "python3") {
        return;
    }
    let scratch = Scratch::new("pipecat");
    let compile = ["-m", "py_compile", "bot.py", "call.py", "test_bot.py"];
    passes(&run(&scratch.made("pipecat"), "python3", &compile));
}

/// Its features are those of this crate, and its name is the one asked for.
#[test]
fn a_rust_bot_is_a_crate() {
    let scratch = Scratch::new("rust");
    let folder = scratch.made("rust");
    let package = |folder: &Path| -> Value {
        let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
        let output = run(folder, env!("CARGO"), &arguments);
        passes(&output);
        let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        metadata["packages"]
            .as_array()
            .and_then(|packages| {
                let is_named = |package: &&Value| package["name"] == NAME || package["name"] == "edge-runner";
                packages.iter().find(is_named)
            })
            .expect("the package is listed")
            .clone()
    };
    let (made, own) = (package(&folder), package(Path::new(env!("CARGO_MANIFEST_DIR"))));
    assert_eq!(made["name"], NAME);
    let source = made["dependencies"][0]["source"].as_str().expect("a source");
    let repository = own["repository"].as_str().expect("a repository");
    assert_eq!(source, format!("git+{repository}"));
    let features = made["dependencies"][0]["features"].as_array().expect("features");
    assert_eq!(features.len(), 3);
    for feature in features {
        assert!(
            own["features"].get(feature.as_str().expect("text")).is_some(),
            "{feature}"
        );
    }
}

#[test]
fn an_existing_folder_and_a_bad_name_are_refused() {
    let scratch = Scratch::new("refused");
    let folder = scratch.made("python");
    fs::write(folder.join("bot.py"), "mine").expect("a file");
    let again = scratch.new_bot("python");
    let said = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(1), "{said}");
    assert!(said.contains(NAME) && said.contains("choose another name"), "{said}");
    assert_eq!(fs::read_to_string(folder.join("bot.py")).expect("a file"), "mine");
    for (arguments, expected) in [
        (&["new"][..], "needs a kind and a name"),
        (&["new", "ruby", "a"], "`python`"),
        (&["new", "python", "My Bot"], "lower-case letters"),
        (&["new", "rust", "edge-runner"], "another name"),
    ] {
        let output = run(&scratch.0, BINARY, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(
            said.contains(expected) && said.contains("`edge-runner new --help`"),
            "{arguments:?}: {said}"
        );
    }
    assert_eq!(fs::read_dir(&scratch.0).expect("a folder").count(), 1);
}
