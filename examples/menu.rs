//! A telephone menu by keypad, as a state machine: 1 plays a melody, 2 plays the caller back, 3
//! asks for a code of three digits and plays their tones, 0 transfers the call to a person, `#`
//! hangs up.
//!
//! 1. `cargo run --release --example menu -- -t twilio --proxy example.ngrok.app`
//! 2. Set `https://example.ngrok.app/` as the voice webhook of your number.
//! 3. Call it. Without a number, open <http://localhost:7860>: the page has a keypad, and simulates
//!    calls of providers.
//!
//! A telephone shows no text, so the menu is spoken: by the voice of `CASCADE_TTS_URL`, such as
//! `tcp://127.0.0.1:10200` of a Wyoming server, or from a file, `MENU_PROMPT=menu.wav`, as
//! `espeak-ng -w menu.wav "Press 1 for a melody"` makes it. `MENU_OPERATOR=+15550001111` is who 0
//! leads to; the provider's credentials are those of the runner.

use std::env;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use edge_runner::kit::{
    CallControlError, DigitCollector, DigitRules, Digits, DigitsEnd, PhoneCall, PromptVoice, ToneSegment, Wav,
    dtmf_tone, play, tones,
};
use edge_runner::rtvi::{Rtvi, RtviEvent};
use edge_runner::{Audio, BotError, RunnerArguments};
use tokio::time::{Instant, sleep_until};

const MENU: &str = "Press 1 for a melody, 2 to hear yourself, 3 to enter a code, 0 for a person, # to hang up.";
/// One low note, the prompt for a caller without a screen if nothing speaks it.
const PROMPT_HZ: [f32; 1] = [330.0];
const CODE_PROMPT_HZ: [f32; 2] = [330.0, 440.0];
const MELODY_HZ: [f32; 4] = [523.0, 659.0, 784.0, 1_047.0];
const NOTE: Duration = Duration::from_millis(250);
/// Time for each digit of the code.
const DIGIT_WITHIN: Duration = Duration::from_secs(5);

/// Speech that is longer than the queue, on its way to the caller.
type Saying = Pin<Box<dyn Future<Output = Result<(), BotError>> + Send>>;

/// What the next key or sound of the caller means.
enum State {
    Menu,
    PlaysBack,
    AsksForCode(DigitCollector),
    /// The call is its provider's.
    IsTransferred,
}

pub async fn bot(args: RunnerArguments) -> Result<(), BotError> {
    let operator = env::var_os("MENU_OPERATOR").and_then(|operator| operator.into_string().ok());
    let prompt = match (env::var_os("MENU_PROMPT"), PromptVoice::of(&args)) {
        (Some(file), _) => Some(Arc::new(Wav::read(&std::fs::read(file)?)?)),
        (None, Some(voice)) => spoken(&voice).await,
        (None, None) => None,
    };
    serve(args, operator, prompt).await
}

/// Returns the menu as speech. The runner keeps it for the next call.
async fn spoken(voice: &PromptVoice) -> Option<Arc<Wav>> {
    let spoken = voice.speak(MENU).await;
    spoken
        .inspect_err(|why| eprintln!("the menu is not spoken: {why}"))
        .ok()
}

/// Serves one caller. `operator` is a number or a SIP address, `prompt` the menu as speech.
pub async fn serve(
    mut args: RunnerArguments,
    operator: Option<String>,
    prompt: Option<Arc<Wav>>,
) -> Result<(), BotError> {
    // At the rate of a telephone line nothing is resampled.
    let rate_hz = args.line_rate_hz().unwrap_or(16_000);
    let rtvi = Rtvi::open(&mut args, Audio::at(rate_hz))?;
    let mut menu = Menu {
        phone: PhoneCall::new(&args, rtvi.output()),
        operator,
        prompt,
        saying: None,
        rtvi,
        rate_hz,
        state: State::Menu,
    };
    menu.run().await
}

struct Menu {
    rtvi: Rtvi,
    rate_hz: u32,
    state: State,
    /// An error on a page, which is no telephone.
    phone: Result<PhoneCall, CallControlError>,
    operator: Option<String>,
    prompt: Option<Arc<Wav>>,
    /// The prompt on its way to the caller.
    saying: Option<Saying>,
}

