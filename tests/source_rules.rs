//! Rules of the source that the linter cannot check: which names `proto` may use, and that every
//! file has a header.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use edge_runner_proto::telephony::PROVIDERS;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let found = below(folder);
    assert!(found.len() > 100, "{} has {} files", folder.display(), found.len());
    found
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the entry is readable").path();
        if path.is_dir() {
            found.extend(below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// No file of `proto` names the runtime, the HTTP library, or the layers above.
#[test]
fn proto_is_pure() {
    for path in sources(&src().join("proto")) {
        let text = fs::read_to_string(&path).expect("a source file is text");
        for word in [
            "tokio",
            "hyper",
            "crate::io",
            "crate::bot::",
            "crate::cli",
            "std::net::UdpSocket",
        ] {
            assert!(!text.contains(word), "{} names {word}", path.display());
        }
    }
}

/// Every source file starts with a header comment.
#[test]
fn every_file_has_a_header() {
    for path in sources(&src()) {
        let text = fs::read_to_string(&path).expect("a source file is text");
        assert!(text.starts_with("//!"), "{} opens without a header", path.display());
    }
}

/// Telephony providers are named only in their own file, the list of providers, and the table of
/// aliases.
#[test]
fn provider_names_stay_in_their_files_the_list_and_the_aliases() {
    let vendors = PROVIDERS.map(|provider| provider.vendor());
    let names_on_the_wire = PROVIDERS.map(|provider| provider.wire_name());
    let telephony = src().join("proto/telephony");
    let mut allowed: Vec<PathBuf> = vendors.map(|name| telephony.join(format!("{name}.rs"))).into();
    assert!(allowed.iter().all(|file| file.is_file()), "a provider's file has moved");
    let list = telephony.join("mod.rs");
    let lines = |name: &str| {
        let text = fs::read_to_string(&list).expect("a source file is text");
        let production = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        production
            .lines()
            .filter(|line| line.to_ascii_lowercase().contains(name))
            .count()
    };
    for name in vendors {
        assert_eq!(
            lines(name),
            2,
            "the list names the module and the provider, each once: {name}"
        );
    }
    // The help shows a call of one provider as an example.
    allowed.extend([list, src().join("proto/aliases.rs"), src().join("cli/help.rs")]);
    let is_test = |path: &Path| {
        let of_tests = |name: &str| matches!(name, "tests" | "tests.rs" | "testing" | "testing.rs");
        path.iter().any(|part| part.to_str().is_some_and(of_tests))
    };
    let below = sources(&src());
    let production = below
        .iter()
        .filter(|path| !allowed.contains(path) && !is_test(path.strip_prefix(src()).expect("below `src`")));
    for path in production {
        let text = fs::read_to_string(path).expect("a source file is text");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        // Documentation says which providers there are and what each takes.
        let is_documentation = |line: &&str| ["//!", "///"].iter().any(|mark| line.trim_start().starts_with(mark));
        let code = text.lines().filter(|line| !is_documentation(line));
        let text = code.collect::<String>().to_ascii_lowercase();
        for name in vendors.iter().chain(&names_on_the_wire).chain(&["telco_"]) {
            assert!(!text.contains(name), "{} names {name}", path.display());
        }
    }
}

/// A transport, or the calls of a module that has none of its own.
struct NamedTransport {
    /// Its names in code.
    names: &'static [&'static str],
    /// Folders and files that are its own, or that are built on it.
    homes: &'static [&'static str],
    /// How many other files name it. `docs/architecture.md` says why they do.
    foreign: usize,
}

const NAMED_TRANSPORTS: [NamedTransport; 6] = [
    NamedTransport {
        names: &["livekit", "mediaroom"],
        homes: &["livekit"],
        foreign: 8,
    },
    NamedTransport {
        names: &["daily", "videoroom"],
        homes: &["daily", "dialin"],
        foreign: 8,
    },
    NamedTransport {
        names: &["moq"],
        homes: &["moq"],
        foreign: 8,
    },
    NamedTransport {
        names: &["whatsapp", "messaging"],
        homes: &["whatsapp"],
        foreign: 8,
    },
    NamedTransport {
        names: &["telephony"],
        homes: &[
            "telephony",
            "sockets",
            "websocket",
            "phone",
            "kit/phone_call",
            "caller/telephone",
            "caller/provider_webhook",
        ],
        foreign: 16,
    },
    // Rooms of LiveKit, calls of WhatsApp and listeners are WebRTC connections.
    NamedTransport {
        names: &["webrtc"],
        homes: &["webrtc", "livekit", "whatsapp", "calls/listening"],
        foreign: 15,
    },
];

