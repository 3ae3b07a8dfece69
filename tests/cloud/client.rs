//! The client against a scripted service with the real service's member names, and against this
//! service.
//!
//! The scripted service shares no code with the client.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::cloud::{DataDir, KEY, TestCloud};
use crate::support::ports::free_port;
use crate::support::rest::{RecordedRequest, Rest, ScriptedAnswer};
use crate::support::runner::{RunOutput, TestRunner};

const ID: &str = "7a2c54f6-1c3e-4b0a-9d0e-2f6a0c7d1e11";
const CONTEXT: [(&str, &str); 2] = [("Dockerfile", "FROM scratch\n"), ("app.py", "print('hello')\n")];

const BUSY: &str = r#"{"error":"try again","code":"INTERNAL_SERVER_ERROR"}"#;
const LIMITED: &str = r#"{"error":"slow down","code":"TOO_MANY_REQUESTS"}"#;
const NONE: &str = r#"{"error":"no such thing","code":"NOT_FOUND"}"#;

fn ok(body: &Value) -> ScriptedAnswer {
    ScriptedAnswer::Json(200, body.to_string())
}

fn raw(status: &str, body: &str) -> ScriptedAnswer {
    let length = body.len();
    ScriptedAnswer::Raw(
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").into_bytes(),
    )
}

/// A build as the real service returns it.
fn build(status: &str) -> Value {
    let mut build = json!({
        "id": ID, "organizationId": "org-7", "status": status, "region": "us-west", "contextHash": "1f2e3d4c5b6a7988",
        "dockerfilePath": "Dockerfile", "createdAt": "2026-11-21T12:00:00.000Z", "updatedAt": "2026-11-21T12:00:00.000Z",
    });
    match status {
        "success" => build["imageUri"] = "registry.example.net/org-7/image:1".into(),
        "failed" => build["errorMessage"] = "build: exit status 3\nthe last words\u{1b}[2J".into(),
        _ => {}
    }
    build
}

/// A grant of the real service's store, with the requested host in its URL.
fn grant(asked: &RecordedRequest) -> ScriptedAnswer {
    let host = asked.header("host").expect("a host");
    let text = format!(
        r#"{{"uploadId":"0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11","uploadUrl":"http://{host}/contexts-bucket","uploadFields":{{
        "key":"org-7/0b9e3f52.tar.gz","bucket":"contexts","X-Amz-Algorithm":"AWS4-HMAC-SHA256","X-Amz-Credential":"AK/1/s3",
        "X-Amz-Date":"20261121T120000Z","X-Amz-Security-Token":"token-1","Policy":"cG9saWN5","X-Amz-Signature":"feed",
        "Content-Type":"application/gzip"}},"expiresAt":"2026-11-21T12:15:00.000Z"}}"#
    );
    ScriptedAnswer::Json(200, text)
}

/// Answers like the real service, with these build statuses one after the other; `other` is asked
/// first. Instead of a status: `silent`, `broken` (closes early), `busy`, `limited` (in rate), or
/// `gone` (unknown build).
fn service(
    statuses: &'static [&'static str],
    other: impl Fn(&RecordedRequest) -> Option<ScriptedAnswer> + Send + 'static,
) -> Rest {
    let polls = Mutex::new(0);
    Rest::playing(move |_, asked| {
        if let Some(says) = other(asked) {
            return says;
        }
        let path = asked.target.split('?').next().expect("a path");
        match (&*asked.method, path) {
            ("GET", "/v1/properties") => ok(&json!({"properties": {"defaultRegion": "us-west"}})),
            ("GET", "/v1/builds") => ok(&json!({"builds": [], "total": 0, "limit": 100, "offset": 0})),
            ("POST", "/v1/builds/upload-url") => grant(asked),
            ("POST", "/contexts-bucket") => raw("204 No Content", ""),
            ("POST", "/v1/builds") => {
                let created = json!({"build": build("pending"), "contextHash": "1f2e3d4c5b6a7988", "cached": false});
                ScriptedAnswer::Json(201, created.to_string())
            }
            ("GET", path) if path == format!("/v1/builds/{ID}") => {
                let mut polls = polls.lock().expect("no holder panics");
                let status = statuses[(*polls).min(statuses.len() - 1)];
                *polls += 1;
                match status {
                    "silent" => ScriptedAnswer::Silence,
                    "broken" => ScriptedAnswer::Raw(Vec::new()),
                    "busy" => ScriptedAnswer::Json(503, BUSY.into()),
                    "limited" => ScriptedAnswer::Json(429, LIMITED.into()),
                    "gone" => ScriptedAnswer::Json(404, NONE.into()),
                    status => ok(&json!({"build": build(status)})),
                }
            }
            _ => ScriptedAnswer::Json(404, NONE.into()),
        }
    })
}

