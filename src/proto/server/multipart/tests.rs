//! Tests forms of real clients, split at every position, and malformed forms.

use super::*;

/// The parsed content of a body, with the file joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReceivedForm {
    fields: Vec<(String, Vec<u8>)>,
    file: Option<Vec<u8>>,
    is_whole: bool,
    ended: bool,
}

impl ReceivedForm {
    fn take(&mut self, event: MultipartEvent<'_>) {
        assert!(!self.ended);
        match event {
            MultipartEvent::Field { name, value } => self.fields.push((name.to_owned(), value.to_vec())),
            MultipartEvent::File => assert_eq!(self.file.replace(Vec::new()), None),
            MultipartEvent::Data(data) => {
                assert!(!data.is_empty() && !self.is_whole);
                self.file.as_mut().expect("a file").extend_from_slice(data);
            }
            MultipartEvent::FileEnd => {
                assert!(self.file.is_some() && !self.is_whole);
                self.is_whole = true;
            }
            MultipartEvent::End => {
                assert!(self.is_whole);
                self.ended = true;
            }
        }
    }
}

fn parse<'b>(boundary: &str, pieces: impl IntoIterator<Item = &'b [u8]>) -> (ReceivedForm, Result<(), MultipartError>) {
    let mut received = ReceivedForm::default();
    let mut parser = MultipartParser::new(boundary);
    for piece in pieces {
        let pushed = parser.push::<MultipartError>(piece, &mut |event| {
            received.take(event);
            Ok(())
        });
        if let Err(broken) = pushed {
            return (received, Err(broken));
        }
    }
    let finished = parser.finish();
    (received, finished)
}

/// Parses a body at once, byte by byte, and split at every position; the results must be equal.
fn parse_cut(boundary: &str, body: &[u8]) -> (ReceivedForm, Result<(), MultipartError>) {
    let whole = parse(boundary, [body]);
    assert_eq!(parse(boundary, body.chunks(1)), whole);
    for at in 0..body.len() {
        let (one, other) = body.split_at(at);
        assert_eq!(parse(boundary, [one, other]), whole, "cut at {at}");
    }
    whole
}

fn part(header: &str, value: &[u8]) -> Vec<u8> {
    [b"--B\r\n", header.as_bytes(), b"\r\n\r\n", value, b"\r\n"].concat()
}

fn field(name: &str, value: &str) -> Vec<u8> {
    part(
        &format!("Content-Disposition: form-data; name=\"{name}\""),
        value.as_bytes(),
    )
}

fn file(content: &[u8]) -> Vec<u8> {
    part(
        "Content-Disposition: form-data; name=\"file\"; filename=\"context.tar.gz\"",
        content,
    )
}

const CLOSE: &[u8] = b"--B--\r\n";

fn pair(name: &str, value: &str) -> (String, Vec<u8>) {
    (name.to_owned(), value.as_bytes().to_vec())
}

