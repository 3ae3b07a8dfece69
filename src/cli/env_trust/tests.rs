//! Tests of which variables of a file are trusted.

use super::*;
use crate::proto::options::env;

fn read(text: &str, process: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let process = process
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut file = env::parse(text);
    restrict(&mut file, &process);
    let names = file.variables.into_iter().map(|line| line.name).collect();
    (names, file.warnings)
}

/// The file cannot run code in a child process, nor change whom programs trust or where their
/// connections go. A warning has the number and the name of the line.
#[test]
fn rejects_variables_that_load_code_or_redirect_connections() {
    for name in [
        "PATH",
        "HOME",
        "VIRTUAL_ENV",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "DYLD_INSERT_LIBRARIES",
        "GLIBC_TUNABLES",
        "GCONV_PATH",
        "OPENSSL_CONF",
        "BASH_ENV",
        "IFS",
        "NODE_OPTIONS",
        "NODE_PATH",
        "NODE_EXTRA_CA_CERTS",
        "NODE_TLS_REJECT_UNAUTHORIZED",
        "PYTHONSTARTUP",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONINSPECT",
        "PYTHONBREAKPOINT",
        "PYTHONWARNINGS",
        "PYTHONHTTPSVERIFY",
        "UV_INDEX_URL",
        "PIP_INDEX_URL",
        "npm_config_registry",
        "GIT_SSH_COMMAND",
        "XDG_CONFIG_HOME",
        "PERL5OPT",
        "RUBYOPT",
        "LUA_INIT_5_4",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "DOTNET_STARTUP_HOOKS",
        "ERL_AFLAGS",
        "GST_PLUGIN_PATH",
        "GIO_EXTRA_MODULES",
        "ALSA_CONFIG_PATH",
        "PULSE_SERVER",
        "RUNNER_TOOLS",
        "RUNNER_PYTHON",
        "RUNNER_ENV_FILE",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "SSLKEYLOGFILE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "AWS_CA_BUNDLE",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
        "HTTPX_SSL_VERIFY",
        "HTTPS_PROXY",
        "https_proxy",
        "all_proxy",
        "NO_PROXY",
        "NETRC",
        "DENO_CERT",
        "DENO_TLS_CA_STORE",
        "PGSSLROOTCERT",
        "PGSSLMODE",
        "DB_SSL_MODE",
        "GTK_MODULES",
        "TS_NODE_COMPILER",
        "TSX_TSCONFIG_PATH",
        "RUSTC_WRAPPER",
        "LESSOPEN",
        "ZDOTDIR",
        "BUNDLE_GEMFILE",
        "COMPOSER_HOME",
        "GOFLAGS",
        "MAVEN_OPTS",
        "VK_ICD_FILENAMES",
        "OCL_ICD_FILENAMES",
        "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES",
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "CONDA_PREFIX",
        "INPUTRC",
        "TMPDIR",
        "KUBECONFIG",
        "DOCKER_CONFIG",
        "SSH_ASKPASS",
        "GRADLE_OPTS",
        "EMACSLOADPATH",
        "MPLBACKEND",
    ] {
        let (names, warnings) = read(&format!("A=1\nexport {name}=hunter2\nB=2\n"), &[]);
        assert_eq!(names, ["A", "B"], "{name}");
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        assert!(warning.contains(&format!(": {name} (line 2) ")), "{warning}");
        assert!(warning.contains("`--env-file .env`"), "{warning}");
        assert!(!warning.contains("hunter2"), "{warning}");
    }
}

/// Every option that takes a command, whatever its name. A card of the file is taken.
#[test]
fn rejects_the_commands_of_options() {
    let takes_command = |flag: &&RunnerFlag| match flag.kind {
        FlagKind::Value(value, _) | FlagKind::Optional(value, _) | FlagKind::Repeatable(value, _) => {
            value.contains("COMMAND") || value.contains("PROGRAM")
        }
        _ => false,
    };
    let options: Vec<&RunnerFlag> = RUNNER.flags().filter(takes_command).collect();
    assert!(options.len() >= 5, "{}", options.len());
    for option in options {
        let name = option.long.trim_start_matches("--").replace('-', "_").to_uppercase();
        for value in ["evil", "./evil", "sh -c ./evil", "file:FILE=|./evil", "default -x"] {
            let line = format!("RUNNER_{name}={value}");
            assert_eq!(read(&line, &[]).0, [""; 0], "{line}");
        }
    }
    for device in ["default", "hw:1,0", "plughw:CARD=Jabra,DEV=0", "kernel:CARD=Jabra"] {
        for name in ["RUNNER_LOCAL_IN", "RUNNER_LOCAL_OUT"] {
            assert_eq!(read(&format!("{name}={device}"), &[]), (vec![name.to_owned()], vec![]));
        }
    }
}

