//! Parsers, with their input cut at every byte. `http3` has the rules of the streams.

mod http3;

use bytes::Bytes;

use super::capsule::{CapsuleReader, InvalidCapsule, SessionClose, put_close};
use super::connect::{
    ConnectRequest, ConnectResponse, RequestError, parse_request, parse_response, request_section, response_section,
};
use super::frame::{DATA, HEADERS, Http3Frame, Http3FrameReader, SETTINGS, VarintReader, put_frame, put_varint};
use super::qpack::{FIELD_SECTION_MAX, FieldWriter, QpackError, decode_fields};
use super::settings::{Http3Settings, InvalidSettings, put_settings};
use crate::moq::link::event::MOQ_PROTOCOL;

/// A reserved type of frames, settings and streams (RFC 9114, section 7.2.8).
const RESERVED: u64 = 0x1f * 7 + 0x21;

type Fields = Vec<(String, String)>;

fn fields(section: &[u8]) -> Result<Fields, QpackError> {
    let mut fields = Vec::new();
    decode_fields(section, |name, value| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        fields.push((text(name), text(value)));
    })?;
    Ok(fields)
}

/// The request of Chromium 156 for `https://localhost:4080/moq`, without its GREASE.
fn browser_request() -> FieldWriter {
    FieldWriter::new()
        .indexed(23)
        .indexed(15)
        .named(0, "localhost:4080")
        .named(1, "/moq")
        .literal(":protocol", "webtransport")
        .literal("sec-webtransport-http3-draft02", "1")
        .named(90, "http://localhost:7860")
        .literal(
            "wt-available-protocols",
            r#""moq-lite-04", "moq-lite-03", "moql", "moqt-19""#,
        )
}

#[test]
fn integers_are_read_at_any_length() {
    for value in [
        0,
        37,
        63,
        64,
        15_293,
        494_878_333,
        151_288_809_941_952_652,
        (1 << 62) - 1,
    ] {
        let mut bytes = Vec::new();
        put_varint(value, &mut bytes);
        let mut reader = VarintReader::default();
        let (last, first) = bytes.split_last().unwrap();
        for byte in first {
            assert_eq!(reader.push(*byte), None);
        }
        assert_eq!(reader.push(*last), Some(value));
        assert_eq!(reader, VarintReader::default());
    }
}

#[test]
fn frames_are_read_in_pieces_of_any_size() {
    let mut stream = Vec::new();
    put_frame(RESERVED, b"grease", &mut stream);
    put_frame(SETTINGS, b"settings", &mut stream);
    put_frame(HEADERS, &[7; 300], &mut stream);
    put_frame(DATA, b"", &mut stream);
    put_frame(0x0d, b"", &mut stream);
    put_frame(DATA, b"payload", &mut stream);
    put_frame(HEADERS, b"", &mut stream);
    for size in 1..=stream.len() {
        let mut reader = Http3FrameReader::default();
        let (mut frames, mut data) = (Vec::new(), Vec::new());
        for piece in stream.chunks(size) {
            let mut piece = Bytes::copy_from_slice(piece);
            while let Some(frame) = reader.read(&mut piece) {
                match frame {
                    Http3Frame::Data(part) => data.extend_from_slice(&part),
                    frame => frames.push(frame),
                }
            }
            assert!(piece.is_empty());
        }
        assert_eq!(
            frames,
            [
                Http3Frame::Other(RESERVED),
                Http3Frame::Settings(b"settings".to_vec()),
                Http3Frame::Headers(vec![7; 300]),
                Http3Frame::Other(0x0d),
                Http3Frame::Headers(Vec::new()),
            ]
        );
        assert_eq!(data, b"payload");
    }
}

#[test]
fn a_frame_beyond_its_limit_is_not_collected() {
    for (kind, limit) in [(HEADERS, FIELD_SECTION_MAX), (SETTINGS, 4096)] {
        let read = |length: usize| {
            let mut stream = Vec::new();
            put_frame(kind, &vec![0; length], &mut stream);
            Http3FrameReader::default().read(&mut Bytes::from(stream))
        };
        assert!(matches!(
            read(limit),
            Some(Http3Frame::Headers(_) | Http3Frame::Settings(_))
        ));
        assert_eq!(read(limit + 1), Some(Http3Frame::TooLong));
    }
    // The largest length there is.
    let mut stream = Vec::new();
    put_varint(HEADERS, &mut stream);
    put_varint((1 << 62) - 1, &mut stream);
    let mut reader = Http3FrameReader::default();
    assert_eq!(reader.read(&mut Bytes::from(stream)), Some(Http3Frame::TooLong));
    assert_eq!(reader.read(&mut Bytes::from(vec![1; 100])), None);
}

#[test]
fn the_literal_of_rfc_9204_decodes() {
    // Appendix B.1: a literal with a reference to the static table.
    let section = [
        0x00, 0x00, 0x51, 0x0b, 0x2f, 0x69, 0x6e, 0x64, 0x65, 0x78, 0x2e, 0x68, 0x74, 0x6d, 0x6c,
    ];
    let expected = (":path".to_owned(), "/index.html".to_owned());
    assert_eq!(fields(&section), Ok(vec![expected]));
}

