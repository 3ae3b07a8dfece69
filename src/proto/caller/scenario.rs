//! The file of `--scenario`: steps with expectations, in TOML.
//!
//! In: the text of the file. Out: a [`Scenario`], or the first mistake with its line. A step is a
//! table `[[step]]`: at most one thing that the caller does, and what the bot has to do then.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::checked_step::{CheckedStep, ExpectedEnd};
use super::plan::{self, StepSource};
use super::{CALL_SECONDS_MAX, SOUND_SECONDS_MAX, STEPS_MAX};
use crate::options::Expected;
use crate::options::suggest::nearest;
use crate::toml_text::{self, found, in_order, scalar, string};

/// Bytes of a file.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// How long a step waits.
const WITHIN: Duration = Duration::from_secs(10);
/// Texts, or messages, that one step expects.
const EXPECTED_MAX: usize = 32;

/// The keys of a file.
const KEYS: [&str; 3] = ["name", "timeout", "step"];
/// What the caller does in a step.
const ACTIONS: [&str; 6] = ["wav", "say", "text", "keys", "silence", "message"];
/// The keys of a step.
const STEP_KEYS: [&str; 16] = [
    "name",
    "wav",
    "say",
    "text",
    "keys",
    "silence",
    "message",
    "within",
    "expect-text",
    "expect-no-text",
    "expect-caller-text",
    "expect-event",
    "expect-speech",
    "expect-latency",
    "expect-silence",
    "expect-end",
];

/// A scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    pub name: String,
    /// The longest call.
    pub longest: Option<Duration>,
    pub steps: Vec<ScenarioStep>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioStep {
    pub line: usize,
    /// What the caller does.
    pub action: Option<StepSource>,
    pub check: CheckedStep,
}

impl Scenario {
    /// Parses a file with this name. Its sounds are relative to its folder.
    ///
    /// # Errors
    /// A sentence that begins with the file and the line.
    pub fn parse(file: &str, text: &str) -> Result<Scenario, String> {
        let reader = Reader { file, text };
        let table = toml_text::parse(text).map_err(|(line, sentence)| format!("{file}:{line}: {sentence}"))?;
        reader.scenario(&table)
    }
}

impl ScenarioStep {
    /// Returns whether it needs a transport with messages.
    pub fn needs_messages(&self) -> bool {
        let check = &self.check;
        self.action.as_ref().is_some_and(StepSource::is_message)
            || !(check.texts.is_empty() && check.absent_texts.is_empty() && check.caller_texts.is_empty())
            || !check.events.is_empty()
    }

    /// Returns whether it needs a transport with audio.
    pub fn needs_sound(&self) -> bool {
        self.action.as_ref().is_some_and(StepSource::is_sound)
            || self.check.speech == Some(true)
            || self.check.latency.is_some()
    }
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

type Given<'t, 'd> = &'t Spanned<DeValue<'d>>;

impl Reader<'_> {
    fn error(&self, at: usize, sentence: &str) -> String {
        format!("{}:{}: {sentence}", self.file, toml_text::line(self.text, at))
    }

    fn unknown(&self, at: usize, given: &str, known: &[&str], of: &str) -> String {
        let shown = shown(given);
        let help = match nearest(given, known.iter().copied()) {
            Some(near) => format!("; did you mean `{near}`?"),
            None => format!("; it has {}", known.join(", ")),
        };
        self.error(at, &format!("{of} has no `{shown}`{help}"))
    }

    fn scenario(&self, table: &DeTable<'_>) -> Result<Scenario, String> {
        let stem = Path::new(self.file).file_stem().unwrap_or_default();
        let mut scenario = Scenario {
            name: stem.to_string_lossy().into_owned(),
            longest: None,
            steps: Vec::new(),
        };
        for (key, value) in in_order(table) {
            match key.get_ref().as_ref() {
                "name" => scenario.name = self.text("name", value)?,
                "timeout" => scenario.longest = Some(self.seconds("timeout", value, CALL_SECONDS_MAX)?),
                "step" => scenario.steps = self.steps(key.span().start, value)?,
                other => return Err(self.unknown(key.span().start, other, &KEYS, "a scenario")),
            }
        }
        if scenario.steps.is_empty() {
            return Err(self.error(0, "a scenario has at least one step: [[step]]"));
        }
        Ok(scenario)
    }

