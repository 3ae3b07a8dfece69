//! The interface of a telephony provider: a table of facts, and its [`Protocol`].
//!
//! A provider is one file beside this one with one static [`Provider`], and one line in
//! [`PROVIDERS`](super::PROVIDERS). Only that line names it: command line, doctor, webhooks and
//! calls read the tables. On the wire and in options a provider has its [`Provider::wire_name`].

use std::fmt;
use std::hash::{Hash, Hasher};

use serde_json::{Map, Value};

use super::number_webhook::{NumberWebhook, SetUpStep};
use super::outgoing::OutgoingCall;
use super::settings::{Holds, Setting, Settings};
use super::signature::{SignatureError, SignatureStatus, WebhookRequest};
use super::webhook::WebhookReply;
use super::{ChunkLimits, MediaFormat, StreamError, TelephonyCall};
use crate::aliases::{self, Area};
use crate::answered_by::AnsweredBy;
use crate::call_control::TransferTarget;
use crate::features::Feature;
use crate::server::form;
use crate::server::rest::RestRequest;

/// A JSON object of a provider message.
pub type Object = Map<String, Value>;

/// A telephony provider.
#[non_exhaustive]
pub struct Provider {
    /// The provider's own name, in lower case.
    pub name: &'static str,
    /// Its settings, in the order of the help.
    pub settings: &'static [Setting],
    /// Names of the settings that hanging up needs; empty if the provider ends calls by itself.
    pub hangs_up_with: &'static [&'static str],
    /// Names of the settings that verifying a webhook needs; empty if the provider signs nothing.
    pub verifies_with: &'static [&'static str],
    /// Whether it also signs the upgrade of a media socket.
    pub signs_upgrades: bool,
    /// Whether its webhook is answered with markup, which contains the runner's public host.
    pub takes_markup: bool,
    /// Whether the URL in the markup keeps its query, and has to name the bot: the stream has the
    /// number that was dialled only as far as the markup can pass it on.
    pub url_names_bot: bool,
    /// The field of a webhook's form with the id of the call.
    pub call_field: &'static str,
    /// Events that return a mark.
    pub mark_events: &'static [&'static str],
    /// Whether it returns the marks that a clear discards, before later ones.
    pub returns_cleared: bool,
    /// Statuses and codes of responses for a call that is over; 404 means so at every provider.
    pub call_over_codes: &'static [(u16, &'static str)],
    /// Its own messages, for a caller that acts as the provider.
    #[doc(hidden)]
    pub dialect: StreamDialect,
    /// Its messages, requests and signatures.
    #[doc(hidden)]
    pub protocol: &'static dyn Protocol,
}

/// The messages of a provider itself, as far as they differ from those of the others.
pub struct StreamDialect {
    /// The messages that open a stream, with `{stream}` and `{call}` in place of the ids, `{from}`
    /// and `{to}` of the numbers, and `{parameters}` of the object with those of the markup, or
    /// `{pairs}` of the text with them.
    pub opening: &'static [&'static str],
    /// What the ids of a stream and of a call begin with.
    pub stream_prefix: &'static str,
    pub call_prefix: &'static str,
    /// The members with the ids of the stream and of the call, and with the number of a message.
    pub stream_member: &'static str,
    pub call_member: &'static str,
    pub sequence_member: &'static str,
    /// Whether numbers are numbers; others write them as text.
    pub has_numbers: bool,
    /// Whether audio is PCM; else it is mu-law. The rate is 8000 Hz.
    pub is_pcm: bool,
    /// The length of an audio message, in milliseconds.
    pub message_ms: u32,
}

/// The messages, requests and signatures of a provider.
pub trait Protocol: Sync {
    /// Returns the call of a message, if it is a handshake of this provider.
    ///
    /// # Errors
    /// Returns a [`StreamError`] for a handshake of a stream that is not supported.
    fn claim(&self, opening: &Object) -> Result<Option<TelephonyCall>, StreamError>;

