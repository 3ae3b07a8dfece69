//! A secret whose file may change while the service runs.
//!
//! In: a secret as it was at the start, the file that it is from, a parser. Out: the secret of this
//! moment. A file that is replaced counts from the next use on; while it is unusable, which is
//! logged without its content, the last usable secret goes on.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::io::reloading_file::ReloadingFile;
use edge_runner_http::common::lock;

/// The secret.
pub struct SecretFile<T> {
    last: Mutex<Arc<T>>,
    file: Option<ReloadingFile<T>>,
}

impl<T: 'static> SecretFile<T> {
    /// Creates a secret that is `first` until its file changes. Without a file it never does.
    /// `wants` says what the file has to look like.
    pub fn new(first: T, file: Option<PathBuf>, parse: fn(&str) -> Option<T>, wants: &'static str) -> SecretFile<T> {
        let file = file.map(|path| {
            ReloadingFile::new(path, move |content| {
                let content = content.ok_or("there is no such file")?;
                let text = str::from_utf8(content).map_err(|_| "it is not UTF-8")?;
                parse(text).ok_or_else(|| format!("it is to be {wants}").into())
            })
        });
        SecretFile {
            last: Mutex::new(Arc::new(first)),
            file,
        }
    }

    /// Returns the secret. Blocks for a `stat` and, after a change, for reading the file.
    pub fn current(&self) -> Arc<T> {
        let mut last = lock(&self.last);
        if let Some(Ok(now)) = self.file.as_ref().map(ReloadingFile::load) {
            *last = now;
        }
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::io::test_dir::TestDir;

    /// A file that is replaced counts from the next use on, and an unusable one not.
    #[test]
    fn a_changed_file_counts_and_an_unusable_one_does_not() {
        let folder = TestDir::create();
        let path = folder.path().join("secret");
        let parse = |text: &str| text.trim().parse::<u32>().ok();
        let secret = SecretFile::new(1, Some(path.clone()), parse, "a number");
        assert_eq!(*secret.current(), 1, "there is no file");
        for (content, expected) in [("2\n", 2), ("two", 2), ("3", 3)] {
            let next = folder.path().join("next");
            fs::write(&next, content).expect("the folder is writable");
            fs::rename(&next, &path).expect("the folder is writable");
            assert_eq!(*secret.current(), expected, "{content}");
        }
        fs::remove_file(&path).expect("it is there");
        assert_eq!(*secret.current(), 3);
        assert_eq!(*SecretFile::new(7, None, parse, "a number").current(), 7);
    }
}
