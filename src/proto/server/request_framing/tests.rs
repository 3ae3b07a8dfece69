//! Requests in pieces, with bodies of each framing.

use super::*;

/// Returns the number of heads that end in these bytes, and the first rejected one; the same
/// for pieces of every size.
fn follow(bytes: &[u8]) -> (usize, Option<usize>) {
    let mut whole = RequestFraming::default();
    whole.handle(bytes);
    for size in 1..bytes.len() {
        let mut pieces = RequestFraming::default();
        bytes.chunks(size).for_each(|piece| pieces.handle(piece));
        let found = (pieces.heads, pieces.first_ambiguous());
        assert_eq!(found, (whole.heads, whole.first_ambiguous()), "pieces of {size}");
    }
    (whole.heads, whole.first_ambiguous())
}

const GET: &str = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// RFC 9112 section 6.3: a request with both headers is rejected, in any order and case and
/// with any value.
#[test]
fn rejects_requests_with_two_lengths() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "transfer-encoding:chunked\r\nHost: h\r\nCONTENT-LENGTH:\t0 ",
        "Content-Length: 0\r\nX: y\r\nContent-Length: 0\r\nTransfer-Encoding: gzip, chunked",
        "Content-Length: 5\nTransfer-Encoding: chunked",
    ] {
        let bytes = format!("POST /a HTTP/1.1\r\n{fields}\r\n\r\n{GET}");
        assert_eq!(follow(bytes.as_bytes()), (0, Some(0)), "{fields}");
        let bytes = format!("{GET}\r\n{GET}{bytes}");
        assert_eq!(follow(bytes.as_bytes()), (2, Some(2)), "{fields}");
    }
}

/// Consecutive requests are separated, even if a body looks like a head.
#[test]
fn bodies_do_not_count_as_heads() {
    let evil = "\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let length = evil.len();
    let chunk = format!("{length:x};ext=1\r\n{evil}\r\n");
    for request in [
        GET.to_owned(),
        "GET / HTTP/1.0\n\n".into(),
        "\r\n\n\r\nGET /Content-Length: 5 HTTP/1.1\r\nHost: h\r\n\r\n".into(),
        "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n".into(),
        format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{evil}"),
        format!("POST / HTTP/1.1\r\nContent-Length:{length}\r\ncontent-length: {length} \r\n\r\n{evil}"),
        format!(
            "POST / HTTP/1.1\r\nX-Content-Length: 7\r\nContent-Lengths: 7\r\nContent-Length: {length}\r\n\r\n{evil}"
        ),
        format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"),
        format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}000\r\nContent-Length: 5\r\nT: x\r\n\r\n"),
        format!("POST / HTTP/1.1\r\nTransfer-Encodings: x\r\nContent-Length: {length}\r\n\r\n{evil}"),
    ] {
        let bytes = format!("{request}{request}{GET}");
        assert_eq!(follow(bytes.as_bytes()), (3, None), "{request:?}");
    }
}

/// After a request that the library rejects, all requests are rejected here.
#[test]
fn rejects_everything_after_a_malformed_request() {
    for (head, heads) in [
        ("Content-Length: +5\r\n\r\nhello", 0),
        ("Content-Length: -1\r\n\r\n", 0),
        ("Content-Length: 0x10\r\n\r\n", 0),
        ("Content-Length: 1 2\r\n\r\n", 0),
        ("Content-Length: 1, 1\r\n\r\n", 0),
        ("Content-Length:\r\n\r\n", 0),
        ("Content-Length: 18446744073709551616\r\n\r\n", 0),
        ("Content-Length: 99999999999999999999999\r\n\r\n", 0),
        ("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 0),
        ("Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 1),
        ("Transfer-Encoding: chunked\r\n\r\n\r\n", 1),
        ("Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", 1),
        ("Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 1),
    ] {
        let bytes = format!("POST / HTTP/1.1\r\n{head}{GET}{GET}");
        assert_eq!(follow(bytes.as_bytes()), (heads, Some(heads)), "{head:?}");
    }
    let mut longest = RequestFraming::default();
    longest.handle(b"POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n");
    longest.handle(&[b'\n'; 1000]);
    assert_eq!((longest.heads, longest.first_ambiguous()), (1, None));
}

/// No bytes cause a panic, and no head is counted after the position is lost.
#[test]
fn no_bytes_panic() {
    let words = [
        "GET / HTTP/1.1\r\n",
        "\r\n",
        "\n",
        "\r",
        "Content-Length: ",
        "5",
        "transfer-encoding:",
        "chunked",
        " ",
        "ffff",
        ";",
        "0",
        "x",
    ];
    let mut state = 1_u32;
    for _ in 0..2_000 {
        let mut bytes = String::new();
        for _ in 0..20 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bytes.push_str(words[(state >> 16) as usize % words.len()]);
        }
        let (heads, refused) = follow(bytes.as_bytes());
        assert!(refused.is_none_or(|refused| refused == heads), "{bytes:?}");
    }
}

#[test]
fn chunked_is_the_only_coding() {
    let judge_all = |values: &[&str]| check_transfer_codings(values.iter().map(|value| value.as_bytes()));
    for good in [&[][..], &["chunked"], &["Chunked"], &[" chunked\t"]] {
        assert_eq!(judge_all(good), Ok(()), "{good:?}");
    }
    for bad in [
        &["gzip, chunked"][..],
        &["chunked, chunked"],
        &["chunked", "chunked"],
        &["identity", "chunked"],
        &["chunked;q=1"],
        &["chunked,"],
        &["xchunked"],
        &[""],
    ] {
        assert_eq!(judge_all(bad), Err(FramingError::Coding), "{bad:?}");
    }
}
