//! What a caller says, and what it expects.
//!
//! In: the options of `edge-runner call`. Out: a [`CallPlan`], which one or several calls follow.

use std::sync::Arc;
use std::time::Duration;

use super::sound::PlannedSound;
use super::words::WordPattern;

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
