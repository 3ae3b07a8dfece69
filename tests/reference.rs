//! `docs/reference.md` against the program: options, variables, metrics, aliases, limits and sizes
//! are generated, and routes, transports, features and messages are checked.
//!
//! `UPDATE=1 cargo test --test main reference` writes the generated parts again. A part stands
//! between `<!-- NAME: generated -->` and `<!-- end of NAME -->`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

use edge_runner_proto::aliases::{Area, TABLE};
use edge_runner_proto::config::Transport;
use edge_runner_proto::http::route::{Route, route};
use edge_runner_proto::modules::ENDPOINTS;
use serde_json::Value;

use self::openapi::to_json;
use crate::support::cloud::{DataDir, TestCloud};
use crate::support::http;
use crate::support::runner::{TestRunner, folder};

/// Of the build script.
#[path = "../src/build/openapi.rs"]
mod openapi;

/// The section of each file of limits that is left out: what operators never meet.
const INTERNAL: &str = "internal";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn page() -> String {
    read("docs/reference.md")
}

/// Compares a generated part with the page, or writes it with `UPDATE=1`.
fn hold(name: &str, generated: &str) {
    let (begin, end) = (
        format!("<!-- {name}: generated -->\n"),
        format!("<!-- end of {name} -->"),
    );
    // Several tests write to the page.
    static PAGE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _guard = PAGE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let page = page();
    let start = page.find(&begin).expect("the page has the part") + begin.len();
    let length = page[start..].find(&end).expect("the part has an end");
    let generated = format!("\n{}\n\n", generated.trim());
    if page[start..start + length] == generated {
        return;
    }
    assert!(
        env::var_os("UPDATE").is_some(),
        "the part `{name}` of docs/reference.md is stale: UPDATE=1 cargo test --test main reference"
    );
    let updated = format!("{}{generated}{}", &page[..start], &page[start + length..]);
    // Other tests read the page meanwhile.
    let new = root().join("docs/reference.md.new");
    fs::write(&new, updated).expect("the folder is writable");
    fs::rename(new, root().join("docs/reference.md")).expect("the page is writable");
}

