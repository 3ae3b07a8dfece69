//! A session of the sound card in virtual time.

use super::*;
use crate::local::echo::EchoFigures;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn setup(echo: LocalEcho, end: Duration) -> LocalSetup {
    LocalSetup {
        types: false,
        in_rate_hz: 16_000,
        out_rate_hz: 16_000,
        out_channels: 1,
        echo,
        has_tones: false,
        controls: LocalControls::new(100),
        end,
        stop_words: StopWords::default(),
        shows_levels: false,
        preroll: Vec::new(),
    }
}

/// A session, its outputs so far, and its clock.
struct Rig {
    session: LocalSession,
    now: Instant,
    start: Instant,
    received: Vec<i16>,
    events: Vec<(Duration, SessionEvent)>,
    played: Vec<u8>,
    lines: Vec<String>,
    levels: Vec<String>,
    is_closed: bool,
    /// What the bot has yet to say.
    speech: VecDeque<i16>,
    /// What the microphone records in each block of 10 ms; `None` without one.
    microphone: Option<i16>,
}

impl Rig {
    fn new(setup: LocalSetup) -> Rig {
        let start = Instant::now();
        let mut rig = Rig {
            session: LocalSession::new(setup, start),
            now: start,
            start,
            received: Vec::new(),
            events: Vec::new(),
            played: Vec::new(),
            lines: Vec::new(),
            levels: Vec::new(),
            is_closed: false,
            speech: VecDeque::new(),
            microphone: Some(20),
        };
        rig.session.set_audio(16_000, 16_000, false, start);
        rig
    }

    fn feed(&mut self) {
        let capacity = self.session.bot_audio_capacity().expect("always");
        let piece: Vec<i16> = self.speech.drain(..capacity.min(self.speech.len())).collect();
        self.session.handle_bot_audio(&piece, self.now);
    }

    fn drain(&mut self) -> Instant {
        loop {
            match self.session.poll_output(self.now) {
                SessionOutput::Timeout(deadline) => return deadline.at,
                SessionOutput::Closed => {
                    self.is_closed = true;
                    return self.now + S;
                }
                SessionOutput::Command(LocalCommand::Play(bytes)) => self.played.extend(bytes),
                SessionOutput::Command(LocalCommand::Show(line)) => self.lines.push(line),
                SessionOutput::Command(LocalCommand::ShowLevels(row)) => self.levels.push(row),
                SessionOutput::Audio(frame) => {
                    assert!(frame.pcm.len() <= 320);
                    self.received.extend(frame.pcm);
                }
                SessionOutput::Event(event) => self.events.push((self.now - self.start, event)),
                SessionOutput::BotAudioWanted => self.feed(),
            }
        }
    }

    /// Runs with a block of the microphone every 10 ms.
    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        let mut block = self.now + 10 * MS;
        self.drain();
        while self.now < until && !self.is_closed {
            let deadline = self.drain();
            self.now = deadline.min(block).max(self.now);
            self.session.handle_timeout(self.now);
            if self.now == block {
                block += 10 * MS;
                if let Some(level) = self.microphone {
                    // A square wave of 500 Hz passes the filter of the detector.
                    let pcm: Vec<i16> = (0..160).map(|n| if n / 16 % 2 == 0 { level } else { -level }).collect();
                    self.session.handle_microphone(&pcm, CaptureCounts::default(), self.now);
                }
            }
        }
        self.drain();
    }

    fn left(&self) -> Option<(Duration, LeaveReason)> {
        self.events.iter().find_map(|(at, event)| match event {
            SessionEvent::Left(reason) => Some((*at, *reason)),
            _ => None,
        })
    }
}

/// Tones frame a session; neither silences the microphone for the bot, nor counts as its speech.
#[test]
fn tones_tell_the_start_and_the_end() {
    let mut setup = setup(LocalEcho::Half, Duration::ZERO);
    setup.has_tones = true;
    let mut rig = Rig::new(setup);
    rig.run(500 * MS);
    let of = |bytes: &[u8]| -> Vec<i16> {
        let pairs = bytes.chunks_exact(2);
        pairs.map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
    };
    let start = LocalTone::Start.pcm(16_000);
    assert_eq!(of(&rig.played)[..start.len()], start);
    assert!(rig.received.iter().all(|sample| *sample != 0), "the first words");
    assert!(
        !rig.events
            .iter()
            .any(|(_, event)| *event == SessionEvent::SpeechStarted)
    );
    rig.session.handle_bot_end(LeaveReason::BotFailed, rig.now);
    rig.run(500 * MS);
    assert_eq!(rig.left().map(|(_, reason)| reason), Some(LeaveReason::BotFailed));
    let played = of(&rig.played);
    assert!(played.ends_with(&LocalTone::Error.pcm(16_000)));
}

