//! The configuration of the telephony providers.
//!
//! In: checked values by the names of their [`Setting`]s. Out: the same, for the provider that
//! declares the name. Without credentials calls work, but are not hung up, and webhooks are not
//! verified.

use crate::secret::Secret;

/// What the runner knows of the telephony providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telephony {
    pub settings: Settings,
    /// Whether webhooks are verified where a credential for it is there.
    pub verify_webhooks: bool,
    /// Whether calls need no proof that such a provider makes them.
    pub unverified_calls: bool,
}

impl Default for Telephony {
    fn default() -> Self {
        Telephony {
            settings: Settings::default(),
            verify_webhooks: true,
            unverified_calls: false,
        }
    }
}

/// Values of settings, by the canonical names of their variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<(&'static str, Secret)>);

impl Settings {
    /// Sets a value, in place of an earlier one.
    pub fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.unset(name);
        self.0.push((name, Secret::new(value)));
    }

    /// Takes a value away.
    pub fn unset(&mut self, name: &str) {
        self.0.retain(|(known, _)| *known != name);
    }

    /// Returns a value, if it is set.
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns the id of an account and its token, where both are set.
    pub fn account(&self, id: &str, token: &str) -> Option<(&str, &Secret)> {
        Some((self.get(id)?.expose(), self.get(token)?))
    }

    /// Tells whether all of these are set.
    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.get(name).is_some())
    }

    /// Returns the base of an API, without a slash at its end.
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

/// One variable of the environment that configures a provider.
pub struct Setting {
    /// The canonical name of the variable.
    pub name: &'static str,
    pub holds: Holds,
    /// What the help says of it; `{}` stands for the provider's name.
    pub help: &'static str,
}

/// What a variable holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The id of an account, of no use without the [`Holds::Secret`] beside it.
    AccountId,
    /// A token or key that is sent to the API, or signs webhooks.
    Secret,
    /// The Ed25519 key that signs webhooks: 32 bytes in base64.
    PublicKey,
    /// The base of the REST API, and the one that counts without the variable.
    Base(&'static str),
}

impl Setting {
    /// The id of an account whose token hangs calls up and verifies webhooks.
    pub const fn account_id(name: &'static str) -> Setting {
        Setting {
            name,
            holds: Holds::AccountId,
            help: "Account id of {}. With its token, calls are hung up when their session ends, and webhooks are verified.",
        }
    }

    /// The token of that account.
    pub const fn account_token(name: &'static str) -> Setting {
        Setting {
            name,
            holds: Holds::Secret,
            help: "Auth token of that account.",
        }
    }

    /// The base of the REST API, and the one that counts where none is set.
    pub const fn base(name: &'static str, default: &'static str) -> Setting {
        Setting {
            name,
            holds: Holds::Base(default),
            help: "Base URL of the {} API.",
        }
    }
}
