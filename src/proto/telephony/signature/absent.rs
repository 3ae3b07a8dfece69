//! The twin of `telephony::signature` in a build without `telephony`: no webhook comes, so none is wrong.

use std::fmt;

/// Why a webhook is not its provider's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {}

impl fmt::Display for Wrong {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
