//! Variables of a module, other than those of its options.
//!
//! The help documents them, programs do not inherit the secrets among them, a build without the
//! module warns of its credentials, and a `.env` file of the working directory cannot send a secret
//! of the process to a URL of its own.

use crate::features::Feature;

/// The variables of a module.
pub struct ModuleVariables {
    /// The feature of the module.
    pub feature: Feature,
    /// Beginnings of the canonical names of its variables.
    pub prefixes: &'static [&'static str],
    /// In the order of the help.
    pub variables: &'static [Variable],
}

impl ModuleVariables {
    /// Returns whether a variable belongs to the module, by its canonical name.
    pub fn contains(&self, name: &str) -> bool {
        self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// A variable.
pub struct Variable {
    /// The canonical name.
    pub name: &'static str,
    pub help: &'static str,
    pub holds: VariableContent,
    /// The variable with the URL to which the content is sent.
    pub sent_to: Option<&'static str>,
}

/// What a variable contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableContent {
    Setting,
    /// A part of a credential that is not secret, such as the id of a key.
    Id,
    Secret,
}

impl Variable {
    /// Names the variable with the URL to which the content is sent.
    pub const fn sent_to(mut self, url: &'static str) -> Self {
        self.sent_to = Some(url);
        self
    }

    /// Returns the row of the variable in the list of a module with this feature.
    pub fn listed(&self, feature: Feature) -> ListedVariable {
        ListedVariable {
            feature,
            name: self.name,
            help: self.help.to_owned(),
            holds: self.holds,
            sent_to: self.sent_to,
        }
    }
}

/// A variable in the list of those of all modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVariable {
    /// The feature of its module.
    pub feature: Feature,
    /// The canonical name.
    pub name: &'static str,
    pub help: String,
    pub holds: VariableContent,
    /// The variable with the URL to which the content is sent.
    pub sent_to: Option<&'static str>,
}

impl ListedVariable {
    /// Returns whether services need the content to admit the runner.
    pub fn is_credential(&self) -> bool {
        self.holds != VariableContent::Setting
    }
}

/// Returns a variable that is no credential.
pub const fn setting(name: &'static str, help: &'static str) -> Variable {
    variable(name, help, VariableContent::Setting)
}

/// Returns a variable with the part of a credential that is not secret.
pub const fn id(name: &'static str, help: &'static str) -> Variable {
    variable(name, help, VariableContent::Id)
}

/// Returns a variable with a secret.
pub const fn secret(name: &'static str, help: &'static str) -> Variable {
    variable(name, help, VariableContent::Secret)
}

const fn variable(name: &'static str, help: &'static str, holds: VariableContent) -> Variable {
    Variable {
        name,
        help,
        holds,
        sent_to: None,
    }
}
