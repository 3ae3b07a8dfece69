//! Faults at one moment of a run, which chaos meets by chance only: a stop, a lost answer, output
//! that the database does not take.

use serde_json::{Value, json};

use super::{context, start};
use crate::support::cloud::{DataDir, TestCloud};
use crate::support::runner::TestRunner;
use crate::support::scale::Place;

/// PostgreSQL takes no NUL. A command that prints one and fails ends, and frees its slot; so does
/// an import of its build. A filter with one finds nothing.
#[test]
fn a_command_that_prints_nul_fails() {
    let Some(place) = Place::new() else { return };
    let (data, one) = (DataDir::new(), DataDir::new());
    let script = r"printf 'no\000good\n' >&2; exit 1";
    let reason = |build: &Value| {
        let error = build["errorMessage"].as_str().expect("a reason").to_owned();
        assert!(error.contains("stderr ends: no"), "{error}");
        error
    };
    let mut cloud = TestCloud::start(&one, &["--", "sh", "-c", script]);
    let embedded = cloud.build(&context("x"));
    assert!(reason(&cloud.wait_for(&embedded, "failed")).ends_with("no\0good"));
    cloud.runner.signal("TERM");
    cloud.runner.wait();
    let cloud = start(&place, &data, &["--max-builds", "1", "--", "sh", "-c", script]);
    let id = cloud.build(&context("x"));
    assert!(reason(&cloud.wait_for(&id, "failed")).ends_with("no\u{fffd}good"));
    let next = cloud.build(&context("y"));
    cloud.wait_for(&next, "failed");
    for filter in ["region=%00", "contextHash=%00"] {
        let listed = cloud.get(&format!("/v1/builds?{filter}"));
        assert_eq!((listed.status, &listed.json()["total"]), (200, &json!(0)), "{filter}");
    }
    let path = one.path().to_str().expect("folders of tests are UTF-8");
    let ran = TestRunner::run_with(&["cloud", "import", "--data-dir", path], &place.variables());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(reason(&cloud.status(&embedded)).ends_with("no\u{fffd}good"));
}

/// A store takes an empty image, too.
#[test]
fn an_empty_image_is_stored() {
    let Some(place) = Place::new() else { return };
    let data = DataDir::new();
    let cloud = start(&place, &data, &["--", "sh", "-c", r#": > "$BUILD_OUT/i""#]);
    let id = cloud.build(&context("x"));
    assert_eq!(cloud.wait_for(&id, "success")["imageSizeBytes"], 0);
    assert_eq!(place.object(&format!("images/{id}/1/i")), Some(Vec::new()));
}
