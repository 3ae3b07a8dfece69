//! Archives of the POSIX tar format, written.
