//! API keys: their text, the hashes that are kept, and whose a key is.
