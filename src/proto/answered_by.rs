//! Who answered a call that the runner dialled.
//!
//! In: the word of a provider. Out: a value, for bots, programs and clients.

/// Who answered a call that the runner dialled, as far as the provider detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnsweredBy {
    /// A person.
    Human,
    /// An answering machine.
    Machine,
    /// A fax.
    Fax,
    /// The provider cannot tell.
    Unknown,
}

impl AnsweredBy {
    /// Returns the name in messages and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            AnsweredBy::Human => "human",
            AnsweredBy::Machine => "machine",
            AnsweredBy::Fax => "fax",
            AnsweredBy::Unknown => "unknown",
        }
    }

    /// Reads the word of a provider, such as `human` and `machine_start`.
    pub fn of_word(word: &str) -> Self {
        match word {
            "human" => AnsweredBy::Human,
            "fax" => AnsweredBy::Fax,
            _ if word.starts_with("machine") => AnsweredBy::Machine,
            _ => AnsweredBy::Unknown,
        }
    }
}