/// Escapes what a cell of a table cannot hold. Names of variables and options become code.
fn cell(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let bare = word.trim_matches(['.', ',', ';', ':', '(', ')']);
        let is_name = bare.len() > 3
            && bare.contains('_')
            && bare
                .chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        let is_placeholder = bare.contains('<') && !word.contains('`');
        match is_name || is_placeholder {
            true => word.replace(bare, &format!("`{bare}`")),
            false => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// A section of the help: its title, and its entries with their texts on one line.
type Section = (String, Vec<(String, String)>);

/// Reads what `--help` prints. Entries are indented by two at least; their texts are in a column.
fn help() -> Vec<Section> {
    let text = TestRunner::run(&["--help"]).stdout;
    let mut sections: Vec<Section> = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if indent == 0 && line.ends_with(':') || line.starts_with("Environment") {
            let title = line.trim_end_matches(':').to_owned();
            sections.push((title, Vec::new()));
            continue;
        }
        let Some((_, entries)) = sections.last_mut() else {
            continue;
        };
        match (indent, entries.last_mut()) {
            (_, Some((_, text))) if indent > 20 && !line.is_empty() => {
                *text = format!("{text} {}", line.trim()).trim().to_owned();
            }
            (2..=20, _) => {
                let (name, text) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
                entries.push((name.to_owned(), text.trim().to_owned()));
            }
            _ => {}
        }
    }
    sections
}

/// Splits `[default: ..]` from a text.
fn default_of(text: &str) -> (String, String) {
    match text.split_once("[default: ") {
        None => (text.to_owned(), String::new()),
        Some((before, after)) => {
            // Addresses have brackets of their own.
            let depth = |(depth, at): (i32, Option<usize>), (i, c): (usize, char)| match (c, at) {
                (_, Some(_)) => (depth, at),
                ('[', _) => (depth + 1, None),
                (']', _) if depth == 0 => (0, Some(i)),
                (']', _) => (depth - 1, None),
                _ => (depth, None),
            };
            let end = after.char_indices().fold((0, None), depth).1.expect("a bracket closes");
            let rest = format!("{} {}", before.trim(), after[end + 1..].trim());
            (rest.trim().to_owned(), after[..end].to_owned())
        }
    }
}

#[test]
fn options_and_variables_are_those_of_the_help() {
    let (mut options, mut variables) = (String::new(), String::new());
    for (title, entries) in help() {
        if title.starts_with("Environment") {
            variables.push_str("| variable | meaning | default | also |\n|---|---|---|---|\n");
            // The first says that each option has one, as the table of options does.
            let entries = entries.into_iter().filter(|(name, _)| !name.ends_with("..."));
            for (name, text) in entries {
                let (text, default) = default_of(&text);
                let (text, also) = text.split_once("Also: ").unwrap_or((&text, ""));
                let also = also.trim_end_matches('.').split(", ").filter(|name| !name.is_empty());
                let also: Vec<_> = also.map(|name| format!("`{name}`")).collect();
                let (text, default) = (cell(text.trim()), cell(&default));
                variables.push_str(&format!("| `{name}` | {text} | {default} | {} |\n", also.join(", ")));
            }
            continue;
        }
        let is_option = |(name, _): &(String, String)| name.starts_with('-');
        if entries.is_empty() || !entries.iter().all(is_option) {
            continue;
        }
        options.push_str(&format!(
            "\n### {title}\n\n| option | variable | meaning | default |\n|---|---|---|---|\n"
        ));
        for (name, text) in entries {
            let long = name.split([' ', ',']).find(|word| word.starts_with("--"));
            let long = long.expect("every option has a long name").trim_end_matches("...");
            let variable = match long {
                "--help" | "--version" => String::new(),
                _ => format!(
                    "`RUNNER_{}`",
                    long.trim_start_matches('-').to_ascii_uppercase().replace('-', "_")
                ),
            };
            let (text, default) = default_of(&text);
            let name = name.replace('|', "\\|");
            let (text, default) = (cell(&text), cell(&default));
            options.push_str(&format!("| `{name}` | {variable} | {text} | {default} |\n"));
        }
    }
    assert!(options.contains("`RUNNER_MAX_SESSIONS`") && variables.contains("`TWILIO_AUTH_TOKEN`"));
    hold("options", &options);
    hold("variables", &variables);
}

#[test]
fn aliases_are_those_of_the_table() {
    let mut table = String::from("| | canonical name | also accepted |\n|---|---|---|\n");
    for row in TABLE {
        let area = match row.area {
            Area::Transport => "transport",
            Area::Option => "option",
            Area::Variable => continue,
            Area::JsonKey => "JSON key",
            Area::Path => "path",
        };
        let also: Vec<_> = row.aliases.iter().map(|alias| format!("`{alias}`")).collect();
        table.push_str(&format!("| {area} | `{}` | {} |\n", row.canonical, also.join(", ")));
    }
    hold("aliases", &table);
}

/// Returns a table of the families in a text of metrics.
fn metrics_table(text: &str) -> String {
    let mut table = String::from("| family | type | meaning |\n|---|---|---|\n");
    let kind = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("# TYPE {name} ")));
        line.expect("a family has a type").to_owned()
    };
    let families = text.lines().filter_map(|line| line.strip_prefix("# HELP "));
    let mut rows: Vec<_> = families
        .map(|line| line.split_once(' ').expect("a family has help"))
        .collect();
    rows.sort_unstable();
    rows.dedup();
    for (name, meaning) in &rows {
        // In OpenMetrics the family of a counter has the name of its samples without `_total`.
        let family = name.strip_suffix("_total").unwrap_or("");
        assert!(rows.iter().all(|(other, _)| *other != family), "{name} and {family}");
        table.push_str(&format!("| `{name}` | {} | {} |\n", kind(name), cell(meaning)));
    }
    table
}

