//! Variables of the providers, by each of their names.

use super::*;

fn read(list: &[(&str, &str)]) -> Result<(Telephony, Vec<String>), String> {
    let own = list.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let mut warnings = Vec::new();
    telephony(
        &TelephonyOptions::default(),
        &PROVIDERS,
        &Variables::new(own, []),
        &mut warnings,
    )
    .map(|telephony| (telephony, warnings))
    .map_err(|error| error.to_string())
}

fn configured(list: &[(&str, &str)]) -> Telephony {
    let (telephony, warnings) = read(list).expect("valid variables");
    assert_eq!(warnings, Vec::<String>::new());
    telephony
}

/// missing credentials cause no warning.
#[test]
fn every_credential_is_optional() {
    assert_eq!(configured(&[]), Telephony::default());
    let empty = [
        ("TELCO_A_ACCOUNT_SID", ""),
        ("TELCO_B_API_KEY", " "),
        ("TELCO_C_AUTH_ID", ""),
    ];
    assert_eq!(configured(&empty), Telephony::default());
}

/// by canonical names, and by the names of existing `.env` files.
#[test]
fn reads_accounts_by_either_name() {
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
        let telephony = configured(&[
            (a_id, "AC1"),
            (a_token, "ta"),
            (b_key, "KEY_b"),
            (c_id, "MA1"),
            (c_token, "tc"),
        ]);
        let expected = Settings::from([
            ("TELCO_A_ACCOUNT_SID", "AC1"),
            ("TELCO_A_AUTH_TOKEN", "ta"),
            ("TELCO_B_API_KEY", "KEY_b"),
            ("TELCO_C_AUTH_ID", "MA1"),
            ("TELCO_C_AUTH_TOKEN", "tc"),
        ]);
        assert_eq!(telephony.settings, expected);
        assert!(telephony.verify_webhooks);
    }
    let mixed = configured(&[
        ("TWILIO_ACCOUNT_SID", "alias"),
        ("TELCO_A_ACCOUNT_SID", "AC1"),
        ("TWILIO_AUTH_TOKEN", "t"),
    ]);
    let expected = Settings::from([("TELCO_A_ACCOUNT_SID", "AC1"), ("TELCO_A_AUTH_TOKEN", "t")]);
    assert_eq!(mixed.settings, expected, "each canonical name wins by itself");
}

/// The table of a provider is all that the command line needs to read its variables.
#[test]
fn a_provider_is_configured_by_its_table() {
    use crate::telephony::invented::WITH_EXAMPLE;
    let variables = [
        ("QUINTEL_KEY", "hunter2"),
        ("QUINTEL_API_URL", "http://127.0.0.1:8080/"),
    ];
    let own = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let read = |providers: &[&Provider], list: &[(String, String)]| {
        telephony(
            &TelephonyOptions::default(),
            providers,
            &Variables::new(list.to_vec(), []),
            &mut Vec::new(),
        )
    };
    let settings = read(&WITH_EXAMPLE, &own).expect("valid variables").settings;
    let expected = [("QUINTEL_KEY", "hunter2"), ("QUINTEL_API_URL", "http://127.0.0.1:8080")];
    assert_eq!(settings, Settings::from(expected));
    assert_eq!(
        read(&PROVIDERS, &own),
        Ok(Telephony::default()),
        "the product has four providers"
    );
    let message = read(&WITH_EXAMPLE, &[("QUINTEL_KEY".into(), "hunter2 x".into())])
        .expect_err("a usage error")
        .to_string();
    assert!(
        message.contains("QUINTEL_KEY") && !message.contains("hunter2"),
        "{message}"
    );
}

#[test]
fn ignores_an_incomplete_account_with_a_warning() {
    for (present, missing, other_name, vendor) in [
        (
            "TELCO_A_ACCOUNT_SID",
            "TELCO_A_AUTH_TOKEN",
            "TWILIO_AUTH_TOKEN",
            "Twilio",
        ),
        (
            "TWILIO_AUTH_TOKEN",
            "TELCO_A_ACCOUNT_SID",
            "TWILIO_ACCOUNT_SID",
            "Twilio",
        ),
        ("TELCO_C_AUTH_ID", "TELCO_C_AUTH_TOKEN", "PLIVO_AUTH_TOKEN", "Plivo"),
        ("PLIVO_AUTH_TOKEN", "TELCO_C_AUTH_ID", "PLIVO_AUTH_ID", "Plivo"),
    ] {
        let (telephony, warnings) = read(&[(present, "hunter2")]).expect("no usage error");
        assert_eq!(telephony, Telephony::default());
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        for part in [present, missing, other_name, vendor, "not hung up"] {
            assert!(warning.contains(part), "{part} in {warning}");
        }
        assert!(!warning.contains("hunter2"), "{warning}");
    }
}

