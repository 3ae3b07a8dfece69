//! Uploads: order of errors, memory, concurrency, interruption.
//!
//! Requests are written byte by byte, like those of common HTTP clients; the service is the real
//! binary.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use data_encoding::BASE64;
use edge_runner_cloud::proto::sign::STORE;
use edge_runner_proto::time;
use serde_json::{Value, json};

use crate::support::cloud::{DataDir, TestCloud, archive};
use crate::support::http::{self, Reply};
use crate::support::runner::PATIENCE;

/// A command, so that regions have builds.
const COMMAND: [&str; 2] = ["--", "true"];
const SIGNING: [(&str, &str); 2] = [
    ("CLOUD_STORE_KEY_ID", "SKEXAMPLE01"),
    ("CLOUD_STORE_SECRET", "store-secret-for-tests"),
];

/// Data with a gzip magic number and no equal lines.
fn file(bytes: usize, seed: u32) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b];
    let mut state = seed;
    file.resize_with(bytes, || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    file
}

/// A form to be modified.
#[derive(Clone)]
struct Form {
    grant: Value,
    kind: String,
    fields: Vec<(String, String)>,
    /// Name and content of parts after the fields.
    files: Vec<(&'static str, Vec<u8>)>,
    /// Parameter of these parts. All known clients send one, and versitygw needs it.
    filename: &'static str,
    end: &'static str,
}

impl Form {
    fn new(grant: &Value, content: Vec<u8>) -> Form {
        let fields = grant["uploadFields"].as_object().expect("fields");
        Form {
            grant: grant.clone(),
            kind: "multipart/form-data; boundary=----of-a-test-0123456789".into(),
            fields: fields
                .iter()
                .map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned()))
                .collect(),
            files: vec![("file", content)],
            filename: "; filename=\"context.tar.gz\"",
            end: "------of-a-test-0123456789--\r\n",
        }
    }

    fn value(&mut self, name: &str) -> &mut String {
        let field = self.fields.iter_mut().find(|(field, _)| field == name);
        &mut field.expect("a field of the grant").1
    }

    /// Modifies the policy and signs it like [`SIGNING`].
    fn policy(&mut self, change: impl Fn(&str) -> String) {
        let document = BASE64.decode(self.value("Policy").as_bytes()).expect("base64");
        let policy = BASE64.encode(change(&String::from_utf8(document).expect("UTF-8")).as_bytes());
        let scope: Vec<String> = self.value("X-Store-Credential").split('/').map(str::to_owned).collect();
        let secret = SIGNING[1].1.as_bytes();
        *self.value("X-Store-Signature") = STORE.sign(secret, &scope[1], &scope[2], policy.as_bytes());
        *self.value("Policy") = policy;
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut part = |name: &str, more: &str, content: &[u8]| {
            let head =
                format!("------of-a-test-0123456789\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n");
            body.extend([head.as_bytes(), content, b"\r\n"].concat());
        };
        for (name, value) in &self.fields {
            part(name, "", value.as_bytes());
        }
        for (name, content) in &self.files {
            part(name, self.filename, content);
        }
        body.extend(self.end.as_bytes());
        body
    }

    fn send(&self, cloud: &TestCloud, headers: &[&str]) -> Reply {
        let mut sending = Sending::begin(cloud, self, headers);
        sending.write(&self.body());
        sending.reply()
    }
}

/// A request being sent.
struct Sending {
    stream: TcpStream,
    is_to_store: bool,
}

impl Sending {
    fn begin(cloud: &TestCloud, form: &Form, headers: &[&str]) -> Sending {
        let length = format!("Content-Length: {}", form.body().len());
        Sending::open(cloud, form, &[headers, &[&length]].concat())
    }

