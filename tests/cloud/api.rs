//! Every operation, and every refusal with its code.