#[test]
fn errors_name_invalid_credentials_without_showing_them() {
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
        let message = read(&[(name, value)]).expect_err("a usage error");
        assert!(message.contains(name) && !message.contains("hunter2"), "{message}");
    }
}

#[test]
fn dialling_names_what_it_needs() {
    use crate::telephony::named::{EXOTEL, TELNYX, TWILIO};
    let (mut telephony, _) = read(&[("TELNYX_API_KEY", "k")]).expect("valid variables");
    let host = Some("bots.example.net");
    assert_eq!(check_dial_out(&telephony, None, None, false), Ok(()), "it is off");
    telephony.dial_from = Some("+15550002222".to_owned());
    assert_eq!(check_dial_out(&telephony, Some(TELNYX), host, true), Ok(()));
    for (provider, host, has_api_key, needs) in [
        (None, host, true, "`-t twilio`"),
        (Some(EXOTEL), host, true, "`-t twilio`"),
        (Some(TWILIO), host, true, "TWILIO_ACCOUNT_SID"),
        (Some(TELNYX), None, true, "`--proxy HOST`"),
        (Some(TELNYX), Some("localhost"), true, "`--proxy HOST`"),
        (Some(TELNYX), host, false, "an API key"),
    ] {
        let error = check_dial_out(&telephony, provider, host, has_api_key).expect_err("something is missing");
        assert!(error.to_string().contains(needs), "{error}");
    }
}

/// The key of the Ed25519 seed 00, 01 .. 1f.
#[test]
fn a_public_key_is_32_bytes_in_base64() {
    let text = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
    for name in ["TELCO_B_PUBLIC_KEY", "TELNYX_PUBLIC_KEY"] {
        let settings = configured(&[(name, text)]).settings;
        assert_eq!(settings, Settings::from([("TELCO_B_PUBLIC_KEY", text)]));
    }
    let bytes = |count| BASE64.encode(&vec![1; count]);
    for bad in [
        &bytes(31),
        &bytes(33),
        &text[..43],
        &text.replace('/', "_"),
        "-----BEGIN PUBLIC KEY-----",
    ] {
        let message = read(&[("TELCO_B_PUBLIC_KEY", bad)]).expect_err("a usage error");
        assert!(message.contains("32 bytes") && !message.contains(bad), "{message}");
    }
}

#[test]
fn base_urls_are_normalized() {
    let set = |telephony: &Telephony, name: &str| telephony.settings.get(name).map(|url| url.expose().to_owned());
    let base = |text: &str| set(&configured(&[("TELCO_B_API_URL", text)]), "TELCO_B_API_URL").expect("a base");
    assert_eq!(base("https://api.telnyx.com"), "https://api.telnyx.com");
    assert_eq!(base("HTTPS://API.Telnyx.com/"), "https://api.telnyx.com");
    assert_eq!(
        base("https://proxy.example.net:8443/a/B%20c//"),
        "https://proxy.example.net:8443/a/B%20c"
    );
    // A test server on this machine needs no encryption.
    for own in ["http://127.0.0.1:8080", "http://localhost:1", "http://[::1]:80/x"] {
        assert_eq!(base(own), own);
    }
    let (telephony, warnings) = read(&[("TELCO_C_API_URL", "http://192.0.2.7")]).expect("no usage error");
    assert_eq!(set(&telephony, "TELCO_C_API_URL").as_deref(), Some("http://192.0.2.7"));
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
            let message = read(&[(name, bad)]).expect_err("a usage error");
            // A query may contain a token.
            let shown = message.contains(bad) != bad.contains('?');
            assert!(message.contains(name) && shown, "{message}");
        }
        let message = read(&[(name, "https://u:hunter2@a")]).expect_err("a usage error");
        assert!(message.contains(name) && !message.contains("hunter2"), "{message}");
    }
}