    fn open(cloud: &TestCloud, form: &Form, headers: &[&str]) -> Sending {
        let (addr, path) = cloud.upload_target(&form.grant);
        let stream = TcpStream::connect(addr).expect("the service listens");
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(PATIENCE)).expect("a time");
        }
        let mut sending = Sending {
            stream,
            is_to_store: addr != cloud.runner.addr,
        };
        // Go's servers cancel the request of a client that closes its side before the answer.
        let end = if sending.is_to_store {
            "Connection: close\r\n"
        } else {
            ""
        };
        let (kind, headers) = (&form.kind, headers.join("\r\n"));
        sending.write(
            format!("POST {path} HTTP/1.1\r\nHost: {addr}\r\n{end}Content-Type: {kind}\r\n{headers}\r\n\r\n")
                .as_bytes(),
        );
        sending
    }

    fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the service reads");
    }

    /// Ends the request and reads the answer.
    fn reply(mut self) -> Reply {
        if !self.is_to_store {
            self.stream.shutdown(Shutdown::Write).expect("it is open");
        }
        let mut raw = Vec::new();
        self.stream.read_to_end(&mut raw).expect("the service answers");
        http::parse(&raw).unwrap_or_else(|| panic!("no reply: {}", raw.escape_ascii()))
    }

    /// Reads `100 Continue`.
    fn wait_for_continue(&mut self) {
        const LEAVE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        let mut read = [0; LEAVE.len()];
        self.stream.read_exact(&mut read).expect("the service answers");
        assert_eq!(read.escape_ascii().to_string(), LEAVE.escape_ascii().to_string());
    }
}

/// Returns the path of a grant's archive.
fn place(data: &DataDir, grant: &Value) -> PathBuf {
    let key = grant["uploadFields"]["key"].as_str().expect("a key");
    data.path().join("archives").join(key)
}

fn parts(data: &DataDir) -> usize {
    fs::read_dir(data.path().join("tmp")).expect("a folder").count()
}

/// Returns the stored archive of a grant.
fn stored(data: &DataDir, grant: &Value) -> Option<Vec<u8>> {
    data.stored_archive(grant["uploadFields"]["key"].as_str().expect("a key"))
}

/// Waits until this many uploads are being written.
fn wait_for_parts(data: &DataDir, wanted: usize) {
    let began = Instant::now();
    while parts(data) != wanted {
        assert!(began.elapsed() < PATIENCE, "{} parts, {wanted} wanted", parts(data));
        thread::sleep(Duration::from_millis(5));
    }
}

