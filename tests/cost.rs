//! The cost of bad input: whatever n bytes a peer, a service or a file sends, a parser takes at
//! most 64 MiB and a second of the processor for them.
//!
//! Each entry function of the fuzz targets gets inputs of shapes that are known to be expensive:
//! one byte or word again and again, nesting, one line or many, and the files of its corpus with
//! an element, a member, a line or a word repeated, so that they stay what they are. Growth beyond
//! linear would exceed both limits by far at these lengths; a factor would not.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use edge_runner_proto::limits;
use edge_runner_proto::setup::BODY_BYTES_MAX;

use crate::allocations;
use crate::corpus::entries;
use oracle::{CPU_NS_MAX, HELD_BYTES_MAX, cost_of, cpu_ns};

#[path = "fuzz/oracle.rs"]
mod oracle;
#[path = "support/stretch.rs"]
mod stretch;

/// How much slower the code without optimisation is, by `cargo test --release --test main cost::`.
const SLOWER: u64 = if cfg!(debug_assertions) { 10 } else { 1 };

/// Bytes of an input for a parser, which reads it at once.
const TEXT: usize = 64 << 10;
/// For a state machine, which does something for each line, packet or frame, and for a whole
/// configuration.
const EVENTS: usize = 4 << 10;

/// An entry function, its corpus, and the length of its inputs.
struct Entry {
    corpus: &'static str,
    run: fn(&[u8]),
    bytes: usize,
}

const fn entry(corpus: &'static str, run: fn(&[u8]), bytes: usize) -> Entry {
    Entry { corpus, run, bytes }
}

/// Every entry but those of a connected call, whose cost is that of their handshake.
const ENTRIES: [Entry; 46] = [
    entry("whatsapp_webhook", entries::whatsapp::webhook, TEXT),
    entry("sdp_offer", entries::sdp_offer, TEXT),
    entry("sdp_answer", entries::sdp_answer, TEXT),
    entry("candidate", entries::candidate, TEXT),
    entry("offer_body", entries::offer_body, TEXT),
    entry("whip_fragment", entries::whip::fragment, TEXT),
    entry("realtime_calls", entries::whip::realtime_calls, TEXT),
    entry("webhooks", entries::webhooks::webhooks, TEXT),
    entry("request", entries::http::request, TEXT),
    entry("start_body", entries::start::body, limits::HTTP_BODY_BYTES_MAX),
    // What the functions of a body may have.
    entry("start_body", entries::start::body, limits::TOOLS_FUNCTIONS_BYTES_MAX),
    entry("configuration", entries::configuration::configuration, EVENTS),
    entry("frames", entries::frames, TEXT),
    entry("token", entries::token, TEXT),
    entry("sealed_id", entries::cluster::sealed_id, TEXT),
    entry("telephony", entries::telephony, EVENTS),
    entry("livekit_signal", entries::livekit_signal, EVENTS),
    entry("livekit_worker", entries::worker::worker, EVENTS),
    entry("livekit_data", entries::livekit_data, EVENTS),
    entry("moq_formats", entries::moq::formats, TEXT),
    entry("webtransport", entries::moq::webtransport, TEXT),
    entry("multipart", entries::multipart, TEXT),
    entry("policy", entries::policy, TEXT),
    entry("tar_entries", entries::tar_entries, EVENTS),
    entry("wyoming_event", entries::assistants::wyoming, TEXT),
    entry("sse", entries::assistants::sse, TEXT),
    entry("wav_header", entries::assistants::wav_header, TEXT),
    entry("realtime_event", entries::assistants::realtime_event, EVENTS),
    entry("tools", entries::tools::tools, limits::TOOLS_FUNCTIONS_BYTES_MAX),
    entry("setup", entries::setup::setup, BODY_BYTES_MAX),
    entry("acme", entries::acme::acme, TEXT),
    entry("turn", entries::turn::turn, EVENTS),
    entry("settings", entries::settings::settings, TEXT),
    entry("call_messages", entries::caller::messages, EVENTS),
    entry("call_response", entries::caller::response, TEXT),
    entry("records", entries::records::records, TEXT),
    entry("rtvi", entries::rtvi::message, limits::MESSAGE_BYTES_MAX),
    entry("scenario", entries::scenario::scenario, TEXT),
    entry("local", entries::local::local, EVENTS),
    entry("provider_answers", entries::providers::answers, TEXT),
    entry("store_answers", entries::cloud::store, TEXT),
    entry("cloud_requests", entries::cloud::requests, TEXT),
    entry("ignore_file", entries::cloud::ignore_file, TEXT),
    entry("update", entries::update::update, TEXT),
    entry("process_messages", entries::process::messages, TEXT),
    entry("moq_datagrams", entries::quic::datagrams, EVENTS),
];