/// A terminal shows ten rows a second: what the microphone hears also where the bot does not, and
/// who speaks. Without a terminal there is none.
#[test]
fn levels_are_shown_ten_times_a_second() {
    let mut rig = Rig::new(setup(LocalEcho::Off, Duration::ZERO));
    rig.run(S);
    assert!(rig.levels.is_empty());
    let mut setup = setup(LocalEcho::Half, Duration::ZERO);
    setup.shows_levels = true;
    let mut rig = Rig::new(setup);
    rig.run(S);
    assert!((10..=11).contains(&rig.levels.len()), "{:?}", rig.levels);
    rig.microphone = Some(8_000);
    rig.run(S);
    let last = |rig: &Rig| rig.levels.last().cloned().unwrap_or_default();
    assert_eq!(last(&rig), "you [###########---] bot [--------------] you speak ");
    rig.speech = vec![16_400; 16_000].into();
    rig.feed();
    rig.run(S / 2);
    assert_eq!(last(&rig), "you [###########---] bot [#############-] bot speaks");
}

/// Of a muted microphone the bot hears silence, in time; a tone tells each change.
#[test]
fn a_muted_microphone_is_silent() {
    use crate::local::console::UserWish;
    let mut setup = setup(LocalEcho::Off, Duration::ZERO);
    setup.has_tones = true;
    let mut controls = setup.controls;
    let mut rig = Rig::new(setup);
    rig.run(S);
    for (is_muted, tone) in [(true, LocalTone::Muted), (false, LocalTone::Unmuted)] {
        controls.handle_wish(&UserWish::Mute);
        rig.session.handle_controls(controls);
        let (received, played) = (rig.received.len(), rig.played.len());
        rig.run(S);
        assert!(rig.received[received..].iter().all(|sample| (*sample == 0) == is_muted));
        assert!(
            (rig.received.len() - received).abs_diff(16_000) < 480,
            "no time is lost"
        );
        let bytes = card_bytes(&tone.pcm(16_000), 1);
        assert!(rig.played[played..].windows(bytes.len()).any(|sound| sound == bytes));
    }
    controls.handle_wish(&UserWish::Quieter);
    rig.session.handle_controls(controls);
    rig.run(100 * MS);
    rig.speech.extend([10_000; 3_200]);
    rig.feed();
    let played = rig.played.len();
    rig.run(S);
    let loudest = rig.played[played..]
        .chunks_exact(2)
        .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
        .max();
    assert_eq!(loudest, Some(8_100), "90 % of the volume");
}

/// The bot does not hear itself while the canceller learns, and hears the caller afterwards.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_canceller_lets_the_caller_interrupt_once_it_has_learned() {
    let mut rig = Rig::new(setup(LocalEcho::Cancel, Duration::ZERO));
    rig.microphone = Some(2_000);
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 18) as i16 - 8_192
    };
    rig.speech = (0..5 * 16_000).map(|_| noise()).collect();
    rig.run(1_500 * MS);
    assert!(rig.received.len() > 22_000 && rig.received.iter().all(|sample| *sample == 0));
    rig.run(2_500 * MS);
    let newest = &rig.received[rig.received.len() - 8_000..];
    assert!(newest.iter().any(|sample| sample.unsigned_abs() > 100), "the caller");
    rig.session.handle_underrun(Duration::ZERO, rig.now);
    let before = rig.received.len();
    rig.run(500 * MS);
    assert!(
        rig.received[before + 640..].iter().all(|sample| *sample == 0),
        "it learns again"
    );
    assert!(rig.session.summary(&Counts::default()).contains("; echo lowered by "));
}

/// A microphone that says that it has lost audio has none with that.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_loss_of_the_microphone_is_learned_from_without_its_audio() {
    let mut rig = Rig::new(setup(LocalEcho::Cancel, Duration::ZERO));
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 18) as i16 - 8_192
    };
    rig.speech = (0..9 * 16_000).map(|_| noise()).collect();
    rig.run(5 * S);
    let has_learned = |rig: &Rig| rig.session.canceller.as_ref().is_some_and(|echo| echo.has_learned());
    assert!(has_learned(&rig));
    let lost = CaptureCounts {
        gaps: 1,
        ..CaptureCounts::default()
    };
    rig.session.handle_microphone(&[], lost, rig.now);
    assert!(!has_learned(&rig));
}

