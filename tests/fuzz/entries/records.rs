//! Properties of what is read around the records of calls.
//!
//! In: any bytes, which are read as each of: the value of `traceparent`, a date of HTTP, the query
//! of `/calls`, the name of a file of records, of an event or of a recording, and the begin of a
//! recording that was not written to its end. What is accepted is accepted again in the form in
//! which it is written.

use edge_runner_proto::calls::files::CallFile;
use edge_runner_proto::calls::sound::{HEAD_BYTES, repaired};
use edge_runner_proto::calls::{CallQuery, PostedEvent, recordings};
use edge_runner_proto::http::traceparent::Traceparent;
use edge_runner_proto::kit::Wav;
use edge_runner_proto::time::{iso_ms, parse_http_date, parse_iso};
use serde_json::{Value, json};

/// Characters of a `traceparent` of version 00.
const TRACE_CHARS: usize = 55;

/// Headers, queries and files.
pub fn records(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    traceparent(bytes, &text);
    if let Err(error) = CallQuery::parse(&text) {
        assert!(error.to_string().len() < 200, "{error}");
    }
    if let Some(file) = CallFile::parse(&text, 7) {
        assert_eq!(CallFile::parse(&file.name(), 7).as_ref(), Some(&file));
        assert!(file.name().is_ascii());
    }
    if let Some(unix_s) = parse_http_date(&text) {
        // The same second by the other parser; an HTTP date has no year after 9999.
        assert_eq!(parse_iso(&iso_ms(unix_s * 1_000)), Some(unix_s * 1_000));
    }
    if let Some(event) = PostedEvent::from_file(&text, "{}".into()) {
        assert_eq!(PostedEvent::file_name(&event.id), text);
    }
    let name = recordings::name(&text, 1_795_904_000_000);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    assert!(
        recordings::is_whole(&name) && name.len() < 100 && name.chars().all(is_plain),
        "{name}"
    );
    if let Some(whole) = recordings::whole_name(&text) {
        assert!(text.starts_with(whole));
    }
    recording(bytes);
}

fn traceparent(bytes: &[u8], text: &str) {
    let of_header = Traceparent::of_headers([bytes].into_iter());
    let of_body = Traceparent::of_body(&json!({ "traceparent": text }));
    assert!(Traceparent::of_headers([bytes, bytes].into_iter()).is_none());
    // A header may be surrounded by spaces, and a body is UTF-8.
    assert!(of_body.is_none() || of_body == of_header || std::str::from_utf8(bytes).is_err());
    let Some(trace) = of_header else {
        return;
    };
    assert_eq!((trace.as_str().len(), trace.trace_id().len()), (TRACE_CHARS, 32));
    assert_eq!(
        Traceparent::of_headers([trace.as_str().as_bytes()].into_iter()).as_ref(),
        Some(&trace)
    );
    let mut body = json!({ "a": 1 });
    trace.put(&mut body);
    assert_eq!(Traceparent::of_body(&body), Some(trace.clone()));
    let mut other = Value::from(text);
    trace.put(&mut other);
    assert_eq!(other, text);
}

/// What a power cut left becomes a WAV file of the sound that is there.
fn recording(bytes: &[u8]) {
    for cut in [bytes.len(), bytes.len() / 2, 43, 44, 48] {
        let Some(file) = bytes.get(..cut) else { continue };
        let begin = &file[..file.len().min(HEAD_BYTES as usize)];
        // A file may be longer than what a head can say.
        for length in [file.len() as u64, u64::from(u32::MAX), u64::MAX] {
            let Some((head, cut_to)) = repaired(begin, length) else {
                continue;
            };
            assert!(cut_to > HEAD_BYTES && cut_to <= length);
            if length == file.len() as u64 {
                let file = [&head[..], &file[head.len()..cut_to as usize]].concat();
                let wav = Wav::read(&file).expect("a WAV file");
                assert_eq!(wav.pcm.len() as u64, (cut_to - HEAD_BYTES) / 4);
            }
        }
    }
}
