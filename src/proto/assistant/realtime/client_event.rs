//! Events to a speech-to-speech service, as JSON text.
//!
//! In: the configuration, the body of the session, texts. Out: the text of one event each. The
//! session is in the form that is generally available, or flat for the older one. Services reject
//! unknown fields, so nothing is sent that the configuration does not ask for.

use serde_json::{Map, Value, json};

use crate::assistant::body::BodyOptions;
use crate::assistant::config::{AssistantConfig, NoiseReduction, TurnDetection};
use crate::assistant::playback::Truncation;
use crate::assistant::report::Line;
use crate::assistant::service_url::Dialect;
use crate::audio::g711::Law;

/// Tokens of one answer: two minutes of speech, which bounds the memory that an answer takes.
const OUTPUT_TOKENS_MAX: u32 = 2_000;

/// Returns the event with audio of the caller.
pub fn append(base64: &str) -> String {
    // Base64 needs no escapes, and this is sent 25 times a second.
    format!(r#"{{"type":"input_audio_buffer.append","audio":"{base64}"}}"#)
}

/// Returns the fields of a session.
pub fn session(config: &AssistantConfig, body: &BodyOptions, line: Line, tools: &[Value]) -> Value {
    let realtime = &config.realtime;
    let mut session = match realtime.dialect {
        Dialect::Beta => flat(config, body, line),
        Dialect::Ga | Dialect::Azure | Dialect::Xai => nested(config, body, line),
    };
    let fields = session.as_object_mut().expect("it was made as an object");
    fields.insert("instructions".to_owned(), body.instructions.clone().into());
    if !tools.is_empty() {
        fields.insert("tools".to_owned(), tools.to_vec().into());
        fields.insert("tool_choice".to_owned(), "auto".into());
    }
    if realtime.dialect == Dialect::Xai
        && let Some(audio) = fields.get("audio").cloned()
    {
        fields.insert("turn_detection".to_owned(), audio["input"]["turn_detection"].clone());
        if let Some(voice) = audio["output"].get("voice") {
            fields.insert("voice".to_owned(), voice.clone());
        }
    }
    let ours = session.clone();
    merge(&mut session, &realtime.session);
    // Formats and modalities decide what the runner can play. The functions of the file are among
    // those of the session.
    for pointer in [
        "/type",
        "/audio/input/format",
        "/audio/output/format",
        "/output_modalities",
        "/input_audio_format",
        "/output_audio_format",
        "/modalities",
        "/tools",
    ] {
        if let (Some(field), Some(value)) = (session.pointer_mut(pointer), ours.pointer(pointer)) {
            *field = value.clone();
        }
    }
    session
}

fn nested(config: &AssistantConfig, body: &BodyOptions, line: Line) -> Value {
    let realtime = &config.realtime;
    let of_law = |law| match law {
        Law::Mu => json!({"type": "audio/pcmu"}),
        Law::A => json!({"type": "audio/pcma"}),
    };
    let pcm = json!({"type": "audio/pcm", "rate": 24_000});
    let (input_format, output_format) = match line {
        Line::Pcm24k => (pcm.clone(), pcm),
        Line::G711(laws) => (of_law(laws.inbound), of_law(laws.outbound)),
    };
    let mut input = json!({"format": input_format, "turn_detection": turn_detection(config)});
    if let Some(transcription) = transcription(config, body) {
        input["transcription"] = transcription;
    }
    if let Some(noise) = realtime.noise_reduction {
        input["noise_reduction"] = json!({"type": noise_name(noise)});
    }
    let mut output = json!({"format": output_format});
    if let Some(voice) = body.voice.as_ref().or(realtime.voice.as_ref()) {
        output["voice"] = voice.as_str().into();
    }
    json!({
        "type": "realtime",
        "output_modalities": modalities(body.text_only),
        "max_output_tokens": OUTPUT_TOKENS_MAX,
        "audio": {"input": input, "output": output},
    })
}

fn flat(config: &AssistantConfig, body: &BodyOptions, line: Line) -> Value {
    let realtime = &config.realtime;
    let of_law = |law| match law {
        Law::Mu => "g711_ulaw",
        Law::A => "g711_alaw",
    };
    let (input_format, output_format) = match line {
        Line::Pcm24k => ("pcm16", "pcm16"),
        Line::G711(laws) => (of_law(laws.inbound), of_law(laws.outbound)),
    };
    let mut session = json!({
        "modalities": beta_modalities(body.text_only),
        "input_audio_format": input_format,
        "output_audio_format": output_format,
        "turn_detection": turn_detection(config),
        "max_response_output_tokens": OUTPUT_TOKENS_MAX,
    });
    if let Some(transcription) = transcription(config, body) {
        session["input_audio_transcription"] = transcription;
    }
    if let Some(voice) = body.voice.as_ref().or(realtime.voice.as_ref()) {
        session["voice"] = voice.as_str().into();
    }
    if let Some(temperature) = body.temperature {
        session["temperature"] = temperature.into();
    }
    session
}

fn modalities(text_only: bool) -> Value {
    json!([if text_only { "text" } else { "audio" }])
}

fn beta_modalities(text_only: bool) -> Value {
    if text_only {
        json!(["text"])
    } else {
        json!(["audio", "text"])
    }
}

fn noise_name(noise: NoiseReduction) -> &'static str {
    match noise {
        NoiseReduction::NearField => "near_field",
        NoiseReduction::FarField => "far_field",
    }
}