/// I-06, I-30, C-044, C-045, C-065 to C-072, C-085, C-088: one case per error code, in JSON and
/// XML; none leaves anything. `edge_runner_cloud::proto::verify` tests all cases.
#[test]
fn every_error_code_is_returned() {
    let data = DataDir::new();
    let cloud = TestCloud::start_with(&data, &[&["--max-context", "1k"], &COMMAND[..]].concat(), &SIGNING);
    type Row = (u16, &'static str, fn(&mut Form));
    let rows: &[Row] = &[
        (204, "", |_| {}),
        (204, "", |form| form.files[0].1 = file(1024, 1)),
        (204, "", |form| form.filename = ""),
        (412, "PreconditionFailed", |form| {
            form.kind = "application/octet-stream".into()
        }),
        (400, "MalformedPOSTRequest", |form| form.end = ""),
        (400, "MaxPostPreDataLengthExceeded", |form| {
            form.fields.push(("x-ignore-me".into(), "x".repeat(20_001)));
        }),
        (400, "InvalidArgument", |form| {
            form.fields.push(("key".into(), "again".into()))
        }),
        (400, "IncorrectNumberOfFilesInPostRequest", |form| form.files.clear()),
        (400, "IncorrectNumberOfFilesInPostRequest", |form| {
            form.files.push(("file", file(10, 1)));
        }),
        // C-072: a name in another case.
        (403, "AccessDenied", |form| {
            let policy = form.fields.iter_mut().find(|(name, _)| name == "Policy");
            policy.expect("a policy").0 = "policy".into();
        }),
        (400, "InvalidArgument", |form| {
            *form.value("X-Store-Algorithm") = "STORE4-HMAC-SHA1".into()
        }),
        (403, "InvalidAccessKeyId", |form| {
            let other = form.value("X-Store-Credential").replace("SKEXAMPLE01", "SKEXAMPLE02");
            *form.value("X-Store-Credential") = other;
        }),
        (403, "SignatureDoesNotMatch", |form| {
            *form.value("X-Store-Signature") = "0".repeat(64)
        }),
        (400, "InvalidPolicyDocument", |form| form.policy(|_| "{".into())),
        (403, "AccessDenied", |form| {
            form.policy(|text| {
                let year = "{\"expiration\":\"".len();
                format!("{}2004{}", &text[..year], &text[year + 4..])
            });
        }),
        // C-070: another content type.
        (403, "AccessDenied", |form| {
            *form.value("Content-Type") = "text/plain".into()
        }),
        (403, "AccessDenied", |form| {
            form.fields.push(("success_action_status".into(), "201".into()))
        }),
        // C-071: the size.
        (400, "EntityTooLarge", |form| form.files[0].1 = file(1025, 1)),
        (400, "EntityTooLarge", |form| form.files[0].1 = file(1024 + 70_000, 1)),
        (400, "EntityTooSmall", |form| form.files[0].1.clear()),
        (400, "InvalidArgument", |form| form.files[0].1 = b"PK\x03\x04".to_vec()),
    ];
    for (row, (status, code, change)) in rows.iter().enumerate() {
        let grant = cloud.grant();
        let mut form = Form::new(&grant, file(100, 1));
        change(&mut form);
        for accept in [
            "Accept: */*",
            "Accept: application/xml",
            "Accept: text/html, text/xml;q=0.9",
        ] {
            let reply = form.send(&cloud, &[accept, "Authorization: Bearer none"]);
            assert_eq!(reply.status, *status, "row {row}: {}", reply.text());
            if *status == 204 {
                assert_eq!(fs::read(place(&data, &grant)).expect("it is there"), form.files[0].1);
                assert_eq!(reply.body, b"");
                continue;
            }
            let kind = reply.header("content-type").expect("a type");
            if accept.contains("xml") {
                assert!(kind.starts_with("application/xml"), "{kind}");
                let text = reply.text();
                assert!(
                    text.contains(&format!("<Error><Code>{code}</Code><Message>")),
                    "row {row}: {text}"
                );
                assert!(text.ends_with("</Message></Error>"), "{text}");
            } else {
                assert_eq!(kind, "application/json");
                let json = reply.json();
                assert_eq!(json["code"], *code, "row {row}: {json}");
                assert!(json["error"].as_str().is_some_and(|text| !text.is_empty()));
                assert_eq!(json.as_object().map(serde_json::Map::len), Some(2));
            }
            assert!(!place(&data, &grant).exists(), "row {row}");
        }
    }
    wait_for_parts(&data, 0);
}

/// C-067 to C-072, I-31: what a grant does not allow is refused by the service, or by the store,
/// and nothing is stored.
#[test]
fn what_a_grant_does_not_allow_is_refused() {
    type Change<'c> = &'c dyn Fn(&mut Form);
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[&["--max-context", "2k"], &COMMAND[..]].concat());
    let (prefix, other_key) = match data.place() {
        None => ("X-Store", "SKOTHER"),
        Some(_) => ("X-Amz", "AKIAOTHER"),
    };
    let rows: &[(&str, Change<'_>)] = &[
        ("another type", &|form| {
            *form.value("Content-Type") = "text/plain".into()
        }),
        ("another key", &|form| {
            let other = form.value("key").replace("default/", "other/");
            *form.value("key") = other;
        }),
        ("another bucket", &|form| *form.value("bucket") = "another".into()),
        ("a field more", &|form| {
            form.fields.push(("x-amz-acl".into(), "public-read".into()))
        }),
        ("too large", &|form| form.files[0].1 = file(2049, 1)),
        ("another policy", &|form| {
            let other = form.value("Policy").replace('e', "f");
            *form.value("Policy") = other;
        }),
        ("another signature", &|form| {
            *form.value(&format!("{prefix}-Signature")) = "0".repeat(64);
        }),
        ("a signature of another day", &|form| {
            let credential = form.value(&format!("{prefix}-Credential"));
            let day = credential.split('/').nth(1).expect("a date").to_owned();
            *credential = credential.replace(&day, "20040101");
        }),
        ("an unknown key", &|form| {
            let credential = form.value(&format!("{prefix}-Credential"));
            let id = credential.split('/').next().expect("an id").to_owned();
            *credential = credential.replace(&id, other_key);
        }),
        ("no policy", &|form| form.fields.retain(|(name, _)| name != "Policy")),
        ("no file", &|form| form.files.clear()),
    ];
    for (what, change) in rows {
        // At a store the bucket is that of the URL, and versitygw does not compare this field.
        if *what == "another bucket" && data.place().is_some() {
            continue;
        }
        let grant = cloud.grant();
        let mut form = Form::new(&grant, file(100, 1));
        change(&mut form);
        let reply = form.send(&cloud, &[]);
        assert!(
            (400..500).contains(&reply.status),
            "{what}: {} {}",
            reply.status,
            reply.text()
        );
        assert_eq!(stored(&data, &grant), None, "{what}");
        // The same grant is good for what it allows.
        let allowed = Form::new(&grant, file(100, 1)).send(&cloud, &[]);
        assert_eq!(allowed.status, 204, "{what}: {}", allowed.text());
    }
}

/// C-066, I-08, I-16: the answer names the archive, which may be replaced until a build uses it.
#[test]
fn an_archive_is_replaceable_until_a_build_uses_it() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &COMMAND);
    let grant = cloud.grant();
    let packed = archive(&[("Dockerfile", "FROM scratch\n")]);
    for content in [file(100, 1), packed.clone()] {
        let reply = Form::new(&grant, content.clone()).send(&cloud, &[]);
        assert_eq!(reply.status, 204, "{}", reply.text());
        assert_eq!(stored(&data, &grant).as_ref(), Some(&content));
        // Not every store's answer has one.
        let etag = reply.header("etag").map(str::to_owned);
        if data.place().is_none() {
            let etag = etag.as_ref().expect("an ETag");
            assert!(
                etag.len() == 34 && etag.starts_with('"') && etag.ends_with('"'),
                "{etag}"
            );
            let url = grant["uploadUrl"].as_str().expect("a URL");
            let key = grant["uploadFields"]["key"].as_str().expect("a key");
            assert_eq!(reply.header("location"), Some(&*format!("{url}/{key}")));
        }
        if content == packed {
            let created = cloud.create(grant["uploadId"].as_str().expect("an identifier"));
            assert_eq!(created.status, 201, "{}", created.text());
            let hash = created.json()["contextHash"].as_str().expect("a hash").to_owned();
            assert!(etag.is_none_or(|etag| etag[1..17] == hash), "{hash}");
        }
    }
    if data.place().is_some() {
        // A store takes it, and no build is made of it: `scale::a_later_upload_is_never_built`.
        return;
    }
    let late = Form::new(&grant, file(100, 2)).send(&cloud, &[]);
    assert_eq!((late.status, &late.json()["code"]), (409, &json!("CONFLICT")));
    assert_eq!(stored(&data, &grant), Some(packed));
}

