//! All builds: the queue, those that run, and what became of them.
