//! The look-up of a program in `PATH`. In: a name without slashes, and the value of the variable.
//! Out: the files of that name, in the order of the folders. Whether one can be run is for the
//! caller to check. Source: `execvp(3)`.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

/// Returns the files of that name in the folders of `path`.
pub fn files_in_path(name: &OsStr, path: &OsStr) -> impl Iterator<Item = PathBuf> {
    env::split_paths(path)
        .map(move |folder| folder.join(name))
        .filter(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn files_are_found_in_the_order_of_the_folders() {
        let (first, second) = (TempDir::new(), TempDir::new());
        fs::write(first.path("program"), "").expect("written");
        fs::write(second.path("program"), "").expect("written");
        fs::create_dir(first.path("folder")).expect("created");
        let path = env::join_paths([&second.0, &first.0]).expect("no separators in them");
        let found = |name: &str| files_in_path(OsStr::new(name), &path).collect::<Vec<_>>();
        assert_eq!(found("program"), [second.path("program"), first.path("program")]);
        assert!(found("folder").is_empty() && found("missing").is_empty());
    }
}
