//! Whole sessions with scripted callers, in virtual time.

mod arrivals;
mod audio;
mod caller;
mod endings;
mod outages;
mod records;
mod rig;
