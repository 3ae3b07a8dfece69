//! The modules of one runner that keep something while it runs: sockets, connections, calls.
//!
//! A handler finds the state of its own module by its type; what all of them have in common, such
//! as their end, is in [`RunningModule`].

use std::any::Any;
use std::future::{Future, ready};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use edge_runner_http::tls::WatchedCertificate;
use tokio::net::TcpStream;

use crate::config::ListenAddresses;
use crate::proto::http::status::{BotProcessMember, WorkerMember};
use crate::proto::metrics::MetricsSnapshot;
use crate::proto::metrics::text::MetricsText;

/// A future of a module.
pub type ModuleFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a module keeps while the runner runs.
pub trait RunningModule: Any + Send + Sync {
    /// Adds the values that are counted here.
    fn add_metrics(&self, _: &mut MetricsSnapshot) {}

    /// Writes the families of metrics that belong to the module.
    fn render_metrics(&self, _: &mut MetricsText) {}

    /// Adds the ports that are bound here.
    fn add_addresses(&self, _: &mut ListenAddresses) {}

    /// Returns the state for `/status`.
    fn worker_member(&self) -> Option<WorkerMember> {
        None
    }

    /// Returns the state of the process that loads the bot before its calls.
    fn bot_process(&self) -> Option<BotProcessMember> {
        None
    }

    /// Returns the version that can be installed, for `/status`.
    fn new_version(&self) -> Option<String> {
        None
    }

    /// Returns the source expression of a server that the page connects to.
    fn page_source(&self) -> Option<String> {
        None
    }

    /// Returns a certificate to be reloaded and renewed.
    fn certificate(&self) -> Option<Arc<dyn WatchedCertificate>> {
        None
    }

    /// Computes what is made once per process.
    fn warm_up(&self) {}

    /// Serves a TCP connection whose packets are framed (RFC 4571), or returns it.
    ///
    /// # Errors
    /// The stream, if the module has no such connections.
    fn serve_framed(&self, stream: TcpStream, _: SocketAddr) -> Result<ModuleFuture<'_, io::Result<()>>, TcpStream> {
        Err(stream)
    }

    /// Ends a call that is no session yet; returns whether there is one with this id.
    fn end_call(&self, _: &str) -> bool {
        false
    }

    /// Takes no further work. Live sessions go on.
    fn drain(&self) -> ModuleFuture<'_, ()> {
        Box::pin(ready(()))
    }

    /// Closes, after the last session, a connection whose end takes time; with its name.
    fn stop(&self) -> Option<(&'static str, ModuleFuture<'_, ()>)> {
        None
    }

    /// Ends what is left, as the last step.
    fn end(&self) -> ModuleFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

/// The running modules of one runner. Clones share them.
#[derive(Clone, Default)]
pub struct RunningModules(Vec<Arc<dyn RunningModule>>);

impl RunningModules {
    pub fn push(&mut self, module: Arc<dyn RunningModule>) {
        self.0.push(module);
    }

    /// Returns the module of this type; `None` if it does not run.
    pub fn get<M: RunningModule>(&self) -> Option<&M> {
        self.iter().find_map(|module| (module as &dyn Any).downcast_ref::<M>())
    }

    pub fn iter(&self) -> impl Iterator<Item = &dyn RunningModule> {
        self.0.iter().map(|module| &**module)
    }
}
