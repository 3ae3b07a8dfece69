//! Serves the files of the built-in page, compressed and with validation by ETag; the routes of the
//! page's feature.
//!
//! In: a name below `/client/`, the request's headers, and the other server that the page connects
//! to. Out: the file with its security headers,
//! a 304, or nothing for an unknown name.

use std::future::ready;

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};

use super::error::HttpError;
use super::{folder, uploads};
use crate::features::Feature;
use crate::io::module::{Module, RouteRequest};
use crate::io::running::RunningModule;
use crate::page;
use crate::proto::http::folder::FolderUse;
use crate::proto::http::route::{Route, RouteError};
use edge_runner_http::common::{Reply, whole};

pub const MODULE: Option<&Module> = Some(&Module {
    check: Some(|config| Box::pin(ready(folder::check(config).and_then(|()| uploads::check(config))))),
    run: Some(uploads::run),
    answer: Some(|request| Box::pin(answer(request))),
    ..Module::new(Feature::Page)
});

async fn answer(request: RouteRequest<'_>) -> Result<Reply, HttpError> {
    const NOT_FOUND: HttpError = HttpError::Route(RouteError::NotFound);
    let (app, head) = (request.app, request.head);
    match request.route {
        Route::PageRedirect => Ok(to_page()),
        Route::OpenApi => page::openapi()
            .and_then(|asset| of_asset(asset, &head.headers, None))
            .ok_or(NOT_FOUND),
        Route::Download(name) => {
            let folder = app.config.downloads_dir.as_ref().ok_or(NOT_FOUND)?;
            folder::serve(folder, &name, FolderUse::Downloads, head, request.conn_state).await
        }
        Route::Upload(ref session_id) => {
            let session_id = session_id.clone();
            uploads::receive(request, session_id).await
        }
        Route::Page(name) => {
            if let Some(folder) = &app.config.page_dir {
                return folder::serve(folder, &name, FolderUse::Page, head, request.conn_state).await;
            }
            let source = app.modules.iter().find_map(RunningModule::page_source);
            file(&name, &head.headers, source.as_deref()).ok_or(NOT_FOUND)
        }
        _ => Err(NOT_FOUND),
    }
}

/// Redirects a browser to the page.
fn to_page() -> Reply {
    let mut reply = Reply::default();
    *reply.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    reply
        .headers_mut()
        .insert(header::LOCATION, HeaderValue::from_static("/client/"));
    reply
}

/// Serves a file of the page, or a 304 to a client that has it. `server` is for the policy of the
/// page, [`page::content_security_policy`].
fn file(name: &str, headers: &HeaderMap, server: Option<&str>) -> Option<Reply> {
    of_asset(page::asset(name)?, headers, server)
}

/// Serves a file that is embedded; `None` if `server` is no source expression.
pub fn of_asset(asset: &page::Asset, headers: &HeaderMap, server: Option<&str>) -> Option<Reply> {
    let header_value = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
            .unwrap_or_default()
    };
    let mut reply = Reply::default();
    let put = [
        (header::ETAG, asset.etag),
        // The browser has to revalidate, so that it does not keep the page of another version.
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "Accept-Encoding"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // `no-referrer` would also remove the origin of some requests, which the origin check
        // needs.
        (header::REFERRER_POLICY, "same-origin"),
    ];
    for (name, value) in put {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let policy = HeaderValue::try_from(page::content_security_policy(server)).ok()?;
    reply.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    if asset.is_in(header_value(header::IF_NONE_MATCH)) {
        *reply.status_mut() = StatusCode::NOT_MODIFIED;
        return Some(reply);
    }
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    *reply.body_mut() = if page::accepts_gzip(header_value(header::ACCEPT_ENCODING)) {
        reply
            .headers_mut()
            .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        whole(asset.gzip)
    } else {
        whole(asset.identity())
    };
    Some(reply)
}
