//! Tests of each verification step, with the time as a value.

use data_encoding::BASE64;

use super::*;
use crate::proto::build::Slug;
use crate::proto::grant::GrantTerms;
use crate::proto::sign::SigningKey;
use edge_runner_proto::server::multipart::{self, MultipartEvent, MultipartParser};

const NOW_MS: u64 = 1_795_262_400_000; // 2026-11-21T12:00:00Z
const ENDS_MS: u64 = NOW_MS + 900_000;
const SECRET: &[u8] = b"store-secret-for-tests";
const MAX: u64 = 100;

fn signing() -> GrantSigner {
    GrantSigner::Fixed(SigningKey {
        id: "SKEXAMPLE01".into(),
        secret: SECRET.to_vec(),
    })
}

fn name(text: &str) -> Slug {
    Slug::parse(text).expect("a name")
}

fn upload() -> Uuid {
    Uuid::parse("0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11").expect("a UUID")
}

fn issue(org: &str, region: &str, expires_ms: u64, now_ms: u64) -> Vec<(String, String)> {
    let terms = GrantTerms {
        org: &name(org),
        upload: upload(),
        region: &name(region),
        url: "http://localhost/build-contexts",
        size_max: MAX,
        expires_ms,
    };
    let grant = grant::issue(&signing(), &terms, now_ms);
    let json = serde_json::to_value(&grant.upload_fields).expect("JSON");
    let fields = json.as_object().expect("an object").iter();
    fields
        .map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned()))
        .collect()
}

/// A form and its expected result.
#[derive(Clone)]
struct Case {
    content_type: String,
    fields: Vec<(String, String)>,
    /// Parts after the fields: name and content.
    files: Vec<(&'static str, Vec<u8>)>,
    /// Fields after the file.
    late: Vec<(String, String)>,
    /// A header added to every field.
    header: &'static str,
    /// The closing delimiter.
    close: &'static str,
    began_ms: u64,
    ended_ms: u64,
}

fn gzip(bytes: usize) -> Vec<u8> {
    let mut file = vec![0; bytes];
    file[..2].copy_from_slice(&GZIP);
    file
}

impl Case {
    fn new() -> Case {
        Case {
            content_type: "multipart/form-data; boundary=B".into(),
            fields: issue("org-7", "us-west", ENDS_MS, NOW_MS),
            files: vec![("file", gzip(10))],
            late: Vec::new(),
            header: "",
            close: "--B--\r\n",
            began_ms: NOW_MS,
            ended_ms: NOW_MS + 1,
        }
    }

    fn value(&mut self, name: &str) -> &mut String {
        let field = self.fields.iter_mut().find(|(field, _)| field == name);
        &mut field.expect("a field of the grant").1
    }

    fn set(&mut self, name: &str, value: &str) {
        *self.value(name) = value.into();
    }

    fn rename(&mut self, from: &str, to: &str) {
        let field = self.fields.iter_mut().find(|(field, _)| field == from);
        field.expect("a field of the grant").0 = to.into();
    }

    fn remove(&mut self, name: &str) {
        self.fields.retain(|(field, _)| field != name);
    }

    fn add(&mut self, name: &str, value: &str) {
        self.fields.push((name.into(), value.into()));
    }

    /// Changes the policy and signs it again.
    fn policy(&mut self, change: impl Fn(&str) -> String) {
        let document = BASE64.decode(self.value("Policy").as_bytes()).expect("base64");
        let changed = change(str::from_utf8(&document).expect("UTF-8"));
        self.set("Policy", &BASE64.encode(changed.as_bytes()));
        self.sign("us-west");
    }

    fn sign(&mut self, region: &str) {
        let policy = self.value("Policy").clone();
        let signature = STORE.sign(SECRET, "20261121", region, policy.as_bytes());
        self.set("X-Store-Signature", &signature);
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut part = |name: &str, content: &[u8]| {
            let head = format!("Content-Disposition: form-data; name=\"{name}\"\r\n{}", self.header);
            body.extend([b"--B\r\n", head.as_bytes(), b"\r\n", content, b"\r\n"].concat());
        };
        for (name, value) in &self.fields {
            part(name, value.as_bytes());
        }
        for (name, content) in &self.files {
            part(name, content);
        }
        for (name, value) in &self.late {
            part(name, value.as_bytes());
        }
        body.extend(self.close.as_bytes());
        body
    }