#[test]
fn metrics_are_those_that_the_cloud_service_serves() {
    let data = DataDir::new();
    let cloud = TestCloud::start(&data, &[]);
    let text = http::get(cloud.runner.addr, "/metrics").text();
    // The table of the runner has those of the process.
    let own: Vec<&str> = text.lines().filter(|line| !line.contains(" process_")).collect();
    hold("cloud metrics", &metrics_table(&own.join("\n")));
}

#[test]
fn metrics_are_those_that_a_runner_serves() {
    let local = ["--local", "--local-start", "speech", "--local-in", "sleep 60"];
    let arguments = [&["--config", "bots.toml"], &local[..]].concat();
    let files = [("bots.toml", "[bots.a]\nbot = 'echo'\n[bots.b]\nbot = 'parrot'\n")];
    let runner = TestRunner::start_among(&files, &arguments, &[]);
    let text = http::get(runner.addr, "/metrics").text();
    // What dials, and writes and posts records.
    let records = folder();
    let dials = [
        "-t",
        "twilio",
        "--proxy",
        "bots.example.net",
        "--dial-out",
        "+15550002222",
    ];
    let dir = records.to_str().expect("UTF-8");
    let more = ["--metrics", "any", "--calls-dir", dir, "--events", "http://127.0.0.1:9"];
    let variables = [
        ("TELCO_A_ACCOUNT_SID", "AC0000000000000000000000000000cafe"),
        ("TELCO_A_AUTH_TOKEN", "0123456789abcdef"),
        ("RUNNER_API_KEY", "0123456789abcdef0123456789abcdef"),
        ("RUNNER_EVENTS_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ];
    let dialler = TestRunner::start_with(&[&dials[..], &more].concat(), &variables);
    let dialling = http::get(dialler.addr, "/metrics").text();
    let moq = TestRunner::start(&["-t", "moq", "--moq-bind", "127.0.0.1:0"]);
    let quic = http::get(moq.addr, "/metrics").text();
    hold("metrics", &metrics_table(&(text + &dialling + &quic)));
}

/// Returns the part of the page below a heading, up to the next one of the same level.
fn section(heading: &str) -> String {
    let page = page();
    let start = page
        .find(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("{heading}"));
    let rest = &page[start + 1..];
    let end = rest.find("\n## ").unwrap_or(rest.len());
    rest[..end].to_owned()
}

/// Returns what stands in backticks.
fn code(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns which endpoint a route is. The match has no wildcard, so a new endpoint does not compile
/// until it is here, and then fails until the page has it.
fn endpoint(route: &Route<'_>) -> Option<&'static str> {
    Some(match route {
        Route::PageRedirect => "the redirect to the page",
        Route::Page(_) => "the page",
        Route::Download(_) => "a download",
        Route::Upload(None) => "/files",
        Route::Upload(Some(_)) => "/sessions/ID/files",
        Route::CaCertificate => "the authority",
        Route::Robots => "robots.txt",
        Route::OpenApi => "openapi.json",
        Route::Start => "/start",
        Route::Status => "/status",
        Route::Live => "/livez",
        Route::Ready => "/readyz",
        Route::Metrics => "/metrics",
        Route::Sessions => "/sessions",
        Route::EndSession(_) => "/sessions/ID",
        Route::Settings => "/settings",
        Route::ChangeSettings => "POST /settings",
        Route::CheckServices => "/settings/check",
        Route::TestSound => "/settings/sound-test",
        Route::Calls => "/calls",
        Route::Dial => "POST /calls",
        Route::CallEvents => "/calls/events",
        Route::CallRecording(_) => "/calls/ID/recording",
        Route::Listen(_) => "/calls/ID/listen",
        Route::EndListening(..) => "/calls/ID/listen/LISTENER",
        Route::Call(_) => "/calls/ID",
        Route::Offer(None) => "/api/offer",
        Route::Offer(Some(_)) => "/sessions/ID/api/offer",
        Route::Candidates(None) => "candidates",
        Route::Candidates(Some(_)) => "candidates of a session",
        Route::Whip(_) => "WHIP",
        Route::Socket(..) => "a socket",
        Route::Webhook => "the telephony webhook",
        Route::Module(endpoint) => endpoint.path,
        Route::Methods(_) => return None,
    })
}

/// Returns the methods and paths of the table of routes.
fn listed_routes() -> Vec<(String, String)> {
    let text = section("## Routes");
    let text = text.split("\n### ").next().expect("the first part of the section");
    let mut listed = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = row.trim_matches('|').split(" | ");
        let (methods, paths) = (cells.next().expect("methods"), cells.next().expect("paths"));
        for method in code(methods) {
            let method = if method == "WS" { "GET" } else { method };
            listed.extend(code(paths).into_iter().map(|path| (method.to_owned(), path.to_owned())));
        }
    }
    listed
}

/// The description for programs has the routes of the table, and no other.
#[test]
fn the_openapi_description_has_every_route() {
    let yaml = read("docs/openapi.yaml");
    let (_, paths) = yaml.split_once("\npaths:\n").expect("paths");
    let (paths, _) = paths.split_once("\ncomponents:\n").expect("components behind them");
    let (mut described, mut path) = (BTreeSet::new(), "");
    for line in paths.lines() {
        if let Some(found) = line.strip_prefix("  /").and_then(|line| line.strip_suffix(':')) {
            path = found;
        }
        for method in ["get", "post", "patch", "delete", "put"] {
            if line.strip_prefix("    ") == Some(&format!("{method}:")) {
                described.insert((method.to_uppercase(), format!("/{path}")));
            }
        }
    }
    let parameter = |path: String| {
        let path = path.replace("rtc_ID", "{id}").replace("ID", "{id}");
        let path = path
            .replace("NAME", "{name}")
            .replace("TOKEN", "{token}")
            .replace("LISTENER", "{listener}")
            .replace("PATH", "{file}");
        path.replace("/client/app.js", "/client/{file}")
    };
    // The page itself is the file without a name.
    let listed = listed_routes().into_iter().filter(|(_, path)| path != "/client/");
    let listed: BTreeSet<_> = listed.map(|(method, path)| (method, parameter(path))).collect();
    assert_eq!(described, listed);
}

/// The runner serves the description as JSON: its routes, and what its references lead to. The
/// check `openapi` compares each value with what another parser reads.
#[test]
fn the_openapi_description_is_served() {
    let runner = TestRunner::start(&[]);
    let reply = http::get(runner.addr, "/openapi.json");
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, Some("application/json"))
    );
    let description = reply.json();
    assert_eq!(description["openapi"], "3.1.0");
    let yaml = read("docs/openapi.yaml");
    let summaries = yaml.lines().filter(|line| line.starts_with("      summary: ")).count();
    let operations = description["paths"].as_object().expect("paths").values();
    let operations = operations.flat_map(|path| path.as_object().expect("methods").values());
    assert_eq!(
        operations.filter(|operation| operation["summary"].is_string()).count(),
        summaries
    );
    let mut references = Vec::new();
    collect_references(&description, &mut references);
    assert_eq!(references.len(), yaml.matches("$ref: '#/").count());
    for reference in references {
        let place = reference.strip_prefix('#').expect("a reference within the file");
        assert!(description.pointer(place).is_some(), "{reference}");
    }
}

fn collect_references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|value| collect_references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_references(value, found)),
        _ => {}
    }
}

