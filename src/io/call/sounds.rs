//! Reads the sounds of a caller: WAV files, and texts that a command speaks.
//!
//! In: the steps of the command line or of a scenario. Out: the steps of a plan, or why one cannot
//! be played. A command gets the text on its standard input and has half a minute for a WAV file on
//! its standard output.

use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use crate::proto::caller::scenario::FILE_BYTES_MAX as SCENARIO_BYTES_MAX;
use crate::proto::caller::{PlannedSound, PlannedStep, Scenario, StepSource};

/// Bytes of a WAV file: ten minutes of 8 channels at 48 kHz.
const WAV_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Bytes of a spoken text: ten minutes of stereo at 48 kHz.
const SPOKEN_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// How long a command may take to speak a text.
const SPOKEN_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of what a failed command says.
const COMPLAINT_BYTES_MAX: u64 = 1_000;

/// Returns the steps of the plan.
///
/// # Errors
/// A sentence about the first step that cannot be used.
pub async fn load(steps: &[StepSource], say_command: &str) -> Result<Vec<PlannedStep>, String> {
    let mut planned = Vec::new();
    for step in steps {
        let step = load_step(step, say_command).await.map_err(|why| format!("--{why}"))?;
        planned.push(step);
    }
    Ok(planned)
}

/// Reads a scenario. Returns it and the steps of the plan.
///
/// # Errors
/// A sentence about the file, or with the line of the first step that cannot be used.
pub async fn load_scenario(path: &Path, say_command: &str) -> Result<(Scenario, Vec<PlannedStep>), String> {
    let file = path.to_string_lossy();
    let unreadable = |why: String| format!("--scenario {file}: {why}");
    let bytes = read(path, SCENARIO_BYTES_MAX).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is no text in UTF-8".into()))?;
    let scenario = Scenario::parse(&file, &text)?;
    let mut planned = Vec::new();
    for step in &scenario.steps {
        if let Some(action) = &step.action {
            let action = load_step(action, say_command).await;
            planned.push(action.map_err(|why| format!("{}: {why}", step.check.place))?);
        }
        planned.push(PlannedStep::Check(Arc::new(step.check.clone())));
    }
    Ok((scenario, planned))
}

async fn load_step(step: &StepSource, say_command: &str) -> Result<PlannedStep, String> {
    Ok(match step {
        StepSource::Wav(file) => {
            let wav = read(Path::new(file), WAV_BYTES_MAX);
            PlannedStep::Sound {
                label: file.clone(),
                sound: wav
                    .and_then(|wav| sound(&wav))
                    .map_err(|why| format!("wav {file}: {why}; it takes a WAV file of 16-bit PCM"))?,
            }
        }
        StepSource::Say(text) => PlannedStep::Sound {
            label: format!("\"{text}\""),
            sound: speak(text, say_command)
                .await
                .and_then(|wav| sound(&wav))
                .map_err(|why| format!("say with the command `{say_command}`: {why}"))?,
        },
        StepSource::Silence(length) => PlannedStep::Silence(*length),
        StepSource::Keys(keys) => PlannedStep::Keys(keys.clone()),
        StepSource::Text(text) => PlannedStep::Text(text.clone()),
        StepSource::Message { kind, data } => PlannedStep::Message {
            kind: kind.clone(),
            data: data.clone(),
        },
    })
}

fn sound(wav: &[u8]) -> Result<Arc<PlannedSound>, String> {
    let sound = PlannedSound::from_wav(wav).map_err(|error| error.to_string())?;
    Ok(Arc::new(sound))
}

fn read(file: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file);
    let read = opened.and_then(|open| open.take(bytes_max + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(error.to_string()),
        Ok(_) if bytes.len() as u64 > bytes_max => Err(format!("it is larger than {} MiB", bytes_max / 1024 / 1024)),
        Ok(_) => Ok(bytes),
    }
}

/// Runs the command that speaks a text.
async fn speak(text: &str, command: &str) -> Result<Vec<u8>, String> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("it cannot be run: {error}"))?;
    let (Some(mut input), Some(output), Some(complaint)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("it has no pipes".into());
    };
    let (mut wav, mut words) = (Vec::new(), Vec::new());
    let work = async {
        let write = async {
            // A command that does not read its input may still speak.
            let _ = input.write_all(text.as_bytes()).await;
            drop(input);
        };
        let mut output = output.take(SPOKEN_BYTES_MAX);
        let mut complaint = complaint.take(COMPLAINT_BYTES_MAX);
        let (_, read, _) = tokio::join!(write, output.read_to_end(&mut wav), complaint.read_to_end(&mut words));
        read.map_err(|error| format!("its output cannot be read: {error}"))?;
        child
            .wait()
            .await
            .map_err(|error| format!("it cannot be awaited: {error}"))
    };
    let status = timeout(SPOKEN_WITHIN, work)
        .await
        .map_err(|_| format!("it did not end within {} s", SPOKEN_WITHIN.as_secs()))??;
    if !status.success() {
        let words = String::from_utf8_lossy(&words);
        return Err(format!(
            "it failed with {status}: {}; install espeak-ng, or name another one with `--say-command`",
            words.trim()
        ));
    }
    Ok(wav)
}
