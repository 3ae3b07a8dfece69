//! Tests of programs in raw mode: shell scripts on real pipes, and a session that the test drives.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bot::media::{Event, LeaveReason};
use crate::bot::{Kind, RunnerArguments};
use crate::config::{BotAudio, Config};
use crate::io::process::pcm::PROCESS_PIPE_BYTES;
use crate::io::process::tests::{Rig, within};
use crate::io::process::{ProgramSpec, bot};
use crate::limits::{AUDIO_OUT_QUEUE, PROCESS_DRAIN_WITHIN, PROCESS_HANG_UP_GRACE, PROCESS_IN_SAMPLES_MAX};

const RATE_HZ: u32 = 16_000;
/// Samples of one frame of the caller.
const FRAME: usize = 320;

fn rig(script: &str) -> Rig {
    Rig::with(script, json!({}), BotAudio::Pcm { rate_hz: RATE_HZ })
}

/// Waits for this many samples of the bot.
async fn hear(rig: &Rig, samples: usize) -> Vec<i16> {
    let mut received = Vec::new();
    within(async {
        while received.len() < samples {
            rig.transport_side.audio();
            rig.transport_side.take_audio(&mut received, FRAME);
            if !rig.transport_side.has_audio() && received.len() < samples {
                rig.transport_side.notified().await;
            }
        }
    })
    .await;
    received
}

fn samples_of(bytes: &[u8]) -> Vec<i16> {
    let pairs = bytes.chunks_exact(2);
    pairs.map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
}

#[tokio::test]
async fn audio_passes_through_a_program_sample_by_sample() {
    let mut rig = rig("exec cat");
    let said: Vec<i16> = (0..20 * FRAME).map(|at| at as i16 * 5).collect();
    for frame in said.chunks(FRAME) {
        rig.transport_side.push_audio(frame, RATE_HZ);
    }
    assert_eq!(hear(&rig, said.len()).await, said);
    let rates = rig.transport_side.audio().expect("the media is open");
    assert_eq!((rates.in_rate_hz, rates.out_rate_hz), (RATE_HZ, RATE_HZ));
    rig.transport_side.push(Event::Left(LeaveReason::Left));
    let began = Instant::now();
    assert_eq!(rig.end().await, Ok(()));
    assert!(
        began.elapsed() < PROCESS_HANG_UP_GRACE,
        "cat ends at the end of its input"
    );
}

/// The runner answers RTVI itself, since no message reaches the program.
#[tokio::test]
async fn answers_the_handshake_and_rejects_texts() {
    let rig = rig("exec cat");
    rig.transport_side.push(Event::Joined);
    let requests = [
        ("client-ready", json!({"version": "2.1.0"}), "bot-ready"),
        ("send-text", json!({"content": "hi"}), "error"),
        ("client-message", json!({"t": "echo", "d": 1}), "error-response"),
    ];
    for (kind, data, answer) in requests {
        let request = json!({"label": "rtvi-ai", "type": kind, "id": "1", "data": data});
        rig.transport_side.push(Event::Message(request.to_string()));
        let reply = within(async {
            loop {
                match rig.transport_side.take_message() {
                    Some(text) => break text,
                    None => rig.transport_side.notified().await,
                }
            }
        });
        let reply: Value = serde_json::from_str(&reply.await).expect("JSON");
        assert_eq!(reply["type"], answer, "{reply}");
    }
}

#[tokio::test]
async fn a_program_finds_the_rate_and_no_media_url() {
    let mut rig = rig("printf '%s\\n' \"$RUNNER_ARGUMENTS\" > $0/arguments; echo $RUNNER_BOT_RATE > $0/rate");
    let arguments: Value = serde_json::from_str(&rig.working_dir.line("arguments").await).expect("JSON");
    assert_eq!(arguments["kind"], "webrtc");
    assert!(arguments.get("media_url").is_none());
    assert_eq!(rig.working_dir.line("rate").await, "16000");
    assert_eq!(rig.end().await, Ok(()));
}

/// Ten seconds are written at once: the program blocks, and every sample is played.
#[tokio::test]
async fn a_program_that_writes_faster_than_real_time_is_held_back() {
    let seconds = 10;
    let bytes = 2 * RATE_HZ as usize * seconds;
    let mut rig = rig(&format!(
        "echo up > $0/up; yes | head -c {bytes}; echo written > $0/written"
    ));
    rig.working_dir.line("up").await;
    // The session takes nothing here, so the program can write only what the queues hold.
    rig.transport_side.notified().await;
    sleep(Duration::from_millis(300)).await;
    assert!(!rig.working_dir.path("written").exists());
    let queued = rig.transport_side.waiting().speech;
    assert!(queued <= AUDIO_OUT_QUEUE, "{queued:?}");
    let received = hear(&rig, bytes / 2).await;
    let y = i16::from_le_bytes(*b"y\n");
    assert!(received.len() == bytes / 2 && received.iter().all(|sample| *sample == y));
    rig.working_dir.line("written").await;
    assert_eq!(rig.end().await, Ok(()));
}

