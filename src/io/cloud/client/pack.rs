//! Packs a folder.
