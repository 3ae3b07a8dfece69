//! Files that clients upload for the bot: `--uploads-folder`, as Pipecat's runner has it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::http::{Reply, get, request};
use crate::support::program::wait_until;
use crate::support::runner::{TestRunner, folder};

/// The limit of Pipecat's runner.
const BYTES_MAX: usize = 50 * 1024 * 1024;

const TYPE: &str = "Content-Type: multipart/form-data; boundary=B";

/// The form of curl and of browsers, with one part.
fn form(part: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--B\r\nContent-Disposition: form-data; {part}\r\nContent-Type: text/x-notes\r\n\r\n");
    [head.as_bytes(), content, b"\r\n--B--\r\n"].concat()
}

fn post(addr: SocketAddr, path: &str, headers: &[&str], body: &[u8]) -> Reply {
    let headers = [&[TYPE], headers].concat();
    request(addr, "POST", path, &headers, body).expect("the runner answers")
}

fn upload(addr: SocketAddr, path: &str, name: &str, content: &[u8]) -> Reply {
    post(
        addr,
        path,
        &[],
        &form(&format!("name=\"file\"; filename=\"{name}\""), content),
    )
}

/// Returns the name of the file in the folder that a reply tells.
fn stored(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let url = reply.json()["source"]["url"].take();
    let name = url
        .as_str()
        .and_then(|url| url.strip_prefix("pipecat:"))
        .expect("a URL");
    assert!(
        name.len() == 32 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')),
        "{name}"
    );
    name.to_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string();
    let mut names: Vec<String> = entries.map(|entry| name(entry).expect("UTF-8")).collect();
    names.sort_unstable();
    names
}

fn start(runner: &TestRunner, body: &Value) -> Value {
    let headers = ["Content-Type: application/json"];
    let reply = request(runner.addr, "POST", "/start", &headers, body.to_string().as_bytes());
    reply.expect("the runner answers").json()
}

#[test]
fn a_file_is_stored_for_its_owner_under_a_name_of_its_own() {
    let beside = folder();
    let uploads = beside.join("in");
    let runner = TestRunner::start(&["-u", &uploads.display().to_string()]);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&uploads), 0o700);
    let reply = upload(runner.addr, "/files", "../../notes.txt", b"a\0\r\n--\xff");
    let name = stored(&reply);
    let expected = json!({
        "name": "notes.txt",
        "source": {"type": "url", "url": format!("pipecat:{name}")},
        "format": "text/plain",
    });
    assert_eq!(reply.json(), expected);
    assert_eq!(fs::read(uploads.join(&name)).expect("it is there"), b"a\0\r\n--\xff");
    assert_eq!(mode(&uploads.join(&name)), 0o600);
    let other = upload(runner.addr, "/files/", "data.own", b"");
    assert_eq!(other.json()["format"], "text/x-notes");
    let mut both = vec![name, stored(&other)];
    both.sort_unstable();
    assert_eq!(names(&uploads), both);
    assert_eq!(names(&beside), ["in"]);
    // No route reads them.
    assert_eq!(get(runner.addr, &format!("/files/{}", both[0])).status, 404);
    drop(runner);
    fs::remove_dir_all(&beside).expect("the folder is the test's");
}

#[test]
fn what_is_no_file_leaves_none() {
    let uploads = folder();
    let runner = TestRunner::start(&["--uploads-folder", &uploads.display().to_string()]);
    let file = "name=\"file\"; filename=\"a\"";
    let mut large = form(file, &vec![b'x'; BYTES_MAX + 1]);
    let whole = form(file, b"content");
    let id = start(&runner, &json!({}))["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    for (path, body, status) in [
        ("/files", form("name=\"other\"; filename=\"a\"", b"x"), 422),
        ("/files", form("name=\"file\"", b"x"), 422),
        ("/files", b"no form".to_vec(), 400),
        ("/files", whole[..whole.len() - 6].to_vec(), 400),
        ("/files", [&whole[..whole.len() - 4], &whole[3..]].concat(), 422),
        ("/sessions/none/files", whole.clone(), 404),
        ("/files", std::mem::take(&mut large), 413),
    ] {
        let reply = post(runner.addr, path, &[], &body);
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        assert!(reply.json()["detail"].is_string());
    }
    let json = request(
        runner.addr,
        "POST",
        "/files",
        &["Content-Type: application/json"],
        b"{}",
    );
    assert_eq!(json.expect("the runner answers").status, 422);
    for method in ["GET", "DELETE"] {
        for path in ["/files".to_owned(), format!("/sessions/{id}/files")] {
            let reply = request(runner.addr, method, &path, &[], b"").expect("the runner answers");
            assert_eq!(
                (reply.status, reply.header("allow")),
                (405, Some("POST, OPTIONS")),
                "{path}"
            );
        }
    }
    assert_eq!(names(&uploads), [""; 0]);
    let most = upload(runner.addr, "/files", "a", &vec![b'x'; BYTES_MAX]);
    assert_eq!(names(&uploads), [stored(&most)]);
    drop(runner);
    fs::remove_dir_all(&uploads).expect("the folder is the test's");
}

