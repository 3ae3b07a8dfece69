//! The catalog of a broadcast: which tracks carry audio, and how.
//!
//! Out: the fixed catalog of the bot. In: the frames of the caller's track `catalog.json`: the
//! first frame of a group is a snapshot, further ones are merge patches (RFC 7396). The result is
//! the audio to subscribe to. Unknown keys are ignored. Source: `docs/spec/moq.md`.

use std::fmt;

use serde_json::{Map, Value};

/// The track of the catalog in every broadcast.
pub const CATALOG_TRACK: &str = "catalog.json";

/// The bot's audio track.
pub const BOT_AUDIO_TRACK: &str = "bot-audio";

/// The bot's catalog. It never changes: with each update, browsers build their playback anew.
pub const BOT_CATALOG: &str = r#"{"video":{"renditions":{}},"audio":{"renditions":{"bot-audio":{"codec":"opus","sampleRate":48000,"numberOfChannels":1,"container":{"kind":"legacy"}}}}}"#;

/// Bytes of the frames of one group, which bound those of the catalog. Those of browsers have 200.
pub const CATALOG_BYTES_MAX: usize = 64 * 1024;

/// Patches of one group. Publishers begin a new group with each change; each patch costs a search
/// of the whole catalog.
pub const CATALOG_PATCHES_MAX: u64 = 256;

/// Bytes of the name of a rendition, which is the name of its track.
const RENDITION_NAME_BYTES_MAX: usize = 256;

/// A track with the caller's audio: Opus in the container `legacy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AudioRendition {
    /// The name of the track.
    pub name: String,
    /// Channels by the catalog; each packet says its own.
    pub channels: u64,
}

/// The audio that a catalog offers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum CatalogAudio {
    /// None yet: the user has not allowed the microphone, for example.
    #[default]
    Absent,
    Opus(AudioRendition),
    /// Every rendition has another codec or container, which the text names.
    Unsupported(String),
}

/// Why a frame of a catalog is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogError {
    /// The frames of the group exceed [`CATALOG_BYTES_MAX`].
    TooLong,
    /// The group has more than [`CATALOG_PATCHES_MAX`] patches.
    TooManyPatches,
    NotJson,
    NotAnObject,
    /// A patch without its snapshot.
    NoSnapshot,
}

impl CatalogError {
    /// Returns whether the session ends: the publisher costs too much.
    pub fn is_fatal(self) -> bool {
        self == CatalogError::TooManyPatches
    }
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CatalogError::TooLong => write!(f, "more than {CATALOG_BYTES_MAX} bytes"),
            CatalogError::TooManyPatches => write!(f, "more than {CATALOG_PATCHES_MAX} patches in one group"),
            CatalogError::NotJson => f.write_str("not JSON"),
            CatalogError::NotAnObject => f.write_str("not a JSON object"),
            CatalogError::NoSnapshot => f.write_str("a patch without a snapshot"),
        }
    }
}

/// Reads the catalog of a caller.
#[derive(Debug, Default)]
pub struct CatalogReader {
    /// The newest group, and how many of its frames were read.
    group: Option<u64>,
    frames: u64,
    /// The bytes of those frames.
    bytes: usize,
    /// The catalog; `None` after a snapshot that was rejected.
    catalog: Option<Value>,
    audio: CatalogAudio,
}

impl CatalogReader {
    /// Reads the next frame of a group. Groups may arrive in any order; older ones are ignored.
    ///
    /// # Errors
    /// Returns why the frame is ignored; the audio then stays as it is.
    pub fn read(&mut self, group: u64, frame: &[u8]) -> Result<(), CatalogError> {
        if self.group.is_some_and(|newest| group < newest) {
            return Ok(());
        }
        if self.group != Some(group) {
            self.group = Some(group);
            self.frames = 0;
            self.bytes = 0;
            self.catalog = None;
        }
        self.frames += 1;
        if self.frames > 1 + CATALOG_PATCHES_MAX {
            self.catalog = None;
            return Err(CatalogError::TooManyPatches);
        }
        self.bytes = self.bytes.saturating_add(frame.len());
        if self.bytes > CATALOG_BYTES_MAX {
            self.catalog = None;
            return Err(CatalogError::TooLong);
        }
        let value: Value = serde_json::from_slice(frame).map_err(|_| CatalogError::NotJson)?;
        if !value.is_object() {
            return Err(CatalogError::NotAnObject);
        }
        if self.frames == 1 {
            self.catalog = Some(value);
        } else {
            let catalog = self.catalog.as_mut().ok_or(CatalogError::NoSnapshot)?;
            merge_patch(catalog, value);
        }
        if let Some(catalog) = &self.catalog {
            self.audio = find_audio(catalog, &self.audio);
        }
        Ok(())
    }

