//! Values of `.env` files with quotes, comments and escapes, and proxies in the environment.

use super::*;

/// A user of Pipecat's development runner learns what is not here.
/// A proxy that is not used is named; its address, which may contain a password, is not.
#[test]
fn a_proxy_that_is_not_used_is_named() {
    let warned =
        |name: &str, value: &str| unused_proxy_warning(&Variables::new([(name.to_owned(), value.to_owned())], []));
    for name in [
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        let warning = warned(name, "http://user:secret@proxy:3128").expect("a warning");
        assert!(
            warning.starts_with(&format!("{name} is set, and not used")),
            "{warning}"
        );
        assert!(!warning.contains("secret"), "{warning}");
        assert_eq!(warned(name, " "), None, "{name}");
    }
    assert_eq!(warned("NO_PROXY", "localhost"), None);
}

fn values(text: &str) -> Vec<(String, String)> {
    let file = parse(text);
    assert_eq!(file.warnings, Vec::<String>::new(), "{text:?}");
    pairs(file)
}

fn pairs(file: EnvFile) -> Vec<(String, String)> {
    let lines = file.variables.into_iter();
    lines.map(|line| (line.name, line.value)).collect()
}

fn value(text: &str) -> String {
    values(text).pop().expect("one variable").1
}

#[test]
fn parses_a_typical_file() {
    let text =
        "\u{feff}# keys\r\nDAILY_API_KEY = abc=def==  # mine\r\n\r\nexport LIVEKIT_URL='wss://x/#y'\r\n  EMPTY=\n";
    let expected = [
        ("DAILY_API_KEY", "abc=def=="),
        ("LIVEKIT_URL", "wss://x/#y"),
        ("EMPTY", ""),
    ];
    assert_eq!(
        values(text),
        expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
}

#[test]
fn parses_quotes_comments_and_escapes() {
    assert_eq!(value("A=#fff"), "#fff");
    assert_eq!(value("A= # nothing"), "");
    assert_eq!(value("A=a#b"), "a#b");
    assert_eq!(value("A=\"a # b\" # c"), "a # b");
    assert_eq!(value(r#"A="x\ny\"z\\\q""#), "x\ny\"z\\\\q");
    assert_eq!(value(r"A='x\ny\'z'"), r"x\ny'z");
    assert_eq!(value("A=$HOME/${B}"), "$HOME/${B}");
    assert_eq!(value("export=1"), "1");
    assert_eq!(value("A={\"urls\": \"stun:a\"}"), "{\"urls\": \"stun:a\"}");
}

#[test]
fn a_quoted_value_may_span_lines() {
    let file = parse("PEM=\"-----\nabc\n-----\"\nwrong\nB=2");
    assert!(file.warnings[0].starts_with("line 4:"), "{:?}", file.warnings);
    let numbers: Vec<_> = file.variables.iter().map(|line| line.number).collect();
    assert_eq!(numbers, [1, 5]);
    assert_eq!(
        pairs(file),
        [
            ("PEM".to_owned(), "-----\nabc\n-----".to_owned()),
            ("B".to_owned(), "2".to_owned())
        ]
    );
}

#[test]
fn skips_a_malformed_line_with_a_warning() {
    for bad in [
        "hunter2",
        "=hunter2",
        "1A=hunter2",
        "A B=hunter2",
        "A=\"hunter2",
        "A='hunter2' 3",
        "A=hunter2\0",
        "A='hunter2\0'",
    ] {
        let file = parse(&format!("X=1\n{bad}\nY=2\n"));
        let names: Vec<_> = file.variables.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["X", "Y"], "{bad:?}");
        assert_eq!(file.warnings.len(), 1, "{bad:?}");
        assert!(file.warnings[0].contains("line 2"), "{:?}", file.warnings);
        assert!(!file.warnings[0].contains("hunter2"), "{:?}", file.warnings);
    }
}

/// All texts of up to five syntax characters, and one of two bytes.
#[test]
fn no_text_causes_a_panic() {
    let mut texts = vec![String::new()];
    for _ in 0..5 {
        let longer = texts
            .iter()
            .flat_map(|text| "A=\"\\\n #é".chars().map(move |c| format!("{text}{c}")));
        texts = longer.collect();
        for text in &texts {
            assert!(parse(text).warnings.len() <= text.lines().count());
        }
    }
}

fn variables(process: &[(&str, &str)], file: &[(&str, &str)]) -> Variables {
    let own = |list: &[(&str, &str)]| {
        list.iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<Vec<_>>()
    };
    Variables::new(own(process), own(file))
}

#[test]
fn the_process_takes_precedence_over_the_file() {
    let both = variables(&[("VIDEOROOM_API_KEY", "a")], &[("VIDEOROOM_API_KEY", "b"), ("C", "c")]);
    assert_eq!(both.get("VIDEOROOM_API_KEY"), Some("a"));
    assert_eq!(both.get("C"), Some("c"));
}

/// R-027: the canonical name takes precedence, even if only the file sets it.
#[test]
fn a_canonical_name_takes_precedence_over_an_alias() {
    let both = variables(&[("DAILY_API_KEY", "alias")], &[("VIDEOROOM_API_KEY", "canonical")]);
    assert_eq!(
        both.named("VIDEOROOM_API_KEY"),
        Some(("VIDEOROOM_API_KEY", "canonical"))
    );
    let alias = variables(&[("DAILY_API_KEY", "alias"), ("VIDEOROOM_API_KEY", " ")], &[]);
    assert_eq!(alias.named("VIDEOROOM_API_KEY"), Some(("DAILY_API_KEY", "alias")));
    assert_eq!(variables(&[("DAILY_API_KEY", "")], &[]).get("VIDEOROOM_API_KEY"), None);
}

/// I-26: the process takes precedence over the file under every name; then the first name does.
#[test]
fn nearest_prefers_the_process_to_the_first_name() {
    let names = ["ONE".to_owned(), "TWO".to_owned()];
    for (process, file, found) in [
        (&[("TWO", "a")][..], &[("ONE", "b")][..], Some(("TWO", "a"))),
        (&[("TWO", "a"), ("ONE", "b")], &[("ONE", "c")], Some(("ONE", "b"))),
        (&[("TWO", " ")], &[("ONE", "b"), ("TWO", "c")], Some(("ONE", "b"))),
        (&[], &[("TWO", "a"), ("ONE", "b")], Some(("ONE", "b"))),
        (&[], &[("TWO", "a")], Some(("TWO", "a"))),
        (&[], &[], None),
    ] {
        let both = variables(process, file);
        let nearest = both.nearest(&names).map(|(name, value)| (&**name, value));
        assert_eq!(nearest, found, "{process:?} {file:?}");
    }
}
