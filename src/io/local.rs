//! The driver of the sound card as a caller.
//!
//! In: the settings of `--local`, and what its commands and the terminal do. Out: one session at a
//! time, whose bot is that of the runner. `commands` runs the two commands, `session_io` joins them
//! with a session, `hook` runs the command of `--local-hook`, `wake` asks a service for wake words
//! between sessions, `terminal` and `keys` are at the user's hand, `listing` looks for cards, and
//! `sound_test` tests one for a page, which borrows it between sessions. `card` opens a card
//! without a command.
//! Whatever the commands do, only this caller is affected.

mod card;
mod commands;
mod device_events;
mod hook;
mod keys;
mod listing;
mod session_io;
pub mod sound_test;
mod terminal;
#[cfg_attr(not(feature = "assistants"), path = "absent.rs")]
mod wake;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

use self::commands::{CommandSlots, MicrophoneCommand};
use self::device_events::MicrophoneEvent;
use self::hook::{LocalHook, LocalState};
use self::keys::LocalKeys;
pub use self::listing::{describe, list};
use self::session_io::{LocalIo, LocalParts};
use self::sound_test::{CardLoan, CardLoans, CardTester};
use self::terminal::Terminal;
use crate::bot::{Kind, LocalArguments};
use crate::config::{Config, ListenAddresses, LocalConfig, LocalEcho, LocalStart, Transport, WakeConfig};
use crate::features::Feature;
use crate::io::RunError;
use crate::io::admission::SessionPermit;
use crate::io::http::app::new_session_id;
use crate::io::module::{BannerRow, DoctorCheck, Module, ModuleStartup};
use crate::io::running::{ModuleFuture, RunningModule};
use crate::io::session::{self, SessionTask};
use crate::io::sessions::Sessions;
use crate::io::tasks;
use crate::logging;
use crate::proto::bots::{BotChoice, UnknownBot};
use crate::proto::doctor::Finding;
use crate::proto::event::LeaveReason;
use crate::proto::local::capture::Capture;
use crate::proto::local::console::UserWish;
use crate::proto::local::controls::LocalControls;
use crate::proto::local::direction::AudioDirection;
use crate::proto::local::doctor;
use crate::proto::local::session::{LocalSession, LocalSetup};
use crate::proto::local::starting::{SessionEnd, StartGate};
use crate::proto::metrics::text::{MetricKind, MetricsText};
use crate::proto::refusal::SessionRefusal;
use crate::proto::server::admission::{PendingKind, Requester};
use crate::proto::stall::TaskRole;

/// Audio frames queued for a slow bot: 10 s, while it loads its models.
const FRAMES_MAX: usize = 500;
/// Typed lines that wait for a session.
const SAID_MAX: usize = 16;
/// Pause after a session that found no place.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// Time that the commands have to end with the runner.
const COMMANDS_END: Duration = Duration::from_secs(1);

/// The row of `io::modules`.
pub const MODULE: Option<&Module> = match Feature::Local.in_this_build() {
    true => Some(&LOCAL),
    false => None,
};

const LOCAL: Module = Module {
    check: Some(|config| Box::pin(std::future::ready(check(config)))),
    run: Some(run),
    banner: Some(banner),
    ..Module::new(Feature::Local)
}
.with_checks(&[
    DoctorCheck {
        what: "sound card",
        examine: |config| Box::pin(std::future::ready(examine_card(config))),
    },
    DoctorCheck {
        what: "wake word",
        examine: |config| Box::pin(examine_wake(config)),
    },
]);

/// A client of services for wake words; its `row` returns none in a build without the feature
/// `assistants`, which has no client of Wyoming.
struct WakeClients {
    /// Begins to listen at a service. The rate is that of the microphone, in Hz.
    start: fn(&WakeConfig, u32) -> Box<dyn WakeListener>,
    /// Asks the service what it offers, for `edge-runner doctor`.
    examine: for<'a> fn(&'a Config) -> ModuleFuture<'a, Vec<Finding>>,
}

/// Listens for wake words. Dropping it ends the connection.
trait WakeListener: Send + Sync {
    /// Passes audio whose end has this position in the microphone's audio.
    fn send(&self, pcm: &[i16], end: Duration);

    /// Ends the connection until more audio comes.
    fn pause(&self);

    /// Waits for the next wake word, and returns where in the microphone's audio it ended. Cancel
    /// safe.
    fn next_word(&mut self) -> ModuleFuture<'_, Duration>;
}

