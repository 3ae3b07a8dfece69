//! Reads the variables of WhatsApp calls, which `--messaging` requires.
//!
//! In: the option, `-t` and the variables. Out: a [`Messaging`], or `None` without the option; the
//! variables are then not read. Rejects a transport other than WebRTC, missing variables (one error
//! names them all), and an invalid phone number id. No error contains a secret.

use super::config::Messaging;
use crate::features::Feature;
use crate::options::env::Variables;
use crate::options::values::{all_names, base, credential, wrong};
use crate::options::variables::{ModuleVariables, secret, setting};
use crate::options::{Flag, FlagKind, ROOMS_AND_CALLS, UsageError, flag};
use crate::secret::Secret;
use crate::transport::Transport;

/// The typed options.
#[derive(Debug, Default)]
pub struct WhatsAppOptions {
    pub messaging: bool,
}

const fn whatsapp<T>(long: &'static str, kind: FlagKind<T>, help: &'static str) -> Flag<T> {
    flag(long, kind, ROOMS_AND_CALLS, help).needs(&[Feature::Messaging])
}

impl<T: AsMut<WhatsAppOptions>> Flag<T> {
    /// The options of WhatsApp calls.
    pub const WHATSAPP: &'static [Flag<T>] = &[whatsapp(
        "--messaging",
        FlagKind::Switch(|args: &mut T| args.as_mut().messaging = true),
        "Answer WhatsApp calls: serve the webhook at /messaging. Needs MESSAGING_TOKEN, \
             MESSAGING_PHONE_NUMBER_ID, MESSAGING_APP_SECRET and MESSAGING_WEBHOOK_VERIFICATION_TOKEN.",
    )];
}

/// The variables of WhatsApp calls.
pub static VARIABLES: ModuleVariables = ModuleVariables {
    feature: Feature::Messaging,
    prefixes: &["MESSAGING_"],
    variables: &[
        secret(
            "MESSAGING_TOKEN",
            "Access token of a WhatsApp system user, to answer calls.",
        )
        .sent_to("MESSAGING_API_URL"),
        setting(
            "MESSAGING_PHONE_NUMBER_ID",
            "Id of the WhatsApp business number. Calls to other numbers are ignored.",
        ),
        secret(
            "MESSAGING_APP_SECRET",
            "Secret of the WhatsApp app, which signs the webhooks.",
        ),
        secret(
            "MESSAGING_WEBHOOK_VERIFICATION_TOKEN",
            "A word of your choice; enter the same word in the WhatsApp dashboard.",
        ),
        setting(
            "MESSAGING_API_URL",
            "Base URL of the WhatsApp API. [default: https://graph.facebook.com/v23.0]",
        ),
    ],
};

