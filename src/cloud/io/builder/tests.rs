//! Tests of runs, with shell scripts as builder commands.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::io::test_dir::TestDir;
use crate::proto::build::{BuildStatus, Slug};
use edge_runner_proto::uuid::Uuid;

/// An archive with a build file and a folder.
fn archive() -> Vec<u8> {
    let mut plain = Vec::new();
    for (name, flag, data) in [
        ("Dockerfile", b'0', &b"FROM scratch\n"[..]),
        ("src/", b'5', b""),
        ("src/main", b'0', b"x"),
    ] {
        let mut block = [0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..108].copy_from_slice(b"0000644\0");
        block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
        block[156] = flag;
        block[148..156].copy_from_slice(b"        ");
        let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        plain.extend(block);
        plain.extend(data);
        plain.resize(plain.len().next_multiple_of(512), 0);
    }
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&plain).expect("memory");
    packer.finish().expect("memory")
}

/// A data directory for runs.
struct RunFixture {
    data: TestDir,
    build: Build,
}

impl RunFixture {
    fn new() -> RunFixture {
        RunFixture {
            data: TestDir::create(),
            build: Build {
                id: Uuid::v4([7; 16]),
                org: Slug::parse("org-7").expect("a name"),
                upload: Uuid::v4([8; 16]),
                region: Slug::parse("us-west").expect("a name"),
                sha256: None,
                key: None,
                hash: "1f2e3d4c5b6a7988".into(),
                file: "Dockerfile".into(),
                size: 100,
                base: "http://localhost".into(),
                status: BuildStatus::Building,
                attempt: 2,
                created_ms: 0,
                updated_ms: 0,
                started_ms: Some(0),
                completed_ms: None,
                image: None,
                error: None,
            },
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        guard::canonical(self.data.path()).join(name)
    }

    fn scratch(&self) -> PathBuf {
        guard::scratch_dir(self.data.path()).join(format!("{}-2", self.build.id))
    }

    fn job(&self, command: &[&str]) -> BuildJob {
        BuildJob {
            build: self.build.clone(),
            archive: Box::new(io::Cursor::new(archive())),
            scratch: self.scratch(),
            images: self.path("images").join(self.build.id.to_string()),
            command: command.iter().map(OsString::from).collect(),
            limits: RunLimits {
                timeout: Duration::from_secs(600),
                grace: Duration::from_secs(600),
                unpacked_max: 1 << 20,
                entries_max: 100,
            },
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("LANG".into(), "C".into())],
            on_exit: Box::new(|| ()),
            on_outcome: Box::new(drop),
        }
    }

    async fn run(&self, job: BuildJob, stop: Shutdown) -> RunOutcome {
        let log = BuildLog::open(&self.path("log")).expect("a log");
        let outcome = run(job, log, stop).await;
        assert!(!self.scratch().exists(), "scratch is gone however it ended");
        outcome
    }

    /// Runs a shell script.
    async fn script(&self, script: &str) -> RunOutcome {
        self.run(self.job(&["sh", "-c", script]), Shutdown::default()).await
    }

    /// Returns the command's lines in the log.
    fn lines(&self) -> Vec<String> {
        let page = BuildLog::read_page(&self.path("log"), None, usize::MAX).expect("a log");
        let is_own = |line: &String| line.starts_with("[service] ");
        page.lines.into_iter().filter(|line| !is_own(line)).collect()
    }
}

fn uri(uri: &str, size: u64) -> RunOutcome {
    RunOutcome::Success(Image {
        location: ImageLocation::Uri(uri.into()),
        size,
    })
}

const DONE: &str = r#"echo '{"imageUri":"registry.example/a:1","imageSizeBytes":5}'"#;

fn done() -> RunOutcome {
    uri("registry.example/a:1", 5)
}