    /// Returns the chunk size of audio in a format.
    fn chunk(&self, _format: MediaFormat) -> ChunkLimits {
        ChunkLimits::PLAIN
    }

    /// Returns the message that discards audio that was sent and is not yet played. The id is JSON
    /// already.
    fn clear(&self, stream_id: &str) -> String;

    /// Returns a mark message. Id and name are JSON already.
    fn mark(&self, stream_id: &str, name: &str) -> String;

    /// Logs an error report of the provider about a message of the runner.
    fn report(&self, _report: &Report<'_>) {}

    /// Returns the request that ends a call; `call` is its id as one path segment.
    fn hang_up(&self, _call: &str, _settings: &Settings) -> Option<RestRequest> {
        None
    }

    /// Returns the request that ends a call that was dialled and still rings; `call` is its id in
    /// the response to [`Protocol::dial`], as one path segment.
    fn cancel(&self, call: &str, settings: &Settings) -> Option<RestRequest> {
        self.hang_up(call, settings)
    }

    /// Returns what the provider takes in place of a transfer to this target; `None` if it
    /// transfers the call.
    fn transfer_alternative(&self, _target: &TransferTarget) -> Option<&'static str> {
        Some("end the session")
    }

    /// Returns the request that transfers a call; `call` is its id as one path segment.
    fn transfer(&self, _call: &str, _target: &TransferTarget, _settings: &Settings) -> Option<RestRequest> {
        None
    }

    /// Returns whether the provider sends keys to the caller by its API.
    fn takes_keys(&self) -> bool {
        false
    }

    /// Returns the request that sends keys to the caller; `call` is its id as one path segment.
    fn send_keys(&self, _call: &str, _keys: &str, _settings: &Settings) -> Option<RestRequest> {
        None
    }

    /// Returns whether the provider dials calls by its API.
    fn dials(&self) -> bool {
        false
    }

    /// Returns the request that finds the application of a number, where calls belong to one.
    fn dial_lookup(&self, _from: &str, _settings: &Settings) -> Option<RestRequest> {
        None
    }

    /// Returns the application of a number from the response.
    fn dial_application(&self, _from: &str, _body: &[u8]) -> Option<String> {
        None
    }

    /// Returns the request that dials a call.
    fn dial(&self, _call: &OutgoingCall<'_>, _settings: &Settings) -> Option<RestRequest> {
        None
    }

    /// Returns the id of a call from the response to [`Protocol::dial`].
    fn dialled_id(&self, _body: &Value) -> Option<String> {
        None
    }

    /// Returns who answered, from the form of a report.
    fn answered_by(&self, _form: &[(String, String)]) -> AnsweredBy {
        AnsweredBy::Unknown
    }

    /// Returns the next step to point a number at a webhook; `found` are the responses so far, each
    /// the JSON, or `None` for what does not exist. `None` without such an API or its credentials.
    fn set_up(&self, _target: NumberWebhook<'_>, _found: &[Option<Value>], _settings: &Settings) -> Option<SetUpStep> {
        None
    }

    /// Returns the headers that sign a webhook with this form, sorted by name; `None` if only the
    /// provider can sign, or a credential is missing.
    fn sign(
        &self,
        _settings: &Settings,
        _url: &str,
        _form: &[(String, String)],
        _nonce: &str,
    ) -> Option<Vec<(&'static str, String)>> {
        None
    }

    /// Returns a request without effects that tests the credentials.
    fn probe(&self, _settings: &Settings) -> Option<RestRequest> {
        None
    }

    /// Verifies a webhook, a POST.
    ///
    /// # Errors
    /// Returns a [`SignatureError`] if the provider did not sign it.
    fn verify(
        &self,
        _settings: &Settings,
        _webhook: &WebhookRequest<'_>,
        _now_unix_s: u64,
    ) -> Result<SignatureStatus, SignatureError> {
        Ok(SignatureStatus::NotChecked)
    }

