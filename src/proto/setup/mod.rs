//! The setup page of a board: who may open it, what its form may say, and the settings that come of
//! it.
//!
//! In: the address of a client and those of the interfaces, heads of requests, the JSON of the
//! form, random bytes. Out: the services of the form to check, a [`SetupDraft`] and, once
//! the client confirms it, the settings as lines `name = value`, in the format of
//! `edge-runner.txt` on the boot partition of an image.
//! A board takes settings once: after [`SetupState::close`] every request is rejected. Later
//! changes of the same [`fields`] are in [`change`].
//!
//! The confirmation is a step of its own, so that a client has received the new API key before the
//! board demands it.

pub mod asked;
pub mod change;
pub mod checks;
pub mod fields;
pub mod form;
pub mod guard;

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;

use asked::AskedServices;
use form::{FormError, SetupForm};

/// Bytes of a body.
pub const BODY_BYTES_MAX: usize = 16 * 1024;

/// Random bytes of an API key, of which the board makes hexadecimal digits.
pub const KEY_BYTES: usize = 24;

/// Random bytes of the token that confirms a draft.
pub const TOKEN_BYTES: usize = 16;

/// Time for which a draft is safe from other addresses: enough to write the key down. A neighbour
/// cannot void the owner's draft again and again, nor keep the owner out for longer.
pub const DRAFT_HELD: Duration = Duration::from_secs(60);