/// A process that left the group of the program holds stdout open: what the program said is played,
/// and the session ends with the program.
#[tokio::test]
async fn a_process_that_holds_stdout_does_not_hold_the_session() {
    let mut rig = rig("setsid sh -c 'echo $$ > $0/holder; exec sleep 1000' $0 &
        while [ ! -s $0/holder ]; do sleep 0.01; done
        yes | head -c 20000");
    let began = Instant::now();
    let received = hear(&rig, 10_000).await;
    assert!(received.iter().all(|sample| *sample == i16::from_le_bytes(*b"y\n")));
    assert_eq!(rig.end().await, Ok(()));
    assert!(began.elapsed() < PROCESS_DRAIN_WITHIN);
    let holder = rig.working_dir.line("holder").await;
    let holder = Pid::from_raw(holder.parse().expect("a number")).expect("not 0");
    kill_process(holder, Signal::KILL).expect("it still runs");
}

/// The queue to a program keeps the newest speech, and the input ends with the last sample.
#[tokio::test]
async fn a_program_that_does_not_read_loses_the_oldest_speech() {
    let mut rig = rig("while [ ! -e $0/go ]; do sleep 0.01; done; cat > $0/received");
    let frames = 2 * PROCESS_IN_SAMPLES_MAX / FRAME;
    for frame in 0..frames {
        rig.transport_side.push_audio(&[frame as i16; FRAME], RATE_HZ);
        if frame % 10 == 0 {
            // The queue before this one must not drop.
            within(async {
                while rig.transport_side.waiting().frames > 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            })
            .await;
        }
    }
    fs::write(rig.working_dir.path("go"), "").expect("a file");
    rig.transport_side.push(Event::Left(LeaveReason::Left));
    assert_eq!(rig.end().await, Ok(()));
    let received = samples_of(&fs::read(rig.working_dir.path("received")).expect("a file"));
    let held = PROCESS_IN_SAMPLES_MAX + PROCESS_PIPE_BYTES / 2 + FRAME;
    assert!(
        received.len() <= held && received.len() >= PROCESS_IN_SAMPLES_MAX,
        "{}",
        received.len()
    );
    assert_eq!((received[0], received[received.len() - 1]), (0, frames as i16 - 1));
}

/// A program that records gets the last sample and has time to close its file.
#[tokio::test]
async fn the_input_ends_when_the_caller_leaves() {
    let mut rig = rig("cat > $0/received; sleep 0.2; echo closed > $0/closed");
    for frame in 0..50_i16 {
        rig.transport_side.push_audio(&[frame; FRAME], RATE_HZ);
    }
    rig.transport_side.push(Event::Left(LeaveReason::Left));
    assert_eq!(rig.end().await, Ok(()));
    assert_eq!(rig.working_dir.line("closed").await, "closed");
    let received = samples_of(&fs::read(rig.working_dir.path("received")).expect("a file"));
    let said: Vec<i16> = (0..50).flat_map(|frame| [frame; FRAME]).collect();
    assert_eq!(received, said);
}

/// Output after the end of the session is discarded, so the program can exit.
#[tokio::test]
async fn output_after_the_end_of_the_session_does_not_block_the_program() {
    let mut rig = rig("cat > $0/received; yes | head -c 1000000; echo done > $0/done");
    rig.transport_side.push(Event::Left(LeaveReason::Left));
    assert_eq!(rig.end().await, Ok(()));
    assert_eq!(rig.working_dir.line("done").await, "done");
}

#[tokio::test]
async fn a_program_that_ignores_the_end_of_its_input_gets_sigterm() {
    let mut rig = rig("trap 'echo term > $0/term; exit 3' TERM; while :; do sleep 0.05; done");
    rig.transport_side.push_audio(&[1; FRAME], RATE_HZ);
    sleep(Duration::from_millis(200)).await;
    rig.transport_side.push(Event::Left(LeaveReason::Left));
    let began = Instant::now();
    assert_eq!(rig.end().await, Ok(()), "how it ends then is no failure");
    assert!(began.elapsed() >= PROCESS_HANG_UP_GRACE);
    assert_eq!(rig.working_dir.line("term").await, "term");
}

#[tokio::test]
async fn a_runner_that_stops_kills_a_program_that_ignores_sigterm() {
    let mut rig = rig("trap '' TERM; echo up > $0/up; while :; do sleep 0.05; done");
    rig.working_dir.line("up").await;
    rig.stop.set();
    rig.transport_side.push(Event::Left(LeaveReason::Shutdown));
    let refused = rig.end().await.expect_err("it was killed");
    assert!(refused.contains("was killed"), "{refused}");
}

/// The end of stdout is a hang-up once everything before it was played. Half a sample is dropped.
#[tokio::test]
async fn the_end_of_the_output_hangs_up() {
    for script in ["printf ababa", "printf ababa; exec >&-; exec sleep 1000"] {
        let mut rig = rig(script);
        let a = i16::from_le_bytes(*b"ab");
        assert_eq!(hear(&rig, 2).await, [a, a]);
        assert_eq!(rig.end().await, Ok(()), "{script}");
    }
    let mut crashed = rig("echo because >&2; exit 7");
    assert_eq!(crashed.end().await, Err("exit status: 7".into()));
}

#[tokio::test]
async fn a_program_that_closes_its_input_can_still_send() {
    let mut rig = rig("exec 0<&-; while [ ! -e $0/go ]; do sleep 0.01; done; yes | head -c 6400");
    for _ in 0..100 {
        rig.transport_side.push_audio(&[1; FRAME], RATE_HZ);
    }
    fs::write(rig.working_dir.path("go"), "").expect("a file");
    assert_eq!(hear(&rig, 3200).await.len(), 3200);
    assert_eq!(rig.end().await, Ok(()));
}

#[tokio::test]
async fn a_session_without_audio_is_refused() {
    let spec = ProgramSpec {
        command: vec!["true".into()],
        withheld: Vec::new(),
        audio: BotAudio::Pcm { rate_hz: RATE_HZ },
        input: None,
        working_dir: None,
        sandbox: None,
        memory_kib: None,
        environment: Vec::new(),
    };
    let args = RunnerArguments::new("test".into(), json!({}), Arc::new(Config::default()), Kind::Base);
    let refused = bot(spec, None, None).0(args)
        .await
        .expect_err("there is no audio")
        .to_string();
    assert!(
        refused.contains("`--bot-audio pcm`") && refused.contains("base"),
        "{refused}"
    );
}
