//! The option of the WebSockets that callers open.
//!
//! In: its text. Out: whether they require a token.

use crate::features::Feature;
use crate::options::{ACCESS, Expected, Flag, FlagKind, flag, put};

/// Whether WebSockets require a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WsAuth {
    None,
    Token,
}

impl WsAuth {
    fn from_name(name: &str) -> Option<WsAuth> {
        match name {
            "none" => Some(WsAuth::None),
            "token" => Some(WsAuth::Token),
            _ => None,
        }
    }
}

/// The typed option.
#[derive(Debug, Default)]
pub struct SocketOptions {
    pub auth: Option<WsAuth>,
}

impl<T: AsMut<SocketOptions>> Flag<T> {
    /// The option of WebSockets.
    pub const SOCKETS: &'static [Flag<T>] = &[flag(
        "--ws-auth",
        FlagKind::Value("none|token", |args: &mut T, text| {
            put(
                &mut args.as_mut().auth,
                WsAuth::from_name(&text).ok_or_else(|| Expected::one_of(&text, &["none", "token"], &[]))?,
            )
        }),
        ACCESS,
        "`token` requires a one-time token on /ws and /ws-client, which `/start` and the telephony webhook issue. \
         [default: none]",
    )
    .needs(&[Feature::WebSocket, Feature::Telephony])
    .unless("none")];
}
