//! A bot with its scripted services, which run in a thread of this process.

use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::records::Recorder;
use super::sound::Answer;
use super::{cascade_services, speech_service};
use crate::runner::Runner;
use crate::{Bench, Result};

/// A bot with its services.
pub struct Assistant {
    pub bot: &'static str,
    environment: Vec<(&'static str, String)>,
    pub records: Recorder,
    /// Serves until it is dropped.
    _services: Runtime,
}

impl Assistant {
    pub fn realtime(answer: Answer) -> Result<Self> {
        let (services, records) = (services()?, Recorder::default());
        let listener = services.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let url = format!("ws://{}/v1", listener.local_addr()?);
        services.spawn(speech_service::serve(listener, answer, records.clone()));
        Ok(Assistant {
            bot: "realtime",
            environment: vec![
                ("REALTIME_URL", url),
                ("REALTIME_MODEL", "m".to_owned()),
                ("REALTIME_G711", "on".to_owned()),
                ("RUNNER_BOT_GREETING", String::new()),
            ],
            records,
            _services: services,
        })
    }

    pub fn cascade(answer: Answer, sentences: usize) -> Result<Self> {
        let (services, records) = (services()?, Recorder::default());
        let bind = || services.block_on(TcpListener::bind("127.0.0.1:0"));
        let (recognizer, chat, voice) = (bind()?, bind()?, bind()?);
        let (stt, llm, tts) = (recognizer.local_addr()?, chat.local_addr()?, voice.local_addr()?);
        services.spawn(cascade_services::recognize(recognizer, records.clone()));
        services.spawn(cascade_services::chat(chat, sentences, records.clone()));
        services.spawn(cascade_services::synthesize(voice, answer, records.clone()));
        Ok(Assistant {
            bot: "cascade",
            environment: vec![
                ("CASCADE_STT_URL", format!("tcp://{stt}")),
                ("CASCADE_LLM_URL", format!("http://{llm}/v1")),
                ("CASCADE_LLM_MODEL", "m".to_owned()),
                ("CASCADE_TTS_URL", format!("tcp://{tts}")),
                ("RUNNER_BOT_GREETING", String::new()),
            ],
            records,
            _services: services,
        })
    }

    /// Starts the runner.
    pub fn start(&self, bench: &Bench) -> Result<Runner> {
        let environment: Vec<(&str, &str)> = self
            .environment
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        Runner::start_assistant(&bench.binary, self.bot, &environment)
    }
}

/// Returns the runtime of services, which has a thread of its own.
fn services() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?)
}
