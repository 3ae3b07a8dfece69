//! Tests of the command line of the cloud service.

use std::time::Duration;

use super::*;
use crate::config::{BuildTask, ClientTask, KeysTask};
use crate::proto::keys::KeyKind;
use edge_runner_proto::config::{Host, Tls};
use edge_runner_proto::features::Feature;

/// Parses the arguments after `cloud`, with the given variables.
fn parse_with(arguments: &[&str], variables: &[(&str, &str)]) -> Result<(CloudTask, Vec<String>), String> {
    let env = Env {
        names: vec!["Board".into()],
        read: &|path| match path {
            "regions.json" => Ok(r#"{"regions":[{"code":"a","display_name":"A"}]}"#.into()),
            "password" => Ok("hunter2 \u{e4}\n".into()),
            "credentials" => Ok("[default]\naws_access_key_id = AKIAX\naws_secret_access_key = s3cret\n".into()),
            "empty" => Ok(Vec::new()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        },
        ..Env::of_variables(variables)
    };
    match parse(arguments.iter().map(OsString::from).collect(), &env) {
        Ok(CloudCommand::Do { task, warnings }) => Ok((task, warnings)),
        Ok(other) => panic!("{arguments:?} are {other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

fn refused_with(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    parse_with(arguments, variables).expect_err("a refusal")
}

fn refused(arguments: &[&str]) -> String {
    refused_with(arguments, &[])
}

/// Returns the configuration of `serve --data-dir /d` with further arguments.
fn served(arguments: &[&str], variables: &[(&str, &str)]) -> (CloudConfig, Vec<String>) {
    let all = [&["serve", "--data-dir", "/d"], arguments].concat();
    match parse_with(&all, variables) {
        Ok((CloudTask::Serve(config), warnings)) => (*config, warnings),
        other => panic!("{arguments:?}: {other:?}"),
    }
}

const KEY: &str = "sk_0123456789abcdef";
const ASKS: [&str; 4] = ["--api-url", "http://127.0.0.1:7870", "--api-key", KEY];

fn client(arguments: &[&str]) -> ClientConfig {
    match parse_with(&[arguments, &ASKS].concat(), &[]) {
        Ok((CloudTask::Client(config), _)) => *config,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

fn build(arguments: &[&str]) -> BuildTask {
    match client(&[&["build", "dir"], arguments].concat()).task {
        ClientTask::Build(task) => *task,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

/// I-01: the documented defaults.
#[test]
fn the_service_has_the_documented_defaults() {
    let (config, warnings) = served(&[], &[]);
    assert_eq!(
        (config.host, config.port, config.tls),
        (Host::Localhost, 7870, Tls::Off)
    );
    assert_eq!((config.public_url, config.regions, config.command), (None, None, None));
    assert_eq!(config.org.as_str(), "default");
    assert_eq!(config.grant_ttl, Duration::from_secs(900));
    assert_eq!((config.context_max, config.unpacked_max), (524_288_000, 2 << 30));
    assert_eq!((config.entries_max, config.uploads_max), (100_000, 32));
    assert_eq!(
        (config.builds_max, config.pending_max, config.attempts_max),
        (2, 100, 3)
    );
    assert_eq!(config.build_timeout, Duration::from_secs(1200));
    assert_eq!(config.build_grace, Duration::from_secs(10));
    assert_eq!(config.keep_archives, Some(Duration::from_secs(86_400)));
    assert_eq!(config.keep_builds, Some(Duration::from_secs(2_592_000)));
    assert_eq!(config.free_min, 1 << 30);
    assert!(config.keys.is_empty() && config.store_key.is_none() && config.builder_env.is_empty());
    assert_eq!(warnings, Vec::<String>::new());
}

/// Options of every form from arguments and variables; arguments win, and the builder command
/// follows `--`.
#[test]
fn serve_parses_sizes_times_and_a_command() {
    let arguments = [
        "--grant-ttl=0.5",
        "--max-context=1k",
        "--max-unpacked=3M",
        "--min-free=0",
        "--keep-archives=0",
        "--keep-builds=1.25",
        "--build-grace=0",
        "--builder-env=TOKEN",
        "--builder-env",
        "EMPTY",
        "--builder-env=ABSENT",
        "--",
        "make",
        "--image",
    ];
    let variables = [
        ("CLOUD_MAX_BUILDS", "7"),
        ("CLOUD_MIN_FREE", "5g"),
        ("TOKEN", " two words "),
        ("EMPTY", ""),
        ("PATH", "/bin"),
    ];
    let (config, warnings) = served(&arguments, &variables);
    assert_eq!(config.grant_ttl, Duration::from_millis(500));
    assert_eq!(
        (config.context_max, config.unpacked_max, config.free_min),
        (1024, 3 << 20, 0)
    );
    assert_eq!(config.keep_archives, None);
    assert_eq!(config.keep_builds, Some(Duration::from_millis(1250)));
    assert_eq!((config.build_grace, config.builds_max), (Duration::ZERO, 7));
    assert_eq!(config.command, Some(vec!["make".into(), "--image".into()]));
    let handed = [("TOKEN", " two words "), ("EMPTY", "")].map(|(name, value)| (name.into(), value.into()));
    assert_eq!(config.builder_env, handed);
    assert_eq!((config.path, config.lang), ("/bin".into(), None));
    assert!(
        warnings.len() == 1 && warnings[0].contains("--builder-env ABSENT"),
        "{warnings:?}"
    );
}

/// I-02: a usage error names the valid form.
#[test]
fn serve_rejects_invalid_options() {
    let message = refused(&["serve"]);
    assert!(
        message.contains("--data-dir DIR") && message.contains("CLOUD_DATA_DIR"),
        "{message}"
    );
    for (arguments, part) in [
        (&["--port=x"][..], "`--port` takes a number from 0 to 65535"),
        (&["--grant-ttl=0"], "from 0.001 to 86400"),
        (&["--grant-ttl=86401"], "from 0.001 to 86400"),
        (&["--grant-ttl=1e3"], "seconds"),
        (&["--grant-ttl=."], "seconds"),
        (&["--grant-ttl=inf"], "seconds"),
        (&["--grant-ttl=-1"], "seconds"),
        (&["--max-context=0"], "a number of bytes"),
        (&["--max-context=1t"], "a number of bytes"),
        (&["--max-context=k"], "a number of bytes"),
        (&["--max-context=1.5g"], "a number of bytes"),
        (&["--max-context=99999999999999999999"], "a number of bytes"),
        (&["--max-context=18014398509481984k"], "a number of bytes"),
        (&["--max-uploads=129"], "from 1 to 128"),
        (&["--max-builds=0"], "from 1 to 64"),
        (&["--max-attempts=0"], "from 1 to 100"),
        (&["--org=a/b"], "letters, digits"),
        (&["--org=.."], "letters, digits"),
        (&["--public-url=https://a.net/v1"], "without a path"),
        (&["--public-url=a.net"], "scheme and host"),
        (&["--builder-env=CLOUD_STORE_SECRET"], "neither begins with CLOUD_"),
        (&["--builder-env=PIPECAT_CLOUD_API_KEY"], "neither begins with CLOUD_"),
        (&["--builder-env=BUILD_ID"], "neither begins with CLOUD_"),
        (&["--builder-env=HOME"], "set for every command"),
        (
            &["--builder-env=A=B"],
            "the name of a variable, a name alone, without its value",
        ),
        (&["--host=unknown"], "`--host` takes"),
        (&["--nothing"], "there is no option `--nothing`"),
        (&["context"], "`context` is not an option"),
        (&["--"], "needs a command after it"),
        (&["--", ""], "needs a command after it"),
    ] {
        let message = refused(&[&["serve", "--data-dir=/d"], arguments].concat());
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
    // A value instead of a name is most likely a secret.
    for (arguments, variables) in [
        (
            &["serve", "--data-dir=/d", "--builder-env", "TOKEN=hunter2"][..],
            &[][..],
        ),
        (
            &["serve", "--data-dir=/d"],
            &[("CLOUD_BUILDER_ENV", "OTHER,TOKEN=hunter2")],
        ),
    ] {
        let message = refused_with(arguments, variables);
        assert!(
            message.contains("a name alone") && !message.contains("hunter2"),
            "{message}"
        );
    }
    let message = refused_with(&["serve", "--data-dir=/d"], &[("CLOUD_MAX_BUILDS", "many")]);
    assert!(message.contains("`CLOUD_MAX_BUILDS` takes a number"), "{message}");
    let message = refused_with(&["serve", "--data-dir=/d"], &[("CLOUD_STORE", "s3://b")]);
    assert!(message.contains("(set by CLOUD_STORE)"), "{message}");
}

/// I-03: a key has one organization and one type. I-05: grants are signed with a pair. No error
/// repeats a secret.
#[test]
fn keys_and_secrets_come_from_variables_and_are_not_repeated() {
    let (private, public) = (format!("{KEY}, acme={KEY}2,"), "pk_0123456789abcdef");
    let variables = [
        ("CLOUD_PRIVATE_KEYS", &*private),
        ("CLOUD_PUBLIC_KEYS", public),
        ("CLOUD_STORE_KEY_ID", "SKEXAMPLE01"),
        ("CLOUD_STORE_SECRET", "store-secret-for-tests"),
    ];
    let (config, _) = served(&["--org", "home"], &variables);
    let message: Vec<_> = config
        .keys
        .iter()
        .map(|key| (key.kind, key.org.as_str(), key.key.expose()))
        .collect();
    let second = format!("{KEY}2");
    assert_eq!(
        message,
        [
            (KeyKind::Private, "home", KEY),
            (KeyKind::Private, "acme", &*second),
            (KeyKind::Public, "home", public)
        ]
    );
    let store = config.store_key.expect("a pair");
    assert_eq!(
        (&*store.id, store.secret.expose()),
        ("SKEXAMPLE01", &b"store-secret-for-tests"[..])
    );

    let long = "k".repeat(257);
    for bad in [
        "fifteen-letters",
        "sixteen letters!",
        "a=b=0123456789abcdef",
        "a/b=0123456789abcdef",
        &long,
    ] {
        for variable in ["CLOUD_PRIVATE_KEYS", "CLOUD_PUBLIC_KEYS"] {
            let message = refused_with(&["serve", "--data-dir=/d"], &[(variable, bad)]);
            assert!(message.contains(variable) && message.contains("16 to 256"), "{message}");
            assert!(!message.contains(bad), "{message}");
        }
    }
    for (private, public) in [(format!("{KEY},x={KEY}"), String::new()), (KEY.into(), KEY.into())] {
        let twice = [("CLOUD_PRIVATE_KEYS", &*private), ("CLOUD_PUBLIC_KEYS", &*public)];
        let message = refused_with(&["serve", "--data-dir=/d"], &twice);
        assert!(message.contains("twice") && !message.contains(KEY), "{message}");
    }
    for (id, secret, part) in [
        ("SK1", "", "CLOUD_STORE_SECRET"),
        ("", "store-secret-for-tests", "CLOUD_STORE_KEY_ID"),
        ("SK/1", "store-secret-for-tests", "letters and digits"),
        ("SK1", "short-secret", "16 to 256"),
    ] {
        let pair = [("CLOUD_STORE_KEY_ID", id), ("CLOUD_STORE_SECRET", secret)];
        let message = refused_with(&["serve", "--data-dir=/d"], &pair);
        assert!(message.contains(part) && !message.contains("-secret"), "{message}");
    }
}

#[test]
fn the_certificate_covers_this_machine_and_the_public_name() {
    assert_eq!(served(&[], &[]).0.host_names, ["board"]);
    let (config, _) = served(&["--public-url", "https://Builds.example.net:8443/"], &[]);
    assert_eq!(config.public_url.as_deref(), Some("https://builds.example.net:8443"));
    assert_eq!(config.host_names, ["board", "builds.example.net"]);
}

#[test]
fn plain_http_beyond_loopback_is_warned_about() {
    let warned = |arguments: &[&str]| !served(arguments, &[]).1.is_empty();
    assert!(warned(&["--host=0.0.0.0"]) && warned(&["--host=192.0.2.5"]));
    assert!(!warned(&["--host=127.0.0.1"]) && !warned(&["--host=::1"]));
    assert!(!warned(&["--host=0.0.0.0", "--tls=a.pem:b.pem"]));
    // A misspelt variable.
    let typos = served(
        &[],
        &[("CLOUD_MAX_BULDS", "1"), ("CLOUD_WAIT", "true"), ("CLOUDSDK_X", "1")],
    )
    .1;
    assert!(typos.len() == 1 && typos[0].contains("CLOUD_MAX_BUILDS"), "{typos:?}");
}

/// I-03: the subcommands of `cloud keys` and their errors.
#[test]
fn keys_are_made_listed_and_revoked() {
    let task = |arguments: &[&str]| match parse_with(arguments, &[("CLOUD_DATA_DIR", "/d")]) {
        Ok((CloudTask::Keys(config), _)) => {
            assert_eq!(config.data_dir.as_os_str(), "/d");
            config.task
        }
        other => panic!("{arguments:?}: {other:?}"),
    };
    let made = task(&["keys", "create", "--type=public", "--org=acme", "--name", "for CI"]);
    assert!(
        matches!(&made, KeysTask::Create { kind: KeyKind::Public, org, name: Some(name) }
            if org.as_str() == "acme" && name == "for CI"),
        "{made:?}"
    );
    assert!(matches!(
        task(&["keys", "create", "--type", "private"]),
        KeysTask::Create { kind: KeyKind::Private, org, name: None } if org.as_str() == "default"
    ));
    assert!(matches!(
        task(&["keys", "list", "--json"]),
        KeysTask::List { json: true }
    ));
    assert!(matches!(task(&["keys", "revoke", "k1"]), KeysTask::Revoke(id) if id == "k1"));
    for (arguments, part) in [
        (&["keys", "create", "--data-dir=/d"][..], "--type private"),
        (&["keys", "create", "--type=secret"], "`private` or `public`"),
        (&["keys", "create", "--type=public"], "--data-dir DIR"),
        (&["keys", "create", "--type=public", "--name=a\nb"], "one line"),
        (&["keys", "list"], "--data-dir DIR"),
        (&["keys", "revoke", "--data-dir=/d"], "needs its ID"),
        (&["keys", "revoke", "a", "b"], "unexpected argument `b`"),
        (&["keys", "frob"], "there is no `cloud keys frob`"),
        (&["keys"], "there is no `cloud keys`"),
        (&["frob", "--secret"], "there is no `cloud frob`; there are `serve`"),
        (&["frob", "-v"], "there is no `cloud frob`; there are `serve`"),
        (&[], "needs one of `serve`"),
        (
            &["keys", "list", "extra"],
            "unexpected argument `extra`: `cloud keys list` takes options only",
        ),
        (
            &["regions", "extra"],
            "unexpected argument `extra`: `cloud regions` takes options only",
        ),
        (
            &["-v", "regions"],
            "options follow the command, which is one of `serve`",
        ),
        (&["--api-key=hunter2", "regions"], "options follow the command"),
        (&["--api-url", "https://a.net", "regions"], "options follow the command"),
        (&["keys", "--data-dir", "/d", "list"], "options follow the command"),
    ] {
        let message = refused(arguments);
        assert!(message.contains(part), "{arguments:?}: {message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}

/// I-26: `/v1` is added to a URL without it.
#[test]
fn the_client_needs_a_url_and_a_key() {
    for (args, base) in [
        ("http://a.net", "http://a.net/v1"),
        ("https://A.net:8443//", "https://a.net:8443/v1"),
        ("https://a.net/v1/", "https://a.net/v1"),
        ("https://a.net/builds", "https://a.net/builds/v1"),
        (
            "https://a.net/v1/organizations/acme",
            "https://a.net/v1/organizations/acme",
        ),
    ] {
        let Ok((CloudTask::Client(config), _)) = parse_with(&["regions", "--api-url", args, "--api-key", KEY], &[])
        else {
            panic!("{args}");
        };
        assert_eq!((&*config.base, config.key.expose()), (base, KEY));
    }
    let warned = |url: &str| {
        !parse_with(&["regions", "--api-url", url, "--api-key", KEY], &[])
            .expect("a client")
            .1
            .is_empty()
    };
    assert!(warned("http://a.net") && !warned("https://a.net") && !warned("http://[::1]:1"));
    for (url, key) in [
        ("CLOUD_API_URL", "CLOUD_API_KEY"),
        ("PIPECAT_API_HOST", "PIPECAT_CLOUD_API_KEY"),
    ] {
        let variables = [(url, "https://a.net"), (key, KEY)];
        let Ok((CloudTask::Client(config), _)) = parse_with(&["regions", "--json"], &variables) else {
            panic!("{url}");
        };
        assert_eq!((&*config.base, config.json), ("https://a.net/v1", true));
    }
    let missing = refused(&["regions", "--api-key", KEY]);
    assert!(
        missing.contains("`--api-url`") && missing.contains("PIPECAT_API_HOST"),
        "{missing}"
    );
    let missing = refused(&["regions", "--api-url=https://a.net"]);
    assert!(
        missing.contains("`--api-key`") && missing.contains("CLOUD_API_KEY"),
        "{missing}"
    );
    for bad in ["ftp://a.net", "a.net", "https://user@a.net", "https://a.net/?q"] {
        let message = refused(&["regions", "--api-key", KEY, "--api-url", bad]);
        assert!(message.contains("the address of a service"), "{message}");
    }
    let message = refused(&["regions", "--api-url=https://a.net", "--api-key=sixteen letters!"]);
    assert!(
        message.contains("16 to 512") && !message.contains("sixteen"),
        "{message}"
    );
}

/// I-27: the options of `cloud build` and their errors.
#[test]
fn a_build_has_a_folder_a_build_file_and_a_wait() {
    let task = build(&[]);
    assert_eq!((task.dir.to_str(), &*task.file), (Some("dir"), "Dockerfile"));
    assert!(task.region.is_none() && task.exclude.is_empty() && task.wait.is_none() && !task.follow_links);
    assert!(build(&["--follow-links"]).follow_links);
    let task = build(&[
        "--region=eu",
        "--exclude=a",
        "--exclude",
        "b,c",
        "--wait",
        "--buildfile=./docker//Buildfile",
    ]);
    assert_eq!(
        (task.region.expect("a region").as_str(), &*task.file),
        ("eu", "docker/Buildfile")
    );
    assert_eq!(task.exclude, ["a", "b,c"]);
    let wait = task.wait.expect("a wait");
    assert_eq!(
        (wait.poll, wait.timeout),
        (Duration::from_secs(10), Duration::from_secs(1800))
    );
    let wait = build(&["--wait", "--poll=0.25", "--timeout", "0"])
        .wait
        .expect("a wait");
    assert_eq!((wait.poll, wait.timeout), (Duration::from_millis(250), Duration::ZERO));
    let long = "f".repeat(256);
    for bad in [
        "",
        ".",
        "/Dockerfile",
        "../Dockerfile",
        "a/../b",
        "a/..",
        "a/",
        "./-f",
        "a\n",
        &long,
    ] {
        let message = refused(&[&["build", "dir", "--buildfile", bad], &ASKS[..]].concat());
        assert!(message.contains("`--buildfile` takes"), "{bad}: {message}");
    }
    for (arguments, part) in [
        (&["build"][..], "`cloud build` needs its DIR: cloud build DIR"),
        (&["build", ""], "needs its DIR"),
        (&["build", "a", "b"], "unexpected argument `b`: only one DIR is allowed"),
        (&["build", "a", "--poll=5"], "`--poll` has no effect without `--wait`"),
        (&["build", "a", "--wait", "--poll=0"], "from 0.1"),
        (&["build", "a", "--region=a/b"], "`--region` takes"),
        (&["build", "a", "--", "make"], "takes no command after `--`"),
    ] {
        let message = refused(&[&ASKS[..], arguments].concat().split_off(ASKS.len()));
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
}

#[test]
fn status_and_logs_take_a_build_id() {
    assert!(matches!(client(&["status", "a/b"]).task, ClientTask::Status(id) if id == "a/b"));
    assert!(matches!(
        client(&["logs", "x"]).task,
        ClientTask::Logs { limit: None, .. }
    ));
    assert!(matches!(
        client(&["logs", "--limit", "3", "x"]).task,
        ClientTask::Logs { limit: Some(3), .. }
    ));
    for bad in ["", ".", ".."] {
        assert!(
            refused(&[&["status", bad], &ASKS[..]].concat()).contains("is not a build id"),
            "{bad:?}"
        );
    }
    assert!(refused(&["logs", "--limit=0", "x"]).contains("`--limit` takes a number from 1"));
}

/// The password of the database and the credentials of the store may be those of files, which a
/// worker's commands could read.
#[test]
fn secrets_of_several_machines_come_from_files() {
    if !Feature::Scale.in_this_build() {
        return;
    }
    let place = [
        ("CLOUD_DATABASE", "postgres://u@db.example.net/x"),
        ("CLOUD_STORE", "s3://bucket"),
    ];
    let files = [
        ("CLOUD_DATABASE_PASSWORD_FILE", "password"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
    ];
    let all = [place, files].concat();
    let (config, warnings) = served(&["--role", "api"], &all);
    assert_eq!(warnings, Vec::<String>::new());
    let shared = config.shared.expect("replicas share something");
    let (password, file) = shared.database.password.clone().expect("a password");
    assert_eq!((password.expose(), file.to_str()), ("hunter2 \u{e4}", Some("password")));
    let keys = &shared.credentials;
    assert_eq!(
        (&*keys.at_start.id, keys.at_start.secret.expose()),
        ("AKIAX", &b"s3cret"[..])
    );
    assert_eq!(keys.file.as_deref(), Some(std::path::Path::new("credentials")));
    assert!(!format!("{shared:?}").contains("hunter2") && !format!("{shared:?}").contains("s3cret"));

    let (_, warnings) = served(&["--", "build"], &all);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    for (name, _) in files {
        assert!(
            warnings
                .iter()
                .any(|warning| warning.starts_with(&format!("{name}: builder commands"))),
            "{warnings:?}"
        );
    }
    for (variables, part) in [
        (
            vec![place[1], files[0], files[1], ("CLOUD_DATABASE", "postgres://u:p@h/x")],
            "CLOUD_DATABASE and CLOUD_DATABASE_PASSWORD_FILE both have a password",
        ),
        (
            [&all[..], &[("AWS_ACCESS_KEY_ID", "A")]].concat(),
            "AWS_ACCESS_KEY_ID and AWS_SHARED_CREDENTIALS_FILE both have credentials",
        ),
        (
            vec![
                place[0],
                place[1],
                files[1],
                ("CLOUD_DATABASE_PASSWORD_FILE", "hunter3"),
            ],
            "CLOUD_DATABASE_PASSWORD_FILE: reading the file that it names",
        ),
        (
            vec![place[0], place[1], files[1], ("CLOUD_DATABASE_PASSWORD_FILE", "empty")],
            "`CLOUD_DATABASE_PASSWORD_FILE` takes a file whose first line is the password",
        ),
        (
            vec![place[0], place[1], ("AWS_SHARED_CREDENTIALS_FILE", "password")],
            "`AWS_SHARED_CREDENTIALS_FILE` takes a file with the lines `[default]`",
        ),
    ] {
        let message = refused_with(&["serve", "--data-dir", "/d"], &variables);
        assert!(message.contains(part) && !message.contains("hunter"), "{message}");
    }
}

fn help(arguments: &[&str]) -> String {
    let env = Env::of_variables::<&str, &str>(&[]);
    match parse(arguments.iter().map(OsString::from).collect(), &env) {
        Ok(CloudCommand::Help(text)) => text,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

/// The help texts are kept in a golden file, so that review sees their changes. To renew it: `for c
/// in '' serve 'keys create' 'keys list' 'keys revoke' migrate import build status logs regions; do
/// printf '\n==== cloud %s\n' "$c"; cargo run -q --features scale -- cloud $c --help; done >
/// tests/data/help-cloud.txt`. The file is that of a build with the options of several machines.
#[test]
fn the_help_is_the_golden_file() {
    let mut all = String::new();
    let overview = ("", help(&["--help"]));
    let each = SUBCOMMANDS
        .iter()
        .map(|subcommand| (subcommand, [subcommand.words, &["--help"]].concat()));
    let each: Vec<(String, String)> = each
        .map(|(subcommand, words)| (subcommand.name(), help(&words)))
        .collect();
    let each = each.iter().map(|(name, text)| (&**name, text.clone()));
    for (name, text) in std::iter::once(overview).chain(each) {
        for line in text.lines() {
            let one_word = line.split_whitespace().count() == 1;
            assert!(line.chars().count() <= 100 || one_word, "{line}");
            assert_eq!(line, line.trim_end());
        }
        all.push_str(&format!("\n==== cloud {name}\n{text}"));
    }
    if Feature::Scale.in_this_build() {
        assert_eq!(all, include_str!("../../../tests/data/help-cloud.txt"));
    }
}

#[test]
fn every_table_is_in_order() {
    for table in flags::TABLES {
        for (i, flag) in table.flags().enumerate() {
            assert!(
                flag.long.starts_with("--") && flag.help.ends_with(['.', ']']),
                "{}",
                flag.long
            );
            assert!(flags::GROUPS.contains(&flag.group), "{}", flag.long);
            for other in table.flags().skip(i + 1) {
                assert_ne!(flag.long, other.long);
                assert!(flag.short.is_none() || flag.short != other.short, "{}", other.long);
            }
        }
    }
    assert!(
        SUBCOMMANDS
            .iter()
            .all(|subcommand| flags::TABLES.iter().any(|table| std::ptr::eq(*table, subcommand.table)))
    );
    assert_eq!(
        help_of(&["cloud".into(), "keys".into(), "list".into()]),
        "edge-runner cloud keys list --help"
    );
    assert_eq!(help_of(&["cloud".into(), "x".into()]), "edge-runner cloud --help");
}
