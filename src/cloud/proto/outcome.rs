//! The outcome of a builder command: an image or an error message.
//!
//! In: exit status, the content of `BUILD_RESULT`, the last line of stdout, the files in
//! `BUILD_OUT`, the end of stderr. Out: an [`Image`], or the text of `errorMessage`. Rejects an
//! image without a size, with an empty, long or malformed URI, or with a file name that is not
//! UTF-8. Source: decisions I-11, I-13.

use std::fmt;

use serde_json::Value;

use super::build::{Image, ImageLocation};
use super::unpack::escape_name;

/// Characters of stderr's end in an error message.
const ERROR_STDERR_CHARS_MAX: usize = 2000;

/// Largest image size in bytes: the largest integer that JSON numbers carry exactly.
const IMAGE_SIZE_MAX: u64 = (1 << 53) - 1;

/// Length of an image URI in bytes. Every answer about the build contains it.
const IMAGE_URI_BYTES_MAX: usize = 2048;

/// The phases of a build in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildPhase {
    Unpack,
    Build,
    Image,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandExit {
    Code(i32),
    Signal(i32),
}

impl fmt::Display for CommandExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandExit::Code(code) => write!(f, "exit status {code}"),
            CommandExit::Signal(signal) => {
                write!(f, "signal {signal}")?;
                // Signals that have the same number on all architectures.
                let name = match signal {
                    1 => "SIGHUP",
                    2 => "SIGINT",
                    3 => "SIGQUIT",
                    4 => "SIGILL",
                    6 => "SIGABRT",
                    8 => "SIGFPE",
                    9 => "SIGKILL",
                    11 => "SIGSEGV",
                    13 => "SIGPIPE",
                    14 => "SIGALRM",
                    15 => "SIGTERM",
                    _ => return Ok(()),
                };
                write!(f, " ({name})")
            }
        }
    }
}

/// Formats an error message: the failed phase and the reason, the phases passed, and the end of
/// stderr, which is only given for the build phase.
pub fn error_message(phase: BuildPhase, reason: &str, stderr: &str) -> String {
    let (name, passed) = match phase {
        BuildPhase::Unpack => ("unpack", ""),
        BuildPhase::Build => ("build", "; passed: unpack"),
        BuildPhase::Image => ("image", "; passed: unpack, build"),
    };
    let ends = if stderr.is_empty() { "" } else { "; stderr ends: " };
    format!("{name}: {reason}{passed}{ends}{stderr}")
}

/// The end of a command's stderr.
#[derive(Default)]
pub struct StderrTail(String);

impl StderrTail {
    pub fn push(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
        // Trimming happens at twice the needed length, so that not every line moves the text. A
        // character has at most four bytes.
        if self.0.len() > 8 * ERROR_STDERR_CHARS_MAX {
            let end = self.end().len() + 1;
            self.0.drain(..self.0.len() - end);
        }
    }

    /// Returns the last `ERROR_STDERR_CHARS_MAX` characters, without the final line feed.
    pub fn end(&self) -> &str {
        let text = self.0.strip_suffix('\n').unwrap_or(&self.0);
        let start = text.char_indices().rev().nth(ERROR_STDERR_CHARS_MAX - 1);
        &text[start.map_or(0, |(at, _)| at)..]
    }
}

/// An entry of `BUILD_OUT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutEntry {
    pub name: Vec<u8>,
    /// Size in bytes of a regular file, `None` for anything else.
    pub size: Option<u64>,
}

/// Why a successful command has no usable image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The command reported no image.
    Missing,
    /// `BUILD_OUT` has several entries.
    Ambiguous,
    /// `BUILD_RESULT` is invalid.
    Result(InvalidImage),
    /// The last line of stdout is invalid.
    LastLine(InvalidImage),
    /// The entry in `BUILD_OUT` is invalid; its name is escaped.
    Out { name: String, source: InvalidImage },
}

