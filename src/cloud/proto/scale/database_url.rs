//! The URL of the database: what has to be encrypted, and what may be shown.
//!
//! In: `postgres://USER:PASSWORD@HOST:PORT/NAME?OPTIONS`. Out: a [`DatabaseUrl`]. TLS always
//! verifies the certificate, so `require`, `verify-ca` and `verify-full` are one. Without
//! `sslmode`, TLS is required for hosts other than this machine. `prefer` and `allow`, which fall
//! back to plain text without notice, are for this machine only. Source: the documentation of
//! libpq, "Connection URIs".

use std::path::PathBuf;

use edge_runner_proto::config::Secret;
use edge_runner_proto::options::hosts::{is_local_name, split_port};

/// Where the records are.
#[derive(Clone, Debug)]
pub struct DatabaseUrl {
    /// The URL without `sslmode`.
    pub url: Secret,
    pub tls: bool,
    /// Whether all hosts are this machine.
    pub is_local: bool,
    /// Whether the URL contains a password.
    pub has_password: bool,
    /// The password of a file, and the file, which may change.
    pub password: Option<(Secret, PathBuf)>,
}

/// What a valid URL looks like. The URL itself is not shown, since it may contain a password.
pub const WANTS: &str = "postgres://USER@HOST/NAME, with sslmode=require or verify-full beyond this machine, or disable where \
                         another layer encrypts; prefer and allow are for this machine only";

impl DatabaseUrl {
    /// Parses a URL. Returns `None` for another scheme or an `sslmode` that is not taken.
    pub fn parse(text: &str) -> Option<DatabaseUrl> {
        let rest = ["postgres://", "postgresql://"]
            .into_iter()
            .find_map(|scheme| text.strip_prefix(scheme))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = place.split('/').next().unwrap_or_default();
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let pairs: Vec<(&str, &str)> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        let named = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let named_hosts = ["host", "hostaddr"].into_iter().filter_map(named);
        let mut all = hosts.split(',').chain(named_hosts.flat_map(|list| list.split(',')));
        let is_local = all.all(is_this_machine);
        let tls = match named("sslmode") {
            None => !is_local,
            Some("require" | "verify-ca" | "verify-full") => true,
            Some("disable") => false,
            Some("prefer" | "allow") if is_local => false,
            Some(_) => return None,
        };
        let kept: Vec<String> = pairs
            .iter()
            .filter(|(name, _)| *name != "sslmode")
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let query = if kept.is_empty() {
            String::new()
        } else {
            format!("?{}", kept.join("&"))
        };
        Some(DatabaseUrl {
            url: Secret::new(format!("postgres://{place}{query}")),
            tls,
            is_local,
            has_password: user.contains(':') || named("password").is_some(),
            password: None,
        })
    }
}

/// Tells whether a host is this machine: a socket's folder, a loopback address, or none at all.
fn is_this_machine(host: &str) -> bool {
    let name = split_port(host).map_or(host, |(name, _)| name).to_ascii_lowercase();
    name.is_empty() || name.starts_with('/') || name.starts_with("%2f") || is_local_name(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<(bool, bool, bool)> {
        DatabaseUrl::parse(text).map(|url| (url.tls, url.is_local, url.has_password))
    }

    #[test]
    fn tls_is_required_beyond_this_machine() {
        for (text, found) in [
            ("postgres://db.example.net/cloud", Some((true, false, false))),
            ("postgresql://u:p@db.example.net:5433/cloud", Some((true, false, true))),
            (
                "postgres://db.example.net/cloud?sslmode=verify-full",
                Some((true, false, false)),
            ),
            (
                "postgres://db.example.net/cloud?sslmode=disable",
                Some((false, false, false)),
            ),
            ("postgres://db.example.net/cloud?sslmode=prefer", None),
            ("postgres://db.example.net/cloud?sslmode=allow", None),
            ("postgres://db.example.net/cloud?sslmode=other", None),
            ("postgres://localhost/cloud", Some((false, true, false))),
            (
                "postgres://u@127.0.0.1:5432/cloud?sslmode=prefer",
                Some((false, true, false)),
            ),
            ("postgres://[::1]:5432/cloud?sslmode=require", Some((true, true, false))),
            ("postgres:///cloud?host=/run/postgresql", Some((false, true, false))),
            ("postgres://%2Frun%2Fpostgresql/cloud", Some((false, true, false))),
            ("postgres:///cloud?host=db.example.net&sslmode=prefer", None),
            ("postgres:///cloud?host=::1", Some((false, true, false))),
            ("postgres://localhost,db.example.net/cloud", Some((true, false, false))),
            (
                "postgres://localhost/cloud?hostaddr=192.0.2.7",
                Some((true, false, false)),
            ),
            ("postgres:///cloud?password=p", Some((false, true, true))),
            ("mysql://localhost/cloud", None),
            ("", None),
        ] {
            assert_eq!(of(text), found, "{text}");
        }
    }

    #[test]
    fn the_client_gets_the_url_without_its_mode() {
        let url = DatabaseUrl::parse("postgresql://u:p@h/n?a=b&sslmode=require&c=d").expect("a URL");
        assert_eq!(url.url.expose(), "postgres://u:p@h/n?a=b&c=d");
        assert!(!format!("{url:?}").contains("u:p"));
        let bare = DatabaseUrl::parse("postgres://localhost/n?sslmode=disable").expect("a URL");
        assert_eq!(bare.url.expose(), "postgres://localhost/n");
    }
}
