//! API keys: their text, the hashes that are kept, and whose a key is.

/// Which surface a key opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Private,
    Public,
}
