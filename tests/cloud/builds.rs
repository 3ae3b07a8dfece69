//! Builds: creation, listing, cache, queue.

use std::fs;
use std::path::Path;
use std::time::Instant;

use md5::{Digest as _, Md5};
use serde_json::{Value, json};

use crate::support::cloud::{DataDir, KEY, OTHER, TestCloud, archive};
use crate::support::http::{self, Reply};
use crate::support::runner::PATIENCE;

/// Succeeds with an image as soon as the file `go` exists in the folder `$0`.
pub const GATED: &str = r#"while [ ! -e "$0/go" ]; do sleep 0.02; done; echo image > "$BUILD_OUT/bot.img""#;

/// Options for a shell that runs `script` with the folder `gate` as `$0`.
pub fn shell<'a>(options: &[&'a str], script: &'a str, gate: &'a Path) -> Vec<&'a str> {
    let gate = gate.to_str().expect("folders of tests are UTF-8");
    [options, &["--", "sh", "-c", script, gate]].concat()
}

fn context(text: &str) -> Vec<u8> {
    archive(&[("Dockerfile", "FROM scratch\n"), ("bot.py", text)])
}

fn refused(reply: &Reply) -> (u16, String) {
    let body = reply.json();
    assert!(body["error"].is_string(), "{body}");
    (reply.status, body["code"].as_str().expect("a code").to_owned())
}

/// C-005 to C-008, C-010 to C-027, C-057: from a grant to an image, with the members of each state.
#[test]
fn a_build_goes_from_pending_to_success() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let cloud = TestCloud::start(&data, &shell(&["--max-builds", "1"], GATED, gate.path()));
    let packed = context("print()");
    let first = cloud.build(&packed);
    cloud.wait_for(&first, "building");
    let reply = cloud.create(&cloud.upload(&context("two")));
    assert_eq!(reply.status, 201);
    let created = reply.json();
    assert_eq!(created["cached"], false);
    assert_eq!(created["contextHash"], created["build"]["contextHash"]);
    let pending = &created["build"];
    assert_eq!(pending["status"], "pending");
    for absent in [
        "startedAt",
        "completedAt",
        "imageUri",
        "errorMessage",
        "buildDurationSeconds",
    ] {
        assert!(pending.get(absent).is_none(), "{pending}");
    }
    let second = pending["id"].as_str().expect("an identifier");
    assert_eq!(cloud.status(second), *pending, "nothing has changed");

    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    let done = cloud.wait_for(&first, "success");
    assert_eq!(done["id"], first.as_str());
    assert_eq!(done["organizationId"], "default");
    assert_eq!(done["region"], "local");
    assert_eq!(done["contextHash"], hash(&packed).as_str());
    assert_eq!(done["contextSizeBytes"], packed.len());
    assert_eq!(done["buildfilePath"], "Dockerfile");
    assert_eq!(done["dockerfilePath"], "Dockerfile");
    assert_eq!(done["imageSizeBytes"], "image\n".len());
    let base = format!("http://{}/v1", cloud.runner.addr);
    assert_eq!(done["imageUri"], format!("{base}/images/{first}/bot.img"));
    assert_eq!(done["logsUrl"], format!("{base}/builds/{first}/logs"));
    assert!(done["buildDurationSeconds"].is_u64());
    let times = ["createdAt", "startedAt", "completedAt", "updatedAt"].map(|name| done[name].as_str().expect("a time"));
    assert!(times.is_sorted(), "{times:?}");
    assert!(done.get("errorMessage").is_none());
    assert_eq!(cloud.wait_for(second, "success")["status"], "success");
}

