//! What a reload of the settings changes while the runner runs, and what needs a restart.
//!
//! In: the configuration that runs, and the one that a start would have now. Out: a [`Reload`]. A
//! setting is applied only if every part of the runner that reads it gets the new value.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::transport::Transport;

/// The option whose file or value is the key of callers.
const API_KEYS: [&str; 2] = ["api-key", "api-key-file"];

/// The result of a comparison.
#[derive(Debug)]
pub struct Reload {
    /// The configuration that runs from now on.
    pub running: Config,
    /// The settings that changed and are applied, by their keys.
    pub applied: Vec<String>,
    /// Those that need a restart.
    pub waiting: Vec<String>,
}

impl Reload {
    /// Compares the configuration that runs with the next one. `sets_log` tells whether the level
    /// of the log can change: RUST_LOG replaces it.
    pub fn new(running: &Config, next: &Config, sets_log: bool) -> Reload {
        let mut reload = Reload {
            running: running.clone(),
            applied: Vec::new(),
            waiting: Vec::new(),
        };
        let value = |config: &Config, key: &str| {
            let found = config.set.iter().find(|(set, _)| set == key);
            found.map(|(_, value)| value.clone())
        };
        let mut keys: BTreeSet<&str> = [running, next]
            .into_iter()
            .flat_map(|config| &config.set)
            .map(|(key, _)| key.as_str())
            .filter(|key| value(running, key) != value(next, key))
            .collect();
        // A file has another key under the same name.
        if running.api_key != next.api_key && !API_KEYS.iter().any(|key| keys.contains(key)) {
            keys.insert(API_KEYS[1]);
        }
        for key in keys {
            let is_applied = match key {
                "drain" => {
                    reload.running.drain = next.drain;
                    true
                }
                "verbose" => {
                    reload.running.verbosity = next.verbosity;
                    sets_log
                }
                // The simulated calls of the page, and who may list sessions, depend on whether
                // there is a key.
                "api-key" | "api-key-file" if running.api_key.is_some() && next.api_key.is_some() => {
                    reload.running.api_key.clone_from(&next.api_key);
                    true
                }
                "allowed-origins" if !running.transport.is_some_and(Transport::keeps_origins) => {
                    reload.running.allowed_origins.clone_from(&next.allowed_origins);
                    true
                }
                _ => false,
            };
            match is_applied {
                true => {
                    reload.running.set.retain(|(set, _)| set != key);
                    let value = value(next, key).map(|value| (key.to_owned(), value));
                    reload.running.set.extend(value);
                    reload.applied.push(key.to_owned());
                }
                false => reload.waiting.push(key.to_owned()),
            }
        }
        reload
    }

    /// Returns what changed, as sentences for the log.
    pub fn lines(&self) -> Vec<String> {
        let listed = |keys: &[String]| {
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            keys.join(", ")
        };
        let mut lines = Vec::new();
        if !self.applied.is_empty() {
            lines.push(format!("applied: {}", listed(&self.applied)));
        }
        if !self.waiting.is_empty() {
            lines.push(format!("changed, and applied by a restart: {}", listed(&self.waiting)));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::secret::Secret;

    fn config(set: &[(&str, &str)]) -> Config {
        let value = |key: &str| set.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        Config {
            set: set
                .iter()
                .map(|(key, value)| ((*key).to_owned(), Secret::new(*value)))
                .collect(),
            drain: Duration::from_secs(value("drain").map_or(0, |text| text.parse().expect("a number"))),
            verbosity: value("verbose").map_or(0, |text| text.parse().expect("a number")),
            api_key: value("api-key").map(Secret::new),
            allowed_origins: value("allowed-origins").map(str::to_owned).into_iter().collect(),
            port: value("port").map_or(7860, |text| text.parse().expect("a number")),
            ..Config::default()
        }
    }

    #[test]
    fn what_changes_live_is_applied_and_the_rest_waits() {
        let running = config(&[
            ("drain", "1"),
            ("api-key", "a"),
            ("port", "1"),
            ("gone", "x"),
            ("same", "y"),
        ]);
        let next = config(&[
            ("drain", "2"),
            ("verbose", "1"),
            ("api-key", "b"),
            ("allowed-origins", "https://a"),
            ("port", "2"),
            ("same", "y"),
        ]);
        let reload = Reload::new(&running, &next, true);
        assert_eq!(reload.applied, ["allowed-origins", "api-key", "drain", "verbose"]);
        assert_eq!(reload.waiting, ["gone", "port"]);
        let now = &reload.running;
        assert_eq!((now.drain, now.verbosity), (next.drain, 1));
        assert_eq!(
            (&now.api_key, &now.allowed_origins),
            (&next.api_key, &next.allowed_origins)
        );
        assert_eq!(now.port, 1, "the port of the socket");
        assert_eq!(
            reload.lines(),
            [
                "applied: `allowed-origins`, `api-key`, `drain`, `verbose`",
                "changed, and applied by a restart: `gone`, `port`"
            ]
        );
        // What waits is reported until the restart, and what was applied is not.
        let again = Reload::new(&reload.running, &next, true);
        assert_eq!(
            (again.applied.len(), again.waiting),
            (0, vec!["gone".to_owned(), "port".to_owned()])
        );
        assert!(Reload::new(&running, &running, true).lines().is_empty());
    }

    #[test]
    fn a_key_can_be_replaced_but_neither_added_nor_removed() {
        let (none, one) = (config(&[]), config(&[("api-key", "a")]));
        for (running, next) in [(&none, &one), (&one, &none)] {
            let reload = Reload::new(running, next, true);
            assert_eq!(
                (reload.applied.len(), &*reload.waiting),
                (0, &["api-key".to_owned()][..])
            );
            assert_eq!(reload.running.api_key, running.api_key);
        }
        // The file has the same name and another key.
        let of_file = |key: &str| Config {
            api_key: Some(Secret::new(key)),
            ..config(&[("port", "1")])
        };
        let reload = Reload::new(&of_file("a"), &of_file("b"), true);
        assert_eq!(
            (&*reload.applied, reload.waiting.len()),
            (&["api-key-file".to_owned()][..], 0)
        );
    }

    #[test]
    fn what_another_part_reads_once_waits() {
        let mut running = config(&[]);
        running.transport = Some(Transport::Moq);
        let next = config(&[("allowed-origins", "https://a"), ("verbose", "1")]);
        let reload = Reload::new(&running, &next, false);
        assert_eq!(reload.waiting, ["allowed-origins", "verbose"]);
        assert!(reload.running.allowed_origins.is_empty());
    }
}
