//! Shell patterns as ignore files have them.