impl Menu {
    async fn run(&mut self) -> Result<(), BotError> {
        loop {
            let deadline = match &self.state {
                State::AsksForCode(collector) => collector.poll_timeout(),
                State::Menu | State::PlaysBack => None,
                // The runner closes the stream and does not hang up.
                State::IsTransferred => return Ok(()),
            };
            let timeout = async {
                match deadline {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            let said = async {
                match &mut self.saying {
                    Some(saying) => saying.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = self.rtvi.recv() => match event {
                    None => return Ok(()),
                    Some(RtviEvent::Dtmf('#')) if !self.asks_for_code() => return Ok(()),
                    Some(event) => self.handle_event(event).await?,
                },
                said = said => {
                    self.saying = None;
                    said?;
                }
                () = timeout => self.handle_timeout().await?,
            }
        }
    }

    fn asks_for_code(&self) -> bool {
        matches!(self.state, State::AsksForCode(_))
    }

    async fn handle_event(&mut self, event: RtviEvent) -> Result<(), BotError> {
        match event {
            RtviEvent::Ready => self.rtvi.show(MENU),
            RtviEvent::Joined => self.prompt().await?,
            RtviEvent::Audio(frame) if matches!(self.state, State::PlaysBack) => self.rtvi.send_audio(&frame).await?,
            RtviEvent::Dtmf(key) => {
                self.saying = None;
                self.rtvi.interrupt();
                self.handle_key(key).await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn handle_key(&mut self, key: char) -> Result<(), BotError> {
        let now = Instant::now().into_std();
        if let State::AsksForCode(collector) = &mut self.state {
            return match collector.handle_key(key, now) {
                Some(digits) => self.handle_code(&digits).await,
                None => Ok(()),
            };
        }
        self.state = State::Menu;
        match key {
            '1' => self.play(&MELODY_HZ).await,
            '2' => {
                self.state = State::PlaysBack;
                self.rtvi.show("Speak, and press another key to stop.");
                Ok(())
            }
            '3' => {
                let rules = DigitRules::new(3, DIGIT_WITHIN);
                self.state = State::AsksForCode(DigitCollector::new(rules, now));
                self.rtvi.show("Enter three digits, or fewer and #.");
                self.play(&CODE_PROMPT_HZ).await
            }
            '0' => self.transfer().await,
            _ => self.offer_menu().await,
        }
    }

    async fn transfer(&mut self) -> Result<(), BotError> {
        let why = match (&self.phone, &self.operator) {
            (Err(error), _) => error.to_string(),
            (Ok(_), None) => "no one is there now".to_owned(),
            (Ok(phone), Some(operator)) => match phone.transfer(operator).await {
                Ok(()) => {
                    self.state = State::IsTransferred;
                    return Ok(());
                }
                Err(error) => error.to_string(),
            },
        };
        self.rtvi.show(&format!("You cannot be transferred: {why}."));
        self.offer_menu().await
    }

    async fn handle_timeout(&mut self) -> Result<(), BotError> {
        let State::AsksForCode(collector) = &mut self.state else {
            return Ok(());
        };
        match collector.handle_timeout(Instant::now().into_std()) {
            Some(digits) => self.handle_code(&digits).await,
            None => Ok(()),
        }
    }

    /// Plays the tones of a code, and returns to the menu.
    async fn handle_code(&mut self, digits: &Digits) -> Result<(), BotError> {
        self.state = State::Menu;
        if digits.end == DigitsEnd::TimedOut || digits.keys.is_empty() {
            return self.offer_menu().await;
        }
        self.rtvi.show(&format!("Your code is {}.", digits.keys));
        let keys: Vec<ToneSegment> = digits.keys.chars().filter_map(dtmf_tone).collect();
        Ok(self.rtvi.send_audio(&tones(&keys, self.rate_hz)).await?)
    }

    async fn offer_menu(&mut self) -> Result<(), BotError> {
        self.rtvi.show(MENU);
        self.prompt().await
    }

    async fn prompt(&mut self) -> Result<(), BotError> {
        let Some(prompt) = self.prompt.clone() else {
            return self.play(&PROMPT_HZ).await;
        };
        // Keys are read meanwhile.
        let output = self.rtvi.output().clone();
        self.saying = Some(Box::pin(async move { Ok(play(&output, &prompt).await?) }));
        Ok(())
    }

    async fn play(&mut self, notes_hz: &[f32]) -> Result<(), BotError> {
        let notes: Vec<ToneSegment> = notes_hz.iter().map(|hz| ToneSegment::new(*hz, NOTE)).collect();
        Ok(self.rtvi.send_audio(&tones(&notes, self.rate_hz)).await?)
    }
}

fn main() -> std::process::ExitCode {
    edge_runner::main(bot)
}
