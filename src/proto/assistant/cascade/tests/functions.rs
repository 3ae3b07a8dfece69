//! Functions of the page, of the operator and of telephone calls.

use super::*;

#[test]
fn functions_of_the_page_are_answered_before_the_model_goes_on() {
    let mut world = World::joined_with(&tools(), |_| {});
    world.say("Look.");
    world.write("Let me see.");
    world.finish_with(vec![call("a", "f"), call("b", "unknown")]);
    assert!(
        world
            .reports()
            .any(|report| matches!(report, ClientReport::FunctionStarted(call) if call.call_id == "a"))
    );
    assert_eq!(world.chats(), 1);
    world
        .session
        .handle_function_result(FunctionHost::Page, "a", &json!({"x": 1}), world.now);
    world.drain();
    assert_eq!(world.chats(), 2);
    let asked = world.asked();
    assert_eq!(asked[1], pair("assistant", "Let me see."));
    assert_eq!(asked[2].0, "tool");
    assert_eq!(asked[3], pair("tool", r#"{"x":1}"#));
    world.voice();
    world.answer("It is one. ");
    world.say("Thanks.");
    assert_eq!(world.asked()[4], pair("assistant", "It is one."));
}

/// The model is asked once the operator's functions are known. A call is for the driver, of which
/// the client sees the name only; when what runs it is gone, the model learns it.
#[test]
fn functions_of_the_operator_are_declared_and_run() {
    let mut world = World::joined_with(&json!({}), |config| {
        config.tools = Some(ToolsConfig::Program(vec!["p".to_owned()]));
        config.cascade.functions = vec![json!({"type": "function", "name": "of_page"})];
    });
    world.say("Look.");
    assert_eq!(world.chats(), 0, "the functions are not known");
    let declared = [json!({"type": "function", "name": "t", "description": "d"})];
    world.session.handle_functions(&declared, world.now);
    world.drain();
    let tools = |world: &World| {
        let request = world.outputs.iter().rev().find_map(|output| match output {
            CascadeOutput::StartChat { request, .. } => Some(request.tools.clone()),
            _ => None,
        });
        request.expect("a chat")
    };
    assert_eq!(
        tools(&world),
        [
            json!({"type": "function", "function": {"name": "of_page"}}),
            json!({"type": "function", "function": {"name": "t", "description": "d"}}),
        ]
    );
    world.finish_with(vec![ChatCall {
        arguments: r#"{"x": 1}"#.to_owned(),
        ..call("a", "t")
    }]);
    let run = world.outputs.iter().find_map(|output| match output {
        CascadeOutput::RunFunction(call) => Some(call.clone()),
        _ => None,
    });
    assert_eq!(run.expect("it runs").arguments, json!({"x": 1}));
    let told = world.reports().find_map(|report| match report {
        ClientReport::FunctionStarted(call) => Some(call.clone()),
        _ => None,
    });
    assert_eq!(told.expect("the client is told").arguments, Value::Null);
    world
        .session
        .handle_function_result(FunctionHost::Page, "a", &json!("forged"), world.now);
    world.drain();
    assert_eq!(world.chats(), 1);
    world
        .session
        .handle_function_result(FunctionHost::Tools, "a", &json!({"y": 2}), world.now);
    world.drain();
    assert_eq!(world.asked().last(), Some(&pair("tool", r#"{"y":2}"#)));
    world.finish_with(vec![call("b", "t")]);
    world.session.handle_functions(&[], world.now);
    world.drain();
    assert_eq!(world.chats(), 3);
    let (role, output) = world.asked().pop().expect("a message");
    assert!(role == "tool" && output.contains("cannot be run"), "{output}");
    assert_eq!(tools(&world).len(), 1, "only the page's is left");
}

#[test]
fn a_function_that_is_interrupted_gets_an_output() {
    let mut world = World::joined_with(&tools(), |_| {});
    world.say("Look.");
    world.finish_with(vec![call("a", "f")]);
    world.say("No.");
    let asked = world.asked();
    assert_eq!(
        asked[1..].iter().map(|(role, _)| role.as_str()).collect::<Vec<_>>(),
        ["assistant", "tool", "assistant", "user"]
    );
    let stopped = |report: &ClientReport| matches!(report, ClientReport::FunctionStopped { is_cancelled: true, .. });
    assert!(world.reports().any(stopped));
}

#[test]
fn the_model_can_end_a_telephone_call_after_its_goodbye() {
    let config = AssistantConfig {
        greeting: Greeting::Off,
        ..AssistantConfig::default()
    };
    let mut world = World::new(CallProfile::TELEPHONE, config, &json!({}));
    world.session.handle_joined(world.now);
    world.be_silent(600);
    world.say("Goodbye.");
    world.write("Goodbye then.");
    world.finish_with(vec![call("a", "end_call")]);
    assert_eq!(world.end(), None);
    world.voice();
    world.play(100);
    assert!(matches!(world.end(), Some(EndReason::Done(_))));
    assert_eq!(world.chats(), 1);
}

#[test]
fn keys_are_pressed_behind_the_answer_and_nothing_interrupts_them() {
    let config = AssistantConfig {
        greeting: Greeting::Off,
        ..AssistantConfig::default()
    };
    let mut world = World::new(CallProfile::TELEPHONE, config, &json!({}));
    world.session.handle_joined(world.now);
    world.be_silent(600);
    world.say("For sales press one.");
    world.write("One moment.");
    world.finish_with(vec![ChatCall {
        arguments: r#"{"keys": "1"}"#.to_owned(),
        ..call("a", "press_keys")
    }]);
    assert!(!world.session.is_pressing(), "the sentence is heard first");
    world.voice();
    while !world.session.is_pressing() {
        assert_eq!(world.play(1), 1, "speech waits");
    }
    world.speak(400);
    assert!(world.session.is_pressing(), "the menu speaks on");
    assert_eq!(world.chats(), 1);
    assert_eq!(world.play(100), 3);
    assert_eq!(world.chats(), 2, "the model goes on once the keys were heard");
    assert_eq!(world.asked().last(), Some(&pair("tool", r#"{"ok":true}"#)));
}
