//! One call in virtual time, in each of its phases.

use super::super::graph::GraphError;
use super::*;

const MS: Duration = Duration::from_millis(1);

fn refused(code: i64) -> GraphOutcome {
    GraphOutcome::Refused(GraphError {
        code: Some(code),
        ..GraphError::default()
    })
}

fn unclear() -> GraphOutcome {
    GraphOutcome::Unclear(GraphError::default())
}

/// A call with its clock and its requests.
struct Run {
    call: WhatsAppCall,
    now: Instant,
}

impl Run {
    fn answered() -> Run {
        let mut run = Run {
            call: WhatsAppCall::answer(),
            now: Instant::now(),
        };
        assert_eq!(run.drain(), [CallOutput::Ask(CallAction::PreAccept)]);
        run
    }

    fn preparing() -> Run {
        let mut run = Run::answered();
        assert_eq!(run.verdict(GraphOutcome::Done), [CallOutput::Begin]);
        run
    }

    fn accepting() -> Run {
        let mut run = Run::preparing();
        run.call.handle_secured();
        assert_eq!(run.drain(), [CallOutput::Ask(CallAction::Accept)]);
        run
    }

    fn live() -> Run {
        let mut run = Run::accepting();
        assert_eq!(run.verdict(GraphOutcome::Done), [CallOutput::Open]);
        run
    }

    fn drain(&mut self) -> Vec<CallOutput> {
        std::iter::from_fn(|| self.call.poll_output()).collect()
    }

    fn verdict(&mut self, verdict: GraphOutcome) -> Vec<CallOutput> {
        self.call.handle_answer(&verdict, self.now);
        self.drain()
    }

    /// Advances the clock to the next deadline. Returns the time that passed and the outputs.
    fn wait(&mut self) -> (Duration, Vec<CallOutput>) {
        let at = self.call.poll_timeout().expect("a deadline");
        let waited = at - self.now;
        self.call.handle_timeout(at - MS);
        assert_eq!(self.drain(), [], "early");
        self.now = at;
        self.call.handle_timeout(at);
        (waited, self.drain())
    }

    fn session_end(&mut self) -> Vec<CallOutput> {
        self.call.handle_session_end();
        self.drain()
    }

    fn terminated(&mut self) -> Vec<CallOutput> {
        self.call.handle_terminated();
        self.drain()
    }
}

#[test]
fn a_call_is_accepted_when_it_is_secured_and_opened_when_it_is_accepted() {
    let mut run = Run::live();
    assert_eq!(run.call.poll_timeout(), None);
    assert_eq!(run.session_end(), [CallOutput::Ask(CallAction::Terminate)]);
    assert_eq!(run.verdict(GraphOutcome::Done), [CallOutput::Over]);
    assert_eq!(run.session_end(), [], "exactly once");
}

#[test]
fn a_call_that_is_not_secured_is_accepted_after_three_seconds() {
    let mut run = Run::preparing();
    assert_eq!(run.wait(), (SECURED_WITHIN, vec![CallOutput::Ask(CallAction::Accept)]));
    run.call.handle_secured();
    assert_eq!(run.drain(), [], "it is accepted once");
    assert_eq!(run.verdict(GraphOutcome::Done), [CallOutput::Open]);
}

#[test]
fn without_pre_accept_there_is_no_session_and_no_further_request() {
    for verdict in [refused(100), refused(190), refused(138_003), unclear()] {
        let mut run = Run::answered();
        assert_eq!(run.verdict(verdict), [CallOutput::Over]);
        assert_eq!(run.session_end(), []);
    }
}

#[test]
fn a_failed_accept_ends_the_session_and_the_call() {
    let mut run = Run::accepting();
    let ended = CallOutput::End(LeaveReason::Failed);
    assert_eq!(run.verdict(refused(100)), [ended, CallOutput::Ask(CallAction::Reject)]);
    assert_eq!(run.session_end(), [], "its end is known");
    assert_eq!(run.verdict(GraphOutcome::Done), [CallOutput::Over]);
    let mut run = Run::accepting();
    assert_eq!(run.verdict(unclear()), [ended, CallOutput::Ask(CallAction::Terminate)]);
    let mut twin = Run::accepting();
    assert_eq!(twin.verdict(refused(138_003)), [ended, CallOutput::Over]);
}

#[test]
fn a_bot_that_ends_rejects_before_the_accept_and_terminates_after_it() {
    assert_eq!(Run::preparing().session_end(), [CallOutput::Ask(CallAction::Reject)]);
    assert_eq!(Run::accepting().session_end(), [CallOutput::Ask(CallAction::Terminate)]);
    assert_eq!(Run::live().session_end(), [CallOutput::Ask(CallAction::Terminate)]);
}

#[test]
fn a_webhook_s_end_asks_for_nothing() {
    assert_eq!(Run::answered().terminated(), [CallOutput::Over]);
    let left = [CallOutput::End(LeaveReason::Left), CallOutput::Over];
    for mut run in [Run::preparing(), Run::accepting(), Run::live()] {
        assert_eq!(run.terminated(), left);
        assert_eq!(run.session_end(), []);
        assert_eq!(
            run.verdict(GraphOutcome::Done),
            [],
            "what was under way is of no interest"
        );
        assert_eq!(run.terminated(), []);
    }
    // While a terminate waits to be repeated, a webhook that ends the call makes it unnecessary.
    let mut run = Run::live();
    run.session_end();
    assert_eq!(run.verdict(unclear()), []);
    assert_eq!(run.terminated(), [CallOutput::Over]);
    assert_eq!(run.call.poll_timeout(), None);
}

#[test]
fn a_terminate_is_tried_three_times_where_it_is_unclear() {
    let mut run = Run::live();
    run.session_end();
    for pause in TERMINATE_PAUSES {
        assert_eq!(run.verdict(unclear()), []);
        assert_eq!(run.wait(), (pause, vec![CallOutput::Ask(CallAction::Terminate)]));
    }
    assert_eq!(run.verdict(unclear()), [CallOutput::Over]);
    let mut run = Run::live();
    run.session_end();
    assert_eq!(
        run.verdict(refused(100)),
        [CallOutput::Over],
        "what is refused is not asked again"
    );
}

#[test]
fn a_reject_that_fails_becomes_a_terminate() {
    for verdict in [refused(100), unclear()] {
        let mut run = Run {
            call: WhatsAppCall::decline(),
            now: Instant::now(),
        };
        assert_eq!(run.drain(), [CallOutput::Ask(CallAction::Reject)]);
        assert_eq!(run.verdict(verdict), [CallOutput::Ask(CallAction::Terminate)]);
        assert_eq!(run.verdict(unclear()), []);
        assert_eq!(
            run.wait(),
            (TERMINATE_PAUSES[0], vec![CallOutput::Ask(CallAction::Terminate)])
        );
        assert_eq!(run.verdict(GraphOutcome::Done), [CallOutput::Over]);
    }
}

#[test]
fn a_runner_that_stops_rejects_what_it_has_not_begun() {
    let mut run = Run::answered();
    run.call.handle_stop();
    assert_eq!(run.drain(), [CallOutput::Ask(CallAction::Reject)]);
    let mut live = Run::live();
    live.call.handle_stop();
    assert_eq!(live.drain(), [], "its session tells");
}
