//! Callers that ask in rounds, and when what they heard begins and ends.
//!
//! Eight WebRTC callers ask in turn, each from another phase of the 20 ms, and each round begins
//! 2.7 ms later than the packets before it. So packets, pieces and slots meet in every phase.

use std::sync::Arc;
use std::time::{Duration, Instant};

use edge_runner_proto::audio::opus::Decoder;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::sound::{Question, level};
use crate::call::{Call, Heard};
use crate::http::Connection;
use crate::{Bench, Result};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const CALLS: usize = 8;
const PTIME: Duration = Duration::from_millis(20);
/// No divisor of 20 ms.
const SHIFT: Duration = Duration::from_micros(2_700);
/// Time in which the last answer arrives.
const LAST_ANSWER: Duration = Duration::from_millis(200);
const DECODED_RATE_HZ: u32 = 16_000;
/// Root mean square above which a packet is loud: above what is left of a tone in the first silent
/// packet, below the tone.
const LOUD_LEVEL: f64 = 1_000.0;

/// What one caller did and heard.
pub struct CallerRounds {
    /// The times of the first and of the last loud packet of each question.
    pub asked: Vec<(Instant, Instant)>,
    /// The times of the packets in which a mark begins.
    pub marks: Vec<Instant>,
    /// Whether each packet that came back is loud.
    packets: Vec<(Instant, bool)>,
}

impl CallerRounds {
    /// Returns when the first loud packet after this time arrived, if silence was heard before.
    pub fn onset_after(&self, at: Instant) -> Option<Instant> {
        let (before, after) = self.packets.split_at(self.first_after(at));
        let onset = after.iter().find(|(_, is_loud)| *is_loud)?;
        (!before.last()?.1).then_some(onset.0)
    }

    /// Returns when the first silent slot after this time began, if speech was heard before.
    /// A slot without a packet is silent, too.
    pub fn silence_after(&self, at: Instant) -> Option<Instant> {
        let (before, after) = self.packets.split_at(self.first_after(at));
        let loud = after.iter().take_while(|(_, is_loud)| *is_loud);
        let last = before.last().into_iter().chain(loud).last()?;
        last.1.then_some(last.0 + PTIME)
    }

    fn first_after(&self, at: Instant) -> usize {
        self.packets.partition_point(|(received_at, _)| *received_at < at)
    }
}

/// Runs all callers for a number of rounds.
pub fn run(runtime: &Runtime, http: &mut Connection, question: Question, count: u32) -> Result<Vec<CallerRounds>> {
    let question = Arc::new(question);
    // In this order, so that the connections to the service have it, too.
    let calls = (0..CALLS)
        .map(|_| runtime.block_on(Call::begin(http)))
        .collect::<Result<Vec<_>>>()?;
    let period = PTIME * question.packets.len() as u32 + SHIFT;
    let began = Instant::now() + Duration::from_millis(100);
    let mut tasks = JoinSet::new();
    for (at, call) in calls.into_iter().enumerate() {
        let first = began + period * at as u32 / CALLS as u32;
        let question = question.clone();
        let guard = runtime.enter();
        tasks.spawn(async move { Ok::<_, Failure>((at, ask(call, &question, first, period, count).await?)) });
        drop(guard);
    }
    let mut done = Vec::new();
    while let Some(one) = runtime.block_on(tasks.join_next()) {
        done.push(one??);
    }
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, rounds)| rounds).collect())
}

async fn ask(
    mut call: Call,
    question: &Question,
    first: Instant,
    period: Duration,
    count: u32,
) -> Result<CallerRounds> {
    let (mut asked, mut marks, mut received) = (Vec::new(), Vec::new(), Vec::new());
    let mut end = first;
    for round in 0..count {
        let begin = first + period * round;
        end = begin + PTIME * question.packets.len() as u32;
        let sent = call
            .talk(&question.packets, begin, end, |one| received.push(one))
            .await?;
        asked.push((sent[question.spoken.0], sent[question.spoken.1]));
        marks.extend(question.marks.iter().map(|mark| sent[*mark]));
    }
    call.listen(end + LAST_ANSWER, |one| received.push(one)).await?;
    call.leave()?;
    Ok(CallerRounds {
        asked,
        marks,
        packets: decode(&received)?,
    })
}

fn decode(received: &[Heard]) -> Result<Vec<(Instant, bool)>> {
    let mut decoder = Decoder::new(DECODED_RATE_HZ)?;
    received
        .iter()
        .map(|one| Ok((one.at, level(decoder.decode(&one.packet.payload)?) > LOUD_LEVEL)))
        .collect()
}

/// Returns how many rounds a measurement has.
pub fn count(bench: &Bench) -> u32 {
    bench.amount(12, 3)
}
