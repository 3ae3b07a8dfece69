//! The modules of the runner: one row for the variables of each, and one for each of its endpoints.

use crate::http::endpoint::ModuleEndpoint;
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

/// The endpoints of modules, beside those of [`crate::http::route`].
pub static ENDPOINTS: [ModuleEndpoint; 5] = [
    daily::endpoints::ROOM,
    daily::endpoints::DIALIN,
    livekit::endpoints::WORKER,
    livekit::endpoints::ROOM_EVENTS,
    whatsapp::endpoints::WEBHOOK,
];
