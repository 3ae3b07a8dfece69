//! Keys: creation, listing, revocation, organizations.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::cloud::{DataDir, KEY, OTHER, PUBLIC, TestCloud, archive, form};
use crate::support::http;
use crate::support::runner::{PATIENCE, TestRunner};

/// Creates a key; stdout contains nothing else.
fn create(data: &DataDir, args: &[&str]) -> String {
    let mut all = vec!["create"];
    all.extend(args);
    let ended = data.keys(&all);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let key = ended.stdout.strip_suffix('\n').expect("a line").to_owned();
    assert!(!key.contains('\n') && !ended.stderr.contains(&key), "{ended:?}");
    key
}

fn list(data: &DataDir) -> Vec<Value> {
    let ended = data.keys(&["list", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let json: Value = serde_json::from_str(&ended.stdout).expect("one object");
    json["keys"].as_array().expect("a list").clone()
}

/// Lists every file below a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("there").flatten();
    entries
        .flat_map(|entry| match entry.file_type().expect("known").is_dir() {
            true => files(&entry.path()),
            false => vec![entry.path()],
        })
        .collect()
}

/// I-03: a running service accepts a new key, and rejects a revoked one, with the next request.
#[test]
fn a_running_service_sees_changes() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[]);
    let key = create(&data, &["--type", "private", "--org", "acme", "--name", "the CI"]);
    let (prefix, random) = key.split_at(3);
    assert_eq!((prefix, random.len()), ("sk_", 43));
    assert!(
        random.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)),
        "{random}"
    );
    let organizations = json!({"organizations": [{"name": "acme", "verboseName": "acme"}]});
    let reply = cloud.request("GET", "/v1/organizations", &key, b"");
    assert_eq!((reply.status, reply.json()), (200, organizations));

    let listed = list(&data);
    assert_eq!(listed.len(), 1);
    let mut members: Vec<_> = listed[0].as_object().expect("an object").keys().cloned().collect();
    members.sort();
    assert_eq!(members, ["createdAt", "id", "name", "org", "type"]);
    assert_eq!(
        (&listed[0]["type"], &listed[0]["org"], &listed[0]["name"]),
        (&json!("private"), &json!("acme"), &json!("the CI"))
    );
    let id = listed[0]["id"].as_str().expect("text");
    // The log shows the id of the key.
    cloud.runner.wait_for_log(&format!("acme {id}"));

    let ended = data.keys(&["revoke", id]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(cloud.request("GET", "/v1/organizations", &key, b"").status, 401);
    assert!(list(&data).is_empty());
    let again = data.keys(&["revoke", id]);
    assert!(again.code == Some(1) && again.stderr.contains(id), "{}", again.stderr);
    // Keys from variables are not affected.
    assert_eq!(cloud.get("/v1/organizations").status, 200);
}

/// A grant ends with its key: a new upload is rejected before its file, a running one at its end.
#[test]
fn revoking_a_key_ends_its_grants() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &["--", "true"]);
    let key = create(&data, &["--type", "private"]);
    let grant = || {
        let reply = cloud.request("POST", "/v1/builds/upload-url", &key, b"{}");
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    };
    let packed = archive(&[("Dockerfile", "FROM scratch\n")]);
    let (used, next, under_way) = (grant(), grant(), grant());
    assert_eq!(cloud.send(&used, &packed).status, 204);
    let head_of = |kind: &str, bytes: usize| {
        format!("POST /build-contexts HTTP/1.1\r\nHost: h\r\n{kind}\r\nContent-Length: {bytes}\r\n\r\n")
    };
    let connect = || {
        let stream = TcpStream::connect(cloud.runner.addr).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    };
    let mut file = packed.clone();
    file.resize(700_000, 0);
    let (kind, body) = form(&under_way, &file);
    let mut slow = connect();
    slow.write_all(head_of(&kind, body.len()).as_bytes()).expect("it reads");
    slow.write_all(&body[..600_000]).expect("it reads");
    let began = std::time::Instant::now();
    while fs::read_dir(data.path().join("tmp")).expect("a folder").count() == 0 {
        assert!(began.elapsed() < PATIENCE, "the upload was to begin");
        std::thread::yield_now();
    }

    let id = list(&data)[0]["id"].as_str().expect("text").to_owned();
    assert_eq!(data.keys(&["revoke", &id]).code, Some(0));
    let refused = |mut stream: TcpStream| {
        let mut raw = Vec::new();
        // Unread data may reset the connection after the answer.
        let _ = stream.read_to_end(&mut raw);
        let reply = http::parse(&raw).expect("an answer");
        assert_eq!((reply.status, &reply.json()["code"]), (403, &json!("AccessDenied")));
        assert!(reply.text().contains("revoked"), "{}", reply.text());
    };
    // Only the fields are sent.
    for grant in [&next, &used] {
        let (kind, body) = form(grant, b"");
        let fields = body.len() - "\r\n------of-a-test-0123456789--\r\n".len();
        let mut stream = connect();
        stream
            .write_all(head_of(&kind, 1_000_000).as_bytes())
            .expect("it reads");
        stream.write_all(&body[..fields]).expect("it reads");
        stream.write_all(b"\x1f").expect("it reads");
        stream.shutdown(std::net::Shutdown::Write).expect("a socket");
        refused(stream);
    }
    slow.write_all(&body[600_000..]).expect("it reads");
    slow.shutdown(std::net::Shutdown::Write).expect("a socket");
    refused(slow);
    let place = |grant: &Value| {
        data.path()
            .join("archives")
            .join(grant["uploadFields"]["key"].as_str().expect("a key"))
    };
    assert!(fs::read(place(&used)).expect("it was whole before") == packed);
    assert!(!place(&next).exists() && !place(&under_way).exists());
    // Grants of other keys stay valid.
    assert_eq!(cloud.send(&cloud.grant(), &packed).status, 204);
}

