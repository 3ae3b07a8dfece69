//! The surroundings of a start: variables, `.env`, the files that options name, and this machine.
//!
//! In: the environment of the process and its arguments. Out: what the meaning of the arguments
//! depends on, as values. A reload and the settings page read them again.

#![allow(
    clippy::disallowed_methods,
    reason = "the files of the process are read here, so that all other modules receive values"
)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

use data_encoding::HEXLOWER;
use edge_runner_http::common::random;
use edge_runner_http::host_name::host_name;
use edge_runner_http::startup::{EXIT_USAGE, StartupError};
use edge_runner_http::store::Store;

use super::resolve::MADE_KEY_FILE;
use super::{Env, env_trust};
use crate::limits::OPTION_FILE_BYTES_MAX;
use crate::proto::options::env::{self, Variables};

/// Bytes of a `.env` file: hundreds of variables and a few keys in PEM form.
const ENV_FILE_BYTES_MAX: u64 = 64 * 1024;
/// Random bytes of a key that the runner makes.
const MADE_KEY_BYTES: usize = 24;

/// The variables of a start.
pub(super) struct Surroundings {
    /// Those of the process, and of `.env` or the file in its place.
    pub variables: Variables,
    /// Those that are set in the process, for bots.
    pub for_bots: BTreeMap<String, String>,
    /// Lines of the file that were skipped.
    pub warnings: Vec<String>,
}

/// Reads `.env`, or the file that is named in its place.
pub(super) fn surroundings(
    mut process: BTreeMap<String, String>,
    arguments: &[OsString],
) -> Result<Surroundings, StartupError> {
    let named = env_trust::named_file(arguments, &process);
    let mut file = match &named {
        Some(path) => named_env_file(path)?,
        None => env_file().map_err(|error| {
            StartupError::in_step(
                "reading .env in the working directory; start edge-runner in a directory that this user may read",
                error,
            )
        })?,
    };
    if named.is_none() {
        env_trust::restrict(&mut file, &process);
    }
    let mut of_file: Vec<_> = file.variables.into_iter().map(|line| (line.name, line.value)).collect();
    let for_bots = for_bots(&process, &of_file);
    if named.is_some() {
        // The operator's own file counts as the environment, which still takes precedence.
        for (name, value) in of_file.drain(..).rev() {
            process.entry(name).or_insert(value);
        }
    }
    Ok(Surroundings {
        variables: Variables::new(process, of_file),
        for_bots,
        warnings: file.warnings,
    })
}

/// Returns the surroundings of this machine.
pub(super) fn env<'a>(variables: Variables, make_key: &'a dyn Fn(&Path) -> io::Result<String>) -> Env<'a> {
    Env {
        variables,
        addresses: interface_addresses(),
        names: machine_names(),
        read: &read_file,
        make_key,
        lookup_host: &resolve,
    }
}

/// Reads a file that an option names.
pub(super) fn read_file(path: &str) -> io::Result<Vec<u8>> {
    read_bytes(File::open(path)?, OPTION_FILE_BYTES_MAX)
}

/// Returns the key of `--api-key-file auto`, and makes it at the first start.
pub(super) fn make_key(folder: &Path) -> io::Result<String> {
    let store = Store::open(folder)?;
    let _turn = store.lock_named("api-key.lock")?;
    // A power cut can leave an empty file, which counts as no key.
    let kept = store
        .read(MADE_KEY_FILE)?
        .filter(|file| !file.text.trim_ascii().is_empty());
    if let Some(file) = kept {
        if file.exposed_mode.is_some() {
            store.restrict_to_owner(MADE_KEY_FILE)?;
        }
        return String::from_utf8(file.text).map_err(|_| io::Error::other("it is no text in UTF-8"));
    }
    let key = HEXLOWER.encode(&random::<MADE_KEY_BYTES>());
    store.write(MADE_KEY_FILE, format!("{key}\n").as_bytes())?;
    Ok(key)
}

/// Returns the variables that are added for bots: those of the file that the process lacks, and
/// `ENV=local`, which replaces any other value.
fn for_bots(process: &BTreeMap<String, String>, file: &[(String, String)]) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<_, _> = file
        .iter()
        .filter(|(name, _)| !process.contains_key(name))
        .cloned()
        .collect();
    variables.insert("ENV".into(), "local".into());
    variables
}

/// Reads the file of `--env-file`.
fn named_env_file(path: &OsString) -> Result<env::EnvFile, StartupError> {
    let name = path.display();
    let text = File::open(path)
        .and_then(|file| read_bytes(file, ENV_FILE_BYTES_MAX))
        .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    let text = text.map_err(|error| StartupError {
        code: EXIT_USAGE,
        message: format!(
            "`--env-file {name}`: {error}; expected a text file with lines NAME=value that this user may read"
        ),
    })?;
    Ok(in_file(&name.to_string(), env::parse(&text)))
}

/// Puts the name of the file before each of its warnings.
fn in_file(name: &str, mut file: env::EnvFile) -> env::EnvFile {
    for warning in &mut file.warnings {
        *warning = format!("{name} {warning}");
    }
    file
}

/// Reads `.env` in the working directory. A directory of that name, such as a Python environment,
/// counts as absent.
fn env_file() -> io::Result<env::EnvFile> {
    let file = match File::open(".env") {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(env::EnvFile::default()),
        Err(error) => return Err(error),
    };
    if file.metadata()?.is_dir() {
        return Ok(env::EnvFile::default());
    }
    let text = String::from_utf8(read_bytes(file, ENV_FILE_BYTES_MAX)?);
    Ok(in_file(".env", env::parse(&text.map_err(io::Error::other)?)))
}

/// Reads a file of at most `bytes_max` bytes.
pub(super) fn read_bytes(file: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Returns the kernel's host name, and its first label.
fn machine_names() -> Vec<String> {
    let name = host_name();
    let name = name.trim();
    let label = name.split('.').next().unwrap_or_default();
    [name, label]
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn interface_addresses() -> Vec<IpAddr> {
    if_addrs::get_if_addrs().map_or_else(|_| Vec::new(), |all| all.iter().map(if_addrs::Interface::ip).collect())
}

fn resolve(name: &str) -> Vec<IpAddr> {
    (name, 0)
        .to_socket_addrs()
        .map_or_else(|_| Vec::new(), |found| found.map(|address| address.ip()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ENV` is `local` for bots, even if the shell sets it to another value.
    #[test]
    fn bots_get_env_local_and_the_variables_of_the_file() {
        let own = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|&(a, b)| (a.into(), b.into())).collect()
        };
        let process = own(&[("ENV", "production"), ("KEY", "mine")]).into_iter().collect();
        let set = for_bots(
            &process,
            &own(&[("KEY", "file"), ("OTHER", "1"), ("OTHER", "2"), ("ENV", "x")]),
        );
        let expected = own(&[("ENV", "local"), ("OTHER", "2")]).into_iter().collect();
        assert_eq!(set, expected);
    }
}
