//! Tests of each verification step, with the time as a value.

mod error_codes;

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
    let signing = GrantSigner::ByDay([7; 32]);
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
        .verify(&GrantSigner::ByDay([8; 32]), midnight)
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
