//! Calls with each proof at runners that verify and at those that do not.

use serde_json::json;

use super::*;
use crate::telephony::named::{EXOTEL, PLIVO, TELNYX, TWILIO};
use crate::telephony::settings::Settings;
use crate::telephony::{PROVIDERS, detect};

fn with<const N: usize>(settings: [(&'static str, &str); N]) -> Telephony {
    Telephony {
        settings: Settings::from(settings),
        ..Telephony::default()
    }
}

fn full() -> Telephony {
    with([
        ("TELCO_A_ACCOUNT_SID", "AC01"),
        ("TELCO_A_AUTH_TOKEN", "token"),
        ("TELCO_B_PUBLIC_KEY", "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="),
        ("TELCO_C_AUTH_ID", "AC01"),
        ("TELCO_C_AUTH_TOKEN", "token"),
    ])
}

fn call(provider: &'static Provider, id: &str) -> TelephonyCall {
    let start = match provider.name {
        "twilio" => json!({"event": "start", "start": {"streamSid": "s", "callSid": id}}),
        "telnyx" => json!({"event": "start", "stream_id": "s", "start": {"call_control_id": id}}),
        "plivo" => json!({"event": "start", "start": {"streamId": "s", "callId": id}}),
        _ => json!({"event": "start", "start": {"stream_sid": "s", "call_sid": id, "account_sid": "a"}}),
    };
    let call = detect(&PROVIDERS, &start.to_string())
        .expect("a codec")
        .expect("a handshake");
    assert_eq!(call.provider, provider);
    call
}

fn webhook(provider: &Provider, id: &str) -> Proof {
    Proof::Webhook(CallKey::of(provider, id).to_string())
}

/// Without proof, a call of a signing provider is rejected, for any claim of the socket.
#[test]
fn rejects_a_protected_provider_without_proof() {
    for provider in [TWILIO, TELNYX, PLIVO] {
        let call = call(provider, "1");
        assert_eq!(Proof::Missing.admit(&call, &full()), Err(ProofError::Missing(provider)));
        for proof in [Proof::ApiKey, Proof::Signature(provider), webhook(provider, "1")] {
            assert_eq!(proof.admit(&call, &full()), Ok(()), "{proof:?}");
        }
    }
    assert_eq!(Proof::Missing.admit(&call(EXOTEL, "1"), &full()), Ok(()));
}

/// A token admits the call of its webhook: no other id is served or hung up.
#[test]
fn a_token_admits_its_own_call_only() {
    for named in PROVIDERS {
        for claimed in PROVIDERS {
            for id in ["1", "2", ""] {
                let is_same = named == claimed && id == "1";
                let admitted = webhook(named, "1").admit(&call(claimed, id), &full());
                assert_eq!(admitted.is_ok(), is_same, "{named:?} {claimed:?} {id}");
            }
        }
    }
    let other = Proof::Signature(TWILIO).admit(&call(PLIVO, "1"), &full());
    assert_eq!(other, Err(ProofError::Missing(PLIVO)));
}

/// Every credential authorises its socket, as admission control counts it.
#[test]
fn a_socket_with_a_credential_is_authorised() {
    assert!(!Proof::Missing.is_authorised() && !Proof::default().is_authorised());
    for proof in [Proof::Signature(TWILIO), webhook(TWILIO, "1"), Proof::ApiKey] {
        assert!(proof.is_authorised(), "{proof:?}");
    }
}

/// A stranger does not learn what the bot does with a call by claiming that it is simulated.
#[test]
fn only_the_operator_simulates_calls() {
    for provider in PROVIDERS {
        let [simulated, real] = ["simulated-1", "1"].map(|id| call(provider, id));
        let proofs = [
            Proof::Missing,
            Proof::Signature(provider),
            Proof::Webhook(String::new()),
            Proof::ApiKey,
        ];
        for (at, proof) in proofs.iter().enumerate() {
            assert!(proof.is_simulation(&simulated, false));
            assert_eq!(proof.is_simulation(&simulated, true), at == 3, "{proof:?}");
            assert!(!proof.is_simulation(&real, false));
        }
    }
}

/// Each provider has its own credential; a key that only hangs up verifies nothing.
#[test]
fn providers_without_verification_are_not_protected() {
    let key_alone = with([("TELCO_B_API_KEY", "key")]);
    let off = Telephony {
        verify_webhooks: false,
        ..full()
    };
    let switched = Telephony {
        unverified_calls: true,
        ..full()
    };
    for telephony in [Telephony::default(), key_alone, off, switched] {
        for provider in PROVIDERS {
            assert_eq!(Proof::Missing.admit(&call(provider, "1"), &telephony), Ok(()));
        }
    }
}

#[test]
fn keys_of_calls_differ_by_provider_and_id() {
    let keys: Vec<String> = PROVIDERS
        .iter()
        .flat_map(|provider| ["", "1", "11"].map(|id| CallKey::of(provider, id).to_string()))
        .collect();
    for (at, key) in keys.iter().enumerate() {
        assert!(key.len() == 32 && !keys[at + 1..].contains(key));
    }
}

/// The reason fits into a close frame; the log advises, without ids.
#[test]
fn a_rejection_advises_the_operator() {
    for (unproven, word) in [
        (ProofError::Missing(TWILIO), "no proof"),
        (ProofError::OtherCall(TWILIO), "another call"),
    ] {
        let reason = unproven.reason();
        assert!(reason.len() <= 123 && reason.contains(word), "{reason}");
    }
    let advice = ProofError::Missing(PLIVO).advice(Some("bots.example.net"));
    for part in ["telephony_c", "https://bots.example.net/", "--unverified-calls"] {
        assert!(advice.contains(part), "{advice}");
    }
}
