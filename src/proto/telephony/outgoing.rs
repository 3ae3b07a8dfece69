//! A call that the runner dials, as a provider is asked for it, and who answered it.
//!
//! In: numbers and URLs, or the word of a provider. Out: the same as values, for the files of the
//! providers.

/// A call as its provider is asked for it.
pub struct OutgoingCall<'c> {
    pub to: &'c str,
    pub from: &'c str,
    /// The application of the account that the call belongs to, where there are any.
    pub application: Option<&'c str>,
    /// Where the provider fetches the markup of the call.
    pub answer_url: &'c str,
    /// Where it reports who answered; `None` if it need not detect that.
    pub report_url: Option<&'c str>,
}

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
