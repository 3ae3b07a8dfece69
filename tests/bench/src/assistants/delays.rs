//! The delays of an assistant, from callers that ask in rounds and the records of its services.

use std::time::{Duration, Instant};

use super::assistant::Assistant;
use super::records::{Moment, Record};
use super::rounds::{self, CallerRounds};
use super::sound::{Answer, Question};
use crate::http::Connection;
use crate::rows::{self, Lines, row, spread};
use crate::{Bench, Result};

/// Packets of a measured question, and of a round with it: the turn ends 0.6 or 0.7 s after the
/// question, and a short answer follows.
const MARKED: (usize, usize) = (92, 205);
const SHORT_ANSWER: Duration = Duration::from_millis(600);
/// The same for questions that interrupt a long answer. They have no marks.
const INTERRUPTING: (usize, usize) = (20, 170);
const LONG_ANSWER: Duration = Duration::from_secs(8);
/// Rounds without an answer to interrupt: none precedes the first, and the first 2 s of
/// the speech of `cascade` cannot be interrupted.
const SPARED: usize = 2;
/// Longest time from a packet to its arrival at a service; the next mark follows later.
const MARK_WITHIN: Duration = Duration::from_millis(170);
/// Longest time from the first packet of a question to the recogniser.
const UTTERANCE_WITHIN: Duration = Duration::from_millis(400);
/// Speech for which the detector of `cascade` waits before an interruption, less the first packet,
/// from whose end times are measured.
const ONSET: Duration = Duration::from_millis(280);

/// The delays of audio to the service of `realtime` and back.
pub fn of_realtime(bench: &Bench) -> Result<Lines> {
    let answering = Assistant::realtime(Answer::Tone(SHORT_ANSWER))?;
    let (callers, records) = measure(bench, &answering, MARKED)?;
    let (mut inward, mut outward) = (Times::default(), Times::default());
    for (stream, caller) in callers.iter().enumerate() {
        let of_call = |moment| times(&records, moment, move |of| of == stream);
        let arrived = of_call(Moment::Mark);
        inward.add(caller.marks.iter().map(|mark| next(&arrived, *mark)));
        let first = of_call(Moment::FirstAudio);
        outward.add(first.iter().map(|at| Some((*at, caller.onset_after(*at)?))));
    }
    Ok(vec![
        inward.row("caller's packet to the service of `realtime`"),
        outward.row("first audio of the service to packet out"),
    ])
}

/// The time until the answer of `realtime` is silent after the caller began to speak in it, and
/// after the service told so.
pub fn interruptions_of_realtime(bench: &Bench) -> Result<Lines> {
    let talking = Assistant::realtime(Answer::Tone(LONG_ANSWER))?;
    let (callers, records) = measure(bench, &talking, INTERRUPTING)?;
    let (mut whole, mut own) = (Times::default(), Times::default());
    for (stream, caller) in callers.iter().enumerate() {
        let reported = times(&records, Moment::SpeechStarted, |of| of == stream);
        for (asked, _) in caller.asked.iter().skip(SPARED) {
            let reported = reported.iter().find(|reported| *reported > asked);
            let silence = caller.silence_after(*asked);
            whole.add([silence.map(|silence| (*asked, silence))]);
            own.add([reported.copied().zip(silence)]);
        }
    }
    Ok(vec![
        whole.row("`realtime`: interruption to silence"),
        own.row("of it from the message of the service"),
    ])
}

/// The same for `cascade`, whose own detector finds the speech.
pub fn interruptions_of_cascade(bench: &Bench) -> Result<Lines> {
    let talking = Assistant::cascade(Answer::Tone(LONG_ANSWER), 1)?;
    let (callers, _) = measure(bench, &talking, INTERRUPTING)?;
    let (mut whole, mut own) = (Times::default(), Times::default());
    for caller in &callers {
        for (asked, _) in caller.asked.iter().skip(SPARED) {
            let silence = caller.silence_after(*asked);
            whole.add([silence.map(|silence| (*asked, silence))]);
            own.add([silence.map(|silence| (*asked + ONSET, silence))]);
        }
    }
    Ok(vec![
        whole.row("`cascade`: interruption to silence"),
        own.row("of it beyond the 300 ms of the detector"),
    ])
}