/// A canceller that says all the time that it does not work.
struct Deaf(Vec<i16>);

impl EchoCanceller for Deaf {
    fn handle_written(&mut self, _: &[i16]) {}

    fn handle_loss(&mut self) {}

    fn has_learned(&self) -> bool {
        true
    }

    fn cancel(&mut self, pcm: &[i16]) -> &[i16] {
        self.0 = pcm.to_vec();
        &self.0
    }

    fn poll_failure(&mut self) -> Option<f64> {
        Some(-0.3)
    }

    fn figures(&self) -> EchoFigures {
        EchoFigures {
            removed_db: 0.0,
            delay_ms: 0,
            sound_s: 0,
        }
    }
}

/// Reported once in a session, with what to do.
#[test]
fn a_canceller_that_does_not_work_is_reported_once() {
    let mut rig = Rig::new(setup(LocalEcho::Off, Duration::ZERO));
    rig.run(100 * MS);
    assert!(!rig.session.poll_echo(), "without a canceller");
    rig.session.canceller = Some(Box::new(Deaf(Vec::new())));
    rig.run(100 * MS);
    assert_eq!([rig.session.poll_echo(), rig.session.poll_echo()], [true, false]);
    rig.run(100 * MS);
    assert!(!rig.session.poll_echo());
    let words = echo_warning(-0.3);
    assert!(
        words.contains("removes 0 dB") && words.contains("`--local-echo half`") && words.contains("`--local-volume`"),
        "{words}"
    );
}

/// A caller who speaks over the bot lowers its voice; it comes back once that is over, also where a
/// loss makes the canceller learn again meanwhile.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_caller_lowers_the_bot() {
    let mut rig = Rig::new(setup(LocalEcho::Cancel, Duration::ZERO));
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 19) as i16 - 4_096
    };
    rig.speech = (0..14 * 16_000).map(|_| noise()).collect();
    let loudness = |bytes: &[u8]| {
        let pcm = bytes.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]]));
        (pcm.map(|sample| f64::from(sample).powi(2)).sum::<f64>() / (bytes.len() / 2) as f64).sqrt()
    };
    let newest = |rig: &Rig| loudness(&rig.played[rig.played.len() - 2 * 4_800..]);
    rig.run(4 * S);
    let alone = newest(&rig);
    rig.microphone = Some(8_000);
    rig.run(S);
    let spoken_over = newest(&rig);
    rig.microphone = Some(20);
    rig.run(2 * S);
    let again = newest(&rig);
    assert!((0.2..0.3).contains(&(spoken_over / alone)), "{}", spoken_over / alone);
    assert!((0.9..1.1).contains(&(again / alone)), "{}", again / alone);
    rig.microphone = Some(8_000);
    rig.run(S);
    rig.session.handle_loss();
    rig.microphone = Some(20);
    rig.run(S);
    let after_loss = newest(&rig);
    assert!((0.9..1.1).contains(&(after_loss / alone)), "{}", after_loss / alone);
}

/// What was said before the session, and before the bot's rate is known, is not cut.
#[test]
fn the_bot_hears_the_first_words_and_a_client_that_is_ready() {
    let mut setup = setup(LocalEcho::Half, Duration::ZERO);
    setup.preroll = vec![1; 1_600];
    let start = Instant::now();
    let mut session = LocalSession::new(setup, start);
    session.handle_microphone(&[2; 160], CaptureCounts::default(), start);
    assert!(matches!(
        session.poll_output(start),
        SessionOutput::Event(SessionEvent::Joined)
    ));
    let SessionOutput::Event(SessionEvent::Message(ready)) = session.poll_output(start) else {
        panic!("client-ready");
    };
    assert!(ready.contains("client-ready"), "{ready}");
    session.set_audio(16_000, 24_000, false, start);
    let mut played = Vec::new();
    while let SessionOutput::Audio(frame) = session.poll_output(start) {
        played.extend_from_slice(frame.pcm);
    }
    assert_eq!(played, [vec![1; 1_600], vec![2; 160]].concat());
}

