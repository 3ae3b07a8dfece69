//! Restricts the `.env` file of the working directory, which no one named: it cannot change which
//! programs run, nor send the secrets of others elsewhere. `--env-file` names a file that is taken
//! whole.
//!
//! Also lists the runner's variables that child programs do not inherit, because they are secrets
//! of the runner.
//!
//! In: the variables of the file and those of the process. Out: the file without the rejected
//! lines, and one warning that has the number and the name of each, never its value. Four kinds of
//! lines are rejected. The first sets a variable that changes how programs are loaded or started:
//! anything that can write to the working directory (a bot, a cloned repository) could run code in
//! every child process. The second changes whom programs trust or where their connections go:
//! authorities of certificates, proxies, logs of TLS keys. The third names a host while the process
//! sets a secret: both must come from the same place. For the runner's own variables it is known
//! which secret goes where. For those of bots it is not, so any secret of the process counts. This
//! machine is no host to guard against. Of the runner's options, a fourth kind hands out what is
//! not the file's: secrets of the environment to bots, and files outside of the working directory
//! to services and clients. Everything else passes: other options, keys, and names that are
//! unknown. Source: `unsecvars.h` of glibc, ld.so(8), and the manuals of the interpreters and
//! libraries.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path};

use super::UsageError;
use super::flags::{RUNNER, RunnerFlag, names_python_bot};
use crate::aliases::{self, Area};
use crate::config::ServiceUrl;
use crate::proto::modules;
use crate::proto::options::FlagKind;
use crate::proto::options::env::{EnvFile, EnvLine};
use crate::proto::options::variables::{Variable, VariableContent};
use crate::proto::telephony::settings::{Holds, Setting};
use crate::proto::telephony::{PROVIDERS, Provider};

