//! Compares detectors of speech on noisy speech.
//!
//! In: a folder with `speech*.wav` and `noise-*.wav` at 16 kHz, made by `run.sh`. Out: a table of
//! frame error rates, and one of delays. The sentences follow each other with pauses of 1.5 s; a
//! block of 10 ms is speech if the clean sentence is within 35 dB of its loudest block there, or
//! within a gap of 200 ms. Levels are the ratio of the sentences' mean energy to that of the noise,
//! for clatter to that of one burst.

use std::path::{Path, PathBuf};

use edge_runner_proto::audio::vad::Vad;
use edge_runner_proto::kit::Wav;

const RATE_HZ: usize = 16_000;
const BLOCK: usize = RATE_HZ / 100;
/// Samples that earshot takes at once.
const EARSHOT_FRAME: usize = 256;
const PAUSE: usize = RATE_HZ * 3 / 2;
/// Blocks of a turn: 100 ms of speech begin it, 700 ms without end it.
const ONSET_BLOCKS: usize = 10;
const END_BLOCKS: usize = 70;
const LEVELS_DB: [i32; 3] = [20, 10, 0];

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("a folder"));
    let sentences = files(&folder, "speech");
    let clean = Clean::new(&sentences);
    println!(
        "{} sentences, {:.0} s, {:.0} % speech",
        sentences.len(),
        clean.pcm.len() as f32 / RATE_HZ as f32,
        100.0 * share(&vec![true; clean.is_speech.len()], &clean.is_speech, true)
    );
    println!(
        "\n| noise | level | energy: missed | false | earshot 0.5: missed | false | earshot 0.7: missed | false |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut delays = Vec::new();
    let is_pause: Vec<bool> = clean.is_speech.iter().map(|speech| !speech).collect();
    for noise in noises(&folder) {
        for level_db in LEVELS_DB {
            let pcm = clean.with(&noise.pcm, &noise.name, level_db);
            let probabilities = earshot(&pcm);
            let detectors = [energy(&pcm), above(&probabilities, 0.5), above(&probabilities, 0.7)];
            print!("| {} | {level_db} dB |", noise.name);
            for heard in &detectors {
                let missed = share(&clean.is_speech, heard, false);
                let falsely = share(&is_pause, heard, true);
                print!(" {:.1} % | {:.1} % |", missed * 100.0, falsely * 100.0);
            }
            println!();
            delays.push((noise.name.clone(), level_db, detectors.map(|heard| clean.turns(&heard))));
        }
    }
    println!("\nBegin and end of turns, in ms after those of the sentence; median and worst.\n");
    println!(
        "| noise | level | energy: begin | end | unheard | false turns | earshot 0.5: begin | end | unheard | false turns \
         | earshot 0.7: begin | end | unheard | false turns |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (noise, level_db, turns) in &delays {
        print!("| {noise} | {level_db} dB |");
        for turn in turns {
            let (begin, end) = (spread(&turn.begins), spread(&turn.ends));
            print!(" {begin} | {end} | {} | {} |", turn.unheard, turn.falsely);
        }
        println!();
    }
}

struct Noise {
    name: String,
    pcm: Vec<i16>,
}

fn noises(folder: &Path) -> Vec<Noise> {
    ["white", "fan", "babble", "clatter"]
        .map(|name| Noise {
            name: name.to_owned(),
            pcm: files(folder, &format!("noise-{name}")).remove(0),
        })
        .into()
}

fn files(folder: &Path, prefix: &str) -> Vec<Vec<i16>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        })
        .collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let wav = Wav::read(&std::fs::read(path).expect("a file")).expect("a WAV file");
        assert_eq!(wav.rate_hz as usize, RATE_HZ);
        wav.pcm
    };
    paths.iter().map(read).collect()
}

fn mean_square(pcm: &[i16]) -> f64 {
    pcm.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>() / pcm.len().max(1) as f64
}

/// Sentences and pauses, with what is speech.
struct Clean {
    pcm: Vec<i16>,
    is_speech: Vec<bool>,
    /// First and last block of each sentence.
    turns: Vec<(usize, usize)>,
    energy: f64,
}

impl Clean {
    fn new(sentences: &[Vec<i16>]) -> Self {
        let mut pcm = vec![0; PAUSE * 2];
        let mut is_speech = vec![false; pcm.len() / BLOCK];
        let mut turns = Vec::new();
        let mut energy = 0.0;
        for sentence in sentences {
            let blocks: Vec<f64> = sentence.chunks(BLOCK).map(mean_square).collect();
            let loudest = blocks.iter().copied().fold(0.0, f64::max);
            let mut loud: Vec<usize> = Vec::new();
            for (at, block) in blocks.iter().enumerate() {
                if *block > loudest * 10_f64.powf(-3.5) {
                    loud.push(at);
                }
            }
            let first = is_speech.len();
            let (begin, end) = (loud[0], loud[loud.len() - 1]);
            turns.push((first + begin, first + end));
            let mut speech = vec![false; blocks.len()];
            for pair in loud.windows(2) {
                if pair[1] - pair[0] <= 20 {
                    speech[pair[0]..=pair[1]].fill(true);
                }
            }
            is_speech.extend(speech);
            energy += mean_square(sentence) / sentences.len() as f64;
            pcm.extend(sentence);
            pcm.resize(is_speech.len() * BLOCK, 0);
            pcm.resize(pcm.len() + PAUSE, 0);
            is_speech.resize(pcm.len() / BLOCK, false);
        }
        Clean {
            pcm,
            is_speech,
            turns,
            energy,
        }
    }