#[test]
fn strings_with_huffman_code_decode() {
    let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
    let mut section = vec![0, 0, 0b0101_0000, 0x80 | host.len() as u8];
    section.extend_from_slice(&host);
    let expected = (":authority".to_owned(), "www.example.com".to_owned());
    assert_eq!(fields(&section), Ok(vec![expected]));
    // In a name, with its prefix of 3 bits.
    let mut section = vec![0, 0, 0b0010_1000 | 7, host.len() as u8 - 7];
    section.extend_from_slice(&host);
    section.extend_from_slice(&[0x81, 0x1f]);
    let expected = ("www.example.com".to_owned(), "a".to_owned());
    assert_eq!(fields(&section), Ok(vec![expected]));
}

#[test]
fn references_to_a_dynamic_table_are_invalid() {
    for section in [
        &[0x02, 0x00, 0x80][..],
        &[0x00, 0x00, 0x80],
        &[0x00, 0x00, 0x40, 0x00],
        &[0x00, 0x00, 0x10],
        &[0x00, 0x00, 0x00, 0x00],
        // Past the static table: 63 + 36.
        &[0x00, 0x00, 0xff, 0x24],
    ] {
        assert_eq!(fields(section), Err(QpackError::Invalid), "{section:?}");
    }
    // The last entry.
    assert!(fields(&[0x00, 0x00, 0xff, 0x23]).is_ok());
}

#[test]
fn a_field_section_that_is_cut_never_panics() {
    let section = browser_request().finish();
    let all = fields(&section).unwrap();
    for length in 0..section.len() {
        match fields(&section[..length]) {
            Ok(some) => assert_eq!(some, all[..some.len()]),
            Err(error) => assert_eq!(error, QpackError::Invalid),
        }
    }
    for index in 0..section.len() {
        for byte in [0, 0x7f, 0x80, 0xff] {
            let mut changed = section.clone();
            changed[index] = byte;
            let _ = parse_request(&changed);
            let _ = parse_response(&changed);
        }
    }
}

