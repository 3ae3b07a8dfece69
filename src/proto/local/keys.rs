//! The keys of a headset, a speakerphone or a keyboard, as Linux reports them: `--local-keys`.
//!
//! In: bytes of a device in `/dev/input`, in pieces of any length, and why it cannot be read. Out:
//! what the user wants, and words for the log. A record is a time of two machine words, then type
//! and code of 16 bits and a value of 32 bits, all in the byte order of the machine
//! (`struct input_event` of `linux/input.h`).

use std::fmt;

use super::console::UserWish;

/// The type of a key, and the values of its press and its repetition.
const EV_KEY: u16 = 1;
const PRESSED: i32 = 1;
const REPEATED: i32 = 2;
/// Codes of `linux/input-event-codes.h`.
const KEY_MUTE: u16 = 113;
const KEY_VOLUMEDOWN: u16 = 114;
const KEY_VOLUMEUP: u16 = 115;
const KEY_PLAYPAUSE: u16 = 164;
const KEY_PHONE: u16 = 169;
const KEY_MICMUTE: u16 = 248;

/// Reads the records of one device.
#[derive(Debug)]
pub struct KeyRecords {
    time_bytes: usize,
    /// Bytes of an incomplete record.
    rest: Vec<u8>,
}

impl KeyRecords {
    /// Reads the records for programs whose machine words have this many bytes: 8 or 4.
    pub fn new(word_bytes: usize) -> Self {
        KeyRecords {
            time_bytes: 2 * word_bytes,
            rest: Vec::new(),
        }
    }

    /// Handles bytes of the device, and returns what the user wants.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Vec<UserWish> {
        self.rest.extend_from_slice(bytes);
        let record_bytes = self.time_bytes + 8;
        let whole = self.rest.len() - self.rest.len() % record_bytes;
        let records = self.rest[..whole].chunks_exact(record_bytes);
        let wishes = records.filter_map(|record| wish(&record[self.time_bytes..])).collect();
        self.rest.drain(..whole);
        wishes
    }
}

/// Reads a record behind its time.
fn wish(record: &[u8]) -> Option<UserWish> {
    let &[type_0, type_1, code_0, code_1, ref value @ ..] = record else {
        return None;
    };
    let value = i32::from_ne_bytes(value.try_into().ok()?);
    if u16::from_ne_bytes([type_0, type_1]) != EV_KEY || !matches!(value, PRESSED | REPEATED) {
        return None;
    }
    match (u16::from_ne_bytes([code_0, code_1]), value) {
        (KEY_VOLUMEUP, _) => Some(UserWish::Louder),
        (KEY_VOLUMEDOWN, _) => Some(UserWish::Quieter),
        (KEY_MUTE | KEY_MICMUTE, PRESSED) => Some(UserWish::Mute),
        (KEY_PLAYPAUSE | KEY_PHONE, PRESSED) => Some(UserWish::BeginOrEnd),
        _ => None,
    }
}

/// Why a device of keys cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysFailure {
    /// There is no such file.
    Missing,
    Denied,
    /// It was unplugged.
    Gone,
    Other(String),
}

impl fmt::Display for KeysFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeysFailure::Missing => "it does not exist; the names in /dev/input/by-id do not change",
            KeysFailure::Denied => {
                "this user may not read it; add it to the group input (sudo usermod -aG input USER), and log in again"
            }
            KeysFailure::Gone => "it was unplugged",
            KeysFailure::Other(why) => why,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(word_bytes: usize, kind: u16, code: u16, value: i32) -> Vec<u8> {
        let time = vec![0xA5; 2 * word_bytes];
        let parts = [
            &time[..],
            &kind.to_ne_bytes(),
            &code.to_ne_bytes(),
            &value.to_ne_bytes(),
        ];
        parts.concat()
    }

    /// Records of both layouts, in pieces that end within them, between those of other types.
    #[test]
    fn presses_are_read_from_both_layouts() {
        for word_bytes in [8, 4] {
            let mut bytes = Vec::new();
            let mut add = |kind, code, value| bytes.extend(record(word_bytes, kind, code, value));
            // A press has a scan code before it, and an end of the report behind it.
            add(4, 4, 0xC00E2);
            add(EV_KEY, KEY_MUTE, PRESSED);
            add(0, 0, 0);
            add(EV_KEY, KEY_MUTE, 0);
            add(EV_KEY, KEY_MICMUTE, PRESSED);
            add(EV_KEY, KEY_MICMUTE, REPEATED);
            for code in [KEY_PLAYPAUSE, KEY_PHONE, 30] {
                add(EV_KEY, code, PRESSED);
            }
            for value in [PRESSED, REPEATED, 0] {
                add(EV_KEY, KEY_VOLUMEUP, value);
            }
            add(EV_KEY, KEY_VOLUMEDOWN, PRESSED);
            let mut records = KeyRecords::new(word_bytes);
            let wishes: Vec<UserWish> = bytes.chunks(7).flat_map(|piece| records.handle_bytes(piece)).collect();
            use UserWish::{BeginOrEnd, Louder, Mute, Quieter};
            let expected = [Mute, Mute, BeginOrEnd, BeginOrEnd, Louder, Louder, Quieter];
            assert_eq!(wishes, expected, "{word_bytes}");
            assert!(records.rest.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_no_panic() {
        let mut records = KeyRecords::new(8);
        assert_eq!(records.handle_bytes(&[]), []);
        assert_eq!(records.handle_bytes(&[255; 1_000]), []);
        assert_eq!(records.rest.len(), 1_000 % 24);
    }

    #[test]
    fn failures_say_what_to_do() {
        assert!(KeysFailure::Denied.to_string().contains("group input"));
        assert!(KeysFailure::Missing.to_string().contains("/dev/input/by-id"));
    }
}
