//! Which bot answers: by its name, the body, the number and the agent name; and names of bots.

use serde_json::json;

use super::*;

fn table() -> BotTable<()> {
    let bot = |name: &str| NamedBot::new(name, Arc::new(()));
    BotTable::new(vec![
        bot("first"),
        NamedBot {
            numbers: vec!["+1 555 000-2222".into(), "ST_abc".into()],
            is_in_body: true,
            ..bot("sales")
        },
        NamedBot {
            numbers: vec!["+15550003333".into()],
            devices: vec!["kitchen".into()],
            ..bot("home")
        },
    ])
}

#[test]
fn a_name_decides_before_the_body_and_the_body_before_the_number() {
    let table = table();
    let body = json!({"bot": "sales"});
    let all = BotChoice {
        name: Some("home"),
        body: Some(&body),
        dialled: [Some("+15550002222"), None],
        ..BotChoice::default()
    };
    let choose = |choice| table.choose(choice);
    assert_eq!(choose(all), Ok(2));
    assert_eq!(choose(BotChoice { name: None, ..all }), Ok(1));
    let of_number = |number| BotChoice {
        dialled: [Some(number), None],
        ..BotChoice::default()
    };
    assert_eq!(choose(of_number("15550003333")), Ok(2));
    assert_eq!(choose(of_number("sip:+15550002222@sip.example.net;user=phone")), Ok(1));
    assert_eq!(choose(of_number("+15559999999")), Ok(0), "the default");
    let of_trunk = BotChoice {
        dialled: [Some("+15559999999"), Some("ST_ABC")],
        ..BotChoice::default()
    };
    assert_eq!(choose(of_trunk), Ok(1));
    assert_eq!(choose(BotChoice::default()), Ok(0));
}

#[test]
fn an_unknown_name_is_no_bot() {
    let table = table();
    for choice in [
        BotChoice::named(Some("other")),
        BotChoice::named(Some("")),
        BotChoice::named(Some("kitchen")),
        BotChoice {
            endpoint: Some("garage"),
            ..BotChoice::default()
        },
    ] {
        assert_eq!(table.choose(choice), Err(UnknownBot), "{choice:?}");
    }
    for name in ["home", "kitchen"] {
        let choice = BotChoice {
            endpoint: Some(name),
            ..BotChoice::default()
        };
        assert_eq!(table.choose(choice), Ok(2));
    }
}

/// The body is data for the bot, unless the operator lets it name one.
#[test]
fn a_body_names_only_the_bots_that_allow_it() {
    let table = table();
    for (body, index) in [
        (json!({"bot": "sales"}), 1),
        (json!({"bot": "home"}), 0),
        (json!({"bot": "other"}), 0),
        (json!({"bot": 1}), 0),
        (json!(["sales"]), 0),
    ] {
        let choice = BotChoice {
            body: Some(&body),
            ..BotChoice::default()
        };
        assert_eq!(table.choose(choice), Ok(index), "{body}");
    }
}

#[test]
fn an_entry_of_callers_names_telephones() {
    for entry in [
        "+15550001111",
        "+43*",
        "0043*",
        "*",
        "1 555 000-1111",
        "sip:desk@pbx.example.net",
        "client:ann",
        "Anonymous",
    ] {
        assert!(is_caller(entry), "{entry}");
    }
    for entry in ["", " ", "abc", "abc*", "+", "+43x"] {
        assert!(!is_caller(entry), "{entry}");
    }
}

/// LiveKit's rooms ask for an agent: that of one bot, or that of the runner, behind which are
/// all bots without a name of their own.
#[test]
fn an_agent_name_leads_to_its_bot_and_that_of_the_runner_to_the_others() {
    let named = |name: &str, agent: Option<&str>| NamedBot {
        agent_name: agent.map(str::to_owned),
        numbers: vec![format!("+1555000{}", name.len())],
        is_in_body: name == "vip",
        ..NamedBot::new(name, Arc::new(()))
    };
    let bots = [
        ("sales", Some("seller")),
        ("desk", None),
        ("service", None),
        ("vip", Some("")),
    ];
    let table = BotTable::new(bots.map(|(name, agent)| named(name, agent)).to_vec());
    let choose = |agent, dialled| {
        table.choose(BotChoice {
            agent: Some(agent),
            dialled: [dialled, None],
            ..BotChoice::default()
        })
    };
    assert_eq!(choose("seller", None), Ok(0));
    assert_eq!(choose("seller", Some("+15550007")), Ok(0), "a dispatch is no accident");
    assert_eq!(choose("", None), Ok(3));
    assert_eq!(choose("bot", None), Ok(1), "the first that the runner's name leads to");
    assert_eq!(choose("bot", Some("+15550007")), Ok(2));
    let body = json!({"bot": "vip"});
    for (name, body, index) in [(Some("desk"), None, 1), (None, Some(&body), 3)] {
        let choice = BotChoice {
            name,
            body,
            agent: Some("seller"),
            ..BotChoice::default()
        };
        assert_eq!(table.choose(choice), Ok(index), "a dispatch may name the bot as well");
    }
    let own = BotTable::new(vec![named("sales", Some("seller"))]);
    let other = BotChoice {
        agent: Some("bot"),
        ..BotChoice::default()
    };
    assert_eq!(own.choose(other), Ok(0));
}

#[test]
fn every_choice_is_the_only_bot() {
    assert_eq!(BotTable::<()>::default().choose(BotChoice::named(Some("x"))), Ok(0));
}

#[test]
fn callers_are_numbers_or_beginnings_of_them() {
    let mut bot = NamedBot::new("sales", Arc::new(()));
    assert!(bot.admits(None), "everybody");
    bot.callers = vec!["+43 660 1234".into(), "+49*".into()];
    for caller in ["+436601234", "00436601234", "436601234", "+4915112345", "sip:+491@x"] {
        assert!(bot.admits(Some(caller)), "{caller}");
    }
    for caller in [None, Some(""), Some("+4366012345"), Some("+1555"), Some("anonymous")] {
        assert!(!bot.admits(caller), "{caller:?}");
    }
    bot.callers = vec!["*".into()];
    assert!(bot.admits(Some("+1555")) && !bot.admits(Some("anonymous")) && !bot.admits(None));
}

#[test]
fn names_are_short_and_plain() {
    let longest = "a".repeat(NAME_CHARS_MAX);
    for name in ["a", "Sales-2", "front_desk", &longest] {
        assert!(is_name(name), "{name}");
    }
    let long = "a".repeat(NAME_CHARS_MAX + 1);
    for name in ["", "a b", "ä", "a/b", "a.b", "\"", &long] {
        assert!(!is_name(name), "{name}");
    }
}