/// Runs the client in a folder with these files.
fn client_among(files: &[(&str, &str)], url: &str, args: &[&str]) -> RunOutput {
    let all = [&["cloud"], args].concat();
    TestRunner::run_among(files, &all, &[("CLOUD_API_URL", url), ("CLOUD_API_KEY", KEY)])
}

fn client(service: &Rest, args: &[&str]) -> RunOutput {
    client_among(&CONTEXT, &service.url(), args)
}

/// Returns the fields of a form in order, and the bytes of the file.
fn form(asked: &RecordedRequest) -> (Vec<(String, String)>, Vec<u8>) {
    let kind = asked.header("content-type").expect("a type");
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").expect("a form");
    let delimiter = format!("--{boundary}\r\n");
    let end = format!("\r\n--{boundary}--\r\n");
    let file = b"Content-Type: application/gzip\r\n\r\n";
    let at = asked
        .bytes
        .windows(file.len())
        .position(|bytes| bytes == file)
        .expect("a file");
    let bytes = &asked.bytes[at + file.len()..];
    let bytes = bytes.strip_suffix(end.as_bytes()).expect("the end of the form");
    let head = std::str::from_utf8(&asked.bytes[..at]).expect("fields are text");
    let parts = head.split(&delimiter).skip(1);
    let fields = parts.map(|part| {
        let rest = part
            .strip_prefix("Content-Disposition: form-data; name=\"")
            .expect("a part");
        let (name, rest) = rest.split_once('"').expect("a name");
        (name.to_owned(), rest.trim_matches(['\r', '\n']).to_owned())
    });
    (fields.collect(), bytes.to_vec())
}

fn md5_half(bytes: &[u8]) -> String {
    use md5::{Digest, Md5};
    data_encoding::HEXLOWER.encode(&Md5::digest(bytes))[..16].to_owned()
}

