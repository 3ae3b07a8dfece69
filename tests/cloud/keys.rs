//! Keys are made, listed, revoked, and belong to an organization.