    /// Returns the audio of the newest catalog.
    pub fn audio(&self) -> &CatalogAudio {
        &self.audio
    }
}

/// Applies a merge patch (RFC 7396 section 2).
fn merge_patch(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
        } else {
            merge_patch(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Returns the rendition to receive: the current one while it is listed, else the first.
fn find_audio(catalog: &Value, current: &CatalogAudio) -> CatalogAudio {
    let Some(Value::Object(renditions)) = catalog.pointer("/audio/renditions") else {
        return CatalogAudio::Absent;
    };
    let mut unsupported = None;
    let mut found = None;
    for (name, rendition) in renditions {
        let codec = rendition.get("codec").and_then(Value::as_str).unwrap_or("none");
        let container = container_kind(rendition);
        if !codec.eq_ignore_ascii_case("opus") || container != "legacy" || name.len() > RENDITION_NAME_BYTES_MAX {
            unsupported.get_or_insert_with(|| format!("codec {:.32?}, container {:.32?}", codec, container));
            continue;
        }
        let is_current = matches!(current, CatalogAudio::Opus(current) if current.name == *name);
        if found.is_none() || is_current {
            found = Some(AudioRendition {
                name: name.clone(),
                channels: rendition.get("numberOfChannels").and_then(Value::as_u64).unwrap_or(1),
            });
        }
    }
    match (found, unsupported) {
        (Some(rendition), _) => CatalogAudio::Opus(rendition),
        (None, Some(names)) => CatalogAudio::Unsupported(names),
        (None, None) => CatalogAudio::Absent,
    }
}

/// Returns the kind of the container; `legacy` where the catalog names none.
fn container_kind(rendition: &Value) -> &str {
    match rendition.get("container") {
        None | Some(Value::Null) => "legacy",
        Some(Value::String(kind)) => kind,
        Some(container) => container.get("kind").and_then(Value::as_str).unwrap_or("none"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROWSER: &[u8] = br#"{"audio":{"renditions":{"audio/data":{"codec":"opus","container":{"kind":"legacy"},"sampleRate":48000,"numberOfChannels":1,"bitrate":32000,"jitter":20}}}}"#;

    fn opus(name: &str, channels: u64) -> CatalogAudio {
        CatalogAudio::Opus(AudioRendition {
            name: name.to_owned(),
            channels,
        })
    }

    #[test]
    fn the_bots_catalog_is_readable() {
        let mut reader = CatalogReader::default();
        reader.read(0, BOT_CATALOG.as_bytes()).unwrap();
        assert_eq!(*reader.audio(), opus(BOT_AUDIO_TRACK, 1));
    }

    /// A browser's first catalog is empty; the second has the audio.
    #[test]
    fn a_browser_adds_its_audio_later() {
        let mut reader = CatalogReader::default();
        assert_eq!(*reader.audio(), CatalogAudio::Absent);
        reader.read(0, b"{}").unwrap();
        assert_eq!(*reader.audio(), CatalogAudio::Absent);
        reader.read(1, BROWSER).unwrap();
        assert_eq!(*reader.audio(), opus("audio/data", 1));
        reader.read(0, b"{}").unwrap();
        assert_eq!(*reader.audio(), opus("audio/data", 1), "an older group is ignored");
        reader.read(2, b"{}").unwrap();
        assert_eq!(*reader.audio(), CatalogAudio::Absent);
    }

    #[test]
    fn patches_change_the_catalog() {
        let mut reader = CatalogReader::default();
        reader.read(0, b"{}").unwrap();
        reader
            .read(
                0,
                br#"{"audio":{"renditions":{"b":{"codec":"opus","numberOfChannels":2}}},"clock":5}"#,
            )
            .unwrap();
        assert_eq!(*reader.audio(), opus("b", 2));
        // The current rendition is kept beside another one.
        reader
            .read(0, br#"{"audio":{"renditions":{"a":{"codec":"opus"}}}}"#)
            .unwrap();
        assert_eq!(*reader.audio(), opus("b", 2));
        reader.read(0, br#"{"audio":{"renditions":{"b":null}}}"#).unwrap();
        assert_eq!(*reader.audio(), opus("a", 1));
        reader.read(0, br#"{"audio":null}"#).unwrap();
        assert_eq!(*reader.audio(), CatalogAudio::Absent);
    }

    #[test]
    fn unsupported_audio_is_named() {
        let mut reader = CatalogReader::default();
        reader
            .read(
                0,
                br#"{"audio":{"renditions":{"x":{"codec":"mp4a.40.2","container":{"kind":"cmaf"}}}}}"#,
            )
            .unwrap();
        let CatalogAudio::Unsupported(text) = reader.audio() else {
            panic!("{:?}", reader.audio());
        };
        assert!(text.contains("mp4a.40.2") && text.contains("cmaf"), "{text}");
        let both = br#"{"audio":{"renditions":{"a":{"codec":"mp4a.40.2"},"z":{"codec":"Opus","container":"legacy"}}}}"#;
        reader.read(1, both).unwrap();
        assert_eq!(*reader.audio(), opus("z", 1));
    }

    #[test]
    fn bad_catalogs_are_rejected_and_the_next_good_one_is_read() {
        let mut reader = CatalogReader::default();
        reader.read(0, BROWSER).unwrap();
        assert_eq!(reader.read(1, b"[1]"), Err(CatalogError::NotAnObject));
        assert_eq!(reader.read(1, b"{}"), Err(CatalogError::NoSnapshot));
        assert_eq!(reader.read(2, b"{\"audio\":"), Err(CatalogError::NotJson));
        let deep = [b"{\"a\":".repeat(10_000), b"1".to_vec(), b"}".repeat(10_000)].concat();
        assert_eq!(reader.read(3, &deep[..60_000]), Err(CatalogError::NotJson));
        assert_eq!(
            reader.read(4, &vec![b' '; CATALOG_BYTES_MAX + 1]),
            Err(CatalogError::TooLong)
        );
        assert_eq!(*reader.audio(), opus("audio/data", 1), "the last good one stays");
        for odd in [
            &b"{\"audio\":7}"[..],
            b"{\"audio\":{\"renditions\":[1]}}",
            b"{\"audio\":{\"renditions\":{\"x\":3}}}",
        ] {
            let group = reader.group.unwrap() + 1;
            reader.read(group, odd).unwrap();
            assert!(!matches!(reader.audio(), CatalogAudio::Opus(_)));
        }
    }

    /// Patches cannot grow the catalog beyond its cap.
    #[test]
    fn patches_do_not_accumulate() {
        let mut reader = CatalogReader::default();
        reader.read(0, b"{}").unwrap();
        let long = "x".repeat(CATALOG_BYTES_MAX / 4);
        let results: Vec<_> = (0..6)
            .map(|n| reader.read(0, format!("{{\"k{n}\":\"{long}\"}}").as_bytes()))
            .collect();
        assert_eq!(results[2], Ok(()));
        assert_eq!(results[3], Err(CatalogError::TooLong));
        assert_eq!(results[5], Err(CatalogError::TooLong));
        assert_eq!(*reader.audio(), CatalogAudio::Absent);
        assert_eq!(reader.read(1, BROWSER), Ok(()), "the next group is read");
        assert_eq!(*reader.audio(), opus("audio/data", 1));
    }

    /// Each patch is small, and so is the catalog; their number is bounded per group.
    #[test]
    fn the_patches_of_a_group_are_counted() {
        let mut reader = CatalogReader::default();
        for group in 0..3 {
            reader.read(group, BROWSER).unwrap();
            for n in 0..CATALOG_PATCHES_MAX {
                assert_eq!(
                    reader.read(group, format!("{{\"clock\":{n}}}").as_bytes()),
                    Ok(()),
                    "{n}"
                );
            }
            assert_eq!(*reader.audio(), opus("audio/data", 1));
        }
        for _ in 0..2 {
            let error = reader.read(2, b"{}").unwrap_err();
            assert!(error.is_fatal() && error == CatalogError::TooManyPatches, "{error}");
        }
        assert!(!CatalogError::TooLong.is_fatal());
    }
}
