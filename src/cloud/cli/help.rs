//! Help texts of `edge-runner cloud` and its subcommands, generated from the option tables.
//!
//! Out: text of at most 100 columns. The golden file is `tests/data/help-cloud.txt`.

use edge_runner_proto::aliases::{self, Area};
use edge_runner_proto::features::Feature;
use edge_runner_proto::options::env_options::with_prefix;
use edge_runner_proto::options::help::{entries, entry, mark_missing, paragraph};

use super::flags::{CloudFlag, CloudOptions};
use super::{SUBCOMMANDS, Subcommand, flags};

const HEAD: &str = "\
The cloud agent service: takes build contexts, has a command of yours make images of them, and tells
how that went. And the client of such a service.
";

/// Usage, summary and details of each command, in the order of [`SUBCOMMANDS`].
const ABOUT: [(&str, &str, &str); SUBCOMMANDS.len()] = [
    (
        "serve [OPTIONS] [-- COMMAND [ARGS...]]",
        "Serve uploads and builds; COMMAND makes an image of each context.",
        SERVE,
    ),
    (
        "keys create --type private|public [OPTIONS]",
        "Make a key and print it, this once.",
        "A service that runs on the data directory takes it with its next request.",
    ),
    (
        "keys list [OPTIONS]",
        "List the keys of a data directory, without the keys themselves.",
        "",
    ),
    (
        "keys revoke ID [OPTIONS]",
        "Take a key back.",
        "A service that runs on the data directory refuses it from its next request on.",
    ),
    (
        "migrate [OPTIONS]",
        "Bring the database of several replicas up to date.",
        "Before the first start, and before the replicas of a new release start; those of the release before go on meanwhile.",
    ),
    (
        "import [OPTIONS]",
        "Bring what a service on one machine has to the database and the store of several.",
        "The service is stopped and its builds have ended. The data directory stays as it is; an import that failed may be repeated.",
    ),
    (
        "export [OPTIONS]",
        "Bring what several machines share to a data directory of one.",
        "Its builds have ended, and the directory has none. Database and store stay as they are; an export that failed begins again in \
         another directory. If regions were set, they are in `regions.json` there.",
    ),
    (
        "build DIR [OPTIONS]",
        "Pack a folder, upload it, and have it built.",
        "A successful build of the same files, region and build file is used again, without an upload. What a .dockerignore in \
         DIR lists is left out; without one what version control, editors, Python and Node leave behind, and files \
         that hold secrets. The last lines on stdout are `build ID STATUS` and, after success, `image URI`.",
    ),
    ("status ID [OPTIONS]", "Tell how a build stands.", ""),
    ("logs ID [OPTIONS]", "Print what a build has logged so far.", ""),
    ("regions [OPTIONS]", "List the regions of a service.", ""),
];

const SERVE: &str = "COMMAND runs once for each build, in the unpacked context, without a shell. In ARGS {context}, {buildfile}, {out}, {result}, \
     {id}, {org}, {region} and {hash} are replaced; {{ is a brace. Its environment has PATH, LANG, HOME, TMPDIR, BUILD_ID, \
     BUILD_ORG, BUILD_REGION, BUILD_FILE, BUILD_CONTEXT, BUILD_CONTEXT_HASH, BUILD_OUT, BUILD_RESULT and BUILD_ATTEMPT, and \
     what --builder-env names. It ends with exit status 0 and one of: {\"imageUri\":\"...\",\"imageSizeBytes\":N} in the file \
     BUILD_RESULT or as its last line of stdout; one file in the directory BUILD_OUT, which the service keeps. It has the \
     rights of the service: what isolation builds need is its to make. Without COMMAND no region has builds.";

