//! Upload grants outlive a restart and end in time.
