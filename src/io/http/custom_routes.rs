//! Routes that an embedding program adds to the runner's port.
//!
//! In: paths with handlers, and requests whose path is no endpoint of the runner. Out: the
//! handler's response, with a known length. Host names and origins are checked as for every
//! request; the API key is not, which is left to the handler. A body is collected within the
//! runner's limits first.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Request, Response};

use super::body::{AcceptedBody, read};
use super::error::HttpError;
use crate::proto::http::route;
use edge_runner_http::common::{ConnLimits, PeerInfo, Reply, whole};

type HandlerFuture = Pin<Box<dyn Future<Output = Response<Bytes>> + Send>>;
type Handler = Arc<dyn Fn(Request<Bytes>) -> HandlerFuture + Send + Sync>;

/// Routes by path.
#[derive(Clone, Default)]
pub struct CustomRoutes(Vec<(String, Handler)>);

impl fmt::Debug for CustomRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(path, _)| path)).finish()
    }
}

impl CustomRoutes {
    /// Adds a route for every method.
    pub fn add<F, Fut>(&mut self, path: String, handler: F)
    where
        F: Fn(Request<Bytes>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Response<Bytes>> + Send + 'static,
    {
        self.0.push((path, Arc::new(move |request| Box::pin(handler(request)))));
    }

    /// Returns a path that cannot be served: one of the runner's, a duplicate, or an invalid one.
    pub fn invalid_path(&self) -> Option<&str> {
        let is_free = |path: &str| route::route("GET", path) == Err(route::RouteError::NotFound);
        let invalid_path = |(nth, (path, _)): &(usize, &(String, Handler))| {
            let is_path = path.starts_with('/')
                && path
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
            !is_path || !is_free(path) || self.0[..*nth].iter().any(|(known, _)| known == path)
        };
        let mut routes = self.0.iter().enumerate();
        routes.find(invalid_path).map(|(_, (path, _))| path.as_str())
    }

    fn find(&self, path: &str) -> Option<&Handler> {
        let mut routes = self.0.iter();
        routes.find(|(known, _)| known == path).map(|(_, handler)| handler)
    }

    /// Answers a request whose path is no endpoint of the runner.
    pub async fn answer(
        &self,
        conn_limits: ConnLimits,
        refusal: route::RouteError,
        head: &Parts,
        body: Incoming,
        peer: PeerInfo,
    ) -> Result<Reply, HttpError> {
        let Some(handler) = self.find(head.uri.path()) else {
            return Err(HttpError::Route(refusal));
        };
        let body = read(conn_limits, &head.headers, AcceptedBody::Anything, body).await?;
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = head.uri.clone();
        *request.version_mut() = head.version;
        *request.headers_mut() = head.headers.clone();
        request.extensions_mut().insert(peer.source);
        let (head, body) = handler(request).await.into_parts();
        Ok(Response::from_parts(head, whole(body)))
    }
}
