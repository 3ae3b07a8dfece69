//! Functions of the operator: `--tools` names a program or an HTTP endpoint that runs them.
//!
//! In: the value of the option, and the JSON of the program or endpoint. Out: a [`ToolsConfig`],
//! declared functions, and the messages of calls. A declaration is
//! `{"functions": [{"name", "description", "parameters"}]}`, a call
//! `{"call_id", "name", "arguments"}`, an answer `{"call_id", "output"}`; a program writes and
//! reads one object per line. Nothing here quotes what a peer wrote but names of functions.

use std::fmt;

use serde_json::{Map, Value, json};

use super::config::{ToolsConfig, ToolsEndpoint};
use super::report::FunctionCall;
use crate::limits::{TOOLS_FUNCTIONS_BYTES_MAX, TOOLS_FUNCTIONS_MAX};
use crate::server::rest::{RestBody, RestMethod, RestRequest, bearer};

/// The built-in function that hangs up.
pub const END_CALL: &str = "end_call";
/// The built-in function that presses keys of the telephone.
pub const PRESS_KEYS: &str = "press_keys";
/// Names that no other function can have.
pub const BUILT_IN: [&str; 2] = [END_CALL, PRESS_KEYS];
/// Characters of the name of a function, by the rule of the services.
const NAME_CHARS_MAX: usize = 64;

impl ToolsConfig {
    /// Returns a name of the program or endpoint for messages, without arguments and path.
    pub fn name(&self) -> &str {
        match self {
            ToolsConfig::Program(command) => command.first().map_or("", String::as_str),
            ToolsConfig::Endpoint(endpoint) => endpoint.url.host(),
        }
    }
}

/// Splits a command into words at white space. Single and double quotes keep a word together; no
/// shell reads it. Returns `None` for a quote without an end, and for no word at all.
pub fn split_command(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in text.chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            None if letter == '\'' || letter == '"' => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            None if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    (quote.is_none() && words.first().is_some_and(|program| !program.is_empty())).then_some(words)
}

/// Why a declaration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeclarationError {
    /// It is no object with a list of functions.
    Form,
    /// The function at this place, counted from 1, has no valid name or other fields.
    Function(usize),
    TooMany,
    TooLong,
    /// Two functions have this name.
    Twice(String),
}

impl fmt::Display for DeclarationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeclarationError::Form => f.write_str(
                "the declaration is no JSON such as {\"functions\": [{\"name\": \"weather\", \"description\": \"...\", \
                 \"parameters\": {\"type\": \"object\"}}]}",
            ),
            DeclarationError::Function(at) => write!(
                f,
                "function {at} of the declaration needs a `name` of 1 to {NAME_CHARS_MAX} letters, digits, `_` and `-`, a \
                 text as `description`, and a JSON schema as `parameters`"
            ),
            DeclarationError::TooMany => write!(f, "it declares more than {TOOLS_FUNCTIONS_MAX} functions"),
            DeclarationError::TooLong => {
                write!(f, "its declaration is longer than {TOOLS_FUNCTIONS_BYTES_MAX} bytes")
            }
            DeclarationError::Twice(name) => write!(f, "two functions are called `{name}`"),
        }
    }
}

/// Reads a declaration. The functions are in the form that services take.
///
/// # Errors
/// [`DeclarationError`], also for two functions of one name.
pub fn declaration(text: &[u8]) -> Result<Vec<Value>, DeclarationError> {
    if text.len() > TOOLS_FUNCTIONS_BYTES_MAX {
        return Err(DeclarationError::TooLong);
    }
    let value: Value = serde_json::from_slice(text).map_err(|_| DeclarationError::Form)?;
    let list = value["functions"].as_array().ok_or(DeclarationError::Form)?;
    if list.len() > TOOLS_FUNCTIONS_MAX {
        return Err(DeclarationError::TooMany);
    }
    let read = |(at, tool)| function(tool).ok_or(DeclarationError::Function(at + 1));
    let functions: Vec<Value> = list.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    check_names(&functions, &[])?;
    Ok(functions)
}

