//! Upload grants: content, organization, expiry, restarts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use edge_runner_proto::time;
use edge_runner_proto::uuid::Uuid;
use serde_json::{Value, json};

use crate::support::cloud::{DataDir, KEY, OTHER, TestCloud, archive};

const COMMAND: [&str; 2] = ["--", "true"];

fn packed() -> Vec<u8> {
    archive(&[("Dockerfile", "FROM scratch\n")])
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    since.as_millis() as u64
}

/// C-028 to C-041, C-061, C-064, C-093, I-05: every member in order with its value.
#[test]
fn a_grant_has_every_field() {
    let data = DataDir::new();
    let url = ["--public-url", "https://builds.example.net"];
    let cloud = TestCloud::start_with(
        &data,
        &[&url[..], &COMMAND].concat(),
        &[
            ("CLOUD_STORE_KEY_ID", "SKEXAMPLE01"),
            ("CLOUD_STORE_SECRET", "store-secret-for-tests"),
        ],
    );
    let before_ms = now_ms();
    let reply = cloud.post("/v1/builds/upload-url", &json!({"region": "local"}));
    let after_ms = now_ms();
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let text = reply.text();
    let order = [
        "uploadId",
        "uploadUrl",
        "uploadFields",
        "key",
        "bucket",
        "Content-Type",
        "Policy",
        "X-Store-Algorithm",
        "X-Store-Credential",
        "X-Store-Date",
        "X-Store-Security-Token",
        "X-Store-Signature",
        "expiresAt",
    ];
    let at: Vec<usize> = order
        .iter()
        .map(|name| {
            text.find(&format!("\"{name}\":"))
                .unwrap_or_else(|| panic!("no {name} in {text}"))
        })
        .collect();
    assert!(at.is_sorted(), "{text}");

    let grant = reply.json();
    assert_eq!(grant.as_object().map(serde_json::Map::len), Some(4));
    let fields = &grant["uploadFields"];
    assert_eq!(fields.as_object().map(serde_json::Map::len), Some(9));
    let id = grant["uploadId"].as_str().expect("text");
    assert_eq!(Uuid::parse(id).map(|id| id.to_string()).as_deref(), Some(id));
    assert_eq!(grant["uploadUrl"], "https://builds.example.net/build-contexts");
    assert_eq!(fields["key"], *format!("default/{id}.tar.gz"));
    assert_eq!(fields["bucket"], "build-contexts");
    assert_eq!(fields["Content-Type"], "application/gzip");
    assert_eq!(fields["X-Store-Algorithm"], "STORE4-HMAC-SHA256");
    let date = fields["X-Store-Date"].as_str().expect("text");
    assert_eq!(
        fields["X-Store-Credential"],
        *format!("SKEXAMPLE01/{}/local/store/store4_request", &date[..8])
    );
    let ends_ms = time::parse_iso(grant["expiresAt"].as_str().expect("text")).expect("a date");
    assert!((before_ms + 900_000..=after_ms + 900_000).contains(&ends_ms));
    assert!(
        [time::compact(before_ms), time::compact(after_ms)].contains(&date.to_owned()) || before_ms + 1_000 < after_ms
    );
}

/// C-062, C-063, C-065, C-090: requests and answers; the region is optional.
#[test]
fn a_grant_is_for_a_region_with_builds() {
    let data = DataDir::new();
    let regions = data.path().join("regions.json");
    let text = json!({"default": "us-west", "regions": [
        {"code": "eu-central", "display_name": "Europe", "builds": false},
        {"code": "us-west", "display_name": "US West"},
        {"code": "us-east", "display_name": "US East", "builds": true},
    ]});
    fs::write(&regions, text.to_string()).expect("the folder is the test's");
    let regions = regions.to_str().expect("UTF-8");
    let cloud = TestCloud::start(&data, &[&["--regions", regions], &COMMAND[..]].concat());
    let ask = |body: &[u8]| cloud.request("POST", "/v1/builds/upload-url", KEY, body);
    for (body, region) in [
        (&b""[..], "us-west"),
        (b"{}", "us-west"),
        (b"{\"region\":\"us-west\"}", "us-west"),
        (b"{\"region\":\"us-east\",\"more\":1}", "us-east"),
    ] {
        let reply = ask(body);
        assert_eq!(reply.status, 200, "{}: {}", body.escape_ascii(), reply.text());
        let credential = reply.json()["uploadFields"]["X-Store-Credential"]
            .as_str()
            .expect("text")
            .to_owned();
        assert_eq!(credential.split('/').nth(2), Some(region));
    }
    for body in [
        &b"{\"region\":\"eu-central\"}"[..],
        b"{\"region\":\"mars\"}",
        b"{\"region\":\"\"}",
        b"{\"region\":1}",
        b"{\"region\":[\"us-west\"]}",
        b"[]",
        b"region=us-west",
        b"{",
    ] {
        let reply = ask(body);
        assert_eq!(reply.status, 400, "{}: {}", body.escape_ascii(), reply.text());
        let json = reply.json();
        assert_eq!(json["code"], "GENERIC_BAD_REQUEST");
        assert!(json["error"].is_string());
    }
    // The other prefix, and the key of another organization.
    let reply = cloud.request("POST", "/v1/organizations/other/builds/upload-url", OTHER, b"");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let key = reply.json()["uploadFields"]["key"].as_str().expect("text").to_owned();
    assert!(key.starts_with("other/"), "{key}");
}

