//! Properties of what services of assistants send.
//!
//! In: the bytes of a stream, or one event of a session in each line. Each stream is read twice, as
//! a whole and in pieces that the input selects: both must give the same. What is read is within
//! the limits, and what is written can be read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use edge_runner_proto::assistant::body::BodyOptions;
use edge_runner_proto::assistant::config::AssistantConfig;
use edge_runner_proto::assistant::realtime::Realtime;
use edge_runner_proto::assistant::report::{CallProfile, Line, RealtimeOutput};
use edge_runner_proto::assistant::service_url::ServiceUrl;
use edge_runner_proto::assistant::services::chat::ChatReader;
use edge_runner_proto::assistant::services::failure::ServiceFailure;
use edge_runner_proto::assistant::services::speech::SpeechReader;
use edge_runner_proto::assistant::services::sse::{SseReader, SseTooLong};
use edge_runner_proto::assistant::services::transcription::{TranscriptReader, text_of};
use edge_runner_proto::assistant::services::wyoming::{WyomingError, WyomingEvent, WyomingReader, write_event};
use edge_runner_proto::limits;
use edge_runner_proto::limits::RATES_HZ;
use serde_json::Value;

/// Outputs of the engine for one event: one for each key of a body, and then some.
const OUTPUTS_MAX: usize = 1_000;

/// Returns pieces of the input, whose lengths are its own bytes.
pub fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut left, mut pieces) = (bytes, Vec::new());
    while !left.is_empty() {
        let (piece, rest) = left.split_at(left.len().min(1 + usize::from(left[0] % 31)));
        pieces.push(piece);
        left = rest;
    }
    pieces
}

/// Returns the events up to the first error.
fn wyoming_events(pieces: &[&[u8]]) -> (Vec<WyomingEvent>, Option<WyomingError>) {
    let (mut reader, mut events) = (WyomingReader::default(), Vec::new());
    for piece in pieces {
        reader.push(piece);
        loop {
            match reader.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
    }
    (events, None)
}

/// An event can be written and read again.
pub fn wyoming(bytes: &[u8]) {
    let (events, error) = wyoming_events(&[bytes]);
    assert_eq!(wyoming_events(&pieces(bytes)), (events.clone(), error));
    for event in events {
        assert!(event.payload.len() <= limits::WYOMING_PAYLOAD_BYTES_MAX);
        let data = Value::from(event.data.clone());
        // Numbers and escaped characters may become longer.
        if data.to_string().len() > limits::WYOMING_DATA_BYTES_MAX
            || event.kind.len() > limits::WYOMING_LINE_BYTES_MAX / 8
        {
            continue;
        }
        let mut written = Vec::new();
        write_event(&mut written, &event.kind, &data, &event.payload);
        let (again, error) = wyoming_events(&[&written]);
        assert_eq!((again.len(), error), (1, None));
        assert_eq!((&again[0].kind, &again[0].payload), (&event.kind, &event.payload));
        // Floating-point numbers may change in their last digit.
        assert!(again[0].data.keys().eq(event.data.keys()));
    }
}

fn sse_events(pieces: &[&[u8]]) -> Result<Vec<String>, SseTooLong> {
    let (mut reader, mut events) = (SseReader::default(), Vec::new());
    for piece in pieces {
        let mut piece = *piece;
        while let Some(event) = reader.next_event(&mut piece)? {
            events.push(event);
        }
        assert!(piece.is_empty());
    }
    events.extend(reader.finish()?);
    Ok(events)
}

/// An answer of a model has bounded text without reasoning, and at most one outcome.
pub fn sse(bytes: &[u8]) {
    let events = sse_events(&[bytes]);
    assert_eq!(sse_events(&pieces(bytes)), events);
    let events = events.unwrap_or_default();
    let (mut chat, mut text) = (ChatReader::default(), String::new());
    if events
        .iter()
        .try_for_each(|event| chat.read(event, &mut text).map(|_| ()))
        .is_ok()
        && let Ok(outcome) = chat.finish()
    {
        text.push_str(&outcome.text);
        assert!(outcome.calls.len() <= limits::CHAT_CALLS_MAX);
        let bytes = outcome.calls.iter().map(|call| call.name.len() + call.arguments.len());
        assert!(bytes.sum::<usize>() <= limits::CHAT_CALLS_BYTES_MAX);
    }
    // What was held back at the end is the beginning of a tag.
    assert!(text.len() < limits::CHAT_TEXT_BYTES_MAX + "</think>".len());
    assert!(!text.starts_with(char::is_whitespace));
    let mut transcript = TranscriptReader::default();
    let _ = events.iter().try_for_each(|event| transcript.read(event).map(|_| ()));
    assert!(transcript.text().len() <= limits::TRANSCRIPT_BYTES_MAX);
    assert!(text_of(bytes).map_or(0, |text| text.len()) <= limits::TRANSCRIPT_BYTES_MAX);
    for status in [200, 401, 429] {
        let words = ServiceFailure::of_status(status, bytes).to_string();
        assert!(words.len() < 200, "{words}");
    }
}

fn speech(pieces: &[&[u8]], rate_hz: Option<u32>) -> Result<(Option<u32>, Vec<i16>), ServiceFailure> {
    let (mut reader, mut pcm) = (SpeechReader::new(rate_hz), Vec::new());
    for piece in pieces {
        reader.push(piece, &mut pcm)?;
    }
    reader.finish(&mut pcm)?;
    Ok((reader.rate_hz(), pcm))
}

/// Speech has no more samples than its body, at a rate that the runner can convert.
pub fn wav_header(bytes: &[u8]) {
    for rate_hz in [None, Some(24_000)] {
        let whole = speech(&[bytes], rate_hz);
        assert_eq!(speech(&pieces(bytes), rate_hz), whole);
        if let Ok((rate_hz, pcm)) = whole {
            assert!(pcm.len() <= bytes.len() / 2);
            assert!(pcm.is_empty() || rate_hz.is_some_and(|rate_hz| RATES_HZ.contains(&rate_hz)));
        }
    }
}

/// A session gets an event of the service in each line, a tenth of a second apart: it asks for a
/// bounded number of things, and what it sends is JSON with a type.
pub fn realtime_event(bytes: &[u8]) {
    let mut config = AssistantConfig::default();
    config.realtime.url = ServiceUrl::parse("ws://127.0.0.1/v1").expect("a URL");
    let body = BodyOptions::new(&Value::Null, &config, "");
    let profile = CallProfile {
        line: Line::Pcm24k,
        has_page: true,
        is_telephone: false,
        can_hang_up: false,
        greet_on_ready: false,
    };
    let mut now = Instant::now();
    let mut session = Realtime::new(Arc::new(config), profile, body, now);
    session.handle_joined(now);
    session.handle_connected(now);
    let mut pcm = Vec::new();
    for line in String::from_utf8_lossy(bytes).lines() {
        now += Duration::from_millis(100);
        session.handle_message(line, now);
        session.handle_timeout(now);
        session.handle_audio(&[0; 2_400], now);
        if let Some(mark) = session.next_speech(&mut pcm) {
            assert!(pcm.len() <= 2_400);
            session.handle_mark(&mark.0, true, now);
        }
        let mut outputs = 0;
        while let Some(output) = session.poll_output() {
            outputs += 1;
            assert!(outputs < OUTPUTS_MAX, "the engine does not come to rest");
            if let RealtimeOutput::Send(text) = output {
                let event: Value = serde_json::from_str(&text).expect("JSON");
                assert!(event["type"].is_string(), "{event}");
            }
        }
    }
}
