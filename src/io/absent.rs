//! Replaces each module that this build lacks: it has no row.

use crate::io::module::Module;

/// No row of `modules`.
pub const MODULE: Option<&Module> = None;
