//! Tests of builds: states, JSON, requests.

use super::*;

fn info() -> ArchiveInfo {
    ArchiveInfo {
        size: 119,
        md5: [0x93, 0x3a, 0x11, 0xaa, 0x3b, 0x2a, 0x07, 0xdd, 1, 2, 3, 4, 5, 6, 7, 8],
        sha256: [5; 32],
        inode: 7,
        modified_ns: 9,
    }
}

fn upload() -> UploadRecord {
    UploadRecord {
        id: Uuid::v4([1; 16]),
        org: Slug::parse("org-7").expect("a name"),
        region: Slug::parse("us-west").expect("a name"),
        expires_ms: 0,
        sealed: false,
        key: Some([6; 32]),
        info: Some(info()),
    }
}

/// A build created at 2026-11-21T12:00:00.000Z.
fn build() -> Build {
    let base = "http://localhost:7870".to_owned();
    Build::new(Uuid::v4([2; 16]), &upload(), &info(), "Dockerfile".into(), base, T0)
}

const T0: u64 = 1_795_262_400_000;

fn image() -> Image {
    Image {
        location: ImageLocation::Uri("registry.example.net/bot:1".into()),
        size: 1234,
    }
}

fn members(build: &Build) -> Vec<String> {
    let Value::Object(json) = build.json(None) else {
        panic!("a build is an object");
    };
    json.into_iter().map(|(name, _)| name).collect()
}

/// C-053: pending, building, and three final states; a success needs a start.
#[test]
fn final_states_do_not_change() {
    let pending = build();
    assert_eq!(
        pending.change(BuildChange::Succeed(image()), T0),
        Err(InvalidTransition {
            status: BuildStatus::Pending
        })
    );
    for (end, status) in [
        (BuildChange::Succeed(image()), BuildStatus::Success),
        (BuildChange::Fail("build: exit status 1".into()), BuildStatus::Failed),
        (
            BuildChange::TimeOut("build: 1200 s are over".into()),
            BuildStatus::Timeout,
        ),
    ] {
        let building = pending.change(BuildChange::Start, T0 + 1).expect("it waits");
        assert_eq!((building.status, building.attempt), (BuildStatus::Building, 1));
        let ended = building.change(end.clone(), T0 + 2).expect("it runs");
        assert_eq!(ended.status, status);
        if status != BuildStatus::Success {
            assert_eq!(pending.change(end, T0 + 2).expect("it waits").status, status);
        }
        for to in [
            BuildChange::Start,
            BuildChange::Succeed(image()),
            BuildChange::Fail(String::new()),
            BuildChange::TimeOut(String::new()),
        ] {
            assert_eq!(ended.change(to, T0 + 3), Err(InvalidTransition { status }));
        }
    }
}

/// I-19: a restarted build stays `building` and keeps its start time.
#[test]
fn another_attempt_counts_up_and_keeps_the_start() {
    let first = build().change(BuildChange::Start, T0 + 5).expect("it waits");
    let second = first.change(BuildChange::Start, T0 + 9).expect("it was cut off");
    assert_eq!(second.status, BuildStatus::Building);
    assert_eq!((second.attempt, second.started_ms), (2, Some(T0 + 5)));
    assert_eq!(second.updated_ms, T0 + 9);
}

/// C-025: times never decrease and durations are never negative.
#[test]
fn times_never_decrease() {
    let building = build().change(BuildChange::Start, T0 - 60_000).expect("it waits");
    assert_eq!(building.updated_ms, T0);
    assert_eq!(building.started_ms, Some(T0));
    let later = building.change(BuildChange::Start, T0 + 5_000).expect("again");
    let ended = later
        .change(BuildChange::Succeed(image()), T0 + 1_000)
        .expect("it runs");
    assert_eq!(ended.updated_ms, T0 + 5_000);
    assert_eq!(ended.completed_ms, Some(T0 + 5_000));
    assert_eq!(ended.json(None)["buildDurationSeconds"], 5);
}