fn hash(packed: &[u8]) -> String {
    let md5 = Md5::digest(packed);
    md5[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// C-049, C-050, C-091: failures and timeouts are recorded, and the answer is 200.
#[test]
fn a_failed_build_is_answered_with_200() {
    let ends = |options: &[&str], script: &str, status: &str| {
        let (data, gate) = (DataDir::new(), DataDir::new());
        let cloud = TestCloud::start(&data, &shell(options, script, gate.path()));
        let id = cloud.build(&context("x"));
        cloud.wait_for(&id, status)
    };
    let failed = ends(&[], r#"echo "no such package" >&2; exit 3"#, "failed");
    let error = failed["errorMessage"].as_str().expect("a reason");
    assert!(
        error.starts_with("build: ") && error.contains("no such package"),
        "{error}"
    );
    // In a separate service, so that no other command has this limit.
    let limits = ["--build-timeout", "0.5", "--build-grace", "0.1"];
    let late = ends(&limits, "sleep 1000", "timeout");
    assert!(late["errorMessage"].as_str().expect("a reason").starts_with("build: "));
    for build in [failed, late] {
        assert!(
            build["completedAt"].is_string() && build.get("imageUri").is_none(),
            "{build}"
        );
    }
}

/// I-16: the hash is that of `md5sum`. A second build of the same archive is a cache hit; another
/// build file, another organization and a failure are not.
#[test]
fn a_success_is_built_once() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let script = r#"if [ "$(cat bot.py)" = fail ]; then exit 1; fi; echo x >> "$0/runs"; echo image > "$BUILD_OUT/i""#;
    let cloud = TestCloud::start(&data, &shell(&[], script, gate.path()));
    let packed = archive(&[("Dockerfile", "a"), ("other/file", "b"), ("bot.py", "c")]);
    let upload = cloud.upload(&packed);
    let reply = cloud.create(&upload);
    assert_eq!(reply.status, 201);
    let first = reply.json()["build"]["id"].as_str().expect("an identifier").to_owned();
    assert_eq!(reply.json()["contextHash"], hash(&packed).as_str());
    let done = cloud.wait_for(&first, "success");

    for again in [cloud.upload(&packed), upload.clone()] {
        let hit = cloud.create(&again);
        assert_eq!(hit.status, 200);
        let hit = hit.json();
        assert_eq!(hit["cached"], true);
        assert_eq!(hit["build"], done);
        assert_eq!(hit["contextHash"], hash(&packed).as_str());
    }
    let wanted = json!({"uploadId": upload, "region": "local", "dockerfilePath": "other/file"});
    let other = cloud.post("/v1/builds", &wanted);
    assert_eq!(other.status, 201);
    assert_eq!(other.json()["build"]["buildfilePath"], "other/file");
    cloud.wait_for(other.json()["build"]["id"].as_str().expect("an identifier"), "success");
    assert_eq!(
        fs::read_to_string(gate.path().join("runs")).expect("they ran"),
        "x\nx\n"
    );

    let fails = archive(&[("Dockerfile", "a"), ("bot.py", "fail")]);
    for _ in 0..2 {
        let failed = cloud.build(&fails);
        cloud.wait_for(&failed, "failed");
    }
    // The query of the published client; upper-case hashes match too.
    let query = format!(
        "/v1/builds?contextHash={}&region=local&status=success&limit=1",
        hash(&packed).to_uppercase()
    );
    let found = cloud.get(&query).json();
    assert_eq!(found["total"], 2);
    assert_eq!(found["builds"].as_array().expect("a page").len(), 1);
}

/// C-080: invalid requests for a build.
#[test]
fn a_build_needs_an_upload() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let cloud = TestCloud::start(&data, &shell(&[], GATED, gate.path()));
    let packed = context("x");
    let upload = cloud.upload(&packed);
    let unused = cloud.grant()["uploadId"].clone();
    let unknown = "0b9e3f52-6a1d-4c55-9d0e-2f6a0c7d1e11";
    for body in [
        json!({"region": "local"}),
        json!({"uploadId": upload}),
        json!({"uploadId": upload, "region": "nowhere"}),
        json!({"uploadId": upload, "region": 7}),
        json!({"uploadId": unknown, "region": "local"}),
        json!({"uploadId": unused, "region": "local"}),
        json!({"uploadId": "7", "region": "local"}),
        json!({"uploadId": upload, "region": "local", "buildfilePath": "../x"}),
        json!({"uploadId": upload, "region": "local", "buildfilePath": "/etc/passwd"}),
        json!([]),
    ] {
        let refusal = refused(&cloud.post("/v1/builds", &body));
        assert_eq!(refusal, (400, "GENERIC_BAD_REQUEST".into()), "{body}");
    }
    let foreign = json!({"uploadId": upload, "region": "local"}).to_string();
    let refusal = cloud.request("POST", "/v1/builds", OTHER, foreign.as_bytes());
    assert_eq!(refused(&refusal), (400, "GENERIC_BAD_REQUEST".into()));
    assert_eq!(cloud.get("/v1/builds").json()["total"], 0);
}

/// C-056, C-058, C-059, C-089: valid and invalid build ids.
#[test]
fn a_build_is_visible_to_its_organization_only() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let cloud = TestCloud::start(&data, &shell(&[], GATED, gate.path()));
    let id = cloud.build(&context("x"));
    let status = |target: &str, key: &str| {
        let reply = cloud.request("GET", target, key, b"");
        (reply.status, reply.json()["code"].as_str().map(str::to_owned))
    };
    let bad = (400, Some("GENERIC_BAD_REQUEST".to_owned()));
    let none = (404, Some("NOT_FOUND".to_owned()));
    assert_eq!(status(&format!("/v1/builds/{id}"), KEY), (200, None));
    assert_eq!(
        status(&format!("/v1/organizations/default/builds/{id}"), KEY),
        (200, None)
    );
    assert_eq!(status(&format!("/v1/builds/{}", id.to_uppercase()), KEY), (200, None));
    assert_eq!(status(&format!("/v1/builds/{id}"), OTHER), none);
    assert_eq!(status("/v1/builds/7a2c0000-0000-4000-8000-000000000000", KEY), none);
    assert_eq!(status("/v1/builds/7a2c0000-0000-1000-8000-000000000000", KEY), bad);
    assert_eq!(status("/v1/builds/7", KEY), bad);
    let theirs = cloud.request("GET", "/v1/builds", OTHER, b"").json();
    assert_eq!(
        (theirs["total"].clone(), theirs["builds"].clone()),
        (json!(0), json!([]))
    );
}