/// The state of the setup: open, with a draft, or closed.
#[derive(Debug, Default)]
pub struct SetupState {
    draft: Option<SetupDraft>,
    closed: bool,
    asked: AskedServices,
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
    /// The address that sent the form, which alone can confirm it.
    source: IpAddr,
    /// When this address sent its first form since another one had a draft.
    since: Instant,
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
    /// The token confirms no draft, an earlier one, or that of another address.
    OtherDraft,
    /// Another address has a draft that is safe from others for this time.
    Held(Duration),
    /// The board asks other services now, or has asked many; try again after this time.
    Busy(Duration),
    Closed,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetupError::Json => "this is not the form of the setup page",
            SetupError::Form(error) => return error.fmt(f),
            SetupError::OtherDraft => "another device has changed the settings; check them and save again",
            SetupError::Held(left) => {
                let left_s = left.as_secs() + 1;
                return write!(
                    f,
                    "another device is setting up this board at this moment; if it is not yours, save again in {left_s} s"
                );
            }
            SetupError::Busy(left) => {
                let left_s = left.as_secs() + 1;
                return write!(f, "the board has asked many services just now; try again in {left_s} s");
            }
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
    /// Takes a form from an address. `validate` checks the variables of the runner as the runner
    /// itself would. A later form replaces an earlier one, whose token no longer confirms anything;
    /// that of another address does so after [`DRAFT_HELD`] only.
    ///
    /// # Errors
    /// [`SetupError`] for a form that is invalid, one while another address has its draft, or one
    /// after the end of the setup.
    pub fn handle_form(
        &mut self,
        json: &[u8],
        (source, now): (IpAddr, Instant),
        random: [u8; KEY_BYTES + TOKEN_BYTES],
        validate: impl FnOnce(&[(String, String)]) -> Result<(), String>,
    ) -> Result<&SetupDraft, SetupError> {
        if self.closed {
            return Err(SetupError::Closed);
        }
        let since = self.since(source, now)?;
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
            source,
            since,
        }))
    }

    /// Returns since when an address has the draft, which is from now on if it has none yet.
    fn since(&self, source: IpAddr, now: Instant) -> Result<Instant, SetupError> {
        match &self.draft {
            Some(draft) if draft.source == source => Ok(draft.since),
            Some(draft) if now < draft.since + DRAFT_HELD => Err(SetupError::Held(draft.since + DRAFT_HELD - now)),
            _ => Ok(now),
        }
    }

    /// So many services have answered, or are no longer asked.
    pub fn handle_checked(&mut self, count: usize) {
        self.asked.end(count);
    }

    /// Admits a test of the sound card from an address.
    ///
    /// # Errors
    /// [`SetupError`] while another address has its draft, or after the end of the setup.
    pub fn handle_sound_test(&self, (source, now): (IpAddr, Instant)) -> Result<(), SetupError> {
        match self.closed {
            true => Err(SetupError::Closed),
            false => self.since(source, now).map(|_| ()),
        }
    }

    /// Takes the confirmation of a draft from an address; returns its settings. The setup stays
    /// open until [`close`](Self::close), because the settings have yet to be written.
    ///
    /// # Errors
    /// [`SetupError`] if the token is not that of the current draft, or the setup is over.
    pub fn handle_confirmation(&mut self, json: &[u8], source: IpAddr) -> Result<&str, SetupError> {
        if self.closed {
            return Err(SetupError::Closed);
        }
        let confirmation: Confirmation = serde_json::from_slice(json).map_err(|_| SetupError::Json)?;
        match &self.draft {
            Some(draft) if draft.token == confirmation.token && draft.source == source => Ok(&draft.settings),
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
    use std::net::Ipv4Addr;

    use super::*;

    pub(super) const FORM: &[u8] = br#"{"name":"kitchen","access":"key","ssh":"none","bot":"parrot","variables":{}}"#;

    pub(super) const OWNER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 1, 2));
    pub(super) const NEIGHBOUR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 1, 3));

    pub(super) fn random(byte: u8) -> [u8; KEY_BYTES + TOKEN_BYTES] {
        [byte; KEY_BYTES + TOKEN_BYTES]
    }

    fn confirmation(token: &str) -> Vec<u8> {
        format!(r#"{{"token":"{token}"}}"#).into_bytes()
    }

    #[test]
    fn settings_are_taken_once_and_by_the_token_of_the_last_draft() {
        let mut state = SetupState::default();
        let first = state
            .handle_form(FORM, (OWNER, Instant::now()), random(1), |_| Ok(()))
            .expect("a valid form")
            .clone();
        assert_eq!(first.key.as_deref(), Some(&*"01".repeat(KEY_BYTES)));
        let second = state
            .handle_form(FORM, (OWNER, Instant::now()), random(2), |_| Ok(()))
            .expect("a valid form")
            .clone();
        assert_eq!(
            state.handle_confirmation(&confirmation(&first.token), OWNER),
            Err(SetupError::OtherDraft)
        );
        assert_eq!(state.handle_confirmation(b"{}", OWNER), Err(SetupError::Json));
        let settings = state
            .handle_confirmation(&confirmation(&second.token), OWNER)
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
            state.handle_confirmation(&confirmation(&second.token), OWNER),
            Err(SetupError::Closed)
        );
        let late = state.handle_form(FORM, (OWNER, Instant::now()), random(3), |_| Ok(()));
        assert_eq!(late.map(|draft| draft.name.clone()), Err(SetupError::Closed));
    }

    /// For a minute another address can neither replace a draft nor confirm it; after that, it can
    /// replace it, however often the first address has sent its form again.
    #[test]
    fn a_draft_is_safe_from_other_addresses_for_a_minute() {
        let began = Instant::now();
        let mut state = SetupState::default();
        let mut send = |source, after_s: u64, byte| {
            let now = began + Duration::from_secs(after_s);
            let taken = state.handle_form(FORM, (source, now), random(byte), |_| Ok(()));
            taken.map(|draft| draft.token.clone())
        };
        let first = send(OWNER, 0, 1).expect("a valid form");
        assert_eq!(send(NEIGHBOUR, 20, 2), Err(SetupError::Held(Duration::from_secs(40))));
        let second = send(OWNER, 50, 3).expect("the draft is its own");
        let refused = send(NEIGHBOUR, 59, 4).expect_err("it is still held").to_string();
        assert!(
            refused.contains("another device") && refused.contains("2 s"),
            "{refused}"
        );
        assert_ne!(first, second);
        let foreign = send(NEIGHBOUR, 60, 5).expect("the minute is over");
        assert_eq!(send(OWNER, 61, 6), Err(SetupError::Held(Duration::from_secs(59))));
        let last = send(OWNER, 120, 7).expect("the minute is over");
        for (token, source) in [(&second, OWNER), (&foreign, NEIGHBOUR), (&last, NEIGHBOUR)] {
            assert_eq!(
                state.handle_confirmation(&confirmation(token), source),
                Err(SetupError::OtherDraft)
            );
        }
        assert!(state.handle_confirmation(&confirmation(&last), OWNER).is_ok());
    }

    /// The board makes no sound for a neighbour while the owner sets it up.
    #[test]
    fn the_sound_card_is_tested_for_whom_the_board_is_open() {
        let now = Instant::now();
        let mut state = SetupState::default();
        assert_eq!(state.handle_sound_test((NEIGHBOUR, now)), Ok(()));
        assert!(state.handle_form(FORM, (OWNER, now), random(1), |_| Ok(())).is_ok());
        assert_eq!(state.handle_sound_test((OWNER, now)), Ok(()));
        assert_eq!(
            state.handle_sound_test((NEIGHBOUR, now)),
            Err(SetupError::Held(DRAFT_HELD))
        );
        assert_eq!(state.handle_sound_test((NEIGHBOUR, now + DRAFT_HELD)), Ok(()));
        state.close();
        assert_eq!(state.handle_sound_test((OWNER, now)), Err(SetupError::Closed));
    }

    /// The runner's own check of the variables decides; its text reaches the client.
    #[test]
    fn the_check_of_the_runner_rejects_a_form() {
        let mut state = SetupState::default();
        let refused = state.handle_form(FORM, (OWNER, Instant::now()), random(1), |variables| {
            assert_eq!(variables, [("RUNNER_BOT".to_owned(), "parrot".to_owned())]);
            Err("no such bot".to_owned())
        });
        assert_eq!(
            refused.map_err(|error| error.to_string()).err().as_deref(),
            Some("no such bot")
        );
        assert_eq!(
            state.handle_confirmation(&confirmation(""), OWNER),
            Err(SetupError::OtherDraft)
        );
    }

    #[test]
    fn no_text_for_the_log_has_a_secret() {
        let mut state = SetupState::default();
        let draft = state
            .handle_form(FORM, (OWNER, Instant::now()), random(0xab), |_| Ok(()))
            .expect("a valid form");
        assert!(!format!("{draft:?}").contains("abab"));
        assert!(!format!("{state:?}").contains("abab"));
    }
}
