//! Test support: a server that answers by a script, byte by byte, and a temporary folder.
//!
//! Built for the tests of this crate, and with the feature `testing` for those of dependent crates.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use edge_runner_proto::server::rest::{RestMethod, RestRequest};

use crate::store::Store;

/// What a server does with a connection after reading the request.
pub enum Script {
    /// Writes these bytes and closes.
    Say(Vec<u8>),
    /// Writes these bytes and keeps the connection open.
    SayAndStay(Vec<u8>),
}

pub fn answer(status: &str, body: &str) -> Script {
    let length = body.len();
    Script::SayAndStay(format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes())
}

pub fn garbage(bytes: &[u8]) -> Script {
    Script::Say(bytes.to_vec())
}

/// A server that plays one script per connection, and refuses connections after the last.
pub struct FakeServer {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeServer {
    pub async fn new(scripts: Vec<Script>) -> Self {
        FakeServer::over(scripts, |stream| async { Some(stream) }).await
    }

    /// Like `new`; `wrap` does the TLS handshake on a connection, or fails.
    pub async fn over<S, W, F>(scripts: Vec<Script>, wrap: W) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        F: Future<Output = Option<S>> + Send,
        W: Fn(TcpStream) -> F + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let received = requests.clone();
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            for script in scripts {
                let (stream, _) = listener.accept().await.expect("a connection");
                let Some(mut stream) = wrap(stream).await else {
                    continue;
                };
                let request = read_request(&mut stream).await;
                received.lock().expect("no panic").push(request);
                // The client may close before a response that is too long has been written.
                match script {
                    Script::Say(bytes) => {
                        let _ = stream.write_all(&bytes).await;
                        let _ = stream.shutdown().await;
                    }
                    Script::SayAndStay(bytes) => {
                        let _ = stream.write_all(&bytes).await;
                        let _ = stream.flush().await;
                        open.push(stream);
                    }
                }
            }
            drop(listener);
            std::future::pending::<()>().await;
        });
        FakeServer {
            address,
            requests,
            task,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }
}

/// Reads a head, and a body of the length in `content-length`.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = String::new();
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().expect("a length"));
            if body.len() >= length {
                return text;
            }
        }
        let mut chunk = [0; 1024];
        let count = stream.read(&mut chunk).await.expect("a request");
        assert_ne!(count, 0, "the client closed after {text:?}");
        text += std::str::from_utf8(&chunk[..count]).expect("text");
    }
}

pub fn get(url: String) -> RestRequest {
    RestRequest {
        method: RestMethod::Get,
        url,
        authorization: None,
        body: None,
    }
}

/// A temporary folder, removed when dropped.
pub struct TempDir(pub PathBuf);

impl Default for TempDir {
    fn default() -> Self {
        TempDir::new()
    }
}

impl TempDir {
    pub fn new() -> TempDir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("edge-runner-store-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary folder is writable");
        TempDir(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn store(&self) -> Store {
        Store::open(&self.0).expect("it is there")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
