//! The environment of builder commands and the meaning of their results.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::cloud::{DataDir, KEY, OTHER, TestCloud, archive};
use crate::support::runner::{PATIENCE, TestRunner};

fn context() -> Vec<u8> {
    archive(&[("Dockerfile", "FROM scratch\n"), ("src/main.py", "print()\n")])
}

/// Builds with a shell script; returns the ended build and the command's log lines.
fn built(options: &[&str], script: &str) -> (DataDir, TestCloud, Value, Vec<String>) {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[options, &["--", "sh", "-c", script]].concat());
    let id = cloud.build(&context());
    let build = cloud.ended(&id);
    let mut lines = cloud.log(&id);
    lines.retain(|line| !line.starts_with("[service] "));
    (data, cloud, build, lines)
}

fn text<'a>(build: &'a Value, member: &str) -> &'a str {
    build[member]
        .as_str()
        .unwrap_or_else(|| panic!("no {member}: {build:#}"))
}

/// I-10, I-22: the environment is exactly the documented one, without keys.
#[test]
fn the_environment_is_exact() {
    let data = DataDir::new();
    let mut given = vec![("HANDED", "over"), ("KEPT", "back"), ("LANG", "C.UTF-8")];
    // Replicas have credentials of their store instead.
    if data.place().is_none() {
        given.extend([
            ("CLOUD_STORE_KEY_ID", "SKTEST"),
            ("CLOUD_STORE_SECRET", "secret-of-the-store"),
        ]);
    }
    // `env` adds nothing, unlike a shell.
    let options = ["--builder-env", "HANDED", "--builder-env", "ABSENT", "--", "env"];
    let cloud = TestCloud::start_with(&data, &options, &given);
    let id = cloud.build(&context());
    let build = cloud.ended(&id);
    let mut lines = cloud.log(&id);
    lines.retain(|line| !line.starts_with("[service] "));
    lines.sort();
    let scratch = data
        .path()
        .canonicalize()
        .expect("it is there")
        .join("scratch")
        .join(format!("{id}-1"));
    let scratch = scratch.display();
    let path = std::env::var("PATH").expect("tests have one");
    let mut expected = [
        format!("PATH={path}"),
        "LANG=C.UTF-8".into(),
        format!("HOME={scratch}/home"),
        format!("TMPDIR={scratch}/tmp"),
        "HANDED=over".into(),
        format!("BUILD_ID={id}"),
        "BUILD_ORG=default".into(),
        "BUILD_REGION=local".into(),
        "BUILD_FILE=Dockerfile".into(),
        format!("BUILD_CONTEXT={scratch}/context"),
        format!("BUILD_CONTEXT_HASH={}", text(&build, "contextHash")),
        format!("BUILD_OUT={scratch}/out"),
        format!("BUILD_RESULT={scratch}/result"),
        "BUILD_ATTEMPT=1".into(),
    ];
    expected.sort();
    assert_eq!(lines, expected);
    assert!(text(&build, "errorMessage").starts_with("image: "));
    let log = data.stored_log(&id);
    // The beginning of either secret.
    for secret in [KEY, OTHER, "secret-of-the-store"] {
        assert!(!log.contains(secret) && !cloud.runner.log().contains(secret));
    }
}

/// I-10: no shell, placeholders, the context as working directory, empty stdin, a process group.
#[test]
fn arguments_and_working_directory_are_as_documented() {
    let data = DataDir::new();
    let script = "pwd; cat; ls; echo \"$@\"; read pid name state parent group rest < /proc/$$/stat; [ $group = $$ ] && echo leads";
    let options = [
        "--",
        "sh",
        "-c",
        script,
        "{id}",
        "{region}/{org}:{hash}",
        "{{id}",
        "${HOME}",
        "a  b; exit",
        "{buildfile}",
    ];
    let cloud = TestCloud::start(&data, &options);
    let id = cloud.build(&context());
    let build = cloud.ended(&id);
    let mut lines = cloud.log(&id);
    lines.retain(|line| !line.starts_with("[service] "));
    let folder = format!("/scratch/{id}-1/context");
    assert!(lines[0].ends_with(&folder), "{lines:?}");
    assert_eq!(lines[1..3], ["Dockerfile", "src"]);
    let hash = text(&build, "contextHash");
    // `sh -c` takes the first argument as its name.
    assert_eq!(
        lines[3],
        format!("local/default:{hash} {{id}} ${{HOME}} a  b; exit Dockerfile")
    );
    assert_eq!(lines[4], "leads");
    // I-12: the scratch folder is removed.
    data.wait_for_empty_scratch();
}