/// What the `.env` files of Pipecat's examples and of bots have.
#[test]
fn takes_the_files_of_existing_bots() {
    let names = [
        "ANTHROPIC_API_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_PROFILE",
        "AZURE_SPEECH_API_KEY",
        "AZURE_SPEECH_REGION",
        "AZURE_CHATGPT_ENDPOINT",
        "AZURE_CHATGPT_MODEL",
        "CARTESIA_VOICE_ID",
        "DAILY_SAMPLE_ROOM_URL",
        "ELEVENLABS_VOICE_ID",
        "FAL_KEY",
        "GLADIA_REGION",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_TEST_CREDENTIALS",
        "GOOGLE_CLOUD_PROJECT_ID",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_VERTEX_TEST_CREDENTIALS",
        "HEYGEN_AVATAR_ID",
        "HUME_VOICE_ID",
        "KRISP_VIVA_MODEL_PATH",
        "LOCAL_SMART_TURN_MODEL_PATH",
        "LIVEKIT_URL",
        "LIVEKIT_API_SECRET",
        "MINIMAX_GROUP_ID",
        "OPENAI_API_VERSION",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_HEADERS",
        "PIPER_BASE_URL",
        "PLAYHT_USER_ID",
        "SENTRY_DSN",
        "SIMLI_FACE_ID",
        "TAVUS_REPLICA_ID",
        "TWILIO_ACCOUNT_SID",
        "WHATSAPP_PHONE_NUMBER_ID",
        "HF_TOKEN",
        "NGROK_AUTHTOKEN",
        "STT_SERVICE",
        "LOGURU_LEVEL",
        "LOG_LEVEL",
        "ENV",
        "SYSTEM_PROMPT",
        "BOT_NAME",
        "BOT_DATA_FOLDER",
        "MENU_OPERATOR",
        "MENU_PROMPT",
        "DATABASE_URL",
        "PGHOST",
        "VOICE_ID_2",
        "VOICE2",
        "PORT",
        "MODEL",
        "RESTAURANT",
        "SOMETHING",
    ];
    let text: String = names.iter().map(|name| format!("{name}=some text\n")).collect();
    assert_eq!(read(&text, &[]), (names.map(str::to_owned).into(), vec![]));
}

/// However many lines are rejected, there is one warning of a limited length.
#[test]
fn one_warning_names_the_rejected_lines() {
    let text: String = (0..100).map(|number| format!("LD_{number}=1\n")).collect();
    let (names, warnings) = read(&text, &[]);
    assert_eq!((names.len(), warnings.len()), (0, 1));
    let warning = &warnings[0];
    assert!(
        warning.contains("LD_0 (line 1) ") && warning.contains("LD_19 (line 20) "),
        "{warning}"
    );
    assert!(
        !warning.contains("LD_20") && warning.contains("; 80 more. "),
        "{warning}"
    );
}

/// Keeps harmless settings of interpreters, keys, and names that only resemble others.
#[test]
fn keeps_harmless_lines() {
    let names = [
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONIOENCODING",
        "PYTHONUTF8",
        "NODE_ENV",
        "GST_DEBUG",
        "ENV",
        "TZ",
        "LANG",
        "MALLOC_ARENA_MAX",
        "OPENAI_API_KEY",
        "DEEPGRAM_API_KEY",
        "CARTESIA_VOICE_ID",
        "AZURE_SPEECH_REGION",
        "KNOWLEDGE_BASE_ID",
        "MY_PATH",
        "PATH_TO_MODEL",
        "OLD_PRELOAD",
        "path",
        "RUNNER_PORT",
        "RUNNER_HOST",
        "RUNNER_PROXY",
        "RUNNER_MOQ_TLS_CERT",
        "VIDEOROOM_ROOM_URL",
    ];
    let text: String = names.iter().map(|name| format!("{name}=1\n")).collect();
    assert_eq!(
        read(&text, &[("PATH", "/bin"), ("ANTHROPIC_API_KEY", "hunter2")]),
        (names.map(str::to_owned).into(), vec![])
    );
}

