//! The stock binary: the runner with the built-in bots.

use std::process::ExitCode;

fn main() -> ExitCode {
    edge_runner::inside::built_in()
}