/// `GET /builds`: order, pages, filters, errors.
#[test]
fn builds_are_listed() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let script = r#"case $(cat bot.py) in 3) exit 1;; *) echo image > "$BUILD_OUT/i";; esac"#;
    let cloud = TestCloud::start(&data, &shell(&[], script, gate.path()));
    let mut ids = Vec::new();
    for n in 0..5 {
        let id = cloud.build(&context(&n.to_string()));
        cloud.ended(&id);
        ids.push(id);
    }
    ids.reverse();
    let list = |query: &str| {
        let reply = cloud.get(&format!("/v1/builds{query}"));
        assert_eq!(reply.status, 200, "{query}: {}", reply.text());
        reply.json()
    };
    let of = |page: &Value| -> Vec<String> {
        let builds = page["builds"].as_array().expect("a page");
        builds
            .iter()
            .map(|build| build["id"].as_str().expect("an identifier").to_owned())
            .collect()
    };
    let all = list("");
    assert_eq!(of(&all), ids);
    assert_eq!(
        (&all["total"], &all["limit"], &all["offset"]),
        (&json!(5), &json!(20), &json!(0))
    );
    assert_eq!(all["builds"][0], cloud.status(&ids[0]));
    let page = list("?limit=2&offset=1");
    assert_eq!(of(&page), ids[1..3]);
    assert_eq!(
        (&page["total"], &page["limit"], &page["offset"]),
        (&json!(5), &json!(2), &json!(1))
    );
    assert_eq!(of(&list("?offset=9")), Vec::<String>::new());
    assert_eq!(of(&list("?status=failed")), [ids[1].clone()]);
    assert_eq!(list("?status=success")["total"], 4);
    assert_eq!(list("?status=timeout")["total"], 0);
    assert_eq!(list("?region=local")["total"], 5);
    assert_eq!(
        list("?region=nowhere"),
        json!({"builds": [], "total": 0, "limit": 20, "offset": 0})
    );
    assert_eq!(
        of(&list(&format!("?contextHash={}", hash(&context("0"))))),
        [ids[4].clone()]
    );
    assert_eq!(list("?contextHash=no-hash")["total"], 0);
    for query in [
        "status=done",
        "limit=0",
        "limit=101",
        "limit=x",
        "offset=-1",
        "offset=x",
    ] {
        let refusal = refused(&cloud.get(&format!("/v1/builds?{query}")));
        assert_eq!(refusal, (400, "GENERIC_BAD_REQUEST".into()), "{query}");
    }
}

/// I-20: ten builds with three slots; the commands record their start and end. The oldest is next.
#[test]
fn running_commands_are_limited() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let script = r#"echo + >> "$0/turns"; sleep 0.1; echo - >> "$0/turns"; echo i > "$BUILD_OUT/i""#;
    let cloud = TestCloud::start(&data, &shell(&["--max-builds", "3"], script, gate.path()));
    let ids: Vec<String> = (0..10).map(|n| cloud.build(&context(&n.to_string()))).collect();
    // Concurrent commands write in any order; the service logs the order of starts.
    let starts: Vec<String> = ids
        .iter()
        .map(|id| {
            let done = cloud.wait_for(id, "success");
            done["startedAt"].as_str().expect("a time").to_owned()
        })
        .collect();
    assert!(starts.is_sorted(), "{starts:?}");
    let turns = fs::read_to_string(gate.path().join("turns")).expect("they ran");
    let (mut running, mut most, mut began) = (0, 0, 0);
    for line in turns.lines() {
        match line {
            "+" => (running, began) = (running + 1, began + 1),
            _ => running -= 1,
        }
        most = most.max(running);
    }
    assert!(most <= 3, "{most} at once: {turns}");
    assert_eq!((running, began), (0, 10));
}

