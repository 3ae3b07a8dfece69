//! The common shape of all providers' messages: one JSON object with an `event`, parsed leniently.
//!
//! In: text. Out: a [`ProviderMessage`] of a running call, which borrows from the text, since fifty
//! arrive per second; or the [`Object`] of a message that may start a call. A value of an
//! unexpected type counts as absent, a number as its digits, and unknown members are skipped.
//! Rejected: text that is not a JSON object, and handshakes longer than
//! `TELEPHONY_START_BYTES_MAX`. Source: `docs/spec/telephony.md` 2.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::Malformed;
use super::provider::Object;
use crate::limits::{TELEPHONY_ID_BYTES_MAX, TELEPHONY_START_BYTES_MAX};

/// Parses a message that may start a call.
pub(super) fn parse_object(text: &str) -> Option<Object> {
    if text.len() > TELEPHONY_START_BYTES_MAX {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Returns the `start` member of a message with the event `start`.
pub(super) fn started(opening: &Object) -> Option<&Object> {
    if opening.get("event")? != "start" {
        return None;
    }
    object(opening, "start")
}

/// Returns a member that is an object.
pub(super) fn object<'a>(object: &'a Object, key: &str) -> Option<&'a Object> {
    object.get(key)?.as_object()
}

/// Returns a member that is a string or a number.
pub(super) fn text(object: &Object, key: &str) -> Option<String> {
    match object.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns a member that is a string or a number, and short enough for an id.
pub(super) fn id(object: &Object, key: &str) -> Option<String> {
    text(object, key).filter(|id| id.len() <= TELEPHONY_ID_BYTES_MAX)
}

/// Returns the format of inbound audio in a handshake: the encoding in lower case without
/// parameters, and the rate in Hz.
///
/// Defaults are `encoding` and 8000 Hz.
pub(super) fn encoding(start: &Object, format: &str, rate: &str, encoding: &str) -> (String, u64) {
    let format = object(start, format);
    let said = |key| format.and_then(|format| text(format, key));
    let encoding = said("encoding").unwrap_or_else(|| encoding.to_string());
    let bare = encoding.split(';').next().unwrap_or_default().trim();
    let rate_hz = said(rate).and_then(|rate| rate.trim().parse().ok()).unwrap_or(8_000);
    (bare.to_ascii_lowercase(), rate_hz)
}

/// Returns a text as JSON, with quotes.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A message of a running call, with the members of all providers.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct ProviderMessage<'a> {
    #[serde(borrow)]
    pub event: LenientText<'a>,
    #[serde(borrow)]
    pub media: LenientPart<MediaMessage<'a>>,
    #[serde(borrow)]
    pub dtmf: LenientPart<Dtmf<'a>>,
    #[serde(borrow)]
    pub mark: LenientPart<Mark<'a>>,
    #[serde(borrow)]
    pub name: LenientText<'a>,
    #[serde(borrow)]
    pub payload: LenientPart<ErrorPayload<'a>>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct MediaMessage<'a> {
    #[serde(borrow)]
    pub track: LenientText<'a>,
    #[serde(borrow)]
    pub chunk: LenientText<'a>,
    #[serde(borrow)]
    pub payload: LenientText<'a>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Dtmf<'a> {
    #[serde(borrow)]
    pub digit: LenientText<'a>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Mark<'a> {
    #[serde(borrow)]
    pub name: LenientText<'a>,
}

/// The error report of a provider about a message of the runner.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct ErrorPayload<'a> {
    #[serde(borrow)]
    pub code: LenientText<'a>,
    #[serde(borrow)]
    pub title: LenientText<'a>,
}

impl<'a> ProviderMessage<'a> {
    /// Parses a message of a running call; `Ok(None)` for an object with invalid members.
    pub(super) fn parse(text: &'a str) -> Result<Option<ProviderMessage<'a>>, Malformed> {
        // The derived deserializer would also accept an array.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(Malformed);
        }
        match serde_json::from_str(text) {
            Ok(message) => Ok(Some(message)),
            Err(_) if serde_json::from_str::<IgnoredAny>(text).is_ok() => Ok(None),
            Err(_) => Err(Malformed),
        }
    }
}

/// A string, the digits of a number, or nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LenientText<'a>(Option<Cow<'a, str>>);

impl LenientText<'_> {
    pub(super) fn as_str(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Returns the number that the text contains.
    pub(super) fn whole(&self) -> Option<u64> {
        self.as_str()?.parse().ok()
    }
}

/// An object, or its default.
#[derive(Default)]
pub(super) struct LenientPart<T>(pub T);

impl<'de: 'a, 'a> Deserialize<'de> for LenientText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(LenientText)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(text.to_string())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(number.to_string())))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for LenientPart<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor(PhantomData)).map(LenientPart)
    }
}

struct PartVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for PartVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members))
    }

    fn visit_str<E>(self, _: &str) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<T, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(T::default())
    }
}