/// What the build script reads of YAML, and what it rejects with its line.
#[test]
fn the_yaml_of_the_description_is_converted() {
    let yaml = "# A comment.\na: 3.1.0\n'b c': 'it''s \"x\"'\nd:\n  - {e: [1, 'null', null], f: {}}\n  - g: true\n    h: -0.5, 1\n  - i\nj: {k: a b, $ref: '#/l'}\n/m/{n}:\n  o: []\n";
    let json = r##"{"a":"3.1.0","b c":"it's \"x\"","d":[{"e":[1,"null",null],"f":{}},{"g":true,"h":"-0.5, 1"},"i"],"j":{"k":"a b","$ref":"#/l"},"/m/{n}":{"o":[]}}"##;
    assert_eq!(to_json(yaml), Ok(json.to_owned()));
    for (wrong, line) in [
        ("a: b\n  c: d\n", 2),
        ("a:\nb: c\n", 2),
        ("a: b\nc\n", 2),
        ("a: |\n", 1),
        ("a: &b c\n", 1),
        ("a: \"b\"\n", 1),
        ("a: b # c\n", 1),
        ("a: yes\n", 1),
        ("a: {b: c\n", 1),
        ("a: 'b\n", 1),
        ("a: {b: c} d\n", 1),
    ] {
        let refused = to_json(wrong).expect_err(wrong);
        assert!(refused.starts_with(&format!("line {line}: ")), "{wrong}: {refused}");
    }
}

