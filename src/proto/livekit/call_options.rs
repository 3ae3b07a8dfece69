//! The options of `edge-runner call` for a room on a LiveKit server.
//!
//! In: the options, the target and the variables. Out: what lets the caller into the room. Rejects
//! the options for other targets, a target without one of them, and a key without its secret. No
//! error contains a credential.

use crate::caller::target::{CallTarget, RoomAccess};
use crate::limits::ROOM_NAME_BYTES_MAX;
use crate::options::env::Variables;
use crate::options::values::{all_names, credential};
use crate::options::{CALLS, Expected, Flag, FlagKind, UsageError, flag, put};
use crate::secret::Secret;

/// What a URL of such a server is, for the help.
pub const ROOM_URL: &str = "wss:// with `-t livekit` is a LiveKit server";
/// The options of an example of a call into a room.
pub const ROOM_EXAMPLE: &str = "-t livekit --wav hello.wav --expect-speech";

/// The typed options.
#[derive(Debug, Default)]
pub struct RoomCallOptions {
    room: Option<String>,
    token: Option<Secret>,
}

impl<T: AsMut<RoomCallOptions>> Flag<T> {
    /// The options of a call into a room.
    pub const ROOM_CALL: &'static [Flag<T>] = &[
        flag(
            "--room",
            FlagKind::Value("NAME", |args: &mut T, text| {
                put(&mut args.as_mut().room, room_name(text)?)
            }),
            CALLS,
            "Name of the room on a LiveKit server at `wss://HOST`, with `-t livekit`. The token for it is made with \
             MEDIAROOM_API_KEY and MEDIAROOM_API_SECRET, of the environment or of .env as for the runner.",
        ),
        flag(
            "--token",
            FlagKind::Value("TOKEN", |args: &mut T, text| {
                put(&mut args.as_mut().token, Secret::new(text))
            }),
            CALLS,
            "An access token of such a server, in place of `--room`.",
        ),
    ];
}

fn room_name(text: String) -> Result<String, Expected> {
    match (1..=ROOM_NAME_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control) {
        true => Ok(text),
        false => Err(format!("a name of 1 to {ROOM_NAME_BYTES_MAX} bytes without control characters").into()),
    }
}

/// Returns what lets the caller into a room that no runner names.
///
/// # Errors
/// [`UsageError`] that names the option or the variable.
pub fn room_access(
    options: &RoomCallOptions,
    target: &CallTarget,
    calls: u64,
    variables: &Variables,
) -> Result<Option<RoomAccess>, UsageError> {
    let combination = |text: &str| Err(UsageError::Combination(text.to_owned()));
    let CallTarget::Room { .. } = target else {
        return match options.room.is_some() || options.token.is_some() {
            true => combination("`--room` and `--token` need a LiveKit server: `wss://HOST` and `-t livekit`"),
            false => Ok(None),
        };
    };
    let room = match (&options.room, &options.token) {
        (None, Some(_)) if calls > 1 => {
            return combination(
                "`--token` takes one call, since its participant is in the room once: use `--room NAME`",
            );
        }
        (None, Some(token)) if token.expose().is_empty() || !token.expose().bytes().all(|b| b.is_ascii_graphic()) => {
            return Err(UsageError::redacted("--token", "ASCII characters without white space"));
        }
        (None, Some(token)) => return Ok(Some(RoomAccess::Token(token.clone()))),
        (Some(room), None) => room.clone(),
        _ => {
            return combination(
                "a LiveKit server needs either `--room NAME`, with the server's key, or `--token TOKEN`",
            );
        }
    };
    let of_server = |name| credential(variables, name);
    match (of_server("MEDIAROOM_API_KEY")?, of_server("MEDIAROOM_API_SECRET")?) {
        (Some(key), Some(secret)) => Ok(Some(RoomAccess::Key {
            key,
            secret: Secret::new(secret),
            room,
        })),
        (key, _) => {
            let missing = if key.is_none() {
                "MEDIAROOM_API_KEY"
            } else {
                "MEDIAROOM_API_SECRET"
            };
            Err(UsageError::Combination(format!(
                "`--room` needs {} in the environment or in .env, or use `--token TOKEN`",
                all_names(missing)
            )))
        }
    }
}