/// `--max-pending`: one more build gets 429 with `Retry-After`; other organizations have their own
/// limit.
#[test]
fn pending_builds_of_an_organization_are_limited() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let options = ["--max-builds", "1", "--max-pending", "2"];
    let cloud = TestCloud::start(&data, &shell(&options, GATED, gate.path()));
    let first = cloud.build(&context("0"));
    cloud.wait_for(&first, "building");
    let waiting = [cloud.build(&context("1")), cloud.build(&context("2"))];
    let upload = cloud.upload(&context("3"));
    let crowded = cloud.create(&upload);
    assert_eq!(refused(&crowded), (429, "TOO_MANY_REQUESTS".into()));
    let seconds: u32 = crowded.header("retry-after").expect("a time").parse().expect("seconds");
    assert!(seconds > 0);
    assert_eq!(cloud.get("/v1/builds").json()["total"], 3);

    // Another organization, with a request by hand.
    let grant = cloud.request("POST", "/v1/builds/upload-url", OTHER, b"{}").json();
    assert_eq!(cloud.send(&grant, &context("4")).status, 204);
    let wanted = json!({"uploadId": grant["uploadId"], "region": "local"}).to_string();
    assert_eq!(
        cloud.request("POST", "/v1/builds", OTHER, wanted.as_bytes()).status,
        201
    );

    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    for id in waiting {
        cloud.wait_for(&id, "success");
    }
    assert_eq!(cloud.create(&upload).status, 201, "there is room again");
    let hit = cloud.create(&cloud.upload(&context("0")));
    assert_eq!(hit.status, 200);
}

/// On a busy machine the kernel shows the exit a moment before the service sees it.
const LOOKS_MAX: u32 = 4;

/// C-052: after its command has exited a build is not reported as building. Where the image first
/// goes to an object store, it is until its end is recorded; then no later build has begun.
#[test]
fn an_exited_command_is_not_reported_as_building() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    if data.place().is_some() {
        return builds_end_before_the_next_one_begins(&data);
    }
    // Removing the scratch folder takes a while.
    let script = r#"i=0; while [ $i -lt 50 ]; do mkdir -p d/$i; echo > d/$i/f; i=$((i+1)); done; echo i > "$BUILD_OUT/i"
        echo $$ > "$0/$BUILD_ID.new"; mv "$0/$BUILD_ID.new" "$0/$BUILD_ID""#;
    let cloud = TestCloud::start(&data, &shell(&["--max-builds", "1"], script, gate.path()));
    for n in 0..5 {
        let id = cloud.build(&context(&n.to_string()));
        let mut looks = 0;
        let began = Instant::now();
        loop {
            let pid = fs::read_to_string(gate.path().join(&id)).ok();
            looks += u32::from(pid.is_some_and(|pid| !Path::new("/proc").join(pid.trim()).exists()));
            let build = cloud.status(&id);
            if build["status"] == "success" {
                break;
            }
            assert!(
                looks < LOOKS_MAX && began.elapsed() < PATIENCE,
                "{looks} looks: {build:#}"
            );
        }
    }
}

/// A worker that runs one build at a time records its end before it begins the next one.
fn builds_end_before_the_next_one_begins(data: &DataDir) {
    let command = r#"cat bot.py > "$BUILD_OUT/i""#;
    let cloud = TestCloud::start(data, &["--max-builds", "1", "--", "sh", "-c", command]);
    let ids: Vec<String> = (0..5).map(|n| cloud.build(&context(&n.to_string()))).collect();
    for pair in ids.windows(2) {
        let began = Instant::now();
        while cloud.status(&pair[1])["status"] == "pending" {
            assert!(began.elapsed() < PATIENCE, "{} was to begin", pair[1]);
        }
        assert_eq!(cloud.status(&pair[0])["status"], "success");
    }
}

/// C-055: a missing body and a body that is not JSON are rejected.
#[test]
fn a_body_that_is_not_json_is_rejected() {
    let (data, gate) = (DataDir::new(), DataDir::new());
    let cloud = TestCloud::start(&data, &shell(&[], GATED, gate.path()));
    for body in ["", "{", "\u{1}", "uploadId=7"] {
        let key = format!("Authorization: Bearer {KEY}");
        let reply = http::request(cloud.runner.addr, "POST", "/v1/builds", &[&key], body.as_bytes());
        let reply = reply.expect("the service answers");
        assert_eq!(refused(&reply), (400, "GENERIC_BAD_REQUEST".into()), "{body}");
    }
}
