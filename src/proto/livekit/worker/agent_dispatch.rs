//! The request for a bot, as a token or a call of the API has it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// The attribute of a dispatch that names its session.
pub(super) const SESSION_ID_ATTRIBUTE: &str = "edge.session_id";

/// The attribute of a dispatch that names one of several bots.
pub(super) const BOT_ATTRIBUTE: &str = "edge.bot";

/// The request for a bot: in the configuration of a room, or for a room that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentDispatch {
    pub(super) agent_name: String,
    pub(super) metadata: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) deployment: String,
    pub(super) attributes: BTreeMap<String, String>,
}

impl AgentDispatch {
    /// Returns the request for a session with this body.
    pub(super) fn new(agent_name: &str, deployment: &str, body: &Value, session_id: &str) -> Self {
        AgentDispatch {
            agent_name: agent_name.to_owned(),
            metadata: body.to_string(),
            deployment: deployment.to_owned(),
            attributes: [(SESSION_ID_ATTRIBUTE.to_owned(), session_id.to_owned())].into(),
        }
    }
}
