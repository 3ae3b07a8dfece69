//! Upload grants: content, organization, expiry, restarts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use edge_runner_proto::time;
use edge_runner_proto::uuid::Uuid;
use serde_json::{Value, json};

use crate::support::cloud::{DataDir, KEY, OTHER, TestCloud, archive};
use crate::support::scale::{KEY_ID, KEY_SECRET};

const COMMAND: [&str; 2] = ["--", "true"];

/// The operator's own signing key, which an object store brings in its place.
const OPERATOR: [(&str, &str); 2] = [
    ("CLOUD_STORE_KEY_ID", "SKEXAMPLE01"),
    ("CLOUD_STORE_SECRET", "store-secret-for-tests"),
];

fn packed() -> Vec<u8> {
    archive(&[("Dockerfile", "FROM scratch\n")])
}

fn text_of(member: &Value) -> &str {
    member.as_str().expect("text")
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
    let variables = if data.place().is_none() { &OPERATOR[..] } else { &[] };
    let cloud = TestCloud::start_with(&data, &[&url[..], &COMMAND].concat(), variables);
    let before_ms = now_ms();
    let reply = cloud.post("/v1/builds/upload-url", &json!({"region": "local"}));
    let after_ms = now_ms();
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let text = reply.text();
    // A static key of a store has no token.
    let (prefix, algorithm, signed) = match data.place() {
        None => (
            "X-Store",
            "STORE4-HMAC-SHA256",
            &["Algorithm", "Credential", "Date", "Security-Token", "Signature"][..],
        ),
        Some(_) => (
            "X-Amz",
            "AWS4-HMAC-SHA256",
            &["Algorithm", "Credential", "Date", "Signature"][..],
        ),
    };
    let mut order = [
        "uploadId",
        "uploadUrl",
        "uploadFields",
        "key",
        "bucket",
        "Content-Type",
        "Policy",
    ]
    .map(str::to_owned)
    .to_vec();
    order.extend(signed.iter().map(|name| format!("{prefix}-{name}")));
    order.push("expiresAt".to_owned());
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
    assert_eq!(fields.as_object().map(serde_json::Map::len), Some(4 + signed.len()));
    let id = grant["uploadId"].as_str().expect("text");
    assert_eq!(Uuid::parse(id).map(|id| id.to_string()).as_deref(), Some(id));
    let (target, bucket) = match data.place() {
        None => ("https://builds.example.net/build-contexts".to_owned(), "build-contexts"),
        Some(place) => (place.upload_url(), &*place.bucket),
    };
    assert_eq!(grant["uploadUrl"], *target);
    assert_eq!(fields["key"], *format!("default/{id}.tar.gz"));
    assert_eq!(fields["bucket"], *bucket);
    assert_eq!(fields["Content-Type"], "application/gzip");
    let value = |name: &str| fields[&*format!("{prefix}-{name}")].as_str().expect("text");
    assert_eq!(value("Algorithm"), algorithm);
    let date = value("Date");
    let scope = match data.place() {
        None => ("SKEXAMPLE01", "local/store/store4_request"),
        Some(_) => (KEY_ID, "us-east-1/s3/aws4_request"),
    };
    assert_eq!(value("Credential"), format!("{}/{}/{}", scope.0, &date[..8], scope.1));
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
    let text = json!({"default": "us-west", "regions": [
        {"code": "eu-central", "display_name": "Europe", "builds": false},
        {"code": "us-west", "display_name": "US West"},
        {"code": "us-east", "display_name": "US East", "builds": true},
    ]});
    let regions = data.regions(&text.to_string());
    let options: Vec<&str> = regions.iter().map(String::as_str).chain(COMMAND).collect();
    let cloud = TestCloud::start(&data, &options);
    let ask = |body: &[u8]| cloud.request("POST", "/v1/builds/upload-url", KEY, body);
    for (body, region) in [
        (&b""[..], "us-west"),
        (b"{}", "us-west"),
        (b"{\"region\":\"us-west\"}", "us-west"),
        (b"{\"region\":\"us-east\",\"more\":1}", "us-east"),
    ] {
        let reply = ask(body);
        assert_eq!(reply.status, 200, "{}: {}", body.escape_ascii(), reply.text());
        let grant = reply.json();
        let granted = match data.place() {
            None => grant["uploadFields"]["X-Store-Credential"]
                .as_str()
                .and_then(|credential| credential.split('/').nth(2))
                .map(str::to_owned),
            // That of the signature is the store's.
            Some(place) => Some(place.sql(&format!(
                "SELECT region FROM upload WHERE id = '{}'",
                text_of(&grant["uploadId"])
            ))),
        };
        assert_eq!(granted.as_deref(), Some(region));
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

/// I-05: a grant survives a restart.
#[test]
fn grants_survive_a_restart() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &COMMAND);
    let grant = cloud.grant();
    drop(cloud);
    let cloud = TestCloud::start(&data, &COMMAND);
    let reply = cloud.send(&grant, &packed());
    assert_eq!(reply.status, 204, "{}", reply.text());
    assert_eq!(cloud.create(text_of(&grant["uploadId"])).status, 201);
}

/// I-05: a grant of a day key and one of the operator's key survive a restart, but not a change of
/// the secret.
#[test]
fn grants_end_with_their_secret() {
    let other = [OPERATOR[0], ("CLOUD_STORE_SECRET", "another-secret-for-tests")];
    let data = DataDir::new();
    for variables in [&[][..], &OPERATOR] {
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
    let of = |name: &str| text_of(&grant["uploadFields"][name]).to_owned();
    let mut hidden = vec![of("Policy"), KEY.to_owned()];
    let mut answers = String::new();
    if data.place().is_some() {
        // The service sees the upload when a build of it is asked for.
        answers += &cloud.create(text_of(&grant["uploadId"])).text();
        cloud.runner.wait_for_log("POST /v1/builds 201");
        hidden.extend([of("X-Amz-Signature"), KEY_SECRET.to_owned()]);
    } else {
        for (name, wrong) in [("X-Store-Signature", "f"), ("X-Store-Security-Token", "e")] {
            let mut other = grant.clone();
            other["uploadFields"][name] = json!(wrong.repeat(64));
            answers += &cloud.send(&other, &packed()).text();
            hidden.extend([of(name), wrong.repeat(64)]);
        }
        cloud.runner.wait_for_logs("/build-contexts", 3);
        let secret = fs::read_to_string(data.path().join("store.secret")).expect("it was made");
        hidden.push(secret.trim().to_owned());
    }
    let log = cloud.runner.log();
    for hidden in hidden {
        assert!(
            !log.contains(&hidden) && !answers.contains(&hidden),
            "{hidden} is shown"
        );
    }
    let _: Value = cloud.get("/v1/regions").json();
}
