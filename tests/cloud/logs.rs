//! The log of a build, while it runs and after.
