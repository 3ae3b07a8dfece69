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
//! not the file's: secrets of the environment to bots, files outside of the working directory to
//! services and clients, and what a sandbox hides to programs. Everything else passes, since bots
//! have settings of any name: no list has every variable that makes some program load code. Source:
//! `unsecvars.h` of glibc, ld.so(8), and the manuals of the interpreters and libraries.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path};

use super::UsageError;
use super::flags::{RUNNER, RunnerFlag, names_python_bot};
use crate::aliases::{self, Area};
use crate::config::ServiceUrl;
use crate::proto::local::command::is_sound_card;
use crate::proto::modules;
use crate::proto::options::FlagKind;
use crate::proto::options::env::{EnvFile, EnvLine};
use crate::proto::options::variables::VariableContent;

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
    ("MAVEN_OPTS", "loads code into Java"),
    ("LESSOPEN", "runs code in less"),
    ("LESSCLOSE", "runs code in less"),
    ("ZDOTDIR", "runs code in zsh"),
    ("INPUTRC", "changes how shells read"),
    ("GOFLAGS", "determines which programs run"),
    ("TMPDIR", "moves temporary files to where others may change them"),
    ("TMP", "moves temporary files to where others may change them"),
    ("TEMP", "moves temporary files to where others may change them"),
    ("AWS_CONFIG_FILE", "determines which configuration programs load"),
    (
        "AWS_SHARED_CREDENTIALS_FILE",
        "determines which configuration programs load",
    ),
    ("KUBECONFIG", "runs code in clients of Kubernetes"),
    ("DOCKER_CONFIG", "determines which programs run"),
    ("SSH_ASKPASS", "determines which programs run"),
    ("GRADLE_OPTS", "loads code into Java"),
    ("EMACSLOADPATH", "loads code into Emacs"),
    ("MPLBACKEND", "loads code into Python"),
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
    ("TS_NODE_", "loads code into Node.js", &[]),
    ("TSX_", "loads code into Node.js", &[]),
    ("DENO_", "changes what Deno loads and trusts", &[]),
    ("BUNDLE_", "loads code into Ruby", &[]),
    ("COMPOSER_", "loads code into PHP", &[]),
    ("GTK_", "loads code into programs with GTK", &[]),
    ("VK_", "loads code into programs with Vulkan", &[]),
    ("OCL_ICD_", "loads code into programs with OpenCL", &[]),
    ("RUSTC", "determines which programs run", &[]),
    ("CONDA_", "determines which programs run", &[]),
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
    (Part::Within("SSL_MODE"), "changes whom programs trust"),
    (Part::Within("SSLMODE"), "changes whom programs trust"),
    (Part::Start("PGSSL"), "changes whom PostgreSQL's clients trust"),
    (Part::Within("ALLOW_EXEC"), "lets files of credentials run programs"),
    (Part::Within("TRUST_REMOTE"), "lets downloaded models run code"),
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

/// Variables of the runner that name a program, or a file that does, by canonical names.
const PROGRAMS: &[&str] = &["RUNNER_PYTHON", "RUNNER_CONFIG", "RUNNER_LOCAL_HOOK"];

/// Variables of the runner that change whom it trusts, by canonical names.
const OWN_TRUST: &[&str] = &["RUNNER_ACME_ROOT", "RUNNER_SETTINGS"];

/// The switch of the sandbox, and the values that turn it off.
const SANDBOX: (&str, [&str; 4]) = ("RUNNER_SANDBOX", ["false", "0", "no", "off"]);

/// Ends of names, and names, of the runner's variables whose files are sent to services, served to
/// clients or played to callers.
const GIVEN_AWAY: &[&str] = &[
    "_API_KEY_FILE",
    "_INSTRUCTIONS_FILE",
    "_SESSION_FILE",
    "_FUNCTIONS_FILE",
    "_PASSWORD_FILE",
    "RUNNER_PAGE",
    "RUNNER_DOWNLOADS_FOLDER",
    "RUNNER_BOT_FAILURE_WAV",
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
    "PGHOST",
    "PGHOSTADDR",
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
    "AUTHTOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "CREDENTIALS",
    "PAT",
];

