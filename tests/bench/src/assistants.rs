//! Calls with the bots `realtime` and `cascade`, in serve mode, against scripted services.
//!
//! The services run in a thread of this process, so their CPU is not counted. They decide and
//! answer at once, over loopback: the times are those of the runner, but for the pauses that end a
//! turn and the pace of the model.

mod assistant;
mod cascade_services;
mod costs;
mod delays;
mod records;
mod rounds;
mod sound;
mod speech_service;

use assistant::Assistant;
use sound::{ANSWER, Answer};

use crate::rows::Lines;
use crate::{Bench, Result};

/// Sentences of an answer of `cascade`.
const SENTENCES: usize = 2;

/// CPU and memory per call, of WebRTC and of telephone calls; delays; interruptions.
pub fn realtime(bench: &Bench) -> Result<Lines> {
    let talking = Assistant::realtime(Answer::Speech(ANSWER))?;
    let mut lines = costs::idle(bench, &talking)?;
    lines.extend(costs::calls(bench, &talking)?);
    lines.extend(costs::phones(bench, &talking)?);
    drop(talking);
    lines.extend(delays::of_realtime(bench)?);
    lines.extend(delays::interruptions_of_realtime(bench)?);
    Ok(lines)
}

/// CPU and memory per call; delays of each step; interruptions.
pub fn cascade(bench: &Bench) -> Result<Lines> {
    let talking = Assistant::cascade(Answer::Speech(ANSWER / SENTENCES as u32), SENTENCES)?;
    let mut lines = costs::idle(bench, &talking)?;
    lines.extend(costs::calls(bench, &talking)?);
    drop(talking);
    lines.extend(delays::of_cascade(bench)?);
    lines.extend(delays::interruptions_of_cascade(bench)?);
    Ok(lines)
}
