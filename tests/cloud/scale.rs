//! Several replicas on one database and one object store, with real ones.

mod certificates;
mod chaos;
mod faults;
mod links;
mod logs;
mod metrics;
mod parts;
mod upgrade;

use std::fs;
use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::builds::{GATED, shell};
use crate::support::cloud::{self, DataDir, KEY, OTHER, TestCloud, archive};
use crate::support::http;
use crate::support::runner::{PATIENCE, TestRunner};
use crate::support::scale::{KEY_ID, KEY_SECRET, Place};

/// A command that succeeds at once.
const QUICK: [&str; 4] = ["--", "sh", "-c", r#"cat bot.py; echo image > "$BUILD_OUT/bot.img""#];

fn context(text: &str) -> Vec<u8> {
    archive(&[("Dockerfile", "FROM scratch\n"), ("bot.py", text)])
}

fn start(place: &Place, data: &DataDir, args: &[&str]) -> TestCloud {
    TestCloud::start_with(data, args, &place.variables())
}

fn id_of(created: &Value) -> String {
    created["build"]["id"].as_str().expect("an identifier").to_owned()
}

/// Kills a replica, and waits for its end.
fn kill(replica: &mut TestCloud) {
    replica.runner.signal("KILL");
    replica.runner.wait();
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// I-31: the archive goes to the store by a form of the store, another replica builds it, and every
/// replica answers alike.
#[test]
fn replicas_share_uploads_builds_logs_and_images() {
    let Some(place) = Place::new() else { return };
    let data = [DataDir::new(), DataDir::new(), DataDir::new()];
    let first = start(&place, &data[0], &["--role", "api"]);
    let second = start(&place, &data[1], &["--role", "api"]);
    let worker = start(&place, &data[2], &[&["--role", "worker"], &QUICK[..]].concat());
    let grant = first.grant();
    let fields = grant["uploadFields"].as_object().expect("fields");
    assert!(
        fields.contains_key("X-Amz-Signature") && fields["bucket"] == *place.bucket,
        "{fields:?}"
    );
    assert!(!fields.keys().any(|name| name.starts_with("X-Store-")), "{fields:?}");
    let packed = context("print()");
    let sent = first.send(&grant, &packed);
    assert!([200, 204].contains(&sent.status), "{} {}", sent.status, sent.text());
    let upload = grant["uploadId"].as_str().expect("an identifier");
    let created = second.create(upload);
    assert_eq!(created.status, 201, "{}", created.text());
    let id = id_of(&created.json());
    let done = first.wait_for(&id, "success");
    assert_eq!(second.status(&id), done);
    assert_eq!(done["contextSizeBytes"], packed.len());
    assert_eq!(done["imageSizeBytes"], "image\n".len());
    let log = second.log(&id);
    assert!(log.contains(&"print()".to_owned()), "{log:?}");
    let image = first.get(&format!("/v1/images/{id}/bot.img"));
    assert_eq!(image.status, 302);
    assert_eq!(
        http::follow(image.header("location").expect("a link")).text(),
        "image\n"
    );
    assert_eq!(
        first.request("GET", &format!("/v1/builds/{id}"), OTHER, b"").status,
        404
    );
    // The cache is shared, the worker has no API, and what passed the service is not the archive.
    let again = second.upload(&packed);
    let hit = first.create(&again);
    assert_eq!((hit.status, id_of(&hit.json())), (200, id.clone()));
    assert_eq!(worker.get("/v1/regions").status, 404);
    for replica in [&first, &second, &worker] {
        assert_eq!(http::get(replica.runner.addr, "/readyz").status, 200);
    }
    for data in &data {
        assert!(!data.path().join("archives").exists() && !data.path().join("builds.db").exists());
    }
}

/// I-32, I-34: a client that lost its answer asks again and gets the same build; the cap of an
/// organization is exact.
#[test]
fn the_cap_is_exact_under_concurrency() {
    let Some(place) = Place::new() else { return };
    let data = [DataDir::new(), DataDir::new()];
    let options = ["--role", "api", "--max-pending", "5"];
    let replicas = [start(&place, &data[0], &options), start(&place, &data[1], &options)];
    let uploads: Vec<String> = (0..12).map(|n| replicas[0].upload(&context(&n.to_string()))).collect();
    let answers: Vec<u16> = thread::scope(|scope| {
        let created = uploads.iter().enumerate().map(|(n, upload)| {
            let replica = &replicas[n % 2];
            scope.spawn(move || replica.create(upload).status)
        });
        let created: Vec<_> = created.collect();
        created.into_iter().map(|one| one.join().expect("an answer")).collect()
    });
    assert_eq!(
        answers.iter().filter(|status| **status == 201).count(),
        5,
        "{answers:?}"
    );
    assert_eq!(
        answers.iter().filter(|status| **status == 429).count(),
        7,
        "{answers:?}"
    );
    let made = answers.iter().position(|status| *status == 201).expect("five are");
    let first = id_of(&replicas[0].create(&uploads[made]).json());
    assert_eq!(id_of(&replicas[1].create(&uploads[made]).json()), first);
    assert_eq!(place.sql("SELECT COUNT(*) FROM build"), "5");
}

/// I-33: the build of a killed worker continues on another, in the next attempt and the same log. A
/// worker that stops in order gives its build back at once, and the attempt with it.
#[test]
fn the_build_of_a_killed_worker_continues_elsewhere() {
    let Some(place) = Place::new() else { return };
    let data = [DataDir::new(), DataDir::new(), DataDir::new()];
    let gate = DataDir::new();
    let script = r#"echo "attempt $BUILD_ATTEMPT"; : > "$0/$BUILD_ATTEMPT"
        while [ ! -e "$0/go" ]; do sleep 0.02; done; echo image > "$BUILD_OUT/i""#;
    let options = [
        "--role",
        "worker",
        "--lease",
        "2",
        "--build-grace",
        "0.1",
        "--max-attempts",
        "2",
    ];
    let api = start(&place, &data[0], &["--role", "api"]);
    let killed = start(&place, &data[1], &shell(&options, script, gate.path()));
    let id = api.build(&context("x"));
    let began = |attempt: u32| gate.path().join(attempt.to_string()).exists();
    until("the log was to grow", || api.log(&id).contains(&"attempt 1".to_owned()));
    let building = api.status(&id);
    killed.runner.signal("KILL");
    let stopped = start(&place, &data[2], &shell(&options, script, gate.path()));
    until("the second attempt was to begin", || began(2));
    assert_eq!(api.status(&id)["startedAt"], building["startedAt"]);
    stopped.runner.signal("TERM");
    let last = start(&place, &data[1], &shell(&options, script, gate.path()));
    until("the third attempt was to begin", || began(3));
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    api.wait_for(&id, "success");
    let log = api.log(&id);
    let place_of = |line: &str| log.iter().position(|other| other == line);
    let lines = [
        "attempt 1",
        "[service] interrupted, attempt 2 of 2",
        "attempt 2",
        "[service] interrupted, attempt 3 of 3",
        "attempt 3",
    ]
    .map(place_of);
    assert!(lines.iter().all(Option::is_some) && lines.is_sorted(), "{log:?}");
    drop(last);
    assert_eq!(place.sql("SELECT attempt, given_back FROM build"), "3|1");
}

/// A build whose workers all die fails, with a line in its log.
#[test]
fn attempts_are_limited() {
    let Some(place) = Place::new() else { return };
    let (data, gate) = ([DataDir::new(), DataDir::new(), DataDir::new()], DataDir::new());
    let options = ["--role", "worker", "--lease", "1", "--max-attempts", "1"];
    let api = start(&place, &data[0], &["--role", "api"]);
    let mut killed = start(&place, &data[1], &shell(&options, GATED, gate.path()));
    let id = api.build(&context("x"));
    api.wait_for(&id, "building");
    kill(&mut killed);
    let _other = start(&place, &data[2], &shell(&options, GATED, gate.path()));
    let failed = api.wait_for(&id, "failed");
    let error = failed["errorMessage"].as_str().expect("a reason");
    assert!(error.contains("no attempts are left"), "{error}");
    let log = api.log(&id);
    assert_eq!(
        log.last().map(String::as_str),
        Some("[service] interrupted, no attempts are left"),
        "{log:?}"
    );
}

/// A replica of either role unmaps code that it does not run.
#[test]
fn an_idle_replica_unmaps_its_code() {
    let Some(place) = Place::new() else { return };
    let data = [DataDir::new(), DataDir::new()];
    let api = start(&place, &data[0], &["--role", "api"]);
    let worker = start(&place, &data[1], &[&["--role", "worker"], &QUICK[..]].concat());
    for replica in [&api, &worker] {
        replica.wait_for_unmapping(replica.runner.peak_kib() / 2);
    }
}

/// I-22: no key, secret, policy or signature is logged at any level.
#[test]
fn secrets_are_not_logged() {
    let Some(place) = Place::new() else { return };
    let data = DataDir::new();
    let variables = [&place.variables()[..], &[("RUST_LOG", "trace")]].concat();
    let mut cloud = TestCloud::start_with(&data, &QUICK, &variables);
    let grant = cloud.grant();
    assert_eq!(cloud.send(&grant, &context("x")).status / 100, 2);
    let id = id_of(&cloud.create(grant["uploadId"].as_str().expect("an identifier")).json());
    cloud.wait_for(&id, "success");
    let image = cloud.get(&format!("/v1/images/{id}/bot.img"));
    let link = image.header("location").expect("a link").to_owned();
    let (_, signature) = link.split_once("X-Amz-Signature=").expect("a signature");
    cloud.runner.signal("TERM");
    cloud.runner.wait();
    let (stdout, stderr) = cloud.runner.last_words();
    assert!(stderr.contains("DEBUG"), "{stderr}");
    let field = |name: &str| grant["uploadFields"][name].as_str().expect("text");
    for hidden in [KEY, KEY_SECRET, field("Policy"), field("X-Amz-Signature"), signature] {
        assert!(
            !stdout.contains(hidden) && !stderr.contains(hidden),
            "{hidden} is in the log"
        );
    }
}

/// Reads what a process of a worker's user can read of the worker: its environment and memory, its
/// guard and its files. The image is all of it.
const SPY: &str = r#"
    env > found
    for name in environ mem maps auxv fd/0; do ! ( : < "/proc/$PPID/$name" ) 2>/dev/null || exit 2; done
    # Nothing but the three that it should have was left open; 3 is the folder that `ls` reads.
    [ "$(ls /proc/self/fd | tr '\n' ' ')" = '0 1 2 3 ' ] || exit 3
    # What forbids that is the worker and not this system: a process of the same user can be read.
    sleep 60 & other=$!
    cat "/proc/$other/environ" "/proc/$other/maps" >/dev/null || exit 4
    kill $other
    grep -q cloud "/proc/$PPID/cmdline" || exit 5
    for process in $(grep -ls "^PPid:[[:space:]]*$PPID\$" /proc/[0-9]*/status); do
        [ "$process" = "/proc/$$/status" ] || cat "${process%status}environ" "${process%status}cmdline" >> found
    done
    find ../../.. -type f ! -name found -exec cat {} + >> found
    mv found "$BUILD_OUT/found""#;

/// What is built has neither the credentials of the database nor those of the store, and cannot
/// read them from the worker. Root may read everything, so that root's worker has no capabilities
/// here, and is like any other user.
#[test]
fn a_build_gets_no_credentials() {
    let Some(place) = Place::new() else { return };
    let data = DataDir::new();
    // What a shell or a service manager has left open is not the worker's.
    let closed = [
        "python3",
        "-c",
        "import os, sys; os.closerange(3, 4096); os.execvp(sys.argv[1], sys.argv[1:])",
    ];
    let like_others = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"];
    let is_root = rustix::process::getuid().is_root();
    let cloud = TestCloud::start_through(
        &[&closed[..], if is_root { &like_others } else { &[] }].concat(),
        &data,
        &["--", "sh", "-c", SPY],
        &place.variables(),
    );
    let id = cloud.build(&context("x"));
    cloud.wait_for(&id, "success");
    let image = cloud.get(&format!("/v1/images/{id}/found"));
    let found = http::follow(image.header("location").expect("a link"));
    let found = String::from_utf8_lossy(&found.body);
    assert!(found.contains("BUILD_ID=") && found.contains("cloud-guard"), "{found}");
    for hidden in [KEY, KEY_SECRET, "AWS_", "CLOUD_", "postgres"] {
        assert!(!found.contains(hidden), "{hidden} in {found}");
    }
}

/// I-32: a second upload with the same grant changes nothing that a build was made of.
#[test]
fn a_later_upload_is_never_built() {
    let Some(place) = Place::new() else { return };
    let data = [DataDir::new(), DataDir::new()];
    let api = start(&place, &data[0], &["--role", "api"]);
    let grant = api.grant();
    let upload = grant["uploadId"].as_str().expect("an identifier");
    assert_eq!(api.create(upload).status, 400, "nothing is uploaded yet");
    assert_eq!(
        api.send(&grant, b"not gzip").status / 100,
        2,
        "the store does not look into it"
    );
    let refused = api.create(upload);
    assert!(
        refused.status == 400 && refused.text().contains("gzip"),
        "{}",
        refused.text()
    );
    assert_eq!(api.send(&grant, &context("first")).status / 100, 2);
    let id = id_of(&api.create(upload).json());
    assert_eq!(api.send(&grant, &context("second")).status / 100, 2);
    let _worker = start(&place, &data[1], &[&["--role", "worker"], &QUICK[..]].concat());
    let failed = api.wait_for(&id, "failed");
    let error = failed["errorMessage"].as_str().expect("a reason");
    assert!(error.starts_with("unpack: another archive was uploaded"), "{error}");
}

/// I-32: an archive of exactly the largest size is built, and one of a byte more or of none is
/// refused when a build of it is asked for, whatever the store let pass.
#[test]
fn the_size_of_an_archive_is_exact() {
    let Some(place) = Place::new() else { return };
    let data = DataDir::new();
    // A comment of gzip of another length makes another size, to the byte.
    let packed = |comment: &str| {
        let plain = cloud::tar_archive(&[("Dockerfile", "FROM scratch\n"), ("bot.py", "print()")]);
        let packer = flate2::GzBuilder::new().comment(comment);
        let mut packer = packer.write(Vec::new(), flate2::Compression::best());
        packer.write_all(&plain).expect("memory");
        packer.finish().expect("memory")
    };
    let (largest, larger) = (packed("x"), packed("xy"));
    assert_eq!(larger.len(), largest.len() + 1);
    let most = largest.len().to_string();
    let cloud = start(&place, &data, &[&["--max-context", &most], &QUICK[..]].concat());
    let create = |archive: &[u8]| {
        let grant = cloud.grant();
        place.put(grant["uploadFields"]["key"].as_str().expect("text"), archive);
        cloud.create(grant["uploadId"].as_str().expect("an identifier"))
    };
    for (archive, code) in [(&larger[..], "EntityTooLarge"), (b"", "EntityTooSmall")] {
        let refused = create(archive);
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (400, &json!(code)),
            "{} bytes",
            archive.len()
        );
    }
    let done = cloud.wait_for(&id_of(&create(&largest).json()), "success");
    assert_eq!(done["contextSizeBytes"], largest.len());
    assert_eq!(place.sql("SELECT COUNT(*) FROM build"), "1");
}

/// A back-up that was made while builds ran is a service that answers alike: a dump of the
/// database, and then a copy of the objects. What was running runs again.
#[test]
fn a_back_up_is_restored_elsewhere() {
    let Some(place) = Place::new() else { return };
    let (data, gate) = ([DataDir::new(), DataDir::new()], DataDir::new());
    let script = r#"cat bot.py; [ "$(cat bot.py)" = quick ] || while [ ! -e "$0/go" ]; do sleep 0.02; done
        cp bot.py "$BUILD_OUT/i""#;
    let options = ["--lease", "2"];
    let cloud = start(&place, &data[0], &shell(&options, script, gate.path()));
    let key = place.run(&["keys", "create", "--type", "private", "--org", "team"]);
    let upload = cloud.upload(&context("quick"));
    let ended = id_of(&cloud.create(&upload).json());
    cloud.wait_for(&ended, "success");
    let running = cloud.build(&context("slow"));
    cloud.wait_for(&running, "building");
    let unused = cloud.upload(&context("quick, and not built yet"));
    let restored = place.restored();
    let (listed, log) = (cloud.get("/v1/builds").json(), cloud.log(&ended));
    assert!(log.contains(&"quick".to_owned()), "{log:?}");
    drop(cloud);
    let migrated = restored.run(&["migrate"]);
    assert!(migrated.contains("version 2 already"), "{migrated}");
    let cloud = start(&restored, &data[1], &shell(&options, script, gate.path()));
    let again = cloud.get("/v1/builds").json();
    assert_eq!(again["total"], listed["total"]);
    let shown = |listed: &Value| {
        let builds = listed["builds"].as_array().expect("builds").clone();
        builds
            .into_iter()
            .find(|build| build["id"] == *ended)
            .expect("it is listed")
    };
    let (mut after, before) = (shown(&again), shown(&listed));
    for name in ["imageUri", "logsUrl"] {
        // They have the address of the service.
        after[name] = before[name].clone();
    }
    assert_eq!(after, before);
    assert_eq!(cloud.log(&ended), log);
    assert_eq!(cloud.request("GET", "/v1/regions", key.trim(), b"").status, 200);
    assert_eq!(cloud.get(&format!("/v1/images/{ended}/i")).status, 302);
    assert!(
        restored
            .objects(&format!("images/{ended}/"))
            .contains(&format!("images/{ended}/1/i"))
    );
    let hit = cloud.create(&upload);
    assert_eq!((hit.status, id_of(&hit.json())), (200, ended));
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    cloud.wait_for(&running, "success");
    assert_eq!(
        restored.sql(&format!("SELECT attempt FROM build WHERE id = '{running}'")),
        "2"
    );
    let first = id_of(&cloud.create(&unused).json());
    cloud.wait_for(&first, "success");
}

/// I-34: keys and regions are in the database; a revoked key is refused by every replica at once,
/// and its open grants make no build.
#[test]
fn keys_and_regions_are_those_of_all_replicas() {
    let Some(place) = Place::new() else { return };
    let data = [DataDir::new(), DataDir::new()];
    let replicas = data.each_ref().map(|data| start(&place, data, &["--role", "api"]));
    let key = place.run(&["keys", "create", "--type", "private", "--org", "team", "--name", "ci"]);
    let key = key.trim();
    let listed: Value = serde_json::from_str(&place.run(&["keys", "list", "--json"])).expect("JSON");
    assert_eq!(
        (&listed["keys"][0]["org"], &listed["keys"][0]["name"]),
        (&json!("team"), &json!("ci"))
    );
    for replica in &replicas {
        assert_eq!(
            replica.request("GET", "/v1/regions", key, b"").json()["regions"][0]["code"],
            "local"
        );
    }
    let file = data[0].path().join("regions.json");
    fs::create_dir_all(data[0].path()).expect("the folder is writable");
    fs::write(&file, r#"{"regions":[{"code":"eu","display_name":"Europe"}]}"#).expect("the folder is writable");
    place.run(&["migrate", "--regions", file.to_str().expect("UTF-8")]);
    for replica in &replicas {
        assert_eq!(
            replica.request("GET", "/v1/regions", key, b"").json()["regions"][0]["code"],
            "eu"
        );
    }
    let granted = replicas[0].request("POST", "/v1/builds/upload-url", key, br#"{"region":"eu"}"#);
    assert_eq!(granted.status, 200, "{}", granted.text());
    let id = listed["keys"][0]["id"].as_str().expect("an identifier");
    assert!(place.run(&["keys", "revoke", id]).starts_with(&format!("revoked {id}")));
    for replica in &replicas {
        assert_eq!(replica.request("GET", "/v1/regions", key, b"").status, 401);
    }
    // Another key of the organization does not make the open grant good again.
    let other = place.run(&["keys", "create", "--type", "private", "--org", "team"]);
    let upload = granted.json();
    assert_eq!(replicas[1].send(&upload, &context("x")).status / 100, 2);
    let body = json!({"uploadId": upload["uploadId"], "region": "eu"}).to_string();
    let refused = replicas[1].request("POST", "/v1/builds", other.trim(), body.as_bytes());
    assert!(
        refused.status == 403 && refused.text().contains("revoked"),
        "{}",
        refused.text()
    );
}

/// I-34: without the database every request but `/livez` is answered with 503 and `Retry-After`; a
/// build that runs goes on and is recorded when the database is back.
#[test]
fn a_replica_waits_for_its_database() {
    let Some((place, mut postgres, _store)) = Place::with_own_servers() else {
        return;
    };
    let (data, gate) = (DataDir::new(), DataDir::new());
    let cloud = start(&place, &data, &shell(&[], GATED, gate.path()));
    let id = cloud.build(&context("x"));
    cloud.wait_for(&id, "building");
    postgres.crash();
    let refused = cloud.get(&format!("/v1/builds/{id}"));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    assert_eq!(http::get(cloud.runner.addr, "/livez").status, 200);
    until("it was to be unready", || {
        let ready = http::get(cloud.runner.addr, "/readyz");
        ready.status == 503 && ready.json()["reason"] == "records"
    });
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    postgres.start_again();
    until("it was to be ready", || {
        http::get(cloud.runner.addr, "/readyz").status == 200
    });
    let done = cloud.wait_for(&id, "success");
    assert_eq!(done["id"], *id);
    assert_eq!(place.sql("SELECT attempt FROM build"), "1");
}

/// `cloud import`: keys, builds, logs, images and archives of a service on one machine are those of
/// replicas. Twice imports them once.
#[test]
fn a_data_directory_is_imported() {
    let Some(place) = Place::new() else { return };
    let (data, gate, worker) = (DataDir::new(), DataDir::new(), DataDir::new());
    let path = data.path().to_str().expect("folders of tests are UTF-8").to_owned();
    let import = ["cloud", "import", "--data-dir", &path];
    let refused = |words: &str| {
        let ran = TestRunner::run_with(&import, &place.variables());
        assert!(ran.code == Some(1) && ran.stderr.contains(words), "{}", ran.stderr);
    };
    refused("no service's data");
    let script = r#"cat bot.py; while [ ! -e "$0/go" ]; do sleep 0.02; done; echo image > "$BUILD_OUT/i""#;
    let made = TestRunner::run(&[
        "cloud",
        "keys",
        "create",
        "--type",
        "private",
        "--org",
        "team",
        "--data-dir",
        &path,
    ]);
    let key = made.stdout.trim();
    let mut cloud = TestCloud::start(&data, &shell(&[], script, gate.path()));
    let packed = context("print()");
    let upload = cloud.upload(&packed);
    let id = id_of(&cloud.create(&upload).json());
    cloud.wait_for(&id, "building");
    refused("another service has it");
    kill(&mut cloud);
    refused("1 builds have not ended");
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    let mut cloud = TestCloud::start(&data, &shell(&[], script, gate.path()));
    let before = cloud.wait_for(&id, "success");
    let log = cloud.log(&id);
    let kept = context("not built yet");
    let unused = cloud.upload(&kept);
    cloud.runner.signal("TERM");
    cloud.runner.wait();
    for _ in 0..2 {
        let ran = TestRunner::run_with(&import, &place.variables());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(ran.stdout, "imported 1 keys, 2 uploads, 1 builds\n");
    }
    let cloud = start(&place, &worker, &QUICK);
    let mut after = cloud.status(&id);
    for name in ["imageUri", "logsUrl"] {
        // They have the address of the service.
        after[name] = before[name].clone();
    }
    assert_eq!(after, before);
    assert_eq!(cloud.log(&id), log);
    assert_eq!(cloud.request("GET", "/v1/regions", key, b"").status, 200);
    let image = cloud.get(&format!("/v1/images/{id}/i"));
    assert_eq!(image.status, 302);
    assert!(
        place.objects("").contains(&format!("images/{id}/2/i")),
        "{:?}",
        place.objects("")
    );
    // The cache knows the archive, another build file is built of it, and so is what was not built.
    let hit = cloud.create(&upload);
    assert_eq!((hit.status, id_of(&hit.json())), (200, id));
    let other = json!({"uploadId": upload, "region": "local", "buildfilePath": "bot.py"});
    let other = id_of(&cloud.post("/v1/builds", &other).json());
    cloud.wait_for(&other, "success");
    let first = id_of(&cloud.create(&unused).json());
    assert_eq!(cloud.wait_for(&first, "success")["contextSizeBytes"], kept.len());
    assert_eq!(place.sql("SELECT COUNT(*) FROM build"), "3");
}

/// `cloud export`: keys, builds, logs, images, archives and regions of replicas are those of a
/// service on one machine.
#[test]
fn what_replicas_share_is_exported() {
    let Some(place) = Place::new() else { return };
    let (worker, data, gate) = (DataDir::new(), DataDir::new(), DataDir::new());
    let path = data.path().to_str().expect("folders of tests are UTF-8").to_owned();
    let export = || TestRunner::run_with(&["cloud", "export", "--data-dir", &path], &place.variables());
    let key = place.run(&["keys", "create", "--type", "private", "--org", "team"]);
    let regions = data.path().with_extension("json");
    let text = r#"{"regions":[{"code":"local","display_name":"Here"}]}"#;
    fs::write(&regions, text).expect("the folder is writable");
    place.run(&["migrate", "--regions", regions.to_str().expect("UTF-8")]);
    fs::remove_file(&regions).expect("it was written");
    let cloud = start(&place, &worker, &shell(&[], GATED, gate.path()));
    let upload = cloud.upload(&context("print()"));
    let id = id_of(&cloud.create(&upload).json());
    cloud.wait_for(&id, "building");
    let refused = export();
    assert!(
        refused.code == Some(1) && refused.stderr.contains("1 builds have not ended"),
        "{}",
        refused.stderr
    );
    assert!(!data.path().join("builds.db").exists());
    fs::write(gate.path().join("go"), "").expect("the folder is writable");
    let before = cloud.wait_for(&id, "success");
    let log = cloud.log(&id);
    let unused = cloud.upload(&context("not built yet"));
    drop(cloud);
    let exported = export();
    assert_eq!(exported.code, Some(0), "{}", exported.stderr);
    assert!(
        exported.stdout.starts_with("exported 1 keys, 2 uploads, 1 builds\n"),
        "{}",
        exported.stdout
    );
    let again = export();
    assert!(
        again.code == Some(1) && again.stderr.contains("another directory"),
        "{}",
        again.stderr
    );
    let regions = data.path().join("regions.json");
    assert_eq!(fs::read_to_string(&regions).expect("it is there"), text);
    let regions = regions.to_str().expect("UTF-8");
    let cloud = TestCloud::start(&data, &shell(&["--regions", regions], GATED, gate.path()));
    let mut after = cloud.status(&id);
    for name in ["imageUri", "logsUrl"] {
        // They have the address of the service.
        after[name] = before[name].clone();
    }
    assert_eq!(after, before);
    assert_eq!(cloud.log(&id), log);
    assert_eq!(cloud.get(&format!("/v1/images/{id}/bot.img")).text(), "image\n");
    let listed = cloud.request("GET", "/v1/regions", key.trim(), b"").json();
    assert_eq!(listed["regions"][0]["display_name"], "Here");
    let hit = cloud.create(&upload);
    assert_eq!((hit.status, id_of(&hit.json())), (200, id));
    let first = id_of(&cloud.create(&unused).json());
    cloud.wait_for(&first, "success");
}

/// A database without the schema, options that do not belong together, and secrets in arguments are
/// refused.
#[test]
fn a_replica_refuses_what_it_cannot_use() {
    let Some(place) = Place::new() else { return };
    let data = DataDir::new();
    let path = data.path().to_str().expect("folders of tests are UTF-8").to_owned();
    let serve = ["cloud", "serve", "--port", "0", "--data-dir", &path];
    // It serves with the schema of the next release too, and not with that after it.
    place.sql("UPDATE schema_version SET version = version + 1");
    drop(start(&place, &DataDir::new(), &[]));
    place.sql("UPDATE schema_version SET version = version + 1");
    let later = TestRunner::run_with(&serve, &place.variables());
    assert_eq!(later.code, Some(1));
    assert!(later.stderr.contains("a later release"), "{}", later.stderr);
    place.sql("DROP TABLE schema_version");
    let old = TestRunner::run_with(&serve, &place.variables());
    assert_eq!(old.code, Some(1));
    assert!(old.stderr.contains("cloud migrate"), "{}", old.stderr);
    for (args, words) in [
        (&["--database", "postgres://localhost/x"][..], "belong together"),
        (&["--store", "s3://bucket"], "belong together"),
        (&["--role", "api"], "--database"),
        (
            &[
                "--database",
                "postgres://u:hunter2@localhost/x",
                "--store",
                "s3://bucket",
            ],
            "CLOUD_DATABASE",
        ),
        (
            &[
                "--database",
                "postgres://db.example.net/x?sslmode=prefer",
                "--store",
                "s3://bucket",
            ],
            "sslmode",
        ),
        (
            &["--database", "postgres://localhost/x", "--store", "s3://bucket"],
            "AWS_ACCESS_KEY_ID",
        ),
    ] {
        let refused = TestRunner::run(&[&serve[..], args].concat());
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
        assert!(
            refused.stderr.contains(words) && !refused.stderr.contains("hunter2"),
            "{}",
            refused.stderr
        );
    }
    for (args, words) in [
        (&["--builder-env", "AWS_SECRET_ACCESS_KEY"][..], "credentials"),
        (&["--regions", "/regions.json"], "cloud migrate --regions"),
        (&["--role", "worker"], "builder command"),
    ] {
        let refused = TestRunner::run_with(&[&serve[..], args].concat(), &place.variables());
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
}

/// The password of the database and the credentials of the store are those of files, and a file
/// that is replaced counts without a restart. Nothing of them is logged.
#[test]
fn secrets_come_from_files_that_may_change() {
    let Some(place) = Place::new() else { return };
    // The server asks this role alone for a password.
    let role = format!("role_of_{}", place.database);
    let hba = place.sql("SHOW hba_file");
    let line = format!("host {} {role} 127.0.0.1/32 scram-sha-256", place.database);
    place.sql(&format!("CREATE ROLE {role} SUPERUSER LOGIN PASSWORD 'first of two'"));
    place.sql(&format!(
        "COPY (SELECT '{line}' UNION ALL SELECT 'host all cloud 127.0.0.1/32 trust') TO '{hba}'"
    ));
    place.sql("SELECT pg_reload_conf()");

    let data = DataDir::new();
    let written = |name: &str, content: &str| {
        let next = data.path().join("next");
        fs::write(&next, content).expect("the folder is writable");
        let path = data.path().join(name);
        fs::rename(next, &path).expect("the folder is writable");
        path.to_str().expect("folders of tests are UTF-8").to_owned()
    };
    let keys = |secret: &str| format!("[default]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {secret}\n");
    let password = written("password", "another one\n");
    let credentials = written("credentials", &keys(KEY_SECRET));
    let mut variables = place.variables();
    variables.retain(|(name, _)| !name.starts_with("AWS_"));
    let url = variables
        .iter()
        .find(|(name, _)| *name == "CLOUD_DATABASE")
        .expect("a URL")
        .1;
    let url = url.replace("cloud@", &format!("{role}@"));
    variables.extend([
        ("CLOUD_DATABASE", &*url),
        ("CLOUD_DATABASE_PASSWORD_FILE", &*password),
        ("AWS_SHARED_CREDENTIALS_FILE", &*credentials),
        ("RUST_LOG", "trace"),
    ]);
    until("the wrong password was to be refused", || {
        let listed = TestRunner::run_with(&["cloud", "keys", "list"], &variables);
        listed.code == Some(1) && listed.stderr.contains("password authentication failed")
    });
    written("password", "first of two\n");
    let own = DataDir::new();
    let cloud = TestCloud::start_with(&own, &["--role", "api"], &variables);
    let is_ready = |reason: Option<&str>| {
        until(&format!("/readyz was to have the reason {reason:?}"), || {
            let ready = http::get(cloud.runner.addr, "/readyz");
            (ready.status == 200) == reason.is_none() && ready.json()["reason"].as_str() == reason
        });
    };
    is_ready(None);
    cloud.upload(&context("x"));

    place.sql(&format!("ALTER ROLE {role} PASSWORD 'second of two'"));
    let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'");
    place.sql(&end);
    is_ready(Some("records"));
    let away = cloud.get("/v1/builds");
    assert_eq!(away.status, 503, "{}", away.text());
    written("password", "second of two");
    is_ready(None);

    written("credentials", &keys("another-secret"));
    is_ready(Some("store"));
    // What is no file of credentials changes nothing.
    written("credentials", &keys(KEY_SECRET));
    is_ready(None);
    written("credentials", "[default]\n");
    cloud.upload(&context("y"));
    cloud.runner.wait_for_log("it is to be a file with the lines");
    let log = cloud.runner.log();
    for hidden in ["first of two", "second of two", "another-secret", KEY_SECRET] {
        assert!(!log.contains(hidden), "{hidden:?} is in the log");
    }
}

/// Objects and records end together, and nothing is left.
#[test]
fn the_sweep_leaves_no_object_and_no_record() {
    let Some(place) = Place::new() else { return };
    let data = DataDir::new();
    let options = ["--keep-archives", "0.1", "--keep-builds", "0.1", "--grant-ttl", "3"];
    let cloud = start(&place, &data, &[&options, &QUICK[..]].concat());
    let _unused = cloud.grant();
    let _uploaded = cloud.upload(&context("never built"));
    let id = cloud.build(&context("x"));
    until("the build was to be swept", || {
        cloud.get(&format!("/v1/builds/{id}")).status == 404
    });
    until("the objects were to be swept", || place.objects("").is_empty());
    let left = "SELECT (SELECT COUNT(*) FROM build_log) + (SELECT COUNT(*) FROM build)";
    assert_eq!(place.sql(left), "0");
    until("the records were to be swept", || {
        place.sql("SELECT COUNT(*) FROM upload") == "0"
    });
}
