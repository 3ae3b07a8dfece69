//! The twin of `io::doctor` in a build without `doctor`, which refuses the word when it reads the arguments.

use std::sync::Arc;

use crate::config::Config;
use crate::proto::doctor::Findings;

pub async fn examine(_config: Arc<Config>) -> Findings {
    Findings::default()
}
