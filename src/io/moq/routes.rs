//! `/start` for Media over QUIC.
//!
//! Out: the reply with the URL that the caller connects to. Rejects a runner without a free
//! session, a body that a program cannot take, and in dial mode a relay that does not take the
//! session in time. The bot starts at once; in serve mode its caller has the time of a session to
//! arrive.

use std::future::ready;
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::Value;

use crate::config::ListenAddresses;
use crate::features::Feature;
use crate::io::RunError;
use crate::io::bots::SessionBot;
use crate::io::http::app::{RunnerApp, check_program_body, mint_token, new_session_id};
use crate::io::http::error::{HttpError, ModuleRefusal};
use crate::io::http::refusal_log::log_client;
use crate::io::module::{DoctorCheck, Module, ModuleStartup, StartRequest, blocking};
use crate::io::moq::Moq;
use crate::io::moq::MoqBeginning;
use crate::io::moq::arrivals::ConnectionRules;
use crate::io::moq::{banner, doctor};
use crate::io::running::{ModuleFuture, RunningModule};
use crate::io::sessions::SessionStart;
use crate::proto::http::origin::AllowedOrigins;
use crate::proto::http::start::RequestBase;
use crate::proto::http::token::SocketKind;
use crate::proto::metrics::text::MetricsText;
use crate::proto::moq::start::{MoqReply, MoqStartError, caller_url, namespace};
use crate::proto::server::admission::PendingKind;
use edge_runner_http::common::{PeerInfo, random};
use edge_runner_http::tls::WatchedCertificate;

pub const MODULE: Option<&Module> = Some(
    &Module {
        run: Some(run),
        start: Some(|request| Box::pin(begin_session(request))),
        banner: Some(banner::rows),
        hosts: Some(doctor::hosts),
        ..Module::new(Feature::Moq)
    }
    .with_checks(&[
        DoctorCheck {
            what: "quic",
            examine: |config| Box::pin(blocking(config, doctor::examine)),
        },
        DoctorCheck {
            what: "relay",
            examine: |config| Box::pin(doctor::relay(config)),
        },
    ]),
);

fn run(startup: &ModuleStartup<'_>) -> Result<Option<Arc<dyn RunningModule>>, RunError> {
    let app = startup.app;
    // The rules of WebSockets.
    let rules = ConnectionRules {
        origins: AllowedOrigins::new(&app.config.allowed_origins),
        needs_token: app.config.ws_tokens,
        tokens: app.tokens.clone(),
        log_limit: app.log_limit(),
    };
    let moq = Moq::start(&app.sessions, rules, startup.services)?;
    Ok(moq.map(|moq| Arc::new(moq) as Arc<dyn RunningModule>))
}

impl RunningModule for Moq {
    fn render_metrics(&self, text: &mut MetricsText) {
        self.render_metrics_to(text);
    }

    fn add_addresses(&self, listening: &mut ListenAddresses) {
        listening.moq_port = self.udp_port();
    }

    fn page_source(&self) -> Option<String> {
        Some(self.source_expression())
    }

    fn certificate(&self) -> Option<Arc<dyn WatchedCertificate>> {
        self.served_certificate()
    }

    fn end(&self) -> ModuleFuture<'_, ()> {
        self.close();
        Box::pin(ready(()))
    }
}

async fn begin_session(request: StartRequest<'_>) -> Result<Vec<u8>, HttpError> {
    let bot = request.choose_bot()?;
    let StartRequest {
        app, plan, base, peer, ..
    } = request;
    let random = u64::from_be_bytes(random());
    let namespace = namespace(plan.fields.namespace, &app.config.moq, random);
    start(app, namespace, (bot, plan.body), base, peer).await
}

/// Starts the bot, and returns the JSON of the reply.
async fn start(
    app: &RunnerApp,
    namespace: String,
    (mut bot, body): (SessionBot, Value),
    base: RequestBase<'_>,
    peer: PeerInfo,
) -> Result<Vec<u8>, HttpError> {
    let moq = app.module::<Moq>(Feature::Moq)?;
    check_program_body(&bot, &body)?;
    let permit = app.permit(peer.requester(), PendingKind::Silent)?;
    bot.take_place().map_err(HttpError::Offer)?;
    let session_id = new_session_id();
    let url = |token| caller_url(&app.config, base.host, moq.udp_port(), token);
    let beginning = MoqBeginning {
        start: SessionStart {
            session_id: session_id.clone(),
            body,
            bot,
            log_client: log_client(app, peer),
            lease: None,
        },
        permit,
        namespace: namespace.clone(),
        // The query of a relay may hold a token, which is for callers.
        relay_url: url(None).split('?').next().unwrap_or_default().to_owned(),
    };
    let started = moq.begin(beginning).await.map_err(refuse)?;
    let token = match app.config.moq.is_serving() {
        true => mint_token(app, SocketKind::Moq, Some(&session_id), peer.is_authorised),
        false => None,
    };
    let reply = MoqReply {
        session_id: &session_id,
        relay_url: &url(token.as_deref()),
        cert_hash: started.cert_hash.as_deref(),
        namespace: &namespace,
    };
    Ok(reply.to_json(&app.config.moq))
}

/// Rejects a `/start` whose session did not begin.
fn refuse(error: MoqStartError) -> HttpError {
    let status = match error {
        MoqStartError::NotReady => StatusCode::GATEWAY_TIMEOUT,
        MoqStartError::Ended(_) => StatusCode::BAD_GATEWAY,
        MoqStartError::Certificate(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    ModuleRefusal::new(status, error).into()
}
