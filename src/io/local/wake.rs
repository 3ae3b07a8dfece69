//! The connection to a service for wake words.
//!
//! In: the microphone's PCM between sessions. Out: where in it a wake word ended, and one log line
//! per change. The service is connected only while audio comes, and again after a failure as
//! [`Attempts`] says. Audio that it does not take is dropped, so that the microphone never waits.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use super::{WakeClients, WakeListener, until};
use crate::bots::assistant::clients::examination;
use crate::bots::assistant::clients::wyoming_stream::WyomingStream;
use crate::config::{Config, ServiceAccess, WakeConfig};
use crate::io::running::ModuleFuture;
use crate::io::tasks;
use crate::proto::assistant::cascade::doctor::judge;
use crate::proto::assistant::services::endpoint::ServiceEndpoint;
use crate::proto::assistant::services::failure::{ServiceFailure, ServiceStep};
use crate::proto::doctor::Finding;
use crate::proto::local::attempts::Attempts;
use crate::proto::local::wake::{WakeClient, WakeEvent, WakeFailure};

/// A service that has listened for this long works.
const PROVEN_AFTER: Duration = Duration::from_secs(10);
/// Pieces of audio that wait for the connection.
const PIECES_MAX: usize = 64;

/// Audio of the microphone.
struct WakeAudio {
    pcm: Vec<i16>,
    /// The position of its end.
    end: Duration,
}

/// Returns the client of this build.
pub(super) const fn row() -> Option<WakeClients> {
    Some(WakeClients {
        start: |config, rate_hz| Box::new(WakeService::start(config, rate_hz)),
        examine: |config| Box::pin(examine(config)),
    })
}

/// Listens for wake words at a service.
struct WakeService {
    audio: mpsc::Sender<WakeAudio>,
    /// Whether a session is about to begin.
    paused: watch::Sender<bool>,
    words: mpsc::Receiver<Duration>,
}

impl WakeService {
    fn start(config: &WakeConfig, rate_hz: u32) -> WakeService {
        let (audio, pieces) = mpsc::channel(PIECES_MAX);
        let (paused, pause) = watch::channel(false);
        let (found, words) = mpsc::channel(1);
        let connection = WakeConnection {
            config: config.clone(),
            rate_hz,
            pieces,
            pause,
            found,
            attempts: Attempts::default(),
            said: String::new(),
        };
        tasks::spawn(connection.run());
        WakeService { audio, paused, words }
    }
}

impl WakeListener for WakeService {
    fn send(&self, pcm: &[i16], end: Duration) {
        self.paused.send_if_modified(std::mem::take);
        let _ = self.audio.try_send(WakeAudio { pcm: pcm.to_vec(), end });
    }

    fn pause(&self) {
        self.paused.send_replace(true);
    }

    fn next_word(&mut self) -> ModuleFuture<'_, Duration> {
        Box::pin(async {
            match self.words.recv().await {
                Some(position) => position,
                // The task has panicked.
                None => std::future::pending().await,
            }
        })
    }
}

async fn examine(config: &Config) -> Vec<Finding> {
    let Some(wake) = config.local.as_ref().and_then(|local| local.wake.as_ref()) else {
        return Vec::new();
    };
    let address = wake.server.text().to_owned();
    let Ok(access) = ServiceAccess::new(ServiceEndpoint::Wyoming(wake.server.clone()), None) else {
        return Vec::new();
    };
    let answer = examination::examine(&access).await;
    vec![judge("wake word", "wake", &address, None, &answer)]
}

/// Why a connection ended.
enum WakeEnd {
    /// A session begins.
    Paused,
    /// There is no microphone any more.
    Over,
    Failed(WakeFailure),
}

impl From<WakeFailure> for WakeEnd {
    fn from(failure: WakeFailure) -> Self {
        WakeEnd::Failed(failure)
    }
}

impl From<ServiceFailure> for WakeEnd {
    fn from(failure: ServiceFailure) -> Self {
        WakeEnd::Failed(WakeFailure::Service(failure))
    }
}

struct WakeConnection {
    config: WakeConfig,
    rate_hz: u32,
    pieces: mpsc::Receiver<WakeAudio>,
    pause: watch::Receiver<bool>,
    found: mpsc::Sender<Duration>,
    attempts: Attempts,
    /// What was last said about a service that listens.
    said: String,
}

impl WakeConnection {
    async fn run(mut self) {
        while self.pieces.recv().await.is_some() {
            if *self.pause.borrow_and_update() {
                continue;
            }
            match self.listen().await {
                WakeEnd::Over => return,
                WakeEnd::Paused => {}
                WakeEnd::Failed(failure) => {
                    let words = format!("no wake word: {}: {failure}", self.config.server.text());
                    let retry = self.attempts.handle_failure(&words);
                    match retry.is_new {
                        true => log::warn!("{}", retry.words),
                        false => log::debug!("{}", retry.words),
                    }
                    let mut pause = std::pin::pin!(sleep(retry.after));
                    loop {
                        tokio::select! {
                            () = &mut pause => break,
                            piece = self.pieces.recv() => if piece.is_none() { return },
                        }
                    }
                }
            }
            while self.pieces.try_recv().is_ok() {}
        }
    }

    /// Connects, and passes audio on until something ends it.
    async fn listen(&mut self) -> WakeEnd {
        match self.converse().await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn converse(&mut self) -> Result<std::convert::Infallible, WakeEnd> {
        let mut stream = tokio::select! {
            stream = WyomingStream::connect(&self.config.server) => stream?,
            () = paused(&mut self.pause) => return Err(WakeEnd::Paused),
        };
        let mut client = WakeClient::begin(&self.config.words, self.rate_hz, &mut stream.unsent, tasks::now());
        let mut proven_at = None;
        loop {
            let info_until = client.poll_timeout();
            tokio::select! {
                event = stream.next_event() => match client.handle_event(&event?, &mut stream.unsent)? {
                    Some(WakeEvent::Listening { words, warning }) => {
                        self.report(&words, warning);
                        proven_at = Some(tasks::now() + PROVEN_AFTER);
                    }
                    // A service repeats it, so that one may be lost.
                    Some(WakeEvent::Detected(position)) => {
                        let _ = self.found.try_send(position);
                    }
                    None => {}
                },
                piece = self.pieces.recv() => {
                    let WakeAudio { pcm, end } = piece.ok_or(WakeEnd::Over)?;
                    client.handle_audio(&pcm, end, &mut stream.unsent)?;
                }
                () = paused(&mut self.pause) => return Err(WakeEnd::Paused),
                () = until(info_until) => return Err(ServiceFailure::TimedOut(ServiceStep::Begin).into()),
                () = until(proven_at) => {
                    proven_at = None;
                    self.attempts.handle_success();
                    if self.attempts.take_failed() {
                        log::info!("the wake word service at {} works again", self.config.server.text());
                    }
                }
            }
        }
    }

    /// Handles a service that listens.
    fn report(&mut self, words: &str, warning: Option<String>) {
        let server = self.config.server.text();
        let said = format!("listening for the wake word at {server}: {words}");
        if self.said != said {
            log::info!("{said}");
            if let Some(warning) = warning {
                log::warn!("the wake word service at {server}: {warning}");
            }
            self.said = said;
        }
    }
}

/// Waits until a session begins.
async fn paused(pause: &mut watch::Receiver<bool>) {
    // Without a listener it ends, too.
    let _ = pause.wait_for(|paused| *paused).await;
}
