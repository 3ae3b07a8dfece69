//! Modules of a crate import each other in one direction: no file imports, directly or through
//! others, a file that imports it. A module and the modules inside it count as one place: between
//! them, imports in both directions are allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The segments of the path of a module, from the root of its crate on; empty for the root.
type Module = Vec<String>;

/// The folders of the crates, relative to the package; a crate has none of the folders inside it.
const CRATES: [&str; 4] = ["src", "src/proto", "src/http", "src/cloud"];

/// A part of source text that matters for imports.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    PathSeparator,
    Other(char),
}

/// Returns the tokens of a source file without comments and the tests at its end.
fn tokens(text: &str) -> Vec<Token> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let without_comments: Vec<&str> = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect();
    let text = without_comments.join("\n");
    let mut tokens = Vec::new();
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            _ if is_name(first) => {
                let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
                tokens.push(Token::Name(rest[..end].to_owned()));
                end
            }
            ':' if rest.starts_with("::") => {
                tokens.push(Token::PathSeparator);
                2
            }
            _ => {
                if !first.is_whitespace() {
                    tokens.push(Token::Other(first));
                }
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    tokens
}

/// Adds the paths of a tree of `use` to `paths`, and returns the tokens after the tree.
fn add_tree<'a>(mut tokens: &'a [Token], prefix: &[String], paths: &mut Vec<Vec<String>>) -> &'a [Token] {
    let mut path = prefix.to_vec();
    loop {
        match tokens {
            [Token::Name(name), rest @ ..] if name == "as" => tokens = rest.get(1..).unwrap_or_default(),
            [Token::Name(name), rest @ ..] => {
                path.push(name.clone());
                tokens = rest;
            }
            [Token::PathSeparator, rest @ ..] => tokens = rest,
            [Token::Other('{'), rest @ ..] => {
                tokens = rest;
                loop {
                    tokens = match tokens {
                        [Token::Other('}'), rest @ ..] => return rest,
                        [Token::Other(','), rest @ ..] => rest,
                        [] => return tokens,
                        _ => add_tree(tokens, &path, paths),
                    }
                }
            }
            [Token::Other('*'), rest @ ..] => tokens = rest,
            _ => {
                paths.push(path);
                return tokens;
            }
        }
    }
}

/// Returns all paths of a source file that `use` names, or that begin with `crate` or `super`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let tokens = tokens(text);
    let mut rest = tokens.as_slice();
    let mut paths = Vec::new();
    while !rest.is_empty() {
        rest = match rest {
            [Token::Name(name), rest @ ..] if name == "use" => add_tree(rest, &[], &mut paths),
            [Token::Name(name), Token::PathSeparator, ..] if name == "crate" || name == "super" => {
                let mut path = vec![name.clone()];
                let mut tail = &rest[1..];
                while let [Token::PathSeparator, Token::Name(name), after @ ..] = tail {
                    path.push(name.clone());
                    tail = after;
                }
                paths.push(path);
                tail
            }
            _ => &rest[1..],
        };
    }
    paths
}

/// Returns the module of this crate that a path in `module` leads to: the longest one with a file.
fn target(module: &Module, path: &[String], modules: &BTreeMap<Module, String>) -> Option<Module> {
    let mut full = match path.first()?.as_str() {
        "crate" => path[1..].to_vec(),
        "super" => {
            let up = path.iter().take_while(|segment| *segment == "super").count();
            let base = &module[..module.len().checked_sub(up)?];
            [base, &path[up..]].concat()
        }
        // A path without one of them leads to a module inside this one, or to another crate.
        _ => return None,
    };
    while !full.is_empty() && !modules.contains_key(&full) {
        full.pop();
    }
    (!full.is_empty()).then_some(full)
}

