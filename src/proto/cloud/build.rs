//! One build: what is recorded of it, how it changes, and its JSON.
