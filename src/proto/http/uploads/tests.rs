//! Forms of uploads, the answer to one, and which files make space for a new one.

use std::time::Duration;

use super::*;

const fn name(nth: u8) -> UploadName {
    UploadName::new([nth; 16])
}

fn stored(nth: u8, bytes: u64) -> UploadedFile {
    UploadedFile {
        modified: SystemTime::UNIX_EPOCH + Duration::from_secs(nth.into()),
        name: name(nth),
        bytes,
    }
}

/// The pattern of `LocalFileStorage`: anything else is a file of somebody else.
#[test]
fn names_are_32_digits() {
    let shown = name(0xab).to_string();
    assert_eq!(shown, "ab".repeat(16));
    assert_eq!(UploadName::parse(&shown), Some(name(0xab)));
    assert!(is_leftover(&shown) && is_leftover(&name(1).part()));
    for other in [
        "",
        "ab",
        &"AB".repeat(16),
        &"ab".repeat(17),
        "../etc/passwd",
        ".upload-x",
        ".env",
    ] {
        assert_eq!(UploadName::parse(other), None, "{other}");
        assert!(!is_leftover(other), "{other}");
    }
}

#[test]
fn the_answer_names_the_file_as_send_file_does() {
    let answer = |name: &str, declared: Option<&str>| -> Value {
        let file = FilePart {
            name: Some(name.to_owned()),
            content_type: declared.map(str::to_owned),
        };
        serde_json::from_str(&reply(super::tests::name(1), &file)).expect("JSON")
    };
    assert_eq!(
        answer("note.txt", Some("text/x-other")),
        json!({
            "name": "note.txt",
            "source": {"type": "url", "url": format!("pipecat:{}", "01".repeat(16))},
            "format": "text/plain",
        })
    );
    for (sent, kept, declared, format) in [
        ("../../etc/passwd", "passwd", None, "application/octet-stream"),
        ("/a/b.PNG", "b.PNG", None, "image/png"),
        ("a/b/", "b", Some("image/x-own"), "image/x-own"),
        ("", "", None, "application/octet-stream"),
    ] {
        let answer = answer(sent, declared);
        assert_eq!(
            (&answer["name"], &answer["format"]),
            (&json!(kept), &json!(format)),
            "{sent}"
        );
    }
}

#[test]
fn start_says_where_to_upload() {
    let of = |text: &str, scope| String::from_utf8(advertise(text.into(), scope)).expect("text");
    let with_id = r#"{"sessionId":"S"}"#;
    assert_eq!(
        of(with_id, UploadScope::Session),
        r#"{"fileUploadUrl":"/sessions/S/files","sessionId":"S"}"#
    );
    assert_eq!(
        of(with_id, UploadScope::Anyone),
        r#"{"fileUploadUrl":"/files","sessionId":"S"}"#
    );
    for other in ["{}", "[]", "x"] {
        assert_eq!(of(other, UploadScope::Session), other);
    }
}

const TYPE: &[u8] = b"multipart/form-data; boundary=B";

fn form(head: &str, content: &[u8]) -> Result<(FilePart, Vec<u8>), UploadError> {
    let mut form = IncomingForm::new(TYPE, None)?;
    let mut file = Vec::new();
    form.push(format!("--B\r\n{head}\r\n\r\n").as_bytes(), &mut file)?;
    form.push(content, &mut file)?;
    form.push(b"\r\n--B--\r\n", &mut file)?;
    let (part, bytes) = form.finish()?;
    assert_eq!(bytes, file.len() as u64);
    Ok((part, file))
}

#[test]
fn a_form_has_one_file_with_a_name() {
    let (part, file) = form(
        "Content-Disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".txt\"\r\ncontent-type: text/plain",
        b"\0\xff",
    )
    .expect("a file");
    assert_eq!(part.name.as_deref(), Some("a \"b\".txt"));
    assert_eq!(part.content_type.as_deref(), Some("text/plain"));
    assert_eq!(file, b"\0\xff");
    for (head, status) in [
        ("Content-Disposition: form-data; name=\"file\"", 422),
        ("Content-Disposition: form-data; name=\"other\"; filename=\"a\"", 422),
        ("Content-Type: text/plain", 400),
    ] {
        assert_eq!(form(head, b"x").expect_err(head).status(), status, "{head}");
    }
    for other in [&b""[..], b"application/json", b"multipart/form-data"] {
        assert_eq!(IncomingForm::new(other, None).err(), Some(UploadError::NoFile));
    }
    let cut = IncomingForm::new(TYPE, None).expect("a form").finish();
    assert_eq!(cut.expect_err("nothing came").status(), 400);
}

/// A file at the limit is taken, one byte more is not, and a length that cannot fit is refused
/// before the first byte.
#[test]
fn a_file_has_50_mib() {
    let head = "Content-Disposition: form-data; name=\"file\"; filename=\"a\"";
    let mut content = vec![b'x'; usize::try_from(UPLOAD_BYTES_MAX).expect("it fits")];
    assert!(form(head, &content).is_ok());
    content.push(b'x');
    assert_eq!(form(head, &content).expect_err("too long"), UploadError::TooLarge);
    let most = UPLOAD_BYTES_MAX + FRAME_BYTES_MAX as u64;
    assert!(IncomingForm::new(TYPE, Some(most)).is_ok());
    assert_eq!(
        IncomingForm::new(TYPE, Some(most + 1)).err(),
        Some(UploadError::TooLarge)
    );
}

#[test]
fn the_oldest_files_make_space_for_a_new_one() {
    let mut folder = [stored(3, 1), stored(1, 1), stored(2, 1)];
    assert_eq!(make_space(&mut folder, 1, 4), Ok(Vec::new()));
    assert_eq!(make_space(&mut folder, 1, 3), Ok(vec![name(1)]));
    assert_eq!(make_space(&mut folder, 1, 1), Ok(vec![name(1), name(2), name(3)]));
    let mut full = [stored(2, UPLOADS_BYTES_MAX - 2), stored(1, 1)];
    assert_eq!(make_space(&mut full, 1, 10), Ok(Vec::new()));
    assert_eq!(make_space(&mut full, 2, 10), Ok(vec![name(1)]));
}

#[test]
fn a_folder_that_keeps_its_files_has_limits_too() {
    assert_eq!(
        make_space(&mut [stored(1, UPLOADS_BYTES_MAX - 1)], 1, 0),
        Ok(Vec::new())
    );
    assert_eq!(
        make_space(&mut [stored(1, UPLOADS_BYTES_MAX - 1)], 2, 0),
        Err(UploadError::Full)
    );
    let mut many = vec![stored(1, 0); UPLOADS_MAX - 1];
    assert_eq!(make_space(&mut many, 0, 0), Ok(Vec::new()));
    many.push(stored(1, 0));
    assert_eq!(make_space(&mut many, 0, 0), Err(UploadError::Full));
}

#[test]
fn the_files_of_a_session_end_with_it() {
    let mut ledger = UploadLedger::default();
    ledger.add(name(1), "a".into());
    ledger.add(name(2), "b".into());
    ledger.add(name(3), "a".into());
    ledger.retain(&[stored(1, 0), stored(2, 0)]);
    assert_eq!(ledger.take_ended(|_| true), []);
    assert_eq!(ledger.take_ended(|id| id == "b"), [name(1)]);
    assert!(!ledger.is_empty());
    assert_eq!(ledger.take_ended(|_| false), [name(2)]);
    assert!(ledger.is_empty());
}
