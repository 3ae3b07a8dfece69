//! Whole sessions with scripted callers, in virtual time.

mod audio;
mod caller;
mod endings;
mod outages;
mod records;
mod world;