    fn steps(&self, at: usize, value: Given<'_, '_>) -> Result<Vec<ScenarioStep>, String> {
        let wrong = || self.error(at, "`step` takes tables: [[step]]");
        let DeValue::Array(list) = value.get_ref() else {
            return Err(wrong());
        };
        let mut steps: Vec<ScenarioStep> = Vec::new();
        for value in list {
            let DeValue::Table(table) = value.get_ref() else {
                return Err(wrong());
            };
            let at = value.span().start;
            if steps.len() == STEPS_MAX {
                return Err(self.error(at, &format!("a scenario has at most {STEPS_MAX} steps")));
            }
            if let Some(last) = steps.last().filter(|step| step.check.end.is_some()) {
                let name = shown(&last.check.name);
                return Err(self.error(
                    at,
                    &format!("no step follows `{name}`, which expects the end of the call"),
                ));
            }
            steps.push(self.step(at, steps.len() + 1, table)?);
        }
        Ok(steps)
    }

    fn step(&self, at: usize, number: usize, table: &DeTable<'_>) -> Result<ScenarioStep, String> {
        let line = toml_text::line(self.text, at);
        let mut action: Option<(String, StepSource)> = None;
        let mut latency_at = None;
        let mut check = CheckedStep {
            name: format!("step {number}"),
            place: format!("{}:{line}", self.file),
            within: WITHIN,
            ..CheckedStep::default()
        };
        for (key, value) in in_order(table) {
            let (at, given) = (key.span().start, key.get_ref().as_ref());
            if ACTIONS.contains(&given) {
                if let Some((other, _)) = &action {
                    let sentence =
                        format!("a step has one of `{other}` and `{given}`: put the other into a step of its own");
                    return Err(self.error(at, &sentence));
                }
                action = Some((given.to_owned(), self.action(given, value)?));
                continue;
            }
            match given {
                "name" => check.name = self.text(given, value)?,
                "within" => check.within = self.seconds(given, value, CALL_SECONDS_MAX)?,
                "expect-text" => check.texts = self.words(given, value)?,
                "expect-no-text" => check.absent_texts = self.words(given, value)?,
                "expect-caller-text" => check.caller_texts = self.words(given, value)?,
                "expect-event" => check.events = self.several(given, value, |value| self.event(value))?,
                "expect-speech" => match value.get_ref() {
                    DeValue::Boolean(speech) => check.speech = Some(*speech),
                    other => return Err(self.wrong(given, value, "`true` or `false`", other)),
                },
                "expect-latency" => {
                    latency_at = Some(at);
                    check.latency = Some(self.seconds(given, value, CALL_SECONDS_MAX)?);
                }
                "expect-silence" => check.silence = Some(self.seconds(given, value, CALL_SECONDS_MAX)?),
                "expect-end" => check.end = Some(self.end(given, value)?),
                other => return Err(self.unknown(at, other, &STEP_KEYS, "a step")),
            }
        }
        let action = action.map(|(_, action)| action);
        if let Some(at) = latency_at.filter(|_| !action.as_ref().is_some_and(StepSource::is_sound)) {
            let sentence = "`expect-latency` needs a sound of the caller to count from: `wav` or `say` in this step";
            return Err(self.error(at, sentence));
        }
        Ok(ScenarioStep { line, action, check })
    }

    fn action(&self, key: &str, value: Given<'_, '_>) -> Result<StepSource, String> {
        let takes = |expected: Expected| {
            let at = value.span().start;
            self.error(at, &format!("`{key}` takes {}", expected.values))
        };
        Ok(match key {
            "wav" => {
                let name = self.text(key, value)?;
                let folder = Path::new(self.file).parent().unwrap_or(Path::new(""));
                StepSource::Wav(folder.join(name).to_string_lossy().into_owned())
            }
            "say" => StepSource::Say(self.text(key, value)?),
            "text" => StepSource::Text(self.text(key, value)?),
            "keys" => {
                let keys = scalar(value.get_ref()).unwrap_or_default();
                StepSource::Keys(plan::keys(&keys).map_err(takes)?)
            }
            "silence" => StepSource::Silence(self.seconds(key, value, SOUND_SECONDS_MAX)?),
            _ => {
                let Value::Object(mut message) = self.event(value)? else {
                    return Err(takes("a table with `type`".into()));
                };
                let kind = message.remove("type").unwrap_or_default();
                let data = message.remove("data").unwrap_or_default();
                if let Some(name) = message.keys().next() {
                    return Err(takes(format!("`type` and `data`, and no `{}`", shown(name)).into()));
                }
                let kind = kind.as_str().unwrap_or_default().to_owned();
                StepSource::Message { kind, data }
            }
        })
    }