/// In half duplex the bot hears silence from its first sound until its echo is over; else all.
#[test]
fn in_half_duplex_the_bot_does_not_hear_itself() {
    for (echo, muted) in [(LocalEcho::Half, true), (LocalEcho::Off, false)] {
        let mut rig = Rig::new(setup(echo, Duration::ZERO));
        rig.run(S);
        rig.speech.extend([9_000; 16_000]);
        rig.feed();
        rig.run(3 * S);
        let silent = rig.received.iter().filter(|sample| **sample == 0).count();
        let expected = 16_000 + 16 * ECHO_TAIL.as_millis() as usize;
        if muted {
            assert!(silent.abs_diff(expected) < 16 * 80, "{silent} of {expected}");
        } else {
            assert_eq!(silent, 0);
        }
        assert!(rig.received.len().abs_diff(4 * 16_000) < 480, "no time is lost");
        let loud = rig.played.chunks_exact(2).filter(|sample| **sample != [0, 0]).count();
        assert_eq!(loud, 16_000);
        let speech: Vec<&SessionEvent> = rig.events[2..].iter().map(|(_, event)| event).collect();
        assert_eq!(speech, [&SessionEvent::SpeechStarted, &SessionEvent::SpeechStopped]);
    }
}

/// Silence ends a session; speech of either side and texts of the bot do not let it end.
#[test]
fn silence_of_both_sides_ends_a_session() {
    let mut rig = Rig::new(setup(LocalEcho::Half, 3 * S));
    rig.run(2 * S);
    rig.speech.extend([9_000; 16_000]);
    rig.feed();
    rig.run(3 * S);
    assert_eq!(rig.left(), None);
    let text = json!({"label": "rtvi-ai", "type": "bot-transcription", "id": "1", "data": {"text": "Hm."}});
    rig.session.handle_message(text.to_string());
    rig.run(2 * S);
    assert_eq!((rig.left(), &*rig.lines), (None, &["bot: Hm.".to_owned()][..]));
    rig.microphone = Some(8_000);
    rig.run(500 * MS);
    rig.microphone = Some(20);
    rig.run(10 * S);
    let (at, reason) = rig.left().expect("an end");
    assert_eq!(reason, LeaveReason::Left);
    assert!((at.as_secs_f64() - 10.5).abs() < 0.3, "{at:?}");
    let mut endless = Rig::new(setup(LocalEcho::Half, Duration::ZERO));
    endless.run(100 * S);
    assert_eq!(endless.left(), None);
}

/// A typed line is a text of an RTVI client. What the bot understands of it is not shown again, and
/// it counts as speech.
#[test]
fn a_typed_line_is_said_to_the_bot() {
    let mut setup = setup(LocalEcho::Off, 3 * S);
    setup.types = true;
    let mut rig = Rig::new(setup);
    rig.run(2 * S);
    rig.session.handle_typed("What \"time\" is it?", rig.now);
    let said = |kind, text| {
        let data = json!({"text": text, "final": true, "user_id": "", "timestamp": ""});
        json!({"label": "rtvi-ai", "type": kind, "id": "1", "data": data}).to_string()
    };
    rig.session
        .handle_message(said("user-transcription", "What time is it?"));
    rig.session.handle_message(said("bot-transcription", "Noon."));
    rig.run(2 * S);
    let Some((_, SessionEvent::Message(typed))) = rig.events.last() else {
        panic!("{:?}", rig.events);
    };
    let typed: serde_json::Value = serde_json::from_str(typed).expect("JSON");
    assert_eq!(
        (&typed["type"], &typed["label"]),
        (&json!("send-text"), &json!("rtvi-ai"))
    );
    assert_eq!(typed["data"]["content"], "What \"time\" is it?");
    assert_eq!(typed["data"]["options"]["run_immediately"], true);
    assert_eq!((rig.left(), &*rig.lines), (None, &["bot: Noon.".to_owned()][..]));
    rig.run(3 * S);
    let before = rig.events.len();
    assert!(rig.left().is_some());
    rig.session.handle_typed("late", rig.now);
    rig.run(S);
    assert_eq!(rig.events.len(), before, "nothing is said after the end");
}

/// A stop word ends the session once the bot has understood it as a whole sentence, or when it is
/// typed.
#[test]
fn a_stop_word_ends_the_session() {
    let said = |text, is_final| {
        let data = json!({"text": text, "final": is_final, "user_id": "", "timestamp": ""});
        json!({"label": "rtvi-ai", "type": "user-transcription", "id": "1", "data": data}).to_string()
    };
    let bot = json!({"label": "rtvi-ai", "type": "bot-transcription", "id": "1", "data": {"text": "Good bye."}});
    let mut setup = setup(LocalEcho::Off, Duration::ZERO);
    setup.stop_words = StopWords::parse("stop,good bye").expect("words");
    let mut rig = Rig::new(setup.clone());
    for text in [
        said("Good bye", false),
        bot.to_string(),
        said("Good bye is what he said", true),
    ] {
        rig.session.handle_message(text);
        rig.run(100 * MS);
        assert_eq!((rig.left(), rig.session.is_stopped()), (None, false));
    }
    rig.session.handle_message(said("Good bye!", true));
    rig.run(100 * MS);
    assert_eq!(rig.left().map(|(_, reason)| reason), Some(LeaveReason::Left));
    assert_eq!(rig.lines.last().map(String::as_str), Some("you: Good bye!"));
    assert!(rig.session.is_stopped());
    let mut typed = Rig::new(setup);
    typed.session.handle_typed("Stop.", typed.now);
    typed.run(100 * MS);
    assert!(typed.left().is_some());
}