fn turn_detection(config: &AssistantConfig) -> Value {
    let kind = match config.realtime.turn_detection {
        TurnDetection::ServerVad => "server_vad",
        TurnDetection::SemanticVad => "semantic_vad",
    };
    json!({"type": kind, "create_response": true, "interrupt_response": config.interrupt})
}

fn transcription(config: &AssistantConfig, body: &BodyOptions) -> Option<Value> {
    let model = config.realtime.transcription_model.as_ref()?;
    let mut transcription = json!({"model": model});
    if let Some(language) = &body.language {
        transcription["language"] = language.as_str().into();
    }
    Some(transcription)
}

fn merge(into: &mut Value, from: &Map<String, Value>) {
    let Some(fields) = into.as_object_mut() else { return };
    for (name, value) in from {
        match (fields.get_mut(name), value) {
            (Some(field @ Value::Object(_)), Value::Object(inner)) => merge(field, inner),
            _ => drop(fields.insert(name.clone(), value.clone())),
        }
    }
}

/// Returns an item with a text, as `conversation.item.create` takes it.
pub fn text_item(role: &str, text: &str, dialect: Dialect) -> Value {
    let kind = match (role, dialect) {
        ("assistant", Dialect::Beta) => "text",
        ("assistant", _) => "output_text",
        _ => "input_text",
    };
    json!({"type": "conversation.item.create",
        "item": {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}})
}

/// Returns the event with the output of a function.
pub fn function_output(call_id: &str, output: &str) -> Value {
    json!({"type": "conversation.item.create",
        "item": {"type": "function_call_output", "call_id": call_id, "output": output}})
}

/// Returns the event that cuts an item where the caller stopped hearing it.
pub fn truncate(cut: &Truncation) -> Value {
    json!({"type": "conversation.item.truncate", "item_id": cut.item_id, "content_index": cut.content_index,
        "audio_end_ms": cut.played_ms})
}

/// Returns the event that asks for a response.
pub fn create_response(instructions: Option<&str>, text_only: bool, dialect: Dialect) -> Value {
    let mut event = json!({"type": "response.create"});
    if let Some(instructions) = instructions {
        event["response"]["instructions"] = instructions.into();
    }
    match (text_only, dialect) {
        (false, _) => {}
        (true, Dialect::Beta) => event["response"]["modalities"] = beta_modalities(true),
        (true, _) => event["response"]["output_modalities"] = modalities(true),
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::g711::LineLaws;

    /// The line of a provider that sends A-law and receives mu-law.
    const MIXED: Line = Line::G711(LineLaws {
        inbound: Law::A,
        outbound: Law::Mu,
    });

    fn config() -> AssistantConfig {
        let mut config = AssistantConfig::default();
        config.realtime.voice = Some("marin".to_owned());
        config.realtime.transcription_model = Some("t".to_owned());
        config
    }

    fn body(config: &AssistantConfig) -> BodyOptions {
        BodyOptions::new(&json!({}), config, &config.realtime.instructions)
    }

    #[test]
    fn the_session_has_the_format_of_the_line() {
        let config = config();
        let pcm = json!({"type": "audio/pcm", "rate": 24_000});
        for (line, input, output) in [
            (Line::Pcm24k, pcm.clone(), pcm),
            (MIXED, json!({"type": "audio/pcma"}), json!({"type": "audio/pcmu"})),
        ] {
            let session = session(&config, &body(&config), line, &[]);
            assert_eq!(session["type"], "realtime");
            assert_eq!(session["audio"]["input"]["format"], input);
            assert_eq!(session["audio"]["output"], json!({"format": output, "voice": "marin"}));
            assert_eq!(session["audio"]["input"]["transcription"], json!({"model": "t"}));
            assert_eq!(session.get("temperature"), None);
        }
    }

    #[test]
    fn the_older_form_is_flat() {
        let mut config = config();
        config.realtime.dialect = Dialect::Beta;
        let session = session(&config, &body(&config), MIXED, &[]);
        assert_eq!(session["input_audio_format"], "g711_alaw");
        assert_eq!(session["output_audio_format"], "g711_ulaw");
        assert_eq!(session["modalities"], json!(["audio", "text"]));
        assert_eq!((session.get("type"), session.get("audio")), (None, None));
    }

    #[test]
    fn the_operator_s_fields_are_merged_except_formats() {
        let mut config = config();
        let extra = json!({"tracing": null, "tools": [], "audio": {"output": {"speed": 1.2, "format": {"type": "audio/pcma"}}}});
        config.realtime.session = extra.as_object().expect("an object").clone();
        let session = session(&config, &body(&config), Line::Pcm24k, &[json!({"type": "function"})]);
        assert_eq!(session["tracing"], json!(null));
        assert_eq!(session["audio"]["output"]["speed"], json!(1.2));
        assert_eq!(session["audio"]["output"]["format"]["type"], "audio/pcm");
        assert_eq!(session["tool_choice"], "auto");
        assert_eq!(
            session["tools"],
            json!([{"type": "function"}]),
            "the file's are among them"
        );
    }
}
