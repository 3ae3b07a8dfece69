//! The rows of the corpus.
//!
//! `{GET}` is a target that both servers answer with 200, `{POST}` one that takes JSON,
//! `{AUTHORIZATION}` the header that it needs, if any. Characters are bytes, so `\u{ff}` is one.

/// Bytes, and what they are answered with.
pub struct Row {
    pub name: &'static str,
    pub bytes: String,
    /// Statuses, the interim ones included.
    pub runner: &'static [u16],
    pub cloud: &'static [u16],
    pub then: Then,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    GoesOn,
    Closes,
}

use Then::{Closes, GoesOn};

/// A request without a body, with further header lines, each ended.
fn get(more: &str) -> String {
    format!("GET {{GET}} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n")
}

/// A request with these headers of its body, and what follows them.
fn post(more: &str, body: &str) -> String {
    format!(
        "POST {{POST}} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{{AUTHORIZATION}}{more}\r\n{body}"
    )
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

fn same(name: &'static str, bytes: impl Into<String>, statuses: &'static [u16], then: Then) -> Row {
    Row {
        name,
        bytes: bytes.into(),
        runner: statuses,
        cloud: statuses,
        then,
    }
}

fn differ(
    name: &'static str,
    bytes: impl Into<String>,
    runner: &'static [u16],
    cloud: &'static [u16],
    then: Then,
) -> Row {
    Row {
        name,
        bytes: bytes.into(),
        runner,
        cloud,
        then,
    }
}

/// What both servers are sent.
pub fn rows() -> Vec<Row> {
    [
        lengths(),
        codings(),
        chunks(),
        expectations(),
        heads(),
        hosts(),
        targets(),
        versions(),
        several(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `Content-Length` (RFC 9110 section 8.6, RFC 9112 section 6.3).
fn lengths() -> Vec<Row> {
    vec![
        same(
            "a body with its length",
            post("Content-Length: 2\r\n", "{}"),
            &[200],
            GoesOn,
        ),
        same(
            "a length with spaces around it",
            post("Content-Length: \t2 \r\n", "{}"),
            &[200],
            GoesOn,
        ),
        same(
            "a length with zeros before it",
            post("Content-Length: 0002\r\n", "{}"),
            &[200],
            GoesOn,
        ),
        // One of both may be taken, RFC 9110 section 8.6.
        same(
            "the same length twice",
            post("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"),
            &[200],
            GoesOn,
        ),
        same(
            "the same length in a list",
            post("Content-Length: 2, 2\r\n", "{}"),
            &[400],
            Closes,
        ),
        same(
            "two lengths",
            post("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"),
            &[400],
            Closes,
        ),
        same(
            "two lengths in a list",
            post("Content-Length: 2, 3\r\n", "{}"),
            &[400],
            Closes,
        ),
        same(
            "a length with a plus",
            post("Content-Length: +2\r\n", "{}"),
            &[400],
            Closes,
        ),
        same(
            "a length below zero",
            post("Content-Length: -1\r\n", ""),
            &[400],
            Closes,
        ),
        same(
            "a length in hex",
            post("Content-Length: 0x02\r\n", "{}"),
            &[400],
            Closes,
        ),
        same(
            "a length with a fraction",
            post("Content-Length: 2.0\r\n", "{}"),
            &[400],
            Closes,
        ),
        same("a length of nothing", post("Content-Length:\r\n", ""), &[400], Closes),
        same(
            "a length that is a word",
            post("Content-Length: two\r\n", "{}"),
            &[400],
            Closes,
        ),
        same(
            "a length beyond 64 bits",
            post("Content-Length: 18446744073709551618\r\n", "{}"),
            &[400],
            Closes,
        ),
        same(
            "the longest length",
            post("Content-Length: 18446744073709551615\r\n", "{}"),
            &[431],
            Closes,
        ),
        same(
            "a length above the cap",
            post("Content-Length: 99999999999\r\n", ""),
            &[413],
            Closes,
        ),
        same("a length in a GET", get("Content-Length: 2\r\n") + "{}", &[200], GoesOn),
        same(
            "a length of zero in a GET",
            get("Content-Length: 0\r\n"),
            &[200],
            GoesOn,
        ),
    ]
}

/// `Transfer-Encoding` (RFC 9112 sections 6.1 and 6.3).
fn codings() -> Vec<Row> {
    let body = "2\r\n{}\r\n0\r\n\r\n";
    vec![
        same("a body in chunks", chunked(body), &[200], GoesOn),
        same(
            "the coding in another case",
            post("transfer-encoding: ChUnKeD\r\n", body),
            &[200],
            GoesOn,
        ),
        // B2. A proxy in front may go by the other one.
        same(
            "a length before chunks",
            post("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", body),
            &[400],
            Closes,
        ),
        same(
            "a length behind chunks",
            post("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", body),
            &[400],
            Closes,
        ),
        same(
            "a length of zero beside chunks",
            post("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", body),
            &[400],
            Closes,
        ),
        same(
            "a bad length behind chunks",
            post("Transfer-Encoding: chunked\r\nContent-Length: x\r\n", body),
            &[400],
            Closes,
        ),
        same(
            "two lengths behind chunks",
            post(
                "Transfer-Encoding: chunked\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
                body,
            ),
            &[400],
            Closes,
        ),
        same(
            "a request smuggled behind chunks",
            post("Content-Length: 40\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n") + &get(""),
            &[400],
            Closes,
        ),
        same(
            "both lengths in a second request",
            get("") + &post("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", body),
            &[200, 400],
            Closes,
        ),
        differ(
            "both lengths behind a body that looks like a head",
            post("Content-Length: 8\r\n", "\r\n\r\na: b{")
                + &post("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", body),
            &[422, 400],
            &[400, 400],
            Closes,
        ),
        same(
            "chunks twice",
            post("Transfer-Encoding: chunked, chunked\r\n", body),
            &[501],
            Closes,
        ),
        same(
            "chunks in two lines",
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", body),
            &[501],
            Closes,
        ),
        same(
            "another coding before chunks",
            post("Transfer-Encoding: gzip, chunked\r\n", body),
            &[501],
            Closes,
        ),
        same(
            "a coding that is none before chunks",
            post("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", body),
            &[501],
            Closes,
        ),
        // Without a final chunk, the end of a body is unknown.
        same(
            "another coding alone",
            post("Transfer-Encoding: gzip\r\n", body),
            &[400],
            Closes,
        ),
        same(
            "chunks before another coding",
            post("Transfer-Encoding: chunked, gzip\r\n", body),
            &[400],
            Closes,
        ),
        same(
            "a coding that is none",
            post("Transfer-Encoding: identity\r\n", body),
            &[400],
            Closes,
        ),
        same(
            "a coding that begins like chunks",
            post("Transfer-Encoding: chunkedx\r\n", body),
            &[400],
            Closes,
        ),
        same(
            "chunks with a parameter",
            post("Transfer-Encoding: chunked;q=1\r\n", body),
            &[400],
            Closes,
        ),
        same("an empty coding", post("Transfer-Encoding:\r\n", body), &[400], Closes),
        same(
            "a space before the colon of the coding",
            post("Transfer-Encoding : chunked\r\n", body),
            &[400],
            Closes,
        ),
        same(
            "a vertical tab before the coding",
            post("Transfer-Encoding: \u{b}chunked\r\n", body),
            &[400],
            Closes,
        ),
        same(
            "chunks in HTTP/1.0",
            post("Transfer-Encoding: chunked\r\n", body).replace("HTTP/1.1", "HTTP/1.0"),
            &[400],
            Closes,
        ),
        same(
            "chunks in a GET",
            get("Transfer-Encoding: chunked\r\n") + "0\r\n\r\n",
            &[200],
            GoesOn,
        ),
        // A proxy's word about what it takes of answers.
        same("TE: chunked", get("TE: chunked\r\nConnection: TE\r\n"), &[200], GoesOn),
        same(
            "TE: trailers",
            get("TE: trailers, deflate;q=0.5\r\nConnection: TE\r\n"),
            &[200],
            GoesOn,
        ),
    ]
}

/// Chunks (RFC 9112 section 7.1).
fn chunks() -> Vec<Row> {
    let long = |bytes: usize| format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(bytes));
    let many = format!("{}0\r\n\r\n", "1;a=b\r\n \r\n".repeat(8_000));
    let trailers = |lines: usize| format!("2\r\n{{}}\r\n0\r\n{}\r\n", "X-Trailer: 1\r\n".repeat(lines));
    vec![
        same(
            "several chunks",
            chunked("1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"),
            &[200],
            GoesOn,
        ),
        same(
            "zeros before a size",
            chunked("0002\r\n{}\r\n000\r\n\r\n"),
            &[200],
            GoesOn,
        ),
        same(
            "a size in either case",
            chunked("A\r\n{\"a\":1   }\r\n0\r\n\r\n"),
            &[200],
            GoesOn,
        ),
        same(
            "an extension",
            chunked("2;a=b;c=\"d\"\r\n{}\r\n0;e\r\n\r\n"),
            &[200],
            GoesOn,
        ),
        same(
            "spaces around an extension",
            chunked("2 ; a = b\r\n{}\r\n0\r\n\r\n"),
            &[200],
            GoesOn,
        ),
        same("a long extension", chunked(&long(1_000)), &[200], GoesOn),
        // The library counts extensions of a whole body, 16 KiB of them.
        same("a huge extension", chunked(&long(20_000)), &[400], Closes),
        same("many extensions", chunked(&many), &[400], Closes),
        same(
            "a line feed in an extension",
            chunked("2;a\nb\r\n{}\r\n0\r\n\r\n"),
            &[400],
            Closes,
        ),
        same("a size that is none", chunked("x\r\n{}\r\n0\r\n\r\n"), &[400], Closes),
        same("no size", chunked("\r\n{}\r\n0\r\n\r\n"), &[400], Closes),
        same("a size below zero", chunked("-2\r\n{}\r\n0\r\n\r\n"), &[400], Closes),
        same(
            "a size with a prefix",
            chunked("0x2\r\n{}\r\n0\r\n\r\n"),
            &[400],
            Closes,
        ),
        same(
            "a space before a size",
            chunked(" 2\r\n{}\r\n0\r\n\r\n"),
            &[400],
            Closes,
        ),
        same(
            "a size beyond 64 bits",
            chunked("10000000000000002\r\n{}\r\n0\r\n\r\n"),
            &[400],
            Closes,
        ),
        same(
            "the longest size",
            chunked("ffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
            &[400],
            Closes,
        ),
        same("a size too long", chunked("5\r\n{}\r\n0\r\n\r\n"), &[400], Closes),
        same("a size too short", chunked("1\r\n{}\r\n0\r\n\r\n"), &[400], Closes),
        same(
            "a size line that ends with a line feed",
            chunked("2\n{}\r\n0\r\n\r\n"),
            &[400],
            Closes,
        ),
        same(
            "a chunk that ends with a line feed",
            chunked("2\r\n{}\n0\r\n\r\n"),
            &[400],
            Closes,
        ),
        same(
            "a chunk without an end of line",
            chunked("2\r\n{}0\r\n\r\n"),
            &[400],
            Closes,
        ),
        same("a trailer", chunked(&trailers(1)), &[200], GoesOn),
        same(
            "trailers that are no trailers",
            chunked("2\r\n{}\r\n0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\nHost: evil.example\r\n\r\n"),
            &[200],
            GoesOn,
        ),
        same("many trailers", chunked(&trailers(2_000)), &[400], Closes),
        same(
            "a trailer that is no field",
            chunked("2\r\n{}\r\n0\r\nno field\r\n\r\n"),
            &[400],
            Closes,
        ),
        same("chunks that do not end", chunked("2\r\n{}\r\n"), &[400], Closes),
    ]
}

/// `Expect` (RFC 9110 section 10.1.1), B3: a rejected request gets no 100 (Continue).
fn expectations() -> Vec<Row> {
    let expects = |more: &str| post(&format!("Expect: 100-continue\r\n{more}"), "");
    vec![
        same(
            "leave is given",
            expects("Content-Length: 2\r\n") + "{}",
            &[100, 200],
            GoesOn,
        ),
        same(
            "leave is given for chunks",
            expects("Transfer-Encoding: chunked\r\n") + "2\r\n{}\r\n0\r\n\r\n",
            &[100, 200],
            GoesOn,
        ),
        same(
            "in another case",
            post("expect: 100-CONTINUE\r\nContent-Length: 2\r\n", "{}"),
            &[100, 200],
            GoesOn,
        ),
        same("nothing to send", get("Expect: 100-continue\r\n"), &[200], GoesOn),
        same(
            "another expectation",
            post("Expect: more\r\nContent-Length: 2\r\n", "{}"),
            &[200],
            GoesOn,
        ),
        same("too long", expects("Content-Length: 300000\r\n"), &[413], Closes),
        same(
            "far too long",
            expects("Content-Length: 99999999999\r\n"),
            &[413],
            Closes,
        ),
        same(
            "two lengths",
            expects("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"),
            &[400],
            Closes,
        ),
        differ(
            "a compressed body",
            expects("Content-Encoding: gzip\r\nContent-Length: 20\r\n"),
            &[415],
            &[400],
            Closes,
        ),
        same(
            "a path that is none",
            "POST /none HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 20\r\n\r\n",
            &[404],
            Closes,
        ),
        differ(
            "no key",
            "POST /v1/builds HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 20\r\n\r\n",
            &[404],
            &[401],
            Closes,
        ),
        differ(
            "an upload that is too long",
            "POST /build-contexts HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n\
             Expect: 100-continue\r\nContent-Length: 524353537\r\n\r\n",
            &[404],
            &[400],
            Closes,
        ),
        differ(
            "an upload that is no form",
            "POST /build-contexts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/gzip\r\n\
             Expect: 100-continue\r\nContent-Length: 20\r\n\r\n",
            &[404],
            &[412],
            Closes,
        ),
        differ(
            "a simple form of a stranger's page",
            "POST /start HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nContent-Type: text/plain\r\n\
             Expect: 100-continue\r\nContent-Length: 20\r\n\r\n",
            &[403],
            &[404],
            Closes,
        ),
    ]
}

/// Lines and fields of a head (RFC 9112 sections 2 and 5).
fn heads() -> Vec<Row> {
    let long = |bytes: usize| get(&format!("X: {}\r\n", "x".repeat(bytes)));
    let many = |lines: usize| get(&"X: 1\r\n".repeat(lines));
    vec![
        same("a head", get("X: y\r\n"), &[200], GoesOn),
        same("empty lines before it", format!("\r\n\r\n{}", get("")), &[200], GoesOn),
        // RFC 9112 section 2.2 lets a server take them, and devices send them.
        same("line feeds alone", get("X: y\r\n").replace('\r', ""), &[200], GoesOn),
        same("a line feed alone in the middle", get("X: y\n"), &[200], GoesOn),
        same("a line feed alone before it", format!("\n{}", get("")), &[200], GoesOn),
        same(
            "carriage returns alone",
            get("X: y\r\n").replace('\n', ""),
            &[400],
            Closes,
        ),
        same("a carriage return in a value", get("X: y\rz\r\n"), &[400], Closes),
        same(
            "a carriage return at the end of a value",
            get("X: y\r\r\n"),
            &[400],
            Closes,
        ),
        same("a carriage return in a name", get("X\r: y\r\n"), &[400], Closes),
        same("a folded line", get("X: y\r\n z\r\n"), &[400], Closes),
        same("a line folded with a tab", get("X: y\r\n\tz\r\n"), &[400], Closes),
        same(
            "a first line that is folded",
            get("").replace("Host", " Host"),
            &[400],
            Closes,
        ),
        same("a NUL in a value", get("X: y\0z\r\n"), &[400], Closes),
        same("a NUL in a name", get("X\0: y\r\n"), &[400], Closes),
        same(
            "a NUL in a target",
            "GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            &[400],
            Closes,
        ),
        same("a control character in a value", get("X: y\u{1}z\r\n"), &[400], Closes),
        same("DEL in a value", get("X: y\u{7f}z\r\n"), &[400], Closes),
        // Old programs send Latin-1; both servers read no such field.
        same(
            "bytes above ASCII in a value",
            get("X: \u{e9}\u{ff}\r\n"),
            &[200],
            GoesOn,
        ),
        same("bytes above ASCII in a name", get("X\u{e9}: y\r\n"), &[400], Closes),
        same("a space before a colon", get("X : y\r\n"), &[400], Closes),
        same("a tab before a colon", get("X\t: y\r\n"), &[400], Closes),
        same("no colon", get("X\r\n"), &[400], Closes),
        same("no name", get(": y\r\n"), &[400], Closes),
        same("no value", get("X:\r\n"), &[200], GoesOn),
        same("a name with a separator", get("X(y): z\r\n"), &[400], Closes),
        same("a long field", long(20_000), &[200], GoesOn),
        same("a field that is too long", long(40_000), &[431], Closes),
        same("99 fields", many(98), &[200], GoesOn),
        same("too many fields", many(101), &[431], Closes),
        same("fields without end", get(&"X: y\r\n".repeat(20_000)), &[431], Closes),
        same("a field twice", get("X: y\r\nX: z\r\n"), &[200], GoesOn),
        differ(
            "two origins",
            get("Origin: http://localhost\r\nOrigin: https://evil.example\r\n"),
            &[200],
            &[200],
            GoesOn,
        ),
        differ("a null origin", get("Origin: null\r\n"), &[200], &[200], GoesOn),
        differ(
            "two keys",
            post(
                "Authorization: Bearer another-key-of-somebody\r\nContent-Length: 2\r\n",
                "{}",
            ),
            &[200],
            &[401],
            GoesOn,
        ),
        same(
            "two lengths of a keep-alive",
            get("Connection: keep-alive\r\nConnection: close\r\n"),
            &[200],
            Closes,
        ),
        same(
            "a close before a keep-alive",
            get("Connection: close\r\nConnection: keep-alive\r\n"),
            &[200],
            Closes,
        ),
        same("a close in a list", get("Connection: x, Close\r\n"), &[200], Closes),
    ]
}

/// `Host` and the authority of the target (RFC 9112 sections 3.2 and 3.3).
fn hosts() -> Vec<Row> {
    let host = |lines: &str| format!("GET {{GET}} HTTP/1.1\r\n{lines}\r\n");
    vec![
        same("no host", host(""), &[400], GoesOn),
        same(
            "a host twice",
            host("Host: localhost\r\nHost: localhost\r\n"),
            &[400],
            GoesOn,
        ),
        same(
            "two hosts",
            host("Host: localhost\r\nHost: evil.example\r\n"),
            &[400],
            GoesOn,
        ),
        same("a host with a port", host("Host: localhost:1\r\n"), &[200], GoesOn),
        same("a host in capitals", host("HOST: LOCALHOST\r\n"), &[200], GoesOn),
        // Who finds the cloud service has a key; it has no cookies and trusts no name.
        differ("another host", host("Host: evil.example\r\n"), &[421], &[200], GoesOn),
        differ("an empty host", host("Host:\r\n"), &[421], &[200], GoesOn),
        differ(
            "a host with a user",
            host("Host: u@localhost\r\n"),
            &[421],
            &[200],
            GoesOn,
        ),
        differ(
            "a host with a path",
            host("Host: localhost/x\r\n"),
            &[421],
            &[200],
            GoesOn,
        ),
        differ(
            "two hosts in a list",
            host("Host: localhost, evil.example\r\n"),
            &[421],
            &[200],
            GoesOn,
        ),
        differ("a host that is no name", host("Host: a b\r\n"), &[421], &[200], GoesOn),
        differ(
            "a host that becomes a part of URLs",
            post("Content-Length: 2\r\n", "{}").replace("Host: localhost", "Host: u@localhost"),
            &[421],
            &[400],
            GoesOn,
        ),
        same(
            "a forwarded host",
            get("X-Forwarded-Host: evil.example\r\nForwarded: host=evil.example\r\n"),
            &[200],
            GoesOn,
        ),
    ]
}

/// Forms of the target, and methods (RFC 9112 section 3.2, RFC 9110 section 9).
fn targets() -> Vec<Row> {
    let line = |line: &str| format!("{line}\r\nHost: localhost\r\n\r\n");
    vec![
        same(
            "an absolute target",
            line("GET http://localhost{GET} HTTP/1.1"),
            &[200],
            GoesOn,
        ),
        differ(
            "an absolute target of another host",
            line("GET http://evil.example{GET} HTTP/1.1"),
            &[421],
            &[200],
            GoesOn,
        ),
        differ(
            "an absolute target with a user",
            line("GET http://u@localhost{GET} HTTP/1.1"),
            &[421],
            &[200],
            GoesOn,
        ),
        differ(
            "an absolute target without a path",
            line("GET http://localhost HTTP/1.1"),
            &[307],
            &[404],
            GoesOn,
        ),
        differ(
            "an authority",
            line("GET localhost:80 HTTP/1.1"),
            &[421],
            &[404],
            GoesOn,
        ),
        differ(
            "a CONNECT",
            line("CONNECT localhost:80 HTTP/1.1"),
            &[421],
            &[404],
            GoesOn,
        ),
        same("an asterisk", line("OPTIONS * HTTP/1.1"), &[404], GoesOn),
        same("an asterisk for another method", line("GET * HTTP/1.1"), &[404], GoesOn),
        same("no target", line("GET  HTTP/1.1"), &[400], Closes),
        differ(
            "a target without a slash",
            line("GET status HTTP/1.1"),
            &[421],
            &[404],
            GoesOn,
        ),
        same("a target with a fragment", line("GET {GET}#x HTTP/1.1"), &[200], GoesOn),
        same("a target with a space", line("GET {GET} x HTTP/1.1"), &[400], Closes),
        same(
            "two spaces before the version",
            line("GET {GET}  HTTP/1.1"),
            &[400],
            Closes,
        ),
        same("a tab before the version", line("GET {GET}\tHTTP/1.1"), &[400], Closes),
        same(
            "bytes above ASCII in a target",
            line("GET /\u{e9} HTTP/1.1"),
            &[400],
            Closes,
        ),
        same(
            "a long target",
            line(&format!("GET {{GET}}?{} HTTP/1.1", "x".repeat(20_000))),
            &[200],
            GoesOn,
        ),
        same(
            "a target that is too long",
            line(&format!("GET {{GET}}?{} HTTP/1.1", "x".repeat(70_000))),
            &[431],
            Closes,
        ),
        same("a method in lower case", line("get {GET} HTTP/1.1"), &[405], GoesOn),
        same("an unknown method", line("BREW {GET} HTTP/1.1"), &[405], GoesOn),
        same(
            "a long method",
            line(&format!("{} {{GET}} HTTP/1.1", "X".repeat(5_000))),
            &[405],
            GoesOn,
        ),
        same("a method that is no token", line("G(T {GET} HTTP/1.1"), &[400], Closes),
        same("TRACE", line("TRACE {GET} HTTP/1.1"), &[405], GoesOn),
        same("no method", line(" {GET} HTTP/1.1"), &[400], Closes),
        same(
            "an upgrade to HTTP/2",
            get("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"),
            &[200],
            GoesOn,
        ),
    ]
}

/// Versions (RFC 9112 sections 2.3 and 9.3).
fn versions() -> Vec<Row> {
    let of = |version: &str, more: &str| format!("GET {{GET}} {version}\r\nHost: localhost\r\n{more}\r\n");
    vec![
        same("HTTP/1.0", of("HTTP/1.0", ""), &[200], Closes),
        same(
            "HTTP/1.0 that stays",
            of("HTTP/1.0", "Connection: keep-alive\r\n"),
            &[200],
            GoesOn,
        ),
        same("HTTP/1.0 without a host", "GET {GET} HTTP/1.0\r\n\r\n", &[200], Closes),
        same("HTTP/0.9", "GET {GET}\r\n\r\n", &[400], Closes),
        same("HTTP/1.2", of("HTTP/1.2", ""), &[400], Closes),
        same("HTTP/2.0", of("HTTP/2.0", ""), &[400], Closes),
        same("HTTP/1.10", of("HTTP/1.10", ""), &[400], Closes),
        same("HTTP in lower case", of("http/1.1", ""), &[400], Closes),
        same("no version", of("", ""), &[400], Closes),
        // A client of HTTP/2 would not understand an answer.
        same("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[], Closes),
    ]
}

/// Several requests on one connection (RFC 9112 section 9.3).
fn several() -> Vec<Row> {
    vec![
        same("two requests", get("") + &get(""), &[200, 200], GoesOn),
        same(
            "bodies between them",
            post("Content-Length: 2\r\n", "{}") + &get("") + &chunked("2\r\n{}\r\n0\r\n\r\n"),
            &[200, 200, 200],
            GoesOn,
        ),
        same(
            "empty lines between them",
            format!("{}\r\n\r\n{}", get(""), get("")),
            &[200, 200],
            GoesOn,
        ),
        same(
            "a request behind a close",
            get("Connection: close\r\n") + &get(""),
            &[200],
            Closes,
        ),
        same(
            "rubbish behind a request",
            get("") + "\u{ff}\u{fe}\r\n\r\n",
            &[200, 400],
            Closes,
        ),
        differ(
            "a body that is read though it is refused",
            post("Content-Length: 3\r\n", "[1]") + &get(""),
            &[422, 200],
            &[400, 200],
            GoesOn,
        ),
        same("twenty requests", get("").repeat(20), &[200; 20], GoesOn),
    ]
}

/// Paths of the page's files, and their ranges: no path leads outside of them.
pub fn page() -> Vec<Row> {
    let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
    let nowhere = |name: &'static str, path: &str| same(name, get(path, ""), &[404], GoesOn);
    let mut rows = vec![
        same("the page", get("/client/", ""), &[200], GoesOn),
        same("a file of it", get("/client/app.js", ""), &[200], GoesOn),
        same("an encoded letter", get("/client/app%2Ejs", ""), &[200], GoesOn),
        same("a query", get("/client/app.js?x=../..", ""), &[200], GoesOn),
        // One slash too many is forgiven behind routes; no file is a folder.
        same("a slash behind a file", get("/client/app.js/", ""), &[404], GoesOn),
    ];
    for (name, path) in [
        ("above the page", "/client/../status"),
        ("far above the page", "/client/../../../../etc/passwd"),
        ("above the root", "/../etc/passwd"),
        ("encoded dots", "/client/%2e%2e/status"),
        ("dots in capitals", "/client/%2E%2E/%2E%2E/etc/passwd"),
        ("one encoded dot", "/client/.%2e/status"),
        ("an encoded slash", "/client/..%2fstatus"),
        ("encoded dots and slashes", "/client/%2e%2e%2f%2e%2e%2fetc%2fpasswd"),
        ("dots that are encoded twice", "/client/%252e%252e/status"),
        ("a slash that is encoded twice", "/client/..%252fstatus"),
        ("a backslash", "/client/..\\status"),
        ("an encoded backslash", "/client/..%5cstatus"),
        ("a NUL", "/client/app.js%00"),
        ("a NUL before an ending", "/client/app.js%00.html"),
        ("dots in overlong UTF-8", "/client/%c0%ae%c0%ae/status"),
        ("a slash in overlong UTF-8", "/client/..%c0%afstatus"),
        ("a slash in longer UTF-8", "/client/..%e0%80%afstatus"),
        ("half a surrogate", "/client/%ed%a0%80"),
        ("half a letter", "/client/%e2%82"),
        ("dots of another script", "/client/%e2%80%a5/status"),
        ("a percent alone", "/client/%"),
        ("a percent and one digit", "/client/%2"),
        ("digits that are none", "/client/%zz"),
        ("an absolute path", "/client//etc/passwd"),
        ("an encoded absolute path", "/client/%2fetc%2fpasswd"),
        ("a drive", "/client/C:/windows/win.ini"),
        ("a stream of a file", "/client/app.js::$DATA"),
        ("a file in capitals", "/client/APP.JS"),
        ("a file with a dot behind it", "/client/app.js."),
        ("a file with a space behind it", "/client/app.js%20"),
        ("a line break", "/client/app.js%0d%0aX:%20y"),
        ("a folder of ours", "/client/./../src/lib.rs"),
        ("a file of ours", "/src/page.rs"),
        ("another's secrets", "/.env"),
        ("the page with a dot", "/client/."),
        ("the page with an encoded dot", "/client/%2e"),
    ] {
        rows.push(nowhere(name, path));
    }
    // A server may leave ranges out (RFC 9110 section 14.2), and the files are small: the whole is
    // sent.
    for (name, range) in [
        ("a range", "bytes=0-9"),
        ("the end of a file", "bytes=-10"),
        ("a range beyond the end", "bytes=99999999-"),
        ("a range backwards", "bytes=9-0"),
        ("many ranges", "bytes=0-0,1-1,2-2,3-3,4-4,5-5,6-6,7-7"),
        ("ranges that overlap", "bytes=0-,0-,0-,0-"),
        ("a range beyond 64 bits", "bytes=0-18446744073709551616"),
        ("a range of another unit", "lines=0-9"),
        ("no range", "bytes="),
    ] {
        rows.push(same(
            name,
            get("/client/app.js", &format!("Range: {range}\r\n")),
            &[200],
            GoesOn,
        ));
    }
    rows
}
