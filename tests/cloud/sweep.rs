//! What is old goes, and what is needed stays.
