//! The configuration of the telephony providers.
//!
//! In: validated values by the names of their [`Setting`]s. Out: the same, for the provider that
//! declares the name. Calls work without credentials, but are not hung up, and webhooks are not
//! verified.

use crate::secret::Secret;

/// The configuration of all telephony providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telephony {
    /// Credentials and API addresses of the providers.
    pub settings: Settings,
    /// Whether webhooks are verified if there is a credential for it.
    pub verify_webhooks: bool,
    /// Whether calls of verified providers are accepted without proof.
    pub unverified_calls: bool,
    /// The number from which calls are dialled; `None` if none are.
    pub dial_from: Option<String>,
}

impl Default for Telephony {
    fn default() -> Self {
        Telephony {
            settings: Settings::default(),
            verify_webhooks: true,
            unverified_calls: false,
            dial_from: None,
        }
    }
}

/// Values of settings, by the canonical names of their variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<(&'static str, Secret)>);

impl Settings {
    /// Sets a value, replacing an earlier one.
    pub fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.unset(name);
        self.0.push((name, Secret::new(value)));
    }

    /// Removes a value.
    pub fn unset(&mut self, name: &str) {
        self.0.retain(|(known, _)| *known != name);
    }

    /// Returns a value, if set.
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the id and the token of an account, if both are set.
    pub fn account(&self, id: &str, token: &str) -> Option<(&str, &Secret)> {
        Some((self.get(id)?.expose(), self.get(token)?))
    }

    /// Returns whether all of these are set.
    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.get(name).is_some())
    }

    /// Returns the base URL of an API, without a trailing slash.
    pub fn base(&self, setting: &Setting) -> &str {
        let default = match setting.holds {
            Holds::Base(default) => default,
            Holds::AccountId | Holds::Secret | Holds::PublicKey => "",
        };
        self.get(setting.name).map_or(default, Secret::expose)
    }
}

impl<const N: usize> From<[(&'static str, &str); N]> for Settings {
    fn from(values: [(&'static str, &str); N]) -> Self {
        let mut settings = Settings::default();
        for (name, value) in values {
            settings.set(name, value);
        }
        settings
    }
}

/// An environment variable that configures a provider.
pub struct Setting {
    /// The canonical name of the variable.
    pub name: &'static str,
    pub holds: Holds,
    /// The help text; `{}` stands for the provider's name.
    pub help: &'static str,
}

/// The content of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The id of an account, which is useless without the [`Holds::Secret`].
    AccountId,
    /// A token or key that is sent to the API, or signs webhooks.
    Secret,
    /// The Ed25519 key that signs webhooks: 32 bytes in base64.
    PublicKey,
    /// The base URL of the REST API, with its default.
    Base(&'static str),
}

impl Setting {
    /// Returns the setting for the id of an account whose token hangs up calls and verifies
    /// webhooks.
    pub const fn account_id(name: &'static str) -> Setting {
        Setting {
            name,
            holds: Holds::AccountId,
            help: "Account id of {}. With its token, calls are hung up when their session ends, and webhooks are verified.",
        }
    }

    /// Returns the setting for the token of that account.
    pub const fn account_token(name: &'static str) -> Setting {
        Setting {
            name,
            holds: Holds::Secret,
            help: "Auth token of that account.",
        }
    }

    /// Returns the setting for the base URL of the REST API, with its default.
    pub const fn base(name: &'static str, default: &'static str) -> Setting {
        Setting {
            name,
            holds: Holds::Base(default),
            help: "Base URL of the {} API.",
        }
    }
}