/// I-10, I-22: the environment is exactly the documented one; the working directory is the context,
/// and stdin is empty.
#[tokio::test]
async fn a_command_gets_its_environment() {
    let fixture = RunFixture::new();
    let mut job = fixture.job(&[
        "sh",
        "-c",
        &format!("env; pwd; cat; ls -A . ../out; cat $BUILD_FILE; {DONE}"),
    ]);
    job.env.push(("TOKEN".into(), "of the operator".into()));
    job.env.push(("BUILD_ID".into(), "forged".into()));
    assert_eq!(fixture.run(job, Shutdown::default()).await, done());
    let scratch = fixture.scratch();
    let scratch = scratch.to_str().expect("UTF-8");
    let mut lines = fixture.lines();
    let rest = lines.split_off(lines.iter().position(|line| !line.contains('=')).expect("pwd"));
    // Variables that the shell sets itself.
    lines.retain(|line| {
        !["PWD=", "OLDPWD=", "SHLVL=", "_="]
            .iter()
            .any(|own| line.starts_with(own))
    });
    lines.sort();
    let mut expected = [
        "PATH=/usr/bin:/bin".to_owned(),
        "LANG=C".to_owned(),
        format!("HOME={scratch}/home"),
        format!("TMPDIR={scratch}/tmp"),
        "TOKEN=of the operator".to_owned(),
        format!("BUILD_ID={}", fixture.build.id),
        "BUILD_ORG=org-7".to_owned(),
        "BUILD_REGION=us-west".to_owned(),
        "BUILD_FILE=Dockerfile".to_owned(),
        format!("BUILD_CONTEXT={scratch}/context"),
        "BUILD_CONTEXT_HASH=1f2e3d4c5b6a7988".to_owned(),
        format!("BUILD_OUT={scratch}/out"),
        format!("BUILD_RESULT={scratch}/result"),
        "BUILD_ATTEMPT=2".to_owned(),
    ];
    expected.sort();
    assert_eq!(lines, expected);
    assert_eq!(
        rest[..6],
        [&format!("{scratch}/context"), ".:", "Dockerfile", "src", "", "../out:"].map(str::to_owned)
    );
    assert_eq!(rest[6], "FROM scratch");
}

/// I-10: placeholders are replaced in arguments, without a shell; other braces and bytes stay.
#[tokio::test]
async fn placeholders_are_replaced() {
    let fixture = RunFixture::new();
    let scratch = fixture.scratch();
    let scratch = scratch.to_str().expect("UTF-8");
    let id = fixture.build.id.to_string();
    let job = fixture.job(&[]);
    let dirs = RunDirs::of(&job.scratch);
    for (argument, expected) in [
        (
            "{context}:{out}:{result}",
            format!("{scratch}/context:{scratch}/out:{scratch}/result"),
        ),
        (
            "--tag={org}/{region}:{hash}-{id}",
            format!("--tag=org-7/us-west:1f2e3d4c5b6a7988-{id}"),
        ),
        ("{buildfile}", "Dockerfile".into()),
        ("{{context}", "{context}".into()),
        ("{{{{id}}}}", "{{id}}}}".into()),
        ("${BUILD_ID} {other} {} } {", "${BUILD_ID} {other} {} } {".into()),
        ("$(id); *", "$(id); *".into()),
        ("", String::new()),
    ] {
        assert_eq!(expand(OsStr::new(argument), &job, &dirs), OsString::from(expected));
    }
    let bytes = OsStr::from_bytes(b"\xff{id}\xfe");
    assert_eq!(
        expand(bytes, &job, &dirs).into_vec(),
        [b"\xff", id.as_bytes(), b"\xfe"].concat()
    );
    let job = fixture.job(&["printf", "%s\\n", "{id}", "a b", "$HOME", ";"]);
    let outcome = fixture.run(job, Shutdown::default()).await;
    assert!(matches!(outcome, RunOutcome::Failed(text) if text.starts_with("image: ")));
    assert_eq!(fixture.lines(), [&id, "a b", "$HOME", ";"]);
}

