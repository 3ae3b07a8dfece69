//! Turns: what is heard, answered and interrupted.

use super::*;
use crate::assistant::answer_stopwatch::MeasuredAnswer;

#[test]
fn a_turn_is_recognised_while_it_is_spoken() {
    let mut rig = Rig::joined();
    rig.take();
    rig.speak(400);
    let id = rig.recognition();
    rig.be_silent(800);
    let outputs = rig.take();
    let samples: usize = outputs
        .iter()
        .map(|output| match output {
            CascadeOutput::RecognizeAudio { id: of, pcm } => {
                assert_eq!(*of, id);
                pcm.len()
            }
            _ => 0,
        })
        .sum();
    // 300 ms before the speech, the speech, and 700 ms that end it, to a frame or two.
    let ms = samples * 1_000 / RECOGNIZER_RATE_HZ as usize;
    assert!((1_380..=1_460).contains(&ms), "{ms} ms");
    let at = |wanted: &CascadeOutput| outputs.iter().position(|output| output == wanted);
    let finished = at(&CascadeOutput::FinishRecognition { id }).expect("the turn has ended");
    let last = outputs
        .iter()
        .rposition(|output| matches!(output, CascadeOutput::RecognizeAudio { .. }));
    assert!(Some(finished) > last, "all audio precedes the end");
    assert!(at(&CascadeOutput::Report(ClientReport::UserStartedSpeaking)).is_some());
    assert!(at(&CascadeOutput::Report(ClientReport::UserStoppedSpeaking)).is_some());
}

#[test]
fn an_answer_is_spoken_while_the_model_writes() {
    let mut rig = Rig::joined();
    rig.say("What is it?");
    assert_eq!(rig.asked(), [pair("user", "What is it?")]);
    rig.write("It is a bird");
    assert_eq!(rig.sentences().len(), 0);
    rig.write(". It sings. It");
    assert_eq!(rig.sentences().into_values().collect::<Vec<_>>(), ["It is a bird."]);
    rig.voice();
    assert_eq!(rig.sentences().len(), 2, "the next is made while the first is heard");
    rig.voice();
    rig.write(" flies. And more.");
    assert_eq!(rig.sentences().len(), 2, "no more than one is ahead");
    assert_eq!(rig.play(10), 10);
    assert_eq!(rig.sentences().len(), 3);
    rig.finish();
    rig.voice();
    rig.play(100);
    rig.voice();
    assert_eq!(rig.play(100), 10);
    let waited = rig.reports().filter_map(|report| match report {
        ClientReport::FirstSound(answer) => Some(answer.clone()),
        _ => None,
    });
    let waited: Vec<MeasuredAnswer> = waited.collect();
    assert_eq!(waited.len(), 1);
    // 700 ms of silence end the turn; all services answer at once.
    assert!((780..=840).contains(&waited[0].latency.as_millis()), "{waited:?}");
    let names: Vec<&str> = waited[0].stages.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["recognized", "first_token", "first_sound"]);
    let total: Duration = waited[0].stages.iter().map(|(_, time)| *time).sum();
    assert_eq!(total, waited[0].latency);
    assert!(
        rig.reports()
            .any(|report| matches!(report, ClientReport::SentenceBegins { id: 4, text } if text == "And more."))
    );
    rig.say("Why?");
    assert_eq!(
        rig.asked(),
        [
            pair("user", "What is it?"),
            pair("assistant", "It is a bird. It sings. It flies. And more."),
            pair("user", "Why?"),
        ]
    );
}

