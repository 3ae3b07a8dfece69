//! Checks before a script is run that its interpreter is there: the system's error would name the
//! script.
//!
//! In: a program, and where it will run. Out: what is wrong with its first line. A program that is
//! no script passes, and one that cannot be read, which may still be executed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use edge_runner_proto::process::first_line::{self, FIRST_LINE_BYTES_MAX, FirstLineError};

use crate::search_path::files_in_path;

/// The reason for which a script cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error(transparent)]
    FirstLine(FirstLineError),
    #[error(
        "its first line names the interpreter `{interpreter}`, which {fault}; correct that line, or put an interpreter \
         before the script"
    )]
    Interpreter { interpreter: String, fault: &'static str },
}

/// Checks the interpreter of `program`, which will run in `folder`. Without a folder, an
/// interpreter that is named relative to it passes. `path` is the search path.
///
/// # Errors
/// [`ScriptError`] if it cannot be run.
pub fn check_script(program: &Path, folder: Option<&Path>, path: &OsStr) -> Result<(), ScriptError> {
    let mut head = Vec::new();
    let read = File::open(program).and_then(|file| file.take(FIRST_LINE_BYTES_MAX as u64).read_to_end(&mut head));
    if read.is_err() {
        return Ok(());
    }
    let Some(interpreter) = first_line::interpreter(&head).map_err(ScriptError::FirstLine)? else {
        return Ok(());
    };
    let fault = |interpreter: &OsStr, fault| ScriptError::Interpreter {
        interpreter: interpreter.display().to_string(),
        fault,
    };
    let own = Path::new(interpreter.path);
    let file = match folder {
        Some(folder) => folder.join(own),
        None if own.is_absolute() => own.to_owned(),
        None => return Ok(()),
    };
    if !file.exists() {
        return Err(fault(interpreter.path, "does not exist"));
    }
    if file.is_dir() || !is_executable(&file) {
        return Err(fault(interpreter.path, "is not executable"));
    }
    match interpreter.in_path.filter(|name| !name.as_bytes().contains(&b'/')) {
        Some(searched) if !files_in_path(searched, path).any(|file| is_executable(&file)) => {
            Err(fault(searched, "is not in PATH"))
        }
        _ => Ok(()),
    }
}

/// Returns whether this process may execute a file.
pub fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
