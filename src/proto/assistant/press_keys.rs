//! The built-in function `press_keys`: the model presses keys of the telephone, to pass the menu of
//! the other end.
//!
//! In: the arguments of the model. Out: tones in the audio of the call, which every provider
//! carries and every receiver of tones understands, or why the arguments are refused.

use std::time::Duration;

use serde_json::{Value, json};

use super::tools::PRESS_KEYS;
use crate::kit::{TONE_GAP, ToneSegment, dtmf_tone};

/// Keys and pauses of one call.
const KEYS_MAX: usize = 32;
/// The pause of a `,`, as in numbers that modems and telephones dial.
const PAUSE: Duration = Duration::from_secs(2);
/// The pause of a `w`.
const SHORT_PAUSE: Duration = Duration::from_millis(500);
/// Begins the names of items in the playout.
const ITEM_PREFIX: &str = "keys ";

/// Returns the declaration of the function.
pub fn declaration() -> Value {
    json!({
        "type": "function",
        "name": PRESS_KEYS,
        "description": "Presses keys of the telephone as tones, for example in the menu of an automatic system.",
        "parameters": {
            "type": "object",
            "properties": {"keys": {
                "type": "string",
                "description": "At most 32 of 0-9, *, #, A-D, `w` (waits 0.5 s) and `,` (waits 2 s).",
            }},
            "required": ["keys"],
        },
    })
}

/// Returns the tones of a call with these arguments.
pub fn tones_of(arguments: &Value) -> Result<Vec<ToneSegment>, &'static str> {
    let keys = arguments["keys"].as_str().ok_or("`keys` must be a string")?;
    // Numbers are written in groups.
    let keys = keys.chars().filter(|key| !matches!(key, ' ' | '-'));
    // Speech before the first key would hide its beginning.
    let mut tones = vec![ToneSegment::silence(TONE_GAP)];
    for (at, key) in keys.enumerate() {
        if at >= KEYS_MAX {
            return Err("`keys` has more than 32 keys");
        }
        match key {
            ',' => tones.push(ToneSegment::silence(PAUSE)),
            'w' => tones.push(ToneSegment::silence(SHORT_PAUSE)),
            _ => {
                let tone = dtmf_tone(key).ok_or("`keys` may have 0-9, *, #, A-D, `w` and `,`")?;
                tones.extend([tone, ToneSegment::silence(TONE_GAP)]);
            }
        }
    }
    match tones.len() {
        1 => Err("`keys` is empty"),
        _ => Ok(tones),
    }
}

/// Returns the item in the playout of a call.
pub fn item_of(call_id: &str) -> String {
    format!("{ITEM_PREFIX}{call_id}")
}

/// Returns the call of an item in the playout; `None` for speech.
pub fn call_of(item_id: &str) -> Option<&str> {
    item_id.strip_prefix(ITEM_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length_of(keys: &str) -> Result<Duration, &'static str> {
        let tones = tones_of(&json!({"keys": keys}))?;
        Ok(tones.iter().map(|tone| tone.length).sum())
    }

    #[test]
    fn keys_become_tones_and_pauses() {
        let tones = tones_of(&json!({"keys": "1-2 #"})).expect("keys");
        let keys: Vec<ToneSegment> = tones.into_iter().filter(|tone| tone.hz > 0.0).collect();
        assert_eq!(keys, ['1', '2', '#'].map(|key| dtmf_tone(key).expect("a key")));
        assert_eq!(length_of("1"), Ok(Duration::from_millis(300)));
        assert_eq!(length_of("w,1"), Ok(Duration::from_millis(2_800)));
    }

    #[test]
    fn other_arguments_are_refused() {
        for (arguments, words) in [
            (json!({}), "must be a string"),
            (json!({"keys": 1}), "must be a string"),
            (json!({"keys": " - "}), "is empty"),
            (json!({"keys": "1x"}), "may have"),
            (json!({"keys": "é"}), "may have"),
            (json!({"keys": "1".repeat(33)}), "more than 32"),
        ] {
            let refused = tones_of(&arguments).expect_err("it is refused");
            assert!(refused.contains(words), "{arguments}: {refused}");
        }
        assert!(tones_of(&json!({"keys": "1".repeat(32)})).is_ok());
    }

    #[test]
    fn an_item_leads_back_to_its_call() {
        assert_eq!(call_of(&item_of("call 1")), Some("call 1"));
        assert_eq!(call_of("item_1"), None);
    }
}