/// Returns the known fields of a function; `None` without a valid name.
pub fn function(tool: &Value) -> Option<Value> {
    let name = tool["name"].as_str()?;
    let is_name_char = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_valid = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(is_name_char)
        && tool.get("type").is_none_or(|kind| kind == "function")
        && tool.get("description").is_none_or(Value::is_string)
        && tool.get("parameters").is_none_or(Value::is_object);
    let kept = ["name", "description", "parameters"]
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), tool.get(field)?.clone())));
    let mut function: Map<String, Value> = kept.collect();
    function.insert("type".to_owned(), "function".into());
    is_valid.then(|| function.into())
}

/// Checks that no two functions of both lists, and none of the built-in ones, have the same name.
///
/// # Errors
/// [`DeclarationError::Twice`] with the name.
pub fn check_names(functions: &[Value], others: &[Value]) -> Result<(), DeclarationError> {
    let mut seen = BUILT_IN.to_vec();
    for name in others.iter().chain(functions).filter_map(|tool| tool["name"].as_str()) {
        if seen.contains(&name) {
            return Err(DeclarationError::Twice(name.to_owned()));
        }
        seen.push(name);
    }
    Ok(())
}

/// Returns a call as JSON. `session_id` tells an endpoint the calls of sessions apart.
pub fn call_json(call: &FunctionCall, session_id: Option<&str>) -> Value {
    let mut value = json!({"call_id": call.call_id, "name": call.name, "arguments": call.arguments});
    if let Some(id) = session_id {
        value["session_id"] = id.into();
    }
    value
}

/// Reads an answer: the id of the call, if there is one, and its output.
pub fn answer(text: &[u8]) -> Option<(Option<String>, Value)> {
    let Value::Object(mut answer) = serde_json::from_slice(text).ok()? else {
        return None;
    };
    let output = answer.remove("output")?;
    let call_id = answer.get("call_id").and_then(Value::as_str).map(str::to_owned);
    Some((call_id, output))
}

/// Returns the id of the call in a line that begins as an answer but is none: an output that is no
/// JSON, such as `NaN`, or that is cut since it is too long.
pub fn call_of_invalid(line: &str) -> Option<&str> {
    let object = line.trim_start().strip_prefix('{')?;
    let (_, value) = object.split_once("\"call_id\"")?;
    let value = value.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    value.split_once('"').map(|(call_id, _)| call_id)
}

/// Returns the output of a call that failed, for the model.
pub fn failed(why: &str) -> Value {
    json!({"error": why})
}

impl ToolsEndpoint {
    /// Returns the request for the declaration.
    pub fn declaration_request(&self) -> RestRequest {
        RestRequest {
            method: RestMethod::Get,
            url: self.url.http_text(),
            authorization: self.key.as_ref().map(bearer),
            body: None,
        }
    }