/// C-062: without a builder command no region has builds.
#[test]
fn without_a_command_there_are_no_grants() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[]);
    let reply = cloud.post("/v1/builds/upload-url", &json!({}));
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (400, &json!("GENERIC_BAD_REQUEST"))
    );
}

/// I-05: a grant survives a restart, with a day key and with the operator's key, but not a change
/// of the secret.
#[test]
fn grants_survive_a_restart() {
    let operator = [
        ("CLOUD_STORE_KEY_ID", "SKEXAMPLE01"),
        ("CLOUD_STORE_SECRET", "store-secret-for-tests"),
    ];
    let other = [operator[0], ("CLOUD_STORE_SECRET", "another-secret-for-tests")];
    let data = DataDir::new();
    for variables in [&[][..], &operator] {
        let cloud = TestCloud::start_with(&data, &COMMAND, variables);
        let grant = cloud.grant();
        drop(cloud);
        let cloud = TestCloud::start_with(&data, &COMMAND, variables);
        let reply = cloud.send(&grant, &packed());
        assert_eq!(reply.status, 204, "{}", reply.text());
        drop(cloud);
        let cloud = TestCloud::start_with(&data, &COMMAND, &other);
        let reply = cloud.send(&grant, &packed());
        let code = if variables.is_empty() {
            "InvalidAccessKeyId"
        } else {
            "SignatureDoesNotMatch"
        };
        assert_eq!((reply.status, &reply.json()["code"]), (403, &json!(code)));
    }
    let secret = data.path().join("store.secret");
    let found = fs::metadata(&secret).expect("it was made");
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    let elsewhere = DataDir::new();
    let own = TestCloud::start(&data, &COMMAND);
    let foreign = TestCloud::start(&elsewhere, &COMMAND);
    let refused = foreign.send(&own.grant(), &packed());
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (403, &json!("InvalidAccessKeyId"))
    );
}

/// I-21: below `--min-free` there are no grants, and earlier ones still work.
#[test]
fn grants_need_free_space() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &COMMAND);
    let grant = cloud.grant();
    drop(cloud);
    let cloud = TestCloud::start(&data, &[&["--min-free", "1048576g"], &COMMAND[..]].concat());
    let reply = cloud.post("/v1/builds/upload-url", &json!({}));
    assert_eq!((reply.status, &reply.json()["code"]), (503, &json!("STORAGE_FULL")));
    assert!(
        reply
            .header("retry-after")
            .is_some_and(|after| after.parse().is_ok_and(|s: u32| s > 0))
    );
    assert_eq!(cloud.send(&grant, &packed()).status, 204);
    assert_eq!(cloud.create(grant["uploadId"].as_str().expect("text")).status, 201);
}

/// I-22: at the highest log level no field of a grant is logged.
#[test]
fn grant_fields_are_not_logged() {
    let data = DataDir::new();
    let cloud = TestCloud::start_with(&data, &COMMAND, &[("RUST_LOG", "trace")]);
    let grant = cloud.grant();
    assert_eq!(cloud.send(&grant, &packed()).status, 204);
    let mut wrong = grant.clone();
    wrong["uploadFields"]["X-Store-Signature"] = json!("f".repeat(64));
    let mut answers = cloud.send(&wrong, &packed()).text();
    wrong["uploadFields"] = grant["uploadFields"].clone();
    wrong["uploadFields"]["X-Store-Security-Token"] = json!("e".repeat(64));
    answers += &cloud.send(&wrong, &packed()).text();
    cloud.runner.wait_for_logs("/build-contexts", 3);
    let log = cloud.runner.log();
    let secret = fs::read_to_string(data.path().join("store.secret")).expect("it was made");
    let of = |name: &str| grant["uploadFields"][name].as_str().expect("text").to_owned();
    for hidden in [
        of("Policy"),
        of("X-Store-Security-Token"),
        of("X-Store-Signature"),
        "f".repeat(64),
        "e".repeat(64),
        KEY.to_owned(),
        secret.trim().to_owned(),
    ] {
        assert!(
            !log.contains(&hidden) && !answers.contains(&hidden),
            "{hidden} is shown"
        );
    }
    let _: Value = cloud.get("/v1/regions").json();
}
