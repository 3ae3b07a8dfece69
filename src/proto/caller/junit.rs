//! The report of `--junit`, in the XML of JUnit, which systems for continuous integration read.
//!
//! In: for each call its cases. Out: the text of the file: one suite for each call, and one case
//! for each step of a scenario, or one for the call. Format: junit-10.xsd of Jenkins' xUnit plugin.

use std::fmt::Write as _;
use std::time::Duration;

use super::checked_step::{StepOutcome, StepResult};
use super::conversation::CallVerdict;
use super::scenario::Scenario;
use crate::xml::escaped;

/// The name of the report, and of the only case of a call without a scenario.
const REPORT: &str = "edge-runner call";
const CALL: &str = "call";

/// The result of a test case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CaseOutcome {
    Passed,
    Failed(String),
    /// There was no call.
    Unusable(String),
    Skipped,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TestCase {
    name: String,
    /// The file and the line.
    place: Option<String>,
    lasted: Duration,
    outcome: CaseOutcome,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestSuite {
    name: String,
    file: Option<String>,
    lasted: Duration,
    cases: Vec<TestCase>,
}

impl TestSuite {
    /// Makes the suite of a call: its result, or why there was none. `number` tells several calls
    /// apart.
    pub fn new(
        scenario: Option<(&str, &Scenario)>,
        number: Option<u64>,
        end: &Result<CallVerdict, String>,
    ) -> TestSuite {
        let name = scenario.map_or(REPORT, |(_, scenario)| &scenario.name);
        let lasted = end.as_ref().map_or(Duration::ZERO, |verdict| verdict.lasted);
        let mut cases = Vec::new();
        if let (Some((_, scenario)), Ok(verdict)) = (scenario, end) {
            let steps = scenario.steps.iter().zip(&verdict.steps);
            cases.extend(steps.map(|(step, StepResult { outcome, lasted })| TestCase {
                name: step.check.name.clone(),
                place: Some(step.check.place.clone()),
                lasted: *lasted,
                outcome: match outcome {
                    StepOutcome::Passed => CaseOutcome::Passed,
                    StepOutcome::Failed(why) => CaseOutcome::Failed(why.clone()),
                    StepOutcome::Skipped => CaseOutcome::Skipped,
                },
            }));
        }
        let is_failed = |case: &TestCase| matches!(case.outcome, CaseOutcome::Failed(_));
        let call = match end {
            Err(why) => Some(CaseOutcome::Unusable(why.clone())),
            // What failed beside the steps, such as the file of the recording.
            Ok(verdict) if !verdict.failures.is_empty() && !cases.iter().any(is_failed) => {
                Some(CaseOutcome::Failed(verdict.failures.join("\n")))
            }
            Ok(_) => cases.is_empty().then_some(CaseOutcome::Passed),
        };
        cases.extend(call.map(|outcome| TestCase {
            name: CALL.into(),
            place: None,
            lasted,
            outcome,
        }));
        TestSuite {
            name: number.map_or(name.to_owned(), |number| format!("{name}, call {number}")),
            file: scenario.map(|(file, _)| file.to_owned()),
            lasted,
            cases,
        }
    }

    fn count(&self, is: impl Fn(&CaseOutcome) -> bool) -> usize {
        self.cases.iter().filter(|case| is(&case.outcome)).count()
    }

    /// Returns the attributes with the number of cases, of failures and of errors.
    fn counts(suites: &[TestSuite]) -> String {
        let count = |is: fn(&CaseOutcome) -> bool| -> usize { suites.iter().map(|suite| suite.count(is)).sum() };
        format!(
            "tests=\"{}\" failures=\"{}\" errors=\"{}\"",
            count(|_| true),
            count(|outcome| matches!(outcome, CaseOutcome::Failed(_))),
            count(|outcome| matches!(outcome, CaseOutcome::Unusable(_))),
        )
    }
}

/// Returns the text of the file.
pub fn report(suites: &[TestSuite]) -> String {
    let lasted: Duration = suites.iter().map(|suite| suite.lasted).sum();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a text cannot fail.
    let _ = writeln!(
        xml,
        "<testsuites name=\"{REPORT}\" {} time=\"{:.3}\">",
        TestSuite::counts(suites),
        lasted.as_secs_f64()
    );
    for suite in suites {
        let file = suite.file.as_ref().map(|file| format!(" file=\"{}\"", escaped(file)));
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\"{} {} skipped=\"{}\" time=\"{:.3}\">",
            escaped(&suite.name),
            file.unwrap_or_default(),
            TestSuite::counts(std::slice::from_ref(suite)),
            suite.count(|outcome| *outcome == CaseOutcome::Skipped),
            suite.lasted.as_secs_f64()
        );
        for case in &suite.cases {
            write_case(&mut xml, suite, case);
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn write_case(xml: &mut String, suite: &TestSuite, case: &TestCase) {
    let _ = write!(
        xml,
        "    <testcase name=\"{}\" classname=\"{}\" time=\"{:.3}\"",
        escaped(&case.name),
        escaped(&suite.name),
        case.lasted.as_secs_f64()
    );
    let (element, why) = match &case.outcome {
        CaseOutcome::Passed => return xml.push_str("/>\n"),
        CaseOutcome::Skipped => return xml.push_str(">\n      <skipped/>\n    </testcase>\n"),
        CaseOutcome::Failed(why) => ("failure", why),
        CaseOutcome::Unusable(why) => ("error", why),
    };
    let why = escaped(&why.replace('\n', "; "));
    let place = case.place.as_ref().map(|place| format!("{}: ", escaped(place)));
    let place = place.unwrap_or_default();
    let _ = writeln!(
        xml,
        ">\n      <{element} message=\"{why}\">{place}{why}</{element}>\n    </testcase>"
    );
}

#[cfg(test)]
mod tests;
