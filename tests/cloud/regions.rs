//! The file of regions.

use std::fs;

use serde_json::json;

use super::builds::{GATED, shell};
use crate::support::cloud::{DataDir, KEY, TestCloud, archive};
use crate::support::runner::TestRunner;

const TWO: &str = r#"{"default":"us-west","regions":[
    {"code":"eu-central","display_name":"EU (Frankfurt)","builds":false},
    {"code":"us-west","display_name":"US West"}]}"#;

/// Starts a service with these regions.
fn start(data: &DataDir) -> TestCloud {
    let regions = data.regions(TWO);
    let options: Vec<&str> = regions.iter().map(String::as_str).chain(["--", "/bin/true"]).collect();
    TestCloud::start(data, &options)
}

/// C-042, C-043, C-076, C-077: all regions are listed, and the default is a property.
#[test]
fn all_regions_are_listed() {
    let data = DataDir::new();
    let cloud = start(&data);
    let listed = json!({"regions": [
        {"code": "eu-central", "display_name": "EU (Frankfurt)"},
        {"code": "us-west", "display_name": "US West"},
    ]});
    for path in ["/v1/regions", "/v1/organizations/default/regions"] {
        let reply = cloud.get(path);
        assert_eq!((reply.status, reply.json()), (200, listed.clone()), "{path}");
    }
    for path in ["/v1/properties", "/v1/organizations/default/properties"] {
        let reply = cloud.get(path);
        assert_eq!(
            (reply.status, reply.json()),
            (200, json!({"properties": {"defaultRegion": "us-west"}}))
        );
    }
}

/// C-030, C-090: grants need a region with builds; the default region applies otherwise.
#[test]
fn grants_are_for_regions_with_builds() {
    let data = DataDir::new();
    let cloud = start(&data);
    let grant = |body: &[u8]| cloud.request("POST", "/v1/builds/upload-url", KEY, body);
    for body in [&b""[..], b"{}", br#"{"region":"us-west"}"#] {
        let reply = grant(body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        if data.place().is_none() {
            let credential = reply.json()["uploadFields"]["X-Store-Credential"].to_string();
            assert!(credential.contains("/us-west/"), "{credential}");
        }
    }
    for (body, says) in [
        (&br#"{"region":"eu-central"}"#[..], "has no builds"),
        (br#"{"region":"US-WEST"}"#, "no such `region`"),
        (br#"{"region":""}"#, "no such `region`"),
        (br#"{"region":7}"#, "`region` must be a string"),
        (br#"{"region":null}"#, "`region` must be a string"),
        (b"[]", "a JSON object"),
        (b"region=us-west", "a JSON object"),
    ] {
        let reply = grant(body);
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (400, &json!("GENERIC_BAD_REQUEST"))
        );
        assert!(reply.text().contains(says), "{}", reply.text());
    }
    let create = json!({"uploadId": "7a2c9e10-1111-4222-8333-444455556666", "region": "eu-central"});
    let reply = cloud.post("/v1/builds", &create);
    assert!(
        reply.status == 400 && reply.text().contains("has no builds"),
        "{}",
        reply.text()
    );
}

/// Without a file there is one region.
#[test]
fn without_a_file_there_is_one_region() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[]);
    let listed = json!({"regions": [{"code": "local", "display_name": "Local"}]});
    assert_eq!(cloud.get("/v1/regions").json(), listed);
}

/// Without a command no region has builds.
#[test]
fn without_a_command_no_region_has_builds() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[]);
    let reply = cloud.post("/v1/builds/upload-url", &json!({"region": "local"}));
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (400, &json!("GENERIC_BAD_REQUEST"))
    );
}

/// Starts a build in a region, which goes on until the gate is open.
fn building(data: &DataDir, gate: &DataDir) -> (TestCloud, String) {
    let regions = data.regions(TWO);
    let options: Vec<&str> = regions.iter().map(String::as_str).collect();
    let cloud = TestCloud::start(data, &shell(&options, GATED, gate.path()));
    let upload = cloud.upload(&archive(&[("Dockerfile", "FROM scratch\n")]));
    let reply = cloud.post("/v1/builds", &json!({"uploadId": upload, "region": "us-west"}));
    assert_eq!(reply.status, 201, "{}", reply.text());
    let build = reply.json()["build"]["id"].as_str().expect("an identifier").to_owned();
    cloud.wait_for(&build, "building");
    (cloud, build)
}