/// Every row of the table of routes leads to an endpoint, and every endpoint has a row.
#[test]
fn every_route_of_the_page_exists_and_every_endpoint_is_on_the_page() {
    let (mut found, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for (method, path) in listed_routes() {
        // Ids of sessions are hexadecimal.
        let example = path.replace("ID", "0123456789abcdef");
        let route = route(&method, &example);
        let route = route.unwrap_or_else(|refusal| panic!("{method} {path}: {refusal}"));
        found.insert(endpoint(&route).unwrap_or_else(|| panic!("{method} {path}")));
        paths.insert(path);
    }
    let all = [
        Route::PageRedirect,
        Route::Page("".into()),
        Route::Download("a".into()),
        Route::Upload(None),
        Route::Upload(Some(String::new())),
        Route::CaCertificate,
        Route::Robots,
        Route::OpenApi,
        Route::Start,
        Route::Status,
        Route::Live,
        Route::Ready,
        Route::Metrics,
        Route::Sessions,
        Route::EndSession(String::new()),
        Route::Settings,
        Route::ChangeSettings,
        Route::CheckServices,
        Route::TestSound,
        Route::Calls,
        Route::Dial,
        Route::CallEvents,
        Route::Call(String::new()),
        Route::CallRecording(String::new()),
        Route::Listen(String::new()),
        Route::EndListening(String::new(), String::new()),
        Route::Offer(None),
        Route::Offer(Some(String::new())),
        Route::Candidates(None),
        Route::Candidates(Some(String::new())),
        Route::Webhook,
    ];
    let of_modules = ENDPOINTS.iter().map(Route::Module);
    for route in all.into_iter().chain(of_modules) {
        let name = endpoint(&route).expect("an endpoint");
        assert!(found.contains(name), "docs/reference.md has no route for {name}");
    }
    for path in [
        "/ws",
        "/ws/TOKEN",
        "/ws-client",
        "/ws-client/TOKEN",
        "/whip",
        "/whip/NAME",
        "/whep",
        "/whep/NAME",
        "/whip/s/ID",
        "/v1/realtime/calls",
        "/v1/realtime/calls/rtc_ID/hangup",
        "/v1/realtime/client_secrets",
    ] {
        assert!(paths.contains(path), "docs/reference.md has no route {path}");
    }
}

#[test]
fn every_transport_is_on_the_page_and_in_the_readme_under_each_of_its_names() {
    for (name, text) in [
        ("README.md", read("README.md")),
        ("docs/reference.md", section("## Transports")),
    ] {
        let listed = code(&text);
        for transport in Transport::ALL {
            let aliases = TABLE
                .iter()
                .filter(|row| row.area == Area::Transport && row.canonical == transport.name());
            let aliases = aliases.flat_map(|row| row.aliases).copied();
            for each in aliases.chain([transport.name()]) {
                assert!(listed.contains(&each), "{name} does not name the transport {each}");
            }
        }
    }
}

#[test]
fn every_cargo_feature_is_on_the_page() {
    let manifest = read("Cargo.toml");
    let features = manifest
        .split("[features]")
        .nth(1)
        .and_then(|rest| rest.split("\n[").next());
    let names = features.expect("the manifest has features").lines();
    let names = names.filter_map(|line| line.split_once(" = [").map(|(name, _)| name.trim()));
    let text = section("## Features");
    let listed = code(&text);
    let names: Vec<&str> = names
        .filter(|name| !name.starts_with('_') && *name != "default")
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(
            listed.contains(&name),
            "docs/reference.md does not name the feature {name}"
        );
    }
}

