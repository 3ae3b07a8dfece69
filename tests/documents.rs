//! The pages of the repository: links lead somewhere, and the paths, tests, stages and programs
//! that they name exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folders of the repository whose files pages name.
const FOLDERS: [&str; 8] = [
    "src/",
    "tests/",
    "docs/",
    "boards/",
    "cross/",
    "examples/",
    ".ci/",
    ".cargo/",
];

/// Crates whose paths look like those of tests.
const FOREIGN: [&str; 4] = ["edge_runner", "tokio", "std", "core"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the entry is readable").path();
        let skipped = path.ends_with("target") || path.ends_with("node_modules") || path.ends_with(".git");
        if path.is_dir() && !skipped {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

/// A page, and its text by whether it is inside a fence of code.
struct Page {
    path: PathBuf,
    prose: String,
    code: String,
}

fn pages() -> Vec<Page> {
    let pages = pages_in(root());
    assert!(pages.len() > 15);
    pages
}

fn pages_in(folder: &Path) -> Vec<Page> {
    let pages = files(folder, "md").into_iter().map(|path| {
        let text = fs::read_to_string(&path).expect("a page is text");
        let (mut prose, mut code, mut is_code) = (String::new(), String::new(), false);
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
                continue;
            }
            let part = if is_code { &mut code } else { &mut prose };
            part.push_str(line);
            part.push('\n');
        }
        assert!(!is_code, "{}: a fence of code does not end", path.display());
        Page { path, prose, code }
    });
    pages.collect()
}

/// Returns what stands in backticks in a text without fences.
fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the anchors of the headings of a page, made as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchors = headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    });
    anchors.collect()
}

/// Returns the relative links of pages that lead nowhere, and how many lead somewhere.
fn broken_links(pages: &[Page]) -> (Vec<String>, usize) {
    let texts: BTreeMap<&Path, &str> = pages.iter().map(|page| (&*page.path, &*page.prose)).collect();
    let (mut broken, mut followed) = (Vec::new(), 0);
    for page in pages {
        let links = page.prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let sources = page
            .prose
            .split("=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        let sources = sources.filter(|source| source.ends_with(".svg") || source.ends_with(".png"));
        for link in links.chain(sources) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = page.path.parent().expect("a page is in a folder");
            let target = match file {
                "" => page.path.clone(),
                file => folder.join(file).canonicalize().unwrap_or_default(),
            };
            let has_anchor = || texts.get(&*target).is_some_and(|text| anchors(text).contains(anchor));
            match target.exists() && (anchor.is_empty() || has_anchor()) {
                true => followed += 1,
                false => broken.push(format!("{}: {link}", page.path.display())),
            }
        }
    }
    (broken, followed)
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let (broken, followed) = broken_links(&pages());
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    assert!(followed > 100, "{followed} links");
}

/// The same of the pages that a package installs, where a link to a file that it leaves out goes to
/// the web: with and without the page of the cloud service.
#[test]
fn every_relative_link_of_an_installed_page_leads_to_a_file_and_a_heading() {
    for options in [&[][..], &["--cloud"]] {
        let folder = crate::support::runner::folder();
        let made = Command::new(root().join("boards/common/documents"))
            .arg(&folder)
            .args(options)
            .status();
        assert!(made.expect("Python is there").success());
        let folder = folder.canonicalize().expect("the folder was made");
        let pages = pages_in(&folder);
        let (broken, followed) = broken_links(&pages);
        let has_cloud = folder.join("docs/cloud.md").exists();
        // What makes a board an assistant, and what the example bots need.
        for page in [
            "README.md",
            "docs/assistants.md",
            // What the callers of a package's own commands need: `call`, and the sound card.
            "docs/call.md",
            "docs/local.md",
            "boards/README.md",
            "examples/bots/requirements-pipecat.txt",
        ] {
            assert!(folder.join(page).exists(), "{page} is missing");
        }
        fs::remove_dir_all(&folder).expect("the folder can be removed");
        assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
        assert!(followed > 100, "{followed} links");
        assert_eq!(has_cloud, !options.is_empty());
    }
}