    /// Verifies the upgrade of a media socket at a `wss` URL; `header` looks up lower-case names.
    /// An upgrade without a signature of this provider is not checked.
    ///
    /// # Errors
    /// Returns a [`SignatureError`] for an invalid signature.
    fn verify_upgrade<'r>(
        &self,
        _settings: &Settings,
        _url: &str,
        _header: &dyn Fn(&str) -> Option<&'r str>,
    ) -> Result<SignatureStatus, SignatureError> {
        Ok(SignatureStatus::NotChecked)
    }

    /// Answers a webhook with the form `body` by the URL of the media socket.
    fn reply(&self, socket_url: &str, body: &[u8]) -> WebhookReply;
}

/// The event `error` of a provider.
pub struct Report<'r> {
    pub stream_id: &'r str,
    pub code: Option<&'r str>,
    pub title: Option<&'r str>,
    /// The whole message.
    pub text: &'r str,
}

impl Provider {
    /// Returns the name in `-t`, `/start` and `/status`, and in the log.
    pub fn wire_name(&self) -> &'static str {
        aliases::canonical(Area::Transport, self.name)
    }

    /// Returns the value of `-t` that selects the provider: its alias, or its wire name without
    /// one.
    pub fn vendor(&self) -> &'static str {
        let name = self.wire_name();
        aliases::aliases(Area::Transport, name).first().copied().unwrap_or(name)
    }

    /// Returns the name of the provider for a sentence, such as Twilio.
    pub fn vendor_name(&self) -> String {
        let mut name = self.vendor().to_owned();
        if let Some(initial) = name.get_mut(..1) {
            initial.make_ascii_uppercase();
        }
        name
    }

    /// Returns the first setting of this kind, if the provider has one.
    pub fn setting(&self, is: impl Fn(Holds) -> bool) -> Option<&'static Setting> {
        self.settings.iter().find(|setting| is(setting.holds))
    }

    /// Returns whether the provider signs its webhooks.
    pub fn signs(&self) -> bool {
        !self.verifies_with.is_empty()
    }

    /// Returns whether a credential to verify its webhooks is set.
    pub fn verifies(&self, settings: &Settings) -> bool {
        self.signs() && settings.has(self.verifies_with)
    }

    /// Returns the id of the call of a webhook, which the `start` of its stream repeats; empty if
    /// the form contains none.
    pub fn call_id(&self, body: &[u8]) -> String {
        form::find(&form::parse(body), self.call_field)
            .unwrap_or_default()
            .to_owned()
    }

    /// Returns the numbers of the caller and of the called in the form of a webhook.
    pub fn numbers(&self, form: &[u8]) -> [Option<String>; 2] {
        let pairs = form::parse(form);
        ["From", "To"].map(|name| form::find(&pairs, name).map(str::to_owned))
    }

    /// Returns whether the provider's calls can be hung up.
    pub fn hangs_up(&self, settings: &Settings) -> bool {
        settings.has(self.hangs_up_with)
    }
}

impl PartialEq for Provider {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Provider {}

impl Hash for Provider {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns the protocol of a provider, or a stub in a build without `telephony`, which has the
/// names but not the code.
pub(super) const fn built(protocol: &'static dyn Protocol) -> &'static dyn Protocol {
    if Feature::Telephony.in_this_build() {
        protocol
    } else {
        &NotBuilt
    }
}

/// The stub: it claims no call, so its other methods are never called.
struct NotBuilt;

impl Protocol for NotBuilt {
    fn claim(&self, _opening: &Object) -> Result<Option<TelephonyCall>, StreamError> {
        Ok(None)
    }

    fn clear(&self, _stream_id: &str) -> String {
        String::new()
    }

    fn mark(&self, _stream_id: &str, _name: &str) -> String {
        String::new()
    }

    fn reply(&self, _socket_url: &str, _body: &[u8]) -> WebhookReply {
        WebhookReply {
            content_type: "text/plain",
            body: String::new(),
        }
    }
}
