//! Builds outlive a kill and a stop.
