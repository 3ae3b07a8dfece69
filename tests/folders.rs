//! Folders whose files clients may read: `--page` at `/client/`, `--downloads-folder` at `/files/`.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::support::http::{Reply, get, request};
use crate::support::runner::{TestRunner, folder};

/// A folder with files, and beside it a file that no request may reach.
struct Served {
    beside: PathBuf,
}

const SECRET: &str = "not for callers";

impl Served {
    fn new() -> Self {
        let beside = folder();
        let root = beside.join("page");
        fs::create_dir_all(root.join("assets/deep")).expect("the folder is the test's");
        for (name, text) in [
            ("page/index.html", "<!doctype html><title>mine</title>"),
            ("page/assets/app-1.js", "console.log('mine')"),
            ("page/assets/index.html", "assets"),
            ("page/assets/deep/a b ü.wav", "RIFF"),
            ("page/engine.wasm", "\0asm"),
            ("page/.env", SECRET),
            ("secret", SECRET),
            ("page/empty", ""),
        ] {
            fs::write(beside.join(name), text).expect("the folder is the test's");
        }
        fs::write(root.join("big.bin"), big()).expect("the folder is the test's");
        symlink("../secret", root.join("link")).expect("the folder is the test's");
        symlink("index.html", root.join("inside")).expect("the folder is the test's");
        symlink("..", root.join("up")).expect("the folder is the test's");
        Served { beside }
    }

    fn path(&self) -> String {
        self.beside.join("page").display().to_string()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.beside);
    }
}

/// Several pieces of a file.
fn big() -> Vec<u8> {
    (0..300_000_u32).map(|at| (at % 251) as u8).collect()
}

fn get_with(addr: SocketAddr, target: &str, headers: &[&str]) -> Reply {
    request(addr, "GET", target, headers, b"").expect("the runner answers")
}

/// Another page replaces the built-in one, with the types that browsers need and without the policy
/// of the built-in page.
#[test]
fn a_folder_replaces_the_page() {
    let served = Served::new();
    let runner = TestRunner::start(&["--page", &served.path()]);
    let page = get(runner.addr, "/client/");
    assert_eq!(page.status, 200);
    assert_eq!(page.text(), "<!doctype html><title>mine</title>");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("content-security-policy"), Some("frame-ancestors 'self'"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    for (path, content_type, bytes) in [
        ("/client/index.html", "text/html; charset=utf-8", 34),
        ("/client/assets/app-1.js", "text/javascript; charset=utf-8", 19),
        ("/client/assets/", "text/html; charset=utf-8", 6),
        ("/client/assets/deep/a%20b%20%C3%BC.wav", "audio/wav", 4),
        ("/client/engine.wasm", "application/wasm", 4),
        ("/client/empty", "application/octet-stream", 0),
    ] {
        let reply = get(runner.addr, path);
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.header("content-type"), Some(content_type), "{path}");
        assert_eq!(reply.body.len(), bytes, "{path}");
        assert_eq!(
            reply.header("content-length"),
            Some(bytes.to_string().as_str()),
            "{path}"
        );
    }
    let slash = get(runner.addr, "/client/assets?transport=webrtc");
    assert_eq!(
        (slash.status, slash.header("location")),
        (307, Some("assets/?transport=webrtc"))
    );
    assert_eq!(get(runner.addr, "/").header("location"), Some("/client/"));
    // The built-in page's own files are gone.
    assert_eq!(get(runner.addr, "/client/app.js").status, 404);
    let head = request(runner.addr, "HEAD", "/client/big.bin", &[], b"").expect("the runner answers");
    assert_eq!(
        (head.status, head.header("content-length"), head.body.len()),
        (200, Some("300000"), 0)
    );
    assert_eq!(
        request(runner.addr, "POST", "/client/", &[], b"")
            .expect("the runner answers")
            .status,
        405
    );
    // The folder is read at each request.
    fs::write(served.beside.join("page/index.html"), "new").expect("the folder is the test's");
    assert_eq!(get(runner.addr, "/client/").text(), "new");
    assert!(runner.log().contains("/client/ is the page in"), "{}", runner.log());
    assert!(runner.log().contains("are not restricted"), "{}", runner.log());
}

/// Other replies keep the policy and the routes of the runner.
#[test]
fn a_page_of_ones_own_changes_no_other_route() {
    let served = Served::new();
    let runner = TestRunner::start(&["--page", &served.path()]);
    assert_eq!(get(runner.addr, "/status").json()["status"], "ready");
    assert_eq!(get(runner.addr, "/files/index.html").status, 404);
    let plain = TestRunner::start(&[]);
    let page = get(plain.addr, "/client/");
    let policy = page
        .header("content-security-policy")
        .expect("the built-in page has a policy");
    assert!(policy.contains("script-src 'self'"), "{policy}");
    assert_eq!(get(plain.addr, "/files/index.html").status, 404);
}