fn examine_card(config: &Config) -> Vec<Finding> {
    match &config.local {
        Some(local) => doctor::examine(local, &card::cards(), sound_test::is_installed),
        None => Vec::new(),
    }
}

async fn examine_wake(config: &Config) -> Vec<Finding> {
    match wake::row() {
        Some(WakeClients { examine, .. }) => examine(config).await,
        None => Vec::new(),
    }
}

/// Waits for the next wake word; for ever without a service.
async fn next_word(wake: Option<&mut Box<dyn WakeListener>>) -> Duration {
    match wake {
        Some(wake) => wake.next_word().await,
        None => std::future::pending().await,
    }
}

/// The running module.
pub struct Local {
    caller: AbortHandle,
    /// `None` for a caller who types.
    pub tester: Option<CardTester>,
    slots: CommandSlots,
    counts: Arc<LocalCounts>,
}

/// How often audio was lost, and the echo was not removed.
#[derive(Default)]
struct LocalCounts {
    gaps: AtomicU64,
    underruns: AtomicU64,
    /// Sessions whose canceller has failed.
    echoes: AtomicU64,
}

impl RunningModule for Local {
    fn render_metrics(&self, text: &mut MetricsText) {
        text.family(
            "edge_runner_local_xruns_total",
            MetricKind::Counter,
            "Times that the sound card lost audio: gaps of the microphone, which are filled with silence, and underruns \
             of the loudspeaker.",
        );
        for (direction, count) in [("in", &self.counts.gaps), ("out", &self.counts.underruns)] {
            text.sample(&[("direction", direction)], count.load(Relaxed));
        }
        text.family(
            "edge_runner_local_echoes_total",
            MetricKind::Counter,
            "Sessions of the sound card in which `--local-echo aec` left the bot's voice in the microphone.",
        );
        text.sample(&[], self.counts.echoes.load(Relaxed));
    }

    fn end(&self) -> ModuleFuture<'_, ()> {
        Box::pin(async {
            self.caller.abort();
            if tokio::time::timeout(COMMANDS_END, self.slots.wait_empty())
                .await
                .is_err()
            {
                log::warn!("a command of --local has not ended in time");
            }
        })
    }
}

fn check(config: &Config) -> Result<(), RunError> {
    match &config.local {
        Some(local) if local.types && !terminal::is_usable() => Err(RunError::Misuse(
            "`--local text` needs a terminal as standard input, in the foreground".to_owned(),
        )),
        Some(local) if local.start == Some(LocalStart::Key) && local.keys.is_empty() && !terminal::is_usable() => {
            Err(RunError::Misuse(
                "`--local-start key` needs a terminal as standard input, in the foreground, or `--local-keys`; without \
                 them, use `--local-start speech`"
                    .to_owned(),
            ))
        }
        _ => Ok(()),
    }
}

/// Returns when sessions begin.
fn start_of(config: &LocalConfig) -> LocalStart {
    config.start.unwrap_or(match terminal::is_usable() {
        true => LocalStart::Always,
        false => LocalStart::Speech,
    })
}

fn banner(config: &Config, _: &ListenAddresses) -> Vec<BannerRow> {
    let Some(local) = &config.local else {
        return Vec::new();
    };
    if local.types {
        let how = "type what you say, with Enter; `q` ends the session, and Ctrl-C the runner";
        return vec![("Local", how.to_owned())];
    }
    let has_terminal = terminal::is_usable();
    let how = match (start_of(local), has_terminal) {
        (LocalStart::Always, true) => "talk now; `q` ends the session, and Ctrl-C the runner",
        (LocalStart::Always, false) => "talk now",
        (LocalStart::Speech, true) => "a session begins when you speak; `q` ends it",
        (LocalStart::Speech, false) => "a session begins when somebody speaks",
        (LocalStart::Key, false) => "a key begins a session, and ends it",
        (LocalStart::Key, true) => "Enter begins a session, and `q` ends it",
        (LocalStart::Wake, true) => "a session begins with the wake word or Enter; `q` ends it",
        (LocalStart::Wake, false) => "a session begins with the wake word",
    };
    let input = commands::shown_name(&local.input, AudioDirection::In);
    let output = commands::shown_name(&local.output, AudioDirection::Out);
    vec![("Local", format!("{how}; through `{input}` and `{output}`"))]
}

