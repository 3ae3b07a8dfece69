//! Properties of what the setup page of a board takes.
//!
//! In: requests, separated by lines `%%`: of each the first line names the address that sends it
//! (a digit), the seconds since the last one, and `f` for a form, `c` for a confirmation, `t` for
//! the confirmation of the last draft, or `s` for services to check; the rest is the body. A
//! reference model keeps the last draft: whatever is rejected leaves it as it was, only its token
//! and its address confirm it, and its settings are lines that the board can read.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use edge_runner::inside::{Env, parse};
use edge_runner_proto::setup::{BODY_BYTES_MAX, DRAFT_HELD, KEY_BYTES, SetupError, SetupState, TOKEN_BYTES};
use serde_json::Value;

use super::acme::parts;

/// Requests of an input, which each parse a configuration.
const REQUESTS_MAX: usize = 32;
/// A shorter value may occur in a message by chance.
const TELLING_BYTES: usize = 16;

/// What the page knows of a draft.
#[derive(Clone)]
struct Known {
    token: String,
    settings: String,
    source: IpAddr,
}

/// Checks variables as the runner does.
fn check(variables: &[(String, String)]) -> Result<(), String> {
    parse([], &Env::of_variables(variables))
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// The settings are lines of known names; a key is there exactly if the draft shows it.
fn check_settings(settings: &str, key: Option<&str>, name: &str) {
    assert!(settings.len() <= 3 * BODY_BYTES_MAX);
    let mut names = BTreeSet::new();
    for line in settings.split_terminator('\n') {
        assert!(!line.contains(char::is_control), "{line:?}");
        let (name, value) = line.split_once('=').expect("name = value");
        assert!(value.len() <= 5000);
        let name = name.trim_end();
        let is_known = ["hostname", "ssh_key", "ssh_password"].contains(&name)
            || ["RUNNER_", "REALTIME_", "CASCADE_", "OPENAI_API_KEY"]
                .iter()
                .any(|known| name.starts_with(known));
        assert!(is_known, "{name}");
        assert!(names.insert(name), "{name} twice");
    }
    assert!(settings.starts_with(&format!("hostname = {name}\n")));
    assert!(settings.ends_with('\n') && names.contains("RUNNER_BOT") && names.contains("RUNNER_API_KEY"));
    match key {
        Some(key) => assert!(settings.contains(&format!("RUNNER_API_KEY = {key}\n"))),
        None => assert!(settings.contains("RUNNER_API_KEY =\nRUNNER_WS_AUTH = none\n")),
    }
}

/// No message repeats the password or a key of the form.
fn check_message(error: &SetupError, body: &[u8]) {
    let text = error.to_string();
    assert!(!text.is_empty());
    let Ok(form) = serde_json::from_slice::<Value>(body) else {
        return;
    };
    let keys = form["variables"].as_object().into_iter().flatten();
    let keys = keys.filter(|(name, _)| name.ends_with("_KEY")).map(|(_, value)| value);
    for secret in keys.chain([&form["ssh_value"]]).filter_map(Value::as_str) {
        let secret = secret.trim();
        assert!(secret.len() < TELLING_BYTES || !text.contains(secret), "{text}");
    }
}

/// Reports on wrong fields repeat no key that is typed as a key alone.
fn check_services(state: &mut SetupState, body: &[u8], (source, now): (IpAddr, Instant)) {
    let planned = match state.handle_check(body, (source, now)) {
        Ok(planned) => planned,
        Err(error) => return check_message(&error, body),
    };
    let form: Value = serde_json::from_slice(body).expect("it was read");
    let fields = form["variables"].to_string();
    let keys = form["variables"].as_object().into_iter().flatten();
    let keys = keys.filter(|(name, _)| name.ends_with("_KEY"));
    let keys: Vec<&str> = keys.filter_map(|(_, value)| Some(value.as_str()?.trim())).collect();
    for report in planned.iter().filter_map(|check| check.as_ref().err()) {
        for key in &keys {
            let is_secret = key.len() >= TELLING_BYTES && fields.matches(key).count() == 1;
            assert!(!is_secret || !report.text.contains(key), "{report:?}");
        }
    }
    let asked = planned.iter().filter(|check| check.is_ok()).count();
    assert!(asked <= 4);
    state.handle_checked(asked);
}

/// A board takes requests of its neighbours.
pub fn setup(bytes: &[u8]) {
    let mut state = SetupState::default();
    let mut now = Instant::now();
    let mut last: Option<Known> = None;
    for (nth, request) in parts(bytes, b"\n%%\n").into_iter().take(REQUESTS_MAX).enumerate() {
        let end = request.iter().position(|byte| *byte == b'\n').unwrap_or(request.len());
        let head = String::from_utf8_lossy(&request[..end]);
        let mut head = head.split(' ');
        let mut number = || head.next().and_then(|word| word.parse::<u8>().ok()).unwrap_or_default();
        let source = IpAddr::V4(Ipv4Addr::new(192, 168, 1, number() % 4));
        let passed = Duration::from_secs(number().into());
        let kind = head.next().unwrap_or("f");
        let body = request.get(end + 1..).unwrap_or_default();
        let body = &body[..body.len().min(BODY_BYTES_MAX)];
        now += passed;
        match kind {
            "t" | "c" => {
                let of_last = last.as_ref().map_or(String::new(), |known| known.token.clone());
                let own = serde_json::json!({ "token": of_last }).to_string();
                let body = if kind == "t" { own.as_bytes() } else { body };
                let confirmed = state.handle_confirmation(body, source).map(str::to_owned);
                match (&confirmed, &last) {
                    (Ok(settings), Some(known)) => {
                        assert_eq!((settings, source), (&known.settings, known.source));
                        assert!(
                            body.windows(known.token.len())
                                .any(|part| part == known.token.as_bytes())
                        );
                    }
                    (Ok(_), None) => panic!("there is no draft"),
                    (Err(error), Some(known)) => assert!(kind != "t" || known.source != source, "{error}"),
                    (Err(_), None) => {}
                }
            }
            "s" => check_services(&mut state, body, (source, now)),
            _ => {
                let random = [nth as u8 + 1; KEY_BYTES + TOKEN_BYTES];
                let taken = state.handle_form(body, (source, now), random, check).cloned();
                match taken {
                    Ok(draft) => {
                        let confirmation = serde_json::json!({"token": draft.token}).to_string();
                        let settings = state.handle_confirmation(confirmation.as_bytes(), source);
                        let settings = settings.expect("its own draft").to_owned();
                        check_settings(&settings, draft.key.as_deref(), &draft.name);
                        last = Some(Known {
                            token: draft.token,
                            settings,
                            source,
                        });
                    }
                    Err(error) => {
                        check_message(&error, body);
                        if let SetupError::Held(left) = error {
                            assert!(left <= DRAFT_HELD && last.as_ref().is_some_and(|known| known.source != source));
                        }
                    }
                }
            }
        }
        // What was rejected has changed nothing.
        if let Some(known) = &last {
            let confirmation = serde_json::json!({"token": known.token}).to_string();
            let settings = state.handle_confirmation(confirmation.as_bytes(), known.source);
            assert_eq!(settings, Ok(&*known.settings));
        }
    }
    state.close();
    assert_eq!(
        state.handle_form(
            bytes,
            (IpAddr::V4(Ipv4Addr::LOCALHOST), now),
            [0; KEY_BYTES + TOKEN_BYTES],
            check
        ),
        Err(SetupError::Closed)
    );
}
