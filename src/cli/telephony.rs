//! What the environment says of the telephony providers: accounts, keys and the bases of their REST APIs.
//!
//! Variables enter, a [`Telephony`] and warnings leave. Every credential is optional: without one, calls work and are not hung
//! up. A base is `http://` or `https://`, a host, perhaps a port and a path; slashes at its end are taken off.
//! Refuses: bases of any other form, a public key that is not 32 bytes in base64, and credentials that could not stand in a
//! request. No credential is ever repeated. Source: the fact sheet on telephony, sections 0 and 9.

use data_encoding::BASE64;

use super::Misuse;
use crate::config::{Account, Secret, Telephony, Transport};
use crate::proto::options::env::Variables;
use crate::proto::options::values::{all_names, base, credential, found, wrong};

/// Reads what is there.
///
/// # Errors
/// [`Misuse`] that names the variable.
pub(super) fn telephony(
    variables: &Variables,
    verify_webhooks: bool,
    unverified_calls: bool,
    warnings: &mut Vec<String>,
) -> Result<Telephony, Misuse> {
    let standard = Telephony::default();
    Ok(Telephony {
        a: account(
            variables,
            Transport::TelephonyA,
            ["TELCO_A_ACCOUNT_SID", "TELCO_A_AUTH_TOKEN"],
            warnings,
        )?,
        b_key: credential(variables, "TELCO_B_API_KEY")?.map(Secret::new),
        b_public_key: public_key(variables, "TELCO_B_PUBLIC_KEY")?,
        c: account(
            variables,
            Transport::TelephonyC,
            ["TELCO_C_AUTH_ID", "TELCO_C_AUTH_TOKEN"],
            warnings,
        )?,
        a_url: base(variables, "TELCO_A_API_URL", warnings)?.unwrap_or(standard.a_url),
        b_url: base(variables, "TELCO_B_API_URL", warnings)?.unwrap_or(standard.b_url),
        c_url: base(variables, "TELCO_C_API_URL", warnings)?.unwrap_or(standard.c_url),
        verify_webhooks,
        unverified_calls,
    })
}