fn run(startup: &ModuleStartup<'_>) -> Result<Option<Arc<dyn RunningModule>>, RunError> {
    let sessions = startup.app.sessions.clone();
    let Some(config) = sessions.config().local.clone() else {
        return Ok(None);
    };
    let slots = commands::slots();
    let counts = Arc::<LocalCounts>::default();
    let hook = LocalHook::start(config.hook.as_deref(), &sessions.config().withheld, &slots);
    let (tester, loans) = CardTester::new(&config, &sessions.config().withheld, &slots);
    let tester = (!config.types).then_some(tester);
    let caller = LocalCaller {
        loans,
        start: start_of(&config),
        capture: Capture::new(config.input.rate_hz, config.input.channels),
        gate: StartGate::new(start_of(&config), config.input.rate_hz),
        microphone: None,
        wake: config
            .wake
            .as_ref()
            .zip(wake::row())
            .map(|(wake, clients): (_, WakeClients)| (clients.start)(wake, config.input.rate_hz)),
        hook: hook.clone(),
        user: LocalUser {
            terminal: Terminal::open(config.types),
            keys: LocalKeys::start(&config.keys),
            controls: LocalControls::new(config.volume_percent),
            hook,
        },
        said: Vec::new(),
        config,
        slots: slots.clone(),
        counts: counts.clone(),
        sessions,
    };
    let caller = tasks::spawn(caller.run());
    Ok(Some(Arc::new(Local {
        caller: caller.abort_handle(),
        tester,
        slots,
        counts,
    })))
}

/// Returns a session of the sound card for `edge-runner call`, its I/O, and the slots of its
/// commands.
#[cfg(feature = "call")]
pub fn session_of_call(
    config: &LocalConfig,
) -> (
    Box<LocalSession>,
    impl session::SessionIo<Session = LocalSession> + use<>,
    CommandSlots,
) {
    let (slots, controls) = (commands::slots(), LocalControls::new(config.volume_percent));
    let parts = LocalParts {
        microphone: MicrophoneCommand::start(&config.input, &[], &slots),
        capture: Capture::new(config.input.rate_hz, config.input.channels),
        user: LocalUser::absent(controls, LocalHook::start(None, &[], &slots)),
        is_ended_by_user: false,
        left: LeaveReason::Failed,
    };
    // What the session borrows ends with it.
    let (back, _) = oneshot::channel();
    let io = LocalIo::new(parts, config, &[], &slots, &Arc::default(), back);
    let setup = LocalSetup {
        types: false,
        in_rate_hz: config.input.rate_hz,
        out_rate_hz: config.output.rate_hz,
        out_channels: config.output.channels,
        echo: config.echo,
        controls,
        has_tones: false,
        stop_words: config.stop_words.clone(),
        end: Duration::ZERO,
        shows_levels: false,
        preroll: Vec::new(),
    };
    (Box::new(LocalSession::new(setup, tasks::now())), io, slots)
}

/// The sound card as a caller.
struct LocalCaller {
    sessions: Sessions,
    config: LocalConfig,
    start: LocalStart,
    gate: StartGate,
    capture: Capture,
    /// `None` while nothing listens.
    microphone: Option<MicrophoneCommand>,
    /// The service for wake words, if there is one.
    wake: Option<Box<dyn WakeListener>>,
    hook: LocalHook,
    user: LocalUser,
    /// Typed lines with which the next session begins, at most `SAID_MAX`.
    said: Vec<String>,
    slots: CommandSlots,
    counts: Arc<LocalCounts>,
    /// The page asks for the card, to test it.
    loans: CardLoans,
}

/// What the user has at hand, and has set.
struct LocalUser {
    terminal: Terminal,
    keys: LocalKeys,
    controls: LocalControls,
    hook: LocalHook,
}

impl LocalUser {
    /// Returns a user without a terminal and keys.
    fn absent(controls: LocalControls, hook: LocalHook) -> LocalUser {
        LocalUser {
            terminal: Terminal::absent(),
            keys: LocalKeys::absent(),
            controls,
            hook,
        }
    }

    /// Waits for what the user wants. Cancel safe.
    async fn wish(&mut self) -> UserWish {
        tokio::select! {
            wish = self.terminal.wish() => wish,
            wish = self.keys.wish() => wish,
        }
    }

    /// Returns whether the user can begin a session at the terminal, or with a key.
    fn can_begin(&self) -> bool {
        self.terminal.is_read() || self.keys.are_read()
    }

    /// Reports a state; a microphone that is muted is the more important one.
    fn report(&self, state: LocalState) {
        let is_muted = self.controls.is_muted();
        self.hook.handle_state(if is_muted { LocalState::Muted } else { state });
    }

    /// Does what the user wants of microphone and loudspeaker, in this state.
    fn handle_control(&mut self, wish: &UserWish, state: LocalState) {
        if let Some(line) = self.controls.handle_wish(wish) {
            log::info!("{line}");
            self.report(state);
        }
    }
}

