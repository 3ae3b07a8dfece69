//! One component of the path of a frame, run so many times: what the count of instructions is made
//! from.
//!
//! ```text
//! speed voice > voice.bin                    what the caller says: speech as samples, and as packets of a browser and a device
//! speed list                                 the components, one per line: name, tab, what it does in 20 ms
//! speed COMPONENT FRAMES voice.bin [soft]    runs one; `soft` hides the instructions for cryptography from it, on aarch64
//! ```
//! No sockets, no tasks, no sleeping: what runs is what was asked for, on one thread, and the clock
//! is a number that counts up. A count for N frames taken from one for 2 N leaves N frames without
//! the start. It is built as the runner is, from the same profile, so that what is counted is what
//! runs on the board. `run.py` counts and prints the table.

// Its clock is its own, and it reads files; the rule is the runner's.
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

/// Does what a component does in one frame of 20 ms, the so many-th.
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