fn codes(cloud: &TestCloud) -> Vec<String> {
    let list = cloud.get("/v1/regions").json();
    let list = list["regions"].as_array().expect("a list").clone();
    list.iter()
        .map(|region| region["code"].as_str().expect("text").to_owned())
        .collect()
}

/// I-02, C-079: a change applies with the next request, and running builds continue.
#[test]
fn a_change_applies_with_the_next_request() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let (cloud, build) = building(&data, &gate);
    assert_eq!(codes(&cloud), ["eu-central", "us-west"]);
    data.regions(r#"{"regions":[{"code":"a"}]}"#);
    assert_eq!(codes(&cloud), ["a"]);
    data.regions(r#"{"regions":[{"code":"b"}]}"#);
    assert_eq!(codes(&cloud), ["b"]);
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    cloud.wait_for(&build, "success");
}

/// I-02, C-079: a file that becomes invalid gives 500 with a number that is logged, and running
/// builds continue.
#[test]
fn a_file_that_becomes_invalid_gives_500() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let (cloud, build) = building(&data, &gate);
    let file = data.path().join("regions.json");
    let unusable = |says: &str| {
        for (method, path) in [
            ("GET", "/v1/regions"),
            ("GET", "/v1/properties"),
            ("POST", "/v1/builds/upload-url"),
        ] {
            let reply = cloud.request(method, path, KEY, b"");
            assert_eq!(
                (reply.status, &reply.json()["code"]),
                (500, &json!("INTERNAL_SERVER_ERROR")),
                "{path}"
            );
            let error = reply.json()["error"].as_str().expect("text").to_owned();
            let number = error
                .strip_prefix("Internal server error (request ")
                .and_then(|rest| rest.strip_suffix(')'))
                .unwrap_or_else(|| panic!("no number in {error}"));
            let line = cloud.runner.wait_for_log(&format!("request {number}:"));
            assert!(line.contains(says) && line.contains("regions.json"), "{line}");
        }
        // Requests that need no region work.
        assert_eq!(cloud.get("/v1/builds").status, 200);
    };
    fs::write(&file, "{").expect("written");
    unusable("EOF");
    fs::remove_file(&file).expect("there");
    unusable("there is no such file");
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    cloud.wait_for(&build, "success");
    fs::write(data.path().join("next"), TWO).expect("written");
    fs::rename(data.path().join("next"), &file).expect("renamed");
    assert_eq!(codes(&cloud), ["eu-central", "us-west"]);
}

/// I-02: an invalid file is refused by name: at start, or by what sets those of replicas.
#[test]
fn an_invalid_file_is_refused() {
    let data = DataDir::new();
    let file = data.path().join("regions.json");
    let (dir, path) = (data.path().to_str().expect("UTF-8"), file.to_str().expect("UTF-8"));
    let start = |says: &str| {
        let (ended, code) = match data.place() {
            None => {
                let serve = ["cloud", "serve", "--port", "0", "--data-dir", dir, "--regions", path];
                (TestRunner::run(&serve), 2)
            }
            Some(place) => {
                let migrate = ["cloud", "migrate", "--regions", path];
                (TestRunner::run_with(&migrate, &place.variables()), 1)
            }
        };
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(path) && ended.stderr.contains(says),
            "{}",
            ended.stderr
        );
    };
    start(if data.place().is_none() {
        "there is no such file"
    } else {
        "No such file"
    });
    for (text, says) in [
        ("us-west", "it must be JSON such as"),
        (r#"{"regions":[]}"#, "1 to"),
        (r#"{"regions":[{"code":"a"},{"code":"a"}]}"#, "is used twice"),
        (r#"{"default":"b","regions":[{"code":"a"}]}"#, "`default`"),
    ] {
        fs::write(&file, text).expect("written");
        start(says);
    }
}