/// Returns the imports of each module in others that neither contain it nor are inside it.
fn imports(modules: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut imports = BTreeMap::new();
    for (module, text) in modules {
        let targets = paths(text)
            .iter()
            .filter_map(|path| target(module, path, modules))
            .filter(|target| !target.starts_with(module) && !module.starts_with(target))
            .collect();
        imports.insert(module.clone(), targets);
    }
    imports
}

/// Returns the imports that are part of a circle, or between two.
fn circles(modules: &BTreeMap<Module, String>) -> Vec<String> {
    let mut imports = imports(modules);
    loop {
        let imported: BTreeSet<Module> = imports.values().flatten().cloned().collect();
        let before = imports.len();
        imports.retain(|module, targets| !targets.is_empty() && imported.contains(module));
        let kept: BTreeSet<Module> = imports.keys().cloned().collect();
        for targets in imports.values_mut() {
            targets.retain(|target| kept.contains(target));
        }
        if imports.len() == before {
            break;
        }
    }
    imports
        .iter()
        .flat_map(|(module, targets)| targets.iter().map(move |target| (module, target)))
        .map(|(module, target)| format!("{} -> {}", module.join("::"), target.join("::")))
        .collect()
}

/// Adds the files of a crate, or of a folder in it.
fn add_files(folder: &Path, module: &Module, others: &[std::path::PathBuf], found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the entry is readable").path();
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let inner = [module.as_slice(), std::slice::from_ref(&stem)].concat();
        if path.is_dir() {
            if !others.contains(&path) && stem != "tests" {
                add_files(&path, &inner, others, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") && stem != "tests" {
            let is_root = matches!(stem.as_str(), "mod" | "lib" | "main");
            let text = fs::read_to_string(&path).expect("a source file is text");
            let name = if is_root { module.clone() } else { inner };
            found.entry(name).or_default().push_str(&text);
        }
    }
}

#[test]
fn imports_have_one_direction() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = CRATES.map(|folder| package.join(folder));
    let mut count = 0;
    for folder in &folders {
        let mut modules = BTreeMap::new();
        let others: Vec<_> = folders.iter().filter(|other| *other != folder).cloned().collect();
        add_files(folder, &Module::new(), &others, &mut modules);
        let found = circles(&modules);
        assert!(
            found.is_empty(),
            "{} has a circle of imports; move what both sides need to a module of its own:\n{}",
            folder.display(),
            found.join("\n")
        );
        count += imports(&modules).values().map(BTreeSet::len).sum::<usize>();
    }
    assert!(count > 1000, "only {count} imports were found");
}

#[test]
fn a_circle_through_any_form_of_path_is_found() {
    let of = |files: &[(&str, &str)]| {
        let modules = files
            .iter()
            .map(|(name, text)| {
                let module = name.split("::").map(str::to_owned).collect();
                (module, (*text).to_owned())
            })
            .collect();
        circles(&modules)
    };
    let chain = [
        ("a", "use crate::b::X;"),
        ("b", "use super::c::{Y, Z as W};"),
        ("c", ""),
    ];
    assert_eq!(of(&chain), Vec::<String>::new());
    for back in [
        "use crate::{a::T, std::fmt};",
        "pub use crate::a;",
        "fn f() -> crate::a::T { todo!() }",
        "use std::fmt;\nuse crate::d::{\n    self, T,\n};",
    ] {
        let files = [chain[0], chain[1], ("c", back), ("d", "use super::a::T;")];
        assert!(of(&files).contains(&"a -> b".to_owned()), "{back}: {:?}", of(&files));
    }
    // A comment, a test, and a module with those inside it make no circle.
    for harmless in ["// crate::a::T", "#[cfg(test)]\nmod tests {\n use crate::a::T;\n}"] {
        assert_eq!(of(&[chain[0], chain[1], ("c", harmless)]), Vec::<String>::new());
    }
    let inside = [("a", "use self::b::X;"), ("a::b", "use super::T; use crate::a::T;")];
    assert_eq!(of(&inside), Vec::<String>::new());
}
