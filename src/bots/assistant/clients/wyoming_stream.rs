//! A connection to a Wyoming server.
//!
//! In: events to send. Out: events of the server, within the time limits. Reading does not wait for
//! writing: a server may answer before the last audio has been sent.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::time::timeout;

use super::connect_failure;
use crate::io::rest::{self, ClientStream, RequestUrl};
use crate::limits::SERVICE_CONNECT_WITHIN;
use crate::proto::assistant::services::endpoint::ServiceAuthority;
use crate::proto::assistant::services::failure::{ServiceFailure, ServiceStep};
use crate::proto::assistant::services::wyoming::{WyomingError, WyomingEvent, WyomingReader};

/// Bytes read at once.
const READ_BYTES: usize = 16 * 1024;

/// An open connection.
pub struct WyomingStream {
    input: ReadHalf<ClientStream>,
    output: WriteHalf<ClientStream>,
    reader: WyomingReader,
    piece: Vec<u8>,
    /// What is still to be written: at most one request, or one utterance.
    pub unsent: Vec<u8>,
    sent_bytes: usize,
}

impl WyomingStream {
    pub async fn connect(server: &ServiceAuthority) -> Result<Self, ServiceFailure> {
        // Only host and port of the URL are used.
        let target = RequestUrl::of(&format!("http://{}/", server.text())).map_err(connect_failure)?;
        let opened = timeout(SERVICE_CONNECT_WITHIN, rest::open(&target, None)).await;
        let stream = opened
            .map_err(|_| ServiceFailure::TimedOut(ServiceStep::Connect))?
            .map_err(connect_failure)?;
        let (input, output) = split(stream);
        Ok(WyomingStream {
            input,
            output,
            reader: WyomingReader::default(),
            piece: vec![0; READ_BYTES],
            unsent: Vec::new(),
            sent_bytes: 0,
        })
    }

    /// Writes what is to be written, and returns the next event of the server. Loses nothing when
    /// dropped.
    pub async fn next_event(&mut self) -> Result<WyomingEvent, ServiceFailure> {
        loop {
            match self.reader.next_event() {
                Ok(Some(event)) if event.kind == "error" => return Err(failure_of(&event)),
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(WyomingError::Form) => return Err(ServiceFailure::Malformed("an event is no JSON")),
                Err(WyomingError::TooLong) => return Err(ServiceFailure::Malformed("an event is too long")),
            }
            let unsent = &self.unsent[self.sent_bytes..];
            tokio::select! {
                read = self.input.read(&mut self.piece) => match read {
                    Ok(0) => return Err(ServiceFailure::CutShort),
                    Ok(count) => self.reader.push(&self.piece[..count]),
                    Err(error) => return Err(lost(&error)),
                },
                written = self.output.write(unsent), if !unsent.is_empty() => {
                    self.sent_bytes += written.map_err(|error| lost(&error))?;
                    if self.sent_bytes == self.unsent.len() {
                        self.unsent.clear();
                        self.sent_bytes = 0;
                    }
                }
            }
        }
    }
}

fn lost(error: &std::io::Error) -> ServiceFailure {
    log::debug!("the connection to a service: {error}");
    ServiceFailure::CutShort
}

/// Classifies an `error` event. Its code is the name of an exception.
fn failure_of(event: &WyomingEvent) -> ServiceFailure {
    match event.text("code") {
        "VoiceNotFoundError" => ServiceFailure::UnknownModel,
        _ => ServiceFailure::Fault,
    }
}