/// A secret of the environment never goes to a host that the file names for a bot, whatever the
/// name of either. Without such a secret, the file may name hosts, as those of today do.
#[test]
fn rejects_hosts_of_bots_while_the_environment_has_a_secret() {
    let hosts = [
        ("OPENAI_BASE_URL", "https://evil.example/v1"),
        ("OPENAI_API_BASE", "evil.example"),
        ("AZURE_OPENAI_ENDPOINT", "evil.example"),
        ("GOOGLE_GEMINI_BASE_URL", "evil.example"),
        ("REDIS_HOST", "evil.example"),
        ("PGHOST", "evil.example"),
        ("AZURE_SPEECH_REGION", "evil.example/#"),
        ("SOMETHING", "wss://evil.example"),
    ];
    let secrets = [
        "OPENAI_API_KEY",
        "GEMINI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "DEEPGRAM_API_KEY_FILE",
        "db_password",
    ];
    for (name, value) in hosts {
        let line = format!("{name}={value}\n");
        for secret in secrets {
            let (names, warnings) = read(&line, &[(secret, "hunter2")]);
            assert_eq!(names, [""; 0], "{name} {secret}");
            let warning = &warnings[0];
            assert!(warning.contains(name) && warning.contains(secret), "{warning}");
            assert!(!warning.contains("hunter2") && !warning.contains("evil"), "{warning}");
        }
        let harmless = [
            ("OPENAI_API_KEY", " "),
            ("GPG_KEY", "A035"),
            ("TELNYX_PUBLIC_KEY", "x"),
            ("RUNNER_API_KEY", "x"),
            ("SSH_AUTH_SOCK", "/run/x"),
            ("TOKENIZERS_PARALLELISM", "true"),
        ];
        let both = format!("{line}OPENAI_API_KEY=x\n");
        assert_eq!(
            read(&both, &harmless),
            (vec![name.to_owned(), "OPENAI_API_KEY".to_owned()], vec![])
        );
    }
    // A URL of the runner itself gets its own secrets only, in a file of their names too.
    for (url, secret) in [
        ("REALTIME_URL", "REALTIME_API_KEY_FILE"),
        ("RUNNER_TOOLS", "TOOLS_API_KEY_FILE"),
        ("CASCADE_LLM_URL", "CASCADE_LLM_API_KEY_FILE"),
    ] {
        let line = format!("{url}=https://evil.example\n");
        assert_eq!(read(&line, &[(secret, "/etc/key")]).0, [""; 0], "{url}");
        assert_eq!(read(&line, &[("ANTHROPIC_API_KEY", "x")]).0, [url], "{url}");
    }
}

/// The runner's own options neither change whom it trusts, nor hand out what is not the file's.
#[test]
fn rejects_options_that_trust_others_or_hand_out_what_is_not_of_the_file() {
    for line in [
        "RUNNER_MOQ_TLS_INSECURE=true",
        "RUNNER_ACME_ROOT=evil.pem",
        "RUNNER_SETTINGS=page",
        "REALTIME_API_KEY_FILE=/root/.netrc",
        "TOOLS_API_KEY_FILE=../key",
        "CASCADE_LLM_API_KEY_FILE=a/../../key",
        "REALTIME_INSTRUCTIONS_FILE=/etc/passwd",
        "CASCADE_FUNCTIONS_FILE= /etc/x",
        "REALTIME_SESSION_FILE=/etc/x",
        "CLOUD_DATABASE_PASSWORD_FILE=/etc/x",
        "RUNNER_PAGE=/",
        "RUNNER_DOWNLOADS_FOLDER=/root",
        "RUNNER_BOT_FAILURE_WAV=/srv/calls/1.wav",
        "RUNNER_SANDBOX=false",
        "RUNNER_SANDBOX= Off",
    ] {
        let (names, warnings) = read(line, &[]);
        assert_eq!(names, [""; 0], "{line}");
        let (name, value) = line.split_once('=').expect("a line");
        assert!(
            warnings[0].contains(name) && !warnings[0].contains(value.trim()),
            "{warnings:?}"
        );
    }
    let relay = [("RUNNER_MOQ_CONNECT", "https://relay.example")];
    for (line, process) in [
        ("RUNNER_MOQ_TLS_CERT=relay.pem", &relay[..]),
        (
            "RUNNER_PASS_ENV=X,VIDEOROOM_API_KEY",
            &[("VIDEOROOM_API_KEY", "hunter2")],
        ),
        (
            "RUNNER_PASS_ENV=X TWILIO_AUTH_TOKEN",
            &[("TWILIO_AUTH_TOKEN", "hunter2")],
        ),
    ] {
        assert_eq!(read(line, process).0, [""; 0], "{line}");
    }
    for line in [
        "RUNNER_MOQ_TLS_CERT=own.pem",
        "RUNNER_PASS_ENV=VIDEOROOM_API_KEY",
        "REALTIME_API_KEY_FILE=keys/realtime..key",
        "RUNNER_API_KEY_FILE=/run/key",
        "DEEPGRAM_API_KEY_FILE=/run/key",
        "RUNNER_PAGE=./page",
        "RUNNER_BOT_FAILURE_WAV=sorry.wav",
        "RUNNER_SANDBOX=true",
    ] {
        let name = line.split_once('=').expect("a line").0.to_owned();
        assert_eq!(read(line, &[]), (vec![name], vec![]), "{line}");
    }
}

