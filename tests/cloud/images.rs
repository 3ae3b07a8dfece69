//! Stored images as clients fetch them.

use std::fs;

use serde_json::{Value, json};

use crate::support::cloud::{DataDir, KEY, OTHER, TestCloud, archive};
use crate::support::http::{self, Reply};
use crate::support::scale::KEY_SECRET;

/// Creates an image of 200 000 bytes with an unusual name.
const BUILDER: [&str; 4] = [
    "--",
    "/bin/sh",
    "-c",
    "i=0; while [ $i -lt 20000 ]; do printf '%09d\\n' $i; i=$((i+1)); done > \"$BUILD_OUT/an image (1).tar\"",
];

/// Returns a successful build and the path of its image.
fn built(cloud: &TestCloud) -> (Value, String) {
    let id = cloud.build(&archive(&[("Dockerfile", "FROM scratch\n")]));
    let build = cloud.wait_for(&id, "success");
    let uri = build["imageUri"].as_str().expect("an image").to_owned();
    let path = uri.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
    let path = format!("/{}", path.expect("a URL").1);
    (build, path)
}

fn ask(cloud: &TestCloud, method: &str, path: &str, more: &[&str]) -> Reply {
    let key = format!("Authorization: Bearer {KEY}");
    let headers: Vec<&str> = [&*key].into_iter().chain(more.iter().copied()).collect();
    http::request(cloud.runner.addr, method, path, &headers, b"").expect("an answer")
}

/// I-11, C-048: the image is served at its URI, whole and in ranges.
#[test]
fn an_image_is_served_whole_and_in_ranges() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &BUILDER);
    let (build, path) = built(&cloud);
    let id = build["id"].as_str().expect("an id");
    assert_eq!(path, format!("/v1/images/{id}/an%20image%20%281%29.tar"));
    let image = fs::read(data.path().join(format!("images/{id}/an image (1).tar"))).expect("it is kept");
    assert_eq!(build["imageSizeBytes"], 200_000);

    let whole = ask(&cloud, "GET", &path, &[]);
    assert_eq!((whole.status, whole.body.len()), (200, 200_000));
    assert!(whole.body == image);
    assert_eq!(whole.header("content-type"), Some("application/octet-stream"));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert_eq!(whole.header("content-length"), Some("200000"));
    let head = ask(&cloud, "HEAD", &path, &[]);
    assert_eq!(
        (head.status, head.body.len(), head.header("content-length")),
        (200, 0, Some("200000"))
    );

    let etag = whole.header("etag").expect("an image has one").to_owned();
    for (range, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=65530-65540", 65_530, 65_541),
        ("bytes=199990-", 199_990, 200_000),
        ("bytes=-7", 199_993, 200_000),
        ("bytes=199999-300000", 199_999, 200_000),
    ] {
        let part = ask(
            &cloud,
            "GET",
            &path,
            &[&format!("Range: {range}"), &format!("If-Range: {etag}")],
        );
        assert_eq!(part.status, 206, "{range}");
        assert!(part.body == image[from..to], "{range}");
        let said = format!("bytes {from}-{}/200000", to - 1);
        assert_eq!(part.header("content-range"), Some(&*said));
    }
    for headers in [
        &["Range: bytes=0-1,5-6"][..],
        &["Range: lines=1-2"],
        &["Range: bytes=0-1", "If-Range: \"another\""],
    ] {
        assert_eq!(ask(&cloud, "GET", &path, headers).body.len(), 200_000, "{headers:?}");
    }
    let none = ask(&cloud, "GET", &path, &["Range: bytes=200000-"]);
    assert_eq!(
        (none.status, none.header("content-range")),
        (416, Some("bytes */200000"))
    );
    assert_eq!(none.json()["code"], "RANGE_NOT_SATISFIABLE");
}

/// I-04, I-11: an image belongs to its organization, and no name leads to another file.
#[test]
fn nothing_but_the_image_is_served() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &BUILDER);
    let (build, path) = built(&cloud);
    let id = build["id"].as_str().expect("an id");
    assert_eq!(http::get(cloud.runner.addr, &path).status, 401);
    assert_eq!(cloud.request("GET", &path, OTHER, b"").status, 404);
    match data.place() {
        None => {
            let beside = data.path().join(format!("images/{id}/beside"));
            fs::write(beside, "this is no image").expect("written");
        }
        Some(place) => place.put(&format!("images/{id}/1/beside"), b"this is no image"),
    }
    for name in [
        "beside",
        "..",
        "%2e%2e",
        "..%2f..%2fbuilds.db",
        "%2fetc%2fpasswd",
        "an%20image%20(1).tar%00",
        "an%20image%20(1).tar/x",
        "",
    ] {
        let reply = ask(&cloud, "GET", &format!("/v1/images/{id}/{name}"), &[]);
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (404, &json!("NOT_FOUND")),
            "{name}"
        );
    }
    if data.place().is_some() {
        return;
    }
    // A link in its place is not followed.
    let image = data.path().join(format!("images/{id}/an image (1).tar"));
    fs::remove_file(&image).expect("it is kept");
    assert_eq!(ask(&cloud, "GET", &path, &[]).status, 404);
    std::os::unix::fs::symlink(data.path().join("store.secret"), &image).expect("made");
    assert_eq!(ask(&cloud, "GET", &path, &[]).status, 500);
}

/// I-22: neither the command's environment nor the answers contain a key, policy or secret.
#[test]
fn a_command_sees_no_secret() {
    let data = DataDir::new();
    let mut variables = vec![("RUST_LOG", "trace")];
    if data.place().is_none() {
        variables.extend([
            ("CLOUD_STORE_KEY_ID", "SKTEST"),
            ("CLOUD_STORE_SECRET", "store-secret-for-tests"),
        ]);
    }
    let command = [
        "--",
        "/bin/sh",
        "-c",
        "env; cat /proc/self/environ /proc/$$/environ | tr '\\0' '\\n'; exit 3",
    ];
    let mut cloud = TestCloud::start_with(&data, &command, &variables);
    let id = cloud.build(&archive(&[("Dockerfile", "FROM scratch\n")]));
    let build = cloud.wait_for(&id, "failed");
    let log = cloud.log(&id).join("\n");
    assert!(log.contains("BUILD_CONTEXT="), "{log}");
    cloud.runner.signal("TERM");
    cloud.runner.wait();
    let (stdout, stderr) = cloud.runner.last_words();
    let everything = format!("{build}{log}{stdout}{stderr}");
    for hidden in [
        KEY,
        OTHER,
        "store-secret-for-tests",
        KEY_SECRET,
        "X-Store-Signature",
        "X-Amz-Signature",
        "eyJleHBpcmF0aW9uIjoi",
        "CLOUD_",
    ] {
        assert!(!everything.contains(hidden), "{hidden} is in what people see");
    }
}