/// C-010 to C-027, C-046 to C-051: the members of each state, none of which is null.
#[test]
fn members_depend_on_the_status() {
    let always = [
        "buildfilePath",
        "contextHash",
        "contextSizeBytes",
        "createdAt",
        "dockerfilePath",
        "id",
        "logsUrl",
        "organizationId",
        "region",
        "status",
        "updatedAt",
    ];
    let with = |more: &[&str]| {
        let mut names: Vec<String> = always.iter().chain(more).map(|name| (*name).to_owned()).collect();
        names.sort();
        names
    };
    let pending = build();
    assert_eq!(members(&pending), with(&[]));
    let building = pending.change(BuildChange::Start, T0 + 1500).expect("it waits");
    assert_eq!(members(&building), with(&["startedAt"]));
    let ended = ["startedAt", "completedAt", "buildDurationSeconds"];
    let success = building
        .change(BuildChange::Succeed(image()), T0 + 4499)
        .expect("it runs");
    assert_eq!(
        members(&success),
        with(&[&ended[..], &["imageUri", "imageSizeBytes"]].concat())
    );
    for to in [
        BuildChange::Fail("build: no".into()),
        BuildChange::TimeOut("build: no".into()),
    ] {
        let failed = building.change(to.clone(), T0 + 4499).expect("it runs");
        assert_eq!(members(&failed), with(&[&ended[..], &["errorMessage"]].concat()));
        // A build that never ran has no start time.
        let early = pending.change(to, T0 + 1).expect("it waits");
        assert_eq!(
            members(&early),
            with(&["completedAt", "buildDurationSeconds", "errorMessage"])
        );
        assert_eq!(early.json(None)["buildDurationSeconds"], 0);
    }
}

/// C-014, C-017, C-019, C-022 to C-025: formats of values.
#[test]
fn values_have_their_formats() {
    let building = build().change(BuildChange::Start, T0 + 1500).expect("it waits");
    let json = building
        .change(BuildChange::Succeed(image()), T0 + 4499)
        .expect("it runs")
        .json(None);
    assert_eq!(json["id"], "02020202-0202-4202-8202-020202020202");
    assert_eq!(json["organizationId"], "org-7");
    assert_eq!(json["status"], "success");
    assert_eq!(json["region"], "us-west");
    assert_eq!(json["contextHash"], "933a11aa3b2a07dd");
    assert_eq!(json["buildfilePath"], "Dockerfile");
    assert_eq!(json["dockerfilePath"], "Dockerfile");
    assert_eq!(json["contextSizeBytes"], 119);
    assert_eq!(json["createdAt"], "2026-11-21T12:00:00.000Z");
    assert_eq!(json["startedAt"], "2026-11-21T12:00:01.500Z");
    assert_eq!(json["completedAt"], "2026-11-21T12:00:04.499Z");
    assert_eq!(json["updatedAt"], "2026-11-21T12:00:04.499Z");
    assert_eq!(json["buildDurationSeconds"], 2);
    assert_eq!(json["imageUri"], "registry.example.net/bot:1");
    assert_eq!(json["imageSizeBytes"], 1234);
    let logs = "/v1/builds/02020202-0202-4202-8202-020202020202/logs";
    assert_eq!(json["logsUrl"], format!("http://localhost:7870{logs}"));
    let public = building.json(Some("https://cloud.example.net"));
    assert_eq!(public["logsUrl"], format!("https://cloud.example.net{logs}"));
}

/// I-11: the URI of a stored image, with any file name.
#[test]
fn a_stored_image_has_a_url() {
    let kept = Image {
        location: ImageLocation::Stored("my image \u{e9}#1.tar".into()),
        size: 5,
    };
    let building = build().change(BuildChange::Start, T0).expect("it waits");
    let json = building
        .change(BuildChange::Succeed(kept), T0)
        .expect("it runs")
        .json(None);
    assert_eq!(
        json["imageUri"],
        "http://localhost:7870/v1/images/02020202-0202-4202-8202-020202020202/my%20image%20%C3%A9%231.tar"
    );
}

