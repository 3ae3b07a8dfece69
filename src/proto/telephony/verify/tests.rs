//! Signatures computed independently by the rules of the providers, each also with one change.
//! Source: `docs/spec/telephony.md` 9.

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit as _, Mac as _};
use ring::signature::{Ed25519KeyPair, KeyPair};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::limits::{SIGNATURE_AGE_MAX_S, SIGNATURES_MAX};
use crate::server::form;
use crate::telephony::PROVIDERS;
use crate::telephony::named::{EXOTEL, PLIVO, TELNYX, TWILIO};
use crate::telephony::plivo::{MAIN_SIGNATURE as C_MAIN_SIGNATURE, NONCE as C_NONCE, SIGNATURE as C_SIGNATURE, signed};
use crate::telephony::settings::Settings;
use crate::telephony::signature::Fingerprint;
use crate::telephony::telnyx::{SIGNATURE as B_SIGNATURE, TIMESTAMP as B_TIMESTAMP};
use crate::telephony::twilio::{SIGNATURE as A_SIGNATURE, SIGNATURE_SETTINGS as A_SETTINGS, with_and_without_port};

/// The result that most tests check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Verified,
    NotChecked,
}

impl From<super::SignatureStatus> for Standing {
    fn from(status: super::SignatureStatus) -> Self {
        match status {
            super::SignatureStatus::Verified(_) => Standing::Verified,
            super::SignatureStatus::NotChecked => Standing::NotChecked,
        }
    }
}

const NOW_S: u64 = 1_795_252_753;