/// I-11, C-016, C-017: a reported image is returned unchanged; a file in `BUILD_OUT` is stored and
/// served.
#[test]
fn images_are_reported_or_stored() {
    let (_data, _cloud, build, _) = built(
        &[],
        r#"printf '{"imageUri":"registry.example/a@sha256:0","imageSizeBytes":12345}' > "$BUILD_RESULT"; echo done"#,
    );
    assert_eq!(build["status"], "success");
    assert_eq!(text(&build, "imageUri"), "registry.example/a@sha256:0");
    assert_eq!(build["imageSizeBytes"], 12_345);
    let (_data, _cloud, build, _) = built(&[], r#"echo building; echo '{"imageUri":"b:1","imageSizeBytes":0}'"#);
    assert_eq!((text(&build, "imageUri"), &build["imageSizeBytes"]), ("b:1", &json!(0)));
    let (data, cloud, build, _) = built(
        &["--public-url", "https://cloud.example"],
        r#"printf 0123456789 > "$BUILD_OUT/im age?.tar""#,
    );
    assert_eq!(build["imageSizeBytes"], 10);
    let id = text(&build, "id");
    assert_eq!(
        text(&build, "imageUri"),
        format!("https://cloud.example/v1/images/{id}/im%20age%3F.tar")
    );
    let path = format!("/v1/images/{id}/im%20age%3F.tar");
    let image = cloud.image(&path);
    assert_eq!((image.status, &*image.body), (200, &b"0123456789"[..]));
    assert_eq!(cloud.request("GET", &path, OTHER, b"").status, 404);
    assert_eq!(cloud.get(&format!("/v1/images/{id}/other")).status, 404);
    match data.place() {
        None => assert!(data.path().join("images").join(id).join("im age?.tar").exists()),
        Some(place) => assert_eq!(place.objects("images/"), [format!("images/{id}/1/im age?.tar")]),
    }
}

/// I-11: a success without a usable image fails with `image:`.
#[test]
fn a_missing_image_is_a_failure() {
    for (script, expected) in [
        ("echo done", "image: the command reported no image"),
        (
            r#"echo '{"imageUri":"a"}'"#,
            "image: the last line of stdout is unusable: `imageSizeBytes` is missing",
        ),
        (
            "echo a > $BUILD_OUT/a; echo b > $BUILD_OUT/b",
            "image: BUILD_OUT holds more than one file",
        ),
    ] {
        let (_data, _cloud, build, _) = built(&[], script);
        assert_eq!(build["status"], "failed");
        let error = text(&build, "errorMessage");
        assert!(
            error.starts_with(expected) && error.ends_with("; passed: unpack, build"),
            "{error}"
        );
        assert!(build.get("imageUri").is_none() && build.get("imageSizeBytes").is_none());
    }
}

/// I-12, I-13, C-018: failures and timeouts; the message has the phases and the end of stderr.
#[test]
fn failures_are_reported_with_their_phase() {
    let (_data, _cloud, build, lines) = built(&[], "echo out; echo no such base image >&2; exit 17");
    assert_eq!(build["status"], "failed");
    assert_eq!(
        text(&build, "errorMessage"),
        "build: exit status 17; passed: unpack; stderr ends: no such base image"
    );
    let mut sorted = lines;
    sorted.sort();
    assert_eq!(sorted, ["no such base image", "out"], "two streams have no order");
    let (_data, _cloud, build, _) = built(&[], "kill -SEGV $$");
    assert_eq!(
        text(&build, "errorMessage"),
        "build: signal 11 (SIGSEGV); passed: unpack"
    );
    let stubborn = "trap '' TERM; echo stuck >&2; while :; do sleep 1000; done";
    let (_data, _cloud, build, lines) = built(&["--build-timeout", "1.5", "--build-grace", "0.01"], stubborn);
    assert_eq!(build["status"], "timeout");
    let error = text(&build, "errorMessage");
    let mut expected =
        "build: no end within 1.5 seconds (`--build-timeout`), so it was stopped; passed: unpack".to_owned();
    // On a busy machine the time limit may come first.
    if lines.contains(&"stuck".to_owned()) {
        expected += "; stderr ends: stuck";
    }
    assert!(error.starts_with(&expected), "{error}");
    assert!(
        build["buildDurationSeconds"]
            .as_u64()
            .is_some_and(|seconds| seconds >= 1)
    );
}

/// Returns the ids of running processes with this word in their environment.
fn with_word(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").expect("it is Linux").flatten() {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        if environment.windows(word.len()).any(|window| window == word.as_bytes()) {
            found.push(process.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

fn gone(word: &str) {
    let began = Instant::now();
    while !with_word(word).is_empty() {
        assert!(began.elapsed() < PATIENCE, "they still run: {:?}", with_word(word));
        thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < PATIENCE, "{} never came", path.display());
        thread::sleep(Duration::from_millis(20));
    }
}

/// I-12: processes left by a command are killed, in its group or outside.
#[test]
fn no_process_of_a_command_remains() {
    let script = "trap '' HUP; sleep 1000 & setsid sleep 1000 & echo '{\"imageUri\":\"a\",\"imageSizeBytes\":1}'";
    let (_data, _cloud, build, _) = built(&[], script);
    assert_eq!(build["status"], "success");
    assert_eq!(
        with_word(&format!("BUILD_ID={}", text(&build, "id"))),
        Vec::<String>::new()
    );
}

/// I-19: killing the service kills its commands, without a restart.
#[test]
fn killing_the_service_kills_its_commands() {
    let data = DataDir::new();
    let up = data.path().join("up");
    let script = format!(
        "trap '' TERM HUP; sleep 1000 & setsid sleep 1000 & touch {}; while :; do sleep 1000; done",
        up.display()
    );
    let mut cloud = TestCloud::start(&data, &["--", "sh", "-c", &script]);
    let id = cloud.build(&context());
    wait_for(&up);
    let word = format!("BUILD_ID={id}");
    assert!(with_word(&word).len() >= 3);
    cloud.runner.signal("KILL");
    cloud.runner.wait();
    gone(&word);
}

/// I-19: if the guard was killed too, the next start kills leftovers before it builds.
#[test]
fn leftovers_are_killed_at_start() {
    let data = DataDir::new();
    leftovers_are_ended(data.path());
}

/// I-19: this holds from the first build on, and when the data directory is a link.
#[test]
fn leftovers_are_killed_behind_a_linked_data_directory() {
    let data = DataDir::new();
    fs::create_dir(data.path().join("real")).expect("the folder is writable");
    let link = data.path().join("link");
    std::os::unix::fs::symlink("real", &link).expect("the folder is writable");
    leftovers_are_ended(&link);
}

fn start_at(data: &Path, script: &str) -> TestCloud {
    let data = data.to_str().expect("folders of tests are UTF-8");
    let args = ["cloud", "serve", "--port", "0", "--min-free", "0", "--data-dir", data];
    let command = ["--", "sh", "-c", script];
    TestCloud {
        runner: TestRunner::start_bare(&[&args[..], &command].concat(), &[("CLOUD_PRIVATE_KEYS", KEY)]),
    }
}

/// Waits for the guard of this data directory and returns its process id.
fn guard_of(data: &Path) -> String {
    let began = Instant::now();
    loop {
        let processes = fs::read_dir("/proc").expect("it is Linux").flatten();
        let guard = processes
            .map(|process| process.file_name().to_string_lossy().into_owned())
            .find(|id| {
                let arguments = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
                arguments.starts_with(b"cloud-guard\0") && of_data(id, data)
            });
        if let Some(guard) = guard {
            let environment = fs::read(format!("/proc/{guard}/environ")).expect("it runs");
            assert_eq!(environment, b"", "a guard knows no key");
            return guard;
        }
        assert!(began.elapsed() < PATIENCE, "there was to be a guard");
        thread::sleep(Duration::from_millis(20));
    }
}

fn leftovers_are_ended(data: &Path) {
    let up = data.join("up");
    let script = format!("touch {}; while :; do sleep 1000; done", up.display());
    let mut cloud = start_at(data, &script);
    let id = cloud.build(&context());
    wait_for(&up);
    let guard = guard_of(data);
    let killed = std::process::Command::new("sh")
        .args(["-c", &format!("kill -KILL {guard}")])
        .status();
    assert!(killed.is_ok_and(|status| status.success()));
    cloud.runner.signal("KILL");
    cloud.runner.wait();
    let word = format!("BUILD_ID={id}");
    assert!(!with_word(&word).is_empty(), "they still run");
    let again = start_at(data, "echo '{\"imageUri\":\"a\",\"imageSizeBytes\":1}'");
    assert!(
        again
            .runner
            .log()
            .contains("were left by an earlier run, and are killed")
    );
    let build = again.wait_for(&id, "success");
    assert_eq!(text(&build, "imageUri"), "a");
    assert_eq!(with_word(&word), Vec::<String>::new());
}

/// Tells whether a process was started for a data directory.
fn of_data(id: &str, data: &Path) -> bool {
    let arguments = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let wanted = data.to_str().expect("folders of tests are UTF-8").as_bytes();
    arguments.split(|&byte| byte == 0).any(|argument| argument == wanted)
}

/// A command that cannot be run is an error at start.
#[test]
fn a_command_that_cannot_be_run_is_refused_at_start() {
    let data = DataDir::new();
    let path = data.path().to_str().expect("UTF-8");
    let args = [
        "cloud",
        "serve",
        "--port",
        "0",
        "--data-dir",
        path,
        "--",
        "no-such-builder",
    ];
    let ended = crate::support::runner::TestRunner::run_with(&args, &[]);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended
            .stderr
            .contains("the builder command `no-such-builder` cannot be run"),
        "{}",
        ended.stderr
    );
}