/// Words whose repetition is expensive for some parsers: nesting, empty elements, escapes, marks
/// that begin something and never end it, lines without content.
const WORDS: [&str; 34] = [
    "[",
    "{",
    "(",
    "<",
    "[[],",
    "[{},",
    "{\"a\":",
    "{\"a\":[",
    "\"",
    "\\",
    "\"\\u0000\",",
    "0",
    "-",
    "9e9,",
    ",",
    ";",
    ":",
    "/",
    "../",
    "=",
    "&a=",
    "%00",
    "a=b\r\n",
    "a: b\r\n",
    "\r\n",
    "\n",
    " ",
    "data:\n\n",
    "data: {}\n\n",
    ": \n",
    "<think>",
    "{}\n",
    "m=audio 9 UDP/TLS/RTP/SAVPF 0\r\n",
    "a=candidate:1 1 udp 1 192.0.2.1 9 typ host\r\n",
];

fn repeated(word: &[u8], length: usize) -> Vec<u8> {
    word.iter().copied().cycle().take(length).collect()
}

/// Inputs of a length, with what each is.
fn inputs(files: &[(String, Vec<u8>)], length: usize) -> Vec<(String, Vec<u8>)> {
    let mut inputs: Vec<_> = WORDS
        .iter()
        .map(|word| (format!("{word:?} again and again"), repeated(word.as_bytes(), length)))
        .collect();
    for byte in [0x00, 0x01, 0x0a, 0x40, 0x7f, 0x80, 0xc0, 0xff] {
        inputs.push((format!("bytes {byte:#04x}"), vec![byte; length]));
    }
    for (name, file) in files.iter().filter(|(_, file)| !file.is_empty()) {
        inputs.push((format!("{name} again and again"), repeated(file, length)));
        let turn = name.bytes().map(usize::from).sum();
        for (what, stretched) in stretch::stretched(file, length, turn) {
            inputs.push((format!("{name} with {what} repeated"), stretched));
        }
    }
    inputs
}

fn files(corpus: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(corpus);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            (name, fs::read(&path).expect("a readable file"))
        })
        .collect();
    files.sort();
    files
}

/// Checks an entry with all its inputs. Returns what exceeds the limits.
fn check(entry: &Entry) -> Vec<String> {
    let mut faults = Vec::new();
    for (what, input) in inputs(&files(entry.corpus), entry.bytes) {
        let mut cost = (0, 0);
        let outcome = catch_unwind(AssertUnwindSafe(|| cost = cost_of(|| (entry.run)(&input))));
        let (held, took) = cost;
        if outcome.is_err() {
            faults.push(format!("{}: {what}: a property is broken, see above", entry.corpus));
        }
        if held > HELD_BYTES_MAX || took > CPU_NS_MAX * SLOWER {
            faults.push(format!(
                "{}: {what}: {} bytes made the thread hold {held} bytes and took {} ms",
                entry.corpus,
                input.len(),
                took / 1_000_000,
            ));
        }
    }
    faults
}