fn with<const N: usize>(settings: [(&'static str, &str); N]) -> Telephony {
    Telephony {
        settings: Settings::from(settings),
        ..Telephony::default()
    }
}

/// A request with its headers; names in lower case.
#[derive(Clone)]
struct Sent {
    url: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Sent {
    fn new(url: &str, headers: &[(&'static str, &str)], body: &[u8]) -> Self {
        Sent {
            url: url.into(),
            headers: headers
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect(),
            body: body.to_vec(),
        }
    }

    fn with(&self, name: &'static str, value: &str) -> Self {
        let mut changed = self.clone();
        changed.headers.retain(|(other, _)| *other != name);
        changed.headers.push((name, value.to_owned()));
        changed
    }

    fn without(&self, name: &str) -> Self {
        let mut changed = self.clone();
        changed.headers.retain(|(other, _)| *other != name);
        changed
    }

    fn at(&self, url: &str) -> Self {
        Sent {
            url: url.into(),
            ..self.clone()
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value.as_str())
    }

    fn verify(&self, provider: &Provider, telephony: &Telephony) -> Result<Standing, SignatureError> {
        self.verify_at(provider, telephony, NOW_S)
    }

    fn verify_at(&self, provider: &Provider, telephony: &Telephony, now_s: u64) -> Result<Standing, SignatureError> {
        self.judge_at(provider, telephony, now_s).map(Standing::from)
    }

    fn judge_at(
        &self,
        provider: &Provider,
        telephony: &Telephony,
        now_s: u64,
    ) -> Result<super::SignatureStatus, SignatureError> {
        let webhook = WebhookRequest {
            url: &self.url,
            header: &|name| self.header(name),
            body: &self.body,
        };
        verify(provider, telephony, &webhook, now_s)
    }

    fn fingerprint(&self, provider: &Provider, telephony: &Telephony) -> Fingerprint {
        match self.judge_at(provider, telephony, NOW_S) {
            Ok(super::SignatureStatus::Verified(fingerprint)) => fingerprint,
            other => panic!("{other:?}"),
        }
    }

    /// Flips one bit in every byte of the body in turn, and in every character of the headers.
    fn each_flipped(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for at in 0..self.body.len() {
            let mut changed = self.clone();
            changed.body[at] ^= 1;
            all.push(changed);
        }
        for (header, (name, value)) in self.headers.iter().enumerate() {
            if *name == "content-type" {
                continue;
            }
            for at in 0..value.len() {
                let mut changed = self.clone();
                let mut bytes = value.clone().into_bytes();
                bytes[at] ^= 1;
                changed.headers[header].1 = String::from_utf8(bytes).expect("ASCII stays ASCII");
                all.push(changed);
            }
        }
        all
    }
}

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded; charset=UTF-8");

fn a_telephony() -> Telephony {
    with([("TELCO_A_ACCOUNT_SID", "AC01"), ("TELCO_A_AUTH_TOKEN", "12345")])
}

fn a_webhook() -> Sent {
    Sent::new(
        "https://bots.example.net/?x=1",
        &[FORM, (A_SIGNATURE, "Je6A1DWCb/yHrzlhDUI00JGnKx8=")],
        b"To=%2B15550002222&From=%2B15550001111&CallStatus=ringing&CallSid=CA0123456789abcdef0123456789abcdef",
    )
}

/// Signs as Twilio does; the vector below verifies it.
fn a_sign(message: &str) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(b"12345").expect("a key");
    mac.update(message.as_bytes());
    BASE64.encode(&mac.finalize().into_bytes())
}

#[test]
fn twilio_signs_url_and_form() {
    let sent = a_webhook();
    assert_eq!(sent.verify(TWILIO, &a_telephony()), Ok(Standing::Verified));
    for changed in sent.each_flipped() {
        let outcome = changed.verify(TWILIO, &a_telephony());
        assert!(outcome.is_err(), "{:?} {:?}", changed.headers, changed.body);
    }
    let mut other = a_telephony();
    other.settings.set("TELCO_A_AUTH_TOKEN", "12346");
    for outcome in [
        sent.verify(TWILIO, &other),
        sent.at("https://other.example.net/?x=1").verify(TWILIO, &a_telephony()),
        sent.at("https://bots.example.net/?x=2").verify(TWILIO, &a_telephony()),
        sent.at("http://bots.example.net/?x=1").verify(TWILIO, &a_telephony()),
    ] {
        assert!(
            matches!(
                outcome,
                Err(SignatureError::Foreign {
                    header: A_SIGNATURE,
                    ..
                })
            ),
            "{outcome:?}"
        );
    }
    let unsigned = sent.without(A_SIGNATURE).verify(TWILIO, &a_telephony());
    assert_eq!(unsigned, Err(SignatureError::Missing { header: A_SIGNATURE }));
    let odd = sent.with(A_SIGNATURE, "no base64!").verify(TWILIO, &a_telephony());
    assert_eq!(odd, Err(SignatureError::Malformed { header: A_SIGNATURE }));
    let empty = sent.with(A_SIGNATURE, "").verify(TWILIO, &a_telephony());
    assert!(matches!(empty, Err(SignatureError::Foreign { .. })));
}

/// The default port may be present or absent on either side; other ports may be absent.
#[test]
fn twilio_may_sign_with_or_without_the_default_port() {
    let sent = a_webhook();
    for url in [
        "https://bots.example.net:443/?x=1",
        "https://bots.example.net:8443/?x=1",
    ] {
        assert_eq!(
            sent.at(url).verify(TWILIO, &a_telephony()),
            Ok(Standing::Verified),
            "{url}"
        );
    }
    for signed in ["https://h.example:443/ab", "https://h.example/ab"] {
        let sent = Sent::new("https://h.example/ab", &[(A_SIGNATURE, &a_sign(signed))], b"");
        assert_eq!(sent.verify(TWILIO, &a_telephony()), Ok(Standing::Verified), "{signed}");
    }
    let [_, without, with] = with_and_without_port("wss://[2001:db8::1]:80/ws?a=:1");
    assert_eq!(without, "wss://[2001:db8::1]/ws?a=:1");
    assert_eq!(with, "wss://[2001:db8::1]:443/ws?a=:1");
    let [_, without, with] = with_and_without_port("http://[2001:db8::1]?a");
    assert_eq!(
        (without.as_str(), with.as_str()),
        ("http://[2001:db8::1]?a", "http://[2001:db8::1]:80?a")
    );
}

/// Empty values count, repeated pairs count once, and upper case sorts before lower case.
#[test]
fn twilio_sorts_its_parameters() {
    let url = "https://h.example/";
    let signature = a_sign("https://h.example/BetaEmptyalpha1alpha2");
    let sent = Sent::new(
        url,
        &[FORM, (A_SIGNATURE, &signature)],
        b"alpha=2&Empty=&alpha=1&Beta=&alpha=2",
    );
    assert_eq!(sent.verify(TWILIO, &a_telephony()), Ok(Standing::Verified));
}

/// A body that is not a form is covered only by its hash in the query.
#[test]
fn twilio_signs_json_by_its_hash() {
    let body = br#"{"CallSid":"CA01"}"#;
    let hash = HEXLOWER_PERMISSIVE.encode(&Sha256::digest(body));
    let url = format!("https://h.example/?bodySHA256={hash}");
    let json = ("content-type", "application/json");
    let sent = Sent::new(&url, &[json, (A_SIGNATURE, &a_sign(&url))], body);
    assert_eq!(sent.verify(TWILIO, &a_telephony()), Ok(Standing::Verified));
    for changed in sent.each_flipped() {
        assert!(changed.verify(TWILIO, &a_telephony()).is_err());
    }
    let other_hash = url.replace(&hash, &"0".repeat(64));
    let sent = Sent::new(&other_hash, &[json, (A_SIGNATURE, &a_sign(&other_hash))], body);
    let outcome = sent.verify(TWILIO, &a_telephony());
    assert_eq!(outcome, Err(SignatureError::ForeignBody { header: A_SIGNATURE }));
    // Signed without a hash: the body is not covered.
    let bare = "https://h.example/";
    let sent = Sent::new(bare, &[json, (A_SIGNATURE, &a_sign(bare))], body);
    assert!(sent.verify(TWILIO, &a_telephony()).is_err());
}

/// The parameters of a form are signed, whatever its URL contains.
#[test]
fn twilio_signs_a_form_by_its_parameters_even_beside_a_hash() {
    let body = b"CallSid=CA01";
    let hash = HEXLOWER_PERMISSIVE.encode(&Sha256::digest(body));
    for hash in [hash.as_str(), "0"] {
        let url = format!("https://h.example/?bodySHA256={hash}");
        let signed = |message: &str| Sent::new(&url, &[FORM, (A_SIGNATURE, &a_sign(message))], body);
        let whole = signed(&format!("{url}CallSidCA01")).verify(TWILIO, &a_telephony());
        assert_eq!(whole, Ok(Standing::Verified), "{url}");
        let url_alone = signed(&url).verify(TWILIO, &a_telephony());
        assert!(
            matches!(url_alone, Err(SignatureError::Foreign { .. })),
            "{url_alone:?}"
        );
    }
}

#[test]
fn distinguishes_a_separate_key_from_a_wrong_token() {
    let sent = a_webhook().with(A_SETTINGS, "key=k1,algorithm=HMAC_SHA256");
    assert_eq!(sent.verify(TWILIO, &a_telephony()), Ok(Standing::Verified));
    let other = sent.with(A_SIGNATURE, &a_sign("something else"));
    assert_eq!(
        other.verify(TWILIO, &a_telephony()),
        Err(SignatureError::OtherKey { header: A_SETTINGS })
    );
}

/// Twilio also signs the upgrade of its media socket, with or without a trailing slash.
#[test]
fn verifies_a_signed_upgrade() {
    let telephony = a_telephony();
    let url = "wss://bots.example.net/ws";
    let signature = "lSY1FtgclpU49kSp82uKi0xxgCg=".to_owned();
    let sent = |signature: &str| Sent::new(url, &[(A_SIGNATURE, signature)], b"");
    let ask = |known, sent: &Sent, url: &str| {
        verify_upgrade(&PROVIDERS, known, &telephony, url, &|name| sent.header(name)).map(|signed| match signed {
            Some(provider) => {
                assert_eq!(provider, TWILIO);
                Standing::Verified
            }
            None => Standing::NotChecked,
        })
    };
    let check = |sent: &Sent, url: &str| ask(Some(TWILIO), sent, url);
    assert_eq!(check(&sent(&signature), url), Ok(Standing::Verified));
    assert_eq!(
        check(&sent(&signature), "wss://bots.example.net/ws/"),
        Ok(Standing::Verified)
    );
    assert_eq!(
        check(&sent(&a_sign("wss://bots.example.net/ws/")), url),
        Ok(Standing::Verified)
    );
    for changed in sent(&signature).each_flipped() {
        assert!(check(&changed, url).is_err());
        // If the URL is not certain, an invalid signature is ignored.
        for known in [None, Some(TELNYX)] {
            assert_eq!(ask(known, &changed, url), Ok(Standing::NotChecked));
        }
    }
    let with_token = check(&sent(&signature), "wss://bots.example.net/ws/secret-token");
    let words = with_token.expect_err("another URL").to_string();
    assert!(
        words.contains("wss://bots.example.net/ws") && !words.contains("secret-token"),
        "{words}"
    );
    // Other providers use the same path, and do not sign the upgrade.
    assert_eq!(check(&sent("").without(A_SIGNATURE), url), Ok(Standing::NotChecked));
    let unconfigured = Telephony::default();
    let header = |name: &str| (name == A_SIGNATURE).then_some("x");
    assert_eq!(
        verify_upgrade(&PROVIDERS, Some(TWILIO), &unconfigured, url, &header),
        Ok(None)
    );
}

const B_KEY: &str = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";

fn b_telephony() -> Telephony {
    with([("TELCO_B_PUBLIC_KEY", B_KEY)])
}

fn b_webhook() -> Sent {
    Sent::new(
        "https://bots.example.net/",
        &[
            (
                B_SIGNATURE,
                "6vQbSw1ec3XKkTWjYEm9jwrmUYtfDfEfXt/Tr2fMADeT3S37QTpsgTcOP0xDRkfZY54COCLkUmuoozgHZ0+7Ag==",
            ),
            (B_TIMESTAMP, "1795252753"),
        ],
        br#"{"data":{"event_type":"call.initiated"}}"#,
    )
}

#[test]
fn telnyx_signs_time_and_body() {
    let sent = b_webhook();
    assert_eq!(sent.verify(TELNYX, &b_telephony()), Ok(Standing::Verified));
    for changed in sent.each_flipped() {
        assert!(changed.verify(TELNYX, &b_telephony()).is_err());
    }
    let elsewhere = sent.at("https://other.example.net/ignored");
    assert_eq!(elsewhere.verify(TELNYX, &b_telephony()), Ok(Standing::Verified));
    for header in [B_SIGNATURE, B_TIMESTAMP] {
        let outcome = sent.without(header).verify(TELNYX, &b_telephony());
        assert_eq!(outcome, Err(SignatureError::Missing { header }));
        let outcome = sent.with(header, "-?").verify(TELNYX, &b_telephony());
        assert_eq!(outcome, Err(SignatureError::Malformed { header }));
    }
    let mut other = b_telephony();
    other.settings.set("TELCO_B_PUBLIC_KEY", BASE64.encode(&[7; 32]));
    let outcome = sent.verify(TELNYX, &other);
    assert_eq!(outcome, Err(SignatureError::ForeignBody { header: B_SIGNATURE }));
}

#[test]
fn telnyx_signatures_are_valid_for_five_minutes() {
    let sent = b_webhook();
    let limit = SIGNATURE_AGE_MAX_S;
    for now_s in [NOW_S - limit, NOW_S, NOW_S + limit] {
        let outcome = sent.verify_at(TELNYX, &b_telephony(), now_s);
        assert_eq!(outcome, Ok(Standing::Verified));
    }
    for now_s in [NOW_S - limit - 1, NOW_S + limit + 1] {
        let outcome = sent.verify_at(TELNYX, &b_telephony(), now_s);
        assert_eq!(outcome, Err(SignatureError::Stale { off_s: limit + 1 }));
    }
    assert!(sent.verify_at(TELNYX, &b_telephony(), 0).is_err());
    assert!(sent.verify_at(TELNYX, &b_telephony(), u64::MAX).is_err());
}

/// Telnyx signs calls that arrive as forms (TeXML) in the same way, including an empty body.
#[test]
fn telnyx_signs_any_body() {
    let seed: Vec<u8> = (0..32).collect();
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("a seed");
    assert_eq!(BASE64.encode(pair.public_key().as_ref()), B_KEY);
    for body in [&b""[..], b"CallSid=1&From=%2B1", &[0xff, 0x00]] {
        let message = [b"1795252753|", body].concat();
        let signature = BASE64.encode(pair.sign(&message).as_ref());
        let sent = Sent::new("", &[(B_SIGNATURE, &signature), (B_TIMESTAMP, "1795252753")], body);
        assert_eq!(sent.verify(TELNYX, &b_telephony()), Ok(Standing::Verified));
    }
}

fn c_telephony() -> Telephony {
    with([("TELCO_C_AUTH_ID", "AC01"), ("TELCO_C_AUTH_TOKEN", "plivo-token")])
}

fn c_webhook(url: &str, signature: &str) -> Sent {
    Sent::new(
        url,
        &[FORM, (C_SIGNATURE, signature), (C_NONCE, "05429567804466091622")],
        b"To=15550002222&CallUUID=7b1f&From=15550001111",
    )
}

const C_URL: &str = "https://bots.example.net/";
const C_GOOD: &str = "rDIEqv1z2xHyti6VisbP5qPDw6tQBuOVkvSbCm0bGpg=";

#[test]
fn plivo_signs_url_form_and_nonce() {
    let with_query = c_webhook(
        "https://bots.example.net/?b=2&a=1",
        "QlSXbTMp728cnoWxOkc9Lj5J0RJcFqQJA7Wo7NyYVu4=",
    );
    for sent in [c_webhook(C_URL, C_GOOD), with_query] {
        assert_eq!(sent.verify(PLIVO, &c_telephony()), Ok(Standing::Verified));
        for changed in sent.each_flipped() {
            assert!(changed.verify(PLIVO, &c_telephony()).is_err(), "{:?}", changed.headers);
        }
        let elsewhere = sent.at("https://other.example.net/").verify(PLIVO, &c_telephony());
        assert!(matches!(
            elsewhere,
            Err(SignatureError::Foreign {
                header: C_SIGNATURE,
                ..
            })
        ));
    }
    let sent = c_webhook(C_URL, C_GOOD);
    for header in [C_SIGNATURE, C_NONCE] {
        let outcome = sent.without(header).verify(PLIVO, &c_telephony());
        assert_eq!(outcome, Err(SignatureError::Missing { header }));
    }
}

/// While tokens are rotated, a header lists one signature for each; that of the main account is in
/// a separate header.
#[test]
fn plivo_may_send_several_signatures() {
    let other = "AAAAqv1z2xHyti6VisbP5qPDw6tQBuOVkvSbCm0bGpg=";
    for list in [
        format!("{other},{C_GOOD}"),
        format!("{C_GOOD},{other}"),
        format!("not base64, {C_GOOD} ,,"),
        format!("{}{C_GOOD}", format!("{other},").repeat(SIGNATURES_MAX - 1)),
    ] {
        let sent = c_webhook(C_URL, &list);
        assert_eq!(sent.verify(PLIVO, &c_telephony()), Ok(Standing::Verified), "{list}");
    }
    for list in [
        format!("{other},{other}"),
        format!("{}{C_GOOD}", format!("{other},").repeat(SIGNATURES_MAX)),
        String::new(),
    ] {
        assert!(c_webhook(C_URL, &list).verify(PLIVO, &c_telephony()).is_err(), "{list}");
    }
    let main = c_webhook(C_URL, other).with(C_MAIN_SIGNATURE, C_GOOD);
    assert_eq!(main.verify(PLIVO, &c_telephony()), Ok(Standing::Verified));
    let only_main = main.without(C_SIGNATURE);
    assert_eq!(only_main.verify(PLIVO, &c_telephony()), Ok(Standing::Verified));
}

/// Signed texts as the provider's validator builds them.
#[test]
fn the_signed_text_of_plivo_has_its_separators() {
    let base = |query, body: &str| signed("https://h/p", query, &form::parse(body.as_bytes()));
    assert_eq!(base(None, ""), "https://h/p");
    assert_eq!(base(Some("b=2&a=1&a=0"), ""), "https://h/p?a=0&a=1&b=2");
    assert_eq!(base(None, "b=%2B2&a="), "https://h/p?ab+2");
    assert_eq!(base(Some("q=%20"), "b=2&a=1"), "https://h/p?q= .a1b2");
    assert_eq!(base(Some(""), ""), "https://h/p");
}

/// Credentials and the verification option decide, and the result shows which.
#[test]
fn checks_nothing_without_a_credential_or_if_disabled() {
    let forged = Sent::new("https://bots.example.net/", &[], b"From=1");
    let full = with([
        ("TELCO_A_ACCOUNT_SID", "AC01"),
        ("TELCO_A_AUTH_TOKEN", "12345"),
        ("TELCO_B_PUBLIC_KEY", B_KEY),
        ("TELCO_C_AUTH_ID", "AC01"),
        ("TELCO_C_AUTH_TOKEN", "plivo-token"),
    ]);
    for provider in [TWILIO, TELNYX, PLIVO] {
        let nothing = forged.verify(provider, &Telephony::default());
        assert_eq!(nothing, Ok(Standing::NotChecked));
        assert!(forged.verify(provider, &full).is_err());
        let unwanted = Telephony {
            verify_webhooks: false,
            ..full.clone()
        };
        assert_eq!(forged.verify(provider, &unwanted), Ok(Standing::NotChecked));
    }
    assert_eq!(forged.verify(EXOTEL, &full), Ok(Standing::NotChecked));
}

/// The log text contains the URL, since a wrong `--proxy` is the usual mistake, but neither query
/// nor form.
#[test]
fn a_rejection_names_the_url_without_its_query() {
    let sent = a_webhook().at("https://wrong.example.net/?x=secret");
    let words = sent
        .verify(TWILIO, &a_telephony())
        .expect_err("a wrong host")
        .to_string();
    assert!(
        words.contains("https://wrong.example.net/;") && words.contains("--proxy"),
        "{words}"
    );
    for secret in ["secret", "5550001111", "12345", "Je6A1"] {
        assert!(!words.contains(secret), "{words}");
    }
    let sent = c_webhook("https://wrong.example.net/?x=secret", C_GOOD);
    let words = sent
        .verify(PLIVO, &c_telephony())
        .expect_err("a wrong host")
        .to_string();
    assert!(
        words.contains("https://wrong.example.net/;") && !words.contains("secret"),
        "{words}"
    );
}

/// A captured webhook is recognised in any form; another webhook of the same call differs.
#[test]
fn a_repeated_webhook_has_the_same_fingerprint() {
    let (sent, telephony) = (a_webhook(), a_telephony());
    let turned = Sent {
        body: b"CallSid=CA0123456789abcdef0123456789abcdef&CallStatus=ringing&CallStatus=ringing&From=%2b15550001111\
                &To=%2B15550002222&"
            .to_vec(),
        ..sent.with(A_SIGNATURE, " Je6A1DWCb/yHrzlhDUI00JGnKx8= ")
    };
    let first = sent.fingerprint(TWILIO, &telephony);
    assert_eq!(turned.fingerprint(TWILIO, &telephony), first);

    let (sent, telephony) = (c_webhook(C_URL, C_GOOD), c_telephony());
    let again = sent.fingerprint(PLIVO, &telephony);
    assert_ne!(again, first);
    for dressed in [
        sent.with(C_SIGNATURE, &format!("AAAA,{C_GOOD},{C_GOOD}")),
        sent.with(C_MAIN_SIGNATURE, C_GOOD),
        sent.without(C_SIGNATURE).with(C_MAIN_SIGNATURE, C_GOOD),
    ] {
        assert_eq!(dressed.fingerprint(PLIVO, &telephony), again);
    }
}
