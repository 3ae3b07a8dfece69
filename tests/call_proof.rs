//! Proof of calls: where a provider's webhooks are verified, a forger cannot pose as the provider
//! on `/ws`, start a bot with a made-up caller, or have a call hung up. The real binary, with
//! webhooks signed as the providers sign them.

use edge_runner_proto::telephony::{PROVIDERS, Provider as Known, proof::ProofError};
use serde_json::json;

use crate::support::http;
use crate::support::program::{BotProcess, SLEEPING_COMMAND};
use crate::support::provider::{Caller, FROM, Provider, TO};
use crate::support::rest::Rest;
use crate::support::runner::TestRunner;
use crate::support::signed::{self, API_KEY, HOST, TOKEN, Webhook};
use crate::support::socket::{ConnectOptions, Socket};

const PROTECTED: [Provider; 3] = [Provider::Twilio, Provider::Telnyx, Provider::Plivo];
const ACCOUNT: &str = "AC0000000000000000000000000000cafe";
/// The call that an attacker wants to have hung up.
const VICTIM: &str = "CAffffffffffffffffffffffffffffffff";

/// A runner of one provider with all its credentials, and the provider's API.
struct Fixture {
    provider: Provider,
    api: Rest,
    runner: TestRunner,
}

impl Fixture {
    fn start(provider: Provider, options: &[&str]) -> Self {
        let api = Rest::start(&[(200, "{}")]);
        let (url, key) = (api.url(), signed::public_key());
        let variables = [
            ("TELCO_A_API_URL", url.as_str()),
            ("TELCO_B_API_URL", &url),
            ("TELCO_C_API_URL", &url),
            ("TELCO_A_ACCOUNT_SID", ACCOUNT),
            ("TELCO_A_AUTH_TOKEN", TOKEN),
            ("TELCO_B_API_KEY", TOKEN),
            ("TELCO_B_PUBLIC_KEY", &key),
            ("TELCO_C_AUTH_ID", "MAFEFEFEFEFEFEFEFEFE"),
            ("TELCO_C_AUTH_TOKEN", TOKEN),
        ];
        let own = ["--bot", "echo", "-t", provider.transport(), "--proxy", HOST];
        let runner = TestRunner::start_with(&[&own[..], options].concat(), &variables);
        Self { provider, api, runner }
    }

    /// Returns the path in the markup for a signed webhook of a call.
    fn markup(&self, call_id: &str, nonce: &str) -> String {
        self.replay(&signed::webhook(self.provider, call_id, nonce))
    }

    /// Sends this webhook, perhaps once more; returns the path in the markup.
    fn replay(&self, webhook: &Webhook) -> String {
        signed::target(&webhook.send(&self.runner))
    }

    /// Opens a socket that claims to be this call.
    fn call(&self, target: &str, call_id: &str) -> Caller {
        let provider = self.provider;
        let mut caller = Caller::connect(self.runner.addr, target, provider, provider.lines()[0]);
        caller.call_id = call_id.to_owned();
        caller.greet();
        caller.start();
        caller
    }

    fn assert_refused(&self, target: &str) {
        let refused = Socket::try_connect(self.runner.addr, target, ConnectOptions::default());
        assert_eq!(refused.err().map(|refused| refused.status), Some(403));
    }

    /// Ends the runner; returns the paths requested from its provider, and the log.
    fn end(mut self) -> (Vec<String>, String) {
        self.runner.signal("TERM");
        assert_eq!(self.runner.wait().code(), Some(0));
        let asked = self.api.asked().into_iter().map(|asked| asked.target).collect();
        (asked, self.runner.log())
    }
}

/// Asserts that the bot echoes.
fn assert_served(caller: &mut Caller) {
    caller.say(&vec![0; caller.line.rate_hz as usize / 2]);
    caller.hear_ms(100);
}

