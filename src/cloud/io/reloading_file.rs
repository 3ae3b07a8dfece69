//! A small file that is reloaded when it changes.
//!
//! In: a path and a parser. Out: the parsed value or an error. Every load compares device, inode,
//! size and times, and reads the file if one differs. A file modified within the last
//! `RELOAD_WITHIN` is always read, because file system clocks are coarse. Changes between valid and
//! invalid are logged. Source: decisions I-02, I-03.

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::time::SystemTime;

use edge_runner_http::common::lock;
use edge_runner_http::store::read_bounded;

/// Age below which a file is always read: the coarsest file system clocks tick in seconds.
const RELOAD_WITHIN: Duration = Duration::from_secs(2);

/// A file and its parsed value.
pub struct ReloadingFile<T> {
    path: PathBuf,
    parse: Parse<T>,
    cached: Mutex<Option<CachedValue<T>>>,
}

/// Parses the content; `None` if there is no file.
type Parse<T> = Box<dyn Fn(Option<&[u8]>) -> Result<T, ParseFailure> + Send + Sync>;

/// Why the content is invalid.
pub type ParseFailure = Box<dyn Error + Send + Sync>;

/// A file cannot be read or has invalid content.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {cause}", .path.display())]
pub struct ReloadError {
    path: Arc<Path>,
    cause: Arc<dyn Error + Send + Sync>,
}

impl PartialEq for ReloadError {
    fn eq(&self, other: &ReloadError) -> bool {
        self.path == other.path && self.cause.to_string() == other.cause.to_string()
    }
}

/// The result of the last load.
struct CachedValue<T> {
    stamp: FileStamp,
    value: Result<Arc<T>, ReloadError>,
}

/// Identifies a state of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileStamp {
    Missing(io::ErrorKind),
    File {
        device: u64,
        inode: u64,
        bytes: u64,
        modified: (i64, i64),
        changed: (i64, i64),
    },
}

impl<T> ReloadingFile<T> {
    /// Creates the value. The first load reads the file.
    pub fn new(
        path: PathBuf,
        parse: impl Fn(Option<&[u8]>) -> Result<T, ParseFailure> + Send + Sync + 'static,
    ) -> Self {
        ReloadingFile {
            path,
            parse: Box::new(parse),
            cached: Mutex::default(),
        }
    }

    /// Returns the current value. Blocks for a `stat` and, after a change, for reading the file.
    ///
    /// # Errors
    /// [`ReloadError`] if the file is unusable.
    pub fn load(&self) -> Result<Arc<T>, ReloadError> {
        let mut cached = lock(&self.cached);
        let (stamp, is_old) = self.stamp();
        match &*cached {
            Some(cached) if cached.stamp == stamp && is_old => cached.value.clone(),
            was => {
                let value = self.read();
                match (was.as_ref().map(|cached| &cached.value), &value) {
                    (Some(Ok(_)), Err(error)) => log::error!("{error}"),
                    (Some(Err(_)), Ok(_)) => log::info!("{} is usable again", self.path.display()),
                    (Some(Err(before)), Err(error)) if before != error => log::error!("{error}"),
                    _ => {}
                }
                *cached = Some(CachedValue {
                    stamp,
                    value: value.clone(),
                });
                value
            }
        }
    }

    /// Returns the state of the file, and whether it is old enough that a change alters its stamp.
    fn stamp(&self) -> (FileStamp, bool) {
        let file = match fs::metadata(&self.path) {
            Ok(file) => file,
            Err(error) => return (FileStamp::Missing(error.kind()), true),
        };
        let stamp = FileStamp::File {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        };
        // A file dated in the future gets an older date when it is changed, so the distance counts
        // in both directions.
        let age = file.modified().map(|at| match SystemTime::now().duration_since(at) {
            Ok(age) => age,
            Err(ahead) => ahead.duration(),
        });
        (stamp, age.is_ok_and(|age| age > RELOAD_WITHIN))
    }

    fn read(&self) -> Result<Arc<T>, ReloadError> {
        let failed = |cause: ParseFailure| ReloadError {
            path: self.path.as_path().into(),
            cause: cause.into(),
        };
        let text = match read_bounded(&self.path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error.into())),
        };
        (self.parse)(text.as_deref()).map(Arc::new).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use edge_runner_http::testing::TempDir;

    fn text(text: Option<&[u8]>) -> Result<String, ParseFailure> {
        match text {
            None => Err("there is no such file".into()),
            Some(b"bad") => Err("it is bad".into()),
            Some(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        }
    }

    /// I-02, I-03: every change is seen, and an invalid file never yields its earlier value.
    #[test]
    fn every_change_is_reloaded() {
        let folder = TempDir::new();
        let path = folder.path("file");
        let file = ReloadingFile::new(path.clone(), text);
        let look = || {
            file.load()
                .map(|text| (*text).clone())
                .map_err(|reason| reason.to_string())
        };
        let wrong = |reason: &str| Err(format!("{}: {reason}", path.display()));
        assert_eq!(look(), wrong("there is no such file"));
        fs::write(&path, "one").expect("written");
        assert_eq!(look(), Ok("one".into()));
        fs::write(&path, "two").expect("written");
        assert_eq!(look(), Ok("two".into()));
        fs::write(&path, "bad").expect("written");
        assert_eq!(look(), wrong("it is bad"));
        fs::write(folder.path("beside"), "new").expect("written");
        fs::rename(folder.path("beside"), &path).expect("renamed");
        assert_eq!(look(), Ok("new".into()));
        fs::remove_file(&path).expect("there");
        assert_eq!(look(), wrong("there is no such file"));
        fs::create_dir(&path).expect("made");
        assert!(look().is_err());
    }

    /// An unchanged file is read once, also if it is dated in the future.
    #[test]
    fn an_old_file_is_read_once() {
        let folder = TempDir::new();
        let path = folder.path("file");
        let now = SystemTime::now();
        for written in [SystemTime::UNIX_EPOCH + RELOAD_WITHIN, now + 1000 * RELOAD_WITHIN] {
            fs::write(&path, "old").expect("written");
            let file = fs::File::options().append(true).open(&path).expect("there");
            file.set_modified(written).expect("it is ours");
            let reads = Arc::new(AtomicUsize::new(0));
            let counted = reads.clone();
            let file = ReloadingFile::new(path.clone(), move |text| {
                counted.fetch_add(1, Ordering::Relaxed);
                super::tests::text(text)
            });
            for _ in 0..3 {
                assert_eq!(file.load().as_deref().map(String::as_str), Ok("old"));
            }
            assert_eq!(reads.load(Ordering::Relaxed), 1);
            fs::write(&path, "new").expect("written");
            assert_eq!(file.load().as_deref().map(String::as_str), Ok("new"));
        }
    }
}
