//! A minimal HTTP/1.1 client: one request per connection, standard library only.
//!
//! In: an address, a request. Out: the raw reply, with the parts that a strict client checks:
//! status, header lines, whether the body is chunked, and its bytes. It times out after
//! [`PATIENCE`], which no test relies on.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Time limit of one exchange.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e} in reply {}: {}", self.status, self.text()))
    }
}

/// Sends one request. `headers` are whole lines without line ends. Adds `Host`, `Connection` and
/// `Content-Length`.
pub fn request(addr: SocketAddr, method: &str, target: &str, headers: &[&str], body: &[u8]) -> io::Result<Reply> {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n");
    for line in headers {
        head.push_str(line);
        head.push_str("\r\n");
    }
    if !body.is_empty() || method != "GET" {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    exchange(addr, &[head.as_bytes(), body].concat())
}

pub fn get(addr: SocketAddr, target: &str) -> Reply {
    request(addr, "GET", target, &[], b"").expect("the runner answers")
}

/// Gets a URL whose host is an address.
pub fn follow(url: &str) -> Reply {
    let (_, rest) = url.split_once("http://").expect("a URL");
    let (host, target) = rest.split_once('/').expect("a path");
    get(host.parse().expect("an address"), &format!("/{target}"))
}

/// Returns the record of the latest call of a runner.
pub fn last_call(addr: SocketAddr, headers: &[&str]) -> Value {
    let ask = |target: &str| {
        request(addr, "GET", target, headers, b"")
            .expect("the runner answers")
            .json()
    };
    let list = ask("/calls?limit=1");
    let id = list["calls"][0]["id"].as_str().expect("a call");
    ask(&format!("/calls/{id}"))
}

/// Returns the rows of the calls that the runner refused because of their caller.
pub fn refused_calls(addr: SocketAddr) -> Vec<Value> {
    calls_of(addr, "refused")
}

/// Returns the rows of the calls with this outcome, the latest first.
pub fn calls_of(addr: SocketAddr, outcome: &str) -> Vec<Value> {
    let listed = get(addr, &format!("/calls?outcome={outcome}")).json();
    listed["calls"].as_array().expect("a list").clone()
}

/// Writes raw bytes and reads until the peer closes.
pub fn exchange(addr: SocketAddr, bytes: &[u8]) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(bytes)?;
    let mut raw = Vec::new();
    stream.read_to_end(&mut raw)?;
    parse(&raw).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, String::from_utf8_lossy(&raw).into_owned()))
}

/// A keep-alive connection from a chosen source address.
pub struct KeepAlive {
    stream: TcpStream,
    received: Vec<u8>,
}

impl KeepAlive {
    pub fn from(from: Ipv4Addr, addr: SocketAddr) -> io::Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect_timeout(&addr.into(), PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let stream = socket.into();
        Ok(KeepAlive {
            stream,
            received: Vec::new(),
        })
    }

    /// Writes raw bytes.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request with a JSON body, and reads the reply.
    pub fn post(&mut self, target: &str, headers: &[&str], body: &Value) -> io::Result<Reply> {
        self.stream.write_all(&Self::head(target, headers, body))?;
        self.read()
    }

    /// Sends the same request `count` times, then reads the replies and calls `each` with every
    /// one.
    pub fn flood(&mut self, target: &str, body: &Value, count: usize, mut each: impl FnMut(Reply)) -> io::Result<()> {
        let request = Self::head(target, &[], body);
        self.stream.write_all(&request.repeat(count))?;
        for _ in 0..count {
            each(self.read()?);
        }
        Ok(())
    }

    fn head(target: &str, headers: &[&str], body: &Value) -> Vec<u8> {
        let body = body.to_string();
        let mut head = format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
        for line in headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        head.into_bytes()
    }

    fn read(&mut self) -> io::Result<Reply> {
        let mut more = [0; 16 * 1024];
        loop {
            if let Some(reply) = parse(&self.received) {
                let end = self
                    .received
                    .windows(4)
                    .position(|w| w == b"\r\n\r\n")
                    .map_or(0, |at| at + 4);
                let length = reply
                    .header("content-length")
                    .and_then(|length| length.parse().ok())
                    .unwrap_or(0);
                if self.received.len() >= end + length {
                    self.received.drain(..end + length);
                    return Ok(reply);
                }
            }
            match self.stream.read(&mut more)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.received.extend_from_slice(&more[..read]),
            }
        }
    }
}

/// Parses a complete reply.
pub fn parse(raw: &[u8]) -> Option<Reply> {
    let end = raw.windows(4).position(|w| w == b"\r\n\r\n")?;
    let mut lines = std::str::from_utf8(&raw[..end]).ok()?.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .map(|line| {
            line.split_once(':')
                .map(|(n, v)| (n.to_lowercase(), v.trim().to_owned()))
        })
        .collect::<Option<_>>()?;
    let mut reply = Reply {
        status,
        headers,
        body: raw[end + 4..].to_vec(),
    };
    if let Some(length) = reply.header("content-length") {
        reply.body.truncate(length.parse().ok()?);
    }
    Some(reply)
}
