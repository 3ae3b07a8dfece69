//! What the `body` of `/start` may change in the session of an assistant.
//!
//! In: the body and the configuration. Out: [`BodyOptions`]. Fields that are unknown, too long or
//! not permitted are ignored: callers of `/start` spend the operator's money, so the body
//! never names a host, a key, a model or a format.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::config::AssistantConfig;
use crate::limits::ASSISTANT_INSTRUCTIONS_BYTES_MAX;
use crate::text::beginning;

/// Variables for the instructions, and characters of each.
const VARIABLES_MAX: usize = 32;
const VARIABLE_CHARS_MAX: usize = 500;
/// Bytes of the instructions with variables filled in.
const FILLED_BYTES_MAX: usize = 2 * ASSISTANT_INSTRUCTIONS_BYTES_MAX;
/// Functions that the body may declare, and bytes of their JSON.
const TOOLS_MAX: usize = 32;
const TOOLS_BYTES_MAX: usize = 64 * 1024;
/// Characters of a voice.
const VOICE_CHARS_MAX: usize = 64;

/// The accepted fields of a body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BodyOptions {
    /// Whether to greet.
    pub greeting: bool,
    pub language: Option<String>,
    /// Whether to answer with text only.
    pub text_only: bool,
    /// Length of the session, at most that of the configuration.
    pub minutes_max: Duration,
    /// The instructions, with variables filled in.
    pub instructions: String,
    pub voice: Option<String>,
    pub tools: Vec<Value>,
    pub temperature: Option<f64>,
}

impl BodyOptions {
    /// Reads a body. `instructions` are those of the bot.
    pub fn new(body: &Value, config: &AssistantConfig, instructions: &str) -> Self {
        let may = config.body_permissions;
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let language = text("language").filter(|asked| may.language || config.languages.iter().any(|l| l == asked));
        let minutes = body
            .get("minutes")
            .and_then(Value::as_u64)
            .filter(|minutes| *minutes > 0);
        let asked_max = minutes.map_or(config.minutes_max, |minutes| {
            Duration::from_secs(minutes.saturating_mul(60))
        });
        let instructions = text("instructions")
            .filter(|text| may.instructions && !text.is_empty() && text.len() <= ASSISTANT_INSTRUCTIONS_BYTES_MAX)
            .unwrap_or(instructions);
        BodyOptions {
            greeting: body.get("greeting").and_then(Value::as_bool).unwrap_or(true),
            language: language.filter(|tag| tag.len() <= 35).map(str::to_owned),
            text_only: body.get("text_only").and_then(Value::as_bool).unwrap_or(false),
            minutes_max: asked_max.min(config.minutes_max),
            instructions: filled(instructions, body.get("variables").and_then(Value::as_object)),
            voice: text("voice")
                .filter(|voice| may.voice && !voice.is_empty() && voice.chars().count() <= VOICE_CHARS_MAX)
                .map(str::to_owned),
            tools: match may.tools {
                true => tools(body.get("tools")),
                false => Vec::new(),
            },
            temperature: body
                .get("temperature")
                .and_then(Value::as_f64)
                .filter(|value| may.temperature && (0.0..=2.0).contains(value)),
        }
    }
}

/// Returns the functions of a list; the list is ignored as a whole if it is too long.
fn tools(list: Option<&Value>) -> Vec<Value> {
    let Some(list) = list.and_then(Value::as_array) else {
        return Vec::new();
    };
    if list.len() > TOOLS_MAX || list.iter().map(|tool| tool.to_string().len()).sum::<usize>() > TOOLS_BYTES_MAX {
        return Vec::new();
    }
    let functions = list.iter().filter(|tool| tool["type"] == "function");
    functions.filter_map(super::tools::function).collect()
}

/// Replaces `{name}` by the variable of that name, and ends at the cap. Inserted values are text:
/// what looks like a name in them stays, or else small values would multiply each other.
fn filled(text: &str, variables: Option<&Map<String, Value>>) -> String {
    let variables = variables.into_iter().flatten().take(VARIABLES_MAX);
    let values: BTreeMap<&str, &str> = variables
        .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
        .filter(|(_, value)| value.chars().count() <= VARIABLE_CHARS_MAX)
        .collect();
    let mut filled = String::new();
    for piece in pieces(text) {
        let name = piece.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        let piece = name.and_then(|name| values.get(name).copied()).unwrap_or(piece);
        let fitting = beginning(piece, FILLED_BYTES_MAX - filled.len());
        filled.push_str(fitting);
        if fitting.len() < piece.len() {
            break;
        }
    }
    filled
}