#[test]
fn speech_before_the_answer_is_played_joins_the_question() {
    let mut rig = Rig::joined();
    rig.say("Turn on");
    let (first, chat) = (rig.chat(), "Which one? ");
    rig.write(chat);
    let (synthesis, _) = rig.sentences().pop_last().expect("a sentence");
    rig.speak(400);
    assert!(rig.is_cancelled(first) && rig.is_cancelled(synthesis));
    rig.be_silent(800);
    assert_eq!(rig.chats(), 1, "the recogniser has not answered yet");
    let id = rig.recognition();
    rig.session.handle_transcript(id, "the light", true, rig.now);
    rig.drain();
    assert_eq!(rig.asked(), [pair("user", "Turn on the light")]);
    // A late answer to the dropped request changes nothing.
    rig.session.handle_chat_text(first, "Late. Later.", rig.now);
    rig.session
        .handle_speech(synthesis, &[1; 1_000], VOICE_RATE_HZ, rig.now);
    assert_eq!(rig.session.next_speech(&mut Vec::new()), None);
}

#[test]
fn two_utterances_are_joined_in_the_order_of_speech() {
    let mut rig = Rig::joined();
    rig.speak(400);
    rig.be_silent(800);
    let first = rig.recognition();
    rig.speak(400);
    rig.be_silent(800);
    let second = rig.recognition();
    rig.session.handle_transcript(second, "two", true, rig.now);
    rig.drain();
    assert_eq!(rig.chats(), 0);
    rig.session.handle_transcript(first, "one", true, rig.now);
    rig.drain();
    assert_eq!(rig.asked(), [pair("user", "one two")]);
}

/// A session whose answer of three sentences is heard to the middle of the second.
fn interrupted() -> Rig {
    let mut rig = Rig::joined();
    rig.say("Tell me.");
    rig.answer("Well then. ");
    rig.be_silent(2_000);
    rig.say("More.");
    rig.write("One is here. Two is here. Three is here. Four is");
    rig.voice();
    rig.voice();
    assert_eq!(rig.play(16), 16);
    rig.take();
    rig.speak(280);
    assert_eq!(rig.outputs, [], "short sounds do not interrupt");
    rig.speak(60);
    assert!(rig.outputs.contains(&CascadeOutput::Interrupt));
    assert!(rig.outputs.contains(&CascadeOutput::Count(AssistantCount::BargeIn)));
    assert_eq!(rig.session.next_speech(&mut Vec::new()), None);
    rig
}

#[test]
fn words_of_the_caller_drop_the_answer_and_the_model_knows_what_was_played() {
    let mut rig = interrupted();
    rig.be_silent(800);
    let id = rig.recognition();
    rig.session.handle_transcript(id, "Stop", false, rig.now);
    rig.drain();
    assert!(
        rig.outputs
            .iter()
            .any(|output| matches!(output, CascadeOutput::Cancel { .. })),
        "the model stops with the first word"
    );
    rig.session.handle_transcript(id, "Stop it.", true, rig.now);
    rig.drain();
    let asked = rig.asked();
    assert_eq!(
        asked[asked.len() - 2..],
        [pair("assistant", "One is here. Two is"), pair("user", "Stop it.")]
    );
}

#[test]
fn a_sound_without_words_lets_the_answer_go_on() {
    let mut rig = interrupted();
    rig.be_silent(800);
    let id = rig.recognition();
    rig.session.handle_transcript(id, " ", true, rig.now);
    rig.drain();
    assert_eq!(
        rig.sentences().into_values().collect::<Vec<_>>(),
        ["Three is here."],
        "the cut sentence is not repeated"
    );
    let chat = rig
        .session
        .answer
        .as_ref()
        .and_then(|answer| answer.chat)
        .expect("it still writes");
    rig.session.handle_chat_text(chat, " here.", rig.now);
    rig.session.handle_chat_done(chat, outcome(Vec::new()), rig.now);
    rig.voice();
    rig.play(100);
    rig.voice();
    rig.play(100);
    assert!(rig.session.answer.is_none());
    rig.say("Good.");
    let asked = rig.asked();
    let received = "One is here. Two is here. Three is here. Four is here.";
    assert_eq!(asked[asked.len() - 2], pair("assistant", received));
}

#[test]
fn without_interruptions_the_caller_is_ignored_during_speech() {
    let mut rig = Rig::joined_with(&json!({}), |config| config.interrupt = false);
    rig.say("Go.");
    rig.write("A first sentence. A second one. ");
    rig.voice();
    rig.play(5);
    rig.take();
    rig.speak(600);
    assert_eq!(rig.take(), []);
}