/// Words that follow them when the variable holds the secret in another form, or names its file.
const SECRET_FORMS: &[&str] = &["FILE", "PATH", "JSON", "BASE64", "B64", "VALUE"];

/// Prefixes of the runner's own variables, by canonical names. Modules list theirs in their own
/// tables.
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
/// The variable with the URL of the service's database, and that with the file of its password.
const CLOUD_DATABASE: &str = "CLOUD_DATABASE";
const CLOUD_DATABASE_PASSWORD: &str = "CLOUD_DATABASE_PASSWORD_FILE";

/// Aliases of secrets that programs read under this name. The runner uses them only when its own
/// bot needs them, so programs inherit them; and it sends them only to the URL of the alias, or to
/// the vendor.
const SHARED: &[&str] = &["OPENAI_API_KEY"];

/// Returns the variables of modules that are secrets.
fn secrets() -> impl Iterator<Item = &'static str> {
    let variables = modules::variables().into_iter();
    variables
        .filter(|variable| variable.holds == VariableContent::Secret)
        .map(|variable| variable.name)
}

/// Returns the variables of the secrets that are sent to the URL in `url`, a canonical name.
pub(super) fn sent_to(url: &str) -> Vec<&'static str> {
    match url {
        CLOUD_URL => return vec![CLOUD_KEY],
        CLOUD_DATABASE => return vec![CLOUD_DATABASE_PASSWORD],
        _ => {}
    }
    modules::variables()
        .into_iter()
        .filter(|variable| variable.sent_to == Some(url))
        .map(|variable| variable.name)
        .collect()
}

/// Returns whether a variable of the runner is or may contain a secret, by its canonical name.
pub(super) fn is_secret(name: &str) -> bool {
    SECRETS.contains(&name) || name == CLOUD_KEY || secrets().any(|secret| secret == name)
}

/// Returns the names of the variables that child programs do not inherit, without those in
/// `passed`.
///
/// # Errors
/// [`UsageError`] for an invalid name of a variable.
pub(super) fn withheld(passed: &[String], warnings: &mut Vec<String>) -> Result<Vec<String>, UsageError> {
    let all_names = |secret| std::iter::once(secret).chain(aliases::aliases(Area::Variable, secret).iter().copied());
    let mut names: Vec<String> = SECRETS
        .iter()
        .copied()
        .chain(secrets())
        .chain([CLOUD_KEY])
        .flat_map(all_names)
        .filter(|name| !SHARED.contains(name))
        .map(str::to_owned)
        .collect();
    let entries = passed.iter().flat_map(|text| text.split(',')).map(str::trim);
    for name in entries.filter(|name| !name.is_empty()) {
        let usable = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.chars().all(usable) || name.starts_with(|c: char| c.is_ascii_digit()) {
            let wants = "names of variables, such as RUNNER_API_KEY";
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

/// Returns whether an option of the runner, by its canonical name, starts what the value names.
fn names_a_program(canonical: &str, value: &str) -> bool {
    match canonical {
        "RUNNER_TOOLS" => !ServiceUrl::is_http(value),
        "RUNNER_LOCAL_IN" | "RUNNER_LOCAL_OUT" => !is_sound_card(value),
        _ => PROGRAMS.contains(&canonical),
    }
}

/// Returns why a line of the runner's own variables is rejected. `canonical` is its name.
fn own_rejection_reason(canonical: &str, value: &str, process: &BTreeMap<String, String>) -> Option<String> {
    let is_set = |name: &str| process.get(name).is_some_and(|value| !value.trim().is_empty());
    if OWN_TRUST.contains(&canonical) || modules::changes_trust(canonical, is_set) {
        return Some("changes whom the runner trusts".to_owned());
    }
    if canonical == SANDBOX.0 && SANDBOX.1.contains(&&*value.trim().to_ascii_lowercase()) {
        return Some("takes programs out of the sandbox".to_owned());
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
    let is_own = OWN.iter().any(|prefix| canonical.starts_with(prefix)) || modules::feature_of(canonical).is_some();
    if names_a_program(canonical, &line.value) {
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
    let mut secrets = sent_to(canonical).into_iter().flat_map(names);
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
mod tests;