/// I-26, I-27, I-28, C-005 to C-008, C-032, C-060, C-066 to C-069, C-074, C-085: a complete build
/// with the real service's names.
#[test]
fn a_folder_is_packed_uploaded_built_and_waited_for() {
    let service = service(&["building", "building", "success"], |_| None);
    let ended = client(&service, &["build", ".", "--wait", "--poll", "0.1"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(
        ended.stdout,
        format!("build {ID} success\nimage registry.example.net/org-7/image:1\n")
    );
    let asked = service.asked();
    let lines: Vec<String> = asked
        .iter()
        .map(|asked| format!("{} {}", asked.method, asked.target))
        .collect();
    let (fields, archive) = form(&asked[3]);
    let hash = md5_half(&archive);
    let poll = format!("GET /v1/builds/{ID}");
    let list = format!("GET /v1/builds?contextHash={hash}&region=us-west&status=success&limit=100");
    let expected = [
        "GET /v1/properties",
        &list,
        "POST /v1/builds/upload-url",
        "POST /contexts-bucket",
        "POST /v1/builds",
        &poll,
        &poll,
        &poll,
    ];
    assert_eq!(lines, expected);
    for (i, asked) in asked.iter().enumerate() {
        let key = format!("Bearer {KEY}");
        let expected = (i != 3).then_some(&*key);
        assert_eq!(asked.header("authorization"), expected, "{}", asked.target);
    }
    let names: Vec<&str> = fields.iter().map(|(name, _)| &**name).collect();
    let in_order = [
        "key",
        "bucket",
        "X-Amz-Algorithm",
        "X-Amz-Credential",
        "X-Amz-Date",
        "X-Amz-Security-Token",
        "Policy",
        "X-Amz-Signature",
        "Content-Type",
        "file",
    ];
    assert_eq!(names, in_order);
    assert_eq!((&*fields[5].1, &*fields[8].1), ("token-1", "application/gzip"));
    assert_eq!(fields[9].1, "; filename=\"context.tar.gz\"");
    assert_eq!(archive[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 0xff]);
    let wanted: Value = serde_json::from_str(&asked[2].body).expect("JSON");
    assert_eq!(wanted, json!({"region": "us-west"}));
    let wanted: Value = serde_json::from_str(&asked[4].body).expect("JSON");
    assert_eq!(
        wanted,
        json!({"uploadId": "0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11", "region": "us-west",
               "buildfilePath": "Dockerfile", "dockerfilePath": "Dockerfile"})
    );
    // Neither the grant nor the key is printed.
    for secret in ["token-1", "cG9saWN5", "feed", KEY] {
        assert!(!ended.stderr.contains(secret), "{}", ended.stderr);
    }
}

/// I-27: an earlier success with the same hash, region and build file is reused without an upload.
#[test]
fn an_earlier_success_is_reused() {
    let listed = |file: &'static str, member: &'static str| {
        move |asked: &RecordedRequest| {
            let mut one = build("success");
            one.as_object_mut().expect("an object").remove("dockerfilePath");
            one[member] = file.into();
            let mut other = one.clone();
            (other[member], other["id"]) = ("other/Dockerfile".into(), "other".into());
            asked
                .target
                .starts_with("/v1/builds?")
                .then(|| ok(&json!({"builds": [other, one], "total": 2})))
        }
    };
    for (member, args) in [
        (
            "dockerfilePath",
            &["build", ".", "--region", "eu", "--json", "--wait"][..],
        ),
        ("buildfilePath", &["build", ".", "--region", "eu", "--json"]),
    ] {
        let service = service(&["success"], listed("Dockerfile", member));
        let ended = client(&service, args);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let object: Value = serde_json::from_str(&ended.stdout).expect("one object");
        assert_eq!((&object["build"]["id"], &object["cached"]), (&json!(ID), &json!(true)));
        let hash = object["contextHash"].as_str().expect("a hash");
        assert_eq!(object.as_object().expect("an object").len(), 3);
        let asked = service.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        let target = format!("/v1/builds?contextHash={hash}&region=eu&status=success&limit=100");
        assert_eq!(asked[0].target, target);
    }
    // Another build file is another build.
    let service = service(&["pending"], listed("docker/Dockerfile", "dockerfilePath"));
    let ended = client(&service, &["build", ".", "--json"]);
    let object: Value = serde_json::from_str(&ended.stdout).expect("one object");
    assert_eq!(
        (&object["cached"], &object["build"]["status"]),
        (&json!(false), &json!("pending"))
    );
    assert_eq!(ended.code, Some(0));
}

/// I-27: reads, grants and uploads are retried on server errors and broken connections; the
/// creation of a build is not.
#[test]
fn transient_errors_are_retried_except_for_creation() {
    for (says, words) in [
        (
            ScriptedAnswer::Json(500, BUSY.into()),
            "answers 500: INTERNAL_SERVER_ERROR: try again",
        ),
        (ScriptedAnswer::Raw(Vec::new()), "sent no valid response"),
        (
            ScriptedAnswer::Json(429, LIMITED.into()),
            "answers 429: TOO_MANY_REQUESTS: slow down",
        ),
    ] {
        three_times_and_creation_once(says, words);
    }
}

fn three_times_and_creation_once(says: ScriptedAnswer, words: &str) {
    let counted = Arc::new(Mutex::new(std::collections::BTreeMap::new()));
    let counts = counted.clone();
    let service = service(&["success"], move |asked| {
        let path = asked.target.split('?').next().expect("a path").to_owned();
        let line = format!("{} {path}", asked.method);
        let mut counts = counts.lock().expect("no holder panics");
        let count: &mut u32 = counts.entry(line.clone()).or_default();
        *count += 1;
        (line == "POST /v1/builds" || *count <= 2).then(|| says.clone())
    });
    let ended = client(&service, &["build", "."]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.stdout, "");
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
    let counts: Vec<(String, u32)> = counted.lock().expect("no holder panics").clone().into_iter().collect();
    let expected = [
        ("GET /v1/builds", 3),
        ("GET /v1/properties", 3),
        ("POST /contexts-bucket", 3),
        ("POST /v1/builds", 1),
        ("POST /v1/builds/upload-url", 3),
    ];
    assert_eq!(counts, expected.map(|(line, count)| (line.to_owned(), count)));
}

/// I-28: an XML error of a store is printed and final. 200 and 201 are successes like 204.
#[test]
fn store_errors_in_xml_are_printed() {
    let xml = "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>Policy expired</Message></Error>";
    let refusing = service(&["success"], move |asked| {
        (asked.target == "/contexts-bucket").then(|| raw("403 Forbidden", xml))
    });
    let ended = client(&refusing, &["build", "."]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("answers 403: AccessDenied: Policy expired"),
        "{}",
        ended.stderr
    );
    let uploads = refusing
        .asked()
        .iter()
        .filter(|asked| asked.target == "/contexts-bucket")
        .count();
    assert_eq!((uploads, refusing.asked().len()), (1, 4));
    for (status, code) in [("200 OK", 0), ("201 Created", 0), ("202 Accepted", 1), ("302 Found", 1)] {
        let service = service(&["success"], move |asked| {
            (asked.target == "/contexts-bucket").then(|| raw(status, "<PostResponse/>"))
        });
        assert_eq!(client(&service, &["build", "."]).code, Some(code), "{status}");
    }
}

/// An upload follows redirects that keep method and body; the archive and the fields are sent
/// again.
#[test]
fn an_upload_follows_the_redirects_of_a_store() {
    let redirecting = |status: &'static str, location: &'static str| {
        service(&["success"], move |asked| {
            let host = asked.header("host").expect("a host");
            let location = location.replace("HOST", host);
            match &*asked.target {
                "/contexts-bucket" => Some(ScriptedAnswer::Raw(
                    format!("HTTP/1.1 {status}\r\n{location}Content-Length: 0\r\nConnection: close\r\n\r\n").into(),
                )),
                "/elsewhere" => Some(raw("204 No Content", "")),
                _ => None,
            }
        })
    };
    for (status, location) in [
        ("307 Temporary Redirect", "Location: http://HOST/elsewhere\r\n"),
        ("308 Permanent Redirect", "location: /elsewhere\r\n"),
    ] {
        let service = redirecting(status, location);
        let ended = client(&service, &["build", "."]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let asked = service.asked();
        let sent = |target: &str| {
            let mut found = asked.iter().filter(|asked| asked.target == target).map(form);
            (found.next().expect("an upload"), found.next())
        };
        assert_eq!(sent("/contexts-bucket"), sent("/elsewhere"));
    }
    for (location, words) in [
        ("Location: /contexts-bucket\r\n", "redirects it again and again"),
        ("", "names no URL"),
    ] {
        let ended = client(&redirecting("307 Temporary Redirect", location), &["build", "."]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

/// I-28: the exit code tells how a wait ended, and the last lines of stdout show the build.
#[test]
fn a_wait_ends_with_the_build_or_its_timeout() {
    for (statuses, args, code, stdout, stderr) in [
        (
            &["building", "failed"][..],
            &["--timeout=60"][..],
            1,
            "failed",
            "build: exit status 3",
        ),
        (&["timeout"], &["--timeout=60"], 1, "timeout", "timeout"),
        (&["building"], &["--timeout=0.3"], 3, "building", "continues"),
        (&["building"], &["--timeout=0"], 3, "pending", "continues"),
        // A poll without an answer does not exceed the timeout.
        (
            &["building", "silent"],
            &["--timeout=0.3"],
            3,
            "building",
            "was building",
        ),
        // A restarting service, longer than the retries of one poll.
        (
            &["building", "broken", "busy", "broken", "broken", "success"],
            &["--timeout=60"],
            0,
            "success",
            "retrying",
        ),
        (&["building", "busy"], &["--timeout=0.3"], 3, "building", "was building"),
        // A limited rate, longer than the retries of one poll.
        (
            &["building", "limited", "limited", "limited", "success"],
            &["--timeout=60"],
            0,
            "success",
            "answers 429: TOO_MANY_REQUESTS: slow down; retrying",
        ),
        // A permanent error ends the wait.
        (
            &["building", "gone"],
            &["--timeout=60"],
            1,
            "building",
            "answers 404: NOT_FOUND",
        ),
        // An unknown status is not final.
        (&["queued", "success"], &["--timeout=60"], 0, "success", "is queued"),
    ] {
        let service = service(statuses, |_| None);
        let ended = client(&service, &[&["build", ".", "--wait", "--poll=0.1"], args].concat());
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(
            ended.stdout.starts_with(&format!("build {ID} {stdout}\n")),
            "{}",
            ended.stdout
        );
        assert!(
            ended.stderr.contains(stderr) && !ended.stderr.contains('\u{1b}'),
            "{}",
            ended.stderr
        );
        let service = self::service(statuses, |_| None);
        let ended = client(
            &service,
            &[&["build", ".", "--wait", "--poll=0.1", "--json"], args].concat(),
        );
        let object: Value = serde_json::from_str(&ended.stdout).expect("one object");
        assert_eq!((ended.code, &object["build"]["status"]), (Some(code), &json!(stdout)));
    }
}

/// I-27: build ids from the service are validated before they become part of a path.
#[test]
fn an_id_that_changes_the_path_is_rejected() {
    for id in ["", ".", ".."] {
        let mut one = build("pending");
        one["id"] = id.into();
        let service = service(&[], move |asked| {
            let created = json!({"build": one, "contextHash": "1f2e3d4c5b6a7988", "cached": false});
            (asked.method == "POST" && asked.target == "/v1/builds")
                .then(|| ScriptedAnswer::Json(201, created.to_string()))
        });
        let ended = client(&service, &["build", ".", "--wait", "--poll=0.1", "--timeout=60"]);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{id:?} {ended:?}");
        assert!(ended.stderr.contains("no build with an `id`"), "{}", ended.stderr);
        let last = service.asked().pop().expect("it was asked");
        assert_eq!((&*last.method, &*last.target), ("POST", "/v1/builds"));
    }
}

/// I-27: without a terminal, a line per 10 %.
#[test]
fn an_upload_reports_its_progress() {
    let mut state = 1u32;
    let noise: String = (0..1_500_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b' ' + (state >> 24) as u8 % 94)
        })
        .collect();
    let service = service(&["success"], |_| None);
    let files = [("Dockerfile", "FROM scratch\n"), ("noise", &*noise)];
    let ended = client_among(&files, &service.url(), &["build", "."]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let message: Vec<&str> = ended
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("upload: "))
        .collect();
    let tenths: Vec<&str> = message
        .iter()
        .filter_map(|line| line.split_once(" % "))
        .map(|(tenth, _)| tenth)
        .collect();
    assert_eq!(tenths, ["10", "20", "30", "40", "50", "60", "70", "80", "90", "100"]);
    assert!(message[9].ends_with("B/s"), "{}", message[9]);
}

/// I-28: log lines without control characters; pages are followed to the end or the limit.
#[test]
fn logs_are_bare_lines_of_every_page() {
    let paged = |asked: &RecordedRequest| {
        let target = asked.target.strip_prefix(&format!("/v1/builds/{ID}/logs?"))?;
        Some(match target {
            "limit=1000" => ok(&json!({"logs": ["one", "two\u{1b}[2J"], "nextToken": "a/b c"})),
            "limit=1000&nextToken=a%2Fb%20c" => ok(&json!({"logs": ["", "four"], "nextToken": "end"})),
            "limit=1000&nextToken=end" => ok(&json!({"logs": [], "nextToken": "end"})),
            "limit=3" => ok(&json!({"logs": ["one", "two"], "nextToken": "3"})),
            "limit=1&nextToken=3" => ok(&json!({"logs": ["three"], "nextToken": "4"})),
            "limit=10000" => ScriptedAnswer::Json(200, "\n{\"logs\" : [ ] }\n".into()),
            other => panic!("{other}"),
        })
    };
    let service = service(&[], paged);
    let ended = client(&service, &["logs", ID]);
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "one\ntwo\u{fffd}[2J\n\nfour\n"));
    assert_eq!(
        client(&service, &["logs", ID, "--limit", "3"]).stdout,
        "one\ntwo\nthree\n"
    );
    // With `--json` the service's bytes are printed unchanged.
    assert_eq!(client(&service, &["logs", ID, "--json"]).stdout, "{\"logs\" : [ ] }\n");
}

/// I-28: the output of `status` and `regions`.
#[test]
fn regions_and_status_print_lines_or_json() {
    let service = service(&["failed"], |asked| {
        let regions = json!({"regions": [{"code": "us-west", "display_name": "US West"}, {"code": "eu", "display_name": "Europe"}]});
        (asked.target == "/v1/regions").then(|| ok(&regions))
    });
    assert_eq!(
        client(&service, &["regions"]).stdout,
        "us-west  US West\neu       Europe\n"
    );
    let object: Value = serde_json::from_str(&client(&service, &["regions", "--json"]).stdout).expect("one object");
    assert_eq!(object["regions"][1], json!({"code": "eu", "display_name": "Europe"}));
    let ended = client(&service, &["status", ID]);
    // The status of a failed build is a successful request.
    assert_eq!(ended.code, Some(0));
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let id = format!("id: {ID}");
    assert_eq!(
        lines,
        [
            &*id,
            "status: failed",
            "errorMessage: build: exit status 3",
            "  the last words\u{fffd}[2J",
            "region: us-west",
            "contextHash: 1f2e3d4c5b6a7988",
            "createdAt: 2026-11-21T12:00:00.000Z",
            "dockerfilePath: Dockerfile",
            "organizationId: org-7",
            "updatedAt: 2026-11-21T12:00:00.000Z",
        ]
    );
    let object: Value = serde_json::from_str(&client(&service, &["status", ID, "--json"]).stdout).expect("one object");
    assert_eq!(object["build"]["status"], "failed");
}

/// I-28: errors of the service and answers that are not from one give exit code 1.
#[test]
fn errors_and_silence_are_failures() {
    let service = service(&[], |asked| match &*asked.target {
        "/v1/builds/a%2F%3Fb" => Some(ScriptedAnswer::Json(
            400,
            r#"{"error":"no identifier","code":"GENERIC_BAD_REQUEST"}"#.into(),
        )),
        "/v1/regions" => Some(raw("200 OK", "<html>it works</html>")),
        _ => None,
    });
    for (args, words) in [
        (
            &["status", "a/?b"][..],
            "answers 400: GENERIC_BAD_REQUEST: no identifier",
        ),
        (&["status", "unknown"], "answers 404: NOT_FOUND: no such thing"),
        (&["logs", "unknown", "--json"], "answers 404: NOT_FOUND"),
        (&["regions"], "not a JSON object"),
        (&["regions", "--json"], "not a JSON object"),
    ] {
        let ended = client(&service, args);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{args:?}");
        assert!(ended.stderr.contains(words), "{args:?}: {}", ended.stderr);
    }
    let closed = format!("http://127.0.0.1:{}", free_port());
    let ended = client_among(&[], &closed, &["regions"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("connecting to 127.0.0.1"), "{}", ended.stderr);
}

/// I-26, I-27, I-28: usage errors give exit code 2 without a request.
#[test]
fn usage_errors_precede_any_request() {
    let service = service(&[], |_| panic!("nothing must be asked"));
    for (files, args, words) in [
        (
            &CONTEXT[1..],
            &["build", "."][..],
            "there is no build file `Dockerfile`",
        ),
        (
            &[("Dockerfile", ""), (".dockerignore", "Docker*")][..],
            &["build", "."],
            "left out by .dockerignore",
        ),
        (&CONTEXT, &["build", "nowhere"], "reading the folder nowhere"),
        (
            &CONTEXT,
            &["build", ".", "--buildfile", "../Dockerfile"],
            "`--buildfile` takes",
        ),
        (&CONTEXT, &["build"], "needs its DIR"),
        (&CONTEXT, &["regions", "--api-key", "short"], "`--api-key` takes a key"),
    ] {
        let ended = client_among(files, &service.url(), args);
        assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{args:?} {ended:?}");
        assert!(ended.stderr.contains(words), "{args:?}: {}", ended.stderr);
    }
    let ended = TestRunner::run(&["cloud", "regions", "--api-key", KEY]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("`--api-url` is missing, and so is CLOUD_API_URL"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("See `edge-runner cloud regions --help`"),
        "{}",
        ended.stderr
    );
}

/// Links out of the folder are refused by name; `--follow-links` packs them.
#[test]
fn links_that_lead_out_of_the_folder_are_refused() {
    let outside = DataDir::new();
    fs::write(outside.path().join("id_ed25519"), "the secret").expect("the folder is the test's");
    let folder = DataDir::new();
    for (name, text) in CONTEXT {
        fs::write(folder.path().join(name), text).expect("the folder is the test's");
    }
    symlink(outside.path().join("id_ed25519"), folder.path().join("notes.txt")).expect("a link");
    symlink("app.py", folder.path().join("main.py")).expect("a link");
    let dir = folder.path().to_str().expect("UTF-8");
    let silent = service(&[], |_| panic!("nothing must be asked"));
    let ended = client(&silent, &["build", dir]);
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{ended:?}");
    for words in ["notes.txt -> ", "id_ed25519", "--follow-links"] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    assert!(
        !ended.stderr.contains("main.py") && !ended.stderr.contains("the secret"),
        "{}",
        ended.stderr
    );
    let service = service(&["pending"], |_| None);
    assert_eq!(client(&service, &["build", dir, "--follow-links"]).code, Some(0));
    let ended = client(&service, &["build", dir, "--exclude", "notes.txt"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// I-26: options win over variables, and variables over `.env`; `/v1` is added if missing.
#[test]
fn options_win_over_variables_and_variables_over_dotenv() {
    let services = [(); 3].map(|()| {
        service(&[], |asked| {
            asked.target.ends_with("/regions").then(|| ok(&json!({"regions": []})))
        })
    });
    let urls = services.each_ref().map(Rest::url);
    let file = format!(
        "PIPECAT_API_HOST={}\nPIPECAT_CLOUD_API_KEY={KEY}-of-the-file\n",
        urls[2]
    );
    let run = |args: &[&str], variables: &[(&str, &str)]| {
        let ended = TestRunner::run_among(&[(".env", &file)], &[&["cloud", "regions"], args].concat(), variables);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    run(&[], &[]);
    run(
        &[],
        &[("CLOUD_API_URL", &format!("{}/v1/", urls[1])), ("CLOUD_API_KEY", KEY)],
    );
    run(
        &["--api-url", &format!("{}/v1", urls[0])],
        &[("CLOUD_API_URL", &urls[1])],
    );
    for (service, key) in services
        .iter()
        .zip([format!("{KEY}-of-the-file"), KEY.into(), format!("{KEY}-of-the-file")])
    {
        let asked = service.asked();
        assert_eq!((asked.len(), &*asked[0].target), (1, "/v1/regions"));
        assert_eq!(asked[0].header("authorization"), Some(&*format!("Bearer {key}")));
    }
}

/// I-26: canonical names in `.env` do not win over an alias in the environment.
#[test]
fn an_aliased_variable_wins_over_dotenv() {
    let [near, far] = [(); 2].map(|()| {
        service(&[], |asked| {
            asked.target.ends_with("/regions").then(|| ok(&json!({"regions": []})))
        })
    });
    let file = format!("CLOUD_API_URL={}\nCLOUD_API_KEY={KEY}-of-the-file\n", far.url());
    let variables = [("PIPECAT_API_HOST", &*near.url()), ("PIPECAT_CLOUD_API_KEY", KEY)];
    let ended = TestRunner::run_among(&[(".env", &file)], &["cloud", "regions"], &variables);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((near.asked().len(), far.asked().len()), (1, 0));
    let key = format!("Bearer {KEY}");
    assert_eq!(near.asked()[0].header("authorization"), Some(&*key));
}

/// I-26, I-27, I-28, C-007 to C-009: the client against this service.
#[test]
fn the_client_works_with_this_service() {
    let data = DataDir::new();
    let command = "echo building {region} {buildfile}; cat \"$BUILD_FILE\" app.py > \"$BUILD_OUT/image.bin\"";
    let cloud = TestCloud::start(&data, &["--", "sh", "-c", command]);
    let url = format!("http://{}", cloud.runner.addr);
    let client = |args: &[&str]| client_among(&CONTEXT, &url, args);
    let built = client(&["build", ".", "--wait", "--poll=0.1"]);
    assert_eq!(built.code, Some(0), "{built:?}\n{}", cloud.runner.log());
    let (first, second) = built.stdout.split_once('\n').expect("two lines");
    let id = first
        .strip_prefix("build ")
        .and_then(|rest| rest.strip_suffix(" success"))
        .expect("a build");
    assert_eq!(second, format!("image {url}/v1/images/{id}/image.bin\n"));
    let image = cloud.image(&format!("/v1/images/{id}/image.bin"));
    assert_eq!(image.text(), "FROM scratch\nprint('hello')\n");

    let again = client(&["build", ".", "--json"]);
    let object: Value = serde_json::from_str(&again.stdout).expect("one object");
    assert_eq!((&object["cached"], &object["build"]["id"]), (&json!(true), &json!(id)));

    let status = client(&["status", id]).stdout;
    for line in [
        format!("id: {id}"),
        "status: success".into(),
        "region: local".into(),
        "buildfilePath: Dockerfile".into(),
    ] {
        assert!(
            status.lines().any(|message| message == line),
            "{line} is not in {status}"
        );
    }
    let logs = client(&["logs", id]).stdout;
    assert!(logs.lines().any(|line| line == "building local Dockerfile"), "{logs}");
    assert!(client(&["regions"]).stdout.starts_with("local"));
    let ended = client(&["status", "00000000-0000-4000-8000-000000000000"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("answers 404: NOT_FOUND"), "{}", ended.stderr);
    assert!(!cloud.runner.log().contains(KEY));

    // The folder outlives the service.
    let elsewhere = DataDir::new();
    let failing = TestCloud::start(&elsewhere, &["--", "sh", "-c", "echo the reason >&2; exit 3"]);
    let url = format!("http://{}", failing.runner.addr);
    let ended = client_among(&CONTEXT, &url, &["build", ".", "--wait", "--poll=0.1"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stdout.ends_with(" failed\n") && ended.stderr.contains("the reason"),
        "{ended:?}"
    );
}
