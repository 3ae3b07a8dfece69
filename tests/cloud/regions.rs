//! The file of regions.
