//! The interface of a telephony provider: a table of facts, and its [`Protocol`].
//!
//! A provider is one file beside this one with one static [`Provider`], and one line in
//! [`PROVIDERS`](super::PROVIDERS). Only that line names it: command line, doctor, webhooks and
//! calls read the tables. On the wire and in options a provider has its [`Provider::wire_name`].

use std::fmt;
use std::hash::{Hash, Hasher};

use serde_json::{Map, Value};

use super::settings::{Holds, Setting, Settings};
use super::signature::{SignatureError, SignatureStatus, WebhookRequest};
use super::webhook::WebhookReply;
use super::{ChunkLimits, MediaFormat, StreamError, TelephonyCall};
use crate::aliases::{self, Area};
use crate::features::Feature;
use crate::server::form;
use crate::server::rest::RestRequest;

/// A JSON object of a provider's message.
pub type Object = Map<String, Value>;

/// A telephony provider.
pub struct Provider {
    /// The provider's own name, in lower case.
    pub name: &'static str,
    /// What is configured for it, in the order in which the help lists it.
    pub settings: &'static [Setting],
    /// Names of the settings that ending a call takes; none where the provider ends it by itself.
    pub hangs_up_with: &'static [&'static str],
    /// Names of the settings that verifying a webhook takes; none where the provider signs nothing.
    pub verifies_with: &'static [&'static str],
    /// Whether the upgrade of a media socket is signed as well.
    pub signs_upgrades: bool,
    /// Whether its webhook is answered with markup, which names the runner's public host.
    pub takes_markup: bool,
    /// The field of a webhook's form that holds the id of the call.
    pub call_field: &'static str,
    /// Events that bring a mark back.
    pub mark_events: &'static [&'static str],
    /// Whether it gives back the marks that a clear overtakes, before any later one.
    pub returns_cleared: bool,
    /// Status and code of answers which say that a call is over; 404 says so at every provider.
    pub over: &'static [(u16, &'static str)],
    pub protocol: &'static dyn Protocol,
}

/// What a provider says and is told.
pub trait Protocol: Sync {
    /// Takes a message if it is the handshake of a call.
    ///
    /// # Errors
    /// [`StreamError`] when it is one, of a stream that cannot be served.
    fn claim(&self, opening: &Object) -> Result<Option<TelephonyCall>, StreamError>;

    /// Returns how audio that is sent in a format is cut into messages.
    fn chunk(&self, _format: MediaFormat) -> ChunkLimits {
        ChunkLimits::PLAIN
    }

    /// Returns the message that drops what was sent and is not played yet. The id is JSON already.
    fn clear(&self, stream_id: &str) -> String;

    /// Returns the message that comes back once what was sent before it is played. Id and name are
    /// JSON already.
    fn mark(&self, stream_id: &str, name: &str) -> String;

    /// Logs what the provider reports to be wrong with a message it was sent.
    fn report(&self, _report: &Report<'_>) {}

    /// Returns the request that ends a call; `call` is its id as one segment of a path.
    fn hang_up(&self, _call: &str, _settings: &Settings) -> Option<RestRequest> {
        None
    }

    /// Returns a request that changes nothing, by which the provider judges the credentials.
    fn probe(&self, _settings: &Settings) -> Option<RestRequest> {
        None
    }

    /// Verifies a webhook, a POST.
    ///
    /// # Errors
    /// [`SignatureError`] when it is not the provider's.
    fn verify(
        &self,
        _settings: &Settings,
        _webhook: &WebhookRequest<'_>,
        _now_unix_s: u64,
    ) -> Result<SignatureStatus, SignatureError> {
        Ok(SignatureStatus::NotChecked)
    }

    /// Verifies the upgrade of a media socket at a `wss` URL, whose headers are looked up by their
    /// names in lower case. An upgrade without this provider's signature is not checked.
    ///
    /// # Errors
    /// [`SignatureError`] when the signature is another's.
    fn verify_upgrade<'r>(
        &self,
        _settings: &Settings,
        _url: &str,
        _header: &dyn Fn(&str) -> Option<&'r str>,
    ) -> Result<SignatureStatus, SignatureError> {
        Ok(SignatureStatus::NotChecked)
    }

    /// Answers a webhook, whose form is `body`, with the URL of the media socket.
    fn reply(&self, socket_url: &str, body: &[u8]) -> WebhookReply;
}

/// What a provider reports with its event `error`.
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

    /// Returns the setting that holds this, if the provider has one.
    pub fn setting(&self, is: impl Fn(Holds) -> bool) -> Option<&'static Setting> {
        self.settings.iter().find(|setting| is(setting.holds))
    }

    /// Tells whether the provider signs its webhooks.
    pub fn signs(&self) -> bool {
        !self.verifies_with.is_empty()
    }

    /// Tells whether there is a credential by which its webhooks can be verified.
    pub fn verifies(&self, settings: &Settings) -> bool {
        self.signs() && settings.has(self.verifies_with)
    }

    /// Returns the id of the call that a webhook is about, which the `start` of its stream names
    /// again. It is empty when the form names none.
    pub fn call_id(&self, body: &[u8]) -> String {
        form::find(&form::parse(body), self.call_field)
            .unwrap_or_default()
            .to_owned()
    }

    /// Tells whether its calls end with their sessions.
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

/// Returns the protocol of a provider, or none in a build without `telephony`, which keeps the
/// names and leaves the code out.
pub(super) const fn built(protocol: &'static dyn Protocol) -> &'static dyn Protocol {
    if Feature::Telephony.in_this_build() {
        protocol
    } else {
        &NotBuilt
    }
}

/// Claims no call, and so is never told anything.
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