/// Environment variables of `cloud serve` that are not options.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "CLOUD_PRIVATE_KEYS",
        "Private keys, with commas between them: KEY or ORG=KEY. Further ones are made by `cloud keys create`; \
         without any, the first start makes one of each type.",
    ),
    ("CLOUD_PUBLIC_KEYS", "The same of public keys."),
    (
        "CLOUD_STORE_KEY_ID",
        "With the next: what signs grants. [default: made for each day from a secret in the data directory]",
    ),
    ("CLOUD_STORE_SECRET", "The secret of that id."),
    (
        "AWS_ACCESS_KEY_ID",
        "With the next: what signs grants and requests of --store.",
    ),
    ("AWS_SECRET_ACCESS_KEY", "The secret of that id."),
    ("AWS_SESSION_TOKEN", "The token of temporary ones."),
    (
        "AWS_SHARED_CREDENTIALS_FILE",
        "In their place a file with them, in its section [default]; read again when it changes.",
    ),
    (
        "CLOUD_DATABASE_PASSWORD_FILE",
        "File whose first line is the password of --database; read again for each new connection.",
    ),
];

const EXIT: &[(&str, &str)] = &[
    ("0", "Done."),
    (
        "1",
        "Failed, such as a port in use, a request that the service refused, or a build that failed.",
    ),
    ("2", "Usage error; stderr says what was expected."),
];

const EXIT_WAIT: (&str, &str) = ("3", "--timeout has passed; the build goes on.");

const OF_OPTIONS: &str = "Every option has one: CLOUD_DATA_DIR for `--data-dir`. Lists have commas, options without a value take \
                          true or false, -v a number. What is typed wins.";

/// Formats `cloud --help`.
pub fn overview() -> String {
    let mut text = String::from(HEAD);
    text.push_str("\nUsage: edge-runner cloud COMMAND [OPTIONS]\n\nCommands:\n");
    for (subcommand, (_, about, _)) in SUBCOMMANDS.iter().zip(ABOUT) {
        entry(&mut text, &format!("  {}", subcommand.name()), about);
    }
    text.push_str("\n`edge-runner cloud COMMAND --help` tells the options of each.\n");
    exits(&mut text, &[EXIT, &[EXIT_WAIT]].concat());
    text
}

/// Formats the help of one subcommand.
pub fn text(subcommand: &Subcommand) -> String {
    let mut text = String::new();
    let about = SUBCOMMANDS
        .iter()
        .zip(ABOUT)
        .find(|(other, _)| other.words == subcommand.words);
    if let Some((_, (usage, about, more))) = about {
        text.push_str(&format!("{about}\n\nUsage: edge-runner cloud {usage}\n"));
        if !more.is_empty() {
            text.push('\n');
            paragraph(&mut text, more);
        }
    }
    for title in flags::GROUPS {
        group_of(&mut text, subcommand.table, title);
    }
    text.push_str("\nEnvironment (also read from .env in the working directory; real variables win):\n");
    entry(&mut text, "  CLOUD_...", OF_OPTIONS);
    for flag in subcommand.table.flags() {
        let variable = with_prefix(subcommand.table.prefix, flag.long);
        let others = aliases::aliases(Area::Variable, &variable);
        if !others.is_empty() {
            entry(
                &mut text,
                &format!("  {variable}"),
                &format!("Also: {}.", others.join(", ")),
            );
        }
    }
    let serves = subcommand.words == SUBCOMMANDS[0].words;
    if serves {
        for (name, help) in ENVIRONMENT {
            entry(&mut text, &format!("  {name}"), help);
        }
    }
    entry(&mut text, "  RUST_LOG", "What is logged, such as `edge_runner=debug`.");
    let waits = subcommand.table.flags().any(|flag| flag.long == "--wait");
    exits(&mut text, &[EXIT, if waits { &[EXIT_WAIT] } else { &[] }].concat());
    text
}

fn group_of(text: &mut String, table: &CloudOptions, title: &str) {
    let flags: Vec<&CloudFlag> = table.flags().filter(|flag| flag.group == title).collect();
    if !flags.is_empty() {
        text.push_str(&format!("\n{title}:\n"));
        entries(text, flags.into_iter(), |flag| {
            let of = match flag.long {
                "--tls" => Some(Feature::Tls),
                _ if flag.group == flags::SCALE => Some(Feature::Scale),
                _ => None,
            };
            mark_missing(of, flag.help)
        });
    }
}

fn exits(text: &mut String, codes: &[(&str, &str)]) {
    text.push_str("\nExit codes:\n");
    for (code, help) in codes {
        entry(text, &format!("  {code}"), help);
    }
}