/// Splits a text before each `{` and after each `}`: no piece is empty, and none is read twice.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = text.char_indices().find_map(|(at, char)| match char {
            '{' if at > 0 => Some(at),
            '}' => Some(at + 1),
            _ => None,
        });
        let (piece, rest) = text.split_at(end.unwrap_or(text.len()));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::assistant::config::BodyPermissions;

    const INSTRUCTIONS: &str = "You serve {name}.";

    fn all() -> AssistantConfig {
        AssistantConfig {
            body_permissions: BodyPermissions {
                instructions: true,
                voice: true,
                tools: true,
                language: true,
                temperature: true,
            },
            ..AssistantConfig::default()
        }
    }

    fn read(body: &Value, config: &AssistantConfig) -> BodyOptions {
        BodyOptions::new(body, config, INSTRUCTIONS)
    }

    #[test]
    fn variables_fill_the_instructions() {
        let body = json!({"variables": {"name": "Ann", "other": 1}, "minutes": 3, "greeting": false});
        let options = read(&body, &all());
        assert_eq!(options.instructions, "You serve Ann.");
        assert_eq!((options.minutes_max.as_secs(), options.greeting), (180, false));
        assert_eq!(read(&json!({"minutes": 999}), &all()).minutes_max, all().minutes_max);
    }

    #[test]
    fn only_what_is_permitted_is_taken() {
        let body = json!({
            "instructions": "Else.", "voice": "v", "language": "en", "temperature": 0.5, "url": "wss://h",
            "tools": [{"type": "function", "name": "f", "server_url": "x"}, {"type": "mcp", "server_url": "x"}],
        });
        let permitted = read(&body, &all());
        assert_eq!(permitted.instructions, "Else.");
        assert_eq!(permitted.tools, [json!({"type": "function", "name": "f"})]);
        assert_eq!(
            (permitted.voice.as_deref(), permitted.temperature),
            (Some("v"), Some(0.5))
        );
        let none = read(&body, &AssistantConfig::default());
        assert_eq!(
            (none.voice, none.language, none.tools, none.temperature),
            (None, None, vec![], None)
        );
        let listed = AssistantConfig {
            languages: vec!["en".to_owned()],
            ..AssistantConfig::default()
        };
        assert_eq!(read(&body, &listed).language.as_deref(), Some("en"));
    }

    fn with_variables(instructions: &str, variables: &Value) -> String {
        BodyOptions::new(&json!({ "variables": variables }), &all(), instructions).instructions
    }

    #[test]
    fn a_value_is_text_and_names_no_other_variable() {
        assert_eq!(with_variables("{a} {b}", &json!({"a": "{b}", "b": "{a}"})), "{b} {a}");
        // Each would multiply the next.
        let (a, b) = ("{b}".repeat(166), "{c}".repeat(166));
        let variables = json!({"a": a, "b": b, "c": "c".repeat(VARIABLE_CHARS_MAX)});
        assert_eq!(with_variables("Call {a}.", &variables), format!("Call {a}."));
    }

    #[test]
    fn instructions_end_at_the_cap_while_they_are_filled() {
        let variables = json!({"a": "é".repeat(VARIABLE_CHARS_MAX), "b": "b".repeat(VARIABLE_CHARS_MAX + 1)});
        let template = "{a}".repeat(ASSISTANT_INSTRUCTIONS_BYTES_MAX / 3);
        let filled = with_variables(&template, &variables);
        assert_eq!(filled, "é".repeat(ASSISTANT_INSTRUCTIONS_BYTES_MAX));
        // Too long a value is none.
        assert_eq!(with_variables("{b}", &variables), "{b}");
    }

    #[test]
    fn any_template_is_read_once_and_fills_to_the_cap_at_most() {
        let values = [
            ("a", "{b}".repeat(166)),
            ("b", "{a}é".repeat(125)),
            ("", "{".repeat(500)),
        ];
        let variables = Value::from(Map::from_iter(
            values.map(|(name, value)| (name.to_owned(), json!(value))),
        ));
        let mut random = 1_u64;
        for length in (0..ASSISTANT_INSTRUCTIONS_BYTES_MAX).step_by(611) {
            let mut template = String::new();
            while template.len() < length {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                template.push(['{', '}', 'a', 'b', 'é', ' '][(random >> 33) as usize % 6]);
            }
            assert_eq!(pieces(&template).collect::<String>(), template);
            assert!(pieces(&template).all(|piece| !piece.is_empty()));
            assert!(with_variables(&template, &variables).len() <= FILLED_BYTES_MAX);
            assert_eq!(with_variables(&template, &json!({})), template);
        }
    }
}
