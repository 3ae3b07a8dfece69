//! Calls of functions whose name and arguments arrive in several events.
//!
//! In: what each event tells of a call; services spread it over `output_item.added`,
//! `function_call_arguments.done`, `output_item.done` and `response.done`, and leave out any of
//! them. Out: each call once its name and its arguments are known, at the latest at the end of its
//! response, then without arguments.

use super::server_event::CalledFunction;
use crate::limits::FUNCTION_CALLS_MAX;

/// The calls that are not complete.
#[derive(Debug, Default)]
pub struct CallDrafts(Vec<(String, CalledFunction)>);

impl CallDrafts {
    /// Forgets all calls, with their connection.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds what an event tells of a call; empty texts are unknown. Returns a complete call.
    pub fn add(&mut self, response_id: &str, part: CalledFunction) -> Option<CalledFunction> {
        let at = match self.0.iter().position(|(_, draft)| draft.call_id == part.call_id) {
            Some(at) => at,
            None => {
                if self.0.len() == FUNCTION_CALLS_MAX {
                    self.0.remove(0);
                }
                let draft = CalledFunction {
                    call_id: part.call_id,
                    ..CalledFunction::default()
                };
                self.0.push((response_id.to_owned(), draft));
                self.0.len() - 1
            }
        };
        let draft = &mut self.0[at].1;
        for (known, new) in [(&mut draft.name, part.name), (&mut draft.arguments, part.arguments)] {
            if known.is_empty() {
                *known = new;
            }
        }
        let is_complete = !draft.name.is_empty() && !draft.arguments.is_empty();
        is_complete.then(|| self.0.remove(at).1)
    }

    /// Takes the calls of a response that is done. Those without a name are dropped.
    pub fn finish(&mut self, response_id: &str) -> Vec<CalledFunction> {
        let is_of = |(of, _): &mut (String, CalledFunction)| of == response_id || of.is_empty();
        let calls = self.0.extract_if(.., is_of).map(|(_, call)| call);
        calls.filter(|call| !call.name.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(call_id: &str, name: &str, arguments: &str) -> CalledFunction {
        CalledFunction {
            call_id: call_id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        }
    }

    #[test]
    fn a_call_is_complete_with_its_name_and_its_arguments() {
        let mut drafts = CallDrafts::default();
        assert_eq!(drafts.add("r", part("a", "f", "")), None);
        assert_eq!(drafts.add("r", part("b", "", "{}")), None);
        assert_eq!(drafts.add("r", part("a", "", "{}")), Some(part("a", "f", "{}")));
        assert_eq!(drafts.add("r", part("b", "g", "")), Some(part("b", "g", "{}")));
        assert_eq!(drafts.add("r", part("c", "h", "{}")), Some(part("c", "h", "{}")));
        assert_eq!(drafts.finish("r"), []);
    }

    #[test]
    fn the_end_of_a_response_completes_its_calls() {
        let mut drafts = CallDrafts::default();
        drafts.add("r", part("a", "f", ""));
        drafts.add("s", part("b", "f", ""));
        drafts.add("r", part("c", "", "{}"));
        assert_eq!(drafts.finish("r"), [part("a", "f", "")]);
        assert_eq!(drafts.finish("s"), [part("b", "f", "")]);
        for call in 0..2 * FUNCTION_CALLS_MAX {
            drafts.add("t", part(&call.to_string(), "f", ""));
        }
        assert_eq!(drafts.finish("t").len(), FUNCTION_CALLS_MAX);
    }
}
