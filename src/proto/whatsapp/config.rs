//! The settings of WhatsApp calls.

use crate::secret::Secret;

/// Configuration of WhatsApp calls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "WhatsApp")]
pub struct Messaging {
    /// The access token of a system user.
    pub token: Secret,
    /// The id of the business number, not the number itself.
    pub phone_number_id: String,
    /// The secret of the app, which signs webhooks.
    pub app_secret: Secret,
    /// The token that the provider sends to verify the URL of the webhook.
    pub verification_token: Secret,
    /// Base URL of the Graph API, without a trailing slash.
    pub url: String,
}

impl Messaging {
    /// The default base URL of the API.
    pub const URL: &str = "https://graph.facebook.com/v23.0";

    #[cfg(test)]
    pub(crate) fn for_tests(url: &str) -> Self {
        Messaging {
            token: Secret::new("token-of-the-tests"),
            phone_number_id: "1060000001".into(),
            app_secret: Secret::new("secret-of-the-tests"),
            verification_token: Secret::new("word-of-the-tests"),
            url: url.into(),
        }
    }
}
