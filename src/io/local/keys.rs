//! Reads the keys of `--local-keys`.
//!
//! In: the files of devices. Out: what the user wants. A device that cannot be read, or is
//! unplugged, is tried again; one log line says why, and one that it is there again.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::io::tasks;
use crate::proto::local::attempts::Attempts;
use crate::proto::local::console::UserWish;
use crate::proto::local::keys::{KeyRecords, KeysFailure};

/// Presses that wait; more are dropped.
const PRESSES_MAX: usize = 16;
/// Bytes of a device that are read at a time: 16 records.
const READ_BYTES: usize = 384;

/// The keys of all devices. Dropping it closes them.
pub struct LocalKeys(Option<mpsc::Receiver<UserWish>>);

impl LocalKeys {
    /// Starts with the files of devices.
    pub fn start(paths: &[String]) -> LocalKeys {
        let (wishes, received) = mpsc::channel(PRESSES_MAX);
        for path in paths {
            let (path, wishes) = (path.clone(), wishes.clone());
            tasks::spawn(async move {
                tokio::select! {
                    () = watch(&path, &wishes) => {}
                    () = wishes.closed() => {}
                }
            });
        }
        LocalKeys((!paths.is_empty()).then_some(received))
    }

    /// Returns no keys.
    pub fn absent() -> LocalKeys {
        LocalKeys(None)
    }

    /// Returns whether there are any.
    pub fn are_read(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for a press. Cancel safe.
    pub async fn wish(&mut self) -> UserWish {
        match &mut self.0 {
            Some(received) => match received.recv().await {
                Some(wish) => wish,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }
}

/// Reads a device, again and again.
async fn watch(path: &str, wishes: &mpsc::Sender<UserWish>) {
    let mut attempts = Attempts::default();
    loop {
        let error = match read(path, wishes, &mut attempts).await {
            Ok(()) => KeysFailure::Gone,
            Err(error) => failure(&error),
        };
        let retry = attempts.handle_failure(&format!("no keys of {path}: {error}"));
        match retry.is_new {
            true => log::warn!("{}", retry.words),
            false => log::debug!("{}", retry.words),
        }
        sleep(retry.after).await;
    }
}

fn failure(error: &io::Error) -> KeysFailure {
    match error.kind() {
        io::ErrorKind::NotFound => KeysFailure::Missing,
        io::ErrorKind::PermissionDenied => KeysFailure::Denied,
        _ if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => KeysFailure::Gone,
        _ => KeysFailure::Other(error.to_string()),
    }
}

/// Reads a device to its end.
async fn read(path: &str, wishes: &mpsc::Sender<UserWish>, attempts: &mut Attempts) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32);
    // Any file that can be waited for is read as a pipe is.
    let mut device = pipe::Receiver::from_file_unchecked(options.open(path)?)?;
    let mut records = KeyRecords::new(size_of::<usize>());
    let mut buffer = [0; READ_BYTES];
    loop {
        let bytes = device.read(&mut buffer).await?;
        if bytes == 0 {
            return Ok(());
        }
        attempts.handle_success();
        if attempts.take_failed() {
            log::info!("the keys of {path} are there again");
        }
        for wish in records.handle_bytes(&buffer[..bytes]) {
            let _ = wishes.try_send(wish);
        }
    }
}