/// Variables that change what a program loads or runs at its start, and their effect.
const LOADERS: &[(&str, &str)] = &[
    ("PATH", "determines which programs run"),
    ("RUNNER_ENV_FILE", "names the file that is read in place of this one"),
    // Programs load plugins, packages and their configuration from below these folders.
    ("HOME", "determines which configuration programs load"),
    ("VIRTUAL_ENV", "determines which programs run"),
    ("SHELL", "determines which programs run"),
    ("EDITOR", "determines which programs run"),
    ("VISUAL", "determines which programs run"),
    ("PAGER", "determines which programs run"),
    ("QT_PLUGIN_PATH", "loads code into programs"),
    ("LADSPA_PATH", "loads code into programs"),
    ("LV2_PATH", "loads code into programs"),
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
    ("BUN_OPTIONS", "loads code into Bun"),
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

/// Prefixes of such variables, their effect, and the harmless ones among them. Compared in capital
/// letters, as package managers read both.
const LOADER_PREFIXES: &[(&str, &str, &[&str])] = &[
    ("LD_", "loads code into every program", &[]),
    ("DYLD_", "loads code into every program", &[]),
    ("LUA_", "loads code into Lua", &[]),
    ("CORECLR_", "loads code into .NET", &[]),
    ("COR_", "loads code into .NET", &[]),
    ("ERL_", "runs code in Erlang", &[]),
    ("NODE_", "changes what Node.js loads and trusts", &["NODE_ENV"]),
    (
        "PYTHON",
        "changes what Python loads and trusts",
        &[
            "PYTHONUNBUFFERED",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONIOENCODING",
            "PYTHONUTF8",
            "PYTHONHASHSEED",
            "PYTHONFAULTHANDLER",
            "PYTHONASYNCIODEBUG",
        ],
    ),
    ("UV_", "determines which packages are installed", &[]),
    ("PIP_", "determines which packages are installed", &[]),
    ("POETRY_", "determines which packages are installed", &[]),
    ("NPM_CONFIG_", "determines which packages are installed", &[]),
    ("CARGO_", "determines which programs run", &[]),
    ("GIT_", "determines which programs run", &[]),
    ("XDG_", "determines which configuration programs load", &[]),
    (
        "GST_",
        "loads code into GStreamer",
        &["GST_DEBUG", "GST_DEBUG_NO_COLOR"],
    ),
    ("GIO_", "loads code into GLib", &[]),
    ("ALSA_", "loads code into programs with sound", &[]),
    ("PIPEWIRE_", "changes where sound goes", &[]),
    ("PULSE_", "changes where sound goes", &[]),
    ("SPA_", "loads code into programs with sound", &[]),
];

/// Parts of names, in capital letters, of variables that change whom programs trust or where their
/// connections go, and their effect.
const TRUST: &[(Part, &str)] = &[
    (Part::Start("SSL_CERT_"), "names authorities that programs trust"),
    (Part::Within("CA_BUNDLE"), "names authorities that programs trust"),
    (Part::Within("CA_CERT"), "names authorities that programs trust"),
    (Part::Within("CACERT"), "names authorities that programs trust"),
    (Part::Within("CA_FILE"), "names authorities that programs trust"),
    (Part::Within("CAFILE"), "names authorities that programs trust"),
    (Part::Within("CA_PATH"), "names authorities that programs trust"),
    (Part::Within("CAPATH"), "names authorities that programs trust"),
    (Part::Within("SSL_ROOT"), "names authorities that programs trust"),
    (Part::Within("SSL_VERIFY"), "changes whom programs trust"),
    (Part::Within("TLS_VERIFY"), "changes whom programs trust"),
    (Part::Within("VERIFY_SSL"), "changes whom programs trust"),
    (Part::Within("VERIFY_TLS"), "changes whom programs trust"),
    (Part::Within("TLS_REJECT"), "changes whom programs trust"),
    (Part::Within("TLS_INSECURE"), "changes whom programs trust"),
    (Part::Within("SSL_INSECURE"), "changes whom programs trust"),
    (Part::Start("SSLKEYLOG"), "writes the keys of connections to a file"),
    (Part::Within("NETRC"), "names a file with passwords"),
    (Part::Start("CURL_"), "changes how curl connects"),
    (Part::Start("WGETRC"), "changes how wget connects"),
    (Part::End("PROXY"), "redirects connections"),
];

/// Variables of the runner that change whom it trusts, by canonical names.
const OWN_TRUST: &[&str] = &["RUNNER_MOQ_TLS_INSECURE", "RUNNER_ACME_ROOT"];

/// Ends of names, and names, of the runner's variables whose files are sent to services or served
/// to clients.
const GIVEN_AWAY: &[&str] = &[
    "_API_KEY_FILE",
    "_INSTRUCTIONS_FILE",
    "_SESSION_FILE",
    "_FUNCTIONS_FILE",
    "RUNNER_PAGE",
    "RUNNER_DOWNLOADS_FOLDER",
];

/// Where a text stands in a name.
#[derive(Clone, Copy, Debug)]
enum Part {
    Start(&'static str),
    Within(&'static str),
    End(&'static str),
}

impl Part {
    fn is_of(self, name: &str) -> bool {
        match self {
            Part::Start(text) => name.starts_with(text),
            Part::Within(text) => name.contains(text),
            Part::End(text) => name.ends_with(text),
        }
    }
}

/// Words in the names of variables that say where something is sent.
const HOST_WORDS: &[&str] = &[
    "URL",
    "URLS",
    "URI",
    "BASEURL",
    "HOST",
    "HOSTS",
    "HOSTNAME",
    "ENDPOINT",
    "ENDPOINTS",
    "SERVER",
    "SERVERS",
    "ADDR",
    "ADDRESS",
    "DOMAIN",
    "GATEWAY",
    "DSN",
    "BROKER",
    "BROKERS",
];

/// Words in the names of variables that become a part of the name of a host.
const HOST_PARTS: &[&str] = &["REGION", "LOCATION", "RESOURCE", "ACCOUNT", "TENANT", "ENVIRONMENT"];

/// Last words in the names of secrets.
const SECRET_WORDS: &[&str] = &[
    "KEY",
    "KEYS",
    "APIKEY",
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "CREDENTIALS",
    "PAT",
];

/// Words that follow them when the variable holds the secret in another form, or names its file.
const SECRET_FORMS: &[&str] = &["FILE", "PATH", "JSON", "BASE64", "B64", "VALUE"];

/// Prefixes of the runner's own variables, by canonical names. Modules and telephony providers list
/// theirs in their own tables.
const OWN: &[&str] = &["RUNNER_", "CLOUD_"];

/// Rejected lines that the warning names.
const NAMED_MAX: usize = 20;

/// Variables of the runner that are or may contain a secret, by canonical names.
const SECRETS: &[&str] = &[
    "RUNNER_API_KEY",
    "RUNNER_ICE_SERVERS",
    // The arguments that the systemd unit adds, which may include `--api-key`.
    "RUNNER_ARGS",
];

/// The variable with the URL of the cloud service, and that with its key.
const CLOUD_URL: &str = "CLOUD_API_URL";
const CLOUD_KEY: &str = "CLOUD_API_KEY";

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
    if url == CLOUD_URL {
        return vec![CLOUD_KEY];
    }
    match providers.iter().find(|provider| provider.settings.iter().any(is_base)) {
        Some(provider) => secrets(provider).collect(),
        None => of_modules()
            .filter(|variable| variable.sent_to == Some(url))
            .map(|variable| variable.name)
            .collect(),
    }
}

fn of_modules() -> impl Iterator<Item = &'static Variable> {
    modules::VARIABLES.into_iter().flat_map(|module| module.variables)
}

/// Returns whether a variable of the runner is or may contain a secret, by its canonical name.
#[cfg_attr(not(feature = "config"), allow(dead_code, reason = "the file of settings uses it"))]
pub(super) fn is_secret(name: &str) -> bool {
    let of_modules = of_modules().any(|variable| variable.name == name && variable.holds == VariableContent::Secret);
    SECRETS.contains(&name)
        || name == CLOUD_KEY
        || of_modules
        || PROVIDERS.into_iter().flat_map(secrets).any(|secret| secret == name)
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
        .chain(
            of_modules()
                .filter(|variable| variable.holds == VariableContent::Secret)
                .map(|variable| variable.name),
        )
        .chain([CLOUD_KEY])
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

/// Returns the file that `--env-file` or its variable names. Both are read before the options,
/// because the file sets variables of options. Behind the file of a bot, options are the bot's.
pub(super) fn named_file(arguments: &[OsString], process: &BTreeMap<String, String>) -> Option<OsString> {
    let mut named = None;
    let mut options = arguments.iter().take_while(|argument| *argument != "--");
    while let Some(option) = options.next() {
        if names_python_bot(option) {
            break;
        }
        if option == "--env-file" {
            named = options.next().cloned();
        } else if let Some(path) = option.to_str().and_then(|option| option.strip_prefix("--env-file=")) {
            named = Some(path.into());
        } else if takes_next(option) {
            options.next();
        }
    }
    let of_process = || process.get("RUNNER_ENV_FILE").map(|path| path.trim());
    named.or_else(|| of_process().filter(|path| !path.is_empty()).map(OsString::from))
}

/// Returns whether the value of an option is the next argument.
fn takes_next(argument: &OsStr) -> bool {
    let takes_value = |flag: &RunnerFlag| {
        matches!(
            flag.kind,
            FlagKind::Value(..) | FlagKind::Repeatable(..) | FlagKind::List(..)
        )
    };
    let Some(text) = argument.to_str() else { return false };
    if text.starts_with("--") {
        let name = aliases::canonical(Area::Option, text);
        return RUNNER.flags().any(|flag| flag.long == name && takes_value(flag));
    }
    // What stands behind the first of several letters that takes a value is that value.
    let is_of_value = |letter: char| {
        RUNNER
            .flags()
            .any(|flag| flag.short == Some(letter) && takes_value(flag))
    };
    let mut letters = text.strip_prefix('-').unwrap_or_default().chars();
    letters.any(is_of_value) && letters.next().is_none()
}

/// Removes the lines that a `.env` file may not set, and adds one warning that names them.
pub(super) fn restrict(file: &mut EnvFile, process: &BTreeMap<String, String>) {
    let secret = a_secret(process);
    let mut rejected = Vec::new();
    let mut others = 0_usize;
    file.variables
        .retain(|line| match rejection_reason(line, process, secret) {
            Some(_) if rejected.len() == NAMED_MAX => {
                others += 1;
                false
            }
            Some(why) => {
                let EnvLine { number, name, .. } = line;
                rejected.push(format!("{name} (line {number}) {why}"));
                false
            }
            None => true,
        });
    if rejected.is_empty() {
        return;
    }
    if others > 0 {
        rejected.push(format!("{others} more"));
    }
    file.warnings.push(format!(
        ".env was not named by anybody, so these variables of it are not taken: {}. Set them in the environment of the \
         runner or, if you trust the file, start with `--env-file .env` (RUNNER_ENV_FILE)",
        rejected.join("; ")
    ));
}

/// Returns the name of a secret of the process that bots may send somewhere. The runner's own key
/// is for its callers.
fn a_secret(process: &BTreeMap<String, String>) -> Option<&str> {
    let is_secret = |name: &str| {
        let name = name.to_ascii_uppercase();
        let mut words: Vec<&str> = name.split('_').collect();
        while words.last().is_some_and(|last| SECRET_FORMS.contains(last)) {
            words.pop();
        }
        // Images of Python for containers set GPG_KEY, the fingerprint of who signed it.
        let is_public = name.starts_with("RUNNER_") || name == "GPG_KEY" || words.contains(&"PUBLIC");
        !is_public && words.last().is_some_and(|last| SECRET_WORDS.contains(last))
    };
    let set = process.iter().filter(|(_, value)| !value.trim().is_empty());
    set.map(|(name, _)| name.as_str()).find(|name| is_secret(name))
}

/// Returns whether a variable of a bot says where something is sent.
fn names_a_host(name: &str, value: &str) -> bool {
    let has = |words: &[&str]| name.split('_').any(|word| words.contains(&word));
    // Each of these ends the name of a host, or begins another one.
    let ends_host = |value: &str| value.contains(['/', '\\', '?', '#', '@', ':']);
    !is_this_machine(value)
        && (value.contains("://") || has(HOST_WORDS) || name.ends_with("_BASE") || has(HOST_PARTS) && ends_host(value))
}

/// Returns whether a value is a URL of this machine, or its name.
fn is_this_machine(value: &str) -> bool {
    let value = value.trim();
    let (scheme, rest) = value.split_once("://").unwrap_or(("", value));
    let after = ["localhost", "127.0.0.1", "[::1]"]
        .iter()
        .find_map(|host| rest.strip_prefix(host));
    let (port, path) = after.map_or((None, ""), |after| {
        let at = after.find('/').unwrap_or(after.len());
        (Some(&after[..at]), &after[at..])
    });
    let is_port = |port: &str| {
        port.strip_prefix(':')
            .unwrap_or(port)
            .bytes()
            .all(|byte| byte.is_ascii_digit())
    };
    let is_plain = |text: &str, more: &[u8]| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
    };
    is_plain(scheme, b"+") && port.is_some_and(is_port) && is_plain(path, b"/-_.")
}

/// Returns why a line of the runner's own variables is rejected. `canonical` is its name.
fn own_rejection_reason(canonical: &str, value: &str, process: &BTreeMap<String, String>) -> Option<String> {
    let is_set = |name: &str| process.get(name).is_some_and(|value| !value.trim().is_empty());
    // With a relay, it is the certificate that the relay may have.
    let is_relay_trust = canonical == "RUNNER_MOQ_TLS_CERT" && is_set("RUNNER_MOQ_CONNECT");
    if OWN_TRUST.contains(&canonical) || is_relay_trust {
        return Some("changes whom the runner trusts".to_owned());
    }
    if canonical == "RUNNER_PASS_ENV" {
        let passed = value.split([',', ' ']).map(str::trim).find(|name| is_set(name));
        return passed.map(|name| format!("gives {name}, which the environment of the runner sets, to bots"));
    }
    let is_outside = || {
        let path = Path::new(value.trim());
        path.is_absolute() || path.components().any(|part| part == Component::ParentDir)
    };
    let is_given_away = canonical != "RUNNER_API_KEY_FILE" && GIVEN_AWAY.iter().any(|end| canonical.ends_with(end));
    (is_given_away && is_outside()).then(|| {
        "names a file or folder outside of the working directory, whose content leaves this machine".to_owned()
    })
}

/// Returns why a line is rejected, as the end of a sentence that begins with its name. `secret` is
/// the name of a secret of the process.
fn rejection_reason(line: &EnvLine, process: &BTreeMap<String, String>, secret: Option<&str>) -> Option<String> {
    let name = line.name.as_str();
    let capital = name.to_ascii_uppercase();
    if let Some((_, what)) = LOADERS.iter().find(|(known, _)| *known == name) {
        return Some((*what).to_owned());
    }
    let is_loader = |(prefix, _, kept): &&(&str, &str, &[&str])| capital.starts_with(prefix) && !kept.contains(&name);
    if let Some((_, what, _)) = LOADER_PREFIXES.iter().find(is_loader) {
        return Some((*what).to_owned());
    }
    let canonical = aliases::canonical(Area::Variable, name);
    let mut of_providers = PROVIDERS.iter().flat_map(|provider| provider.settings);
    let is_own = OWN.iter().any(|prefix| canonical.starts_with(prefix))
        || modules::VARIABLES.iter().any(|module| module.contains(canonical))
        || of_providers.any(|setting| setting.name == canonical);
    let names_programs = ["RUNNER_PYTHON", "RUNNER_CONFIG"].contains(&canonical);
    if names_programs || (canonical == "RUNNER_TOOLS" && !ServiceUrl::is_http(&line.value)) {
        return Some("determines which programs run".to_owned());
    }
    if let Some(why) = own_rejection_reason(canonical, &line.value, process).filter(|_| is_own) {
        return Some(why);
    }
    let trust = TRUST.iter().find(|(part, _)| part.is_of(&capital));
    if let Some((_, what)) = trust.filter(|_| !is_own) {
        return Some((*what).to_owned());
    }
    if line.value.trim().is_empty() {
        return None;
    }
    // Check the aliases too: a bot may read a name that the runner does not. A variable may also
    // name a file that holds the secret.
    let is_set = |name: &str| process.get(name).is_some_and(|value| !value.trim().is_empty());
    let set = |name: &&str| is_set(name) || is_set(&format!("{name}_FILE"));
    let names = |secret| std::iter::once(secret).chain(aliases::aliases(Area::Variable, secret).iter().copied());
    let is_sent = |secret: &&str| name != canonical || !SHARED.contains(secret);
    let mut secrets = sent_to(&PROVIDERS, canonical).into_iter().flat_map(names);
    if let Some(secret) = secrets.clone().filter(is_sent).find(set) {
        return Some(format!(
            "is the URL that {secret} is sent to, which the environment of the runner sets: set both there, or both in .env"
        ));
    }
    // Libraries of bots read it under this name too, whatever key they send.
    let is_shared = name != canonical && secrets.any(|secret| SHARED.contains(&secret));
    let secret = secret.filter(|_| !is_own || is_shared)?;
    names_a_host(&capital, &line.value).then(|| {
        format!(
            "may name a host that gets secrets, and the environment of the runner sets {secret}: set both there, or both in .env"
        )
    })
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

    /// However many lines are rejected, there is one warning of a limited length.
    #[test]
    fn one_warning_names_the_rejected_lines() {
        let text: String = (0..100).map(|number| format!("LD_{number}=1\n")).collect();
        let (names, warnings) = read(&text, &[]);
        assert_eq!((names.len(), warnings.len()), (0, 1));
        let told = &warnings[0];
        assert!(
            told.contains("LD_0 (line 1) ") && told.contains("LD_19 (line 20) "),
            "{told}"
        );
        assert!(!told.contains("LD_20") && told.contains("; 80 more. "), "{told}");
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
                let told = &warnings[0];
                assert!(told.contains(name) && told.contains(secret), "{told}");
                assert!(!told.contains("hunter2") && !told.contains("evil"), "{told}");
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
            "REALTIME_API_KEY_FILE=/root/.netrc",
            "TOOLS_API_KEY_FILE=../key",
            "CASCADE_LLM_API_KEY_FILE=a/../../key",
            "REALTIME_INSTRUCTIONS_FILE=/etc/passwd",
            "CASCADE_FUNCTIONS_FILE= /etc/x",
            "REALTIME_SESSION_FILE=/etc/x",
            "RUNNER_PAGE=/",
            "RUNNER_DOWNLOADS_FOLDER=/root",
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
        let names = of_modules().flat_map(|variable| [Some(variable.name), variable.sent_to]);
        for name in names
            .flatten()
            .chain(SECRETS.iter().copied())
            .chain([CLOUD_URL, CLOUD_KEY])
        {
            assert_eq!(aliases::canonical(Area::Variable, name), name);
        }
    }
}