/// What is wrong with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidImage {
    NotAnObject,
    UriMissing,
    UriNotAString,
    UriEmpty,
    UriTooLong,
    UriCharacters,
    SizeMissing,
    SizeNotANumber,
    NotAFile,
    NameNotUtf8,
    NameCharacters,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::Missing => f.write_str(
                "the command reported no image: expected JSON, {\"imageUri\":\"...\",\"imageSizeBytes\":N}, in \
                 BUILD_RESULT or as the last line of stdout, or one file in BUILD_OUT",
            ),
            ImageError::Ambiguous => {
                f.write_str("BUILD_OUT holds more than one file, so it is unclear which is the image")
            }
            ImageError::Result(source) => write!(f, "BUILD_RESULT is unusable: {source}"),
            ImageError::LastLine(source) => write!(f, "the last line of stdout is unusable: {source}"),
            ImageError::Out { name, source } => write!(f, "`{name}` in BUILD_OUT is unusable: {source}"),
        }
    }
}

impl std::error::Error for ImageError {}

impl fmt::Display for InvalidImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InvalidImage::NotAnObject => "it is not a JSON object",
            InvalidImage::UriMissing => "`imageUri` is missing",
            InvalidImage::UriNotAString => "`imageUri` is not a string",
            InvalidImage::UriEmpty => "`imageUri` is empty",
            InvalidImage::UriTooLong => return write!(f, "`imageUri` has more than {IMAGE_URI_BYTES_MAX} bytes"),
            InvalidImage::UriCharacters => "`imageUri` has control characters or spaces",
            InvalidImage::SizeMissing => "`imageSizeBytes` is missing",
            InvalidImage::SizeNotANumber => "`imageSizeBytes` is not a number of bytes",
            InvalidImage::NotAFile => "it is not a regular file",
            InvalidImage::NameNotUtf8 => "its name is not UTF-8",
            InvalidImage::NameCharacters => "its name has control characters",
        })
    }
}

impl std::error::Error for InvalidImage {}

/// Determines the image of a successful command, in this order: `result`, the content of
/// `BUILD_RESULT` if that exists; the last line of stdout; the only file in `BUILD_OUT`. Two
/// entries in `out` suffice to detect an ambiguity.
///
/// # Errors
/// [`ImageError`] when the first of these that is present is invalid, or when none is.
pub fn find_image(result: Option<&[u8]>, last_line: &str, out: &[OutEntry]) -> Result<Image, ImageError> {
    if let Some(result) = result.map(<[u8]>::trim_ascii).filter(|result| !result.is_empty()) {
        let value: Option<Value> = serde_json::from_slice(result).ok();
        return match value {
            Some(Value::Object(reported)) => image_from_json(&reported),
            _ => Err(InvalidImage::NotAnObject),
        }
        .map_err(ImageError::Result);
    }
    // Any other last line is ordinary output.
    if let Ok(Value::Object(reported)) = serde_json::from_str(last_line)
        && ["imageUri", "imageSizeBytes"]
            .iter()
            .any(|key| reported.contains_key(*key))
    {
        return image_from_json(&reported).map_err(ImageError::LastLine);
    }
    match out {
        [] => Err(ImageError::Missing),
        [item] => image_from_file(item).map_err(|source| ImageError::Out {
            name: escape_name(&item.name),
            source,
        }),
        _ => Err(ImageError::Ambiguous),
    }
}

fn image_from_json(reported: &serde_json::Map<String, Value>) -> Result<Image, InvalidImage> {
    let uri = match reported.get("imageUri") {
        Some(Value::String(uri)) => uri,
        Some(_) => return Err(InvalidImage::UriNotAString),
        None => return Err(InvalidImage::UriMissing),
    };
    if uri.is_empty() {
        return Err(InvalidImage::UriEmpty);
    }
    if uri.len() > IMAGE_URI_BYTES_MAX {
        return Err(InvalidImage::UriTooLong);
    }
    if uri.contains(|char: char| char.is_control() || char.is_whitespace()) {
        return Err(InvalidImage::UriCharacters);
    }
    let size = reported
        .get("imageSizeBytes")
        .ok_or(InvalidImage::SizeMissing)?
        .as_u64()
        .filter(|&size| size <= IMAGE_SIZE_MAX)
        .ok_or(InvalidImage::SizeNotANumber)?;
    Ok(Image {
        location: ImageLocation::Uri(uri.clone()),
        size,
    })
}