/// Returns the path at the head of words; `None` where it has a placeholder, or is a path of
/// another kind.
fn path_of(words: &str) -> Option<&str> {
    let path = words.split([' ', ':', ',']).next()?;
    let is_placeholder = path.contains(['*', '<', '{', '$', '('])
        || path
            .split('/')
            .any(|part| part.chars().any(char::is_uppercase) && !part.contains('.'));
    (FOLDERS.iter().any(|folder| path.starts_with(folder)) && !is_placeholder).then_some(path)
}

#[test]
fn every_path_that_a_page_names_exists() {
    let (mut missing, mut named) = (Vec::new(), 0);
    for page in pages() {
        // Commands and diagrams name paths anywhere in a line.
        let words = page.code.split_whitespace();
        for path in spans(&page.prose).into_iter().chain(words).filter_map(path_of) {
            // Pages of a folder name files by the folder's own paths, too.
            let near = page.path.parent().expect("a page is in a folder").join(path);
            named += 1;
            if !root().join(path).exists() && !near.exists() {
                missing.push(format!("{}: {path}", page.path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "named, and not there:\n{}", missing.join("\n"));
    assert!(named > 100, "{named} paths");
}

/// A board talks by itself: its page leads to the assistants and to the sound card, and no page
/// says that the sound of boards is of no use.
#[test]
fn every_page_of_a_board_leads_to_its_sound() {
    let pages = pages();
    let is_board = |page: &&Page| {
        let path = page.path.strip_prefix(root()).expect("a page of the repository");
        path.starts_with("boards") && path.ends_with("README.md") && path.components().count() == 3
    };
    let mut boards = 0;
    for page in &pages {
        let text = fs::read_to_string(&page.path).expect("a page");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!words.contains("own audio is not used"), "{}", page.path.display());
        if is_board(&page) && words.contains("speakerphone") {
            boards += 1;
            for link in ["../../docs/assistants.md", "../../docs/local.md"] {
                assert!(words.contains(link), "{} has no {link}", page.path.display());
            }
        }
    }
    assert_eq!(boards, 6);
}

/// Pages cite tests as `cargo test` takes them: `module::test`.
#[test]
fn every_test_that_a_page_cites_exists() {
    let sources = files(&root().join("tests"), "rs").into_iter();
    let sources: Vec<String> = sources
        .chain(files(&root().join("src"), "rs"))
        .map(|path| fs::read_to_string(path).expect("a source file is text"))
        .collect();
    let (mut missing, mut cited) = (Vec::new(), 0);
    for page in pages() {
        for span in spans(&page.prose) {
            let is_name = |part: &str| {
                !part.is_empty()
                    && part
                        .chars()
                        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            };
            let parts: Vec<&str> = span.trim_end_matches("::").split("::").collect();
            if parts.len() < 2 || !parts.iter().all(|part| is_name(part)) || FOREIGN.contains(&parts[0]) {
                continue;
            }
            cited += 1;
            let last = parts[parts.len() - 1];
            // A citation may stop in the middle of a name, as a filter of `cargo test` may.
            let found = [format!("fn {last}"), format!("mod {last}")];
            if !sources
                .iter()
                .any(|source| found.iter().any(|found| source.contains(found)))
            {
                missing.push(format!("{}: {span}", page.path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "cited, and not there:\n{}", missing.join("\n"));
    assert!(cited > 5, "{cited} tests");
}

/// The last column of the threat model names tests by their modules.
#[test]
fn every_test_of_the_threat_model_exists() {
    let page = fs::read_to_string(root().join("SECURITY.md")).expect("the page is text");
    let (_, table) = page.split_once("| proved by |").expect("the page has the table");
    let table = table.split("\n\n").next().expect("a table ends");
    let mut found = 0;
    for row in table
        .lines()
        .filter(|row| row.starts_with("| ") && !row.starts_with("| ---"))
    {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        for name in spans(cell) {
            let module = name.split("::").next().expect("a name");
            if module.starts_with("tests/check.sh") {
                continue;
            }
            let is_module = |path: &PathBuf| {
                path.file_stem().is_some_and(|stem| stem == module) || path.iter().any(|part| part == module)
            };
            let mut sources = files(&root().join("tests"), "rs")
                .into_iter()
                .chain(files(&root().join("src"), "rs"));
            assert!(sources.any(|path| is_module(&path)), "SECURITY.md cites {name}");
            found += 1;
        }
    }
    assert!(found > 20, "{found}");
}

#[test]
fn every_stage_and_example_that_a_page_names_exists() {
    let script = fs::read_to_string(root().join("tests/check.sh")).expect("the list of checks is text");
    let cases = script.lines().filter_map(|line| line.trim().split_once(") "));
    let stages: BTreeSet<&str> = cases
        .filter(|(names, _)| !names.contains('('))
        .flat_map(|(names, _)| names.split(" | "))
        .collect();
    assert!(stages.contains("lint") && stages.contains("miri"), "{stages:?}");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest is text");
    let (mut wrong, mut named) = (Vec::new(), 0);
    for page in pages() {
        for command in spans(&page.prose).into_iter().chain(page.code.lines()) {
            let command = command.split('#').next().unwrap_or_default();
            let mut words = command.split_whitespace();
            if words.by_ref().any(|word| word == "tests/check.sh") {
                let words: Vec<&str> = words.filter(|word| !word.starts_with("STAGE")).collect();
                named += words.len();
                let stray = words.iter().filter(|word| !stages.contains(**word));
                wrong.extend(stray.map(|word| format!("{}: stage {word}", page.path.display())));
            }
            if let Some((_, rest)) = command.split_once("--example ") {
                let name = rest.split_whitespace().next().unwrap_or_default();
                if name != "NAME" && !manifest.contains(&format!("name = \"{name}\"")) {
                    wrong.push(format!("{}: example {name}", page.path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "named, and not there:\n{}", wrong.join("\n"));
    assert!(named > 10, "{named} stages");
}

/// The bots of the README are the files that they are said to be.
#[test]
fn the_bots_of_the_readme_are_the_examples() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README is text");
    let block = |language: &str| {
        let start = readme
            .find(&format!("```{language}\n"))
            .expect("the README has the bot");
        let rest = &readme[start + language.len() + 4..];
        rest[..rest.find("```").expect("a fence ends")].to_owned()
    };
    let hello = fs::read_to_string(root().join("examples/hello.rs")).expect("the example is text");
    let code = hello
        .lines()
        .skip_while(|line| line.starts_with("//!") || line.is_empty());
    let code: String = code.map(|line| format!("{line}\n")).collect();
    assert_eq!(block("rust"), code);

    // Twice as loud, and no louder than 16 bits allow.
    let mut bot = Command::new("python3")
        .args(["-c", &block("python")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let caller: Vec<u8> = (0..640)
        .flat_map(|_| [1_000_i16, 20_000])
        .flat_map(i16::to_le_bytes)
        .collect();
    let mut stdin = bot.stdin.take().expect("it is piped");
    stdin.write_all(&caller).expect("the bot reads");
    drop(stdin);
    let said = bot.wait_with_output().expect("the bot ends").stdout;
    let louder: Vec<u8> = (0..640)
        .flat_map(|_| [2_000_i16, 32_767])
        .flat_map(i16::to_le_bytes)
        .collect();
    assert!(said == louder, "{} bytes", said.len());
}

/// Alert rules and dashboards read families that `/metrics` has. The table of the reference is
/// generated from the program.
#[test]
fn every_metric_of_the_monitoring_exists() {
    let reference = fs::read_to_string(root().join("docs/reference.md")).expect("the reference is text");
    let known = |name: &str| {
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        reference.contains(&format!("| `{family}` |"))
    };
    let folder = root().join("docs/monitoring");
    let mut seen = BTreeSet::new();
    for path in [files(&folder, "yml"), files(&folder, "json")].concat() {
        let text = fs::read_to_string(&path).expect("it is text");
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("edge_runner_") || word.starts_with("process_")) {
            assert!(known(name), "{}: `{name}` is not in the reference", path.display());
            seen.insert(name.to_owned());
        }
    }
    assert!(seen.len() > 15, "{seen:?}");
}