/// A service on this machine gets no secret that the machine does not have.
#[test]
fn hosts_of_this_machine_pass_beside_a_secret() {
    let secret = [("GITHUB_TOKEN", "hunter2")];
    for (value, passes) in [
        ("http://localhost:11434/v1", true),
        ("redis://127.0.0.1:6379/0", true),
        ("http://[::1]", true),
        ("localhost", true),
        ("postgresql+psycopg://localhost/bots", true),
        ("http://localhost.evil.example", false),
        ("http://localhost:1@evil.example", false),
        ("http://localhost/\\@evil.example", false),
        ("http://localhost:80evil", false),
        ("http://localhost,evil.example", false),
        ("http://evil.example/http://localhost", false),
        ("http://user@localhost", false),
        ("127.0.0.1.evil.example", false),
        ("http://[::1]evil", false),
    ] {
        for name in ["OLLAMA_URL", "REDIS_HOST"] {
            let found = read(&format!("{name}={value}\n"), &secret).0;
            assert_eq!(found.len(), usize::from(passes), "{name}={value}");
        }
    }
    // The runner's own pairs hold for this machine too: the secret is known.
    let line = "REALTIME_URL=http://localhost:1\n";
    assert_eq!(read(line, &[("REALTIME_API_KEY", "hunter2")]).0, [""; 0]);
}

/// The option and its variable name the file, in this order; words after `--` do not, nor do
/// those behind the file of a bot.
#[test]
fn finds_the_named_file() {
    let find = |words: &[&str], variable: Option<&str>| {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let variable = variable.map(|path| ("RUNNER_ENV_FILE".to_owned(), path.to_owned()));
        named_file(&words, &variable.into_iter().collect())
    };
    for (words, variable, found) in [
        (&["--port", "1"][..], None, None),
        (&["--env-file", "a"], Some("b"), Some("a")),
        (&["doctor", "--env-file=a b"], None, Some("a b")),
        (&["--env-file", "a", "--env-file", "c"], None, Some("c")),
        (&["--", "x", "--env-file", "a"], None, None),
        (&["bot.py", "--env-file", "a"], None, None),
        (&["doctor", "bot.py", "--env-file=a"], Some("b"), Some("b")),
        (&["--env-file", "a", "bot.py", "--env-file", "c"], None, Some("a")),
        (&["--env-file", "a.py", "bot.py"], None, Some("a.py")),
        (&["--tools", "a.py", "--env-file", "b"], None, Some("b")),
        (&["-vt", "a.py", "--env-file", "b"], None, Some("b")),
        (&["--folder", "a.py", "--env-file", "b"], None, Some("b")),
        (&["-ta", "a.py", "--env-file", "b"], None, None),
        (&["--tools=a", "a.py", "--env-file", "b"], None, None),
        (&["-v", "a.py", "--env-file", "b"], None, None),
        (&[], Some(" b "), Some("b")),
        (&[], Some(" "), None),
    ] {
        assert_eq!(find(words, variable), found.map(OsString::from), "{words:?}");
    }
}

