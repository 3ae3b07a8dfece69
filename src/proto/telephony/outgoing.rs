//! A call that the runner dials, as a provider is asked for it.
//!
//! In: numbers and URLs. Out: the same as values, for the files of the providers.

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
    /// Where it reports that the call has ended.
    pub end_url: &'c str,
}
