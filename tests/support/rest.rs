//! [`Rest`]: the REST API of a provider on a free loopback port, which records requests and plays
//! scripted answers.
//!
//! In: the answers, each a status and a JSON body, or [`SILENCE`], of which the last one repeats;
//! or a function from requests to answers. Out: the recorded requests. One request per connection,
//! as the runner sends them. Standard library only, so that it shares no bug with the client of the
//! runner.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::runner::PATIENCE;

/// No answer, on a connection that stays open.
pub const SILENCE: (u16, &str) = (0, "");

#[derive(Clone, Debug, PartialEq)]
pub struct RecordedRequest {
    pub method: String,
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// As text, with U+FFFD in place of invalid UTF-8.
    pub body: String,
    pub bytes: Vec<u8>,
}

impl RecordedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub enum ScriptedAnswer {
    Json(u16, String),
    /// Nothing, on a connection that stays open.
    Silence,
    /// Raw bytes, and the end of the connection.
    Raw(Vec<u8>),
}

pub struct Rest {
    addr: SocketAddr,
    asked: Arc<Mutex<Vec<RecordedRequest>>>,
    over: Arc<AtomicBool>,
}

impl Rest {
    pub fn start(answers: &[(u16, &str)]) -> Self {
        let answers: Vec<ScriptedAnswer> = answers
            .iter()
            .map(|(status, body)| match *status {
                status if status == SILENCE.0 => ScriptedAnswer::Silence,
                status => ScriptedAnswer::Json(status, (*body).to_owned()),
            })
            .collect();
        Self::playing(move |nth, _| answers[nth.min(answers.len() - 1)].clone())
    }

    /// Starts a server whose answers depend on the number of the request, from 0, and on the
    /// request.
    pub fn playing(play: impl Fn(usize, &RecordedRequest) -> ScriptedAnswer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let rest = Self {
            addr: listener.local_addr().expect("it is bound"),
            asked: Arc::default(),
            over: Arc::default(),
        };
        let (asked, over) = (rest.asked.clone(), rest.over.clone());
        thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(request) = read_from(&stream) {
                    // Recorded before the answer, so a test that sees an effect of the answer can
                    // see the request.
                    let says = {
                        let mut asked = asked.lock().expect("no holder panics");
                        let says = play(asked.len(), &request);
                        asked.push(request);
                        says
                    };
                    // The client may close once it has read enough.
                    let _ = match says {
                        ScriptedAnswer::Silence => {
                            open.push(stream);
                            Ok(())
                        }
                        ScriptedAnswer::Json(status, body) => answer(&stream, status, &body),
                        ScriptedAnswer::Raw(bytes) => (&stream).write_all(&bytes),
                    };
                }
            }
        });
        rest
    }

    /// The base URL for the runner.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<RecordedRequest> {
        self.asked.lock().expect("no holder panics").clone()
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the listener, so that its thread ends.
        let _ = TcpStream::connect(self.addr);
    }
}

fn read_from(stream: &TcpStream) -> Option<RecordedRequest> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    read(&mut BufReader::new(stream))
}

/// Reads one request.
pub fn read(lines: &mut impl BufRead) -> Option<RecordedRequest> {
    let mut line = || {
        let mut text = String::new();
        lines.read_line(&mut text).ok().map(|_| text.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let text = line()?;
        let Some((name, value)) = text.split_once(':') else {
            break;
        };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(Ok(0), |(_, length)| length.parse()).ok()?];
    lines.read_exact(&mut body).ok()?;
    Some(RecordedRequest {
        method,
        target,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
        bytes: body,
    })
}

fn answer(mut stream: &TcpStream, status: u16, body: &str) -> std::io::Result<()> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}
