//! A temporary directory for a test, removed on drop.

use std::fs;
use std::path::{Path, PathBuf};

use edge_runner_http::common::random;

pub struct TestDir(PathBuf);

impl TestDir {
    pub fn create() -> TestDir {
        let name = format!("edge-runner-{:016x}", u64::from_be_bytes(random()));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("an unused name");
        TestDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = super::dir::remove_tree(&self.0);
    }
}