/// A card that was unplugged for good ends the session.
#[test]
fn a_session_without_a_microphone_ends() {
    let mut rig = Rig::new(setup(LocalEcho::Off, Duration::ZERO));
    rig.run(S);
    rig.microphone = None;
    rig.run(MICROPHONE_LOST - 100 * MS);
    assert_eq!(rig.left(), None);
    rig.run(S);
    assert_eq!(rig.left().map(|(_, reason)| reason), Some(LeaveReason::Vanished));
}

/// The last words are played before the session of a bot that has returned ends.
#[test]
fn a_bot_that_returns_is_played_to_its_end() {
    let mut rig = Rig::new(setup(LocalEcho::Half, Duration::ZERO));
    rig.run(100 * MS);
    rig.speech.extend([9_000; 8_000]);
    rig.session.handle_bot_end(LeaveReason::BotEnded, rig.now);
    rig.run(3 * S);
    let (at, reason) = rig.left().expect("an end");
    assert_eq!(reason, LeaveReason::BotEnded);
    assert!((at.as_secs_f64() - 0.66).abs() < 0.1, "{at:?}");
    let loud = rig.played.chunks_exact(2).filter(|sample| **sample != [0, 0]).count();
    assert_eq!(loud, 8_000);
}

/// What the loudspeaker has not played is dropped, and its marks say so.
#[test]
fn an_interruption_flushes_what_waits_for_the_loudspeaker() {
    let mut rig = Rig::new(setup(LocalEcho::Off, Duration::ZERO));
    rig.run(100 * MS);
    rig.speech.extend([9_000; 1_600]);
    rig.feed();
    assert_eq!(rig.session.handle_mark("end".into()), None);
    rig.drain();
    rig.session.handle_interruption(rig.now);
    rig.run(S);
    let loud = rig.played.chunks_exact(2).filter(|sample| **sample != [0, 0]).count();
    assert!(loud <= 60 * 16, "{loud}");
    let mark = SessionEvent::Mark {
        name: "end".into(),
        played: false,
    };
    assert!(rig.events.iter().any(|(_, event)| *event == mark), "{:?}", rig.events);
    assert!(
        rig.events
            .iter()
            .any(|(_, event)| *event == SessionEvent::SpeechStopped)
    );
}

/// A loudspeaker of two channels at another rate gets its form of the bot's speech.
#[test]
fn the_loudspeaker_gets_its_channels() {
    let mut setup = setup(LocalEcho::Off, Duration::ZERO);
    (setup.out_rate_hz, setup.out_channels) = (48_000, 2);
    let mut rig = Rig::new(setup);
    rig.speech.extend([9_000; 3_200]);
    rig.feed();
    rig.run(S);
    let frames: Vec<[i16; 2]> = rig
        .played
        .chunks_exact(4)
        .map(|frame| {
            [
                i16::from_le_bytes([frame[0], frame[1]]),
                i16::from_le_bytes([frame[2], frame[3]]),
            ]
        })
        .collect();
    assert!(frames.len() >= 48_000 && frames.iter().all(|[left, right]| left == right));
    let loud = frames.iter().filter(|[left, _]| *left > 4_000).count();
    assert!(loud.abs_diff(9_600) < 200, "{loud}");
}

/// The operator and the end of the runner end it at once.
#[test]
fn an_end_is_at_once() {
    let mut rig = Rig::new(setup(LocalEcho::Half, Duration::ZERO));
    rig.speech.extend([9_000; 16_000]);
    rig.run(200 * MS);
    rig.session.handle_end(LeaveReason::Shutdown, rig.now);
    rig.drain();
    assert!(rig.is_closed);
    assert_eq!(rig.left().map(|(_, reason)| reason), Some(LeaveReason::Shutdown));
    assert_eq!(rig.session.bot_audio_capacity(), Some(0));
}
