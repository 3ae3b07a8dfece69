//! Runs the test of the sound card for a page: plays, records, plays back.
//!
//! In: both commands, or those of a board that has no settings yet. Out: what the page shows. The
//! caller of `--local` lends its card between sessions. When the request goes away, the command
//! that runs ends with its process group, and the card goes back.

use std::fmt;
use std::time::Duration;

use edge_runner_http::shutdown::Shutdown;
use hyper::StatusCode;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::card;
use super::commands::CommandSlots;
use super::commands::once::{play_once, record_once};
use crate::config::{AudioDevice, LocalConfig};
use crate::io::tasks::SlotPool;
use crate::proto::local::controls::LocalControls;
use crate::proto::local::direction::AudioDirection;
use crate::proto::local::sound_test::{
    BoardDevice, PLAYED_WITHIN, RECORDED_WITHIN, Recording, SoundReport, SoundState, TONE_WITHIN, recorded_bytes, tone,
};

/// Time in which the caller lends its card, which it does not during a session.
const LENT_WITHIN: Duration = Duration::from_millis(500);

/// Why the sound card is not tested now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoundTestRefusal {
    /// It is in a call.
    Call,
    /// Another test runs.
    Test,
    /// The process ends.
    Stopping,
}

impl SoundTestRefusal {
    pub fn status(self) -> StatusCode {
        match self {
            SoundTestRefusal::Call | SoundTestRefusal::Test => StatusCode::CONFLICT,
            SoundTestRefusal::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl fmt::Display for SoundTestRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SoundTestRefusal::Call => "the sound card is in a call: end the call, then test again",
            SoundTestRefusal::Test => "a test of the sound card runs already: try again in 10 s",
            SoundTestRefusal::Stopping => "the program is stopping",
        })
    }
}

/// Asks for the card; the answer is a loan, whose drop gives the card back.
type LoanRequest = oneshot::Sender<oneshot::Sender<()>>;

/// The requests for the card of `--local`.
pub struct CardLoans(mpsc::Receiver<LoanRequest>);

/// A request for the card.
pub struct CardLoan(LoanRequest);

impl CardLoans {
    /// Waits for the next request. Cancel safe.
    pub async fn next(&mut self) -> CardLoan {
        match self.0.recv().await {
            Some(request) => CardLoan(request),
            None => std::future::pending().await,
        }
    }

    /// Waits for a future, and refuses requests meanwhile.
    pub async fn refuse_during<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                output = &mut future => return output,
                refused = self.next() => drop(refused),
            }
        }
    }
}

impl CardLoan {
    /// Lends the card, which has no command any more, until it comes back.
    pub async fn lend(self) {
        let (loan, returned) = oneshot::channel();
        if self.0.send(loan).is_ok() {
            let _ = returned.await;
        }
    }
}

/// Tests the card of `--local`.
pub struct CardTester {
    requests: mpsc::Sender<LoanRequest>,
    /// One test at a time.
    tests: SlotPool,
    commands: CommandSlots,
    config: LocalConfig,
    withheld: Vec<String>,
}

impl CardTester {
    /// Returns the tester of a card, and its requests, which the caller takes.
    pub fn new(config: &LocalConfig, withheld: &[String], commands: &CommandSlots) -> (CardTester, CardLoans) {
        let (requests, loans) = mpsc::channel(1);
        let tester = CardTester {
            requests,
            tests: one_at_a_time(),
            commands: commands.clone(),
            config: config.clone(),
            withheld: withheld.to_vec(),
        };
        (tester, CardLoans(loans))
    }

    /// Tests the card.
    ///
    /// # Errors
    /// [`SoundTestRefusal`] during a session or another test, or once the runner ends.
    pub async fn test(&self, shutdown: &Shutdown) -> Result<SoundReport, SoundTestRefusal> {
        let _test = self.tests.try_acquire().ok_or(SoundTestRefusal::Test)?;
        let _command = self.commands.try_acquire();
        let (request, granted) = oneshot::channel();
        let asked = async {
            self.requests.send(request).await.ok()?;
            granted.await.ok()
        };
        let loan = timeout(LENT_WITHIN, asked).await.ok().flatten();
        let _loan = loan.ok_or(SoundTestRefusal::Call)?;
        let tested = test(TestedCard {
            input: &self.config.input,
            output: &self.config.output,
            gain: LocalControls::new(self.config.volume_percent).gain(),
            withheld: &self.withheld,
        });
        unless_stopped(tested, shutdown).await
    }
}

/// Returns the slots of tests: one.
pub fn one_at_a_time() -> SlotPool {
    SlotPool::new(1)
}

/// Waits for a test; the end of the process ends it.
async fn unless_stopped(
    tested: impl Future<Output = SoundReport>,
    shutdown: &Shutdown,
) -> Result<SoundReport, SoundTestRefusal> {
    let mut shutdown = shutdown.clone();
    tokio::select! {
        report = tested => Ok(report),
        () = shutdown.wait() => Err(SoundTestRefusal::Stopping),
    }
}

/// The sound card to test.
struct TestedCard<'a> {
    input: &'a AudioDevice,
    output: &'a AudioDevice,
    /// The factor of what is played.
    gain: f32,
    /// Variables that the commands do not get.
    withheld: &'a [String],
}

async fn test(card: TestedCard<'_>) -> SoundReport {
    let tested = steps(card).await;
    tested.unwrap_or_else(|failed| failed)
}

async fn steps(card: TestedCard<'_>) -> Result<SoundReport, SoundReport> {
    let TestedCard {
        input,
        output,
        gain,
        withheld,
    } = card;
    play_once(output, withheld, &tone(output, gain), TONE_WITHIN).await?;
    let recorded = record_once(input, withheld, recorded_bytes(input), RECORDED_WITHIN).await?;
    let recording = Recording::new(&recorded, input);
    let report = recording.report();
    if report.state != SoundState::Silent {
        play_once(output, withheld, &recording.playback(output, gain), PLAYED_WITHIN).await?;
    }
    Ok(report)
}

/// Returns whether this machine could have a sound card to test: by ALSA's programs, or by the
/// kernel of Linux.
pub fn is_possible() -> bool {
    let both = [AudioDirection::In, AudioDirection::Out];
    let has_programs = both.into_iter().all(|direction| is_installed(direction.alsa_program()));
    has_programs || cfg!(target_os = "linux")
}

/// Returns whether a program is in a folder of `PATH`.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Tests the sound card of a board that has no settings yet. `tests` are those that run.
///
/// # Errors
/// [`SoundTestRefusal`] during another test, or once the process ends.
pub async fn test_board(tests: &SlotPool, shutdown: &Shutdown) -> Result<SoundReport, SoundTestRefusal> {
    let _test = tests.try_acquire().ok_or(SoundTestRefusal::Test)?;
    let cards = card::cards();
    let device = |direction: AudioDirection| {
        let has_program = is_installed(direction.alsa_program());
        BoardDevice::of(&cards, direction, has_program)
    };
    let (input, output) = match (device(AudioDirection::In), device(AudioDirection::Out)) {
        (Ok(input), Ok(output)) => (input, output),
        (Err(missing), _) | (_, Err(missing)) => return Ok(missing),
    };
    let tested = test(TestedCard {
        input: &input.device,
        output: &output.device,
        gain: 1.0,
        withheld: &[],
    });
    let report = unless_stopped(tested, shutdown).await?;
    Ok(report.with_devices(&input.name, &output.name))
}