/// I-11: `BUILD_RESULT`, the last line of stdout, and one file in `BUILD_OUT`, which is stored.
#[tokio::test]
async fn an_image_is_reported_in_three_ways() {
    let fixture = RunFixture::new();
    let result = r#"printf '{"imageUri":"b","imageSizeBytes":1}' > "$BUILD_RESULT""#;
    let file = r#"printf image > "$BUILD_OUT/im age.tar"; chmod 0 "$BUILD_OUT/im age.tar""#;
    assert_eq!(fixture.script(&format!("{DONE}; {result}; {file}")).await, uri("b", 1));
    assert_eq!(
        fixture.script(&format!("{DONE}; echo; echo '  '; {file}")).await,
        done()
    );
    assert!(
        !fixture.path("images").exists(),
        "nothing is kept that is not the image"
    );
    let kept = RunOutcome::Success(Image {
        location: ImageLocation::Stored("im age.tar".into()),
        size: 5,
    });
    for _ in 0..2 {
        assert_eq!(fixture.script(&format!("{DONE} >&2; {file}; echo done")).await, kept);
        let path = fixture
            .path("images")
            .join(fixture.build.id.to_string())
            .join("im age.tar");
        assert_eq!(fs::read(&path).expect("it is kept"), b"image");
        assert_eq!(
            fs::metadata(&path).expect("it is kept").permissions().mode() & 0o777,
            0o600
        );
    }
}

/// I-11: an unusable image fails in the phase `image`.
#[tokio::test]
async fn unusable_images_fail() {
    let fixture = RunFixture::new();
    for (script, expected) in [
        ("true", "image: the command reported no image"),
        (
            "touch $BUILD_OUT/a $BUILD_OUT/b",
            "image: BUILD_OUT holds more than one file",
        ),
        (
            "mkdir $BUILD_OUT/a",
            "image: `a` in BUILD_OUT is unusable: it is not a regular file",
        ),
        (
            "ln -s /etc/passwd $BUILD_OUT/a",
            "image: `a` in BUILD_OUT is unusable: it is not a regular file",
        ),
        (
            "mkfifo $BUILD_OUT/a",
            "image: `a` in BUILD_OUT is unusable: it is not a regular file",
        ),
        (
            "rmdir $BUILD_OUT; ln -s /etc $BUILD_OUT",
            "image: BUILD_OUT is unusable",
        ),
        ("rmdir $BUILD_OUT", "image: the command reported no image"),
        (
            "mkdir $BUILD_RESULT",
            "image: BUILD_RESULT is unusable: it is not a regular file",
        ),
        (
            "mkfifo $BUILD_RESULT",
            "image: BUILD_RESULT is unusable: it is not a regular file",
        ),
        (
            "ln -s /etc/passwd $BUILD_RESULT",
            "image: BUILD_RESULT is unusable: it is a link",
        ),
        (
            "head -c 70000 /dev/zero > $BUILD_RESULT",
            "image: BUILD_RESULT is unusable: it has more than 65536 bytes",
        ),
        (
            "echo image:1 > $BUILD_RESULT",
            "image: BUILD_RESULT is unusable: it is not a JSON object",
        ),
        (
            r#"echo '{"imageUri":"a"}'"#,
            "image: the last line of stdout is unusable: `imageSizeBytes` is missing",
        ),
    ] {
        let RunOutcome::Failed(text) = fixture.script(script).await else {
            panic!("{script} is no failure");
        };
        assert!(text.starts_with(expected), "{script}: {text}");
        assert!(text.ends_with("; passed: unpack, build"), "{text}");
    }
}

/// I-12, I-13: a non-zero status and a signal are failures, with the end of stderr.
#[tokio::test]
async fn a_nonzero_status_is_a_failure() {
    let fixture = RunFixture::new();
    for (script, expected) in [
        (format!("{DONE}; exit 3"), "build: exit status 3; passed: unpack"),
        (
            "echo out; echo one >&2; printf two >&2; exit 1".into(),
            "build: exit status 1; passed: unpack; stderr ends: one\ntwo",
        ),
        ("kill -9 $$".into(), "build: signal 9 (SIGKILL); passed: unpack"),
    ] {
        assert_eq!(fixture.script(&script).await, RunOutcome::Failed(expected.into()));
    }
    let long = "i=0; while [ $i -lt 3000 ]; do echo \"line $i\"; i=$((i+1)); done >&2; exit 1";
    let RunOutcome::Failed(text) = fixture.script(long).await else {
        panic!("it is no failure");
    };
    let (_, tail) = text.split_once("; stderr ends: ").expect("the end of stderr");
    assert_eq!(tail.chars().count(), 2000);
    assert!(tail.ends_with("line 2998\nline 2999"));
}