/// Neither dots, encoded or not, nor links, nor hidden names lead to another file.
#[test]
fn no_request_leaves_the_folder() {
    let served = Served::new();
    let runner = TestRunner::start(&["--page", &served.path(), "--downloads-folder", &served.path()]);
    for name in [
        "../secret",
        "..%2fsecret",
        "%2e%2e/secret",
        "%2e%2e%2fsecret",
        "..%5csecret",
        "assets/../../secret",
        "assets/..%2f..%2fsecret",
        "./index.html",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "link",
        "inside",
        "up/secret",
        "up/page/index.html",
        ".env",
        "assets//app-1.js",
        "index.html/",
        "index.html/x",
        "index.html%00",
        "none",
        "a%zz",
    ] {
        for folder in ["/client/", "/files/"] {
            let reply = get(runner.addr, &format!("{folder}{name}"));
            assert_eq!(reply.status, 404, "{folder}{name}");
            assert!(!reply.text().contains(SECRET), "{folder}{name}");
        }
    }
}

/// RFC 9110, sections 13 and 14.
#[test]
fn parts_and_versions_of_a_file() {
    let served = Served::new();
    let runner = TestRunner::start(&["--page", &served.path()]);
    let whole = get(runner.addr, "/client/big.bin");
    assert_eq!(whole.body, big());
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    let etag = whole.header("etag").expect("a file has a tag").to_owned();
    let known = get_with(
        runner.addr,
        "/client/big.bin",
        &[&format!("If-None-Match: \"x\", W/{etag}")],
    );
    assert_eq!((known.status, known.body.len()), (304, 0));
    assert_eq!(known.header("etag"), Some(etag.as_str()));
    let part = get_with(runner.addr, "/client/big.bin", &["Range: bytes=65530-131080"]);
    assert_eq!(part.status, 206);
    assert_eq!(part.header("content-range"), Some("bytes 65530-131080/300000"));
    assert_eq!(part.body, &big()[65_530..131_081]);
    let last = get_with(
        runner.addr,
        "/client/big.bin",
        &["Range: bytes=-3", &format!("If-Range: {etag}")],
    );
    assert_eq!((last.status, last.body), (206, big()[299_997..].to_vec()));
    let other = get_with(
        runner.addr,
        "/client/big.bin",
        &["Range: bytes=-3", "If-Range: \"other\""],
    );
    assert_eq!((other.status, other.body.len()), (200, 300_000));
    let beyond = get_with(runner.addr, "/client/big.bin", &["Range: bytes=300000-"]);
    assert_eq!(
        (beyond.status, beyond.header("content-range")),
        (416, Some("bytes */300000"))
    );
    // Another content of the same length is another version.
    fs::write(served.beside.join("page/big.bin"), vec![7; 300_000]).expect("the folder is the test's");
    let changed = get_with(runner.addr, "/client/big.bin", &[&format!("If-None-Match: {etag}")]);
    assert_eq!((changed.status, changed.body), (200, vec![7; 300_000]));
}

/// A download is saved by the browser, and needs the key.
#[test]
fn downloads_are_attachments_and_need_the_key() {
    let served = Served::new();
    let runner = TestRunner::start(&["-f", &served.path()]);
    let reply = get(runner.addr, "/files/assets/deep/a%20b%20%C3%BC.wav");
    assert_eq!((reply.status, reply.text()), (200, "RIFF".to_owned()));
    assert_eq!(reply.header("content-type"), Some("audio/wav"));
    assert_eq!(
        reply.header("content-disposition"),
        Some("attachment; filename*=UTF-8''a%20b%20%C3%BC.wav")
    );
    assert_eq!(
        get(runner.addr, "/files/index.html").header("content-security-policy"),
        Some("default-src 'none'; sandbox")
    );
    for path in ["/files/", "/files/assets", "/files/assets/"] {
        assert_eq!(get(runner.addr, path).status, 404, "{path}");
    }
    // The built-in page is still there.
    assert_eq!(get(runner.addr, "/client/app.js").status, 200);

    let guarded = TestRunner::start(&["-f", &served.path(), "--api-key", "0123456789abcdef"]);
    assert_eq!(get(guarded.addr, "/files/index.html").status, 401);
    let wrong = get_with(guarded.addr, "/files/none", &["Authorization: Bearer fedcba9876543210"]);
    assert_eq!(wrong.status, 401);
    let shown = get_with(
        guarded.addr,
        "/files/index.html",
        &["Authorization: Bearer 0123456789abcdef"],
    );
    assert_eq!(shown.status, 200);
}

#[test]
fn a_folder_that_cannot_be_read_ends_the_start() {
    for option in ["--page", "--downloads-folder"] {
        let ended = TestRunner::run(&["--port", "0", option, "/no/such/folder"]);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(&format!("{option} /no/such/folder")),
            "{}",
            ended.stderr
        );
        let ended = TestRunner::run(&["--port", "0", option, "/dev/null"]);
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    }
    let empty = folder();
    let runner = TestRunner::start(&["--page", &empty.display().to_string()]);
    assert!(runner.log().contains("has no index.html"), "{}", runner.log());
    fs::remove_dir_all(&empty).expect("the folder is the test's");
}
