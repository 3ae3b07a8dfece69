//! Who may touch an archive: one at a time per upload.
//!
//! An archive that is put in its place, a build that is made of it, and a sweep that deletes it each do two things that belong
//! together, one in the records and one on the disk. In: the name of an upload. Out: a [`Turn`], which ends when it is dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{Mutex as Line, OwnedMutexGuard};

use edge_runner_http::common;
use edge_runner_proto::uuid::Uuid;

/// The uploads that somebody has, or waits for.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<Uuid, Weak<Line<()>>>>);

/// Has an upload until it is dropped; may go to another thread.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "its end is the end of the turn")] OwnedMutexGuard<()>);

impl Turns {
    /// Waits for an upload.
    pub async fn of(&self, upload: Uuid) -> Turn {
        Turn(self.line(upload).lock_owned().await)
    }

    /// Has an upload now, or not.
    pub fn try_of(&self, upload: Uuid) -> Option<Turn> {
        self.line(upload).try_lock_owned().ok().map(Turn)
    }

    fn line(&self, upload: Uuid) -> Arc<Line<()>> {
        let mut lines = common::lock(&self.0);
        if let Some(line) = lines.get(&upload).and_then(Weak::upgrade) {
            return line;
        }
        // As many are left as have holders.
        lines.retain(|_, line| line.strong_count() > 0);
        let line = Arc::new(Line::new(()));
        lines.insert(upload, Arc::downgrade(&line));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I-09: two of one upload follow each other, and those of others do not wait.
    #[tokio::test]
    async fn one_has_an_upload_at_a_time() {
        let turns = Turns::default();
        let (a, b) = (Uuid::v4([1; 16]), Uuid::v4([2; 16]));
        let first = turns.of(a).await;
        assert!(turns.try_of(a).is_none());
        let _other = turns.of(b).await;
        drop(first);
        let second = turns.of(a).await;
        assert!(turns.try_of(a).is_none());
        drop(second);
        assert!(turns.try_of(a).is_some());
    }

    #[tokio::test]
    async fn what_nobody_has_takes_no_memory() {
        let turns = Turns::default();
        for n in 0..100 {
            drop(turns.of(Uuid::v4([n; 16])).await);
        }
        assert!(turns.0.lock().expect("no holder panics").len() <= 1);
    }
}
