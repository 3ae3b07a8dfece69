//! Properties of the file of settings.
//!
//! In: the text of the file. A file is read, or refused in one sentence that names a line of it and
//! repeats no text of a reference; what was read is within the file, and means the same when it is
//! written again. A change of one value changes nothing else.

use std::collections::BTreeSet;

use edge_runner_proto::options::env::Variables;
use edge_runner_proto::settings::edit::edited;
use edge_runner_proto::settings::{
    COMMAND, Reference, SettingEntry, SettingKey, SettingKind, SettingValue, key_of, parse,
};

const PREFIX: &str = "RUNNER_";
const FILE: &str = "a.toml";
/// Longer than each sentence about a known key, with the longest name that it repeats.
const ERROR_BYTES_MAX: usize = 600;

const fn key(name: &'static str, kind: SettingKind) -> SettingKey {
    SettingKey {
        name,
        kind,
        feature: None,
    }
}

/// Keys of each kind, options and variables.
const KEYS: [SettingKey; 8] = [
    key("--port", SettingKind::One),
    key("--api-key", SettingKind::One),
    key("--ice-servers", SettingKind::Several),
    key("--embedded", SettingKind::Switch),
    key("--verbose", SettingKind::Count),
    key("RUNNER_BOT_MINUTES", SettingKind::One),
    key("VIDEOROOM_API_KEY", SettingKind::One),
    key(COMMAND, SettingKind::Words),
];

/// Writes a text as TOML: a JSON text but for one control character.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|word| text(word)).collect();
    format!("[{}]", texts.join(","))
}

/// Writes an entry again.
fn written(entry: &SettingEntry) -> String {
    let kind = KEYS
        .iter()
        .find(|key| key.name == entry.name)
        .expect("a known key")
        .kind;
    let value = match (&entry.value, kind) {
        (SettingValue::Switch(on), _) => on.to_string(),
        (SettingValue::Texts(texts), SettingKind::Count) => texts.concat(),
        (SettingValue::Texts(texts), SettingKind::Several | SettingKind::Words) => list(texts),
        (SettingValue::Texts(texts), _) => {
            assert_eq!(texts.len(), 1);
            text(&texts[0])
        }
        (SettingValue::Reference(Reference::File(path)), _) => format!("{{ file = {} }}", text(path)),
        (SettingValue::Reference(Reference::Variable(name)), _) => format!("{{ variable = {} }}", text(name)),
    };
    format!("{} = {value}\n", key_of(entry.name, PREFIX))
}

/// A change of a value sets it, and leaves all others.
fn change(source: &str, before: &[SettingEntry], name: &'static str, value: Option<&str>) {
    let Ok(text) = edited(source, &KEYS, PREFIX, &[(name, value.map(str::to_owned))]) else {
        // Only a reference can be a section.
        let entry = before.iter().find(|entry| entry.name == name).expect("it is there");
        assert!(matches!(entry.value, SettingValue::Reference(_)), "{entry:?}");
        return;
    };
    let after = parse(FILE, &text, &KEYS, &KEYS, PREFIX).expect("what was changed can be read");
    let others = |entries: &[SettingEntry]| -> Vec<_> {
        let others = entries.iter().filter(|entry| entry.name != name);
        others.map(|entry| (entry.name, entry.value.clone())).collect()
    };
    assert_eq!(others(&after.entries), others(before), "{text}");
    let set = after.get(name).map(|entry| entry.value.clone());
    assert_eq!(
        set,
        value.map(|value| SettingValue::Texts(vec![value.to_owned()])),
        "{text}"
    );
}

/// A file of settings.
pub fn settings(bytes: &[u8]) {
    let source = String::from_utf8_lossy(bytes);
    let lines = source.matches('\n').count() + 1;
    let file = match parse(FILE, &source, &KEYS, &KEYS, PREFIX) {
        Ok(file) => file,
        Err(error) => {
            let error = error.to_string();
            let line = error.strip_prefix("a.toml:").and_then(|rest| rest.split_once(": "));
            let (line, sentence) = line.expect("a place");
            let line: usize = line.parse().expect("a line");
            assert!((1..=lines).contains(&line), "{error}");
            assert!(!sentence.is_empty() && error.len() <= ERROR_BYTES_MAX, "{error}");
            assert!(!error.contains(char::is_control), "{error:?}");
            return;
        }
    };
    let names: BTreeSet<&str> = file.entries.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), file.entries.len());
    assert!(file.entries.is_sorted_by_key(|entry| entry.line));
    for entry in &file.entries {
        assert!((1..=lines).contains(&entry.line), "{entry:?}");
        assert_eq!(file.get(entry.name), Some(entry));
    }
    // Values that nothing else sets, with and without the texts of references.
    let read = |reference: &Reference| match reference {
        Reference::File(path) => Ok(path.clone()),
        Reference::Variable(_) => Err("it is not set".to_owned()),
    };
    if let Ok(variables) = file.variables(&Variables::new([], []), &read) {
        assert!(variables.iter().all(|variable| names.contains(variable.name)));
    }
    for name in ["--port", "--api-key", "VIDEOROOM_API_KEY"] {
        for value in [Some("a\"\\\u{1}"), None] {
            change(&source, &file.entries, name, value);
        }
    }
    assert!(file.files().count() <= file.entries.len());
    let again: String = file.entries.iter().map(written).collect();
    let again = parse(FILE, &again, &KEYS, &KEYS, PREFIX).expect("what was read can be written");
    let values = |entries: &[SettingEntry]| -> Vec<_> {
        entries.iter().map(|entry| (entry.name, entry.value.clone())).collect()
    };
    assert_eq!(values(&again.entries), values(&file.entries));
}