#[test]
fn the_files_of_a_session_end_with_it() {
    let uploads = folder();
    let runner = TestRunner::start(&["--uploads-folder", &uploads.display().to_string()]);
    let started = start(&runner, &json!({"transport": "websocket"}));
    assert_eq!(started["fileUploadUrl"], "/files");
    let id = started["sessionId"].as_str().expect("an id");
    let of_session = format!("/sessions/{id}/files");
    let before = stored(&upload(runner.addr, &of_session, "a", b"before the call"));
    let kept = stored(&upload(runner.addr, "/files", "a", b"of no session"));
    let mut client = Client::connect(runner.addr, &format!("/ws-client?sessionId={id}"));
    let during = stored(&upload(runner.addr, &of_session, "a", b"during the call"));
    let mut all = [before, kept.clone(), during];
    all.sort_unstable();
    assert_eq!(names(&uploads), all);
    client.socket.close(1000);
    client.end();
    wait_until(
        || names(&uploads) == [kept.as_str()],
        || format!("{:?} are left", names(&uploads)),
    );
    assert_eq!(upload(runner.addr, &of_session, "a", b"too late").status, 404);
    let webrtc = start(&runner, &json!({}));
    let path = webrtc["fileUploadUrl"].as_str().expect("a path");
    assert_eq!(
        path,
        format!("/sessions/{}/files", webrtc["sessionId"].as_str().expect("an id"))
    );
    stored(&upload(runner.addr, path, "a", b"of a caller who never comes"));
    // What is left ends with the runner, or when the next one starts.
    let mut runner = runner;
    runner.signal("TERM");
    assert!(runner.wait().success());
    assert_eq!(names(&uploads), [kept]);
    fs::write(uploads.join("notes.txt"), "of somebody else").expect("the folder is the test's");
    let next = TestRunner::start(&["--uploads-folder", &uploads.display().to_string()]);
    assert_eq!(names(&uploads), ["notes.txt"]);
    drop(next);
    fs::remove_dir_all(&uploads).expect("the folder is the test's");
}

#[test]
fn the_oldest_files_are_deleted_for_new_ones() {
    let uploads = folder();
    let runner = TestRunner::start_with(
        &["--uploads-folder-max-files", "2"],
        &[("PIPECAT_UPLOADS_FOLDER", &uploads.display().to_string())],
    );
    let first = stored(&upload(runner.addr, "/files", "a", b"1"));
    let age = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    let opened = fs::File::options().write(true).open(uploads.join(&first));
    opened
        .expect("it is there")
        .set_times(age)
        .expect("the file is the test's");
    let mut kept = [2, 3].map(|content| stored(&upload(runner.addr, "/files", "a", &[content])));
    kept.sort_unstable();
    assert_eq!(names(&uploads), kept);
    drop(runner);
    fs::remove_dir_all(&uploads).expect("the folder is the test's");
}

#[test]
fn without_a_folder_nothing_is_taken() {
    let runner = TestRunner::start(&[]);
    let started = start(&runner, &json!({}));
    assert_eq!(started.get("fileUploadUrl"), None);
    let id = started["sessionId"].as_str().expect("an id");
    for path in ["/files".to_owned(), format!("/sessions/{id}/files")] {
        let reply = upload(runner.addr, &path, "a", b"x");
        assert_eq!(reply.status, 503, "{path}");
        assert!(reply.text().contains("--uploads-folder"), "{}", reply.text());
    }
    let line = runner.wait_for_log("uploads are off");
    assert!(line.contains("WARN"), "{line}");
    let ended = TestRunner::run(&["--port", "0", "--uploads-folder", "/dev/null/in"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("--uploads-folder /dev/null/in"),
        "{}",
        ended.stderr
    );
}

/// The id of a session is enough, as for offers; without one, the key is asked for. A page may read
/// the answer.
#[test]
fn uploads_need_a_session_or_the_key() {
    const KEY: &str = "0123456789abcdef";
    let uploads = folder();
    let runner = TestRunner::start(&["-u", &uploads.display().to_string(), "--api-key", KEY]);
    let bearer = format!("Authorization: Bearer {KEY}");
    let body = form("name=\"file\"; filename=\"a\"", b"x");
    let started = request(
        runner.addr,
        "POST",
        "/start",
        &[&bearer],
        br#"{"transport":"websocket"}"#,
    );
    let started = started.expect("the runner answers").json();
    let of_session = started["fileUploadUrl"].as_str().expect("a path");
    assert!(of_session.starts_with("/sessions/"), "{of_session}");
    assert_eq!(post(runner.addr, "/files", &[], &body).status, 401);
    assert_eq!(post(runner.addr, "/sessions/none/files", &[], &body).status, 401);
    stored(&post(runner.addr, "/files", &[&bearer], &body));
    let page = "Origin: https://app.example.net";
    let reply = post(runner.addr, of_session, &[page], &body);
    stored(&reply);
    assert_eq!(
        reply.header("access-control-allow-origin"),
        Some("https://app.example.net")
    );
    drop(runner);
    let open = TestRunner::start(&["-u", &uploads.display().to_string()]);
    assert_eq!(post(open.addr, "/files", &[page], &body).status, 403);
    drop(open);
    fs::remove_dir_all(&uploads).expect("the folder is the test's");
}

/// A program finds the folder in its arguments, whatever its working folder is.
#[test]
fn a_program_learns_where_uploads_are() {
    let script = "printf '%s\\n' \"$RUNNER_ARGUMENTS\" > arguments; sleep 600";
    let runner = TestRunner::start(&["-u", "in", "--uploads-folder-max-files", "3", "--", "sh", "-c", script]);
    let _client = Client::connect(runner.addr, "/ws-client");
    let file = runner.path("arguments");
    wait_until(
        || fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')),
        || format!("no {}", file.display()),
    );
    let arguments: Value = serde_json::from_str(&fs::read_to_string(&file).expect("it is there")).expect("JSON");
    assert_eq!(
        arguments["uploads"],
        json!({"folder": runner.path("in").display().to_string(), "max_files": 3})
    );
}