#[test]
fn a_field_section_has_a_limit_after_decoding() {
    let section = |length: usize| FieldWriter::new().literal("a", &"x".repeat(length)).finish();
    assert!(fields(&section(FIELD_SECTION_MAX - 33)).is_ok());
    assert_eq!(fields(&section(FIELD_SECTION_MAX - 32)), Err(QpackError::TooLarge));
    // Many small lines count 32 bytes each.
    let mut lines = FieldWriter::new();
    for _ in 0..FIELD_SECTION_MAX / 32 {
        lines = lines.indexed(17);
    }
    assert_eq!(fields(&lines.finish()), Err(QpackError::TooLarge));
    // A length that would not fit any buffer.
    let section = [0, 0, 0x27, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert_eq!(fields(&section), Err(QpackError::TooLarge));
}

#[test]
fn the_request_of_a_browser_is_understood() {
    let request = ConnectRequest {
        authority: "localhost:4080".into(),
        path: "/moq".into(),
        origin: Some("http://localhost:7860".into()),
        protocols: ["moq-lite-04", "moq-lite-03", "moql", "moqt-19"]
            .map(String::from)
            .into(),
    };
    assert_eq!(parse_request(&browser_request().finish()), Ok(request));
}

#[test]
fn the_own_request_and_response_are_understood() {
    let request = parse_request(&request_section("relay.example:443", "/moq?token=x")).unwrap();
    assert_eq!(request.authority, "relay.example:443");
    assert_eq!(request.path, "/moq?token=x");
    assert_eq!(request.protocols, [MOQ_PROTOCOL]);
    for status in [200, 400, 401, 404, 429, 431, 503] {
        let protocol = (status == 200).then(|| MOQ_PROTOCOL.to_owned());
        assert_eq!(
            parse_response(&response_section(status)),
            Ok(Some(ConnectResponse { status, protocol }))
        );
    }
}

#[test]
fn other_requests_have_a_status() {
    let begin = || FieldWriter::new().indexed(23).named(0, "localhost").indexed(1);
    let connect = || begin().indexed(15).literal(":protocol", "webtransport");
    assert!(parse_request(&connect().finish()).is_ok());
    for (section, status) in [
        (begin().indexed(17), 404),
        (begin().indexed(20), 404),
        (begin().literal(":method", "BREW"), 404),
        (begin(), 400),
        (FieldWriter::new(), 400),
        (begin().indexed(15), 400),
        (begin().indexed(15).literal(":protocol", "websocket"), 501),
        (connect().indexed(15), 400),
        (connect().indexed(25), 400),
        (connect().literal(":other", ""), 400),
        (
            FieldWriter::new()
                .indexed(15)
                .literal(":protocol", "webtransport")
                .indexed(22)
                .named(0, "localhost")
                .indexed(1),
            400,
        ),
        (
            FieldWriter::new()
                .indexed(15)
                .literal(":protocol", "webtransport")
                .indexed(23)
                .named(0, "localhost")
                .named(1, "*"),
            400,
        ),
    ] {
        let section = section.finish();
        assert_eq!(
            parse_request(&section),
            Err(RequestError::Status(status)),
            "{:?}",
            fields(&section)
        );
    }
    assert_eq!(parse_request(&[0, 0, 0x80]), Err(RequestError::Decompression));
}

#[test]
fn sub_protocols_are_a_list_of_strings() {
    let protocols = |value: &str| {
        let section = FieldWriter::new()
            .indexed(15)
            .indexed(23)
            .named(0, "localhost")
            .indexed(1)
            .literal(":protocol", "webtransport")
            .literal("wt-available-protocols", value)
            .finish();
        parse_request(&section).unwrap().protocols
    };
    assert_eq!(protocols(r#""a""#), ["a"]);
    assert_eq!(
        protocols(r#" "a" , "b,c";q=1;x="y,z","d\"\\" "#),
        ["a", "b,c", r#"d"\"#]
    );
    // Anything else makes the field void.
    for value in [
        "",
        "a",
        r#""a"#,
        r#""a","#,
        r#""a" "b""#,
        r#""a\b""#,
        r#""a", b"#,
        "\"\u{7f}\"",
    ] {
        assert!(protocols(value).is_empty(), "{value}");
    }
    let many = vec![r#""a""#; 5000].join(",");
    assert_eq!(protocols(&many[..12_000 - 1]).len(), 32);
}

#[test]
fn settings_of_the_drafts_enable_webtransport() {
    let parse = |settings: &[(u64, u64)]| {
        let mut payload = Vec::new();
        for (identifier, value) in settings {
            put_varint(*identifier, &mut payload);
            put_varint(*value, &mut payload);
        }
        Http3Settings::parse(&payload).map(Http3Settings::accepts_sessions)
    };
    assert_eq!(parse(&[]), Ok(false));
    assert_eq!(
        parse(&[(0x08, 1), (0x33, 1), (0x06, 16_384), (RESERVED, 99)]),
        Ok(false)
    );
    assert_eq!(parse(&[(0x2b60_3742, 1)]), Ok(true));
    assert_eq!(parse(&[(0x08, 1), (0xc671_706a, 1)]), Ok(true));
    assert_eq!(parse(&[(0xc671_706a, 0)]), Ok(false));
    assert_eq!(parse(&[(0x08, 2)]), Err(InvalidSettings));
    assert_eq!(parse(&[(0x02, 0)]), Err(InvalidSettings));
    assert_eq!(Http3Settings::parse(&[0x08]), Err(InvalidSettings));
    assert_eq!(Http3Settings::parse(&[0x40]), Err(InvalidSettings));

    let mut own = Vec::new();
    put_settings(&mut own);
    match Http3FrameReader::default().read(&mut Bytes::from(own)) {
        Some(Http3Frame::Settings(payload)) => {
            assert!(Http3Settings::parse(&payload).unwrap().accepts_sessions());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_close_is_read_in_pieces_of_any_size() {
    let mut stream = Vec::new();
    // A capsule to drain, a reserved one, and then the close.
    put_varint(0x78ae, &mut stream);
    put_varint(0, &mut stream);
    put_varint(0x29 * 5 + 0x17, &mut stream);
    put_varint(3, &mut stream);
    stream.extend_from_slice(b"xyz");
    put_close(0x0102_0304, "good bye", &mut stream);
    let close = SessionClose {
        code: 0x0102_0304,
        reason: "good bye".into(),
    };
    for size in 1..=stream.len() {
        let mut reader = CapsuleReader::default();
        let mut pieces = stream.chunks(size).peekable();
        while let Some(piece) = pieces.next() {
            let is_last = pieces.peek().is_none();
            assert_eq!(reader.read(piece), Ok(is_last.then(|| close.clone())));
        }
    }
}

#[test]
fn a_close_has_limits() {
    let read = |length: u64| {
        let mut capsule = Vec::new();
        put_varint(0x2843, &mut capsule);
        put_varint(length, &mut capsule);
        capsule.resize(capsule.len() + length.min(2000) as usize, b'x');
        CapsuleReader::default().read(&capsule)
    };
    assert_eq!(read(3), Err(InvalidCapsule));
    assert!(read(4).unwrap().is_some());
    assert!(read(4 + 1024).unwrap().is_some());
    assert_eq!(read(4 + 1025), Err(InvalidCapsule));
    assert_eq!(read((1 << 62) - 1), Err(InvalidCapsule));

    // The own reason is cut between characters.
    let mut capsule = Vec::new();
    put_close(0, &"é".repeat(2000), &mut capsule);
    let close = CapsuleReader::default().read(&capsule).unwrap().unwrap();
    assert_eq!(close.reason, "é".repeat(512));
    // What is not UTF-8 is replaced.
    let close = CapsuleReader::default().read(&[0x68, 0x43, 5, 0, 0, 0, 9, 0xff]);
    assert_eq!(close.unwrap().unwrap().reason, "\u{fffd}");
}
