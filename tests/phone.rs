//! `edge-runner phone set-up`: the real binary against scripted APIs of the providers, and against
//! a real runner whose webhook it tries.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::support::provider::Provider;
use crate::support::rest::Rest;
use crate::support::runner::{RunOutput, TestRunner};
use crate::support::signed::{self, HOST, TOKEN};

const NUMBER: &str = "+15550002222";
const ACCOUNT: &str = "AC0000000000000000000000000000cafe";
const OLD: &str = "https://old.example/";

/// The runner that a number is pointed at.
fn runner(provider: Provider, token: &str) -> TestRunner {
    let key = signed::public_key();
    TestRunner::start_with(
        &["-t", provider.transport(), "--proxy", HOST],
        &[
            ("TELCO_A_ACCOUNT_SID", ACCOUNT),
            ("TELCO_A_AUTH_TOKEN", token),
            ("TELCO_B_PUBLIC_KEY", &key),
            ("TELCO_C_AUTH_ID", "MAFEFEFEFEFEFEFEFEFE"),
            ("TELCO_C_AUTH_TOKEN", token),
        ],
    )
}

/// The responses of each provider's API: the number and its webhook, then a change.
fn api(provider: Provider, url: &str) -> Rest {
    let number = match provider {
        Provider::Twilio => {
            json!({"incoming_phone_numbers": [
                {"sid": "PN01", "phone_number": NUMBER, "voice_url": url, "voice_method": "POST"},
            ]})
        }
        Provider::Telnyx => json!({"data": [{"id": "9", "phone_number": NUMBER, "connection_id": "177"}]}),
        _ => json!({"application": "/v1/Account/MA01/Application/4711/"}),
    };
    let application = match provider {
        Provider::Telnyx => json!({"data": {"friendly_name": "shop", "voice_url": url, "voice_method": "post"}}),
        _ => json!({"app_name": "shop", "answer_url": url, "answer_method": "POST"}),
    };
    Rest::start(&[(200, &number.to_string()), (200, &application.to_string()), (200, "{}")])
}

fn set_up(provider: Provider, api: &Rest, runner: SocketAddr, options: &[&str]) -> RunOutput {
    let (url, at) = (api.url(), format!("http://{runner}/"));
    let own = [
        "phone",
        "set-up",
        provider.name(),
        "--number",
        NUMBER,
        "--proxy",
        HOST,
        "--runner",
        &at,
    ];
    let variables = [
        ("TELCO_A_API_URL", url.as_str()),
        ("TELCO_B_API_URL", &url),
        ("TELCO_C_API_URL", &url),
        ("TWILIO_ACCOUNT_SID", ACCOUNT),
        ("TWILIO_AUTH_TOKEN", TOKEN),
        ("TELNYX_API_KEY", TOKEN),
        ("PLIVO_AUTH_ID", "MAFEFEFEFEFEFEFEFEFE"),
        ("PLIVO_AUTH_TOKEN", TOKEN),
    ];
    TestRunner::run_with(&[&own[..], options].concat(), &variables)
}

fn methods(api: &Rest) -> Vec<String> {
    api.asked().into_iter().map(|asked| asked.method).collect()
}

/// The runner is tried with the provider's signature, then the number gets its webhook.
#[test]
fn a_number_is_pointed_at_a_runner_that_answers() {
    for (provider, change) in [
        (Provider::Twilio, "POST"),
        (Provider::Telnyx, "PATCH"),
        (Provider::Plivo, "POST"),
    ] {
        let runner = runner(provider, TOKEN);
        let api = api(provider, OLD);
        let dry = set_up(provider, &api, runner.addr, &["--dry-run"]);
        assert_eq!(dry.code, Some(0), "{}", dry.stderr);
        for part in ["https://bots.example.net/", "would be changed", OLD] {
            assert!(dry.stdout.contains(part), "{part} in {}", dry.stdout);
        }
        assert!(methods(&api).iter().all(|method| method == "GET"));
        let api = self::api(provider, OLD);
        let done = set_up(provider, &api, runner.addr, &[]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let proof = match provider {
            Provider::Telnyx => "only the provider can try it",
            _ => "answers a signed request",
        };
        assert!(done.stdout.contains(proof), "{}", done.stdout);
        assert_eq!(methods(&api).last().map(String::as_str), Some(change));
        let changed = api.asked().pop().expect("a change").body;
        assert!(changed.contains("bots.example.net"), "{changed}");
        for output in [&done.stdout, &done.stderr, &dry.stdout] {
            assert!(!output.contains(TOKEN) && !output.contains(NUMBER), "{output}");
        }
    }
}

#[test]
fn a_number_that_has_the_webhook_is_left_alone() {
    let runner = runner(Provider::Twilio, TOKEN);
    let api = api(Provider::Twilio, "https://bots.example.net/");
    let done = set_up(Provider::Twilio, &api, runner.addr, &[]);
    assert_eq!(
        (done.code, methods(&api)),
        (Some(0), vec!["GET".to_owned()]),
        "{}",
        done.stderr
    );
}

/// Nothing is changed for a runner that would not serve the number.
#[test]
fn a_number_is_not_pointed_at_a_runner_that_does_not_answer() {
    for (provider, token, options, why) in [
        (Provider::Twilio, "another-token", &[][..], "same credentials of Twilio"),
        (Provider::Plivo, "another-token", &[], "same credentials of Plivo"),
    ] {
        let runner = runner(provider, token);
        let api = api(provider, OLD);
        let failed = set_up(provider, &api, runner.addr, options);
        assert_eq!(failed.code, Some(1));
        assert!(failed.stderr.contains(why), "{}", failed.stderr);
        assert!(api.asked().is_empty());
    }
    let other = TestRunner::start(&[]);
    let api = api(Provider::Twilio, OLD);
    let failed = set_up(Provider::Twilio, &api, other.addr, &[]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.stderr.contains("`-t twilio`"), "{}", failed.stderr);
    assert!(api.asked().is_empty());
    let dry = set_up(Provider::Twilio, &api, other.addr, &["--dry-run"]);
    assert_eq!(dry.code, Some(0), "{}", dry.stderr);
    assert!(dry.stdout.contains("would not serve the number yet"), "{}", dry.stdout);
}

/// What the provider refuses is one sentence.
#[test]
fn refusals_of_the_provider_are_one_sentence() {
    let runner = runner(Provider::Twilio, TOKEN);
    let refusal: Value = json!({"code": 20003, "message": format!("no access to {NUMBER}")});
    let api = Rest::start(&[(401, &refusal.to_string())]);
    let failed = set_up(Provider::Twilio, &api, runner.addr, &[]);
    assert_eq!(failed.code, Some(1));
    let sentence =
        "Twilio: status 401, the provider does not take the credentials, code 20003: no access to +###########";
    assert!(failed.stderr.contains(sentence), "{}", failed.stderr);
}
