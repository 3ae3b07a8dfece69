//! Runs one component of the audio path many times, so that its instructions can be counted.
//!
//! ```text
//! speed voice > voice.bin                  speech: samples, and packets of a browser and a device
//! speed list                               the components, one per line: name, tab, work in 20 ms
//! speed COMPONENT FRAMES voice.bin [soft]  runs one; `soft` hides cryptographic instructions
//! ```
//! There are no sockets, tasks or sleeps, only one thread and a simulated clock. The count for 2 N
//! frames minus the count for N frames is that of N frames without the setup. The example has the
//! build profile of the runner, so the counted code is the code on the board. `run.py` counts and
//! prints the table.

// The example has its own clock and reads files; the rule applies to the runner.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod call;
mod parts;
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod soft;
#[path = "../bench/src/speech.rs"]
#[allow(dead_code)]
mod speech;
mod voice;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use voice::Voice;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Does the work of a component for the frame with this index.
type Work = Box<dyn FnMut(usize)>;

const USAGE: &str = "usage: speed voice | list | COMPONENT FRAMES VOICE-FILE [soft]";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("speed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["voice"] => Ok(std::io::stdout().write_all(&Voice::make()?.to_bytes())?),
        ["list"] => {
            for (name, what) in parts::list() {
                println!("{name}\t{what}");
            }
            Ok(())
        }
        [name, frames, file] => count(name, frames, file),
        [name, frames, file, "soft"] => {
            #[cfg(all(target_arch = "aarch64", target_os = "linux"))]
            soft::hide();
            count(name, frames, file)
        }
        _ => Err(USAGE.into()),
    }
}

fn count(name: &str, frames: &str, file: &str) -> Result<()> {
    let frames: usize = frames.parse().map_err(|_| USAGE)?;
    let voice = Voice::from_bytes(&std::fs::read(file)?).ok_or("the file is none that `speed voice` made")?;
    let mut work = parts::work(name, voice)?;
    for frame in 0..frames {
        work(frame);
    }
    Ok(())
}
