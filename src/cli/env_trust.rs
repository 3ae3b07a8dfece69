//! Restricts a `.env` file: it cannot change which programs run, nor redirect the secrets of
//! others.
//!
//! Also lists the runner's variables that child programs do not inherit, because they are secrets
//! of the runner.
//!
//! In: the variables of the file and those of the process. Out: the file without the rejected
//! lines. Each rejected line adds a warning with its number and name, never with its value. Two
//! kinds of lines are rejected. The first sets a variable that changes how programs are loaded or
//! started: anything that can write to the working directory (a bot, a cloned repository) could run
//! code in every child process. The second sets the URL of a provider while the process sets the
//! secret that is sent there: both must come from the same place. Source: `unsecvars.h` of glibc,
//! ld.so(8), and the manuals of the interpreters.

use std::collections::BTreeMap;

use super::UsageError;
use crate::aliases::{self, Area};
use crate::config::ServiceUrl;
use crate::proto::options::env::{EnvFile, EnvLine};
use crate::proto::telephony::settings::{Holds, Setting};
use crate::proto::telephony::{PROVIDERS, Provider};

/// Variables that change what a program loads or runs at its start, and their effect.
const LOADERS: &[(&str, &str)] = &[
    ("PATH", "determines which programs run"),
    // glibc ignores these in setuid programs.
    ("GCONV_PATH", "loads code into every program"),
    ("GETCONF_DIR", "determines which programs run"),
    ("GLIBC_TUNABLES", "changes the C library"),
    ("LOCPATH", "changes the C library"),
    ("NLSPATH", "changes the C library"),
    ("HOSTALIASES", "redirects host names"),
    ("LOCALDOMAIN", "redirects host names"),
    ("RES_OPTIONS", "redirects host names"),
    ("RESOLV_HOST_CONF", "redirects host names"),
    ("OPENSSL_CONF", "loads code into programs with OpenSSL"),
    ("OPENSSL_ENGINES", "loads code into programs with OpenSSL"),
    ("OPENSSL_MODULES", "loads code into programs with OpenSSL"),
    ("SHELLOPTS", "changes how shells start"),
    ("BASHOPTS", "changes how shells start"),
    ("BASH_ENV", "runs code in every shell"),
    ("IFS", "changes how shells read"),
    ("PS4", "runs code in shells"),
    ("PROMPT_COMMAND", "runs code in shells"),
    ("BROWSER", "determines which programs run"),
    ("NODE_OPTIONS", "loads code into Node.js"),
    ("NODE_PATH", "loads code into Node.js"),
    ("NODE_REPL_EXTERNAL_MODULE", "loads code into Node.js"),
    ("BUN_OPTIONS", "loads code into Bun"),
    ("PYTHONSTARTUP", "runs code in Python"),
    ("PYTHONPATH", "loads code into Python"),
    ("PYTHONHOME", "loads code into Python"),
    ("PYTHONPLATLIBDIR", "loads code into Python"),
    ("PYTHONUSERBASE", "loads code into Python"),
    ("PYTHONPYCACHEPREFIX", "loads code into Python"),
    ("PYTHONEXECUTABLE", "changes how Python starts"),
    ("PYTHONINSPECT", "changes how Python starts"),
    ("PYTHONBREAKPOINT", "runs code in Python"),
    ("PERL5OPT", "loads code into Perl"),
    ("PERL5LIB", "loads code into Perl"),
    ("PERLLIB", "loads code into Perl"),
    ("PERL5DB", "runs code in Perl"),
    ("RUBYOPT", "loads code into Ruby"),
    ("RUBYLIB", "loads code into Ruby"),
    ("GEM_HOME", "loads code into Ruby"),
    ("GEM_PATH", "loads code into Ruby"),
    ("PHPRC", "loads code into PHP"),
    ("PHP_INI_SCAN_DIR", "loads code into PHP"),
    ("JAVA_TOOL_OPTIONS", "loads code into Java"),
    ("JDK_JAVA_OPTIONS", "loads code into Java"),
    ("_JAVA_OPTIONS", "loads code into Java"),
    ("CLASSPATH", "loads code into Java"),
    ("DOTNET_STARTUP_HOOKS", "loads code into .NET"),
    ("R_PROFILE", "runs code in R"),
    ("R_PROFILE_USER", "runs code in R"),
    ("R_ENVIRON", "runs code in R"),
    ("R_ENVIRON_USER", "runs code in R"),
];

/// Prefixes of such variables.
const LOADER_PREFIXES: &[(&str, &str)] = &[
    ("LD_", "loads code into every program"),
    ("DYLD_", "loads code into every program"),
    ("LUA_", "loads code into Lua"),
    ("CORECLR_", "loads code into .NET"),
    ("COR_", "loads code into .NET"),
    ("ERL_", "runs code in Erlang"),
];