/// C-067, C-068: forms as stock clients send them; the declared type of a part is ignored.
#[test]
fn parses_forms_of_real_clients() {
    let curl = concat!(
        "--------------------------d74496d66958873e\r\n",
        "Content-Disposition: form-data; name=\"key\"\r\n\r\no/u.tar.gz\r\n",
        "--------------------------d74496d66958873e\r\n",
        "Content-Disposition: form-data; name=\"Content-Type\"\r\n\r\napplication/gzip\r\n",
        "--------------------------d74496d66958873e\r\n",
        "Content-Disposition: form-data; name=\"file\"; filename=\"context.tar.gz\"\r\n",
        "Content-Type: application/gzip\r\n\r\nARCHIVE\r\n",
        "--------------------------d74496d66958873e--\r\n",
    );
    let requests = concat!(
        "--2f4dc0f0b1d6\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\no/u.tar.gz\r\n",
        "--2f4dc0f0b1d6\r\nContent-Disposition: form-data; name=\"Content-Type\"\r\n\r\napplication/gzip\r\n",
        "--2f4dc0f0b1d6\r\nContent-Disposition: form-data; name=\"file\"; filename=\"context.tar.gz\"\r\n\r\nARCHIVE\r\n",
        "--2f4dc0f0b1d6--\r\n",
    );
    let aiohttp = concat!(
        "--0c1f\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\no/u.tar.gz\r\n",
        "--0c1f\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name=\"Content-Type\"\r\n\r\n",
        "application/gzip\r\n",
        "--0c1f\r\nContent-Type: application/gzip\r\n",
        "Content-Disposition: form-data; name=\"file\"; filename=\"context.tar.gz\"\r\n\r\nARCHIVE\r\n--0c1f--\r\n",
    );
    let httpx = concat!(
        "--77aa\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\no/u.tar.gz\r\n",
        "--77aa\r\nContent-Disposition: form-data; name=\"Content-Type\"\r\n\r\napplication/gzip\r\n",
        "--77aa\r\nContent-Disposition: form-data; name=\"file\"; filename=\"upload\"\r\n",
        "Content-Type: application/octet-stream\r\n\r\nARCHIVE\r\n--77aa--\r\n",
    );
    let chromium = concat!(
        "------WebKitFormBoundaryePkpFF7tjBAqx29L\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\no/u.tar.gz\r\n",
        "------WebKitFormBoundaryePkpFF7tjBAqx29L\r\n",
        "Content-Disposition: form-data; name=\"Content-Type\"\r\n\r\napplication/gzip\r\n",
        "------WebKitFormBoundaryePkpFF7tjBAqx29L\r\n",
        "Content-Disposition: form-data; name=\"file\"; filename=\"a%22b\\c.tar.gz\"\r\nContent-Type: application/gzip\r\n\r\nARCHIVE\r\n",
        "------WebKitFormBoundaryePkpFF7tjBAqx29L--\r\n",
    );
    // A Java client, which adds lengths and encodings to parts, and no line break at the end.
    let java = concat!(
        "--8721656041911415653955004498\r\ncontent-disposition:form-data;name=key\r\nContent-Length: 10\r\n\r\no/u.tar.gz\r\n",
        "--8721656041911415653955004498\r\nCONTENT-DISPOSITION: Form-Data ; NAME=\"Content-Type\"\r\n",
        "Content-Transfer-Encoding: binary\r\n\r\napplication/gzip\r\n",
        "--8721656041911415653955004498\r\nContent-Disposition: form-data; filename*=utf-8''n%C3%A4me; name=\"file\";\r\n",
        "Content-Type: application/gzip\r\nContent-Transfer-Encoding: binary\r\n\r\nARCHIVE\r\n",
        "--8721656041911415653955004498--",
    );
    for (kind, body) in [
        (
            "multipart/form-data; boundary=------------------------d74496d66958873e",
            curl,
        ),
        ("multipart/form-data; boundary=2f4dc0f0b1d6", requests),
        ("multipart/form-data; boundary=0c1f", aiohttp),
        ("multipart/form-data; boundary=77aa", httpx),
        (
            "multipart/form-data; boundary=----WebKitFormBoundaryePkpFF7tjBAqx29L",
            chromium,
        ),
        (
            "Multipart/Form-Data; charset=utf-8; Boundary=\"8721656041911415653955004498\"",
            java,
        ),
    ] {
        let boundary = boundary(kind.as_bytes()).expect("a boundary");
        let (received, outcome) = parse_cut(&boundary, body.as_bytes());
        assert_eq!(outcome, Ok(()), "{kind}");
        let fields = vec![pair("key", "o/u.tar.gz"), pair("Content-Type", "application/gzip")];
        let file = Some(b"ARCHIVE".to_vec());
        let expected = ReceivedForm {
            fields,
            file,
            is_whole: true,
            ended: true,
        };
        assert_eq!(received, expected, "{kind}");
    }
}

