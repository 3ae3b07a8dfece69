//! What may be asked of rooms and tokens, and the kinds of value that the provider takes.
//!
//! In: the properties of a `/start`. Out: those that go on. A known property of the wrong kind is dropped, so that one slip
//! does not cost the session, and the log names it; unknown ones and `null` are the provider's to judge.
//! Source: the rooms fact sheet, A1 and A2.

use std::fmt;

use serde_json::{Map, Value};

/// What a property has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Flag,
    Number,
    Text,
    Object,
    /// A kind of recording.
    Recording,
}

const RECORDINGS: [&str; 4] = ["cloud", "cloud-audio-only", "local", "raw-tracks"];

impl Expected {
    fn takes(self, value: &Value) -> bool {
        match self {
            _ if value.is_null() => true,
            Expected::Flag => value.is_boolean(),
            Expected::Number => value.is_number(),
            Expected::Text => value.is_string(),
            Expected::Object => value.is_object(),
            Expected::Recording => value.as_str().is_some_and(|kind| RECORDINGS.contains(&kind)),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Flag => f.write_str("true or false"),
            Expected::Number => f.write_str("a number"),
            Expected::Text => f.write_str("a string"),
            Expected::Object => f.write_str("an object"),
            Expected::Recording => write!(f, "one of {}", RECORDINGS.join(", ")),
        }
    }
}

/// The properties of one thing, by the key of `/start` that they stand under.
pub struct Known {
    key: &'static str,
    properties: &'static [(&'static str, Expected)],
}

pub const ROOM: Known = Known {
    key: "videoroomRoomProperties",
    properties: &[
        ("exp", Expected::Number),
        ("nbf", Expected::Number),
        ("eject_at_room_exp", Expected::Flag),
        ("max_participants", Expected::Number),
        ("geo", Expected::Text),
        ("start_video_off", Expected::Flag),
        ("start_audio_off", Expected::Flag),
        ("enable_chat", Expected::Flag),
        ("enable_prejoin_ui", Expected::Flag),
        ("enable_emoji_reactions", Expected::Flag),
        ("enable_dialout", Expected::Flag),
        ("enable_recording", Expected::Recording),
        ("enable_transcription_storage", Expected::Flag),
        ("recordings_bucket", Expected::Object),
        ("transcription_bucket", Expected::Object),
        ("sip", Expected::Object),
    ],
};

pub const TOKEN: Known = Known {
    key: "videoroomMeetingTokenProperties",
    properties: &[
        ("exp", Expected::Number),
        ("nbf", Expected::Number),
        ("is_owner", Expected::Flag),
        ("eject_at_token_exp", Expected::Flag),
        ("eject_after_elapsed", Expected::Number),
        ("user_name", Expected::Text),
        ("user_id", Expected::Text),
        ("enable_screenshare", Expected::Flag),
        ("start_video_off", Expected::Flag),
        ("start_audio_off", Expected::Flag),
        ("enable_recording", Expected::Recording),
        ("enable_prejoin_ui", Expected::Flag),
        ("start_cloud_recording", Expected::Flag),
        ("permissions", Expected::Object),
    ],
};

/// A property that does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    key: &'static str,
    name: &'static str,
    expected: Expected,
}

impl fmt::Display for Dropped {
    /// Without the value, which is a peer's word.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}.{}` is left out: it has to be {}",
            self.key, self.name, self.expected
        )
    }
}

/// Returns the properties that go on, and notes those that do not.
pub fn checked(known: &Known, asked: &Map<String, Value>, dropped: &mut Vec<Dropped>) -> Map<String, Value> {
    let mut passed = Map::new();
    for (name, value) in asked {
        let rule = known.properties.iter().find(|(own, _)| own == name);
        match rule {
            Some(&(name, expected)) if !expected.takes(value) => dropped.push(Dropped {
                key: known.key,
                name,
                expected,
            }),
            _ => {
                passed.insert(name.clone(), value.clone());
            }
        }
    }
    passed
}
