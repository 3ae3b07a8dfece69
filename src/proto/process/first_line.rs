//! The first line of a script, which names its interpreter.
//!
//! In: the first bytes of a file. Out: the interpreter, and the program that it finds in `PATH` if
//! it is `env`; `None` for a file that is no script. Rejected: lines that no system can execute as
//! they are meant. Source: `execve(2)`, `env(1)`.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Bytes of the line that Linux reads.
pub const FIRST_LINE_BYTES_MAX: usize = 256;

/// The interpreter of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpreter<'a> {
    pub path: &'a OsStr,
    /// The program that `env` looks for in `PATH`.
    pub in_path: Option<&'a OsStr>,
}

/// A fault of a first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstLineError {
    CarriageReturn,
    ByteOrderMark,
}

impl fmt::Display for FirstLineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FirstLineError::CarriageReturn => {
                "its first line ends with a carriage return, as editors on Windows write it, which becomes a part of the \
                 interpreter's name; save the file with Unix line ends"
            }
            FirstLineError::ByteOrderMark => {
                "a byte order mark precedes its `#!`, which is then not seen; save the file as UTF-8 without it"
            }
        })
    }
}

impl std::error::Error for FirstLineError {}

/// Returns the interpreter of a file with these first bytes, of which [`FIRST_LINE_BYTES_MAX`] are
/// enough.
///
/// # Errors
/// [`FirstLineError`] for a line that cannot be executed.
pub fn interpreter(head: &[u8]) -> Result<Option<Interpreter<'_>>, FirstLineError> {
    if head.starts_with(b"\xef\xbb\xbf#!") {
        return Err(FirstLineError::ByteOrderMark);
    }
    let Some(rest) = head.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let end = rest.iter().position(|byte| *byte == b'\n');
    let line = &rest[..end.unwrap_or(rest.len())];
    if line.ends_with(b"\r") {
        return Err(FirstLineError::CarriageReturn);
    }
    // One argument at most follows, with its spaces.
    let line = trimmed(line);
    let blank = line.iter().position(|byte| is_blank(*byte));
    let (path, argument) = line.split_at(blank.unwrap_or(line.len()));
    let is_cut = end.is_none() && blank.is_none() && head.len() >= FIRST_LINE_BYTES_MAX;
    if path.is_empty() || is_cut {
        return Ok(None);
    }
    let path = OsStr::from_bytes(path);
    let is_env = Path::new(path).file_name() == Some(OsStr::new("env"));
    let in_path = if is_env { in_path(trimmed(argument)) } else { None };
    Ok(Some(Interpreter { path, in_path }))
}

/// Returns the program that `env` with this argument runs; `None` if that depends on options.
fn in_path(argument: &[u8]) -> Option<&OsStr> {
    let program = match argument.strip_prefix(b"-S") {
        Some(split) => split
            .split(|byte| is_blank(*byte))
            .find(|word| !word.is_empty() && !word.contains(&b'='))?,
        None => argument,
    };
    let is_program = !program.is_empty() && !program.starts_with(b"-") && !program.contains(&b'=');
    is_program.then(|| OsStr::from_bytes(program))
}

fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_blank(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_blank(*last)
    {
        text = rest;
    }
    text
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_names_its_interpreter() {
        for (head, path, in_path) in [
            ("#!/bin/sh\n", "/bin/sh", None),
            ("#!/bin/sh", "/bin/sh", None),
            ("#! \t/bin/sh -e \nrest\r\n", "/bin/sh", None),
            ("#!python3\n", "python3", None),
            ("#!/usr/bin/env python3\n", "/usr/bin/env", Some("python3")),
            ("#!/usr/bin/env\t python3 \n", "/usr/bin/env", Some("python3")),
            // Without -S this is one name, which `env` looks for.
            ("#!/usr/bin/env python3 -u\n", "/usr/bin/env", Some("python3 -u")),
            ("#!/usr/bin/env -S python3 -u\n", "/usr/bin/env", Some("python3")),
            ("#!/usr/bin/env -S A=1 B=2 python3\n", "/usr/bin/env", Some("python3")),
            ("#!/usr/bin/env -S -i python3\n", "/usr/bin/env", None),
            ("#!/usr/bin/env -i\n", "/usr/bin/env", None),
            ("#!/usr/bin/env A=1\n", "/usr/bin/env", None),
            ("#!/usr/bin/env -S\n", "/usr/bin/env", None),
            ("#!/usr/bin/env\n", "/usr/bin/env", None),
        ] {
            let expected = Interpreter {
                path: path.as_ref(),
                in_path: in_path.map(OsStr::new),
            };
            assert_eq!(interpreter(head.as_bytes()), Ok(Some(expected)), "{head}");
        }
    }

    #[test]
    fn other_files_name_no_interpreter() {
        for head in [
            "",
            "#",
            "#!",
            "#!\n",
            "#! \t\n/bin/sh",
            "\x7fELF",
            "print()\n",
            "# !/bin/sh\n",
        ] {
            assert_eq!(interpreter(head.as_bytes()), Ok(None), "{head}");
        }
        // The end of the name may follow.
        let long = format!("#!/{}", "x".repeat(FIRST_LINE_BYTES_MAX - 3));
        assert_eq!(interpreter(long.as_bytes()), Ok(None));
        let short = &long[..long.len() - 1];
        assert!(interpreter(short.as_bytes()).is_ok_and(|found| found.is_some()));
    }

    #[test]
    fn lines_of_windows_are_rejected() {
        for (head, error) in [
            (&b"#!/bin/sh\r\n"[..], FirstLineError::CarriageReturn),
            (b"#!/usr/bin/env python3\r\nx", FirstLineError::CarriageReturn),
            (b"#!/bin/sh\r", FirstLineError::CarriageReturn),
            (b"\xef\xbb\xbf#!/bin/sh\n", FirstLineError::ByteOrderMark),
        ] {
            assert_eq!(interpreter(head), Err(error));
        }
        assert_eq!(interpreter(b"\xef\xbb\xbfprint()\n"), Ok(None));
        assert!(FirstLineError::CarriageReturn.to_string().contains("carriage return"));
        assert!(FirstLineError::ByteOrderMark.to_string().contains("byte order mark"));
    }
}