/// A near-boundary inside the file is part of the file.
#[test]
fn content_may_look_like_a_boundary() {
    for content in [
        "",
        "\r",
        "\r\n",
        "\n--B",
        "\r\r\n--A",
        "\r\n-",
        "\r\n--",
        "\r\n--b",
        "\r\n--\r\n--\r\n",
        "--B",
        "--B--",
        "\r\r\r\n\r\n\n",
        "\r\n-\r\n--\r\n--A\r\n-B",
        "\u{1f}\u{8b}\r\n \r\n--C--\r\n",
    ] {
        let body = [&field("a", content)[..], &file(content.as_bytes()), CLOSE].concat();
        let (received, outcome) = parse_cut("B", &body);
        assert_eq!(outcome, Ok(()), "{content:?}");
        assert_eq!(received.fields, [pair("a", content)]);
        assert_eq!(received.file.as_deref(), Some(content.as_bytes()));
    }
}

/// Text before the first boundary and after the last, blanks after a boundary, and parts after the
/// file are ignored.
#[test]
fn ignores_everything_around_the_parts() {
    let late = field("late", "1");
    let body = [
        b"To be ignored.\r\n--A\r\n",
        &field("a", "1")[..],
        &file(b"x"),
        &late,
        CLOSE,
        b"\r\n--B\r\nBye",
    ]
    .concat();
    let (received, outcome) = parse_cut("B", &body);
    assert_eq!((received.fields, outcome), (vec![pair("a", "1")], Ok(())));

    let padded = b"--B \t \r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--B--  \r\n";
    let (received, outcome) = parse_cut("B", padded);
    assert_eq!((received.file.as_deref(), outcome), (Some(&b"x"[..]), Ok(())));
}

#[test]
fn parses_names_as_clients_write_them() {
    for (header, expected) in [
        ("Content-Disposition: form-data; name=\"a\\\"b\\\\c\\d\"", "a\"b\\c\\d"),
        ("Content-Disposition: form-data; name=\"a;b=c\"", "a;b=c"),
        ("Content-Disposition: form-data; name=a", "a"),
        ("Content-Disposition: form-data; name=a b ; x=y", "a b"),
        ("Content-Disposition: form-data; name=\"\"", ""),
        ("Content-Disposition: form-data; name=\"n\u{e4}me\"", "n\u{e4}me"),
        ("Content-Disposition: form-data;; name=\"a\" ;", "a"),
        (
            "X-Before: 1\r\nContent-Disposition: form-data; name=\"a\"\r\nX-After:",
            "a",
        ),
        ("Content-Disposition: form-data; filename=\"; name=x\"; name=\"a\"", "a"),
    ] {
        let body = [&part(header, b"1")[..], &file(b""), CLOSE].concat();
        let (received, outcome) = parse("B", [&body[..]]);
        assert_eq!(outcome, Ok(()), "{header}");
        assert_eq!(received.fields, [pair(expected, "1")], "{header}");
    }
}

