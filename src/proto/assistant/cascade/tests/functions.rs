//! Functions of the page, of the operator and of telephone calls.

use super::*;

#[test]
fn functions_of_the_page_are_answered_before_the_model_goes_on() {
    let mut rig = Rig::joined_with(&tools(), |_| {});
    rig.say("Look.");
    rig.write("Let me see.");
    rig.finish_with(vec![call("a", "f"), call("b", "unknown")]);
    assert!(
        rig.reports()
            .any(|report| matches!(report, ClientReport::FunctionStarted(call) if call.call_id == "a"))
    );
    assert_eq!(rig.chats(), 1);
    rig.session
        .handle_function_result(FunctionHost::Page, "a", &json!({"x": 1}), rig.now);
    rig.drain();
    assert_eq!(rig.chats(), 2);
    let asked = rig.asked();
    assert_eq!(asked[1], pair("assistant", "Let me see."));
    assert_eq!(asked[2].0, "tool");
    assert_eq!(asked[3], pair("tool", r#"{"x":1}"#));
    rig.voice();
    rig.answer("It is one. ");
    rig.say("Thanks.");
    assert_eq!(rig.asked()[4], pair("assistant", "It is one."));
}

/// A result that comes late is of its own call, also where the server names none.
#[test]
fn calls_without_identifiers_are_told_apart() {
    let mut rig = Rig::joined_with(&tools(), |_| {});
    let started = |rig: &Rig| -> Vec<String> {
        let ids = rig.reports().filter_map(|report| match report {
            ClientReport::FunctionStarted(call) => Some(call.call_id.clone()),
            _ => None,
        });
        ids.collect()
    };
    rig.say("Look.");
    rig.finish_with(vec![call("", "f"), call("", "f")]);
    for id in started(&rig) {
        rig.session
            .handle_function_result(FunctionHost::Page, &id, &json!({}), rig.now);
    }
    rig.drain();
    assert_eq!(rig.chats(), 2, "both are answered");
    rig.finish_with(vec![call("", "f")]);
    let ids = started(&rig);
    assert!(ids.len() == 3 && !ids[..2].contains(&ids[2]), "{ids:?}");
    rig.session
        .handle_function_result(FunctionHost::Page, &ids[0], &json!({}), rig.now);
    rig.drain();
    assert_eq!(rig.chats(), 2, "it is of another call");
}

/// The model is asked once the operator's functions are known. A call is for the driver, of which
/// the client sees the name only; when what runs it is gone, the model learns it.
#[test]
fn functions_of_the_operator_are_declared_and_run() {
    let mut rig = Rig::joined_with(&json!({}), |config| {
        config.tools = Some(ToolsConfig::Program(vec!["p".to_owned()]));
        config.cascade.functions = vec![json!({"type": "function", "name": "of_page"})];
    });
    rig.say("Look.");
    assert_eq!(rig.chats(), 0, "the functions are not known");
    let declared = [json!({"type": "function", "name": "t", "description": "d"})];
    rig.session.handle_functions(&declared, rig.now);
    rig.drain();
    let tools = |rig: &Rig| {
        let request = rig.outputs.iter().rev().find_map(|output| match output {
            CascadeOutput::StartChat { request, .. } => Some(request.tools.clone()),
            _ => None,
        });
        request.expect("a chat")
    };
    assert_eq!(
        tools(&rig),
        [
            json!({"type": "function", "function": {"name": "of_page"}}),
            json!({"type": "function", "function": {"name": "t", "description": "d"}}),
        ]
    );
    rig.finish_with(vec![ChatCall {
        arguments: r#"{"x": 1}"#.to_owned(),
        ..call("a", "t")
    }]);
    let run = rig.outputs.iter().find_map(|output| match output {
        CascadeOutput::RunFunction(call) => Some(call.clone()),
        _ => None,
    });
    assert_eq!(run.expect("it runs").arguments, json!({"x": 1}));
    let reported = rig.reports().find_map(|report| match report {
        ClientReport::FunctionStarted(call) => Some(call.clone()),
        _ => None,
    });
    assert_eq!(reported.expect("the client gets a message").arguments, Value::Null);
    rig.session
        .handle_function_result(FunctionHost::Page, "a", &json!("forged"), rig.now);
    rig.drain();
    assert_eq!(rig.chats(), 1);
    rig.session
        .handle_function_result(FunctionHost::Tools, "a", &json!({"y": 2}), rig.now);
    rig.drain();
    assert_eq!(rig.asked().last(), Some(&pair("tool", r#"{"y":2}"#)));
    rig.finish_with(vec![call("b", "t")]);
    rig.session.handle_functions(&[], rig.now);
    rig.drain();
    assert_eq!(rig.chats(), 3);
    let (role, output) = rig.asked().pop().expect("a message");
    assert!(role == "tool" && output.contains("cannot be run"), "{output}");
    assert_eq!(tools(&rig).len(), 1, "only the page's is left");
}

#[test]
fn a_function_that_is_interrupted_gets_an_output() {
    let mut rig = Rig::joined_with(&tools(), |_| {});
    rig.say("Look.");
    rig.finish_with(vec![call("a", "f")]);
    rig.say("No.");
    let asked = rig.asked();
    assert_eq!(
        asked[1..].iter().map(|(role, _)| role.as_str()).collect::<Vec<_>>(),
        ["assistant", "tool", "assistant", "user"]
    );
    let stopped = |report: &ClientReport| matches!(report, ClientReport::FunctionStopped { is_cancelled: true, .. });
    assert!(rig.reports().any(stopped));
}

#[test]
fn the_model_can_end_a_telephone_call_after_its_goodbye() {
    let config = AssistantConfig {
        greeting: Greeting::Off,
        ..AssistantConfig::default()
    };
    let mut rig = Rig::new(CallProfile::TELEPHONE, config, &json!({}));
    rig.session.handle_joined(rig.now);
    rig.be_silent(600);
    rig.say("Goodbye.");
    rig.write("Goodbye then.");
    rig.finish_with(vec![call("a", "end_call")]);
    assert_eq!(rig.end(), None);
    rig.voice();
    rig.play(100);
    assert!(matches!(rig.end(), Some(EndReason::Done(_))));
    assert_eq!(rig.chats(), 1);
}

#[test]
fn keys_are_pressed_behind_the_answer_and_nothing_interrupts_them() {
    let config = AssistantConfig {
        greeting: Greeting::Off,
        ..AssistantConfig::default()
    };
    let mut rig = Rig::new(CallProfile::TELEPHONE, config, &json!({}));
    rig.session.handle_joined(rig.now);
    rig.be_silent(600);
    rig.say("For sales press one.");
    rig.write("One moment.");
    rig.finish_with(vec![ChatCall {
        arguments: r#"{"keys": "1"}"#.to_owned(),
        ..call("a", "press_keys")
    }]);
    assert!(!rig.session.is_pressing(), "the sentence is heard first");
    rig.voice();
    while !rig.session.is_pressing() {
        assert_eq!(rig.play(1), 1, "speech waits");
    }
    rig.speak(400);
    assert!(rig.session.is_pressing(), "the menu speaks on");
    assert_eq!(rig.chats(), 1);
    assert_eq!(rig.play(100), 3);
    assert_eq!(rig.chats(), 2, "the model goes on once the keys were heard");
    assert_eq!(rig.asked().last(), Some(&pair("tool", r#"{"ok":true}"#)));
}