/// The short hash finds builds only for keys that uploaded the archive; another key gets the same
/// build after its own upload.
#[test]
fn a_short_hash_finds_archives_of_the_requesting_key() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &["--", "sh", "-c", "echo image > \"$BUILD_OUT/image\""]);
    let key = create(&data, &["--type", "private"]);
    let packed = archive(&[("Dockerfile", "FROM scratch\n")]);
    let id = cloud.build(&packed);
    let hash = cloud.ended(&id)["contextHash"].as_str().expect("a hash").to_owned();
    let found = |key: &str, query: &str| {
        let reply = cloud.request("GET", &format!("/v1/builds?status=success&{query}"), key, b"");
        assert_eq!(reply.status, 200, "{}", reply.text());
        let json = reply.json();
        assert_eq!(
            json["builds"].as_array().map(Vec::len),
            json["total"].as_u64().map(|total| total as usize)
        );
        json["total"].as_u64().expect("a number")
    };
    let by_hash = format!("contextHash={hash}");
    assert_eq!((found(KEY, &by_hash), found(&key, &by_hash)), (1, 0));
    assert_eq!(
        (found(KEY, ""), found(&key, "")),
        (1, 1),
        "without a hash all are listed"
    );
    let grant = cloud.request("POST", "/v1/builds/upload-url", &key, b"{}").json();
    assert_eq!(cloud.send(&grant, &packed).status, 204);
    let wanted = json!({"uploadId": grant["uploadId"], "region": "local"}).to_string();
    let made = cloud.request("POST", "/v1/builds", &key, wanted.as_bytes());
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(
        (&made.json()["cached"], &made.json()["build"]["id"]),
        (&json!(true), &json!(id))
    );
    assert_eq!(found(&key, &by_hash), 1);
}

