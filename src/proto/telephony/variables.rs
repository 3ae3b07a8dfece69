//! The environment variables of the telephony providers, in the list of those of all modules.
//!
//! In: the settings of the providers. Out: a row for each, with its help.

use super::Provider;
use super::settings::{Holds, Setting};
use crate::features::Feature;
use crate::options::variables::{ListedVariable, VariableContent};

/// Returns the variables of these providers: credentials first, then base URLs. If two providers
/// share a help text, the second gets its first sentence and a reference to the first.
pub fn variables(providers: &[&Provider]) -> Vec<ListedVariable> {
    let all = || {
        let settings = providers
            .iter()
            .map(|provider| provider.settings.iter().map(|setting| (*provider, setting)));
        settings.flatten()
    };
    let is_base = |(_, setting): &(&Provider, &Setting)| matches!(setting.holds, Holds::Base(_));
    let sorted = all().filter(|entry| !is_base(entry)).chain(all().filter(is_base));
    let mut seen: Vec<(&str, &Provider)> = Vec::new();
    let mut listed = Vec::new();
    for (provider, setting) in sorted {
        let name = provider.vendor_name();
        let earlier = seen.iter().find(|(help, _)| *help == setting.help);
        let help = match (setting.holds, earlier, setting.help.split_once(". ")) {
            (Holds::Base(base), ..) => format!("{} [default: {base}]", setting.help),
            (_, Some((_, first)), Some((sentence, _))) => format!("{sentence}, as with {}.", first.vendor_name()),
            _ => setting.help.to_owned(),
        };
        seen.push((setting.help, provider));
        let base = provider.setting(|holds| matches!(holds, Holds::Base(_)));
        listed.push(ListedVariable {
            feature: Feature::Telephony,
            name: setting.name,
            help: help.replace("{}", &name),
            holds: content(setting.holds),
            sent_to: base.filter(|_| setting.holds == Holds::Secret).map(|base| base.name),
        });
    }
    listed
}

/// Returns what the variable of a setting contains. The id of an account alone admits to nothing.
fn content(holds: Holds) -> VariableContent {
    match holds {
        Holds::Secret => VariableContent::Secret,
        Holds::PublicKey => VariableContent::Id,
        Holds::AccountId | Holds::Base(_) => VariableContent::Setting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telephony::PROVIDERS;
    use crate::telephony::invented::WITH_EXAMPLE;

    /// The table of a provider is all that the command line needs.
    #[test]
    fn the_table_of_a_provider_becomes_rows() {
        let listed = variables(&WITH_EXAMPLE);
        let of = |name| {
            listed
                .iter()
                .find(|variable| variable.name == name)
                .expect("the variable is listed")
        };
        let key = of("QUINTEL_KEY");
        assert_eq!(key.help, "Key of Quintel, to hang calls up and verify webhooks.");
        assert_eq!(
            (key.holds, key.sent_to),
            (VariableContent::Secret, Some("QUINTEL_API_URL"))
        );
        let base = of("QUINTEL_API_URL");
        assert_eq!(
            base.help,
            "Base URL of the Quintel API. [default: https://api.quintel.example]"
        );
        assert_eq!((base.is_credential(), base.sent_to), (false, None));
        assert_eq!(listed.len(), variables(&PROVIDERS).len() + 2);
        let bases = listed.iter().skip_while(|variable| !variable.help.contains("Base URL"));
        assert!(bases.clone().count() > 1);
        assert!(bases.into_iter().all(|variable| variable.help.contains("[default: ")));
    }

    /// The row of a secret names one URL, so that a `.env` file cannot send it to another one.
    #[test]
    fn a_provider_has_one_base_url() {
        for provider in WITH_EXAMPLE {
            let is_base = |setting: &&Setting| matches!(setting.holds, Holds::Base(_));
            let bases = provider.settings.iter().filter(is_base).count();
            assert!(bases <= 1, "{} has {bases}", provider.vendor_name());
        }
    }
}