    /// Processes the form like the service.
    fn run(&self) -> Result<(VerifiedUpload, u64), ApiError> {
        let boundary = multipart::boundary(self.content_type.as_bytes()).ok_or_else(no_form)?;
        let mut parser = MultipartParser::new(&boundary);
        let mut form = UploadForm::default();
        let mut taken: Option<(VerifiedUpload, FileCheck)> = None;
        for piece in self.body().chunks(7) {
            parser.push::<ApiError>(piece, &mut |event| {
                match event {
                    MultipartEvent::Field { name, value } => form.add(name, value)?,
                    MultipartEvent::File => {
                        let verified = form.verify(&signing(), self.began_ms)?;
                        let check = FileCheck::new(&verified, 1_000);
                        taken = Some((verified, check));
                    }
                    MultipartEvent::Data(data) => taken.as_mut().expect("a file").1.handle_data(data)?,
                    MultipartEvent::FileEnd | MultipartEvent::End => {}
                }
                Ok(())
            })?;
        }
        parser.finish()?;
        let (verified, check) = taken.expect("a form that is whole has a file");
        let bytes = check.handle_end(self.ended_ms)?;
        Ok((verified, bytes))
    }
}

/// C-066 to C-073, C-085, C-092, I-06: each row changes a valid form; the first failed check
/// decides.
#[test]
fn every_error_code_is_returned() {
    const OK: (u16, &str) = (204, "");
    const DENIED: (u16, &str) = (403, "AccessDenied");
    const ARGUMENT: (u16, &str) = (400, "InvalidArgument");
    const SIGNATURE: (u16, &str) = (403, "SignatureDoesNotMatch");
    const POLICY: (u16, &str) = (400, "InvalidPolicyDocument");
    const MALFORMED: (u16, &str) = (400, "MalformedPOSTRequest");
    const FILES: (u16, &str) = (400, "IncorrectNumberOfFilesInPostRequest");
    type Row = (&'static str, (u16, &'static str), &'static str, fn(&mut Case));
    let rows: &[Row] = &[
        // Valid forms.
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
        // Step 1.
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
        // Step 2.
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
        // Step 3.
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
        // Step 4; C-072.
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
        // Step 5.
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
        // Step 6.
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
        // Step 7.
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
        // Step 8.
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
        // Steps 9 and 10.
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
    ];
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

/// C-068: every field of the grant is required unchanged, in any order.
#[test]
fn every_field_is_required_unchanged() {
    let fields = Case::new().fields;
    assert_eq!(fields.len(), 9);
    for (name, value) in fields {
        let mut without = Case::new();
        without.remove(&name);
        assert_eq!(without.run().expect_err("a field is missing").status, 403, "{name}");
        for changed in [format!("{value} "), value[1..].to_owned(), String::new()] {
            let mut case = Case::new();
            case.set(&name, &changed);
            let fault = case.run().expect_err("a field is changed");
            assert!(matches!(fault.status, 400 | 403), "{name}: {fault:?}");
        }
    }
}

/// The magic number may arrive byte by byte.
#[test]
fn the_magic_number_may_arrive_byte_by_byte() {
    let verified = Case::new().run().expect("it is taken").0;
    let message = |pieces: &[&[u8]]| {
        let mut check = FileCheck::new(&verified, u64::MAX);
        pieces
            .iter()
            .try_for_each(|piece| check.handle_data(piece))
            .and_then(|()| check.handle_end(NOW_MS))
            .map_err(|fault| fault.code)
    };
    assert_eq!(message(&[b"\x1f\x8b"]), Ok(2));
    assert_eq!(message(&[b"", b"\x1f", b"", b"\x8b", b"x"]), Ok(3));
    for pieces in [
        &[&b"\x8b\x1f"[..]][..],
        &[b"\x1f"],
        &[b"\x1f", b"\x1f\x8b"],
        &[b"\0", b"\x8b"],
    ] {
        assert_eq!(message(pieces), Err("InvalidArgument"));
    }
    let large = [&GZIP[..], &[0; 99]].concat();
    assert_eq!(message(&[&large]), Err("EntityTooLarge"));
    assert_eq!(
        message(&[&[0; 101]]),
        Err("EntityTooLarge"),
        "the size is told before the kind"
    );
}

/// C-073: the deadline is checked while the file arrives.
#[test]
fn the_deadline_is_checked_during_the_upload() {
    let verified = Case::new().run().expect("it is taken").0;
    let check = FileCheck::new(&verified, u64::MAX);
    assert_eq!(check.handle_time(ENDS_MS - 1), Ok(()));
    let late = check.handle_time(ENDS_MS).expect_err("it is over");
    assert_eq!((late.status, late.code), (403, "AccessDenied"));
}

/// I-05: a grant issued before midnight is valid after it; a day key is unknown two days later.
#[test]
fn grants_are_valid_after_midnight() {
    let midnight = 1_795_305_600_000; // 2026-11-22T00:00:00Z
    let signing = GrantSigner::Daily([7; 32]);
    let form = |expires_ms| {
        let terms = GrantTerms {
            org: &name("org-7"),
            upload: upload(),
            region: &name("us-west"),
            url: "",
            size_max: MAX,
            expires_ms,
        };
        let grant = grant::issue(&signing, &terms, midnight - 1_000);
        let json = serde_json::to_value(&grant.upload_fields).expect("JSON");
        let mut form = UploadForm::default();
        for (name, value) in json.as_object().expect("an object") {
            form.add(name, value.as_str().expect("text").as_bytes())
                .expect("a field");
        }
        form
    };
    let quarter = form(midnight + 899_000);
    for now_ms in [midnight - 1_000, midnight, midnight + 898_999] {
        assert!(quarter.verify(&signing, now_ms).is_ok(), "{now_ms}");
    }
    let late = quarter.verify(&signing, midnight + 899_000).expect_err("it is over");
    assert!(late.text.starts_with("Policy expired"));
    let days = form(midnight + 3 * 86_400_000);
    assert!(days.verify(&signing, midnight + 86_399_999).is_ok());
    let gone = days
        .verify(&signing, midnight + 86_400_000)
        .expect_err("the key is gone");
    assert_eq!(gone.code, "InvalidAccessKeyId");
    let elsewhere = quarter
        .verify(&GrantSigner::Daily([8; 32]), midnight)
        .expect_err("another service");
    assert_eq!(elsewhere.code, "InvalidAccessKeyId");
}

/// I-22: debug output shows no field.
#[test]
fn debug_output_shows_no_field() {
    let mut form = UploadForm::default();
    form.add("Policy", b"eyJ").expect("a field");
    assert_eq!(format!("{form:?}"), "Form { fields: 1, .. }");
}