/// Code outside the folders of a transport that names it has to change with it. Comments, tests and
/// the page do not count.
#[test]
fn few_foreign_files_name_a_transport() {
    let is_in = |path: &str, homes: &[&str]| {
        let parts = |home: &&str| path.contains(&format!("/{home}/")) || path.contains(&format!("/{home}.rs"));
        homes.iter().any(parts)
    };
    let mut files = Vec::new();
    for path in sources(&src()) {
        let name = format!("/{}", path.strip_prefix(src()).expect("below `src`").display());
        if is_in(&name, &["tests", "testing", "page"]) {
            continue;
        }
        let text = fs::read_to_string(path).expect("a source file is text");
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let code = text.lines().map(|line| line.split("// ").next().unwrap_or_default());
        let code = code.filter(|line| !line.trim_start().starts_with("//"));
        files.push((name, code.collect::<Vec<_>>().join("\n").to_ascii_lowercase()));
    }
    for transport in NAMED_TRANSPORTS {
        let foreign = files.iter().filter(|(path, code)| {
            !is_in(path, transport.homes) && transport.names.iter().any(|name| code.contains(name))
        });
        let foreign: Vec<&str> = foreign.map(|(path, _)| &path[1..]).collect();
        assert_eq!(
            foreign.len(),
            transport.foreign,
            "files that name {}; if there are fewer, lower the number: {foreign:#?}",
            transport.names[0]
        );
    }
}

/// The page has a table of its own.
#[test]
fn the_table_of_the_page_has_every_provider() {
    for provider in PROVIDERS {
        let (name, vendor) = (provider.wire_name(), provider.vendor());
        let text = fs::read_to_string(src().join("page/providers.js")).expect("a source file is text");
        for entry in [
            format!("{name}: {vendor}"),
            format!("label: '{}'", provider.vendor_name()),
        ] {
            assert!(text.contains(&entry), "it has no {entry}");
        }
    }
}

/// Every public item of an inner crate is used outside tests. The compiler finds dead code in the
/// root crate alone. `proto/kit` is re-exported for bots as a whole.
#[test]
fn public_items_of_inner_crates_are_used() {
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    let mut items = Vec::new();
    for path in sources(&src()) {
        let name = path.strip_prefix(src()).expect("a path below").display().to_string();
        let helps_tests = ["tests", "testing", "simulation", "invented"];
        if helps_tests.iter().any(|word| name.contains(word)) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file is text");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let is_inner = ["proto/", "http/", "cloud/"]
            .iter()
            .any(|inner| name.starts_with(inner));
        let mut is_for_tests = false;
        for line in text.lines().map(|line| line.split("//").next().unwrap_or_default()) {
            let mut words = line
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|word| !word.is_empty());
            for word in words.clone() {
                *uses.entry(word.to_owned()).or_default() += 1;
            }
            let is_public = line.trim_start().starts_with("pub ");
            if is_public && is_inner && !is_for_tests && !name.starts_with("proto/kit") {
                let kinds = ["fn", "const", "static", "struct", "enum", "type", "trait"];
                let kind = words.by_ref().skip(1).find(|word| !["async", "unsafe"].contains(word));
                let item = words.find(|word| *word != "fn");
                if let (Some(kind), Some(item)) = (kind, item)
                    && kinds.contains(&kind)
                {
                    items.push((item.to_owned(), name.clone()));
                }
            }
            is_for_tests = line.trim().starts_with("#[cfg(") && line.contains("test");
        }
    }
    assert!(items.len() > 3000, "only {} items were found", items.len());
    let unused: Vec<_> = items.iter().filter(|(item, _)| uses[item] == 1).collect();
    assert!(
        unused.is_empty(),
        "used nowhere but in tests; remove them, or mark them #[cfg(test)]: {unused:?}"
    );
}

/// The program sorts by `proto::sorting` alone: std's sorts are some kilobytes for each type of
/// element.
#[test]
fn the_program_sorts_in_one_place() {
    for path in sources(&src()) {
        let name = path.strip_prefix(src()).expect("below").display().to_string();
        let is_of_program = !["proto/sorting.rs", "testing.rs"].contains(&&*name)
            && ["build/", "proto/testing/"]
                .iter()
                .all(|folder| !name.starts_with(folder))
            && !name.contains("/testing/")
            && !name.contains("tests");
        if is_of_program {
            let text = fs::read_to_string(&path).expect("a source file is text");
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            assert!(!code.contains(".sort"), "{name} sorts on its own");
        }
    }
}