    /// Returns the request that runs a function.
    pub fn call_request(&self, call: &FunctionCall, session_id: &str) -> RestRequest {
        RestRequest {
            method: RestMethod::Post,
            body: Some(RestBody::json(&call_json(call, Some(session_id)))),
            ..self.declaration_request()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assistant::service_url::ServiceUrl;
    use crate::secret::Secret;

    #[test]
    fn a_command_is_split_without_a_shell() {
        for (text, words) in [
            ("python3 /srv/tools.py", &["python3", "/srv/tools.py"][..]),
            (" 'a b'  \"it's\" c'd'e '' $HOME", &["a b", "it's", "cde", "", "$HOME"]),
        ] {
            assert_eq!(split_command(text).expect(text), words);
        }
        for text in ["", "  ", "'' a", "a 'b", "a \"b"] {
            assert_eq!(split_command(text), None, "{text}");
        }
    }

    #[test]
    fn declared_functions_keep_the_known_fields() {
        let text = br#"{"functions": [{"name": "a-1", "description": "d", "parameters": {"type": "object"}, "x": 1},
            {"type": "function", "name": "b"}]}"#;
        assert_eq!(
            declaration(text).expect("valid"),
            [
                json!({"type": "function", "name": "a-1", "description": "d", "parameters": {"type": "object"}}),
                json!({"type": "function", "name": "b"})
            ]
        );
        assert_eq!(declaration(br#"{"functions": []}"#), Ok(vec![]));
    }

    #[test]
    fn what_is_wrong_with_a_declaration_is_reported() {
        let named = |name: &str| json!({"functions": [{"name": "ok"}, {"name": name}]}).to_string();
        for (text, error) in [
            ("listening".to_owned(), DeclarationError::Form),
            ("[]".to_owned(), DeclarationError::Form),
            (named("a b"), DeclarationError::Function(2)),
            (named(&"x".repeat(65)), DeclarationError::Function(2)),
            (
                json!({"functions": [{"name": "a", "parameters": []}]}).to_string(),
                DeclarationError::Function(1),
            ),
            (named("ok"), DeclarationError::Twice("ok".to_owned())),
            (named("end_call"), DeclarationError::Twice("end_call".to_owned())),
            (
                json!({"functions": vec![json!({}); TOOLS_FUNCTIONS_MAX + 1]}).to_string(),
                DeclarationError::TooMany,
            ),
            (" ".repeat(TOOLS_FUNCTIONS_BYTES_MAX + 1), DeclarationError::TooLong),
        ] {
            assert_eq!(declaration(text.as_bytes()), Err(error));
        }
        let of_page = [json!({"type": "function", "name": "page"})];
        assert!(check_names(&[json!({"name": "page"})], &of_page).is_err());
        assert!(check_names(&[json!({"name": "other"})], &of_page).is_ok());
    }

    #[test]
    fn calls_and_answers_are_json() {
        let call = FunctionCall {
            call_id: "c1".to_owned(),
            name: "f".to_owned(),
            arguments: json!({"x": 1}),
        };
        assert_eq!(
            call_json(&call, None),
            json!({"call_id": "c1", "name": "f", "arguments": {"x": 1}})
        );
        assert_eq!(
            answer(br#"{"call_id": "c1", "output": {"y": 2}}"#),
            Some((Some("c1".to_owned()), json!({"y": 2})))
        );
        assert_eq!(answer(br#"{"output": null}"#), Some((None, Value::Null)));
        for text in ["", "x", "[]", r#"{"call_id": "c1"}"#] {
            assert_eq!(answer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_call_of_an_invalid_answer_is_known() {
        for (line, call_id) in [
            (r#"{"call_id": "c1", "output": {"t": NaN}}"#, Some("c1")),
            (r#" {"output": Infinity, "call_id" : "c2"}"#, Some("c2")),
            (r#"{"call_id": "c3", "output": "xxx (cut)"#, Some("c3")),
            (r#"{"call_id": "c4"}"#, Some("c4")),
            (r#"{"call_id": 5, "output": NaN}"#, None),
            (r#"{"call_id": "c (cut)"#, None),
            (r#"the "call_id": "c5""#, None),
            ("{}", None),
        ] {
            assert_eq!(call_of_invalid(line), call_id, "{line}");
        }
    }

    #[test]
    fn requests_carry_the_key_and_the_session() {
        let endpoint = ToolsEndpoint {
            url: ServiceUrl::exact("https://h:8443/tools?a=1").expect("a URL"),
            key: Some(Secret::new("hunter2")),
        };
        let request = endpoint.declaration_request();
        assert_eq!(
            (request.method, request.url.as_str()),
            (RestMethod::Get, "https://h:8443/tools?a=1")
        );
        let call = FunctionCall {
            call_id: "c1".to_owned(),
            name: "f".to_owned(),
            arguments: json!({}),
        };
        let request = endpoint.call_request(&call, "s1");
        assert_eq!(
            request.authorization.as_ref().map(Secret::expose),
            Some("Bearer hunter2")
        );
        let body: Value = serde_json::from_slice(&request.body.expect("a body").bytes).expect("JSON");
        assert_eq!(body["session_id"], "s1");
        let config = format!("{:?}", ToolsConfig::Endpoint(endpoint));
        assert!(!config.contains("hunter2"), "{config}");
        let program = ToolsConfig::Program(vec!["p".to_owned(), "hunter2".to_owned()]);
        assert!(!format!("{program:?}").contains("hunter2"));
    }
}