#[test]
fn no_input_is_expensive() {
    let faults: Vec<_> = ENTRIES.iter().flat_map(check).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A service of the local network may be anybody: its longest message, of any shape, holds little
/// memory for any time.
#[test]
fn the_longest_message_of_a_service_is_not_expensive() {
    // `ASSISTANT_MESSAGE_BYTES_MAX`, `SSE_LINE_BYTES_MAX`, `WYOMING_DATA_BYTES_MAX`.
    let (realtime, sse, wyoming) = (4 << 20, 256 << 10, 256 << 10);
    let event: fn(&[u8]) = entries::assistants::realtime_event;
    let line: fn(&[u8]) = entries::assistants::sse;
    let data = format!("{{\"type\":\"x\",\"data_length\":{wyoming}}}\n{{\"a\":[");
    for (run, longest, begin, end) in [
        (event, realtime, r#"{"type":"x","a":["#, "0]}"),
        (event, realtime, r#"{"type":"error","error":{"code":["#, "0]}}"),
        (
            event,
            realtime,
            r#"{"type":"response.done","response":{"id":"r","output":["#,
            "0]}}",
        ),
        (
            event,
            realtime,
            r#"{"type":"response.output_item.done","item":{"type":"function_call","call_id":"c","arguments":{"a":["#,
            "0]}}}",
        ),
        (
            line,
            sse,
            r#"data: {"choices":[{"delta":{"content":"x"}}],"a":["#,
            "0]}\n\n",
        ),
        (entries::assistants::wyoming, wyoming + data.len() - 6, &data, "0]}"),
    ] {
        for word in [
            "0,",
            "[],",
            "\"\",",
            "{\"a\":[]},",
            "{\"type\":\"function_call\",\"call_id\":\"\"},",
        ] {
            let length = longest - begin.len() - end.len();
            let middle = word.repeat(length / word.len()) + &" ".repeat(length % word.len());
            let input = format!("{begin}{middle}{end}");
            let (held, took) = cost_of(|| run(input.as_bytes()));
            assert!(held <= HELD_BYTES_MAX, "{begin}{word}: {held} bytes");
            assert!(took <= CPU_NS_MAX * SLOWER, "{begin}{word}: {took} ns");
        }
    }
}

/// A harness may send longer messages than other clients, of which a bot of the runner's own takes
/// none apart.
#[test]
fn the_longest_message_of_an_evaluation_is_not_expensive() {
    let (begin, end) = (
        r#"{"label":"rtvi-ai","type":"client-message","id":"1","data":{"t":"x","d":["#,
        "0]}}",
    );
    let words = (limits::EVAL_MESSAGE_BYTES_MAX - begin.len() - end.len()) / 3;
    let input = format!("{begin}{}{end}", "[],".repeat(words));
    let (held, took) = cost_of(|| entries::rtvi::message(input.as_bytes()));
    assert!(held <= HELD_BYTES_MAX, "{held} bytes");
    assert!(took <= CPU_NS_MAX * SLOWER, "{took} ns");
}

/// The harness itself sees what it is for: text that multiplies, and a search that starts again at
/// each byte.
#[test]
fn growth_beyond_linear_is_seen() {
    let multiplied = |input: &[u8]| drop(input.repeat(input.len()));
    let (held, _) = cost_of(|| multiplied(&[0; 16 << 10]));
    assert!(held > HELD_BYTES_MAX, "{held}");
    let judged = |entry| catch_unwind(|| oracle::run(entry, &[0; 16 << 10]));
    assert!(judged(|input| drop(input.repeat(input.len()))).is_err());
    assert!(judged(|input| drop(input.to_vec())).is_ok());
    let quadratic = |input: &[u8]| {
        let found: usize = (0..input.len())
            .map(|at| {
                input[at..]
                    .iter()
                    .filter(|byte| std::hint::black_box(**byte) == 1)
                    .count()
            })
            .sum();
        assert_eq!(found, 0);
    };
    let small = cost_of(|| quadratic(&[0; 2 << 10])).1;
    let large = cost_of(|| quadratic(&[0; 32 << 10])).1;
    if cpu_ns().is_some() {
        assert!(large > 32 * small.max(1), "{small} ns, then {large} ns");
    }
}
