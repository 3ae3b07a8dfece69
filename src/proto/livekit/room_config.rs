//! `room_config` of a `/start` request, in which LiveKit's own front-ends name the agent they want.
//!
//! In: the value of the field, and the bot's `body` if the request has one. Out: the `body`, which
//! may be the metadata for the agent. Rejected: other agents than that of this runner. Everything
//! else in the field is for the server, and ignored. Source: `docs/spec/livekit.md` 1.1.

use serde_json::{Value, json};

use crate::server::body::{FieldProblem, LocStep, ValidationError};

/// Returns the name of the agent, if the field names one.
pub fn agent(room_config: &Value) -> Option<&str> {
    match room_config["agents"].as_array()?.as_slice() {
        [agent] => Some(agent_name(agent)),
        _ => None,
    }
}

fn agent_name(agent: &Value) -> &str {
    let names = [&agent["agent_name"], &agent["agentName"]];
    names.into_iter().find_map(Value::as_str).unwrap_or_default()
}

/// Returns the bot's `body` for a request with `room_config`.
///
/// # Errors
/// [`ValidationError`] if it is no object, or names another agent than `own_name`.
pub fn body(room_config: &Value, body: Option<Value>, own_name: &str) -> Result<Value, ValidationError> {
    let Some(fields) = room_config.as_object() else {
        return Err(problem("Input should be a valid dictionary", "dict_type"));
    };
    let agents = match fields.get("agents") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(agents)) => agents,
        Some(_) => return Err(problem("`agents` should be a valid list", "list_type")),
    };
    match agents {
        [] => Ok(body.unwrap_or_else(|| json!({}))),
        [agent] if agent_name(agent) == own_name => {
            let metadata = agent["metadata"]
                .as_str()
                .and_then(|text| serde_json::from_str(text).ok());
            let metadata = metadata.filter(Value::is_object);
            Ok(body.or(metadata).unwrap_or_else(|| json!({})))
        }
        _ => Err(problem(
            format!("`agents` should name one agent, that of the bot: `{own_name}`"),
            "value_error",
        )),
    }
}

fn problem(msg: impl Into<std::borrow::Cow<'static, str>>, kind: &'static str) -> ValidationError {
    ValidationError(vec![FieldProblem {
        loc: vec![LocStep::Name("room_config")],
        msg: msg.into(),
        kind,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_agent_of_this_runner_or_none() {
        let named = |config: Value| body(&config, None, "bot").map_err(|error| error.to_string());
        let with_metadata = json!({"lang": "en"});
        for (config, expected) in [
            (json!({}), json!({})),
            (json!({"agents": []}), json!({})),
            (json!({"agents": null, "name": "x"}), json!({})),
            (json!({"agents": [{"agent_name": "bot"}]}), json!({})),
            (
                json!({"agents": [{"agentName": "bot", "metadata": r#"{"lang":"en"}"#}]}),
                with_metadata,
            ),
            (json!({"agents": [{"agent_name": "bot", "metadata": "[1]"}]}), json!({})),
        ] {
            assert_eq!(named(config.clone()), Ok(expected), "{config}");
        }
        for config in [
            json!([]),
            json!({"agents": {}}),
            json!({"agents": ["bot"]}),
            json!({"agents": [{"agent_name": "other"}]}),
            json!({"agents": [{"agent_name": "bot"}, {"agent_name": "bot"}]}),
        ] {
            let error = named(config.clone()).expect_err("rejected");
            assert!(
                error.contains("room_config") && !error.contains("other\""),
                "{config}: {error}"
            );
        }
    }

    #[test]
    fn the_body_of_the_request_wins() {
        let config = json!({"agents": [{"agent_name": "bot", "metadata": r#"{"a":1}"#}]});
        assert_eq!(body(&config, Some(json!({"b": 2})), "bot"), Ok(json!({"b": 2})));
    }
}
