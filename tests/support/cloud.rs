//! [`TestCloud`]: the cloud service of the real binary on a free port, with a data directory that outlives it.
//!
//! In: options, and the builder command. Out: replies. Its key is made for the test and known here alone.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::http::{self, Reply};
use super::runner::{TestRunner, folder};

/// The private key of organization `default`.
pub const KEY: &str = "sk_test_0123456789abcdef";
/// The same of organization `other`.
pub const OTHER: &str = "sk_other_0123456789abcdef";
/// The public key of organization `default`.
pub const PUBLIC: &str = "pk_test_0123456789abcdef";

/// A data directory, deleted when it is dropped.
pub struct DataDir(PathBuf);

impl DataDir {
    pub fn new() -> DataDir {
        DataDir(folder())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub struct TestCloud {
    pub runner: TestRunner,
}

impl TestCloud {
    /// Starts the service on a data directory, with the keys of this module. `args` may end with `--` and a command.
    /// Tests run on disks of any size, so `--min-free 0` comes first.
    pub fn start(data: &DataDir, args: &[&str]) -> TestCloud {
        TestCloud::start_with(data, args, &[])
    }

    /// The same with further variables.
    pub fn start_with(data: &DataDir, args: &[&str], variables: &[(&str, &str)]) -> TestCloud {
        let path = data.path().to_str().expect("folders of tests are UTF-8");
        let mut all = vec!["cloud", "serve", "--port", "0", "--data-dir", path, "--min-free", "0"];
        all.extend(args);
        let private = format!("{KEY},other={OTHER}");
        let mut env = vec![("CLOUD_PRIVATE_KEYS", &*private), ("CLOUD_PUBLIC_KEYS", PUBLIC)];
        env.extend(variables);
        TestCloud {
            runner: TestRunner::start_bare(&all, &env),
        }
    }

    /// `GET` with the private key.
    pub fn get(&self, target: &str) -> Reply {
        self.request("GET", target, KEY, b"")
    }

    /// `POST` of JSON with the private key.
    pub fn post(&self, target: &str, body: &Value) -> Reply {
        self.request("POST", target, KEY, body.to_string().as_bytes())
    }

    /// A request with a key of the test's choice.
    pub fn request(&self, method: &str, target: &str, key: &str, body: &[u8]) -> Reply {
        let key = format!("Authorization: Bearer {key}");
        let headers = [&*key, "Content-Type: application/json"];
        http::request(self.runner.addr, method, target, &headers, body).expect("the service answers")
    }
}
