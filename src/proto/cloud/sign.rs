//! The signature of an upload grant: derivation of keys, signing, verifying.
