//! Where archives are kept.
