//! Commands that end in every way, run by the shell of the machine, in folders of the tests' own.

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

/// A data directory, and runs in it.
struct BuildService {
    data: TestDir,
    build: Build,
}

impl BuildService {
    fn new() -> BuildService {
        BuildService {
            data: TestDir::new(),
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
        let ran = run(job, log, stop).await;
        assert!(!self.scratch().exists(), "scratch is gone however it ended");
        ran
    }

    /// Runs a script of the shell.
    async fn script(&self, script: &str) -> RunOutcome {
        self.run(self.job(&["sh", "-c", script]), Shutdown::default()).await
    }

    /// The lines of the log that are not the service's own.
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

/// I-10, I-22: the environment is what the specification names, and nothing else; the folder is the context, stdin is empty.
#[tokio::test]
async fn a_command_finds_what_it_is_promised() {
    let house = BuildService::new();
    let mut job = house.job(&[
        "sh",
        "-c",
        &format!("env; pwd; cat; ls -A . ../out; cat $BUILD_FILE; {DONE}"),
    ]);
    job.env.push(("TOKEN".into(), "of the operator".into()));
    job.env.push(("BUILD_ID".into(), "forged".into()));
    assert_eq!(house.run(job, Shutdown::default()).await, done());
    let scratch = house.scratch();
    let scratch = scratch.to_str().expect("UTF-8");
    let mut lines = house.lines();
    let rest = lines.split_off(lines.iter().position(|line| !line.contains('=')).expect("pwd"));
    // What a shell sets by itself.
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
        format!("BUILD_ID={}", house.build.id),
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

/// I-10: words of the run stand in arguments, without a shell; other braces stay, and so do other bytes.
#[tokio::test]
async fn words_are_filled_in() {
    let house = BuildService::new();
    let scratch = house.scratch();
    let scratch = scratch.to_str().expect("UTF-8");
    let id = house.build.id.to_string();
    let job = house.job(&[]);
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
    let job = house.job(&["printf", "%s\\n", "{id}", "a b", "$HOME", ";"]);
    let ran = house.run(job, Shutdown::default()).await;
    assert!(matches!(ran, RunOutcome::Failed(text) if text.starts_with("image: ")));
    assert_eq!(house.lines(), [&id, "a b", "$HOME", ";"]);
}

/// I-11: `BUILD_RESULT`, the last line of stdout, one file in `BUILD_OUT`, which is kept.
#[tokio::test]
async fn an_image_is_found_in_three_places() {
    let house = BuildService::new();
    let result = r#"printf '{"imageUri":"b","imageSizeBytes":1}' > "$BUILD_RESULT""#;
    let file = r#"printf image > "$BUILD_OUT/im age.tar"; chmod 0 "$BUILD_OUT/im age.tar""#;
    assert_eq!(house.script(&format!("{DONE}; {result}; {file}")).await, uri("b", 1));
    assert_eq!(house.script(&format!("{DONE}; echo; echo '  '; {file}")).await, done());
    assert!(!house.path("images").exists(), "nothing is kept that is not the image");
    let kept = RunOutcome::Success(Image {
        location: ImageLocation::Stored("im age.tar".into()),
        size: 5,
    });
    for _ in 0..2 {
        assert_eq!(house.script(&format!("{DONE} >&2; {file}; echo done")).await, kept);
        let path = house.path("images").join(house.build.id.to_string()).join("im age.tar");
        assert_eq!(fs::read(&path).expect("it is kept"), b"image");
        assert_eq!(
            fs::metadata(&path).expect("it is kept").permissions().mode() & 0o777,
            0o600
        );
    }
}

/// I-11: what is no image is a failure of the phase `image`, whatever else there is.
#[tokio::test]
async fn unusable_images_fail() {
    let house = BuildService::new();
    for (script, expected) in [
        ("true", "image: the command tells of no image"),
        (
            "touch $BUILD_OUT/a $BUILD_OUT/b",
            "image: BUILD_OUT holds more than one file",
        ),
        (
            "mkdir $BUILD_OUT/a",
            "image: `a` in BUILD_OUT is unusable: it is no regular file",
        ),
        (
            "ln -s /etc/passwd $BUILD_OUT/a",
            "image: `a` in BUILD_OUT is unusable: it is no regular file",
        ),
        (
            "mkfifo $BUILD_OUT/a",
            "image: `a` in BUILD_OUT is unusable: it is no regular file",
        ),
        (
            "rmdir $BUILD_OUT; ln -s /etc $BUILD_OUT",
            "image: BUILD_OUT is unusable",
        ),
        ("rmdir $BUILD_OUT", "image: the command tells of no image"),
        (
            "mkdir $BUILD_RESULT",
            "image: BUILD_RESULT is unusable: it is no regular file",
        ),
        (
            "mkfifo $BUILD_RESULT",
            "image: BUILD_RESULT is unusable: it is no regular file",
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
        let RunOutcome::Failed(text) = house.script(script).await else {
            panic!("{script} is no failure");
        };
        assert!(text.starts_with(expected), "{script}: {text}");
        assert!(text.ends_with("; passed: unpack, build"), "{text}");
    }
}

/// I-12, I-13: another status and a signal are failures; the error has the end of stderr.
#[tokio::test]
async fn a_bad_end_is_a_failure() {
    let house = BuildService::new();
    for (script, expected) in [
        (format!("{DONE}; exit 3"), "build: exit status 3; passed: unpack"),
        (
            "echo out; echo one >&2; printf two >&2; exit 1".into(),
            "build: exit status 1; passed: unpack; stderr ends: one\ntwo",
        ),
        ("kill -9 $$".into(), "build: signal 9 (SIGKILL); passed: unpack"),
    ] {
        assert_eq!(house.script(&script).await, RunOutcome::Failed(expected.into()));
    }
    let long = "i=0; while [ $i -lt 3000 ]; do echo \"line $i\"; i=$((i+1)); done >&2; exit 1";
    let RunOutcome::Failed(text) = house.script(long).await else {
        panic!("it is no failure");
    };
    let (_, tail) = text.split_once("; stderr ends: ").expect("the end of stderr");
    assert_eq!(tail.chars().count(), 2000);
    assert!(tail.ends_with("line 2998\nline 2999"));
}

/// I-13, I-17, I-18: what is wrong with the archive is a failure of the phase `unpack`, and the command never starts.
#[tokio::test]
async fn a_bad_archive_never_reaches_the_command() {
    let house = BuildService::new();
    let witness = house.path("witness");
    let command = format!("touch {}; {DONE}", witness.display());
    let mut job = house.job(&["sh", "-c", &command]);
    job.archive = Box::new(io::Cursor::new(b"no archive".to_vec()));
    let mut missing = house.job(&["sh", "-c", &command]);
    missing.build.file = "other/Dockerfile".into();
    let mut large = house.job(&["sh", "-c", &command]);
    large.limits.unpacked_max = 1000;
    let mut many = house.job(&["sh", "-c", &command]);
    many.limits.entries_max = 2;
    for (job, expected) in [
        (job, "unpack: the archive is damaged: it is no gzip"),
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
            house.run(job, Shutdown::default()).await,
            RunOutcome::Failed(expected.into())
        );
    }
    assert!(!witness.exists());
}

/// A command that cannot be started is a failure of the phase `build`; a program that the archive brings is never taken.
#[tokio::test]
async fn a_program_is_looked_for_outside_of_the_context() {
    let house = BuildService::new();
    let ran = house.run(house.job(&["no-such-program"]), Shutdown::default()).await;
    let expected = "build: starting `no-such-program`: no program of that name is in PATH; passed: unpack";
    assert_eq!(ran, RunOutcome::Failed(expected.into()));
    let mut job = house.job(&["main"]);
    job.env = vec![("PATH".into(), "src:.::/usr/bin".into())];
    let ran = house.run(job, Shutdown::default()).await;
    assert!(matches!(ran, RunOutcome::Failed(text) if text.contains("no program of that name")));
    let ran = house.run(house.job(&["src/main"]), Shutdown::default()).await;
    assert!(matches!(ran, RunOutcome::Failed(text) if text.contains("starting `src/main`")));
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
        let why = checked(command).expect_err("it cannot be run");
        assert!(why.contains(expected), "{why}");
    }
    assert!(check_command(&[], path).is_err());
}

/// Waits for a line in the log; whoever writes it may take as long as the machine lets it.
async fn line(house: &BuildService, wanted: &str) -> String {
    let wait = async {
        loop {
            if let Some(line) = house.lines().into_iter().find(|line| line.starts_with(wanted)) {
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

/// I-12: the time limit is a `timeout`; SIGTERM is heard, and what does not heed it is killed, down to children that left the group.
#[tokio::test]
async fn time_is_limited() {
    let house = BuildService::new();
    // What traps the signal ends by itself within the grace, which nobody waits for in full.
    let polite = "trap 'echo heard; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let mut job = house.job(&["sh", "-c", polite]);
    job.limits.timeout = Duration::from_millis(2500);
    let ran = house.run(job, Shutdown::default()).await;
    let expected = "build: no end within 2.5 seconds (`--build-timeout`), so it was stopped; passed: unpack";
    // The shell may tell of its own child that the signal ended.
    assert!(matches!(ran, RunOutcome::TimedOut(text) if text.starts_with(expected)));
    assert!(house.lines().contains(&"heard".to_owned()));
    let stubborn = "trap '' TERM; (trap '' TERM; exec sleep 1000) & echo \"child $!\"; setsid sleep 1000 & \
                    echo \"escaped $!\"; echo cause >&2; while :; do sleep 1000; done";
    let mut job = house.job(&["sh", "-c", stubborn]);
    job.limits.timeout = Duration::from_secs(2);
    job.limits.grace = Duration::from_millis(10);
    let ran = house.run(job, Shutdown::default()).await;
    assert!(matches!(ran, RunOutcome::TimedOut(text) if text.ends_with("; stderr ends: cause")));
    for name in ["child ", "escaped "] {
        let line = line(&house, name).await;
        assert!(!runs(&line[name.len()..]), "{line}");
    }
}

/// I-12: a good end leaves nothing behind either: neither in the group nor outside of it, and what holds the pipes holds nobody up.
#[tokio::test]
async fn what_a_command_leaves_behind_is_killed() {
    let house = BuildService::new();
    let script = format!(
        "sleep 1000 & echo \"child $!\"; setsid sh -c 'sleep 1000 & echo \"escaped $!\"; touch $TMPDIR/up; wait' & \
         setsid sleep 1000 >/dev/null 2>&1 & while [ ! -e $TMPDIR/up ]; do sleep 0.01; done; mkdir -p x/y; chmod 0 x/y x; {DONE}"
    );
    assert_eq!(house.script(&script).await, done());
    for name in ["child ", "escaped "] {
        let line = line(&house, name).await;
        assert!(!runs(&line[name.len()..]), "{line}");
    }
    assert!(guard::kill_run(&house.scratch().join("context")).is_empty());
}

/// I-29, I-19: when the service stops, the command is told so and the run counts as interrupted, whatever it makes of the signal.
#[tokio::test]
async fn a_stop_interrupts() {
    let house = BuildService::new();
    let (trigger, stop) = Shutdown::channel();
    let script = format!(
        "trap '{}; exit 0' TERM; echo ready; while :; do sleep 0.01; done",
        DONE.replace('\'', "\"")
    );
    let stopping = async {
        line(&house, "ready").await;
        trigger.set();
    };
    let (ran, ()) = tokio::join!(house.run(house.job(&["sh", "-c", &script]), stop.clone()), stopping);
    assert_eq!(ran, RunOutcome::Interrupted);
    let ran = house.run(house.job(&["sh", "-c", DONE]), stop).await;
    assert_eq!(ran, RunOutcome::Interrupted, "before it has begun");
}

/// I-29: a signal that reaches the command before the service knows of its stop is no end of the build.
#[tokio::test]
async fn a_stop_may_reach_the_command_first() {
    for script in ["kill -TERM $$", "exit 1", "exit 0"] {
        let house = BuildService::new();
        let (trigger, stop) = Shutdown::channel();
        let mut job = house.job(&["sh", "-c", script]);
        // The command has ended by then.
        job.on_exit = Box::new(move || trigger.set());
        assert_eq!(house.run(job, stop).await, RunOutcome::Interrupted, "{script}");
    }
    let house = BuildService::new();
    let (trigger, stop) = Shutdown::channel();
    let mut job = house.job(&["sh", "-c", DONE]);
    job.on_exit = Box::new(move || trigger.set());
    assert_eq!(house.run(job, stop).await, done(), "what is done is done");
}

/// I-29, I-12: after an end by a signal of those that end services, the stop is waited for, and for no longer than it says.
#[tokio::test(start_paused = true)]
async fn a_stop_may_come_a_little_late() {
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
        // The clock stands still but for sleepers.
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

/// I-12: what left the group and came to the service, as orphans come to the first process of a container, is reaped as well.
#[tokio::test]
async fn orphans_leave_no_zombies() {
    let house = BuildService::new();
    let context = house.scratch().join("context");
    let mut orphan = std::process::Command::new("sleep")
        .arg("1000")
        .env("BUILD_CONTEXT", &context)
        .spawn()
        .expect("it is there");
    kill_escaped(&context).await;

    let again = orphan.wait().expect_err("nothing is left to wait for");
    assert_eq!(Errno::from_io_error(&again), Some(Errno::CHILD));
}

/// I-14: lines of both streams come as they are written, those without end too; what is no UTF-8 is replaced; long ones are cut.
#[tokio::test]
async fn words_of_a_command_reach_the_log() {
    let house = BuildService::new();
    let script = "printf 'one\\n\\ntwo\\r\\n'; printf '\\377\\n'; head -c 9000 /dev/zero | tr '\\0' x; echo; \
                  head -c 9000 /dev/zero | tr '\\0' '\\377'; echo; printf last; exit 1";
    let ran = house.script(script).await;
    assert!(matches!(ran, RunOutcome::Failed(_)));
    let lines = house.lines();
    assert_eq!(lines[..4], ["one", "", "two", "\u{fffd}"]);
    assert_eq!(lines[4], "x".repeat(BUILD_LINE_BYTES_MAX));
    assert_eq!(lines[5], "\u{fffd}".repeat(BUILD_LINE_BYTES_MAX / 3));
    assert_eq!(lines[6..], ["last"]);
    let all = BuildLog::read_page(&house.path("log"), None, 100).expect("a log").lines;
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
