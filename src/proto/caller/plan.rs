//! What a caller says, and what it expects.
//!
//! In: the options of `edge-runner call`, or a scenario. Out: [`StepSource`]s, whose sounds have to
//! be loaded, and a [`CallPlan`], which one or several calls follow.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::checked_step::CheckedStep;
use super::sound::PlannedSound;
use super::words::WordPattern;
use crate::bot_message::key;
use crate::options::Expected;

/// Bytes of a text.
const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Keys of one step.
const KEYS_MAX: usize = 64;

/// A step as it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepSource {
    /// A file.
    Wav(String),
    /// A text to speak.
    Say(String),
    Silence(Duration),
    Keys(String),
    Text(String),
    /// A message of RTVI.
    Message {
        kind: String,
        data: Value,
    },
}

impl StepSource {
    /// Returns whether the caller makes a sound.
    pub fn is_sound(&self) -> bool {
        matches!(self, StepSource::Wav(_) | StepSource::Say(_))
    }

    /// Returns whether it needs a transport that carries messages.
    pub fn is_message(&self) -> bool {
        matches!(self, StepSource::Text(_) | StepSource::Message { .. })
    }
}

/// Reads a number of seconds, such as `2` or `0.5`.
///
/// # Errors
/// What is expected.
pub fn seconds(text: &str, most: u64) -> Result<Duration, Expected> {
    let parsed: Option<f64> = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let valid = parsed.filter(|seconds| (0.0..=most as f64).contains(seconds));
    let duration = valid.map(Duration::from_secs_f64);
    duration.ok_or_else(|| format!("a number of seconds from 0 to {most}, such as 2 or 0.5").into())
}

/// Checks a text of the caller.
///
/// # Errors
/// What is expected.
pub fn text(text: String) -> Result<String, Expected> {
    if text.trim().is_empty() || text.len() > TEXT_BYTES_MAX {
        return Err(format!("a text of at most {TEXT_BYTES_MAX} bytes").into());
    }
    Ok(text)
}

/// Reads keys of a telephone.
///
/// # Errors
/// What is expected.
pub fn keys(text: &str) -> Result<String, Expected> {
    let keys: Option<String> = text
        .chars()
        .map(|letter| key(letter.encode_utf8(&mut [0; 4])))
        .collect();
    let valid = keys.filter(|keys| (1..=KEYS_MAX).contains(&keys.len()));
    valid.ok_or_else(|| format!("1 to {KEYS_MAX} keys of a telephone: 0-9, *, # and A-D").into())
}

/// Reads words that a text has to contain.
///
/// # Errors
/// What is expected.
pub fn words(text: &str) -> Result<WordPattern, Expected> {
    WordPattern::parse(text).ok_or_else(|| "words, with `|` between alternatives and `*` for any text".into())
}

/// One thing that the caller does. Each step begins when the one before it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedStep {
    /// Plays a sound.
    Sound { label: String, sound: Arc<PlannedSound> },
    /// Is silent.
    Silence(Duration),
    /// Presses keys of a telephone.
    Keys(String),
    /// Sends a text, as typed by a user.
    Text(String),
    /// Sends a message of RTVI.
    Message { kind: String, data: Value },
    /// Waits for what a step of a scenario expects since the last such step.
    Check(Arc<CheckedStep>),
}

/// What the bot has to do before the call ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallExpectations {
    /// Texts of the bot, in any order.
    pub texts: Vec<WordPattern>,
    /// The bot makes a sound.
    pub speech: bool,
    /// The longest time from the end of a sound of the caller to the bot's answer.
    pub latency: Option<Duration>,
}

impl CallExpectations {
    /// Returns whether nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && !self.speech && self.latency.is_none()
    }
}

/// The plan of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlan {
    pub steps: Vec<PlannedStep>,
    pub expect: CallExpectations,
    /// The longest time from dialling to the end.
    pub longest: Duration,
    /// The caller hangs up after its last step, once the bot was quiet for this long and has done
    /// what is expected.
    pub hang_up_after: Duration,
    /// Both sides are recorded.
    pub records: bool,
}
