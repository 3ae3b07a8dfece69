//! A small HTTP/1.1 client with keep-alive, and a load generator.
//!
//! In: method, path, body. Out: status and body. Standard library only; it supports responses with
//! a `Content-Length`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::Result;

/// Time limit of a response, after which the measurement fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connects from a chosen local address.
pub fn connect_from(from: Ipv4Addr, addr: SocketAddr) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&addr.into(), PATIENCE)?;
    Ok(socket.into())
}

pub struct Connection {
    stream: TcpStream,
    addr: SocketAddr,
    /// Further header lines of each request, each with its line end.
    pub headers: String,
    buffer: Vec<u8>,
}

impl Connection {
    pub fn open(addr: SocketAddr) -> Result<Connection> {
        Self::over(TcpStream::connect_timeout(&addr, PATIENCE)?, addr)
    }

    /// Opens a connection from a chosen local address.
    pub fn open_from(from: Ipv4Addr, addr: SocketAddr) -> Result<Connection> {
        Self::over(connect_from(from, addr)?, addr)
    }

    fn over(stream: TcpStream, addr: SocketAddr) -> Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection {
            stream,
            addr,
            headers: String::new(),
            buffer: Vec::new(),
        })
    }

    pub fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>)> {
        self.send(method, path, body)?;
        self.receive()
    }

    fn send(&mut self, method: &str, path: &str, body: &[u8]) -> Result<()> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n{}", self.addr, self.headers);
        if method != "GET" {
            request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        request += "\r\n";
        self.stream.write_all(&[request.as_bytes(), body].concat())?;
        Ok(())
    }

    /// Posts a form whose body is these pieces; `kind` is its content type.
    pub fn post_pieces(&mut self, path: &str, kind: &str, pieces: &[&[u8]]) -> Result<(u16, Vec<u8>)> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n",
            self.addr
        );
        self.stream.write_all(head.as_bytes())?;
        for piece in pieces {
            self.stream.write_all(piece)?;
        }
        self.receive()
    }

    fn receive(&mut self) -> Result<(u16, Vec<u8>)> {
        let mut chunk = [0; 16 * 1024];
        self.buffer.clear();
        loop {
            let read = self.stream.read(&mut chunk)?;
            if read == 0 {
                return Err("the runner closed the connection".into());
            }
            self.buffer.extend_from_slice(&chunk[..read]);
            let Some(head) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") else {
                continue;
            };
            let text = std::str::from_utf8(&self.buffer[..head])?;
            let status = text.split(' ').nth(1).ok_or("no status")?.parse()?;
            let length = text
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize = match length {
                Some((_, length)) => length.trim().parse()?,
                // 204 has no body and no `Content-Length`.
                None if status == 204 => 0,
                None => return Err("no content-length".into()),
            };
            if self.buffer.len() >= head + 4 + length {
                return Ok((status, self.buffer[head + 4..].to_vec()));
            }
        }
    }
}

/// Requests `path` repeatedly, over this many connections in each of this many threads, and returns
/// the number of responses. A thread sends on all its connections and then reads from all: two
/// system calls per request and no waiting for events, which leaves most of the machine to the
/// runner. Each connection has at most one request in flight. `headers` are further header lines.
pub fn load(
    addr: SocketAddr,
    path: &str,
    headers: &str,
    threads: usize,
    connections: usize,
    time: Duration,
) -> Result<u64> {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || -> Result<u64> {
                    let mut connections = (0..connections)
                        .map(|_| {
                            Connection::open(addr).map(|connection| Connection {
                                headers: headers.to_owned(),
                                ..connection
                            })
                        })
                        .collect::<Result<Vec<_>>>()?;
                    let end = Instant::now() + time;
                    let mut answers = 0;
                    while Instant::now() < end {
                        for connection in &mut connections {
                            connection.send("GET", path, b"")?;
                        }
                        for connection in &mut connections {
                            let (status, _) = connection.receive()?;
                            if status != 200 {
                                return Err(format!("{path} answered {status}").into());
                            }
                            answers += 1;
                        }
                    }
                    Ok(answers)
                })
            })
            .collect();
        let answers = workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker does not panic"));
        answers.sum()
    })
}
