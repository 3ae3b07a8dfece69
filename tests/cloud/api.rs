//! Every operation and every error of the API.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::cloud::{DataDir, KEY, OTHER, PUBLIC, TestCloud, archive};
use crate::support::http::{self, Reply};
use crate::support::runner::PATIENCE;
use crate::support::scale::KEY_SECRET;

const ID: &str = "7a2c9e10-1111-4222-8333-444455556666";
const JSON_BYTES_MAX: usize = 64 * 1024;

/// Asserts an error answer: status, code, and no further members (C-088).
fn is_refused(reply: &Reply, status: u16, code: &str) {
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (status, Some("application/json")),
        "{}",
        reply.text()
    );
    let json = reply.json();
    assert_eq!(json["code"], code, "{json}");
    assert!(json["error"].as_str().is_some_and(|error| !error.is_empty()), "{json}");
    assert_eq!(json.as_object().expect("an object").len(), 2, "{json}");
}

/// Sends raw bytes and reads to the end.
fn exchange(cloud: &TestCloud, bytes: &[u8]) -> Reply {
    http::exchange(cloud.runner.addr, bytes).expect("an answer")
}

/// C-088, I-24: each error below both prefixes.
#[test]
fn each_error_has_its_code() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &["--", "/bin/true"]);
    let upload = json!({"uploadId": ID, "region": "local"}).to_string();
    let create = |body: &str| ("POST", "/builds", body.to_owned());
    let read = |path: &'static str| ("GET", path, String::new());
    for (request, status, code) in [
        (read("/builds/x"), 400, "GENERIC_BAD_REQUEST"),
        (
            read("/builds/7a2c9e10-1111-1222-8333-444455556666"),
            400,
            "GENERIC_BAD_REQUEST",
        ),
        (read("/builds/x/logs"), 400, "GENERIC_BAD_REQUEST"),
        (read("/builds/7a2c9e10-1111-4222-8333-444455556666"), 404, "NOT_FOUND"),
        (
            read("/builds/7a2c9e10-1111-4222-8333-444455556666/logs"),
            404,
            "NOT_FOUND",
        ),
        (
            read("/builds/7a2c9e10-1111-4222-8333-444455556666/logs?limit=0"),
            400,
            "GENERIC_BAD_REQUEST",
        ),
        (
            read("/images/7a2c9e10-1111-4222-8333-444455556666/image.tar"),
            404,
            "NOT_FOUND",
        ),
        (read("/builds?status=done"), 400, "GENERIC_BAD_REQUEST"),
        (read("/builds?limit=0"), 400, "GENERIC_BAD_REQUEST"),
        (read("/builds?limit=101"), 400, "GENERIC_BAD_REQUEST"),
        (read("/builds?offset=-1"), 400, "GENERIC_BAD_REQUEST"),
        (create(""), 400, "GENERIC_BAD_REQUEST"),
        (create("[]"), 400, "GENERIC_BAD_REQUEST"),
        (create(r#"{"region":"local"}"#), 400, "GENERIC_BAD_REQUEST"),
        (
            create(r#"{"uploadId":"x","region":"local"}"#),
            400,
            "GENERIC_BAD_REQUEST",
        ),
        (create(&upload.replace("local", "nowhere")), 400, "GENERIC_BAD_REQUEST"),
        (create(&upload), 400, "GENERIC_BAD_REQUEST"),
        (read("/nothing"), 404, "NOT_FOUND"),
        (read("/builds/x/y/z"), 404, "NOT_FOUND"),
        (("PATCH", "/properties", "{}".to_owned()), 501, "NOT_IMPLEMENTED"),
        (read("/properties/schema"), 501, "NOT_IMPLEMENTED"),
        (read("/agents"), 501, "NOT_IMPLEMENTED"),
        (("POST", "/services", "{}".to_owned()), 501, "NOT_IMPLEMENTED"),
        (read("/services/bot/sessions/1"), 501, "NOT_IMPLEMENTED"),
        (("PUT", "/secrets/set", "{}".to_owned()), 501, "NOT_IMPLEMENTED"),
        (("POST", "/apiKeys", "{}".to_owned()), 501, "NOT_IMPLEMENTED"),
    ] {
        let (method, path, body) = request;
        for prefix in ["/v1", "/v1/organizations/default"] {
            let target = format!("{prefix}{path}");
            is_refused(&cloud.request(method, &target, KEY, body.as_bytes()), status, code);
        }
    }
    for path in ["/", "/v1x", "/v2/builds", "/index.html"] {
        is_refused(&http::get(cloud.runner.addr, path), 404, "NOT_FOUND");
    }
}

/// I-24: 405 lists the accepted methods.
#[test]
fn a_405_lists_the_accepted_methods() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[]);
    for (method, target, allowed) in [
        ("POST", "/healthz", "GET, HEAD"),
        ("GET", "/build-contexts", "POST"),
        ("DELETE", "/v1/builds", "GET, HEAD, POST"),
        ("GET", "/v1/builds/upload-url", "POST"),
        ("PUT", &format!("/v1/builds/{ID}"), "GET, HEAD"),
        ("OPTIONS", "/v1/regions", "GET, HEAD"),
    ] {
        let reply = cloud.request(method, target, KEY, b"");
        is_refused(&reply, 405, "METHOD_NOT_ALLOWED");
        assert_eq!(reply.header("allow"), Some(allowed), "{method} {target}");
    }
}