/// I-06: a client that sends everything before reading still gets the error.
#[test]
fn an_error_reaches_a_client_that_is_still_sending() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &COMMAND);
    let mut form = Form::new(&cloud.grant(), file(32 * 1024 * 1024, 1));
    *form.value("X-Store-Signature") = "0".repeat(64);
    let reply = form.send(&cloud, &[]);
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (403, &json!("SignatureDoesNotMatch"))
    );
    assert_eq!(parts(&data), 0);
}

/// I-07, C-092: half a gigabyte to the last allowed byte, with `Expect` and chunked, in bounded
/// memory. One more byte is rejected.
#[test]
fn a_large_upload_takes_little_memory() {
    const MAX: usize = 524_288_000;
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &COMMAND);
    cloud.upload(&file(1_000, 1));
    let idle_kib = cloud.runner.peak_kib();
    let block = file(1024 * 1024, 1);
    for more in [0, 1] {
        let grant = cloud.grant();
        let whole = Form::new(&grant, Vec::new());
        let form = whole.body();
        let end = form.len() - "\r\n------of-a-test-0123456789--\r\n".len();
        let headers = ["Transfer-Encoding: chunked", "Expect: 100-continue"];
        let mut sending = Sending::open(&cloud, &whole, &headers);
        sending.wait_for_continue();
        let mut chunk = |bytes: &[u8]| {
            sending.write(format!("{:x}\r\n", bytes.len()).as_bytes());
            sending.write(bytes);
            sending.write(b"\r\n");
        };
        chunk(&form[..end]);
        let mut left = MAX + more;
        while left > 0 {
            let piece = &block[..left.min(block.len())];
            chunk(piece);
            left -= piece.len();
        }
        chunk(&form[end..]);
        sending.write(b"0\r\n\r\n");
        let reply = sending.reply();
        let peak_kib = cloud.runner.peak_kib();
        assert!(
            peak_kib - idle_kib < 64 * 1024,
            "{idle_kib} KiB before, {peak_kib} KiB at most"
        );
        if more == 0 {
            assert_eq!(reply.status, 204, "{}", reply.text());
            let stored = fs::metadata(place(&data, &grant)).expect("it is there");
            assert_eq!(stored.len(), MAX as u64);
            fs::remove_file(place(&data, &grant)).expect("the folder is the test's");
        } else {
            assert_eq!((reply.status, &reply.json()["code"]), (400, &json!("EntityTooLarge")));
        }
    }
    wait_for_parts(&data, 0);
}