/// Returns the account whose two halves are both there; half of one is worth a warning.
fn account(
    variables: &Variables,
    transport: Transport,
    [id_name, token_name]: [&'static str; 2],
    warnings: &mut Vec<String>,
) -> Result<Option<Account>, Misuse> {
    let id = credential(variables, id_name)?;
    if id.as_deref().is_some_and(|id| id.contains([':', '/'])) {
        return Err(wrong(variables, id_name, "an account's id, without `:` and `/`"));
    }
    let token = credential(variables, token_name)?;
    let (there, missing) = match (id, token) {
        (Some(id), Some(token)) => {
            let token = Secret::new(token);
            return Ok(Some(Account { id, token }));
        }
        (None, None) => return Ok(None),
        (Some(_), None) => (id_name, token_name),
        (None, Some(_)) => (token_name, id_name),
    };
    warnings.push(format!(
        "{} is set and {} is not: calls of {} are not hung up when their session ends, and its webhooks are not verified",
        found(variables, there),
        all_names(missing),
        transport.name()
    ));
    Ok(None)
}

fn public_key(variables: &Variables, name: &'static str) -> Result<Option<[u8; 32]>, Misuse> {
    let key = |text: &str| BASE64.decode(text.as_bytes()).ok()?.try_into().ok();
    match variables.get(name) {
        Some(text) => key(text).map_or_else(
            || {
                Err(wrong(
                    variables,
                    name,
                    "the provider's Ed25519 public key: 32 bytes in base64",
                ))
            },
            |key| Ok(Some(key)),
        ),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &[(&str, &str)]) -> Result<(Telephony, Vec<String>), String> {
        let own = list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let mut warnings = Vec::new();
        telephony(&Variables::new(own, []), true, false, &mut warnings)
            .map(|telephony| (telephony, warnings))
            .map_err(|misuse| misuse.to_string())
    }

    fn told(list: &[(&str, &str)]) -> Telephony {
        let (telephony, warnings) = read(list).expect("sensible variables");
        assert_eq!(warnings, Vec::<String>::new());
        telephony
    }

    /// without credentials there is nothing to complain of.
    #[test]
    fn every_credential_is_optional() {
        assert_eq!(told(&[]), Telephony::default());
        let empty = [
            ("TELCO_A_ACCOUNT_SID", ""),
            ("TELCO_B_API_KEY", " "),
            ("TELCO_C_AUTH_ID", ""),
        ];
        assert_eq!(told(&empty), Telephony::default());
    }

    /// by the names of the specification, and by those that existing `.env` files have.
    #[test]
    fn accounts_are_read_by_either_name() {
        let account = |id: &str, token: &str| {
            Some(Account {
                id: id.into(),
                token: Secret::new(token),
            })
        };
        for [a_id, a_token, b_key, c_id, c_token] in [
            [
                "TELCO_A_ACCOUNT_SID",
                "TELCO_A_AUTH_TOKEN",
                "TELCO_B_API_KEY",
                "TELCO_C_AUTH_ID",
                "TELCO_C_AUTH_TOKEN",
            ],
            [
                "TWILIO_ACCOUNT_SID",
                "TWILIO_AUTH_TOKEN",
                "TELNYX_API_KEY",
                "PLIVO_AUTH_ID",
                "PLIVO_AUTH_TOKEN",
            ],
        ] {
            let telephony = told(&[
                (a_id, "AC1"),
                (a_token, "ta"),
                (b_key, "KEY_b"),
                (c_id, "MA1"),
                (c_token, "tc"),
            ]);
            assert_eq!(telephony.a, account("AC1", "ta"));
            assert_eq!(telephony.b_key, Some(Secret::new("KEY_b")));
            assert_eq!(telephony.c, account("MA1", "tc"));
            assert!(telephony.verify_webhooks);
        }
        let mixed = told(&[
            ("TWILIO_ACCOUNT_SID", "alias"),
            ("TELCO_A_ACCOUNT_SID", "AC1"),
            ("TWILIO_AUTH_TOKEN", "t"),
        ]);
        assert_eq!(mixed.a, account("AC1", "t"), "canonical wins, half by half");
    }

    #[test]
    fn half_an_account_is_told_and_not_used() {
        for (there, missing, other_name, transport) in [
            (
                "TELCO_A_ACCOUNT_SID",
                "TELCO_A_AUTH_TOKEN",
                "TWILIO_AUTH_TOKEN",
                "telephony_a",
            ),
            (
                "TWILIO_AUTH_TOKEN",
                "TELCO_A_ACCOUNT_SID",
                "TWILIO_ACCOUNT_SID",
                "telephony_a",
            ),
            (
                "TELCO_C_AUTH_ID",
                "TELCO_C_AUTH_TOKEN",
                "PLIVO_AUTH_TOKEN",
                "telephony_c",
            ),
            ("PLIVO_AUTH_TOKEN", "TELCO_C_AUTH_ID", "PLIVO_AUTH_ID", "telephony_c"),
        ] {
            let (telephony, warnings) = read(&[(there, "hunter2")]).expect("no misuse");
            assert_eq!(telephony, Telephony::default());
            let [warning] = &warnings[..] else {
                panic!("{warnings:?}");
            };
            for part in [there, missing, other_name, transport, "not hung up"] {
                assert!(warning.contains(part), "{part} in {warning}");
            }
            assert!(!warning.contains("hunter2"), "{warning}");
        }
    }

    #[test]
    fn credentials_that_cannot_stand_in_a_request_are_named_and_not_shown() {
        for (name, value) in [
            ("TELCO_A_ACCOUNT_SID", "hunter2:x"),
            ("TELCO_A_ACCOUNT_SID", "hunter2/x"),
            ("TWILIO_AUTH_TOKEN", "hunter2 x"),
            ("TELCO_B_API_KEY", "hunter2\r\nX: y"),
            ("TELNYX_API_KEY", "hunter2\u{e9}"),
            ("TELCO_C_AUTH_ID", "hunter2\tx"),
            ("TELCO_B_PUBLIC_KEY", "hunter2"),
            ("TELNYX_PUBLIC_KEY", "hunter2@"),
        ] {
            let message = read(&[(name, value)]).expect_err("a misuse");
            assert!(message.contains(name) && !message.contains("hunter2"), "{message}");
        }
    }

    /// The key of the fact sheet, section 9: that of the seed 00, 01 .. 1f.
    #[test]
    fn a_public_key_is_32_bytes_in_base64() {
        let text = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
        for name in ["TELCO_B_PUBLIC_KEY", "TELNYX_PUBLIC_KEY"] {
            let key = told(&[(name, text)]).b_public_key.expect("a key");
            assert_eq!((key[..4].to_vec(), key[31]), (vec![0x03, 0xa1, 0x07, 0xbf], 0xb8));
        }
        let bytes = |count| BASE64.encode(&vec![1; count]);
        for bad in [
            &bytes(31),
            &bytes(33),
            &text[..43],
            &text.replace('/', "_"),
            "-----BEGIN PUBLIC KEY-----",
        ] {
            let message = read(&[("TELCO_B_PUBLIC_KEY", bad)]).expect_err("a misuse");
            assert!(message.contains("32 bytes") && !message.contains(bad), "{message}");
        }
    }

    #[test]
    fn bases_have_one_form() {
        let base = |text: &str| told(&[("TELCO_B_API_URL", text)]).b_url;
        assert_eq!(base("https://api.telnyx.com"), "https://api.telnyx.com");
        assert_eq!(base("HTTPS://API.Telnyx.com/"), "https://api.telnyx.com");
        assert_eq!(
            base("https://proxy.example.net:8443/a/B%20c//"),
            "https://proxy.example.net:8443/a/B%20c"
        );
        // A provider of tests runs on this machine, without encryption.
        for own in ["http://127.0.0.1:8080", "http://localhost:1", "http://[::1]:80/x"] {
            assert_eq!(base(own), own);
        }
        let (telephony, warnings) = read(&[("TELCO_C_API_URL", "http://192.0.2.7")]).expect("no misuse");
        assert_eq!(telephony.c_url, "http://192.0.2.7");
        assert!(warnings[0].contains("TELCO_C_API_URL") && warnings[0].contains("in the clear"));

        for name in ["TELCO_A_API_URL", "TELCO_B_API_URL", "TELCO_C_API_URL"] {
            for bad in [
                "api.twilio.com",
                "ftp://a",
                "https://",
                "https:///x",
                "https://a b",
                "https://a:0",
                "https://a:x",
                "https://a?x=1",
                "https://a/x#y",
                "https://a/\u{e9}",
                "https://a/x y",
                "https://::1",
            ] {
                let message = read(&[(name, bad)]).expect_err("a misuse");
                // Behind a `?` there may be a token.
                let shown = message.contains(bad) != bad.contains('?');
                assert!(message.contains(name) && shown, "{message}");
            }
            let message = read(&[(name, "https://u:hunter2@a")]).expect_err("a misuse");
            assert!(message.contains(name) && !message.contains("hunter2"), "{message}");
        }
    }
}