/// Reads the settings of WhatsApp calls.
///
/// # Errors
/// [`UsageError`] that names the option or the variables.
pub fn messaging(
    options: &WhatsAppOptions,
    transport: Option<Transport>,
    variables: &Variables,
    warnings: &mut Vec<String>,
) -> Result<Option<Messaging>, UsageError> {
    if !options.messaging {
        return Ok(None);
    }
    if let Some(other) = transport.filter(|transport| *transport != Transport::WebRtc) {
        return Err(UsageError::Combination(format!(
            "`--messaging` cannot be used with `-t {}`: WhatsApp calls are WebRTC sessions; use `-t webrtc` or omit \
             `-t`",
            other.name()
        )));
    }
    let mut missing = Vec::new();
    let mut needed = |name: &'static str| -> Result<String, UsageError> {
        let value = credential(variables, name)?;
        if value.is_none() {
            missing.push(all_names(name));
        }
        Ok(value.unwrap_or_default())
    };
    let config = Messaging {
        token: Secret::new(needed("MESSAGING_TOKEN")?),
        phone_number_id: needed("MESSAGING_PHONE_NUMBER_ID")?,
        app_secret: Secret::new(needed("MESSAGING_APP_SECRET")?),
        verification_token: Secret::new(needed("MESSAGING_WEBHOOK_VERIFICATION_TOKEN")?),
        url: base(variables, "MESSAGING_API_URL", warnings)?.unwrap_or_else(|| Messaging::URL.to_owned()),
    };
    if !missing.is_empty() {
        return Err(UsageError::Combination(format!(
            "`--messaging` needs {} in the environment or in .env",
            missing.join(" and ")
        )));
    }
    // The id becomes part of a URL path.
    if !config.phone_number_id.bytes().all(|byte| byte.is_ascii_digit()) {
        let wants = "the id of the business number: digits only, and not the phone number itself";
        return Err(wrong(variables, "MESSAGING_PHONE_NUMBER_ID", wants));
    }
    Ok(Some(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANONICAL: [&str; 4] = [
        "MESSAGING_TOKEN",
        "MESSAGING_PHONE_NUMBER_ID",
        "MESSAGING_APP_SECRET",
        "MESSAGING_WEBHOOK_VERIFICATION_TOKEN",
    ];
    const ALIASES: [&str; 4] = [
        "WHATSAPP_TOKEN",
        "WHATSAPP_PHONE_NUMBER_ID",
        "WHATSAPP_APP_SECRET",
        "WHATSAPP_WEBHOOK_VERIFICATION_TOKEN",
    ];
    const VALUES: [&str; 4] = ["EAAG-token", "1060000001", "0123456789abcdef", "word"];

    fn read(
        asked: bool,
        transport: Option<Transport>,
        list: &[(&str, &str)],
    ) -> Result<(Option<Messaging>, Vec<String>), String> {
        let own = list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let variables = Variables::new(own, []);
        let args = WhatsAppOptions { messaging: asked };
        let mut warnings = Vec::new();
        messaging(&args, transport, &variables, &mut warnings)
            .map(|config| (config, warnings))
            .map_err(|error| error.to_string())
    }

    fn pairs(names: [&'static str; 4]) -> Vec<(&'static str, &'static str)> {
        names.into_iter().zip(VALUES).collect()
    }

    /// every variable has two names, and the canonical one wins.
    #[test]
    fn reads_variables_by_either_name() {
        for names in [CANONICAL, ALIASES] {
            let (config, warnings) = read(true, Some(Transport::WebRtc), &pairs(names)).expect("all variables are set");
            let config = config.expect("the option is given");
            assert_eq!(config.token.expose(), VALUES[0]);
            assert_eq!(config.phone_number_id, VALUES[1]);
            assert_eq!(config.app_secret.expose(), VALUES[2]);
            assert_eq!(config.verification_token.expose(), VALUES[3]);
            assert_eq!(config.url, "https://graph.facebook.com/v23.0");
            assert_eq!(warnings, [""; 0]);
            let shown = format!("{config:?}");
            assert!(
                VALUES
                    .iter()
                    .enumerate()
                    .all(|(i, value)| i == 1 || !shown.contains(value)),
                "{shown}"
            );
        }
        let both = [pairs(CANONICAL), pairs(ALIASES), vec![("WHATSAPP_TOKEN", "other")]].concat();
        let (config, _) = read(true, None, &both).expect("all variables are set");
        assert_eq!(config.expect("the option is given").token.expose(), VALUES[0]);
        let url = [
            pairs(CANONICAL),
            vec![("MESSAGING_API_URL", "http://127.0.0.1:9/v23.0/")],
        ]
        .concat();
        let (config, _) = read(true, None, &url).expect("all variables are set");
        assert_eq!(config.expect("the option is given").url, "http://127.0.0.1:9/v23.0");
    }

    #[test]
    fn one_error_names_all_missing_variables() {
        let message = read(true, None, &[]).expect_err("a usage error");
        for name in CANONICAL.iter().chain(&ALIASES) {
            assert!(message.contains(name), "{message}");
        }
        let some = &pairs(CANONICAL)[..2];
        let message = read(true, None, some).expect_err("a usage error");
        assert!(
            message.contains("MESSAGING_APP_SECRET") && !message.contains("MESSAGING_TOKEN"),
            "{message}"
        );
        assert_eq!(
            read(false, None, some),
            Ok((None, vec![])),
            "without the option no variable is read"
        );
    }

    #[test]
    fn rejects_invalid_settings_without_repeating_them() {
        let message = read(true, Some(Transport::Videoroom), &pairs(CANONICAL)).expect_err("a usage error");
        assert!(message.contains("-t videoroom"), "{message}");
        for id in ["+15550002222", "106000000x", "10/6"] {
            let list: Vec<_> = pairs(CANONICAL)
                .into_iter()
                .map(|(name, value)| match name {
                    "MESSAGING_PHONE_NUMBER_ID" => (name, id),
                    _ => (name, value),
                })
                .collect();
            let message = read(true, None, &list).expect_err("a usage error");
            assert!(
                message.contains("MESSAGING_PHONE_NUMBER_ID") && !message.contains(id),
                "{message}"
            );
        }
    }
}
