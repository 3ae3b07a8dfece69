//! Replies to a provider's `POST /`: markup that opens a media socket to this runner.
//!
//! In: the socket's whole URL, token included, and the provider's form. Out: a [`WebhookReply`],
//! whose content is in the provider's file. A form that cannot be read counts as empty. Source:
//! `docs/spec/telephony.md` 8.

use crate::bots::QUERY;
use crate::server::form;

/// The response to a webhook, with status 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookReply {
    pub content_type: &'static str,
    pub body: String,
}

/// Returns the public URL of the media socket. The token is in the path, since a provider may drop
/// a query, which has the name of the bot.
pub fn socket_url(host: &str, token: Option<&str>, bot: Option<&str>) -> String {
    let token = token.map_or_else(String::new, |token| format!("/{token}"));
    let query = bot.map_or_else(String::new, |bot| format!("?{QUERY}={bot}"));
    format!("wss://{host}/ws{token}{query}")
}

/// Returns whether the form of a request says that its call has ended, so that markup is of no use.
pub fn reports_end(form: &[u8]) -> bool {
    let form = form::parse(form);
    let status = form::find(&form, "CallStatus").unwrap_or_default();
    matches!(
        status,
        "completed" | "busy" | "no-answer" | "failed" | "canceled" | "cancel" | "timeout"
    )
}

/// Returns an XML response with this content, which ends with a line break.
pub fn markup(content: &str) -> WebhookReply {
    WebhookReply {
        content_type: "application/xml",
        body: format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response>\n{content}</Response>"),
    }
}

#[cfg(test)]
mod tests;