/// Returns the variants of an enum of a source file, in kebab case.
fn variants(path: &str, name: &str) -> Vec<String> {
    let source = read(path);
    let start = source.find(&format!("pub enum {name}"));
    let body = &source[start.unwrap_or_else(|| panic!("{path} has no enum {name}"))..];
    let body = &body[..body.find("\n}").expect("an enum ends")];
    let is_variant = |line: &&str| line.starts_with("    ") && line[4..].starts_with(|c: char| c.is_ascii_uppercase());
    let words = body.lines().filter(is_variant).map(|line| {
        let word = line.trim().split(|c: char| !c.is_alphanumeric()).next();
        let mut kebab = String::new();
        for c in word.expect("a variant has a name").chars() {
            if c.is_uppercase() && !kebab.is_empty() {
                kebab.push('-');
            }
            kebab.push(c.to_ascii_lowercase());
        }
        kebab
    });
    words.collect()
}

#[test]
fn every_message_of_the_runner_is_on_the_page() {
    let text = section("## Messages");
    let listed = code(&text);
    let types = variants("src/proto/rtvi/to_client.rs", "ToClient");
    assert!(types.len() > 20 && types.contains(&"bot-ready".to_owned()), "{types:?}");
    for each in types {
        assert!(
            listed.contains(&&*each),
            "docs/reference.md does not name the message {each}"
        );
    }
}

/// Returns the value of a limit in words, from its expression.
fn value(name: &str, expression: &str) -> String {
    let plain = |text: &str| -> Option<u64> {
        let factors = text
            .split('*')
            .map(|factor| factor.trim().replace('_', "").parse::<u64>());
        factors.product::<Result<u64, _>>().ok()
    };
    let grouped = |number: u64| {
        let digits = number.to_string();
        let mut text = String::new();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) && digits.len() > 3 {
                text.push(',');
            }
            text.push(digit);
        }
        text
    };
    let is_bytes = name.contains("_BYTES");
    let quantity = |number: u64| match number {
        _ if is_bytes && number >= 1 << 20 && number.is_multiple_of(1 << 20) => format!("{} MiB", number >> 20),
        _ if is_bytes && number >= 1 << 10 && number.is_multiple_of(1 << 10) => format!("{} KiB", number >> 10),
        _ => grouped(number),
    };
    let time = |number: u64, unit: &str| match (unit, number) {
        ("s", 0) => "none".to_owned(),
        ("s", n) if n.is_multiple_of(86_400) => format!("{} days", grouped(n / 86_400)),
        ("s", n) if n.is_multiple_of(3_600) => format!("{} h", n / 3_600),
        _ => format!("{} {unit}", grouped(number)),
    };
    let expression = expression.trim();
    if let Some(number) = plain(expression) {
        return quantity(number);
    }
    if let Some(list) = expression.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        return entries.map(|entry| value(name, entry)).collect::<Vec<_>>().join(", ");
    }
    if let Some((from, to)) = expression.split_once("..=") {
        return format!("{} to {}", value(name, from), value(name, to));
    }
    if expression == "Duration::ZERO" {
        return "none".to_owned();
    }
    for (function, unit) in [("Duration::from_secs(", "s"), ("Duration::from_millis(", "ms")] {
        let inner = expression
            .strip_prefix(function)
            .and_then(|rest| rest.strip_suffix(')'));
        if let Some(inner) = inner {
            return plain(inner).map_or_else(|| format!("`{inner}` {unit}"), |number| time(number, unit));
        }
    }
    let words = expression.split_inclusive([' ', '(', ')']).map(|word| {
        let bare = word.trim_end();
        let is_name = bare.len() > 3
            && bare
                .chars()
                .all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit());
        match (bare, plain(bare)) {
            ("*", _) => "× ".to_owned(),
            (_, Some(number)) => format!("{} ", quantity(number)),
            _ if is_name => format!("`{bare}` "),
            _ => word.to_owned(),
        }
    });
    words.collect::<String>().trim().to_owned()
}

