//! The known properties of rooms and tokens, and their types.
//!
//! In: the properties of a `/start` request. Out: those that are passed on. A known property of the
//! wrong type is dropped and logged, so that a typo does not cost the session. Unknown properties
//! and `null` are passed on. Source: `docs/spec/daily.md` 1.1 and 2.

use std::fmt;

use serde_json::{Map, Value};

/// The type of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyType {
    Flag,
    Number,
    Text,
    Object,
    /// A type of recording.
    Recording,
}

const RECORDINGS: [&str; 4] = ["cloud", "cloud-audio-only", "local", "raw-tracks"];

impl PropertyType {
    fn accepts(self, value: &Value) -> bool {
        match self {
            _ if value.is_null() => true,
            PropertyType::Flag => value.is_boolean(),
            PropertyType::Number => value.is_number(),
            PropertyType::Text => value.is_string(),
            PropertyType::Object => value.is_object(),
            PropertyType::Recording => value.as_str().is_some_and(|kind| RECORDINGS.contains(&kind)),
        }
    }
}

impl fmt::Display for PropertyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PropertyType::Flag => f.write_str("true or false"),
            PropertyType::Number => f.write_str("a number"),
            PropertyType::Text => f.write_str("a string"),
            PropertyType::Object => f.write_str("an object"),
            PropertyType::Recording => write!(f, "one of {}", RECORDINGS.join(", ")),
        }
    }
}

/// The properties of rooms or tokens, under their key in `/start`.
pub struct PropertySchema {
    key: &'static str,
    properties: &'static [(&'static str, PropertyType)],
}

pub const ROOM: PropertySchema = PropertySchema {
    key: "videoroomRoomProperties",
    properties: &[
        ("exp", PropertyType::Number),
        ("nbf", PropertyType::Number),
        ("eject_at_room_exp", PropertyType::Flag),
        ("max_participants", PropertyType::Number),
        ("geo", PropertyType::Text),
        ("start_video_off", PropertyType::Flag),
        ("start_audio_off", PropertyType::Flag),
        ("enable_chat", PropertyType::Flag),
        ("enable_prejoin_ui", PropertyType::Flag),
        ("enable_emoji_reactions", PropertyType::Flag),
        ("enable_dialout", PropertyType::Flag),
        ("enable_recording", PropertyType::Recording),
        ("enable_transcription_storage", PropertyType::Flag),
        ("recordings_bucket", PropertyType::Object),
        ("transcription_bucket", PropertyType::Object),
        ("sip", PropertyType::Object),
    ],
};

pub const TOKEN: PropertySchema = PropertySchema {
    key: "videoroomMeetingTokenProperties",
    properties: &[
        ("exp", PropertyType::Number),
        ("nbf", PropertyType::Number),
        ("is_owner", PropertyType::Flag),
        ("eject_at_token_exp", PropertyType::Flag),
        ("eject_after_elapsed", PropertyType::Number),
        ("user_name", PropertyType::Text),
        ("user_id", PropertyType::Text),
        ("enable_screenshare", PropertyType::Flag),
        ("start_video_off", PropertyType::Flag),
        ("start_audio_off", PropertyType::Flag),
        ("enable_recording", PropertyType::Recording),
        ("enable_prejoin_ui", PropertyType::Flag),
        ("start_cloud_recording", PropertyType::Flag),
        ("permissions", PropertyType::Object),
    ],
};

/// A property that is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedProperty {
    key: &'static str,
    name: &'static str,
    expected: PropertyType,
}

impl fmt::Display for DroppedProperty {
    /// Does not contain the value, which a client wrote.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}.{}` is left out: it has to be {}",
            self.key, self.name, self.expected
        )
    }
}

/// Returns the properties that are passed on, and records the others.
pub fn filter(
    schema: &PropertySchema,
    asked: &Map<String, Value>,
    dropped: &mut Vec<DroppedProperty>,
) -> Map<String, Value> {
    let mut passed = Map::new();
    for (name, value) in asked {
        let rule = schema.properties.iter().find(|(own, _)| own == name);
        match rule {
            Some(&(name, expected)) if !expected.accepts(value) => dropped.push(DroppedProperty {
                key: schema.key,
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