/// C-001, C-003, C-054, C-078, C-082, C-084, I-04: without a valid key every path is the same 401;
/// another organization is 403.
#[test]
fn each_surface_needs_its_key() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[]);
    let addr = cloud.runner.addr;
    let is_unauthorized = |reply: Reply, code: &str| {
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
        assert_eq!(reply.json(), json!({"error": "Unauthorized", "code": code}));
    };
    for path in [
        "/v1",
        "/v1/",
        "/v1/regions",
        "/v1/builds/x",
        "/v1/nothing",
        "/v1/agents",
        "/v1/organizations/other/regions",
    ] {
        for method in ["GET", "POST", "DELETE"] {
            for header in [
                "X-Nothing: x",
                "Authorization: Bearer sk_wrong_0123456789abcde",
                "Authorization: Bearer",
                "Authorization: Basic c2tfdGVzdF8wMTIzNDU2Nzg5YWJjZGVm",
                &format!("Authorization: {KEY}"),
                &format!("Authorization: Bearer {PUBLIC}"),
                &format!("Authorization: Bearer {KEY}\r\nAuthorization: Bearer {KEY}"),
            ] {
                let reply = http::request(addr, method, path, &[header], b"").expect("an answer");
                is_unauthorized(reply, "UNAUTHORIZED");
            }
        }
    }
    for path in ["/v1/public", "/v1/public/agent/start", "/v1/%70ublic/x"] {
        is_unauthorized(http::get(addr, path), "401");
        is_unauthorized(cloud.request("POST", path, KEY, b"{}"), "401");
        is_refused(&cloud.request("POST", path, PUBLIC, b"{}"), 501, "501");
    }
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let header = format!("Authorization: {scheme} {KEY}");
        let reply = http::request(addr, "GET", "/v1/regions", &[&header], b"").expect("an answer");
        assert_eq!(reply.status, 200, "{scheme}");
    }
    for org in ["other", "unknown", "DEFAULT", "%64efault2"] {
        for path in ["regions", "builds", "nothing"] {
            is_refused(&cloud.get(&format!("/v1/organizations/{org}/{path}")), 403, "FORBIDDEN");
        }
    }
    assert_eq!(cloud.get("/v1/organizations/%64efault/regions").status, 200);
    assert_eq!(
        cloud
            .request("GET", "/v1/organizations/other/regions", OTHER, b"")
            .status,
        200
    );
}

/// I-25: the first requests of the published client.
#[test]
fn organizations_lists_the_keys_own() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[]);
    for (key, name) in [(KEY, "default"), (OTHER, "other")] {
        let reply = cloud.request("GET", "/v1/organizations", key, b"");
        let wanted = json!({"organizations": [{"name": name, "verboseName": name}]});
        assert_eq!((reply.status, reply.json()), (200, wanted));
    }
}

/// I-24: a JSON body of 64 KiB is read, one more byte is 413; anything but JSON is 400.
#[test]
fn bodies_have_a_size_limit() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &["--", "/bin/true"]);
    let body = |bytes: usize| format!("{{\"x\":\"{}\"}}", "x".repeat(bytes - 8)).into_bytes();
    let grant = |body: &[u8]| cloud.request("POST", "/v1/builds/upload-url", KEY, body);
    assert_eq!(grant(&body(JSON_BYTES_MAX)).status, 200);
    is_refused(&grant(&body(JSON_BYTES_MAX + 1)), 413, "PAYLOAD_TOO_LARGE");
    is_refused(&grant(&vec![b'x'; 3 * 1024 * 1024]), 413, "PAYLOAD_TOO_LARGE");
    let text = String::from_utf8(body(JSON_BYTES_MAX + 1)).expect("ASCII");
    let chunked = format!(
        "POST /v1/builds/upload-url HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\n\r\n",
        text.len()
    );
    is_refused(&exchange(&cloud, chunked.as_bytes()), 413, "PAYLOAD_TOO_LARGE");
    let zipped = format!(
        "POST /v1/builds/upload-url HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\
         Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    is_refused(&exchange(&cloud, zipped.as_bytes()), 400, "GENERIC_BAD_REQUEST");
}