/// I-07: `Expect: 100-continue` with a length, and chunks of any size.
#[test]
fn forms_arrive_with_expect_and_in_chunks() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &COMMAND);
    let grant = cloud.grant();
    let form = Form::new(&grant, file(1_000, 7));
    let body = form.body();
    let mut sending = Sending::begin(&cloud, &form, &["Expect: 100-continue"]);
    sending.wait_for_continue();
    sending.write(&body);
    assert_eq!(sending.reply().status, 204);
    for size in [1, 7, 1_000] {
        let mut sending = Sending::open(&cloud, &form, &["Transfer-Encoding: chunked"]);
        let mut chunked = Vec::new();
        for piece in body.chunks(size) {
            chunked.extend([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
        }
        chunked.extend(b"0\r\n\r\n");
        sending.write(&chunked);
        let reply = sending.reply();
        assert_eq!(reply.status, 204, "chunks of {size}: {}", reply.text());
        assert!(fs::read(place(&data, &grant)).expect("it is there") == form.files[0].1);
    }
}

/// I-08: an interrupted upload or a killed service leaves the earlier archive; the grant stays
/// valid.
#[test]
fn an_interrupted_upload_leaves_the_earlier_archive() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &COMMAND);
    let grant = cloud.grant();
    let (old, new) = (file(1_000, 1), file(2_000_000, 2));
    assert_eq!(Form::new(&grant, old.clone()).send(&cloud, &[]).status, 204);
    let form = Form::new(&grant, new.clone());
    let half = &form.body()[..1_500_000];

    let mut broken = Sending::begin(&cloud, &form, &[]);
    broken.write(half);
    wait_for_parts(&data, 1);
    drop(broken);
    wait_for_parts(&data, 0);
    assert!(fs::read(place(&data, &grant)).expect("it is there") == old);

    let mut killed = Sending::begin(&cloud, &form, &[]);
    killed.write(half);
    wait_for_parts(&data, 1);
    drop(cloud);
    assert_eq!(parts(&data), 1, "the killed service could not delete it");
    let cloud = TestCloud::start(&data, &COMMAND);
    assert_eq!(parts(&data), 0);
    assert!(fs::read(place(&data, &grant)).expect("it is there") == old);
    assert_eq!(form.send(&cloud, &[]).status, 204);
    assert!(fs::read(place(&data, &grant)).expect("it is there") == new);
}

/// I-09: twenty concurrent uploads are stored unmixed.
#[test]
fn twenty_concurrent_uploads_are_stored_unmixed() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &COMMAND);
    let grants: Vec<Value> = (0..20).map(|_| cloud.grant()).collect();
    thread::scope(|scope| {
        for (seed, grant) in (0..).zip(&grants) {
            let cloud = &cloud;
            scope.spawn(move || {
                let reply = Form::new(grant, file(1_500_000 + seed as usize, seed)).send(cloud, &[]);
                assert_eq!(reply.status, 204, "{}", reply.text());
            });
        }
    });
    for (seed, grant) in (0..).zip(&grants) {
        let stored = stored(&data, grant).expect("it is there");
        assert!(stored == file(1_500_000 + seed as usize, seed), "upload {seed}");
    }
    if data.place().is_none() {
        assert_eq!(parts(&data), 0);
    }
}

