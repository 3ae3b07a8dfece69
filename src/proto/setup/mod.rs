//! The setup page of a board: who may open it, what its form may say, and the settings that come of
//! it.
//!
//! In: the address of a client and those of the interfaces, heads of requests, the JSON of the
//! form, random bytes. Out: a [`SetupDraft`] and, once the client confirms it, the settings as
//! lines `name = value`, in the format of `edge-runner.txt` on the boot partition of an image.
//! A board takes settings once: after [`SetupState::close`] every request is rejected.
//!
//! The confirmation is a step of its own, so that a client has received the new API key before the
//! board demands it.

pub mod form;
pub mod guard;

use std::fmt;

use data_encoding::HEXLOWER;

use form::{FormError, SetupForm};

/// Bytes of a body.
pub const BODY_BYTES_MAX: usize = 16 * 1024;

/// Random bytes of an API key, of which the board makes hexadecimal digits.
pub const KEY_BYTES: usize = 24;

/// Random bytes of the token that confirms a draft.
pub const TOKEN_BYTES: usize = 16;

/// The state of the setup: open, with a draft, or closed.
#[derive(Debug, Default)]
pub struct SetupState {
    draft: Option<SetupDraft>,
    closed: bool,
}

/// Valid settings that the client has not confirmed yet.
#[derive(Clone, PartialEq, Eq)]
pub struct SetupDraft {
    /// Confirms this draft and no other.
    pub token: String,
    /// The new API key, which is shown once; `None` admits all callers.
    pub key: Option<String>,
    /// The name of the board.
    pub name: String,
    settings: String,
}

impl fmt::Debug for SetupDraft {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetupDraft")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Why the setup does not take a request. The texts contain no value of the form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// The body is not the JSON of the form.
    Json,
    Form(FormError),
    /// The token confirms no draft, or an earlier one.
    OtherDraft,
    Closed,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetupError::Json => "this is not the form of the setup page",
            SetupError::Form(error) => return error.fmt(f),
            SetupError::OtherDraft => "another device has changed the settings; check them and save again",
            SetupError::Closed => {
                "this board is set up already; a line `setup = again` in edge-runner.txt reopens this page"
            }
        })
    }
}

impl std::error::Error for SetupError {}

/// The body that confirms a draft.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Confirmation {
    token: String,
}

impl SetupState {
    /// Takes a form. `validate` checks the variables of the runner as the runner itself would. A
    /// later form replaces an earlier one, whose token no longer confirms anything.
    ///
    /// # Errors
    /// [`SetupError`] for a form that is invalid, or one after the end of the setup.
    pub fn handle_form(
        &mut self,
        json: &[u8],
        random: [u8; KEY_BYTES + TOKEN_BYTES],
        validate: impl FnOnce(&[(String, String)]) -> Result<(), String>,
    ) -> Result<&SetupDraft, SetupError> {
        if self.closed {
            return Err(SetupError::Closed);
        }
        // The position in the error of serde would be of no use, and its text may hold a value.
        let form: SetupForm = serde_json::from_slice(json).map_err(|_| SetupError::Json)?;
        let (key, token) = random.split_at(KEY_BYTES);
        let key = form.wants_key().then(|| HEXLOWER.encode(key));
        let valid = form.validate().map_err(SetupError::Form)?;
        validate(&valid.variables).map_err(|text| SetupError::Form(FormError::Runner(text)))?;
        Ok(self.draft.insert(SetupDraft {
            token: HEXLOWER.encode(token),
            settings: valid.text(key.as_deref()),
            key,
            name: valid.name,
        }))
    }

    /// Takes the confirmation of a draft; returns its settings. The setup stays open until
    /// [`close`](Self::close), because the settings have yet to be written.
    ///
    /// # Errors
    /// [`SetupError`] if the token is not that of the current draft, or the setup is over.
    pub fn handle_confirmation(&mut self, json: &[u8]) -> Result<&str, SetupError> {
        if self.closed {
            return Err(SetupError::Closed);
        }
        let confirmation: Confirmation = serde_json::from_slice(json).map_err(|_| SetupError::Json)?;
        match &self.draft {
            Some(draft) if draft.token == confirmation.token => Ok(&draft.settings),
            _ => Err(SetupError::OtherDraft),
        }
    }

    /// Ends the setup and forgets the draft.
    pub fn close(&mut self) {
        self.draft = None;
        self.closed = true;
    }

    /// Returns whether the setup is over.
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &[u8] = br#"{"name":"kitchen","access":"key","ssh":"none","bot":"parrot","variables":{}}"#;

    fn random(byte: u8) -> [u8; KEY_BYTES + TOKEN_BYTES] {
        [byte; KEY_BYTES + TOKEN_BYTES]
    }

    fn confirmation(token: &str) -> Vec<u8> {
        format!(r#"{{"token":"{token}"}}"#).into_bytes()
    }

    #[test]
    fn settings_are_taken_once_and_by_the_token_of_the_last_draft() {
        let mut state = SetupState::default();
        let first = state
            .handle_form(FORM, random(1), |_| Ok(()))
            .expect("a valid form")
            .clone();
        assert_eq!(first.key.as_deref(), Some(&*"01".repeat(KEY_BYTES)));
        let second = state
            .handle_form(FORM, random(2), |_| Ok(()))
            .expect("a valid form")
            .clone();
        assert_eq!(
            state.handle_confirmation(&confirmation(&first.token)),
            Err(SetupError::OtherDraft)
        );
        assert_eq!(state.handle_confirmation(b"{}"), Err(SetupError::Json));
        let settings = state
            .handle_confirmation(&confirmation(&second.token))
            .expect("the last draft");
        assert_eq!(
            settings,
            format!(
                "hostname = kitchen\nRUNNER_API_KEY = {}\nRUNNER_BOT = parrot\n",
                "02".repeat(24)
            )
        );
        state.close();
        assert!(state.is_closed());
        assert_eq!(
            state.handle_confirmation(&confirmation(&second.token)),
            Err(SetupError::Closed)
        );
        let late = state.handle_form(FORM, random(3), |_| Ok(()));
        assert_eq!(late.map(|draft| draft.name.clone()), Err(SetupError::Closed));
    }

    /// The runner's own check of the variables decides; its text reaches the client.
    #[test]
    fn the_check_of_the_runner_rejects_a_form() {
        let mut state = SetupState::default();
        let refused = state.handle_form(FORM, random(1), |variables| {
            assert_eq!(variables, [("RUNNER_BOT".to_owned(), "parrot".to_owned())]);
            Err("no such bot".to_owned())
        });
        assert_eq!(
            refused.map_err(|error| error.to_string()).err().as_deref(),
            Some("no such bot")
        );
        assert_eq!(
            state.handle_confirmation(&confirmation("")),
            Err(SetupError::OtherDraft)
        );
    }

    #[test]
    fn no_text_for_the_log_has_a_secret() {
        let mut state = SetupState::default();
        let draft = state.handle_form(FORM, random(0xab), |_| Ok(())).expect("a valid form");
        assert!(!format!("{draft:?}").contains("abab"));
        assert!(!format!("{state:?}").contains("abab"));
    }
}
