//! [`Follower`]: a client of `GET /calls/events`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::runner::PATIENCE;

/// A client that follows the calls.
pub struct Follower(BufReader<TcpStream>);

impl Follower {
    /// Opens the stream; each header is `Name: value`.
    pub fn connect(addr: SocketAddr, headers: &[&str]) -> Self {
        let mut stream = TcpStream::connect(addr).expect("the runner listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // A response of HTTP/1.0 ends with its connection and is not chunked.
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        write!(stream, "GET /calls/events HTTP/1.0\r\nHost: {addr}\r\n{headers}\r\n").expect("writable");
        Follower(BufReader::new(stream))
    }

    /// Returns the next line that begins like this; `None` at the end.
    pub fn line(&mut self, beginning: &str) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("a line in time") == 0 {
                return None;
            }
            if let Some(rest) = line.strip_prefix(beginning) {
                return Some(rest.trim_end().to_owned());
            }
        }
    }

    /// Returns the next event and its data.
    pub fn event(&mut self) -> (String, Value) {
        let name = self.line("event: ").expect("an event");
        let data = self.line("data: ").expect("its data");
        (name, serde_json::from_str(&data).expect("JSON"))
    }
}
