//! Archives of the POSIX tar format, read as bytes come.