/// C-080: request members; the alias of the build file is accepted, and the canonical name wins.
#[test]
fn a_build_request_is_parsed() {
    let upload = Uuid::v4([1; 16]);
    for (more, file) in [
        ("", "Dockerfile"),
        (r#","buildfilePath":"docker/bot.file""#, "docker/bot.file"),
        (r#","dockerfilePath":"a/Dockerfile""#, "a/Dockerfile"),
        (r#","dockerfilePath":"a","buildfilePath":"b""#, "b"),
        (r#","buildfilePath":"..a/b..""#, "..a/b.."),
        (
            r#","buildfilePath":"./a/-b $(c);d\\e \u00e9""#,
            "./a/-b $(c);d\\e \u{e9}",
        ),
        (r#","unknown":[1]"#, "Dockerfile"),
    ] {
        let body = format!(r#"{{"uploadId":"{upload}","region":"us-west"{more}}}"#);
        let wanted = BuildRequest::parse(body.as_bytes()).unwrap_or_else(|fault| panic!("{fault:?}: {body}"));
        assert_eq!(
            (wanted.upload, &*wanted.region, &*wanted.file),
            (upload, "us-west", file)
        );
    }
    let longest = "f".repeat(BUILD_FILE_BYTES_MAX);
    let body = |file: &str| format!(r#"{{"uploadId":"{upload}","region":"r","buildfilePath":"{file}"}}"#);
    assert!(BuildRequest::parse(body(&longest).as_bytes()).is_ok());
    assert!(BuildRequest::parse(body(&format!("{longest}f")).as_bytes()).is_err());
}

/// Paths of build files that look like options or affect the display of a line are rejected.
/// Characters that only a shell would interpret are accepted.
#[test]
fn an_unusual_build_file_path_is_rejected() {
    let id = Uuid::v4([1; 16]);
    for (file, says) in [
        ("-n", "begins with `-`"),
        ("--file=/etc/passwd", "begins with `-`"),
        ("-/Dockerfile", "begins with `-`"),
        ("a\nb", "control character"),
        ("a\r", "control character"),
        ("\t", "control character"),
        ("a\u{1b}[2J", "control character"),
        ("a\u{7f}", "control character"),
        ("a\u{85}b", "control character"),
        ("a\u{2028}b", "control character"),
        ("a\u{202e}elif", "control character"),
        ("a\u{2066}b", "control character"),
        ("\u{feff}a", "control character"),
        ("a//b", "empty component"),
        ("a/", "empty component"),
        (".", "names a folder"),
        ("a/.", "names a folder"),
    ] {
        let body = serde_json::json!({"uploadId": id.to_string(), "region": "r", "dockerfilePath": file});
        let fault = BuildRequest::parse(body.to_string().as_bytes()).expect_err(file);
        assert_eq!((fault.status, fault.code), (400, "GENERIC_BAD_REQUEST"), "{file:?}");
        assert!(fault.text.contains(says), "{file:?}: {}", fault.text);
        assert!(!fault.text.chars().any(char::is_control), "{file:?}: {}", fault.text);
    }
}

/// Invalid bodies are rejected with the name of the member.
#[test]
fn an_invalid_build_request_is_rejected() {
    let id = "00000000-0000-4000-8000-000000000000";
    for (body, names) in [
        ("", "JSON"),
        ("{", "JSON"),
        ("[]", "JSON object"),
        ("null", "JSON object"),
        ("{}", "uploadId"),
        (&format!(r#"{{"uploadId":"{id}"}}"#), "region"),
        (r#"{"region":"r"}"#, "uploadId"),
        (r#"{"uploadId":"7","region":"r"}"#, "uploadId"),
        (r#"{"uploadId":7,"region":"r"}"#, "uploadId"),
        (&format!(r#"{{"uploadId":"{id}","region":null}}"#), "region"),
        (&format!(r#"{{"uploadId":"{id}","region":["r"]}}"#), "region"),
        (
            &format!(r#"{{"uploadId":"{id}","region":"r","buildfilePath":1}}"#),
            "buildfilePath",
        ),
        (
            &format!(r#"{{"uploadId":"{id}","region":"r","dockerfilePath":1}}"#),
            "dockerfilePath",
        ),
        (
            &format!(r#"{{"uploadId":"{id}","region":"r","buildfilePath":""}}"#),
            "is empty",
        ),
        (
            &format!(r#"{{"uploadId":"{id}","region":"r","buildfilePath":"/a"}}"#),
            "is absolute",
        ),
        (
            &format!(r#"{{"uploadId":"{id}","region":"r","buildfilePath":"a/../b"}}"#),
            "`..`",
        ),
        (
            &format!(r#"{{"uploadId":"{id}","region":"r","buildfilePath":".."}}"#),
            "`..`",
        ),
        (
            &format!(r#"{{"uploadId":"{id}","region":"r","buildfilePath":"a\u0000"}}"#),
            "NUL",
        ),
    ] {
        let fault = BuildRequest::parse(body.as_bytes()).expect_err(body);
        assert_eq!((fault.status, fault.code), (400, "GENERIC_BAD_REQUEST"), "{body}");
        assert!(fault.text.contains(names), "{body}: {}", fault.text);
    }
    assert!(BuildRequest::parse(b"\xff\xfe").is_err());
}

/// `GET /builds`: filters and page defaults.
#[test]
fn a_build_filter_is_parsed() {
    let all = BuildFilter {
        key: [6; 32],
        status: None,
        region: None,
        hash: None,
        limit: 20,
        offset: 0,
    };
    assert_eq!(BuildFilter::parse("", [6; 32]), Ok(all.clone()));
    assert_eq!(BuildFilter::parse("unknown=1", [6; 32]), Ok(all.clone()));
    let some = BuildFilter::parse(
        "contextHash=933A11AA3B2A07DD&region=us%2Dwest&status=success&limit=1&offset=40",
        [6; 32],
    );
    let wanted = BuildFilter {
        key: [6; 32],
        status: Some(BuildStatus::Success),
        region: Some("us-west".into()),
        hash: Some("933a11aa3b2a07dd".into()),
        limit: 1,
        offset: 40,
    };
    assert_eq!(some, Ok(wanted));
    assert_eq!(BuildFilter::parse("limit=100", [6; 32]).map(|of| of.limit), Ok(100));
    for status in BuildStatus::ALL {
        let of = BuildFilter::parse(&format!("status={}", status.name()), [6; 32]).expect("a status");
        assert_eq!(of.status, Some(status));
    }
}

#[test]
fn an_invalid_build_filter_is_rejected() {
    for query in [
        "status=done",
        "status=Success",
        "status=",
        "limit=0",
        "limit=101",
        "limit=-1",
        "limit=+5",
        "limit=",
        "limit=ten",
        "limit=99999999999999999999999",
        "offset=-1",
        "offset=1.5",
        "offset=",
        "offset=99999999999999999999999",
    ] {
        let fault = BuildFilter::parse(query, [6; 32]).expect_err(query);
        assert_eq!((fault.status, fault.code), (400, "GENERIC_BAD_REQUEST"), "{query}");
        let name = query.split('=').next().expect("a name");
        assert!(fault.text.contains(name), "{query}: {}", fault.text);
    }
}

#[test]
fn names_are_valid_path_components() {
    for good in ["a", "7", "org-7", "Us.West_2", &"a".repeat(63)] {
        assert_eq!(Slug::parse(good).map(|name| name.to_string()), Some(good.to_owned()));
    }
    for bad in [
        "",
        ".",
        "..",
        "-a",
        "_a",
        "a/b",
        "a b",
        "\u{e9}",
        "a\0",
        &"a".repeat(64),
    ] {
        assert_eq!(Slug::parse(bad), None, "{bad}");
    }
}