fn image_from_file(item: &OutEntry) -> Result<Image, InvalidImage> {
    let size = item.size.ok_or(InvalidImage::NotAFile)?;
    let name = std::str::from_utf8(&item.name).map_err(|_| InvalidImage::NameNotUtf8)?;
    if name.contains(char::is_control) {
        return Err(InvalidImage::NameCharacters);
    }
    Ok(Image {
        location: ImageLocation::Stored(name.to_owned()),
        size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_image(result: Option<&[u8]>, last_line: &str, out: &[OutEntry]) -> Result<Image, String> {
        super::find_image(result, last_line, out).map_err(|error| error.to_string())
    }

    fn uri(uri: &str, size: u64) -> Result<Image, String> {
        Ok(Image {
            location: ImageLocation::Uri(uri.to_owned()),
            size,
        })
    }

    fn item(name: &[u8], size: Option<u64>) -> OutEntry {
        OutEntry {
            name: name.to_vec(),
            size,
        }
    }

    /// I-11, C-016, C-048: the first of the three ways wins.
    #[test]
    fn an_image_is_found_in_three_ways() {
        let json = r#"{"imageUri":"registry.example/a:1","imageSizeBytes":5,"more":[1]}"#;
        let line = r#"{"imageSizeBytes":0,"imageUri":"b"}"#;
        let file = [item(b"image one.tar", Some(7))];
        assert_eq!(
            find_image(Some(json.as_bytes()), line, &file),
            uri("registry.example/a:1", 5)
        );
        let with_ends = format!("\n {json}\n\n");
        assert_eq!(
            find_image(Some(with_ends.as_bytes()), line, &file),
            uri("registry.example/a:1", 5)
        );
        for absent in [None, Some(&b""[..]), Some(&b" \n"[..])] {
            assert_eq!(find_image(absent, line, &file), uri("b", 0));
            for other in ["", "done", "{}", "[1]", r#"{"imageUri"#, r#"{"level":"info"}"#] {
                let kept = Image {
                    location: ImageLocation::Stored("image one.tar".to_owned()),
                    size: 7,
                };
                assert_eq!(find_image(absent, other, &file), Ok(kept), "{other}");
            }
        }
    }

    /// I-11: an invalid image is an error even if another way would succeed.
    #[test]
    fn unusable_images_are_refused() {
        let file = [item(b"image.tar", Some(7))];
        let long = format!(
            r#"{{"imageUri":"{}","imageSizeBytes":1}}"#,
            "x".repeat(IMAGE_URI_BYTES_MAX)
        );
        assert!(find_image(Some(long.as_bytes()), "", &[]).is_ok());
        let longer = long.replacen('x', "xx", 1);
        for (json, reason) in [
            ("image:1", "it is not a JSON object"),
            ("[]", "it is not a JSON object"),
            ("\"a\"", "it is not a JSON object"),
            ("{}", "`imageUri` is missing"),
            (r#"{"imageUri":1,"imageSizeBytes":1}"#, "`imageUri` is not a string"),
            (r#"{"imageUri":"","imageSizeBytes":1}"#, "`imageUri` is empty"),
            (
                r#"{"imageUri":"a\u001bb","imageSizeBytes":1}"#,
                "`imageUri` has control characters or spaces",
            ),
            (
                r#"{"imageUri":"a b","imageSizeBytes":1}"#,
                "`imageUri` has control characters or spaces",
            ),
            (&longer, "`imageUri` has more than 2048 bytes"),
            (r#"{"imageUri":"a"}"#, "`imageSizeBytes` is missing"),
            (
                r#"{"imageUri":"a","imageSizeBytes":"1"}"#,
                "`imageSizeBytes` is not a number of bytes",
            ),
            (
                r#"{"imageUri":"a","imageSizeBytes":-1}"#,
                "`imageSizeBytes` is not a number of bytes",
            ),
            (
                r#"{"imageUri":"a","imageSizeBytes":1.5}"#,
                "`imageSizeBytes` is not a number of bytes",
            ),
            (
                r#"{"imageUri":"a","imageSizeBytes":9007199254740992}"#,
                "`imageSizeBytes` is not a number of bytes",
            ),
        ] {
            let expected = Err(format!("BUILD_RESULT is unusable: {reason}"));
            assert_eq!(find_image(Some(json.as_bytes()), "", &file), expected);
            if json.contains(":") && json.contains("image") && json.starts_with('{') {
                let expected = Err(format!("the last line of stdout is unusable: {reason}"));
                assert_eq!(find_image(None, json, &file), expected);
            }
        }
        assert!(find_image(Some(b"\xff"), "", &file).is_err());
        let none = find_image(None, "", &[]).expect_err("there is nothing");
        assert!(
            none.starts_with("the command reported no image: expected JSON"),
            "{none}"
        );
        for (out, reason) in [
            (
                vec![item(b"dir", None)],
                "`dir` in BUILD_OUT is unusable: it is not a regular file",
            ),
            (
                vec![item(b"a\xff", Some(1))],
                "`a\\xff` in BUILD_OUT is unusable: its name is not UTF-8",
            ),
            (
                vec![item(b"a\n", Some(1))],
                "`a\\n` in BUILD_OUT is unusable: its name has control characters",
            ),
            (
                vec![item(b"a", Some(1)), item(b"b", Some(1))],
                "BUILD_OUT holds more than one file, so it is unclear which is the image",
            ),
        ] {
            assert_eq!(find_image(None, "", &out), Err(reason.to_owned()));
        }
    }

    /// I-13, C-018: the message has the failed phase, the reason, the passed phases and the end of
    /// stderr.
    #[test]
    fn an_error_names_the_phases() {
        for (text, expected) in [
            (
                error_message(BuildPhase::Unpack, "the entry `../x` is refused", ""),
                "unpack: the entry `../x` is refused",
            ),
            (
                error_message(BuildPhase::Build, &CommandExit::Code(3).to_string(), ""),
                "build: exit status 3; passed: unpack",
            ),
            (
                error_message(BuildPhase::Build, &CommandExit::Signal(9).to_string(), "no\nspace"),
                "build: signal 9 (SIGKILL); passed: unpack; stderr ends: no\nspace",
            ),
            (
                error_message(BuildPhase::Build, &CommandExit::Signal(64).to_string(), ""),
                "build: signal 64; passed: unpack",
            ),
            (
                error_message(BuildPhase::Image, "nothing", ""),
                "image: nothing; passed: unpack, build",
            ),
        ] {
            assert_eq!(text, expected);
        }
    }

    /// I-13: the last 2000 characters of stderr are kept, for any line lengths.
    #[test]
    fn the_end_of_stderr_is_kept() {
        let mut tail = StderrTail::default();
        assert_eq!(tail.end(), "");
        tail.push("one");
        tail.push("");
        tail.push("two");
        assert_eq!(tail.end(), "one\n\ntwo");
        let mut all = String::from("one\n\ntwo");
        for at in 0..5_000 {
            let line = format!("{at} \u{1f3b5}\u{e9}{}", "x".repeat(at % 90));
            tail.push(&line);
            all.push('\n');
            all.push_str(&line);
            assert!(tail.0.len() <= 8 * ERROR_STDERR_CHARS_MAX + 4 * ERROR_STDERR_CHARS_MAX);
        }
        let chars: Vec<char> = all.chars().collect();
        let expected: String = chars[chars.len() - ERROR_STDERR_CHARS_MAX..].iter().collect();
        assert_eq!(tail.end(), expected);
        tail.push(&"\u{1f3b5}".repeat(ERROR_STDERR_CHARS_MAX + 1));
        assert_eq!(tail.end(), "\u{1f3b5}".repeat(ERROR_STDERR_CHARS_MAX));
    }
}