/// I-13, I-17, I-18: a bad archive fails in the phase `unpack`, and the command does not start.
#[tokio::test]
async fn a_bad_archive_does_not_start_the_command() {
    let fixture = RunFixture::new();
    let witness = fixture.path("witness");
    let command = format!("touch {}; {DONE}", witness.display());
    let mut job = fixture.job(&["sh", "-c", &command]);
    job.archive = Box::new(io::Cursor::new(b"no archive".to_vec()));
    let mut missing = fixture.job(&["sh", "-c", &command]);
    missing.build.file = "other/Dockerfile".into();
    let mut large = fixture.job(&["sh", "-c", &command]);
    large.limits.unpacked_max = 1000;
    let mut many = fixture.job(&["sh", "-c", &command]);
    many.limits.entries_max = 2;
    for (job, expected) in [
        (job, "unpack: the archive is damaged: it is not gzip"),
        (
            missing,
            "unpack: the build file `other/Dockerfile` is not in the archive",
        ),
        (
            large,
            "unpack: the archive unpacks to more than 1000 bytes (`--max-unpacked`)",
        ),
        (many, "unpack: the archive has more than 2 entries (`--max-entries`)"),
    ] {
        assert_eq!(
            fixture.run(job, Shutdown::default()).await,
            RunOutcome::Failed(expected.into())
        );
    }
    assert!(!witness.exists());
}

/// A command that cannot be started fails in the phase `build`. Programs inside the archive are not
/// found.
#[tokio::test]
async fn programs_in_the_context_are_not_found() {
    let fixture = RunFixture::new();
    let outcome = fixture
        .run(fixture.job(&["no-such-program"]), Shutdown::default())
        .await;
    let expected = "build: starting `no-such-program`: no program of that name is in PATH; passed: unpack";
    assert_eq!(outcome, RunOutcome::Failed(expected.into()));
    let mut job = fixture.job(&["main"]);
    job.env = vec![("PATH".into(), "src:.::/usr/bin".into())];
    let outcome = fixture.run(job, Shutdown::default()).await;
    assert!(matches!(outcome, RunOutcome::Failed(text) if text.contains("no program of that name")));
    let outcome = fixture.run(fixture.job(&["src/main"]), Shutdown::default()).await;
    assert!(matches!(outcome, RunOutcome::Failed(text) if text.contains("starting `src/main`")));
    let path = OsStr::new("/usr/bin:/bin");
    let checked = |command: &str| check_command(&[command.into()], path).map_err(|error| error.to_string());
    assert_eq!(checked("sh"), Ok(()));
    assert_eq!(checked("/bin/sh"), Ok(()));
    for (command, expected) in [
        ("", "the builder command after `--` is empty"),
        (
            "no-such-program",
            "the builder command `no-such-program` cannot be run: no program of that name is in PATH",
        ),
        ("/etc", "the builder command `/etc` cannot be run: it is a folder"),
        ("/etc/passwd", "it is not executable; `chmod +x` makes it so"),
        ("/no/such", "No such file"),
    ] {
        let reason = checked(command).expect_err("it cannot be run");
        assert!(reason.contains(expected), "{reason}");
    }
    assert!(check_command(&[], path).is_err());
    // The system's error for a script whose interpreter is missing names the script.
    let script = fixture.data.path().join("build.sh");
    for (text, expected) in [
        (
            "#!/usr/bin/pyton\n",
            Some("interpreter `/usr/bin/pyton`, which does not exist"),
        ),
        (
            "#!/usr/bin/env pyton\n",
            Some("interpreter `pyton`, which is not in PATH"),
        ),
        ("#!/bin/sh\r\n", Some("carriage return")),
        ("#!/bin/sh\n", None),
        ("#!of-the-context\n", None),
    ] {
        fs::write(&script, text).expect("written");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its own");
        let reason = checked(script.to_str().expect("a plain path")).err();
        match expected {
            Some(expected) => assert!(
                reason.as_ref().is_some_and(|reason| reason.contains(expected)),
                "{reason:?}"
            ),
            None => assert_eq!(reason, None),
        }
    }
}

