//! What an event of a service adds to its answer.

/// The contribution of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceProgress {
    /// Nothing: a comment, an empty piece, or an event of an unknown type.
    None,
    /// What the caller does not perceive: reasoning, a piece of a function call, a format.
    Working,
    /// Text or audio.
    Output,
}