/// URL variables, each with the variables of the secrets sent to that URL, by canonical names.
/// Telephony providers list theirs in their own tables.
const PAIRS: &[(&str, &[&str])] = &[
    ("VIDEOROOM_API_URL", &["VIDEOROOM_API_KEY"]),
    ("MEDIAROOM_URL", &["MEDIAROOM_API_SECRET", "MEDIAROOM_API_KEY"]),
    ("MESSAGING_API_URL", &["MESSAGING_TOKEN"]),
    ("REALTIME_URL", &["REALTIME_API_KEY"]),
    ("RUNNER_TOOLS", &["TOOLS_API_KEY"]),
    ("CASCADE_STT_URL", &["CASCADE_STT_API_KEY"]),
    ("CASCADE_LLM_URL", &["CASCADE_LLM_API_KEY"]),
    ("CASCADE_TTS_URL", &["CASCADE_TTS_API_KEY"]),
    ("CLOUD_API_URL", &["CLOUD_API_KEY"]),
];

/// Variables of the runner that are or may contain a secret, by canonical names.
const SECRETS: &[&str] = &[
    "RUNNER_API_KEY",
    "RUNNER_ICE_SERVERS",
    // The arguments that the systemd unit adds, which may include `--api-key`.
    "RUNNER_ARGS",
];

/// Variables with secrets of providers, by canonical names. Telephony providers list theirs in
/// their own tables.
const OTHER_SECRETS: &[&str] = &[
    "VIDEOROOM_API_KEY",
    "VIDEOROOM_DIALIN_HMAC",
    "MEDIAROOM_API_SECRET",
    "MESSAGING_TOKEN",
    "MESSAGING_APP_SECRET",
    "MESSAGING_WEBHOOK_VERIFICATION_TOKEN",
    "REALTIME_API_KEY",
    "TOOLS_API_KEY",
    "CASCADE_STT_API_KEY",
    "CASCADE_LLM_API_KEY",
    "CASCADE_TTS_API_KEY",
    "CLOUD_API_KEY",
];

/// Aliases of secrets that programs read under this name. The runner uses them only when its own
/// bot needs them, so programs inherit them; and it sends them only to the URL of the alias, or to
/// the vendor.
const SHARED: &[&str] = &["OPENAI_API_KEY"];

/// Returns the variables of a telephony provider that are secrets.
fn secrets(provider: &Provider) -> impl Iterator<Item = &'static str> {
    let settings = provider.settings.iter();
    settings
        .filter(|setting| setting.holds == Holds::Secret)
        .map(|setting| setting.name)
}

/// Returns the variables of the secrets that are sent to the URL in `url`, a canonical name.
pub(super) fn sent_to(providers: &[&Provider], url: &str) -> Vec<&'static str> {
    let is_base = |setting: &Setting| matches!(setting.holds, Holds::Base(_)) && setting.name == url;
    let provider = providers.iter().find(|provider| provider.settings.iter().any(is_base));
    let pair = PAIRS.iter().find(|(known, _)| *known == url);
    match (provider, pair) {
        (Some(provider), _) => secrets(provider).collect(),
        (None, Some((_, secrets))) => secrets.to_vec(),
        (None, None) => Vec::new(),
    }
}

/// Returns the names of the variables that child programs do not inherit, without those in
/// `passed`.
///
/// # Errors
/// [`UsageError`] for an invalid name of a variable.
pub(super) fn withheld(
    providers: &[&Provider],
    passed: &[String],
    warnings: &mut Vec<String>,
) -> Result<Vec<String>, UsageError> {
    let all_names = |secret| std::iter::once(secret).chain(aliases::aliases(Area::Variable, secret).iter().copied());
    let mut names: Vec<String> = SECRETS
        .iter()
        .copied()
        .chain(providers.iter().flat_map(|provider| secrets(provider)))
        .chain(OTHER_SECRETS.iter().copied())
        .flat_map(all_names)
        .filter(|name| !SHARED.contains(name))
        .map(str::to_owned)
        .collect();
    let entries = passed.iter().flat_map(|text| text.split(',')).map(str::trim);
    for name in entries.filter(|name| !name.is_empty()) {
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.chars().all(usable) || name.starts_with(|c: char| c.is_ascii_digit()) {
            let wants = "names of variables, such as VIDEOROOM_API_KEY";
            return Err(UsageError::value("--pass-env", name, wants));
        }
        match names.iter().position(|withheld| withheld == name) {
            Some(at) => drop(names.swap_remove(at)),
            None => warnings.push(format!(
                "`--pass-env {name}` has no effect: bots inherit {name} anyway; the option is for secrets of the runner"
            )),
        }
    }
    Ok(names)
}