/// C-029: URLs use the request's host or `--public-url`; an invalid `Host` is rejected. Those of
/// uploads to an object store are the store's, and that of a build's log is the service's in both.
#[test]
fn urls_use_the_clients_host() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &["--", "/bin/true"]);
    let send = |path: &str, more: &str, body: &str| {
        let request = format!(
            "POST {path} HTTP/1.1\r\n{more}Authorization: Bearer {KEY}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        exchange(&cloud, request.as_bytes())
    };
    let grant = |more: &str| send("/v1/builds/upload-url", more, "");
    let upload_url = |data: &DataDir, base: &str| match data.place() {
        None => format!("{base}/build-contexts"),
        Some(place) => place.upload_url(),
    };
    for (head, base) in [
        ("Host: board.local:7870\r\n", "http://board.local:7870"),
        ("Host: [::1]:80\r\n", "http://[::1]:80"),
        ("Host: board\r\nX-Forwarded-Proto: https\r\n", "https://board"),
    ] {
        let reply = grant(head);
        assert_eq!(
            (reply.status, &reply.json()["uploadUrl"]),
            (200, &json!(upload_url(&data, base))),
            "{}",
            reply.text()
        );
        let upload = cloud.upload(&archive(&[("Dockerfile", base)]));
        let wanted = json!({"uploadId": upload, "region": "local"}).to_string();
        let build = send("/v1/builds", head, &wanted).json()["build"].clone();
        let id = build["id"].as_str().expect("an identifier");
        assert_eq!(build["logsUrl"], format!("{base}/v1/builds/{id}/logs"));
    }
    for head in [
        "",
        "Host: a\r\nHost: b\r\n",
        "Host: a/b\r\n",
        "Host: a@b\r\n",
        "Host: a\"b\r\n",
    ] {
        is_refused(&grant(head), 400, "GENERIC_BAD_REQUEST");
    }
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &["--public-url", "https://cloud.example.net", "--", "/bin/true"]);
    let reply = cloud.post("/v1/builds/upload-url", &json!({}));
    assert_eq!(
        reply.json()["uploadUrl"],
        upload_url(&data, "https://cloud.example.net")
    );
}