/// I-03, C-086: only digests are stored, for both types of keys.
#[test]
fn no_file_contains_a_key() {
    let data = DataDir::new();
    let private = create(&data, &["--type", "private"]);
    let public = create(&data, &["--type", "public", "--org", "acme"]);
    assert!(public.starts_with("pk_"), "{public}");
    let cloud = TestCloud::start(&data, &[]);
    assert_eq!(cloud.request("GET", "/v1/regions", &private, b"").status, 200);
    assert_eq!(cloud.request("GET", "/v1/public/x", &public, b"").status, 501);
    for file in files(data.path()) {
        let text = fs::read(&file).expect("readable");
        for key in [&private, &public, KEY, OTHER, PUBLIC] {
            let random = &key.as_bytes()[3..];
            let found = text.windows(random.len()).any(|part| part == random);
            assert!(!found, "a key in {}", file.display());
        }
    }
    match data.place() {
        None => {
            let mode = fs::metadata(data.path().join("keys.json")).expect("there").mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        Some(place) => {
            let rows = place.sql("SELECT * FROM api_key");
            assert_eq!(rows.lines().count(), 2, "{rows}");
            for key in [&private, &public] {
                assert!(!rows.contains(&key[3..]), "a key in {rows}");
            }
        }
    }
}

/// I-03: without any key one of each type is created once; the banner names their file.
#[test]
fn the_first_keys_are_in_a_file() {
    let data = DataDir::new();
    let path = data.path().to_str().expect("UTF-8");
    let args = ["cloud", "serve", "--port", "0", "--data-dir", path, "--org", "acme"];
    let mut service = TestRunner::start_bare(&args, &[]);
    let file = data.path().join("first-keys.json");
    assert_eq!(fs::metadata(&file).expect("made").mode() & 0o777, 0o600);
    let first: Value = serde_json::from_slice(&fs::read(&file).expect("ours")).expect("JSON");
    assert_eq!(first.as_object().expect("an object").len(), 2);
    let key = |kind: &str| first[kind].as_str().expect("a key").to_owned();
    let ask = |service: &TestRunner, target: &str, key: &str| {
        let header = format!("Authorization: Bearer {key}");
        http::request(service.addr, "GET", target, &[&header], b"")
            .expect("an answer")
            .status
    };
    assert_eq!(ask(&service, "/v1/organizations/acme/regions", &key("private")), 200);
    assert_eq!(ask(&service, "/v1/public/x", &key("public")), 501);
    service.signal("TERM");
    service.wait();
    let (stdout, stderr) = service.last_words();
    assert!(stdout.contains(file.to_str().expect("UTF-8")), "{stdout}");
    for kind in ["private", "public"] {
        assert!(!stdout.contains(&key(kind)) && !stderr.contains(&key(kind)));
    }

    let mut service = TestRunner::start_bare(&args, &[]);
    let same: Value = serde_json::from_slice(&fs::read(&file).expect("ours")).expect("JSON");
    assert_eq!(first, same);
    assert_eq!(ask(&service, "/v1/regions", &key("private")), 200);
    service.signal("TERM");
    service.wait();
    let (stdout, _) = service.last_words();
    assert!(
        !stdout.contains("first-keys.json"),
        "nothing was made this time: {stdout}"
    );
}

/// I-03: a key belongs to one organization, wherever it is defined.
#[test]
fn keys_in_variables_name_organizations() {
    let data = DataDir::new();
    let variables = [
        (
            "CLOUD_PRIVATE_KEYS",
            "sk_test_0123456789abcdef,other=sk_other_0123456789abcdef",
        ),
        ("CLOUD_PUBLIC_KEYS", "other=pk_other_0123456789abcdef"),
    ];
    let cloud = TestCloud::start_with(&data, &["--org", "home"], &variables);
    let org = |key: &str| {
        let reply = cloud.request("GET", "/v1/organizations", key, b"");
        reply.json()["organizations"][0]["name"]
            .as_str()
            .expect("text")
            .to_owned()
    };
    assert_eq!((org(KEY), org(OTHER)), ("home".into(), "other".into()));
    assert_eq!(
        cloud
            .request("GET", "/v1/public/x", "pk_other_0123456789abcdef", b"")
            .status,
        501
    );
    assert!(!data.path().join("first-keys.json").exists(), "there are keys");
}

/// Usage errors of `keys`; a missing directory is not created.
#[test]
fn keys_rejects_invalid_arguments() {
    let data = DataDir::new();
    for (args, code, says) in [
        (&["create"][..], 2, "--type"),
        (&["create", "--type", "secret"], 2, "--type"),
        (&["create", "--type", "private", "--org", "a/b"], 2, "--org"),
        (&["revoke"], 2, "ID"),
        (&["revoke", "00000000"], 1, "00000000"),
    ] {
        let ended = data.keys(args);
        assert!(
            ended.code == Some(code) && ended.stderr.contains(says),
            "{args:?}: {ended:?}"
        );
        assert!(ended.stdout.is_empty(), "{ended:?}");
    }
    if data.place().is_some() {
        return;
    }
    let nowhere = data.path().join("nowhere");
    let ended = TestRunner::run(&["cloud", "keys", "list", "--data-dir", nowhere.to_str().expect("UTF-8")]);
    assert!(ended.code == Some(1) && ended.stderr.contains("nowhere"), "{ended:?}");
    assert!(!nowhere.exists());
}

/// A damaged key file gives 500, not 401, and a log line. I-22: nothing that may be a key is logged
/// meanwhile.
#[test]
fn a_damaged_key_file_is_an_internal_error() {
    let data = DataDir::new();
    let key = create(&data, &["--type", "private"]);
    let cloud = TestCloud::start(&data, &[]);
    fs::write(data.path().join("keys.json"), "{").expect("ours");
    let reply = cloud.request("GET", "/v1/regions", &key, b"");
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (500, &json!("INTERNAL_SERVER_ERROR"))
    );
    cloud.runner.wait_for_log("keys.json");
    assert_eq!(cloud.get("/v1/regions").status, 200, "a variable has this one");
    for (n, part) in [&*key, &format!("x{key}"), "a-key-of-another-owner"]
        .into_iter()
        .enumerate()
    {
        assert_eq!(cloud.get(&format!("/v1/{part}/{n}")).status, 404);
        cloud.runner.wait_for_log(&format!("GET /v1/.../{n} 404"));
        assert!(!cloud.runner.log().contains(part));
    }
    assert_eq!(
        http::get(cloud.runner.addr, "/v1/regions").status,
        401,
        "no key is no key"
    );
}
