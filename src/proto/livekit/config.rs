//! The settings of the LiveKit server and of the registration there.

use crate::job::JobType;
use crate::secret::Secret;

/// Configuration of the LiveKit server. Sessions need `url`, `key` and `secret`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(alias = "LiveKit")]
pub struct Mediaroom {
    /// `ws`, `wss`, `http` or `https` URL, without a trailing slash.
    pub url: Option<String>,
    /// API key, which names the secret.
    pub key: Option<String>,
    /// API secret, which signs access tokens.
    pub secret: Option<Secret>,
    /// The room of all sessions; `None` creates a room for each.
    pub room_name: Option<String>,
    /// Further URLs of the same server or cluster, for when the first does not answer.
    pub other_urls: Vec<String>,
    /// How the runner registers for jobs; `None` without `--register`.
    pub worker: Option<MediaroomWorker>,
}

impl Mediaroom {
    /// Returns all URLs, the preferred one first.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.url.iter().chain(&self.other_urls).map(String::as_str)
    }
}

/// Returns the names of the required variables that are not set.
pub fn missing_variables(config: &Mediaroom) -> Vec<&'static str> {
    let needed = [
        ("MEDIAROOM_URL", config.url.is_some()),
        ("MEDIAROOM_API_KEY", config.key.is_some()),
        ("MEDIAROOM_API_SECRET", config.secret.is_some()),
    ];
    needed
        .into_iter()
        .filter(|(_, is_set)| !is_set)
        .map(|(name, _)| name)
        .collect()
}

/// Registration at a LiveKit server, which then assigns rooms to the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "LiveKit")]
pub struct MediaroomWorker {
    /// What a job is for.
    pub job_type: JobType,
    /// The name by which rooms ask for this bot; empty to get a job for every room.
    pub agent_name: String,
    /// A further name that has to match; empty for none.
    pub deployment: String,
    /// The load at which the server prefers other runners, in hundredths: `agents.target_load` of
    /// its configuration.
    pub target_load_percent: u8,
}

impl MediaroomWorker {
    /// The default of [`MediaroomWorker::agent_name`].
    pub const AGENT_NAME: &str = "bot";
    /// The default of [`MediaroomWorker::target_load_percent`]: that of the server.
    pub const TARGET_LOAD_PERCENT: u8 = 70;
}