    fn wrong(&self, key: &str, value: Given<'_, '_>, takes: &str, given: &DeValue<'_>) -> String {
        self.error(
            value.span().start,
            &format!("`{key}` takes {takes}, not {}", found(given)),
        )
    }

    fn text(&self, key: &str, value: Given<'_, '_>) -> Result<String, String> {
        let Some(text) = string(value.get_ref()) else {
            return Err(self.wrong(key, value, "a text", value.get_ref()));
        };
        let at = value.span().start;
        plan::text(text).map_err(|expected| self.error(at, &format!("`{key}` takes {}", expected.values)))
    }

    fn seconds(&self, key: &str, value: Given<'_, '_>, most: u64) -> Result<Duration, String> {
        let text = scalar(value.get_ref()).unwrap_or_default();
        plan::seconds(&text, most)
            .map_err(|expected| self.error(value.span().start, &format!("`{key}` takes {}", expected.values)))
    }

    /// Reads one value, or a list of them.
    fn several<T>(
        &self,
        key: &str,
        value: Given<'_, '_>,
        read: impl Fn(Given<'_, '_>) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let values = match value.get_ref() {
            DeValue::Array(list) => &list[..],
            _ => std::slice::from_ref(value),
        };
        if !(1..=EXPECTED_MAX).contains(&values.len()) {
            let sentence = format!("`{key}` takes 1 to {EXPECTED_MAX} values");
            return Err(self.error(value.span().start, &sentence));
        }
        values.iter().map(read).collect()
    }

    fn words(&self, key: &str, value: Given<'_, '_>) -> Result<Vec<super::WordPattern>, String> {
        self.several(key, value, |value| {
            let text = self.text(key, value)?;
            let at = value.span().start;
            plan::words(&text).map_err(|expected| self.error(at, &format!("`{key}` takes {}", expected.values)))
        })
    }

    fn end(&self, key: &str, value: Given<'_, '_>) -> Result<ExpectedEnd, String> {
        match value.get_ref() {
            DeValue::Boolean(true) => Ok(ExpectedEnd { reason: None }),
            DeValue::String(_) => Ok(ExpectedEnd {
                reason: self.words(key, value)?.pop(),
            }),
            other => Err(self.wrong(key, value, "`true`, or words of the reason", other)),
        }
    }

    /// Reads a message of RTVI: its type, or a table with its type and other members.
    fn event(&self, value: Given<'_, '_>) -> Result<Value, String> {
        let at = value.span().start;
        let message = match value.get_ref() {
            DeValue::String(kind) => Value::Object(Map::from_iter([("type".to_owned(), kind.to_string().into())])),
            DeValue::Table(_) => json(value.get_ref())
                .ok_or_else(|| self.error(at, "a message has no dates and no number above 2^63"))?,
            _ => Value::Null,
        };
        match message["type"].as_str() {
            Some(kind) if !kind.is_empty() => Ok(message),
            _ => Err(self.error(at, "a message is its type, or a table with `type`")),
        }
    }
}

/// Returns a name of the file as a sentence repeats it.
fn shown(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(64).collect()
}

/// Returns a value as JSON, which has no dates.
fn json(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => text.to_string().into(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok()?.into(),
        DeValue::Float(number) => Value::Number(Number::from_f64(number.as_str().parse().ok()?)?),
        DeValue::Boolean(value) => (*value).into(),
        DeValue::Array(list) => {
            let values: Option<Vec<Value>> = list.iter().map(|value| json(value.get_ref())).collect();
            values?.into()
        }
        DeValue::Table(table) => {
            let members = table.iter();
            let members: Option<Map<String, Value>> = members
                .map(|(key, value)| Some((key.get_ref().to_string(), json(value.get_ref())?)))
                .collect();
            members?.into()
        }
        DeValue::Datetime(_) => return None,
    })
}

#[cfg(test)]
mod tests;
