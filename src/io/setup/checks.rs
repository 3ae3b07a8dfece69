//! Asks the services that the form of the setup page or of the settings page names, all at once.
//!
//! In: the body of a request. Out: a report on each service, as JSON. The core plans them, within
//! its limits.

use std::net::IpAddr;
use std::sync::Mutex;

use edge_runner_http::common::lock;
use edge_runner_http::tasks::request_time;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ServiceChecks;
use crate::bots::assistant::clients::examination;
use crate::bots::assistant::doctor::open_session;
use crate::proto::assistant::services::failure::{ServiceFailure, ServiceStep};
use crate::proto::setup::asked::{ANSWER_WITHIN, AskedServices};
use crate::proto::setup::change::FieldState;
use crate::proto::setup::checks::{ServiceCheck, ServiceReport, plan, to_ask};
use crate::proto::setup::{SetupError, SetupState};

/// The checks of both pages.
pub(super) const CHECKS: ServiceChecks = ServiceChecks {
    of_board: |state, body, source| Box::pin(check_for_board(state, body, source)),
    of_runner: |asked, body, fields| Box::pin(check_for_runner(asked, body, fields)),
};

async fn check_for_board(state: &Mutex<SetupState>, body: &[u8], source: IpAddr) -> Result<Value, SetupError> {
    let planned = lock(state).handle_check(body, (source, request_time().now))?;
    let _asked = AskedGuard {
        state,
        count: to_ask(&planned),
        end: SetupState::handle_checked,
    };
    Ok(reports(planned).await)
}

async fn check_for_runner(
    asked: &Mutex<AskedServices>,
    body: &[u8],
    fields: &[FieldState],
) -> Result<Value, SetupError> {
    let planned = plan(body, fields)?;
    let count = to_ask(&planned);
    let begun = lock(asked).begin(count, request_time().now);
    begun.map_err(SetupError::Busy)?;
    let _asked = AskedGuard {
        state: asked,
        count,
        end: AskedServices::end,
    };
    Ok(reports(planned).await)
}

/// Services that are asked. Dropping it, also when the client leaves, says that they no longer are.
struct AskedGuard<'s, S> {
    state: &'s Mutex<S>,
    count: usize,
    end: fn(&mut S, usize),
}

impl<S> Drop for AskedGuard<'_, S> {
    fn drop(&mut self) {
        (self.end)(&mut lock(self.state), self.count);
    }
}

async fn reports(planned: Vec<Result<ServiceCheck, ServiceReport>>) -> Value {
    let reports = planned.into_iter().map(|check| async move {
        match check {
            Ok(check) => report(&check).await,
            Err(wrong) => wrong,
        }
    });
    let reports = Box::pin(join_all(reports)).await;
    json!({"services": reports})
}

async fn report(check: &ServiceCheck) -> ServiceReport {
    match check {
        ServiceCheck::Offer(offer) => {
            let answer = timeout(ANSWER_WITHIN, examination::examine(&offer.access)).await;
            offer.report(&answer.unwrap_or(Err(ServiceFailure::TimedOut(ServiceStep::Begin))))
        }
        ServiceCheck::Session(session) => session.report(&open_session(&session.config, ANSWER_WITHIN).await),
    }
}