#[test]
fn limits_are_those_of_the_code() {
    let index = read("src/proto/limits/mod.rs");
    let themes = index
        .lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let mut files: BTreeMap<String, PathBuf> = themes
        .map(|theme| (theme.to_owned(), root().join(format!("src/proto/limits/{theme}.rs"))))
        .collect();
    for module in fs::read_dir(root().join("src/proto")).expect("the folder is readable") {
        let module = module.expect("the entry is readable");
        let file = module.path().join("limits.rs");
        if file.is_file() {
            files.insert(module.file_name().to_string_lossy().into_owned(), file);
        }
    }
    // A file begins without a section.
    let source: String = files.values().map(|file| format!("// ---- \n{}", read(file))).collect();
    let (mut table, mut heading, mut shown) = (String::new(), String::new(), 0);
    let (mut doc, mut constant) = (String::new(), String::new());
    for line in source.lines() {
        if let Some(title) = line.strip_prefix("// ---- ") {
            heading = title.to_owned();
            if !title.is_empty() && title != INTERNAL {
                let mut chars = title.chars();
                let first = chars.next().expect("a section has a name").to_uppercase();
                let title = format!("{first}{}", chars.as_str());
                table.push_str(&format!("\n### {title}\n\n| limit | value | name |\n|---|---|---|\n"));
            }
        } else if let Some(text) = line.strip_prefix("/// ") {
            doc = format!("{doc} {text}").trim().to_owned();
        } else if line.starts_with("pub const ") || !constant.is_empty() {
            constant = format!("{constant} {}", line.trim()).trim().to_owned();
            if !constant.ends_with(';') {
                continue;
            }
            let (head, expression) = constant.split_once(" = ").expect("a constant has a value");
            let name = head.trim_start_matches("pub const ").split(':').next();
            let name = name.expect("a constant has a name").to_owned();
            assert!(!heading.is_empty(), "{name} has no section");
            if heading != INTERNAL {
                let end = [": ", "; ", ". "].iter().filter_map(|mark| doc.find(mark)).min();
                let what = doc[..end.unwrap_or(doc.len())].trim_end_matches('.');
                let value = value(&name, expression.trim_end_matches(';'));
                let what = what.replace("[`", "`").replace("`]", "`");
                table.push_str(&format!("| {} | {value} | `{name}` |\n", cell(&what)));
                shown += 1;
            }
            (doc, constant) = (String::new(), String::new());
        }
    }
    assert!(
        (50..=120).contains(&shown),
        "{shown} limits are too few or too many to read"
    );
    hold("limits", &table);
}

#[test]
fn values_of_limits_are_read_as_they_are_meant() {
    assert_eq!(value("A_MAX", "4_096"), "4,096");
    assert_eq!(value("A_BYTES_MAX", "256 * 1024"), "256 KiB");
    assert_eq!(value("A_BYTES_MAX", "1_500"), "1,500");
    assert_eq!(value("A_SHARE_MAX", "REGISTERED_MAX / 4"), "`REGISTERED_MAX` / 4");
    assert_eq!(value("A", "Duration::from_secs(300)"), "300 s");
    assert_eq!(value("A", "Duration::from_secs(4 * 3600)"), "4 h");
    assert_eq!(value("A", "Duration::from_millis(2500)"), "2,500 ms");
    assert_eq!(
        value("A", "[Duration::from_millis(500), Duration::from_secs(1)]"),
        "500 ms, 1 s"
    );
    assert_eq!(value("A_BYTES", "16..=512"), "16 to 512");
    assert_eq!(value("A_BYTES_MAX", "4 * MESSAGE_BYTES_MAX"), "4 × `MESSAGE_BYTES_MAX`");
}

