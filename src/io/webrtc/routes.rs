//! The row of WebRTC: its routes, and the driver that runs beside the sessions.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::{WebRtc, offer, whip};
use crate::config::ListenAddresses;
use crate::features::Feature;
use crate::io::http::app::register;
use crate::io::http::error::HttpError;
use crate::io::module::{DoctorCheck, Module, RouteRequest, StartRequest};
use crate::io::running::{ModuleFuture, RunningModule};
use crate::io::seeding::seed_thread;
use crate::io::webrtc::doctor;
use crate::io::webrtc::gather;
use crate::proto::http::route::{Route, RouteError};
use crate::proto::metrics::MetricsSnapshot;
use crate::proto::webrtc::gather::server::parse_servers;
use crate::proto::webrtc::start;
use edge_runner_http::common::Reply;

pub const MODULE: Option<&Module> = Some(
    &Module {
        begin_thread: Some(seed_thread),
        run: Some(|startup| {
            let sessions = &startup.app.sessions;
            let webrtc = WebRtc::start(sessions, startup.addresses, startup.port, startup.services)?;
            Ok(Some(Arc::new(webrtc)))
        }),
        answer: Some(|request| Box::pin(answer(request))),
        start: Some(|request| Box::pin(ready(begin_session(request)))),
        hosts: Some(|config| {
            let servers = parse_servers(&config.ice_servers).into_iter();
            servers.map(|server| server.host).collect()
        }),
        ..Module::new(Feature::WebRtc)
    }
    .with_checks(&[
        DoctorCheck {
            what: "udp port",
            examine: |config| Box::pin(doctor::udp_port(config)),
        },
        DoctorCheck {
            what: "ice servers",
            examine: |config| Box::pin(gather::doctor::examine(config)),
        },
    ]),
);

async fn answer(request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    let RouteRequest {
        app, head, body, peer, ..
    } = request;
    match request.route {
        Route::Offer(session) => offer::take_offer(app, session.as_deref(), head, body, peer).await,
        Route::Candidates(session) => offer::take_candidates(app, session.as_deref(), &head.headers, body).await,
        Route::Whip(request) => whip::serve(app, request, head, body, peer).await,
        _ => Err(HttpError::Route(RouteError::NotFound)),
    }
}

/// Registers the body for the offer, with which the bot starts. Returns the JSON of the reply.
fn begin_session(request: StartRequest<'_>) -> Result<Vec<u8>, HttpError> {
    let StartRequest {
        app, plan, bot, peer, ..
    } = request;
    let id = register(app, bot, &plan.body, peer)?;
    let ice_servers = start::ice_servers(&app.config, plan.fields.default_ice);
    Ok(start::reply(&id, &ice_servers))
}

impl RunningModule for WebRtc {
    fn add_metrics(&self, snapshot: &mut MetricsSnapshot) {
        self.add_to(snapshot);
    }

    fn add_addresses(&self, listening: &mut ListenAddresses) {
        listening.rtc_port = self.port_number();
    }

    fn warm_up(&self) {
        self.compute_shared();
    }

    fn serve_framed(&self, stream: TcpStream, peer: SocketAddr) -> Result<ModuleFuture<'_, io::Result<()>>, TcpStream> {
        Ok(Box::pin(self.serve_ice_tcp(stream, peer)))
    }

    fn end(&self) -> ModuleFuture<'_, ()> {
        Box::pin(self.close())
    }
}
