//! Replaces `io::doctor` in a build without `doctor`, which rejects the command as an argument.

use std::sync::Arc;

use crate::config::Config;
use crate::proto::doctor::Findings;

pub async fn examine(_config: Arc<Config>) -> Findings {
    Findings::default()
}
