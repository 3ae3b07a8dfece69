//! Makes what an archive holds.
