//! Builds: created, listed, cached, queued.