/// A secret of the environment is never sent to a URL of the file, under any of their names.
#[test]
fn rejects_a_url_whose_secret_is_in_the_environment() {
    for (url, secret) in [
        ("TELCO_A_API_URL", "TELCO_A_AUTH_TOKEN"),
        ("TELCO_A_API_URL", "TWILIO_AUTH_TOKEN"),
        ("TELCO_B_API_URL", "TELNYX_API_KEY"),
        ("TELCO_C_API_URL", "PLIVO_AUTH_TOKEN"),
        ("VIDEOROOM_API_URL", "DAILY_API_KEY"),
        ("DAILY_API_URL", "VIDEOROOM_API_KEY"),
        ("MEDIAROOM_URL", "LIVEKIT_API_SECRET"),
        ("LIVEKIT_URL", "MEDIAROOM_API_KEY"),
        ("MESSAGING_API_URL", "WHATSAPP_TOKEN"),
        ("RUNNER_TOOLS", "TOOLS_API_KEY"),
        ("CLOUD_API_URL", "PIPECAT_CLOUD_API_KEY"),
        ("PIPECAT_API_HOST", "CLOUD_API_KEY"),
        ("CLOUD_DATABASE", "CLOUD_DATABASE_PASSWORD_FILE"),
    ] {
        let line = format!("{url}=https://evil.example\n");
        let (names, warnings) = read(&line, &[(secret, "hunter2")]);
        assert_eq!(names, [""; 0], "{url} {secret}");
        let warning = &warnings[0];
        assert!(
            warning.contains(url) && warning.contains(secret) && warning.contains("both in .env"),
            "{warning}"
        );
        assert!(!warning.contains("hunter2") && !warning.contains("evil"), "{warning}");
        for process in [&[][..], &[(secret, " ")], &[("OTHER", "x")]] {
            assert_eq!(read(&line, process), (vec![url.to_owned()], vec![]), "{process:?}");
        }
        let both = format!("{line}{secret}=x\n");
        assert_eq!(read(&both, &[]).0.len(), 2);
    }
}

/// A secret is withheld under each of its names, except for names in `--pass-env`.
#[test]
fn withholds_secrets_that_are_not_passed_by_name() {
    let read = |passed: &[&str]| {
        let passed: Vec<String> = passed.iter().map(|&text| text.to_owned()).collect();
        let mut warnings = Vec::new();
        withheld(&passed, &mut warnings).map(|names| (names, warnings))
    };
    let has = |names: &[String], name: &str| names.iter().any(|other| other == name);
    let (all, warnings) = read(&[]).expect("nothing wrong");
    assert_eq!(warnings, [""; 0]);
    for name in [
        "RUNNER_API_KEY",
        "TWILIO_AUTH_TOKEN",
        "PIPECAT_ICE_SERVERS",
        "DAILY_API_KEY",
        "MESSAGING_TOKEN",
        "WHATSAPP_APP_SECRET",
        "WHATSAPP_WEBHOOK_VERIFICATION_TOKEN",
    ] {
        assert!(has(&all, name), "{name}");
    }
    for name in ["TWILIO_ACCOUNT_SID", "LIVEKIT_API_KEY", "OPENAI_API_KEY", "RUNNER_PORT"] {
        assert!(!has(&all, name), "{name}");
    }
    let (fewer, warnings) = read(&["TWILIO_AUTH_TOKEN, DAILY_API_KEY", "LIVEKIT_API_SECRET"]).expect("names");
    assert_eq!((fewer.len(), warnings.len()), (all.len() - 3, 0));
    assert!(has(&fewer, "TELCO_A_AUTH_TOKEN") && !has(&fewer, "TWILIO_AUTH_TOKEN"));
    let (_, warnings) = read(&["OPENAI_API_KEY"]).expect("a name");
    assert!(warnings[0].contains("OPENAI_API_KEY"), "{warnings:?}");
    for bad in ["A=hunter2", "1A", "A B", "A-B"] {
        let message = read(&[bad]).expect_err("a usage error").to_string();
        assert!(
            message.contains("--pass-env") && !message.contains("hunter2"),
            "{message}"
        );
    }
}

#[test]
fn tables_have_canonical_names() {
    let names = modules::variables()
        .into_iter()
        .flat_map(|variable| [Some(variable.name), variable.sent_to]);
    for name in names
        .flatten()
        .chain(SECRETS.iter().copied())
        .chain([CLOUD_URL, CLOUD_KEY])
    {
        assert_eq!(aliases::canonical(Area::Variable, name), name);
    }
}