/// Removes the lines that a `.env` file may not set, and adds a warning for each.
pub(super) fn restrict(file: &mut EnvFile, process: &BTreeMap<String, String>) {
    let warnings = &mut file.warnings;
    file.variables.retain(|line| match rejection_reason(line, process) {
        Some(why) => {
            let EnvLine { number, name, .. } = line;
            warnings.push(format!(".env line {number}: {name} {why}; the line is skipped"));
            false
        }
        None => true,
    });
}

/// Returns why a line is rejected, as the end of a sentence that begins with its name.
fn rejection_reason(line: &EnvLine, process: &BTreeMap<String, String>) -> Option<String> {
    let name = line.name.as_str();
    let loader = LOADERS
        .iter()
        .find(|(known, _)| *known == name)
        .or_else(|| LOADER_PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)));
    if let Some((_, what)) = loader {
        return Some(format!("{what} and can only be set in the environment of the runner"));
    }
    let canonical = aliases::canonical(Area::Variable, name);
    if canonical == "RUNNER_TOOLS" && !ServiceUrl::is_http(&line.value) {
        return Some("determines which programs run and can only be set in the environment of the runner".to_owned());
    }
    if line.value.trim().is_empty() {
        return None;
    }
    // Check the aliases too: a bot may read a name that the runner does not.
    let set = |name: &&str| process.get(*name).is_some_and(|value| !value.trim().is_empty());
    let names = |secret| std::iter::once(secret).chain(aliases::aliases(Area::Variable, secret).iter().copied());
    let is_sent = |secret: &&str| name != canonical || !SHARED.contains(secret);
    let secrets = sent_to(&PROVIDERS, canonical).into_iter().flat_map(names);
    let secret = secrets.filter(is_sent).find(set)?;
    Some(format!(
        "is the URL that {secret} is sent to, which the environment of the runner sets: set both there, or both in .env"
    ))
}

#[cfg(test)]
mod tests {
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

    /// The file cannot run code in a child process. A warning has the number and the name of the
    /// line.
    #[test]
    fn rejects_variables_that_load_code() {
        for name in [
            "PATH",
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
            "PYTHONSTARTUP",
            "PYTHONPATH",
            "PYTHONHOME",
            "PYTHONINSPECT",
            "PYTHONBREAKPOINT",
            "PERL5OPT",
            "RUBYOPT",
            "LUA_INIT_5_4",
            "JAVA_TOOL_OPTIONS",
            "_JAVA_OPTIONS",
            "DOTNET_STARTUP_HOOKS",
            "ERL_AFLAGS",
            "RUNNER_TOOLS",
        ] {
            let (names, warnings) = read(&format!("A=1\nexport {name}=hunter2\nB=2\n"), &[]);
            assert_eq!(names, ["A", "B"], "{name}");
            let [warning] = &warnings[..] else {
                panic!("{warnings:?}");
            };
            assert!(warning.starts_with(&format!(".env line 2: {name} ")), "{warning}");
            assert!(!warning.contains("hunter2"), "{warning}");
        }
    }

    /// Keeps harmless settings of interpreters, keys, and names that only resemble a loader
    /// variable.
    #[test]
    fn keeps_harmless_lines() {
        let names = [
            "PYTHONUNBUFFERED",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONIOENCODING",
            "PYTHONUTF8",
            "PYTHONWARNINGS",
            "NODE_ENV",
            "NODE_EXTRA_CA_CERTS",
            "SSL_CERT_FILE",
            "HTTPS_PROXY",
            "VIRTUAL_ENV",
            "ENV",
            "HOME",
            "TZ",
            "LANG",
            "MALLOC_ARENA_MAX",
            "OPENAI_API_KEY",
            "MY_PATH",
            "PATH_TO_MODEL",
            "OLD_PRELOAD",
            "path",
            "RUNNER_PORT",
        ];
        let text: String = names.iter().map(|name| format!("{name}=1\n")).collect();
        assert_eq!(
            read(&text, &[("PATH", "/bin")]),
            (names.map(str::to_owned).into(), vec![])
        );
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
            withheld(&PROVIDERS, &passed, &mut warnings).map(|names| (names, warnings))
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
        let pairs = PAIRS
            .iter()
            .flat_map(|(url, secrets)| [*url].into_iter().chain(secrets.iter().copied()));
        for name in pairs.chain(SECRETS.iter().chain(OTHER_SECRETS).copied()) {
            assert_eq!(aliases::canonical(Area::Variable, name), name);
        }
    }
}
