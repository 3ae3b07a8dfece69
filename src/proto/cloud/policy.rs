//! The policy document of an upload grant: what it allows, and what a form lacks of that.
