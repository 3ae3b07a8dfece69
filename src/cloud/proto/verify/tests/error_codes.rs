//! C-066 to C-073, C-085, C-092, I-06: each row changes a valid form; the first failed check
//! decides.

use super::*;

/// Status and code.
type Verdict = (u16, &'static str);
/// What the form is, its verdict, a part of the text of the error, and the change that makes it.
type Row = (&'static str, Verdict, &'static str, fn(&mut Case));

const OK: Verdict = (204, "");
const DENIED: Verdict = (403, "AccessDenied");
const ARGUMENT: Verdict = (400, "InvalidArgument");
const SIGNATURE: Verdict = (403, "SignatureDoesNotMatch");
const POLICY: Verdict = (400, "InvalidPolicyDocument");
const MALFORMED: Verdict = (400, "MalformedPOSTRequest");
const FILES: Verdict = (400, "IncorrectNumberOfFilesInPostRequest");

fn assert_verdicts(rows: &[Row]) {
    for (what, (status, code), text, change) in rows {
        let mut case = Case::new();
        change(&mut case);
        match case.run() {
            Ok((verified, bytes)) => {
                assert_eq!(*status, 204, "{what} is taken");
                assert_eq!((verified.org.as_str(), verified.upload), ("org-7", upload()), "{what}");
                assert_eq!(bytes, case.files[0].1.len() as u64, "{what}");
            }
            Err(fault) => {
                assert_eq!((fault.status, fault.code), (*status, *code), "{what}: {}", fault.text);
                assert!(fault.text.contains(text), "{what}: {}", fault.text);
                // I-22: no message contains a secret.
                for field in ["Policy", "X-Store-Signature", "X-Store-Security-Token"] {
                    let value = case.fields.iter().find(|(name, _)| name == field);
                    assert!(
                        value.is_none_or(|(_, value)| value.len() < 9 || !fault.text.contains(value)),
                        "{what}"
                    );
                }
            }
        }
    }
}

/// Order, headers, ignored fields and sizes may differ.
#[test]
fn valid_forms_are_taken() {
    assert_verdicts(&[
        ("as it is", OK, "", |_| {}),
        ("fields in another order", OK, "", |case| case.fields.reverse()),
        ("types on parts", OK, "", |case| {
            case.header = "Content-Type: text/plain; charset=utf-8\r\n";
        }),
        ("an ignored field", OK, "", |case| case.add("x-ignore-me", "1")),
        ("a field behind the file", OK, "", |case| {
            case.late = vec![("submit".into(), "1".into())]
        }),
        ("the largest file", OK, "", |case| case.files[0].1 = gzip(MAX as usize)),
        ("the smallest file", OK, "", |case| case.files[0].1 = gzip(2)),
        ("in the last millisecond", OK, "", |case| {
            (case.began_ms, case.ended_ms) = (ENDS_MS - 1, ENDS_MS - 1);
        }),
    ]);
}

/// Step 1: the body is a form.
#[test]
fn a_body_that_is_no_form_is_rejected() {
    assert_verdicts(&[
        (
            "another type",
            (412, "PreconditionFailed"),
            "multipart/form-data",
            |case| {
                case.content_type = "application/x-www-form-urlencoded".into();
            },
        ),
        ("no boundary", (412, "PreconditionFailed"), "boundary", |case| {
            case.content_type = "multipart/form-data".into();
        }),
        ("another boundary", MALFORMED, "ends before", |case| {
            case.content_type = "multipart/form-data; boundary=C".into();
        }),
        ("cut off", MALFORMED, "ends before its last boundary", |case| {
            case.close = ""
        }),
        ("a broken header", MALFORMED, "header", |case| {
            case.header = "no colon\r\n"
        }),
    ]);
}

/// Step 2: the fields before the file are short and stand once.
#[test]
fn long_and_repeated_fields_are_rejected() {
    assert_verdicts(&[
        ("long fields", (400, "MaxPostPreDataLengthExceeded"), "20000", |case| {
            case.add("x-ignore-me", &"x".repeat(20_000));
        }),
        ("a field twice", ARGUMENT, "\"key\" twice", |case| {
            case.add("key", "other")
        }),
        ("an ignored field twice", ARGUMENT, "twice", |case| {
            case.add("x-ignore-me", "1");
            case.add("x-ignore-me", "1");
        }),
    ]);
}

/// Step 3: the form has one file, behind its fields.
#[test]
fn a_form_has_one_file() {
    assert_verdicts(&[
        ("no file", FILES, "no part named", |case| case.files.clear()),
        ("no file and no key", FILES, "no part named", |case| {
            case.files.clear();
            case.remove("key");
        }),
        ("two files", FILES, "second", |case| case.files.push(("file", gzip(10)))),
        ("a file of another name", FILES, "no part named", |case| {
            case.files[0].0 = "File"
        }),
        ("fields behind the file", DENIED, "authentication error", |case| {
            case.late = std::mem::take(&mut case.fields);
        }),
    ]);
}

/// Step 4; C-072: each field is there, in its own case.
#[test]
fn every_field_is_required_in_its_own_case() {
    assert_verdicts(&[
        (
            "no key",
            DENIED,
            "authentication error: the form has no field \"key\"",
            |case| case.remove("key"),
        ),
        ("no bucket", DENIED, "\"bucket\"", |case| case.remove("bucket")),
        ("no policy", DENIED, "\"Policy\"", |case| case.remove("Policy")),
        ("no algorithm", DENIED, "\"X-Store-Algorithm\"", |case| {
            case.remove("X-Store-Algorithm")
        }),
        ("no credential", DENIED, "\"X-Store-Credential\"", |case| {
            case.remove("X-Store-Credential")
        }),
        ("no date", DENIED, "\"X-Store-Date\"", |case| {
            case.remove("X-Store-Date")
        }),
        ("no token", DENIED, "\"X-Store-Security-Token\"", |case| {
            case.remove("X-Store-Security-Token")
        }),
        ("no signature", DENIED, "\"X-Store-Signature\"", |case| {
            case.remove("X-Store-Signature")
        }),
        ("a field in lower case", DENIED, "case-sensitive", |case| {
            case.rename("Policy", "policy")
        }),
        ("key in upper case", DENIED, "case-sensitive", |case| {
            case.rename("key", "Key")
        }),
    ]);
}

/// Step 5: algorithm, credential and date agree, and the key is known.
#[test]
fn the_credential_names_day_region_and_key() {
    assert_verdicts(&[
        ("another algorithm", ARGUMENT, "STORE4-HMAC-SHA256", |case| {
            case.set("X-Store-Algorithm", "STORE4-HMAC-SHA1");
        }),
        ("four parts in the credential", ARGUMENT, "X-Store-Credential", |case| {
            case.set("X-Store-Credential", "SKEXAMPLE01/20261121/us-west/store");
        }),
        ("six parts in the credential", ARGUMENT, "X-Store-Credential", |case| {
            case.set(
                "X-Store-Credential",
                "SKEXAMPLE01/20261121/us-west/store/store4_request/",
            );
        }),
        ("no key in the credential", ARGUMENT, "X-Store-Credential", |case| {
            case.set("X-Store-Credential", "/20261121/us-west/store/store4_request");
        }),
        ("another day in the credential", ARGUMENT, "day", |case| {
            case.set(
                "X-Store-Credential",
                "SKEXAMPLE01/20261120/us-west/store/store4_request",
            );
        }),
        ("another day in the date", ARGUMENT, "day", |case| {
            case.set("X-Store-Date", "20261122T120000Z")
        }),
        ("a date in the long form", ARGUMENT, "X-Store-Date", |case| {
            case.set("X-Store-Date", "2026-11-21T12:00Z");
        }),
        ("a region that is none", ARGUMENT, "REGION", |case| {
            case.set(
                "X-Store-Credential",
                "SKEXAMPLE01/20261121/us west/store/store4_request",
            );
        }),
        ("another service", ARGUMENT, "/store/", |case| {
            case.set("X-Store-Credential", "SKEXAMPLE01/20261121/us-west/s3/store4_request");
        }),
        ("another terminator", ARGUMENT, "store4_request", |case| {
            case.set("X-Store-Credential", "SKEXAMPLE01/20261121/us-west/store/aws4_request");
        }),
        (
            "an unknown key",
            (403, "InvalidAccessKeyId"),
            "X-Store-Credential",
            |case| {
                case.set(
                    "X-Store-Credential",
                    "SKEXAMPLE02/20261121/us-west/store/store4_request",
                );
            },
        ),
    ]);
}

/// Step 6: the signature is that of this policy, key and region.
#[test]
fn the_signature_covers_the_policy() {
    assert_verdicts(&[
        ("one digit of the signature", SIGNATURE, "", |case| {
            let changed = if case.value("X-Store-Signature").starts_with('0') {
                "1"
            } else {
                "0"
            };
            case.value("X-Store-Signature").replace_range(..1, changed);
        }),
        ("the signature in upper case", SIGNATURE, "", |case| {
            let upper = case.value("X-Store-Signature").to_uppercase();
            case.set("X-Store-Signature", &upper);
        }),
        ("the signature of another region", SIGNATURE, "", |case| {
            case.sign("us-east")
        }),
        ("another region in the credential", SIGNATURE, "", |case| {
            case.set(
                "X-Store-Credential",
                "SKEXAMPLE01/20261121/us-east/store/store4_request",
            );
        }),
        ("a space in the policy", SIGNATURE, "", |case| {
            let document = BASE64.decode(case.value("Policy").as_bytes()).expect("base64");
            let spaced = String::from_utf8(document).expect("UTF-8").replacen(',', ", ", 1);
            case.set("Policy", &BASE64.encode(spaced.as_bytes()));
        }),
        ("a policy that is not base64, unsigned", SIGNATURE, "", |case| {
            case.set("Policy", "!")
        }),
    ]);
}

/// Step 7: the policy can be read, and has not expired.
#[test]
fn the_policy_is_readable_and_not_expired() {
    assert_verdicts(&[
        ("a policy that is not base64", POLICY, "base64", |case| {
            case.set("Policy", "!");
            case.sign("us-west");
        }),
        ("a policy that is no JSON", POLICY, "JSON", |case| {
            case.policy(|_| "no JSON".into())
        }),
        ("an unknown condition", POLICY, "conditions", |case| {
            case.policy(|text| text.replace("content-length-range", "content-length"));
        }),
        ("expired since this millisecond", DENIED, "Policy expired", |case| {
            case.began_ms = ENDS_MS
        }),
        ("expired for a second", DENIED, "Policy expired", |case| {
            case.began_ms = ENDS_MS + 1_000
        }),
    ]);
}

/// Step 8: each field has the value of the policy, and there are no others.
#[test]
fn fields_are_those_of_the_policy() {
    assert_verdicts(&[
        ("another key", DENIED, "\"$key\"", |case| {
            case.set("key", "org-8/u.tar.gz")
        }),
        ("another bucket", DENIED, "\"$bucket\"", |case| {
            case.set("bucket", "images")
        }),
        ("another type; C-070", DENIED, "\"$Content-Type\"", |case| {
            case.set("Content-Type", "text/plain")
        }),
        ("no type", DENIED, "\"$Content-Type\"", |case| {
            case.remove("Content-Type")
        }),
        ("type in lower case", DENIED, "\"$Content-Type\"", |case| {
            case.rename("Content-Type", "content-type");
        }),
        ("another time of the day", DENIED, "\"$X-Store-Date\"", |case| {
            case.set("X-Store-Date", "20261121T120001Z");
        }),
        ("another token", DENIED, "\"$X-Store-Security-Token\"", |case| {
            case.set("X-Store-Security-Token", "session-token-1");
        }),
        (
            "an extra field",
            DENIED,
            "Extra input fields: success_action_status",
            |case| {
                case.add("success_action_status", "201");
            },
        ),
    ]);
}

/// Step 8: the token and the place are those of this upload.
#[test]
fn the_token_is_that_of_this_upload() {
    assert_verdicts(&[
        (
            "a token that no key signed",
            DENIED,
            "not one of this service",
            |case| {
                let token = case.value("X-Store-Security-Token").clone();
                case.set("X-Store-Security-Token", "session-token-1");
                case.policy(|text| text.replace(&token, "session-token-1"));
            },
        ),
        (
            "an expired token",
            DENIED,
            "X-Store-Security-Token is expired",
            |case| {
                case.policy(|text| text.replace("2026-11-21T12:15:00.000Z", "2026-11-21T13:00:00.000Z"));
                case.began_ms = ENDS_MS;
            },
        ),
        ("the token of another upload", DENIED, "was made for", |case| {
            let other = issue("org-8", "us-west", ENDS_MS, NOW_MS);
            let other = other
                .iter()
                .find(|(name, _)| name == "X-Store-Security-Token")
                .expect("a token")
                .1
                .clone();
            let own = case.value("X-Store-Security-Token").clone();
            case.set("X-Store-Security-Token", &other);
            case.policy(|text| text.replace(&own, &other));
        }),
        (
            "a bucket that was signed and is not this one",
            DENIED,
            "bucket or key",
            |case| {
                case.set("bucket", "images");
                case.policy(|text| text.replace("build-contexts", "images"));
            },
        ),
    ]);
}

/// Steps 9 and 10: size, content and end of the file.
#[test]
fn the_file_is_a_gzip_of_the_signed_size() {
    assert_verdicts(&[
        (
            "a file one byte too large; C-071, C-092",
            (400, "EntityTooLarge"),
            "100 bytes",
            |case| {
                case.files[0].1 = gzip(MAX as usize + 1);
            },
        ),
        (
            "larger than the service allows",
            (400, "EntityTooLarge"),
            "1000 bytes",
            |case| {
                case.policy(|text| text.replace("1,100]", "1,100000]"));
                case.files[0].1 = gzip(1_001);
            },
        ),
        ("an empty file", (400, "EntityTooSmall"), "1 bytes", |case| {
            case.files[0].1.clear()
        }),
        ("no gzip; C-069", ARGUMENT, "1f 8b", |case| {
            case.files[0].1 = b"PK\x03\x04".to_vec()
        }),
        ("half of a gzip's beginning", ARGUMENT, "1f 8b", |case| {
            case.files[0].1 = vec![0x1f]
        }),
        ("the end is too late; C-073", DENIED, "Policy expired", |case| {
            case.ended_ms = ENDS_MS
        }),
        ("two files, the first no gzip", ARGUMENT, "1f 8b", |case| {
            case.files = vec![("file", b"PK".to_vec()), ("file", gzip(10))];
        }),
    ]);
}
