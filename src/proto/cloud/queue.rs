//! Which build runs next, and what becomes of builds when the service starts again.