    /// Adds noise at a ratio of speech to noise.
    fn with(&self, noise: &[i16], name: &str, level_db: i32) -> Vec<i16> {
        let reference = if name == "clatter" {
            &noise[..RATE_HZ / 8]
        } else {
            noise
        };
        let wanted = self.energy / 10_f64.powf(f64::from(level_db) / 10.0);
        let gain = (wanted / mean_square(reference)).sqrt();
        let mut noise = noise.iter().cycle();
        let mut mix = |sample: &i16| {
            let noise = f64::from(*noise.next().expect("it repeats")) * gain;
            (f64::from(*sample) * 0.5 + noise * 0.5).clamp(-32_768.0, 32_767.0) as i16
        };
        self.pcm.iter().map(&mut mix).collect()
    }

    /// Runs the rules of a turn over the decisions.
    fn turns(&self, heard: &[bool]) -> Turns {
        let mut found: Vec<(usize, usize)> = Vec::new();
        let (mut run, mut quiet, mut begun) = (0, 0, None);
        for (at, speech) in heard.iter().enumerate() {
            (run, quiet) = if *speech { (run + 1, 0) } else { (0, quiet + 1) };
            match begun {
                None if run >= ONSET_BLOCKS => begun = Some(at),
                Some(begin) if quiet >= END_BLOCKS => {
                    found.push((begin, at));
                    begun = None;
                }
                _ => {}
            }
        }
        found.extend(begun.map(|begin| (begin, heard.len())));
        let mut turns = Turns::default();
        let mut used = vec![false; found.len()];
        for (begin, end) in &self.turns {
            // A turn that began within the sentence, and the end of the last turn that overlaps it.
            let overlapping = |turn: &&(usize, usize)| turn.0 <= *end && turn.1 >= *begin;
            let mut overlaps = found.iter().filter(overlapping);
            let Some(first) = overlaps.next() else {
                turns.unheard += 1;
                continue;
            };
            let last = overlaps.next_back().unwrap_or(first);
            if first.0 >= *begin {
                turns.begins.push((first.0 - begin) as i64 * 10);
            }
            turns.ends.push((last.1 as i64 - *end as i64) * 10);
            for (at, turn) in found.iter().enumerate() {
                used[at] |= overlapping(&turn);
            }
        }
        turns.falsely = used.iter().filter(|used| !**used).count();
        turns
    }
}

#[derive(Default)]
struct Turns {
    begins: Vec<i64>,
    ends: Vec<i64>,
    unheard: usize,
    falsely: usize,
}

fn spread(values: &[i64]) -> String {
    let mut values = values.to_vec();
    values.sort_unstable();
    match values.last() {
        Some(worst) => format!("{}, {worst}", values[values.len() / 2]),
        None => "none".to_owned(),
    }
}

/// Returns the decision of the energy detector for each block of 10 ms: that of the packet of 20 ms
/// that contains it.
fn energy(pcm: &[i16]) -> Vec<bool> {
    let mut vad = Vad::new(RATE_HZ as u32);
    pcm.chunks(2 * BLOCK)
        .flat_map(|packet| {
            let heard = vad.hears_speech(packet);
            vec![heard; packet.len() / BLOCK]
        })
        .collect()
}

/// Returns earshot's probability for each block of 10 ms: that of the frame of 16 ms that covers
/// its middle.
fn earshot(pcm: &[i16]) -> Vec<f32> {
    let mut detector = earshot::Detector::default();
    let frames: Vec<f32> = pcm
        .chunks_exact(EARSHOT_FRAME)
        .map(|frame| detector.predict_i16(frame))
        .collect();
    let of = |block: usize| {
        let frame = (block * BLOCK + BLOCK / 2) / EARSHOT_FRAME;
        frames.get(frame).copied().unwrap_or_default()
    };
    (0..pcm.len() / BLOCK).map(of).collect()
}

fn above(probabilities: &[f32], threshold: f32) -> Vec<bool> {
    probabilities
        .iter()
        .map(|probability| *probability >= threshold)
        .collect()
}

/// Returns the share of the blocks with `is` for which `heard` is `as_heard`.
fn share(is: &[bool], heard: &[bool], as_heard: bool) -> f32 {
    let of_interest = is.iter().zip(heard).filter(|(is, _)| **is);
    let (all, such) = of_interest.fold((0, 0), |(all, such), (_, heard)| {
        (all + 1, such + usize::from(*heard == as_heard))
    });
    such as f32 / all.max(1) as f32
}