fn assert_closed_as_unproven(caller: &mut Caller, unproven: fn(&'static Known) -> ProofError) {
    let reason = unproven(PROVIDERS[0]).reason().to_owned();
    assert_eq!(caller.end(), Some((1008, reason)), "{:?}", caller.provider);
}

/// An unproven socket starts no bot, takes no slot, and has no call hung up; one line gives advice.
#[test]
fn an_unproven_call_is_closed_before_its_bot_starts() {
    for provider in PROTECTED {
        let fixture = Fixture::start(provider, &["--max-sessions", "1"]);
        let token = fixture.markup("the-honest-call", "1");
        for target in ["/ws", "/ws/no-token", "/ws?token=eyJ9.00"] {
            let mut forged = fixture.call(target, VICTIM);
            assert_closed_as_unproven(&mut forged, ProofError::Missing);
        }
        let lines = fixture.runner.wait_for_logs("no session on /ws", 3);
        for line in &lines {
            let advice = [
                " WARN ",
                provider.transport(),
                "https://bots.example.net/",
                "--unverified-calls",
            ];
            assert!(advice.iter().all(|part| line.contains(part)), "{line}");
        }
        assert!(!fixture.runner.log().contains("session started"));
        // The slot is free for the holder of the token, and the call is hung up by its own id.
        let mut honest = fixture.call(&token, "the-honest-call");
        assert_served(&mut honest);
        let (asked, log) = fixture.end();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert!(asked[0].contains("the-honest-call"), "{asked:?}");
        // Besides, the start warns of a public runner without an API key.
        let warnings = log.lines().filter(|line| line.contains(" WARN "));
        assert_eq!(
            warnings.filter(|line| !line.contains("--api-key-file")).count(),
            3,
            "{log}"
        );
    }
}

/// A token is valid for its own call: another call is neither served nor hung up with it.
#[test]
fn a_token_is_valid_for_its_own_call_alone() {
    for provider in PROTECTED {
        let fixture = Fixture::start(provider, &[]);
        let mut caller = fixture.call(&fixture.markup("my-own-call", "1"), VICTIM);
        assert_closed_as_unproven(&mut caller, ProofError::OtherCall);
        let (asked, log) = fixture.end();
        assert_eq!(asked, Vec::<String>::new());
        assert!(
            !log.contains("session started") && log.contains("made for another call"),
            "{log}"
        );
    }
}

/// A repeated webhook, from its provider or from an attacker, gets the same token, which opens one
/// socket. A call that returns with a new webhook is served again.
#[test]
fn a_replayed_webhook_is_rejected() {
    for provider in PROTECTED {
        let fixture = Fixture::start(provider, &[]);
        let webhook = signed::webhook(provider, "call-1", "nonce-1");
        let first = fixture.replay(&webhook);
        let mut caller = fixture.call(&fixture.replay(&webhook), "call-1");
        assert_served(&mut caller);
        fixture.assert_refused(&first);
        fixture.assert_refused(&fixture.replay(&webhook));
        caller.stop();
        caller.end();
        fixture.runner.wait_for_sessions(0);
        fixture.assert_refused(&fixture.replay(&webhook));
        if provider == Provider::Plivo {
            let mut back = fixture.call(&fixture.markup("call-1", "nonce-2"), "call-1");
            assert_served(&mut back);
        }
        assert_served(&mut fixture.call(&fixture.markup("call-2", "nonce-3"), "call-2"));
    }
}

/// A call that the bot transfers may return, with the webhook that it had before where its provider
/// signs neither a time nor a nonce. Each transfer is good for one return; a retry of that gets the
/// same token.
#[test]
fn a_transferred_call_returns_with_the_same_webhook() {
    let api = Rest::start(&[(200, "{}")]);
    let url = api.url();
    let runner = TestRunner::start_with(
        &["-t", "twilio", "--proxy", HOST, "--", "/bin/sh", "-c", SLEEPING_COMMAND],
        &[
            ("TELCO_A_API_URL", &url),
            ("TELCO_A_ACCOUNT_SID", ACCOUNT),
            ("TELCO_A_AUTH_TOKEN", TOKEN),
        ],
    );
    let provider = Provider::Twilio;
    let fixture = Fixture { provider, api, runner };
    let webhook = signed::webhook(provider, "call-1", "1");
    let mut known = Vec::new();
    for visit in 0..3 {
        let target = fixture.replay(&webhook);
        assert_eq!(fixture.replay(&webhook), target, "visit {visit}");
        let mut caller = fixture.call(&target, "call-1");
        let started = BotProcess::of(&fixture.runner, |arguments| !known.contains(&arguments["session_id"]));
        known.push(started.arguments["session_id"].clone());
        let mut program = started.connect_media();
        fixture.assert_refused(&fixture.replay(&webhook));
        if visit < 2 {
            program.tell(&json!({"type": "transfer", "to": "https://agents.example.net/markup"}));
            program.hear_message("the transfer", |message| message["type"] == "transfer");
        }
        caller.stop();
        caller.end();
        fixture.runner.wait_for_sessions(0);
    }
    // The last session ended without a transfer, so the call has ended.
    fixture.assert_refused(&fixture.replay(&webhook));
}

/// This provider signs the upgrade itself, so custom markup works, and its calls are hung up.
#[test]
fn a_signed_upgrade_proves_a_call() {
    let fixture = Fixture::start(Provider::Twilio, &[]);
    let (name, value) = ("x-twilio-signature", signed::upgrade("/ws"));
    let value = value.split_once(": ").expect("a header").1;
    let habits = ConnectOptions {
        headers: &[(name, value)],
        ..ConnectOptions::default()
    };
    let socket = Socket::try_connect(fixture.runner.addr, "/ws", habits).expect("an upgrade");
    let mut caller = Caller::connect_by(socket, Provider::Twilio, Provider::Twilio.lines()[0]);
    caller.greet();
    caller.start();
    assert_served(&mut caller);
    // The signature covers one URL.
    let elsewhere = Socket::try_connect(fixture.runner.addr, "/ws/x", habits);
    assert_eq!(elsewhere.err().map(|refused| refused.status), Some(403));
    assert_eq!(fixture.end().0.len(), 1);
}

/// A token of `/start` proves a call if it was requested with the API key, and not otherwise.
#[test]
fn a_start_token_proves_a_call_if_the_key_was_given() {
    for provider in PROTECTED {
        let fixture = Fixture::start(provider, &["--api-key", API_KEY]);
        let target = signed::started(&fixture.runner, provider).expect("a token");
        let mut outbound = fixture.call(&target, "outbound");
        assert_served(&mut outbound);
        let (asked, _) = fixture.end();
        assert!(asked.len() == 1 && asked[0].contains("outbound"), "{asked:?}");

        let fixture = Fixture::start(provider, &["--ws-auth", "token"]);
        let target = signed::started(&fixture.runner, provider).expect("a token");
        assert_closed_as_unproven(&mut fixture.call(&target, VICTIM), ProofError::Missing);
        fixture.assert_refused(&target);
        assert_eq!(fixture.end().0, Vec::<String>::new());
    }
    let anonymous = Fixture::start(Provider::Twilio, &[]);
    assert_eq!(signed::started(&anonymous.runner, Provider::Twilio), None);
}

/// With the option every call is served, and hung up by whatever id it names.
#[test]
fn unverified_calls_are_accepted_with_the_option() {
    for (provider, switch) in [
        (Provider::Twilio, "--unverified-calls"),
        (Provider::Telnyx, "--unverified-calls"),
        (Provider::Plivo, "--unverified-calls"),
        (Provider::Plivo, "--no-verify-webhooks"),
    ] {
        let fixture = Fixture::start(provider, &[switch]);
        assert_eq!(fixture.markup("any", "1"), "/ws");
        let mut caller = fixture.call("/ws", "any");
        assert_served(&mut caller);
        let (asked, _) = fixture.end();
        assert_eq!(asked.len(), 1, "{provider:?} {switch}");
    }
}

/// Providers without signatures are served without proof, also beside those with signatures.
#[test]
fn a_provider_without_signatures_needs_no_proof() {
    let fixture = Fixture::start(Provider::Twilio, &[]);
    assert_served(&mut Caller::dial(fixture.runner.addr, Provider::Exotel));
    assert_eq!(fixture.end().0, Vec::<String>::new());
}

/// Tokens, numbers and call ids never reach the log.
#[test]
fn tokens_and_numbers_stay_out_of_the_log() {
    for provider in PROTECTED {
        let fixture = Fixture::start(provider, &["-vv"]);
        let target = fixture.markup("call-4716", "1");
        let mut other = fixture.call(&fixture.markup("call-4717", "2"), VICTIM);
        other.end();
        fixture.call("/ws", VICTIM).end();
        assert_served(&mut fixture.call(&target, "call-4716"));
        fixture.assert_refused(&target);
        fixture.runner.wait_for_log("the token was used before");
        let reply = http::request(fixture.runner.addr, "POST", "/", &[], b"CallSid=1").expect("an answer");
        assert_eq!(reply.status, 403);
        let (_, log) = fixture.end();
        let token = target.strip_prefix("/ws/").expect("a token");
        for secret in token.split('.').chain([TOKEN]) {
            assert!(!log.contains(secret), "{secret} was logged: {log}");
        }
        let numbers = [FROM, TO].map(|number| number.trim_start_matches('+').to_owned());
        let mut plain = log
            .lines()
            .filter(|line| !line.contains(" DEBUG ") && !line.contains(" TRACE "));
        let reported = plain.find(|line| numbers.iter().any(|number| line.contains(number)) || line.contains(VICTIM));
        assert_eq!(reported, None);
    }
}