#[test]
fn the_first_two_seconds_of_speech_are_not_interrupted() {
    let mut rig = Rig::joined();
    rig.say("Go.");
    rig.write("One is here. Two is here. Three is here. ");
    rig.voice();
    rig.voice();
    rig.play(5);
    rig.take();
    rig.speak(600);
    assert_eq!(rig.take(), [], "an echo canceller adapts");
    rig.be_silent(1_000);
    rig.speak(400);
    assert!(rig.take().contains(&CascadeOutput::Interrupt));
}

#[test]
fn thinking_plays_ticks() {
    let mut rig = Rig::joined();
    rig.say("Think.");
    rig.take();
    rig.pass(Duration::from_millis(2_900));
    assert_eq!(rig.play(1), 0);
    rig.pass(Duration::from_millis(200));
    assert_eq!(rig.play(2), 1, "after 3 s");
    rig.pass(Duration::from_millis(1_700));
    assert_eq!(rig.play(1), 0);
    rig.pass(Duration::from_millis(200));
    assert_eq!(rig.play(2), 1, "every 2 s");
    assert!(
        !rig.reports()
            .any(|report| matches!(report, ClientReport::FirstSound(_))),
        "a tick is no answer"
    );
}

#[test]
fn a_marker_of_the_recogniser_is_no_question() {
    let mut rig = Rig::joined();
    for marker in ["[BLANK_AUDIO]", "(music)", "."] {
        rig.say(marker);
        assert_eq!(rig.chats(), 0, "{marker}");
    }
    let is_transcript = |report: &ClientReport| matches!(report, ClientReport::Transcript { .. });
    assert!(!rig.reports().any(is_transcript));
}

/// A caller in noise as loud as the speech is heard by the neural detector alone.
#[test]
fn the_neural_detector_hears_a_caller_in_loud_noise() {
    let turns = |detector| {
        let mut rig = Rig::joined_with(&json!({}), |config| config.cascade.detector = detector);
        rig.take();
        // Two sentences, 16 kHz; see `tests/data/audio/README.md`.
        let bytes = include_bytes!("../../../../../tests/data/audio/speech.raw");
        let (samples, _) = bytes.as_chunks::<2>();
        let speech: Vec<i16> = samples.iter().map(|sample| i16::from_le_bytes(*sample)).collect();
        let power = |pcm: &[i16]| pcm.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>();
        let effective = (power(&speech) / speech.len() as f64).sqrt();
        let mut seed = 1_u32;
        let mut noise = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (f64::from(seed >> 8) / 8_388_608.0 - 1.0) * 3_f64.sqrt() * effective
        };
        let mut hear = |rig: &mut Rig, pcm: &[i16]| {
            for frame in pcm.chunks_exact(FRAME_SAMPLES) {
                let noisy: Vec<i16> = frame
                    .iter()
                    .map(|sample| (f64::from(*sample) + noise()) as i16)
                    .collect();
                rig.hear(&noisy);
            }
        };
        // Until the noise is the background.
        hear(&mut rig, &vec![0; 8 * 16_000]);
        rig.take();
        hear(&mut rig, &[speech, vec![0; 16_000]].concat());
        let is_start = |output: &&CascadeOutput| matches!(output, CascadeOutput::StartRecognition { .. });
        rig.outputs.iter().filter(is_start).count()
    };
    assert_eq!(turns(DetectorKind::Energy), 0);
    assert!((1..=2).contains(&turns(DetectorKind::Neural)));
}

#[test]
fn a_recogniser_may_end_the_turn() {
    let mut rig = Rig::joined();
    rig.speak(400);
    rig.be_silent(100);
    let id = rig.recognition();
    rig.session.handle_transcript(id, "Quick.", true, rig.now);
    rig.drain();
    assert_eq!(rig.asked(), [pair("user", "Quick.")]);
    rig.take();
    rig.be_silent(1_000);
    assert_eq!(rig.take(), [], "the turn has no second end");
}