/// An event between two sessions.
enum IdleEvent {
    Microphone(MicrophoneEvent),
    Wish(UserWish),
    /// A wake word ended at this position of the microphone's audio.
    WakeWord(Duration),
    /// The page tests the card.
    Loan(CardLoan),
    Due,
}

impl LocalCaller {
    async fn run(mut self) {
        let mut shutdown = self.sessions.shutdown().clone();
        loop {
            let preroll = tokio::select! {
                preroll = self.wait_for_start() => preroll,
                () = shutdown.wait() => return,
            };
            match self.admit() {
                Ok(permit) => self.run_session(preroll, permit).await,
                Err(SessionRefusal::Stopping) => return,
                Err(refused) => {
                    self.hook.handle_state(LocalState::Error);
                    log::warn!("no session for the sound card: {refused}");
                    self.loans.refuse_during(tokio::time::sleep(REFUSED_PAUSE)).await;
                }
            }
        }
    }

    fn admit(&self) -> Result<SessionPermit, SessionRefusal> {
        let requester = Requester {
            source: std::net::IpAddr::from(Ipv4Addr::LOCALHOST).into(),
            is_authorised: true,
            local_address: None,
        };
        let admission = self.sessions.admission();
        admission.newcomer(|admission| admission.session(requester, PendingKind::Caller))
    }

    fn listen(&self) -> MicrophoneCommand {
        match self.config.types {
            true => MicrophoneCommand::silent(&self.config.input),
            false => MicrophoneCommand::start(&self.config.input, &self.sessions.config().withheld, &self.slots),
        }
    }

    /// Waits until a session is to begin, and returns what was said before.
    async fn wait_for_start(&mut self) -> Vec<i16> {
        let mut pcm = Vec::new();
        let mut counted = self.capture.counts().gaps;
        self.user.report(LocalState::Listening);
        loop {
            let now = tasks::now();
            if let Some(preroll) = self.gate.poll_start(now) {
                if let Some(wake) = &self.wake {
                    wake.pause();
                }
                return preroll;
            }
            if self.gate.waits_for_line() {
                self.microphone = None;
                self.capture.handle_restart();
            } else if self.microphone.is_none() {
                self.microphone = Some(self.listen());
            }
            let reads_at = self.capture.reads_at(now);
            let due = self.gate.poll_timeout();
            let event = tokio::select! {
                event = next_of(self.microphone.as_mut(), reads_at) => IdleEvent::Microphone(event),
                wish = self.user.wish() => IdleEvent::Wish(wish),
                position = next_word(self.wake.as_mut()) => IdleEvent::WakeWord(position),
                loan = self.loans.next() => IdleEvent::Loan(loan),
                () = until(due) => IdleEvent::Due,
            };
            match event {
                IdleEvent::Microphone(MicrophoneEvent::Bytes(bytes)) => {
                    self.user.report(LocalState::Listening);
                    self.capture.handle_bytes(&bytes, tasks::now());
                    pcm.clear();
                    self.capture.take(&mut pcm);
                    if self.user.controls.is_muted() {
                        pcm.fill(0);
                    }
                    self.gate.handle_audio(&pcm);
                    let gaps = self.capture.counts().gaps;
                    self.counts.gaps.fetch_add(gaps - counted, Relaxed);
                    counted = gaps;
                    // The echo after a session is no wake word.
                    if let Some(wake) = self.wake.as_ref().filter(|_| due.is_none()) {
                        wake.send(&pcm, self.gate.position());
                    }
                }
                IdleEvent::WakeWord(position) => {
                    self.hook.handle_state(LocalState::Wake);
                    self.gate.handle_wake_word(position);
                }
                IdleEvent::Microphone(MicrophoneEvent::Overrun) => self.capture.handle_xrun(tasks::now()),
                IdleEvent::Microphone(MicrophoneEvent::Started) => self.capture.handle_restart(),
                IdleEvent::Microphone(MicrophoneEvent::Failed) => {
                    self.capture.handle_failure(tasks::now());
                    self.hook.handle_state(LocalState::Error);
                    self.gate.handle_silence();
                }
                IdleEvent::Wish(UserWish::Begin) => self.gate.handle_line(),
                IdleEvent::Wish(UserWish::Say(line)) => {
                    if self.said.len() < SAID_MAX {
                        self.said.push(line);
                    }
                    self.gate.handle_line();
                }
                IdleEvent::Wish(UserWish::BeginOrEnd) => self.gate.handle_key(),
                IdleEvent::Wish(wish) => self.user.handle_control(&wish, LocalState::Listening),
                IdleEvent::Loan(loan) => self.lend(loan).await,
                IdleEvent::Due => {}
            }
        }
    }

