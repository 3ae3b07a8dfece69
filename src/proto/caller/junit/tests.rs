//! Reports, compared as text.

use super::*;

fn verdict(outcomes: &[StepOutcome], failures: &[&str]) -> CallVerdict {
    CallVerdict {
        failures: failures.iter().map(|why| (*why).to_owned()).collect(),
        connected_after: Duration::ZERO,
        first_sound_after: None,
        latencies: Vec::new(),
        bot_spoke: Duration::ZERO,
        dropped: Duration::ZERO,
        lasted: Duration::from_millis(4_200),
        steps: outcomes
            .iter()
            .map(|outcome| StepResult {
                outcome: outcome.clone(),
                lasted: Duration::from_millis(1_500),
            })
            .collect(),
    }
}

#[test]
fn each_step_is_a_case() {
    let text = "[[step]]\nname = \"a <b>\"\n[[step]]\n[[step]]\n";
    let scenario = Scenario::parse("t/s.toml", text).expect("a scenario");
    let outcomes = [
        StepOutcome::Passed,
        StepOutcome::Failed("no \"text\"\u{1b} & none".into()),
        StepOutcome::Skipped,
    ];
    let suite = TestSuite::new(
        Some(("t/s.toml", &scenario)),
        None,
        &Ok(verdict(&outcomes, &["t/s.toml:3: `step 2`: no"])),
    );
    assert_eq!(
        report(&[suite]),
        r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="edge-runner call" tests="3" failures="1" errors="0" time="4.200">
  <testsuite name="s" file="t/s.toml" tests="3" failures="1" errors="0" skipped="1" time="4.200">
    <testcase name="a &lt;b&gt;" classname="s" time="1.500"/>
    <testcase name="step 2" classname="s" time="1.500">
      <failure message="no &quot;text&quot; &amp; none">t/s.toml:3: no &quot;text&quot; &amp; none</failure>
    </testcase>
    <testcase name="step 3" classname="s" time="1.500">
      <skipped/>
    </testcase>
  </testsuite>
</testsuites>
"#
    );
}

#[test]
fn a_call_without_steps_is_a_case() {
    let suites = [
        TestSuite::new(None, Some(1), &Ok(verdict(&[], &[]))),
        TestSuite::new(None, Some(2), &Ok(verdict(&[], &["a", "b"]))),
        TestSuite::new(None, Some(3), &Err("refused".into())),
    ];
    let xml = report(&suites);
    for part in [
        r#"<testsuites name="edge-runner call" tests="3" failures="1" errors="1" time="8.400">"#,
        r#"<testcase name="call" classname="edge-runner call, call 1" time="4.200"/>"#,
        r#"<failure message="a; b">a; b</failure>"#,
        r#"<error message="refused">refused</error>"#,
    ] {
        assert!(xml.contains(part), "{part}: {xml}");
    }
}

/// A failure beside the steps, such as a recording that cannot be written, is in no step.
#[test]
fn a_failure_beside_the_steps_is_a_case() {
    let scenario = Scenario::parse("s.toml", "[[step]]").expect("a scenario");
    let failed = Ok(verdict(&[StepOutcome::Passed], &["--record a.wav"]));
    let xml = report(&[TestSuite::new(Some(("s.toml", &scenario)), None, &failed)]);
    assert!(
        xml.contains(r#"tests="2" failures="1""#) && xml.contains("--record a.wav"),
        "{xml}"
    );
}
