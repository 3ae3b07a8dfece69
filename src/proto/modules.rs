//! The modules of the runner that read variables, one row each.

use crate::options::variables::ModuleVariables;
use crate::{assistant, calls, daily, livekit, whatsapp};

/// The variables of all modules but those of the telephony providers, which have tables of their
/// own, in the order of the help.
pub const VARIABLES: [&ModuleVariables; 5] = [
    &daily::options::VARIABLES,
    &livekit::options::VARIABLES,
    &whatsapp::options::VARIABLES,
    &assistant::options::VARIABLES,
    &calls::options::VARIABLES,
];