    /// Lends the card. What the microphone said before is no beginning of a session.
    async fn lend(&mut self, loan: CardLoan) {
        self.microphone = None;
        self.capture.handle_restart();
        self.gate.handle_silence();
        if let Some(wake) = &self.wake {
            wake.pause();
        }
        loan.lend().await;
    }

    /// Runs one session to its end.
    async fn run_session(&mut self, preroll: Vec<i16>, permit: SessionPermit) {
        let began = tasks::now();
        self.user.report(LocalState::Call);
        let end = match self.spawn_session(preroll, permit, began).await {
            Some(parts) => {
                self.microphone = Some(parts.microphone);
                self.capture = parts.capture;
                self.user = parts.user;
                match parts.is_ended_by_user {
                    true => SessionEnd::User,
                    false => SessionEnd::Left(parts.left),
                }
            }
            // The runner ends.
            None => {
                self.microphone = None;
                self.capture = Capture::new(self.config.input.rate_hz, self.config.input.channels);
                SessionEnd::Left(LeaveReason::Failed)
            }
        };
        self.gate.handle_session_end(began, end, tasks::now());
        if !self.user.can_begin() {
            self.gate.handle_absent_user();
        }
        if self.gate.waits_for_line() {
            self.user.terminal.show("Enter begins another session");
        }
    }

    async fn spawn_session(&mut self, preroll: Vec<i16>, permit: SessionPermit, now: Instant) -> Option<LocalParts> {
        let (sessions, config) = (&self.sessions, &self.config);
        let setup = LocalSetup {
            types: config.types,
            in_rate_hz: config.input.rate_hz,
            out_rate_hz: config.output.rate_hz,
            out_channels: config.output.channels,
            echo: if config.types { LocalEcho::Off } else { config.echo },
            controls: self.user.controls,
            has_tones: !config.types && config.tones.unwrap_or(self.start == LocalStart::Wake),
            stop_words: config.stop_words.clone(),
            end: config.end.unwrap_or(self.start.end_default()),
            shows_levels: self.user.terminal.shows_levels(),
            preroll,
        };
        let microphone = self.microphone.take().unwrap_or_else(|| self.listen());
        let without = LocalUser::absent(self.user.controls, self.hook.clone());
        let fresh = Capture::new(config.input.rate_hz, config.input.channels);
        let parts = LocalParts {
            microphone,
            capture: std::mem::replace(&mut self.capture, fresh),
            user: std::mem::replace(&mut self.user, without),
            is_ended_by_user: false,
            left: LeaveReason::Failed,
        };
        let (back, returned) = oneshot::channel();
        let io = LocalIo::new(
            parts,
            config,
            &sessions.config().withheld,
            &self.slots,
            &self.counts,
            back,
        );
        let id = new_session_id();
        let mut task = SessionTask::new(sessions.clone(), permit, None);
        let bots = sessions.bots();
        // The start has refused an unknown name.
        let chosen = bots.choose(BotChoice::named(config.bot.as_deref()));
        let chosen = chosen.unwrap_or_else(|UnknownBot| bots.default());
        let mut session = Box::new(LocalSession::new(setup, now));
        for line in self.said.drain(..) {
            session.handle_typed(&line, now);
        }
        let bot_id = id.clone();
        let running = async move {
            task.start_bot(chosen, bot_id, json!({}), Transport::Local, FRAMES_MAX, |slot| {
                Kind::Local(LocalArguments::new(slot))
            });
            session::run(session, io, task).await;
        };
        let running = logging::in_session(id.clone(), running);
        let running = tasks::spawn(sessions.watchdog().watch_task(id, TaskRole::Media, running));
        // The bot may take longer to end than its session.
        let parts = self.loans.refuse_during(returned).await.ok();
        let _ = self.loans.refuse_during(running).await;
        parts
    }
}

/// Waits for the next event of a microphone, and reads none before `reads_at`.
async fn next_of(microphone: Option<&mut MicrophoneCommand>, reads_at: Option<Instant>) -> MicrophoneEvent {
    if let Some(at) = reads_at {
        sleep_until(at.into()).await;
    }
    match microphone {
        Some(microphone) => microphone.next().await,
        None => std::future::pending().await,
    }
}

/// Waits until a time; for ever without one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
