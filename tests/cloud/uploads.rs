//! Uploads: the order of refusals, and many at once.
