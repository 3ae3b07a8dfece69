//! Properties of what the sound card of the machine brings: records of its keys, a service for wake
//! words, and the lists of microphones and loudspeakers.
//!
//! In: bytes that each of them reads. Records and events are read as a whole and in pieces that the
//! input selects: both must give the same.

use std::time::{Duration, Instant};

use edge_runner_proto::assistant::services::wyoming::{WyomingError, WyomingEvent, WyomingReader};
use edge_runner_proto::local::direction::AudioDirection;
use edge_runner_proto::local::kernel::KernelCard;
use edge_runner_proto::local::keys::KeyRecords;
use edge_runner_proto::local::listing::{CardAccess, NamedDevices, SoundSystem, cards, owner_of};
use edge_runner_proto::local::wake::{WakeClient, WakeEvent};

use super::assistants::pieces;

/// The rate of the microphone.
const RATE_HZ: u32 = 48_000;
/// Microphone audio before each event.
const AUDIO: Duration = Duration::from_millis(20);
/// Bytes of what the log says of a service: some names, each cut, and advice.
const WORDS_BYTES_MAX: usize = 4_000;
/// Lines of a list: both headings, and the devices of each.
const LINES_MAX: usize = 2 * (1 + 64);

/// Keys, wake words and lists.
pub fn local(bytes: &[u8]) {
    keys(bytes);
    wake(bytes, &[]);
    wake(bytes, &["ok_nabu".to_owned(), "hey jarvis".to_owned()]);
    lists(&String::from_utf8_lossy(bytes));
}

fn keys(bytes: &[u8]) {
    for word_bytes in [8, 4] {
        let whole = KeyRecords::new(word_bytes).handle_bytes(bytes);
        let mut records = KeyRecords::new(word_bytes);
        let parts: Vec<_> = pieces(bytes)
            .into_iter()
            .flat_map(|piece| records.handle_bytes(piece))
            .collect();
        assert_eq!(parts, whole);
        assert!(whole.len() <= bytes.len() / (2 * word_bytes + 8));
    }
}

/// What a service sends to a client that listens.
fn wake(bytes: &[u8], names: &[String]) {
    let mut reader = WyomingReader::default();
    let (now, mut end) = (Instant::now(), Duration::ZERO);
    let mut unsent = Vec::new();
    let mut client = WakeClient::begin(names, RATE_HZ, &mut unsent, now);
    for piece in pieces(bytes) {
        reader.push(piece);
        while let Ok(Some(event)) = reader.next_event() {
            end += AUDIO;
            let samples = (AUDIO.as_millis() as usize) * RATE_HZ as usize / 1_000;
            client
                .handle_audio(&vec![0; samples], end, &mut unsent)
                .expect("all was sent");
            match client.handle_event(&event, &mut unsent) {
                Ok(Some(WakeEvent::Detected(at))) => assert!(at <= end),
                Ok(Some(WakeEvent::Listening { words, warning })) => {
                    shown(&words);
                    shown(&warning.unwrap_or_default());
                }
                Ok(None) => {}
                Err(failure) => return shown(&failure.to_string()),
            }
            assert_eq!(events(&unsent), Ok(()));
            unsent.clear();
        }
    }
}

/// Reads what a client sends.
fn events(sent: &[u8]) -> Result<(), WyomingError> {
    let mut reader = WyomingReader::default();
    reader.push(sent);
    while let Some(WyomingEvent { kind, .. }) = reader.next_event()? {
        assert!(!kind.is_empty());
    }
    Ok(())
}

fn shown(words: &str) {
    assert!(words.len() <= WORDS_BYTES_MAX, "{} bytes", words.len());
    assert!(!words.contains(char::is_control), "{words:?}");
}

/// The input as the answer of each program, and as each file of the kernel.
fn lists(text: &str) {
    let _ = owner_of(text);
    let system = SoundSystem {
        is_linux: true,
        has_server: false,
        microphones: NamedDevices::Listed(text.to_owned()),
        loudspeakers: NamedDevices::Listed(text.to_owned()),
        cards: cards(text, text, |_| CardAccess::Allowed),
        owners: Vec::new(),
    };
    assert!(system.text().lines().count() <= LINES_MAX);
    assert!(system.problems().iter().all(|problem| !problem.is_empty()));
    for direction in [AudioDirection::In, AudioDirection::Out] {
        let card = KernelCard::first(&system.cards, direction);
        assert!(card.is_none_or(|card| card.find(&system.cards).is_some()));
    }
}