#[test]
fn rejects_malformed_forms() {
    for header in [
        "Content-Type: text/plain",
        "Content-Disposition",
        "Content-Disposition: form-data",
        "Content-Disposition: form-data; filename=\"a\"",
        "Content-Disposition: attachment; name=\"a\"",
        "Content-Disposition: form-data; name=\"a",
        "Content-Disposition: form-data; name=\"a\" b",
        "Content-Disposition: form-data; name",
        "Content-Disposition: form-data; name=\"a\"; name=\"b\"",
        "Content-Disposition: form-data; name=\"a\"\r\nContent-Disposition: form-data; name=\"b\"",
        "Content-Disposition: form-data;\r\n name=\"a\"",
        "Content-Disposition: form-data; name=\"a\"\nX: y",
        "Content-Disposition: form-data; name=\"a\"\rX: y",
        "Content-Disposition: form-data; name=\"a\0\"",
        ": form-data; name=\"a\"",
    ] {
        let body = [&part(header, b"1")[..], &file(b""), CLOSE].concat();
        let (_, outcome) = parse_cut("B", &body);
        assert!(
            matches!(outcome, Err(MultipartError::Malformed(_))),
            "{header}: {outcome:?}"
        );
    }
    let not_utf8 = b"--B\r\nContent-Disposition: form-data; name=\"\xff\"\r\n\r\n";
    let whole = [&field("a", "1")[..], &file(b"x"), CLOSE].concat();
    let one_hyphen = [&file(b"x")[..], b"--B-\r\n"].concat();
    let longer = [&file(b"x")[..], b"--BB--\r\n"].concat();
    let no_header = b"--B\r\n\r\nvalue\r\n--B--";
    for body in [
        &b""[..],
        b"--B\n",
        b"--Bx",
        not_utf8,
        no_header,
        &one_hyphen,
        &longer,
        b"no boundary at all",
    ] {
        let (_, outcome) = parse_cut("B", body);
        assert!(
            matches!(outcome, Err(MultipartError::Malformed(_))),
            "{}: {outcome:?}",
            body.escape_ascii()
        );
    }
    // Every truncated form is rejected; only the line break after the last boundary is optional.
    for at in 0..whole.len() - 2 {
        let (received, outcome) = parse("B", [&whole[..at]]);
        assert!(
            matches!(outcome, Err(MultipartError::Malformed(_))) && !received.ended,
            "{at}"
        );
    }
}

/// I-06: no file, and two.
#[test]
fn requires_exactly_one_file() {
    let (received, outcome) = parse_cut("B", &[&field("a", "1")[..], &field("File", "1"), CLOSE].concat());
    assert_eq!((received.fields.len(), outcome), (2, Err(NO_FILE)));
    assert_eq!(parse_cut("B", b"--B--\r\n").1, Err(NO_FILE));
    let (received, outcome) = parse_cut("B", &[&file(b"x")[..], &field("a", "1"), &file(b"y"), CLOSE].concat());
    assert_eq!(
        (received.file.as_deref(), received.ended, outcome),
        (Some(&b"x"[..]), false, Err(TWO_FILES))
    );
}

/// I-06, I-07: names and values before the file are limited, and so is everything outside the file;
/// the file itself is not limited here.
#[test]
fn only_the_file_may_be_long() {
    let fields = |bytes: usize| [&field("a", &"x".repeat(bytes - 1))[..], &file(b""), CLOSE].concat();
    assert_eq!(parse("B", fields(FIELDS_BYTES_MAX).chunks(999)).1, Ok(()));
    assert_eq!(
        parse("B", fields(FIELDS_BYTES_MAX + 1).chunks(999)).1,
        Err(MultipartError::FieldsTooLong)
    );
    let names = [&field(&"n".repeat(4_001), "").repeat(5)[..], &file(b""), CLOSE].concat();
    assert_eq!(parse("B", [&names[..]]).1, Err(MultipartError::FieldsTooLong));

    let empty = field("", "").repeat(2_000);
    let preamble = vec![b'x'; FRAME_BYTES_MAX + 1];
    for body in [&empty, &preamble] {
        for size in [1, 999, body.len()] {
            assert_eq!(parse("B", body.chunks(size)).1, Err(MultipartError::FieldsTooLong));
        }
    }
    for (bytes, fits) in [(PART_HEAD_BYTES_MAX, true), (PART_HEAD_BYTES_MAX + 1, false)] {
        let before = "Content-Disposition: form-data; name=\"a\"\r\nX: ";
        let long = format!("{before}{}", "x".repeat(bytes - before.len() - 4));
        let body = [&part(&long, b"")[..], &file(b""), CLOSE].concat();
        for size in [1, 999, body.len()] {
            assert_eq!(parse("B", body.chunks(size)).1.is_ok(), fits, "{bytes}");
        }
    }
    let big = vec![b'\r'; 4 * FRAME_BYTES_MAX];
    let (received, outcome) = parse("B", [&file(&big)[..], CLOSE].concat().chunks(999));
    assert_eq!(
        (received.file.map(|file| file.len()), outcome),
        (Some(big.len()), Ok(()))
    );
    for behind in [&field("a", &"x".repeat(FRAME_BYTES_MAX))[..], &[CLOSE, &big].concat()] {
        let body = [&file(b"x")[..], behind].concat();
        for size in [1, 999, body.len()] {
            assert!(matches!(
                parse("B", body.chunks(size)).1,
                Err(MultipartError::Malformed(_))
            ));
        }
    }
}