/// I-22: one log line per request with the owner; no key is logged at any level.
#[test]
fn the_log_has_a_line_and_no_key() {
    let data = DataDir::new();
    let mut cloud = TestCloud::start_with(&data, &["--", "/bin/true"], &[("RUST_LOG", "trace")]);
    let addr = cloud.runner.addr;
    cloud.get("/v1/regions?token=in-the-query");
    let line = cloud.runner.wait_for_log("GET /v1/regions 200");
    let words: Vec<&str> = line.rsplit(' ').take(4).collect();
    // The fields at the end of the line.
    assert_eq!((words[0].len(), words[1], words[2]), (8, "default", "ms"), "{line}");
    assert!(
        words[0].bytes().all(|b| b.is_ascii_hexdigit()) && words[3].parse::<u64>().is_ok(),
        "{line}"
    );
    http::get(addr, "/v1/regions");
    assert!(cloud.runner.wait_for_log("GET /v1/regions 401").ends_with(" ms - -"));

    cloud.get(&format!("/v1/builds/{KEY}"));
    cloud.runner.wait_for_log("GET /v1/builds/... 400");
    cloud.request("GET", &format!("/{PUBLIC}/x"), OTHER, b"");
    cloud.runner.wait_for_log("GET /.../x 404");
    let odd = format!("{KEY} /v1/odd HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_eq!(exchange(&cloud, odd.as_bytes()).status, 401);
    cloud.runner.wait_for_log("- /v1/odd 401");
    cloud.get(&format!("/v1/{}", "long".repeat(1000)));
    assert!(cloud.runner.wait_for_log("/v1/longlong").len() < 500);

    let grant = cloud.grant();
    let reply = cloud.send(&grant, b"no gzip");
    // Where the archive does not pass the service, it is looked at when a build is asked for.
    let (sent, line, secret) = match data.place() {
        None => (
            400,
            "POST /build-contexts 400",
            fs::read_to_string(data.path().join("store.secret")).expect("ours"),
        ),
        Some(_) => {
            let upload = grant["uploadId"].as_str().expect("an identifier");
            assert_eq!(cloud.create(upload).status, 400);
            (204, "POST /v1/builds 400", KEY_SECRET.to_owned())
        }
    };
    assert_eq!(reply.status, sent, "{}", reply.text());
    cloud.runner.wait_for_log(line);

    cloud.runner.signal("TERM");
    cloud.runner.wait();
    let (stdout, stderr) = cloud.runner.last_words();
    let said = stdout + &stderr;
    let fields = grant["uploadFields"].as_object().expect("fields");
    let signed = fields.iter().filter(|(name, _)| {
        ["Policy", "Signature", "Security-Token"]
            .iter()
            .any(|end| name.ends_with(end))
    });
    let signed: Vec<&str> = signed.map(|(_, value)| value.as_str().expect("text")).collect();
    assert!(signed.len() >= 2, "{fields:?}");
    for hidden in [KEY, OTHER, PUBLIC, secret.trim(), "in-the-query"]
        .iter()
        .chain(&signed)
    {
        assert!(!said.contains(hidden), "{hidden} is in the log");
    }
}

/// I-30: rejected uploads are answered in XML if `Accept` names it; other errors are always JSON.
#[test]
fn upload_errors_are_xml_on_request() {
    let data = DataDir::new();
    if data.place().is_some() {
        return errors_of_the_store_are_xml(&data);
    }
    let cloud = TestCloud::start(&data, &[]);
    let ask = |target: &str, accept: &str| {
        let headers = [&*format!("Accept: {accept}"), "Content-Type: text/plain"];
        http::request(cloud.runner.addr, "POST", target, &headers, b"no form").expect("an answer")
    };
    for accept in ["application/xml", "text/html, text/xml;q=0.5"] {
        let reply = ask("/build-contexts", accept);
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (412, Some("application/xml"))
        );
        let text = reply.text();
        assert!(
            text.contains("<Error><Code>PreconditionFailed</Code><Message>"),
            "{text}"
        );
    }
    is_refused(&ask("/build-contexts", "*/*"), 412, "PreconditionFailed");
    is_refused(&ask("/v1/builds", "application/xml"), 401, "UNAUTHORIZED");
}

/// Uploads to an object store are rejected by it, in XML. The service has no place for them.
fn errors_of_the_store_are_xml(data: &DataDir) {
    let cloud = TestCloud::start(data, &["--", "/bin/true"]);
    let mut grant = cloud.grant();
    grant["uploadFields"]["key"] = json!("default/other.tar.gz");
    let reply = cloud.send(&grant, b"content");
    let (status, text) = (reply.status, reply.text());
    assert!(
        status == 403 && text.contains("<Code>AccessDenied</Code>"),
        "{status} {text}"
    );
    let ask = |accept: &str| {
        let headers = [&*format!("Accept: {accept}")];
        http::request(cloud.runner.addr, "POST", "/build-contexts", &headers, b"no form").expect("an answer")
    };
    is_refused(&ask("*/*"), 404, "NOT_FOUND");
    let reply = ask("application/xml");
    let text = reply.text();
    assert!(reply.status == 404 && text.contains("<Code>NOT_FOUND</Code>"), "{text}");
}

/// An aborted request is logged.
#[test]
fn an_aborted_request_is_logged() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &["--", "/bin/true"]);
    let mut stream = TcpStream::connect(cloud.runner.addr).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let head = format!(
        "POST /v1/builds HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {KEY}\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    stream.read_exact(&mut [0; 25]).expect("its leave to send");
    drop(stream);
    let line = cloud.runner.wait_for_log("POST /v1/builds ");
    assert!(
        line.contains("POST /v1/builds gone ") || line.contains("POST /v1/builds 400 "),
        "{line}"
    );
}

/// C-076, C-088: HEAD works like GET, and JSON answers have a length.
#[test]
fn answers_have_a_length() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[]);
    for target in ["/healthz", "/v1/regions", "/v1/builds", "/v1/properties", "/v1/nothing"] {
        let (get, head) = (cloud.get(target), cloud.request("HEAD", target, KEY, b""));
        assert_eq!((get.status, head.body.len()), (head.status, 0), "{target}");
        assert_eq!(
            get.header("content-length"),
            Some(&*get.body.len().to_string()),
            "{target}"
        );
        assert_eq!(head.header("content-length"), get.header("content-length"), "{target}");
        assert_eq!(get.header("transfer-encoding"), None);
        let _: Value = get.json();
    }
}
