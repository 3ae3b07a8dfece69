//! Replaces each command that this build lacks: it has no row.

use super::command::CommandRow;

/// No row of `commands`.
pub(super) const COMMAND: Option<&CommandRow> = None;