/// An error of `on` ends the parsing.
#[test]
fn returns_errors_of_the_event_handler() {
    let body = [&field("a", "1")[..], &file(b"x"), CLOSE].concat();
    let mut parser = MultipartParser::new("B");
    let refused = parser.push(&body, &mut |event| match event {
        MultipartEvent::File => Err(MultipartError::FieldsTooLong),
        _ => Ok(()),
    });
    assert_eq!(refused, Err(MultipartError::FieldsTooLong));
}

#[test]
fn finds_the_boundary_in_the_content_type() {
    let longest = "x".repeat(BOUNDARY_BYTES_MAX);
    for (kind, expected) in [
        ("multipart/form-data; boundary=abc", Some("abc")),
        ("multipart/form-data;boundary=abc; charset=utf-8", Some("abc")),
        ("MULTIPART/Form-Data ; charset=utf-8; BOUNDARY = abc", None),
        ("MULTIPART/Form-Data ; charset=utf-8; BOUNDARY= abc", Some("abc")),
        ("multipart/form-data; boundary=\"a b;c\\\"\"", Some("a b;c\"")),
        ("multipart/form-data; boundary=a'()+_,-./:=?", Some("a'()+_,-./:=?")),
        (&format!("multipart/form-data; boundary={longest}"), Some(&longest)),
        (&format!("multipart/form-data; boundary={longest}x"), None),
        ("multipart/form-data; boundary=\"a \"", None),
        ("multipart/form-data; boundary=\"\"", None),
        ("multipart/form-data; boundary=", None),
        ("multipart/form-data; boundary=\"a", None),
        ("multipart/form-data; boundary=\"a\tb\"", None),
        ("multipart/form-data; boundary=\u{e4}", None),
        ("multipart/form-data; boundary=a; boundary=b", None),
        ("multipart/form-data", None),
        ("multipart/form-data, boundary=a", None),
        ("multipart/mixed; boundary=a", None),
        ("application/x-www-form-urlencoded", None),
        ("boundary=a", None),
        ("", None),
    ] {
        assert_eq!(boundary(kind.as_bytes()).as_deref(), expected, "{kind}");
    }
}

/// A form without a file has a limit of its own.
#[test]
fn fields_alone_need_no_file() {
    let body =
        |value: &str| format!("--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n{value}\r\n--B--\r\n");
    let read = |text: &str| {
        let mut parser = MultipartParser::for_fields("B", 10);
        let mut fields = Vec::new();
        let pushed = parser.push::<MultipartError>(text.as_bytes(), &mut |event| {
            if let MultipartEvent::Field { name, value } = event {
                fields.push((name.to_owned(), value.to_vec()));
            }
            Ok(())
        });
        pushed.and_then(|()| parser.finish()).map(|()| fields)
    };
    assert_eq!(
        read(&body("v=0\r\n")),
        Ok(vec![("file".to_owned(), b"v=0\r\n".to_vec())])
    );
    assert_eq!(read("--B--\r\n"), Ok(Vec::new()));
    assert_eq!(read(&body("123456")), Ok(vec![("file".to_owned(), b"123456".to_vec())]));
    assert_eq!(read(&body("1234567")), Err(MultipartError::FieldsTooLong));
}