/// The delays of an answer of `cascade`, step by step.
pub fn of_cascade(bench: &Bench) -> Result<Lines> {
    let answering = Assistant::cascade(Answer::Tone(SHORT_ANSWER), 1)?;
    let (callers, records) = measure(bench, &answering, MARKED)?;
    let records = &records;
    let mut steps: [Times; 5] = Default::default();
    let [inward, chat, voice, outward, whole] = &mut steps;
    for caller in &callers {
        // Questions begin far apart: an utterance is that of the last caller who began to speak.
        let mut arrived = Vec::new();
        for (asked, last) in &caller.asked {
            let utterance = records.iter().find(|record| {
                record.moment == Moment::Utterance && (*asked..*asked + UTTERANCE_WITHIN).contains(&record.at)
            });
            let Some(utterance) = utterance.map(|record| record.stream) else {
                whole.add([None]);
                continue;
            };
            let of_answer = |moment| times(records, moment, move |of| of == utterance);
            let first = |moment| of_answer(moment).first().copied();
            arrived.extend(of_answer(Moment::Mark));
            let pair = |from: Moment, to: Moment| Some((first(from)?, first(to)?));
            chat.add([pair(Moment::Transcript, Moment::ChatAsked)]);
            voice.add([pair(Moment::Sentence, Moment::VoiceAsked)]);
            let onset = first(Moment::FirstAudio).and_then(|at| Some((at, caller.onset_after(at)?)));
            outward.add([onset]);
            whole.add([onset.map(|(_, onset)| (*last, onset))]);
        }
        inward.add(caller.marks.iter().map(|mark| next(&arrived, *mark)));
    }
    let labels = [
        "caller's packet to the recogniser",
        "transcript to the request to the model",
        "end of its first sentence to the voice",
        "first audio of the voice to packet out",
        "last packet of speech to first of the answer",
    ];
    let rows = steps.iter_mut().zip(labels).map(|(times, label)| times.row(label));
    Ok(rows.collect())
}

/// Runs the rounds of all callers, and returns what they and the services noticed.
fn measure(bench: &Bench, assistant: &Assistant, packets: (usize, usize)) -> Result<(Vec<CallerRounds>, Vec<Record>)> {
    let question = Question::new(packets.0, packets.1)?;
    let runner = assistant.start(bench)?;
    let mut http = Connection::open(runner.addr)?;
    let callers = rounds::run(&rows::runtime()?, &mut http, question, rounds::count(bench))?;
    Ok((callers, assistant.records.take()))
}

/// Durations of one kind, and how many events had none.
#[derive(Default)]
struct Times {
    measured: Vec<Duration>,
    missed: usize,
}

impl Times {
    fn add(&mut self, spans: impl IntoIterator<Item = Option<(Instant, Instant)>>) {
        for span in spans {
            match span {
                Some((from, to)) => self.measured.push(to.saturating_duration_since(from)),
                None => self.missed += 1,
            }
        }
    }

    fn row(&mut self, what: &str) -> (String, String) {
        let mut measured = spread(&mut self.measured);
        if self.missed > 0 {
            measured += &format!(", {} not counted", self.missed);
        }
        row(format!("{what}, {}", self.measured.len()), measured)
    }
}

/// Returns the times of one kind of moments of some streams.
pub fn times(records: &[Record], moment: Moment, is_wanted: impl Fn(usize) -> bool) -> Vec<Instant> {
    let wanted = records
        .iter()
        .filter(|record| record.moment == moment && is_wanted(record.stream));
    wanted.map(|record| record.at).collect()
}

/// Returns when a mark that was sent arrived.
fn next(arrived: &[Instant], sent: Instant) -> Option<(Instant, Instant)> {
    let found = arrived.iter().find(|at| **at >= sent && **at < sent + MARK_WITHIN)?;
    Some((sent, *found))
}