/// A number with commas between its thousands.
fn grouped(number: u64) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1000), number % 1000),
    }
}

/// The lines of `cross/sizes.txt`: target, selection, codec, bytes, memory.
fn sizes() -> Vec<[String; 5]> {
    let text = read("cross/sizes.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    lines
        .map(|line| {
            (fields(line).try_into()).unwrap_or_else(|_| panic!("cross/sizes.txt: five words instead of `{line}`"))
        })
        .collect()
}

/// The bytes and the memory of a build, if it was measured.
fn size(target: &str, selection: &str, codec: &str) -> Option<(u64, String)> {
    let found = sizes()
        .into_iter()
        .find(|[of, name, with, ..]| (of.as_str(), name.as_str(), with.as_str()) == (target, selection, codec));
    found.map(|[.., bytes, memory]| {
        let memory = match memory.parse() {
            Ok(kilobytes) => format!("{} kB", grouped(kilobytes)),
            Err(_) => memory,
        };
        (bytes.parse().expect("bytes are a number"), memory)
    })
}

const NATIVE: &str = "native-x86_64";
const ARM: [&str; 2] = ["aarch64-unknown-linux-gnu", "armv7-unknown-linux-gnueabihf"];

#[test]
fn sizes_are_those_of_the_file() {
    let mut table = "| selection | features | codec | bytes on x86-64 | idle memory | bytes on aarch64 | on ARMv7 |\n\
                     |---|---|---|---|---|---|---|\n"
        .to_owned();
    for (selection, features) in [
        ("full", "everything; the default"),
        ("runner", "everything but `cloud`; what the packages for boards hold"),
        ("browser", "`webrtc`, `tls`, `page`"),
        ("telephone", "`telephony`"),
        ("smallest", "`webrtc`, with `--profile smallest`"),
    ] {
        for codec in ["libopus", "opus-pure", "-"] {
            let native = size(NATIVE, selection, codec);
            let arm = ARM.map(|target| size(target, selection, codec));
            if native.is_none() && arm.iter().all(Option::is_none) {
                continue;
            }
            let bytes = |size: &Option<(u64, String)>| size.as_ref().map_or("-".into(), |(bytes, _)| grouped(*bytes));
            let memory = native.as_ref().map_or("-", |(_, memory)| memory);
            table += &format!(
                "| `{selection}` | {features} | {codec} | {} | {memory} | {} | {} |\n",
                bytes(&native),
                bytes(&arm[0]),
                bytes(&arm[1])
            );
        }
    }
    hold("sizes", &table);
}

/// Sizes in README, in megabytes, of builds that `cross/sizes.txt` has.
#[test]
fn sizes_in_the_readme_are_those_of_the_file() {
    let readme = read("README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let smaller = "smaller selections](docs/reference.md#features) start at ";
    for (target, selection, codec, before, after) in [
        (NATIVE, "full", "opus-pure", "the page included: ", " on x86-64"),
        (ARM[0], "runner", "libopus", "without the cloud service, it has ", ";"),
        (ARM[0], "telephone", "-", smaller, "."),
    ] {
        let Some((bytes, _)) = size(target, selection, codec) else {
            assert_ne!(
                target, NATIVE,
                "cross/sizes.txt has no size of {selection} for {target}"
            );
            continue;
        };
        let words = format!("{before}{:.1} MB{after}", bytes as f64 / 1e6);
        assert!(readme.contains(&words), "README.md lacks: {words}");
    }
}