/// I-09: of two uploads with one grant the last to end wins.
#[test]
fn the_last_of_two_uploads_with_one_grant_wins() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &COMMAND);
    let grant = cloud.grant();
    let forms = [1, 2].map(|seed| Form::new(&grant, file(1_000_000, seed)));
    for (first, last) in [(0, 1), (1, 0)] {
        let mut sendings = forms.each_ref().map(|form| {
            let mut sending = Sending::begin(&cloud, form, &[]);
            sending.write(&form.body()[..500_000]);
            Some(sending)
        });
        for at in [first, last] {
            let mut sending = sendings[at].take().expect("each ends once");
            sending.write(&forms[at].body()[500_000..]);
            assert_eq!(sending.reply().status, 204);
            assert!(stored(&data, &grant).expect("it is there") == forms[at].files[0].1);
        }
    }
    if data.place().is_none() {
        wait_for_parts(&data, 0);
    }
}

/// I-09: above `--max-uploads` an upload gets 503, and succeeds once a permit is free.
#[test]
fn too_many_uploads_get_503() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[&["--max-uploads", "1"], &COMMAND[..]].concat());
    let form = Form::new(&cloud.grant(), file(1_000_000, 1));
    let mut first = Sending::begin(&cloud, &form, &[]);
    first.write(&form.body()[..600_000]);
    wait_for_parts(&data, 1);
    let other = Form::new(&cloud.grant(), file(1_000, 2));
    let refused = other.send(&cloud, &[]);
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("SlowDown")));
    let after: u32 = refused.header("retry-after").expect("a time").parse().expect("seconds");
    assert!(after > 0);
    first.write(&form.body()[600_000..]);
    assert_eq!(first.reply().status, 204);
    assert_eq!(other.send(&cloud, &[]).status, 204);
}

/// C-031, C-073, C-093, I-06: uploads that begin or end after the deadline are rejected.
#[test]
fn an_upload_after_the_deadline_is_rejected() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[&["--grant-ttl", "5"], &COMMAND[..]].concat());
    let grant = cloud.grant();
    let ends_ms = time::parse_iso(grant["expiresAt"].as_str().expect("a date")).expect("a date");
    let form = Form::new(&grant, file(1_000_000, 1));
    let mut late = Sending::begin(&cloud, &form, &[]);
    late.write(&form.body()[..600_000]);
    if data.place().is_none() {
        wait_for_parts(&data, 1);
    }
    let now_ms = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock")
            .as_millis() as u64
    };
    while now_ms() < ends_ms {
        thread::sleep(Duration::from_millis(ends_ms - now_ms().min(ends_ms)));
    }
    late.write(&form.body()[600_000..]);
    for reply in [late.reply(), form.send(&cloud, &[])] {
        assert_eq!(reply.status, 403, "{}", reply.text());
        if data.place().is_some() {
            continue;
        }
        let json = reply.json();
        assert_eq!(json["code"], "AccessDenied");
        assert!(
            json["error"]
                .as_str()
                .is_some_and(|text| text.starts_with("Policy expired")),
            "{json}"
        );
    }
    assert_eq!(stored(&data, &grant), None);
    if data.place().is_none() {
        wait_for_parts(&data, 0);
    }
}

/// I-21: an upload without disk space gets 507 and leaves nothing.
#[test]
fn an_upload_without_space_leaves_nothing() {
    let data = DataDir::new();
    let cloud = TestCloud::start_small(&data, &COMMAND, 8 * 1024);
    for (bytes, status) in [(1_000, 204), (20_000_000, 507), (1_000_000, 204)] {
        let grant = cloud.grant();
        let reply = Form::new(&grant, file(bytes, 1)).send(&cloud, &[]);
        assert_eq!(reply.status, status, "{}", reply.text());
        assert_eq!(place(&data, &grant).exists(), status == 204);
        if status == 507 {
            assert_eq!(reply.json()["code"], "InsufficientStorage");
        }
        wait_for_parts(&data, 0);
        assert_eq!(cloud.get("/v1/builds").status, 200);
    }
}
