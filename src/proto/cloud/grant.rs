//! An upload grant and its security token.