/// Waits for a line in the log.
async fn line(fixture: &RunFixture, wanted: &str) -> String {
    let wait = async {
        loop {
            if let Some(line) = fixture.lines().into_iter().find(|line| line.starts_with(wanted)) {
                return line;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), wait).await.expect("the line comes")
}

fn runs(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    state.is_some_and(|state| state != b'Z')
}

/// I-12: the time limit gives `timeout`; processes that ignore SIGTERM or leave the group are
/// killed.
#[tokio::test]
async fn a_timeout_kills_the_command() {
    let fixture = RunFixture::new();
    // The script traps the signal and exits within the grace.
    let polite = "trap 'echo heard; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let mut job = fixture.job(&["sh", "-c", polite]);
    job.limits.timeout = Duration::from_millis(5500);
    let outcome = fixture.run(job, Shutdown::default()).await;
    let expected = "build: no end within 5.5 seconds (`--build-timeout`), so it was stopped; passed: unpack";
    // The shell may report its child's signal as well.
    assert!(matches!(outcome, RunOutcome::TimedOut(text) if text.starts_with(expected)));
    assert!(fixture.lines().contains(&"heard".to_owned()));
    let stubborn = "trap '' TERM; (trap '' TERM; exec sleep 1000) & echo \"child $!\"; setsid sleep 1000 & \
                    echo \"escaped $!\"; echo cause >&2; while :; do sleep 1000; done";
    let mut job = fixture.job(&["sh", "-c", stubborn]);
    job.limits.timeout = Duration::from_secs(5);
    job.limits.grace = Duration::from_millis(10);
    let outcome = fixture.run(job, Shutdown::default()).await;
    assert!(matches!(outcome, RunOutcome::TimedOut(text) if text.ends_with("; stderr ends: cause")));
    for name in ["child ", "escaped "] {
        let line = line(&fixture, name).await;
        assert!(!runs(&line[name.len()..]), "{line}");
    }
}

/// I-12: no process remains after a success either, in the group or outside, and open pipes do not
/// delay the end.
#[tokio::test]
async fn leftover_processes_are_killed() {
    let fixture = RunFixture::new();
    let script = format!(
        "sleep 1000 & echo \"child $!\"; setsid sh -c 'sleep 1000 & echo \"escaped $!\"; touch $TMPDIR/up; wait' & \
         setsid sleep 1000 >/dev/null 2>&1 & while [ ! -e $TMPDIR/up ]; do sleep 0.01; done; mkdir -p x/y; chmod 0 x/y x; {DONE}"
    );
    assert_eq!(fixture.script(&script).await, done());
    for name in ["child ", "escaped "] {
        let line = line(&fixture, name).await;
        assert!(!runs(&line[name.len()..]), "{line}");
    }
    assert!(guard::kill_run(&fixture.scratch().join("context")).is_empty());
}

/// I-19, I-29: when the service stops, the run counts as interrupted, however the command reacts.
#[tokio::test]
async fn a_stop_interrupts_a_run() {
    let fixture = RunFixture::new();
    let (trigger, stop) = Shutdown::channel();
    let script = format!(
        "trap '{}; exit 0' TERM; echo ready; while :; do sleep 0.01; done",
        DONE.replace('\'', "\"")
    );
    let stopping = async {
        line(&fixture, "ready").await;
        trigger.set();
    };
    let (outcome, ()) = tokio::join!(fixture.run(fixture.job(&["sh", "-c", &script]), stop.clone()), stopping);
    assert_eq!(outcome, RunOutcome::Interrupted);
    let outcome = fixture.run(fixture.job(&["sh", "-c", DONE]), stop).await;
    assert_eq!(outcome, RunOutcome::Interrupted, "before it has begun");
}

/// I-29: a signal that reaches the command before the service does not fail the build.
#[tokio::test]
async fn a_stop_signal_may_reach_the_command_first() {
    for script in ["kill -TERM $$", "exit 1", "exit 0"] {
        let fixture = RunFixture::new();
        let (trigger, stop) = Shutdown::channel();
        let mut job = fixture.job(&["sh", "-c", script]);
        // The command has exited at this point.
        job.on_exit = Box::new(move || trigger.set());
        assert_eq!(fixture.run(job, stop).await, RunOutcome::Interrupted, "{script}");
    }
    let fixture = RunFixture::new();
    let (trigger, stop) = Shutdown::channel();
    let mut job = fixture.job(&["sh", "-c", DONE]);
    job.on_exit = Box::new(move || trigger.set());
    assert_eq!(fixture.run(job, stop).await, done(), "what is done is done");
}

/// I-12, I-29: after a stop signal the run waits a limited time for the service's stop.
#[tokio::test(start_paused = true)]
async fn a_late_stop_is_awaited() {
    for end in [
        CommandExit::Signal(Signal::TERM.as_raw()),
        CommandExit::Signal(Signal::INT.as_raw()),
        CommandExit::Code(128 + Signal::HUP.as_raw()),
    ] {
        let (trigger, mut stop) = Shutdown::channel();
        let stopping = async {
            sleep(BUILD_STOP_WITHIN / 2).await;
            trigger.set();
        };
        assert!(tokio::join!(is_stopped(&end, &mut stop), stopping).0, "{end}");
        let (_trigger, mut stop) = Shutdown::channel();
        let began = tokio::time::Instant::now();
        assert!(!is_stopped(&end, &mut stop).await, "{end}");
        // The clock is paused except for sleeps.
        assert!(began.elapsed() <= 2 * BUILD_STOP_WITHIN);
    }
    for end in [
        CommandExit::Signal(Signal::SEGV.as_raw()),
        CommandExit::Code(1),
        CommandExit::Code(Signal::TERM.as_raw()),
    ] {
        let (_trigger, mut stop) = Shutdown::channel();
        let began = tokio::time::Instant::now();
        assert!(!is_stopped(&end, &mut stop).await, "{end}");
        assert!(began.elapsed().is_zero(), "{end}");
    }
}

/// I-12: escaped processes that became children of the service are reaped.
#[tokio::test]
async fn orphans_are_reaped() {
    let fixture = RunFixture::new();
    let context = fixture.scratch().join("context");
    let mut orphan = std::process::Command::new("sleep")
        .arg("1000")
        .env("BUILD_CONTEXT", &context)
        .spawn()
        .expect("it is there");
    kill_escaped(&context).await;

    let again = orphan.wait().expect_err("nothing is left to wait for");
    assert_eq!(Errno::from_io_error(&again), Some(Errno::CHILD));
}

/// I-14: lines of both streams are logged as written; incomplete, invalid and long lines too.
#[tokio::test]
async fn output_is_logged() {
    let fixture = RunFixture::new();
    let script = "printf 'one\\n\\ntwo\\r\\n'; printf '\\377\\n'; head -c 9000 /dev/zero | tr '\\0' x; echo; \
                  head -c 9000 /dev/zero | tr '\\0' '\\377'; echo; printf last; exit 1";
    let outcome = fixture.script(script).await;
    assert!(matches!(outcome, RunOutcome::Failed(_)));
    let lines = fixture.lines();
    assert_eq!(lines[..4], ["one", "", "two", "\u{fffd}"]);
    assert_eq!(lines[4], "x".repeat(BUILD_LINE_BYTES_MAX));
    assert_eq!(lines[5], "\u{fffd}".repeat(BUILD_LINE_BYTES_MAX / 3));
    assert_eq!(lines[6..], ["last"]);
    let all = BuildLog::read_page(&fixture.path("log"), None, 100)
        .expect("a log")
        .lines;
    let own: Vec<&String> = all.iter().filter(|line| line.starts_with("[service] ")).collect();
    assert_eq!(own[0], "[service] attempt 2: unpacking the build context, 100 bytes");
    assert!(own[1].starts_with("[service] unpacked 3 entries, "), "{}", own[1]);
    assert_eq!(
        own[2..],
        [
            "[service] running the builder command",
            "[service] build: exit status 1; passed: unpack"
        ]
    );
}
